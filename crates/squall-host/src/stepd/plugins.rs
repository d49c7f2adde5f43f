//! The step daemon's side of the process with the SPANK plugins (`crate::plugins`), which it starts while it is root.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg};
use squall_engine::step::StepInput;
use squall_model::codec;
use squall_model::encoding::ByteBuf;
use squall_model::set::CoreSet;
use squall_model::step::{Program, StepLaunch};

use super::environment::Environment;
use super::folder::Folder;
use super::frames::{Filled, Frames};
use super::prepare::{Prepared, Ready};
use super::scripts::Epilog;
use crate::plugins::words::{Change, Context, FromPlugins, Items, Order, TaskOrder, ToPlugins};
use crate::poller::Interest;
use crate::sys::spawn::{Session, Spawn};

/// Time that the other process has to take a message.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// Time that plugins have for their last hook.
const LAST: Duration = Duration::from_secs(30);
/// Exit code of a task or step that a plugin has refused.
pub(super) const REFUSED: u8 = 1;

/// The process with the plugins.
#[derive(Debug)]
pub(super) struct Plugins {
    link: UnixStream,
    frames: Frames,
    /// Tasks that were ordered and have not started, with what is needed then.
    ordered: BTreeMap<u32, Option<Epilog>>,
    /// Whether the hooks before tasks have run.
    pub(super) ready: bool,
    /// Latest end, once all is over. None: it is not.
    pub(super) until: Option<Instant>,
    /// Whether the link is of no use any more.
    broken: bool,
}

/// What the plugins say.
#[derive(Debug)]
pub(super) enum Heard {
    /// The step may begin, with these changes of its environment.
    Ready(Vec<Change>),
    /// The step does not begin, or does not go on.
    Refused(String),
    /// A text for the user.
    Said(String),
    /// A task was started: rank, process id, and what runs after it.
    Born(u32, u32, Option<Epilog>),
    /// An input of the state machine.
    Failed(StepInput),
    /// The process has ended. Inputs for tasks that it has not started.
    Ended(Vec<StepInput>),
}

