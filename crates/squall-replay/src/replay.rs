//! Replays a trace on a machine of equal processors, with the scheduling policy of the controller.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use squall_model::id::JobId;
use squall_model::time::{Span, Time};
use squall_sched::topology::Wish;
use squall_sched::{Candidate, Discipline, Item, Lanes, Pool, Queues, Rules, plan};

use crate::swf::TraceJob;

/// Start times of a replay's jobs, and statistics of its scheduling passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Start of each job, seconds, in the order of the trace.
    pub starts: Vec<u64>,
    /// Greatest number of jobs that were pending at the same time.
    pub queue_max: usize,
    /// Number of scheduling passes of the replay.
    pub passes: u64,
    /// First promised start of each job, seconds. Empty unless the discipline is conservative; None: no promise was
    /// made.
    pub promises: Vec<Option<u64>>,
    /// End of each job, seconds, in the order of the trace. Empty unless short jobs come first.
    pub ends: Vec<u64>,
    /// How often jobs have stepped aside for shorter ones.
    pub asides: u64,
}

/// Settings of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Number of processors of the machine, all alike.
    pub processors: u32,
    /// Scheduling discipline, such as FCFS or EASY: it decides which jobs may start before earlier ones.
    pub discipline: Discipline,
    /// Short jobs come before others. None: they don't.
    pub short: Option<Short>,
}

/// Jobs that come before others, as those of a partition of a higher tier, because they are short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// Longest time limit of such a job, seconds.
    pub limit_s: u64,
    /// Other jobs step aside to disk for them, the youngest first (`PreemptMode=CHECKPOINT`), and each time need so many
    /// seconds more. None: no job steps aside.
    pub aside_s: Option<u64>,
}

/// Pending jobs of a replay.
struct Waiting<'a> {
    jobs: &'a [TraceJob],
    queue: VecDeque<u32>,
    /// Number of jobs at the front of the queue that did not fit at the last pass, with no processor freed since.
    vain: usize,
    /// Number of short jobs, which are at the front of the queue.
    short: usize,
    /// For how long each job still runs, and how long it may, seconds. Empty unless short jobs come first: then as the trace
    /// says.
    left: Vec<(u64, u64)>,
}

impl Waiting<'_> {
    /// Returns for how long a job still runs, and how long it may, seconds.
    fn left(&self, at: u32) -> (u64, u64) {
        let job = &self.jobs[at as usize];
        self.left.get(at as usize).copied().unwrap_or((job.run, job.estimate))
    }

    /// Adds a job: a short one behind the short ones, and another one where it was by its submission.
    fn add(&mut self, at: u32, is_short: bool) {
        let place = if is_short {
            self.short += 1;
            self.short - 1
        } else {
            let others = self.queue.iter().skip(self.short);
            self.short + others.take_while(|other| **other < at).count()
        };
        self.queue.insert(place, at);
        self.vain = self.vain.min(place);
    }
}

impl Queues for Waiting<'_> {
    type Need = u32;

    fn partition_count(&self) -> usize {
        1
    }
    fn tier(&self, _: usize) -> Option<u32> {
        Some(0)
    }
    fn queue(&self, _: usize) -> impl Lanes<Candidate<'_, u32>> {
        SubmissionQueue { waiting: self, next: 0, closed: Vec::new() }
    }
}

/// The queue in order of submission. It leaves out jobs that cannot fit, because smaller and shorter ones did not.
struct SubmissionQueue<'a> {
    waiting: &'a Waiting<'a>,
    next: usize,
    /// Pairs (processors, time) of jobs that did not fit: jobs that need at least as many processors for a longer time
    /// are skipped.
    closed: Vec<(u32, Span)>,
}

impl<'a> Iterator for SubmissionQueue<'a> {
    type Item = Candidate<'a, u32>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = *self.waiting.queue.get(self.next)?;
            self.next += 1;
            let TraceJob { processors, .. } = &self.waiting.jobs[at as usize];
            let estimate = self.waiting.left(at).1;
            if self.closed.iter().any(|(least, longest)| processors >= least && Span::from_secs(estimate) > *longest) {
                continue;
            }
            return Some(Candidate {
                item: item(at),
                priority: 0,
                need: processors,
                time_limit_s: Some(Some(estimate)),
                wish: Wish::default(),
                copies: 1,
                group: None,
                avoid: None,
                alone: false,
                others: &[],
                user: None,
                reserves: true,
            });
        }
    }
}

