//! faults.md A6: srun and output that is missing or comes late.

use std::io::Read;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use squall_model::id::StepNo;
use squall_model::job::{EndState, ExitCode, JobSpec, Outcome};
use squall_model::step::FromStep;
use squall_model::wire::client::{Answer, Request};

use super::played::{Cluster, Deed, Stepd, facts, layout, say};

fn output(text: &str) -> FromStep {
    FromStep::Output { rank: 1, stderr: false, bytes: text.as_bytes().to_vec().into() }
}

fn exited(rank: u32) -> FromStep {
    FromStep::Exited { rank, exit: ExitCode::OK, oom: false }
}

/// A step on two nodes of which the controller says that it has completed, while the step daemon of n2 has not said its
/// last word; its link is handed over.
fn cluster() -> (Cluster, Receiver<Stepd>) {
    let (give, take) = sync_channel(16);
    let give: Arc<Mutex<SyncSender<Stepd>>> = Arc::new(Mutex::new(give));
    let cluster = Cluster::play(move |_, request| {
        let Request::CreateStep { program, .. } = request else { return vec![say(Answer::Done)] };
        let (program, give) = (program.clone(), Arc::clone(&give));
        let run = Deed::Do(Box::new(move || {
            Stepd::call(&program, 0).tell(&[exited(0), FromStep::Done]);
            let mut late = Stepd::call(&program, 1);
            late.tell(&[output("one\n"), exited(1)]);
            give.lock().unwrap().send(late).unwrap();
        }));
        let facts = Box::new(facts(5, 2, &JobSpec::default()));
        let outcome = Outcome { state: EndState::Completed, exit: ExitCode::OK, reason: None };
        let created =
            Answer::StepCreated { step: StepNo(0), layout: Box::new(layout(2)), facts, kill_wait_s: 30, usual: None };
        vec![say(created), run, say(Answer::StepDone { step: StepNo(0), outcome, lost: None })]
    });
    (cluster, take)
}

#[test]
fn a6_srun_names_the_tasks_whose_output_is_missing_and_fails() {
    let (cluster, links) = cluster();
    let drop_link = std::thread::spawn(move || drop(links.recv().unwrap()));
    let said = cluster.run("srun", &["--jobid=5", "-n2", "x"]);
    drop_link.join().unwrap();
    let error = "srun: error: n2: output of task 1 may be incomplete: the link to its step daemon was lost\n";
    assert_eq!(said, (1, "one\n".into(), error.into()));
}

#[test]
fn a6_srun_waits_for_output_while_the_link_is_open() {
    let (cluster, links) = cluster();
    let mut command = cluster.command("srun");
    command.args(["--jobid=5", "-n2", "x"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut srun = command.spawn().unwrap();
    let mut late = links.recv().unwrap();
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        assert_eq!(srun.try_wait().unwrap(), None, "it did not wait");
        std::thread::yield_now();
    }
    late.tell(&[output("two\n"), FromStep::Done]);
    let mut out = String::new();
    srun.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!((srun.wait().unwrap().code(), out.as_str()), (Some(0), "one\ntwo\n"));
}
