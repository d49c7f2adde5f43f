//! Installs files where users want them, on a thread of its own that accesses files as the user.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Timespec, Timestamps, UTIME_OMIT, futimens};
use squall_model::wire::node::Placement;
use tokio::sync::mpsc::Sender;

use super::Event;
use super::private::Reached;
use crate::sys::fsuser::use_files_as;
use crate::sys::identity::Identity;

/// Bytes of two files that are compared at once.
const COMPARE_BYTES: usize = 256 << 10;

/// Installs the file `source` on a new thread; the result arrives as an event. `reached`: how the node daemon reaches the
/// place; None: by the path in `placement`.
pub(super) fn lay_down(
    source: PathBuf,
    (node, reached): (String, Option<Reached>),
    placement: Box<Placement>,
    events: Sender<Event>,
) {
    let work = move || {
        let key = (placement.epoch, placement.number);
        let path = match &reached {
            Some(reached) => &reached.path,
            None => Path::new(OsStr::from_bytes(&placement.path)),
        };
        let error = write(&source, path, &node, &placement).err();
        // Fails only if the daemon is ending.
        drop(events.blocking_send(Event::Placed(key, error.map_or(0, |e| e.raw_os_error().unwrap_or(libc::EIO)))));
    };
    if let Err(e) = std::thread::Builder::new().name("laydown".to_owned()).spawn(work) {
        tracing::error!(error = %e, "a file can't be installed");
    }
}

fn write(source: &Path, path: &Path, node: &str, placement: &Placement) -> io::Result<()> {
    let mut file = File::open(source)?;
    let owner = &placement.owner;
    use_files_as(&Identity { uid: owner.uid, gid: owner.gid, groups: owner.groups.clone() })?;
    let mut path = path.as_os_str().to_owned();
    if placement.per_node {
        path.push("_");
        path.push(node);
    }
    let path = Path::new(&path);
    if let Some(there) = same(&mut file, path)? {
        // The content is right already, so a file of another owner is accepted unless it is to be replaced.
        return finish(&there, placement).or_else(|e| if placement.replace { Err(e) } else { Ok(()) });
    }
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{node}.{}", placement.number));
    let fresh = PathBuf::from(fresh);
    let options = OpenOptions::new().write(true).create_new(true).mode(0o600).to_owned();
    let result = fill(&mut file, &fresh, &options, path, placement);
    if result.is_err() {
        drop(fs::remove_file(&fresh));
    }
    result
}

fn fill(source: &mut File, fresh: &Path, options: &OpenOptions, path: &Path, placement: &Placement) -> io::Result<()> {
    let mut to = options.open(fresh)?;
    io::copy(source, &mut to)?;
    finish(&to, placement)?;
    if placement.replace {
        return fs::rename(fresh, path);
    }
    // Another node may share this disk and have been faster.
    match fs::hard_link(fresh, path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && same(source, path)?.is_some() => fs::remove_file(fresh),
        Err(e) => Err(e),
        Ok(()) => fs::remove_file(fresh),
    }
}

fn finish(file: &File, placement: &Placement) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(placement.mode & 0o777))?;
    if let Some((seconds, nanoseconds)) = placement.modified {
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let modified = Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds) };
        futimens(file, &Timestamps { last_access: omit, last_modification: modified })?;
    }
    Ok(())
}

/// Opens the existing file at `path`; None: it is not a plain file with the same bytes as `source`.
fn same(source: &mut File, path: &Path) -> io::Result<Option<File>> {
    let length = source.metadata()?.len();
    // Symbolic links are not followed, and pipes not waited for.
    let there = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let Ok(mut there) = there else { return Ok(None) };
    if !there.metadata().is_ok_and(|meta| meta.is_file() && meta.len() == length) {
        return Ok(None);
    }
    source.rewind()?;
    let (mut own, mut other) = (vec![0; COMPARE_BYTES], vec![0; COMPARE_BYTES]);
    let same = loop {
        let length = source.read(&mut own)?;
        if length == 0 {
            break true;
        }
        if there.read_exact(&mut other[..length]).is_err() || own[..length] != other[..length] {
            break false;
        }
    };
    source.rewind()?;
    Ok(same.then_some(there))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use squall_model::encoding::ByteBuf;
    use squall_model::id::Epoch;
    use squall_model::job::{Digest, Owner};
    use squall_model::wire::fabric::ContentId;
    use squall_model::wire::node::Placement;

    use super::write;

    /// A file of the test's own user, which replaces nothing.
    fn placement() -> Placement {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let owner = Owner { uid, gid, groups: vec![gid], user: String::new(), group: String::new() };
        let content = ContentId { owner: uid, digest: Digest::of(b"content") };
        let path = ByteBuf::default();
        let (replace, per_node) = (false, false);
        Placement {
            epoch: Epoch(1),
            number: 7,
            content,
            owner,
            path,
            mode: 0o640,
            modified: None,
            replace,
            per_node,
            job: None,
        }
    }

    /// Ten nodes that share a disk install one file at once; none may take the file of another for a foreign one.
    #[test]
    fn nodes_that_share_a_disk_install_the_same_file() {
        let folder = std::env::temp_dir().join(format!("squall-laydown-shared-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, dest) = (folder.join("source"), folder.join("dest"));
        std::fs::write(&source, vec![7; 100_000]).unwrap();
        let placement = placement();
        for round in 0..50 {
            let start = std::sync::Barrier::new(10);
            std::thread::scope(|scope| {
                for node in 0..10 {
                    let (start, source, dest, placement) = (&start, &source, &dest, &placement);
                    scope.spawn(move || {
                        start.wait();
                        write(source, dest, &format!("n{node}"), placement)
                            .unwrap_or_else(|e| panic!("round {round}: {e}"));
                    });
                }
            });
            std::fs::remove_file(&dest).unwrap();
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_is_laid_down_whole_and_nothing_else_is_replaced_unasked() {
        let folder = std::env::temp_dir().join(format!("squall-laydown-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, dest) = (folder.join("source"), folder.join("dest"));
        std::fs::write(&source, "content").unwrap();
        let mut placement = Placement { modified: Some((1_000_000_000, 0)), ..placement() };
        let lay = |placement: &Placement| {
            let (source, dest, placement) = (source.clone(), dest.clone(), placement.clone());
            std::thread::spawn(move || write(&source, &dest, "n1", &placement)).join().unwrap()
        };
        lay(&placement).unwrap();
        let meta = std::fs::metadata(&dest).unwrap();
        assert_eq!(
            (std::fs::read(&dest).unwrap().as_slice(), meta.mode() & 0o777, meta.mtime()),
            (&b"content"[..], 0o640, 1_000_000_000)
        );
        lay(&placement).unwrap();
        std::fs::write(&dest, "other").unwrap();
        assert_eq!(lay(&placement).unwrap_err().raw_os_error(), Some(libc::EEXIST));
        placement.replace = true;
        lay(&placement).unwrap();
        assert_eq!(std::fs::read(&dest).unwrap(), b"content");
        placement.per_node = true;
        lay(&placement).unwrap();
        assert_eq!(std::fs::read(folder.join("dest_n1")).unwrap(), b"content");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3, "nothing is left over");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
