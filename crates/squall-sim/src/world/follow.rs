//! Simulated `srun` and the output of its step: links from step daemons, frames held up by a network cut, the final
//! report.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use squall_engine::step::{Delivery, Heard, StepInput};
use squall_model::encoding::ByteBuf;
use squall_model::id::{ClientKey, StepKey};
use squall_model::job::Outcome;
use squall_model::step::{
    ClientAddress, FirstStep, FromStep, Layout, Program, RankSet, StepLaunch, StepSpec, TaskProgram,
};
use squall_model::time::{Span, Time};
use squall_model::wire::client::Request;

use crate::mutation::Mutation;
use crate::world::client::Wish;
use crate::world::client::order_of;
use crate::world::{Happening, World};

/// Retry interval for frames held up by a network cut, and interval at which `srun` checks whether its step and links
/// have ended.
const AGAIN: Span = Span::from_millis(500);

/// Keepalive timeout: after the step's end a side gives up a link on which nothing has arrived for this long. It sends
/// a probe every 10 s.
const PROBED: Span = Span::from_secs(130);

/// Timeout after which a kernel gives up unacknowledged data.
const UNACKNOWLEDGED: Span = Span::from_secs(900);

/// Maximum number of frames that a link queues during a network cut.
const BACKLOG: usize = 3;

/// A frame from a step daemon to its `srun`, of which the simulation keeps only the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A piece of output of the task with this rank.
    Output(u32),
    /// The task with this rank has ended.
    Ended(u32),
    /// The step daemon's final message, after which it sends nothing more.
    Done,
    /// The step daemon's end of the link was closed.
    Closed,
}

/// The link between a step daemon and its `srun`.
#[derive(Debug)]
struct Wire {
    key: StepKey,
    boot: u64,
    /// Frames that were not delivered yet, oldest first.
    queue: VecDeque<Piece>,
    /// Time since which delivery has failed. None: it has not.
    stalled: Option<Time>,
    tries: bool,
    /// Arrival time of the last frame in flight.
    last: Time,
    /// State of the output's delivery over the link, as far as `srun` has received it.
    delivery: Delivery,
    /// Time since which keepalive probes of `srun` have had no answer. None: they are answered.
    dark: Option<Time>,
    /// Whether the step daemon's kernel has given the link up. It then answers a probe with a reset.
    reset: bool,
    /// Whether output may be lost. Causes: a kill, a power loss, too long a network cut, an order to end the step.
    broken: bool,
}

/// A simulated `srun` and its step.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    cookie: [u8; 16],
    /// Ranks of the step's tasks on each node.
    ranks: BTreeMap<usize, Vec<u32>>,
    wires: BTreeMap<usize, Wire>,
    /// Number of output pieces that each rank has written.
    written: BTreeMap<u32, u64>,
    /// Number of output pieces of each rank that arrived at `srun`.
    read: BTreeMap<u32, u64>,
    ended: BTreeSet<u32>,
    /// When `srun` was notified of the step's end, and whether the step was cancelled. None: the step has not ended.
    done: Option<(Time, bool)>,
    /// Whether the controller has refused a query about the step, which is then not repeated.
    pub(crate) refused: bool,
    looks: bool,
}

impl Follower {
    /// Records which ranks of the step run on which node, from its layout.
    fn created(&mut self, layout: &Layout, names: &[String]) {
        for (at, name) in layout.nodes.names().iter().enumerate() {
            if let Some(host) = names.iter().position(|known| known == name) {
                self.ranks.insert(host, layout.ranks_on(at));
            }
        }
    }

    fn heard(&self, now: Time, owner: bool) -> Heard {
        Heard {
            nodes: (!self.ranks.is_empty()).then_some(self.ranks.len()),
            all_ended: self.ranks.values().flatten().all(|rank| self.ended.contains(rank)),
            done: self.done.map(|(at, ended)| (now.since(at), ended)),
            owner,
            lost: false,
            idle: true,
        }
    }
}

/// Returns the job order that a launch belongs to, and the cookie that its step daemon must present. None: no `srun`
/// waits for the step.
fn cookie_of(launch: &StepLaunch) -> Option<(usize, [u8; 16])> {
    let Program::Tasks(program) = &launch.program else { return None };
    Some((order_of(launch)?, program.cookie))
}

/// The `srun` side of the links.
impl World {
    /// Returns the request of a job order's next step. None: it has no job yet.
    pub(crate) fn step_request(&self, order: usize) -> Option<Request> {
        let job = self.clients.placed[order].id?;
        let FirstStep { spec, program, key } = *self.first_step(order);
        Some(Request::CreateStep { job, spec: Box::new(spec), program: Box::new(program), key })
    }

