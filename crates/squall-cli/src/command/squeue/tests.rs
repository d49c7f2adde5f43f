//! Tests of squeue: the tables that users see, and calls that client programs make.

use std::sync::Arc;

use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};
use squall_model::id::JobId;
use squall_model::job::{JobSpec, Need};
use squall_model::resource::Memory;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, JobSelection, Request, StateFilter};
use squall_model::wire::info::{ExpectedStart, JobClass};

use super::squeue;
use crate::command::listing::fake::{CommandResult, NOW, TERMINAL, check, fake, run, run_with, transcript};

fn seen(args: &[&str]) -> CommandResult {
    run("squeue", squeue, args)
}

/// Returns the selection that the controller was asked for, and whether ended jobs were included.
fn asked(args: &[&str], env: &[(&str, &str)]) -> (JobSelection, bool) {
    let mut fake = fake();
    run_with(&mut fake, "squeue", squeue, args, env);
    match fake.asked.into_iter().next() {
        Some(Request::Jobs { jobs, ended, .. }) => (jobs, ended),
        other => panic!("not a listing: {other:?}"),
    }
}

#[test]
fn tables() {
    check(
        "squeue_tables",
        &transcript(
            "squeue",
            squeue,
            &[
                &[],
                &["--long"],
                &["--start"],
                &["--steps"],
                &["--steps", "-o", "%i %l"],
                &["--array"],
                &["-t", "all"],
                &["-M", "squall", "-t", "CD"],
                &["--progress"],
                &["--progress", "--noheader", "--json"],
            ],
        ),
    );
}

#[test]
fn states_have_colours_on_a_terminal_where_asked() {
    let said = |env: &[(&str, &str)]| run_with(&mut fake(), "squeue", squeue, &[], env);
    let (plain, asked) = (said(&[]), ("SQUALL_COLOR", "auto"));
    for env in [
        &[asked][..],
        &[TERMINAL],
        &[TERMINAL, ("SQUALL_COLOR", "never")],
        &[TERMINAL, ("SQUALL_COLOR", "")],
        &[TERMINAL, asked, ("NO_COLOR", "1")],
    ] {
        assert_eq!(said(env), plain, "{env:?}");
    }
    let coloured = said(&[TERMINAL, asked, ("NO_COLOR", "")]).out;
    assert!(coloured.contains("\u{1b}[32m R\u{1b}[0m ") && coloured.contains("\u{1b}[33mPD\u{1b}[0m "), "{coloured}");
    let bare = ["32", "33", "36", "31", "0"].iter().fold(coloured, |text, n| text.replace(&format!("\u{1b}[{n}m"), ""));
    assert_eq!(bare, plain.out);
    let wrong = said(&[("SQUALL_COLOR", "blue")]);
    assert_eq!((wrong.code, &*wrong.err), (1, "squeue: error: SQUALL_COLOR: `blue` is not valid: use auto or never\n"));
}

#[test]
fn letters_and_names() {
    let letters: Vec<String> = ('A'..='Z').chain('a'..='z').map(|c| format!("{c}=%{c}|")).collect();
    let letters = letters.concat();
    check(
        "squeue_letters_and_names",
        &transcript(
            "squeue",
            squeue,
            &[
                &["-h", "-j", "10", "-o", &letters],
                &["-h", "-j", "20", "-o", &letters],
                &["-h", "-j", "30", "-o", &letters],
                &["-j", "10", "-O", "jobid,name:6,nodelist:.12,state:|,tres-alloc:,reasonlist"],
                &["--helpformat"],
            ],
        ),
    );
}

#[test]
fn json() {
    check("squeue_json", &seen(&["--json", "-j", "10"]).out);
    check("squeue_json_2", &seen(&["--yaml", "-j", "20", "-t", "PD"]).out);
}

#[test]
fn every_name_prints_something_for_every_job() {
    for field in squall_text::columns::jobs::FIELDS {
        for name in field.names {
            let out = seen(&["-h", "-t", "all", "-O", &format!("{name}:;")]).out;
            assert_eq!(out.lines().count(), 7, "{name}: {out}");
            assert!(out.lines().all(|l| l.ends_with(';')), "{name}: {out}");
        }
    }
}

