//! Entities that sacctmgr lists, and the fields of each.

use squall_model::duration::{format_elapsed, format_limit, format_memory_mb};
use squall_model::policy::{AdminLevel, Association, Limit, PreemptMode, Qos, Scope, Tres, Whose};

use crate::format::sheet::Column;
use crate::limits;

/// Names of accounted resources (Slurm's TRES), in the order of their ids, from 1 on.
pub const TRES: &[&str] = &["cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"];

/// The controller's port, as Slurm's default is: Squall's is chosen at the start unless one is configured.
pub const CONTROL_PORT: u32 = 6817;

/// Returns the id of an accounted resource (TRES); None: not an accounted resource.
pub fn tres_id(name: &str) -> Option<u32> {
    let counted = Tres::ALL.into_iter().find(|tres| tres.name() == name).map(Tres::id);
    counted.or_else(|| TRES.iter().position(|known| *known == name).map(|at| at as u32 + 1))
}

/// Fields of a row about an event, a transaction or a reservation.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// Start of the event or reservation, or time of the transaction, as text.
    pub start: String,
    /// End of the event or reservation, as text.
    pub end: String,
    /// Duration of the event or reservation, seconds.
    pub seconds: u64,
    /// Name of the node that the event is about.
    pub node: String,
    /// Host list of the nodes of the event or reservation.
    pub nodes: String,
    /// State of the node during the event.
    pub state: String,
    /// Reason of the event, or new values of the transaction.
    pub info: String,
    /// Name of the user who caused the event or made the transaction.
    pub by: String,
    /// Kind of the transaction, such as `Add Users`.
    pub action: String,
    /// Object of the transaction: a name, or `id_assoc=N`.
    pub to: String,
    /// Resources of the node or reservation, such as `cpu=4`.
    pub tres: String,
    /// Seconds of a reservation in which no job used it, averaged over its CPUs.
    pub unused: String,
    /// Flags of the reservation.
    pub flags: String,
}

/// A record of any kind as a row of a listing. Fields that this kind doesn't have are empty.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Name of the account, QOS, cluster or other record itself.
    pub name: String,
    /// Name of the user that the record is about; empty for an account's record.
    pub user: String,
    /// Name of the account that the record is about.
    pub account: String,
    /// Name of the cluster that the record belongs to.
    pub cluster: String,
    /// Host of the cluster's controller; only for a cluster.
    pub host: String,
    /// Name of the partition to which an association is limited; empty: any partition.
    pub partition: String,
    /// Name of the parent account.
    pub parent: String,
    /// Description of an account; empty for other records.
    pub description: String,
    /// Organization of an account; empty for other records.
    pub organization: String,
    /// Rights of a user as an administrator.
    pub admin: AdminLevel,
    /// Name of the account for a user's jobs that name none.
    pub default_account: String,
    /// Accounts that a user coordinates, or users who coordinate an account; separated by commas.
    pub coordinators: String,
    /// Names of the QOS that may be used, separated by commas.
    pub qos: String,
    /// Limits of the association, with inherited ones; for a QOS: its limits.
    pub own: Association,
    /// Settings of the QOS, if the record is one.
    pub level: Qos,
    /// Number of the reservation, if the record is one.
    pub numbered: u32,
    /// Fields of the event, transaction or reservation, if the record is one.
    pub past: Past,
}

impl Row {
    /// Returns the name of a user's rights: None, Operator or Administrator.
    pub fn admin(&self) -> String {
        match self.admin {
            AdminLevel::None => "None",
            AdminLevel::Operator => "Operator",
            AdminLevel::Administrator => "Administrator",
        }
        .to_owned()
    }

    /// Returns the id of a TRES, an association, a QOS or a reservation; 1 if there is none.
    pub fn number(&self) -> u32 {
        tres_id(&self.name).unwrap_or(self.own.id.max(self.level.id).max(self.numbered).max(1))
    }

    fn id(&self) -> String {
        self.number().to_string()
    }

    fn share(&self) -> String {
        self.own.shares.map_or_else(|| "parent".to_owned(), |shares| shares.to_string())
    }

    /// Formats a limit that is a count; empty if it isn't set.
    pub(crate) fn count(&self, limit: Limit) -> String {
        self.own.limits.get(&limit).map(u64::to_string).unwrap_or_default()
    }

    /// Formats a limit that is a length of time; empty if it isn't set.
    pub(crate) fn time(&self, limit: Limit) -> String {
        self.own.limits.get(&limit).map(|seconds| format_limit(Some(*seconds))).unwrap_or_default()
    }

