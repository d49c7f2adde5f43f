//! Fields of nodes and partitions that sinfo can print: one table for `-o` and `-O`.

use std::rc::Rc;

use squall_model::duration::{format_short, whole_minutes};
use squall_model::hostlist;
use squall_model::wire::info::{NodeInfo, PartitionInfo};

use crate::format::Field;
use crate::format::clock::Clock;
use crate::format::node::{Base, NodeState, faults};
use crate::format::words;

/// A group of nodes that are printed on one line.
#[derive(Debug)]
pub struct Group {
    /// Partition of the group. None: the nodes are in no partition.
    pub partition: Option<Rc<PartitionInfo>>,
    /// Nodes of the group; they have the same values in all fields that separate lines.
    pub nodes: Vec<Rc<NodeInfo>>,
    /// The current time, time zone and format of times.
    pub clock: Rc<Clock>,
    /// Name of the cluster.
    pub cluster: Rc<str>,
    /// Name of the user who set the reason of the group's nodes; empty if there is no reason.
    pub reason_user: String,
}

/// Numbers of nodes or of CPUs, by whether they are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of CPUs or nodes in use.
    pub allocated: u64,
    /// Number of CPUs or nodes that are free.
    pub idle: u64,
    /// Number of CPUs or nodes that are neither in use nor free.
    pub other: u64,
    /// Number of CPUs or nodes in total.
    pub total: u64,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}/{}", self.allocated, self.idle, self.other, self.total)
    }
}

impl Group {
    fn first(&self) -> Option<&NodeInfo> {
        self.nodes.first().map(|n| &**n)
    }

    /// Returns the state of the group's nodes. None: the group has no nodes.
    pub fn state(&self) -> Option<NodeState> {
        self.first().map(NodeState::of)
    }

    /// Returns the names of the nodes as a host list.
    pub fn names(&self) -> String {
        hostlist::compress(self.nodes.iter().map(|n| n.name.as_str()))
    }

    /// Counts the CPUs of the group's nodes.
    pub fn cpus(&self) -> Counts {
        let mut counts = Counts::default();
        for node in &self.nodes {
            let (all, used) = (u64::from(node.hardware.cpus), u64::from(node.cpus_used));
            let free = all.saturating_sub(used);
            counts.total += all;
            counts.allocated += used;
            *(if NodeState::of(node).usable() { &mut counts.idle } else { &mut counts.other }) += free;
        }
        counts
    }

    /// Counts the group's nodes.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for node in &self.nodes {
            let state = NodeState::of(node);
            counts.total += 1;
            let kind = if state.busy() || state.completing && state.base == Base::Idle {
                &mut counts.allocated
            } else if state.usable() {
                &mut counts.idle
            } else {
                &mut counts.other
            };
            *kind += 1;
        }
        counts
    }

    /// Formats the least value of a number over the group's nodes: `4`, or `4+` if some nodes have more.
    fn least(&self, of: fn(&NodeInfo) -> u64) -> String {
        let low = self.nodes.iter().map(|n| of(n)).min().unwrap_or(0);
        let high = self.nodes.iter().map(|n| of(n)).max().unwrap_or(0);
        if low == high { low.to_string() } else { format!("{low}+") }
    }

    /// Formats a value measured on each node that is up: `1.5`, or `1.5-4.0` from the lowest to the highest.
    fn measured(&self, of: fn(&NodeInfo) -> u64, show: fn(u64) -> String) -> String {
        let all = || self.nodes.iter().filter(|node| node.up).map(|node| of(node));
        match all().min().zip(all().max()) {
            None => "N/A".to_owned(),
            Some((low, high)) if low == high => show(low),
            Some((low, high)) => format!("{}-{}", show(low), show(high)),
        }
    }

    fn part(&self, of: impl Fn(&PartitionInfo) -> String) -> String {
        self.partition.as_deref().map_or_else(|| "n/a".to_owned(), of)
    }

    fn node(&self, of: impl Fn(&NodeInfo) -> String, none: &str) -> String {
        self.first().map_or_else(|| none.to_owned(), of)
    }
}

fn limit(seconds: Option<u64>) -> String {
    seconds.map_or_else(|| "infinite".to_owned(), |s| format_short(whole_minutes(s)))
}

fn job_size(p: &PartitionInfo) -> String {
    let (min, max) = (p.config.min_nodes, p.config.max_nodes);
    match max {
        None => format!("{min}-infinite"),
        Some(max) if max == min => min.to_string(),
        Some(max) => format!("{min}-{max}"),
    }
}

fn null(text: String) -> String {
    if text.is_empty() { "(null)".to_owned() } else { text }
}

fn reason(g: &Group) -> Option<&(String, u32, squall_model::time::Time)> {
    g.first()?.reason.as_ref()
}

