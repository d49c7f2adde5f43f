//! Tests of one relay, with its parent and its children played.

use std::collections::BTreeMap;

use squall_model::id::{Attempt, Epoch, JobId, NodeId, StepKey, StepNo};
use squall_model::job::JobAttempt;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{
    Ask, Comparison, Composite, DownFrame, Downward, Health, LaunchFailure, Letter, Parcel, Path, Put, Query, Tally,
    Test, UpFrame, Upward, Variable, Window,
};
use squall_model::wire::peer::PeerMessage;
use squall_model::wire::sealed::Sealed;

use crate::fabric::{Delivery, Dial, NetInput, NetOut, Relay};

/// A relay under test, and its output so far.
struct One {
    relay: Relay,
    now: Time,
    parent_hop: u64,
    hops: BTreeMap<u32, u64>,
    up: Vec<Upward>,
    down: BTreeMap<u32, Vec<Downward>>,
    dials: Vec<Dial>,
    drops: Vec<u32>,
    hang_ups: u32,
    local: Vec<Delivery>,
}

impl One {
    /// Makes a relay that is attached to its parent and has a path to the controller.
    fn attached(window: Window) -> Self {
        let mut one = Self::started(&["p", "g"]);
        one.attach(&["g"], window);
        one.dials.clear();
        one
    }

    /// Makes a relay that was away from its own parent and is about to return to it.
    fn returning() -> Self {
        let mut one = Self::attached(window(100, 1000));
        one.input(NetInput::ParentClosed);
        one.attach(&[], window(100, 1000));
        one.pass(Span::from_secs(20));
        one
    }

    /// Checks that the relay, away from its own parent since now, tries to return to it in 40 s, and not before.
    fn returns_after_40_s(&mut self) {
        self.dials.clear();
        for seconds in (5..=40).step_by(5) {
            self.beats();
            self.pass(Span::from_secs(5));
            assert_eq!(self.dials.len(), usize::from(seconds == 40), "after {seconds} s");
        }
    }

    fn started(home: &[&str]) -> Self {
        let mut one = Self {
            relay: Relay::new(home.iter().map(|&name| name.into()).collect()),
            now: Time::from_secs(1000),
            parent_hop: 0,
            hops: BTreeMap::new(),
            up: Vec::new(),
            down: BTreeMap::new(),
            dials: Vec::new(),
            drops: Vec::new(),
            hang_ups: 0,
            local: Vec::new(),
        };
        one.settle(NetOut::default());
        one
    }

    fn attach(&mut self, above: &[&str], window: Window) {
        self.parent_hop = 0;
        self.input(NetInput::ParentOpened);
        let above = above.iter().map(|&name| name.into()).collect();
        self.parent_says(vec![Downward::Path(Box::new(Path { above, window, heartbeat_s: 10, beat: None }))]);
    }

    fn input(&mut self, input: NetInput) {
        let mut out = NetOut::default();
        self.relay.take(self.now, input, &mut self.local, &mut out);
        self.settle(out);
    }

    fn settle(&mut self, mut out: NetOut) {
        self.relay.settle(self.now, (|_: &_| 0, |_: &_| None, Health::default()), &mut self.local, &mut out);
        self.up.extend(out.up.into_iter().flat_map(|frame| frame.says));
        for (link, frame) in out.down {
            self.down.entry(link).or_default().extend(frame.says);
        }
        self.dials.extend(out.dial);
        self.drops.extend(out.drop);
        self.hang_ups += u32::from(out.hang_up);
    }

    fn parent_says(&mut self, says: Vec<Downward>) {
        let hop = self.parent_hop + 1;
        self.parent_hop += says.len() as u64;
        self.input(NetInput::FromParent(Box::new(DownFrame { hop, says })));
    }

    fn taken(&mut self, batch: u64) {
        self.parent_says(vec![Downward::Taken { batch }]);
    }

