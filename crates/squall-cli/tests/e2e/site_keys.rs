//! Keys that sites set, with real processes: programs around srun, ended jobs told to other programs, archives of jobs.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

use crate::harness::{Cluster, accepted};

/// Starts a cluster of one node with these lines in its configuration.
fn start(test: &str, keys: impl Fn(&str) -> String) -> Cluster {
    let c = Cluster::new("keys", test);
    let folder = c.dir.display().to_string();
    c.write("c.toml", &format!("{}\n[[nodes]]\nname = \"n1\"\nTmpDisk = 1\n", keys(&folder)));
    c.said(&["up", "--config", "c.toml"]);
    c
}

#[test]
fn srun_runs_the_sites_programs_unless_the_user_names_others() {
    let keys = |dir: &str| format!("SrunProlog = \"{dir}/before\"\nSrunEpilog = \"{dir}/after\"\nTmpFS = \"/\"\n");
    let c = start("srun", keys);
    c.script("before", "echo before $SLURM_SCRIPT_CONTEXT $*");
    c.script("after", "echo after");
    assert_eq!(c.ok(&["srun", "echo", "a"]), "before prolog_srun echo a\na\nafter");
    assert_eq!(c.ok(&["srun", "--prolog=none", "--epilog=none", "echo", "a"]), "a");
    c.script("before", "exit 3");
    c.fails(&["srun", "echo", "a"], "srun prolog failed rc = 3");
    // The node has the scratch space that the configuration says, and not more.
    assert!(c.ok(&["scontrol", "show", "node", "n1"]).contains(" TmpDisk=1 "));
    assert_eq!(c.ok(&["srun", "--prolog=none", "--tmp=1", "echo", "a"]), "a\nafter");
    c.fails(&["srun", "--prolog=none", "--tmp=2", "true"], "not available");
}

#[test]
fn ended_jobs_are_told_in_a_file_and_come_back_from_an_archive() {
    let keys =
        |dir: &str| format!("[accounting]\njob_comp_type = \"jobcomp/filetxt\"\njob_comp_loc = \"{dir}/jobs\"\n");
    let c = start("file", keys);
    c.ok(&["sbatch", "--wait", "-o", "/dev/null", "-J", "first one", "--wrap", "true"]);
    c.squall(&["sbatch", "--wait", "-o", "/dev/null", "-J", "bad,\"x\"", "--wrap", "exit 3"]);
    let told = || std::fs::read_to_string(c.dir.join("jobs")).unwrap_or_default();
    c.until("both are told", || told().lines().count() == 2);
    assert!(
        told().starts_with("JobId=1 UserId=") && told().contains(" Name=first_one JobState=COMPLETED "),
        "{}",
        told()
    );
    assert!(told().contains("JobId=2 ") && told().contains(" ExitCode=3:0 "), "{}", told());
    let said = c.ok(&["sacctmgr", "archive", "dump", &format!("Directory={}", c.dir.display())]);
    let (path, count) = said.split_once(": ").unwrap();
    assert_eq!(count, "2 jobs");
    assert!(std::fs::read_to_string(path).unwrap().lines().nth(2).unwrap().starts_with("2,2,\"bad,\"\"x\"\"\","));
    c.fails(&["sacctmgr", "archive", "load", &format!("File={path}")], "runs: end it by");
    let other = Cluster::new("keys", "load");
    other.write("c.toml", "[[nodes]]\nname = \"n1\"\n");
    other.said(&["up", "--config", "c.toml"]);
    other.said(&["down"]);
    assert!(other.ok(&["sacctmgr", "archive", "load", &format!("File={path}")]).starts_with("2 jobs were added"));
    other.said(&["up"]);
    let seen = other.ok(&["sacct", "-anXP", "-S", "2000-01-01", "-o", "JobID,JobName,State,ExitCode"]);
    assert_eq!(seen, "1|first one|COMPLETED|0:0\n2|bad,\"x\"|FAILED|3:0");
}