    /// Formats the limits of resources in one scope as `cpu=10,mem=4G,node=2`, in resource-minutes for limits over
    /// time.
    pub(crate) fn tres(&self, scope: Scope) -> String {
        let set = Tres::ALL.into_iter().filter_map(|tres| {
            let most = *self.own.limits.get(&Limit::of(scope, tres))?;
            let value = match tres {
                Tres::Mem => format_memory_mb(if is_timed(scope) { most / 60 } else { most }),
                _ if is_timed(scope) => (most / 60).to_string(),
                _ => most.to_string(),
            };
            Some(format!("{}={value}", tres.name()))
        });
        set.collect::<Vec<_>>().join(",")
    }

    /// Formats the limit of one resource in one scope; empty if it isn't set.
    pub(crate) fn one(&self, scope: Scope, tres: Tres) -> String {
        let most = self.own.limits.get(&Limit::of(scope, tres));
        most.map(|most| if is_timed(scope) { most / 60 } else { *most }.to_string()).unwrap_or_default()
    }
}

/// Returns whether limits of this scope are in resource-seconds. Users write them in resource-minutes.
pub fn is_timed(scope: Scope) -> bool {
    matches!(scope, Scope::GrpUsed | Scope::JobDue) || scope.is_due()
}

type C = Column<Row>;

/// A kind of record that sacctmgr lists.
#[derive(Debug)]
pub struct Entity {
    /// Name of the entity in the singular, such as `account`.
    pub name: &'static str,
    /// Minimum length of an abbreviation of the name, letters.
    least: usize,
    /// Fields shown without `format=`, separated by commas.
    shown: &'static str,
    /// Further fields shown with the option `--associations`.
    associated: &'static str,
    /// Fields that the entity can show apart from limits.
    own: &'static [C],
    /// The kind of record of which the entity shows limits. None: of none.
    whose: Option<Whose>,
}

impl Entity {
    /// Returns all fields that the entity can show, those with the same first letters together.
    pub fn columns(&self) -> Vec<C> {
        let limits = limits::ROWS.iter().filter(|row| self.whose.is_some_and(|whose| row.is_of(whose)));
        let mut all: Vec<C> = limits.flat_map(|row| row.columns).chain(self.own).copied().collect();
        all.sort_by_key(|column| column.name.get(..3).map(str::to_ascii_lowercase));
        all
    }

    /// Returns the names of the fields shown without `format=`, separated by commas.
    pub fn format(&self, associations: bool) -> String {
        if associations { format!("{},{}", self.shown, self.associated) } else { self.shown.to_owned() }
    }
}

/// Returns whether `name` begins with `word`, ignoring case.
pub fn starts(name: &str, word: &str) -> bool {
    name.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
}

/// Returns the entity that a word names, in singular or plural, possibly abbreviated. None: the word names none.
pub fn find(word: &str) -> Option<&'static Entity> {
    let plural = |e: &Entity| {
        let singular = word.strip_suffix(['s', 'S']).unwrap_or(word);
        [word, singular].iter().any(|w| w.len() >= e.least && starts(e.name, w))
    };
    ENTITIES.iter().find(|e| plural(e))
}

