//! Machines that leave the cluster and come back: a removed node whose job runs on, one that an operator creates, and one
//! that lost its disk.

use std::fs;

use crate::machines::site::Site;

/// A job on a node that runs until the test lets it go.
fn held(site: &Site, node: &str) -> String {
    let (go, ran) = (site.path("go"), site.path("ran"));
    drop(fs::remove_file(&go));
    drop(fs::remove_file(&ran));
    let script = format!("echo x >> {ran}; while [ ! -e {go} ]; do sleep 0.05; done");
    let job = site.ok(&["sbatch", "--parsable", "-w", node, "-o", "/dev/null", "--wrap", &script]);
    site.until("the job runs", || fs::exists(&ran).unwrap());
    job
}

fn let_go(site: &Site) {
    fs::write(site.path("go"), "").unwrap();
}

fn reconfigure(site: &Site, from: &str, to: &str) {
    let path = site.path("head/squall.toml");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(&path, text.replace(from, to)).unwrap();
    site.ok(&["scontrol", "reconfigure"]);
}

fn nodes(site: &Site) -> String {
    let said = site.ok(&["sinfo", "-h", "-N", "-o", "%N"]);
    said.split_whitespace().collect::<Vec<_>>().join(",")
}

fn until_gone(site: &Site, node: &str) {
    site.until(&format!("{node} is gone"), || {
        let key = fs::exists(site.path(&format!("head/keys/nodes/{node}"))).unwrap();
        !key && site.command("head", &["scontrol", "show", "node", node]).output().unwrap().status.code() == Some(1)
    });
}

#[test]
fn a_removed_node_finishes_its_job_and_is_gone() {
    let mut site = Site::start("leaves", "", "n[2-3]");
    for name in ["n2", "n3"] {
        site.join(name);
    }
    site.until_up(&["n1", "n2", "n3"]);
    let job = held(&site, "n2");
    let waits = site.ok(&["sbatch", "--parsable", "--exclusive", "-w", "n2", "-o", "/dev/null", "--wrap", "true"]);
    let refused = site.fails(&["scontrol", "delete", "nodename=n2"]);
    assert!(refused.contains("scontrol reconfigure"), "{refused}");
    reconfigure(&site, "\"n[2-3]\"", "\"n3\"");
    assert_eq!(nodes(&site), "n1,n3", "no partition has it");
    let shown = site.ok(&["scontrol", "show", "node", "n2"]);
    assert!(shown.contains("DRAIN") && shown.contains("Removed: its jobs run to their end"), "{shown}");
    let refused = site.fails(&["sbatch", "-w", "n2", "--wrap", "true"]);
    assert!(refused.contains("Requested node configuration is not available"), "{refused}");
    site.controller_dies();
    site.until("n2 is back with its job", || {
        let said = site.ok(&["scontrol", "show", "node", "n2"]);
        said.contains("State=MIXED+DRAIN ") && said.contains("Version=")
    });
    assert_eq!(site.ok(&["squeue", "-h", "-o", "%T", "-j", &job]), "RUNNING");
    let_go(&site);
    assert_eq!(site.end_of(&job), "COMPLETED|0:0");
    assert_eq!(site.read("ran"), "x\n", "it ran once");
    until_gone(&site, "n2");
    assert!(site.ok(&["squeue", "-h", "-o", "%T %r", "-j", &waits]).starts_with("PENDING ReqNodeNotAvail"));
    // Its daemon has ended, and can't come back, neither now nor with another controller.
    site.until_ended("n2");
    assert!(site.log("n2").contains("n2 was removed from the cluster"), "{}", site.log("n2"));
    site.controller_dies();
    let refused = site.join_again("n2");
    assert!(refused.contains("does not know this machine as node n2"), "{refused}");
    assert!(!site.ok(&["scontrol", "show", "node"]).contains("NodeName=n2 "));
    // The name is taken again.
    reconfigure(&site, "\"n3\"", "\"n[2-3]\"");
    site.join("n2");
    assert_eq!(site.end_of(&waits), "COMPLETED|0:0");
    site.stop();
}

