//! The root of the tree: connections of the controller's children, the nodes that can be reached through each, and
//! what is to be said to them.

use std::collections::BTreeMap;

use squall_model::id::{Epoch, NodeId, Session, StepKey};
use squall_model::job::JobAttempt;
use squall_model::limits::HEARTBEAT_S;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{
    Chunk, DownFrame, Downward, Letter, Parcel, Path, Put, Query, Route, UpFrame, Window,
};
use squall_model::wire::node::Down;
use squall_model::wire::sealed::Sealed;

use crate::control::net::scope::Keyed;
use crate::control::port::{LinkId, Out};

/// Heartbeats without a frame after which a child's connection counts as dead.
const SILENT_HEARTBEATS: u64 = 3;

/// All that the controller knows of the tree.
#[derive(Debug, Default)]
pub(crate) struct Links {
    epoch: Epoch,
    /// Number of the last put or query of this incarnation.
    seq: u64,
    hops: BTreeMap<LinkId, Hop>,
    members: BTreeMap<NodeId, Member>,
    connected: NodeSet,
    /// When nodes were heard of last, in a session or after its end.
    heard: BTreeMap<NodeId, Time>,
    offers: BTreeMap<String, Offer>,
    outbox: Outbox,
    /// What was reported and is to be acknowledged, with those who reported it.
    known_steps: BTreeMap<StepKey, NodeSet>,
    known_jobs: BTreeMap<JobAttempt, NodeSet>,
}

/// The connection of a child.
#[derive(Debug)]
struct Hop {
    heard_hops: u64,
    said_hops: u64,
    heard: Time,
    said: Time,
    reach: NodeSet,
    says: Vec<Downward>,
    /// It is known by a key; None: a child of this machine, the controller's own.
    keyed: Option<Keyed>,
}

/// A session that was offered to a node that knocked.
#[derive(Debug)]
pub(crate) struct Offer {
    session: u64,
    link: LinkId,
    route: Route,
}

/// A node in session.
#[derive(Debug)]
pub(crate) struct Member {
    link: LinkId,
    session: u64,
    /// Load average, hundredths.
    pub(crate) load_centi: u32,
    /// Free memory, MiB.
    pub(crate) free_mb: u64,
    /// Version of its daemon.
    pub(crate) version: String,
}

/// Puts of this turn. Messages for the same set go into one, as long as no node sees them out of order.
#[derive(Debug, Default)]
struct Outbox {
    puts: Vec<(NodeSet, Vec<Down>)>,
    /// The put to one node alone that is the last to it.
    last: BTreeMap<NodeId, usize>,
}

impl Outbox {
    fn one(&mut self, node: NodeId, message: Down) {
        // What may be long comes alone: a frame can be divided between puts only.
        let long = matches!(&message, Down::StartJob { batch: Some(_), .. } | Down::StartStep(_));
        if let Some(&at) = self.last.get(&node).filter(|_| !long) {
            self.puts[at].1.push(message);
        } else {
            self.last.insert(node, self.puts.len());
            self.puts.push((NodeSet::one(node), vec![message]));
        }
    }
    fn many(&mut self, to: NodeSet, message: Down) {
        if let Some((_, messages)) = self.puts.last_mut().filter(|(known, _)| *known == to) {
            messages.push(message);
        } else {
            self.last.clear();
            self.puts.push((to, vec![message]));
        }
    }
}

