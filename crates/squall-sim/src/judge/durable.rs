//! Checks of durable events: which must and which must not happen.

use std::collections::BTreeSet;

use squall_engine::node::attempt_of;
use squall_model::event::{Event, NodeAdmin, Record};
use squall_model::id::{Attempt, JobId, NodeId, StepKey};
use squall_model::job::options::Options;
use squall_model::job::{ArraySpec, EndState, ExitCode, JobAttempt, JobKind, JobSpec, Outcome};
use squall_model::places::OnNodeFail;
use squall_model::report::StepEnd;
use squall_model::resource::Alloc;
use squall_model::set::{IndexSet, NodeSet};
use squall_model::time::Time;

use super::{JobFile, Judge};
use crate::coverage::Phase;
use crate::order::Order;
use crate::world::client::Clients;

/// Number of the signal SIGTERM.
const TERM: u8 = 15;
/// Number of the signal SIGKILL.
const KILL: u8 = 9;

/// The controller counts a time limit from its own start decision, some seconds before the process starts. An end may
/// be this much early.
const LIMIT_EARLY_S: u64 = 120;

impl Judge {
    /// Checks a record that became durable.
    pub(crate) fn durable(&mut self, now: Time, record: &Record, clients: &Clients) {
        if record.seq != self.last_record + 1 {
            self.violate("records follow each other", format!("{} after {}", record.seq, self.last_record));
        }
        self.last_record = record.seq;
        self.note_shown(record);
        self.raised(std::slice::from_ref(record));
        self.check_faults(record);
        self.check_losses(record);
        for event in &record.events {
            self.check_places(now, event, self.replaces(event, clients));
            self.event(now, record.time, event, clients);
            self.check_members(event);
            self.check_drains(event);
            self.check_waits(record.time, event);
            self.check_filtered(event);
        }
        let changed = record.events.iter().filter_map(|event| match event {
            Event::JobStarted { id, .. } | Event::JobEnding { id, .. } | Event::NodesReleased { id, .. } => {
                self.het_of(*id)
            }
            _ => None,
        });
        for (leader, size) in changed.collect::<BTreeSet<_>>() {
            self.check_components(leader, size);
        }
    }

    /// Returns whether an event starts a job again of which a node had failed that is to be replaced.
    fn replaces(&self, event: &Event, clients: &Clients) -> bool {
        let Event::JobStarted { id, .. } = event else { return false };
        let Some(file) = self.files.get(id) else { return false };
        let failed = file.outcome.as_ref().is_some_and(|outcome| outcome.state == EndState::NodeFail);
        failed && clients.order(file.order).and_then(|order| order.options.on_node_fail) == Some(OnNodeFail::Replace)
    }

    /// Returns the heterogeneous job that a job is a component of: the id of its first component, and the number of
    /// components.
    pub(super) fn het_of(&self, id: JobId) -> Option<(JobId, u32)> {
        let (&leader, &size) = self.hets.range(..=id).next_back()?;
        (id.0 - leader.0 < size).then_some((leader, size))
    }

    /// Returns whether a job is a component of a heterogeneous job other than the first.
    pub(crate) fn is_component(&self, id: JobId) -> bool {
        self.het_of(id).is_some_and(|(leader, _)| leader != id)
    }

    /// Checks a heterogeneous job after each record: all components run together, and none outlasts the first.
    fn check_components(&mut self, leader: JobId, size: u32) {
        let all: Vec<(JobId, &JobFile)> =
            self.files.range(leader..JobId(leader.0 + size)).map(|(id, file)| (*id, file)).collect();
        let holds = |file: &JobFile| matches!(file.phase, Phase::Starting | Phase::Running | Phase::Unreported);
        let runs = all.iter().find(|(_, file)| holds(file)).map(|(id, _)| *id);
        let waits = all.iter().find(|(_, file)| file.phase == Phase::Pending).map(|(id, _)| *id);
        let over = all.iter().any(|(id, file)| *id == leader && file.ended.is_some() && !file.requeue);
        match (runs, waits) {
            (Some(runs), Some(waits)) => {
                let text = format!("of job {leader}, {runs} runs and {waits} waits");
                self.violate("no component runs without the others", text);
            }
            (Some(left), None) | (None, Some(left)) if over => {
                self.violate("components end with the first", format!("job {left} after job {leader}"));
            }
            _ => {}
        }
    }

