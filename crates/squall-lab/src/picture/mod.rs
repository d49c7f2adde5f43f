//! Charts as SVG and PNG.

mod raster;
pub(crate) mod slices;

use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::path::Path;

use plotters::chart::{ChartBuilder, ChartContext, SeriesLabelPosition};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Rectangle};
use plotters::prelude::Cartesian2d;
use plotters::series::{DashedLineSeries, LineSeries};
use plotters::style::{BLACK, Color, RGBColor, ShapeStyle, WHITE};
use plotters_backend::DrawingBackend;
use plotters_svg::SVGBackend;

use raster::Raster;

/// Width and height of a picture, pixels.
const SIZE: (u32, u32) = (1280, 800);
/// Font of labels: family, size in pixels.
const TEXT: (&str, i32) = ("sans-serif", 20);
/// Font of the title: family, size in pixels.
const TITLE: (&str, i32) = ("sans-serif", 24);
/// Approximate number of labels on a linear axis.
const LABELS: f64 = 8.0;

/// Way in which a series of points is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stroke {
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
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) stroke: Stroke,
    /// Index of the series' colour; series that belong together share one.
    pub(crate) color: usize,
    pub(crate) points: Vec<(f64, f64)>,
}

/// An axis of a chart.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) label: String,
    /// Whether the axis is logarithmic. Points at or below zero are then omitted.
    pub(crate) log: bool,
}

/// A chart of several series, with two axes.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

const COLORS: [RGBColor; 9] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
    RGBColor(140, 86, 75),
    RGBColor(23, 150, 170),
    RGBColor(90, 90, 90),
    RGBColor(170, 175, 20),
];

/// Something that can be drawn on any surface, such as SVG or PNG.
pub(crate) trait Drawing {
    /// Returns the drawing's width and height in pixels.
    fn size(&self) -> (u32, u32) {
        SIZE
    }
    /// Draws the picture on a surface.
    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<(), String>;
}

impl Drawing for Chart {
    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<(), String> {
        draw(self, area)
    }
}

/// Writes `NAME.svg` and `NAME.png` into a folder, which is created if needed.
pub(crate) fn write(drawing: &impl Drawing, folder: &Path, name: &str) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let path = folder.join(name).with_extension("svg");
    std::fs::write(&path, svg(drawing)?).map_err(|e| format!("{}: {e}", path.display()))?;
    let path = folder.join(name).with_extension("png");
    let file = File::create(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    png(drawing, file).map_err(|e| format!("{}: {e}", path.display()))
}

fn svg(drawing: &impl Drawing) -> Result<String, String> {
    let mut text = String::new();
    drawing.draw(&SVGBackend::with_string(&mut text, drawing.size()).into_drawing_area())?;
    Ok(text)
}

fn png(drawing: &impl Drawing, file: File) -> Result<(), String> {
    let size = drawing.size();
    let mut pixels = vec![0; Raster::bytes(size)];
    drawing.draw(&Raster::new(size, &mut pixels).into_drawing_area())?;
    let mut encoder = png::Encoder::new(BufWriter::new(file), size.0, size.1);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(|e| e.to_string())?;
    writer.write_image_data(&pixels).map_err(|e| e.to_string())?;
    writer.finish().map_err(|e| e.to_string())
}

type Plane = Cartesian2d<Scale, Scale>;

/// Range of an axis and its labels (logarithms for a logarithmic axis).
#[derive(Clone, Debug, PartialEq)]
struct Scale {
    range: Range<f64>,
    labels: Vec<f64>,
}

