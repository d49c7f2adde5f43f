//! JSON of `sshare --json`: fair shares.

use serde_json::{Value, json};
use squall_model::policy::Tres;
use squall_model::wire::priority_info::Share;

use crate::shapes::number;

/// Returns the JSON of the shares `wanted`. `all` is the complete list, in which associations follow their parent
/// account.
pub fn shares(all: &[Share], wanted: &[Share], cluster: &str) -> Value {
    let list: Vec<Value> = wanted.iter().map(|share| line(share, parent(all, share), cluster)).collect();
    let total: u64 = all.iter().filter(|share| share.depth == 1).filter_map(|share| share.shares).map(u64::from).sum();
    json!({"shares": list, "total_shares": total})
}

/// Returns the parent account of a share: the closest earlier entry of `all` with a smaller depth. Empty: none.
fn parent<'a>(all: &'a [Share], share: &Share) -> &'a str {
    let at = all.iter().position(|other| other == share).unwrap_or(0);
    all[..at].iter().rev().find(|other| other.depth < share.depth).map_or("", |above| above.account.as_str())
}

fn line(share: &Share, parent: &str, cluster: &str) -> Value {
    let [cpu, memory_mb, node] = share.run_minutes.map(|minutes| minutes * 60);
    let billing = share.billing_minutes.map_or(cpu, |minutes| minutes * 60);
    let kinds = [(Tres::Cpu, cpu), (Tres::Mem, memory_mb), (Tres::Node, node), (Tres::Billing, billing)];
    let running: Vec<Value> =
        kinds.map(|(tres, seconds)| json!({"name": tres.name(), "value": number(Some(seconds))})).into();
    let limit = |(tres, minutes): &(Tres, u64)| json!({"name": tres.name(), "value": number(Some(*minutes))});
    let mut usage = vec![json!({"name": "cpu", "value": share.cpu_usage.unwrap_or(share.raw_usage).0})];
    if share.cpu_usage.is_some() {
        usage.push(json!({"name": "billing", "value": share.raw_usage.0}));
    }
    let user = !share.user.is_empty();
    json!({
        "id": share.id,
        "cluster": cluster,
        "name": if user { &share.user } else { &share.account },
        "parent": if user { &share.account } else { parent },
        "partition": share.partition,
        "shares_normalized": share.norm_shares.0,
        "shares": number(share.shares.map(u64::from)),
        "tres": {
            "run_seconds": running,
            "group_minutes": share.group_minutes.iter().map(limit).collect::<Vec<_>>(),
            "usage": usage,
        },
        "effective_usage": share.effective_usage.0,
        "usage_normalized": share.norm_usage.0,
        "usage": share.raw_usage.0 as u64,
        // The level of an association without usage is infinite, which JSON can't express.
        "fairshare": {"factor": share.fairshare.0, "level": share.level.0.min(f64::MAX)},
        "type": [if user { "USER" } else { "ASSOCIATION" }],
    })
}
