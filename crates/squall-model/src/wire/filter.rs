//! Messages between the controller's daemon and the processes that run the site's submit filter.

use minicbor::{Decode, Encode};

use crate::config::{PartitionConfig, Submit};
use crate::encoding::ByteBuf;
use crate::id::JobId;
use crate::job::{JobSpec, Owner};
use crate::wire::client::JobUpdate;

/// A message to a filter process. Each is answered by one [`FromFilter`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ToFilter {
    /// The first message: what to run. Answer: `Loaded` or `Fault`.
    #[n(0)]
    Load(#[n(0)] Box<FilterScript>),
    /// A submission. Answer: `Verdict`.
    #[n(1)]
    Submit(#[n(0)] Box<Submission>),
    /// A change of a job. Answer: `Verdict`.
    #[n(2)]
    Modify(#[n(0)] Box<Modification>),
    /// The partitions have changed. Not answered.
    #[n(3)]
    Partitions(#[n(0)] Vec<PartitionConfig>),
}

/// What a filter process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct FilterScript {
    /// Folder of the script, below which it may read files.
    #[n(0)]
    pub folder: String,
    /// Name of the script in the folder, or path of the program.
    #[n(1)]
    pub name: String,
    /// Whether it is a program that reads JSON. False: a Lua script.
    #[n(2)]
    pub program: bool,
    /// User as which it runs if this process is root's.
    #[n(3)]
    pub user: String,
    /// Whether the script may start programs.
    #[n(4)]
    pub allow_programs: bool,
    /// Files of the script as they were loaded before, by their names in the folder. Others are read from the folder.
    #[n(5)]
    pub files: Vec<(String, ByteBuf)>,
    /// The cluster's partitions.
    #[n(6)]
    pub partitions: Vec<PartitionConfig>,
}

/// A submission, or a component of a heterogeneous one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Submission {
    /// Specification of the job.
    #[n(0)]
    pub spec: JobSpec,
    /// Content of the batch script; empty: there is none.
    #[n(1)]
    pub script: ByteBuf,
    /// The environment: entries `NAME=VALUE`, each ended by NUL.
    #[n(2)]
    pub env: ByteBuf,
    /// About the user who submits.
    #[n(3)]
    pub about: About,
    /// Number of the component in a heterogeneous job. None: the job is none.
    #[n(4)]
    pub component: Option<u32>,
    /// `--immediate`.
    #[n(5)]
    pub immediate: bool,
}

/// A change of a job by `scontrol update`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Modification {
    /// Id of the job or array.
    #[n(0)]
    pub job: JobId,
    /// Its present specification.
    #[n(1)]
    pub spec: JobSpec,
    /// The changes that are asked for.
    #[n(2)]
    pub change: JobUpdate,
    /// About the job's user.
    #[n(3)]
    pub about: About,
    /// Id of the user who asks for the change.
    #[n(4)]
    pub modify_uid: u32,
    /// Slurm's number of the job's state: 0 is pending, 1 running, 2 suspended.
    #[n(5)]
    pub state: u32,
}

/// A user, with what the cluster knows of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct About {
    /// The user.
    #[n(0)]
    pub owner: Owner,
    /// The user's default account. None: the user has none.
    #[n(1)]
    pub account: Option<String>,
    /// Default QOS of the user's jobs in the account of the job. None: there is none.
    #[n(2)]
    pub qos: Option<String>,
    /// QOS that these jobs may use, separated by commas. None: there is no association.
    #[n(3)]
    pub allowed_qos: Option<String>,
}

/// A message of a filter process.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum FromFilter {
    /// The script was loaded, from these files of its folder.
    #[n(0)]
    Loaded(#[n(0)] Vec<(String, ByteBuf)>),
    /// The script can't be loaded, for this reason.
    #[n(1)]
    Fault(#[n(0)] String),
    /// What the filter decided.
    #[n(2)]
    Verdict(#[n(0)] Box<Verdict>),
}

/// What a filter decided on a submission or a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Verdict {
    /// Slurm's error number; 0: accepted.
    #[n(0)]
    pub error: u32,
    /// Text for the user. Empty: none.
    #[n(1)]
    pub message: String,
    /// Names of the fields that were changed, in the order of their first change.
    #[n(2)]
    pub changed: Vec<String>,
    /// The changed specification of a submission. None: it is not changed.
    #[n(3)]
    pub spec: Option<Box<JobSpec>>,
    /// The changed script. None: it is not changed.
    #[n(4)]
    pub script: Option<ByteBuf>,
    /// The changed environment. None: it is not changed.
    #[n(5)]
    pub env: Option<ByteBuf>,
    /// The changes of a job after the filter. None: they are as asked for.
    #[n(6)]
    pub change: Option<Box<JobUpdate>>,
    /// Lines for the controller's log, each with its level: 0 error, 1 info, 2 debug.
    #[n(7)]
    pub log: Vec<(u32, String)>,
    /// Whether the process ends after this answer, as the script has reached a limit.
    #[n(8)]
    pub ends: bool,
}

/// Returns what a filter process runs, by the configuration in the folder `beside`. None: nothing is filtered.
pub fn script_of(submit: &Submit, beside: &str, partitions: Vec<PartitionConfig>) -> Option<FilterScript> {
    if !submit.is_on() {
        return None;
    }
    let program = submit.lua.is_empty();
    let path = if program { &submit.program } else { &submit.lua };
    let (folder, name) = path.rsplit_once('/').map_or(("", path.as_str()), |(folder, name)| (folder, name));
    let folder = match () {
        () if path.starts_with('/') => format!("{folder}/"),
        () if folder.is_empty() => beside.to_owned(),
        () => format!("{beside}/{folder}"),
    };
    let name = if program { path.clone() } else { name.to_owned() };
    let user = submit.user().to_owned();
    let allow_programs = submit.allow_programs;
    Some(FilterScript { folder, name, program, user, allow_programs, files: Vec::new(), partitions })
}

#[cfg(test)]
mod tests {
    use super::script_of;
    use crate::config::Submit;

    #[test]
    fn a_relative_path_begins_at_the_configuration() {
        let at = |lua: &str| {
            let submit = Submit { lua: lua.to_owned(), ..Submit::default() };
            script_of(&submit, "/etc/squall", Vec::new()).map(|script| (script.folder, script.name))
        };
        let is = |folder: &str, name: &str| Some((folder.to_owned(), name.to_owned()));
        assert_eq!(at("job_submit.lua"), is("/etc/squall", "job_submit.lua"));
        assert_eq!(at("rules/a.lua"), is("/etc/squall/rules", "a.lua"));
        assert_eq!(at("/opt/a.lua"), is("/opt/", "a.lua"));
        assert_eq!(at(""), None);
    }
}
