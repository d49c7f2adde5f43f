//! The daemons' log: [`start`] sets it up, the macros of `tracing` write to it. Each event is one line, on standard error
//! or in systemd's journal.
//!
//! ```text
//! 2026-11-25T21:00:00.123 INFO  node registered node=a1 boot=2
//! 2026-11-25T21:00:07.002 ERROR the step could not be started step=7.1.batch error="No space left on device"
//! ```
//!
//! Texts that users made are fields, never a part of the message. A value that has spaces, quotes, `=` or control
//! characters is quoted and escaped, so that it can make neither a second line nor a field.
//!
//! No place in the program writes more than [`LINES_MAX`] lines a second: what users do often, many times over, fills no
//! disk. The first line afterwards says how many are missing.
//!
//! There are no spans: the daemons serve many jobs on one thread.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use squall_engine::invariant;
use squall_model::config::LogLevel;
use squall_model::limits::LOG_VALUE_BYTES_MAX;
use tokio::signal::unix::{SignalKind, signal};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber, callsite, dispatcher};

use crate::sys::clock;

/// Environment variable with the log level; it overrides the configuration.
pub(crate) const VARIABLE: &str = "SQUALL_LOG";
/// Socket on which systemd's journal receives entries.
const JOURNAL: &str = "/run/systemd/journal/socket";
/// Environment variable of systemd with device and inode of the standard error that it connected to its journal.
const JOURNAL_VARIABLE: &str = "JOURNAL_STREAM";

/// Most lines that one place in the program writes in a second.
const LINES_MAX: u32 = 200;

/// The level in use: a [`LogLevel`] as a number.
static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);
/// The level given by `SQUALL_LOG`, if any; the configuration can't change it then.
static GIVEN: OnceLock<LogLevel> = OnceLock::new();
/// The log file to which standard error is connected, if SIGHUP is to reopen it.
static FILE: OnceLock<PathBuf> = OnceLock::new();
/// Socket connected to systemd's journal.
static SYSTEMD: OnceLock<UnixDatagram> = OnceLock::new();
/// Whether lines are sent to systemd's journal.
static TO_SYSTEMD: AtomicBool = AtomicBool::new(false);

/// Begins to log: to systemd's journal if standard error is connected to it, otherwise to standard error. `file`: the
/// log file behind standard error, for a daemon that reopens it at SIGHUP. Err: `SQUALL_LOG` has no valid level.
pub fn start(file: Option<PathBuf>) -> Result<(), String> {
    if let Some(word) = std::env::var_os(VARIABLE).filter(|word| !word.is_empty()) {
        let level = word.to_string_lossy().parse().map_err(|e| format!("{VARIABLE}: {e}"))?;
        // This is the first call, so it can't fail.
        let _ = GIVEN.set(level);
        set_level(level);
    }
    if let Some(file) = file {
        let _ = FILE.set(file);
    } else if is_journal(std::env::var(JOURNAL_VARIABLE).ok().as_deref())
        && let Ok(socket) = UnixDatagram::unbound()
        && socket.connect(JOURNAL).is_ok()
    {
        TO_SYSTEMD.store(SYSTEMD.set(socket).is_ok(), Ordering::Relaxed);
    }
    // Fails if a test in the same process has set a logger already.
    let _ = dispatcher::set_global_default(dispatcher::Dispatch::new(Log));
    Ok(())
}

/// Sets the configured level, unless `SQUALL_LOG` gives one.
pub(crate) fn configure(level: LogLevel) {
    if GIVEN.get().is_none() {
        set_level(level);
    }
}

/// Logs to standard error from now on; for a forked process that has its own standard error.
pub(crate) fn to_stderr() {
    TO_SYSTEMD.store(false, Ordering::Relaxed);
}

/// Whether the log is a file that SIGHUP reopens.
pub(crate) fn is_file() -> bool {
    FILE.get().is_some()
}

/// Reopens the log file, as `logrotate` needs. Processes started earlier keep the old one.
pub(crate) fn reopen() {
    let Some(path) = FILE.get() else { return };
    let opened = open(path).and_then(|file| {
        rustix::stdio::dup2_stdout(&file)?;
        Ok(rustix::stdio::dup2_stderr(&file)?)
    });
    match opened {
        Ok(()) => tracing::info!("log opened again"),
        Err(e) => {
            tracing::error!(file = %path.display(), error = %e, "the log can't be opened again: the old file is used");
        }
    }
}

/// Reopens the log file at each SIGHUP. Without a log file SIGHUP keeps its default effect.
pub(crate) async fn reopen_at_hangups() {
    let Some(mut hangup) = is_file().then(|| signal(SignalKind::hangup()).ok()).flatten() else { return };
    while hangup.recv().await.is_some() {
        reopen();
    }
}

/// Logs broken invariants, if there are more than at the last call.
pub(crate) fn report_broken() {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    let (count, first) = invariant::so_far();
    if let Some(first) = first
        && SEEN.swap(count, Ordering::Relaxed) != count
    {
        let (what, place) = (first.what, first.place);
        tracing::error!(count, what, %place, "an invariant is broken, which is a fault of this program: please report it");
    }
}

