//! Adopts tasks of a step daemon that died: they continue to run, and their end is still reported.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use squall_engine::node::{NodeInput, attempt_of};
use squall_model::id::StepKey;
use squall_model::job::{ExitCode, Usage};
use squall_model::report::StepEnd;
use squall_model::series::Used;
use squall_model::time::{Span, Time};
use squall_model::wire::stepd::{FromStepd, ToStepd};

use super::steps::Served;
use super::{Daemon, Event};
use crate::cgroup::StepGroups;
use crate::processes::{self, Stat};
use crate::spool::TaskPid;
use crate::stepd::sweep_up;
use crate::sys::pidfd;
use crate::sys::wait::exit_of;
use crate::sys::watch::Watched;
use crate::traces::{Traces, ended};

/// Interval at which SIGKILL is repeated until all processes are gone.
const KILL_PAUSE: Span = Span::from_millis(100);

/// Interval of checks whether another process has reaped an ended task.
const REAP_PAUSE: Duration = Duration::from_millis(5);
/// Most checks whether another process has reaped an ended task.
const REAP_TRIES: u32 = 200;

/// State of a step after its step daemon died and the node daemon adopted its tasks.
pub(super) struct Orphan {
    began: Time,
    /// Ranks of the step's tasks on this node, in the order of the launch.
    ranks: Vec<u32>,
    /// Tasks that still run, by rank.
    living: BTreeMap<u32, TaskPid>,
    /// Ranks of ended tasks, with their exits if known.
    exits: Vec<(u32, Option<ExitCode>)>,
    usage: Usage,
    /// When all processes of the step are killed (again); None: they are not to be killed.
    pub(super) kill_at: Option<Time>,
}

impl Orphan {
    /// Returns the pids of the running tasks.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.living.values().map(|task| task.pid)
    }

    fn absorb(&mut self, rank: u32, usage: Usage) {
        self.usage.absorb(&Usage { max_rss_task: rank, total_rss_kb: usage.max_rss_kb, ..usage });
    }
}

impl Daemon {
    /// Adopts a step after its step daemon died without a result; `traces` is what the daemon recorded of its tasks.
    pub(super) fn adopt(&mut self, key: StepKey, traces: Traces) {
        let unknown = traces.missing().into_iter().map(|rank| (rank, None));
        let ended = traces.ended.iter().map(|(rank, (exit, _))| (*rank, Some(*exit)));
        let mut orphan = Orphan {
            began: self.now(),
            exits: ended.chain(unknown).collect(),
            living: traces.started.clone(),
            usage: Usage::default(),
            ranks: traces.ranks,
            kill_at: None,
        };
        for (rank, (_, usage)) in traces.ended {
            orphan.absorb(rank, usage);
        }
        self.orphans.insert(key, orphan);
        for task in traces.started.into_values() {
            self.watch_task(key, task);
        }
        self.regroup(attempt_of(key));
        self.finish_orphan(key);
    }

    fn watch_task(&mut self, key: StepKey, task: TaskPid) {
        let fd = pidfd::open(task.pid).ok();
        let same = Stat::of(task.pid).is_some_and(|stat| task.is(&stat));
        let watched = fd.filter(|_| same).and_then(|fd| Watched::new(fd).ok());
        let Some(watched) = watched else { return self.task_died(key, task.rank, None) };
        let events = self.events.clone();
        tokio::task::spawn_local(async move {
            watched.readable().await;
            let exit = learn_exit(task, &watched).await;
            drop(events.send(Event::TaskDied(key, task.rank, exit)).await);
        });
    }

    pub(super) fn task_died(&mut self, key: StepKey, rank: u32, exit: Option<(ExitCode, Usage)>) {
        let Some(orphan) = self.orphans.get_mut(&key) else { return };
        let Some(task) = orphan.living.remove(&rank) else { return };
        // The task may have been reaped by a zygote, which recorded it, or here with all other children. Of several
        // with its id the last one is meant.
        let noted = ended(&self.spool, key, &orphan.ranks).get(&rank).copied();
        let at = self.reaped.iter().rposition(|(pid, ..)| *pid == task.pid);
        let reaped = at.and_then(|at| self.reaped.remove(at)).map(|(_, exit, usage)| (exit, usage));
        let known = noted.or(reaped).or(exit);
        orphan.exits.push((rank, known.map(|(exit, _)| exit)));
        if let Some((_, usage)) = known {
            orphan.absorb(rank, usage);
        }
        self.finish_orphan(key);
    }

    /// Reports the end of an orphaned step once none of its tasks runs, and kills processes that the tasks left.
    fn finish_orphan(&mut self, key: StepKey) {
        if self.orphans.get(&key).is_none_or(|orphan| !orphan.living.is_empty()) {
            return;
        }
        let Some(orphan) = self.orphans.remove(&key) else { return };
        self.kill_all_of(key);
        if let Some(launch) = self.spool.launch(key) {
            sweep_up(&launch);
        }
        let end = match self.spool.result(key) {
            Some(FromStepd::Ended(end)) => end,
            _ => self.end_of(key, &orphan),
        };
        if let Err(e) = self.spool.write_result(key, &FromStepd::Ended(end.clone())) {
            tracing::error!(step = %key, error = %e, "the result of the step could not be noted");
        }
        self.frequencies.release(key);
        self.inputs.push_back(NodeInput::Ended { key, end });
        if self.sweeps.contains_key(&attempt_of(key)) {
            self.advance_sweeps(self.now());
        }
    }

