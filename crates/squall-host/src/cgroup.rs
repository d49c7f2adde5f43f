//! Cgroups of jobs and steps: v2, v1, both at once, or none. Missing hierarchies and controllers are done without.
//!
//! In v2, if mounted, a step's group is `…/squall/CLUSTER/NODE/job_N.A/step_S` (the batch script's may be `job_N.A`
//! itself). It serves to find and kill all members, and has whatever controllers are available. In the v1 hierarchy of
//! the memory controller groups are made where memory is limited and v2 lacks that controller; in that of the CPU
//! controller, for jobs that take turns (gang scheduling). Other v1 hierarchies are not used: moving a process into a
//! group takes milliseconds, while on v2 it can be born there.
//!
//! Step daemons and their tasks are members of the step's group; the node daemon never is.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use squall_model::id::{StepKey, StepNo};
use squall_model::job::JobAttempt;
use squall_model::set::CoreSet;

use crate::gang::{FREEZE, IDLE};
use crate::spool::file;

pub(crate) mod detect;

use detect::{Mounts, Version};

/// One node's folders in the cgroup hierarchies that it may use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cgroups {
    /// The node's folder in the v2 hierarchy. None: this process may not use v2.
    v2: Option<Hierarchy>,
    /// The hierarchy with the memory controller: v2, or the v1 one of that controller. None: there is none that this
    /// process may use.
    memory: Option<Hierarchy>,
    /// The hierarchy with the CPU controller (v2 or v1), set up for the first gang-scheduled job: for other jobs the
    /// cost of a group there exceeds its use. None inside: there is none that this process may use.
    cpu: OnceCell<Option<Hierarchy>>,
    /// Roots under which groups of the v1 CPU controller may be made; `below` is the node's folder relative to a root.
    cpu_roots: Vec<PathBuf>,
    below: PathBuf,
}

/// The node's folder in one cgroup hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    base: PathBuf,
    version: Version,
    /// Names of the controllers that groups of jobs can have, e.g. `memory`; empty for a v1 hierarchy.
    controllers: Vec<&'static str>,
}

/// Controllers that the limits of jobs and steps need.
const CONTROLLERS: [&str; 2] = ["memory", "cpuset"];

/// CPU weight (`cpu.shares`) of a process without a group.
const SHARES: usize = 1024;
/// Greatest CPU weight (`cpu.shares`) that a v1 group can have.
const SHARES_MAX: usize = 1 << 18;

/// Microseconds of each second that real-time processes of all jobs together may run: half of the kernel's default of
/// 950,000.
const RT_RUNTIME_US: &str = "475000";

/// What a job or step may use on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Memory limit, MiB; 0: no limit.
    pub(crate) memory_mb: u64,
    /// Kernel numbers of the CPUs that the job or step may use; empty: all.
    pub(crate) cpus: CoreSet,
    /// Whether the job is gang-scheduled, so that it may have to leave the CPUs to other jobs.
    pub(crate) takes_turns: bool,
}

impl Cgroups {
    /// Makes the node's folders in all hierarchies where this process may. The second result has a line for the log for
    /// each missing feature.
    pub(crate) fn open(mounts: &Mounts, cluster: &str, node: &str) -> (Self, Vec<String>) {
        let mut notices = Vec::new();
        let below = Path::new("squall").join(cluster).join(node);
        // Tried twice: another node daemon that ends now may remove the cluster's folder between two steps.
        let make = |root: PathBuf, version| {
            Hierarchy::make(&root, &below, version).or_else(|| Hierarchy::make(&root, &below, version))
        };
        let v2 = mounts.candidates(None).into_iter().find_map(|root| make(root, Version::V2));
        let memory = v2
            .clone()
            .filter(|v2| v2.controllers.contains(&"memory"))
            .or_else(|| mounts.candidates(Some("memory")).into_iter().find_map(|root| make(root, Version::V1)));
        if v2.is_none() {
            notices.push("no v2 cgroup: processes are followed by parent and environment".to_owned());
        }
        if memory.is_none() {
            notices.push("no memory cgroup: memory limits are watched, not enforced by the kernel".to_owned());
        }
        if !v2.as_ref().is_some_and(|v2| v2.controllers.contains(&"cpuset")) {
            notices.push("no cpuset cgroup: tasks are bound by affinity only".to_owned());
        }
        let cpu_roots = mounts.candidates(Some("cpu"));
        (Self { v2, memory, cpu: OnceCell::new(), cpu_roots, below }, notices)
    }