/// Opens a daemon's log for appending.
pub(crate) fn open(path: &Path) -> io::Result<std::fs::File> {
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

fn set_level(level: LogLevel) {
    LEVEL.store(level as u8, Ordering::Relaxed);
    // `tracing` caches for each call site whether it is enabled.
    callsite::rebuild_interest_cache();
}

fn level() -> LevelFilter {
    const LEVELS: [(LogLevel, LevelFilter); 6] = [
        (LogLevel::Quiet, LevelFilter::OFF),
        (LogLevel::Error, LevelFilter::ERROR),
        (LogLevel::Warn, LevelFilter::WARN),
        (LogLevel::Info, LevelFilter::INFO),
        (LogLevel::Debug, LevelFilter::DEBUG),
        (LogLevel::Trace, LevelFilter::TRACE),
    ];
    let set = LEVEL.load(Ordering::Relaxed);
    LEVELS.iter().find(|(level, _)| *level as u8 == set).map_or(LevelFilter::INFO, |(_, filter)| *filter)
}

/// Whether standard error is the stream that systemd connected to its journal. `named`: value of `JOURNAL_STREAM`, if
/// it is set.
fn is_journal(named: Option<&str>) -> bool {
    let Ok(stat) = rustix::fs::fstat(rustix::stdio::stderr()) else { return false };
    named.is_some_and(|named| *named == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// The subscriber that receives all events of `tracing`.
struct Log;

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= level()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(level())
    }

    fn event(&self, event: &Event<'_>) {
        let Some(left_out) = take_turn(event.metadata()) else { return };
        let mut line = LogLine::default();
        event.record(&mut line);
        if left_out > 0 {
            line.fields.push(("left_out", left_out.to_string()));
        }
        let level = *event.metadata().level();
        let sent = TO_SYSTEMD.load(Ordering::Relaxed)
            && SYSTEMD.get().is_some_and(|socket| socket.send(line.entry(level).as_bytes()).is_ok());
        if !sent {
            // A daemon continues if its log can't be written.
            drop(io::stderr().lock().write_all(line.text(level).as_bytes()));
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Lines of one place in the program in the present second.
#[derive(Debug, Default)]
struct Pace {
    second: u64,
    lines: u32,
    left_out: u64,
}

impl Pace {
    /// Whether a line may be written now; if so, how many were left out since the last one.
    fn take(&mut self, second: u64) -> Option<u64> {
        if self.second != second {
            (self.second, self.lines) = (second, 0);
        }
        if self.lines == LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Counts a line of a place in the program. None: it has written too many in this second.
fn take_turn(metadata: &Metadata<'static>) -> Option<u64> {
    static PACES: Mutex<BTreeMap<(&'static str, u32), Pace>> = Mutex::new(BTreeMap::new());
    let place = (metadata.file().unwrap_or_default(), metadata.line().unwrap_or_default());
    let second = clock::now().0 / 1_000_000;
    PACES.lock().unwrap_or_else(PoisonError::into_inner).entry(place).or_default().take(second)
}

/// A log line being composed.
#[derive(Debug, Default)]
struct LogLine {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl LogLine {
    fn text(&self, level: Level) -> String {
        let now = clock::now();
        let mut line = format!(
            "{}.{:03} {level:<5} {}",
            clock::local_text(now),
            now.0 / 1000 % 1000,
            Escaped::of_message(&self.message)
        );
        self.add_fields(&mut line);
        line.push('\n');
        line
    }

    /// Formats the line as an entry for systemd's journal: one `NAME=VALUE` per line, each value escaped so as to stay
    /// on it.
    fn entry(&self, level: Level) -> String {
        let priority = match level {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        let mut entry =
            format!("PRIORITY={priority}\nSYSLOG_IDENTIFIER=squall\nMESSAGE={}", Escaped::of_message(&self.message));
        self.add_fields(&mut entry);
        for (name, value) in &self.fields {
            let _ = write!(entry, "\nSQUALL_{}={}", name.to_ascii_uppercase(), Escaped::of_message(value));
        }
        entry.push('\n');
        entry
    }

    fn add_fields(&self, line: &mut String) {
        for (name, value) in &self.fields {
            let _ = write!(line, " {name}={}", Escaped::of_value(value));
        }
    }

    fn add(&mut self, field: &Field, mut value: String) {
        if value.len() > LOG_VALUE_BYTES_MAX {
            value.truncate(value.floor_char_boundary(LOG_VALUE_BYTES_MAX));
            value.push('…');
        }
        match field.name() {
            "message" => self.message = value,
            name => self.fields.push((name, value)),
        }
    }
}

impl Visit for LogLine {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, format!("{value:?}"));
    }
}

/// Escapes text so that it can neither end its line nor control a terminal.
struct Escaped;

impl Escaped {
    /// Escapes control characters only.
    fn of_message(text: &str) -> Cow<'_, str> {
        if !text.contains(is_control) {
            return Cow::Borrowed(text);
        }
        Cow::Owned(escape(text, is_control))
    }

    /// Quotes and escapes a value, unless it is a plain word.
    fn of_value(text: &str) -> Cow<'_, str> {
        let special = |c: char| is_control(c) || c.is_whitespace() || matches!(c, '"' | '\\' | '=');
        if !text.is_empty() && !text.contains(special) {
            return Cow::Borrowed(text);
        }
        Cow::Owned(format!("\"{}\"", escape(text, |c| is_control(c) || matches!(c, '"' | '\\'))))
    }
}

fn escape(text: &str, special: impl Fn(char) -> bool) -> String {
    let mut line = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if special(c) { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// Whether a character ends a line or controls a terminal; includes those that reorder text.
fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Arc, Mutex};

    use proptest::prelude::*;
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber, dispatcher};

    use super::{Escaped, LogLine, is_control};

    /// Regression test of fault M9 in faults.md.
    #[test]
    fn cve_2020_4278_a_log_is_written_by_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("squall-log-{}", std::process::id()));
        drop(super::open(&path).unwrap());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(mode & 0o137, 0, "{mode:o}");
    }

    #[test]
    fn m9_no_text_makes_a_second_line_of_a_log() {
        let forged = Escaped::of_message("/nope/a\n2026-11-25T00:00:00 node n1: FAKE\x1b[31m\r\u{9b}2J\u{202e}");
        assert_eq!(forged, "/nope/a\\n2026-11-25T00:00:00 node n1: FAKE\\u{1b}[31m\\r\\u{9b}2J\\u{202e}");
        assert_eq!(Escaped::of_message("/home/Zoë/\\n 'x'"), "/home/Zoë/\\n 'x'", "all else stays");
    }

    #[test]
    fn values_are_quoted_where_they_must_be() {
        assert_eq!(Escaped::of_value("a1"), "a1");
        assert_eq!(Escaped::of_value(""), "\"\"");
        assert_eq!(Escaped::of_value("x user=root"), "\"x user=root\"");
        assert_eq!(Escaped::of_value("say \"no\\\""), "\"say \\\"no\\\\\\\"\"");
    }

    /// Returns the lines that `work` logs.
    pub(crate) fn logged(work: impl FnOnce()) -> Vec<String> {
        let kept = CollectedLines::default();
        dispatcher::with_default(&dispatcher::Dispatch::new(kept.clone()), work);
        let lines = kept.0.lock().unwrap();
        lines.iter().map(|(level, line)| line.text(*level)).collect()
    }

    /// Subscriber that collects lines.
    #[derive(Clone, Default)]
    struct CollectedLines(Arc<Mutex<Vec<(Level, LogLine)>>>);

    impl Subscriber for CollectedLines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn event(&self, event: &Event<'_>) {
            let mut line = LogLine::default();
            event.record(&mut line);
            self.0.lock().unwrap().push((*event.metadata().level(), line));
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// Parses the fields of a log line, as a reader would. None: the line is malformed.
    fn fields(mut text: &str) -> Option<Vec<(String, String)>> {
        let mut found = Vec::new();
        while !text.is_empty() {
            let (name, rest) = text.strip_prefix(' ')?.split_once('=')?;
            let (value, rest) = match rest.strip_prefix('"') {
                None => rest.split_at(rest.find(' ').unwrap_or(rest.len())),
                Some(quoted) => {
                    let mut escaped = false;
                    let end = quoted.find(|c| {
                        let ends = c == '"' && !escaped;
                        escaped = c == '\\' && !escaped;
                        ends
                    })?;
                    (&quoted[..end], &quoted[end + 1..])
                }
            };
            found.push((name.to_owned(), value.to_owned()));
            text = rest;
        }
        Some(found)
    }

    #[test]
    fn one_place_writes_so_many_lines_a_second() {
        let mut pace = super::Pace::default();
        let written = (0..1000).filter(|_| pace.take(7).is_some()).count();
        assert_eq!(written, 200);
        assert_eq!((pace.take(8), pace.take(8)), (Some(800), Some(0)), "the next line says how many are missing");
    }

    proptest! {
        /// Property: whatever a user writes, the log gets one line with two fields and no control characters.
        #[test]
        fn no_text_of_a_user_makes_a_line_or_a_field(name in any::<String>(), path in "[ =\"\\\\\n\x00-\x1f\u{202e}a]{0,40}") {
            let kept = CollectedLines::default();
            dispatcher::with_default(&dispatcher::Dispatch::new(kept.clone()), || {
                tracing::info!(name, path = %path, "job submitted");
            });
            let (level, line) = kept.0.lock().unwrap().pop().unwrap();
            let text = line.text(level);
            let text = text.strip_suffix('\n').unwrap();
            prop_assert!(!text.contains(is_control), "{text:?}");
            let (_, rest) = text.split_once("INFO  job submitted").unwrap();
            let found = fields(rest);
            let names = found.as_ref().map(|all| all.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>());
            prop_assert_eq!(names, Some(vec!["name", "path"]), "{}", text);
            let entry = line.entry(level);
            prop_assert_eq!(entry.lines().count(), 5, "{}", entry);
            let controls = entry.chars().filter(|c| is_control(*c)).count();
            prop_assert_eq!(controls, 5, "only the ends of its lines: {}", entry);
        }
    }
}
