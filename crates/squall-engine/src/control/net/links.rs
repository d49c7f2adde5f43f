//! The root of the tree of node daemons: connections of the controller's children, the nodes below each, and the
//! messages queued for nodes.

use std::collections::BTreeMap;

use squall_model::id::{Epoch, NodeId, Session, StepKey};
use squall_model::job::JobAttempt;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::version::ClusterVersion;
use squall_model::wire::fabric::{
    Chunk, DownFrame, Downward, Letter, Parcel, Path, Put, Query, Route, UpFrame, Window,
};
use squall_model::wire::node::Down;
use squall_model::wire::sealed::Sealed;

use crate::control::net::scope::Keyed;
use crate::control::port::{LinkId, Out};

/// Heartbeat periods without a frame after which a child's connection counts as dead.
const SILENT_HEARTBEATS: u64 = 3;

/// The controller's side of the tree: connections, sessions and queued messages.
#[derive(Debug, Default)]
pub(crate) struct Links {
    epoch: Epoch,
    /// Number of the last put (message to a set of nodes) or query of this run of the controller.
    seq: u64,
    hops: BTreeMap<LinkId, Hop>,
    members: BTreeMap<NodeId, Member>,
    connected: NodeSet,
    /// When nodes last reported, in a session or after its end.
    heard: BTreeMap<NodeId, Time>,
    /// The newest offers to each node that asked to register: one for each connection by which it asked.
    offers: BTreeMap<String, Vec<Offer>>,
    outbox: Outbox,
    /// Reported ends of steps that are to be acknowledged, with the nodes that reported them.
    known_steps: BTreeMap<StepKey, NodeSet>,
    /// Reported ends of jobs that are to be acknowledged, with the nodes that reported them.
    known_jobs: BTreeMap<JobAttempt, NodeSet>,
}

/// The connection of a child in the tree, with what is queued for it.
#[derive(Debug)]
struct Hop {
    heard_hops: u64,
    said_hops: u64,
    heard: Time,
    said: Time,
    /// Time between heartbeats of this connection.
    beat: Span,
    reach: NodeSet,
    says: Vec<Downward>,
    /// The node that the child has proved to be by its key, and what it may report about. None: the child runs on this
    /// machine as the cluster's owner.
    keyed: Option<Keyed>,
}

impl Hop {
    /// Returns until when the child may be silent.
    fn patience(&self) -> Time {
        self.heard + Span(self.beat.0 * SILENT_HEARTBEATS)
    }
}

/// A session offered to a node that asked to register.
#[derive(Debug)]
pub(crate) struct Offer {
    session: u64,
    link: LinkId,
    route: Route,
}

impl Offer {
    /// Returns the connection over which the node asked to register.
    pub(crate) fn link(&self) -> LinkId {
        self.link
    }
}

/// A node in session, with its last reported load and memory.
#[derive(Debug)]
pub(crate) struct Member {
    link: LinkId,
    session: u64,
    /// Load average in hundredths: 100 is a load of 1.
    pub(crate) load_centi: u32,
    /// Free memory of the node, MiB.
    pub(crate) free_mb: u64,
    /// Release of the node daemon.
    pub(crate) version: String,
    /// The newest version of a cluster that the node daemon can work with.
    pub(crate) speaks: ClusterVersion,
}

/// Puts (messages to sets of nodes) of this turn. Messages to the same set of nodes share a put, as long as no node
/// gets messages out of order.
#[derive(Debug, Default)]
struct Outbox {
    puts: Vec<(NodeSet, Vec<Down>)>,
    /// Position in `puts` of the last put to a node, if that put goes to this node alone.
    last: BTreeMap<NodeId, usize>,
}

