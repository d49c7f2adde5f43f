//! The spool of a node: records that survive a kill -9 of the node daemon, and the files shared with its step daemons.
//!
//! `DIR/node/NAME/` holds `incarnation`, `life`, `session` (see `memory`), unreadable files (`damaged`),
//! `jobs/JOB.ATTEMPT` (marks of jobs without a batch script here, or with programs around them), `hooks`, `dumps` (see `dump_mark`),
//! `rooms/JOB.ATTEMPT` (folders in shared memory that the restore of a job has put back) and `steps/JOB.ATTEMPT.STEP/` (one folder for each
//! step). A step's folder is complete when it gets its name, and holds:
//!
//! | file | written by | holds |
//! |---|---|---|
//! | `launch` | node daemon | one frame (`model::codec`): the `StepLaunch`; then [`NAME_BYTES`] random bytes, the name of the socket on which the step daemon listens for the node daemon from its very start ([`socket`]); then one frame: the `Warrant` that proves that the controller ordered the step, or null |
//! | `slurm_script`, `environment` | node daemon | content of the two blobs (batch only); the script belongs to the user, mode 0500 |
//! | `cgroups` | node daemon | the cgroup folders for the tasks (`cgroup::StepGroups::read`); no lines: none |
//! | `result` | node daemon, then step daemon | [`RESULT_BYTES`] zero bytes, over which the step daemon writes, in place, one frame of `FromStepd::Ended` or `FromStepd::Failed` before it sends it; one byte more, which it makes 1 just before it forks the first task ([`mark_begun`]); and room for each task on this node, for a record of its end ([`note_exit`]), written before the task is reaped: by the step daemon or, after its death, by the zygote |
//! | `untaken` | node daemon | nothing: the step daemon renames it to `pids` before anything else; a second step daemon, for which it is missing, exits without a trace, so that no step starts twice |
//! | `pids` | task | a line `RANK PID START`, before it executes its program (start: field 22 of /proc/PID/stat, or some ticks less), up to an empty line |
//! | `log` | step daemon | its standard error; copied into the node's log when the folder is removed |
//!
//! Creating a file and removing it soon after costs a file system more than all else that is done here (ext4 does not
//! reuse an inode for some seconds and searches for another). So folders of ended steps, and marks of jobs, are kept
//! and written over (`spare`).
//!
//! The step daemon is started as `squall step --spool FOLDER`, as root or the cluster's owner, with an empty
//! environment, in a session of its own, with `/dev/null` as standard input and output and `log` as standard error. It
//! opens the folder's files before it drops privileges, and joins its cgroups (`cgroup::StepGroups::join`). It is a
//! child subreaper: processes left by its tasks become its children and, should it die, those of its parent, the zygote
//! or the node daemon. Each task gets the variable [`TASK_MARK`](squall_files::place::TASK_MARK) with the absolute path
//! of the folder.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use squall_engine::step::StepSetup;
use squall_files::place::STEPS;
use squall_files::safe_path;
use squall_model::codec;
use squall_model::encoding::Encoded;
use squall_model::id::{Attempt, JobId, StepKey, StepNo};
use squall_model::job::{ExitCode, JobAttempt, Usage};
use squall_model::limits::FRAME_BYTES_MAX;
use squall_model::step::{JobFacts, StepLaunch};
use squall_model::time::Span;
use squall_model::wire::proof::Warrant;
use squall_model::wire::stepd::FromStepd;

use crate::processes::Stat;
use crate::removal::remove_apart;

/// Bytes reserved for a step's result, frame header included; a longer note is truncated.
pub const RESULT_BYTES: usize = 4096;

/// Records in a step's open result file that tasks may exist from now on. Works on a full disk.
pub(crate) fn mark_begun(result: &File) -> io::Result<()> {
    result.write_all_at(&[1], RESULT_BYTES as u64)
}

/// Bytes that record the end of one task: 1, exit code, signal; then user and system time in microseconds and peak
/// memory in KiB, 8 bytes each.
const EXIT_BYTES: usize = 3 + 3 * 8;

