//! The simulated world: one heap of future events, and the machines that process them.

pub(crate) mod checkpoint;
pub(crate) mod client;
pub(crate) mod controller;
pub(crate) mod fence;
pub(crate) mod files;
pub(crate) mod filter;
pub(crate) mod follow;
pub(crate) mod gang;
pub(crate) mod hook;
pub(crate) mod members;
pub(crate) mod nemesis;
pub(crate) mod node;
pub(crate) mod perturb;
pub(crate) mod places;
pub(crate) mod power;
pub(crate) mod queried;
pub(crate) mod restore;
pub(crate) mod rooted;
pub(crate) mod step;
pub(crate) mod stopped;
pub(crate) mod tree;
pub(crate) mod viewer;
pub(crate) mod workload;

use std::collections::{BTreeMap, BTreeSet};

use squall_engine::node::ContentAct;
use squall_model::checkpoint::CheckpointOrder;
use squall_model::id::{JobId, StepKey};
use squall_model::job::JobAttempt;
use squall_model::power::PowerPhase;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::fabric::{Chunk, DownFrame, UpFrame};
use squall_model::wire::feed::FeedPage;
use squall_model::wire::hook::Hook;
use squall_model::wire::stepd::ToStepd;

use crate::agenda::Agenda;
use crate::coverage::{Coverage, Fault};
use crate::judge::{Judge, Violation};
use crate::mutation::Mutation;
use crate::network::Network;
use crate::peers::{Answer as EtcdAnswer, Etcd, Question as EtcdQuestion};
use crate::removals::Members;
use crate::seed::Seed;
use crate::setup::{BEGIN, Setup};
use crate::trace::{Origin, Trace, TraceLine};
use crate::world::client::Clients;
use crate::world::controller::ControllerHost;
use crate::world::follow::{Follower, Piece};
use crate::world::nemesis::Nemesis;
use crate::world::node::NodeHost;
use crate::world::restore::{Backup, Restoration};
use crate::world::tree::{Side, Tree};
use crate::world::viewer::Viewer;
use crate::world::workload::Workload;

/// A simulated event. `life`: start number of the daemon that it is for; the event is dropped if the daemon has ended
/// since.
#[derive(Debug)]
pub(crate) enum Happening {
    ControllerStart { of: usize, life: u64 },
    ControllerServe { of: usize, life: u64 },
    Turn { of: usize, life: u64 },
    Flushed { of: usize, life: u64 },
    ControllerTick { of: usize, life: u64 },
    Dialled { node: usize, life: u64, port: usize, tries: u32 },
    DialFails { node: usize, life: u64 },
    Accepted { hop: u64 },
    Up { hop: u64, frame: Box<UpFrame> },
    Down { hop: u64, frame: Box<DownFrame> },
    Beside { node: usize, life: u64, chunk: Box<Chunk> },
    Broken { hop: u64, side: Side },
    NodePower { node: usize, boot: u64 },
    NodeStart { node: usize, life: u64 },
    NodeTick { node: usize, life: u64 },
    GuardLooks { node: usize, boot: u64, job: JobAttempt },
    DaemonDies { node: usize, span: Span },
    NodeSlows { node: usize, times: u64, span: Span },
    StepFork { node: usize, life: u64, key: StepKey },
    StepReady { node: usize, boot: u64, key: StepKey },
    StepTell { node: usize, life: u64, key: StepKey, message: ToStepd },
    StepTick { node: usize, boot: u64, key: StepKey },
    StepDrained { node: usize, boot: u64, key: StepKey },
    StepSpoke { node: usize, life: u64, key: StepKey },
    StepHeeds { node: usize, life: u64, key: StepKey },
    ProcessEnds { node: usize, boot: u64, key: StepKey, rank: u32, turn: u32 },
    OrphanSeen { node: usize, life: u64, key: StepKey },
    Swept { node: usize, life: u64, job: JobAttempt },
    Dumped { node: usize, life: u64, order: Box<CheckpointOrder> },
    Restored { node: usize, boot: u64, key: StepKey },
    HookEnds { node: usize, life: u64, hook: Hook, job: Option<JobAttempt>, fails: bool },
    PowerProgramEnds { of: usize, life: u64, phase: PowerPhase, nodes: Box<NodeSet>, hosts: Vec<usize> },
    OnDisk { node: usize, life: u64, act: ContentAct },
    TaskWrites { node: usize, boot: u64, key: StepKey, rank: u32 },
    PieceArrives { order: usize, node: usize, key: StepKey, piece: Piece },
    LinkTries { order: usize, node: usize, key: StepKey },
    HangsUp { node: usize, boot: u64, key: StepKey },
    HungUp { node: usize, boot: u64, key: StepKey },
    FollowerLooks { order: usize },
    SlotBegins { node: usize, number: u64 },
    ClientTries { call: usize },
    Ask { caller: u64, request: Box<Request> },
    FilterDecides { of: usize, uid: u32, turn: u64 },
    ConnectionEnds { of: usize, life: u64, caller: u64 },
    Answer { caller: u64, answer: Box<Answer> },
    ClientBreaks { caller: u64 },
    ViewerCalls,
    ViewerSees { caller: u64, page: Box<FeedPage> },
    Work,
    MembersChange,
    KeysRotate,
    FaultStrikes,
    FaultEnds { which: usize },
    PeerTick { of: usize, life: u64 },
    AppendRetries { of: usize, life: u64 },
    CopyComes { of: usize, life: u64, first: u64 },
    EtcdAsked(Box<EtcdQuestion>),
    EtcdAnswers(Box<EtcdAnswer>),
    PeersStruck,
    DaemonStops { node: usize, span: Span },
    ControllerStops { span: Span },
    SessionsSeen,
}

