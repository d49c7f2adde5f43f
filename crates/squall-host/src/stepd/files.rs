//! Files of the user: opened as the user, with the messages that Slurm's users know.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where a step runs whose working directory is missing.
const FALLBACK_DIR: &str = "/tmp";

/// An error in words, without the number that Rust adds.
pub(super) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// The directory to run in, and what to tell the user if it is not the one asked for.
pub(super) fn work_dir(asked: &Path) -> (PathBuf, Option<String>) {
    match enter(asked) {
        Ok(()) => (asked.to_owned(), None),
        Err(e) => {
            let note = format!("couldn't chdir to `{}': {}: going to /tmp instead", asked.display(), reason(&e));
            (PathBuf::from(FALLBACK_DIR), Some(note))
        }
    }
}

/// Whether one may go there.
fn enter(dir: &Path) -> io::Result<()> {
    if !fs::metadata(dir)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    // By the rights over files that the thread has, which may not be the process's.
    let (here, flags) = (rustix::fs::CWD, rustix::fs::AtFlags::EACCESS);
    match rustix::fs::accessat(here, dir, rustix::fs::Access::EXEC_OK, flags) {
        // Kernels before 5.8 can't say; then the child finds out.
        Err(rustix::io::Errno::NOSYS) => Ok(()),
        result => Ok(result?),
    }
}

/// Opens a file for output, each write at its end; missing directories above it are created.
pub(super) fn open_output(path: &Path, append: bool) -> io::Result<File> {
    let open = || {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o666).custom_flags(libc::O_NOCTTY);
        options.open(path)
    };
    let file = match (open(), path.parent()) {
        (Err(e), Some(parent)) if e.kind() == io::ErrorKind::NotFound => {
            fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
            open()?
        }
        (result, _) => result?,
    };
    // What can't be cut (a pipe, a terminal) has nothing to be cut.
    if !append && file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Opens a file for input.
pub(super) fn open_input(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOCTTY).open(path)
}

/// `/dev/null`, both ways.
pub(super) fn null() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/null")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use std::fs;
    use std::path::Path;

    use super::{open_output, work_dir};

    #[test]
    fn directories_are_made_and_files_cut_or_continued() {
        let dir = std::env::temp_dir().join(format!("squall-files-{}", std::process::id()));
        let path = dir.join("a/b/out");
        open_output(&path, false).unwrap().write_all(b"one").unwrap();
        open_output(&path, true).unwrap().write_all(b"two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "onetwo");
        open_output(&path, false).unwrap().write_all(b"three").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
        assert!(open_output(&path.join("below a file"), false).is_err());
        assert!(open_output(&dir, false).is_err());
        fs::remove_dir_all(&dir).unwrap();
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
