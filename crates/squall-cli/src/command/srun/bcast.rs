//! `--bcast`: the program comes to the nodes before the step.
//!
//! Without a path it is executed where the nodes keep it: what they have is never sent nor copied again. With a path
//! it is laid down there first, as sbcast does.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_bytes::ByteBuf;
use squall_model::id::JobId;
use squall_model::step::TaskProgram;
use squall_model::wire::client::{Broadcast, BroadcastTo, PlaceAt};
use squall_model::wire::fabric::ContentId;

use crate::broadcast;
use crate::contact::Patience;
use crate::options::Stop;
use crate::refusal;

/// Brings the program to the job's nodes and lets the step execute it there. `to`: the option's value.
pub(super) fn bring(to: &str, job: JobId, program: &mut TaskProgram) -> Result<(), Stop> {
    let Some(command) = program.commands.first_mut().and_then(|(_, words)| words.first_mut()) else { return Ok(()) };
    let name = OsStr::from_bytes(command);
    let source = find(name).ok_or_else(|| failed(name, "No such file or directory"))?;
    let file = File::open(&source).map_err(|e| failed(name, &e.to_string()))?;
    let mode = file.metadata().map_err(|e| failed(name, &e.to_string()))?.permissions().mode() & 0o777;
    let (digest, size) = broadcast::digest(&file).map_err(|e| failed(name, &e.to_string()))?;
    let path = (!to.is_empty()).then(|| destination(to, job, &source));
    let place = path.clone().map(|path| PlaceAt {
        path: ByteBuf::from(path.into_os_string().into_vec()),
        mode,
        modified: None,
        replace: true,
    });
    let wanted = Broadcast { to: BroadcastTo::Job(job), digest, size, shared: true, place, time_ms: None };
    let what = format!("Unable to broadcast {}", source.display());
    let stop = |e| Stop::Bad { lines: refusal::lines(&what, &e), exit: 1 };
    let mut client = Patience::new("srun").connect().map_err(stop)?;
    if let Some(failed) = broadcast::broadcast(&mut client, &file, wanted).map_err(stop)?.failed {
        return Err(Stop::bad(broadcast::problem(&failed)));
    }
    match path {
        Some(path) => *command = ByteBuf::from(path.into_os_string().into_vec()),
        None => program.content = Some(ContentId { owner: rustix::process::geteuid().as_raw(), digest }),
    }
    Ok(())
}

fn failed(name: &OsStr, why: &str) -> Stop {
    Stop::bad(format!("fatal: Can't broadcast {}: {why}", name.to_string_lossy()))
}

/// A path that ends with a slash is a folder: the file in it gets a name of its own.
fn destination(to: &str, job: JobId, source: &Path) -> PathBuf {
    let path = std::path::absolute(to).unwrap_or_else(|_| to.into());
    if !to.ends_with('/') {
        return path;
    }
    let mut name = OsString::from(format!("slurm_bcast_{job}_"));
    name.push(source.file_name().unwrap_or_default());
    path.join(name)
}

/// The program's file on this machine.
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
    use std::path::Path;

    use squall_model::id::JobId;

    use super::{destination, find};

    #[test]
    fn where_the_program_comes_from_and_goes_to() {
        assert!(find(OsStr::new("sh")).unwrap().is_absolute());
        assert_eq!(find(OsStr::new("no such program")), None);
        assert_eq!(destination("/tmp/x", JobId(7), Path::new("/bin/true")), Path::new("/tmp/x"));
        assert_eq!(destination("/tmp/", JobId(7), Path::new("/bin/true")), Path::new("/tmp/slurm_bcast_7_true"));
    }
}
