//! What a job requires within each node: sockets, cores and threads, and tasks for each of them.

use crate::resource::Hardware;

/// Values of `--sockets-per-node`, `--cores-per-socket`, `--threads-per-core`, `--ntasks-per-socket`,
/// `--ntasks-per-core` and `--hint`; 0: not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Inside {
    /// Fewest sockets of a node.
    pub sockets: u32,
    /// Fewest cores of a socket.
    pub cores: u32,
    /// Hardware threads to use of each core. CPUs are hardware threads here, so the node's cores must have exactly this
    /// many.
    pub threads: u32,
    /// Most tasks on each socket.
    pub tasks_per_socket: u32,
    /// Most tasks on each core.
    pub tasks_per_core: u32,
}

impl Inside {
    /// Reads the values from job options, given as pairs of long name and value.
    pub fn of(others: &[(String, String)]) -> Self {
        let mut inside = Self::default();
        for (option, value) in others {
            let count = value.parse().unwrap_or(0);
            match option.as_str() {
                "sockets-per-node" => inside.sockets = count,
                "cores-per-socket" => inside.cores = count,
                "threads-per-core" => inside.threads = count,
                "ntasks-per-socket" => inside.tasks_per_socket = count,
                "ntasks-per-core" => inside.tasks_per_core = count,
                // One thread of each core, as `--threads-per-core=1`, which takes precedence.
                "hint" if value != "multithread" && inside.threads == 0 => inside.threads = 1,
                _ => {}
            }
        }
        inside
    }

    /// Returns whether nothing is required.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the most tasks that the node may run. 0: it doesn't meet the requirements.
    pub fn most_tasks(&self, node: &Hardware) -> u32 {
        let (sockets, cores) = (node.sockets.max(1), node.cores_per_socket.max(1));
        let fine = sockets >= self.sockets
            && cores >= self.cores
            && (self.threads == 0 || node.threads_per_core.max(1) == self.threads)
            && self.tasks_per_socket <= cores.saturating_mul(node.threads_per_core.max(1));
        let most = |each: u32, units: u32| if each == 0 { u32::MAX } else { each.saturating_mul(units) };
        if !fine {
            return 0;
        }
        most(self.tasks_per_socket, sockets).min(most(self.tasks_per_core, sockets.saturating_mul(cores)))
    }
}

#[cfg(test)]
mod tests {
    use super::Inside;
    use crate::resource::Hardware;

    // faults.md E: options about sockets, cores and threads say which nodes will do, and how many tasks these take.
    #[test]
    fn e_sockets_cores_and_threads_say_how_many_tasks_a_node_takes() {
        let node = Hardware { cpus: 8, sockets: 2, cores_per_socket: 2, threads_per_core: 2, ..Hardware::default() };
        let most = |options: &[(&str, &str)]| {
            let others: Vec<_> = options.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            Inside::of(&others).most_tasks(&node)
        };
        assert_eq!(most(&[]), u32::MAX);
        assert_eq!((most(&[("sockets-per-node", "2")]), most(&[("sockets-per-node", "3")])), (u32::MAX, 0));
        assert_eq!((most(&[("cores-per-socket", "2")]), most(&[("cores-per-socket", "64")])), (u32::MAX, 0));
        assert_eq!((most(&[("threads-per-core", "2")]), most(&[("threads-per-core", "1")])), (u32::MAX, 0));
        assert_eq!(most(&[("ntasks-per-socket", "4")]), 8);
        assert_eq!(most(&[("ntasks-per-socket", "5")]), 0, "no socket takes as many");
        assert_eq!((most(&[("hint", "nomultithread")]), most(&[("hint", "multithread")])), (0, u32::MAX));
        assert_eq!((most(&[("ntasks-per-socket", "1")]), most(&[("ntasks-per-core", "2")])), (2, 8));
    }
}
