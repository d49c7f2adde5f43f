//! The loop of the step daemon: passes events to the step's state machine and carries out its acts.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFlags, Timespec};
use squall_engine::machine::Machine;
use squall_engine::step::{StepAct, StepInput, StepMachine, StepSetup};
use squall_model::id::StepNo;
use squall_model::job::ExitCode;
use squall_model::report::StepEnd;
use squall_model::step::{FromStep, Program, StepLaunch, ToStep, Watcher};
use squall_model::wire::node::EndReason;
use squall_model::wire::sealed::Sealed;
use squall_model::wire::stepd::{FromStepd, ToStepd};
use squall_text::report;
use tracing::{error, warn};

use super::container::room;
use super::files::Opening;
use super::folder::Folder;
use super::frames::{Filled, Frames};
use super::meter::Meter;
use super::node_link::NodeLinks;
use super::plugins::{Heard, Plugins, REFUSED, apply};
use super::prepare::{Ready, prepare};
use super::processes::Processes;
use super::srun;
use super::streams::{INPUT_BYTES_MAX, Streams, Which};
use super::watchers::Watchers;
use super::wireup::{Port, Wireup, Word};
use super::x11::{Display, Tap};
use crate::cgroup::StepGroups;
use crate::plugins::words::Change;
use crate::poller::{Interest, Poller};
use crate::sys::clock::{local_text, now, steady};
use crate::sys::heap;
use crate::sys::offspring::leave;
use crate::sys::pmix::WANTED;
use crate::sys::signals::SignalFd;

/// Interval at which memory use is sampled.
const SAMPLE: Duration = Duration::from_secs(1);

/// Most bytes of output that may be queued for `srun`; above it tasks' pipes are not read, so that tasks wait.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Number of descriptors that a step with a few tasks waits for; initial capacity of the list.
const INTERESTS: usize = 24;

/// Time that the last messages have to be sent before the daemon leaves.
const FAREWELL: Duration = Duration::from_secs(5);

/// A running step daemon.
#[derive(Debug)]
pub(super) struct Daemon {
    machine: StepMachine,
    folder: Folder,
    signals: SignalFd,
    nodes: NodeLinks,
    srun: Option<Frames>,
    /// Further commands that receive the output (`sattach`).
    watchers: Watchers,
    ready: Option<Ready>,
    streams: Streams,
    /// The batch job's standard error, for notices to the user. None: notices go to `srun`.
    stderr: Option<File>,
    /// The batch job's standard output, for the report at its end. None: there is none to write.
    stdout: Option<File>,
    processes: Processes,
    /// Whether the kernel spares this process when memory is lacking, whatever its size.
    spared: bool,
    meter: Meter,
    /// Wire-up of the tasks (PMIx, PMI), by which ranks find each other. None: the step has or wants none.
    wireup: Option<Wireup>,
    /// The display of the tasks (`--x11`). None: they have none here.
    display: Option<Display>,
    /// The process with the step's SPANK plugins. None: it has none, or that has ended.
    plugins: Option<Plugins>,
    /// Whether all processes are to be killed when that process has ended.
    clears: bool,
    poller: Poller<Event>,
    next_sample: Instant,
    draining: bool,
    /// The step's result, for node daemons that connect after the end of the step. None: the step has not ended.
    last: Option<FromStepd>,
    /// Latest time to leave; set when the state machine has ended.
    leave: Option<Instant>,
    /// The `srun` that has started this process. None: the node has.
    parent: Option<rustix::process::Pid>,
}

/// An event for which the step daemon waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Signal,
    Caller,
    Node(usize),
    Srun,
    Watcher(usize),
    Stream(Which),
    Wireup(Port),
    Display(Tap),
    Plugins,
}

