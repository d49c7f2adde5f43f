//! Translates options into the requests for the controller and the step daemons.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use squall_engine::environment::INSIDE;
use squall_model::encoding::ByteBuf;
use squall_model::hostlist::{compress, expand};
use squall_model::id::StepNo;
use squall_model::job::options::{Chosen, Options};
use squall_model::limits::UNLIMITED_S;
use squall_model::resource::Memory;
use squall_model::step::{Distribution, Inside, RankSet, StepSpec, Stream, TaskProgram, X11, X11Nodes};

use super::streams::Route;
use super::x11::Display;
use super::{background, het, multi_prog, terminal};
use crate::capture::{self, Vars};
use squall_client::random;
use squall_text::options::submit::SubmitOptions;
use squall_text::options::{Source, Stop, Tool};

/// Variable with the number of times that the tasks were started again after nodes had failed.
pub(super) const RESTART: &str = "SQUALL_STEP_RESTART";
/// Variable with the nodes that had failed before.
pub(super) const LOST: &str = "SQUALL_LOST_NODES";

/// A request for a step. It lacks only the address of srun's listening socket.
#[derive(Clone, Debug)]
pub(crate) struct StepRequest {
    /// The specification of the step, which the controller needs.
    pub(crate) spec: StepSpec,
    /// The program and how it is run, which the step daemons need.
    pub(crate) program: TaskProgram,
    /// Source of the tasks' standard input.
    pub(crate) input: Route,
    /// Destination of the tasks' standard output.
    pub(crate) output: Route,
    /// Destination of the tasks' standard error.
    pub(crate) error: Route,
}

impl StepRequest {
    /// Changes the request to one that starts the step again, for the `count`-th time, after nodes of it have failed. Its
    /// output is appended, and it has no standard input unless that is a file.
    pub(crate) fn start_again(&mut self, count: u32, lost: &[String]) {
        self.program.append = true;
        if self.input.file.is_none() && !matches!(self.input.stream, Stream::File(_)) {
            self.input = Route::of(Some("none"));
            self.program.stdin = self.input.stream.clone();
        }
        let mut env = std::mem::take(&mut self.program.env).into_vec();
        for text in [format!("{RESTART}={count}"), format!("{LOST}={}", compress(lost))] {
            env.extend_from_slice(text.as_bytes());
            env.push(0);
        }
        self.program.env = ByteBuf::from(env);
    }
}

/// Returns the base name of a command, which is also the default name of its step.
pub(crate) fn base_name(command: &OsStr) -> String {
    let name = std::path::Path::new(command).file_name().unwrap_or(command);
    name.to_string_lossy().into_owned()
}

/// Builds the request for a step. `inside`: srun runs in an existing allocation, not in one that it requested.
pub(crate) fn step(
    asked: &SubmitOptions,
    command: &[OsString],
    vars: &Vars,
    inside: bool,
) -> Result<StepRequest, Stop> {
    let spec = spec(asked, command, vars, inside)?;
    let pty = asked.run.pty;
    let text = |value: &Option<String>| if pty { Some("0".to_owned()) } else { value.clone() };
    let mut input = Route::of(text(&asked.spec.stdin).as_deref());
    let mut output = Route::of(text(&asked.spec.stdout).as_deref());
    let of_error = text(&asked.spec.stderr);
    let mut error = Route::of_error(of_error.as_deref(), &output);
    if asked.run.asynchronous {
        background::route(asked, [&mut input, &mut output, &mut error], of_error.as_deref());
    }
    let exported = capture::export(Tool::Srun, &het::without_among(vars), asked.export.as_deref())?;
    let program = TaskProgram {
        commands: commands(asked, command, spec.ntasks)?,
        env: ByteBuf::from(exported.env),
        work_dir: ByteBuf::from(asked.spec.work_dir.clone().into_bytes()),
        umask: asked.spec.umask,
        rlimits: asked.spec.rlimits.clone(),
        stdin: input.stream.clone(),
        stdout: output.stream.clone(),
        stderr: if error.stream == output.stream && pty { Stream::Joined } else { error.stream.clone() },
        append: asked.spec.append.unwrap_or(false),
        pty: pty.then(terminal::size),
        kill_on_bad_exit: asked.run.kill_on_bad_exit.unwrap_or(false),
        label: asked.run.label,
        cpu_bind: asked.run.cpu_bind.clone(),
        export: asked.export.clone().filter(|list| !list.eq_ignore_ascii_case("ALL")),
        options: options(asked, inside),
        among: het::among(vars),
        x11: x11(asked),
        inside: spec.inside.is_some().then_some(true),
        wait_for_children: asked.run.wait_for_children.then_some(true),
        within: number(vars, "SLURM_STEP_ID").filter(|_| job_of_environment(asked)).map(StepNo),
        ..TaskProgram::default()
    };
    Ok(StepRequest { spec, program, input, output, error })
}

