//! A session: one step from its request to its end, with controller, step daemons, the user's streams and signals.

mod controller;
mod end;
mod inside;
mod signals;
mod tasks;
mod verbose;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFlags, Timespec};
use squall_host::poller::{Interest, Poller};
use squall_host::sys::signals::SignalFd;
use squall_model::id::{JobId, StepNo};
use squall_model::job::{ExitCode, Outcome};
use squall_model::set::IndexSet;
use squall_model::step::{FromStep, Layout, ToStep};
use squall_model::wire::client::Request;

use crate::command::srun::Ended;
use crate::command::srun::again::Again;
use crate::command::srun::background::Parting;
use crate::command::srun::exits::Exits;
use crate::command::srun::input::Input;
use crate::command::srun::link::{Listener, Room, StepConnection};
use crate::command::srun::output::Output;
use crate::command::srun::prepare::StreamRoutes;
use crate::command::srun::terminal::Raw;
use crate::command::srun::x11::{Screen, XClient};
use crate::contact::Search;
use squall_client::Client;
use squall_text::format::harmless_lines;
use squall_text::options::Stop;

/// Time that a step may wait for free cores before a message about the wait is printed.
const HELD_UP: Duration = Duration::from_secs(1);
/// Time between two interrupts within which the second one ends the step, and a third one ends srun.
const TWICE: Duration = Duration::from_secs(1);
/// Time from the interrupt that ends the step to KILL, in which tasks may handle the interrupt.
const GRACE: Duration = Duration::from_millis(500);
/// Time that srun waits, after the third interrupt, for the controller to acknowledge the cancellation of the step.
const TELLING: Duration = Duration::from_secs(1);
/// Seconds that srun waits for the step's end in addition to KillWait.
const WAIT_S: u64 = 2;

/// Options of the user that affect the session itself.
#[derive(Debug, Default)]
pub(crate) struct Manners {
    /// `--quiet`: messages are not printed.
    pub(crate) quiet: bool,
    /// `--verbose`: how often it was given.
    pub(crate) verbose: u8,
    /// The value of `--cpu-bind`, as `--verbose` shows it.
    pub(crate) cpu_bind: String,
    /// `--slurmd-debug`: verbosity of messages about each step daemon.
    pub(crate) slurmd_debug: u32,
    /// `--kill-on-bad-exit`: whether the first task that fails ends the step. None: the controller has not said yet what
    /// the cluster wants.
    pub(crate) kill_on_bad_exit: Option<bool>,
    /// `--oom-kill-step`: the first task that runs out of memory ends the step.
    pub(crate) oom_kill_step: bool,
    /// `--wait`: time that the other tasks may run after the first one has ended; zero: no limit. None: as with
    /// `kill_on_bad_exit`.
    pub(crate) wait: Option<Duration>,
    /// `--disable-status`: the first interrupt is forwarded to the tasks at once, instead of printing their states.
    pub(crate) disable_status: bool,
    /// `--quit-on-interrupt`: a single interrupt ends the step.
    pub(crate) quit_on_interrupt: bool,
    /// `--immediate`: time to wait for free cores; None: no limit.
    pub(crate) immediate: Option<Duration>,
    /// The user's terminal in raw mode, if task 0 has a terminal of its own (`--pty`). None: it has none. Changes of
    /// size are forwarded.
    pub(crate) terminal: Option<Raw>,
    /// The user's display, for X clients of the tasks (`--x11`). None: they don't reach it.
    pub(crate) screen: Option<Screen>,
    /// `--restarts`: the step may start again, so the controller's word on its end is awaited.
    pub(crate) restarts: bool,
    /// `--restart-only-lost`: how tasks of failed nodes are started again. None: they are not.
    pub(crate) again: Option<Again>,
    /// `--async`: srun goes on in the background once the step exists. None: it does not, or it has done so.
    pub(crate) parting: Option<Parting>,
}

/// State of the step that exists once the controller has created it.
#[derive(Debug)]
struct CreatedStep {
    step: StepNo,
    layout: Layout,
    kill_wait_s: u64,
    output: Output,
    input: Input,
}

/// The source of an event in a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Signals,
    Controller,
    Returned,
    Calls,
    FarCalls,
    Input,
    Link(usize),
    Screen(XClient),
}

