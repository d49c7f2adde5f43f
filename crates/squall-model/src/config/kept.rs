//! Cores and memory of nodes that are kept for the system, and given to no job.

use super::device::core_list;
use super::{NodeConfig, SelectTypeParameters, Unit};
use crate::resource::Hardware;
use crate::set::CoreSet;

impl NodeConfig {
    /// Returns the cores that are kept for the system, counted from 0 socket by socket. `core_spec_count` takes the
    /// last core of each socket in turn, from the last socket on; `cpu_spec_list` takes the cores of these CPUs, which
    /// are counted as in Slurm, with all threads of a core in a row.
    pub fn kept_cores(&self, hardware: &Hardware) -> CoreSet {
        let (sockets, each) = (hardware.sockets.max(1), hardware.cores_per_socket.max(1));
        if self.cpu_spec_list.is_empty() {
            let count = self.core_spec_count.unwrap_or(0).min(sockets.saturating_mul(each));
            let core = |at: u32| (sockets - 1 - at % sockets) * each + each - 1 - at / sockets;
            return (0..count).map(|at| core(at) as usize).collect();
        }
        let threads = threads(hardware) as usize;
        let cores = sockets.saturating_mul(each) as usize;
        let cpus = core_list(&self.cpu_spec_list).unwrap_or_default();
        cpus.iter().map(|cpu| cpu / threads).filter(|core| *core < cores).collect()
    }

    /// Returns the number of cores that are kept for the system, and that of their CPUs.
    pub fn kept_sizes(&self, hardware: &Hardware) -> (u32, u32) {
        let cores = self.kept_cores(hardware).len() as u32;
        (cores, cores.saturating_mul(threads(hardware)))
    }

    /// Takes the cores and memory that are kept for the system off a node's hardware. At least one CPU is left.
    pub fn keep_for_system(&self, hardware: &mut Hardware) {
        let (_, cpus) = self.kept_sizes(hardware);
        if hardware.cpus > 0 {
            hardware.cpus = hardware.cpus.saturating_sub(cpus).max(1);
        }
        hardware.memory_mb = hardware.memory_mb.saturating_sub(self.mem_spec_limit_mb);
    }

    /// Returns whether cores or memory are kept for the system.
    pub fn keeps(&self) -> bool {
        self.core_spec_count.is_some_and(|count| count > 0)
            || !self.cpu_spec_list.is_empty()
            || self.mem_spec_limit_mb > 0
    }

    /// Returns what is wrong with the cores and memory that are kept for the system. None: nothing.
    pub(super) fn kept_fault(&self, select: SelectTypeParameters) -> Option<String> {
        let fault = |text: String| Some(format!("node {}: {text}", self.name));
        let count = self.core_spec_count.unwrap_or(0);
        if count > 0 && !self.cpu_spec_list.is_empty() {
            return fault("core_spec_count and cpu_spec_list exclude each other: leave one of them out".to_owned());
        }
        if core_list(&self.cpu_spec_list).is_none() {
            return fault(format!("cpu_spec_list = \"{}\": use a list such as 0-3,8", self.cpu_spec_list));
        }
        if self.memory_mb.is_some_and(|all| self.mem_spec_limit_mb >= all) {
            return fault(format!("mem_spec_limit_mb = {}: this leaves no memory to jobs", self.mem_spec_limit_mb));
        }
        if count == 0 && self.cpu_spec_list.is_empty() {
            return None;
        }
        let (Some(sockets), Some(cores_per_socket)) = (self.sockets, self.cores_per_socket) else {
            let text = "with CR_Socket give sockets and cores_per_socket of nodes that keep cores for the system";
            return if select.unit == Unit::Socket { fault(text.to_owned()) } else { None };
        };
        let threads_per_core = self.threads_per_core.unwrap_or(1);
        let cpus = self.cpus.unwrap_or(sockets.saturating_mul(cores_per_socket).saturating_mul(threads_per_core));
        let hardware = Hardware { cpus, sockets, cores_per_socket, threads_per_core, ..Hardware::default() };
        let kept = self.kept_cores(&hardware);
        if count as usize > kept.len() || kept.len() as u32 >= sockets.saturating_mul(cores_per_socket) {
            return fault("the cores kept for the system leave none to jobs".to_owned());
        }
        let of = |socket: u32| kept.iter().filter(|core| *core as u32 / cores_per_socket.max(1) == socket).count();
        if select.unit == Unit::Socket && (1..sockets).any(|socket| of(socket) != of(0)) {
            return fault("with CR_Socket keep the same number of cores of each socket for the system".to_owned());
        }
        None
    }
}

