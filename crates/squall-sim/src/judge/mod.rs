//! The judge of a simulation. It checks invariants at every step against the answers to clients, the simulated
//! processes and the durable records, never against the controller's or a node's own state.

mod blocks;
mod boot;
mod drains;
mod durable;
mod fabric;
mod faults;
pub(crate) mod feed;
mod filter;
mod lease;
mod limits;
mod log;
mod losses;
mod members;
mod places;
pub(crate) mod power;
pub(crate) mod process;
pub(crate) mod programs;
mod silence;
mod told;
mod waits;
mod wires;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use squall_model::billing::BillingWeights;
use squall_model::config::NodeLostAction;
use squall_model::event::Record;
use squall_model::id::{Attempt, JobId, NodeId, StepKey, StepNo};
use squall_model::job::{ExitCode, JobAttempt, Outcome};
use squall_model::limits::HEARTBEAT_S;
use squall_model::policy::Policy;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{UpFrame, Upward};
use squall_model::wire::feed::FeedKind;

use crate::coverage::Phase;
use crate::setup::Setup;
use fabric::Fabric;

/// Most by which a timer of the controller is late, for example for a slow disk.
const LATENESS: Span = Span::from_secs(30);

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Description of the invariant, as it should hold.
    pub invariant: &'static str,
    /// Description of the observation that violates it.
    pub details: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "violated: {}: {}", self.invariant, self.details)
    }
}

/// Facts about one job. An array task has no such record until its first event.
#[derive(Clone, Debug)]
pub(crate) struct JobFile {
    /// Index of the job order that submitted the job.
    pub(crate) order: usize,
    /// Index of the array task. None: the job is not an array task.
    pub(crate) index: Option<u32>,
    pub(crate) phase: Phase,
    /// Number of the job's last attempt that is durable.
    pub(crate) attempt: u32,
    /// Nodes that the attempt has or had.
    pub(crate) nodes: NodeSet,
    /// Nodes that it was given and has not lost.
    granted: NodeSet,
    pub(crate) left: NodeSet,
    /// Nodes that released the attempt, took a vacant place of it, and have not forgotten their first share.
    pub(crate) back: NodeSet,
    pub(crate) outcome: Option<Outcome>,
    requeue: bool,
    pub(crate) started: Option<Time>,
    pub(crate) ended: Option<Time>,
    /// Number of the job's steps with live processes, counted once for each node. Nodes that were given up are left
    /// out.
    pub(crate) live: u32,
    pub(crate) live_attempt: u32,
    /// Number of attempts in which a process has started.
    pub(crate) runs: u32,
    last_run: u32,
    pub(crate) first_process: Option<Time>,
    pub(crate) last_process_end: Option<Time>,
    pub(crate) process_started: Time,
    /// Start of the last attempt, from which the time limit counts.
    limit_from: Time,
    /// True exit code of the last attempt's script or first step, from the simulated process. None: it has not exited.
    pub(crate) truth: Option<ExitCode>,
    /// Whether the process that observed the exit was killed, so that the controller cannot learn the exit.
    pub(crate) unseen: bool,
    /// Whether the job's queue position may have changed: the job was held, released, updated or requeued, or a launch
    /// of it failed.
    pub(crate) touched: bool,
    /// Whether the job is held, as acknowledged to its user.
    pub(crate) held: bool,
    /// Attempt in which the job was cancelled, as acknowledged to its user: no later attempt may start. None: it was
    /// not cancelled.
    pub(crate) cancelled: Option<u32>,
    pub(crate) requeue_sent: bool,
    /// Whether the job may run again although its attempt ended by itself: it was requeued after that, or its node lost
    /// the exit.
    may_repeat: bool,
    /// Whether the attempt was suspended at least once; suspended time does not count towards its limit.
    was_suspended: bool,
    /// Whether the job shares its cores with other jobs.
    shares: bool,
    /// Line of the leased job. None: the job is not leased, or its processes have started.
    line: Option<lease::LeaseLine>,
    /// Time since which the job is suspended, as acknowledged to its user. None: it is not suspended.
    pub(crate) suspended: Option<Time>,
}

/// Number of running tasks of a job order: at present, and the greatest number so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Width {
    pub(crate) live: u32,
    pub(crate) most: u32,
}

