//! sattach: prints the output of a running step's tasks, in addition to their srun, and sends them input.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use squall_engine::step::may_leave;
use squall_files::place::Place;
use squall_host::sys::peer::peer_of;
use squall_model::id::{JobId, StepNo};
use squall_model::step::{Among, FromStep, Layout, ToStep, Watcher};
use squall_model::time::Span;
use squall_model::wire::client::{Answer, JobRef, Request};

use crate::command::allocation::ready;
use crate::command::listing::call::{Call, Fail, live};
use crate::command::listing::select::target;
use crate::command::srun::exits::Exits;
use crate::command::srun::input::{Chunk, Input};
use crate::command::srun::link::{Listener, Room, StepConnection, missing_output};
use crate::command::srun::output::{Output, Sink};
use crate::command::srun::usual;
use crate::contact::Patience;
use squall_client::{Client, ClientError, unexpected};
use squall_text::format::harmless_lines;
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{Options, Page};

const OPTIONS: &[Flag] = &[
    flag("input-filter", '\0', Arg::Needed("taskid"), "send stdin to only the specified task"),
    flag("output-filter", '\0', Arg::Needed("taskid"), "only print stdout from the specified task"),
    flag("error-filter", '\0', Arg::Needed("taskid"), "only print stderr from the specified task"),
    flag("label", 'l', Arg::None, "prepend task number to lines of stdout & stderr"),
    flag("layout", '\0', Arg::None, "print task layout info and exit (does not attach to tasks)"),
    flag("pty", '\0', Arg::None, "").refused("the terminal of a step is that of its srun: leave it out"),
    flag("quiet", 'Q', Arg::None, "").hint("only errors are told"),
    flag("verbose", 'v', Arg::None, "").hint("there is no further detail"),
    flag("help", 'h', Arg::None, "show this help"),
    flag("usage", 'u', Arg::None, "show all options in a few lines"),
];

/// What `sattach` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "sattach",
    about: "watch the tasks of a running step, and speak to them",
    synopsis: &["[OPTIONS] <jobid.stepid>"],
    options: Options::Own(OPTIONS),
    notes: "",
};

const WHAT: &str = "Could not get job step info";

/// Time within which each node that still runs tasks of the step connects. Nodes that have not connected by then have
/// none.
const CALLS: Duration = Duration::from_secs(2);

/// Runs sattach.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("sattach", args, sattach)
}

fn sattach(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    if given.has("") {
        call.print(&PAGE.help());
        return Ok(());
    }
    let [name] = given.operands.as_slice() else {
        return call.fail(if given.operands.is_empty() {
            "No job step given: <jobid.stepid>"
        } else {
            "too many parameters"
        });
    };
    let Some((JobRef::Job(job), Some(step))) = target(name).map(|target| (target.job, target.step)) else {
        return call.fail("Failed to parse stepid from command line options");
    };
    let filter = |name| rank(&given, name);
    let (Ok(input), Ok(output), Ok(error)) = (filter("input-filter"), filter("output-filter"), filter("error-filter"))
    else {
        return call.fail("a filter is the number of a task");
    };
    if given.has("layout") {
        let text = match call.controller.ask(&Request::Watch { job, step, watcher: None }) {
            Ok(Answer::StepCreated { layout, .. }) => layout_text(&layout),
            Ok(_) => return not_there(call, &unexpected()),
            Err(e) => return not_there(call, &e),
        };
        call.print(&text);
        return Ok(());
    }
    let (client, listener, layout) = match attach(job, step) {
        Ok(attached) => attached,
        Err(e) => return not_there(call, &e),
    };
    let whole = Among { tasks: layout.ntasks(), ..Among::default() };
    let mut shown = Output::among(Sink::Stdout, Some(Sink::Stderr), whole, given.has("label"), false);
    shown.only = [output, error];
    let watch = Watch {
        client: Some(client),
        listener,
        layout,
        links: Vec::new(),
        output: shown,
        input: Input::own(input),
        exits: Exits::default(),
        begun: Instant::now(),
        done: None,
    };
    match watch.run() {
        0 => Ok(()),
        code => Err(Fail(code)),
    }
}

fn rank(given: &Arguments, name: &str) -> Result<Option<u32>, std::num::ParseIntError> {
    given.options.iter().rev().find(|option| option.name == name).map(|option| option.text().parse()).transpose()
}

fn not_there<T>(call: &mut Call<'_>, error: &ClientError) -> Result<T, Fail> {
    call.fail(&format!("{WHAT}: {error}"))
}

