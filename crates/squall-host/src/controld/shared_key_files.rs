//! The files of `keys/` that all controllers have: keys and addresses of nodes and login hosts, invitations, revoked
//! tokens. Whichever controller changes one, the others get it by etcd. Private keys, which stand in `keys/` itself and not
//! in a folder of it, never leave the machine in this way.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use squall_files::durable;
use squall_model::job::{Checksum, Digest};
use squall_model::replica::TrustFile;
use tracing::warn;

/// Permission bits of the files: only the controller's user reads them.
const MODE: u32 = 0o600;
/// A folder that was changed so recently is read again, as a further change may bear the same time.
const RECENT: Duration = Duration::from_secs(1);

/// The shared files, as this controller knows them.
#[derive(Debug)]
pub(super) struct SharedKeyFiles {
    folder: PathBuf,
    /// Content of each file, by its path below `folder`.
    known: BTreeMap<String, Vec<u8>>,
    /// Times of the folders' last changes, as far as they are settled.
    looked: BTreeMap<String, SystemTime>,
    /// Whether the files in etcd are known.
    met: bool,
}

impl SharedKeyFiles {
    /// Makes the keyring of the folder `keys/`.
    pub(super) fn of(folder: PathBuf) -> Self {
        Self { folder, known: BTreeMap::new(), looked: BTreeMap::new(), met: false }
    }

    /// Whether the files in etcd are known.
    pub(super) fn has_met(&self) -> bool {
        self.met
    }

    /// Returns the digest of the shared files, as this controller knows them.
    pub(super) fn digest(&self) -> Digest {
        digest(&self.known)
    }

    /// Returns the files that were changed here since the last call. None: the files in etcd are not known yet,
    /// or those here can't be read.
    pub(super) fn changed(&mut self) -> Option<Vec<(String, TrustFile)>> {
        if !self.met {
            return None;
        }
        let changed = self.look().inspect_err(|e| {
            warn!(folder = %self.folder.display(), error = %e, "the keys can't be read: other controllers don't get what was changed");
        });
        changed.ok()
    }

    /// Takes the files in etcd, all of them; writes those that another controller has changed. Returns those that were
    /// changed here, or that etcd has never had.
    pub(super) fn take(&mut self, files: Vec<(String, TrustFile)>) -> io::Result<Vec<(String, TrustFile)>> {
        let first = !std::mem::replace(&mut self.met, true);
        let mut own = self.look()?;
        if first {
            // What is in etcd is newer than what stands here, as this controller may have been away.
            own.retain(|(path, _)| !files.iter().any(|(other, _)| other == path));
        }
        for (path, file) in files {
            let changed_here = own.iter().any(|(other, _)| *other == path);
            if changed_here || self.known.get(&path) == file.content.as_ref() || !is_shared(&path) {
                continue;
            }
            let place = self.folder.join(&path);
            match file.content {
                Some(bytes) => {
                    if let Some(folder) = place.parent() {
                        make_folder(folder)?;
                    }
                    durable::write(&place, &bytes, MODE)?;
                    self.known.insert(path, bytes);
                }
                None => {
                    if self.known.remove(&path).is_some() {
                        durable::remove(&place)?;
                    }
                }
            }
        }
        Ok(own)
    }

    /// Reads the folders that were changed, and returns the files that were.
    fn look(&mut self) -> io::Result<Vec<(String, TrustFile)>> {
        let mut changed = Vec::new();
        for name in folders(&self.folder)? {
            let path = self.folder.join(&name);
            let at = fs::metadata(&path)?.modified()?;
            if self.looked.get(&name) == Some(&at) {
                continue;
            }
            if at.elapsed().is_ok_and(|since| since > RECENT) {
                self.looked.insert(name.clone(), at);
            }
            let found = content(&path, &name)?;
            let prefix = format!("{name}/");
            let gone: Vec<String> = self
                .known
                .keys()
                .filter(|path| path.starts_with(&prefix) && !found.contains_key(*path))
                .cloned()
                .collect();
            for path in gone {
                self.known.remove(&path);
                changed.push((path, TrustFile { content: None }));
            }
            for (path, bytes) in found {
                if self.known.get(&path) != Some(&bytes) {
                    self.known.insert(path.clone(), bytes.clone());
                    changed.push((path, TrustFile { content: Some(bytes) }));
                }
            }
        }
        Ok(changed)
    }
}

