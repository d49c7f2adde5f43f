//! Giving up privileges, for daemons that need none once their sockets are open.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use landlock::{ABI, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, path_beneath_rules};
use rustix::fs::{AtFlags, Mode, OFlags, statat};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use squall_files::place::Place;
use squall_files::users;
use tracing::warn;

use crate::sys::fsuser::with_files_of;
use crate::sys::identity::{Identity, become_user};
use crate::sys::limits;

/// Niceness of a process without privileges: it serves people who look, and yields to controller and nodes. Jobs that use
/// all processors of the machine leave it a tenth of one, so that a page comes in time there, too.
const NICENESS: i32 = 10;

/// Fails if the user of this name, as which root's process is to run, can't reach the controller's socket.
pub fn check_reach(user: &str, place: &Place) -> Result<(), String> {
    if !users::is_root() {
        return Ok(());
    }
    let identity = identity_of(user)?;
    let dir = place.dir();
    let failed = |e: io::Error| format!("{}: {e}", dir.display());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // The process will go by this folder, whatever is above it.
    let folder = rustix::fs::open(dir, flags, Mode::empty()).map_err(|e| failed(e.into()))?;
    let socket = Place::current().controller_socket();
    let looked = with_files_of(&identity, || statat(&folder, &socket, AtFlags::empty())).map_err(failed)?;
    match looked {
        Err(rustix::io::Errno::ACCESS) => Err(format!(
            "the user {user}, as which it runs, can't reach the controller's socket: chmod a+x {0} {0}/run",
            dir.display()
        )),
        // The controller may come later.
        _ => Ok(()),
    }
}

fn identity_of(user: &str) -> Result<Identity, String> {
    let found = users::by_name(user).ok_or_else(|| format!("there is no user `{user}` as which it could run"))?;
    if found.uid == 0 {
        return Err("it does not run as root: name another user".to_owned());
    }
    Ok(Identity { uid: found.uid, gid: found.gid, groups: users::groups(&found.name, found.gid) })
}

/// Makes this process an ordinary one: it becomes the user of this name if it is root, yields to other processes, and
/// may open as many files as the system allows. Returns the state folder as the process can still reach it.
pub fn give_up(user: &str, place: &Place) -> Result<Place, String> {
    limits::raise_open_files();
    // Fails only where something else has already lowered what may be set.
    let _ = rustix::process::nice(NICENESS);
    if !users::is_root() {
        return Ok(place.clone());
    }
    let identity = identity_of(user)?;
    let dir = place.dir();
    std::env::set_current_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    become_user(&identity).map_err(|e| e.to_string())?;
    Ok(Place::current())
}

/// Makes a process that runs the site's submit filter an ordinary one, for good: it becomes the user of this name if it is
/// root, gets no privileges by executing a file, leaves no core, and changes no files. `allow_programs`: it may start
/// programs, which may change what that user may change.
pub fn confine_filter(user: &str, allow_programs: bool) -> Result<(), String> {
    // Lowering a limit can't fail.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    if users::is_root() {
        become_user(&identity_of(user)?).map_err(|e| e.to_string())?;
    }
    set_no_new_privs(true).map_err(|e| format!("no_new_privs: {e}"))?;
    if !allow_programs {
        // Where the kernel has no Landlock, the script has no function that changes files either.
        let _ = write_only(&["/dev/null".into()]);
    }
    Ok(())
}

