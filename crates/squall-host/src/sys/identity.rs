//! Drops root's rights for those of a user, for good; failure is never ignored.

use std::io;

/// User and groups to which a process switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// User id: real, effective and saved.
    pub(crate) uid: u32,
    /// Group id: real, effective and saved.
    pub(crate) gid: u32,
    /// All supplementary groups.
    pub(crate) groups: Vec<u32>,
}

/// Error of becoming the user. After it the process must not run any program of the user.
#[derive(Debug, thiserror::Error)]
#[error("cannot become user {uid}: {call}: {error}")]
pub(crate) struct DropError {
    /// The user id that the process should get.
    pub(crate) uid: u32,
    /// Name of the system call that failed.
    pub(crate) call: &'static str,
    /// The call's error.
    pub(crate) error: io::Error,
}

/// The system calls used to become a user, as a trait so that tests can let each of them fail.
trait Calls {
    fn setgroups(&mut self, groups: &[u32]) -> io::Result<()>;
    fn setresgid(&mut self, gid: u32) -> io::Result<()>;
    fn setresuid(&mut self, uid: u32) -> io::Result<()>;
    fn getresgid(&mut self) -> io::Result<[u32; 3]>;
    fn getresuid(&mut self) -> io::Result<[u32; 3]>;
    fn getgroups(&mut self) -> io::Result<Vec<u32>>;
    /// Tries to become root again, which must fail.
    fn regain(&mut self) -> io::Result<()>;
}

/// Becomes the user with these groups in all threads: sets groups, group and user, then verifies the result. Without
/// root it only verifies that this process already is that user.
pub(crate) fn become_user(identity: &Identity) -> Result<(), DropError> {
    if rustix::process::geteuid().is_root() {
        drop_to(&mut Kernel, identity)
    } else {
        verify(&mut Kernel, identity, false)
    }
}

fn drop_to(calls: &mut impl Calls, identity: &Identity) -> Result<(), DropError> {
    let failed = |call| move |error| DropError { uid: identity.uid, call, error };
    calls.setgroups(&identity.groups).map_err(failed("setgroups"))?;
    calls.setresgid(identity.gid).map_err(failed("setresgid"))?;
    calls.setresuid(identity.uid).map_err(failed("setresuid"))?;
    verify(calls, identity, true)
}

fn verify(calls: &mut impl Calls, identity: &Identity, groups: bool) -> Result<(), DropError> {
    let failed = |call| move |error| DropError { uid: identity.uid, call, error };
    let wrong = |call| DropError { uid: identity.uid, call, error: io::Error::other("it is not so") };
    if calls.getresuid().map_err(failed("getresuid"))? != [identity.uid; 3] {
        return Err(wrong("getresuid"));
    }
    if !groups {
        return Ok(());
    }
    if calls.getresgid().map_err(failed("getresgid"))? != [identity.gid; 3] {
        return Err(wrong("getresgid"));
    }
    let sorted = |mut groups: Vec<u32>| {
        groups.sort_unstable();
        groups.dedup();
        groups
    };
    if sorted(calls.getgroups().map_err(failed("getgroups"))?) != sorted(identity.groups.clone()) {
        return Err(wrong("getgroups"));
    }
    if identity.uid != 0 && calls.regain().is_ok() {
        return Err(wrong("setuid(0)"));
    }
    Ok(())
}

