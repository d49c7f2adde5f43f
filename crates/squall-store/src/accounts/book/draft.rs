//! Jobs submitted in the current transaction. Their events are collected and written as one row when the transaction
//! ends; most short jobs have ended by then.

use std::sync::Arc;

use rusqlite::params;
use squall_model::billing::Billing;
use squall_model::event::Event;
use squall_model::id::{Attempt, JobId, StepNo};
use squall_model::job::{EndState, JobKind, JobSpec, JobState, Outcome, Usage};
use squall_model::report::StepEnd;
use squall_model::resource::Alloc;
use squall_model::time::Time;

use super::{Book, SqlResult};
use crate::accounts::encode::{Packed, state_columns};

/// A job that has no row yet.
#[derive(Debug)]
pub(in crate::accounts) struct Draft {
    pub(super) uid: u32,
    /// Row id of the owner. Other jobs may share that row.
    pub(super) owner: i64,
    /// Row id of the specification. Other jobs may share that row.
    pub(super) spec_row: i64,
    pub(super) spec: Arc<JobSpec>,
    pub(super) partition: String,
    pub(super) submit: Time,
    pub(super) eligible: Time,
    pub(super) limit: Option<i64>,
    pub(super) run: Option<Run>,
    pub(super) end: Option<(Time, Outcome)>,
}

/// The first attempt of a job that has no row yet.
#[derive(Debug)]
pub(in crate::accounts) struct Run {
    attempt: Attempt,
    start: Time,
    alloc: Alloc,
    /// Number of nodes that have not released the job yet.
    left: u32,
    /// What the attempt is billed; None: its CPUs.
    billing: Option<Billing>,
    /// End of the batch script; None: it still runs. Only success is kept here; otherwise the job gets a row at once.
    script: Option<StepEnd>,
}

/// The rows that an event changes or needs.
enum AffectedRows {
    /// The event concerns no existing rows.
    Nobodys,
    /// The event concerns rows of this job.
    Of(JobId),
    /// The event may concern rows of any job.
    Anybodys,
}

fn whose(event: &Event) -> AffectedRows {
    match event {
        Event::JobSubmitted { .. }
        | Event::GresGranted { .. }
        | Event::JobPreempted { .. }
        | Event::HetFormed { .. }
        | Event::JobLeased { .. }
        | Event::LeaseReturned { .. }
        | Event::StepLimited { .. }
        | Event::IdsLost { .. }
        | Event::Restored { .. }
        | Event::VersionRaised { .. }
        | Event::KeysRotated { .. }
        | Event::NodesChanged { .. }
        | Event::JobConfigured { .. }
        | Event::NodesPower { .. }
        | Event::PowerWished { .. }
        | Event::PowerProgramEnded { .. }
        | Event::EpilogEnded { .. }
        | Event::NodesRemoved { .. }
        | Event::NodesCreated { .. }
        | Event::NodesReboot { .. }
        | Event::ForeignResolved { .. } => AffectedRows::Nobodys,
        Event::JobStarted { id, .. }
        | Event::JobAwake { id, .. }
        | Event::JobBilled { id, .. }
        | Event::JobEnding { id, .. }
        | Event::NodeLost { id, .. }
        | Event::NodesReleased { id, .. } => AffectedRows::Of(*id),
        Event::StepStarted { job, .. } | Event::StepNodesEnded { job, .. } | Event::StepAbandoned { job, .. } => {
            AffectedRows::Of(*job)
        }
        _ => AffectedRows::Anybodys,
    }
}

impl Book {
    /// Adds an event to the drafts that it concerns. False: the event must be written to the database; the jobs that it
    /// concerns have rows now.
    pub(super) fn noted(&mut self, time: Time, event: &Event) -> rusqlite::Result<bool> {
        let id = match whose(event) {
            AffectedRows::Of(id) => id,
            AffectedRows::Nobodys => return Ok(false),
            AffectedRows::Anybodys => return self.write_drafts().map(|()| false),
        };
        let Some(draft) = self.recent.drafts.get_mut(&id) else { return Ok(false) };
        if draft.note(time, event) {
            if matches!(event, Event::NodesReleased { .. }) {
                self.recent.jobs.remove(&id);
            }
            return Ok(true);
        }
        let draft = self.recent.drafts.remove(&id);
        draft.map_or(Ok(()), |draft| self.write_draft(id, &draft))?;
        Ok(false)
    }

    /// Writes the rows of all drafts.
    pub(super) fn write_drafts(&mut self) -> SqlResult {
        for (id, draft) in std::mem::take(&mut self.recent.drafts) {
            self.part(&format_args!("job {id}"), |book| book.write_draft(id, &draft))?;
        }
        Ok(())
    }

