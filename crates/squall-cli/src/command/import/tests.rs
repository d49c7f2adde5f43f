//! Sites: files of Slurm with what must become of them. Each of `sites/*.txt` has sections: Slurm's files, and lines
//! that must be in the report, in squall.toml and in gres.conf, or the error of a file that can't be used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::{ProptestConfig, any, proptest};
use squall_host::config_files::ConfigFiles;
use squall_model::config::Config;

use super::parse::entries;
use super::report::Fate;
use super::translate::{Site, Translation, translate};
use super::{ImportedConfig, beside, read};

/// Sections of a site that say what must become of its files.
const EXPECTED: [&str; 4] = ["report", "toml", "gres", "fails"];

fn sites() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/command/import/sites");
    let mut all: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

fn sections(text: &str) -> BTreeMap<String, String> {
    let parts = text.split("\n=== ").skip(1).filter_map(|part| part.split_once('\n'));
    parts.map(|(name, text)| (name.to_owned(), format!("{text}\n"))).collect()
}

/// Translates the files of a site on a machine of the name `n1`.
fn made(files: &BTreeMap<String, String>) -> Translation {
    let text = |name: &str| files.get(name).map(String::as_str);
    let others: Vec<&'static str> =
        beside::OTHERS.iter().map(|(name, _)| *name).filter(|name| text(name).is_some()).collect();
    let site = Site {
        name: "slurm.conf",
        text: &files["slurm.conf"],
        read: &|name| text(name).map(str::to_owned).ok_or_else(|| "no such file".to_owned()),
        devices: text("gres.conf"),
        confinement: text("cgroup.conf"),
        folders: text("job_container.conf"),
        submit: text("job_submit.lua").map(|_| "/etc/slurm/job_submit.lua"),
        topology: ConfigFiles::TOPOLOGIES.into_iter().find(|name| text(name).is_some()),
        others: &others,
        here: &["localhost".to_owned()],
    };
    translate(&site).unwrap()
}

/// Returns the squall.toml that a slurm.conf becomes.
pub(in crate::command) fn toml_of(text: &str) -> String {
    made(&BTreeMap::from([("slurm.conf".to_owned(), text.to_owned())])).toml
}

