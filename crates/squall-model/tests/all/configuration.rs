//! The table of configuration keys and its reference page, against the reader of configuration files.
#![expect(clippy::disallowed_methods, reason = "the page is written here")]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use squall_model::config::TopologyFile;
use squall_model::config::{
    Accounting, Config, ControllerConfig, Energy, FromSlurm, GresConfig, HealthConfig, Hooks, Key, NodeConfig,
    PartitionConfig, PowerConfig, Rest, SECTIONS, Section, SharedLog, Submit, SwitchConfig,
};
use squall_model::encoding::{from_slice, to_vec};
use squall_model::wire::client::Answer;
use toml::Table;

/// Returns a line of a configuration file in its table.
fn file(section: &Section, line: &str) -> String {
    match (section.table, section.repeated) {
        ("", _) => format!("{line}\n"),
        (table, true) => format!("[[{table}]]\n{line}\n"),
        (table, false) => format!("[{table}]\n{line}\n"),
    }
}

/// Returns all names of keys that the reader takes in a table: it lists them in the error about an unknown one.
fn taken(section: &Section) -> BTreeSet<String> {
    let error = toml::from_str::<Config>(&file(section, "zzzz = 1")).unwrap_err().to_string();
    let (_, listed) = error.split_once("unknown field `zzzz`").unwrap();
    listed.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns the default values of the keys of a table.
fn defaults(table: &str) -> Table {
    match table {
        "" => Table::try_from(Config::default()),
        "nodes" => Table::try_from(NodeConfig::default()),
        "partitions" => Table::try_from(PartitionConfig::default()),
        "gres" => Table::try_from(GresConfig::default()),
        "switches" => Table::try_from(SwitchConfig::default()),
        "topology" => Table::try_from(TopologyFile::default()),
        "rest" => Table::try_from(Rest::default()),
        "hooks" => Table::try_from(Hooks::default()),
        "health" => Table::try_from(HealthConfig::default()),
        "power" => Table::try_from(PowerConfig::default()),
        "controllers" => Table::try_from(ControllerConfig::default()),
        "log" => Table::try_from(SharedLog::default()),
        "submit" => Table::try_from(Submit::default()),
        "accounting" => Table::try_from(Accounting::default()),
        "energy" => Table::try_from(Energy::default()),
        "slurm" => Table::try_from(FromSlurm::default()),
        other => panic!("{other}: give the test its type"),
    }
    .unwrap()
}

/// Returns the lines without which a key has no meaning.
fn beside(section: &Section, key: &Key) -> &'static str {
    match (section.table, key.name) {
        ("partitions", "suspend_time_s" | "power_down_on_idle") => {
            "\n[power]\nsuspend_program = \"/off\"\nresume_program = \"/on\""
        }
        (_, "suspend_time_s") => "\nsuspend_program = \"/off\"\nresume_program = \"/on\"",
        _ => "",
    }
}

#[test]
fn the_table_has_the_keys_that_the_reader_takes() {
    let tables: BTreeSet<&str> = SECTIONS.iter().map(|section| section.table).collect();
    for table in &tables {
        let sections: Vec<&Section> = SECTIONS.iter().filter(|section| section.table == *table).collect();
        let keys = sections.iter().flat_map(|section| section.keys);
        let mut names: Vec<&str> = keys.flat_map(|key| [&[key.name], key.slurm].concat()).collect();
        if table.is_empty() {
            names.extend(tables.iter().filter(|table| !table.is_empty()));
        }
        let known: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(known.len(), names.len(), "a key of [{table}] stands twice");
        assert_eq!(
            known,
            taken(sections[0]),
            "[{table}]: the table in model/config/keys.rs, and what the reader takes"
        );
    }
}

#[test]
fn every_example_is_taken_and_changes_the_default() {
    for section in SECTIONS {
        for key in section.keys {
            for name in [&[key.name], key.slurm].concat() {
                let text = file(section, &format!("{name} = {}{}", key.example, beside(section, key)));
                let read = Config::from_toml(&text);
                assert!(read.is_ok(), "{text}{}", read.unwrap_err());
            }
            let example: Table = toml::from_str(&format!("{} = {}", key.name, key.example)).unwrap();
            assert_ne!(example.get(key.name), defaults(section.table).get(key.name), "{}: its default", key.name);
        }
    }
}

#[test]
fn what_holds_without_a_default_is_said() {
    for section in SECTIONS {
        let defaults = defaults(section.table);
        for key in section.keys {
            let has = defaults.contains_key(key.name);
            assert_eq!(has, key.unset.is_empty(), "{}: `unset` is for keys without a default", key.name);
        }
    }
}

#[test]
fn those_who_ask_are_told_the_ports_too() {
    let config = Config::from_toml("slurmctld_port = 7777\n[log]\nlease_s = 5\n").unwrap();
    let answer = to_vec(&Answer::Config(Box::new(config)));
    let Ok(Answer::Config(config)) = from_slice(&answer) else { panic!("it can be read") };
    assert_eq!((config.slurmctld_port.0, config.log.0.lease_s), (7777, 5));
}

/// Returns the row of a key in the reference.
fn row(section: &Section, key: &Key) -> String {
    let default = defaults(section.table).get(key.name).map(|value| format!("`{value}`"));
    let default = default.unwrap_or_else(|| key.unset.to_owned());
    let taken = key.slurm.iter().map(|name| format!("`{name}`"));
    let slurm: Vec<String> = taken.chain(key.akin.iter().map(|name| format!("(`{name}`)"))).collect();
    let cells = [
        format!("`{}`", key.name),
        slurm.join(", "),
        key.form(),
        default,
        format!("`{}`", key.example),
        key.what.to_owned(),
    ];
    format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
}

/// Returns the reference page.
fn page() -> String {
    let mut text = String::from(
        "# Configuration reference\n\n\
         All keys of `squall.toml`. The file is TOML, every key has a default, and an unknown key is an error with its line.\n\
         Keys have Squall's name or Slurm's. A name of Slurm in parentheses has the same purpose, but values of another\n\
         form, so the file can't have it. A list of names may be a text with commas, and a boolean of a partition may be\n\
         `\"YES\"` or `\"NO\"`. Keys outside tables stand at the top of the file, before the first `[[...]]`. Reservations are\n\
         not configured: `scontrol create reservation` makes them.\n\n\
         This page is made from `crates/squall-model/src/config/keys.rs`; a test keeps them in step.\n",
    );
    for section in SECTIONS {
        let _ = write!(text, "\n## {}\n\n", section.title);
        match (section.table, section.repeated) {
            ("", _) => {}
            (table, true) => text.extend(["In `[[", table, "]]`. "]),
            (table, false) => text.extend(["In `[", table, "]`. "]),
        }
        let about = format!("{}\n\n", section.about);
        text.push_str(if section.about.is_empty() { "" } else { &about });
        text.push_str("| key | Slurm's name | type | default | example | meaning |\n|---|---|---|---|---|---|\n");
        text.extend(section.keys.iter().map(|key| row(section, key)));
    }
    text
}

#[test]
fn the_reference_is_in_step_with_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
    let page = page();
    if std::env::var_os("SQUALL_WRITE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "run this test with SQUALL_WRITE_DOCS=1 to write {}", path.display());
}
