//! The node daemon: runs the node's state machine with real processes, files and connections.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use squall_engine::fabric::NetInput;
use squall_engine::fabric::proof::Pinned;
use squall_engine::fabric::shape::Tree;
use squall_engine::machine::Machine as _;
use squall_engine::node::{Boot, ContentAct, Health, NodeAct, NodeInput, NodeMachine, NodeOut};
use squall_files::place::Place;
use squall_model::config::Config;
use squall_model::energy::EnergySource;
use squall_model::found::FoundDevice;
use squall_model::gres;
use squall_model::id::{Epoch, NodeId, StepKey};
use squall_model::job::options::TaskScripts;
use squall_model::job::{Blob, Digest, ExitCode, JobAttempt, Usage};
use squall_model::limits::KILL_WAIT_S;
use squall_model::series::Used;
use squall_model::set::CoreSet;
use squall_model::step::PluginFile;
use squall_model::time::{Span, Time};
use squall_model::wire::peer::PeerMessage;
use squall_model::wire::proof::Warrant;
use squall_model::wire::sealed::Sealed;
use tokio::runtime::LocalOptions;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::spawn_local;
use tracing::{error, info, warn};

use crate::cgroup::detect::Mounts;
use crate::cgroup::{Cgroups, Limits};
use crate::content::Keeping;
use crate::controld;
use crate::detect::Places;
use crate::energy::EnergyMeter;
use crate::gang::Report;
use crate::gone::{self, Folder};
use crate::hardware::{self, Machine};
use crate::life;
use crate::logging;
use crate::multicast::{Ears, Group};
use crate::processes;
use crate::service;
use crate::spool::memory::Ground;
use crate::spool::{Spool, witness};
use crate::starts;
use crate::stepd::Zygote;
use crate::sys::interfaces::interfaces;
use crate::sys::{self, clock, pidfd};
use crate::trust::Trust;

mod adopt;
mod batch_supervisor;
mod beside;
mod checkpoint;
mod devices;
pub mod errands;
mod fence;
mod frequency;
mod gang;
mod hooks;
mod intake;
mod laydown;
pub mod login;
mod names;
mod net;
mod private;
mod reach;
mod steps;
mod sweep;
mod visits;
mod voucher;

use adopt::Orphan;
use batch_supervisor::{BatchSupervisor, SupervisorEvent};
use devices::DeviceFiles;
use fence::Fences;
use frequency::Frequencies;
use gang::Gang;
use hooks::Hooks;
use intake::Intake;
use net::{Net, NetEvent};
use private::PrivateDirs;
use reach::Reach;
use steps::Served;
use sweep::Sweep;
use visits::Visit;

/// Arguments with which a node daemon is started.
#[derive(Clone, Debug)]
pub struct NodeArgs {
    /// The cluster's state folder.
    pub place: Place,
    /// The node's name.
    pub name: String,
    /// The program that serves steps when called as `PROGRAM step --spool FOLDER`: as a rule the running one.
    pub program: PathBuf,
    /// The port to listen on for nodes of other machines; None: the configured one.
    pub port: Option<u16>,
}

impl NodeArgs {
    /// Returns the arguments of the daemon of node `name`. Its step daemons will run this same executable.
    pub fn new(place: Place, name: &str) -> io::Result<Self> {
        Ok(Self { place, name: name.to_owned(), program: std::env::current_exe()?, port: None })
    }
}

/// Number of tries to lock the node's folder: an earlier daemon may still be ending.
const LOCK_TRIES: u32 = 40;
/// Pause between two tries to lock the node's folder.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Time that the loop sleeps if no deadline is set.
const FAR: Duration = Duration::from_hours(1);

/// Time that the last messages have to be sent before the daemon ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// Most exits of reaped children that are kept in `Daemon::reaped`, until the exit of an adopted task is looked up
/// there.
const REAPED_MAX: usize = 4096;

