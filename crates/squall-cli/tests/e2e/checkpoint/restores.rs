//! The batch supervisor, CRIU and the node daemon are killed at each moment of a restore: the job goes back, or on, and its
//! result is right.

use std::path::PathBuf;
use std::process::{Child, Command};

use super::kills::{COUNTER, awaits_result, criu, supervisor};
use super::{cluster, cluster_with, counted, numbers_in, state};
use crate::harness::Cluster;

/// What is killed while a restore is held.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Supervisor,
    Criu,
    /// Both daemons of the job; the node daemon is started again.
    Both,
    /// The supervisor, which is stopped before CRIU ends, so that it never hears of that.
    Deaf,
}

fn signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

fn strike(c: &Cluster, victim: Victim) {
    let supervisor = supervisor(c).expect("the batch supervisor serves the job");
    let criu = criu(c).expect("CRIU restores the job");
    match victim {
        Victim::Supervisor => signal(supervisor, "-9"),
        Victim::Criu => signal(criu, "-9"),
        Victim::Both => {
            c.kill("node-n1");
            signal(supervisor, "-9");
            c.said(&["up"]);
        }
        Victim::Deaf => {
            signal(supervisor, "-STOP");
            std::fs::remove_file(c.dir.join("held")).unwrap();
            c.until("CRIU has ended", || crate::harness::is_over(criu));
            signal(supervisor, "-9");
        }
    }
}

/// A job is put to disk, and killed at a moment of its restore: it goes back to the checkpoint before.
fn killed_at(c: &Cluster, moment: &str, victim: Victim) {
    let lines = || numbers_in(&c.read("out")).len();
    c.ok(&["scontrol", "checkpoint", "create", "1"]);
    let there = lines();
    c.until("it counts on", || lines() > there + 5);
    c.write("hold", moment);
    c.ok(&["scontrol", "checkpoint", "vacate", "1"]);
    c.until("it is being restored", || c.dir.join("held").exists());
    strike(c, victim);
    c.until("the restore has failed", || c.ok(&["scontrol", "show", "job", "1"]).contains("RestoreFailed="));
    drop(std::fs::remove_file(c.dir.join("held")));
    let there = lines();
    c.until("it counts again", || state(c).starts_with("RUNNING") && lines() > there + 5);
}

/// Starts a job that counts until it is told that it is enough.
fn begin(test: &str) -> Option<Cluster> {
    let c = cluster(test)?;
    c.write("counter.sh", COUNTER);
    c.ok(&["sbatch", "--no-requeue", "-o", "out", "counter.sh"]);
    c.until("it counts", || counted(&c, 5));
    Some(c)
}

/// Before CRIU begins, when all processes are restored and stand still, and when they run but CRIU has not ended.
#[test]
fn a_restore_that_is_killed_at_any_moment_sends_the_job_back() {
    let Some(c) = begin("restores") else { return };
    for moment in ["begin", "post-restore", "post-resume"] {
        for victim in [Victim::Supervisor, Victim::Criu, Victim::Both] {
            eprintln!("{moment} {victim:?}");
            killed_at(&c, moment, victim);
        }
    }
    eprintln!("CRIU has ended, and the supervisor has not heard of it");
    killed_at(&c, "post-resume", Victim::Deaf);
    awaits_result(&c, String::new);
}

/// Returns the steps of which the script is noted as running.
fn noted(c: &Cluster) -> Vec<String> {
    let steps = std::fs::read_dir(c.state().join("node/n1/steps")).unwrap().flatten();
    let noted = |path: PathBuf| std::fs::read_to_string(path).is_ok_and(|text| text.starts_with("0 "));
    let noted = steps.filter(|step| noted(step.path().join("pids")));
    noted.map(|step| step.file_name().to_string_lossy().into_owned()).collect()
}

/// From the supervisor's record on the job is restored: it goes on without the supervisor.
#[test]
fn a_job_that_was_restored_goes_on_without_its_supervisor() {
    for both in [false, true] {
        let Some(c) = begin(if both { "noted-both" } else { "noted" }) else { return };
        let began = noted(&c);
        c.ok(&["scontrol", "checkpoint", "vacate", "1"]);
        c.until("it is noted", || noted(&c).iter().any(|step| !began.contains(step)));
        let supervisor = supervisor(&c).expect("the batch supervisor serves the job");
        if both {
            c.kill("node-n1");
        }
        signal(supervisor, "-9");
        if both {
            c.said(&["up"]);
        }
        let there = numbers_in(&c.read("out")).len();
        c.until("it counts on", || numbers_in(&c.read("out")).len() > there + 5);
        assert!(!c.ok(&["scontrol", "show", "job", "1"]).contains("RestoreFailed="));
        awaits_result(&c, String::new);
    }
}

