//! Clients: each has many submissions in flight on one connection, retries those without an answer, and now and then
//! checks that all acknowledged jobs are listed.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use squall_model::encoding::ByteBuf;
use squall_model::id::{ClientKey, JobId};
use squall_model::job::{Dependency, DependencyJob, DependencyKind, DependencyTerm, JobSpec};
use squall_model::time::Span;
use squall_model::wire::client::{Answer, JobRef, JobSelection, Refusal, Request};

use super::{Happening, World};

/// Maximum number of requests in flight on one connection.
const UNDER_WAY: usize = 6;

/// A request that a client has to make.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) what: CellRequest,
    /// Whether the front may have received the request under its present client key.
    heard: bool,
}

#[derive(Clone, Debug)]
pub(super) enum CellRequest {
    /// Submission of a job; `wish` is its number in the simulation. The client may change the key as long as the front
    /// cannot have received the request.
    Submit { wish: u32, key: ClientKey, name: &'static str, after: Option<Dependency> },
    /// Cancellation of the job with this id.
    Cancel(JobId),
    /// List of all jobs. Jobs acknowledged before the request (`promised`) must be in it, unless their cell is
    /// `absent`.
    List { promised: BTreeSet<JobId>, seen: BTreeSet<JobId>, absent: BTreeSet<u32> },
}

/// State of one client of the front.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub(super) session: Option<u64>,
    /// Requests that the client has not sent yet, oldest first.
    pub(super) todo: VecDeque<Wish>,
    /// Requests sent on this connection and not answered yet, oldest first.
    pub(super) asked: VecDeque<Wish>,
    /// Whether an action of this client is already scheduled in the agenda.
    awake: bool,
    /// Number of job lists without the jobs of some cell that this client received.
    pub(super) partial: u32,
}

impl Wish {
    pub(super) fn new(what: CellRequest) -> Self {
        Self { what, heard: false }
    }

    fn request(&self) -> Request {
        match &self.what {
            CellRequest::Submit { key, name, after, .. } => {
                let (name, dependency) = ((*name).to_owned(), after.clone());
                let spec = JobSpec { name, work_dir: "/".into(), dependency, ..JobSpec::default() };
                let (script, env) = (ByteBuf::from(b"#!/bin/true\n".to_vec()), ByteBuf::new());
                Request::Submit { spec: Arc::new(spec), script, env, key: *key }
            }
            CellRequest::Cancel(job) => {
                let jobs = JobSelection { ids: vec![JobRef::Job(*job)], ..JobSelection::default() };
                Request::Cancel { jobs, signal: None, step: None, verbose: true }
            }
            CellRequest::List { .. } => Request::Jobs { jobs: JobSelection::default(), ended: true, steps: false },
        }
    }
}

/// Returns a dependency on all these jobs, or on any one of them if `any`.
pub(super) fn after(jobs: impl IntoIterator<Item = (DependencyKind, JobId)>, any: bool) -> Dependency {
    let job = |id| Some(DependencyJob { id, index: None, delay_min: 0 });
    Dependency { terms: jobs.into_iter().map(|(when, id)| DependencyTerm { when, job: job(id) }).collect(), any }
}

/// Returns a singleton dependency: the job starts when no other job of the same name and user runs.
pub(super) fn single() -> Dependency {
    Dependency { terms: vec![DependencyTerm { when: DependencyKind::Singleton, job: None }], any: false }
}

impl World {
    pub(super) fn wake(&mut self, client: usize) {
        if !std::mem::replace(&mut self.clients[client].awake, true) {
            let pause = self.seed.span(Span(100), Span::from_millis(200));
            self.after(pause, Happening::ClientActs { client });
        }
    }

