//! Detects this machine's hardware: usable CPUs, topology, memory, operating system.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use squall_engine::binding::Cpu;
use squall_model::config::{Config, NodeConfig};
use squall_model::hostlist;
use squall_model::resource::Hardware;
use squall_model::set::CoreSet;

/// Folder in which the kernel describes the CPUs.
const SYSTEM_CPUS: &str = "/sys/devices/system/cpu";

/// Environment variable with the number of CPUs that a test gives to this machine. Beyond the real ones they share these.
#[cfg(debug_assertions)]
pub(crate) const TEST_VARIABLE: &str = "SQUALL_TEST_CPUS";

/// Returns topology and CPUs as a test has set them.
#[cfg(debug_assertions)]
fn set_by_test(real: (u32, u32, u32), cpus: Vec<usize>) -> ((u32, u32, u32), Vec<usize>) {
    let set = std::env::var(TEST_VARIABLE).ok().and_then(|text| text.parse::<u32>().ok()).filter(|set| *set > 0);
    let Some(set) = set else { return (real, cpus) };
    ((1, set, 1), cpus.iter().copied().cycle().take(set as usize).collect())
}

/// Folder of which the free space is scratch space, unless the configuration says.
const TMP: &str = "/tmp";

/// Hardware of this machine as one node uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    /// The hardware that the node reports to the controller.
    pub(crate) hardware: Hardware,
    /// Kernel numbers of the CPUs, indexed by the node's own numbers 0, 1, 2 …: first one thread of each core, socket
    /// by socket, then the second thread of each, and so on.
    pub(crate) cpus: Vec<usize>,
}

impl Machine {
    /// Detects this machine's hardware.
    pub(crate) fn detect() -> Self {
        let allowed = allowed_cpus();
        let (topology, cpus) = ordered(Path::new(SYSTEM_CPUS), allowed);
        #[cfg(debug_assertions)]
        let (topology, cpus) = set_by_test(topology, cpus);
        let (sockets, cores_per_socket, threads_per_core) = topology;
        let uname = rustix::system::uname();
        let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
        let hardware = Hardware {
            cpus: cpus.len() as u32,
            sockets,
            cores_per_socket,
            threads_per_core,
            memory_mb: meminfo_mb(&read("/proc/meminfo"), "MemTotal").unwrap_or(0),
            tmp_disk_mb: free_mb(TMP),
            arch: text(uname.machine()),
            os: format!("{} {}", text(uname.sysname()), text(uname.release())),
            boot_time_s: boot_time(&read("/proc/stat")).unwrap_or(0),
            address: text(uname.nodename()),
            features: Vec::new(),
            confinement: None,
            devices: None,
            interfaces: None,
        };
        Self { hardware, cpus }
    }

    /// Lowers the detected hardware to the configured values of the node `name` (or replaces it, with `force`). Nodes
    /// on the same machine without configured memory get equal parts of it.
    #[must_use]
    pub(crate) fn configured(mut self, config: &Config, name: &str) -> Self {
        if !config.tmp_fs.is_empty() {
            self.hardware.tmp_disk_mb = free_mb(&config.tmp_fs);
        }
        if let Some(entry) = config.nodes.iter().find(|entry| hostlist::contains(&entry.name, name)) {
            let beside = if entry.remote.0 || entry.emulated { 1 } else { beside(config) };
            self.hardware.memory_mb = match entry.memory_mb {
                None => (self.hardware.memory_mb / beside).max(1),
                Some(_) => self.hardware.memory_mb,
            };
            self.apply(entry);
        }
        self
    }

