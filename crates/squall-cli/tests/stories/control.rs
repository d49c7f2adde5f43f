//! Stories of looking and controlling: listings, formats, drains, daemons that die and come back.

use crate::Story;
use crate::cluster::Cluster;

pub(crate) const STORIES: &[Story] = &[
    ("listings_have_slurms_headers", headers),
    ("scontrol_show_job_has_what_clients_read", show_job),
    ("hostlists", hostlists),
    ("drain_and_resume", drain),
    ("jobs_survive_every_daemons_death", survive),
    ("json_is_json", json),
    ("ping_and_config", ping),
];

fn headers(c: &Cluster) {
    let first = |args: &[&str]| c.ok(args).lines().next().unwrap_or_default().to_owned();
    assert_eq!(
        first(&["squeue"]),
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)"
    );
    assert_eq!(first(&["sinfo"]), "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST");
    assert_eq!(c.ok(&["sinfo"]).lines().nth(1).unwrap(), "debug*       up   infinite      4   idle n[1-4]");
    assert_eq!(first(&["sacct"]), "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode ");
    assert!(c.ok(&["sdiag"]).contains("Jobs submitted:"));
}

fn show_job(c: &Cluster) {
    let id = c.sbatch(&["--hold", "-J", "shown", "-t", "5", "--comment", "my comment", "--wrap", "true"]);
    let text = c.ok(&["scontrol", "show", "job", &id]);
    for word in [
        &format!("JobId={id}"),
        "JobName=shown",
        "JobState=PENDING",
        "Reason=JobHeldUser",
        "TimeLimit=00:05:00",
        "Partition=debug",
        "NumNodes=1",
        "NumCPUs=1",
        "Comment=my comment",
        &format!("WorkDir={}", c.path("work")),
        &format!("StdOut={}", c.path(&format!("work/slurm-{id}.out"))),
    ] {
        assert!(text.contains(word), "{word} is not in\n{text}");
    }
    assert_eq!(c.ok(&["scontrol", "show", "job", "-o", &id]).lines().count(), 1);
    c.ok(&["scancel", &id]);
}

fn hostlists(c: &Cluster) {
    assert_eq!(c.ok(&["scontrol", "show", "hostnames", "n[001-003],g7"]), "n001\nn002\nn003\ng7");
    assert_eq!(c.ok(&["scontrol", "show", "hostlist", "n1,n2,n3,x"]), "n[1-3],x");
}

fn drain(c: &Cluster) {
    c.ok(&["scontrol", "update", "nodename=n[1-2]", "state=drain", "reason=broken fan"]);
    let list = c.ok(&["sinfo", "-h", "-o", "%t %N"]);
    assert!(list.lines().any(|l| l == "drain n[1-2]"), "{list}");
    assert!(c.ok(&["sinfo", "-R"]).contains("broken fan"));
    assert_eq!(c.ok(&["srun", "sh", "-c", "echo $SLURMD_NODENAME"]), "n3");
    c.ok(&["scontrol", "update", "nodename=n[1-2]", "state=resume"]);
    assert_eq!(c.ok(&["sinfo", "-h", "-o", "%t %N"]), "idle n[1-4]");
}

fn survive(c: &Cluster) {
    let id = c.sbatch(&["-N", "2", "-o", "survive.out", "--wrap", "echo begin; sleep 3; echo end"]);
    c.until_state(&id, "RUNNING");
    c.read("survive.out");
    for pid in ["controller.pid", "node-n1.pid", "node-n2.pid", "node-n3.pid"] {
        let text = std::fs::read_to_string(c.path(&format!("state/run/{pid}"))).unwrap();
        let pid = text.split_whitespace().next().unwrap();
        assert!(std::process::Command::new("kill").args(["-9", pid]).status().unwrap().success());
    }
    let done = c.run(&["squall", "up", "--state", &c.path("state")]);
    assert_eq!(done.status, 0, "{done:?}");
    assert_eq!(c.end_of(&id), "COMPLETED|0:0");
    assert_eq!(c.read("survive.out"), "begin\nend\n");
}

fn json(c: &Cluster) {
    for args in [
        &["squeue", "--json"][..],
        &["sinfo", "--json"],
        &["sacct", "--json"],
        &["sdiag", "--json"],
        &["scontrol", "--json", "show", "job"],
    ] {
        let text = c.ok(args);
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{args:?}: {text}");
    }
}

fn ping(c: &Cluster) {
    assert!(c.ok(&["scontrol", "ping"]).starts_with("Slurmctld(primary) at "), "{}", c.ok(&["scontrol", "ping"]));
    assert!(c.ok(&["scontrol", "show", "config"]).contains("ClusterName"));
    assert!(c.ok(&["scontrol", "--version"]).starts_with("slurm "));
}
