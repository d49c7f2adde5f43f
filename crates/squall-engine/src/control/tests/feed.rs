//! The event feed: what followers see of jobs and nodes, and which of it their conditions let through.

use squall_model::event::NodeAdmin;
use squall_model::id::JobId;
use squall_model::job::JobSpec;
use squall_model::set::IndexSet;
use squall_model::wire::client::{Answer, JobRef, JobSelection, Refusal, Request, StateFilter};
use squall_model::wire::feed::{FeedEvent, FeedKind, FeedPage, Position};

use crate::control::port::{CallerId, Input};
use crate::control::tests::driver::{ADA, Driver, array, batch, these};

const CALLER: u64 = 50;

/// A cluster with a follower, and the record that is being decided.
struct Story {
    d: Driver,
    record: u64,
}

impl Story {
    fn new() -> Self {
        let mut story = Self { d: Driver::new(2, 4), record: 10 };
        story.d.c.begin_record(story.record);
        story
    }
    fn follow(&mut self, from: Option<Position>, jobs: JobSelection, kinds: &[FeedKind]) -> FeedPage {
        let request = Request::Follow { from, jobs: Box::new(jobs), kinds: kinds.to_vec() };
        let mut answers = self.d.ask(CALLER, ADA, request);
        let Some(Answer::Followed(page)) = answers.pop() else { panic!("no first page") };
        assert!(answers.is_empty());
        *page
    }
    /// Ends the record, and returns the events that the follower is sent.
    fn events(&mut self) -> Vec<FeedEvent> {
        self.record += 1;
        self.d.c.begin_record(self.record);
        while self.d.c.has_news() {
            self.d.step(Input::Feed);
        }
        let answers = self.d.take_answers(CallerId(CALLER));
        let pages = answers.into_iter().map(|answer| match answer {
            Answer::Followed(page) => *page,
            other => panic!("{other:?}"),
        });
        pages.flat_map(|page| page.events).map(|event| FeedEvent::clone(&event)).collect()
    }
    /// Like `events`, each event as text.
    fn told(&mut self) -> Vec<String> {
        self.events().iter().map(shown).collect()
    }
    fn drain(&mut self, nodes: &str, admin: NodeAdmin, reason: Option<&str>) {
        let reason = reason.map(str::to_owned);
        let request = Request::UpdateNodes { nodes: nodes.into(), admin: Some(admin), reason, change: None };
        self.d.ask(9, 0, request);
    }
}

fn shown(event: &FeedEvent) -> String {
    let job = event.job.as_ref().map(|job| format!("{} {:?}", job.label(), job.state));
    let exit = event.job.as_ref().and_then(|job| job.exit).map(|exit| exit.code.to_string());
    let step = event.step.map(|step| format!("step {step}"));
    let rest = [job, step, Some(event.nodes.clone()), Some(event.name.clone()), exit, event.reason.clone()];
    let rest: Vec<String> = rest.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    format!("{}: {}", event.kind.name(), rest.join(" "))
}

#[test]
fn a_jobs_life_is_told_and_nothing_of_it_before_its_record_is_closed() {
    let mut story = Story::new();
    let first = story.follow(None, JobSelection::default(), &[]);
    assert_eq!(first, FeedPage { next: Position { record: 10, index: 0 }, ..FeedPage::default() });
    let id = story.d.submit(batch());
    assert!(!story.d.c.has_news(), "the record is open");
    story.d.step(Input::Feed);
    assert_eq!(story.d.take_answers(CallerId(CALLER)), []);
    assert_eq!(story.told(), [format!("job-submitted: {id} Pending"), format!("job-started: {id} Running n1")]);
    story.d.finish(id, 3);
    assert_eq!(story.told(), [format!("job-ended: {id} Ended(Failed) n1 3")]);
    let events = story.events();
    assert!(events.is_empty(), "{events:?}");
}

#[test]
fn all_that_an_event_needs_is_in_it() {
    let mut story = Story::new();
    story.follow(None, JobSelection::default(), &[]);
    let spec = JobSpec { name: "train".into(), account: Some("physics".into()), ..batch() };
    let id = story.d.submit(spec);
    let events = story.events();
    let job = events[1].job.clone().unwrap();
    assert_eq!((job.id, job.uid, &*job.user, &*job.name), (id, ADA, "u1000", "train"));
    let default = story.d.c.state().default_partition().unwrap().config.name.clone();
    assert_eq!((&*job.account, &*job.partition), ("physics", &*default));
    assert_eq!((events[0].at.to_string(), events[1].at.to_string()), ("10.1".into(), "10.2".into()));
    assert_eq!(events[1].time, story.d.now);
}

#[test]
fn a_job_on_several_nodes_ends_when_the_last_has_let_it_go() {
    let mut story = Story::new();
    let mut spec = batch();
    spec.need.nodes_min = Some(2);
    let id = story.d.submit(spec);
    story.events();
    story.follow(None, JobSelection::default(), &[]);
    story.d.finish(id, 0);
    assert_eq!(story.told(), [format!("job-ending: {id} Completing(Completed) n[1-2] 0")]);
    let gone = story.d.script_end(id, 0).pop();
    story.d.report("n2", gone.as_slice());
    assert_eq!(story.told(), [format!("job-ended: {id} Ended(Completed) n[1-2] 0")]);
}