impl Outbox {
    fn one(&mut self, node: NodeId, message: Down) {
        // A message that may be long gets its own put, because a frame can be divided only between puts.
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

/// Sessions of nodes, and connections of the children in the tree.
impl Links {
    /// Begins a new run of the controller, with the epoch that marks its messages.
    pub(crate) fn begin(&mut self, epoch: Epoch) {
        self.epoch = epoch;
    }
    /// Records that a child in the tree has connected, and queues the parameters of the connection for it.
    pub(crate) fn opened(&mut self, now: Time, link: LinkId, (window, beat): (Window, Span), keyed: Option<Keyed>) {
        let says = vec![Downward::Path(Box::new(Path::of_controller(window, beat)))];
        let reach = NodeSet::new();
        self.hops.insert(link, Hop { heard_hops: 0, said_hops: 0, heard: now, said: now, beat, reach, says, keyed });
    }
    /// Returns the connections of all children in the tree.
    pub(crate) fn children(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.hops.keys().copied()
    }
    /// Returns the newest session that this controller can have offered to a node.
    pub(crate) fn newest_session(&self) -> Session {
        Session { epoch: self.epoch, number: self.seq }
    }
    /// Returns the node that a child has proved to be by its key. None: the child runs on this machine as the cluster's
    /// owner.
    pub(crate) fn keyed(&mut self, link: LinkId) -> Option<&mut Keyed> {
        self.hops.get_mut(&link)?.keyed.as_mut()
    }
    /// Returns whether a child speaks for this node on the node's own connection: it has proved to be that node by its
    /// key, or runs on this machine as the cluster's owner.
    pub(crate) fn is_own(&self, link: LinkId, name: &str) -> bool {
        self.hops.get(&link).is_some_and(|hop| hop.keyed.as_ref().is_none_or(|keyed| keyed.is(name)))
    }
    /// Removes the connection of a child that has ended or is about to be closed. Returns the nodes below it, which
    /// can't be reached any more.
    pub(crate) fn closed(&mut self, link: LinkId) -> Vec<NodeId> {
        let Some(hop) = self.hops.remove(&link) else { return Vec::new() };
        let lost: Vec<NodeId> = hop.reach.iter().collect();
        for &node in &lost {
            self.members.remove(&node);
            self.connected.remove(node);
        }
        lost
    }
    /// Checks the sequence number of a child's frame. Returns true if it is the next one, and false for a repeated
    /// frame. None: frames are missing, so the connection is broken.
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
    /// Returns the children that have sent nothing for too long.
    pub(crate) fn silent(&self, now: Time) -> Vec<LinkId> {
        self.hops.iter().filter(|(_, hop)| hop.patience() <= now).map(|(&link, _)| link).collect()
    }
    /// Counts the last `away` until `now` as no silence of anybody, as this controller did not run. Every node then counts
    /// as heard at `least` or later.
    pub(crate) fn excuse(&mut self, now: Time, away: Span, least: Time) {
        for hop in self.hops.values_mut() {
            hop.heard = (hop.heard + away).min(now);
        }
        for heard in self.heard.values_mut() {
            *heard = (*heard + away).min(now).max(least);
        }
    }
    /// Returns when the first child will have sent nothing for too long, or must be sent a heartbeat. None: there are
    /// no children.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.hops.values().map(|hop| hop.patience().min(hop.said + hop.beat)).min()
    }
    /// Answers a registration request: offers the node a session and asks for its identity. A node that has just got a new
    /// parent may have asked by the old one, too: an offer that does not get through there takes none from it here.
    pub(crate) fn offer(&mut self, link: LinkId, route: Route, name: String) {
        let put = self.put_for_one(vec![Down::Identify]);
        let offers = self.offers.entry(name).or_default();
        offers.retain(|offer| offer.link != link && self.hops.contains_key(&offer.link));
        offers.push(Offer { session: put.seq, link, route: route.clone() });
        self.say(link, Downward::Reply { route, node: None, put });
    }
    /// Removes and returns the offer that a registration accepts, and removes the older ones. None: a newer one was made by
    /// the same connection, or was accepted.
    pub(crate) fn take_offer(&mut self, name: &str, session: Session) -> Option<Offer> {
        let offers = self.offers.get_mut(name).filter(|_| session.epoch == self.epoch)?;
        let at = offers.iter().position(|offer| offer.session == session.number)?;
        let taken = offers.drain(..=at).next_back();
        if offers.is_empty() {
            self.offers.remove(name);
        }
        taken
    }
    /// Refuses the registration of a node that has accepted a session offer.
    pub(crate) fn refuse(&mut self, (offer, name): (Offer, String), reason: String) {
        let put = self.put_for_one(vec![Down::Refused { reason, name: Some(name) }]);
        self.say(offer.link, Downward::Reply { route: offer.route, node: None, put });
    }
    /// Begins the session of a node that has accepted an offer, and sends the node its id.
    pub(crate) fn welcome(
        &mut self,
        node: NodeId,
        (offer, name): (Offer, String),
        (version, speaks): (String, ClusterVersion),
    ) {
        let Offer { session, link, route } = offer;
        if !self.hops.contains_key(&link) {
            return;
        }
        let fresh = Member { link, session, load_centi: 0, free_mb: 0, version, speaks };
        if let Some(old) = self.members.insert(node, fresh)
            && let Some(hop) = self.hops.get_mut(&old.link)
        {
            hop.reach.remove(node);
        }
        self.connected.insert(node);
        let put = self.put_for_one(vec![Down::Welcome { node, name: Some(name) }]);
        if let Some(member) = self.members.get_mut(&node) {
            // Relays learn of this session from this message.
            member.session = put.seq.max(session);
        }
        if let Some(hop) = self.hops.get_mut(&link) {
            hop.reach.insert(node);
        }
        self.say(link, Downward::Reply { route, node: Some(node), put });
    }
    /// Handles a relay's report that a node can't be reached any more. Returns true if the session was current; it has
    /// then ended.
    pub(crate) fn lost(&mut self, link: LinkId, node: NodeId, session: u64) -> bool {
        let current = self.members.get(&node).is_some_and(|member| member.link == link && member.session <= session);
        if current {
            self.forget(node);
        }
        current
    }
    /// Ends the session of a node that has not responded for too long.
    pub(crate) fn forget(&mut self, node: NodeId) {
        // because a node that is powered down may have lost its session before
        let Some(member) = self.members.remove(&node) else { return };
        self.connected.remove(node);
        if let Some(hop) = self.hops.get_mut(&member.link) {
            hop.reach.remove(node);
        }
    }
    /// Records that a node has reported at `now`.
    pub(crate) fn hear(&mut self, now: Time, node: NodeId) {
        self.heard.insert(node, now);
    }
    /// Returns when a node last reported in this run of the controller; None: it has not.
    pub(crate) fn heard(&self, node: NodeId) -> Option<Time> {
        self.heard.get(&node).copied()
    }
    /// Returns session, load and version of a node; None: it is not in session.
    pub(crate) fn get(&self, node: NodeId) -> Option<&Member> {
        self.members.get(&node)
    }
    /// Returns the connection by which a node in session is reached. None: it is not in session.
    pub(crate) fn link_of(&self, node: NodeId) -> Option<LinkId> {
        self.members.get(&node).map(|member| member.link)
    }
    /// Returns a node in session, to update its load and memory; None: it is not in session.
    pub(crate) fn get_mut(&mut self, node: NodeId) -> Option<&mut Member> {
        self.members.get_mut(&node)
    }
    /// Returns the number of a node's session; None: it is not in session.
    pub(crate) fn session(&self, node: NodeId) -> Option<u64> {
        self.get(node).map(|member| member.session)
    }
    /// Returns all nodes in session.
    pub(crate) fn connected(&self) -> &NodeSet {
        &self.connected
    }
}

/// Queues of messages to nodes: puts, queries, pieces of files, acknowledgements.
impl Links {
    /// Queues a message for a node; drops it if the node is not in session.
    pub(crate) fn push(&mut self, node: NodeId, message: Down) {
        if self.connected.contains(node) {
            self.outbox.one(node, message);
        }
    }
    /// Queues a message for a node; with None does nothing.
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
    /// Queues an acknowledgement to nodes that reported the end of a step; it leaves when the end is durable.
    pub(crate) fn know_step(&mut self, key: StepKey, nodes: &NodeSet) {
        self.known_steps.entry(key).or_default().union_with(nodes);
    }
    /// Queues an acknowledgement to nodes that reported the end of a job; it leaves when the end is durable.
    pub(crate) fn know_job(&mut self, job: JobAttempt, nodes: &NodeSet) {
        self.known_jobs.entry(job).or_default().union_with(nodes);
    }
    /// Acknowledges a merged report, number `batch`, to the child that sent it.
    pub(crate) fn taken(&mut self, link: LinkId, batch: u64) {
        self.say(link, Downward::Taken { batch });
    }
    /// Sends a query to all nodes of a set. Returns the query's number and the children that will answer.
    pub(crate) fn ask(&mut self, mut query: Query) -> (u64, Vec<LinkId>) {
        // Messages that were queued before must leave before the query.
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
    /// Sends a piece of a file to the nodes that it names.
    pub(crate) fn chunk(&mut self, chunk: &Chunk) {
        // Messages that were queued before must leave before the piece.
        self.emit();
        for hop in self.hops.values_mut().filter(|hop| !hop.reach.is_disjoint(&chunk.to)) {
            hop.says.push(Downward::Chunk(chunk.clone()));
        }
    }
    /// Tells a node to register at once, as it has answered on this connection after its session ended. Without this,
    /// the node would register only after a long time without queries.
    pub(crate) fn rouse(&mut self, link: LinkId, node: NodeId) {
        let put = Put { to: NodeSet::one(node), ..self.put_for_one(vec![Down::Knock]) };
        self.say(link, Downward::Put(put));
    }
    /// Sends a relayed message to a step daemon on a node.
    pub(crate) fn letter(&mut self, letter: Box<Letter>) {
        if let Some(link) = self.members.get(&letter.to).map(|member| member.link) {
            self.say(link, Downward::Letter(letter));
        }
    }
    /// Returns a number that no put (message to a set of nodes), query or order of this run of the controller has had.
    pub(crate) fn next_number(&mut self) -> (Epoch, u64) {
        self.emit();
        self.seq += 1;
        (self.epoch, self.seq)
    }
    /// Makes one frame for each child of what is queued for it; a child that is due for a heartbeat gets an empty
    /// frame.
    pub(crate) fn flush(&mut self, now: Time, out: &mut Out) {
        self.acknowledge();
        self.emit();
        for (&link, hop) in &mut self.hops {
            if !hop.says.is_empty() || hop.said + hop.beat <= now {
                let says = std::mem::take(&mut hop.says);
                let first = hop.said_hops + 1;
                hop.said_hops += says.len() as u64;
                hop.said = now;
                out.sends.push((link, DownFrame { hop: first, says }));
            }
        }
    }

    /// Queues the acknowledgements of reported ends: one message for all ends that the same set of nodes reported.
    pub(crate) fn acknowledge(&mut self) {
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
            // Reports that come from only one node need no merging.
            let asks = messages.iter().filter(|_| to.len() > 1).filter_map(Down::ask).collect();
            let parcel = Sealed::new(Parcel::of(messages, Some(to.clone())));
            let alone = if to.len() == 1 { to.first() } else { None };
            let put = Put { epoch: self.epoch, seq: self.seq, to, asks, parcel, proof: None };
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
        let parcel = Sealed::new(Parcel::of(messages, None));
        Put { epoch: self.epoch, seq: self.seq, to: NodeSet::new(), asks: Vec::new(), parcel, proof: None }
    }

    fn say(&mut self, link: LinkId, say: Downward) {
        if let Some(hop) = self.hops.get_mut(&link) {
            hop.says.push(say);
        }
    }
}
