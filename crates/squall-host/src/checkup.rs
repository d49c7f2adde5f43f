//! What this machine offers to the daemons, found without changing anything: for `squall doctor`.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::cgroup::detect::Mounts;
use crate::sys::{clock, host};

/// How the resources that jobs have can be enforced by cgroups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// The v2 group under which a node daemon may make groups. None: it may in none, or v2 is not mounted.
    pub unified: Option<PathBuf>,
    /// The group, of v2 or of v1's memory controller, under which memory can be limited. None: it can't.
    pub memory: Option<PathBuf>,
    /// Whether jobs can be kept on their CPUs (cpuset of v2 or v1).
    pub cpuset: bool,
    /// Whether jobs can be kept from devices: by v1's devices controller, or by programs in v2 groups, which root may
    /// attach unless the kernel lacks them.
    pub devices: bool,
}

impl Confinement {
    /// Finds out what a node daemon can do that is started by this process's user.
    pub fn detect() -> io::Result<Self> {
        Ok(Self::within(&Mounts::read()?))
    }

    fn within(mounts: &Mounts) -> Self {
        let usable = |folders: Vec<PathBuf>| folders.into_iter().find(|folder| may_use(folder));
        let unified = usable(mounts.candidates(None));
        let has = |controller: &str| {
            let listed = unified.as_ref().and_then(|dir| std::fs::read_to_string(dir.join("cgroup.controllers")).ok());
            listed.is_some_and(|names| names.split_whitespace().any(|name| name == controller))
        };
        let memory = if has("memory") { unified.clone() } else { usable(mounts.candidates(Some("memory"))) };
        let own = |controller| usable(mounts.candidates(Some(controller))).is_some();
        let programs = unified.is_some() && rustix::process::geteuid().is_root();
        Self { cpuset: has("cpuset") || own("cpuset"), devices: programs || own("devices"), memory, unified }
    }
}

/// Whether this process may make groups in a folder of a cgroup hierarchy, and move processes there.
fn may_use(folder: &Path) -> bool {
    let may = |path: &Path| rustix::fs::access(path, Access::WRITE_OK).is_ok();
    may(folder) && may(&folder.join("cgroup.procs"))
}

/// Whether the machine's clock is synchronised with others, e.g. by NTP. None: the kernel does not tell.
pub fn clock_is_synchronised() -> Option<bool> {
    clock::is_synchronised()
}

/// Whether tasks of a node of this name are bound to their CPUs: only of a node that has the machine for itself.
pub fn binds_tasks(node: &str) -> bool {
    host::is_name_of_host(node)
}

#[cfg(test)]
mod tests {
    use super::Confinement;
    use crate::cgroup::detect::Mounts;

    #[test]
    fn what_cgroups_can_do_follows_from_mounts_and_rights() {
        let dir = std::env::temp_dir().join(format!("squall-checkup-{}", std::process::id()));
        for (group, controllers) in [("unified", "cpuset io memory\n"), ("memory", "")] {
            std::fs::create_dir_all(dir.join(group)).unwrap();
            std::fs::write(dir.join(group).join("cgroup.procs"), "").unwrap();
            std::fs::write(dir.join(group).join("cgroup.controllers"), controllers).unwrap();
        }
        let (unified, memory) = (dir.join("unified"), dir.join("memory"));
        let v2 = format!("cgroup2 {} cgroup2 rw 0 0\n", unified.display());
        let v1 = format!("cgroup {} cgroup rw,memory 0 0\n", memory.display());
        let programs = rustix::process::geteuid().is_root();
        let found = |mounts: &str| Confinement::within(&Mounts::parse(mounts, ""));
        let all = Confinement {
            unified: Some(unified.clone()),
            memory: Some(unified.clone()),
            cpuset: true,
            devices: programs,
        };
        assert_eq!(found(&(v1.clone() + &v2)), all);
        let old = Confinement { memory: Some(memory), ..Confinement::default() };
        assert_eq!(found(&v1), old);
        assert_eq!(found(""), Confinement::default());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
