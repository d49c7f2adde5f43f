//! `squall tail JOB`: prints the end of a job's output, and what the job adds to it until it ends.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::process::ExitCode;
use std::time::Duration;

use squall_model::id::JobId;
use squall_model::job::JobState;
use squall_model::wire::client::{AccountingQuery, Answer, HostRequest, JobRef, JobSelection};

use crate::command::listing::call::{Call, Fail, live};
use crate::command::listing::lists::job_rows;
use squall_text::columns::accounting::{stderr, stdout};
use squall_text::format::accounting::Row;
use squall_text::format::colour::clean;
use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{Options, Page};

const OPTIONS: &[Flag] = &[
    flag("error", 'e', Arg::None, "show the standard error, where it is a file of its own"),
    flag("lines", 'n', Arg::Needed("count"), "begin with this many lines of what is there (default 10)"),
    flag("help", 'h', Arg::None, "show this help"),
];

/// What `squall tail` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall tail",
    about: "follow a job's output",
    synopsis: &["[OPTIONS] JOB"],
    options: Options::Own(OPTIONS),
    notes: "\
Prints the last lines of the output of a batch job or a task of an array (12_3), and then what it
adds, until it ends. Before the job starts it waits. The file is read with your rights on this
host, else by the controller's host for its owner (the last 8 KiB each second).
",
};

const WHAT: &str = "squall tail";

/// Pause between looks at the file.
const PAUSE: Duration = Duration::from_secs(1);

/// Most bytes that are printed of what is there already.
const BEGIN_BYTES: u64 = 1 << 20;

/// Runs `squall tail`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live(WHAT, args, tail)
}

/// A job whose output is followed, as it was when last asked.
struct Followed {
    id: JobId,
    state: JobState,
    path: String,
    /// Names of the job's nodes; empty: it has not started.
    nodes: String,
    is_own: bool,
    /// Whether only accounting knows the job.
    past: bool,
    /// Whether its standard error is followed.
    errors: bool,
}

