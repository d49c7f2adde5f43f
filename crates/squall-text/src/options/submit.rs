//! Values of all options of a command, before they are made into a job, an allocation or a step.

use std::collections::BTreeMap;

use squall_model::job::JobSpec;
use squall_model::job::options::TaskScripts;
use squall_model::step::Distribution;

use crate::options::{Source, Tool};

/// Values of all options that a command was given, and the origin of each.
#[derive(Clone, Debug, Default)]
pub struct SubmitOptions {
    /// The job that the options describe.
    pub spec: JobSpec,
    /// Origin of each option given, by long name.
    pub sources: BTreeMap<&'static str, Source>,
    /// Values of the options as given, by long name, for `--verbose`. None: given without a value.
    pub given: BTreeMap<&'static str, Option<String>>,
    /// User for which root submits the job.
    pub run_as: RunAs,
    /// Messages printed on standard error in any case, each after `NAME: `.
    pub warnings: Vec<String>,
    /// Messages printed on standard error with `--verbose`, each after `NAME: `.
    pub notes: Vec<String>,
    /// `--quiet`: fewer messages are printed.
    pub quiet: bool,
    /// Number of times that `--verbose` was given.
    pub verbose: u8,
    /// `--export`: which environment variables the job gets.
    pub export: Option<String>,
    /// `--propagate`: which resource limits (rlimits) of the submitting process the job gets.
    pub propagate: Option<String>,
    /// `--clusters`: clusters to which the job may go; this cluster must be among these.
    pub clusters: Option<String>,
    /// `--extra-node-info`: numbers of sockets, cores and threads; 0: any number.
    pub extra_node_info: Option<[u32; 3]>,
    /// `--immediate`: how long the command waits for resources, seconds.
    pub immediate_s: Option<u32>,
    /// `--test-only`: nothing is submitted; the command only reports whether and when the job could start.
    pub test_only: bool,
    /// Options of SPANK plugins, by long name, in the order in which they were given. None: without a value.
    pub plugins: Vec<(String, Option<String>)>,
    /// Options of sbatch only.
    pub batch: Batch,
    /// Options of srun only.
    pub run: Run,
    /// Options of salloc only.
    pub alloc: Alloc,
}

/// `--uid` and `--gid`, with which root submits for another user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunAs {
    /// `--uid`: user id, and the id of the user's login group.
    pub user: Option<(u32, u32)>,
    /// `--gid`: group id.
    pub group: Option<u32>,
}

/// Values of options that sbatch has.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// `--wrap`: a command line that is run in place of a script.
    pub wrap: Option<String>,
    /// `--parsable`: prints only the job id, and the cluster if one was given; of `srun --async` only the step's id.
    pub parsable: bool,
    /// `--wait`: sbatch waits for the job's end and exits with its exit code.
    pub wait: bool,
    /// `--export-file`: a file with environment variables for the job.
    pub export_file: Option<String>,
    /// `--ignore-pbs`: `#PBS` lines of the script are ignored.
    pub ignore_pbs: bool,
    /// File mode creation mask of the job. None: that of the sbatch process.
    pub umask: Option<u32>,
}

/// Values of options that only srun has.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Id of the job in which the step runs: `--jobid`, or the job in which srun was called. None: srun requests an
    /// allocation.
    pub job: Option<u32>,
    /// `--label`: output lines begin with the rank.
    pub label: bool,
    /// `--unbuffered`: output is passed on as it comes, without waiting for whole lines.
    pub unbuffered: bool,
    /// `--pty`: rank 0 gets a terminal.
    pub pty: bool,
    /// `--multi-prog`: the operand is a file with a program for each rank.
    pub multi_prog: bool,
    /// `--exact`: the step gets only the cores that its tasks need.
    pub exact: bool,
    /// `--whole`: the step gets all CPUs of the job on its nodes.
    pub whole: bool,
    /// `--overlap`: the step shares cores with other steps.
    pub overlap: bool,
    /// `--relative`: index in the allocation of the first node that the step may use.
    pub relative: Option<u32>,
    /// `--distribution` of ranks over nodes.
    pub distribution: Distribution,
    /// `--kill-on-bad-exit`: whether the step ends when a task fails. None: as the cluster says.
    pub kill_on_bad_exit: Option<bool>,
    /// `--wait`: seconds from the end of the first task until the others are killed; 0: no limit. None: as the cluster says.
    pub wait_s: Option<u32>,
    /// `--wait-for-children`: a task lasts until the processes that it has left behind have ended.
    pub wait_for_children: bool,
    /// `--async`: srun ends when its step exists, and goes on with it in the background.
    pub asynchronous: bool,
    /// `--cpu-bind`: binding of tasks to CPUs, as given.
    pub cpu_bind: Option<String>,
    /// `--disable-status`: SIGINT is passed to the tasks at once, without printing their status first.
    pub disable_status: bool,
    /// `--quit-on-interrupt`: a single SIGINT ends the step.
    pub quit_on_interrupt: bool,
    /// `--slurmd-debug`: how much step daemons log, 0 to 4.
    pub slurmd_debug: u32,
    /// `--bcast`: path on the nodes to which the program is copied; empty: the nodes' file cache.
    pub bcast: Option<String>,
    /// `--resv-ports`: number of ports that the step reserves on its nodes. None: as many as the configuration says.
    pub resv_ports: Option<u32>,
    /// `--prolog` and `--epilog`: programs that srun itself runs before and after the step.
    pub around: TaskScripts,
    /// `--restarts`: how often the step is started again after one of its nodes has failed.
    pub restarts: u32,
    /// `--restart-only-lost`: only the tasks of the failed node are started again.
    pub restart_only_lost: bool,
}

/// Values of options that only salloc has.
#[derive(Clone, Debug, Default)]
pub struct Alloc {
    /// `--no-shell`: no command is run, and the allocation remains when salloc ends.
    pub no_shell: bool,
    /// `--bell` (true) or `--no-bell` (false). None: neither is given.
    pub bell: Option<bool>,
    /// `--kill-command`: signal sent to the command when the allocation ends before it. None: not given.
    pub kill_command: Option<i32>,
}

impl SubmitOptions {
    /// Returns the values when no options are given to `tool`.
    pub fn new(tool: Tool) -> Self {
        let mut asked = Self::default();
        asked.spec.kind = match tool {
            Tool::Sbatch => squall_model::job::JobKind::Batch,
            Tool::Srun => squall_model::job::JobKind::Run,
            Tool::Salloc => squall_model::job::JobKind::Allocation,
        };
        asked
    }

    /// Returns whether the option was given on the command line.
    pub fn on_line(&self, long: &str) -> bool {
        self.sources.get(long) == Some(&Source::Line)
    }
}
