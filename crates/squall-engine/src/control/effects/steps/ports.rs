//! Ports that steps reserve on their nodes (`--resv-ports`), so that two steps never use the same port on one node.
//!
//! A step's layout has its ports. So they are in the journal with the step, and free when the step has ended.

use std::collections::BTreeSet;

use squall_model::id::JobId;
use squall_model::set::{IndexSet, NodeSet};
use squall_model::step::StepSpec;
use squall_model::wire::client::Refusal;

use crate::control::controller::Controller;
use crate::control::index::layout::{Placed, Unplaced};
use crate::control::state::State;

/// Gives a step that is about to start its ports, which no other step has on any of its nodes. Ports are used in turn:
/// a port that was freed lately may still be busy in the kernel.
pub(super) fn reserve(c: &mut Controller, spec: &StepSpec, mut placed: Placed) -> Result<Placed, Unplaced> {
    let Some(ports) = c.state.config.mpi_ports else {
        let none = "no ports are set aside here: mpi_ports of the configuration (MpiParams=ports=12000-12999)";
        return spec.resv_ports.filter(|count| *count > 0).map_or(Ok(placed), |count| Err(refused(count, none)));
    };
    let most = placed.layout.tasks.runs().map(|(tasks, _)| *tasks).max().unwrap_or_default();
    let count = spec.resv_ports.unwrap_or(most.saturating_add(1));
    if count == 0 {
        return Ok(placed);
    }
    if count > ports.len() {
        return Err(refused(count, &format!("the cluster has {} ports for steps (mpi_ports)", ports.len())));
    }
    let free =
        IndexSet::range(ports.first.into(), ports.last.into()).difference(&held(&c.state, &placed.alloc.nodes()));
    if free.len() < count as usize {
        return Err(Unplaced::Busy);
    }
    let next = c.steps.next_port;
    let (later, earlier) = (free.iter().filter(|port| *port >= next), free.iter().filter(|port| *port < next));
    let taken: Vec<u32> = later.chain(earlier).take(count as usize).collect();
    c.steps.next_port = taken.last().map_or(0, |last| last + 1);
    placed.layout.ports = Some(taken.into_iter().collect());
    Ok(placed)
}

fn refused(count: u32, problem: &str) -> Unplaced {
    let (option, problem) = ("resv-ports".to_owned(), problem.to_owned());
    Unplaced::Never(Refusal::InvalidValue { option, value: count.to_string(), problem })
}

/// Returns the ports that steps have on any of the nodes.
fn held(state: &State, nodes: &NodeSet) -> IndexSet {
    let jobs: BTreeSet<JobId> =
        nodes.iter().filter_map(|node| state.node(node)).flat_map(|node| node.jobs.iter().copied()).collect();
    let runs = jobs.iter().filter_map(|job| state.jobs.get(job)?.last_run());
    let mut held = IndexSet::new();
    for step in runs.flat_map(|run| run.steps.values()).filter(|step| step.left.iter().any(|node| nodes.contains(node)))
    {
        held.union_with(step.layout.ports.as_ref().unwrap_or(&IndexSet::new()));
    }
    held
}

/// Examines the waiting steps of all jobs again after `job` gave ports back: one of them may wait for ports.
pub(super) fn freed(c: &mut Controller, job: JobId) {
    let others = c.steps.waiting.keys().copied().filter(|waiting| *waiting != job);
    c.todo.touched.extend(others.collect::<Vec<_>>());
}