    fn open(&mut self, link: u32) {
        self.hops.insert(link, 0);
        self.input(NetInput::ChildOpened { link });
    }

    fn child_says(&mut self, link: u32, says: Vec<Upward>) {
        let last = self.hops.get_mut(&link).unwrap();
        let hop = *last + 1;
        *last += says.len() as u64;
        self.input(NetInput::FromChild { link, frame: Box::new(UpFrame { hop, says }) });
    }

    fn composite(&mut self, link: u32, batch: u64, composite: Composite) {
        self.child_says(link, vec![Upward::Composite { batch, composite: Box::new(composite) }]);
    }

    /// Lets the controller tell the node behind the child's connection `link` its id, in a put with the number
    /// `session`.
    fn welcome(&mut self, link: u32, node: NodeId, session: u64) {
        self.parent_says(vec![Downward::Reply { route: vec![link], node: Some(node), put: put(session, &[]) }]);
    }

    /// Returns the composites (messages of merged reports) sent since the last call, with their numbers.
    fn composites(&mut self) -> Vec<(u64, Composite)> {
        let said = std::mem::take(&mut self.up).into_iter();
        let composites = said.filter_map(|say| match say {
            Upward::Composite { batch, composite } => Some((batch, *composite)),
            Upward::Tally { .. } | Upward::Chunk(_) | Upward::Letter(_) => None,
        });
        composites.collect()
    }

    /// Returns the number of reports in each composite sent since the last call.
    fn sizes(&mut self) -> Vec<(u64, u64)> {
        self.composites().into_iter().map(|(batch, composite)| (batch, composite.reports)).collect()
    }

    fn pass(&mut self, span: Span) {
        let end = self.now + span;
        while let Some(due) = self.relay.deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.settle(NetOut::default());
            assert!(self.relay.deadline().is_none_or(|next| next > self.now), "it would spin: {:?}", self.relay);
        }
        self.now = end;
    }

    /// Sends heartbeats of the parent and the children.
    fn beats(&mut self) {
        self.parent_says(Vec::new());
        for link in self.hops.keys().copied().collect::<Vec<_>>() {
            self.child_says(link, Vec::new());
        }
    }

    fn told(&mut self, link: u32) -> Vec<Downward> {
        self.down.remove(&link).unwrap_or_default()
    }
}

fn put(seq: u64, to: &[u32]) -> Put {
    let to = to.iter().map(|&node| NodeId(node)).collect();
    Put { epoch: Epoch(1), seq, to, asks: Vec::new(), parcel: Sealed::new(Parcel::default()), proof: None }
}

fn gone(job: u32) -> Composite {
    let mut composite = Composite { reports: 1, ..Composite::default() };
    composite.add_gone(JobAttempt { job: JobId(job), attempt: Attempt(1) }, &NodeSet::one(NodeId(job)));
    composite
}

fn failed() -> Composite {
    let key = StepKey { job: JobId(1), attempt: Attempt(1), step: StepNo::BATCH };
    let failure = LaunchFailure { key, error: "no".into(), node_fault: true };
    Composite { failed: vec![(NodeId(1), failure)], reports: 1, ..Composite::default() }
}

fn window(messages: u32, time_ms: u32) -> Window {
    Window { messages, time_ms }
}

#[test]
fn an_idle_relay_waits_for_nothing_and_a_busy_one_gathers() {
    let mut one = One::attached(window(100, 1000));
    one.open(1);
    one.composite(1, 1, gone(1));
    assert_eq!(one.sizes(), [(1, 1)], "at once");
    for batch in 2..=6 {
        one.composite(1, batch, gone(batch as u32));
    }
    assert_eq!(one.sizes(), [], "one is under way");
    one.taken(1);
    assert_eq!(one.sizes(), [(2, 5)], "the rest in one");
    one.taken(2);
    one.composite(1, 7, gone(7));
    assert_eq!(one.sizes(), [(3, 1)], "idle again");
}

