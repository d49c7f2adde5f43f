//! sbcast: copies a file to the nodes of a job, of a job's component, or of a step.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::ExitCode;

use squall_model::encoding::ByteBuf;
use squall_model::hostlist;
use squall_model::id::JobId;
use squall_model::job::JobState;
use squall_model::time::Time;
use squall_model::wire::broadcast::{BroadcastTo, PlaceAt};
use squall_model::wire::client::{JobRef, JobSelection, Refusal};

use crate::command::listing::call::{Call, Fail, live};
use crate::command::listing::select::{Target, target};
use squall_client::ClientError;
use squall_client::broadcast::{self, BroadcastResult};
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{Options, Page};

const OPTIONS: &[Flag] = &[
    flag("compress", 'C', Arg::Maybe("lib"), "lz4 or none").hint("files travel as they are"),
    flag("exclude", '\0', Arg::Needed("path_list"), "libraries not to send").hint("none are sent"),
    flag("fanout", 'F', Arg::Needed("num"), "how many nodes a node sends to")
        .hint("the copy route depends on file size and number of nodes"),
    flag("treewidth", '\0', Arg::Needed("num"), "")
        .refused("the copy route depends on file size and number of nodes: leave it out"),
    flag("force", 'f', Arg::None, "replace destination file as required"),
    flag(
        "jobid",
        'j',
        Arg::Needed("#[+#][.#"),
        "the job, with the offset of a component and the step; otherwise that of $SLURM_JOB_ID",
    ),
    flag("no-allocation", '\0', Arg::None, "").refused("files go to the nodes of a job: use --jobid"),
    flag("nodelist", 'w', Arg::Needed("nodes"), "")
        .refused("files go to all nodes of a job or step: use --jobid=JOB.STEP"),
    flag("preserve", 'p', Arg::None, "preserve modes and times of source file"),
    flag("send-libs", '\0', Arg::Maybe("yes|no"), "no: libraries are not sent")
        .partly("yes is refused: send each library with sbcast"),
    flag("size", 's', Arg::Needed("num"), "block size").hint("it is found by the size of the file"),
    flag("timeout", 't', Arg::Needed("secs"), "give up after so many seconds"),
    flag("verbose", 'v', Arg::None, "provide detailed event logging"),
];

/// What `sbcast` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "sbcast",
    about: "copy a file to all nodes of a job",
    synopsis: &["[OPTIONS] SOURCE DEST"],
    options: Options::Own(OPTIONS),
    notes: "",
};

/// Slurm's default block size, in bytes.
const BLOCK_BYTES: u64 = 8 << 20;

/// Exit code for a job, step or file that does not exist or cannot be used.
const NOT_THERE: u8 = 255;

/// Runs sbcast.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("sbcast", args, sbcast)
}

/// Request of the command, from options and variables.
struct BroadcastRequest {
    force: bool,
    preserve: bool,
    time_ms: Option<u64>,
    verbose: usize,
    source: String,
    dest: PathBuf,
}

fn sbcast(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    let asked = asked(call, &given)?;
    let job = given.last("jobid").map(str::to_owned).or_else(|| call.variable("SLURM_JOB_ID"));
    let Some(job) = job else {
        return call.fail("Need a job id to run this command.  Run from within a Slurm job or use the --jobid option.");
    };
    let (file, meta) = open(call, &asked)?;
    let place = PlaceAt {
        path: ByteBuf::from(asked.dest.into_os_string().into_encoded_bytes()),
        mode: meta.permissions().mode() & 0o777,
        modified: asked.preserve.then(|| (meta.mtime(), meta.mtime_nsec() as u32)),
        replace: asked.force,
        per_step: false,
    };
    let to = receivers(call, &job, asked.verbose)?;
    let wanted = broadcast::wanted(to, true, Some(place), asked.time_ms);
    match call.controller.broadcast(&file, wanted) {
        Ok(BroadcastResult { failed: None, nodes, lacking, size, .. }) => {
            if asked.verbose > 1 {
                call.say(&format!("sbcast: debug:  {size} bytes, lacking on {lacking} of {nodes} nodes"));
            }
            Ok(())
        }
        Ok(BroadcastResult { failed: Some((nodes, error)), .. }) => {
            for node in nodes {
                call.complain(&broadcast::problem(&(vec![node], error)));
            }
            Err(Fail(u8::try_from(error).ok().filter(|code| *code != 0).unwrap_or(1)))
        }
        Err(ClientError::Unreadable(e)) => call.fail(&format!("Can't read `{}`: {e}", asked.source)),
        Err(e) => lookup_error(call, &job, &error_text(&e)),
    }
}

