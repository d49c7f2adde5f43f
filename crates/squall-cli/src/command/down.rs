//! `squall down`: ends exactly the daemons that `squall up` started, and keeps the state folder.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use squall_files::place::Place;
use squall_host::controld::read_config;
use squall_host::life::{self, Daemon};
use squall_host::starts;
use squall_host::trust::Trust;
use squall_model::config::Config;
use squall_model::limits::KILL_WAIT_S;
use squall_model::wire::client::{Answer, Request};
use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{self, Page};

use super::{cells, mail, rest, supervise, up};
use squall_client::{Client, ClientError};

/// `squall down`, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall down",
    about: "end the cluster; the state stays",
    synopsis: &["[--state=DIR] [--keep-jobs]"],
    options: page::Options::Own(FLAGS),
    notes: "\
Ends the cluster on this machine. Running jobs are ended, with TERM and after KillWait with KILL, and go back into the queue \
if they may be requeued; the state stays, and `squall up` goes on with it.
On the machine of one of several controllers only the daemons there end. Running jobs go on, and another controller leads.
",
};

const FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    flag(
        "state",
        '\0',
        Arg::Needed("DIR"),
        "the cluster whose state is there (otherwise the one that commands talk to)",
    ),
    flag("keep-jobs", '\0', Arg::None, "leave running jobs alone: the next `squall up` takes them over again"),
];

/// Timeout for the controller to end running jobs and itself, in addition to the cluster's KillWait.
const SHUTDOWN_TIME: Duration = Duration::from_secs(30);
/// Timeout for the process of a killed controller to disappear.
const DYING_TIME: Duration = Duration::from_millis(500);
/// Timeout for a daemon to end by itself, and again to end after a signal.
pub(super) const END_TIME: Duration = Duration::from_secs(3);

/// Runs `squall down`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    super::own(&PAGE, args, |given| {
        super::no_operand(&PAGE, given)?;
        down(&super::found_place(given)?, given.has("keep-jobs"))
    })
}

fn down(place: &Place, keep_jobs: bool) -> Result<String, String> {
    if !place.dir().is_dir() {
        return Err(format!("there is no cluster in {}", place.dir().display()));
    }
    super::owned(place)?;
    refuse_units(place)?;
    for place in place.cells().unwrap_or_default().values().chain([place]) {
        starts::call_off(place).map_err(|e| format!("{}: {e}", place.downs().display()))?;
    }
    supervise::end(place)?;
    rest::end(place)?;
    mail::end(place)?;
    if let Some(joined) = Trust::of(place).joined().map_err(|e| e.to_string())? {
        let daemon = Daemon::of(&joined);
        let process = daemon.process(place).map_err(|e| format!("{daemon} can't be watched: {e}"))?;
        let Some(process) = process else { return Ok(format!("{daemon} was not running\n")) };
        process.end(END_TIME).map_err(|e| format!("{daemon} does not end: {e}"))?;
        if joined.login {
            return Ok(format!("{daemon} is down: no commands from here until `squall up`; jobs go on\n"));
        }
        return Ok(format!("{daemon} is down; its jobs go on, and it takes them over again when it is started\n"));
    }
    if !place.cells().map_err(|e| e.to_string())?.is_empty() {
        return cells::down(place, keep_jobs);
    }
    down_one(place, keep_jobs)
}

/// Refuses to end daemons that systemd would start again.
fn refuse_units(place: &Place) -> Result<(), String> {
    let living = life::living_daemons(place).map_err(|e| format!("{}: {e}", place.run().display()))?;
    let mut units: Vec<String> = living.iter().filter_map(|daemon| life::unit_of(daemon.pid(place)?)).collect();
    units.sort_unstable();
    units.dedup();
    if units.is_empty() {
        return Ok(());
    }
    let units = units.join(" ");
    Err(format!(
        "systemd runs {units}, and would start it again: `systemctl stop {units}` leaves running jobs alone; to end them \
         too, run `scancel` first"
    ))
}

/// Data about a cluster that are needed to shut it down.
struct RunningCluster {
    /// The cluster's configuration. None: it cannot be read or is invalid.
    config: Option<Config>,
    /// Name of the cluster.
    cluster: String,
    /// Names of nodes with a daemon on this machine, at present or earlier.
    names: Vec<String>,
    /// Node daemons that run at present.
    nodes: Vec<Daemon>,
}

impl RunningCluster {
    /// Reads the configuration. Without a valid one the running processes and the node folders are used alone.
    fn of(place: &Place) -> Result<Self, String> {
        let config = read_config(place).map_err(|e| eprintln!("squall down: going on without the configuration: {e}"));
        let config = config.ok();
        let nodes = life::living_daemons(place).map_err(|e| format!("{}: {e}", place.run().display()))?;
        let nodes = nodes.into_iter().filter(|daemon| matches!(daemon, Daemon::Node(_) | Daemon::Rack(..))).collect();
        let mut names = life::node_folders(place);
        names.extend(config.as_ref().map(life::real_names).transpose()?.unwrap_or_default());
        names.sort_unstable();
        names.dedup();
        let name = config.as_ref().map(|config| config.cluster.clone());
        let cluster = name.unwrap_or_else(|| format!("in {}", place.dir().display()));
        Ok(Self { config, cluster, names, nodes })
    }
}