#[test]
fn a_window_of_one_message_gathers_none() {
    let mut one = One::attached(window(1, 1000));
    one.open(1);
    for batch in 1..=20 {
        one.composite(1, batch, gone(batch as u32));
    }
    assert_eq!(one.sizes(), (1..=20).map(|batch| (batch, 1)).collect::<Vec<_>>());
}

#[test]
fn a_full_window_does_not_wait_but_for_credit() {
    let mut one = One::attached(window(3, 1_000_000));
    one.open(1);
    for batch in 1..=40 {
        one.composite(1, batch, gone(batch as u32));
    }
    let expected: Vec<(u64, u64)> = [(1, 1)].into_iter().chain((2..=8).map(|batch| (batch, 3))).collect();
    assert_eq!(one.sizes(), expected, "eight under way, the rest waits");
    one.taken(8);
    assert_eq!(one.sizes(), [(9, 18)], "and is one");
}

#[test]
fn nothing_waits_longer_than_the_window_is_open() {
    let mut one = One::attached(window(100, 50));
    one.open(1);
    one.composite(1, 1, gone(1));
    one.pass(Span::from_millis(7));
    one.composite(1, 2, gone(2));
    one.sizes();
    one.pass(Span::from_millis(49));
    assert_eq!(one.sizes(), []);
    one.pass(Span::from_millis(1));
    assert_eq!(one.sizes(), [(2, 1)]);
}

#[test]
fn what_is_urgent_waits_for_nothing() {
    let mut one = One::attached(window(100, 1000));
    one.open(1);
    one.composite(1, 1, gone(1));
    one.composite(1, 2, gone(2));
    assert_eq!(one.sizes(), [(1, 1)]);
    one.composite(1, 3, failed());
    assert_eq!(one.sizes(), [(2, 2)], "and takes along what waits");
}

#[test]
fn what_is_owed_for_one_put_comes_as_one_message_and_for_a_slow_node_only_so_late() {
    let mut one = One::attached(window(100, 1000));
    (1..=3).for_each(|link| one.open(link));
    for node in 1..=3 {
        one.welcome(node, NodeId(node), u64::from(node));
    }
    let job = |job| JobAttempt { job: JobId(job), attempt: Attempt(1) };
    let gone = |id, node| {
        let mut composite = Composite { reports: 1, ..Composite::default() };
        composite.add_gone(job(id), &NodeSet::one(NodeId(node)));
        composite
    };
    let end = |one: &mut One, seq, id| {
        let put = Put { asks: vec![Ask::Job(job(id))], ..put(seq, &[1, 2, 3]) };
        one.parent_says(vec![Downward::Put(put)]);
    };
    end(&mut one, 10, 7);
    one.composite(1, 1, gone(7, 1));
    one.composite(3, 1, gone(7, 3));
    assert_eq!(one.sizes(), [], "nobody can do anything with a part");
    one.composite(2, 1, gone(7, 2));
    assert_eq!(one.sizes(), [(1, 3)]);
    one.taken(1);
    // A slow node delays the reports of others for as long as the window says; a lost one does not delay them at all.
    end(&mut one, 11, 8);
    one.composite(1, 2, gone(8, 1));
    one.pass(Span::from_millis(999));
    assert_eq!(one.sizes(), []);
    one.pass(Span::from_millis(1));
    assert_eq!(one.sizes(), [(2, 1)]);
    one.taken(2);
    one.composite(2, 2, gone(8, 2));
    assert_eq!(one.sizes(), []);
    one.input(NetInput::ChildClosed { link: 3 });
    assert_eq!(one.sizes(), [(3, 2)], "a node's end and a node's loss");
    one.taken(3);
    end(&mut one, 12, 9);
    one.composite(1, 3, gone(9, 1));
    one.composite(2, 3, gone(9, 2));
    assert_eq!(one.sizes(), [(4, 2)], "the lost one owes nothing");
}