/// Returns the text of an error; a missing step has the text that Slurm has for it.
fn error_text(error: &ClientError) -> String {
    match error {
        ClientError::Refused(Refusal::InvalidStepId) => "Invalid job id specified".to_owned(),
        ClientError::Refused(Refusal::NotRunning) => ENDED.to_owned(),
        other => other.to_string(),
    }
}

const ENDED: &str = "Job/step already completing or completed";

fn lookup_error<T>(call: &mut Call<'_>, job: &str, why: &str) -> Result<T, Fail> {
    call.complain(&format!("Slurm job {job} lookup error: {why}"));
    Err(Fail(NOT_THERE))
}

/// Reads options, then variables; prints the settings with `-v`.
fn asked(call: &mut Call<'_>, given: &Arguments) -> Result<BroadcastRequest, Fail> {
    let value = |call: &Call<'_>, long: &str, variable: &str| {
        given.last(long).map(str::to_owned).or_else(|| call.variable(variable))
    };
    let [source, dest] = given.operands.as_slice() else {
        call.say(&format!(
            "Need two file names, have {} names\nTry \"sbcast --help\" for more information",
            given.operands.len()
        ));
        return Err(Fail(1));
    };
    let compress = value(call, "compress", "SBCAST_COMPRESS").unwrap_or_default();
    let lz4 = given.has("compress") && compress.is_empty() || compress.eq_ignore_ascii_case("lz4");
    if !(lz4 || matches!(compress.to_ascii_lowercase().as_str(), "" | "none")) {
        call.complain(&format!("Compression type '{compress}' unknown, disabling compression support."));
    }
    libraries(call, given)?;
    let mut number = |long: &str, variable: &str| match value(call, long, variable) {
        None => Ok(0),
        Some(text) => match text.parse::<u64>() {
            Ok(number) => Ok(number),
            Err(_) => call.fail(&format!("Invalid {long} specification: {text}: use a whole number")),
        },
    };
    let (fanout, seconds) = (number("fanout", "SBCAST_FANOUT")?, number("timeout", "SBCAST_TIMEOUT")?);
    let block = value(call, "size", "SBCAST_SIZE").map_or(BLOCK_BYTES, |text| {
        bytes(&text).unwrap_or_else(|| {
            call.say("size specification is invalid, ignored");
            0
        })
    });
    if dest.ends_with('/') {
        return call.fail("Target filename cannot be a directory.");
    }
    let asked = BroadcastRequest {
        force: given.has("force") || call.variable("SBCAST_FORCE").is_some(),
        preserve: given.has("preserve") || call.variable("SBCAST_PRESERVE").is_some(),
        time_ms: Some(seconds.saturating_mul(1000)).filter(|ms| *ms > 0),
        verbose: given.options.iter().filter(|option| option.name == "verbose").count(),
        source: source.clone(),
        dest: std::path::absolute(dest).unwrap_or_else(|_| dest.into()),
    };
    if asked.verbose > 0 {
        let exclude = value(call, "exclude", "SBCAST_EXCLUDE").unwrap_or_else(|| "(null)".to_owned());
        let rule = "-".repeat(29);
        let shown = [
            rule.clone(),
            format!("block_size = {block}"),
            format!("compress   = {}", u8::from(lz4)),
            format!("exclude    = {exclude}"),
            format!("force      = {}", asked.force),
            format!("fanout     = {fanout}"),
            format!("preserve   = {}", asked.preserve),
            "send_libs  = false".to_owned(),
            format!("timeout    = {}", seconds.saturating_mul(1000)),
            format!("verbose    = {}", asked.verbose),
            format!("source     = {source}"),
            format!("dest       = {}", asked.dest.display()),
            rule,
        ];
        tell(call, &shown);
    }
    Ok(asked)
}

