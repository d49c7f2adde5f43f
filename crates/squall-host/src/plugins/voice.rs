//! Where texts of plugins go: to the user, or to the log.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

use tracing::{debug, info};

use super::words::FromPlugins;
use crate::messages;

/// To whom texts for the user go.
#[derive(Debug)]
pub(super) enum Voice {
    /// To the process that has started this one.
    Link(UnixStream),
    /// To standard error, as a task.
    Task,
}

static VOICE: Mutex<Voice> = Mutex::new(Voice::Task);

/// Sets where texts go from now on.
pub(super) fn speak_to(voice: Voice) {
    *VOICE.lock().unwrap_or_else(PoisonError::into_inner) = voice;
}

/// Passes on a text of a plugin. `level`: 0: an error; 1: a text for the user; higher: for the log.
pub(crate) fn say(level: i32, text: &str) {
    let text = text.trim_end();
    match level {
        0 => tell(&format!("error: {text}")),
        1 => tell(text),
        2 | 3 => info!("{text}"),
        _ => debug!("{text}"),
    }
}

/// Tells the user.
pub(super) fn tell(text: &str) {
    match &mut *VOICE.lock().unwrap_or_else(PoisonError::into_inner) {
        // Whoever has closed the link does not want to know.
        Voice::Link(link) => drop(send(link, &FromPlugins::Said(text.to_owned()))),
        // A task may have closed its standard error.
        Voice::Task => drop(writeln!(std::io::stderr(), "slurmstepd: {text}")),
    }
}

/// Sends a message.
pub(super) fn send(link: &mut UnixStream, message: &FromPlugins) -> std::io::Result<()> {
    messages::send(link, message)
}