impl Daemon {
    /// `spared`: whether the kernel spares this process when memory is lacking, whatever its size.
    pub(super) fn new(
        folder: Folder,
        signals: SignalFd,
        nodes: NodeLinks,
        groups: StepGroups,
        (spared, plugins): (bool, Option<Plugins>),
    ) -> Self {
        let setup = StepSetup::of(&folder.launch);
        let processes = Processes::of(&folder.launch.program);
        Self {
            machine: StepMachine::new(setup),
            nodes,
            meter: Meter::new(&folder.launch, groups),
            spared,
            folder,
            signals,
            srun: None,
            watchers: Watchers::default(),
            ready: None,
            streams: Streams::default(),
            stderr: None,
            stdout: None,
            processes,
            wireup: None,
            display: None,
            plugins,
            clears: false,
            poller: Poller::default(),
            next_sample: Instant::now() + SAMPLE,
            draining: false,
            last: None,
            leave: None,
            parent: None,
        }
    }

    /// Makes this the daemon of a step whose tasks descend from its `srun`, the parent of this process.
    pub(super) fn inside(self) -> Self {
        Self { parent: rustix::process::getppid(), ..self }
    }

    /// Runs the step; `first` is the reason why it can't be run, if there is one.
    pub(super) fn run(mut self, first: Option<StepInput>) -> ! {
        let first = first.or_else(|| self.begin());
        self.feed(first);
        if let Some(wireup) = &mut self.wireup {
            wireup.started(self.machine.pids());
        }
        // Processes what arrived together with the greeting: the descriptor does not become readable for it again.
        self.serve_srun();
        while !self.is_done() {
            self.turn();
        }
        // Leaves without freeing memory, as the kernel reclaims it sooner.
        let wanted = |wireup: &Wireup| wireup.has_threads() || wireup.wants_library();
        leave(if self.wireup.as_ref().is_some_and(wanted) { i32::from(WANTED) } else { 0 })
    }

    /// Prepares all that precedes the first task; returns the state machine's first input. None: it follows when the
    /// plugins are ready.
    fn begin(&mut self) -> Option<StepInput> {
        let launch = &self.folder.launch;
        if let Program::Timer { .. } = launch.program {
            return Some(StepInput::Start);
        }
        if let Program::Tasks(program) = &launch.program {
            match srun::connect(&program.client, program.cookie, launch.node_index, launch.facts.owner.uid) {
                Ok(link) => self.srun = link,
                Err(e) => {
                    return Some(StepInput::Fail { error: format!("cannot reach srun: {e}"), node_fault: false });
                }
            }
        }
        if let Some(plugins) = &mut self.plugins {
            plugins.begin(&self.folder);
            return None;
        }
        Some(self.go_on(&[]))
    }

    /// Prepares the tasks; returns the state machine's first input. `changes`: what plugins have changed in the
    /// environment.
    fn go_on(&mut self, changes: &[Change]) -> StepInput {
        let launch = &self.folder.launch;
        match Wireup::new(launch, self.srun.as_ref()) {
            Ok(wireup) => self.wireup = wireup,
            Err(e) => return StepInput::Fail { error: format!("no sockets for MPI: {e}"), node_fault: true },
        }
        match Display::open(launch, &room(&self.folder.path)) {
            Ok(display) => self.display = display,
            Err(e) => return StepInput::Fail { error: format!("no display for X11: {e}"), node_fault: false },
        }
        match prepare(&self.folder, self.wireup.as_mut(), self.display.as_ref(), Opening::MayWait) {
            Ok(mut ready) => {
                apply(changes, &mut ready);
                self.streams = std::mem::take(&mut ready.streams);
                (self.stderr, self.stdout) = (ready.stderr.take(), ready.stdout.take());
                for note in std::mem::take(&mut ready.notes) {
                    self.notice(&note);
                }
                self.ready = Some(ready);
                StepInput::Start
            }
            Err(refusal) => StepInput::Refuse { exit: refusal.exit, note: refusal.note },
        }
    }

    fn is_done(&mut self) -> bool {
        let Some(until) = self.leave else { return false };
        if self.awaits_outer() {
            return false;
        }
        if Instant::now() < until
            && !(self.nodes.is_flushed()
                && self.wireup.as_ref().is_none_or(Wireup::is_flushed)
                && self.watchers.is_flushed()
                && self.srun.as_ref().is_none_or(|link| link.backlog() == 0))
        {
            return false;
        }
        // A node daemon that has just connected gets the result from us; later ones read the file.
        self.nodes.accept(&self.news());
        true
    }

