//! Stand-in for a child of the controller, for tests and simulations. It numbers its frames, and remembers its session
//! and id.

use squall_model::id::{NodeId, Session};
use squall_model::report::Report;
use squall_model::set::NodeSet;
use squall_model::wire::fabric::{Composite, DownFrame, Downward, LaunchFailure, Put, Query, Tally, UpFrame, Upward};
use squall_model::wire::node::{Down, Registration};

/// The child's end of a connection to the controller, for tests and simulations.
#[derive(Debug, Default)]
pub struct Child {
    heard_hops: u64,
    said_hops: u64,
    batch: u64,
    /// Session that the controller offered last.
    pub offered: Session,
    /// The child's node id, once the controller has accepted the child.
    pub node: Option<NodeId>,
    /// Number of composites (messages of merged reports) that the controller has acknowledged.
    taken: u64,
    /// Queries of the controller that the child has not answered yet.
    asked: Vec<Query>,
}

impl Child {
    /// Makes the child's end of a new connection. `node`: its id from an earlier connection.
    pub fn new(node: Option<NodeId>) -> Self {
        Self { node, ..Self::default() }
    }

    /// Makes the child's next frame to the controller, with these messages.
    pub fn say(&mut self, says: Vec<Upward>) -> UpFrame {
        let hop = self.said_hops + 1;
        self.said_hops += says.len() as u64;
        UpFrame { hop, says }
    }

    /// Makes the child's next frame to the controller, with one composite (a message of merged reports).
    pub fn composite(&mut self, composite: Composite) -> UpFrame {
        self.batch += 1;
        self.say(vec![Upward::Composite { batch: self.batch, composite: Box::new(composite) }])
    }

    /// Makes a frame that requests registration of the node `name`.
    pub fn knock(&mut self, name: &str) -> UpFrame {
        let knocks = vec![(Vec::new(), name.to_owned())];
        self.composite(Composite { knocks, reports: 1, ..Composite::default() })
    }

    /// Makes a frame that registers the child.
    pub fn register(&mut self, registration: Registration) -> UpFrame {
        self.composite(Composite { registrations: vec![registration], reports: 1, ..Composite::default() })
    }

    /// Makes a frame with reports of the child about itself.
    pub fn report(&mut self, reports: &[Report]) -> UpFrame {
        let node = self.node.expect("only a node that was welcomed reports");
        self.composite(composite_of(node, reports))
    }

    /// Makes a frame that answers yes to all queries that the parent has open here. None: there are none.
    pub fn answer(&mut self) -> Option<UpFrame> {
        let yes: NodeSet = self.node.into_iter().collect();
        let tally = Tally { yes, ..Tally::default() };
        let asked = std::mem::take(&mut self.asked).into_iter();
        let says = asked.map(|query| Upward::Tally { epoch: query.epoch, number: query.number, tally: tally.clone() });
        let says: Vec<Upward> = says.collect();
        (!says.is_empty()).then(|| self.say(says))
    }

    /// Returns how many of the child's composites (messages of merged reports) the controller has not acknowledged.
    pub fn unconfirmed(&self) -> u64 {
        self.batch - self.taken
    }

    /// Accepts a frame of the controller; returns the messages for this node in it.
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

/// Makes the composite (message of merged reports) in which a node sends these reports of its own.
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