/// State of one srun: its step, its connections, and what srun has been told about the step.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    job: JobId,
    /// Whether the allocation was requested by this srun.
    owner: bool,
    request: Request,
    prepared: StreamRoutes,
    manners: Manners,
    signals: &'a SignalFd,
    listener: Listener,
    client: Option<Client>,
    /// Attempt in progress to reconnect to the controller. None: srun is connected, or the attempt has ended.
    search: Option<Search>,
    /// When srun connects to the controller again after it has parted from it for a checkpoint. None: it has not.
    rejoin_at: Option<Instant>,
    /// Names of the sockets of the processes within the job that serve the step, by the indexes of their nodes. Empty: the
    /// nodes serve it.
    inner: BTreeMap<u32, String>,
    /// Whether the attempt to reconnect to the controller has failed.
    lost: bool,
    asked: Instant,
    held_up: bool,
    created: Option<CreatedStep>,
    /// Frames of step daemons that arrived before the controller's answer, each with the index of the sending node.
    early: Vec<(u32, FromStep)>,
    links: Vec<StepConnection>,
    /// Frames that wait to be relayed to step daemons, each with the index of the receiving node.
    passing: Vec<(u32, ToStep)>,
    running: IndexSet,
    /// Process ids of tasks by rank, for `--slurmd-debug`.
    pids: BTreeMap<u32, u32>,
    ended: IndexSet,
    failed: IndexSet,
    exits: Exits,
    done: Option<(Instant, Outcome)>,
    interrupted: Option<Instant>,
    kill_at: Option<Instant>,
    wait_until: Option<Instant>,
    forced: bool,
    /// Whether the controller ends the step, though this srun has not asked for it.
    revoked: bool,
    /// Whether an interrupt has ended the step already, so that the next one ends srun.
    aborting: bool,
    /// Nodes on which a task has called MPI_Init.
    spoke: IndexSet,
    /// Nodes on which a task has called MPI_Init and not all tasks have called MPI_Finalize since.
    within: IndexSet,
    /// Nodes for which the link was lost before the step daemon's final frame.
    lost_nodes: IndexSet,
    /// Names of nodes on which the step has ended with the node or its daemons.
    failed_nodes: Vec<String>,
    /// Sruns that have started tasks of failed nodes again.
    children: Vec<Child>,
    /// With `--restart-only-lost`, ranks that were killed, which counts unless their node turns out to have failed.
    killed: Vec<(u32, ExitCode)>,
    /// Exit code of an aborted step: a task has called MPI_Abort, or srun ended the step because of a failure. None: it
    /// was not aborted.
    aborted: Option<u8>,
    /// Whether nothing reads the tasks' output any more. The tasks are then killed, which is not reported as an error.
    unread: bool,
    idle: bool,
    poller: Poller<Source>,
    room: Room,
}

impl<'a> Session<'a> {
    /// Prepares a session. `request` is a `CreateStep` with the listener's address.
    pub(crate) fn new(
        job: JobId,
        owner: bool,
        request: Request,
        prepared: StreamRoutes,
        manners: Manners,
        listener: Listener,
        signals: &'a SignalFd,
    ) -> Self {
        let first = prepared.among.unwrap_or_default().tasks_before;
        Self {
            job,
            owner,
            request,
            prepared,
            manners,
            signals,
            listener,
            client: None,
            search: None,
            rejoin_at: None,
            inner: BTreeMap::new(),
            lost: false,
            asked: Instant::now(),
            held_up: false,
            created: None,
            early: Vec::new(),
            links: Vec::new(),
            passing: Vec::new(),
            running: IndexSet::new(),
            pids: BTreeMap::new(),
            ended: IndexSet::new(),
            failed: IndexSet::new(),
            exits: Exits::new(first),
            done: None,
            interrupted: None,
            kill_at: None,
            wait_until: None,
            forced: false,
            revoked: false,
            aborting: false,
            spoke: IndexSet::new(),
            within: IndexSet::new(),
            lost_nodes: IndexSet::new(),
            failed_nodes: Vec::new(),
            children: Vec::new(),
            killed: Vec::new(),
            aborted: None,
            unread: false,
            idle: false,
            poller: Poller::default(),
            room: Room::default(),
        }
    }

    /// Runs the step; `asked`: it was requested on this connection already.
    pub(crate) fn run(mut self, mut client: Client, asked: bool) -> Ended {
        match if asked { Ok(()) } else { client.send(&self.request) } {
            Ok(()) => self.client = Some(client),
            Err(_) => self.look_for_controller(),
        }
        loop {
            let Some(mut result) = self.turn().transpose() else { continue };
            let children = std::mem::take(&mut self.children);
            if let (Ok((status, _)), false) = (&mut result, children.is_empty()) {
                *status = Again::wait_for(children, self.signals).max(*status);
            }
            let given_up = self.interrupted.is_some() || self.aborting || self.forced;
            let lost = if given_up { Vec::new() } else { self.failed().into_iter().collect() };
            return Ended { result, client: self.client, lost };
        }
    }

    /// Returns the names of the step's nodes that have failed, or of which the step daemon has.
    fn failed(&self) -> BTreeSet<String> {
        let names = self.created.as_ref().map(|created| created.layout.nodes.names()).unwrap_or_default();
        let cut_off = self.lost_nodes.iter().filter_map(|node| names.get(node as usize).cloned());
        self.failed_nodes.iter().cloned().chain(cut_off).collect()
    }

    fn say(&self, text: &str) {
        if !self.manners.quiet {
            eprintln!("srun: {}", harmless_lines(text));
        }
    }

