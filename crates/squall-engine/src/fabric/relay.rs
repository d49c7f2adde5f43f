//! Messages that pass through a node: puts and queries downward, reports and answers upward.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::id::{Epoch, NodeId};
use squall_model::series::Used;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{
    Chunk, Composite, DownFrame, Downward, Health, Letter, Path, Put, Query, Route, Tally, UpFrame, Upward, Variable,
    Window,
};

use super::gather::Gather;
use super::parent::{Dial, Parent, SILENT_HEARTBEATS};
use super::queries::OpenQueries;

use crate::invariant::invariant;

/// Lateness from which on a node doubts itself.
const LATE: Span = Span::from_secs(1);

/// Event on a relay's connections, given by the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetInput {
    /// The requested connection to a parent is open. The one to the previous parent is closed, and no further frame
    /// of it comes.
    ParentOpened,
    /// The requested connection could not be made. The previous one, if any, is still open.
    DialFailed,
    /// The connection to the parent has ended.
    ParentClosed,
    /// A frame from the parent.
    FromParent(Box<DownFrame>),
    /// A node has connected to this one. Connection numbers are never reused within a run of the daemon.
    ChildOpened {
        /// Number of the child's connection.
        link: u32,
    },
    /// The connection of a child has ended.
    ChildClosed {
        /// Number of the child's connection.
        link: u32,
    },
    /// A frame from a child.
    FromChild {
        /// Number of the child's connection.
        link: u32,
        /// Frame that the child sent.
        frame: Box<UpFrame>,
    },
    /// A chunk of a file from outside the tree: from the node above this one in the file's own tree, or by multicast.
    Beside(Chunk),
}

/// Output of a relay, for the host to carry out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetOut {
    /// Frame for the parent.
    pub up: Option<UpFrame>,
    /// Frames for children, with the number of each child's connection.
    pub down: Vec<(u32, DownFrame)>,
    /// Connections of children to close, after the frames are sent. The relay has already dropped them.
    pub drop: Vec<u32>,
    /// Whether to close the connection to the parent. The relay has already dropped it.
    pub hang_up: bool,
    /// Parent to connect to. Answered by `ParentOpened` or `DialFailed`.
    pub dial: Option<Dial>,
    /// Chunks of files for nodes by name, which may be no neighbours in the tree. They go over connections of their
    /// own, in order for each node. A failure is not reported.
    pub beside: Vec<(String, Chunk)>,
}

/// Message that the relay has for its own node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// There is now a path to the controller: time to register.
    Path,
    /// There is no path to the controller at present.
    NoPath,
    /// A put (command of the controller to a set of nodes) with this node among its receivers.
    Put {
        /// The node's id, if the put was a reply to this node alone and tells it its id.
        node: Option<NodeId>,
        /// The command, with its receivers.
        put: Put,
    },
    /// The controller queries a variable. The next `settle` answers with its value.
    Asked(Variable),
    /// A heartbeat of the controller, after `Asked`: its epoch and number, and the earlier ones of which it has had answers,
    /// with the nodes that have sent them. The next `settle` sends the answer.
    Beat {
        /// Epoch of the controller, and number of the heartbeat.
        key: (Epoch, u64),
        /// Earlier heartbeats by number, with the nodes of which the controller has had the answer.
        heard: Vec<(u64, NodeSet)>,
    },
    /// A chunk of a file.
    Chunk(Chunk),
    /// A message for a step daemon of this node.
    Letter(Box<Letter>),
}

/// A node's part in the tree: its connections to parent and children, and the messages that pass through it.
#[derive(Debug)]
pub struct Relay {
    /// This node's id; None: the controller has not told it yet.
    node: Option<NodeId>,
    parent: Parent,
    children: BTreeMap<u32, Child>,
    /// Whether messages for children may be waiting to be sent.
    tells: bool,
    /// Earliest time at which a child is due a heartbeat, or counts as dead if it stays silent. None: there are no
    /// children.
    children_due: Option<Time>,
    /// For each node below in the tree: the child's connection through which it was last reached, and the number of the
    /// session that it had there; 0: that session was of an earlier epoch.
    below: BTreeMap<NodeId, (u32, u64)>,
    /// The newest epoch of a controller that has replied to this node or one below.
    epoch: Epoch,
    gather: Gather,
    asked: OpenQueries,
    says: Vec<Upward>,
    /// When `settle` was due, as of its last call. A node that comes later did not run meanwhile. None: nothing is due.
    due: Option<Time>,
}

