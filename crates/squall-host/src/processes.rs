//! Finds processes of jobs in /proc: tasks by the mark in their environment, step daemons by their command line.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use squall_model::id::StepKey;

use crate::spool::parse_key;
use crate::sys::host::tick_us;
use crate::sys::pidfd;
use squall_files::place::TASK_MARK;

const SIGKILL: i32 = 9;
/// The kernel's flag of a task that exits (include/linux/sched.h).
const PF_EXITING: u64 = 0x4;
/// The kernel's flag of a task that a signal ends (include/linux/sched.h).
const PF_SIGNALED: u64 = 0x400;

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// State of the process, as one letter: `R`, `S`, `D`, `Z` …
    pub state: u8,
    /// Process id of the parent.
    pub parent: u32,
    /// Start time of the process, in the kernel's ticks since boot.
    pub start: u64,
    /// Wait status of a process that has ended, if this process may read it; otherwise 0.
    pub status: i32,
}

impl Stat {
    /// Reads the entry of a process. None: there is no such process.
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses the text of `/proc/PID/stat`; None: it is malformed. The name in field 2 may contain anything, so fields
    /// are counted from its last parenthesis.
    fn parse(text: &[u8]) -> Option<Self> {
        let at = text.iter().rposition(|&b| b == b')')?;
        let rest = std::str::from_utf8(&text[at + 1..]).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let state = *fields.first()?.as_bytes().first()?;
        let status = fields.get(49).and_then(|field| field.parse().ok()).unwrap_or(0);
        Some(Self { state, parent: fields.get(1)?.parse().ok()?, start: fields.get(19)?.parse().ok()?, status })
    }

    /// Whether the process has ended and only waits to be reaped.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// Returns the id of a process in the innermost of its process id namespaces (pid_namespaces(7)). None: it has one here only,
/// or there is no such process.
pub(crate) fn inner_pid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_ascii_whitespace().skip(1);
    ids.last()?.parse().ok()
}

/// Whether a process has a handler for a signal (proc_pid_status(5), `SigCgt`). An ended process has none.
pub(crate) fn catches(pid: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    caught >> (signal - 1) & 1 == 1
}

/// Whether a process was killed or is exiting, and has not ended yet: a SIGKILL is pending, or the kernel has marked it
/// as exiting (proc_pid_status(5), proc_pid_stat(5)).
pub(crate) fn is_ending(pid: u32) -> bool {
    // Read after the signals: a pending one is removed shortly before the flag is set.
    let exits = || fields_of(pid).is_some_and(|fields| fields[6] & (PF_EXITING | PF_SIGNALED) != 0);
    is_pending(pid, SIGKILL) || exits()
}

/// Whether a signal is pending for a process or its first thread (proc_pid_status(5)).
pub(crate) fn is_pending(pid: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = |name| status.lines().find_map(|line: &str| line.strip_prefix(name));
    let has = |set: &str| u64::from_str_radix(set.trim(), 16).is_ok_and(|set| set & 1 << (signal - 1) != 0);
    ["SigPnd:", "ShdPnd:"].into_iter().filter_map(pending).any(has)
}

/// Returns the CPU time of a process, of its running descendants, and of those that they have waited for.
pub fn cpu_time(pid: u32) -> Duration {
    let lines: Vec<(u32, Vec<u64>)> = all().into_iter().filter_map(|pid| Some((pid, fields_of(pid)?))).collect();
    let mut family = vec![pid];
    let mut ticks = 0;
    while let Some(member) = family.pop() {
        // Numbered from the state (field 3) as 0: 1 is the parent, 11 to 14 are user and system time, own and of
        // awaited children.
        let own = lines.iter().find(|(pid, _)| *pid == member).map_or(0, |(_, fields)| fields[11..15].iter().sum());
        ticks += own;
        family.extend(lines.iter().filter(|(_, fields)| fields[1] == u64::from(member)).map(|(pid, _)| *pid));
    }
    Duration::from_micros(ticks * tick_us())
}

/// Returns the numbers in a process's `stat` line, from its state on (index 0, which is no number and read as 0). None:
/// the process does not exist.
fn fields_of(pid: u32) -> Option<Vec<u64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let fields: Vec<u64> = fields.map(|field| field.parse().unwrap_or(0)).collect();
    (fields.len() > 15).then_some(fields)
}

/// Returns the ids of all processes.
pub fn all() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Whether a process has the socket with this inode open. None: it may not be seen.
pub(crate) fn has_socket(pid: u32, inode: u32) -> Option<bool> {
    let name = PathBuf::from(format!("socket:[{inode}]"));
    let mut open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    Some(open.any(|entry| fs::read_link(entry.path()).is_ok_and(|target| target == name)))
}

