//! Requests to broadcast a file: the checks of user and nodes.

use std::sync::Arc;

use squall_model::id::{JobId, StepNo};
use squall_model::job::JobAttempt;
use squall_model::limits::{CONTENT_BYTES_MAX, HET_COMPONENTS_MAX};
use squall_model::set::NodeSet;
use squall_model::time::Span;
use squall_model::wire::broadcast::{Broadcast as Wanted, BroadcastTo};
use squall_model::wire::client::Refusal;
use squall_model::wire::fabric::ContentId;

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::query_nodes;
use crate::control::effects::broadcasts;
use crate::control::net::broadcasts::Broadcast;

/// Begins a broadcast. Answers come as nodes answer.
pub(crate) fn broadcast(c: &mut Controller, ask: &Ask<'_>, wanted: Wanted) -> Reply {
    if wanted.size > CONTENT_BYTES_MAX {
        return Err(Refusal::TooLarge("file".to_owned(), CONTENT_BYTES_MAX));
    }
    let to = whom(c, &wanted.to)?;
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
    if let BroadcastTo::Job { jobs, .. } = &wanted.to {
        let attempt = |id: &JobId| c.state.jobs.get(id).map(|job| JobAttempt { job: *id, attempt: job.attempt });
        one.job = jobs.first().and_then(attempt);
    }
    one.until = wanted.time_ms.map(|ms| ask.now + Span::from_millis(ms));
    one.known_as = wanted.known_as;
    broadcasts::begin(c, ask.now, ask.caller, one);
    Ok(None)
}

fn whom(c: &Controller, to: &BroadcastTo) -> Result<NodeSet, Refusal> {
    match to {
        BroadcastTo::Nodes(list) if list.is_empty() => Ok(c.links.connected().clone()),
        BroadcastTo::Nodes(list) => query_nodes::named(c, list),
        BroadcastTo::Job { jobs, .. } if jobs.is_empty() || jobs.len() > HET_COMPONENTS_MAX => {
            Err(Refusal::InvalidJobId)
        }
        BroadcastTo::Job { jobs, step } => {
            let mut all = NodeSet::new();
            for id in jobs {
                all.union_with(&of_job(c, *id, *step)?);
            }
            Ok(all)
        }
    }
}

/// Returns the nodes of a running job or of its step.
fn of_job(c: &Controller, id: JobId, step: Option<StepNo>) -> Result<NodeSet, Refusal> {
    let job = c.state.jobs.get(&id).ok_or(Refusal::InvalidJobId)?;
    let run = job.run().ok_or(Refusal::NotRunning)?;
    match step {
        None => Ok(run.alloc.nodes()),
        Some(step) => run.steps.get(&step).map(|step| step.alloc.nodes()).ok_or(Refusal::InvalidStepId),
    }
}
