//! State of a top, and what keys and news do to it. No I/O.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use squall_model::event::NodeAdmin;
use squall_model::id::JobId;
use squall_model::job::JobState;
use squall_model::set::IndexSet;
use squall_model::time::{Span, Time};
use squall_model::wire::client::{HostRequest, JobRef, JobSelection, Request, Tail};
use squall_model::wire::info::{JobInfo, NodeInfo, Why};

use super::keys::KeyCode;
use super::{Data, draw};
use crate::command::squeue::progress::Tally;
use squall_text::format::clock::Clock;
use squall_text::format::job::{self, JobRow};
use squall_text::format::node::{NodeState, devices};
use squall_text::format::{harmless, why, words};
use squall_text::report::lately::{EVERY_S, Lately};

/// Lines of a screen that are not rows of the list: head, titles, foot.
pub(super) const AROUND: usize = 6;

/// Time between two readings of the output that is shown.
const OUTPUT_EVERY: Span = Span::from_secs(2);

/// Lists that a top shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Queue,
    Nodes,
    Mine,
}

/// What covers the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sheet {
    Help,
    /// Details of the selected job or node, which follow what is read.
    Details,
    /// Lines of `squall why`, below a title.
    Why(String, Vec<String>),
    /// The end of a job's output, below a title, which is read again and again.
    Output(String, JobId, Vec<String>),
}

/// What keys are for at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Each key is a command.
    Commands,
    /// Keys make up the filter.
    Filter,
    /// `y` does it.
    Confirm(Action),
    /// Keys make up the reason to drain this node.
    Reason(String, String),
}

/// A change that the controller is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Action {
    /// The question: `cancel job 17 (train of ann)?`.
    pub(super) question: String,
    /// What is said when it is done: `job 17: cancelled`.
    pub(super) done: String,
    /// The request that does it.
    pub(super) request: Box<Request>,
}

/// What happens to a top.
#[derive(Debug)]
pub(super) enum Input {
    /// A key was pressed.
    Key(KeyCode),
    /// The screen has this many lines.
    Size(usize),
    /// It is this time by this machine's clock.
    Tick(Time),
    /// The controller was asked for everything.
    Read(Box<Data>),
    /// The controller does not answer.
    Away(String),
    /// A request was carried out, or not: a line for the user.
    Told(String),
    /// Why a job waits: a title, and the answer.
    Why(String, Box<Why>),
    /// The end of a job's output: a title, and the answer.
    Output(String, JobId, Box<Tail>),
    /// What a running job uses lately. None: it has not been measured yet.
    Used(JobId, Option<Lately>),
}

/// What a top wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Quit,
    /// Ask why this job waits; the text names it.
    Why(String, Box<Request>),
    /// Read the end of this job's output; the text names the job.
    Output(String, JobId, Box<HostRequest>),
    Do(Action),
}

/// What is selected in a list: it stays selected when the list changes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Key {
    /// A job; or the pending tasks of an array, which have the array's id.
    Job(u32, bool),
    /// A whole array.
    Array(JobId),
    Node(String),
}

/// Sums over jobs and nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) running: u64,
    pub(super) pending: u64,
    pub(super) mine: usize,
    pub(super) cpus: (u64, u64),
    pub(super) gpus: (u64, u64),
    /// Names of states, and the number of nodes in each, the most first.
    pub(super) nodes: Vec<(String, usize)>,
}

/// A row of a list of jobs.
#[derive(Debug)]
pub(super) struct Line {
    /// The job, or one of the array's tasks.
    pub(super) job: JobRow,
    /// How far the array is of which this is the one line.
    pub(super) whole: Option<((u64, u64), String)>,
    /// What the job uses, as far as it is known.
    pub(super) used: Option<Lately>,
}

