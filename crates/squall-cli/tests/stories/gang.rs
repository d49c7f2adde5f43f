//! Stories of jobs that share cores and take turns: and that nothing stays stopped, whoever dies.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::Story;
use crate::cluster::Cluster;

pub(crate) const STORIES: &[Story] = &[
    ("gangs_take_turns_and_a_third_job_waits", turns),
    ("a10_no_switcher_stays_when_gang_jobs_run_out", switchers_end),
    ("who_is_stopped_ends_at_once", ends),
    ("what_begins_out_of_turn_holds_up_nobody", births),
    ("nothing_stays_stopped_whoever_dies", deaths),
    ("who_is_of_a_lower_tier_stops_and_goes_on_by_itself", covered),
    ("who_does_not_care_takes_no_turns", careless),
    ("gangs_are_there_when_the_cluster_goes_down", down),
];

/// A job of all nodes whose first task counts as long as it runs, in a child that has left its session.
fn counting(c: &Cluster, name: &str, more: &[&str]) -> String {
    let script = "setsid sh -c 'i=0; while :; do i=$((i+1)); echo $i > COUNT; done' & wait".replace("COUNT", name);
    let id = c.sbatch(&[&["-p", "gang", "-N4", "-n16", "-o", "/dev/null", "--wrap", &script], more].concat());
    c.until(&format!("{name} counts"), || count(c, name) > 0);
    id
}

fn count(c: &Cluster, name: &str) -> u64 {
    // It may be caught between two counts.
    fs::read_to_string(c.path(&format!("work/{name}"))).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn goes_on(c: &Cluster, name: &str) {
    let before = std::cell::Cell::new(0);
    c.until(&format!("{name} is counted"), || {
        before.set(count(c, name));
        before.get() > 0
    });
    c.until(&format!("{name} goes on"), || count(c, name) > before.get() + 5);
}

fn stands(c: &Cluster, name: &str) {
    let mut last = 0;
    c.until(&format!("{name} is stopped"), || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let now = count(c, name);
        std::mem::replace(&mut last, now) == now
    });
}

fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
}

fn daemon(c: &Cluster, name: &str) -> u32 {
    let text = fs::read_to_string(c.path(&format!("state/run/{name}.pid"))).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// Children of a process whose command line ends so.
fn child(parent: u32, word: &str) -> Option<u32> {
    fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let ours = stat.rsplit_once(')')?.1.split_whitespace().nth(1)? == parent.to_string();
        let line = fs::read_to_string(entry.path().join("cmdline")).ok()?;
        (ours && line.trim_end_matches('\0').ends_with(word)).then_some(pid)
    })
}

fn turns(c: &Cluster) {
    let (a, b) = (counting(c, "turn.a", &[]), counting(c, "turn.b", &[]));
    let third = c.sbatch(&["-p", "gang", "-N4", "-n16", "-o", "/dev/null", "--wrap", "true"]);
    goes_on(c, "turn.a");
    goes_on(c, "turn.b");
    let seen = |job: &str| c.ok(&["squeue", "-h", "-o", "%t", "-j", job]);
    c.until("the first has its turn", || seen(&a) == "R");
    c.until("the second has its turn, and the first has not", || {
        let both = c.ok(&["squeue", "-h", "-o", "%i %t", "-j", &format!("{a},{b}")]);
        both.contains(&format!("{a} S")) && both.contains(&format!("{b} R"))
    });
    assert_eq!(seen(&third), "PD");
    assert!(c.ok(&["sdiag"]).contains("Gang scheduling statistics"));
    assert!(c.ok(&["scontrol", "show", "partition", "gang"]).contains("OverSubscribe=FORCE:2"));
    c.ok(&["scancel", &a]);
    assert_eq!(c.end_of(&third), "COMPLETED|0:0");
    let suspended = c.ok(&["sacct", "-n", "-X", "-P", "-o", "Suspended", "-j", &a]);
    assert!(suspended.starts_with("00:00:"), "{suspended}");
    c.ok(&["scancel", &b]);
    c.end_of(&b);
}

