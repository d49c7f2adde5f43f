//! Batch scripts.

use std::fs;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use squall_host::spool::{NAME_BYTES, RESULT_BYTES, file};
use squall_model::step::Program;
use squall_model::wire::node::EndReason;
use squall_model::wire::stepd::{FromStepd, ToStepd};
use squall_model::wire::{Hello, Role};

use super::testing::{launch, spec};
use super::{Peer, Step, Test, batch, code, lives, signal, socket, write_launch};

pub(crate) const TESTS: [Test; 15] = [
    ("batch::cve_2026_65168_bad_requests_leave_a_step_alone", cve_2026_65168_bad_requests_leave_a_step_alone),
    ("batch::started_by_root_it_is_the_user_in_all_it_does", started_by_root_it_is_the_user_in_all_it_does),
    (
        "batch::an_emulated_step_has_no_process_and_ends_by_itself_or_when_told",
        an_emulated_step_has_no_process_and_ends_by_itself_or_when_told,
    ),
    (
        "batch::a_script_runs_and_its_end_is_written_before_it_is_told",
        a_script_runs_and_its_end_is_written_before_it_is_told,
    ),
    ("batch::a_signal_is_its_exit", a_signal_is_its_exit),
    (
        "batch::what_forks_twice_and_ignores_term_is_gone_at_the_end",
        what_forks_twice_and_ignores_term_is_gone_at_the_end,
    ),
    (
        "batch::an_ended_job_says_why_and_dies_though_it_ignores_term",
        an_ended_job_says_why_and_dies_though_it_ignores_term,
    ),
    ("batch::signals_reach_the_script_or_all_of_it", signals_reach_the_script_or_all_of_it),
    (
        "batch::output_files_are_made_where_they_are_wanted_or_the_job_fails_with_53",
        output_files_are_made_where_they_are_wanted_or_the_job_fails_with_53,
    ),
    ("batch::a_restarted_job_goes_on_in_its_output", a_restarted_job_goes_on_in_its_output),
    ("batch::what_cannot_be_executed_exits_as_slurm_says", what_cannot_be_executed_exits_as_slurm_says),
    ("batch::a_missing_work_dir_is_said_and_replaced", a_missing_work_dir_is_said_and_replaced),
    (
        "batch::over_its_memory_without_a_cgroup_it_is_ended_and_told",
        over_its_memory_without_a_cgroup_it_is_ended_and_told,
    ),
    ("batch::no_step_starts_twice", no_step_starts_twice),
    ("batch::a_daemon_that_makes_its_own_socket_is_found_too", a_daemon_that_makes_its_own_socket_is_found_too),
];

fn a_script_runs_and_its_end_is_written_before_it_is_told() {
    let script = "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.01; done\necho out $MINE $SLURM_JOB_ID $SLURM_PROCID $1\necho err >&2\npwd\numask\n\
        [ $SLURM_TASK_PID = $$ ] && echo pid\nexit 3\n";
    let mut step = batch(script, |l| spec(l).args = vec!["an arg".into()]);
    let mut node = step.connect();
    assert!(matches!(node.receive(), Some(Hello { role: Role::Step, .. })));
    fs::write(step.dir.join("go"), "").unwrap();
    let mut told = Vec::new();
    while let Some(message) = node.receive::<FromStepd>() {
        told.push(message);
    }
    assert!(matches!(&told[0], FromStepd::Hello { key, .. } if key.to_string() == "12.1.batch"), "{told:?}");
    let end = step.end();
    assert_eq!(told.last(), Some(&FromStepd::Ended(end.clone())));
    assert_eq!((end.exit, end.oom, end.lost, end.note), (code(3), false, false, None));
    assert!(end.usage.max_rss_kb > 100 && end.ended >= end.started, "{:?}", end.usage);
    let expected = format!("out yes 12 0 an arg\nerr\n{}\n0022\npid\n", step.dir.display());
    assert_eq!(step.text("slurm-12.out"), expected);
    let pids = step.text("spool/pids");
    let fields: Vec<&str> = pids.split_whitespace().collect();
    assert_eq!((fields.len(), fields[0]), (3, "0"));
}

fn an_emulated_step_has_no_process_and_ends_by_itself_or_when_told() {
    let timer = |run_ms| Program::Timer { run_ms, code: 9 };
    let mut step = batch("", |l| l.program = timer(20));
    assert_eq!(step.end().exit, code(9));
    assert!(!step.dir.join("slurm-12.out").exists());
    let mut step = batch("", |l| l.program = timer(1_000_000));
    step.connect().send(&ToStepd::End { kill_wait_s: 30, why: EndReason::Cancelled });
    assert_eq!(step.end().exit, signal(15));
}

