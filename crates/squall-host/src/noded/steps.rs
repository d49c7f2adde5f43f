//! Step daemons: starts them, finds those of earlier incarnations, sends them messages, and handles their end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixStream as StdStream};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use squall_engine::node::{FoundStep, NodeInput, attempt_of};
use squall_model::encoding::ByteBuf;
use squall_model::id::{StepKey, StepNo};
use squall_model::job::{ExitCode, JobAttempt};
use squall_model::report::StepEnd;
use squall_model::series::Used;
use squall_model::set::CoreSet;
use squall_model::step::{JobFacts, Program, StepLaunch};
use squall_model::wire::node::EndReason;
use squall_model::wire::stepd::{FromStepd, ToStepd};
use squall_model::wire::{Hello, Role};
use tokio::net::UnixStream;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tracing::{error, warn};

use super::{Daemon, Event, REAPED_MAX};
use crate::cgroup::StepGroups;
use crate::link::{self, read_greeting};
use crate::processes;
use crate::spool::{BatchFiles, file, parse_key};
use crate::stepd::Zygote;
use crate::stepd::batch_supervisor::{Order, Restoring, ToSupervisor};
use crate::stepd::speaks_by_tree;
use crate::sys::peer::peer_of;
use crate::sys::spawn::{Session, Spawn};
use crate::sys::wait::{self, Waited};
use crate::sys::watch::Watched;
use crate::sys::{pidfd, signals};
use crate::traces::Traces;

/// Most messages that may be queued for a step daemon, which may not listen yet: more than its tasks exchange at once.
const MESSAGES_MAX: usize = 16_384;
/// First and longest pause between two attempts to connect to a step daemon.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// A step found in the spool, with its launch; None: the launch can't be read.
type Spooled = (StepKey, Option<Box<StepLaunch>>);

/// A step that has a running daemon.
pub(super) struct Served {
    /// The process that serves the step: a step daemon of its own, or the batch supervisor.
    pub(super) by: By,
    /// Queue of messages for a step daemon of its own; None: no message was sent so far.
    pub(super) tells: Option<Sender<ToStepd>>,
    /// Whether the step was told to end. Then none of its tasks may be started any more.
    pub(super) ended: bool,
}

/// The process that serves a step.
pub(super) enum By {
    /// Process id of a step daemon that is a child of this process. The id is not reused until this process reaps the
    /// child.
    Child(u32),
    /// Process id and pidfd of a step daemon, which need not be a child of this process.
    Watched(u32, Rc<Watched>),
    /// The batch supervisor, which serves many steps.
    BatchSupervisor,
}

impl Served {
    pub(super) fn by(by: By) -> Self {
        Self { by, tells: None, ended: false }
    }

    pub(super) fn is_supervised(&self) -> bool {
        matches!(self.by, By::BatchSupervisor)
    }

    /// Returns the pid of the step's own step daemon; None: the batch supervisor serves the step.
    pub(super) fn own_daemon(&self) -> Option<u32> {
        match &self.by {
            By::Child(pid) | By::Watched(pid, _) => Some(*pid),
            By::BatchSupervisor => None,
        }
    }
}

