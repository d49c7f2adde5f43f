//! The step daemon's side of its spool folder (see `crate::spool`). Files are opened by relative paths (the folder is
//! the working directory) before privileges are dropped.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};
use squall_engine::step::StepSetup;
use squall_files::place::CONTENT;
use squall_model::codec;
use squall_model::job::{ExitCode, Usage};
use squall_model::step::{Program, StepLaunch};
use squall_model::wire::fabric::ContentId;
use squall_model::wire::proof::Warrant;
use squall_model::wire::stepd::FromStepd;

use crate::processes::Stat;
use crate::spool::{self, file, mark_begun, note_exit, write_result};
use crate::sys::clock::boot_ticks;
use crate::sys::spawn::{Note, PID_ROOM};

/// Reasons why the step daemon has to leave the folder alone.
#[derive(Debug, thiserror::Error)]
pub(super) enum FolderError {
    /// Another step daemon has taken this folder.
    #[error("this step was started before")]
    Taken,
    /// A file is missing or damaged: the file, and what is wrong with it.
    #[error("{0}: {1}")]
    Broken(&'static str, String),
}

/// An opened spool folder.
#[derive(Debug)]
pub(super) struct Folder {
    /// The folder's absolute path.
    pub(super) path: PathBuf,
    /// The step's launch, which describes what to run.
    pub(super) launch: StepLaunch,
    /// Proof that the controller ordered the step. None: the controller does not sign.
    pub(super) warrant: Option<Warrant>,
    /// The batch job's environment; empty for other steps.
    pub(super) environment: Vec<u8>,
    result: File,
    notes: Notes,
}

/// The file in which tasks record themselves (`pids`).
#[derive(Clone, Debug)]
pub(super) struct Notes {
    file: Arc<File>,
    /// Bytes of the file that hold lines of tasks; the next line is written behind them.
    taken: u64,
}

impl Notes {
    fn new(file: File) -> Self {
        Self { file: Arc::new(file), taken: 0 }
    }

    /// Returns the line that the next task writes about itself, so that it is found after this daemon's death.
    pub(super) fn line(&self, rank: u32) -> Note<'_> {
        let head = format!("{rank} ");
        // What follows may be of an earlier step: the line ends with an empty one, which the next line overwrites.
        let line = format!("{head}{PID_ROOM} {}\n\n", boot_ticks());
        Note { file: self.file.as_fd(), offset: self.taken, line: line.into_bytes(), room: head.len() }
    }
}

impl Folder {
    /// Takes the folder, and opens the socket on which node daemons connect. Err `Taken`: nothing was changed.
    pub(super) fn take(path: &Path) -> Result<(Self, UnixListener), FolderError> {
        let path = std::path::absolute(path).map_err(broken("spool folder"))?;
        std::env::set_current_dir(&path).map_err(broken("spool folder"))?;
        let (pids, result) = open(Path::new(""))?;
        let bytes = fs::read(file::LAUNCH).map_err(broken(file::LAUNCH))?;
        let (launch, socket, warrant) = match codec::take::<StepLaunch>(&bytes) {
            Ok(Some((launch, length))) => (launch, spool::socket(&bytes, length), spool::warrant(&bytes, length)),
            Ok(None) => return Err(FolderError::Broken(file::LAUNCH, "it is cut off".into())),
            Err(e) => return Err(FolderError::Broken(file::LAUNCH, e.to_string())),
        };
        let listener = listen(socket.as_ref()).map_err(broken("socket"))?;
        let environment = match launch.program {
            Program::Batch => fs::read(file::ENVIRONMENT).map_err(broken(file::ENVIRONMENT))?,
            _ => Vec::new(),
        };
        Ok((Self { path, launch, warrant, environment, result, notes: Notes::new(pids) }, listener))
    }

    /// Takes the folder of a step after the batch supervisor has received its launch in a message; does not enter the
    /// folder. Err `Taken`: nothing was changed.
    pub(super) fn adopt(path: PathBuf, launch: StepLaunch, environment: Vec<u8>) -> Result<Self, FolderError> {
        let (pids, result) = open(&path)?;
        // The supervisor has checked what came with the message.
        Ok(Self { path, launch, warrant: None, environment, result, notes: Notes::new(pids) })
    }