/// Needs root to try; otherwise the daemon can only be who it is.
fn started_by_root_it_is_the_user_in_all_it_does() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let script = "#!/bin/sh\nid -u; id -g; id -G; hostname; cat /proc/self/oom_score_adj\n\
        grep -h ^Cap[IPE] /proc/self/status | tr -d '\\t'\nstat -c %u /proc/$PPID/mem; cat /etc/shadow\n";
    let mut step = Step::start(|dir| {
        let mut launch = launch(Program::Batch, dir);
        let owner = Arc::make_mut(&mut Arc::make_mut(&mut launch.facts).owner);
        (owner.uid, owner.gid) = (65534, 65533);
        owner.groups = vec![65532, 65533];
        spec(&mut launch).stdout = Some("made/by/user".into());
        std::os::unix::fs::chown(dir, Some(65534), Some(65533)).unwrap();
        (launch, script.to_owned())
    });
    assert_eq!(step.end().exit, code(1));
    let text = step.text("made/by/user");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["65534", "65533"], "{text}");
    let mut groups: Vec<&str> = lines[2].split(' ').collect();
    groups.sort_unstable();
    assert_eq!(groups, ["65532", "65533"]);
    // In a container even root may not rename the host, or make its processes immune to a lack of memory.
    assert!(lines[4] == "0", "{text}");
    assert_eq!(lines[5..8], ["CapInh", "CapPrm", "CapEff"].map(|set| format!("{set}:0000000000000000")));
    assert_eq!(lines[8], "0", "nobody may look into the daemon: {text}");
    assert!(lines[9].contains("Permission denied"), "{text}");
    let made = std::os::unix::fs::MetadataExt::uid(&fs::metadata(step.dir.join("made")).unwrap());
    assert_eq!(made, 65534);
}

fn a_signal_is_its_exit() {
    assert_eq!(batch("#!/bin/sh\nkill -9 $$\n", |_| {}).end().exit, signal(9));
}

fn cve_2026_65168_bad_requests_leave_a_step_alone() {
    use std::io::Write;
    let script = "#!/bin/sh\necho ready > ready\nwhile [ ! -e go ]; do sleep 0.01; done\n";
    let mut step = batch(script, |_| {});
    assert_eq!(step.line("ready"), "ready");
    let framed = |body: &[u8]| {
        let mut frame = (body.len() as u32).to_le_bytes().to_vec();
        frame.extend(crc32c::crc32c(body).to_le_bytes());
        frame.extend(body);
        frame
    };
    let mut long = u32::MAX.to_le_bytes().to_vec();
    long.extend([0; 64]);
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), long, framed(&[0xff; 40]), framed(&[0x9f; 4000]), framed(b"")] {
        // Without a greeting, and after one.
        let mut bare = UnixStream::connect_addr(&socket(&step.dir.join("spool"))).unwrap();
        drop(bare.write_all(&bytes));
        let mut greeted = step.connect();
        drop(greeted.0.write_all(&bytes));
    }
    fs::write(step.dir.join("go"), "").unwrap();
    assert_eq!(step.end().exit, code(0));
}

fn what_forks_twice_and_ignores_term_is_gone_at_the_end() {
    let script = "#!/bin/sh\n(setsid sh -c 'trap \"\" TERM HUP; echo $$ > hidden; while :; do sleep 100; done' \
        >/dev/null 2>&1 &)\nwhile [ ! -s hidden ]; do sleep 0.01; done\n";
    let mut step = batch(script, |_| {});
    assert_eq!(step.end().exit, code(0));
    let hidden = step.line("hidden");
    assert!(!lives(&hidden), "{hidden} still lives");
}

fn an_ended_job_says_why_and_dies_though_it_ignores_term() {
    let script = "#!/bin/sh\ntrap 'echo term' TERM\necho ready > ready\nwhile :; do sleep 0.05; done\n";
    let mut step = batch(script, |l| spec(l).stderr = Some("%j.err".into()));
    let mut node = step.connect();
    assert_eq!(step.line("ready"), "ready");
    node.send(&ToStepd::End { kill_wait_s: 1, why: EndReason::TimeLimit });
    assert_eq!(step.end().exit, signal(9));
    assert_eq!(step.text("slurm-12.out"), "term\n");
    let text = step.text("12.err");
    let start = "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 20";
    let line = text.lines().find(|l| l.starts_with(start)).unwrap_or_else(|| panic!("{text}"));
    assert!(line.ends_with(" DUE TO TIME LIMIT ***"), "{line}");
}

fn signals_reach_the_script_or_all_of_it() {
    let script = "#!/bin/sh\ntrap 'echo script > got' USR1\nsh -c 'trap \"echo child > below; exit\" USR1; \
        echo up > up; while :; do sleep 0.02; done' &\nwhile [ ! -s got ]; do sleep 0.02; done\nwait\nwait\n";
    let mut step = batch(script, |_| {});
    let mut node = step.connect();
    assert_eq!(step.line("up"), "up");
    node.send(&ToStepd::Signal { signal: 10, all: false });
    assert_eq!(step.line("got"), "script");
    assert!(!step.dir.join("below").exists());
    node.send(&ToStepd::Signal { signal: 10, all: true });
    assert_eq!(step.line("below"), "child");
    step.end();
}

