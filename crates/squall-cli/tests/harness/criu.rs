//! CRIU for tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns a CRIU of a newer Debian. None: it can't be had, or needs root.
pub(crate) fn criu() -> Option<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: checkpoints need root");
        return None;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("criu");
    let out = Command::new(root.join("scripts/criu")).arg(&folder).output();
    match out {
        Ok(out) if out.status.success() => Some(folder.join("criu")),
        Ok(out) => {
            eprintln!("skipped: no CRIU: {}", String::from_utf8_lossy(&out.stderr));
            None
        }
        Err(e) => {
            eprintln!("skipped: no CRIU: {e}");
            None
        }
    }
}
