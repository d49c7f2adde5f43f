//! Accounts, users, their associations, QOS and limits: which jobs may run, and in which order.

use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::duration::parse_limit;

mod inherit;
mod qos;
mod tres;

/// Name of the account at the root of the account tree. It always exists.
pub const ROOT: &str = "root";

/// Name of the default QOS, which always exists.
pub const NORMAL: &str = "normal";

/// A limit on jobs and their resources. Variants are added at the end only. "Together" means all jobs of an association
/// (with those below it) or of a QOS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum Limit {
    /// Most jobs running at a time, all users together (GrpJobs).
    #[n(0)]
    GrpJobs,
    /// Most jobs pending or running at a time, all users together (GrpSubmitJobs).
    #[n(1)]
    GrpSubmit,
    /// Wall-clock time that all jobs together may use, seconds (GrpWall).
    #[n(2)]
    GrpWall,
    /// Most CPUs of all running jobs together (GrpTRES).
    #[n(3)]
    GrpCpu,
    /// Most memory of all running jobs together, MiB (GrpTRES).
    #[n(4)]
    GrpMem,
    /// Most nodes of all running jobs together (GrpTRES).
    #[n(5)]
    GrpNode,
    /// Most jobs that a user of an association may have running (MaxJobs).
    #[n(6)]
    MaxJobs,
    /// Most jobs that a user of an association may have pending or running (MaxSubmitJobs).
    #[n(7)]
    MaxSubmit,
    /// Longest time limit of a job, seconds (MaxWall).
    #[n(8)]
    MaxWall,
    /// Most CPUs of a job (MaxTRES).
    #[n(9)]
    MaxCpu,
    /// Most memory of a job, MiB (MaxTRES).
    #[n(10)]
    MaxMem,
    /// Most nodes of a job (MaxTRES).
    #[n(11)]
    MaxNode,
    /// Most jobs that a user may have running in a QOS (MaxJobsPerUser).
    #[n(12)]
    UserJobs,
    /// Most jobs that a user may have pending or running in a QOS (MaxSubmitJobsPerUser).
    #[n(13)]
    UserSubmit,
    /// Most CPUs of a user's running jobs in a QOS (MaxTRESPerUser).
    #[n(14)]
    UserCpu,
    /// Most memory of a user's running jobs in a QOS, MiB (MaxTRESPerUser).
    #[n(15)]
    UserMem,
    /// Most nodes of a user's running jobs in a QOS (MaxTRESPerUser).
    #[n(16)]
    UserNode,
    /// Most jobs that an account may have running in a QOS (MaxJobsPerAccount).
    #[n(17)]
    AccountJobs,
    /// Most jobs that an account may have pending or running in a QOS (MaxSubmitJobsPerAccount).
    #[n(18)]
    AccountSubmit,
    /// Most CPUs of an account's running jobs in a QOS (MaxTRESPerAccount).
    #[n(19)]
    AccountCpu,
    /// Most memory of an account's running jobs in a QOS, MiB (MaxTRESPerAccount).
    #[n(20)]
    AccountMem,
    /// Most nodes of an account's running jobs in a QOS (MaxTRESPerAccount).
    #[n(21)]
    AccountNode,
    /// Fewest CPUs that a job must request (MinTRES).
    #[n(22)]
    MinCpu,
    /// Least memory that a job must request, MiB (MinTRES).
    #[n(23)]
    MinMem,
    /// Fewest nodes that a job must request (MinTRES).
    #[n(24)]
    MinNode,
    /// A limit that no other variant has, given by the jobs that it counts and by the resource.
    #[n(25)]
    Tres(#[n(0)] Scope, #[n(1)] Tres),
}

/// Jobs and time over which a limit counts a resource. Variants are added at the end only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Scope {
    /// Resources of all running jobs together.
    #[n(0)]
    Grp,
    /// Usage of all jobs together so far: amount of the resource times seconds.
    #[n(1)]
    GrpUsed,
    /// Usage still to come of all running jobs together: amount of the resource times the seconds left of each time
    /// limit.
    #[n(2)]
    GrpDue,
    /// Resources of each single job.
    #[n(3)]
    Job,
    /// Largest usage of each single job: amount of the resource times the seconds of its time limit.
    #[n(4)]
    JobDue,
    /// Resources of each single job on each of its nodes.
    #[n(5)]
    Node,
    /// Resources of all running jobs of a user in an association or QOS.
    #[n(6)]
    User,
    /// Resources of all running jobs of an account in a QOS.
    #[n(7)]
    Account,
    /// Resources of each single job, of which the limit is the least that it must request.
    #[n(8)]
    Least,
    /// Usage still to come of all running jobs of a user in a QOS.
    #[n(9)]
    UserDue,
    /// Usage still to come of all running jobs of an account in a QOS.
    #[n(10)]
    AccountDue,
}

