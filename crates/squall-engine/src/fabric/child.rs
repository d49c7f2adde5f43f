//! A child of the controller that tests and simulated worlds play: numbers what it says, and remembers what it was told
//! of itself.

use squall_model::id::{NodeId, Session};
use squall_model::report::Report;
use squall_model::set::NodeSet;
use squall_model::wire::fabric::{Composite, DownFrame, Downward, LaunchFailure, Put, Query, Tally, UpFrame, Upward};
use squall_model::wire::node::{Down, Registration};

/// The child's end of a connection.
#[derive(Debug, Default)]
pub struct Child {
    heard_hops: u64,
    said_hops: u64,
    batch: u64,
    /// The session that it was offered last.
    pub offered: Session,
    /// Its id, once it was welcomed.
    pub node: Option<NodeId>,
    /// Composites that the controller has taken.
    taken: u64,
    /// Queries that were not answered yet.
    asked: Vec<Query>,
}

impl Child {
    /// On a new connection; `node`: what it is called, from an earlier one.
    pub fn new(node: Option<NodeId>) -> Self {
        Self { node, ..Self::default() }
    }

    /// The next frame.
    pub fn say(&mut self, says: Vec<Upward>) -> UpFrame {
        let hop = self.said_hops + 1;
        self.said_hops += says.len() as u64;
        UpFrame { hop, says }
    }

    /// The next frame, with one composite.
    pub fn composite(&mut self, composite: Composite) -> UpFrame {
        self.batch += 1;
        self.say(vec![Upward::Composite { batch: self.batch, composite: Box::new(composite) }])
    }

    /// It wants to register.
    pub fn knock(&mut self, name: &str) -> UpFrame {
        let knocks = vec![(Vec::new(), name.to_owned())];
        self.composite(Composite { knocks, reports: 1, ..Composite::default() })
    }

    /// It registers.
    pub fn register(&mut self, registration: Registration) -> UpFrame {
        self.composite(Composite { registrations: vec![registration], reports: 1, ..Composite::default() })
    }

    /// It reports for itself.
    pub fn report(&mut self, reports: &[Report]) -> UpFrame {
        let node = self.node.expect("only a node that was welcomed reports");
        self.composite(composite_of(node, reports))
    }

    /// Answers the queries that have come: it is there, and whatever is asked holds.
    pub fn answer(&mut self) -> Option<UpFrame> {
        let yes: NodeSet = self.node.into_iter().collect();
        let tally = Tally { yes, ..Tally::default() };
        let asked = std::mem::take(&mut self.asked).into_iter();
        let says = asked.map(|query| Upward::Tally { epoch: query.epoch, number: query.number, tally: tally.clone() });
        let says: Vec<Upward> = says.collect();
        (!says.is_empty()).then(|| self.say(says))
    }

    /// How many of its composites are not taken.
    pub fn unconfirmed(&self) -> u64 {
        self.batch - self.taken
    }

    /// Takes a frame; returns the messages for this node in it.
    pub fn hear(&mut self, frame: DownFrame) -> Vec<Down> {
        assert_eq!(frame.hop, self.heard_hops + 1, "a gap");
        self.heard_hops += frame.says.len() as u64;
        let mut messages = Vec::new();
        for say in frame.says {
            match say {
                Downward::Path(_) | Downward::Chunk(_) | Downward::Letter(_) => {}
                Downward::Taken { batch } => self.taken = batch,
                Downward::Query(query) => self.asked.push(query),
                Downward::Put(put) => messages.extend(messages_of(&put)),
                Downward::Reply { node, put, .. } => {
                    self.node = node.or(self.node);
                    for message in messages_of(&put) {
                        match message {
                            Down::Identify => self.offered = Session { epoch: put.epoch, number: put.seq },
                            message => messages.push(message),
                        }
                    }
                }
            }
        }
        messages
    }
}

fn messages_of(put: &Put) -> Vec<Down> {
    put.parcel.open().expect("the controller makes no parcel that can't be opened").messages.clone()
}

/// What a node reports, as it leaves that node.
pub fn composite_of(node: NodeId, reports: &[Report]) -> Composite {
    let (here, mut composite) = (NodeSet::one(node), Composite::default());
    for report in reports {
        match report {
            Report::StepEnded { key, end } => composite.add_ended(*key, &here, end),
            Report::LaunchFailed { key, error, node_fault } => {
                let failure = LaunchFailure { key: *key, error: error.clone(), node_fault: *node_fault };
                composite.failed.push((node, failure));
            }
            Report::JobGone { job } => composite.add_gone(*job, &here),
        }
        composite.reports += 1;
    }
    composite
}
