//! Power saving: nodes sleep, jobs wake them, and what happens if they don't come.

use squall_model::config::Config;
use squall_model::event::NodeAdmin;
use squall_model::id::{Attempt, JobId};
use squall_model::job::options::Chosen;
use squall_model::job::{EndState, JobKind, JobSpec, JobState, Need};
use squall_model::places::OnNodeFail;
use squall_model::power::{Power, PowerPhase, PowerWish};
use squall_model::set::NodeSet;
use squall_model::wire::client::{Answer, Request};

use crate::control::port::{CallerId, Input};
use crate::control::tests::driver::{ADA, Driver, batch};

const PROGRAMS: &str = "[power]\nsuspend_program = \"/off\"\nresume_program = \"/on\"\nresume_fail_program = \"/failed\"\n\
                        suspend_time_s = 100\nsuspend_timeout_s = 30\nsuspend_rate = 0\nresume_rate = 0\n";

/// Returns a cluster of so many nodes that sleep after 100 s, go down within 30 s, and come within 60 s.
fn cluster(nodes: u32, more: &str) -> Driver {
    let mut d = Driver::empty(Config::from_toml(&format!("{PROGRAMS}{more}")).expect("it is right"));
    (1..=nodes).for_each(|n| d.add_node(&format!("n{n}"), 1));
    d
}

/// Returns a cluster of which all nodes sleep.
fn asleep(nodes: u32) -> Driver {
    let mut d = cluster(nodes, "");
    d.pass(100);
    (1..=nodes).for_each(|n| d.lose(&format!("n{n}")));
    d.pass(30);
    assert!((1..=nodes).all(|n| d.phase(&format!("n{n}")) == PowerPhase::Off));
    d.power.clear();
    d
}

fn wide(nodes: u32) -> JobSpec {
    let need = Need { nodes_min: Some(nodes), nodes_max: Some(nodes), ntasks: Some(nodes), ..Need::default() };
    JobSpec { need, ..batch() }
}

impl Driver {
    fn phase(&self, name: &str) -> PowerPhase {
        self.power_of(name).unwrap_or_default().phase
    }
    fn power_of(&self, name: &str) -> Option<Power> {
        let state = self.c.state();
        state.node(state.node_id(name).unwrap()).unwrap().power
    }
    fn admin(&self, name: &str) -> (NodeAdmin, String) {
        let state = self.c.state();
        let node = state.node(state.node_id(name).unwrap()).unwrap();
        (node.admin, node.reason.as_ref().map_or_else(String::new, |reason| reason.text.clone()))
    }
    /// Programs that were started since the last look, with their nodes.
    fn called(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.power).into_iter().map(|program| (program.path, program.argument)).collect()
    }
    fn wish(&mut self, nodes: &str, wish: PowerWish) {
        assert_eq!(self.ask(5, 0, Request::Power { nodes: nodes.into(), wish }), [Answer::Done]);
    }
    fn shown(&self, id: JobId) -> JobState {
        self.c.state().jobs[&id].shown_state()
    }
}

fn called(program: &str, nodes: &str) -> [(String, String); 1] {
    [(program.to_owned(), nodes.to_owned())]
}

#[test]
fn idle_nodes_sleep_and_a_job_wakes_its_node() {
    let mut d = cluster(2, "");
    d.pass(99);
    assert!(d.power.is_empty());
    d.pass(1);
    assert_eq!(d.called(), called("/off", "n[1-2]"));
    assert_eq!((d.phase("n1"), d.phase("n2")), (PowerPhase::GoingDown, PowerPhase::GoingDown));
    // Their silence raises no alarm.
    d.lose("n1");
    d.lose("n2");
    let early = d.submit(batch());
    assert_eq!(d.state_of(early), Some(JobState::Pending), "nodes that go down take no job");
    d.cancel(early);
    d.pass(500);
    assert_eq!(d.admin("n1"), (NodeAdmin::Resume, String::new()));
    assert!(d.c.state().nodes.iter().all(|node| node.up && node.power.unwrap().phase == PowerPhase::Off));
    let job = d.submit(batch());
    assert_eq!(d.called(), called("/on", "n1"));
    assert_eq!(
        (d.shown(job), d.phase("n1"), d.phase("n2")),
        (JobState::Configuring, PowerPhase::GoingUp, PowerPhase::Off)
    );
    d.pass(40);
    assert!(d.launched().is_empty());
    d.reboot("n1");
    assert_eq!(d.power_of("n1"), None);
    assert_eq!(d.launched(), [(d.attempt(job), "n1".to_owned())]);
    let run = d.c.state().jobs[&job].run().unwrap();
    assert_eq!((run.start, run.booting, d.attempt(job).attempt), (d.now, None, Attempt(1)));
    d.finish(job, 0);
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Completed)));
    d.pass(100);
    assert_eq!(d.called(), called("/off", "n1"));
}

