//! Devices that only the jobs that hold them can open. Two devices of the kernel's memory driver stand for GPUs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{Cluster, has, text};

/// A cluster with two devices on each node, and the folder with their files.
struct Devices {
    cluster: Cluster,
    folder: PathBuf,
}

impl Devices {
    /// Starts the cluster. None: devices can't be made here.
    fn start(test: &str, more: &str) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("squall-devices-{}-{test}", std::process::id()));
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder).unwrap();
        for (name, minor) in [("gpu0", "7"), ("gpu1", "5")] {
            let path = folder.join(name);
            let made = Command::new("mknod").args(["-m", "666"]).arg(&path).args(["c", "1", minor]).status();
            if !made.is_ok_and(|made| made.success()) || fs::File::open(&path).is_err() {
                eprintln!("skipped: only root can make devices, where they may be used");
                return None;
            }
        }
        let gres = format!("[[gres]]\nname = \"gpu\"\nfile = \"{}/gpu[0-1]\"\n", folder.display());
        Some(Self { cluster: Cluster::start(test, &format!("{more}{gres}")), folder })
    }

    /// A script that says of each device whether it can be read.
    fn script(&self) -> String {
        let folder = self.folder.display();
        format!("for n in 0 1; do head -c1 {folder}/gpu$n > /dev/null 2>&1 && echo yes || echo no; done")
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.folder));
    }
}

#[test]
fn a_job_without_the_gpu_cant_open_it() {
    let Some(devices) = Devices::start("devices", "") else { return };
    let (cluster, script) = (&devices.cluster, devices.script());
    let open = |asked: &[&str]| {
        let all = [&["srun", "-w", "n1", "-n1"], asked, &["sh", "-c", &script]].concat();
        cluster.users_ok(&all).split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(open(&[]), ["no", "no"]);
    assert_eq!(open(&["--gres=gpu:1"]), ["yes", "no"]);
    assert_eq!(open(&["--gpus=2"]), ["yes", "yes"]);
    // Programs count the GPUs that they can open from 0. The first step runs once it is listed beside the batch script.
    let visible = "$SQUALL srun -n1 --exact --gres=gpu:1 sleep 60 & first=$!; \
                   until $SQUALL squeue -hs -o %i | grep -q '\\.0$'; do sleep 0.1; done; \
                   $SQUALL srun -n1 --exact --gres=gpu:1 sh -c 'echo $CUDA_VISIBLE_DEVICES of $SLURM_STEP_GPUS'; kill $first";
    let visible = visible.replace("$SQUALL", env!("CARGO_BIN_EXE_squall"));
    cluster.users_ok(&["sbatch", "-W", "-w", "n1", "-n2", "--gres=gpu:2", "-o", "visible", "--wrap", &visible]);
    assert!(cluster.read("visible").contains("0 of 1\n"), "{}", cluster.read("visible"));
    // A job without devices, beside one that has them; and steps with a part of the job's.
    let squall = env!("CARGO_BIN_EXE_squall");
    let part =
        format!("{script}; {squall} srun --gres=gpu:1 sh -c '{script}'; {squall} srun --gres=none sh -c '{script}'");
    let held = cluster.users_ok(&["sbatch", "-W", "-w", "n1", "-n1", "--gres=gpu:2", "-o", "held", "--wrap", &part]);
    assert!(held.starts_with("Submitted"), "{held}");
    let said = cluster.read("held");
    assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["yes", "yes", "yes", "no", "no", "no"], "{said}");
    cluster.users_ok(&["sbatch", "-W", "-w", "n1", "-n1", "-o", "without", "--wrap", &script]);
    assert_eq!(cluster.read("without").split_whitespace().collect::<Vec<_>>(), ["no", "no"]);
}

/// A node that finds its GPUs, with folders that are mounted over those of the kernel for its daemon only.
#[test]
fn a_node_finds_its_gpus() {
    if !rustix::process::getuid().is_root() || !has("unshare") || !fs::exists("/proc/driver").unwrap() {
        eprintln!("skipped: only root can mount");
        return;
    }
    let cluster = Cluster::start("found", "");
    cluster.ok(&["down"]);
    let config = "auto_detect = \"nvidia\"\n[[nodes]]\nname = \"g1\"\ncpus = 4\nforce = true\n\
                  [[nodes]]\nname = \"g2\"\ncpus = 4\nforce = true\ngres = \"gpu:v100:1\"\n\
                  [[nodes]]\nname = \"g3\"\ngres = \"gpu:3\"\n";
    fs::remove_dir_all(cluster.path("state")).unwrap();
    fs::write(cluster.path("squall.toml"), config).unwrap();
    let gpus = "/proc/driver/nvidia/gpus";
    let one = |minor: u32| {
        let (folder, model) = (format!("{gpus}/0000:0{minor}:00.0"), "Model: Tesla V100\\nDevice Minor: ");
        format!("mkdir -p {folder}; printf '{model}{minor}\\n' > {folder}/information; ")
    };
    let (squall, toml) = (env!("CARGO_BIN_EXE_squall"), cluster.path("squall.toml"));
    let script =
        format!("mount -t tmpfs none /proc/driver && {{ {}{}}} && {squall} up --config {toml}", one(0), one(1));
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    let out = cluster.prepared(command, &[]).output().unwrap();
    assert!(out.status.success(), "{}", text(&out));
    let gres = cluster.ok(&["sinfo", "-h", "-N", "-o", "%N %G"]);
    assert_eq!(gres, "g1 gpu:tesla_v100:2\ng2 gpu:v100:1\ng3 gpu:tesla_v100:2,gpu:1");
    let reason = "Reason=Low gres/gpu count (reported:2 < configured:3)";
    assert!(cluster.ok(&["scontrol", "show", "node", "g3"]).contains(reason), "{gres}");
    let shown = cluster.users_ok(&["srun", "-w", "g1", "-n1", "--gpus=2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]);
    assert_eq!(shown, "0,1");
}

#[test]
fn devices_are_open_to_all_where_the_site_says_so() {
    let Some(devices) = Devices::start("devices-off", "constrain_devices = false\n") else { return };
    let script = devices.script();
    assert_eq!(devices.cluster.users_ok(&["srun", "-n1", "sh", "-c", &script]).matches("yes").count(), 2);
}
