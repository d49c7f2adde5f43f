//! Accounts, users, their associations, QOS and limits: which jobs may run, and in which order.

use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::duration::parse_limit;

/// Name of the account above all others. It always exists.
pub const ROOT: &str = "root";

/// Name of the QOS that always exists.
pub const NORMAL: &str = "normal";

/// A limit. Variants are added at the end only. "Together" means all jobs of an association (with those below it) or of
/// a QOS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum Limit {
    /// Running jobs of all users together.
    #[n(0)]
    GrpJobs,
    /// Pending and running jobs of all users together.
    #[n(1)]
    GrpSubmit,
    /// Wall-clock seconds of all jobs together.
    #[n(2)]
    GrpWall,
    /// CPUs of all jobs together.
    #[n(3)]
    GrpCpu,
    /// Memory of all jobs together, MiB.
    #[n(4)]
    GrpMem,
    /// Nodes of all jobs together.
    #[n(5)]
    GrpNode,
    /// Running jobs of each user in an association.
    #[n(6)]
    MaxJobs,
    /// Pending and running jobs of each user in an association.
    #[n(7)]
    MaxSubmit,
    /// Time limit of a job, seconds.
    #[n(8)]
    MaxWall,
    /// CPUs of a job.
    #[n(9)]
    MaxCpu,
    /// Memory of a job, MiB.
    #[n(10)]
    MaxMem,
    /// Nodes of a job.
    #[n(11)]
    MaxNode,
    /// Running jobs of each user in a QOS.
    #[n(12)]
    UserJobs,
    /// Pending and running jobs of each user in a QOS.
    #[n(13)]
    UserSubmit,
    /// CPUs of each user in a QOS.
    #[n(14)]
    UserCpu,
    /// Memory of each user in a QOS, MiB.
    #[n(15)]
    UserMem,
    /// Nodes of each user in a QOS.
    #[n(16)]
    UserNode,
    /// Running jobs of each account in a QOS.
    #[n(17)]
    AccountJobs,
    /// Pending and running jobs of each account in a QOS.
    #[n(18)]
    AccountSubmit,
    /// CPUs of each account in a QOS.
    #[n(19)]
    AccountCpu,
    /// Memory of each account in a QOS, MiB.
    #[n(20)]
    AccountMem,
    /// Nodes of each account in a QOS.
    #[n(21)]
    AccountNode,
    /// Fewest CPUs of a job.
    #[n(22)]
    MinCpu,
    /// Least memory of a job, MiB.
    #[n(23)]
    MinMem,
    /// Fewest nodes of a job.
    #[n(24)]
    MinNode,
    /// Any other limit, by scope and resource.
    #[n(25)]
    Tres(#[n(0)] Scope, #[n(1)] Tres),
}

/// What a limit counts. Variants are added at the end only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Scope {
    /// All jobs together.
    #[n(0)]
    Grp,
    /// All jobs together, usage so far: resources times seconds.
    #[n(1)]
    GrpUsed,
    /// All running jobs together, for their remaining time: resources times seconds.
    #[n(2)]
    GrpDue,
    /// Each job by itself.
    #[n(3)]
    Job,
    /// Each job: resources times the seconds of its time limit.
    #[n(4)]
    JobDue,
    /// Each job on each of its nodes.
    #[n(5)]
    Node,
    /// All jobs of a user in an association or QOS.
    #[n(6)]
    User,
    /// All jobs of an account in a QOS.
    #[n(7)]
    Account,
    /// Each job, where the limit is a minimum.
    #[n(8)]
    Least,
}

/// A resource that is accounted and can be limited. Variants are added at the end only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Tres {
    #[n(0)]
    Cpu,
    #[n(1)]
    Mem,
    #[n(2)]
    Node,
    #[n(3)]
    Gpu,
}

impl Tres {
    /// All resources that can be limited, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Cpu, Self::Mem, Self::Node, Self::Gpu];

    /// Returns Slurm's name, as `gres/gpu`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Mem => "mem",
            Self::Node => "node",
            Self::Gpu => "gres/gpu",
        }
    }
}

