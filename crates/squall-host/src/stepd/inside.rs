//! Steps of which the tasks descend from their `srun`, so that a checkpoint of the job's script contains them.
//!
//! The node's step daemon, outside of the job's group, has no tasks then. It has the `srun` start this program again
//! (`squall step --inside`), which serves the step as any step daemon does, but has no folder and was never root. The
//! outer one passes messages between it and the node daemon, and writes its result into the step's folder.
//!
//! On the other nodes of a job with several, the script's part is played by a keeper (`super::keeper`), which starts the inner
//! step daemon there. All inner step daemons are connected with the `srun` and with each other by TCP: these connections are
//! within the job, and come along.
//!
//! Before a checkpoint, the process that makes it sends SIGURG to the `srun` and to the inner step daemon. These close
//! their connections to the controller and to the outer step daemon. Both are made again [`APART`] later: by the `srun`, and
//! by the outer step daemon. After a restore, the `srun` tells the controller that it has the step; the node starts an outer
//! step daemon for it, which finds the inner one by the name that `srun` knows.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFlags, Timespec};
use squall_engine::node::attempt_of;
use squall_model::codec;
use squall_model::encoding::ByteBuf;
use squall_model::job::ExitCode;
use squall_model::report::StepEnd;
use squall_model::step::{Birth, ClientAddress, FromStep, Program, StepLaunch, ToStep};
use squall_model::time::Time;
use squall_model::wire::node::EndReason;
use squall_model::wire::stepd::{FromStepd, ToStepd};
use squall_model::wire::{Hello, Role};
use tracing::{error, warn};

use super::daemon::Daemon;
use super::folder::Folder;
use super::frames::{Filled, Frames};
use super::keeper::Keeper;
use super::node_link::NodeLinks;
use super::srun;
use super::wireup::shared_folder_of;
use crate::cgroup::StepGroups;
use crate::descendants::descendants;
use crate::pipe::Pipe;
use crate::poller::{Interest, Poller};
use crate::processes::{self, inner_pid};
use crate::removal::remove;
use crate::sys::clock::steady;
use crate::sys::offspring::{bind, bound, leave};
use crate::sys::peer::peer_of;
use crate::sys::pidfd::{self, set_child_subreaper};
use crate::sys::signals::SignalFd;

/// For how long links are not made again that were closed for a checkpoint. The job must have been frozen by then.
pub const APART: Duration = Duration::from_secs(3);
/// Time in which the inner step daemon must listen.
const BORN: Duration = Duration::from_secs(10);
/// Pause between two attempts to connect to it at its start.
const LOOK: Duration = Duration::from_millis(1);
/// Time that the last messages have to be sent before the outer step daemon leaves.
const FAREWELL: Duration = Duration::from_secs(5);
/// Most messages that wait for the inner step daemon while it is not connected.
const WAITING_MAX: usize = 64;

/// Serves the step of `squall step --inside` to its end; returns the daemon's exit status. Standard input has a line with the
/// name of the abstract socket on which it listens for the outer step daemon, and a [`Birth`]. Other users don't see either.
pub fn run_inside() -> i32 {
    let ready = || {
        let (mut name, mut bytes) = (String::new(), Vec::new());
        let mut stdin = io::stdin().lock();
        stdin.read_line(&mut name)?;
        stdin.read_to_end(&mut bytes)?;
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        let birth = codec::take::<Birth>(&bytes).map_err(io::Error::other)?.ok_or(io::ErrorKind::UnexpectedEof)?.0;
        // Signals to the script's group of processes are for srun.
        rustix::process::setsid()?;
        std::env::set_current_dir("/")?;
        set_child_subreaper()?;
        let cpus: Vec<usize> = birth.cpus.iter().map(|cpu| *cpu as usize).collect();
        if !cpus.is_empty() {
            bind(&cpus)?;
        }
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name.trim_end())?)?;
        listener.set_nonblocking(true)?;
        let signals = [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGURG];
        let folder =
            Folder::inside(PathBuf::from(std::ffi::OsString::from_vec(birth.folder.into_vec())), birth.launch)?;
        Ok::<_, io::Error>((folder, SignalFd::new(&signals)?, listener))
    };
    let (folder, signals, listener) = match ready() {
        Ok(ready) => ready,
        Err(e) => {
            error!(error = %e, "the step can't be served");
            return 1;
        }
    };
    if let Program::Tasks(program) = &folder.launch.program {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(program.umask & 0o777));
    }
    let uid = rustix::process::getuid().as_raw();
    Daemon::new(folder, signals, NodeLinks::new(listener, uid), StepGroups::default(), (false, None)).inside().run(None)
}