/// Keeps keys and users' environments out of core files: this process leaves none. As root it can't be traced either.
/// To be called by each daemon when it starts.
pub fn leave_no_core() {
    // An ordinary user's daemon stays visible to that user's own tools; as root these can look at any process.
    if users::is_root() {
        // Can't fail: the value is a valid one.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

/// Confines the calling thread, and those that it starts, for good: it has no capabilities even as root, gets none by
/// executing a file, and can change files only below the state folder. For a process that serves all users and runs
/// none of their programs; to be called before it starts threads. What can't be done is logged, and the rest is done.
/// `for_users`: children of the process become users, to read a user's file, and it keeps the capabilities for that.
pub fn confine(place: &Place, for_users: bool) {
    if let Err(why) = try_confine(place, for_users) {
        warn!("less confined than it could be: {why}");
    }
}

fn try_confine(place: &Place, for_users: bool) -> Result<(), String> {
    // Nothing that it starts writes a core file either. Lowering a limit can't fail.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let failed = |what: &str, e: &dyn std::fmt::Display| format!("{what}: {e}");
    let done = [
        set_no_new_privs(true).map_err(|e| failed("no_new_privs", &e)),
        if users::is_root() {
            drop_capabilities(place, for_users).map_err(|e| failed("capabilities", &e))
        } else {
            Ok(())
        },
        write_only_below(place),
    ];
    let faults: Vec<String> = done.into_iter().filter_map(Result::err).collect();
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}

/// Drops root's capabilities. What root may do with files of others stays where the state folder has such files.
fn drop_capabilities(place: &Place, for_users: bool) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    let is_foreign = |path: PathBuf| fs::metadata(path).is_ok_and(|meta| meta.uid() != own);
    let folders = [place.dir().to_owned(), place.run(), place.log(), place.journal(), place.keys()];
    let mut kept = CapabilitySet::empty();
    kept.set(CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER, folders.into_iter().any(is_foreign));
    kept.set(CapabilitySet::SETUID | CapabilitySet::SETGID, for_users);
    for capability in CapabilitySet::all().difference(kept).iter() {
        // Without the right to do so, the process has none of them.
        let _ = remove_capability_from_bounding_set(capability);
    }
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    Ok(set_capabilities(None, sets)?)
}

/// Allows changes of files only in the state folder, and in folders to which links in it lead.
fn write_only_below(place: &Place) -> Result<(), String> {
    let folder = fs::canonicalize(place.dir()).map_err(|e| format!("{}: {e}", place.dir().display()))?;
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let linked = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    let linked = linked.filter_map(|entry| fs::canonicalize(entry.path()).ok()).filter(|path| path.is_dir());
    // SQLite sorts in files there.
    let temporary = [std::env::temp_dir(), "/var/tmp".into(), "/dev/null".into()];
    let writable: Vec<PathBuf> = [folder].into_iter().chain(linked.collect::<Vec<_>>()).chain(temporary).collect();
    write_only(&writable)
}

/// Allows changes of files only below these paths.
fn write_only(writable: &[PathBuf]) -> Result<(), String> {
    let abi = ABI::V3;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_write(abi))
        .and_then(Ruleset::create)
        .and_then(|ruleset| ruleset.add_rules(path_beneath_rules(writable, AccessFs::from_write(abi))))
        .and_then(landlock::RulesetCreated::restrict_self)
        .map_err(|e| format!("landlock: {e}"))?;
    match status.ruleset {
        RulesetStatus::NotEnforced => {
            Err("landlock: this kernel has none (Linux 5.13 and later can have it)".to_owned())
        }
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use squall_files::place::Place;

    use super::{PathBuf, try_confine};

    // Capabilities and Landlock belong to a thread, so this test's process keeps its own.
    #[test]
    fn a_confined_process_writes_only_in_its_state_folder_and_has_no_capabilities() {
        // A confined process may write in folders for temporary files, and the checkout may be in one.
        let here = std::env::current_dir().unwrap();
        let is_temporary = here.starts_with(std::env::temp_dir()) || here.starts_with("/var/tmp");
        let base = if is_temporary { PathBuf::from("/dev/shm") } else { here };
        let base = base.join(format!("confined-{}", std::process::id()));
        let (inside, outside) = (base.join("state"), base.join("other"));
        fs::create_dir_all(inside.join("run")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("old"), "old").unwrap();
        let place = Place::at(&inside).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if let Err(e) = try_confine(&place, false) {
                    assert!(e.contains("landlock"), "{e}");
                    eprintln!("skipped: {e}");
                    return;
                }
                fs::write(inside.join("run/new"), "new").unwrap();
                assert!(fs::write(outside.join("new"), "new").is_err());
                assert!(fs::remove_file(outside.join("old")).is_err());
                assert!(fs::rename(inside.join("run/new"), outside.join("new")).is_err());
                assert_eq!(fs::read_to_string(outside.join("old")).unwrap(), "old", "reading is allowed");
                let status = fs::read_to_string("/proc/thread-self/status").unwrap();
                let value =
                    |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim().to_owned();
                assert_eq!(value("CapEff:"), "0000000000000000");
                assert_eq!(value("CapPrm:"), "0000000000000000");
                assert_eq!(value("NoNewPrivs:"), "1");
            });
        });
        fs::remove_dir_all(&base).unwrap();
    }
}
