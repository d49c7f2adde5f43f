//! Tests of the commit pipeline: nothing is released before it is durable, and nothing is lost or doubled.

use std::sync::Arc;

use proptest::prelude::{Strategy, any, prop_oneof, proptest};
use squall_model::config::{Config, NodeConfig};
use squall_model::event::{Event, Record};
use squall_model::id::ClientKey;
use squall_model::job::{JobKind, JobSpec, Owner};
use squall_model::time::{Span, Time};
use squall_model::wire::client::{Answer, Refusal, Request};

use super::{Append, Capacity, Commit, Pipeline, Release};
use crate::control::state::State;
use crate::control::{CallerId, Controller, Input, Who};

const BEGIN: Time = Time::from_secs(1_800_000_000);

/// A pipeline, with the log that it writes.
struct World {
    pipeline: Pipeline<u64>,
    now: Time,
    keys: u128,
    /// Records that are durable.
    log: Vec<Record>,
    /// Batch that is being flushed.
    appended: Option<Append>,
    answered: Vec<(CallerId, Answer)>,
    later: Vec<u64>,
}

impl World {
    fn new() -> Self {
        let mut config = Config::default();
        config.nodes.push(NodeConfig { name: "n1".into(), ..NodeConfig::default() });
        config.complete();
        let mut world = Self {
            pipeline: Pipeline::new(Controller::new(State::default()), 1),
            now: BEGIN,
            keys: 0,
            log: Vec::new(),
            appended: None,
            answered: Vec::new(),
            later: Vec::new(),
        };
        world.pipeline.begin(world.now);
        world.pipeline.take(Input::Start { config: Box::new(config), version: "1".into(), host: "h".into() });
        world.close();
        world.flush();
        world
    }

    fn submit(&mut self, script: usize) {
        self.keys += 1;
        let owner = Arc::new(Owner { uid: 1000, gid: 1000, ..Owner::default() });
        let spec = JobSpec { kind: JobKind::Batch, name: "j".into(), work_dir: "/".into(), ..JobSpec::default() };
        let request = Request::Submit {
            key: ClientKey(self.keys),
            spec: spec.into(),
            script: vec![b'#'; script].into(),
            env: Vec::new().into(),
        };
        let caller = CallerId(self.keys as u64);
        self.pipeline.begin(self.now);
        self.pipeline.take(Input::Ask {
            caller,
            who: Who { owner, operator: false, by: None, job: None },
            request: Box::new(request),
        });
    }

    fn set_capacity(&mut self, capacity: Capacity) {
        self.pipeline.begin(self.now);
        self.pipeline.set_capacity(capacity);
    }

    /// Settles the open batch and commits it.
    fn close(&mut self) {
        self.pipeline.settle();
        self.commit();
    }

    fn commit(&mut self) {
        match self.pipeline.commit() {
            None => {}
            Some(Commit::Append(work)) => self.appended = Some(work),
            Some(Commit::Release(release)) => self.release(release),
            Some(Commit::Fenced(newer)) => panic!("{newer:?}"),
        }
    }

    /// Completes the flush of the appended batch and releases it; then appends the next batch.
    fn flush(&mut self) {
        if let Some(work) = self.appended.take() {
            self.log.extend(work.records.iter().cloned());
        }
        if let Some(release) = self.pipeline.flushed() {
            self.release(release);
        }
        self.commit();
    }

    fn release(&mut self, release: Release<u64>) {
        self.answered.extend(release.answers);
        self.later.extend(release.later);
    }

    fn replayed(&self) -> State {
        let mut state = State::default();
        self.log.iter().for_each(|record| state.apply_record(record));
        state
    }

    /// Checks that every acknowledged job is in the log, and that records are numbered without a gap.
    fn check(&self) {
        let state = self.replayed();
        for (_, answer) in &self.answered {
            if let Answer::Submitted { job, .. } = answer {
                assert!(state.jobs.get(job).is_some(), "{job} was acknowledged before it was durable");
            }
        }
        assert!(self.log.iter().zip(1..).all(|(record, seq)| record.seq == seq));
    }

    fn refused(&self) -> usize {
        self.answered.iter().filter(|(_, answer)| matches!(answer, Answer::Refused(Refusal::DiskFull))).count()
    }
}

