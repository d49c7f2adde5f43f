//! JSON of `scontrol show reservation --json`.

use serde_json::{Value, json};
use squall_model::wire::info::ReservationInfo;

use crate::shapes::time;

/// Returns the JSON of a reservation.
pub fn reservation(one: &ReservationInfo) -> Value {
    let own = &one.reservation;
    json!({
        "accounts": own.accounts.join(","),
        "core_count": one.cores,
        "end_time": time(Some(own.end)),
        "features": own.features.as_deref().unwrap_or_default(),
        "flags": own.flags.iter().map(|flag| flag.name()).collect::<Vec<_>>(),
        "name": own.name,
        "node_count": own.nodes.len(),
        "node_list": one.nodes,
        "partition": own.partition.as_deref().unwrap_or_default(),
        "start_time": time(Some(own.start)),
        "tres": format!("cpu={}", one.cpus),
        "users": own.users.join(","),
    })
}
