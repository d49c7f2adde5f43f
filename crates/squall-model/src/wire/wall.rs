//! Converts times in messages between the controller's clock, which is never set, and the wall clock that clients use.

use std::sync::Arc;

use super::client::{AccountingQuery, Answer, AnyRequest, HostRequest, Request};
use super::info::{AccountingRow, JobInfo, Why};
use crate::job::JobSpec;
use crate::time::Time;

/// Adds `us` microseconds to a time, to convert it from one clock to another.
fn put(time: &mut Time, us: i64) {
    *time = time.on_clock_ahead(us);
}

fn put_all<'a>(times: impl IntoIterator<Item = &'a mut Time>, us: i64) {
    times.into_iter().for_each(|time| put(time, us));
}

/// Adds `us` microseconds to all times of a job specification, to convert them from one clock to another.
fn put_spec(spec: &mut JobSpec, us: i64) {
    put_all(spec.begin.iter_mut().chain(&mut spec.deadline), us);
}

/// Adds `us` microseconds to all times of a shared job specification, which is copied only if it has any times.
fn put_shared(spec: &mut Arc<JobSpec>, us: i64) {
    if spec.begin.is_some() || spec.deadline.is_some() {
        put_spec(Arc::make_mut(spec), us);
    }
}

impl Request {
    /// Adds `us` microseconds to all times of the request, to convert them from one clock to another.
    pub fn on_clock_ahead(&mut self, us: i64) {
        if us == 0 {
            return;
        }
        match self {
            Self::Submit { spec, .. } | Self::TestSubmit { spec } | Self::Allocate { spec, .. } => put_shared(spec, us),
            Self::SubmitHet { specs, .. } => specs.iter_mut().for_each(|spec| put_spec(spec, us)),
            Self::UpdateJob { change, .. } => put_all(change.begin.iter_mut(), us),
            Self::Reserve { change, .. } => put_all(change.start.iter_mut().chain(&mut change.end), us),
            _ => {}
        }
    }
}

impl AnyRequest {
    /// Adds `us` microseconds to all times of the request, to convert them from one clock to another.
    pub fn on_clock_ahead(&mut self, us: i64) {
        match self {
            Self::Machine(request) => request.on_clock_ahead(us),
            Self::Host(HostRequest::Accounting(query)) => query.on_clock_ahead(us),
            Self::Host(_) => {}
        }
    }
}

impl AccountingQuery {
    /// Adds `us` microseconds to all times of the query, to convert them from one clock to another.
    pub fn on_clock_ahead(&mut self, us: i64) {
        put_all(self.start.iter_mut().chain(&mut self.end), us);
    }
}

impl AccountingRow {
    /// Adds `us` microseconds to all times of the row, to convert them from one clock to another.
    pub fn on_clock_ahead(&mut self, us: i64) {
        put_all([&mut self.submit, &mut self.eligible].into_iter().chain(&mut self.start).chain(&mut self.end), us);
    }
}

impl Answer {
    /// Adds `us` microseconds to all times of the answer, to convert them from one clock to another.
    pub fn on_clock_ahead(&mut self, us: i64) {
        if us == 0 {
            return;
        }
        match self {
            Self::WouldStart { time, .. } => put(time, us),
            Self::Jobs(page) => {
                put(&mut page.now, us);
                page.specs.iter_mut().for_each(|spec| put_shared(spec, us));
                page.jobs.iter_mut().for_each(|job| put_job(job, us));
            }
            Self::Nodes(nodes) => {
                for node in nodes {
                    let reason = node.reason.iter_mut().map(|(_, _, time)| time);
                    put_all(reason.chain([&mut node.registered, &mut node.heard]), us);
                }
            }
            Self::Diag(diag) => {
                let restored = diag.restored.iter_mut().map(|(time, _)| time);
                let own = [&mut diag.since, &mut diag.now].into_iter().chain(&mut diag.backfill.last);
                put_all(own.chain(restored), us);
            }
            Self::Accounting { rows, .. } => rows.iter_mut().for_each(|row| row.on_clock_ahead(us)),
            Self::History(rows, _) => rows.iter_mut().for_each(|row| row.on_clock_ahead(us)),
            Self::Expected(starts) => put_all(starts.iter_mut().map(|start| &mut start.time), us),
            Self::Reservations(all) => {
                for one in all {
                    put_all([&mut one.reservation.start, &mut one.reservation.end], us);
                }
            }
            Self::Why(why) => put_why(why, us),
            Self::Followed(page) => put_all(page.events.iter_mut().map(|event| &mut Arc::make_mut(event).time), us),
            _ => {}
        }
    }
}

fn put_job(job: &mut JobInfo, us: i64) {
    put_all([&mut job.submit, &mut job.eligible].into_iter().chain(&mut job.start).chain(&mut job.end), us);
    let Some(run) = &mut job.run else { return };
    put_all(run.suspended.iter_mut(), us);
    for step in &mut run.steps {
        put_all(step.end.iter_mut().map(|(time, _)| time).chain([&mut step.start]), us);
    }
}

fn put_why(why: &mut Why, us: i64) {
    put_all(why.begin.iter_mut(), us);
    put_all(why.start.iter_mut().map(|start| &mut start.time), us);
    put_all(why.changes.iter_mut().map(|(_, time)| time), us);
    why.reservations.iter_mut().for_each(|(_, start, end)| put_all([start, end], us));
}
