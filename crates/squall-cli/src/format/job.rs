//! A job as a row, and the texts about it that several commands print.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::rc::Rc;
use std::sync::Arc;

use squall_model::duration::{format_memory_mb, format_short, whole_minutes};
use squall_model::gres;
use squall_model::hostlist;
use squall_model::job::options::AsGiven;
use squall_model::job::{EndState, ExitCode, JobKind, JobSpec, JobState, Owner};
use squall_model::resource::Memory;
use squall_model::set::IndexSet;
use squall_model::wire::info::{JobClass, JobInfo, JobsPage};

use crate::format::clock::Clock;
use crate::format::{path, words};

/// Characters of an array's list of tasks that are shown before it is cut (SLURM_BITSTR_LEN).
const TASK_LIST_LENGTH: usize = 64;

/// A time limit as squeue prints it.
pub(crate) fn limit_text(limit_s: Option<u64>) -> String {
    limit_s.map_or_else(|| "UNLIMITED".to_owned(), |s| format_short(whole_minutes(s)))
}

/// A job with what it takes to print it.
#[derive(Clone)]
pub(crate) struct JobRow {
    /// The job.
    pub(crate) info: JobInfo,
    /// What was asked.
    pub(crate) spec: Arc<JobSpec>,
    /// Who.
    pub(crate) owner: Arc<Owner>,
    /// Where, and for which account.
    pub(crate) class: Arc<JobClass>,
    /// The present.
    pub(crate) clock: Rc<Clock>,
    /// The cluster's name.
    pub(crate) cluster: Rc<str>,
    /// Longest list of array tasks; 0: no limit.
    pub(crate) task_list: usize,
    /// Nodes on which it is expected to start; empty: not known.
    pub(crate) expected_nodes: String,
    /// The tier of its partition, where tiers are looked at.
    pub(crate) tier: u32,
    /// Memory is shown in its own unit (`2048M`, not `2G`).
    pub(crate) noconvert: bool,
}