#[test]
fn a_confirmation_comes_down_to_those_whose_reports_were_in_it() {
    let mut one = One::attached(window(100, 1000));
    one.open(1);
    one.open(2);
    one.composite(1, 1, gone(1));
    one.composite(1, 2, gone(2));
    one.composite(2, 1, gone(3));
    one.told(1);
    one.told(2);
    one.taken(1);
    assert_eq!((one.told(1), one.told(2)), (vec![Downward::Taken { batch: 1 }], vec![]));
    one.taken(2);
    assert_eq!((one.told(1), one.told(2)), (vec![Downward::Taken { batch: 2 }], vec![Downward::Taken { batch: 1 }]));
    one.taken(2);
    assert_eq!((one.told(1), one.told(2)), (vec![], vec![]));
}

#[test]
fn nothing_is_confirmed_that_went_on_a_way_that_is_no_more() {
    let mut one = One::attached(window(100, 1000));
    one.open(1);
    one.composite(1, 1, gone(1));
    one.input(NetInput::ParentClosed);
    one.attach(&[], window(100, 1000));
    one.told(1);
    one.sizes();
    one.taken(1);
    assert_eq!(one.told(1), []);
    // The node that reported it registers and reports it again.
    one.composite(1, 2, gone(1));
    assert_eq!(one.sizes(), [(1, 1)]);
    one.taken(1);
    assert_eq!(one.told(1), [Downward::Taken { batch: 2 }]);
}

#[test]
fn who_knocks_is_answered_on_the_way_it_came() {
    let mut one = One::attached(window(100, 1000));
    one.open(7);
    let knocks = vec![(vec![3], "n9".to_owned())];
    one.composite(7, 1, Composite { knocks, reports: 1, ..Composite::default() });
    let (_, composite) = one.composites().remove(0);
    assert_eq!(composite.knocks, [(vec![3, 7], "n9".to_owned())]);
    one.told(7);
    one.parent_says(vec![Downward::Reply { route: vec![3, 7], node: Some(NodeId(9)), put: put(5, &[]) }]);
    assert_eq!(one.told(7), [Downward::Reply { route: vec![3], node: Some(NodeId(9)), put: put(5, &[]) }]);
    assert_eq!(one.relay.below(), 1);
    // From now on the puts for that node go by the new path, and the new path gets no puts for other nodes.
    one.parent_says(vec![Downward::Put(put(6, &[9])), Downward::Put(put(7, &[8])), Downward::Put(put(8, &[8, 9]))]);
    assert_eq!(one.told(7), [Downward::Put(put(6, &[9])), Downward::Put(put(8, &[9]))]);
}

#[test]
fn knocks_of_a_child_that_is_gone_are_not_passed_on() {
    let mut one = One::attached(window(100, 1000));
    one.open(1);
    one.open(7);
    one.composite(1, 1, gone(1));
    let knocks = vec![(vec![3], "n9".to_owned())];
    one.composite(7, 1, Composite { knocks, reports: 1, ..Composite::default() });
    one.input(NetInput::ChildClosed { link: 7 });
    one.sizes();
    one.taken(1);
    assert!(one.composites().iter().all(|(_, composite)| composite.knocks.is_empty()));
}

