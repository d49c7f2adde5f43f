//! `squall links DIR`: creates links to this program under the names of Slurm's commands.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Runs `squall links`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    if crate::asks_for_help(args) {
        crate::print(
            "usage: squall links DIR\n\nCreates Slurm's command names, and squall, in DIR as links to this program.\n",
        );
        return ExitCode::SUCCESS;
    }
    let [dir] = args else {
        eprintln!("usage: squall links DIR");
        return ExitCode::from(2);
    };
    super::end("links", link_all(Path::new(dir)))
}

fn link_all(dir: &Path) -> Result<String, String> {
    std::fs::create_dir_all(dir).map_err(|e| format!("cannot create {}: {e}", dir.display()))?;
    let program = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let mut text = String::new();
    for name in crate::COMMANDS.iter().filter(|c| c.slurm).map(|c| c.name).chain(["squall"]) {
        let link = dir.join(name);
        // Don't replace the program itself, which may be in this folder.
        if link.canonicalize().is_ok_and(|there| there == program) && !link.is_symlink() {
            continue;
        }
        replace(&program, &link).map_err(|e| format!("cannot create {}: {e}", link.display()))?;
        let _ = writeln!(text, "{}", link.display());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let absolute = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    if !std::env::split_paths(&path).any(|known| known.canonicalize().is_ok_and(|known| known == absolute)) {
        eprintln!("squall links: {0} is not in PATH: export PATH={0}:$PATH", absolute.display());
    }
    Ok(text)
}

/// Creates a link in place of an older link. Fails if anything other than a link has that name.
fn replace(program: &Path, link: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(link) {
        Ok(meta) if meta.is_symlink() => std::fs::remove_file(link)?,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is not a link is there")),
        Err(_) => {}
    }
    std::os::unix::fs::symlink(program, link)
}
