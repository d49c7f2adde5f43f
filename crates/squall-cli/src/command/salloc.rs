//! salloc: requests an allocation and runs a command in it, on this host.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, getpgrp, kill_process_group};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};
use squall_engine::environment::{is_output, job_env};
use squall_host::sys::command::unblock_signals;
use squall_host::sys::signals::SignalFd;
use squall_model::id::JobId;
use squall_model::job::{EndState, ExitCode as JobExit, Outcome};
use squall_model::step::JobFacts;
use squall_model::wire::client::{Answer, Request};

use crate::capture::{self, Vars};
use crate::command::allocation::{self, Allocation, AllocationRequest, ready};
use crate::command::plugins::Beside;
use crate::command::submission;
use crate::contact::{Search, may_pass};
use squall_client::{Client, ClientError};
use squall_text::format::harmless_lines;
use squall_text::options::submit::SubmitOptions;
use squall_text::options::{Stop, Tool, collect};

const SALLOC: Tool = Tool::Salloc;

/// Length of the wait for an allocation after which the terminal's bell rings when the allocation is granted.
const BELL_AFTER: Duration = Duration::from_secs(10);

const SIGNALS: [i32; 10] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGCHLD,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// Runs salloc.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    submission::ended(SALLOC, start(args))
}

fn start(args: &[OsString]) -> Result<u8, Stop> {
    let mut vars: Vars = std::env::vars_os().collect();
    let mut plugins = Beside::start(SALLOC)?;
    let (mut all, command) = gather(args, &vars)?;
    plugins.give(&mut all, &mut vars)?;
    let specs = all.iter_mut().map(|asked| std::mem::take(&mut asked.spec)).collect();
    let asked = all.swap_remove(0);
    submission::become_owner(asked.run_as)?;
    submission::known_cluster(SALLOC, asked.clusters.as_deref())?;
    let terminal = Terminal::open(asked.alloc.no_shell)?;
    let signals = SignalFd::new(&SIGNALS).map_err(|e| Stop::bad(format!("signalfd: {e}")))?;
    let ask = AllocationRequest {
        tool: SALLOC,
        specs,
        env: capture::export(SALLOC, &vars, None)?.env,
        immediate_s: asked.immediate_s,
        quiet: asked.quiet,
        step: None,
    };
    let begun = Instant::now();
    let Allocation { client, facts, .. } = allocation::allocate(ask, &signals)?;
    if !asked.quiet {
        eprintln!("salloc: Granted job allocation {}", facts.key.job);
    }
    if asked.alloc.bell.unwrap_or(begun.elapsed() > BELL_AFTER) && isatty(std::io::stdout()) {
        // A terminal that was closed is no error.
        drop(std::io::stdout().write_all(b"\x07"));
    }
    if asked.alloc.no_shell {
        return Ok(0);
    }
    Hold { job: facts.key.job, asked, terminal, signals, client: Some(client), search: None, revoked: false }
        .run(&command, &vars, &facts)
}

/// Builds requests from variables and command line, one for each component, and the command to run.
fn gather(args: &[OsString], vars: &Vars) -> Result<(Vec<SubmitOptions>, Vec<OsString>), Stop> {
    let mut lines = collect::lines(SALLOC, args)?;
    let operands = lines.last().map_or(&[][..], |line| line.operands);
    let command = if operands.is_empty() { vec![shell(vars)] } else { operands.to_vec() };
    let mut all = Vec::new();
    for at in 0..lines.len() {
        if let Some(before) = at.checked_sub(1) {
            let carried = collect::carried(&lines[before].options);
            lines[at].options.splice(0..0, carried);
        }
        let mut asked = SubmitOptions::new(SALLOC);
        submission::apply(&mut asked, SALLOC, &lines[at], vars)?;
        submission::place(&mut asked, SALLOC, args)?;
        if asked.spec.name.is_empty() {
            // As in Slurm, whatever the manual says of the command's name.
            if asked.alloc.no_shell { "no-shell" } else { "interactive" }.clone_into(&mut asked.spec.name);
        }
        if asked.alloc.no_shell {
            asked.spec.options.no_shell = true;
        }
        asked.spec.command = command.iter().map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ");
        all.push(asked);
    }
    Ok((all, command))
}

/// Returns the user's shell: `SHELL`, or `/bin/sh`.
fn shell(vars: &Vars) -> OsString {
    let named = vars.iter().find(|(name, value)| name == "SHELL" && !value.is_empty());
    named.map_or_else(|| OsString::from("/bin/sh"), |(_, value)| value.clone())
}