/// Functions by which a starting node daemon finds what earlier incarnations left.
impl Daemon {
    /// Reports to the state machine what earlier incarnations left: jobs, steps and processes.
    pub(super) fn find(&mut self) {
        let dumps = self.thaw_all();
        self.find_hooks();
        self.start_plugins();
        let (jobs, unreadable) = self.spool.jobs();
        self.inputs.extend(jobs.into_iter().map(|facts| NodeInput::FoundJob { facts: Arc::new(facts) }));
        for job in unreadable {
            error!("{}", self.spool.complaint_of_mark(job));
            self.inputs.push_back(NodeInput::FoundUnreadable { job, step: None });
        }
        let (launches, unreadable) = self.spool.steps();
        for key in &unreadable {
            error!("{}", self.spool.complaint(*key));
        }
        let readable = launches.into_iter().map(|launch| (launch.key, Some(launch)));
        let steps: Vec<Spooled> = readable.chain(unreadable.into_iter().map(|key| (key, None))).collect();
        self.folders.extend(steps.iter().map(|(key, _)| *key));
        self.find_restored();
        let supervised = self.find_supervisor();
        let undecided = self.find_steps(steps, &supervised);
        // A folder that was taken had a daemon by then: a daemon that is not seen now has ended.
        let supervised = if undecided.is_empty() { BTreeSet::new() } else { self.served_by_supervisor() };
        let mut orphans = Vec::new();
        for (key, launch) in self.find_steps(undecided, &supervised) {
            let state = match self.kill_half_restored(key) {
                Some(error) => FoundStep::Failed { error, node_fault: false },
                None => match self.left_by(key, None) {
                    Some(traces) => {
                        orphans.push((key, traces));
                        FoundStep::Orphaned
                    }
                    None => FoundStep::Unstarted,
                },
            };
            self.found((key, launch), state);
        }
        self.find_dumps(dumps);
        for (key, traces) in orphans {
            self.adopt(key, traces);
        }
        let (served, orphans) = (&self.served, &self.orphans);
        self.frequencies.keep(|key| served.contains_key(&key) || orphans.contains_key(&key));
        self.find_leftovers();
    }

    /// Reports the state of each step to the state machine, if it is certain. Returns the other steps: a daemon took
    /// their folders, but no such daemon is seen.
    fn find_steps(&mut self, steps: Vec<Spooled>, supervised: &BTreeSet<StepKey>) -> Vec<Spooled> {
        if steps.is_empty() {
            return Vec::new();
        }
        let daemons = self.daemons();
        let mut undecided = Vec::new();
        for (key, launch) in steps {
            if supervised.contains(&key) {
                self.served.insert(key, Served::by(By::BatchSupervisor));
                self.found((key, launch), FoundStep::Alive);
                continue;
            }
            match self.look(key, &daemons) {
                Some(state) => {
                    if state == FoundStep::Alive {
                        self.attend(key, launch.as_deref().is_some_and(speaks_by_tree));
                    }
                    self.found((key, launch), state);
                }
                None if self.spool.was_taken(key) => undecided.push((key, launch)),
                None => self.found((key, launch), FoundStep::Unstarted),
            }
        }
        undecided
    }

    fn found(&mut self, (key, launch): Spooled, state: FoundStep) {
        self.inputs.push_back(match launch {
            Some(launch) => NodeInput::FoundStep { launch, state },
            None => NodeInput::FoundUnreadable { job: attempt_of(key), step: Some((key.step, state)) },
        });
    }

    /// Returns the pids of running step daemons by the name of the folder that they serve.
    fn daemons(&self) -> HashMap<String, Vec<u32>> {
        let mut daemons: HashMap<String, Vec<u32>> = HashMap::new();
        for (pid, name) in processes::step_daemons(&self.spool.steps_dir()) {
            daemons.entry(name).or_default().push(pid);
        }
        daemons
    }

    /// Returns a step's state if it is certain: the step has ended, or a daemon serves it. None: neither is seen.
    fn look(&mut self, key: StepKey, daemons: &HashMap<String, Vec<u32>>) -> Option<FoundStep> {
        if let Some(state) = self.last_word(key) {
            return Some(state);
        }
        let pids = daemons.get(&key.to_string()).map_or(&[][..], Vec::as_slice);
        if self.watch(key, pids) {
            return Some(FoundStep::Alive);
        }
        // It may have ended between the two checks.
        self.last_word(key)
    }

    /// Returns the result that the step daemon wrote at its end. None: there is none.
    fn last_word(&self, key: StepKey) -> Option<FoundStep> {
        match self.spool.result(key)? {
            FromStepd::Ended(end) => Some(FoundStep::Ended(end)),
            FromStepd::Failed { error, node_fault } => Some(FoundStep::Failed { error, node_fault }),
            _ => None,
        }
    }

