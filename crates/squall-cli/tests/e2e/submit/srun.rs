//! What srun asks, hears from its step daemons, and makes of signals and lost controllers.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use squall_model::id::{JobId, StepNo};
use squall_model::job::{EndState, ExitCode, JobSpec, Outcome};
use squall_model::step::{FromStep, StepSpec, Stream, TaskProgram, ToStep};
use squall_model::wire::client::{Answer, Refusal, Request};

use super::played::{Cluster, Deed, Stepd, facts, layout, say, texts};

const OK: ExitCode = ExitCode::OK;

fn created(nodes: u32) -> Deed {
    say(Answer::StepCreated {
        step: StepNo(0),
        layout: Box::new(layout(nodes)),
        facts: Box::new(facts(5, nodes, &JobSpec::default())),
        kill_wait_s: 30,
        usual: None,
    })
}

fn done(code: u8, signal: u8) -> Deed {
    let exit = ExitCode { code, signal };
    let state = if exit.is_ok() { EndState::Completed } else { EndState::Failed };
    say(Answer::StepDone { step: StepNo(0), outcome: Outcome { state, exit, reason: None }, lost: None })
}

fn output(rank: u32, stderr: bool, text: &str) -> FromStep {
    FromStep::Output { rank, stderr, bytes: text.as_bytes().to_vec().into() }
}

fn exited(rank: u32, code: u8, signal: u8) -> FromStep {
    FromStep::Exited { rank, exit: ExitCode { code, signal }, oom: false }
}

/// A cluster whose step on that many nodes is played by `tasks`, on a thread for each node.
fn cluster(nodes: u32, end: (u8, u8), tasks: impl Fn(u32, Stepd) + Send + Sync + 'static) -> Cluster {
    let tasks = Arc::new(tasks);
    Cluster::play(move |_, request| {
        let Request::CreateStep { program, .. } = request else { return vec![say(Answer::Done)] };
        let (tasks, program) = (Arc::clone(&tasks), program.clone());
        let run = Deed::Do(Box::new(move || {
            let nodes = (0..nodes).map(|node| {
                let (tasks, program) = (Arc::clone(&tasks), program.clone());
                std::thread::spawn(move || tasks(node, Stepd::call(&program, node)))
            });
            let nodes: Vec<_> = nodes.collect();
            for node in nodes {
                node.join().unwrap();
            }
        }));
        vec![created(nodes), run, done(end.0, end.1)]
    })
}

fn asked(cluster: &Cluster) -> (StepSpec, TaskProgram) {
    let heard = cluster.heard.lock().unwrap();
    let found = heard.iter().find_map(|request| match request {
        Request::CreateStep { job: JobId(5), spec, program, .. } => Some(((**spec).clone(), (**program).clone())),
        _ => None,
    });
    found.unwrap()
}

#[test]
fn output_labels_and_exit_messages() {
    let cluster = cluster(2, (3, 0), |node, mut step| {
        step.tell(&[FromStep::Started(vec![(node, 100 + node)]), output(node, false, &format!("out {node}\n"))]);
        step.tell(&[output(node, true, "err\n"), exited(node, 3, 0), FromStep::Done]);
    });
    let (code, out, error) = cluster.run("srun", &["--jobid=5", "-l", "-n2", "prog", "arg"]);
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!((code, lines), (3, vec!["0: out 0", "1: out 1"]));
    let mut lines: Vec<&str> = error.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0: err", "1: err", "srun: error: n[1-2]: tasks 0-1: Exited with exit code 3"]);
    let (spec, program) = asked(&cluster);
    assert_eq!((spec.name.as_str(), spec.ntasks), ("prog", Some(2)));
    assert_eq!(program.commands[0].1, [b"prog".to_vec(), b"arg".to_vec()]);
    assert_eq!(program.work_dir, cluster.dir().to_string_lossy().as_bytes());
    assert!(program.export.is_none());
}

