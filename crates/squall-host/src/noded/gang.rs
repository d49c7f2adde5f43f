//! The node daemon's side of gang scheduling: passes the state machine's orders on to the switcher, with what it needs
//! to carry them out.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use squall_engine::node::{Alignment, GangAct, NodeInput, attempt_of};
use squall_model::gang::{Coscheduling, GangSwitch, Turn};
use squall_model::job::JobAttempt;
use squall_model::time::Time;
use tokio::sync::mpsc::Sender;
use tracing::error;

use super::{Daemon, Event};
use crate::gang::{Hold, Order, Report, Root, Switcher};
use crate::link::read;
use crate::sys::clock::monotonic_ns;

/// Orders and settings that the switcher has, kept to start another one.
#[derive(Debug, Default)]
pub(super) struct Gang {
    switch: GangSwitch,
    switcher: Option<Switcher>,
    /// Number of the present switcher, counted in this incarnation of the node.
    number: u64,
    alignment: Option<Alignment>,
    turns: BTreeMap<JobAttempt, (Turn, bool)>,
}

impl Gang {
    /// Returns the state of a node without gang-scheduled jobs.
    pub(super) fn new(switch: GangSwitch) -> Self {
        Self { switch, ..Self::default() }
    }
}

impl Daemon {
    pub(super) fn gang(&mut self, act: GangAct) {
        match act {
            GangAct::Align(alignment) => {
                self.gang.alignment = Some(alignment);
                self.align();
            }
            GangAct::Turn { job, turn } => {
                let known = self.gang.turns.insert(job, (turn, false)).is_some();
                if !known && self.cgroups.group_to_freeze(job).is_none() {
                    // An earlier incarnation may have stopped it.
                    self.hold(job).let_go();
                }
                self.take_turn(job);
            }
            GangAct::Lift { job } => {
                if let Some((_, lifted)) = self.gang.turns.get_mut(&job) {
                    *lifted = true;
                }
                self.order(&Order::Lift(job));
            }
            GangAct::Drop { job } => {
                self.gang.turns.remove(&job);
                self.order(&Order::Drop(job));
                if self.gang.turns.is_empty() {
                    // When it ends, the switcher wakes all jobs.
                    self.gang.switcher = None;
                }
            }
        }
    }

    /// Sends the switcher the current processes of a job, if the job has no group that can be frozen.
    pub(super) fn regroup(&mut self, job: JobAttempt) {
        if self.gang.turns.contains_key(&job) && self.cgroups.group_to_freeze(job).is_none() {
            self.take_turn(job);
        }
    }

    /// Handles a report of a switcher, or (None) its end.
    pub(super) fn switched(&mut self, number: u64, report: Option<Report>) {
        if number != self.gang.number || self.gang.switcher.is_none() {
            return;
        }
        if let Some(report) = report {
            return self.inputs.push_back(NodeInput::Switched { behind_us: report.behind_us });
        }
        error!("the gang switcher has died: all jobs go on, and another one is started");
        self.gang.switcher = None;
        let jobs: Vec<JobAttempt> = self.gang.turns.keys().copied().collect();
        for job in &jobs {
            self.hold(*job).let_go();
        }
        for job in jobs {
            self.take_turn(job);
        }
    }

    fn align(&mut self) {
        let Some(Alignment { ahead_us, slice, policy }) = self.gang.alignment else { return };
        let (monotonic_ns, now) = (monotonic_ns(), self.now());
        let time = Time(now.0.wrapping_sub(ahead_us.cast_unsigned()));
        // Under flexible coscheduling, jobs that need not run together use CPUs left idle, however long a slot is.
        let steps_back = policy == Coscheduling::Flexible || self.gang.switch.steps_back(slice);
        self.order(&Order::Align { monotonic_ns, time, slice, policy, steps_back });
    }

    fn take_turn(&mut self, job: JobAttempt) {
        let Some(&(turn, lifted)) = self.gang.turns.get(&job) else { return };
        if self.gang.switcher.is_none() && (turn.of > 1 || turn.mask == 0) {
            if let Err(e) = self.start_switcher() {
                return error!(error = %e, "no gang switcher: jobs do not take turns");
            }
            self.align();
            let others: Vec<JobAttempt> = self.gang.turns.keys().copied().filter(|other| *other != job).collect();
            for other in others {
                self.take_turn(other);
            }
        }
        if self.gang.switcher.is_none() {
            return;
        }
        let (group, idle, roots) = self.reach(job);
        let [group, idle] = [group, idle].map(|dir| dir.unwrap_or_default().into_os_string().into_encoded_bytes());
        self.order(&Order::Turn { job, turn, group, idle, roots });
        if lifted {
            self.order(&Order::Lift(job));
        }
    }

    /// Returns by what a job can be stopped: folder of the cgroup to freeze, folder of the cgroup for `cpu.idle`, and
    /// the job's root processes. If there is a cgroup to freeze, no processes are returned.
    fn reach(&self, job: JobAttempt) -> (Option<PathBuf>, Option<PathBuf>, Vec<Root>) {
        let group = self.cgroups.group_to_freeze(job);
        let roots = if group.is_some() { Vec::new() } else { self.roots(job) };
        (group, self.cgroups.group_to_idle(job), roots)
    }

    fn hold(&self, job: JobAttempt) -> Hold {
        let (group, idle, roots) = self.reach(job);
        Hold::choose(group.as_deref(), idle.as_deref(), &roots)
    }

    /// Returns the job's step daemons, and the tasks of step daemons that died.
    fn roots(&self, job: JobAttempt) -> Vec<Root> {
        let daemons = self.served.iter().filter(|(key, _)| attempt_of(**key) == job);
        let daemons = daemons.filter_map(|(_, served)| served.own_daemon()).map(|pid| Root { pid, whole: false });
        let orphans = self.orphans.iter().filter(|(key, _)| attempt_of(**key) == job);
        let tasks = orphans.flat_map(|(_, orphan)| orphan.pids()).map(|pid| Root { pid, whole: true });
        daemons.chain(tasks).collect()
    }

    fn start_switcher(&mut self) -> io::Result<()> {
        let (switcher, reports) = Switcher::start(&self.program)?;
        reports.set_nonblocking(true)?;
        let reports = tokio::net::UnixStream::from_std(reports)?;
        self.gang.number += 1;
        self.gang.switcher = Some(switcher);
        tokio::task::spawn_local(listen(reports, self.gang.number, self.events.clone()));
        Ok(())
    }

    fn order(&mut self, order: &Order) {
        let Some(switcher) = &mut self.gang.switcher else { return };
        if let Err(e) = switcher.give(order) {
            // That it has ended is noticed by the reader of its reports.
            error!(error = %e, "the gang switcher takes no orders");
        }
    }
}

async fn listen(mut reports: tokio::net::UnixStream, number: u64, events: Sender<Event>) {
    while let Ok(Some(report)) = read::<Report>(&mut reports).await {
        drop(events.send(Event::Switched(number, Some(report))).await);
    }
    drop(events.send(Event::Switched(number, None)).await);
}