#[test]
fn who_has_come_back_on_another_way_is_not_lost() {
    let mut one = One::attached(window(100, 1000));
    one.open(1);
    one.open(2);
    one.welcome(1, NodeId(5), 3);
    one.welcome(1, NodeId(6), 4);
    one.welcome(2, NodeId(5), 7);
    let lost = BTreeMap::from([(NodeId(5), 3)]);
    one.composite(1, 1, Composite { lost: lost.clone(), reports: 1, ..Composite::default() });
    assert!(one.composites().iter().all(|(_, composite)| composite.lost.is_empty()));
    // An old report on the path that it has now does not lose it either.
    one.composite(2, 1, Composite { lost, reports: 1, ..Composite::default() });
    one.taken(1);
    assert!(one.composites().iter().all(|(_, composite)| composite.lost.is_empty()));
    one.input(NetInput::ChildClosed { link: 1 });
    assert_eq!(one.composites().remove(0).1.lost, BTreeMap::from([(NodeId(6), 4)]));
    one.told(2);
    one.parent_says(vec![Downward::Put(put(9, &[5]))]);
    assert_eq!(one.told(2), [Downward::Put(put(9, &[5]))]);
    one.input(NetInput::ChildClosed { link: 2 });
    assert_eq!(one.composites().remove(0).1.lost, BTreeMap::from([(NodeId(5), 7)]));
}

#[test]
fn the_loss_of_a_session_of_an_earlier_epoch_ends_none_of_the_present_one() {
    let mut one = One::attached(window(100, 1000));
    one.open(1);
    one.open(2);
    one.welcome(1, NodeId(5), 19);
    // The node has rebooted: it registers over a new connection with a new controller, and its old one closes after that.
    let offer = |number, node| {
        let put = Put { epoch: Epoch(2), ..put(number, &[]) };
        vec![Downward::Reply { route: vec![2], node, put }]
    };
    one.parent_says(offer(6, None));
    one.input(NetInput::ChildClosed { link: 1 });
    let lost =
        |one: &mut One| one.composites().into_iter().flat_map(|(_, composite)| composite.lost).collect::<Vec<_>>();
    assert_eq!(lost(&mut one), [(NodeId(5), 0)]);
    one.taken(1);
    one.parent_says(offer(7, Some(NodeId(5))));
    one.input(NetInput::ChildClosed { link: 2 });
    assert_eq!(lost(&mut one), [(NodeId(5), 7)]);
}

#[test]
fn a_silent_child_is_given_up_and_a_silent_parent_too() {
    let mut one = One::attached(window(100, 1000));
    one.open(1);
    one.open(2);
    one.welcome(1, NodeId(5), 3);
    for _ in 0..2 {
        one.pass(Span::from_secs(10));
        one.parent_says(Vec::new());
        one.child_says(2, Vec::new());
    }
    assert_eq!(one.drops, []);
    one.pass(Span::from_secs(10));
    assert_eq!(one.drops, [1]);
    assert_eq!(one.composites().remove(0).1.lost, BTreeMap::from([(NodeId(5), 3)]));
    one.hops.remove(&1);
    assert!(!one.told(2).iter().any(|say| !matches!(say, Downward::Path(_))));
    assert_eq!(one.hang_ups, 0);
    one.pass(Span::from_secs(20));
    assert_eq!((one.hang_ups, one.relay.has_path()), (1, false));
    assert_eq!(one.dials, [Dial::Node("g".into())], "the next one above");
}

#[test]
fn living_neighbours_are_kept_and_hear_that_this_one_lives() {
    let mut one = One::attached(window(100, 1000));
    one.open(1);
    for _ in 0..20 {
        one.pass(Span::from_secs(10));
        one.beats();
    }
    assert_eq!((one.hang_ups, &one.drops[..]), (0, &[][..]));
}

#[test]
fn a_gap_ends_the_connection_and_a_repetition_is_nothing() {
    let mut one = One::attached(window(100, 1000));
    one.open(1);
    one.composite(1, 1, gone(1));
    let says = vec![Upward::Composite { batch: 1, composite: Box::new(gone(1)) }];
    one.input(NetInput::FromChild { link: 1, frame: Box::new(UpFrame { hop: 1, says: says.clone() }) });
    assert_eq!((one.sizes().len(), &one.drops[..]), (1, &[][..]));
    one.input(NetInput::FromChild { link: 1, frame: Box::new(UpFrame { hop: 3, says }) });
    assert_eq!(one.drops, [1]);
    one.input(NetInput::FromParent(Box::new(DownFrame { hop: one.parent_hop, says: Vec::new() })));
    assert_eq!(one.hang_ups, 0);
    one.input(NetInput::FromParent(Box::new(DownFrame { hop: one.parent_hop + 2, says: Vec::new() })));
    assert_eq!(one.hang_ups, 1);
}

