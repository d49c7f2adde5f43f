//! Runs one seed of cells, front, clients and faults, and returns the report.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use squall_engine::commit::Pipeline;
use squall_engine::control::{CallerId, Input, Out, Who};
use squall_engine::machine::Machine;
use squall_model::id::{ClientKey, JobId};
use squall_model::job::{Dependency, DependencyKind, PendingReason};
use squall_model::time::Span;
use squall_model::wire::client::{Answer, JobSelection, Request};

use super::client::{CellRequest, Client, Wish, after, single};
use super::{Happening, World, owner};
use crate::coverage::Coverage;
use crate::run::{Report, Settings, panicked};
use crate::seed::mix;
use crate::setup::BEGIN;

/// Time after the last fault within which all requests must be answered.
const PATIENCE: Span = Span::from_secs(600);
/// Number of trailing trace lines that are kept when no trace was requested.
const KEPT_LINES: usize = 200;

/// Kinds of dependencies that random jobs have.
const KINDS: [DependencyKind; 4] =
    [DependencyKind::After, DependencyKind::AfterAny, DependencyKind::AfterOk, DependencyKind::AfterNotOk];

/// Default number of simulated cells.
const CELLS: u32 = 3;

/// Simulates one seed of cells and front, and returns the report.
pub(crate) fn run(settings: &Settings) -> Report {
    let cells = if settings.cells > 0 { settings.cells } else { CELLS };
    let mut world = World::new(cells, settings.mutation, settings.seed ^ 0x00ce_1150);
    let played = catch_unwind(AssertUnwindSafe(|| world.play(settings.span)));
    let panic = played.err().map(|panic| panicked(panic.as_ref()));
    let violation = panic.or_else(|| world.judge.violation.take().map(|violation| *violation));
    let hash = world.trace.iter().flat_map(|line| line.bytes()).fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
    let kept = if settings.trace { 0 } else { world.trace.len().saturating_sub(KEPT_LINES) };
    Report {
        seed: settings.seed,
        violation,
        ended: world.now.since(BEGIN),
        coverage: Coverage::default(),
        trace_hash: hash ^ world.steps,
        trace: world.trace.split_off(kept),
        steps: world.steps,
        jobs: world.judge.count() as u64,
    }
}

impl World {
    fn play(&mut self, span: Span) {
        let span = Span(span.0.min(Span::from_secs(300).0));
        for client in 0..self.seed.between(2, 6) as usize {
            self.clients.push(Client::default());
            for _ in 0..self.seed.between(5, 40) {
                self.wish(client);
            }
        }
        self.after(Span::from_millis(300), Happening::FaultStrikes);
        let parts = self.seed.between(3, 10);
        for part in 1..=parts {
            self.run_until(BEGIN + Span(span.0 * part / parts));
            for client in 0..self.clients.len() {
                self.wish(client);
            }
        }
        self.heal();
        for client in 0..self.clients.len() {
            self.ask(
                client,
                CellRequest::List { promised: BTreeSet::new(), seen: BTreeSet::new(), absent: BTreeSet::new() },
            );
        }
        self.run_until(BEGIN + span + PATIENCE);
        self.close();
    }

    /// Checks the end state of the simulation: all requests are answered, and pending jobs have valid reasons.
    pub(super) fn close(&mut self) {
        if let Some(number) = self.clients.iter().position(|client| !client.todo.is_empty() || !client.asked.is_empty())
        {
            let client = &self.clients[number];
            let text = format!("client {number} waits: {:?}", client.asked.front().or(client.todo.front()));
            self.judge.violate("every request is answered", text);
        }
        let reasons = self.reasons();
        self.judge.close(&reasons);
    }

