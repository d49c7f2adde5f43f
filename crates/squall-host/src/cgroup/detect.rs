//! Detects the mounted cgroup hierarchies and this process's group in each.

use std::io;
use std::path::{Path, PathBuf};

/// The two versions of cgroup hierarchies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// cgroup v1: each controller has a hierarchy of its own.
    V1,
    /// cgroup v2: one hierarchy for all controllers.
    V2,
}

/// The cgroup hierarchies that are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mounts(Vec<Mount>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    at: PathBuf,
    /// Names of the controllers of a v1 hierarchy. None: the hierarchy is v2.
    controllers: Option<Vec<String>>,
    /// This process's group, relative to the hierarchy's root; empty if unknown.
    own: PathBuf,
}

impl Mounts {
    /// Reads the mounted hierarchies from `/proc`.
    pub(crate) fn read() -> io::Result<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts")?;
        let own = std::fs::read_to_string("/proc/self/cgroup")?;
        Ok(Self::parse(&mounts, &own))
    }

    /// Parses the texts of `/proc/self/mounts` and `/proc/self/cgroup`.
    pub(crate) fn parse(mounts: &str, own: &str) -> Self {
        let own: Vec<(Vec<String>, &str)> = own.lines().filter_map(own_group).collect();
        let mut found = Vec::new();
        for line in mounts.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [_, at, kind, options, ..] = fields[..] else { continue };
            let controllers = match kind {
                "cgroup" => Some(options.split(',').map(str::to_owned).collect::<Vec<_>>()),
                "cgroup2" => None,
                _ => continue,
            };
            let group = own.iter().find(|(names, _)| match &controllers {
                None => names.is_empty(),
                Some(options) => names.iter().any(|name| options.contains(name)),
            });
            let own = group.map(|(_, path)| PathBuf::from(path.trim_start_matches('/'))).unwrap_or_default();
            found.push(Mount { at: unescape(at), controllers, own });
        }
        Self(found)
    }

    /// Returns the folders under which groups may be made, the best first: the root of each hierarchy, then this
    /// process's own group in it. `controller` selects v1 hierarchies with that controller; None selects v2.
    pub(crate) fn candidates(&self, controller: Option<&str>) -> Vec<PathBuf> {
        let mounts = self.0.iter().filter(|mount| match (&mount.controllers, controller) {
            (None, None) => true,
            (Some(options), Some(wanted)) => options.iter().any(|option| option == wanted),
            _ => false,
        });
        let mut folders = Vec::new();
        for mount in mounts {
            folders.push(mount.at.clone());
            if mount.own != Path::new("") {
                folders.push(mount.at.join(&mount.own));
            }
        }
        folders
    }
}

/// Parses a line of `/proc/self/cgroup`, e.g. `4:memory:/path`, into controller names and path. No names: it is v2's.
fn own_group(line: &str) -> Option<(Vec<String>, &str)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (names, path) = (fields.next()?, fields.next()?);
    Some((names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(), path))
}

/// Decodes a mount point of `/proc/self/mounts`, which has blanks as `\040`, tabs and backslashes likewise.
fn unescape(text: &str) -> PathBuf {
    PathBuf::from(text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\"))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::Mounts;

    const HYBRID: &str = "tmpfs /sys/fs/cgroup tmpfs rw,relatime,mode=755 0 0\n\
        cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
        cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0\n\
        cgroup /sys/fs/cgroup/my\\040memory cgroup rw,relatime,memory 0 0\n\
        cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
    const OWN: &str = "9:name=systemd:/\n4:memory:/api/49:9\n3:cpuset:/\n1:cpu:/\n0::/\n";

    #[test]
    fn a_hybrid_machine() {
        let mounts = Mounts::parse(HYBRID, OWN);
        let strings = |list: Vec<PathBuf>| list.iter().map(|p| p.display().to_string()).collect::<Vec<_>>();
        assert_eq!(strings(mounts.candidates(None)), ["/sys/fs/cgroup/unified"]);
        let memory = mounts.candidates(Some("memory"));
        assert_eq!(strings(memory), ["/sys/fs/cgroup/my memory", "/sys/fs/cgroup/my memory/api/49:9"]);
        assert_eq!(strings(mounts.candidates(Some("cpuset"))), ["/sys/fs/cgroup/cpuset"]);
        assert!(mounts.candidates(Some("pids")).is_empty());
    }

    #[test]
    fn a_v2_machine_within_a_session() {
        let text = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate 0 0\n";
        let mounts = Mounts::parse(text, "0::/user.slice/user-1000.slice/session-2.scope\n");
        assert_eq!(mounts.candidates(None)[1], Path::new("/sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope"));
        assert!(mounts.candidates(Some("memory")).is_empty());
    }

    #[test]
    fn no_cgroups_at_all() {
        assert_eq!(Mounts::parse("proc /proc proc rw 0 0\ngarbage\n", ""), Mounts::default());
    }
}
