//! Binds the tasks of a step to CPUs, as `--cpu-bind` asks.

use std::fs::File;
use std::io::Write;

use squall_engine::binding::{hex, masks, near, of_threads};
use squall_engine::environment::{Env, bind_env};
use squall_model::set::CoreSet;
use squall_model::step::cpu_bind::{BindMethod, CpuBind};
use squall_model::step::{StepLaunch, TaskProgram};

use crate::hardware::usable_cpus;

/// CPU binding of a step's tasks on this node.
pub(super) struct Binding {
    bind: CpuBind,
    /// The CPUs that the step may use.
    usable: CoreSet,
    masks: Option<Vec<CoreSet>>,
}

impl Binding {
    /// Returns the binding that `srun` asked for, within the CPUs of this daemon, or one that suits a grid of ranks. A
    /// step with `--threads-per-core` is bound to threads unless it says otherwise, as in Slurm. None: no binding.
    pub(super) fn of(launch: &StepLaunch, program: &TaskProgram) -> Option<Self> {
        let options = [&program.options, &launch.facts.spec.options];
        let grid = options.iter().any(|options| options.network.grid.is_some());
        let threads = program.options.inside().threads;
        let unasked = if threads > 0 { Some("threads") } else { grid.then_some("") };
        let bind = CpuBind::parse(program.cpu_bind.as_deref().or(unasked)?).ok()?;
        let mut cpus = usable_cpus();
        if threads > 0 {
            cpus = of_threads(&cpus, threads);
        }
        let tasks = launch.ranks().len();
        let near = near(launch, program, &cpus);
        if near.is_none() && program.cpu_bind.is_none() && threads == 0 {
            return None;
        }
        let spread = options.iter().find_map(|options| Some(options.distribution.as_ref()?.value)).unwrap_or_default();
        let sizes = (tasks, launch.layout.cpus_per_task as usize);
        let masks = masks(&bind.way, &cpus, sizes, spread, near.as_deref());
        Some(Self { bind, usable: cpus.iter().map(|cpu| cpu.number).collect(), masks })
    }

    /// Returns the environment variables that describe the binding.
    pub(super) fn env(&self) -> Env {
        bind_env(&self.bind, self.masks.as_deref())
    }

    /// Returns the CPUs of a task by its index among the node's tasks. Empty: all CPUs of the step.
    pub(super) fn cpus(&self, local: usize) -> Vec<usize> {
        self.mask(local).map(|mask| mask.iter().collect()).unwrap_or_default()
    }

    /// Returns the CPUs on which a task begins.
    pub(super) fn begins_on(&self, local: usize) -> &CoreSet {
        self.mask(local).unwrap_or(&self.usable)
    }

    fn mask(&self, local: usize) -> Option<&CoreSet> {
        self.masks.as_ref()?.get(local).filter(|mask| !mask.is_empty())
    }

    /// Returns a message for the user, if tasks are not bound although that was asked for.
    pub(super) fn complaint(&self) -> Option<String> {
        let unbound = self.masks.iter().flatten().filter(|mask| mask.is_empty()).count();
        let usable = hex(&self.usable);
        (unbound > 0)
            .then(|| format!("--cpu-bind: {unbound} task(s) not bound: none of their CPUs is the step's ({usable})"))
    }

    /// Returns the line that a task prints with `--cpu-bind=verbose`. None: the user has not asked for it.
    pub(super) fn verbose(&self, launch: &StepLaunch, local: usize, rank: u32) -> Option<Verbose> {
        let kind = match (&self.bind.way, self.mask(local)) {
            (_, None) => "NONE",
            (BindMethod::Rank, _) => "RANK",
            (BindMethod::Map(_), _) => "MAP",
            _ => "MASK",
        };
        let node = &launch.node;
        let set = if kind == "NONE" { "" } else { " set" };
        let mask = hex(self.mask(local).unwrap_or(&self.usable));
        self.bind.verbose.then(|| Verbose {
            head: format!("cpu-bind={kind} - {node}, task {rank:2} {local:2} ["),
            tail: format!("]: mask {mask}{set}\n"),
        })
    }
}

/// The line that a task prints with `--cpu-bind=verbose`; its process id is inserted when it has started.
#[derive(Debug)]
pub(super) struct Verbose {
    head: String,
    tail: String,
}

impl Verbose {
    /// Writes the line of `--cpu-bind=verbose` to the task's standard error.
    pub(super) fn say(&self, mut stderr: &File, pid: u32) {
        // The line is informative only, so errors are ignored.
        drop(stderr.write_all(format!("{}{pid}{}", self.head, self.tail).as_bytes()));
    }
}