/// The state of a top.
#[derive(Debug)]
pub(super) struct App {
    pub(super) view: View,
    pub(super) data: Data,
    /// Whether something was read since the start.
    pub(super) known: bool,
    pub(super) totals: Totals,
    /// Why the controller does not answer. None: it does.
    pub(super) away: Option<String>,
    pub(super) sheet: Option<Sheet>,
    /// First line of the sheet that is shown.
    pub(super) scrolled: usize,
    pub(super) mode: Mode,
    pub(super) filter: String,
    /// A line for the user, until the next key.
    pub(super) message: String,
    /// Positions in `data` of the rows of the list, in order.
    pub(super) order: Vec<usize>,
    /// Index in `order` of the selected row.
    pub(super) at: usize,
    /// Index in `order` of the first row on the screen.
    pub(super) first: usize,
    pub(super) clock: Rc<Clock>,
    /// Arrays with several rows, which have one line each.
    arrays: BTreeMap<JobId, Tally>,
    /// Whether each task of an array has a line.
    unfolded: bool,
    /// What running jobs use, and when that was asked for.
    used: HashMap<JobId, (Time, Option<Lately>)>,
    /// When the output that is shown was last asked for.
    output_asked: Time,
    /// The job of which the output was asked for and is not shown yet.
    awaited: Option<JobId>,
    selected: Option<Key>,
    me: u32,
    height: usize,
    /// How far the controller's clock is ahead, microseconds.
    ahead_us: i64,
}

impl App {
    /// Makes a top that knows nothing of the cluster yet. `me`: uid of the user.
    pub(super) fn new(view: View, me: u32, clock: Clock) -> Self {
        Self {
            view,
            data: Data::default(),
            known: false,
            totals: Totals::default(),
            away: None,
            sheet: None,
            scrolled: 0,
            mode: Mode::Commands,
            filter: String::new(),
            message: String::new(),
            order: Vec::new(),
            at: 0,
            first: 0,
            clock: Rc::new(clock),
            arrays: BTreeMap::new(),
            unfolded: false,
            used: HashMap::new(),
            output_asked: Time(0),
            awaited: None,
            selected: None,
            me,
            height: 24,
            ahead_us: 0,
        }
    }

    /// Takes what has happened, and returns what to do.
    pub(super) fn step(&mut self, input: Input) -> Option<Effect> {
        match input {
            Input::Key(key) => return self.key(key),
            Input::Size(height) => {
                self.height = height;
                self.scroll();
            }
            Input::Tick(now) => {
                self.set_time(now.on_clock_ahead(self.ahead_us));
                return self.follow_output();
            }
            Input::Read(data) => self.take(*data),
            Input::Away(problem) => self.away = Some(problem),
            Input::Told(line) => self.message = line,
            Input::Why(title, told) => {
                let lines = why::text(&told, &self.clock, false);
                self.show(Sheet::Why(title, lines.lines().map(|line| harmless(line).into_owned()).collect()));
            }
            Input::Output(title, job, tail) => self.show_output(title, job, &tail),
            Input::Used(job, lately) => {
                if let Some(told) = self.used.get_mut(&job) {
                    told.1 = lately;
                }
            }
        }
        None
    }

    /// Returns the jobs of which a screen of this width shows what they use, if the last question is old, and notes that they are
    /// asked about.
    pub(super) fn measure_due(&mut self, width: usize) -> Vec<JobId> {
        let now = self.clock.now;
        if self.sheet.is_some() || !draw::shows_use(self.view, width) {
            return Vec::new();
        }
        let shown = self.order.iter().skip(self.first).take(self.rows());
        let jobs = shown.filter_map(|at| self.data.jobs.jobs.get(*at)).filter(|job| job.state == JobState::Running);
        let may = jobs.filter(|job| self.data.operator || self.owned(job)).filter(|job| self.whole_of(job).is_none());
        let due = may
            .map(|job| job.id)
            .filter(|id| self.used.get(id).is_none_or(|(asked, _)| now.since(*asked) >= Span::from_secs(EVERY_S)));
        let due: Vec<JobId> = due.collect();
        for id in &due {
            self.used.entry(*id).or_default().0 = now;
        }
        due
    }

