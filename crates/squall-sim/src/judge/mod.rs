//! The judge: what must hold at every step, from what clients were told, what processes did and what is durable;
//! never from the machines' own word.

mod durable;
mod fabric;
mod lease;
mod limits;
pub(crate) mod process;
mod told;
mod wires;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use squall_model::config::NodeLostAction;
use squall_model::event::Record;
use squall_model::id::{JobId, NodeId, StepKey};
use squall_model::job::{ExitCode, JobAttempt, Outcome};
use squall_model::limits::HEARTBEAT_S;
use squall_model::policy::Policy;
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::wire::fabric::{UpFrame, Upward};

use crate::coverage::Phase;
use crate::world::Setup;
use fabric::Fabric;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What should have held.
    pub invariant: &'static str,
    /// What did not.
    pub details: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "violated: {}: {}", self.invariant, self.details)
    }
}

/// What is known of one job (not of array tasks that nothing happened to).
#[derive(Clone, Debug)]
pub(crate) struct JobFile {
    /// Which order it came from.
    pub(crate) order: usize,
    /// Its index in the array.
    pub(crate) index: Option<u32>,
    pub(crate) phase: Phase,
    /// The attempt that is durable.
    pub(crate) attempt: u32,
    pub(crate) nodes: NodeSet,
    pub(crate) left: NodeSet,
    pub(crate) outcome: Option<Outcome>,
    requeue: bool,
    pub(crate) started: Option<Time>,
    pub(crate) ended: Option<Time>,
    /// Steps of it that have live processes, over all nodes that were not given up.
    pub(crate) live: u32,
    pub(crate) live_attempt: u32,
    /// Attempts of which a process was seen.
    pub(crate) runs: u32,
    last_run: u32,
    pub(crate) first_process: Option<Time>,
    pub(crate) last_process_end: Option<Time>,
    pub(crate) process_started: Time,
    /// When its last attempt was started: its time limit counts from then on.
    limit_from: Time,
    /// How the last attempt's script or first step ended, by its process.
    pub(crate) truth: Option<ExitCode>,
    /// Nobody can know how it ended.
    pub(crate) unseen: bool,
    /// Somebody held, released, updated or requeued it, or a launch failed: its place in the queue may differ.
    pub(crate) touched: bool,
    /// Held, as its user was told.
    pub(crate) held: bool,
    /// Its user was told that it was cancelled, in this attempt: there must be no later one.
    pub(crate) cancelled: Option<u32>,
    pub(crate) requeue_sent: bool,
    /// It may run again though its attempt came to its end: it was put back after that, or its node lost how it ended.
    may_repeat: bool,
    /// Its attempt was suspended once: time spent so does not count.
    was_suspended: bool,
    /// It shares its cores.
    shares: bool,
    /// Whose place it was leased after, if its process has not been seen since.
    line: Option<lease::Line>,
    /// Its user was told that it is suspended.
    pub(crate) suspended: Option<Time>,
}

/// How many tasks of an order run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Width {
    pub(crate) live: u32,
    pub(crate) most: u32,
}

/// The judge.
#[derive(Debug)]
pub(crate) struct Judge {
    pub(crate) violation: Option<Box<Violation>>,
    /// What it holds is no more: a backup was restored.
    asleep: bool,
    pub(crate) files: BTreeMap<JobId, JobFile>,
    /// Durable submissions: first id, number of ids, order.
    pub(crate) submitted: BTreeMap<JobId, (u32, usize)>,
    /// Which id each order got, durably.
    pub(crate) ids: BTreeMap<usize, JobId>,
    /// Ids that clients were told.
    acknowledged: BTreeMap<JobId, usize>,
    /// Tasks of arrays that ended without ever being touched.
    pub(crate) skipped: BTreeMap<JobId, u32>,
    /// The last durable record.
    last_record: u64,
    launched: BTreeSet<(StepKey, usize)>,
    /// How processes ended: by step and node.
    exits: BTreeMap<(StepKey, usize), (ExitCode, bool)>,
    live: BTreeSet<(StepKey, usize)>,
    /// Processes that hid from their step daemon: by job and node.
    pub(crate) hidden: BTreeSet<(JobAttempt, usize)>,
    pub(crate) widths: BTreeMap<usize, Width>,
    names: Vec<String>,
    hosts: BTreeMap<NodeId, usize>,
    heard: Vec<Time>,
    /// Attempts on nodes that were silent for so long that policy gave them up, or that the operator gave up: what lives
    /// there does not count.
    given_up: BTreeSet<(JobAttempt, usize)>,
    /// Nodes that the operator set down: their jobs are lost by decision, whatever their processes do.
    down: BTreeSet<usize>,
    memory: Vec<u64>,
    /// None: silence alone gives up no job.
    node_lost_s: Option<u64>,
    kill_wait_s: u64,
    /// Time limits of orders, seconds.
    pub(crate) limits: BTreeMap<usize, u64>,
    /// The same as they were submitted: a wish to raise one may have been refused.
    pub(crate) first_limits: BTreeMap<usize, u64>,
    memory_mb: u64,
    census: [u64; Phase::ALL.len()],
    pub(crate) trouble_until: Time,
    /// When a job last started or ended.
    pub(crate) progress: Time,
    /// Records that recovery found and that were not known to be durable.
    found: Vec<Record>,
    waiting: BTreeMap<Shape, BTreeSet<JobId>>,
    /// Heterogeneous jobs: how many components each has, by the first.
    hets: BTreeMap<JobId, u32>,
    fabric: Fabric,
    /// What the operator set up, durably.
    pub(crate) policy: Policy,
    /// QOS, user and allocation of jobs that hold resources.
    holding: BTreeMap<JobId, limits::Held>,
    /// Whose job and under which QOS, by first id of a submission.
    asked: BTreeMap<JobId, (u32, String)>,
    /// Who has which links of the network.
    wires: wires::Wires,
    /// Nodes that let go of an attempt since the controller started.
    released: u64,
    leases: lease::Leases,
}

