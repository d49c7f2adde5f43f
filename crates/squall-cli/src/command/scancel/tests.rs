//! Tests of scancel: requests, messages, exit codes.

use std::sync::Arc;

use squall_model::id::{JobId, StepNo};
use squall_model::job::JobSpec;
use squall_model::wire::client::{Answer, JobName, JobRef, JobSelection, Refusal, Request, StateFilter};
use squall_model::wire::node::SignalTarget;

use super::scancel;
use crate::command::listing::fake::{CommandResult, HINTS, check, fake, run_with, transcript};

type Cancelled = (JobSelection, Option<(i32, SignalTarget)>, Option<StepNo>);

/// Returns the cancellations that the controller was asked for.
fn asked(args: &[&str]) -> Vec<Cancelled> {
    let mut fake = fake();
    let seen = run_with(&mut fake, "scancel", scancel, args, &[]);
    assert_eq!(seen.code, 0, "{}", seen.err);
    fake.asked
        .into_iter()
        .filter_map(|r| match r {
            Request::Cancel { jobs, signal, step, .. } => Some((jobs, signal, step)),
            _ => None,
        })
        .collect()
}

fn ids(ids: &[u32]) -> Vec<JobRef> {
    ids.iter().map(|id| JobRef::Job(JobId(*id))).collect()
}

/// Returns what the user sees for a given answer of the controller.
fn answered(args: &[&str], done: &[u32], refused: &[(u32, Refusal)]) -> CommandResult {
    let mut fake = fake();
    let name = |id: &u32| JobName { id: JobId(*id), task: None };
    fake.answers.push(Answer::Affected {
        jobs: done.iter().map(name).collect(),
        refused: refused.iter().map(|(id, why)| (name(id), why.clone())).collect(),
    });
    run_with(&mut fake, "scancel", scancel, args, &[])
}

#[test]
fn what_is_asked() {
    let by_id = asked(&["10", "11,12"]);
    assert_eq!(by_id, [(JobSelection { ids: ids(&[10, 11, 12]), ..JobSelection::default() }, None, None)]);
    let steps = asked(&["10.0", "11", "10.batch"]);
    assert_eq!(steps.len(), 3);
    assert_eq!((steps[0].0.ids.clone(), steps[1].2, steps[2].2), (ids(&[11]), Some(StepNo(0)), Some(StepNo::BATCH)));
    assert_eq!(asked(&["-s", "USR1", "10"])[0].1, Some((10, SignalTarget::Steps)));
    assert_eq!(asked(&["-s", "USR1", "-b", "10"])[0].1, Some((10, SignalTarget::Batch)));
    assert_eq!(asked(&["--signal=SIGTERM", "--full", "10"])[0].1, Some((15, SignalTarget::Full)));
    assert_eq!(asked(&["--signal=INT", "10.0"])[0].1, Some((2, SignalTarget::Step(StepNo(0)))));
    assert_eq!(asked(&["-s", "9", "10"])[0].1, None);
    let all =
        &asked(&["-u", "ann", "-n", "x", "-p", "debug", "-t", "PD,R", "-A", "a", "-q", "normal", "-w", "n1"])[0].0;
    assert_eq!((all.users.clone(), all.states.clone()), (vec![1000], vec![StateFilter::Pending, StateFilter::Running]));
    assert_eq!((all.names.len(), all.partitions.len(), all.accounts.len(), all.qos.len()), (1, 1, 1, 1));
    assert_eq!(all.nodes.as_deref(), Some("n1"));
    assert_eq!(asked(&["--me"])[0].0.users, [1000]);
    assert!(asked(&["--wckey", "none"]).is_empty());
    assert!(asked(&["--reservation", "none"]).is_empty());
}

// faults.md F4, its kind: Slurm's scancel has words of its own for these.
#[test]
fn f4_variables_set_flags_by_true_and_no_other_word() {
    let seen = |value: &str| {
        let mut fake = fake();
        let env = [("SCANCEL_BATCH", value)];
        let seen = run_with(&mut fake, "scancel", scancel, &["-s", "USR1", "10"], &env);
        let batch = fake.asked.iter().any(|request| match request {
            Request::Cancel { signal, .. } => *signal == Some((10, SignalTarget::Batch)),
            _ => false,
        });
        (batch, seen.err.contains("Unrecognized SCANCEL_BATCH value"))
    };
    assert_eq!(["true", "T"].map(seen), [(true, false); 2]);
    assert_eq!(["false", "F"].map(seen), [(false, false); 2]);
    assert_eq!(["1", "yes"].map(seen), [(false, true); 2]);
}