    /// Returns whether the result of a step inside its job is still to be told to the outer step daemon, which is not
    /// connected. Without the `srun` that has started this process, nobody asks for it.
    fn awaits_outer(&self) -> bool {
        self.parent.is_some_and(|parent| rustix::process::getppid() == Some(parent)) && !self.nodes.is_linked()
    }

    /// Steps the state machine with the inputs and carries out its acts, until it has none.
    fn feed(&mut self, inputs: impl IntoIterator<Item = StepInput>) {
        let mut queue: VecDeque<StepInput> = inputs.into_iter().collect();
        while let Some(input) = queue.pop_front() {
            let mut acts = Vec::new();
            self.machine.step(steady(), input, &mut acts);
            for act in acts {
                self.act(act, &mut queue);
            }
        }
    }

    fn act(&mut self, act: StepAct, answers: &mut VecDeque<StepInput>) {
        match act {
            StepAct::Spawn => self.spawn(answers),
            StepAct::Signal { signal, all } => {
                if let Some(wireup) = &mut self.wireup {
                    wireup.signalled(signal);
                }
                answers.extend(self.processes.signal(signal, all));
            }
            StepAct::KillLeft if self.plugins.is_some() => {
                // Their last hook runs first.
                self.clears = true;
                if let Some(plugins) = &mut self.plugins {
                    plugins.over();
                }
            }
            StepAct::KillLeft => {
                answers.extend(self.processes.kill_left());
                self.reap(answers);
            }
            StepAct::Drain => {
                if let Some(wireup) = &mut self.wireup {
                    wireup.close();
                }
                for input in self.wireup_words() {
                    answers.push_back(input);
                }
                self.draining = true;
            }
            StepAct::NoticeEnd(why) => self.notice_end(why),
            StepAct::Notice(text) => self.notice(&text),
            StepAct::Report { end, why } => write_report(self.stdout.take(), &self.folder.launch, &end, why),
            StepAct::WriteResult(last) => {
                if let Err(e) = self.folder.write_result(&last) {
                    error!(error = %e, "cannot write the result");
                }
            }
            StepAct::Node(message) => {
                self.nodes.tell(&message);
                if matches!(message, FromStepd::Ended(_) | FromStepd::Failed { .. }) {
                    self.last = Some(message);
                }
            }
            StepAct::Client(message) => {
                if let FromStep::Exited { rank, .. } = message {
                    // A task's output is sent before its end is reported.
                    self.read_outputs(Some(rank));
                    self.streams.task_ended(rank);
                }
                self.tell_srun(&message);
            }
            StepAct::Exit => self.leave = Some(Instant::now() + FAREWELL),
        }
    }

    fn spawn(&mut self, answers: &mut VecDeque<StepInput>) {
        if let Program::Timer { run_ms, code } = self.folder.launch.program {
            answers.push_back(self.processes.start_timer(Duration::from_millis(run_ms), code));
        } else if let Some(mut ready) = self.ready.take() {
            // Dropping the prepared tasks closes our copies of their ends of pipes.
            answers.extend(match &mut self.plugins {
                Some(plugins) => match self.folder.note_begun() {
                    Ok(()) => plugins.order(&mut ready, &self.folder),
                    Err(e) => {
                        let error = format!("the spool can't be written: {e}");
                        let failed = |rank| StepInput::SpawnFailed { rank, code: REFUSED, error: error.clone() };
                        ready.tasks.iter().map(|task| failed(task.rank)).collect()
                    }
                },
                None => self.processes.spawn(&mut ready, &mut self.folder),
            });
            if !self.spared {
                // Otherwise this process may be the largest of the step.
                heap::forget_code();
            }
        }
    }

    fn reap(&mut self, answers: &mut VecDeque<StepInput>) {
        let found = self.processes.reap(&mut self.meter, &self.folder);
        if let Some(plugins) = &mut self.plugins {
            for input in &found {
                if let StepInput::Exited { rank, exit, .. } = input {
                    plugins.ended(*rank, *exit);
                }
            }
        }
        for text in self.processes.complaints() {
            self.notice(&text);
        }
        if let Some(wireup) = &mut self.wireup {
            for input in &found {
                if let StepInput::Exited { rank, exit, .. } = input {
                    wireup.ended(*rank, *exit);
                }
            }
        }
        answers.extend(self.wireup_words());
        answers.extend(found);
    }

