//! Cgroups of jobs and steps: v2, v1, both at once, or none. Missing hierarchies and controllers are done without.
//!
//! In v2, if mounted, a step's group is `…/squall/CLUSTER/NODE/job_N.A/step_S` (the batch script's may be `job_N.A`
//! itself). It serves to find and kill all members, and has whatever controllers are available. In the v1 hierarchy of
//! the memory controller groups are made where memory is limited and v2 lacks that controller; in those of the cpuset and
//! devices controllers, where v2 can't keep jobs to their cores or from devices; in that of the CPU controller, for jobs
//! that take turns (gang scheduling). Other v1 hierarchies are not used: moving a process into a group takes milliseconds, while on v2 it can
//! be born there.
//!
//! Step daemons and their tasks are members of the step's group; the node daemon never is.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use squall_model::config::Config;
use squall_model::confinement::{Confinement, Enforcement};
use squall_model::id::{StepKey, StepNo};
use squall_model::job::JobAttempt;
use squall_model::set::CoreSet;

pub(crate) mod detect;
pub(crate) mod devices;
mod groups;
pub(crate) mod member;

use detect::{Mounts, Version};
use devices::{Device, Means};
pub(crate) use groups::StepGroups;

/// Name of the file in a v2 cgroup by which the cgroup is frozen.
pub(crate) const FREEZE: &str = "cgroup.freeze";

/// Name of the file in a cgroup of the CPU controller (v1, v2) that makes all members step back.
pub(crate) const IDLE: &str = "cpu.idle";

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
    /// Most processes and threads of a job; 0: no limit.
    processes_max: u64,
    /// How jobs are kept from devices that they do not hold.
    devices: Means,
    /// How steps are kept to their cores.
    cores: Cores,
    /// Whether jobs with limited memory may use swap space.
    swaps: bool,
    /// The jobs that were opened, with their limits and whether their batch scripts follow: their groups may have to be
    /// made again.
    opened: RefCell<BTreeMap<JobAttempt, (Limits, bool)>>,
}

/// File by which all processes of a v2 group, and of the groups within it, are killed.
const KILL: &str = "cgroup.kill";

/// How steps are kept to their cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Cores {
    /// They are not.
    #[default]
    Free,
    /// By the cpuset controller of v2.
    Unified,
    /// By that of v1.
    Own(Hierarchy),
    /// They should be, but can't.
    Impossible,
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
const CONTROLLERS: [&str; 3] = ["memory", CPUSET, PIDS];
/// The controller of the CPUs that may be used.
const CPUSET: &str = "cpuset";
/// The controller of the number of processes.
const PIDS: &str = "pids";

