//! What happens to the links and to the controllers of a job's node, with and without a node fence: the rest of the table
//! in `e2e/replace/faults.rs`. Take-overs, restarts, an upgrade and a relay that stops end no job. Behind a link that is
//! cut, in one direction or both, a job with a fence ends and runs again elsewhere; another one waits, and goes on.

use std::fs;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, output};
use crate::network::Host;

/// Nodes where jobs run first, by what is cut; and one more, where those with a fence run again.
const CUT: Host = Host::Node(1);
const UNHEARD: Host = Host::Node(2);
const DEAF: Host = Host::Node(3);
const NODES: usize = 5;

/// Term of the fences, seconds: the least one of a cluster with several controllers.
const FENCE_S: u64 = 10;

/// A job on one of these nodes.
struct Case {
    node: Host,
    is_fenced: bool,
    job: String,
}

impl Case {
    /// Submits a job that notes its begin, that it runs, and its end. The order of the lines is the order in time.
    fn submit(cluster: &Cluster, node: Host, is_fenced: bool) -> Self {
        let others = [CUT, UNHEARD, DEAF].into_iter().filter(|other| *other != node).map(Host::name);
        let excluded = format!("--exclude=n1,{}", others.collect::<Vec<_>>().join(","));
        let (marks, fence) = (cluster.marks().display().to_string(), format!("--node-fence={FENCE_S}"));
        let script = format!(
            "marks={marks}/$SLURM_JOB_ID; run=${{SLURM_RESTART_COUNT:-0}}; echo begin $run >> $marks
             until test -e {marks}/go; do sleep 0.2; echo runs $run >> $marks; done; echo end $run >> $marks"
        );
        let fixed = ["sbatch", "--parsable", "-D", "/", "-o", "/dev/null", &excluded];
        let fence: &[&str] = if is_fenced { &[&fence] } else { &[] };
        let job = cluster.ok(Host::Login, &[&fixed, fence, &["--wrap", &script]].concat());
        let case = Self { node, is_fenced, job };
        cluster.until("it runs", |c| !case.marks(c).is_empty());
        assert_eq!(case.shown(cluster, "%N"), node.name());
        case
    }

    fn shown(&self, cluster: &Cluster, format: &str) -> String {
        cluster.ok(Host::Login, &["squeue", "-h", "-j", &self.job, "-o", format])
    }

