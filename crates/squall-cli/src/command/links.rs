//! `squall links DIR`: Slurm's command names as links to this program.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    let [dir] = args else {
        eprintln!("usage: squall links DIR");
        return ExitCode::from(2);
    };
    if dir == "--help" || dir == "-h" {
        crate::print("usage: squall links DIR\n\nCreates Slurm's command names in DIR as links to this program.\n");
        return ExitCode::SUCCESS;
    }
    super::end("links", link_all(Path::new(dir)))
}

fn link_all(dir: &Path) -> Result<String, String> {
    std::fs::create_dir_all(dir).map_err(|e| format!("cannot create {}: {e}", dir.display()))?;
    let program = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let mut text = String::new();
    for command in crate::COMMANDS.iter().filter(|c| c.slurm) {
        let link = dir.join(command.name);
        replace(&program, &link).map_err(|e| format!("cannot create {}: {e}", link.display()))?;
        let _ = writeln!(text, "{}", link.display());
    }
    Ok(text)
}

/// Makes a link; an older link gives way, anything else does not.
fn replace(program: &Path, link: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(link) {
        Ok(meta) if meta.is_symlink() => std::fs::remove_file(link)?,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is not a link is there")),
        Err(_) => {}
    }
    std::os::unix::fs::symlink(program, link)
}
