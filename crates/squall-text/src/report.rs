//! What `squall report` and `seff` tell of a job: used of asked, how it ended and why, what to ask for next time. Also the
//! line at the end of a batch job's output (`sbatch --report`).

use std::fmt::Write;

use serde_json::{Value, json};
use squall_model::cost::{Cost, LostTime};
use squall_model::duration::{format_elapsed, format_limit, format_memory_mb};
use squall_model::gres;
use squall_model::id::StepNo;
use squall_model::job::{EndState, ExitCode, JobKind, JobState, Outcome};
use squall_model::report::StepEnd;
use squall_model::resource::Memory;
use squall_model::step::StepLaunch;
use squall_model::time::{Span, Time};
use squall_model::wire::info::Why;
use squall_model::wire::node::EndReason;

use crate::columns::accounting::{stderr, stdout};
use crate::format::accounting::{Row, cpu_text};
use crate::format::{harmless, why, words};
use crate::options::values::signal::signal_text;

pub mod lately;
pub mod many;
mod over_time;
pub mod record;

/// Signal number by which Slurm and Squall mark a job that could not be started, such as for an output file that can't be
/// written: `0:53`.
const NO_START: u8 = 53;

/// Reason of a job that was cancelled for its dependency (`--kill-on-invalid-dep`).
const NEVER: &str = "DependencyNeverSatisfied";

/// What a job has used of the CPUs and the memory that it holds or held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobUsage {
    /// CPU time of all steps, seconds.
    pub cpu_s: u64,
    /// CPU time that the job held: elapsed seconds times CPUs.
    pub held_cpu_s: u64,
    /// Peak resident memory of the step that used most, over all nodes, KiB.
    pub memory_kb: u64,
    /// Memory that the job asked for, over all nodes, KiB. 0: it did not ask.
    pub asked_kb: u64,
}

impl JobUsage {
    /// Adds up what the steps of a job have used.
    pub fn of(job: &Row, steps: &[Row]) -> Self {
        Self {
            cpu_s: steps.iter().map(|step| step.total_cpu().secs()).sum(),
            held_cpu_s: job.cpu_time(),
            memory_kb: steps.iter().map(|step| step.data.usage.total_rss_kb).max().unwrap_or(0),
            asked_kb: job.req_memory_mb().saturating_mul(1024),
        }
    }
}

/// Returns `part` as a percentage of `whole`; 0 if `whole` is 0.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// Formats KiB in the largest fitting unit of MB, GB and TB: `1.50 GB`.
pub fn amount(kib: u64) -> String {
    let (mut value, mut unit) = (kib as f64 / 1024.0, "MB");
    for larger in ["GB", "TB"] {
        if value >= 1024.0 {
            (value, unit) = (value / 1024.0, larger);
        }
    }
    format!("{value:.2} {unit}")
}

/// How a job ended, with what tells why.
#[derive(Clone, Copy, Debug)]
struct Ending<'a> {
    how: EndState,
    exit: ExitCode,
    reason: Option<&'a str>,
    /// Name of the user who cancelled the job; empty: not known, or nobody did.
    by: &'a str,
    /// Whether the job has started.
    started: bool,
    limit_s: Option<u64>,
    /// The job's memory limit, MiB. 0: none.
    memory_mb: u64,
    peak_kb: u64,
}

