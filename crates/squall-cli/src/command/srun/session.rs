//! One step from its request to its end: the controller, the step daemons, the user's streams and signals at once.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use squall_host::sys::signals::SignalFd;
use squall_model::id::{JobId, StepNo};
use squall_model::job::{ExitCode, Outcome};
use squall_model::set::IndexSet;
use squall_model::step::{FromStep, Layout, ToStep};
use squall_model::wire::client::{Answer, JobRef, JobSelection, Request};

use super::exits::Exits;
use super::input::{Chunk, Input};
use super::link::{Link, Listener};
use super::output::Output;
use super::prepare::Prepared;
use super::terminal::{Raw, size};
use crate::client::Client;
use crate::command::allocation::ready;
use crate::contact::{Patience, Search, may_pass};
use crate::options::Stop;
use crate::refusal;

/// A step that gets its cores within this time was not worth a word on waiting.
const HELD_UP: Duration = Duration::from_secs(1);
/// After the step's end is known, its nodes may take so long to deliver what they still have.
const STRAGGLERS: Duration = Duration::from_secs(2);
/// A second interrupt within this time ends the step.
const TWICE: Duration = Duration::from_secs(1);
/// Between the interrupt that ends the step and KILL.
const GRACE: Duration = Duration::from_secs(1);

/// What the user chose about the session itself.
#[derive(Debug, Default)]
pub(crate) struct Manners {
    /// `--quiet`.
    pub(crate) quiet: bool,
    /// `--kill-on-bad-exit`.
    pub(crate) kill_on_bad_exit: bool,
    /// `--wait`; zero: for ever.
    pub(crate) wait: Duration,
    /// `--disable-status`.
    pub(crate) disable_status: bool,
    /// `--quit-on-interrupt`.
    pub(crate) quit_on_interrupt: bool,
    /// `--immediate`: how long cores may be waited for.
    pub(crate) immediate: Option<Duration>,
    /// The user's terminal, while task 0 has one of its own: its size is passed on.
    pub(crate) terminal: Option<Raw>,
}

/// The step, once it has cores.
#[derive(Debug)]
struct Created {
    step: StepNo,
    layout: Layout,
    output: Output,
    input: Input,
}

/// What a poll is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Signals,
    Controller,
    Returned,
    Calls,
    Input,
    Link(usize),
}

/// A step and everything around it.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    job: JobId,
    /// The allocation belongs to this srun.
    owner: bool,
    request: Request,
    prepared: Prepared,
    manners: Manners,
    signals: &'a SignalFd,
    listener: Listener,
    client: Option<Client>,
    /// A connection that is being looked for.
    search: Option<Search>,
    /// The controller could not be reached again.
    lost: bool,
    asked: Instant,
    held_up: bool,
    created: Option<Created>,
    links: Vec<Link>,
    running: IndexSet,
    ended: IndexSet,
    failed: IndexSet,
    exits: Exits,
    done: Option<(Instant, Outcome)>,
    interrupted: Option<Instant>,
    kill_at: Option<Instant>,
    wait_until: Option<Instant>,
    forced: bool,
    idle: bool,
}

