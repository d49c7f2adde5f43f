//! Pictures as SVG: charts of series, and boxes of cells slice by slice.

pub mod slices;

use std::fmt::{self, Display, Write};

/// Width and height of a chart, pixels.
const SIZE: (u32, u32) = (1280, 800);
/// Sizes of labels and of the title, pixels.
const TEXT: f64 = 20.0;
const TITLE: f64 = 24.0;
/// Approximate width of a letter, as a part of the text's size.
const LETTER: f64 = 0.55;
/// The axes, pixels: left, right, top, bottom.
const FRAME: (f64, f64, f64, f64) = (100.0, 1240.0, 60.0, 730.0);
/// Approximate number of labels on a linear axis.
const LABELS: f64 = 8.0;
/// Length of a line in the legend, and its distance from the name, pixels.
const KEY: (f64, f64) = (20.0, 10.0);

/// Colours of series.
const COLORS: [&str; 9] =
    ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#1796aa", "#5a5a5a", "#aaaf14"];

/// A coordinate in a picture, with one decimal at most.
#[derive(Clone, Copy, Debug)]
pub struct At(pub f64);

impl Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0 * 10.0).round() as i64;
        if tenths % 10 == 0 { write!(f, "{}", tenths / 10) } else { write!(f, "{}", tenths as f64 / 10.0) }
    }
}

/// Way in which a series of points is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    /// A line through the points is drawn.
    Line,
    /// A dashed line through the points is drawn: they were not measured.
    Dashes,
    /// Steps are drawn: the value of a point holds until the next one.
    Steps,
    /// Only the points are drawn.
    Dots,
    /// Boxes are drawn: each two points are opposite corners of one.
    Boxes,
}

/// A named list of points in a chart.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name in the legend; empty: the series is not in the legend.
    pub name: String,
    /// How the points are drawn.
    pub stroke: Stroke,
    /// Index of the series' colour; series that belong together share one.
    pub color: usize,
    /// The points (x, y).
    pub points: Vec<(f64, f64)>,
}

/// An axis of a chart.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What the axis shows, with its unit.
    pub label: String,
    /// Whether the axis is logarithmic. Points at or below zero are then omitted.
    pub log: bool,
}

/// A chart of several series, with two axes.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Title above the chart.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The series, drawn in this order.
    pub series: Vec<Series>,
}

/// An SVG picture that is being drawn.
struct Canvas(String);

impl Canvas {
    fn new((width, height): (u32, u32)) -> Self {
        let mut canvas = Self(String::new());
        canvas.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"sans-serif\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        ));
        canvas
    }

    fn put(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a String can't fail.
        let _ = self.0.write_fmt(text);
    }

    /// Draws a line through points. `more`: attributes.
    fn line(&mut self, points: &[(f64, f64)], color: &str, width: u32, more: &str) {
        self.put(format_args!("<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"{more} points=\""));
        for (x, y) in points {
            self.put(format_args!("{},{} ", At(*x), At(*y)));
        }
        self.put(format_args!("\"/>\n"));
    }

    /// Draws a filled box. `more`: attributes.
    fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), color: &str, more: &str) {
        let (x, y, width, height) = (At(x), At(y), At(width), At(height));
        let size = format_args!("width=\"{width}\" height=\"{height}\"");
        self.put(format_args!("<rect x=\"{x}\" y=\"{y}\" {size} fill=\"{color}\"{more}/>\n"));
    }

    /// Writes a text. `more`: attributes.
    fn text(&mut self, (x, y): (f64, f64), size: f64, text: &str, more: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        self.put(format_args!("<text x=\"{}\" y=\"{}\" font-size=\"{size}\"{more}>{text}</text>\n", At(x), At(y)));
    }

    fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

const MIDDLE: &str = " text-anchor=\"middle\"";

/// Range of an axis and its labels (logarithms for a logarithmic axis).
#[derive(Clone, Debug, PartialEq)]
struct Scale {
    from: f64,
    until: f64,
    labels: Vec<f64>,
}

impl Scale {
    /// Returns the place of a value within the range, from 0 to 1.
    fn share(&self, axis: &Axis, value: f64) -> f64 {
        let value = if axis.log { value.log10() } else { value };
        (value - self.from) / (self.until - self.from)
    }
}

impl Chart {
    /// Returns the chart as SVG.
    pub fn svg(&self) -> String {
        let mut canvas = Canvas::new(SIZE);
        let points = |pick: fn(&(f64, f64)) -> f64| self.series.iter().flat_map(move |s| s.points.iter().map(pick));
        let (x, y) = (scale(&self.x, points(|p| p.0)), scale(&self.y, points(|p| p.1)));
        self.axes(&mut canvas, &x, &y);
        for series in &self.series {
            self.draw(&mut canvas, (&x, &y), series);
        }
        // With fewer than two named series no legend is needed: the title says what the chart shows.
        if self.series.iter().filter(|series| !series.name.is_empty()).count() > 1 {
            self.legend(&mut canvas, self.corner(&x, &y));
        }
        canvas.end()
    }