/// Rows of a page. Jobs whose spec, owner or class is missing in the page are left out.
pub(crate) fn rows(
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
    /// `123`, `123_4`, `123_[5-9%2]`, `123+1`.
    pub(crate) fn array_id(&self) -> String {
        let mut text = String::new();
        self.add_array_id(&mut text);
        text
    }

    /// The same, added to a text.
    pub(crate) fn add_array_id(&self, text: &mut String) {
        // A text takes everything.
        let _ = match (&self.info.pending_tasks, self.info.task, self.info.het) {
            (Some(tasks), ..) => write!(text, "{}_[{}]", self.info.id, self.task_expression(tasks)),
            (None, Some(task), _) => write!(text, "{}_{}", task.array, task.index),
            (None, None, Some(het)) => write!(text, "{}+{}", het.leader, het.offset(self.info.id)),
            (None, None, None) => write!(text, "{}", self.info.id),
        };
    }

    /// `123-125`: the ids of all components, if it is one.
    pub(crate) fn het_ids(&self) -> Option<String> {
        let het = self.info.het?;
        let ids: IndexSet = het.ids().map(|id| id.0).collect();
        Some(ids.to_string())
    }

    /// `5-9%2`, cut where it is long.
    pub(crate) fn task_expression(&self, tasks: &IndexSet) -> String {
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

    /// The array's id, if it belongs to one.
    pub(crate) fn array_job(&self) -> Option<u32> {
        match (&self.info.pending_tasks, self.info.task) {
            (Some(_), _) => Some(self.info.id.0),
            (None, Some(task)) => Some(task.array.0),
            (None, None) => None,
        }
    }

    /// The index, or the list of pending tasks.
    pub(crate) fn array_task(&self) -> Option<String> {
        match (&self.info.pending_tasks, self.info.task) {
            (Some(tasks), _) => Some(self.task_expression(tasks)),
            (None, Some(task)) => Some(task.index.to_string()),
            (None, None) => None,
        }
    }

    /// Why it waits, or why it ended so; `None` where there is nothing to tell.
    pub(crate) fn reason(&self) -> String {
        match self.info.state {
            JobState::Ended(_) | JobState::Completing(_) => words::end_reason(self.info.run().outcome.as_ref()),
            // One that runs may be held for when it is requeued.
            _ => words::pending_reason(&self.info.reason).to_owned(),
        }
    }

    /// Its nodes, or in parentheses why it has none.
    pub(crate) fn add_nodes_or_reason(&self, text: &mut String) {
        match self.info.state {
            JobState::Pending => {
                for part in ["(", words::pending_reason(&self.info.reason), ")"] {
                    text.push_str(part);
                }
            }
            JobState::Ended(EndState::Timeout | EndState::OutOfMemory | EndState::Deadline | EndState::Failed) => {
                // A text takes everything.
                let _ = write!(text, "({})", self.reason());
            }
            _ => text.push_str(&self.info.run().nodes),
        }
    }

    /// Seconds that it has run.
    pub(crate) fn time_used(&self) -> u64 {
        let Some(start) = self.info.start.filter(|_| self.info.state != JobState::Pending) else { return 0 };
        let until = match self.info.state {
            JobState::Suspended => self.info.run().suspended.unwrap_or(self.clock.now),
            JobState::Ended(_) | JobState::Completing(_) => self.info.end.unwrap_or(self.clock.now),
            _ => self.clock.now,
        };
        until.since(start).0.saturating_sub(self.info.run().idle.0) / 1_000_000
    }

    /// Its limit as squeue prints it.
    pub(crate) fn time_limit(&self) -> String {
        limit_text(self.info.time_limit_s)
    }

    /// What is left of its limit.
    pub(crate) fn time_left(&self) -> String {
        match self.info.time_limit_s {
            None => "UNLIMITED".to_owned(),
            Some(limit) => match i128::from(limit) - i128::from(self.time_used()) {
                left @ 0.. => format_short(left as u64),
                over => format!("-{}", format_short(over.unsigned_abs() as u64)),
            },
        }
    }

    /// When it ends by its limit, or ended.
    pub(crate) fn end_time(&self) -> String {
        self.clock.show_or(self.info.end, "N/A")
    }

    /// Memory that it asks for, on a node or for a CPU.
    pub(crate) fn min_memory(&self) -> String {
        match self.spec.need.memory {
            Memory::Unset => "0".to_owned(),
            Memory::PerNodeMb(mb) | Memory::PerCpuMb(mb) => self.memory(mb),
        }
    }

    /// So much memory, MiB.
    pub(crate) fn memory(&self, mb: u64) -> String {
        if self.noconvert && mb > 0 { format!("{mb}M") } else { format_memory_mb(mb) }
    }

    /// Least CPUs on a node.
    pub(crate) fn min_cpus(&self) -> u32 {
        let need = &self.spec.need;
        need.cpus_min.unwrap_or(1).max(need.task_cpus() * need.ntasks_per_node.unwrap_or(1))
    }

    /// `cpu=4,mem=8G,node=2,billing=4,gres/gpu=2`.
    pub(crate) fn tres(&self) -> String {
        let all = tres(self.info.num_cpus, &self.memory(self.info.memory_mb), self.info.num_nodes);
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

    /// Returns the generic resources that it holds or held over all nodes, by name and type (`gpu:a100`, 4), in the order
    /// of its nodes.
    pub(crate) fn granted(&self) -> Vec<(&str, usize)> {
        let mut all: Vec<(&str, usize)> = Vec::new();
        for (hosts, word) in &self.info.run().gres {
            let counted = word.split('(').next().unwrap_or_default().rsplit_once(':');
            if let Some((kind, count)) = counted {
                let nodes = hostlist::expand(hosts).map_or(0, |names| names.len());
                let count = nodes * count.parse::<usize>().unwrap_or(0);
                match all.iter_mut().find(|(known, _)| *known == kind) {
                    Some((_, total)) => *total += count,
                    None => all.push((kind, count)),
                }
            }
        }
        all
    }

    /// `gres/gpu:2`: generic resources of each node, as asked for; empty: none.
    pub(crate) fn tres_per_node(&self) -> String {
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

    /// Whether it holds resources or held them.
    pub(crate) fn started(&self) -> bool {
        self.info.state != JobState::Pending && !self.info.run().nodes.is_empty()
    }

    /// Its exit code; `0:0` as long as there is none.
    pub(crate) fn exit(&self) -> ExitCode {
        self.info.run().outcome.as_ref().map_or(ExitCode::OK, |o| o.exit)
    }

    /// `OK`, `NO` (whole nodes), `USER` (no other user's jobs), `YES` (shared).
    pub(crate) fn over_subscribe(&self) -> &'static str {
        match (self.spec.need.exclusive, self.spec.need.oversubscribe) {
            _ if self.spec.keeps_others_off() => "USER",
            (true, _) => "NO",
            (false, true) => "YES",
            (false, false) => "OK",
        }
    }

    /// How often it went back into the queue.
    pub(crate) fn restarts(&self) -> u32 {
        self.info.attempt.0.saturating_sub(1)
    }

    /// Whether a script is what runs.
    pub(crate) fn is_batch(&self) -> bool {
        self.spec.kind == JobKind::Batch
    }

    /// Path of its output; empty: not a batch job.
    pub(crate) fn stdout(&self) -> String {
        let pattern = self.spec.stdout.as_deref().unwrap_or(if self.array_job().is_some() {
            "slurm-%A_%a.out"
        } else {
            "slurm-%j.out"
        });
        self.path(pattern)
    }

    /// Path of its errors.
    pub(crate) fn stderr(&self) -> String {
        self.spec.stderr.as_deref().map_or_else(|| self.stdout(), |pattern| self.path(pattern))
    }

    /// Path of its input.
    pub(crate) fn stdin(&self) -> String {
        self.spec.stdin.as_deref().map_or_else(|| "/dev/null".to_owned(), |pattern| self.path(pattern))
    }

    fn path(&self, pattern: &str) -> String {
        if !self.is_batch() {
            return String::new();
        }
        let known = path::Known {
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

    /// The command with its arguments.
    pub(crate) fn command(&self) -> String {
        let mut text = self.spec.command.clone();
        for arg in &self.spec.args {
            text.push(' ');
            text.push_str(arg);
        }
        text
    }
}

/// The text in which a value was given.
pub(crate) fn as_given<T>(given: Option<&AsGiven<T>>) -> Option<&str> {
    given.map(|given| given.text.as_str())
}

/// `cpu=4,mem=8G,node=2,billing=4`.
pub(crate) fn tres(cpus: u32, memory: &str, nodes: u32) -> String {
    let memory = if memory == "0" { String::new() } else { format!("mem={memory},") };
    format!("cpu={cpus},{memory}node={nodes},billing={cpus}")
}
