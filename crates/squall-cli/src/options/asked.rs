//! What the options ask for, before it is known whether it becomes a job, an allocation or a step.

use std::collections::BTreeMap;

use squall_model::job::JobSpec;
use squall_model::step::{Distribution, TaskScripts};

use crate::options::{Effect, Opt, Source, Tool, table};

/// Everything that was asked, with where each option was given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// What becomes the job.
    pub(crate) spec: JobSpec,
    /// Where each option was given, by long name.
    pub(crate) sources: BTreeMap<&'static str, Source>,
    /// The options as they were given, by long name: what `--verbose` shows.
    pub(crate) given: BTreeMap<&'static str, Option<String>>,
    /// Who the job is for, where root asks for somebody else.
    pub(crate) run_as: RunAs,
    /// What is said on standard error in any case, each after `NAME: error: `.
    pub(crate) warnings: Vec<String>,
    /// What is said with `--verbose`, each after `NAME: `.
    pub(crate) notes: Vec<String>,
    /// `--quiet`.
    pub(crate) quiet: bool,
    /// `--verbose`, how often.
    pub(crate) verbose: u8,
    /// `--export`.
    pub(crate) export: Option<String>,
    /// `--propagate`.
    pub(crate) propagate: Option<String>,
    /// `--clusters`.
    pub(crate) clusters: Option<String>,
    /// `--extra-node-info`: sockets, cores and threads; 0: any number.
    pub(crate) extra_node_info: Option<[u32; 3]>,
    /// `--immediate`: seconds.
    pub(crate) immediate_s: Option<u32>,
    /// `--test-only`.
    pub(crate) test_only: bool,
    /// Only sbatch's.
    pub(crate) batch: Batch,
    /// Only srun's.
    pub(crate) run: Run,
    /// Only salloc's.
    pub(crate) alloc: Alloc,
}

/// `--uid` and `--gid` of root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunAs {
    /// `--uid`: the user, and the group of its login.
    pub(crate) user: Option<(u32, u32)>,
    /// `--gid`.
    pub(crate) group: Option<u32>,
}

/// What only sbatch can be asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    /// `--wrap`.
    pub(crate) wrap: Option<String>,
    /// `--parsable`.
    pub(crate) parsable: bool,
    /// `--wait`.
    pub(crate) wait: bool,
    /// `--export-file`.
    pub(crate) export_file: Option<String>,
    /// `--ignore-pbs`.
    pub(crate) ignore_pbs: bool,
    /// The mask of the job's files, where it is not that of sbatch itself.
    pub(crate) umask: Option<u32>,
}

/// What only srun can be asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    /// `--jobid`, or the job in which srun runs.
    pub(crate) job: Option<u32>,
    /// `--label`.
    pub(crate) label: bool,
    /// `--unbuffered`.
    pub(crate) unbuffered: bool,
    /// `--pty`.
    pub(crate) pty: bool,
    /// `--multi-prog`.
    pub(crate) multi_prog: bool,
    /// `--exact`.
    pub(crate) exact: bool,
    /// `--whole`.
    pub(crate) whole: bool,
    /// `--overlap`.
    pub(crate) overlap: bool,
    /// `--relative`.
    pub(crate) relative: Option<u32>,
    /// `--distribution`.
    pub(crate) distribution: Distribution,
    /// `--kill-on-bad-exit`.
    pub(crate) kill_on_bad_exit: bool,
    /// `--wait`, seconds; 0: for ever.
    pub(crate) wait_s: u32,
    /// `--cpu-bind`.
    pub(crate) cpu_bind: Option<String>,
    /// `--disable-status`.
    pub(crate) disable_status: bool,
    /// `--quit-on-interrupt`.
    pub(crate) quit_on_interrupt: bool,
    /// `--slurmd-debug`.
    pub(crate) slurmd_debug: u32,
    /// `--bcast`: where the program goes; empty: into the nodes' keeping.
    pub(crate) bcast: Option<String>,
    /// `--prolog` and `--epilog`: what srun itself runs around the step.
    pub(crate) around: TaskScripts,
}

/// What only salloc can be asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alloc {
    /// `--no-shell`.
    pub(crate) no_shell: bool,
    /// `--bell` (true), `--no-bell` (false).
    pub(crate) bell: Option<bool>,
    /// `--kill-command`: the signal for the command when the allocation ends before it.
    pub(crate) kill_command: Option<i32>,
}

impl Asked {
    /// What every command starts from.
    pub(crate) fn new(tool: Tool) -> Self {
        let mut asked = Self::default();
        asked.spec.kind = match tool {
            Tool::Sbatch => squall_model::job::JobKind::Batch,
            Tool::Srun => squall_model::job::JobKind::Run,
            Tool::Salloc => squall_model::job::JobKind::Allocation,
        };
        asked
    }

    /// Whether the option was given on the command line.
    pub(crate) fn on_line(&self, long: &str) -> bool {
        self.sources.get(long) == Some(&Source::Line)
    }

    /// What `--verbose` says of the options on which nothing acts: a line for each.
    pub(crate) fn without_effect(&self, tool: Tool) -> Vec<String> {
        let line = |option: &Opt| match option.effect {
            Effect::Hint(why) if self.given.contains_key(option.long) => {
                Some(format!("--{} is taken without effect: {why}", option.long))
            }
            _ => None,
        };
        table::options_of(tool).filter_map(line).collect()
    }
}
