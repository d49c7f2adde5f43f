//! Draws a top: head, list, sheet, foot. Draws only the rows that are visible.

use std::ops::Range;

use squall_model::duration::{format_memory_mb, format_short};
use squall_model::wire::info::NodeInfo;

use super::app::{AROUND, App, Line, Mode, Sheet, View, array_of};
use super::screen::{Screen, Style, cut, width, wrap};
use crate::command::squeue::progress::bar;
use squall_text::format::colour;
use squall_text::format::job::JobRow;
use squall_text::format::node::NodeState;
use squall_text::format::{why, words};
use squall_text::report::amount;
use squall_text::report::lately::Lately;

/// A column of a list.
pub(super) struct Column<R> {
    title: &'static str,
    width: usize,
    right: bool,
    /// Columns with the highest number are left out first where the screen is too narrow.
    rank: u8,
    /// Whether its texts are states, which have colours.
    state: bool,
    text: fn(&R) -> String,
}

const fn left<R>(title: &'static str, width: usize, rank: u8, text: fn(&R) -> String) -> Column<R> {
    Column { title, width, right: false, rank, state: false, text }
}

const fn right<R>(title: &'static str, width: usize, rank: u8, text: fn(&R) -> String) -> Column<R> {
    Column { title, width, right: true, rank, state: false, text }
}

const JOBID: Column<Line> = left("JOBID", 11, 0, |line| match (&line.whole, array_of(&line.job.info)) {
    (Some(_), Some(array)) => array.to_string(),
    _ => line.job.array_id(),
});
const USER: Column<Line> = left("USER", 8, 2, |line| line.job.owner.user.clone());
const PARTITION: Column<Line> = left("PARTITION", 9, 3, |line| line.job.class.partition.clone());
const STATE: Column<Line> =
    Column { state: true, ..left("ST", 2, 0, |line| words::state(line.job.info.state).1.to_owned()) };
const TIME: Column<Line> = right("TIME", 10, 1, |line| format_short(line.job.time_used()));
const LIMIT: Column<Line> = right("LIMIT", 10, 6, |line| line.job.time_limit());
const CPU_USE: Column<Line> = left("CPU USE", 9, 4, |line| {
    let Some(used) = own_use(line) else { return String::new() };
    used.idle().map_or_else(
        || use_bar(used.cpus, f64::from(line.job.info.num_cpus)),
        |long| format!("idle {}", long.rsplit_once(':').map_or(long.as_str(), |(minutes, _)| minutes)),
    )
});
const MEMORY_USE: Column<Line> = left("MEM USE", 9, 5, |line| {
    let held_kb = line.job.info.memory_mb.saturating_mul(1024);
    own_use(line)
        .filter(|_| held_kb > 0)
        .map_or_else(String::new, |used| use_bar(used.memory_kb as f64, held_kb as f64))
});
const NAME: Column<Line> = left("NAME", 12, 2, |line| line.job.spec.name.clone());
const PLACE: Column<Line> = left("NODES OR REASON", 12, 1, |line| {
    if let Some((far, said)) = &line.whole {
        return format!("[{}] {said}", bar(*far, 10));
    }
    let mut text = String::new();
    line.job.add_nodes_or_reason(&mut text);
    text
});

/// Columns of jobs. The last one takes what is left of a line.
pub(super) const JOBS: &[Column<Line>] = &[
    JOBID,
    USER,
    left("ACCOUNT", 10, 7, |line| line.job.class.account.clone()),
    PARTITION,
    left("QOS", 8, 9, |line| line.job.class.qos.clone()),
    STATE,
    TIME,
    LIMIT,
    right("NODES", 5, 5, |line| one(line, || line.job.info.num_nodes.to_string())),
    right("CPUS", 5, 4, |line| one(line, || line.job.info.num_cpus.to_string())),
    right("MEMORY", 7, 8, |line| one(line, || line.job.memory(line.job.info.memory_mb))),
    Column { rank: 7, ..CPU_USE },
    Column { rank: 8, ..MEMORY_USE },
    NAME,
    PLACE,
];

/// Columns of the user's own jobs.
const OWN_JOBS: &[Column<Line>] = &[
    JOBID,
    PARTITION,
    STATE,
    TIME,
    LIMIT,
    right("NODES", 5, 7, |line| one(line, || line.job.info.num_nodes.to_string())),
    right("CPUS", 5, 7, |line| one(line, || line.job.info.num_cpus.to_string())),
    CPU_USE,
    MEMORY_USE,
    NAME,
    PLACE,
];

