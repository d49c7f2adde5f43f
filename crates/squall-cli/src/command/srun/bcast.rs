//! `--bcast`: sends the program to the nodes before the step starts.
//!
//! The nodes cache programs by content: a program that is there is neither sent nor copied again. Steps execute it from
//! the cache. If the option names a folder, the program is also installed there under the name that Slurm gives it. If
//! it names a file, the program is installed and executed there.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use squall_model::encoding::ByteBuf;
use squall_model::id::JobId;
use squall_model::step::TaskProgram;
use squall_model::wire::broadcast::{BroadcastTo, PlaceAt};
use squall_model::wire::fabric::ContentId;

use crate::contact::Patience;
use squall_client::ClientError;
use squall_client::broadcast;
use squall_text::options::Stop;

/// Sends the program to the job's nodes and makes the step execute it there. `to` is the option's value: empty, a
/// folder that ends in `/`, or a file.
pub(super) fn bring(to: &str, job: JobId, program: &mut TaskProgram) -> Result<(), Stop> {
    let Some(command) = program.commands.first_mut().and_then(|(_, words)| words.first_mut()) else { return Ok(()) };
    let name = OsStr::from_bytes(command);
    let source = find(name).ok_or_else(|| failed(name, "No such file or directory"))?;
    let file = File::open(&source).map_err(|e| failed(name, &e.to_string()))?;
    let mode = file.metadata().map_err(|e| failed(name, &e.to_string()))?.permissions().mode() & 0o777;
    let path = (!to.is_empty()).then(|| std::path::absolute(to).unwrap_or_else(|_| to.into()));
    let path = path.map(|path| ByteBuf::from(path.into_os_string().into_vec()));
    let per_step = to.ends_with('/');
    let place = path.clone().map(|path| PlaceAt { path, mode, modified: None, replace: true, per_step });
    let wanted = broadcast::wanted(BroadcastTo::Job { jobs: vec![job], step: None }, true, place, None);
    let what = format!("Unable to broadcast {}", source.display());
    let stop = |e: ClientError| Stop::Bad { lines: e.lines(&what), exit: 1 };
    let mut client = Patience::new("srun").connect().map_err(stop)?;
    let sent = broadcast::broadcast(&mut client, &file, wanted).map_err(stop)?;
    if let Some(failed) = sent.failed {
        return Err(Stop::bad(broadcast::problem(&failed)));
    }
    match path {
        Some(path) if !per_step => *command = path,
        _ => program.content = Some(ContentId { owner: rustix::process::geteuid().as_raw(), digest: sent.digest }),
    }
    Ok(())
}

fn failed(name: &OsStr, why: &str) -> Stop {
    Stop::bad(format!("fatal: Can't broadcast {}: {why}", name.to_string_lossy()))
}

/// Finds the program's file on this machine, in `PATH` if its name has no slash. None: there is no such file.
fn find(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(name.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::find;

    #[test]
    fn where_the_program_comes_from() {
        assert!(find(OsStr::new("sh")).unwrap().is_absolute());
        assert_eq!(find(OsStr::new("no such program")), None);
    }
}