    fn apply(&mut self, entry: &NodeConfig) {
        let lower = |found: u64, asked: Option<u64>| match asked {
            Some(asked) if entry.force || asked < found => asked,
            _ => found,
        };
        let small = |found: u32, asked: Option<u32>| lower(u64::from(found), asked.map(u64::from)) as u32;
        let hardware = &mut self.hardware;
        let found = [hardware.sockets, hardware.cores_per_socket, hardware.threads_per_core];
        let topology = [entry.sockets, entry.cores_per_socket, entry.threads_per_core];
        hardware.sockets = small(hardware.sockets, entry.sockets).max(1);
        hardware.cores_per_socket = small(hardware.cores_per_socket, entry.cores_per_socket).max(1);
        hardware.threads_per_core = small(hardware.threads_per_core, entry.threads_per_core).max(1);
        let product = hardware.sockets * hardware.cores_per_socket * hardware.threads_per_core;
        let by_topology = topology.iter().any(Option::is_some).then_some(product);
        hardware.cpus = small(hardware.cpus, entry.cpus.or(by_topology)).max(1);
        if hardware.cpus != product && topology.iter().all(Option::is_none) {
            (hardware.sockets, hardware.cores_per_socket, hardware.threads_per_core) = (1, hardware.cpus, 1);
        }
        let wanted = [hardware.sockets, hardware.cores_per_socket, hardware.threads_per_core];
        self.cpus = part(&self.cpus, found, wanted);
        let hardware = &mut self.hardware;
        let kept = entry.kept_cores(hardware);
        if !kept.is_empty() {
            self.cpus = behind(&self.cpus, hardware, &kept);
        }
        let hardware = &mut self.hardware;
        hardware.memory_mb = lower(hardware.memory_mb, entry.memory_mb);
        hardware.tmp_disk_mb = lower(hardware.tmp_disk_mb, entry.tmp_disk_mb.filter(|mb| *mb > 0));
        hardware.features.clone_from(&entry.features);
    }

    /// Returns the kernel's number of one of the node's CPUs; configured CPUs beyond the existing ones share those.
    /// None: no CPU was detected.
    pub(crate) fn cpu(&self, number: usize) -> Option<usize> {
        self.cpus.get(number % self.cpus.len().max(1)).copied()
    }
}

/// Returns the free space in a folder, MiB; 0 if there is no such folder.
fn free_mb(folder: &str) -> u64 {
    rustix::fs::statvfs(folder).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize) >> 20)
}

/// Returns how many node daemons this machine has by the configuration.
pub(crate) fn beside(config: &Config) -> u64 {
    let own = config.nodes.iter().filter(|entry| entry.starts_here());
    own.map(|entry| hostlist::expand(&entry.name).map_or(0, |names| names.len() as u64)).sum::<u64>().max(1)
}

/// Returns the load average over one minute, in hundredths, and the available memory, MiB.
pub(crate) fn load() -> (u32, u64) {
    let text = read("/proc/loadavg");
    let load = text.split(' ').next().and_then(|first| first.parse::<f64>().ok()).unwrap_or(0.0);
    ((load * 100.0) as u32, meminfo_mb(&read("/proc/meminfo"), "MemAvailable").unwrap_or(0))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the kernel numbers of the CPUs that this process may use, ascending.
fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return vec![0] };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

fn meminfo_mb(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? >> 10)
}

fn boot_time(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

/// Returns the CPUs that this process may use, with core, socket and memory domain; where the kernel does not report
/// them, each CPU is a core of its own.
pub(crate) fn usable_cpus() -> Vec<Cpu> {
    let cpus = allowed_cpus();
    let alone = |&number: &usize| Cpu { number, core: number as u32, socket: 0, domain: 0 };
    placed(Path::new(SYSTEM_CPUS), &cpus).unwrap_or_else(|| cpus.iter().map(alone).collect())
}

/// Returns core, socket and memory domain of the given CPUs. None: the kernel does not report them.
fn placed(root: &Path, cpus: &[usize]) -> Option<Vec<Cpu>> {
    let number = |cpu: usize, name: &str| -> Option<u32> {
        fs::read_to_string(root.join(format!("cpu{cpu}/topology/{name}"))).ok()?.trim().parse().ok()
    };
    // The kernel counts the cores of each socket from 0.
    let mut cores = BTreeMap::new();
    let mut found = Vec::with_capacity(cpus.len());
    for &cpu in cpus {
        let socket = number(cpu, "physical_package_id")?;
        let next = cores.len() as u32;
        let core = *cores.entry((socket, number(cpu, "core_id")?)).or_insert(next);
        found.push(Cpu { number: cpu, core, socket, domain: domain(root, cpu).unwrap_or(0) });
    }
    Some(found)
}

/// Returns the memory domain (NUMA node) of a CPU. None: unknown.
fn domain(root: &Path, cpu: usize) -> Option<u32> {
    fs::read_dir(root.join(format!("cpu{cpu}")))
        .ok()?
        .flatten()
        .find_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok())
}

