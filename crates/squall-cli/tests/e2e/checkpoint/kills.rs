//! Whatever is killed while jobs are checkpointed and restored, their results are right.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process};

use super::{cluster, counted, gone, rooms, state};
use crate::harness::{Cluster, PATIENCE, text};
use crate::traces::processes;

/// Counts until a file is there, and then says the sum; ends with exit code 7. It takes memory of `$1` bytes, so that its
/// dumps take long enough to be killed amid.
pub(super) const COUNTER: &str = "#!/bin/bash\n\
    x=$(head -c \"${1:-1}\" /dev/zero | tr '\\0' x)\n\
    ( i=0; s=0; until [ -e enough ]; do i=$((i+1)); s=$((s+i)); echo $i; sleep 0.05; done; echo sum $s ) | cat\n\
    exit 7\n";

/// Kills that one test makes, unless SQUALL_CHECKPOINT_KILLS says otherwise.
const KILLS: u32 = 20;
/// Time for each of them; after all of it no more are made, if there was half of them.
const TIME: Duration = Duration::from_millis(1250);

/// Returns the id of the CRIU that is at work on a job of the cluster. None: none is.
pub(super) fn criu(c: &Cluster) -> Option<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // The processes that it restores look like it, but began after it.
    let began = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse::<u64>().ok()
    };
    let at_work = pids.filter(|pid| is_criu(c, *pid)).filter_map(|pid| Some((began(pid)?, pid)));
    at_work.min().map(|(_, pid)| pid)
}

fn is_criu(c: &Cluster, pid: u32) -> bool {
    // A trial of CRIU works in another folder.
    let trial = |cwd: &PathBuf| cwd.file_name().is_some_and(|name| name.to_string_lossy().starts_with("trial"));
    let of_job = |cwd: &PathBuf| cwd.starts_with(c.dir.join("checkpoints")) && !trial(cwd);
    let at_work = fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| of_job(&cwd));
    at_work && fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name != "squall\n")
}

/// Returns the id of the batch supervisor while it serves jobs; of two, that of the first node.
pub(super) fn supervisor(c: &Cluster) -> Option<u32> {
    supervisors(c).first().copied()
}

/// Returns the ids of the batch supervisors and step daemons.
fn supervisors(c: &Cluster) -> Vec<u32> {
    let serves = |(_, line): &(u32, String)| line.starts_with("squall step --spool ");
    processes(&c.dir).into_iter().filter(serves).map(|(pid, _)| pid).collect()
}

fn kill(pid: u32) -> bool {
    Pid::from_raw(pid as i32).is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
}

/// A sequence of numbers that look random.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % n
    }

    fn pause(&mut self, most_ms: u64) {
        std::thread::sleep(Duration::from_millis(self.below(most_ms)));
    }
}

/// Kills one of all that takes part in a checkpoint, and returns its name. None: it was not there.
fn kill_one(c: &Cluster, nodes: &[&str], chance: &mut Chance) -> Option<&'static str> {
    match chance.below(8) {
        0 => {
            c.kill("controller");
            c.said(&["up"]);
            Some("controller")
        }
        1 | 2 => {
            let node = nodes[chance.below(nodes.len() as u64) as usize];
            c.kill(&format!("node-{node}"));
            c.said(&["up"]);
            Some("node daemon")
        }
        3 => {
            let found = supervisors(c);
            let at = chance.below(found.len().min(nodes.len()).max(1) as u64) as usize;
            found.get(at).filter(|pid| kill(**pid)).map(|_| "step daemon")
        }
        _ => {
            let until = Instant::now() + Duration::from_millis(500);
            while criu(c).is_none() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            chance.pause(150);
            // It may have ended since it was found, and what it has restored must not be killed.
            criu(c).filter(|pid| is_criu(c, *pid) && kill(*pid)).map(|_| "CRIU")
        }
    }
}