impl Limit {
    /// Limits on resources that are variants of their own, with scope and resource.
    const NAMED: [(Self, Scope, Tres); 15] = [
        (Self::GrpCpu, Scope::Grp, Tres::Cpu),
        (Self::GrpMem, Scope::Grp, Tres::Mem),
        (Self::GrpNode, Scope::Grp, Tres::Node),
        (Self::MaxCpu, Scope::Job, Tres::Cpu),
        (Self::MaxMem, Scope::Job, Tres::Mem),
        (Self::MaxNode, Scope::Job, Tres::Node),
        (Self::UserCpu, Scope::User, Tres::Cpu),
        (Self::UserMem, Scope::User, Tres::Mem),
        (Self::UserNode, Scope::User, Tres::Node),
        (Self::AccountCpu, Scope::Account, Tres::Cpu),
        (Self::AccountMem, Scope::Account, Tres::Mem),
        (Self::AccountNode, Scope::Account, Tres::Node),
        (Self::MinCpu, Scope::Least, Tres::Cpu),
        (Self::MinMem, Scope::Least, Tres::Mem),
        (Self::MinNode, Scope::Least, Tres::Node),
    ];

    /// Returns the limit on a resource in a scope.
    pub fn of(scope: Scope, tres: Tres) -> Self {
        let named = Self::NAMED.iter().find(|named| (named.1, named.2) == (scope, tres));
        named.map_or(Self::Tres(scope, tres), |named| named.0)
    }

    /// Returns the limited resource. None: the limit is on jobs or time.
    pub fn tres(self) -> Option<Tres> {
        match self {
            Self::Tres(_, tres) => Some(tres),
            _ => Self::NAMED.iter().find(|named| named.0 == self).map(|named| named.2),
        }
    }

    /// Returns what the limit counts.
    pub fn scope(self) -> Scope {
        match self {
            Self::Tres(scope, _) => scope,
            Self::GrpJobs | Self::GrpSubmit => Scope::Grp,
            Self::GrpWall => Scope::GrpUsed,
            Self::MaxWall => Scope::Job,
            Self::MaxJobs | Self::MaxSubmit | Self::UserJobs | Self::UserSubmit => Scope::User,
            Self::AccountJobs | Self::AccountSubmit => Scope::Account,
            _ => Self::NAMED.iter().find(|named| named.0 == self).map_or(Scope::Job, |named| named.1),
        }
    }

    /// Returns whether associations below inherit the limit. Limits on totals apply only where they are set.
    fn is_inherited(self) -> bool {
        !matches!(self.scope(), Scope::Grp | Scope::GrpUsed | Scope::GrpDue)
    }

    /// Returns whether the rest below the limit changes even while no job starts or ends.
    pub fn moves(self) -> bool {
        matches!(self.scope(), Scope::GrpUsed | Scope::GrpDue)
    }
}

/// What a limit is set on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Whose {
    /// An association.
    #[n(0)]
    Association,
    /// A QOS.
    #[n(1)]
    Qos,
}

/// Limits that are set. A limit that is missing does not apply.
pub type Limits = BTreeMap<Limit, u64>;

/// An account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Account {
    /// What the account is for, as a text.
    #[n(0)]
    pub description: String,
    /// Organization that the account belongs to.
    #[n(1)]
    pub organization: String,
    /// Users that may add users to the account and change them.
    #[n(2)]
    pub coordinators: Vec<String>,
}

/// What a user may change of accounts, users, associations and QOS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum AdminLevel {
    /// May change nothing.
    #[default]
    #[n(0)]
    None,
    /// May change the same as an administrator.
    #[n(1)]
    Operator,
    /// May change everything.
    #[n(2)]
    Administrator,
}

/// A user of the accounting system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct User {
    /// Account of the user's jobs without `--account`.
    #[n(0)]
    pub default_account: String,
    /// What the user may change of accounts.
    #[n(1)]
    pub admin: AdminLevel,
}

/// Identifies an association: of an account, of a user in an account, or of a user in an account for one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct AssocKey {
    /// The account.
    #[n(0)]
    pub account: String,
    /// The user. Empty: the association is the account's.
    #[n(1)]
    pub user: String,
    /// The partition. Empty: any.
    #[n(2)]
    pub partition: String,
}

