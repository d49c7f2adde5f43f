//! JSON of `resources/{job_id}`: what a running job holds on each of its nodes.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use squall_model::hostlist;
use squall_model::wire::info::NodeInfo;

use crate::format::job::JobRow;
use crate::shapes::number;

/// Returns the nodes of a job, each with the job's cores, memory in MiB, and devices.
pub fn layout(row: &JobRow, nodes: &[NodeInfo]) -> Vec<Value> {
    let run = row.info.run();
    let expand = |hosts: &str| hostlist::expand(hosts).unwrap_or_default();
    let known: BTreeMap<&str, &NodeInfo> = nodes.iter().map(|node| (node.name.as_str(), node)).collect();
    let mut held: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (hosts, words) in &run.gres {
        for name in expand(hosts) {
            held.entry(name).or_default().extend(devices(words));
        }
    }
    let mut all = Vec::new();
    for (hosts, cores, memory_mb) in &run.per_node {
        for name in expand(hosts) {
            let hardware = known.get(name.as_str()).map(|node| &node.hardware);
            all.push(json!({
                "gres": held.remove(&name).unwrap_or_default(),
                "sockets_per_node": hardware.map_or(0, |hardware| hardware.sockets),
                "cores_per_socket": hardware.map_or(0, |hardware| hardware.cores_per_socket),
                "mem_alloc": memory_mb,
                "core_bitmap": cores,
                "channel": number(None),
                "node": name,
            }));
        }
    }
    all
}

/// Returns the devices of a text such as `gpu:a100:2(IDX:0,2),nic:1(IDX:0)`.
fn devices(words: &str) -> Vec<Value> {
    let mut depth = 0_u32;
    let each = words.split(|letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    });
    each.filter(|word| !word.is_empty()).map(device).collect()
}

fn device(word: &str) -> Value {
    let (what, index) = word.split_once('(').unwrap_or((word, ""));
    let index = index.trim_end_matches(')');
    let (what, count) = match what.rsplit_once(':') {
        Some((what, count)) if count.bytes().all(|byte| byte.is_ascii_digit()) => (what, count.parse().unwrap_or(0)),
        _ => (what, 1_u64),
    };
    let (name, kind) = what.split_once(':').unwrap_or((what, ""));
    json!({"name": name, "type": kind, "count": count, "index": index.strip_prefix("IDX:").unwrap_or(index)})
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::devices;

    #[test]
    fn devices_are_read() {
        let all = devices("gpu:a100:2(IDX:0,2),nic:1(IDX:0),shard:3,lic");
        let one = |name, kind, count, index| json!({"name": name, "type": kind, "count": count, "index": index});
        assert_eq!(
            all,
            [one("gpu", "a100", 2, "0,2"), one("nic", "", 1, "0"), one("shard", "", 3, ""), one("lic", "", 1, "")]
        );
        assert!(devices("").is_empty());
    }
}