#[test]
fn nothing_leaves_before_the_flush() {
    let mut world = World::new();
    world.submit(10);
    world.pipeline.later(7);
    world.close();
    assert!(world.answered.is_empty() && world.later.is_empty());
    world.flush();
    assert_eq!((world.answered.len(), world.later.as_slice()), (1, &[7][..]));
    world.check();
}

#[test]
fn the_next_batch_is_decided_during_a_flush_and_leaves_after_its_own() {
    let mut world = World::new();
    world.submit(10);
    world.close();
    world.submit(10);
    world.close();
    assert!(world.pipeline.is_open() && world.pipeline.is_flushing());
    world.flush();
    assert_eq!(world.answered.len(), 1);
    world.check();
    world.flush();
    assert_eq!(world.answered.len(), 2);
    world.check();
}

#[test]
fn all_of_a_batch_bears_the_time_at_which_it_was_opened() {
    let mut world = World::new();
    world.submit(10);
    world.now = world.now + Span::from_secs(5);
    world.submit(10);
    world.close();
    world.flush();
    let submitted = |record: &&Record| record.events.iter().any(|event| matches!(event, Event::JobSubmitted { .. }));
    let times: Vec<Time> = world.log.iter().filter(submitted).map(|record| record.time).collect();
    assert_eq!(times, [BEGIN]);
}

#[test]
fn a_submission_that_would_eat_the_reserve_is_refused() {
    let mut world = World::new();
    let capacity = Capacity { room: 1 << 20, reserve: 256 << 10, free: 0, full: false };
    world.set_capacity(capacity);
    world.submit(10);
    world.submit(1 << 20);
    world.close();
    world.flush();
    assert_eq!((world.answered.len(), world.refused()), (2, 1));
    // Without room in the log but with enough free disk, the submission is accepted.
    world.set_capacity(Capacity { free: 1 << 30, ..capacity });
    world.submit(1 << 20);
    world.close();
    world.flush();
    assert_eq!((world.answered.len(), world.refused()), (3, 1));
    world.check();
}

#[test]
fn a_disk_that_becomes_full_or_has_room_again_is_told_through_the_open_batch() {
    let mut world = World::new();
    for full in [true, false] {
        world.set_capacity(Capacity { full, ..Capacity::UNBOUNDED });
        assert_eq!(world.pipeline.machine().disk_full, full);
        world.close();
        world.flush();
    }
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "no batch is open")]
fn a_capacity_without_an_open_batch_is_a_bug() {
    World::new().pipeline.set_capacity(Capacity { full: true, ..Capacity::UNBOUNDED });
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "no batch is open")]
fn an_input_without_an_open_batch_is_a_bug() {
    World::new().pipeline.take(Input::Tick);
}

#[derive(Clone, Debug)]
enum Op {
    Submit { script: u16 },
    Close,
    Flush,
    Room { kib: u16 },
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => any::<u16>().prop_map(|script| Op::Submit { script }),
        2 => proptest::strategy::Just(Op::Close),
        2 => proptest::strategy::Just(Op::Flush),
        1 => any::<u16>().prop_map(|kib| Op::Room { kib }),
    ]
}

proptest! {
    #[test]
    fn what_is_acknowledged_is_durable_and_every_request_is_answered_once(
        ops in proptest::collection::vec(ops(), 1..60),
    ) {
        let mut world = World::new();
        for op in ops {
            match op {
                Op::Submit { script } => world.submit(script.into()),
                Op::Close => world.close(),
                Op::Flush => world.flush(),
                Op::Room { kib } => {
                    let room = u64::from(kib) << 10;
                    world.set_capacity(Capacity { room, reserve: 64 << 10, free: 0, full: room == 0 });
                }
            }
            world.check();
        }
        world.close();
        (0..3).for_each(|_| world.flush());
        world.close();
        world.check();
        let mut callers: Vec<u64> = world.answered.iter().map(|(caller, _)| caller.0).collect();
        callers.sort_unstable();
        assert_eq!(callers, (1..=world.keys as u64).collect::<Vec<_>>());
        assert_eq!(world.replayed(), *world.pipeline.machine().state());
    }
}
