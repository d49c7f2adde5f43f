//! A job as a row of listings, and texts about a job that several commands print.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::rc::Rc;
use std::sync::Arc;

use squall_model::billing::Billing;
use squall_model::duration::{format_memory_mb, format_short, whole_minutes};
use squall_model::gres;
use squall_model::hostlist;
use squall_model::job::options::AsGiven;
use squall_model::job::{EndState, ExitCode, JobKind, JobSpec, JobState, Owner, PendingReason};
use squall_model::resource::Memory;
use squall_model::set::IndexSet;
use squall_model::time::Time;
use squall_model::wire::info::{JobClass, JobInfo, JobsPage};

use crate::format::clock::Clock;
use crate::format::{path, words};

/// Default of Slurm's SLURM_BITSTR_LEN: maximum length of an array's list of task indices, in characters. Longer lists
/// are cut.
const TASK_LIST_LENGTH: usize = 64;

/// Formats a time limit in seconds as squeue does. None: `UNLIMITED`.
pub fn limit_text(limit_s: Option<u64>) -> String {
    limit_s.map_or_else(|| "UNLIMITED".to_owned(), |s| format_short(whole_minutes(s)))
}

/// A job, with all that is needed to print it.
#[derive(Clone, Debug)]
pub struct JobRow {
    /// State of the job as reported by the controller.
    pub info: JobInfo,
    /// The job as submitted.
    pub spec: Arc<JobSpec>,
    /// User of the job.
    pub owner: Arc<Owner>,
    /// Partition, account and QOS of the job.
    pub class: Arc<JobClass>,
    /// Current time, time zone and format for printing times.
    pub clock: Rc<Clock>,
    /// Name of the cluster.
    pub cluster: Rc<str>,
    /// Maximum length of a list of array task indices, in characters; 0: no limit.
    pub task_list: usize,
    /// Host list of the nodes on which the pending job is expected to start; empty: not known.
    pub expected_nodes: String,
    /// Tier of the job's partition; 0 where it is not needed.
    pub tier: u32,
    /// Whether amounts of memory are printed in MiB rather than in larger units: `2048M`, not `2G`.
    pub noconvert: bool,
}

/// Returns the rows of a page of jobs. Jobs without a spec, owner or class in the page are left out.
pub fn rows(
    page: JobsPage,
    clock: &Rc<Clock>,
    cluster: &Rc<str>,
    task_list: Option<usize>,
) -> impl Iterator<Item = JobRow> {
    let JobsPage { specs, owners, classes, jobs, .. } = page;
    jobs.into_iter().filter_map(move |info| {
        Some(JobRow {
            spec: specs.get(info.spec as usize)?.clone(),
            owner: owners.get(info.owner as usize)?.clone(),
            class: classes.get(info.class as usize)?.clone(),
            info,
            clock: clock.clone(),
            cluster: cluster.clone(),
            task_list: task_list.unwrap_or(TASK_LIST_LENGTH),
            expected_nodes: String::new(),
            tier: 0,
            noconvert: false,
        })
    })
}

impl JobRow {
    /// Returns the job id as users see it: `123`, `123_4`, `123_[5-9%2]` (pending array tasks), `123+1` (component).
    pub fn array_id(&self) -> String {
        let mut text = String::new();
        self.add_array_id(&mut text);
        text
    }

    /// Appends the job id as users see it, as in `array_id`.
    pub fn add_array_id(&self, text: &mut String) {
        // Writing to a String can't fail.
        let _ = match (&self.info.pending_tasks, self.info.task, self.info.het) {
            (Some(tasks), ..) => write!(text, "{}_[{}]", self.info.id, self.task_expression(tasks)),
            (None, Some(task), _) => write!(text, "{}_{}", task.array, task.index),
            (None, None, Some(het)) => write!(text, "{}+{}", het.leader, het.offset(self.info.id)),
            (None, None, None) => write!(text, "{}", self.info.id),
        };
    }

