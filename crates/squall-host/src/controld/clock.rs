//! The controller's clock: time since boot, so that no deadline depends on a clock that people set. It also tracks how
//! far the wall clock is ahead of it, which is used to show and parse times.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

use squall_files::place::Place;
use squall_model::time::Time;

use crate::sys::clock;

/// Microseconds by which the wall clock must jump to count as set; smaller differences are corrections, e.g. by NTP.
const STEP_US: i64 = 1_000_000;

/// The controller's clock. It continues across restarts of the controller while the machine runs: a time limit that was
/// half used stays half used, whatever the wall clock shows.
#[derive(Debug)]
pub(super) struct Clock {
    path: PathBuf,
    boot_id: String,
    /// Controller's time minus time since boot, microseconds.
    offset_us: u64,
    /// Wall clock minus controller's time at the last `look`, microseconds.
    ahead_us: i64,
}

impl Clock {
    /// Starts the clock; `last` is the time of the journal's last record. After a boot the wall clock is taken, but the
    /// time never goes back behind `last`.
    pub(super) fn start(place: &Place, last: Time) -> Self {
        let path = place.clock();
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
        let known = fs::read_to_string(&path).ok().and_then(|text| parse(&text));
        let since_boot = clock::since_boot_us();
        let least = last.0.saturating_sub(since_boot);
        let (offset_us, ahead_us) = match known {
            Some((boot, offset_us, ahead_us)) if boot == boot_id => (offset_us.max(least), ahead_us),
            known => {
                let offset_us = clock::now().0.saturating_sub(since_boot).max(least);
                (offset_us, known.map_or(0, |(_, _, ahead_us)| ahead_us))
            }
        };
        Self { path, boot_id, offset_us, ahead_us }
    }

    /// Returns the controller's current time.
    pub(super) fn now(&self) -> Time {
        Time(self.offset_us + clock::since_boot_us())
    }

    /// Returns wall clock minus controller's time at the last `look`, microseconds.
    pub(super) fn ahead_us(&self) -> i64 {
        self.ahead_us
    }

    /// Returns by how many microseconds the wall clock was set since the last call. None: it was not set.
    pub(super) fn look(&mut self) -> Option<i64> {
        let ahead = clock::now().0.cast_signed() - self.now().0.cast_signed();
        let by = ahead - self.ahead_us;
        if by.abs() < STEP_US {
            return None;
        }
        self.ahead_us = ahead;
        Some(by)
    }

    /// Saves the clock for the next start. A failure, e.g. a full disk, is only logged: the next start then relies on
    /// the journal.
    pub(super) fn remember(&self) {
        if let Err(e) = self.save() {
            tracing::error!(file = %self.path.display(), error = %e, "cannot note the clock: after a restart times may be off");
        }
    }

    /// Writes the clock's file, unless it has these values already.
    fn save(&self) -> io::Result<()> {
        let known = fs::read_to_string(&self.path).ok().and_then(|text| parse(&text));
        if known.is_some_and(|known| known == (self.boot_id.clone(), self.offset_us, self.ahead_us)) {
            return Ok(());
        }
        let fresh = self.path.with_extension("new");
        let mut file = File::create(&fresh)?;
        writeln!(file, "{} {} {}", self.boot_id, self.offset_us, self.ahead_us)?;
        file.sync_all()?;
        fs::rename(&fresh, &self.path)
    }
}

/// Parses boot id, offset and wall clock's lead (both microseconds). None: the file was not completely written.
fn parse(text: &str) -> Option<(String, u64, i64)> {
    let mut words = text.strip_suffix('\n')?.split(' ');
    let known = (words.next()?.to_owned(), words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next().is_none().then_some(known)
}

#[cfg(test)]
mod tests {
    use super::{Clock, clock};
    use squall_files::place::Place;
    use squall_model::time::Time;

    #[test]
    fn a5_the_controllers_time_goes_on_over_its_lives() {
        let dir = std::env::temp_dir().join(format!("squall-clock-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let place = Place::at(&dir).unwrap();
        let mut first = Clock::start(&place, Time(0));
        assert!(first.now().since(clock::now()).secs() < 2 && clock::now().since(first.now()).secs() < 2);
        assert_eq!(first.look(), None);
        // The wall clock is set back by an hour: as if the controller's had been ahead.
        first.offset_us += 3_600_000_000;
        let by = first.look().unwrap();
        assert!((-3_601_000_000..-3_599_000_000).contains(&by), "{by}");
        assert_eq!((first.look(), first.ahead_us()), (None, by));
        first.save().unwrap();
        let mut next = Clock::start(&place, Time(0));
        assert_eq!((next.offset_us, next.ahead_us(), next.look()), (first.offset_us, by, None));
        // A damaged file counts as missing; then time does not go back behind the journal.
        std::fs::write(place.clock(), "half a li").unwrap();
        let last = clock::now() + squall_model::time::Span::from_secs(7200);
        assert!(Clock::start(&place, last).now() >= last);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