/// Formats a step's layout, for `--layout`, as Slurm does.
fn layout_text(layout: &Layout) -> String {
    let names = layout.nodes.names();
    let mut text = "Job step layout:\n".to_owned();
    let _ = writeln!(text, "\t{} tasks, {} nodes ({})\n", layout.ntasks(), names.len(), layout.nodes.as_str());
    for (at, node) in names.iter().enumerate() {
        let ranks = layout.ranks_on(at);
        let _ = write!(text, "\tNode {at} ({node}), {} task(s): ", ranks.len());
        for rank in ranks {
            let _ = write!(text, "{rank} ");
        }
        text.push('\n');
    }
    text
}

/// Asks the controller to have the step daemons connect to this process.
fn attach(job: JobId, step: StepNo) -> Result<(Client, Listener, Layout), ClientError> {
    let mut client = Patience::new("sattach").connect()?;
    let runner = peer_of(client.stream()).map_or(0, |peer| peer.uid);
    let host = Place::find().and_then(|place| place.reached_as());
    let listener = Listener::open(host.as_deref(), usual().ports);
    let mut listener = listener.map_err(|e| ClientError::Connect(e.to_string()))?;
    listener.trust(runner);
    let watcher = Watcher { client: listener.address(), cookie: listener.cookie() };
    client.send(&Request::Watch { job, step, watcher: Some(watcher) })?;
    match client.receive()? {
        Answer::StepCreated { layout, .. } => Ok((client, listener, *layout)),
        _ => Err(unexpected()),
    }
}

/// A running step to which sattach is attached.
struct Watch {
    /// Connection to the controller. None: it was lost; the end of the step is then noticed by the end of the links.
    client: Option<Client>,
    listener: Listener,
    layout: Layout,
    links: Vec<StepConnection>,
    output: Output,
    input: Input,
    exits: Exits,
    begun: Instant,
    /// Time at which the controller reported the step's end. None: it has not.
    done: Option<Instant>,
}

/// The source of an event in a poll.
#[derive(Clone, Copy)]
enum Source {
    Controller,
    Calls,
    Input,
    Link(usize),
}