impl AssocKey {
    /// Returns the key of an account's association.
    pub fn account(account: &str) -> Self {
        Self { account: account.to_owned(), ..Self::default() }
    }
    /// Returns the key of a user's association in an account, for any partition.
    pub fn user(account: &str, user: &str) -> Self {
        Self { user: user.to_owned(), ..Self::account(account) }
    }
}

/// A node in the tree of accounts and users, with its shares and limits.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Association {
    /// Number of the association, given by the controller.
    #[n(0)]
    pub id: u32,
    /// For an account's association: name of the parent account.
    #[n(1)]
    pub parent: String,
    /// Fair-share shares. None: the parent's (`fairshare=parent`).
    #[n(2)]
    pub shares: Option<u32>,
    /// Limits set on the association.
    #[n(3)]
    pub limits: Limits,
    /// QOS that its jobs may use. Empty: as its parent.
    #[n(4)]
    pub qos: Vec<String>,
    /// QOS of its jobs without `--qos`. Empty: as its parent.
    #[n(5)]
    pub default_qos: String,
    /// Priority of the association, used with `priority_weight_assoc`.
    #[n(6)]
    pub priority: Option<u32>,
}

impl Default for Association {
    fn default() -> Self {
        Self {
            id: 0,
            parent: String::new(),
            shares: Some(1),
            limits: Limits::new(),
            qos: Vec::new(),
            default_qos: String::new(),
            priority: None,
        }
    }
}

/// What happens to preempted jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Encode, Decode)]
#[cbor(index_only)]
#[serde(rename_all = "lowercase")]
pub enum PreemptMode {
    /// Jobs are not preempted.
    #[default]
    #[serde(alias = "OFF")]
    #[n(0)]
    Off,
    /// Preempted jobs are cancelled.
    #[serde(alias = "CANCEL")]
    #[n(1)]
    Cancel,
    /// Preempted jobs are requeued, or cancelled if they may not be.
    #[serde(alias = "REQUEUE")]
    #[n(2)]
    Requeue,
    /// Preempted jobs are suspended while others run on their cores.
    #[serde(alias = "SUSPEND")]
    #[n(3)]
    Suspend,
}

/// A QOS (quality of service): priority, limits and preemption of the jobs that use it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Qos {
    /// Number of the QOS, given by the controller.
    #[n(0)]
    pub id: u32,
    /// What the QOS is for, as a text.
    #[n(1)]
    pub description: String,
    /// Priority of the QOS, used with `priority_weight_qos`.
    #[n(2)]
    pub priority: u32,
    /// QOS whose jobs may be preempted for jobs of this one.
    #[n(3)]
    pub preempt: Vec<String>,
    /// What happens to preempted jobs of the QOS. None: as the cluster's setting.
    #[n(4)]
    pub preempt_mode: Option<PreemptMode>,
    /// Seconds between warning and end of preempted jobs of the QOS.
    #[n(5)]
    pub grace_s: u64,
    /// Seconds that jobs of the QOS run before they can be preempted. None: as the cluster's setting.
    #[n(6)]
    pub exempt_s: Option<u64>,
    /// Factor by which usage of jobs of the QOS counts, in millionths.
    #[n(7)]
    pub usage_factor: u64,
    /// Flags, by Slurm's names.
    #[n(8)]
    pub flags: Vec<String>,
    /// Limits set on the QOS.
    #[n(9)]
    pub limits: Limits,
}

impl Default for Qos {
    fn default() -> Self {
        Self {
            id: 0,
            description: String::new(),
            priority: 0,
            preempt: Vec::new(),
            preempt_mode: None,
            grace_s: 0,
            exempt_s: None,
            usage_factor: 1_000_000,
            flags: Vec::new(),
            limits: Limits::new(),
        }
    }
}

/// All accounts, users, associations and QOS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Policy {
    /// Number of changes so far.
    #[n(0)]
    pub version: u64,
    /// The highest number given to an association.
    #[n(1)]
    pub last_assoc: u32,
    /// The highest number given to a QOS.
    #[n(2)]
    pub last_qos: u32,
    /// Accounts, by name.
    #[n(3)]
    pub accounts: BTreeMap<String, Account>,
    /// Users, by name.
    #[n(4)]
    pub users: BTreeMap<String, User>,
    /// Associations of accounts and users.
    #[n(5)]
    pub associations: BTreeMap<AssocKey, Association>,
    /// QOS, by name.
    #[n(6)]
    pub qos: BTreeMap<String, Qos>,
}