impl Ending<'_> {
    /// Returns in a sentence why the job ended.
    fn cause(&self) -> String {
        let more = |text: &str| match self.reason {
            Some(reason) => format!("{text} ({}).", harmless(reason)),
            None => format!("{text}."),
        };
        match self.how {
            EndState::Completed => "It ended by itself, with exit code 0.".to_owned(),
            EndState::Failed => match self.reason {
                Some(reason) if self.exit.is_ok() => format!("It failed: {}.", harmless(reason)),
                Some(reason) if self.exit.signal == NO_START || reason.starts_with("execve()") => {
                    format!("It could not be started: {}.", harmless(reason))
                }
                _ => exit_text(self.exit),
            },
            EndState::OutOfMemory => match (self.memory_mb, self.peak_kb) {
                (0, _) => "It ran out of memory.".to_owned(),
                (limit, 0) => format!("It used more memory than its limit, {}.", amount(limit.saturating_mul(1024))),
                (limit, peak) => format!(
                    "It used more memory than its limit, {}; the highest measured was {}.",
                    amount(limit.saturating_mul(1024)),
                    amount(peak)
                ),
            },
            EndState::Timeout => format!("It reached its time limit, {}, and was ended.", format_limit(self.limit_s)),
            EndState::Cancelled { .. } if self.reason == Some(NEVER) => {
                "It was cancelled before it started: its dependency could no longer be met.".to_owned()
            }
            EndState::Cancelled { .. } if self.by.is_empty() => more("It was cancelled"),
            EndState::Cancelled { .. } if self.started => more(&format!("{} cancelled it", self.by)),
            EndState::Cancelled { .. } => more(&format!("{} cancelled it before it started", self.by)),
            EndState::NodeFail => more("A node of it failed"),
            EndState::Preempted => more("It was ended in favour of another job"),
            EndState::Deadline => more("It could not end by its deadline"),
            EndState::BootFail => more("It could not be launched"),
            EndState::Requeued => more("This run ended, and the job returned to the queue"),
        }
    }
}

/// Returns the line that ends the output of a batch job, from what the script's own daemon knows: `end` of the script on
/// its node, and the first reason (`why`) that was given for ending it. What `srun` steps of the job used is not in it.
pub fn line(launch: &StepLaunch, end: &StepEnd, why: EndReason) -> String {
    let facts = &launch.facts;
    let Outcome { state, exit, reason } = end.outcome();
    let asked_for = match why {
        EndReason::None | EndReason::Damaged => None,
        EndReason::Requeued | EndReason::RequeuesItself => Some(EndState::Requeued).filter(|_| !end.is_own()),
        EndReason::Cancelled => Some(EndState::Cancelled { by: facts.owner.uid }),
        EndReason::TimeLimit => Some(EndState::Timeout),
        EndReason::NodeFail => Some(EndState::NodeFail),
        EndReason::Preempted => Some(EndState::Preempted),
        EndReason::Unsaved => Some(EndState::Failed),
    };
    let limit_s = facts.end.map(|limit| limit.since(facts.start).secs());
    let peak_kb = end.usage.total_rss_kb;
    let ending = Ending {
        how: asked_for.unwrap_or(state),
        exit,
        reason: reason.as_deref().filter(|_| asked_for.is_none()),
        by: "",
        started: true,
        limit_s,
        memory_mb: launch.memory_mb,
        peak_kb,
    };
    let elapsed = end.ended.since(end.started).secs();
    let (cpu, held) = (end.usage.user.secs() + end.usage.system.secs(), elapsed * launch.cores.len() as u64);
    let memory = match launch.memory_mb.saturating_mul(1024) {
        0 => String::new(),
        asked => format!(" of {} ({:.1} %)", amount(asked), percent(peak_kb, asked)),
    };
    format!(
        "squall: job {}: {}. {} Time {} of {}. Its script used {} of {} CPU time ({:.1} %) and at most {}{memory} memory.\n",
        facts.array.map_or_else(|| launch.key.job.to_string(), |task| format!("{}_{}", task.array, task.index)),
        words::end(ending.how).0,
        ending.cause(),
        format_elapsed(elapsed),
        format_limit(limit_s),
        format_elapsed(cpu),
        format_elapsed(held),
        percent(cpu, held),
        amount(peak_kb),
    )
}