fn tail(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    let [job] = given.operands.as_slice() else {
        return call.fail("which job? `squall tail JOB`; squeue lists them");
    };
    let Ok(lines) = given.last("lines").unwrap_or("10").parse::<usize>() else {
        return call.fail("--lines: use a whole number, such as 20");
    };
    let (mut at, mut waits) = (None, false);
    loop {
        // The state is asked for first: after the end of a job nothing is added.
        let followed = followed(call, job, given.has("error"))?;
        let is_over = matches!(followed.state, JobState::Ended(_));
        let started = !followed.nodes.is_empty();
        // Before the start the file may be an older job's.
        match if started { read(call, &followed, at) } else { Err(io::ErrorKind::NotFound.into()) } {
            Ok((size, bytes)) => {
                let begin = if at.is_none() { beginning(&bytes, lines) } else { 0 };
                show(call, &bytes[begin..], followed.is_own);
                at = Some(size);
            }
            Err(problem) if is_over || problem.kind() != io::ErrorKind::NotFound => {
                return call.fail(&not_here(job, &followed, &problem));
            }
            Err(_) if !waits => {
                waits = true;
                let text = match followed.nodes.as_str() {
                    "" => "waits for its start".to_owned(),
                    nodes => format!("runs on {nodes}, and its output is not here yet"),
                };
                call.say(&format!("{WHAT}: job {job} {text}: {}", followed.path));
            }
            Err(_) => {}
        }
        if is_over || call.closed {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
}

/// Asks for a job: the controller, and accounting for one that it has forgotten.
fn followed(call: &mut Call<'_>, job: &str, error: bool) -> Result<Followed, Fail> {
    let ids: Vec<JobRef> = call.targets(job)?.into_iter().map(|target| target.job).collect();
    let selection = JobSelection { ids: ids.clone(), ..JobSelection::default() };
    let rows = match call.controller.jobs(selection, true, false) {
        Ok(page) => job_rows(call, page)?,
        Err(e) => return call.failed(WHAT, &e),
    };
    let me = call.people.me();
    let mut all: Vec<Followed> = rows
        .iter()
        .map(|row| Followed {
            id: row.info.id,
            state: row.info.state,
            path: if error { row.stderr() } else { row.stdout() },
            nodes: row.info.run().batch_host.clone(),
            is_own: row.owner.uid == me,
            past: false,
            errors: error,
        })
        .collect();
    if all.is_empty() {
        let query = AccountingQuery { ids, allocations_only: true, ..AccountingQuery::default() };
        let (clock, cluster) = (call.clock(call.now), call.cluster(WHAT)?);
        let rows = call.accounting(WHAT, query)?.into_iter().map(|data| Row::new(data, &clock, &cluster));
        all.extend(rows.map(|row| Followed {
            id: row.data.id,
            state: row.data.state,
            path: if error { stderr(&row) } else { stdout(&row) },
            nodes: row.data.nodes.clone(),
            is_own: row.data.owner.uid == me,
            past: true,
            errors: error,
        }));
    }
    match (all.len(), all.pop()) {
        (1, Some(one)) if one.path.is_empty() => {
            call.fail(&format!("job {job} has no file of output; its steps may be watched: `sattach {job}.0`"))
        }
        (1, Some(one)) => Ok(one),
        (_, None) => call.fail(&format!("there is no job {job} that you may see")),
        _ => call.fail(&format!("job {job} has several tasks or components: name one, such as {job}_1 or {job}+1")),
    }
}

/// Reads a job's output from position `at`, or its end if `at` is None. Returns the new position and the bytes.
fn read(call: &mut Call<'_>, job: &Followed, at: Option<u64>) -> io::Result<(u64, Vec<u8>)> {
    let here = read_here(&job.path, at);
    if here.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
        && let Ok(Answer::Tail(tail)) = call.controller.ask_host(&HostRequest::Tail { job: job.id, past: job.past, errors: job.errors })
        // Accounting does not tell `squall tail` the first node's name, which may be part of the path.
        && (tail.path == job.path || job.past)
        && tail.problem.is_none()
    {
        let new = at.filter(|at| *at <= tail.size).map_or(u64::MAX, |at| tail.size - at);
        let skip = (tail.bytes.len() as u64).saturating_sub(new) as usize;
        return Ok((tail.size, tail.bytes[skip..].to_vec()));
    }
    here
}

fn read_here(path: &str, at: Option<u64>) -> io::Result<(u64, Vec<u8>)> {
    // A pipe or a terminal would block.
    let mut file: File = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let known = file.metadata()?;
    if !known.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    // A job that runs again may begin its file again.
    let at = at.map_or_else(|| known.len().saturating_sub(BEGIN_BYTES), |at| if at > known.len() { 0 } else { at });
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(known.len().saturating_sub(at)).read_to_end(&mut bytes)?;
    Ok((at + bytes.len() as u64, bytes))
}

/// Returns where the last lines begin.
fn beginning(bytes: &[u8], lines: usize) -> usize {
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let mut ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    if lines == 0 { bytes.len() } else { ends.nth(lines - 1).unwrap_or(0) }
}

/// Prints output. That of other users has no control characters on a terminal.
fn show(call: &mut Call<'_>, bytes: &[u8], is_own: bool) {
    let text = (call.terminal && !is_own).then(|| clean(&String::from_utf8_lossy(bytes)).into_owned());
    let bytes = text.as_ref().map_or(bytes, String::as_bytes);
    call.closed |= call.out.write_all(bytes).and_then(|()| call.out.flush()).is_err();
}

/// Says where the output is that can't be read.
fn not_here(job: &str, followed: &Followed, problem: &io::Error) -> String {
    let Followed { path, nodes, .. } = followed;
    match (problem.kind(), nodes.as_str()) {
        (io::ErrorKind::NotFound, "") => format!("job {job} never ran, and has no {path}"),
        (io::ErrorKind::NotFound, nodes) => {
            format!("{path} is neither here nor on the controller's host; job {job} ran on {nodes}: look there")
        }
        _ => format!("{path}: {}", squall_model::plain::plain(&problem.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use squall_model::job::{EndState, JobSpec, JobState};
    use squall_model::wire::client::{Answer, Tail};

    use super::{beginning, read_here, tail};
    use crate::command::listing::fake::{Fake, check, fake, run_with};

    fn ended_with(output: &str) -> Fake {
        let mut fake = fake();
        let job = fake.page.jobs.iter_mut().find(|job| job.id.0 == 10).expect("it is there");
        job.state = JobState::Ended(EndState::Completed);
        let spec = &mut fake.page.specs[job.spec as usize];
        *spec = Arc::new(JobSpec { stdout: Some(output.to_owned()), ..JobSpec::clone(spec) });
        fake
    }

    #[test]
    fn the_last_lines_and_what_is_added() {
        let dir = std::env::temp_dir().join(format!("squall-tail-command-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("it can be made");
        let path = dir.join("out").to_string_lossy().into_owned();
        fs::write(&path, "one\ntwo\nthree\n").expect("it can be written");
        let shown = |args: &[&str]| run_with(&mut ended_with(&path), "squall tail", tail, args, &[]);
        assert_eq!((shown(&["10"]).code, shown(&["10"]).out.as_str()), (0, "one\ntwo\nthree\n"));
        assert_eq!(shown(&["-n", "1", "10"]).out, "three\n");
        assert_eq!(shown(&["-n0", "10"]).out, "");
        assert_eq!(read_here(&path, Some(4)).expect("it is there"), (14, b"two\nthree\n".to_vec()));
        fs::write(&path, "new\n").expect("it can be written");
        assert_eq!(read_here(&path, Some(14)).expect("it is there"), (4, b"new\n".to_vec()), "it began again");
        fs::remove_dir_all(&dir).expect("it is there");
        assert_eq!((beginning(b"a\nb", 1), beginning(b"a\nb\n", 2), beginning(b"", 3)), (2, 0, 0));
    }

    #[test]
    fn what_can_not_be_followed() {
        let said = |fake: &mut Fake, args: &[&str]| {
            let seen = run_with(fake, "squall tail", tail, args, &[]);
            format!("$ squall tail {}\n{}{}", args.join(" "), seen.out, seen.err)
        };
        let mut text = String::new();
        for args in [&["10"][..], &["-n", "x", "10"], &[], &["99999"], &["20"]] {
            text += &said(&mut ended_with("/nonexistent/out"), args);
        }
        text += &said(&mut ended_with("/dev/null"), &["10"]);
        check("tail", &text);
    }

    #[test]
    fn what_is_not_here_the_controller_reads() {
        let mut fake = ended_with("/nonexistent/out");
        let bytes = b"one\ntwo\n".to_vec().into();
        let tail_of = Tail { path: "/nonexistent/out".to_owned(), size: 9000, bytes, problem: None };
        fake.answers = vec![Answer::Tail(Box::new(tail_of))];
        assert_eq!(run_with(&mut fake, "squall tail", tail, &["10"], &[]).out, "one\ntwo\n");
    }
}
