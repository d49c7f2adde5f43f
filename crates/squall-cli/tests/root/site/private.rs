//! Folders that each job has for itself.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use squall_model::job::Digest;

use super::Cluster;

/// Starts a cluster with private folders, outside of `/tmp`. None: only root can.
fn cluster(test: &str) -> Option<Cluster> {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root can mount");
        return None;
    }
    let base = format!("/var/tmp/squall-private-{}-{test}", std::process::id());
    Some(Cluster::start_in("/var/tmp".as_ref(), test, &format!("private_tmp = \"{base}\"")))
}

/// The folder of the jobs of node n1 in this one, which anybody on the node may know.
fn jobs(base: &str, test: &str) -> String {
    let state = format!("/var/tmp/squall-site-{}-{test}/state", std::process::id());
    format!("{base}/squall-jobs-{}-n1", &Digest::of(state.as_bytes()).to_string()[..16])
}

/// Folders of jobs that are left, in the private folders' base and in memory.
fn left(test: &str) -> Vec<String> {
    let base = format!("/var/tmp/squall-private-{}-{test}", std::process::id());
    let nodes = fs::read_dir(base).into_iter().chain(fs::read_dir("/dev/shm")).flatten().flatten();
    // Guards of other tests' node fences have marks of jobs.
    let is_private = |name: &str| name.starts_with("squall-") && !name.contains(".fence");
    let nodes = nodes.filter(|node| is_private(&node.file_name().to_string_lossy()) && node.path().is_dir());
    let jobs = nodes.flat_map(|node| fs::read_dir(node.path()).into_iter().flatten().flatten());
    // Others may have folders in memory meanwhile, but none that is named as a job's.
    let names = jobs.map(|job| job.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.split_once('.').is_some_and(|(job, _)| job.parse::<u32>().is_ok())).collect()
}

#[test]
fn jobs_do_not_see_each_others_tmp_and_steps_of_a_job_do() {
    let Some(cluster) = cluster("seen") else { return };
    fs::write("/tmp/squall-of-the-node", "").unwrap();
    // Jobs do not see a program in the node's /tmp.
    let squall = cluster.shared("squall");
    fs::copy(env!("CARGO_BIN_EXE_squall"), &squall).unwrap();
    let first = format!(
        "ls -a /tmp /dev/shm; echo one > /tmp/mine; echo two > /dev/shm/mine; stat -c %a /tmp; \
         {squall} sbcast out1 /tmp/brought && {squall} srun cat /tmp/mine /dev/shm/mine /tmp/brought; \
         touch ready; while [ ! -e go ]; do sleep 0.1; done"
    );
    cluster.users_ok(&["sbatch", "-w", "n1", "-n1", "-o", "out1", "--wrap", &first]);
    cluster.until("the first job has written", || cluster.folder.join("shared/ready").exists());
    let second = cluster.users_ok(&[
        "srun",
        "-w",
        "n1",
        "-n1",
        "sh",
        "-c",
        "ls /tmp /dev/shm; ls /var/tmp/squall-private-*/*/* 2>&1 | head -1",
    ]);
    assert!(!second.contains("mine") && !second.contains("squall-of-the-node"), "{second}");
    fs::write(cluster.shared("go"), "").unwrap();
    cluster.until("the jobs have ended", || cluster.ok(&["squeue", "-h"]).is_empty());
    let said = cluster.read("out1");
    assert!(said.contains("\n1777\n") && said.ends_with("one\ntwo\n") || said.contains("one\ntwo\n"), "{said}");
    assert!(!said.contains("squall-of-the-node"), "{said}");
    fs::remove_file("/tmp/squall-of-the-node").unwrap();
    cluster.until("nothing is left", || left("seen").is_empty());
    assert!(!fs::exists("/tmp/mine").unwrap() && !fs::exists("/tmp/brought").unwrap());
    drop(fs::remove_dir_all(format!("/var/tmp/squall-private-{}-seen", std::process::id())));
}

