//! Draws a box of coloured cells, slice by slice.

use super::{Canvas, TEXT, TITLE};

/// Width of the margin around each slice, pixels.
const MARGIN: u32 = 24;
/// Height of the space for title and note above all slices, pixels.
const HEAD: u32 = 90;
/// Number of slices next to each other.
const ACROSS: usize = 4;

/// Colour of a cell: hue, saturation and lightness from 0 to 1. None: the cell is a hole, which is not coloured.
pub type Shade = Option<[f64; 3]>;

/// A picture of a box of cells, slice by slice.
#[derive(Clone, Debug)]
pub struct Slices {
    /// Title above all slices.
    pub title: String,
    /// A line of text that is printed below the title.
    pub note: String,
    /// Names of the axes along the columns and along the rows.
    pub axes: (String, String),
    /// Number of columns and of rows of every slice.
    pub extents: (u32, u32),
    /// Distance between neighbouring cells, pixels.
    pub cell: u32,
    /// Gap between neighbouring cells, pixels. 0: equal neighbours in a row are drawn as one bar.
    pub gap: u32,
    /// Slices, each with its name and its cells row by row.
    pub cuts: Vec<(String, Vec<Shade>)>,
}

impl Slices {
    /// Returns the picture as SVG.
    pub fn svg(&self) -> String {
        let (width, height) = (self.extents.0 * self.cell + 2 * MARGIN, self.extents.1 * self.cell + 3 * MARGIN);
        let across = self.cuts.len().clamp(1, ACROSS);
        let down = self.cuts.len().div_ceil(across) as u32;
        let mut canvas = Canvas::new(((width * across as u32).max(720), HEAD + height * down));
        canvas.text((f64::from(MARGIN), 36.0), TITLE, &self.title, "");
        canvas.text((f64::from(MARGIN), 70.0), TEXT, &self.note, "");
        for (at, (name, cells)) in self.cuts.iter().enumerate() {
            let left = width * (at % across) as u32 + MARGIN;
            let top = HEAD + height * (at / across) as u32 + MARGIN;
            let label = format!("{name}  ({} right, {} down)", self.axes.0, self.axes.1);
            canvas.text((f64::from(left), f64::from(top - 6)), 15.0, &label, "");
            for (column, row, length, shade) in self.bars(cells) {
                let corner = (f64::from(left + column * self.cell), f64::from(top + row * self.cell));
                let size = |cells: u32| f64::from(cells * self.cell - self.gap);
                match shade {
                    Some(shade) => canvas.rect(corner, (size(length), size(1)), &rgb(*shade), ""),
                    None => canvas.rect(corner, (size(length), size(1)), "#464646", " stroke=\"#000000\""),
                }
            }
        }
        canvas.end()
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
}

/// Returns a colour as SVG has it, `#rrggbb`. Not all programs that show SVG know hue, saturation and lightness.
fn rgb([hue, saturation, lightness]: [f64; 3]) -> String {
    let reach = saturation * lightness.min(1.0 - lightness);
    let part = |at: f64| {
        let turn = (at + hue * 12.0).rem_euclid(12.0);
        let value = lightness - reach * (turn - 3.0).min(9.0 - turn).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", part(0.0), part(8.0), part(4.0))
}

#[cfg(test)]
mod tests {
    use super::{Slices, rgb};

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
        let text = slices.svg();
        // One is the background.
        assert_eq!(text.matches("<rect").count(), 25);
        assert!(text.contains("worst link") && text.contains("y=1"), "{text}");
        // Without a gap, a row of equal cells is one bar, and the row with the hole is three.
        let joined = Slices { gap: 0, ..slices };
        assert_eq!(joined.cuts.iter().map(|(_, cells)| joined.bars(cells).len()).collect::<Vec<_>>(), [3, 5]);
    }

    #[test]
    fn colours_are_those_of_css() {
        let all = [[0.0, 1.0, 0.5], [1.0 / 3.0, 1.0, 0.25], [0.5, 0.5, 0.5], [0.8, 0.0, 1.0]].map(rgb);
        assert_eq!(all, ["#ff0000", "#008000", "#40bfbf", "#ffffff"]);
    }
}
