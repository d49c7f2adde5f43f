//! `scontrol show node`.

use std::collections::BTreeMap;

use squall_model::duration::format_memory_mb;
use squall_model::gres;
use squall_model::hostlist;
use squall_model::time::Time;
use squall_model::wire::info::NodeInfo;

use crate::command::listing::call::{Call, Fail};
use crate::command::scontrol::{Manner, record};
use crate::command::sinfo::{all_nodes, json};
use crate::format::clock::Clock;
use crate::format::json::document;
use crate::format::node::NodeState;

const WHAT: &str = "slurm_load_nodes error";

/// Nodes by name, or all.
pub(super) fn show(call: &mut Call<'_>, manner: Manner, ids: &[String]) -> Result<(), Fail> {
    let list = ids.join(",");
    let wanted = match hostlist::expand(&list) {
        Ok(names) => names,
        Err(e) => return call.fail(&format!("Invalid node name {list}: {e}")),
    };
    let mut nodes = match all_nodes(call) {
        Ok(nodes) => nodes,
        Err(e) => return call.failed(WHAT, &e),
    };
    let missing: Vec<&String> = wanted.iter().filter(|w| nodes.iter().all(|n| n.name != **w)).collect();
    for name in &missing {
        if !manner.quiet {
            call.print(&format!("Node {name} not found\n"));
        }
    }
    let result = if missing.is_empty() { Ok(()) } else { Err(Fail(1)) };
    if !wanted.is_empty() {
        nodes.retain(|n| wanted.contains(&n.name));
    }
    let people = call.people;
    let name = |uid: u32| people.user(uid);
    let text = if let Some(dialect) = manner.dialect {
        let cluster = call.cluster(WHAT)?;
        let nodes: Vec<serde_json::Value> = nodes.iter().map(|n| json::node(n, &cluster, &name)).collect();
        document(dialect, &cluster, &["scontrol", "show", "nodes"], vec![("nodes", nodes.into())])
    } else if nodes.is_empty() && wanted.is_empty() {
        "No nodes in the system\n".to_owned()
    } else {
        let clock = call.clock(call.now);
        nodes.iter().map(|node| record(manner.oneliner, &lines(node, &clock, &name))).collect()
    };
    call.print(&text);
    result
}

/// `,gres/gpu=4`: the sum over the types of each name.
fn devices(list: &str) -> String {
    let mut sums: BTreeMap<String, u32> = BTreeMap::new();
    // Commas stand between indices, too.
    let bare: String = list.split('(').map(|part| part.split_once(')').map_or(part, |(_, rest)| rest)).collect();
    for count in gres::parse(&bare).unwrap_or_default() {
        *sums.entry(count.name).or_default() += count.count;
    }
    let words = sums.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!(",gres/{name}={count}"));
    words.collect::<Vec<_>>().concat()
}

fn lines(node: &NodeInfo, clock: &Clock, name: &dyn Fn(u32) -> String) -> Vec<String> {
    let hardware = &node.hardware;
    let features = hardware.features.join(",");
    let features = if features.is_empty() { "(null)" } else { features.as_str() };
    let memory = |mb: u64| if mb > 0 { format!(",mem={}", format_memory_mb(mb)) } else { String::new() };
    let held = if node.cpus_used > 0 {
        format!("cpu={}{}{}", node.cpus_used, memory(node.memory_used_mb), devices(&node.gres_used))
    } else {
        String::new()
    };
    let free = if node.up { node.free_mb.to_string() } else { "N/A".to_owned() };
    let time = |at: Time| clock.show_or(Some(at), "None");
    let mut lines = vec![
        format!("NodeName={} Arch={} CoresPerSocket={} ", node.name, hardware.arch, hardware.cores_per_socket),
        format!(
            "CPUAlloc={} CPUEfctv={} CPUTot={} CPULoad={:.2}",
            node.cpus_used,
            hardware.cpus,
            hardware.cpus,
            f64::from(node.load_centi) / 100.0
        ),
        format!("AvailableFeatures={features}"),
        format!("ActiveFeatures={features}"),
        format!("Gres={}", if node.gres.is_empty() { "(null)" } else { &node.gres }),
        format!("NodeAddr={} NodeHostName={} Version={}", hardware.address, node.name, node.version),
        format!("OS={} ", hardware.os),
        format!(
            "RealMemory={} AllocMem={} FreeMem={free} Sockets={} Boards=1",
            hardware.memory_mb, node.memory_used_mb, hardware.sockets
        ),
        format!(
            "State={} ThreadsPerCore={} TmpDisk={} Weight=1 Owner=N/A MCS_label=N/A",
            NodeState::of(node).list().join("+"),
            hardware.threads_per_core,
            hardware.tmp_disk_mb
        ),
        format!("Partitions={} ", node.partitions.join(",")),
        format!("BootTime={} SlurmdStartTime={}", time(Time::from_secs(hardware.boot_time_s)), time(node.registered)),
        format!("LastBusyTime={} ResumeAfterTime=None", time(node.heard)),
        format!(
            "CfgTRES=cpu={}{},billing={}{}",
            hardware.cpus,
            memory(hardware.memory_mb),
            hardware.cpus,
            devices(&node.gres)
        ),
        format!("AllocTRES={held}"),
        "CapWatts=n/a".to_owned(),
        "CurrentWatts=0 AveWatts=0".to_owned(),
        "ExtSensorsJoules=n/a ExtSensorsWatts=0 ExtSensorsTemp=n/a".to_owned(),
    ];
    if !node.gres.is_empty() {
        lines.insert(5, format!("GresUsed={}", node.gres_used));
    }
    if let Some((reason, uid, at)) = &node.reason {
        lines.push(format!("Reason={reason} [{}@{}]", name(*uid), clock.show(*at)));
    }
    lines
}
