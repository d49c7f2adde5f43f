//! The process with the plugins: one that watches, and one that loads them and calls their hooks.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use squall_model::config::Release;
use squall_model::encoding::ByteBuf;
use squall_model::id::StepNo;
use squall_model::job::ExitCode;
use squall_text::format::words::show_release;

use super::conf::Line;
use super::stack::{Stack, crash, lines};
use super::task::{Making, Stage};
use super::voice::{Voice, send, speak_to, tell};
use super::words::{Change, Context, FromPlugins, Given, Items, Order, TaskOrder, ToPlugins};
use crate::messages::receive;
use crate::sys::identity::Identity;
use crate::sys::offspring::{Born, bear, leave};
use crate::sys::pidfd;
use crate::sys::signals::SignalFd;
use crate::sys::spank::{self, Hook, Progress, Task, as_user, die_with_parent, session, unset, value};

/// Time that plugins have to end after the other side has closed the link.
const GRACE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// File with the number by which the kernel chooses what to kill when memory is short.
const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// Signals of a step, which are not for its plugins.
const PASSED_OVER: [i32; 6] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// Carries out `squall step --plugins`, with the link as standard input; returns the exit status.
pub fn serve() -> i32 {
    // Plugins call them.
    std::hint::black_box(spank::functions());
    let stdin = io::stdin();
    let Ok(link) = rustix::io::fcntl_dupfd_cloexec(stdin.as_fd(), 3) else { return 1 };
    let mut link = UnixStream::from(link);
    if fs::read(OOM_SCORE).is_ok_and(|score| score.starts_with(b"-")) {
        // The step daemon is spared when memory is short; its tasks, which are copies of this process, are not.
        drop(fs::write(OOM_SCORE, "0"));
    }
    let null = File::open("/dev/null").and_then(|null| Ok(rustix::stdio::dup2_stdin(null)?));
    let (Ok(()), Ok(_signals), Ok(progress)) = (null, SignalFd::new(&PASSED_OVER), Progress::new()) else { return 1 };
    let Ok(Some(ToPlugins::Begin(order))) = receive(&mut link) else { return 1 };
    let lines = match lines(&order.file) {
        Ok(lines) => lines,
        Err(why) => return i32::from(send(&mut link, &FromPlugins::Refused(why)).is_err()),
    };
    let mut skipped = Vec::new();
    loop {
        progress.note(None);
        match bear(None) {
            Ok((Born::Copy, _)) => {
                die_with_parent(true);
                Worker::new(*order, lines, link, progress).run(&skipped);
                leave(0)
            }
            Ok((Born::Original, pid)) => {
                let ended = watch(pid, &link);
                let (Some(ended), Some(at)) = (ended, progress.read()) else { return 0 };
                let (required, text) = crash(&lines, at, ended.signal);
                if required || hook_is_late(at.1) || skipped.contains(&at.0) {
                    return i32::from(send(&mut link, &FromPlugins::Refused(text)).is_err());
                }
                if send(&mut link, &FromPlugins::Said(format!("error: {text}"))).is_err() {
                    return 1;
                }
                skipped.push(at.0);
            }
            Err(_) => return 1,
        }
    }
}

/// Whether tasks may run when this hook is called, so that the plugins can't begin again.
fn hook_is_late(hook: Hook) -> bool {
    !matches!(hook, Hook::Init | Hook::InitPostOpt | Hook::UserInit | Hook::LocalUserInit)
}

/// Waits for the end of the process with the plugins; returns how it ended. None: the other side has closed the link
/// before. Then the process has some time to end.
fn watch(pid: u32, link: &UnixStream) -> Option<ExitCode> {
    let process = pidfd::open(pid).ok()?;
    let mut patience = None;
    loop {
        let mut fds = vec![PollFd::new(&process, PollFlags::IN)];
        if patience.is_none() {
            fds.push(PollFd::new(link, PollFlags::RDHUP));
        }
        let ready = poll(&mut fds, patience.as_ref());
        let ended = !fds[0].revents().is_empty();
        if ended {
            let exit = pidfd::reap(process.as_fd(), true).ok().flatten();
            return exit.filter(|_| patience.is_none());
        }
        match ready {
            // It has not ended in time.
            Ok(0) => {
                let _ = pidfd::signal(process.as_fd(), libc::SIGKILL);
                patience = Some(GRACE);
            }
            Ok(_) => patience = Some(GRACE),
            Err(_) => {}
        }
    }
}

