//! Connections between neighbours in the tree: how they are opened, what they carry, how they end.

use std::collections::BTreeMap;

use squall_engine::control::{Input, LinkId};
use squall_engine::fabric::{Dial, NetInput, NetOut, shape};
use squall_engine::node::NodeInput;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{Chunk, DownFrame, UpFrame};

use crate::trace::Origin;
use crate::world::{Happening, World};

/// Timeout of a node's connection attempt.
const DIAL_WAIT: Span = Span::from_secs(2);

/// Time until the other side notices the end of a connection, in addition to the network delay.
const NOTICE: Span = Span::from_millis(1);

/// A connection between child and parent. Connection numbers are never reused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    pub(crate) child: End,
    pub(crate) parent: End,
}

/// One end of a connection between two machines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// Port of the network at this end.
    pub(crate) port: usize,
    /// Start number of the daemon at this end. A daemon with a higher number does not have the connection.
    life: u64,
    /// Whether the daemon at this end has the connection open.
    open: bool,
    /// Arrival time of the last frame in flight to this end.
    last: Time,
}

/// Selects one of the two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Child,
    Parent,
}

/// All connections between nodes and the controller, which form a tree.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    width: usize,
    hops: BTreeMap<u64, Hop>,
    last: u64,
    /// Arrival time of the last file piece in flight outside the tree, by (sender, receiver).
    beside: BTreeMap<(usize, usize), Time>,
}

impl Hop {
    fn end(&self, side: Side) -> &End {
        match side {
            Side::Child => &self.child,
            Side::Parent => &self.parent,
        }
    }
    fn end_mut(&mut self, side: Side) -> &mut End {
        match side {
            Side::Child => &mut self.child,
            Side::Parent => &mut self.parent,
        }
    }
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Child => Self::Parent,
            Self::Parent => Self::Child,
        }
    }
}

impl Tree {
    /// Creates a tree without connections. `width`: children of a node in a healthy tree; 0: all nodes connect to the
    /// controller.
    pub(crate) fn new(width: u32) -> Self {
        Self { width: width as usize, ..Self::default() }
    }
    /// Returns the ancestors of `node` in a healthy tree of `count` nodes, nearest first.
    pub(crate) fn above(&self, node: usize, count: usize) -> Vec<usize> {
        if self.width == 0 { Vec::new() } else { shape::above(node, count, self.width) }
    }
    /// Returns a node and all nodes below it in a healthy tree of `count` nodes.
    pub(crate) fn subtree(&self, node: usize, count: usize) -> Vec<usize> {
        (0..count).filter(|&other| other == node || self.above(other, count).contains(&node)).collect()
    }
    /// Returns the connections that are open at this port, each with the end that is at the port.
    fn of(&self, port: usize) -> Vec<(u64, Side)> {
        let ends = self
            .hops
            .iter()
            .flat_map(|(&hop, ends)| [(hop, Side::Child, ends.child), (hop, Side::Parent, ends.parent)]);
        ends.filter(|(_, _, end)| end.port == port && end.open).map(|(hop, side, _)| (hop, side)).collect()
    }
    /// Returns the port at a connection's parent side. None: there is no such connection.
    pub(crate) fn parent(&self, hop: u64) -> Option<usize> {
        self.hops.get(&hop).map(|hop| hop.parent.port)
    }
    /// Returns the port at a connection's child side. None: there is no such connection.
    pub(crate) fn child(&self, hop: u64) -> Option<usize> {
        self.hops.get(&hop).map(|hop| hop.child.port)
    }
    fn close(&mut self, hop: u64, side: Side) {
        let Some(ends) = self.hops.get_mut(&hop) else { return };
        ends.end_mut(side).open = false;
        if !ends.end(side.other()).open {
            self.hops.remove(&hop);
        }
    }
}

/// Functions that open connections.
impl World {
    /// Opens a connection from a node to a parent that the node has chosen.
    fn dial(&mut self, node: usize, to: &Dial) {
        let port = match to {
            Dial::Controller => Some(self.network.controller(self.nodes[node].controller)),
            Dial::Node(name) => self.nodes.iter().position(|node| node.name == *name),
        };
        let life = self.nodes[node].life;
        let Some(port) = port else { return self.after(NOTICE, Happening::DialFails { node, life }) };
        self.reach(node, port, 0);
    }

    /// Sends the beginning of a connection; `tries`: controllers that the node has tried in vain before.
    fn reach(&mut self, node: usize, port: usize, tries: u32) {
        let life = self.nodes[node].life;
        let there = self.network.delay(node, port, &mut self.seed);
        let back = self.network.delay(port, node, &mut self.seed);
        let span = Span((there.0 + back.0).min(DIAL_WAIT.0));
        self.after(span, Happening::Dialled { node, life, port, tries });
    }

