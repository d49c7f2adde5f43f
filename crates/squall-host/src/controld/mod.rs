//! The controller daemon: runs the controller's state machine with sockets, clock and journal.
//!
//! One thread decides. Each turn takes all arrivals, steps the state machine over them, writes the decisions to the
//! journal with one flush, and only then sends answers and frames.

mod answers;
mod backups;
mod changes;
mod clock;
mod connection;
pub(crate) mod error;
pub mod etcd;
mod fair;
mod fetch;
mod filter;
mod flush;
mod follow;
mod groups;
mod host_files;
mod join;
mod key_replication;
mod meter;
mod past_output;
mod programs;
mod room;
mod screen;
mod sealer;
mod shared_key_files;
mod signing_keys;
mod standby;
mod token_key;
mod turn;

use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::sync::Arc;

use squall_engine::control::state::State;
use squall_engine::control::{Controller, Input};
use squall_files::durable;
use squall_files::place::{Place, SocketPath};
use squall_files::users;
use squall_model::config::Config;
use squall_model::time::{Span, Time};
use squall_store::Log;
use squall_store::accounts::{self, Accounts, Store};
use squall_store::file::{FileLog, OpenedLog, Options, ReplayReport, StateLock};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::LocalOptions;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinHandle, spawn_local};
use tracing::{error, info, warn};

use crate::backup::{self, Mark};
use crate::bearer::Bearers;
use crate::builds;
use crate::config_files::{CheckedConfig, ConfigFiles};
use crate::gone;
use crate::life;
use crate::logging;
use crate::multicast::{Group, MulticastSender};
use crate::pidfile::PidFile;
use crate::privileges;
use crate::service;
use crate::starts;
use crate::trust::Trust;
use backups::Backups;
use clock::Clock;
use connection::{Acceptor, Gate, Others};
pub use error::ControllerError;
use follow::Leadership;
pub use join::{has_joined, join};
use key_replication::Asker;
pub use key_replication::await_shared;
use sealer::Sealer;
use signing_keys::SigningKeys;
use turn::Daemon;

/// This program, also if its file was replaced meanwhile.
const SELF: &str = "/proc/self/exe";

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

/// Runs a controller until it is told to end. Blocks.
pub fn run(settings: Settings) -> Result<(), ControllerError> {
    starts::begin(&settings.place);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(8)
        .build_local(LocalOptions::default())
        .map_err(ControllerError::io("start threads for", settings.place.dir().to_owned()))?;
    let lost = ControllerError::io("run", settings.place.dir().to_owned());
    // It runs as a task like the others: waking the future of `block_on` itself costs two system calls each time.
    let serving = async { spawn_local(serve(settings)).await.map_err(|e| lost(io::Error::other(e)))? };
    runtime.block_on(serving)
}

/// Runs the controller, and logs why it ends before releasing pid file and lock: `squall up` then looks for this line
/// in the log.
async fn serve(settings: Settings) -> Result<(), ControllerError> {
    let (mut held, place) = (None, settings.place.clone());
    let result = Box::pin(serve_holding(settings, &mut held)).await;
    match &result {
        Ok(()) => info!("controller ends"),
        Err(ControllerError::Deposed(why)) => {
            warn!("this controller leads no more: {why}. It goes on as a standby");
            return Err(begin_anew(&place));
        }
        Err(error @ (ControllerError::Behind { .. } | ControllerError::Broken(_))) => {
            warn!("{error}");
            return fetch_copy(&place).await;
        }
        // Faults in a configuration are shown with their place in it, over several lines.
        Err(error) => format!("controller ends: {error}").lines().for_each(|line| error!("{line}")),
    }
    result
}

/// Fetches a copy of the leader's journal, and starts again with it.
async fn fetch_copy(place: &Place) -> Result<(), ControllerError> {
    let config = check_config(place)?.config;
    let others = Others::of(place, &config, &controller_name(place), Asker::new())
        .map_err(ControllerError::io("read the keys of", place.keys()))?;
    let mut signals = Signals::listen(place)?;
    if let Some(others) = others {
        tokio::select! {
            () = fetch::fetch(place, &others) => return Err(begin_anew(place)),
            () = signals.heard() => info!("controller ends"),
        }
    }
    Ok(())
}

/// Executes this program again, which then follows: nothing that it knew as a leader is left. A `squall down` that does not see
/// it meanwhile calls it off. Returns only on an error.
fn begin_anew(place: &Place) -> ControllerError {
    let mut given = std::env::args_os();
    let name = given.next().unwrap_or_else(|| "squall".into());
    // A loss is accepted once.
    let args = given.filter(|arg| arg != "--accept-loss");
    let error = std::process::Command::new(SELF).arg0(name).args(args).envs([starts::variable(place)]).exec();
    ControllerError::io("execute", SELF.into())(error)
}

