//! The event feed: the latest events, and the clients that follow them.
//!
//! Events are kept only while there are followers, for some minutes after the last one has left, and for some seconds
//! after a start, so that followers come back in time. Otherwise an event costs one comparison.
//!
//! An event is sent with a later record than its own. So no event leaves before it is durable, and "all events before
//! record 118" is a position that means the same to the next run of the controller.

use std::collections::VecDeque;
use std::sync::Arc;

use squall_model::id::JobId;
use squall_model::limits::{FEED_BYTES_MAX, FEED_EVENTS_MAX, FEED_PAGE_BYTES_MAX, FEED_PAGE_MAX};
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::client::JobSelection;
use squall_model::wire::feed::{FeedEvent, FeedKind, FeedPage, Position};

use crate::control::index::privacy::Sight;
use crate::control::port::CallerId;

/// Time for which events are kept after the last follower has left.
const KEPT: Span = Span::from_secs(300);
/// Time for which events are kept after a start of the controller.
const KEPT_AT_START: Span = Span::from_secs(5);
/// Time after which a follower is sent its position although no event matched.
const POSITION_EVERY: Span = Span::from_secs(5);
/// Estimated size of an event without its texts, bytes.
const EVENT_BYTES: usize = 320;
/// Most events back to which the end of a job is looked for an event that announced it.
const BACK: usize = 64;
/// Limit on the events examined for one page, matching or not, as a multiple of the events that the page may have.
const LOOKS: usize = 16;

/// The latest events, and those who follow them.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    /// Until when events are kept without a follower. None: no events are kept.
    kept_until: Option<Time>,
    /// The events that are kept, oldest first.
    events: VecDeque<StoredEvent>,
    /// Estimated size of `events`.
    bytes: usize,
    /// All events after this position are in `events`.
    floor: Position,
    /// Position of the newest event, or the position before the record that is being decided.
    last: Position,
    /// The followers; the one served last is at the end.
    followers: VecDeque<Follower>,
    /// When a follower has to be sent its position. None: all know theirs.
    due: Option<Time>,
    /// The texts of the job of the last event. Events often have the same, and share them.
    texts: [Arc<str>; 5],
}

/// An event that is kept, and its nodes. Its host list is made when it is sent.
#[derive(Debug)]
struct StoredEvent {
    event: FeedEvent,
    nodes: NodeSet,
    /// Estimated size.
    bytes: usize,
    /// The job of which it announces the end. None: of none.
    announces: Option<JobId>,
    /// Whether it is not sent, as a later event of the record says more.
    left_out: bool,
}

impl StoredEvent {
    /// Returns the event as it is sent.
    fn whole(&self, hosts: impl Fn(&NodeSet) -> String) -> FeedEvent {
        FeedEvent { nodes: hosts(&self.nodes), ..self.event.clone() }
    }
}

/// A client that follows events.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) caller: CallerId,
    pub(crate) wanted: Wanted,
    /// Position up to which events were sent or do not match.
    at: Position,
    /// Position that the client was sent last.
    told: Position,
    /// When the client was sent a position.
    told_at: Time,
    /// Whether the client is to be told that it missed events.
    missed: bool,
}

/// Events that a follower wants.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// What the follower may see.
    pub(crate) sight: Sight,
    pub(crate) jobs: JobSelection,
    /// Nodes of the events. None: any.
    pub(crate) nodes: Option<NodeSet>,
    /// Kinds of the events. Empty: any.
    pub(crate) kinds: Vec<FeedKind>,
}