#[test]
fn when_its_parent_dies_it_climbs() {
    let mut one = One::attached(window(100, 1000));
    one.input(NetInput::ParentClosed);
    one.input(NetInput::DialFailed);
    one.input(NetInput::DialFailed);
    let ladder = [Dial::Node("g".into()), Dial::Controller, Dial::Node("p".into())];
    assert_eq!(one.dials, ladder, "grandparent, controller, and only then whoever died");
    one.input(NetInput::DialFailed);
    assert_eq!(one.dials.len(), 3, "after all were tried there is a pause");
    one.pass(Span::from_millis(10));
    assert_eq!(one.dials[3], Dial::Node("p".into()));
}

#[test]
fn a_node_that_starts_gives_its_parent_time() {
    let mut one = One::started(&["p", "g"]);
    for _ in 0..100 {
        if one.now < Time::from_secs(1002) {
            assert!(one.dials.iter().all(|dial| *dial == Dial::Node("p".into())), "{:?}", one.dials);
        }
        one.input(NetInput::DialFailed);
        if let Some(next) = one.relay.deadline() {
            one.pass(Span(next.0 - one.now.0));
        }
    }
    for above in [Dial::Node("g".into()), Dial::Controller] {
        assert!(one.dials.contains(&above), "{:?}", one.dials);
    }
}

#[test]
fn away_from_home_it_tries_to_go_back() {
    let mut one = One::attached(window(100, 1000));
    one.input(NetInput::ParentClosed);
    one.attach(&[], window(100, 1000));
    one.dials.clear();
    one.pass(Span::from_secs(19));
    one.beats();
    assert_eq!(one.dials, []);
    one.pass(Span::from_secs(1));
    assert_eq!(one.dials, [Dial::Node("p".into())]);
    one.input(NetInput::DialFailed);
    assert!(one.relay.has_path(), "the way that stands goes on to stand");
    one.beats();
    one.pass(Span::from_secs(20));
    assert_eq!(one.dials.len(), 2);
    one.attach(&["g"], window(100, 1000));
    for _ in 0..10 {
        one.beats();
        one.pass(Span::from_secs(10));
    }
    assert_eq!(one.dials.len(), 2, "it is home");
}

#[test]
fn a_detour_that_fails_is_tried_again_until_it_opens_or_the_parent_has_a_path() {
    let mut one = One::attached(window(100, 1000));
    assert!(one.relay.detour());
    one.pass(Span(0));
    assert_eq!(one.dials, [Dial::Controller]);
    one.input(NetInput::DialFailed);
    one.pass(Span::from_millis(10));
    assert_eq!(one.dials.len(), 2);
    one.input(NetInput::DialFailed);
    one.parent_says(vec![Downward::Path(Box::new(Path {
        above: vec!["g".into()],
        window: window(100, 1000),
        heartbeat_s: 10,
        beat: None,
    }))]);
    one.beats();
    one.pass(Span::from_secs(10));
    assert_eq!(one.dials.len(), 2, "its parent has a path");
    assert!(one.relay.detour());
    one.pass(Span(0));
    one.input(NetInput::DialFailed);
    one.pass(Span::from_secs(1));
    one.attach(&[], window(100, 1000));
    assert_eq!((one.dials.len(), one.relay.parent()), (4, Some(&Dial::Controller)));
}

