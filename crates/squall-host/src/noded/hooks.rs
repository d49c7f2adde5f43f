//! Runs programs around jobs and on the node, as the state machine orders.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use squall_engine::environment::Env;
use squall_engine::hook::{About, hook_env, plugin_env};
use squall_engine::node::{HookRun, NodeInput};
use squall_model::config::{self, Config};
use squall_model::id::{StepKey, StepNo};
use squall_model::job::{ExitCode, JobAttempt};
use squall_model::step::PluginFile;
use squall_model::wire::hook::Hook;
use tracing::{debug, error, warn};

use super::Daemon;
use super::checkpoint::Checkpoints;
use crate::cgroup::Limits;
use crate::hook::{Label, Running, failure, programs};
use crate::plugins::conf::{Wanted, read};
use crate::processes::Stat;
use crate::sys::signals;

/// Number of the step under which programs run in the cgroup of a job (`PrologFlags=RunInJob`), and logins, as that of
/// Slurm's extern step.
pub(super) const EXTERN: StepNo = StepNo(u32::MAX - 3);

/// Lines of plugins beside the node daemon in its log.
const BESIDE: Label = Label { hook: Hook::Health, job: 0 };

type Key = (Hook, Option<JobAttempt>);

/// Programs that run now.
#[derive(Debug)]
pub(super) struct Hooks {
    prolog: Vec<String>,
    epilog: Vec<String>,
    health: String,
    after_fault: String,
    unkillable: String,
    reboot: String,
    in_job: bool,
    cluster: String,
    plugins: Plugins,
    runs: BTreeMap<Key, Run>,
    /// Programs by their process id.
    children: HashMap<u32, Key>,
    /// Where checkpoints are kept, and those that are being made.
    pub(super) checkpoints: Checkpoints,
}

/// SPANK plugins with hooks around jobs or of the node daemon.
#[derive(Debug, Default)]
struct Plugins {
    /// The file that lists them. None: the site has none.
    file: Option<PluginFile>,
    wanted: Wanted,
    /// The process beside this daemon, and the input of which the end tells it that the daemon has ended.
    beside: Option<(Running, PipeWriter)>,
}

impl Plugins {
    /// Finds out which hooks the site's plugins have.
    fn of(file: Option<PluginFile>) -> Self {
        let lines = file.as_ref().map(|file| read(Path::new(&file.path))).transpose().unwrap_or_else(|why| {
            warn!(why, "no hooks of SPANK plugins around jobs");
            None
        });
        Self { file, wanted: Wanted::of(&lines.unwrap_or_default()), beside: None }
    }

    /// Returns whether plugins have a hook of this kind.
    fn has(&self, hook: Hook) -> bool {
        match hook {
            Hook::Prolog => self.wanted.prolog,
            Hook::Epilog => self.wanted.epilog,
            _ => false,
        }
    }

    /// Starts the process for an errand.
    fn start(
        &self,
        (program, errand): (&Path, &str),
        env: &Env,
        label: &Label,
        input: BorrowedFd<'_>,
    ) -> io::Result<Running> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let limit = file.timeout_s.to_string();
        let args = ["step", "--plugins-around", errand, &file.path, &limit, &file.release];
        Running::start_with((program, &args), env, label, input)
    }
}

/// The programs of one kind for one job, which run one after the other.
#[derive(Debug)]
struct Run {
    env: Env,
    /// Further variables for hooks of plugins. None: there are none, or they have been started.
    plugins: Option<Env>,
    next: VecDeque<PathBuf>,
    running: Option<Running>,
    /// Whether hooks of plugins run.
    of_plugins: bool,
    /// Why hooks of plugins have failed. The site's programs run in any case, as in Slurm.
    failed: Option<String>,
}

impl Hooks {
    pub(super) fn of(config: &Config, plugins: Option<PluginFile>) -> Self {
        let (hooks, health) = (&config.hooks, &config.health);
        Self {
            prolog: hooks.prolog.clone(),
            epilog: hooks.epilog.clone(),
            health: health.program.clone(),
            after_fault: health.after_fault.clone(),
            unkillable: health.unkillable_step_program.clone(),
            reboot: health.reboot_program.clone(),
            in_job: hooks.prolog_flags.run_in_job,
            cluster: config.cluster.clone(),
            plugins: Plugins::of(plugins),
            runs: BTreeMap::new(),
            children: HashMap::new(),
            checkpoints: Checkpoints::of(config),
        }
    }

    /// Returns the file that lists the site's SPANK plugins. None: it has none.
    pub(super) fn plugin_file(&self) -> Option<&PluginFile> {
        self.plugins.file.as_ref()
    }

