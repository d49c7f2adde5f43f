//! Locks a state directory for one controller, and marks it as one cluster's.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use squall_files::place::Place;
use squall_files::{durable, lock};
use squall_model::journal::{FORMAT, Problem};

use super::error::JournalError;

/// First words of the file `DIR/cluster`.
const TITLE: &str = "squall state, format ";

/// The lock of a state directory; held until this is dropped or the process ends.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
}

impl StateLock {
    /// Takes the lock. Err: another controller has it.
    pub fn take(place: &Place) -> Result<Self, JournalError> {
        let path = place.lock();
        let file = std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(JournalError::io("open", &path))?;
        match lock::lock(&file) {
            Ok(()) => Ok(Self { _file: file }),
            Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => Err(JournalError::Locked { path }),
            Err(e) => Err(JournalError::io("lock", &path)(e)),
        }
    }

    /// Marks the locked directory as the cluster's. Err: it is marked for another cluster.
    pub fn mark(&self, place: &Place, cluster: &str) -> Result<(), JournalError> {
        mark(&place.mark(), cluster)
    }
}

fn mark(path: &Path, cluster: &str) -> Result<(), JournalError> {
    let mut text = String::new();
    match File::open(path) {
        Ok(mut file) => file.read_to_string(&mut text).map_err(JournalError::io("read", path))?,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return write_mark(path, cluster),
        Err(e) => return Err(JournalError::io("open", path)(e)),
    };
    let mut lines = text.lines();
    let format = lines.next().and_then(|l| l.strip_prefix(TITLE)).and_then(|n| n.parse::<u32>().ok());
    let problem = match format {
        Some(format) if format != FORMAT => Problem::Format(format),
        Some(_) => match lines.next() {
            Some(theirs) if theirs == cluster => return Ok(()),
            Some(theirs) => {
                let (path, theirs, ours) = (path.to_owned(), theirs.to_owned(), cluster.to_owned());
                return Err(JournalError::OtherCluster { path, theirs, ours });
            }
            None => Problem::Header,
        },
        None => Problem::Header,
    };
    Err(JournalError::Damaged { path: path.to_owned(), offset: 0, what: "the cluster's name".into(), problem })
}

fn write_mark(path: &Path, cluster: &str) -> Result<(), JournalError> {
    let text = format!("{TITLE}{FORMAT}\n{cluster}\n");
    durable::write(path, text.as_bytes(), 0o600).map_err(JournalError::io("write", path))
}

#[cfg(test)]
mod tests {
    use super::super::tests::Folder;
    use super::{JournalError, Place, StateLock};

    #[test]
    fn one_controller_one_cluster() {
        let dir = Folder::new();
        let place = Place::at(dir.path()).unwrap();
        let lock = StateLock::take(&place).unwrap();
        lock.mark(&place, "alpha").unwrap();
        assert!(matches!(StateLock::take(&place), Err(JournalError::Locked { .. })));
        drop(lock);
        let lock = StateLock::take(&place).unwrap();
        let other = lock.mark(&place, "beta").unwrap_err();
        assert!(other.to_string().contains("belongs to cluster `alpha`"), "{other}");
        lock.mark(&place, "alpha").unwrap();
        std::fs::write(place.mark(), "squall state, format 99\nalpha\n").unwrap();
        let newer = lock.mark(&place, "alpha").unwrap_err();
        assert!(newer.to_string().contains("newer version"), "{newer}");
        let old = "squall state, format 1\nalpha\n";
        std::fs::write(place.mark(), old).unwrap();
        let older = lock.mark(&place, "alpha").unwrap_err().to_string();
        assert!(older.starts_with(&place.mark().display().to_string()) && older.contains("format 1,"), "{older}");
        assert!(older.contains("before release 0.2.0") && older.contains("--state"), "{older}");
        assert_eq!(std::fs::read_to_string(place.mark()).unwrap(), old);
    }
}
