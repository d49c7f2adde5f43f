//! The cgroups of one step, as its step daemon uses them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::detect::Version;
use super::write;
use crate::spool::file;

/// The cgroups of one step, as needed by its step daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepGroups {
    /// Groups that the step daemon has to join.
    pub(super) join: Vec<PathBuf>,
    /// Groups of v1 that the step daemon has to join, and without which it must not start anything.
    pub(super) needed: Vec<PathBuf>,
    /// Folder and version of the group with the memory controller; None: the step has no such group.
    pub(super) memory: Option<(PathBuf, Version)>,
    /// Folder of the v1 CPU group through which the job leaves the CPUs to others; None: the step daemon does not have
    /// to join one.
    pub(super) idle: Option<PathBuf>,
}

impl StepGroups {
    /// Reads the groups that the node daemon wrote into the step's folder. Empty if there is no such file.
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        match fs::read_to_string(folder.join(file::CGROUPS)) {
            Ok(text) => Ok(Self::from_text(&text)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(e),
        }
    }

    /// Writes the groups as text for the step's folder: lines `join PATH`, `needed PATH`, `idle PATH`, `memory1
    /// PATH` or `memory2 PATH`.
    pub(crate) fn to_text(&self) -> String {
        let join = self.join.iter().map(|path| format!("join {}\n", path.display()));
        let memory = self.memory.iter().map(|(path, version)| match version {
            Version::V1 => format!("memory1 {}\n", path.display()),
            Version::V2 => format!("memory2 {}\n", path.display()),
        });
        let idle = self.idle.iter().map(|path| format!("idle {}\n", path.display()));
        let needed = self.needed.iter().map(|path| format!("needed {}\n", path.display()));
        join.chain(needed).chain(memory).chain(idle).collect()
    }

    /// Reads the text that `to_text` writes. Unknown lines are ignored.
    pub(crate) fn from_text(text: &str) -> Self {
        let mut groups = Self::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("join", path)) => groups.join.push(path.into()),
                Some(("needed", path)) => groups.needed.push(path.into()),
                Some(("idle", path)) => groups.idle = Some(path.into()),
                Some(("memory1", path)) => groups.memory = Some((path.into(), Version::V1)),
                Some(("memory2", path)) => groups.memory = Some((path.into(), Version::V2)),
                _ => {}
            }
        }
        groups
    }

    /// Moves the calling process into all groups; processes that it starts afterwards are created there. The step
    /// daemon calls it once, before it drops privileges and before it starts anything. Err: nothing must be started, as it
    /// would have no limits, and would be no part of the step. Only the group for gangs is dispensable: if it can't be
    /// joined, a warning is logged.
    pub(crate) fn join(&self) -> io::Result<()> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let born = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        for dir in self.needed.iter().chain(self.left_to_join(born)) {
            let joined = write(dir, "cgroup.procs", "0");
            joined.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", dir.display())))?;
        }
        if let Some(dir) = &self.idle
            && let Err(e) = write(dir, "cgroup.procs", "0")
        {
            tracing::warn!(cgroup = %dir.display(), error = %e, "cgroup can't be joined");
        }
        Ok(())
    }

    /// Returns the folders of all groups.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &Path> {
        self.join.iter().chain(&self.needed).map(PathBuf::as_path)
    }

    /// Returns the groups to join: all but the v2 group in which the process was born (`born` is its path), as moving
    /// takes a thousand times as long. A v1 group with the same path still has to be joined.
    pub(super) fn left_to_join(&self, born: &str) -> impl Iterator<Item = &PathBuf> {
        let v1 = self.memory.as_ref().filter(|(_, version)| *version == Version::V1).map(|(dir, _)| dir);
        self.join.iter().filter(move |dir| born.is_empty() || !dir.ends_with(born) || v1 == Some(dir))
    }

    /// Whether the process must join groups after it was created: it can be created in one v2 group, but not in others.
    pub(crate) fn has_to_join(&self) -> bool {
        self.join.len() > 1
            || !self.needed.is_empty()
            || self.memory.as_ref().is_some_and(|(_, version)| *version == Version::V1)
    }

    /// Returns the folder of the group in which the kernel limits and counts memory. None: no group has the memory
    /// controller.
    pub(crate) fn memory_dir(&self) -> Option<&Path> {
        self.memory.as_ref().map(|(dir, _)| dir.as_path())
    }

    /// Returns how many processes the kernel has killed for the memory limit of this step (or of its job, for a process
    /// of this step).
    pub(crate) fn oom_kills(&self) -> u64 {
        let Some((dir, version)) = &self.memory else { return 0 };
        let name = match version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let text = fs::read_to_string(dir.join(name)).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
    }

    /// Returns the peak memory of the whole step, KiB. None: the kernel does not report it.
    pub(crate) fn peak_kb(&self) -> Option<u64> {
        let (dir, version) = self.memory.as_ref()?;
        let name = match version {
            Version::V1 => "memory.max_usage_in_bytes",
            Version::V2 => "memory.peak",
        };
        let bytes: u64 = fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok()?;
        Some(bytes >> 10)
    }
}