#[test]
fn nodes_that_are_up_come_first() {
    let mut d = cluster(3, "");
    d.wish("n[1-2]", PowerWish::Down);
    assert_eq!(d.called(), called("/off", "n[1-2]"));
    d.lose("n1");
    d.lose("n2");
    d.pass(30);
    let job = d.submit(batch());
    assert_eq!(d.launched(), [(d.attempt(job), "n3".to_owned())]);
    assert!(d.power.is_empty());
    // A job of all nodes waits for those that sleep, and no node hears of it before.
    d.finish(job, 0);
    let all = d.submit(wide(3));
    assert_eq!((d.called(), d.shown(all)), (called("/on", "n[1-2]").to_vec(), JobState::Configuring));
    d.register("n1", &[]);
    assert!(d.launched().is_empty() && d.shown(all) == JobState::Configuring);
    d.register("n2", &[]);
    assert_eq!((d.launched().len(), d.shown(all)), (1, JobState::Running));
}

#[test]
fn a_node_that_never_comes_is_down_and_the_job_runs_elsewhere() {
    let mut d = asleep(2);
    let job = d.submit(batch());
    assert_eq!(d.called(), called("/on", "n1"));
    d.pass(60);
    assert_eq!(d.admin("n1"), (NodeAdmin::Down, "ResumeTimeout reached".to_owned()));
    assert_eq!(d.called(), [("/failed".to_owned(), "n1".to_owned()), ("/on".into(), "n2".into())]);
    assert_eq!((d.shown(job), d.phase("n1")), (JobState::Configuring, PowerPhase::Off));
    assert_eq!(d.c.state().jobs[&job].restarts, 0, "it never began");
    d.reboot("n2");
    assert_eq!(d.launched(), [(d.attempt(job), "n2".to_owned())]);
    // An operator returns the node; it sleeps until it is needed.
    let resume =
        Request::UpdateNodes { nodes: "n1".into(), admin: Some(NodeAdmin::Resume), reason: None, change: None };
    assert_eq!(d.ask(5, 0, resume), [Answer::Done]);
    let next = d.submit(batch());
    assert_eq!(
        (d.called(), d.shown(next)),
        (Vec::new(), JobState::Configuring),
        "what is left of it may be removed yet"
    );
    let nodes = NodeSet::one(d.c.state().node_id("n1").unwrap());
    d.step(Input::PowerProgramEnded { phase: PowerPhase::Off, nodes });
    assert_eq!((d.called(), d.shown(next)), (called("/on", "n1").to_vec(), JobState::Configuring));
    d.reboot("n1");
    assert_eq!(d.launched(), [(d.attempt(next), "n1".to_owned())]);
}

#[test]
fn a_job_of_which_one_node_does_not_come_leaves_the_others() {
    let mut d = asleep(3);
    let job = d.submit(wide(2));
    assert_eq!(d.called(), called("/on", "n[1-2]"));
    d.reboot("n1");
    d.pass(60);
    assert_eq!(d.admin("n2").0, NodeAdmin::Down);
    assert!(d.launched().is_empty() && d.ended().is_empty(), "no node was told of it");
    assert_eq!(d.called(), [("/failed".to_owned(), "n2".to_owned()), ("/on".into(), "n3".into())]);
    d.reboot("n3");
    assert_eq!((d.launched().len(), d.shown(job)), (1, JobState::Running));
}

#[test]
fn a_job_that_goes_on_without_a_node_that_does_not_come_begins() {
    for action in [OnNodeFail::Shrink, OnNodeFail::Replace] {
        let mut d = asleep(2);
        let mut spec = wide(2);
        spec.options = Chosen { on_node_fail: Some(action), ..Chosen::default() }.into();
        let job = d.submit(spec);
        d.reboot("n1");
        assert_eq!(d.shown(job), JobState::Configuring);
        d.pass(60);
        assert_eq!(
            (d.shown(job), d.launched()),
            (JobState::Running, vec![(d.attempt(job), "n1".to_owned())]),
            "{action:?}"
        );
    }
}