fn switchers_end(c: &Cluster) {
    let nodes: Vec<u32> = (1..=4).map(|n| daemon(c, &format!("node-n{n}"))).collect();
    let there = || nodes.iter().filter(|node| child(**node, "--switcher").is_some()).count();
    for round in 0..3 {
        let jobs = ["a", "b"].map(|name| counting(c, &format!("round.{round}.{name}"), &[]));
        c.until("each node has a switcher", || there() == 4);
        c.ok(&["scancel", &jobs[0], &jobs[1]]);
        for job in &jobs {
            c.end_of(job);
        }
        c.until("no node has a switcher", || there() == 0);
    }
}

/// The switch by which what a process belongs to steps back, if it has one.
fn switch_of(pid: u32) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let own = groups.lines().filter_map(|line| line.rsplit_once(':'));
    let at =
        own.flat_map(|(_, group)| ["cpu", "cpu,cpuacct", ""].map(|m| format!("/sys/fs/cgroup/{m}/{group}/cpu.idle")));
    at.map(PathBuf::from).find(|file| file.exists() && file.to_string_lossy().contains("/job_"))
}

fn careless(c: &Cluster) {
    let config = c.path("state/squall.toml");
    let before = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("coscheduling = \"flexible\"\n{before}")).unwrap();
    c.ok(&["scontrol", "reconfigure"]);
    let script = |name: &str| format!("exec sh -c 'while :; do :; done' {name}");
    let jobs = ["careless.a", "careless.b"]
        .map(|name| c.sbatch(&["-p", "gang", "-N4", "-n16", "-o", "/dev/null", "--wrap", &script(name)]));
    let computing =
        || c.processes().into_iter().filter(|(_, line)| line.starts_with("sh -c") && line.contains("careless."));
    c.until("both compute", || computing().count() == 2);
    let held: Vec<(u32, Option<PathBuf>)> = computing().map(|(pid, _)| (pid, switch_of(pid))).collect();
    let steps_back =
        |switch: &Option<PathBuf>| switch.as_ref().is_some_and(|s| !fs::read_to_string(s).unwrap().starts_with('0'));
    let is_stopped = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ");
    // By turns one of them would be out of turn for 20 ms in 40.
    c.until("nobody is out of turn for half a second", || {
        (0..100).all(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            !held.iter().any(|(pid, switch)| steps_back(switch) || is_stopped(pid))
        })
    });
    c.ok(&["scancel", &jobs[0], &jobs[1]]);
    for job in &jobs {
        c.end_of(job);
    }
    fs::write(&config, before).unwrap();
    c.ok(&["scontrol", "reconfigure"]);
}

fn ends(c: &Cluster) {
    let (a, b) = (counting(c, "end.a", &[]), counting(c, "end.b", &[]));
    for job in [&a, &b] {
        c.ok(&["scontrol", "suspend", job]);
    }
    stands(c, "end.a");
    stands(c, "end.b");
    c.ok(&["scancel", &a]);
    assert!(c.end_of(&a).starts_with("CANCELLED"));
    c.ok(&["scontrol", "resume", &b]);
    goes_on(c, "end.b");
    c.ok(&["scontrol", "suspend", &b]);
    c.ok(&["scancel", "--signal=KILL", "--full", &b]);
    assert!(c.end_of(&b).starts_with("FAILED"), "it is killed although it is stopped");
}

fn births(c: &Cluster) {
    let (a, b) = (counting(c, "birth.a", &[]), counting(c, "birth.b", &[]));
    // Half of these begin while others have their turn.
    for _ in 0..6 {
        assert_eq!(c.ok(&["srun", &format!("--jobid={a}"), "-N4", "-n4", "echo", "born"]), "born\nborn\nborn\nborn");
    }
    c.ok(&["scancel", &b]);
    c.end_of(&b);
    c.ok(&["scontrol", "suspend", &a]);
    stands(c, "birth.a");
    std::thread::scope(|scope| {
        let late = scope.spawn(|| c.ok(&["srun", &format!("--jobid={a}"), "-N4", "-n4", "echo", "born"]));
        let other = c.sbatch(&["-p", "gang", "-N4", "-n16", "-o", "/dev/null", "--wrap", "srun true"]);
        let end = c.end_of(&other);
        let waited = !late.is_finished();
        c.ok(&["scontrol", "resume", &a]);
        assert_eq!(late.join().unwrap(), "born\nborn\nborn\nborn");
        assert!(waited, "it had no turn");
        assert_eq!(end, "COMPLETED|0:0");
    });
    goes_on(c, "birth.a");
    c.ok(&["scancel", &a]);
    c.end_of(&a);
}

