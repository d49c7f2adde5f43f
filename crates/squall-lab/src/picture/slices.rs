//! Draws a box of coloured cells, slice by slice.

use plotters::coord::Shift;
use plotters::drawing::DrawingArea;
use plotters::element::{Rectangle, Text};
use plotters::style::{BLACK, Color, HSLColor, RGBColor, ShapeStyle, WHITE};
use plotters_backend::DrawingBackend;

use super::{Drawing, TEXT, TITLE};

/// Width of the margin around each slice, pixels.
const MARGIN: u32 = 24;
/// Height of the space for title and note above all slices, pixels.
const HEAD: u32 = 90;
/// Number of slices next to each other.
const ACROSS: usize = 4;
const HOLE: RGBColor = RGBColor(70, 70, 70);

/// Colour of a cell (red, green, blue from 0 to 1). None: the cell is a hole, which is not coloured.
pub(crate) type Shade = Option<[f64; 3]>;

/// A picture of a box of cells, slice by slice.
#[derive(Clone, Debug)]
pub(crate) struct Slices {
    pub(crate) title: String,
    /// A line of text that is printed below the title.
    pub(crate) note: String,
    /// Names of the axes along the columns and along the rows.
    pub(crate) axes: (String, String),
    /// Number of columns and of rows of every slice.
    pub(crate) extents: (u32, u32),
    /// Distance between neighbouring cells, pixels.
    pub(crate) cell: u32,
    /// Gap between neighbouring cells, pixels. 0: equal neighbours in a row are drawn as one bar.
    pub(crate) gap: u32,
    /// Slices, each with its name and its cells row by row.
    pub(crate) cuts: Vec<(String, Vec<Shade>)>,
}

impl Slices {
    fn across(&self) -> usize {
        self.cuts.len().clamp(1, ACROSS)
    }
    /// Returns the bars that a slice is drawn as: (column, row, length in cells, colour).
    fn bars<'a>(&self, cells: &'a [Shade]) -> Vec<(u32, u32, u32, &'a Shade)> {
        let mut bars: Vec<(u32, u32, u32, &Shade)> = Vec::new();
        for (index, shade) in cells.iter().enumerate() {
            let (column, row) = (index as u32 % self.extents.0, index as u32 / self.extents.0);
            match bars.last_mut() {
                Some((_, before, length, alike)) if self.gap == 0 && *before == row && *alike == shade => *length += 1,
                _ => bars.push((column, row, 1, shade)),
            }
        }
        bars
    }
    fn slice_size(&self) -> (u32, u32) {
        (self.extents.0 * self.cell + 2 * MARGIN, self.extents.1 * self.cell + 3 * MARGIN)
    }
}

impl Drawing for Slices {
    fn size(&self) -> (u32, u32) {
        let (width, height) = self.slice_size();
        let down = self.cuts.len().div_ceil(self.across()) as u32;
        ((width * self.across() as u32).max(720), HEAD + height * down)
    }
    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<(), String> {
        let failed = |e: &dyn std::fmt::Display| format!("cannot draw: {e}");
        area.fill(&WHITE).map_err(|e| failed(&e))?;
        let text = |text: String, at: (i32, i32), style: (&'static str, i32)| {
            area.draw(&Text::new(text, at, style)).map_err(|e| failed(&e))
        };
        text(self.title.clone(), (MARGIN as i32, 16), TITLE)?;
        text(self.note.clone(), (MARGIN as i32, 52), TEXT)?;
        let (width, height) = self.slice_size();
        for (at, (name, cells)) in self.cuts.iter().enumerate() {
            let left = (width * (at % self.across()) as u32 + MARGIN) as i32;
            let top = (HEAD + height * (at / self.across()) as u32 + MARGIN) as i32;
            let label = format!("{name}  ({} right, {} down)", self.axes.0, self.axes.1);
            text(label, (left, top - 20), ("sans-serif", 15))?;
            for (column, row, length, shade) in self.bars(cells) {
                let (x, y) = (left + (column * self.cell) as i32, top + (row * self.cell) as i32);
                let size = |cells: u32| (cells * self.cell - self.gap) as i32;
                let corners = [(x, y), (x + size(length), y + size(1))];
                let color = match shade {
                    Some([hue, saturation, lightness]) => HSLColor(*hue, *saturation, *lightness).to_rgba(),
                    None => HOLE.to_rgba(),
                };
                let style = ShapeStyle { color, filled: true, stroke_width: 0 };
                area.draw(&Rectangle::new(corners, style)).map_err(|e| failed(&e))?;
                if shade.is_none() {
                    let cross = ShapeStyle { color: BLACK.to_rgba(), filled: false, stroke_width: 1 };
                    area.draw(&Rectangle::new(corners, cross)).map_err(|e| failed(&e))?;
                }
            }
        }
        area.present().map_err(|e| failed(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::super::svg;
    use super::Slices;

    #[test]
    fn every_cell_is_drawn() {
        let slices = Slices {
            title: "4x2x3".into(),
            note: "worst link".into(),
            axes: ("x".into(), "z".into()),
            extents: (4, 3),
            cell: 26,
            gap: 2,
            cuts: vec![
                ("y=0".into(), vec![Some([0.2, 0.6, 0.6]); 12]),
                ("y=1".into(), (0..12).map(|at| (at != 5).then_some([0.5, 0.5, 0.5])).collect()),
            ],
        };
        let text = svg(&slices).unwrap();
        assert!(text.matches("<rect").count() >= 24 && text.contains("worst link") && text.contains("y=1"), "{text}");
        // Without a gap, a row of equal cells is one bar, and the row with the hole is three.
        let joined = Slices { gap: 0, ..slices };
        assert_eq!(joined.cuts.iter().map(|(_, cells)| joined.bars(cells).len()).collect::<Vec<_>>(), [3, 5]);
    }
}