/// Runs the node daemon until it is told to end (exit code 0), or fails (exit code 1, the reason is logged).
pub fn run(args: &NodeArgs) -> std::process::ExitCode {
    names::make_known(&args.place, &args.name);
    starts::begin(&args.place);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let (args_of_it, folder) = (args.clone(), Folder::of(&args.place));
    let patience = controld::read_config(&args.place).map_or(KILL_WAIT_S, |config| config.kill_wait_s);
    let end_steps = {
        let (place, name) = (args.place.clone(), args.name.clone());
        move || gone::end_steps(&place, &name, Duration::from_secs(patience))
    };
    gone::end_with(&args.place, &format!("the daemon of node {}", args.name), end_steps.clone());
    // It runs as a task like the others: waking the future of `block_on` itself costs two system calls each time.
    let serving = async move { spawn_local(async move { serve(&args_of_it).await }).await.map_err(io::Error::other)? };
    let result = runtime.and_then(|runtime| runtime.block_on(serving));
    if result.is_err() && folder.is_some_and(|folder| folder.is_gone()) {
        end_steps();
    }
    match result {
        Ok(End::JoinAnswer(0)) if matches!(Trust::of(&args.place).joined(), Ok(Some(_))) => begin_again(args),
        Ok(End::JoinAnswer(code)) => std::process::ExitCode::from(code),
        Ok(End::Signal) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            error!(node = args.name, error = %e, "node daemon ends");
            std::process::ExitCode::FAILURE
        }
    }
}

/// Reason why the daemon ends.
enum End {
    /// The state machine ended the daemon, with this exit code.
    JoinAnswer(u8),
    /// The daemon has received SIGTERM or SIGINT.
    Signal,
}

/// Starts this daemon again as a new program in the same process, to wait for the cluster's return. Used when the
/// cluster was ended on the controller's machine: the daemon of a joined node was started separately. A `squall down` of this
/// machine may not see it meanwhile, as it has no pid file, and calls it off.
fn begin_again(args: &NodeArgs) -> std::process::ExitCode {
    info!("the cluster is down: waiting for its controller");
    let mut command = std::process::Command::new(&args.program);
    command.arg0("squall").arg("node").arg(&args.name).arg("--state").arg(args.place.dir());
    command.args(args.port.map(|port| format!("--port={port}")));
    command.args(logging::is_file().then_some("--detached"));
    command.envs([starts::variable(&args.place)]);
    error!(node = args.name, error = %command.exec(), "the node daemon cannot start again");
    std::process::ExitCode::FAILURE
}

/// Most events that may wait for the daemon's loop. Tasks and threads with more events wait, each delaying only its own
/// connection, process or file. The loop never waits for them: its output goes into queues that reject what they can't
/// hold. So the loop always returns to take the next event, and no sender waits forever.
const EVENTS_MAX: usize = 4096;

/// An event for the daemon's loop.
enum Event {
    /// An event of the daemon's connections in the tree of nodes.
    Net(NetEvent),
    /// A step daemon has ended that is not a child of this process.
    DaemonDied(StepKey),
    /// A message or the end of the batch supervisor.
    BatchSupervisor(SupervisorEvent),
    /// An adopted task (step, rank) has ended, with its exit and usage if they are known.
    TaskDied(StepKey, u32, Option<(ExitCode, Usage)>),
    /// A result of receiving a file, as an input for the state machine.
    Kept(NodeInput),
    /// The attempt to install a file has ended, as ordered under this epoch and number; 0 or an error number.
    Placed((Epoch, u64), i32),
    /// The gang switcher with this number has sent a report; None: the switcher has ended.
    Switched(u64, Option<Report>),
    /// A step daemon has reported what its tasks have used so far.
    Used(StepKey, Used),
    /// A step daemon has received the request to end its step.
    Ending(StepKey),
    /// A user logs in on this node.
    Visit(Visit),
    /// A message of a step daemon to the daemon of the same step on another node: step, receiving node, message.
    Letter(StepKey, NodeId, Sealed<PeerMessage>),
}

