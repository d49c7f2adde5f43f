//! Squall's scheduling offline, for commands that every installation has: workload traces and past jobs are replayed, and
//! ranks are laid out on a torus.
//!
//! [`replay()`] runs the scheduling policy alone, over a workload [`Trace`] on a pool of processors; [`again`] has the
//! controller place past jobs on nodes.

mod history;
pub mod layout;
mod metrics;
mod node_spec;
pub mod progress;
mod replay;
mod swf;
pub mod trace;

use std::path::Path;

pub use history::{Course, Past, again, end_of, property};
pub use metrics::{Metrics, course};
pub use node_spec::NodeSpec;
pub use replay::{Replay, Schedule, Short, replay};
pub use swf::{BadLine, Trace, TraceJob};

/// Why a command fails: its exit code and the text for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// 2: the arguments are wrong; 1: any other reason.
    pub code: u8,
    /// What is wrong, without the command's name.
    pub text: String,
}

/// Writes a picture, `NAME.svg`, into a folder, which is created if needed.
pub fn write_picture(svg: &str, folder: &Path, name: &str) -> Result<(), String> {
    let path = folder.join(name).with_extension("svg");
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, svg));
    written.map_err(|e| format!("{}: {e}", path.display()))
}