    /// Asks for the output that is shown again, after a while.
    fn follow_output(&mut self) -> Option<Effect> {
        let Some(Sheet::Output(title, job, _)) = &self.sheet else { return None };
        let effect = output_of(title.clone(), *job);
        if self.clock.now.since(self.output_asked) < OUTPUT_EVERY {
            return None;
        }
        self.output_asked = self.clock.now;
        Some(effect)
    }

    /// Shows the end of an output, at its last line, unless the sheet has been left or is scrolled back.
    fn show_output(&mut self, title: String, job: JobId, tail: &Tail) {
        let text = String::from_utf8_lossy(&tail.bytes);
        let mut lines: Vec<String> = text.lines().map(|line| harmless(line).into_owned()).collect();
        if (tail.bytes.len() as u64) < tail.size && lines.len() > 1 {
            // It may be a part of a line.
            lines.remove(0);
        }
        match &tail.problem {
            Some(problem) => lines = vec![format!("The output can't be shown: {problem}.")],
            None if lines.is_empty() => lines = vec!["It has written nothing so far.".to_owned()],
            None => {}
        }
        let end = |lines: &[String], rows: usize| (lines.len() + 1).saturating_sub(rows);
        let rows = self.rows() + 1;
        let at = match &self.sheet {
            Some(Sheet::Output(_, of, before)) if *of == job && self.scrolled < end(before, rows) => {
                Some(self.scrolled)
            }
            Some(Sheet::Output(_, of, _)) if *of == job => None,
            None if self.awaited.take() == Some(job) => None,
            _ => return,
        };
        let at = at.unwrap_or_else(|| end(&lines, rows));
        self.show(Sheet::Output(title, job, lines));
        self.scrolled = at;
    }

    /// Returns the array of which a job's row is the one line. None: the job has a line of its own.
    fn whole_of(&self, job: &JobInfo) -> Option<JobId> {
        let array = array_of(job)?;
        (!self.unfolded && self.arrays.contains_key(&array)).then_some(array)
    }

    /// Returns the line of a job of the list.
    pub(super) fn line(&self, position: usize) -> Option<Line> {
        let (info, job) = (self.data.jobs.jobs.get(position)?, self.job(position)?);
        let used = self.used.get(&info.id).and_then(|(_, lately)| *lately);
        let whole = self.whole_of(info).and_then(|array| self.arrays.get(&array)?.progress(tasks_of(&job)));
        Some(Line { job, whole, used })
    }

    /// Returns the line that is selected. None: the view has nodes, or no jobs.
    pub(super) fn selected_line(&self) -> Option<Line> {
        if self.view == View::Nodes { None } else { self.line(*self.order.get(self.at)?) }
    }

