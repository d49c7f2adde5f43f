//! The partitions that a script sees (`part_list`).

use mlua::{Lua, Table};
use squall_model::config::{PartitionConfig, PartitionState};
use squall_model::gang::OverSubscribe;
use squall_model::job::Owner;

use crate::constants::{INFINITE, NO_VAL};
use crate::desc::Value;
use crate::script::to_lua;
use crate::values::{minutes, number, text};

/// A partition with its table.
pub(crate) struct Partition {
    config: PartitionConfig,
    table: Table,
}

impl Partition {
    pub(crate) fn new(lua: &Lua, config: &PartitionConfig) -> mlua::Result<Self> {
        let table = lua.create_table()?;
        for (name, value) in fields(config) {
            table.raw_set(name, to_lua(lua, value)?)?;
        }
        Ok(Self { config: config.clone(), table })
    }

    /// Returns whether a user may use the partition.
    fn is_for(&self, owner: &Owner) -> bool {
        let PartitionConfig { allow_users, allow_groups, root_only, disable_root_jobs, .. } = &self.config;
        if owner.uid == 0 {
            return *disable_root_jobs != Some(true);
        }
        let user = allow_users.is_empty() || allow_users.contains(&owner.user);
        user && !root_only && (allow_groups.is_empty() || allow_groups.contains(&owner.group))
    }
}

/// Returns the table of the partitions that a user may use, by name.
pub(crate) fn seen_by(lua: &Lua, all: &[Partition], owner: &Owner) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for partition in all.iter().filter(|partition| partition.is_for(owner)) {
        table.raw_set(partition.config.name.as_str(), &partition.table)?;
    }
    Ok(table)
}

/// Returns names and values of a partition's fields.
pub(crate) fn fields(config: &PartitionConfig) -> Vec<(&'static str, Value)> {
    let list = |names: &[String]| text(&names.join(","));
    let mb = |mb: u64| if mb == 0 { Value::Nil } else { Value::Int(mb as i64) };
    let time = |seconds| match seconds {
        None => Value::Int(INFINITE),
        seconds => minutes(seconds),
    };
    let share = match config.oversubscribe {
        OverSubscribe::No => 1,
        OverSubscribe::Exclusive => 0,
        OverSubscribe::Yes(count) => i64::from(count),
        OverSubscribe::Force(count) => i64::from(count) | 0x8000,
    };
    // Slurm's bits: 1, submissions are taken; 2, jobs are started.
    let state = match config.state {
        PartitionState::Up => 3,
        PartitionState::Down => 1,
        PartitionState::Drain => 2,
        PartitionState::Inactive => 0,
    };
    let (most, fewest) = (number(config.max_nodes, INFINITE), Value::Int(config.min_nodes.into()));
    vec![
        ("allow_accounts", list(&config.allow_accounts)),
        ("allow_groups", list(&config.allow_groups)),
        ("allow_qos", list(&config.allow_qos)),
        ("billing_weights_str", text(config.tres_billing_weights.as_str())),
        ("default_time", config.default_time_s.map_or(Value::Int(NO_VAL), |s| minutes(Some(s)))),
        ("def_mem_per_cpu", mb(config.def_mem_per_cpu_mb)),
        ("def_mem_per_node", mb(config.def_mem_per_node_mb)),
        ("deny_accounts", list(&config.deny_accounts)),
        ("deny_qos", list(&config.deny_qos)),
        ("flag_default", Value::Int(config.default.into())),
        ("flags", Value::Int(config.default.into())),
        ("max_cpus_per_node", number(config.max_cpus_per_node, INFINITE)),
        ("max_cpus_per_socket", number(config.max_cpus_per_socket, INFINITE)),
        ("max_mem_per_cpu", mb(config.max_mem_per_cpu_mb)),
        ("max_mem_per_node", mb(config.max_mem_per_node_mb)),
        ("max_nodes", most.clone()),
        ("max_nodes_orig", most),
        ("max_oversubscribe", Value::Int(share)),
        ("max_share", Value::Int(share)),
        ("max_time", time(config.max_time_s)),
        ("min_nodes", fewest.clone()),
        ("min_nodes_orig", fewest),
        ("name", text(&config.name)),
        ("nodes", text(&config.nodes)),
        ("priority_job_factor", Value::Int(config.priority_job_factor.into())),
        ("priority_tier", Value::Int(config.priority_tier.into())),
        ("qos", text(&config.qos)),
        ("state_up", Value::Int(state)),
    ]
}
