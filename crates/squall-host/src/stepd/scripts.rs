//! Scripts that run as the user around each task: the site's and the user's prolog before it, their epilogs after it.
//!
//! The step daemon never waits for them. Prologs run in the task's own process (`squall step --task`), which then
//! executes the task's program. Epilogs run in a process of their own (`squall step --epilog`), and the task counts as
//! ended when that ends.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};
use squall_model::job::options::TaskScripts;
use squall_model::step::StepLaunch;

use super::environment::Environment;
use super::files::{null, reason};
use super::processes::again_while_busy;
use super::search::{NotFound, find_program};
use crate::sys::command::unblock_signals;
use crate::sys::spawn::{Spawn, SpawnError};

/// Time limit of the user's epilog.
const EPILOG: Duration = Duration::from_secs(5);

/// Interval of checks whether an epilog has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Environment variable that tells a script in which context it runs.
const CONTEXT: &str = "SLURM_SCRIPT_CONTEXT";

type Variables = BTreeMap<OsString, OsString>;

/// The scripts to run around the tasks of a step.
#[derive(Clone, Debug)]
pub(super) struct Scripts {
    site: TaskScripts,
    own: TaskScripts,
    /// Path of this program, which runs the scripts.
    squall: CString,
}

/// The command that runs the epilogs of a task.
#[derive(Clone, Debug)]
pub(super) struct Epilog {
    squall: CString,
    argv: Vec<CString>,
    env: Environment,
    dir: CString,
}

impl Scripts {
    /// Returns the scripts of a launch; None: there are none.
    pub(super) fn of(launch: &StepLaunch) -> Option<Self> {
        let (site, own) = (launch.site.clone(), launch.own_scripts());
        if site.is_empty() && own.is_empty() {
            return None;
        }
        let squall = std::env::current_exe().ok()?.into_os_string().into_vec();
        // After an upgrade, the new file has the same path.
        let squall = squall.strip_suffix(b" (deleted)").unwrap_or(&squall);
        Some(Self { site, own, squall: CString::new(squall).ok()? })
    }

    /// Returns the command that runs the prologs and then `argv`. `file`: the file to execute; None: it is searched by
    /// name after the prologs, as these may change the search path.
    pub(super) fn before(&self, argv: Vec<CString>, file: Option<CString>) -> (Vec<CString>, Option<CString>) {
        if argv.is_empty() || (self.site.prolog.is_empty() && self.own.prolog.is_empty()) {
            return (argv, None);
        }
        let mut all = command("--task", [&self.site.prolog, &self.own.prolog]);
        all.push(file.unwrap_or_default());
        all.extend(argv);
        (all, Some(self.squall.clone()))
    }

    /// Returns the command of a task's epilogs, with the task's environment. None: there are none.
    pub(super) fn after(&self, env: &Environment, dir: &CString) -> Option<Epilog> {
        if self.site.epilog.is_empty() && self.own.epilog.is_empty() {
            return None;
        }
        let argv = command("--epilog", [&self.own.epilog, &self.site.epilog]);
        Some(Epilog { squall: self.squall.clone(), argv, env: env.clone(), dir: dir.clone() })
    }
}

/// Returns this program's arguments to run the scripts at `paths`.
fn command(what: &str, paths: [&str; 2]) -> Vec<CString> {
    let words = ["squall", "step", what].into_iter().chain(paths);
    // A path with a NUL byte can't exist.
    words.map(|word| CString::new(word).unwrap_or_default()).collect()
}

impl Epilog {
    /// Starts the epilogs for the task that had the process id `task`; returns their process id.
    pub(super) fn start(mut self, task: u32) -> io::Result<u32> {
        self.env.set("SLURM_TASK_PID", &task.to_string());
        let null = null()?;
        let spawn = Spawn {
            env: self.env.entries(),
            dir: Some(&self.dir),
            ..Spawn::new(&self.squall, &self.argv, [null.as_fd(), null.as_fd(), null.as_fd()])
        };
        spawn.start().map(|child| child.pid).map_err(|e| e.error)
    }
}

/// Carries out `squall step --task SITE OWN FILE NAME ARG...`: runs the prologs, then executes the task. Returns the
/// exit status if that fails.
pub fn run_task(args: &[OsString]) -> u8 {
    let [site, own, file, name, rest @ ..] = args else { return usage() };
    let mut env: Variables = std::env::vars_os().collect();
    for (path, what, option) in [(site, "slurm task_prolog", "TaskProlog"), (own, "user task_prolog", "--task-prolog")]
    {
        let status = if path.is_empty() { 0 } else { prolog(what, path, &mut env) };
        if status != 0 {
            complain(&format!("{option} failed status={status}"));
            return status;
        }
    }
    become_task(file, name, rest, &env).unwrap_or_else(|failure| {
        complain(&failure.error);
        failure.code
    })
}

/// Carries out `squall step --epilog OWN SITE`: runs the epilogs; returns the exit status of the first that failed.
pub fn run_epilogs(args: &[OsString]) -> u8 {
    let [own, site] = args else { return usage() };
    let env: Variables = std::env::vars_os().collect();
    let run = |path: &OsString, limit: Option<Duration>| {
        if path.is_empty() {
            return ExitStatus::default();
        }
        let status = script(path, "epilog_task", &env).spawn().and_then(|child| wait(child, limit));
        status.unwrap_or_else(|e| ExitStatus::from_raw((e.raw_os_error().unwrap_or(1) & 0xff) << 8))
    };
    let status = run(own, Some(EPILOG));
    let of_site = run(site, None);
    let status = if status.success() { of_site } else { status };
    if let Some(signal) = status.signal().and_then(Signal::from_named_raw) {
        // The step daemon learns how the epilog ended from how this process does.
        let _ = kill_process(getpid(), signal);
    }
    code(status).unwrap_or(1)
}

