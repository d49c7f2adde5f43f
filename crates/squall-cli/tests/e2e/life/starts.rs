//! Starts of a cluster: several at once, called off, on machines that have joined; and the end of one whose folder is
//! removed.

use std::path::Path;
use std::process::{Command, Output};

use super::{is_zombie, until};
use crate::harness::{Cluster, text};

/// Returns the processes with this state folder in their command line.
fn processes_of(state: &Path) -> Vec<String> {
    let state = state.display().to_string();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name.parse::<u32>().is_ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&state) && !is_zombie(pid)
    })
    .collect()
}

/// faults.md R8: of five `up` at once two to five failed, and `down` left a loser that started later.
#[test]
fn r8_up_may_be_called_five_times_at_once_and_down_calls_all_off() {
    let c = Cluster::new("life", "at-once");
    std::fs::create_dir_all(&c.dir).unwrap();
    let up = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
        command.args(["up", "--nodes", "2"]).env("SQUALL_STATE", c.state()).stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    let ups: Vec<_> = (0..5).map(|_| up()).collect();
    let said: Vec<Output> = ups.into_iter().map(|up| up.wait_with_output().unwrap()).collect();
    assert!(said.iter().all(|out| out.status.success()), "{:?}", said.iter().map(text).collect::<Vec<_>>());
    let starts = |daemon: &str| {
        let log = std::fs::read_to_string(c.state().join(format!("log/{daemon}.log"))).unwrap();
        log.lines().filter(|line| line.contains("ready") || line.contains("running already")).count()
    };
    assert_eq!(starts("controller"), 1, "one controller was started");
    assert_eq!(c.ok(&["sinfo", "-h", "-N", "-o", "%N"]).split_whitespace().collect::<Vec<_>>(), ["n1", "n2"]);
    c.ok(&["down"]);
    // All five have begun when `down` is called: one has the turn, the others wait for it.
    let mut ups: Vec<_> = (0..5).map(|_| up()).collect();
    let lock = c.state().join("run/up.lock");
    let has_begun = |pid: u32| {
        let mut open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.any(|entry| std::fs::read_link(entry.path()).is_ok_and(|path| path == lock))
    };
    until("all begin", || ups.iter_mut().all(|up| has_begun(up.id()) || up.try_wait().unwrap().is_some()));
    c.ok(&["down"]);
    for up in ups {
        up.wait_with_output().unwrap();
    }
    until("all that was started has ended", || processes_of(&c.state()).is_empty());
}

/// faults.md P15: daemons of a cluster whose folder was removed ran for ever.
#[test]
fn p15_daemons_and_jobs_of_a_removed_state_folder_end() {
    let c = Cluster::new("life", "removed");
    std::fs::create_dir_all(&c.dir).unwrap();
    let (config, pid) = (c.dir.join("c.toml"), c.dir.join("pid"));
    std::fs::write(&config, "kill_wait_s = 1\n[[nodes]]\nname = \"n[1-2]\"\ncpus = 1\nforce = true\n").unwrap();
    c.ok(&["up", "--keep", "--config", config.to_str().unwrap()]);
    let script = format!("trap '' TERM; echo $$ > {}; sleep 1000", pid.display());
    c.ok(&["sbatch", "-o", "/dev/null", "--wrap", &script]);
    until("the job runs", || std::fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')));
    let (pid, log) = (std::fs::read_to_string(&pid).unwrap(), c.dir.join("controller.log"));
    std::fs::hard_link(c.state().join("log/controller.log"), &log).unwrap();
    assert!(processes_of(&c.state()).len() >= 4);
    until("it is removed", || std::fs::remove_dir_all(c.state()).is_ok() || !c.state().exists());
    until("all daemons end", || processes_of(&c.state()).is_empty());
    until("the job ends", || !Path::new(&format!("/proc/{}", pid.trim())).exists() || is_zombie(pid.trim()));
    let said = std::fs::read_to_string(log).unwrap();
    assert!(said.contains("was removed"), "{said}");
    assert!(!c.state().join("run").exists(), "nobody has made it again");
}

/// faults.md P14.
#[test]
fn p14_a_configuration_of_slurm_is_known_as_one() {
    let c = Cluster::new("life", "slurms");
    std::fs::create_dir_all(&c.dir).unwrap();
    let config = c.dir.join("slurm.conf");
    std::fs::write(&config, "ClusterName=old\nSlurmctldHost=head\nNodeName=n[1-4] CPUs=8\nPartitionName=p Nodes=ALL\n")
        .unwrap();
    c.fails(&["up", "--config", config.to_str().unwrap()], "it is a slurm.conf: `squall import ");
    assert!(!c.state().exists(), "nothing was made");
}

/// faults.md R5: a machine that had joined sent the cluster's mails and served its dashboard, too.
#[test]
fn r5_a_machine_that_has_joined_starts_its_own_daemon_only() {
    let c = Cluster::new("life", "joined");
    let place = squall_files::place::Place::at(&c.state()).unwrap();
    squall_host::life::make_folders(&place).unwrap();
    std::fs::create_dir(place.keys()).unwrap();
    std::fs::write(place.joined(), format!("far 127.0.0.1:1 {} login\n", "07".repeat(32))).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = format!("mail_prog = \"/bin/true\"\n[rest]\nlisten = \"127.0.0.1:{port}\"\n");
    std::fs::write(c.state().join("squall.toml"), text).unwrap();
    // Its daemon starts; the controller is not there, and that is named.
    c.fails(&["up"], "controller: FAILED: the one at 127.0.0.1:1 does not answer");
    for daemon in ["rest", "mail"] {
        assert!(!c.state().join(format!("log/{daemon}.log")).exists(), "{daemon}");
        c.fails(&[daemon], "this machine has joined the cluster at 127.0.0.1:1");
    }
    c.fails(&["web"], "this machine has joined the cluster at 127.0.0.1:1");
}
