//! JSON of `scontrol show reservation --json`.

use serde_json::{Value, json};
use squall_model::license;
use squall_model::reservation::{Flag, Reservation};
use squall_model::wire::info::ReservationInfo;

use crate::shapes::{number, time};

/// Returns what a reservation keeps, as `cpu=8,license/fluent=2`.
pub fn tres(one: &ReservationInfo) -> String {
    let licenses = one.reservation.licenses.as_deref().and_then(license::parse).unwrap_or_default();
    let licenses = licenses.iter().map(|(name, count)| format!("license/{name}={count}"));
    let cpus = Some(one.cpus).filter(|cpus| *cpus > 0).map(|cpus| format!("cpu={cpus}"));
    cpus.into_iter().chain(licenses).collect::<Vec<_>>().join(",")
}

/// Returns the flags of a reservation, without those that only matter when it is made: older clients of Slurm do not know
/// these.
pub(super) fn flags(one: &Reservation) -> Vec<&'static str> {
    let told = |flag: &&Flag| !matches!(flag, Flag::ForceStart | Flag::ReplaceDown);
    one.flags.iter().filter(told).map(|flag| flag.name()).collect()
}

/// Returns the JSON of a reservation.
pub fn reservation(one: &ReservationInfo) -> Value {
    let own = &one.reservation;
    json!({
        "accounts": own.accounts.join(","),
        "core_count": one.cores,
        "end_time": time(Some(own.end)),
        "comment": own.comment.as_deref().unwrap_or_default(),
        "features": own.features.as_deref().unwrap_or_default(),
        "flags": flags(own),
        "groups": own.group_names().collect::<Vec<_>>().join(","),
        "licenses": own.licenses.as_deref().unwrap_or_default(),
        "name": own.name,
        "node_count": own.nodes.len(),
        "node_list": one.nodes,
        "partition": own.partition.as_deref().unwrap_or_default(),
        "purge_completed": {"time": number(own.purge_s)},
        "start_time": time(Some(own.start)),
        "tres": tres(one),
        "users": own.users.join(","),
    })
}
