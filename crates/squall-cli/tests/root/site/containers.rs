//! Steps and scripts in OCI containers.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Cluster, done, has, text};

const HELLO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/mpi/hello.c");

/// Folders of this machine's Debian packages, which are the bundle's file system.
const SYSTEM: [&str; 5] = ["/usr", "/bin", "/lib", "/lib64", "/etc"];

/// Makes a bundle of this machine's packages in the cluster's shared folder. None: `crun` is not installed.
pub(super) fn bundle(cluster: &Cluster) -> Option<String> {
    let bundle = cluster.folder.join("bundle");
    for folder in ["proc", "dev", "sys", "tmp", "run", "work"].into_iter().chain(SYSTEM.map(|path| &path[1..])) {
        fs::create_dir_all(bundle.join("rootfs").join(folder)).unwrap();
    }
    if !has("crun") || !Command::new("crun").arg("spec").current_dir(&bundle).status().is_ok_and(|made| made.success())
    {
        return None;
    }
    let path = bundle.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let mounts = config["mounts"].as_array_mut().unwrap();
    mounts.extend(
        SYSTEM.map(|path| json!({"destination": path, "type": "bind", "source": path, "options": ["rbind", "ro"]})),
    );
    config["process"]["env"].as_array_mut().unwrap().push(json!("OF_BUNDLE=yes"));
    fs::write(&path, config.to_string()).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    Some(bundle.display().to_string())
}

/// Returns the runtime that works on this machine: crun can't with both versions of cgroups.
pub(super) fn runtime() -> &'static str {
    if fs::read("/sys/fs/cgroup/unified/cgroup.controllers").is_ok_and(|has| !has.is_empty()) { "runc" } else { "crun" }
}

