//! A job or a step as a row of sacct, and the texts of its fields.

use std::rc::Rc;

use squall_model::billing::Billing;
use squall_model::cost::{Cost, LostTime};
use squall_model::duration::{format_elapsed, format_memory_kb, format_memory_mb};
use squall_model::gres;
use squall_model::id::StepNo;
use squall_model::job::{EndState, JobState};
use squall_model::resource::Memory;
use squall_model::time::{Span, Time};
use squall_model::wire::info::AccountingRow;

use crate::format::clock::Clock;
use crate::format::words;

/// Unit in which amounts of memory are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// Each amount is printed in the largest unit that divides it without a remainder.
    Exact,
    /// Amounts are printed in the unit in which they are counted (`--noconvert`).
    Plain,
    /// Amounts are printed in the unit that `--units` names: K, M, G, T or P.
    In(char),
}

impl Units {
    /// Formats an amount in KiB.
    pub fn kib(self, kib: u64) -> String {
        self.show(kib, 'K')
    }

    /// Formats an amount in MiB.
    pub fn mib(self, mib: u64) -> String {
        self.show(mib, 'M')
    }

    /// Formats an amount in bytes as MiB, with a fraction if needed: `1M`, `0.25M`, `0`.
    pub fn disk(self, bytes: u64) -> String {
        let mib = bytes as f64 / f64::from(1 << 20);
        if bytes == 0 || self == Self::Plain {
            bytes.to_string()
        } else if mib.fract() == 0.0 {
            format!("{mib:.0}M")
        } else {
            format!("{mib:.2}M")
        }
    }

    /// Formats joules: `950`, `12.35K`. Units of energy are those of thousands.
    pub fn joules(self, joules: u64) -> String {
        let (mut value, mut unit) = (joules as f64, "");
        match self {
            Self::Plain => return joules.to_string(),
            Self::In(wanted) => {
                let power = "KMGTP".find(wanted).map_or(0, |place| place as i32 + 1);
                let value = value / 1000_f64.powi(power);
                return if value.fract() == 0.0 {
                    format!("{value:.0}{wanted}")
                } else {
                    format!("{value:.2}{wanted}")
                };
            }
            Self::Exact => {}
        }
        for larger in ["K", "M", "G", "T", "P"] {
            if value > 1000.0 {
                (value, unit) = (value / 1000.0, larger);
            }
        }
        if value.fract() == 0.0 { format!("{value:.0}{unit}") } else { format!("{value:.2}{unit}") }
    }

    fn show(self, value: u64, unit: char) -> String {
        let power = |unit: char| "KMGTP".find(unit).unwrap_or(0) as i32;
        match self {
            _ if value == 0 => "0".to_owned(),
            Self::Exact if unit == 'K' => format_memory_kb(value),
            Self::Exact => format_memory_mb(value),
            // As in Slurm, measured amounts are printed in bytes and requested ones in MiB.
            Self::Plain if unit == 'K' => value.saturating_mul(1024).to_string(),
            Self::Plain => format!("{value}{unit}"),
            Self::In(wanted) => {
                let amount = value as f64 * 1024_f64.powi(power(unit) - power(wanted));
                if amount.fract() == 0.0 { format!("{amount:.0}{wanted}") } else { format!("{amount:.2}{wanted}") }
            }
        }
    }
}

/// A row of accounting (a job or a step), with everything needed to print it.
#[derive(Debug)]
pub struct Row {
    /// Accounting data of the job or step.
    pub data: AccountingRow,
    /// The current time, time zone and format of times.
    pub clock: Rc<Clock>,
    /// Name of the cluster.
    pub cluster: Rc<str>,
    /// Unit in which amounts of memory are printed.
    pub units: Units,
    /// Process ids of a running step; empty unless `sstat` has asked for them.
    pub pids: String,
}

impl Row {
    /// Makes a row with exact amounts and without processes.
    pub fn new(data: AccountingRow, clock: &Rc<Clock>, cluster: &Rc<str>) -> Self {
        let (clock, cluster) = (Rc::clone(clock), Rc::clone(cluster));
        Self { data, clock, cluster, units: Units::Exact, pids: String::new() }
    }

    /// Returns whether the row is a step.
    pub fn is_step(&self) -> bool {
        self.data.step.is_some()
    }