    /// Tries the next controller after one that does not lead or can't be reached; the last one in vain is a failure.
    fn reach_another(&mut self, node: usize, port: usize, tries: u32, wait: Span) {
        let life = self.nodes[node].life;
        if let Some(of) = self.network.controller_at(port) {
            let next = self.controller_after(of, wait == Span(0));
            self.nodes[node].controller = next;
            if wait == Span(0) && (tries as usize) < 2 * self.controllers.len() - 2 {
                return self.reach(node, self.network.controller(next), tries + 1);
            }
        }
        match wait {
            Span(0) => self.dial_fails(node, life),
            wait => self.after(wait, Happening::DialFails { node, life }),
        }
    }

    pub(crate) fn dialled(&mut self, node: usize, life: u64, port: usize, tries: u32) {
        if !self.nodes[node].lives(life) {
            return;
        }
        if self.is_revoked(node) {
            return self.reach_another(node, port, tries, DIAL_WAIT);
        }
        let reachable = self.network.open(node, port) && self.network.open(port, node) && self.is_powered(port);
        if !reachable {
            return self.reach_another(node, port, tries, DIAL_WAIT);
        }
        if !self.listens(port) {
            return self.reach_another(node, port, tries, Span(0));
        }
        // The kernel takes the connection, and nothing greets back.
        if self.is_stopped(port) {
            return self.reach_another(node, port, tries, DIAL_WAIT);
        }
        self.tree.last += 1;
        let hop = self.tree.last;
        let accepted = self.now + self.network.delay(node, port, &mut self.seed);
        let end = |port, life, last| End { port, life, open: true, last };
        let parent = end(port, self.life_of(port), accepted);
        self.tree.hops.insert(hop, Hop { child: end(node, life, Time(0)), parent });
        if let Some(old) = self.nodes[node].set_parent(Some(hop)) {
            self.close(old, Side::Child);
        }
        self.agenda.at(accepted, Happening::Accepted { hop });
        self.say(Origin::Node(node as u32), "connects to", 0, port as u64 + 1);
        if let Some(of) = self.network.controller_at(port) {
            self.greeted(node, of);
        }
        self.nodes[node].heard_hops = 0;
        self.tell_node(node, NodeInput::Net(NetInput::ParentOpened));
    }

    pub(crate) fn dial_fails(&mut self, node: usize, life: u64) {
        if self.nodes[node].lives(life) {
            self.tell_node(node, NodeInput::Net(NetInput::DialFailed));
        }
    }

    pub(crate) fn accepted(&mut self, hop: u64) {
        if let Some(port) = self.live_end(hop, Side::Parent) {
            self.tell_parent(
                port,
                Input::Opened { link: LinkId(hop), name: None },
                NetInput::ChildOpened { link: hop as u32 },
            );
        }
    }

    fn tell_parent(&mut self, port: usize, controller: Input, node: NetInput) {
        if let Some(of) = self.network.controller_at(port) {
            self.tell_controller(of, controller);
        } else {
            self.tell_node(port, NodeInput::Net(node));
        }
    }

    fn is_powered(&self, port: usize) -> bool {
        self.nodes.get(port).is_none_or(|node| node.powered)
    }

    fn listens(&self, port: usize) -> bool {
        match self.network.controller_at(port) {
            Some(of) => self.controllers[of].serves(),
            None => self.nodes.get(port).is_some_and(super::node::NodeHost::has_daemon),
        }
    }

    fn life_of(&self, port: usize) -> u64 {
        match self.network.controller_at(port) {
            Some(of) => self.controllers[of].life,
            None => self.nodes.get(port).map_or(0, |node| node.life),
        }
    }

    /// Returns the port of an end if the end is open and its daemon has not restarted since. None otherwise.
    fn live_end(&self, hop: u64, side: Side) -> Option<usize> {
        let end = self.tree.hops.get(&hop)?.end(side);
        let lives = end.open && self.listens(end.port) && self.life_of(end.port) == end.life;
        lives.then_some(end.port)
    }
}

/// Functions that send frames on connections.
impl World {
    /// Sends the messages that a node's state machine puts on its connections, and executes its other network actions.
    pub(crate) fn carry_out(&mut self, node: usize, net: NetOut) {
        if let (Some(frame), Some(hop)) = (net.up, self.nodes[node].parent()) {
            self.send_up(hop, frame);
        }
        for (link, mut frame) in net.down {
            self.perturb_relayed(&mut frame);
            self.tamper(node, &mut frame);
            self.send_down(u64::from(link), &frame);
        }
        for link in net.drop {
            self.close(u64::from(link), Side::Parent);
        }
        if net.hang_up
            && let Some(hop) = self.nodes[node].set_parent(None)
        {
            self.close(hop, Side::Child);
        }
        if let Some(to) = net.dial {
            self.dial(node, &to);
        }
        for (name, chunk) in net.beside {
            self.send_beside(node, &name, chunk);
        }
    }

    /// Sends a piece of a file directly to a node, outside the tree. The network may lose pieces.
    fn send_beside(&mut self, node: usize, name: &str, chunk: Chunk) {
        let Some(to) = self.nodes.iter().position(|node| node.name == name) else { return };
        let last = self.tree.beside.entry((node, to)).or_default();
        let fate = self.network.fate(self.now, (node, to), last, &mut self.seed);
        let life = self.nodes[to].life;
        if let Some(at) = fate.first {
            self.agenda.at(at, Happening::Beside { node: to, life, chunk: Box::new(chunk) });
        }
    }

