//! Notices that the state folder of a running cluster was removed: a daemon without it ends, with a word in its log.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use squall_files::place::Place;
use tracing::error;

use crate::life;
use crate::processes;

/// Interval of looks. The folder has to be missing at two of them: somebody may be about to put it back.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The folder of a cluster's sockets and pid files, which each daemon needs.
#[derive(Debug)]
pub(crate) struct Folder {
    folder: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens the folder. None: it can't be watched.
    pub(crate) fn of(place: &Place) -> Option<Self> {
        let path = place.run();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&path, flags, Mode::empty()).ok()?;
        Some(Self { folder, path })
    }

    /// Whether the folder was removed or renamed. One that can't be read now is none of these.
    pub(crate) fn is_gone(&self) -> bool {
        let removed = rustix::fs::fstat(&self.folder).is_ok_and(|stat| stat.st_nlink == 0);
        removed || std::fs::metadata(&self.path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
    }
}

/// Ends this process with exit code 1 when the state folder is gone, after `last`. To be called once the process is
/// confined: a thread looks.
pub fn end_with(place: &Place, daemon: &str, last: impl FnOnce() + Send + 'static) {
    let Some(folder) = Folder::of(place) else { return };
    let (daemon, dir) = (daemon.to_owned(), place.dir().display().to_string());
    let watch = move || {
        let mut before = false;
        loop {
            std::thread::sleep(LOOK_EVERY);
            let gone = folder.is_gone();
            if gone && before {
                error!("{daemon} ends: its state folder {dir} was removed");
                last();
                std::process::exit(1);
            }
            before = gone;
        }
    };
    if let Err(e) = std::thread::Builder::new().name("folder".to_owned()).spawn(watch) {
        error!(error = %e, "the state folder is not watched");
    }
}

/// Ends the steps of a node as `squall down` does: tasks get SIGTERM, and what is left after `patience` SIGKILL.
pub(crate) fn end_steps(place: &Place, node: &str, patience: Duration) {
    let steps = place.steps(node);
    for (pid, _) in processes::marked(&steps) {
        let folder = steps.clone();
        let meant = move |pid| processes::mark(pid).is_some_and(|mark| mark.starts_with(&folder));
        processes::signal_if(pid, Signal::TERM.as_raw(), meant);
    }
    life::wait_until(patience, || {
        std::thread::sleep(LOOK_EVERY / 10);
        processes::marked(&steps).is_empty()
    });
    life::kill_steps(place, node);
}

#[cfg(test)]
mod tests {
    use squall_files::place::Place;

    use super::Folder;

    #[test]
    fn a_folder_is_gone_when_it_is_removed_or_another_one_is_there() {
        let dir = std::env::temp_dir().join(format!("squall-gone-{}", std::process::id()));
        let place = Place::at(&dir).unwrap();
        std::fs::create_dir_all(place.run()).unwrap();
        let folder = Folder::of(&place).unwrap();
        assert!(!folder.is_gone());
        let aside = dir.with_extension("aside");
        std::fs::rename(&dir, &aside).unwrap();
        assert!(folder.is_gone(), "renamed");
        std::fs::rename(&aside, &dir).unwrap();
        assert!(!folder.is_gone(), "and put back");
        std::fs::remove_dir_all(&dir).unwrap();
        std::fs::create_dir_all(place.run()).unwrap();
        assert!(folder.is_gone() && !Folder::of(&place).unwrap().is_gone(), "another one with that name");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
