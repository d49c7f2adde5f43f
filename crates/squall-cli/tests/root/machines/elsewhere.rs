//! A machine loses its power, and an MPI job that ran there and on another one goes on from its checkpoint, elsewhere.

use std::collections::HashMap;
use std::process::{Command, Stdio};

use crate::criu::criu;
use crate::machines::namespaces::ip;
use crate::machines::site::Site;

/// Machines: that of the controller with n1, n2 and n3.
const MACHINES: [&str; 3] = ["head", "n2", "n3"];

/// A switch in a namespace of its own, and a namespace for each machine; removed at the end.
struct Switch {
    names: Vec<String>,
}

impl Switch {
    /// None: that can't be done here.
    fn new() -> Option<Self> {
        let id = std::process::id();
        let names = std::iter::once("s".to_owned()).chain((1..=MACHINES.len()).map(|n| n.to_string()));
        let switch = Self { names: names.map(|name| format!("sqe{id}{name}")).collect() };
        let (hub, machines) = switch.names.split_first()?;
        let made = ip(&["netns", "add", hub])
            && ip(&["-n", hub, "link", "add", "br0", "type", "bridge"])
            && ip(&["-n", hub, "link", "set", "br0", "up"])
            && Command::new("nsenter").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
        let connected = |(n, name): (usize, &String)| {
            let (port, address) = (format!("p{n}"), format!("10.94.0.{}/24", n + 1));
            ip(&["netns", "add", name])
                && ip(&["-n", name, "link", "add", "v0", "type", "veth", "peer", "name", &port, "netns", hub])
                && ip(&["-n", hub, "link", "set", &port, "master", "br0", "up"])
                && ip(&["-n", name, "link", "set", "lo", "up"])
                && ip(&["-n", name, "addr", "add", &address, "dev", "v0"])
                && ip(&["-n", name, "link", "set", "v0", "up"])
        };
        (made && machines.iter().enumerate().all(connected)).then_some(switch)
    }

    fn of(&self, machine: &str) -> &str {
        let at = MACHINES.iter().position(|one| *one == machine).unwrap();
        &self.names[at + 1]
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&["netns", "del", name]);
        }
    }
}

/// Passes a number round, which each rank increases; the first rank prints it.
const RING: &str = include_str!("../../e2e/checkpoint/ring.c");

#[test]
fn an_mpi_job_goes_on_elsewhere_when_a_machine_loses_its_power() {
    let Some(criu) = criu() else { return };
    let Some(switch) = Switch::new() else { return eprintln!("skipped: no namespaces, or no bridge") };
    if Command::new("mpicc.openmpi").arg("--version").stdout(Stdio::null()).status().is_err() {
        return eprintln!("skipped: mpicc.openmpi is not installed");
    }
    let folder = std::env::temp_dir().join(format!("squall-elsewhere-{}", std::process::id()));
    let config = format!(
        "constrain_cores = false\ncheckpoint_dir = \"{}\"\ncheckpoint_shared = true\ncriu = \"{}\"\n\
         node_timeout_s = 3\nnode_lost_s = 3\nnode_lost_action = \"requeue\"\n",
        folder.display(),
        criu.display()
    );
    let namespaces: HashMap<_, _> =
        MACHINES.iter().map(|machine| ((*machine).to_owned(), switch.of(machine).to_owned())).collect();
    let mut site = Site::start_at("elsewhere", &config, "n[2-3]", "10.94.0.1:7011", namespaces);
    for node in &MACHINES[1..] {
        site.join(node);
    }
    site.until_up(&["n1", "n2", "n3"]);
    std::fs::write(site.path("ring.c"), RING).unwrap();
    let ring = site.path("ring");
    assert!(Command::new("mpicc.openmpi").args([&site.path("ring.c"), "-o", &ring]).status().unwrap().success());
    let (out, squall) = (site.path("out"), env!("CARGO_BIN_EXE_squall"));
    // All of these machines have the same shared memory.
    let script = format!("export OMPI_MCA_shmem=mmap; {squall} srun --ntasks-per-node=2 {ring}; echo ended $?");
    let asks =
        ["sbatch", "--parsable", "--requeue", "--checkpoint=signal", "-N", "2", "--ntasks-per-node=2", "-o", &out];
    let job = site.ok(&[&asks[..], &["--wrap", &script]].concat());
    let lines = || std::fs::read_to_string(&out).unwrap_or_default().lines().count();
    let nodes = || site.ok(&["squeue", "-h", "-t", "running", "-o", "%N", "-j", &job]);
    site.until("it counts", || lines() > 10);
    assert_eq!(nodes(), "n[1-2]");
    site.ok(&["scontrol", "checkpoint", "create", &job]);
    let there = lines();
    site.until("it counts on", || lines() > there + 5);
    assert!(ip(&["-n", switch.of("n2"), "link", "set", "v0", "down"]));
    site.end_processes_of("n2");
    site.until("it runs elsewhere", || nodes() == "n[1,3]");
    // Once more, now from there.
    let shown = || site.ok(&["scontrol", "show", "job", &job]);
    site.until("it is checkpointed there", || {
        let shown = shown();
        assert!(!shown.contains("RestoreFailed="), "{shown}");
        site.command("head", &["scontrol", "checkpoint", "create", &job]).output().unwrap().status.success()
    });
    assert!(shown().contains("Checkpoint=2 "), "{}", shown());
    site.ok(&["scontrol", "checkpoint", "restart", &job]);
    assert_eq!(site.end_of(&job), "COMPLETED|0:0");
    let mut expected: Vec<String> = (1..=100).map(|n| (4 * n).to_string()).collect();
    expected.push("ended 0".to_owned());
    let said = std::fs::read_to_string(&out).unwrap();
    assert_eq!(said.lines().collect::<Vec<_>>(), expected, "{}", shown());
    site.until("its checkpoints are gone", || std::fs::read_dir(&folder).unwrap().next().is_none());
    std::fs::remove_dir(folder).unwrap();
    site.stop();
}
