//! `sacctmgr archive dump`: writes ended jobs into a file of comma-separated values. `archive load`: brings them back, as
//! `squall import --history` does.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use squall_files::place::Place;
use squall_model::config::retention;
use squall_model::duration::{format_elapsed, format_limit};
use squall_model::job::JobState;
use squall_model::time::Time;
use squall_model::wire::client::AccountingQuery;
use squall_text::columns::records::starts;
use squall_text::format::accounting::Row;
use squall_text::format::clock::Clock;
use squall_text::format::harmless;

use crate::command::import;
use crate::command::listing::call::{Call, Fail};

/// What Slurm archives beside jobs, and how long these are kept here.
const OTHERS: &[&str] = &["Events", "Reservations", "Suspend", "TXN", "Usage"];

/// A column: its name, and its value for a job.
type Column = (&'static str, fn(&Row, &Clock) -> String);

/// The columns, which `squall import --history` reads.
#[rustfmt::skip]
const COLUMNS: &[Column] = &[
    ("JobID", |r, _| r.id()),
    ("JobIDRaw", |r, _| r.raw_id()),
    ("JobName", |r, _| r.data.name.clone()),
    ("User", |r, _| r.data.owner.user.clone()),
    ("UID", |r, _| r.data.owner.uid.to_string()),
    ("Account", |r, _| r.data.account.clone()),
    ("Partition", |r, _| r.data.partition.clone()),
    ("QOS", |r, _| r.data.qos.clone()),
    ("State", |r, _| r.state()),
    ("ExitCode", |r, _| format!("{}:{}", r.data.exit.code, r.data.exit.signal)),
    ("Submit", |r, clock| clock.show(r.data.submit)),
    ("Start", |r, clock| clock.show_or(r.data.start, "None")),
    ("End", |r, clock| clock.show_or(r.data.end, "Unknown")),
    ("Elapsed", |r, _| format_elapsed(r.elapsed())),
    ("NNodes", |r, _| r.data.num_nodes.to_string()),
    ("AllocCPUS", |r, _| r.data.num_cpus.to_string()),
    ("AllocTRES", |r, _| r.alloc_tres()),
    ("NodeList", |r, _| r.data.nodes.clone()),
    ("Timelimit", |r, _| format_limit(r.data.time_limit_s)),
    ("Comment", |r, _| r.data.spec.comment.clone().unwrap_or_default()),
];

/// Runs `sacctmgr archive`.
pub(super) fn archive(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    match words.first().map(|word| word.to_ascii_lowercase()) {
        Some(word) if !word.is_empty() && "dump".starts_with(&word) => dump(call, &words[1..]),
        Some(word) if !word.is_empty() && "load".starts_with(&word) => load(call, &words[1..]),
        _ => call
            .fail("archive: use `archive dump [Directory=DIR] [PurgeJobAfter=12months]` or `archive load File=FILE`"),
    }
}

fn dump(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let (mut folder, mut keep) = (PathBuf::from("."), None);
    for word in words {
        let (key, value) = word.split_once('=').map_or((word.as_str(), ""), |(key, value)| (key, value));
        let is = |name: &str, least: usize| key.len() >= least && starts(name, key);
        if is("Directory", 1) {
            folder = value.trim_matches(['"', '\'']).into();
        } else if is("PurgeJobAfter", 6) {
            let Some(time) = retention(value) else {
                return call.fail(&format!("{word}: use a time such as 12months, 90days or 24hours"));
            };
            keep = Some(time);
        } else if let Some(other) = OTHERS.iter().find(|other| is(other, 2)) {
            return call
                .fail(&format!("{word}: {other} are not removed from the records, so there is no archive of them"));
        } else if !is("Jobs", 1) && !is("Steps", 2) {
            return call.fail(&format!(" Unknown option: {word}"));
        }
    }
    let before = keep.map_or(call.now, |keep| call.now - keep);
    let cluster = call.cluster("sacctmgr: error: archive dump")?;
    let query = AccountingQuery {
        start: Some(Time(0)),
        end: Some(before),
        allocations_only: true,
        duplicates: true,
        ..AccountingQuery::default()
    };
    let clock = Rc::new(Clock::here(call.now));
    let part = folder.join(format!("{cluster}_job_archive.part{}", std::process::id()));
    let mut archive = match Archive::begin(&part) {
        Ok(archive) => archive,
        Err(e) => return call.fail(&format!("{}: {e}", part.display())),
    };
    let mut written = Ok(());
    let answered = call.controller.accounting_pages(query, &mut |rows| {
        let rows = rows.map(|mut rows| {
            rows.retain(|row| matches!(row.state, JobState::Ended(_)) && row.end.is_some_and(|end| end <= before));
            rows.into_iter().map(|row| Row::new(row, &clock, &cluster)).collect::<Vec<_>>()
        });
        if written.is_ok() {
            written = match rows {
                Some(rows) => archive.add(&rows, &clock),
                None => archive.clear(),
            };
        }
    });
    let path = archive.ends.map(|(first, last)| {
        folder.join(format!("{cluster}_job_archive_{}_{}.csv", clock.show(first), clock.show(last)))
    });
    let count = archive.count;
    let kept = written.and_then(|()| match &path {
        Some(path) if answered.is_ok() => archive.keep(&part, path),
        _ => Ok(()),
    });
    // It is there no more if it was kept.
    drop(std::fs::remove_file(&part));
    answered.or_else(|e| call.failed("sacctmgr: error: archive dump", &e))?;
    match (path, kept) {
        (None, Ok(())) => call.print("No jobs to archive\n"),
        (Some(path), Ok(())) => call.print(&format!("{}: {count} jobs\n", path.display())),
        (path, Err(e)) => return call.fail(&format!("{}: {e}", path.unwrap_or(part).display())),
    }
    Ok(())
}

/// An archive that is being written: jobs as comma-separated values, with a header line. Each job is one line.
struct Archive {
    file: BufWriter<File>,
    count: usize,
    /// The first and the last end of a job in it.
    ends: Option<(Time, Time)>,
}

impl Archive {
    /// Makes a new file that only its owner may read.
    fn begin(part: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(part)?;
        let mut archive = Self { file: BufWriter::new(file), count: 0, ends: None };
        archive.clear()?;
        Ok(archive)
    }

    /// Removes all jobs.
    fn clear(&mut self) -> io::Result<()> {
        self.file.rewind()?;
        self.file.get_ref().set_len(0)?;
        (self.count, self.ends) = (0, None);
        writeln!(self.file, "{}", COLUMNS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(","))
    }

    fn add(&mut self, rows: &[Row], clock: &Clock) -> io::Result<()> {
        for row in rows {
            let cells: Vec<String> = COLUMNS.iter().map(|(_, of)| cell(&of(row, clock))).collect();
            writeln!(self.file, "{}", cells.join(","))?;
            self.count += 1;
            let end = row.data.end.unwrap_or_default();
            let (first, last) = self.ends.unwrap_or((end, end));
            self.ends = Some((first.min(end), last.max(end)));
        }
        Ok(())
    }

    /// Makes the file durable, and gives it its name, which no other may have.
    fn keep(mut self, part: &Path, path: &Path) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        if path.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        std::fs::rename(part, path)
    }
}

