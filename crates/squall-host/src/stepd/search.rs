//! Finds the file of a program, and reports in Slurm's words why it can't be executed.

use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::files::reason;
use crate::sys::spawn::SpawnError;

/// The reason why a program can't be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotFound {
    /// The exit code with which the task ends.
    pub(super) code: u8,
    /// The message, e.g. `execve(): nosuchcmd: No such file or directory`.
    pub(super) error: String,
}

impl NotFound {
    fn new(name: &CStr, errno: i32) -> Self {
        let why = reason(&io::Error::from_raw_os_error(errno));
        Self { code: errno as u8, error: format!("execve(): {}: {why}", name.to_string_lossy()) }
    }

    /// Returns the error of a task for which `--multi-prog` has no line.
    pub(super) fn no_program() -> Self {
        Self { code: 2, error: "No executable program specified for this task".to_owned() }
    }

    /// Describes an error of starting a program that was found. `name` is the program as the user gave it.
    pub(super) fn of(error: &SpawnError, name: &CStr, program: &CStr) -> Self {
        let errno = error.errno();
        if error.call != "execve" {
            let error = format!("{}: {}", error.call, reason(&error.error));
            return Self { code: errno as u8, error };
        }
        match interpreter(Path::new(OsStr::from_bytes(program.to_bytes()))) {
            Some(interpreter) if errno == libc::ENOENT => {
                let why = reason(&error.error);
                Self { code: errno as u8, error: format!("execve(): bad interpreter({interpreter}): {why}") }
            }
            _ => Self::new(name, errno),
        }
    }
}

/// Finds the file of the program `name`: if it contains a slash it is a path, otherwise the folders of `path` are
/// searched, and then `dir` (as in Slurm: `srun test.sh`). Relative folders start at `dir`.
pub(super) fn find_program(name: &CStr, path: &[u8], dir: &Path) -> Result<CString, NotFound> {
    if name.is_empty() {
        return Err(NotFound::new(name, libc::ENOENT));
    }
    if name.to_bytes().contains(&b'/') {
        return Ok(name.to_owned());
    }
    let mut errno = libc::ENOENT;
    for folder in path.split(|&b| b == b':').chain([&b""[..]]) {
        let file = dir.join(OsStr::from_bytes(folder)).join(OsStr::from_bytes(name.to_bytes()));
        if !fs::metadata(&file).is_ok_and(|m| m.is_file()) {
            continue;
        }
        if rustix::fs::access(&file, rustix::fs::Access::EXEC_OK).is_err() {
            errno = libc::EACCES;
        } else if let Ok(found) = CString::new(file.as_os_str().as_bytes()) {
            return Ok(found);
        }
    }
    Err(NotFound::new(name, errno))
}

/// Returns the interpreter named in a script's first line (`#!`). None: there is no such line.
fn interpreter(script: &Path) -> Option<String> {
    let mut head = [0; 256];
    let count = fs::File::open(script).ok()?.read(&mut head).ok()?;
    let line = head[..count].strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    String::from_utf8_lossy(line).split_ascii_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::path::Path;

    use super::find_program;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let find = |name: &CStr, path: &[u8]| find_program(name, path, Path::new("/"));
        assert_eq!(find(c"/some/where", b""), Ok(c"/some/where".to_owned()));
        assert_eq!(find(c"sh", b"/nonexistent:/bin").unwrap().to_bytes(), b"/bin/sh");
        assert_eq!(find(c"sh", b"bin").unwrap().to_bytes(), b"/bin/sh");
        let here = find_program(c"sh", b"/nonexistent", Path::new("/bin"));
        assert_eq!(here.unwrap().to_bytes(), b"/bin/sh", "the working directory is the last");
        let error = find(c"nosuchcmd", b"/bin:/usr/bin").unwrap_err();
        assert_eq!((error.code, error.error.as_str()), (2, "execve(): nosuchcmd: No such file or directory"));
        let error = find(c"passwd", b"/etc").unwrap_err();
        assert_eq!((error.code, error.error.as_str()), (13, "execve(): passwd: Permission denied"));
    }
}
