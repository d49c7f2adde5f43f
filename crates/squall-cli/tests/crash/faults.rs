//! What no kill shows: ends that race with `down`, wall clocks that are set, nodes that are stopped for longer than they may be
//! silent, backups that are restored. `SQUALL_CRASH_EVENTS` says how many of each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::audit;
use crate::cluster::{Cluster, Victim};
use crate::moments::Moments;

/// How many events of a kind unless SQUALL_CRASH_EVENTS says otherwise.
const EVENTS: usize = 8;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_mins(2);

/// Reporting delay. If a script ended less than this before `down`, its end may not have reached the controller, and
/// the controller may cancel the job.
const RACE: Duration = Duration::from_millis(200);

/// Nodes that fall silent together.
const SILENT: usize = 12;

/// How many events of a kind.
pub(crate) fn events() -> usize {
    std::env::var("SQUALL_CRASH_EVENTS").ok().and_then(|n| n.parse().ok()).unwrap_or(EVENTS)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

impl Cluster {
    /// Runs a command that must succeed; what it says.
    fn done(&self, args: &[&str]) -> String {
        let output = self.squall(args);
        assert!(output.status.success(), "{args:?}: {}\n{}", text(&output), self.logs());
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
    /// Submits a script; the job's id.
    fn submit(&self, options: &[&str], script: &str) -> u32 {
        let args = [&["sbatch", "--parsable", "--output=/dev/null"], options, &["--wrap", script]].concat();
        self.done(&args).parse().unwrap()
    }
    /// Waits until a command says what it should.
    fn until(&self, args: &[&str], holds: impl Fn(&str) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            let said = text(&self.squall(args));
            if holds(said.trim()) {
                return;
            }
            assert!(Instant::now() < end, "{args:?} still says {said}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    /// Waits until each of these jobs has left a mark.
    fn until_marked(&self, jobs: &[u32]) {
        let end = Instant::now() + PATIENCE;
        while let Some(job) = jobs.iter().find(|job| self.marks_of(**job).is_empty()) {
            assert!(Instant::now() < end, "job {job} does not begin\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    /// The lines that a job has left.
    fn marks_of(&self, job: u32) -> Vec<String> {
        let text = fs::read_to_string(self.marks().join(job.to_string())).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
    /// A script's command that leaves a line: what `echo` makes of these words.
    fn mark(&self, words: &str) -> String {
        format!("echo {words} >> {}/$SLURM_JOB_ID", self.marks().display())
    }
    fn signal(&self, daemon: &str, signal: &str) {
        let pid = fs::read_to_string(self.state().join("run").join(daemon)).unwrap();
        let pid = pid.split_whitespace().next().unwrap();
        assert!(Command::new("kill").args([signal, pid]).status().unwrap().success());
    }
    /// Where jobs wait until [`Self::open`].
    fn gate(&self) -> PathBuf {
        let gate = self.state().with_extension("gate");
        if !gate.exists() {
            assert!(Command::new("mkfifo").args(["-m", "666"]).arg(&gate).status().unwrap().success());
        }
        gate
    }
    /// A script's command that waits at the gate. One that comes after it was opened goes on at once.
    fn wait_at(gate: &Path) -> String {
        let gate = gate.display();
        format!("[ ! -p {gate} ] || read go < {gate}")
    }
    /// All jobs at the gate go on.
    fn open(gate: &Path) {
        let opened = fs::File::options().write(true).open(gate).unwrap();
        fs::remove_file(gate).unwrap();
        drop(opened);
    }
}

/// Time since 1970, nanoseconds, as `date +%s%N` tells it.
fn now_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()
}

fn last_ns(marks: &[String]) -> u128 {
    marks.last().and_then(|line| line.parse().ok()).unwrap_or_default()
}

#[test]
fn a3_jobs_that_end_while_the_cluster_goes_down_do_not_run_again() {
    let cluster = Cluster::new("down-race");
    let mut moments = Moments::seeded();
    cluster.up();
    let (mut races, mut all, mut wrong) = (0, Vec::new(), Vec::new());
    while races < events() {
        let gate = cluster.gate();
        let jobs: Vec<u32> = (0..16)
            .map(|n| {
                let (begins, wait) = (cluster.mark("begins"), Cluster::wait_at(&gate));
                // After the trap it ends by itself: it hears no TERM any more.
                let end = cluster.mark("$(date +%s%N)");
                let script = format!("{begins}; {wait}; sleep 0.{:03}; trap '' TERM; {end}; exit 0", n * 15);
                cluster.submit(&["-n1", "--requeue"], &script)
            })
            .collect();
        cluster.until_marked(&jobs);
        Cluster::open(&gate);
        std::thread::sleep(moments.next());
        let from = now_ns() - RACE.as_nanos();
        cluster.done(&["down"]);
        let until = now_ns();
        races += jobs.iter().filter(|job| (from..until).contains(&last_ns(&cluster.marks_of(**job)))).count();
        cluster.up();
        cluster.wait_until_idle();
        for job in &jobs {
            let ends = cluster.marks_of(*job).into_iter().filter(|line| line != "begins").count();
            if ends != 1 {
                wrong.push(format!("job {job} came to its end {ends} times"));
            }
        }
        all.extend(jobs.into_iter().map(|job| (job, "COMPLETED")));
    }
    audit::report(&cluster, &format!("{races} ends that race with down"), &all, wrong);
}

#[test]
fn a5_a_wall_clock_that_is_set_freezes_nothing_and_ends_nothing() {
    let cluster = Cluster::new("clock");
    let clock = cluster.state().with_extension("clock");
    let mut moments = Moments::seeded();
    fs::write(&clock, "0").unwrap();
    let up = || cluster.up_with(&[("SQUALL_TEST_CLOCK", clock.as_os_str())]);
    up();
    let (mut steps, mut all, mut took, mut wrong) = (0, Vec::new(), Vec::new(), Vec::new());
    // A limit is whole minutes.
    let limited: Vec<u32> = (0..4).map(|_| cluster.submit(&["--time=1"], "sleep 200")).collect();
    while steps < events() {
        // `sbatch` goes by the machine's clock, as the controller does until the first step.
        let mut ahead_s = 0_i64;
        fs::write(&clock, "0").unwrap();
        let (begins, ends) = (cluster.mark("begins"), cluster.mark("ends"));
        let asked = now_ns();
        let later = cluster.submit(&["--begin=now+3"], &cluster.mark("$(date +%s%N)"));
        let fine = cluster.submit(&["--time=10"], &format!("{begins}; sleep 6; {ends}"));
        cluster.until_marked(&[fine]);
        for step in 0..20 {
            // Ahead and back, by an hour and by minutes.
            let by_s = if step % 4 < 2 { 3600 } else { 120 } + moments.below_us(60).as_micros() as i64;
            ahead_s += if ahead_s > 0 { -by_s } else { by_s };
            fs::write(&clock, (ahead_s * 1_000_000).to_string()).unwrap();
            std::thread::sleep(Duration::from_millis(100) + moments.below_us(200_000));
            if step == 9 {
                cluster.kill(Victim::Controller);
                up();
            }
            steps += 1;
        }
        cluster.until(&["squeue", "-h", "-j", &format!("{later},{fine}")], str::is_empty);
        let waited_s = last_ns(&cluster.marks_of(later)).saturating_sub(asked) / 1_000_000_000;
        // The controller's seconds are whole.
        if !(2..30).contains(&waited_s) {
            wrong.push(format!("job {later} should begin after 3 s, it did after {waited_s}"));
        }
        all.extend([(later, "COMPLETED"), (fine, "COMPLETED")]);
        took.push((fine, 5));
    }
    cluster.wait_until_idle();
    all.extend(limited.iter().map(|job| (*job, "TIMEOUT")));
    took.extend(limited.iter().map(|job| (*job, 58)));
    for (job, least_s) in took {
        let elapsed = cluster.done(&["sacct", "-nXP", "-j", &job.to_string(), "-o", "ElapsedRaw"]);
        if !elapsed.parse().is_ok_and(|elapsed| (least_s..least_s + 30).contains(&elapsed)) {
            wrong.push(format!("job {job}: elapsed {elapsed} s"));
        }
    }
    audit::report(&cluster, &format!("{steps} steps of the clock"), &all, wrong);
    fs::remove_file(&clock).unwrap();
}

#[test]
fn a2_a_node_that_is_stopped_for_too_long_keeps_its_jobs() {
    let count = SILENT.min(events());
    let nodes = format!("[[nodes]]\nname = \"c[0-{count}]\"\ncpus = 2\nforce = true\n");
    let cluster = Cluster::configured("silence", 0, &format!("node_timeout_s = 30\nnode_lost_s = 30\n{nodes}"));
    cluster.up();
    let (mut silences, mut all, mut wrong) = (0, Vec::new(), Vec::new());
    while silences < events() {
        let gate = cluster.gate();
        let script = |work: &str| format!("{}; {work}; {}", cluster.mark("begins"), cluster.mark("ends"));
        let mut jobs = Vec::new();
        for node in 1..=count {
            // One ends in the silence, the other lives through it.
            let node = format!("c{node}");
            jobs.push(cluster.submit(&["-w", &node, "--requeue"], &script("sleep 2")));
            jobs.push(cluster.submit(&["-w", &node, "--requeue"], &script(&Cluster::wait_at(&gate))));
        }
        cluster.until_marked(&jobs);
        (1..=count).for_each(|node| cluster.signal(&format!("node-c{node}.pid"), "-STOP"));
        let waiting = |said: &str| said.lines().filter(|line| line.contains("jobs wait until it answers")).count();
        cluster.until(&["sinfo", "-hN", "-o", "%N %E"], |said| waiting(said) == count);
        silences += count;
        jobs.push(cluster.submit(&["-w", "c0"], &script("true")));
        cluster.until_marked(&jobs[2 * count..]);
        (1..=count).for_each(|node| cluster.signal(&format!("node-c{node}.pid"), "-CONT"));
        Cluster::open(&gate);
        cluster.wait_until_idle();
        for job in jobs {
            let marks = cluster.marks_of(job);
            if marks != ["begins", "ends"] {
                wrong.push(format!("job {job} left {marks:?}"));
            }
            all.push((job, "COMPLETED"));
        }
    }
    audit::report(&cluster, &format!("{silences} silences beyond node_lost_s"), &all, wrong);
}

#[test]
fn a8_a_restored_backup_is_noticed_and_gives_no_id_again() {
    let cluster = Cluster::new("backup");
    let (state, copy) = (cluster.state(), cluster.state().with_extension("backup"));
    let place = state.to_string_lossy();
    fs::create_dir_all(&copy).unwrap();
    cluster.up();
    let (mut restored, mut all, mut wrong, mut highest) = (0, Vec::new(), Vec::new(), 0);
    while restored < events().div_ceil(5) {
        all.push((cluster.submit(&[], "true"), "COMPLETED"));
        cluster.wait_until_idle();
        // Accounting has written all of it.
        cluster.done(&["sacct", "-nX"]);
        copy_controller(&state, &copy);
        // As many lives later the disk breaks.
        for _ in 0..restored % 3 {
            cluster.kill(Victim::Controller);
            cluster.up();
        }
        let gate = cluster.gate();
        let script = format!("{}; {}; {}", cluster.mark("begins"), Cluster::wait_at(&gate), cluster.mark("ends"));
        let lost: Vec<u32> = (0..4).map(|_| cluster.submit(&[], &script)).collect();
        cluster.until_marked(&lost);
        highest = lost.iter().copied().max().unwrap_or_default().max(highest);
        cluster.kill(Victim::Controller);
        copy_controller(&copy, &state);
        let refused = text(&cluster.squall(&["up", "--state", &place]));
        if !refused.contains("older than what nodes have seen") || !refused.contains("--accept-loss") {
            wrong.push(format!("without --accept-loss: {refused}"));
        }
        cluster.done(&["up", "--state", &place, "--accept-loss"]);
        restored += 1;
        let next = cluster.submit(&["--hold"], "true");
        if next <= highest {
            wrong.push(format!("id {next} was given after {highest}"));
        }
        cluster.done(&["scancel", &next.to_string()]);
        all.push((next, "CANCELLED"));
        let named = |said: &str| lost.iter().all(|job| said.contains(&job.to_string()));
        cluster.until(&["sinfo", "-hR", "-o", "%E"], |said| said.contains("does not know") && named(said));
        Cluster::open(&gate);
        let end = Instant::now() + PATIENCE;
        while lost.iter().any(|job| cluster.marks_of(*job).len() < 2) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        for job in lost {
            let marks = cluster.marks_of(job);
            if marks != ["begins", "ends"] {
                wrong.push(format!("job {job}, which the backup does not know, left {marks:?}"));
            }
        }
        cluster.done(&["scontrol", "update", "nodename=c1", "state=resume"]);
    }
    audit::report(&cluster, &format!("{restored} restored backups"), &all, wrong);
    fs::remove_dir_all(&copy).unwrap();
}

/// Copies all that a backup holds of the controller's state; what is there is replaced.
fn copy_controller(from: &Path, to: &Path) {
    for name in ["journal", "accounts.db", "accounts.db-wal", "accounts.db-shm"] {
        // What is not there need not be removed.
        drop(fs::remove_dir_all(to.join(name)).or_else(|_| fs::remove_file(to.join(name))));
        if from.join(name).exists() {
            assert!(Command::new("cp").arg("-a").arg(from.join(name)).arg(to).status().unwrap().success());
        }
    }
}