#[test]
fn ended_jobs_are_sent_once_the_server_takes_them() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let keys = |_: &str| {
        format!(
            "[accounting]\njob_comp_type = \"jobcomp/elasticsearch\"\njob_comp_loc = \"http://{address}/slurm/_doc\"\n"
        )
    };
    let c = start("http", keys);
    c.ok(&["sbatch", "--wait", "-o", "/dev/null", "-J", "one", "--wrap", "true"]);
    let mut heard = Vec::new();
    for answer in ["503 Busy", "201 Created"] {
        let mut stream = accepted(&listener);
        let (mut text, mut bytes) = (String::new(), [0; 4096]);
        while !text.ends_with('}') {
            let count = stream.read(&mut bytes).unwrap();
            assert!(count > 0, "it ends after `{text}`");
            text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        // It may have given up meanwhile: then it comes again.
        let _ = stream.write_all(format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n").as_bytes());
        heard.push(text);
    }
    assert_eq!(heard[0], heard[1], "the same job again");
    assert!(heard[1].starts_with("POST /slurm/_doc HTTP/1.1\r\n"), "{}", heard[1]);
    let document: serde_json::Value = serde_json::from_str(heard[1].split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(
        (&document["jobid"], &document["job_name"], &document["state"]),
        (&1.into(), &"one".into(), &"COMPLETED".into())
    );
}

/// The controller dies after it has told of two ends, and before it is asked about the second one.
#[test]
fn a_job_is_told_although_the_controller_was_away() {
    let keys =
        |dir: &str| format!("[accounting]\njob_comp_type = \"jobcomp/filetxt\"\njob_comp_loc = \"{dir}/jobs\"\n");
    let c = start("away", keys);
    let mail = || crate::traces::processes(&c.dir).into_iter().find(|(_, line)| line.contains(" mail")).map(|of| of.0);
    c.until("the ends are followed", || mail().is_some());
    let signal = |name: &str| Command::new("kill").args([name, &mail().unwrap().to_string()]).status().unwrap();
    assert!(signal("-STOP").success());
    c.ok(&["sbatch", "--wait", "-o", "/dev/null", "--wrap", "true"]);
    c.ok(&["sbatch", "--wait", "-o", "/dev/null", "--wrap", "true"]);
    // The first one can't be told as long as a folder is there.
    std::fs::create_dir(c.dir.join("jobs")).unwrap();
    assert!(signal("-CONT").success());
    let logs =
        || std::fs::read_dir(c.state().join("log")).unwrap().flatten().map(|file| std::fs::read_to_string(file.path()));
    c.until("it is tried", || logs().flatten().any(|log| log.contains("ends of jobs can't be told now")));
    c.kill("controller");
    std::fs::remove_dir(c.dir.join("jobs")).unwrap();
    let told = || std::fs::read_to_string(c.dir.join("jobs")).unwrap_or_default();
    c.until("the first one is told", || told().contains("JobId=1 "));
    std::thread::sleep(std::time::Duration::from_secs(1));
    c.said(&["up"]);
    c.until("both are told", || told().contains("JobId=2 "));
    assert_eq!(told().lines().count(), 2, "{}", told());
}

#[test]
fn a_drained_node_comes_back_by_itself() {
    let c = start("resume", |_| String::new());
    c.ok(&["scontrol", "update", "nodename=n1", "state=drain", "reason=fan", "resumeafter=3"]);
    let shown = c.ok(&["scontrol", "show", "node", "n1"]);
    assert!(shown.contains("State=IDLE+DRAIN") && !shown.contains("ResumeAfterTime=None"), "{shown}");
    assert_eq!(c.ok(&["srun", "echo", "a"]), "a", "the job has waited");
    assert!(c.ok(&["scontrol", "show", "node", "n1"]).contains("ResumeAfterTime=None"));
}

#[test]
fn the_energy_of_a_node_is_that_of_the_steps_that_ran_meanwhile() {
    let c = Cluster::new("keys", "energy");
    let file = c.dir.join("energy").display().to_string();
    c.write("energy", "1000 J 5 us\n");
    let keys = format!("[energy]\nAcctGatherEnergyType = \"acct_gather_energy/pm_counters\"\nfile = \"{file}\"\n");
    c.write("c.toml", &format!("{keys}[[nodes]]\nname = \"n1\"\n"));
    c.said(&["up", "--config", "c.toml"]);
    let script = |joules: u32| format!("echo {joules} J 9 us > {file}");
    c.ok(&["sbatch", "--wait", "-o", "/dev/null", "--wrap", &script(1250)]);
    c.ok(&["srun", "sh", "-c", &script(3500)]);
    let seen = || c.ok(&["sacct", "-nP", "-o", "JobID,ConsumedEnergyRaw,ConsumedEnergy,TRESUsageInTot,AllocTRES"]);
    let fields = |line: &str| {
        let mut fields: Vec<String> = line.split('|').map(str::to_owned).collect();
        for text in &mut fields[3..] {
            *text = text.split(',').find(|word| word.starts_with("energy=")).unwrap_or_default().to_owned();
        }
        fields.join(" ")
    };
    let seen: Vec<String> = seen().lines().map(fields).collect();
    assert_eq!(seen[..3], ["1 250 250  energy=250", "1.batch 250 250 energy=250 ", "2 2250 2.25K  energy=2250"]);
    let json = c.ok(&["report", "1", "--json"]);
    assert!(json.contains("\"energy_joules\": 250"), "{json}");
    let report = c.ok(&["report", "2"]);
    let energy = report.lines().find(|line| line.trim_start().starts_with("energy")).unwrap_or_default();
    let energy: Vec<&str> = energy.split_whitespace().collect();
    assert_eq!(energy.join(" "), "energy 2.25 kJ - 0.001 kWh of its nodes", "{report}");
    c.ok(&["sbatch", "-o", "/dev/null", "--wrap", &format!("{}; sleep 600", script(3600))]);
    let running = || c.squall(&["sstat", "-nP", "-a", "-j", "3", "-o", "JobID,ConsumedEnergyRaw"]).stdout;
    c.until("a running script has energy", || String::from_utf8_lossy(&running()).contains("3.batch|100"));
    c.ok(&["scancel", "3"]);
}
