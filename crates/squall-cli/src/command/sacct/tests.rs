//! Tests of sacct: the tables that users see, and calls that client programs make.

use std::fmt::Write;

use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};
use squall_model::id::StepNo;
use squall_model::time::{Span, Time};
use squall_model::wire::client::AccountingQuery;

use super::sacct;
use crate::command::listing::fake::{CommandResult, NOW, check, fake, run, run_with, transcript};
use squall_text::columns::accounting::FIELDS;

fn seen(args: &[&str]) -> CommandResult {
    run("sacct", sacct, args)
}

fn query(args: &[&str]) -> AccountingQuery {
    let mut fake = fake();
    let seen = run_with(&mut fake, "sacct", sacct, args, &[]);
    assert_eq!((seen.code, seen.err.as_str()), (0, ""));
    fake.queries.remove(0)
}

/// From the begin of a second to its last microsecond: the end of a period belongs to it.
const WHOLE: Span = Span(999_999);

#[test]
fn tables() {
    let text = transcript(
        "sacct",
        sacct,
        &[
            &[],
            &["-X"],
            &["-b", "-j", "40"],
            &["-j", "99999"],
            &["-j", "40", "-o", "jobid%-20,state%15,elapsed,maxrss,reqmem,nodelist%6"],
            &["-j", "40", "-p", "-o", "jobid,state"],
            &["-j", "40", "-P", "-n", "-o", "jobid,state"],
            &["-l", "-P", "-j", "40"],
            &["--helpformat"],
        ],
    );
    check("sacct_tables", &text);
}

#[test]
fn every_field_prints_for_job_and_step() {
    assert!(FIELDS.len() >= 110);
    let mut text = String::new();
    for field in FIELDS {
        let seen = seen(&["-j", "40", "-n", "-P", "-o", field.name]);
        assert_eq!((seen.code, seen.err.as_str(), seen.out.lines().count()), (0, "", 3), "{}", field.name);
        let values: Vec<&str> = seen.out.split('\n').take(3).collect();
        writeln!(text, "{:<20} {}", field.name, values.join(" | ")).unwrap();
    }
    check("sacct_every_field", &text);
    let mut names: Vec<String> = FIELDS.iter().map(|f| f.name.to_lowercase()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FIELDS.len());
}

#[test]
fn json() {
    check("sacct_json", &seen(&["--json", "-S", "1970-01-01-00:00:01", "-j", "40,50"]).out);
}

#[test]
fn calls_of_clients() {
    let on_demand = "User,Group,JobId,JobName,Elapsed,ReqMem,AllocCPUS,ReqCPUS,Timelimit,State,TotalCPU,MaxRSS,\
        Partition,Submit,Start,End,ReqTRES";
    let xdmod = "jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,eligible,start,end,elapsed,\
        exitcode,state,nnodes,ncpus,reqcpus,reqmem,reqtres,alloctres,timelimit,nodelist,jobname";
    let snakemake = [
        "-X",
        "--parsable2",
        "--clusters",
        "all",
        "--noheader",
        "--format=JobIdRaw,State",
        "--starttime",
        "2026-11-20T08:00",
        "--endtime",
        "now",
        "--name",
        "0f3a",
    ];
    let text = transcript(
        "sacct",
        sacct,
        &[
            &["-P", "--delimiter", "\u{1f}", "-n", "--units", "G", "--allocations", "-o", on_demand],
            &snakemake,
            &["-o", "JobID,State,NodeList", "--parsable2", "-j", "40"],
            &["-S", "2026-11-20", "-P", "-j", "40,41", "-o", "jobid,state,exitcode,end,nodelist"],
            &[
                "--allusers",
                "--parsable2",
                "--noheader",
                "--allocations",
                "--duplicates",
                "--clusters",
                "squall",
                "--format",
                xdmod,
                "--starttime",
                "2026-11-20T00:00:00",
                "--endtime",
                "2026-11-21T00:00:00",
            ],
            &["-j", "50", "-X", "-n", "-P", "-o", "jobid,jobidraw,state"],
            &["-u", "-1", "-n", "-X", "-P", "-o", "jobid"],
        ],
    );
    check("sacct_calls_of_clients", &text.replace('\u{1f}', "^"));
}

#[test]
fn what_is_asked() {
    let midnight = Time::from_secs(NOW - NOW % 86_400);
    assert_eq!(query(&[]).start, Some(midnight));
    assert_eq!(query(&["-j", "40"]).start, None);
    assert_eq!(query(&["-s", "R"]).start, Some(Time::from_secs(NOW)));
    assert_eq!(query(&["-S", "now-1hour"]).start, Some(Time::from_secs(NOW - 3600)));
    assert_eq!(query(&["-E", "07:30"]).end, Some(Time::from_secs(NOW - 1800) + WHOLE));
    assert_eq!(query(&[]).users, [1000]);
    assert!(query(&["-a"]).users.is_empty());
    assert!(query(&["-j", "40"]).users.is_empty());
    assert_eq!(query(&["-u", "root,ann"]).users, [0, 1000]);
    assert_eq!(query(&["-j", "40.batch"]).step, Some(StepNo::BATCH));
    assert_eq!(query(&["-j", "40", "-j", "41_[1-3]"]).ids.len(), 2);
    let all = query(&["-r", "a,b", "--name", "x", "-A", "acc", "-N", "n[1-2]", "-D", "-X", "-s", "CD,F"]);
    assert_eq!((all.partitions.len(), all.names.len(), all.accounts.len(), all.states.len()), (2, 1, 1, 2));
    assert!(all.duplicates && all.allocations_only && all.nodes.as_deref() == Some("n[1-2]"));
}

