//! Wire-up of MPI programs: by it the ranks of a step find each other. The step daemon is the PMIx server and PMI
//! server of its tasks, and exchanges data with the step daemons of the other nodes for them.
//!
//! A step that needs no wire-up pays for a few sockets only. libpmix is loaded when the first task connects, or
//! earlier, while tasks that will need it are being started.

mod gate;
mod linked;
mod mesh;
mod pmi;
mod pmix;
mod trial;
mod variables;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::thread::set_current_timer_slack;
use squall_engine::machine::Machine;
use squall_engine::wireup::exchange::{Exchange, ExchangeAct, ExchangeInput};
use squall_model::encoding::ByteBuf;
use squall_model::id::NodeId;
use squall_model::job::ExitCode;
use squall_model::set::IndexSet;
use squall_model::step::{Program, StepLaunch};
use squall_model::wire::peer::{Fault, Notice, PeerMessage, What};

use super::environment::Environment;
use super::frames::Frames;
use crate::poller::Interest;
use crate::removal::remove_soon;
use crate::sys::clock::steady;
use crate::sys::pmix::{DoneReply, Event, GroupReply, LookupReply, ModexReply, Verdict};
use gate::Gate;
use linked::Linked;
use mesh::{Heard, Kinship, Manner, Mesh, Way, is_yes, said};
use pmi::PmiTasks;
use pmix::PmixServer;
pub(super) use pmix::is_shared_folder;
use trial::Trials;
pub(super) use variables::clear;

/// Whether a program is linked with an MPI library, as far as its file shows.
pub(super) fn is_linked_with_mpi(program: &std::path::Path) -> bool {
    Linked::of(program) != Linked::default()
}

/// Timer slack of tasks of Open MPI where they share CPUs, nanoseconds. A process that waits in MPI_Init repeatedly
/// sleeps for 0.1 ms: with a hundred of them on two CPUs that took half of the CPU time.
const SLACK_NS: u64 = 1_000_000;

/// Environment variable with which the user has the counters of the data exchange reported at the end of the step.
const STATS: &str = "SQUALL_WIREUP_STATS";

/// A result of wire-up for the step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Whether any task here has begun to use PMIx or PMI and not finished.
    Within(bool),
    /// The step has to end with this exit code.
    Abort {
        /// Exit code of the step.
        code: u8,
        /// The reason, for the user.
        text: String,
    },
    /// A warning for the user.
    Notice(String),
    /// Text with measured figures that the user has asked for.
    Report(String),
    /// Text from a task for the user.
    Log {
        /// The task's rank.
        rank: u32,
        /// Whether the text goes to standard error.
        stderr: bool,
        /// The text to pass on.
        text: String,
    },
}

/// The descriptor of wire-up to which a poll event belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Port {
    Gate,
    Bell,
    Pmi(usize),
    Mesh(usize),
}

/// The caller that waits for an answer of the exchange between step daemons.
#[derive(Debug)]
pub(super) enum Waiter {
    Pmi,
    Fence(ModexReply),
    Ask(ModexReply),
    Connect(DoneReply),
    Group(GroupReply, bool),
    Board(DoneReply),
    Lookup(LookupReply),
    /// A task (rank) using PMI that publishes or looks up a name.
    Name(u32),
    Trial,
}

/// State of the wire-up (PMIx and PMI) of the tasks on this node.
#[derive(Debug)]
pub(super) struct Wireup {
    launch: StepLaunch,
    exchange: Exchange,
    /// Connections to the other step daemons. None: the step has one node.
    mesh: Option<Mesh>,
    pmi: PmiTasks,
    gate: Gate,
    pmix: PmixServer,
    waiters: BTreeMap<u64, Waiter>,
    /// Requests of other nodes for data of ranks on this node, by the ticket given to libpmix: index of the asking
    /// node, and that node's own ticket.
    served: BTreeMap<u64, (u32, u64)>,
    tickets: u64,
    standing: Standing,
    words: Vec<Word>,
    /// Whether connections to other step daemons are made before there is a message to send.
    early: bool,
    /// Number of events of ranks here that were sent to other nodes.
    events: u64,
    stats: bool,
    trials: Trials,
    /// Libraries with which the tasks' programs are linked.
    linked: Linked,
    /// Started tasks of this node: rank and process id.
    tasks: Vec<(u32, u32)>,
    /// The step's nodes by their index in the step; used if messages go through the tree.
    nodes: Vec<NodeId>,
}