#[test]
fn open_ondemand() {
    let fields = "Account JobID BatchHost MinCpus NumCPUs MinTmpDisk NumNodes EndTime Dependency Feature ArrayJobID \
        GroupName GroupID OverSubscribe Sockets JobArrayID Cores Name Threads Comment ArrayTaskID TimeLimit TimeLeft \
        MinMemory TimeUsed ReqNodes NodeList Command Contiguous QOS Partition PriorityLong Reason StartTime StateCompact \
        State UserName UserID Reservation SubmitTime WCKey Licenses ExcNodes CoreSpec Nice SchedNodes SCT WorkDir \
        tres-alloc tres-per-node";
    let names: Vec<&str> = fields.split_whitespace().collect();
    let format: Vec<String> = names.iter().map(|f| format!("{f}:\u{1f}")).collect();
    let seen = seen(&["--all", "--states=all", "--noconvert", "-O", &format.join(",")]);
    assert_eq!((seen.code, seen.err.as_str()), (0, ""));
    let mut lines = seen.out.lines();
    assert!(lines.next().unwrap().starts_with("ACCOUNT\u{1f}JOBID\u{1f}EXEC_HOST\u{1f}"));
    for line in lines {
        assert_eq!(line.split('\u{1f}').count(), names.len() + 1, "{line}");
    }
    check("squeue_open_ondemand", &seen.out.replace('\u{1f}', "|"));
    let seen = run(
        "squeue",
        squeue,
        &["--all", "--states=all", "--noconvert", "-O", "JobID:\u{1f}", "-u", "ann", "-j", "10", "-M", "squall"],
    );
    assert_eq!(seen.out, "CLUSTER: squall\nJOBID\u{1f}\n10\u{1f}\n");
}

#[test]
fn calls_of_other_clients() {
    check(
        "squeue_calls_of_other_clients",
        &transcript(
            "squeue",
            squeue,
            &[
                &["-h", "-j", "10", "-o", "%T %B"],
                &["-h", "-j", "30", "-o", "%T %B"],
                &["--noheader", "-o", "%i %t", "-t", "all"],
                &["--noheader", "-o", "%i %t", "-t", "all", "-u", "ann", "-p", "debug"],
                &["--noheader", "--format=%i %t", "--job", "10,30"],
                &["-a", "-r", "-h", "-o", "%A|%a|%T|%C"],
                &["-a", "-r", "-h", "-o", "%A|%u|%T|%C"],
                &["-a", "-r", "-h", "-o", "%A,%T,%r", "--states=all"],
                &["-a", "-r", "-h", "-o%P", "--states=PENDING"],
                &["-O", "JobArrayID,StateCompact,Reason", "-t", "all", "--me"],
                &["--me", "-o", "%i", "-h", "-r", "-t", "all"],
                &["-h", "-o", "%2t%100j", "-j", "10"],
                &["-h", "-O", "StateCompact:6,jobid", "-j", "10"],
            ],
        ),
    );
}

#[test]
fn what_is_asked() {
    let (selection, ended) =
        asked(&["-u", "ann,0", "-p", "a,b", "-n", "x,y", "-A", "acc", "-q", "high", "-w", "n[1-2]"], &[]);
    assert!(!ended);
    assert_eq!(selection.users, [1000, 0]);
    assert_eq!((selection.partitions.len(), selection.names.len()), (2, 2));
    assert_eq!((selection.accounts, selection.qos), (vec!["acc".into()], vec!["high".into()]));
    assert_eq!(selection.nodes.as_deref(), Some("n[1-2]"));
    let (selection, ended) = asked(&["--states=R,S,CG,RS,SI,SO,ST,PD,CF,RF,RH,RQ,SE"], &[]);
    assert!(
        ended && selection.states.contains(&StateFilter::Requeued) && selection.states.contains(&StateFilter::Never)
    );
    let (selection, ended) = asked(&[], &[("SQUEUE_STATES", "all"), ("SQUEUE_USERS", "ann")]);
    assert!(ended && selection.states.is_empty() && selection.users == [1000]);
    assert_eq!(asked(&["--me"], &[]).0.users, [1000]);
}

