//! Fault injection (the nemesis): which faults strike, when, and when they end.

use std::collections::BTreeSet;

use squall_model::id::StepKey;
use squall_model::time::{Span, Time};

use crate::coverage::Fault;
use crate::network::{Direction, Weather};
use crate::world::client::Wish;
use crate::world::controller::CrashPoint;
use crate::world::step::StepHost;
use crate::world::{Happening, World};

/// Amount by which a fault sets a wall clock forward or back, microseconds.
const HOUR_US: i64 = 3_600_000_000;
/// Maximum number of bytes that a full disk still accepts when the log's reserve is also used up.
const ROOM_BYTES_MAX: u64 = 64 << 10;
/// Longest time for which the disk stays full when the log's reserve is also used up.
const NO_ROOM_MAX: Span = Span::from_secs(20);

/// State of fault injection: its profile, and the planned ends of present faults.
#[derive(Debug, Default)]
pub(crate) struct Nemesis {
    /// Profile of random faults. None: no random faults.
    pub(crate) profile: Option<Profile>,
    /// Course of faults of several controllers. None: none.
    pub(crate) peers: Option<Course>,
    ends: Vec<Option<End>>,
}

/// Frequencies of random faults.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) until: Time,
    /// Mean time between two faults.
    pub(crate) gap: Span,
    /// Relative frequencies of the faults of controller, disk, node daemons, steps, power, network, clients and spools,
    /// in this order.
    pub(crate) weights: [u32; 8],
}

/// A planned course of faults of several controllers and of etcd.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    pub(crate) until: Time,
    /// Mean time between two faults.
    pub(crate) gap: Span,
    /// Relative frequencies of the faults of processes, of the network, of etcd, of resignations, and of other releases.
    pub(crate) weights: [u32; 5],
}

/// The end of a fault, which is planned for a later time.
#[derive(Clone, Debug)]
pub(crate) enum End {
    Heal(Vec<usize>),
    Fast(usize),
    DiskFree,
    SpoolFree(usize),
    Fine,
    QuickFlush,
    ClientsKeep,
    EtcdFree,
}

impl Nemesis {
    /// Returns whether random faults are injected.
    pub(crate) fn is_active(&self) -> bool {
        self.profile.is_some()
    }
}

impl World {
    /// Injects a random fault and schedules the next one.
    pub(crate) fn fault_strikes(&mut self) {
        let Some(profile) = self.nemesis.profile.clone().filter(|p| self.now < p.until) else { return };
        match self.seed.weighted(&profile.weights) {
            0 => self.strike_controller(),
            1 => self.strike_disk(),
            2 => self.strike_node_daemon(),
            3 => self.strike_step(),
            4 => self.strike_power(),
            5 => self.strike_network(),
            6 => {
                self.clients.loss_ppm = 200_000;
                self.ends_after(Span::from_secs(30), End::ClientsKeep);
            }
            _ => {
                let node = self.any_node();
                self.nodes[node].spool.full = true;
                self.strike(Fault::SpoolFull, node as u64);
                self.ends_after(Span::from_secs(60), End::SpoolFree(node));
            }
        }
        let gap = Span(self.seed.between(0, 2 * profile.gap.0));
        self.after(gap, Happening::FaultStrikes);
    }

    fn any_node(&mut self) -> usize {
        self.seed.below(self.nodes.len() as u64) as usize
    }

    /// Returns a random node that has other nodes below it in the tree; node 0 if there is none.
    fn any_interior(&mut self) -> usize {
        let count = self.nodes.len();
        let parents = (0..count).filter_map(|node| self.tree.above(node, count).first().copied());
        let parents: Vec<usize> = parents.collect::<BTreeSet<_>>().into_iter().collect();
        self.seed.pick(&parents).copied().unwrap_or_default()
    }

    /// Slows the network of a node, `times` times, for a span.
    pub(crate) fn slow_node(&mut self, node: usize, times: u64, fault: Fault, span: Span) {
        self.network.slow(node, times);
        self.strike(fault, node as u64);
        self.ends_after(span, End::Fast(node));
    }

    /// Schedules the end of a fault after `span`. Checks of timing are suspended until five minutes after it.
    pub(crate) fn ends_after(&mut self, span: Span, end: End) {
        self.nemesis.ends.push(Some(end));
        let which = self.nemesis.ends.len() - 1;
        self.disturb(span);
        self.after(span, Happening::FaultEnds { which });
    }