/// Whether the step daemons of a step exchange messages through the tree of nodes.
pub(crate) fn speaks_by_tree(launch: &StepLaunch) -> bool {
    match &launch.program {
        Program::Tasks(program) if launch.layout.nodes.len() > 1 => {
            manner_of(launch, &Environment::parse(&program.env)).way == Way::Tree
        }
        _ => false,
    }
}

/// Returns how the step daemons of a step exchange messages. Checkpoints that contain the step can contain only what goes by
/// TCP.
fn manner_of(launch: &StepLaunch, env: &Environment) -> Manner {
    let manner = Manner::of(env);
    if launch.is_inside() { Manner { way: Way::Tcp, ucx: false, ..manner } } else { manner }
}

/// Returns the nodes of a step, ordered by their index in the step.
fn nodes_of(launch: &StepLaunch) -> Vec<NodeId> {
    let ids: BTreeMap<String, NodeId> = launch.facts.nodes.names().into_iter().zip(launch.facts.in_order()).collect();
    launch.layout.nodes.names().iter().map(|name| ids.get(name).copied().unwrap_or_default()).collect()
}

/// Removes what a killed step daemon has left in shared memory.
pub(crate) fn sweep_up(launch: &StepLaunch) {
    if let Some(shared) = shared_folder_of(launch) {
        remove_soon(&shared);
    }
}

/// Returns the folder of a step in shared memory, if it is there.
pub(super) fn shared_folder_of(launch: &StepLaunch) -> Option<PathBuf> {
    let Program::Tasks(program) = &launch.program else { return None };
    let shared = pmix::shared_folder(&Kinship::of(launch, program), launch);
    shared.symlink_metadata().is_ok().then_some(shared)
}

/// Progress of tasks in PMIx or PMI.
#[derive(Debug, Default)]
struct Standing {
    /// Ranks that have connected to PMIx or PMI at some time.
    spoke: BTreeSet<u32>,
    /// Ranks that have connected to PMIx or PMI, and not finished using it.
    within: BTreeSet<u32>,
    /// Ranks with processes that have ended without connecting to PMIx or PMI.
    silent: BTreeSet<u32>,
    /// Signals that were sent to the tasks: a task that is ended by one of them has not failed.
    sent: BTreeSet<i32>,
    aborted: bool,
}

impl Wireup {
    /// Opens wire-up for the tasks of a step. None: the step has no tasks, or the user wants none.
    pub(super) fn new(launch: &StepLaunch, srun: Option<&Frames>) -> io::Result<Option<Self>> {
        let Program::Tasks(program) = &launch.program else { return Ok(None) };
        if variables::is_refused(program) {
            return Ok(None);
        }
        let env = Environment::parse(&program.env);
        let manner = manner_of(launch, &env);
        let kinship = Kinship::of(launch, program);
        let several = launch.layout.nodes.len() > 1;
        let mut mesh = several.then(|| Mesh::open(kinship.clone(), manner, srun)).transpose()?;
        let mut words = Vec::new();
        if let Some(Err(why)) = mesh.as_mut().filter(|_| manner.ucx).map(|mesh| mesh.hasten(&env.beginning("UCX_"))) {
            words.push(Word::Notice(format!("no UCX between the step daemons on {}: {why}", launch.node)));
        }
        Ok(Some(Self {
            exchange: Exchange::new(launch.node_index, launch.layout.clone(), manner.patience, manner.shape),
            mesh,
            pmi: PmiTasks::new(launch),
            gate: Gate::open(rustix::process::geteuid().as_raw(), launch.ranks().len())?,
            pmix: PmixServer::open(launch, &kinship)?,
            launch: launch.clone(),
            waiters: BTreeMap::new(),
            served: BTreeMap::new(),
            tickets: 0,
            standing: Standing::default(),
            words,
            early: manner.early,
            events: 0,
            stats: said(&env, STATS).is_some_and(|value| is_yes(&value)),
            trials: Trials::of(&env),
            linked: Linked::default(),
            tasks: Vec::new(),
            nodes: if manner.way == Way::Tree { nodes_of(launch) } else { Vec::new() },
        }))
    }