/// A change to one entry: its new value. None: it is removed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum PolicyChange {
    /// Change of the account with this name.
    #[n(0)]
    Account(#[n(0)] String, #[n(1)] Option<Account>),
    /// Change of the user with this name.
    #[n(1)]
    User(#[n(0)] String, #[n(1)] Option<User>),
    /// Change of an association. An existing one keeps its number, a new one gets the next.
    #[n(2)]
    Association(#[n(0)] AssocKey, #[n(1)] Option<Association>),
    /// Change of the QOS with this name. An existing one keeps its number, a new one gets the next.
    #[n(3)]
    Qos(#[n(0)] String, #[n(1)] Option<Qos>),
    /// Resets the usage of an association, or of all associations below an account, to zero.
    #[n(4)]
    Forget(#[n(0)] AssocKey),
    /// Resets the usage of a QOS to zero.
    #[n(5)]
    ForgetQos(#[n(0)] String),
}

impl Policy {
    /// Returns whether no association and no QOS exists.
    pub fn is_empty(&self) -> bool {
        self.associations.is_empty() && self.qos.is_empty()
    }

    /// Applies a change.
    pub fn change(&mut self, change: &PolicyChange) {
        match change {
            PolicyChange::Account(name, value) => set(&mut self.accounts, name, value.as_ref()),
            PolicyChange::User(name, value) => set(&mut self.users, name, value.as_ref()),
            PolicyChange::Association(key, value) => {
                let known = self.associations.get(key).map(|known| known.id);
                let id = known.unwrap_or(self.last_assoc + 1);
                self.last_assoc = self.last_assoc.max(id);
                let value = value.as_ref().map(|value| Association { id, ..value.clone() });
                set(&mut self.associations, key, value.as_ref());
            }
            PolicyChange::Qos(name, value) => {
                let id = self.qos.get(name).map_or(self.last_qos + 1, |known| known.id);
                self.last_qos = self.last_qos.max(id);
                let value = value.as_ref().map(|value| Qos { id, ..value.clone() });
                set(&mut self.qos, name, value.as_ref());
            }
            PolicyChange::Forget(_) | PolicyChange::ForgetQos(_) => {}
        }
    }

    /// Returns the association of a user's jobs in an account: the one for the partition, otherwise the one for any.
    pub fn association(&self, account: &str, user: &str, partition: &str) -> Option<&Association> {
        let mut key = AssocKey { partition: partition.to_owned(), ..AssocKey::user(account, user) };
        if let Some(own) = self.associations.get(&key).filter(|_| !partition.is_empty()) {
            return Some(own);
        }
        key.partition.clear();
        self.associations.get(&key)
    }

    /// Iterates over the associations of an account and the accounts above it, nearest first.
    pub fn above<'a>(&'a self, account: &str) -> impl Iterator<Item = (&'a str, &'a Association)> + use<'a> {
        let at = |name: &str| self.associations.get_key_value(&AssocKey::account(name));
        let next = move |(_, own): &(&'a AssocKey, &'a Association)| at(&own.parent).filter(|_| !own.parent.is_empty());
        // Bounded by the number of accounts, so that a cycle among parents can't loop for ever.
        std::iter::successors(at(account), next)
            .take(self.accounts.len() + 1)
            .map(|(key, own)| (key.account.as_str(), own))
    }

    /// Returns the QOS that jobs of an association may use.
    pub fn allowed_qos<'a>(&'a self, account: &str, own: &'a Association) -> Vec<&'a str> {
        let all = std::iter::once(own).chain(self.above(account).map(|(_, above)| above));
        let set = all.map(|association| &association.qos).find(|qos| !qos.is_empty());
        set.map_or_else(|| vec![NORMAL], |qos| qos.iter().map(String::as_str).collect())
    }

    /// Returns the QOS of an association's jobs without `--qos`. None: none is set.
    pub fn default_qos<'a>(&'a self, account: &str, own: &'a Association) -> Option<&'a str> {
        let all = std::iter::once(own).chain(self.above(account).map(|(_, above)| above));
        all.map(|association| association.default_qos.as_str()).find(|qos| !qos.is_empty())
    }

    /// Returns a limit of an association: its own, or if it is inherited, the nearest one above.
    pub fn limit(&self, account: &str, own: &Association, limit: Limit) -> Option<u64> {
        let above = self.above(account).filter(|_| limit.is_inherited());
        own.limits.get(&limit).or(above.into_iter().find_map(|(_, above)| above.limits.get(&limit))).copied()
    }

    /// Returns all limits of an association, its own and those that it inherits.
    pub fn limits(&self, account: &str, own: &Association) -> impl Iterator<Item = (Limit, u64)> {
        let mut all = own.limits.clone();
        for (limit, most) in self.above(account).flat_map(|(_, above)| &above.limits) {
            if limit.is_inherited() {
                all.entry(*limit).or_insert(*most);
            }
        }
        all.into_iter()
    }
}

fn set<K: Ord + Clone, V: Clone>(map: &mut BTreeMap<K, V>, key: &K, value: Option<&V>) {
    match value {
        Some(value) => map.insert(key.clone(), value.clone()),
        None => map.remove(key),
    };
}

/// `AccountingStorageEnforce`: what a job must satisfy to be accepted. Limits that are set always apply, unless it is
/// `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Enforce {
    /// Nothing is enforced, not even limits.
    pub none: bool,
    /// A job needs an association for its user and account.
    pub associations: bool,
    /// A job needs a QOS that its association may use.
    pub qos: bool,
    /// A job starts only if its whole time limit fits within limits on time.
    pub safe: bool,
    /// The word `limits` was given. Limits apply also without it.
    pub limits: bool,
}

impl TryFrom<String> for Enforce {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut enforce = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word.to_ascii_lowercase().as_str() {
                "none" | "0" => enforce.none = true,
                "associations" | "1" => enforce.associations = true,
                "limits" | "2" => (enforce.associations, enforce.limits) = (true, true),
                "safe" => (enforce.associations, enforce.limits, enforce.safe) = (true, true, true),
                "qos" => (enforce.associations, enforce.qos) = (true, true),
                "all" => {
                    (enforce.associations, enforce.limits, enforce.qos, enforce.safe) = (true, true, true, true);
                }
                // Slurm's words that need no effect here.
                "nojobs" | "nosteps" | "wckeys" => {}
                _ => return Err(format!("`{word}`: associations, limits, qos, safe, all or none is meant")),
            }
        }
        Ok(enforce)
    }
}