fn output_files_are_made_where_they_are_wanted_or_the_job_fails_with_53() {
    let script = "#!/bin/sh\necho out; echo err >&2\n";
    let mut step = batch(script, |l| {
        spec(l).stdout = Some("log/%j/%x".into());
        spec(l).stderr = Some("log/%j/%x".into());
    });
    assert_eq!(step.end().exit, code(0));
    assert_eq!(step.text("log/12/trial"), "out\nerr\n");
    let mut step = batch(script, |l| spec(l).stdout = Some("/dev/null/x".into()));
    let end = step.end();
    assert_eq!(end.exit, signal(53));
    assert_eq!(end.note.as_deref(), Some("Could not open stdout file /dev/null/x: Not a directory"));
    assert!(!step.dir.join("slurm-12.out").exists());
}

fn a_restarted_job_goes_on_in_its_output() {
    for (restarts, append, expected) in
        [(0, None, "new\n"), (1, None, "old\nnew\n"), (1, Some(false), "new\n"), (0, Some(true), "old\nnew\n")]
    {
        let mut step = Step::start(|dir| {
            fs::write(dir.join("slurm-12.out"), "old\n").unwrap();
            let mut launch = launch(Program::Batch, dir);
            Arc::make_mut(&mut launch.facts).restarts = restarts;
            spec(&mut launch).append = append;
            (launch, "#!/bin/sh\necho new\n".to_owned())
        });
        step.end();
        assert_eq!(step.text("slurm-12.out"), expected);
    }
}

fn what_cannot_be_executed_exits_as_slurm_says() {
    let mut step = batch("#!/no/such/interpreter\n", |_| {});
    let end = step.end();
    assert_eq!(end.exit, code(2));
    let text = "execve(): bad interpreter(/no/such/interpreter): No such file or directory";
    assert_eq!(step.text("slurm-12.out"), format!("slurmstepd: error: {text}\n"));
    assert_eq!(end.note.as_deref(), Some(text));
}

fn a_missing_work_dir_is_said_and_replaced() {
    let mut step = batch("#!/bin/sh\npwd\n", |l| {
        spec(l).stdout = Some(format!("{}/out", l.facts.spec.work_dir));
        spec(l).work_dir = "/nonexistent".into();
    });
    assert_eq!(step.end().exit, code(0));
    let note = "couldn't chdir to `/nonexistent': No such file or directory: going to /tmp instead";
    assert_eq!(step.text("out"), format!("slurmstepd: error: {note}\n/tmp\n"));
}

fn over_its_memory_without_a_cgroup_it_is_ended_and_told() {
    let script = "#!/bin/sh\nx=$(head -c 60000000 /dev/zero | tr '\\0' x)\nsleep 100\n";
    let mut step = batch(script, |l| l.memory_mb = 16);
    let end = step.end();
    assert!(end.oom);
    assert_eq!(end.exit, signal(125));
    let text = "Detected 1 oom_kill event in StepId=12.batch. Some of the step tasks have been OOM Killed.";
    assert_eq!(step.text("slurm-12.out"), format!("slurmstepd: error: {text}\n"));
    let note = end.note.unwrap();
    assert!(note.starts_with(text) && note.ends_with("MiB, limit 16 MiB."), "{note}");
}

fn no_step_starts_twice() {
    let mut step = batch("#!/bin/sh\necho once >> count\nwhile [ ! -e go ]; do sleep 0.01; done\n", |_| {});
    assert_eq!(step.line("count"), "once");
    let mut second = Step::daemon(&step.dir.join("spool"), Stdio::null());
    assert!(second.wait().unwrap().success());
    fs::write(step.dir.join("go"), "").unwrap();
    assert_eq!(step.end().exit, code(0));
    assert_eq!(step.text("count"), "once\n");
}

fn a_daemon_that_makes_its_own_socket_is_found_too() {
    let step = batch("#!/bin/sh\n:\n", |_| {});
    let spool = step.dir.join("again");
    fs::create_dir(&spool).unwrap();
    for name in [file::SCRIPT, file::ENVIRONMENT] {
        fs::copy(step.dir.join("spool").join(name), spool.join(name)).unwrap();
    }
    let launch = fs::read(step.dir.join("spool").join(file::LAUNCH)).unwrap();
    write_launch(&spool, launch[..launch.len() - NAME_BYTES].to_vec());
    fs::write(spool.join(file::SCRIPT), "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.01; done\n").unwrap();
    fs::write(spool.join(file::RESULT), [0; RESULT_BYTES]).unwrap();
    fs::write(spool.join(file::UNTAKEN), "").unwrap();
    let mut daemon = Step::daemon(&spool, Stdio::null());
    let stream = loop {
        match UnixStream::connect_addr(&socket(&spool)) {
            Ok(stream) => break stream,
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let mut node = Peer::new(stream);
    assert!(node.receive::<Hello>().is_some());
    node.send(&ToStepd::Usage);
    let mut usage = None;
    while usage.is_none() {
        if let FromStepd::Usage(u, _) = node.receive().unwrap() {
            usage = Some(u);
        }
    }
    fs::write(step.dir.join("go"), "").unwrap();
    daemon.wait().unwrap();
    assert!(usage.is_some());
}
