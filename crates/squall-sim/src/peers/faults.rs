//! Faults of several controllers and of their etcd.

use squall_model::time::{Span, Time};
use squall_store::memory::{Lie, MemoryLog};

use super::{Base, PREFIX, RATE_MAX_PPM};
use crate::coverage::Fault;
use crate::mutation::Mutation;
use crate::seed::Seed;
use crate::setup::BEGIN;
use crate::world::controller::CrashPoint;
use crate::world::nemesis::{Course, End};
use crate::world::{Happening, World};

impl World {
    /// Plans faults of controllers and etcd until the time `until`, and their clocks.
    pub(crate) fn plan_peers(&mut self, until: Time, seed: &mut Seed) {
        let Some(etcd) = &mut self.etcd else { return };
        if seed.chance(300_000) {
            etcd.quota = 100_000;
        }
        for host in &mut self.controllers {
            host.base.rate_ppm = seed.between(0, 2 * RATE_MAX_PPM).cast_signed() - RATE_MAX_PPM.cast_signed();
        }
        self.clients.away = true;
        let planted = self.setup.mutation.is_some();
        if self.setup.mutation == Some(Mutation::DurableUntrue) {
            self.set_flush_span(Span::from_secs(1), Span::from_secs(10));
        }
        let gap = Span::from_millis(if planted { 10_000 } else { seed.spread(4_000, 300_000) });
        let weights = match seed.below(6) {
            0 if !planted => [0; 5],
            1 => [10, 1, 1, 1, 1],
            2 => [1, 10, 1, 1, 1],
            3 => [1, 1, 10, 1, 1],
            _ => [4, 4, 4, 2, 2],
        };
        self.plan_releases(seed);
        self.nemesis.peers = Some(Course { until, gap, weights }).filter(|course| course.weights != [0; 5]);
        self.after(gap, Happening::PeersStruck);
    }

    /// Strikes controllers or etcd, and plans the next time.
    pub(crate) fn peers_struck(&mut self) {
        let Some(course) = self.nemesis.peers.filter(|course| self.now < course.until) else { return };
        let of = if self.seed.chance(650_000) { self.leader() } else { self.any_controller() };
        match self.seed.weighted(&course.weights) {
            0 => self.strike_process(of),
            1 => self.strike_way(of),
            2 => self.strike_etcd(),
            4 => {
                let after = Span::from_millis(self.seed.spread(1, 10_000));
                self.strike_release(of, after);
            }
            _ => {
                let to = self.seed.chance(500_000).then(|| self.any_controller());
                self.disturb(Span(0));
                self.resign(self.leader(), to);
            }
        }
        let gap = Span(self.seed.between(0, 2 * course.gap.0));
        self.after(gap, Happening::PeersStruck);
    }

    fn any_controller(&mut self) -> usize {
        self.seed.below(self.controllers.len() as u64) as usize
    }

    fn strike_process(&mut self, of: usize) {
        let after = Span::from_millis(self.seed.spread(1, 60_000));
        self.disturb(after);
        match self.seed.weighted(&[8, 8, 2, 3]) {
            0 if self.controllers[of].serves() => {
                let span = Span::from_millis(self.seed.spread(200, 10_000));
                self.controllers[of].base.paused_until = self.now + span;
                self.strike(Fault::LeaderPaused, span.0);
            }
            1 => self.kill_peer(of, after),
            2 => {
                self.strike(Fault::AllControllersKilled, 0);
                for of in 0..self.controllers.len() {
                    let after = Span::from_millis(self.seed.spread(1, 10_000));
                    self.kill_peer(of, after);
                }
            }
            3 => self.lose_journal(of, after),
            _ => {}
        }
    }

    /// Kills a controller, which starts again later.
    pub(super) fn kill_peer(&mut self, of: usize, after: Span) {
        let point = if self.controllers[of].serves() { CrashPoint::Idle } else { CrashPoint::Standby };
        if self.controllers[of].runs() {
            self.controllers[of].restart = Some(after);
            self.crash_controller(of, point);
        }
    }

