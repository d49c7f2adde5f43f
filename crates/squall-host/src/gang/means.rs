//! Mechanisms that keep a job from running outside its time slots. One is stepping back: with the CPU controller's
//! `cpu.idle` the job runs only on CPUs that are otherwise idle. That suits short slots: sleeping processes need not be
//! woken for it, and cores that others leave idle are used. The other is stopping: by freezing the job's cgroup where
//! that is possible, otherwise by signals.
//!
//! A frozen v2 cgroup stops every thread and every child, however it was started, and the step daemon too. Processes
//! can't detect it, SIGCONT from elsewhere does not undo it, and SIGKILL still works. SIGSTOP goes to process groups:
//! one call for any number of processes. Which groups there are is looked up beforehand: those of the descendants of
//! the job's step daemons, which are subreapers, so that a double fork does not escape. Step daemons themselves are not
//! stopped that way.

use minicbor::{Decode, Encode};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cgroup::{FREEZE, IDLE, members};
use crate::descendants::{descendants, stat_field};
use crate::sys::signals::{kill, kill_group};

/// Greatest age of the list of process groups while a job runs.
const FRESH: Duration = Duration::from_millis(50);

/// Levels from a job's group up to the folder common to all nodes of the machine: node, cluster, all clusters.
const COMMON: usize = 3;

/// Number of the field of `/proc/PID/stat` that has the process group.
const GROUP_FIELD: usize = 5;

/// A process with descendants that all belong to one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Root {
    /// Id of the process.
    #[n(0)]
    pub pid: u32,
    /// Whether the process belongs to the job itself; false for a step daemon.
    #[n(1)]
    pub whole: bool,
}

/// Permission of a job to run at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leave {
    /// All processes of the job run.
    #[default]
    Runs,
    /// The job runs only on CPUs that are otherwise idle.
    StepsBack,
    /// All processes of the job are stopped.
    Stops,
}

/// Controls whether one job runs: the mechanisms for it, and the permission given last.
#[derive(Debug)]
pub struct Hold {
    means: Means,
    idle: Option<Idle>,
    leave: Leave,
}

/// The cgroup by which a job steps back (`cpu.idle`).
#[derive(Debug)]
struct Idle {
    dir: PathBuf,
    switch: File,
    /// Whether the job's processes have joined the group.
    populated: bool,
}

impl Hold {
    /// Uses the job's groups, if it has them: `group` to freeze, `idle` to step back. Otherwise its processes are
    /// signalled.
    pub fn choose(group: Option<&Path>, idle: Option<&Path>, roots: &[Root]) -> Self {
        let idle = idle.and_then(|dir| {
            let switch = OpenOptions::new().write(true).open(dir.join(IDLE)).ok()?;
            Some(Idle { dir: dir.to_owned(), switch, populated: false })
        });
        Self { means: Means::choose(group, roots), idle, leave: Leave::Runs }
    }

    /// Returns whether the job's processes have joined its cgroup: lowering the weight of an empty one would miss them.
    pub fn can_step_back(&mut self) -> bool {
        self.idle.as_mut().is_some_and(|idle| {
            idle.populated = idle.populated || is_populated(&idle.dir);
            idle.populated
        })
    }

    /// Returns the folder of the group by which the job can step back, if there is one.
    pub(super) fn idle_folder(&self) -> Option<&Path> {
        self.idle.as_ref().map(|idle| idle.dir.as_path())
    }

    /// Returns the folder that contains the cgroups of all nodes of this machine; None: the job has no group by which
    /// it can step back.
    pub(super) fn common_folder(&self) -> Option<&Path> {
        self.idle.as_ref().and_then(|idle| idle.dir.ancestors().nth(COMMON))
    }

    /// Returns the job's present permission to run.
    pub fn leave(&self) -> Leave {
        self.leave
    }

    /// Changes the permission to run. Errors are ignored: a group that can't be written is gone, with all its
    /// processes.
    pub fn give(&mut self, leave: Leave) {
        match std::mem::replace(&mut self.leave, leave) {
            old if old == leave => return,
            Leave::Runs => {}
            Leave::StepsBack => self.step_back(false),
            Leave::Stops => drop(self.means.wake()),
        }
        match leave {
            Leave::Runs => {}
            Leave::StepsBack => self.step_back(true),
            Leave::Stops => drop(self.means.stop()),
        }
    }

    /// Takes over control of the job from its earlier `Hold`.
    pub(super) fn inherit(&mut self, old: &mut Self) {
        // Processes unknown to the new mechanism must not stay stopped by the old one.
        if matches!(old.means, Means::Signal(_)) || old.idle.is_some() != self.idle.is_some() {
            old.let_go();
        }
        self.leave = old.leave;
    }

    fn step_back(&self, back: bool) {
        if let Some(idle) = &self.idle {
            let _ = idle.switch.write_all_at(if back { b"1" } else { b"0" }, 0);
        }
    }

    /// Looks for new processes, and stops them if the job is stopped. Called when there is time.
    pub(super) fn look_again(&mut self) {
        self.means.look_again(self.leave == Leave::Stops);
    }

    /// Ends control of the job: also wakes processes that appeared since the last look, and none steps back any more.
    pub(crate) fn let_go(&mut self) {
        self.leave = Leave::Runs;
        self.step_back(false);
        self.means.let_go();
    }
}

/// Whether a cgroup contains processes, or (v2) one of its child groups does.
fn is_populated(dir: &Path) -> bool {
    let events = std::fs::read_to_string(dir.join("cgroup.events")).unwrap_or_default();
    events.lines().any(|line| line == "populated 1") || !members(dir).is_empty()
}

