//! SPANK plugins: processes beside steps and commands that load them and call their hooks.
//!
//! A daemon never loads a plugin, and neither does a command. They start `squall step --plugins` with a socket as its
//! standard input, and send a `words::Order`. That process watches another one, which loads the plugins: when a plugin
//! crashes or hangs, the watching one knows which, and begins again without it if it is optional.
//!
//! Beside a step, the process begins as root, if the node daemon is root's. It makes the tasks, since these have to see
//! what plugins have done before: each task is a copy of it that calls the hooks of tasks, becomes the user and executes
//! the program. The task becomes a child of the step daemon, which is the nearest one that takes orphans.
//!
//! Hooks around jobs and of the node daemon have processes of their own (`around`), which the node daemon starts as it
//! starts prologs.

mod around;
pub mod conf;
mod host;
pub mod link;
mod stack;
mod task;
pub(crate) mod voice;
pub mod words;

use std::io;

use squall_files::place::Place;
use squall_model::config::{Config, Release};

pub use around::serve_around;
pub use host::serve;

/// Records for commands of all users which file lists plugins, which release of Slurm they show, and what the configuration
/// says of `srun`.
pub(crate) fn note_for_commands(place: &Place, config: &Config) -> io::Result<()> {
    place.note_plugins(&config.slurm.plugstack)?;
    place.note_srun(&config.srun_defaults().to_text())?;
    let release = Some(config.slurm.compatible).filter(|release| *release != Release::default());
    place.note_release(release.map_or("", Release::name))
}
