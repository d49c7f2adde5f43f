//! Files that a node caches for jobs, in `content/UID/DIGEST` of its folder; incomplete ones are under
//! `content/shadow/`.
//!
//! Nodes on one machine, which have the state folder in common, may share a copy: a file that one node has is linked to
//! `DIR/content/UID/DIGEST`, where the others find it. The node that holds the lock on the file's claim there receives
//! it for all of them.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use squall_engine::node::{ContentAct, NodeInput};
use squall_files::place::Place;
use squall_model::job::{Checksum, Digest};
use squall_model::limits::CONTENT_BYTES_MAX;
use squall_model::wire::fabric::{Bytes, ContentId, Holding};

/// Name of the folder of files that are not complete.
const SHADOW: &str = "shadow";
/// Name of the folder of the claims: lock files, one for each file being received for several nodes.
const CLAIMS: &str = "claims";

/// The cached files of one node, complete and incomplete.
#[derive(Debug)]
pub(crate) struct Keeping {
    own: PathBuf,
    common: PathBuf,
    shadows: BTreeMap<ContentId, Shadow>,
    kept: BTreeMap<ContentId, CachedFile>,
    bytes: u64,
    bytes_max: u64,
}

#[derive(Debug)]
struct CachedFile {
    size: u64,
    used: SystemTime,
}

/// State of a file that is being received.
#[derive(Debug)]
struct Shadow {
    file: File,
    size: u64,
    come: u64,
    checksum: Checksum,
    /// The locked claim file, if this node receives the file for other nodes of this machine too. None: it receives the
    /// file for itself only.
    claim: Option<File>,
}

impl Keeping {
    /// Opens the cache of node `name`. Files left incomplete by an earlier incarnation are removed.
    pub(crate) fn open(place: &Place, name: &str) -> io::Result<Self> {
        let (own, common) = (place.content_of(name), place.content());
        for folder in [&own, &common, &common.join(CLAIMS)] {
            make(folder)?;
        }
        match fs::remove_dir_all(own.join(SHADOW)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => make(&own.join(SHADOW))?,
        }
        let (shadows, kept) = (BTreeMap::new(), BTreeMap::new());
        let mut keeping = Self { own, common, shadows, kept, bytes: 0, bytes_max: CONTENT_BYTES_MAX };
        keeping.find()?;
        Ok(keeping)
    }

    fn find(&mut self) -> io::Result<()> {
        for user in fs::read_dir(&self.own)? {
            let user = user?;
            let Some(owner) = user.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            for file in fs::read_dir(user.path())? {
                let file = file?;
                let Some(digest) = file.file_name().to_str().and_then(parse) else { continue };
                let meta = file.metadata()?;
                self.keep(ContentId { owner, digest }, meta.len(), meta.modified()?);
            }
        }
        Ok(())
    }

    /// Returns the reports of all cached files, for the node's state machine at its start.
    pub(crate) fn found(&self) -> Vec<NodeInput> {
        self.kept.keys().map(|&content| NodeInput::Content { content, holding: Holding::Has }).collect()
    }

    /// Returns the node's folder of cached files.
    pub(crate) fn folder(&self) -> &Path {
        &self.own
    }

    /// Returns the path of a complete file.
    fn path(&self, content: ContentId) -> PathBuf {
        path(&self.own, content)
    }

    /// Carries out an act of the node's state machine on a cached file, except `Place`; returns the resulting inputs of
    /// the state machine.
    pub(crate) fn act(&mut self, act: ContentAct) -> Vec<NodeInput> {
        let mut inputs = Vec::new();
        let (content, result) = match act {
            ContentAct::Expect { content, size, shared } => (content, self.expect(content, size, shared, &mut inputs)),
            ContentAct::Append { content, bytes } => match self.append(content, &bytes) {
                Ok(kept) => {
                    inputs.extend(kept.map(|bytes| NodeInput::Kept { content, bytes }));
                    return inputs;
                }
                Err(e) => (content, Err(e)),
            },
            ContentAct::Finish { content } => (content, self.finish(content)),
            ContentAct::Commit { content } => (content, self.commit(content)),
            ContentAct::Abort { content } => {
                self.drop_shadow(content);
                return inputs;
            }
            ContentAct::Place(_) | ContentAct::Hear { .. } => return inputs,
        };
        let holding = result.unwrap_or_else(|e| {
            self.drop_shadow(content);
            Holding::Failed(e.raw_os_error().unwrap_or(libc::EIO))
        });
        inputs.push(NodeInput::Content { content, holding });
        inputs
    }

