//! What running jobs hold apart from cores and memory: licenses and generic resources.

use std::collections::BTreeMap;

use squall_model::gres::{self, Grant, NodeGres};
use squall_model::id::{JobId, NodeId, StepNo};
use squall_model::job::JobSpec;
use squall_model::license;

use crate::control::state::job::Phase;
use crate::control::state::{Index, State};
use crate::invariant::invariant;

impl State {
    pub(super) fn gres_granted(&mut self, job: JobId, step: Option<StepNo>, grants: &[Grant]) {
        // because a journal of another version may grant devices to a job that does not run here
        let Some(run) = self.jobs.get_mut(&job).and_then(|job| job.run_mut()) else { return };
        if let Some(step) = step {
            if let Some(step) = run.steps.get_mut(&step) {
                step.gres = Some(grants.to_vec());
            }
            return;
        }
        grants.clone_into(&mut run.gres);
        for grant in grants {
            grant.nodes.iter().for_each(|node| self.index.hold_gres(node, grant));
        }
    }

    /// Frees the generic resources that a job held on a node.
    pub(super) fn gres_released(&mut self, job: JobId, node: NodeId) {
        let Some(run) = self.jobs.get(&job).and_then(|job| job.run()) else {
            return invariant!("a job that releases nodes has resources");
        };
        if run.gres.is_empty() {
            return;
        }
        // because the job may have devices on its other nodes only
        let Some(has) = self.index.gres.get_mut(&node) else { return };
        for (name, indices) in gres::on_node(&run.gres, node) {
            let Some(held) = has.held.get_mut(&name) else {
                invariant!("the devices that a job has on a node are held");
                continue;
            };
            held.subtract(&indices);
            if held.is_empty() {
                has.held.remove(&name);
            }
        }
    }

    /// Recalculates the generic resources that nodes have and that jobs hold.
    pub(in crate::control) fn count_gres(&mut self) {
        let ids = (0..self.nodes.len() as u32).map(NodeId);
        let all = ids.filter_map(|id| Some((id, self.gres_of(id)?)));
        self.index.gres = all.collect::<BTreeMap<_, _>>();
        for job in self.jobs.values() {
            // because a job that waits, or is only leased, holds no devices
            let (Phase::Running(run) | Phase::Completing(run, _)) = &job.phase else { continue };
            for grant in &run.gres {
                grant.nodes.intersection(&run.left).iter().for_each(|node| self.index.hold_gres(node, grant));
            }
        }
    }

    /// Returns the generic resources that a node has, none of them held. None: it has none.
    fn gres_of(&self, id: NodeId) -> Option<NodeGres> {
        let node = self.node(id)?;
        let found = node.reported.devices.as_deref().unwrap_or_default();
        let gres = self.entry(id).map(|entry| &*entry.gres);
        NodeGres::described(&self.config, &node.name, gres, self.gres_change(id), found)
    }

    /// Recalculates the generic resources that a node has, after it has found others. What jobs hold stays.
    pub(super) fn count_gres_of(&mut self, id: NodeId) {
        let held = self.index.gres.remove(&id).map(|had| had.held).unwrap_or_default();
        if let Some(has) = self.gres_of(id).or_else(|| (!held.is_empty()).then(NodeGres::default)) {
            self.index.gres.insert(id, NodeGres { held, ..has });
        }
    }
}

impl Index {
    pub(super) fn hold_gres(&mut self, node: NodeId, grant: &Grant) {
        let has = self.gres.entry(node).or_default();
        let held = has.held.entry(grant.name.clone()).or_default();
        debug_assert!(held.is_disjoint(&grant.indices), "{} of node {node} held twice", grant.name);
        held.union_with(&grant.indices);
    }

    /// Counts the licenses of a job with this spec as held.
    pub(in crate::control) fn take_licenses(&mut self, spec: &JobSpec) {
        for (name, count) in spec.need.licenses.as_deref().and_then(license::parse).unwrap_or_default() {
            *self.licenses.entry(name).or_default() += count;
        }
    }

    /// Counts the licenses of a job with this spec as free again.
    pub(super) fn return_licenses(&mut self, spec: &JobSpec) {
        for (name, count) in spec.need.licenses.as_deref().and_then(license::parse).unwrap_or_default() {
            // because `NAME:0` holds nothing, and the end of another such job may have removed the entry
            let Some(held) = self.licenses.get_mut(&name) else { continue };
            *held = held.saturating_sub(count);
            if *held == 0 {
                self.licenses.remove(&name);
            }
        }
    }
}