/// All that is known of a job, for `squall report`.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The job's row of accounting.
    pub job: &'a Row,
    /// Rows of its steps.
    pub steps: &'a [Row],
    /// Why the job is pending. None: it is not, or it is not known.
    pub why: Option<&'a Why>,
    /// Name of the user who cancelled the job; empty: nobody did.
    pub cancelled_by: &'a str,
    /// Whether what the job has used so far is not known: it runs, and is another user's.
    pub is_hidden: bool,
}

impl Report<'_> {
    /// Returns the report as text.
    pub fn text(&self) -> String {
        let data = &self.job.data;
        let mut text =
            format!("Job {} ({} of {}): {}\n", self.job.id(), harmless(&data.name), data.owner.user, self.state());
        let _ = writeln!(text, "  {}", self.cause());
        let _ = writeln!(text, "  Partition {}, account {}, QOS {}", data.partition, data.account, data.qos);
        if !data.nodes.is_empty() {
            let _ = writeln!(text, "  {} on {}", counted(data.num_cpus, "CPU"), data.nodes);
        }
        if data.start.is_some() {
            text.push_str(&self.table());
        }
        text.push_str(&self.times());
        text.push_str(&self.losses());
        if !self.steps.is_empty() {
            text.push_str(&self.step_table());
            text.push_str(&over_time::text(self.steps));
        }
        if data.spec.kind == JobKind::Batch && data.pending_tasks.is_none() {
            let (out, err) = (stdout(self.job), stderr(self.job));
            let _ = writeln!(text, "\nOutput: {}", harmless(&out));
            if err != out {
                let _ = writeln!(text, "Errors: {}", harmless(&err));
            }
        }
        let hints = self.hints();
        if !hints.is_empty() {
            text.push_str("\nNext time:\n");
            for hint in hints {
                text.extend(["  ", &hint, "\n"]);
            }
        }
        text
    }

    /// Returns the line on what failures of nodes cost the job; mostly empty.
    fn losses(&self) -> String {
        let Some(losses) = &self.job.data.losses else { return String::new() };
        let (cost, count) = (self.job.cost(), losses.losses.len());
        let text = |span: Span| format_elapsed(span.secs());
        let nodes = if count == 1 { "a failed node".to_owned() } else { format!("{count} failed nodes") };
        format!(
            "  Lost with {nodes}: {} of {} (ETTR {:.3}): {} of work, {} to detect, {} to replace, {} to launch\n",
            text(cost.lost.sum()),
            text(cost.total),
            cost.ettr(),
            text(cost.lost.work),
            text(cost.lost.detect),
            text(cost.lost.replace),
            text(cost.lost.launch)
        )
    }

    /// Returns the report as a JSON object. Times are seconds since 1970.
    pub fn json(&self) -> Value {
        let (data, used) = (&self.job.data, self.used());
        let seconds = |time: Option<Time>| time.filter(|time| time.0 > 0).map(Time::secs);
        let steps: Vec<Value> = self
            .steps
            .iter()
            .map(|step| {
                json!({
                    "id": step.id(),
                    "name": step.data.name,
                    "state": step.state(),
                    "exit_code": exit_json(step.data.exit),
                    "elapsed_seconds": step.elapsed(),
                    "cpu_seconds": step.total_cpu().secs(),
                    "memory_peak_kb": step.data.usage.total_rss_kb,
                    "tasks": step.data.num_tasks,
                    "nodes": step.data.nodes,
                    "over_time": over_time::json(step.data.series.as_deref()),
                })
            })
            .collect();
        json!({
            "job_id": data.id.0,
            "id": self.job.id(),
            "name": data.name,
            "user": data.owner.user,
            "partition": data.partition,
            "account": data.account,
            "qos": data.qos,
            "state": self.state(),
            "exit_code": exit_json(data.exit),
            "cause": self.cause(),
            "nodes": data.nodes,
            "cpus": data.num_cpus,
            "time": { "used_seconds": self.job.elapsed(), "limit_seconds": data.time_limit_s },
            "cpu": {
                "used_seconds": used.cpu_s,
                "held_seconds": used.held_cpu_s,
                "percent": percent(used.cpu_s, used.held_cpu_s),
            },
            "memory": {
                "peak_kb": used.memory_kb,
                "asked_kb": used.asked_kb,
                "percent": percent(used.memory_kb, used.asked_kb),
            },
            "energy_joules": self.job.data.usage.energy_j,
            "lost": lost_json(&self.job.cost()),
            "gpus_asked": self.gpus(),
            "submitted": seconds(Some(data.submit)),
            "eligible": seconds(Some(data.eligible)),
            "started": seconds(data.start),
            "ended": seconds(self.job.end()),
            "waited_seconds": self.job.planned(),
            "why": self.why.map(why::json),
            "steps": steps,
            "stdout": stdout(self.job),
            "stderr": stderr(self.job),
            "hints": self.hints(),
        })
    }

    fn used(&self) -> JobUsage {
        JobUsage::of(self.job, self.steps)
    }

    fn state(&self) -> String {
        let state = self.job.state();
        state.split(' ').next().unwrap_or_default().to_owned()
    }

    /// Returns how the job ended; None: it has not ended.
    fn ending(&self) -> Option<EndState> {
        match self.job.data.state {
            JobState::Ended(how) | JobState::Completing(how) => Some(how),
            _ => None,
        }
    }

    fn gpus(&self) -> u32 {
        let data = &self.job.data;
        let asked = gres::Ask::of_job(&data.spec).unwrap_or_default();
        asked.totals(data.num_nodes.max(1), data.num_tasks).get("gpu").copied().unwrap_or(0)
    }

    /// Returns in a sentence why the job is in its state.
    pub fn cause(&self) -> String {
        let (data, used) = (&self.job.data, self.used());
        match (self.ending(), data.state) {
            (None, JobState::Pending) => self.why.map_or_else(|| "It waits in the queue.".to_owned(), why::headline),
            (None, JobState::Suspended) => "It is suspended.".to_owned(),
            (None, JobState::Configuring) => "It has its nodes, and waits until they are ready.".to_owned(),
            (None, _) if self.is_hidden => "It is running; what it has used is for its owner and operators.".to_owned(),
            (None, _) => "It is running; what it has used so far is below.".to_owned(),
            (Some(how), _) => {
                let ending = Ending {
                    how,
                    exit: data.exit,
                    reason: data.reason.as_deref(),
                    by: self.cancelled_by,
                    started: data.start.is_some(),
                    limit_s: data.time_limit_s,
                    memory_mb: data.memory_mb,
                    peak_kb: used.memory_kb,
                };
                match self.lacked_memory() {
                    Some(step) => format!("{} Step {step} used more memory than its limit.", ending.cause()),
                    None => ending.cause(),
                }
            }
        }
    }

    /// Returns the first step of a failed job that ran out of memory.
    fn lacked_memory(&self) -> Option<StepNo> {
        let lacked = |step: &&Row| step.data.state == JobState::Ended(EndState::OutOfMemory);
        let failed = self.ending() == Some(EndState::Failed);
        self.steps.iter().find(lacked).filter(|_| failed).and_then(|step| step.data.step)
    }

    /// Returns the table of what was used of what was asked for.
    fn table(&self) -> String {
        let (data, used) = (&self.job.data, self.used());
        let mut text = format!("\n  {:<7}{:>12}{:>14}\n", "", "used", "asked");
        let mut row = |name: &str, used: &str, asked: &str, behind: String| {
            let line = format!("  {name:<7}{used:>12}{asked:>14}  {behind}");
            text.extend([line.trim_end(), "\n"]);
        };
        let elapsed = self.job.elapsed();
        let share = data.time_limit_s.map_or(String::new(), |limit| format!("{:5.1} %", percent(elapsed, limit)));
        row("time", &format_elapsed(elapsed), &format_limit(data.time_limit_s), share);
        let asked = if used.asked_kb > 0 { amount(used.asked_kb) } else { "-".to_owned() };
        if self.is_hidden {
            row("CPU", "-", &format_elapsed(used.held_cpu_s), format!("of {}", counted(data.num_cpus, "CPU")));
            row("memory", "-", &asked, String::new());
        } else {
            let share = format!("{:5.1} % of {}", percent(used.cpu_s, used.held_cpu_s), counted(data.num_cpus, "CPU"));
            row("CPU", &format_elapsed(used.cpu_s), &format_elapsed(used.held_cpu_s), share);
            let share = format!("{:5.1} %", percent(used.memory_kb, used.asked_kb));
            row("memory", &amount(used.memory_kb), &asked, if used.asked_kb > 0 { share } else { String::new() });
        }
        if let Some(joules) = data.usage.energy_j.filter(|_| !self.is_hidden) {
            let behind = format!("{:.3} kWh of its nodes", joules as f64 / 3.6e6);
            row("energy", &format!("{:.2} kJ", joules as f64 / 1e3), "-", behind);
        }
        if self.gpus() > 0 {
            let (used, behind) = match over_time::gpus(self.steps) {
                Some(used) => (format!("{used:.1}"), "at work on average"),
                None => ("-".to_owned(), "their use was not measured"),
            };
            row("GPUs", &used, &self.gpus().to_string(), behind.to_owned());
        }
        text
    }

    fn times(&self) -> String {
        let (data, clock) = (&self.job.data, &self.job.clock);
        let mut text = format!("\n  submitted  {}\n", clock.show(data.submit));
        if data.eligible > data.submit {
            let _ = writeln!(text, "  eligible   {}", clock.show(data.eligible));
        }
        let waited = format_elapsed(self.job.planned());
        match data.start {
            Some(start) => {
                let _ = writeln!(text, "  started    {}  after {waited} in the queue", clock.show(start));
            }
            None if self.ending().is_none() => {
                let _ = writeln!(text, "  waits for  {waited}");
            }
            None => {}
        }
        if let Some(end) = self.job.end() {
            let _ = writeln!(text, "  ended      {}", clock.show(end));
        }
        text
    }

    fn step_table(&self) -> String {
        let mut text =
            format!("\n  {:<18}{:<14}{:>6}{:>12}{:>11}{:>11}\n", "step", "state", "exit", "time", "CPU", "memory");
        for step in self.steps {
            let number = step.data.step.map_or(String::new(), |step| step.to_string());
            let name = harmless(&step.data.name).into_owned();
            let name = if name == number { name } else { format!("{number} {name}") };
            let _ = writeln!(
                text,
                "  {:<18.17}{:<14}{:>6}{:>12}{:>11}{:>11}",
                name,
                step.state(),
                words::exit_code(step.data.exit),
                format_elapsed(step.elapsed()),
                cpu_text(step.total_cpu()).split('.').next().unwrap_or_default(),
                amount(step.data.usage.total_rss_kb)
            );
        }
        text
    }

    /// Returns what follows from the numbers for the next job like this one.
    pub fn hints(&self) -> Vec<String> {
        let (data, used) = (&self.job.data, self.used());
        let (elapsed, mut hints) = (self.job.elapsed(), Vec::new());
        match self.ending() {
            Some(EndState::Completed) if data.start.is_some() => hints.extend(self.smaller_memory(used)),
            Some(EndState::OutOfMemory) => hints.extend(self.larger_memory()),
            Some(EndState::Failed) if self.lacked_memory().is_some() => hints.extend(self.larger_memory()),
            Some(EndState::Failed) if data.exit.signal == NO_START => {
                hints.push(
                    "files that you may write, in a folder that exists on its nodes: --output, --error, --chdir"
                        .to_owned(),
                );
            }
            Some(EndState::Timeout) => {
                let longer = data.time_limit_s.map_or(0, |limit| limit.saturating_mul(3) / 2);
                hints.push(format!(
                    "a longer limit, such as --time={}; or save its work in time: --signal=B:USR1@{} warns it",
                    format_limit(Some(longer)),
                    (longer / 10).clamp(10, 300)
                ));
            }
            _ => {}
        }
        if let (Some(EndState::Completed), Some(limit)) = (self.ending(), data.time_limit_s)
            && limit >= 600
            && elapsed.saturating_mul(4) < limit
        {
            let enough = (elapsed * 3 / 2).div_ceil(300).max(1) * 300;
            hints.push(format!(
                "asked {}, took {}: --time={} would do, and shorter jobs start sooner",
                format_limit(Some(limit)),
                format_elapsed(elapsed),
                format_elapsed(enough)
            ));
        }
        let is_told_by_use = matches!(self.ending(), Some(EndState::Completed | EndState::Timeout));
        if is_told_by_use && elapsed >= 60 && data.num_cpus > 1 && used.cpu_s * 2 < used.held_cpu_s {
            let busy = used.cpu_s as f64 / elapsed as f64;
            hints.push(format!(
                "{busy:.1} of {} CPUs were busy on average: request fewer, or check that the program is parallel",
                data.num_cpus
            ));
        }
        hints
    }

    /// Returns the option by which memory is asked for, and over how many units (nodes or CPUs) it is shared.
    fn memory_option(&self) -> (&'static str, u64) {
        match self.job.data.spec.need.memory {
            Memory::PerCpuMb(_) => ("--mem-per-cpu", u64::from(self.job.data.req_cpus.max(1))),
            Memory::Unset | Memory::PerNodeMb(_) => ("--mem", u64::from(self.job.data.num_nodes.max(1))),
        }
    }

    fn smaller_memory(&self, used: JobUsage) -> Option<String> {
        let (option, units) = self.memory_option();
        let enough = roomy(used.memory_kb.div_ceil(1024).div_ceil(units));
        let wanted = used.memory_kb > 0 && used.asked_kb / 1024 / units >= enough.saturating_mul(2);
        wanted.then(|| {
            let (asked, used) = (amount(used.asked_kb), amount(used.memory_kb));
            format!("asked {asked}, used {used}: {option}={} would do", format_memory_mb(enough))
        })
    }

    fn larger_memory(&self) -> Option<String> {
        let (option, units) = self.memory_option();
        let had = self.job.data.memory_mb / units;
        let more = roomy(had.saturating_add(had / 5));
        (had > 0).then(|| format!("more memory, such as {option}={}", format_memory_mb(more)))
    }
}