    /// Suspends checks of timing for `span` and five minutes more.
    pub(crate) fn disturb(&mut self, span: Span) {
        self.judge.silence.trouble(self.now + span);
        self.disturb_times(span);
    }

    /// Suspends checks of timing as `disturb` does; whoever can be heard has to be heard all the same.
    pub(crate) fn disturb_times(&mut self, span: Span) {
        let until = self.now + Span(span.0 + 300_000_000);
        self.judge.trouble_until = self.judge.trouble_until.max(until);
    }

    /// Simulates `squall down`, and `squall up` later.
    pub(crate) fn shut_down(&mut self, keep_jobs: bool, up_after: Option<Span>) {
        self.controllers.iter_mut().for_each(|host| host.restart = up_after);
        self.disturb(up_after.unwrap_or(Span(0)));
        for node in &mut self.nodes {
            node.restart = up_after;
        }
        self.wish(Wish::ShutDown { keep_jobs });
    }

    /// Changes the wall clock of the controller's machine; no timing check is suspended.
    pub(crate) fn set_clock(&mut self, by_us: i64) {
        self.strike(Fault::ClockSet, by_us.unsigned_abs());
        let of = self.leader();
        self.controllers[of].wall_ahead_us += by_us;
        if self.controllers[of].serves() {
            self.tell_controller(of, squall_engine::control::Input::ClockSet { by_us });
        }
    }

    fn strike_controller(&mut self) {
        if self.seed.chance(100_000) {
            let by_us = if self.seed.chance(500_000) { HOUR_US } else { -HOUR_US };
            return self.set_clock(by_us);
        }
        if self.etcd.is_none() && self.seed.chance(30_000) {
            let (keep_jobs, up_after) = (self.seed.chance(500_000), Span::from_millis(self.seed.spread(100, 60_000)));
            return self.shut_down(keep_jobs, Some(up_after));
        }
        let points = [
            CrashPoint::BeforeAppend,
            CrashPoint::BeforeFlush,
            CrashPoint::BeforeRelease,
            CrashPoint::MidRelease,
            CrashPoint::Idle,
        ];
        let after = Span::from_millis(self.seed.spread(1, 30_000));
        let of = self.leader();
        self.controllers[of].restart = Some(after);
        self.disturb(after);
        match points[self.seed.below(5) as usize] {
            CrashPoint::Idle if self.controllers[of].serves() => self.crash_controller(of, CrashPoint::Idle),
            CrashPoint::Idle => {}
            point => {
                self.controllers[of].plan.clear();
                self.controllers[of].plan.push_back((point, self.seed.spread(1, 20) as u32));
            }
        }
    }

    /// Sets how long flushes of the controllers' disks take.
    pub(crate) fn set_flush_span(&mut self, low: Span, high: Span) {
        self.controllers.iter_mut().for_each(|host| host.flush_span = (low, high));
    }

    fn strike_disk(&mut self) {
        // The journals of several controllers are copies of the log in etcd, which is full at times in their place.
        if self.seed.chance(500_000) || self.etcd.is_some() {
            self.set_flush_span(Span::from_millis(100), Span::from_secs(10));
            self.strike(Fault::SlowFlush, 0);
            let span = self.seed.span(Span::from_secs(1), Span::from_secs(20));
            self.ends_after(span, End::QuickFlush);
        } else {
            // Either the disk's reserve suffices for all records, or it is used up too.
            let room = self.seed.chance(300_000).then(|| self.seed.spread(1, ROOM_BYTES_MAX));
            let longest = if room.is_some() { NO_ROOM_MAX } else { Span::from_secs(120) };
            self.strike(Fault::DiskFull, room.unwrap_or(0));
            self.set_disk_full(0, true, room);
            let span = self.seed.span(Span::from_secs(1), longest);
            self.ends_after(span, End::DiskFree);
        }
    }

    /// Makes the disk of the controller's log full, or frees it. `room`: bytes that can still be written; None: any
    /// number.
    pub(crate) fn set_disk_full(&mut self, of: usize, full: bool, room: Option<u64>) {
        self.controllers[of].log.set_full(full, room);
        self.controllers[of].knows_full &= full;
        if let Some(work) = self.controllers[of].roomless.take_if(|_| !full) {
            self.append(of, work);
        }
        if self.controllers[of].serves() {
            self.plan_turn(of);
        }
    }