fn reason_user(g: &Group) -> String {
    if reason(g).is_some() { g.reason_user.clone() } else { "Unknown".to_owned() }
}

fn load(g: &Group) -> String {
    g.measured(|n| u64::from(n.load_centi), |centi| format!("{}.{:02}", centi / 100, centi % 100))
}

type F = Field<Group>;

/// Every field that sinfo can print.
pub static FIELDS: &[F] = &[
    F::new(&["AllocMem"], '\0', "ALLOCMEM", |g| g.least(|n| n.memory_used_mb)),
    F::new(&["AllocNodes"], 'S', "ALLOCNODES", |g| {
        g.part(|p| if p.config.alloc_nodes.is_empty() { "all".to_owned() } else { p.config.alloc_nodes.clone() })
    }),
    F::new(&["Available"], 'a', "AVAIL", |g| g.part(|p| words::partition_state(p.config.state).to_owned())),
    F::new(&["Cluster"], 'V', "CLUSTER", |g| g.cluster.to_string()),
    F::new(&["Comment"], '\0', "COMMENT", |g| null(g.node(|n| n.comment.clone(), ""))),
    F::new(&["Cores"], 'Y', "CORES", |g| g.least(|n| u64::from(n.hardware.cores_per_socket))),
    F::new(&["CPUs"], 'c', "CPUS", |g| g.least(|n| u64::from(n.hardware.cpus))),
    F::new(&["CPUsLoad"], 'O', "CPU_LOAD", load),
    F::new(&["CPUsState"], 'C', "CPUS(A/I/O/T)", |g| g.cpus().to_string()),
    F::new(&["DefaultTime"], 'L', "DEFAULTTIME", |g| {
        g.part(|p| p.config.default_time_s.map_or_else(|| "n/a".to_owned(), |s| limit(Some(s))))
    }),
    F::new(&["Disk"], 'd', "TMP_DISK", |g| g.least(|n| n.hardware.tmp_disk_mb)),
    F::new(&["Extra"], '\0', "EXTRA", |g| null(g.node(|n| n.extra.clone(), ""))),
    F::new(&["Faults"], '\0', "FAULTS", |g| null(g.node(|n| faults(n, &g.clock), ""))),
    F::new(&["Features"], 'f', "AVAIL_FEATURES", |g| null(g.node(|n| n.features.join(","), ""))),
    F::new(&["features_act"], 'b', "ACTIVE_FEATURES", |g| null(g.node(|n| n.hardware.features.join(","), ""))),
    F::new(&["FreeMem"], 'e', "FREE_MEM", |g| g.measured(|n| n.free_mb, |mb| mb.to_string())),
    F::new(&["Gres"], 'G', "GRES", |g| null(g.node(|n| n.gres.clone(), ""))),
    F::new(&["GresUsed"], '\0', "GRES_USED", |g| null(g.node(|n| n.gres_used.clone(), ""))),
    F::new(&["Groups"], 'g', "GROUPS", |g| {
        g.part(|p| if p.config.allow_groups.is_empty() { "all".to_owned() } else { p.config.allow_groups.join(",") })
    }),
    F::new(&["MaxCPUsPerNode"], 'B', "MAX_CPUS_PER_NODE", |g| {
        g.part(|p| p.config.max_cpus_per_node.map_or_else(|| "UNLIMITED".to_owned(), |cpus| cpus.to_string()))
    }),
    F::new(&["Memory"], 'm', "MEMORY", |g| g.least(|n| n.hardware.memory_mb)),
    F::new(&["NodeAddr"], 'o', "NODE_ADDR", |g| {
        hostlist::compress(g.nodes.iter().map(|n| n.hardware.address.as_str()).filter(|a| !a.is_empty()))
    })
    .whole(),
    F::new(&["NodeAI"], 'A', "NODES(A/I)", |g| format!("{}/{}", g.counts().allocated, g.counts().idle)),
    F::new(&["NodeAIOT"], 'F', "NODES(A/I/O/T)", |g| g.counts().to_string()),
    F::new(&["NodeHost"], 'n', "HOSTNAMES", Group::names).whole(),
    F::new(&["NodeList"], 'N', "NODELIST", Group::names).whole(),
    F::new(&["Nodes"], 'D', "NODES", |g| g.nodes.len().to_string()),
    F::new(&["OverSubscribe", "Share"], 'h', "OVERSUBSCRIBE", |g| g.part(|p| p.config.oversubscribe.into())),
    F::new(&["Partition"], 'P', "PARTITION", |g| {
        g.part(|p| format!("{}{}", p.config.name, if p.config.default { "*" } else { "" }))
    }),
    F::new(&["PartitionName"], 'R', "PARTITION", |g| g.part(|p| p.config.name.clone())),
    F::new(&["Port"], '\0', "PORT", |_| "6818".to_owned()),
    F::new(&["PreemptMode"], 'M', "PREEMPT_MODE", |g| g.part(|p| words::preempt_mode(p.preempt_mode).to_owned())),
    F::new(&["PriorityJobFactor"], 'I', "PRIO_JOB_FACTOR", |g| g.part(|p| p.config.priority_job_factor.to_string())),
    F::new(&["PriorityTier", "Priority"], 'p', "PRIO_TIER", |g| g.part(|p| p.config.priority_tier.to_string())),
    F::new(&["Reason"], 'E', "REASON", |g| reason(g).map_or("none", |r| r.0.as_str()).to_owned()),
    F::new(&["Reservation"], 'i', "RESERVATION", |g| g.node(|n| n.reservation.clone(), "")),
    F::new(&["Root"], 'r', "ROOT", |g| g.part(|_| "no".to_owned())),
    F::new(&["Size"], 's', "JOB_SIZE", |g| g.part(job_size)),
    F::new(&["Sockets"], 'X', "SOCKETS", |g| g.least(|n| u64::from(n.hardware.sockets))),
    F::new(&["SocketCoreThread"], 'z', "S:C:T", |g| {
        let sockets = g.least(|n| u64::from(n.hardware.sockets));
        let cores = g.least(|n| u64::from(n.hardware.cores_per_socket));
        format!("{sockets}:{cores}:{}", g.least(|n| u64::from(n.hardware.threads_per_core)))
    }),
    F::new(&["StateCompact"], 't', "STATE", |g| g.state().map_or_else(|| "n/a".to_owned(), NodeState::compact)).state(),
    F::new(&["StateComplete"], '\0', "STATECOMPLETE", |g| {
        g.state().map_or_else(|| "n/a".to_owned(), |s| s.list().join("+").to_lowercase())
    }),
    F::new(&["StateLong"], 'T', "STATE", |g| g.state().map_or_else(|| "n/a".to_owned(), NodeState::long)).state(),
    F::new(&["Threads"], 'Z', "THREADS", |g| g.least(|n| u64::from(n.hardware.threads_per_core))),
    F::new(&["Time"], 'l', "TIMELIMIT", |g| g.part(|p| limit(p.config.max_time_s))),
    F::new(&["TimeStamp"], 'H', "TIMESTAMP", |g| g.clock.show_or(reason(g).map(|r| r.2), "Unknown")),
    F::new(&["User"], 'u', "USER", reason_user),
    F::new(&["UserLong"], 'U', "USER", |g| match reason(g) {
        Some((_, uid, _)) => format!("{}({uid})", reason_user(g)),
        None => "Unknown".to_owned(),
    }),
    F::new(&["Version"], 'v', "VERSION", |g| g.node(|n| n.version.clone(), "N/A")),
    F::new(&["Weight"], 'w', "WEIGHT", |g| g.least(|n| u64::from(n.weight))),
];

