//! `squall links DIR`: creates links to this program under the names of Slurm's commands.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::ExitCode;

use squall_files::safe_path;
use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{self, Page};

use crate::command;

/// `squall links`, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall links",
    about: "create Slurm's command names as links to this program",
    synopsis: &["DIR"],
    options: page::Options::Own(FLAGS),
    notes: "Creates Slurm's command names, and squall, in DIR as links to this program.\n",
};

const FLAGS: &[Flag] = &[flag("help", 'h', Arg::None, "show this help")];

/// Runs `squall links`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    command::own(&PAGE, args, |given| {
        let dir = command::one_operand(&PAGE, given)?.ok_or("in which folder? `squall links DIR`")?;
        link_all(Path::new(&dir))
    })
}

fn link_all(dir: &Path) -> Result<String, String> {
    std::fs::create_dir_all(dir).map_err(|e| format!("cannot create {}: {e}", dir.display()))?;
    let folder = File::open(dir).map_err(|e| format!("cannot open {}: {e}", dir.display()))?;
    let program = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let mut text = String::new();
    for name in super::COMMANDS.iter().filter(|c| c.slurm).map(|c| c.page.name).chain(["squall"]) {
        let link = dir.join(name);
        // Don't replace the program itself, which may be in this folder.
        if link.canonicalize().is_ok_and(|there| there == program) && !link.is_symlink() {
            continue;
        }
        replace(&program, folder.as_fd(), name).map_err(|e| format!("cannot create {}: {e}", link.display()))?;
        let _ = writeln!(text, "{}", link.display());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let absolute = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    if !std::env::split_paths(&path).any(|known| known.canonicalize().is_ok_and(|known| known == absolute)) {
        eprintln!("squall links: {0} is not in PATH: export PATH={0}:$PATH", absolute.display());
    }
    Ok(text)
}

/// Creates a link in place of an older link, in an opened folder. Fails if anything other than a link has that name.
fn replace(program: &Path, folder: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let link = safe_path::path_of(folder).join(name);
    match std::fs::symlink_metadata(&link) {
        Ok(meta) if meta.is_symlink() => std::fs::remove_file(&link)?,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is not a link is there")),
        Err(_) => {}
    }
    std::os::unix::fs::symlink(program, link)
}