    pub(crate) fn beside_arrives(&mut self, node: usize, life: u64, chunk: Chunk) {
        if self.nodes[node].lives(life) {
            self.tell_node(node, NodeInput::Net(NetInput::Beside(chunk)));
        }
    }

    /// Sends a frame from the child to its parent.
    fn send_up(&mut self, hop: u64, mut frame: UpFrame) {
        self.perturb_up(hop, &mut frame);
        for at in self.arrivals(hop, Side::Parent) {
            self.agenda.at(at, Happening::Up { hop, frame: Box::new(frame.clone()) });
        }
    }

    /// Sends a frame from the parent to its child.
    pub(crate) fn send_down(&mut self, hop: u64, frame: &DownFrame) {
        for at in self.arrivals(hop, Side::Child) {
            self.agenda.at(at, Happening::Down { hop, frame: Box::new(frame.clone()) });
        }
    }

    fn arrivals(&mut self, hop: u64, to: Side) -> impl Iterator<Item = Time> + use<> {
        let fate = self.tree.hops.get_mut(&hop).map(|ends| {
            let way = (ends.end(to.other()).port, ends.end(to).port);
            self.network.fate(self.now, way, &mut ends.end_mut(to).last, &mut self.seed)
        });
        fate.into_iter().flat_map(|fate| fate.second.into_iter().chain(fate.first))
    }

    pub(crate) fn up_arrives(&mut self, hop: u64, frame: Box<UpFrame>) {
        let Some(port) = self.live_end(hop, Side::Parent) else { return self.resets(hop, Side::Parent) };
        if let Some(of) = self.network.controller_at(port) {
            self.judge.heard(self.now, &frame);
            self.tell_controller(of, Input::Frame { link: LinkId(hop), frame });
        } else {
            self.tell_node(port, NodeInput::Net(NetInput::FromChild { link: hop as u32, frame }));
        }
    }

    pub(crate) fn down_arrives(&mut self, hop: u64, frame: Box<DownFrame>) {
        match self.live_end(hop, Side::Child) {
            Some(node) => {
                let last = frame.hop + frame.says.len() as u64 - 1;
                self.nodes[node].heard_hops = self.nodes[node].heard_hops.max(last);
                self.tell_node(node, NodeInput::Net(NetInput::FromParent(frame)));
            }
            None => self.resets(hop, Side::Child),
        }
    }

    /// Handles a frame that arrives for a connection closed on this side: the operating system sends a reset to the
    /// sender.
    fn resets(&mut self, hop: u64, side: Side) {
        let Some(port) = self.tree.hops.get(&hop).map(|ends| ends.end(side).port) else { return };
        if self.is_powered(port) {
            self.notice(hop, side.other());
        }
    }
}

/// Functions that end connections.
impl World {
    /// Closes one end of a connection; the other side notices, unless the network is cut.
    pub(crate) fn close(&mut self, hop: u64, side: Side) {
        self.tree.close(hop, side);
        self.notice(hop, side.other());
    }

    /// Breaks a connection: both sides notice.
    pub(crate) fn break_hop(&mut self, hop: u64) {
        for side in [Side::Child, Side::Parent] {
            self.notice(hop, side);
        }
    }

    /// Closes all connections of a daemon that has ended. `told`: the other sides notice; false after a power loss,
    /// which sends nothing.
    pub(crate) fn close_all(&mut self, port: usize, told: bool) {
        for (hop, side) in self.tree.of(port) {
            self.tree.close(hop, side);
            if told {
                self.notice(hop, side.other());
            }
        }
    }

    /// Schedules the time at which one side notices the connection's end, after all frames in flight to it.
    fn notice(&mut self, hop: u64, side: Side) {
        let Some(ends) = self.tree.hops.get(&hop) else { return };
        let (from, to, last) = (ends.end(side.other()).port, ends.end(side).port, ends.end(side).last);
        if self.network.open(from, to) {
            let span = self.network.delay(from, to, &mut self.seed);
            let at = (self.now + Span(span.0 + NOTICE.0)).max(Time(last.0 + 1));
            self.agenda.at(at, Happening::Broken { hop, side });
        }
    }

    pub(crate) fn broken(&mut self, hop: u64, side: Side) {
        let Some(port) = self.live_end(hop, side) else { return };
        self.tree.close(hop, side);
        // If the other side has not noticed the end yet, it will when it sends its next frame.
        match side {
            Side::Parent => {
                self.tell_parent(port, Input::Lost { link: LinkId(hop) }, NetInput::ChildClosed { link: hop as u32 });
            }
            Side::Child => {
                self.nodes[port].set_parent(None);
                self.tell_node(port, NodeInput::Net(NetInput::ParentClosed));
            }
        }
    }
}
