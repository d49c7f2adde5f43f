//! Gatherings of ranks, and direct questions, across the step daemons of one step: one machine on each node.
//!
//! The nodes that take part in a gathering form a tree. Each waits for its own ranks and for its children, and then
//! sends all their data to its parent. The root's data is the result, which goes down the same way. So no rank leaves
//! before all have joined, however late. A gathering that fails on one node fails on all.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::encoding::ByteBuf;
use squall_model::limits::FRAME_BYTES_MAX;
use squall_model::set::IndexSet;
use squall_model::step::Layout;
use squall_model::time::{Span, Time};
use squall_model::wire::peer::{Fault, Gathering, Notice, PeerMessage, What};

use super::board::Board;
use super::ring::Shape;
use crate::invariant::invariant;
use crate::machine::Machine;

/// Number of children of a node in the tree. Eight nodes need one level, and a node has few children even in a tree of
/// a thousand.
pub(super) const WIDTH: usize = 16;

/// Most bytes that a gathering may collect: a frame's, less the room for its envelope.
const DATA_BYTES_MAX: usize = FRAME_BYTES_MAX - (1 << 20);

/// One node's part in the gatherings and direct questions of a step's ranks.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Position of this node in the step's layout.
    pub(super) here: u32,
    layout: Layout,
    shape: Shape,
    /// How long ranks wait for each other before a gathering or question fails.
    pub(super) patience: Span,
    /// Number of gatherings (collective exchanges of data) begun on this node so far, by kind and set of ranks.
    begun: BTreeMap<(What, IndexSet), u64>,
    /// Gatherings (collective exchanges of data) under way, including those that only other nodes have begun.
    pub(super) open: BTreeMap<Gathering, Open>,
    /// Gatherings (collective exchanges of data) that failed before they began on this node.
    pub(super) failed: BTreeMap<Gathering, Fault>,
    /// Open questions of this node, by ticket: position in the layout of the node that was asked, and when the question
    /// times out.
    pub(super) asked: BTreeMap<u64, (u32, Time)>,
    /// Positions in the layout of the nodes that can't be reached any more.
    pub(super) lost: BTreeSet<u32>,
    /// Values that ranks have published.
    pub(super) board: Board,
    /// Number of gatherings (collective exchanges of data) to which this node, as their root, has given a number so
    /// far.
    contexts: u64,
    pub(super) stats: ExchangeStats,
}

/// Counters of one node's exchange (gatherings and direct questions).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeStats {
    /// Number of gatherings (collective exchanges) to which local ranks brought data.
    pub gathered_data: u64,
    /// Number of gatherings (collective exchanges) to which local ranks brought no data.
    pub gathered_empty: u64,
    /// Number of bytes that local ranks brought to gatherings (collective exchanges).
    pub bytes: u64,
    /// Number of direct questions that this node sent to other nodes.
    pub asked: u64,
    /// Number of direct questions that this node received from other nodes.
    pub served: u64,
    /// Number of gatherings with data that came down the tree.
    pub by_tree: u64,
    /// Number of gatherings with data that went round the ring.
    pub by_ring: u64,
    /// Number of bytes of gatherings that this node sent to others.
    pub sent_bytes: u64,
}