    pub(super) fn client_acts(&mut self, number: usize) {
        self.clients[number].awake = false;
        if self.clients[number].todo.is_empty() {
            return;
        }
        if self.clients[number].session.is_none() {
            let session = self.call();
            self.clients[number].session = session;
        }
        let Some(session) = self.clients[number].session else { return self.wake(number) };
        while self.clients[number].asked.len() < UNDER_WAY {
            let client = &mut self.clients[number];
            // Only submissions are pipelined, as by a library; a command sends one request at a time.
            let alone = |wish: &Wish| !matches!(wish.what, CellRequest::Submit { .. });
            let waits = client.todo.front().is_none_or(|next| alone(next) && !client.asked.is_empty())
                || client.asked.front().is_some_and(alone);
            if waits {
                break;
            }
            let Some(mut wish) = client.todo.pop_front() else { break };
            if let CellRequest::List { promised, seen, absent } = &mut wish.what {
                (*promised, *seen, *absent) = (self.judge.promised.clone(), BTreeSet::new(), BTreeSet::new());
            }
            let request = wish.request().into();
            client.asked.push_back(wish);
            self.under_way(session, true, Happening::ToFront { session, request });
        }
    }

    pub(super) fn client_lost(&mut self, session: u64) {
        let Some(number) = self.clients.iter().position(|client| client.session == Some(session)) else { return };
        let client = &mut self.clients[number];
        client.session = None;
        for mut wish in std::mem::take(&mut client.asked).into_iter().rev() {
            wish.heard = true;
            client.todo.push_front(wish);
        }
        self.wake(number);
    }

    pub(super) fn client_hears(&mut self, session: u64, answer: Answer) {
        let Some(number) = self.clients.iter().position(|client| client.session == Some(session)) else { return };
        let Some(wish) = self.clients[number].asked.front_mut() else {
            return self.judge.violate("nobody hears what was not asked", format!("{answer:?}"));
        };
        match (&mut wish.what, answer) {
            (CellRequest::List { absent, .. }, Answer::Without(cells)) => return absent.extend(cells),
            (CellRequest::List { seen, .. }, Answer::Jobs(page)) => {
                seen.extend(page.jobs.iter().map(|job| job.id));
                if page.more {
                    return;
                }
            }
            (_, Answer::Refused(Refusal::CellAway(_))) => return self.cell_was_away(number),
            (CellRequest::Submit { wish, key, .. }, Answer::Submitted { job, .. }) => {
                let (wish, key) = (*wish, *key);
                self.judge.acknowledged(wish, key, job);
            }
            (CellRequest::Cancel(_), Answer::Affected { .. }) => {}
            (CellRequest::Cancel(job), Answer::Refused(Refusal::InvalidJobId)) if self.judge.is_forgotten(*job) => {}
            // A cell has no record of how a forgotten job of its own ended, so it refuses the dependency.
            (CellRequest::Submit { after: Some(after), .. }, Answer::Refused(Refusal::DependencyProblem))
                if self.judge.names_forgotten(after) => {}
            (what, answer) => {
                let text = format!("{what:?}: {answer:?}");
                return self.judge.violate("what is asked is done", text);
            }
        }
        if let Some(wish) = self.clients[number].asked.pop_front()
            && let CellRequest::List { promised, seen, absent } = wish.what
        {
            self.clients[number].partial += u32::from(!absent.is_empty());
            self.judge.listed(&promised, &seen, &absent);
        }
        self.wake(number);
    }

    /// Puts the oldest unanswered request back into the queue, to be retried later because its cell was unreachable.
    fn cell_was_away(&mut self, number: usize) {
        let fresh = ClientKey(u128::from(self.seed.next()) << 64 | u128::from(self.seed.next()));
        let client = &mut self.clients[number];
        let Some(mut wish) = client.asked.pop_front() else { return };
        if let CellRequest::Submit { wish: which, key, .. } = &mut wish.what
            && !wish.heard
        {
            *key = fresh;
            self.judge.keys.insert(fresh, *which);
        }
        client.todo.push_back(wish);
        self.wake(number);
    }
}