    fn expect(
        &mut self,
        content: ContentId,
        size: u64,
        shared: bool,
        inputs: &mut Vec<NodeInput>,
    ) -> io::Result<Holding> {
        if let Some(kept) = self.kept.get_mut(&content) {
            kept.used = SystemTime::now();
            if self.path(content).exists() {
                return Ok(Holding::Has);
            }
            self.forget(content);
        }
        self.drop_shadow(content);
        if shared && self.take_common(content)? {
            return Ok(Holding::Has);
        }
        let claim = if shared { self.claim(content)? } else { None };
        if shared && claim.is_none() {
            return Ok(Holding::Neighbour);
        }
        // The node that held the claim before may have completed the file.
        if shared && self.take_common(content)? {
            self.release(content, claim.as_ref());
            return Ok(Holding::Has);
        }
        self.make_room(size, inputs);
        let path = self.shadow(content);
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let shadow = Shadow { file, size, come: 0, checksum: Checksum::default(), claim };
        let shadow = self.shadows.entry(content).or_insert(shadow);
        if size > 0 {
            match fallocate(&shadow.file, FallocateFlags::empty(), 0, size) {
                Err(e) if e != rustix::io::Errno::OPNOTSUPP => return Err(e.into()),
                _ => {}
            }
        }
        Ok(Holding::Open)
    }

    /// Appends a piece to an incomplete file; returns the bytes received so far. None: this file is not being received.
    fn append(&mut self, content: ContentId, bytes: &Bytes) -> io::Result<Option<u64>> {
        let Some(shadow) = self.shadows.get_mut(&content) else { return Ok(None) };
        shadow.file.write_all(&bytes.0)?;
        shadow.checksum.update(&bytes.0);
        shadow.come += bytes.0.len() as u64;
        Ok(Some(shadow.come))
    }

    fn finish(&mut self, content: ContentId) -> io::Result<Holding> {
        let shadow = self.shadows.get(&content).ok_or(io::ErrorKind::NotFound)?;
        if shadow.come != shadow.size || shadow.checksum.digest() != content.digest {
            return Err(io::Error::from_raw_os_error(libc::EBADMSG));
        }
        if rustix::process::geteuid().is_root() {
            fchown(&shadow.file, Some(content.owner), None)?;
        }
        shadow.file.set_permissions(fs::Permissions::from_mode(0o500))?;
        Ok(Holding::Shadow)
    }

    fn commit(&mut self, content: ContentId) -> io::Result<Holding> {
        let shadow = self.shadows.remove(&content).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
        let path = self.path(content);
        make(path.parent().unwrap_or(&self.own))?;
        fs::rename(self.shadow(content), &path)?;
        self.keep(content, shadow.size, SystemTime::now());
        if shadow.claim.is_some() {
            let common = path_in(&self.common, content)?;
            match fs::hard_link(&path, common) {
                Err(e) if !matches!(e.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::CrossesDevices) => {
                    return Err(e);
                }
                _ => {}
            }
            self.release(content, shadow.claim.as_ref());
        }
        Ok(Holding::Has)
    }

