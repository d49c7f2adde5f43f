//! The submit filter with real commands: what it changes, refuses and tells; its limits; and what happens when it dies.

use std::fs;
use std::time::Instant;

use crate::harness::{Cluster, text};

const NODES: &str = "[[nodes]]\nname = \"n[1-2]\"\ncpus = 2\nforce = true\n\n[[partitions]]\nname = \"debug\"\n\n\
    [[partitions]]\nname = \"short\"\nmax_time_s = 3600\n\n[[partitions]]\nname = \"old\"\nstate = \"inactive\"\n";

/// Starts a cluster of two nodes with this script.
fn cluster(name: &str, script: &str) -> Cluster {
    let c = Cluster::new("filter", name);
    c.write("job_submit.lua", script);
    c.up(&format!("{NODES}\n[submit]\nlua = \"DIR/job_submit.lua\"\n"), &[]);
    c
}

/// Returns a script of which both functions do this.
fn both(body: &str) -> String {
    format!(
        "function slurm_job_submit(job_desc, part_list, submit_uid)\n{body}\nreturn slurm.SUCCESS\nend\n\
         function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)\n{body}\nreturn slurm.SUCCESS\nend\n"
    )
}

/// Returns a field of `scontrol show job`.
fn field(c: &Cluster, job: &str, name: &str) -> String {
    let shown = c.ok(&["scontrol", "show", "job", "-o", job]);
    let found = shown.split(' ').find_map(|word| word.strip_prefix(&format!("{name}=")));
    found.unwrap_or_else(|| panic!("no {name}: {shown}")).to_owned()
}

const RULES: &str = r#"
local function rules(job_desc, part_list)
  if job_desc.comment == "refuse" then
    slurm.log_user("no %s, please\nread the manual", job_desc.comment)
    return slurm.ESLURM_INVALID_ACCOUNT
  end
  if job_desc.comment == "fault" then return job_desc.nothing.more end
  if job_desc.partition == "old" then
    job_desc.partition = "short"
    slurm.user_msg("partition old is called short now")
  end
  if job_desc.time_limit == slurm.NO_VAL and part_list["short"].max_time == 60 then
    job_desc.time_limit = 7
  end
  return slurm.SUCCESS
end
function slurm_job_submit(job_desc, part_list, submit_uid)
  slurm.log_info("from %s: %s of %d tasks", job_desc.user_name, tostring(job_desc.name), job_desc.num_tasks)
  return rules(job_desc, part_list)
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  if job_desc.comment == "refuse" then
    slurm.user_msg("not job " .. job_rec.job_id .. " of " .. job_rec.user_name)
    return slurm.ERROR
  end
  if job_desc.comment == "time" then job_desc.time_limit = job_rec.time_limit - 1 end
  return slurm.SUCCESS
end
"#;

#[test]
fn every_way_to_submit_passes_the_filter() {
    let c = cluster("ways", RULES);
    let hold = ["sbatch", "--parsable", "-H", "-o", "/dev/null", "--wrap", "true"];
    let out = c.squall(&[&hold[..], &["-p", "old"]].concat());
    assert!(text(&out).contains("sbatch: partition old is called short now"), "{}", text(&out));
    let job = String::from_utf8(out.stdout).unwrap().trim().to_owned();
    assert_eq!((field(&c, &job, "Partition"), field(&c, &job, "TimeLimit")), ("short".into(), "00:07:00".into()));
    assert_eq!(field(&c, &job, "SubmitFilter"), "partition,time_limit");
    assert!(c.ok(&["squall", "why", &job][1..]).contains("The site's submit filter changed: partition, time_limit"));
    let log = c.read("state/log/controller.log");
    assert!(log.contains("the submit filter is loaded") && log.contains("wrap of "), "{log}");
    let refused = "error: no refuse, please\nsbatch: error: read the manual\nsbatch: error: Batch job submission failed: \
                   Invalid account or account/partition combination specified";
    c.fails(&[&hold[..], &["--comment=refuse"]].concat(), refused);
    c.fails(&[&hold[..], &["--comment=fault"]].concat(), "job_submit.lua:7: attempt to index a nil value");
    let array = c.ok(&[&hold[..], &["-a", "1-3"]].concat());
    assert_eq!(field(&c, &array, "TimeLimit"), "00:07:00");
    assert_eq!(c.ok(&["srun", "-p", "old", "sh", "-c", "echo $SLURM_JOB_PARTITION"]), "short");
    c.fails(&["srun", "--comment=refuse", "true"], "srun: error: no refuse, please");
    assert_eq!(c.ok(&["salloc", "-Q", "-p", "old", "sh", "-c", "echo $SLURM_JOB_PARTITION"]), "short");
    c.fails(&["salloc", "--comment=refuse", "true"], "salloc: error: no refuse, please");
    c.write("het.sh", "#!/bin/sh\n#SBATCH -H -o /dev/null -n1\n#SBATCH hetjob\n#SBATCH -n1 -p old\ntrue\n");
    let het = c.ok(&["sbatch", "--parsable", "het.sh"]);
    assert_eq!(field(&c, &format!("{het}+1"), "Partition"), "short");
    c.write("bad.sh", "#!/bin/sh\n#SBATCH -H -n1\n#SBATCH hetjob\n#SBATCH -n1 --comment=refuse\ntrue\n");
    c.fails(&["sbatch", "bad.sh"], "no refuse, please");
    assert!(text(&c.squall(&["sbatch", "--test-only", "--comment=refuse", "--wrap", "true"])).contains("no refuse"));
    let update = |what: &str| c.squall(&["scontrol", "update", &format!("jobid={job}"), what]);
    assert!(
        text(&update("comment=refuse")).contains(&format!("not job {job} of ")),
        "{}",
        text(&update("comment=refuse"))
    );
    assert!(update("comment=time").status.success());
    assert_eq!((field(&c, &job, "TimeLimit"), field(&c, &job, "Comment")), ("00:06:00".into(), "time".into()));
    c.ok(&["scontrol", "update", &format!("jobid={array}"), "comment=fine"]);
    assert_eq!(field(&c, &array, "Comment"), "fine");
    // The journal has the changed jobs: a restart does not ask the filter again.
    c.write("job_submit.lua", &both("slurm.user_msg('closed')\nif true then return slurm.ERROR end"));
    c.ok(&["down", "--keep-jobs"]);
    c.ok(&["up"]);
    assert_eq!((field(&c, &job, "TimeLimit"), field(&c, &job, "Partition")), ("00:06:00".into(), "short".into()));
    c.fails(&hold, "sbatch: error: closed\nsbatch: error: Batch job submission failed: Unspecified error");
}

