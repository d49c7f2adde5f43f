//! Jobs, counted by state: in all, and for each partition, user and account.

use std::collections::BTreeMap;

use squall_model::job::{EndState, JobState, PendingReason};
use squall_model::wire::info::{JobInfo, JobsPage};

use super::exposition::{Metric, gauge};
use crate::format::words;

/// Most users, and most accounts, with series of their own. The others are counted together as [`OTHERS`].
pub(super) const NAMES_MAX: usize = 1000;
/// Stands for the users or accounts beyond [`NAMES_MAX`]. No user or account can have this name.
pub(super) const OTHERS: &str = "(others)";

/// Jobs, counted by state, partition, user and account. Each task of an array counts.
#[derive(Debug, Default)]
pub struct JobCounts {
    pub(super) all: Tally,
    pub(super) partitions: BTreeMap<String, Tally>,
    pub(super) users: BTreeMap<String, Tally>,
    pub(super) accounts: BTreeMap<String, Tally>,
    /// Pending jobs by Slurm's name of the reason.
    pub(super) reasons: BTreeMap<&'static str, u64>,
}

/// Jobs that have something in common, counted by state.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    jobs: u64,
    pending: u64,
    held: u64,
    dependent: u64,
    running: u64,
    suspended: u64,
    configuring: u64,
    completing: u64,
    /// Jobs that have ended, and those that are completing.
    ends: Ends,
    /// Of `ends`, the jobs that have ended.
    ended: Ends,
    cpus_running: u64,
    cpus: u64,
    nodes: u64,
    memory_mb: u64,
    /// Most nodes that a pending job asks for: with and without held jobs.
    widest: [u64; 2],
    /// Pending jobs with more nodes than their partition has.
    too_wide: u64,
}

/// Jobs by the way in which they ended.
#[derive(Clone, Debug, Default)]
struct Ends {
    completed: u64,
    failed: u64,
    cancelled: u64,
    timeout: u64,
    node_fail: u64,
    out_of_memory: u64,
    preempted: u64,
    deadline: u64,
    boot_fail: u64,
    requeued: u64,
}

impl Ends {
    fn of(&mut self, state: EndState) -> &mut u64 {
        match state {
            EndState::Completed => &mut self.completed,
            EndState::Failed => &mut self.failed,
            EndState::Cancelled { .. } => &mut self.cancelled,
            EndState::Timeout => &mut self.timeout,
            EndState::NodeFail => &mut self.node_fail,
            EndState::OutOfMemory => &mut self.out_of_memory,
            EndState::Preempted => &mut self.preempted,
            EndState::Deadline => &mut self.deadline,
            EndState::BootFail => &mut self.boot_fail,
            EndState::Requeued => &mut self.requeued,
        }
    }

    fn all(&mut self) -> [&mut u64; 10] {
        let Self { completed, failed, cancelled, timeout, node_fail, .. } = self;
        let Self { out_of_memory, preempted, deadline, boot_fail, requeued, .. } = self;
        [completed, failed, cancelled, timeout, node_fail, out_of_memory, preempted, deadline, boot_fail, requeued]
    }
}

impl JobCounts {
    /// Adds the jobs of a page.
    pub fn add(&mut self, page: &JobsPage) {
        // Many jobs share owner and class, so names are looked up once for each pair.
        let mut pairs: BTreeMap<(u32, u32), Tally> = BTreeMap::new();
        for job in &page.jobs {
            let count = job.pending_tasks.as_ref().map_or(1, |tasks| tasks.len() as u64);
            pairs.entry((job.owner, job.class)).or_default().count(job, count);
            if job.state == JobState::Pending {
                *self.reasons.entry(words::pending_reason(&job.reason)).or_default() += count;
            }
        }
        for ((owner, class), tally) in pairs {
            self.all.add(&tally);
            if let Some(owner) = page.owners.get(owner as usize) {
                self.users.entry(owner.user.clone()).or_default().add(&tally);
            }
            if let Some(class) = page.classes.get(class as usize) {
                let partition = class.partition.split(',').next().unwrap_or_default();
                self.partitions.entry(partition.to_owned()).or_default().add(&tally);
                self.accounts.entry(class.account.clone()).or_default().add(&tally);
            }
        }
    }
}