/// Records in a step's open result file how a task ended; `place` is its index among the step's tasks on this node.
/// Works on a full disk.
pub(crate) fn note_exit(result: &File, place: usize, exit: ExitCode, usage: &Usage) -> io::Result<()> {
    let mut bytes = vec![1, exit.code, exit.signal];
    bytes.extend([usage.user.0, usage.system.0, usage.max_rss_kb].iter().flat_map(|number| number.to_le_bytes()));
    result.write_all_at(&bytes, (RESULT_BYTES + 1 + place * EXIT_BYTES) as u64)
}

/// Parses a record of [`note_exit`]. None: nothing was recorded.
fn parse_exit(noted: &[u8]) -> Option<(ExitCode, Usage)> {
    let ([1, code, signal], numbers) = noted.split_first_chunk()? else { return None };
    let mut numbers = numbers.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let (user, system, max_rss_kb) = (Span(numbers.next()?), Span(numbers.next()?), numbers.next()?);
    Some((ExitCode { code: *code, signal: *signal }, Usage { user, system, max_rss_kb, ..Usage::default() }))
}

/// Names of the files in a step's folder.
pub mod file {
    /// File with the encoded launch, and the name of the step daemon's socket.
    pub const LAUNCH: &str = "launch";
    /// File with the batch script.
    pub const SCRIPT: &str = "slurm_script";
    /// File with the batch job's environment: entries `NAME=VALUE`, each ended by NUL.
    pub const ENVIRONMENT: &str = "environment";
    /// File with the paths of the step's cgroups.
    pub(crate) const CGROUPS: &str = "cgroups";
    /// File with the step's result, and the ends of its tasks.
    pub const RESULT: &str = "result";
    /// The file that the step daemon renames to `pids` when it takes the folder.
    pub const UNTAKEN: &str = "untaken";
    /// File in which tasks record that they were started.
    pub const PIDS: &str = "pids";
    /// The step daemon's standard error.
    pub const LOG: &str = "log";
}

/// Bytes of the random socket name that follows the launch.
pub const NAME_BYTES: usize = 16;

/// Returns the proof that the controller ordered the step; `launch` is the content of the file, and its first `length`
/// bytes are the launch. None: the controller does not sign.
pub(crate) fn warrant(launch: &[u8], length: usize) -> Option<Warrant> {
    let (warrant, _) = codec::take::<Option<Warrant>>(launch.get(length + NAME_BYTES..)?).ok()??;
    warrant
}

/// Returns the address on which a step daemon listens; `launch` is the content of the file, and its first `length`
/// bytes are the launch. The address is an abstract socket, as making and removing a file costs the disk more than the
/// step costs the processor. The random name can't be guessed, so no other process can bind it first,
/// and the kernel reports the peer's user. None: there is no name behind the launch.
pub fn socket(launch: &[u8], length: usize) -> Option<SocketAddr> {
    let name: [u8; NAME_BYTES] = launch.get(length..length + NAME_BYTES)?.try_into().ok()?;
    SocketAddr::from_abstract_name(format!("squall-step-{:032x}", u128::from_be_bytes(name))).ok()
}

/// Bytes reserved for the line that a task writes about itself (rank, process id, start time, blanks), so that it has
/// room on a full disk.
const NOTE_BYTES: usize = 48;

/// Name of the folder with the marks of jobs.
const JOBS: &str = "jobs";
/// Leftovers of users from step folders, until the cleanup thread removes them.
const LEFTOVERS: &str = "left";
/// Bytes of a step's log that are copied into the node's log, at most.
const LOG_BYTES_MAX: u64 = 16 << 10;

mod damaged;
pub(crate) mod hooks;
pub mod memory;
mod spare;
pub mod witness;

use memory::Memory;
use spare::{Files, Script, Spares, Traits};