impl Ranged for Scale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        first + (share * f64::from(last - first)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, _: H) -> Vec<f64> {
        self.labels.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

fn draw<B: DrawingBackend>(chart: &Chart, area: &DrawingArea<B, Shift>) -> Result<(), String> {
    let failed = |e: &dyn std::fmt::Display| format!("cannot draw: {e}");
    area.fill(&WHITE).map_err(|e| failed(&e))?;
    let points = |pick: fn(&(f64, f64)) -> f64| chart.series.iter().flat_map(move |s| s.points.iter().map(pick));
    let (x, y) = (scale(&chart.x, points(|p| p.0)), scale(&chart.y, points(|p| p.1)));
    let corner = corner(chart, &x, &y);
    let mut context = ChartBuilder::on(area)
        .caption(&chart.title, TITLE)
        .margin(20)
        .margin_right(40)
        .x_label_area_size(50)
        .y_label_area_size(80)
        .build_cartesian_2d(x, y)
        .map_err(|e| failed(&e))?;
    let (log_x, log_y) = (chart.x.log, chart.y.log);
    context
        .configure_mesh()
        .light_line_style(WHITE.mix(0.0))
        .bold_line_style(BLACK.mix(0.12))
        .x_desc(&chart.x.label)
        .y_desc(&chart.y.label)
        .label_style(TEXT)
        .axis_desc_style(TEXT)
        .x_label_formatter(&|v| label(*v, log_x))
        .y_label_formatter(&|v| label(*v, log_y))
        .draw()
        .map_err(|e| failed(&e))?;
    for series in &chart.series {
        draw_series(&mut context, chart, series).map_err(|e| failed(&e))?;
    }
    if chart.series.iter().filter(|series| !series.name.is_empty()).count() < 2 {
        // With fewer than two named series no legend is needed: the title says what the chart shows.
        return area.present().map_err(|e| failed(&e));
    }
    context
        .configure_series_labels()
        .position(corner)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font(TEXT)
        .draw()
        .map_err(|e| failed(&e))?;
    area.present().map_err(|e| failed(&e))
}

/// Returns the corner with the fewest points for the legend, preferring the upper corners.
fn corner(chart: &Chart, x: &Scale, y: &Scale) -> SeriesLabelPosition {
    let share = |value: f64, axis: &Axis, scale: &Scale| {
        let value = if axis.log { value.log10() } else { value };
        (value - scale.range.start) / (scale.range.end - scale.range.start)
    };
    let mut corners = [
        (0_u32, SeriesLabelPosition::UpperLeft),
        (0, SeriesLabelPosition::UpperRight),
        (0, SeriesLabelPosition::LowerLeft),
        (0, SeriesLabelPosition::LowerRight),
    ];
    for point in chart.series.iter().flat_map(|series| &series.points) {
        let (across, up) = (share(point.0, &chart.x, x), share(point.1, &chart.y, y));
        // Points in the middle don't collide with a legend.
        if (across - 0.5).abs() > 0.05 {
            corners[usize::from(across > 0.5) + if up > 0.5 { 0 } else { 2 }].0 += 1;
        }
    }
    let [first, others @ ..] = corners;
    others.into_iter().fold(first, |least, other| if other.0 < least.0 { other } else { least }).1
}

fn draw_series<B: DrawingBackend>(
    context: &mut ChartContext<'_, B, Plane>,
    chart: &Chart,
    series: &Series,
) -> Result<(), String> {
    let place = |value: f64, axis: &Axis| if axis.log { value.log10() } else { value };
    let shown = series.points.iter().filter(|(x, y)| (!chart.x.log || *x > 0.0) && (!chart.y.log || *y > 0.0));
    let mut points: Vec<(f64, f64)> = shown.map(|(x, y)| (place(*x, &chart.x), place(*y, &chart.y))).collect();
    if series.stroke == Stroke::Steps {
        points = steps(&points);
    }
    let style = ShapeStyle {
        color: COLORS[series.color % COLORS.len()].to_rgba(),
        filled: true,
        stroke_width: if series.stroke == Stroke::Steps { 1 } else { 2 },
    };
    let drawn = match series.stroke {
        Stroke::Line | Stroke::Steps => context.draw_series(LineSeries::new(points, style)),
        Stroke::Dashes => context.draw_series(DashedLineSeries::new(points, 8, 6, style)),
        Stroke::Boxes => {
            let corners = points.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
            context.draw_series(corners.map(|corners| Rectangle::new(corners, style)))
        }
        Stroke::Dots => context.draw_series(points.into_iter().map(|p| Circle::new(p, 4, style))),
    };
    let annotation = drawn.map_err(|e| e.to_string())?;
    if series.name.is_empty() {
        return Ok(());
    }
    let dots = series.stroke == Stroke::Dots;
    annotation.label(&series.name).legend(move |(x, y)| {
        let ends = if dots { [(x + 8, y), (x + 12, y)] } else { [(x, y), (x + 20, y)] };
        PathElement::new(ends.to_vec(), ShapeStyle { stroke_width: if dots { 4 } else { 2 }, ..style })
    });
    Ok(())
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
        return Scale { range: 0.0..1.0, labels: vec![0.0, 1.0] };
    }
    if axis.log {
        let (low, high) = (low.log10().floor(), high.log10().ceil().max(low.log10().floor() + 1.0));
        return Scale { range: low..high, labels: (low as i32..=high as i32).map(f64::from).collect() };
    }
    // A linear axis begins at zero.
    let high = if high > 0.0 { high } else { 1.0 };
    let step = nice(high / LABELS);
    let count = (high / step).ceil();
    Scale { range: 0.0..count * step, labels: (0..=count as u32).map(|n| f64::from(n) * step).collect() }
}