/// Sessions and connections.
impl Links {
    /// A new life of the controller.
    pub(crate) fn begin(&mut self, epoch: Epoch) {
        self.epoch = epoch;
    }
    /// A child has connected.
    pub(crate) fn opened(&mut self, now: Time, link: LinkId, window: Window, keyed: Option<Keyed>) {
        let path = Path { above: Vec::new(), window, heartbeat_s: HEARTBEAT_S };
        let (says, reach) = (vec![Downward::Path(Box::new(path))], NodeSet::new());
        self.hops.insert(link, Hop { heard_hops: 0, said_hops: 0, heard: now, said: now, reach, says, keyed });
    }
    /// All children.
    pub(crate) fn children(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.hops.keys().copied()
    }
    /// The newest session that this controller can have offered.
    pub(crate) fn newest_session(&self) -> Session {
        Session { epoch: self.epoch, number: self.seq }
    }
    /// A child that is known by its key.
    pub(crate) fn keyed(&mut self, link: LinkId) -> Option<&mut Keyed> {
        self.hops.get_mut(&link)?.keyed.as_mut()
    }
    /// A child's connection has ended, or is to be ended; returns the nodes that can't be reached any more.
    pub(crate) fn closed(&mut self, link: LinkId) -> Vec<NodeId> {
        let Some(hop) = self.hops.remove(&link) else { return Vec::new() };
        let lost: Vec<NodeId> = hop.reach.iter().collect();
        for &node in &lost {
            self.members.remove(&node);
            self.connected.remove(node);
        }
        lost
    }
    /// Whether a frame is the next of its connection. None: the connection is broken.
    pub(crate) fn next(&mut self, now: Time, link: LinkId, frame: &UpFrame) -> Option<bool> {
        let Some(hop) = self.hops.get_mut(&link) else { return Some(false) };
        if frame.hop <= hop.heard_hops {
            return Some(false);
        }
        if frame.hop != hop.heard_hops + 1 {
            return None;
        }
        hop.heard_hops += frame.says.len() as u64;
        hop.heard = now;
        Some(true)
    }
    /// Children that have been silent for too long.
    pub(crate) fn silent(&self, now: Time) -> Vec<LinkId> {
        let patience = Span::from_secs(SILENT_HEARTBEATS * HEARTBEAT_S);
        self.hops.iter().filter(|(_, hop)| hop.heard + patience <= now).map(|(&link, _)| link).collect()
    }
    /// When a child will have been silent for too long, or must hear something.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let patience = Span::from_secs(SILENT_HEARTBEATS * HEARTBEAT_S);
        let heartbeat = Span::from_secs(HEARTBEAT_S);
        self.hops.values().map(|hop| (hop.heard + patience).min(hop.said + heartbeat)).min()
    }
    /// A node knocks: it is offered a session, and asked who it is.
    pub(crate) fn offer(&mut self, link: LinkId, route: Route, name: String) {
        let put = self.put_for_one(vec![Down::Identify]);
        self.offers.insert(name, Offer { session: put.seq, link, route: route.clone() });
        self.say(link, Downward::Reply { route, node: None, put });
    }
    /// The offer that a registration takes up. None: it is not the newest one made to that name.
    pub(crate) fn take_offer(&mut self, name: &str, session: Session) -> Option<Offer> {
        let newest = self.offers.get(name).is_some_and(|offer| offer.session == session.number);
        if newest && session.epoch == self.epoch { self.offers.remove(name) } else { None }
    }
    /// A node that took up an offer can't be let in.
    pub(crate) fn refuse(&mut self, offer: Offer, reason: String) {
        let put = self.put_for_one(vec![Down::Refused { reason }]);
        self.say(offer.link, Downward::Reply { route: offer.route, node: None, put });
    }
    /// A node that took up an offer is let in: a session begins.
    pub(crate) fn welcome(&mut self, node: NodeId, offer: Offer, version: String) {
        let Offer { session, link, route } = offer;
        if !self.hops.contains_key(&link) {
            return;
        }
        let fresh = Member { link, session, load_centi: 0, free_mb: 0, version };
        if let Some(old) = self.members.insert(node, fresh)
            && let Some(hop) = self.hops.get_mut(&old.link)
        {
            hop.reach.remove(node);
        }
        self.connected.insert(node);
        let put = self.put_for_one(vec![Down::Welcome { node }]);
        if let Some(member) = self.members.get_mut(&node) {
            // What relays learn of this session they learn from this put.
            member.session = put.seq.max(session);
        }
        if let Some(hop) = self.hops.get_mut(&link) {
            hop.reach.insert(node);
        }
        self.say(link, Downward::Reply { route, node: Some(node), put });
    }
    /// A relay says that a node can't be reached any more. True: that is news.
    pub(crate) fn lost(&mut self, link: LinkId, node: NodeId, session: u64) -> bool {
        let current = self.members.get(&node).is_some_and(|member| member.link == link && member.session <= session);
        if current {
            self.forget(node);
        }
        current
    }
    /// Nobody has heard of a node for too long: its session is over.
    pub(crate) fn forget(&mut self, node: NodeId) {
        let Some(member) = self.members.remove(&node) else { return };
        self.connected.remove(node);
        if let Some(hop) = self.hops.get_mut(&member.link) {
            hop.reach.remove(node);
        }
    }
    /// A node was heard of.
    pub(crate) fn hear(&mut self, now: Time, node: NodeId) {
        self.heard.insert(node, now);
    }
    /// When a node was heard of last in this life of the controller.
    pub(crate) fn heard(&self, node: NodeId) -> Option<Time> {
        self.heard.get(&node).copied()
    }
    /// A node in session.
    pub(crate) fn get(&self, node: NodeId) -> Option<&Member> {
        self.members.get(&node)
    }
    /// A node in session, to note what was heard of it.
    pub(crate) fn get_mut(&mut self, node: NodeId) -> Option<&mut Member> {
        self.members.get_mut(&node)
    }
    /// All nodes in session.
    pub(crate) fn connected(&self) -> &NodeSet {
        &self.connected
    }
}