#[test]
fn an_operator_creates_and_deletes_nodes() {
    let mut site = Site::start("created", "open = false\n", "n2");
    site.ok(&["scontrol", "create", "nodename=f[1-2]", "CPUs=1", "RealMemory=100", "Features=big", "State=FUTURE"]);
    assert!(site.fails(&["scontrol", "create", "nodename=f2", "CPUs=4"]).contains("exists already"));
    assert!(site.fails(&["scontrol", "create", "nodename=f3", "Boards=4"]).contains("Boards"));
    assert_eq!(nodes(&site), "n1,n2", "they are FUTURE");
    assert!(site.ok(&["sinfo", "-F", "-h", "-N", "-o", "%N %T"]).contains("f1 future"));
    site.controller_dies();
    site.join("f1");
    site.until("f1 has joined", || nodes(&site) == "f1,n1,n2");
    site.until_up(&["f1"]);
    let job = held(&site, "f1");
    site.ok(&["scontrol", "delete", "nodename=f[1-2]"]);
    site.controller_dies();
    let_go(&site);
    assert_eq!(site.end_of(&job), "COMPLETED|0:0");
    until_gone(&site, "f1");
    assert_eq!(nodes(&site), "n1,n2");
    site.stop();
}

/// A machine that keeps nothing comes back under its own name, with a token that all nodes share.
#[test]
fn a_machine_that_lost_its_disk_comes_back_by_itself() {
    let mut site = Site::start("stateless", "", "n[2-3]");
    let line = site.ok(&["token", "--nodes", "n[2-3]", "--reusable", "--valid", "1-0"]);
    let args: Vec<String> = line.split_whitespace().skip(1).map(str::to_owned).collect();
    let as_node = |name: &str| [&args[..], &["--name".to_owned(), name.to_owned()]].concat();
    for name in ["n2", "n3"] {
        site.spawn(name, &as_node(name).iter().map(String::as_str).collect::<Vec<_>>());
    }
    site.until_up(&["n2", "n3"]);
    let key = |site: &Site| site.read("head/keys/nodes/n2");
    let (job, first) = (held(&site, "n2"), key(&site));
    // Another machine can't take the name while n2 is there, and waits.
    let thief = as_node("n2");
    site.spawn("n2-thief", &thief.iter().map(String::as_str).collect::<Vec<_>>());
    site.until("it is told why", || site.log("n2-thief").contains("is connected with another key"));
    site.kill("n2-thief");
    assert_eq!(key(&site), first);
    // n2 loses its disk, and with it all that ran there.
    site.kill("n2");
    site.end_processes_of("n2");
    fs::remove_dir_all(site.path("n2")).unwrap();
    site.spawn("n2", &thief.iter().map(String::as_str).collect::<Vec<_>>());
    site.until("n2 has another key", || key(&site) != first);
    site.until("its job runs again", || site.read("ran").lines().count() == 2);
    let_go(&site);
    assert_eq!(site.end_of(&job), "COMPLETED|0:0");
    site.until_up(&["n2", "n3"]);
    // The token is listed and revoked; machines that have joined stay.
    assert!(site.ok(&["token", "--list"]).contains("n[2-3]  nodes; reusable token for 1440 more min"));
    let said = site.ok(&["token", "--revoke", "n3"]);
    assert!(said.contains("squall token --revoke --nodes n[2-3]"), "{said}");
    assert_eq!(site.ok(&["token", "--revoke", "--nodes", "n2"]), "the token that n[2-3] shared is revoked");
    site.kill("n3");
    fs::remove_dir_all(site.path("n3")).unwrap();
    let said = site.said_by("n3", &as_node("n3"));
    assert!(said.contains("the token does not hold for node n3"), "{said}");
    assert!(site.ok(&["srun", "-w", "n2", "sh", "-c", "echo $SLURMD_NODENAME"]).contains("n2"));
    site.stop();
}