    /// Sends the messages that wire-up has for `srun`, the node daemon and the user; returns its inputs for the state
    /// machine.
    fn wireup_words(&mut self) -> Vec<StepInput> {
        for (to, message) in self.wireup.as_mut().map(Wireup::passes).unwrap_or_default() {
            self.tell_srun(&FromStep::Pass { to, message: Box::new(message) });
        }
        if let Some(wireup) = self.wireup.as_mut().filter(|_| self.nodes.is_linked()) {
            for (to, message) in wireup.letters() {
                self.nodes.tell_last(&FromStepd::Letter { to, message: Sealed::new(message) });
            }
        }
        let mut inputs = Vec::new();
        for word in self.wireup.as_mut().map(Wireup::words).unwrap_or_default() {
            match word {
                Word::Within(within) => self.tell_srun(&FromStep::Within(within)),
                Word::Abort { code, text } => inputs.push(StepInput::Abort { code, text }),
                Word::Notice(text) => self.notice(&text),
                Word::Report(text) => self.tell_srun(&FromStep::Notice(text)),
                Word::Log { rank, stderr, text } => {
                    self.tell_srun(&FromStep::Output { rank, stderr, bytes: text.into_bytes().into() });
                }
            }
        }
        inputs
    }

    fn tell_srun(&mut self, message: &FromStep) {
        if let Some(link) = &mut self.srun {
            link.send(message);
            self.watchers.tell(message);
        }
    }

    /// Sends a message that other commands than `srun` can't use.
    fn tell_srun_alone(&mut self, message: Option<FromStep>) {
        if let (Some(link), Some(message)) = (&mut self.srun, message) {
            link.send(&message);
        }
    }

    /// Connects to a command (`sattach`) that is to receive the step's output.
    fn watched(&mut self, watcher: &Watcher) {
        let launch = &self.folder.launch;
        match srun::connect(&watcher.client, watcher.cookie, launch.node_index, launch.facts.owner.uid) {
            Ok(None) => {}
            Ok(Some(link)) => {
                self.watchers.add(link, self.machine.pids());
                // Processes what arrived together with the greeting: the descriptor does not become readable for it
                // again.
                self.hear_watcher(self.watchers.links().len().saturating_sub(1));
            }
            Err(e) => warn!(error = %e, "cannot reach a command that wants to watch"),
        }
    }

    fn hear_watcher(&mut self, at: usize) {
        for (rank, bytes) in self.watchers.hear(at) {
            self.streams.input(rank, &bytes);
        }
    }

    /// Sends a notice to the user: to `srun`, or to the batch job's standard error.
    fn notice(&mut self, text: &str) {
        if self.srun.is_some() {
            self.tell_srun(&FromStep::Notice(format!("error: {text}")));
        } else if let Some(file) = &mut self.stderr {
            let _ = file.write_all(format!("slurmstepd: error: {text}\n").as_bytes());
        } else {
            warn!("{text}");
        }
    }

    fn notice_end(&mut self, why: EndReason) {
        let text = end_notice(&self.folder.launch, why);
        self.notice(&text);
    }

    /// Returns the messages for a node daemon that has just connected.
    fn news(&self) -> Vec<FromStepd> {
        let hello = FromStepd::Hello { key: self.machine.setup().key, tasks: self.machine.pids() };
        std::iter::once(hello).chain(self.last.clone()).collect()
    }