    fn end_of(&self, key: StepKey, orphan: &Orphan) -> StepEnd {
        let launch = self.spool.launch(key);
        let groups = StepGroups::read(&self.spool.step(key)).unwrap_or_default();
        let lost = orphan.exits.iter().any(|(_, exit)| exit.is_none());
        let known = orphan.exits.iter().filter_map(|(_, exit)| *exit);
        let killed = ExitCode { code: 0, signal: libc::SIGKILL as u8 };
        let exit = known.chain(lost.then_some(killed)).max_by_key(|exit| exit.shell_status()).unwrap_or_default();
        let note = if lost {
            "the step daemon died, and how its tasks ended could not be learnt"
        } else {
            "the step daemon died while its tasks ran on"
        };
        StepEnd {
            exit,
            oom: groups.oom_kills() > 0,
            lost,
            usage: orphan.usage,
            started: launch.map_or(orphan.began, |launch| launch.facts.start),
            ended: self.now(),
            note: Some(note.to_owned()),
            series: None,
        }
    }

    /// Carries out a message for a step daemon that does not run or can't be reached.
    pub(super) fn tell_orphan(&mut self, key: StepKey, message: &ToStepd) {
        match *message {
            ToStepd::Signal { signal, all: false } if self.orphans.contains_key(&key) => self.signal_tasks(key, signal),
            ToStepd::Signal { signal, .. } => self.signal_all_of(key, signal),
            ToStepd::End { kill_wait_s: 0, .. } if self.orphans.contains_key(&key) => self.kill_orphan(key),
            ToStepd::End { kill_wait_s: 0, .. } => self.kill_all_of(key),
            ToStepd::End { .. } => {
                self.signal_all_of(key, libc::SIGCONT);
                self.signal_all_of(key, libc::SIGTERM);
            }
            ToStepd::Usage => {
                let usage = self.orphans.get(&key).map(|orphan| orphan.usage).unwrap_or_default();
                self.inputs.push_back(NodeInput::Used { key, used: Used { usage, series: None } });
            }
            ToStepd::Letter { .. } | ToStepd::Watch(_) | ToStepd::Notice(_) => {}
        }
    }

    /// Kills an orphaned step; repeated until its processes are gone.
    pub(super) fn kill_orphan(&mut self, key: StepKey) {
        let next = self.now() + KILL_PAUSE;
        if let Some(orphan) = self.orphans.get_mut(&key) {
            orphan.kill_at = Some(next);
            self.signal_tasks(key, libc::SIGKILL);
            self.kill_all_of(key);
        }
    }

    pub(super) fn kill_orphans(&mut self, now: Time) {
        let due = self.orphans.iter().filter(|(_, orphan)| orphan.kill_at.is_some_and(|at| at <= now));
        for key in due.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.kill_orphan(key);
        }
    }

    fn signal_tasks(&self, key: StepKey, signal: i32) {
        let tasks = self.orphans.get(&key).into_iter().flat_map(|orphan| orphan.living.values());
        for task in tasks {
            if let Some(fd) = open_same(*task) {
                let _ = pidfd::signal(fd.as_fd(), signal);
            }
        }
    }

    fn kill_all_of(&self, key: StepKey) {
        self.signal_all_of(key, libc::SIGKILL);
    }

    /// Signals all processes of a step (tasks, members of its group, processes with its mark) except its step daemon.
    fn signal_all_of(&self, key: StepKey, signal: i32) {
        self.signal_tasks(key, signal);
        let folder = self.spool.step(key);
        let members = self.cgroups.members_of_step(key);
        let marked = processes::marked(&self.spool.steps_dir()).into_iter();
        let marked = marked.filter(|(_, name)| folder.ends_with(name)).map(|(pid, _)| pid);
        let mut noted: Vec<u32> =
            self.orphans.get(&key).map(|o| o.living.values().map(|t| t.pid).collect()).unwrap_or_default();
        // A running step daemon itself is spared, as it reports how the tasks end.
        noted.extend(self.served.get(&key).and_then(Served::own_daemon));
        for pid in members.into_iter().chain(marked).filter(|pid| !noted.contains(pid)) {
            let Ok(fd) = pidfd::open(pid) else { continue };
            let meant = processes::mark(pid).is_some_and(|mark| mark == folder)
                || self.cgroups.members_of_step(key).contains(&pid);
            if meant {
                let _ = pidfd::signal(fd.as_fd(), signal);
            }
        }
    }
}

/// Opens a pidfd of the recorded process. None: it has ended; its id may belong to another process.
fn open_same(task: TaskPid) -> Option<OwnedFd> {
    let fd = pidfd::open(task.pid).ok()?;
    Stat::of(task.pid).is_some_and(|stat| task.is(&stat)).then_some(fd)
}

/// Waits for the exit of an ended process, which this process may have to reap itself (or has reaped already). None:
/// the exit can't be determined. The usage is empty, as it is not known here.
async fn learn_exit(task: TaskPid, watched: &Watched) -> Option<(ExitCode, Usage)> {
    let known = |exit| (exit, Usage::default());
    let fd = watched.as_fd();
    for unreaped in 0..REAP_TRIES {
        if let Ok(Some(exit)) = pidfd::reap(fd, false) {
            return Some(known(exit));
        }
        let gone = pidfd::signal(fd, 0).is_err();
        let exit = pidfd::exit_info(fd);
        if gone || exit.is_some() {
            return exit.map(known);
        }
        // Its parent has yet to reap it; as the first process of a container, the parent may never do so.
        let dead = Stat::of(task.pid).filter(|stat| stat.is_dead() && task.is(stat));
        if let Some(stat) = dead.filter(|_| unreaped == REAP_TRIES - 1) {
            return Some(known(exit_of(stat.status)));
        }
        tokio::time::sleep(REAP_PAUSE).await;
    }
    None
}
