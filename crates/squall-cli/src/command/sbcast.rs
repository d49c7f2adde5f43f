//! sbcast: a file to all nodes of a job, as the input of a step with one task on each.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use squall_model::wire::client::JobSelection;

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

/// What the task on each node does; its input is the file. It comes under a name of its own first, so that nobody sees
/// half of it. A destination that is there already is in the way unless it is the same: nodes may share their disk.
const RECEIVE: &str = r#"new="$1.sbcast.$SLURM_PROCID" && umask 077 && cat > "$new" && chmod "$3" -- "$new" || exit
[ -z "$4" ] || touch -m -d "@$4" -- "$new" || exit
if [ "$2" != force ] && [ -e "$1" ] && ! cmp -s -- "$1" "$new"; then
    echo "sbcast: error: $1: File exists" >&2; rm -f -- "$new"; exit 17
fi
mv -f -- "$new" "$1""#;

/// Runs sbcast.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("sbcast", args, |call, args| sbcast(call, args, become_srun))
}

/// Goes on as srun with this input and these arguments; comes back only if that fails.
fn become_srun(file: File, words: &[&str]) -> std::io::Error {
    match std::env::current_exe() {
        Ok(program) => Command::new(program).arg("srun").args(words).stdin(file).exec(),
        Err(e) => e,
    }
}

fn sbcast(call: &mut Call<'_>, args: &[String], go_on: fn(File, &[&str]) -> std::io::Error) -> Result<(), Fail> {
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
    let file = match File::open(source) {
        Ok(file) => file,
        Err(e) => return call.fail(&format!("Can't open `{source}`: {e}")),
    };
    let meta = match file.metadata() {
        Ok(meta) if meta.is_file() => meta,
        Ok(_) => return call.fail(&format!("`{source}` is not a regular file")),
        Err(e) => return call.fail(&format!("Can't stat `{source}`: {e}")),
    };
    let nodes = nodes_of(call, &job)?;
    let mode = format!("{:o}", meta.permissions().mode() & 0o777);
    let time = if given.has("preserve") { meta.mtime().to_string() } else { String::new() };
    let force = if given.has("force") { "force" } else { "" };
    let dest = place(source, dest);
    let job = format!("--jobid={job}");
    let (count, tasks) = (format!("--nodes={nodes}"), format!("--ntasks={nodes}"));
    let step =
        [&*job, &count, &tasks, "--ntasks-per-node=1", "--overlap", "--quiet", "--job-name=sbcast", "--input=all"];
    let task = ["sh", "-c", RECEIVE, "sbcast", &dest, force, &mode, &time];
    let problem = go_on(file, &[step, task].concat());
    call.fail(&format!("srun: {problem}"))
}

/// A destination that ends with a slash is a folder.
fn place(source: &str, dest: &str) -> String {
    let name = Path::new(source).file_name().unwrap_or_default().to_string_lossy();
    if dest.ends_with('/') { format!("{dest}{name}") } else { dest.to_owned() }
}

fn nodes_of(call: &mut Call<'_>, job: &str) -> Result<u32, Fail> {
    let Some(id) = job_ref(job) else { return call.fail(&format!("Invalid job id {job}")) };
    let selection = JobSelection { ids: vec![id], ..JobSelection::default() };
    match call.controller.jobs(selection, false, false) {
        Ok(page) => match page.jobs.first() {
            Some(info) if !info.nodes.is_empty() => Ok(info.num_nodes),
            Some(_) => call.fail(&format!("Slurm job {job} is not running")),
            None => call.fail(&format!("Slurm jobid {job} lookup error: Invalid job id specified")),
        },
        Err(e) => call.failed("sbcast: error", &e),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::{place, sbcast};
    use crate::command::listing::call::{Call, Fail};
    use crate::command::listing::fake::run;

    /// A job of the usual cluster.
    const RUNNING: &str = "10";

    thread_local!(static RUN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) });

    fn pretend(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
        sbcast(call, args, |_, words| {
            RUN.set(words.iter().map(|w| (*w).to_owned()).collect());
            std::io::Error::other("a test")
        })
    }

    #[test]
    fn one_task_on_each_node_takes_the_file() {
        let source = std::env::temp_dir().join(format!("sbcast-{}", std::process::id()));
        std::fs::write(&source, "x").unwrap();
        let source = source.to_string_lossy().into_owned();
        run("sbcast", pretend, &["-f", "-j", RUNNING, &source, "/tmp/there"]);
        RUN.with_borrow(|words| {
            assert_eq!(words[0], format!("--jobid={RUNNING}"));
            assert_eq!(&words[words.len() - 4..words.len() - 2], ["/tmp/there", "force"]);
        });
        std::fs::remove_file(source).unwrap();
    }

    #[test]
    fn what_fails_and_how() {
        assert!(run("sbcast", pretend, &["a"]).err.starts_with("Need two file names, have 1 names\n"));
        assert!(run("sbcast", pretend, &["/dev/null", "b"]).err.contains("Need a job id"));
        assert!(run("sbcast", pretend, &["-j1", "/nonexistent", "b"]).err.contains("Can't open `/nonexistent`"));
        assert_eq!(place("/a/b", "/tmp/"), "/tmp/b");
    }
}