    fn strike_node_daemon(&mut self) {
        let interior = self.seed.chance(400_000);
        let node = if interior { self.any_interior() } else { self.any_node() };
        if !self.nodes[node].has_daemon() {
            return;
        }
        let after = Span::from_millis(self.seed.spread(1, 60_000));
        self.nodes[node].restart = Some(after);
        self.disturb(after);
        if self.seed.chance(400_000) {
            self.nodes[node].dies_after_acts = Some(self.seed.spread(1, 16) as u32);
            return;
        }
        if self.seed.chance(200_000) {
            let host = &mut self.nodes[node];
            let mut copy = host.spool.clone();
            for (key, folder) in &mut copy.steps {
                folder.begun |= host.steps.get(key).is_some_and(StepHost::has_begun);
            }
            host.copy = Some(copy);
        }
        self.strike(if interior { Fault::InteriorKilled } else { Fault::NodeDaemonKilled }, node as u64);
        self.kill_node_daemon(node);
        match self.seed.weighted(&[8, 1, 1]) {
            1 => self.roll_back(node),
            2 => {
                let keys: Vec<StepKey> = self.nodes[node].spool.steps.keys().copied().collect();
                let lost = self.seed.pick(&keys).copied();
                self.lose_folders(node, lost);
            }
            _ => {}
        }
    }

    /// Replaces a node's spool by its older copy, if there is one. Called while the node daemon is down.
    pub(crate) fn roll_back(&mut self, node: usize) {
        if let Some(copy) = self.nodes[node].copy.take() {
            self.judge.program_notes_are(node, &copy.passed, |job| copy.jobs.contains_key(&job));
            self.nodes[node].spool = copy;
            self.strike(Fault::SpoolRolledBack, node as u64);
        }
    }

    /// Removes step directories from a node's spool. Called while the node daemon is down.
    pub(crate) fn lose_folders(&mut self, node: usize, lost: impl IntoIterator<Item = StepKey>) {
        for key in lost {
            self.nodes[node].spool.steps.remove(&key);
            // How the step ended may have stood there only.
            if self.nodes[node].steps.get(&key).is_none_or(|step| !step.has_live_tasks()) {
                self.judge.lose_sight(key, node);
            }
            self.strike(Fault::FolderLost, node as u64);
        }
    }

    fn strike_step(&mut self) {
        if self.seed.chance(300_000) {
            self.step_dies_after_acts = Some(self.seed.spread(1, 24) as u32);
            return self.disturb(Span(0));
        }
        let start = self.any_node();
        let count = self.nodes.len();
        let found = (0..count).map(|at| (start + at) % count).find_map(|node| {
            let key = self.nodes[node].steps.iter().find(|(_, step)| step.is_alive()).map(|(key, _)| *key)?;
            Some((node, key))
        });
        let Some((node, key)) = found else { return };
        let both = self.seed.chance(250_000) && self.nodes[node].has_daemon();
        self.disturb(Span(0));
        self.strike(if both { Fault::BothDaemonsKilled } else { Fault::StepDaemonKilled }, node as u64);
        if both {
            self.nodes[node].restart = Some(Span::from_millis(self.seed.spread(1, 60_000)));
            self.kill_node_daemon(node);
        }
        self.kill_step_daemon(node, key);
    }

    fn strike_power(&mut self) {
        let node = if self.seed.chance(300_000) { self.any_interior() } else { self.any_node() };
        if !self.nodes[node].powered {
            return;
        }
        let image = self.seed.chance(250_000).then(|| self.nodes[node].spool.clone());
        self.cut_power(node, image);
        let after = Span::from_millis(self.seed.spread(10, 120_000));
        self.disturb(after);
        self.restore_power(node, after);
    }

