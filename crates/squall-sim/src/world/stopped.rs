//! Daemons that do nothing for a while and then go on with what they had, as after SIGSTOP or on a starved machine. What
//! others send them waits in the meantime.

use std::collections::BTreeSet;

use squall_engine::fabric::NetInput;
use squall_engine::node::NodeInput;
use squall_model::id::NodeId;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::DownFrame;

use crate::coverage::Fault;
use crate::mutation::Mutation;
use crate::seed::Seed;
use crate::world::tree::Side;
use crate::world::{Happening, World};

/// Interval at which sessions are looked at.
const SEEN_EVERY: Span = Span::from_secs(2);

impl World {
    /// Adds stops of daemons, of relays above all, and of the only controller, which are over at `until`. The randomness is
    /// its own.
    pub(crate) fn add_stops(&mut self, seed: u64, until: Time) {
        let mut seed = Seed::new(seed ^ 0x7374_6f70);
        let count = self.nodes.len();
        let parents = (0..count).filter_map(|node| self.tree.above(node, count).first().copied());
        let parents: Vec<usize> = parents.collect::<BTreeSet<_>>().into_iter().collect();
        let mut at = self.now;
        while at < until {
            at = at + seed.span(Span::from_secs(20), Span::from_secs(200));
            let span = Span::from_millis(seed.spread(500, 200_000)).min(until.since(at));
            let what = if seed.chance(300_000) {
                Happening::ControllerStops { span }
            } else {
                let relay = seed.pick(&parents).copied().filter(|_| seed.chance(700_000));
                Happening::DaemonStops { node: relay.unwrap_or_else(|| seed.below(count as u64) as usize), span }
            };
            self.agenda.at(at, what);
        }
        self.watch_sessions();
    }

    /// Looks at all nodes' sessions from now on, at intervals.
    pub(crate) fn watch_sessions(&mut self) {
        self.after(SEEN_EVERY, Happening::SessionsSeen);
    }

    pub(crate) fn see_sessions(&mut self) {
        if self.etcd.is_none() && self.controllers[0].serves() && self.network.is_fine() {
            for host in 0..self.nodes.len() {
                let is = self.controllers[0].is_connected(&self.nodes[host].name);
                self.judge.in_session(self.now, host, is);
            }
        }
        self.watch_sessions();
    }

    /// Stops a node's daemon (SIGSTOP), and lets it go on after `span`, and not before an earlier stop is over.
    pub(crate) fn stop_daemon(&mut self, node: usize, span: Span) {
        if self.nodes[node].has_daemon() {
            let until = self.nodes[node].stopped_until.max(self.now + span);
            self.nodes[node].stopped_until = until;
            self.judge.silence.runs_from(node, Some(until));
            self.disturb_times(span);
            self.strike(Fault::NodeDaemonStopped, node as u64);
        }
    }

    /// Stops the only controller, and lets it go on after `span`.
    pub(crate) fn stop_controller(&mut self, span: Span) {
        if self.etcd.is_none() && self.controllers[0].serves() {
            let until = self.controllers[0].base.paused_until.max(self.now + span);
            self.controllers[0].base.paused_until = until;
            self.judge.silence.controller_stopped(until, span);
            self.disturb_times(span);
            self.strike(Fault::ControllerStopped, span.0);
        }
    }

    /// Returns whether the daemon at a port is stopped.
    pub(crate) fn is_stopped(&self, port: usize) -> bool {
        let until = match self.network.controller_at(port) {
            Some(of) => self.controllers[of].base.paused_until,
            None => self.nodes.get(port).map_or(Time(0), |node| node.stopped_until),
        };
        self.now < until
    }

    /// Returns until when an event must wait, because the daemon that it is for does nothing at present. None: it need not.
    pub(crate) fn waits_until(&self, what: &Happening) -> Option<Time> {
        let parent = |hop: &u64| self.tree.parent(*hop);
        let port = match what {
            Happening::Turn { of, .. } | Happening::Flushed { of, .. } | Happening::ControllerTick { of, .. } => {
                let runs_on = self.etcd.is_none() && self.is_planted(Mutation::LatenessUncounted);
                (!runs_on).then(|| self.network.controller(*of))
            }
            Happening::PeerTick { of, .. } | Happening::AppendRetries { of, .. } => Some(self.network.controller(*of)),
            Happening::EtcdAnswers(answer) => Some(self.network.controller(answer.of())),
            Happening::Ask { caller, .. } => self.clients.controller_of(*caller).map(|of| self.network.controller(of)),
            Happening::Accepted { hop } | Happening::Up { hop, .. } | Happening::Broken { hop, side: Side::Parent } => {
                parent(hop)
            }
            Happening::Down { hop, .. } | Happening::Broken { hop, side: Side::Child } => self.tree.child(*hop),
            Happening::Dialled { node, .. }
            | Happening::DialFails { node, .. }
            | Happening::Beside { node, .. }
            | Happening::NodeTick { node, .. }
            | Happening::StepSpoke { node, .. }
            | Happening::StepHeeds { node, .. }
            | Happening::OrphanSeen { node, .. }
            | Happening::Swept { node, .. }
            | Happening::Dumped { node, .. }
            | Happening::HookEnds { node, .. }
            | Happening::OnDisk { node, .. } => Some(*node),
            _ => None,
        }?;
        let until = match self.network.controller_at(port) {
            Some(of) => self.controllers[of].base.paused_until,
            None => self.nodes.get(port)?.stopped_until,
        };
        (self.now < until).then_some(until)
    }

    /// Judges that the controller calls a node down, which it has `decided` then: the flush of that may take long.
    pub(crate) fn judge_down(&mut self, decided: Time, node: NodeId, reason: &str) {
        let Some(host) = self.judge.host(node).filter(|host| self.etcd.is_none() && !self.is_revoked(*host)) else {
            return;
        };
        if reason == "Not responding" {
            // Nodes that start again may ask one for a session that was removed, until they know their new parents.
            let removed = (0..self.nodes.len()).any(|node| self.is_revoked(node) && self.nodes[node].has_daemon());
            let fine = self.network.is_fine() && !removed;
            self.judge.called_down(decided, host, fine);
        }
    }

    /// Makes a node believe that its parent has spoken although that is stopped, if that bug is planted.
    pub(crate) fn feign_parent(&mut self, node: usize) {
        let parent = self.nodes[node].parent().and_then(|hop| self.tree.parent(hop));
        if self.is_planted(Mutation::SilentParentKept) && parent.is_some_and(|port| self.is_stopped(port)) {
            let frame = DownFrame { hop: self.nodes[node].heard_hops + 1, says: Vec::new() };
            self.tell_node(node, NodeInput::Net(NetInput::FromParent(Box::new(frame))));
        }
    }
}