/// Returns the numbers of sockets, cores per socket and threads per core, and the CPUs in the order in which a node
/// counts them. CPUs of which these numbers are unknown or uneven count as cores of one socket, in the kernel's order.
fn ordered(root: &Path, cpus: Vec<usize>) -> ((u32, u32, u32), Vec<usize>) {
    let placed = placed(root, &cpus).unwrap_or_default();
    let Some(topology) = topology(&placed) else { return ((1, cpus.len().max(1) as u32, 1), cpus) };
    let mut seen: BTreeMap<u32, u32> = BTreeMap::new();
    let mut order: Vec<(u32, u32, u32, usize)> = Vec::with_capacity(placed.len());
    for cpu in &placed {
        let thread = seen.entry(cpu.core).or_default();
        order.push((*thread, cpu.socket, cpu.core, cpu.number));
        *thread += 1;
    }
    order.sort_unstable();
    (topology, order.into_iter().map(|(.., number)| number).collect())
}

/// Returns the CPUs of the first sockets, cores per socket and threads per core of a node, of which it has `found` and
/// is to use `wanted`. All, if it has not as many.
fn part(cpus: &[usize], found: [u32; 3], wanted: [u32; 3]) -> Vec<usize> {
    let [sockets, cores, threads] = wanted;
    if found == wanted || found.iter().zip(wanted).any(|(found, wanted)| wanted > *found) {
        return cpus.to_vec();
    }
    let number = |thread, socket, core| ((thread * found[0] + socket) * found[1] + core) as usize;
    let of_socket = |thread, socket| (0..cores).map(move |core| number(thread, socket, core));
    let of_thread = |thread| (0..sockets).flat_map(move |socket| of_socket(thread, socket));
    (0..threads).flat_map(of_thread).filter_map(|number| cpus.get(number).copied()).collect()
}

/// Returns the CPUs of a node with those of the cores that are kept for the system behind all others: the node counts
/// only the first ones.
fn behind(cpus: &[usize], hardware: &Hardware, kept: &CoreSet) -> Vec<usize> {
    let cores = (hardware.sockets * hardware.cores_per_socket) as usize;
    let all = 0..cores * hardware.threads_per_core as usize;
    let (last, first): (Vec<usize>, Vec<usize>) = all.partition(|cpu| kept.contains(cpu % cores));
    first.into_iter().chain(last).map(|cpu| cpus[cpu % cpus.len()]).collect()
}