    fn write_draft(&self, id: JobId, draft: &Draft) -> SqlResult {
        let Draft { spec, run, end, .. } = draft;
        let (state, by) = state_columns(match (run, end) {
            (_, Some((_, outcome))) => JobState::Ended(outcome.state),
            (Some(_), None) => JobState::Running,
            (None, None) => JobState::Pending,
        });
        let exit = end.as_ref().map(|(_, outcome)| outcome.exit).unwrap_or_default();
        let alloc = run.as_ref().map(|run| &run.alloc);
        let nodes = alloc.map(Alloc::nodes).unwrap_or_default();
        let limit = draft.limit.or_else(|| run.as_ref().and_then(|_| self.limit(spec, &draft.partition)));
        // Parameters by position: looking up two dozen names took half as long as the row itself.
        let sql = "INSERT INTO jobs (id, attempt, uid, owner, spec, name, partition, account, qos, state, state_by,
            code, signal, reason, submit, eligible, start, end, limit_s, nodes, num_nodes, num_cpus, memory_mb, left)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING";
        let values = params![
            id.0,
            run.as_ref().map_or(1, |run| run.attempt.0),
            draft.uid,
            draft.owner,
            draft.spec_row,
            spec.name,
            draft.partition,
            self.account(spec),
            self.qos(spec),
            state,
            by,
            exit.code,
            exit.signal,
            end.as_ref().and_then(|(_, outcome)| outcome.reason.as_deref()),
            draft.submit.0 as i64,
            draft.eligible.0 as i64,
            run.as_ref().map(|run| run.start.0 as i64),
            end.as_ref().map(|(time, _)| time.0 as i64),
            limit,
            self.names(&nodes),
            nodes.len() as i64,
            alloc.map_or(0, Alloc::cpus),
            alloc.map_or(0, Alloc::memory_mb) as i64,
            run.as_ref().map_or(0, |run| run.left)
        ];
        self.db.write(sql, values)?;
        let billing = run.as_ref().and_then(|run| Some((run.attempt, run.billing?)));
        billing.map_or(Ok(()), |(attempt, billing)| self.set_billed(id, attempt, billing))?;
        let run = run.as_ref().filter(|_| spec.kind == JobKind::Batch);
        run.map_or(Ok(()), |run| self.write_script(id, run))
    }

    /// Writes the row of the batch script's step.
    fn write_script(&self, id: JobId, run: &Run) -> SqlResult {
        let first = run.alloc.nodes().first();
        let name = first.map_or(String::new(), |node| self.name(node));
        let cpus = first.and_then(|node| run.alloc.on(node)).map_or(0, |share| share.cores.len());
        let end = run.script.as_ref();
        let (state, _) = state_columns(end.map_or(JobState::Running, |_| JobState::Ended(EndState::Completed)));
        let usage = end.map_or_else(Usage::default, |end| end.usage);
        let sql = "INSERT INTO steps (job, attempt, step, name, state, reason, start, end, nodes, num_nodes,
            num_cpus, num_tasks, left, usage, submit_line)
            VALUES (?1, ?2, ?3, 'batch', ?4, ?5, ?6, ?7, ?8, 1, ?9, 1, ?10, ?11, '') ON CONFLICT DO NOTHING";
        let values = params![
            id.0,
            run.attempt.0,
            StepNo::BATCH.0,
            state,
            end.and_then(|end| end.note.as_deref()),
            run.start.0 as i64,
            end.map(|end| end.ended.0 as i64),
            name,
            cpus as u32,
            u32::from(end.is_none()),
            Packed(usage)
        ];
        self.db.write(sql, values)
    }
}

impl Draft {
    /// Adds an event. False: a draft can't represent it.
    fn note(&mut self, time: Time, event: &Event) -> bool {
        match (event, &mut self.run) {
            (Event::JobStarted { attempt, partition, alloc, .. }, run @ None) if self.end.is_none() => {
                self.partition.clone_from(partition);
                self.eligible = if self.eligible == Time(0) { time } else { self.eligible.min(time) };
                let left = alloc.nodes().len() as u32;
                *run = Some(Run {
                    attempt: *attempt,
                    start: time,
                    alloc: alloc.clone(),
                    left,
                    billing: None,
                    script: None,
                });
            }
            (Event::JobBilled { attempt, billing, .. }, Some(run)) if run.attempt == *attempt => {
                run.billing = Some(*billing);
            }
            (Event::StepNodesEnded { attempt, step: StepNo::BATCH, end, .. }, Some(run))
                if run.attempt == *attempt
                    && run.script.is_none()
                    && self.spec.kind == JobKind::Batch
                    && end.exit.is_ok()
                    && !(end.oom || end.lost) =>
            {
                run.script = Some(end.clone());
            }
            (Event::JobEnding { outcome, requeue: None, .. }, _) if self.end.is_none() => {
                self.end = Some((time, outcome.clone()));
            }
            (Event::NodesReleased { attempt, nodes, .. }, Some(run)) if run.attempt == *attempt => {
                run.left = run.left.saturating_sub(nodes.len() as u32);
            }
            _ => return false,
        }
        true
    }
}