/// The node daemon: its state machine, and the processes, files and connections that it manages.
struct Daemon {
    name: String,
    machine: NodeMachine,
    spool: Spool,
    intake: Intake,
    cgroups: Cgroups,
    hardware: Machine,
    /// Whether steps are bound to their CPUs. False where several nodes share the machine, as their steps would all be
    /// bound to the first CPUs.
    binds: bool,
    /// Whether each step gets a step daemon of its own, so that there is no batch supervisor.
    own_step_daemons: bool,
    /// Scripts of the site that run around each task.
    scripts: TaskScripts,
    /// The site's program that runs OCI containers; empty: the first of the usual ones that is installed.
    container_runtime: String,
    /// Folders that each job has for itself.
    private: PrivateDirs,
    /// Files of the node's devices.
    device_files: DeviceFiles,
    /// By what energy is measured. None: it is not.
    energy: Option<EnergySource>,
    program: CString,
    /// The zygote that makes step daemons; None before the first, and after a failure.
    zygote: Option<Zygote>,
    /// The batch supervisor, which serves steps that need no step daemon of their own; None until it is needed.
    supervisor: Option<BatchSupervisor>,
    /// Time of the last attempt to start a batch supervisor, if it failed; None: none failed, or one was started since.
    unsupervised: Option<Instant>,
    null: File,
    events: Sender<Event>,
    net: Net,
    ears: Ears,
    inputs: VecDeque<NodeInput>,
    /// Steps that have a running step daemon.
    served: BTreeMap<StepKey, Served>,
    /// Steps by the pid of their step daemon, for those that are children of this process.
    children: HashMap<u32, StepKey>,
    /// Steps with a step daemon that died without a result. The node daemon has adopted their tasks.
    orphans: BTreeMap<StepKey, Orphan>,
    /// Exits of reaped children that are not step daemons, the oldest first: pid, exit, usage.
    reaped: VecDeque<(u32, ExitCode, Usage)>,
    /// Steps that have a folder in the spool.
    folders: BTreeSet<StepKey>,
    sweeps: BTreeMap<JobAttempt, Sweep>,
    gang: Gang,
    fences: Fences,
    /// Frequencies of CPUs that steps have changed.
    frequencies: Frequencies,
    hooks: Hooks,
    /// Jobs with step daemons that were all started by this incarnation, and at their end left no processes.
    clean: BTreeSet<JobAttempt>,
    /// Scripts and environments that came in one message with the acts that are being carried out.
    blobs: Vec<Blob>,
    /// For each step that the acts being carried out start: proof that the controller ordered it.
    warrants: BTreeMap<StepKey, Arc<Warrant>>,
    /// Wall clock and time since boot, in microseconds, when the daemon started.
    began: (Time, u64),
}

async fn serve(args: &NodeArgs) -> io::Result<End> {
    let (events, mut inbox) = channel(EVENTS_MAX);
    let mut children = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut daemon = Daemon::begin(args, events).await?;
    spawn_local(logging::reopen_at_hangups());
    daemon.find();
    daemon.turn();
    service::ready();
    spawn_local(service::beat());
    let (far, mut armed) = (Instant::now() + FAR, None);
    let pause = tokio::time::sleep_until(far.into());
    tokio::pin!(pause);
    loop {
        let due = daemon.deadline();
        // An earlier deadline, or none at all, needs the timer reset; a later one is seen when the timer fires.
        if due.is_some_and(|due| armed.is_none_or(|armed| due < armed)) {
            armed = due;
            pause.as_mut().reset(due.map_or(far, |due| daemon.instant(due)).into());
        }
        tokio::select! {
            Some(event) = inbox.recv() => daemon.handle_all(event, &mut inbox),
            _ = children.recv() => daemon.reap(),
            () = &mut pause, if armed.is_some() => {
                armed = None;
                daemon.tick();
            }
            _ = terminate.recv() => return Ok(daemon.leave_by_signal()),
            _ = interrupt.recv() => return Ok(daemon.leave_by_signal()),
        }
        if let Some(code) = daemon.turn() {
            farewell(daemon.net.hang_up_all(), &mut inbox).await;
            return Ok(End::JoinAnswer(code));
        }
    }
}

/// Waits until the last messages were sent, above all those to children.
async fn farewell(mut connections: usize, inbox: &mut Receiver<Event>) {
    let gone = async {
        while connections > 0 {
            match inbox.recv().await {
                Some(Event::Net(NetEvent::Ended(_))) => connections -= 1,
                Some(_) => {}
                None => return,
            }
        }
    };
    // A peer that does not read does not delay the end.
    drop(tokio::time::timeout(FAREWELL, gone).await);
}