impl Scope {
    /// Returns whether limits over these jobs are on usage that is still to come.
    pub fn is_due(self) -> bool {
        matches!(self, Self::GrpDue | Self::UserDue | Self::AccountDue)
    }
}

/// A resource. Its usage is accounted and can be limited (Slurm's TRES). Variants are added at the end only.
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
    /// What jobs are billed by the weights of their partitions; without weights: CPUs.
    #[n(4)]
    Billing,
}

/// What a limit counts. Its row in the table of limits has this and the [`Scope`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Running jobs.
    Running,
    /// Pending and running jobs.
    Submitted,
    /// Time, in seconds.
    Time,
    /// A resource.
    Of(Tres),
}

impl Limit {
    /// All limits but those of `Tres`, in the order of their numbers.
    #[rustfmt::skip]
    pub const ALL: [Self; 25] = [
        Self::GrpJobs, Self::GrpSubmit, Self::GrpWall, Self::GrpCpu, Self::GrpMem, Self::GrpNode,
        Self::MaxJobs, Self::MaxSubmit, Self::MaxWall, Self::MaxCpu, Self::MaxMem, Self::MaxNode,
        Self::UserJobs, Self::UserSubmit, Self::UserCpu, Self::UserMem, Self::UserNode,
        Self::AccountJobs, Self::AccountSubmit, Self::AccountCpu, Self::AccountMem, Self::AccountNode,
        Self::MinCpu, Self::MinMem, Self::MinNode,
    ];

    /// Returns the limit's row: over which jobs it counts, and what.
    const fn row(self) -> (Scope, Counts) {
        match self {
            Self::GrpJobs => (Scope::Grp, Counts::Running),
            Self::GrpSubmit => (Scope::Grp, Counts::Submitted),
            Self::GrpWall => (Scope::GrpUsed, Counts::Time),
            Self::GrpCpu => (Scope::Grp, Counts::Of(Tres::Cpu)),
            Self::GrpMem => (Scope::Grp, Counts::Of(Tres::Mem)),
            Self::GrpNode => (Scope::Grp, Counts::Of(Tres::Node)),
            Self::MaxJobs | Self::UserJobs => (Scope::User, Counts::Running),
            Self::MaxSubmit | Self::UserSubmit => (Scope::User, Counts::Submitted),
            Self::MaxWall => (Scope::Job, Counts::Time),
            Self::MaxCpu => (Scope::Job, Counts::Of(Tres::Cpu)),
            Self::MaxMem => (Scope::Job, Counts::Of(Tres::Mem)),
            Self::MaxNode => (Scope::Job, Counts::Of(Tres::Node)),
            Self::UserCpu => (Scope::User, Counts::Of(Tres::Cpu)),
            Self::UserMem => (Scope::User, Counts::Of(Tres::Mem)),
            Self::UserNode => (Scope::User, Counts::Of(Tres::Node)),
            Self::AccountJobs => (Scope::Account, Counts::Running),
            Self::AccountSubmit => (Scope::Account, Counts::Submitted),
            Self::AccountCpu => (Scope::Account, Counts::Of(Tres::Cpu)),
            Self::AccountMem => (Scope::Account, Counts::Of(Tres::Mem)),
            Self::AccountNode => (Scope::Account, Counts::Of(Tres::Node)),
            Self::MinCpu => (Scope::Least, Counts::Of(Tres::Cpu)),
            Self::MinMem => (Scope::Least, Counts::Of(Tres::Mem)),
            Self::MinNode => (Scope::Least, Counts::Of(Tres::Node)),
            Self::Tres(scope, tres) => (scope, Counts::Of(tres)),
        }
    }

    /// Returns the limit on `tres` over the jobs of `scope`.
    pub fn of(scope: Scope, tres: Tres) -> Self {
        let named = Self::ALL.into_iter().find(|limit| limit.row() == (scope, Counts::Of(tres)));
        named.unwrap_or(Self::Tres(scope, tres))
    }

    /// Returns what the limit counts.
    pub const fn counts(self) -> Counts {
        self.row().1
    }

    /// Returns the limited resource. None: the limit is on a number of jobs or on time.
    pub const fn tres(self) -> Option<Tres> {
        if let Counts::Of(tres) = self.row().1 { Some(tres) } else { None }
    }

    /// Returns over which jobs the limit counts.
    pub const fn scope(self) -> Scope {
        self.row().0
    }

    /// Returns whether associations below inherit the limit. Limits on all jobs together apply only where they are set.
    fn is_inherited(self) -> bool {
        !matches!(self.scope(), Scope::Grp | Scope::GrpUsed | Scope::GrpDue)
    }

