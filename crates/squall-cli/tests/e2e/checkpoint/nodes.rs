//! Jobs on two nodes step aside and come back where they were: what goes between the nodes is lost nowhere.

use std::io::Write;
use std::net::TcpListener;

use super::kills::{COUNTER, awaits_result, change_no_result};
use super::mpi::ring_on;
use super::restores::strike_node;
use super::{cluster_with, counted, numbers_in, state};
use crate::harness::{Cluster, accepted};

const SECOND: &str = "[[nodes]]\nname = \"n2\"\n";

/// A script that becomes the `srun` of two tasks, one on each node. That on the second node counts, so each line goes over the
/// network.
const STEP: &str = "exec 2>>errors\n\
    exec SQUALL srun -N 2 -n 2 --overcommit bash -c \
    '[ $SLURM_PROCID = 0 ] || exec bash counter.sh $0; until [ -e enough ]; do sleep 0.05; done; exit 7' $1";

const ASKS: [&str; 8] = ["sbatch", "-N", "2", "--requeue", "--open-mode=truncate", "--checkpoint=signal", "-o", "out"];

fn begin(test: &str, keys: &str) -> Option<Cluster> {
    let c = cluster_with(test, keys, SECOND)?;
    c.write("counter.sh", COUNTER);
    c.script("job.sh", STEP);
    c.ok(&[&ASKS[..], &["job.sh"]].concat());
    c.until("it counts", || counted(&c, 5));
    Some(c)
}

fn counts_on(c: &Cluster) {
    let there = numbers_in(&c.read("out")).len();
    c.until("it counts on", || numbers_in(&c.read("out")).len() > there + 5);
}

/// Asked, checkpointed, put aside and held, and back again, twice; with a node daemon that was started again meanwhile.
#[test]
fn a_job_on_two_nodes_comes_back() {
    let Some(c) = begin("two", "") else { return };
    assert_eq!(c.ok(&["scontrol", "checkpoint", "able", "1"]), "Yes");
    for round in 1..=2 {
        counts_on(&c);
        c.ok(&["scontrol", "checkpoint", "create", "1"]);
        counts_on(&c);
        if round == 1 {
            c.kill("node-n2");
            c.said(&["up"]);
        }
        c.ok(&["scontrol", "suspend", "--to-disk", "1"]);
        c.until("it is held", || state(&c).starts_with("PENDING"));
        c.ok(&["scontrol", "checkpoint", "restart", "1"]);
        counts_on(&c);
        c.until("the step is listed again", || c.ok(&["squeue", "-h", "-s"]).contains("1.0"));
        assert_eq!(c.ok(&["squeue", "-h", "-s", "-o", "%i %N"]).lines().filter(|l| *l == "1.0 n[1-2]").count(), 1);
    }
    let shown = c.ok(&["scontrol", "show", "job", "1"]);
    assert!(shown.contains("Checkpoint=4 ") && shown.contains("CheckpointNode=n[1-2] "), "{shown}");
    assert!(!shown.contains("RestoreFailed="), "{shown}");
    // Back to the last one, while it runs.
    c.ok(&["scontrol", "checkpoint", "restart", "1"]);
    counts_on(&c);
    awaits_result(&c, || c.read("errors"));
    c.until("its checkpoints are gone", || !c.dir.join("checkpoints/1").exists());
}

/// A node dies, and is started again: the job goes on from its last checkpoint.
#[test]
fn a_job_goes_on_when_a_node_is_back() {
    let keys = "node_timeout_s = 3\nnode_lost_s = 3\nnode_lost_action = \"requeue\"\n";
    let Some(c) = begin("back", keys) else { return };
    c.ok(&["scontrol", "checkpoint", "create", "1"]);
    counts_on(&c);
    // As if it had no power: no kernel there says that a connection is closed.
    strike_node(&c, "n2", "--keep", ("cgroup.freeze", "1"));
    c.until("the job has lost it", || state(&c).starts_with("PENDING"));
    c.said(&["up"]);
    c.until("it runs again", || state(&c).starts_with("RUNNING"));
    counts_on(&c);
    awaits_result(&c, || c.read("errors"));
}