    /// Returns whether the row is the batch script's step.
    pub fn is_batch(&self) -> bool {
        self.data.step == Some(StepNo::BATCH)
    }

    /// Returns the id of the job (`40`) or array task (`50_2`, `50_[3-9]` for pending ones); a step's has `.batch` or
    /// `.0` appended.
    pub fn id(&self) -> String {
        self.with_step(match (&self.data.pending_tasks, self.data.task) {
            (Some(tasks), _) => {
                let limit = self.data.spec.array.as_ref().and_then(|a| a.limit);
                format!("{}_[{tasks}{}]", self.data.id, limit.map(|n| format!("%{n}")).unwrap_or_default())
            }
            (None, Some(task)) => format!("{}_{}", task.array, task.index),
            (None, None) => match self.data.het {
                Some(het) => format!("{}+{}", het.leader, het.offset(self.data.id)),
                None => self.data.id.to_string(),
            },
        })
    }

    /// Returns the plain job id, such as `51`, also for an array task; a step's has `.batch` or `.0` appended.
    pub fn raw_id(&self) -> String {
        self.with_step(self.data.id.to_string())
    }

    fn with_step(&self, job: String) -> String {
        match self.data.step {
            Some(step) => format!("{job}.{step}"),
            None => job,
        }
    }

    /// Returns the name of the job's or step's state. A step's does not name the user who cancelled it.
    pub fn state(&self) -> String {
        let text = words::accounting_state(self.data.state);
        if self.is_step() && text.starts_with("CANCELLED") { "CANCELLED".to_owned() } else { text }
    }

    fn over(&self) -> bool {
        matches!(self.data.state, JobState::Ended(_) | JobState::Completing(_))
    }

    /// Returns the seconds that the job or step ran, without the time it was suspended.
    pub fn elapsed(&self) -> u64 {
        let Some(start) = self.data.start else { return 0 };
        let until = self.data.end.filter(|_| self.over()).unwrap_or(self.clock.now);
        until.secs().saturating_sub(start.secs()).saturating_sub(self.data.suspended_s)
    }

    /// Returns what failures of nodes have cost the job until now.
    pub fn cost(&self) -> Cost {
        let Some(losses) = &self.data.losses else {
            return Cost { total: Span::from_secs(self.elapsed()), ..Cost::default() };
        };
        let until = self.end().unwrap_or(self.clock.now);
        let ran = self.data.start.map_or(Span(0), |start| until.since(start));
        let suspended = Span::from_secs(self.data.suspended_s);
        let total = Span((losses.earlier.0 + ran.0).saturating_sub(suspended.0));
        Cost { lost: LostTime::until(until, &losses.losses), total }
    }

    /// Returns CPU-seconds allocated: elapsed seconds times CPUs.
    pub fn cpu_time(&self) -> u64 {
        self.elapsed() * u64::from(self.data.num_cpus)
    }

    /// Returns the seconds that the job waited since it was eligible to start.
    pub fn planned(&self) -> u64 {
        let until = self.data.start.or(self.data.end).unwrap_or(self.clock.now);
        let since = Some(self.data.eligible).filter(|eligible| *eligible > Time::default());
        since.map_or(0, |since| until.secs().saturating_sub(since.secs()))
    }

    /// Returns the CPU time that the job or step has used: user plus system.
    pub fn total_cpu(&self) -> Span {
        Span(self.data.usage.user.0.saturating_add(self.data.usage.system.0))
    }

    /// Returns the time at which the job or step ended. None: it has not ended.
    pub fn end(&self) -> Option<Time> {
        self.data.end.filter(|_| self.over())
    }

    /// Returns the memory requested on all nodes together, in MiB.
    pub fn req_memory_mb(&self) -> u64 {
        match self.data.spec.need.memory {
            Memory::Unset | Memory::PerNodeMb(0) => self.data.memory_mb,
            Memory::PerNodeMb(mb) => mb.saturating_mul(u64::from(self.data.num_nodes.max(1))),
            Memory::PerCpuMb(mb) => mb.saturating_mul(u64::from(self.data.req_cpus.max(1))),
        }
    }

    /// Formats the requested resources: `billing=2,cpu=2,mem=2G,node=2`.
    pub fn req_tres(&self) -> String {
        self.tres(self.data.req_cpus, self.req_memory_mb(), self.req_nodes(), self.req_billing())
    }

