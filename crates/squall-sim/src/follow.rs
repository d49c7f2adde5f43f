//! `srun` and the output of its step: links that step daemons open to it, what waits at a cut, what it says at the end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use squall_engine::step::{Delivery, Heard, StepInput};
use squall_model::id::StepKey;
use squall_model::job::{EndState, Outcome};
use squall_model::step::{FromStep, Layout, Program, StepLaunch};
use squall_model::time::{Span, Time};

use crate::judge::process::order_of;
use crate::mutation::Mutation;
use crate::world::{Happening, World};

/// How often what waits at a cut is tried again, and `srun` looks whether all is over.
const AGAIN: Span = Span::from_millis(500);

/// A side that hears nothing for so long after the step's end takes the link for broken: probes every 10 s, the last of
/// which has gone unanswered.
const PROBED: Span = Span::from_secs(130);

/// A kernel gives up data that nobody acknowledges for so long.
const UNACKNOWLEDGED: Span = Span::from_secs(900);

/// Frames that a link takes while nothing passes.
const BACKLOG: usize = 3;

/// What a step daemon says to its `srun`, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A piece of a task's output.
    Output(u32),
    /// A task has ended.
    Ended(u32),
    /// The last word.
    Done,
    /// The link's end.
    Closed,
}

/// The link of a step daemon.
#[derive(Debug)]
struct Wire {
    key: StepKey,
    boot: u64,
    /// What has not passed yet, and since when.
    queue: VecDeque<Piece>,
    stalled: Option<Time>,
    tries: bool,
    /// When the last frame arrives.
    last: Time,
    /// As `srun` sees it.
    delivery: Delivery,
    /// Since when `srun`, which probes it, has had no answer.
    dark: Option<Time>,
    /// The step daemon's kernel has given it up: a probe that arrives is answered by a reset.
    reset: bool,
    /// What becomes of it is nobody's promise: a kill, a power loss, a cut that lasts too long, an order to end the step.
    broken: bool,
}

/// An `srun` with a step.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    cookie: [u8; 16],
    /// Ranks of its step by node.
    ranks: BTreeMap<usize, Vec<u32>>,
    wires: BTreeMap<usize, Wire>,
    /// Pieces that tasks have written, and that have come, by rank.
    written: BTreeMap<u32, u64>,
    read: BTreeMap<u32, u64>,
    ended: BTreeSet<u32>,
    /// When it heard that the step has ended, and whether somebody ended it.
    done: Option<(Time, bool)>,
    /// The controller refuses to say more of it.
    pub(crate) refused: bool,
    looks: bool,
}

impl Follower {
    /// The step exists.
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

/// Whose step a launch is of, and what its step daemon must show; None: nobody follows it.
fn cookie_of(launch: &StepLaunch) -> Option<(usize, [u8; 16])> {
    let Program::Tasks(program) = &launch.program else { return None };
    Some((order_of(launch)?, program.cookie))
}

/// The side of the `srun`.
impl World {
    /// An `srun` asks for its step: from now on it listens.
    pub(crate) fn listen(&mut self, order: usize, cookie: [u8; 16]) {
        if self.followers.get(&order).is_none_or(|known| known.cookie != cookie) {
            self.forsake(order);
            self.followers.insert(order, Follower { cookie, ..Follower::default() });
        }
    }

    /// It hears that its step exists.
    pub(crate) fn step_created(&mut self, order: usize, layout: &Layout) {
        if let Some(follower) = self.followers.get_mut(&order) {
            follower.created(layout, &self.setup.names);
            self.looks_soon(order);
        }
    }

    /// It hears that its step has ended, or that the controller knows nothing of it.
    pub(crate) fn step_done(&mut self, order: usize, outcome: Option<&Outcome>) {
        let now = self.now;
        let Some(follower) = self.followers.get_mut(&order).filter(|follower| !follower.ranks.is_empty()) else {
            return self.followed(order, outcome.is_none());
        };
        let ended = outcome.is_some_and(|o| !matches!(o.state, EndState::Completed | EndState::Failed));
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

    /// It looks whether all is over.
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

    /// What it says of the output against what the tasks wrote.
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

    /// Links that lead to nobody any more are found out by probes, which begin at the step's end.
    fn probe(&mut self, order: usize) {
        let (now, login) = (self.now, self.network.login());
        let Some(follower) = self.followers.get_mut(&order).filter(|follower| follower.done.is_some()) else { return };
        for (&node, wire) in &mut follower.wires {
            let host = &self.nodes[node];
            let answers = self.network.open(node, login) && self.network.open(login, node) && host.powered;
            match (answers, wire.dark) {
                _ if wire.delivery != Delivery::Open => {}
                // Another boot knows nothing of it.
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

    /// Something comes from a step daemon.
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

    /// It is gone: its links end.
    pub(crate) fn forsake(&mut self, order: usize) {
        let Some(follower) = self.followers.remove(&order) else { return };
        for (node, wire) in follower.wires {
            self.hang_up(node, wire.boot, wire.key);
        }
    }

    /// The end of a link on its way to the step daemon, at a cut until that is over.
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

/// The side of the step daemon.
impl World {
    /// It calls its `srun`. What it is told then: that it may start, or that nobody answers.
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

    /// A task writes something.
    pub(crate) fn task_writes(&mut self, node: usize, key: StepKey, rank: u32, heard: bool) {
        let Some((order, _)) = self.wire(node, key) else { return };
        if let Some(follower) = self.followers.get_mut(&order) {
            *follower.written.entry(rank).or_default() += 1;
        }
        if heard {
            self.say_to_srun(node, key, Piece::Output(rank));
        }
    }

    /// The step daemon's machine has something for `srun`.
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

    /// What waits passes, up to what gets lost: that is sent again later.
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

    /// What waits is sent again, if it is not given up.
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

    /// Whether the link takes more.
    pub(crate) fn has_room(&mut self, node: usize, key: StepKey) -> bool {
        self.wire(node, key).is_none_or(|(_, wire)| wire.queue.len() <= BACKLOG)
    }

    /// Whether `srun` is told of everything even if the step daemon ends now.
    pub(crate) fn is_delivered(&mut self, node: usize, key: StepKey) -> bool {
        self.wire(node, key).is_none() || self.is_planted(Mutation::LeftUnacknowledged)
    }

    /// A step daemon ends, or is killed: what has not passed never does. `by_force`: no promise is broken by that.
    pub(crate) fn link_ends(&mut self, node: usize, key: StepKey, by_force: bool) {
        let Some((order, wire)) = self.wire(node, key) else { return };
        wire.broken |= by_force;
        wire.queue.clear();
        wire.queue.push_back(Piece::Closed);
        self.pass(order, node);
    }

    /// The node loses its power: nobody is told.
    pub(crate) fn link_vanishes(&mut self, node: usize, key: StepKey) {
        if let Some((_, wire)) = self.wire(node, key) {
            wire.broken = true;
            wire.queue.clear();
        }
    }
}
