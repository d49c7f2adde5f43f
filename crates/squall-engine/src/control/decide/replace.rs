//! `scontrol replace`: a node of a running job is replaced before it fails.

use squall_model::event::NodeAdmin;
use squall_model::id::{JobId, NodeId};
use squall_model::job::JobKind;
use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, Refusal};

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::effects::nodes;
use crate::control::effects::replace as effect;
use crate::control::port::Out;
use crate::control::state::State;
use crate::control::state::job::Phase;

/// Has another node take the place of a drained or failing one in a running job, whatever its `--on-node-fail` is.
pub(crate) fn replace(c: &mut Controller, ask: &Ask<'_>, id: JobId, name: &str, out: &mut Out) -> Reply {
    let node = decide(&c.state, id, name)?;
    // Nothing starts then, and the job would have given up its place for none.
    if c.leaving.is_some() {
        return Err(Refusal::ShuttingDown);
    }
    if c.disk_full {
        return Err(Refusal::DiskFull);
    }
    if !effect::fits(c, ask.now, id, node) {
        return Err(wrong("no node is free that fits: free one, or wait for the end of a job"));
    }
    nodes::go_on(c, ask.now, id, (node, true, false), out);
    Ok(Some(Answer::Done))
}

fn wrong(why: impl Into<String>) -> Refusal {
    Refusal::WrongState(why.into())
}

/// Returns the node to be replaced, or why it is not.
fn decide(state: &State, id: JobId, name: &str) -> Result<NodeId, Refusal> {
    let job = state.jobs.get(&id).ok_or(Refusal::InvalidJobId)?;
    let run = match &job.phase {
        Phase::Running(run) => run,
        Phase::Pending | Phase::Leased(_) => return Err(Refusal::NotRunning),
        Phase::Completing(..) | Phase::Ended(_) => return Err(Refusal::AlreadyDone),
    };
    let node = state.node_id(name).ok_or_else(|| Refusal::InvalidNode(name.to_owned()))?;
    if run.alloc.on(node).is_none() {
        return Err(wrong(format!("{name} is no node of job {id}")));
    }
    if job.spec.kind == JobKind::Batch && run.batch_node() == Some(node) {
        return Err(wrong(format!("the script of job {id} runs on {name}: requeue the job in place of that")));
    }
    if run.spares().is_some_and(|spares| spares.contains(node)) {
        return Err(wrong(format!("{name} is a spare node of job {id}: nothing runs there")));
    }
    let leaves = state.node(node).is_some_and(|node| matches!(node.admin, NodeAdmin::Drain | NodeAdmin::Fail));
    if !leaves {
        return Err(wrong(format!(
            "{name} is neither drained nor failing: scontrol update NodeName={name} State=DRAIN"
        )));
    }
    if state.cluster_version < ClusterVersion::NODES_REPLACED {
        return Err(wrong("nodes of jobs are replaced from version 3 of the cluster on: scontrol upgrade"));
    }
    if state.gang.contains_key(&id) || state.het_of(id).is_some() {
        return Err(wrong("a job that shares its CPUs, or has several components, keeps its nodes to its end"));
    }
    if effect::is_placed(job) {
        return Err(wrong("the job has asked for positions in the network, which another node has not"));
    }
    Ok(node)
}
