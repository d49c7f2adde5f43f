//! Checks of processes: which must and which must not run.

use squall_engine::node::attempt_of;
use squall_model::id::{JobId, StepKey, StepNo};
use squall_model::job::{DependencyKind, EndState, ExitCode, JobAttempt, JobKind};
use squall_model::step::StepLaunch;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{UpFrame, Upward};

use super::{JobFile, Judge};
use crate::coverage::Phase;
use crate::order::Order;
use crate::world::client::{Clients, user_of};
use crate::world::node::NodeHost;

/// For each core of a node: the job of the live processes that use it, and their number. None: no process uses it.
type Cores = [Option<(JobAttempt, u32)>];

/// Tolerance by which a process may outlast its time limit and KillWait, seconds.
const LIMIT_SLACK_S: u64 = 60;

/// Tolerance between the answer to the user and the stop of every process of a suspended job.
const SUSPEND_SLACK: Span = Span::from_secs(2);

impl Judge {
    /// Checks and records the start of a step's tasks on a node.
    pub(crate) fn processes_start(
        &mut self,
        now: Time,
        node: usize,
        cores: &mut Cores,
        launch: &StepLaunch,
        clients: &Clients,
    ) {
        let key = launch.key;
        if !self.launched.insert((key, node)) {
            self.violate("an attempt starts once", format!("step {key} started again on {}", self.names[node]));
        }
        self.live.insert((key, node));
        self.book(node, cores, launch);
        if !self.files.contains_key(&key.job) {
            return self.violate("a job runs only after its start is durable", format!("step {key}"));
        }
        self.check_right_to_run(key, node, clients);
        let (owner, order) = (launch.facts.owner.uid, Order::tag_of(&launch.facts.spec));
        if order.is_some_and(|order| owner != user_of(order)) {
            self.violate("a job runs as its owner", format!("step {key} runs as user {owner}"));
        }
        self.begins_in_line(key);
        let (main, counts) = (is_main(launch), self.counts(key, node));
        let Some(file) = self.files.get_mut(&key.job) else { return };
        if counts {
            file.live += 1;
            file.live_attempt = key.attempt.0;
        }
        file.first_process.get_or_insert(now);
        file.process_started = now;
        let order = file.order;
        if main && file.last_run != key.attempt.0 {
            file.runs += 1;
            file.last_run = key.attempt.0;
        }
        if counts && file.live == 1 {
            let width = self.widths.entry(order).or_default();
            width.live += 1;
            width.most = width.most.max(width.live);
            let (live, limit) = (width.live, clients.array_limit(order));
            if limit.is_some_and(|limit| live > limit) {
                self.violate("no more tasks of an array run than its limit", format!("{live} of job {}", key.job));
            }
        }
        if self.files.get(&key.job).is_some_and(|f| f.phase == Phase::Starting) {
            self.move_to(key.job, Phase::Running);
        }
    }

    fn check_right_to_run(&mut self, key: StepKey, node: usize, clients: &Clients) {
        let Some(file) = self.files.get(&key.job) else { return };
        let (attempt, started) = (file.attempt, file.started);
        if key.attempt.0 > attempt || started.is_none() {
            self.violate("a job runs only after its start is durable", format!("step {key}, durable is {attempt}"));
        } else if file.live > 0 && file.live_attempt != key.attempt.0 && self.counts(key, node) {
            let other = file.live_attempt;
            self.violate("at most one attempt lives", format!("step {key} while attempt {other} lives"));
        } else if file.held {
            self.violate("a held job does not start", format!("job {}", key.job));
        } else if file.cancelled.is_some_and(|last| key.attempt.0 > last) && !file.requeue_sent {
            self.violate("a cancelled job does not start", format!("job {}", key.job));
        } else if let Some(problem) = self.unmet(file, clients) {
            self.violate("dependencies hold", format!("job {} started although {problem}", key.job));
        }
    }