/// An opened spool of a node.
#[derive(Debug)]
pub struct Spool {
    path: PathBuf,
    root: OwnedFd,
    jobs: OwnedFd,
    steps: OwnedFd,
    spares: RefCell<Spares>,
    memory: RefCell<Memory>,
    /// Names of step folders and job marks that can't be read.
    unreadable: RefCell<BTreeSet<String>>,
}

/// Files for a batch step's folder.
#[derive(Clone, Copy, Debug)]
pub struct BatchFiles<'a> {
    /// Content of the batch script.
    pub script: &'a [u8],
    /// The batch job's environment: entries `NAME=VALUE`, each ended by NUL.
    pub environment: &'a [u8],
}

/// A task that a step daemon has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskPid {
    /// The task's rank.
    pub rank: u32,
    /// The task's process id.
    pub pid: u32,
    /// Time just before it was started, in the kernel's ticks since boot; with the process id it identifies one
    /// process.
    pub start: u64,
}

/// Ticks that may pass between recording a start and the start itself: a busy machine may delay the parent, and
/// starting a program that is being written is retried for a while. No process id is reused so soon.
const START_TICKS: u64 = 500;

impl TaskPid {
    /// Whether `stat`, of the process with this id, is that of the task.
    pub(crate) fn is(&self, stat: &Stat) -> bool {
        (self.start..=self.start + START_TICKS).contains(&stat.start)
    }
}