    /// Returns the pending reason of each pending job, as its cell lists it.
    fn reasons(&mut self) -> BTreeMap<JobId, PendingReason> {
        let mut reasons = BTreeMap::new();
        let who = Who { owner: Arc::new(owner()), operator: true, by: None, job: None };
        for cell in self.cells.values_mut() {
            let Some(mut machine) = cell.pipeline.take().map(Pipeline::into_machine) else { continue };
            let request = Box::new(Request::Jobs { jobs: JobSelection::default(), ended: false, steps: false });
            let mut out = Out::default();
            machine.step(self.now, Input::Ask { caller: CallerId(u64::MAX), who: who.clone(), request }, &mut out);
            while machine.lists() {
                machine.step(self.now, Input::Page, &mut out);
            }
            for (_, answer) in out.answers {
                let Answer::Jobs(page) = answer else { continue };
                reasons.extend(page.jobs.into_iter().map(|job| (job.id, job.reason)));
            }
        }
        reasons
    }

    /// Adds a random request to a client.
    fn wish(&mut self, client: usize) {
        let jobs: Vec<_> = self.judge.promised.iter().copied().collect();
        match (self.seed.below(10), self.seed.pick(&jobs).copied()) {
            (0, Some(job)) => self.ask(client, CellRequest::Cancel(job)),
            (1, _) => {
                let nothing =
                    CellRequest::List { promised: BTreeSet::new(), seen: BTreeSet::new(), absent: BTreeSet::new() };
                self.ask(client, nothing);
            }
            (2, _) => {
                let name = if self.seed.chance(500_000) { "one" } else { "two" };
                self.submit(client, name, Some(single()));
            }
            (3 | 4, Some(_)) => {
                let terms = (0..self.seed.between(1, 3))
                    .filter_map(|_| Some((*self.seed.pick(&KINDS)?, *self.seed.pick(&jobs)?)));
                let terms: Vec<_> = terms.collect();
                let any = self.seed.chance(300_000);
                self.submit(client, "job", Some(after(terms, any)));
            }
            (5, _) => self.submit(client, "one", None),
            _ => self.submit(client, "job", None),
        }
    }

    pub(super) fn submit(&mut self, client: usize, name: &'static str, after: Option<Dependency>) {
        let key = ClientKey(u128::from(self.seed.next()) << 64 | u128::from(self.seed.next()));
        self.judge.wishes += 1;
        let wish = self.judge.wishes;
        self.judge.keys.insert(key, wish);
        self.ask(client, CellRequest::Submit { wish, key, name, after });
    }

    pub(super) fn ask(&mut self, client: usize, what: CellRequest) {
        self.clients[client].todo.push_back(Wish::new(what));
        self.wake(client);
    }

    pub(super) fn heal(&mut self) {
        self.healed = true;
        self.front_starts();
        for cell in self.cells.keys().copied().collect::<Vec<_>>() {
            self.cell_goes_on(cell);
            self.cell_starts(cell);
        }
    }

    pub(super) fn fault_strikes(&mut self) {
        if self.healed {
            return;
        }
        let cell = self.seed.below(self.cells.len() as u64) as u32;
        let span = self.seed.span(Span::from_millis(1), Span::from_secs(12));
        match self.seed.below(6) {
            0 if self.front_up => {
                self.crash_front();
                self.after(span, Happening::FrontStarts);
            }
            1 | 2 => {
                self.crash_cell(cell);
                self.after(span, Happening::CellStarts { cell });
            }
            3 => self.stop_cell(cell, span),
            4 => {
                let links: Vec<u64> = self.links.keys().copied().collect();
                let link = self.seed.pick(&links).copied();
                self.say("FAULT a connection to a cell breaks");
                self.end_link(link, true);
            }
            _ => {
                let sessions: Vec<u64> = self.sessions.keys().copied().collect();
                if let Some(session) = self.seed.pick(&sessions).copied() {
                    self.say("FAULT a client's connection breaks");
                    self.end_session(session);
                }
            }
        }
        let pause = self.seed.span(Span::from_millis(1), Span::from_secs(4));
        self.after(pause, Happening::FaultStrikes);
    }

    pub(super) fn stop_cell(&mut self, number: u32, span: Span) {
        self.say(format!("FAULT cell {number} stopped"));
        if let Some(cell) = self.cells.get_mut(&number) {
            cell.stopped = true;
        }
        self.after(span, Happening::CellGoesOn { cell: number });
    }
}
