//! What a job's processes need of each other, for flexible coscheduling (FCS; Frachtenberg et al., IPDPS 2003). An ordinary
//! thread of the switcher looks twice a second at what the threads of each job did by the kernel's counters, which wants no
//! change to an MPI library: how long they ran between two waits, and how long they waited.
//!
//! Who polls while it waits never waits for the kernel, so that it looks like somebody who computes: of a process that has
//! a library that polls it is assumed that it meets others often until it is seen to sleep.

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
use crate::stepd::descendants;

/// From one look to the next.
const PERIOD: Duration = Duration::from_millis(500);

/// Who runs so long between two waits hardly meets others, nanoseconds.
const COARSE_NS: u64 = 10_000_000;

/// Who waits for a greater part of the time in which it might run is frustrated, percent.
const FRUSTRATED: u64 = 25;

/// Who runs less than this part of the time says nothing, percent.
const SEEN: u64 = 1;

/// Threads of a job that are looked at: more of them do the same.
const THREADS: usize = 64;

/// Looks after which a process that had no library that polls may have loaded one.
const LOOKS: u32 = 8;

/// All of the thread's stack may be locked into memory, as the rest of the switcher.
const STACK_BYTES: usize = 256 << 10;

/// Libraries that poll while they wait, as they stand in `/proc/PID/maps`.
const POLLING: [&str; 3] = ["/libmpi", "/liboshmem", "/libucp"];

/// What a process needs of others; the neediest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// It must run together with the others, and needs all of its slot (CS). So is everybody at first.
    #[default]
    Together,
    /// It should run with the others, but waits for slower ones much of the time: what it leaves, others use (F).
    Frustrated,
    /// Little: it may run whenever nobody is gathered (DC, RE).
    Careless,
}

/// A job's class on this node: what the neediest of its processes is.
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

/// Jobs that may come between two looks; of more it is not found out what they are.
const NEWCOMERS_MAX: usize = 1024;

/// The thread that looks; it lasts as long as this.
#[derive(Debug)]
pub(super) struct Classes {
    newcomers: SyncSender<Watched>,
}

impl Classes {
    /// Starts it. None: it can't be started, and all jobs stay together.
    pub(super) fn start() -> Option<Self> {
        let (newcomers, come) = sync_channel(NEWCOMERS_MAX);
        Builder::new().name("classes".into()).stack_size(STACK_BYTES).spawn(move || look_on(&come)).ok()?;
        Some(Self { newcomers })
    }

    /// From now on a job is looked at, until what is returned is dropped. `dir`: its group; none: its processes descend
    /// from `roots`.
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
        // The switcher never waits for the thread. Without it, or without room, the job stays what it is.
        let _ = self.newcomers.try_send(watched);
        classed
    }
}

/// A job that is looked at.
struct Watched {
    class: Weak<AtomicU8>,
    dir: Option<PathBuf>,
    roots: Vec<Root>,
    looked: Instant,
    threads: BTreeMap<(u32, u32), Counters>,
    /// Whether a process has a library that polls, and for how many looks that holds.
    polls: BTreeMap<u32, (bool, u32)>,
}

/// What the kernel counts for a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    /// Nanoseconds on a CPU.
    ran: u64,
    /// Nanoseconds in which it would have run.
    queued: u64,
    /// How often it gave its CPU back to wait.
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

    /// What that means. None: nothing.
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
    /// Its class by what happened since the last look. None: nothing did.
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
        // It has the library, and sleeps between long computations.
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