impl<'a> Lanes<Candidate<'a, u32>> for SubmissionQueue<'a> {
    fn close(&mut self, longest: Span) {
        let last = self.next.checked_sub(1).and_then(|last| self.waiting.queue.get(last));
        let Some(least) = last.map(|at| self.waiting.jobs[*at as usize].processors) else { return };
        self.closed.retain(|closed| closed.0 < least || closed.1 < longest);
        self.closed.push((least, longest));
        self.next = self.next.max(self.waiting.vain);
    }
}

fn item(at: u32) -> Item {
    Item { id: JobId(at), array: false }
}

/// Jobs that run in a replay.
#[derive(Default)]
struct Running {
    /// Ends to come: time, job, and how often the job had stepped aside when it started.
    ends: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Last start of each running job, by job. Only kept if jobs step aside.
    since: BTreeMap<u32, u64>,
    /// How often each job has stepped aside.
    asides: BTreeMap<u32, u32>,
    /// Whether jobs step aside.
    leave: bool,
}

impl Running {
    fn start(&mut self, now: u64, at: u32, run: u64) {
        self.ends.push(Reverse((now + run, at, self.asides.get(&at).copied().unwrap_or(0))));
        if self.leave {
            self.since.insert(at, now);
        }
    }

    /// Returns the time of the next end.
    fn next(&mut self) -> Option<u64> {
        while let Some(Reverse((end, at, asides))) = self.ends.peek().copied() {
            if self.asides.get(&at).copied().unwrap_or(0) == asides {
                return Some(end);
            }
            self.ends.pop();
        }
        None
    }
}

/// State of a replay.
struct Course<'a> {
    settings: &'a Replay,
    pool: Pool,
    waiting: Waiting<'a>,
    running: Running,
    schedule: Schedule,
    /// Whether each job waits.
    waits: Vec<bool>,
    /// Whether each job has started at some time.
    begun: Vec<bool>,
}

/// Replays a trace: at each time at which something happens first all ends, then all submissions, then one pass over
/// the pending jobs. `watch` is called after passes with the number of jobs started.
pub fn replay(jobs: &[TraceJob], settings: &Replay, mut watch: impl FnMut(usize)) -> Schedule {
    let rules = Rules { discipline: settings.discipline, ..Rules::default() };
    let mut course = Course::new(jobs, settings);
    let (mut arrived, mut started, mut again) = (0, 0, None);
    loop {
        let arrival = jobs.get(arrived).map(|job| job.submit);
        // A start may be promised for the expected end of another job. If that job starts earlier than promised, no
        // job ends at the promised time, so the time must be considered separately.
        let due = course.pool.due().map(Time::secs);
        let Some(now) = [course.running.next(), arrival, due, again.take()].into_iter().flatten().min() else { break };
        course.pool.advance(Time::from_secs(now));
        course.end(now);
        while jobs.get(arrived).is_some_and(|job| job.submit == now) {
            course.arrives(arrived as u32);
            arrived += 1;
        }
        let waiting = &course.waiting;
        if waiting.queue.is_empty() {
            continue;
        }
        course.schedule.queue_max = course.schedule.queue_max.max(waiting.queue.len());
        course.schedule.passes += 1;
        let plan = plan(waiting, &mut course.pool, rules);
        course.pool.passed();
        for start in &plan.starts {
            course.start(now, start.item.id.0);
        }
        for reserved in &plan.reserved {
            if let Some(promise) = course.schedule.promises.get_mut(reserved.item.id.0 as usize) {
                promise.get_or_insert(reserved.time.secs());
            }
        }
        if !plan.starts.is_empty() {
            leave(&mut course.waiting.queue, &course.waits, plan.starts.len());
            started += plan.starts.len();
            watch(started);
        }
        course.waiting.vain = course.waiting.queue.len();
        again = course.step_aside(now).then_some(now);
    }
    course.schedule
}