impl Feed {
    /// Returns whether events are kept.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.kept_until.is_some()
    }

    /// Begins to keep events for a short time, as the controller starts.
    pub(crate) fn started(&mut self, now: Time) {
        self.turn_on(now + KEPT_AT_START, true);
    }

    /// Stops keeping events if there was no follower for long. Returns whether events are still kept.
    pub(crate) fn keeps(&mut self, now: Time) -> bool {
        if self.followers.is_empty() && self.kept_until.is_some_and(|until| until < now) {
            self.kept_until = None;
            self.events = VecDeque::new();
            self.bytes = 0;
        }
        self.is_on()
    }

    /// Records the number of the journal record that is decided from now on. The events before it can be sent.
    pub(crate) fn begin_record(&mut self, record: u64) {
        self.last = self.last.max(Position { record, index: 0 });
    }

    /// Returns texts of a job as they are kept: those that the last job had are shared.
    pub(crate) fn shared(&mut self, texts: [&str; 5]) -> [Arc<str>; 5] {
        for (known, text) in self.texts.iter_mut().zip(texts) {
            if **known != *text {
                *known = text.into();
            }
        }
        self.texts.clone()
    }

    /// Adds an event to the record that is being decided. If it ends a job, an event of the record that announced the
    /// end is left out.
    pub(crate) fn push(&mut self, mut event: FeedEvent, nodes: NodeSet) {
        let job = |kind: &[FeedKind]| event.job.as_ref().filter(|_| kind.contains(&event.kind)).map(|job| job.id);
        let announces = job(&[FeedKind::JobEnding]);
        if let Some(job) = job(&[FeedKind::JobEnded, FeedKind::JobRequeued]) {
            // Usually it is the last one.
            let of_record = self.last.index as usize;
            let mut recent = self.events.iter_mut().rev().take(of_record.min(BACK));
            if let Some(announced) = recent.find(|kept| kept.announces == Some(job) && !kept.left_out) {
                announced.left_out = true;
            }
        }
        self.last.index += 1;
        event.at = self.last;
        let bytes = bytes(&event);
        self.bytes += bytes;
        self.events.push_back(StoredEvent { event, nodes, bytes, announces, left_out: false });
        while (self.events.len() > FEED_EVENTS_MAX || self.bytes > FEED_BYTES_MAX)
            && let Some(oldest) = self.events.pop_front()
        {
            self.bytes -= oldest.bytes;
            self.floor = oldest.event.at;
        }
    }

    /// Adds a follower from a position on. None: from the record that is being decided, of which `fresh` says that it
    /// has no event yet. Returns its first page.
    pub(crate) fn follow(
        &mut self,
        now: Time,
        (caller, wanted): (CallerId, Wanted),
        from: Option<Position>,
        fresh: bool,
    ) -> FeedPage {
        self.leave(now, caller);
        self.turn_on(now, fresh);
        let present = Position { record: self.last.record, index: 0 }.max(self.floor);
        // A later position is one of another journal.
        let known = from.filter(|from| (self.floor..=self.last).contains(from));
        let missed = from.is_some() && known.is_none();
        let at = known.unwrap_or(if from.is_some_and(|from| from < self.floor) { self.floor } else { present });
        self.followers.push_back(Follower { caller, wanted, at, told: at, told_at: now, missed: false });
        FeedPage { events: Vec::new(), next: at, missed }
    }

    /// Removes the follower with this connection, if there is one.
    pub(crate) fn leave(&mut self, now: Time, caller: CallerId) {
        let before = self.followers.len();
        self.followers.retain(|follower| follower.caller != caller);
        if self.followers.len() < before && self.followers.is_empty() {
            self.kept_until = Some(now + KEPT);
        }
    }

    /// Returns the number of followers.
    pub(crate) fn followers(&self) -> usize {
        self.followers.len()
    }

    /// Returns whether there is a record that some follower has not got yet.
    pub(crate) fn has_news(&self) -> bool {
        self.followers.iter().any(|follower| follower.at.record < self.last.record)
    }

    /// Moves the first follower with news and a ready client to the front, and those before it to the end. Returns
    /// false if there is none.
    pub(crate) fn turn(&mut self, ready: impl Fn(CallerId) -> bool) -> bool {
        let record = self.last.record;
        let next = |follower: &Follower| follower.at.record < record && ready(follower.caller);
        let first = self.followers.iter().position(next);
        self.followers.rotate_left(first.unwrap_or_default());
        first.is_some()
    }

    /// Makes the next page of the first follower with news, which then goes behind the others. `takes` returns whether
    /// an event is wanted, `hosts` makes its host list. None: no event is.
    pub(crate) fn page(
        &mut self,
        now: Time,
        takes: impl Fn(&Wanted, &FeedEvent, &NodeSet) -> bool,
        hosts: impl Fn(&NodeSet) -> String,
    ) -> Option<(CallerId, FeedPage)> {
        let first = self.followers.iter().position(|follower| follower.at.record < self.last.record)?;
        let mut follower = self.followers.remove(first)?;
        if follower.at < self.floor {
            (follower.at, follower.missed) = (self.floor, true);
        }
        let (mut events, mut bytes) = (Vec::new(), 0);
        let present = Position { record: self.last.record, index: 0 };
        let begin = self.events.partition_point(|kept| kept.event.at <= follower.at);
        let mut rest = self.events.range(begin..).take_while(|kept| kept.event.at < present);
        let mut looks = 0..FEED_PAGE_MAX * LOOKS;
        loop {
            let Some(kept) = rest.next() else {
                follower.at = present;
                break;
            };
            if looks.next().is_none() || events.len() >= FEED_PAGE_MAX || bytes > FEED_PAGE_BYTES_MAX {
                break;
            }
            follower.at = kept.event.at;
            if !kept.left_out && takes(&follower.wanted, &kept.event, &kept.nodes) {
                let event = kept.whole(&hosts);
                bytes += kept.bytes + event.nodes.len();
                events.push(Arc::new(event));
            }
        }
        let caller = follower.caller;
        let page = if events.is_empty() && !follower.missed {
            let due = follower.told_at + POSITION_EVERY;
            self.due = Some(self.due.map_or(due, |first| first.min(due)));
            None
        } else {
            Some((caller, follower.tell(now, events)))
        };
        self.followers.push_back(follower);
        page
    }

    /// Returns when [`Feed::positions`] must be called; None: it need not be.
    pub(crate) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Returns an empty page for each follower that has long not been sent its position, because no event matched. So
    /// a follower that comes back after a restart knows that it has missed nothing.
    pub(crate) fn positions(&mut self, now: Time) -> Vec<(CallerId, FeedPage)> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.due = None;
        let mut pages = Vec::new();
        for follower in self.followers.iter_mut().filter(|follower| follower.told < follower.at) {
            let due = follower.told_at + POSITION_EVERY;
            if due <= now {
                pages.push((follower.caller, follower.tell(now, Vec::new())));
            } else {
                self.due = Some(self.due.map_or(due, |first| first.min(due)));
            }
        }
        pages
    }

    fn turn_on(&mut self, until: Time, fresh: bool) {
        if !self.is_on() {
            // Whatever the record has so far was not kept.
            self.last.index += u32::from(!fresh);
            self.floor = self.last;
        }
        self.kept_until = self.kept_until.max(Some(until));
    }
}

