//! `squall top`: queue and nodes, live in a terminal, with keys to act.

mod app;
mod draw;
mod keys;
mod screen;
mod shell;
mod terminal;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;

use squall_model::id::JobId;
use squall_model::job::JobState;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, JobRef, JobSelection, Request};
use squall_model::wire::info::{JobsPage, NodeInfo};

use crate::command::listing::call::{Call, Controller, Fail, live};
use app::{App, Input, View};
use squall_client::{Client, ClientError, unexpected};
use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{Options, Page};
use squall_text::report::lately::{Lately, STEPS_MAX};

const OPTIONS: &[Flag] = &[
    flag("nodes", 'n', Arg::None, "begin with the nodes"),
    flag("me", 'm', Arg::None, "begin with your own jobs"),
    flag("once", '1', Arg::None, "print one screen as text, COLUMNS wide and LINES high (80 and 24)"),
    flag("help", 'h', Arg::None, "show this help"),
];

/// What `squall top` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall top",
    about: "watch queue and nodes live, and act on them",
    synopsis: &["[--nodes | --me] [--once]"],
    options: Options::Own(OPTIONS),
    notes: "\
Keys: 1 queue, 2 nodes, 3 own jobs; arrows, PgUp, PgDn, Home and End move; Enter shows details, w
why a job waits, o the end of its output; a shows each task of arrays, or one line for each array;
/ filters; c cancels, h holds, r releases, R requeues a job; d drains, u resumes a node; ? lists all
keys; q quits. It reads what changes from the controller's events, and asks for lists at most once a
second and only after a change. What running jobs use is asked of their nodes once a minute, for
your own jobs (operators: all) on the screen. Colours are left out if NO_COLOR is set.
",
};

const NAME: &str = "squall top";

/// Runs `squall top`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live(NAME, args, top)
}

fn top(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    if let Some(operand) = given.operands.first() {
        return call.fail(&format!("unexpected argument `{operand}`; see `squall top --help`"));
    }
    let view = match (given.has("nodes"), given.has("me")) {
        (true, true) => return call.fail("--nodes and --me exclude each other"),
        (true, false) => View::Nodes,
        (false, true) => View::Mine,
        (false, false) => View::Queue,
    };
    let app = App::new(view, call.people.me(), (*call.clock(call.now)).clone());
    if given.has("once") {
        return once(call, app);
    }
    match shell::show(app, call.terminal, call.variable("NO_COLOR").is_none()) {
        Ok(None) => Ok(()),
        // As a shell reports a signal.
        Ok(Some(signal)) => Err(Fail(128 + signal)),
        Err(problem) => call.fail(&problem),
    }
}

/// Prints one screen as text.
fn once(call: &mut Call<'_>, mut app: App) -> Result<(), Fail> {
    let size = |name: &str, usual: usize| {
        call.variable(name)
            .and_then(|value| value.parse().ok())
            .filter(|size| (1..=1000).contains(size))
            .unwrap_or(usual)
    };
    let (width, height) = (size("COLUMNS", 80), size("LINES", 24));
    match read(call.controller) {
        Ok(data) => {
            app.step(Input::Size(height));
            app.step(Input::Read(Box::new(data)));
            let due = app.measure_due(width);
            for (job, lately) in used(call.controller, &due) {
                app.step(Input::Used(job, lately));
            }
            let text = draw::text(&app, width, height);
            call.print(&text);
            Ok(())
        }
        Err(error) => call.failed(NAME, &error),
    }
}

/// What a top shows of a cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Data {
    /// Name of the cluster.
    pub(super) cluster: String,
    /// Host and version of the controller. None: it did not say.
    pub(super) controller: Option<(String, String)>,
    /// Why the controller refuses submissions. None: it takes them.
    pub(super) trouble: Option<String>,
    /// The controller's time.
    pub(super) now: Time,
    /// Jobs that have not ended.
    pub(super) jobs: JobsPage,
    /// All nodes.
    pub(super) nodes: Vec<NodeInfo>,
    /// Whether the user may act on everything.
    pub(super) operator: bool,
}

/// Where a top reads from.
trait Source {
    fn name(&mut self) -> Result<String, ClientError>;
    fn list(&mut self) -> Result<JobsPage, ClientError>;
    /// Returns these jobs with their steps.
    fn steps(&mut self, jobs: &[JobId]) -> Result<JobsPage, ClientError>;
    fn request(&mut self, request: &Request) -> Result<Answer, ClientError>;
}

impl Source for Client {
    fn name(&mut self) -> Result<String, ClientError> {
        Ok(self.cluster()?.to_owned())
    }
    fn list(&mut self) -> Result<JobsPage, ClientError> {
        self.jobs(JobSelection::default(), false, false)
    }
    fn steps(&mut self, jobs: &[JobId]) -> Result<JobsPage, ClientError> {
        let ids = jobs.iter().map(|id| JobRef::Job(*id)).collect();
        self.jobs(JobSelection { ids, ..JobSelection::default() }, false, true)
    }
    fn request(&mut self, request: &Request) -> Result<Answer, ClientError> {
        self.ask(request)
    }
}

impl Source for dyn Controller + '_ {
    fn name(&mut self) -> Result<String, ClientError> {
        self.cluster()
    }
    fn list(&mut self) -> Result<JobsPage, ClientError> {
        self.jobs(JobSelection::default(), false, false)
    }
    fn steps(&mut self, jobs: &[JobId]) -> Result<JobsPage, ClientError> {
        let ids = jobs.iter().map(|id| JobRef::Job(*id)).collect();
        self.jobs(JobSelection { ids, ..JobSelection::default() }, false, true)
    }
    fn request(&mut self, request: &Request) -> Result<Answer, ClientError> {
        self.ask(request)
    }
}

/// Asks the controller for all that a top shows.
fn read<S: Source + ?Sized>(from: &mut S) -> Result<Data, ClientError> {
    let cluster = from.name()?;
    let (controller, trouble) = match from.request(&Request::Ping)? {
        Answer::Pong { host, version, trouble, .. } => (Some((host, version)), trouble),
        _ => (None, None),
    };
    let operator = matches!(from.request(&Request::Caller)?, Answer::Caller { operator: true, .. });
    let Answer::Nodes(nodes) = from.request(&Request::Nodes)? else { return Err(unexpected()) };
    let jobs = from.list()?;
    Ok(Data { cluster, controller, trouble, now: jobs.now, jobs, nodes, operator })
}

/// Asks for what jobs use lately, of which the user is owner or an operator. A job that can't be measured is left out.
fn used<S: Source + ?Sized>(from: &mut S, jobs: &[JobId]) -> Vec<(JobId, Option<Lately>)> {
    let listed = if jobs.is_empty() { JobsPage::default() } else { from.steps(jobs).unwrap_or_default() };
    let mut all = Vec::new();
    for job in listed.jobs.iter().filter(|job| job.state == JobState::Running && jobs.contains(&job.id)) {
        let steps: Vec<_> = job.run().steps.iter().filter(|step| step.end.is_none()).collect();
        if steps.is_empty() || steps.len() > STEPS_MAX {
            continue;
        }
        let asked = steps.iter().filter_map(|step| {
            match from.request(&Request::Measure { job: job.id, step: step.step, lately: true }) {
                Ok(Answer::Measured(_, _, series)) => Some(series),
                _ => None,
            }
        });
        let told: Vec<_> = asked.collect();
        all.push((job.id, Lately::of(told.iter().map(Option::as_deref))));
    }
    all
}