#[test]
fn p9_a_parent_without_a_path_is_left() {
    // A relay away from its own parent comes back to it, but that has no path: its node was removed, for example.
    let mut one = One::returning();
    one.input(NetInput::ParentOpened);
    one.parent_hop = 0;
    one.dials.clear();
    one.parent_says(Vec::new());
    one.pass(Span::from_secs(14));
    assert_eq!((&one.dials[..], one.relay.has_path()), (&[][..], false));
    one.pass(Span::from_secs(1));
    assert_eq!(one.dials, [Dial::Controller], "it asks the controller itself");
    one.attach(&[], window(100, 1000));
    one.returns_after_40_s();
}

#[test]
fn a_detour_whose_dials_fail_lengthens_the_stay_away_once() {
    let mut one = One::attached(window(100, 1000));
    assert!(one.relay.detour());
    one.pass(Span(0));
    for _ in 0..10 {
        one.input(NetInput::DialFailed);
        one.parent_says(Vec::new());
        one.pass(Span::from_secs(1));
    }
    assert_eq!(one.dials.len(), 11);
    one.attach(&[], window(100, 1000));
    one.returns_after_40_s();
}

#[test]
fn a_node_that_starts_below_a_parent_without_a_path_waits_for_it() {
    let mut one = One::started(&["p", "g"]);
    one.input(NetInput::ParentOpened);
    one.dials.clear();
    for _ in 0..11 {
        one.parent_says(Vec::new());
        one.pass(Span::from_secs(10));
    }
    assert_eq!(one.dials, []);
    one.parent_says(Vec::new());
    one.pass(Span::from_secs(10));
    assert_eq!(one.dials, [Dial::Controller]);
}

#[test]
fn a_way_back_that_opens_when_the_other_has_just_ended_is_home() {
    let mut one = One::returning();
    assert_eq!(one.dials.last(), Some(&Dial::Node("p".into())));
    let before = one.dials.len();
    one.input(NetInput::ParentClosed);
    assert_eq!(one.dials.len(), before, "one at a time");
    one.open(1);
    one.attach(&["g"], window(100, 1000));
    let told = one.told(1);
    assert!(matches!(&told[..], [Downward::Path(path)] if path.above == ["p", "g"]), "{told:?}");
}

#[test]
fn a_letter_goes_down_where_its_node_is_and_else_up() {
    let mut one = One::attached(window(100, 1000));
    one.parent_says(vec![Downward::Reply { route: vec![], node: Some(NodeId(1)), put: put(1, &[]) }]);
    for (link, node) in [(1, 2), (2, 3)] {
        one.open(link);
        one.welcome(link, NodeId(node), 7);
    }
    one.local.clear();
    one.up.clear();
    one.down.clear();
    let message = Sealed::new(PeerMessage::Ask { ticket: 1, rank: 0 });
    let letter = |sender, to| {
        Box::new(Letter { step: StepKey::default(), sender: NodeId(sender), to: NodeId(to), message: message.clone() })
    };
    for to in [1, 3, 9] {
        one.child_says(1, vec![Upward::Letter(letter(2, to))]);
    }
    // A letter for a node that is not below does not go back to the parent, from which it came.
    one.parent_says(vec![Downward::Letter(letter(8, 2)), Downward::Letter(letter(8, 9))]);
    assert_eq!(one.local, [Delivery::Letter(letter(2, 1))]);
    assert_eq!(one.up, [Upward::Letter(letter(2, 9))]);
    let down: Vec<_> = one.down.into_iter().collect();
    assert_eq!(down, [(1, vec![Downward::Letter(letter(8, 2))]), (2, vec![Downward::Letter(letter(2, 3))])]);
}