    /// Opens the socket at which an `srun` listens for its step daemons, before it requests its step.
    pub(crate) fn listen_for(&mut self, call: usize) {
        let (Wish::Step { order } | Wish::Own { order }) = self.clients.calls[call].wish else { return };
        let asked = &self.clients.placed[order].order;
        if asked.steps > 0 && matches!(self.clients.calls[call].wish, Wish::Step { .. }) || asked.comes_with_step() {
            let cookie = self.first_step(order).program.cookie;
            self.listen(order, cookie);
        }
    }

    /// Returns the request for the next step of a job order. An srun may send it together with the request for its job.
    pub(crate) fn first_step(&self, order: usize) -> Box<FirstStep> {
        let placed = &self.clients.placed[order];
        let spec = StepSpec {
            name: format!("step{}", placed.steps_done),
            submit_line: "srun".into(),
            time_limit_s: placed.order.step_limit_s,
            ..StepSpec::default()
        };
        let step = 1 + u128::from(placed.steps_done) + (u128::from(placed.attempt.0) << 8);
        let key = ClientKey(self.key(order, 1).0 + step);
        let program = TaskProgram {
            client: ClientAddress::Tcp("login:1".into()),
            cookie: key.0.to_le_bytes(),
            commands: vec![(RankSet::All, vec![ByteBuf::from(b"/bin/sim".to_vec())])],
            work_dir: ByteBuf::from(b"/".to_vec()),
            ..TaskProgram::default()
        };
        Box::new(FirstStep { spec, program, key })
    }

    /// Opens the listening side of an `srun`, which requests its step.
    pub(crate) fn listen(&mut self, order: usize, cookie: [u8; 16]) {
        if self.followers.get(&order).is_none_or(|known| known.cookie != cookie) {
            self.forsake(order);
            self.followers.insert(order, Follower { cookie, ..Follower::default() });
        }
    }

    /// Handles the controller's report that the step exists.
    pub(crate) fn step_created(&mut self, order: usize, layout: &Layout) {
        if let Some(follower) = self.followers.get_mut(&order) {
            follower.created(layout, &self.setup.names);
            self.looks_soon(order);
        }
    }

    /// Handles the controller's report that the step has ended. `outcome` None: the controller has no record of the
    /// step.
    pub(crate) fn step_done(&mut self, order: usize, outcome: Option<&Outcome>) {
        let now = self.now;
        let Some(follower) = self.followers.get_mut(&order).filter(|follower| !follower.ranks.is_empty()) else {
            return self.followed(order, outcome.is_none());
        };
        let ended = outcome.is_some_and(|o| !o.state.is_by_itself());
        follower.done.get_or_insert((now, ended));
        follower.refused |= outcome.is_none();
        self.looks_soon(order);
    }

    fn looks_soon(&mut self, order: usize) {
        if let Some(follower) = self.followers.get_mut(&order).filter(|follower| !follower.looks) {
            follower.looks = true;
            self.after(Span::from_millis(10), Happening::FollowerLooks { order });
        }
    }

    /// Ends the `srun` if its step and all links have ended.
    pub(crate) fn follower_looks(&mut self, order: usize) {
        self.probe(order);
        let now = self.now;
        let (given_up, taken) =
            (self.is_planted(Mutation::LinkGivenUp), self.is_planted(Mutation::EndTakenForComplete));
        let owner = self.clients.order(order).is_some_and(crate::order::Order::comes_with_step);
        let Some(follower) = self.followers.get_mut(&order) else { return };
        follower.looks = false;
        let links: Vec<Delivery> = follower.wires.values().map(|wire| wire.delivery).collect();
        let heard = follower.heard(now, owner);
        let late = given_up && follower.done.is_some_and(|(at, _)| now.since(at).secs() >= 2);
        if !heard.is_over(&links) && !late {
            if follower.done.is_some() {
                follower.looks = true;
                self.after(AGAIN, Happening::FollowerLooks { order });
            }
            return;
        }
        let Some(follower) = self.followers.remove(&order) else { return };
        if !given_up {
            self.judge_output(order, &follower, taken);
        }
        for (node, wire) in &follower.wires {
            if wire.delivery.is_open() {
                self.hang_up(*node, wire.boot, wire.key);
            }
        }
        if given_up {
            self.judge_output(order, &Follower { wires: BTreeMap::new(), ..follower }, taken);
            return self.followed(order, false);
        }
        let refused = follower.refused;
        self.followed(order, refused);
    }

