//! A step of several components, in a heterogeneous job or in a plain one: one srun process for each component, started
//! together and ended together.

mod apart;

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::event::PollFlags;
use squall_engine::environment::{is_of_components, is_output, job_env};
use squall_host::stepd::is_linked_with_mpi;
use squall_host::sys::command::unblock_signals;
use squall_host::sys::signals::{SignalFd, kill};
use squall_model::id::JobId;
use squall_model::set::IndexSet;
use squall_model::step::{Among, JobFacts, Layout, StepSpec};
use squall_model::wire::client::{Answer, Request};

use super::{SIGNALS, SRUN};
use crate::capture::Vars;
use crate::command::allocation::ready;
use crate::contact::Patience;
use squall_client::ClientError;
use squall_client::unexpected;
use squall_text::options::getopt::ParsedOption;
use squall_text::options::{Stop, collect};

/// One part of a command line for several components: the text between two `:`.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The part's options, without `--het-group` and `--jobid`.
    options: Vec<ParsedOption>,
    /// `--jobid`: id of the job in which the step runs; None: the option isn't given.
    job: Option<u32>,
    /// Components in which the part runs; None: the one with the part's own position on the command line.
    groups: Option<IndexSet>,
    /// Program that the part runs, with its arguments.
    command: Vec<OsString>,
}

impl Part {
    /// Parses the words of one part. Some options are inherited from the part before.
    fn read(args: &[OsString], before: Option<&Self>) -> Result<Self, Stop> {
        let line = collect::line(SRUN, args)?;
        let job = line.value("jobid").and_then(|id| id.parse().ok());
        let groups = match line.value("het-group") {
            None => None,
            Some(list) => Some(groups(list).ok_or_else(|| {
                Stop::bad(format!("Invalid --het-group specification: {list}: use numbers such as 0,2-3"))
            })?),
        };
        let mut options = before.map(|before| collect::carried(&before.options)).unwrap_or_default();
        options.extend(line.options.into_iter().filter(|(option, _)| !matches!(option.long, "het-group" | "jobid")));
        let job = job.or(before.and_then(|before| before.job));
        Ok(Self { options, job, groups, command: line.operands.to_vec() })
    }

    fn says(&self, long: &str) -> Option<&str> {
        self.options
            .iter()
            .rev()
            .find(|(option, _)| option.long == long)
            .map(|(_, value)| value.as_deref().unwrap_or(""))
    }

    /// Returns the step that the part asks for with these variables. Messages are printed later, when the part runs.
    fn spec(&self, vars: &Vars) -> Result<StepSpec, Stop> {
        let quiet = self.options.iter().filter(|(option, _)| option.long != "verbose").cloned();
        let args: Vec<OsString> = Self { options: quiet.collect(), ..self.clone() }.args().collect();
        let (mut asked, command) = super::gather(&args, vars)?;
        asked.quiet = true;
        Ok(super::request::step(&asked, &command, vars, true)?.spec)
    }

    /// Returns the numbers of tasks and of nodes that the part has in a component.
    fn size(&self, component: &JobFacts, vars: &Vars) -> Result<(u32, u32), Stop> {
        let spec = self.spec(&variables(component, vars))?;
        let all = component.nodes.len() as u32;
        let nodes = spec.nodes_max.or(spec.nodes_min).unwrap_or(all).min(all);
        let ntasks = spec.ntasks.unwrap_or(nodes * spec.ntasks_per_node.unwrap_or(1));
        Ok((ntasks, nodes.min(ntasks)))
    }

    /// Returns the command line of an srun that runs this part alone.
    pub(super) fn args(&self) -> impl Iterator<Item = OsString> + '_ {
        let options = self.options.iter().map(|(option, value)| match value {
            Some(value) => format!("--{}={value}", option.long).into(),
            None => format!("--{}", option.long).into(),
        });
        options.chain(std::iter::once("--".into())).chain(self.command.iter().cloned())
    }
}

/// Parses component numbers such as `0,2-3`.
fn groups(list: &str) -> Option<IndexSet> {
    let mut all = IndexSet::new();
    for part in list.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high): (u32, u32) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        if low > high || high as usize >= squall_model::limits::HET_COMPONENTS_MAX {
            return None;
        }
        all.union_with(&IndexSet::range(low, high));
    }
    Some(all)
}