/// Returns how many CPUs of the node a core has; 1 if the node counts each core as a CPU.
fn threads(hardware: &Hardware) -> u32 {
    let cores = hardware.sockets.max(1).saturating_mul(hardware.cores_per_socket.max(1));
    if hardware.cpus <= cores { 1 } else { hardware.threads_per_core.max(1) }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::resource::Hardware;

    const NODE: &str = "[[nodes]]\nname = \"n1\"\nsockets = 2\ncores_per_socket = 8\nthreads_per_core = 2\n";

    #[test]
    fn cores_and_memory_are_kept_as_in_slurm() {
        let hardware = Hardware {
            cpus: 32,
            sockets: 2,
            cores_per_socket: 8,
            threads_per_core: 2,
            memory_mb: 900,
            ..Hardware::default()
        };
        for (keys, cores, cpus, memory_mb) in [
            ("", vec![], 32, 900),
            ("CoreSpecCount = 1", vec![15], 30, 900),
            ("CoreSpecCount = 3", vec![7, 14, 15], 26, 900),
            ("CpuSpecList = \"0-1,5,30\"\nMemSpecLimit = 100", vec![0, 2, 15], 26, 800),
        ] {
            let config = Config::from_toml(&format!("{NODE}{keys}\n")).expect("these are the keys");
            let mut left = hardware.clone();
            config.nodes[0].keep_for_system(&mut left);
            let kept: Vec<usize> = config.nodes[0].kept_cores(&hardware).iter().collect();
            assert_eq!((kept, left.cpus, left.memory_mb), (cores, cpus, memory_mb), "{keys}");
        }
        let by_core = Hardware { cpus: 16, ..hardware };
        let config = Config::from_toml(&format!("{NODE}cpus = 16\nCoreSpecCount = 2\n")).expect("these are the keys");
        let mut left = by_core;
        config.nodes[0].keep_for_system(&mut left);
        assert_eq!(left.cpus, 14, "each CPU is a core");
    }

    #[test]
    fn what_leaves_nothing_to_jobs_is_refused() {
        for (keys, why) in [
            ("CoreSpecCount = 16", "leave none to jobs"),
            ("CoreSpecCount = 17", "leave none to jobs"),
            ("CoreSpecCount = 1\nCpuSpecList = \"0\"", "exclude each other"),
            ("CpuSpecList = \"x\"", "use a list such as 0-3,8"),
            ("memory_mb = 100\nMemSpecLimit = 100", "leaves no memory"),
        ] {
            let read = Config::from_toml(&format!("{NODE}{keys}\n"));
            assert!(read.as_ref().is_err_and(|said| said.contains(why)), "{keys}: {read:?}");
        }
        let socket = |keys: &str| Config::from_toml(&format!("SelectTypeParameters = \"CR_Socket\"\n{NODE}{keys}\n"));
        assert!(socket("CoreSpecCount = 1").is_err_and(|said| said.contains("same number of cores of each socket")));
        assert!(socket("CoreSpecCount = 2").is_ok());
        let bare = "[[nodes]]\nname = \"n1\"\nCoreSpecCount = 1\n";
        assert!(Config::from_toml(bare).is_ok());
        let socket = Config::from_toml(&format!("SelectTypeParameters = \"CR_Socket\"\n{bare}"));
        assert!(socket.is_err_and(|said| said.contains("give sockets and cores_per_socket")));
    }
}