impl Follower {
    fn tell(&mut self, now: Time, events: Vec<Arc<FeedEvent>>) -> FeedPage {
        (self.told, self.told_at) = (self.at, now);
        FeedPage { events, next: self.at, missed: std::mem::take(&mut self.missed) }
    }
}

/// Returns the estimated size of an event without its host list.
fn bytes(event: &FeedEvent) -> usize {
    let job = event.job.as_ref().map_or(0, |job| {
        let texts = [&job.user, &job.name, &job.partition, &job.account, &job.qos];
        texts.iter().map(|text| text.len()).sum::<usize>()
    });
    EVENT_BYTES + job + event.name.len() + event.reason.as_ref().map_or(0, String::len)
}

#[cfg(test)]
mod tests {
    use super::{CallerId, Feed, FeedEvent, FeedKind, FeedPage, JobId, NodeSet, Position, Sight, Time, Wanted};
    use squall_model::id::NodeId;
    use squall_model::job::JobState;
    use squall_model::limits::{FEED_EVENTS_MAX, FEED_PAGE_MAX};
    use squall_model::wire::client::JobSelection;
    use squall_model::wire::feed::FeedJob;

    const ANN: CallerId = CallerId(1);

    fn at(record: u64, index: u32) -> Position {
        Position { record, index }
    }

    fn follow(feed: &mut Feed, caller: CallerId, from: Option<Position>) -> FeedPage {
        let wanted =
            Wanted { sight: Sight::everything(), jobs: JobSelection::default(), nodes: None, kinds: Vec::new() };
        feed.follow(Time(0), (caller, wanted), from, true)
    }

    fn event(kind: FeedKind, job: Option<u32>) -> FeedEvent {
        let text = || "".into();
        let job = job.map(|id| FeedJob {
            id: JobId(id),
            task: None,
            tasks: None,
            uid: 0,
            user: text(),
            name: text(),
            partition: text(),
            account: text(),
            qos: text(),
            state: JobState::Running,
            exit: None,
            mail: None,
        });
        let (at, nodes) = (Position::default(), String::new());
        FeedEvent { at, time: Time(0), kind, job, step: None, nodes, name: String::new(), reason: None, by: None }
    }