fn usage() -> u8 {
    complain("squall step --task and --epilog are called by step daemons only");
    2
}

fn complain(text: &str) {
    eprintln!("slurmstepd: error: {text}");
}

/// Makes the command of a script, in a process group of its own, so that all its processes can be killed.
fn script(path: &OsStr, context: &str, env: &Variables) -> Command {
    let mut script = Command::new(path);
    script.env_clear();
    script.envs(env).env(CONTEXT, context).stdin(Stdio::null()).process_group(0);
    // The standard library's way to start programs would have them ignore a signal.
    unblock_signals(&mut script);
    script
}

/// Runs a prolog, and applies its output to the environment; returns its exit status.
fn prolog(what: &str, path: &OsStr, env: &mut Variables) -> u8 {
    let mut output = Vec::new();
    let mut run = || {
        let mut child = script(path, "prolog_task", env).stdout(Stdio::piped()).spawn()?;
        if let Some(mut stdout) = child.stdout.take() {
            stdout.read_to_end(&mut output)?;
        }
        wait(child, None)
    };
    match run() {
        Err(e) => {
            let path = Path::new(path).display();
            complain(&format!("run_command: {what} can not be executed ({path}) {}", reason(&e)));
            complain(&format!("{what} did not exit normally. reason: Run command failed - configuration error"));
            1
        }
        Ok(status) => {
            let Some(code) = code(status) else {
                complain(&format!("{what} did not exit normally. reason: {}", String::from_utf8_lossy(&output)));
                return 1;
            };
            // The reader of the task's output may have ended.
            drop(obey(&output, env, &mut io::stdout()));
            code
        }
    }
}

fn code(status: ExitStatus) -> Option<u8> {
    status.code().map(|code| code as u8)
}

/// Waits for a script, then kills all processes that it has left. If it still runs after `limit`, the script itself is
/// killed.
fn wait(mut child: Child, limit: Option<Duration>) -> io::Result<ExitStatus> {
    let group = Pid::from_raw(child.id() as i32);
    let end = || {
        if let Some(group) = group {
            // It may have ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
    };
    let until = limit.map(|limit| Instant::now() + limit);
    let status = loop {
        match until {
            None => break child.wait()?,
            Some(until) => match child.try_wait()? {
                Some(status) => break status,
                None if Instant::now() >= until => {
                    end();
                    break child.wait()?;
                }
                None => std::thread::sleep(LOOK),
            },
        }
    };
    end();
    Ok(status)
}

/// Carries out the lines of a prolog: `export NAME=VALUE`, `unset NAME`, `print TEXT`. Other lines are ignored.
fn obey(lines: &[u8], env: &mut Variables, out: &mut impl Write) -> io::Result<()> {
    for line in lines.split(|&b| b == b'\n').filter(|line| !line.contains(&0)) {
        let word = |name: &[u8]| line.strip_prefix(name).map(<[u8]>::trim_ascii_start);
        let text = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
        if let Some(rest) = word(b"print ") {
            out.write_all(rest)?;
            out.write_all(b"\n")?;
        } else if let Some(rest) = word(b"export ") {
            let Some(at) = rest.iter().position(|&b| b == b'=') else { continue };
            let name = rest[..at].trim_ascii_end();
            if !name.is_empty() {
                env.insert(text(name), text(&rest[at + 1..]));
            }
        } else if let Some(rest) = word(b"unset ") {
            env.remove(OsStr::from_bytes(rest.trim_ascii_end()));
        }
    }
    out.flush()
}

/// Replaces this process by the task's program. Returns only if that failed, with the reason.
fn become_task(file: &OsStr, name: &OsStr, args: &[OsString], env: &Variables) -> Result<u8, NotFound> {
    let text = |word: &OsStr| CString::new(word.as_bytes()).unwrap_or_default();
    let name_text = text(name);
    let file = if file.is_empty() {
        let path = env.get(OsStr::new("PATH")).cloned().unwrap_or_default();
        let here = std::env::current_dir().unwrap_or_default();
        find_program(&name_text, path.as_bytes(), &here)?
    } else {
        text(file)
    };
    let failed = again_while_busy(|| {
        let mut task = Command::new(OsStr::from_bytes(file.as_bytes()));
        let error = task.arg0(name).args(args).env_clear().envs(env).exec();
        Err::<u8, _>(SpawnError { call: "execve", error })
    });
    failed.map_err(|e| NotFound::of(&e, &name_text, &file))
}

#[cfg(test)]
mod tests {
    use super::{Variables, obey};

    #[test]
    fn what_a_prolog_says_is_done_and_the_rest_is_not() {
        let mut env: Variables = [("KEPT", "1"), ("GONE", "1")].map(|(k, v)| (k.into(), v.into())).into();
        let mut out = Vec::new();
        let lines = b"export A=b=c d\n  export NOT=1\nexport  SPACED =x\nexport =y\nexport NONE\nunset GONE \nunset\n\
                      print   hello you\nsomething else\nexport BAD=\0\nprint end";
        obey(lines, &mut env, &mut out).unwrap();
        let expected: Variables =
            [("A", "b=c d"), ("KEPT", "1"), ("SPACED", "x")].map(|(k, v)| (k.into(), v.into())).into();
        assert_eq!(env, expected);
        assert_eq!(out, b"hello you\nend\n");
    }
}
