//! What a job requires within each node: sockets, cores and threads, and tasks for each of them.

use minicbor::{Decode, Encode};

use crate::resource::Hardware;

/// Requirements on the sockets, cores and threads of each node. In every field 0 means no requirement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Inside {
    /// `--sockets-per-node`: minimum number of sockets of a node.
    #[n(0)]
    pub sockets: u32,
    /// `--cores-per-socket`: minimum number of cores of a socket.
    #[n(1)]
    pub cores: u32,
    /// `--threads-per-core`: hardware threads to use of each core. Where jobs hold single CPUs (hardware threads), the
    /// cores of a node must have exactly this number; where they hold whole cores, at least this number.
    #[n(2)]
    pub threads: u32,
    /// `--ntasks-per-socket`: maximum number of tasks on each socket.
    #[n(3)]
    pub tasks_per_socket: u32,
    /// `--ntasks-per-core`: maximum number of tasks on each core.
    #[n(4)]
    pub tasks_per_core: u32,
}

impl Inside {
    /// Returns whether there is no requirement.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the maximum number of tasks on the node; `u32::MAX`: no limit. 0: the node doesn't meet the
    /// requirements. `whole`: whether jobs hold whole cores.
    pub fn most_tasks(&self, node: &Hardware, whole: bool) -> u32 {
        let (sockets, cores) = (node.sockets.max(1), node.cores_per_socket.max(1));
        let threads = node.threads_per_core.max(1);
        let fine = sockets >= self.sockets
            && cores >= self.cores
            && (self.threads == 0 || if whole { threads >= self.threads } else { threads == self.threads })
            && self.tasks_per_socket <= cores.saturating_mul(threads);
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

    // faults.md E: options about sockets, cores and threads determine which nodes fit, and the number of tasks on each.
    #[test]
    fn e_sockets_cores_and_threads_say_how_many_tasks_a_node_takes() {
        let node = Hardware { cpus: 8, sockets: 2, cores_per_socket: 2, threads_per_core: 2, ..Hardware::default() };
        let most = |change: fn(&mut Inside)| {
            let mut inside = Inside::default();
            change(&mut inside);
            inside.most_tasks(&node, false)
        };
        assert_eq!(most(|_| ()), u32::MAX);
        assert_eq!((most(|i| i.sockets = 2), most(|i| i.sockets = 3)), (u32::MAX, 0));
        assert_eq!((most(|i| i.cores = 2), most(|i| i.cores = 64)), (u32::MAX, 0));
        assert_eq!((most(|i| i.threads = 2), most(|i| i.threads = 1)), (u32::MAX, 0));
        let (one, three) = (Inside { threads: 1, ..Inside::default() }, Inside { threads: 3, ..Inside::default() });
        assert_eq!((one.most_tasks(&node, true), three.most_tasks(&node, true)), (u32::MAX, 0), "of whole cores");
        assert_eq!(most(|i| i.tasks_per_socket = 4), 8);
        assert_eq!(most(|i| i.tasks_per_socket = 5), 0, "no socket takes as many");
        assert_eq!((most(|i| i.tasks_per_socket = 1), most(|i| i.tasks_per_core = 2)), (2, 8));
    }
}
