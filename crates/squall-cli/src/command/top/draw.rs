//! Draws a top: head, list, sheet, foot. Draws only the rows that are visible.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;
use ratatui::widgets::{Paragraph, Widget, Wrap};
use squall_model::duration::{format_memory_mb, format_short};
use squall_model::wire::info::NodeInfo;

use super::app::{AROUND, App, Mode, Sheet, View};
use squall_text::format::colour;
use squall_text::format::job::JobRow;
use squall_text::format::node::NodeState;
use squall_text::format::{harmless, why, words};

/// A column of a list.
struct Column<R> {
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

/// Columns of jobs. The last one takes what is left of a line.
const JOBS: &[Column<JobRow>] = &[
    left("JOBID", 11, 0, JobRow::array_id),
    left("USER", 8, 2, |job| job.owner.user.clone()),
    left("ACCOUNT", 10, 7, |job| job.class.account.clone()),
    left("PARTITION", 9, 3, |job| job.class.partition.clone()),
    left("QOS", 8, 9, |job| job.class.qos.clone()),
    Column { state: true, ..left("ST", 2, 0, |job| words::state(job.info.state).1.to_owned()) },
    right("TIME", 10, 1, |job| format_short(job.time_used())),
    right("LIMIT", 10, 6, JobRow::time_limit),
    right("NODES", 5, 5, |job| job.info.num_nodes.to_string()),
    right("CPUS", 5, 4, |job| job.info.num_cpus.to_string()),
    right("MEMORY", 7, 8, |job| job.memory(job.info.memory_mb)),
    left("NAME", 12, 2, |job| job.spec.name.clone()),
    left("NODES OR REASON", 12, 1, |job| {
        let mut text = String::new();
        job.add_nodes_or_reason(&mut text);
        text
    }),
];

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

/// All keys, for the sheet of help.
const KEYS: &str = "\
1 2 3        queue, nodes, your own jobs
up down      move (also k and j)
PgUp PgDn    move by a page; Home and End: to the first and the last
Enter        details of the selected job or node
w            why the selected job waits, and what would let it start
/            show only rows that contain what you type: id, name, user,
             partition, state, node, reason. Enter keeps it, Esc ends it
c            cancel the selected job
h r          hold it; release it
R            requeue it
d u          drain the selected node, with a reason; resume it (operators)
q Esc        back; q quits

c, h, r, R and u ask before they act: y does it, every other key does not.
What you may do is what scancel and scontrol let you do.";

/// Draws one frame.
pub(super) fn draw(app: &App, frame: &mut Frame<'_>) {
    let area = frame.area();
    screen(app, area, frame.buffer_mut());
}

/// Returns a screen as text, without blank lines at the end.
pub(super) fn text(app: &App, width: u16, height: u16) -> String {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    screen(app, area, &mut buffer);
    let mut lines: Vec<String> = Vec::new();
    // The foot has keys, which a text does not need.
    for y in 0..height.saturating_sub(1) {
        let (mut line, mut x) = (String::new(), 0);
        while x < width {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            // A wide character takes the cell behind it, too.
            x += u16::try_from(Span::raw(symbol).width()).unwrap_or(1).max(1);
        }
        lines.push(line.trim_end().to_owned());
    }
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.join("\n") + "\n"
}

fn screen(app: &App, area: Rect, buf: &mut Buffer) {
    let mut pen = Pen { area, buf, coloured: app.coloured };
    head(app, &mut pen);
    let last = area.height.saturating_sub(1);
    if last >= AROUND - 2 {
        let body = Rect::new(area.x, area.y + AROUND - 2, area.width, last - (AROUND - 2));
        match &app.sheet {
            Some(sheet) => show_sheet(app, sheet, body, pen.buf),
            None if app.view == View::Nodes => {
                list(app, &mut pen, body, NODES, |at| app.data.nodes.get(at).cloned());
            }
            None => list(app, &mut pen, body, JOBS, |at| app.job(at)),
        }
    }
    if area.height > 1 {
        foot(app, &mut pen, last);
    }
}

/// Writes lines into a screen, cut at its right end.
struct Pen<'a> {
    area: Rect,
    buf: &'a mut Buffer,
    coloured: bool,
}

impl Pen<'_> {
    /// Writes a text; returns the column behind it.
    fn put(&mut self, x: u16, y: u16, text: &str, style: Style) -> u16 {
        if x >= self.area.width || y >= self.area.height {
            return x;
        }
        let room = usize::from(self.area.width - x);
        let (end, _) = self.buf.set_stringn(self.area.x + x, self.area.y + y, harmless(text), room, style);
        end - self.area.x
    }

    fn paint(&self, colour: Color) -> Style {
        painted(colour, self.coloured)
    }
}

