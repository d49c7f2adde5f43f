//! A cluster of two cells behind a front, with real processes: whoever looks sees one cluster.

use std::collections::BTreeSet;
use std::fs;

use std::process::{Child, Command, Output, Stdio};

use crate::harness::{Cluster, is_over};
use crate::traces;

/// Where the ids of cell 1 begin.
const CELL_1: u32 = 1 << 26;

fn cluster() -> Cluster {
    let cluster = Cluster::new("cells", "two");
    cluster.ok(&["links", &cluster.path("bin")]);
    cluster.up("[[nodes]]\nname = \"n[1-4]\"\ncpus = 4\nmemory_mb = 1024\nforce = true\n", &["--cells", "2"]);
    cluster
}

trait Cells {
    fn start(&self, args: &[&str]) -> Child;
    fn submit(&self, args: &[&str]) -> u32;
    fn queue(&self) -> BTreeSet<u32>;
    fn end_of(&self, job: u32) -> String;
    fn end(&self, signal: &str, pid_file: &str);
}

impl Cells for Cluster {
    fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
    fn submit(&self, args: &[&str]) -> u32 {
        self.ok(&[&["sbatch", "--parsable", "-o", "/dev/null"], args].concat()).parse().unwrap()
    }
    fn queue(&self) -> BTreeSet<u32> {
        self.ok(&["squeue", "-h", "-o", "%i"]).split_whitespace().map(|id| id.parse().unwrap()).collect()
    }
    /// State and exit code by sacct, when it has ended.
    fn end_of(&self, job: u32) -> String {
        let job = job.to_string();
        let say = |fields: &str| self.ok(&["sacct", "-n", "-X", "-P", "-o", fields, "-j", &job]);
        self.until(&format!("job {job} has ended"), || {
            let said = say("End");
            !said.is_empty() && said != "Unknown"
        });
        say("State,ExitCode")
    }
    /// Ends the process with the id in a file, and waits for its end.
    fn end(&self, signal: &str, pid_file: &str) {
        let pid: u32 = self.read(&format!("state/{pid_file}")).trim().parse().unwrap();
        assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
        while !is_over(pid) {
            std::thread::yield_now();
        }
    }
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A job in each cell.
fn one_of_each(cluster: &Cluster, args: &[&str]) -> (u32, u32) {
    let (mut first, mut second) = (None, None);
    while first.is_none() || second.is_none() {
        let job = cluster.submit(args);
        let slot = if job < CELL_1 { &mut first } else { &mut second };
        if let Some(surplus) = slot.replace(job) {
            cluster.ok(&["scancel", &surplus.to_string()]);
        }
    }
    (first.unwrap(), second.unwrap())
}

#[test]
fn two_cells_are_one_cluster() {
    let cluster = cluster();
    assert_eq!(cluster.ok(&["sinfo", "-h", "-o", "%P %D %N"]), "debug* 4 n[1-4]");
    let (a, b) = one_of_each(&cluster, &["--wrap", "exit 3"]);
    assert!(a < CELL_1 && b >= CELL_1);
    assert_eq!((cluster.end_of(a), cluster.end_of(b)), ("FAILED|3:0".to_owned(), "FAILED|3:0".to_owned()));
    lists_and_changes(&cluster);
    allocations_and_steps(&cluster);
    interactive_work_outlives_the_front(&cluster);
    dependencies(&cluster);
    what_dies(&cluster);
    cluster.ok(&["down"]);
    let left = traces::processes(&cluster.dir);
    assert!(left.is_empty(), "left over: {left:#?}");
}

fn lists_and_changes(cluster: &Cluster) {
    let (a, b) = one_of_each(cluster, &["--hold", "--wrap", "true"]);
    assert_eq!(cluster.queue(), BTreeSet::from([a, b]));
    let both = format!("{a},{b}");
    assert_eq!(cluster.ok(&["squeue", "-h", "-o", "%T", "-j", &both]), "PENDING\nPENDING");
    assert!(cluster.ok(&["scontrol", "show", "job", &b.to_string()]).contains(&format!("JobId={b} ")));
    cluster.ok(&["scontrol", "update", &format!("jobid={b}"), "JobName=other"]);
    assert_eq!(cluster.ok(&["squeue", "-h", "-o", "%j", "-j", &b.to_string()]), "other");
    cluster.ok(&["scontrol", "release", &both]);
    assert_eq!((cluster.end_of(a), cluster.end_of(b)), ("COMPLETED|0:0".to_owned(), "COMPLETED|0:0".to_owned()));
    accounting(cluster, (a, b));
    one_of_each(cluster, &["--hold", "--wrap", "true"]);
    cluster.ok(&["scancel", "--state=PENDING"]);
    cluster.until("nothing waits", || cluster.queue().is_empty());
    cluster.ok(&["scontrol", "update", "nodename=n[2-3]", "state=drain", "reason=test"]);
    assert_eq!(cluster.ok(&["sinfo", "-h", "-t", "drain", "-o", "%N"]), "n[2-3]");
    cluster.ok(&["scontrol", "update", "nodename=n[2-3]", "state=resume"]);
    // What is kept by each cell is refused, in words.
    let refused = cluster.squall(&["sacctmgr", "-i", "add", "account", "physics"]);
    assert!(
        !refused.status.success() && err(&refused).contains("each cell keeps its own accounts"),
        "{}",
        err(&refused)
    );
    let ids = cluster.ok(&["sacct", "-n", "-X", "-P", "-o", "JobID"]);
    let ids: Vec<u32> = ids.lines().map(|id| id.parse().unwrap()).collect();
    assert!(ids.is_sorted() && ids.iter().any(|id| *id >= CELL_1), "{ids:?}");
}

/// Accounting is whole whatever is asked, of two jobs the second of which was renamed to `other`.
fn accounting(cluster: &Cluster, (a, b): (u32, u32)) {
    let told = |args: &[&str]| cluster.ok(&[&["sacct", "-n", "-X", "-P", "-o", "JobID"], args].concat());
    let both = format!("{a}\n{b}");
    assert_eq!(told(&["-j", &format!("{b},{a}")]), both);
    assert_eq!(told(&["--name=other"]), b.to_string());
    assert_eq!(
        told(&["-j", &format!("{a},{b}"), "-s", "CD", "-N", "n[1-4]", "-S", "now-1hour", "-E", "now+1hour"]),
        both
    );
    assert_eq!(told(&["-j", &format!("{a},{b}"), "-s", "F", "-S", "now-1hour", "-E", "now+1hour"]), "");
    let failed = told(&["-s", "F", "-S", "now-1hour", "-E", "now+1hour"]);
    let failed: Vec<u32> = failed.lines().map(|id| id.parse().unwrap()).collect();
    assert!(failed.iter().any(|job| *job < CELL_1) && failed.iter().any(|job| *job >= CELL_1), "{failed:?}");
}

fn allocations_and_steps(cluster: &Cluster) {
    assert_eq!(cluster.ok(&["srun", "-N2", "-w", "n[3-4]", "sh", "-c", "echo $SLURM_NODEID"]).lines().count(), 2);
    assert_eq!(cluster.ok(&["salloc", "-w", "n1", "srun", "sh", "-c", "echo $SLURMD_NODENAME"]), "n1");
    // Commands of a job see the whole cluster, and steps go to the job's cell.
    let out = cluster.dir.join("inner");
    let script = format!("srun hostname && sinfo -h -o %D > {}", out.display());
    let job = cluster.submit(&["-w", "n4", "--wrap", &script]);
    assert_eq!(cluster.end_of(job), "COMPLETED|0:0");
    assert_eq!(fs::read_to_string(out).unwrap().trim(), "4");
    let waited = cluster.squall(&["sbatch", "--wait", "-o", "/dev/null", "--wrap", "exit 5"]);
    assert_eq!(waited.status.code(), Some(5), "{}", err(&waited));
}

/// The front ends, by kill -9 and as in an upgrade, while `srun` and `salloc` work. faults.md R2.
fn interactive_work_outlives_the_front(cluster: &Cluster) {
    let script = "touch begun.$SLURM_JOB_ID.$SLURM_PROCID; until test -e go; do sleep 0.02; done; echo done";
    let inner = format!("touch begun.$SLURM_JOB_ID.0; srun -n1 sh -c '{}'", script.replace("begun", "inner"));
    // Enough for both cells.
    let mut work: Vec<Child> = (0..4).map(|_| cluster.start(&["srun", "-n1", "sh", "-c", script])).collect();
    work.extend((0..2).map(|_| cluster.start(&["salloc", "-n1", "sh", "-c", &inner])));
    let named = |name: &str| {
        let names = fs::read_dir(&cluster.dir).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|file| file.starts_with(name)).count()
    };
    cluster.until("all have begun", || (named("begun."), named("inner.")) == (work.len(), 2));
    let jobs = cluster.queue();
    assert_eq!(jobs.len(), work.len());
    for signal in ["-9", "-TERM"] {
        cluster.end(signal, "run/front.pid");
        cluster.ok(&["up"]);
        assert_eq!(cluster.ok(&["squeue", "-h", "-o", "%T"]), ["RUNNING"; 6].join("\n"), "after {signal}");
    }
    fs::write(cluster.dir.join("go"), "").unwrap();
    for child in work {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.trim() == "done", "{}: {said}{}", output.status, err(&output));
    }
    cluster.until("nothing is left", || cluster.queue().is_empty());
    for job in jobs {
        assert_eq!(cluster.end_of(job), "COMPLETED|0:0");
    }
}

