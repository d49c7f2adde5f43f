//! What dies or stops on the node of a job, with and without a node fence: what its user sees, and what runs. Nothing runs
//! twice at the same time.
//!
//! Other tests have the cases that need more than this: jobs of several nodes and `srun` (`life/silence.rs`, `kills.rs`);
//! stopped relays, take-overs, an upgrade, and links that are cut in one or both directions (`drill/fences.rs`).

use std::time::{Duration, Instant};

use super::{Failing, Kind, signal};
use crate::harness::Cluster;

/// Ten nodes for the table's jobs, and four where those of failed nodes run again.
const NODES: &str = "node_timeout_s = 6\n[[nodes]]\nname = \"n[1-14]\"\ncpus = 1\nforce = true\n";

/// A script that notes its begin, that it runs, and its end. The order of the lines is the order in time.
const SCRIPT: &str = "marks=DIR/marks.$SLURM_JOB_ID; run=${SLURM_RESTART_COUNT:-0}
echo begin $run >> $marks
until test -e DIR/go; do sleep 0.2; echo runs $run >> $marks; done; echo end $run >> $marks";

/// What happens to the node of a job.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Its daemon is killed. Later it starts again.
    Daemon,
    /// The job's step daemon is killed.
    StepDaemon,
    /// All its processes are killed. Later its daemon starts again.
    All,
    /// Its daemon is stopped, and later goes on.
    StoppedDaemon,
    /// All its processes are stopped but the guard of the node fence, and later go on.
    StoppedAll,
}