/// Warning of a controller that is started to measure how fast it is without a disk.
const NOT_DURABLE: &str =
    "WITHOUT DURABILITY: nothing is flushed, what is acknowledged is lost when this machine stops; for measuring";

/// Runs the controller; `held` receives pid file and state lock, by which other processes see that the controller runs.
async fn serve_holding(settings: Settings, held: &mut Option<(PidFile, StateLock)>) -> Result<(), ControllerError> {
    let place = settings.place.clone();
    make_folders(&place)?;
    let files = crate::sys::limits::raise_open_files();
    crate::sys::heap::grow_in_large_pieces();
    let lock = StateLock::take(&place)?;
    backup::finish(&place).map_err(ControllerError::io("put restored files into", place.dir().to_owned()))?;
    let CheckedConfig { config, oddities, notices: idle } = check_config(&place)?;
    // Restored files may go where links lead. From here on only programs of the site write outside of the state folder.
    if !config.hooks.are_of_controller() && !config.power.has_programs() {
        privileges::confine(&place, true);
    }
    logging::configure(config.slurmctld_debug);
    spawn_local(logging::reopen_at_hangups());
    let older = place.mark().exists();
    lock.mark(&place, &config.cluster)?;
    builds::note(&place, &config, older);
    *held = Some((hold(&place)?, lock));
    let durable = (!settings.durable).then_some(NOT_DURABLE);
    oddities.iter().chain(&idle).map(|notice| &**notice).chain(durable).for_each(|notice| warn!("{notice}"));
    let (several, asker) = (config.has_standbys(), Asker::new());
    let (own, accounted) = read(&settings, &config)?;
    let backups = Backups::new(place.clone(), own.log.copier(), settings.version.clone());
    let mut signals = Signals::listen(&place)?;
    let bearers = Bearers::of(&place, &config);
    let name = controller_name(&place);
    let (ring, others) = keys(&place, &config, own.machine.state(), asker.clone())?;
    let (acceptor, mut inbox) = Acceptor::new((config.cluster.clone(), ring.clone()), files, bearers.clone(), others);
    let gate = Gate::open(&place, &config, &ring)
        .await
        .map_err(ControllerError::io("open the port for other machines of", place.config()))?;
    let multicast = multicast(&place, &config, &acceptor)?;
    let config = Box::new(config);
    let mut entrance = Entrance::new(&place, gate);
    let begun = if several {
        spawn_local(etcd::warn_if_open((*config).clone()));
        acceptor.follow(None, None);
        entrance.open(&acceptor)?;
        let part = follow::settings(&place, &config, &name, &own.log, (&settings.version, settings.accept_loss))?;
        let standby = follow::Standby::begin(&place, &config, part, own, (accounted, asker, ring.clone()))?;
        ready();
        Box::pin(standby.follow(&acceptor, &mut inbox, &mut signals)).await?
    } else {
        let StateFolder { machine, log, accounts, last } = own;
        Some(Begun { machine, log: Box::new(log), accounts, last, leadership: None })
    };
    let Some(Begun { mut machine, log, accounts, last, leadership }) = begun else { return Ok(()) };
    let clock = Clock::start(&place, last);
    clock.remember();
    // A loss that was accepted is a standby's only where it founded the log anew.
    let accepts = settings.accept_loss && leadership.as_ref().is_none_or(Leadership::founded);
    prepare(&mut machine, &settings, accepts.then(|| clock.now().since(last)))?;
    let term = leadership.as_ref().map(Leadership::term);
    let sealer = Sealer::new(ring, Trust::of(&place));
    let helpers = (backups, sealer, acceptor.programs(), acceptor.filters());
    let known = (bearers, acceptor.marks());
    let outward = (multicast, clock, leadership);
    let mut daemon = Daemon::new(machine, log, accounts, (place.clone(), known, acceptor.room()), outward, helpers);
    daemon.start(Input::Start { config, version: settings.version, host: life::host_name() }).await?;
    // The start is durable: the next one is like any other.
    durable::remove(&place.restored()).map_err(ControllerError::io("remove", place.restored()))?;
    lead(&acceptor, term);
    if !several {
        entrance.open(&acceptor)?;
        ready();
    }
    daemon.run(inbox, signals).await
}

/// Reads the keys of this controller, and the way to the others if there are several.
fn keys(
    place: &Place,
    config: &Config,
    state: &State,
    asker: Asker,
) -> Result<(SigningKeys, Option<Others>), ControllerError> {
    let failed = || ControllerError::io("read the keys of", place.keys());
    // One of several learns from etcd which keys are the present ones.
    let ring =
        SigningKeys::open(place, state.keys.as_deref().filter(|_| !config.has_standbys())).map_err(|e| failed()(e))?;
    let others = Others::of(place, config, &controller_name(place), asker).map_err(|e| failed()(e))?;
    if let Some(others) = &others {
        ring.call_by(&others.controllers);
    }
    Ok((ring, others))
}

