//! Billing by weights of a partition, as all commands show it.

use std::process::Command;

use crate::harness::Cluster;

const CONFIG: &str = "GresTypes = \"gpu\"
AccountingStorageEnforce = \"associations,limits\"
PriorityDecayHalfLife = 0
[[nodes]]
name = \"n1\"
cpus = 8
memory_mb = 8192
force = true
Gres = \"gpu:a100:4\"
[[partitions]]
name = \"gpu\"
TRESBillingWeights = \"CPU=1.0,Mem=1G,GRES/gpu=10\"
[[partitions]]
name = \"plain\"
";

/// Returns the name of the user who runs the test.
fn user() -> String {
    let out = Command::new("id").arg("-un").output().expect("id runs");
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

#[test]
fn weights_reach_all_lists_and_limits() {
    let c = Cluster::new("billing", "all");
    c.write("c.toml", CONFIG);
    c.said(&["up", "--config", "c.toml"]);
    let shown = c.ok(&["scontrol", "show", "partition", "gpu"]);
    assert!(shown.contains("TRES=cpu=8,mem=8G,node=1,billing=56\n"), "{shown}");
    assert!(shown.ends_with("TRESBillingWeights=CPU=1.0,Mem=1G,GRES/gpu=10"), "{shown}");
    let me = user();
    c.said(&["sacctmgr", "-i", "add", "account", "physics", "GrpTRES=billing=30"]);
    c.said(&["sacctmgr", "-i", "add", "user", &me, "account=physics"]);
    assert_eq!(c.ok(&["sacctmgr", "-nP", "show", "assoc", "account=physics", "user=", "format=grptres"]), "billing=30");
    let job = |partition: &str, gpus: &str| {
        let args =
            ["sbatch", "--parsable", "-A", "physics", "-p", partition, "-n1", "--mem=2G", "-o", "/dev/null", "-t10"];
        c.ok(&[&args[..], &[gpus, "--wrap", "sleep 300"]].concat()).trim().to_owned()
    };
    let first = job("gpu", "--gpus=2");
    c.until("it runs", || c.ok(&["squeue", "-h", "-j", &first, "-o", "%t"]) == "R");
    let shown = c.ok(&["scontrol", "show", "job", &first]);
    assert!(shown.contains("AllocTRES=cpu=1,mem=2G,node=1,billing=23,gres/gpu=2\n"), "{shown}");
    assert!(c.ok(&["squeue", "-h", "-j", &first, "-O", "tres-alloc:80"]).contains("billing=23"));
    let second = job("gpu", "--gpus=1");
    c.until("it waits", || c.ok(&["squeue", "-h", "-j", &second, "-o", "%r"]) == "AssocGrpBilling");
    assert!(
        c.ok(&["scontrol", "show", "job", &second]).contains("ReqTRES=cpu=1,mem=2G,node=1,billing=13,gres/gpu=1\n")
    );
    assert!(c.ok(&["why", &second]).contains("billing units"), "{}", c.ok(&["why", &second]));
    let plain = job("plain", "--gpus=0");
    c.until("it runs", || c.ok(&["squeue", "-h", "-j", &plain, "-o", "%t"]) == "R");
    let sacct = |job: &str| c.ok(&["sacct", "-XnP", "-j", job, "-o", "alloctres"]);
    c.until("accounting has it", || sacct(&first) == "billing=23,cpu=1,gres/gpu=2,mem=2G,node=1");
    assert_eq!(sacct(&plain), "billing=1,cpu=1,mem=2G,node=1");
    let raw = c.ok(&["sshare", "-nP", "-A", "physics", "-o", "user,tresrunmins"]);
    assert!(raw.contains("billing=2"), "{raw}");
    let document = c.ok(&["sacct", "-X", "-j", &first, "--json"]);
    let document: serde_json::Value = serde_json::from_str(&document).expect("it is JSON");
    let tres = document["jobs"][0]["tres"]["allocated"].as_array().cloned().unwrap_or_default();
    assert!(tres.iter().any(|one| one["type"] == "billing" && one["count"] == 23), "{tres:?}");
    c.said(&["scancel", &first]);
    c.until("the next one runs", || c.ok(&["squeue", "-h", "-j", &second, "-o", "%t"]) == "R");
    // Controllers that start again have it from the journal, and accounting from its database.
    c.said(&["down"]);
    c.said(&["up"]);
    assert_eq!(sacct(&first), "billing=23,cpu=1,gres/gpu=2,mem=2G,node=1");
    c.said(&["scontrol", "update", "PartitionName=gpu", "TRESBillingWeights="]);
    assert!(!c.ok(&["scontrol", "show", "partition", "gpu"]).contains("TRESBillingWeights"));
}

#[test]
fn usage_and_reports_count_what_is_billed() {
    let c = Cluster::new("billing", "usage");
    c.write("c.toml", &CONFIG.replace("CPU=1.0,Mem=1G,GRES/gpu=10", "CPU=1000"));
    c.said(&["up", "--config", "c.toml"]);
    let me = user();
    c.said(&["sacctmgr", "-i", "add", "account", "physics"]);
    c.said(&["sacctmgr", "-i", "add", "user", &me, "account=physics"]);
    c.said(&["sbatch", "-A", "physics", "-p", "gpu", "-n1", "-o", "/dev/null", "--wait", "--wrap", "sleep 3"]);
    let raw = c.ok(&["sshare", "-nP", "-U", "-o", "rawusage,grptresraw"]);
    let (used, minutes) = raw.lines().next().and_then(|line| line.split_once('|')).expect("two columns");
    assert!((2000.0..60_000.0).contains(&used.parse::<f64>().expect("a number")), "{raw}");
    assert!(minutes.starts_with("cpu=0,billing="), "{raw}");
    let report = |tres: &str| {
        let args =
            ["sreport", "-nP", "-t", "seconds", "-T", tres, "cluster", "AccountUtilizationByUser", "start=now-1hours"];
        c.ok(&[&args[..], &["end=now+1hours", "accounts=physics", "format=used"]].concat())
    };
    let number = |text: &str| text.lines().filter_map(|line| line.trim().parse::<u64>().ok()).max().unwrap_or(0);
    c.until("it is in the report", || number(&report("billing")) >= 2000);
    assert!(number(&report("cpu")) < 60, "{}", report("cpu"));
}
