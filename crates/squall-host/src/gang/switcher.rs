//! The process of the switcher: `squall step --switcher`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use squall_model::codec;
use squall_model::gang::{Coscheduling, Turn, slot_at};
use squall_model::job::JobAttempt;
use squall_model::time::{Span, Time};

use super::classes::{Class, Classed, Classes};
use super::kicks::Kicks;
use super::{Hold, Leave, Order, Report, Root};
use crate::sys::clock::monotonic_ns;
use crate::sys::realtime::{prefer_me, stay_in_memory};
use crate::sys::signals::SignalFd;

/// Real-time priority: above all ordinary processes, below the system's own real-time ones.
const PRIORITY: i32 = 20;

/// Time for which a new job runs in all slots, nanoseconds: processes that start it need not wait for a slot.
const YOUTH_NS: u64 = 200_000_000;

/// Interval of reports to the node daemon, nanoseconds.
const REPORT_NS: u64 = 1_000_000_000;

/// The node daemon's last `Align`: relates the monotonic clock to the controller's time.
#[derive(Clone, Copy)]
struct Beat {
    monotonic_ns: u64,
    time: Time,
    slice: Span,
    policy: Coscheduling,
    steps_back: bool,
}

impl Beat {
    /// Converts a reading of the monotonic clock to the controller's time, nanoseconds.
    fn time_ns(&self, monotonic_ns: u64) -> u64 {
        (self.time.0.wrapping_mul(1000)).wrapping_add(monotonic_ns.wrapping_sub(self.monotonic_ns))
    }

    fn slice_ns(&self) -> u64 {
        self.slice.0.max(1) * 1000
    }
}

/// A job that the switcher controls.
struct Member {
    turn: Turn,
    lifted: bool,
    hold: Hold,
    /// Processes with descendants that all belong to the job; used if the job has no cgroup.
    roots: Vec<Root>,
    /// Class of the job: how much its processes have to run at the same time. None: the policy does not use classes.
    class: Option<Classed>,
    /// When the switcher received the job first, nanoseconds of the monotonic clock.
    began_ns: u64,
}

impl Member {
    fn class(&self) -> Class {
        self.class.as_ref().map(Classed::class).unwrap_or_default()
    }
}

#[derive(Default)]
struct Switch {
    beat: Option<Beat>,
    members: BTreeMap<JobAttempt, Member>,
    report: Report,
    reported_ns: u64,
    /// Number of the slot for which jobs were last switched, counted from the controller's time 0.
    slot: u64,
    /// Threads that hold the CPUs; started when first a job is to step back.
    kicks: Option<Kicks>,
    /// Thread that classifies jobs; started when the policy needs it.
    classes: Option<Classes>,
}

/// Runs until its standard input ends or a signal arrives; returns the exit status.
pub fn serve() -> i32 {
    let Ok(link) = rustix::io::fcntl_dupfd_cloexec(io::stdin().as_fd(), 3) else { return 1 };
    let link = UnixStream::from(link);
    let signals = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];
    let Ok(signals) = SignalFd::new(&signals) else { return 1 };
    if link.set_nonblocking(true).is_err() {
        return 1;
    }
    // Without these it may be late, which is measured and reported.
    let _ = (prefer_me(PRIORITY), stay_in_memory());
    let mut switch = Switch::default();
    let mut inbox = Vec::new();
    while let Some(heard) = switch.wait(&link, &signals)
        && (!heard || take_in(&link, &mut inbox) && switch.obey(&mut inbox))
    {
        switch.turn(&link);
    }
    switch.members.values_mut().for_each(|member| member.hold.let_go());
    0
}