#[test]
fn ports_and_a_frequency_are_asked_for_with_the_step() {
    let cluster = cluster(1, (0, 0), |node, mut step| {
        step.tell(&[FromStep::Started(vec![(node, 100 + node)]), exited(node, 0, 0), FromStep::Done]);
    });
    let (code, ..) = cluster.run("srun", &["--jobid=5", "--resv-ports=3", "--cpu-freq=low-high:performance", "prog"]);
    let (spec, program) = asked(&cluster);
    let shown = program.options.shown.cpu_freq.as_deref();
    assert_eq!((code, spec.resv_ports, shown), (0, Some(3), Some("low-high:performance")));
    assert_eq!(spec.cpu_freq.as_deref(), shown);
}

/// Tools find job and step by these words (faults.md D12).
#[test]
fn d12_verbose_tells_of_options_allocation_launch_and_ends() {
    let cluster = cluster(2, (0, 0), |node, mut step| {
        step.tell(&[FromStep::Started(vec![(node, 100 + node)]), exited(node, 0, 0), FromStep::Done]);
    });
    let (code, _, error) = cluster.run("srun", &["--jobid=5", "-v", "-n2", "-t90", "prog"]);
    let mut lines: Vec<&str> = error.lines().collect();
    lines[6..].sort_unstable();
    let rule = "srun: -------------------- --------------------";
    let (start, end) = ("srun: launch/slurm: _task_start:", "srun: launch/slurm: _task_finish:");
    let of_node = |node: u32| {
        let (rank, ended) = (node - 1, "Received task exit notification for 1 task of StepId=5.0 (status=0x0000).");
        [
            format!("srun: launching StepId=5.0 on host n{node}, 1 tasks: {rank}"),
            format!("{start} Node n{node}, 1 tasks started"),
            format!("{end} {ended}"),
            format!("{end} n{node}: task {rank}: Completed"),
        ]
    };
    let said = [
        "srun: defined options",
        rule,
        "srun: jobid               : 5",
        "srun: ntasks              : 2",
        "srun: time                : 01:30:00",
        "srun: verbose             : 1",
        rule,
        "srun: end of defined options",
        "srun: jobid 5: nodes(2):`n[1-2]', cpu counts: 1(x2)",
        "srun: launch/slurm: launch_p_step_launch: CpuBindType=(null type)",
    ];
    let mut said: Vec<String> = said.map(str::to_owned).into_iter().chain(of_node(1)).chain(of_node(2)).collect();
    said[6..].sort_unstable();
    assert_eq!((code, lines), (0, said.iter().map(String::as_str).collect()));
}

/// A step daemon may be quicker than the controller's answer.
#[test]
fn what_comes_before_the_step_is_known_is_kept() {
    // More than a socket holds: srun has read of it before the controller answers.
    const TIMES: usize = 40;
    let line = format!("{}\n", "x".repeat(60_000));
    let said = line.clone();
    let cluster = Cluster::play(move |_, request| {
        let Request::CreateStep { program, .. } = request else { return vec![say(Answer::Done)] };
        let (program, said) = (program.clone(), said.clone());
        let run = Deed::Do(Box::new(move || {
            let mut step = Stepd::call(&program, 0);
            for _ in 0..TIMES {
                step.tell(&[output(0, false, &said)]);
            }
            step.tell(&[exited(0, 3, 0), FromStep::Done]);
        }));
        vec![run, created(1), done(3, 0)]
    });
    let (code, out, error) = cluster.run("srun", &["--jobid=5", "prog"]);
    assert_eq!((code, out == line.repeat(TIMES)), (3, true), "{} bytes of output", out.len());
    assert_eq!(error, "srun: error: n1: task 0: Exited with exit code 3\n");
}