    /// Returns the step's name in messages: `StepId=5.0`.
    fn name(&self) -> String {
        let step = self.created.as_ref().map_or(StepNo(0), |created| created.step);
        format!("StepId={}.{step}", self.job)
    }

    fn turn(&mut self) -> Result<Option<(u8, ExitCode)>, Stop> {
        let now = Instant::now();
        let timeout = self.timeout(now);
        let limit = timeout.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: i64::from(t.subsec_nanos()) });
        let mut poller = std::mem::take(&mut self.poller);
        let ready = poller.wait(&self.interests(now), limit.as_ref());
        self.poller = poller;
        self.idle = ready.is_empty();
        let now = Instant::now();
        for source in ready {
            self.dispatch(source, now)?;
        }
        self.links.retain(|link| !link.is_dismissed());
        self.timers(now)?;
        Ok(self.finished(now))
    }

    /// Returns the descriptors to poll, each with the source it belongs to and the events to wait for.
    fn interests(&self, now: Instant) -> Vec<Interest<'_, Source>> {
        let reading = |source, fd| Interest::new(source, fd, Some(PollFlags::IN));
        let mut interests = Vec::with_capacity(8 + self.links.len());
        interests.push(reading(Source::Signals, self.signals.as_fd()));
        interests.push(reading(Source::Calls, self.listener.as_fd()));
        interests.extend(self.listener.far().map(|far| reading(Source::FarCalls, far.as_fd())));
        interests.extend(self.client.iter().map(|client| reading(Source::Controller, client.stream().as_fd())));
        interests.extend(self.search.iter().map(|search| reading(Source::Returned, search.as_fd())));
        interests.extend(self.created.iter().map(|created| {
            let wanted = created.input.is_due(now) && self.wants_input();
            Interest::new(Source::Input, created.input.source(), wanted.then_some(PollFlags::IN))
        }));
        interests.extend(self.links.iter().enumerate().map(|(at, link)| {
            let out = if link.has_unsent() { PollFlags::OUT } else { PollFlags::empty() };
            Interest::new(Source::Link(at), link.as_fd(), link.is_open().then_some(PollFlags::IN | out))
        }));
        let has_room = |node| self.links.iter().any(|link| link.node() == Some(node) && !link.is_full());
        let screen = self.manners.screen.iter().flat_map(|screen| screen.interests(has_room));
        interests.extend(screen.map(|interest| interest.with(Source::Screen(interest.key))));
        interests
    }

    /// Returns whether input should be read: all nodes are connected, and none has too much input queued.
    fn wants_input(&self) -> bool {
        let Some(created) = &self.created else { return false };
        let here = self.links.iter().filter(|link| link.node().is_some()).count();
        here >= created.layout.nodes.len()
            && self.links.iter().any(StepConnection::is_open)
            && !self.links.iter().any(StepConnection::is_full)
    }

    fn timeout(&self, now: Instant) -> Option<Duration> {
        let waits = self.created.is_none() && (!self.held_up || self.manners.immediate.is_some());
        let held = waits.then(|| self.asked + self.manners.immediate.unwrap_or(HELD_UP).max(HELD_UP));
        let ending = self.done.as_ref().map(|_| now + Duration::from_millis(10));
        let created = self.created.as_ref();
        let deadlines = [
            held,
            ending,
            self.exits.deadline(),
            created.and_then(|c| c.output.deadline()),
            created.and_then(|c| c.input.deadline()),
            self.kill_at,
            self.wait_until,
            self.rejoin_at,
        ];
        deadlines.into_iter().flatten().min().map(|at| at.saturating_duration_since(now))
    }

    fn dispatch(&mut self, source: Source, now: Instant) -> Result<(), Stop> {
        match source {
            Source::Signals => {
                while let Some(signal) = self.signals.take() {
                    self.signal(signal, now)?;
                }
            }
            Source::Calls | Source::FarCalls => {
                while let Some(link) = self.listener.accept() {
                    self.links.push(link);
                }
            }
            Source::Controller => return self.hear_controller(now),
            Source::Returned => return self.controller_returned(),
            Source::Input => self.pass_input(now),
            Source::Screen(who) => {
                let said = self.manners.screen.as_mut().and_then(|screen| screen.handle(who));
                self.tell_client(who.0, said);
            }
            Source::Link(at) => {
                let mut frames = Vec::new();
                let Some(link) = self.links.get_mut(at) else { return Ok(()) };
                link.flush();
                link.read(self.listener.cookie(), &mut self.room, &mut frames);
                let (node, lost) = (link.node(), !link.is_open() && !link.done);
                for frame in frames {
                    match frame {
                        FromStep::Birth(birth) => self.bear(at, &birth),
                        frame => self.hear_step(node.unwrap_or(0), frame, now),
                    }
                }
                self.pass_on();
                if let Some(node) = node.filter(|_| lost) {
                    self.step_daemon_lost(node);
                }
            }
        }
        Ok(())
    }
}