#[test]
fn a_job_that_is_cancelled_while_it_waits_ends_at_once() {
    let mut d = asleep(2);
    let job = d.submit(wide(2));
    d.reboot("n1");
    d.cancel(job);
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Cancelled { by: ADA })));
    assert!(d.ended().is_empty());
    // The other node comes all the same, and sleeps again.
    d.reboot("n2");
    assert_eq!(d.power_of("n2"), None);
    d.called();
    d.pass(100);
    assert_eq!(d.called(), called("/off", "n[1-2]"));
}

#[test]
fn a_time_limit_counts_from_when_the_nodes_are_there() {
    let mut d = asleep(1);
    let job = d.submit(JobSpec { time_limit_s: Some(20), ..batch() });
    d.pass(50);
    assert_eq!(d.shown(job), JobState::Configuring);
    d.reboot("n1");
    d.pass(19);
    assert_eq!(d.state_of(job), Some(JobState::Running));
    d.pass(1);
    assert_eq!(d.state_of(job), Some(JobState::Completing(EndState::Timeout)));
}

#[test]
fn an_allocation_is_told_when_its_nodes_are_there() {
    let mut d = asleep(1);
    let key = d.key();
    let answers = d.submit_with(key, JobSpec { kind: JobKind::Allocation, ..batch() });
    assert!(!answers.iter().any(|answer| matches!(answer, Answer::Allocated(_))), "{answers:?}");
    d.reboot("n1");
    let answers = d.take_answers(CallerId(1));
    assert!(answers.iter().any(|answer| matches!(answer, Answer::Allocated(_))), "{answers:?}");
}

#[test]
fn a_program_that_was_cut_off_runs_again_and_one_that_ended_does_not() {
    let mut d = asleep(3);
    let job = d.submit(wide(2));
    assert_eq!(d.called(), called("/on", "n[1-2]"));
    d.restart();
    assert_eq!(d.called(), called("/on", "n[1-2]"));
    let (phase, nodes) = (PowerPhase::GoingUp, d.c.state().jobs[&job].run().unwrap().left.clone());
    d.step(Input::PowerProgramEnded { phase, nodes });
    d.restart();
    assert!(d.power.is_empty());
    d.reboot("n1");
    d.restart();
    d.register("n1", &[]);
    assert!(d.launched().is_empty());
    d.reboot("n2");
    assert_eq!((d.launched().len(), d.shown(job)), (1, JobState::Running));
    // The time of a node that does not come begins again with the controller.
    d.wish("n3", PowerWish::Up);
    d.pass(30);
    d.restart();
    d.register("n1", &[]);
    d.register("n2", &[]);
    d.pass(59);
    assert_eq!(d.phase("n3"), PowerPhase::GoingUp);
    d.pass(1);
    assert_eq!((d.phase("n3"), d.admin("n3").0), (PowerPhase::Off, NodeAdmin::Down));
}

#[test]
fn operators_power_nodes_up_and_down() {
    let mut d = cluster(3, "");
    let nobody = d.ask(5, ADA, Request::Power { nodes: "n1".into(), wish: PowerWish::Up });
    assert!(matches!(nobody[..], [Answer::Refused(_)]));
    let job = d.submit(batch());
    let at = d.launched().pop().unwrap().1;
    assert_eq!(at, "n1");
    // It waits for the job; with `asap` no further one starts.
    d.wish("n1", PowerWish::DownAsap);
    assert!(d.power.is_empty());
    d.finish(job, 0);
    assert_eq!(d.called(), called("/off", "n1"));
    // What is wished of a node that goes down comes when it is down.
    d.wish("n1", PowerWish::Up);
    d.lose("n1");
    d.pass(29);
    assert!(d.power.is_empty());
    d.pass(1);
    assert_eq!(d.called(), called("/on", "n1"));
    d.reboot("n1");
    assert_eq!(d.power_of("n1"), None);
    // With `force` jobs are ended, and run elsewhere.
    let job = d.submit(batch());
    let (first, at) = d.launched().pop().unwrap();
    d.wish(&at, PowerWish::DownForce);
    assert_eq!(d.ended(), [(first, at.clone())]);
    assert!(d.power.is_empty(), "not before the node has released it");
    d.report(&at, &[squall_model::report::Report::JobGone { job: first }]);
    assert_eq!(d.called(), called("/off", &at));
    let (second, other) = d.launched().pop().unwrap();
    assert!(second.job == job && other != at);
}

#[test]
fn without_programs_nodes_are_not_powered() {
    let mut d = Driver::new(1, 1);
    for wish in [PowerWish::Up, PowerWish::Down] {
        let said = d.ask(5, 0, Request::Power { nodes: "n1".into(), wish });
        assert!(matches!(said[..], [Answer::Refused(_)]), "{said:?}");
    }
    d.pass(10_000);
    assert!(d.c.state().nodes.iter().all(|node| node.power.is_none()));
}

