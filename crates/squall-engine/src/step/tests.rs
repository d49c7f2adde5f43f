//! Tests of whole courses of a step.

use squall_model::id::{Attempt, JobId, StepKey, StepNo};
use squall_model::job::{ExitCode, Usage};
use squall_model::report::StepEnd;
use squall_model::series::Sample;
use squall_model::step::FromStep;
use squall_model::time::{Span, Time};
use squall_model::wire::node::EndReason;
use squall_model::wire::stepd::FromStepd;

use super::{StepAct, StepInput, StepMachine, StepSetup};
use crate::machine::Machine;

/// A step machine under test, with its clock.
struct Story {
    machine: StepMachine,
    now: Time,
}

fn code(code: u8) -> ExitCode {
    ExitCode { code, signal: 0 }
}

fn signal(signal: u8) -> ExitCode {
    ExitCode { code: 0, signal }
}

impl Story {
    fn new(step: StepNo, ranks: &[u32], change: impl FnOnce(&mut StepSetup)) -> Self {
        let mut setup = StepSetup {
            key: StepKey { job: JobId(12), attempt: Attempt(1), step },
            ranks: ranks.to_vec(),
            client: step != StepNo::BATCH,
            kill_wait_s: 30,
            kill_on_bad_exit: false,
            oom_kill_step: false,
            report: false,
        };
        change(&mut setup);
        Self { machine: StepMachine::new(setup), now: Time::from_secs(1000) }
    }
    fn step(&mut self, input: StepInput) -> Vec<StepAct> {
        let mut out = Vec::new();
        let ends = matches!(input, StepInput::End { .. });
        self.machine.step(self.now, input, &mut out);
        if ends {
            // faults.md A11: after the acknowledgement no task of the step begins.
            assert_eq!(out.pop(), Some(StepAct::Node(FromStepd::Ending)), "an end is acknowledged when all is done");
        }
        out
    }
    /// Makes a machine with all tasks running; rank r is process 100 + r.
    fn running(step: StepNo, ranks: &[u32], change: impl FnOnce(&mut StepSetup)) -> Self {
        let mut story = Self::new(step, ranks, change);
        assert_eq!(story.step(StepInput::Start), [StepAct::Spawn]);
        for &rank in ranks {
            let acts = story.step(StepInput::Spawned { rank, pid: 100 + rank });
            let last = Some(&rank) == ranks.last();
            assert_eq!(acts.iter().any(|a| matches!(a, StepAct::Node(FromStepd::Started { .. }))), last);
        }
        story
    }
    /// Ends the batch script. `heard`: it caught TERM before.
    fn script_exit(&mut self, exit: ExitCode, heard: bool) -> StepEnd {
        let acts = self.step(StepInput::Exited { rank: 0, exit, usage: Usage::default(), heard });
        self.close(&acts)
    }
    fn exit(&mut self, rank: u32, exit: ExitCode) -> Vec<StepAct> {
        let usage = Usage { max_rss_kb: 100 + u64::from(rank), user: Span(5), ..Usage::default() };
        self.step(StepInput::Exited { rank, exit, usage, heard: false })
    }
    /// Runs from the end of the last task, which gave the actions `acts`, to the final message.
    fn close(&mut self, acts: &[StepAct]) -> StepEnd {
        assert_eq!(acts.last(), Some(&StepAct::KillLeft), "{acts:?}");
        assert_eq!(self.step(StepInput::Gone), [StepAct::Drain]);
        let acts = self.step(StepInput::Drained { delivered: true });
        let StepAct::WriteResult(last @ FromStepd::Ended(end)) = &acts[0] else { panic!("{acts:?}") };
        assert_eq!(acts[1..], [StepAct::Node(last.clone()), StepAct::Client(FromStep::Done), StepAct::Exit]);
        assert!(self.machine.is_over() && self.machine.deadline().is_none());
        end.clone()
    }
    fn wait(&mut self, secs: u64) -> Vec<StepAct> {
        self.now = self.now + Span::from_secs(secs);
        if self.machine.deadline().is_some_and(|at| self.now >= at) { self.step(StepInput::Tick) } else { Vec::new() }
    }
}