fn tell(call: &mut Call<'_>, lines: &[String]) {
    for line in lines {
        call.say(&format!("sbcast: {line}"));
    }
}

/// Refuses `--send-libs`: Squall sends no libraries.
fn libraries(call: &mut Call<'_>, given: &Arguments) -> Result<(), Fail> {
    let (option, value) = match given.options.iter().rev().find(|option| option.name == "send-libs") {
        Some(option) => ("--send-libs", option.value.clone().unwrap_or_else(|| "yes".to_owned())),
        None => ("SBCAST_SEND_LIBS", call.variable("SBCAST_SEND_LIBS").unwrap_or_else(|| "no".to_owned())),
    };
    match value.to_ascii_lowercase().as_str() {
        "no" | "n" => Ok(()),
        "yes" | "y" => {
            call.fail(&format!("{option}: libraries are not sent: send each with sbcast, and set LD_LIBRARY_PATH"))
        }
        _ => {
            call.complain(&format!("Ignoring unrecognized {option} value '{value}'"));
            Ok(())
        }
    }
}

/// Parses a number of bytes: `512`, `64k`, `8M`.
fn bytes(text: &str) -> Option<u64> {
    let (digits, factor) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1 << 10),
        (at, 'm' | 'M') => (&text[..at], 1 << 20),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Opens the file to send.
fn open(call: &mut Call<'_>, asked: &BroadcastRequest) -> Result<(File, Metadata), Fail> {
    let source = &asked.source;
    let opened = match File::open(source).and_then(|file| file.metadata().map(|meta| (file, meta))) {
        Ok((file, meta)) if meta.is_file() => Ok((file, meta)),
        Ok(_) => Err(format!("Can't mmap file `{source}`, No such device.")),
        Err(e) => {
            Err(format!("Can't open `{source}`: {}", e.to_string().split(" (os error").next().unwrap_or_default()))
        }
    };
    let (file, meta) = match opened {
        Ok(opened) => opened,
        Err(why) => {
            call.complain(&why);
            return Err(Fail(NOT_THERE));
        }
    };
    if asked.verbose > 0 {
        let clock = call.clock(call.now);
        let time = |seconds: i64| {
            let at = Time(u64::try_from(seconds).unwrap_or_default() * 1_000_000);
            clock.local(at).strftime("%a %b %d %H:%M:%S %Y").to_string()
        };
        let shown = [
            format!("modes    = {:o}", meta.mode()),
            format!("uid      = {}", meta.uid()),
            format!("gid      = {}", meta.gid()),
            format!("atime    = {}", time(meta.atime())),
            format!("mtime    = {}", time(meta.mtime())),
            format!("ctime    = {}", time(meta.ctime())),
            format!("size     = {}", meta.size()),
        ];
        tell(call, &shown);
    }
    if meta.size() == 0 {
        call.complain(&format!("Warning: file `{source}` is empty."));
    }
    Ok((file, meta))
}