/// State of the judge: facts collected from a simulation, and the first violation.
#[derive(Debug)]
pub(crate) struct Judge {
    pub(crate) violation: Option<Box<Violation>>,
    /// Whether most checks are off, because a backup was restored and the collected facts no longer apply.
    asleep: bool,
    pub(crate) files: BTreeMap<JobId, JobFile>,
    /// Durable submissions by first job id: number of ids, and index of the job order.
    pub(crate) submitted: BTreeMap<JobId, (u32, usize)>,
    /// First job id of each job order, once durable.
    pub(crate) ids: BTreeMap<usize, JobId>,
    /// Order of each job id that a client received as the answer to a submission.
    acknowledged: BTreeMap<JobId, usize>,
    /// Number of an array's tasks that ended without an event of their own, by the array's first id.
    pub(crate) skipped: BTreeMap<JobId, u32>,
    /// Number (sequence number) of the last durable record.
    last_record: u64,
    launched: BTreeSet<(StepKey, usize)>,
    /// Exits of processes by step and node: the exit, and whether its observer was killed.
    exits: BTreeMap<(StepKey, usize), (ExitCode, bool)>,
    live: BTreeSet<(StepKey, usize)>,
    /// Processes that hid from their step daemon, by job and node.
    pub(crate) hidden: BTreeSet<(JobAttempt, usize)>,
    pub(crate) widths: BTreeMap<usize, Width>,
    names: Vec<String>,
    hosts: BTreeMap<NodeId, usize>,
    heard: Vec<Time>,
    /// Attempts given up on a node, because it was silent for too long or by an operator. Their live processes do not
    /// count.
    given_up: BTreeSet<(JobAttempt, usize)>,
    /// Nodes that the operator set down: the controller gives up their jobs, even if processes still run.
    down: BTreeSet<usize>,
    memory: Vec<u64>,
    /// Value of the setting NodeLostTime, seconds. None: jobs of a silent node are not given up.
    node_lost_s: Option<u64>,
    kill_wait_s: u64,
    /// Highest time limit that a user ever requested for each job order, seconds.
    pub(crate) limits: BTreeMap<usize, u64>,
    /// Time limit of each job order as submitted, seconds: an update that raises it may have been refused.
    pub(crate) first_limits: BTreeMap<usize, u64>,
    memory_mb: u64,
    census: [u64; Phase::ALL.len()],
    pub(crate) trouble_until: Time,
    /// Time of the last start or end of a job.
    pub(crate) progress: Time,
    /// Records that recovery found on the disk and that were not known to be durable.
    found: Vec<Record>,
    waiting: BTreeMap<Shape, BTreeSet<JobId>>,
    /// Number of components of each heterogeneous job, by the id of its first component.
    hets: BTreeMap<JobId, u32>,
    fabric: Fabric,
    /// The durable policy: accounts, QOS, limits.
    pub(crate) policy: Policy,
    /// Usage that counts towards QOS limits, of each job that has resources.
    holding: BTreeMap<JobId, limits::CountedJob>,
    /// Weights by which partitions bill.
    weights: BTreeMap<String, BillingWeights>,
    /// User id and QOS of each submission, by its first job id.
    asked: BTreeMap<JobId, (u32, String)>,
    /// Links of a torus that running jobs use.
    wires: wires::Wires,
    blocks: blocks::Blocks,
    /// Number of node releases since the controller's last start.
    released: u64,
    /// Number of steps that node daemons have spawned since the controller started.
    pub(crate) spawned: u64,
    /// Programs around jobs.
    pub(crate) programs: programs::Programs,
    /// Power of nodes.
    pub(crate) powers: power::Powers,
    boots: boot::Boots,
    members: members::Members,
    /// Nodes that change places in jobs, spare nodes, and checks after faults.
    places: places::Places,
    /// Nodes that operators have drained.
    drains: drains::Drains,
    /// Waits that administrators set.
    waits: waits::Waits,
    filtered: filter::Filtered,
    /// Durable checkpoints of jobs, by number, with the attempt that made each.
    pub(crate) checkpoints: BTreeMap<(JobId, u64), Attempt>,
    /// Checkpoints from which attempts must go on, as the ones before have stepped aside.
    pub(crate) aside: BTreeMap<JobAttempt, u64>,
    /// Attempts of which dumps were killed, with the node of the last one.
    pub(crate) damaged: BTreeMap<JobAttempt, usize>,
    /// Nodes, by index, that have restored their part of an attempt and waited for the others.
    pub(crate) held: BTreeSet<(JobAttempt, usize)>,
    /// Attempts of which the restore was killed.
    pub(crate) half_restored: BTreeSet<JobAttempt>,
    /// Records of jobs that ended before this time are removed, unless a pending job depends on them.
    forgotten: Time,
    /// Job orders, each with one that it depends on of which the record was removed before it was submitted.
    lifted: BTreeSet<(usize, usize)>,
    leases: lease::Leases,
    /// Nodes that running jobs have lost.
    losses: losses::Losses,
    /// When the present controller started.
    led_since: Time,
    log: log::SharedLog,
    pub(crate) silence: silence::Silence,
    /// Durable events that followers of events must be sent, in order.
    shown: Vec<(u64, FeedKind, Option<JobId>)>,
}