#[derive(Debug)]
struct Child {
    heard_hops: u64,
    said_hops: u64,
    heard: Time,
    said: Time,
    reach: NodeSet,
    says: Vec<Downward>,
}

impl Child {
    fn say(&mut self, say: Downward) {
        // Memory for exactly one message: most frames hold one, and a rack has many frames under way at once.
        if self.says.is_empty() {
            self.says.reserve_exact(1);
        }
        self.says.push(say);
    }
}

impl Relay {
    /// Makes a relay. `home`: names of the nodes above it in a healthy tree, nearest first.
    pub fn new(home: Vec<String>) -> Self {
        Self {
            node: None,
            parent: Parent::new(home),
            children: BTreeMap::new(),
            tells: false,
            children_due: None,
            below: BTreeMap::new(),
            epoch: Epoch::default(),
            gather: Gather::default(),
            asked: OpenQueries::default(),
            says: Vec::new(),
            due: None,
        }
    }

    /// Returns whether there is a path to the controller.
    pub fn has_path(&self) -> bool {
        self.path().is_some()
    }

    /// Returns this node's id; None: the controller has not told it yet.
    pub fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// Returns how many nodes can be reached through this one.
    pub fn below(&self) -> usize {
        self.below.len()
    }

    /// Returns the nodes reachable through the child on connection `link`; None: there is no such child.
    pub fn reach_of(&self, link: u32) -> Option<&NodeSet> {
        self.children.get(&link).map(|child| &child.reach)
    }

    fn path(&self) -> Option<&Path> {
        self.parent.attached.as_ref()?.path.as_ref()
    }

    /// Handles an event on the connections. Messages for the node itself go to `local`.
    pub fn take(&mut self, now: Time, input: NetInput, local: &mut Vec<Delivery>, out: &mut NetOut) {
        match input {
            NetInput::ParentOpened => {
                self.parent.opened(now);
                self.cut();
                local.push(Delivery::NoPath);
            }
            NetInput::DialFailed => self.parent.failed(now),
            NetInput::ParentClosed => self.lose_parent(now, false, local),
            NetInput::FromParent(frame) => self.take_down(now, *frame, local, out),
            NetInput::ChildOpened { link } => self.child_opened(now, link),
            NetInput::ChildClosed { link } => self.lose_child(now, link),
            NetInput::FromChild { link, frame } => self.take_up(now, link, *frame, (local, out)),
            NetInput::Beside(chunk) => pass_on(chunk, local, out),
        }
    }

    /// Asks the controller directly for a path, because this one is broken or not to be trusted. False: this node is
    /// attached to the controller already, or has no parent.
    pub fn detour(&mut self) -> bool {
        self.parent.detour()
    }

    /// Connects to the controller once more, where this node is attached to it already: its greeting says with which key it
    /// signs.
    pub fn reconnect_for_key(&mut self, now: Time) {
        self.parent.reconnect_for_key(now);
    }

    /// Returns the time between two of the controller's queries to all nodes, as it was told last.
    pub fn beat(&self) -> Span {
        self.parent.beat()
    }

    /// Returns this node's parent in the tree. None: it has none.
    pub fn parent(&self) -> Option<&Dial> {
        self.parent.attached.as_ref().map(|attached| &attached.to)
    }

    /// Adds the node's own reports, registration requests and registrations to the next composite.
    pub fn report(&mut self, now: Time, composite: Composite) {
        self.gather.add(now, composite, None);
    }

    /// Sends messages that are due. `own` returns the values of this node's variables, the resource usage that belongs
    /// to them, and the node's health. To be called at the end of every step of the node machine.
    pub fn settle(
        &mut self,
        now: Time,
        own: (impl Fn(&Variable) -> i64, impl Fn(&Variable) -> Option<Used>, Health),
        local: &mut Vec<Delivery>,
        out: &mut NetOut,
    ) {
        self.doubt_itself(now);
        if self.parent.is_silent(now) {
            out.hang_up = true;
            self.lose_parent(now, true, local);
        }
        self.drop_silent_children(now, out);
        if let Some(dial) = self.parent.dial(now) {
            out.dial = Some(dial);
        }
        if self.has_path() {
            self.asked.settle(now, self.node, own, &mut self.says);
            while let Some((batch, composite)) = self.gather.take(now) {
                self.says.push(Upward::Composite { batch, composite: Box::new(composite) });
            }
        }
        self.flush(now, out);
        self.due = self.deadline();
    }

