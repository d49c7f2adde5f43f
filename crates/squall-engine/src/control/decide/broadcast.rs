//! Requests to broadcast a file: the checks of user and nodes.

use std::sync::Arc;

use squall_model::id::{JobId, StepNo};
use squall_model::limits::{CONTENT_BYTES_MAX, HET_COMPONENTS_MAX};
use squall_model::set::NodeSet;
use squall_model::time::Span;
use squall_model::wire::broadcast::{Broadcast as Wanted, BroadcastTo};
use squall_model::wire::client::Refusal;
use squall_model::wire::fabric::ContentId;

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::query_nodes;
use crate::control::decide::rights::{Deed, can};
use crate::control::effects::broadcasts;
use crate::control::net::broadcasts::Broadcast;

/// Begins a broadcast. Answers come as nodes answer.
pub(crate) fn broadcast(c: &mut Controller, ask: &Ask<'_>, wanted: Wanted) -> Reply {
    if wanted.size > CONTENT_BYTES_MAX {
        return Err(Refusal::TooLarge("file".to_owned(), CONTENT_BYTES_MAX));
    }
    let to = whom(c, ask, &wanted.to)?;
    let content = ContentId { owner: ask.who.owner.uid, digest: wanted.digest };
    let mut one = Broadcast::new(content, wanted.size, wanted.shared, to);
    one.place = wanted.place.map(|mut place| {
        if let BroadcastTo::Job { jobs, .. } = &wanted.to
            && let [id, ..] = jobs.as_slice()
            && place.per_step
        {
            let step = c.state.jobs.get(id).and_then(|job| job.run()).map_or(0, |run| run.next_step);
            place.path.extend(format!("slurm_bcast_{id}.{step}").bytes());
        }
        (place, Arc::clone(&ask.who.owner))
    });
    one.until = wanted.time_ms.map(|ms| ask.now + Span::from_millis(ms));
    one.known_as = wanted.known_as;
    broadcasts::begin(c, ask.now, ask.caller, one);
    Ok(None)
}

fn whom(c: &Controller, ask: &Ask<'_>, to: &BroadcastTo) -> Result<NodeSet, Refusal> {
    match to {
        BroadcastTo::Nodes(_) if !can(ask.who, Deed::Operate) => Err(Refusal::AccessDenied),
        BroadcastTo::Nodes(list) if list.is_empty() => Ok(c.links.connected().clone()),
        BroadcastTo::Nodes(list) => query_nodes::named(c, list),
        BroadcastTo::Job { jobs, .. } if jobs.is_empty() || jobs.len() > HET_COMPONENTS_MAX => {
            Err(Refusal::InvalidJobId)
        }
        BroadcastTo::Job { jobs, step } => {
            let mut all = NodeSet::new();
            for id in jobs {
                all.union_with(&of_job(c, ask, *id, *step)?);
            }
            Ok(all)
        }
    }
}

/// Returns the nodes of a running job or of its step. Refuses users who may not run steps in the job.
fn of_job(c: &Controller, ask: &Ask<'_>, id: JobId, step: Option<StepNo>) -> Result<NodeSet, Refusal> {
    let job = c.state.jobs.get(&id).ok_or(Refusal::InvalidJobId)?;
    if !can(ask.who, Deed::Enter(&job.owner)) {
        return Err(Refusal::AccessDenied);
    }
    let run = job.run().ok_or(Refusal::NotRunning)?;
    match step {
        None => Ok(run.alloc.nodes()),
        Some(step) => run.steps.get(&step).map(|step| step.alloc.nodes()).ok_or(Refusal::InvalidStepId),
    }
}