/// Rounds up to a number of the series 1, 2, 5, 10, 20, …
fn nice(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|n| n * power).find(|n| *n >= value).unwrap_or(10.0 * power)
}

fn label(value: f64, log: bool) -> String {
    let value = if log { 10_f64.powf(value) } else { value };
    let digits = if value == 0.0 || value >= 10.0 { 0 } else { (1.0 - value.log10().floor()) as usize };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Decodes a PNG: red, green and blue of each pixel.
#[cfg(test)]
pub(crate) fn pixels(path: &Path) -> Vec<u8> {
    let mut reader = png::Decoder::new(std::io::BufReader::new(File::open(path).unwrap())).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut pixels).unwrap();
    pixels
}

#[cfg(test)]
mod tests {
    use super::{Axis, Chart, Scale, Series, Stroke, label, nice, pixels, scale, steps, svg, write};

    fn chart() -> Chart {
        let series = |name: &str, stroke, color| Series {
            name: name.into(),
            stroke,
            color,
            points: vec![(1.0, 0.1), (64.0, 3.0), (1000.0, 90.0)],
        };
        Chart {
            title: "Launch of 12 MB".into(),
            x: Axis { label: "nodes".into(), log: true },
            y: Axis { label: "seconds".into(), log: false },
            series: vec![
                series("rsh", Stroke::Line, 0),
                series("model", Stroke::Dashes, 1),
                series("us", Stroke::Dots, 2),
            ],
        }
    }

    #[test]
    fn a_picture_says_what_it_shows() {
        let text = svg(&chart()).unwrap();
        for word in ["Launch of 12 MB", "nodes", "seconds", "rsh", "model", "1000", "80"] {
            assert!(text.contains(word), "{word}");
        }
    }

    #[test]
    fn pictures_need_no_fonts() {
        let folder = std::env::temp_dir().join(format!("squall-picture-{}", std::process::id()));
        write(&chart(), &folder, "launch").unwrap();
        let pixels = pixels(&folder.join("launch.png"));
        let black = pixels.chunks(3).filter(|p| p.iter().all(|c| *c < 40)).count();
        assert!(black > 1000, "letters and axes: {black} black pixels");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[expect(clippy::float_cmp, reason = "these values are exact")]
    #[test]
    fn axes() {
        let axis = |log| Axis { label: String::new(), log };
        assert_eq!(scale(&axis(false), [3.0, 90.0].into_iter()).range, 0.0..100.0);
        let decades = Scale { range: 0.0..2.0, labels: vec![0.0, 1.0, 2.0] };
        assert_eq!(scale(&axis(true), [0.0, 3.0, 90.0].into_iter()), decades);
        assert_eq!(scale(&axis(true), std::iter::empty()).range, 0.0..1.0);
        assert_eq!([nice(0.03), nice(1.0), nice(7.0)], [0.05, 1.0, 10.0]);
        assert_eq!(
            [label(0.0, false), label(2.5, false), label(-2.0, true), label(4.0, true)],
            ["0", "2.5", "0.01", "10000"]
        );
        assert_eq!(steps(&[(0.0, 1.0), (2.0, 5.0)]), [(0.0, 1.0), (2.0, 1.0), (2.0, 5.0)]);
    }
}