    /// Compares the report of `srun` about missing output with the output that the tasks wrote.
    fn judge_output(&mut self, order: usize, follower: &Follower, blind: bool) {
        let mut missing = Vec::new();
        for (node, ranks) in &follower.ranks {
            let wire = follower.wires.get(node);
            let named = wire.is_some_and(|wire| wire.delivery.is_missing()) && !blind;
            let broken = wire.is_some_and(|wire| wire.broken) || follower.done.is_some_and(|(_, ended)| ended);
            let count = |of: &BTreeMap<u32, u64>| ranks.iter().map(|rank| of.get(rank).copied().unwrap_or(0)).sum();
            let name = self.setup.names[*node].clone();
            missing.extend(named.then(|| name.clone()));
            self.judge.told_output(
                &format!("order {order} on {name}"),
                count(&follower.written),
                count(&follower.read),
                (named, broken),
            );
        }
        self.clients.placed[order].missing = Some(missing);
    }

    /// Sends probes over the links after the step's end, and gives up links without an answer.
    fn probe(&mut self, order: usize) {
        let (now, login) = (self.now, self.network.login());
        let Some(follower) = self.followers.get_mut(&order).filter(|follower| follower.done.is_some()) else { return };
        for (&node, wire) in &mut follower.wires {
            let host = &self.nodes[node];
            let answers = self.network.open(node, login) && self.network.open(login, node) && host.powered;
            match (answers, wire.dark) {
                _ if wire.delivery != Delivery::Open => {}
                // A rebooted node, or a kernel that gave the link up, answers with a reset.
                (true, _) if host.boot != wire.boot || wire.reset => wire.delivery = Delivery::Lost,
                (true, _) => wire.dark = None,
                (false, None) => wire.dark = Some(now),
                (false, Some(since)) if now.since(since) > PROBED => {
                    (wire.delivery, wire.broken) = (Delivery::Lost, true);
                }
                (false, Some(_)) => {}
            }
        }
    }

    /// Receives a frame from a step daemon.
    pub(crate) fn piece_arrives(&mut self, order: usize, node: usize, key: StepKey, piece: Piece) {
        let taken = self.is_planted(Mutation::EndTakenForComplete);
        let Some(follower) = self.followers.get_mut(&order) else { return };
        let Some(wire) = follower.wires.get_mut(&node).filter(|w| w.key == key && w.delivery == Delivery::Open) else {
            return;
        };
        let boot = wire.boot;
        match piece {
            Piece::Output(rank) => *follower.read.entry(rank).or_default() += 1,
            Piece::Ended(rank) => drop(follower.ended.insert(rank)),
            Piece::Closed => wire.delivery = if taken { Delivery::Complete } else { Delivery::Lost },
            Piece::Done => {
                wire.delivery = Delivery::Complete;
                self.hang_up(node, boot, key);
            }
        }
        self.looks_soon(order);
    }

    /// Removes an `srun` that has ended, and closes its links.
    pub(crate) fn forsake(&mut self, order: usize) {
        let Some(follower) = self.followers.remove(&order) else { return };
        for (node, wire) in follower.wires {
            self.hang_up(node, wire.boot, wire.key);
        }
    }

    /// Sends the end of a link to the step daemon, and retries during a network cut.
    pub(crate) fn hang_up(&mut self, node: usize, boot: u64, key: StepKey) {
        let login = self.network.login();
        if self.nodes[node].boot != boot || !self.nodes[node].steps.contains_key(&key) {
            return;
        }
        if self.network.open(login, node) {
            let span = self.network.delay(login, node, &mut self.seed);
            self.after(span, Happening::HungUp { node, boot, key });
        } else {
            self.after(AGAIN, Happening::HangsUp { node, boot, key });
        }
    }
}

/// The step daemon's side of the links.
impl World {
    /// Connects to the `srun` of the step. Returns the input for the step daemon: the start, or a failure if `srun`
    /// does not answer.
    pub(crate) fn call_srun(&mut self, node: usize, key: StepKey, launch: &StepLaunch) -> StepInput {
        let Some((order, cookie)) = cookie_of(launch) else { return StepInput::Start };
        let login = self.network.login();
        let reached = self.network.open(node, login) && self.network.open(login, node);
        let (boot, last) = (self.nodes[node].boot, self.now);
        let follower = self.followers.get_mut(&order).filter(|follower| reached && follower.cookie == cookie);
        let Some(follower) = follower else {
            return StepInput::Fail { error: "cannot reach srun".into(), node_fault: false };
        };
        follower.wires.insert(
            node,
            Wire {
                key,
                boot,
                queue: VecDeque::new(),
                stalled: None,
                tries: false,
                last,
                delivery: Delivery::Open,
                dark: None,
                reset: false,
                broken: false,
            },
        );
        StepInput::Start
    }

