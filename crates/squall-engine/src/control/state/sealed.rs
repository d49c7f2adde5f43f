//! The state of the controller, which every module can read and only events can change.

use std::ops::Deref;
use std::sync::Arc;

use squall_model::event::Event;
use squall_model::job::{Digest, JobSpec, Owner};
use squall_model::time::Time;

use super::State;
use super::users::Groups;

/// A [`State`] that can be read but not borrowed mutably, so that only events change it.
#[derive(Debug, Default)]
pub(crate) struct SealedState(State);

impl SealedState {
    /// Makes a replayed state readable to all, and changeable by events only.
    pub(crate) fn new(state: State) -> Self {
        Self(state)
    }
    /// Applies one event, decided at `time`.
    pub(crate) fn apply(&mut self, time: Time, event: &Event) {
        self.0.apply(time, event);
    }
    /// Returns the state itself, to be given to another controller.
    pub(crate) fn into_state(self) -> State {
        self.0
    }
    /// Returns the stored copy of an equal owner. If there is none, stores this one and returns it.
    pub(crate) fn shared_owner(&mut self, owner: &Arc<Owner>) -> Arc<Owner> {
        self.0.index.recent.owner(owner)
    }
    /// Returns the stored copy of an equal spec. If there is none, stores this one and returns it.
    pub(crate) fn shared_spec(&mut self, spec: &Arc<JobSpec>) -> Arc<JobSpec> {
        self.0.index.recent.spec(spec)
    }
    /// Returns what is known of users' groups, on which the state does not depend.
    pub(crate) fn groups(&mut self) -> &mut Groups {
        &mut self.0.index.groups
    }
    /// Writes the digests of a job's environment and script into its spec, see `Recent::lay_contents`.
    pub(crate) fn lay_contents(&mut self, spec: &mut Arc<JobSpec>, env: Digest, script: Option<Digest>) {
        self.0.index.recent.lay_contents(spec, env, script);
    }
}

impl Deref for SealedState {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}