    /// Waits for events, and handles them.
    fn turn(&mut self) {
        for event in self.wait() {
            self.handle(event);
        }
        self.nodes.sweep();
        self.streams.sweep();
        self.watchers.sweep();
        if let Some(wireup) = &mut self.wireup {
            wireup.turn();
        }
        let mut inputs = self.wireup_words();
        inputs.extend(self.processes.timer_end());
        if self.machine.deadline().is_some_and(|at| steady() >= at) {
            inputs.push(StepInput::Tick);
        }
        if Instant::now() >= self.next_sample {
            self.next_sample = Instant::now() + SAMPLE;
            inputs.extend(self.meter.sample(&self.processes.tasks()));
        }
        if self.processes.deadline().is_some_and(|at| Instant::now() >= at) {
            let mut answers = VecDeque::new();
            self.reap(&mut answers);
            inputs.extend(answers);
        }
        self.feed(inputs);
        if self.plugins.as_ref().is_some_and(Plugins::is_late) {
            self.plugins_ended(Vec::new());
        }
        if self.draining {
            self.drain();
        }
    }

    /// Feeds inputs of which one may end the step. Plugins that still prepare it are then left alone, and end soon.
    fn feed_end(&mut self, inputs: impl IntoIterator<Item = StepInput>) {
        self.feed(inputs);
        if self.machine.is_ended() && self.plugins.as_ref().is_some_and(|plugins| !plugins.ready) {
            self.plugins = None;
            self.feed([StepInput::Start]);
        }
    }

    fn hear_plugins(&mut self) {
        for heard in self.plugins.as_mut().map(Plugins::hear).unwrap_or_default() {
            match heard {
                Heard::Ready(changes) => {
                    let first = self.go_on(&changes);
                    self.feed([first]);
                }
                Heard::Refused(note) if self.plugins.as_ref().is_some_and(|plugins| plugins.ready) => {
                    self.notice(&note);
                }
                Heard::Refused(note) => {
                    self.feed([StepInput::Refuse { exit: ExitCode { code: REFUSED, signal: 0 }, note }]);
                }
                Heard::Said(text) => self.pass_on(&text),
                Heard::Born(rank, pid, epilog) => {
                    let input = self.processes.adopt((rank, pid), epilog, &mut self.folder);
                    if let (StepInput::Spawned { .. }, Some(plugins)) = (&input, &mut self.plugins) {
                        plugins.go(rank);
                    }
                    self.feed([input]);
                    let last = self.plugins.as_ref().is_some_and(Plugins::has_made_all);
                    if let Some(wireup) = self.wireup.as_mut().filter(|_| last) {
                        wireup.started(self.machine.pids());
                    }
                }
                Heard::Failed(input) => self.feed([input]),
                Heard::Ended(inputs) => self.plugins_ended(inputs),
            }
        }
    }

    /// Goes on without the plugins, of which the process has ended or takes too long to end.
    fn plugins_ended(&mut self, inputs: Vec<StepInput>) {
        let Some(plugins) = self.plugins.take() else { return };
        let mut inputs = VecDeque::from(inputs);
        if !plugins.ready {
            let note = "the process of the SPANK plugins has ended".to_owned();
            inputs.push_back(StepInput::Refuse { exit: ExitCode { code: REFUSED, signal: 0 }, note });
        }
        drop(plugins);
        if std::mem::take(&mut self.clears) {
            inputs.extend(self.processes.kill_left());
            self.reap(&mut inputs);
        }
        self.feed(inputs);
    }

    /// Passes on a text of a plugin.
    fn pass_on(&mut self, text: &str) {
        if self.srun.is_some() {
            self.tell_srun(&FromStep::Notice(text.to_owned()));
        } else if let Some(file) = &mut self.stderr {
            // A full disk costs the text only.
            drop(file.write_all(format!("slurmstepd: {text}\n").as_bytes()));
        } else {
            warn!("{text}");
        }
    }

    /// Reads the rest of the output after all processes have ended.
    fn drain(&mut self) {
        self.read_outputs(None);
        // Reading has stopped early only if there was no room.
        if self.srun.as_ref().is_none_or(|link| link.backlog() == 0) {
            self.draining = false;
            let delivered = self.srun.as_ref().is_none_or(|link| !link.is_remote());
            if !delivered && let Some(Err(e)) = self.srun.as_ref().map(Frames::watch_peer) {
                error!(error = %e, "the connection to srun is not watched");
            }
            self.feed([StepInput::Drained { delivered }]);
        }
    }

    fn wait(&mut self) -> Vec<Event> {
        let timeout = self.timeout();
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        let mut poller = std::mem::take(&mut self.poller);
        let events = poller.wait(&self.interests(), Some(&timeout));
        self.poller = poller;
        events
    }