    /// Takes a controller's disk away, if all others have everything that etcd has not.
    fn lose_journal(&mut self, of: usize, after: Span) {
        let first = self.etcd.as_ref().and_then(|etcd| etcd.model.value(&format!("{PREFIX}/first")));
        let first = first.and_then(|text| str::from_utf8(text).ok()?.parse::<u64>().ok()).unwrap_or(1);
        let holds = |other: usize| other == of || self.controllers[other].base.durable + 1 >= first;
        if !self.controllers[of].runs() || !(0..self.controllers.len()).all(holds) {
            return;
        }
        self.strike(Fault::JournalLost, of as u64);
        self.kill_peer(of, after);
        let host = &mut self.controllers[of];
        host.change_log(MemoryLog::new(Lie::None));
        let Base { rate_ppm, speaks, .. } = host.base;
        host.base = Base { journal: self.seed.next(), rate_ppm, speaks, ..Base::new(of, BEGIN) };
    }

    /// Cuts ways between a controller and others.
    fn strike_way(&mut self, of: usize) {
        let span = Span::from_millis(self.seed.spread(200, 60_000));
        let (host, etcd, login) = (self.network.controller(of), self.network.etcd(), self.network.login());
        let fault = match self.seed.below(6) {
            0 => Fault::CutFromEtcd,
            1 => Fault::CutToEtcd,
            2 => Fault::CutOfEtcd,
            3 | 4 => Fault::ControllerCut,
            _ => Fault::ControllerIsolated,
        };
        self.strike(fault, of as u64);
        if matches!(fault, Fault::CutFromEtcd | Fault::CutToEtcd) {
            self.network.cut_between(host, etcd);
        }
        if matches!(fault, Fault::CutFromEtcd | Fault::CutOfEtcd) {
            self.network.cut_between(etcd, host);
        }
        if fault == Fault::ControllerIsolated {
            self.network.isolate(&[host]);
        }
        if fault == Fault::ControllerCut {
            let (out, back) = [(true, true), (true, false), (false, true)][self.seed.below(3) as usize];
            for port in (0..self.nodes.len()).chain([login]) {
                if out {
                    self.network.cut_between(host, port);
                }
                if back {
                    self.network.cut_between(port, host);
                }
            }
        }
        if !self.reaches_clients(of) {
            self.clients_lose_controller(of);
            self.viewer_loses_controller(of);
        }
        self.ends_after(span, End::Heal(vec![host]));
    }

    fn strike_etcd(&mut self) {
        let (now, kind) = (self.now, self.seed.weighted(&[3, 3, 3, 3, 2]));
        let span = Span::from_millis(self.seed.spread(100, 20_000));
        let (slow, doubt) = (self.seed.between(5, 100), self.seed.between(100_000, 600_000) as u32);
        self.disturb(span);
        let Some(etcd) = &mut self.etcd else { return };
        let fault = match kind {
            0 => {
                (etcd.down_until, etcd.elects) = (now + span, false);
                Fault::EtcdDown
            }
            1 => {
                (etcd.down_until, etcd.elects) = (now + Span(span.0 % 1_500_000), true);
                Fault::EtcdElects
            }
            2 => {
                etcd.slow = (slow, now + span);
                Fault::EtcdSlow
            }
            3 => {
                etcd.doubt = (doubt, now + span);
                Fault::EtcdDoubtful
            }
            _ => {
                etcd.model.quota = Some(etcd.model.used());
                Fault::EtcdFull
            }
        };
        self.strike(fault, span.0);
        if fault == Fault::EtcdFull {
            self.ends_after(span, End::EtcdFree);
        }
    }

    /// Ends all faults of controllers and etcd.
    pub(crate) fn heal_peers(&mut self) {
        self.nemesis.peers = None;
        let now = self.now;
        let Some(etcd) = &mut self.etcd else { return };
        (etcd.down_until, etcd.slow.1, etcd.doubt.1, etcd.model.quota) = (now, now, now, None);
        for of in 0..self.controllers.len() {
            self.network.heal(self.network.controller(of));
            self.controllers[of].base.paused_until = now;
        }
    }

    /// Frees etcd's database.
    pub(crate) fn free_etcd(&mut self) {
        if let Some(etcd) = &mut self.etcd {
            etcd.model.quota = None;
        }
    }
}
