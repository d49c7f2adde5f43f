//! Tests of the metrics: every text is read by a strict parser, and the documentation has every name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use squall_model::time::Span;
use squall_model::wire::info::LicenseInfo;
use squall_text::metrics::Part;

use super::metrics;
use crate::command::listing::fake::{Fake, check, fake, run_with};

/// A series: name, labels, value as text.
type Series = (String, Vec<(String, String)>, String);

/// A family of a text: type, help, and its series as (name, labels, value as text).
#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: String,
    series: Vec<Series>,
}

/// Reads a text as strictly as its format is described: each family once and in one piece, HELP, TYPE, series; each
/// series once.
fn read(text: &str) -> BTreeMap<String, Family> {
    assert!(text.ends_with('\n') && !text.contains("\n\n") && !text.contains('\r'));
    let (mut families, mut seen) = (BTreeMap::<String, Family>::new(), BTreeSet::new());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let (name, help) = line.strip_prefix("# HELP ").expect(line).split_once(' ').expect(line);
        assert!(is_name(name) && !help.is_empty() && !help.contains('\\'), "{line}");
        let kind = lines.next().and_then(|line| line.strip_prefix(&format!("# TYPE {name} "))).expect(line);
        assert!(["gauge", "counter", "histogram"].contains(&kind), "{line}");
        let mut family = Family { kind: kind.to_owned(), help: help.to_owned(), series: Vec::new() };
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').expect(line);
            assert!(seen.insert(series.to_owned()), "twice: {line}");
            let digits = value.chars().all(|c| c.is_ascii_digit() || c == '.');
            assert!(value == "+Inf" || digits && value.parse::<f64>().is_ok(), "{line}");
            let (of, labels) = series.split_once('{').map_or((series, ""), |(of, labels)| (of, labels));
            let part = of.strip_prefix(name).expect(line);
            let fits =
                if kind == "histogram" { ["_bucket", "_sum", "_count"].contains(&part) } else { part.is_empty() };
            assert!(fits, "{line}");
            family.series.push((of.to_owned(), read_labels(labels), value.to_owned()));
        }
        assert!(!family.series.is_empty(), "{name} has no series");
        assert!(kind != "counter" || name.ends_with("_total"), "{name}");
        assert!(families.insert(name.to_owned(), family).is_none(), "{name} is there twice");
    }
    families
}

/// Reads `name="value",…}`; nothing if there are no labels.
fn read_labels(text: &str) -> Vec<(String, String)> {
    let (mut all, mut rest) = (Vec::<(String, String)>::new(), text);
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").expect(text);
        assert!(is_name(name) && !name.contains(':') && all.iter().all(|(known, _)| known != name), "{text}");
        let (mut value, mut chars) = (String::new(), after.chars());
        loop {
            match chars.next().expect(text) {
                '"' => break,
                '\\' => value.push(match chars.next() {
                    Some('n') => '\n',
                    Some(c @ ('\\' | '"')) => c,
                    other => panic!("{other:?} in {text}"),
                }),
                c => value.push(c),
            }
        }
        all.push((name.to_owned(), value));
        let separator = chars.next();
        rest = chars.as_str();
        assert_eq!(separator, Some(if rest.is_empty() { '}' } else { ',' }), "{text}");
    }
    all
}

fn is_name(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    name.chars().all(fine) && !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty()
}

/// Returns a fake cluster of which every metric has a series.
fn cluster() -> Fake {
    let mut fake = fake();
    fake.licenses = vec![LicenseInfo { name: "matlab".into(), total: 5, used: 2, reserved: 0 }];
    fake.nodes[0].gres = "gpu:a100:4,fpga:1".into();
    fake.nodes[0].gres_used = "gpu:a100:3(IDX:0-2)".into();
    fake.diag.latency.queue.add(Span::from_millis(1500));
    fake.diag.node_daemons.steps = 7;
    fake
}

fn text(part: &str) -> String {
    let part = format!("--part={part}");
    let args = if part.ends_with('=') { &[][..] } else { &[&*part] };
    let seen = run_with(&mut cluster(), "squall metrics", metrics, args, &[]);
    assert_eq!((seen.code, &*seen.err), (0, ""), "{part}");
    seen.out
}

