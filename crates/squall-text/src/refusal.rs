//! Refusals of the controller in Slurm's words: a row for each, and what the refusal tells beyond it.

use squall_model::wire::client::{HostProblem, Refusal};

use crate::limits::limit_reason;

/// A row of the table of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// HTTP status of an answer with the refusal.
    pub status: u16,
    /// Slurm's number (its `slurm_errno`).
    pub number: u32,
    /// Slurm's text (its `slurm_strerror`).
    pub text: &'static str,
}

const fn row(status: u16, number: u32, text: &'static str) -> Row {
    Row { status, number, text }
}

/// Number of an invalid argument in the C library, which Slurm uses, too.
const EINVAL: u32 = 22;
const DENIED: &str = "Access/permission denied";
const BAD_ARRAY: &str = "Invalid job array specification";
const BAD_NODE: &str = "Invalid node name specified";
const BAD_NODES: &str = "Node count specification invalid";
const BAD_RESERVATION: &str = "Requested reservation is invalid";
const DEPENDENCY: &str = "Job dependency problem";
const POLICY: &str = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)";

/// Returns the row of a refusal.
#[rustfmt::skip]
pub fn row_of(refusal: &Refusal) -> Row {
    match refusal {
        Refusal::InvalidJobId | Refusal::InvalidStepId => row(404, 2017, "Invalid job id specified"),
        Refusal::InvalidPartition(name) if name.is_empty() => {
            row(400, 2001, "No partition specified or system default partition")
        }
        Refusal::InvalidPartition(_) => row(400, 2000, "Invalid partition name specified"),
        Refusal::PartitionNotAvailable(_) => row(400, 2070, "Required partition not available (inactive or drain)"),
        Refusal::InvalidNode(_) => row(400, 2018, BAD_NODE),
        Refusal::InvalidAccount(_) => row(400, 2045, "Invalid account or account/partition combination specified"),
        Refusal::InvalidQos(_) => row(400, 2066, "Invalid qos specification"),
        Refusal::InvalidValue { option, .. } => invalid_value(option),
        Refusal::NodeConfigNotAvailable(_) => row(400, 2014, "Requested node configuration is not available"),
        Refusal::TooManyRequested(what) => match what.as_str() {
            "nodes" => row(400, 2006, BAD_NODES),
            "memory" => row(400, 2044, "Memory required by task is not available"),
            _ => row(400, 2005, "More processors requested than permitted"),
        },
        Refusal::DependencyProblem => row(400, 2038, DEPENDENCY),
        Refusal::AccessDenied | Refusal::HeldByAdmin | Refusal::NotFrom(..) => row(403, 2002, DENIED),
        Refusal::BadToken(_) => row(401, 1007, "Protocol authentication error"),
        Refusal::Held => row(409, 2042, "Job is in held state, pending scheduler release"),
        Refusal::AlreadyDone => row(409, 2021, "Job/step already completing or completed"),
        Refusal::NotPending => row(409, 2073, "Job is no longer pending execution"),
        Refusal::NotRunning => row(409, 2085, "Job is not running"),
        Refusal::WrongState(what) if what == "pending" => row(409, 2020, "Job is pending execution"),
        Refusal::WrongState(_) => row(409, 2020, "Job can not be altered now, try again later"),
        Refusal::NotRequeueable => row(400, 2037, "Requested operation is presently disabled"),
        Refusal::ArrayTooLarge { .. } | Refusal::HetArray => row(400, 2081, BAD_ARRAY),
        Refusal::TooLarge(..) => row(400, 2012, "Pathname of a file, directory or other parameter too long"),
        Refusal::QueueFull(_) => row(503, 2050, POLICY),
        Refusal::Limit(..) => row(400, 2050, POLICY),
        Refusal::DiskFull => row(503, 2019, "I/O error writing script/environment to file"),
        Refusal::KeyReused => row(409, 2011, "Duplicate job id"),
        Refusal::Busy => row(409, 2016, "Requested nodes are busy"),
        Refusal::PartitionDown(_) => row(409, 2101, "Partition in DOWN state"),
        Refusal::NodeNotAvailable => row(409, 2068, "Required node not available (down, drained or reserved)"),
        Refusal::Revoked => row(409, 2084, "Job has already finished"),
        Refusal::NotSupported(_) => row(501, 2036, "Requested operation not supported on this system"),
        Refusal::Stale => row(409, 2020, "It was changed by somebody else meanwhile; try again"),
        Refusal::PartitionBusy(_) => row(409, 2075, "Partition is in use"),
        Refusal::Contradiction(..) => row(400, EINVAL, "Invalid argument"),
        Refusal::ReservationInvalid(_) => row(400, 2053, BAD_RESERVATION),
        Refusal::ReservationAccess(_) => row(403, 2052, "Access denied to requested reservation"),
        Refusal::ReservationBusy(_) => row(409, 2055, "Requested reservation is in use"),
        Refusal::ReservationOverlap(_) => row(409, 2058, "Requested reservation overlaps with another reservation"),
        Refusal::CellAway(_) | Refusal::NoLeader(_) => {
            row(503, 1800, "Unable to contact slurm controller (connect failure)")
        }
        Refusal::OutOfIds => row(503, 2007, "Unable to assign a job id"),
        Refusal::ShuttingDown => row(503, 1803, "Unable to contact slurm controller (shutting down)"),
        Refusal::MixedTypes(_) => row(400, 2118, "Invalid GRES specification (with and without type identification)"),
        Refusal::Filtered(number, _) => filtered(*number),
    }
}