    fn wire(&mut self, node: usize, key: StepKey) -> Option<(usize, &mut Wire)> {
        let (order, _) = cookie_of(&self.nodes[node].steps.get(&key)?.launch)?;
        let wire = self.followers.get_mut(&order)?.wires.get_mut(&node)?;
        (wire.key == key).then_some((order, wire))
    }

    /// Records a piece of output that a task writes. `heard`: the step daemon is alive and sends it.
    pub(crate) fn task_writes(&mut self, node: usize, key: StepKey, rank: u32, heard: bool) {
        let Some((order, _)) = self.wire(node, key) else { return };
        if let Some(follower) = self.followers.get_mut(&order) {
            *follower.written.entry(rank).or_default() += 1;
        }
        if heard {
            self.say_to_srun(node, key, Piece::Output(rank));
        }
    }

    /// Forwards a message of the step daemon to `srun`.
    pub(crate) fn step_says(&mut self, node: usize, key: StepKey, message: &FromStep) {
        match message {
            FromStep::Exited { rank, .. } | FromStep::Failed { rank, .. } => {
                self.say_to_srun(node, key, Piece::Ended(*rank));
            }
            FromStep::Done => self.say_to_srun(node, key, Piece::Done),
            _ => {}
        }
    }

    fn say_to_srun(&mut self, node: usize, key: StepKey, piece: Piece) {
        if let Some((order, wire)) = self.wire(node, key) {
            wire.queue.push_back(piece);
            self.pass(order, node);
        }
    }

    /// Sends the queued frames to `srun`, up to the first one that is lost. That one is retried later.
    fn pass(&mut self, order: usize, node: usize) {
        let (now, login) = (self.now, self.network.login());
        let forgets = self.is_planted(Mutation::OutputForgotten);
        let Some(follower) = self.followers.get_mut(&order) else { return };
        let Some(wire) = follower.wires.get_mut(&node) else { return };
        while let Some(&piece) = wire.queue.front() {
            if !self.network.open(node, login) || self.seed.chance(self.network.weather.drop_ppm) {
                wire.stalled.get_or_insert(now);
                if forgets {
                    wire.queue.retain(|piece| !matches!(piece, Piece::Output(_)));
                }
                if !wire.tries {
                    wire.tries = true;
                    let key = wire.key;
                    self.after(AGAIN, Happening::LinkTries { order, node, key });
                }
                return;
            }
            wire.queue.pop_front();
            wire.stalled = None;
            wire.last = (now + self.network.delay(node, login, &mut self.seed)).max(Time(wire.last.0 + 1));
            self.agenda.at(wire.last, Happening::PieceArrives { order, node, key: wire.key, piece });
        }
    }

    /// Retries the queued frames, or gives them up after [`UNACKNOWLEDGED`].
    pub(crate) fn link_tries(&mut self, order: usize, node: usize, key: StepKey) {
        let now = self.now;
        let wire = self.followers.get_mut(&order).and_then(|follower| follower.wires.get_mut(&node));
        let Some(wire) = wire.filter(|wire| wire.key == key) else { return };
        wire.tries = false;
        if self.nodes[node].boot != wire.boot {
            return;
        }
        if wire.stalled.is_some_and(|since| now.since(since) > UNACKNOWLEDGED) {
            (wire.broken, wire.reset) = (true, true);
            wire.queue.clear();
            let boot = wire.boot;
            return self.after(Span(0), Happening::HungUp { node, boot, key });
        }
        self.pass(order, node);
    }

    /// Returns whether the link accepts more frames from the step daemon.
    pub(crate) fn has_room(&mut self, node: usize, key: StepKey) -> bool {
        self.wire(node, key).is_none_or(|(_, wire)| wire.queue.len() <= BACKLOG)
    }

    /// Returns whether `srun` gets all output of the step daemon even if the step daemon ends now.
    pub(crate) fn is_delivered(&mut self, node: usize, key: StepKey) -> bool {
        self.wire(node, key).is_none() || self.is_planted(Mutation::LeftUnacknowledged)
    }

    /// Handles the end of a step daemon: its queued frames are lost. `by_force`: the step was told to end, so this loss
    /// is no violation.
    pub(crate) fn link_ends(&mut self, node: usize, key: StepKey, by_force: bool) {
        let Some((order, wire)) = self.wire(node, key) else { return };
        wire.broken |= by_force;
        wire.queue.clear();
        wire.queue.push_back(Piece::Closed);
        self.pass(order, node);
    }

    /// Handles a node's power loss: the link ends without a message.
    pub(crate) fn link_vanishes(&mut self, node: usize, key: StepKey) {
        if let Some((_, wire)) = self.wire(node, key) {
            wire.broken = true;
            wire.queue.clear();
        }
    }
}