/// Shuts down an undivided cluster or one cell. With `keep_jobs` its jobs go on.
pub(super) fn down_one(place: &Place, keep_jobs: bool) -> Result<String, String> {
    let RunningCluster { config, cluster, names, nodes } = RunningCluster::of(place)?;
    if config.as_ref().is_some_and(Config::has_standbys) {
        return leave(place, &cluster, &names, &nodes);
    }
    // A controller that was just killed may still seem to run for a moment.
    let dead = !up::is_answering(place) && Daemon::Controller.wait_gone(place, DYING_TIME);
    let living = nodes.iter().any(|node| node.pid(place).is_some()) || names.iter().any(|n| life::has_steps(place, n));
    if !living && dead {
        sweep(place, &names, keep_jobs);
        return Ok(format!("cluster {cluster} was not running\n"));
    }
    // Without a controller running jobs can't be requeued: it is started for that.
    if living && !keep_jobs && dead {
        let restarted = match &config {
            Some(config) => up::start_controller(place, &[]).and_then(|()| up::start_nodes(place, config).map(drop)),
            None => Err("its configuration is faulty".to_owned()),
        };
        if let Err(problem) = restarted {
            eprintln!("squall down: the controller is dead and can't be started; running jobs are lost: {problem}");
        }
    }
    // Opened before the shutdown request: when the command reports the end, the last of these processes has ended.
    let mut processes = Vec::new();
    for daemon in std::iter::once(&Daemon::Controller).chain(&nodes) {
        let process = daemon.process(place).map_err(|e| format!("{daemon} can't be watched: {e}"))?;
        processes.extend(process.map(|process| (daemon, process)));
    }
    let patience = SHUTDOWN_TIME + Duration::from_secs(config.map_or(KILL_WAIT_S, |config| config.kill_wait_s));
    let said = shut_down(place, keep_jobs, patience);
    for (daemon, process) in processes {
        let gone = process.wait(if said.is_ok() { END_TIME } else { Duration::ZERO });
        let ended = gone.and_then(|gone| if gone { Ok(()) } else { process.end(END_TIME) });
        ended.map_err(|e| format!("{daemon} does not end: {e}"))?;
    }
    sweep(place, &names, keep_jobs);
    let ended = said.unwrap_or_else(|problem| {
        eprintln!("squall down: the controller was ended by signal: {problem}");
        String::new()
    });
    Ok(format!("{ended}cluster {cluster} is down\n"))
}

/// Ends the daemons of this machine, where it has one of several controllers. The others go on, and so do running jobs.
fn leave(place: &Place, cluster: &str, names: &[String], nodes: &[Daemon]) -> Result<String, String> {
    let mut ended = 0;
    for daemon in [Daemon::Controller, Daemon::Login].iter().chain(nodes) {
        let process = daemon.process(place).map_err(|e| format!("{daemon} can't be watched: {e}"))?;
        let Some(process) = process else { continue };
        process.end(END_TIME).map_err(|e| format!("{daemon} does not end: {e}"))?;
        ended += 1;
    }
    sweep(place, names, true);
    Ok(match ended {
        0 => format!("cluster {cluster} was not running here\n"),
        _ => format!("cluster {cluster} is down here; its other controllers go on, and so do running jobs\n"),
    })
}

/// Asks the controller to shut down the cluster; returns lines to print.
fn shut_down(place: &Place, keep_jobs: bool, patience: Duration) -> Result<String, String> {
    let text = |e: ClientError| e.detail().map_or_else(|| e.to_string(), str::to_owned);
    let mut client = Client::connect_own(place, "down").map_err(text)?;
    let running = match client.ask(&Request::Diag { reset: false }) {
        Ok(Answer::Diag(diag)) => diag.jobs_running,
        _ => 0,
    };
    if running > 0 && !keep_jobs {
        eprintln!("squall down: ending {running} running job(s); those that ignore TERM are killed after KillWait");
    }
    client.wait_up_to(Some(patience)).map_err(|e| e.to_string())?;
    client.ask(&Request::ShutDown { keep_jobs }).map_err(text)?;
    Ok(match (running, keep_jobs) {
        (0, _) => String::new(),
        (n, true) => format!("{n} running job(s) go on without the cluster\n"),
        (n, false) => format!("{n} running job(s) were ended; those that may be requeued go back into the queue\n"),
    })
}

/// Cleans up after daemons that were killed: removes their pid files and sockets and, unless `keep_jobs`, kills steps
/// that still run.
fn sweep(place: &Place, names: &[String], keep_jobs: bool) {
    if !keep_jobs {
        for name in names {
            life::kill_steps(place, name);
        }
    }
    let sockets = [place.controller_socket(), place.head_socket()];
    let pids = names.iter().map(|name| place.node_pid(name)).chain([place.controller_pid(), place.login_pid()]);
    for file in pids.chain(sockets) {
        // No daemon uses these files any more; a missing file is no error.
        drop(std::fs::remove_file(file));
    }
}
