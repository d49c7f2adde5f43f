//! sbcast: a file to all nodes of a job.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_bytes::ByteBuf;
use squall_model::id::JobId;
use squall_model::wire::broadcast::{BroadcastTo, PlaceAt};
use squall_model::wire::client::{JobRef, JobSelection, Refusal};

use crate::broadcast::{self, Sent};
use crate::client::ClientError;
use crate::command::listing::arguments::{Known, Value};
use crate::command::listing::call::{Call, Fail, live};
use crate::command::listing::select::job_ref;

const OPTIONS: &[Known] = &[
    ("compress", 'C', Value::Maybe),
    ("exclude", '\0', Value::Needed),
    ("fanout", 'F', Value::Needed),
    ("force", 'f', Value::None),
    ("jobid", 'j', Value::Needed),
    ("preserve", 'p', Value::None),
    ("send-libs", '\0', Value::Maybe),
    ("size", 's', Value::Needed),
    ("timeout", 't', Value::Needed),
    ("verbose", 'v', Value::None),
];

const HELP: &str = "\
Usage: sbcast [OPTIONS] SOURCE DEST
  -f, --force      replace destination file as required
  -j, --jobid=#    specify the job; otherwise that of $SLURM_JOB_ID
  -p, --preserve   preserve the modification time
  -V, --version    print version information and exit
  --compress, --fanout, --size, --timeout are accepted: files travel as they can.
";

/// Runs sbcast.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("sbcast", args, sbcast)
}

fn sbcast(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(OPTIONS, args, HELP)? else { return Ok(()) };
    let [source, dest] = given.operands.as_slice() else {
        call.say(&format!(
            "Need two file names, have {} names\nTry \"sbcast --help\" for more information",
            given.operands.len()
        ));
        return Err(Fail(1));
    };
    let job = given.last("jobid").map(str::to_owned).or_else(|| call.variable("SLURM_JOB_ID"));
    let Some(job) = job else {
        return call.fail("Need a job id to run this command.  Run from within a Slurm job or use the --jobid option.");
    };
    let time_ms = match given.last("timeout").map(str::parse::<u64>) {
        None => None,
        Some(Ok(seconds)) => Some(seconds.saturating_mul(1000)).filter(|ms| *ms > 0),
        Some(Err(_)) => return call.fail("Invalid timeout specification"),
    };
    let file = match File::open(source) {
        Ok(file) => file,
        Err(e) => return call.fail(&format!("Can't open `{source}`: {e}")),
    };
    let meta = match file.metadata() {
        Ok(meta) if meta.is_file() => meta,
        Ok(_) => return call.fail(&format!("`{source}` is not a regular file")),
        Err(e) => return call.fail(&format!("Can't stat `{source}`: {e}")),
    };
    let id = id_of(call, &job)?;
    let place = PlaceAt {
        path: ByteBuf::from(place(source, dest).into_os_string().into_encoded_bytes()),
        mode: meta.permissions().mode() & 0o777,
        modified: given.has("preserve").then(|| (meta.mtime(), meta.mtime_nsec() as u32)),
        replace: given.has("force"),
        per_step: false,
    };
    let wanted = broadcast::wanted(BroadcastTo::Job(id), true, Some(place), time_ms);
    match call.controller.broadcast(&file, wanted) {
        Ok(Sent { failed: None, nodes, lacking, size, .. }) => {
            if given.has("verbose") {
                call.say(&format!("sbcast: {size} bytes, lacking on {lacking} of {nodes} nodes"));
            }
            Ok(())
        }
        Ok(Sent { failed: Some(failed), .. }) => call.fail(&broadcast::problem(&failed)),
        Err(ClientError::Unreadable(e)) => call.fail(&format!("Can't read `{source}`: {e}")),
        Err(ClientError::Refused(Refusal::NotRunning)) => call.fail(&format!("Slurm job {job} is not running")),
        Err(e) => call.failed(&format!("sbcast: error: Slurm jobid {job} lookup error"), &e),
    }
}

/// A destination that ends with a slash is a folder; a relative one counts from where the user is.
fn place(source: &str, dest: &str) -> PathBuf {
    let name = Path::new(source).file_name().unwrap_or_default();
    let dest = std::path::absolute(dest).unwrap_or_else(|_| dest.into());
    if dest.as_os_str().as_encoded_bytes().ends_with(b"/") { dest.join(name) } else { dest }
}

fn id_of(call: &mut Call<'_>, job: &str) -> Result<JobId, Fail> {
    let Some(id) = job_ref(job) else { return call.fail(&format!("Invalid job id {job}")) };
    if let JobRef::Job(id) = id {
        return Ok(id);
    }
    let selection = JobSelection { ids: vec![id], ..JobSelection::default() };
    match call.controller.jobs(selection, false, false) {
        Ok(page) => match page.jobs.first() {
            Some(info) => Ok(info.id),
            None => call.fail(&format!("Slurm jobid {job} lookup error: Invalid job id specified")),
        },
        Err(e) => call.failed("sbcast: error", &e),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{place, sbcast};
    use crate::command::listing::fake::run;

    #[test]
    fn what_fails_and_how() {
        assert!(run("sbcast", sbcast, &["a"]).err.starts_with("Need two file names, have 1 names\n"));
        assert!(run("sbcast", sbcast, &["/dev/null", "b"]).err.contains("Need a job id"));
        assert!(run("sbcast", sbcast, &["-j1", "/nonexistent", "b"]).err.contains("Can't open `/nonexistent`"));
        assert!(run("sbcast", sbcast, &["-j1", "/", "b"]).err.contains("is not a regular file"));
        assert_eq!(place("/a/b", "/tmp/"), Path::new("/tmp/b"));
        assert_eq!(place("/a/b", "c"), std::env::current_dir().unwrap().join("c"));
    }
}