    /// Links a complete copy, which another node of this machine has shared, into the node's folder. False: there is no
    /// such copy.
    fn take_common(&mut self, content: ContentId) -> io::Result<bool> {
        let own = path_in(&self.own, content)?;
        match fs::hard_link(path(&self.common, content), &own) {
            // A node with its folder on another file system keeps copies of its own.
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::CrossesDevices) => Ok(false),
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => {
                self.keep(content, fs::metadata(&own)?.len(), SystemTime::now());
                Ok(true)
            }
        }
    }

    /// Takes the lock to receive a file for all nodes of this machine. None: another process holds it.
    fn claim(&self, content: ContentId) -> io::Result<Option<File>> {
        let path = self.claim_path(content);
        loop {
            let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                other => other?,
            }
            // The previous holder removes the file before it releases the lock.
            if fs::metadata(&path).is_ok_and(|now| file.metadata().is_ok_and(|own| own.ino() == now.ino())) {
                return Ok(Some(file));
            }
        }
    }

    fn release(&self, content: ContentId, claim: Option<&File>) {
        if claim.is_some() {
            // A claim file without a lock on it binds nothing, so it may remain.
            drop(fs::remove_file(self.claim_path(content)));
        }
    }

    fn drop_shadow(&mut self, content: ContentId) {
        if let Some(shadow) = self.shadows.remove(&content) {
            drop(fs::remove_file(self.shadow(content)));
            self.release(content, shadow.claim.as_ref());
        }
    }

    fn keep(&mut self, content: ContentId, size: u64, used: SystemTime) {
        if self.kept.insert(content, CachedFile { size, used }).is_none() {
            self.bytes += size;
        }
    }

    fn forget(&mut self, content: ContentId) {
        if let Some(kept) = self.kept.remove(&content) {
            self.bytes -= kept.size;
        }
    }

    /// Removes the least recently used files until `size` bytes fit. Each removal is added to `inputs`.
    fn make_room(&mut self, size: u64, inputs: &mut Vec<NodeInput>) {
        while self.bytes + size > self.bytes_max {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(&content, _)| content);
            let Some(content) = oldest else { return };
            self.forget(content);
            drop(fs::remove_file(self.path(content)));
            let common = path(&self.common, content);
            if fs::metadata(&common).is_ok_and(|meta| meta.nlink() == 1) {
                drop(fs::remove_file(common));
            }
            inputs.push(NodeInput::Content { content, holding: Holding::Lacks });
        }
    }

    fn shadow(&self, content: ContentId) -> PathBuf {
        self.own.join(SHADOW).join(format!("{}.{}", content.owner, content.digest))
    }

    fn claim_path(&self, content: ContentId) -> PathBuf {
        self.common.join(CLAIMS).join(format!("{}.{}", content.owner, content.digest))
    }
}

/// Returns the path of a file below `folder`: `UID/DIGEST`.
pub(crate) fn path(folder: &Path, content: ContentId) -> PathBuf {
    folder.join(content.owner.to_string()).join(content.digest.to_string())
}

/// Like `path`, and makes the folder of the file's user.
fn path_in(folder: &Path, content: ContentId) -> io::Result<PathBuf> {
    let path = path(folder, content);
    make(path.parent().unwrap_or(folder))?;
    Ok(path)
}

/// Makes a folder with mode 0711: users can open their own files in it by name, but not list it.
fn make(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o711).create(folder)
}