    /// Records that jobs just submitted are components of one heterogeneous job, which share a job order.
    fn het_formed_event(&mut self, leader: JobId, size: u32, clients: &Clients) {
        let Some((_, order)) = self.submission_of(leader) else { return };
        self.submitted.insert(leader, (size, order));
        self.hets.insert(leader, size);
        let held = clients.order(order).is_some_and(|order| order.hold);
        for offset in 1..size {
            self.open(JobId(leader.0 + offset), order, None, held);
        }
    }

    /// Checks the records that recovery found: all durable ones, and perhaps more. Returns the number of additional
    /// records.
    pub(crate) fn recovered(&mut self, records: &[Record]) -> u64 {
        let last = records.last().map_or(0, |record| record.seq);
        let gap = records.iter().enumerate().find(|(at, record)| record.seq != *at as u64 + 1);
        if let Some((at, record)) = gap {
            self.violate("records follow each other", format!("{} is the {at}th of the journal", record.seq));
        }
        if last < self.last_record {
            self.violate("what was flushed survives", format!("records {}..{} are gone", last + 1, self.last_record));
        }
        self.found = records.iter().skip(self.last_record as usize).cloned().collect();
        last.saturating_sub(self.last_record)
    }

    /// Checks the records that were not flushed before a crash and survived it, as durable ones.
    pub(crate) fn take_survivors(&mut self, now: Time, clients: &Clients) {
        for record in std::mem::take(&mut self.found) {
            self.durable(now, &record, clients);
        }
    }

    fn event(&mut self, now: Time, decided: Time, event: &Event, clients: &Clients) {
        let order = match event {
            Event::JobStarted { id, .. } => self.files.get(id).and_then(|file| clients.order(file.order)),
            _ => None,
        };
        self.boot_event(decided, event, order.and_then(|order| order.options.get()));
        self.power_event(decided, event);
        match event {
            Event::ControllerStarted { .. } => (self.released, self.spawned, self.led_since) = (0, 0, decided),
            Event::NodeRegistered { node, name, .. } => {
                if let Some(host) = self.names.iter().position(|n| n == name) {
                    self.hosts.insert(*node, host);
                    self.heard[host] = now;
                }
            }
            Event::NodeUp { node } => {
                if let Some(host) = self.host(*node) {
                    self.heard[host] = now;
                }
            }
            Event::NodesSet { nodes, admin, .. } => self.nodes_set_event(nodes, *admin),
            Event::JobSubmitted { id, spec, owner, .. } => {
                self.note_asked(*id, owner.uid, spec);
                self.submitted_event(*id, spec, clients);
            }
            Event::PolicyChanged { changes, .. } => self.note_policy(changes),
            Event::JobStarted { id, attempt, partition, alloc } => {
                if let Some(file) = self.files.get_mut(id) {
                    file.limit_from = decided;
                }
                self.check_limits(*id, partition, alloc);
                self.wire(*id, &alloc.nodes(), clients);
                self.started_event(decided, *id, attempt.0, alloc, clients);
            }
            Event::JobShrunk { id, alloc, .. } => self.note_kept(*id, alloc),
            Event::JobBilled { id, billing, .. } => self.check_billed(*id, *billing),
            Event::NodeReplaced { id, attempt, node, alloc, .. } => self.replaced_event(*id, attempt.0, *node, alloc),
            Event::StepNodesEnded { job, attempt, step, nodes, end, .. } => {
                let key = StepKey { job: *job, attempt: *attempt, step: *step };
                nodes.iter().for_each(|node| self.step_ended_event(now, key, node, end, clients));
            }
            Event::JobEnding { id, outcome, requeue } => {
                self.check_reason(now, *id, outcome);
                self.ending_event(decided, *id, outcome, requeue.is_some());
            }
            Event::NodesReleased { id, attempt, nodes } => self.released_event(now, *id, attempt.0, nodes, clients),
            Event::Forgotten { ended_before } => self.forgotten = self.forgotten.max(*ended_before),
            Event::TasksEnded { array, tasks, .. } => self.tasks_ended_event(*array, tasks),
            Event::JobHeld { id, whole, .. } => {
                // A held job is recalled from its lease, and the next one in its line may start before it.
                for id in self.touch(*id, *whole) {
                    self.leave_line(id);
                }
            }
            Event::JobReleased { id, whole } | Event::JobUpdated { id, whole, .. } => {
                self.touch(*id, *whole);
            }
            Event::JobSuspended { id, .. } => self.note_suspended(*id, false),
            Event::Ganged { shifts } => shifts.iter().for_each(|shift| self.note_suspended(shift.job, true)),
            Event::JobLeased { id, attempt, behind } => self.leased_event(decided, *id, attempt.0, *behind, clients),
            Event::LeaseReturned { id, attempt } => self.returned_event(*id, attempt.0),
            Event::HetFormed { leader, size } => self.het_formed_event(*leader, *size, clients),
            Event::JobRequeued { id, .. } => {
                if let Some(file) = self.files.get_mut(id) {
                    file.may_repeat = true;
                }
                self.move_to(*id, Phase::Pending);
                self.touch(*id, false);
            }
            _ => {}
        }
    }