impl From<Enforce> for String {
    fn from(enforce: Enforce) -> Self {
        let words = [
            (enforce.none, "none"),
            (enforce.associations, "associations"),
            (enforce.limits, "limits"),
            (enforce.qos, "qos"),
            (enforce.safe, "safe"),
        ];
        words.into_iter().filter_map(|(on, word)| on.then_some(word)).collect::<Vec<_>>().join(",")
    }
}

/// `EnforcePartLimits`: whether jobs that exceed limits of their partitions are refused. Otherwise they stay pending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum EnforcePartLimits {
    /// Such jobs stay pending.
    #[default]
    No,
    /// Such jobs are refused if none of their partitions accepts them.
    Any,
    /// Such jobs are refused if any of their partitions does not accept them.
    All,
}

impl TryFrom<String> for EnforcePartLimits {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "no" => Ok(Self::No),
            // `yes` is Slurm's older word for `any`.
            "any" | "yes" => Ok(Self::Any),
            "all" => Ok(Self::All),
            _ => Err(format!("EnforcePartLimits = `{text}`: NO, ANY or ALL is meant")),
        }
    }
}

impl From<EnforcePartLimits> for String {
    fn from(enforce: EnforcePartLimits) -> Self {
        match enforce {
            EnforcePartLimits::No => "NO",
            EnforcePartLimits::Any => "ANY",
            EnforcePartLimits::All => "ALL",
        }
        .to_owned()
    }
}

