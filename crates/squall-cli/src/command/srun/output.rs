//! Output of the tasks: to srun's own streams or to files, line by line if several tasks write.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use squall_model::step::Among;

/// Time after which the beginning of a line is printed, even if the line isn't complete.
const PARTIAL: Duration = Duration::from_millis(250);
/// Length at which the beginning of a line is printed, even if the line isn't complete.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The destination of standard output or of standard error.
#[derive(Debug)]
pub(crate) enum Sink {
    /// The bytes go to srun's standard output.
    Stdout,
    /// The bytes go to srun's standard error.
    Stderr,
    /// The bytes go to a file that srun has opened.
    File(File),
}

impl Sink {
    /// Opens a file for output. Without `append` its content is deleted.
    pub(crate) fn open(path: &str, append: bool) -> io::Result<Self> {
        let mut how = OpenOptions::new();
        how.create(true);
        if append {
            how.append(true)
        } else {
            how.write(true).truncate(true)
        };
        how.open(path).map(Self::File)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(bytes)?;
                out.flush()
            }
            Self::Stderr => io::stderr().lock().write_all(bytes),
            Self::File(file) => file.write_all(bytes),
        }
    }
}

/// Merges the output of all tasks of a step and writes it, line by line.
#[derive(Debug)]
pub(crate) struct Output {
    /// Destination of the tasks' standard output.
    out: Sink,
    /// Destination of standard error. None: the same as that of standard output.
    err: Option<Sink>,
    /// Number of digits of the rank in labels before each line. None: lines have no labels.
    label: Option<usize>,
    /// Number printed for rank 0 in labels. In a step of several components ranks are counted across all of them.
    first: u32,
    /// For standard output and for standard error: the only rank of which output is shown; None: all ranks.
    pub(crate) only: [Option<u32>; 2],
    /// Whether incomplete lines are held back until they are complete.
    lines: bool,
    partial: BTreeMap<(u32, bool), (Instant, Vec<u8>)>,
}

impl Output {
    /// Creates an output for `ntasks` tasks. `err` None: standard error goes where standard output goes.
    pub(crate) fn new(out: Sink, err: Option<Sink>, ntasks: u32, label: bool, unbuffered: bool) -> Self {
        let alone = Among { tasks: ntasks, ..Among::default() };
        Self::among(out, err, alone, label, unbuffered)
    }

    /// Creates an output for one component's tasks, in a step of several components.
    pub(crate) fn among(out: Sink, err: Option<Sink>, among: Among, label: bool, unbuffered: bool) -> Self {
        let ntasks = among.tasks;
        let digits = ntasks.saturating_sub(1).max(1).ilog10() as usize + 1;
        let lines = label || (ntasks > 1 && !unbuffered);
        Self {
            out,
            err,
            label: label.then_some(digits),
            first: among.tasks_before,
            only: [None; 2],
            lines,
            partial: BTreeMap::new(),
        }
    }

    /// Processes bytes that a task wrote. No bytes: the task's stream has ended.
    pub(crate) fn take(&mut self, now: Instant, rank: u32, stderr: bool, bytes: &[u8]) -> io::Result<()> {
        if self.only[usize::from(stderr)].is_some_and(|only| only != rank) {
            return Ok(());
        }
        if !self.lines {
            return self.put(stderr, bytes);
        }
        let (_, mut held) = self.partial.remove(&(rank, stderr)).unwrap_or((now, Vec::new()));
        held.extend_from_slice(bytes);
        let whole = match held.iter().rposition(|b| *b == b'\n') {
            _ if bytes.is_empty() || held.len() > LINE_BYTES_MAX => held.len(),
            Some(at) => at + 1,
            None => 0,
        };
        let rest = held.split_off(whole);
        if !rest.is_empty() {
            self.partial.insert((rank, stderr), (now, rest));
        }
        self.lines_of(rank, stderr, &held)
    }