/// Scope of a field, which decides whether nodes that differ in the field are printed on separate lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldScope {
    /// A property of the partition: partitions that differ in it have separate lines.
    Partition,
    /// A property of a node: nodes that differ in it have separate lines.
    Node,
    /// A size of a node: nodes that differ in it share a line (`4+`), and have separate lines only with `--exact`.
    Size,
    /// A sum or list over the whole group: it does not separate nodes.
    Sum,
}

/// Returns the scope of a field.
pub fn kind(field: &Field<Group>) -> FieldScope {
    match field.names[0] {
        "Available" | "DefaultTime" | "Groups" | "MaxCPUsPerNode" | "OverSubscribe" | "Partition" | "PartitionName"
        | "PreemptMode" | "PriorityJobFactor" | "PriorityTier" | "Root" | "Size" | "Time" => FieldScope::Partition,
        "AllocMem" | "Comment" | "Extra" | "Faults" | "Features" | "features_act" | "Gres" | "GresUsed"
        | "NodeAddr" | "NodeHost" | "Reason" | "Reservation" | "StateCompact" | "StateComplete" | "StateLong"
        | "TimeStamp" | "User" | "UserLong" => FieldScope::Node,
        "Cores" | "CPUs" | "CPUsLoad" | "CPUsState" | "Disk" | "FreeMem" | "Memory" | "Port" | "Sockets"
        | "SocketCoreThread" | "Threads" | "Version" | "Weight" => FieldScope::Size,
        _ => FieldScope::Sum,
    }
}

#[cfg(test)]
mod tests {
    use super::FIELDS;

    #[test]
    fn letters_and_names_are_given_once() {
        let mut letters: Vec<char> = FIELDS.iter().map(|f| f.letter).filter(|l| *l != '\0').collect();
        let count = letters.len();
        letters.sort_unstable();
        letters.dedup();
        assert_eq!(letters.len(), count);
        let mut names: Vec<String> = FIELDS.iter().flat_map(|f| f.names).map(|n| n.to_lowercase()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