    /// Counts no silence of parent and children for the time in which this node itself did not run, because its daemon or
    /// its machine was stopped or starved: what they have sent meanwhile waits to be read.
    fn doubt_itself(&mut self, now: Time) {
        // because it usually comes in time
        let Some(away) = self.due.map(|due| now.since(due)).filter(|away| *away >= LATE) else { return };
        self.parent.excuse(now, away);
        for child in self.children.values_mut() {
            child.heard = (child.heard + away).min(now);
        }
        self.children_due = Some(now);
    }

    /// Returns when to call `settle` again if no event comes before.
    pub fn deadline(&self) -> Option<Time> {
        let gather = self.gather.deadline().filter(|_| self.has_path());
        [self.parent.deadline(), gather, self.asked.deadline(), self.children_due].into_iter().flatten().min()
    }

    fn flush(&mut self, now: Time, out: &mut NetOut) {
        let heartbeat = self.parent.heartbeat();
        let below = heartbeat.min(self.parent.pulse());
        if let Some(attached) = &mut self.parent.attached {
            if !self.says.is_empty() || attached.said + heartbeat <= now {
                let says = std::mem::take(&mut self.says);
                let first = attached.said_hops + 1;
                attached.said_hops += says.len() as u64;
                attached.said = now;
                out.up = Some(UpFrame { hop: first, says });
            }
        } else {
            self.says.clear();
        }
        if !std::mem::take(&mut self.tells) && self.children_due.is_none_or(|due| now < due) {
            return;
        }
        self.children_due = None;
        for (&link, child) in &mut self.children {
            if !child.says.is_empty() || child.said + below <= now {
                let says = std::mem::take(&mut child.says);
                let first = child.said_hops + 1;
                child.said_hops += says.len() as u64;
                child.said = now;
                out.down.push((link, DownFrame { hop: first, says }));
            }
            let due = (child.heard + Span(heartbeat.0 * SILENT_HEARTBEATS)).min(child.said + below);
            self.children_due = Some(self.children_due.map_or(due, |least| least.min(due)));
        }
    }
}

/// Handling of the connection to the parent.
impl Relay {
    fn lose_parent(&mut self, now: Time, silent: bool, local: &mut Vec<Delivery>) {
        if self.parent.attached.is_some() {
            self.parent.closed(now, silent);
            self.cut();
            local.push(Delivery::NoPath);
        }
    }

    /// Drops all that was under way through the parent. The senders repeat it once there is a path again.
    fn cut(&mut self) {
        let window = self.gather.window();
        self.gather.restart(window);
        self.asked.clear();
        self.says.clear();
    }

    fn take_down(&mut self, now: Time, frame: DownFrame, local: &mut Vec<Delivery>, out: &mut NetOut) {
        // because what a lost parent has sent may still come
        let Some(attached) = &mut self.parent.attached else { return };
        if frame.hop <= attached.heard_hops {
            return;
        }
        if frame.hop != attached.heard_hops + 1 {
            out.hang_up = true;
            return self.lose_parent(now, false, local);
        }
        attached.heard_hops += frame.says.len() as u64;
        attached.heard = now;
        for say in frame.says {
            match say {
                Downward::Path(path) => self.new_path(*path, local),
                Downward::Reply { route, node, put } => self.reply(route, node, put, local),
                Downward::Put(put) => self.put(put, local),
                Downward::Query(query) => self.query(now, &query, local),
                Downward::Chunk(chunk) => self.chunk(chunk, local, out),
                Downward::Letter(letter) => drop(self.lower(letter, local)),
                Downward::Taken { batch } => {
                    for (child, batch) in self.gather.taken(batch) {
                        self.tell_child(child, Downward::Taken { batch });
                    }
                }
            }
        }
    }

    fn new_path(&mut self, path: Path, local: &mut Vec<Delivery>) {
        self.gather.restart(path.window);
        self.asked.clear();
        self.parent.found_path(path);
        local.push(Delivery::Path);
        let Some(path) = self.path_below() else { return invariant!("a node that was told its path has a parent") };
        self.tells = true;
        for child in self.children.values_mut() {
            child.say(Downward::Path(Box::new(path.clone())));
        }
    }

    /// Returns the path to the controller that this node sends to its children; None: it has no path itself.
    fn path_below(&self) -> Option<Path> {
        let attached = self.parent.attached.as_ref()?;
        let mut path = attached.path.clone()?;
        path.heartbeat_s = path.heartbeat_s.min(self.parent.pulse().secs().max(1));
        path.beat = Some(self.parent.beat());
        if let Dial::Node(parent) = &attached.to {
            path.above.insert(0, parent.clone());
        }
        Some(path)
    }