fn end(kill_wait_s: u64, why: EndReason) -> StepInput {
    StepInput::End { kill_wait_s, why }
}

const TERM_AND_CONT: [StepAct; 2] =
    [StepAct::Signal { signal: 15, all: true }, StepAct::Signal { signal: 18, all: true }];

#[test]
fn the_result_is_written_before_it_is_told() {
    let mut story = Story::running(StepNo(0), &[3, 4], |_| {});
    story.now = Time::from_secs(1005);
    assert_eq!(story.exit(4, code(0)), [StepAct::Client(FromStep::Exited { rank: 4, exit: code(0), oom: false })]);
    let acts = story.exit(3, code(0));
    let told = story.close(&acts);
    assert_eq!((told.exit, told.oom, told.lost, told.note.clone()), (ExitCode::OK, false, false, None));
    assert_eq!((told.started, told.ended), (Time::from_secs(1000), Time::from_secs(1005)));
    assert_eq!((told.usage.user, told.usage.max_rss_kb, told.usage.max_rss_task), (Span(10), 104, 4));
    assert_eq!(told.usage.total_rss_kb, 207);
}

#[test]
fn exits_add_up_as_in_slurm() {
    for (exits, expected) in [
        (&[code(1), code(7), code(3)][..], code(7)),
        (&[code(9), signal(11), signal(6)], signal(11)),
        (&[code(0), code(0)], code(0)),
    ] {
        let ranks: Vec<u32> = (0..exits.len() as u32).collect();
        let mut story = Story::running(StepNo(0), &ranks, |_| {});
        let mut acts = Vec::new();
        for (&rank, &exit) in ranks.iter().zip(exits) {
            acts = story.exit(rank, exit);
        }
        assert_eq!(story.close(&acts).exit, expected);
    }
}

#[test]
fn tasks_that_we_ended_do_not_count_unless_all_were() {
    let mut story = Story::running(StepNo(0), &[0, 1, 2], |s| s.kill_on_bad_exit = true);
    assert_eq!(story.exit(1, code(5))[1..], TERM_AND_CONT);
    story.exit(0, signal(15));
    let acts = story.exit(2, signal(15));
    assert_eq!(story.close(&acts).exit, code(5));
    let mut story = Story::running(StepNo(0), &[0, 1], |_| {});
    story.step(end(30, EndReason::Cancelled));
    story.exit(1, signal(15));
    let acts = story.exit(0, signal(15));
    assert_eq!(story.close(&acts).exit, signal(15));
}

#[test]
fn who_requeues_his_own_job_lives_to_hear_the_answer() {
    let mut story = Story::running(StepNo::BATCH, &[0], |_| {});
    assert_eq!(story.step(end(30, EndReason::RequeuesItself)), []);
    let acts = story.wait(1);
    assert_eq!((&acts[0], &acts[1..]), (&StepAct::NoticeEnd(EndReason::RequeuesItself), &TERM_AND_CONT[..]));
    story.exit(0, signal(15));
    let mut story = Story::running(StepNo::BATCH, &[0], |_| {});
    story.step(end(30, EndReason::RequeuesItself));
    assert_eq!(story.step(end(30, EndReason::Cancelled))[1..], TERM_AND_CONT);
}

