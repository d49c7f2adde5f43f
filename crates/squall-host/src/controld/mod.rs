//! The controller daemon: runs the controller's state machine with sockets, clock and journal.
//!
//! One thread decides. Each turn takes all arrivals, steps the state machine over them, writes the decisions to the
//! journal with one flush, and only then sends answers and frames.

mod backups;
mod changes;
mod clock;
mod connection;
mod desk;
mod fair;
mod meter;
mod turn;

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use squall_engine::control::state::State;
use squall_engine::control::{Controller, Input};
use squall_files::durable;
use squall_files::place::{Place, SocketPath};
use squall_model::config::Config;
use squall_model::id::JobId;
use squall_model::wire::fabric::Newer;
use squall_store::accounts::{self, Accounts};
use squall_store::file::{FileLog, JournalError, Opened, Options, ReplayReport, StateLock};
use squall_store::{Log, LogError};
use tokio::net::UnixListener;
use tokio::runtime::LocalOptions;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_local;
use tracing::{error, info, warn};

use crate::backup::{self, Mark};
use crate::bearer::Bearers;
use crate::config_files::{Checked, ConfigFiles};
use crate::life;
use crate::logging;
use crate::multicast::{Group, Mouth};
use crate::pidfile::PidFile;
use crate::service;
use backups::Backups;
use clock::Clock;
use connection::{Door, Gate};
use turn::Daemon;

/// Settings with which a controller is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The state directory.
    pub place: Place,
    /// This program's version.
    pub version: String,
    /// Whether to continue without damaged or missing parts of the journal.
    pub accept_loss: bool,
    /// Whether to flush the journal before anything is acknowledged. Only benchmarks turn it off, to measure its cost.
    pub durable: bool,
}

/// Why the controller could not start or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The journal can't be opened or read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// An append to the journal failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The configuration is wrong.
    #[error("{}: {problem}", path.display())]
    Config {
        /// The configuration file with the error.
        path: PathBuf,
        /// What is wrong in the configuration, with the line.
        problem: String,
    },
    /// Nodes report a newer epoch or job id than this state has, so it is an old copy.
    #[error(
        "this state is older than what nodes have seen: {} has heard epoch {} and job {}, the state ends with epoch {ours} and \
         job {last}. \
         It is of a backup, or of another copy. Restore the newest one; or, to go on without what came after it, start once \
         with `squall up --accept-loss` (or `squall controller --accept-loss`)",
        newer.name,
        newer.session.epoch.0,
        newer.last_job
    )]
    Older {
        /// The newest epoch and job id that a node reports.
        newer: Newer,
        /// The newest epoch (run of the controller) in this state.
        ours: u64,
        /// The last job id in this state.
        last: JobId,
    },
    /// A system call failed.
    #[error("cannot {doing} {}: {error}", path.display())]
    Io {
        /// The action that failed, e.g. `write`.
        doing: &'static str,
        /// The file or folder concerned.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
}

impl ControllerError {
    pub(crate) fn io(doing: &'static str, path: PathBuf) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Io { doing, path, error }
    }
}

/// Runs a controller until it is told to end. Blocks.
pub fn run(settings: Settings) -> Result<(), ControllerError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(8)
        .build_local(LocalOptions::default())
        .map_err(ControllerError::io("start threads for", settings.place.dir().to_owned()))?;
    let lost = ControllerError::io("run", settings.place.dir().to_owned());
    // It runs as a task like the others: waking the future of `block_on` itself costs two system calls each time.
    let serving = async { spawn_local(serve(settings)).await.map_err(|e| lost(std::io::Error::other(e)))? };
    runtime.block_on(serving)
}

/// Runs the controller, and logs why it ends before releasing pid file and lock: `squall up` then looks for this line
/// in the log.
async fn serve(settings: Settings) -> Result<(), ControllerError> {
    let mut held = None;
    let result = Box::pin(serve_holding(settings, &mut held)).await;
    match &result {
        Ok(()) => info!("controller ends"),
        // Faults in a configuration are shown with their place in it, over several lines.
        Err(error) => format!("controller ends: {error}").lines().for_each(|line| error!("{line}")),
    }
    result
}