#[test]
fn an_array_is_told_as_a_whole_and_its_tasks_by_themselves() {
    let mut story = Story::new();
    story.follow(None, JobSelection::default(), &[]);
    let id = story.d.submit(array(9, Some(1)));
    let told = story.told();
    let started = format!("job-started: {id}_0 Running n1");
    assert_eq!(told, [format!("job-submitted: {id}_[0-9] Pending"), started]);
    story.d.ask(9, ADA, Request::Hold { jobs: these(id), user: true });
    let told = story.told();
    assert!(told.contains(&format!("job-held: {id}_[0-9] Pending JobHeldUser")), "{told:?}");
    story.d.cancel(id);
    let told = story.told();
    assert!(told.contains(&format!("job-ended: {id}_[1-9] Ended(Cancelled {{ by: 1000 }}) 0")), "{told:?}");
}

#[test]
fn nodes_are_told_with_reason_and_operator() {
    let mut story = Story::new();
    story.follow(None, JobSelection::default(), &[]);
    story.drain("n[1-2]", NodeAdmin::Drain, Some("fan"));
    let events = story.events();
    assert_eq!(events.iter().map(shown).collect::<Vec<_>>(), ["node-drained: n[1-2] fan"]);
    assert_eq!(events[0].by, Some(0));
    story.drain("n1", NodeAdmin::Resume, None);
    story.drain("n2", NodeAdmin::Down, Some("gone"));
    assert_eq!(story.told(), ["node-resumed: n1", "node-down: n2 gone"]);
}

#[test]
fn conditions_leave_out_what_does_not_fit() {
    let job = |id| JobSelection { ids: vec![id], ..JobSelection::default() };
    let mut story = Story::new();
    let id = story.d.submit(array(3, Some(2)));
    let (first, task) = (JobId(id.0 + 1), |index| JobRef::Tasks(id, IndexSet::range(index, index)));
    let all = |story: &mut Story| {
        let other = story.d.submit(JobSpec { name: "other".into(), ..batch() });
        story.d.cancel(other);
        story.drain("n2", NodeAdmin::Drain, Some("fan"));
        story.drain("n2", NodeAdmin::Resume, None);
        story.d.ask(9, ADA, Request::Suspend { jobs: these(first), suspend: true });
        story.events().iter().map(|event| event.kind.name()).collect::<Vec<_>>()
    };
    story.follow(None, JobSelection { users: vec![4711], ..JobSelection::default() }, &[]);
    assert_eq!(all(&mut story), [""; 0]);
    story.follow(None, JobSelection { names: vec!["other".into()], ..JobSelection::default() }, &[]);
    assert_eq!(all(&mut story)[..2], ["job-submitted", "job-started"]);
    story.follow(None, JobSelection { nodes: Some("n2".into()), ..JobSelection::default() }, &[]);
    let told = all(&mut story);
    assert!(told.contains(&"node-drained") && told.contains(&"node-resumed"), "{told:?}");
    story.follow(None, JobSelection::default(), &[FeedKind::NodeResumed]);
    assert_eq!(all(&mut story), ["node-resumed"]);
    story.follow(None, JobSelection { states: vec![StateFilter::Pending], ..JobSelection::default() }, &[]);
    assert_eq!(all(&mut story), ["job-submitted"]);
    for (wanted, count) in [(JobRef::Job(id), 1), (JobRef::Job(first), 1), (task(0), 1), (task(3), 0)] {
        story.d.ask(9, 0, Request::Suspend { jobs: these(first), suspend: false });
        story.events();
        story.follow(None, job(wanted.clone()), &[]);
        story.d.ask(9, 0, Request::Suspend { jobs: these(first), suspend: true });
        assert_eq!(story.events().len(), count, "{wanted:?}");
    }
    let nowhere = JobSelection { nodes: Some("n9".into()), ..JobSelection::default() };
    let request = Request::Follow { from: None, jobs: Box::new(nowhere), kinds: Vec::new() };
    assert_eq!(story.d.ask(CALLER, ADA, request), [Answer::Refused(Refusal::InvalidNode("n9".into()))]);
}

#[test]
fn a_follower_without_matches_is_sent_its_position() {
    let mut story = Story::new();
    story.follow(None, JobSelection { users: vec![4711], ..JobSelection::default() }, &[]);
    story.d.submit(batch());
    assert!(story.events().is_empty());
    story.d.pass(6);
    let next = Position { record: 11, index: 0 };
    let told = story.d.take_answers(CallerId(CALLER));
    assert_eq!(told, [Answer::Followed(Box::new(FeedPage { next, ..FeedPage::default() }))]);
    story.d.pass(60);
    assert_eq!(story.d.take_answers(CallerId(CALLER)), []);
}

#[test]
fn nothing_is_kept_when_the_last_follower_has_long_left() {
    let mut story = Story::new();
    let first = story.follow(None, JobSelection::default(), &[]);
    story.d.step(Input::Hangup { caller: CallerId(CALLER), away: false });
    let id = story.d.submit(batch());
    assert_eq!(story.told(), [""; 0]);
    // It comes back in time.
    assert!(!story.follow(Some(first.next), JobSelection::default(), &[]).missed);
    assert_eq!(story.told(), [format!("job-submitted: {id} Pending"), format!("job-started: {id} Running n1")]);
    story.d.step(Input::Hangup { caller: CallerId(CALLER), away: false });
    story.d.pass(301);
    story.d.submit(batch());
    assert!(!story.d.c.feed.is_on());
    assert!(story.follow(Some(first.next), JobSelection::default(), &[]).missed);
}