/// Returns the tallies of those names with most jobs, and one of all others together.
pub(super) fn most(tallies: &BTreeMap<String, Tally>) -> BTreeMap<String, Tally> {
    let mut names: Vec<&String> = tallies.keys().collect();
    names.sort_by_key(|name| std::cmp::Reverse(tallies[*name].jobs));
    let (first, others) = names.split_at(names.len().min(NAMES_MAX));
    let mut most: BTreeMap<String, Tally> = first.iter().map(|&name| (name.clone(), tallies[name].clone())).collect();
    for &name in others {
        most.entry(OTHERS.to_owned()).or_default().add(&tallies[name]);
    }
    most
}

impl Tally {
    fn count(&mut self, job: &JobInfo, count: u64) {
        self.jobs += count;
        match job.state {
            JobState::Pending => self.count_pending(job, count),
            JobState::Running => {
                self.running += count;
                self.cpus_running += u64::from(job.num_cpus);
                self.hold(job);
            }
            JobState::Configuring => {
                self.configuring += count;
                self.hold(job);
            }
            JobState::Suspended => {
                self.suspended += count;
                self.hold(job);
            }
            JobState::Completing(how) => {
                self.completing += count;
                *self.ends.of(how) += count;
                self.hold(job);
            }
            JobState::Ended(how) => {
                *self.ends.of(how) += count;
                *self.ended.of(how) += count;
            }
        }
    }

    fn count_pending(&mut self, job: &JobInfo, count: u64) {
        let nodes = u64::from(job.num_nodes);
        self.pending += count;
        self.widest[0] = self.widest[0].max(nodes);
        match job.reason {
            PendingReason::JobHeldUser
            | PendingReason::JobHeldAdmin
            | PendingReason::JobHoldMaxRequeue
            | PendingReason::RequeuedHeld
            | PendingReason::SpecialExit => {
                self.held += count;
                return;
            }
            PendingReason::Dependency | PendingReason::DependencyNeverSatisfied => self.dependent += count,
            PendingReason::PartitionNodeLimit => self.too_wide += count,
            _ => {}
        }
        self.widest[1] = self.widest[1].max(nodes);
    }

    fn hold(&mut self, job: &JobInfo) {
        self.cpus += u64::from(job.num_cpus);
        self.nodes += u64::from(job.num_nodes);
        self.memory_mb += job.memory_mb;
    }

    fn add(&mut self, other: &Self) {
        let mut other = other.clone();
        let sums = self.sums().into_iter().zip(other.sums());
        sums.for_each(|(sum, more)| *sum += *more);
        for (ends, more) in [(&mut self.ends, &mut other.ends), (&mut self.ended, &mut other.ended)] {
            ends.all().into_iter().zip(more.all()).for_each(|(sum, more)| *sum += *more);
        }
        self.widest = [0, 1].map(|at| self.widest[at].max(other.widest[at]));
    }

    fn sums(&mut self) -> [&mut u64; 13] {
        let Self { jobs, pending, held, dependent, running, suspended, configuring, completing, .. } = self;
        let Self { cpus_running, cpus, nodes, memory_mb, too_wide, .. } = self;
        [
            jobs,
            pending,
            held,
            dependent,
            running,
            suspended,
            configuring,
            completing,
            cpus_running,
            cpus,
            nodes,
            memory_mb,
            too_wide,
        ]
    }
}