/// Returns the digest of the shared files that are in the folder `keys/` at this moment.
pub(super) fn digest_of(keys: &Path) -> io::Result<Digest> {
    let mut all = BTreeMap::new();
    for name in folders(keys)? {
        all.append(&mut content(&keys.join(&name), &name)?);
    }
    Ok(digest(&all))
}

fn digest(files: &BTreeMap<String, Vec<u8>>) -> Digest {
    let mut hash = Checksum::default();
    for (path, bytes) in files {
        for part in [path.as_bytes(), bytes] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    hash.digest()
}

/// Whether a path is that of a file in a folder of `keys/`. What comes from etcd may say anything.
fn is_shared(path: &str) -> bool {
    path.split_once('/').is_some_and(|(folder, name)| is_folder(folder) && is_file(name))
}

fn is_folder(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

fn is_file(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0'])
}

fn folders(folder: &Path) -> io::Result<Vec<String>> {
    Ok(names(folder)?.into_iter().filter(|name| is_folder(name) && folder.join(name).is_dir()).collect())
}

/// Returns the files of the folder `name` at `path`, by their paths below `keys/`.
fn content(path: &Path, name: &str) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for file in names(path)?.into_iter().filter(|file| is_file(file)) {
        match fs::read(path.join(&file)) {
            Ok(bytes) => drop(found.insert(format!("{name}/{file}"), bytes)),
            // It was removed meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(found)
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect(),
    }
}

fn make_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{SharedKeyFiles, TrustFile, digest_of};

    fn file(content: Option<&str>) -> TrustFile {
        TrustFile { content: content.map(|text| text.as_bytes().to_vec()) }
    }

    fn paths(files: &[(String, TrustFile)]) -> Vec<&str> {
        files.iter().map(|(path, _)| path.as_str()).collect()
    }

    #[test]
    fn what_one_controller_changes_the_others_get() {
        let dir = std::env::temp_dir().join(format!("squall-keyring-{}", std::process::id()));
        fs::create_dir_all(dir.join("nodes")).unwrap();
        fs::write(dir.join("controller"), "private").unwrap();
        fs::write(dir.join("jwt_hs256.key"), "private, too").unwrap();
        fs::write(dir.join("nodes/n1"), "key 1").unwrap();
        fs::write(dir.join("nodes/n2"), "an old key").unwrap();
        let mut keyring = SharedKeyFiles::of(dir.clone());
        assert!(keyring.changed().is_none(), "etcd comes first");
        // At the start: what etcd has is newer, and it gets what it never had.
        let etcd = vec![("nodes/n2".into(), file(Some("key 2"))), ("tokens/ab12".into(), file(None))];
        assert_eq!(paths(&keyring.take(etcd).unwrap()), ["nodes/n1"]);
        assert_eq!(fs::read_to_string(dir.join("nodes/n2")).unwrap(), "key 2");
        assert!(keyring.changed().unwrap().is_empty(), "what came from etcd is not passed back");
        let before = keyring.digest();
        // A change here.
        fs::write(dir.join("nodes/n3"), "key 3").unwrap();
        fs::remove_file(dir.join("nodes/n1")).unwrap();
        let changed = [("nodes/n1".into(), file(None)), ("nodes/n3".into(), file(Some("key 3")))];
        assert_eq!(keyring.changed().unwrap(), changed);
        assert_ne!(keyring.digest(), before);
        assert_eq!(keyring.digest(), digest_of(&dir).unwrap());
        // Changes elsewhere.
        let etcd = vec![
            ("nodes/n2".into(), file(None)),
            ("logins/l1".into(), file(Some("key 4"))),
            ("controller".into(), file(Some("mine"))),
            ("jwt_hs256.key".into(), file(Some("mine"))),
            ("nodes/../controller".into(), file(Some("mine"))),
            ("../x".into(), file(Some("mine"))),
        ];
        assert!(keyring.take(etcd).unwrap().is_empty());
        assert!(!dir.join("nodes/n2").exists() && dir.join("logins/l1").exists());
        assert_eq!(fs::read_to_string(dir.join("controller")).unwrap(), "private");
        assert_eq!(fs::read_to_string(dir.join("jwt_hs256.key")).unwrap(), "private, too");
        fs::remove_dir_all(dir).unwrap();
    }
}
