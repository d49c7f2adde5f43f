//! Job orders: the submissions of simulated users, and the true behaviour of the jobs' processes.

use squall_model::id::JobId;
use squall_model::job::options::Options;
use squall_model::job::{
    ArraySpec, Blob, Dependency, DependencyJob, DependencyKind, DependencyTerm, ExitCode, JobKind, JobSpec, Need,
};
use squall_model::resource::Memory;
use squall_model::set::IndexSet;
use squall_model::time::Span;
use squall_model::wire::client::{JobRef, JobSelection};

use crate::seed::mix;

/// Size of the few scripts that are longer than one value in etcd may be, bytes.
const BIG_SCRIPT_BYTES: usize = 3 << 19;

/// A job order: a submission as a scenario or the generator describes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    /// Name of the job order in a scenario.
    pub(crate) name: String,
    /// Kind of job: batch, salloc or srun.
    pub(crate) kind: JobKind,
    /// Number of nodes that the job requests.
    pub(crate) nodes: u32,
    /// Number of nodes of the job's second component. 0: the job is not heterogeneous.
    pub(crate) beside: u32,
    /// Number of CPUs that each task requests.
    pub(crate) cores: u32,
    /// Memory on each node, MiB; 0: not specified.
    pub(crate) memory_mb: u64,
    /// Run time of the processes if no signal ends them before.
    pub(crate) run: Span,
    /// Exit code of the processes that no signal ends.
    pub(crate) exit: u8,
    /// Index of the only array task that exits with `exit`; the others exit with 0. None: all exit with `exit`.
    pub(crate) exit_index: Option<u32>,
    /// Seed by which run times, and exit codes of some tasks, vary; 0: all processes behave alike.
    pub(crate) vary: u64,
    /// Whether the processes ignore SIGTERM.
    pub(crate) stubborn: bool,
    /// Whether the processes start another one that hides from their step daemon.
    pub(crate) hides: bool,
    /// Value of the option `--qos`.
    pub(crate) qos: Option<String>,
    /// Value of the option `--partition`.
    pub(crate) partition: Option<String>,
    /// Value of the option `--reservation`.
    pub(crate) reservation: Option<String>,
    /// Options about the network (`--network`, `--geometry` and so on).
    pub(crate) options: Options,
    /// Value of `--ntasks`. None: one task on each node.
    pub(crate) tasks: Option<u32>,
    /// Value of `--time`, seconds.
    pub(crate) limit_s: Option<u64>,
    /// Value of `--time` of each step, seconds.
    pub(crate) step_limit_s: Option<u64>,
    /// Value of `--array`.
    pub(crate) array: Option<ArraySpec>,
    /// Value of `--dependency`: (kind, index of an earlier job order).
    pub(crate) after: Vec<(DependencyKind, usize)>,
    /// Whether one fulfilled dependency of several is enough.
    pub(crate) any: bool,
    /// Whether the job is submitted with `--hold`.
    pub(crate) hold: bool,
    /// `--requeue` (true) or `--no-requeue` (false); None: neither.
    pub(crate) requeue: Option<bool>,
    /// Number of steps that the job's script, srun or salloc runs, one after the other; at least 1 for an srun.
    pub(crate) steps: u32,
    /// Whether the first answer to the submission is lost, so that the client retries.
    pub(crate) lose_answer: bool,
}

/// True behaviour of a simulated process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Truth {
    /// Run time of the process if no signal ends it before.
    pub(crate) run: Span,
    /// Exit code of the process after that run time.
    pub(crate) exit: ExitCode,
    /// Whether the process ignores SIGTERM.
    pub(crate) stubborn: bool,
    /// Whether the process starts another one that hides from the step daemon.
    pub(crate) hides: bool,
}

impl Order {
    /// Returns whether the job order is an `srun` that requests its step together with its job.
    pub(crate) fn comes_with_step(&self) -> bool {
        self.kind == JobKind::Run && self.steps > 0
    }