    /// Returns the tasks of an array that run or wait, as rows.
    pub(super) fn tasks(&self, array: JobId) -> impl Iterator<Item = JobRow> + '_ {
        let all = self.data.jobs.jobs.iter().enumerate();
        all.filter(move |(_, job)| array_of(job) == Some(array)).filter_map(|(at, _)| self.job(at))
    }

    /// Returns the row of a job of the list.
    pub(super) fn job(&self, position: usize) -> Option<JobRow> {
        let (info, jobs) = (self.data.jobs.jobs.get(position)?, &self.data.jobs);
        let one = squall_model::wire::info::JobsPage {
            specs: vec![jobs.specs.get(info.spec as usize)?.clone()],
            owners: vec![jobs.owners.get(info.owner as usize)?.clone()],
            classes: vec![jobs.classes.get(info.class as usize)?.clone()],
            jobs: vec![JobInfo { spec: 0, owner: 0, class: 0, ..info.clone() }],
            ..Default::default()
        };
        job::rows(one, &self.clock, &Rc::from(self.data.cluster.as_str()), None).next()
    }

    /// Returns the selected job. None: the view has nodes, or no jobs.
    pub(super) fn selected_job(&self) -> Option<JobRow> {
        if self.view == View::Nodes { None } else { self.job(*self.order.get(self.at)?) }
    }

    /// Returns the selected node. None: the view has jobs, or no nodes.
    pub(super) fn selected_node(&self) -> Option<&NodeInfo> {
        if self.view == View::Nodes { self.data.nodes.get(*self.order.get(self.at)?) } else { None }
    }

    /// Returns the number of rows that fit on the screen.
    pub(super) fn rows(&self) -> usize {
        self.height.saturating_sub(AROUND).max(1)
    }

    fn set_time(&mut self, now: Time) {
        self.clock = Rc::new(Clock { now, ..(*self.clock).clone() });
    }

    fn take(&mut self, data: Data) {
        // The clock shows this machine's time until the first answer.
        let here = self.clock.now.0 as i64 - self.ahead_us;
        self.ahead_us = data.now.0 as i64 - here;
        self.set_time(data.now);
        if self.away.take().is_some() && self.known {
            "the controller is back".clone_into(&mut self.message);
        }
        self.totals = totals(&data, self.me);
        (self.data, self.known) = (data, true);
        self.arrays.clear();
        for job in &self.data.jobs.jobs {
            if let Some(array) = array_of(job) {
                self.arrays.entry(array).or_default().add(job);
            }
        }
        self.arrays.retain(|_, tally| tally.running() + tally.waiting > 1);
        let running = self.data.jobs.jobs.iter().filter(|job| job.state == JobState::Running);
        let running: HashSet<JobId> = running.map(|job| job.id).collect();
        self.used.retain(|id, _| running.contains(id));
        self.arrange();
    }

    /// Fills the list: filters, sorts, and finds the selected row again.
    fn arrange(&mut self) {
        let filter = self.filter.to_lowercase();
        let shown: Vec<usize> = match self.view {
            View::Nodes => {
                let nodes = self.data.nodes.iter().enumerate();
                nodes.filter(|(_, node)| node_matches(node, &filter)).map(|(at, _)| at).collect()
            }
            view => {
                let jobs = self.data.jobs.jobs.iter().enumerate();
                let mine = |job: &JobInfo| view == View::Queue || self.owned(job);
                let mut shown: Vec<usize> =
                    jobs.filter(|(_, job)| mine(job) && self.job_matches(job, &filter)).map(|(at, _)| at).collect();
                shown.sort_by_cached_key(|at| rank(&self.data.jobs.jobs[*at]));
                // An array stands where its first row would.
                let mut seen = BTreeSet::new();
                shown.retain(|at| self.whole_of(&self.data.jobs.jobs[*at]).is_none_or(|array| seen.insert(array)));
                shown
            }
        };
        self.order = shown;
        let found = self.selected.as_ref().and_then(|key| self.order.iter().position(|at| self.is(*at, key)));
        self.at = found.unwrap_or(self.at).min(self.order.len().saturating_sub(1));
        self.keep_selection_in_view();
    }

    fn owned(&self, job: &JobInfo) -> bool {
        self.data.jobs.owners.get(job.owner as usize).is_some_and(|owner| owner.uid == self.me)
    }

    fn is(&self, position: usize, key: &Key) -> bool {
        match key {
            Key::Node(name) => self.view == View::Nodes && self.data.nodes[position].name == *name,
            Key::Job(id, entry) => {
                let Some(job) = self.data.jobs.jobs.get(position).filter(|_| self.view != View::Nodes) else {
                    return false;
                };
                self.whole_of(job).is_none() && job.id.0 == *id && job.pending_tasks.is_some() == *entry
            }
            Key::Array(id) => {
                let job = self.data.jobs.jobs.get(position).filter(|_| self.view != View::Nodes);
                job.is_some_and(|job| self.whole_of(job) == Some(*id))
            }
        }
    }

    /// Remembers what is selected, and scrolls to it.
    fn keep_selection_in_view(&mut self) {
        self.selected = self.order.get(self.at).map(|position| {
            if self.view == View::Nodes {
                return Key::Node(self.data.nodes[*position].name.clone());
            }
            let job = &self.data.jobs.jobs[*position];
            self.whole_of(job).map_or_else(|| Key::Job(job.id.0, job.pending_tasks.is_some()), Key::Array)
        });
        self.scroll();
    }

    fn scroll(&mut self) {
        let rows = self.rows();
        let last = self.order.len().saturating_sub(rows);
        self.first = self.first.clamp((self.at + 1).saturating_sub(rows), self.at).min(last);
    }

    fn job_matches(&self, job: &JobInfo, filter: &str) -> bool {
        if filter.is_empty() {
            return true;
        }
        let has = |text: &str| text.to_lowercase().contains(filter);
        let jobs = &self.data.jobs;
        job.id.to_string().contains(filter)
            || job.task.is_some_and(|task| format!("{}_{}", task.array, task.index).contains(filter))
            || words::state(job.state).0.to_lowercase().starts_with(filter)
            || jobs.owners.get(job.owner as usize).is_some_and(|owner| has(&owner.user))
            || jobs.specs.get(job.spec as usize).is_some_and(|spec| has(&spec.name))
            || jobs.classes.get(job.class as usize).is_some_and(|class| has(&class.partition) || has(&class.account))
            || has(&job.run().nodes)
            || (job.state == JobState::Pending && has(words::pending_reason(&job.reason)))
    }

    fn show(&mut self, sheet: Sheet) {
        (self.sheet, self.scrolled) = (Some(sheet), 0);
    }

    fn key(&mut self, key: KeyCode) -> Option<Effect> {
        self.message.clear();
        match std::mem::replace(&mut self.mode, Mode::Commands) {
            Mode::Commands => return self.command(key),
            Mode::Confirm(deed) => {
                if matches!(key, KeyCode::Char('y' | 'Y')) {
                    return Some(Effect::Do(deed));
                }
                "nothing done".clone_into(&mut self.message);
            }
            Mode::Filter => {
                match key {
                    KeyCode::Esc => self.filter.clear(),
                    KeyCode::Enter => return None,
                    _ => {
                        edit(&mut self.filter, key);
                        self.mode = Mode::Filter;
                    }
                }
                self.arrange();
            }
            Mode::Reason(node, mut reason) => match key {
                KeyCode::Esc => "nothing done".clone_into(&mut self.message),
                KeyCode::Enter if !reason.trim().is_empty() => {
                    return Some(Effect::Do(set_node(&node, NodeAdmin::Drain, Some(reason))));
                }
                _ => {
                    edit(&mut reason, key);
                    self.mode = Mode::Reason(node, reason);
                }
            },
        }
        None
    }

    fn command(&mut self, key: KeyCode) -> Option<Effect> {
        match key {
            KeyCode::Char('q') | KeyCode::Esc | KeyCode::Enter if self.sheet.is_some() => self.sheet = None,
            KeyCode::Char('q') => return Some(Effect::Quit),
            KeyCode::Esc => {
                self.filter.clear();
                self.arrange();
            }
            KeyCode::Char('?') => self.show(Sheet::Help),
            KeyCode::Char(view @ '1'..='3') => self.switch(view),
            KeyCode::Char('/') => {
                self.sheet = None;
                self.mode = Mode::Filter;
            }
            KeyCode::Enter if !self.order.is_empty() => self.show(Sheet::Details),
            KeyCode::Char('w') => match self.selected_job() {
                Some(job) => {
                    let title = format!("Why job {} waits", job.array_id());
                    let id = self.whole_of(&job.info).filter(|array| self.arrays[array].waiting > 0);
                    return Some(Effect::Why(title, Box::new(Request::Why { job: id.unwrap_or(job.info.id) })));
                }
                None => "w says why a job waits: select one (1 or 3)".clone_into(&mut self.message),
            },
            KeyCode::Char('o') => match self.selected_job() {
                Some(job) if job.is_batch() && job.started() => {
                    (self.sheet, self.awaited, self.output_asked) = (None, Some(job.info.id), self.clock.now);
                    return Some(output_of(format!("Output of job {}: {}", job.array_id(), job.stdout()), job.info.id));
                }
                Some(_) => "o shows the output of a batch job that has started".clone_into(&mut self.message),
                None => "o shows a job's output: select one (1 or 3)".clone_into(&mut self.message),
            },
            KeyCode::Char('a') if self.view != View::Nodes => {
                (self.unfolded, self.sheet) = (!self.unfolded, None);
                self.arrange();
            }
            KeyCode::Char(key @ ('c' | 'h' | 'r' | 'R')) => self.ask_job(key),
            KeyCode::Char(key @ ('d' | 'u')) => self.ask_node(key),
            key => self.travel(key),
        }
        None
    }

    fn switch(&mut self, view: char) {
        let view = match view {
            '1' => View::Queue,
            '2' => View::Nodes,
            _ => View::Mine,
        };
        self.sheet = None;
        if view != self.view {
            (self.view, self.at, self.first) = (view, 0, 0);
            self.arrange();
        }
    }

    /// Moves the selection, or scrolls the sheet.
    fn travel(&mut self, key: KeyCode) {
        let page = self.rows() as isize;
        let by = match key {
            KeyCode::Up | KeyCode::Char('k') => -1,
            KeyCode::Down | KeyCode::Char('j') => 1,
            KeyCode::PageUp => -page,
            KeyCode::PageDown | KeyCode::Char(' ') => page,
            KeyCode::Home | KeyCode::Char('g') => isize::MIN / 2,
            KeyCode::End | KeyCode::Char('G') => isize::MAX / 2,
            _ => return,
        };
        let last = match &self.sheet {
            Some(Sheet::Why(_, lines) | Sheet::Output(_, _, lines)) => lines.len().saturating_sub(1),
            Some(_) => 40,
            None => self.order.len().saturating_sub(1),
        };
        let place = if self.sheet.is_some() { self.scrolled } else { self.at };
        let place = (place as isize).saturating_add(by).clamp(0, last as isize) as usize;
        if self.sheet.is_some() {
            self.scrolled = place;
        } else {
            self.at = place;
            self.keep_selection_in_view();
        }
    }

    fn ask_job(&mut self, key: char) {
        let Some(job) = self.selected_job() else {
            self.message = format!("{key} acts on a job: select one (1 or 3)");
            return;
        };
        let whole = self.whole_of(&job.info);
        let jobs =
            JobSelection { ids: vec![whole.map_or_else(|| reference(&job), JobRef::Job)], ..JobSelection::default() };
        let (verb, done, request) = match key {
            'c' => ("cancel", "cancelled", Request::Cancel { jobs, signal: None, step: None, verbose: true }),
            'h' => ("hold", "held", Request::Hold { jobs, user: false }),
            'r' => ("release", "released", Request::Release { jobs }),
            _ => ("requeue", "requeued", Request::Requeue { jobs, hold: false, from: None, special: None }),
        };
        let id = whole.map_or_else(|| format!("job {}", job.array_id()), |array| format!("array {array}"));
        let name = harmless(&job.spec.name);
        self.mode = Mode::Confirm(Action {
            question: format!("{verb} {id} ({name} of {})?", job.owner.user),
            done: format!("{id}: {done}"),
            request: Box::new(request),
        });
    }

    fn ask_node(&mut self, key: char) {
        let Some(node) = self.selected_node().map(|node| node.name.clone()) else {
            self.message = format!("{key} acts on a node: select one (2)");
            return;
        };
        match key {
            _ if !self.data.operator => "only operators may drain and resume nodes".clone_into(&mut self.message),
            'd' => self.mode = Mode::Reason(node, String::new()),
            _ => self.mode = Mode::Confirm(set_node(&node, NodeAdmin::Resume, None)),
        }
    }
}