impl Watch {
    /// Runs until the step has ended; returns the exit status derived from its tasks.
    fn run(mut self) -> u8 {
        loop {
            let now = Instant::now();
            let sources: Vec<(Source, BorrowedFd<'_>, PollFlags)> = self.sources(now);
            let fds: Vec<_> = sources.iter().map(|(_, fd, flags)| (*fd, *flags)).collect();
            let ready = ready(&fds, self.timeout(now));
            let hit: Vec<Source> = sources.iter().zip(&ready).filter(|(_, ready)| **ready).map(|(s, _)| s.0).collect();
            let now = Instant::now();
            for source in &hit {
                self.dispatch(*source, now);
            }
            let unread = self.output.flush(now, false).is_err();
            self.tell_exits(now, false);
            if unread || self.is_over(now, hit.is_empty()) {
                // The reader of the output may be gone.
                drop(self.output.flush(now, true));
                self.tell_exits(now, true);
                let missing = !unread && self.tell_missing();
                return self.exits.status().max(u8::from(missing));
            }
        }
    }

    fn sources(&self, now: Instant) -> Vec<(Source, BorrowedFd<'_>, PollFlags)> {
        let mut sources = vec![(Source::Calls, self.listener.as_fd(), PollFlags::IN)];
        sources.extend(self.listener.far().map(|far| (Source::Calls, far.as_fd(), PollFlags::IN)));
        let client = self.client.iter();
        sources.extend(client.map(|client| (Source::Controller, client.stream().as_fd(), PollFlags::IN)));
        let waits = !self.is_complete(now) || self.links.iter().any(StepConnection::is_full);
        let input = Some(self.input.source()).filter(|_| !waits && self.input.is_due(now));
        sources.extend(input.map(|fd| (Source::Input, fd, PollFlags::IN)));
        for (at, link) in self.links.iter().enumerate().filter(|(_, link)| link.is_open()) {
            let out = if link.has_unsent() { PollFlags::OUT } else { PollFlags::empty() };
            sources.push((Source::Link(at), link.as_fd(), PollFlags::IN | out));
        }
        sources
    }

    /// Returns whether every node that will connect has connected. Input is read only then, since it goes to all of
    /// them.
    fn is_complete(&self, now: Instant) -> bool {
        let here = self.links.iter().filter(|link| link.node().is_some()).count();
        here >= self.layout.nodes.len() || now >= self.begun + CALLS
    }

    fn timeout(&self, now: Instant) -> Option<Duration> {
        let calls = (!self.is_complete(now)).then(|| self.begun + CALLS);
        let ending = self.done.map(|_| now + Duration::from_millis(10));
        let due = [calls, ending, self.exits.deadline(), self.output.deadline(), self.input.deadline()];
        due.into_iter().flatten().min().map(|at| at.saturating_duration_since(now))
    }

    fn dispatch(&mut self, source: Source, now: Instant) {
        match source {
            Source::Calls => self.links.extend(std::iter::from_fn(|| self.listener.accept())),
            Source::Controller => match self.client.as_mut().map(Client::receive) {
                Some(Ok(Answer::StepDone { .. })) => {
                    self.done = Some(now);
                    self.links.iter().for_each(StepConnection::watch_peer);
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => self.client = None,
            },
            Source::Input => {
                if let Chunk::Bytes(bytes) = self.input.read(now) {
                    self.speak(&bytes);
                }
            }
            Source::Link(at) => {
                let mut frames = Vec::new();
                let Some(link) = self.links.get_mut(at) else { return };
                link.flush();
                link.read(self.listener.cookie(), &mut Room::default(), &mut frames);
                for frame in frames {
                    self.hear(frame, now);
                }
            }
        }
    }

    fn speak(&mut self, bytes: &[u8]) {
        let rank = self.input.rank();
        let node = rank.and_then(|rank| self.layout.node_of(rank)).map(|node| node as u32);
        let message = ToStep::Input { rank, bytes: bytes.to_vec().into() };
        for link in self.links.iter_mut().filter(|link| node.is_none() || link.node() == node) {
            link.send(&message);
        }
    }

    fn hear(&mut self, frame: FromStep, now: Instant) {
        match frame {
            FromStep::Output { rank, stderr, bytes } => {
                // The reader of the output may be gone: the next flush reports it.
                drop(self.output.take(now, rank, stderr, &bytes));
            }
            FromStep::Exited { rank, exit, oom } => self.exits.add(now, rank, exit, oom),
            _ => {}
        }
    }

    fn tell_exits(&mut self, now: Instant, end: bool) {
        for message in self.exits.messages(now, end, &self.layout) {
            eprintln!("sattach: error: {}", harmless_lines(&message));
        }
    }

    /// Reports tasks with output that may be incomplete. Returns whether there are any.
    fn tell_missing(&self) -> bool {
        let missing = missing_output(&self.links, &self.layout, 0);
        for text in &missing {
            eprintln!("sattach: error: {}", harmless_lines(text));
        }
        !missing.is_empty()
    }

    /// Returns whether sattach can end: the step has ended and its nodes have sent everything, or all connections are
    /// lost.
    fn is_over(&self, now: Instant, idle: bool) -> bool {
        let open = self.links.iter().any(StepConnection::is_open);
        match self.done {
            Some(since) => {
                let since = Span(now.duration_since(since).as_micros() as u64);
                (idle || open) && may_leave(self.links.iter().map(StepConnection::delivery), since, true)
            }
            None => self.client.is_none() && !open,
        }
    }
}

#[cfg(test)]
mod tests {
    use squall_model::step::{Distribution, Layout};

    use super::{layout_text, sattach};
    use crate::command::listing::fake::run;

    #[test]
    fn the_layout_is_slurms() {
        let layout = Layout {
            nodes: ["n1", "n2"].into_iter().collect(),
            tasks: vec![2, 1].into(),
            distribution: Distribution::Cyclic,
            cpus_per_task: 1,
            ports: None,
        };
        let text = "Job step layout:\n\t3 tasks, 2 nodes (n[1-2])\n\n\tNode 0 (n1), 2 task(s): 0 2 \n\tNode 1 (n2), 1 task(s): 1 \n";
        assert_eq!(layout_text(&layout), text);
    }

    #[test]
    fn what_fails_and_how() {
        let said = |args: &[&str]| run("sattach", sattach, args).err;
        assert_eq!(said(&["7.0", "8.0"]), "sattach: error: too many parameters\n");
        for bad in ["7", "x", "7_1.0"] {
            assert_eq!(said(&[bad]), "sattach: error: Failed to parse stepid from command line options\n", "{bad}");
        }
        assert_eq!(said(&["--input-filter=x", "7.0"]), "sattach: error: a filter is the number of a task\n");
    }
}