/// Reads all that can be read without waiting. False: the link has ended.
fn take_in(mut link: &UnixStream, inbox: &mut Vec<u8>) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match link.read(&mut bytes) {
            Ok(0) => return false,
            Ok(n) => inbox.extend_from_slice(&bytes[..n]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

impl Switch {
    /// Sleeps until a slot begins, input arrives or a signal does. Returns whether there is input. None: a signal ends
    /// the switcher.
    fn wait(&self, link: &UnixStream, signals: &SignalFd) -> Option<bool> {
        let now = monotonic_ns();
        let slot = self.beat.filter(|_| self.rotates());
        let slot = slot.map(|beat| beat.slice_ns() - beat.time_ns(now) % beat.slice_ns());
        let grown = self.members.values().map(|member| member.began_ns + YOUTH_NS).filter(|at| *at > now).min();
        let rest = slot.into_iter().chain(grown.map(|at| at - now)).min();
        let timeout =
            rest.map(|rest| Timespec { tv_sec: (rest / 1_000_000_000) as i64, tv_nsec: (rest % 1_000_000_000) as _ });
        let mut fds = [PollFd::new(link, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        // An interrupted wait is a reason to look, too.
        let _ = poll(&mut fds, timeout.as_ref());
        fds[1].revents().is_empty().then(|| !fds[0].revents().is_empty())
    }

    /// Whether any job runs in some slots only.
    fn rotates(&self) -> bool {
        self.members.values().any(|member| member.turn.of > 1 && !member.lifted)
    }

    /// Carries out all complete orders in `inbox`. False: one can't be decoded.
    fn obey(&mut self, inbox: &mut Vec<u8>) -> bool {
        loop {
            match codec::take::<Order>(inbox) {
                Ok(Some((order, length))) => {
                    inbox.drain(..length);
                    self.order(order);
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Align { monotonic_ns, time, slice, policy, steps_back } => {
                self.beat = Some(Beat { monotonic_ns, time, slice, policy, steps_back });
            }
            Order::Turn { job, turn, group, idle, roots } => {
                let folder =
                    |bytes: &'_ [u8]| (!bytes.is_empty()).then(|| Path::new(OsStr::from_bytes(bytes)).to_owned());
                let mut hold = Hold::choose(folder(&group).as_deref(), folder(&idle).as_deref(), &roots);
                let (mut began_ns, mut class) = (monotonic_ns(), None);
                if let Some(mut old) = self.members.remove(&job) {
                    began_ns = old.began_ns;
                    class = old.class.filter(|_| old.roots == roots);
                    hold.inherit(&mut old.hold);
                }
                self.members.insert(job, Member { turn, lifted: false, hold, roots, class, began_ns });
            }
            Order::Lift(job) => {
                if let Some(member) = self.members.get_mut(&job) {
                    member.lifted = true;
                    member.hold.let_go();
                }
            }
            Order::Drop(job) => {
                if let Some(mut member) = self.members.remove(&job) {
                    member.hold.let_go();
                }
            }
        }
    }

    /// Stops the jobs that have reached the end of their slot, then wakes those at the beginning of theirs.
    fn turn(&mut self, link: &UnixStream) {
        let Some(beat) = self.beat else { return };
        let woken = monotonic_ns();
        let (time_ns, slice_ns) = (beat.time_ns(woken), beat.slice_ns());
        let (slot, into) = (time_ns / slice_ns, time_ns % slice_ns);
        let flexible = beat.policy == Coscheduling::Flexible;
        if flexible {
            self.classify();
        }
        let has_turn =
            |member: &Member| member.turn.runs_in(slot_at(Time(slot * beat.slice.0), beat.slice, member.turn.of));
        let gathered = self.members.values().any(|member| has_turn(member) && member.class() != Class::Careless);
        let runs = |member: &Member| {
            let turns = beat.policy.rotates() || member.turn.mask == 0;
            let fills = flexible && !gathered && member.class() != Class::Together && member.turn.mask != 0;
            member.lifted || woken < member.began_ns + YOUTH_NS || !turns || has_turn(member) || fills
        };
        if beat.steps_back && self.kicks.is_none() {
            let common = self.members.values().find_map(|member| member.hold.common_folder());
            self.kicks = common.map(|common| Kicks::start(PRIORITY - 1, common));
        }
        let kicks = self.kicks.as_mut().filter(|kicks| beat.steps_back && kicks.can_hold());
        // A job that never has a slot is stopped, however short the slots are.
        let leave = |member: &mut Member| match runs(member) {
            true => Leave::Runs,
            false if kicks.is_some() && member.turn.mask != 0 && member.hold.can_step_back() => Leave::StepsBack,
            false => Leave::Stops,
        };
        let mut changes: Vec<(&mut Hold, Leave)> = Vec::new();
        for member in self.members.values_mut() {
            let new = leave(member);
            if new != member.hold.leave() {
                changes.push((&mut member.hold, new));
            }
        }
        changes.sort_by_key(|(_, new)| *new == Leave::Runs);
        let changed = !changes.is_empty();
        let steps = changes.iter().any(|(hold, new)| [hold.leave(), *new].contains(&Leave::StepsBack));
        let give = || changes.into_iter().for_each(|(hold, new)| hold.give(new));
        match kicks.filter(|_| steps) {
            Some(kicks) => kicks.hold(woken + (slice_ns - into), give),
            None => give(),
        }
        let done = monotonic_ns();
        if changed && std::mem::replace(&mut self.slot, slot) + 1 == slot {
            self.report.switches += 1;
            self.report.cost_us = self.report.cost_us.max((done - woken) / 1000);
            self.report.behind_us = self.report.behind_us.max((into + done - woken) / 1000);
        }
        self.members.values_mut().for_each(|member| member.hold.look_again());
        if self.report.switches > 0 && done - self.reported_ns >= REPORT_NS {
            self.tell(link, done);
        }
    }

    /// Has all jobs classified, starting the thread if needed.
    fn classify(&mut self) {
        let Some(classes) = self.classes.take().or_else(Classes::start) else { return };
        for member in self.members.values_mut().filter(|member| member.class.is_none()) {
            member.class = Some(classes.watch(member.hold.idle_folder(), &member.roots));
        }
        self.classes = Some(classes);
    }

    fn tell(&mut self, mut link: &UnixStream, now: u64) {
        let mut bytes = Vec::new();
        if codec::encode(&self.report, &mut bytes).is_ok() {
            // If the node daemon does not read, the report is lost.
            let _ = link.write(&bytes);
        }
        self.report = Report::default();
        self.reported_ns = now;
    }
}