    fn reply(&mut self, mut route: Route, node: Option<NodeId>, put: Put, local: &mut Vec<Delivery>) {
        self.see_epoch(put.epoch);
        let Some(link) = route.pop() else {
            self.node = node.or(self.node);
            return local.push(Delivery::Put { node, put });
        };
        if let Some(node) = node
            && self.children.contains_key(&link)
        {
            self.learn(node, link, if put.epoch == self.epoch { put.seq } else { 0 });
        }
        self.tell_child(link, Downward::Reply { route, node, put });
    }

    /// Sessions are counted within an epoch. The loss of one of an earlier epoch must not end the session that its node has
    /// got since. A node's offer passes here before its registration, so this is known in time.
    fn see_epoch(&mut self, epoch: Epoch) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.below.values_mut().for_each(|(_, session)| *session = 0);
        }
    }

    fn learn(&mut self, node: NodeId, link: u32, session: u64) {
        if let Some((old, _)) = self.below.insert(node, (link, session))
            && let Some(child) = self.children.get_mut(&old)
        {
            child.reach.remove(node);
        }
        if let Some(child) = self.children.get_mut(&link) {
            child.reach.insert(node);
        }
    }

    fn put(&mut self, put: Put, local: &mut Vec<Delivery>) {
        self.tells = true;
        let mut owe = NodeSet::new();
        for child in self.children.values_mut().filter(|child| !child.reach.is_disjoint(&put.to)) {
            // The set of receivers gets smaller with each level.
            let to = child.reach.intersection(&put.to);
            owe.union_with(&to);
            child.say(Downward::Put(Put { to, ..put.clone() }));
        }
        if !put.asks.is_empty() {
            self.node.filter(|node| put.to.contains(*node)).map(|node| owe.insert(node));
            self.gather.expect(&put.asks, &owe);
        }
        if self.node.is_some_and(|node| put.to.contains(node)) {
            local.push(Delivery::Put { node: None, put });
        }
    }

    fn chunk(&mut self, chunk: Chunk, local: &mut Vec<Delivery>, out: &mut NetOut) {
        self.tells = true;
        for child in self.children.values_mut().filter(|child| !child.reach.is_disjoint(&chunk.to)) {
            let to = child.reach.intersection(&chunk.to);
            child.say(Downward::Chunk(Chunk { to, ..chunk.clone() }));
        }
        if self.node.is_some_and(|node| chunk.to.contains(node)) {
            pass_on(chunk, local, out);
        }
    }

    fn query(&mut self, now: Time, query: &Query, local: &mut Vec<Delivery>) {
        // Answers of the nodes below must be here before this node's own time is up.
        let time_us = query.time_us / 8 * 7;
        let mut asked = BTreeSet::new();
        self.tells = true;
        for (&link, child) in self.children.iter_mut().filter(|(_, child)| !child.reach.is_disjoint(&query.to)) {
            asked.insert(link);
            // The set of receivers gets smaller with each level.
            let to = child.reach.intersection(&query.to);
            child.say(Downward::Query(Query { to, time_us, ..query.clone() }));
        }
        let own = self.node.is_some_and(|node| query.to.contains(node));
        if own {
            local.push(Delivery::Asked(query.test.variable.clone()));
            if query.test.variable == Variable::Heard {
                local.push(Delivery::Beat { key: (query.epoch, query.number), heard: query.heard.clone() });
            }
        }
        self.asked.open(now, query, asked, own);
    }
}

/// Handling of the connections to children.
impl Relay {
    fn tell_child(&mut self, link: u32, say: Downward) {
        if let Some(child) = self.children.get_mut(&link) {
            child.say(say);
            self.tells = true;
        }
    }

    fn child_opened(&mut self, now: Time, link: u32) {
        self.tells = true;
        let says = self.path_below().map(|path| Downward::Path(Box::new(path))).into_iter().collect();
        let child = Child { heard_hops: 0, said_hops: 0, heard: now, said: now, reach: NodeSet::new(), says };
        self.children.insert(link, child);
    }

    fn lose_child(&mut self, now: Time, link: u32) {
        // because a child that was silent or sent nonsense is dropped before its connection closes
        let Some(child) = self.children.remove(&link) else { return };
        let mut composite = Composite::default();
        self.gather.give_up(&child.reach);
        for node in child.reach.iter() {
            if let Some((_, session)) = self.below.remove(&node) {
                composite.lost.insert(node, session);
                composite.reports = composite.reports.saturating_add(1);
            }
        }
        self.gather.forget_child(link);
        self.asked.forget_child(link);
        self.gather.add(now, composite, None);
    }

