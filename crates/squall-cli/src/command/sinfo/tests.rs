//! Tests of sinfo: the tables that users see, and calls that client programs make.

use std::sync::Arc;

use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};

use super::sinfo;
use crate::command::listing::fake::{CommandResult, HINTS, TERMINAL, check, fake, run, run_with, transcript};

fn seen(args: &[&str]) -> CommandResult {
    run("sinfo", sinfo, args)
}

#[test]
fn tables() {
    check(
        "sinfo_tables",
        &transcript(
            "sinfo",
            sinfo,
            &[
                &[],
                &["--summarize"],
                &["--Node"],
                &["--Node", "--long"],
                &["--long"],
                &["--list-reasons"],
                &["-R", "-l"],
                &["-t", "idle"],
                &["-p", "long", "-h"],
                &["-n", "n[1,4]"],
                &["-d"],
                &["-T"],
                &["-M", "squall", "-t", "drain"],
            ],
        ),
    );
}

#[test]
fn states_have_colours_on_a_terminal_where_asked() {
    let said = |env: &[(&str, &str)]| run_with(&mut fake(), "sinfo", sinfo, &[], env).out;
    let coloured = said(&[TERMINAL, ("SQUALL_COLOR", "auto")]);
    assert!(coloured.contains("\u{1b}[32m  idle\u{1b}[0m "), "{coloured}");
    assert!(!said(&[("SQUALL_COLOR", "auto")]).contains('\u{1b}'));
}

#[test]
fn every_field() {
    let letters: Vec<String> = squall_text::columns::groups::FIELDS
        .iter()
        .filter(|f| f.letter != '\0')
        .map(|f| format!("{0}=%{0}|", f.letter))
        .collect();
    let letters = letters.concat();
    check("sinfo_every_field", &transcript("sinfo", sinfo, &[&["-h", "-o", &letters], &["--helpformat"]]));
    for field in squall_text::columns::groups::FIELDS {
        let out = seen(&["-h", "-O", &format!("{}:;", field.names[0])]).out;
        assert!(!out.is_empty() && out.lines().all(|l| l.ends_with(';')), "{}: {out}", field.names[0]);
    }
}

#[test]
fn calls_of_clients() {
    check(
        "sinfo_calls_of_clients",
        &transcript(
            "sinfo",
            sinfo,
            &[
                &["-aho", "%F/%C"],
                &["-ahNO", "nodehost:10,gres:8,gresused:8,statelong"],
                &["-ho", "\u{1e}%c\u{1f}%n\u{1f}%f"],
                &["-o", "%P"],
                &["-h", "-o", "%C"],
                &["-h", "-o", "%D,%T"],
                &["-h", "-o%R,%C"],
                &["-h", "-N", "-O", "NodeList,AllocMem,Memory,CPUsState,StateLong"],
                &["-a", "-o", "%P %G %l %p %c %m"],
                &["--format", "%P,%m", "--noconvert"],
                &["-e", "-o", "%c %D"],
            ],
        ),
    );
}

#[test]
fn json() {
    let seen = seen(&["--json", "-n", "n4"]);
    check("sinfo_json", &seen.out);
}

#[test]
fn unequal_nodes_show_the_least() {
    let mut fake = fake();
    Arc::make_mut(&mut fake.nodes[0].hardware).cpus = 8;
    let out = |fake: &mut _, args: &[&str]| run_with(fake, "sinfo", sinfo, args, &[]).out;
    assert_eq!(out(&mut fake, &["-h", "-o", "%c %D"]), "4+ 4\n");
    assert_eq!(out(&mut fake, &["-h", "-e", "-o", "%c %D"]), "8 1\n4 3\n");
    assert_eq!(run_with(&mut fake, "sinfo", sinfo, &["-h"], &[("SINFO_FORMAT", "%n")]).out, "n4\nn1\nn2\nn3\n");
}

#[test]
fn states_that_no_node_here_is_ever_in_are_no_error() {
    for state in ["BOOT", "planned", "powering_up", "FAIL"] {
        assert_eq!(run("sinfo", sinfo, &["-h", "-N", "-t", state]).err, "", "{state}");
    }
}

#[test]
fn what_is_measured_is_shown_from_the_least_to_the_most() {
    let mut fake = fake();
    for (node, measured) in fake.nodes.iter_mut().zip(1_u32..) {
        (node.load_centi, node.free_mb) = (100 + 5 * measured, 7000 + u64::from(measured));
        node.up = true;
        (node.gres, node.gres_used) = ("gpu:a100:2".into(), "gpu:a100:0(IDX:N/A)".into());
    }
    let mut seen = |args: &[&str]| run_with(&mut fake, "sinfo", sinfo, args, &[]).out;
    assert_eq!(seen(&["-ho", "%O|%e|%v"]).lines().count(), 1);
    assert!(seen(&["-ho", "%O|%e"]).starts_with("1.05-1.20|7001-7004"));
    assert_eq!(seen(&["-eho", "%O"]).lines().count(), 4, "each exactly");
    assert!(seen(&["-NhO", "nodehost: ,freemem: "]).starts_with("n1 7001 \n"));
    let json = seen(&["--json"]);
    assert!(json.contains("\"total\": \"gpu:a100:2\"") && json.contains("\"used\": \"gpu:a100:0(IDX:N/A)\""));
}

