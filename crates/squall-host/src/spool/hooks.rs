//! Notes about programs around jobs: files `hooks/JOB.ATTEMPT`, of lines `NAME run PID START` and `NAME done`.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use squall_model::job::JobAttempt;
use squall_model::wire::hook::Hook;

use super::{Spool, attempt_name, parse_attempt};
use crate::processes::Stat;

/// Name of the folder with the notes.
const HOOKS: &str = "hooks";

/// What earlier runs of the daemon noted about the programs of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HookNotes {
    /// The job.
    pub(crate) job: JobAttempt,
    /// Programs of which the end was seen.
    pub(crate) done: BTreeSet<Hook>,
    /// Process id and start (field 22 of /proc/PID/stat) of each program that was started.
    pub(crate) started: Vec<(u32, u64)>,
}

impl Spool {
    fn hooks_dir(&self) -> PathBuf {
        self.path.join(HOOKS)
    }

    fn note_hook(&self, job: JobAttempt, line: &str) -> io::Result<()> {
        let path = self.hooks_dir().join(attempt_name(job));
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        let mut file = match options.open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                fs::DirBuilder::new().mode(0o700).create(self.hooks_dir())?;
                options.open(&path)?
            }
            other => other?,
        };
        file.write_all(line.as_bytes())
    }

    /// Notes that a program of a job was started.
    pub(crate) fn hook_started(&self, job: JobAttempt, hook: Hook, pid: u32) -> io::Result<()> {
        let start = Stat::of(pid).map_or(0, |stat| stat.start);
        self.note_hook(job, &format!("{} run {pid} {start}\n", hook.name()))
    }

    /// Notes that a program of a job has ended: a prolog with success, an epilog in any way.
    pub(crate) fn hook_done(&self, job: JobAttempt, hook: Hook) -> io::Result<()> {
        self.note_hook(job, &format!("{} done\n", hook.name()))
    }

    /// Returns the notes of all jobs.
    pub(crate) fn hooks(&self) -> Vec<HookNotes> {
        let Ok(entries) = fs::read_dir(self.hooks_dir()) else { return Vec::new() };
        let read = |entry: fs::DirEntry| {
            let job = parse_attempt(entry.file_name().to_str()?)?;
            let text = fs::read_to_string(entry.path()).ok()?;
            Some(parse(job, &text))
        };
        entries.flatten().filter_map(read).collect()
    }

    /// Removes the notes of a job.
    pub(crate) fn forget_hooks(&self, job: JobAttempt) {
        drop(fs::remove_file(self.hooks_dir().join(attempt_name(job))));
    }
}

fn parse(job: JobAttempt, text: &str) -> HookNotes {
    let mut noted = HookNotes { job, done: BTreeSet::new(), started: Vec::new() };
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            [name, "done"] => {
                noted.done.extend([Hook::Prolog, Hook::Epilog].into_iter().find(|hook| hook.name() == *name));
            }
            [_, "run", pid, start] => {
                noted.started.extend(pid.parse().ok().zip(start.parse().ok()));
            }
            _ => {}
        }
    }
    noted
}

#[cfg(test)]
mod tests {
    use squall_model::id::{Attempt, JobId};
    use squall_model::job::JobAttempt;
    use squall_model::wire::hook::Hook;

    use crate::hook::tests::Folder;
    use crate::spool::Spool;

    #[test]
    fn notes_are_found_by_the_next_run_and_forgotten_with_the_job() {
        let dir = Folder::new("spool-hooks-1");
        let spool = Spool::open(&dir.0.join("n1")).unwrap();
        let job = JobAttempt { job: JobId(7), attempt: Attempt(2) };
        assert!(spool.hooks().is_empty());
        spool.hook_started(job, Hook::Prolog, std::process::id()).unwrap();
        spool.hook_done(job, Hook::Prolog).unwrap();
        spool.hook_started(job, Hook::Epilog, 1).unwrap();
        let noted = Spool::open(&dir.0.join("n1")).unwrap().hooks();
        assert_eq!((noted.len(), noted[0].job), (1, job));
        assert_eq!((noted[0].done.contains(&Hook::Prolog), noted[0].done.len()), (true, 1));
        assert_eq!(noted[0].started.len(), 2);
        spool.forget_hooks(job);
        assert!(spool.hooks().is_empty());
    }
}