/// State of a simulation: machines, network, users, faults and the judge.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) agenda: Agenda<Happening>,
    pub(crate) seed: Seed,
    /// Randomness of power saving, so that worlds without it are as they were.
    pub(crate) chance: Seed,
    pub(crate) setup: Setup,
    pub(crate) network: Network,
    /// The controllers. Only one of them leads; most worlds have only one.
    pub(crate) controllers: Vec<ControllerHost>,
    /// What several controllers share. None: there is one controller, which has its log for itself.
    pub(crate) etcd: Option<Etcd>,
    pub(crate) nodes: Vec<NodeHost>,
    pub(crate) tree: Tree,
    /// Pairs (node, daemon start number) with a registration that was accepted once. Only planted bugs use it.
    pub(crate) welcomed: BTreeSet<(usize, u64)>,
    pub(crate) clients: Clients,
    /// Each `srun` that waits for a step, by the index of its job order.
    pub(crate) followers: BTreeMap<usize, Follower>,
    /// A user who follows events. None: none does.
    pub(crate) viewer: Option<Viewer>,
    /// Copies of the controller's disk, in the order in which they were made.
    pub(crate) backups: Vec<Backup>,
    pub(crate) restoration: Option<Restoration>,
    pub(crate) judge: Judge,
    pub(crate) members: Members,
    pub(crate) workload: Option<Workload>,
    pub(crate) nemesis: Nemesis,
    /// Number of actions of all step daemons until one of them is killed. None: no kill is planned.
    pub(crate) step_dies_after_acts: Option<u32>,
    /// How many of a job's next restores are killed.
    pub(crate) restores_die: BTreeMap<JobId, u32>,
    /// How often parts of jobs have begun to run.
    pub(crate) talks: BTreeMap<JobAttempt, u64>,
    pub(crate) coverage: Coverage,
    pub(crate) trace: Trace,
    pub(crate) steps: u64,
}