    /// Watches the process of `pids` that is the step's daemon and not a child of this process. False: there is none.
    fn watch(&mut self, key: StepKey, pids: &[u32]) -> bool {
        if pids.is_empty() {
            return false;
        }
        let (folder, user) = (self.spool.step(key), self.spool.owner(key));
        // The step's user may not be readable any more. Only the step's own processes are in its group.
        let unreadable = self.spool.is_unreadable(&key.to_string());
        let members = if unreadable { self.cgroups.members_of_step(key) } else { BTreeSet::new() };
        let belongs = |pid: u32| processes::may_belong(pid, user) || members.contains(&pid);
        let serves = |pid: u32| processes::serves(pid, &folder) && belongs(pid);
        // The check is made after opening the pidfd, so that the pid can't have been reused.
        let mut opened = pids.iter().filter_map(|pid| Some((*pid, pidfd::open(*pid).ok()?)));
        let Some((pid, fd)) = opened.find(|(pid, _)| serves(*pid)) else { return false };
        self.follow(key, pid, fd).is_ok()
    }

    /// Watches a step daemon by its pidfd, so that its end becomes an event.
    fn follow(&mut self, key: StepKey, pid: u32, fd: OwnedFd) -> io::Result<()> {
        let watched = Rc::new(Watched::new(fd)?);
        self.served.insert(key, Served::by(By::Watched(pid, watched.clone())));
        let events = self.events.clone();
        tokio::task::spawn_local(async move {
            watched.readable().await;
            drop(events.send(Event::DaemonDied(key)).await);
        });
        Ok(())
    }

    /// Finds processes and groups of steps that the spool does not have. Those of known jobs are killed here. Unknown
    /// attempts are swept by the state machine before it registers.
    fn find_leftovers(&mut self) {
        let steps = self.spool.steps_dir();
        let known: BTreeSet<String> = self.folders.iter().map(StepKey::to_string).collect();
        let forgotten = |(_, name): &(u32, String)| !known.contains(name);
        // Where there are groups, they show every attempt. Marks are not used then, as any process can set them.
        let groups = self.cgroups.are_there();
        let mut left = self.cgroups.jobs();
        for (pid, name) in processes::step_daemons(&steps).into_iter().filter(forgotten) {
            warn!(pid, step = name, "killing the daemon of a step that is not known here");
            processes::kill_if(pid, |pid| processes::serves(pid, &steps.join(&name)));
            left.extend(parse_key(&name).filter(|_| !groups).map(attempt_of));
        }
        let marked: Vec<(u32, String)> = processes::marked(&steps).into_iter().filter(forgotten).collect();
        // What goes on from a checkpoint has the mark of the attempt that began it.
        let restored = |pid: &u32| self.folders.iter().any(|key| self.cgroups.members_of_step(*key).contains(pid));
        let marked: Vec<_> = marked.into_iter().filter(|(pid, _)| !restored(pid)).collect();
        for (pid, name) in marked {
            warn!(pid, step = name, "killing a process of a step that is not known here");
            processes::kill_if(pid, |pid| processes::mark(pid) == Some(steps.join(&name)));
            left.extend(parse_key(&name).filter(|_| !groups).map(attempt_of));
        }
        let of_steps = self.folders.iter().map(|key| attempt_of(*key));
        let known: BTreeSet<JobAttempt> = of_steps.chain(self.spool.marked_jobs()).collect();
        self.private.sweep(&known);
        self.spool.remove_left();
        let left: BTreeSet<JobAttempt> = left.into_iter().filter(|job| !known.contains(job)).collect();
        self.inputs.extend(left.into_iter().map(|job| NodeInput::FoundLeftover { job }));
    }
}

/// Functions that carry out acts of the state machine.
impl Daemon {
    pub(super) fn open_job(&mut self, facts: &JobFacts, memory_mb: u64, batch: bool, gres: &BTreeMap<String, CoreSet>) {
        let job = attempt_of(facts.key);
        self.clean.insert(job);
        let limits = self.limits(memory_mb, std::iter::empty(), facts.ganged, gres);
        if let Err(e) = self.cgroups.open_job(job, &limits, batch) {
            error!(job = %job.job, error = %e, "no cgroup for the job");
        }
        if !batch && let Err(e) = self.spool.add_job(facts) {
            error!(job = %job.job, error = %e, "the job could not be noted");
        }
    }