/// Input of the exchange, which connects the ranks of a step across nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeInput {
    /// All local ranks of a gathering (collective exchange) have joined. Answered by `Joined`.
    Join {
        /// Number chosen by the caller; the answer bears it too.
        ticket: u64,
        /// Kind of gathering (collective exchange).
        what: What,
        /// The ranks that take part; ranks that the step does not have are ignored.
        ranks: IndexSet,
        /// Data of the local ranks.
        data: Vec<u8>,
    },
    /// A local rank asks what a rank of another node has published. Answered by `Answer`.
    Ask {
        /// Number chosen by the caller; the answer bears it too.
        ticket: u64,
        /// The rank that is asked about.
        rank: u32,
    },
    /// A request to the board (published values): `Post`, `Withdraw` or `Find` with this ticket. Answered by `Found`,
    /// or by `Answer` with a fault.
    Consult {
        /// Number chosen by the caller; the answer bears it too.
        ticket: u64,
        /// Request to the board.
        message: PeerMessage,
    },
    /// The value that a `Serve` action asked for.
    Served {
        /// Position in the layout of the node that asked.
        place: u32,
        /// Number by which the asking node identifies its question.
        ticket: u64,
        /// Value that the rank has published.
        result: Result<Vec<u8>, Fault>,
    },
    /// A message of another step daemon.
    Peer {
        /// Position of that step daemon's node in the layout.
        place: u32,
        /// Message that the other step daemon sent.
        message: PeerMessage,
    },
    /// Another step daemon can't be reached, or has ended.
    Lost {
        /// Position of that step daemon's node in the layout.
        place: u32,
    },
    /// Time has passed.
    Tick,
}

/// Action that the exchange asks of its step daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeAct {
    /// Send a message to another step daemon. If that can't be reached, give `Lost`.
    Send {
        /// Position of that step daemon's node in the layout.
        place: u32,
        /// Message to be sent.
        message: PeerMessage,
    },
    /// A gathering (collective exchange) has ended: all ranks have joined, or it failed.
    Joined {
        /// Ticket of the `Join`.
        ticket: u64,
        /// Data of all nodes, and the number of the gathering. Error: why it failed.
        result: Result<(Vec<u8>, u64), Fault>,
    },
    /// The answer to a direct question.
    Answer {
        /// Ticket of the `Ask` or `Consult`.
        ticket: u64,
        /// Value that the rank has published.
        result: Result<Vec<u8>, Fault>,
    },
    /// The answer of the board (published values) to a `Consult`.
    Found {
        /// Ticket of the `Consult`.
        ticket: u64,
        /// Published entries that the `Consult` asked for.
        result: Result<Vec<Notice>, Fault>,
    },
    /// Return the value that this local rank has published, by `Served`, once the rank has published it.
    Serve {
        /// Position in the layout of the node that asks.
        place: u32,
        /// Number by which the asking node identifies its question.
        ticket: u64,
        /// The local rank that is asked about.
        rank: u32,
    },
}

/// A gathering (collective exchange of data among ranks) under way.
#[derive(Clone, Debug)]
pub(super) struct Open {
    /// Positions in the layout of the nodes that take part, ascending.
    pub(super) members: Vec<u32>,
    /// Index of this node in `members`.
    pub(super) at: usize,
    /// State of the local ranks; None: not all of them have joined.
    pub(super) own: Option<Own>,
    /// Data from children in the tree, by the child's index in `members`.
    below: BTreeMap<usize, Brought>,
    /// Whether the parent has been told that all ranks on this node and the nodes below have joined.
    risen: bool,
    /// Number of the gathering if its data goes round the ring; None: it goes by the tree.
    pub(super) round: Option<u64>,
    /// Pieces that came round the ring, by index in `members` of the node that brought each.
    pub(super) pieces: BTreeMap<usize, Vec<u8>>,
}

#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) ticket: u64,
    pub(super) data: Vec<u8>,
    until: Time,
}

/// Data that a child and all nodes below it bring to a gathering.
#[derive(Clone, Debug)]
pub(super) enum Brought {
    Data(Vec<u8>),
    /// Only the size: this number of bytes stays on the nodes below.
    Held(u64),
}

