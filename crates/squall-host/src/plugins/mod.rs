//! SPANK plugins: processes beside steps and commands that load them and call their hooks.
//!
//! A daemon never loads a plugin, and neither does a command. They start `squall step --plugins` with a socket as its
//! standard input, and send a `words::Order`. That process watches another one, which loads the plugins: when a plugin
//! crashes or hangs, the watching one knows which, and begins again without it if it is optional.
//!
//! Beside a step, the process begins as root, if the node daemon is root's. It makes the tasks, since these have to see
//! what plugins have done before: each task is a copy of it that calls the hooks of tasks, becomes the user and executes
//! the program. The task becomes a child of the step daemon, which is the nearest one that takes orphans.

pub mod conf;
mod host;
pub mod link;
mod stack;
mod task;
pub(crate) mod voice;
pub mod words;

pub use host::serve;
