//! Machines with nodes on which a trace is replayed: from a list of sizes, or from a configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use squall_host::config_files::ConfigFiles;
use squall_model::config::{Config, NodeConfig, SchedulerType};
use squall_model::hostlist;
use squall_model::resource::Hardware;

use super::POLICIES;

/// Maximum number of nodes of a machine.
const NODES_MAX: u32 = 100_000;
/// Maximum number of CPUs of a node.
const CPUS_MAX: u32 = 4096;

/// Nodes and configuration of a machine on which a trace is replayed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Machine {
    /// Configuration of the scheduler, the partitions and the topology.
    pub(crate) config: Config,
    /// Names and hardware of the nodes.
    pub(crate) nodes: Vec<(String, Hardware)>,
}

impl Machine {
    /// Parses a list of node counts and CPUs: `20x80+48x12` means 20 nodes with 80 CPUs and 48 with 12.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("--machine: `{text}` {why}");
        let mut config = Config::default();
        let mut first = 1;
        for group in text.split('+') {
            let (count, cpus) = group.split_once('x').ok_or_else(|| wrong("should be NODESxCPUS+NODESxCPUS…"))?;
            let count = number(count, NODES_MAX + 1 - first.min(NODES_MAX));
            let count = count.ok_or_else(|| wrong(&format!("needs from 1 to {NODES_MAX} nodes")))?;
            let cpus = number(cpus, CPUS_MAX);
            let cpus = cpus.ok_or_else(|| wrong(&format!("needs from 1 to {CPUS_MAX} CPUs on each node")))?;
            let name = format!("n[{first}-{}]", first + count - 1);
            config.nodes.push(NodeConfig { name, cpus: Some(cpus), ..NodeConfig::default() });
            first += count;
        }
        config.complete();
        Self::of(config)
    }

    /// Reads a configuration file with the nodes that it names, and the topology file in the same folder.
    pub(super) fn read(file: &Path) -> Result<Self, String> {
        let at = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
        let text = std::fs::read_to_string(file).map_err(|e| at(&e))?;
        let checked = ConfigFiles::beside(file, text).and_then(|files| files.check()).map_err(|e| e.to_string())?;
        Self::of(checked.config).map_err(|e| at(&e))
    }

    /// Reads the machine of an extended trace, in the format of the simulator Alea: `X.machines` in the folder of
    /// `X.swf-ext[.gz]`. Each line is a cluster: a number, its name, number of nodes, CPUs of each, and further fields
    /// that are ignored. Jobs request a cluster as `cl_NAME`.
    pub(super) fn beside(trace: &Path) -> Result<Option<Self>, String> {
        let name = trace.file_name().unwrap_or_default().to_string_lossy();
        let Some((name, _)) = name.split_once(".swf-ext") else { return Ok(None) };
        let file = trace.with_file_name(format!("{name}.machines"));
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(format!("{}: {e}", file.display())),
        };
        let mut config = Config::default();
        for (at, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            let wrong = |why: &str| format!("{}: line {at}: {why}", file.display());
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, name, count, cpus, ..] = words[..] else { return Err(wrong("should be NUMBER NAME NODES CPUS")) };
            let count = number(count, NODES_MAX).ok_or_else(|| wrong("column 3 is no number of nodes"))?;
            let cpus = number(cpus, CPUS_MAX).ok_or_else(|| wrong("column 4 is no number of CPUs"))?;
            let (features, name) = (vec![format!("cl_{name}")], format!("{name}[1-{count}]"));
            config.nodes.push(NodeConfig { name, cpus: Some(cpus), features, ..NodeConfig::default() });
        }
        config.complete();
        Self::of(config).map_err(|e| format!("{}: {e}", file.display())).map(Some)
    }

    fn of(config: Config) -> Result<Self, String> {
        let (mut nodes, mut seen) = (Vec::new(), BTreeSet::new());
        for entry in &config.nodes {
            let hardware = hardware(entry)?;
            let names = hostlist::expand(&entry.name).map_err(|e| format!("node {}: {e}", entry.name))?;
            // As in a cluster, the first entry that names a node counts.
            let fresh = names.into_iter().filter(|name| seen.insert(name.clone()));
            nodes.extend(fresh.map(|name| (name, hardware.clone())));
        }
        if nodes.is_empty() {
            return Err("a trace needs nodes to run on, and there is no [[nodes]]; or use --machine".into());
        }
        Ok(Self { config, nodes })
    }

    /// Returns the CPUs of all nodes together.
    pub(super) fn processors(&self) -> u32 {
        self.nodes.iter().fold(0, |sum, (_, hardware)| sum.saturating_add(hardware.cpus))
    }

    /// Returns a host list of the nodes with each feature, by the feature's name. A node's name counts as a feature of
    /// the node.
    pub(super) fn features(&self) -> BTreeMap<String, String> {
        let mut having: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, hardware) in &self.nodes {
            hardware.features.iter().for_each(|feature| having.entry(feature).or_default().push(name));
        }
        let features = having.into_iter().map(|(feature, names)| (feature.to_owned(), hostlist::compress(names)));
        features.chain(self.nodes.iter().map(|(name, _)| (name.clone(), name.clone()))).collect()
    }

    /// Returns the machine with its configuration changed to a policy. Fails for a policy that a controller does not
    /// have.
    pub(super) fn under(&self, policy: &str) -> Result<Self, String> {
        let mut config = self.config.clone();
        choose(&mut config, policy)?;
        Ok(Self { config, nodes: self.nodes.clone() })
    }

    /// Returns the name of the policy that the configuration selects.
    pub(super) fn policy(&self) -> &'static str {
        match self.config.scheduler_type {
            SchedulerType::Builtin => "fcfs",
            SchedulerType::Backfill if self.config.scheduler_parameters.kept() == 1 => "easy",
            SchedulerType::Backfill => "conservative",
        }
    }
}