/// The terminal of an interactive session; its settings are restored at the end.
struct Terminal {
    before: Option<Termios>,
}

impl Terminal {
    fn open(no_shell: bool) -> Result<Self, Stop> {
        let stdin = rustix::stdio::stdin();
        let Ok(attributes) = tcgetattr(stdin) else { return Ok(Self { before: None }) };
        match tcgetpgrp(stdin) {
            Err(_) if !no_shell => Err(Stop::bad("no controlling terminal: please set --no-shell")),
            Ok(group) if !no_shell && group == getpgrp() => Ok(Self { before: Some(attributes) }),
            _ => Ok(Self { before: None }),
        }
    }

    /// Puts a process group into the foreground.
    fn give_to(&self, group: Pid) {
        if self.before.is_some() {
            // Fails without a terminal; then there is no foreground.
            let _ = tcsetpgrp(rustix::stdio::stdin(), group);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetpgrp(rustix::stdio::stdin(), getpgrp());
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, before);
        }
    }
}

/// Returns the path of a command, as Slurm finds it: an absolute path as it is, one that begins with a dot from the
/// working directory, any other name in PATH and then in the working directory. None: there is no such program.
fn program_of(name: &OsStr, vars: &Vars, dir: &Path) -> Option<PathBuf> {
    let path = vars.iter().find(|(var, _)| var == "PATH").map_or(OsStr::new(""), |(_, value)| value);
    let searched = if name.as_bytes().starts_with(b".") { OsStr::new("") } else { path };
    std::env::split_paths(searched)
        .filter(|folder| !folder.as_os_str().is_empty())
        .chain([dir.to_owned()])
        .map(|folder| dir.join(folder).join(name))
        .find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok())
}

/// State of salloc while the command runs in the allocation.
struct Hold {
    job: JobId,
    asked: SubmitOptions,
    terminal: Terminal,
    signals: SignalFd,
    client: Option<Client>,
    /// Attempt in progress to reconnect to the controller. None: salloc is connected, or the attempt has failed.
    search: Option<Search>,
    revoked: bool,
}

impl Hold {
    fn say(&self, text: &str) {
        if !self.asked.quiet {
            eprintln!("salloc: {}", harmless_lines(text));
        }
    }

    fn run(mut self, command: &[OsString], vars: &Vars, facts: &JobFacts) -> Result<u8, Stop> {
        let status = match self.spawn(command, vars, facts) {
            Ok(child) => self.wait_for(child),
            // Said before the allocation is given back, which can take a while.
            Err(stop) => {
                eprint!("{}", stop.complaint(SALLOC));
                Err(Stop::Silent(stop.exit()))
            }
        };
        let exit = match &status {
            Ok(status) => {
                JobExit { code: status.code().unwrap_or(0) as u8, signal: status.signal().unwrap_or(0) as u8 }
            }
            Err(_) => JobExit { code: 1, signal: 0 },
        };
        if !self.revoked {
            self.say(&format!("Relinquishing job allocation {}", self.job));
            if !allocation::release(SALLOC, self.client.take(), self.job, exit) {
                eprintln!("salloc: error: the controller does not answer: job {} ends when it does", self.job);
            }
        }
        status.map(code_of)
    }

    fn spawn(&self, command: &[OsString], vars: &Vars, facts: &JobFacts) -> Result<Child, Stop> {
        let name = command[0].to_string_lossy();
        let path = program_of(&command[0], vars, Path::new(&facts.spec.work_dir))
            .ok_or_else(|| Stop::bad(format!("_fork_command: Unable to find command \"{name}\"")))?;
        let mut program = Command::new(&path);
        program.arg0(&command[0]).args(&command[1..]).env_clear();
        program.current_dir(&facts.spec.work_dir).process_group(0);
        // Variables set by an outer job must not mix with those of this job.
        let own = vars.iter().filter(|(name, _)| name.to_str().is_none_or(|name| !is_output(name)));
        program.envs(own.map(|(name, value)| (name.as_os_str(), value.as_os_str())));
        program.envs(job_env(facts));
        let failed = |e| Stop::bad(format!("_fork_command: Unable to exec command \"{}\": {e}", path.display()));
        let child = unblock_signals(&mut program).spawn().map_err(failed)?;
        if let Some(group) = group_of(&child) {
            self.terminal.give_to(group);
            if self.terminal.before.is_some() {
                // The command may have stopped because it was not in the foreground yet.
                let _ = kill_process_group(group, Signal::CONT);
            }
        }
        Ok(child)
    }