/// Reads a site from a folder, as `squall import` does.
fn checked(name: &str, files: &BTreeMap<String, String>) -> Result<ImportedConfig, String> {
    let dir = std::env::temp_dir().join(format!("squall-import-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for (name, text) in files.iter().filter(|(name, _)| !EXPECTED.contains(&name.as_str())) {
        std::fs::write(dir.join(name), text).unwrap();
    }
    let imported = read(&dir);
    std::fs::remove_dir_all(dir).unwrap();
    imported
}

#[test]
fn every_line_of_every_site_is_reported_and_the_result_is_a_configuration() {
    let all = sites();
    assert!(all.len() >= 20, "{all:?}");
    for path in all {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let files = sections(&std::fs::read_to_string(&path).unwrap());
        let made = made(&files);
        let report = made.report.lines(|_| true);
        let read = |file: &str| files.get(file).cloned().ok_or_else(|| "no such file".to_owned());
        for file in ["slurm.conf", "gres.conf", "cgroup.conf"].into_iter().filter(|file| files.contains_key(*file)) {
            for entry in entries(file, &files[file], &read).unwrap() {
                let named = made.report.rows.iter().any(|row| row.origin == entry.origin);
                assert!(named, "{name}: {} is not in the report:\n{report}", entry.origin);
            }
        }
        let sources =
            [("report", report.as_str()), ("toml", &made.toml), ("gres", made.devices.as_deref().unwrap_or(""))];
        for (section, text) in sources {
            for line in files.get(section).iter().flat_map(|lines| lines.lines()).filter(|line| !line.is_empty()) {
                let found = text.lines().any(|own| own.starts_with(line));
                assert!(found, "{name}: `{line}` is not in the {section}:\n{text}");
            }
        }
        match (checked(&name, &files), files.get("fails")) {
            (Ok(imported), None) => {
                let written = Config::from_toml(imported.files.text()).unwrap();
                assert_eq!(written.cluster, imported.checked.config.cluster, "{name}");
            }
            (Err(problem), Some(says)) => assert!(problem.contains(says.trim()), "{name}: {problem}"),
            (result, _) => panic!("{name}: {:?}\n{}", result.err(), made.toml),
        }
    }
}

#[test]
fn a_large_file_with_everything_in_it() {
    let text = include_str!("large.conf");
    assert!(text.lines().count() >= 200);
    let files = BTreeMap::from([("slurm.conf".to_owned(), text.to_owned())]);
    let made = made(&files);
    assert_eq!(
        made.report.count(Fate::Wrong) + made.report.count(Fate::Unknown),
        0,
        "{}",
        made.report.lines(Fate::is_fault)
    );
    let shown = format!("{}{}\n\n{}", made.report.lines(|_| true), made.report.summary(), made.toml);
    insta::assert_snapshot!("large", shown);
    assert_eq!(Config::from_toml(&made.toml).map(|config| config.cluster), Ok("aurora".to_owned()));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_text_makes_the_translation_panic(
        text in any::<String>(),
        lines in proptest::collection::vec(line(), 0..12),
        devices in "((Name|NodeName|File|Count|Cores|AutoDetect)=[a-z0-9\\[\\],:/-]{0,9} ?){0,5}",
    ) {
        for text in [text, lines.join("\n")] {
            let files = BTreeMap::from([
                ("slurm.conf".to_owned(), text),
                ("gres.conf".to_owned(), devices.clone()),
                ("cgroup.conf".to_owned(), devices.clone()),
            ]);
            if !files["slurm.conf"].to_ascii_lowercase().contains("include") {
                made(&files);
            }
        }
    }
}

/// Returns lines with keys of Slurm and values of any kind.
fn line() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::Strategy;
    let value = "(YES|NO|0|-1|4294967296|n\\[1-3\\]|ALL|UNLIMITED|1-0|a,b|\"x y|2G|[^ ]{0,6})";
    let keys = super::keys::KEYS.iter().copied().chain(super::keys::same(""));
    let key = proptest::sample::select(keys.map(|(name, _)| name).collect::<Vec<_>>());
    let global = (key, value).prop_map(|(key, value)| format!("{key}={value}"));
    let words = "((CPUs|Sockets|RealMemory|MemSpecLimit|Gres|State|Nodes|Default|MaxTime|OverSubscribe|Priority)=(YES|9|n1|x:2|UP) ){0,4}";
    let named = ("(NodeName|PartitionName|NodeSet|DownNodes)", value, words);
    let named = named.prop_map(|(kind, name, words)| format!("{kind}={name} {words}"));
    proptest::prop_oneof![global, named]
}

/// Checks finding F8 of the second audit: the report ends with the commands for QOS and accounts that partitions name.
#[test]
fn qos_and_accounts_that_partitions_name_are_listed() {
    let site = |partitions: &str| {
        let text = format!("ClusterName=c\nNodeName=n1 CPUs=4\n{partitions}\n");
        checked("named", &BTreeMap::from([("slurm.conf".to_owned(), text)])).unwrap().records()
    };
    assert_eq!(site("PartitionName=p Nodes=n1 AllowQos=normal AllowAccounts=ALL"), "");
    let lines = site(
        "PartitionName=p Nodes=n1 AllowQos=short,normal,long QOS=part AllowAccounts=phys,chem\n\
         PartitionName=q Nodes=n1 DenyQos=long,low DenyAccounts=guest",
    );
    let expected = "  sacctmgr -i add qos long,low,part,short\n  sacctmgr -i add account chem,guest,phys\n";
    assert_eq!(lines.split_once('\n').map(|(_, lines)| lines), Some(expected));
}