    /// Returns a description of a job's dependency that does not hold, by what processes did. None: all hold.
    fn unmet(&self, file: &JobFile, clients: &Clients) -> Option<String> {
        let order = clients.order(file.order)?;
        let holds =
            |kind, other| self.lifted.contains(&(file.order, other)) || self.holds(kind, other, file.index, clients);
        let terms = order.after.iter().map(|&(kind, other)| (holds(kind, other), kind, other));
        let bad: Vec<_> = terms.clone().filter(|(holds, ..)| !holds).collect();
        let fine = if order.any { bad.len() < order.after.len() || order.after.is_empty() } else { bad.is_empty() };
        (!fine).then(|| format!("{:?} of order {} does not hold ({})", bad[0].1, bad[0].2, self.fates(bad[0].2)))
    }

    /// Notes the dependencies of a new job order on jobs that may not be known any more. They are lifted, as in Slurm.
    pub(super) fn note_lifted(&mut self, order: usize, clients: &Clients) {
        let Some(asked) = clients.order(order) else { return };
        let is_gone = |other: usize| {
            let (Some(&first), Some(target)) = (self.ids.get(&other), clients.order(other)) else { return false };
            let count = target.array_tasks();
            let files: Vec<&JobFile> = self.files.range(first..JobId(first.0 + count)).map(|(_, file)| file).collect();
            let skipped = self.skipped.get(&first).copied().unwrap_or(0);
            let old = |file: &JobFile| file.ended.is_some_and(|ended| ended < self.forgotten);
            files.len() as u32 + skipped >= count && files.iter().all(|file| file.phase == Phase::Ended && old(file))
        };
        let gone: Vec<usize> = asked.after.iter().map(|&(_, other)| other).filter(|&other| is_gone(other)).collect();
        self.lifted.extend(gone.into_iter().map(|other| (order, other)));
    }

    /// Returns the states of the first three jobs of a job order as one line, for violation messages.
    fn fates(&self, order: usize) -> String {
        let Some(&first) = self.ids.get(&order) else { return "never acknowledged".to_owned() };
        let fates = self.files.range(first..).take(3).map(|(id, file)| {
            let state = file.outcome.as_ref().map(|outcome| outcome.state);
            format!("job {id}: {:?} {state:?}, truly {:?}, {} live", file.phase, file.truth, file.live)
        });
        fates.collect::<Vec<_>>().join("; ")
    }

    fn holds(&self, kind: DependencyKind, other: usize, index: Option<u32>, clients: &Clients) -> bool {
        let (Some(&first), Some(order)) = (self.ids.get(&other), clients.order(other)) else { return false };
        let count = order.array_tasks();
        let range = self.files.range(first..JobId(first.0 + count));
        let files = || range.clone().map(|(_, file)| file);
        let skipped = self.skipped.get(&first).copied().unwrap_or(0);
        let all_seen = files().count() as u32 + skipped >= count;
        // If a job was requeued after others had waited for it, these may have started already, or be about to.
        if files().any(|file| file.requeue_sent) {
            return true;
        }
        let over = |file: &JobFile| file.live == 0 && file.phase == Phase::Ended;
        match kind {
            DependencyKind::After => all_seen && files().all(|f| f.runs > 0 || f.attempt > 0 || over(f)),
            DependencyKind::AfterAny => all_seen && files().all(over),
            DependencyKind::AfterOk => all_seen && skipped == 0 && files().all(|f| over(f) && did_well(order, f)),
            DependencyKind::AfterNotOk => {
                all_seen && files().all(over) && (skipped > 0 || files().any(|f| !did_well(order, f)))
            }
            DependencyKind::AfterCorr => files().any(|f| f.index == index && over(f) && did_well(order, f)),
            DependencyKind::AfterBurstBuffer | DependencyKind::Singleton => true,
        }
    }

