//! The node daemon: runs the node machine on this machine.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use squall_engine::fabric::NetInput;
use squall_engine::fabric::shape::Tree;
use squall_engine::machine::Machine as _;
use squall_engine::node::{Boot, ContentAct, Health, NodeAct, NodeInput, NodeMachine, NodeOut};
use squall_files::place::Place;
use squall_model::config::Config;
use squall_model::id::{Epoch, NodeId, StepKey};
use squall_model::job::{Blob, Digest, ExitCode, JobAttempt, Usage};
use squall_model::step::TaskScripts;
use squall_model::time::{Span, Time};
use squall_model::wire::peer::PeerMessage;
use squall_model::wire::sealed::Sealed;
use tokio::runtime::LocalOptions;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::spawn_local;
use tracing::{error, info, warn};

use crate::cgroup::detect::Mounts;
use crate::cgroup::{Cgroups, Limits};
use crate::content::Keeping;
use crate::gang::Report;
use crate::hardware::{self, Machine};
use crate::life;
use crate::logging;
use crate::multicast::{Ears, Group};
use crate::spool::memory::Ground;
use crate::spool::{Spool, witness};
use crate::stepd::Nursery;
use crate::sys::{self, clock, pidfd};
use crate::trust::Trust;

mod adopt;
mod beside;
pub mod errands;
mod foster;
mod gang;
mod intake;
mod laydown;
mod names;
mod net;
mod reach;
mod steps;
mod sweep;
mod voucher;

use adopt::Orphan;
use foster::{Foster, FosterEvent};
use gang::Gang;
use intake::Intake;
use net::{Net, NetEvent};
use reach::Reach;
use steps::Served;
use sweep::Sweep;

/// What a node daemon is started with.
#[derive(Clone, Debug)]
pub struct NodeArgs {
    /// The cluster.
    pub place: Place,
    /// The node's name.
    pub name: String,
    /// The program that serves steps when called as `PROGRAM step --spool FOLDER`: this one, as a rule.
    pub program: PathBuf,
    /// The port to listen on for nodes of other machines; None: the configured one.
    pub port: Option<u16>,
}

impl NodeArgs {
    /// For the node of that name, whose steps this same program serves.
    pub fn new(place: Place, name: &str) -> io::Result<Self> {
        Ok(Self { place, name: name.to_owned(), program: std::env::current_exe()?, port: None })
    }
}

/// How often it is tried to become the only daemon of the node, while another one may still be dying.
const LOCK_TRIES: u32 = 40;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// When nothing is due.
const FAR: Duration = Duration::from_hours(1);

/// How long the last words may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// Exits of adopted processes that are kept until somebody asks for them.
const REAPED_MAX: usize = 4096;

/// Runs the node daemon until it is told to end (exit code 0), or can't go on (1, said in the log).
pub fn run(args: &NodeArgs) -> std::process::ExitCode {
    names::make_known(&args.place, &args.name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let args_of_it = args.clone();
    // As a task like the others: to wake what the runtime itself waits for costs two system calls each time.
    let serving = async move { spawn_local(async move { serve(&args_of_it).await }).await.map_err(io::Error::other)? };
    let result = runtime.and_then(|runtime| runtime.block_on(serving));
    match result {
        Ok(End::Told(0)) if matches!(Trust::of(&args.place).joined(), Ok(Some(_))) => begin_again(args),
        Ok(End::Told(code)) => std::process::ExitCode::from(code),
        Ok(End::Signal) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            error!(node = args.name, error = %e, "node daemon ends");
            std::process::ExitCode::FAILURE
        }
    }
}

/// Why the daemon ends.
enum End {
    /// Its machine wants it, with this exit code.
    Told(u8),
    /// A signal.
    Signal,
}

/// The cluster was ended on the controller's machine. This one was started by somebody else: it waits for the cluster to
/// come back, as a new process under the same id.
fn begin_again(args: &NodeArgs) -> std::process::ExitCode {
    info!("the cluster is down: waiting for its controller");
    let mut command = std::process::Command::new(&args.program);
    command.arg0("squall").arg("node").arg(&args.name).arg("--state").arg(args.place.dir());
    command.args(args.port.map(|port| format!("--port={port}")));
    command.args(logging::is_file().then_some("--detached"));
    error!(node = args.name, error = %command.exec(), "the node daemon cannot start again");
    std::process::ExitCode::FAILURE
}

/// Events that may wait for the loop. Tasks and threads that have more of them wait, each behind its connection, process or
/// file. The loop waits for none of them: what it has for others goes into queues that refuse what they can't hold. So it
/// always comes back to take the next event, and no sender waits for ever.
const EVENTS_MAX: usize = 4096;