/// Returns the array that a row belongs to.
pub(super) fn array_of(job: &JobInfo) -> Option<JobId> {
    job.task.map(|task| task.array).or_else(|| job.pending_tasks.as_ref().map(|_| job.id))
}

/// Returns the number of tasks that a job's array was submitted with.
fn tasks_of(job: &JobRow) -> u64 {
    job.spec.array.as_ref().map_or(0, |array| array.indices.len() as u64)
}

fn output_of(title: String, job: JobId) -> Effect {
    Effect::Output(title, job, Box::new(HostRequest::Tail { job, past: false, errors: false }))
}

fn set_node(node: &str, admin: NodeAdmin, reason: Option<String>) -> Action {
    let (verb, done) = if admin == NodeAdmin::Drain { ("drain", "drains") } else { ("resume", "resumed") };
    Action {
        question: format!("{verb} node {node}?"),
        done: format!("node {node}: {done}"),
        request: Box::new(Request::UpdateNodes { nodes: node.to_owned(), admin: Some(admin), reason, change: None }),
    }
}

/// Returns the job, task, component or pending tasks of a row.
fn reference(job: &JobRow) -> JobRef {
    match (&job.info.pending_tasks, job.info.task, job.info.het) {
        (Some(tasks), ..) => JobRef::Tasks(job.info.id, tasks.clone()),
        (None, Some(task), _) => JobRef::Tasks(task.array, IndexSet::range(task.index, task.index)),
        (None, None, Some(het)) => JobRef::Component(het.leader, het.offset(job.info.id)),
        (None, None, None) => JobRef::Job(job.info.id),
    }
}