    /// Sets the environment variables that all tasks share. `programs`: the files that the tasks execute.
    pub(super) fn equip(&mut self, env: &mut Environment, programs: impl Iterator<Item = PathBuf>) {
        self.linked = programs.map(|program| Linked::of(&program)).fold(Linked::default(), Linked::or);
        clear(env);
        env.lay(variables::shared(
            &self.launch,
            self.pmix.nspace(),
            &self.gate.address().to_string(),
            self.pmix.folder(),
        ));
        let far = self.mesh.as_ref().is_some_and(Mesh::is_far);
        variables::advise(env, &self.launch, self.pmix.folder(), (self.linked, far));
        if (self.linked.mpi || self.linked.shmem) && variables::is_crowded(&self.launch) {
            // Tasks inherit it.
            let _ = set_current_timer_slack(NonZeroU64::new(SLACK_NS));
        }
    }

    /// Sets the environment variables of one task; returns its end of the socket for PMI.
    pub(super) fn equip_task(&mut self, env: &mut Environment, rank: u32) -> io::Result<OwnedFd> {
        env.lay(variables::own(rank));
        self.pmi.add(rank)
    }

    /// Handles the start of the tasks (rank and process id). Loads libpmix if they will need it, so that they need not
    /// wait for it later.
    pub(super) fn started(&mut self, tasks: Vec<(u32, u32)>) {
        self.tasks = tasks;
        let _ = set_current_timer_slack(None);
        if self.linked.mpi || self.linked.shmem {
            self.pmix.prepare(&self.launch);
        }
        let early = self.early && self.linked != Linked::default();
        if let (true, Some(place), Some(mesh)) = (early, self.exchange.upstream(), &mut self.mesh) {
            mesh.meet(place);
        }
        if self.mesh.is_some() {
            self.go_on_trying();
        }
    }