/// Returns the id of a process that has the socket with this inode open. None: none may be seen.
pub(crate) fn with_socket(inode: u32) -> Option<u32> {
    all().into_iter().find(|pid| has_socket(*pid, inode) == Some(true))
}

/// Returns a variable of the environment with which a process was started. None: it is not set, or may not be read.
pub fn variable(pid: u32, name: &str) -> Option<Vec<u8>> {
    variable_in(&fs::read(format!("/proc/{pid}/environ")).ok()?, name)
}

fn variable_in(environ: &[u8], name: &str) -> Option<Vec<u8>> {
    let entries = environ.split(|&b| b == 0);
    let mut values = entries.filter_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    values.next().map(<[u8]>::to_vec)
}

/// Returns the spool folder of the step to which a process belongs, if its environment has the mark.
pub fn mark(pid: u32) -> Option<PathBuf> {
    variable(pid, TASK_MARK).map(|value| PathBuf::from(OsStr::from_bytes(&value)))
}

/// Returns all running processes with a mark below `steps`, each with the name of its step's folder. A process in the
/// midst of exec is not seen, so callers look twice.
pub(crate) fn marked(steps: &Path) -> Vec<(u32, String)> {
    let found = all().into_iter().filter_map(|pid| {
        let name = mark(pid)?.strip_prefix(steps).ok()?.to_str()?.to_owned();
        let alive = Stat::of(pid).is_some_and(|stat| !stat.is_dead());
        alive.then_some((pid, name))
    });
    found.collect()
}

/// A process of a job on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfJob {
    /// Process id.
    pub pid: u32,
    /// The step to which the process belongs.
    pub key: StepKey,
    /// Name of the node on which the process belongs to a step.
    pub node: String,
    /// Local id and rank of the task, if this is the task's first process.
    pub task: Option<(u32, u32)>,
}

/// Returns the processes of jobs on this machine, in the order of their steps: those of the cluster with its state in
/// folder `state`, as far as the caller may read their environment.
pub fn of_jobs(state: &Path) -> Vec<OfJob> {
    let mut found: Vec<OfJob> = all().into_iter().filter_map(|pid| of_job(pid, state)).collect();
    found.sort_by_key(|process| (process.key, process.node.clone(), process.task.is_none(), process.task, process.pid));
    found
}

fn of_job(pid: u32, state: &Path) -> Option<OfJob> {
    let folder = mark(pid).filter(|folder| folder.starts_with(state))?;
    let key = parse_key(folder.file_name()?.to_str()?)?;
    let node = folder.ancestors().nth(2)?.file_name()?.to_str()?.to_owned();
    let number = |name: &str| -> Option<u32> { String::from_utf8(variable(pid, name)?).ok()?.trim().parse().ok() };
    let own = number("SLURM_TASK_PID") == Some(pid);
    let task = number("SLURM_LOCALID").zip(number("SLURM_PROCID")).filter(|_| own);
    Stat::of(pid).filter(|stat| !stat.is_dead())?;
    Some(OfJob { pid, key, node, task })
}

/// Returns all step daemons that serve a folder below `steps`: process id and name of the folder.
pub(crate) fn step_daemons(steps: &Path) -> Vec<(u32, String)> {
    let found = all().into_iter().filter_map(|pid| {
        let folder = served_folder(&fs::read(format!("/proc/{pid}/cmdline")).ok()?)?;
        let name = folder.strip_prefix(steps).ok()?.to_str()?.to_owned();
        // A batch supervisor serves the folder of all steps.
        (!name.is_empty()).then_some((pid, name))
    });
    found.collect()
}

/// Whether a process is the step daemon of the step with this folder.
pub fn serves(pid: u32, folder: &Path) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|cmdline| served_folder(&cmdline).is_some_and(|of| of == folder))
}

/// Returns the folder in the command line `squall step --spool FOLDER`. None: the command line is another.
fn served_folder(cmdline: &[u8]) -> Option<PathBuf> {
    let words: Vec<&[u8]> = cmdline.split(|&b| b == 0).collect();
    let at = words.windows(2).position(|pair| pair == [b"step", &b"--spool"[..]])?;
    words.get(at + 2).map(|folder| PathBuf::from(OsStr::from_bytes(folder)))
}

/// Whether another node daemon runs on this machine, of whatever cluster.
pub(crate) fn other_node_daemons() -> bool {
    let others = all().into_iter().filter(|pid| *pid != std::process::id());
    others.into_iter().any(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|cmdline| is_node_daemon(&cmdline)))
}

