//! Limits of associations and QOS: a row for each, with all names and texts that it has for users. What a limit counts
//! is in `model/policy.rs`.

use std::iter;

use squall_model::policy::{Limit, Scope, Tres, Whose};

use crate::columns::records::{Row as Record, starts};
use crate::format::sheet::Column;
use LimitKind::{Each, One};

type C = Column<Record>;

/// What a row limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// One value.
    One(Limit),
    /// Each resource over the jobs of a scope, as `cpu=10,mem=4G`.
    Each(Scope),
}

/// A row of the table of limits.
#[derive(Debug)]
pub struct Row {
    /// What is limited.
    pub what: LimitKind,
    /// The limit's key in sacctmgr, in its dumps and in bodies of REST.
    pub name: &'static str,
    /// Fewest letters by which the key may be abbreviated.
    least: usize,
    /// Other keys of sacctmgr, in lower case, with the fewest letters of each.
    aliases: &'static [(&'static str, usize)],
    /// Columns of `sacctmgr show`.
    pub columns: &'static [C],
    /// The limit of an association.
    association: Place,
    /// The limit of a QOS.
    qos: Place,
    /// What `squall why` tells of a job that waits for it. `{noun}`, `{more}` and `{fewer}` stand for the resource.
    why: &'static str,
}

/// What a limit is on an association, or on a QOS.
#[derive(Debug)]
pub struct Place {
    /// Path of the limit in JSON. Empty: there is no such limit there.
    pub path: &'static str,
    /// Slurm's names of the pending reason: one, or one for each resource, in the order of [`Tres::ALL`].
    reasons: &'static [&'static str],
}

const NONE: Place = at("", &[]);