/// Returns the columns of a list of jobs.
fn jobs_of(view: View) -> &'static [Column<Line>] {
    if view == View::Mine { OWN_JOBS } else { JOBS }
}

/// Returns whether a list shows what jobs use on a screen of this width.
pub(super) fn shows_use(view: View, width: usize) -> bool {
    view != View::Nodes && fitting(jobs_of(view), width).iter().any(|column| column.title == CPU_USE.title)
}

/// Returns what only the line of one job has.
fn one(line: &Line, text: impl Fn() -> String) -> String {
    if line.whole.is_some() { String::new() } else { text() }
}

/// Returns what a job uses. None: the line is that of an array, or it is not known.
fn own_use(line: &Line) -> Option<&Lately> {
    line.used.as_ref().filter(|_| line.whole.is_none())
}

/// Returns a bar and a percentage: `|||   58%`.
fn use_bar(used: f64, held: f64) -> String {
    let share = if held > 0.0 { used / held } else { 0.0 };
    let full = ((share * 4.0).round() as usize).min(4);
    format!("{:4}{:>4.0}%", "|".repeat(full), (share * 100.0).min(999.0))
}

/// Columns of nodes.
const NODES: &[Column<NodeInfo>] = &[
    left("NODE", 12, 0, |node| node.name.clone()),
    Column { state: true, ..left("STATE", 10, 0, |node| NodeState::of(node).long()) },
    right("CPUS", 9, 1, |node| format!("{}/{}", node.cpus_used, node.hardware.cpus)),
    right("MEMORY", 13, 2, |node| {
        format!("{}/{}", format_memory_mb(node.memory_used_mb), format_memory_mb(node.hardware.memory_mb))
    }),
    right("LOAD", 6, 3, load),
    right("JOBS", 4, 4, |node| node.jobs_running.to_string()),
    left("GRES", 14, 6, |node| node.gres.clone()),
    left("PARTITIONS", 14, 5, |node| node.partitions.join(",")),
    left("REASON", 12, 2, |node| node.reason.as_ref().map_or_else(String::new, |(reason, ..)| reason.clone())),
];

/// Most tasks of an array that its sheet lists.
const TASKS: usize = 30;

/// All keys, for the sheet of help.
const KEYS: &str = "\
1 2 3        queue, nodes, your own jobs
up down      move (also k and j)
PgUp PgDn    move by a page; Home and End: to the first and the last
Enter        details of the selected job or node
w            why the selected job waits, and what would let it start
o            the end of its output, which follows what it writes
a            one line for each array, or one for each of its tasks
/            show only rows that contain what you type: id, name, user,
             partition, state, node, reason. Enter keeps it, Esc ends it
c            cancel the selected job
h r          hold it; release it
R            requeue it
d u          drain the selected node, with a reason; resume it (operators)
q Esc        back; q quits

c, h, r, R and u ask before they act: y does it, every other key does not.
What you may do is what scancel and scontrol let you do.";

/// Returns a screen as text, without blank lines at the end.
pub(super) fn text(app: &App, width: usize, height: usize) -> String {
    let screen = screen(app, width, height);
    // The foot has keys, which a text does not need.
    let lines = (0..height.saturating_sub(1)).map(|y| screen.line(y).trim_end().to_owned() + "\n");
    lines.collect::<String>().trim_end_matches('\n').to_owned() + "\n"
}

/// Draws a screen.
pub(super) fn screen(app: &App, width: usize, height: usize) -> Screen {
    let mut screen = Screen::new(width, height);
    head(app, &mut screen);
    let last = height.saturating_sub(1);
    if last >= AROUND - 2 {
        let body = AROUND - 2..last;
        match &app.sheet {
            Some(sheet) => show_sheet(app, sheet, body, &mut screen),
            None if app.view == View::Nodes => {
                list(app, &mut screen, body, NODES, |at| app.data.nodes.get(at).cloned());
            }
            None => list(app, &mut screen, body, jobs_of(app.view), |at| app.line(at)),
        }
    }
    if height > 1 {
        foot(app, &mut screen, last);
    }
    screen
}