#[test]
fn a_script_beyond_its_limits_is_stopped_and_named() {
    let body = r#"
if job_desc.comment == "loop" then while true do end end
if job_desc.comment == "caught" then while true do pcall(function() while true do end end) end end
if job_desc.comment == "memory" then local all = {} for i = 1, 1e9 do all[i] = ("x"):rep(99999) .. i end end
if job_desc.comment == "popen" then io.popen("id") end
if job_desc.comment == "file" then slurm.user_msg(tostring(io.open("/etc/passwd"))) end
if job_desc.comment == "exit" then os.exit(3) end"#;
    let c = cluster("limits", &both(body));
    let submit = |comment: &str| {
        let comment = format!("--comment={comment}");
        text(&c.squall(&["sbatch", "-H", "-o", "/dev/null", "--wrap", "true", &comment]))
    };
    for (comment, says) in [
        ("loop", "error: job_submit.lua:3: more than 1 s of CPU time"),
        ("caught", "error: job_submit.lua:4: more than 1 s of CPU time"),
        ("memory", "error: job_submit.lua:5: more than 64 MiB of memory"),
        ("popen", "job_submit.lua:6: io.popen needs `allow_programs = true` in [submit]"),
        ("exit", "job_submit.lua:8: attempt to call a nil value"),
    ] {
        let said = submit(comment);
        assert!(said.contains(says), "{comment}: {said}");
        assert!(submit("fine").contains("Submitted batch job"), "after {comment}");
    }
    assert!(submit("file").contains("sbatch: nil"));
    // A new script with a fault is refused, and the one before stays.
    c.write("job_submit.lua", "function slurm_job_submit(\n");
    c.fails(&["scontrol", "reconfigure"], "job_submit.lua:2: <name> or '...' expected near <eof>");
    assert!(submit("fine").contains("Submitted batch job"));
    c.write("job_submit.lua", &both("slurm.user_msg('second')"));
    c.ok(&["scontrol", "reconfigure"]);
    assert!(submit("fine").contains("sbatch: second"));
    // A cluster that starts with a fault takes no jobs, until it is mended.
    c.write("job_submit.lua", "function slurm_job_submit(\n");
    c.ok(&["down"]);
    c.ok(&["up"]);
    assert!(submit("fine").contains("job_submit.lua:2: <name> or '...' expected near <eof>"));
    c.write("job_submit.lua", &both(""));
    c.ok(&["scontrol", "reconfigure"]);
    assert!(submit("fine").contains("Submitted batch job"));
    // Without the table nothing is filtered.
    c.write("state/squall.toml", NODES);
    c.ok(&["scontrol", "reconfigure"]);
    assert!(submit("loop").contains("Submitted batch job"));
}

/// Returns the processes that run the filter of a cluster.
fn processes(c: &Cluster) -> Vec<u32> {
    let controller = c.pid("controller").unwrap();
    let children = fs::read_to_string(format!("/proc/{controller}/task/{controller}/children")).unwrap_or_default();
    let is_filter =
        |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"step\0--filter\0"));
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(is_filter).collect()
}

#[test]
fn a_filter_that_is_killed_loses_and_doubles_no_job() {
    let body = "os.execute('sleep ' .. (job_desc.comment or 0))";
    let c = Cluster::new("filter", "killed");
    c.write("job_submit.lua", &both(body));
    c.up(&format!("{NODES}\n[submit]\nlua = \"DIR/job_submit.lua\"\nallow_programs = true\n"), &[]);
    let submit = |seconds: &str| {
        let comment = format!("--comment={seconds}");
        let args = ["sbatch", "--parsable", "-H", "-o", "/dev/null", "--wrap", "true", &comment];
        c.command(&args).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    let (slow, begun) = (submit("2"), Instant::now());
    c.until("a process filters", || !processes(&c).is_empty());
    std::thread::sleep(std::time::Duration::from_millis(300));
    for pid in processes(&c) {
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let out = slow.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", text(&out));
    assert!(begun.elapsed().as_secs() >= 2, "it was filtered again from the start");
    assert_eq!(c.ok(&["squeue", "-h", "-o", "%i"]), String::from_utf8_lossy(&out.stdout).trim());
    // One that sleeps too long is stopped; what it has started is ended, too.
    let out = submit("30").wait_with_output().unwrap();
    assert!(text(&out).contains("job_submit.lua: more than 10 s"), "{}", text(&out));
    c.until("its process has ended", || processes(&c).is_empty());
    assert_eq!(c.ok(&["squeue", "-h", "-o", "%i"]).lines().count(), 1);
}