impl Open {
    pub(super) fn children(&self) -> impl Iterator<Item = usize> + '_ {
        let first = self.at * WIDTH + 1;
        first..(first + WIDTH).min(self.members.len()).max(first)
    }

    pub(super) fn parent(&self) -> Option<u32> {
        (self.at > 0).then(|| self.members[(self.at - 1) / WIDTH])
    }

    /// Returns whether all ranks on this node and the nodes below have joined.
    fn is_complete(&self) -> bool {
        self.own.is_some() && self.children().all(|child| self.below.contains_key(&child))
    }

    /// Returns the number of bytes from this node and the nodes below, and whether all of them are on this node.
    fn size(&self) -> (usize, bool) {
        let own = self.own.as_ref().map_or(0, |own| own.data.len());
        self.below.values().fold((own, true), |(size, here), brought| match brought {
            Brought::Data(data) => (size + data.len(), here),
            Brought::Held(bytes) => (size.saturating_add(*bytes as usize), false),
        })
    }

    /// Takes all data on this node: first the node's own, then that of the children by index. `stays`: the node's own
    /// data is also kept, since it may have to go round the ring.
    fn take_data(&mut self, stays: bool) -> Vec<u8> {
        let take = |own: &mut Own| if stays { own.data.clone() } else { std::mem::take(&mut own.data) };
        let mut data = self.own.as_mut().map(take).unwrap_or_default();
        for (_, more) in std::mem::take(&mut self.below) {
            if let Brought::Data(more) = more {
                data.extend_from_slice(&more);
            }
        }
        data
    }

    /// Returns whether a message of the node at position `place` is still needed. A lost node's earlier messages have
    /// all arrived.
    fn needs(&self, place: u32) -> bool {
        if self.round.is_some() {
            return self.members[self.around()[0]] == place && self.pieces.len() + 1 < self.members.len();
        }
        let child = |at: usize| self.members[at] == place && !self.below.contains_key(&at);
        self.parent() == Some(place) || self.children().any(child)
    }

    /// Returns the nodes that are told of a failure: parent, children, and neighbours in the ring. So a failure reaches
    /// all nodes, whichever is lost.
    fn neighbours(&self) -> BTreeSet<u32> {
        let around = self.around().map(|at| self.members[at]);
        let tree = self.parent().into_iter().chain(self.children().map(|child| self.members[child]));
        tree.chain(around).filter(|&place| place != self.members[self.at]).collect()
    }
}

pub(super) type Acts = Vec<ExchangeAct>;

impl Exchange {
    /// Makes the exchange of the node at position `here` in the layout.
    pub fn new(here: u32, layout: Layout, patience: Span, shape: Shape) -> Self {
        Self {
            here,
            layout,
            shape,
            patience,
            begun: BTreeMap::new(),
            open: BTreeMap::new(),
            failed: BTreeMap::new(),
            asked: BTreeMap::new(),
            lost: BTreeSet::new(),
            board: Board::default(),
            contexts: 0,
            stats: ExchangeStats::default(),
        }
    }

    /// Returns the counters of the exchange.
    pub fn stats(&self) -> ExchangeStats {
        self.stats
    }

    /// Returns every rank of the step.
    pub fn everybody(&self) -> IndexSet {
        match self.layout.ntasks() {
            0 => IndexSet::new(),
            n => IndexSet::range(0, n - 1),
        }
    }

    /// Returns the position in the layout of the node that this one will send to first when all ranks gather; None:
    /// this node is the root.
    pub fn upstream(&self) -> Option<u32> {
        let members = self.members(&self.everybody());
        let at = members.binary_search(&self.here).ok()?;
        match self.shape {
            Shape::Ring if members.len() > 2 => members.get((at + 1) % members.len()).copied(),
            _ => at.checked_sub(1).map(|at| members[at / WIDTH]),
        }
    }

    fn join(&mut self, now: Time, ticket: u64, (what, ranks): (What, IndexSet), data: Vec<u8>, out: &mut Acts) {
        let ranks = ranks.intersection(&self.everybody());
        let begun = self.begun.entry((what.clone(), ranks.clone())).or_default();
        let gathering = Gathering { what, ranks, number: *begun };
        *begun += 1;
        if data.is_empty() {
            self.stats.gathered_empty += 1;
        } else {
            self.stats.gathered_data += 1;
        }
        self.stats.bytes += data.len() as u64;
        if let Some(fault) = self.failed.remove(&gathering) {
            return out.push(ExchangeAct::Joined { ticket, result: Err(fault) });
        }
        let until = now + self.patience;
        match self.opened(&gathering) {
            Some(open) => open.own = Some(Own { ticket, data, until }),
            None => return out.push(ExchangeAct::Joined { ticket, result: Err(Fault::NotFound) }),
        }
        if self.misses_one(&gathering) {
            return self.fail(&gathering, Fault::Gone, None, out);
        }
        if self.open.get(&gathering).is_some_and(|open| open.round.is_some()) {
            return self.begin_round(&gathering, out);
        }
        self.advance(&gathering, out);
    }