    fn note_suspended(&mut self, id: JobId, shares: bool) {
        if let Some(file) = self.files.get_mut(&id) {
            file.was_suspended = true;
            file.shares |= shares;
        }
    }

    fn nodes_set_event(&mut self, nodes: &NodeSet, admin: NodeAdmin) {
        for host in nodes.iter().filter_map(|node| self.host(node)).collect::<Vec<_>>() {
            if admin == NodeAdmin::Down {
                self.down.insert(host);
            } else {
                self.down.remove(&host);
            }
        }
    }

    fn submitted_event(&mut self, id: JobId, spec: &JobSpec, clients: &Clients) {
        let Some(order) = Order::tag_of(spec) else { return };
        let count = spec.array.as_ref().map_or(1, |array| array.indices.len() as u32);
        let last = JobId(id.0 + count - 1);
        let overlap = self.submitted.range(..=last).next_back();
        if let Some((&other, &(size, _))) = overlap
            && other.0 + size > id.0
        {
            self.violate("no id is given twice", format!("job {id} and job {other}"));
        }
        if let Some(other) = self.ids.get(&order) {
            self.violate("a submission is accepted once", format!("order {order} is job {other} and job {id}"));
        }
        self.submitted.insert(id, (count, order));
        self.ids.insert(order, id);
        self.note_lifted(order, clients);
        if spec.array.is_none() {
            // The user's original request, whatever became of it on the way.
            let asked = clients.order(order);
            let held = asked.is_some_and(|o| o.hold);
            self.open(id, order, None, held);
            let plain = |order: &Order| {
                let apart = order.partition.is_some() || order.qos.is_some() || order.reservation.is_some();
                order.after.is_empty() && !apart && order.options == Options::default() && order.beside == 0
            };
            if !held && asked.is_some_and(plain) {
                self.waiting.entry(shape(spec)).or_default().insert(id);
            }
        }
    }

    fn open(&mut self, id: JobId, order: usize, index: Option<u32>, held: bool) {
        self.census[Phase::Pending as usize] += 1;
        self.files.insert(id, JobFile::new(order, index, held));
    }

    /// Returns the facts about a job; those of an array task are created at its first event.
    fn file(&mut self, id: JobId, array: Option<&ArraySpec>) -> Option<&mut JobFile> {
        if !self.files.contains_key(&id) {
            let (first, order) = self.submission_of(id)?;
            let index = array.and_then(|a| a.indices.at(a.rank_of(first, id)?));
            self.open(id, order, index, false);
        }
        self.files.get_mut(&id)
    }

