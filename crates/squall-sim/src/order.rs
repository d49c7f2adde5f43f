//! Orders: what simulated users submit, and what its simulated processes will truly do.

use squall_model::id::JobId;
use squall_model::job::options::Options;
use squall_model::job::{
    ArraySpec, Blob, Dependency, DependencyJob, DependencyKind, DependencyTerm, ExitCode, JobKind, JobSpec, Need,
};
use squall_model::resource::Memory;
use squall_model::time::Span;

use crate::seed::mix;

/// A submission as a story or the generator describes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    /// How the story calls it.
    pub(crate) name: String,
    /// Batch, salloc or srun.
    pub(crate) kind: JobKind,
    /// Nodes.
    pub(crate) nodes: u32,
    /// Nodes of a second component of a heterogeneous job; 0: it is none.
    pub(crate) beside: u32,
    /// CPUs of each of the tasks, of which there is one on each node.
    pub(crate) cores: u32,
    /// Memory on each node, MiB; 0: nothing said.
    pub(crate) memory_mb: u64,
    /// How long its processes run if nobody ends them.
    pub(crate) run: Span,
    /// With which code they exit.
    pub(crate) exit: u8,
    /// Only array tasks of this index exit with `exit`, the others with 0.
    pub(crate) exit_index: Option<u32>,
    /// Run times and, of some tasks, exit codes differ by this number; 0: all alike.
    pub(crate) vary: u64,
    /// Its processes ignore TERM.
    pub(crate) stubborn: bool,
    /// Its processes leave one behind that hides from their step daemon.
    pub(crate) hides: bool,
    /// `--qos`.
    pub(crate) qos: Option<String>,
    /// `--partition`.
    pub(crate) partition: Option<String>,
    /// `--reservation`.
    pub(crate) reservation: Option<String>,
    /// `--network`, `--geometry` and so on: what it wishes of the network.
    pub(crate) options: Options,
    /// `--ntasks`; None: one on each node.
    pub(crate) tasks: Option<u32>,
    /// `--time`, seconds.
    pub(crate) limit_s: Option<u64>,
    /// `--time` of each of its steps, seconds.
    pub(crate) step_limit_s: Option<u64>,
    /// `--array`.
    pub(crate) array: Option<ArraySpec>,
    /// `--dependency`: on which of the orders before.
    pub(crate) after: Vec<(DependencyKind, usize)>,
    /// One dependency is enough.
    pub(crate) any: bool,
    /// `--hold`.
    pub(crate) hold: bool,
    /// `--requeue`, `--no-requeue`.
    pub(crate) requeue: Option<bool>,
    /// Steps that its srun or salloc runs, one after the other; at least 1 of an srun.
    pub(crate) steps: u32,
    /// The first answer to its submission never reaches the client, who asks again.
    pub(crate) lose_answer: bool,
}

/// What a process will truly do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Truth {
    /// How long it runs if nobody ends it.
    pub(crate) run: Span,
    /// How it then exits.
    pub(crate) exit: ExitCode,
    /// It ignores TERM.
    pub(crate) stubborn: bool,
    /// It leaves a process behind that hides.
    pub(crate) hides: bool,
}

impl Order {
    /// It is an `srun` that asks for its step together with its job.
    pub(crate) fn comes_with_step(&self) -> bool {
        self.kind == JobKind::Run && self.steps > 0
    }

    /// The content of its batch script: what the nodes must run, byte for byte.
    pub(crate) fn script(tag: usize) -> Vec<u8> {
        format!("#!/bin/sim\n# order {tag}\n").into_bytes()
    }
    /// The content of its environment.
    pub(crate) fn environment(tag: usize) -> Vec<u8> {
        format!("HOME=/home/sim\0SIM_ORDER={}\0", tag % 16).into_bytes()
    }
    /// Which order a spec came from: every spec bears it as its comment.
    pub(crate) fn tag_of(spec: &JobSpec) -> Option<usize> {
        spec.comment.as_deref()?.parse().ok()
    }
    /// Does the same job always do the same? Yes: in every attempt, on every node.
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
    /// How many tasks: 1 unless it is an array.
    pub(crate) fn array_tasks(&self) -> u32 {
        self.array.as_ref().map_or(1, |array| array.indices.len() as u32)
    }
    /// The component beside the one that a spec is for. It has no process of its own, and no order.
    pub(crate) fn component(&self, spec: &JobSpec) -> JobSpec {
        let need = Need { nodes_min: Some(self.beside), ntasks: None, ..spec.need.clone() };
        JobSpec { comment: None, dependency: None, need, ..spec.clone() }
    }
    /// The request's spec. `id_of`: the ids that earlier orders got.
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