fn head(app: &App, screen: &mut Screen) {
    let width = screen.width();
    let cluster = if app.known { app.data.cluster.as_str() } else { "squall" };
    let mut x = screen.put(0, 0, cluster, Style::BOLD);
    let (what, style) = match (&app.away, &app.data.trouble, &app.data.controller) {
        (Some(problem), ..) => {
            (format!("the controller does not answer, trying again: {problem}"), Style::coloured(colour::RED))
        }
        (None, Some(trouble), _) => (format!("takes no jobs: {trouble}"), Style::coloured(colour::RED)),
        (None, None, Some((host, version))) => (format!("controller {host}, Squall {version}"), Style::PLAIN),
        (None, None, None) if app.known => (String::new(), Style::PLAIN),
        (None, None, None) => ("asking the controller".to_owned(), Style::PLAIN),
    };
    x = screen.put(x + 2, 0, &what, style);
    let time = app.clock.show(app.clock.now);
    if let Some(at) = width.checked_sub(time.len()).filter(|at| *at > x) {
        screen.put(at, 0, &time, Style::PLAIN);
    }
    let totals = &app.totals;
    let (used, all) = totals.cpus;
    let bar = (width / 5).min(40);
    let full = if all == 0 { 0 } else { (used as usize * bar).div_ceil(all as usize).min(bar) };
    x = screen.put(0, 1, &format!("CPUs {used}/{all} ["), Style::PLAIN);
    x = screen.put(x, 1, &"|".repeat(full), Style::coloured(colour::GREEN));
    let percent = (used * 100).checked_div(all).unwrap_or(0);
    x = screen.put(x, 1, &format!("{}] {percent} %", " ".repeat(bar - full)), Style::PLAIN);
    if totals.gpus.1 > 0 {
        x = screen.put(x, 1, &format!("  GPUs {}/{}", totals.gpus.0, totals.gpus.1), Style::PLAIN);
    }
    screen.put(x, 1, &format!("  jobs {} running, {} pending", totals.running, totals.pending), Style::PLAIN);
    x = screen.put(0, 2, &format!("nodes {}:", app.data.nodes.len()), Style::PLAIN);
    for (at, (state, count)) in totals.nodes.iter().enumerate() {
        x = screen.put(x, 2, if at > 0 { ", " } else { " " }, Style::PLAIN);
        x = screen.put(x, 2, &format!("{count} {state}"), state_style(state, Style::PLAIN));
    }
    tabs(app, screen);
}

fn tabs(app: &App, screen: &mut Screen) {
    let mut x = 0;
    let all = [
        (View::Queue, "1 queue", app.data.jobs.jobs.len()),
        (View::Nodes, "2 nodes", app.data.nodes.len()),
        (View::Mine, "3 mine", app.totals.mine),
    ];
    for (view, title, count) in all {
        let text = if view == app.view { format!("[{title} {count}]") } else { format!(" {title} {count} ") };
        let style = if view == app.view { Style::BOLD } else { Style::PLAIN };
        x = screen.put(x, 3, &text, style) + 1;
    }
    if !app.filter.is_empty() || app.mode == Mode::Filter {
        screen.put(x + 1, 3, &format!("filter: {} ({})", app.filter, app.order.len()), Style::coloured(colour::YELLOW));
    }
}