/// The outer step daemon.
#[derive(Debug)]
pub(super) struct Outer {
    folder: Folder,
    signals: SignalFd,
    nodes: NodeLinks,
    /// Name of the inner one's socket.
    name: String,
    inner: Inner,
    link: Option<Link>,
    /// When a lost link is made again.
    again: Instant,
    /// Messages for the inner one, which wait for a link.
    waiting: VecDeque<ToStepd>,
    /// When it was started.
    began: Time,
    /// Tasks that the step's folder knows.
    noted: BTreeSet<u32>,
    tasks: Vec<(u32, u32)>,
    /// The step's result. None: it has not ended.
    last: Option<FromStepd>,
}

/// The process of the inner step daemon.
#[derive(Debug)]
struct Inner {
    pid: u32,
    /// Readable when the process has ended.
    process: OwnedFd,
}

/// The connection to the inner step daemon.
#[derive(Debug)]
struct Link {
    frames: Frames,
    greeted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Signal,
    Caller,
    Node(usize),
    Inner,
    InnerDied,
}

/// Serves the step of a folder from outside of its job, to its end. `keeper`: of the job on this node.
pub(super) fn serve(folder: Folder, keeper: io::Result<Option<Keeper>>, signals: SignalFd, nodes: NodeLinks) -> ! {
    let status = match keeper.and_then(|keeper| Outer::begin(&folder, keeper)) {
        Ok((name, inner, link)) => {
            let (waiting, noted, tasks) = (VecDeque::new(), BTreeSet::new(), Vec::new());
            let (link, again, began, last) = (Some(link), Instant::now(), steady(), None);
            Outer { folder, signals, nodes, name, inner, link, again, waiting, began, noted, tasks, last }.run()
        }
        Err(e) => {
            let error = format!("srun can't start the step's tasks: {e}");
            drop(folder.write_result(&FromStepd::Failed { error, node_fault: false }));
            0
        }
    };
    leave(status)
}

impl Outer {
    /// Has the `srun` or the keeper start the inner step daemon, unless there is one, and connects to that.
    fn begin(folder: &Folder, keeper: Option<Keeper>) -> io::Result<(String, Inner, Link)> {
        let launch = &folder.launch;
        let Program::Tasks(program) = &launch.program else { return Err(io::ErrorKind::InvalidInput.into()) };
        let mut birth = Birth {
            launch: launch.clone(),
            cpus: bound()?,
            folder: ByteBuf::from(folder.path.clone().into_os_string().into_vec()),
            cookie: program.cookie,
        };
        let first = FromStep::Birth(Box::new(birth.clone()));
        let link = srun::introduce(&program.client, program.cookie, launch.facts.owner.uid, &first)?;
        let near = |link: &Frames| keeper.is_some() || !link.is_remote();
        let mut link = link.filter(near).ok_or_else(|| io::Error::other("it is not on this node"))?;
        let ToStep::Inside(name) = srun::await_frame(&mut link)? else {
            return Err(io::Error::other("it does not serve steps itself"));
        };
        if name.is_empty() {
            return Err(io::Error::other("it can't start a process"));
        }
        folder.note_begun()?;
        // Sockets of Unix between two nodes' parts of a job can't be restored, should both be on one machine.
        if let (Program::Tasks(program), true) = (&mut birth.launch.program, keeper.is_some())
            && let ClientAddress::Anywhere { address, .. } = &program.client
        {
            program.client = ClientAddress::Tcp(address.clone());
        }
        let (until, mut unborn) = (Instant::now() + BORN, keeper);
        loop {
            match connect(&name, launch) {
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused && Instant::now() < until => {
                    match unborn.as_ref().map_or(Ok(()), |keeper| keeper.bear(&name, &birth)) {
                        Ok(()) => unborn = None,
                        // It is just being started.
                        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                        Err(e) => return Err(e),
                    }
                    std::thread::sleep(LOOK);
                }
                Err(e) => return Err(e),
                Ok((link, inner)) => return Ok((name, inner, link)),
            }
        }
    }