/// The node daemon is killed amid a restore, which goes on.
#[test]
fn a_restore_goes_on_without_its_node_daemon() {
    let Some(c) = begin("without-node") else { return };
    c.write("hold", "post-restore");
    c.ok(&["scontrol", "checkpoint", "vacate", "1"]);
    c.until("it is being restored", || c.dir.join("held").exists());
    c.kill("node-n1");
    c.said(&["up"]);
    let there = numbers_in(&c.read("out")).len();
    std::fs::remove_file(c.dir.join("held")).unwrap();
    c.until("it counts on", || numbers_in(&c.read("out")).len() > there + 5);
    assert!(!c.ok(&["scontrol", "show", "job", "1"]).contains("RestoreFailed="));
    awaits_result(&c, String::new);
}

/// A restore that is killed without an earlier checkpoint has the job begin again.
#[test]
fn a_killed_restore_of_the_only_checkpoint_has_the_job_begin_again() {
    let Some(c) = begin("only") else { return };
    c.write("hold", "post-restore");
    c.ok(&["scontrol", "checkpoint", "vacate", "1"]);
    c.until("it is being restored", || c.dir.join("held").exists());
    let there = numbers_in(&c.read("out"));
    strike(&c, Victim::Supervisor);
    c.until("it has begun again", || numbers_in(&c.read("out")).len() > there.len());
    let all = numbers_in(&c.read("out"));
    assert_eq!(
        (&all[..there.len()], all[there.len()]),
        (&there[..], 1),
        "its output is appended, as for any that is requeued"
    );
    let shown = c.ok(&["scontrol", "show", "job", "1"]);
    assert!(shown.contains("RestoreFailed=") && shown.contains("killed_while_it_restored"), "{shown}");
    c.ok(&["scancel", "1"]);
}

/// Starts a process that has this id, as soon as no other one has it.
fn take(pid: u32) -> Child {
    for _ in 0..100 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).unwrap();
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        if child.id() == pid {
            return child;
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    panic!("process id {pid} can't be had");
}

/// Other processes have the ids of the job's processes when it comes back, twice; its step's too. Whoever looks for these
/// processes from outside finds them: the node daemon, when the step daemon is killed, and `scontrol listpids`.
#[test]
fn a_job_comes_back_whoever_has_its_process_ids() {
    let Some(c) = cluster("taken") else { return };
    c.write("counter.sh", &COUNTER.replacen('\n', "\necho $$ >pid.task\n", 1));
    c.script("job.sh", "exec 2>>errors\necho $$ >pid.job\nSQUALL srun -n 1 bash counter.sh");
    c.ok(&["sbatch", "--no-requeue", "--checkpoint=signal", "-o", "out", "job.sh"]);
    c.until("it counts", || counted(&c, 5));
    let pids = ["pid.job", "pid.task"].map(|name| c.read(name).trim().parse::<u32>().unwrap());
    for _ in 0..2 {
        c.ok(&["scontrol", "suspend", "--to-disk", "1"]);
        c.until("it is held", || state(&c).starts_with("PENDING"));
        let there = numbers_in(&c.read("out")).len();
        let mut others = pids.map(take);
        c.ok(&["scontrol", "checkpoint", "restart", "1"]);
        c.until("it counts on", || numbers_in(&c.read("out")).len() > there + 5);
        for other in &mut others {
            assert!(other.try_wait().unwrap().is_none(), "nothing of the job is taken for process {}", other.id());
            other.kill().unwrap();
            other.wait().unwrap();
        }
        c.until("the step is listed again", || c.ok(&["squeue", "-h", "-s"]).contains("1.0"));
    }
    assert!(!c.ok(&["scontrol", "show", "job", "1"]).contains("RestoreFailed="));
    let daemon = crate::traces::processes(&c.dir).into_iter().find(|(_, line)| line.trim_end().ends_with(".0"));
    signal(daemon.expect("the step has a step daemon").0, "-9");
    let there = numbers_in(&c.read("out")).len();
    c.until("it counts on", || numbers_in(&c.read("out")).len() > there + 5);
    awaits_result(&c, || c.read("errors"));
}