impl World {
    /// Creates a world in which the controller and all nodes are about to start.
    pub(crate) fn new(setup: Setup, seed: u64) -> Self {
        let chance = Seed::new(seed ^ 0x0070_3e55);
        let mut seed = Seed::new(seed);
        let hardware = setup.hardware();
        let nodes: Vec<_> =
            setup.names.iter().enumerate().map(|(at, name)| NodeHost::new(at, name, &hardware, &mut seed)).collect();
        let mut world = Self {
            now: BEGIN,
            agenda: Agenda::new(),
            network: Network::new(nodes.len(), setup.controllers as usize),
            controllers: (0..setup.controllers).map(|of| ControllerHost::new(of as usize, setup.mutation)).collect(),
            etcd: (setup.controllers > 1).then(Etcd::default),
            judge: Judge::new(&setup),
            nodes,
            tree: Tree::new(setup.tree_width),
            welcomed: BTreeSet::new(),
            clients: Clients::default(),
            followers: BTreeMap::new(),
            viewer: None,
            backups: Vec::new(),
            restoration: None,
            members: Members::default(),
            workload: None,
            nemesis: Nemesis::default(),
            step_dies_after_acts: None,
            restores_die: BTreeMap::new(),
            talks: BTreeMap::new(),
            coverage: Coverage::default(),
            trace: Trace::new(setup.trace),
            steps: 0,
            seed,
            chance,
            setup,
        };
        for of in 0..world.controllers.len() {
            world.start_controller(of, Span(0));
        }
        for node in 0..world.nodes.len() {
            if world.setup.config.is_cloud(&world.nodes[node].name) {
                world.nodes[node].powered = false;
            } else {
                world.start_node(node, Span(0));
            }
        }
        world
    }

    /// Returns whether the simulation runs with this planted bug.
    pub(crate) fn is_planted(&self, mutation: Mutation) -> bool {
        self.setup.mutation == Some(mutation)
    }

    /// Returns whether this bug is planted and takes effect now: at random, in one of `n` cases.
    pub(crate) fn mutates(&mut self, mutation: Mutation, n: u64) -> bool {
        self.is_planted(mutation) && self.seed.below(n) == 0
    }

    /// Schedules an event after a time span.
    pub(crate) fn after(&mut self, span: Span, what: Happening) {
        self.agenda.at(self.now + span, what);
    }

    /// Adds a line to the trace.
    pub(crate) fn say(&mut self, who: Origin, what: &'static str, job: u32, number: u64) {
        let time = Time(self.now.0 - BEGIN.0);
        self.trace.say(TraceLine { time, who, what, job, number });
    }

    /// Records a fault, with the phases of all jobs at this time.
    pub(crate) fn strike(&mut self, fault: Fault, number: u64) {
        self.coverage.strike(fault, self.judge.census());
        self.say(Origin::Fault, fault.name(), 0, number);
    }

    /// Runs events until the time `until` or a violation.
    pub(crate) fn run_until(&mut self, until: Time) -> Result<(), Box<Violation>> {
        while let Some((time, what)) = self.agenda.pop(until) {
            self.now = time;
            self.steps += 1;
            self.happen(what);
            if let Some(violation) = self.judge.violation.take() {
                return Err(violation);
            }
        }
        self.now = self.now.max(until);
        Ok(())
    }

