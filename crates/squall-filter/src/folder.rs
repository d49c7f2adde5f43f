//! The folder of a script: the only one from which it reads files, whatever links in it say.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};
use squall_model::encoding::ByteBuf;

/// Longest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A folder, open, with the files that were loaded from it.
pub(crate) struct Folder {
    path: String,
    /// None: it could not be opened, and has only the files that are given.
    open: Option<OwnedFd>,
    /// Files as they were loaded before, which go before those of the folder.
    given: BTreeMap<String, ByteBuf>,
    /// Files that were loaded since.
    loaded: RefCell<BTreeMap<String, ByteBuf>>,
}

impl Folder {
    /// Opens a folder; files that are given need not be in it.
    pub(crate) fn open(path: &str, given: Vec<(String, ByteBuf)>) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = match open(path, flags, Mode::empty()) {
            Ok(open) => Some(open),
            Err(_) if !given.is_empty() => None,
            Err(e) => return Err(e.into()),
        };
        let path = path.trim_end_matches('/').to_owned();
        Ok(Self { path, open, given: given.into_iter().collect(), loaded: RefCell::default() })
    }

    /// Opens a file for reading, by its name in the folder or by its whole path.
    pub(crate) fn file(&self, name: &str) -> io::Result<File> {
        let below = name.strip_prefix(&self.path).and_then(|below| below.strip_prefix('/')).unwrap_or(name);
        let Some(folder) = &self.open else { return Err(io::ErrorKind::NotFound.into()) };
        // NONBLOCK: a FIFO delays nothing.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let file = openat2(folder, below.trim_start_matches("./"), flags, Mode::empty(), resolve);
        let file = file.map_err(|e| match e {
            rustix::io::Errno::XDEV => io::Error::other("files are read below the script's folder only"),
            e => e.into(),
        })?;
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("it is no file"));
        }
        Ok(file.into())
    }

    /// Returns the content of a file of the script, by its name in the folder or by its whole path.
    pub(crate) fn load(&self, name: &str) -> io::Result<ByteBuf> {
        let known = self.given.get(name).cloned().or_else(|| self.loaded.borrow().get(name).cloned());
        if let Some(content) = known {
            return Ok(content);
        }
        let mut content = Vec::new();
        self.file(name)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut content)?;
        if content.len() as u64 > FILE_BYTES_MAX {
            return Err(io::Error::other(format!("it is longer than {FILE_BYTES_MAX} bytes")));
        }
        let content = ByteBuf::from(content);
        self.loaded.borrow_mut().insert(name.to_owned(), content.clone());
        Ok(content)
    }

    /// Returns all files that were loaded.
    pub(crate) fn loaded(&self) -> Vec<(String, ByteBuf)> {
        let mut all = self.given.clone();
        all.extend(self.loaded.borrow().clone());
        all.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::Folder;

    #[test]
    fn files_are_read_below_the_folder_only() {
        let dir = std::env::temp_dir().join(format!("squall-filter-{}", std::process::id()));
        fs::create_dir_all(dir.join("rules/sub")).expect("a folder can be made");
        fs::write(dir.join("secret"), "secret").expect("a file can be written");
        fs::write(dir.join("rules/sub/a.lua"), "return 1").expect("a file can be written");
        symlink(dir.join("secret"), dir.join("rules/absolute")).expect("a link can be made");
        symlink("../secret", dir.join("rules/above")).expect("a link can be made");
        symlink("sub/a.lua", dir.join("rules/inside")).expect("a link can be made");
        let path = dir.join("rules").display().to_string();
        let folder = Folder::open(&path, Vec::new()).expect("it is there");
        for name in ["sub/a.lua", "./sub/a.lua", "inside", &format!("{path}/sub/a.lua")] {
            assert_eq!(folder.load(name).map(|content| content.to_vec()).ok(), Some(b"return 1".to_vec()), "{name}");
        }
        for name in ["../secret", "absolute", "above", "/etc/passwd", "sub", "/proc/self/environ", "none"] {
            assert!(folder.load(name).is_err(), "{name}");
        }
        let given = Folder::open("/nowhere", folder.loaded()).expect("what is given needs no folder");
        assert!(given.load("sub/a.lua").is_ok() && given.load("sub/b.lua").is_err());
        fs::remove_dir_all(&dir).expect("it can be removed");
    }
}