    /// Returns the content of a job order's batch script, which nodes must run byte for byte.
    pub(crate) fn script(tag: usize) -> Vec<u8> {
        let mut script = format!("#!/bin/sim\n# order {tag}\n").into_bytes();
        if tag % 400 == 99 {
            script.resize(BIG_SCRIPT_BYTES, b'#');
        }
        script
    }
    /// Returns the content of a job order's environment.
    pub(crate) fn environment(tag: usize) -> Vec<u8> {
        format!("HOME=/home/sim\0SIM_ORDER={}\0", tag % 16).into_bytes()
    }
    /// Returns the index of the job order that a job specification belongs to, which is the specification's comment.
    /// None: it belongs to no job order.
    pub(crate) fn tag_of(spec: &JobSpec) -> Option<usize> {
        spec.comment.as_deref()?.parse().ok()
    }
    /// Returns the behaviour of the job order's processes, or of those of task `index`. It is the same in every attempt
    /// and on every node.
    pub(crate) fn truth(&self, index: Option<u32>) -> Truth {
        let chance = mix(self.vary ^ u64::from(index.unwrap_or(u32::MAX)) << 32);
        let run = if self.vary == 0 { self.run } else { Span(self.run.0 / 2 + chance % self.run.0.max(1)) };
        let code = match self.exit_index {
            Some(only) => {
                if index == Some(only) {
                    self.exit
                } else {
                    0
                }
            }
            None if self.vary != 0 && chance % 8 == 7 => (chance >> 20) as u8 | 1,
            None => self.exit,
        };
        Truth { run, exit: ExitCode { code, signal: 0 }, stubborn: self.stubborn, hides: self.hides }
    }
    /// Returns the number of array tasks; 1 unless the job order is an array.
    pub(crate) fn array_tasks(&self) -> u32 {
        self.array.as_ref().map_or(1, |array| array.indices.len() as u32)
    }
    /// Returns the specification of the heterogeneous job's second component; `spec` is that of the first. The second
    /// one has no processes of its own and belongs to no job order.
    pub(crate) fn component(&self, spec: &JobSpec) -> JobSpec {
        let need = Need { nodes_min: Some(self.beside), ntasks: None, ..spec.need.clone() };
        JobSpec { comment: None, dependency: None, need, ..spec.clone() }
    }
    /// Returns the job specification of the job order. `id_of`: job ids of earlier job orders.
    pub(crate) fn spec(&self, tag: usize, id_of: impl Fn(usize) -> Option<JobId>) -> JobSpec {
        let terms: Vec<_> = self
            .after
            .iter()
            .filter_map(|&(when, order)| {
                let job = DependencyJob { id: id_of(order)?, index: None, delay_min: 0 };
                Some(DependencyTerm { when, job: Some(job) })
            })
            .collect();
        let memory = if self.memory_mb == 0 { Memory::Unset } else { Memory::PerNodeMb(self.memory_mb) };
        JobSpec {
            kind: self.kind,
            name: self.name.clone(),
            comment: Some(tag.to_string()),
            need: Need {
                nodes_min: Some(self.nodes),
                ntasks: self.tasks,
                cpus_per_task: Some(self.cores),
                memory,
                // Commands ask for whole nodes beside it.
                exclusive: self.options.exclusive_topo == Some(true),
                ..Need::default()
            },
            reservation: self.reservation.clone(),
            options: self.options.clone(),
            partition: self.partition.clone(),
            qos: self.qos.clone(),
            time_limit_s: self.limit_s,
            dependency: (!terms.is_empty()).then_some(Dependency { terms, any: self.any }),
            hold: self.hold,
            requeue: self.requeue,
            array: self.array.clone(),
            work_dir: "/home/sim".into(),
            command: "/home/sim/script".into(),
            submit_line: "sbatch script".into(),
            script: (self.kind == JobKind::Batch).then(|| Blob::new(Self::script(tag)).digest),
            env: Blob::new(Self::environment(tag)).digest,
            umask: 0o022,
            submit_host: "login".into(),
            ..JobSpec::default()
        }
    }
}

/// Returns the selection of a job, or of one task of an array.
pub(crate) fn selection(id: JobId, index: Option<u32>) -> JobSelection {
    let job = match index {
        Some(index) => JobRef::Tasks(id, IndexSet::range(index, index)),
        None => JobRef::Job(id),
    };
    JobSelection { ids: vec![job], ..JobSelection::default() }
}

#[cfg(test)]
mod tests {
    use super::{Order, Span};

    #[test]
    fn truth_is_stable_and_varies_by_index() {
        let order = Order { run: Span::from_secs(60), vary: 5, ..Order::default() };
        assert_eq!(order.truth(Some(3)), order.truth(Some(3)));
        assert_ne!(order.truth(Some(3)).run, order.truth(Some(4)).run);
        let plain = Order { run: Span::from_secs(60), exit: 4, exit_index: Some(2), ..Order::default() };
        assert_eq!((plain.truth(Some(2)).exit.code, plain.truth(Some(1)).exit.code), (4, 0));
    }

    #[test]
    fn a_spec_tells_its_order() {
        assert_eq!(Order::tag_of(&Order::default().spec(12, |_| None)), Some(12));
    }
}