/// Splits the command line into parts for components; None: it is for a single step.
pub(super) fn parts(args: &[OsString]) -> Result<Option<Vec<Part>>, Stop> {
    let mut all: Vec<Part> = Vec::new();
    for args in args.split(|word| word == ":") {
        let part = Part::read(args, all.last())?;
        all.push(part);
    }
    if all.len() == 1 && all[0].groups.is_none() {
        return Ok(None);
    }
    // A part without a program runs that of the next part.
    for at in (0..all.len() - 1).rev() {
        if all[at].command.is_empty() {
            let (before, after) = all.split_at_mut(at + 1);
            before[at].command.clone_from(&after[0].command);
        }
    }
    if all.iter().any(|part| part.command.is_empty()) {
        return Err(Stop::bad("fatal: No command given to execute."));
    }
    Ok(Some(all))
}

/// Returns the job in which the step runs: from `--jobid`, otherwise from the environment.
pub(super) fn job_of(parts: &[Part], vars: &Vars) -> Option<JobId> {
    let of_environment = || {
        let (_, value) = vars.iter().find(|(name, _)| name == "SLURM_JOB_ID" || name == "SLURM_JOBID")?;
        value.to_str()?.parse().ok()
    };
    parts[0].job.or_else(of_environment).map(JobId)
}

/// Runs all parts in a running job.
pub(super) fn run(parts: &[Part], job: JobId, vars: &Vars) -> Result<u8, Stop> {
    let what = format!("Unable to create step for job {job}");
    let failed = |e: &ClientError| Stop::Bad { lines: e.lines(&what), exit: 1 };
    let (_, answer) = Patience::new("srun").ask(&Request::Facts { job }).map_err(|e| failed(&e))?;
    let Answer::Allocated(facts) = answer else { return Err(failed(&unexpected())) };
    run_in(parts, &facts, vars)
}

/// Runs all parts in a job as [`run`] does, with `facts` about the job that are known already.
pub(super) fn run_in(parts: &[Part], facts: &JobFacts, vars: &Vars) -> Result<u8, Stop> {
    let divided;
    let steps: Vec<(&Part, &JobFacts)> = if apart::is_in_plain_job(parts, facts) {
        divided = apart::divide(parts, facts, vars)?;
        divided.iter().map(|part| (part, facts)).collect()
    } else {
        assign(parts, facts)?
    };
    if steps.len() > 1 {
        steps.iter().try_for_each(|(part, _)| one_program(part, vars))?;
    }
    let places = places(&steps, vars)?;
    let signals = [SIGNALS.as_slice(), &[libc::SIGCHLD]].concat();
    let signals = SignalFd::new(&signals).map_err(|e| Stop::bad(format!("signalfd: {e}")))?;
    let mut running = Vec::new();
    for ((part, component), among) in steps.into_iter().zip(places) {
        match spawn(part, component, (vars, &among), running.is_empty()) {
            Ok(child) => running.push(child),
            Err(error) => {
                for child in &mut running {
                    signal(child, libc::SIGTERM);
                    drop(child.wait());
                }
                return Err(Stop::bad(format!("unable to start srun for a component: {error}")));
            }
        }
    }
    let bad_ends_all = parts.iter().any(|part| part.says("kill-on-bad-exit").is_some_and(|value| value != "0"));
    wait_for(running, &signals, bad_ends_all)
}

/// Returns the numbers of the components in which the part at a position of the command line runs.
fn numbers_of(part: &Part, at: u32) -> IndexSet {
    part.groups.clone().unwrap_or_else(|| IndexSet::range(at, at))
}

fn duplicate(group: u32) -> Stop {
    Stop::bad(format!(
        "fatal: Duplicate het groups in single srun not supported: group {group} is named by two programs"
    ))
}