    /// Returns the programs around jobs as the state machine knows them. Hooks of plugins are one of them.
    pub(super) fn for_machine(&self, config: &Config) -> config::Hooks {
        let mut hooks = config.hooks.clone();
        let Some(file) = self.plugin_file() else { return hooks };
        for (list, hook) in [(&mut hooks.prolog, Hook::Prolog), (&mut hooks.epilog, Hook::Epilog)] {
            list.extend(self.plugins.has(hook).then(|| file.path.clone()));
        }
        hooks
    }

    fn paths(&self, hook: Hook) -> Vec<&str> {
        match hook {
            Hook::Prolog => self.prolog.iter().map(String::as_str).collect(),
            Hook::Epilog => self.epilog.iter().map(String::as_str).collect(),
            Hook::Health => vec![&self.health],
            Hook::AfterFault => vec![&self.after_fault],
            Hook::Unkillable => vec![&self.unkillable],
            // The words after the first are arguments.
            Hook::Reboot => self.reboot.split_whitespace().take(1).collect(),
            // The controller's host runs these.
            Hook::PrologSlurmctld | Hook::EpilogSlurmctld | Hook::Suspend | Hook::Resume | Hook::ResumeFail => {
                Vec::new()
            }
            // Squall's own program makes them.
            Hook::Checkpoint => Vec::new(),
        }
    }
}

fn label((hook, job): Key) -> Label {
    Label { hook, job: job.map_or(0, |job| job.job.0) }
}

impl Daemon {
    /// Reports programs that earlier runs of the daemon saw end, and kills those that still run: they run again.
    pub(super) fn find_hooks(&mut self) {
        for noted in self.spool.hooks() {
            for (pid, start) in noted.started {
                if start > 0 && Stat::of(pid).is_some_and(|stat| stat.start == start && !stat.is_dead()) {
                    warn!(job = %noted.job.job, pid, "killing a program that an earlier node daemon started");
                    drop(signals::kill_group(pid, libc::SIGKILL));
                }
            }
            let job = noted.job;
            self.inputs.extend(noted.done.into_iter().map(|hook| NodeInput::FoundHook { job, hook }));
        }
    }

    /// Starts the process with plugins that have hooks of the node daemon.
    pub(super) fn start_plugins(&mut self) {
        if !self.hooks.plugins.wanted.daemon {
            return;
        }
        let of_node = About {
            hook: Hook::Health,
            facts: None,
            node: &self.name,
            cluster: &self.hooks.cluster,
            exit: None,
            derived: None,
        };
        let env = hook_env(of_node);
        let started = io::pipe().and_then(|(input, writer)| {
            let running = self.hooks.plugins.start((&self.program_path(), "node"), &env, &BESIDE, input.as_fd())?;
            Ok((running, writer))
        });
        match started {
            Ok(beside) => self.hooks.plugins.beside = Some(beside),
            Err(e) => error!(error = %e, "hooks of SPANK plugins for the node daemon can't run"),
        }
    }

    /// Handles the end of the process with plugins beside this daemon. False: it is another child.
    fn plugins_died(&mut self, pid: u32, exit: ExitCode) -> bool {
        let Some((running, _)) = self.hooks.plugins.beside.take_if(|(running, _)| running.pid == pid) else {
            return false;
        };
        if failure(&running.program, exit).is_some() {
            let why = running.last_line().unwrap_or_default();
            error!(why, "SPANK plugins beside the node daemon have ended");
        }
        true
    }