#[test]
fn killed_tasks_and_programs_that_do_not_exist() {
    let killed = cluster(1, (0, 9), |_, mut step| step.tell(&[exited(0, 0, 9), FromStep::Done]));
    assert_eq!(
        killed.run("srun", &["--jobid=5", "x"]),
        (137, String::new(), "srun: error: n1: task 0: Killed\nsrun: Force Terminated StepId=5.0\n".into())
    );
    let absent = cluster(1, (2, 0), |_, mut step| {
        let error = "execve(): nosuchcmd: No such file or directory".to_owned();
        step.tell(&[FromStep::Failed { rank: 0, code: 2, error }, FromStep::Done]);
    });
    assert_eq!(
        absent.run("srun", &["--jobid=5", "nosuchcmd"]),
        (
            2,
            String::new(),
            "slurmstepd-n1: error: execve(): nosuchcmd: No such file or directory\n\
             srun: error: n1: task 0: Exited with exit code 2\n"
                .into()
        )
    );
    let oom = cluster(1, (0, 9), |_, mut step| {
        step.tell(&[FromStep::Exited { rank: 0, exit: ExitCode { code: 0, signal: 9 }, oom: true }, FromStep::Done]);
    });
    assert_eq!(oom.run("srun", &["--jobid=5", "x"]).0, 1);
}

#[test]
fn input_goes_to_every_task() {
    let cluster = cluster(2, (0, 0), |node, mut step| {
        let mut heard = Vec::new();
        while let Some(ToStep::Input { rank: None, bytes }) = step.hear() {
            if bytes.is_empty() {
                break;
            }
            heard.extend_from_slice(&bytes);
        }
        let text = String::from_utf8(heard).unwrap();
        step.tell(&[output(node, false, &format!("{node} {text}")), exited(node, 0, 0), FromStep::Done]);
    });
    let mut child = cluster
        .command("srun")
        .args(["--jobid=5", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"some words\n").unwrap();
    let (code, out, error) = texts(&child.wait_with_output().unwrap());
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!((code, lines, error.as_str()), (0, vec!["0 some words", "1 some words"], ""));
}

#[test]
fn files_of_srun_and_of_its_nodes() {
    let writing = || {
        cluster(1, (0, 0), |_, mut step| {
            step.tell(&[output(0, false, "out\n"), output(0, true, "err\n"), exited(0, 0, 0), FromStep::Done]);
        })
    };
    let cluster = writing();
    assert_eq!(cluster.run("srun", &["--jobid=5", "-o", "f-%j.%s", "x"]), (0, String::new(), String::new()));
    assert_eq!(fs::read_to_string(cluster.dir().join("f-5.0")).unwrap(), "out\nerr\n");
    let cluster = writing();
    assert_eq!(cluster.run("srun", &["--jobid=5", "-e", "e", "-i", "none", "x"]).1, "out\n");
    assert_eq!(fs::read_to_string(cluster.dir().join("e")).unwrap(), "err\n");
    assert_eq!(asked(&cluster).1.stdin, Stream::Null);
    let cluster = writing();
    cluster.run("srun", &["--jobid=5", "-o", "f-%t", "x"]);
    let (_, program) = asked(&cluster);
    assert_eq!((program.stdout, program.stderr), (Stream::File("f-%t".into()), Stream::Joined));
}

/// Starts srun and waits until it has printed the line that a task wrote.
fn started(cluster: &Cluster, args: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = cluster
        .command("srun")
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, out)
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
}

/// The next signal that a step daemon is told to send.
fn next_signal(step: &mut Stepd) -> i32 {
    loop {
        match step.hear() {
            Some(ToStep::Signal(signal)) => return signal,
            Some(_) => {}
            None => return 0,
        }
    }
}

#[test]
fn signals_go_to_the_tasks() {
    let cluster = cluster(1, (4, 0), |_, mut step| {
        step.tell(&[FromStep::Started(vec![(0, 9)]), output(0, false, "ready\n")]);
        assert_eq!(next_signal(&mut step), 10);
        step.tell(&[output(0, false, "usr1\n"), exited(0, 4, 0), FromStep::Done]);
    });
    let (child, mut out) = started(&cluster, &["--jobid=5", "x"]);
    signal(&child, Signal::USR1);
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "usr1\n");
    assert_eq!(texts(&child.wait_with_output().unwrap()).0, 4);
}