    /// Returns the hierarchy with the CPU controller, in which jobs can leave the CPUs to others (`cpu.idle`), if there
    /// is one.
    fn cpu(&self) -> Option<&Hierarchy> {
        let found = self.cpu.get_or_init(|| {
            let v2 = self.v2.as_ref().filter(|v2| {
                let ancestors: Vec<&Path> = v2.base.ancestors().take(self.below.components().count() + 1).collect();
                let hand_down = |dir: &&Path| write(dir, "cgroup.subtree_control", "+cpu").is_ok();
                ancestors.iter().rev().filter(|dir| hand_down(dir)).count() == ancestors.len()
            });
            let has_idle = |own: &Hierarchy| own.base.join(IDLE).exists();
            let own = || self.cpu_roots.iter().find_map(|root| Hierarchy::make(root, &self.below, Version::V1));
            v2.cloned().or_else(|| own().filter(has_idle))
        });
        found.as_ref()
    }

    /// Moves this process into a CPU group shared by all nodes of this machine. Its processes, and those it starts from
    /// now on, then compete for CPUs one by one with those of the other nodes. By default the kernel counts each
    /// session as one competitor (`sched_autogroup_enabled`, see sched(7)), and each step daemon begins a session.
    /// Programs that poll while they wait, as MPI's do, then yield only to processes of their own session, and a
    /// process woken in another session waits for 100 ms and more (Linux 6.18). Does nothing where the process is in a
    /// group already, or in one of v2. On an error the process stays in its group.
    pub(crate) fn share_cpus(&self) -> io::Result<()> {
        // A process that has a group of its own has a second root here.
        let [root] = &*self.cpu_roots else { return Ok(()) };
        let dir = root.join(self.below.iter().next().unwrap_or_default());
        make_dir(&dir)?;
        // Kernels with RT group scheduling need this before a group may have real-time processes.
        let _ = write(&dir, "cpu.rt_runtime_us", RT_RUNTIME_US);
        write(&dir, "cgroup.procs", "0")?;
        // Gives each process the weight it would have without a group, as far as possible: where all nodes are busy at
        // once there is one process for each.
        let nodes = self.all().next().and_then(|own| own.base.parent()).map_or(1, |all| folders(all).len());
        let cpus = available_parallelism().map_or(1, usize::from);
        write(&dir, "cpu.shares", &(SHARES * nodes.max(cpus)).min(SHARES_MAX).to_string())
    }

    /// Returns the v1 hierarchy of the CPU controller, if it is in use; None where v2 is used for it.
    fn own_cpu(&self) -> Option<&Hierarchy> {
        self.cpu.get()?.as_ref().filter(|cpu| cpu.version == Version::V1)
    }

    /// Returns the hierarchies that a job or step with these limits uses, each once.
    fn used(&self, limits: &Limits) -> impl Iterator<Item = &Hierarchy> {
        let own = self.own_memory().filter(|_| limits.memory_mb > 0);
        self.v2.iter().chain(own)
    }

    fn all(&self) -> impl Iterator<Item = &Hierarchy> {
        self.v2.iter().chain(self.own_memory()).chain(self.own_cpu())
    }

    /// Returns the v1 hierarchy of the memory controller; None where v2 has that controller.
    fn own_memory(&self) -> Option<&Hierarchy> {
        self.memory.as_ref().filter(|memory| memory.version == Version::V1)
    }

    /// Makes the job's groups and sets their limits. Called again, it sets the limits again.
    pub(crate) fn open_job(&self, job: JobAttempt, limits: &Limits) -> io::Result<()> {
        for hierarchy in self.used(limits) {
            let dir = hierarchy.base.join(job_name(job));
            make_dir(&dir)?;
            self.set(hierarchy, &dir, limits)?;
            hierarchy.delegate(&dir);
        }
        self.open_idle(job, limits).map(drop)
    }

    /// Makes the v1 CPU group through which a gang-scheduled job leaves the CPUs to others. None: none has to be
    /// joined, as the job does not take turns or v2 is used.
    fn open_idle(&self, job: JobAttempt, limits: &Limits) -> io::Result<Option<PathBuf>> {
        let cpu = limits.takes_turns.then(|| self.cpu()).flatten().filter(|cpu| cpu.version == Version::V1);
        cpu.map(|cpu| cpu.base.join(job_name(job))).map(|dir| make_dir(&dir).map(|()| dir)).transpose()
    }

