//! Users and groups from the machine's name services.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;

/// A user's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Id of the login group.
    pub gid: u32,
    /// Home folder.
    pub home: String,
    /// Login shell.
    pub shell: String,
}

/// Size of the largest buffer for an entry, bytes.
const ENTRY_BYTES_MAX: usize = 1 << 20;
/// Largest number of groups of one user.
const GROUPS_MAX: usize = 1 << 16;

/// Returns the user with that id; None: there is none.
pub fn by_uid(uid: u32) -> Option<User> {
    lookup(|entry, buffer, found| {
        // SAFETY: all pointers are valid for the call and the length is the buffer's.
        unsafe { libc::getpwuid_r(uid, entry, buffer.as_mut_ptr(), buffer.len(), found) }
    })
}

/// Returns the user of that name; None: there is none.
pub fn by_name(name: &str) -> Option<User> {
    let name = CString::new(name).ok()?;
    lookup(|entry, buffer, found| {
        // SAFETY: all pointers are valid for the call, the name ends with NUL and the length is the buffer's.
        unsafe { libc::getpwnam_r(name.as_ptr(), entry, buffer.as_mut_ptr(), buffer.len(), found) }
    })
}

/// Returns whether the process's effective user is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the id of the group of that name; None: there is none.
pub fn group_id(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    with_buffer(|buffer| {
        let mut entry = MaybeUninit::<libc::group>::zeroed();
        let mut found = std::ptr::null_mut();
        let (text, length) = (buffer.as_mut_ptr(), buffer.len());
        // SAFETY: all pointers are valid for the call, the name ends with NUL and the length is the buffer's.
        let code = unsafe { libc::getgrnam_r(name.as_ptr(), entry.as_mut_ptr(), text, length, &raw mut found) };
        if code != 0 || found.is_null() {
            return Err(code);
        }
        // SAFETY: the call succeeded, so the entry is filled.
        Ok(unsafe { entry.assume_init() }.gr_gid)
    })
}

/// Returns the name of a group; None: it has none.
pub fn group_name(gid: u32) -> Option<String> {
    with_buffer(|buffer| {
        let mut entry = MaybeUninit::<libc::group>::zeroed();
        let mut found = std::ptr::null_mut();
        // SAFETY: all pointers are valid for the call and the length is the buffer's.
        let code =
            unsafe { libc::getgrgid_r(gid, entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut found) };
        if code != 0 || found.is_null() {
            return Err(code);
        }
        // SAFETY: the call succeeded, so the entry is filled and its strings live in `buffer`.
        Ok(text(unsafe { entry.assume_init() }.gr_name))
    })
}

/// Returns the ids of all groups of a user, ascending, including `gid`; only `gid` if there are too many to read.
pub fn groups(name: &str, gid: u32) -> Vec<u32> {
    let Ok(name) = CString::new(name) else { return vec![gid] };
    let mut groups = vec![0; 64];
    loop {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: the name ends with NUL; at most `count` ids are written to `groups`, which has that many.
        let code = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        let count = usize::try_from(count).unwrap_or(0);
        if code >= 0 {
            groups.truncate(count);
            groups.sort_unstable();
            groups.dedup();
            return groups;
        }
        let more = count.max(groups.len() * 2);
        if more > GROUPS_MAX {
            return vec![gid];
        }
        groups.resize(more, 0);
    }
}

fn lookup(
    mut call: impl FnMut(*mut libc::passwd, &mut [libc::c_char], *mut *mut libc::passwd) -> libc::c_int,
) -> Option<User> {
    with_buffer(|buffer| {
        let mut entry = MaybeUninit::<libc::passwd>::zeroed();
        let mut found = std::ptr::null_mut();
        let code = call(entry.as_mut_ptr(), buffer, &raw mut found);
        if code != 0 || found.is_null() {
            return Err(code);
        }
        // SAFETY: the call succeeded, so the entry is filled and its strings live in `buffer`.
        let entry = unsafe { entry.assume_init() };
        Ok(User {
            name: text(entry.pw_name),
            uid: entry.pw_uid,
            gid: entry.pw_gid,
            home: text(entry.pw_dir),
            shell: text(entry.pw_shell),
        })
    })
}

/// Repeats `call` with larger and larger buffers until the entry fits. None: no entry, or too large.
fn with_buffer<T>(mut call: impl FnMut(&mut [libc::c_char]) -> Result<T, libc::c_int>) -> Option<T> {
    let mut size = 4096;
    while size <= ENTRY_BYTES_MAX {
        match call(&mut vec![0; size]) {
            Ok(value) => return Some(value),
            Err(libc::ERANGE) => size *= 4,
            Err(_) => return None,
        }
    }
    None
}

fn text(pointer: *const libc::c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: name services give strings that end with NUL, in a buffer that outlives this call.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::{by_name, by_uid, group_name, groups};

    #[test]
    fn root_is_known_and_nobody_else_is_invented() {
        let root = by_uid(0).unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(by_name(&root.name).unwrap(), root);
        assert!(groups(&root.name, 0).contains(&0));
        assert!(group_name(0).is_some());
        assert_eq!(by_uid(3_999_999_999), None);
        assert_eq!(by_name("no such user \0"), None);
        assert_eq!(groups("nobody-of-that-name", 7), [7]);
    }
}