/// attack-trial.md A2: root made, chmoded and mounted by paths below a folder that the job's user owned.
#[test]
fn a2_a_jobs_user_puts_nothing_in_the_place_of_a_private_folder() {
    let Some(cluster) = cluster("swapped") else { return };
    let closed = cluster.path("closed");
    fs::create_dir_all(format!("{closed}/inner")).unwrap();
    fs::write(format!("{closed}/inner/secret"), "roots").unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(format!("{closed}/inner"), fs::Permissions::from_mode(0o755)).unwrap();
    let own = format!(
        "{}/$SLURM_JOB_ID.1",
        jobs(&format!("/var/tmp/squall-private-{}-swapped", std::process::id()), "swapped")
    );
    let squall = cluster.shared("squall");
    fs::copy(env!("CARGO_BIN_EXE_squall"), &squall).unwrap();
    let attack = format!(
        "own={own}; ls $own; mv $own/tmp $own/away; ln -s {closed}/inner $own/tmp; ln -sfn {closed}/inner /tmp/link; \
         {squall} srun --overlap sh -c 'cat /tmp/secret /dev/shm/secret; id -u; stat -c %a /tmp; stat -c %u /tmp'; \
         {squall} sbcast out2 /tmp/link/secret; {squall} sbcast out2 /tmp/brought; cat /tmp/brought"
    );
    fs::write(cluster.shared("out2"), "brought\n").unwrap();
    cluster.users_ok(&["sbatch", "-W", "-w", "n1", "-n1", "-o", "out", "--wrap", &attack]);
    let said = cluster.read("out");
    assert!(said.contains("\n1\n1777\n0\n") && said.ends_with("brought\n") && !said.contains("roots"), "{said}");
    assert!(said.contains("ln: failed to create symbolic link"), "{said}");
    let mode = |path: &str| fs::metadata(format!("{closed}/{path}")).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("inner"), fs::read(format!("{closed}/inner/secret")).unwrap().as_slice()), (0o755, &b"roots"[..]));
    cluster.until("nothing is left", || left("swapped").is_empty());
    drop(fs::remove_dir_all(format!("/var/tmp/squall-private-{}-swapped", std::process::id())));
}

/// A folder that a user has made under the name of root's, in a folder where all may write, holds no node up.
#[test]
fn a2_a_user_takes_no_name_of_a_folder_of_roots() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let taken = jobs("/dev/shm", "taken");
    fs::create_dir_all(format!("{taken}/x")).unwrap();
    for path in [&taken, &format!("{taken}/x")] {
        std::os::unix::fs::chown(path, Some(super::USER), Some(super::USER)).unwrap();
    }
    let base = format!("/var/tmp/squall-private-{}-taken", std::process::id());
    let cluster = Cluster::start_in("/var/tmp".as_ref(), "taken", &format!("private_tmp = \"{base}\""));
    cluster.users_ok(&["srun", "-w", "n1", "touch", "/dev/shm/x"]);
    drop(fs::remove_dir_all(&taken));
    drop(fs::remove_dir_all(base));
}

#[test]
fn what_jobs_have_left_is_removed_after_a_daemon_was_killed() {
    let Some(cluster) = cluster("swept") else { return };
    let base = format!("/var/tmp/squall-private-{}-swept", std::process::id());
    let id = cluster.users_ok(&[
        "sbatch",
        "--parsable",
        "-w",
        "n1",
        "-o",
        "out",
        "--wrap",
        "touch /tmp/x ready; while [ ! -e go ]; do sleep 0.1; done; ls /tmp",
    ]);
    cluster.until("the job runs", || cluster.folder.join("shared/ready").exists());
    let node = fs::read_dir(&base).unwrap().flatten().find(|node| node.file_name().to_string_lossy().ends_with("-n1"));
    let node = node.unwrap().path();
    assert!(node.join(format!("{id}.1/tmp/x")).exists(), "{node:?}");
    // What a job of an earlier life has left, of which no record is left.
    fs::create_dir_all(node.join("999.1/tmp/deep")).unwrap();
    let pid = fs::read_to_string(cluster.path("state/run/node-n1.pid")).unwrap();
    assert!(Command::new("kill").args(["-9", pid.trim()]).status().unwrap().success());
    cluster.ok(&["up"]);
    cluster.until("what is left is removed", || !node.join("999.1").exists());
    // The job goes on with its folders, which go with it.
    assert!(node.join(format!("{id}.1/tmp/x")).exists());
    fs::write(cluster.shared("go"), "").unwrap();
    cluster.until("the job has ended", || cluster.ok(&["squeue", "-h"]).is_empty());
    assert_eq!(cluster.read("out"), "x\n");
    cluster.until("nothing is left", || left("swept").is_empty());
    drop(fs::remove_dir_all(base));
}

#[test]
fn a_state_folder_that_jobs_would_not_see_is_refused() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("squall-hidden-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let config = folder.join("c.toml");
    fs::write(&config, "private_tmp = \"/var/tmp/squall-hidden\"\n").unwrap();
    let state = folder.join("state");
    let run = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_squall")).args(args).env("SQUALL_STATE", &state).output().unwrap()
    };
    let out = run(&["up", "--config", &config.display().to_string()]);
    assert!(!out.status.success(), "{}", super::text(&out));
    drop(run(&["down"]));
    let log = super::text(&out);
    assert!(log.contains("which each job has for itself"), "{log}");
    drop(fs::remove_dir_all(&folder));
}
