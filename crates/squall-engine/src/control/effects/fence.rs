//! Node fences: jobs on a silent node that have surely ended there by themselves.

use squall_model::id::{JobId, NodeId};
use squall_model::time::Time;

use crate::control::controller::Controller;
use crate::control::effects::nodes::Loss;
use crate::control::effects::{nodes, work};
use crate::control::index::timers::Timer;
use crate::control::info::silent;
use crate::control::port::Out;

/// Returns the fenced jobs that hold a node, with the time at which each is lost there unless the node is heard before.
fn shares(c: &Controller, id: NodeId) -> Vec<(Time, JobId)> {
    let due = |job: JobId| {
        let of = c.state.jobs.get(&job)?;
        of.run().filter(|run| run.left.contains(id))?;
        Some((silent::fence_passes(c, of, id)?, job))
    };
    work::jobs_on(c, id).into_iter().filter_map(due).collect()
}

/// Starts the timer that ends the patience with the fenced jobs of a node that may be silent from now on.
pub(crate) fn watch(c: &mut Controller, id: NodeId) {
    if let Some((due, _)) = shares(c, id).into_iter().min() {
        c.timers.set(Timer::Fence(id), due);
    }
}

/// Gives up the jobs on a silent node of which the fence has passed: nothing of them runs there any more.
pub(crate) fn passed(c: &mut Controller, now: Time, id: NodeId, out: &mut Out) {
    if c.links.get(id).is_some() {
        return;
    }
    let (lost, later): (Vec<_>, Vec<_>) = shares(c, id).into_iter().partition(|(due, _)| *due <= now);
    for (_, job) in lost {
        nodes::give_up(c, now, job, id, Loss::Fenced, out);
    }
    if let Some((due, _)) = later.into_iter().min() {
        c.timers.set(Timer::Fence(id), due);
    }
}