fn parse(text: &str) -> Option<Digest> {
    let mut digest = [0; 32];
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, at) in digest.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(Digest(digest))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Bytes, ContentAct, ContentId, Digest, Holding, Keeping, NodeInput, Place, parse};

    fn place(name: &str) -> Place {
        let folder = std::env::temp_dir().join(format!("squall-content-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&folder));
        Place::at(&folder).unwrap()
    }

    fn id(bytes: &[u8]) -> ContentId {
        ContentId { owner: rustix::process::geteuid().as_raw(), digest: Digest::of(bytes) }
    }

    fn holding(inputs: &[NodeInput]) -> Holding {
        let Some(NodeInput::Content { holding, .. }) = inputs.last() else { panic!("{inputs:?}") };
        *holding
    }

    fn take_in(keeping: &mut Keeping, bytes: &[u8], shared: bool) -> Holding {
        let (content, size) = (id(bytes), bytes.len() as u64);
        let opened = holding(&keeping.act(ContentAct::Expect { content, size, shared }));
        if opened != Holding::Open {
            return opened;
        }
        let mut come = 0;
        for piece in bytes.chunks(3) {
            come += piece.len() as u64;
            let kept = NodeInput::Kept { content, bytes: come };
            assert_eq!(keeping.act(ContentAct::Append { content, bytes: Bytes(Arc::from(piece)) }), [kept]);
        }
        holding(&keeping.act(ContentAct::Finish { content }))
    }

    #[test]
    fn a_file_is_there_when_it_is_committed_and_after_a_restart() {
        let place = place("life");
        let content = id(b"0123456789");
        let mut keeping = Keeping::open(&place, "n1").unwrap();
        assert_eq!(take_in(&mut keeping, b"0123456789", false), Holding::Shadow);
        assert!(!keeping.path(content).exists());
        drop(keeping);
        let mut keeping = Keeping::open(&place, "n1").unwrap();
        assert_eq!(keeping.found(), []);
        assert_eq!(take_in(&mut keeping, b"0123456789", false), Holding::Shadow);
        assert_eq!(holding(&keeping.act(ContentAct::Commit { content })), Holding::Has);
        assert_eq!(std::fs::read(keeping.path(content)).unwrap(), b"0123456789");
        assert_eq!(holding(&Keeping::open(&place, "n1").unwrap().found()), Holding::Has);
        std::fs::remove_dir_all(place.dir()).unwrap();
    }

    #[test]
    fn other_bytes_than_the_digest_says_are_never_there() {
        let place = place("wrong");
        let mut keeping = Keeping::open(&place, "n1").unwrap();
        let content = id(b"right");
        keeping.act(ContentAct::Expect { content, size: 5, shared: false });
        keeping.act(ContentAct::Append { content, bytes: Bytes(Arc::from(&b"wrong"[..])) });
        assert_eq!(holding(&keeping.act(ContentAct::Finish { content })), Holding::Failed(libc::EBADMSG));
        assert!(matches!(holding(&keeping.act(ContentAct::Commit { content })), Holding::Failed(_)));
        assert!(!keeping.path(content).exists());
        std::fs::remove_dir_all(place.dir()).unwrap();
    }

    #[test]
    fn neighbours_share_one_copy() {
        use std::os::unix::fs::MetadataExt;
        let place = place("shared");
        let (content, bytes) = (id(b"shared"), b"shared");
        let mut all = ["n1", "n2", "n3"].map(|name| Keeping::open(&place, name).unwrap());
        let expect = ContentAct::Expect { content, size: 6, shared: true };
        assert_eq!(holding(&all[0].act(expect.clone())), Holding::Open);
        assert_eq!(holding(&all[1].act(expect.clone())), Holding::Neighbour);
        // The receiving node fails; another one takes over.
        all[0].act(ContentAct::Abort { content });
        assert_eq!(take_in(&mut all[1], bytes, true), Holding::Shadow);
        assert_eq!(holding(&all[2].act(expect.clone())), Holding::Neighbour);
        assert_eq!(holding(&all[1].act(ContentAct::Commit { content })), Holding::Has);
        for keeping in [0, 2] {
            assert_eq!(holding(&all[keeping].act(expect.clone())), Holding::Has);
        }
        let inodes = all.each_ref().map(|keeping| std::fs::metadata(keeping.path(content)).unwrap().ino());
        assert!(inodes.iter().all(|inode| *inode == inodes[0]));
        std::fs::remove_dir_all(place.dir()).unwrap();
    }

    #[test]
    fn what_was_not_used_for_longest_goes() {
        let place = place("room");
        let mut keeping = Keeping::open(&place, "n1").unwrap();
        keeping.bytes_max = 10;
        for bytes in [b"aaaa", b"bbbb"] {
            take_in(&mut keeping, bytes, false);
            keeping.act(ContentAct::Commit { content: id(bytes) });
        }
        keeping.act(ContentAct::Expect { content: id(b"aaaa"), size: 4, shared: false });
        let said = keeping.act(ContentAct::Expect { content: id(b"cccc"), size: 4, shared: false });
        assert_eq!(said[0], NodeInput::Content { content: id(b"bbbb"), holding: Holding::Lacks });
        assert!(keeping.path(id(b"aaaa")).exists() && !keeping.path(id(b"bbbb")).exists());
        assert_eq!(parse(&id(b"a").digest.to_string()), Some(id(b"a").digest));
        assert_eq!(parse("xyz"), None);
        std::fs::remove_dir_all(place.dir()).unwrap();
    }
}
