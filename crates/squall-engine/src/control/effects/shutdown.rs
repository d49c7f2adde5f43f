//! Shutdown: running jobs are left alone, or ended and requeued first.

use crate::control::index::todo::Leaving;
use squall_model::event::Requeue;
use squall_model::id::JobId;
use squall_model::job::EndState;
use squall_model::time::{Span, Time};
use squall_model::wire::client::Answer;
use squall_model::wire::node::Down;

use crate::control::controller::Controller;
use crate::control::effects::work;
use crate::control::index::timers::Timer;
use crate::control::port::{CallerId, Out};
use crate::control::state::reading::may_requeue;
use crate::invariant::invariant;

/// Seconds beyond `KillWait` in which nodes must have ended their jobs.
const PATIENCE_S: u64 = 5;

/// Begins a shutdown that a client requested. With `keep_jobs` running jobs are left alone; otherwise they are ended
/// and requeued first.
pub(crate) fn begin(c: &mut Controller, now: Time, caller: CallerId, by: u32, keep_jobs: bool, out: &mut Out) {
    if let Some(leaving) = &mut c.leaving {
        leaving.callers.push(caller);
        return;
    }
    c.leaving = Some(Leaving { callers: vec![caller], keep_jobs, hurry: false });
    if keep_jobs {
        return;
    }
    c.timers.set(Timer::ShutDown, now + Span::from_secs(c.state.config.kill_wait_s + PATIENCE_S));
    let running = c.state.nodes.iter().flat_map(|node| node.jobs.iter().copied());
    let running: std::collections::BTreeSet<JobId> = running.collect();
    for id in running {
        let Some(job) = c.state.jobs.get(&id) else {
            invariant!("a job on a node is known");
            continue;
        };
        let requeue = may_requeue(&c.state, job).then_some(Requeue {
            hold: false,
            not_before: None,
            special: None,
            expedite: None,
        });
        let state = requeue.map_or(EndState::Cancelled { by }, |_| EndState::Requeued);
        work::end_running(c, now, id, state, requeue, out);
    }
}

/// Ends the shutdown's wait for running jobs, as the time for it is over.
pub(crate) fn hurry(c: &mut Controller) {
    if let Some(leaving) = &mut c.leaving {
        leaving.hurry = true;
    }
}

/// Completes the shutdown when there is nothing left to wait for.
pub(crate) fn proceed(c: &mut Controller, _now: Time, out: &mut Out) {
    // because no shutdown may have been requested
    let Some(leaving) = &mut c.leaving else { return };
    let idle = c.state.index.active == 0;
    if leaving.callers.is_empty() || !(leaving.keep_jobs || idle || leaving.hurry) {
        return;
    }
    let keep_jobs = leaving.keep_jobs;
    out.answers.extend(leaving.callers.drain(..).map(|caller| (caller, Answer::Done)));
    let all = c.links.connected().clone();
    c.links.put(&all, Down::ShutDown { keep_jobs });
    out.exit = true;
}