/// Returns the numbers of sockets, cores per socket and threads per core. None: unknown, or not the same everywhere.
fn topology(cpus: &[Cpu]) -> Option<(u32, u32, u32)> {
    let sockets = cpus.iter().map(|cpu| cpu.socket).collect::<BTreeSet<_>>().len();
    let cores = cpus.iter().map(|cpu| cpu.core).collect::<BTreeSet<_>>().len();
    let alike = |of: &dyn Fn(&Cpu) -> u32, count: usize| {
        cpus.iter().all(|cpu| cpus.iter().filter(|other| of(other) == of(cpu)).count() * count == cpus.len())
    };
    let even = sockets > 0 && alike(&|cpu| cpu.socket, sockets) && alike(&|cpu| cpu.core, cores);
    even.then(|| (sockets as u32, (cores / sockets) as u32, (cpus.len() / cores) as u32))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use squall_model::config::Config;
    use squall_model::resource::Hardware;

    use super::{Machine, boot_time, load, meminfo_mb, ordered, part};

    fn machine(cpus: u32) -> Machine {
        let hardware = Hardware {
            cpus,
            sockets: 2,
            cores_per_socket: cpus / 4,
            threads_per_core: 2,
            memory_mb: 8000,
            ..Hardware::default()
        };
        Machine { hardware, cpus: (0..cpus as usize).collect() }
    }

    fn config(text: &str) -> Config {
        Config::from_toml(text).unwrap()
    }

    #[test]
    fn this_machine_has_something() {
        let found = Machine::detect();
        assert!(found.hardware.cpus >= 1 && found.hardware.memory_mb > 0 && found.hardware.boot_time_s > 0);
        assert_eq!(found.cpus.len(), found.hardware.cpus as usize);
        assert!(found.hardware.os.starts_with("Linux "), "{}", found.hardware.os);
        assert!(load().1 > 0);
    }

    #[test]
    fn the_configuration_lowers_but_does_not_raise() {
        let lowered = config("[[nodes]]\nname = \"n[1-4]\"\ncpus = 4\nmemory_mb = 999999\nfeatures = [\"fast\"]\n");
        let hardware = machine(8).configured(&lowered, "n3").hardware;
        assert_eq!((hardware.cpus, hardware.memory_mb), (4, 8000));
        assert_eq!((hardware.sockets, hardware.cores_per_socket, hardware.threads_per_core), (1, 4, 1));
        assert_eq!(hardware.features, ["fast"]);
        assert_eq!(machine(8).configured(&lowered, "n5"), machine(8), "it is of others");
    }

    // faults.md D5
    #[test]
    fn d5_nodes_of_one_machine_share_its_memory_where_nothing_is_said() {
        let text = "[[nodes]]\nname = \"n[1-3]\"\n[[nodes]]\nname = \"m\"\nmemory_mb = 5000\n\
                    [[nodes]]\nname = \"r[1-9]\"\nremote = true\n";
        let memory = |name: &str| machine(8).configured(&config(text), name).hardware.memory_mb;
        assert_eq!(["n2", "m", "r1"].map(memory), [2000, 5000, 8000]);
    }

    #[test]
    fn the_configuration_raises_if_forced() {
        let forced = config("[[nodes]]\nname = \"n1\"\ncpus = 64\nmemory_mb = 9999\nforce = true\n");
        let machine = machine(8).configured(&forced, "n1");
        assert_eq!((machine.hardware.cpus, machine.hardware.memory_mb), (64, 9999));
        assert_eq!((machine.cpu(3), machine.cpu(11)), (Some(3), Some(3)));
    }

    #[test]
    fn topology_lowers_cpus() {
        let text = "[[nodes]]\nname = \"n1\"\nsockets = 1\ncores_per_socket = 2\nthreads_per_core = 1\n";
        let hardware = machine(8).configured(&config(text), "n1").hardware;
        assert_eq!((hardware.sockets, hardware.cores_per_socket, hardware.threads_per_core), (1, 2, 1));
        assert_eq!(hardware.cpus, 2);
    }

    #[test]
    fn texts_of_the_kernel() {
        let text = "MemTotal:       24684084 kB\nMemFree:  1 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(meminfo_mb(text, "MemTotal"), Some(24105));
        assert_eq!(meminfo_mb(text, "MemAvailable"), Some(2));
        assert_eq!(meminfo_mb(text, "Mem"), None);
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_000));
    }

    #[test]
    fn topology_is_read_from_the_folders_of_the_cpus() {
        let root = std::env::temp_dir().join(format!("squall-topology-{}", std::process::id()));
        for (cpu, (socket, core)) in [(0, 0), (0, 1), (0, 0), (0, 1), (1, 0), (1, 1), (1, 0), (1, 1)].iter().enumerate()
        {
            let dir = root.join(format!("cpu{cpu}/topology"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("physical_package_id"), format!("{socket}\n")).unwrap();
            fs::write(dir.join("core_id"), format!("{core}\n")).unwrap();
        }
        let all = [0, 1, 4, 5, 2, 3, 6, 7];
        assert_eq!(ordered(&root, (0..8).collect()), ((2, 2, 2), all.to_vec()), "first threads of both sockets first");
        assert_eq!(ordered(&root, vec![0, 1]), ((1, 2, 1), vec![0, 1]));
        assert_eq!(ordered(&root, vec![0, 1, 2]), ((1, 3, 1), vec![0, 1, 2]), "uneven");
        assert_eq!(ordered(&root, vec![0, 1, 4, 6]), ((1, 4, 1), vec![0, 1, 4, 6]), "uneven, though it is divisible");
        assert_eq!(ordered(&root, vec![9]), ((1, 1, 1), vec![9]));
        let text = "[[nodes]]\nname = \"n1\"\nsockets = 2\ncores_per_socket = 2\nthreads_per_core = 2\n\
                    CoreSpecCount = 1\n";
        let found = Machine { cpus: all.to_vec(), ..machine(8) }.configured(&config(text), "n1");
        assert_eq!((found.hardware.cpus, found.cpus), (8, vec![0, 1, 4, 2, 3, 6, 5, 7]), "core 3 comes last");
        assert_eq!(part(&all, [2, 2, 2], [2, 2, 1]), [0, 1, 4, 5]);
        assert_eq!(part(&all, [2, 2, 2], [1, 2, 2]), [0, 1, 2, 3]);
        assert_eq!(part(&all, [2, 2, 2], [2, 1, 2]), [0, 4, 2, 6]);
        assert_eq!(part(&all, [2, 2, 2], [2, 8, 2]), all, "more than there is");
        fs::remove_dir_all(&root).unwrap();
    }
}