    /// Returns when [`Output::flush`] must be called next. None: no line is held back.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.partial.values().map(|(since, _)| *since + PARTIAL).min()
    }

    /// Writes incomplete lines that were held back long enough; with `end` all of them.
    pub(crate) fn flush(&mut self, now: Instant, end: bool) -> io::Result<()> {
        let due: Vec<(u32, bool)> =
            self.partial.iter().filter(|(_, (since, _))| end || *since + PARTIAL <= now).map(|(key, _)| *key).collect();
        for key in due {
            if let Some((_, held)) = self.partial.remove(&key) {
                self.lines_of(key.0, key.1, &held)?;
            }
        }
        Ok(())
    }

    fn lines_of(&mut self, rank: u32, stderr: bool, bytes: &[u8]) -> io::Result<()> {
        let Some(width) = self.label else { return self.put(stderr, bytes) };
        let mut text = Vec::with_capacity(bytes.len() + 16);
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            write!(text, "{:>width$}: ", rank.saturating_add(self.first))?;
            text.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                text.push(b'\n');
            }
        }
        self.put(stderr, &text)
    }

    fn put(&mut self, stderr: bool, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        match (&mut self.err, stderr) {
            (Some(err), true) => err.write(bytes),
            _ => self.out.write(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, Instant};

    use super::{Output, Sink};

    /// Passes frames (rank, bytes) to an output; returns the file's content before and after the final flush.
    fn written(name: &str, ntasks: u32, label: bool, unbuffered: bool, frames: &[(u32, &str)]) -> (String, String) {
        let path = std::env::temp_dir().join(format!("squall-output-{}-{name}", std::process::id()));
        let path = path.to_str().unwrap();
        let sink = Sink::open(path, false).unwrap();
        let mut output = Output::new(sink, None, ntasks, label, unbuffered);
        let now = Instant::now();
        for (rank, bytes) in frames {
            output.take(now, *rank, false, bytes.as_bytes()).unwrap();
        }
        let before = fs::read_to_string(path).unwrap();
        output.flush(now + Duration::from_secs(1), false).unwrap();
        let after = fs::read_to_string(path).unwrap();
        fs::remove_file(path).unwrap();
        (before, after)
    }

    #[test]
    fn labels_stand_before_every_line() {
        let frames = [(0, "a\nb"), (11, "x\ny\n"), (0, "c\n"), (3, "end")];
        assert_eq!(
            written("label", 12, true, false, &frames),
            (" 0: a\n11: x\n11: y\n 0: bc\n".into(), " 0: a\n11: x\n11: y\n 0: bc\n 3: end\n".into())
        );
        assert_eq!(written("one", 10, true, false, &[(9, "z\n")]).0, "9: z\n");
    }

    #[test]
    fn only_the_output_and_errors_of_one_task_are_shown() {
        let path = std::env::temp_dir().join(format!("squall-output-{}-only", std::process::id()));
        let path = path.to_str().unwrap();
        let sink = Sink::open(path, false).unwrap();
        let mut output = Output::new(sink, None, 2, true, false);
        output.only = [Some(1), Some(0)];
        for (rank, error) in [(0, false), (1, false), (0, true), (1, true)] {
            let line = format!("{}\n", if error { "error" } else { "output" });
            output.take(Instant::now(), rank, error, line.as_bytes()).unwrap();
        }
        output.flush(Instant::now() + Duration::from_secs(1), false).unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "1: output\n0: error\n");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn lines_of_several_tasks_are_not_mixed() {
        assert_eq!(written("lines", 2, false, false, &[(0, "a"), (1, "b\n"), (0, "c\n")]).0, "b\nac\n");
    }

    #[test]
    fn one_task_and_unbuffered_output_pass_at_once() {
        assert_eq!(written("raw", 1, false, false, &[(0, "prompt> ")]).0, "prompt> ");
        assert_eq!(written("unbuffered", 2, false, true, &[(0, "a"), (1, "b")]).0, "ab");
    }
}