impl Plugins {
    /// Starts the process, if the step has plugins.
    pub(super) fn start(launch: &StepLaunch) -> io::Result<Option<Self>> {
        if launch.plugins.is_none() || matches!(launch.program, Program::Timer { .. }) {
            return Ok(None);
        }
        let (link, other) = UnixStream::pair()?;
        let program = std::env::current_exe()?.into_os_string().into_vec();
        // After an upgrade, the new file has the same path.
        let program = CString::new(program.strip_suffix(b" (deleted)").unwrap_or(&program))?;
        let argv = [c"squall".to_owned(), c"step".to_owned(), c"--plugins".to_owned()];
        let (log, null) = (rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3)?, File::open("/dev/null")?);
        let env = [CString::new(format!("PATH={}", super::environment::DEFAULT_PATH))?];
        let stdio = [other.as_fd(), null.as_fd(), log.as_fd()];
        let spawn = Spawn { env: &env, dir: Some(c"/"), session: Session::New, ..Spawn::new(&program, &argv, stdio) };
        spawn.start().map_err(|e| e.error)?;
        let frames = Frames::new(link.try_clone()?)?;
        Ok(Some(Self { link, frames, ordered: BTreeMap::new(), ready: false, until: None, broken: false }))
    }

    /// Has the plugins begin.
    pub(super) fn begin(&mut self, folder: &Folder) {
        let launch = &folder.launch;
        let given = launch.plugins.clone().unwrap_or_default();
        let (env, dir, argv) = match &launch.program {
            Program::Tasks(program) => {
                let argv = program.commands.first().map(|(_, argv)| argv.clone()).unwrap_or_default();
                (&program.env[..], program.work_dir.clone(), argv)
            }
            Program::Batch | Program::Timer { .. } => {
                let spec = &launch.facts.spec;
                let script = folder.script().into_os_string().into_vec();
                let args = spec.args.iter().map(|arg| ByteBuf::from(arg.clone().into_bytes()));
                let argv = std::iter::once(ByteBuf::from(script)).chain(args).collect();
                (&folder.environment[..], ByteBuf::from(spec.work_dir.clone().into_bytes()), argv)
            }
        };
        let env = Environment::parse(env).for_step(launch, &folder.path.to_string_lossy());
        self.tell(&ToPlugins::Begin(Box::new(Order {
            context: Context::Remote,
            file: given.path,
            timeout_s: given.timeout_s,
            items: Some(items(launch)),
            env: env.entries().iter().map(|entry| ByteBuf::from(entry.to_bytes().to_vec())).collect(),
            argv,
            dir,
            release: given.release,
        })));
    }

    /// Orders the tasks; those that can't be ordered are returned as failed.
    pub(super) fn order(&mut self, ready: &mut Ready, folder: &Folder) -> Vec<StepInput> {
        let mut failed = Vec::new();
        let umask = match &folder.launch.program {
            Program::Tasks(program) => program.umask,
            Program::Batch | Program::Timer { .. } => folder.launch.facts.spec.umask,
        };
        for (local, mut task) in std::mem::take(&mut ready.tasks).into_iter().enumerate() {
            let (rank, epilog) = (task.rank, task.epilog.take());
            match task_order(&task, local as u32, ready, umask) {
                Ok(order) => {
                    self.tell(&ToPlugins::Task(Box::new(order)));
                    self.hand_over(&task);
                    self.ordered.insert(rank, epilog);
                }
                Err(input) => failed.push(input),
            }
        }
        failed
    }

    /// Sends the files of a task, with one byte.
    fn hand_over(&mut self, task: &Prepared) {
        let files = task.stdio.iter().map(AsFd::as_fd).chain(task.further.as_ref().map(AsFd::as_fd));
        let files: Vec<BorrowedFd<'_>> = files.collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        loop {
            match sendmsg(&self.link, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL) {
                Ok(_) => return,
                Err(Errno::AGAIN) if self.wait_for_room() => {}
                Err(Errno::INTR) => {}
                Err(_) => return self.broken = true,
            }
        }
    }

    fn wait_for_room(&self) -> bool {
        poll(&mut [PollFd::new(&self.link, PollFlags::OUT)], Some(&PATIENCE)).is_ok_and(|count| count > 0)
    }

    fn tell(&mut self, message: &ToPlugins) {
        let mut bytes = Vec::new();
        // A message that can't be encoded breaks the link, as what follows would have no sense.
        self.broken |= codec::encode(message, &mut bytes).is_err();
        let mut rest = &bytes[..];
        while !rest.is_empty() && !self.broken {
            match send(&self.link, rest, SendFlags::NOSIGNAL) {
                Ok(count) => rest = &rest[count..],
                Err(Errno::AGAIN) if self.wait_for_room() => {}
                Err(Errno::INTR) => {}
                Err(_) => self.broken = true,
            }
        }
    }

    /// Whether all tasks that were ordered have started.
    pub(super) fn has_made_all(&self) -> bool {
        self.ordered.is_empty()
    }

    /// Lets a task execute its program.
    pub(super) fn go(&mut self, rank: u32) {
        self.tell(&ToPlugins::Go(rank));
    }

    /// Tells the end of a task.
    pub(super) fn ended(&mut self, rank: u32, exit: squall_model::job::ExitCode) {
        self.tell(&ToPlugins::Exited(rank, i32::from(exit.code) << 8 | i32::from(exit.signal)));
    }

    /// Says that all is over: the process calls the last hook and ends.
    pub(super) fn over(&mut self) {
        if self.until.is_none() {
            self.until = Some(Instant::now() + LAST);
            self.tell(&ToPlugins::Over);
        }
    }

    /// Whether the process was to have ended by now.
    pub(super) fn is_late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Returns what to wait for.
    pub(super) fn interest(&self) -> Interest<'_, ()> {
        self.frames.interest(true)
    }

    /// Hears what the process says.
    pub(super) fn hear(&mut self) -> Vec<Heard> {
        let closed = self.frames.fill() == Filled::Closed;
        let mut heard = Vec::new();
        loop {
            match self.frames.take::<FromPlugins>() {
                Ok(Some(message)) => heard.extend(self.understand(message)),
                Ok(None) => break,
                Err(_) => {
                    self.broken = true;
                    break;
                }
            }
        }
        if closed || self.broken {
            let error = "the process of the SPANK plugins has ended";
            let failed = std::mem::take(&mut self.ordered).into_keys().map(|rank| failed(rank, error.to_owned()));
            heard.push(Heard::Ended(failed.collect()));
        }
        heard
    }

    fn understand(&mut self, message: FromPlugins) -> Option<Heard> {
        Some(match message {
            FromPlugins::Ready(changes, _) => {
                self.ready = true;
                Heard::Ready(changes)
            }
            FromPlugins::Refused(why) => Heard::Refused(why),
            FromPlugins::Said(text) => Heard::Said(text),
            FromPlugins::Born(rank, pid) => Heard::Born(rank, pid, self.ordered.remove(&rank)?),
            FromPlugins::Unborn(rank, why) => {
                self.ordered.remove(&rank)?;
                Heard::Failed(failed(rank, why))
            }
            FromPlugins::Offers(_) => return None,
        })
    }
}