#[test]
fn an_end_is_told_then_term_then_kill() {
    let mut story = Story::running(StepNo::BATCH, &[0], |_| {});
    let acts = story.step(end(30, EndReason::TimeLimit));
    assert_eq!(acts[0], StepAct::NoticeEnd(EndReason::TimeLimit));
    assert_eq!(acts[1..], TERM_AND_CONT);
    assert_eq!(story.wait(29), []);
    // A repetition sends no second TERM and does not delay KILL. A shorter wait brings KILL forward.
    assert_eq!(story.step(end(30, EndReason::TimeLimit)), []);
    assert_eq!(story.wait(1), [StepAct::KillLeft]);
    story.exit(0, signal(9));
    assert_eq!(story.step(StepInput::Gone), [StepAct::Drain]);
    let mut story = Story::running(StepNo::BATCH, &[0], |_| {});
    story.step(end(30, EndReason::None));
    assert_eq!(story.step(end(0, EndReason::None)), [StepAct::KillLeft]);
}

#[test]
fn an_end_or_signal_before_the_tasks_is_not_lost() {
    let mut story = Story::new(StepNo::BATCH, &[0], |_| {});
    assert_eq!(story.step(end(30, EndReason::Cancelled)), [StepAct::NoticeEnd(EndReason::Cancelled)]);
    let acts = story.step(StepInput::Start);
    assert_eq!(story.close(&acts).exit, signal(15));
    let mut story = Story::new(StepNo(0), &[0, 1], |_| {});
    story.step(StepInput::Signal { signal: 10, all: false });
    story.step(StepInput::Start);
    assert_eq!(story.step(StepInput::Spawned { rank: 0, pid: 7 }), []);
    let acts = story.step(StepInput::Spawned { rank: 1, pid: 8 });
    assert_eq!(acts.last(), Some(&StepAct::Signal { signal: 10, all: false }));
}

#[test]
fn a_lost_client_ends_the_step_and_is_not_waited_for() {
    let mut story = Story::running(StepNo(0), &[0], |_| {});
    assert_eq!(story.step(StepInput::ClientLost), TERM_AND_CONT);
    story.exit(0, signal(15));
    story.step(StepInput::Gone);
    assert_eq!(story.wait(4), []);
    assert!(matches!(story.wait(1)[..], [StepAct::WriteResult(_), ..]));
}

#[test]
fn output_is_waited_for_as_long_as_nobody_ends_the_step() {
    let mut story = Story::running(StepNo(0), &[0], |_| {});
    story.exit(0, code(0));
    story.step(StepInput::Gone);
    assert_eq!(story.machine.deadline(), None);
    assert_eq!(story.step(end(30, EndReason::Cancelled)), []);
    assert!(matches!(story.wait(5)[..], [StepAct::WriteResult(_), ..]));
}

#[test]
fn a6_a_step_stays_until_its_remote_srun_has_acknowledged_the_last_output() {
    let drained = StepInput::Drained { delivered: false };
    let mut story = Story::running(StepNo(0), &[0], |_| {});
    story.exit(0, code(0));
    story.step(StepInput::Gone);
    let acts = story.step(drained.clone());
    assert!(
        matches!(acts[..], [StepAct::WriteResult(_), StepAct::Node(_), StepAct::Client(FromStep::Done)]),
        "{acts:?}"
    );
    assert!(story.machine.is_over() && story.machine.deadline().is_none());
    assert_eq!(story.step(StepInput::ClientLost), [StepAct::Exit]);
    // A step that is ended on request does not wait for its `srun` without limit.
    let mut story = Story::running(StepNo(0), &[0], |_| {});
    story.exit(0, code(0));
    story.step(StepInput::Gone);
    story.step(drained);
    assert_eq!(story.step(end(30, EndReason::Cancelled)), []);
    assert_eq!(story.wait(5), [StepAct::Exit]);
}