/// Runs the controller; `held` receives pid file and state lock, by which other processes see that the controller runs.
async fn serve_holding(settings: Settings, held: &mut Option<(PidFile, StateLock)>) -> Result<(), ControllerError> {
    let place = settings.place.clone();
    make_folders(&place)?;
    let files = crate::sys::limits::raise_open_files();
    crate::sys::heap::grow_in_large_pieces();
    let lock = StateLock::take(&place)?;
    backup::finish(&place).map_err(ControllerError::io("put restored files into", place.dir().to_owned()))?;
    let Checked { config, oddities, notices: idle } = check_config(&place)?;
    logging::configure(config.slurmctld_debug);
    spawn_local(logging::reopen_at_hangups());
    lock.mark(&place, &config.cluster)?;
    let pid = PidFile::write(&place.controller_pid()).map_err(ControllerError::io("write", place.controller_pid()))?;
    *held = Some((pid, lock));
    if !settings.durable {
        warn!(
            "WITHOUT DURABILITY: nothing is flushed, what is acknowledged is lost when this machine stops; for measuring"
        );
    }
    let options = Options {
        seen: accounts::seen(&place.accounts()),
        accept_loss: settings.accept_loss,
        durable: settings.durable,
        ..Options::default()
    };
    let Opened { log, state, report, notices } = FileLog::open(&place.journal(), options)?;
    for notice in &notices {
        warn!("{notice}");
    }
    keep_cell(&state, &config, &place)?;
    keep_nodes(&state, &config, &place)?;
    oddities.iter().chain(&idle).for_each(|notice| warn!("{notice}"));
    say_what_was_read(&settings.version, &config, &report, &state);
    let last = log.next_seq() - 1;
    let accounts = Accounts::start(&place, log.cluster(), last, log.accounted())
        .map_err(ControllerError::io("start a thread for", place.accounts()))?;
    log.settle();
    let terminate = signal(SignalKind::terminate()).map_err(ControllerError::io("wait for signals in", place.run()))?;
    let interrupt = signal(SignalKind::interrupt()).map_err(ControllerError::io("wait for signals in", place.run()))?;
    let bearers = Bearers::of(&place, &config);
    let (door, inbox) = Door::new(config.cluster.clone(), files, bearers.clone());
    let gate = Gate::open(&place, &config)
        .await
        .map_err(ControllerError::io("open the port for other machines of", place.config()))?;
    let mouth = mouth(&place, &config, &door)?;
    let clock = Clock::start(&place, report.last);
    clock.remember();
    let machine = machine(&place, state, settings.accept_loss)?;
    let backups = Backups::new(place.clone(), log.copier(), settings.version.clone());
    let mut daemon = Daemon::new(machine, Box::new(log), accounts, (place.clone(), bearers), (mouth, clock), backups);
    let start = Input::Start { config: Box::new(config), version: settings.version, host: life::host_name() };
    daemon.start(start).await?;
    // The start is durable: the next one is like any other.
    durable::remove(&place.restored()).map_err(ControllerError::io("remove", place.restored()))?;
    let listener = listen(&place)?;
    let mut accepting = vec![tokio::spawn(Arc::clone(&door).accept(listener))];
    if let Some((listener, gate)) = gate {
        accepting.push(tokio::spawn(door.accept_remote(listener, gate)));
    }
    info!("ready");
    service::ready();
    spawn_local(service::beat());
    let result = daemon.run(inbox, terminate, interrupt).await;
    accepting.iter().for_each(tokio::task::JoinHandle::abort);
    // Removes the socket, so that no client tries it; if that fails because it is missing, nothing is lost.
    drop(std::fs::remove_file(place.controller_socket()));
    result
}

/// Makes the state machine. If the state was just restored from a backup, its start passes over what may have happened
/// since.
fn machine(place: &Place, state: State, accept_loss: bool) -> Result<Controller, ControllerError> {
    let mark = Mark::read(place).map_err(ControllerError::io("read", place.restored()))?;
    let (pending, last) = (state.waiting(), state.last_id);
    let mut machine = Controller::new(state);
    if accept_loss {
        machine.accept_loss();
    }
    if let Some(Mark { time_s, ids }) = mark {
        let age_s = crate::sys::clock::now().secs().saturating_sub(time_s);
        warn!(
            age_s,
            pending,
            %last,
            "this state was restored from a backup, and what came after that is lost. Jobs that nodes run are left to \
             their end. Pending jobs are held, as they may have run since: `scontrol release` lets them run. The next \
             {ids} job ids are passed over"
        );
        machine.restore(ids);
    }
    Ok(machine)
}