    fn interests(&self) -> Vec<Interest<'_, Event>> {
        let reading = |event, fd| Interest::new(event, fd, Some(PollFlags::IN));
        let mut interests = Vec::with_capacity(INTERESTS);
        interests.push(reading(Event::Signal, self.signals.as_fd()));
        interests.push(reading(Event::Caller, self.nodes.listener()));
        let nodes = self.nodes.frames().enumerate();
        interests.extend(nodes.map(|(at, link)| link.interest(true).with(Event::Node(at))));
        let full = self.streams.input_backlog() >= INPUT_BYTES_MAX;
        interests.extend(self.srun.iter().map(|link| link.interest(!full).with(Event::Srun)));
        let watchers = self.watchers.links().iter().enumerate();
        interests.extend(watchers.map(|(at, link)| link.interest(true).with(Event::Watcher(at))));
        let streams = self.streams.interests(self.has_room());
        interests.extend(streams.map(|interest| interest.with(Event::Stream(interest.key))));
        let wireup = self.wireup.iter().flat_map(Wireup::interests);
        interests.extend(wireup.map(|interest| interest.with(Event::Wireup(interest.key))));
        let display = self.display.iter().flat_map(|display| display.interests(self.has_room()));
        interests.extend(display.map(|interest| interest.with(Event::Display(interest.key))));
        interests.extend(self.plugins.iter().map(|plugins| plugins.interest().with(Event::Plugins)));
        interests
    }

    fn timeout(&self) -> Duration {
        let clock = Instant::now();
        let machine = self.machine.deadline().map(|at| clock + Duration::from_micros(at.since(steady()).0));
        let wireup = self.wireup.as_ref().and_then(Wireup::deadline);
        let plugins = self.plugins.as_ref().and_then(|plugins| plugins.until);
        let deadlines = [machine, self.processes.deadline(), wireup, plugins, self.leave, Some(self.next_sample)];
        let next = deadlines.into_iter().flatten().min().unwrap_or(clock);
        // Rounded up, so that the deadline has passed when the wait ends.
        next.saturating_duration_since(clock) + Duration::from_millis(1)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Signal => self.take_signals(),
            Event::Caller => self.nodes.accept(&self.news()),
            Event::Node(at) => self.serve_node(at),
            Event::Srun => self.serve_srun(),
            Event::Watcher(at) => self.hear_watcher(at),
            Event::Stream(Which::Output(at)) => {
                self.read_once(at);
            }
            Event::Stream(Which::Input(at)) => self.streams.write(at),
            Event::Display(tap) => {
                let said = self.display.as_mut().and_then(|display| display.handle(tap));
                self.tell_srun_alone(said);
            }
            Event::Plugins => self.hear_plugins(),
            Event::Wireup(port) => {
                if let Some(wireup) = &mut self.wireup {
                    wireup.handle(port);
                }
            }
        }
    }

    fn take_signals(&mut self) {
        let mut inputs = VecDeque::new();
        while let Some(signal) = self.signals.take() {
            if signal == libc::SIGCHLD {
                self.reap(&mut inputs);
            } else if signal == libc::SIGURG {
                // A checkpoint is about to be made.
                self.nodes.close();
            } else {
                let kill_wait_s = self.machine.setup().kill_wait_s;
                inputs.push_back(StepInput::End { kill_wait_s, why: EndReason::None });
            }
        }
        self.feed_end(inputs);
    }

    fn serve_node(&mut self, at: usize) {
        self.nodes.flush(at);
        for message in self.nodes.read(at) {
            match message {
                ToStepd::Signal { signal, all } => self.feed([StepInput::Signal { signal, all }]),
                ToStepd::End { kill_wait_s, why } => self.feed_end([StepInput::End { kill_wait_s, why }]),
                ToStepd::Letter { from, message } => {
                    if let (Some(wireup), Ok(message)) = (&mut self.wireup, message.open()) {
                        wireup.received(from, Arc::unwrap_or_clone(message));
                    }
                }
                ToStepd::Watch(watcher) => self.watched(&watcher),
                ToStepd::Notice(text) => self.notice(&text),
                ToStepd::Usage => {
                    let usage = self.meter.so_far(&self.processes.tasks());
                    self.nodes.answer(at, &FromStepd::Usage(usage, self.machine.series()));
                }
            }
        }
    }

    fn serve_srun(&mut self) {
        let Some(link) = &mut self.srun else { return };
        link.flush();
        let mut closed = link.fill() == Filled::Closed;
        loop {
            match self.srun.as_mut().map_or(Ok(None), Frames::take::<ToStep>) {
                Ok(Some(ToStep::Input { rank, bytes })) => self.streams.input(rank, &bytes),
                Ok(Some(ToStep::Signal(signal))) => self.feed([StepInput::Signal { signal, all: true }]),
                Ok(Some(ToStep::End { kill_wait_s, why })) => self.feed_end([StepInput::End { kill_wait_s, why }]),
                Ok(Some(ToStep::Resize(rows, columns))) => self.streams.resize(rows, columns),
                Ok(Some(ToStep::Passed { from, message })) => {
                    if let Some(wireup) = &mut self.wireup {
                        wireup.passed(from, *message);
                    }
                }
                Ok(Some(ToStep::X11 { client, bytes })) => {
                    let said = self.display.as_mut().and_then(|display| display.hear(client, &bytes));
                    self.tell_srun_alone(said);
                }
                // The latter is for the outer step daemon.
                Ok(Some(ToStep::Hello { .. } | ToStep::Inside(_))) => {}
                Ok(None) => break,
                Err(e) => {
                    error!(error = %e, "the connection to srun is broken");
                    closed = true;
                    break;
                }
            }
        }
        if closed && self.srun.take().is_some() {
            self.feed_end([StepInput::ClientLost]);
        }
    }

    fn has_room(&self) -> bool {
        self.srun.as_ref().is_none_or(|link| link.backlog() < OUTPUT_BYTES_MAX)
    }

    /// Reads the available output of the task with this rank, or (None) of all tasks, as far as there is room for it.
    fn read_outputs(&mut self, rank: Option<u32>) {
        for at in self.streams.outputs_of(rank) {
            while self.has_room() && self.read_once(at) {}
        }
    }

    /// Reads once from an output. Returns whether more may be available now.
    fn read_once(&mut self, at: usize) -> bool {
        let Some(frame) = self.streams.read(at) else { return false };
        self.tell_srun(&frame);
        !matches!(&frame, FromStep::Output { bytes, .. } if bytes.is_empty())
    }
}

