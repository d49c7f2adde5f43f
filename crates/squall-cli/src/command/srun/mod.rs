//! srun: runs tasks in an existing allocation, or in one that it requests.

mod again;
mod background;
mod bcast;
pub(crate) mod exits;
mod het;
pub(crate) mod input;
pub(crate) mod link;
mod multi_prog;
pub(crate) mod output;
mod prepare;
mod request;
mod scripts;
mod session;
mod streams;
pub(crate) mod terminal;
mod x11;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use squall_files::place::Place;
use squall_host::sys::peer::peer_of;
use squall_host::sys::signals::SignalFd;
use squall_model::config::SrunDefaults;
use squall_model::id::{ClientKey, JobId};
use squall_model::job::{ExitCode as JobExit, JobSpec};
use squall_model::step::FirstStep;
use squall_model::wire::client::Request;

use self::again::Again;
use self::background::Parting;
use self::link::Listener;
use self::prepare::StreamRoutes;
use self::request::StepRequest;
use self::session::{Manners, Session};
use self::terminal::Raw;
use self::x11::Screen;
use crate::capture::{self, Vars};
use crate::command::allocation::{self, Allocation, AllocationRequest};
use crate::command::plugins::Beside;
use crate::command::submission;
use crate::contact::{Patience, fresh_key};
use squall_client::{Client, ClientError};
use squall_model::hostlist;
use squall_text::options::submit::SubmitOptions;
use squall_text::options::{Stop, Tool, collect};

const SRUN: Tool = Tool::Srun;

/// Signals that srun handles itself or forwards to its tasks. Others have their usual effect (STOP, CHLD, ...).
const SIGNALS: [i32; 14] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGCONT,
    libc::SIGWINCH,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGURG,
    libc::SIGPIPE,
    libc::SIGXCPU,
];

/// Runs srun.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    submission::ended(SRUN, start(args))
}

fn start(args: &[OsString]) -> Result<u8, Stop> {
    let mut vars: Vars = std::env::vars_os().collect();
    let mut plugins = Beside::start(SRUN)?;
    if let Some(status) = background::begin(args, &mut vars)? {
        return Ok(status);
    }
    if let Some(parts) = het::parts(args)? {
        return match het::job_of(&parts, &vars) {
            Some(job) => het::run(&parts, job, &vars),
            None => het_allocation(args, &parts, &vars),
        };
    }
    let (mut asked, command) = gather(args, &vars)?;
    plugins.give(std::slice::from_mut(&mut asked), &mut vars)?;
    submission::become_owner(asked.run_as)?;
    if asked.test_only {
        let line = submission::would_start(SRUN, asked.spec)
            .map_err(|e| Stop::Bad { lines: e.lines("allocation failure"), exit: 1 })?;
        eprintln!("srun: {line}");
        return Ok(0);
    }
    submission::known_cluster(SRUN, asked.clusters.as_deref())?;
    let step = request::step(&asked, &command, &vars, asked.run.job.is_some())?;
    let signals = SignalFd::new(&SIGNALS).map_err(|e| Stop::bad(format!("signalfd: {e}")))?;
    let again = if asked.run.restart_only_lost {
        Some(Again::new(args, std::mem::take(&mut asked.run.restarts), &vars)?)
    } else {
        None
    };
    match asked.run.job {
        Some(job) => {
            let what = format!("Unable to create step for job {job}");
            let client = Patience::new("srun").connect().map_err(|e| Stop::Bad { lines: e.lines(&what), exit: 1 })?;
            plugins.tell_job(JobId(job), 0)?;
            let run = || {
                run_steps(&asked, Call { again, ..Call::new(step)? }, (JobId(job), false), (client, false), &signals).0
            };
            scripts::around(&asked, &command, None, run).map(|(status, _)| status)
        }
        None => in_own_allocation(&mut asked, &command, (step, again, &mut plugins), &vars, &signals),
    }
}

/// Returns what the cluster's configuration says of each srun.
pub(crate) fn usual() -> SrunDefaults {
    let text = Place::find().and_then(|place| place.srun());
    text.map(|text| SrunDefaults::parse(&text)).unwrap_or_default()
}

/// Builds a request from variables and command line; returns it with the command to run.
fn gather(args: &[OsString], vars: &Vars) -> Result<(SubmitOptions, Vec<OsString>), Stop> {
    let line = collect::line(SRUN, args)?;
    let mut asked = SubmitOptions::new(SRUN);
    submission::apply(&mut asked, SRUN, &line, vars)?;
    let Some(program) = line.operands.first() else {
        return Err(Stop::bad("fatal: No command given to execute."));
    };
    if asked.run.pty && (asked.on_line("input") || asked.on_line("output") || asked.on_line("error")) {
        return Err(Stop::bad("--error/--input/--output are incompatible with --pty"));
    }
    background::check(&asked, het::among(vars).is_some())?;
    if asked.run.job.is_none() && asked.run.relative.is_some() {
        return Err(Stop::bad("fatal: --relative option invalid for job allocation request"));
    }
    if asked.run.relative.is_some() && (asked.on_line("nodelist") || asked.on_line("exclude")) {
        return Err(Stop::bad("-r,--relative not allowed with -w,--nodelist or -x,--exclude."));
    }
    if asked.run.multi_prog && asked.spec.need.ntasks.is_none() {
        asked.spec.need.ntasks = multi_prog::tasks(&program.to_string_lossy())?;
    }
    submission::place(&mut asked, SRUN, args)?;
    scripts::complete(&mut asked, usual());
    scripts::find(&mut asked, vars);
    if asked.spec.name.is_empty() {
        asked.spec.name = request::base_name(program);
    }
    asked.spec.command = line.operands.iter().map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ");
    Ok((asked, line.operands.to_vec()))
}

