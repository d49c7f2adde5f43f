//! Texts for refusals of the controller, in Slurm's words.

use squall_model::wire::client::{HostProblem, Refusal};

use crate::limit_reason::limit_reason;

/// Returns Slurm's text for a refusal (its `slurm_strerror`).
pub fn text(refusal: &Refusal) -> String {
    let words = match refusal {
        Refusal::InvalidJobId | Refusal::InvalidStepId => "Invalid job id specified",
        Refusal::InvalidPartition(name) if name.is_empty() => "No partition specified or system default partition",
        Refusal::InvalidPartition(_) => "Invalid partition name specified",
        Refusal::PartitionNotAvailable(_) => "Required partition not available (inactive or drain)",
        Refusal::InvalidNode(_) => "Invalid node name specified",
        Refusal::InvalidAccount(_) => "Invalid account or account/partition combination specified",
        Refusal::InvalidQos(_) => "Invalid qos specification",
        // The refusal names file, line and problem; no option is at fault.
        Refusal::InvalidValue { option, problem, .. } if option == "configuration" => problem.trim_end(),
        Refusal::InvalidValue { option, .. } => invalid_value(option),
        Refusal::NodeConfigNotAvailable(_) => "Requested node configuration is not available",
        Refusal::TooManyRequested(what) => match what.as_str() {
            "nodes" => "Node count specification invalid",
            "memory" => "Memory required by task is not available",
            _ => "More processors requested than permitted",
        },
        Refusal::DependencyProblem => "Job dependency problem",
        Refusal::AccessDenied | Refusal::HeldByAdmin | Refusal::NotFrom(..) => "Access/permission denied",
        Refusal::BadToken(_) => "Protocol authentication error",
        Refusal::Held => "Job is in held state, pending scheduler release",
        Refusal::AlreadyDone => "Job/step already completing or completed",
        Refusal::NotPending => "Job is no longer pending execution",
        Refusal::NotRunning => "Job is not running",
        Refusal::WrongState(what) if what == "pending" => "Job is pending execution",
        Refusal::WrongState(_) => "Job can not be altered now, try again later",
        Refusal::NotRequeueable => "Requested operation is presently disabled",
        Refusal::ArrayTooLarge { .. } | Refusal::HetArray => "Invalid job array specification",
        Refusal::TooLarge(..) => "Pathname of a file, directory or other parameter too long",
        Refusal::QueueFull(_) | Refusal::Limit(..) => {
            "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
        }
        Refusal::DiskFull => "I/O error writing script/environment to file",
        Refusal::KeyReused => "Duplicate job id",
        Refusal::Busy => "Requested nodes are busy",
        Refusal::PartitionDown(_) => "Partition in DOWN state",
        Refusal::NodeNotAvailable => "Required node not available (down, drained or reserved)",
        Refusal::Revoked => "Job has already finished",
        Refusal::NotSupported(_) => "Requested operation not supported on this system",
        Refusal::Stale => "It was changed by somebody else meanwhile; try again",
        Refusal::PartitionBusy(_) => "Partition is in use",
        Refusal::Contradiction(..) => "Invalid argument",
        Refusal::ReservationInvalid(_) => "Requested reservation is invalid",
        Refusal::ReservationAccess(_) => "Access denied to requested reservation",
        Refusal::ReservationBusy(_) => "Requested reservation is in use",
        Refusal::ReservationOverlap(_) => "Requested reservation overlaps with another reservation",
        Refusal::CellAway(_) | Refusal::NoLeader(_) => "Unable to contact slurm controller (connect failure)",
        Refusal::OutOfIds => "Unable to assign a job id",
        Refusal::ShuttingDown => "Unable to contact slurm controller (shutting down)",
        Refusal::MixedTypes(_) => "Invalid GRES specification (with and without type identification)",
    };
    words.to_owned()
}

fn invalid_value(option: &str) -> &'static str {
    match option {
        "time-min" => "Invalid time-min specification (exceeds job's time or other limits)",
        "time" | "TimeLimit" | "deadline" => "Requested time limit is invalid (missing or exceeds some limit)",
        "nodes" => "Node count specification invalid",
        "ntasks" => "Task count specification invalid",
        "cpus-per-task" => "CPU count specification invalid",
        "nodelist" | "exclude" => "Invalid node name specified",
        "constraint" => "Invalid feature specification",
        "active-features" => "Active features not subset of available features",
        "prefer" => "Invalid preferred feature specification",
        "array" => "Invalid job array specification",
        "dependency" => "Job dependency problem",
        "gres" | "gpus" | "gpus-per-node" | "gpus-per-socket" | "gpus-per-task" => {
            "Invalid generic resource (gres) specification"
        }
        "licenses" => "Invalid license specification",
        "reservation" => "Requested reservation is invalid",
        "begin" => "Invalid time specified",
        "nice" => "Invalid --nice value",
        _ => "Invalid argument",
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
    detail(refusal).into_iter().chain([format!("{what}: {}", text(refusal))]).collect()
}

#[cfg(test)]
mod tests {
    use squall_model::wire::client::{HostProblem, Refusal};

    use super::lines;

    fn seen(refusal: &Refusal) -> String {
        lines("Batch job submission failed", refusal).join("\n")
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
