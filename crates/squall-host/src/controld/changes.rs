//! Logs state changes of nodes, partitions and jobs, from events that have become durable.
//!
//! Changes of nodes and partitions are logged at `info`, those of jobs at `debug`. The three lines of a short job cost 42,000
//! instructions in the build that tests run, more than half of the controller's work for the whole job; while they are
//! not logged, they cost 130.

use std::fmt::Write;

use squall_engine::control::state::State;
use squall_model::event::{Event, NodeAdmin, Record};
use squall_model::hostlist;
use squall_model::job::{EndState, Outcome};
use squall_model::set::NodeSet;
use tracing::{Level, debug, enabled, info, warn};

/// Logs the changes in these records. `state` includes them and may be newer.
pub(super) fn log(state: &State, records: &[Record]) {
    let jobs = enabled!(Level::DEBUG);
    for event in records.iter().flat_map(|record| &record.events) {
        match event {
            Event::NodeRegistered { .. } | Event::NodeDown { .. } | Event::NodeUp { .. } | Event::NodesSet { .. } => {
                log_nodes(state, event);
            }
            Event::NodesRemoved { nodes, by } => info!(node = names(state, nodes), uid = by, "node removed"),
            Event::NodesCreated { node, by } => info!(node = node.name, uid = by, "node created"),
            Event::PartitionSet { name, state } => {
                info!(partition = name, state = format!("{state:?}").to_lowercase(), "partition set");
            }
            Event::PartitionChanged { name, config: Some(_) } => info!(partition = name, "partition changed"),
            Event::PartitionChanged { name, config: None } => info!(partition = name, "partition deleted"),
            Event::VersionRaised { to, by } => info!(version = %to, uid = by, "version of the cluster raised"),
            Event::KeysRotated { by, .. } => info!(uid = by, "the controllers' keys were rotated"),
            Event::Configured { .. } => info!("configuration read"),
            _ if jobs => log_job(state, event),
            _ => {}
        }
    }
}

fn log_nodes(state: &State, event: &Event) {
    let name = |node| state.node(node).map_or("?", |node| &node.name);
    match event {
        Event::NodeRegistered { name: node, hardware, .. } => {
            info!(node, cpus = hardware.cpus, memory_mb = hardware.memory_mb, "node registered");
        }
        Event::NodeDown { node, reason } => warn!(node = name(*node), reason, "node down"),
        Event::NodeUp { node } => info!(node = name(*node), "node up"),
        Event::NodesSet { nodes, admin, reason, by } => {
            let what = match admin {
                NodeAdmin::Resume => "node resumed",
                NodeAdmin::Drain => "node drained",
                NodeAdmin::Down => "node set down",
                NodeAdmin::Fail => "node set to fail",
            };
            info!(node = names(state, nodes), reason, uid = by, "{what}");
        }
        _ => {}
    }
}

fn log_job(state: &State, event: &Event) {
    match event {
        Event::JobSubmitted { id, owner, spec, .. } => {
            debug!(job = %id, user = owner.user, partition = spec.partition, name = spec.name, "job submitted");
        }
        Event::JobStarted { id, attempt, partition, alloc } => {
            debug!(job = %id, attempt = %attempt, partition, node = names(state, &alloc.nodes()), "job started");
        }
        Event::JobEnding { id, outcome, requeue } => {
            let Outcome { state, exit, reason } = outcome;
            let exit = format!("{}:{}", exit.code, exit.signal);
            debug!(job = %id, state = word(*state), exit, reason, requeue = requeue.is_some(), "job ended");
        }
        Event::TasksEnded { array, tasks, outcome } => {
            debug!(job = %array, tasks = tasks.len(), state = word(outcome.state), "array tasks ended");
        }
        Event::JobRequeued { id, requeue } => debug!(job = %id, hold = requeue.hold, "job requeued"),
        _ => {}
    }
}

/// Returns the nodes' names in Slurm's short form, e.g. `n[1-3]`.
fn names(state: &State, nodes: &NodeSet) -> String {
    hostlist::compress(nodes.iter().filter_map(|node| state.node(node)).map(|node| &node.name))
}

fn word(state: EndState) -> String {
    let mut word = String::new();
    let _ = match state {
        EndState::Cancelled { by } => write!(word, "cancelled by {by}"),
        other => write!(word, "{other:?}"),
    };
    word.to_lowercase()
}

#[cfg(test)]
mod tests {
    use squall_engine::control::state::State;
    use squall_engine::control::state::node::Node;
    use squall_model::config::PartitionState;
    use squall_model::event::{Event, NodeAdmin};
    use squall_model::id::{JobId, NodeId};
    use squall_model::job::{EndState, ExitCode, Outcome};
    use squall_model::set::NodeSet;
    use squall_model::time::Time;

    use super::{Record, log};
    use crate::logging::tests::logged;

    #[test]
    fn nodes_and_jobs_are_logged_by_name() {
        let mut state = State::default();
        state.nodes.push(Node { name: "a1".into(), ..Default::default() });
        let outcome = Outcome { state: EndState::Timeout, exit: ExitCode::OK, reason: None };
        let nodes = NodeSet::from_iter([NodeId(0)]);
        let reason = Some("bad\nfan".to_owned());
        let events = vec![
            Event::NodeDown { node: NodeId(0), reason: "Not responding".into() },
            Event::NodesSet { nodes, admin: NodeAdmin::Drain, reason, by: 0 },
            Event::PartitionChanged { name: "long".into(), config: Some(Box::default()) },
            Event::PartitionChanged { name: "long".into(), config: None },
            Event::PartitionSet { name: "short".into(), state: PartitionState::Drain },
            Event::JobEnding { id: JobId(7), outcome, requeue: None },
        ];
        let lines = logged(|| log(&state, &[Record { seq: 1, time: Time(0), events }]));
        let expected = [
            "WARN  node down node=a1 reason=\"Not responding\"\n",
            "INFO  node drained node=a1 reason=\"bad\\nfan\" uid=0\n",
            "INFO  partition changed partition=long\n",
            "INFO  partition deleted partition=long\n",
            "INFO  partition set partition=short state=drain\n",
            "DEBUG job ended job=7 state=timeout exit=0:0 requeue=false\n",
        ];
        assert_eq!(lines.len(), expected.len(), "{lines:?}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.ends_with(expected), "{line}");
        }
    }
}