#[test]
fn two_interrupts_end_a_step() {
    let cluster = cluster(1, (0, 2), |_, mut step| {
        step.tell(&[FromStep::Started(vec![(0, 9)]), output(0, false, "ready\n")]);
        assert_eq!(next_signal(&mut step), 2);
        step.tell(&[exited(0, 0, 2), FromStep::Done]);
    });
    let (mut child, _out) = started(&cluster, &["--jobid=5", "x"]);
    let mut error = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    signal(&child, Signal::INT);
    error.read_line(&mut said).unwrap();
    error.read_line(&mut said).unwrap();
    assert_eq!(said, "srun: interrupt (one more within 1 sec to abort)\nsrun: StepId=5.0 task 0: running\n");
    signal(&child, Signal::INT);
    let rest: Vec<String> = error.lines().map_while(Result::ok).collect();
    assert_eq!(
        rest,
        [
            "srun: sending Ctrl-C to StepId=5.0",
            "srun: forcing job termination",
            "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
            "srun: error: n1: task 0: Interrupt"
        ]
    );
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

// Slurm's srun repeats the second interrupt and goes on waiting: Squall's ends, and the task is killed without it.
#[test]
fn a_third_interrupt_ends_srun_at_once_and_has_the_step_killed() {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let cluster = cluster(1, (0, 9), move |_, mut step| {
        step.tell(&[FromStep::Started(vec![(0, 9)]), output(0, false, "ready\n")]);
        // The task ignores the interrupt.
        tell.send(next_signal(&mut step)).unwrap();
        while let Some(message) = step.hear() {
            if let ToStep::End { kill_wait_s, .. } = message {
                tell.send(kill_wait_s as i32).unwrap();
            }
        }
    });
    let (mut child, _out) = started(&cluster, &["--jobid=5", "x"]);
    let mut error = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    for lines in [2, 3] {
        signal(&child, Signal::INT);
        (0..lines).for_each(|_| drop(error.read_line(&mut said)));
    }
    assert!(said.ends_with("Job step aborted: Waiting up to 32 seconds for job step to finish.\n"), "{said}");
    // If this machine stalls for a second, the third interrupt is the first of a new pair.
    while child.try_wait().unwrap().is_none() {
        signal(&child, Signal::INT);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(error.lines().map_while(Result::ok).collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!((told.recv(), told.recv()), (Ok(2), Ok(0)), "the interrupt, then the end without a wait");
    let heard = cluster.heard.lock().unwrap();
    let cancels = |request: &Request| matches!(request, Request::Cancel { step: Some(StepNo(0)), signal: None, .. });
    assert!(heard.iter().any(cancels), "{heard:?}");
}

/// faults.md F16: a step that others end is announced as in Slurm, and not called a forced termination.
#[test]
fn f16_a_cancelled_step_is_announced_first() {
    let cluster = cluster(1, (0, 15), |_, mut step| {
        let text = "*** STEP 5.0 ON n1 CANCELLED AT 2026-11-28T10:00:00 ***";
        step.tell(&[FromStep::Notice(format!("error: {text}")), exited(0, 0, 15), FromStep::Done]);
    });
    let (code, _, error) = cluster.run("srun", &["--jobid=5", "x"]);
    let expected = "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n\
                    slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-11-28T10:00:00 ***\n\
                    srun: error: n1: task 0: Terminated\n";
    assert_eq!((code, error.as_str()), (143, expected));
}

/// faults.md R7: the controller tells of tasks that died with their step daemon, and `-K` acts.
#[test]
fn r7_tasks_that_died_with_their_step_daemon_count_as_killed() {
    let cluster = Cluster::play(|_, request| match request {
        Request::CreateStep { program, .. } => {
            let program = program.clone();
            let part = Answer::StepPart { step: StepNo(0), nodes: "n2".into(), exit: ExitCode { code: 0, signal: 9 } };
            let run = Deed::Do(Box::new(move || {
                // The second step daemon dies: its link ends without a last frame.
                drop(Stepd::call(&program, 1));
                let mut other = Stepd::call(&program, 0);
                other.tell(&[output(0, false, "ready\n")]);
                std::thread::spawn(move || while other.hear().is_some() {});
            }));
            vec![created(2), run, say(part)]
        }
        Request::Cancel { step: Some(StepNo(0)), signal: None, .. } => vec![],
        other => panic!("{other:?}"),
    });
    let (mut child, _out) = started(&cluster, &["--jobid=5", "-K", "-n2", "x"]);
    let error = BufReader::new(child.stderr.take().unwrap());
    let said: Vec<String> = error.lines().map_while(Result::ok).take(2).collect();
    assert_eq!(said, ["srun: error: n2: task 1: Killed", "srun: Terminating StepId=5.0"]);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// faults.md P4.
#[test]
fn p4_a_node_that_fails_is_named() {
    let cluster = Cluster::play(|_, request| match request {
        Request::CreateStep { program, .. } => {
            let program = program.clone();
            let exit = ExitCode { code: 0, signal: 9 };
            let run = Deed::Do(Box::new(move || {
                // The node's step daemon may be as quick as the controller.
                Stepd::call(&program, 1).tell(&[exited(1, 0, 9), FromStep::Done]);
                Stepd::call(&program, 0).tell(&[exited(0, 0, 0), FromStep::Done]);
            }));
            let fails = say(Answer::Notice("error: Node failure on n2".into()));
            vec![
                created(2),
                fails,
                say(Answer::StepPart { step: StepNo(0), nodes: "n2".into(), exit }),
                run,
                done(0, 9),
            ]
        }
        other => panic!("{other:?}"),
    });
    let (code, _, error) = cluster.run("srun", &["--jobid=5", "-Q", "-n2", "x"]);
    let said = "srun: error: Node failure on n2\nsrun: error: n2: task 1: Killed\n";
    assert_eq!((code, error.as_str()), (137, said));
}

#[test]
fn a_bad_exit_ends_the_step_where_asked() {
    let cluster = Cluster::play(|_, request| match request {
        Request::CreateStep { program, .. } => {
            let program = program.clone();
            vec![
                created(2),
                Deed::Do(Box::new(move || {
                    Stepd::call(&program, 0).tell(&[exited(0, 7, 0), FromStep::Done]);
                    // The other task ends when the controller is told to end the step.
                    let mut other = Stepd::call(&program, 1);
                    other.tell(&[output(1, false, "ready\n")]);
                    std::thread::spawn(move || while other.hear().is_some() {});
                })),
            ]
        }
        Request::Cancel { step: Some(StepNo(0)), signal: None, .. } => vec![],
        other => panic!("{other:?}"),
    });
    let (mut child, _out) = started(&cluster, &["--jobid=5", "-K", "-n2", "x"]);
    let error = BufReader::new(child.stderr.take().unwrap());
    let said: Vec<String> = error.lines().map_while(Result::ok).take(2).collect();
    assert_eq!(said, ["srun: error: n1: task 0: Exited with exit code 7", "srun: Terminating StepId=5.0"]);
    let cancelled = || cluster.heard.lock().unwrap().iter().any(|request| matches!(request, Request::Cancel { .. }));
    while !cancelled() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_controller_that_restarts_is_asked_again_with_the_same_key() {
    let cluster = Cluster::play(|at, request| match (at, request) {
        (0, Request::CreateStep { program, .. }) => {
            let program = program.clone();
            let run = Deed::Do(Box::new(move || {
                std::thread::spawn(move || {
                    let mut step = Stepd::call(&program, 0);
                    step.tell(&[
                        output(0, false, "ready\n"),
                        output(0, false, "more\n"),
                        exited(0, 6, 0),
                        FromStep::Done,
                    ]);
                    while step.hear().is_some() {}
                });
            }));
            vec![created(1), run, Deed::Leave]
        }
        (_, Request::CreateStep { .. }) => vec![created(1), done(6, 0)],
        (_, other) => panic!("{other:?}"),
    });
    let (code, out, error) = cluster.run("srun", &["--jobid=5", "x"]);
    assert_eq!((code, out.as_str()), (6, "ready\nmore\n"), "{error}");
    assert_eq!(error, "srun: error: n1: task 0: Exited with exit code 6\n");
    let heard = cluster.heard.lock().unwrap();
    let keys: Vec<_> = heard
        .iter()
        .filter_map(|request| if let Request::CreateStep { key, .. } = request { Some(*key) } else { None })
        .collect();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
}

#[test]
fn refused_steps_and_lost_nodes() {
    let refused = Cluster::play(|_, _| vec![say(Answer::Refused(Refusal::TooManyRequested("processors".into())))]);
    assert_eq!(
        refused.run("srun", &["--jobid=5", "-n9", "x"]),
        (
            1,
            String::new(),
            "srun: error: Unable to create step for job 5: More processors requested than permitted\n".into()
        )
    );
    let lost = Cluster::play(|_, _| {
        let outcome = Outcome {
            state: EndState::NodeFail,
            exit: ExitCode { code: 0, signal: 9 },
            reason: Some("node n1 is lost".into()),
        };
        vec![created(1), say(Answer::StepDone { step: StepNo(0), outcome, lost: None })]
    });
    assert_eq!(
        lost.run("srun", &["--jobid=5", "x"]),
        (137, String::new(), "srun: error: StepId=5.0: node n1 is lost\n".into())
    );
}

#[test]
fn an_allocation_of_its_own_is_asked_for_with_its_step_and_given_back_when_the_tasks_have_ended() {
    let cluster = Cluster::play(|_, request| match request {
        Request::Allocate { spec, step, .. } => {
            let program = Box::new(step.as_ref().unwrap().program.clone());
            let run = move || Stepd::call(&program, 0).tell(&[exited(0, 5, 0), FromStep::Done]);
            vec![
                say(Answer::Submitted { job: JobId(5), note: None, message: None }),
                say(Answer::Allocated(Box::new(facts(5, 1, spec)))),
                created(1),
                Deed::Do(Box::new(run)),
            ]
        }
        // That the step is over it may hear as well, before the answer.
        Request::Finish { .. } => vec![done(5, 0), say(Answer::Done)],
        other => panic!("{other:?}"),
    });
    let (code, _, error) = cluster.run("srun", &["-N1", "-t5", "prog", "x"]);
    assert_eq!((code, error.as_str()), (5, "srun: error: n1: task 0: Exited with exit code 5\n"));
    let heard = cluster.heard.lock().unwrap();
    let [Request::Allocate { spec, step, .. }, Request::Finish { job, exit }] = heard.as_slice() else {
        panic!("{heard:?}")
    };
    assert_eq!((spec.name.as_str(), spec.command.as_str(), spec.time_limit_s), ("prog", "prog x", Some(300)));
    assert_eq!(step.as_ref().unwrap().spec.time_limit_s, None);
    assert_eq!((*job, *exit), (JobId(5), ExitCode { code: 5, ..OK }));
}

#[test]
fn a_step_whose_controller_was_lost_meanwhile_is_asked_for_again_under_its_key() {
    let cluster = Cluster::play(|_, request| match request {
        // It dies before it says that the allocation runs.
        Request::Allocate { .. } => {
            vec![say(Answer::Submitted { job: JobId(5), note: None, message: None }), Deed::Leave]
        }
        Request::Attach { .. } => vec![say(Answer::Allocated(Box::new(facts(5, 1, &JobSpec::default()))))],
        Request::CreateStep { program, .. } => {
            let program = program.clone();
            let run = move || Stepd::call(&program, 0).tell(&[exited(0, 0, 0), FromStep::Done]);
            vec![created(1), Deed::Do(Box::new(run))]
        }
        Request::Finish { .. } => vec![say(Answer::Done)],
        other => panic!("{other:?}"),
    });
    assert_eq!(cluster.run("srun", &["-N1", "prog"]), (0, String::new(), String::new()));
    let heard = cluster.heard.lock().unwrap();
    let [
        Request::Allocate { step, .. },
        Request::Attach { .. },
        Request::CreateStep { job, key, .. },
        Request::Finish { .. },
    ] = heard.as_slice()
    else {
        panic!("{heard:?}")
    };
    assert_eq!((*job, *key), (JobId(5), step.as_ref().unwrap().key));
}

#[test]
fn what_runs_before_a_step_wants_the_allocation_first() {
    let cluster = Cluster::play(|_, request| match request {
        Request::Allocate { spec, step: None, .. } => vec![
            say(Answer::Submitted { job: JobId(5), note: None, message: None }),
            say(Answer::Allocated(Box::new(facts(5, 1, spec)))),
        ],
        Request::Finish { .. } => vec![say(Answer::Done)],
        other => panic!("{other:?}"),
    });
    let (code, _, error) = cluster.run("srun", &["-N1", "--prolog=/bin/false", "prog"]);
    assert_eq!((code, error.as_str()), (1, "srun: error: srun prolog failed rc = 1. Aborting step.\n"));
}

#[test]
fn what_a_job_has_is_the_default_of_its_steps() {
    let cluster = cluster(1, (0, 0), |_, mut step| step.tell(&[exited(0, 0, 0), FromStep::Done]));
    let job = [
        ("SLURM_JOB_ID", "5"),
        ("SLURM_JOB_NUM_NODES", "4"),
        ("SLURM_NTASKS", "8"),
        ("SLURM_NTASKS_PER_NODE", "2"),
        ("SLURM_MEM_PER_NODE", "100"),
        ("SLURM_JOB_NAME", "outer"),
    ];
    let output = cluster.command("srun").args(["-n", "1", "x"]).envs(job).output().unwrap();
    let (code, _, error) = texts(&output);
    assert_eq!((code, error.as_str()), (0, "srun: Warning: can't run 1 processes on 4 nodes, setting nnodes to 1\n"));
    let (spec, _) = asked(&cluster);
    assert_eq!((spec.ntasks, spec.ntasks_per_node, spec.nodes_min), (Some(1), None, Some(1)));
    assert_eq!((spec.name.as_str(), spec.memory), ("x", squall_model::resource::Memory::Unset));
}

#[test]
fn no_command_is_refused() {
    let cluster = cluster(1, (0, 0), |_, _| {});
    let none = (1, String::new(), "srun: fatal: No command given to execute.\n".into());
    assert_eq!(cluster.run("srun", &["-n1", "a", ":", "-n2"]), none);
    assert_eq!(cluster.run("srun", &["-n1"]), (1, String::new(), "srun: fatal: No command given to execute.\n".into()));
}

#[test]
fn tasks_whose_output_nobody_reads_are_ended_without_a_word() {
    let cluster = cluster(1, (0, 9), |_, mut step| {
        step.tell(&[output(0, false, "ready\n")]);
        // Until srun finds that nobody reads, and says so by a signal.
        let mut reader = step.another();
        let told = std::thread::spawn(move || next_signal(&mut reader));
        while !told.is_finished() {
            step.tell(&[output(0, false, "y\n")]);
            std::thread::yield_now();
        }
        assert_eq!(told.join().unwrap(), 9);
        step.tell(&[exited(0, 0, 9), FromStep::Done]);
    });
    let (child, out) = started(&cluster, &["--jobid=5", "yes"]);
    drop(out);
    let (code, _, error) = texts(&child.wait_with_output().unwrap());
    assert_eq!((code, error.as_str()), (137, ""));
}
