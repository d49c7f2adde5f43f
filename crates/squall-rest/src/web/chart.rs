//! Charts as SVG: titles and descriptions for screen readers, axes with units, colours by classes of the style.

use std::fmt::Write;

use squall_model::time::{Span, Time};
use squall_text::format::clock::Clock;
use squall_text::picture::{At, nice};

use crate::web::html::Html;

/// Size of charts over time and histograms, and their margins.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 176.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 24.0;
/// Most points of a line; there are fewer pixels than more would need.
const POINTS: usize = 240;

/// What a chart shows, for people who see it and for screen readers.
#[derive(Clone, Debug)]
pub(crate) struct Caption<'a> {
    /// Name of the chart within its page.
    pub(crate) id: &'static str,
    pub(crate) title: &'a str,
    /// The figures in words.
    pub(crate) about: String,
}

impl Caption<'_> {
    fn open(&self, html: &mut Html, width: f64, height: f64, class: &'static str) {
        html.put(
            "<svg class=\"chart {}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"{}-t {}-d\">\
             <title id=\"{}-t\">{}</title><desc id=\"{}-d\">{}</desc>",
            &[&class, &At(width), &At(height), &self.id, &self.id, &self.id, &self.title, &self.id, &self.about],
        );
    }
}

/// A line over time.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: &'static str,
    pub(crate) class: &'static str,
    /// Whether the area below is filled.
    pub(crate) filled: bool,
    pub(crate) points: Vec<(Time, f64)>,
}

/// Appends lines over time, with a legend. `unit`: what the values are; `most`: least upper end of the axis.
pub(crate) fn over_time(
    html: &mut Html,
    caption: &Caption<'_>,
    clock: &Clock,
    unit: &str,
    most: f64,
    lines: &[Series],
) {
    let times = || lines.iter().flat_map(|line| line.points.iter().map(|(at, _)| *at));
    let (Some(from), Some(until)) = (times().min(), times().max()) else {
        html.raw("<p class=\"dim\">Nothing was seen yet.</p>");
        return;
    };
    let until = until.max(from + Span::from_secs(60));
    let highest = lines.iter().flat_map(|line| line.points.iter().map(|(_, y)| *y)).fold(most, f64::max);
    let (step, top) = steps(highest, 4);
    let length = until.since(from).0 as f64;
    let x = |at: Time| LEFT + at.since(from).0 as f64 / length * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
    legend(html, lines.iter().map(|line| (line.class, line.name)));
    caption.open(html, WIDTH, HEIGHT, "lines");
    levels(html, step, top, unit, &y);
    time_axis(html, clock, (from, until), HEIGHT - BOTTOM, (TOP, LEFT, WIDTH - RIGHT), 5);
    for line in lines {
        let skip = line.points.len().div_ceil(POINTS).max(1);
        let last = line.points.len().saturating_sub(1);
        let kept = line.points.iter().enumerate().filter(|(at, _)| at % skip == 0 || *at == last);
        let mut path = String::new();
        let mut first = None;
        for (_, (at, value)) in kept {
            // Writing to a String can't fail.
            let _ = write!(path, "{}{} {}", if first.is_none() { 'M' } else { 'L' }, At(x(*at)), At(y(*value)));
            first.get_or_insert(x(*at));
        }
        if let (true, Some(first), Some((last, _))) = (line.filled, first, line.points.last()) {
            let (bottom, last) = (At(y(0.0)), At(x(*last)));
            html.put("<path class=\"area {}\" d=\"{}V{}H{}z\"/>", &[&line.class, &path, &bottom, &At(first)]);
            debug_assert!(last.0 >= first);
        }
        html.put("<path class=\"line {}\" d=\"{}\"/>", &[&line.class, &path]);
    }
    html.raw("</svg>");
}

/// Appends bars side by side, each with its name below and its number above.
pub(crate) fn bars(html: &mut Html, caption: &Caption<'_>, class: &'static str, unit: &str, all: &[(String, u64)]) {
    let highest = all.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1) as f64;
    let (step, top) = steps(highest, 3);
    let y = |value: f64| HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
    let width = (WIDTH - LEFT - RIGHT) / all.len().max(1) as f64;
    caption.open(html, WIDTH, HEIGHT, "bars");
    levels(html, step, top, unit, &y);
    for (at, (name, count)) in all.iter().enumerate() {
        let left = LEFT + at as f64 * width;
        let middle = At(left + width / 2.0);
        if *count > 0 {
            let high = y(*count as f64).min(y(0.0) - 1.0);
            html.put(
                "<rect class=\"bar {}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"2\"/>",
                &[&class, &At(left + 3.0), &At(high), &At(width - 6.0), &At(y(0.0) - high)],
            );
            html.put(
                "<text class=\"value\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                &[&middle, &At(high - 3.0), &short(*count as f64)],
            );
        }
        html.put("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>", &[&middle, &At(HEIGHT - 8.0), name]);
    }
    html.raw("</svg>");
}

