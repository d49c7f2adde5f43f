//! Opens the user's files as the user, with the error messages of Slurm.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use squall_model::plain::plain;

/// Working directory of a step if its requested directory is missing.
const FALLBACK_DIR: &str = "/tmp";

/// Whether opening may block: until a FIFO's other end is opened, or the holder of a lease releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// Opening may block, as the process serves one step only.
    MayWait,
    /// Opening must not block, as other steps would wait too: files other than plain ones, and those that can't be
    /// opened at once, are errors.
    AtOnce,
}

impl Opening {
    fn flags(self) -> i32 {
        libc::O_NOCTTY | if self == Self::AtOnce { libc::O_NONBLOCK } else { 0 }
    }

    /// Refuses a FIFO before it is opened, as its other end would notice the opening.
    fn look(self, path: &Path) -> io::Result<()> {
        match fs::metadata(path) {
            Ok(meta) if self == Self::AtOnce && !is_plain(&meta) => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    }

    /// Refuses an opened file of a forbidden kind.
    fn check(self, file: &File) -> io::Result<()> {
        let on_proc = rustix::fs::fstatfs(file)?.f_type == libc::PROC_SUPER_MAGIC;
        if self == Self::AtOnce {
            // The daemon still opens as root, and files of processes show more to root.
            if on_proc || !is_plain(&file.metadata()?) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let flags = rustix::fs::fcntl_getfl(file)?;
            rustix::fs::fcntl_setfl(file, flags - rustix::fs::OFlags::NONBLOCK)?;
        }
        let shown = || fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
        if on_proc && shown().iter().any(|part| part.as_encoded_bytes().iter().all(u8::is_ascii_digit)) {
            // `/proc/self` is this daemon, and not the task: its memory has the layout of root's daemons.
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(())
    }
}

/// Whether the file is a regular one, or `/dev/null`.
fn is_plain(meta: &fs::Metadata) -> bool {
    meta.is_file() || meta.rdev() == libc::makedev(1, 3)
}

/// Returns an error's text without the error number that Rust appends.
pub(super) fn reason(error: &io::Error) -> String {
    plain(&error.to_string())
}

/// Returns the directory to run in, and a note for the user if it is not the one asked for.
pub(super) fn work_dir(asked: &Path) -> (PathBuf, Option<String>) {
    match enter(asked) {
        Ok(()) => (asked.to_owned(), None),
        Err(e) => {
            let note = format!("couldn't chdir to `{}': {}: going to /tmp instead", asked.display(), reason(&e));
            (PathBuf::from(FALLBACK_DIR), Some(note))
        }
    }
}

/// Checks that `dir` is a directory that the user may enter.
fn enter(dir: &Path) -> io::Result<()> {
    if !fs::metadata(dir)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    // Checked with the thread's file permissions, which may differ from those of the process.
    let (here, flags) = (rustix::fs::CWD, rustix::fs::AtFlags::EACCESS);
    match rustix::fs::accessat(here, dir, rustix::fs::Access::EXEC_OK, flags) {
        // Kernels before 5.8 lack this call; then the child finds out.
        Err(rustix::io::Errno::NOSYS) => Ok(()),
        result => Ok(result?),
    }
}

/// Opens a file for output in append mode; makes missing parent directories. Without `append` it is truncated.
pub(super) fn open_output(path: &Path, append: bool, opening: Opening) -> io::Result<File> {
    opening.look(path)?;
    let open = || {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o666).custom_flags(opening.flags());
        options.open(path)
    };
    let file = match (open(), path.parent()) {
        (Err(e), Some(parent)) if e.kind() == io::ErrorKind::NotFound => {
            fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
            open()?
        }
        (result, _) => result?,
    };
    opening.check(&file)?;
    // Pipes and terminals need not be truncated.
    if !append && file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Opens a file for input.
pub(super) fn open_input(path: &Path, opening: Opening) -> io::Result<File> {
    opening.look(path)?;
    let file = OpenOptions::new().read(true).custom_flags(opening.flags()).open(path)?;
    opening.check(&file).map(|()| file)
}

/// Opens `/dev/null` for reading and writing.
pub(super) fn null() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/null")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use std::fs;
    use std::path::Path;

    use super::{Opening, open_input, open_output, work_dir};

    #[test]
    fn directories_are_made_and_files_cut_or_continued() {
        let dir = std::env::temp_dir().join(format!("squall-files-{}", std::process::id()));
        let path = dir.join("a/b/out");
        open_output(&path, false, Opening::MayWait).unwrap().write_all(b"one").unwrap();
        open_output(&path, true, Opening::MayWait).unwrap().write_all(b"two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "onetwo");
        open_output(&path, false, Opening::MayWait).unwrap().write_all(b"three").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
        assert!(open_output(&path.join("below a file"), false, Opening::MayWait).is_err());
        assert!(open_output(&dir, false, Opening::MayWait).is_err());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn h1_a_daemon_of_many_steps_opens_nothing_that_waits() {
        let dir = std::env::temp_dir().join(format!("squall-fifo-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (fifo, plain) = (dir.join("fifo"), dir.join("plain"));
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
        let waits = |result: std::io::Result<fs::File>| result.unwrap_err().kind() == std::io::ErrorKind::WouldBlock;
        assert!(waits(open_output(&fifo, false, Opening::AtOnce)) && waits(open_input(&fifo, Opening::AtOnce)));
        let file = open_output(&plain, false, Opening::AtOnce).unwrap();
        assert!(!rustix::fs::fcntl_getfl(&file).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
        open_input(Path::new("/dev/null"), Opening::AtOnce).unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn l1_files_of_this_process_are_nobodys_input() {
        let denied = |path: &str| open_input(Path::new(path), Opening::MayWait).unwrap_err().kind();
        assert_eq!(denied("/proc/self/maps"), std::io::ErrorKind::PermissionDenied);
        assert_eq!(denied("/proc/thread-self/auxv"), std::io::ErrorKind::PermissionDenied);
        open_input(Path::new("/proc/meminfo"), Opening::MayWait).unwrap();
    }

    #[test]
    fn a_missing_directory_is_said_as_slurm_says_it() {
        let (dir, note) = work_dir(Path::new("/nonexistent/x"));
        assert_eq!(dir, Path::new("/tmp"));
        let expected = "couldn't chdir to `/nonexistent/x': No such file or directory: going to /tmp instead";
        assert_eq!(note.as_deref(), Some(expected));
        assert_eq!(work_dir(Path::new("/")), ("/".into(), None));
    }
}