    /// Returns the ids of all components of a heterogeneous job: `123-125`. None: the job is not a component of one.
    pub fn het_ids(&self) -> Option<String> {
        let het = self.info.het?;
        let ids: IndexSet = het.ids().map(|id| id.0).collect();
        Some(ids.to_string())
    }

    /// Formats a list of array task indices with the array's limit: `5-9%2`. A list longer than `task_list` is cut.
    pub fn task_expression(&self, tasks: &IndexSet) -> String {
        let mut text = tasks.to_string();
        if self.task_list > 0 && text.len() > self.task_list {
            let cut = text[..self.task_list.saturating_sub(3)].rfind(',').unwrap_or(0);
            text.truncate(cut);
            text.push_str(if cut > 0 { ",..." } else { "..." });
        }
        if let Some(limit) = self.info.array_limit {
            let _ = write!(text, "%{limit}");
        }
        text
    }

    /// Returns the id of the array to which the job belongs. None: it belongs to no array.
    pub fn array_job(&self) -> Option<u32> {
        match (&self.info.pending_tasks, self.info.task) {
            (Some(_), _) => Some(self.info.id.0),
            (None, Some(task)) => Some(task.array.0),
            (None, None) => None,
        }
    }

    /// Returns the task's index, or for pending tasks the list of their indices. None: not of an array.
    pub fn array_task(&self) -> Option<String> {
        match (&self.info.pending_tasks, self.info.task) {
            (Some(tasks), _) => Some(self.task_expression(tasks)),
            (None, Some(task)) => Some(task.index.to_string()),
            (None, None) => None,
        }
    }

    /// Returns why the job is pending, or why it ended in its state. `None`: there is no reason.
    pub fn reason(&self) -> String {
        match self.info.state {
            JobState::Ended(_) | JobState::Completing(_) => words::end_reason(self.info.run().outcome.as_ref()),
            // A running job may have a reason, too: it may be held in case it is requeued.
            _ => words::pending_text(&self.info.reason).into_owned(),
        }
    }

    /// Returns the reason as one of Slurm's names, and its description, as in JSON. Empty: it has none.
    pub fn named_reason(&self) -> (String, String) {
        let (text, name) = (self.reason(), words::pending_reason(&self.info.reason));
        let is_pending = !matches!(self.info.state, JobState::Ended(_) | JobState::Completing(_));
        if is_pending && text != name { (name.to_owned(), text) } else { (text, String::new()) }
    }

    /// Returns long name and short code of the job's state.
    pub fn state(&self) -> (&'static str, &'static str) {
        let special = self.info.state == JobState::Pending && self.info.reason == PendingReason::SpecialExit;
        if special { ("SPECIAL_EXIT", "SE") } else { words::state(self.info.state) }
    }