/// Whether a command line is `squall node NAME ...`.
fn is_node_daemon(cmdline: &[u8]) -> bool {
    let mut words = cmdline.split(|&b| b == 0);
    words.next().is_some_and(|program| program.ends_with(b"squall")) && words.next() == Some(b"node")
}

/// Whether a process can belong to a job of this user: it runs as the user, as root, or as we do. Command line and
/// environment alone prove nothing, as users can forge those of their own processes.
pub(crate) fn may_belong(pid: u32, user: u32) -> bool {
    let of = fs::metadata(format!("/proc/{pid}")).map(|meta| meta.uid());
    of.is_ok_and(|uid| uid == user || uid == 0 || uid == rustix::process::geteuid().as_raw())
}

/// Whether a process runs as this user.
pub(crate) fn belongs_to(pid: u32, user: u32) -> bool {
    fs::metadata(format!("/proc/{pid}")).is_ok_and(|meta| meta.uid() == user)
}

/// Kills a process if `meant` still holds after its pidfd was opened, so that a reused id is never killed.
pub(crate) fn kill_if(pid: u32, meant: impl Fn(u32) -> bool) {
    signal_if(pid, SIGKILL, meant);
}

/// Signals a process if `meant` still holds after its pidfd was opened.
pub(crate) fn signal_if(pid: u32, signal: i32, meant: impl Fn(u32) -> bool) {
    if let Ok(fd) = pidfd::open(pid)
        && meant(pid)
    {
        // It may have ended by itself.
        let _ = pidfd::signal(fd.as_fd(), signal);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Stat, is_ending, is_node_daemon, kill_if, mark, marked, served_folder, variable_in};
    use squall_files::place::TASK_MARK;

    #[test]
    fn stat_lines_with_wild_names() {
        let mut line = b"42 (a) b (c)) S 7 42 42 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 98765 0 0".to_vec();
        assert_eq!(Stat::parse(&line), Some(Stat { state: b'S', parent: 7, start: 98765, status: 0 }));
        line.truncate(20);
        assert_eq!(Stat::parse(&line), None);
        let own = Stat::of(std::process::id()).unwrap();
        assert!(!own.is_dead() && own.start > 0);
    }

    #[test]
    fn variables_are_found_whole() {
        let environ = b"A=1\0SQUALL_STEP=/x/1.1.0\0SQUALL_STEPS=/y\0";
        assert_eq!(variable_in(environ, TASK_MARK), Some(b"/x/1.1.0".to_vec()));
        assert_eq!(variable_in(environ, "SQUALL"), None);
    }

    #[test]
    fn step_daemons_are_known_by_their_command_line() {
        assert_eq!(served_folder(b"/usr/bin/squall\0step\0--spool\0/x/1.1.0\0"), Some("/x/1.1.0".into()));
        assert_eq!(served_folder(b"sh\0squall\0step\0--spool\0/x/1.1.0\0"), Some("/x/1.1.0".into()));
        assert_eq!(served_folder(b"vi\0step\0x\0"), None);
        assert_eq!(served_folder(b""), None);
        assert!(is_node_daemon(b"squall\0node\0n1\0") && is_node_daemon(b"/usr/bin/squall\0node\0n1\0--state\0/x\0"));
        assert!(!is_node_daemon(b"squall\0step\0") && !is_node_daemon(b"vi\0node\0") && !is_node_daemon(b""));
    }

    #[test]
    fn who_was_killed_is_on_its_way_out() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!is_ending(child.id()) && !is_ending(std::process::id()));
        child.kill().unwrap();
        assert!(is_ending(child.id()));
        child.wait().unwrap();
        assert!(!is_ending(child.id()));
    }

    #[test]
    fn a_marked_process_is_found_and_killed() {
        let steps = std::env::temp_dir().join(format!("squall-marks-{}", std::process::id()));
        let mut child =
            std::process::Command::new("sleep").arg("60").env(TASK_MARK, steps.join("5.1.0")).spawn().unwrap();
        // In the midst of exec a process has no environment.
        while marked(&steps).is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(marked(&steps), [(child.id(), "5.1.0".to_owned())]);
        assert!(marked(Path::new("/nowhere")).is_empty());
        kill_if(child.id(), |_| false);
        assert_eq!(child.try_wait().unwrap(), None);
        kill_if(child.id(), |pid| mark(pid).is_some_and(|path| path.starts_with(&steps)));
        assert!(!child.wait().unwrap().success());
        assert!(marked(&steps).is_empty());
    }
}