impl Spool {
    /// Opens the spool of a node at `path`, making it if needed. Its folders belong to this process's user; other users
    /// can pass through those of steps, but not list them.
    pub fn open(path: &Path) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let here = rustix::fs::CWD;
        let root = safe_path::make(here, path, 0o711)?;
        let jobs = safe_path::make(root.as_fd(), Path::new(JOBS), 0o700)?;
        let steps = safe_path::make(root.as_fd(), Path::new(STEPS), 0o711)?;
        let (spares, memory, unreadable) = Default::default();
        Ok(Self { path: path.to_owned(), root, jobs, steps, spares, memory, unreadable })
    }

    /// Writes the mark of a job: the file `jobs/JOB.ATTEMPT`.
    pub(crate) fn add_job(&self, facts: &JobFacts) -> io::Result<()> {
        let name = attempt_name(JobAttempt { job: facts.key.job, attempt: facts.key.attempt });
        let draft = self.spares.borrow_mut().mark();
        // The rest of the file, behind the frame, may be of an earlier job.
        let flags = OFlags::WRONLY | OFlags::CREATE;
        open_at(self.jobs.as_fd(), &draft, flags, 0o600)?.write_all(&frame_of(facts)?)?;
        Ok(rustix::fs::renameat(&self.jobs, draft.as_str(), &self.jobs, name.as_str())?)
    }

    /// Returns the jobs that have marks, and those with unreadable marks. Removes files with other names, such as
    /// unfinished marks.
    pub fn jobs(&self) -> (Vec<JobFacts>, Vec<JobAttempt>) {
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        for name in names_in(self.jobs.as_fd()).unwrap_or_default() {
            let Some(job) = parse_attempt(&name) else {
                drop(unlink(self.jobs.as_fd(), &name));
                continue;
            };
            let bytes = read_bytes(self.jobs.as_fd(), &name).ok();
            if let Some(facts) = bytes.and_then(|bytes| facts_of(&bytes)) {
                found.push(facts);
            } else {
                self.unreadable.borrow_mut().insert(name);
                unreadable.push(job);
            }
        }
        (found, unreadable)
    }

    /// Returns the jobs that have a mark, readable or not.
    pub(crate) fn marked_jobs(&self) -> Vec<JobAttempt> {
        names_in(self.jobs.as_fd()).unwrap_or_default().iter().filter_map(|name| parse_attempt(name)).collect()
    }

    /// Makes a step's folder, completely or not at all. Err `AlreadyExists`: the step has one. `batch`: None for steps
    /// without a batch script. `groups`: content of the file `cgroups`. `warrant`: proof that the controller ordered it.
    pub(crate) fn add_step(
        &self,
        launch: &StepLaunch,
        batch: Option<BatchFiles<'_>>,
        (groups, warrant): (&str, Option<&Warrant>),
    ) -> io::Result<()> {
        let name = launch.key.to_string();
        let mut spares = self.spares.borrow_mut();
        let (draft, mut traits) = spares.take(launch, batch.is_some());
        let filled = self.fill(&draft, &mut traits, (launch, warrant), batch, groups);
        let named = filled.and_then(|()| self.count_start()).and_then(|()| {
            rustix::fs::renameat(&self.steps, draft.as_str(), &self.steps, name.as_str()).map_err(|e| match e {
                // Renaming replaces an empty folder, but no other.
                Errno::NOTEMPTY => io::ErrorKind::AlreadyExists.into(),
                e => e.into(),
            })
        });
        match &named {
            Ok(()) => spares.lend(launch, draft, traits),
            Err(_) => drop(self.remove_folder(&draft)),
        }
        named?;
        let memory = self.memory.borrow();
        memory.witness.as_ref().map_or(Ok(()), |witness| witness.add(launch.key, &memory))
    }

    /// Counts a started step, durably; it counts even if its start fails later.
    fn count_start(&self) -> io::Result<()> {
        let memory = &mut *self.memory.borrow_mut();
        memory.starts += 1;
        if memory.life == 0 { Ok(()) } else { self.write_life(memory.life, memory.starts) }
    }

    /// Fills a new folder, or overwrites the files of a used one.
    fn fill(
        &self,
        draft: &str,
        traits: &mut Traits,
        (launch, warrant): (&StepLaunch, Option<&Warrant>),
        batch: Option<BatchFiles<'_>>,
        groups: &str,
    ) -> io::Result<()> {
        if !traits.used {
            self.remove_folder(draft)?;
        }
        let folder = || safe_path::make(self.steps.as_fd(), Path::new(draft), 0o711).map(Files::of);
        let files = traits.files.take().map_or_else(folder, Ok)?;
        let files = traits.files.insert(files);
        let places = StepSetup::of(launch).ranks.len();
        files.file(file::RESULT)?.write_all_at(&vec![0; RESULT_BYTES + 1 + places * EXIT_BYTES], 0)?;
        files
            .file(file::LAUNCH)?
            .write_all_at(&[frame_of(launch)?, random()?.to_vec(), frame_of(&warrant)?].concat(), 0)?;
        put_all(files, file::CGROUPS, groups.as_bytes(), &mut traits.groups)?;
        if !traits.used {
            let untaken = open_at(files.folder(), file::UNTAKEN, OFlags::WRONLY | OFlags::CREATE, 0o600)?;
            untaken.write_all_at(&vec![b'\n'; places * NOTE_BYTES], 0)?;
            files.keep(file::PIDS, untaken);
            open_at(files.folder(), file::LOG, OFlags::WRONLY | OFlags::CREATE, 0o600)?;
        }
        let same = traits.script.take().filter(|script| batch.is_some() && script.is_for(launch, files.folder()));
        if traits.used && same.is_none() {
            unlink(files.folder(), file::SCRIPT)?;
        }
        if let Some(batch) = batch {
            put_all(files, file::ENVIRONMENT, batch.environment, &mut traits.environment)?;
            traits.script = match same {
                Some(same) => Some(same),
                None => put_script(files.folder(), launch, batch.script)?,
            };
        }
        Ok(())
    }

    /// Returns the path of the folder that contains all steps' folders.
    pub(crate) fn steps_dir(&self) -> PathBuf {
        self.path.join(STEPS)
    }

    /// Locks the spool for as long as this value exists. Err: another daemon has locked it.
    pub fn lock(&self) -> io::Result<()> {
        Ok(rustix::fs::flock(&self.root, rustix::fs::FlockOperation::NonBlockingLockExclusive)?)
    }

    /// Returns the path of a step's folder.
    pub fn step(&self, key: StepKey) -> PathBuf {
        self.path.join(STEPS).join(key.to_string())
    }

    /// Opens a file of a step's folder for reading and writing.
    pub(crate) fn open_file(&self, key: StepKey, name: &str) -> io::Result<File> {
        let folder = safe_path::open_folder(self.steps.as_fd(), Path::new(&key.to_string()))?;
        open_at(folder.as_fd(), name, OFlags::RDWR, 0)
    }

    /// Whether a step daemon has taken the folder. If not, this call prevents it for good: the file that the daemon
    /// would have to rename is gone.
    pub(crate) fn was_taken(&self, key: StepKey) -> bool {
        let fence = || -> io::Result<()> {
            let folder = safe_path::open_folder(self.steps.as_fd(), Path::new(&key.to_string()))?;
            Ok(rustix::fs::renameat(&folder, file::UNTAKEN, &folder, file::PIDS)?)
        };
        // If in doubt it counts as taken.
        fence().is_err()
    }

    /// Makes a folder available to another step daemon, if the one that took it is dead or has returned it, and nothing
    /// of the step has begun. Returns whether it is available.
    pub(crate) fn release(&self, key: StepKey) -> bool {
        let folder = self.step(key);
        let released = || fs::rename(folder.join(file::PIDS), folder.join(file::UNTAKEN)).is_ok();
        self.is_untaken(key) || (!self.has_begun(key) && released())
    }

    /// Whether no step daemon has taken the folder so far; a running one may do so at any moment.
    pub(crate) fn is_untaken(&self, key: StepKey) -> bool {
        self.step(key).join(file::UNTAKEN).exists()
    }

    /// Returns the launch of a step. None: it is missing or can't be read.
    pub fn launch(&self, key: StepKey) -> Option<Box<StepLaunch>> {
        self.launch_and_socket(key).map(|(launch, _)| launch)
    }

    /// Returns the address on which a step's daemon listens. None: the file `launch` can't be read, or has no socket
    /// name.
    pub(crate) fn socket(&self, key: StepKey) -> Option<SocketAddr> {
        self.launch_and_socket(key).and_then(|(_, socket)| socket)
    }

    fn launch_and_socket(&self, key: StepKey) -> Option<(Box<StepLaunch>, Option<SocketAddr>)> {
        let mut bytes = Vec::new();
        self.open_file(key, file::LAUNCH).and_then(|mut file| file.read_to_end(&mut bytes)).ok()?;
        let (launch, length) = codec::take::<Box<StepLaunch>>(&bytes).ok()??;
        (launch.key == key).then(|| (launch, socket(&bytes, length)))
    }

    /// Whether the step daemon may have forked tasks; true if in doubt, or if there is any other record of a task.
    pub fn has_begun(&self, key: StepKey) -> bool {
        let mut byte = [1];
        let read =
            self.open_file(key, file::RESULT).and_then(|file| file.read_exact_at(&mut byte, RESULT_BYTES as u64));
        read.is_err() || byte != [0] || !self.tasks(key).is_empty() || !self.exits(key).is_empty()
    }

    /// Returns the recorded ends of tasks: index among the node's tasks, exit, usage.
    pub fn exits(&self, key: StepKey) -> Vec<(usize, ExitCode, Usage)> {
        let mut bytes = Vec::new();
        let read = self.open_file(key, file::RESULT).and_then(|mut file| {
            file.seek(SeekFrom::Start(RESULT_BYTES as u64 + 1))?;
            file.read_to_end(&mut bytes)
        });
        if read.is_err() {
            return Vec::new();
        }
        let places = bytes.chunks_exact(EXIT_BYTES).enumerate();
        places.filter_map(|(place, noted)| parse_exit(noted).map(|(exit, usage)| (place, exit, usage))).collect()
    }

    /// Returns the launches of all steps, ordered by key, and the steps with an unreadable launch. Removes
    /// folders with other names, such as unfinished ones.
    pub fn steps(&self) -> (Vec<Box<StepLaunch>>, Vec<StepKey>) {
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        for name in names_in(self.steps.as_fd()).unwrap_or_default() {
            match parse_key(&name).map(|key| (key, self.launch(key))) {
                Some((_, Some(launch))) => found.push(launch),
                Some((key, None)) => {
                    self.unreadable.borrow_mut().insert(name);
                    unreadable.push(key);
                }
                None => drop(self.remove_folder(&name)),
            }
        }
        found.sort_by_key(|launch| launch.key);
        unreadable.sort_unstable();
        (found, unreadable)
    }

    /// Returns the result that the step daemon wrote. None: none so far.
    pub fn result(&self, key: StepKey) -> Option<FromStepd> {
        let mut bytes = [0; RESULT_BYTES];
        let spares = self.spares.borrow();
        match spares.open_file(key, file::RESULT) {
            Some(file) => file.read_exact_at(&mut bytes, 0),
            None => self.open_file(key, file::RESULT).and_then(|file| file.read_exact_at(&mut bytes, 0)),
        }
        .ok()?;
        let (length, _) = codec::header(*bytes.first_chunk()?).ok()?;
        if length == 0 {
            return None;
        }
        codec::take(&bytes).ok().flatten().map(|(word, _)| word)
    }

    /// Writes a result for a step after its daemon died.
    pub(crate) fn write_result(&self, key: StepKey, word: &FromStepd) -> io::Result<()> {
        write_result(&self.open_file(key, file::RESULT)?, word)
    }

    /// Returns the tasks that the step daemon has started. Incomplete lines are ignored.
    pub fn tasks(&self, key: StepKey) -> Vec<TaskPid> {
        self.open_file(key, file::PIDS).map(tasks_in).unwrap_or_default()
    }

    /// Removes a step's folder; returns what its daemon wrote to its standard error.
    pub(crate) fn remove_step(&self, key: StepKey) -> io::Result<String> {
        let name = key.to_string();
        self.memory.borrow().witness.as_ref().map_or(Ok(()), |witness| witness.remove(key))?;
        if self.is_unreadable(&name) {
            let kept = self.set_aside(self.steps.as_fd(), &name)?;
            return Ok(format!("its folder is kept as {}", kept.display()));
        }
        let returned = self.spares.borrow_mut().returned(key);
        if let Some((spare, mut traits)) = returned
            && self.clear_folder(&name, &spare, &mut traits).is_ok()
        {
            self.spares.borrow_mut().keep(spare, traits);
            return Ok(String::new());
        }
        let mut log = Vec::new();
        if let Ok(file) = self.open_file(key, file::LOG) {
            let _ = file.take(LOG_BYTES_MAX).read_to_end(&mut log);
        }
        // It is renamed first, so that a half-removed folder is not taken for a damaged one.
        let draft = self.spares.borrow_mut().name();
        match rustix::fs::renameat(&self.steps, name.as_str(), &self.steps, draft.as_str()) {
            Ok(()) => self.remove_folder(&draft)?,
            Err(Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(String::from_utf8_lossy(&log).into_owned())
    }

    /// Prevents reuse of this step's folder: another process may still have its files open.
    pub(crate) fn spoil(&self, key: StepKey) {
        self.spares.borrow_mut().spoil(key);
    }

    /// Prepares a folder for use by another step, and renames it.
    fn clear_folder(&self, name: &str, spare: &str, traits: &mut Traits) -> io::Result<()> {
        let mut opened = None;
        let files = match &mut traits.files {
            Some(files) => files,
            None => opened.insert(Files::of(safe_path::open_folder(self.steps.as_fd(), Path::new(name))?)),
        };
        if rustix::fs::statat(files.folder(), file::LOG, AtFlags::SYMLINK_NOFOLLOW)?.st_size > 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // The lines of its tasks are invalidated before the folder looks like one that was not taken.
        if let Some(notes) = files.notes()? {
            notes.write_all_at(b"\n", 0)?;
        }
        match rustix::fs::renameat(files.folder(), file::PIDS, files.folder(), file::UNTAKEN) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(rustix::fs::renameat(&self.steps, name, &self.steps, spare)?)
    }

    /// Removes a job's mark. The folders of its steps are removed separately.
    pub(crate) fn remove_job(&self, job: JobAttempt) -> io::Result<()> {
        let name = attempt_name(job);
        if self.is_unreadable(&name) {
            return self.set_aside(self.jobs.as_fd(), &name).map(drop);
        }
        let spare = self.spares.borrow_mut().room_for_mark();
        let Some(spare) = spare else { return unlink(self.jobs.as_fd(), &name) };
        match rustix::fs::renameat(&self.jobs, name.as_str(), &self.jobs, spare.as_str()) {
            Ok(()) => {
                self.spares.borrow_mut().keep_mark(spare);
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn remove_folder(&self, name: &str) -> io::Result<()> {
        let folder = match safe_path::open_folder(self.steps.as_fd(), Path::new(name)) {
            Ok(folder) => folder,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) => return Ok(rustix::fs::unlinkat(&self.steps, name, AtFlags::empty())?),
        };
        for entry in names_in(folder.as_fd())? {
            match rustix::fs::unlinkat(&folder, entry.as_str(), AtFlags::empty()) {
                // The user's part of the folder.
                Err(Errno::ISDIR) => self.set_apart(folder.as_fd(), &entry)?,
                result => result?,
            }
        }
        Ok(rustix::fs::unlinkat(&self.steps, name, AtFlags::REMOVEDIR)?)
    }

    /// Has a user's folder removed by a thread: it may be large.
    fn set_apart(&self, at: BorrowedFd<'_>, entry: &str) -> io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let left = safe_path::make(self.root.as_fd(), Path::new(LEFTOVERS), 0o700)?;
        let name = loop {
            let name = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
            match rustix::fs::renameat(at, entry, &left, name.as_str()) {
                // One of an earlier daemon is still being removed.
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                result => {
                    result?;
                    break name;
                }
            }
        };
        remove_apart(vec![self.path.join(LEFTOVERS).join(name)]);
        Ok(())
    }

    /// Removes what an earlier daemon had not removed yet of users' folders.
    pub(crate) fn remove_left(&self) {
        let left = self.path.join(LEFTOVERS);
        let names = fs::read_dir(left).into_iter().flatten().flatten();
        let paths: Vec<PathBuf> = names.map(|entry| entry.path()).collect();
        if !paths.is_empty() {
            remove_apart(paths);
        }
    }

    fn wipe(&self) -> io::Result<()> {
        for name in names_in(self.jobs.as_fd())? {
            rustix::fs::unlinkat(&self.jobs, name.as_str(), AtFlags::empty())?;
        }
        names_in(self.steps.as_fd())?.iter().try_for_each(|name| self.remove_folder(name))
    }
}

/// Overwrites a file that had `length` bytes. It is truncated only if the new content is shorter.
fn put_all(files: &mut Files, name: &'static str, bytes: &[u8], length: &mut usize) -> io::Result<()> {
    if bytes.len().max(*length) > 0 {
        let file = files.file(name)?;
        file.write_all_at(bytes, 0)?;
        if bytes.len() < std::mem::replace(length, bytes.len()) {
            file.set_len(bytes.len() as u64)?;
        }
    }
    Ok(())
}

/// Writes the script and closes it: a file that is open for writing can't be executed. Returns what identifies the
/// script later; None: that can't be determined.
fn put_script(folder: BorrowedFd<'_>, launch: &StepLaunch, text: &[u8]) -> io::Result<Option<Script>> {
    let owner = &launch.facts.owner;
    let mut script = open_at(folder, file::SCRIPT, OFlags::WRONLY | OFlags::CREATE, 0o500)?;
    script.write_all(text)?;
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = (rustix::fs::Uid::from_raw(owner.uid), rustix::fs::Gid::from_raw(owner.gid));
        rustix::fs::fchown(&script, Some(uid), Some(gid))?;
    }
    Ok(Script::of(launch, script.as_fd()))
}

/// Writes a step's result into the bytes reserved for it; a note that does not fit is truncated.
pub(crate) fn write_result(file: &File, word: &FromStepd) -> io::Result<()> {
    let mut frame = frame_of(word)?;
    if frame.len() > RESULT_BYTES {
        let mut short = word.clone();
        let text = match &mut short {
            FromStepd::Ended(end) => end.note.as_mut(),
            FromStepd::Failed { error, .. } => Some(error),
            _ => None,
        };
        if let Some(text) = text {
            let over = frame.len() - RESULT_BYTES;
            let keep = text.floor_char_boundary(text.len().saturating_sub(over));
            text.truncate(keep);
        }
        frame = frame_of(&short)?;
    }
    file.write_all_at(&frame, 0)
}

/// Returns the name of a job's mark: `JOB.ATTEMPT`.
pub(crate) fn attempt_name(job: JobAttempt) -> String {
    format!("{}.{}", job.job, job.attempt)
}

/// Parses a name `JOB.ATTEMPT`, as of job marks. None: the name has another form.
pub(crate) fn parse_attempt(text: &str) -> Option<JobAttempt> {
    let (job, attempt) = text.split_once('.')?;
    Some(JobAttempt { job: JobId(job.parse().ok()?), attempt: Attempt(attempt.parse().ok()?) })
}

/// Parses the name of a step's folder, `JOB.ATTEMPT.STEP`. None: the name has another form.
pub(crate) fn parse_key(text: &str) -> Option<StepKey> {
    let (job, step) = text.rsplit_once('.')?;
    let JobAttempt { job, attempt } = parse_attempt(job)?;
    let step = if step == "batch" { StepNo::BATCH } else { StepNo(step.parse().ok()?) };
    Some(StepKey { job, attempt, step })
}

/// Returns the tasks that a step's file of process ids has. What can't be read is not there.
pub(crate) fn tasks_in(mut file: File) -> Vec<TaskPid> {
    let mut text = String::new();
    if file.read_to_string(&mut text).is_ok() { parse_tasks(&text) } else { Vec::new() }
}

fn parse_tasks(text: &str) -> Vec<TaskPid> {
    let lines = text.split_inclusive('\n').take_while(|line| *line != "\n").filter_map(|line| line.strip_suffix('\n'));
    let tasks = lines.filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let mut next = || fields.next()?.parse::<u64>().ok();
        Some(TaskPid { rank: next()? as u32, pid: next()? as u32, start: next()? })
    });
    tasks.collect()
}