/// The mechanism by which one job is stopped and woken.
#[derive(Debug)]
pub enum Means {
    /// Writing to `cgroup.freeze` of the job's group.
    Freeze(File),
    /// Sending SIGSTOP and SIGCONT to the job's process groups.
    Signal(Groups),
}

/// Process groups of a job, for signals.
#[derive(Debug, Default)]
pub struct Groups {
    roots: Vec<Root>,
    ids: BTreeSet<u32>,
    /// Ids of processes that are signalled one by one, as their process groups have members outside the job.
    singles: BTreeSet<u32>,
    looked: Option<Instant>,
}

impl Means {
    /// Chooses the best available mechanism; `group` is the folder of the job's v2 cgroup, if it has one.
    pub fn choose(group: Option<&Path>, roots: &[Root]) -> Self {
        let freeze = group.and_then(|group| OpenOptions::new().write(true).open(group.join(FREEZE)).ok());
        match freeze {
            Some(file) => Self::Freeze(file),
            None => Self::Signal(Groups { roots: roots.to_vec(), ..Groups::default() }),
        }
    }

    /// Stops all processes of the job, without waiting until they have stopped.
    pub fn stop(&mut self) -> io::Result<()> {
        match self {
            Self::Freeze(file) => file.write_all_at(b"1", 0),
            Self::Signal(groups) => {
                if groups.looked.is_none() {
                    groups.look();
                }
                groups.signal(libc::SIGSTOP);
                Ok(())
            }
        }
    }

    /// Wakes all processes of the job.
    pub fn wake(&mut self) -> io::Result<()> {
        match self {
            Self::Freeze(file) => file.write_all_at(b"0", 0),
            Self::Signal(groups) => {
                groups.signal(libc::SIGCONT);
                Ok(())
            }
        }
    }

    /// Looks for new processes, and stops them if `stopped`. Called when there is time.
    pub(super) fn look_again(&mut self, stopped: bool) {
        let Self::Signal(groups) = self else { return };
        if groups.looked.is_none_or(|at| at.elapsed() >= FRESH) {
            groups.look();
            if stopped {
                groups.signal(libc::SIGSTOP);
            }
        }
    }

    /// Ends control of the job: also wakes processes that appeared since the last look.
    pub(crate) fn let_go(&mut self) {
        if let Self::Signal(groups) = self {
            groups.look();
        }
        // The group may have been removed, with all its processes.
        let _ = self.wake();
    }
}

impl Groups {
    fn look(&mut self) {
        let group = |pid: u32| stat_field(pid, GROUP_FIELD).and_then(|group| u32::try_from(group).ok());
        // Neither step daemons nor the switcher itself may be stopped.
        let daemons = self.roots.iter().filter(|root| !root.whole).map(|root| root.pid);
        let others: BTreeSet<u32> = daemons.chain([std::process::id()]).filter_map(group).collect();
        for root in &self.roots {
            for pid in descendants(root.pid).into_iter().chain(root.whole.then_some(root.pid)) {
                match group(pid) {
                    Some(group) if !others.contains(&group) => self.ids.insert(group),
                    _ => self.singles.insert(pid),
                };
            }
        }
        self.looked = Some(Instant::now());
    }

    fn signal(&mut self, signal: i32) {
        // Ended processes are forgotten before their ids are reused.
        self.ids.retain(|group| kill_group(*group, signal).is_ok());
        self.singles.retain(|pid| kill(*pid, signal).is_ok());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use super::{Hold, Leave, Means, Root};
    use crate::cgroup::IDLE;
    use crate::processes::Stat;

    fn until(pid: u32, wanted: impl Fn(u8) -> bool) {
        while !Stat::of(pid).is_some_and(|stat| wanted(stat.state)) {
            std::thread::yield_now();
        }
    }

    /// Starts a shell with a child in a session of its own; returns it with the child's pid.
    fn family() -> (Child, u32) {
        let script = "setsid sh -c 'sleep 60 & echo $!; wait' & wait";
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", script]).stdout(Stdio::piped()).process_group(0).spawn().unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        (child, line.trim().parse().unwrap())
    }

    #[test]
    fn a_job_steps_back_by_its_group_once_it_has_joined_it() {
        let dir = std::env::temp_dir().join(format!("squall-idle-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(IDLE), "0").unwrap();
        let read = || std::fs::read_to_string(dir.join(IDLE)).unwrap();
        let mut hold = Hold::choose(None, Some(&dir), &[]);
        assert!(!hold.can_step_back(), "nobody is in it yet");
        std::fs::write(dir.join("cgroup.procs"), "7\n").unwrap();
        assert!(hold.can_step_back());
        for (leave, written) in
            [(Leave::StepsBack, "1"), (Leave::Stops, "0"), (Leave::StepsBack, "1"), (Leave::Runs, "0")]
        {
            hold.give(leave);
            assert_eq!((hold.leave(), read()), (leave, written.to_owned()));
        }
        hold.give(Leave::StepsBack);
        let mut next = Hold::choose(None, Some(&dir), &[]);
        next.inherit(&mut hold);
        assert_eq!(next.leave(), Leave::Runs, "its means are others, so it was let go");
        assert_eq!(read(), "0");
        hold.give(Leave::StepsBack);
        hold.let_go();
        assert_eq!((hold.leave(), read()), (Leave::Runs, "0".to_owned()));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn children_in_sessions_of_their_own_are_stopped_and_woken() {
        let (mut child, deep) = family();
        let mut means = Means::choose(None, &[Root { pid: child.id(), whole: true }]);
        means.stop().unwrap();
        until(deep, |state| state == b'T');
        means.wake().unwrap();
        until(deep, |state| state != b'T');
        means.stop().unwrap();
        until(deep, |state| state == b'T');
        means.let_go();
        until(deep, |state| state != b'T');
        crate::sys::signals::kill(deep, 9).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