/// Assigns each part to its component or components; the result is ordered by component.
fn assign<'a>(parts: &'a [Part], facts: &'a JobFacts) -> Result<Vec<(&'a Part, &'a JobFacts)>, Stop> {
    let alone = std::slice::from_ref(facts);
    let components = if facts.components.is_empty() { alone } else { &facts.components };
    let number = |component: &JobFacts| component.key.job.0.saturating_sub(facts.key.job.0);
    let mut steps = Vec::new();
    for (at, part) in (0..).zip(parts) {
        for group in numbers_of(part, at).iter() {
            let Some(component) = components.iter().find(|component| number(component) == group) else {
                let most = components.iter().map(number).max().unwrap_or(0);
                return Err(Stop::bad(format!(
                    "Attempt to run a job step with het group value of {group}, but the job allocation has maximum value of {most}"
                )));
            };
            if steps.iter().any(|(_, other): &(_, &JobFacts)| number(other) == group) {
                return Err(duplicate(group));
            }
            steps.push((part, component));
        }
    }
    // Ranks follow the order of the components, not that of the programs on the command line.
    steps.sort_by_key(|(_, component)| number(component));
    Ok(steps)
}

/// Refuses an MPI program that runs in several components: the ranks in each component would assume that they are the
/// whole program.
fn one_program(part: &Part, vars: &Vars) -> Result<(), Stop> {
    let program = &part.command[0];
    let asked = match part.says("mpi") {
        Some("none") => return Ok(()),
        Some(_) => true,
        None => find(program, vars).is_some_and(|path| is_linked_with_mpi(&path)),
    };
    if !asked {
        return Ok(());
    }
    Err(Stop::bad(format!(
        "{}: one MPI program (one MPI_COMM_WORLD) over several components of a heterogeneous job is not supported; run it in one component (--het-group=N), or with --mpi=none as a program of its own in each",
        program.to_string_lossy()
    )))
}