/// Returns the options that the controller stores with the step and that are handed on to the tasks' environment.
fn options(asked: &SubmitOptions, inside: bool) -> Options {
    let need = &asked.spec.need;
    let mut options = asked.spec.options.clone();
    let Chosen { gpus, step, .. } = &mut *options;
    // Resources of the job are not requested again by the step. A step without options of its own shares all of the
    // job's.
    let own = |option: &str| inside && asked.on_line(option);
    gpus.total = gpus.total.take().filter(|_| own("gpus"));
    gpus.per_node = gpus.per_node.take().filter(|_| own("gpus-per-node"));
    // If the step has options with numbers of GPUs, the job's `--gpus-per-task` does not apply to it.
    let counted = ["gres", "gpus", "gpus-per-node"].into_iter().any(own);
    gpus.per_task = gpus.per_task.take().filter(|_| !counted || own("gpus-per-task"));
    step.gres = need.gres.clone().filter(|_| own("gres"));
    (step.cpus_per_task, step.ntasks_per_node) = (need.cpus_per_task, need.ntasks_per_node);
    step.srun_debug = Some(debug_level(asked).into());
    options
}

/// Returns how X clients of the tasks reach the user's display. None: they don't.
fn x11(asked: &SubmitOptions) -> Option<X11> {
    let nodes = X11Nodes::parse(asked.spec.options.x11.as_deref()?)?;
    let display = std::env::var("DISPLAY").ok().and_then(|name| Display::parse(&name));
    Some(X11 { nodes, cookie: random(), screen: display.map_or(0, |display| display.screen) })
}

/// Returns srun's verbosity as Slurm counts it: 3 by default, 2 with `--quiet`, one more for each `--verbose`.
fn debug_level(asked: &SubmitOptions) -> u8 {
    if asked.quiet { 2 } else { asked.verbose.saturating_add(3) }
}

fn commands(
    asked: &SubmitOptions,
    command: &[OsString],
    ntasks: Option<u32>,
) -> Result<Vec<(RankSet, Vec<ByteBuf>)>, Stop> {
    let words = |words: &[OsString]| words.iter().map(|w| ByteBuf::from(w.clone().into_vec())).collect::<Vec<_>>();
    let Some((first, rest)) = command.split_first() else {
        return Err(Stop::bad("fatal: No command given to execute."));
    };
    if asked.run.multi_prog {
        return multi_prog::read(&first.to_string_lossy(), &words(rest), ntasks);
    }
    if first.as_bytes().contains(&0) || rest.iter().any(|w| w.as_bytes().contains(&0)) {
        return Err(Stop::bad("the command contains a NUL byte"));
    }
    Ok(vec![(RankSet::All, words(command))])
}