    pub(super) fn spawn(&mut self, launch: Box<StepLaunch>) {
        let (key, by_tree) = (launch.key, speaks_by_tree(&launch));
        if let Err(error) = self.set_frequency(&launch) {
            return self.inputs.push_back(NodeInput::Failed { key, error, node_fault: false });
        }
        match self.try_spawn(*launch) {
            Ok(()) => {
                self.regroup(attempt_of(key));
                self.attend(key, by_tree);
            }
            Err(e) => self.spawn_failed(key, &e),
        }
    }

    /// Sets the frequency of a step's CPUs, if it asks for one. Err: why it can't be, as a text for users.
    fn set_frequency(&mut self, launch: &StepLaunch) -> Result<(), String> {
        let Program::Tasks(program) = &launch.program else { return Ok(()) };
        let Some(asked) = &program.options.shown.cpu_freq else { return Ok(()) };
        let cpus: Vec<usize> = launch.cores.iter().filter_map(|core| self.hardware.cpu(core)).collect();
        let set = if self.binds {
            self.frequencies.set(launch.key, &cpus, asked)
        } else {
            Err("several nodes share this machine and its CPUs".to_owned())
        };
        set.map_err(|problem| format!("--cpu-freq={asked}: the frequency of the CPUs can't be set: {problem}"))
    }

    pub(super) fn spawn_failed(&mut self, key: StepKey, e: &io::Error) {
        error!(step = %key, error = %e, "the step could not be started");
        self.folders.remove(&key);
        self.cgroups.close_step(key);
        self.frequencies.release(key);
        self.inputs.push_back(NodeInput::Failed { key, error: e.to_string(), node_fault: true });
    }

    fn try_spawn(&mut self, mut launch: StepLaunch) -> io::Result<()> {
        launch.site.clone_from(&self.scripts);
        // What a restored script needs of them it has already.
        let restored = launch.facts.restore.is_some() && launch.key.step == StepNo::BATCH;
        launch.plugins = self.hooks.plugin_file().cloned().filter(|_| !restored);
        launch.container_runtime.clone_from(&self.container_runtime);
        if let Program::Tasks(program) = &mut launch.program
            && launch.plugins.is_some()
        {
            // They have the tasks made by a process of their own.
            program.inside = None;
        }
        if self.private.are_on() {
            let made = self.private.of_job(attempt_of(launch.key));
            launch.private = made.map_err(|e| io::Error::new(e.kind(), format!("private folders: {e}")))?;
        }
        let groups = self.add_folder(&mut launch)?;
        let cpus: Vec<usize> = launch.cores.iter().filter(|_| self.binds).collect();
        if !self.is_for_supervisor(&launch, &groups) {
            return self.start_daemon(&launch, &cpus);
        }
        let environment = self.blob(launch.facts.spec.env).unwrap_or_default().to_vec();
        let birthplace = self.cgroups.birthplace(launch.key).unwrap_or_default().into_os_string().into_encoded_bytes();
        let (environment, birthplace) = (ByteBuf::from(environment), ByteBuf::from(birthplace));
        let warrant = self.warrant(launch.key).cloned();
        if restored {
            self.restores(attempt_of(launch.key));
        }
        let restoring = launch.facts.restore.map(|_| Restoring {
            criu: self.hooks.checkpoints.criu.clone(),
            dir: self.hooks.checkpoints.dir.clone().into_os_string().into_encoded_bytes().into(),
        });
        let order = Order { launch, environment, groups: groups.to_text(), birthplace, cpus, warrant, restoring };
        self.give_to_supervisor(order).or_else(|order| self.start_daemon(&order.launch, &order.cpus))
    }

