//! The records in PostgreSQL (`[accounting] store`): every command answers as with SQLite, and a server that is away holds
//! up nobody.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Cluster, text};
use crate::postgres::Postgres;

const CONFIG: &str = "AccountingStorageEnforce = \"associations,limits,qos\"
PriorityDecayHalfLife = 0
[[nodes]]
name = \"n[1-2]\"
cpus = 4
memory_mb = 4096
force = true
Gres = \"gpu:2\"
[[partitions]]
name = \"plain\"
default = true
[[partitions]]
name = \"billed\"
TRESBillingWeights = \"CPU=2.0,Mem=1G,GRES/gpu=10\"
";

/// Questions about what has been. `@FROM` and `@TO` are times around it, `@ME` is the user.
/// Not among them is `sreport cluster Utilization`: the time for which nodes are away grows with each restart here.
const QUESTIONS: &[&str] = &[
    "sacct",
    "sacct -l -P",
    "sacct -D -P -o ALL",
    "sacct -X -P -o jobid,jobname,user,account,partition,qos,state,exitcode,start,end,elapsed,alloctres,reqtres,nodelist",
    "sacct -nP -S @FROM -E @TO -o jobid,state",
    "sacct -nP -S @FROM -s CD -o jobid",
    "sacct -nP -S @FROM -s F,CA,TO -o jobid,exitcode,derivedexitcode",
    "sacct -nP -S @FROM -s PD -o jobid,reason",
    "sacct -nP -j 1,2 -o jobid,submitline,workdir,comment,wckey",
    "sacct -nP -j 4_1 -o jobid,jobidraw,state",
    "sacct -nP -j 4 -o jobid,jobidraw,state",
    "sacct -nP -j 1.batch -o jobid,maxrss,avecpu,totalcpu",
    "sacct -nP -u @ME -o jobid,uid,gid,group",
    "sacct -nP -A physics -o jobid,account",
    "sacct -nP -r billed -o jobid,alloctres",
    "sacct -nP --name good -o jobid",
    "sacct -nP -N n1 -o jobid,nodelist",
    "sacct -nP -N n2 -S @FROM -o jobid",
    "sacct -nP --units=K -o jobid,reqmem",
    "sacct --json -j 1",
    "sacct --json=v0.0.41",
    "sacct -c -P",
    "sreport -nP cluster AccountUtilizationByUser start=@FROM end=@TO",
    "sreport -nP cluster UserUtilizationByAccount start=@FROM end=@TO",
    "sreport -nP cluster UserUtilizationByWckey start=@FROM end=@TO",
    "sreport -nP cluster AccountUtilizationByQOS start=@FROM end=@TO",
    "sreport -nP job SizesByAccount start=@FROM end=@TO",
    "sreport -nP job SizesByAccountAndWckey start=@FROM end=@TO",
    "sreport -nP user TopUsage start=@FROM end=@TO",
    "sreport -nP -t hours -T cpu,mem,gres/gpu,billing cluster AccountUtilizationByUser start=@FROM end=@TO",
    "sreport -nP reservation Utilization start=@FROM end=@TO",
    "sacctmgr -nP show assoc format=account,user,grptres,fairshare",
    "sacctmgr -nP show account withassoc",
    "sacctmgr -nP show user withassoc",
    "sacctmgr -nP show qos",
    "sacctmgr -nP show transaction",
    "sacctmgr -nP show event start=@FROM",
    "sacctmgr -nP show reservation",
    "sacctmgr -nP show runawayjobs",
    "sacctmgr -nP show wckey",
    "sshare -a -l -P",
    "sshare -A physics -P",
    "seff 1",
    "squall report 1",
];

