//! Programs that daemons run as root around jobs and on nodes: which files they are, and how they are started.
//!
//! A program gets a fixed environment (`engine::hook`), the root folder as working directory, no input, and a session of
//! its own. Each line that it writes goes to the daemon's log.

use std::cell::RefCell;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use squall_files::safe_path::{self, Who};
use squall_model::job::ExitCode;
use squall_model::wire::hook::Hook;
use tokio::net::unix::pipe::Receiver;
use tokio::task::spawn_local;
use tracing::{info, warn};

use crate::sys::spawn::{Session, Spawn};

/// Longest line of a program's output that is logged, bytes; the rest of the line is dropped.
const LINE_BYTES_MAX: usize = 1024;
/// Lines of a program's output that are logged, at most.
const LINES_MAX: usize = 1000;

/// Returns the programs that paths stand for, in the order in which they run. A folder stands for its executable files
/// in the order of their names, `FOLDER/*.sh` for those with such names.
pub(crate) fn programs<'a>(paths: impl IntoIterator<Item = &'a str>) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in paths {
        let pattern = path.rsplit_once('/').and_then(|(folder, name)| Some((folder, name.split_once('*')?)));
        let (folder, (prefix, suffix)) = pattern.unwrap_or((path, ("", "")));
        let path = Path::new(folder);
        let wrong = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        if pattern.is_none() && !fs::metadata(path).map_err(wrong)?.is_dir() {
            found.push(path.to_owned());
            continue;
        }
        let entries = fs::read_dir(path).map_err(wrong)?.collect::<io::Result<Vec<_>>>().map_err(wrong)?;
        let fits = |name: &str| {
            name.len() >= prefix.len() + suffix.len() && name.starts_with(prefix) && name.ends_with(suffix)
        };
        let named = |entry: &fs::DirEntry| entry.file_name().to_str().is_some_and(fits);
        let files = entries.into_iter().filter(named).map(|entry| entry.path());
        let mut files: Vec<PathBuf> = files.filter(|path| is_program(path)).collect();
        files.sort();
        found.extend(files);
    }
    found.iter().try_for_each(|path| check(path))?;
    Ok(found)
}

/// Returns whether a file of a folder is a program: an executable file without a leading dot.
fn is_program(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_bytes().starts_with(b"."));
    let executable = |meta: fs::Metadata| meta.is_file() && meta.permissions().mode() & 0o111 != 0;
    !hidden && fs::metadata(path).is_ok_and(executable)
}

/// Refuses a program that another user could change.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    let wrong = |what: &str| io::Error::other(format!("{}: {what}", path.display()));
    let meta = fs::metadata(path).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
    let own = rustix::process::geteuid().as_raw();
    if meta.uid() != 0 && meta.uid() != own {
        return Err(wrong("it belongs to another user: chown it to root"));
    }
    if meta.mode() & 0o002 != 0 {
        return Err(wrong("every user can write it: chmod o-w it"));
    }
    match safe_path::exposure(path) {
        Some(exposed) if !matches!(exposed.to, Who::Group(_)) => {
            Err(wrong(&format!("{exposed}: move it to a folder in which only root can, or chown that")))
        }
        _ => Ok(()),
    }
}

/// Returns why a program failed, for users. None: it succeeded.
pub(crate) fn failure(program: &Path, exit: ExitCode) -> Option<String> {
    match exit {
        ExitCode { code: 0, signal: 0 } => None,
        ExitCode { code, signal: 0 } => Some(format!("{} ended with exit code {code}", program.display())),
        ExitCode { signal, .. } => Some(format!("{} was ended by signal {signal}", program.display())),
    }
}

/// A running program.
#[derive(Debug)]
pub(crate) struct Running {
    /// The program's process id, which is also that of its session and process group.
    pub(crate) pid: u32,
    /// Path of the program.
    pub(crate) program: PathBuf,
    output: Output,
}

impl Running {
    /// Starts a program with these arguments and this environment.
    pub(crate) fn start(program: &Path, args: &[&str], env: &[(String, String)], label: &Label) -> io::Result<Self> {
        Self::start_with((program, args), env, label, File::open("/dev/null")?.as_fd())
    }

    /// Starts a program that has an input.
    pub(crate) fn start_with(
        (program, args): (&Path, &[&str]),
        env: &[(String, String)],
        label: &Label,
        input: BorrowedFd<'_>,
    ) -> io::Result<Self> {
        let wrong = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", program.display()));
        let path = CString::new(program.as_os_str().as_bytes())?;
        let entries = env.iter().map(|(name, value)| CString::new(format!("{name}={value}")));
        let entries = entries.collect::<Result<Vec<_>, _>>()?;
        let (output, writer) = Output::open(label)?;
        let args = args.iter().map(|arg| CString::new(*arg)).collect::<Result<Vec<_>, _>>()?;
        let argv: Vec<CString> = std::iter::once(path.clone()).chain(args).collect();
        let stdio = [input, writer.as_fd(), writer.as_fd()];
        let session = Session::New;
        let spawn =
            Spawn { env: &entries, dir: Some(c"/"), session, umask: Some(0o022), ..Spawn::new(&path, &argv, stdio) };
        let child = spawn.start().map_err(|e| wrong(e.error))?;
        Ok(Self { pid: child.pid, program: program.to_owned(), output })
    }

    /// Returns the first line that the program wrote, once it has ended.
    pub(crate) fn first_line(&self) -> Option<String> {
        self.output.finish()
    }

    /// Returns the last line that the program wrote, once it has ended.
    pub(crate) fn last_line(&self) -> Option<String> {
        self.output.finish();
        self.output.0.1.borrow_mut().last.take()
    }
}