    /// Makes the step's groups within those of its job. Missing job groups are made without limits.
    pub(crate) fn open_step(&self, key: StepKey, limits: &Limits) -> io::Result<StepGroups> {
        let job = JobAttempt { job: key.job, attempt: key.attempt };
        let mut groups = StepGroups::default();
        for hierarchy in self.used(limits) {
            let parent = hierarchy.base.join(job_name(job));
            let dir = step_dir(hierarchy, key);
            if make_dir(&dir).is_err() {
                make_dir(&parent)?;
                hierarchy.delegate(&parent);
                make_dir(&dir)?;
            }
            self.set(hierarchy, &dir, limits)?;
            if self.memory.as_ref() == Some(hierarchy) {
                groups.memory = Some((dir.clone(), hierarchy.version));
            }
            groups.join.push(dir);
        }
        groups.idle = self.open_idle(job, limits)?;
        Ok(groups)
    }

    fn set(&self, hierarchy: &Hierarchy, dir: &Path, limits: &Limits) -> io::Result<()> {
        if limits.memory_mb > 0 && self.memory.as_ref() == Some(hierarchy) {
            let bytes = (limits.memory_mb.saturating_mul(1 << 20)).to_string();
            match hierarchy.version {
                Version::V2 => {
                    write(dir, "memory.max", &bytes)?;
                    // This file is missing where the kernel has no swap accounting.
                    let _ = write(dir, "memory.swap.max", "0");
                }
                Version::V1 => {
                    // With a limit on both set before, the first can't be raised above the second; the order for raising
                    // is the reverse, so both are tried twice.
                    let limited = write(dir, "memory.limit_in_bytes", &bytes);
                    let _ = write(dir, "memory.memsw.limit_in_bytes", &bytes);
                    limited.or_else(|_| write(dir, "memory.limit_in_bytes", &bytes))?;
                }
            }
        }
        if !limits.cpus.is_empty() && hierarchy.controllers.contains(&"cpuset") {
            write(dir, "cpuset.cpus", &cpu_list(&limits.cpus))?;
        }
        Ok(())
    }

    /// Returns the folder of the step's v2 group, in which the step daemon is to be created. None: there is no v2.
    pub(crate) fn birthplace(&self, key: StepKey) -> Option<PathBuf> {
        self.v2.as_ref().map(|v2| step_dir(v2, key))
    }

    /// Returns the folder of the job's v2 group; None: there is none, or the kernel can't freeze all its members
    /// together.
    pub(crate) fn group_to_freeze(&self, job: JobAttempt) -> Option<PathBuf> {
        let dir = self.v2.as_ref()?.base.join(job_name(job));
        dir.join(FREEZE).exists().then_some(dir)
    }

    /// Returns the folder of the group through which the job leaves the CPUs to others (`cpu.idle`), if it has one.
    pub(crate) fn group_to_idle(&self, job: JobAttempt) -> Option<PathBuf> {
        let dir = self.cpu()?.base.join(job_name(job));
        dir.join(IDLE).exists().then_some(dir)
    }

    /// Thaws all jobs of this node and gives back their normal CPU weight: the process that had frozen them, or made
    /// them leave the CPUs to others, may have ended.
    pub(crate) fn thaw_all(&self) {
        if self.cpu_roots.iter().any(|root| root.join(&self.below).exists()) {
            // An earlier incarnation of this node daemon made the folder.
            self.cpu();
        }
        for (hierarchy, job) in self.all().flat_map(|h| self.jobs().into_iter().map(move |job| (h, job))) {
            let dir = hierarchy.base.join(job_name(job));
            for switch in [FREEZE, IDLE] {
                let _ = write(&dir, switch, "0");
            }
        }
    }

    /// Returns the ids of all processes in the job's groups.
    pub(crate) fn members_of_job(&self, job: JobAttempt) -> BTreeSet<u32> {
        self.all().flat_map(|hierarchy| members_within(&hierarchy.base.join(job_name(job)))).collect()
    }

    /// Returns the ids of all processes in the step's groups.
    pub(crate) fn members_of_step(&self, key: StepKey) -> BTreeSet<u32> {
        self.all().flat_map(|hierarchy| members(&step_dir(hierarchy, key))).collect()
    }