fn painted(colour: Color, coloured: bool) -> Style {
    if coloured { Style::new().fg(colour) } else { Style::new() }
}

/// Returns the style of a state of jobs or nodes.
fn state_style(state: &str, coloured: bool) -> Style {
    let colour = match colour::of_state(state) {
        Some(colour::RED) => Color::Red,
        Some(colour::GREEN) => Color::Green,
        Some(colour::YELLOW) => Color::Yellow,
        Some(colour::CYAN) => Color::Cyan,
        _ => return Style::new(),
    };
    painted(colour, coloured)
}

fn head(app: &App, pen: &mut Pen<'_>) {
    let (bold, width) = (Style::new().add_modifier(Modifier::BOLD), pen.area.width);
    let cluster = if app.known { app.data.cluster.as_str() } else { "squall" };
    let mut x = pen.put(0, 0, cluster, bold);
    let (what, style) = match (&app.away, &app.data.trouble, &app.data.controller) {
        (Some(problem), ..) => {
            (format!("the controller does not answer, trying again: {problem}"), pen.paint(Color::Red))
        }
        (None, Some(trouble), _) => (format!("takes no jobs: {trouble}"), pen.paint(Color::Red)),
        (None, None, Some((host, version))) => (format!("controller {host}, Squall {version}"), Style::new()),
        (None, None, None) if app.known => (String::new(), Style::new()),
        (None, None, None) => ("asking the controller".to_owned(), Style::new()),
    };
    x = pen.put(x + 2, 0, &what, style);
    let time = app.clock.show(app.clock.now);
    let length = u16::try_from(time.len()).unwrap_or(u16::MAX);
    if let Some(at) = width.checked_sub(length).filter(|at| *at > x) {
        pen.put(at, 0, &time, Style::new());
    }
    let totals = &app.totals;
    let (used, all) = totals.cpus;
    let bar = usize::from(width / 5).min(40);
    let full = if all == 0 { 0 } else { (used as usize * bar).div_ceil(all as usize).min(bar) };
    x = pen.put(0, 1, &format!("CPUs {used}/{all} ["), Style::new());
    x = pen.put(x, 1, &"|".repeat(full), pen.paint(Color::Green));
    let percent = (used * 100).checked_div(all).unwrap_or(0);
    x = pen.put(x, 1, &format!("{}] {percent} %", " ".repeat(bar - full)), Style::new());
    if totals.gpus.1 > 0 {
        x = pen.put(x, 1, &format!("  GPUs {}/{}", totals.gpus.0, totals.gpus.1), Style::new());
    }
    pen.put(x, 1, &format!("  jobs {} running, {} pending", totals.running, totals.pending), Style::new());
    x = pen.put(0, 2, &format!("nodes {}:", app.data.nodes.len()), Style::new());
    for (at, (state, count)) in totals.nodes.iter().enumerate() {
        let style = state_style(state, app.coloured);
        x = pen.put(x, 2, if at > 0 { ", " } else { " " }, Style::new());
        x = pen.put(x, 2, &format!("{count} {state}"), style);
    }
    tabs(app, pen);
}

