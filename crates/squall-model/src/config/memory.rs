//! Defaults and limits of the memory of jobs.

use super::{Config, PartitionConfig};

/// Memory of jobs in a partition, MiB. 0: there is no such default or limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryRules {
    /// Memory for each CPU of a job that requests none.
    pub def_per_cpu_mb: u64,
    /// Memory on each node of a job that requests none.
    pub def_per_node_mb: u64,
    /// Memory for each GPU of a job that requests GPUs and no memory.
    pub def_per_gpu_mb: u64,
    /// Most memory for each CPU.
    pub max_per_cpu_mb: u64,
    /// Most memory on each node.
    pub max_per_node_mb: u64,
}

impl MemoryRules {
    /// Returns the rules that hold where `self` says nothing else than `wider`. A default or limit for CPUs replaces
    /// one for nodes, and the other way round.
    fn within(self, wider: Self) -> Self {
        let pair = |own: (u64, u64), wider: (u64, u64)| if own == (0, 0) { wider } else { own };
        let (def_per_cpu_mb, def_per_node_mb) =
            pair((self.def_per_cpu_mb, self.def_per_node_mb), (wider.def_per_cpu_mb, wider.def_per_node_mb));
        let (max_per_cpu_mb, max_per_node_mb) =
            pair((self.max_per_cpu_mb, self.max_per_node_mb), (wider.max_per_cpu_mb, wider.max_per_node_mb));
        let def_per_gpu_mb = if self.def_per_gpu_mb == 0 { wider.def_per_gpu_mb } else { self.def_per_gpu_mb };
        Self { def_per_cpu_mb, def_per_node_mb, def_per_gpu_mb, max_per_cpu_mb, max_per_node_mb }
    }

    /// Returns the two keys that exclude each other, if both are set.
    fn fault(self) -> Option<[&'static str; 2]> {
        match self {
            Self { def_per_cpu_mb: 1.., def_per_node_mb: 1.., .. } => {
                Some(["def_mem_per_cpu_mb", "def_mem_per_node_mb"])
            }
            Self { max_per_cpu_mb: 1.., max_per_node_mb: 1.., .. } => {
                Some(["max_mem_per_cpu_mb", "max_mem_per_node_mb"])
            }
            _ => None,
        }
    }
}

impl Config {
    fn memory(&self) -> MemoryRules {
        MemoryRules {
            def_per_cpu_mb: self.def_mem_per_cpu_mb,
            def_per_node_mb: self.def_mem_per_node_mb,
            def_per_gpu_mb: self.def_mem_per_gpu_mb,
            max_per_cpu_mb: self.max_mem_per_cpu_mb,
            max_per_node_mb: self.max_mem_per_node_mb,
        }
    }

    /// Returns the defaults and limits of the memory of jobs in a partition: its own, or else the cluster's.
    pub fn memory_rules(&self, partition: &PartitionConfig) -> MemoryRules {
        partition.memory().within(self.memory())
    }

    /// Returns the CPUs for each GPU of a job in a partition that does not say. None: as many as its tasks need.
    pub fn cpus_per_gpu(&self, partition: &PartitionConfig) -> Option<u32> {
        let cpus = if partition.def_cpu_per_gpu > 0 { partition.def_cpu_per_gpu } else { self.def_cpu_per_gpu };
        u32::try_from(cpus).ok().filter(|cpus| *cpus > 0)
    }

    /// Returns what is wrong with defaults and limits of memory. None: nothing.
    pub(super) fn memory_fault(&self) -> Option<String> {
        let of_partition =
            |partition: &PartitionConfig| Some((Some(partition.name.clone()), partition.memory().fault()?));
        let own = self.memory().fault().map(|keys| (None, keys));
        let (partition, [one, other]) = own.or_else(|| self.partitions.iter().find_map(of_partition))?;
        let place = partition.map(|name| format!("partition {name}: ")).unwrap_or_default();
        Some(format!("{place}{one} and {other} exclude each other: leave one of them out"))
    }
}

impl PartitionConfig {
    fn memory(&self) -> MemoryRules {
        MemoryRules {
            def_per_cpu_mb: self.def_mem_per_cpu_mb,
            def_per_node_mb: self.def_mem_per_node_mb,
            def_per_gpu_mb: self.def_mem_per_gpu_mb,
            max_per_cpu_mb: self.max_mem_per_cpu_mb,
            max_per_node_mb: self.max_mem_per_node_mb,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Config, MemoryRules};

    #[test]
    fn a_partitions_rules_replace_those_of_the_cluster() {
        let text = "def_mem_per_cpu_mb = 100\nmax_mem_per_node_mb = 4000\ndef_mem_per_gpu_mb = 7\n\
                    [[partitions]]\nname = \"a\"\n[[partitions]]\nname = \"b\"\ndef_mem_per_node_mb = 50\n\
                    max_mem_per_cpu_mb = 20\n";
        let config = Config::from_toml(text).expect("these are the keys");
        let rules = |at: usize| config.memory_rules(&config.partitions[at]);
        let cluster =
            MemoryRules { def_per_cpu_mb: 100, max_per_node_mb: 4000, def_per_gpu_mb: 7, ..Default::default() };
        assert_eq!(rules(0), cluster);
        let own = MemoryRules { def_per_node_mb: 50, max_per_cpu_mb: 20, def_per_gpu_mb: 7, ..Default::default() };
        assert_eq!(rules(1), own);
        for (text, why) in [
            ("def_mem_per_cpu_mb = 1\ndef_mem_per_node_mb = 1\n", "def_mem_per_cpu_mb and def_mem_per_node_mb exclude"),
            ("[[partitions]]\nname = \"p\"\nmax_mem_per_cpu_mb = 1\nmax_mem_per_node_mb = 1\n", "partition p: max_mem"),
        ] {
            assert!(Config::from_toml(text).is_err_and(|said| said.contains(why)), "{text}");
        }
        let again = Config::from_toml(&toml::to_string(&config).expect("it is text"));
        assert_eq!(again, Ok(config), "what is written is read");
    }
}