struct Kernel;

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Calls for Kernel {
    fn setgroups(&mut self, groups: &[u32]) -> io::Result<()> {
        // SAFETY: pointer and length are of one slice; libc applies the call to all threads.
        check(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })
    }
    fn setresgid(&mut self, gid: u32) -> io::Result<()> {
        // SAFETY: takes three integers.
        check(unsafe { libc::setresgid(gid, gid, gid) })
    }
    fn setresuid(&mut self, uid: u32) -> io::Result<()> {
        // SAFETY: takes three integers.
        check(unsafe { libc::setresuid(uid, uid, uid) })
    }
    fn getresgid(&mut self) -> io::Result<[u32; 3]> {
        let [mut real, mut effective, mut saved] = [u32::MAX; 3];
        // SAFETY: three valid pointers to integers.
        check(unsafe { libc::getresgid(&raw mut real, &raw mut effective, &raw mut saved) })?;
        Ok([real, effective, saved])
    }
    fn getresuid(&mut self) -> io::Result<[u32; 3]> {
        let [mut real, mut effective, mut saved] = [u32::MAX; 3];
        // SAFETY: three valid pointers to integers.
        check(unsafe { libc::getresuid(&raw mut real, &raw mut effective, &raw mut saved) })?;
        Ok([real, effective, saved])
    }
    fn getgroups(&mut self) -> io::Result<Vec<u32>> {
        Ok(rustix::process::getgroups()?.into_iter().map(rustix::process::Gid::as_raw).collect())
    }
    fn regain(&mut self) -> io::Result<()> {
        // SAFETY: takes an integer.
        check(unsafe { libc::setuid(0) })
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{Calls, Identity, become_user, drop_to};

    /// A kernel in which one call fails, or reports success without effect.
    struct Fake {
        uid: u32,
        gid: u32,
        groups: Vec<u32>,
        fails: &'static str,
        lies: bool,
        order: Vec<&'static str>,
    }

    impl Fake {
        fn new(fails: &'static str, lies: bool) -> Self {
            Self { uid: 0, gid: 0, groups: vec![0], fails, lies, order: Vec::new() }
        }
        /// Returns whether this simulated call takes effect; Err: it fails.
        fn call(&mut self, name: &'static str) -> io::Result<bool> {
            self.order.push(name);
            match name == self.fails {
                true if self.lies => Ok(false),
                true => Err(io::ErrorKind::PermissionDenied.into()),
                false => Ok(true),
            }
        }
    }

    impl Calls for Fake {
        fn setgroups(&mut self, groups: &[u32]) -> io::Result<()> {
            if self.call("setgroups")? {
                self.groups = groups.to_vec();
            }
            Ok(())
        }
        fn setresgid(&mut self, gid: u32) -> io::Result<()> {
            if self.call("setresgid")? {
                self.gid = gid;
            }
            Ok(())
        }
        fn setresuid(&mut self, uid: u32) -> io::Result<()> {
            if self.call("setresuid")? {
                self.uid = uid;
            }
            Ok(())
        }
        fn getresgid(&mut self) -> io::Result<[u32; 3]> {
            let right = self.call("getresgid")?;
            Ok([self.gid, self.gid, if right { self.gid } else { 0 }])
        }
        fn getresuid(&mut self) -> io::Result<[u32; 3]> {
            let right = self.call("getresuid")?;
            Ok([self.uid, self.uid, if right { self.uid } else { 0 }])
        }
        fn getgroups(&mut self) -> io::Result<Vec<u32>> {
            let right = self.call("getgroups")?;
            Ok(if right { self.groups.clone() } else { vec![0] })
        }
        fn regain(&mut self) -> io::Result<()> {
            match self.call("setuid(0)") {
                Ok(true) => Err(io::ErrorKind::PermissionDenied.into()),
                _ => Ok(()),
            }
        }
    }

    fn user() -> Identity {
        Identity { uid: 1000, gid: 100, groups: vec![100, 27, 4] }
    }

    #[test]
    fn groups_first_user_last_then_a_look() {
        let mut fake = Fake::new("", false);
        drop_to(&mut fake, &user()).unwrap();
        let expected = ["setgroups", "setresgid", "setresuid", "getresuid", "getresgid", "getgroups", "setuid(0)"];
        assert_eq!(fake.order, expected);
        assert_eq!((fake.uid, fake.gid, fake.groups), (1000, 100, vec![100, 27, 4]));
    }

    /// CVE-2019-19728: the result of becoming the user was ignored, and the task ran as root.
    #[test]
    fn cve_2019_19728_2012_3490_a_failed_call_stops_everything() {
        for call in ["setgroups", "setresgid", "setresuid", "getresuid", "getresgid", "getgroups", "setuid(0)"] {
            let error = drop_to(&mut Fake::new(call, false), &user()).unwrap_err();
            assert_eq!(error.call, call);
        }
    }

    /// CVE-2023-49938: a task ran with wrong groups.
    #[test]
    fn cve_2023_49938_a_call_without_effect_is_noticed() {
        for (call, seen_by) in [
            ("setgroups", "getgroups"),
            ("setresgid", "getresgid"),
            ("setresuid", "getresuid"),
            ("getresuid", "getresuid"),
            ("getresgid", "getresgid"),
            ("getgroups", "getgroups"),
        ] {
            let error = drop_to(&mut Fake::new(call, true), &user()).unwrap_err();
            assert_eq!(error.call, seen_by);
        }
    }

    #[test]
    fn without_root_only_oneself() {
        let own = rustix::process::getuid().as_raw();
        if own != 0 {
            let gid = rustix::process::getgid().as_raw();
            become_user(&Identity { uid: own, gid, groups: Vec::new() }).unwrap();
            become_user(&Identity { uid: own + 1, gid, groups: Vec::new() }).unwrap_err();
        }
    }
}
