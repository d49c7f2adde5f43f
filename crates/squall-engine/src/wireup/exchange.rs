//! Gatherings of ranks and direct questions, across the step daemons of one step: one machine at each node.
//!
//! Each node of a gathering waits for its own ranks and for its children in a tree over the nodes that take part, and only
//! then sends all that it has to its parent; what the root has is what all have, and goes down the same way. So nobody
//! leaves before all have come, whatever comes late. A gathering that fails at one node fails at all.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::encoding::ByteBuf;
use squall_model::limits::FRAME_BYTES_MAX;
use squall_model::set::IndexSet;
use squall_model::step::Layout;
use squall_model::time::{Span, Time};
use squall_model::wire::peer::{Fault, Gathering, Notice, PeerMessage, What};

use super::board::Board;
use super::ring::Shape;
use crate::machine::Machine;

/// Children of a node in the tree: so few levels that eight nodes are one, and so few children that none holds up a thousand.
pub(super) const WIDTH: usize = 16;

/// Most bytes that a gathering may bring together: a frame's, less what stands around them.
const DATA_BYTES_MAX: usize = FRAME_BYTES_MAX - (1 << 20);

/// One node's share of a step's exchanges.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// This node's place in the layout.
    pub(super) here: u32,
    layout: Layout,
    shape: Shape,
    /// How long ranks wait for each other.
    pub(super) patience: Span,
    /// How many gatherings of a kind these ranks have begun here.
    begun: BTreeMap<(What, IndexSet), u64>,
    /// Gatherings under way, begun here or not yet.
    pub(super) open: BTreeMap<Gathering, Open>,
    /// Those that failed before they were begun here.
    pub(super) failed: BTreeMap<Gathering, Fault>,
    /// Questions of this node: whom they went to, and until when they are waited for.
    pub(super) asked: BTreeMap<u64, (u32, Time)>,
    /// Nodes that can't be reached any more.
    pub(super) lost: BTreeSet<u32>,
    /// What ranks have published.
    pub(super) board: Board,
    /// Numbers given to gatherings of which this node is the root.
    contexts: u64,
    pub(super) stats: ExchangeStats,
}

/// What went through one node's exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeStats {
    /// Gatherings of local ranks that brought data.
    pub gathered_data: u64,
    /// Gatherings of local ranks that brought none.
    pub gathered_empty: u64,
    /// Bytes that local ranks brought.
    pub bytes: u64,
    /// Direct questions to other nodes.
    pub asked: u64,
    /// Direct questions of other nodes.
    pub served: u64,
    /// Gatherings whose data came down the tree.
    pub by_tree: u64,
    /// Gatherings whose data went round the ring.
    pub by_ring: u64,
    /// Bytes of gatherings that this node has sent to others.
    pub sent_bytes: u64,
}

/// What the machine is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeInput {
    /// All ranks of this node that take part in it have come. Answered by `Joined`.
    Join {
        /// Who asks: comes back with the answer.
        ticket: u64,
        /// Which kind.
        what: What,
        /// The ranks that gather; those that the step does not have are left out.
        ranks: IndexSet,
        /// What this node's ranks bring.
        data: Vec<u8>,
    },
    /// What has a rank of another node published? Answered by `Answer`.
    Ask {
        /// Who asks: comes back with the answer.
        ticket: u64,
        /// The rank.
        rank: u32,
    },
    /// Something for the board: `Post`, `Withdraw` or `Find` under this ticket. Answered by `Found`, or `Answer` with a fault.
    Consult {
        /// Who asks: comes back with the answer.
        ticket: u64,
        /// What for.
        message: PeerMessage,
    },
    /// Answer to `Serve`.
    Served {
        /// Who had asked.
        place: u32,
        /// Their number for it.
        ticket: u64,
        /// What the rank has published.
        result: Result<Vec<u8>, Fault>,
    },
    /// A frame of another step daemon.
    Peer {
        /// Its place in the layout.
        place: u32,
        /// What it says.
        message: PeerMessage,
    },
    /// Another step daemon can't be reached, or has ended.
    Lost {
        /// Its place in the layout.
        place: u32,
    },
    /// Time has passed.
    Tick,
}

/// What the machine wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeAct {
    /// Tell another step daemon; if it can't be reached, say `Lost`.
    Send {
        /// Its place in the layout.
        place: u32,
        /// What.
        message: PeerMessage,
    },
    /// All have come, or won't.
    Joined {
        /// Who had joined.
        ticket: u64,
        /// What all brought, and the gathering's number.
        result: Result<(Vec<u8>, u64), Fault>,
    },
    /// The answer to a direct question.
    Answer {
        /// Who had asked.
        ticket: u64,
        /// What the rank has published.
        result: Result<Vec<u8>, Fault>,
    },
    /// The board's answer.
    Found {
        /// Who had asked.
        ticket: u64,
        /// What was found of what was looked for.
        result: Result<Vec<Notice>, Fault>,
    },
    /// Say what this rank, which is here, has published, as soon as it has.
    Serve {
        /// Who asks.
        place: u32,
        /// Their number for it.
        ticket: u64,
        /// The rank.
        rank: u32,
    },
}