/// Jobs that ask for the same: among them the first to come is the first to start.
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
            asked: BTreeMap::new(),
            // That it can be read was found out when the story named it.
            wires: wires::Wires::new(setup.network().unwrap_or_default()),
            released: 0,
            leases: lease::Leases::new(&setup.config),
        }
    }

    /// Notes the first broken promise.
    pub(crate) fn violate(&mut self, invariant: &'static str, details: String) {
        if !self.asleep {
            self.violate_awake(invariant, details);
        }
    }

    /// From now on only what holds of a restored controller is judged.
    pub(crate) fn sleep(&mut self) {
        self.asleep = true;
    }

    /// Notes a broken promise that holds of a restored controller, too.
    pub(crate) fn violate_awake(&mut self, invariant: &'static str, details: String) {
        if self.violation.is_none() {
            self.violation = Some(Box::new(Violation { invariant, details }));
        }
    }

    /// A frame has reached the controller: which nodes that are in session answered a query? Those that are not are
    /// heard of when they are let in.
    pub(crate) fn heard(&mut self, now: Time, frame: &UpFrame) {
        for say in &frame.says {
            if let Upward::Tally { tally, .. } = say {
                for host in tally.answered().iter().filter_map(|node| self.host(node)).collect::<Vec<_>>() {
                    self.heard[host] = now;
                }
            }
        }
    }

    /// Steps that have processes, and where.
    pub(crate) fn live_steps(&self) -> &BTreeSet<(StepKey, usize)> {
        &self.live
    }

    /// Whether a job's end has been decided: what is left of it is killed after KillWait.
    pub(crate) fn is_ending(&self, id: JobId) -> bool {
        self.files.get(&id).is_some_and(|file| file.phase == Phase::Ending)
    }

    /// How many jobs are in each phase.
    pub(crate) fn census(&self) -> [u64; Phase::ALL.len()] {
        self.census
    }

    fn move_to(&mut self, id: JobId, phase: Phase) {
        if let Some(file) = self.files.get_mut(&id) {
            self.census[file.phase as usize] -= 1;
            self.census[phase as usize] += 1;
            file.phase = phase;
        }
    }

    /// The submission that an id belongs to: its first id and its order.
    pub(crate) fn submission_of(&self, id: JobId) -> Option<(JobId, usize)> {
        let (&first, &(count, order)) = self.submitted.range(..=id).next_back()?;
        (id.0 - first.0 < count).then_some((first, order))
    }

    /// The index of a node in the world.
    pub(crate) fn host(&self, node: NodeId) -> Option<usize> {
        self.hosts.get(&node).copied()
    }

    /// The node was silent for so long that its jobs may be given up, or the operator gave it up. The last answers of a
    /// node whose session ended meanwhile are not for the controller to count, so its silence may seem longer by the
    /// heartbeats that were under way.
    fn is_given_up(&self, host: usize, now: Time) -> bool {
        let silent = self.node_lost_s.is_some_and(|lost_s| {
            let slack = (2 * HEARTBEAT_S).min(lost_s / 6).max(2);
            now.since(self.heard[host]).secs() + slack >= lost_s
        });
        self.down.contains(&host) || silent
    }

    /// Whether the job is known and has not ended.
    pub(crate) fn is_unfinished(&self, id: JobId) -> bool {
        self.files.get(&id).is_some_and(|f| f.phase != Phase::Ended)
    }

    /// Whether the job has resources and has not ended.
    pub(crate) fn is_started(&self, id: JobId) -> bool {
        self.files.get(&id).is_some_and(|f| !matches!(f.phase, Phase::Pending | Phase::Ended))
    }

    /// The promise that was broken, if one was.
    pub(crate) fn check_over(&mut self) -> Result<(), Box<Violation>> {
        self.violation.take().map_or(Ok(()), Err)
    }

    /// Jobs that have not ended.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = (JobId, &JobFile)> {
        self.files.iter().filter(|(_, f)| f.phase != Phase::Ended).map(|(&id, f)| (id, f))
    }
}
