//! The legal shapes of prisms on a frame (those that keep a job's traffic inside), sorted by their number of cells.

use super::frame::{AXES_MAX, Coords, Frame};
use super::search::by_last_axis;

/// A shape of prisms, independent of their position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Extents along each axis, in cells.
    pub size: Coords,
    /// Number of cells of a prism of this shape.
    pub volume: u32,
    /// Bandwidth of the narrowest cut through the middle of the prism; see [`Frame::bisection`].
    pub bisection: u64,
}

/// All legal shapes of prisms on a frame: those that keep a job's traffic inside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shapes {
    /// All shapes, sorted by volume.
    shapes: Vec<Shape>,
}

impl Shapes {
    /// Calculates the legal shapes on a frame: those that keep a job's traffic inside.
    pub fn new(frame: &Frame) -> Self {
        let mut sizes = vec![[1; AXES_MAX]];
        for (at, axis) in frame.axes().iter().enumerate() {
            let legal: Vec<u32> = (1..=axis.extent).filter(|extent| frame.legal(at, *extent)).collect();
            let longer = sizes.iter().flat_map(|size| {
                legal.iter().map(move |&extent| {
                    let mut size = *size;
                    size[at] = extent;
                    size
                })
            });
            sizes = longer.collect();
        }
        let shape = |size: Coords| Shape { size, volume: size.iter().product(), bisection: frame.bisection(&size) };
        let mut shapes: Vec<Shape> = sizes.into_iter().map(shape).collect();
        shapes.sort_by(|a, b| a.volume.cmp(&b.volume).then_with(|| by_last_axis(&a.size, &b.size)));
        Self { shapes }
    }
    /// Returns the shapes with `least` to `most` cells, in the order that suits [`super::Fits`].
    pub fn between(&self, least: u32, most: u32) -> Vec<Shape> {
        let from = self.shapes.partition_point(|shape| shape.volume < least);
        let to = self.shapes.partition_point(|shape| shape.volume <= most);
        let mut found = self.shapes.get(from..to).unwrap_or_default().to_vec();
        found.sort_by(|a, b| by_last_axis(&a.size, &b.size));
        found
    }
    /// Returns the smallest volume of a legal shape with at least `least` cells. None: there is none.
    pub fn next(&self, least: u32) -> Option<u32> {
        self.shapes.get(self.shapes.partition_point(|shape| shape.volume < least)).map(|shape| shape.volume)
    }
    /// Returns all shapes, sorted by volume.
    pub fn all(&self) -> &[Shape] {
        &self.shapes
    }
}