    /// Makes the groups and the folder of a step.
    fn add_folder(&mut self, launch: &mut StepLaunch) -> io::Result<StepGroups> {
        let key = launch.key;
        // From here on cores have the kernel's numbers, if steps are bound to CPUs.
        let limits = self.limits(launch.memory_mb, launch.cores.iter(), launch.facts.ganged, &launch.gres);
        if self.binds {
            launch.cores.clone_from(&limits.cpus);
        }
        launch.sees_own_gpus = self.cgroups.constrains_devices() && self.device_files.have_gpus();
        // The step daemon counts CPUs as the kernel does.
        let cpus = |cores: &CoreSet| cores.iter().filter_map(|core| self.hardware.cpu(core)).collect();
        launch.gpu_cpus = self.device_files.near(&launch.gres).map(|(gpu, cores)| (gpu, cpus(cores))).collect();
        launch.gpu_files = self.device_files.gpus(&launch.gres);
        launch.energy.clone_from(&self.energy);
        launch.shared = self.device_files.shared(&launch.gres);
        launch.gpu_ids = self.device_files.ids_of(&launch.gres);
        // Where the node has cgroups nothing runs outside of one.
        let groups = if launch.is_inside() {
            // Its tasks are in the script's group, and its step daemon is none of the job's processes.
            StepGroups::default()
        } else {
            self.cgroups.open_step(key, &limits).map_err(|e| io::Error::new(e.kind(), format!("cgroup: {e}")))?
        };
        let spec = &launch.facts.spec;
        let batch = match launch.program {
            Program::Batch => {
                let missing = || io::Error::other("the controller did not send the script");
                let script = spec.script.and_then(|digest| self.blob(digest)).ok_or_else(missing)?;
                Some(BatchFiles { script, environment: self.blob(spec.env).ok_or_else(missing)? })
            }
            _ => None,
        };
        let added = self.spool.add_step(launch, batch, (&groups.to_text(), self.warrant(key)));
        added.map_err(|e| io::Error::new(e.kind(), format!("spool: {e}")))?;
        if launch.needs_room() {
            // What its user leaves there is removed with it.
            self.spool.spoil(key);
        }
        self.folders.insert(key);
        Ok(groups)
    }

    /// Starts the daemon of a step with a prepared folder, on the CPUs of the step.
    pub(super) fn start_daemon(&mut self, launch: &StepLaunch, cpus: &[usize]) -> io::Result<()> {
        let key = launch.key;
        let folder = self.spool.step(key);
        let group = self.cgroups.birthplace(key);
        if let Some(pid) = self.copy_daemon(&folder, cpus, group.as_deref()) {
            if let Err(e) = pidfd::open(pid).and_then(|fd| self.follow(key, pid, fd)) {
                // It has ended already, or can't be watched for lack of descriptors; in the second case it must not
                // continue.
                if e.raw_os_error() != Some(libc::ESRCH) {
                    error!(step = %key, error = %e, "the step's daemon can't be followed");
                    let _ = signals::kill(pid, libc::SIGKILL);
                }
                self.served.insert(key, Served::by(By::Child(pid)));
                // The loop never waits for room in its own queue of events.
                let events = self.events.clone();
                tokio::task::spawn_local(async move { drop(events.send(Event::DaemonDied(key)).await) });
            }
            return Ok(());
        }
        // There may be two daemons for this folder now.
        self.spool.spoil(key);
        let argv = [&b"squall"[..], b"step", b"--spool", folder.as_os_str().as_bytes()];
        let argv = argv.map(CString::new).into_iter().collect::<Result<Vec<_>, _>>()?;
        let log = self.spool.open_file(key, file::LOG)?;
        let stdio = [self.null.as_fd(), self.null.as_fd(), log.as_fd()];
        let spawn = Spawn { dir: Some(c"/"), session: Session::New, cpus, ..Spawn::new(&self.program, &argv, stdio) };
        // A process in a frozen group does not execute its program until it is thawed, and we would wait for that.
        let group = group.filter(|_| !launch.facts.ganged);
        let group = group.and_then(|group| File::open(group).ok());
        let born = group.and_then(|group| spawn.start_in(group.as_fd()).ok());
        match born.map_or_else(|| spawn.start(), Ok) {
            Ok(child) => {
                self.children.insert(child.pid, key);
                self.served.insert(key, Served::by(By::Child(child.pid)));
                Ok(())
            }
            Err(e) => {
                let error = format!("step daemon: {e}");
                // If the folder can't be removed, it must not look like that of a step yet to be started.
                if self.spool.remove_step(key).is_err() {
                    let word = FromStepd::Failed { error: error.clone(), node_fault: true };
                    let _ = self.spool.write_result(key, &word);
                }
                Err(io::Error::other(error))
            }
        }
    }

