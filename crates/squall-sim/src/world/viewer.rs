//! A simulated user who follows the events of the cluster, and comes back when the connection has ended.

use std::sync::Arc;

use squall_engine::control::{CallerId, Input, Who as Asker};
use squall_model::job::Owner;
use squall_model::time::{Span, Time};
use squall_model::wire::client::{JobSelection, Request};
use squall_model::wire::feed::{FeedPage, Position};

use crate::judge::feed::Expects;
use crate::mutation::Mutation;
use crate::seed::Seed;
use crate::world::{Happening, World};

/// Callers with this number or a higher one are connections of the viewer.
pub(crate) const FIRST_CALLER: u64 = 1 << 40;
/// Shortest and longest time until the viewer comes back, normally and now and then.
const PAUSES: [(Span, Span); 2] =
    [(Span::from_millis(10), Span::from_secs(2)), (Span::from_secs(300), Span::from_secs(600))];

/// Time in which a viewer that comes back reads what it has missed, though slowly.
const CATCHES_UP: Span = Span::from_secs(100);

/// A user who follows events.
#[derive(Debug)]
pub(crate) struct Viewer {
    /// The present connection, or the last one.
    caller: u64,
    /// The controller at the other end.
    controller: usize,
    connected: bool,
    /// When it has connected last.
    since: Time,
    /// Whether a page is on its way. The controller sends the next one when it was read.
    awaits: bool,
    /// When the last page arrives.
    due: Time,
    /// Position after the last page. None: there was no page.
    from: Option<Position>,
    /// What the judge expects next.
    pub(crate) expects: Option<Expects>,
    /// How often the viewer was told that events were missed.
    pub(crate) missed: u64,
    /// Chance of its own, so that other users' course does not depend on it.
    seed: Seed,
}

impl World {
    /// Adds a viewer, who follows events from now on.
    pub(crate) fn add_viewer(&mut self, seed: u64) {
        self.viewer = Some(Viewer {
            caller: FIRST_CALLER,
            controller: 0,
            connected: false,
            since: Time(0),
            awaits: false,
            due: Time(0),
            from: None,
            expects: None,
            missed: 0,
            seed: Seed::new(seed ^ 0x0ee7),
        });
        self.after(Span(0), Happening::ViewerCalls);
    }

    /// Connects the viewer, if the controller serves; otherwise it tries again later.
    pub(crate) fn viewer_calls(&mut self) {
        let found = if self.is_shut() { None } else { self.find_leader() };
        let now = self.now;
        let Some(viewer) = self.viewer.as_mut().filter(|viewer| !viewer.connected) else { return };
        let Some(controller) = found else {
            let again = viewer.seed.span(Span::from_millis(10), Span::from_millis(500));
            return self.after(again, Happening::ViewerCalls);
        };
        viewer.caller += 1;
        viewer.controller = controller;
        (viewer.connected, viewer.awaits, viewer.since) = (true, true, now);
        let mut from = viewer.from;
        let caller = CallerId(viewer.caller);
        if self.is_planted(Mutation::EventsRepeated) {
            from = from.map(|from| Position { record: from.record.saturating_sub(3), ..from });
        }
        let owner = Owner { uid: 999, gid: 999, groups: Vec::new(), user: "viewer".into(), group: "viewer".into() };
        let who = Asker { owner: Arc::new(owner), operator: false, by: None, job: None };
        let request = Request::Follow { from, jobs: Box::new(JobSelection::default()), kinds: Vec::new() };
        self.tell_controller(controller, Input::Ask { caller, who, request: Box::new(request) });
    }

    /// Sends a page to the viewer.
    pub(crate) fn show_viewer(&mut self, caller: u64, mut page: FeedPage) {
        if self.mutates(Mutation::EventLost, 10) {
            page.events.pop();
        }
        page.missed &= !self.is_planted(Mutation::LossUnsaid);
        let Some(viewer) = self.viewer.as_mut().filter(|viewer| viewer.connected && viewer.caller == caller) else {
            return;
        };
        viewer.awaits = true;
        // Now and then the viewer reads slowly.
        let slow = viewer.seed.chance(50_000);
        let longest = if slow { Span::from_secs(20) } else { Span::from_millis(2) };
        let delay = viewer.seed.span(Span(30), longest);
        // The controller also sends positions unasked, and pages of a connection don't overtake each other.
        viewer.due = viewer.due.max(self.now + delay);
        let delay = viewer.due.since(self.now);
        self.after(delay, Happening::ViewerSees { caller, page: Box::new(page) });
    }

    /// Handles a page that the viewer reads. Now and then its connection ends with that.
    pub(crate) fn viewer_sees(&mut self, caller: u64, page: &FeedPage) {
        let present = |viewer: &&mut Viewer| viewer.connected && viewer.caller == caller;
        let Some(viewer) = self.viewer.as_mut().filter(present) else { return };
        viewer.awaits = false;
        viewer.missed += u64::from(page.missed);
        viewer.from = Some(page.next);
        viewer.expects = Some(self.judge.saw(viewer.expects, page));
        if viewer.seed.chance(10_000) {
            viewer.connected = false;
            let controller = viewer.controller;
            let (low, high) = PAUSES[usize::from(viewer.seed.chance(100_000))];
            let again = viewer.seed.span(low, high);
            self.after(again, Happening::ViewerCalls);
            if self.controllers[controller].serves() {
                self.tell_controller(controller, Input::Hangup { caller: CallerId(caller), away: false });
            }
        } else {
            self.feed_viewer();
        }
    }

    /// Lets the controller send the next page, if the viewer has read the last one.
    pub(crate) fn feed_viewer(&mut self) {
        let Some(viewer) = self.viewer.as_ref().filter(|viewer| viewer.connected && !viewer.awaits) else { return };
        let (controller, caller) = (viewer.controller, CallerId(viewer.caller));
        if self.controllers[controller].has_news(caller) {
            self.tell_controller(controller, Input::Feed);
        }
    }

    /// Ends the viewer's connection to a controller, which has ended or can't be reached.
    pub(crate) fn viewer_loses_controller(&mut self, of: usize) {
        let Some(viewer) = self.viewer.as_mut().filter(|viewer| viewer.connected && viewer.controller == of) else {
            return;
        };
        viewer.connected = false;
        let again = viewer.seed.span(Span(1), Span::from_millis(500));
        let caller = CallerId(viewer.caller);
        self.after(again, Happening::ViewerCalls);
        if self.controllers[of].serves() {
            self.tell_controller(of, Input::Hangup { caller, away: false });
        }
    }

    /// Checks at the end that the viewer has seen every event, unless it is away or has just come back.
    pub(crate) fn check_viewer(&mut self) {
        let reads = |viewer: &&Viewer| viewer.connected && self.now.since(viewer.since) > CATCHES_UP;
        let Some(viewer) = self.viewer.as_ref().filter(reads) else { return };
        if let Some(expects) = viewer.expects {
            self.judge.saw_all(expects);
        }
    }
}