#[test]
fn spared_nodes_stay_up() {
    let more = "suspend_exc_nodes = \"n1\"\nsuspend_exc_parts = \"p\"\nsuspend_exc_states = \"DRAIN\"\n\
                [[nodes]]\nname = \"n[1-4]\"\n[[partitions]]\nname = \"all\"\n[[partitions]]\nname = \"p\"\nnodes = \"n2\"\n";
    let mut d = cluster(4, more);
    let drain = |admin, reason: &str| Request::UpdateNodes {
        nodes: "n3".into(),
        admin: Some(admin),
        reason: Some(reason.into()),
        change: None,
    };
    d.ask(5, 0, drain(NodeAdmin::Drain, "fan"));
    d.pass(300);
    assert_eq!(d.called(), called("/off", "n4"));
    d.ask(5, 0, drain(NodeAdmin::Resume, "fan"));
    d.pass(100);
    assert_eq!(d.called(), called("/off", "n3"));
}

#[test]
fn rates_hold() {
    let mut d = cluster(8, "").with_rates(6);
    d.pass(100);
    assert_eq!(d.called(), called("/off", "n[1-2]"));
    d.pass(10);
    assert_eq!(d.called(), called("/off", "n3"));
    d.pass(50);
    assert_eq!(d.called().len(), 5);
    assert!((1..=8).all(|n| d.phase(&format!("n{n}")) != PowerPhase::On));
}

impl Driver {
    fn with_rates(mut self, per_minute: u32) -> Self {
        (self.config.power.suspend_rate, self.config.power.resume_rate) = (per_minute, per_minute);
        let config = Some(Box::new(self.config.clone()));
        assert_eq!(self.ask(5, 0, Request::Reconfigure { config }), [Answer::Done]);
        self
    }
}

#[test]
fn cloud_nodes_are_there_when_they_are_needed() {
    let more = "[[nodes]]\nname = \"n1\"\n[[nodes]]\nname = \"c[1-2]\"\nstate = \"CLOUD\"\ncpus = 4\nmemory_mb = 100\n";
    let mut d = cluster(1, more);
    let nodes = d.ask(5, 0, Request::Nodes);
    let Some(Answer::Nodes(nodes)) = nodes.first() else { panic!("{nodes:?}") };
    assert!(nodes.iter().all(|node| node.cloud == node.name.starts_with('c')));
    assert_eq!(d.phase("c1"), PowerPhase::Off);
    let need = Need { ntasks: Some(4), ..Need::default() };
    let job = d.submit(JobSpec { need, ..batch() });
    assert_eq!((d.called(), d.shown(job)), (called("/on", "c1").to_vec(), JobState::Configuring));
    d.add_node("c1", 4);
    assert_eq!(d.launched(), [(d.attempt(job), "c1".to_owned())]);
    d.finish(job, 0);
    d.pass(100);
    assert_eq!(d.called(), called("/off", "c1,n1"));
    d.restart();
    assert_eq!((d.phase("c1"), d.phase("c2")), (PowerPhase::GoingDown, PowerPhase::Off));
    // It is switched on by hand.
    d.lose("n1");
    d.pass(30);
    d.register("n1", &[]);
    assert_eq!(d.power_of("n1"), None);
}

#[test]
fn no_job_is_leased_behind_one_that_waits_for_its_node() {
    let more = "[[partitions]]\nname = \"p\"\nlease_jobs = 2\ndefault_time_s = 600\n";
    let mut d = cluster(1, more);
    d.pass(100);
    d.lose("n1");
    d.pass(30);
    let first = d.submit(batch());
    let second = d.submit(batch());
    assert_eq!((d.shown(first), d.shown(second)), (JobState::Configuring, JobState::Pending));
    d.reboot("n1");
    assert!(d.c.state().jobs[&second].is_leased());
    let launched: Vec<JobId> = d.launched().into_iter().map(|(job, _)| job.job).collect();
    assert_eq!(launched, [first, second]);
}

#[test]
fn nodes_wait_while_the_disk_is_full() {
    let mut d = cluster(1, "");
    d.step(Input::Disk { full: true });
    d.pass(200);
    assert!(d.power.is_empty());
    d.step(Input::Disk { full: false });
    assert_eq!(d.called(), called("/off", "n1"));
}