fn spec(asked: &SubmitOptions, command: &[OsString], vars: &Vars, inside: bool) -> Result<StepSpec, Stop> {
    let need = &asked.spec.need;
    // The job's options are defaults for its steps; only options of this srun count here.
    let own = |option: &str| !inside || asked.on_line(option);
    let mut spec = StepSpec {
        name: if asked.on_line("job-name") { asked.spec.name.clone() } else { step_name(command) },
        nodes_min: need.nodes_min.filter(|_| inside && asked.on_line("nodes")),
        nodes_max: need.nodes_max.filter(|_| inside && asked.on_line("nodes")),
        ntasks: need.ntasks,
        ntasks_per_node: need.ntasks_per_node.filter(|_| need.ntasks.is_none() || own("ntasks-per-node")),
        cpus_per_task: need.cpus_per_task,
        memory: if inside && (asked.on_line("mem") || asked.on_line("mem-per-cpu")) {
            need.memory
        } else {
            Memory::Unset
        },
        // An arbitrary distribution refers to the nodes in the order of the list.
        nodelist: need
            .nodelist
            .clone()
            .filter(|_| inside || matches!(asked.run.distribution, Distribution::Arbitrary(_))),
        exclude: need.exclude.clone().filter(|_| inside),
        relative: asked.run.relative,
        exact: !asked.run.whole
            && (asked.run.exact
                || asked.on_line("exclusive")
                || (inside && (asked.on_line("cpus-per-task") || asked.on_line("threads-per-core")))),
        overlap: asked.run.overlap,
        overcommit: need.overcommit,
        immediate: asked.immediate_s.is_some_and(|seconds| seconds <= 1),
        distribution: asked.run.distribution.clone(),
        time_limit_s: asked.spec.time_limit_s.filter(|s| inside && asked.on_line("time") && *s != UNLIMITED_S),
        submit_line: asked.spec.submit_line.clone(),
        resv_ports: asked.run.resv_ports,
        cpu_freq: asked.spec.options.shown.cpu_freq.clone(),
        no_kill: (asked.spec.no_kill || asked.run.restart_only_lost).then_some(true),
        tres_per_node: tres_per_node(asked),
        inside: is_inside(asked, vars).then(Inside::default),
    };
    if inside {
        fit_nodes(&mut spec, asked, vars)?;
    }
    Ok(spec)
}

/// Returns whether the step's tasks are to descend from srun, so that checkpoints of its job contain them. What needs
/// root's help on the node is left to the node.
fn is_inside(asked: &SubmitOptions, vars: &Vars) -> bool {
    let helped = asked.run.bcast.is_some() || asked.spec.options.x11.is_some() || asked.spec.options.bundle().is_some();
    // The script runs on the first node, and a keeper starts only what serves steps of the script.
    let first = number(vars, "SLURM_NODEID").is_none_or(|node| node == 0);
    number(vars, INSIDE) == Some(1) && first && job_of_environment(asked) && het::among(vars).is_none() && !helped
}

/// Returns the generic resources of each node that the command line of srun asks for, as `scontrol show` displays them.
fn tres_per_node(asked: &SubmitOptions) -> Option<String> {
    let named = asked.spec.need.gres.iter().filter(|_| asked.on_line("gres")).flat_map(|list| list.split(','));
    let gpus = asked.spec.options.gpus.per_node.iter().filter(|_| asked.on_line("gpus-per-node"));
    let all: Vec<String> = named
        .filter(|word| !word.is_empty() && *word != "none")
        .map(|word| format!("gres/{}", word.trim_start_matches("gres:").trim_start_matches("gres/")))
        .chain(gpus.map(|count| format!("gres/gpu:{}", count.text)))
        .collect();
    (!all.is_empty()).then(|| all.join(","))
}

fn step_name(command: &[OsString]) -> String {
    command.first().map(|first| base_name(first)).unwrap_or_default()
}

/// Returns whether srun runs within the job in which it creates a step.
fn job_of_environment(asked: &SubmitOptions) -> bool {
    matches!(asked.sources.get("jobid"), Some(Source::Variable(_)))
}

/// Returns the number in an environment variable; None: it has none.
pub(super) fn number(vars: &Vars, variable: &str) -> Option<u32> {
    vars.iter().find(|(name, _)| name == variable)?.1.to_str()?.parse().ok()
}