    /// Returns the state of a gathering, which is created if it is new. None: this node has no part in it.
    pub(super) fn opened(&mut self, gathering: &Gathering) -> Option<&mut Open> {
        if !self.open.contains_key(gathering) {
            let members = self.members(&gathering.ranks);
            let at = members.binary_search(&self.here).ok()?;
            let round = self.shape.is_ring(&gathering.what, members.len()).then_some(0);
            let (below, pieces) = Default::default();
            self.open.insert(gathering.clone(), Open { members, at, own: None, below, risen: false, round, pieces });
        }
        self.open.get_mut(gathering)
    }

    /// Returns the positions in the layout of the nodes of these ranks, ascending.
    fn members(&self, ranks: &IndexSet) -> Vec<u32> {
        let places = 0..self.layout.tasks.len() as u32;
        if *ranks == self.everybody() {
            return places
                .filter(|place| self.layout.tasks.get(*place as usize).is_some_and(|tasks| *tasks > 0))
                .collect();
        }
        let members: BTreeSet<u32> =
            ranks.iter().filter_map(|rank| self.layout.node_of(rank)).map(|place| place as u32).collect();
        members.into_iter().collect()
    }

    /// Returns whether the gathering has ended here, so that later messages about it are ignored.
    pub(super) fn is_past(&self, gathering: &Gathering) -> bool {
        let key = (gathering.what.clone(), gathering.ranks.clone());
        self.begun.get(&key).is_some_and(|begun| gathering.number < *begun) && !self.open.contains_key(gathering)
    }

    /// Returns whether the gathering can't go on, because a node is lost and its message is still needed.
    pub(super) fn is_stuck(&self, gathering: &Gathering) -> bool {
        self.open.get(gathering).is_some_and(|open| self.lost.iter().any(|&place| open.needs(place)))
    }

    /// Returns whether a node that takes part is lost, so that a gathering which begins now can't succeed.
    fn misses_one(&self, gathering: &Gathering) -> bool {
        self.open.get(gathering).is_some_and(|open| open.members.iter().any(|place| self.lost.contains(place)))
    }

    fn advance(&mut self, gathering: &Gathering, out: &mut Acts) {
        let ready = |open: &&mut Open| !open.risen && open.round.is_none() && open.is_complete();
        // because a process has yet to join, or the data here went up before
        let Some(open) = self.open.get_mut(gathering).filter(ready) else { return };
        open.risen = true;
        let (size, here) = open.size();
        if size > DATA_BYTES_MAX {
            return self.fail(gathering, Fault::TooLarge, None, out);
        }
        let most = self.shape.tree_bytes_max(&gathering.what, open.members.len());
        let rings = !here || size > most;
        let gathering_told = gathering.clone();
        let message = match (open.parent(), rings) {
            (Some(place), true) => {
                let message = PeerMessage::Held { gathering: gathering_told, bytes: size as u64 };
                ExchangeAct::Send { place, message }
            }
            (Some(place), false) => {
                self.stats.sent_bytes += size as u64;
                let data = ByteBuf::from(open.take_data(most < usize::MAX));
                let message = PeerMessage::Up { gathering: gathering_told, data };
                ExchangeAct::Send { place, message }
            }
            (None, rings) => {
                self.contexts += 1;
                let context = self.contexts;
                if rings {
                    return self.start_round(gathering, context, out);
                }
                let data = open.take_data(false);
                return self.conclude(gathering, data, context, out);
            }
        };
        out.push(message);
    }

