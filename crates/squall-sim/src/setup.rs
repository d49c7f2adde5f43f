//! Configuration of a simulated world.

use squall_model::config::{Config, NodeConfig, TopologyFile};
use squall_model::hostlist;
use squall_model::id::NodeId;
use squall_model::limits::ARRAY_INDEX_MAX;
use squall_model::resource::Hardware;
use squall_model::time::{Span, Time};
use squall_sched::topology::{Fault as TopologyFault, Source, Topology};

use crate::mutation::Mutation;

/// Name of the second partition, which has half of the nodes; its jobs are considered before those of the first.
pub(crate) const FAST: &str = "fast";

/// Name of a QOS. Its jobs are preempted for jobs of the QOS `HIGH`.
pub(crate) const LOW: &str = "low";
/// Name of the QOS that may preempt [`LOW`].
pub(crate) const HIGH: &str = "high";

/// Time of the simulated clock at which every simulation begins.
pub(crate) const BEGIN: Time = Time::from_secs(1_800_000_000);

/// Configuration of a simulated world.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) names: Vec<String>,
    pub(crate) cores: u32,
    pub(crate) memory_mb: u64,
    /// Children of a node in a healthy tree; 0: all nodes connect to the controller.
    pub(crate) tree_width: u32,
    /// Probability that a multicast datagram is lost at a node, in millionths. None: there is no multicast.
    pub(crate) multicast: Option<u32>,
    pub(crate) config: Config,
    /// Number of controllers.
    pub(crate) controllers: u32,
    pub(crate) mutation: Option<Mutation>,
    /// Probability that a program around a job fails, in millionths.
    pub(crate) hook_fails: u32,
    /// Probability that a program which checks a node after a fault fails, in millionths.
    pub(crate) check_fails: u32,
    /// Probability that a node which is switched on does not boot, in millionths.
    pub(crate) boot_fails: u32,
    /// Longest time that a node takes until its daemon starts.
    pub(crate) boots: Span,
    /// Whether the controller signs what it sends, and some nodes are rooted.
    pub(crate) signed: bool,
    /// How long the submit filter takes for a verdict at most. None: there is no filter.
    pub(crate) filter: Option<Span>,
    /// Whether jobs have node fences.
    pub(crate) fences: bool,
    pub(crate) trace: bool,
}

impl Setup {
    /// Creates a setup of equal nodes with the given names.
    pub(crate) fn of(names: Vec<String>, cores: u32, memory_mb: u64) -> Self {
        let (node_lost_s, max_array_size, max_jobs_per_user) = (1_000_000_000, ARRAY_INDEX_MAX, 0);
        let mut config = Config { node_lost_s, max_array_size, max_jobs_per_user, ..Config::default() };
        // A node that is drained stays so, as there is no operator.
        config.health.launch_failures = 0;
        config.nodes.push(NodeConfig { name: hostlist::compress(&names), ..NodeConfig::default() });
        Self {
            names,
            cores,
            memory_mb,
            tree_width: 0,
            multicast: None,
            config,
            controllers: 1,
            mutation: None,
            hook_fails: 0,
            check_fails: 0,
            boot_fails: 0,
            boots: Span::from_secs(25),
            signed: false,
            filter: None,
            fences: false,
            trace: false,
        }
    }
    /// Adds a network to the setup: the nodes are the routers of a torus (`4x4x4`, the first extent varying fastest),
    /// or groups of `size` nodes under leaf switches with one switch above them, or in blocks.
    pub(crate) fn on_network(mut self, kind: &str, size: &str) -> Result<Self, String> {
        let nodes = hostlist::compress(&self.names);
        let each = size.parse::<usize>().ok().filter(|n| *n > 0);
        let groups = || {
            let each = each.ok_or_else(|| format!("{kind}={size}: a number of nodes is needed"))?;
            Ok::<_, String>(self.names.chunks(each).map(hostlist::compress).enumerate())
        };
        let text = match kind {
            "leaf" => {
                let leaves: Vec<String> =
                    groups()?.map(|(at, nodes)| format!("SwitchName=s{at} Nodes={nodes}\n")).collect();
                format!("{}SwitchName=top Switches=s[0-{}]\n", leaves.concat(), leaves.len().saturating_sub(1))
            }
            "block" => {
                let blocks: Vec<String> =
                    groups()?.map(|(at, nodes)| format!("BlockName=b{at} Nodes={nodes}\n")).collect();
                format!("{}BlockSizes={size}\n", blocks.concat())
            }
            _ => format!("TorusName=t Dims={size} Nodes={nodes}\n"),
        };
        self.config.topology = TopologyFile { name: "topology.conf".into(), text };
        self.network().map(|_| self).map_err(|fault| fault.to_string())
    }
    /// Returns the network; each node's number is its index in `names`.
    pub(crate) fn network(&self) -> Result<Topology, TopologyFault> {
        let TopologyFile { name, text } = &self.config.topology;
        if text.is_empty() {
            return Ok(Topology::default());
        }
        let node = |wanted: &str| self.names.iter().position(|name| name == wanted).map(|at| NodeId(at as u32));
        let found = Topology::read(&Source { name, text, ..Source::default() }, &node, &self.names)?;
        found.oddities().first().cloned().map_or(Ok(found), Err)
    }
    pub(crate) fn hardware(&self) -> Hardware {
        Hardware {
            cpus: self.cores,
            sockets: 1,
            cores_per_socket: self.cores,
            threads_per_core: 1,
            memory_mb: self.memory_mb,
            arch: "sim".into(),
            os: "sim".into(),
            interfaces: self.config.checkpoint_shared.then(Vec::new),
            ..Hardware::default()
        }
    }
}
