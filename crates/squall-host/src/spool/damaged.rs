//! Unreadable parts of a spool: they stay in place while they are of use, then they are moved aside. None is deleted.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::RenameFlags;
use squall_engine::step::StepSetup;
use squall_files::safe_path;
use squall_model::id::{StepKey, StepNo};
use squall_model::job::JobAttempt;
use squall_model::limits::DAMAGED_MAX;

use super::{EXIT_BYTES, RESULT_BYTES, Spool, attempt_name, file};

/// Name of the folder to which unreadable parts of a spool are moved.
const DAMAGED: &str = "damaged";

impl Spool {
    /// Returns the log message for a step with an unreadable launch.
    pub(crate) fn complaint(&self, key: StepKey) -> String {
        let (folder, aside) = (self.step(key), self.path.join(DAMAGED));
        format!(
            "the launch of step {key} in {} can't be read: it is damaged, or was written by another version. The step is \
             left alone and followed until it ends; then its folder is kept in {}. To be rid of it sooner: scancel {}",
            folder.display(),
            aside.display(),
            key.job
        )
    }

    /// Returns the log message for a job with an unreadable mark.
    pub(crate) fn complaint_of_mark(&self, job: JobAttempt) -> String {
        let aside = self.path.join(DAMAGED);
        format!(
            "the mark {} of job {} can't be read: it is damaged, or was written by another version. The job is kept as \
             it is; later its mark is kept in {}",
            attempt_name(job),
            job.job,
            aside.display()
        )
    }

    /// Whether the step's folder or job's mark of this name could not be read at the start of this incarnation.
    pub(crate) fn is_unreadable(&self, name: &str) -> bool {
        self.unreadable.borrow().contains(name)
    }

    /// Moves a file or folder to the damaged ones; returns its new path.
    pub(super) fn set_aside(&self, from: BorrowedFd<'_>, name: &str) -> io::Result<PathBuf> {
        self.unreadable.borrow_mut().remove(name);
        let aside = safe_path::make(self.root.as_fd(), Path::new(DAMAGED), 0o700)?;
        for number in 0..DAMAGED_MAX {
            let kept = if number == 0 { name.to_owned() } else { format!("{name}-{number}") };
            match rustix::fs::renameat_with(from, name, &aside, kept.as_str(), RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(self.path.join(DAMAGED).join(kept)),
                Err(rustix::io::Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Err(io::Error::new(io::ErrorKind::QuotaExceeded, format!("{} is full", self.path.join(DAMAGED).display())))
    }

    /// Returns the ranks of a step's tasks on this node, in order. If the launch can't be read, they are taken from the
    /// tasks' own records if each task has one, and otherwise assumed to be 0, 1, 2 …
    pub(crate) fn ranks(&self, key: StepKey) -> Vec<u32> {
        if let Some(launch) = self.launch(key) {
            return StepSetup::of(&launch).ranks;
        }
        if key.step == StepNo::BATCH {
            return vec![0];
        }
        let bytes = std::fs::metadata(self.step(key).join(file::RESULT));
        let places = bytes.map_or(0, |meta| (meta.size() as usize).saturating_sub(RESULT_BYTES + 1) / EXIT_BYTES);
        let mut ranks: Vec<u32> = self.tasks(key).iter().map(|task| task.rank).collect();
        ranks.sort_unstable();
        if ranks.len() == places { ranks } else { (0..places as u32).collect() }
    }

    /// Returns the user id of a step. If the launch can't be read, it is the owner of the script; root if there is
    /// none.
    pub(crate) fn owner(&self, key: StepKey) -> u32 {
        let of_script = || std::fs::symlink_metadata(self.step(key).join(file::SCRIPT)).map_or(0, |meta| meta.uid());
        self.launch(key).map_or_else(of_script, |launch| launch.facts.owner.uid)
    }
}