fn dependencies(cluster: &Cluster) {
    let (a, b) = one_of_each(cluster, &["--hold", "--wrap", "true"]);
    for job in [a, b] {
        let after = cluster.submit(&["-d", &format!("afterok:{job}"), "--wrap", "true"]);
        assert_eq!(after < CELL_1, job < CELL_1);
        cluster.ok(&["scontrol", "release", &job.to_string()]);
        assert_eq!(cluster.end_of(after), "COMPLETED|0:0");
    }
    across_cells(cluster);
    singletons(cluster);
}

/// Jobs that depend on jobs of both cells; controllers and front are killed while they wait.
fn across_cells(cluster: &Cluster) {
    let (a, b) = one_of_each(cluster, &["--hold", "--wrap", "exit 1"]);
    let both = format!("afterany:{a}:{b}");
    let (first, second) = one_of_each(cluster, &["-d", &both, "--wrap", "true"]);
    let never = cluster.submit(&["-d", &format!("afterok:{a}:{b}"), "--wrap", "true"]);
    let failed = cluster.submit(&["-d", &format!("afternotok:{b},after:{a}"), "--wrap", "true"]);
    let reason = |job: u32| cluster.ok(&["squeue", "-h", "-o", "%r", "-j", &job.to_string()]);
    let waiting = [first, second, never, failed];
    assert!(waiting.iter().all(|job| reason(*job) == "Dependency"));
    let shown = cluster.ok(&["scontrol", "show", "job", &second.to_string()]);
    assert!(shown.contains(&format!("Dependency=afterany:{a}(unfulfilled),afterany:{b}(unfulfilled)")), "{shown}");
    for pid in ["cells/0/run/controller.pid", "cells/1/run/controller.pid", "run/front.pid"] {
        cluster.end("-9", pid);
    }
    cluster.ok(&["up"]);
    cluster.ok(&["scontrol", "release", &b.to_string()]);
    assert_eq!(cluster.end_of(b), "FAILED|1:0");
    cluster
        .until("who waits for b only to be ended well never can start", || reason(never) == "DependencyNeverSatisfied");
    assert_eq!([first, second, failed].map(reason), ["Dependency"; 3]);
    cluster.end("-9", "run/front.pid");
    cluster.ok(&["up"]);
    cluster.ok(&["scontrol", "release", &a.to_string()]);
    for job in [first, second, failed] {
        assert_eq!(cluster.end_of(job), "COMPLETED|0:0");
    }
    cluster.ok(&["scancel", &never.to_string()]);
    let matched = cluster.squall(&["sbatch", "-d", &format!("aftercorr:{a}:{b}"), "--wrap", "true"]);
    assert!(!matched.status.success() && err(&matched).contains("arrays in several cells"), "{}", err(&matched));
}

