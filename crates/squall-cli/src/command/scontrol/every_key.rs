//! Every key of the configuration, set and read back: by `scontrol show config`, `squall check`, the reference page, and
//! the import of what was shown.

use std::collections::BTreeMap;
use std::fmt::Write;

use squall_model::config::{Config, Key, SECTIONS, Section};

use super::config::settings;
use crate::command::check;
use crate::command::import::tests::toml_of;

const REFERENCE: &str = include_str!("../../../../../docs/reference/configuration.md");

/// Keys with a name of Slurm that `show config` does not tell. Of these it tells a constant, whatever they are set to:
/// memory on each node and for each GPU, folders of jobs, and the ports.
const UNTOLD: &[&str] = &[
    "def_mem_per_node_mb",
    "def_mem_per_gpu_mb",
    "private_tmp",
    "private_tmp_dirs",
    "auto_detect",
    "constrain_devices",
    "constrain_cores",
    "constrain_swap_space",
    "container_runtime",
    "node_lost_action",
    "coscheduling",
    "slurmctld_host",
    "slurmctld_port",
    "slurmd_port",
    "health.timeout_s",
];

/// Keys that the import of what was shown does not bring back: Slurm has no time slices below a second.
const LOST: &[&str] = &["scheduler_time_slice"];

/// Returns the lines of squall.toml without which a key has no meaning or no effect, and the same lines of slurm.conf.
fn beside(key: &Key) -> [&'static str; 2] {
    match key.name {
        "suspend_time_s" => [
            "power.suspend_program = \"/off\"\npower.resume_program = \"/on\"\n",
            "SuspendProgram=/off\nResumeProgram=/on\n",
        ],
        "preempt_mode" => ["preempt_type = \"preempt/partition_prio\"\n", "PreemptType=preempt/partition_prio\n"],
        name if name.starts_with("priority_") && name != "priority_type" => {
            ["priority_type = \"multifactor\"\n", "PriorityType=priority/multifactor\n"]
        }
        _ => [""; 2],
    }
}

fn path(section: &Section, key: &Key) -> String {
    if section.table.is_empty() { key.name.to_owned() } else { format!("{}.{}", section.table, key.name) }
}

/// Returns what `scontrol show config` says of a file.
fn shown(text: &str) -> BTreeMap<&'static str, String> {
    let config = Config::from_toml(text);
    settings(&config.unwrap_or_else(|problem| panic!("{text}{problem}"))).into_iter().collect()
}

/// Returns a line of `show config` as slurm.conf has it: without the unit.
fn line(name: &str, value: &str) -> String {
    let value = [" sec", " nodes/min"].iter().find_map(|unit| value.strip_suffix(unit)).unwrap_or(value);
    format!("{name}={value}\n")
}

/// Checks finding F2 of the review: four lists of keys had drifted apart.
#[test]
fn every_key_is_read_back_as_it_was_set() {
    let (mut text, mut untold, mut lost) = (String::new(), Vec::new(), Vec::new());
    let sections = || SECTIONS.iter().filter(|section| !section.repeated);
    for (section, key) in sections().flat_map(|section| section.keys.iter().map(move |key| (section, key))) {
        let (path, [others, slurms]) = (path(section, key), beside(key));
        assert!(REFERENCE.contains(&format!("\n| `{}` |", key.name)), "{path}: the reference has no row");
        let (before, after) = (shown(others), shown(&format!("{path} = {}\n{others}", key.example)));
        let told: Vec<(&str, &String)> =
            after.iter().filter(|(name, value)| before.get(*name) != Some(value)).map(|(n, v)| (*n, v)).collect();
        let lines: Vec<String> = told.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let _ = writeln!(text, "{path} = {}: {}", key.example, lines.join(", "));
        if told.is_empty() {
            if !key.slurm.is_empty() || !key.akin.is_empty() {
                untold.push(path);
            }
            continue;
        }
        let lines = told.iter().map(|(name, value)| line(name, value));
        let made = toml_of(&lines.chain([slurms.to_owned()]).collect::<String>());
        let again = shown(&made);
        if told.iter().any(|(name, value)| again.get(name) != Some(*value)) {
            lost.push(path);
        }
    }
    assert_eq!(untold, UNTOLD, "keys with a name of Slurm that `show config` does not tell");
    assert_eq!(lost, LOST, "keys that the import of what was shown does not bring back");
    insta::assert_snapshot!("every_key", text);
    let config = Config::from_toml("cluster = \"lab\"\n").unwrap();
    assert_eq!(check::shown(&config), "cluster lab, this machine as its node, 1 partition");
}
