//! Client requests: one file for each verb. A verb decides from the state, commits events, and answers.
//!
//! Convention: `pub(crate) fn verb(c: &mut Controller, ask: &Ask<'_>, …the request's fields…, out: &mut Out) -> Reply`.
//! A pure function of `&State` decides and returns events or a refusal. The verb commits the events with
//! [`Controller::commit`] and returns `Ok(Some(answer))`. It returns `Ok(None)` if it has noted the caller and will
//! answer later with `out.answers.push((caller, answer))`. What a request needs is in one table,
//! [`Request::row`].

mod admit;
pub(crate) mod allocate;
pub(crate) mod ask;
mod association;
pub(crate) mod await_job;
mod broadcast;
pub(crate) mod cancel;
pub(crate) mod change_partition;
mod change_policy;
mod checkpoint;
mod create_step;
mod each;
pub(crate) mod follow;
mod hold;
pub(crate) mod lists;
mod measure;
mod members;
mod memory;
mod newer;
mod notes;
mod power;
mod priorities;
mod query;
mod query_nodes;
mod reboot;
mod record;
mod register;
pub(crate) mod rehearsal;
mod replace;
pub(crate) mod reports;
pub(crate) mod requeue;
mod reserve;
pub(crate) mod rights;
mod rotate;
pub(crate) mod select;
mod submit;
mod suspend;
mod top;
mod update_job;
mod update_nodes;
mod update_step;
mod upgrade;
mod variants;
mod watch;
pub(crate) mod why;

use crate::control::decide::ask::Ask;
use crate::control::decide::ask::Reply;
pub(crate) use crate::control::decide::query::script_of;
use crate::control::decide::rights::Authorized;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, AnyRequest, Refusal, Request};

use crate::control::controller::Controller;
use crate::control::effects::broadcasts;
use crate::control::effects::foreign;
use crate::control::port::{CallerId, Out, Who};

/// Handles a request, which is answered now or later.
pub(crate) fn ask(c: &mut Controller, now: Time, caller: CallerId, who: &Who, request: Request, out: &mut Out) {
    let ask = Ask { now, caller, who };
    lists::hurry(c, now, caller, out);
    let authorized = rights::authorize(&c.state, who, request);
    let answer = match authorized.and_then(|request| dispatch(c, &ask, request, out)) {
        Ok(answer) => answer,
        Err(refusal) => Some(Answer::Refused(refusal)),
    };
    out.answers.extend(answer.map(|answer| (caller, answer)));
}

/// Answers a request that a standby answers. Any other one is refused.
pub(crate) fn read(c: &mut Controller, now: Time, caller: CallerId, who: &Who, request: AnyRequest, out: &mut Out) {
    let standby = request.row().standby;
    match request {
        AnyRequest::Machine(request) if standby => ask(c, now, caller, who, *request, out),
        _ => {
            let problem = "a standby only shows jobs, nodes, partitions and the like".to_owned();
            out.answers.push((caller, Answer::Refused(Refusal::NotSupported(problem))));
        }
    }
    // A standby has no connection to any node: what the leader thinks of it counts.
    for (_, answer) in &mut out.answers {
        if let Answer::Nodes(nodes) = answer {
            for node in nodes {
                node.responds = node.up;
            }
        }
    }
}

