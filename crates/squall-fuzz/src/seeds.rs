//! Inputs with which fuzzing begins: small files in `seeds/`, and the golden bytes of `squall-model`.

use std::fs;
use std::path::Path;

/// What the golden bytes are: each line of these files is a message, a record or a value, in hexadecimal.
const GOLDEN: &[&str] = &["etcd-1", "events-2", "messages-2"];
/// The targets that take one of these.
const OF_ONE: &[&str] = &[
    "batch_supervisor",
    "client_answer",
    "client_request",
    "etcd",
    "event",
    "feed",
    "greeting",
    "join",
    "node_down",
    "node_up",
    "peer",
    "snapshot",
    "spool",
    "step_client",
    "step_daemon",
];
/// The targets that take several, each behind a byte of choice and two bytes of length.
const OF_SEVERAL: &[&str] = &["controller", "node", "relay", "reports"];

/// Returns the seeds of a target, in an order that does not change. Panics where a file can't be read.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> = fs::read_dir(own.join("seeds").join(target))
        .map(|entries| entries.map(|entry| entry.expect("a seed").path()).collect())
        .unwrap_or_default();
    files.sort();
    let mut seeds: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).expect("a seed")).collect();
    let several = OF_SEVERAL.contains(&target);
    if several || OF_ONE.contains(&target) {
        for kind in GOLDEN.iter().filter(|kind| !several || kind.ends_with("-2")) {
            let text =
                fs::read_to_string(own.join(format!("../squall-model/tests/golden/{kind}.txt"))).expect("a file");
            seeds.extend(text.lines().filter_map(bytes_of).map(|bytes| if several { piece(&bytes) } else { bytes }));
        }
    }
    seeds
}

/// Puts a choice and its length before a message.
fn piece(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX).to_le_bytes();
    [&[1], &length[..], message].concat()
}

/// Reads bytes in hexadecimal, which a word may precede. None: the line is none.
fn bytes_of(line: &str) -> Option<Vec<u8>> {
    let digits = line.split_whitespace().next_back()?;
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect()
}
