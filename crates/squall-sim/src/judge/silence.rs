//! Whose silence is its own: no node is called down that could be heard, whatever happens to others.

use squall_model::config::Config;
use squall_model::time::{Span, Time};

use super::Judge;

/// Time in which a node has to be in session again after it, the controller or the network was disturbed.
const COMES_BACK: Span = Span::from_secs(35);

/// Time in which a node is in session again whose relay is silent: the controller may notice that before the node does,
/// which then dials other ones.
const MOVES: Span = Span::from_secs(15);

/// Time that a controller which did not run gives all nodes at least before it calls one down: with beats every 10 s, and with
/// more frequent ones.
const DOUBTS_ITSELF: (Span, Span) = (Span::from_secs(15), Span::from_secs(8));

/// Length of a stop from which on the controller notices it in any case.
const NOTICED: Span = Span::from_secs(12);

/// Since when nodes can be heard.
#[derive(Debug)]
pub(crate) struct Silence {
    timeout: Span,
    /// Time that a controller which did not run gives all nodes at least.
    doubts: Span,
    /// Since when each node's daemon runs without a stop. None: it does not run.
    daemons: Vec<Option<Time>>,
    /// Since when the controller runs without a stop.
    controller: Time,
    /// When the last disturbance of another kind was over.
    trouble: Time,
    /// Until when the controller was stopped last.
    stopped: Option<Time>,
    /// Since when each node is seen in no session, although it could be heard. None: it is in one.
    missing: Vec<Option<Time>>,
}

impl Silence {
    pub(crate) fn of(config: &Config, nodes: usize) -> Self {
        Self {
            timeout: Span::from_secs(config.node_timeout_s),
            doubts: if config.beat() < Span::from_secs(10) { DOUBTS_ITSELF.1 } else { DOUBTS_ITSELF.0 },
            daemons: vec![None; nodes],
            controller: Time(0),
            trouble: Time(0),
            stopped: None,
            missing: vec![None; nodes],
        }
    }

    /// Records since when, or from when on, a node's daemon runs. None: it does not run.
    pub(crate) fn runs_from(&mut self, host: usize, since: Option<Time>) {
        self.daemons[host] = since;
    }

    /// Records since when the controller runs.
    pub(crate) fn controller_from(&mut self, since: Time) {
        self.controller = self.controller.max(since);
    }

    /// Records that the controller is stopped for `span`, until `until`. Between two heartbeats it may miss that it was.
    pub(crate) fn controller_stopped(&mut self, until: Time, span: Span) {
        self.controller_from(until);
        self.stopped = Some(until).filter(|_| span >= NOTICED).or(self.stopped);
    }

    /// Records a disturbance of another kind, which is over at `until`.
    pub(crate) fn trouble(&mut self, until: Time) {
        self.trouble = self.trouble.max(until);
    }

    /// Returns since when the controller runs without a stop. Its timers are later by the time that it did not run.
    pub(super) fn controller_since(&self) -> Time {
        self.controller
    }

    /// Returns since when a node can be heard. None: its daemon does not run.
    fn heard_since(&self, host: usize) -> Option<Time> {
        Some(self.daemons[host]?.max(self.controller).max(self.trouble))
    }
}

impl Judge {
    /// Checks that a node which the controller calls down could not be heard. `fine`: nothing in the network keeps it from
    /// that at present.
    pub(crate) fn called_down(&mut self, now: Time, host: usize, fine: bool) {
        let silence = &self.silence;
        let can_be_heard = silence.heard_since(host).is_some_and(|since| since + silence.timeout <= now);
        let returned = silence.stopped.is_some_and(|until| now < until + silence.doubts);
        if fine && can_be_heard {
            self.violate("a node that runs is not called down", self.names[host].clone());
        }
        if returned {
            self.violate("a controller that did not run doubts itself first", self.names[host].clone());
        }
    }

    /// Checks that nodes which can be heard are in session. One that moves to another parent is without for a while.
    pub(crate) fn in_session(&mut self, now: Time, host: usize, is: bool) {
        let since = self.silence.heard_since(host);
        let missing = !is && since.is_some_and(|since| since + COMES_BACK <= now);
        let first = self.silence.missing[host].filter(|_| missing).unwrap_or(now);
        self.silence.missing[host] = Some(first).filter(|_| missing);
        if missing && first + MOVES <= now {
            self.violate("a node that runs is in session", self.names[host].clone());
        }
    }
}