/// Returns the row of a refusal by the site's submit filter with this number.
#[rustfmt::skip]
fn filtered(number: u32) -> Row {
    let option = match number {
        2000 => return row_of(&Refusal::InvalidPartition("?".to_owned())),
        2001 => return row_of(&Refusal::InvalidPartition(String::new())),
        2002 => return row_of(&Refusal::AccessDenied),
        2014 => return row_of(&Refusal::NodeConfigNotAvailable(String::new())),
        2038 => return row_of(&Refusal::DependencyProblem),
        2044 => return row_of(&Refusal::TooManyRequested("memory".to_owned())),
        2045 => return row_of(&Refusal::InvalidAccount(String::new())),
        2050 => return row(400, number, POLICY),
        2066 => return row_of(&Refusal::InvalidQos(String::new())),
        2070 => return row_of(&Refusal::PartitionNotAvailable(String::new())),
        8000 => return row(400, number, "Time limit specification required, but not provided"),
        2006 => "nodes",
        2018 => "nodelist",
        2025 => "ntasks",
        2029 => "constraint",
        2048 => "licenses",
        2051 => "time",
        2053 => "reservation",
        2054 => "begin",
        2069 => "cpus-per-task",
        2072 => "gres",
        2081 => "array",
        2123 => "nice",
        2124 => "time-min",
        2133 => "prefer",
        _ => return row(400, number, "Unspecified error"),
    };
    invalid_value(option)
}

/// Returns the row of a refusal because of the value of this option.
#[rustfmt::skip]
fn invalid_value(option: &str) -> Row {
    let (number, text) = match option {
        "time-min" => (2124, "Invalid time-min specification (exceeds job's time or other limits)"),
        "time" | "TimeLimit" | "deadline" => (2051, "Requested time limit is invalid (missing or exceeds some limit)"),
        "nodes" => (2006, BAD_NODES),
        "ntasks" => (2025, "Task count specification invalid"),
        "cpus-per-task" => (2069, "CPU count specification invalid"),
        "nodelist" | "exclude" => (2018, BAD_NODE),
        "constraint" => (2029, "Invalid feature specification"),
        "active-features" => (2031, "Active features not subset of available features"),
        "prefer" => (2133, "Invalid preferred feature specification"),
        "array" => (2081, BAD_ARRAY),
        "dependency" => (2038, DEPENDENCY),
        "gres" | "gpus" | "gpus-per-node" | "gpus-per-socket" | "gpus-per-task" => {
            (2072, "Invalid generic resource (gres) specification")
        }
        "licenses" => (2048, "Invalid license specification"),
        "reservation" => (2053, BAD_RESERVATION),
        "begin" => (2054, "Invalid time specified"),
        "nice" => (2123, "Invalid --nice value"),
        _ => (EINVAL, "Invalid argument"),
    };
    row(400, number, text)
}

/// Returns the text of a refusal: Slurm's, or what is wrong with a configuration file.
pub fn text(refusal: &Refusal) -> String {
    match refusal {
        // The refusal names file, line and problem; no option is at fault.
        Refusal::InvalidValue { option, problem, .. } if option == "configuration" => problem.trim_end().to_owned(),
        _ => row_of(refusal).text.to_owned(),
    }
}