impl<'a> Course<'a> {
    fn new(jobs: &'a [TraceJob], settings: &'a Replay) -> Self {
        let left = jobs.iter().filter(|_| settings.short.is_some()).map(|job| (job.run, job.estimate)).collect();
        let promises = settings.discipline == Discipline::Conservative;
        let none = |kept: bool| if kept { jobs.len() } else { 0 };
        let schedule = Schedule {
            starts: vec![0; jobs.len()],
            queue_max: 0,
            passes: 0,
            promises: vec![None; none(promises)],
            ends: vec![0; none(settings.short.is_some())],
            asides: 0,
        };
        let leave = settings.short.is_some_and(|short| short.aside_s.is_some());
        Self {
            settings,
            pool: Pool::new(settings.processors, settings.discipline),
            waiting: Waiting { jobs, queue: VecDeque::new(), vain: 0, short: 0, left },
            running: Running { leave, ..Running::default() },
            schedule,
            waits: vec![false; jobs.len()],
            begun: vec![false; jobs.len()],
        }
    }

    fn is_short(&self, at: u32) -> bool {
        self.settings.short.is_some_and(|short| self.waiting.jobs[at as usize].estimate <= short.limit_s)
    }

    fn arrives(&mut self, at: u32) {
        if self.is_short(at) {
            self.waiting.add(at, true);
        } else {
            self.waiting.queue.push_back(at);
        }
        self.waits[at as usize] = true;
    }

    fn start(&mut self, now: u64, at: u32) {
        if !std::mem::replace(&mut self.begun[at as usize], true) {
            self.schedule.starts[at as usize] = now;
        }
        self.waits[at as usize] = false;
        self.waiting.short -= usize::from(self.is_short(at));
        self.running.start(now, at, self.waiting.left(at).0);
    }

    /// Ends the jobs that are due.
    fn end(&mut self, now: u64) {
        while self.running.next() == Some(now)
            && let Some(Reverse((_, at, _))) = self.running.ends.pop()
        {
            self.waiting.vain = 0;
            let since = self.running.since.remove(&at).unwrap_or(self.schedule.starts[at as usize]);
            let expected = Time::from_secs(since + self.waiting.left(at).1);
            self.pool.give_back(expected, self.waiting.jobs[at as usize].processors);
            if let Some(end) = self.schedule.ends.get_mut(at as usize) {
                *end = now;
            }
        }
    }

    /// Has the youngest jobs that are not short step aside for the first short job that waits, if there are enough of them.
    /// Returns whether they do.
    fn step_aside(&mut self, now: u64) -> bool {
        let aside_s = self.settings.short.and_then(|short| short.aside_s);
        let first = self.waiting.queue.front().filter(|_| self.waiting.short > 0);
        let Some((aside_s, first)) = aside_s.zip(first.copied()) else { return false };
        let wanted = self.waiting.jobs[first as usize].processors;
        // One that has just begun again would do so for ever.
        let running = self.running.since.iter().filter(|(at, since)| !self.is_short(**at) && **since < now);
        let mut victims: Vec<(u64, u32)> = running.map(|(at, since)| (*since, *at)).collect();
        victims.sort_unstable();
        let (mut free, mut went) = (self.pool.free(), Vec::new());
        while free < wanted
            && let Some((since, at)) = victims.pop()
        {
            free += self.waiting.jobs[at as usize].processors;
            went.push((since, at));
        }
        if free < wanted || went.is_empty() {
            return false;
        }
        for (since, at) in went {
            let (run, estimate) = self.waiting.left(at);
            self.pool.give_back(Time::from_secs(since + estimate), self.waiting.jobs[at as usize].processors);
            let ran = now - since;
            self.waiting.left[at as usize] = (run - ran + aside_s, estimate.saturating_sub(ran).max(1) + aside_s);
            self.running.since.remove(&at);
            *self.running.asides.entry(at).or_default() += 1;
            self.waiting.add(at, false);
            self.waits[at as usize] = true;
            self.schedule.asides += 1;
        }
        self.waiting.vain = 0;
        true
    }
}