/// What the node has for its jobs, and by what it keeps them to their part of it.
struct Equipment {
    cgroups: Cgroups,
    hardware: Machine,
    device_files: DeviceFiles,
    /// By what energy is measured. None: it is not.
    energy: Option<EnergySource>,
    /// Whether steps are bound to CPUs.
    binds: bool,
}

impl Equipment {
    /// Finds cores, memory and devices of this machine, and limits jobs to them as the kernel can. What it can't is logged.
    fn find(args: &NodeArgs, config: &Config) -> Self {
        let (mut cgroups, mut notices) = open_cgroups(&args.place, &args.name);
        notices.extend(cgroups.limit_processes(config.max_processes_per_job.0));
        let mut hardware = Machine::detect().configured(config, &args.name);
        let binds = has_machine(args, config);
        hardware.hardware.devices = find_devices(config, &args.name, &hardware.cpus, &mut notices);
        let found = hardware.hardware.devices.as_deref().unwrap_or_default();
        let (device_files, absent) = DeviceFiles::of(config, &args.name, found);
        constrain((config, binds), !device_files.are_none(), &mut cgroups, &mut notices);
        if cgroups.constrains_devices() {
            notices.extend(absent);
        }
        if config.checkpoint_shared {
            hardware.hardware.interfaces =
                interfaces().inspect_err(|e| notices.push(format!("no addresses: {e}"))).ok();
        }
        let energy = config.energy.source().filter(|source| match EnergyMeter::open(Path::new("/"), source) {
            Ok(_) => true,
            Err(e) => {
                notices.push(format!("energy is not measured: {e}"));
                false
            }
        });
        hardware.hardware.confinement = Some(cgroups.confinement(config, binds, !device_files.are_none()));
        if !notices.is_empty() {
            warn!("{}", notices.join("; "));
        }
        Self { cgroups, hardware, device_files, energy, binds }
    }
}

impl Daemon {
    async fn begin(args: &NodeArgs, events: Sender<Event>) -> io::Result<Self> {
        pidfd::set_child_subreaper()?;
        let path = args.place.node(&args.name);
        let spool = lock(&path).await?;
        let (reach, far) = Reach::open(&args.place, &args.name, args.port).await?;
        if let Some(membership) = reach.membership() {
            voucher::open(&args.place.controller_socket(), voucher::Way::of(membership))?;
        }
        visits::open(&args.place.login_socket(&args.name), events.clone())?;
        let witness = witness::place(args.place.dir(), &args.name);
        let remembered = spool.begin(&Ground::here()?, random()?, witness.as_deref())?;
        remembered.notes.iter().for_each(|note| warn!("{note}"));
        let config = configuration(&args.place)?;
        let Equipment { cgroups, hardware, device_files, energy, binds } = Equipment::find(args, &config);
        let fences = Fences::new(witness.as_deref(), &path);
        let hooks = Hooks::of(&config, plugin_file(&config, &args.place));
        let boot = Boot {
            above: Tree::new(&config, &life::node_names(&config).map_err(io::Error::other)?).above(&args.name),
            name: args.name.clone(),
            incarnation: remembered.incarnation,
            life: remembered.life,
            session: remembered.session,
            hardware: hardware.hardware.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pinned: Pinned(Some(reach.known())),
            hooks: hooks.for_machine(&config),
            health: config.health.clone(),
            fenced: fences.ended(),
        };
        let (intake, found) = Intake::start(Keeping::open(&args.place, &args.name)?, events.clone())?;
        info!(node = args.name, boot = remembered.life, "node daemon starts");
        Ok(Self {
            name: args.name.clone(),
            machine: NodeMachine::new(boot),
            spool,
            intake,
            cgroups,
            hardware,
            own_step_daemons: config.own_step_daemons.0,
            scripts: TaskScripts { prolog: config.task_prolog.clone(), epilog: config.task_epilog.clone() },
            container_runtime: config.container_runtime.clone(),
            private: PrivateDirs::open(&config, (&name_of_cluster(&args.place), &args.name), args.place.dir())?,
            device_files,
            energy,
            binds,
            program: CString::new(args.program.as_os_str().as_bytes())?,
            zygote: None,
            supervisor: None,
            unsupervised: None,
            null: File::options().read(true).write(true).open("/dev/null")?,
            ears: ears(&reach, &config, events.clone()),
            gang: Gang::new(config.gang_switch.0),
            fences,
            frequencies: Frequencies::open(Path::new(frequency::CPUS), path.join("frequencies")),
            hooks,
            net: Net::open((reach, far), config, events.clone())?,
            events,
            inputs: found.into(),
            served: BTreeMap::new(),
            children: HashMap::new(),
            orphans: BTreeMap::new(),
            reaped: VecDeque::new(),
            folders: BTreeSet::new(),
            sweeps: BTreeMap::new(),
            clean: BTreeSet::new(),
            blobs: Vec::new(),
            warrants: BTreeMap::new(),
            began: (clock::now(), clock::since_boot_us()),
        })
    }