/// Returns details of a refusal, for a line before its text: which value is wrong, and what would be right. None:
/// there are none.
pub fn detail(refusal: &Refusal) -> Option<String> {
    match refusal {
        Refusal::InvalidPartition(name) if name.is_empty() => None,
        Refusal::InvalidPartition(name) => Some(format!("invalid partition specified: {name}")),
        Refusal::PartitionNotAvailable(name) => Some(format!("partition {name} takes no jobs now; see sinfo")),
        Refusal::InvalidNode(name) if name.is_empty() => None,
        Refusal::InvalidNode(name) => Some(format!("no node is called {name}; sinfo -N lists them")),
        Refusal::InvalidAccount(name) => Some(format!("invalid account specified: {name}")),
        Refusal::InvalidQos(name) => Some(format!("invalid qos specified: {name}")),
        Refusal::InvalidValue { option, value, problem } if value.is_empty() => Some(format!("--{option}: {problem}")),
        Refusal::InvalidValue { option, value, problem } => Some(format!("--{option}={value}: {problem}")),
        Refusal::NodeConfigNotAvailable(what) => Some(match what.as_str() {
            "" => return None,
            "memory" => "Memory specification can not be satisfied".to_owned(),
            "CPUs" => "CPU count per node can not be satisfied".to_owned(),
            "tmp disk" => "Temporary disk specification can not be satisfied".to_owned(),
            "such nodes" => "too few nodes of the partition have what is asked for; scontrol show node".to_owned(),
            "components" => {
                "too few nodes for all components: no two components of a heterogeneous job share a node".to_owned()
            }
            "sockets" => "Socket, core and/or thread specification can not be satisfied".to_owned(),
            "threads" => {
                "Socket, core and/or thread specification can not be satisfied: where CPUs are given out one by \
                          one, cores must have as many threads as --threads-per-core or --hint asks for; \
                          SelectTypeParameters=CR_Core gives whole cores, of which a job may use one thread"
                    .to_owned()
            }
            "nodes" => "Node count specification invalid".to_owned(),
            other => other.to_owned(),
        }),
        Refusal::WrongState(what) | Refusal::NotSupported(what) => Some(what.clone()).filter(|w| !w.is_empty()),
        Refusal::ArrayTooLarge { highest } => Some(format!("the highest array index allowed here is {highest}")),
        Refusal::HetArray => Some("an array can't be a component of a heterogeneous job".to_owned()),
        Refusal::CellAway(cell) => Some(format!("cell {cell} does not answer")),
        Refusal::NoLeader(tried) => Some(format!("no controller leads at the moment: {tried}")),
        Refusal::PartitionBusy(name) => Some(format!("jobs of partition {name} wait or run; squeue -p {name}")),
        Refusal::OutOfIds => {
            Some("jobs that are known have all ids from first_job_id to max_job_id; try again later".to_owned())
        }
        Refusal::TooLarge(what, limit) => Some(format!("{what} is too large; at most {limit} bytes are allowed")),
        Refusal::QueueFull(limit) => Some(format!("the queue holds {limit} jobs, its limit; try again later")),
        Refusal::DiskFull => {
            let full = "there is no room for new jobs: the controller's disk is full, or etcd where there are several \
                 controllers. `scontrol ping` says which, and what to do; running jobs go on";
            Some(full.to_owned())
        }
        Refusal::Limit(whose, limit) => Some(limit_reason(*whose, *limit).to_owned()),
        Refusal::Contradiction(what, why) => Some(format!("{what}: {why}")),
        Refusal::KeyReused => Some("the request's key was used before for something else; submit again".to_owned()),
        Refusal::HeldByAdmin => Some("the job is held by an operator, who must release it".to_owned()),
        Refusal::ReservationInvalid(what) | Refusal::ReservationBusy(what) | Refusal::ReservationOverlap(what) => {
            Some(what.clone())
        }
        Refusal::ReservationAccess(name) => {
            Some(format!("reservation {name} is for others; scontrol show reservation"))
        }
        Refusal::NotFrom(host, problem) => Some(not_from(host, *problem)),
        Refusal::MixedTypes(name) => {
            Some(format!("{name} is asked for both with a type and without one: name the type everywhere, or nowhere"))
        }
        Refusal::BadToken(problem) => Some(problem.clone()),
        Refusal::Filtered(_, message) => Some(message.clone()).filter(|message| !message.is_empty()),
        Refusal::NotRequeueable => Some("the job was submitted with --no-requeue, or is no batch job".to_owned()),
        _ => None,
    }
}