    /// Kills all members of the job's v2 group with one write to `cgroup.kill`. Does nothing where there is no v2.
    pub(crate) fn kill_job(&self, job: JobAttempt) {
        if let Some(v2) = &self.v2 {
            let _ = write(&v2.base.join(job_name(job)), "cgroup.kill", "1");
        }
    }

    /// Removes the groups of a job and its steps. False: some still have members.
    pub(crate) fn close_job(&self, job: JobAttempt) -> bool {
        self.all().all(|hierarchy| {
            let dir = hierarchy.base.join(job_name(job));
            match fs::remove_dir(&dir) {
                Ok(()) => return true,
                Err(e) if e.kind() == io::ErrorKind::NotFound => return true,
                Err(_) => {}
            }
            for step in folders(&dir) {
                let _ = fs::remove_dir(dir.join(step));
            }
            fs::remove_dir(&dir).is_ok() || !dir.exists()
        })
    }

    /// Removes the groups of a step that has ended. Groups that still have members stay until the job's groups are
    /// removed, and so does a group that is the job's own.
    pub(crate) fn close_step(&self, key: StepKey) {
        for hierarchy in self.all().filter(|hierarchy| !is_of_job(hierarchy, key)) {
            let _ = fs::remove_dir(step_dir(hierarchy, key));
        }
    }

    /// Whether there is a v2 hierarchy: then every process of a job is created in the job's cgroup.
    pub(crate) fn are_there(&self) -> bool {
        self.v2.is_some()
    }

    /// Returns the jobs that have a group on this node, sorted.
    pub(crate) fn jobs(&self) -> Vec<JobAttempt> {
        let names = self.all().flat_map(|hierarchy| folders(&hierarchy.base));
        let mut jobs: Vec<JobAttempt> = names.filter_map(|name| job_of(&name)).collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    }

    /// Removes the node's own folders, if no job is left in them, and those of the cluster once empty.
    pub(crate) fn close(&self) {
        for hierarchy in self.all() {
            if fs::remove_dir(&hierarchy.base).is_ok() {
                let cluster = hierarchy.base.parent();
                let _ = cluster.map(fs::remove_dir);
                let _ = cluster.and_then(Path::parent).map(fs::remove_dir);
            }
        }
    }
}

impl Hierarchy {
    /// Makes the folder `below` under `root`, on v2 passing controllers down to it. None: this process may not.
    fn make(root: &Path, below: &Path, version: Version) -> Option<Self> {
        let mut dir = root.to_owned();
        for name in below.components() {
            if version == Version::V2 {
                delegate(&dir);
            }
            dir.push(name);
            make_dir(&dir).ok()?;
            if version == Version::V1 {
                let _ = write(&dir, "memory.use_hierarchy", "1");
            }
        }
        // Permission to make folders does not imply permission to move processes there.
        let procs = dir.join("cgroup.procs");
        rustix::fs::access(&procs, rustix::fs::Access::WRITE_OK).ok()?;
        let controllers = if version == Version::V2 { delegate(&dir) } else { Vec::new() };
        Some(Self { base: dir, version, controllers })
    }

    /// Passes this hierarchy's controllers down to the steps of a job; `job` is the job's folder.
    fn delegate(&self, job: &Path) {
        if !self.controllers.is_empty() {
            delegate(job);
        }
    }
}

/// Passes the controllers that limits need down to the child groups of `dir`, one by one, as some may be missing.
/// Returns those that the children have now.
fn delegate(dir: &Path) -> Vec<&'static str> {
    let hand_down = |controller: &&&str| write(dir, "cgroup.subtree_control", &format!("+{controller}")).is_ok();
    CONTROLLERS.iter().filter(hand_down).copied().collect()
}