#[test]
fn commands_that_cannot_be_executed() {
    let mut story = Story::new(StepNo(0), &[0, 1], |_| {});
    story.step(StepInput::Start);
    let failed = |rank| StepInput::SpawnFailed { rank, code: 2, error: "execve(): x".into() };
    story.step(failed(0));
    let acts = story.step(failed(1));
    assert!(!acts.iter().any(|a| matches!(a, StepAct::Node(FromStepd::Started { .. }))));
    assert_eq!(acts[0], StepAct::Client(FromStep::Failed { rank: 1, code: 2, error: "execve(): x".into() }));
    assert_eq!(story.close(&acts).exit, code(2));
    let mut story = Story::new(StepNo::BATCH, &[0], |_| {});
    story.step(StepInput::Start);
    let acts = story.step(failed(0));
    assert_eq!(acts[0], StepAct::Notice("execve(): x".into()));
    assert_eq!(story.close(&acts).note.as_deref(), Some("execve(): x"));
}

#[test]
fn a_refused_job_counts_as_it_was_said() {
    let mut story = Story::new(StepNo::BATCH, &[0], |_| {});
    let acts = story.step(StepInput::Refuse { exit: signal(53), note: "no file".into() });
    assert_eq!(acts[0], StepAct::Notice("no file".into()));
    let told = story.close(&acts);
    assert_eq!((told.exit, told.note.as_deref()), (signal(53), Some("no file")));
}

#[test]
fn a_report_comes_after_all_output_and_before_the_result_and_says_why_it_was_ended() {
    let mut story = Story::running(StepNo::BATCH, &[0], |setup| setup.report = true);
    story.step(end(30, EndReason::TimeLimit));
    story.step(end(30, EndReason::Cancelled));
    story.exit(0, signal(15));
    story.step(StepInput::Gone);
    let acts = story.step(StepInput::Drained { delivered: true });
    let [StepAct::Report { end, why: EndReason::TimeLimit }, StepAct::WriteResult(FromStepd::Ended(last)), ..] =
        &acts[..]
    else {
        panic!("{acts:?}")
    };
    assert_eq!((end.exit, end), (signal(15), last));
}

#[test]
fn a_failed_start_is_written_and_told() {
    let mut story = Story::new(StepNo(0), &[0], |_| {});
    let acts = story.step(StepInput::Fail { error: "why".into(), node_fault: true });
    let last = FromStepd::Failed { error: "why".into(), node_fault: true };
    assert_eq!(acts[..2], [StepAct::WriteResult(last.clone()), StepAct::Node(last)]);
    assert_eq!(acts.last(), Some(&StepAct::Exit));
    assert_eq!(story.step(StepInput::Start), []);
}

#[test]
fn out_of_memory_by_the_kernel_or_by_us() {
    let oom = |kill| StepInput::Oom { kills: 1, peak_kb: 2047, limit_mb: 2, kill };
    let text = "Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM Killed.";
    let mut story = Story::running(StepNo(0), &[0, 1], |_| {});
    assert_eq!(story.step(oom(false)), [StepAct::Notice(text.into())]);
    assert_eq!(story.step(oom(false)), []);
    assert_eq!(story.exit(0, signal(9)), [StepAct::Client(FromStep::Exited { rank: 0, exit: signal(9), oom: true })]);
    let acts = story.exit(1, code(0));
    let told = story.close(&acts);
    assert_eq!((told.exit, told.oom), (signal(125), true));
    assert_eq!(told.note, Some(format!("{text} Peak memory 2 MiB, limit 2 MiB.")));
    let mut story = Story::running(StepNo(0), &[0], |_| {});
    assert_eq!(story.step(oom(true)), [StepAct::Notice(text.into()), StepAct::KillLeft]);
    let mut story = Story::running(StepNo(0), &[0, 1], |s| s.oom_kill_step = true);
    assert_eq!(story.step(oom(false))[1..], TERM_AND_CONT, "the other task is ended");
}

#[test]
fn what_orphans_used_counts() {
    let mut story = Story::running(StepNo::BATCH, &[0], |_| {});
    let usage = Usage { user: Span(1000), max_rss_kb: 5000, ..Usage::default() };
    let acts = story.exit(0, code(0));
    assert_eq!(story.step(StepInput::Orphan { usage }), []);
    let told = story.close(&acts);
    assert_eq!((told.usage.user, told.usage.max_rss_kb), (Span(1005), 5000));
}