    /// Returns the time of day at the start plus the time that has passed since, also while the machine was suspended: it never
    /// goes back.
    fn now(&self) -> Time {
        self.began.0 + Span(clock::since_boot_us().saturating_sub(self.began.1))
    }

    /// Returns the time since boot, in microseconds, at this time of the daemon.
    fn boot_us(&self, time: Time) -> u64 {
        self.began.1 + time.since(self.began.0).0
    }

    fn instant(&self, time: Time) -> Instant {
        Instant::now() + Duration::from_micros(time.since(self.now()).0)
    }

    fn deadline(&self) -> Option<Time> {
        let sweeps = self.sweeps.values().map(|sweep| sweep.next);
        let orphans = self.orphans.values().filter_map(|orphan| orphan.kill_at);
        self.machine.deadline().into_iter().chain(sweeps).chain(orphans).min()
    }

    fn handle_all(&mut self, first: Event, inbox: &mut Receiver<Event>) {
        self.handle(first);
        while let Ok(event) = inbox.try_recv() {
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Net(event) => {
                let mut input = self.net.take(event);
                if let Some(NetInput::FromChild { link, frame }) = &mut input {
                    self.net.confine(*link, frame, self.machine.reach_of(*link));
                }
                self.inputs.extend(input.map(NodeInput::Net));
            }
            Event::DaemonDied(key) => self.daemon_died(key),
            Event::BatchSupervisor(event) => self.hear_supervisor(event),
            Event::TaskDied(key, rank, exit) => self.task_died(key, rank, exit),
            Event::Kept(input) => self.inputs.push_back(input),
            Event::Placed(key, error) => self.inputs.push_back(NodeInput::Placed { key, error }),
            Event::Switched(number, report) => self.switched(number, report),
            Event::Used(key, used) => self.inputs.push_back(NodeInput::Used { key, used }),
            Event::Ending(key) => self.inputs.push_back(NodeInput::Ending { key }),
            Event::Visit(visit) => self.visited(visit),
            Event::Letter(key, to, message) => self.inputs.push_back(NodeInput::Letter { key, to, message }),
        }
    }

    fn tick(&mut self) {
        let now = self.now();
        self.advance_sweeps(now);
        self.kill_orphans(now);
        if self.machine.deadline().is_some_and(|due| due <= now) {
            logging::report_broken();
            let (load_centi, free_mb) = hardware::load();
            self.inputs.push_back(NodeInput::Tick { health: Health { load_centi, free_mb, ..Health::default() } });
        }
    }

    /// Steps the state machine until no input waits. Some: the daemon ends with this exit code.
    fn turn(&mut self) -> Option<u8> {
        while let Some(input) = self.inputs.pop_front() {
            let mut out = NodeOut::default();
            if let Some(damage) = self.damage_before(&input) {
                self.machine.step(self.now(), damage, &mut out);
            }
            self.machine.step(self.now(), input, &mut out);
            self.blobs = out.blobs;
            self.warrants = out.warrants;
            for act in out.acts {
                self.act(act);
            }
            self.blobs.clear();
            self.warrants.clear();
            self.net.carry_out(out.net);
            if out.exit {
                return Some(self.leave(u8::from(out.refused)));
            }
        }
        None
    }