    fn book(&mut self, node: usize, cores: &mut Cores, launch: &StepLaunch) {
        let job = JobAttempt { job: launch.key.job, attempt: launch.key.attempt };
        let shares = self.files.get(&job.job).is_some_and(|file| file.shares);
        for core in launch.cores.iter().filter(|_| !shares) {
            match cores.get_mut(core) {
                None => {
                    let text = format!("step {} runs on core {core} of {}", launch.key, self.names[node]);
                    return self.violate("cores exist", text);
                }
                Some(holder @ None) => *holder = Some((job, 1)),
                Some(Some((holder, count))) if *holder == job => *count += 1,
                Some(Some((holder, _))) => {
                    let text = format!("core {core} of {}: job {} and job {}", self.names[node], holder.job, job.job);
                    return self.violate("nothing is booked twice", text);
                }
            }
        }
        let share = launch.facts.memory_mb.get(launch.job_node_index as usize).copied().unwrap_or(0);
        if is_main(launch) {
            self.memory[node] += share;
            if self.memory[node] > self.memory_mb {
                let text = format!("{} MiB of {} on {}", self.memory[node], self.memory_mb, self.names[node]);
                self.violate("nothing is booked twice", text);
            }
        }
    }

    /// Records the end of a step's tasks on a node. `(exit, unseen)`: the exit code, and whether all processes that
    /// could observe it were dead.
    pub(crate) fn processes_end(
        &mut self,
        now: Time,
        node: usize,
        cores: &mut Cores,
        launch: &StepLaunch,
        (exit, unseen): (ExitCode, bool),
    ) {
        let key = launch.key;
        if !self.live.remove(&(key, node)) {
            return;
        }
        self.exits.insert((key, node), (exit, unseen));
        for core in launch.cores.iter() {
            if let Some(holder @ Some(_)) = cores.get_mut(core)
                && let Some((_, count)) = holder
            {
                *count -= 1;
                if *count == 0 {
                    *holder = None;
                }
            }
        }
        if is_main(launch) {
            let share = launch.facts.memory_mb.get(launch.job_node_index as usize).copied().unwrap_or(0);
            self.memory[node] = self.memory[node].saturating_sub(share);
        }
        self.check_limit(now, launch);
        let counts = self.counts(key, node);
        let Some(file) = self.files.get_mut(&key.job) else { return };
        file.last_process_end = Some(now);
        if is_main(launch) && file.attempt == key.attempt.0 {
            file.truth = Some(exit);
            file.unseen |= unseen;
        }
        if counts {
            self.uncount(key.job, 1);
        }
    }

    /// Returns whether a step's processes on a node still count, because the controller has not given up the attempt
    /// there.
    fn counts(&self, key: StepKey, node: usize) -> bool {
        !self.given_up.contains(&(attempt_of(key), node))
    }

    /// Subtracts `steps` from a job's number of steps with live processes.
    pub(super) fn uncount(&mut self, id: JobId, steps: u32) {
        let Some(file) = self.files.get_mut(&id) else { return };
        file.live = file.live.saturating_sub(steps);
        let (live, order, phase) = (file.live, file.order, file.phase);
        if live == 0 {
            let width = self.widths.entry(order).or_default();
            width.live = width.live.saturating_sub(1);
            if phase == Phase::Running {
                self.move_to(id, Phase::Unreported);
            }
        }
    }

    /// Records that the process that observed a step's exit on a node was killed before it reported the exit.
    pub(crate) fn lose_sight(&mut self, key: StepKey, node: usize) {
        if let Some((_, unseen)) = self.exits.get_mut(&(key, node)) {
            *unseen = true;
        }
        if let Some(file) = self.files.get_mut(&key.job).filter(|f| f.attempt == key.attempt.0) {
            file.unseen = true;
        }
    }