#[test]
fn a_machine_that_went_without_a_word_is_not_taken_for_one_that_is_there() {
    let mut d = cluster(1, "");
    d.pass(100);
    d.called();
    d.pass_in_silence(30);
    assert_eq!((d.phase("n1"), d.connected("n1")), (PowerPhase::Off, false));
    let job = d.submit(batch());
    assert_eq!((d.called(), d.shown(job)), (called("/on", "n1").to_vec(), JobState::Configuring));
    d.reboot("n1");
    assert_eq!(d.launched(), [(d.attempt(job), "n1".to_owned())]);
}

#[test]
fn partitions_have_times_of_their_own_of_which_the_longest_counts() {
    let partitions = "[[partitions]]\nname = \"a\"\nnodes = \"n[1-2]\"\nSuspendTime = 20\nSuspendTimeout = 5\n\
                      ResumeTimeout = 90\n[[partitions]]\nname = \"b\"\nnodes = \"n[2-3]\"\nSuspendTime = 40\n\
                      [[partitions]]\nname = \"c\"\nnodes = \"n4\"\nSuspendTime = -1\n\
                      [[partitions]]\nname = \"d\"\nnodes = \"n5\"\n";
    let mut d = cluster(5, partitions);
    d.pass(20);
    assert_eq!(d.called(), called("/off", "n1"));
    d.lose("n1");
    d.pass(5);
    assert_eq!(d.phase("n1"), PowerPhase::Off);
    d.pass(15);
    assert_eq!(d.called(), called("/off", "n[2-3]"));
    d.pass(60);
    assert_eq!(d.called(), called("/off", "n5"));
    d.pass(1000);
    assert!(d.called().is_empty(), "n4 stays up");
    let job = d.submit(JobSpec { partition: Some("a".into()), ..batch() });
    assert_eq!(d.called(), called("/on", "n1"));
    d.pass(89);
    assert_eq!((d.shown(job), d.phase("n1")), (JobState::Configuring, PowerPhase::GoingUp));
    d.pass(1);
    assert_eq!(d.admin("n1").0, NodeAdmin::Down);
}

#[test]
fn a_node_goes_down_when_its_jobs_have_ended_as_its_partition_says() {
    let partitions = "[[partitions]]\nname = \"a\"\nPowerDownOnIdle = \"YES\"\n[[partitions]]\nname = \"b\"\n";
    let mut d = cluster(2, partitions);
    let of = |partition: &str| JobSpec { partition: Some(partition.into()), ..batch() };
    let (first, other, waits) = (d.submit(of("a")), d.submit(of("b")), d.submit(of("a")));
    // Another job waits for the node: it gets it first.
    d.finish(first, 0);
    assert!(d.called().is_empty() && d.state_of(waits) == Some(JobState::Running));
    d.finish(other, 0);
    assert!(d.called().is_empty(), "the other partition does not want it");
    d.finish(waits, 0);
    assert_eq!(d.called(), called("/off", "n1"));
    assert_eq!((d.phase("n1"), d.phase("n2")), (PowerPhase::GoingDown, PowerPhase::On));
    // It is still so after a crash.
    d.restart();
    assert_eq!(d.phase("n1"), PowerPhase::GoingDown);
}

#[test]
fn a_number_of_nodes_stays_up() {
    let mut d = cluster(4, "suspend_exc_nodes = \"n[1-3]:2\"\n[[nodes]]\nname = \"n[1-4]\"\n");
    d.pass(100);
    assert_eq!(d.called(), called("/off", "n[3-4]"));
    d.pass(1000);
    assert!(d.called().is_empty() && d.phase("n1") == PowerPhase::On);
    // Another one may go when there are enough again.
    d.lose("n3");
    d.wish("n3", PowerWish::Up);
    d.reboot("n3");
    d.called();
    d.pass(200);
    assert_eq!(d.called(), called("/off", "n3"));
}

#[test]
fn the_program_is_told_for_which_jobs_nodes_are_powered_up() {
    let mut d = asleep(3);
    let spec = JobSpec { options: Chosen::default().into(), ..wide(2) };
    let mut own = spec.clone();
    own.options.notes.extra = Some("spot".into());
    own.need.exclusive = true;
    let (first, second) = (d.submit(own), d.submit(batch()));
    let jobs: Vec<_> = std::mem::take(&mut d.power).into_iter().flat_map(|program| program.jobs).collect();
    let seen: Vec<_> = jobs.iter().map(|job| (job.id, job.nodes.as_str(), job.resumed.as_str())).collect();
    assert_eq!(seen, [(first, "n[1-2]", "n[1-2]"), (second, "n3", "n3")]);
    assert_eq!(
        (jobs[0].extra.as_deref(), jobs[0].exclusive, jobs[0].partition.as_str()),
        (Some("spot"), true, "debug")
    );
}