/// Kills a node's daemon, and writes to a file of the job's cgroup there. `word`: in the command line of the first of the job's
/// processes.
pub(super) fn strike_node(c: &Cluster, name: &str, word: &str, (file, value): (&str, &str)) {
    c.kill(&format!("node-{name}"));
    let script = crate::traces::processes(&c.dir).into_iter().find(|(_, line)| line.contains(word));
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", script.expect("the job runs").0)).unwrap();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap().to_owned();
    let places = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(|root| format!("{root}{group}/{file}"));
    assert!(places.iter().any(|place| std::fs::write(place, value).is_ok()), "{group}");
}

/// Where all nodes share the folder of checkpoints, a job goes on on another node, with its step; also by itself when its own
/// node dies.
#[test]
fn a_job_goes_on_on_another_node() {
    let keys = "checkpoint_shared = true\nnode_timeout_s = 3\nnode_lost_s = 3\nnode_lost_action = \"requeue\"\n";
    let Some(c) = cluster_with("elsewhere", keys, "[[nodes]]\nname = \"n2\"\n") else { return };
    c.write("counter.sh", COUNTER);
    c.script("job.sh", "exec 2>>errors\nSQUALL srun -n 1 bash counter.sh");
    c.ok(&["sbatch", "--requeue", "--checkpoint=signal", "-o", "out", "job.sh"]);
    for node in ["n1", "n2"] {
        let there = numbers_in(&c.read("out")).len();
        c.until("it counts", || numbers_in(&c.read("out")).len() > there + 5);
        assert_eq!(c.ok(&["squeue", "-h", "-o", "%N"]), node);
        c.ok(&["scontrol", "suspend", "--to-disk", "1"]);
        c.until("it is held", || state(&c).starts_with("PENDING"));
        c.ok(&["scontrol", "update", &format!("nodename={node}"), "state=drain", "reason=test"]);
        c.ok(&["scontrol", "checkpoint", "restart", "1"]);
    }
    c.ok(&["scontrol", "update", "nodename=n1", "state=resume"]);
    let there = numbers_in(&c.read("out")).len();
    c.until("it counts", || numbers_in(&c.read("out")).len() > there + 5);
    c.ok(&["scontrol", "update", "nodename=n2", "state=resume"]);
    c.ok(&["scontrol", "checkpoint", "create", "1"]);
    strike_node(&c, "n1", "/slurm_script", ("cgroup.kill", "1"));
    c.until("it runs elsewhere", || c.ok(&["squeue", "-h", "-t", "running", "-o", "%N"]) == "n2");
    awaits_result(&c, || c.read("errors"));
    assert!(!c.ok(&["scontrol", "show", "job", "1"]).contains("RestoreFailed="));
    c.until("its checkpoints are gone", || !c.dir.join("checkpoints/1").exists());
}

/// A process in the background, of a session of its own and without its parent, comes along, and again.
#[test]
fn processes_in_the_background_come_along() {
    let Some(c) = cluster("background") else { return };
    c.write("beat.sh", "#!/bin/bash\nfor i in $(seq 100000); do echo $i >beat; sleep 0.02; done\n");
    c.write("job.sh", &format!("#!/bin/bash\n(setsid bash beat.sh </dev/null >/dev/null 2>&1 &)\n{COUNTER}"));
    c.ok(&["sbatch", "--checkpoint=signal", "-o", "out", "job.sh"]);
    let beat = || c.read("beat").trim().parse::<u32>().unwrap_or(0);
    c.until("it counts", || counted(&c, 5) && beat() > 5);
    for _ in 0..2 {
        c.ok(&["scontrol", "suspend", "--to-disk", "1"]);
        c.until("it is held", || state(&c).starts_with("PENDING"));
        let there = (numbers_in(&c.read("out")).len(), beat());
        c.ok(&["scontrol", "checkpoint", "restart", "1"]);
        c.until("both go on", || numbers_in(&c.read("out")).len() > there.0 + 5 && beat() > there.1 + 5);
        assert!(beat() < there.1 + 2000, "it has not begun again");
    }
    awaits_result(&c, String::new);
}