/// What happens outside of the loop.
enum Event {
    /// In the tree.
    Net(NetEvent),
    /// A step daemon that we did not execute has ended.
    DaemonDied(StepKey),
    /// The foster.
    Foster(FosterEvent),
    /// A task in our charge has ended, that way if it could be learnt.
    TaskDied(StepKey, u32, Option<(ExitCode, Usage)>),
    /// Of a file that is taken in.
    Kept(NodeInput),
    /// A file was laid down by that order, or could not be: the error number.
    Placed((Epoch, u64), i32),
    /// The switcher of that number has spoken; None: it has ended.
    Switched(u64, Option<Report>),
    /// What the tasks of a step have used so far.
    Used(StepKey, Usage),
    /// A step daemon has heard that its step is to end.
    Ending(StepKey),
    /// A step daemon tells the one on another node.
    Letter(StepKey, NodeId, Sealed<PeerMessage>),
}

/// The daemon's hands and eyes.
struct Daemon {
    name: String,
    machine: NodeMachine,
    spool: Spool,
    intake: Intake,
    cgroups: Cgroups,
    hardware: Machine,
    /// Whether steps are bound to their CPUs: not where several nodes share the machine, whose steps would all crowd on
    /// the first ones.
    binds: bool,
    /// Whether each step has a daemon of its own.
    own_step_daemons: bool,
    /// What the site runs around each task.
    scripts: TaskScripts,
    program: CString,
    /// Makes step daemons; none before the first, and after a failure.
    nursery: Option<Nursery>,
    /// Serves steps that need no daemon of their own, once there was one.
    foster: Option<Foster>,
    /// When there was none to be had.
    fosterless: Option<Instant>,
    null: File,
    events: Sender<Event>,
    net: Net,
    ears: Ears,
    inputs: VecDeque<NodeInput>,
    /// Steps with a living daemon.
    served: BTreeMap<StepKey, Served>,
    /// Which of our children is which step's daemon, of those that were executed.
    children: HashMap<u32, StepKey>,
    /// Steps whose daemon died.
    orphans: BTreeMap<StepKey, Orphan>,
    /// Exits of other children.
    reaped: VecDeque<(u32, ExitCode, Usage)>,
    /// Steps that have a folder.
    folders: BTreeSet<StepKey>,
    sweeps: BTreeMap<JobAttempt, Sweep>,
    gang: Gang,
    /// Jobs all of whose steps' daemons, so far, were started in this life and cleared up after themselves.
    clean: BTreeSet<JobAttempt>,
    /// What the acts in hand need.
    blobs: Vec<Blob>,
    began: (Time, Instant),
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
    let (far, mut armed) = (Instant::now() + FAR, None);
    let pause = tokio::time::sleep_until(far.into());
    tokio::pin!(pause);
    loop {
        let due = daemon.deadline();
        // Sooner or never again is worth a new timer; later is seen when it fires.
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
            return Ok(End::Told(code));
        }
    }
}

/// What was said last, to children above all, leaves before the daemon does.
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
    // Who takes nothing hears nothing.
    drop(tokio::time::timeout(FAREWELL, gone).await);
}

