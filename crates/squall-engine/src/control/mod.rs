//! The controller: `decide` turns requests and reports into events, `state` is the result of the events, and `effects`
//! does what follows from the state.
//!
//! Below them: `index` (soft state derived from the state), `net` (connections), `controller` (all of it together),
//! `info` (what clients are shown). `port` has the inputs and outputs. A folder imports only those before it in this
//! order: state, port, index, net, controller, info, effects, decide. `cli/tests/tidy/main.rs` checks it.
//!
//! Only `State::apply` writes `State`; replaying the journal restores it. Everything else in [`Controller`] is soft: a
//! crash loses it, and [`Input::Start`] rebuilds it from `State`.

pub(crate) mod controller;
pub(crate) mod decide;
pub(crate) mod effects;
pub(crate) mod index;
pub(crate) mod info;
pub(crate) mod net;
pub(crate) mod port;
pub mod state;

pub use controller::Controller;
pub use decide::rehearsal::Rehearsal;
pub use index::privacy::Sight;
pub use port::{BootingJob, CallerId, Cast, Input, LinkId, Out, PowerProgram, Program, Who};

use squall_model::id::{ClientKey, JobId};
use squall_model::job::Digest;
use squall_model::time::Time;
use squall_model::wire::client::{AnyRequest, JobRef, JobSelection, Refusal, Right};

use crate::machine::Machine;
use decide::{follow, lists};
use effects::{broadcasts, cast, nodes, power, programs, queries, steps, wall, work};
use net::scope;
use state::State;

impl Controller {
    /// Makes a controller for a replayed state. It does nothing until its first input, which must be [`Input::Start`].
    pub fn new(state: State) -> Self {
        Self::over(state, effects::OBSERVERS)
    }

    /// Returns the digest of a job's batch script. The host stores the content.
    pub fn script_of(&self, job: JobId) -> Result<Digest, Refusal> {
        decide::script_of(&self.state, job)
    }

    /// Returns whether a user's submission with this key was accepted.
    pub fn has_accepted(&self, uid: u32, key: ClientKey) -> bool {
        self.state.index.keys.contains_key(&(uid, key))
    }

    /// Returns the jobs and arrays that a change selects and that the user may change, each with what names it.
    pub fn to_change(&self, who: &Who, jobs: &JobSelection) -> Result<Vec<(JobRef, JobId)>, Refusal> {
        decide::select::named_to_change(&self.state, who, jobs)
    }

    /// Checks that a user has the right that a request of the host needs.
    pub fn authorize(&self, who: &Who, right: Right<'_>) -> Result<(), Refusal> {
        decide::rights::check(&self.state, who, right)
    }

    /// Returns the name of the node that vouches for a user, where the site does not trust it with all of the user's rights.
    /// None: there is none.
    pub fn vouching(&self, who: &Who) -> Option<&str> {
        Some(self.state.node(decide::rights::vouching(&self.state, who)?)?.name.as_str())
    }

    /// Returns what a user may see of others.
    pub fn sight(&self, who: &Who) -> Sight {
        Sight::of(&self.state, who)
    }

    /// Answers a request that a standby answers; others are refused. For a standby, whose state comes from the log of the
    /// controller that leads: nothing is decided, and [`Input::Start`] is not needed.
    pub fn read(&mut self, now: Time, caller: CallerId, who: &Who, request: AnyRequest, out: &mut Out) {
        decide::read(self, now, caller, who, request, out);
    }

    /// Makes the next page of a list that [`Controller::read`] has begun.
    pub fn read_page(&mut self, now: Time, out: &mut Out) {
        lists::page(self, now, out);
    }

    /// Forgets the lists of a client that [`Controller::read`] has served.
    pub fn read_no_more(&mut self, caller: CallerId) {
        self.lists.hangup(caller);
    }

    /// Processes one of several inputs of the same moment; the caller ends the series with [`Controller::settle`].
    /// Submissions, reports of ends and pages of events are collected, so that their effects run once for all of them. The effects of
    /// any other input run at once, as do those of the inputs that were collected before it.
    pub fn take(&mut self, now: Time, input: Input, out: &mut Out) {
        let waits = input.can_wait();
        if !waits {
            self.settle(now, out);
        }
        self.unsettled = true;
        self.decide(now, input, out);
        if !waits {
            self.settle(now, out);
        }
    }

    /// Runs the pending effects of the inputs processed so far: starts of jobs, answers to clients, frames to nodes.
    pub fn settle(&mut self, now: Time, out: &mut Out) {
        if std::mem::take(&mut self.unsettled) {
            effects::settle(self, now, out);
        }
    }

    /// Decides about one input and commits the events. Not inlined, so that `bench/path` can measure it apart from
    /// [`effects::settle`].
    #[inline(never)]
    fn decide(&mut self, now: Time, input: Input, out: &mut Out) {
        match input {
            Input::Start { config, version, host } => effects::start(self, now, *config, version, host, out),
            Input::Ask { caller, who, request } => {
                self.state.groups().refresh(&who.owner);
                decide::ask(self, now, caller, &who, *request, out);
            }
            Input::Hangup { caller, away } => {
                for job in self.waits.hangup(caller) {
                    if away {
                        work::await_owner(self, now, job);
                    } else {
                        work::abandon(self, now, job, out);
                    }
                }
                steps::hangup(self, now, caller, away);
                queries::hangup(self, caller);
                self.lists.hangup(caller);
                self.feed.leave(now, caller);
                self.foreign.hangup(caller);
                broadcasts::give_up(self, caller);
            }
            Input::Frame { link, frame } => decide::reports::frame(self, now, link, *frame, out),
            Input::Opened { link, name } => {
                let config = &self.state.config;
                let keyed = name.map(|name| scope::Keyed::new(config, name));
                self.links.opened(now, link, (config.msg_aggregation_params.0, config.beat()), keyed);
            }
            Input::Lost { link } => nodes::child_closed(self, link),
            Input::Disk { full } => {
                self.disk_full = full;
                self.queue.kick |= !full;
            }
            Input::Multicast { secret } => self.broadcasts.air.open(secret),
            Input::CastOut { stream } => cast::left(self, now, stream),
            Input::ClockSet { by_us } => wall::stepped(self, now, by_us, out),
            Input::Groups { users } => self.state.groups().note(users),
            Input::ProgramEnded { job, hook, error } => programs::ended(self, now, (job, hook), error, out),
            Input::PowerProgramEnded { phase, nodes } => power::ended(self, now, phase, &nodes, out),
            Input::Page => lists::page(self, now, out),
            Input::Feed => follow::page(self, now, out),
            Input::Tick => {}
        }
    }
}

impl Machine for Controller {
    type Input = Input;
    type Out = Out;

    fn step(&mut self, now: Time, input: Input, out: &mut Out) {
        self.take(now, input, out);
        self.settle(now, out);
    }

    fn deadline(&self) -> Option<Time> {
        effects::deadline(self)
    }
}

#[cfg(test)]
mod tests;