const ENTITIES: &[Entity] = &[
    Entity {
        name: "account",
        least: 3,
        shown: "Account,Description,Organization",
        associated: "Cluster,ParentName,User,Share,Priority,GrpJobs,GrpNodes,GrpCPUs,GrpMem,GrpSubmit,GrpWall,\
                     GrpCPUMins,MaxJobs,MaxNodes,MaxCPUs,MaxSubmit,MaxWall,MaxCPUMins,QOS,DefaultQOS",
        own: COLUMNS,
        whose: Some(Whose::Association),
    },
    Entity {
        name: "association",
        least: 2,
        shown: "Cluster,Account,User,Partition,Share,Priority,GrpJobs,GrpTRES,GrpSubmit,GrpWall,GrpTRESMins,MaxJobs,\
                MaxTRES,MaxTRESPerNode,MaxSubmit,MaxWall,MaxTRESMins,QOS,DefaultQOS,GrpTRESRunMins",
        associated: "",
        own: COLUMNS,
        whose: Some(Whose::Association),
    },
    Entity {
        name: "cluster",
        least: 2,
        shown: "Cluster,ControlHost,ControlPort,RPC,Share,GrpJobs,GrpTRES,GrpSubmit,MaxJobs,MaxTRES,MaxSubmit,MaxWall,\
                QOS,DefaultQOS",
        associated: "",
        own: COLUMNS,
        whose: Some(Whose::Association),
    },
    Entity {
        name: "event",
        least: 1,
        shown: "Cluster,NodeName,TimeStart,TimeEnd,State,Reason%30,User",
        associated: "",
        own: COLUMNS,
        whose: Some(Whose::Association),
    },
    Entity {
        name: "federation",
        least: 1,
        shown: "Federation,Cluster,ID%2,Features,FedState",
        associated: "",
        own: COLUMNS,
        whose: Some(Whose::Association),
    },
    Entity {
        name: "instance",
        least: 1,
        shown: "Cluster,Extra,InstanceId,InstanceType,NodeName,TimeStart,TimeEnd",
        associated: "",
        own: COLUMNS,
        whose: Some(Whose::Association),
    },
    Entity {
        name: "problem",
        least: 1,
        shown: "Cluster,Account,User,Problem",
        associated: "",
        own: COLUMNS,
        whose: Some(Whose::Association),
    },
    Entity {
        name: "qos",
        least: 1,
        shown: "Name,Priority,GraceTime,Preempt,PreemptExemptTime,PreemptMode,Flags,UsageThreshold,UsageFactor,GrpTRES,\
                GrpTRESMins,GrpTRESRunMins,GrpJobs,GrpSubmit,GrpWall,MaxTRES,MaxTRESPerNode,MaxTRESMins,MaxWall,\
                MaxTRESPerUser,MaxJobsPerUser,MaxSubmitPerUser,MaxTRESPerAccount,MaxJobsPerAccount,\
                MaxSubmitPerAccount,MinTRES",
        associated: "",
        own: QOS_COLUMNS,
        whose: Some(Whose::Qos),
    },
    Entity {
        name: "resource",
        least: 4,
        shown: "Name,Server,Type%8,Count,Allocated,ServerType",
        associated: "",
        own: COLUMNS,
        whose: Some(Whose::Association),
    },
    Entity {
        name: "reservation",
        least: 4,
        shown: "Cluster,Name%15,TRES%30,TimeStart,TimeEnd,UnusedWall",
        associated: "",
        own: COLUMNS,
        whose: Some(Whose::Association),
    },
    Entity {
        name: "runawayjobs",
        least: 2,
        shown: "ID",
        associated: "",
        own: COLUMNS,
        whose: Some(Whose::Association),
    },
    Entity {
        name: "transaction",
        least: 1,
        shown: "Time,Action,Actor,Where,Info",
        associated: "",
        own: COLUMNS,
        whose: Some(Whose::Association),
    },
    Entity { name: "tres", least: 2, shown: "Type,Name%15,ID", associated: "", own: TRES_COLUMNS, whose: None },
    Entity {
        name: "user",
        least: 1,
        shown: "User,DefaultAccount,AdminLevel",
        associated: "Cluster,Account,Partition,Share,Priority,MaxJobs,MaxNodes,MaxCPUs,MaxSubmit,MaxWall,MaxCPUMins,\
                     QOS,DefaultQOS",
        own: COLUMNS,
        whose: Some(Whose::Association),
    },
    Entity {
        name: "wckey",
        least: 1,
        shown: "WCKey,Cluster,User",
        associated: "",
        own: COLUMNS,
        whose: Some(Whose::Association),
    },
];

fn none(_: &Row) -> String {
    String::new()
}

