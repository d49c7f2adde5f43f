//! Power saving with real processes: programs that end and start node daemons on this machine.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::Cluster;

/// Six nodes of which the daemons are started with the cluster, and two of a cloud.
const NODES: &str = "[[nodes]]\nname = \"n[1-6]\"\ncpus = 1\nforce = true\n\
                     [[nodes]]\nname = \"c[1-2]\"\ncpus = 1\nmemory_mb = 1000\nforce = true\nstate = \"CLOUD\"\n\
                     [[partitions]]\nname = \"debug\"\nnodes = \"n[1-6]\"\n\
                     [[partitions]]\nname = \"cloud\"\nnodes = \"c[1-2]\"\ndefault = false\n";

/// The programs. The one that wakes nodes waits while there is a file `asleep`, and leaves out those that `broken` lists.
const POWER: &str = "[power]\nsuspend_program = \"DIR/suspend\"\nresume_program = \"DIR/resume\"\n\
                     resume_fail_program = \"DIR/failed\"\nsuspend_time_s = 2\nsuspend_timeout_s = 2\n\
                     suspend_rate = 0\nresume_rate = 0\n[health]\nresume_timeout_s = 15\n";

const SUSPEND: &str = "echo \"$1\" >> DIR/suspended
for node in $(SQUALL scontrol show hostnames \"$1\"); do kill \"$(cat DIR/state/run/node-$node.pid)\"; done";

const RESUME: &str = "while [ -e DIR/asleep ]; do sleep 0.02; done
echo \"$1\" >> DIR/resumed; cat \"$SLURM_RESUME_FILE\" >> DIR/told; echo >> DIR/told
for node in $(SQUALL scontrol show hostnames \"$1\"); do
    grep -qx \"$node\" DIR/broken && continue
    setsid SQUALL node \"$node\" --state=DIR/state >> DIR/state/log/node-$node.log 2>&1 &
done";

fn cluster(name: &str) -> Cluster {
    let c = Cluster::new("power", name);
    for (name, text) in [("suspend", SUSPEND), ("resume", RESUME), ("failed", "echo \"$1\" >> DIR/lost")] {
        c.script(name, text);
    }
    c.write("broken", "");
    c.up(&format!("{NODES}{POWER}"), &[]);
    c
}

trait Power {
    fn states(&self, nodes: &str) -> Vec<String>;
    fn submit(&self, options: &[&str], wrap: &str) -> String;
    fn job(&self, id: &str) -> String;
}

impl Power for Cluster {
    /// Returns the states of nodes, as `idle~`.
    fn states(&self, nodes: &str) -> Vec<String> {
        let said = self.ok(&["sinfo", "-h", "-N", "-n", nodes, "-o", "%t"]);
        said.split_whitespace().map(str::to_owned).collect()
    }

    fn submit(&self, options: &[&str], wrap: &str) -> String {
        self.ok(&[&["sbatch", "--parsable", "-o", "/dev/null", "--wrap", wrap], options].concat())
    }

    fn job(&self, id: &str) -> String {
        self.ok(&["squeue", "-h", "-t", "all", "-j", id, "-o", "%t %N"])
    }
}

#[test]
fn nodes_sleep_wake_for_jobs_and_are_replaced_if_they_do_not_come() {
    let c = cluster("all");
    assert_eq!(c.states("c[1-2]"), ["idle~", "idle~"]);
    let shown = c.ok(&["scontrol", "show", "node", "c1"]);
    assert!(shown.contains("State=IDLE+CLOUD+POWERED_DOWN"), "{shown}");
    let config = c.ok(&["scontrol", "show", "config"]);
    assert!(config.contains("SuspendTime             = 2 sec"), "{config}");

    // Idle nodes go to sleep: their daemons end, and no alarm is raised.
    c.until("all sleep", || c.states("n[1-6]").iter().all(|state| state == "idle~"));
    assert!((1..=6).all(|n| c.pid(&format!("node-n{n}")).is_none()));

    // A job wakes its nodes and runs there; those of the cloud as well.
    c.write("asleep", "");
    let two = c.submit(&["-N2"], "true");
    let state = c.job(&two);
    assert!(state.starts_with("CF "), "{state}");
    fs::remove_file(c.dir.join("asleep")).unwrap();
    let far = c.submit(&["-p", "cloud"], "true");
    c.until("the programs have read for which jobs", || c.read("told").lines().count() == 2);
    let told: Vec<serde_json::Value> = c.read("told").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (job, nodes, partition) in [(&two, "n[1-2]", "debug"), (&far, "c1", "cloud")] {
        let told = told.iter().find(|told| told["all_nodes_resume"] == nodes).unwrap_or_else(|| panic!("{told:?}"));
        let about = &told["jobs"][0];
        assert_eq!(about["job_id"].to_string(), *job);
        assert_eq!((&about["nodes_alloc"], &about["nodes_resume"]), (&nodes.into(), &nodes.into()), "{told}");
        assert_eq!((&about["partition"], &about["oversubscribe"]), (&partition.into(), &"OK".into()), "{told}");
    }
    c.until("the jobs have run", || [&two, &far].iter().all(|id| c.job(id).starts_with("CD ")));
    assert_eq!(c.job(&far), "CD c1");

    // Jobs start on nodes that are up before others are woken.
    let up = c.job(&two).split_once(' ').unwrap().1.to_owned();
    let resumed = c.read("resumed");
    let next = c.submit(&[], "true");
    c.until("the next job has run", || c.job(&next).starts_with("CD "));
    assert!(up == "n[1-2]" && ["CD n1", "CD n2"].contains(&c.job(&next).as_str()), "{up}: {}", c.job(&next));
    assert_eq!(c.read("resumed"), resumed);

    // A node that does not come is down, and the job runs on another one. The controller dies meanwhile.
    c.until("all sleep again", || c.states("n[1-6]").iter().all(|state| state == "idle~"));
    fs::write(c.dir.join("broken"), "n1\n").unwrap();
    let job = c.submit(&[], "true");
    c.until("n1 is being woken", || c.states("n1") == ["alloc#"] && c.read("resumed") != resumed);
    let controller = c.pid("controller").unwrap();
    assert!(Command::new("kill").args(["-9", &controller.to_string()]).status().unwrap().success());
    while fs::metadata(format!("/proc/{controller}")).is_ok() {
        std::thread::sleep(Duration::from_millis(10));
    }
    restart(&c);
    c.until("the job has run elsewhere", || c.job(&job).starts_with("CD "));
    assert_eq!(c.job(&job), "CD n2");
    assert_eq!(c.read("lost").trim(), "n1");
    let reason = c.ok(&["sinfo", "-h", "-N", "-n", "n1", "-o", "%t %E"]);
    assert_eq!(reason.trim(), "down~ ResumeTimeout reached");

    // An operator has it back.
    fs::write(c.dir.join("broken"), "").unwrap();
    c.ok(&["scontrol", "update", "nodename=n1", "state=resume"]);
    c.ok(&["scontrol", "power", "up", "n1"]);
    c.until("n1 is up", || c.states("n1") == ["idle"]);
    c.ok(&["scontrol", "power", "down_force", "n1"]);
    c.until("n1 goes", || c.states("n1") == ["idle~"]);
}

/// Starts the controller alone, as `squall up` would start all nodes.
fn restart(c: &Cluster) {
    let log = fs::File::options().append(true).open(c.dir.join("state/log/controller.log")).unwrap();
    let started = Command::new("setsid")
        .args(["--fork", env!("CARGO_BIN_EXE_squall"), "controller"])
        .env("SQUALL_STATE", c.dir.join("state"))
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(log)
        .status()
        .unwrap();
    assert!(started.success(), "{started}");
    let begin = Instant::now();
    while !c.squall(&["sinfo"]).status.success() {
        assert!(begin.elapsed() < Duration::from_secs(30), "the controller does not come back");
        std::thread::sleep(Duration::from_millis(50));
    }
}
