//! Starts of a cluster's daemons: one `squall up` at a time, and none goes on after a `squall down` that came later.
//!
//! `DIR/run/downs` changes with each `squall down`, before that looks for daemons. A command that starts daemons reads the
//! file when it begins, and each daemon compares it after it has written its pid file. So either `squall down` finds the
//! daemon, or the daemon finds that it was called off.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::FlockOperation;
use squall_files::place::Place;

use crate::sys::clock;

/// Variable with which a daemon is started: what `DIR/run/downs` had when the command began that starts it.
const VARIABLE: &str = "SQUALL_DOWNS";
/// Pause between two tries to get the turn.
const PAUSE: Duration = Duration::from_millis(10);
/// Error of a command or daemon that was called off.
const CALLED_OFF: &str = "`squall down` has ended this cluster meanwhile";

/// By state folder: what `DIR/run/downs` had when this process first looked.
static SEEN: Mutex<Option<HashMap<PathBuf, String>>> = Mutex::new(None);

/// The turn of a command that starts daemons, until this is dropped.
#[derive(Debug)]
pub struct Turn {
    _file: File,
}

impl Turn {
    /// Waits until no other command starts daemons of this cluster, which has its folders. Err: `squall down` was called
    /// meanwhile, or the turn can't be had.
    pub fn take(place: &Place) -> Result<Self, String> {
        let path = place.up_lock();
        let failed = |e: io::Error| format!("{}: {e}", path.display());
        loop {
            let file = fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
            let file = file.map_err(failed)?;
            while let Err(e) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                if e != rustix::io::Errno::WOULDBLOCK {
                    return Err(failed(e.into()));
                }
                if read(place) != seen(place) {
                    return Err(CALLED_OFF.to_owned());
                }
                std::thread::sleep(PAUSE);
            }
            let own = file.metadata().map_err(failed)?;
            // A command that failed may have removed the file: a lock of that one would mean nothing.
            if fs::metadata(&path).is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino())) {
                return Ok(Self { _file: file });
            }
        }
    }
}

/// Notes that a command begins that may start daemons.
pub fn begin(place: &Place) {
    seen(place);
}

/// Calls off all starts that have begun. To be called by the owner before daemons are ended.
pub fn call_off(place: &Place) -> io::Result<()> {
    if !place.run().is_dir() {
        return Ok(());
    }
    fs::write(place.downs(), format!("{} {}\n", clock::now().0, std::process::id()))
}

/// Returns the variable for a daemon that this process starts.
pub(crate) fn variable(place: &Place) -> (&'static str, String) {
    (VARIABLE, seen(place))
}

/// Fails if the start of this daemon was called off. To be called once its pid file is written.
pub fn go_on(place: &Place) -> Result<(), String> {
    let called_off = std::env::var(VARIABLE).is_ok_and(|begun| begun != read(place));
    if called_off { Err(CALLED_OFF.to_owned()) } else { Ok(()) }
}

fn read(place: &Place) -> String {
    fs::read_to_string(place.downs()).unwrap_or_default().trim().to_owned()
}

fn seen(place: &Place) -> String {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let seen = seen.get_or_insert_default();
    seen.entry(place.dir().to_owned()).or_insert_with(|| read(place)).clone()
}

#[cfg(test)]
mod tests {
    use squall_files::place::Place;

    use super::{CALLED_OFF, Turn, begin, call_off, variable};

    #[test]
    fn a_start_that_waits_for_another_one_is_called_off_by_down() {
        let dir = std::env::temp_dir().join(format!("squall-starts-{}", std::process::id()));
        let place = Place::at(&dir).unwrap();
        std::fs::create_dir_all(place.run()).unwrap();
        begin(&place);
        let before = variable(&place);
        let first = Turn::take(&place).unwrap();
        let waiting = std::thread::spawn({
            let place = place.clone();
            move || Turn::take(&place).map(drop)
        });
        assert!(!waiting.is_finished());
        call_off(&place).unwrap();
        assert_eq!(waiting.join().unwrap(), Err(CALLED_OFF.to_owned()));
        assert_eq!(variable(&place), before, "what this process starts from now on is called off, too");
        drop(first);
        drop(Turn::take(&place).unwrap());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