/// Requests an allocation, runs the step in it and releases it.
fn in_own_allocation(
    asked: &mut SubmitOptions,
    command: &[OsString],
    (step, again, plugins): (StepRequest, Option<Again>, &mut Beside),
    vars: &Vars,
    signals: &SignalFd,
) -> Result<u8, Stop> {
    let env = capture::export(SRUN, vars, asked.export.as_deref())?.env;
    let call = Call { again, ..Call::new(step)? };
    let ask = AllocationRequest {
        tool: SRUN,
        specs: vec![std::mem::take(&mut asked.spec)],
        env,
        immediate_s: asked.immediate_s,
        quiet: asked.quiet,
        // With `--bcast` or a prolog the step is requested later: the allocation must exist before.
        step: (asked.run.bcast.is_none() && !scripts::has_prolog(asked)).then(|| call.first_step()),
    };
    let Allocation { client, step_asked, facts } = allocation::allocate(ask, signals)?;
    let job = facts.key.job;
    let mut left = None;
    let nodes = facts.nodes.len() as u32;
    let run = || {
        plugins.tell_job(job, nodes)?;
        let (result, client) = run_steps(asked, call, (job, true), (client, step_asked), signals);
        left = client;
        result
    };
    let result = scripts::around(asked, command, Some(&facts), run);
    let exit = match &result {
        Ok((_, exit)) => *exit,
        Err(stop) => JobExit { code: stop.exit(), signal: 0 },
    };
    if !allocation::release(SRUN, left, job, exit) {
        eprintln!("srun: error: the controller does not answer: job {job} ends when it does");
    }
    result.map(|(status, _)| status)
}

/// Requests an allocation of several components, runs a step in each and releases it.
fn het_allocation(args: &[OsString], parts: &[het::Part], vars: &Vars) -> Result<u8, Stop> {
    let mut all = Vec::new();
    for part in parts {
        all.push(gather(&part.args().collect::<Vec<_>>(), vars)?.0);
    }
    if all.len() < 2 {
        return Err(Stop::bad(
            "--het-group is for steps of a heterogeneous job: call srun in one, or give its --jobid",
        ));
    }
    let first = &all[0];
    submission::become_owner(first.run_as)?;
    let env = capture::export(SRUN, vars, first.export.as_deref())?.env;
    let (immediate_s, quiet) = (first.immediate_s, first.quiet);
    let submit_line = capture::submit_line(SRUN, args);
    let specs = all.into_iter().map(|asked| JobSpec { submit_line: submit_line.clone(), ..asked.spec }).collect();
    let signals = SignalFd::new(&SIGNALS).map_err(|e| Stop::bad(format!("signalfd: {e}")))?;
    let ask = AllocationRequest { tool: SRUN, specs, env, immediate_s, quiet, step: None };
    let Allocation { client, facts, .. } = allocation::allocate(ask, &signals)?;
    let (job, result) = (facts.key.job, het::run_in(parts, &facts, vars));
    let code = result.as_ref().map_or_else(Stop::exit, |code| *code);
    if !allocation::release(SRUN, Some(client), job, JobExit { code, signal: 0 }) {
        eprintln!("srun: error: the controller does not answer: job {job} ends when it does");
    }
    result
}

/// A step that is ready to be requested, with the open socket for its step daemons.
struct Call {
    listener: Listener,
    step: StepRequest,
    key: ClientKey,
    /// The user's display, for `--x11`.
    screen: Option<Screen>,
    /// How tasks of failed nodes are started again (`--restart-only-lost`). None: they are not, or with the whole step.
    again: Option<Again>,
}

impl Call {
    fn new(mut step: StepRequest) -> Result<Self, Stop> {
        let screen = step.program.x11.map(Screen::find).transpose();
        let screen = screen.map_err(|problem| Stop::bad(format!("cannot setup x11 forwarding: {problem}")))?;
        let (host, ports) = (Place::find().and_then(|place| place.reached_as()), usual().ports);
        // In a checkpoint the nodes of a job are connected only by TCP, also on one machine.
        let several = || std::env::var("SLURM_NNODES").is_ok_and(|nodes| nodes != "1");
        let host = host.or_else(|| (step.spec.inside.is_some() && several()).then(|| "127.0.0.1".to_owned()));
        let listener = Listener::open(host.as_deref(), ports)
            .map_err(|e| Stop::bad(format!("unable to open a socket for the tasks' streams: {e}")))?;
        step.program.client = listener.address();
        step.program.cookie = listener.cookie();
        Ok(Self { listener, step, key: fresh_key(), screen, again: None })
    }