    fn happen(&mut self, what: Happening) {
        if let Some(until) = self.waits_until(&what) {
            return self.agenda.at(until, what);
        }
        match what {
            Happening::ControllerStart { of, life } => self.controller_starts(of, life),
            Happening::ControllerServe { of, life } => self.controller_serves(of, life),
            Happening::Turn { of, life } => self.controller_turn(of, life),
            Happening::Flushed { of, life } => self.flushed(of, life),
            Happening::ControllerTick { of, life } => self.controller_tick(of, life),
            Happening::Dialled { node, life, port, tries } => self.dialled(node, life, port, tries),
            Happening::DialFails { node, life } => self.dial_fails(node, life),
            Happening::Accepted { hop } => self.accepted(hop),
            Happening::Beside { node, life, chunk } => self.beside_arrives(node, life, *chunk),
            Happening::Up { hop, frame } => self.up_arrives(hop, frame),
            Happening::Down { hop, frame } => self.down_arrives(hop, frame),
            Happening::Broken { hop, side } => self.broken(hop, side),
            Happening::NodePower { node, boot } => self.node_boots(node, boot),
            Happening::NodeStart { node, life } => self.node_starts(node, life),
            Happening::NodeTick { node, life } => self.node_tick(node, life),
            Happening::GuardLooks { node, boot, job } => self.guard_looks(node, boot, job),
            Happening::DaemonDies { node, span } => self.daemon_dies(node, span),
            Happening::NodeSlows { node, times, span } => self.slow_node(node, times, Fault::NodeSlow, span),
            Happening::StepFork { node, life, key } => self.step_forks(node, life, key),
            Happening::StepReady { node, boot, key } => self.step_ready(node, boot, key),
            Happening::StepTell { node, life, key, message } => self.step_told(node, life, key, message),
            Happening::StepTick { node, boot, key } => self.step_tick(node, boot, key),
            Happening::StepDrained { node, boot, key } => self.step_drained(node, boot, key),
            Happening::StepSpoke { node, life, key } => self.step_spoke(node, life, key),
            Happening::StepHeeds { node, life, key } => self.step_heeds(node, life, key),
            Happening::ProcessEnds { node, boot, key, rank, turn } => self.process_ends(node, boot, key, rank, turn),
            Happening::OrphanSeen { node, life, key } => self.orphan_seen(node, life, key),
            Happening::Swept { node, life, job } => self.swept(node, life, job),
            Happening::Dumped { node, life, order } => self.dumped(node, life, &order),
            Happening::Restored { node, boot, key } => self.restored(node, boot, key),
            Happening::HookEnds { node, life, hook, job, fails } => self.hook_ends(node, life, hook, job, fails),
            Happening::PowerProgramEnds { of, life, phase, nodes, hosts } => {
                self.power_program_ends((of, life), phase, *nodes, &hosts);
            }
            Happening::OnDisk { node, life, act } => self.on_disk(node, life, act),
            Happening::TaskWrites { node, boot, key, rank } => self.task_may_write(node, boot, key, rank),
            Happening::PieceArrives { order, node, key, piece } => self.piece_arrives(order, node, key, piece),
            Happening::LinkTries { order, node, key } => self.link_tries(order, node, key),
            Happening::HangsUp { node, boot, key } => self.hang_up(node, boot, key),
            Happening::HungUp { node, boot, key } => self.srun_is_gone(node, boot, key),
            Happening::FollowerLooks { order } => self.follower_looks(order),
            Happening::SlotBegins { node, number } => self.slot_begins(node, number),
            Happening::ClientTries { call } => self.client_tries(call),
            Happening::Ask { caller, request } => self.ask_arrives(caller, request),
            Happening::FilterDecides { of, uid, turn } => self.filter_decides(of, uid, turn),
            Happening::ConnectionEnds { of, life, caller } => self.connection_ends(of, life, caller),
            Happening::Answer { caller, answer } => self.answer_arrives(caller, *answer),
            Happening::ClientBreaks { caller } => self.client_breaks(caller),
            Happening::ViewerCalls => self.viewer_calls(),
            Happening::ViewerSees { caller, page } => self.viewer_sees(caller, &page),
            Happening::Work => self.work(),
            Happening::MembersChange => self.members_change(),
            Happening::KeysRotate => drop(self.wish(client::Wish::Rotate)),
            Happening::FaultStrikes => self.fault_strikes(),
            Happening::FaultEnds { which } => self.fault_ends(which),
            Happening::PeerTick { of, life } => self.peer_tick(of, life),
            Happening::AppendRetries { of, life } => self.append_retries(of, life),
            Happening::CopyComes { of, life, first } => self.copy_comes(of, life, first),
            Happening::EtcdAsked(question) => self.etcd_asked(question),
            Happening::EtcdAnswers(answer) => self.etcd_answers(*answer),
            Happening::PeersStruck => self.peers_struck(),
            Happening::DaemonStops { node, span } => self.stop_daemon(node, span),
            Happening::ControllerStops { span } => self.stop_controller(span),
            Happening::SessionsSeen => self.see_sessions(),
        }
    }
}
