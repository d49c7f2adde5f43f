//! Every key of the configuration, set and read back: by `scontrol show config`, `squall check`, the reference page, and
//! the import of what was shown.

use std::collections::BTreeMap;
use std::fmt::Write;

use squall_model::config::{Config, Key, SECTIONS};

use super::config::as_file;
use crate::command::check;
use crate::command::import::tests::toml_of;
use squall_text::columns::settings::{own_host, settings};

const REFERENCE: &str = include_str!("../../../../../docs/reference/configuration.md");

/// Keys that the import of what was shown does not bring back: job_container.conf names the folder, Slurm has no time
/// slices below a second, a port is for nodes elsewhere, slurm.conf does not say where servers listen and keep logs, and
/// job_submit.lua is beside slurm.conf.
const LOST: &[&str] =
    &["private_tmp", "scheduler_time_slice", "slurmd_port", "log.lease_s", "rest.listen", "submit.lua"];

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

/// Returns what `scontrol show config` says of a file.
fn shown(text: &str) -> BTreeMap<&'static str, String> {
    let config = Config::from_toml(text);
    settings(&config.unwrap_or_else(|problem| panic!("{text}{problem}"))).unwrap().into_iter().collect()
}

/// Returns a line of `show config` as slurm.conf has it: without the unit, and defaults of jobs each by itself.
fn line(name: &str, value: &str) -> String {
    if name == "JobDefaults" {
        return format!("{value}\n");
    }
    let value = [" sec", " nodes/min", " min"].iter().find_map(|unit| value.strip_suffix(unit)).unwrap_or(value);
    format!("{name}={value}\n")
}

/// Checks finding F2 of the review: four lists of keys had drifted apart.
#[test]
fn every_key_is_read_back_as_it_was_set() {
    let (mut text, mut lost) = (String::new(), Vec::new());
    let sections = || SECTIONS.iter().filter(|section| !section.repeated);
    for (section, key) in sections().flat_map(|section| section.keys.iter().map(move |key| (section, key))) {
        let (path, [others, slurms]) = (section.path(key), beside(key));
        assert!(REFERENCE.contains(&format!("\n| `{}` |", key.name)), "{path}: the reference has no row");
        let (before, after) = (shown(others), shown(&format!("{path} = {}\n{others}", key.example)));
        let told: Vec<(&str, &String)> =
            after.iter().filter(|(name, value)| before.get(*name) != Some(value)).map(|(n, v)| (*n, v)).collect();
        let lines: Vec<String> = told.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let _ = writeln!(text, "{path} = {}: {}", key.example, lines.join(", "));
        let named = key.shown().is_none_or(|(name, _)| told.iter().any(|(told, _)| *told == name));
        assert!(named, "{path} = {}: `show config` does not tell it", key.example);
        let lines = told.iter().map(|(name, value)| line(name, value));
        let made = toml_of(&lines.chain([slurms.to_owned()]).collect::<String>());
        let again = shown(&made);
        if told.iter().any(|(name, value)| again.get(name) != Some(*value)) {
            lost.push(path);
        }
    }
    assert_eq!(lost, LOST, "keys that the import of what was shown does not bring back");
    insta::assert_snapshot!("every_key", text);
    let mut names: Vec<&str> = settings(&Config::default()).unwrap().iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    assert!(names.is_sorted_by(|a, b| a < b), "a constant stands beside a key: {names:?}");
    let config = Config::from_toml("cluster = \"lab\"\n").unwrap();
    assert_eq!(check::shown(&config), "cluster lab, this machine as its node, 1 partition");
}

#[test]
fn addresses_of_controllers_are_told_and_written_as_they_were_read() {
    let host = |text: &str| own_host(&Config::from_toml(text).unwrap(), "head");
    assert_eq!((host(""), host("SlurmctldHost = \"head\"")), ("head".to_owned(), "head".to_owned()));
    assert_eq!(host("SlurmctldHost = \"10.0.0.1\""), "head(10.0.0.1)");
    let text =
        "[log]\netcd = [\"a:2379\"]\n[[controllers]]\naddress = \"a:6817\"\n[[controllers]]\naddress = \"b:6817\"\n";
    let config = Config::from_toml(text).unwrap().as_controller("b").unwrap();
    let again = Config::from_toml(&as_file(config).to_toml().unwrap()).unwrap();
    assert_eq!((again.check_controllers(), again.controllers.0.len()), (Ok(()), 2));
}