    /// Has the zygote fork a step daemon, which is cheaper than executing one; returns its pid. None: the zygote can't,
    /// so the caller has to execute a step daemon.
    fn copy_daemon(&mut self, folder: &Path, cpus: &[usize], group: Option<&Path>) -> Option<u32> {
        self.with_zygote(|zygote| zygote.birth(folder, cpus, group))
    }

    /// Runs `work` on the zygote, starting one if needed. After an error (None) the next step gets a new zygote.
    pub(super) fn with_zygote(&mut self, work: impl FnOnce(&mut Zygote) -> io::Result<u32>) -> Option<u32> {
        let mut zygote = match self.zygote.take() {
            Some(zygote) => zygote,
            None => Zygote::start(&self.program).ok()?,
        };
        let pid = work(&mut zygote).ok()?;
        self.zygote = Some(zygote);
        Some(pid)
    }

    pub(super) fn tell(&mut self, key: StepKey, message: ToStepd) {
        if self.orphans.contains_key(&key) {
            return self.tell_orphan(key, &message);
        }
        if let Some(served) = self.served.get_mut(&key).filter(|served| served.is_supervised()) {
            served.ended |= matches!(message, ToStepd::End { .. });
            return self
                .supervisor
                .iter()
                .for_each(|supervisor| supervisor.tell(&ToSupervisor::Tell { key, message: message.clone() }));
        }
        if self.spool.is_unreadable(&key.to_string()) {
            // The path of its daemon's socket can't be read either.
            return self.tell_orphan(key, &message);
        }
        if matches!(message, ToStepd::End { .. }) && self.end_unborn(key) {
            return;
        }
        // If the connection has ended, the step daemon is about to end too. A daemon with a full queue is stuck.
        if let Some(Err(TrySendError::Full(_))) = self.line_to(key).map(|tells| tells.try_send(message)) {
            error!(step = %key, "the step's daemon takes no messages");
            self.kill_step(key);
        }
    }

    /// Ends a step if none of its tasks has recorded itself yet, as each does before it executes its program. None ever
    /// will then, whatever froze or delayed them. False: tasks may run, and their step daemon has to end them.
    fn end_unborn(&mut self, key: StepKey) -> bool {
        let spool = &self.spool;
        let begun = || !spool.tasks(key).is_empty() || !spool.exits(key).is_empty() || spool.result(key).is_some();
        if self.served.get(&key).and_then(Served::own_daemon).is_none() || spool.was_taken(key) && begun() {
            return false;
        }
        spool.spoil(key);
        self.clean.remove(&attempt_of(key));
        self.kill_daemons(&[key]);
        self.kill_members(key);
        let exit = ExitCode { code: 0, signal: libc::SIGTERM as u8 };
        let mut end = StepEnd { exit, started: self.now(), ended: self.now(), ..StepEnd::default() };
        end.note_told();
        if let Err(e) = self.spool.write_result(key, &FromStepd::Ended(end)) {
            error!(step = %key, error = %e, "the result of the step could not be noted");
        }
        true
    }

    /// Kills all processes that are in a step's group now.
    fn kill_members(&self, key: StepKey) {
        let is_member = |pid: u32| self.cgroups.members_of_step(key).contains(&pid);
        for pid in self.cgroups.members_of_step(key) {
            processes::kill_if(pid, is_member);
        }
    }

    /// Connects to a step daemon, if its processes communicate through the tree (`by_tree`), to receive its messages.
    fn attend(&mut self, key: StepKey, by_tree: bool) {
        if by_tree {
            self.line_to(key);
        }
    }

