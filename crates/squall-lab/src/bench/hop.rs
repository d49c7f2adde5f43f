//! `bench hop`: cost of an encrypted hop between machines, compared with a hop within this machine; cost of the
//! controller's signature under the starts of a flush.

use serde_json::json;
use squall_host::hop_benchmark::{Cost, Stream, hop, signed};

use super::{BenchOptions, Finding};

/// Number of round trips of a short frame.
const ROUNDS: usize = 20_000;
/// Bytes of a long frame, such as a piece of a file on its way to nodes.
const FRAME_BYTES: usize = 128 << 10;
/// Total number of bytes sent in long frames.
const BYTES: u64 = 512 << 20;

/// Starts in a signed flush, and number of flushes.
const STARTS: u32 = 64;
const FLUSHES: usize = 1000;

/// Measures encrypted and plain streams, one after the other.
pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let bytes = options.size.unwrap_or(BYTES) as usize;
    let measure = |stream| hop(stream, ROUNDS, FRAME_BYTES, bytes).map_err(|e| format!("{stream:?}: {e}"));
    let (local, sealed): (Cost, Cost) = (measure(Stream::Local)?, measure(Stream::Sealed)?);
    let signed = signed(STARTS, FLUSHES).map_err(|e| format!("signed starts: {e}"))?;
    let mb = |cost: &Cost| json!((cost.bytes_per_s / 1e6).round());
    let fields = vec![
        ("p99_us", json!(sealed.round_trip_us.1)),
        ("unix_p99_us", json!(local.round_trip_us.1)),
        ("mb_per_s", mb(&sealed)),
        ("unix_mb_per_s", mb(&local)),
        ("connect_us", json!(sealed.meeting_us)),
        ("unix_connect_us", json!(local.meeting_us)),
        ("sign_us_a_start", json!(signed.sign_us)),
        ("check_us", json!(signed.check_us.0)),
        ("check_p99_us", json!(signed.check_us.1)),
    ];
    let (figure, limit) = (sealed.round_trip_us.0, (local.round_trip_us.0, "a Unix socket on this machine"));
    Ok(Finding { bench: "hop", figure, unit: "us there and back, TCP with Noise", limit: Some(limit), fields })
}