/// `PriorityType`: how the queue is ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PriorityType {
    /// By time of submission.
    #[default]
    #[serde(rename = "priority/basic", alias = "basic")]
    Basic,
    /// By age, fair share, size, partition and QOS.
    #[serde(rename = "priority/multifactor", alias = "multifactor")]
    Multifactor,
}

/// `PreemptType`: which jobs may be preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PreemptType {
    /// No job is preempted.
    #[default]
    #[serde(rename = "preempt/none", alias = "none")]
    None,
    /// Jobs of a QOS, for jobs of a QOS that lists it.
    #[serde(rename = "preempt/qos", alias = "qos")]
    Qos,
    /// Jobs of a partition, for jobs of a partition with a higher tier.
    #[serde(rename = "preempt/partition_prio", alias = "partition_prio")]
    Partition,
}

/// `PriorityUsageResetPeriod`: when all usage is reset to zero, by the calendar in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "the names say it")]
pub enum ResetPeriod {
    #[default]
    #[serde(alias = "none")]
    None,
    #[serde(alias = "daily")]
    Daily,
    #[serde(alias = "weekly")]
    Weekly,
    #[serde(alias = "monthly")]
    Monthly,
    #[serde(alias = "quarterly")]
    Quarterly,
    #[serde(alias = "yearly")]
    Yearly,
}

/// Seconds. In a file either a number, or a text in Slurm's format of times (`7-0` is 7 days, `30` is 30 minutes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(pub u64);

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl Seconds {
    /// Reads a key that Slurm counts in seconds too, as a number or a text (`30` is 30 seconds).
    pub(crate) fn plain<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Length::deserialize(deserializer)? {
            Length::Number(seconds) => Ok(Self(seconds)),
            Length::Text(text) => match text.trim().parse() {
                Ok(seconds) => Ok(Self(seconds)),
                Err(_) => Err(serde::de::Error::custom(format!("`{text}` is not a number of seconds such as 30"))),
            },
        }
    }
}

/// A duration as a configuration file has it.
#[derive(Deserialize)]
#[serde(untagged, expecting = "seconds as a number, or a text such as \"7-0\" is needed")]
enum Length {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Length::deserialize(deserializer)? {
            Length::Number(seconds) => Ok(Self(seconds)),
            Length::Text(text) => match parse_limit(&text) {
                Ok(Some(seconds)) => Ok(Self(seconds)),
                _ => Err(serde::de::Error::custom(format!("`{text}` is not a length of time such as \"7-0\""))),
            },
        }
    }
}

/// A floating-point number that compares as equal if its bits are.
#[derive(Clone, Copy, Debug, Default, Encode, Decode)]
#[cbor(transparent)]
pub struct Real(#[n(0)] pub f64);

impl PartialEq for Real {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Real {}

#[cfg(test)]
mod tests {
    use super::{Limit, Scope, Tres};
    use crate::config::Config;

    #[test]
    fn a_limit_is_what_it_is_made_of() {
        for scope in [Scope::Grp, Scope::GrpUsed, Scope::Job, Scope::Node, Scope::User, Scope::Account, Scope::Least] {
            for tres in Tres::ALL {
                let limit = Limit::of(scope, tres);
                assert_eq!((limit.scope(), limit.tres()), (scope, Some(tres)), "{limit:?}");
            }
        }
        assert_eq!(Limit::of(Scope::Grp, Tres::Cpu), Limit::GrpCpu, "what was written before is found");
    }

    #[test]
    fn grace_is_in_seconds_however_it_is_written() {
        let grace = |written: &str| {
            let config = Config::from_toml(&format!("[[partitions]]\nname = \"p\"\nGraceTime = {written}\n"))?;
            Ok::<u64, String>(config.partitions[0].grace_time_s.0)
        };
        assert_eq!((grace("5"), grace("\"5\"")), (Ok(5), Ok(5)));
        let refused = grace("\"1-0\"").unwrap_err();
        assert!(refused.contains("`1-0` is not a number of seconds"), "{refused}");
        let other = Config::from_toml("PreemptExemptTime = \"5\"").unwrap();
        assert_eq!(other.preempt_exempt_time_s.0, 300, "a time as Slurm writes it");
    }
}