/// Fields of all entities but QOS.
static COLUMNS: &[C] = &[
    C::new("Account", 10, |r| r.account.clone()),
    C::new("Acct", 10, |r| r.account.clone()),
    C::new("Action", 20, |r| r.past.action.clone()),
    C::new("Actor", 10, |r| r.past.by.clone()),
    C::titled("AdminLevel", "Admin", 9, Row::admin),
    C::titled("Allocated", "% Allocated", 11, none),
    C::new("Classification", 14, none),
    C::new("Cluster", 10, |r| r.cluster.clone()),
    C::titled("ClusterNodes", "Cluster Nodes", 20, |r| r.past.nodes.clone()),
    C::new("ControlHost", 15, |r| r.host.clone()),
    C::new("ControlPort", 12, |_| CONTROL_PORT.to_string()),
    C::titled("Coordinators", "Coord Accounts", 20, |r| r.coordinators.clone()),
    C::new("Count", 6, none),
    C::titled("DefaultAccount", "Def Acct", 10, |r| r.default_account.clone()),
    C::titled("DefaultQOS", "Def QOS", 9, |r| r.own.default_qos.clone()),
    C::titled("DefaultWCKey", "Def WCKey", 10, none),
    C::titled("Description", "Descr", 20, |r| r.description.clone()),
    C::new("Duration", 13, |r| format_elapsed(r.past.seconds)),
    C::new("Extra", 20, none),
    C::new("Fairshare", 9, Row::share),
    C::new("Features", 20, none),
    C::new("Federation", 10, none),
    C::new("FedState", 12, none),
    C::new("Flags", 20, |r| r.past.flags.clone()),
    C::new("GrpJobsAccrue", 13, none),
    C::new("ID", 6, Row::id),
    C::new("Info", 20, |r| r.past.info.clone()),
    C::titled("InstanceId", "Instance ID", 20, none),
    C::titled("InstanceType", "Instance Type", 20, none),
    C::new("LFT", 6, none),
    C::new("MaxJobsAccrue", 13, none),
    C::new("Name", 10, |r| r.name.clone()),
    C::new("NodeName", -15, |r| r.past.node.clone()),
    C::titled("Organization", "Org", 20, |r| r.organization.clone()),
    C::titled("ParentName", "Par Name", 10, |r| r.parent.clone()),
    C::new("Partition", 10, |r| r.partition.clone()),
    C::new("Priority", 10, |r| r.own.priority.map(|p| p.to_string()).unwrap_or_default()),
    C::new("Problem", 40, none),
    C::new("QOS", 20, |r| r.qos.clone()),
    C::titled("QOSLevel", "QOS", 20, |r| r.qos.clone()),
    C::new("Reason", 30, |r| r.past.info.clone()),
    C::new("RGT", 6, none),
    C::new("RPC", 5, |_| "9728".to_owned()),
    C::new("Server", 10, none),
    C::new("ServerType", 10, none),
    C::new("Share", 9, Row::share),
    C::new("State", 6, |r| r.past.state.clone()),
    C::new("Time", 19, |r| r.past.start.clone()),
    C::new("TimeEnd", 19, |r| r.past.end.clone()),
    C::new("TimeStart", 19, |r| r.past.start.clone()),
    C::new("TRES", 20, |r| r.past.tres.clone()),
    C::new("Type", 8, none),
    C::new("UnusedWall", 10, |r| r.past.unused.clone()),
    C::new("User", 10, |r| r.user.clone()),
    C::new("WCKey", 10, none),
    C::new("Where", 20, |r| r.past.to.clone()),
];

/// Returns Slurm's name of a QOS's preemption mode; `cluster` if it has none of its own.
pub fn preempt_mode(mode: Option<PreemptMode>) -> &'static str {
    match mode {
        None => "cluster",
        Some(PreemptMode::Off) => "off",
        Some(PreemptMode::Cancel) => "cancel",
        Some(PreemptMode::Requeue) => "requeue",
        Some(PreemptMode::Suspend) => "suspend",
        Some(PreemptMode::Checkpoint) => "checkpoint",
    }
}

static QOS_COLUMNS: &[C] = &[
    C::titled("Description", "Descr", 20, |r| r.level.description.clone()),
    C::new("Flags", 40, |r| r.level.flags.join(",")),
    C::new("GraceTime", 10, |r| format_elapsed(r.level.grace_s)),
    C::new("ID", 6, Row::id),
    C::new("Name", 10, |r| r.name.clone()),
    C::new("Preempt", 10, |r| r.level.preempt.join(",")),
    C::new("PreemptExemptTime", 19, |r| r.level.exempt_s.map(|s| format_limit(Some(s))).unwrap_or_default()),
    C::new("PreemptMode", 11, |r| preempt_mode(r.level.preempt_mode).to_owned()),
    C::new("Priority", 10, |r| r.level.priority.to_string()),
    C::new("UsageFactor", 11, |r| {
        format!("{}.{:06}", r.level.usage_factor / 1_000_000, r.level.usage_factor % 1_000_000)
    }),
    C::titled("UsageThreshold", "UsageThres", 10, |r| {
        r.level
            .usage_threshold
            .map(|least| format!("{}.{:06}", least / 1_000_000, least % 1_000_000))
            .unwrap_or_default()
    }),
];

static TRES_COLUMNS: &[C] = &[
    C::new("ID", 6, Row::id),
    C::new("Name", 15, |r| r.name.split_once('/').map_or("", |(_, name)| name).to_owned()),
    C::new("Type", 8, |r| r.name.split('/').next().unwrap_or_default().to_owned()),
];