/// The queue, with the names of the exporter by Victor Penso.
pub(super) const QUEUE: &[Metric<Tally>] = &[
    gauge("slurm_queue_pending", "Pending jobs", |t| t.pending as f64),
    gauge("slurm_queue_pending_dependency", "Jobs pending because of a dependency", |t| t.dependent as f64),
    gauge("slurm_queue_running", "Running jobs", |t| t.running as f64),
    gauge("slurm_queue_suspended", "Suspended jobs", |t| t.suspended as f64),
    gauge("slurm_queue_cancelled", "Cancelled jobs", |t| t.ended.cancelled as f64),
    gauge("slurm_queue_completing", "Completing jobs", |t| t.completing as f64),
    gauge("slurm_queue_completed", "Completed jobs", |t| t.ended.completed as f64),
    gauge("slurm_queue_configuring", "Configuring jobs: their nodes are being powered up", |t| t.configuring as f64),
    gauge("slurm_queue_failed", "Failed jobs", |t| t.ended.failed as f64),
    gauge("slurm_queue_timeout", "Jobs that reached their time limit", |t| t.ended.timeout as f64),
    gauge("slurm_queue_preempted", "Preempted jobs", |t| t.ended.preempted as f64),
    gauge("slurm_queue_node_fail", "Jobs that lost a node", |t| t.ended.node_fail as f64),
];

/// The jobs of a user or account, with the names of the exporter by Victor Penso without the prefix, which tells whose
/// jobs they are.
pub(super) const BRIEF: &[Metric<Tally>] = &[
    gauge("jobs_pending", "Pending jobs", |t| t.pending as f64),
    gauge("jobs_running", "Running jobs", |t| t.running as f64),
    gauge("jobs_suspended", "Suspended jobs", |t| t.suspended as f64),
    gauge("cpus_running", "CPUs of running jobs", |t| t.cpus_running as f64),
];

/// Jobs by state, with Slurm's names without the prefix, which tells whose jobs they are.
pub(super) const JOBS: &[Metric<Tally>] = &[
    gauge("jobs", "Jobs that the controller knows, ended ones included", |t| t.jobs as f64),
    gauge("jobs_bootfail", "Jobs that could not be launched", |t| t.ends.boot_fail as f64),
    gauge("jobs_cancelled", "Cancelled jobs, completing ones included", |t| t.ends.cancelled as f64),
    gauge("jobs_completed", "Completed jobs, completing ones included", |t| t.ends.completed as f64),
    gauge("jobs_completing", "Completing jobs", |t| t.completing as f64),
    gauge("jobs_configuring", "Configuring jobs: their nodes are being powered up", |t| t.configuring as f64),
    gauge("jobs_cpus_alloc", "CPUs that jobs hold", |t| t.cpus as f64),
    gauge("jobs_deadline", "Jobs that missed their deadline", |t| t.ends.deadline as f64),
    gauge("jobs_failed", "Failed jobs, completing ones included", |t| t.ends.failed as f64),
    gauge("jobs_hold", "Held jobs", |t| t.held as f64),
    gauge("jobs_memory_alloc", "Memory that jobs hold, bytes", |t| bytes(t.memory_mb)),
    gauge("jobs_node_failed", "Jobs that lost a node", |t| t.ends.node_fail as f64),
    gauge("jobs_nodes_alloc", "Nodes that jobs hold; a node of two jobs counts twice", |t| t.nodes as f64),
    gauge("jobs_outofmemory", "Jobs that exceeded their memory limit", |t| t.ends.out_of_memory as f64),
    gauge("jobs_pending", "Pending jobs", |t| t.pending as f64),
    gauge("jobs_preempted", "Preempted jobs", |t| t.ends.preempted as f64),
    gauge("jobs_requeued", "Jobs of which only this attempt ended", |t| t.ends.requeued as f64),
    gauge("jobs_running", "Running jobs", |t| t.running as f64),
    gauge("jobs_suspended", "Suspended jobs", |t| t.suspended as f64),
    gauge("jobs_timeout", "Jobs that reached their time limit", |t| t.ends.timeout as f64),
];

/// Slurm's further metrics of the jobs of a partition.
pub(super) const WIDTHS: &[Metric<Tally>] = &[
    gauge("jobs_min_job_nodes", "Most nodes that a pending job needs", |t| t.widest[0] as f64),
    gauge("jobs_min_job_nodes_nohold", "Most nodes that a pending job needs that is not held", |t| t.widest[1] as f64),
    gauge("jobs_wait_part_node_limit", "Pending jobs with more nodes than the partition has", |t| t.too_wide as f64),
];

/// Returns MiB as bytes.
pub(super) fn bytes(mb: u64) -> f64 {
    (mb as f64) * 1_048_576.0
}