    /// Checks the end of a process that has finished its work: it must not have run while its job was
    /// suspended, or long after its job has lost the node.
    pub(crate) fn process_done(&mut self, now: Time, node: usize, key: StepKey) {
        self.check_left(now, node, key);
        let since = self.files.get(&key.job).and_then(|file| file.suspended);
        let calm = since.is_some_and(|since| since > self.trouble_until);
        if let Some(since) = since.filter(|since| calm && now.since(*since) > SUSPEND_SLACK) {
            let text = format!("step {key} went on {} s after it was suspended", now.since(since).secs());
            self.violate("a suspended job does not run", text);
        }
    }

    fn check_limit(&mut self, now: Time, launch: &StepLaunch) {
        let Some(file) = self.files.get(&launch.key.job) else { return };
        let calm = file.process_started > self.trouble_until && !file.was_suspended;
        let over = self.limits.get(&file.order).is_some_and(|limit_s| {
            let lived = now.since(file.process_started).secs();
            lived > limit_s + self.kill_wait_s + LIMIT_SLACK_S
        });
        if calm && over {
            let (id, limit_s) = (launch.key.job, self.limits.get(&file.order).copied());
            let lived = now.since(file.process_started).secs();
            self.violate("time limits end jobs", format!("job {id} lived {lived} s, its limit is {limit_s:?}"));
        }
    }

    /// Records the violation that a sweep, which is repeated, found live tasks of a step: they were started during the
    /// sweep.
    pub(crate) fn swept_alive(&mut self, node: usize, key: StepKey) {
        let text = format!("step {key} on {}", self.names[node]);
        self.violate("nothing is started while it is being swept", text);
    }

    /// Checks a node's registration: it must name every job that has live processes there, otherwise the controller
    /// would start these again.
    pub(crate) fn registers(&mut self, node: usize, frame: &UpFrame) {
        let composites = frame.says.iter().filter_map(|say| match say {
            Upward::Composite { composite, .. } => Some(composite),
            _ => None,
        });
        let said = composites.flat_map(|composite| &composite.registrations);
        let Some(said) = said.rev().find(|said| said.name == self.names[node]) else { return };
        let unsaid = self.live.iter().find(|(key, host)| *host == node && !said.jobs.contains(&attempt_of(*key)));
        if let Some((key, _)) = unsaid {
            let text = format!("step {key} lives on {}", self.names[node]);
            self.violate("a node that registers knows what lives there", text);
        }
    }

    /// Checks that a node's spool may delete a job's records: its release from the node is durable, and no process of
    /// it is alive there.
    pub(crate) fn forgotten(&mut self, node: usize, job: JobAttempt, host: &NodeHost) {
        let live = host
            .steps
            .iter()
            .find(|(key, step)| key.job == job.job && key.attempt == job.attempt && step.has_live_tasks());
        let id = self.hosts.iter().find(|(_, host)| **host == node).map(|(id, _)| *id);
        let file = self.files.get_mut(&job.job).filter(|file| file.attempt == job.attempt.0);
        let held = file.zip(id).is_some_and(|(file, id)| file.left.contains(id) && !file.back.remove(id));
        if held {
            let text = format!("job {} on {}", job.job, self.names[node]);
            self.violate("what is forgotten is durable", text);
        }
        if let Some((key, _)) = live {
            let text = format!("step {key} lives on {}", self.names[node]);
            self.violate("a job is forgotten when nothing is left of it", text);
        }
    }
}

/// Returns whether a job ended successfully, by its processes and the recorded outcome. If the exit was not observed,
/// the outcome alone counts.
fn did_well(order: &Order, file: &JobFile) -> bool {
    let told = file.outcome.as_ref().is_some_and(|o| o.state == EndState::Completed);
    // An allocation's exit is what its client reports, whatever happened to its steps.
    told && (order.kind != JobKind::Batch || file.truth.is_none_or(ExitCode::is_ok) || file.unseen)
}

/// Returns whether a launch starts the script of a batch job or the first step of another job.
fn is_main(launch: &StepLaunch) -> bool {
    let batch = launch.facts.spec.kind == JobKind::Batch;
    !launch.has_keeper() && launch.key.step == if batch { StepNo::BATCH } else { StepNo(0) }
}