#[expect(clippy::too_many_lines, reason = "a row for each request")]
fn dispatch(c: &mut Controller, ask: &Ask<'_>, request: Authorized<Request>, out: &mut Out) -> Reply {
    match request.into_inner() {
        Request::Submit { spec, script, env, key } => {
            let contents = submit::Contents { script: script.into_vec(), env: env.into_vec() };
            submit::submit(c, ask, spec, contents, key, out)
        }
        Request::TestSubmit { spec } => submit::test(c, ask, spec),
        Request::Allocate { spec, env, key, immediate_s, step } => {
            allocate::allocate(c, ask, spec, env.into_vec(), (key, immediate_s, step), out)
        }
        Request::SubmitHet { specs, script, env, key, immediate_s } => {
            let contents = submit::Contents { script: script.into_vec(), env: env.into_vec() };
            submit::submit_het(c, ask, specs, contents, (key, immediate_s), out)
        }
        Request::Attach { job } => allocate::attach(c, ask, job),
        Request::Finish { job, exit } => allocate::finish(c, ask, job, exit, out),
        Request::Watch { job, step, watcher } => watch::watch(c, ask, job, step, watcher, out),
        Request::Notify { job, text } => watch::notify(c, job, text, out),
        Request::Measure { job, step, lately } => measure::measure(c, ask, (job, step), lately),
        Request::Facts { job } => query::facts_of(c, job),
        Request::AwaitJob { job } => await_job::await_job(c, ask, job),
        Request::ShutDown { keep_jobs } => {
            shut_down(c, ask, keep_jobs, out);
            Ok(None)
        }
        Request::CreateStep { job, spec, program, key } => {
            create_step::create_step(c, ask, job, *spec, *program, key, out)
        }
        Request::Cancel { jobs, signal, step, verbose } => {
            cancel::cancel(c, ask, &jobs, cancel::What::new(signal, step)?, verbose, out)
        }
        Request::Hold { jobs, user } => hold::hold(c, ask, &jobs, user, out),
        Request::Release { jobs } => hold::release(c, ask, &jobs, out),
        Request::Requeue { jobs, hold, from, special } => requeue::requeue(c, ask, &jobs, (hold, from, special), out),
        Request::Checkpoint(job, verb) => checkpoint::checkpoint(c, ask, job, verb, out),
        Request::Suspend { jobs, suspend } => suspend::suspend(c, ask, &jobs, suspend, out),
        Request::Replace(job, node) => replace::replace(c, ask, job, &node, out),
        Request::UpdateJob { jobs, change } => update_job::update_job(c, ask, &jobs, &change, out),
        Request::Top { jobs } => top::top(c, ask, &jobs, out),
        Request::UpdateStep { job, step, time_limit_s } => update_step::update(c, ask, (job, step), time_limit_s, out),
        Request::Reboot { nodes, asap, next, reason } => reboot::reboot(c, ask, &nodes, (asap, next, reason), out),
        Request::Power { nodes, wish } => power::power(c, ask, &nodes, wish, out),
        Request::CancelReboot { nodes } => reboot::cancel_reboot(c, ask, &nodes, out),
        Request::CreateNodes(node) => members::create(c, ask, node, out),
        Request::DeleteNodes(nodes) => members::delete(c, ask, &nodes, out),
        Request::FutureNodes => query::future_nodes(c, ask),
        Request::UpdateNodes { nodes, admin, reason, change } => {
            update_nodes::update_nodes(c, ask, &nodes, (admin, reason), change, out)
        }
        Request::UpdatePartition { name, state } => update_nodes::update_partition(c, ask, name, state, out),
        Request::ChangePartition { name, was, now } => {
            change_partition::change_partition(c, ask, name, was.as_deref(), now, out)
        }
        Request::Jobs { jobs, ended, steps } => lists::open(c, ask, jobs, (ended, steps), out),
        Request::Follow { from, jobs, kinds } => follow::follow(c, ask, from, *jobs, kinds, out),
        Request::Nodes => query::nodes(c, ask),
        Request::Partitions => query::partitions(c, ask),
        Request::Expected => Ok(Some(query::expected(c, ask))),
        Request::Reservations => Ok(Some(query::reservations(c, ask))),
        Request::Reserve { change, create } => reserve::reserve(c, ask, &change, create, out),
        Request::Why { job } => why::why(c, ask, job),
        Request::Unreserve { name } => reserve::unreserve(c, ask, &name, out),
        Request::Licenses => Ok(Some(query::licenses(c, ask.now))),
        Request::Config => Ok(Some(query::config(c))),
        Request::Caller => Ok(Some(query::caller(ask.who))),
        Request::Ping => Ok(Some(query::ping(c))),
        Request::Diag { reset } => Ok(Some(query::diag(c, ask, reset))),
        Request::QueryNodes { nodes, test, wait, write, time_ms } => {
            query_nodes::query_nodes(c, ask, &nodes, (test, wait), write, time_ms)
        }
        Request::Broadcast(wanted) => broadcast::broadcast(c, ask, *wanted),
        Request::Chunk { at, bytes } => {
            broadcasts::chunk(c, ask.now, ask.caller, (at, bytes), out);
            Ok(None)
        }
        Request::Recall { known_as } => Ok(Some(Answer::Recalled(broadcasts::recall(c, ask.who.owner.uid, known_as)))),
        Request::Policy => Ok(Some(change_policy::policy(c, ask))),
        Request::ChangePolicy { version, changes } => change_policy::change_policy(c, ask, version, changes, out),
        Request::Priorities { jobs } => priorities::priorities(c, ask, &jobs),
        Request::Shares => Ok(Some(priorities::shares(c, ask))),
        Request::Record(job, values) => record::record(c, ask, job, values, out),
        Request::RotateKeys { keys, .. } => rotate::rotate(c, ask, keys, out),
        Request::RaiseVersion { to, others } => upgrade::raise(c, ask, to, &others, out),
        Request::Reconfigure { config } => update_nodes::reconfigure(c, ask, config, out),
        // Fronts (gateways between cells) carry dependencies between cells.
        Request::Unresolved => {
            foreign::carry(c, ask.caller, out);
            Ok(None)
        }
        Request::Resolve { questions } => {
            foreign::ask(c, ask.now, ask.caller, questions);
            Ok(None)
        }
        // A front sends these answers again when the disk has space.
        Request::Resolved { .. } if c.disk_full => Err(Refusal::DiskFull),
        Request::Resolved { replies } => {
            foreign::resolved(c, ask.now, replies, out);
            Ok(Some(Answer::Done))
        }
    }
}

/// Handles `squall down` and `scontrol shutdown`. The answer is sent when running jobs were ended and requeued, or at
/// once if they are kept.
fn shut_down(c: &mut Controller, ask: &Ask<'_>, keep_jobs: bool, out: &mut Out) {
    crate::control::effects::shutdown::begin(c, ask.now, ask.caller, ask.who.owner.uid, keep_jobs, out);
}

#[cfg(test)]
pub(crate) mod tests;