    fn axes(&self, canvas: &mut Canvas, x: &Scale, y: &Scale) {
        let (left, right, top, bottom) = FRAME;
        let (across, up) = (f64::midpoint(left, right), f64::midpoint(top, bottom));
        canvas.text((across, 40.0), TITLE, &self.title, MIDDLE);
        for value in &x.labels {
            let at = left + (value - x.from) / (x.until - x.from) * (right - left);
            canvas.line(&[(at, top), (at, bottom)], "#dddddd", 1, "");
            canvas.text((at, bottom + 25.0), TEXT, &label(*value, self.x.log), MIDDLE);
        }
        for value in &y.labels {
            let at = bottom - (value - y.from) / (y.until - y.from) * (bottom - top);
            canvas.line(&[(left, at), (right, at)], "#dddddd", 1, "");
            canvas.text((left - 8.0, at + 7.0), TEXT, &label(*value, self.y.log), " text-anchor=\"end\"");
        }
        canvas.line(&[(left, top), (left, bottom), (right, bottom)], "#000000", 1, "");
        canvas.text((across, bottom + 55.0), TEXT, &self.x.label, MIDDLE);
        canvas.text((30.0, up), TEXT, &self.y.label, &format!("{MIDDLE} transform=\"rotate(-90 30 {up})\""));
    }

    fn draw(&self, canvas: &mut Canvas, (x, y): (&Scale, &Scale), series: &Series) {
        let (left, right, top, bottom) = FRAME;
        let shown = series.points.iter().filter(|(x, y)| (!self.x.log || *x > 0.0) && (!self.y.log || *y > 0.0));
        let place = |(px, py): &(f64, f64)| {
            let (across, up) = (x.share(&self.x, *px), y.share(&self.y, *py));
            (left + across * (right - left), bottom - up * (bottom - top))
        };
        let points: Vec<(f64, f64)> = shown.map(place).collect();
        let color = COLORS[series.color % COLORS.len()];
        match series.stroke {
            Stroke::Line => canvas.line(&points, color, 2, ""),
            Stroke::Dashes => canvas.line(&points, color, 2, " stroke-dasharray=\"8 6\""),
            Stroke::Steps => canvas.line(&steps(&points), color, 1, ""),
            Stroke::Boxes => {
                for pair in points.chunks_exact(2) {
                    let ((x, y), (other_x, other_y)) = (pair[0], pair[1]);
                    canvas.rect(
                        (x.min(other_x), y.min(other_y)),
                        ((x - other_x).abs(), (y - other_y).abs()),
                        color,
                        "",
                    );
                }
            }
            Stroke::Dots => {
                for (x, y) in points {
                    canvas.put(format_args!("<circle cx=\"{}\" cy=\"{}\" r=\"4\" fill=\"{color}\"/>\n", At(x), At(y)));
                }
            }
        }
    }

    /// Returns the corner with the fewest points for the legend, as (right, bottom), preferring the upper corners.
    fn corner(&self, x: &Scale, y: &Scale) -> (bool, bool) {
        let mut corners = [(0_u32, (false, false)), (0, (true, false)), (0, (false, true)), (0, (true, true))];
        for point in self.series.iter().flat_map(|series| &series.points) {
            let (across, up) = (x.share(&self.x, point.0), y.share(&self.y, point.1));
            // Points in the middle don't collide with a legend.
            if (across - 0.5).abs() > 0.05 {
                corners[usize::from(across > 0.5) + if up > 0.5 { 0 } else { 2 }].0 += 1;
            }
        }
        let [first, others @ ..] = corners;
        others.into_iter().fold(first, |least, other| if other.0 < least.0 { other } else { least }).1
    }

    fn legend(&self, canvas: &mut Canvas, (is_right, is_low): (bool, bool)) {
        const ROW: f64 = 26.0;
        let named: Vec<&Series> = self.series.iter().filter(|series| !series.name.is_empty()).collect();
        let letters = named.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
        let (width, height) = (letters as f64 * TEXT * LETTER + KEY.0 + 3.0 * KEY.1, named.len() as f64 * ROW + KEY.1);
        let (left, right, top, bottom) = FRAME;
        let x = if is_right { right - width - 10.0 } else { left + 10.0 };
        let y = if is_low { bottom - height - 10.0 } else { top + 10.0 };
        canvas.rect((x, y), (width, height), "#ffffff", " fill-opacity=\"0.85\" stroke=\"#bbbbbb\"");
        for (at, series) in named.into_iter().enumerate() {
            let (x, middle) = (x + KEY.1, y + KEY.1 / 2.0 + (at as f64 + 0.5) * ROW);
            let color = COLORS[series.color % COLORS.len()];
            match series.stroke {
                Stroke::Dots => canvas.line(&[(x + 8.0, middle), (x + 12.0, middle)], color, 6, ""),
                Stroke::Dashes => {
                    canvas.line(&[(x, middle), (x + KEY.0, middle)], color, 2, " stroke-dasharray=\"8 6\"");
                }
                _ => canvas.line(&[(x, middle), (x + KEY.0, middle)], color, 2, ""),
            }
            canvas.text((x + KEY.0 + KEY.1, middle + 7.0), TEXT, &series.name, "");
        }
    }
}