fn failed(rank: u32, error: String) -> StepInput {
    StepInput::SpawnFailed { rank, code: REFUSED, error }
}

/// Changes the environment of prepared tasks as plugins have said.
pub(super) fn apply(changes: &[Change], ready: &mut Ready) {
    for task in &mut ready.tasks {
        for change in changes {
            task.env.change(&change.name, change.value.as_ref().map(|value| &value[..]));
        }
    }
}

fn task_order(task: &Prepared, local: u32, ready: &Ready, umask: u32) -> Result<TaskOrder, StepInput> {
    let bytes = |text: &CString| ByteBuf::from(text.to_bytes().to_vec());
    let name = task.argv.first().map(|name| name.to_bytes()).unwrap_or_default();
    // A hook may change where the program is.
    let by_name = !name.is_empty() && !name.contains(&b'/');
    let program = match &task.program {
        Ok(file) if by_name && file.to_bytes().ends_with(&[b"/", name].concat()) => None,
        Ok(file) => Some(bytes(file)),
        Err(_) if by_name => None,
        Err(why) => {
            return Err(StepInput::SpawnFailed { rank: task.rank, code: why.code, error: why.error.clone() });
        }
    };
    Ok(TaskOrder {
        rank: task.rank,
        local,
        program,
        argv: task.argv.iter().map(bytes).collect(),
        env: task.env.entries().iter().map(bytes).collect(),
        terminal: task.session == Session::Terminal,
        cpus: task.cpus.iter().map(|cpu| *cpu as u32).collect(),
        rlimits: ready.rlimits.clone(),
        umask,
        dir: bytes(&ready.dir),
        further: task.further.is_some(),
    })
}

fn items(launch: &StepLaunch) -> Items {
    let (facts, owner) = (&launch.facts, &launch.facts.owner);
    let list = |cores: &CoreSet| {
        let cores: Vec<String> = cores.iter().map(|core| core.to_string()).collect();
        cores.join(",")
    };
    let place = launch.job_node_index as usize;
    Items {
        uid: owner.uid,
        gid: owner.gid,
        groups: owner.groups.clone(),
        job: facts.key.job.0,
        step: launch.key.step.slurm_number(),
        nodes: launch.layout.nodes.len() as u32,
        node: launch.node_index,
        ranks: launch.ranks(),
        tasks: launch.layout.ntasks(),
        cpus: launch.cores.len() as u32,
        cpus_per_task: launch.layout.cpus_per_task.max(1),
        job_cores: list(&launch.cores),
        job_memory_mb: facts.memory_mb.get(place).copied().unwrap_or(0),
        step_cores: list(&launch.cores),
        step_memory_mb: launch.memory_mb,
        restarts: facts.restarts,
        array: facts.array.map_or(0, |task| task.array.0),
        array_task: facts.array.map_or(0, |task| task.index),
    }
}