/// Parses a number from 1 to `most`.
fn number(text: &str, most: u32) -> Option<u32> {
    text.parse().ok().filter(|n| (1..=most).contains(n))
}

/// Changes a configuration so that its controller follows a policy. Fails for an unknown policy.
pub fn choose(config: &mut Config, policy: &str) -> Result<(), String> {
    let (scheduler, kept) = match policy {
        "fcfs" | "fifo" => (SchedulerType::Builtin, 1),
        "easy" | "backfill" => (SchedulerType::Backfill, 1),
        "conservative" => (SchedulerType::Backfill, 0),
        known if POLICIES.iter().any(|(name, _)| *name == known) => {
            return Err(format!(
                "--policy: no controller has `{known}`, it is for a trace on a pool of processors; use fcfs, easy or \
                 conservative"
            ));
        }
        other => return Err(format!("--policy: there is no policy `{other}`; use fcfs, easy or conservative")),
    };
    config.scheduler_type = scheduler;
    config.scheduler_parameters.bf_job_part_count_reserve = kept;
    Ok(())
}

/// Returns a node's hardware from its configuration alone, as there is no machine to ask.
fn hardware(entry: &NodeConfig) -> Result<Hardware, String> {
    let (sockets, threads) = (entry.sockets.unwrap_or(1).max(1), entry.threads_per_core.unwrap_or(1).max(1));
    let by_cores = entry.cores_per_socket.map(|cores| sockets.saturating_mul(cores).saturating_mul(threads));
    let cpus = entry.cpus.or(by_cores).filter(|cpus| (1..=CPUS_MAX).contains(cpus));
    let cpus = cpus.ok_or_else(|| {
        format!("node {}: a trace needs cpus = N, from 1 to {CPUS_MAX}: there is no machine to ask", entry.name)
    })?;
    let cores = entry.cores_per_socket.unwrap_or(cpus / sockets.saturating_mul(threads)).max(1);
    Ok(Hardware {
        cpus,
        sockets,
        cores_per_socket: cores,
        threads_per_core: threads,
        memory_mb: entry.memory_mb.unwrap_or_default(),
        features: entry.features.clone(),
        ..Hardware::default()
    })
}
