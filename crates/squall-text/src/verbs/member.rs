//! `scontrol create nodename=`: nodes that the configuration does not name.

use squall_model::config::{NodeConfig, NodeStart};

use super::key::Set::{Names, Own, Text};
use super::key::{Bad, Key, key, unquoted};

/// Slurm's message about the states in which a node can be created.
pub const STATES: &str = "Valid states are: CLOUD FUTURE UNKNOWN\nA node that never joined has no other state";

/// The keys. An abbreviation means the first key that it fits.
pub static KEYS: &[Key<NodeConfig>] = &[
    key(&[("NodeName", 3)], "", Text(|to, names| to.name = names)),
    key(&[("CPUs", 3)], "", Own(|to, _, value| count(value).map(|count| to.cpus = count))),
    key(&[("Sockets", 3)], "", Own(|to, _, value| count(value).map(|count| to.sockets = count))),
    key(&[("CoresPerSocket", 5)], "", Own(|to, _, value| count(value).map(|count| to.cores_per_socket = count))),
    key(&[("ThreadsPerCore", 3)], "", Own(|to, _, value| count(value).map(|count| to.threads_per_core = count))),
    key(&[("RealMemory", 4)], "", Own(memory)),
    key(&[("Features", 1)], "", Names(features)),
    key(&[("Weight", 1)], "", Own(|to, _, value| value.parse().map(|w| to.weight = Some(w)).map_err(|_| Bad::Value))),
    key(&[("Gres", 1)], "", Text(|to, gres| to.gres = unquoted(&gres))),
    key(&[("State", 2)], "", Own(state)),
];

fn count(value: &str) -> Result<Option<u32>, Bad> {
    value.parse().ok().filter(|count| *count > 0).map(Some).ok_or(Bad::Value)
}

fn features(to: &mut NodeConfig, _: Option<char>, names: Vec<String>) {
    to.features = names.into_iter().map(|name| unquoted(&name)).filter(|name| !name.is_empty()).collect();
}

fn memory(to: &mut NodeConfig, _: Option<char>, value: &str) -> Result<(), Bad> {
    to.memory_mb = Some(value.parse().ok().filter(|mb| *mb > 0).ok_or(Bad::Value)?);
    Ok(())
}

fn state(to: &mut NodeConfig, _: Option<char>, value: &str) -> Result<(), Bad> {
    to.state = match value.to_ascii_uppercase().as_str() {
        "FUTURE" => NodeStart::Future,
        "CLOUD" => NodeStart::Cloud,
        "UNKNOWN" => NodeStart::Unknown,
        _ => return Err(Bad::Because(STATES.replace('\n', ": "))),
    };
    Ok(())
}
