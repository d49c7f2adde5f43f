//! A session whose tasks descend from srun, so that checkpoints of the job contain them: the process that serves the step
//! is a child of srun, and before a checkpoint srun parts from the controller for a while.

use std::time::Instant;

use squall_client::random;
use squall_host::stepd::{APART, bear_inside};
use squall_model::hostlist::HostList;
use squall_model::id::StepNo;
use squall_model::step::{Birth, Inside, ToStep};
use squall_model::wire::client::Request;

use super::Session;

impl Session<'_> {
    /// Returns whether the step's tasks descend from srun, if the node agrees.
    pub(super) fn is_inside(&self) -> bool {
        matches!(&self.request, Request::CreateStep { spec, .. } if spec.inside.is_some())
    }

    /// Tells a node's step daemon the name of the abstract socket on which the process listens that serves the step on that
    /// node. Starts this process unless it runs already, or the node's keeper starts it.
    pub(super) fn bear(&mut self, at: usize, birth: &Birth) {
        if !self.is_inside() {
            return;
        }
        let place = birth.launch.node_index;
        let known = self.inner.get(&place).cloned();
        let name = known.unwrap_or_else(|| {
            let name = format!("squall-step-{:032x}", u128::from_le_bytes(random()));
            let born = if birth.launch.has_keeper() { Ok(()) } else { bear_inside(&name, birth) };
            match born {
                Ok(()) => {
                    self.inner.insert(place, name.clone());
                    name
                }
                Err(e) => {
                    eprintln!("srun: error: the step's tasks can't be started: {e}");
                    String::new()
                }
            }
        });
        if let Some(link) = self.links.get_mut(at) {
            link.dismiss(&ToStep::Inside(name));
        }
    }

    /// Has later requests say that the step runs already, as which one, and where.
    pub(super) fn resume_as(&mut self, step: StepNo, of_job: &HostList, of_step: &HostList) {
        if let Request::CreateStep { spec, .. } = &mut self.request
            && let Some(inside) = &mut spec.inside
        {
            let (job, step_nodes) = (of_job.names(), of_step.names());
            let places = job.iter().zip(0..).filter(|(name, _)| step_nodes.contains(name)).map(|(_, place)| place);
            *inside = Inside { resumes: Some(step), places: Some(places.collect()) };
            spec.immediate = false;
        }
    }

    /// Closes the connection to the controller for a while: a checkpoint of the job is about to be made.
    pub(super) fn part(&mut self, now: Instant) {
        (self.client, self.search) = (None, None);
        self.rejoin_at = Some(now + APART);
    }

    /// Connects to the controller again, when it is time to.
    pub(super) fn rejoin(&mut self, now: Instant) {
        if self.rejoin_at.is_some_and(|at| now >= at) {
            self.rejoin_at = None;
            self.look_for_controller();
        }
    }
}
