//! `srun --async`: the command ends when its step exists; an srun in the background goes on with the step.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

use squall_host::sys::command::unblock_signals;
use squall_model::id::{JobId, StepNo};
use squall_model::step::Stream;
use squall_text::options::submit::SubmitOptions;
use squall_text::options::{Stop, collect};

use super::SRUN;
use super::streams::Route;
use crate::capture::Vars;

/// Variable of the srun in the background. Its tasks do not get it.
const BACKGROUND: &str = "SQUALL_SRUN_ASYNC";
/// Byte that the srun in the background sends when the step exists: no text of it has one.
const EXISTS: u8 = 0;
/// Name of the file of output, if no option names one.
const OUTPUT: &str = "slurm-%J.out";

/// Starts this srun again in the background, if `--async` is given, and waits until its step exists. Returns the exit
/// status. None: the option is not given, or this is the one in the background.
pub(super) fn begin(args: &[OsString], vars: &mut Vars) -> Result<Option<u8>, Stop> {
    let count = vars.len();
    vars.retain(|(name, _)| name != BACKGROUND);
    if vars.len() < count || !collect::line(SRUN, args)?.options.iter().any(|(option, _)| option.long == "async") {
        return Ok(None);
    }
    let failed = |e: std::io::Error| Stop::bad(format!("unable to start srun in the background: {e}"));
    let mut srun = Command::new(std::env::current_exe().map_err(failed)?);
    srun.arg0(SRUN.name()).args(args).env(BACKGROUND, "1").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = unblock_signals(&mut srun).spawn().map_err(failed)?;
    let mut said = Vec::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_until(EXISTS, &mut said).map_err(failed)?;
    }
    let exists = said.pop_if(|last| *last == EXISTS).is_some();
    // An error is ignored: no process reads the step's number, and the step exists all the same.
    drop(std::io::stdout().write_all(&said).and_then(|()| std::io::stdout().flush()));
    if exists {
        return Ok(Some(0));
    }
    let status = child.wait().map_err(failed)?;
    Ok(Some(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)) as u8))
}

/// Refuses what a step can't be without the srun that started it. `among`: it is one component of several.
pub(super) fn check(asked: &SubmitOptions, among: bool) -> Result<(), Stop> {
    let asynchronous = asked.run.asynchronous;
    let problem = match () {
        () if !asynchronous && asked.batch.parsable => "--parsable requires --async.",
        () if !asynchronous => return Ok(()),
        () if asked.run.pty => "--async and --pty are mutually exclusive.",
        () if asked.immediate_s.is_some() => "--immediate and --async are mutually exclusive.",
        () if asked.run.job.is_none() => "--async is only valid for steps submitted within an existing job allocation.",
        () if among => "--async is for steps of one component.",
        () => return Ok(()),
    };
    Err(Stop::bad(problem))
}

/// Replaces streams of srun, which has none in the background, by files.
pub(super) fn route(asked: &SubmitOptions, [input, output, error]: [&mut Route; 3], of_error: Option<&str>) {
    let is_own = |route: &Route| route.file.is_none() && matches!(route.stream, Stream::Client | Stream::ClientRank(_));
    if is_own(input) {
        *input = Route::of(Some("none"));
    }
    if is_own(output) {
        let folder = asked.spec.work_dir.replace('%', "%%");
        let file = if asked.on_line("chdir") { format!("{folder}/{OUTPUT}") } else { OUTPUT.to_owned() };
        *output = Route::of(Some(&file));
        *error = Route::of_error(of_error, output);
    }
    if is_own(error) {
        *error = Route::of_error(None, output);
    }
}

/// How the srun in the background says that its step exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parting {
    /// `--quiet`: it does not say which step it is.
    pub(crate) quiet: bool,
    /// `--parsable`: it says only that.
    pub(crate) parsable: bool,
}

impl Parting {
    /// Tells the waiting srun that the step exists, and leaves its terminal and its streams.
    pub(super) fn leave(self, job: JobId, step: StepNo) -> Result<(), Stop> {
        let text = match self {
            Self { quiet: true, .. } => String::new(),
            Self { parsable: true, .. } => format!("{job}.{step}\n"),
            Self { .. } => format!("Submitted step {job}.{step}\n"),
        };
        let mut bytes = text.into_bytes();
        bytes.push(EXISTS);
        let mut out = std::io::stdout();
        let null = File::options().read(true).write(true).open("/dev/null");
        let left = out.write_all(&bytes).and_then(|()| out.flush()).and(null).and_then(|null| {
            // An error is ignored: it leads a session already.
            let _ = rustix::process::setsid();
            Ok(rustix::stdio::dup2_stdout(&null).and_then(|()| rustix::stdio::dup2_stderr(&null))?)
        });
        left.map_err(|e| Stop::bad(format!("unable to go on in the background: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use squall_model::step::Stream;
    use squall_text::options::submit::SubmitOptions;

    use super::{SRUN, check, route};
    use crate::command::srun::streams::Route;

    /// Where the streams of a step go that has these options.
    fn routed(output: Option<&str>, error: Option<&str>, input: Option<&str>) -> [Route; 3] {
        let (mut stdin, mut stdout) = (Route::of(input), Route::of(output));
        let mut stderr = Route::of_error(error, &stdout);
        route(&SubmitOptions::new(SRUN), [&mut stdin, &mut stdout, &mut stderr], error);
        [stdin, stdout, stderr]
    }

    #[test]
    fn streams_of_srun_are_files() {
        let file = |name: &str| Route { stream: Stream::Client, file: Some(name.to_owned()) };
        let none = Route { stream: Stream::Null, file: None };
        let own = file("slurm-%J.out");
        assert_eq!(routed(None, None, None), [none.clone(), own.clone(), own.clone()]);
        assert_eq!(routed(Some("all"), None, Some("all")), [none.clone(), own.clone(), own.clone()]);
        assert_eq!(routed(Some("3"), Some("2"), Some("1")), [none.clone(), own.clone(), own.clone()]);
        assert_eq!(routed(None, Some("err"), Some("in")), [file("in"), own, file("err")]);
        assert_eq!(routed(Some("out"), None, None), [none.clone(), file("out"), file("out")]);
        assert_eq!(routed(Some("none"), None, None), [none.clone(), none.clone(), none]);
    }

    #[test]
    fn what_needs_srun_is_refused() {
        let said = |change: fn(&mut SubmitOptions)| {
            let mut asked = SubmitOptions::new(SRUN);
            (asked.run.asynchronous, asked.run.job) = (true, Some(7));
            change(&mut asked);
            check(&asked, false).map_err(|stop| stop.complaint(SRUN))
        };
        assert_eq!(said(|_| ()), Ok(()));
        for (change, words) in [
            ((|asked| asked.run.pty = true) as fn(&mut SubmitOptions), "--async and --pty are mutually exclusive"),
            (|asked| asked.immediate_s = Some(1), "--immediate and --async"),
            (|asked| asked.run.job = None, "only valid for steps submitted within an existing job"),
            (|asked| (asked.run.asynchronous, asked.batch.parsable) = (false, true), "--parsable requires --async"),
        ] {
            let heard = said(change).unwrap_err();
            assert!(heard.contains(words), "{heard}");
        }
    }
}