/// What a program runs for, for its lines in the log.
#[derive(Clone, Debug)]
pub(crate) struct Label {
    /// Kind of the program.
    pub(crate) hook: Hook,
    /// Id of the job; 0: the program runs for the node.
    pub(crate) job: u32,
}

/// The output of a program, which is logged as it comes.
#[derive(Clone, Debug)]
pub(crate) struct Output(Rc<(Receiver, RefCell<Lines>)>);

/// Lines that were read so far.
#[derive(Debug)]
struct Lines {
    label: Label,
    first: Option<String>,
    last: Option<String>,
    begun: Vec<u8>,
    count: usize,
}

impl Output {
    /// Opens a pipe of which the lines are logged. Returns its end for a program.
    pub(crate) fn open(label: &Label) -> io::Result<(Self, io::PipeWriter)> {
        let (reader, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&reader, true)?;
        Ok((Self::of(Receiver::from_owned_fd(reader.into())?, label), writer))
    }

    fn of(receiver: Receiver, label: &Label) -> Self {
        let lines = Lines { label: label.clone(), first: None, last: None, begun: Vec::new(), count: 0 };
        let output = Self(Rc::new((receiver, RefCell::new(lines))));
        let reader = output.clone();
        // It ends when no process has the pipe open, which may be after the program's end.
        spawn_local(async move {
            while reader.0.0.readable().await.is_ok() && reader.drain(|bytes| reader.0.0.try_read(bytes)) {}
        });
        output
    }

    /// Reads what is there. Returns whether more may come.
    fn drain(&self, read: impl Fn(&mut [u8]) -> io::Result<usize>) -> bool {
        let mut bytes = [0; 4096];
        loop {
            match read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => self.0.1.borrow_mut().take(&bytes[..count]),
                Err(e) => return matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
            }
        }
    }

    /// Reads what a program that has ended wrote last. Returns the first line that it wrote.
    pub(crate) fn finish(&self) -> Option<String> {
        // The runtime may not have noticed the last output yet, so the pipe itself is read.
        self.drain(|bytes| Ok(rustix::io::read(&self.0.0, bytes)?));
        let mut lines = self.0.1.borrow_mut();
        lines.end_line();
        lines.first.take()
    }
}

impl Lines {
    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte == b'\n' {
                self.end_line();
            } else if self.begun.len() < LINE_BYTES_MAX {
                self.begun.push(*byte);
            }
        }
    }

    fn end_line(&mut self) {
        let bytes = std::mem::take(&mut self.begun);
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end();
        if text.is_empty() {
            return;
        }
        self.count += 1;
        let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        match self.count.cmp(&LINES_MAX) {
            std::cmp::Ordering::Less => info!(job = self.label.job, line, "{} wrote", self.label.hook.name()),
            std::cmp::Ordering::Equal => warn!(job = self.label.job, "{} writes too much", self.label.hook.name()),
            std::cmp::Ordering::Greater => {}
        }
        self.first.get_or_insert_with(|| line.clone());
        self.last = Some(line);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use squall_model::job::ExitCode;
    use squall_model::wire::hook::Hook;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::unix::pipe;

    use super::{Label, Output, PathBuf, failure, programs};

    /// A folder that is removed at the end.
    pub(crate) struct Folder(pub(crate) PathBuf);

    impl Folder {
        pub(crate) fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("squall-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    fn script(path: &std::path::Path, mode: u32) {
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_stands_for_its_programs_in_order_of_name() {
        let dir = Folder::new("hook-1");
        for (name, mode) in [("20-b", 0o755), ("10-a", 0o755), ("notes", 0o644), (".old", 0o755)] {
            script(&dir.0.join(name), mode);
        }
        let folder = dir.0.to_str().unwrap();
        let names = |path: &str| -> Vec<String> {
            let found = programs([path]).unwrap();
            found.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(folder), ["10-a", "20-b"]);
        assert_eq!(names(&format!("{folder}/*")), ["10-a", "20-b"]);
        assert_eq!(names(&format!("{folder}/1*a")), ["10-a"]);
        assert_eq!(names(&format!("{folder}/notes")), ["notes"]);
        assert!(programs([format!("{folder}/none").as_str()]).unwrap_err().to_string().contains("/none: "));
    }

    #[test]
    fn a_program_that_others_can_change_is_refused() {
        let dir = Folder::new("hook-2");
        let path = dir.0.join("prolog");
        script(&path, 0o757);
        let error = programs([path.to_str().unwrap()]).unwrap_err().to_string();
        assert!(error.contains("chmod o-w"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        programs([path.to_str().unwrap()]).unwrap();
        fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o777)).unwrap();
        let error = programs([path.to_str().unwrap()]).unwrap_err().to_string();
        assert!(error.contains("every user can replace what is in"), "{error}");
    }

    #[test]
    fn failures_name_program_and_exit() {
        let of = |code, signal| failure("/etc/p".as_ref(), ExitCode { code, signal });
        assert_eq!(of(0, 0), None);
        assert_eq!(of(3, 0).as_deref(), Some("/etc/p ended with exit code 3"));
        assert_eq!(of(0, 9).as_deref(), Some("/etc/p was ended by signal 9"));
    }

    #[tokio::test(flavor = "local")]
    async fn the_first_line_is_kept_without_control_characters() {
        let (mut sender, receiver) = pipe::pipe().unwrap();
        let output = Output::of(receiver, &Label { hook: Hook::Health, job: 0 });
        sender.write_all(b"\ndisk \x1b[1mfull\nsecond").await.unwrap();
        drop(sender);
        assert_eq!(output.finish().as_deref(), Some("disk  [1mfull"));
        assert_eq!(output.0.1.borrow().last.as_deref(), Some("second"));
    }
}