/// Removes the jobs that have started from the queue. `waits`: whether each job is still pending; `started`: number of
/// jobs to remove.
fn leave(queue: &mut VecDeque<u32>, waits: &[bool], started: usize) {
    let mut left = started;
    while left > 0 && queue.front().is_some_and(|at| !waits[*at as usize]) {
        queue.pop_front();
        left -= 1;
    }
    if left > 0 {
        queue.retain(|at| waits[*at as usize]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::{Strategy, prop, proptest};
    use proptest::{prop_assert, prop_assert_eq};
    use squall_model::config::{Config, NodeConfig, SchedulerType};
    use squall_model::resource::Hardware;
    use squall_sched::Discipline;

    use super::{Replay, Schedule, Short, replay};
    use crate::history::{Past, again};
    use crate::swf::{Trace, TraceJob};

    const PROCESSORS: u32 = 10;

    fn trace() -> impl Strategy<Value = Vec<TraceJob>> {
        prop::collection::vec((0..12_u64, 1..40_u64, 0..20_u64, 1..=PROCESSORS), 1..60).prop_map(|jobs| {
            let mut submit = 0;
            let of = |(id, (gap, run, more, processors)): (usize, (u64, u64, u64, u32))| {
                submit += gap;
                TraceJob { id: id as i64, submit, run, estimate: run + more, processors, spec: None }
            };
            jobs.into_iter().enumerate().map(of).collect()
        })
    }

    fn by(jobs: &[TraceJob], discipline: Discipline) -> Schedule {
        replay(jobs, &Replay { processors: PROCESSORS, discipline, short: None }, |_| {})
    }

    /// Returns the start times when the controller's policy places the jobs on nodes with `cpus` CPUs each.
    fn on_nodes(jobs: &[TraceJob], scheduler_type: SchedulerType, cpus: u32) -> Vec<u64> {
        let nodes = PROCESSORS / cpus;
        let mut config = Config { scheduler_type, ..Config::default() };
        config.nodes.push(NodeConfig { name: format!("n[1-{nodes}]"), cpus: Some(cpus), ..NodeConfig::default() });
        config.complete();
        let (sockets, cores_per_socket, threads_per_core) = (1, cpus, 1);
        let hardware = Hardware { cpus, sockets, cores_per_socket, threads_per_core, ..Hardware::default() };
        let nodes: Vec<_> = (1..=nodes).map(|n| (format!("n{n}"), hardware.clone())).collect();
        let trace = Trace { jobs: jobs.to_vec(), ..Trace::default() };
        let starts = again(&config, &nodes, &Past::of_trace(&trace, &BTreeMap::new()), |_| {}).starts;
        starts.into_iter().map(|start| start.unwrap().secs()).collect()
    }

    /// Independent first-in-first-out schedule for comparison: each job starts once the one before has started and
    /// there is room.
    fn fifo(jobs: &[TraceJob]) -> Vec<u64> {
        let mut starts: Vec<u64> = Vec::new();
        for job in jobs {
            let held = |time: u64| -> u32 {
                let runs = starts.iter().zip(jobs).filter(|(start, job)| (**start..**start + job.run).contains(&time));
                runs.map(|(_, job)| job.processors).sum()
            };
            let from = job.submit.max(starts.last().copied().unwrap_or_default());
            starts.push((from..from + 100_000).find(|time| held(*time) + job.processors <= PROCESSORS).unwrap());
        }
        starts
    }

    /// Independent EASY schedule for comparison, with one pass at each second.
    fn easy(jobs: &[TraceJob]) -> Vec<u64> {
        let mut starts: Vec<Option<u64>> = vec![None; jobs.len()];
        let mut now = 0;
        while starts.iter().any(Option::is_none) {
            let mut running: Vec<(u64, u32)> = (starts.iter().zip(jobs))
                .filter_map(|(start, job)| Some(((*start)?, job)))
                .filter(|(start, job)| start + job.run > now)
                .map(|(start, job)| (start + job.estimate, job.processors))
                .collect();
            let mut free = PROCESSORS - running.iter().map(|(_, processors)| processors).sum::<u32>();
            let mut shadow: Option<(u64, u32)> = None;
            for (at, job) in jobs.iter().enumerate().filter(|(_, job)| job.submit <= now) {
                if starts[at].is_some() {
                    continue;
                }
                let fits = match &mut shadow {
                    _ if job.processors > free => false,
                    None => true,
                    Some((time, _)) if now + job.estimate <= *time => true,
                    Some((_, extra)) if job.processors <= *extra => {
                        *extra -= job.processors;
                        true
                    }
                    Some(_) => false,
                };
                if fits {
                    starts[at] = Some(now);
                    free -= job.processors;
                    running.push((now + job.estimate, job.processors));
                } else if shadow.is_none() {
                    running.sort_unstable();
                    let mut then = free;
                    let ends = running.iter().map(|(end, processors)| {
                        then += processors;
                        (*end, then)
                    });
                    let time = ends.into_iter().find(|(_, then)| *then >= job.processors).unwrap().0;
                    let gone: u32 = running.iter().filter(|(end, _)| *end <= time).map(|(_, n)| n).sum();
                    shadow = Some((time, free + gone - job.processors));
                }
            }
            now += 1;
        }
        starts.into_iter().flatten().collect()
    }

    proptest! {
        #[test]
        fn first_in_first_out_is_what_it_says(jobs in trace()) {
            prop_assert_eq!(by(&jobs, Discipline::Fifo).starts, fifo(&jobs));
        }

        #[test]
        fn easy_is_what_one_would_do_by_hand(jobs in trace()) {
            prop_assert_eq!(by(&jobs, Discipline::Easy).starts, easy(&jobs));
        }

        /// Short jobs come first, and others step aside for them and come back: nothing runs twice, and each job as long as
        /// it must.
        #[test]
        fn jobs_that_step_aside_run_as_long_as_they_must(jobs in trace(), limit_s in 1..20_u64, aside_s in 0..4_u64) {
            let of = |aside_s| {
                let short = Some(Short { limit_s, aside_s });
                replay(&jobs, &Replay { processors: PROCESSORS, discipline: Discipline::Easy, short }, |_| {})
            };
            let (plain, aside) = (of(None), of(Some(aside_s)));
            prop_assert_eq!(plain.asides, 0);
            let mut costs = 0;
            for (at, job) in jobs.iter().enumerate() {
                prop_assert_eq!(plain.ends[at], plain.starts[at] + job.run);
                prop_assert!(aside.starts[at] >= job.submit && aside.ends[at] >= aside.starts[at] + job.run);
                let short = job.estimate <= limit_s;
                prop_assert!(!short || aside.ends[at] == aside.starts[at] + job.run);
                costs += aside.ends[at] - aside.starts[at] - job.run;
            }
            prop_assert!(costs >= aside.asides * aside_s);
        }

        /// With backfilling the two differ: on nodes the first pending job reserves certain nodes, not just a number
        /// of processors.
        #[test]
        fn first_in_first_out_is_the_same_on_nodes(jobs in trace(), cpus in prop::sample::select(vec![1, 2, 5, 10])) {
            let starts = on_nodes(&jobs, SchedulerType::Builtin, cpus);
            prop_assert_eq!(starts, by(&jobs, Discipline::Fifo).starts);
            let starts = on_nodes(&jobs, SchedulerType::Backfill, cpus);
            let span = |at: usize| starts[at]..starts[at] + jobs[at].run;
            for (at, job) in jobs.iter().enumerate() {
                prop_assert!(starts[at] >= job.submit);
                let beside = (0..jobs.len()).filter(|other| span(*other).contains(&starts[at]));
                prop_assert!(beside.map(|other| jobs[other].processors).sum::<u32>() <= PROCESSORS);
            }
        }

        #[test]
        fn no_promise_is_broken_and_nothing_is_given_twice(jobs in trace()) {
            for discipline in [Discipline::Fifo, Discipline::Easy, Discipline::EasyShortest, Discipline::Conservative] {
                let schedule = by(&jobs, discipline);
                for (job, (start, promise)) in jobs.iter().zip(schedule.starts.iter().zip(&schedule.promises)) {
                    prop_assert!(promise.is_none_or(|promise| *start <= promise), "{job:?} at {start}, not {promise:?}");
                }
                let span = |at: usize| schedule.starts[at]..schedule.starts[at] + jobs[at].run;
                for (at, job) in jobs.iter().enumerate() {
                    prop_assert!(schedule.starts[at] >= job.submit);
                    let beside = (0..jobs.len()).filter(|other| span(*other).contains(&schedule.starts[at]));
                    prop_assert!(beside.map(|other| jobs[other].processors).sum::<u32>() <= PROCESSORS);
                }
            }
        }
    }
}