    /// Formats the allocated resources: `billing=2,cpu=2,mem=2G,node=2`; empty before the start.
    pub fn alloc_tres(&self) -> String {
        if self.data.start.is_none() || self.data.num_cpus == 0 {
            return String::new();
        }
        let text = self.tres(self.data.num_cpus, self.data.memory_mb, self.data.num_nodes, self.billing());
        match self.data.usage.energy_j.filter(|joules| *joules > 0 && !self.is_step()) {
            Some(joules) => {
                let cpus = format!("cpu={},", self.data.num_cpus);
                text.replacen(&cpus, &format!("{cpus}energy={joules},"), 1)
            }
            None => text,
        }
    }

    /// Returns the whole billing units of the job: those of its weights, or its CPUs.
    pub fn billing(&self) -> u64 {
        billed(&self.data)
    }

    /// Returns the whole billing units that the job would be billed for what it requested.
    pub fn req_billing(&self) -> u64 {
        self.data.req_billing.map_or(u64::from(self.data.req_cpus), Billing::whole)
    }

    fn tres(&self, cpus: u32, memory_mb: u64, nodes: u32, billing: u64) -> String {
        let memory = if memory_mb > 0 { format!("mem={},", self.units.mib(memory_mb)) } else { String::new() };
        let billing = if self.is_step() { String::new() } else { format!("billing={billing},") };
        let gres = if self.is_step() {
            String::new()
        } else {
            let asked = gres::Ask::of_job(&self.data.spec).unwrap_or_default();
            let totals = asked.totals(nodes, self.data.num_tasks).into_iter();
            totals.map(|(name, count)| format!("gres/{name}={count},")).collect::<Vec<_>>().concat()
        };
        format!("{billing}cpu={cpus},{gres}{memory}node={nodes}")
    }

    /// Returns the number of nodes requested.
    pub fn req_nodes(&self) -> u32 {
        if self.is_step() {
            return self.data.num_nodes;
        }
        self.data.spec.need.nodes_min.unwrap_or(self.data.num_nodes).max(1)
    }

    /// Returns the text that `of` makes of a job's row; empty if the row is a step.
    pub fn job(&self, of: impl Fn(&AccountingRow) -> String) -> String {
        if self.is_step() { String::new() } else { of(&self.data) }
    }

    /// Returns the text that `of` makes of the row of a started step; empty for any other row.
    pub fn step(&self, of: impl Fn(&AccountingRow) -> String) -> String {
        if self.is_step() && self.data.start.is_some() { of(&self.data) } else { String::new() }
    }

    /// Returns the average per task of `sum`, a sum over all tasks of the step.
    pub fn average(&self, sum: u64) -> u64 {
        sum / u64::from(self.data.num_tasks.max(1))
    }

    /// Returns the name of the row's first node; empty if it has none.
    pub fn first_node(&self) -> String {
        squall_model::hostlist::expand(&self.data.nodes).ok().and_then(|n| n.into_iter().next()).unwrap_or_default()
    }

    /// Returns why the job is in its state; `None` if no reason is recorded.
    pub fn reason(&self) -> String {
        self.data.reason.clone().unwrap_or_else(|| "None".to_owned())
    }

    /// Returns the id of the user who cancelled the job. None: it was not cancelled.
    pub fn cancelled_by(&self) -> Option<u32> {
        match self.data.state {
            JobState::Ended(EndState::Cancelled { by }) | JobState::Completing(EndState::Cancelled { by }) => {
                Some(by).filter(|by| *by != EndState::NOBODY)
            }
            _ => None,
        }
    }
}

/// Returns the whole billing units of a job: those of its weights, or its CPUs.
pub fn billed(row: &AccountingRow) -> u64 {
    row.billing.map_or(u64::from(row.num_cpus), Billing::whole)
}

/// Formats a CPU time as `MM:SS.mmm`; from one hour on without fractions.
pub fn cpu_text(span: Span) -> String {
    let seconds = span.secs();
    if seconds >= 3600 {
        return format_elapsed(seconds);
    }
    format!("{:02}:{:02}.{:03}", seconds / 60, seconds % 60, span.millis() % 1000)
}