/// A row of the table.
struct Row {
    fault: Fault,
    is_fenced: bool,
    /// The reason in `squeue` and what `squall why` says, after the fault.
    shows: (&'static str, &'static str),
    /// State and number of runs in the end.
    ends: (&'static str, usize),
}

const RUNS: (&str, &str) = ("None", "is RUNNING");
const WAITS: (&str, &str) = ("NodeNotResponding", "It waits until");
const FENCED: (&str, &str) = ("NodeNotResponding", "It has a node fence: its processes there end by themselves");
const ONCE: (&str, usize) = ("COMPLETED", 1);
const AGAIN: (&str, usize) = ("COMPLETED", 2);

const fn row(fault: Fault, is_fenced: bool, shows: (&'static str, &'static str), ends: (&'static str, usize)) -> Row {
    Row { fault, is_fenced, shows, ends }
}

const TABLE: [Row; 10] = [
    row(Fault::Daemon, false, WAITS, ONCE),
    row(Fault::Daemon, true, FENCED, AGAIN),
    row(Fault::StepDaemon, false, RUNS, ONCE),
    row(Fault::StepDaemon, true, RUNS, ONCE),
    // How far the script came is not known, so it is not run again. How it ended may be known.
    row(Fault::All, false, WAITS, ("NODE_FAIL or FAILED", 1)),
    row(Fault::All, true, FENCED, AGAIN),
    row(Fault::StoppedDaemon, false, WAITS, ONCE),
    row(Fault::StoppedDaemon, true, FENCED, AGAIN),
    row(Fault::StoppedAll, false, WAITS, ONCE),
    row(Fault::StoppedAll, true, FENCED, AGAIN),
];

/// A row's job, with the node on which it runs first.
struct Case {
    row: Row,
    job: String,
    node: String,
}

impl Case {
    fn submit(c: &Cluster, row: Row) -> Self {
        let fence: &[&str] = if row.is_fenced { &["--node-fence=30"] } else { &[] };
        let job = c.submit(fence, SCRIPT);
        let node = || c.ok(&["squeue", "-h", "-j", &job, "-t", "R", "-o", "%N"]);
        c.until("it runs", || !node().is_empty());
        Self { row, node: node(), job }
    }

    fn marks(&self, c: &Cluster) -> Vec<String> {
        c.read(&format!("marks.{}", self.job)).lines().map(str::to_owned).collect()
    }

    fn begins(&self, c: &Cluster) -> usize {
        self.marks(c).iter().filter(|line| line.starts_with("begin")).count()
    }

    /// Waits until the job's script has written another line.
    fn goes_on(&self, c: &Cluster) {
        let before = self.marks(c).len();
        c.until("the script runs", || self.marks(c).len() > before);
    }

    fn strike(&self, c: &Cluster) {
        let node = |kind| c.of_node(&self.node, kind);
        let daemon = || c.pid(&format!("node-{}", self.node)).into_iter().collect::<Vec<_>>();
        match self.row.fault {
            Fault::Daemon => signal("-9", &daemon()),
            Fault::StepDaemon => signal("-9", &node(Kind::StepDaemons)),
            Fault::All => signal("-9", &node(Kind::All)),
            Fault::StoppedDaemon => signal("-STOP", &daemon()),
            Fault::StoppedAll => signal("-STOP", &node(Kind::AllButGuards)),
        }
    }

    /// Continues what was stopped.
    fn undo(&self, c: &Cluster) {
        if matches!(self.row.fault, Fault::StoppedDaemon | Fault::StoppedAll) {
            signal("-CONT", &c.of_node(&self.node, Kind::All));
        }
    }

    fn name(&self) -> String {
        format!("{:?}, {}: job {}", self.row.fault, if self.row.is_fenced { "fence" } else { "no fence" }, self.job)
    }

    /// Checks that each run began after all lines of those before it.
    fn ran_one_at_a_time(&self, c: &Cluster) {
        let marks = self.marks(c);
        let runs: Vec<&str> = marks.iter().filter_map(|line| line.split(' ').nth(1)).collect();
        assert!(runs.is_sorted(), "{}: {marks:?}", self.name());
    }
}

#[test]
fn the_table_of_what_dies_on_a_job_s_node_with_and_without_a_fence() {
    let c = Cluster::new("faults", "table");
    c.up(NODES, &[]);
    let cases: Vec<Case> = TABLE.into_iter().map(|row| Case::submit(&c, row)).collect();
    let all_go_on = || cases.iter().for_each(|case| case.goes_on(&c));
    all_go_on();
    // Restarts of ours end nothing.
    c.kill("controller");
    c.ok(&["up"]);
    all_go_on();
    c.ok(&["down", "--keep-jobs"]);
    c.ok(&["up"]);
    all_go_on();
    assert!(cases.iter().all(|case| case.begins(&c) == 1));
    let struck = Instant::now();
    for case in &cases {
        case.strike(&c);
    }
    for case in &cases {
        let (reason, why) = case.row.shows;
        c.until(&case.name(), || c.ok(&["squeue", "-h", "-j", &case.job, "-o", "%r"]) == reason);
        let said = c.ok(&["why", &case.job]);
        assert!(said.contains(why), "{}: {said}", case.name());
    }
    let again = |case: &&Case| case.row.is_fenced && case.row.ends.1 > 1;
    c.until("fenced jobs run again", || cases.iter().filter(again).all(|case| case.begins(&c) == 2));
    let took = struck.elapsed();
    assert!((Duration::from_secs(25)..Duration::from_secs(55)).contains(&took), "fences have passed in {took:?}");
    assert!(cases.iter().filter(|case| !again(case)).all(|case| case.begins(&c) == 1), "others wait");
    for case in &cases {
        case.undo(&c);
    }
    c.ok(&["up"]);
    c.until("all nodes answer", || !c.ok(&["sinfo", "-hN", "-o", "%t"]).contains('*'));
    c.write("go", "");
    c.until("all is over", || c.ok(&["squeue", "-h"]).is_empty());
    for case in &cases {
        let (state, runs) = case.row.ends;
        let shown = c.ok(&["sacct", "-n", "-X", "-j", &case.job, "-o", "State,Restarts"]);
        let words: Vec<&str> = shown.split_whitespace().collect();
        assert!(state.contains(words[0]) && words[1] == (runs - 1).to_string(), "{}: {shown}", case.name());
        assert_eq!(case.begins(&c), runs, "{}", case.name());
        case.ran_one_at_a_time(&c);
    }
    c.clean();
}