fn out_of(command: &str, args: &[&str]) -> String {
    let out = Command::new(command).args(args).output().unwrap();
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

/// Returns all that the questions get for an answer.
fn answers(c: &Cluster, (from, to, me): (&str, &str, &str)) -> Vec<(String, String)> {
    let asked = QUESTIONS.iter().map(|question| question.replace("@FROM", from).replace("@TO", to).replace("@ME", me));
    let answer = |question: String| {
        let words: Vec<&str> = question.strip_prefix("squall ").unwrap_or(&question).split(' ').collect();
        let answer = text(&c.squall(&words));
        (question, answer)
    };
    asked.map(answer).collect()
}

fn same(one: &[(String, String)], other: &[(String, String)]) {
    for ((question, first), (_, second)) in one.iter().zip(other) {
        assert_eq!(first, second, "{question}");
    }
}

/// Jobs of many kinds that all end, and one that waits.
fn run(c: &Cluster, round: u32) {
    let submit =
        |args: &[&str]| c.squall(&[&["sbatch", "--parsable", "-o", "/dev/null", "-A", "physics"], args].concat());
    submit(&["-J", "good", "--comment", "it's mine", "--wckey", "w", "--wait", "--wrap", "srun -n1 true"]);
    submit(&["-J", "bad", "--wait", "--wrap", "exit 3"]);
    submit(&["-p", "billed", "--gpus=1", "--mem=1G", "--wait", "--wrap", "true"]);
    submit(&["--array=1-3", "--wait", "--wrap", "test $SLURM_ARRAY_TASK_ID != 2"]);
    submit(&["-N2", "--wait", "--wrap", "srun -N2 hostname"]);
    let held = text(&submit(&["-H", "--array=1-5", "--wrap", "true"]));
    c.ok(&["scancel", &format!("{}_3", held.trim())]);
    let long = text(&submit(&["-J", "long", "--wrap", "sleep 100"]));
    c.until("it runs", || c.ok(&["squeue", "-h", "-j", long.trim(), "-o", "%t"]) == "R");
    c.ok(&["scancel", long.trim()]);
    c.until("it is gone", || c.ok(&["squeue", "-h", "-j", long.trim()]).is_empty());
    c.ok(&["scontrol", "update", "node=n2", "state=drain", &format!("reason=round {round}")]);
    c.ok(&["scontrol", "update", "node=n2", "state=resume"]);
}

fn switch(c: &Cluster, store: &str) {
    c.ok(&["down"]);
    let store = if store.is_empty() { String::new() } else { format!("[accounting]\nstore = \"{store}\"\n") };
    c.write("c.toml", &format!("{CONFIG}{store}"));
    c.said(&["up", "--config", "c.toml"]);
    c.until("accounting is there", || c.squall(&["sacct"]).status.success());
    c.until("nodes are back", || c.ok(&["sinfo", "-h", "-o", "%D %t"]) == "2 idle");
}

/// The same cluster with the one store and the other, from the journal and as it happens: every answer is the same, byte by
/// byte.
#[test]
fn every_question_has_the_same_answer_with_both_stores() {
    let Some(postgres) = Postgres::start() else { return };
    postgres.make("records");
    let c = Cluster::new("stores", "same");
    c.write("c.toml", CONFIG);
    c.said(&["up", "--config", "c.toml"]);
    let me = out_of("id", &["-un"]);
    c.said(&["sacctmgr", "-i", "add", "account", "physics", "GrpTRES=cpu=8"]);
    c.said(&["sacctmgr", "-i", "add", "user", &me, "account=physics"]);
    let day = |when: &str| out_of("date", &["-d", when, "+%Y-%m-%dT%H:%M:%S"]);
    let (from, to) = (day("1 hour ago"), day("2 hours"));
    let about = (from.as_str(), to.as_str(), me.as_str());
    run(&c, 1);
    switch(&c, &postgres.url("records"));
    let served = answers(&c, about);
    run(&c, 2);
    let later = answers(&c, about);
    assert!(served[0].1.len() < later[0].1.len(), "{}", later[0].1);
    let ended = postgres.sql("records", "SELECT count(*) FROM squall.jobs WHERE state = 'COMPLETED'");
    let shown = c.ok(&["sacct", "-aXnP", "-S", "now-1hour", "-o", "state"]);
    let shown = shown.lines().filter(|state| *state == "COMPLETED").count();
    assert_eq!(ended.trim().parse::<usize>().unwrap(), shown);
    assert!(shown >= 6, "{shown}");
    assert_eq!(
        postgres.sql("records", "SELECT id_job, state, exit_code FROM squall.job_table WHERE id_job = 2"),
        "2|5|768\n"
    );
    assert_eq!(postgres.sql("records", "SELECT billing, gpus FROM squall.jobs WHERE job_id = 3"), "13|1\n");
    switch(&c, "");
    same(&answers(&c, about), &later);
    // The records move there and back, with nothing lost that the journal has no more.
    c.ok(&["down"]);
    c.fails(&["accounting", "copy", "sqlite", &postgres.url("records")], "has records already");
    postgres.make("copied");
    let said = c.ok(&["accounting", "copy", "sqlite", &postgres.url("copied")]);
    assert!(said.contains("jobs ") && said.contains("and counted there"), "{said}");
    fs::rename(c.state().join("accounts.db"), c.state().join("aside.db")).unwrap();
    c.said(&["accounting", "copy", &postgres.url("copied"), "sqlite"]);
    c.write("c.toml", &format!("{CONFIG}[accounting]\nstore = \"{}\"\n", postgres.url("copied")));
    c.said(&["up", "--config", "c.toml"]);
    c.until("nodes are back", || c.ok(&["sinfo", "-h", "-o", "%D %t"]) == "2 idle");
    c.until("accounting is there", || c.squall(&["sacct"]).status.success());
    same(&answers(&c, about), &later);
    c.fails(&["accounting", "copy", "sqlite", &postgres.url("copied")], "");
    switch(&c, "");
    same(&answers(&c, about), &later);
    let socket = postgres.socket().display().to_string();
    assert!(!c.read("state/log/controller.log").contains("panicked"), "{socket}");
}

/// While the server is away, jobs run, `sacct` says why it has no answer, and `scontrol ping` that the records lag. Then all
/// follows, also if the controller dies meanwhile.
#[test]
fn a_server_that_is_away_holds_up_nobody() {
    let Some(mut postgres) = Postgres::start() else { return };
    postgres.make("away");
    let c = Cluster::new("stores", "away");
    let store = postgres.url("away");
    c.write("c.toml", &format!("[accounting]\nstore = \"{store}\"\n[[nodes]]\nname = \"n1\"\n"));
    c.said(&["up", "--config", "c.toml"]);
    let job = || c.ok(&["sbatch", "--wait", "-o", "/dev/null", "--wrap", "true"]);
    job();
    postgres.kill();
    let begin = Instant::now();
    job();
    assert!(begin.elapsed() < Duration::from_secs(20), "jobs run as ever");
    c.until("it is told", || text(&c.squall(&["scontrol", "ping"])).contains("the records of accounting lag behind"));
    let said = text(&c.squall(&["scontrol", "ping"]));
    assert!(said.contains("PostgreSQL at ") && said.contains("is UP"), "{said}");
    let refused = c.squall(&["sacct"]);
    assert!(
        !refused.status.success() && text(&refused).contains("accounting is not available now"),
        "{}",
        text(&refused)
    );
    assert!(text(&c.squall(&["doctor"])).contains("the records of accounting lag behind"));
    c.kill("controller");
    c.said(&["up"]);
    job();
    postgres.start_again();
    let ids = || text(&c.squall(&["sacct", "-nXP", "-o", "jobid,state"]));
    c.until("all are there", || ids() == "1|COMPLETED\n2|COMPLETED\n3|COMPLETED\n");
    // A controller that is killed while it writes: no row is lost, none is there twice.
    for _ in 0..3 {
        c.ok(&["sbatch", "-o", "/dev/null", "--array=1-20", "--wrap", "true"]);
        std::thread::sleep(Duration::from_millis(300));
        c.kill("controller");
        c.said(&["up"]);
    }
    let rows = || c.ok(&["sacct", "-nXP", "-S", "now-1hour", "-o", "state"]);
    let done = || rows().lines().filter(|state| *state == "COMPLETED").count();
    c.until("all have ended", || c.ok(&["squeue", "-h"]).is_empty() && done() == 63);
    assert_eq!(postgres.sql("away", "SELECT count(*), count(DISTINCT job_id) FROM squall.jobs"), "63|63\n");
}

/// A password does not get into a configuration that is shown to everyone, nor into a message.
#[test]
fn a_password_is_refused_before_anything_starts() {
    let c = Cluster::new("stores", "password");
    c.write("c.toml", "[accounting]\nstore = \"postgresql://a:secret@db/d\"\n[[nodes]]\nname = \"n1\"\n");
    for args in [&["check", "c.toml"][..], &["up", "--config", "c.toml"]] {
        let out = c.squall(args);
        let said = text(&out);
        assert!(!out.status.success() && said.contains("?passfile=") && !said.contains("secret"), "{said}");
    }
}