#[test]
fn the_text_is_as_the_format_says_and_adds_up() {
    let all = read(&text(""));
    let value = |name: &str, labels: &[(&str, &str)]| {
        let fits = |of: &[(String, String)]| {
            labels.iter().all(|(name, value)| of.iter().any(|(known, has)| known == name && has == value))
        };
        let series = all[name].series.iter().filter(|(_, of, _)| fits(of));
        series.map(|(.., value)| value.parse::<u64>().unwrap()).sum::<u64>()
    };
    for (name, expected) in [
        ("slurm_queue_pending", 9),
        ("slurm_queue_pending_dependency", 1),
        ("slurm_queue_running", 2),
        ("slurm_queue_completed", 1),
        ("slurm_jobs", 14),
        ("slurm_jobs_completed", 2),
        ("slurm_cpus_total", 16),
        ("slurm_cpus_alloc", 2),
        ("slurm_cpus_idle", 10),
        ("slurm_cpus_other", 4),
        ("slurm_gpus_total", 4),
        ("slurm_gpus_alloc", 3),
        ("slurm_nodes_mix", 2),
        ("slurm_nodes_drain", 1),
        ("squall_node_steps_started_total", 7),
    ] {
        assert_eq!(value(name, &[]), expected, "{name}");
    }
    assert_eq!(value("slurm_user_jobs_pending", &[("user", "ann"), ("username", "ann")]), 9);
    assert_eq!(value("slurm_account_cpus_running", &[("account", "root")]), 4);
    assert_eq!(value("slurm_partition_cpus_other", &[("partition", "long")]), 4);
    assert_eq!(value("slurm_partition_jobs_pending", &[("partition", "debug")]), 9);
    assert_eq!(value("slurm_node_cpu_idle", &[("node", "n1"), ("status", "mixed")]), 3);
    assert_eq!(value("squall_pending_jobs", &[("reason", "JobArrayTaskLimit")]), 8);
    let series = &all["squall_queue_seconds"].series;
    let (buckets, [sum, count]) = series.split_last_chunk().unwrap();
    let counts: Vec<&str> = buckets.iter().map(|(.., count)| &**count).collect();
    assert!(counts.is_sorted() && counts.len() == 32, "{counts:?}");
    assert_eq!((&*sum.2, &*count.2, counts[31]), ("1.5", "1", "1"));
}

#[test]
fn slurms_own_paths_have_only_slurms_names() {
    for (part, _) in Part::PATHS.into_iter().filter(|(part, _)| !part.is_empty()) {
        let families = read(&text(part));
        assert!(families.keys().all(|name| name.starts_with("slurm_")), "{part}");
    }
    assert!(read(&text("nodes")).contains_key("slurm_node_memory_free_bytes"));
    assert!(read(&text("jobs-users-accts")).contains_key("slurm_user_jobs_outofmemory"));
}

#[test]
fn names_with_quotes_harm_nothing() {
    let mut fake = cluster();
    fake.licenses[0].name = "a\"b\\c\nd".into();
    let seen = run_with(&mut fake, "squall metrics", metrics, &[], &[]);
    let families = read(&seen.out);
    assert_eq!(families["squall_license_total"].series[0].1, [("license".to_owned(), "a\"b\\c\nd".to_owned())]);
}

#[test]
fn what_fails_and_how() {
    let lines: &[&[&str]] = &[&["--part=users"], &["nodes"], &["--nosuch"]];
    check("metrics_what_fails_and_how", &crate::command::listing::fake::transcript("squall metrics", metrics, lines));
}

/// The board for Grafana shows only metrics that exist.
#[test]
fn the_board_asks_for_metrics_that_exist() {
    let board: serde_json::Value =
        serde_json::from_str(include_str!("../../../../../contrib/grafana/squall.json")).unwrap();
    let known = read(&text(""));
    let mut asked = BTreeSet::new();
    for target in board["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap()) {
        let names = target["expr"].as_str().unwrap().split(|c: char| !c.is_ascii_lowercase() && c != '_');
        asked.extend(names.filter(|word| word.starts_with("slurm_") || word.starts_with("squall_")));
    }
    let unknown = asked.iter().filter(|name| !known.contains_key(name.trim_end_matches("_bucket")));
    assert_eq!(unknown.collect::<Vec<_>>(), Vec::<&&str>::new());
    assert!(asked.len() > 30);
}

/// The page has a row for each metric, and no others.
#[test]
fn the_page_has_every_metric() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let page = std::fs::read_to_string(path).unwrap();
    let mut rows = BTreeMap::<String, (String, BTreeSet<String>)>::new();
    for (part, _) in Part::PATHS {
        for (name, family) in read(&text(part)) {
            let labels =
                family.series[0].1.iter().map(|(label, _)| format!("`{label}`")).collect::<Vec<_>>().join(", ");
            let row = format!("| {} | {labels} | {} |", family.kind, family.help);
            let (known, parts) = rows.entry(name.clone()).or_insert_with(|| (row.clone(), BTreeSet::new()));
            assert_eq!(*known, row, "{name} differs between parts");
            parts.insert(if part.is_empty() { "all".to_owned() } else { part.to_owned() });
        }
    }
    let mut table = "| name | type | labels | meaning | paths |\n|---|---|---|---|---|\n".to_owned();
    for (name, (row, parts)) in rows {
        let _ = writeln!(table, "| `{name}` {row} {} |", parts.into_iter().collect::<Vec<_>>().join(", "));
    }
    let (before, rest) = page.split_once("| name | type |").expect("the page has the table");
    let after = rest.split_once("\n\n").map_or("", |(_, after)| after);
    let expected = format!("{before}{table}{}{after}", if after.is_empty() { "" } else { "\n" });
    if std::env::var_os("SQUALL_WRITE_DOCS").is_some() {
        std::fs::write(path, &expected).unwrap();
        return;
    }
    assert!(page == expected, "run this test with SQUALL_WRITE_DOCS=1 to write {path}");
}
