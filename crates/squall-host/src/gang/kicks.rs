//! Holds the CPUs of this machine for the few microseconds in which jobs are switched by `cpu.idle`. One thread per
//! CPU, of higher priority than all ordinary ones, sleeps until the next slot or until it is woken, occupies its CPU
//! while the switches are made, and sleeps again.
//!
//! There are two reasons. The kernel applies `cpu.idle` when it next picks a task, which may be as late as its next
//! tick, while a slot may be shorter: giving up a CPU makes it pick. And when the weight of a group changes while
//! one of its tasks runs, the group is put at a wrong place of that CPU's queue (seen with Linux 6.18: a job on two
//! CPUs got nothing of one of them for seconds); while these threads hold the CPUs, no task of a job runs there.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::{Builder, Thread, park, park_timeout, sleep};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::sys::clock::monotonic_ns;
use crate::sys::realtime::prefer_me;

/// Stack size of each thread; small, as all of it may be locked into memory.
const STACK_BYTES: usize = 64 << 10;

/// Longest wait for CPUs that can't be held, as something of higher priority uses them, nanoseconds.
const PATIENCE_NS: u64 = 200_000;

/// Time from the beginning of a slot until the switcher is awake and has decided, nanoseconds.
const ASTIR_NS: u64 = 5_000;

/// Longest wait of threads that expect a hold at a known time for each other, nanoseconds.
const MEETING_NS: u64 = 60_000;

/// Interval of tries to take the lock. Emulated nodes of one machine have a switcher each, and only one can hold the
/// CPUs.
const LOOK: Duration = Duration::from_micros(10);

/// State shared by the switcher and its threads.
#[derive(Default)]
struct Gate {
    /// Number of the hold: odd while CPUs are held, even between holds.
    round: AtomicU64,
    /// Number of CPUs that are held.
    here: AtomicUsize,
    /// When the next hold begins, nanoseconds of the monotonic clock; a past time: unknown.
    next_ns: AtomicU64,
}

/// One thread for each CPU that this process may use; they last as long as the process. None at all if one can't be
/// started.
pub(super) struct Kicks {
    threads: Vec<(usize, Thread)>,
    gate: Arc<Gate>,
    lock: Option<File>,
    /// Whether the lock was always free: no other switcher runs on this machine.
    alone: bool,
}

impl Kicks {
    /// Starts the threads. `priority`: theirs, below the caller's. `common`: a folder that is the same for all
    /// switchers of this machine, used as a lock.
    pub(super) fn start(priority: i32, common: &Path) -> Self {
        let lock = File::open(common).ok();
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let gate = Arc::<Gate>::default();
        // Each thread sends one message.
        let (ready, readied) = mpsc::sync_channel(CpuSet::MAX_CPU);
        let mut threads = Vec::new();
        for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)) {
            let (gate, ready) = (Arc::clone(&gate), ready.clone());
            let wait = move || {
                let mut own = CpuSet::new();
                own.set(cpu);
                let able = sched_setaffinity(None, &own).is_ok() && prefer_me(priority).is_ok();
                let _ = ready.send(able);
                if able {
                    loop {
                        gate.rest();
                        gate.stay();
                    }
                }
            };
            let thread = Builder::new().name(format!("kick-{cpu}")).stack_size(STACK_BYTES).spawn(wait);
            threads.push(thread.map(|handle| (cpu, handle.thread().clone())));
        }
        // All threads are needed: otherwise a CPU would not be held.
        let threads: Result<Vec<_>, _> = threads.into_iter().collect();
        let able = |threads: &Vec<_>| threads.iter().all(|_| readied.recv().unwrap_or(false));
        Self { threads: threads.ok().filter(able).unwrap_or_default(), gate, lock, alone: true }
    }

    /// Whether CPUs can be held: all threads run and have real-time priority.
    pub(super) fn can_hold(&self) -> bool {
        !self.threads.is_empty()
    }

    /// Runs `what` while all CPUs are held, the caller's by the caller itself. `next_ns`: time of the next hold, as in
    /// `Gate::next_ns`.
    pub(super) fn hold<T>(&mut self, next_ns: u64, what: impl FnOnce() -> T) -> T {
        let at_once =
            self.lock.as_ref().is_none_or(|lock| flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok());
        let locked = self.lock.as_ref().filter(|lock| at_once || await_lock(lock));
        // Threads that wake by themselves would keep those of another switcher off their CPUs.
        self.alone &= at_once;
        let next_ns = if self.alone { next_ns } else { 0 };
        let (own, begun) = (sched_getcpu(), monotonic_ns());
        let others = || self.threads.iter().filter(|(cpu, _)| *cpu != own);
        let expected = others().count();
        let told = self.gate.next_ns.swap(next_ns, Ordering::Relaxed).abs_diff(begun) < MEETING_NS;
        self.gate.here.store(0, Ordering::Relaxed);
        self.gate.round.fetch_add(1, Ordering::Release);
        if !(told && self.gate.meet(expected, MEETING_NS)) {
            others().for_each(|(_, thread)| thread.unpark());
            self.gate.meet(expected, PATIENCE_NS);
        }
        let done = what();
        self.gate.round.fetch_add(1, Ordering::Release);
        if let Some(lock) = locked {
            let _ = flock(lock, FlockOperation::Unlock);
        }
        done
    }
}

/// Waits for the lock that only one switcher of this machine can hold. False: another process held it for too long.
fn await_lock(lock: &File) -> bool {
    let begun = monotonic_ns();
    while flock(lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        if monotonic_ns() - begun >= PATIENCE_NS {
            return false;
        }
        sleep(LOOK);
    }
    true
}

impl Gate {
    /// Waits until `expected` CPUs are held. False: that took too long.
    fn meet(&self, expected: usize, patience_ns: u64) -> bool {
        spin_until(patience_ns, || self.here.load(Ordering::Acquire) >= expected)
    }

    /// Sleeps until the next hold.
    fn rest(&self) {
        match (self.next_ns.load(Ordering::Relaxed) + ASTIR_NS).checked_sub(monotonic_ns()) {
            Some(rest) => park_timeout(Duration::from_nanos(rest)),
            None => park(),
        }
    }

    /// Occupies the CPU until the current hold, or one about to begin, ends.
    fn stay(&self) {
        let round = || self.round.load(Ordering::Acquire);
        if self.next_ns.load(Ordering::Relaxed).abs_diff(monotonic_ns()) < MEETING_NS {
            spin_until(MEETING_NS, || round() % 2 == 1);
        }
        let held = round();
        if held % 2 == 1 {
            self.here.fetch_add(1, Ordering::Release);
            spin_until(2 * PATIENCE_NS, || round() != held);
        }
    }
}

/// Spins until `holds` returns true. False: it did not within `patience_ns` nanoseconds.
fn spin_until(patience_ns: u64, holds: impl Fn() -> bool) -> bool {
    let begun = monotonic_ns();
    while !holds() {
        if monotonic_ns() - begun >= patience_ns {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}