#[test]
fn environment() {
    let with = |args: &[&str], env: &[(&str, &str)]| run_with(&mut fake(), "squeue", squeue, args, env).out;
    assert_eq!(with(&["-h", "-j", "10"], &[("SQUEUE_FORMAT", "%i")]), "10\n");
    assert_eq!(with(&["-h", "-j", "10"], &[("SQUEUE_FORMAT2", "jobid:4")]), "10  \n");
    assert_eq!(with(&["-h", "-j", "10", "-o", "%j"], &[("SQUEUE_FORMAT", "%i")]), "a-long-name\n");
    assert_eq!(with(&["-h", "-o", "%A"], &[("SQUEUE_SORT", "-i")]), "33\n30\n20\n21\n10\n");
    assert_eq!(with(&["-h", "-j", "10", "-o", "%S"], &[("SLURM_TIME_FORMAT", "standard")]), "2026-11-21T07:58:30\n");
    assert_eq!(with(&["-h", "-j", "10", "-o", "%S"], &[("SLURM_TIME_FORMAT", "%H:%M")]), "07:58\n");
    assert_eq!(with(&["-h", "-j", "20", "-o", "%i"], &[("SLURM_BITSTR_LEN", "2")]), "20_[...%2]\n20_1\n");
}

#[test]
fn tasks_are_sorted_by_their_numbers_where_that_is_asked() {
    let out = |args: &[&str]| seen(&[&["-h", "-r", "-t", "PD,R", "-o", "%i"], args].concat()).out.replace('\n', " ");
    assert_eq!(out(&["-S", "i"]), "10 20_1 20_2 20_3 20_4 20_5 20_6 20_7 20_8 20_9 30 ");
    assert_eq!(out(&["-S", "-K"]), "20_9 20_8 20_7 20_6 20_5 20_4 20_3 20_2 20_1 10 30 ");
    assert_eq!(out(&["-S", "t"]), "20_2 20_3 20_4 20_5 20_6 20_7 20_8 20_9 30 10 20_1 ");
}

#[test]
fn what_fails_and_how() {
    check(
        "squeue_what_fails_and_how",
        &transcript(
            "squeue",
            squeue,
            &[
                &["-j", "99999"],
                &["-h", "-j", "99999,99998"],
                &["-h", "-j", "31"],
                &["-j", "x"],
                &["-t", "nosuch"],
                &["-u", "nobody-here"],
                &["-u", "-t", "all"],
                &["-o", "%?"],
                &["-O", "nosuch"],
                &["-M", "other"],
                &["--nosuch"],
                &["-i", "0"],
                &["--version"],
            ],
        ),
    );
    let seen = run("squeue", squeue, &["-w", "n77"]);
    assert_eq!((seen.code, seen.err.as_str()), (1, "squeue: error: Invalid node name n77\n"));
    let mut down = fake();
    down.down = true;
    let seen = run_with(&mut down, "squeue", squeue, &["-h"], &[]);
    assert_eq!(seen.code, 1);
    assert!(seen.err.starts_with("slurm_load_jobs error: Unable to contact slurm controller"), "{}", seen.err);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_argument_panics(text in any::<String>(), near in "[%a-zA-Z0-9.,:#-]{0,24}") {
        for text in [text, near] {
            for option in ["-o", "-O", "-S", "-j", "-t", "-u", "-p"] {
                let seen = seen(&[option, &text]);
                prop_assert!(seen.code == 0 || !seen.err.is_empty());
            }
        }
    }
}

/// Checks fault E: `%S` shows the expected start of a pending job.
#[test]
fn e_the_expected_start_is_shown_where_it_is_asked_for() {
    let start = ExpectedStart { id: JobId(30), time: Time::from_secs(NOW + 60), nodes: "n3".into() };
    let shown = |format: &str| {
        let mut fake = fake();
        fake.answers = vec![Answer::Expected(vec![start.clone()])];
        let out = run_with(&mut fake, "squeue", squeue, &["-h", "-j", "30", "-o", format], &[]).out;
        (out, fake.asked.contains(&Request::Expected))
    };
    assert_eq!(shown("%i %S %Y"), ("30 2026-11-21T08:01:00 n3\n".to_owned(), true));
    assert_eq!(shown("%i"), ("30\n".to_owned(), false));
}

/// Checks fault E: `squeue -u nosuch,root` reports the unknown user and lists the other's jobs.
#[test]
fn e_unknown_users_are_complained_of_and_the_others_jobs_shown() {
    let seen = seen(&["-h", "-u", "nosuch,ann", "-j", "10", "-o", "%i"]);
    assert_eq!((seen.code, seen.out.as_str(), seen.err.as_str()), (0, "10\n", "squeue: error: Invalid user: nosuch\n"));
    assert_eq!(asked(&["-u", "nosuch,ann"], &[]).0.users, [1000]);
    assert_eq!(asked(&["-u", "nosuch"], &[]).0.users, [u32::MAX], "nobody's");
}