    fn drop_silent_children(&mut self, now: Time, out: &mut NetOut) {
        if self.children_due.is_none_or(|due| now < due) {
            return;
        }
        let patience = Span(self.parent.heartbeat().0 * SILENT_HEARTBEATS);
        let silent = self.children.iter().filter(|(_, child)| child.heard + patience <= now);
        let silent: Vec<u32> = silent.map(|(&link, _)| link).collect();
        for link in silent {
            out.drop.push(link);
            self.lose_child(now, link);
        }
    }

    fn take_up(&mut self, now: Time, link: u32, frame: UpFrame, (local, out): (&mut Vec<Delivery>, &mut NetOut)) {
        // because what a dropped child has sent may still come
        let Some(child) = self.children.get_mut(&link) else { return };
        if frame.hop <= child.heard_hops {
            return;
        }
        if frame.hop != child.heard_hops + 1 {
            out.drop.push(link);
            return self.lose_child(now, link);
        }
        child.heard_hops += frame.says.len() as u64;
        child.heard = now;
        for say in frame.says {
            match say {
                Upward::Composite { batch, mut composite } => {
                    for (route, _) in &mut composite.knocks {
                        route.push(link);
                    }
                    // Nodes that have moved to another parent since are not lost.
                    let lost = std::mem::take(&mut composite.lost);
                    composite.lost = lost.into_iter().filter(|lost| self.forget(link, lost.0, lost.1)).collect();
                    self.gather.give_up(&composite.lost.keys().copied().collect());
                    self.gather.add(now, *composite, Some((link, batch)));
                }
                Upward::Tally { epoch, number, tally } => self.tally(link, epoch, number, tally),
                Upward::Chunk(chunk) => pass_on(chunk, local, out),
                Upward::Letter(letter) => self.post(letter, local),
            }
        }
    }

    /// Forgets that a node can be reached through this child. Returns false if the node has a newer session, or
    /// another path.
    fn forget(&mut self, link: u32, node: NodeId, session: u64) -> bool {
        match self.below.get(&node) {
            Some(&(at, newer)) if at != link || newer > session => false,
            known => {
                if known.is_some() {
                    self.below.remove(&node);
                }
                if let Some(child) = self.children.get_mut(&link) {
                    child.reach.remove(node);
                }
                true
            }
        }
    }

    /// Sends a letter (a message between step daemons) toward its receiver: down if that is on a node below, otherwise
    /// up.
    pub fn post(&mut self, letter: Box<Letter>, local: &mut Vec<Delivery>) {
        if let Some(letter) = self.lower(letter, local) {
            self.says.push(Upward::Letter(letter));
        }
    }

    /// Delivers a letter (a message between step daemons) to this node or one below; returns it if it is for neither.
    fn lower(&mut self, letter: Box<Letter>, local: &mut Vec<Delivery>) -> Option<Box<Letter>> {
        if self.node == Some(letter.to) {
            local.push(Delivery::Letter(letter));
            return None;
        }
        let Some(&(link, _)) = self.below.get(&letter.to) else { return Some(letter) };
        self.tell_child(link, Downward::Letter(letter));
        None
    }

    /// Adds a child's answer to a query to this node's own. One that comes after that has left goes up by itself: it still
    /// shows that the nodes below respond.
    fn tally(&mut self, link: u32, epoch: Epoch, number: u64, tally: Tally) {
        if let Some(tally) = self.asked.answer(link, (epoch, number), tally).filter(|_| self.has_path()) {
            self.says.push(Upward::Tally { epoch, number, tally });
        }
    }
}

/// Delivers a chunk to this node, and sends it to the nodes below it in the file's own tree.
fn pass_on(mut chunk: Chunk, local: &mut Vec<Delivery>, out: &mut NetOut) {
    if let Some(cascade) = chunk.cascade.take() {
        for (name, cascade) in cascade.below() {
            out.beside.push((name, Chunk { to: NodeSet::new(), cascade: Some(cascade), ..chunk.clone() }));
        }
    }
    local.push(Delivery::Chunk(chunk));
}

impl Relay {
    /// Returns the limits on the number and age of reports that are merged at present.
    pub fn window(&self) -> Window {
        self.gather.window()
    }
}