/// faults.md P9: nodes leave a silent relay before anybody doubts them, and hear more often from one that is not.
#[test]
fn p9_a_silent_relay_is_left_in_time() {
    let mut one = One::attached(window(100, 1000));
    one.open(1);
    let told = one.told(1);
    assert!(matches!(&told[..], [Downward::Path(path)] if path.heartbeat_s == 5), "{told:?}");
    let mut below = One::started(&["one"]);
    below.input(NetInput::ParentOpened);
    below.parent_says(told);
    for _ in 0..3 {
        one.pass(Span::from_secs(5));
        assert!(one.down.remove(&1).is_some(), "a heartbeat");
        one.parent_says(Vec::new());
        below.pass(Span::from_secs(5));
        below.parent_says(Vec::new());
    }
    below.pass(Span::from_secs(14));
    assert_eq!(below.hang_ups, 0);
    below.pass(Span::from_secs(1));
    assert_eq!((below.hang_ups, below.dials.last()), (1, Some(&Dial::Node("p".into()))), "the one above it");
}

/// With a beat of 2 s a child of a node hears from it every second, at any level, and leaves it after three.
#[test]
fn a_silent_relay_is_left_in_time_for_a_small_timeout() {
    let beat = Span::from_secs(2);
    let mut one = One::started(&[]);
    one.input(NetInput::ParentOpened);
    one.parent_says(vec![Downward::Path(Box::new(Path::of_controller(window(100, 1000), beat)))]);
    let mut below = One::started(&["one"]);
    below.input(NetInput::ParentOpened);
    let mut lowest = One::started(&["below", "one"]);
    lowest.input(NetInput::ParentOpened);
    one.open(1);
    below.parent_says(one.told(1));
    below.open(1);
    let told = below.told(1);
    assert!(
        matches!(&told[..], [Downward::Path(path)] if path.heartbeat_s == 1 && path.beat == Some(beat)),
        "{told:?}"
    );
    lowest.parent_says(told);
    lowest.dials.clear();
    assert_eq!((one.relay.beat(), below.relay.beat(), lowest.relay.beat()), (beat, beat, beat));
    below.pass(Span::from_secs(1));
    assert!(below.down.remove(&1).is_some(), "a heartbeat each second");
    lowest.pass(Span::from_millis(2900));
    assert_eq!(lowest.hang_ups, 0);
    lowest.pass(Span::from_millis(100));
    assert_eq!((lowest.hang_ups, lowest.dials.last()), (1, Some(&Dial::Controller)), "nobody between can cost time");
}

/// faults.md P9: a relay that was stopped gives up nobody for the time in which it did not run itself.
#[test]
fn p9_a_relay_that_was_stopped_doubts_itself_first() {
    let mut one = One::attached(window(100, 1000));
    one.open(1);
    one.pass(Span::from_secs(1));
    one.beats();
    one.now = one.now + Span::from_secs(300);
    one.settle(NetOut::default());
    assert_eq!((one.hang_ups, &one.drops[..]), (0, &[][..]));
    one.pass(Span::from_secs(31));
    assert_eq!((one.hang_ups, &one.drops[..]), (1, &[1][..]), "who stays silent is given up");
}

/// faults.md P9: a starved node's answer that is too late for its relay's own is not lost.
#[test]
fn p9_a_late_answer_goes_up_by_itself() {
    let mut one = One::attached(window(100, 1000));
    one.open(1);
    one.welcome(1, NodeId(5), 3);
    one.up.clear();
    let test = Test { variable: Variable::Heard, comparison: Comparison::AtLeast, value: 0 };
    let (epoch, number, time_us) = (Epoch(1), 7, 4_000_000);
    let to = NodeSet::one(NodeId(5));
    let query = Query { epoch, number, to: to.clone(), test, wait: false, time_us, health: false, heard: Vec::new() };
    one.parent_says(vec![Downward::Query(query)]);
    one.pass(Span::from_secs(5));
    let answer = |yes: NodeSet| Upward::Tally { epoch, number, tally: Tally { yes, ..Tally::default() } };
    assert_eq!(one.up.last(), Some(&answer(NodeSet::new())), "its own time is over");
    one.child_says(1, vec![answer(to.clone())]);
    assert_eq!(one.up.last(), Some(&answer(to)));
}