/// What is said.
impl Links {
    /// Queues a message for a node.
    pub(crate) fn push(&mut self, node: NodeId, message: Down) {
        if self.connected.contains(node) {
            self.outbox.one(node, message);
        }
    }
    /// Queues a message if there is one.
    pub(crate) fn extend(&mut self, node: NodeId, message: Option<Down>) {
        if let Some(message) = message {
            self.push(node, message);
        }
    }
    /// Queues a message for every connected node of a set.
    pub(crate) fn put(&mut self, to: &NodeSet, message: Down) {
        let mut to = to.clone();
        to.intersect_with(&self.connected);
        match to.len() {
            0 => {}
            1 => to.first().into_iter().for_each(|node| self.outbox.one(node, message.clone())),
            _ => self.outbox.many(to, message),
        }
    }
    /// Some nodes reported the end of a step: they will be told when it is durable.
    pub(crate) fn know_step(&mut self, key: StepKey, nodes: &NodeSet) {
        self.known_steps.entry(key).or_default().union_with(nodes);
    }
    /// Some nodes reported that nothing of a job is left.
    pub(crate) fn know_job(&mut self, job: JobAttempt, nodes: &NodeSet) {
        self.known_jobs.entry(job).or_default().union_with(nodes);
    }
    /// A composite of a child has been taken.
    pub(crate) fn taken(&mut self, link: LinkId, batch: u64) {
        self.say(link, Downward::Taken { batch });
    }
    /// Asks all nodes of a set; returns the query's number and the children that will answer.
    pub(crate) fn ask(&mut self, mut query: Query) -> (u64, Vec<LinkId>) {
        // What was queued before was said before.
        self.emit();
        self.seq += 1;
        (query.epoch, query.number) = (self.epoch, self.seq);
        let mut asked = Vec::new();
        for (&link, hop) in self.hops.iter_mut().filter(|(_, hop)| !hop.reach.is_disjoint(&query.to)) {
            hop.says.push(Downward::Query(query.clone()));
            asked.push(link);
        }
        (self.seq, asked)
    }
    /// A piece of a file for some nodes.
    pub(crate) fn chunk(&mut self, chunk: &Chunk) {
        // What was queued before was said before.
        self.emit();
        for hop in self.hops.values_mut().filter(|hop| !hop.reach.is_disjoint(&chunk.to)) {
            hop.says.push(Downward::Chunk(chunk.clone()));
        }
    }
    /// A node has answered on this connection, though its session is over: it knocks at once. Else it would only when it
    /// has not been asked anything for long.
    pub(crate) fn rouse(&mut self, link: LinkId, node: NodeId) {
        let put = Put { to: NodeSet::one(node), ..self.put_for_one(vec![Down::Knock]) };
        self.say(link, Downward::Put(put));
    }
    /// A letter for a step daemon on a node.
    pub(crate) fn letter(&mut self, letter: Box<Letter>) {
        if let Some(link) = self.members.get(&letter.to).map(|member| member.link) {
            self.say(link, Downward::Letter(letter));
        }
    }
    /// A number that no other put, query or order of this incarnation has.
    pub(crate) fn next_number(&mut self) -> (Epoch, u64) {
        self.emit();
        self.seq += 1;
        (self.epoch, self.seq)
    }
    /// Turns what is queued into one frame for each child that has something to hear.
    pub(crate) fn flush(&mut self, now: Time, out: &mut Out) {
        self.acknowledge();
        self.emit();
        let heartbeat = Span::from_secs(HEARTBEAT_S);
        for (&link, hop) in &mut self.hops {
            if !hop.says.is_empty() || hop.said + heartbeat <= now {
                let says = std::mem::take(&mut hop.says);
                let first = hop.said_hops + 1;
                hop.said_hops += says.len() as u64;
                hop.said = now;
                out.sends.push((link, DownFrame { hop: first, says }));
            }
        }
    }