/// Where all nodes share the folder of checkpoints, a job comes back on other nodes, with the part of each in the place of
/// another one: n1 and n2, n2 and n3, n1 and n3.
#[test]
fn a_job_on_two_nodes_comes_back_on_others() {
    let three = format!("{SECOND}[[nodes]]\nname = \"n3\"\n");
    let Some(c) = cluster_with("others", "checkpoint_shared = true\n", &three) else { return };
    c.write("counter.sh", COUNTER);
    c.script("job.sh", STEP);
    c.ok(&[&ASKS[..], &["job.sh"]].concat());
    let nodes = || c.ok(&["squeue", "-h", "-t", "running", "-o", "%N"]);
    for (drained, has) in [("n1", "n[1-2]"), ("n2", "n[2-3]")] {
        c.until("it runs", || nodes() == has);
        counts_on(&c);
        c.ok(&["scontrol", "suspend", "--to-disk", "1"]);
        c.ok(&["scontrol", "update", "nodename=n1", "state=resume"]);
        c.ok(&["scontrol", "update", &format!("nodename={drained}"), "state=drain", "reason=test"]);
        c.ok(&["scontrol", "checkpoint", "restart", "1"]);
    }
    c.until("it runs", || nodes() == "n[1,3]");
    counts_on(&c);
    // A drained node is left at once.
    c.ok(&["scontrol", "update", "nodename=n2", "state=resume"]);
    c.ok(&["scontrol", "update", "nodename=n3", "state=drain", "reason=test"]);
    c.until("it has left the node", || nodes() == "n[1-2]");
    counts_on(&c);
    awaits_result(&c, || c.read("errors"));
    let shown = c.ok(&["scontrol", "show", "job", "1"]);
    assert!(!shown.contains("RestoreFailed="), "{shown}");
    c.until("its checkpoints are gone", || !c.dir.join("checkpoints/1").exists());
}

/// Two steps of one node each come back where their tasks are, whichever asks first.
#[test]
fn steps_come_back_where_they_were() {
    let Some(c) = cluster_with("farm", "", SECOND) else { return };
    c.write("counter.sh", COUNTER);
    // The one that starts first gets the first node, and the other one the second.
    let step = "SQUALL srun -N 1 -n 1 --exact bash -c 'echo $SLURMD_NODENAME >>where; bash counter.sh'";
    c.script("job.sh", &format!("exec 2>>errors\n{step} >second &\nsleep 1\n{step}\nwait\nexit 7"));
    c.ok(&[&ASKS[..], &["job.sh"]].concat());
    c.until("it counts", || counted(&c, 5) && numbers_in(&c.read("second")).len() > 5);
    for _ in 0..3 {
        let there = numbers_in(&c.read("second")).len();
        c.ok(&["scontrol", "suspend", "--to-disk", "1"]);
        c.until("it is held", || state(&c).starts_with("PENDING"));
        c.ok(&["scontrol", "checkpoint", "restart", "1"]);
        counts_on(&c);
        c.until("the other one counts on", || numbers_in(&c.read("second")).len() > there + 5);
    }
    awaits_result(&c, || c.read("errors"));
    assert_eq!(c.read("where"), "n1\nn2\n", "both have begun once");
    let second = c.read("second");
    let numbers = numbers_in(&second);
    assert_eq!(numbers, (1..=numbers.len() as u32).collect::<Vec<_>>());
    assert!(second.contains("sum "), "{second}");
}

#[test]
fn a_ring_of_open_mpi_on_two_nodes_comes_back() {
    // Both nodes are on this machine, where their files of the same name would be one.
    ring_on(2, "openmpi-nodes", "mpicc.openmpi", "OMPI_MCA_shmem=mmap SQUALL srun -N 2 -n 2 --overcommit");
}

#[test]
fn a_ring_of_mpich_on_two_nodes_comes_back() {
    // Both nodes are on this machine, where UCX would use shared memory.
    ring_on(2, "mpich-nodes", "mpicc.mpich", "UCX_TLS=tcp,self SQUALL srun -N 2 -n 2 --overcommit");
}

/// A connection to what is no process of the job is found, whichever node it leads from.
#[test]
fn a_connection_to_elsewhere_is_refused() {
    let Some(c) = cluster_with("outward", "", SECOND) else { return };
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    c.write("counter.sh", COUNTER);
    let open = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}; exec bash counter.sh'");
    c.script(
        "job.sh",
        &format!(
            "SQUALL srun -N 2 -n 2 --overcommit bash -c '[ $SLURM_PROCID = 0 ] && exec sleep 100; eval \"$0\"' \"{}\"",
            open.replace('"', "\\\"")
        ),
    );
    c.ok(&[&ASKS[..], &["job.sh"]].concat());
    let mut client = accepted(&server);
    c.until("it counts", || counted(&c, 5));
    c.fails(&["scontrol", "checkpoint", "vacate", "1"], "a process that is none of the job's");
    counts_on(&c);
    assert!(state(&c).starts_with("RUNNING"));
    assert!(client.write_all(b"x").is_ok(), "its connection lives on");
}

/// CRIU, the step daemons and node daemons of both nodes, and the controller are killed at random moments.
#[test]
fn kills_at_random_moments_change_no_result_on_two_nodes() {
    let Some(c) = cluster_with("random-nodes", "", SECOND) else { return };
    c.write("counter.sh", COUNTER);
    c.script("job.sh", STEP);
    change_no_result(&c, &["n1", "n2"], 10);
}
