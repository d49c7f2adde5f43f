//! A drawing surface of pixels with built-in fonts, so that a PNG needs no fonts on the machine.

use std::convert::Infallible;

use embedded_graphics::Drawable;
use embedded_graphics::draw_target::DrawTarget;
use embedded_graphics::geometry::{OriginDimensions, Point, Size};
use embedded_graphics::mono_font::iso_8859_1::{FONT_9X15, FONT_10X20};
use embedded_graphics::mono_font::{MonoFont, MonoTextStyle};
use embedded_graphics::pixelcolor::BinaryColor;
use embedded_graphics::text::{Baseline, Text};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind, rasterizer,
};

/// Bytes of a pixel: red, green, blue.
const PIXEL_BYTES: usize = 3;
/// Smallest size of texts that use the larger of the two fonts, pixels.
const LARGE: f64 = 22.0;

/// A white bitmap to draw on.
#[derive(Debug)]
pub(super) struct Raster<'a> {
    size: (u32, u32),
    pixels: &'a mut [u8],
}

impl<'a> Raster<'a> {
    /// Returns the bytes that a bitmap of this size needs.
    pub(super) fn bytes((width, height): (u32, u32)) -> usize {
        width as usize * height as usize * PIXEL_BYTES
    }

    /// Wraps `pixels`, which must have the length that [`Raster::bytes`] returns.
    pub(super) fn new(size: (u32, u32), pixels: &'a mut [u8]) -> Self {
        Self { size, pixels }
    }
}

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

impl DrawingBackend for Raster<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, color: BackendColor) -> Drawn {
        let (width, height) = self.size;
        let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y)) else { return Ok(()) };
        if x >= width || y >= height {
            return Ok(());
        }
        let at = (y as usize * width as usize + x as usize) * PIXEL_BYTES;
        let (red, green, blue) = color.rgb;
        for (old, new) in self.pixels[at..at + PIXEL_BYTES].iter_mut().zip([red, green, blue]) {
            *old = (f64::from(*old) * (1.0 - color.alpha) + f64::from(new) * color.alpha).round() as u8;
        }
        Ok(())
    }

    /// Fills a rectangle by its own pixels. The default of the crate plotters draws lines as wide as the outline, so it
    /// fills nothing if there is no outline.
    fn draw_rect<S: BackendStyle>(&mut self, one: BackendCoord, other: BackendCoord, style: &S, fill: bool) -> Drawn {
        if !fill {
            return rasterizer::draw_rect(self, one, other, style, fill);
        }
        let (width, height) = (self.size.0 as i32, self.size.1 as i32);
        for y in one.1.min(other.1).max(0)..=one.1.max(other.1).min(height - 1) {
            for x in one.0.min(other.0).max(0)..=one.0.max(other.0).min(width - 1) {
                self.draw_pixel((x, y), style.color())?;
            }
        }
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, pos: BackendCoord) -> Drawn {
        let (font, transform, color) = (font(style.size()), style.transform(), style.color());
        let (width, height) = extent(font, text);
        let dx = match style.anchor().h_pos {
            HPos::Left => 0,
            HPos::Center => -width / 2,
            HPos::Right => -width,
        };
        let dy = match style.anchor().v_pos {
            VPos::Top => 0,
            VPos::Center => -height / 2,
            VPos::Bottom => -height,
        };
        for (x, y) in ink(font, text) {
            let (x, y) = transform.transform(x + dx, y + dy);
            self.draw_pixel((pos.0 + x, pos.1 + y), color)?;
        }
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        let (width, height) = extent(font(style.size()), text);
        Ok((width as u32, height as u32))
    }
}

fn font(size: f64) -> &'static MonoFont<'static> {
    if size >= LARGE { &FONT_10X20 } else { &FONT_9X15 }
}

fn extent(font: &MonoFont<'_>, text: &str) -> (i32, i32) {
    let letter = font.character_size;
    (letter.width as i32 * text.chars().count() as i32, letter.height as i32)
}

/// Returns the positions of a text's pixels; its upper left corner is the origin.
fn ink(font: &MonoFont<'_>, text: &str) -> Vec<(i32, i32)> {
    let mut ink = Ink(Vec::new());
    let style = MonoTextStyle::new(font, BinaryColor::On);
    match Text::with_baseline(text, Point::zero(), style, Baseline::Top).draw(&mut ink) {
        Ok(_) => ink.0,
        Err(never) => match never {},
    }
}

/// A drawing surface that collects the positions of all pixels drawn on it.
struct Ink(Vec<(i32, i32)>);

impl OriginDimensions for Ink {
    fn size(&self) -> Size {
        Size::new(u32::MAX, u32::MAX)
    }
}

impl DrawTarget for Ink {
    type Color = BinaryColor;
    type Error = Infallible;

    fn draw_iter<I>(&mut self, pixels: I) -> Result<(), Infallible>
    where
        I: IntoIterator<Item = embedded_graphics::Pixel<BinaryColor>>,
    {
        self.0.extend(pixels.into_iter().filter(|pixel| pixel.1.is_on()).map(|pixel| (pixel.0.x, pixel.0.y)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{extent, font, ink};

    #[test]
    fn letters_have_ink_within_their_box() {
        let small = font(12.0);
        let drawn = ink(small, "µs: 12");
        let (width, height) = extent(small, "µs: 12");
        assert_eq!((width, height), (54, 15));
        assert!(drawn.len() > 40, "{}", drawn.len());
        assert!(drawn.iter().all(|(x, y)| (0..width).contains(x) && (0..height).contains(y)));
        assert!(ink(small, " ").is_empty());
    }
}