    fn run(mut self) -> i32 {
        let mut poller = Poller::default();
        let mut until = None;
        loop {
            if self.last.is_some() {
                let leaves = *until.get_or_insert(Instant::now() + FAREWELL);
                if self.nodes.is_flushed() || Instant::now() >= leaves {
                    // A node daemon that has just connected gets the result from us; later ones read the file.
                    self.nodes.accept(&self.news());
                    return 0;
                }
            }
            let late = until.or_else(|| self.link.is_none().then_some(self.again));
            let wait = late.map(|at| at.saturating_duration_since(Instant::now()) + LOOK);
            let wait = wait.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: i64::from(t.subsec_nanos()) });
            let events = poller.wait(&self.interests(), wait.as_ref());
            for event in events {
                self.handle(event);
            }
            self.nodes.sweep();
            if self.link.is_none() && self.last.is_none() && Instant::now() >= self.again {
                self.rejoin();
            }
        }
    }

    fn interests(&self) -> Vec<Interest<'_, Event>> {
        let reading = |event, fd| Interest::new(event, fd, Some(PollFlags::IN));
        let mut interests = vec![reading(Event::Signal, self.signals.as_fd())];
        interests.push(reading(Event::Caller, self.nodes.listener()));
        let nodes = self.nodes.frames().enumerate();
        interests.extend(nodes.map(|(at, link)| link.interest(true).with(Event::Node(at))));
        interests.extend(self.link.iter().map(|link| link.frames.interest(true).with(Event::Inner)));
        if self.link.is_none() && self.last.is_none() {
            interests.push(reading(Event::InnerDied, self.inner.process.as_fd()));
        }
        interests
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Signal => {
                while self.signals.take().is_some() {
                    let kill_wait_s = self.folder.launch.kill_wait_s;
                    self.pass(ToStepd::End { kill_wait_s, why: EndReason::None });
                }
            }
            Event::Caller => {
                let news = self.news();
                self.nodes.accept(&news);
            }
            Event::Node(at) => {
                self.nodes.flush(at);
                for message in self.nodes.read(at) {
                    self.pass(message);
                }
            }
            Event::Inner => self.hear(),
            Event::InnerDied => self.inner_died(),
        }
    }

    /// Ends the step, of which the inner step daemon was killed.
    fn inner_died(&mut self) {
        if let (Some(steps), Some(own)) = (self.folder.path.parent(), self.folder.path.file_name()) {
            let left = processes::marked(steps).into_iter().filter(|(_, name)| OsStr::new(name) == own);
            for (pid, _) in left {
                processes::kill_if(pid, |pid| processes::mark(pid).as_deref() == Some(&self.folder.path));
            }
        }
        // Before the step has ended: a job that is restored here puts it back.
        if let Some(shared) = shared_folder_of(&self.folder.launch) {
            drop(remove(&shared));
        }
        let exit = ExitCode { code: 0, signal: libc::SIGKILL as u8 };
        let end = StepEnd { exit, started: self.began, ended: steady(), ..StepEnd::default() };
        self.heard(FromStepd::Ended(end));
    }

    fn news(&self) -> Vec<FromStepd> {
        let hello = FromStepd::Hello { key: self.folder.launch.key, tasks: self.tasks.clone() };
        std::iter::once(hello).chain(self.last.clone()).collect()
    }

    /// Passes a message of a node daemon on.
    fn pass(&mut self, message: ToStepd) {
        match &mut self.link {
            Some(link) => link.frames.send(&message),
            None if self.waiting.len() < WAITING_MAX => self.waiting.push_back(message),
            None => warn!("a message to a step that stands still is dropped"),
        }
    }

    fn hear(&mut self) {
        let Some(mut link) = self.link.take() else { return };
        link.frames.flush();
        let open = link.frames.fill() == Filled::Open;
        loop {
            if !link.greeted {
                match link.frames.take::<Hello>() {
                    Ok(Some(_)) => link.greeted = true,
                    Ok(None) => break,
                    Err(_) => return self.part(),
                }
                continue;
            }
            match link.frames.take::<FromStepd>() {
                Ok(Some(said)) => self.heard(said),
                Ok(None) => break,
                Err(e) => {
                    error!(error = %e, "the inner step daemon can't be understood");
                    return self.part();
                }
            }
        }
        if open { self.link = Some(link) } else { self.part() }
    }

    fn part(&mut self) {
        self.again = Instant::now() + APART;
    }

    fn heard(&mut self, said: FromStepd) {
        match said {
            FromStepd::Hello { tasks, .. } | FromStepd::Started { tasks } => {
                // The inner daemon is a process of the user. If this one dies, the node daemon signals the noted processes.
                let (launch, user) = (&self.folder.launch, self.folder.launch.facts.owner.uid);
                let ranks = launch.ranks();
                let own = |(rank, pid): &(u32, u32)| ranks.contains(rank) && processes::belongs_to(*pid, user);
                self.tasks = outer_pids(self.inner.pid, tasks).into_iter().filter(own).collect();
                for (rank, pid) in self.tasks.clone() {
                    if self.noted.insert(rank)
                        && let Err(e) = self.folder.note_made(rank, pid)
                    {
                        error!(error = %e, "the task can't be noted");
                    }
                }
            }
            FromStepd::Failed { .. } | FromStepd::Ended(_) => {
                let said = on_its_own(said);
                if let Err(e) = self.folder.write_result(&said) {
                    error!(error = %e, "cannot write the result");
                }
                self.nodes.tell(&said);
                self.last = Some(said);
            }
            FromStepd::Usage(..) | FromStepd::Ending => self.nodes.tell(&said),
            // The step daemons of such a step have connections of their own.
            FromStepd::Letter { .. } => {}
        }
    }

    fn rejoin(&mut self) {
        match connect(&self.name, &self.folder.launch) {
            Ok((mut link, inner)) => {
                for message in std::mem::take(&mut self.waiting) {
                    link.frames.send(&message);
                }
                (self.link, self.inner) = (Some(link), inner);
            }
            Err(e) => {
                warn!(job = %attempt_of(self.folder.launch.key).job, error = %e, "the inner step daemon does not answer");
                self.part();
            }
        }
    }
}