    fn leave_by_signal(&self) -> End {
        service::stopping();
        self.leave(0);
        End::Signal
    }

    /// Closes the daemon's cgroups and spool, but for what running steps need. Returns `code`, the exit code.
    fn leave(&self, code: u8) -> u8 {
        self.cgroups.close();
        self.spool.close();
        code
    }

    fn act(&mut self, act: NodeAct) {
        match act {
            NodeAct::SaveSession(session) => {
                if let Err(e) = self.spool.save_session(session) {
                    error!(error = %e, "the session could not be noted");
                }
            }
            NodeAct::Keys(keys) => self.net.learn(&keys),
            NodeAct::OpenJob { facts, memory_mb, batch, gres } => self.open_job(&facts, memory_mb, batch, &gres),
            NodeAct::Spawn(launch) => self.spawn(launch),
            NodeAct::Tell { key, message } => self.tell(key, message),
            NodeAct::KillStep { key } => self.kill_step(key),
            NodeAct::Sweep { job } => self.sweep(job),
            NodeAct::Forget { key } => self.forget(key),
            NodeAct::ForgetJob { job } => self.forget_job(job),
            NodeAct::Hook(run) => self.run_hook(&run),
            NodeAct::KillHook { hook, job } => self.kill_hook(hook, job),
            NodeAct::Checkpoint(act) => self.checkpoint(act),
            NodeAct::Say(text) => warn!("{text}"),
            NodeAct::Content(ContentAct::Place(placement)) => {
                let source = self.intake.path(placement.content);
                let (place, job) = (&placement.path, placement.job);
                let reached = job.map(|job| self.private.seen_by(job, place));
                laydown::lay_down(source, (self.name.clone(), reached), placement, self.events.clone());
            }
            NodeAct::Gang(act) => self.gang(act),
            NodeAct::Fence(act) => self.fence(act),
            NodeAct::Content(act) => {
                match &act {
                    ContentAct::Hear { content, stream, key } => self.ears.hear(*content, *stream, key),
                    ContentAct::Commit { content } | ContentAct::Abort { content } => self.ears.forget(*content),
                    _ => {}
                }
                self.inputs.extend(self.intake.act(act));
            }
        }
    }

    /// Returns a script or environment that came in one message with the acts that are being carried out. None: the
    /// message lacked it.
    fn blob(&self, digest: Digest) -> Option<&[u8]> {
        self.blobs.iter().find(|blob| blob.digest == digest).map(|blob| &blob.bytes[..])
    }

    /// Returns the proof that the controller ordered a step. None: it does not sign.
    fn warrant(&self, key: StepKey) -> Option<&Warrant> {
        self.warrants.get(&key).map(Arc::as_ref)
    }

    /// Returns the limits of a job or step, with the kernel's CPU numbers. `gres`: the devices that it holds.
    fn limits(
        &self,
        memory_mb: u64,
        cores: impl Iterator<Item = usize>,
        takes_turns: bool,
        gres: &BTreeMap<String, CoreSet>,
    ) -> Limits {
        let cpus = cores.filter(|_| self.binds).filter_map(|core| self.hardware.cpu(core));
        let guards = self.cgroups.constrains_devices();
        let denied = if guards { self.device_files.denied(gres) } else { Vec::new() };
        Limits { memory_mb, cpus: cpus.collect(), takes_turns, denied }
    }
}

/// Reads the configuration of the cluster, with its devices. Without one, all keys have their defaults.
fn configuration(place: &Place) -> io::Result<Config> {
    let optional = |read: io::Result<String>| match read {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    };
    let text = optional(std::fs::read_to_string(place.config()))?;
    let mut config = text.map_or_else(|| Ok(Config::default()), |text| Config::from_toml(&text));
    if let (Ok(config), Some(text)) = (&mut config, optional(std::fs::read_to_string(place.devices()))?) {
        config.gres.extend(gres::parse_conf(&text).map_err(io::Error::other)?);
    }
    let config = config.map_err(io::Error::other)?;
    logging::configure(config.slurmd_debug);
    Ok(config)
}