    /// One message for all that the same nodes reported.
    fn acknowledge(&mut self) {
        if self.known_steps.is_empty() && self.known_jobs.is_empty() {
            return;
        }
        let mut by_set: BTreeMap<NodeSet, (Vec<StepKey>, Vec<JobAttempt>)> = BTreeMap::new();
        for (key, nodes) in std::mem::take(&mut self.known_steps) {
            by_set.entry(nodes).or_default().0.push(key);
        }
        for (job, nodes) in std::mem::take(&mut self.known_jobs) {
            by_set.entry(nodes).or_default().1.push(job);
        }
        for (nodes, (steps, jobs)) in by_set {
            self.put(&nodes, Down::Known { steps, jobs });
        }
    }

    fn emit(&mut self) {
        self.outbox.last.clear();
        for (to, messages) in std::mem::take(&mut self.outbox.puts) {
            self.seq += 1;
            // What only one node will report has no others to wait for.
            let asks = messages.iter().filter(|_| to.len() > 1).filter_map(Down::ask).collect();
            let parcel = Sealed::new(Parcel { messages, blobs: Vec::new() });
            let alone = if to.len() == 1 { to.first() } else { None };
            let put = Put { epoch: self.epoch, seq: self.seq, to, asks, parcel };
            if let Some(member) = alone.and_then(|node| self.members.get(&node)) {
                let link = member.link;
                self.say(link, Downward::Put(put));
                continue;
            }
            for hop in self.hops.values_mut().filter(|hop| !hop.reach.is_disjoint(&put.to)) {
                let to = hop.reach.intersection(&put.to);
                hop.says.push(Downward::Put(Put { to, ..put.clone() }));
            }
        }
    }

    fn put_for_one(&mut self, messages: Vec<Down>) -> Put {
        self.emit();
        self.seq += 1;
        let parcel = Sealed::new(Parcel { messages, blobs: Vec::new() });
        Put { epoch: self.epoch, seq: self.seq, to: NodeSet::new(), asks: Vec::new(), parcel }
    }

    fn say(&mut self, link: LinkId, say: Downward) {
        if let Some(hop) = self.hops.get_mut(&link) {
            hop.says.push(say);
        }
    }
}