    /// Returns the queue of messages to a step's own step daemon, connecting first if needed. None: the step has no
    /// such daemon.
    fn line_to(&mut self, key: StepKey) -> Option<&Sender<ToStepd>> {
        let served = self.served.get_mut(&key).filter(|served| !served.is_supervised())?;
        let (spool, name, events) = (&self.spool, &self.name, &self.events);
        Some(served.tells.get_or_insert_with(|| {
            let (tells, queue) = channel(MESSAGES_MAX);
            if let Some(socket) = spool.socket(key) {
                tokio::task::spawn_local(talk((key, socket), name.clone(), queue, events.clone()));
            }
            tells
        }))
    }

    pub(super) fn kill_step(&mut self, key: StepKey) {
        warn!(step = %key, "the step did not end in its time: killing it");
        self.clean.remove(&attempt_of(key));
        self.spool.spoil(key);
        self.kill_daemons(&[key]);
        self.kill_orphan(key);
    }

    pub(super) fn forget(&mut self, key: StepKey) {
        self.folders.remove(&key);
        match self.spool.remove_step(key) {
            Ok(log) => log.lines().for_each(|line| warn!(step = %key, line, "the step's daemon logged")),
            Err(e) => error!(step = %key, error = %e, "the folder of the step could not be removed"),
        }
    }

    pub(super) fn forget_job(&mut self, job: JobAttempt) {
        self.clean.remove(&job);
        self.forget_hooks(job);
        self.forget_dumps(job);
        for key in self.steps_of(job) {
            self.forget(key);
        }
        if let Err(e) = self.spool.remove_job(job) {
            error!(job = %job.job, error = %e, "the mark of the job could not be removed");
        }
    }

    /// Returns the steps of a job that have a folder.
    pub(super) fn steps_of(&self, job: JobAttempt) -> Vec<StepKey> {
        let key = |step| StepKey { job: job.job, attempt: job.attempt, step };
        self.folders.range(key(StepNo(0))..=key(StepNo(u32::MAX))).copied().collect()
    }

    /// Returns the steps of a job that have a daemon or orphaned tasks.
    pub(super) fn busy_steps(&self, job: JobAttempt) -> Vec<StepKey> {
        let busy = |key: &StepKey| self.served.contains_key(key) || self.orphans.contains_key(key);
        self.steps_of(job).into_iter().filter(busy).collect()
    }

    /// Kills the step daemons of these steps. The batch supervisor serves other steps too, so it is told to kill these.
    pub(super) fn kill_daemons(&self, steps: &[StepKey]) {
        for (key, served) in steps.iter().filter_map(|key| Some((*key, self.served.get(key)?))) {
            // It may have ended by itself.
            let _ = match &served.by {
                By::Child(pid) => signals::kill(*pid, libc::SIGKILL),
                By::Watched(_, watched) => pidfd::signal(watched.as_fd(), libc::SIGKILL),
                By::BatchSupervisor => {
                    let message = ToStepd::End { kill_wait_s: 0, why: EndReason::None };
                    self.supervisor
                        .iter()
                        .for_each(|supervisor| supervisor.tell(&ToSupervisor::Tell { key, message: message.clone() }));
                    Ok(())
                }
            };
        }
    }
}

/// Functions that handle the ends of children and steps.
impl Daemon {
    /// Reaps all children that have ended.
    pub(super) fn reap(&mut self) {
        loop {
            match wait::reap() {
                Ok(Waited::Reaped(child)) => {
                    if let Some(key) = self.children.remove(&child.pid) {
                        self.daemon_died(key);
                        continue;
                    }
                    let (pid, exit) = (child.pid, child.exit);
                    if self.hook_died(pid, exit) || self.guard_died(pid) || self.checkpoint_died(pid, exit) {
                        continue;
                    }
                    self.reaped.push_back((child.pid, child.exit, child.usage));
                    if self.reaped.len() > REAPED_MAX {
                        self.reaped.pop_front();
                    }
                }
                Ok(Waited::Running | Waited::None) => return,
                Err(e) => return error!(error = %e, "cannot wait for children"),
            }
        }
    }