/// Finds the program's file on this machine.
fn find(program: &OsStr, vars: &Vars) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return Some(path.to_owned());
    }
    let (_, folders) = vars.iter().find(|(name, _)| name == "PATH")?;
    std::env::split_paths(folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Environment variable that tells an srun of one component its position among the others. Tasks don't get it.
pub(super) const AMONG: &str = "SQUALL_HET_AMONG";

/// Returns the position of this srun among those of other components. None: it was started alone.
pub(super) fn among(vars: &Vars) -> Option<Among> {
    let (_, text) = vars.iter().find(|(name, _)| name == AMONG)?;
    let numbers: Vec<u32> = text.to_str()?.split(',').map_while(|number| number.parse().ok()).collect();
    let [tasks_before, own, tasks, nodes_before, nodes] = numbers[..] else { return None };
    Some(Among { tasks_before, own, tasks, nodes_before, nodes })
}

pub(super) fn among_text(Among { tasks_before, own, tasks, nodes_before, nodes }: &Among) -> String {
    [tasks_before, own, tasks, nodes_before, nodes].map(ToString::to_string).join(",")
}

/// Returns srun's environment without the variable for its position among components: the environment of its tasks.
pub(super) fn without_among(vars: &Vars) -> Vars {
    vars.iter().filter(|(name, _)| name != AMONG).cloned().collect()
}

/// Refuses a layout if its number of tasks differs from the number announced to the other components.
pub(super) fn verify(among: Option<Among>, layout: &Layout) -> Result<(), Stop> {
    match among {
        Some(among) if among.own != layout.ntasks() => Err(Stop::bad(format!(
            "this component's step has {} tasks, the others expect {}: set -n",
            layout.ntasks(),
            among.own
        ))),
        _ => Ok(()),
    }
}

/// Returns, for each part, the position of its tasks and nodes among those of all parts. Numbers of tasks follow from
/// options and component.
fn places(steps: &[(&Part, &JobFacts)], vars: &Vars) -> Result<Vec<Among>, Stop> {
    let mut all = Vec::new();
    let (mut tasks, mut nodes) = (0, 0);
    for (part, component) in steps {
        let (own, nnodes) = part.size(component, vars)?;
        all.push(Among { tasks_before: tasks, nodes_before: nodes, own, ..Among::default() });
        (tasks, nodes) = (tasks + own, nodes + nnodes);
    }
    for among in &mut all {
        (among.tasks, among.nodes) = (tasks, nodes);
    }
    Ok(all)
}

/// Returns the environment of an srun for a component.
fn variables(component: &JobFacts, vars: &Vars) -> Vars {
    let kept = |name: &OsStr| name.to_str().is_none_or(|name| !is_output(name) || is_of_components(name));
    let own = job_env(component);
    let others = vars.iter().filter(|(name, _)| kept(name) && !own.iter().any(|(known, _)| *name == **known));
    let own = own.iter().map(|(name, value)| (name.into(), value.into()));
    others.cloned().chain(own).collect()
}

/// Starts an srun for a component. The component's own variables replace those of the job's first component.
fn spawn(part: &Part, component: &JobFacts, (vars, among): (&Vars, &Among), first: bool) -> std::io::Result<Child> {
    let mut srun = Command::new(std::env::current_exe()?);
    srun.arg0(SRUN.name()).args(part.args()).env_clear();
    srun.envs(variables(component, vars)).env(AMONG, among_text(among));
    // Only the first srun reads standard input. The others append to output files, which the first creates.
    if !first {
        srun.stdin(Stdio::null()).env("SLURM_OPEN_MODE", "a");
    }
    unblock_signals(&mut srun).spawn()
}

/// Waits until all sruns have ended; returns the highest exit code. With `bad_ends_all`, all others are ended when one
/// fails.
fn wait_for(mut running: Vec<Child>, signals: &SignalFd, bad_ends_all: bool) -> Result<u8, Stop> {
    let mut code = 0;
    let terminal = rustix::termios::isatty(rustix::stdio::stdin());
    while !running.is_empty() {
        ready(&[(signals.as_fd(), PollFlags::IN)], None);
        while let Some(got) = signals.take() {
            // All sruns get the signals of keys typed at the terminal directly.
            let stays = matches!(got, libc::SIGCHLD | libc::SIGWINCH) || (terminal && got == libc::SIGINT);
            running.iter().filter(|_| !stays).for_each(|child| signal(child, got));
        }
        let mut bad = false;
        let mut left = Vec::new();
        for mut child in running {
            match child.try_wait().map_err(|e| Stop::bad(format!("waitpid: {e}")))? {
                None => left.push(child),
                Some(status) => {
                    let own = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)) as u8;
                    bad |= own != 0;
                    code = code.max(own);
                }
            }
        }
        running = left;
        if bad && bad_ends_all {
            for child in &running {
                signal(child, libc::SIGTERM);
            }
        }
    }
    Ok(code)
}

/// Sends a signal to an srun. An error is ignored: the process has just ended.
fn signal(child: &Child, signal: i32) {
    let _ = kill(child.id(), signal);
}

#[cfg(test)]
mod tests {
    use super::{groups, parts};

    fn read(words: &str) -> Option<Vec<(String, String, String)>> {
        let args: Vec<_> = words.split(' ').map(Into::into).collect();
        let parts = parts(&args).expect("it is well formed")?;
        let text = |words: Vec<std::ffi::OsString>| {
            words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        let group = |part: &super::Part| part.groups.as_ref().map_or("-".into(), ToString::to_string);
        Some(parts.iter().map(|p| (group(p), text(p.args().collect()), text(p.command.clone()))).collect())
    }

    #[test]
    fn parts_of_a_command_line() {
        assert_eq!(read("-n2 hostname"), None);
        let two = read("-l -n2 --mpi=none a x : -n 3 b").expect("there are two");
        assert_eq!(two[0], ("-".into(), "--label --ntasks=2 --mpi=none -- a x".into(), "a x".into()));
        assert_eq!(two[1], ("-".into(), "--label --ntasks=3 -- b".into(), "b".into()));
        let shared = read("--het-group=0-1 --jobid=7 a").expect("it names components");
        assert_eq!(shared, [("0-1".into(), "-- a".into(), "a".into())]);
        assert_eq!(read("--pack-group=1 : --het-group=0 b").expect("two")[0].2, "b");
        for bad in ["", "x", "1-", "3-2", "999"] {
            assert_eq!(groups(bad), None, "{bad}");
        }
    }
}
