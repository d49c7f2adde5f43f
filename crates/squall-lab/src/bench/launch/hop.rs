//! Cost of one hop of the fabric, measured: a frame is encoded, written, read, checked and copied, for several sizes.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use squall_engine::fabric::cost::Link;
use squall_model::codec::{self, HEADER_BYTES};
use squall_model::encoding::ByteBuf;

use super::fit::fit;

const SIZES: [usize; 7] = [64, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Number of bytes sent to measure each frame size.
const PASS_BYTES: usize = 64 << 20;
/// Maximum number of frames sent to measure each frame size.
const FRAMES_MAX: usize = 4000;

/// Returns the fitted costs of a frame and of a byte on the link, and the relative error of the fit.
pub(in crate::bench) fn measure() -> Result<(Link, f64), String> {
    let mut rows = Vec::new();
    for size in SIZES {
        rows.push(([1.0, size as f64], frame_s(size)?));
    }
    let fit = fit(&rows);
    let [message_s, byte_s] = fit.parameters;
    Ok((Link { message_s, bytes_per_s: 1.0 / byte_s.max(1e-15) }, fit.residual))
}

/// Returns the mean time for a frame of `size` bytes in a stream of frames, seconds.
fn frame_s(size: usize) -> Result<f64, String> {
    let count = (PASS_BYTES / size).clamp(1, FRAMES_MAX);
    let (mut to, mut from) = UnixStream::pair().map_err(|e| e.to_string())?;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || (0..count).try_for_each(|_| receive(&mut from)));
        let block = ByteBuf::from(vec![7; size]);
        let mut bytes = Vec::new();
        let sent = (0..count).try_for_each(|_| {
            bytes.clear();
            codec::encode(&block, &mut bytes).map_err(|e| e.to_string())?;
            to.write_all(&bytes).map_err(|e| e.to_string())
        });
        drop(to);
        let received = reader.join().map_err(|_| "the reader panicked".to_owned())?;
        sent.and(received)
    })?;
    Ok(start.elapsed().as_secs_f64() / count as f64)
}

fn receive(from: &mut UnixStream) -> Result<(), String> {
    let mut head = [0; HEADER_BYTES];
    from.read_exact(&mut head).map_err(|e| e.to_string())?;
    let (length, crc) = codec::header(head).map_err(|e| e.to_string())?;
    let mut body = vec![0; length];
    from.read_exact(&mut body).map_err(|e| e.to_string())?;
    codec::decode::<ByteBuf>(&body, crc).map(drop).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::frame_s;

    #[test]
    fn more_bytes_take_longer() {
        let (small, large) = (frame_s(64).unwrap(), frame_s(1 << 20).unwrap());
        assert!(0.0 < small && small < large, "{small} {large}");
    }
}