#[test]
fn measurements_become_the_usage_over_time() {
    let mut story = Story::running(StepNo(0), &[0], |_| {});
    assert_eq!(story.machine.series(), None);
    for seconds in [10, 20, 30] {
        story.now = Time::from_secs(1000 + seconds);
        let sample = Sample { cpu_us: seconds * 1_500_000, rss_kb: seconds, ..Sample::default() };
        assert_eq!(story.step(StepInput::Sampled { sample }), []);
    }
    let live = story.machine.series().expect("it was measured");
    assert_eq!((live.cpus(), live.memory_kb()), (vec![Some(1.5); 3], vec![Some(10.0), Some(20.0), Some(30.0)]));
    let acts = story.exit(0, code(0));
    assert_eq!(story.close(&acts).series, Some(live));
    // A step that has ended is measured no more.
    assert_eq!(story.step(StepInput::Sampled { sample: Sample::default() }), []);
    let mut story = Story::running(StepNo(0), &[0], |_| {});
    let acts = story.exit(0, code(0));
    assert_eq!(story.close(&acts).series, None);
}

#[test]
fn nothing_is_said_after_the_last_word() {
    let mut story = Story::running(StepNo(0), &[0], |_| {});
    let acts = story.exit(0, code(1));
    assert_eq!(story.close(&acts).exit, code(1));
    for input in [
        StepInput::Start,
        StepInput::ClientLost,
        end(0, EndReason::Cancelled),
        StepInput::Gone,
        StepInput::Drained { delivered: true },
        StepInput::Tick,
        StepInput::Signal { signal: 9, all: true },
        StepInput::Fail { error: String::new(), node_fault: true },
        StepInput::Oom { kills: 1, peak_kb: 0, limit_mb: 0, kill: true },
    ] {
        assert_eq!(story.step(input.clone()), [], "{input:?}");
    }
}

#[test]
fn a_task_that_ends_them_all_gives_the_step_its_code() {
    let mut story = Story::running(StepNo(0), &[0, 1], |_| {});
    let abort = || StepInput::Abort { code: 7, text: "task 1 called MPI_Abort".into() };
    let acts = story.step(abort());
    let told = [StepAct::Notice("task 1 called MPI_Abort".into()), StepAct::Client(FromStep::Aborted { code: 7 })];
    assert_eq!(acts, [&told[..], &TERM_AND_CONT].concat());
    assert_eq!(story.step(abort()), [], "once is enough");
    story.exit(1, code(9));
    assert_eq!(story.wait(2), [StepAct::KillLeft], "the other does not hear TERM");
    story.exit(0, signal(9));
    assert_eq!(story.step(StepInput::Gone), [StepAct::Drain]);
    let acts = story.step(StepInput::Drained { delivered: true });
    let StepAct::WriteResult(FromStepd::Ended(end)) = &acts[0] else { panic!("{acts:?}") };
    assert_eq!((end.exit, end.note.as_deref()), (code(7), Some("task 1 called MPI_Abort")));
}

#[test]
fn a3_who_ended_a_script_is_told_with_its_end() {
    let own = |exit, told, heard| {
        let mut story = Story::running(StepNo::BATCH, &[0], |_| ());
        if told {
            assert_eq!(story.step(end(30, EndReason::Requeued))[1..], TERM_AND_CONT, "others wait for nothing");
        }
        story.script_exit(exit, heard).is_own()
    };
    assert!(own(code(0), false, false) && own(signal(11), false, false));
    assert!(!own(signal(15), false, false), "who has died since may have told it");
    assert!(own(code(0), true, false), "it was faster, or ignores TERM");
    assert!(own(code(1), true, false));
    assert!(!own(code(0), true, true), "its handler may have ended it");
    assert!(!own(signal(15), true, false) && !own(signal(9), true, false) && !own(code(143), true, false));
}