/// Tells whoever waits for it that this controller takes connections.
fn ready() {
    info!("ready");
    service::ready();
    spawn_local(service::beat());
}

/// Writes the pid file. Fails also if `squall down` has called this start off. From now on the controller ends if its state
/// folder is removed.
fn hold(place: &Place) -> Result<PidFile, ControllerError> {
    let pid = PidFile::write(&place.controller_pid()).map_err(ControllerError::io("write", place.controller_pid()))?;
    let failed = |why| ControllerError::io("start with", place.dir().to_owned())(io::Error::other(why));
    starts::go_on(place).map_err(failed)?;
    gone::end_with(place, "the controller", || {});
    Ok(pid)
}

/// From now on this controller serves users.
fn lead(acceptor: &Acceptor, term: Option<u64>) {
    acceptor.lead(term);
    acceptor.look_up_groups();
}

/// What a controller has in its state folder.
struct StateFolder {
    machine: Controller,
    log: FileLog,
    accounts: Accounts,
    /// Time of the last record.
    last: Time,
}

/// Reads the state folder. Returns also the number of the last record that accounting has.
fn read(settings: &Settings, config: &Config) -> Result<(StateFolder, u64), ControllerError> {
    let place = &settings.place;
    let store = store(place, config)?;
    let seen = match &store {
        Store::File { .. } => accounts::seen(&place.accounts()),
        Store::Server(server) => accounts::seen_on(server),
    };
    let options = Options {
        // One of several controllers reads from etcd what its journal lacks.
        seen: seen.filter(|_| !config.has_standbys()),
        accept_loss: settings.accept_loss,
        durable: settings.durable,
        ..Options::default()
    };
    let OpenedLog { log, state, report, notices } = match FileLog::open(&place.journal(), options) {
        // One of several controllers needs nobody's word to go on without what others have.
        Err(e) if config.has_standbys() && !settings.accept_loss && is_copy(place) => {
            return Err(e.loss().map_or(ControllerError::Journal(e), ControllerError::Broken));
        }
        opened => opened?,
    };
    for notice in &notices {
        warn!("{notice}");
    }
    follow::check_version(state.cluster_version)?;
    keep_cell(&state, config, place)?;
    keep_nodes(&state, config, place)?;
    say_what_was_read(&settings.version, config, &report, &state);
    let last = log.next_seq() - 1;
    let accounts = Accounts::start(place, log.cluster(), last, log.accounted(), store)
        .map_err(ControllerError::io("start a thread for", place.accounts()))?;
    log.await_spare();
    let accounted = seen.filter(|seen| seen.cluster == log.cluster()).map_or(last, |seen| seen.seq.max(last));
    Ok((StateFolder { machine: Controller::new(state), log, accounts, last: report.last }, accounted))
}

/// Returns where accounting keeps its rows.
fn store(place: &Place, config: &Config) -> Result<Store, ControllerError> {
    let wrong =
        |problem| ControllerError::Config { path: place.config(), problem: format!("[accounting] store: {problem}") };
    match config.accounting.server() {
        Some(server) => server.map(Store::Server).map_err(wrong),
        None => readers(place, config).map(|readers| Store::File { readers }),
    }
}

/// Returns the id of the group whose members may read a copy of accounting. None: there is no copy.
fn readers(place: &Place, config: &Config) -> Result<Option<u32>, ControllerError> {
    let name = &config.accounting.readers;
    if name.is_empty() {
        return Ok(None);
    }
    let problem = format!("[accounting] readers: this machine has no group `{name}`");
    users::group_id(name).map(Some).ok_or(ControllerError::Config { path: place.config(), problem })
}

/// Whether the journal of this state folder is a copy of the log that several controllers share.
fn is_copy(place: &Place) -> bool {
    squall_store::etcd::copy_of(&place.journal()).is_ok_and(|log| log.is_some())
}