fn say_what_was_read(version: &str, config: &Config, report: &ReplayReport, state: &State) {
    info!(
        cluster = config.cluster,
        version,
        jobs = state.jobs.len() + state.arrays.len(),
        snapshot_bytes = report.snapshot_bytes,
        snapshot_time = ?report.snapshot_time,
        records = report.records,
        events = report.events,
        records_time = ?report.tail_time,
        "controller starts"
    );
}

/// Refuses a configuration that changes the cell number, as existing jobs would then be searched in another cell.
fn keep_cell(state: &State, config: &Config, place: &Place) -> Result<(), ControllerError> {
    if state.keeps_cell(config) {
        return Ok(());
    }
    let problem = "cell: the cluster has given job ids as another cell (or as none); set it back".to_owned();
    Err(ControllerError::Config { path: place.config(), problem })
}

/// Refuses a configuration without nodes where the cluster had some: probably a power cut or a mistake emptied the
/// file. The journal's configuration is then written to `squall.toml.journaled` in the same folder.
fn keep_nodes(state: &State, config: &Config, place: &Place) -> Result<(), ControllerError> {
    let known = &state.config;
    if !config.nodes.is_empty() || known.nodes.is_empty() {
        return Ok(());
    }
    let beside = place.config().with_extension("toml.journaled");
    let head = "# What the journal knows of squall.toml. SlurmctldHost, SlurmctldPort and the like are not in it.\n";
    let written = known
        .to_toml()
        .and_then(|text| durable::write(&beside, format!("{head}{text}").as_bytes(), 0o644).map_err(|e| e.to_string()));
    let names: Vec<&str> = known.nodes.iter().map(|entry| entry.name.as_str()).collect();
    let remedy = match written {
        Ok(()) => format!("put it back; what the journal knows of it is in {}", beside.display()),
        Err(_) => "put it back".to_owned(),
    };
    let problem = format!("it is empty or names no nodes, but this cluster had {}: {remedy}", names.join(","));
    Err(ControllerError::Config { path: place.config(), problem })
}

/// Opens the multicast sender, if it is configured. A contradictory configuration is refused; if the machine can't
/// multicast, the controller goes without.
fn mouth(place: &Place, config: &Config, door: &Door) -> Result<Option<Mouth>, ControllerError> {
    let wrong = |problem| ControllerError::Config { path: place.config(), problem };
    let Some(group) = Group::of(config, None).map_err(wrong)? else { return Ok(None) };
    Ok(Mouth::open(group, door.cast_out()).map_err(|e| warn!(error = %e, "no multicast here")).ok())
}

fn make_folders(place: &Place) -> Result<(), ControllerError> {
    for (path, mode) in
        [(place.dir().to_owned(), 0o755), (place.run(), 0o755), (place.log(), 0o755), (place.journal(), 0o700)]
    {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(&path)
            .map_err(ControllerError::io("create", path))?;
    }
    Ok(())
}

/// Reads the configuration of a state directory: `squall.toml` (defaults if missing) and the other files in its folder.
pub fn read_config(place: &Place) -> Result<Config, ControllerError> {
    check_config(place).map(|checked| checked.config)
}

/// Like `read_config`, and returns warnings with the configuration.
pub fn check_config(place: &Place) -> Result<Checked, ControllerError> {
    let files = ConfigFiles::read(&place.config())?;
    files.map_or_else(|| ConfigFiles::beside(&place.config(), String::new()), Ok)?.check()
}

/// Opens the controller's Unix socket. Unless the controller runs as root, only its own user (and root) may connect.
pub(crate) fn listen(place: &Place) -> Result<UnixListener, ControllerError> {
    let path = place.controller_socket();
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(ControllerError::io("remove", path)(e));
        }
        _ => {}
    }
    let short = SocketPath::new(&path).map_err(ControllerError::io("find", path.clone()))?;
    let listener = UnixListener::bind(short.as_path()).map_err(ControllerError::io("listen on", path.clone()))?;
    let mode = if rustix::process::geteuid().is_root() { 0o666 } else { 0o600 };
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))
        .map_err(ControllerError::io("give access to", path))?;
    Ok(listener)
}