/// Returns a value as a cell: in quotes if it has a comma or a quote.
fn cell(value: &str) -> String {
    let value = harmless(value);
    if value.contains([',', '"']) { format!("\"{}\"", value.replace('"', "\"\"")) } else { value.into_owned() }
}

fn load(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let file = words.iter().find_map(|word| match word.split_once('=') {
        Some((key, value)) if !key.is_empty() && starts("File", key) => Some(value.trim_matches(['"', '\''])),
        _ => None,
    });
    let Some(file) = file else { return call.fail("archive load: which file? File=FILE") };
    let Some(place) = Place::find() else { return call.fail("archive load: there is no cluster on this machine") };
    match import::load(Path::new(file), &place) {
        Ok(text) => call.print(&text),
        Err(problem) => return call.fail(&format!("archive load: {problem}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, cell};

    #[test]
    fn cells_with_commas_are_quoted_and_each_job_is_one_line() {
        assert_eq!(cell("n[1-2]"), "n[1-2]");
        assert_eq!(cell("n[1,3]"), "\"n[1,3]\"");
        assert_eq!(cell("say \"a\""), "\"say \"\"a\"\"\"");
        assert!(!cell("two\nlines").contains('\n'));
        assert_eq!(COLUMNS.len(), 20);
    }
}