    fn program_path(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(self.program.to_bytes()))
    }

    /// Starts the programs of one kind.
    pub(super) fn run_hook(&mut self, run: &HookRun) {
        let key = (run.hook, run.job());
        let facts = run.facts.as_deref();
        let (hook, exit) = (run.hook, run.exit);
        let env = hook_env(About { hook, facts, node: &self.name, cluster: &self.hooks.cluster, exit, derived: None });
        match programs(self.hooks.paths(hook)) {
            Ok(next) => {
                let plugins = facts.filter(|_| self.hooks.plugins.has(hook)).map(plugin_env);
                let run = Run { env, plugins, next: next.into(), running: None, of_plugins: false, failed: None };
                self.hooks.runs.insert(key, run);
                self.next_program(key);
            }
            Err(e) => self.hook_over(key, Some(e.to_string())),
        }
    }

    /// Starts the next program of a kind, or reports that all have succeeded.
    fn next_program(&mut self, key: Key) {
        let own = self.program_path();
        let Some(run) = self.hooks.runs.get_mut(&key) else { return };
        let started = if let Some(further) = run.plugins.take() {
            run.of_plugins = true;
            let env = [run.env.clone(), further].concat();
            let errand = if key.0 == Hook::Prolog { "prolog" } else { "epilog" };
            let null = File::open("/dev/null");
            null.and_then(|null| self.hooks.plugins.start((&own, errand), &env, &label(key), null.as_fd()))
        } else {
            run.of_plugins = false;
            let Some(program) = run.next.pop_front() else {
                let failed = run.failed.take();
                return self.hook_over(key, failed);
            };
            let arguments = if key.0 == Hook::Reboot { self.hooks.reboot.as_str() } else { "" };
            let arguments: Vec<&str> = arguments.split_whitespace().skip(1).collect();
            Running::start(&program, &arguments, &run.env, &label(key))
        };
        match started {
            Ok(running) => {
                let pid = running.pid;
                run.running = Some(running);
                self.hooks.children.insert(pid, key);
                if let (hook @ (Hook::Prolog | Hook::Epilog), Some(job)) = key {
                    if let Err(e) = self.spool.hook_started(job, hook, pid) {
                        error!(job = %job.job, error = %e, "the start of {} could not be noted", hook.name());
                    }
                    if self.hooks.in_job {
                        self.join_job(job, pid);
                    }
                }
            }
            Err(e) => self.hook_over(key, Some(e.to_string())),
        }
    }

    /// Moves a program into the cgroup of its job.
    fn join_job(&self, job: JobAttempt, pid: u32) {
        let key = StepKey { job: job.job, attempt: job.attempt, step: EXTERN };
        let joined = self.cgroups.open_step(key, &Limits::default()).and_then(|groups| {
            groups.folders().try_for_each(|dir| fs::write(dir.join("cgroup.procs"), pid.to_string()))
        });
        if let Err(e) = joined {
            warn!(job = %job.job, error = %e, "the program runs outside the job's cgroup");
        }
    }

    /// Handles the end of a child that is such a program. False: it is none.
    pub(super) fn hook_died(&mut self, pid: u32, exit: ExitCode) -> bool {
        let Some(key) = self.hooks.children.remove(&pid) else { return self.plugins_died(pid, exit) };
        let Some(run) = self.hooks.runs.get_mut(&key) else { return true };
        let Some(running) = run.running.take() else { return true };
        let failed = failure(&running.program, exit);
        if run.of_plugins {
            // What follows its last line is that it was ended itself, as beyond a time limit.
            run.failed = failed.map(|failed| running.last_line().unwrap_or(failed));
            self.next_program(key);
            return true;
        }
        let first_line = running.first_line();
        match failed {
            None => self.next_program(key),
            // A check says by its first line what is wrong with the node.
            Some(failure) if matches!(key.0, Hook::Health | Hook::AfterFault) => {
                self.hook_over(key, Some(first_line.unwrap_or(failure)));
            }
            Some(failure) => self.hook_over(key, Some(failure)),
        }
        true
    }

    /// Notes the end of the programs of one kind, and reports it to the state machine.
    fn hook_over(&mut self, key: Key, error: Option<String>) {
        self.hooks.runs.remove(&key);
        let (hook, job) = key;
        if let Some(error) = &error {
            error!(job = label(key).job, error, "{} failed", hook.name());
        } else {
            debug!(job = label(key).job, "{} has ended", hook.name());
        }
        if let Some(job) = job.filter(|_| hook == Hook::Epilog || (hook == Hook::Prolog && error.is_none()))
            && let Err(e) = self.spool.hook_done(job, hook)
        {
            error!(job = %job.job, error = %e, "the end of {} could not be noted", hook.name());
        }
        if self.hooks.in_job
            && let Some(JobAttempt { job, attempt }) = job
        {
            self.cgroups.close_step(StepKey { job, attempt, step: EXTERN });
        }
        self.inputs.push_back(NodeInput::HookEnded { hook, job, error });
    }

    /// Kills a running program with its process group.
    pub(super) fn kill_hook(&mut self, hook: Hook, job: Option<JobAttempt>) {
        let Some(run) = self.hooks.runs.get_mut(&(hook, job)) else { return };
        run.next.clear();
        let Some(running) = &run.running else { return };
        warn!(job = label((hook, job)).job, "{} runs beyond its time limit: killing it", hook.name());
        match signals::kill_group(running.pid, libc::SIGKILL) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH) => {}
            Err(e) => error!(error = %e, "{} can't be killed", hook.name()),
        }
    }

    /// Removes the notes about the programs of a job.
    pub(super) fn forget_hooks(&self, job: JobAttempt) {
        let plugins = [Hook::Prolog, Hook::Epilog].into_iter().any(|hook| self.hooks.plugins.has(hook));
        if plugins || !self.hooks.prolog.is_empty() || !self.hooks.epilog.is_empty() {
            self.spool.forget_hooks(job);
        }
    }
}
