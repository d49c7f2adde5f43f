//! A summed-area table: returns the sum over the cells of any wrapping prism in a constant number of look-ups.

use super::frame::{AXES_MAX, Frame, Prism};

/// Summed-area table of a value for each cell, which gives the sum over any prism.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    axes: usize,
    extents: [u32; AXES_MAX],
    strides: [usize; AXES_MAX],
    table: Vec<i32>,
}

impl Sums {
    /// Fills the table from a value for each cell.
    pub fn build(&mut self, frame: &Frame, values: impl Iterator<Item = i32>) {
        self.axes = frame.axes().len();
        self.extents = frame.size();
        let mut stride = 1;
        for axis in (0..self.axes).rev() {
            self.strides[axis] = stride;
            stride *= self.extents[axis] as usize + 1;
        }
        self.table.clear();
        self.table.resize(stride, 0);
        let last = frame.last() as usize;
        let mut values = values;
        for column in 0..frame.columns() {
            let coords = frame.coords(column * last);
            let start: usize = (0..self.axes).map(|a| (coords[a] as usize + 1) * self.strides[a]).sum();
            let mut sum = 0;
            for (to, value) in self.table[start..start + last].iter_mut().zip(values.by_ref()) {
                sum += value;
                *to = sum;
            }
        }
        for axis in 0..self.axes - 1 {
            let (stride, n) = (self.strides[axis], self.extents[axis] as usize + 1);
            for block in self.table.chunks_exact_mut(stride * n) {
                for row in 1..n {
                    let (below, here) = block.split_at_mut(row * stride);
                    let below = &below[(row - 1) * stride..];
                    here[..stride].iter_mut().zip(below).for_each(|(to, from)| *to += from);
                }
            }
        }
    }

    /// Returns the sum of the values of a prism's cells.
    pub fn sum(&self, prism: &Prism) -> i32 {
        self.over(prism, 0, 0)
    }

    fn over(&self, prism: &Prism, axis: usize, offset: usize) -> i32 {
        if axis == self.axes {
            return self.table[offset];
        }
        let (n, stride) = (self.extents[axis], self.strides[axis]);
        let (from, size) = (prism.at[axis] % n, prism.size[axis]);
        let part = |low: u32, high: u32| {
            let high = self.over(prism, axis + 1, offset + high as usize * stride);
            if low == 0 { high } else { high - self.over(prism, axis + 1, offset + low as usize * stride) }
        };
        if size == n {
            part(0, n)
        } else if from + size <= n {
            part(from, from + size)
        } else {
            part(from, n) + part(0, from + size - n)
        }
    }
}