    fn push(feed: &mut Feed, events: usize) {
        for _ in 0..events {
            feed.push(event(FeedKind::NodeUp, None), NodeSet::new());
        }
    }

    fn page(feed: &mut Feed) -> FeedPage {
        feed.page(Time(0), |_, _, _| true, |_| String::new()).expect("there is a page").1
    }

    /// A feed of a controller that has started at record 5.
    fn started() -> Feed {
        let mut feed = Feed::default();
        feed.begin_record(5);
        feed.started(Time(0));
        feed
    }

    #[test]
    fn a_follower_resumes_where_it_was_or_is_told() {
        let mut feed = started();
        push(&mut feed, 2);
        // Nothing was between the two runs of the controller.
        assert!(!follow(&mut feed, ANN, Some(at(5, 0))).missed);
        feed.begin_record(6);
        let first = page(&mut feed);
        assert_eq!((first.events.len(), first.next, first.missed), (2, at(6, 0), false));
        // It has got one of two events of a record.
        assert_eq!(follow(&mut feed, ANN, Some(at(5, 1))).next, at(5, 1));
        assert_eq!(page(&mut feed).events[0].at, at(5, 2));
        // Something was, or it was another journal.
        let early = follow(&mut feed, ANN, Some(at(4, 0)));
        assert_eq!((early.missed, early.next), (true, at(5, 0)));
        let late = follow(&mut feed, ANN, Some(at(9, 0)));
        assert_eq!((late.missed, late.next), (true, at(6, 0)));
        assert_eq!(feed.followers(), 1);
    }

    #[test]
    fn a_slow_follower_misses_the_oldest_and_is_told_once() {
        let mut feed = started();
        follow(&mut feed, ANN, None);
        push(&mut feed, FEED_EVENTS_MAX + 7);
        feed.begin_record(6);
        let first = page(&mut feed);
        assert_eq!((first.missed, first.events.len(), first.events[0].at), (true, FEED_PAGE_MAX, at(5, 8)));
        let (mut events, mut last) = (first.events.len(), first.next);
        while feed.has_news() {
            let next = page(&mut feed);
            assert!(!next.missed && next.events[0].at == at(5, last.index + 1));
            (events, last) = (events + next.events.len(), next.next);
        }
        assert_eq!((events, last), (FEED_EVENTS_MAX, at(6, 0)));
    }

    #[test]
    fn an_end_is_not_announced_in_the_same_record() {
        use FeedKind::{JobEnded, JobEnding};
        let mut feed = started();
        follow(&mut feed, ANN, None);
        for (kind, job) in [(JobEnding, 1), (JobEnding, 2), (JobEnding, 3), (JobEnded, 1), (JobEnded, 2)] {
            feed.push(event(kind, Some(job)), NodeSet::one(NodeId(job)));
        }
        feed.begin_record(6);
        feed.push(event(JobEnded, Some(3)), NodeSet::new());
        feed.begin_record(7);
        let (_, page) = feed.page(Time(0), |_, _, _| true, |nodes| nodes.len().to_string()).expect("there is a page");
        let seen = page.events.iter().map(|event| (event.kind, event.job.as_ref().map_or(0, |job| job.id.0)));
        assert_eq!(seen.collect::<Vec<_>>(), [(JobEnding, 3), (JobEnded, 1), (JobEnded, 2), (JobEnded, 3)]);
        assert_eq!((&*page.events[1].nodes, &*page.events[3].nodes), ("1", "0"));
    }

    #[test]
    fn followers_take_turns_and_those_that_do_not_read_are_left_out() {
        let mut feed = started();
        let others = [ANN, CallerId(2), CallerId(3)];
        for caller in others {
            follow(&mut feed, caller, None);
        }
        push(&mut feed, 1);
        feed.begin_record(6);
        let mut served = Vec::new();
        while feed.turn(|caller| caller != CallerId(2)) {
            served.extend(feed.page(Time(0), |_, _, _| true, |_| String::new()).map(|(caller, _)| caller));
        }
        assert_eq!(served, [ANN, CallerId(3)]);
        assert!(feed.has_news());
        feed.leave(Time(0), CallerId(2));
        assert!(!feed.has_news());
    }
}
