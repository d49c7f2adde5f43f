//! The list of a backup's files, with their digests.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// First line of a manifest, with the format's version.
const TITLE: &str = "squall backup, format 1";

/// What a backup has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Name of the cluster.
    pub cluster: String,
    /// Version of squall that made the backup.
    pub release: String,
    /// When the backup was begun, seconds since 1970.
    pub time_s: u64,
    /// Number of the last record of the journal; 0: there is none.
    pub record: u64,
    /// Whether the controller was stopped. Otherwise it may have gone on.
    pub stopped: bool,
    /// Digest (BLAKE3, hexadecimal) and length in bytes of each file, by name.
    pub files: BTreeMap<String, (String, u64)>,
}

impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, release, time_s, record, stopped, files } = self;
        writeln!(
            f,
            "{TITLE}\ncluster {cluster}\nrelease {release}\ntime {time_s}\nrecord {record}\nstopped {stopped}"
        )?;
        let mut lines = String::new();
        for (name, (digest, length)) in files {
            writeln!(lines, "{digest} {length} {name}")?;
        }
        f.write_str(&lines)
    }
}

impl Manifest {
    /// Parses a manifest. None: it is of another version, or damaged.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        if lines.next()? != TITLE {
            return None;
        }
        let mut value = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ');
        let (cluster, release) = (value("cluster")?.to_owned(), value("release")?.to_owned());
        let (time_s, record) = (value("time")?.parse().ok()?, value("record")?.parse().ok()?);
        let stopped = value("stopped")?.parse().ok()?;
        let mut files = BTreeMap::new();
        for line in lines {
            let mut words = line.splitn(3, ' ');
            let (digest, length) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
            files.insert(words.next()?.to_owned(), (digest, length));
        }
        Some(Self { cluster, release, time_s, record, stopped, files })
    }
}