/// Chooses the columns that fit.
fn fitting<R>(all: &'static [Column<R>], width: usize) -> Vec<&'static Column<R>> {
    let mut chosen: Vec<&Column<R>> = all.iter().collect();
    // One blank before each column, of which the first is the mark of the selected row.
    while chosen.iter().map(|column| column.width + 1).sum::<usize>() > width && chosen.len() > 1 {
        let Some(highest) = chosen.iter().map(|column| column.rank).max() else { break };
        let Some(at) = chosen.iter().rposition(|column| column.rank == highest) else { break };
        chosen.remove(at);
    }
    chosen
}

/// Draws the titles of a list, and the rows that fit on these lines of the screen.
pub(super) fn list<R>(
    app: &App,
    screen: &mut Screen,
    body: Range<usize>,
    all: &'static [Column<R>],
    mut row: impl FnMut(usize) -> Option<R>,
) {
    let columns = fitting(all, screen.width());
    line(screen, body.start, " ", &columns, Style::BOLD, |column| column.title.to_owned());
    let rows = body.start + 1..body.end;
    for (y, (at, position)) in rows.zip(app.order.iter().enumerate().skip(app.first)) {
        let Some(row) = row(*position) else { continue };
        let chosen = at == app.at;
        let style = Style { reversed: chosen, ..Style::PLAIN };
        line(screen, y, if chosen { ">" } else { " " }, &columns, style, |column| (column.text)(&row));
    }
    if app.order.is_empty() {
        let nothing = match (app.known, app.filter.is_empty(), app.view) {
            (false, ..) => "",
            (true, false, _) => "Nothing here matches the filter.",
            (true, true, View::Queue) => "The queue is empty.",
            (true, true, View::Nodes) => "There are no nodes.",
            (true, true, View::Mine) => "You have no jobs here. `squall report JOB` tells of one that has ended.",
        };
        screen.put(1, body.start + 1, nothing, Style::PLAIN);
    }
}

/// Writes a row: the mark, then each column behind a blank. The last column takes what is left.
fn line<R>(
    screen: &mut Screen,
    y: usize,
    mark: &str,
    columns: &[&Column<R>],
    style: Style,
    text: impl Fn(&Column<R>) -> String,
) {
    screen.put(0, y, &" ".repeat(screen.width()), style);
    screen.put(0, y, mark, style);
    let mut x = 1;
    for (at, column) in columns.iter().enumerate() {
        let text = text(column);
        let room = if at + 1 == columns.len() { screen.width() } else { column.width };
        let text = cut(&text, room);
        let blank = if column.right { column.width.saturating_sub(width(text)) } else { 0 };
        screen.put(x + blank, y, text, if column.state { state_style(text, style) } else { style });
        x += 1 + column.width;
    }
}

/// Returns a style with the colour of a state of jobs or nodes.
fn state_style(state: &str, style: Style) -> Style {
    Style { colour: colour::of_state(state), ..style }
}

fn show_sheet(app: &App, sheet: &Sheet, body: Range<usize>, screen: &mut Screen) {
    let (title, lines) = match sheet {
        Sheet::Help => ("Keys".to_owned(), KEYS.lines().map(str::to_owned).collect()),
        Sheet::Why(title, lines) | Sheet::Output(title, _, lines) => (title.clone(), lines.clone()),
        Sheet::Details => match (app.selected_line(), app.selected_node()) {
            (Some(Line { job, whole: Some(whole), .. }), _) => array_lines(app, &job, &whole),
            (Some(line), _) => (format!("Job {}", line.job.array_id()), job_lines(&line)),
            (None, Some(node)) => (format!("Node {}", node.name), node_lines(app, node)),
            (None, None) => ("Gone".to_owned(), vec!["It is no longer here.".to_owned()]),
        },
    };
    let width = screen.width();
    let shown = std::iter::once(&title).chain(&lines).flat_map(|line| wrap(line, width));
    for (y, line) in body.zip(shown.skip(app.scrolled)) {
        screen.put(0, y, line, Style::PLAIN);
    }
}

/// Returns title and lines of an array: how far it is, and its first tasks.
fn array_lines(app: &App, job: &JobRow, (far, said): &((u64, u64), String)) -> (String, Vec<String>) {
    let array = array_of(&job.info).unwrap_or(job.info.id);
    let mut lines = vec![
        format!("Name       {}", job.spec.name),
        format!("User       {}, account {}", job.owner.user, job.class.account),
        format!("Progress   [{}] {said}", bar(*far, 24)),
        format!("Report     squall report {array} tells which failed, and how to run them again"),
        String::new(),
    ];
    lines.extend(app.tasks(array).take(TASKS).map(|task| {
        let mut place = String::new();
        task.add_nodes_or_reason(&mut place);
        let state = words::state(task.info.state).0;
        format!("{:<11} {state:<10} {:>10}  {place}", task.array_id(), format_short(task.time_used()))
    }));
    (format!("Array {array}"), lines)
}

fn job_lines(line: &Line) -> Vec<String> {
    let job = &line.job;
    let (info, clock) = (&job.info, &job.clock);
    let mut lines = vec![
        format!("Name       {}", job.spec.name),
        format!("User       {}, account {}", job.owner.user, job.class.account),
        format!("Partition  {}, QOS {}", job.class.partition, job.class.qos),
        format!("State      {}", words::state(info.state).0),
    ];
    if info.state == squall_model::job::JobState::Pending {
        lines.push(format!("Reason     {}: {}", words::pending_reason(&info.reason), why::meaning(&info.reason)));
        lines.push(format!("Priority   {}", info.priority));
    }
    lines.extend([
        format!("Asks       {} task{}, {}", info.num_tasks, if info.num_tasks == 1 { "" } else { "s" }, job.tres()),
        format!("Nodes      {}", if info.run().nodes.is_empty() { "-" } else { &info.run().nodes }),
        format!("Time       {} of {}", format_short(job.time_used()), job.time_limit()),
        format!("Submitted  {}", clock.show(info.submit)),
        format!("Start      {}", clock.show_or(info.start, "not known")),
        format!("End        {}", clock.show_or(info.end, "not known")),
    ]);
    if let Some(used) = own_use(line) {
        let idle = used.idle().map_or(String::new(), |long| format!("; no CPU for {long}"));
        lines.push(format!("Uses       {:.1} CPUs, {} of memory{idle}", used.cpus, amount(used.memory_kb)));
    }
    if !info.dependency.is_empty() {
        lines.push(format!("Depends on {}", info.dependency));
    }
    lines.push(format!("Folder     {}", job.spec.work_dir));
    if job.is_batch() {
        lines.push(format!("Command    {}", job.command()));
        lines.push(format!("Output     {}", job.stdout()));
    }
    if let Some(comment) = &job.spec.comment {
        lines.push(format!("Comment    {comment}"));
    }
    lines
}

fn node_lines(app: &App, node: &NodeInfo) -> Vec<String> {
    let hardware = &node.hardware;
    let mut lines = vec![
        format!("State      {}", NodeState::of(node).long()),
        format!("CPUs       {} of {} in use, load {}", node.cpus_used, hardware.cpus, load(node)),
        format!(
            "Memory     {} of {} given to jobs, {} free",
            format_memory_mb(node.memory_used_mb),
            format_memory_mb(hardware.memory_mb),
            format_memory_mb(node.free_mb)
        ),
        format!("Jobs       {} running, {} ending", node.jobs_running, node.jobs_completing),
        format!("Partitions {}", node.partitions.join(",")),
    ];
    if !node.gres.is_empty() {
        lines.push(format!("Devices    {}, in use: {}", node.gres, node.gres_used));
    }
    if !node.features.is_empty() {
        lines.push(format!("Features   {}", node.features.join(",")));
    }
    if let Some((reason, _, since)) = &node.reason {
        lines.push(format!("Reason     {reason}, since {}", app.clock.show(*since)));
    }
    if !node.reservation.is_empty() {
        lines.push(format!("Reserved   {}", node.reservation));
    }
    lines.push(format!("Heard      {}", app.clock.show_or(Some(node.heard), "never")));
    lines.push(format!("System     {} {}, Squall {}", hardware.os, hardware.arch, node.version));
    lines
}

fn load(node: &NodeInfo) -> String {
    format!("{}.{:02}", node.load_centi / 100, node.load_centi % 100)
}

fn foot(app: &App, screen: &mut Screen, y: usize) {
    let (text, style) = match &app.mode {
        Mode::Confirm(deed) => (format!("{} y/n", deed.question), Style::BOLD),
        Mode::Filter => (format!("filter: {}_   Enter keeps it, Esc ends it", app.filter), Style::BOLD),
        Mode::Reason(node, reason) => {
            (format!("why drain {node}? {reason}_   Enter drains, Esc does not"), Style::BOLD)
        }
        Mode::Commands if !app.message.is_empty() => (app.message.clone(), Style::BOLD),
        Mode::Commands if app.sheet.is_some() => ("q back  up/down scroll  ? keys".to_owned(), Style::PLAIN),
        Mode::Commands if app.view == View::Nodes => {
            ("? keys  Enter details  d drain  u resume  / filter  1 queue  3 mine  q quit".to_owned(), Style::PLAIN)
        }
        Mode::Commands => (
            "? keys  Enter details  w why  o output  a arrays  c cancel  h hold  / filter  q quit".to_owned(),
            Style::PLAIN,
        ),
    };
    screen.put(0, y, &text, style);
}
