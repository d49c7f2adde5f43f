//! The controllers' keys are rotated while jobs run: they run on, machines that were away come back, and the key before is
//! good for nothing in the end.

use std::fs;

use crate::machines::site::Site;

/// The controllers' public key, as a machine that has joined keeps it.
fn pinned(site: &Site, machine: &str) -> String {
    site.read(&format!("{machine}/keys/joined")).split_whitespace().nth(2).unwrap().to_owned()
}

#[test]
fn keys_are_rotated_while_a_job_runs() {
    let mut site = Site::start("keys", "", "n[2-5]");
    for name in ["n2", "n3", "n4"] {
        site.join(name);
    }
    site.until_up(&["n1", "n2", "n3", "n4"]);
    let (first, go) = (pinned(&site, "n2"), site.path("go"));
    let mut early = site.invitation("n5");
    let step = format!("while [ ! -e {go} ]; do sleep 0.05; done; echo ran");
    let squall = env!("CARGO_BIN_EXE_squall");
    let script = format!("{squall} srun sh -c '{step}'; {squall} srun -N 1 -n 1 echo again");
    let out = site.path("out");
    let args = ["sbatch", "--parsable", "-N2", "-n2", "-w", "n1,n2", "-o", &out, "--wrap", &script];
    let job = site.ok(&args);
    site.until("the step runs", || site.ok(&["squeue", "-h", "-s", "-j", &job]).contains(&format!("{job}.0")));
    // One machine is away during both rotations, one during the second.
    site.kill("n4");
    let said = site.ok(&["scontrol", "rotate", "keys"]);
    assert!(said.contains("within 7-00:00:00"), "{said}");
    site.until("n2 has the new key", || pinned(&site, "n2") != first);
    let second = pinned(&site, "n2");
    assert_eq!(pinned(&site, "n4"), first);
    site.kill("n3");
    site.controller_dies();
    site.ok(&["scontrol", "rotate", "keys", "grace=1-0"]);
    site.until("n2 has the newest key", || ![&first, &second].contains(&&pinned(&site, "n2")));
    let third = pinned(&site, "n2");
    site.kill("n2");
    site.resume("n2");
    for name in ["n3", "n4"] {
        site.resume(name);
        site.until(&format!("{name} has learnt the newest key"), || pinned(&site, name) == third);
    }
    site.until_up(&["n3", "n4"]);
    // New work on each node, with scripts that are encrypted for it; the steps from before both rotations go on.
    for name in ["n1", "n3", "n4"] {
        let done = site.ok(&["sbatch", "--parsable", "-w", name, "-o", "/dev/null", "--wrap", "true"]);
        assert_eq!(site.end_of(&done), "COMPLETED|0:0", "{name}");
    }
    fs::write(&go, "").unwrap();
    assert_eq!(site.end_of(&job), "COMPLETED|0:0");
    assert_eq!(site.read("out").lines().filter(|line| ["ran", "again"].contains(line)).count(), 3);
    // The key before is no controller's, and after its end no key at all.
    assert!(fs::exists(site.path("head/keys/controller-before")).unwrap());
    // An invitation names the key of then.
    early.push("--join-only".to_owned());
    let said = site.said_by("n5", &early);
    assert_eq!(pinned(&site, "n5"), third, "{said}");
    site.kill("n4");
    site.ok(&["scontrol", "rotate", "keys", "grace=0"]);
    site.until("n3 has the last key", || pinned(&site, "n3") != third);
    site.resume("n4");
    site.until("the keys before are removed", || !fs::exists(site.path("head/keys/controller-before")).unwrap());
    assert_eq!(pinned(&site, "n4"), third, "the controller no longer answers to this key");
    site.kill("n4");
    site.ok(&["token", "--revoke", "n4"]);
    drop(fs::remove_dir_all(site.path("n4")));
    site.join("n4");
    site.until_up(&["n4"]);
    assert_eq!(pinned(&site, "n4"), pinned(&site, "n3"));
    site.stop();
}