/// Receives the files that come with one byte behind a task's order.
fn receive_files(link: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(link, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    Ok(files.flatten().collect())
}

/// Returns texts for C.
pub(super) fn texts(all: &[ByteBuf]) -> Vec<CString> {
    all.iter().filter_map(|text| CString::new(text.as_ref()).ok()).collect()
}

/// The process that has loaded the plugins.
struct Worker {
    order: Order,
    lines: Vec<Line>,
    link: UnixStream,
    progress: Progress,
    /// Tasks that are being made, by rank.
    making: BTreeMap<u32, Making>,
}

impl Worker {
    fn new(order: Order, lines: Vec<Line>, link: UnixStream, progress: Progress) -> Self {
        Self { order, lines, link, progress, making: BTreeMap::new() }
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.order.timeout_s.max(1))
    }

    /// The user of the job.
    fn identity(&self) -> Identity {
        let items = self.order.items.clone().unwrap_or_default();
        Identity { uid: items.uid, gid: items.gid, groups: items.groups }
    }

    fn run(mut self, skipped: &[usize]) {
        match self.link.try_clone() {
            Ok(link) => speak_to(Voice::Link(link)),
            Err(_) => return,
        }
        let mut stack = None;
        match self.begin(skipped, &mut stack) {
            Ok(message) if send(&mut self.link, &message).is_ok() => {}
            Ok(_) => return,
            Err(why) => {
                if let Some(stack) = stack {
                    // The step does not begin, whatever it says.
                    drop(stack.run(Hook::Exit));
                }
                drop(send(&mut self.link, &FromPlugins::Refused(why)));
                return;
            }
        }
        let Some(stack) = stack else { return };
        self.serve(&stack);
        for making in self.making.values() {
            making.kill();
        }
        session().task = None;
        if let Err(why) = stack.run(Hook::Exit) {
            tell(&format!("error: {why}"));
        }
    }

    /// Loads the plugins and calls the first hooks; returns the first message.
    fn begin(&self, skipped: &[usize], loaded: &mut Option<Stack>) -> Result<FromPlugins, String> {
        show_release(Release::parse(&self.order.release).unwrap_or_default());
        {
            let mut session = session();
            session.context = self.order.context;
            session.items.clone_from(&self.order.items);
            session.env = texts(&self.order.env);
            session.argv = texts(&self.order.argv);
        }
        let before = session().env.clone();
        let stack = loaded.insert(Stack::load(&self.lines, skipped, (self.progress, self.limit()))?);
        if self.order.context != Context::Remote {
            return Ok(FromPlugins::Offers(Stack::offers()));
        }
        stack.give_from_environment()?;
        stack.run(Hook::InitPostOpt)?;
        let is_step = self.order.items.as_ref().is_some_and(|items| StepNo::is_srun_number(items.step));
        for change in stack.variables().iter().filter(|_| is_step) {
            // Steps within a batch script have the script's options; tasks of a step don't see them.
            unset(&mut session().env, &change.name);
        }
        let dir = OsStr::from_bytes(&self.order.dir);
        let done = as_user(&self.identity(), || {
            // The user's folder may be gone.
            drop(std::env::set_current_dir(dir));
            stack.run(Hook::UserInit)
        });
        drop(std::env::set_current_dir("/"));
        done.map_err(|e| format!("spank: the process of the plugins can't become the user: {e}"))??;
        Ok(FromPlugins::Ready(changes(&before, &session().env), Vec::new()))
    }

    /// Serves until the other side says that all is over.
    fn serve(&mut self, stack: &Stack) {
        loop {
            let speaking = self.making.iter().filter_map(|(rank, making)| Some((*rank, making.fd()?)));
            let (ranks, fds): (Vec<u32>, Vec<BorrowedFd<'_>>) = speaking.unzip();
            let fds = std::iter::once(self.link.as_fd()).chain(fds);
            let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            if poll(&mut fds, None).is_err() {
                continue;
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            let ranks = ranks.into_iter().zip(&ready[1..]).filter(|(_, ready)| **ready);
            let ranks: Vec<u32> = ranks.map(|(rank, _)| rank).collect();
            for rank in ranks {
                self.hear_task(rank, stack);
            }
            if !ready[0] {
                continue;
            }
            match receive::<ToPlugins>(&mut self.link) {
                Ok(Some(ToPlugins::Over) | None) | Err(_) => return,
                Ok(Some(message)) => {
                    if !self.hear(message, stack) {
                        return;
                    }
                }
            }
        }
    }

    /// Carries out a message; returns whether the link is in order.
    fn hear(&mut self, message: ToPlugins, stack: &Stack) -> bool {
        match message {
            ToPlugins::Given(given) => {
                let answer = beside_command(stack, &given);
                send(&mut self.link, &answer).is_ok()
            }
            ToPlugins::Job(items) => {
                let answer = with_job(stack, *items);
                send(&mut self.link, &answer).is_ok()
            }
            ToPlugins::Task(order) => match receive_files(&self.link) {
                Ok(files) => self.make(*order, files, stack),
                Err(_) => false,
            },
            ToPlugins::Go(rank) => {
                if let Some(making) = self.making.remove(&rank) {
                    making.go();
                }
                true
            }
            ToPlugins::Exited(rank, status) => {
                ended(rank, status, stack);
                true
            }
            ToPlugins::Begin(_) | ToPlugins::Over => true,
        }
    }

    fn make(&mut self, order: TaskOrder, files: Vec<OwnedFd>, stack: &Stack) -> bool {
        let rank = order.rank;
        match Making::begin(order, files, (stack, &self.lines), self.identity()) {
            Ok(making) => {
                self.making.insert(rank, making);
                true
            }
            Err(e) => {
                let text = format!("spank: the task can't be made: {e}");
                send(&mut self.link, &FromPlugins::Unborn(rank, text)).is_ok()
            }
        }
    }

    /// Goes on with a task that is being made.
    fn hear_task(&mut self, rank: u32, stack: &Stack) {
        let Some(making) = self.making.get_mut(&rank) else { return };
        let message = match making.hear() {
            Stage::Same => return,
            Stage::Privileged { local, pid } => {
                session().task = Some(Task { local, rank, pid, status: None });
                session().started.retain(|(_, _, known)| *known != rank);
                session().started.push((pid, local, rank));
                let done = stack.run(Hook::TaskPostFork);
                session().task = None;
                match done {
                    Ok(()) => return making.go_on(),
                    Err(why) => {
                        making.kill();
                        FromPlugins::Unborn(rank, why)
                    }
                }
            }
            Stage::Ready { pid } => FromPlugins::Born(rank, pid),
            Stage::Failed(why) => FromPlugins::Unborn(rank, why),
        };
        if matches!(message, FromPlugins::Unborn(..)) {
            self.making.remove(&rank);
        }
        // A broken link is noticed when it is read.
        drop(send(&mut self.link, &message));
    }
}

/// Calls the hook of a task's end.
fn ended(rank: u32, status: i32, stack: &Stack) {
    let known = session().started.iter().copied().find(|(_, _, known)| *known == rank);
    let Some((pid, local, _)) = known else { return };
    session().task = Some(Task { local, rank, pid, status: Some(status) });
    if let Err(why) = stack.run(Hook::TaskExit) {
        tell(&format!("error: {why}"));
    }
    session().task = None;
}

/// Hands over the options given to a command.
fn beside_command(stack: &Stack, given: &[Given]) -> FromPlugins {
    let environment = || -> Vec<CString> {
        let entry = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
        };
        std::env::vars_os().filter_map(entry).collect()
    };
    // What a plugin changes in the environment of its process is meant for the command's.
    let before = environment();
    let done = stack.give(given).and_then(|()| stack.run(Hook::InitPostOpt));
    match done {
        Ok(()) => {
            let mut all = changes(&before, &environment());
            let options = stack.variables();
            all.extend(options.iter().cloned());
            let control = std::mem::take(&mut session().control);
            FromPlugins::Ready(all, [changes(&[], &control), options].concat())
        }
        Err(why) => FromPlugins::Refused(why),
    }
}

/// Calls the hook of `srun` when it has its job.
fn with_job(stack: &Stack, items: Items) -> FromPlugins {
    session().items = Some(items);
    match stack.run(Hook::LocalUserInit) {
        Ok(()) => FromPlugins::Ready(Vec::new(), Vec::new()),
        Err(why) => FromPlugins::Refused(why),
    }
}

/// Returns what has become of an environment.
fn changes(before: &[CString], after: &[CString]) -> Vec<Change> {
    let name = |entry: &CString| entry.as_bytes().split(|b| *b == b'=').next().unwrap_or_default().to_vec();
    let new = after.iter().filter(|entry| !before.contains(entry));
    let set = new.map(|entry| {
        let name = name(entry);
        let value = entry.as_bytes().get(name.len() + 1..).unwrap_or_default().to_vec();
        Change { name: name.into(), value: Some(value.into()) }
    });
    let gone = before.iter().map(name).filter(|name| value(after, name).is_none());
    set.chain(gone.map(|name| Change { name: name.into(), value: None })).collect()
}