/// Waits for the end of a command, for some seconds.
fn end(mut command: Child) {
    let until = Instant::now() + Duration::from_secs(10);
    while command.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            command.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// CRIU, the step daemon, the node daemon and the controller are killed at random moments of freeze, dump, thaw, commit and
/// restore. Every line of the output is there once, and the job ends as it would have without checkpoints.
#[test]
fn kills_at_random_moments_change_no_result() {
    let Some(c) = cluster("random-script") else { return };
    c.write("job.sh", COUNTER);
    change_no_result(&c, &["n1"], KILLS);
}

/// The same of a job that counts in a step of `srun`.
#[test]
fn kills_at_random_moments_change_no_result_of_a_step() {
    let Some(c) = cluster("random-step") else { return };
    c.write("counter.sh", COUNTER);
    c.script("job.sh", "exec 2>>errors\nSQUALL srun -n 1 bash counter.sh $1");
    change_no_result(&c, &["n1"], KILLS / 2);
}

/// Submits `job.sh` on all of the nodes, and makes so many kills while it is checkpointed and restored.
pub(super) fn change_no_result(c: &Cluster, nodes: &[&str], kills: u32) {
    let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let mut chance = Chance(seed);
    // A job without a checkpoint begins again, and its output too.
    let asks = ["--requeue", "--open-mode=truncate", "--checkpoint=signal"];
    let count = nodes.len().to_string();
    c.ok(&[&["sbatch", "-N", &count], &asks[..], &["-o", "out", "job.sh", "40000000"]].concat());
    let most = std::env::var("SQUALL_CHECKPOINT_KILLS").map_or(kills, |text| text.parse().unwrap());
    let (begin, mut kills, mut seen) = (Instant::now(), 0, BTreeSet::new());
    // On a slow machine half of the kills must do, but these take their time.
    let is_time = |kills| begin.elapsed() < TIME * most * if kills < most / 2 { 8 } else { 1 };
    let mut told = String::new();
    while kills < most && is_time(kills) {
        let verb = ["create", "create", "vacate", "restart"][chance.below(4) as usize];
        writeln!(told, "{verb} at {:?}", SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()).unwrap();
        let mut order = c.command(&["scontrol", "checkpoint", verb, "1"]);
        let said = fs::File::options().append(true).create(true).open(c.dir.join("orders")).unwrap();
        let order = order.stdout(Stdio::null()).stderr(said).spawn().unwrap();
        chance.pause(300);
        let victim = kill_one(c, nodes, &mut chance);
        writeln!(told, "killed {victim:?} at {:?}", SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap())
            .unwrap();
        kills += u32::from(victim.is_some());
        end(order);
        seen.append(&mut rooms(c));
        chance.pause(200);
    }
    awaits_result(c, || format!("seed {seed}, {kills} kills\n{told}"));
    assert!(kills >= most / 2, "seed {seed}, {kills} kills\n{told}");
    gone(c, &seen);
}

/// Tells the job that it is enough, and checks its end: each line of its output is there once, and its exit code is its own.
/// `more`: what a failure shows.
pub(super) fn awaits_result(c: &Cluster, more: impl Fn() -> String) {
    c.write("enough", "");
    let goes_on = |stands: &str| ["PENDING", "RUNNING", "COMPLETING"].iter().any(|word| stands.starts_with(word));
    let until = Instant::now() + PATIENCE;
    let mut stands = state(c);
    while goes_on(&stands) {
        assert!(Instant::now() < until, "it does not end\n{}\n{}", more(), stand(c));
        std::thread::sleep(Duration::from_millis(50));
        stands = state(c);
    }
    let out = c.read("out");
    let lines: Vec<&str> = out.lines().collect();
    let said = || {
        let read = |name| fs::read_to_string(c.dir.join(name)).unwrap_or_default();
        let errors = [read("errors"), read("orders")].concat();
        format!("{}\n{stands}\n{out}\n{errors}\n{}", more(), text(&c.squall(&["scontrol", "show", "job", "1"])))
    };
    let Some((sum, numbers)) = lines.split_last() else { panic!("{}", said()) };
    let expected: Vec<String> = (1..=numbers.len()).map(|n| n.to_string()).collect();
    assert_eq!(numbers, expected, "{}", said());
    assert_eq!(*sum, format!("sum {}", numbers.len() * (numbers.len() + 1) / 2), "{}", said());
    let rows = c.ok(&["sacct", "-X", "-n", "-P", "-j", "1", "-o", "State,ExitCode"]);
    assert_eq!(rows, "FAILED|7:0", "{}", said());
}

/// Returns how the processes of a cluster stand, and its jobs.
fn stand(c: &Cluster) -> String {
    let of = |pid: u32, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let mut told = text(&c.squall(&["scontrol", "show", "job", "1"]));
    for (pid, line) in processes(&c.dir) {
        let group = of(pid, "cgroup").lines().filter_map(|line| line.strip_prefix("0::")).collect::<String>();
        let frozen = fs::read_to_string(format!("/sys/fs/cgroup/unified{group}/cgroup.events")).unwrap_or_default();
        let frozen = frozen.lines().last().unwrap_or_default().to_owned();
        let (stat, at) = (of(pid, "stat"), of(pid, "wchan"));
        writeln!(told, "{line}: {stat} {at} {group} {frozen}").unwrap();
    }
    for entry in fs::read_dir(c.state().join("node/n1/steps")).into_iter().flatten().flatten() {
        let pids = fs::read_to_string(entry.path().join("pids")).unwrap_or_default();
        writeln!(told, "{}: {:?}", entry.path().display(), pids.lines().next()).unwrap();
    }
    told
}

/// Has CRIU killed while it dumps a job.
fn kill_dump(c: &Cluster, id: &str) {
    c.write("kill", "");
    c.fails(&["scontrol", "checkpoint", "create", id], "CRIU was killed");
}

/// A job of which CRIU was killed goes back to its last checkpoint; without one it begins again, or fails if it may not be
/// requeued. Users see why.
#[test]
fn a_killed_dump_sends_the_job_back_and_says_so() {
    let Some(c) = cluster("sent-back") else { return };
    c.ok(&["sbatch", "--requeue", "--open-mode=truncate", "-o", "out", "count.sh", "60"]);
    c.until("it counts", || counted(&c, 5));
    kill_dump(&c, "1");
    let shown = c.ok(&["scontrol", "show", "job", "1"]);
    assert!(shown.contains("CRIU_was_killed") && shown.contains("begins_again_from_the_start"), "{shown}");
    c.until("it counts again", || state(&c).starts_with("RUNNING") && counted(&c, 5));
    c.ok(&["scontrol", "checkpoint", "create", "1"]);
    kill_dump(&c, "1");
    let shown = c.ok(&["scontrol", "show", "job", "1"]);
    assert!(shown.contains("goes_back_to_checkpoint_1"), "{shown}");
    c.until("it has ended", || state(&c).starts_with("FAILED"));
    assert_eq!(super::numbers(&c), (1..=60).collect::<Vec<_>>());
    c.ok(&["sbatch", "--no-requeue", "-o", "other", "count.sh", "600"]);
    c.until("it counts", || c.read("other").lines().count() > 5);
    kill_dump(&c, "2");
    c.until("it has ended", || c.ok(&["squeue", "-h", "-j", "2", "-t", "all", "-o", "%T"]) == "FAILED");
    let why = c.ok(&["scontrol", "show", "job", "2"]);
    assert!(why.contains("CRIU_was_killed") && why.contains("may_not_be_requeued"), "{why}");
    assert!(c.read("other").contains("A DUMP OF IT WAS KILLED"), "{}", c.read("other"));
}
