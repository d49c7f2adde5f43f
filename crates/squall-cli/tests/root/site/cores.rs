//! Cores that a job's processes can't leave.

use std::fs;

use super::{Cluster, has};

/// Starts a cluster of one node that is named after this host, so that it binds its steps. None: one CPU only, or
/// without rights.
fn cluster(test: &str, config: &str) -> Option<(Cluster, String)> {
    let cpus = std::thread::available_parallelism().unwrap().get();
    if !rustix::process::getuid().is_root() || cpus < 2 || !has("taskset") {
        eprintln!("skipped: only root can confine, and one of several CPUs");
        return None;
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned();
    let cluster = Cluster::start(test, "");
    cluster.ok(&["down"]);
    drop(fs::remove_dir_all(cluster.path("state")));
    cluster.up(&format!("{config}[[nodes]]\nname = \"{host}\"\nmemory_mb = 512\n"));
    Some((cluster, host))
}

/// Tries to leave the cores of the step; prints how many there are then.
const LEAVE: [&str; 3] = ["sh", "-c", "taskset -pc 0-1023 $$ > /dev/null 2>&1; nproc"];

#[test]
fn taskset_does_not_undo_what_the_kernel_enforces() {
    let Some((cluster, host)) = cluster("cores", "") else { return };
    let kept = cluster.ok(&["scontrol", "show", "node", &host]);
    if !kept.contains("Confinement=cores:cgroup,memory:") {
        eprintln!("skipped: no cpuset here\n{kept}");
        return;
    }
    let nproc = |asked: &[&str]| cluster.users_ok(&[&["srun", "-n1"], asked, &LEAVE].concat());
    assert_eq!((&*nproc(&["-c1"]), &*nproc(&["-c2"])), ("1", "2"));
    let script = format!("{}; scontrol show job -d $SLURM_JOB_ID; {}", LEAVE[2], "srun -n1 -c1 sh -c '");
    let script = format!("{script}{}'", LEAVE[2].replace("$$", "0"));
    let bin = cluster.path("bin");
    cluster.ok(&["links", &bin]);
    let script = format!("PATH={bin}:$PATH; {script}");
    cluster.users_ok(&["sbatch", "-W", "-n1", "-c1", "-o", "out", "--wrap", &script]);
    let said = cluster.read("out");
    let counts: Vec<&str> = said.lines().filter(|line| line.len() == 1).collect();
    assert_eq!(counts, ["1", "1"], "{said}");
    assert!(said.contains("Confinement=cores:cgroup,"), "{said}");
    // Programs read CPU_IDs from each line about nodes (slurmtop).
    let nodes: Vec<&str> = said.lines().filter(|line| line.trim_start().starts_with("Nodes=")).collect();
    assert!(!nodes.is_empty() && nodes.iter().all(|line| line.contains(" CPU_IDs=")), "{said}");
}

#[test]
fn a_site_may_leave_cores_to_affinity() {
    let Some((cluster, host)) = cluster("cores-off", "constrain_cores = false\n") else { return };
    assert!(cluster.ok(&["scontrol", "show", "node", &host]).contains("Confinement=cores:affinity,"));
    assert_eq!(cluster.users_ok(&["srun", "-n1", "-c1", "nproc"]), "1");
    assert_ne!(cluster.users_ok(&[&["srun", "-n1", "-c1"], &LEAVE[..]].concat()), "1");
}