    fn wait_for(&mut self, mut child: Child) -> Result<ExitStatus, Stop> {
        loop {
            if let Some(status) = child.try_wait().map_err(|e| Stop::bad(format!("waitpid: {e}")))? {
                return Ok(status);
            }
            let mut sources = vec![(self.signals.as_fd(), PollFlags::IN)];
            if let Some(client) = &self.client {
                sources.push((client.stream().as_fd(), PollFlags::IN));
            } else if let Some(search) = &self.search {
                sources.push((search.as_fd(), PollFlags::IN));
            }
            let ready = ready(&sources, None);
            while let Some(signal) = self.signals.take() {
                pass_on(&child, signal);
            }
            if ready.get(1) == Some(&true) {
                if self.client.is_some() { self.hear(&child) } else { self.returned() }
            }
        }
    }

    fn hear(&mut self, child: &Child) {
        let Some(client) = &mut self.client else { return };
        match client.receive() {
            Ok(Answer::JobDone { outcome, .. }) => self.revoke(child, Some(&outcome)),
            Ok(Answer::Notice(text)) => eprintln!("salloc: {}", harmless_lines(&text)),
            Ok(_) => {}
            Err(error) if may_pass(&error) => {
                self.client = None;
                self.search = Search::begin("salloc").ok();
            }
            Err(ClientError::Refused(_)) => self.revoke(child, None),
            Err(_) => self.client = None,
        }
    }

    fn returned(&mut self) {
        let Some(search) = self.search.take() else { return };
        let Ok(mut client) = search.found() else {
            // Still no controller: the command goes on, and the release at its end tries again.
            return;
        };
        if client.send(&Request::Attach { job: self.job }).is_ok() {
            self.client = Some(client);
        } else {
            self.search = Search::begin("salloc").ok();
        }
    }

    /// Handles the end of the allocation before the command's. The command is left alone unless `--kill-command` is
    /// given.
    fn revoke(&mut self, child: &Child, outcome: Option<&Outcome>) {
        if std::mem::replace(&mut self.revoked, true) {
            return;
        }
        self.client = None;
        if outcome.is_some_and(|outcome| outcome.state == EndState::Timeout) {
            self.say(&format!("Job {} has exceeded its time limit and its allocation has been revoked.", self.job));
        } else {
            self.say(&format!("Job allocation {} has been revoked.", self.job));
        }
        let front = tcgetpgrp(rustix::stdio::stdin()).ok().filter(|_| self.terminal.before.is_some());
        if let Some(front) = front
            && Some(front) != group_of(child)
            && front != getpgrp()
        {
            let _ = kill_process_group(front, Signal::HUP);
        }
        if let Some(signal) = self.asked.alloc.kill_command {
            signal_group(child, signal);
        }
    }
}

/// Forwards signals to the command. Keys of an interactive terminal reach the command directly.
fn pass_on(child: &Child, signal: i32) {
    let forwarded = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];
    if forwarded.contains(&signal) {
        signal_group(child, signal);
    }
}

fn group_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(child.id() as i32)
}

fn signal_group(child: &Child, signal: i32) {
    if let (Some(group), Some(signal)) = (group_of(child), Signal::from_named_raw(signal)) {
        // Fails if the command has just ended.
        let _ = kill_process_group(group, signal);
    }
}

/// Returns salloc's exit status for a command that ended with `status`. Signals with which users end a session count as
/// success.
fn code_of(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(libc::SIGHUP | libc::SIGINT | libc::SIGQUIT | libc::SIGKILL)) => 0,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::{code_of, gather};

    #[test]
    fn the_command_decides_the_exit_status() {
        for (raw, code) in [(0, 0), (9 << 8, 9), (2, 0), (9, 0), (15, 1), (11, 1)] {
            assert_eq!(code_of(ExitStatus::from_raw(raw)), code, "{raw:#x}");
        }
    }

    #[test]
    fn names_and_commands() {
        let vars = vec![("SHELL".into(), "/bin/zsh".into())];
        let case = |args: &[&str]| {
            let args: Vec<_> = args.iter().map(Into::into).collect();
            let (mut all, command) = gather(&args, &vars).expect("it is well formed");
            (all.swap_remove(0).spec.name, command.join(" ".as_ref()).into_string().expect("text"))
        };
        assert_eq!(case(&["-n2"]), ("interactive".into(), "/bin/zsh".into()));
        assert_eq!(
            case(&["-n2", "/usr/bin/mpirun", "-n", "2", "x"]),
            ("interactive".into(), "/usr/bin/mpirun -n 2 x".into())
        );
        assert_eq!(case(&["--no-shell"]).0, "no-shell");
        assert_eq!(case(&["-J", "me", "true"]), ("me".into(), "true".into()));
    }
}