impl Daemon {
    async fn begin(args: &NodeArgs, events: Sender<Event>) -> io::Result<Self> {
        pidfd::set_child_subreaper()?;
        let path = args.place.node(&args.name);
        let spool = Spool::open(&path)?;
        lock(&spool).await?;
        let (reach, far) = Reach::open(&args.place, &args.name, args.port).await?;
        if reach.has_joined() {
            voucher::open(&reach)?;
        }
        let remembered =
            spool.begin(&Ground::here()?, random()?, witness::place(args.place.dir(), &args.name).as_deref())?;
        remembered.notes.iter().for_each(|note| warn!("{note}"));
        let (cgroups, notices) = open_cgroups(&args.place, &args.name);
        if !notices.is_empty() {
            warn!("{}", notices.join("; "));
        }
        let config = match std::fs::read_to_string(args.place.config()) {
            Ok(text) => Config::from_toml(&text).map_err(io::Error::other)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Config::default(),
            Err(e) => return Err(e),
        };
        logging::configure(config.slurmd_debug.0);
        let hardware = Machine::detect().configured(&config, &args.name);
        let all = life::node_names(&config).map_err(io::Error::other)?;
        let boot = Boot {
            above: Tree::new(&config, &all).above(&args.name),
            name: args.name.clone(),
            incarnation: remembered.incarnation,
            life: remembered.life,
            session: remembered.session,
            hardware: hardware.hardware.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
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
            binds: sys::host::is_name_of_host(&args.name),
            program: CString::new(args.program.as_os_str().as_bytes())?,
            nursery: None,
            foster: None,
            fosterless: None,
            null: File::options().read(true).write(true).open("/dev/null")?,
            ears: ears(&reach, &config, events.clone()),
            gang: Gang::new(config.gang_switch.0),
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
            began: (clock::now(), Instant::now()),
        })
    }

    /// The time of day as it was at the start plus what has passed since: it never goes back.
    fn now(&self) -> Time {
        self.began.0 + Span(self.began.1.elapsed().as_micros() as u64)
    }

    fn instant(&self, time: Time) -> Instant {
        self.began.1 + Duration::from_micros(time.since(self.began.0).0)
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
            Event::Foster(event) => self.hear_foster(event),
            Event::TaskDied(key, rank, exit) => self.task_died(key, rank, exit),
            Event::Kept(input) => self.inputs.push_back(input),
            Event::Placed(key, error) => self.inputs.push_back(NodeInput::Placed { key, error }),
            Event::Switched(number, report) => self.switched(number, report),
            Event::Used(key, usage) => self.inputs.push_back(NodeInput::Used { key, usage }),
            Event::Ending(key) => self.inputs.push_back(NodeInput::Ending { key }),
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
            self.inputs.push_back(NodeInput::Tick { health: Health { load_centi, free_mb } });
        }
    }

    /// Feeds the machine until nothing waits. Some: the daemon ends with this code.
    fn turn(&mut self) -> Option<u8> {
        while let Some(input) = self.inputs.pop_front() {
            let mut out = NodeOut::default();
            self.machine.step(self.now(), input, &mut out);
            self.blobs = out.blobs;
            for act in out.acts {
                self.act(act);
            }
            self.blobs.clear();
            self.net.carry_out(out.net);
            if out.exit {
                return Some(self.leave(u8::from(out.refused)));
            }
        }
        None
    }

    fn leave_by_signal(&self) -> End {
        self.leave(0);
        End::Signal
    }

    /// Nothing of this daemon's stays but what running steps need.
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
            NodeAct::OpenJob { facts, memory_mb, batch } => self.open_job(&facts, memory_mb, batch),
            NodeAct::Spawn(launch) => self.spawn(launch),
            NodeAct::Tell { key, message } => self.tell(key, message),
            NodeAct::KillStep { key } => self.kill_step(key),
            NodeAct::Sweep { job } => self.sweep(job),
            NodeAct::Forget { key } => self.forget(key),
            NodeAct::ForgetJob { job } => self.forget_job(job),
            NodeAct::Say(text) => warn!("{text}"),
            NodeAct::Content(ContentAct::Place(placement)) => {
                let source = self.intake.path(placement.content);
                laydown::lay_down(source, self.name.clone(), placement, self.events.clone());
            }
            NodeAct::Gang(act) => self.gang(act),
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

    /// Content that came with the put in hand.
    fn blob(&self, digest: Digest) -> Option<&[u8]> {
        self.blobs.iter().find(|blob| blob.digest == digest).map(|blob| &blob.bytes[..])
    }

    /// What a step may use, as the kernel counts.
    fn limits(&self, memory_mb: u64, cores: impl Iterator<Item = usize>, takes_turns: bool) -> Limits {
        let cpus = cores.filter(|_| self.binds).filter_map(|core| self.hardware.cpu(core));
        Limits { memory_mb, cpus: cpus.collect(), takes_turns }
    }
}

/// Listens to multicast where that is configured. Who can't goes without.
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

fn open_cgroups(place: &Place, name: &str) -> (Cgroups, Vec<String>) {
    let cluster = Digest::of(place.dir().as_os_str().as_bytes()).to_string();
    match Mounts::read() {
        Ok(mounts) => {
            let (cgroups, mut notices) = Cgroups::open(&mounts, &cluster[..16], name);
            let shared = cgroups.share_cpus();
            notices.extend(shared.err().map(|e| format!("CPUs can't be shared with other nodes of this machine: {e}")));
            (cgroups, notices)
        }
        Err(e) => (Cgroups::default(), vec![format!("no cgroups: {e}")]),
    }
}

async fn lock(spool: &Spool) -> io::Result<()> {
    for _ in 1..LOCK_TRIES {
        match spool.lock() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(LOCK_PAUSE).await,
            other => return other,
        }
    }
    spool.lock().map_err(|e| io::Error::new(e.kind(), "another daemon serves this node"))
}

fn random() -> io::Result<u128> {
    use std::io::Read;
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}
