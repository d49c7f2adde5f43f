//! Lets a thread use files as a user: for the kernel's checks of paths and permissions, and as owner of new files.
//!
//! Only the file system's user id is changed: if the whole thread belonged to the user, the user could kill it, and the
//! daemon with it. That id exists for servers in this position; setting it also drops root's rights over files. The
//! thread has none of root's other rights meanwhile either: the kernel keeps the rights of whoever opened a file with it,
//! and looks at them when the user's task writes to it.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::identity::Identity;

/// Runs `work` in the calling thread with the files of a user. Without root, the user has to be that of this process.
/// If root's own rights can't be restored the process aborts, as nothing it did afterwards would be right.
pub(crate) fn with_files_of<T>(identity: &Identity, work: impl FnOnce() -> T) -> io::Result<T> {
    if !rustix::process::geteuid().is_root() {
        return use_files_as(identity).map(|()| work());
    }
    let groups = rustix::process::getgroups()?.into_iter().map(rustix::process::Gid::as_raw).collect();
    let own = Identity { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw(), groups };
    if own == *identity {
        return Ok(work());
    }
    let rights = capabilities(None)?;
    let done = use_files_as(identity).map(|()| work());
    if set_capabilities(None, rights).is_err() || switch(&own).is_err() {
        std::process::abort();
    }
    done
}

/// Makes the calling thread use files as a user, for good: it should end afterwards. Without root it only checks that
/// this process already is that user.
pub(crate) fn use_files_as(identity: &Identity) -> io::Result<()> {
    let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
    if !rustix::process::geteuid().is_root() {
        return if rustix::process::geteuid().as_raw() == identity.uid { Ok(()) } else { Err(denied()) };
    }
    switch(identity)?;
    let rights = capabilities(None)?;
    Ok(set_capabilities(None, CapabilitySets { effective: CapabilitySet::empty(), ..rights })?)
}

fn switch(identity: &Identity) -> io::Result<()> {
    // libc's own setgroups would change all threads.
    // SAFETY: pointer and length are of one slice, which the kernel only reads.
    if unsafe { libc::syscall(libc::SYS_setgroups, identity.groups.len(), identity.groups.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: these take an integer and change this thread only; -1 changes nothing. They return what was before.
    let (gid, uid) = unsafe {
        libc::setfsgid(identity.gid);
        libc::setfsuid(identity.uid);
        (libc::setfsgid(u32::MAX), libc::setfsuid(u32::MAX))
    };
    let done = (uid as u32, gid as u32) == (identity.uid, identity.gid);
    if done { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::{Identity, use_files_as, with_files_of};

    #[test]
    fn what_the_thread_makes_is_the_users_and_what_is_roots_is_not_touched() {
        let folder = std::env::temp_dir().join(format!("squall-fsuser-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let root = rustix::process::geteuid().is_root();
        let me = if root { 4321 } else { rustix::process::geteuid().as_raw() };
        let identity = Identity { uid: me, gid: 4321, groups: vec![4321] };
        if root {
            std::os::unix::fs::chown(&folder, Some(me), None).unwrap();
            std::fs::write(folder.join("roots"), "x").unwrap();
            std::fs::set_permissions(folder.join("roots"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
                .unwrap();
        }
        let inside = folder.clone();
        std::thread::spawn(move || {
            let rights = || rustix::thread::capabilities(None).unwrap().effective;
            let before = rights();
            let write = || {
                std::fs::write(inside.join("once"), "x").unwrap();
                rights()
            };
            let meanwhile = with_files_of(&identity, write).unwrap();
            assert!(!root || meanwhile.is_empty(), "{meanwhile:?}");
            assert_eq!(rights(), before, "root's rights are back");
            assert!(!root || std::fs::read(inside.join("roots")).is_ok());
            use_files_as(&identity).unwrap();
            std::fs::write(inside.join("own"), "x").unwrap();
            assert!(!root || std::fs::read(inside.join("roots")).is_err());
        })
        .join()
        .unwrap();
        assert_eq!(["own", "once"].map(|name| std::fs::metadata(folder.join(name)).unwrap().uid()), [me; 2]);
        assert!(!root || std::fs::read(folder.join("roots")).is_ok(), "other threads are as before");
        assert!(root || use_files_as(&Identity { uid: me + 1, gid: 1, groups: Vec::new() }).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