    /// Returns the job's state as a list of base state and flags, as in JSON.
    pub fn state_list(&self) -> Vec<&'static str> {
        let flag = Some(self.state().0).filter(|name| *name == "SPECIAL_EXIT");
        words::state_list(self.info.state).into_iter().chain(flag).collect()
    }

    /// Appends the job's nodes, or in parentheses the reason why it is pending or has failed.
    pub fn add_nodes_or_reason(&self, text: &mut String) {
        match self.info.state {
            JobState::Pending => {
                for part in ["(", &words::pending_text(&self.info.reason), ")"] {
                    text.push_str(part);
                }
            }
            JobState::Ended(EndState::Timeout | EndState::OutOfMemory | EndState::Deadline | EndState::Failed) => {
                // Writing to a String can't fail.
                let _ = write!(text, "({})", self.reason());
            }
            _ => text.push_str(&self.info.run().nodes),
        }
    }

    /// Returns when the job started, or is to start. A job that ended before it started has its end here, as in Slurm.
    pub fn start_shown(&self) -> Option<Time> {
        let ended = matches!(self.info.state, JobState::Ended(_) | JobState::Completing(_));
        self.info.start.or(self.info.end.filter(|_| ended))
    }

    /// Returns how long the job has run, without the time during which it was suspended, seconds.
    pub fn time_used(&self) -> u64 {
        let Some(start) = self.info.start.filter(|_| self.info.state != JobState::Pending) else { return 0 };
        let until = match self.info.state {
            JobState::Suspended => self.info.run().suspended.unwrap_or(self.clock.now),
            JobState::Ended(_) | JobState::Completing(_) => self.info.end.unwrap_or(self.clock.now),
            _ => self.clock.now,
        };
        until.since(start).0.saturating_sub(self.info.run().idle.0) / 1_000_000
    }

    /// Returns the time limit as squeue prints it.
    pub fn time_limit(&self) -> String {
        limit_text(self.info.time_limit_s)
    }

    /// Returns the remaining time before the time limit; negative if the limit has passed.
    pub fn time_left(&self) -> String {
        match self.info.time_limit_s {
            None => "UNLIMITED".to_owned(),
            Some(limit) => match i128::from(limit) - i128::from(self.time_used()) {
                left @ 0.. => format_short(left as u64),
                over => format!("-{}", format_short(over.unsigned_abs() as u64)),
            },
        }
    }

    /// Returns when the job ended, or when its time limit will end it; `N/A` if that is not known.
    pub fn end_time(&self) -> String {
        self.clock.show_or(self.info.end, "N/A")
    }

    /// Returns the memory that the job requests, for each node or for each CPU; `0` if it requests none.
    pub fn min_memory(&self) -> String {
        match self.spec.need.memory {
            Memory::Unset => "0".to_owned(),
            Memory::PerNodeMb(mb) | Memory::PerCpuMb(mb) => self.memory(mb),
        }
    }

    /// Formats an amount of memory given in MiB.
    pub fn memory(&self, mb: u64) -> String {
        if self.noconvert && mb > 0 { format!("{mb}M") } else { format_memory_mb(mb) }
    }

    /// Returns the minimum number of CPUs of each node.
    pub fn min_cpus(&self) -> u32 {
        let need = &self.spec.need;
        need.cpus_min.unwrap_or(1).max(need.task_cpus().saturating_mul(need.ntasks_per_node.unwrap_or(1)))
    }

    /// Returns the job's trackable resources: `cpu=4,mem=8G,node=2,billing=4,gres/gpu=2`.
    pub fn tres(&self) -> String {
        let (cpus, memory) = (self.info.num_cpus, self.memory(self.info.memory_mb));
        let all = tres(cpus, &memory, self.info.num_nodes, self.info.billing);
        let mut held: BTreeMap<&str, usize> = BTreeMap::new();
        for (kind, count) in self.granted() {
            *held.entry(kind.split(':').next().unwrap_or(kind)).or_default() += count;
        }
        if !held.is_empty() {
            return all
                + &held.iter().map(|(name, count)| format!(",gres/{name}={count}")).collect::<Vec<_>>().concat();
        }
        let gres = gres::Ask::of_job(&self.spec).unwrap_or_default();
        let gres = gres.totals(self.info.num_nodes, self.info.num_tasks).into_iter();
        all + &gres.map(|(name, count)| format!(",gres/{name}={count}")).collect::<Vec<_>>().concat()
    }

    /// Returns the generic resources that the job holds or held over all nodes: name and type (`gpu:a100`), and number,
    /// in the order of the nodes.
    pub fn granted(&self) -> Vec<(&str, usize)> {
        let mut all: Vec<(&str, usize)> = Vec::new();
        for (hosts, word) in &self.info.run().gres {
            let counted = word.split('(').next().unwrap_or_default().rsplit_once(':');
            if let Some((kind, count)) = counted {
                let nodes = hostlist::expand(hosts).map_or(0, |names| names.len());
                let count = nodes.saturating_mul(count.parse::<usize>().unwrap_or(0));
                match all.iter_mut().find(|(known, _)| *known == kind) {
                    Some((_, total)) => *total = total.saturating_add(count),
                    None => all.push((kind, count)),
                }
            }
        }
        all
    }

    /// Returns the generic resources requested for each node: `gres/gpu:2`; empty: none.
    pub fn tres_per_node(&self) -> String {
        let own = self.spec.need.gres.iter().flat_map(|list| list.split(',')).map(str::to_owned);
        let gpus = as_given(self.spec.options.gpus.per_node.as_ref())
            .into_iter()
            .flat_map(|list| list.split(','))
            .map(|g| format!("gpu:{g}"));
        let all = own.chain(gpus).filter(|word| !word.is_empty() && word != "none");
        all.map(|word| format!("gres/{}", word.trim_start_matches("gres:").trim_start_matches("gres/")))
            .collect::<Vec<_>>()
            .join(",")
    }

    /// Returns whether the job holds resources, or held them before it ended.
    pub fn started(&self) -> bool {
        self.info.state != JobState::Pending && !self.info.run().nodes.is_empty()
    }

    /// Returns the exit code; `0:0` before the job ends.
    pub fn exit(&self) -> ExitCode {
        self.info.run().outcome.as_ref().map_or(ExitCode::OK, |o| o.exit)
    }

    /// Returns whether nodes are shared: `OK` (by default), `NO` (whole nodes), `USER` (only with the same user), `YES`
    /// (`--oversubscribe`).
    pub fn over_subscribe(&self) -> &'static str {
        words::over_subscribe(&self.spec)
    }

    /// Returns how often the job was requeued.
    pub fn restarts(&self) -> u32 {
        self.info.restarts
    }

    /// Returns whether the job is a batch job.
    pub fn is_batch(&self) -> bool {
        self.spec.kind == JobKind::Batch
    }

    /// Returns the path of the standard output; empty: not a batch job.
    pub fn stdout(&self) -> String {
        let pattern = self.spec.stdout.as_deref().unwrap_or(if self.array_job().is_some() {
            "slurm-%A_%a.out"
        } else {
            "slurm-%j.out"
        });
        self.path(pattern)
    }

    /// Returns the path of the standard error; empty: not a batch job.
    pub fn stderr(&self) -> String {
        self.spec.stderr.as_deref().map_or_else(|| self.stdout(), |pattern| self.path(pattern))
    }

    /// Returns the path of the standard input; by default `/dev/null`.
    pub fn stdin(&self) -> String {
        self.spec.stdin.as_deref().map_or_else(|| "/dev/null".to_owned(), |pattern| self.path(pattern))
    }

    fn path(&self, pattern: &str) -> String {
        if !self.is_batch() {
            return String::new();
        }
        let known = path::PathValues {
            job: self.info.id.0,
            array: self.info.task.map(|t| (t.array.0, t.index)).or_else(|| {
                let first = self.info.pending_tasks.as_ref()?.first()?;
                Some((self.info.id.0, first))
            }),
            user: &self.owner.user,
            name: &self.spec.name,
            host: &self.info.run().batch_host,
        };
        path::expand(pattern, &self.spec.work_dir, &known)
    }

    /// Returns the command with its arguments.
    pub fn command(&self) -> String {
        let mut text = self.spec.command.clone();
        for arg in &self.spec.args {
            text.push(' ');
            text.push_str(arg);
        }
        text
    }
}

/// Returns the text that the user gave for an option's value. None: not given.
pub fn as_given<T>(given: Option<&AsGiven<T>>) -> Option<&str> {
    given.map(|given| given.text.as_str())
}

/// Formats trackable resources: `cpu=4,mem=8G,node=2,billing=4`. Memory `0` is left out. `billing`: None, the CPUs.
pub fn tres(cpus: u32, memory: &str, nodes: u32, billing: Option<Billing>) -> String {
    let billing = billing.map_or(u64::from(cpus), Billing::whole);
    let memory = if memory == "0" { String::new() } else { format!("mem={memory},") };
    format!("cpu={cpus},{memory}node={nodes},billing={billing}")
}
