//! The state as the controller keeps it: everybody reads it, and only an event changes it.

use std::ops::Deref;
use std::sync::Arc;

use squall_model::event::Event;
use squall_model::job::{Digest, JobSpec, Owner};
use squall_model::time::Time;

use super::State;

/// A [`State`] of which nobody gets a `&mut`.
#[derive(Debug, Default)]
pub(crate) struct Kept(State);

impl Kept {
    /// A replayed state.
    pub(crate) fn new(state: State) -> Self {
        Self(state)
    }
    /// Applies one event, decided at `time`.
    pub(crate) fn apply(&mut self, time: Time, event: &Event) {
        self.0.apply(time, event);
    }
    /// The copy of an equal owner that others share, or this one.
    pub(crate) fn shared_owner(&mut self, owner: &Arc<Owner>) -> Arc<Owner> {
        self.0.index.recent.owner(owner)
    }
    /// The copy of an equal spec that others share, or this one.
    pub(crate) fn shared_spec(&mut self, spec: &Arc<JobSpec>) -> Arc<JobSpec> {
        self.0.index.recent.spec(spec)
    }
    /// Sets in a spec the digests of its environment and script, see `Recent::lay_contents`.
    pub(crate) fn lay_contents(&mut self, spec: &mut Arc<JobSpec>, env: Digest, script: Option<Digest>) {
        self.0.index.recent.lay_contents(spec, env, script);
    }
}

impl Deref for Kept {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}