fn tabs(app: &App, pen: &mut Pen<'_>) {
    let mut x = 0;
    let all = [
        (View::Queue, "1 queue", app.data.jobs.jobs.len()),
        (View::Nodes, "2 nodes", app.data.nodes.len()),
        (View::Mine, "3 mine", app.totals.mine),
    ];
    for (view, title, count) in all {
        let text = if view == app.view { format!("[{title} {count}]") } else { format!(" {title} {count} ") };
        let style = if view == app.view { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
        x = pen.put(x, 3, &text, style) + 1;
    }
    if !app.filter.is_empty() || app.mode == Mode::Filter {
        pen.put(x + 1, 3, &format!("filter: {} ({})", app.filter, app.order.len()), pen.paint(Color::Yellow));
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

fn list<R>(app: &App, pen: &mut Pen<'_>, body: Rect, all: &'static [Column<R>], row: impl Fn(usize) -> Option<R>) {
    let columns = fitting(all, usize::from(body.width));
    let top = body.y - pen.area.y;
    let titles = |column: &Column<R>| (column.title.to_owned(), Style::new().add_modifier(Modifier::BOLD));
    line(pen, top, " ", &columns, titles);
    let rows = usize::from(body.height.saturating_sub(1));
    for (at, position) in app.order.iter().enumerate().skip(app.first).take(rows) {
        let Some(row) = row(*position) else { continue };
        let y = top + 1 + (at - app.first) as u16;
        let chosen = at == app.at;
        let more = if chosen { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        if chosen {
            pen.put(0, y, &" ".repeat(usize::from(body.width)), more);
        }
        let painter = |column: &Column<R>| {
            let text = (column.text)(&row);
            let style = if column.state { state_style(&text, app.coloured) } else { Style::new() };
            (text, style.patch(more))
        };
        line(pen, y, if chosen { ">" } else { " " }, &columns, painter);
    }
    if app.order.is_empty() {
        let nothing = match (app.known, app.filter.is_empty(), app.view) {
            (false, ..) => "",
            (true, false, _) => "Nothing here matches the filter.",
            (true, true, View::Queue) => "The queue is empty.",
            (true, true, View::Nodes) => "There are no nodes.",
            (true, true, View::Mine) => "You have no jobs here. `squall report JOB` tells of one that has ended.",
        };
        pen.put(1, top + 1, nothing, Style::new());
    }
}

/// Writes a row: the mark, then each column behind a blank. The last column takes what is left.
fn line<R>(
    pen: &mut Pen<'_>,
    y: u16,
    mark: &str,
    columns: &[&Column<R>],
    text: impl Fn(&Column<R>) -> (String, Style),
) {
    let (mut x, mut mark) = (0_u16, mark);
    for (at, column) in columns.iter().enumerate() {
        let (text, style) = text(column);
        pen.put(x, y, mark, Style::new());
        mark = " ";
        let room = if at + 1 == columns.len() { usize::from(pen.area.width) } else { column.width };
        let text = cut(&text, room);
        let blank = if column.right { column.width.saturating_sub(Span::raw(text).width()) } else { 0 };
        pen.put(x + 1 + blank as u16, y, text, style);
        x += 1 + column.width as u16;
    }
}

/// Cuts a text to a number of columns of the screen.
fn cut(text: &str, width: usize) -> &str {
    let mut end = 0;
    for (at, c) in text.char_indices() {
        let next = at + c.len_utf8();
        if Span::raw(&text[..next]).width() > width {
            break;
        }
        end = next;
    }
    &text[..end]
}

fn show_sheet(app: &App, sheet: &Sheet, body: Rect, buf: &mut Buffer) {
    let (title, lines) = match sheet {
        Sheet::Help => ("Keys".to_owned(), KEYS.lines().map(str::to_owned).collect()),
        Sheet::Why(title, lines) => (title.clone(), lines.clone()),
        Sheet::Details => match (app.selected_job(), app.selected_node()) {
            (Some(job), _) => (format!("Job {}", job.array_id()), job_lines(&job)),
            (None, Some(node)) => (format!("Node {}", node.name), node_lines(app, node)),
            (None, None) => ("Gone".to_owned(), vec!["It is no longer here.".to_owned()]),
        },
    };
    let text = format!("{title}\n{}", lines.iter().map(|line| harmless(line)).collect::<Vec<_>>().join("\n"));
    Paragraph::new(text).wrap(Wrap { trim: false }).scroll((app.scrolled, 0)).render(body, buf);
}

fn job_lines(job: &JobRow) -> Vec<String> {
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
        format!("Asks       {} tasks, {}", info.num_tasks, job.tres()),
        format!("Nodes      {}", if info.run().nodes.is_empty() { "-" } else { &info.run().nodes }),
        format!("Time       {} of {}", format_short(job.time_used()), job.time_limit()),
        format!("Submitted  {}", clock.show(info.submit)),
        format!("Start      {}", clock.show_or(info.start, "not known")),
        format!("End        {}", clock.show_or(info.end, "not known")),
    ]);
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

fn foot(app: &App, pen: &mut Pen<'_>, y: u16) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let (text, style) = match &app.mode {
        Mode::Confirm(deed) => (format!("{} y/n", deed.question), bold),
        Mode::Filter => (format!("filter: {}_   Enter keeps it, Esc ends it", app.filter), bold),
        Mode::Reason(node, reason) => (format!("why drain {node}? {reason}_   Enter drains, Esc does not"), bold),
        Mode::Commands if !app.message.is_empty() => (app.message.clone(), bold),
        Mode::Commands if app.sheet.is_some() => ("q back  up/down scroll  ? keys".to_owned(), Style::new()),
        Mode::Commands if app.view == View::Nodes => {
            ("? keys  Enter details  d drain  u resume  / filter  1 queue  3 mine  q quit".to_owned(), Style::new())
        }
        Mode::Commands => (
            "? keys  Enter details  w why  c cancel  h hold  r release  R requeue  / filter  q quit".to_owned(),
            Style::new(),
        ),
    };
    pen.put(0, y, &text, style);
}
