//! `scontrol show node`.

use squall_model::event::NodeAdmin;
use squall_model::hostlist;
use squall_model::time::Time;
use squall_model::wire::info::{NodeInfo, SpecResources};

use crate::command::listing::call::{Call, Fail};
use crate::command::listing::lists::nodes_with;
use crate::command::listing::structured::document;
use crate::command::scontrol::{Manner, count, record};
use squall_text::format::clock::Clock;
use squall_text::format::node::{NodeState, faults, has, holds};
use squall_text::shapes::{self, AnswerKind};

const WHAT: &str = "slurm_load_nodes error";

/// Runs `scontrol show node`: prints the nodes with these names; without names all nodes.
pub(super) fn show(call: &mut Call<'_>, manner: Manner, ids: &[String]) -> Result<(), Fail> {
    let list = ids.join(",");
    let wanted = match hostlist::expand(&list) {
        Ok(names) => names,
        Err(e) => return call.fail(&format!("Invalid node name {list}: {e}")),
    };
    let mut nodes = match nodes_with(call, manner.future) {
        Ok(nodes) => nodes,
        Err(e) => return call.failed(WHAT, &e),
    };
    count(call, manner, nodes.len());
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
        let nodes: Vec<serde_json::Value> = nodes.iter().map(|n| shapes::node::node(n, &cluster, &name)).collect();
        document(
            call,
            dialect,
            &cluster,
            &["scontrol", "show", "nodes"],
            AnswerKind::Nodes,
            vec![("nodes", nodes.into())],
        )
    } else if nodes.is_empty() && wanted.is_empty() {
        "No nodes in the system\n".to_owned()
    } else {
        let clock = call.clock(call.now);
        nodes.iter().map(|node| record(manner.oneliner, &lines(node, &clock, &name))).collect()
    };
    call.print(&text);
    result
}

/// Returns the line about what is kept for the system. None: nothing.
fn kept_line(kept: &SpecResources) -> Option<String> {
    let cores = (kept.cores > 0).then(|| format!("CoreSpecCount={}", kept.cores));
    let list = (!kept.cpu_list.is_empty()).then(|| format!("CPUSpecList={}", kept.cpu_list));
    let memory = (kept.memory_mb > 0).then(|| format!("MemSpecLimit={}", kept.memory_mb));
    let words: Vec<String> = cores.into_iter().chain(list).chain(memory).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Returns the state that a node has after its reboot.
fn next_state(next: NodeAdmin) -> &'static str {
    match next {
        NodeAdmin::Resume => "RESUME",
        NodeAdmin::Down => "DOWN",
        NodeAdmin::Drain => "DRAIN",
        NodeAdmin::Fail => "FAIL",
    }
}

fn lines(node: &NodeInfo, clock: &Clock, name: &dyn Fn(u32) -> String) -> Vec<String> {
    let hardware = &node.hardware;
    let or_null = |list: &[String]| if list.is_empty() { "(null)".to_owned() } else { list.join(",") };
    let free = if node.up { node.free_mb.to_string() } else { "N/A".to_owned() };
    let time = |at: Time| clock.show_or(Some(at), "None");
    let kept = node.kept.clone().unwrap_or_default();
    let mut lines = vec![
        format!("NodeName={} Arch={} CoresPerSocket={} ", node.name, hardware.arch, hardware.cores_per_socket),
        format!(
            "CPUAlloc={} CPUEfctv={} CPUTot={} CPULoad={:.2}",
            node.cpus_used,
            hardware.cpus,
            hardware.cpus + kept.cpus,
            f64::from(node.load_centi) / 100.0
        ),
        format!("AvailableFeatures={}", or_null(&node.features)),
        format!("ActiveFeatures={}", or_null(&hardware.features)),
        format!("Gres={}", if node.gres.is_empty() { "(null)" } else { &node.gres }),
        format!("NodeAddr={} NodeHostName={} Version={}", hardware.address, node.name, node.version),
        format!("OS={} ", hardware.os),
        format!(
            "RealMemory={} AllocMem={} FreeMem={free} Sockets={} Boards=1",
            hardware.memory_mb + kept.memory_mb,
            node.memory_used_mb,
            hardware.sockets
        ),
        format!(
            "State={} ThreadsPerCore={} TmpDisk={} Weight={} Owner=N/A MCS_label=N/A",
            NodeState::of(node).list().join("+"),
            hardware.threads_per_core,
            hardware.tmp_disk_mb,
            node.weight
        ),
        format!("Partitions={} ", node.partitions.join(",")),
        format!("BootTime={} SlurmdStartTime={}", time(Time::from_secs(hardware.boot_time_s)), time(node.registered)),
        format!("LastBusyTime={} ResumeAfterTime={}", time(node.heard), node.resumes.map_or("None".to_owned(), time)),
        format!("CfgTRES={}", has(node)),
        format!("AllocTRES={}", holds(node)),
        "CapWatts=n/a".to_owned(),
        "CurrentWatts=0 AveWatts=0".to_owned(),
        "ExtSensorsJoules=n/a ExtSensorsWatts=0 ExtSensorsTemp=n/a".to_owned(),
    ];
    lines.extend(hardware.confinement.map(|kept| format!("Confinement={}", kept.text())));
    lines.extend(kept_line(&kept));
    if !node.gres.is_empty() {
        lines.insert(5, format!("GresUsed={}", node.gres_used));
    }
    lines.extend(node.next.map(|next| format!("NextState={}", next_state(next))));
    let texts = [("Comment", &node.comment), ("Extra", &node.extra)].into_iter();
    lines.extend(texts.filter(|(_, text)| !text.is_empty()).map(|(key, text)| format!("{key}={text}")));
    if let Some((reason, uid, at)) = &node.reason {
        lines.push(format!("Reason={reason} [{}@{}]", name(*uid), clock.show(*at)));
    }
    if !node.faults.is_empty() {
        lines.push(format!("Faults={}", faults(node, clock)));
    }
    let (id, kind) = &node.instance;
    if !id.is_empty() || !kind.is_empty() {
        let null = |text: &str| if text.is_empty() { "(null)".to_owned() } else { text.to_owned() };
        lines.push(format!("InstanceId={} InstanceType={}", null(id), null(kind)));
    }
    lines
}