/// Returns the points of the steps that a series is drawn as: before each point but the first, a corner at the value of
/// the previous point.
fn steps(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let corners = points.windows(2).flat_map(|pair| [(pair[1].0, pair[0].1), pair[1]]);
    points.first().copied().into_iter().chain(corners).collect()
}

/// Returns the scale of an axis that shows these values.
fn scale(axis: &Axis, values: impl Iterator<Item = f64>) -> Scale {
    let fitting = values.filter(|v| v.is_finite() && (!axis.log || *v > 0.0));
    let (low, high) = fitting.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        return Scale { from: 0.0, until: 1.0, labels: vec![0.0, 1.0] };
    }
    if axis.log {
        let (low, high) = (low.log10().floor(), high.log10().ceil().max(low.log10().floor() + 1.0));
        return Scale { from: low, until: high, labels: (low as i32..=high as i32).map(f64::from).collect() };
    }
    // A linear axis begins at zero.
    let high = if high > 0.0 { high } else { 1.0 };
    let step = nice(high / LABELS);
    let count = (high / step).ceil();
    Scale { from: 0.0, until: count * step, labels: (0..=count as u32).map(|n| f64::from(n) * step).collect() }
}

/// Rounds up to a number of the series 1, 2, 2.5, 5, 10, 20, 25, …
pub fn nice(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 2.5, 5.0].into_iter().map(|n| n * power).find(|n| *n >= value).unwrap_or(10.0 * power)
}

fn label(value: f64, log: bool) -> String {
    let value = if log { 10_f64.powf(value) } else { value };
    let digits = if value == 0.0 || value >= 10.0 { 0 } else { (2.0 - value.log10().floor()) as usize };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::{At, Axis, Chart, Scale, Series, Stroke, label, nice, scale, steps};

    #[test]
    fn a_chart_says_what_it_shows() {
        let series = |name: &str, stroke, color| Series {
            name: name.into(),
            stroke,
            color,
            points: vec![(1.0, 0.1), (64.0, 3.0), (1000.0, 90.0)],
        };
        let chart = Chart {
            title: "Launch of 12 MB".into(),
            x: Axis { label: "nodes".into(), log: true },
            y: Axis { label: "seconds, < 100".into(), log: false },
            series: vec![
                series("rsh", Stroke::Line, 0),
                series("model", Stroke::Dashes, 1),
                series("us", Stroke::Dots, 2),
            ],
        };
        let text = chart.svg();
        for word in ["Launch of 12 MB", "nodes", "seconds, &lt; 100", "rsh", "model", ">1000<", ">80<"] {
            assert!(text.contains(word), "{word}");
        }
        assert_eq!(text.matches("<circle").count(), 3);
        // The lowest and leftmost point is at the corner of the axes' frame.
        assert!(text.contains(" points=\"100,729.3 "), "{text}");
        assert!(text.trim_end().ends_with("</svg>"));
    }

    #[expect(clippy::float_cmp, reason = "these values are exact")]
    #[test]
    fn axes() {
        let axis = |log| Axis { label: String::new(), log };
        assert_eq!(scale(&axis(false), [3.0, 90.0].into_iter()).until, 100.0);
        let decades = Scale { from: 0.0, until: 2.0, labels: vec![0.0, 1.0, 2.0] };
        assert_eq!(scale(&axis(true), [0.0, 3.0, 90.0].into_iter()), decades);
        assert_eq!(scale(&axis(true), std::iter::empty()).until, 1.0);
        assert_eq!([nice(0.03), nice(1.0), nice(7.0), nice(2.3)], [0.05, 1.0, 10.0, 2.5]);
        assert_eq!(
            [label(0.0, false), label(2.5, false), label(0.25, false), label(-2.0, true), label(4.0, true)],
            ["0", "2.5", "0.25", "0.01", "10000"]
        );
        assert_eq!(steps(&[(0.0, 1.0), (2.0, 5.0)]), [(0.0, 1.0), (2.0, 1.0), (2.0, 5.0)]);
        assert_eq!([2.0, 2.25, -0.04].map(|at| At(at).to_string()), ["2", "2.3", "0"]);
    }
}
