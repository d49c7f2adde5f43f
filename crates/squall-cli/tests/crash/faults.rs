//! What no kill shows: ends that race with `down`, wall clocks that are set, nodes that are stopped for longer than they may be
//! silent, a backup that is restored.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::cluster::Cluster;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_mins(2);

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
    fn submit(&self, options: &[&str], script: &str) -> String {
        let args = [&["sbatch", "--parsable", "--output=/dev/null"], options, &["--wrap", script]].concat();
        self.done(&args)
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
    fn until_state(&self, job: &str, state: &str) {
        self.until(&["sacct", "-nXP", "-j", job, "-o", "State"], |said| said == state);
    }
    /// How often a job has left a mark.
    fn marked(&self, job: &str) -> usize {
        fs::read_to_string(self.marks().join(job)).unwrap_or_default().lines().count()
    }
    fn signal(&self, daemon: &str, signal: &str) {
        let pid = fs::read_to_string(self.state().join("run").join(daemon)).unwrap();
        let pid = pid.split_whitespace().next().unwrap();
        assert!(Command::new("kill").args([signal, pid]).status().unwrap().success());
    }
}

#[test]
fn a3_jobs_that_end_while_the_cluster_goes_down_do_not_run_again() {
    let cluster = Cluster::new("down-race");
    cluster.up();
    for round in 0..3 {
        let jobs: Vec<String> = (0..16)
            .map(|n| {
                // From the second line on it ends by itself: it hears no TERM any more.
                let mark = cluster.marks();
                let script =
                    format!("sleep 0.{:02}; trap '' TERM; echo end >> {}/$SLURM_JOB_ID; exit 0", n * 6, mark.display());
                cluster.submit(&["-n1"], &script)
            })
            .collect();
        std::thread::sleep(Duration::from_millis(100 * (round + 1)));
        cluster.done(&["down"]);
        cluster.up();
        cluster.wait_until_idle();
        for job in &jobs {
            cluster.until_state(job, "COMPLETED");
            assert_eq!(cluster.marked(job), 1, "job {job} came to its end twice\n{}", cluster.logs());
        }
    }
}

#[test]
fn a5_a_wall_clock_that_is_set_freezes_nothing_and_ends_nothing() {
    let clock = std::env::temp_dir().join(format!("squall-crash-clock-{}", std::process::id()));
    fs::write(&clock, "0").unwrap();
    for seconds in [-3600_i64, 3600] {
        let cluster = Cluster::new(&format!("clock{seconds}"));
        cluster.up_with(&[("SQUALL_TEST_CLOCK", clock.as_os_str())]);
        let limited = cluster.submit(&["--time=0:03"], "sleep 60");
        let later = cluster.submit(&["--begin=now+3"], "true");
        let fine = cluster.submit(&["--time=10"], "sleep 8");
        cluster.until(&["squeue", "-h", "-j", &fine, "-o", "%T"], |said| said == "RUNNING");
        fs::write(&clock, (seconds * 1_000_000).to_string()).unwrap();
        cluster.until_state(&limited, "TIMEOUT");
        cluster.until_state(&later, "COMPLETED");
        cluster.until_state(&fine, "COMPLETED");
        let elapsed = cluster.done(&["sacct", "-nXP", "-j", &fine, "-o", "ElapsedRaw"]);
        assert!((7..30).contains(&elapsed.parse().unwrap()), "clock set by {seconds} s: elapsed {elapsed}");
        fs::write(&clock, "0").unwrap();
    }
    fs::remove_file(&clock).unwrap();
}

#[test]
fn a2_a_node_that_is_stopped_for_too_long_keeps_its_jobs() {
    let two = "node_timeout_s = 10\nnode_lost_s = 10\n[[nodes]]\nname = \"c[1-2]\"\ncpus = 1\nforce = true\n";
    let cluster = Cluster::configured("silence", 0, two);
    cluster.up();
    let mark = |job: &str| format!("echo {job} >> {}/$SLURM_JOB_ID; sleep 3", cluster.marks().display());
    let again = cluster.submit(&["-w", "c1", "--requeue"], &mark("again"));
    cluster.until(&["squeue", "-h", "-j", &again, "-o", "%T"], |said| said == "RUNNING");
    cluster.until(&["squeue"], |_| cluster.marked(&again) == 1);
    cluster.signal("node-c1.pid", "-STOP");
    cluster.until(&["sinfo", "-hR", "-o", "%E"], |said| said.contains("jobs wait until it answers"));
    let other = cluster.submit(&["-w", "c2"], "true");
    cluster.until_state(&other, "COMPLETED");
    cluster.signal("node-c1.pid", "-CONT");
    cluster.until_state(&again, "COMPLETED");
    assert_eq!(cluster.marked(&again), 1, "{}", cluster.logs());
}

#[test]
fn a8_a_restored_backup_is_noticed_and_gives_no_id_again() {
    let cluster = Cluster::new("backup");
    cluster.up();
    cluster.submit(&[], "true");
    cluster.wait_until_idle();
    cluster.done(&["down", "--keep-jobs"]);
    let (state, copy) = (cluster.state(), cluster.marks().join("backup"));
    fs::create_dir_all(&copy).unwrap();
    let copy_all = |from: &Path, to: &Path| {
        for name in ["journal", "accounts.db"] {
            assert!(Command::new("cp").arg("-a").arg(from.join(name)).arg(to).status().unwrap().success());
        }
    };
    copy_all(&state, &copy);
    for _ in 0..2 {
        cluster.up();
        cluster.kill(crate::cluster::Victim::Controller);
    }
    cluster.up();
    let runs = cluster.submit(&[], "sleep 4");
    cluster.until(&["squeue", "-h", "-j", &runs, "-o", "%T"], |said| said == "RUNNING");
    cluster.kill(crate::cluster::Victim::Controller);
    for name in ["journal", "accounts.db", "accounts.db-wal", "accounts.db-shm"] {
        drop(fs::remove_dir_all(state.join(name)).or_else(|_| fs::remove_file(state.join(name))));
    }
    copy_all(&copy, &state);
    let refused = text(&cluster.squall(&["up", "--state", &state.to_string_lossy()]));
    assert!(refused.contains("older than what nodes have seen") && refused.contains("--accept-loss"), "{refused}");
    cluster.done(&["up", "--state", &state.to_string_lossy(), "--accept-loss"]);
    let next: u32 = cluster.submit(&["--hold"], "true").parse().unwrap();
    assert!(next > runs.parse().unwrap(), "{next} after {runs}");
    cluster.until(&["sinfo", "-hR", "-o", "%E"], |said| said.ends_with(&format!("does not know: {runs}")));
    cluster.done(&["scancel", &next.to_string()]);
}