    /// Ends a gathering (collective exchange) that all have joined: sends the data down and answers the local ranks.
    fn conclude(&mut self, gathering: &Gathering, data: Vec<u8>, context: u64, out: &mut Acts) {
        let Some(open) = self.open.remove(gathering) else { return invariant!("a gathering that concludes is open") };
        self.stats.by_tree += 1;
        for child in open.children() {
            self.stats.sent_bytes += data.len() as u64;
            let message =
                PeerMessage::Down { gathering: gathering.clone(), data: ByteBuf::from(data.clone()), context };
            out.push(ExchangeAct::Send { place: open.members[child], message });
        }
        if let Some(own) = open.own {
            out.push(ExchangeAct::Joined { ticket: own.ticket, result: Ok((data, context)) });
        }
    }

    /// Ends a gathering as failed, and tells all neighbours in tree and ring but `from`.
    pub(super) fn fail(&mut self, gathering: &Gathering, fault: Fault, from: Option<u32>, out: &mut Acts) {
        let Some(open) = self.open.remove(gathering) else { return invariant!("a gathering that fails is open") };
        for place in open.neighbours() {
            if Some(place) != from && !self.lost.contains(&place) {
                let message = PeerMessage::Failed { gathering: gathering.clone(), fault };
                out.push(ExchangeAct::Send { place, message });
            }
        }
        match open.own {
            Some(own) => out.push(ExchangeAct::Joined { ticket: own.ticket, result: Err(fault) }),
            None => drop(self.failed.insert(gathering.clone(), fault)),
        }
    }

    fn heard(&mut self, place: u32, message: PeerMessage, out: &mut Acts) {
        match message {
            PeerMessage::Hello { .. }
            | PeerMessage::Endpoint { .. }
            | PeerMessage::Event { .. }
            | PeerMessage::Ping { .. }
            | PeerMessage::Pong { .. } => {}
            PeerMessage::Held { gathering, bytes } => self.held(place, &gathering, bytes, out),
            PeerMessage::Round { gathering, context } => self.round(place, &gathering, context, out),
            PeerMessage::Piece { gathering, origin, data } => self.piece(&gathering, origin, data.into_vec(), out),
            PeerMessage::Up { gathering, data } => self.rise(place, &gathering, Brought::Data(data.into_vec()), out),
            PeerMessage::Down { gathering, data, context } => {
                let told = self.open.get(&gathering).is_some_and(|o| o.parent() == Some(place) && o.own.is_some());
                if told {
                    self.conclude(&gathering, data.into_vec(), context, out);
                }
            }
            PeerMessage::Failed { gathering, fault } => {
                if !self.is_past(&gathering)
                    && !self.failed.contains_key(&gathering)
                    && self.opened(&gathering).is_some()
                {
                    self.fail(&gathering, fault, Some(place), out);
                }
            }
            PeerMessage::Ask { ticket, rank } => {
                self.stats.served += 1;
                if self.layout.node_of(rank) == Some(self.here as usize) {
                    out.push(ExchangeAct::Serve { place, ticket, rank });
                } else {
                    let message = PeerMessage::Answer { ticket, result: Err(Fault::NotFound) };
                    out.push(ExchangeAct::Send { place, message });
                }
            }
            message @ (PeerMessage::Post { .. } | PeerMessage::Withdraw { .. } | PeerMessage::Find { .. }) => {
                self.keep(place, message, out);
            }
            PeerMessage::Found { ticket, result } => {
                if self.asked.remove(&ticket).is_some() {
                    out.push(ExchangeAct::Found { ticket, result });
                }
            }
            PeerMessage::Answer { ticket, result } => {
                if self.asked.get(&ticket).is_some_and(|(whom, _)| *whom == place) {
                    self.asked.remove(&ticket);
                    out.push(ExchangeAct::Answer { ticket, result: result.map(ByteBuf::into_vec) });
                }
            }
        }
    }