    /// Records that a running job has got a node in the place of one that failed. `alloc`: what it holds from then on.
    fn replaced_event(&mut self, id: JobId, attempt: u32, node: NodeId, alloc: &Alloc) {
        self.note_kept(id, alloc);
        let host = self.host(node);
        if let Some(file) = self.files.get_mut(&id).filter(|file| file.attempt == attempt) {
            // A node that had the job before and comes back still has to forget that.
            let is_spare = !file.left.insert(node);
            let is_back = !file.nodes.insert(node) && !is_spare;
            if let Some(host) = host.filter(|_| is_back) {
                file.back.insert(node);
                self.programs_owed_again(host, JobAttempt { job: id, attempt: Attempt(attempt) });
            }
        }
    }

    fn started_event(&mut self, decided: Time, id: JobId, attempt: u32, alloc: &Alloc, clients: &Clients) {
        if !self.has_begun_event(id, attempt) {
            self.leave_place(id);
            self.granted_event(decided, id, attempt, alloc.nodes(), clients);
        }
    }

    /// Checks and records an allocation for a pending job's next attempt: no equal job that was submitted earlier may
    /// be overtaken. The job starts at once, or when the jobs before it in a line have ended.
    pub(super) fn granted_event(&mut self, decided: Time, id: JobId, attempt: u32, nodes: NodeSet, clients: &Clients) {
        let Some((_, order)) = self.submission_of(id) else {
            return self.violate("only what was submitted starts", format!("job {id}"));
        };
        let array = clients.order(order).and_then(|o| o.array.clone());
        let Some(file) = self.file(id, array.as_ref()) else { return };
        let (was, before) = (file.phase, file.attempt);
        let wanted_back = |outcome: &Outcome| matches!(outcome.state, EndState::Requeued | EndState::Preempted);
        let ended_well = file.truth.is_some_and(ExitCode::is_ok) && !file.unseen && !file.may_repeat;
        let again = ended_well && before > 0 && file.outcome.as_ref().is_some_and(wanted_back);
        file.attempt = attempt;
        (file.left, file.back) = (nodes.clone(), NodeSet::new());
        file.granted = nodes.clone();
        file.nodes = nodes;
        file.started = Some(decided);
        (file.ended, file.outcome, file.requeue, file.suspended) = (None, None, false, None);
        (file.truth, file.unseen, file.was_suspended, file.may_repeat) = (None, false, false, false);
        if was != Phase::Pending || attempt != before + 1 {
            self.violate(
                "only pending jobs start, each attempt once",
                format!("job {id} attempt {attempt} after {before}, {was:?}"),
            );
        }
        if again {
            let text = format!("job {id}: attempt {before} ended with 0:0 before it was told to end");
            self.violate("what has come to its end is not run again", text);
        }
        self.move_to(id, Phase::Starting);
        self.progress = decided;
        let mut overtaken = None;
        for waiting in self.waiting.values_mut() {
            if waiting.contains(&id) {
                overtaken = waiting.first().copied().filter(|first| *first != id);
                waiting.remove(&id);
            }
        }
        if let Some(first) = overtaken {
            self.violate("equal jobs start in the order they came", format!("job {id} before job {first}"));
        }
    }

    fn step_ended_event(&mut self, now: Time, key: StepKey, node: NodeId, end: &StepEnd, clients: &Clients) {
        let Some(host) = self.host(node) else { return };
        let order = self.files.get(&key.job).and_then(|file| clients.order(file.order));
        let fence_s = order.and_then(|order| order.options.node_fence_s);
        let given_up = self.is_given_up(host, now);
        let gone = given_up || fence_s.is_some_and(|fence_s| self.is_silent_for(host, fence_s, now));
        if self.live.contains(&(key, host)) && !given_up {
            self.violate(
                "a step that is reported ended has no processes",
                format!("step {key} on {}", self.names[host]),
            );
        }
        match self.exits.get(&(key, host)) {
            Some(&(exit, false)) if !end.lost && exit != end.exit => {
                let text = format!("step {key}: {:?} was reported, {exit:?} was true", end.exit);
                self.violate("exit codes are what the processes did", text);
            }
            Some(&(_, false)) if end.lost && !end.is_fenced() && !gone => {
                self.violate("exit codes are lost only where nobody saw them", format!("step {key}"));
            }
            _ => {}
        }
    }