/// Returns the reason why commands of this user may not come from the machine `host`, and what to do.
fn not_from(host: &str, problem: HostProblem) -> String {
    match problem {
        HostProblem::Revoked => {
            format!("this host's key was revoked: ask the administrator for `squall token --login {host}`")
        }
        HostProblem::NoJob => format!(
            "{host} is a node: commands work there in your jobs. `squall token --login {host}` on the controller's \
             machine allows them outside of jobs, too"
        ),
        HostProblem::OtherJob => format!(
            "from a job on {host} only jobs of that node can be changed, and those submitted from within them: use a login \
             host (or set nodes_vouch_for_users)"
        ),
        HostProblem::Token => {
            format!("{host} is a node: ask for tokens on a login host or on the controller's machine")
        }
        HostProblem::Root => format!(
            "root of {host} is not trusted: use an ordinary user, or `squall token --login {host} --allow-root` on the \
             controller's machine"
        ),
        HostProblem::SystemUser(lowest) => format!(
            "{host} may send commands of users from uid {lowest} on only (min_uid); `squall token --login {host} \
             --allow-root` on the controller's machine allows all"
        ),
        HostProblem::UnknownUser(uid) => {
            format!("the controller's machine knows no user with uid {uid}: users must have the same ids everywhere")
        }
        HostProblem::NotInGroup(gid) => {
            format!("on the controller's machine you are not in group {gid}: groups must be the same everywhere")
        }
    }
}

/// Returns the lines for a refused request, each to be printed after `NAME: error: `. The last one is `WHAT: TEXT`.
pub fn lines(what: &str, refusal: &Refusal) -> Vec<String> {
    let detail = detail(refusal).unwrap_or_default();
    // What a site's filter tells has several lines.
    detail.lines().map(str::to_owned).chain([format!("{what}: {}", text(refusal))]).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use squall_model::encoding;
    use squall_model::wire::client::{HostProblem, Refusal};

    use super::{EINVAL, lines, row_of};

    fn seen(refusal: &Refusal) -> String {
        lines("Batch job submission failed", refusal).join("\n")
    }

    /// Returns a refusal of this number, with fields of some kind. None: there is no such number.
    fn sample(number: u32) -> Option<Refusal> {
        let (word, unit) = ("x", (0, [0_u8; 0]));
        let fields = [
            encoding::to_vec(&(number, [0_u8; 0])),
            encoding::to_vec(&(number, [word])),
            encoding::to_vec(&(number, [word; 3])),
            encoding::to_vec(&(number, [word; 2])),
            encoding::to_vec(&(number, [1])),
            encoding::to_vec(&(number, (word, 1))),
            encoding::to_vec(&(number, (1, word))),
            encoding::to_vec(&(number, (word, unit))),
            encoding::to_vec(&(number, (0, unit))),
        ];
        let unknown = encoding::from_slice::<Refusal>(&fields[0]).is_err_and(|e| e.contains("unknown"));
        let sample = fields.iter().find_map(|bytes| encoding::from_slice(bytes).ok());
        assert!(unknown || sample.is_some(), "refusal {number} has other fields: add them to this list");
        sample
    }

    #[test]
    fn each_row_has_all_parts() {
        let all: Vec<Refusal> = (0..256).filter_map(sample).collect();
        assert!(all.len() >= 45);
        let mut texts: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
        for refusal in &all {
            let row = row_of(refusal);
            assert!([400, 401, 403, 404, 409, 501, 503].contains(&row.status), "{refusal:?}: {row:?}");
            // 1 stands for Slurm's -1, which a filter returns without an error in particular.
            assert!([1, EINVAL].contains(&row.number) || (1000..3000).contains(&row.number), "{refusal:?}: {row:?}");
            assert!(row.text.len() > 8 && row.text == row.text.trim(), "{refusal:?}: {row:?}");
            texts.entry(row.number).or_default().insert(row.text);
        }
        // Slurm has one text for each number, and no number for a change by others.
        texts.retain(|_, texts| texts.len() > 1);
        assert_eq!(texts.into_keys().collect::<Vec<_>>(), [2020]);
    }

    #[test]
    fn refusals_in_slurms_words() {
        assert_eq!(
            seen(&Refusal::InvalidPartition("X".into())),
            "invalid partition specified: X\nBatch job submission failed: Invalid partition name specified"
        );
        assert_eq!(
            seen(&Refusal::NodeConfigNotAvailable("memory".into())),
            "Memory specification can not be satisfied\n\
             Batch job submission failed: Requested node configuration is not available"
        );
        assert_eq!(seen(&Refusal::DependencyProblem), "Batch job submission failed: Job dependency problem");
        assert_eq!(
            seen(&Refusal::NotFrom("login1".into(), HostProblem::Revoked)),
            "this host's key was revoked: ask the administrator for `squall token --login login1`\n\
             Batch job submission failed: Access/permission denied"
        );
    }
}