/// Checks fault D12: variables and options that contradict each other are resolved as in Slurm 22.05.8.
#[test]
fn d12_contradicting_variables_and_options() {
    let both = seen(&["-o", "%i", "-O", "jobid"]);
    assert_eq!((both.code, both.out.as_str()), (1, ""));
    assert!(both.err.contains("-O (--Format) is incompatible with -o (--format)"));
    assert_eq!(asked(&["--me", "-u", "root"], &[]).0.users, [0], "the last counts");
    assert_eq!(asked(&["-u", "root", "--me"], &[]).0.users, [1000]);
    assert_eq!(asked(&["--me"], &[("SQUEUE_USERS", "root")]).0.users, [1000]);
    assert_eq!(asked(&["--start", "-t", "R"], &[]).0.states, [StateFilter::Never]);
    assert_eq!(asked(&["--start"], &[("SQUEUE_STATES", "R")]).0.states, [StateFilter::Never]);
    assert_eq!(asked(&["--start"], &[("SQUEUE_STATES", "PD,R")]).0.states, [StateFilter::Pending]);
    assert_eq!(asked(&["-t", "PD"], &[("SQUEUE_STATES", "R")]).0.states, [StateFilter::Pending]);
}

/// Checks fault D12: `squeue --priority --sort` lists pending jobs once for each partition.
#[test]
fn d12_priority_shows_waiting_jobs_once_for_each_partition_by_tier() {
    let mut fake = fake();
    let class = JobClass { partition: "debug,long".into(), ..JobClass::clone(&fake.page.classes[0]) };
    fake.page.classes.push(Arc::new(class));
    fake.page.jobs[3].class = 1;
    fake.partitions[1].config.priority_tier = 9;
    let mut lines = |args: &[&str]| {
        let args = [args, &["-h", "-j", "30,10", "-o", "%i %P"]].concat();
        run_with(&mut fake, "squeue", squeue, &args, &[]).out
    };
    assert_eq!(lines(&["--priority", "--sort=-p,i"]), "30 long\n30 debug\n10 debug\n");
    assert_eq!(lines(&["--sort=i"]), "10 debug\n30 debug,long\n");
}

/// Checks finding 2.1 of the audit: `--noconvert` and `--only-job-state` take effect.
#[test]
fn audit_noconvert_and_only_job_state() {
    let mut fake = fake();
    fake.page.specs[0] = Arc::new(JobSpec {
        need: Need { memory: Memory::PerNodeMb(2048), ..Need::default() },
        ..JobSpec::clone(&fake.page.specs[0])
    });
    let mut line = |args: &[&str]| run_with(&mut fake, "squeue", squeue, &[&["-h", "-j", "10"], args].concat(), &[]);
    assert_eq!(line(&["-o", "%m"]).out, "2G\n");
    assert_eq!(line(&["--noconvert", "-o", "%m"]).out, "2048M\n");
    assert_eq!(line(&["--only-job-state"]).out.split_whitespace().collect::<Vec<_>>(), ["10", "R"]);
    let refused = line(&["--only-job-state", "-o", "%i %j"]);
    assert!(refused.code == 1 && refused.err.contains("--only-job-state"), "{}", refused.err);
    let json = line(&["--only-job-state", "--json"]).out;
    assert!(json.contains("\"standard_output\": \"\"") && !json.contains("\"job_id\": 0"), "{json}");
}

/// Checks faults P12: the line with the time is a part of the header.
#[test]
fn p12_no_line_with_the_time_without_a_header() {
    let first = |args: &[&str]| run("squeue", squeue, args).out.lines().next().unwrap_or_default().to_owned();
    assert!(first(&["-l"]).ends_with(" 2026"), "{}", first(&["-l"]));
    assert!(!first(&["-h", "-l"]).ends_with(" 2026"), "{}", first(&["-h", "-l"]));
}

#[test]
fn hidden_partitions_are_left_out_unless_they_are_asked_for() {
    let hides = |args: &[&str], env: &[(&str, &str)]| asked(args, env).0.no_hidden;
    assert!(hides(&[], &[]) && hides(&["--all", "--hide"], &[]) && hides(&["--hide"], &[("SQUEUE_ALL", "1")]));
    for (args, env) in [
        (&["--all"][..], &[][..]),
        (&["--hide", "-a"], &[]),
        (&["-p", "debug"], &[]),
        (&["-j", "10"], &[]),
        (&[], &[("SQUEUE_ALL", "1")]),
        (&[], &[("SQUEUE_PARTITION", "debug")]),
    ] {
        assert!(!hides(args, env), "{args:?} {env:?}");
    }
}