    fn marks(&self, cluster: &Cluster) -> Vec<String> {
        let text = fs::read_to_string(cluster.marks().join(&self.job)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn begins(&self, cluster: &Cluster) -> usize {
        self.marks(cluster).iter().filter(|line| line.starts_with("begin")).count()
    }

    fn name(&self) -> String {
        format!("{}, {}: job {}", self.node.name(), if self.is_fenced { "fence" } else { "no fence" }, self.job)
    }
}

/// Waits until all jobs have written another line, and checks that none has begun again.
fn all_go_on(cluster: &Cluster, cases: &[Case], after: &str) {
    for case in cases {
        let before = case.marks(cluster).len();
        cluster.until(&format!("after {after}: {}", case.name()), |c| case.marks(c).len() > before);
        assert_eq!(case.begins(cluster), 1, "after {after}: {}\n{}", case.name(), cluster.logs());
    }
}

/// What the operators of the cluster do, and a controller that dies: none of it ends a job.
fn restarts_end_nothing(cluster: &mut Cluster, cases: &[Case]) {
    let next = |cluster: &Cluster| {
        let leader = cluster.leader();
        (leader, Host::heads().into_iter().find(|head| *head != leader).unwrap())
    };
    let (_, second) = next(cluster);
    cluster.hand_over(second);
    all_go_on(cluster, cases, "a take-over that was asked for");
    let (leader, _) = next(cluster);
    cluster.kill(leader);
    cluster.until("another controller leads", |c| c.leader() != leader);
    cluster.begin(leader);
    cluster.await_leader();
    all_go_on(cluster, cases, "a take-over");
    // An upgrade: all daemons are started again, and then the version is raised.
    let all = Host::heads().into_iter().chain((0..NODES).map(Host::Node));
    for host in all {
        cluster.kill(host);
        cluster.begin(host);
    }
    cluster.await_leader();
    let mut said = String::new();
    let raised = (0..200).any(|_| {
        let raised = cluster.squall(&["scontrol", "upgrade"]);
        said = output(&raised);
        std::thread::sleep(Duration::from_millis(300));
        raised.status.success()
    });
    assert!(raised, "{said}");
    all_go_on(cluster, cases, "an upgrade");
}

/// A relay that stops takes no job of the nodes behind it along, however long it is stopped.
fn a_stopped_relay_ends_nothing(cluster: &mut Cluster, cases: &[Case]) {
    let is_relay = |host: &Host| {
        let below = |node: usize| {
            cluster
                .log(Host::Node(node))
                .lines()
                .rev()
                .find(|line| line.contains("attached to"))
                .is_some_and(|line| line.contains(&format!("attached to {}", host.name())))
        };
        (1..4).any(below)
    };
    let relay = [Host::Node(0), Host::Node(4)].into_iter().find(is_relay);
    let relay = relay.unwrap_or_else(|| panic!("no job's node is behind a relay\n{}", cluster.logs()));
    cluster.signal(relay, "STOP");
    std::thread::sleep(Duration::from_secs(FENCE_S + 4));
    all_go_on(cluster, cases, "a relay was stopped");
    cluster.signal(relay, "CONT");
}

#[test]
fn the_table_of_links_and_controllers_with_and_without_a_fence() {
    let config = "node_timeout_s = 6\ntree_width = 2";
    let Some(mut cluster) = Cluster::with_nodes("fences", NODES, config) else { return };
    let places = [CUT, UNHEARD, DEAF].into_iter().flat_map(|node| [(node, false), (node, true)]);
    let cases: Vec<Case> = places.map(|(node, is_fenced)| Case::submit(&cluster, node, is_fenced)).collect();
    restarts_end_nothing(&mut cluster, &cases);
    a_stopped_relay_ends_nothing(&mut cluster, &cases);
    cluster.await_leader();
    let begun = Instant::now();
    let all = cluster.network.hosts.clone();
    cluster.network.part(&[CUT], &all);
    cluster.network.cut(&[UNHEARD], &all);
    cluster.network.cut(&all, &[DEAF]);
    for case in &cases {
        cluster.until(&case.name(), |c| case.shown(c, "%r") == "NodeNotResponding");
        let said = output(&cluster.squall(&["why", &case.job]));
        let why = if case.is_fenced {
            "It has a node fence: its processes there end by themselves"
        } else {
            "It waits until"
        };
        assert!(said.contains(why), "{}: {said}", case.name());
    }
    cluster.until("jobs with a fence run again", |c| {
        cases.iter().filter(|case| case.is_fenced).all(|case| case.begins(c) == 2)
    });
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(FENCE_S - 4), "not before their fences: {took:?}");
    assert!(cases.iter().filter(|case| case.is_fenced).all(|case| case.shown(&cluster, "%N") == "n5"));
    assert!(cases.iter().filter(|case| !case.is_fenced).all(|case| case.begins(&cluster) == 1), "others wait");
    cluster.network.heal();
    let idle = |c: &Cluster| !output(&c.squall(&["sinfo", "-hN", "-o", "%t"])).contains('*');
    cluster.until("all nodes answer", idle);
    fs::write(cluster.marks().join("go"), "").unwrap();
    cluster.wait_until_idle();
    for case in &cases {
        let shown = cluster.ok(Host::Login, &["sacct", "-n", "-X", "-j", &case.job, "-o", "State,Restarts"]);
        let words: Vec<&str> = shown.split_whitespace().collect();
        assert_eq!(words, ["COMPLETED", if case.is_fenced { "1" } else { "0" }], "{}", case.name());
        let marks = case.marks(&cluster);
        let runs: Vec<&str> = marks.iter().filter_map(|line| line.split(' ').nth(1)).collect();
        assert!(runs.is_sorted(), "one run at a time: {}: {marks:?}", case.name());
    }
}