    /// Makes what stands in for the folder of a step whose tasks descend from its `srun`: its files are in memory. `path`:
    /// of the folder, which the outer step daemon has.
    pub(super) fn inside(path: PathBuf, launch: StepLaunch) -> io::Result<Self> {
        let file = || Ok::<_, io::Error>(File::from(memfd_create("step", MemfdFlags::CLOEXEC)?));
        let (result, notes) = (file()?, Notes::new(file()?));
        Ok(Self { path, launch, warrant: None, environment: Vec::new(), result, notes })
    }

    /// Returns the path of the batch script.
    pub(super) fn script(&self) -> PathBuf {
        self.path.join(file::SCRIPT)
    }

    /// Returns the path of a file in the node's cache of files.
    pub(super) fn content(&self, content: ContentId) -> PathBuf {
        let node = self.path.ancestors().nth(2).unwrap_or(&self.path);
        crate::content::path(&node.join(CONTENT), content)
    }

    /// Records that tasks may exist from now on; called before the first task is started.
    pub(super) fn note_begun(&self) -> io::Result<()> {
        mark_begun(&self.result)
    }

    /// Returns the file in which the next task records itself.
    pub(super) fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Records the process of a batch script that was restored from a checkpoint.
    pub(super) fn note_restored(&self, pid: u32) -> io::Result<()> {
        let start = Stat::of(pid).map_or_else(boot_ticks, |stat| stat.start);
        self.notes.file.write_all_at(format!("0 {pid} {start}\n\n").as_bytes(), self.notes.taken)
    }

    /// Records the process of a task that another process has made, before it executes its program.
    pub(super) fn note_made(&mut self, rank: u32, pid: u32) -> io::Result<()> {
        let start = Stat::of(pid).map_or_else(boot_ticks, |stat| stat.start);
        let line = format!("{rank} {pid} {start}\n\n");
        self.notes.file.write_all_at(line.as_bytes(), self.notes.taken)?;
        self.notes.taken += line.len() as u64 - 1;
        Ok(())
    }

    /// Counts the line of a task that has started.
    pub(super) fn noted(&mut self, rank: u32) {
        self.notes.taken += self.notes.line(rank).line.len() as u64 - 1;
    }

    /// Records how a task ended, before it is reaped.
    pub(super) fn note_exit(&self, rank: u32, exit: ExitCode, usage: &Usage) {
        let place = StepSetup::of(&self.launch).ranks.iter().position(|&known| known == rank);
        if let Some(Err(e)) = place.map(|place| note_exit(&self.result, place, exit, usage)) {
            tracing::error!(task = rank, error = %e, "cannot note the end of the task");
        }
    }

    /// Writes the result into the bytes reserved for it.
    pub(super) fn write_result(&self, last: &FromStepd) -> io::Result<()> {
        write_result(&self.result, last)
    }
}

fn broken(what: &'static str) -> impl FnOnce(io::Error) -> FolderError {
    move |e| FolderError::Broken(what, e.to_string())
}

/// Takes a folder; opens its files of tasks and of the result.
fn open(folder: &Path) -> Result<(File, File), FolderError> {
    let pids = folder.join(file::PIDS);
    fs::rename(folder.join(file::UNTAKEN), &pids).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => FolderError::Taken,
        _ => FolderError::Broken(file::PIDS, e.to_string()),
    })?;
    let open = |path: &Path| OpenOptions::new().write(true).open(path);
    Ok((open(&pids).map_err(broken(file::PIDS))?, open(&folder.join(file::RESULT)).map_err(broken(file::RESULT))?))
}

/// Returns the socket on which the node daemon connects: standard input if that is a listening socket, otherwise a new
/// one bound to `socket`.
fn listen(socket: Option<&SocketAddr>) -> io::Result<UnixListener> {
    let stdin = io::stdin();
    let listener = if rustix::net::sockopt::socket_acceptconn(stdin.as_fd()) == Ok(true) {
        let given: OwnedFd = rustix::io::fcntl_dupfd_cloexec(stdin.as_fd(), 3)?;
        UnixListener::from(given)
    } else {
        UnixListener::bind_addr(socket.ok_or(io::ErrorKind::UnexpectedEof)?)?
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}
