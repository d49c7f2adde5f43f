//! Writes small files that a crash or a power cut never leaves half written: the old content, or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Replaces the content of a file, durably. Readers see the old content or the new one, never a part. Several
/// processes may do so at once: the last one wins. `mode` is that of a new file, as in 0o644.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let draft = draft(path, bytes, mode)?;
    let renamed = fs::rename(&draft, path);
    if renamed.is_err() {
        drop(fs::remove_file(&draft));
    }
    renamed?;
    sync_folder(path)
}

/// Creates a file, durably. Err of kind `AlreadyExists`: the file exists.
pub fn create(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let draft = draft(path, bytes, mode)?;
    let linked = fs::hard_link(&draft, path);
    fs::remove_file(draft)?;
    linked?;
    sync_folder(path)
}

/// Removes a file, durably. A missing file is no error.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| sync_folder(path)),
    }
}

/// Flushes the folder of a file, so that the file's name is durable.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder(path))?.sync_all()
}

/// Writes and flushes the content to a temporary file in the same folder; returns its path.
fn draft(path: &Path, bytes: &[u8], mode: u32) -> io::Result<PathBuf> {
    static DRAFTS: AtomicU32 = AtomicU32::new(0);
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = folder(path).join(format!(".{name}.{}-{number}.tmp", std::process::id()));
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(mode).open(&draft)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if written.is_err() {
        drop(fs::remove_file(&draft));
    }
    written.map(|()| draft)
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{create, write};

    // faults.md A7: all of several concurrent writers succeed, and no temporary file is left.
    #[test]
    fn a7_many_writers_at_once_leave_one_whole_file() {
        let dir = std::env::temp_dir().join(format!("squall-durable-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("squall.toml");
        std::thread::scope(|scope| {
            for writer in 0..8_u8 {
                let path = &path;
                scope.spawn(move || (0..20).for_each(|_| write(path, &vec![b'a' + writer; 5000], 0o644).unwrap()));
            }
        });
        let found = fs::read(&path).unwrap();
        assert!(found.len() == 5000 && found.iter().all(|byte| *byte == found[0]));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        assert_eq!(create(&path, b"x", 0o644).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        fs::remove_dir_all(&dir).unwrap();
    }
}