/// Returns the jobs or the step that `JOB[+OFFSET][.STEP]` names. Without an offset, a heterogeneous job stands for all
/// of its components.
fn receivers(call: &mut Call<'_>, job: &str, verbose: usize) -> Result<BroadcastTo, Fail> {
    const UNKNOWN: &str = "Invalid job id specified";
    let Some(Target { job: named, step, .. }) = target(job) else { return lookup_error(call, job, UNKNOWN) };
    // A job without components is its own component 0.
    let (named, id, whole) = match named {
        JobRef::Job(id) if verbose == 0 && step.is_some() => return Ok(BroadcastTo::Job { jobs: vec![id], step }),
        JobRef::Job(id) => (JobRef::Job(id), Some(id), true),
        JobRef::Component(id, 0) => (JobRef::Job(id), Some(id), false),
        other => (other, None, false),
    };
    let selection = JobSelection { ids: vec![named], ..JobSelection::default() };
    let page = match call.controller.jobs(selection, true, step.is_some()) {
        Ok(page) => page,
        Err(e) => return lookup_error(call, job, &e.to_string()),
    };
    // If an array is named as a whole, this means the task that has the array's id.
    let meant = |of: JobId, het: bool| id.is_none_or(|id| of == id || whole && het);
    let jobs: Vec<_> = page.jobs.iter().filter(|info| meant(info.id, info.het.is_some())).collect();
    match jobs.first().map(|info| info.state) {
        None => return lookup_error(call, job, UNKNOWN),
        Some(JobState::Pending) => return lookup_error(call, job, "Job is pending execution"),
        Some(JobState::Completing(_) | JobState::Ended(_)) => return lookup_error(call, job, ENDED),
        Some(_) => {}
    }
    if verbose > 0 {
        let runs = jobs.iter().filter_map(|info| info.run.as_deref());
        let lists = runs.map(|run| match step {
            Some(step) => run.steps.iter().find(|one| one.step == step).map_or("", |one| one.nodes.as_str()),
            None => run.nodes.as_str(),
        });
        let names: Vec<String> = lists.flat_map(|list| hostlist::expand(list).unwrap_or_default()).collect();
        if names.is_empty() {
            return lookup_error(call, job, UNKNOWN);
        }
        let shown = [format!("jobid      = {job}"), format!("node_list  = {}", hostlist::compress(names))];
        tell(call, &shown);
    }
    Ok(BroadcastTo::Job { jobs: jobs.iter().map(|info| info.id).collect(), step })
}

#[cfg(test)]
mod tests {
    use super::{bytes, sbcast};
    use crate::command::listing::fake::run;

    #[test]
    fn what_fails_and_how() {
        let seen = |args: &[&str]| {
            let seen = run("sbcast", sbcast, args);
            (seen.code, seen.err)
        };
        let error = |code, text: &str| (code, format!("sbcast: error: {text}\n"));
        assert!(seen(&["a"]).1.starts_with("Need two file names, have 1 names\n"));
        assert!(seen(&["/dev/null", "b"]).1.contains("Need a job id"));
        assert_eq!(
            seen(&["-j1", "/nonexistent", "b"]),
            error(255, "Can't open `/nonexistent`: No such file or directory")
        );
        assert_eq!(seen(&["-j1", "/", "b"]), error(255, "Can't mmap file `/`, No such device."));
        assert_eq!(seen(&["-j1", "a", "b/"]), error(1, "Target filename cannot be a directory."));
    }

    /// Fault D12: options of sbcast take effect or are refused.
    #[test]
    fn d12_options_of_sbcast_are_done_or_refused() {
        assert_eq!(
            ["512", "4k", "8M", "x", "-1", ""].map(bytes),
            [Some(512), Some(4096), Some(8 << 20), None, None, None]
        );
        let first = |args: &[&str]| {
            let seen = run("sbcast", sbcast, args);
            (seen.code, seen.err.lines().next().unwrap_or_default().to_owned())
        };
        let error = |code, text: &str| (code, format!("sbcast: error: {text}"));
        let exe = "/proc/self/exe";
        for option in ["--send-libs", "--send-libs=yes"] {
            let refused = "--send-libs: libraries are not sent: send each with sbcast, and set LD_LIBRARY_PATH";
            assert_eq!(first(&["-j1", option, exe, "b"]), error(1, refused));
        }
        let unknown = "Ignoring unrecognized --send-libs value 'x'";
        assert_eq!(first(&["-j77", "--send-libs=x", exe, "b"]), error(255, unknown));
        let unknown = "Compression type 'foo' unknown, disabling compression support.";
        assert_eq!(first(&["-j77", "--compress=foo", exe, "b"]), error(255, unknown));
        assert_eq!(first(&["-j77", "-s", "foo", exe, "b"]), (255, "size specification is invalid, ignored".into()));
        for taken in ["-C", "--compress=lz4", "--compress=none", "-F4", "-s1k", "-t5", "-p", "--exclude=/lib"] {
            assert_eq!(
                first(&["-j77", taken, exe, "b"]),
                error(255, "Slurm job 77 lookup error: Invalid job id specified")
            );
        }
        assert_eq!(first(&["-jx", exe, "b"]), error(255, "Slurm job x lookup error: Invalid job id specified"));
        assert_eq!(first(&["-j77", "-Fx", exe, "b"]), error(1, "Invalid fanout specification: x: use a whole number"));
    }
}