/// The cgroups of one step, as needed by its step daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepGroups {
    /// Groups that the step daemon has to join.
    join: Vec<PathBuf>,
    /// Folder and version of the group with the memory controller; None: the step has no such group.
    memory: Option<(PathBuf, Version)>,
    /// Folder of the v1 CPU group through which the job leaves the CPUs to others; None: the step daemon does not have
    /// to join one.
    idle: Option<PathBuf>,
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

    /// Writes the groups as text for the step's folder: lines `join PATH`, `idle PATH`, `memory1 PATH` or `memory2
    /// PATH`.
    pub(crate) fn to_text(&self) -> String {
        let join = self.join.iter().map(|path| format!("join {}\n", path.display()));
        let memory = self.memory.iter().map(|(path, version)| match version {
            Version::V1 => format!("memory1 {}\n", path.display()),
            Version::V2 => format!("memory2 {}\n", path.display()),
        });
        let idle = self.idle.iter().map(|path| format!("idle {}\n", path.display()));
        join.chain(memory).chain(idle).collect()
    }

    /// Reads the text that `to_text` writes. Unknown lines are ignored.
    pub(crate) fn from_text(text: &str) -> Self {
        let mut groups = Self::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("join", path)) => groups.join.push(path.into()),
                Some(("idle", path)) => groups.idle = Some(path.into()),
                Some(("memory1", path)) => groups.memory = Some((path.into(), Version::V1)),
                Some(("memory2", path)) => groups.memory = Some((path.into(), Version::V2)),
                _ => {}
            }
        }
        groups
    }

    /// Moves the calling process into all groups; processes that it starts afterwards are created there. The step
    /// daemon calls it once, before it drops privileges and before it starts anything. Only the group that limits
    /// memory is indispensable: if another can't be joined, a warning is logged.
    pub(crate) fn join(&self) -> io::Result<()> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let born = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        for dir in self.left_to_join(born).chain(&self.idle) {
            match write(dir, "cgroup.procs", "0") {
                Err(e) if self.memory_dir() == Some(dir) => return Err(e),
                Err(e) => tracing::warn!(cgroup = %dir.display(), error = %e, "cgroup can't be joined"),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Returns the groups to join: all but the v2 group in which the process was born (`born` is its path), as moving
    /// takes a thousand times as long. A v1 group with the same path still has to be joined.
    fn left_to_join(&self, born: &str) -> impl Iterator<Item = &PathBuf> {
        let v1 = self.memory.as_ref().filter(|(_, version)| *version == Version::V1).map(|(dir, _)| dir);
        self.join.iter().filter(move |dir| born.is_empty() || !dir.ends_with(born) || v1 == Some(dir))
    }

    /// Whether the process must join groups after it was created: it can be created in one v2 group, but not in others.
    pub(crate) fn has_to_join(&self) -> bool {
        self.join.len() > 1 || self.memory.as_ref().is_some_and(|(_, version)| *version == Version::V1)
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

fn job_name(job: JobAttempt) -> String {
    format!("job_{}.{}", job.job, job.attempt)
}

fn job_of(name: &str) -> Option<JobAttempt> {
    crate::spool::parse_attempt(name.strip_prefix("job_")?)
}

fn step_name(key: StepKey) -> String {
    format!("step_{}", key.step)
}

/// Returns the folder of the step's group.
fn step_dir(hierarchy: &Hierarchy, key: StepKey) -> PathBuf {
    let job = JobAttempt { job: key.job, attempt: key.attempt };
    let dir = hierarchy.base.join(job_name(job));
    if is_of_job(hierarchy, key) { dir } else { dir.join(step_name(key)) }
}

/// Whether the group of the batch script is that of its job. This is so where v2 passes no controllers down to steps:
/// making and removing a group of its own would take half as long as starting the script.
fn is_of_job(hierarchy: &Hierarchy, key: StepKey) -> bool {
    key.step == StepNo::BATCH && hierarchy.version == Version::V2 && hierarchy.controllers.is_empty()
}

/// Formats a set of CPUs as ranges, e.g. `0-3,8`.
fn cpu_list(cpus: &CoreSet) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for cpu in cpus.iter() {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let texts = ranges.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    texts.collect::<Vec<_>>().join(",")
}

/// Returns the ids of the processes in a group, without those of its child groups.
pub(crate) fn members(dir: &Path) -> Vec<u32> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Returns the ids of the processes in a group and in its child groups (one level).
pub(crate) fn members_within(dir: &Path) -> Vec<u32> {
    let within = folders(dir).into_iter().flat_map(|folder| members(&dir.join(folder)));
    within.chain(members(dir)).collect()
}

fn folders(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir()));
    folders.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn make_dir(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

fn write(dir: &Path, name: &str, text: &str) -> io::Result<()> {
    // Never creates a file: a missing one means that the kernel lacks the feature (and in tests the folder may be an
    // ordinary one).
    use std::io::Write;
    fs::OpenOptions::new().write(true).open(dir.join(name))?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::{self, File};
    use std::path::PathBuf;

    use squall_model::id::{Attempt, JobId, StepKey, StepNo};
    use squall_model::job::JobAttempt;
    use squall_model::set::CoreSet;

    use super::{
        Cgroups, Hierarchy, Limits, Mounts, SHARES_MAX, StepGroups, Version, cpu_list, job_name, job_of, members,
        step_name, write,
    };

    #[test]
    fn groups_survive_being_written() {
        let groups = StepGroups {
            join: vec!["/sys/fs/cgroup/a b/step_0".into(), "/x".into()],
            memory: Some(("/y".into(), Version::V1)),
            idle: Some("/z".into()),
        };
        assert_eq!(StepGroups::from_text(&groups.to_text()), groups);
        assert_eq!(StepGroups::from_text(""), StepGroups::default());
    }

    #[test]
    fn only_the_group_of_birth_need_not_be_joined() {
        let (v2, v1) = (PathBuf::from("/cg/unified/squall/job_1.1/step_0"), "/cg/memory/squall/job_1.1/step_0".into());
        let mut groups = StepGroups { join: vec![v2.clone(), v1], ..StepGroups::default() };
        groups.memory = Some((groups.join[1].clone(), Version::V1));
        let left = |groups: &StepGroups, born| groups.left_to_join(born).cloned().collect::<Vec<_>>();
        assert_eq!(left(&groups, "squall/job_1.1/step_0"), groups.join[1..]);
        assert_eq!(left(&groups, ""), groups.join);
        assert_eq!(left(&groups, "user.slice"), groups.join);
        let only = StepGroups { join: vec![v2.clone()], memory: Some((v2, Version::V2)), idle: None };
        assert!(left(&only, "squall/job_1.1/step_0").is_empty());
    }

    #[test]
    fn cpus_are_listed_as_the_kernel_wants_them() {
        assert_eq!(cpu_list(&[0, 1, 2, 5, 64].into_iter().collect()), "0-2,5,64");
        assert_eq!(cpu_list(&CoreSet::new()), "");
    }

    #[test]
    fn nodes_of_a_machine_share_its_cpus_in_one_group() {
        let root = std::env::temp_dir().join(format!("squall-shares-{}", std::process::id()));
        let group = root.join("squall");
        fs::create_dir_all(&group).unwrap();
        let files = ["cpu.shares", "cgroup.procs"].map(|name| group.join(name));
        let read = || files.each_ref().map(|file| fs::read_to_string(file).unwrap());
        for file in &files {
            fs::write(file, "").unwrap();
        }
        let below = PathBuf::from("squall/cluster/n1");
        let mut cgroups = Cgroups { cpu_roots: vec![root.clone(), root.join("service")], below, ..Cgroups::default() };
        // The process that started this one has its own group for it already.
        cgroups.share_cpus().unwrap();
        assert_eq!(read(), ["", ""]);
        cgroups.cpu_roots.pop();
        cgroups.share_cpus().unwrap();
        let [shares, procs] = read();
        assert_eq!(procs, "0");
        let cpus = std::thread::available_parallelism().unwrap().get();
        let of = |processes: usize| (1024 * processes).min(SHARES_MAX).to_string();
        assert_eq!(shares, of(cpus));
        // More nodes than CPUs.
        let nodes: Vec<PathBuf> = (0..=cpus).map(|n| root.join(format!("v2/squall/cluster/n{n}"))).collect();
        for node in &nodes {
            fs::create_dir_all(node).unwrap();
        }
        cgroups.v2 = Some(Hierarchy { base: nodes[0].clone(), version: Version::V2, controllers: Vec::new() });
        cgroups.share_cpus().unwrap();
        assert_eq!(read()[0], of(cpus + 1));
        cgroups.cpu_roots.clear();
        cgroups.share_cpus().unwrap();
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn names_lead_back_to_jobs() {
        let job = JobAttempt { job: JobId(12), attempt: Attempt(3) };
        assert_eq!(job_of(&job_name(job)), Some(job));
        assert_eq!(job_of("job_x.1"), None);
        assert_eq!(step_name(StepKey { job: job.job, attempt: job.attempt, step: StepNo::BATCH }), "step_batch");
    }

    #[test]
    fn a_process_is_limited_found_and_killed_where_that_is_allowed() {
        let (mounts, cluster) = (Mounts::read().unwrap(), format!("test-{}", std::process::id()));
        let (cgroups, notices) = Cgroups::open(&mounts, &cluster, "n1");
        if cgroups.v2.is_none() && cgroups.memory.is_none() {
            assert!(!notices.is_empty(), "what is missing must be said");
            return;
        }
        let key = StepKey { job: JobId(5), attempt: Attempt(1), step: StepNo(0) };
        let job = JobAttempt { job: key.job, attempt: key.attempt };
        let limits = Limits { memory_mb: 64, cpus: [0].into_iter().collect(), takes_turns: true };
        cgroups.open_job(job, &limits).unwrap();
        cgroups.open_job(job, &Limits { memory_mb: 32, ..limits.clone() }).unwrap();
        let groups = cgroups.open_step(key, &limits).unwrap();
        assert_eq!(cgroups.jobs(), [job]);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        for dir in &groups.join {
            write(dir, "cgroup.procs", &child.id().to_string()).unwrap();
        }
        assert_eq!(members(&groups.join[0]), [child.id()]);
        let members = BTreeSet::from([child.id()]);
        assert_eq!((cgroups.members_of_job(job), cgroups.members_of_step(key)), (members.clone(), members));
        if let Some(dir) = groups.memory_dir() {
            let limit = ["memory.max", "memory.limit_in_bytes"].map(|name| fs::read_to_string(dir.join(name)));
            assert!(limit.iter().flatten().any(|text| text.trim() == (64_u64 << 20).to_string()));
            assert_eq!(groups.oom_kills(), 0);
        }
        assert!(!cgroups.close_job(job), "it has a member");
        cgroups.kill_job(job);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(cgroups.close_job(job) && cgroups.jobs().is_empty());
        cgroups.close();
        assert!(cgroups.all().all(|hierarchy| !hierarchy.base.exists()));
    }

    #[test]
    fn a_step_daemon_is_born_in_its_group_where_that_is_allowed() {
        use crate::sys::spawn::{Session, Spawn};
        use std::os::fd::AsFd;
        let (mounts, cluster) = (Mounts::read().unwrap(), format!("born-{}", std::process::id()));
        let (cgroups, _) = Cgroups::open(&mounts, &cluster, "n1");
        let key = StepKey { job: JobId(6), attempt: Attempt(1), step: StepNo::BATCH };
        let groups = cgroups.open_step(key, &Limits::default()).unwrap();
        let Some(birthplace) = cgroups.birthplace(key).and_then(|dir| File::open(dir).ok()) else { return };
        let out = std::env::temp_dir().join(format!("squall-born-{}", std::process::id()));
        let (file, null) = (File::create(&out).unwrap(), File::open("/dev/null").unwrap());
        let argv = [c"cat".to_owned(), c"/proc/self/cgroup".to_owned()];
        let stdio = [null.as_fd(), file.as_fd(), null.as_fd()];
        let spawn = |program| Spawn { session: Session::New, ..Spawn::new(program, &argv, stdio) };
        let error = spawn(c"/nonexistent").start_in(birthplace.as_fd()).unwrap_err();
        assert_eq!((error.call, error.errno()), ("execve", libc::ENOENT));
        let child = spawn(c"/bin/cat").start_in(birthplace.as_fd()).unwrap();
        crate::sys::wait::reap_pid(child.pid).unwrap();
        let text = fs::read_to_string(&out).unwrap();
        let own = text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
        assert!(groups.join[0].ends_with(own), "{own} is not {:?}", groups.join);
        fs::remove_file(&out).unwrap();
        assert!(cgroups.close_job(JobAttempt { job: key.job, attempt: key.attempt }));
        cgroups.close();
    }

    #[test]
    fn counts_are_read_from_either_version() {
        let dir = std::env::temp_dir().join(format!("squall-cgroup-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for (name, text) in [
            ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
            ("memory.max_usage_in_bytes", "1048576\n"),
            ("memory.events", "low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 0\n"),
            ("memory.peak", "2097152\n"),
        ] {
            fs::write(dir.join(name), text).unwrap();
        }
        let groups = |version| StepGroups { memory: Some((dir.clone(), version)), ..StepGroups::default() };
        let seen = |version| (groups(version).oom_kills(), groups(version).peak_kb());
        assert_eq!(seen(Version::V1), (2, Some(1024)));
        assert_eq!(seen(Version::V2), (1, Some(2048)));
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(seen(Version::V2), (0, None));
    }
}
