//! Classifies jobs by how their processes communicate, for flexible coscheduling (FCS; Frachtenberg et al., IPDPS
//! 2003). An ordinary thread of the switcher reads twice a second, from the kernel's counters, how long the threads of
//! each job ran between two waits, and how long they waited. That needs no change to an MPI library.
//!
//! A process that polls while it waits never waits in the kernel, so it looks like one that computes. A process that
//! has loaded a polling library is therefore assumed to communicate often, until it is seen to sleep.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use super::means::Root;
use crate::cgroup::members_within;
use crate::descendants::descendants;

/// Time between two readings of the counters.
const PERIOD: Duration = Duration::from_millis(500);

/// Mean run time between two waits, nanoseconds, from which on a thread counts as communicating rarely.
const COARSE_NS: u64 = 10_000_000;

/// A thread that waits for more than this share of the time in which it could have run is frustrated, percent.
const FRUSTRATED: u64 = 25;

/// A thread that runs for less than this share of the time is not classified, percent.
const SEEN: u64 = 1;

/// Threads read per job, at most: further ones are assumed to behave alike.
const THREADS: usize = 64;

/// Number of readings after which a process without a polling library is checked again, as it may have loaded one.
const LOOKS: u32 = 8;

/// Stack size of the thread; small, as all of it may be locked into memory like the rest of the switcher.
const STACK_BYTES: usize = 256 << 10;

/// Libraries that poll while they wait, by the path's part in `/proc/PID/maps`.
const POLLING: [&str; 3] = ["/libmpi", "/liboshmem", "/libucp"];

/// How much a process needs the job's other processes to run at the same time, in the order of decreasing need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// The process must run together with the job's others, and needs all of its slot (CS). Initial class of every
    /// process.
    #[default]
    Together,
    /// The process should run with the job's others, but waits for slower ones much of the time: other jobs use the
    /// CPUs that it leaves idle (F).
    Frustrated,
    /// The process hardly communicates: it may run whenever no job of the slot must run together (DC, RE).
    Careless,
}

/// A job's class on this node: that of its neediest process.
#[derive(Debug, Default)]
pub(super) struct Classed(Arc<AtomicU8>);

impl Classed {
    pub(super) fn class(&self) -> Class {
        match self.0.load(Ordering::Relaxed) {
            0 => Class::Together,
            1 => Class::Frustrated,
            _ => Class::Careless,
        }
    }
}

/// Most new jobs that may be queued between two readings; further ones are never classified, and keep the class
/// `Together`.
const NEWCOMERS_MAX: usize = 1024;

/// Handle of the classifying thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Classes {
    newcomers: SyncSender<Watched>,
}

impl Classes {
    /// Starts the classifying thread. None: it can't be started, and all jobs stay in class `Together`.
    pub(super) fn start() -> Option<Self> {
        let (newcomers, come) = sync_channel(NEWCOMERS_MAX);
        Builder::new().name("classes".into()).stack_size(STACK_BYTES).spawn(move || look_on(&come)).ok()?;
        Some(Self { newcomers })
    }

    /// Classifies a job from now on, until the returned value is dropped. `dir`: the job's cgroup; None: its processes
    /// are the descendants of `roots`.
    pub(super) fn watch(&self, dir: Option<&Path>, roots: &[Root]) -> Classed {
        let classed = Classed::default();
        let watched = Watched {
            class: Arc::downgrade(&classed.0),
            dir: dir.map(Path::to_owned),
            roots: roots.to_vec(),
            looked: Instant::now(),
            threads: BTreeMap::new(),
            polls: BTreeMap::new(),
        };
        // The switcher never waits for the thread. Without it, or without room, the job keeps its class.
        let _ = self.newcomers.try_send(watched);
        classed
    }
}

/// State of a job that is being classified.
struct Watched {
    class: Weak<AtomicU8>,
    dir: Option<PathBuf>,
    roots: Vec<Root>,
    looked: Instant,
    threads: BTreeMap<(u32, u32), Counters>,
    /// For each process id: whether the process has loaded a polling library; if not, after how many further readings
    /// that is checked again.
    polls: BTreeMap<u32, (bool, u32)>,
}

/// The kernel's counters of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    /// Time on a CPU, nanoseconds.
    ran: u64,
    /// Time runnable but waiting for a CPU, nanoseconds.
    queued: u64,
    /// Number of voluntary context switches: the thread gave up its CPU to wait.
    waits: u64,
}

impl Counters {
    fn of(pid: u32, thread: u32) -> Option<Self> {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/task/{thread}/{file}")).ok();
        Self::parse(&read("schedstat")?, &read("status")?)
    }

    fn parse(schedstat: &str, status: &str) -> Option<Self> {
        let mut times = schedstat.split_ascii_whitespace().map_while(|word| word.parse().ok());
        let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some(Self { ran: times.next()?, queued: times.next()?, waits: waits.trim().parse().ok()? })
    }