    /// Returns whether the amount left below the limit changes even while no job starts or ends.
    pub fn moves(self) -> bool {
        self.scope() == Scope::GrpUsed || self.scope().is_due()
    }
}

/// Kind of object on which a limit is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Whose {
    /// The limit is set on an association.
    #[n(0)]
    Association,
    /// The limit is set on a QOS.
    #[n(1)]
    Qos,
}

/// The limits that are set, with their values. A limit that is missing does not apply.
pub type Limits = BTreeMap<Limit, u64>;

/// An account, to which the usage of jobs is charged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Account {
    /// What the account is for, as a text.
    #[n(0)]
    pub description: String,
    /// Organization that the account belongs to.
    #[n(1)]
    pub organization: String,
    /// Names of users that may add users to the account and change these users.
    #[n(2)]
    pub coordinators: Vec<String>,
}

/// How much a user may change of accounts, users, associations and QOS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum AdminLevel {
    /// The user may change nothing, unless it is coordinator of an account.
    #[default]
    #[n(0)]
    None,
    /// The user may change everything except admin levels of users and the records of administrators.
    #[n(1)]
    Operator,
    /// The user may change everything.
    #[n(2)]
    Administrator,
}

/// A user of the accounting system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct User {
    /// Account of the user's jobs without `--account`.
    #[n(0)]
    pub default_account: String,
    /// How much the user may change of accounts.
    #[n(1)]
    pub admin: AdminLevel,
}

/// Identifies an association: one of an account, of a user in an account, or of a user in an account for one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct AssocKey {
    /// Name of the account.
    #[n(0)]
    pub account: String,
    /// Name of the user. Empty: the association is the account's.
    #[n(1)]
    pub user: String,
    /// Name of the partition. Empty: any partition.
    #[n(2)]
    pub partition: String,
}

impl AssocKey {
    /// Returns the key of the association of an account as a whole.
    pub fn account(account: &str) -> Self {
        Self { account: account.to_owned(), ..Self::default() }
    }
    /// Returns the key of a user's association in an account, valid for any partition.
    pub fn user(account: &str, user: &str) -> Self {
        Self { user: user.to_owned(), ..Self::account(account) }
    }
}

/// An account, or a user in an account, in the tree of accounts: its shares, limits and QOS.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Association {
    /// Number of the association, assigned by the controller.
    #[n(0)]
    pub id: u32,
    /// For an account's association: name of the parent account.
    #[n(1)]
    pub parent: String,
    /// Number of fair-share shares. None: `fairshare=parent`, so that the association counts with the average usage of
    /// all such associations of the same parent.
    #[n(2)]
    pub shares: Option<u32>,
    /// Limits set on the association.
    #[n(3)]
    pub limits: Limits,
    /// QOS that jobs of the association may use. Empty: as for its parent, unless `no_qos` is set.
    #[n(4)]
    pub qos: Vec<String>,
    /// QOS of the association's jobs without `--qos`. Empty: as for its parent.
    #[n(5)]
    pub default_qos: String,
    /// Priority of the association, used with `priority_weight_assoc`. None: not set.
    #[n(6)]
    pub priority: Option<u32>,
    /// Some(true): the list of QOS was emptied, so that jobs of the association may use none. Only without names in `qos`.
    #[n(7)]
    pub no_qos: Option<bool>,
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
            no_qos: None,
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
    /// Preempted jobs are requeued, or cancelled if they can't be requeued.
    #[serde(alias = "REQUEUE")]
    #[n(2)]
    Requeue,
    /// Preempted jobs are suspended while other jobs run on their cores.
    #[serde(alias = "SUSPEND")]
    #[n(3)]
    Suspend,
    /// Preempted jobs are checkpointed and go on later from there. A job that can't be is requeued, or cancelled if it
    /// can't be requeued.
    #[serde(alias = "CHECKPOINT", alias = "checkpoint,requeue", alias = "CHECKPOINT,REQUEUE")]
    #[n(4)]
    Checkpoint,
}