fn deaths(c: &Cluster) {
    let (a, b) = (counting(c, "death.a", &[]), counting(c, "death.b", &[]));
    let both_go_on = || {
        goes_on(c, "death.a");
        goes_on(c, "death.b");
    };
    both_go_on();
    // The switcher: another one takes its place.
    let node = daemon(c, "node-n1");
    let old = child(node, "--switcher").expect("the node has one");
    kill(old);
    both_go_on();
    c.until("there is another switcher", || child(node, "--switcher").is_some_and(|new| new != old));
    // The controller: nodes go on by themselves.
    kill(daemon(c, "controller"));
    both_go_on();
    c.ok(&["squall", "up", "--state", &c.path("state")]);
    // The node daemon: its jobs run, whoever's turn it is, until there is another one.
    kill(daemon(c, "node-n1"));
    both_go_on();
    c.ok(&["squall", "up", "--state", &c.path("state")]);
    both_go_on();
    c.until("the new node daemon has a switcher", || child(daemon(c, "node-n1"), "--switcher").is_some());
    // The step daemon: its tasks take turns on.
    let folder = format!("/steps/{a}.1.batch");
    let (step, _) = c.processes().into_iter().find(|(_, line)| line.trim_end().ends_with(&folder)).expect("it lives");
    kill(step);
    both_go_on();
    c.ok(&["scancel", &a, &b]);
    c.end_of(&a);
    c.end_of(&b);
    c.until("nothing of them is left", || !c.processes().iter().any(|(_, line)| line.contains("death.")));
}

fn covered(c: &Cluster) {
    let low = counting(c, "cover.low", &["-p", "low"]);
    goes_on(c, "cover.low");
    let over = |go: &str| {
        let wait = format!("while ! test -e {go}; do sleep 0.05; done");
        c.sbatch(&["-p", "high", "-N4", "-n16", "-o", "/dev/null", "--wrap", &wait])
    };
    let shown = |job: &str| c.ok(&["squeue", "-h", "-o", "%t", "-j", job]);
    let booked = |job: &str| c.ok(&["sacct", "-n", "-X", "-P", "-o", "State", "-j", job]);
    let high = over("cover.1");
    c.until("one stops for the other", || (shown(&low), shown(&high)) == ("S".into(), "R".into()));
    stands(c, "cover.low");
    assert_eq!((booked(&low), booked(&high)), ("SUSPENDED".into(), "RUNNING".into()));
    assert_eq!(c.ok(&["squeue", "-h", "-t", "S", "-o", "%i"]), low);
    kill(daemon(c, "controller"));
    c.ok(&["squall", "up", "--state", &c.path("state")]);
    stands(c, "cover.low");
    c.write("cover.1", "");
    assert_eq!(c.end_of(&high), "COMPLETED|0:0");
    goes_on(c, "cover.low");
    assert_eq!((shown(&low), booked(&low)), ("R".into(), "RUNNING".into()));
    let high = over("cover.2");
    c.until("it stops again", || shown(&low) == "S");
    stands(c, "cover.low");
    c.ok(&["scancel", &low]);
    assert!(c.end_of(&low).starts_with("CANCELLED"), "at once");
    assert_eq!(shown(&high), "R");
    c.write("cover.2", "");
    assert_eq!(c.end_of(&high), "COMPLETED|0:0");
}

fn down(c: &Cluster) {
    // They are here when the cluster ends, which looks for what is left.
    let (a, _) = (counting(c, "down.a", &[]), counting(c, "down.b", &[]));
    c.ok(&["scontrol", "suspend", &a]);
}