#[test]
fn what_fails_and_how() {
    check(
        "sinfo_what_fails_and_how",
        &transcript(
            "sinfo",
            sinfo,
            &[&["-t", "nosuch"], &["-n", "n[3"], &["-o", "%?"], &["-S", "?"], &["extra"], &["-V"]],
        ),
    );
    let mut down = fake();
    down.down = true;
    let seen = run_with(&mut down, "sinfo", sinfo, &[], &[]);
    assert_eq!((seen.code, seen.out.as_str()), (1, ""));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_argument_panics(text in any::<String>(), near in "[%a-zA-Z0-9.,:#-]{0,24}") {
        for text in [text, near] {
            for option in ["-o", "-O", "-S", "-n", "-t", "-p"] {
                let seen = seen(&[option, &text]);
                prop_assert!(seen.code == 0 || !seen.err.is_empty());
            }
        }
    }
}

/// Checks fault E: `sinfo -N` has a line for each node and partition.
#[test]
fn e_a_line_for_each_node_and_partition() {
    let all = seen(&["-N", "-h", "-o", "%N %t"]).out;
    let with_partition = seen(&["-N", "-h", "-o", "%N %P"]).out;
    assert_eq!(all.lines().count(), with_partition.lines().count());
    assert!(all.lines().count() > 4, "{all}");
}

/// Checks faults D9 (`-O all`) and D12 (variables and options that contradict each other).
#[test]
fn d9_all_and_d12_contradicting_variables_and_options() {
    assert_eq!(seen(&["-O", "all"]).out, seen(&["-o", "%all"]).out);
    let both = seen(&["-a", "-p", "debug"]);
    assert_eq!(both.code, 1);
    assert!(both.err.contains("Conflicting options, -a and -p"), "{}", both.err);
    // faults.md F16.
    let both = run_with(&mut fake(), "sinfo", sinfo, &[], &[("SINFO_ALL", "1"), ("SINFO_PARTITION", "debug")]);
    let text = "Conflicting options, SINFO_ALL and SINFO_PARTITION, specified. Please choose one or the other.";
    assert_eq!((both.code, both.err), (1, format!("sinfo: error: {text}\n")));
    let with = |args: &[&str]| run_with(&mut fake(), "sinfo", sinfo, args, &[("SINFO_FORMAT", "%R")]).out;
    assert_eq!(with(&["-h", "-l"]).lines().next(), Some("debug"), "the variable wins over -l");
    assert!(with(&["-N"]).starts_with("NODELIST"), "and -N over the variable");
}

#[test]
fn every_state_that_is_listed_selects_nodes() {
    let states = run("sinfo", sinfo, &["--helpstate"]).out;
    assert!(states.lines().count() > 10, "{states}");
    for state in states.lines() {
        let seen = run("sinfo", sinfo, &["-h", "-t", state]);
        assert_eq!((seen.code, &*seen.err), (0, ""), "{state}");
    }
}

/// Checks faults P12: the line with the time is a part of the header.
#[test]
fn p12_no_line_with_the_time_without_a_header() {
    let first = |args: &[&str]| run("sinfo", sinfo, args).out.lines().next().unwrap_or_default().to_owned();
    assert!(first(&["-l"]).ends_with(" 2026"), "{}", first(&["-l"]));
    assert!(!first(&["-h", "-l"]).ends_with(" 2026"), "{}", first(&["-h", "-l"]));
}

#[test]
fn partitions_and_nodes_that_do_not_exist_are_hinted_at() {
    let said = |args: &[&str]| run_with(&mut fake(), "sinfo", sinfo, args, &[HINTS]).err;
    let line = "sinfo: hint: there is no partition `gpuu`; there are: debug, long\n";
    assert_eq!(said(&["-p", "gpuu,long"]), line);
    assert_eq!(said(&["-n", "n[1,9]"]), "sinfo: hint: there is no node `n9`\n");
    assert_eq!((said(&[]), seen(&["-p", "gpuu"]).err), (String::new(), String::new()));
    let squeue = |args| run_with(&mut fake(), "squeue", crate::command::squeue::squeue, args, &[HINTS]).err;
    assert_eq!(squeue(&["-p", "gpuu"]), line.replace("sinfo", "squeue"));
    assert_eq!(squeue(&["-p", "debug"]), "");
}

#[test]
fn hidden_partitions_are_shown_to_those_who_ask() {
    let mut fake = fake();
    fake.partitions[0].config.hidden = true;
    let name = fake.partitions[0].config.name.clone();
    let mut shows = |args: &[&str], env: &[(&str, &str)]| {
        let args = [&["-h", "-o", "%R"], args].concat();
        run_with(&mut fake, "sinfo", sinfo, &args, env).out.lines().any(|line| line == name)
    };
    assert!(!shows(&[], &[]) && !shows(&["-a", "--hide"], &[]));
    assert!(shows(&["-a"], &[]) && shows(&["-p", "debug"], &[]) && shows(&[], &[("SINFO_ALL", "1")]));
}
