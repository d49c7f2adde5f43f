//! Several controllers under faults, with real processes: nothing acknowledged is lost, nothing runs twice, and another
//! controller leads within seconds.
//!
//! The site is made of network namespaces: three controllers, three members of etcd, a node, and a login host from which
//! users submit all the time. What is counted is as in the test `crash`, whose load and audit these are. Each round
//! does one fault, and measures the time until a submission that began after it is acknowledged.
//!
//! `SQUALL_DRILL_TAKEOVERS` sets how often a controller has to begin to lead, `SQUALL_CRASH_BINARY` another binary,
//! `SQUALL_CRASH_SEED` the moments and the order of faults, `SQUALL_DRILL_FAULT` picks those with that in their name.

#![expect(clippy::unwrap_used, reason = "a test says what failed by failing")]

#[path = "../crash/audit.rs"]
mod audit;
mod cluster;
mod faults;
mod fences;
mod figures;
mod heads;
mod joins;
mod keys;
#[path = "../crash/load.rs"]
#[expect(dead_code, reason = "nothing waits for refusals here")]
mod load;
#[path = "../crash/moments.rs"]
mod moments;
mod network;
mod runs;
#[path = "../harness/traces.rs"]
#[expect(dead_code, reason = "logs are elsewhere here")]
mod traces;

use std::time::{Duration, Instant};

use cluster::Cluster;
use faults::{Fault, From};
use figures::Figures;
use load::{Load, Submission, Submitter};
use moments::Moments;
use network::Host;
use runs::Runs;

/// How often a controller has to begin to lead unless SQUALL_DRILL_TAKEOVERS says otherwise.
const TAKEOVERS: usize = 10;
/// Longest time until something is acknowledged after a fault, however slow the machine.
const LONGEST: Duration = Duration::from_mins(1);

#[test]
fn controllers_take_over_under_load() {
    let Some(mut cluster) = Cluster::start("heads") else { return };
    let mut moments = Moments::seeded();
    let takeovers = std::env::var("SQUALL_DRILL_TAKEOVERS").ok().and_then(|n| n.parse().ok()).unwrap_or(TAKEOVERS);
    // A head passes on what its own users submit, whichever controller leads.
    let clients = [Host::Login, Host::Login, Host::Head(1)].map(|host| cluster.submitter_on(host));
    let (load, runs) = (Load::of(clients.into()), Runs::start(&cluster));
    let (mut figures, mut probes, mut faults) = (Figures::default(), Vec::new(), Vec::new());
    let before = cluster.reigns();
    while cluster.reigns() - before < takeovers || !faults.is_empty() {
        if faults.is_empty() {
            faults = order(&mut moments);
        }
        let fault = faults.pop().unwrap();
        let (time, tries) = round(&mut cluster, fault, &mut moments, probes.len());
        figures.add(fault, time);
        probes.extend(tries);
    }
    let reigns = cluster.reigns() - before;
    let mut record = load.stop();
    let runs = runs.stop();
    record.extend(probes);
    cluster.wait_until_idle();
    eprintln!("a controller began to lead {reigns} times");
    figures.print();
    agree(&cluster, &record, runs);
}

/// The kinds of faults in the order of this seed.
fn order(moments: &mut Moments) -> Vec<Fault> {
    let wanted = std::env::var("SQUALL_DRILL_FAULT").unwrap_or_default();
    let mut left: Vec<Fault> = Fault::ALL.into_iter().filter(|fault| fault.name().contains(&wanted)).collect();
    let mut order = Vec::new();
    while !left.is_empty() {
        let at = moments.below_us(left.len() as u32).as_micros() as usize;
        order.push(left.swap_remove(at));
    }
    order
}

/// Does a fault and makes it good. Returns the time until a submission was acknowledged, and all that were tried.
fn round(cluster: &mut Cluster, fault: Fault, moments: &mut Moments, number: usize) -> (Duration, Vec<Submission>) {
    cluster.await_leader();
    std::thread::sleep(moments.next());
    let (leader, member) = (cluster.leader(), fault.member(cluster, moments));
    let mut submitter = cluster.submitter();
    // Such a job runs while the next faults happen.
    "sleep 5".clone_into(&mut submitter.work);
    submitter.pause = Duration::ZERO;
    let lasts = fault.lasts(moments);
    let begun = Instant::now();
    fault.begin(cluster, leader, member);
    let ((acknowledged, tries), repaired) = std::thread::scope(|scope| {
        let probe = scope.spawn(|| until_acknowledged(&submitter, number));
        if fault == Fault::TwoLeadersKilled {
            another(cluster, leader);
        }
        std::thread::sleep(lasts);
        let repaired = Instant::now();
        fault.repair(cluster, leader, member);
        (probe.join().unwrap(), repaired)
    });
    assert!(acknowledged.is_some(), "nothing is acknowledged after: {}: {tries:?}\n{}", fault.name(), cluster.logs());
    cluster.watch();
    let since = if fault.counts_from() == From::Repair { repaired } else { begun };
    let time = acknowledged.unwrap().saturating_duration_since(since);
    eprintln!("{} ({}, {} ms): {} ms", fault.name(), leader.name(), lasts.as_millis(), time.as_millis());
    (time, tries)
}

/// Kills the controller that leads after `first`, too, and starts it again.
fn another(cluster: &mut Cluster, first: Host) {
    let end = Instant::now() + LONGEST;
    let mut second = cluster.leader();
    while second == first {
        assert!(Instant::now() < end, "no other controller leads\n{}", cluster.logs());
        second = cluster.leader();
    }
    cluster.kill(second);
    cluster.begin(second);
}

/// Submits until that is acknowledged. Returns when it was, and all tries.
fn until_acknowledged(submitter: &Submitter, number: usize) -> (Option<Instant>, Vec<Submission>) {
    let (end, mut tries) = (Instant::now() + LONGEST, Vec::new());
    while Instant::now() < end {
        let submission = submitter.submit(&format!("probe-{number}-{}", tries.len()), 0);
        let acknowledged = submission.id.is_some();
        tries.push(submission);
        if acknowledged {
            return (Some(Instant::now()), tries);
        }
    }
    (None, tries)
}

/// All controllers say the same, one after the other, and it is what users have seen.
fn agree(cluster: &Cluster, record: &[Submission], runs: runs::Record) {
    eprintln!("srun: {} ran, {} refused, {} wrong", runs.jobs.len(), runs.refused.len(), runs.wrong.len());
    let ran: Vec<(u32, &str)> = runs.jobs.iter().map(|job| (*job, "FAILED")).collect();
    let mut wrong = runs.wrong;
    for head in Host::heads() {
        cluster.hand_over(head);
        audit::check(cluster, record, &format!("{} leads", head.name()));
        audit::report(cluster, "srun", &ran, std::mem::take(&mut wrong));
    }
}