impl<'a> Session<'a> {
    /// Prepares to ask for a step. `request` is a `CreateStep` for the listener's address.
    pub(crate) fn new(
        job: JobId,
        owner: bool,
        request: Request,
        prepared: Prepared,
        manners: Manners,
        listener: Listener,
        signals: &'a SignalFd,
    ) -> Self {
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
            lost: false,
            asked: Instant::now(),
            held_up: false,
            created: None,
            links: Vec::new(),
            running: IndexSet::new(),
            ended: IndexSet::new(),
            failed: IndexSet::new(),
            exits: Exits::default(),
            done: None,
            interrupted: None,
            kill_at: None,
            wait_until: None,
            forced: false,
            idle: false,
        }
    }

    /// Runs the step. On an error the connection is given back with it.
    pub(crate) fn run(mut self, mut client: Client) -> (Result<(u8, ExitCode), Stop>, Option<Client>) {
        match client.send(&self.request) {
            Ok(()) => self.client = Some(client),
            Err(_) => self.look_for_controller(),
        }
        loop {
            let result = self.turn();
            match result {
                Ok(None) => {}
                Ok(Some(end)) => return (Ok(end), self.client),
                Err(stop) => return (Err(stop), self.client),
            }
        }
    }

    fn say(&self, text: &str) {
        if !self.manners.quiet {
            eprintln!("srun: {text}");
        }
    }

    /// `StepId=5.0`.
    fn name(&self) -> String {
        let step = self.created.as_ref().map_or(StepNo(0), |created| created.step);
        format!("StepId={}.{step}", self.job)
    }

    fn turn(&mut self) -> Result<Option<(u8, ExitCode)>, Stop> {
        let now = Instant::now();
        let (sources, timeout) = (self.sources(now), self.timeout(now));
        let fds: Vec<_> = sources.iter().map(|(source, flags)| (self.fd(*source, now), *flags)).collect();
        let ready = ready(&fds, timeout);
        self.idle = !ready.contains(&true);
        let now = Instant::now();
        for ((source, _), _) in sources.into_iter().zip(ready).filter(|(_, ready)| *ready) {
            self.dispatch(source, now)?;
        }
        self.timers(now)?;
        Ok(self.finished(now))
    }

    /// What to poll for.
    fn sources(&self, now: Instant) -> Vec<(Source, PollFlags)> {
        let mut sources = vec![(Source::Signals, PollFlags::IN), (Source::Calls, PollFlags::IN)];
        if self.client.is_some() {
            sources.push((Source::Controller, PollFlags::IN));
        }
        if self.search.is_some() {
            sources.push((Source::Returned, PollFlags::IN));
        }
        if self.wants_input() && self.input(now).is_some() {
            sources.push((Source::Input, PollFlags::IN));
        }
        for (at, link) in self.links.iter().enumerate().filter(|(_, link)| link.is_open()) {
            let out = if link.has_unsent() { PollFlags::OUT } else { PollFlags::empty() };
            sources.push((Source::Link(at), PollFlags::IN | out));
        }
        sources
    }

    fn fd(&self, source: Source, now: Instant) -> BorrowedFd<'_> {
        let fd = match source {
            Source::Signals => Some(self.signals.as_fd()),
            Source::Calls => Some(self.listener.as_fd()),
            Source::Controller => self.client.as_ref().map(|client| client.stream().as_fd()),
            Source::Returned => self.search.as_ref().map(AsFd::as_fd),
            Source::Input => self.input(now),
            Source::Link(at) => self.links.get(at).map(AsFd::as_fd),
        };
        // Only sources that exist were listed.
        fd.unwrap_or_else(|| self.signals.as_fd())
    }

    fn input(&self, now: Instant) -> Option<BorrowedFd<'_>> {
        self.created.as_ref().and_then(|created| created.input.source(now))
    }

    /// Input is read when every node is there to get it and none is far behind.
    fn wants_input(&self) -> bool {
        let Some(created) = &self.created else { return false };
        let here = self.links.iter().filter(|link| link.node().is_some()).count();
        here >= created.layout.nodes.len()
            && self.links.iter().any(Link::is_open)
            && !self.links.iter().any(Link::is_full)
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
            Source::Calls => {
                while let Some(link) = self.listener.accept() {
                    self.links.push(link);
                }
            }
            Source::Controller => return self.hear_controller(now),
            Source::Returned => return self.controller_returned(),
            Source::Input => self.pass_input(now),
            Source::Link(at) => {
                let mut frames = Vec::new();
                let Some(link) = self.links.get_mut(at) else { return Ok(()) };
                link.flush();
                link.read(self.listener.cookie(), &mut frames);
                let node = link.node();
                for frame in frames {
                    self.hear_step(node.unwrap_or(0), frame, now);
                }
            }
        }
        Ok(())
    }

    fn hear_controller(&mut self, now: Instant) -> Result<(), Stop> {
        let Some(client) = &mut self.client else { return Ok(()) };
        match client.receive() {
            Ok(Answer::StepCreated { step, layout, facts, .. }) if self.created.is_none() => {
                if self.held_up {
                    self.say(&format!("Step created for job {}", self.job));
                }
                let (output, input) = self.prepared.open(&facts, step, &layout)?;
                self.created = Some(Created { step, layout: *layout, output, input });
            }
            Ok(Answer::StepDone { outcome, .. }) => self.done = Some((now, outcome)),
            Ok(_) => {}
            Err(error) if may_pass(&error) => {
                self.client = None;
                self.look_for_controller();
            }
            Err(error) if self.created.is_some() => {
                // The allocation is gone. What the step daemons still have to say is heard to the end.
                let outcome = Outcome {
                    state: squall_model::job::EndState::Failed,
                    exit: ExitCode { code: 0, signal: 9 },
                    reason: Some(refusal::error_text(&error)),
                };
                self.done.get_or_insert((now, outcome));
            }
            Err(error) => {
                let what = format!("Unable to create step for job {}", self.job);
                return Err(Stop::Bad { lines: refusal::lines(&what, &error), exit: 1 });
            }
        }
        Ok(())
    }

    /// Looks for the controller without holding up the tasks' output.
    fn look_for_controller(&mut self) {
        match Search::begin("srun") {
            Ok(search) => self.search = Some(search),
            Err(_) => self.lost = true,
        }
    }

    fn controller_returned(&mut self) -> Result<(), Stop> {
        let Some(search) = self.search.take() else { return Ok(()) };
        let mut client = match search.found() {
            Ok(client) => client,
            Err(error) if self.created.is_none() => {
                let what = format!("Unable to create step for job {}", self.job);
                return Err(Stop::Bad { lines: refusal::lines(&what, &error), exit: 1 });
            }
            Err(_) => {
                self.lost = true;
                return Ok(());
            }
        };
        let job = self.job;
        let attached = if self.owner { client.send(&Request::Attach { job }) } else { Ok(()) };
        match attached.and_then(|()| client.send(&self.request)) {
            Ok(()) => self.client = Some(client),
            Err(_) => self.look_for_controller(),
        }
        Ok(())
    }

    fn hear_step(&mut self, node: u32, frame: FromStep, now: Instant) {
        match frame {
            FromStep::Started(tasks) => {
                for (rank, _) in tasks {
                    self.running.insert(rank);
                }
            }
            FromStep::Failed { rank, code, error } => {
                let name = self.created.as_ref().and_then(|c| c.layout.nodes.get(node as usize));
                eprintln!("slurmstepd-{}: error: {error}", name.map_or("?", String::as_str));
                self.task_ended(rank, ExitCode { code, signal: 0 }, false, now);
            }
            FromStep::Output { rank, stderr, bytes } => {
                let Some(created) = &mut self.created else { return };
                if created.output.take(now, rank, stderr, &bytes).is_err() {
                    // Nobody reads it: the tasks need not go on.
                    self.force("forcing job termination");
                    self.signal_tasks(libc::SIGKILL);
                }
            }
            FromStep::Exited { rank, exit, oom } => self.task_ended(rank, exit, oom, now),
            FromStep::Notice(text) => eprintln!("slurmstepd: {text}"),
            FromStep::Hello { .. } | FromStep::Done => {}
        }
    }

    fn task_ended(&mut self, rank: u32, exit: ExitCode, oom: bool, now: Instant) {
        let first_bad = self.failed.is_empty() && !exit.is_ok();
        self.running.remove(rank);
        if exit.is_ok() { &mut self.ended } else { &mut self.failed }.insert(rank);
        self.exits.add(now, rank, exit, oom);
        let last = self.created.as_ref().is_some_and(|c| self.all_ended(&c.layout));
        if last {
            self.wait_until = None;
            return;
        }
        if first_bad && self.manners.kill_on_bad_exit && !self.forced {
            self.tell_exits(now, true);
            self.force(&format!("Terminating {}", self.name()));
            self.cancel();
        } else if !self.manners.wait.is_zero() && self.wait_until.is_none() {
            self.wait_until = Some(now + self.manners.wait);
        }
    }

    fn all_ended(&self, layout: &Layout) -> bool {
        (self.ended.len() + self.failed.len()) as u32 >= layout.ntasks()
    }

    fn pass_input(&mut self, now: Instant) {
        let Some(created) = &mut self.created else { return };
        let bytes = match created.input.read(now) {
            Chunk::Bytes(bytes) => bytes,
            Chunk::End => Vec::new(),
            Chunk::Nothing => return,
        };
        let rank = created.input.rank();
        let node = rank.and_then(|rank| created.layout.ranks.iter().position(|ranks| ranks.contains(&rank)));
        let message = ToStep::Input { rank, bytes: bytes.into() };
        for link in self.links.iter_mut().filter(|link| node.is_none_or(|node| link.node() == Some(node as u32))) {
            link.send(&message);
        }
    }

    fn signal_tasks(&mut self, signal: i32) {
        for link in &mut self.links {
            link.send(&ToStep::Signal(signal));
        }
    }

    /// The step is ended by this srun: said once, and not an error of its tasks any more.
    fn force(&mut self, text: &str) {
        if !std::mem::replace(&mut self.forced, true) {
            self.say(text);
        }
    }

    /// Has the controller end the step: TERM, later KILL, on every node.
    fn cancel(&self) {
        let Some(created) = &self.created else { return };
        let jobs = JobSelection { ids: vec![JobRef::Job(self.job)], ..JobSelection::default() };
        let request = Request::Cancel { jobs, signal: None, step: Some(created.step), verbose: false };
        std::thread::spawn(move || {
            // If it can't be told, the step daemons still end what they can see themselves.
            drop(Patience::new("srun").ask(&request));
        });
    }

    fn signal(&mut self, signal: i32, now: Instant) -> Result<(), Stop> {
        if self.created.is_none() && [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM].contains(&signal) {
            self.say(&format!("Cancelled pending step for job {}", self.job));
            return Err(Stop::Silent(1));
        }
        match signal {
            libc::SIGINT => self.interrupt(now),
            libc::SIGHUP | libc::SIGQUIT | libc::SIGTERM => {
                if signal == libc::SIGQUIT {
                    self.say("Quit");
                }
                self.force("forcing job termination");
                self.signal_tasks(signal);
                self.cancel();
            }
            libc::SIGCONT => self.say("got SIGCONT"),
            libc::SIGWINCH if self.manners.terminal.is_some() => {
                let (rows, columns) = size();
                for link in &mut self.links {
                    link.send(&ToStep::Resize(rows, columns));
                }
            }
            libc::SIGWINCH | libc::SIGTTIN | libc::SIGTTOU => {}
            other => self.signal_tasks(other),
        }
        Ok(())
    }

    fn interrupt(&mut self, now: Instant) {
        let again = self.interrupted.is_some_and(|last| now.duration_since(last) < TWICE);
        if again || self.manners.quit_on_interrupt {
            self.say(&format!("sending Ctrl-C to {}", self.name()));
            self.signal_tasks(libc::SIGINT);
            self.force("forcing job termination");
            self.kill_at = Some(now + GRACE);
        } else if self.manners.disable_status {
            self.say(&format!("sending Ctrl-C to {}", self.name()));
            self.signal_tasks(libc::SIGINT);
        } else if !self.forced {
            self.say("interrupt (one more within 1 sec to abort)");
            self.status();
        }
        self.interrupted = Some(now);
    }

    /// What the tasks are doing, one line for each state.
    fn status(&self) {
        let Some(created) = &self.created else { return };
        let all = IndexSet::range(0, created.layout.ntasks().saturating_sub(1));
        let unknown = all.difference(&self.running).difference(&self.ended).difference(&self.failed);
        for (ranks, state) in [
            (&self.running, "running"),
            (&self.failed, "exited abnormally"),
            (&self.ended, "exited"),
            (&unknown, "unknown"),
        ] {
            if !ranks.is_empty() {
                let s = if ranks.len() == 1 { "" } else { "s" };
                self.say(&format!("{} task{s} {ranks}: {state}", self.name()));
            }
        }
    }

    fn timers(&mut self, now: Instant) -> Result<(), Stop> {
        self.tell_exits(now, false);
        if let Some(created) = &mut self.created {
            // Who reads the output is gone: seen again, and dealt with, at the next whole line.
            drop(created.output.flush(now, false));
        } else {
            self.pending(now)?;
        }
        if self.kill_at.is_some_and(|at| now >= at) {
            self.kill_at = None;
            self.signal_tasks(libc::SIGKILL);
            self.cancel();
        }
        if self.wait_until.is_some_and(|at| now >= at) {
            self.wait_until = None;
            self.say(&format!("First task exited {}s ago", self.manners.wait.as_secs()));
            self.status();
            self.force(&format!("Terminating {}", self.name()));
            self.cancel();
        }
        Ok(())
    }

    /// The step waits for cores.
    fn pending(&mut self, now: Instant) -> Result<(), Stop> {
        let waited = now.duration_since(self.asked);
        let busy = "Requested nodes are busy";
        if self.manners.immediate.is_some_and(|limit| waited >= limit) {
            return Err(Stop::bad(format!("Unable to create step for job {}: {busy}", self.job)));
        }
        if waited >= HELD_UP && !self.held_up && self.client.is_some() {
            self.held_up = true;
            self.say(&format!("Job {} step creation temporarily disabled, retrying ({busy})", self.job));
        }
        Ok(())
    }

    fn tell_exits(&mut self, now: Instant, end: bool) {
        let Some(created) = &self.created else { return };
        for message in self.exits.messages(now, end, &created.layout) {
            eprintln!("srun: error: {message}");
        }
    }

    /// Whether all is over, and how.
    fn finished(&mut self, now: Instant) -> Option<(u8, ExitCode)> {
        let open = self.links.iter().any(Link::is_open);
        let over = match (&self.done, &self.created) {
            (Some((since, _)), _) => (self.idle && !open) || now.duration_since(*since) > STRAGGLERS,
            // Nobody can tell any more, but the tasks' own ends are known.
            (None, Some(created)) => self.lost && !open && self.all_ended(&created.layout),
            (None, None) => false,
        };
        if !over {
            return None;
        }
        if let Some(created) = &mut self.created {
            drop(created.output.flush(now, true));
        }
        // Messages are for a terminal as it was.
        self.manners.terminal = None;
        self.tell_exits(now, true);
        if self.exits.killed && !self.manners.quiet {
            eprintln!("srun: Force Terminated {}", self.name());
        }
        Some(self.verdict())
    }

    /// The exit status: what the tasks did; what the controller says where their ends are not all known.
    fn verdict(&self) -> (u8, ExitCode) {
        let complete = self.created.as_ref().is_some_and(|c| self.all_ended(&c.layout));
        let Some((_, outcome)) = self.done.as_ref().filter(|_| !complete) else {
            return (self.exits.status(), self.exits.worst());
        };
        if let Some(reason) = &outcome.reason {
            eprintln!("srun: error: {}: {reason}", self.name());
        }
        let said = outcome.exit.shell_status() as u8;
        let worst = if self.exits.any() { self.exits.status() } else { 0 };
        match (said.max(worst), outcome.state) {
            (0, squall_model::job::EndState::Completed) => (0, ExitCode::OK),
            (0, _) => (1, ExitCode { code: 1, signal: 0 }),
            (status, _) => (status, if said >= worst { outcome.exit } else { self.exits.worst() }),
        }
    }
}
