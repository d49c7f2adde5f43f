//! A cluster over several machines: state folders of their own, connected by TCP only; on one host, and, where network
//! namespaces can be made, in some of their own whose links can be cut.

mod elsewhere;
mod hostile;
mod keys;
mod login;
mod members;
mod namespaces;
mod rooted;
mod site;

use site::Site;

#[test]
fn a_cluster_spans_machines_that_share_nothing_but_a_network() {
    // n1, beside the controller, heads n2 and n3; n4 heads n5.
    let config = format!("tree_width = 2\n{}", site::multicast());
    let mut site = Site::start("spans", &config, "n[2-5]");
    for name in ["n2", "n4", "n5"] {
        site.join(name);
    }
    site.until_up(&["n1", "n2", "n4", "n5"]);
    assert!(site.log("n5").contains("attached to n4"), "from machine to machine:\n{}", site.log("n5"));
    assert!(site.log("n2").contains("attached to n1"), "to a node beside the controller:\n{}", site.log("n2"));
    let out = site.path("out-%N");
    let job = site.ok(&["sbatch", "--parsable", "-N4", "-w", "n1,n2,n4,n5", "-o", &out, "--wrap", "hostname"]);
    assert_eq!(site.end_of(&job), "COMPLETED|0:0");
    let said = site.ok(&["srun", "-N4", "-w", "n1,n2,n4,n5", "sh", "-c", "echo $SLURMD_NODENAME"]);
    let mut names: Vec<&str> = said.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["n1", "n2", "n4", "n5"]);
    for name in ["n2", "n4", "n5"] {
        let job = site.ok(&["sbatch", "--parsable", "-w", name, "-o", &out, "--wrap", "echo $SLURMD_NODENAME"]);
        assert_eq!(site.end_of(&job), "COMPLETED|0:0");
        assert_eq!(site.read(&format!("out-{name}")), format!("{name}\n"));
    }
    site.bring_by_multicast(4);
    node_daemon_dies(&mut site);
    // The controller's machine goes and comes; the others wait.
    site.ok(&["down"]);
    site.ok(&["up"]);
    site.until_up(&["n1", "n2", "n4", "n5"]);
    let (report, said) = (site.fails(&["token", "n2"]), "n2 is a machine already");
    assert!(report.contains(said), "{report}");
    revoked(&mut site);
    site.stop();
}

/// kill -9, in the middle of a job: the job does not notice, and is reported by the daemon's next life.
fn node_daemon_dies(site: &mut Site) {
    let (go, ran) = (site.path("go"), site.path("ran"));
    let script = format!("echo x >> {ran}; while [ ! -e {go} ]; do sleep 0.05; done; exit 3");
    let job = site.ok(&["sbatch", "--parsable", "-w", "n5", "-o", "/dev/null", "--wrap", &script]);
    site.until("the job runs", || std::path::Path::new(&ran).exists());
    site.kill("n5");
    std::fs::write(&go, "").unwrap();
    site.resume("n5");
    assert_eq!(site.end_of(&job), "FAILED|3:0");
    assert_eq!(std::fs::read_to_string(&ran).unwrap(), "x\n", "it ran once");
}

/// A node without a key is a stranger, at the controller and at other nodes.
fn revoked(site: &mut Site) {
    site.ok(&["token", "--revoke", "n4"]);
    site.until("n4 is told", || site.log("n4").contains("it hung up"));
    site.kill("n4");
    let refused = site.join_again("n4");
    assert!(refused.contains("does not know this machine as node n4"), "{refused}");
    site.join("n4");
    site.until_up(&["n4"]);
    // Without it its child finds another way.
    site.kill("n4");
    let job = site.ok(&["sbatch", "--parsable", "-w", "n5", "-o", "/dev/null", "--wrap", "true"]);
    assert_eq!(site.end_of(&job), "COMPLETED|0:0");
}