    fn strike_network(&mut self) {
        let node = self.any_node();
        let span = Span::from_millis(self.seed.spread(500, 200_000));
        match self.seed.weighted(&[3, 2, 2, 3, 2, 1, 2, 1, 3, 2, 3]) {
            0 => self.cut_off(vec![node], &[Direction::Out, Direction::In], Fault::Cut, span),
            1 => self.cut_off(vec![node], &[Direction::Out], Fault::CutUp, span),
            2 => self.cut_off(vec![node], &[Direction::In], Fault::CutDown, span),
            3 => {
                self.strike(Fault::Reset, node as u64);
                self.disturb(Span(0));
                if let Some(hop) = self.nodes[node].parent() {
                    self.break_hop(hop);
                }
            }
            4 => self.slow_node(node, 10, Fault::NodeSlow, span),
            5 => self.cut_off((0..self.nodes.len()).collect(), &[Direction::Out, Direction::In], Fault::Storm, span),
            6 => {
                self.network.weather = Weather::TAR;
                self.strike(Fault::Tar, 0);
                self.ends_after(span, End::Fine);
            }
            7 => {
                self.network.weather = Weather::FOUL;
                self.strike(Fault::FoulWeather, 0);
                self.ends_after(span, End::Fine);
            }
            8 => self.cut_from_parent(node, span),
            9 => {
                let node = self.any_interior();
                self.slow_node(node, 20, Fault::InteriorSlow, span);
            }
            _ => {
                let head = self.any_interior();
                let nodes = self.tree.subtree(head, self.nodes.len());
                self.network.isolate(&nodes);
                self.strike(Fault::SubtreeCut, nodes.len() as u64);
                self.ends_after(span, End::Heal(nodes));
            }
        }
    }

    /// Cuts one direction of traffic between a node and its present parent.
    fn cut_from_parent(&mut self, node: usize, span: Span) {
        let Some(parent) = self.nodes[node].parent().and_then(|hop| self.tree.parent(hop)) else { return };
        let up = self.seed.chance(500_000);
        let (from, to) = if up { (node, parent) } else { (parent, node) };
        self.network.cut_between(from, to);
        self.strike(if up { Fault::CutToParent } else { Fault::CutFromParent }, node as u64);
        self.ends_after(span, End::Heal(vec![node]));
    }

    fn cut_off(&mut self, nodes: Vec<usize>, ways: &[Direction], fault: Fault, span: Span) {
        self.strike(fault, nodes.len() as u64);
        for &node in &nodes {
            for &way in ways {
                self.network.cut(node, way);
            }
        }
        self.ends_after(span, End::Heal(nodes));
    }

    pub(crate) fn fault_ends(&mut self, which: usize) {
        let Some(end) = self.nemesis.ends[which].take() else { return };
        match end {
            End::Heal(nodes) => {
                for node in nodes {
                    self.network.heal(node);
                }
            }
            End::Fast(node) => self.network.slow(node, 1),
            End::DiskFree => self.set_disk_full(0, false, None),
            End::SpoolFree(node) => self.nodes[node].spool.full = false,
            End::Fine => {
                // What is on its way may still be late, and all that comes after it on the same connection.
                self.judge.silence.trouble(self.now + self.network.weather.delay_max);
                self.network.weather = Weather::FINE;
            }
            End::QuickFlush => self.set_flush_span(Span(200), Span(3000)),
            End::ClientsKeep => self.clients.loss_ppm = 0,
            End::EtcdFree => self.free_etcd(),
        }
    }

    /// Ends all faults and restarts everything that was killed.
    pub(crate) fn heal_everything(&mut self) {
        self.nemesis.profile = None;
        self.setup.check_fails = 0;
        self.setup.boot_well();
        for which in 0..self.nemesis.ends.len() {
            self.fault_ends(which);
        }
        self.network.weather = Weather::FINE;
        self.clients.loss_ppm = 0;
        self.step_dies_after_acts = None;
        for of in 0..self.controllers.len() {
            self.controllers[of].plan.clear();
            self.controllers[of].restart = Some(Span::from_secs(1));
            if self.controllers[of].log.is_full() {
                self.set_disk_full(of, false, None);
            }
            if !self.controllers[of].runs() {
                self.start_controller(of, Span(0));
            }
        }
        self.heal_peers();
        for node in 0..self.nodes.len() {
            self.network.heal(node);
            self.network.slow(node, 1);
            self.nodes[node].spool.full = false;
            self.nodes[node].dies_after_acts = None;
            self.nodes[node].restart = Some(Span::from_secs(1));
            if !self.nodes[node].powered {
                self.restore_power(node, Span(0));
            } else if !self.nodes[node].has_daemon() {
                self.start_node(node, Span(0));
            }
        }
    }
}