    /// Handles a child's message that all ranks at and below it have joined.
    pub(super) fn rise(&mut self, place: u32, gathering: &Gathering, brought: Brought, out: &mut Acts) {
        if self.is_past(gathering) {
            return;
        }
        if let Some(&fault) = self.failed.get(gathering) {
            let message = PeerMessage::Failed { gathering: gathering.clone(), fault };
            return out.push(ExchangeAct::Send { place, message });
        }
        // because a peer may ask about ranks that are not here
        let Some(open) = self.opened(gathering) else { return };
        // because only a child's word counts, whatever another peer says
        let Some(child) = open.children().find(|child| open.members[*child] == place) else { return };
        open.below.insert(child, brought);
        if self.is_stuck(gathering) {
            return self.fail(gathering, Fault::Gone, None, out);
        }
        self.advance(gathering, out);
    }

    fn ask(&mut self, now: Time, ticket: u64, rank: u32, out: &mut Acts) {
        let place = self.layout.node_of(rank).map(|place| place as u32);
        match place {
            Some(place) if place != self.here && !self.lost.contains(&place) => {
                self.stats.asked += 1;
                self.asked.insert(ticket, (place, now + self.patience));
                out.push(ExchangeAct::Send { place, message: PeerMessage::Ask { ticket, rank } });
            }
            Some(place) if place != self.here => out.push(ExchangeAct::Answer { ticket, result: Err(Fault::Gone) }),
            _ => out.push(ExchangeAct::Answer { ticket, result: Err(Fault::NotFound) }),
        }
    }

    fn lose(&mut self, place: u32, out: &mut Acts) {
        if !self.lost.insert(place) {
            return;
        }
        let gatherings: Vec<Gathering> =
            self.open.iter().filter(|(_, open)| open.needs(place)).map(|(g, _)| g.clone()).collect();
        for gathering in gatherings {
            self.fail(&gathering, Fault::Gone, Some(place), out);
        }
        self.give_up(|whom, _| whom == place, Fault::Gone, out);
    }

    /// Answers with a fault each open question for which `hopeless(node asked, timeout)` holds.
    fn give_up(&mut self, hopeless: impl Fn(u32, Time) -> bool, fault: Fault, out: &mut Acts) {
        let tickets = self.asked.iter().filter(|(_, (whom, until))| hopeless(*whom, *until));
        let tickets: Vec<u64> = tickets.map(|(ticket, _)| *ticket).collect();
        for ticket in tickets {
            self.asked.remove(&ticket);
            out.push(ExchangeAct::Answer { ticket, result: Err(fault) });
        }
    }

    fn tick(&mut self, now: Time, out: &mut Acts) {
        let late = |open: &Open| open.own.as_ref().is_some_and(|own| own.until <= now);
        let gatherings: Vec<Gathering> =
            self.open.iter().filter(|(_, open)| late(open)).map(|(g, _)| g.clone()).collect();
        for gathering in gatherings {
            self.fail(&gathering, Fault::Timeout, None, out);
        }
        self.give_up(|_, until| until <= now, Fault::Timeout, out);
    }
}

impl Machine for Exchange {
    type Input = ExchangeInput;
    type Out = Vec<ExchangeAct>;

    fn step(&mut self, now: Time, input: ExchangeInput, out: &mut Acts) {
        match input {
            ExchangeInput::Join { ticket, what, ranks, data } => self.join(now, ticket, (what, ranks), data, out),
            ExchangeInput::Ask { ticket, rank } => self.ask(now, ticket, rank, out),
            ExchangeInput::Consult { ticket, message } => self.consult(now, ticket, message, out),
            ExchangeInput::Served { place, ticket, result } => {
                let result = result.map(ByteBuf::from);
                out.push(ExchangeAct::Send { place, message: PeerMessage::Answer { ticket, result } });
            }
            ExchangeInput::Peer { place, message } => self.heard(place, message, out),
            ExchangeInput::Lost { place } => self.lose(place, out),
            ExchangeInput::Tick => self.tick(now, out),
        }
    }

    fn deadline(&self) -> Option<Time> {
        let gatherings = self.open.values().filter_map(|open| open.own.as_ref()).map(|own| own.until);
        gatherings.chain(self.asked.values().map(|(_, until)| *until)).min()
    }
}