/// Returns a result without what only the node can know: the inner step daemon is a process of the user.
fn on_its_own(said: FromStepd) -> FromStepd {
    match said {
        FromStepd::Failed { error, .. } => FromStepd::Failed { error, node_fault: false },
        FromStepd::Ended(end) => {
            let note = end.note.clone().filter(|_| !end.is_fenced() && end.damage().is_none());
            FromStepd::Ended(StepEnd { lost: false, note, ..end })
        }
        other => other,
    }
}

/// Returns tasks with the process ids that they have here. `inner`: the process that has told those which it sees, which are
/// others after a restore; the tasks descend from it.
fn outer_pids(inner: u32, tasks: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    if inner_pid(inner).is_none() {
        return tasks;
    }
    let outer: HashMap<u32, u32> =
        descendants(inner).into_iter().filter_map(|pid| Some((inner_pid(pid)?, pid))).collect();
    tasks.into_iter().filter_map(|(rank, pid)| Some((rank, *outer.get(&pid)?))).collect()
}

/// Connects to the inner step daemon, which must run as the job's user; returns the link, and its process with its id.
fn connect(name: &str, launch: &StepLaunch) -> io::Result<(Link, Inner)> {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    let peer = peer_of(&stream)?;
    if peer.uid != launch.facts.owner.uid {
        return Err(io::Error::other(format!("user {} listens in its place", peer.uid)));
    }
    let pid = peer.pid.ok_or(io::ErrorKind::NotFound)?;
    let inner = Inner { pid, process: pidfd::open(pid)? };
    let mut frames = Frames::over(Pipe::local(stream)?);
    frames.send(&Hello::new(Role::Node(launch.node.clone())));
    Ok((Link { frames, greeted: false }, inner))
}

#[cfg(test)]
mod tests {
    use squall_model::report::StepEnd;
    use squall_model::wire::stepd::FromStepd;

    use super::on_its_own;

    #[test]
    fn a_users_process_says_nothing_about_the_node() {
        let failed = FromStepd::Failed { error: "no".into(), node_fault: true };
        assert_eq!(on_its_own(failed), FromStepd::Failed { error: "no".into(), node_fault: false });
        let lost = StepEnd { lost: true, note: Some("killed".into()), ..StepEnd::default() };
        let FromStepd::Ended(end) = on_its_own(FromStepd::Ended(lost)) else { panic!("it has ended") };
        assert!(!end.lost && end.note.as_deref() == Some("killed"));
    }
}