/// A bar of a plan: a job over time.
#[derive(Clone, Debug)]
pub(crate) struct PlanBar {
    pub(crate) name: String,
    pub(crate) class: &'static str,
    pub(crate) from: Time,
    /// None: without end.
    pub(crate) until: Option<Time>,
    pub(crate) note: String,
}

/// Appends a Gantt chart: one row a job, from `window.0` to `window.1`, with a line at the present.
pub(crate) fn plan(html: &mut Html, caption: &Caption<'_>, clock: &Clock, window: (Time, Time), all: &[PlanBar]) {
    const WIDE: f64 = 960.0;
    const ROW: f64 = 18.0;
    const NAMES: f64 = 150.0;
    let height = TOP + all.len() as f64 * ROW + BOTTOM;
    let length = window.1.since(window.0).0.max(1) as f64;
    let x = |at: Time| NAMES + at.since(window.0).0 as f64 / length * (WIDE - NAMES - RIGHT);
    html.raw("<div class=\"scroll\" tabindex=\"0\">");
    caption.open(html, WIDE, height, "plan");
    time_axis(html, clock, window, height - BOTTOM, (TOP, NAMES, WIDE - RIGHT), 8);
    for (at, job) in all.iter().enumerate() {
        let top = TOP + at as f64 * ROW;
        let (from, until) =
            (job.from.clamp(window.0, window.1), job.until.unwrap_or(window.1).clamp(window.0, window.1));
        let name: String = job.name.chars().take(24).collect();
        html.put("<text class=\"name\" x=\"0\" y=\"{}\">{}</text>", &[&At(top + 12.5), &name]);
        html.put(
            "<rect class=\"job {}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\"><title>{}</title></rect>",
            &[&job.class, &At(x(from)), &At(top + 2.0), &At((x(until) - x(from)).max(2.0)), &At(ROW - 5.0), &job.note],
        );
    }
    if window.0 <= clock.now && clock.now <= window.1 {
        let now = At(x(clock.now));
        html.put("<path class=\"now\" d=\"M{} {}V{}\"/>", &[&now, &At(TOP - 4.0), &At(height - BOTTOM)]);
        html.put(
            "<text class=\"nowtext\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">now</text>",
            &[&now, &At(TOP - 5.0)],
        );
    }
    html.raw("</svg></div>");
}