const fn at(path: &'static str, reasons: &'static [&'static str]) -> Place {
    Place { path, reasons }
}

/// A row of which the parts are to be given.
const ROW: Row = older(Limit::GrpJobs, "", 0, &[]);

/// Returns the row of an older key and column of sacctmgr, which limits one resource of those that a row has.
const fn older(limit: Limit, name: &'static str, least: usize, columns: &'static [C]) -> Row {
    Row { what: One(limit), name, least, aliases: &[], columns, association: NONE, qos: NONE, why: "" }
}

/// All limits. Columns have the order of their rows.
#[rustfmt::skip]
pub static ROWS: &[Row] = &[
    older(Limit::Tres(Scope::GrpUsed, Tres::Cpu), "GrpCPUMins", 8, &[C::new("GrpCPUMins", 11, |r| r.one(Scope::GrpUsed, Tres::Cpu))]),
    older(Limit::Tres(Scope::GrpDue, Tres::Cpu), "GrpCPURunMins", 7, &[C::new("GrpCPURunMins", 13, |r| r.one(Scope::GrpDue, Tres::Cpu))]),
    older(Limit::GrpCpu, "GrpCPUs", 6, &[C::new("GrpCPUs", 8, |r| r.count(Limit::GrpCpu))]),
    Row {
        what: One(Limit::GrpJobs), name: "GrpJobs", least: 4,
        columns: &[C::new("GrpJobs", 7, |r| r.count(Limit::GrpJobs))],
        association: at("max.jobs.per.count", &["AssocGrpJobsLimit"]),
        qos: at("limits.max.active_jobs.count", &["QOSGrpJobsLimit"]),
        why: "the limit of running jobs of all its users together is reached",
        ..ROW
    },
    older(Limit::GrpMem, "GrpMemory", 4, &[C::new("GrpMem", 7, |r| r.count(Limit::GrpMem))]),
    older(Limit::GrpNode, "GrpNodes", 4, &[C::new("GrpNodes", 8, |r| r.count(Limit::GrpNode))]),
    Row {
        what: One(Limit::GrpSubmit), name: "GrpSubmitJobs", least: 4,
        columns: &[C::titled("GrpSubmitJobs", "GrpSubmit", 9, |r| r.count(Limit::GrpSubmit))],
        association: at("max.jobs.per.submitted", &["AssocGrpSubmitJobsLimit"]),
        qos: at("limits.max.jobs.count", &["QOSGrpSubmitJobsLimit"]),
        why: "the limit of submitted jobs of all its users together is reached",
        ..ROW
    },
    Row {
        what: Each(Scope::Grp), name: "GrpTRES", least: 7,
        columns: &[C::new("GrpTRES", 13, |r| r.tres(Scope::Grp))],
        association: at("max.tres.total", &["AssocGrpCpuLimit", "AssocGrpMemLimit", "AssocGrpNodeLimit", "AssocGrpGRES", "AssocGrpBilling"]),
        qos: at("limits.max.tres.total", &["QOSGrpCpuLimit", "QOSGrpMemLimit", "QOSGrpNodeLimit", "QOSGrpGRES", "QOSGrpBilling"]),
        why: "the limit of {noun} of all its users together is reached",
        ..ROW
    },
    Row {
        what: Each(Scope::GrpUsed), name: "GrpTRESMins", least: 8,
        columns: &[C::new("GrpTRESMins", 13, |r| r.tres(Scope::GrpUsed))],
        association: at("max.tres.group.minutes", &["AssocGrpCPUMinutesLimit", "AssocGrpMemMinutes", "AssocGrpNodeMinutes", "AssocGrpGRESMinutes", "AssocGrpBillingMinutes"]),
        qos: at("limits.max.tres.minutes.total", &["QOSGrpCPUMinutesLimit", "QOSGrpMemoryMinutes", "QOSGrpNodeMinutes", "QOSGrpGRESMinutes", "QOSGrpBillingMinutes"]),
        why: "the budget of {noun} of all its users together is used up",
        ..ROW
    },
    Row {
        what: Each(Scope::GrpDue), name: "GrpTRESRunMins", least: 8,
        columns: &[C::new("GrpTRESRunMins", 13, |r| r.tres(Scope::GrpDue))],
        association: at("max.tres.group.active", &["AssocGrpCPURunMinutesLimit", "AssocGrpMemRunMinutes", "AssocGrpNodeRunMinutes", "AssocGrpGRESRunMinutes", "AssocGrpBillingRunMinutes"]),
        qos: at("limits.max.tres.minutes.per.qos", &["QOSGrpCPURunMinutesLimit", "QOSGrpMemoryRunMinutes", "QOSGrpNodeRunMinutes", "QOSGrpGRESRunMinutes", "QOSGrpBillingRunMinutes"]),
        why: "running jobs of all its users will use up their budget of {noun}",
        ..ROW
    },
    Row {
        what: One(Limit::GrpWall), name: "GrpWall", least: 4,
        columns: &[C::new("GrpWall", 11, |r| r.time(Limit::GrpWall))],
        association: at("max.per.account.wall_clock", &["AssocGrpWallLimit"]),
        qos: at("limits.max.wall_clock.per.qos", &["QOSGrpWallLimit"]),
        why: "the limit of running time of all its users together is reached",
        ..ROW
    },
    older(Limit::Tres(Scope::JobDue, Tres::Cpu), "MaxCPUMinsPerJob", 8, &[C::new("MaxCPUMins", 11, |r| r.one(Scope::JobDue, Tres::Cpu))]),
    older(Limit::MaxCpu, "MaxCPUsPerJob", 6, &[C::new("MaxCPUs", 8, |r| r.count(Limit::MaxCpu))]),
    Row {
        aliases: &[("maxcpuspu", 9)],
        ..older(Limit::UserCpu, "MaxCPUsPerUser", 11, &[C::new("MaxCPUsPU", 9, |r| r.count(Limit::UserCpu))])
    },
    Row {
        what: One(Limit::MaxJobs), name: "MaxJobs", least: 4,
        columns: &[C::new("MaxJobs", 7, |r| r.count(Limit::MaxJobs))],
        association: at("max.jobs.active", &["AssocMaxJobsLimit"]),
        why: "its user's limit of running jobs is reached",
        ..ROW
    },
    Row {
        what: One(Limit::UserJobs), name: "MaxJobsPerUser", least: 4,
        aliases: &[("maxjobspu", 9)],
        columns: &[
            C::titled("MaxJobsPerUser", "MaxJobsPU", 9, |r| r.count(Limit::UserJobs)),
            C::titled("MaxJobsPU", "MaxJobsPU", 9, |r| r.count(Limit::UserJobs)),
        ],
        qos: at("limits.max.jobs.active_jobs.per.user", &["QOSMaxJobsPerUserLimit"]),
        why: "its user's limit of running jobs is reached",
        ..ROW
    },
    Row {
        what: One(Limit::AccountJobs), name: "MaxJobsPerAccount", least: 11,
        aliases: &[("maxjobsperacct", 14), ("maxjobspa", 9)],
        columns: &[
            C::titled("MaxJobsPerAccount", "MaxJobsPA", 9, |r| r.count(Limit::AccountJobs)),
            C::titled("MaxJobsPA", "MaxJobsPA", 9, |r| r.count(Limit::AccountJobs)),
        ],
        qos: at("limits.max.jobs.active_jobs.per.account", &["MaxJobsPerAccount"]),
        why: "its account's limit of running jobs is reached",
        ..ROW
    },
    older(Limit::MaxMem, "MaxMemPerJob", 4, &[]),
    older(Limit::MaxNode, "MaxNodesPerJob", 4, &[C::new("MaxNodes", 8, |r| r.count(Limit::MaxNode))]),
    Row {
        aliases: &[("maxnodespu", 10)],
        ..older(Limit::UserNode, "MaxNodesPerUser", 12, &[C::new("MaxNodesPU", 10, |r| r.count(Limit::UserNode))])
    },
    Row {
        what: One(Limit::MaxSubmit), name: "MaxSubmitJobs", least: 4,
        columns: &[C::titled("MaxSubmitJobs", "MaxSubmit", 9, |r| r.count(Limit::MaxSubmit))],
        association: at("max.jobs.total", &["AssocMaxSubmitJobLimit"]),
        why: "its user's limit of submitted jobs is reached",
        ..ROW
    },
    Row {
        what: One(Limit::UserSubmit), name: "MaxSubmitJobsPerUser", least: 4,
        aliases: &[("maxsubmitperuser", 11), ("maxsubmitpu", 11), ("maxsubmitjobspu", 15)],
        columns: &[
            C::titled("MaxSubmitPerUser", "MaxSubmitPU", 11, |r| r.count(Limit::UserSubmit)),
            C::titled("MaxSubmitJobsPerUser", "MaxSubmitPU", 11, |r| r.count(Limit::UserSubmit)),
            C::titled("MaxSubmitPU", "MaxSubmitPU", 11, |r| r.count(Limit::UserSubmit)),
        ],
        qos: at("limits.max.jobs.per.user", &["QOSMaxSubmitJobPerUserLimit"]),
        why: "its user's limit of submitted jobs is reached",
        ..ROW
    },
    Row {
        what: One(Limit::AccountSubmit), name: "MaxSubmitJobsPerAccount", least: 17,
        aliases: &[("maxsubmitperaccount", 13), ("maxsubmitjobsperacct", 20), ("maxsubmitperacct", 16), ("maxsubmitpa", 11), ("maxsubmitjobspa", 15)],
        columns: &[
            C::titled("MaxSubmitPerAccount", "MaxSubmitPA", 11, |r| r.count(Limit::AccountSubmit)),
            C::titled("MaxSubmitPA", "MaxSubmitPA", 11, |r| r.count(Limit::AccountSubmit)),
        ],
        qos: at("limits.max.jobs.per.account", &["MaxSubmitJobsPerAccount"]),
        why: "its account's limit of submitted jobs is reached",
        ..ROW
    },
    Row {
        what: Each(Scope::Job), name: "MaxTRESPerJob", least: 4,
        aliases: &[("maxtrespj", 9)],
        columns: &[C::new("MaxTRES", 13, |r| r.tres(Scope::Job)), C::new("MaxTRESPerJob", 13, |r| r.tres(Scope::Job))],
        association: at("max.tres.per.job", &["AssocMaxCpuPerJobLimit", "AssocMaxMemPerJob", "AssocMaxNodePerJobLimit", "AssocMaxGRESPerJob", "AssocMaxBillingPerJob"]),
        qos: at("limits.max.tres.per.job", &["QOSMaxCpuPerJobLimit", "QOSMaxMemoryPerJob", "QOSMaxNodePerJobLimit", "QOSMaxGRESPerJob", "QOSMaxBillingPerJob"]),
        why: "it asks for {more} {noun} than a job may have",
    },
    Row {
        what: Each(Scope::Node), name: "MaxTRESPerNode", least: 11,
        aliases: &[("maxtrespn", 9)],
        columns: &[C::new("MaxTRESPerNode", 14, |r| r.tres(Scope::Node))],
        association: at("max.tres.per.node", &["AssocMaxCpuPerNode", "AssocMaxMemPerNode", "AssocMaxNodePerNode", "AssocMaxGRESPerNode", "AssocMaxBillingPerNode"]),
        qos: at("limits.max.tres.per.node", &["QOSMaxCpuPerNode", "QOSMaxMemoryPerNode", "QOSMaxNodePerNode", "QOSMaxGRESPerNode", "QOSMaxBillingPerNode"]),
        why: "it asks for {more} {noun} on each node than a job may have",
    },
    Row {
        what: Each(Scope::JobDue), name: "MaxTRESMinsPerJob", least: 8,
        aliases: &[("maxtresminspj", 13)],
        columns: &[C::new("MaxTRESMins", 13, |r| r.tres(Scope::JobDue))],
        association: at("max.tres.minutes.per.job", &["AssocMaxCpuMinutesPerJobLimit", "AssocMaxMemMinutesPerJob", "AssocMaxNodeMinutesPerJob", "AssocMaxGRESMinutesPerJob", "AssocMaxBillingMinutesPerJob"]),
        qos: at("limits.max.tres.minutes.per.job", &["QOSMaxCpuMinutesPerJobLimit", "QOSMaxMemoryMinutesPerJob", "QOSMaxNodeMinutesPerJob", "QOSMaxGRESMinutesPerJob", "QOSMaxBillingMinutesPerJob"]),
        why: "it asks for {noun} for a longer time than a job may have",
    },
    Row {
        what: Each(Scope::User), name: "MaxTRESPerUser", least: 11,
        aliases: &[("maxtrespu", 9)],
        columns: &[
            C::titled("MaxTRESPerUser", "MaxTRESPU", 13, |r| r.tres(Scope::User)),
            C::titled("MaxTRESPU", "MaxTRESPU", 13, |r| r.tres(Scope::User)),
        ],
        qos: at("limits.max.tres.per.user", &["QOSMaxCpuPerUserLimit", "QOSMaxMemoryPerUser", "QOSMaxNodePerUserLimit", "QOSMaxGRESPerUser", "QOSMaxBillingPerUser"]),
        why: "its user's limit of {noun} is reached",
        ..ROW
    },
    Row {
        what: Each(Scope::Account), name: "MaxTRESPerAccount", least: 11,
        aliases: &[("maxtresperacct", 14), ("maxtrespa", 9)],
        columns: &[
            C::titled("MaxTRESPerAccount", "MaxTRESPA", 13, |r| r.tres(Scope::Account)),
            C::titled("MaxTRESPA", "MaxTRESPA", 13, |r| r.tres(Scope::Account)),
        ],
        qos: at("limits.max.tres.per.account", &["MaxCpuPerAccount", "MaxMemoryPerAccount", "MaxNodePerAccount", "MaxGRESPerAccount", "MaxBillingPerAccount"]),
        why: "its account's limit of {noun} is reached",
        ..ROW
    },
    Row {
        what: Each(Scope::AccountDue), name: "MaxTRESRunMinsPerAccount", least: 18,
        aliases: &[("maxtresrunminsperacct", 21), ("maxtresrunminspa", 16)],
        columns: &[
            C::titled("MaxTRESRunMinsPerAccount", "MaxTRESRunMinsPA", 16, |r| r.tres(Scope::AccountDue)),
            C::titled("MaxTRESRunMinsPA", "MaxTRESRunMinsPA", 16, |r| r.tres(Scope::AccountDue)),
        ],
        qos: at("limits.max.tres.minutes.per.account", &["QOSMaxCpuRunMinsPerAccount", "QOSMaxMemoryRunMinsPerAccount", "QOSMaxNodeRunMinsPerAccount", "QOSMaxGRESRunMinsPerAccount", "QOSMaxBillingRunMinsPerAccount"]),
        why: "running jobs of its account will use up their budget of {noun}",
        ..ROW
    },
    Row {
        what: Each(Scope::UserDue), name: "MaxTRESRunMinsPerUser", least: 18,
        aliases: &[("maxtresrunminspu", 16)],
        columns: &[
            C::titled("MaxTRESRunMinsPerUser", "MaxTRESRunMinsPU", 16, |r| r.tres(Scope::UserDue)),
            C::titled("MaxTRESRunMinsPU", "MaxTRESRunMinsPU", 16, |r| r.tres(Scope::UserDue)),
        ],
        qos: at("limits.max.tres.minutes.per.user", &["QOSMaxCpuRunMinsPerUser", "QOSMaxMemoryRunMinsPerUser", "QOSMaxNodeRunMinsPerUser", "QOSMaxGRESRunMinsPerUser", "QOSMaxBillingRunMinsPerUser"]),
        why: "running jobs of its user will use up their budget of {noun}",
        ..ROW
    },
    Row {
        what: One(Limit::MaxWall), name: "MaxWallDurationPerJob", least: 4,
        columns: &[C::titled("MaxWallDurationPerJob", "MaxWall", 11, |r| r.time(Limit::MaxWall))],
        association: at("max.jobs.per.wall_clock", &["AssocMaxWallDurationPerJobLimit"]),
        qos: at("limits.max.wall_clock.per.job", &["QOSMaxWallDurationPerJobLimit"]),
        why: "it asks for a longer time than a job may have",
        ..ROW
    },
    older(Limit::MinCpu, "MinCPUsPerJob", 6, &[C::new("MinCPUs", 8, |r| r.count(Limit::MinCpu))]),
    older(Limit::MinNode, "MinNodesPerJob", 6, &[]),
    Row {
        what: Each(Scope::Least), name: "MinTRESPerJob", least: 4,
        columns: &[C::new("MinTRES", 13, |r| r.tres(Scope::Least))],
        qos: at("limits.min.tres.per.job", &["QOSMinCpuNotSatisfied", "QOSMinMemory", "QOSMinNode", "QOSMinGRES", "QOSMinBilling"]),
        why: "it asks for {fewer} {noun} than a job must have",
        ..ROW
    },
];

/// Slurm's keys of associations and QOS that are not taken, each with its fewest letters and the reason.
pub static NOT_DONE: &[(&str, usize, &str)] = &[
    ("GrpJobsAccrue", 8, ACCRUE),
    ("MaxJobsAccrue", 8, ACCRUE),
    ("MaxJobsAccruePerUser", 14, ACCRUE),
    ("MaxJobsAccruePU", 15, ACCRUE),
    ("MaxJobsAccruePerAccount", 14, ACCRUE),
    ("MaxJobsAccruePA", 15, ACCRUE),
    ("LimitFactor", 6, "limits of associations are the same in each QOS: set limits of the QOS itself"),
    ("MinPrioThreshold", 4, "each job may have resources reserved, unless its QOS has the flag NoReserve"),
];

const ACCRUE: &str = "each pending job gains priority by its age: limit submitted jobs, or set priority_max_age_s";

/// Resources that Slurm accounts for and that can't be limited, each with the reason. A name that ends with `/` or `:` is the
/// beginning of many.
pub static NOT_LIMITED: &[(&str, &str)] = &[
    ("energy", "jobs have it when they have ended"),
    ("fs/", "use of file systems is not measured"),
    ("vmem", "virtual memory is not accounted"),
    ("pages", "page faults are not accounted"),
    ("ic/", "use of networks is not measured"),
    ("bb/", "there are no burst buffers"),
    ("license/", "licenses are counted for the whole cluster, and reservations keep them for some"),
    ("gres/gpu:", "GPUs of all types are counted together"),
    ("gres/", "only gres/gpu is accounted"),
];

/// Returns the key of Slurm that a word means and that is not taken, with the reason. None: there is no such key.
pub fn not_done(word: &str) -> Option<(&'static str, &'static str)> {
    let exact = NOT_DONE.iter().find(|(name, ..)| name.eq_ignore_ascii_case(word));
    let found = exact.or_else(|| NOT_DONE.iter().find(|(name, least, _)| word.len() >= *least && starts(name, word)));
    found.map(|(name, _, why)| (*name, *why))
}

/// Returns why a resource can't be limited. None: Slurm accounts for no such resource.
pub fn not_limited(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let is = |known: &str| if known.ends_with(['/', ':']) { name.starts_with(known) } else { name == known };
    NOT_LIMITED.iter().find(|(known, _)| is(known)).map(|(_, why)| *why)
}

impl Row {
    /// Returns what the limit is on an association, or on a QOS.
    pub fn place(&self, whose: Whose) -> &Place {
        match whose {
            Whose::Association => &self.association,
            Whose::Qos => &self.qos,
        }
    }

    /// Returns whether an association, or a QOS, has the limit.
    pub fn is_of(&self, whose: Whose) -> bool {
        let whole = match self.what {
            One(limit) if self.why.is_empty() => find(Each(limit.scope())),
            _ => Some(self),
        };
        whole.is_some_and(|row| !row.place(whose).path.is_empty())
    }
}

fn find(what: LimitKind) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.what == what)
}