fn random() -> io::Result<[u8; NAME_BYTES]> {
    let mut bytes = [0; NAME_BYTES];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes)
}

fn frame_of<T: Encoded + ?Sized>(message: &T) -> io::Result<Vec<u8>> {
    let mut frame = Vec::new();
    codec::encode(message, &mut frame).map_err(io::Error::other)?;
    Ok(frame)
}

fn facts_of(bytes: &[u8]) -> Option<JobFacts> {
    codec::take(bytes).ok().flatten().map(|(message, _)| message)
}

/// Removes a file, if it exists.
fn unlink(at: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    match rustix::fs::unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn open_at(at: BorrowedFd<'_>, name: &str, flags: OFlags, mode: u32) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(at, name, flags, Mode::from_raw_mode(mode))?))
}

fn read_bytes(at: BorrowedFd<'_>, name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = FRAME_BYTES_MAX as u64 + codec::HEADER_BYTES as u64;
    open_at(at, name, OFlags::RDONLY, 0)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_text(at: BorrowedFd<'_>, name: &str) -> io::Result<String> {
    String::from_utf8(read_bytes(at, name)?).map_err(io::Error::other)
}

/// Overwrites a file of constant size: works on a full disk once the file exists. One write of a few bytes is not torn
/// by the writer's death.
fn write_in_place(at: BorrowedFd<'_>, name: &str, text: &str) -> io::Result<()> {
    open_at(at, name, OFlags::WRONLY | OFlags::CREATE, 0o600)?.write_all(text.as_bytes())
}

fn names_in(dir: BorrowedFd<'_>) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        match entry.file_name().to_str() {
            Ok("." | "..") | Err(_) => {}
            Ok(name) => names.push(name.to_owned()),
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