    /// Handles the end of a step daemon, by the result that it wrote or by the tasks that it left.
    pub(super) fn daemon_died(&mut self, key: StepKey) {
        let Some(served) = self.served.remove(&key) else { return };
        let input = match self.spool.result(key) {
            Some(FromStepd::Ended(end)) => NodeInput::Ended { key, end },
            Some(FromStepd::Failed { error, node_fault }) => NodeInput::Failed { key, error, node_fault },
            _ if !self.spool.was_taken(key) => {
                self.spool.spoil(key);
                stillborn(key)
            }
            _ => {
                self.spool.spoil(key);
                if let Some(error) = self.kill_half_restored(key) {
                    self.clean.remove(&attempt_of(key));
                    self.cgroups.close_step(key);
                    self.frequencies.release(key);
                    return self.inputs.push_back(NodeInput::Failed { key, error, node_fault: false });
                }
                // Of two daemons of the same step the second ends at once, and the first still runs.
                if self.watch(key, &processes::all()) {
                    return;
                }
                let group = served.is_supervised().then(|| self.cgroups.birthplace(key)).flatten();
                let Some(traces) = self.left_by(key, group.as_deref()) else {
                    self.cgroups.close_step(key);
                    self.frequencies.release(key);
                    return self.inputs.push_back(stillborn(key));
                };
                warn!(step = %key, "the step's daemon died: the node daemon follows its tasks");
                self.clean.remove(&attempt_of(key));
                self.inputs.push_back(NodeInput::Orphaned { key });
                return self.adopt(key, traces);
            }
        };
        self.cgroups.close_step(key);
        self.frequencies.release(key);
        self.inputs.push_back(input);
    }

    /// Returns what a dead step daemon recorded of its tasks. None: it had started nothing. `group`: as for
    /// `Traces::of`.
    fn left_by(&self, key: StepKey, group: Option<&Path>) -> Option<Traces> {
        let begun = self.spool.has_begun(key).then(|| Traces::of(&self.spool, key, group));
        begun.filter(|traces| !traces.is_blank())
    }
}

/// Returns the state machine's input for a step daemon that died before it started anything.
fn stillborn(key: StepKey) -> NodeInput {
    let error = "the step daemon died before it started anything".to_owned();
    NodeInput::Failed { key, error, node_fault: true }
}

/// Connects to a step daemon. Err: e.g. the listening process ran neither as root nor as this process's user.
fn connect(socket: &SocketAddr) -> io::Result<UnixStream> {
    let stream = StdStream::connect_addr(socket)?;
    let who = peer_of(&stream)?.uid;
    if who != 0 && who != rustix::process::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Sends messages to a step daemon, and receives its messages for others. Ends when it can't be reached any more, or
/// the step is forgotten.
async fn talk((key, socket): (StepKey, SocketAddr), name: String, mut queue: Receiver<ToStepd>, events: Sender<Event>) {
    let mut pause = PAUSE.0;
    let mut stream = loop {
        match connect(&socket) {
            Ok(stream) => break stream,
            Err(_) if queue.is_closed() => return,
            // It does not listen yet, or has ended; its end is noticed by its process.
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(PAUSE.1);
    };
    let (mut reader, mut writer) = stream.split();
    // Its reports of its own state are ignored: its process and its result file show all, also to a later incarnation.
    let Ok(Some(Hello { role: Role::Step, .. })) = read_greeting(&mut reader).await else { return };
    let listen = async {
        while let Ok(Some(said)) = link::read(&mut reader).await {
            let event = match said {
                FromStepd::Letter { to, message } => Event::Letter(key, to, message),
                FromStepd::Usage(usage, series) => Event::Used(key, Used { usage, series }),
                FromStepd::Ending => Event::Ending(key),
                _ => continue,
            };
            drop(events.send(event).await);
        }
    };
    let speak = async {
        if link::write(&mut writer, &Hello::new(Role::Node(name))).await.is_err() {
            return;
        }
        while let Some(message) = queue.recv().await {
            if link::write(&mut writer, &message).await.is_err() {
                // Messages that it sent before its end are still to be received.
                return std::future::pending().await;
            }
        }
    };
    tokio::select! {
        () = listen => {}
        () = speak => {}
    }
}