/// Returns whether a step daemon's notice to srun says that its step is being ended: one of [`end_notice`].
pub fn is_end_notice(text: &str) -> bool {
    text.starts_with("error: *** STEP ") && text.contains(" CANCELLED AT ")
}

/// Returns the notice for the user when a step is ended.
pub(super) fn end_notice(launch: &StepLaunch, why: EndReason) -> String {
    let due = match why {
        EndReason::None | EndReason::Cancelled => "",
        EndReason::TimeLimit => " DUE TO TIME LIMIT",
        EndReason::NodeFail => " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS",
        EndReason::Preempted => " DUE TO PREEMPTION",
        EndReason::Requeued | EndReason::RequeuesItself => " DUE TO JOB REQUEUE",
        EndReason::Unsaved => " AS IT CAN'T BE CHECKPOINTED, SEE scontrol show job",
        EndReason::Damaged => " AS A DUMP OF IT WAS KILLED, SEE scontrol show job",
    };
    let key = launch.key;
    let what =
        if key.step == StepNo::BATCH { format!("JOB {}", key.job) } else { format!("STEP {}.{}", key.job, key.step) };
    format!("*** {what} ON {} CANCELLED AT {}{due} ***", launch.node, local_text(now()))
}

/// Appends the line about a batch job's end to its output. A full disk or quota costs the line only.
pub(super) fn write_report(stdout: Option<File>, launch: &StepLaunch, end: &StepEnd, why: EndReason) {
    if let Some(mut file) = stdout {
        drop(file.write_all(report::line(launch, end, why).as_bytes()));
    }
}