    /// Checks that the reason of a job's end is true.
    fn check_reason(&mut self, now: Time, id: JobId, outcome: &Outcome) {
        let Some(file) = self.files.get(&id).filter(|file| !file.was_suspended) else { return };
        let lived = now.since(file.limit_from).secs();
        let limit_s = self.first_limits.get(&file.order).copied();
        let early = limit_s.is_some_and(|limit_s| lived + LIMIT_EARLY_S < limit_s) && !file.touched;
        let early = early
            && self.het_of(id).is_none()
            && outcome.state == EndState::Timeout
            && file.limit_from > self.trouble_until;
        let by_us = [TERM, KILL].contains(&outcome.exit.signal) && outcome.state == EndState::Failed;
        let goes_back = file.phase == Phase::Ending && file.requeue;
        if early {
            let text = format!("job {id} had run for {lived} s, its limit is {limit_s:?}");
            self.violate("time limits end jobs when their time is over", text);
        }
        if by_us && goes_back {
            self.violate("who is to run again is not ended by that", format!("job {id}: {:?}", outcome.exit));
        }
    }

    fn ending_event(&mut self, decided: Time, id: JobId, outcome: &Outcome, requeue: bool) {
        self.waiting.values_mut().for_each(|w| {
            w.remove(&id);
        });
        self.leave_line(id);
        let Some(file) = self.file(id, None) else { return };
        file.ended = Some(decided);
        file.outcome = Some(outcome.clone());
        file.requeue = requeue;
        // A suspended job that is to end is resumed: otherwise its processes would not get SIGTERM.
        file.suspended = None;
        let (was, touched) = (file.phase, file.touched);
        file.touched = touched || requeue;
        self.progress = decided;
        self.move_to(id, if was == Phase::Pending { Phase::Ended } else { Phase::Ending });
    }

    fn released_event(&mut self, now: Time, id: JobId, attempt: u32, nodes: &NodeSet, clients: &Clients) {
        for node in nodes.iter() {
            let Some(host) = self.host(node) else { continue };
            let job = JobAttempt { job: id, attempt: Attempt(attempt) };
            self.check_hidden(now, job, host);
            let live = self.live_on(job, host).next();
            if self.is_given_up(host, now) {
                self.give_up(job, host);
            } else if let Some(key) = live {
                let (name, silent) = (&self.names[host], now.since(self.heard[host]).secs());
                let text = format!("step {key} lives on {name}, which was heard of {silent} s ago");
                self.violate("a node is released when nothing is left there", text);
            }
        }
        self.released += nodes.len() as u64;
        self.unwire(id, nodes);
        let Some(file) = self.files.get_mut(&id) else { return };
        // A node fence may have passed: then what had ended there was not told.
        file.may_repeat |= clients.order(file.order).is_some_and(|order| order.options.node_fence_s.is_some());
        if file.attempt != attempt || !nodes.is_subset(&file.left) {
            let text = format!("job {id} attempt {attempt}: {nodes:?} of {:?}", file.left);
            return self.violate("a node is released once", text);
        }
        file.left.subtract(nodes);
        if !file.left.is_empty() {
            return;
        }
        let (requeue, phase) = (file.requeue, file.phase);
        self.holding.remove(&id);
        self.progress = now;
        if phase != Phase::Ending {
            return self.violate("a job ends by a decision", format!("job {id} was released in {phase:?}"));
        }
        self.move_to(id, if requeue { Phase::Pending } else { Phase::Ended });
        if !requeue {
            self.check_end(id, clients);
        }
    }