/// A QOS (quality of service): priority, limits and preemption of the jobs that use it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Qos {
    /// Number of the QOS, assigned by the controller.
    #[n(0)]
    pub id: u32,
    /// What the QOS is for, as a text.
    #[n(1)]
    pub description: String,
    /// Priority of the QOS relative to others, used with `priority_weight_qos`.
    #[n(2)]
    pub priority: u32,
    /// Names of QOS. Their jobs may be preempted for jobs of this QOS.
    #[n(3)]
    pub preempt: Vec<String>,
    /// What happens to preempted jobs of the QOS. None: the cluster's setting.
    #[n(4)]
    pub preempt_mode: Option<PreemptMode>,
    /// Time between warning and end of preempted jobs of the QOS, seconds.
    #[n(5)]
    pub grace_s: u64,
    /// Time that jobs of the QOS run before they can be preempted, seconds. None: the cluster's setting.
    #[n(6)]
    pub exempt_s: Option<u64>,
    /// Factor by which usage of jobs of the QOS is multiplied when it is counted, in millionths.
    #[n(7)]
    pub usage_factor: u64,
    /// Names of Slurm's QOS flags.
    #[n(8)]
    pub flags: Vec<String>,
    /// Limits set on the QOS.
    #[n(9)]
    pub limits: Limits,
    /// Least fair-share factor of a user whose jobs may start, in millionths, with the flag `EnforceUsageThreshold`. None:
    /// not set.
    #[n(10)]
    pub usage_threshold: Option<u64>,
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
            usage_threshold: None,
        }
    }
}

/// All accounts, users, associations and QOS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Policy {
    /// Number of changes made to the policy so far.
    #[n(0)]
    pub version: u64,
    /// The highest number assigned to an association so far.
    #[n(1)]
    pub last_assoc: u32,
    /// The highest number assigned to a QOS so far.
    #[n(2)]
    pub last_qos: u32,
    /// All accounts, by name.
    #[n(3)]
    pub accounts: BTreeMap<String, Account>,
    /// All users of the accounting system, by name.
    #[n(4)]
    pub users: BTreeMap<String, User>,
    /// Associations of accounts and users.
    #[n(5)]
    pub associations: BTreeMap<AssocKey, Association>,
    /// All QOS, by name.
    #[n(6)]
    pub qos: BTreeMap<String, Qos>,
}

/// A change to one entry of the policy. `Some` has the entry's new value; `None` removes the entry.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum PolicyChange {
    /// Change of the account with this name.
    #[n(0)]
    Account(#[n(0)] String, #[n(1)] Option<Account>),
    /// Change of the user with this name.
    #[n(1)]
    User(#[n(0)] String, #[n(1)] Option<User>),
    /// Change of the association with this key. An existing one keeps its number, a new one gets the next number.
    #[n(2)]
    Association(#[n(0)] AssocKey, #[n(1)] Option<Association>),
    /// Change of the QOS with this name. An existing one keeps its number, a new one gets the next number.
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

    /// Applies a change to the policy.
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
}

fn set<K: Ord + Clone, V: Clone>(map: &mut BTreeMap<K, V>, key: &K, value: Option<&V>) {
    match value {
        Some(value) => map.insert(key.clone(), value.clone()),
        None => map.remove(key),
    };
}

/// `AccountingStorageEnforce`: what a job must satisfy to be accepted. Limits that are set always apply, unless `none`
/// is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Enforce {
    /// Whether nothing is enforced, not even limits.
    pub none: bool,
    /// Whether a job needs an association for its user and account.
    pub associations: bool,
    /// Whether a job needs a QOS that its association may use.
    pub qos: bool,
    /// Whether a job starts only if its whole time limit fits within limits on time.
    pub safe: bool,
    /// Whether `limits` was given. Limits apply also without it.
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

/// `EnforcePartLimits`: whether jobs that exceed limits of their partitions are refused instead of staying pending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum EnforcePartLimits {
    /// Jobs that exceed limits stay pending.
    #[default]
    No,
    /// Jobs are refused if they exceed the limits of all their partitions.
    Any,
    /// Jobs are refused if they exceed the limits of any of their partitions.
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

/// `PriorityType`: how the queue of pending jobs is ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PriorityType {
    /// Pending jobs are ordered by time of submission.
    #[default]
    #[serde(rename = "priority/basic", alias = "basic")]
    Basic,
    /// Pending jobs are ordered by age, fair share, size, partition and QOS.
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
    /// Jobs may be preempted for jobs of a QOS that lists theirs (`preempt`).
    #[serde(rename = "preempt/qos", alias = "qos")]
    Qos,
    /// Jobs may be preempted for jobs of a partition with a higher tier than theirs.
    #[serde(rename = "preempt/partition_prio", alias = "partition_prio")]
    Partition,
}

/// `PriorityUsageResetPeriod`: when the usage of all associations is reset to zero, by the calendar in UTC.
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

/// A duration in seconds. A configuration file has it as a number, or as a text in Slurm's format of times (`7-0` is 7
/// days, `30` is 30 minutes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(pub u64);

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl Seconds {
    /// Reads a duration that Slurm also counts in seconds, as a number or a text (`30` is 30 seconds).
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

/// A duration as a configuration file has it: a number of seconds, or a text.
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

/// A floating-point number that compares as equal only if all its bits are equal.
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