/// Returns Slurm's warning that `--ntasks-per-node` (`each`) does not fit the number of tasks.
fn not_so_many(each: u32, ntasks: u32, nodes: u32) -> String {
    format!(
        "can't honor --ntasks-per-node set to {each} which doesn't match the requested tasks {ntasks} with the maximum \
         number of requested nodes {nodes}. Ignoring --ntasks-per-node."
    )
}

/// Refuses `--relative` if fewer nodes than the step has follow in the job of `there` nodes.
fn within_job(spec: &StepSpec, there: Option<u32>) -> Result<(), Stop> {
    let (Some(first), Some(there)) = (spec.relative, there) else { return Ok(()) };
    let nodes = spec.nodes_min.unwrap_or(there);
    if first.saturating_add(nodes) <= there {
        return Ok(());
    }
    let option = if spec.nodes_min.is_some() { "--nodes" } else { "SLURM_JOB_NUM_NODES" };
    Err(Stop::bad(format!(
        "--relative and {option} option incompatible with count of allocated nodes ({first}+{nodes}>{there})"
    )))
}

/// Drops nodes of `--nodelist` that are more than the step may have, and says so as Slurm does.
fn shorten(spec: &mut StepSpec, asked: &SubmitOptions) {
    let (Some(list), Some(most)) = (&spec.nodelist, spec.nodes_max.or(spec.nodes_min)) else { return };
    let names = expand(list).unwrap_or_default();
    if matches!(spec.distribution, Distribution::Arbitrary(_)) || names.len() <= most as usize {
        return;
    }
    if !asked.quiet {
        eprintln!(
            "srun: error: Required nodelist includes more nodes than permitted by max-node count ({} > {most}). \
             Eliminating nodes from the nodelist.",
            names.len()
        );
    }
    spec.nodelist = Some(compress(names.iter().take(most as usize)));
}

/// Reduces the number of nodes to that of tasks, and drops tasks per node that don't fit the number of tasks. Prints
/// Slurm's warnings.
fn fit_nodes(spec: &mut StepSpec, asked: &SubmitOptions, vars: &Vars) -> Result<(), Stop> {
    let of_job = || number(vars, "SLURM_JOB_NUM_NODES").filter(|_| job_of_environment(asked));
    if let (Some(nodes), Some(there)) = (spec.nodes_min, of_job())
        && nodes > there
    {
        return Err(Stop::bad(format!("Only allocated {there} nodes asked for {nodes}")));
    }
    let arbitrary = matches!(spec.distribution, Distribution::Arbitrary(_));
    // As in Slurm, `--nodelist` names some of the step's nodes, which are all of the job's without `--nodes`.
    if spec.nodes_min.is_none() && spec.nodelist.is_some() && !arbitrary {
        spec.nodes_max = of_job();
    }
    let nodes = spec.nodes_min.or_else(of_job);
    if let (Some(nodes), Some(ntasks)) = (nodes, spec.ntasks)
        && ntasks < nodes
        && !arbitrary
    {
        if !asked.quiet {
            eprintln!("srun: Warning: can't run {ntasks} processes on {nodes} nodes, setting nnodes to {ntasks}");
        }
        spec.nodes_min = Some(ntasks);
        spec.nodes_max = Some(ntasks);
    }
    within_job(spec, of_job())?;
    shorten(spec, asked);
    let (Some(nodes), Some(ntasks)) = (nodes, spec.ntasks) else { return Ok(()) };
    let most = spec.nodes_max.or_else(of_job).unwrap_or(nodes);
    if let Some(each) = spec.ntasks_per_node.filter(|each| *each > 0 && ntasks > each.saturating_mul(most)) {
        if !asked.quiet {
            eprintln!("srun: warning: {}", not_so_many(each, ntasks, most));
        }
        spec.ntasks_per_node = None;
    }
    Ok(())
}