    fn first_step(&self) -> Box<FirstStep> {
        let StepRequest { spec, program, .. } = &self.step;
        Box::new(FirstStep { spec: spec.clone(), program: program.clone(), key: self.key })
    }
}

/// Runs the step in a running allocation, and starts it again as often as `--restarts` says when nodes of it have failed.
/// The job waits meanwhile for the nodes that replace them.
fn run_steps(
    asked: &SubmitOptions,
    call: Call,
    (job, owner): (JobId, bool),
    (client, step_asked): (Client, bool),
    signals: &SignalFd,
) -> (Result<(u8, JobExit), Stop>, Option<Client>) {
    let again = (asked.run.restarts > 0).then(|| call.step.clone());
    let mut ended = run_step(asked, call, (job, owner), (client, step_asked), signals);
    let Some(again) = again else { return (ended.result, ended.client) };
    let mut lost: Vec<String> = Vec::new();
    for count in 1..=asked.run.restarts {
        if ended.lost.is_empty() {
            break;
        }
        eprintln!(
            "srun: step lost {}: starting it again ({count} of {} times)",
            hostlist::compress(&ended.lost),
            asked.run.restarts
        );
        lost.append(&mut ended.lost);
        let mut step = again.clone();
        step.start_again(count, &lost);
        let client = ended.client.take().map_or_else(|| reconnect(job, owner), Ok);
        ended = match (client, Call::new(step)) {
            (Ok(client), Ok(call)) => run_step(asked, call, (job, owner), (client, false), signals),
            (Err(stop), _) | (_, Err(stop)) => return (Err(stop), None),
        };
    }
    (ended.result, ended.client)
}

/// Connects to the controller again, for a further step; `owner`: the allocation was requested by this srun.
fn reconnect(job: JobId, owner: bool) -> Result<Client, Stop> {
    let what = format!("Unable to create step for job {job}");
    let bad = |e: ClientError| Stop::Bad { lines: e.lines(&what), exit: 1 };
    let mut client = Patience::new("srun").connect().map_err(bad)?;
    if owner {
        client.send(&Request::Attach { job }).map_err(bad)?;
    }
    Ok(client)
}

/// How a step ended for its srun.
struct Ended {
    result: Result<(u8, JobExit), Stop>,
    /// The connection to the controller, if it still exists.
    client: Option<Client>,
    /// Names of nodes of the step that have failed.
    lost: Vec<String>,
}

/// Runs the step in a running allocation; `owner`: it was allocated by this srun. `step_asked`: the step has been
/// requested on the connection already.
fn run_step(
    asked: &SubmitOptions,
    call: Call,
    (job, owner): (JobId, bool),
    (client, step_asked): (Client, bool),
    signals: &SignalFd,
) -> Ended {
    let Call { mut listener, step: StepRequest { spec, mut program, input, output, error }, key, screen, again } = call;
    listener.trust(peer_of(client.stream()).map_or(0, |peer| peer.uid));
    if let Some(to) = asked.run.bcast.as_deref().filter(|_| !asked.run.multi_prog)
        && let Err(stop) = bcast::bring(to, job, &mut program)
    {
        return Ended { result: Err(stop), client: Some(client), lost: Vec::new() };
    }
    let prepared = StreamRoutes {
        input,
        output,
        error,
        label: asked.run.label,
        unbuffered: asked.run.unbuffered,
        among: program.among,
        append: program.append,
    };
    let manners = Manners {
        quiet: asked.quiet,
        verbose: asked.verbose,
        cpu_bind: asked.run.cpu_bind.clone().unwrap_or_else(|| "(null type)".to_owned()),
        slurmd_debug: asked.run.slurmd_debug,
        kill_on_bad_exit: asked.run.kill_on_bad_exit,
        oom_kill_step: asked.spec.options.oom_kill_step == Some(true),
        wait: asked.run.wait_s.map(|seconds| Duration::from_secs(seconds.into())),
        disable_status: asked.run.disable_status,
        quit_on_interrupt: asked.run.quit_on_interrupt,
        immediate: asked.immediate_s.filter(|s| *s > 1).map(|s| Duration::from_secs(u64::from(s))),
        screen,
        restarts: asked.run.restarts > 0,
        again,
        parting: asked.run.asynchronous.then_some(Parting { quiet: asked.quiet, parsable: asked.batch.parsable }),
        terminal: if asked.run.pty { Raw::enter().ok() } else { None },
    };
    let request = Request::CreateStep { job, spec: Box::new(spec), program: Box::new(program), key };
    Session::new(job, owner, request, prepared, manners, listener, signals).run(client, step_asked)
}