/// Returns the key by which jobs are sorted: those that run first, the latest first; then by priority.
fn rank(job: &JobInfo) -> (u8, Reverse<u64>, u32) {
    match job.state {
        JobState::Running | JobState::Configuring | JobState::Suspended => {
            (0, Reverse(job.start.map_or(0, |start| start.0)), job.id.0)
        }
        JobState::Completing(_) | JobState::Ended(_) => (1, Reverse(0), job.id.0),
        JobState::Pending => (2, Reverse(u64::from(job.priority)), job.id.0),
    }
}

fn node_matches(node: &NodeInfo, filter: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(filter);
    filter.is_empty()
        || has(&node.name)
        || NodeState::of(node).long().starts_with(filter)
        || node.partitions.iter().any(|name| has(name))
        || node.reason.as_ref().is_some_and(|(reason, ..)| has(reason))
}

fn totals(data: &Data, me: u32) -> Totals {
    let mut sums = Totals::default();
    for job in &data.jobs.jobs {
        match job.state {
            JobState::Pending => sums.pending += job.pending_tasks.as_ref().map_or(1, |tasks| tasks.len() as u64),
            JobState::Running | JobState::Configuring | JobState::Suspended => sums.running += 1,
            _ => {}
        }
        sums.mine += usize::from(data.jobs.owners.get(job.owner as usize).is_some_and(|owner| owner.uid == me));
    }
    for node in &data.nodes {
        sums.cpus.0 += u64::from(node.cpus_used);
        sums.cpus.1 += u64::from(node.hardware.cpus);
        let gpus = |list: &str| devices(list).get("gpu").copied().map_or(0, u64::from);
        if !node.gres.is_empty() {
            sums.gpus.0 += gpus(&node.gres_used);
            sums.gpus.1 += gpus(&node.gres);
        }
        let state = NodeState::of(node).long();
        match sums.nodes.iter_mut().find(|(known, _)| *known == state) {
            Some((_, count)) => *count += 1,
            None => sums.nodes.push((state, 1)),
        }
    }
    sums.nodes.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    sums
}

/// Applies a key to a line that is typed.
fn edit(text: &mut String, key: KeyCode) {
    match key {
        KeyCode::Char(c) if text.len() < 200 => text.push(c),
        KeyCode::Backspace => {
            text.pop();
        }
        _ => {}
    }
}