    /// Returns the descriptors to poll, with the events to wait for.
    pub(super) fn interests(&self) -> impl Iterator<Item = Interest<'_, Port>> {
        let mesh = self.mesh.iter().flat_map(Mesh::interests).enumerate();
        let mesh = mesh.map(|(at, interest)| interest.with(Port::Mesh(at)));
        let gate = Interest::new(Port::Gate, self.gate.interest(), Some(PollFlags::IN));
        std::iter::once(gate).chain(self.pmix.interests()).chain(self.pmi.interests()).chain(mesh)
    }

    /// Handles a ready descriptor.
    pub(super) fn handle(&mut self, port: Port) {
        match port {
            Port::Gate => self.pass(),
            Port::Bell => self.serve_pmix(),
            Port::Pmi(at) => {
                let acts = self.pmi.handle(at);
                self.do_pmi(acts);
            }
            Port::Mesh(at) => {
                let heard = self.mesh.as_mut().map(|mesh| mesh.handle(at)).unwrap_or_default();
                self.hear(heard);
            }
        }
    }

    /// Removes connections that have ended, retries those that are due, and applies the exchange's time limits. Indexes
    /// of ports are different afterwards.
    pub(super) fn turn(&mut self) {
        if let Some(mesh) = &mut self.mesh {
            mesh.sweep();
        }
        // Repeated until nothing arrives, as handling a message may have sent another.
        while let Some(heard) = self.mesh.as_mut().map(Mesh::tick).filter(|heard| !heard.is_empty()) {
            self.hear(heard);
        }
        self.pmi.sweep();
        self.gate.expire();
        if self.exchange.deadline().is_some_and(|at| at <= steady()) {
            self.feed(ExchangeInput::Tick);
        }
    }

    /// Returns the time at which `turn` must be called next; None: nothing is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let exchange = self.exchange.deadline().map(|at| Instant::now() + Duration::from_micros(at.since(steady()).0));
        exchange.into_iter().chain(self.mesh.as_ref().and_then(Mesh::deadline)).chain(self.gate.deadline()).min()
    }

    /// Handles a message from the step daemon of another machine, relayed by `srun`.
    pub(super) fn passed(&mut self, place: u32, message: PeerMessage) {
        if !matches!(message, PeerMessage::Hello { .. }) {
            self.hear(Heard { messages: vec![(place, message)], lost: Vec::new() });
        }
    }

    /// Takes the messages that `srun` has to relay to step daemons of other machines.
    pub(super) fn passes(&mut self) -> Vec<(u32, PeerMessage)> {
        self.mesh.as_mut().map(Mesh::passes).unwrap_or_default()
    }

    /// Handles a message from the step daemon of another node, received through the tree.
    pub(super) fn received(&mut self, from: NodeId, message: PeerMessage) {
        if let Some(place) = self.nodes.iter().position(|&node| node == from) {
            self.passed(place as u32, message);
        }
    }

    /// Takes the messages to be sent through the tree.
    pub(super) fn letters(&mut self) -> Vec<(NodeId, PeerMessage)> {
        let letters = self.mesh.as_mut().map(Mesh::letters).unwrap_or_default().into_iter();
        letters.filter_map(|(place, message)| Some((*self.nodes.get(place as usize)?, message))).collect()
    }

    /// Takes the results for the step.
    pub(super) fn words(&mut self) -> Vec<Word> {
        std::mem::take(&mut self.words)
    }

    /// Handles the end of a task's process.
    pub(super) fn ended(&mut self, rank: u32, exit: ExitCode) {
        // Its last messages may not have been read.
        self.serve_pmix();
        self.turn();
        if self.standing.sent.contains(&i32::from(exit.signal)) {
            return;
        }
        if self.standing.within.contains(&rank) {
            let how = match exit {
                ExitCode { signal: 0, code } => format!("with exit code {code}"),
                ExitCode { signal, .. } => format!("by signal {signal}"),
            };
            let code = if exit.is_ok() { 1 } else { exit.shell_status() as u8 };
            let text = format!("task {rank} ended {how} after MPI_Init and before MPI_Finalize: the step is ended");
            self.abort(code, text);
        } else if !self.standing.spoke.contains(&rank) {
            self.standing.silent.insert(rank);
            self.judge_silent();
        }
    }

    /// Ends the step if a task has ended without connecting while others wait for it.
    fn judge_silent(&mut self) {
        if let (Some(rank), Some(other)) = (self.standing.silent.first(), self.standing.within.first()) {
            let text = format!("task {rank} ended before MPI_Init, while task {other} waits for it: the step is ended");
            self.abort(1, text);
        }
    }

    /// Records a signal that is sent to the tasks.
    pub(super) fn signalled(&mut self, signal: i32) {
        self.standing.sent.insert(signal);
    }

    fn abort(&mut self, code: u8, text: String) {
        if !std::mem::replace(&mut self.standing.aborted, true) {
            self.words.push(Word::Abort { code, text });
        }
    }

    fn greeted(&mut self, rank: u32) {
        self.standing.spoke.insert(rank);
        if self.standing.within.is_empty() {
            self.words.push(Word::Within(true));
        }
        self.standing.within.insert(rank);
        self.judge_silent();
    }

    fn finalized(&mut self, rank: u32) {
        if self.standing.within.remove(&rank) && self.standing.within.is_empty() {
            self.words.push(Word::Within(false));
        }
    }

    fn hear(&mut self, heard: Heard) {
        for (place, message) in heard.messages {
            match message {
                PeerMessage::Endpoint { tcp, ucx } => {
                    if let Some(mesh) = &mut self.mesh {
                        mesh.introduced(place, &tcp, &ucx);
                    }
                }
                message @ (PeerMessage::Ping { .. } | PeerMessage::Pong { .. }) => self.echo(place, message),
                PeerMessage::Event { code, source, range, details } => {
                    let details = details.into_iter().map(ByteBuf::into_vec).collect();
                    self.pass_on(&Event { code, source, range, details });
                }
                message => self.feed(ExchangeInput::Peer { place, message }),
            }
        }
        for place in heard.lost {
            self.feed(ExchangeInput::Lost { place });
        }
    }

    fn join(&mut self, waiter: Waiter, what: What, ranks: IndexSet, data: Vec<u8>) {
        let ticket = self.wait(waiter);
        self.feed(ExchangeInput::Join { ticket, what, ranks, data });
    }

    fn wait(&mut self, waiter: Waiter) -> u64 {
        self.tickets += 1;
        self.waiters.insert(self.tickets, waiter);
        self.tickets
    }

    fn feed(&mut self, input: ExchangeInput) {
        let mut queue = VecDeque::from([input]);
        while let Some(input) = queue.pop_front() {
            let mut acts = Vec::new();
            self.exchange.step(steady(), input, &mut acts);
            for act in acts {
                match act {
                    ExchangeAct::Send { place, message } => match &mut self.mesh {
                        Some(mesh) => mesh.send(place, message),
                        None => queue.push_back(ExchangeInput::Lost { place }),
                    },
                    ExchangeAct::Serve { place, ticket, rank } => self.serve(place, ticket, rank, &mut queue),
                    ExchangeAct::Joined { ticket, result } => self.joined(ticket, result),
                    ExchangeAct::Answer { ticket, result } => self.answered(ticket, result),
                    ExchangeAct::Found { ticket, result } => self.found(ticket, result),
                }
            }
        }
    }

    fn joined(&mut self, ticket: u64, result: Result<(Vec<u8>, u64), Fault>) {
        match self.waiters.remove(&ticket) {
            Some(Waiter::Pmi) => {
                self.judge_gathering(&result);
                let acts = self.pmi.gathered(result.as_ref().map(|(data, _)| &data[..]).map_err(|_| ()));
                self.do_pmi(acts);
            }
            Some(Waiter::Trial) if result.is_ok() => self.go_on_trying(),
            Some(waiter) => {
                if matches!(waiter, Waiter::Fence(_)) {
                    self.judge_gathering(&result);
                }
                pmix::tell_joined(waiter, result);
            }
            None => {}
        }
    }

    /// Ends the step if a fence fails, as some tasks may wait forever then.
    fn judge_gathering(&mut self, result: &Result<(Vec<u8>, u64), Fault>) {
        if let Err(fault) = result {
            self.abort(1, format!("tasks waited for each other in vain: {}: the step is ended", pmix::reason(*fault)));
        }
    }

    fn answered(&mut self, ticket: u64, result: Result<Vec<u8>, Fault>) {
        match (self.waiters.remove(&ticket), result) {
            (Some(Waiter::Ask(reply)), result) => reply.answer(result.map_err(pmix::verdict)),
            (Some(Waiter::Board(reply)), Err(fault)) => reply.answer(pmix::verdict(fault)),
            (Some(Waiter::Lookup(reply)), Err(fault)) => reply.answer(Err(pmix::verdict(fault))),
            (Some(Waiter::Name(rank)), Err(_)) => self.named(rank, Err(())),
            _ => {}
        }
    }

    fn found(&mut self, ticket: u64, result: Result<Vec<Notice>, Fault>) {
        match self.waiters.remove(&ticket) {
            Some(Waiter::Board(reply)) => reply.answer(result.err().map_or(Verdict::Well, pmix::verdict)),
            Some(Waiter::Name(rank)) => self.named(rank, result.as_deref().map_err(|_| ())),
            Some(Waiter::Lookup(reply)) => {
                let values = |found: Vec<Notice>| found.into_iter().map(|n| (n.owner, n.value.into_vec())).collect();
                reply.answer(result.map(values).map_err(pmix::verdict));
            }
            _ => {}
        }
    }

    /// Whether libpmix is loaded: then the process must exit without the usual clean-up.
    pub(super) fn has_threads(&self) -> bool {
        self.pmix.is_loaded()
    }

    /// Whether the next step will probably need libpmix.
    pub(super) fn wants_library(&self) -> bool {
        self.linked != Linked::default()
    }

    /// Handles the end of all tasks: removes what was made for them, and reports.
    pub(super) fn close(&mut self) {
        let alone = self.standing.spoke.is_empty() && self.standing.sent.is_empty() && self.launch.layout.ntasks() > 1;
        if alone && self.linked != Linked::default() && self.launch.node_index == 0 {
            let text = "the program is linked with MPI, but no task has asked for the others: each has run alone";
            self.words.push(Word::Notice(text.to_owned()));
        }
        if self.stats {
            let (stats, traffic) = (self.exchange.stats(), self.mesh.as_ref().map(Mesh::traffic).unwrap_or_default());
            let (node, events) = (&self.launch.node, self.events);
            self.words.push(Word::Report(format!("wireup on {node}: {stats:?} {traffic:?} events: {events}")));
        }
        self.pmix.close();
    }

    /// Whether all messages were sent.
    pub(super) fn is_flushed(&self) -> bool {
        self.mesh.as_ref().is_none_or(Mesh::is_flushed)
    }
}