/// The signals that tell a controller to end.
pub(in crate::controld) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen(place: &Place) -> Result<Self, ControllerError> {
        let listen = |kind| signal(kind).map_err(ControllerError::io("wait for signals in", place.run()));
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Waits for one of them.
    async fn heard(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// What a controller begins to lead with.
struct Begun {
    machine: Controller,
    log: Box<dyn Log>,
    accounts: Accounts,
    /// Time of the last record.
    last: Time,
    /// The leadership of one of several controllers. None: there is one.
    leadership: Option<Leadership>,
}

/// The sockets at which clients and nodes arrive. Dropping this closes them.
struct Entrance {
    place: Place,
    gate: Option<(TcpListener, Gate)>,
    accepting: Vec<JoinHandle<()>>,
}

impl Entrance {
    fn new(place: &Place, gate: Option<(TcpListener, Gate)>) -> Self {
        Self { place: place.clone(), gate, accepting: Vec::new() }
    }

    fn open(&mut self, acceptor: &Arc<Acceptor>) -> Result<(), ControllerError> {
        self.accepting.push(tokio::spawn(Arc::clone(acceptor).accept(listen(&self.place)?)));
        if let Some((listener, gate)) = self.gate.take() {
            self.accepting.push(tokio::spawn(Arc::clone(acceptor).accept_remote(listener, gate)));
        }
        Ok(())
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        self.accepting.iter().for_each(JoinHandle::abort);
        // So that no client tries it; if that fails because it is missing, nothing is lost.
        drop(std::fs::remove_file(self.place.controller_socket()));
    }
}

/// Records which of several controllers this machine is. Err: the configuration names no such controller; the text is
/// for users.
pub fn name_controller(place: &Place, name: &str) -> Result<(), String> {
    let files = ConfigFiles::read(&place.config()).map_err(|e| e.to_string())?;
    let files = files.ok_or_else(|| format!("{}: there is no such file", place.config().display()))?;
    let config = files.check().map_err(|e| e.to_string())?.config;
    let path = place.config().display().to_string();
    if !config.has_standbys() {
        return Err(format!("{path}: it has no [[controllers]], so the cluster has one controller without a name"));
    }
    config.as_controller(name).map_err(|problem| format!("{path}: {problem}"))?;
    place.note_controller_name(name).map_err(|e| format!("{}: {e}", place.dir().display()))
}

/// Prepares the state machine for its start. If its state lacks its end, as it was just restored from a backup or its loss
/// was accepted, the start passes over what may have happened since.
fn prepare(machine: &mut Controller, settings: &Settings, lost: Option<Span>) -> Result<(), ControllerError> {
    let place = &settings.place;
    let mark = Mark::read(place).map_err(ControllerError::io("read", place.restored()))?;
    let since = mark.map(|mark| crate::sys::clock::now().since(Time::from_secs(mark.time_s)));
    if lost.is_some() {
        machine.accept_loss();
    }
    let Some(lost) = since.max(lost) else { return Ok(()) };
    let (pending, last) = (machine.state().waiting(), machine.state().last_id);
    warn!(
        age_s = lost.secs(),
        pending,
        %last,
        "this state lacks what came after it: it was restored from a backup, or the loss was accepted. Jobs that nodes run are left \
         to their end. Pending jobs are held, as they may have run since: `scontrol release` lets them run. Job ids that may have \
         been given are passed over"
    );
    machine.restore(lost);
    Ok(())
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
fn multicast(place: &Place, config: &Config, acceptor: &Acceptor) -> Result<Option<MulticastSender>, ControllerError> {
    let wrong = |problem| ControllerError::Config { path: place.config(), problem };
    let Some(group) = Group::of(config, None).map_err(wrong)? else { return Ok(None) };
    Ok(MulticastSender::open(group, acceptor.cast_out()).map_err(|e| warn!(error = %e, "no multicast here")).ok())
}

fn make_folders(place: &Place) -> Result<(), ControllerError> {
    let exposed = |problem| io::Error::new(io::ErrorKind::PermissionDenied, problem);
    life::check_place(place).map_err(exposed).map_err(ControllerError::io("use", place.dir().to_owned()))?;
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

/// Like `read_config`, and returns warnings with the configuration. On the machine of one of several controllers,
/// `slurmctld_host` and `slurmctld_port` are those of that one.
pub fn check_config(place: &Place) -> Result<CheckedConfig, ControllerError> {
    let files = ConfigFiles::read(&place.config())?;
    let files = files.map_or_else(|| ConfigFiles::beside(&place.config(), String::new()), Ok)?;
    if place.joined().exists() {
        return files.check_of_node();
    }
    let mut checked = files.check()?;
    if checked.config.has_standbys() {
        let wrong = |problem| ControllerError::Config { path: place.config(), problem };
        checked.config = checked.config.as_controller(&controller_name(place)).map_err(wrong)?;
    }
    Ok(checked)
}

/// Returns which of several controllers is the one of this machine: the one that the state folder names, otherwise the
/// one with this host's name.
pub fn controller_name(place: &Place) -> String {
    place.controller_name().unwrap_or_else(life::host_name)
}

/// Opens the controller's Unix socket. Unless the controller runs as root, only its own user (and root) may connect.
pub(crate) fn listen(place: &Place) -> Result<UnixListener, ControllerError> {
    let path = place.controller_socket();
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
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