#[test]
fn environment_and_units() {
    let with = |args: &[&str], env: &[(&str, &str)]| run_with(&mut fake(), "sacct", sacct, args, env).out;
    assert_eq!(with(&["-n", "-P", "-j", "41"], &[("SACCT_FORMAT", "jobid,exitcode")]), "41|0:9\n");
    assert_eq!(with(&["-n", "-P", "-X", "-j", "40", "-o", "start"], &[("SLURM_TIME_FORMAT", "%s")]), "1795247910\n");
    let memory = |extra: &[&str]| {
        let args = [&["-n", "-P", "-j", "40", "-o", "maxrss,reqmem"], extra].concat();
        seen(&args).out.replace('\n', ";")
    };
    assert_eq!(memory(&[]), "|2G;2M|;2M|;");
    assert_eq!(memory(&["--noconvert"]), "|2048M;2097152|;2097152|;");
    assert_eq!(memory(&["--units=K"]), "|2097152K;2048K|;2048K|;");
    assert_eq!(memory(&["--units=G"]), "|2G;0.00G|;0.00G|;");
    assert_eq!(seen(&["-n", "-P", "-X", "-j", "40", "-I", "3-4", "-o", "jobid"]).out, "");
    assert_eq!(seen(&["-n", "-P", "-X", "-j", "40", "-i", "1-4", "-o", "jobid"]).out, "40\n");
    let cut = seen(&["-n", "-P", "-X", "-j", "40", "-T", "-S", "07:59", "-o", "start,end"]).out;
    assert_eq!(cut, "2026-11-21T07:59:00|2026-11-21T07:59:30\n");
}

#[test]
fn what_fails_and_how() {
    let text = transcript(
        "sacct",
        sacct,
        &[
            &["-o", "nosuch"],
            &["-S", "yesterday-ish"],
            &["-S", "now", "-E", "now-1hour"],
            &["-j", "x"],
            &["-s", "nosuch"],
            &["-u", "nobody-here"],
            &["-M", "other"],
            &["--units=Q"],
            &["--nosuch"],
            &["-B"],
            &["-V"],
        ],
    );
    check("sacct_what_fails_and_how", &text);
    let mut down = fake();
    down.down = true;
    assert_eq!(run_with(&mut down, "sacct", sacct, &[], &[]).code, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_argument_panics(text in any::<String>(), near in "[%a-zA-Z0-9.,:_-]{0,24}") {
        for text in [text, near] {
            for option in ["-o", "-S", "-E", "-j", "-s", "-u", "-N", "-i", "--units", "-k"] {
                let seen = seen(&[option, &text]);
                prop_assert!(seen.code == 0 || !seen.err.is_empty());
            }
        }
    }
}

#[test]
fn d6_a_state_and_a_start_without_an_end() {
    let failed = query(&["-s", "FAILED", "-S", "now-1hour"]);
    assert_eq!(
        (failed.start, failed.end),
        (Some(Time::from_secs(NOW - 3600)), Some(Time::from_secs(NOW - 3600) + WHOLE))
    );
    let with_end = query(&["-s", "FAILED", "-S", "now-1hour", "-E", "now"]);
    assert_eq!(with_end.end, Some(Time::from_secs(NOW) + WHOLE));
}

/// faults.md F16: a state means now, unless a start is given.
#[test]
fn f16_a_state_and_an_end_in_the_past_contradict_each_other() {
    let past = seen(&["-s", "R", "-E", "now-1hour"]);
    let text = "Start time (2026-11-21T08:00:00) requested is after end time (2026-11-21T07:00:00).";
    assert_eq!((past.code, past.err), (1, format!("sacct: error: {text}\n")));
}

#[test]
fn d10_steps_have_nodes_and_a_submission_keeps_its_lines() {
    assert_eq!(seen(&["-n", "-P", "-j", "40", "-o", "reqnodes"]).out, "2\n2\n2\n");
    let mut fake = fake();
    fake.rows.truncate(1);
    fake.rows[0].submit_line = "sbatch --wrap a\nb\u{1b}[2J".into();
    let line = run_with(&mut fake, "sacct", sacct, &["-n", "-P", "-a", "-o", "submitline"], &[]).out;
    assert_eq!(line, "sbatch --wrap a\nb?[2J\n");
}

/// Checks finding 2.1 of the audit: every filter of sacct takes effect, or is refused by its name.
#[test]
fn audit_filters_filter_or_are_refused() {
    let ids = |args: &[&str]| {
        let seen = seen(&[args, &["-a", "-X", "-n", "-P", "-o", "jobid"]].concat());
        (seen.code, seen.out.replace('\n', " ") + &seen.err)
    };
    let (_, all) = ids(&[]);
    assert_eq!(ids(&["--reason=None"]).0, 0);
    assert_eq!(ids(&["--reason=Dependency"]), (0, String::new()));
    assert_eq!(ids(&["-x", "77"]), (0, String::new()));
    assert!(all.contains("_[1-4"), "{all}");
    let (_, each) = ids(&["--array"]);
    assert!(each.contains("50_1 ") && each.contains("50_4 ") && !each.contains('['), "{each}");
    assert_eq!(ids(&["--use-local-uid"]), (0, all));
    for (option, said) in [
        ("--flags=SchedMain", "sacct: --flags=SchedMain: which scheduler"),
        ("--file=/x", "sacct: --file=/x: there is no file"),
        ("--completion", "sacct: --completion: Slurm job completion is disabled"),
        ("--whole-hetjob=maybe", "error"),
    ] {
        let (code, text) = ids(&[option]);
        assert!(code == 1 && text.contains(said), "{option}: {text}");
    }
}