/// Properties by which jobs are equal (nodes, CPUs of a task, memory, time limit). Of equal jobs the one that was
/// submitted first starts first.
type Shape = (u32, u32, u64, Option<Option<u64>>);

impl Judge {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self {
            violation: None,
            asleep: false,
            files: BTreeMap::new(),
            submitted: BTreeMap::new(),
            ids: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            skipped: BTreeMap::new(),
            last_record: 0,
            launched: BTreeSet::new(),
            exits: BTreeMap::new(),
            live: BTreeSet::new(),
            hidden: BTreeSet::new(),
            widths: BTreeMap::new(),
            names: setup.names.clone(),
            hosts: BTreeMap::new(),
            heard: vec![Time::default(); setup.names.len()],
            given_up: BTreeSet::new(),
            down: BTreeSet::new(),
            memory: vec![0; setup.names.len()],
            node_lost_s: (setup.config.node_lost_action == NodeLostAction::Requeue).then_some(setup.config.node_lost_s),
            kill_wait_s: setup.config.kill_wait_s,
            limits: BTreeMap::new(),
            first_limits: BTreeMap::new(),
            memory_mb: setup.memory_mb,
            census: [0; Phase::ALL.len()],
            trouble_until: Time::default(),
            progress: Time::default(),
            found: Vec::new(),
            waiting: BTreeMap::new(),
            hets: BTreeMap::new(),
            fabric: Fabric::new(setup.names.len()),
            policy: Policy::default(),
            holding: BTreeMap::new(),
            weights: BTreeMap::new(),
            asked: BTreeMap::new(),
            // The network was read without error when the scenario named it.
            wires: wires::Wires::new(setup.network().unwrap_or_default()),
            blocks: blocks::Blocks::new(setup.network().unwrap_or_default()),
            released: 0,
            spawned: 0,
            programs: programs::Programs::of(&setup.config.hooks),
            powers: power::Powers::of(&setup.config, &setup.names),
            boots: boot::Boots::default(),
            members: members::Members::default(),
            places: places::Places::of(&setup.config),
            drains: drains::Drains::default(),
            waits: waits::Waits::of(&setup.config, &setup.names),
            filtered: filter::Filtered::of(setup.filter.is_some()),
            checkpoints: BTreeMap::new(),
            aside: BTreeMap::new(),
            damaged: BTreeMap::new(),
            held: BTreeSet::new(),
            half_restored: BTreeSet::new(),
            forgotten: Time::default(),
            lifted: BTreeSet::new(),
            leases: lease::Leases::new(&setup.config),
            losses: losses::Losses::new(),
            led_since: Time::default(),
            log: log::SharedLog::default(),
            silence: silence::Silence::of(&setup.config, setup.names.len()),
            shown: Vec::new(),
        }
    }

    /// Returns a job's present or last attempt. None: no such job is known.
    pub(crate) fn attempt_of(&self, job: JobId) -> Option<JobAttempt> {
        Some(JobAttempt { job, attempt: Attempt(self.files.get(&job)?.attempt) })
    }

    /// Returns the last checkpoint of a job that is durable. None: there is none.
    pub(crate) fn last_checkpoint(&self, job: JobId) -> Option<(&(JobId, u64), &Attempt)> {
        self.checkpoints.range((job, 0)..=(job, u64::MAX)).next_back()
    }

    /// Records a violation, if it is the first; ignored after a backup was restored.
    pub(crate) fn violate(&mut self, invariant: &'static str, details: String) {
        if !self.asleep {
            self.violate_awake(invariant, details);
        }
    }

    /// Turns off the checks that do not hold after a restored backup.
    pub(crate) fn sleep(&mut self) {
        self.asleep = true;
    }

    /// Records a violation of an invariant that also holds after a backup was restored, if it is the first.
    pub(crate) fn violate_awake(&mut self, invariant: &'static str, details: String) {
        if self.violation.is_none() {
            self.violation = Some(Box::new(Violation { invariant, details }));
        }
    }

    /// Records which nodes answered a query in a frame that reached the controller. It covers nodes in session; other
    /// nodes count as heard when their registration is accepted.
    pub(crate) fn heard(&mut self, now: Time, frame: &UpFrame) {
        for say in &frame.says {
            if let Upward::Tally { tally, .. } = say {
                for host in tally.answered().iter().filter_map(|node| self.host(node)).collect::<Vec<_>>() {
                    self.heard[host] = now;
                }
            }
        }
    }

    /// Returns the steps that have processes, with their nodes.
    pub(crate) fn live_steps(&self) -> &BTreeSet<(StepKey, usize)> {
        &self.live
    }

    /// Returns the jobs with a batch script that has begun at any time.
    pub(crate) fn begun_scripts(&self) -> impl Iterator<Item = JobId> {
        self.launched.iter().filter(|(key, _)| key.step == StepNo::BATCH).map(|(key, _)| key.job)
    }

    /// Returns whether a job's end is decided: its remaining processes are killed after KillWait.
    pub(crate) fn is_ending(&self, id: JobId) -> bool {
        self.files.get(&id).is_some_and(|file| file.phase == Phase::Ending)
    }

    /// Returns the number of jobs in each phase, in the order of `Phase::ALL`.
    pub(crate) fn census(&self) -> [u64; Phase::ALL.len()] {
        self.census
    }

    fn move_to(&mut self, id: JobId, phase: Phase) {
        if let Some(file) = self.files.get_mut(&id) {
            let count = &mut self.census[file.phase as usize];
            *count = count.saturating_sub(1);
            self.census[phase as usize] += 1;
            file.phase = phase;
        }
    }

    /// Returns the submission that an id belongs to: its first id, and the index of its job order.
    pub(crate) fn submission_of(&self, id: JobId) -> Option<(JobId, usize)> {
        let (&first, &(count, order)) = self.submitted.range(..=id).next_back()?;
        (id.0 - first.0 < count).then_some((first, order))
    }

    /// Returns the simulation's index of a node. None: the node has never registered.
    pub(crate) fn host(&self, node: NodeId) -> Option<usize> {
        self.hosts.get(&node).copied()
    }

    /// Returns whether a dump of the script was killed, and not one of what the job has on its other nodes: if these are lost,
    /// what the script ends with counts as when nodes fail.
    pub(crate) fn is_script_damaged(&self, job: JobAttempt) -> bool {
        let first = self.files.get(&job.job).and_then(|file| file.nodes.first());
        self.damaged.get(&job).is_some_and(|node| first.and_then(|first| self.host(first)) == Some(*node))
    }

    /// Returns whether a node's jobs may be given up, after long silence or by an operator. The controller does not
    /// count the last answers of a session that ended meanwhile, so the silence may seem longer by the heartbeats that
    /// were in flight.
    fn is_given_up(&self, host: usize, now: Time) -> bool {
        self.down.contains(&host) || self.node_lost_s.is_some_and(|lost_s| self.is_silent_for(host, lost_s, now))
    }

    fn is_silent_for(&self, host: usize, secs: u64, now: Time) -> bool {
        let slack = (2 * HEARTBEAT_S).min(secs / 6).max(2);
        now.since(self.heard[host]).secs() + slack >= secs
    }

    /// Returns whether a job exists and has not ended.
    pub(crate) fn is_unfinished(&self, id: JobId) -> bool {
        self.files.get(&id).is_some_and(|f| f.phase != Phase::Ended)
    }

    /// Returns whether a job has resources and has not ended.
    pub(crate) fn is_started(&self, id: JobId) -> bool {
        self.files.get(&id).is_some_and(|f| !matches!(f.phase, Phase::Pending | Phase::Ended))
    }

    /// Returns the recorded violation as an error, and clears it. Ok: there is none.
    pub(crate) fn check_over(&mut self) -> Result<(), Box<Violation>> {
        self.violation.take().map_or(Ok(()), Err)
    }

    /// Returns the jobs that have not ended.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = (JobId, &JobFile)> {
        self.files.iter().filter(|(_, f)| f.phase != Phase::Ended).map(|(&id, f)| (id, f))
    }
}