/// Returns the row of a limit's places and texts.
fn row_of(limit: Limit) -> Option<&'static Row> {
    find(if limit.tres().is_some() { Each(limit.scope()) } else { One(limit) })
}

/// Returns the row that has the key of an association's limit in sacctmgr's dumps: an older one, if it has its own number.
pub fn dumped(limit: Limit) -> Option<&'static Row> {
    let row = if matches!(limit, Limit::Tres(..)) { row_of(limit) } else { find(One(limit)) };
    row.filter(|row| row.is_of(Whose::Association))
}

/// Returns the row that a key of sacctmgr means, perhaps abbreviated. None: the record has no such limit.
pub fn by_key(key: &str, whose: Whose) -> Option<&'static Row> {
    let keys = || {
        let rows = ROWS.iter().filter(|row| row.is_of(whose));
        let keys = |row: &'static Row| iter::once((row.name, row.least)).chain(row.aliases.iter().copied());
        rows.flat_map(move |row| keys(row).map(move |key| (row, key)))
    };
    // Exact names first: some names abbreviate others.
    let exact = keys().find(|(_, (name, _))| name.eq_ignore_ascii_case(key));
    let found = exact.or_else(|| keys().find(|(_, (name, least))| key.len() >= *least && starts(name, key)));
    found.map(|(row, _)| row)
}

