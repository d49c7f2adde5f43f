//! Events about the power of nodes.

use squall_model::config::NodeStart;
use squall_model::id::{Attempt, JobId, NodeId};
use squall_model::power::{Power, PowerPhase, PowerWish};
use squall_model::set::NodeSet;
use squall_model::time::Time;

use crate::control::state::State;
use crate::control::state::job::Phase;
use crate::control::state::node::Node;

impl State {
    pub(super) fn nodes_power(&mut self, time: Time, nodes: &NodeSet, phase: PowerPhase, owed: bool) {
        for id in nodes.iter() {
            // because a journal of another version may name a node that is not counted here
            let Some(node) = self.nodes.get_mut(id.index()) else { continue };
            let wish = node.power.and_then(|power| power.wish);
            node.power = Power { phase, since: time, wish: None, owed }.with_wish(wish);
            if node.sleeps() {
                self.index.asleep.insert(id);
            } else {
                self.index.asleep.remove(id);
            }
        }
    }

    pub(super) fn power_wished(&mut self, nodes: &NodeSet, wish: PowerWish) {
        for id in nodes.iter() {
            if let Some(node) = self.nodes.get_mut(id.index()) {
                node.power = node.power.unwrap_or_default().with_wish(Some(wish));
            }
        }
    }

    pub(super) fn power_program_ended(&mut self, nodes: &NodeSet, phase: PowerPhase) {
        for id in nodes.iter() {
            let power = self.nodes.get_mut(id.index()).and_then(|node| node.power.as_mut());
            if let Some(power) = power.filter(|power| power.phase == phase) {
                power.owed = false;
            }
        }
    }

    /// Records that all nodes of an attempt are up. Its time begins now, as in Slurm; it has paid for its nodes since
    /// it got them.
    pub(super) fn job_awake(&mut self, time: Time, id: JobId, attempt: Attempt) {
        let job = self.jobs.get_mut(&id).filter(|job| job.attempt == attempt);
        // because a journal of another version may wake a job that has ended here
        let Some(Phase::Running(run)) = job.map(|job| &mut job.phase) else { return };
        if run.booting.take().is_some() {
            run.start = time;
            run.steps.values_mut().for_each(|step| step.start = time);
        }
    }

    /// Has the nodes that a configuration or an operator calls cloud nodes, and that never registered, be powered down.
    pub(super) fn put_clouds_to_sleep(&mut self, time: Time) {
        let clouds = self.config.nodes.iter().filter(|entry| entry.state == NodeStart::Cloud);
        let names = clouds.flat_map(|entry| squall_model::hostlist::expand(&entry.name).unwrap_or_default());
        let of_cloud = |node: &Node| node.made.as_ref().is_some_and(|made| made.state == NodeStart::Cloud);
        let made = (0..).map(NodeId).zip(&self.nodes).filter(|(_, node)| of_cloud(node)).map(|(id, _)| id);
        let clouds: NodeSet = names.filter_map(|name| self.node_id(&name)).chain(made).collect();
        let new = clouds.iter().filter(|id| self.node(*id).is_some_and(|node| node.is_unknown() && !node.sleeps()));
        let new: NodeSet = new.collect();
        self.nodes_power(time, &new, PowerPhase::Off, false);
        // A node that is no longer one of the cloud, and was never there, is as any other that is missing.
        let off = |power: Power| power.phase == PowerPhase::Off;
        let old = self.index.asleep.iter().filter(|id| !clouds.contains(*id));
        let missing =
            old.filter(|id| self.node(*id).is_some_and(|node| node.is_unknown() && node.power.is_some_and(off)));
        let missing: NodeSet = missing.collect();
        self.nodes_power(time, &missing, PowerPhase::On, false);
    }

    /// Returns whether a node belongs to a cloud.
    pub(in crate::control) fn is_cloud(&self, id: NodeId) -> bool {
        self.entry(id).is_some_and(|entry| entry.state == NodeStart::Cloud)
    }

    /// Sets the index of sleeping nodes.
    pub(in crate::control::state) fn count_sleepers(&mut self) {
        let all = (0..self.nodes.len() as u32).map(NodeId);
        self.index.asleep = all.filter(|id| self.nodes[id.index()].sleeps()).collect();
    }
}