/// Has the kernel keep jobs to what they hold, as the configuration says. `binds`: whether the node's steps have cores of
/// their own; `has_files`: whether its devices have files.
fn constrain((config, binds): (&Config, bool), has_files: bool, cgroups: &mut Cgroups, notices: &mut Vec<String>) {
    let mounts = Mounts::read().unwrap_or_default();
    if !binds {
        notices.push("several nodes share this machine: tasks are not kept to their cores".to_owned());
    } else if config.constrain_cores != Some(false) {
        notices.extend(cgroups.constrain_cores(&mounts, config.constrain_cores == Some(true)));
    }
    if config.constrain_swap_space == Some(false) {
        cgroups.allow_swap();
    }
    if has_files && config.constrain_devices != Some(false) {
        notices.extend(cgroups.constrain_devices(&mounts, config.constrain_devices == Some(true)));
    }
}

/// Looks for the devices of this machine, if the configuration says how. `cpus`: the kernel's numbers of the node's cores.
fn find_devices(config: &Config, node: &str, cpus: &[usize], notices: &mut Vec<String>) -> Option<Vec<FoundDevice>> {
    let way = config.detects(node);
    let found = (!way.is_off()).then(|| Places::default().find(way, cpus))?;
    notices.extend(found.as_ref().err().map(|e| format!("no GPUs are found: {e}")));
    Some(found.unwrap_or_default())
}

/// Whether a node has its machine for itself, so that its steps can be bound to its CPUs. Nodes that share a machine
/// would all bind theirs to the first CPUs.
fn has_machine(args: &NodeArgs, config: &Config) -> bool {
    let alone = || {
        let joined = matches!(Trust::of(&args.place).joined(), Ok(Some(_)));
        (joined || hardware::beside(config) == 1) && !processes::other_node_daemons()
    };
    sys::host::is_name_of_host(&args.name) || alone()
}

/// Starts to receive multicast, if it is configured. If that fails, the node works without it.
fn ears(reach: &Reach, config: &Config, events: Sender<Event>) -> Ears {
    let towards = reach.controller_address();
    let heard = move |chunk| events.blocking_send(Event::Net(NetEvent::Heard(chunk))).is_ok();
    let ears = Group::of(config, towards.as_deref())
        .and_then(|group| group.map(|group| Ears::open(group, heard)).transpose().map_err(|e| e.to_string()));
    ears.unwrap_or_else(|problem| {
        warn!(%problem, "no multicast here");
        None
    })
    .unwrap_or_default()
}

/// Returns a name for the cluster that no other cluster of this machine has.
fn name_of_cluster(place: &Place) -> String {
    let mut name = Digest::of(place.dir().as_os_str().as_bytes()).to_string();
    name.truncate(16);
    name
}

fn open_cgroups(place: &Place, name: &str) -> (Cgroups, Vec<String>) {
    let cluster = name_of_cluster(place);
    match Mounts::read() {
        Ok(mounts) => {
            let (cgroups, mut notices) = Cgroups::open(&mounts, &cluster, name);
            let shared = cgroups.share_cpus();
            notices.extend(shared.err().map(|e| format!("CPUs can't be shared with other nodes of this machine: {e}")));
            (cgroups, notices)
        }
        Err(e) => (Cgroups::default(), vec![format!("no cgroups: {e}")]),
    }
}

/// Returns the file that lists the site's SPANK plugins. None: there is none.
fn plugin_file(config: &Config, place: &Place) -> Option<PluginFile> {
    let file = place.plugins_of(&config.slurm.plugstack)?;
    Some(PluginFile {
        path: file.to_string_lossy().into_owned(),
        timeout_s: config.slurm.plugin_timeout_s,
        release: config.slurm.compatible.name().to_owned(),
    })
}

/// Opens the spool of a node for this daemon alone.
async fn lock(path: &Path) -> io::Result<Spool> {
    let spool = Spool::open(path)?;
    for _ in 1..LOCK_TRIES {
        match spool.lock() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(LOCK_PAUSE).await,
            other => return other.map(|()| spool),
        }
    }
    spool.lock().map_err(|e| io::Error::new(e.kind(), "another daemon serves this node"))?;
    Ok(spool)
}

fn random() -> io::Result<u128> {
    use std::io::Read;
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}