/// Adds a quarter to MiB and rounds up: to 128 MiB, from 1 GiB on to whole GiB.
fn roomy(mb: u64) -> u64 {
    let more = mb.saturating_add(mb / 4).max(1);
    let step = if more <= 1024 { 128 } else { 1024 };
    more.div_ceil(step).saturating_mul(step)
}

fn counted(count: u32, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Returns what failures of nodes cost a job, seconds.
fn lost_json(cost: &Cost) -> Value {
    let LostTime { detect, replace, launch, work } = &cost.lost;
    json!({
        "detect_seconds": detect.secs(),
        "replace_seconds": replace.secs(),
        "launch_seconds": launch.secs(),
        "work_seconds": work.secs(),
        "ettr": cost.ettr(),
    })
}

fn exit_json(exit: ExitCode) -> Value {
    json!({ "code": exit.code, "signal": exit.signal })
}

/// Says what an exit code tells.
fn exit_text(exit: ExitCode) -> String {
    let killed = |signal: u8| format!("signal {signal} ({})", signal_text(i32::from(signal)));
    match (exit.code, exit.signal) {
        (0, 0) => "It failed.".to_owned(),
        (code, 0) => match code {
            126 => "It ended with exit code 126: the shell could not run a program that it found.".to_owned(),
            127 => "It ended with exit code 127: the shell did not find a program.".to_owned(),
            129..=192 => {
                format!("It ended with exit code {code}: a program in it was killed by {}.", killed(code - 128))
            }
            code => format!("It ended with exit code {code}."),
        },
        (_, signal) => format!("It was killed by {}.", killed(signal)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{amount, exit_text, line, roomy};
    use squall_model::id::{JobId, StepKey};
    use squall_model::job::{ArrayTask, ExitCode, Usage};
    use squall_model::report::StepEnd;
    use squall_model::set::CoreSet;
    use squall_model::step::{JobFacts, StepLaunch};
    use squall_model::time::{Span, Time};
    use squall_model::wire::node::EndReason;

    #[test]
    fn the_line_says_how_it_ended_and_what_the_script_used() {
        let key = StepKey { job: JobId(17), ..StepKey::default() };
        let facts =
            JobFacts { key, start: Time::from_secs(10), end: Some(Time::from_secs(3610)), ..JobFacts::default() };
        let mut launch = StepLaunch { key, facts: Arc::new(facts), cores: CoreSet::first(4), ..StepLaunch::default() };
        let usage = Usage {
            user: Span::from_secs(5000),
            system: Span::from_secs(1000),
            total_rss_kb: 2 << 20,
            ..Usage::default()
        };
        let (started, ended) = (Time::from_secs(10), Time::from_secs(3010));
        let mut end = StepEnd { usage, started, ended, ..StepEnd::default() };
        let used = "Time 00:50:00 of 01:00:00. Its script used 01:40:00 of 03:20:00 CPU time (50.0 %) and at most";
        let told = line(&launch, &end, EndReason::None);
        let expected = format!("It ended by itself, with exit code 0. {used} 2.00 GB memory.\n");
        assert_eq!(told, format!("squall: job 17: COMPLETED. {expected}"));
        launch.memory_mb = 1024;
        Arc::make_mut(&mut launch.facts).array = Some(ArrayTask { array: JobId(15), index: 3 });
        end.exit = ExitCode { code: 0, signal: 15 };
        end.note_told();
        let told = |why| line(&launch, &end, why).split(" Time ").next().unwrap_or_default().to_owned();
        let limit = "squall: job 15_3: TIMEOUT. It reached its time limit, 01:00:00, and was ended.";
        assert_eq!(told(EndReason::TimeLimit), limit);
        assert_eq!(told(EndReason::Cancelled), "squall: job 15_3: CANCELLED. It was cancelled.");
        let requeued = "squall: job 15_3: REQUEUED. This run ended, and the job returned to the queue.";
        assert_eq!(told(EndReason::Requeued), requeued);
        let failed = "squall: job 15_3: FAILED. It was killed by signal 15 (Terminated).";
        assert_eq!(told(EndReason::None), failed);
        assert!(line(&launch, &end, EndReason::None).ends_with("at most 2.00 GB of 1.00 GB (200.0 %) memory.\n"));
        end = StepEnd { exit: ExitCode { code: 3, signal: 0 }, note: None, ..end };
        assert!(
            line(&launch, &end, EndReason::Requeued)
                .starts_with("squall: job 15_3: FAILED. It ended with exit code 3.")
        );
    }

    #[test]
    fn amounts_in_their_units() {
        assert_eq!([0, 1536, 3 << 20, 5 << 30].map(amount), ["0.00 MB", "1.50 MB", "3.00 GB", "5.00 TB"]);
    }

    #[test]
    fn a_hint_leaves_room() {
        assert_eq!([0, 1, 104, 400, 1024, 1300].map(roomy), [128, 128, 256, 512, 2048, 2048]);
    }

    #[test]
    fn exit_codes_are_told() {
        let told = |code, signal| exit_text(ExitCode { code, signal });
        assert_eq!(told(3, 0), "It ended with exit code 3.");
        assert_eq!(told(137, 0), "It ended with exit code 137: a program in it was killed by signal 9 (Killed).");
        assert_eq!(told(0, 15), "It was killed by signal 15 (Terminated).");
    }
}
