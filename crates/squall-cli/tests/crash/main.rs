//! kill -9 of every daemon under load, with real processes: nothing acknowledged is lost, nothing runs twice.
//!
//! What is counted is the client's own record (what `sbatch` printed) and the files that the jobs themselves
//! write; Squall's word (`sacct`) is compared with both. `SQUALL_CRASH_KILLS` sets how often each victim is killed,
//! `SQUALL_CRASH_LAUNCHES` how often a node daemon is at a launch, `SQUALL_CRASH_EVENTS` how many clocks are set, ends race with
//! `down`, nodes are silent and spools are rolled back, and a fifth as many backups are restored;
//! `SQUALL_CRASH_BINARY` another binary, `SQUALL_CRASH_SEED` the moments.

#![expect(clippy::unwrap_used, reason = "a test says what failed by failing")]

mod audit;
mod cluster;
mod damage;
mod faults;
mod launch;
mod load;
mod moments;
#[path = "../harness/traces.rs"]
mod traces;

use std::time::Duration;

use cluster::{Cluster, Victim};
use load::Load;
use moments::Moments;

/// How often each victim is killed unless SQUALL_CRASH_KILLS says otherwise.
const KILLS: u32 = 6;

#[test]
fn controller_killed_under_load() {
    killed_under_load("controller", &[Victim::Controller]);
}

#[test]
fn node_daemon_killed_under_load() {
    killed_under_load("node", &[Victim::Node]);
}

#[test]
fn step_daemon_killed_under_load() {
    killed_under_load("step", &[Victim::Step]);
}

#[test]
fn zygote_killed_under_load() {
    killed_under_load("zygote", &[Victim::Zygote]);
}

#[test]
fn everything_killed_under_load() {
    killed_under_load("everything", &[Victim::Controller, Victim::Node, Victim::Step]);
}

#[test]
fn cells_and_front_killed_under_load() {
    kill_under_load("cells", &Cluster::of_cells("cells", 2), &[Victim::Cell(0), Victim::Front, Victim::Cell(1)]);
}

#[test]
fn everything_killed_while_jobs_are_leased() {
    let victims = [Victim::Controller, Victim::Node, Victim::Step, Victim::Zygote];
    kill_under_load("leases", &Cluster::with_leases("leases"), &victims);
}

#[test]
fn killed_on_a_full_disk() {
    // Room for the journal, a snapshot beside it and the accounting of all jobs that the load may submit, with their
    // environments; the filler takes what is left. A smaller disk fills up with the state itself.
    let Some(cluster) = Cluster::on_small_disk("full", 192 << 20) else {
        eprintln!("skipped: only root may mount a small disk");
        return;
    };
    let mut moments = Moments::seeded();
    cluster.up();
    let load = Load::start(&cluster, 2);
    std::thread::sleep(Duration::from_millis(500));
    cluster.fill_disk();
    // The journal has its room reserved: on a busy machine it takes a while until that is used up.
    load.until_refused("disk", Duration::from_mins(4));
    for kill in 0..kills() {
        std::thread::sleep(moments.next());
        // The disk is full for two kills, then free for one, and so on.
        match kill % 3 {
            2 => cluster.free_disk(),
            0 => cluster.fill_disk(),
            _ => {}
        }
        cluster.kill(Victim::Controller);
        cluster.up();
    }
    cluster.free_disk();
    std::thread::sleep(Duration::from_secs(1));
    let before = load.acknowledged();
    std::thread::sleep(Duration::from_secs(2));
    assert!(load.acknowledged() > before, "the space is back but submissions are still refused");
    let record = load.stop();
    cluster.wait_until_idle();
    audit::check(&cluster, &record, "full disk");
}

fn killed_under_load(name: &str, victims: &[Victim]) {
    kill_under_load(name, &Cluster::new(name), victims);
}

fn kill_under_load(name: &str, cluster: &Cluster, victims: &[Victim]) {
    let mut moments = Moments::seeded();
    cluster.up();
    let load = Load::start(cluster, 2);
    for kill in 0..kills() {
        std::thread::sleep(moments.next());
        cluster.kill(victims[kill as usize % victims.len()]);
        cluster.up();
    }
    std::thread::sleep(Duration::from_millis(300));
    let record = load.stop();
    cluster.wait_until_idle();
    audit::check(cluster, &record, name);
}

fn kills() -> u32 {
    std::env::var("SQUALL_CRASH_KILLS").ok().and_then(|k| k.parse().ok()).unwrap_or(KILLS)
}