    /// Returns the live steps of an attempt on a node.
    fn live_on(&self, job: JobAttempt, host: usize) -> impl Iterator<Item = StepKey> + '_ {
        let live = self.live.iter().filter(move |(key, on)| *on == host && attempt_of(*key) == job);
        live.map(|(key, _)| *key)
    }

    /// Marks a job's processes on a node as given up: the controller released the node without a report.
    fn give_up(&mut self, job: JobAttempt, host: usize) {
        if let Some(file) = self.files.get_mut(&job.job) {
            file.may_repeat = true;
        }
        let lost = self.live_on(job, host).count() as u32;
        if self.given_up.insert((job, host)) && lost > 0 {
            self.uncount(job.job, lost);
        }
    }

    /// Records that a node lost power or records of its spool (state directory): its unsent reports about jobs are
    /// lost.
    pub(crate) fn power_lost(&mut self, host: usize) {
        let hosts = &self.hosts;
        let on_it = |file: &JobFile| file.left.iter().any(|node| hosts.get(&node) == Some(&host));
        self.files.values_mut().filter(|file| on_it(file)).for_each(|file| file.may_repeat = true);
        let here = self.exits.iter_mut().filter(|((_, on), _)| *on == host);
        here.for_each(|(_, (_, unseen))| *unseen = true);
    }

    /// Checks that no process that hid from its step is alive on a released node.
    fn check_hidden(&mut self, now: Time, job: JobAttempt, host: usize) {
        if self.hidden.contains(&(job, host)) && !self.is_given_up(host, now) {
            let text = format!("a hidden process of job {} lives on {}", job.job, self.names[host]);
            self.violate("a node is released when nothing is left there", text);
        }
    }

    /// Checks that the recorded outcome of a job is what its processes did.
    fn check_end(&mut self, id: JobId, clients: &Clients) {
        let Some(file) = self.files.get(&id).filter(|_| !self.is_component(id)) else { return };
        let (Some(outcome), Some(order)) = (&file.outcome, clients.order(file.order)) else { return };
        let told = matches!(outcome.state, EndState::Completed | EndState::Failed);
        if order.kind != JobKind::Batch || !told || file.unseen {
            return;
        }
        let reason = outcome.reason.clone().unwrap_or_default();
        match file.truth {
            Some(truth) if truth == outcome.exit => {}
            // The part of another node was damaged, which has ended this one.
            Some(truth)
                if truth.signal != 0
                    && self.damaged.contains_key(&JobAttempt { job: id, attempt: Attempt(file.attempt) }) => {}
            truth => {
                let text = format!("job {id}: told {:?} {:?} {reason}, true {truth:?}", outcome.state, outcome.exit);
                self.violate("exit codes are what the processes did", text);
            }
        }
    }

    fn tasks_ended_event(&mut self, array: JobId, tasks: &IndexSet) {
        *self.skipped.entry(array).or_default() += tasks.len() as u32;
    }

    /// Records that a job's queue position may change from now on, or with `whole` that of all jobs of its submission.
    /// Returns these jobs.
    fn touch(&mut self, id: JobId, whole: bool) -> Vec<JobId> {
        let ids: Vec<JobId> = match self.submission_of(id).filter(|_| whole) {
            Some((first, _)) => self
                .files
                .range(first..)
                .take_while(|(i, _)| self.submission_of(**i).is_some_and(|s| s.0 == first))
                .map(|(&i, _)| i)
                .collect(),
            None => vec![id],
        };
        for id in &ids {
            self.waiting.values_mut().for_each(|w| {
                w.remove(id);
            });
            if let Some(file) = self.files.get_mut(id) {
                file.touched = true;
            }
        }
        ids
    }
}

impl JobFile {
    fn new(order: usize, index: Option<u32>, held: bool) -> Self {
        Self {
            order,
            index,
            phase: Phase::Pending,
            attempt: 0,
            nodes: NodeSet::new(),
            granted: NodeSet::new(),
            left: NodeSet::new(),
            back: NodeSet::new(),
            outcome: None,
            requeue: false,
            started: None,
            ended: None,
            live: 0,
            live_attempt: 0,
            runs: 0,
            last_run: 0,
            first_process: None,
            last_process_end: None,
            process_started: Time::default(),
            limit_from: Time::default(),
            truth: None,
            unseen: false,
            touched: false,
            held,
            cancelled: None,
            requeue_sent: false,
            may_repeat: false,
            suspended: None,
            was_suspended: false,
            shares: false,
            line: None,
        }
    }
}

fn shape(spec: &JobSpec) -> super::Shape {
    let memory = match spec.need.memory {
        squall_model::resource::Memory::PerNodeMb(mb) => mb,
        _ => 0,
    };
    // A job that ends sooner may start before one that would run longer.
    (spec.need.nodes_min.unwrap_or(1), spec.need.task_cpus(), memory, spec.limit_s())
}