/// Runs a command as a user whose tasks are in containers. Two things of others happen now and then on a busy machine, and
/// the command is given again. runc 1.1 makes a sealed copy of itself first, which the kernel may refuse; nothing of the
/// container has run then. And ranks of MPICH 4.0 that reach each other by UCX over TCP, as between containers, may never
/// leave `MPI_Finalize`: one waits there for the other to go on in UCX, which waits for it in PMI's barrier.
pub(super) fn contained(cluster: &Cluster, args: &[&str]) -> Output {
    let mut tries = 0;
    loop {
        let mut child = cluster.users(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while child.try_wait().unwrap().is_none() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        let hangs = child.try_wait().unwrap().is_none();
        if hangs {
            cluster.users_ok(&["scancel", "--me"]);
        }
        let out = child.wait_with_output().unwrap();
        tries += 1;
        if tries == 5 || !(hangs || text(&out).contains("could not ensure we are a cloned binary")) {
            return out;
        }
    }
}

#[test]
fn steps_and_scripts_run_in_containers_and_ranks_of_mpi_meet() {
    if !has(runtime()) {
        return;
    }
    let cluster = Cluster::start("oci", &format!("container_runtime = \"{}\"", runtime()));
    let Some(bundle) = bundle(&cluster) else { return };
    let container = format!("--container={bundle}");
    // Its own root, name and variables; streams and the exit status are as without a container.
    let script =
        "echo $OF_BUNDLE $SLURM_PROCID $SLURM_CONTAINER $(hostname) $(ls -d /work); cat; echo sorry >&2; exit 7";
    let step = contained(&cluster, &["srun", "-w", "n2", &container, "sh", "-c", script]);
    assert_eq!(step.status.code(), Some(7), "{}", text(&step));
    assert_eq!(String::from_utf8_lossy(&step.stdout), format!("yes 0 {bundle} n2 /work\n"));
    assert!(String::from_utf8_lossy(&step.stderr).starts_with("sorry\n"), "{}", text(&step));
    // Folders that it is given, and the directory to start in.
    let mounts = format!("--container-mounts={}:/work", cluster.path("shared"));
    let step = ["srun", &container, &mounts, "--container-workdir=/work", "sh", "-c", "pwd > where"];
    done(&step, &contained(&cluster, &step));
    assert_eq!(cluster.read("where"), "/work\n");
    options_of_pyxis(&cluster, &container);
    signals(&cluster, &container);
    // A batch script: its container sees the job's file.
    let made = cluster.users_ok(&[
        "sbatch",
        "--wait",
        "-o",
        "out",
        &container,
        "--wrap",
        "echo $0; ls -d /work; echo $SLURM_JOB_ID",
    ]);
    let id = made.rsplit(' ').next().unwrap();
    assert_eq!(cluster.read("out"), format!("/dev/.squall-program\n/work\n{id}\n"));
    assert_eq!(cluster.ok(&["squeue", "-h", "-t", "all", "-O", "Container:200", "-j", id]), bundle);
    for library in ["openmpi", "mpich"] {
        ranks(&cluster, &container, library);
    }
    let steps = cluster.path("state/node/n1/steps");
    cluster.until("nothing is left of them", || {
        fs::read_dir(&steps).unwrap().flatten().all(|step| !step.path().join("own").exists())
    });
}

// faults.md P1: what pyxis' options ask for, in a step and in a script.
fn options_of_pyxis(cluster: &Cluster, container: &str) {
    let told = |options: &[&str], script: &str| {
        let step = [&["srun", container], options, &["sh", "-c", script]].concat();
        done(&step, &contained(cluster, &step))
    };
    assert_eq!(told(&["--container-remap-root"], "id -u"), "0");
    let mounts = "--container-mounts=./:/work:ro,tmpfs:/run";
    let script = "touch /run/a && ls /run && ! touch /work/denied 2>/dev/null";
    assert_eq!(told(&[mounts], script), "a");
    let refused = cluster.users(&["srun", container, "--container-save=/x", "true"]).output().unwrap();
    assert!(text(&refused).contains("--container-save: a bundle is a folder"), "{}", text(&refused));
    let file = cluster.shared("pyxis.sh");
    let lines = format!(
        "#!/bin/sh\n#SBATCH {container}\n#SBATCH --container-remap-root --no-container-mount-home\n#SBATCH -o pyxis.out\nid -u\n"
    );
    fs::write(&file, lines).unwrap();
    cluster.users_ok(&["sbatch", "--wait", &file]);
    assert_eq!(cluster.read("pyxis.out"), "0\n");
}

fn signals(cluster: &Cluster, container: &str) {
    let script = "trap 'echo heard; exit 3' USR1; echo ready > ready; while :; do sleep 0.1; done";
    let mounts = format!("--container-mounts={}:/work", cluster.path("shared"));
    let step = ["srun", container, &mounts, "--container-workdir=/work", "-J", "signals", "sh", "-c", script];
    let step = cluster.users(&step);
    let step = { step }.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    cluster.until("the container runs", || cluster.read("ready") == "ready\n");
    cluster.users_ok(&["scancel", "-s", "USR1", "-n", "signals"]);
    let ended = step.wait_with_output().unwrap();
    assert_eq!(
        (ended.status.code(), String::from_utf8_lossy(&ended.stdout).trim()),
        (Some(3), "heard"),
        "{}",
        text(&ended)
    );
}

fn ranks(cluster: &Cluster, container: &str, library: &str) {
    let compiler = format!("mpicc.{library}");
    if !has(&compiler) {
        return;
    }
    let program = cluster.shared(library);
    assert!(Command::new(&compiler).args([HELLO, "-o", &program]).status().unwrap().success());
    let mounts = format!("--container-mounts={}:/work", cluster.path("shared"));
    let step = ["srun", "-N2", "-n2", container, &mounts, &format!("/work/{library}")];
    let said = done(&step, &contained(cluster, &step));
    let want = (0..2).map(|rank| format!("{rank} of 2 on n{} shared 1 sum 1 from {}", rank + 1, 1 - rank));
    assert_eq!(said.lines().map(str::to_owned).collect::<BTreeSet<_>>(), want.collect(), "{library}");
}

#[test]
fn what_keeps_a_container_from_running_is_said() {
    let cluster = Cluster::start("unable", "container_runtime = \"/nowhere/crun\"");
    let fails = |args: &[&str], says: &str| {
        let out = cluster.users(args).output().unwrap();
        assert!(!out.status.success() && text(&out).contains(says), "{args:?} should say `{says}`: {}", text(&out));
    };
    fails(&["srun", "--container=/b", "true"], "container: node n1 has no /nowhere/crun: install it there");
    fails(&["srun", "--container-workdir=/b", "true"], "--container-workdir needs --container or --container-image");
    if !["enroot", "apptainer", "singularity"].iter().any(|runtime| has(runtime)) {
        fails(&["srun", "--container-image=ubuntu", "true"], "has neither enroot nor apptainer");
    }
    let none = Cluster::start("none", "container_runtime = \"none\"");
    let out = none.users(&["sbatch", "--container=/b", "--wrap", "true"]).output().unwrap();
    assert!(text(&out).contains("container_runtime = \"none\""), "{}", text(&out));
}