/// Appends a bar of parts of a whole, in words for screen readers.
pub(crate) fn meter(html: &mut Html, about: &str, whole: u64, parts: &[(&'static str, u64)]) {
    html.put(
        "<svg class=\"meter\" viewBox=\"0 0 200 8\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
        &[&about],
    );
    html.raw("<rect class=\"whole\" width=\"200\" height=\"8\"/>");
    let mut left = 0.0;
    for (class, part) in parts.iter().filter(|(_, part)| *part > 0) {
        let width = (*part as f64 / whole.max(1) as f64 * 200.0).min(200.0 - left).max(0.0);
        html.put("<rect class=\"{}\" x=\"{}\" width=\"{}\" height=\"8\"/>", &[class, &At(left), &At(width)]);
        left += width;
    }
    html.raw("</svg>");
}

/// Appends small squares, `columns` in a row: one path for each class, in which a run of equal squares is one dashed
/// line. `classes`: the class of each square, as an index of `names`; a higher number: a
/// hole. `titles`: what is shown of each square that is pointed at; empty: nothing is.
pub(crate) fn squares(
    html: &mut Html,
    (about, columns): (&str, usize),
    names: &[&'static str],
    (classes, titles): (&[usize], &[String]),
) {
    const CELL: usize = 10;
    let rows = classes.len().div_ceil(columns).max(1);
    html.put(
        "<svg class=\"squares\" viewBox=\"0 0 {} {}\" width=\"{}\" role=\"img\" aria-label=\"{}\">",
        &[&(columns * CELL), &(rows * CELL), &(columns * CELL), &about],
    );
    let mut paths = vec![String::new(); names.len()];
    for (row, line) in classes.chunks(columns).enumerate() {
        let mut at = 0;
        for run in line.chunk_by(|a, b| a == b) {
            if let Some(path) = run.first().and_then(|class| paths.get_mut(*class)) {
                // Writing to a String can't fail.
                let _ = write!(path, "M{} {}h{}", at * CELL + 1, row * CELL + 5, run.len() * CELL - 2);
            }
            at += run.len();
        }
    }
    for (name, path) in names.iter().zip(&paths).filter(|(_, path)| !path.is_empty()) {
        html.put("<path class=\"{}\" d=\"{}\"/>", &[name, path]);
    }
    for (at, title) in titles.iter().enumerate().filter(|(_, title)| !title.is_empty()) {
        let (x, y) = (at % columns * CELL, at / columns * CELL);
        html.put(
            "<rect class=\"spot\" x=\"{}\" y=\"{}\" width=\"10\" height=\"10\"><title>{}</title></rect>",
            &[&x, &y, title],
        );
    }
    html.raw("</svg>");
}

/// Appends names with their colours.
pub(crate) fn legend<'a>(html: &mut Html, all: impl Iterator<Item = (&'static str, &'a str)>) {
    html.raw("<ul class=\"legend\">");
    for (class, name) in all {
        html.put(
            "<li><svg class=\"key {}\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><path d=\"M1 5h8\"/></svg> {}</li>",
            &[&class, &name],
        );
    }
    html.raw("</ul>");
}

fn levels(html: &mut Html, step: f64, top: f64, unit: &str, y: &dyn Fn(f64) -> f64) {
    let count = (top / step).round() as usize;
    for level in 0..=count {
        let value = level as f64 * step;
        html.put("<path class=\"grid\" d=\"M{} {}H{}\"/>", &[&At(LEFT), &At(y(value)), &At(WIDTH - RIGHT)]);
        html.put(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            &[&At(LEFT - 5.0), &At(y(value) + 3.5), &short(value)],
        );
    }
    html.put("<text class=\"unit\" x=\"0\" y=\"8\">{}</text>", &[&unit]);
}

fn time_axis(
    html: &mut Html,
    clock: &Clock,
    (from, until): (Time, Time),
    y: f64,
    (top, left, right): (f64, f64, f64),
    most: u64,
) {
    let seconds = until.since(from).secs().max(1);
    let nice =
        [10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000];
    let step = nice.into_iter().find(|step| seconds / step <= most).unwrap_or(31_536_000);
    let pattern = match step {
        ..60 => "%H:%M:%S",
        60..43_200 => "%H:%M",
        _ => "%-d %b %H:%M",
    };
    let local = clock.local(from);
    // Ticks are at whole steps of local time.
    let offset = i64::from(local.offset().seconds());
    let first = (from.secs().cast_signed() + offset).div_euclid(step.cast_signed()) + 1;
    let ticks = (first..).map(|n| (n * step.cast_signed() - offset).cast_unsigned()).take_while(|s| *s <= until.secs());
    for secs in ticks {
        let at = Time::from_secs(secs);
        let x = left + at.since(from).0 as f64 / until.since(from).0 as f64 * (right - left);
        html.put("<path class=\"grid\" d=\"M{} {}V{}\"/>", &[&At(x), &At(top), &At(y + 3.0)]);
        let anchor = if x > right - 16.0 { "end" } else { "middle" };
        let text = clock.local(at).strftime(pattern).to_string();
        html.put("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>", &[&At(x), &At(y + 14.0), &anchor, &text]);
    }
    html.put("<path class=\"axis\" d=\"M{} {}H{}\"/>", &[&At(left), &At(y), &At(right)]);
}

/// Returns the distance of levels, and the highest level, so that there are about `count` up to `highest`.
fn steps(highest: f64, count: u32) -> (f64, f64) {
    let step = nice(highest.max(1.0) / f64::from(count)).max(1.0);
    (step, (highest.max(1.0) / step).ceil() * step)
}

/// Formats a number shortly: `950`, `1.2k`, `3M`.
pub(crate) fn short(value: f64) -> String {
    let scaled = |value: f64, unit: &str| {
        let text = if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") };
        format!("{}{unit}", text.trim_end_matches(".0"))
    };
    match value {
        v if v >= 1e9 => scaled(v / 1e9, "G"),
        v if v >= 1e6 => scaled(v / 1e6, "M"),
        v if v >= 1e4 => scaled(v / 1e3, "k"),
        v => scaled(v, ""),
    }
}

/// Returns a share in percent; 0 of nothing.
pub(crate) fn percent(part: u64, whole: u64) -> u64 {
    (part.saturating_mul(100) + whole / 2).checked_div(whole).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{percent, short, squares, steps};
    use crate::web::html::Html;

    #[test]
    fn axes_have_round_numbers() {
        assert_eq!(steps(97.0, 4), (25.0, 100.0));
        assert_eq!(steps(3.0, 4), (1.0, 3.0));
        assert_eq!(steps(0.0, 4), (1.0, 1.0));
        assert_eq!(
            ["950", "12k", "3.5M", "0.5"],
            [950.0, 12_000.0, 3.5e6, 0.5].map(short).each_ref().map(String::as_str)
        );
        assert_eq!((percent(1, 3), percent(1, 0)), (33, 0));
    }

    #[test]
    fn equal_squares_are_one_line() {
        let mut html = Html::new();
        squares(&mut html, ("nodes", 4), &["a", "b"], (&[0, 0, 1, 1, 9, 0], &[]));
        assert!(html.as_str().contains("<path class=\"a\" d=\"M1 5h18M11 15h8\"/><path class=\"b\" d=\"M21 5h18\"/>"));
    }
}