/// Returns what `squall why` tells of a job that waits for a limit, with words in braces for the resource.
pub fn why(limit: Limit) -> &'static str {
    row_of(limit).map_or("it exceeds a limit", |row| row.why)
}

/// Returns Slurm's name of the pending reason for a limit.
pub fn limit_reason(whose: Whose, limit: Limit) -> &'static str {
    let at = limit.tres().and_then(|tres| Tres::ALL.iter().position(|one| *one == tres)).unwrap_or(0);
    let reasons = row_of(limit).map_or([].as_slice(), |row| row.place(whose).reasons);
    reasons.get(at).copied().unwrap_or("AssociationResourceLimit")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use squall_model::policy::{Limit, Scope, Tres, Whose};

    use super::LimitKind::{Each, One};
    use super::{NONE, ROWS, by_key, find, limit_reason, row_of};

    #[test]
    fn each_limit_has_a_row_and_each_row_all_parts() {
        const SCOPES: [Scope; 11] = [
            Scope::UserDue,
            Scope::AccountDue,
            Scope::Grp,
            Scope::GrpUsed,
            Scope::GrpDue,
            Scope::Job,
            Scope::JobDue,
            Scope::Node,
            Scope::User,
            Scope::Account,
            Scope::Least,
        ];
        let of_tres = SCOPES.into_iter().flat_map(|scope| Tres::ALL.map(|tres| Limit::of(scope, tres)));
        for limit in Limit::ALL.into_iter().chain(of_tres) {
            assert!(row_of(limit).is_some_and(|row| !row.why.is_empty()), "{limit:?}");
        }
        let (mut paths, mut reasons) = (BTreeSet::new(), BTreeSet::new());
        for row in ROWS {
            let older = row.why.is_empty();
            assert!(
                row.least >= 4 && row.least <= row.name.len() && (older || !row.columns.is_empty()),
                "{}",
                row.name
            );
            assert_eq!(row.why.contains("{noun}"), matches!(row.what, Each(_)), "{}", row.name);
            for whose in [Whose::Association, Whose::Qos] {
                let place = row.place(whose);
                let count = if matches!(row.what, Each(_)) { Tres::ALL.len() } else { 1 };
                assert_eq!(place.reasons.len(), if place.path == NONE.path { 0 } else { count }, "{}", row.name);
                assert!(place.path.is_empty() || paths.insert(place.path), "{} is at two places", place.path);
                assert!(place.reasons.iter().all(|reason| reasons.insert(reason)), "{:?}", place.reasons);
                for key in iter_keys(row).filter(|_| row.is_of(whose)) {
                    let found = by_key(&key.to_lowercase(), whose).map(|found| found.name);
                    assert_eq!(found, Some(row.name), "{key} of {whose:?}");
                }
            }
            assert!(row.is_of(Whose::Association) || row.is_of(Whose::Qos), "{}", row.name);
        }
        assert!(find(One(Limit::MaxJobs)).is_some_and(|row| !row.is_of(Whose::Qos)));
        assert_eq!(limit_reason(Whose::Qos, Limit::UserCpu), "QOSMaxCpuPerUserLimit");
    }

    fn iter_keys(row: &super::Row) -> impl Iterator<Item = &'static str> {
        std::iter::once(row.name).chain(row.aliases.iter().map(|(name, _)| *name))
    }
}