    fn since(self, before: Self) -> Self {
        Self {
            ran: self.ran.saturating_sub(before.ran),
            queued: self.queued.saturating_sub(before.queued),
            waits: self.waits.saturating_sub(before.waits),
        }
    }

    /// Returns the class that these counts over `window_ns` nanoseconds show. None: the thread ran too little.
    fn class(self, window_ns: u64, polls: impl FnOnce() -> bool) -> Option<Class> {
        if self.ran * 100 < window_ns * SEEN {
            return None;
        }
        if self.ran >= COARSE_NS.saturating_mul(self.waits.max(1)) || self.waits == 0 {
            return Some(if self.waits * COARSE_NS * 4 < self.ran && polls() {
                Class::Together
            } else {
                Class::Careless
            });
        }
        let could = window_ns.saturating_sub(self.queued).max(self.ran);
        let waited = could - self.ran;
        Some(if waited * 100 > could * FRUSTRATED { Class::Frustrated } else { Class::Together })
    }
}

fn look_on(come: &Receiver<Watched>) {
    let mut all: Vec<Watched> = Vec::new();
    loop {
        sleep(PERIOD);
        loop {
            match come.try_recv() {
                Ok(watched) => all.push(watched),
                Err(std::sync::mpsc::TryRecvError::Empty) => break,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
            }
        }
        all.retain_mut(|watched| {
            let Some(class) = watched.class.upgrade() else { return false };
            if let Some(found) = watched.look() {
                class.store(found as u8, Ordering::Relaxed);
            }
            true
        });
    }
}

impl Watched {
    /// Returns the job's class by what happened since the last reading. None: no thread ran enough.
    fn look(&mut self) -> Option<Class> {
        let now = Instant::now();
        let window_ns = now.duration_since(std::mem::replace(&mut self.looked, now)).as_nanos() as u64;
        let mut pids = self.dir.as_deref().map_or_else(Vec::new, members_within);
        for root in &self.roots {
            pids.extend(descendants(root.pid).into_iter().chain(root.whole.then_some(root.pid)));
        }
        let threads = pids.iter().flat_map(|pid| threads_of(*pid).into_iter().map(move |thread| (*pid, thread)));
        let threads = threads.take(THREADS).filter_map(|at| Some((at, Counters::of(at.0, at.1)?)));
        let before = std::mem::replace(&mut self.threads, threads.collect());
        let known = self.threads.iter().filter_map(|(at, now)| Some((at.0, now.since(*before.get(at)?))));
        let polls = &mut self.polls;
        let class = known.filter_map(|(pid, delta)| delta.class(window_ns, || has_polling(polls, pid))).min();
        polls.retain(|pid, _| pids.contains(pid));
        class
    }
}

fn threads_of(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn has_polling(known: &mut BTreeMap<u32, (bool, u32)>, pid: u32) -> bool {
    if let Some((polls, looks)) = known.get_mut(&pid)
        && (*polls || *looks > 0)
    {
        *looks = looks.saturating_sub(1);
        return *polls;
    }
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let polls = POLLING.iter().any(|library| maps.contains(library));
    known.insert(pid, (polls, LOOKS));
    polls
}

#[cfg(test)]
mod tests {
    use super::{Class, Counters};

    const WINDOW: u64 = 500_000_000;

    fn class(ran: u64, queued: u64, waits: u64, polls: bool) -> Option<Class> {
        Counters { ran, queued, waits }.class(WINDOW, || polls)
    }

    #[test]
    fn who_computes_is_careless_and_who_may_poll_is_not() {
        assert_eq!(class(250_000_000, 250_000_000, 0, false), Some(Class::Careless));
        assert_eq!(class(250_000_000, 250_000_000, 0, true), Some(Class::Together));
        // It has a polling library, but sleeps between long computations.
        assert_eq!(class(250_000_000, 0, 20, true), Some(Class::Careless));
    }

    #[test]
    fn who_waits_often_meets_others_and_is_frustrated_if_it_waits_long() {
        assert_eq!(class(240_000_000, 250_000_000, 500, false), Some(Class::Together));
        assert_eq!(class(100_000_000, 250_000_000, 500, false), Some(Class::Frustrated));
    }

    #[test]
    fn who_does_nothing_says_nothing() {
        assert_eq!(class(1_000_000, 0, 50, true), None);
        assert_eq!(class(0, 0, 0, false), None);
    }

    #[test]
    fn the_kernels_counters_are_read() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t9\n";
        let found = Counters::parse("1000 2000 3\n", status);
        assert_eq!(found, Some(Counters { ran: 1000, queued: 2000, waits: 7 }));
        assert_eq!(Counters::parse("", status), None);
        assert_eq!(Counters::parse("1 2 3", ""), None);
        let me = std::process::id();
        assert!(Counters::of(me, me).is_some_and(|own| own.ran > 0));
    }
}