/// Folder of the kernel's settings.
const KERNEL: &str = "/proc/sys/kernel";

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
    /// Devices that the job or step must not open.
    pub(crate) denied: Vec<Device>,
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
        let cpu_roots = mounts.candidates(Some("cpu"));
        (Self { v2, memory, cpu: OnceCell::new(), cpu_roots, below, ..Self::default() }, notices)
    }

    /// Limits the number of processes of each job to `most` (0: no limit), but at most to half of those that the kernel
    /// allows. The second result is a line for the log if that is not possible.
    pub(crate) fn limit_processes(&mut self, most: u32) -> Option<String> {
        let limits = ["pid_max", "threads-max"].map(|name| fs::read_to_string(Path::new(KERNEL).join(name)));
        let kernel = limits.iter().flatten().filter_map(|text| text.trim().parse::<u64>().ok()).min();
        self.processes_max = u64::from(most).min(kernel.map_or(u64::MAX, |all| all / 2));
        let limited = self.v2.as_ref().is_some_and(|v2| v2.controllers.contains(&PIDS));
        (most > 0 && !limited).then(|| "no pids cgroup: the number of a job's processes is not limited".to_owned())
    }

    /// Keeps jobs from devices that they do not hold, as the kernel can; `must`: if it can't, no step with such devices
    /// is started. The second result is a line for the log if it can't.
    pub(crate) fn constrain_devices(&mut self, mounts: &Mounts, must: bool) -> Option<String> {
        let below = &self.below;
        let v1 = || {
            let mut roots = mounts.candidates(Some("devices")).into_iter();
            roots.find_map(|root| Hierarchy::make(&root, below, Version::V1))
        };
        let found = Means::find(self.v2.as_ref().map(|v2| &*v2.base), v1);
        let problem = found.as_ref().err().map(|why| format!("devices are not kept from jobs: {why}"));
        self.devices = found.unwrap_or_else(|why| if must { Means::Impossible(why) } else { Means::None });
        problem
    }

    /// Keeps steps to their cores, as the kernel can; `must`: if it can't, no step is started. The second result is a
    /// line for the log if it can't.
    pub(crate) fn constrain_cores(&mut self, mounts: &Mounts, must: bool) -> Option<String> {
        let below = &self.below;
        self.cores = if self.v2.as_ref().is_some_and(|v2| v2.controllers.contains(&CPUSET)) {
            Cores::Unified
        } else {
            let mut roots = mounts.candidates(Some(CPUSET)).into_iter();
            let own = roots.find_map(|root| Hierarchy::make(&root, below, Version::V1));
            // The files have a prefix, unless the hierarchy was mounted without.
            let own = own.filter(|own| own.base.join("cpuset.mems").exists());
            own.map_or(if must { Cores::Impossible } else { Cores::Free }, Cores::Own)
        };
        let bound = || "no cpuset cgroup: tasks are bound by affinity only".to_owned();
        matches!(self.cores, Cores::Free | Cores::Impossible).then(bound)
    }

    /// Lets jobs with limited memory use swap space.
    pub(crate) fn allow_swap(&mut self) {
        self.swaps = true;
    }

    /// Returns by what jobs are kept to what they hold. `config`: what it is to do; `bound`: whether tasks begin with
    /// their own cores; `has_files`: whether there are device files.
    pub(crate) fn confinement(&self, config: &Config, bound: bool, has_files: bool) -> Confinement {
        let by_group = |can: bool| if can { Enforcement::Group } else { Enforcement::Unable };
        // Swap space is counted where the kernel has these files in a group other than the root.
        let counts_swap = |memory: &Hierarchy| match memory.version {
            Version::V1 => memory.base.join("memory.memsw.limit_in_bytes").exists(),
            Version::V2 => memory.base.join("memory.swap.max").exists(),
        };
        Confinement {
            cores: match &self.cores {
                _ if !bound => Enforcement::Shared,
                Cores::Unified | Cores::Own(_) => Enforcement::Group,
                Cores::Free => Enforcement::Bound,
                Cores::Impossible => Enforcement::Refused,
            },
            memory: if self.memory.is_some() { Enforcement::Group } else { Enforcement::Watched },
            swap: if self.swaps { Enforcement::Off } else { by_group(self.memory.as_ref().is_some_and(counts_swap)) },
            devices: match &self.devices {
                _ if !has_files => Enforcement::Idle,
                Means::None if config.constrain_devices == Some(false) => Enforcement::Off,
                Means::None => Enforcement::Unable,
                Means::Program => Enforcement::Program,
                Means::Group(_) => Enforcement::Group,
                Means::Impossible(_) => Enforcement::Refused,
            },
            processes: match self.processes_max {
                0 => Enforcement::Off,
                _ => by_group(self.v2.as_ref().is_some_and(|v2| v2.controllers.contains(&PIDS))),
            },
        }
    }

    /// Returns whether jobs are to be kept from devices that they do not hold.
    pub(crate) fn constrains_devices(&self) -> bool {
        self.devices != Means::None
    }

    /// Returns the hierarchy with the CPU controller, in which jobs can leave the CPUs to others (`cpu.idle`), if there
    /// is one.
    fn cpu(&self) -> Option<&Hierarchy> {
        let found = self.cpu.get_or_init(|| {
            let v2 = self.v2.as_ref().filter(|v2| self.hands_down_cpu(v2));
            let has_idle = |own: &Hierarchy| own.base.join(IDLE).exists();
            let own = || self.cpu_roots.iter().find_map(|root| Hierarchy::make(root, &self.below, Version::V1));
            v2.cloned().or_else(|| own().filter(has_idle))
        });
        found.as_ref()
    }

    /// Passes the CPU controller down to the node's folder; returns whether that is possible.
    fn hands_down_cpu(&self, v2: &Hierarchy) -> bool {
        let ancestors: Vec<&Path> = v2.base.ancestors().take(self.below.components().count() + 1).collect();
        let hand_down = |dir: &&Path| write(dir, "cgroup.subtree_control", "+cpu").is_ok();
        ancestors.iter().rev().filter(|dir| hand_down(dir)).count() == ancestors.len()
    }

    /// Makes the node's folder again if somebody has removed it, as programs do that clean up empty groups. Err: it can't
    /// be as it was, so nothing may be started here that needs it.
    fn renew(&self, hierarchy: &Hierarchy) -> io::Result<()> {
        if hierarchy.base.exists() {
            return Ok(());
        }
        let base = hierarchy.base.display();
        let root = hierarchy.base.ancestors().nth(self.below.components().count());
        let made = root.and_then(|root| Hierarchy::make(root, &self.below, hierarchy.version));
        if made.as_ref() != Some(hierarchy) {
            return Err(io::Error::other(format!("the node's cgroup {base} was removed, and can't be made again")));
        }
        if self.cpu.get().is_some_and(|cpu| cpu.as_ref() == Some(hierarchy)) && hierarchy.version == Version::V2 {
            self.hands_down_cpu(hierarchy);
        }
        tracing::warn!(cgroup = %base, "the node's cgroup was removed by somebody, and is made again");
        Ok(())
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
        let devices = self.devices.own().filter(|_| !limits.denied.is_empty());
        let cores = self.own_cores().filter(|_| !limits.cpus.is_empty());
        self.v2.iter().chain(own).chain(devices).chain(cores)
    }

    fn all(&self) -> impl Iterator<Item = &Hierarchy> {
        self.v2.iter().chain(self.own_memory()).chain(self.own_cpu()).chain(self.devices.own()).chain(self.own_cores())
    }

    /// Returns the v1 hierarchy of the cpuset controller, if it is in use.
    fn own_cores(&self) -> Option<&Hierarchy> {
        match &self.cores {
            Cores::Own(own) => Some(own),
            _ => None,
        }
    }

    /// Returns the v1 hierarchy of the memory controller; None where v2 has that controller.
    fn own_memory(&self) -> Option<&Hierarchy> {
        self.memory.as_ref().filter(|memory| memory.version == Version::V1)
    }

    /// Makes the job's groups and sets their limits. Called again, it sets the limits again. `batch`: the groups of the
    /// job's batch script follow, which may be the job's own.
    pub(crate) fn open_job(&self, job: JobAttempt, limits: &Limits, batch: bool) -> io::Result<()> {
        self.opened.borrow_mut().insert(job, (limits.clone(), batch));
        for hierarchy in self.used(limits) {
            self.renew(hierarchy)?;
            self.open_job_in(hierarchy, job, limits, batch)?;
        }
        self.open_idle(job, limits).map(drop)
    }

    /// Makes the job's group in one hierarchy, and sets its limits.
    fn open_job_in(&self, hierarchy: &Hierarchy, job: JobAttempt, limits: &Limits, batch: bool) -> io::Result<()> {
        let dir = hierarchy.base.join(job_name(job));
        make_group(&dir)?;
        self.set(hierarchy, &dir, limits)?;
        if !batch || !hierarchy.has_scripts_in_jobs() {
            self.deny(hierarchy, &dir, &limits.denied)?;
        }
        if self.processes_max > 0 && hierarchy.controllers.contains(&PIDS) {
            write(&dir, "pids.max", &self.processes_max.to_string())?;
        }
        hierarchy.delegate(&dir);
        Ok(())
    }

    /// Makes the v1 CPU group through which a gang-scheduled job leaves the CPUs to others. None: none has to be
    /// joined, as the job does not take turns or v2 is used.
    fn open_idle(&self, job: JobAttempt, limits: &Limits) -> io::Result<Option<PathBuf>> {
        let cpu = limits.takes_turns.then(|| self.cpu()).flatten().filter(|cpu| cpu.version == Version::V1);
        let Some(cpu) = cpu else { return Ok(None) };
        self.renew(cpu)?;
        let dir = cpu.base.join(job_name(job));
        make_dir(&dir)?;
        Ok(Some(dir))
    }

    /// Makes the step's groups within those of its job. Groups of the job that somebody has removed are made again, with
    /// the limits that the job had; those of a job that is not opened are made without. Err: the step must not be started
    /// here, as nothing would keep it to its limits.
    pub(crate) fn open_step(&self, key: StepKey, limits: &Limits) -> io::Result<StepGroups> {
        let job = JobAttempt { job: key.job, attempt: key.attempt };
        let mut groups = StepGroups::default();
        for hierarchy in self.used(limits) {
            self.renew(hierarchy)?;
            let dir = step_dir(hierarchy, key);
            if !hierarchy.base.join(job_name(job)).exists() {
                let (limits, batch) = self.opened.borrow().get(&job).cloned().unwrap_or_default();
                self.open_job_in(hierarchy, job, &limits, batch)?;
            }
            let made = make_group(&dir)?;
            self.set(hierarchy, &dir, limits)?;
            // What is denied once stays so: logins come into the same group one after the other.
            if made || is_of_job(hierarchy, key) {
                self.deny(hierarchy, &dir, &limits.denied).inspect_err(|_| drop(fs::remove_dir(&dir)))?;
            }
            if self.memory.as_ref() == Some(hierarchy) {
                groups.memory = Some((dir.clone(), hierarchy.version));
            }
            let needed = [self.devices.own(), self.own_cores()].contains(&Some(hierarchy));
            if needed { groups.needed.push(dir) } else { groups.join.push(dir) }
        }
        if let Means::Impossible(why) = &self.devices
            && !limits.denied.is_empty()
        {
            return Err(unsupported(format!("devices can't be kept from it: {why}")));
        }
        if self.cores == Cores::Impossible && !limits.cpus.is_empty() {
            return Err(unsupported("it can't be kept to its cores: the kernel has no cpuset cgroup".to_owned()));
        }
        groups.idle = self.open_idle(job, limits)?;
        Ok(groups)
    }

    /// Denies devices to the members of a group, if this is the hierarchy by which that is done.
    fn deny(&self, hierarchy: &Hierarchy, dir: &Path, denied: &[Device]) -> io::Result<()> {
        match &self.devices {
            _ if denied.is_empty() => Ok(()),
            Means::Program if hierarchy.version == Version::V2 => devices::deny_by_program(dir, denied),
            Means::Group(own) if own == hierarchy => devices::deny_by_group(dir, denied),
            _ => Ok(()),
        }
    }

    fn set(&self, hierarchy: &Hierarchy, dir: &Path, limits: &Limits) -> io::Result<()> {
        if limits.memory_mb > 0 && self.memory.as_ref() == Some(hierarchy) {
            let bytes = (limits.memory_mb.saturating_mul(1 << 20)).to_string();
            match hierarchy.version {
                Version::V2 => {
                    write(dir, "memory.max", &bytes)?;
                    // This file is missing where the kernel has no swap accounting.
                    let _ = write(dir, "memory.swap.max", if self.swaps { "max" } else { "0" });
                }
                Version::V1 => {
                    // With a limit on both set before, the first can't be raised above the second; the order for raising
                    // is the reverse, so both are tried twice.
                    let limited = write(dir, "memory.limit_in_bytes", &bytes);
                    if !self.swaps {
                        let _ = write(dir, "memory.memsw.limit_in_bytes", &bytes);
                    }
                    limited.or_else(|_| write(dir, "memory.limit_in_bytes", &bytes))?;
                }
            }
        }
        let unified = self.cores == Cores::Unified && hierarchy.version == Version::V2;
        if !limits.cpus.is_empty() && (unified || self.own_cores() == Some(hierarchy)) {
            write(dir, "cpuset.cpus", &cpu_list(&limits.cpus))?;
        }
        Ok(())
    }

    /// Returns the folder of the step's v2 group, in which the step daemon is to be created. None: there is no v2.
    pub(crate) fn birthplace(&self, key: StepKey) -> Option<PathBuf> {
        self.v2.as_ref().map(|v2| step_dir(v2, key))
    }

    /// Returns the folder of the job's group, of v2 if there is one. None: there are no groups.
    pub(crate) fn group_of(&self, job: JobAttempt) -> Option<PathBuf> {
        let hierarchy = self.v2.as_ref().or_else(|| self.all().next())?;
        Some(hierarchy.base.join(job_name(job)))
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
    /// them leave the CPUs to others, may have ended. `spared`: jobs that stay as they are.
    pub(crate) fn thaw_all(&self, spared: &BTreeSet<JobAttempt>) {
        if self.cpu_roots.iter().any(|root| root.join(&self.below).exists()) {
            // An earlier incarnation of this node daemon made the folder.
            self.cpu();
        }
        let jobs: Vec<JobAttempt> = self.jobs().into_iter().filter(|job| !spared.contains(job)).collect();
        for (hierarchy, job) in self.all().flat_map(|h| jobs.iter().map(move |job| (h, *job))) {
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
            let _ = write(&v2.base.join(job_name(job)), KILL, "1");
        }
    }

    /// Removes the groups of a job and its steps. False: some still have members.
    pub(crate) fn close_job(&self, job: JobAttempt) -> bool {
        let closed = self.all().all(|hierarchy| {
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
        });
        if closed {
            self.opened.borrow_mut().remove(&job);
        }
        closed
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
            make_group(&dir).ok()?;
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

    /// Whether the group of a batch script is that of its job. This is so where v2 passes no controllers down to steps:
    /// making and removing a group of its own would take half as long as starting the script.
    fn has_scripts_in_jobs(&self) -> bool {
        self.version == Version::V2 && self.controllers.is_empty()
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

/// Whether the group of a step is that of its job.
fn is_of_job(hierarchy: &Hierarchy, key: StepKey) -> bool {
    key.step == StepNo::BATCH && hierarchy.has_scripts_in_jobs()
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

/// Kills all processes of a v2 group at once. False: the kernel can't, or there are groups within it, whose processes are not
/// meant.
pub(crate) fn kill_group(dir: &Path) -> bool {
    folders(dir).is_empty() && write(dir, KILL, "1").is_ok()
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

fn unsupported(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// Makes a group; returns whether it was not there. One of v1's cpuset controller gets what its parent has: in one
/// without CPUs and memory nothing can run.
fn make_group(dir: &Path) -> io::Result<bool> {
    let fresh = !dir.exists();
    make_dir(dir)?;
    for name in ["cpuset.cpus", "cpuset.mems"] {
        let read = |dir: &Path| fs::read_to_string(dir.join(name)).unwrap_or_default();
        // In v2 all the parent has may be used by a group without any.
        if dir.join("cpuset.cpu_exclusive").exists() && read(dir).trim().is_empty() {
            let above = dir.parent().map(read).unwrap_or_default();
            write(dir, name, above.trim())?;
        }
    }
    Ok(fresh)
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
mod tests;