/// Wherever they are, one runs after the other.
fn singletons(cluster: &Cluster) {
    let script = "mkdir only || touch twice; sleep 0.05; rmdir only";
    let args = ["-J", "only", "-d", "singleton", "--wrap", script];
    let mut jobs = Vec::new();
    cluster.until("both cells have some", || {
        jobs.push(cluster.submit(&args));
        jobs.len() >= 8 && jobs.iter().any(|job| *job < CELL_1) && jobs.iter().any(|job| *job >= CELL_1)
    });
    for job in jobs {
        assert_eq!(cluster.end_of(job), "COMPLETED|0:0");
    }
    assert!(!cluster.dir.join("twice").exists(), "two ran at once");
}

fn what_dies(cluster: &Cluster) {
    let (a, b) = one_of_each(cluster, &["--hold", "--wrap", "true"]);
    cluster.end("-9", "cells/1/run/controller.pid");
    let listed = cluster.squall(&["squeue", "-h", "-o", "%i"]);
    assert!(listed.status.success() && String::from_utf8_lossy(&listed.stdout).trim() == a.to_string());
    assert!(err(&listed).contains("cell 1 does not answer"), "{}", err(&listed));
    // Whatever key it had first, it goes where it is heard.
    for _ in 0..6 {
        assert!(cluster.submit(&["--hold", "--wrap", "true"]) < CELL_1);
    }
    let refused = cluster.squall(&["scontrol", "release", &b.to_string()]);
    assert!(!refused.status.success(), "{refused:?}");
    cluster.end("-9", "run/front.pid");
    cluster.ok(&["up"]);
    assert!(cluster.queue().is_superset(&BTreeSet::from([a, b])));
    // A cell is a cluster as any other to whoever asks it itself.
    let alone = Command::new(env!("CARGO_BIN_EXE_squall"))
        .args(["squeue", "-h", "-o", "%i"])
        .env("SQUALL_STATE", cluster.state().join("cells/1"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&alone.stdout).trim(), b.to_string());
    cluster.ok(&["scancel", "--state=PENDING"]);
}