#[test]
fn every_step_that_is_named_is_meant() {
    let mut fake = fake();
    let with_key = |spec: &Arc<JobSpec>| Arc::new(JobSpec { wckey: Some("k".into()), ..JobSpec::clone(spec) });
    fake.page.specs = fake.page.specs.iter().map(with_key).collect();
    assert_eq!(run_with(&mut fake, "scancel", scancel, &["--wckey=k", "10.0", "10.1"], &[]).code, 0);
    let step = |request: &Request| match request {
        Request::Cancel { step, .. } => *step,
        _ => None,
    };
    assert_eq!(fake.asked.iter().filter_map(step).collect::<Vec<_>>(), [StepNo(0), StepNo(1)]);
}

#[test]
fn what_is_said() {
    assert_eq!(answered(&["10"], &[10], &[]), CommandResult { code: 0, out: String::new(), err: String::new() });
    assert_eq!(answered(&["-v", "10"], &[10], &[]).err, "scancel: Terminating job 10\n");
    assert_eq!(answered(&["-v", "-s", "10", "10"], &[10], &[]).err, "scancel: Signal 10 to job 10\n");
    let nobody = answered(&["-v", "--name=nobodys"], &[], &[]);
    assert_eq!((nobody.code, nobody.err.as_str()), (0, "scancel: error: No active jobs match ALL job filters\n"));
    let gone = answered(&["--interactive", "99"], &[], &[]);
    assert_eq!(gone.err, "scancel: error: Kill job error on job id 99: Invalid job id specified\n");
    assert_eq!(gone.code, 1);
    // faults.md P11, seen on Slurm 22.05.8: with a filter a job that has ended or is unknown is an error.
    for (why, args) in [(Refusal::AlreadyDone, ["-t", "RUNNING"]), (Refusal::InvalidJobId, ["-u", "ann"])] {
        let refused = [(99, why)];
        let seen = answered(&[&args[..], &["99"]].concat(), &[], &refused);
        let line = "scancel: error: Kill job error on job id 99: Invalid job id specified\n";
        assert_eq!((seen.code, seen.err.as_str()), (1, line), "{args:?}");
        let quiet = answered(&[&["-Q"], &args[..], &["99"]].concat(), &[], &refused);
        assert_eq!((quiet.code, quiet.err.as_str()), (1, ""), "{args:?}");
        assert_eq!(answered(&["99"], &[], &refused), CommandResult { code: 0, out: String::new(), err: String::new() });
    }
    assert_eq!(answered(&["-v", "10.0"], &[10], &[]).err, "scancel: Terminating step 10.0\n");
    let unknown = [(99, Refusal::InvalidJobId)];
    assert_eq!(answered(&["99"], &[], &unknown), CommandResult { code: 0, out: String::new(), err: String::new() });
    assert_eq!(
        answered(&["-v", "99"], &[], &unknown).err,
        "scancel: Terminating job 99\nscancel: error: Kill job error on job id 99: Invalid job id specified\n"
    );
    let denied = answered(&["10"], &[], &[(10, Refusal::AccessDenied)]);
    assert_eq!(
        (denied.code, denied.err.as_str()),
        (1, "scancel: error: Kill job error on job id 10: Access/permission denied\n")
    );
    assert_eq!(answered(&["-Q", "10"], &[], &[(10, Refusal::AccessDenied)]).err, "");
}

#[test]
fn what_fails_and_how() {
    let text = transcript(
        "scancel",
        scancel,
        &[&[], &["x"], &["-s", "NOPE", "1"], &["-t", "CD"], &["-u", "nobody-here"], &["--nosuch"], &["-V"]],
    );
    check("scancel_what_fails_and_how", &text);
    let mut down = fake();
    down.down = true;
    let seen = run_with(&mut down, "scancel", scancel, &["1"], &[]);
    assert_eq!(seen.code, 1);
    assert!(seen.err.contains("Unable to contact slurm controller"), "{}", seen.err);
}

#[test]
fn what_is_not_there_is_hinted_at() {
    let said = |args: &[&str], refused: &[(u32, Refusal)], env: &[(&str, &str)]| {
        let mut fake = fake();
        let name = |id: u32| JobName { id: JobId(id), task: None };
        let refused = refused.iter().map(|(id, why)| (name(*id), why.clone())).collect();
        fake.answers.push(Answer::Affected { jobs: Vec::new(), refused });
        let seen = run_with(&mut fake, "scancel", scancel, args, env);
        assert_eq!((seen.code, seen.out.as_str()), (0, ""));
        seen.err
    };
    let unknown = [(99_999, Refusal::InvalidJobId)];
    assert_eq!(said(&["99999"], &unknown, &[HINTS]), "scancel: hint: no job 99999 is pending or running\n");
    assert_eq!(said(&["-p", "gpuu"], &[], &[HINTS]), "scancel: hint: no pending or running job matches\n");
    for (args, env) in
        [(&["99999"][..], &[][..]), (&["99999", "--quiet"], &[HINTS]), (&["99999"], &[("SQUALL_HINTS", "0")])]
    {
        assert_eq!(said(args, &unknown, env), "");
    }
}
