//! A controller without a cluster, with the usual state, queue and policy. Its decisions are sent to no node.

use crate::control::effects::OBSERVERS;
use crate::control::index::todo::Todo;
use std::sync::Arc;

use squall_model::event::Event;
use squall_model::id::JobId;
use squall_model::time::Time;
use squall_model::wire::client::Answer;
use squall_model::wire::info::Why;

use crate::control::controller::Controller;
use crate::control::decide::ask::Ask;
use crate::control::decide::why;
use crate::control::effects::work;
use crate::control::port::{CallerId, Out, Who};
use crate::control::state::State;

/// A rehearsal of events and scheduling passes: for benchmarks, and to find out what another configuration would have
/// done.
#[derive(Debug)]
pub struct Rehearsal {
    pub(crate) c: Controller,
}

impl Rehearsal {
    /// Makes a rehearsal with an empty state. Every node that is configured later counts as connected.
    pub fn new() -> Self {
        let mut c = Controller::over(State::default(), OBSERVERS);
        c.rehearsal = true;
        Self { c }
    }
    /// Returns the rehearsal's state.
    pub fn state(&self) -> &State {
        &self.c.state
    }
    /// Applies an event, as if the controller had decided it at `now`.
    pub fn happens(&mut self, now: Time, event: Event) {
        let mut out = Out::default();
        self.c.commit(now, event, &mut out);
        work::enter_all(&mut self.c, now, &mut out);
        self.c.todo = Todo::default();
    }
    /// Makes a scheduling pass. Returns how many jobs it started, and how many it examined.
    pub fn pass(&mut self, now: Time) -> (u64, u64) {
        let before = (self.c.diag.jobs_started, self.c.diag.cycle_depth_total);
        let mut out = Out::default();
        work::enter_all(&mut self.c, now, &mut out);
        work::schedule(&mut self.c, now, &mut out);
        work::enter_all(&mut self.c, now, &mut out);
        self.c.todo = Todo::default();
        (self.c.diag.jobs_started - before.0, self.c.diag.cycle_depth_total - before.1)
    }
    /// Returns what `squall why` would show for a pending job.
    pub fn why(&mut self, now: Time, id: JobId) -> Option<Why> {
        let who = Who { owner: Arc::default(), operator: true, by: None, job: None };
        match why::why(&mut self.c, &Ask { now, caller: CallerId(0), who: &who }, id) {
            Ok(Some(Answer::Why(told))) => Some(*told),
            _ => None,
        }
    }
}

impl Default for Rehearsal {
    fn default() -> Self {
        Self::new()
    }
}