/// A gathering under way.
#[derive(Clone, Debug)]
pub(super) struct Open {
    /// Places of the nodes that take part, rising.
    pub(super) members: Vec<u32>,
    /// Our position among them.
    pub(super) at: usize,
    /// Who waits for it here, since our ranks have come, what they bring, and how long they wait.
    pub(super) own: Option<Own>,
    /// What came from below, by position.
    below: BTreeMap<usize, Brought>,
    /// Our parent knows that all below and here have come.
    risen: bool,
    /// It goes round the ring, under this number.
    pub(super) round: Option<u64>,
    /// What came round, by position.
    pub(super) pieces: BTreeMap<usize, Vec<u8>>,
}

#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) ticket: u64,
    pub(super) data: Vec<u8>,
    until: Time,
}

/// What those below bring.
#[derive(Clone, Debug)]
pub(super) enum Brought {
    Data(Vec<u8>),
    /// So many bytes, which are where they were.
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

    /// Whether all below and here have come.
    fn is_complete(&self) -> bool {
        self.own.is_some() && self.children().all(|child| self.below.contains_key(&child))
    }

    /// How much is here and below, and whether all of it is here.
    fn size(&self) -> (usize, bool) {
        let own = self.own.as_ref().map_or(0, |own| own.data.len());
        self.below.values().fold((own, true), |(size, here), brought| match brought {
            Brought::Data(data) => (size + data.len(), here),
            Brought::Held(bytes) => (size.saturating_add(*bytes as usize), false),
        })
    }

    /// All that is here, own first, then by position. Ours stays, too, if it may have to go round.
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

    /// Whether something of that node has still to come. What it has sent before it went has come.
    fn needs(&self, place: u32) -> bool {
        if self.round.is_some() {
            return self.members[self.around()[0]] == place && self.pieces.len() + 1 < self.members.len();
        }
        let child = |at: usize| self.members[at] == place && !self.below.contains_key(&at);
        self.parent() == Some(place) || self.children().any(child)
    }

    /// Parent and children, and those beside us in the ring: so that whoever is missing, all others hear of it.
    fn neighbours(&self) -> BTreeSet<u32> {
        let around = self.around().map(|at| self.members[at]);
        let tree = self.parent().into_iter().chain(self.children().map(|child| self.members[child]));
        tree.chain(around).filter(|&place| place != self.members[self.at]).collect()
    }
}

pub(super) type Acts = Vec<ExchangeAct>;

impl Exchange {
    /// The exchange of the node at place `here`.
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

    /// What went through it.
    pub fn stats(&self) -> ExchangeStats {
        self.stats
    }

    /// Every rank of the step.
    pub fn everybody(&self) -> IndexSet {
        match self.layout.ntasks() {
            0 => IndexSet::new(),
            n => IndexSet::range(0, n - 1),
        }
    }

    /// Whom this node will speak with first, when all ranks gather.
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

    /// The state of a gathering, new if need be. None: this node has no part in it.
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

    /// Places of the nodes of these ranks, rising.
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

    /// Whether it was over before: what still comes of it means nothing.
    pub(super) fn is_past(&self, gathering: &Gathering) -> bool {
        let key = (gathering.what.clone(), gathering.ranks.clone());
        self.begun.get(&key).is_some_and(|begun| gathering.number < *begun) && !self.open.contains_key(gathering)
    }

    /// Whether a node is lost of which something has still to come.
    pub(super) fn is_stuck(&self, gathering: &Gathering) -> bool {
        self.open.get(gathering).is_some_and(|open| self.lost.iter().any(|&place| open.needs(place)))
    }

    /// Whether a node that takes part is lost: it can't come to what begins now.
    fn misses_one(&self, gathering: &Gathering) -> bool {
        self.open.get(gathering).is_some_and(|open| open.members.iter().any(|place| self.lost.contains(place)))
    }

    fn advance(&mut self, gathering: &Gathering, out: &mut Acts) {
        let ready = |open: &&mut Open| !open.risen && open.round.is_none() && open.is_complete();
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

    /// All have come: so it goes down.
    fn conclude(&mut self, gathering: &Gathering, data: Vec<u8>, context: u64, out: &mut Acts) {
        let Some(open) = self.open.remove(gathering) else { return };
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

    /// It will not come together: so it goes everywhere but to `from`.
    pub(super) fn fail(&mut self, gathering: &Gathering, fault: Fault, from: Option<u32>, out: &mut Acts) {
        let Some(open) = self.open.remove(gathering) else { return };
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

    /// All below a child have come.
    pub(super) fn rise(&mut self, place: u32, gathering: &Gathering, brought: Brought, out: &mut Acts) {
        if self.is_past(gathering) {
            return;
        }
        if let Some(&fault) = self.failed.get(gathering) {
            let message = PeerMessage::Failed { gathering: gathering.clone(), fault };
            return out.push(ExchangeAct::Send { place, message });
        }
        let Some(open) = self.opened(gathering) else { return };
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

    /// Answers the questions for which `hopeless` holds (whom they went to, until when they are waited for).
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
