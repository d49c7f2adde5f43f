//! Controllers of two neighbouring releases: upgrades in any order and back again, and a version of the cluster that is
//! raised meanwhile. An older release can't read the event by which the version is raised.

use std::sync::Arc;

use squall_engine::control::{CallerId, Input, Who};
use squall_model::event::{Event, Record};
use squall_model::time::Span;
use squall_model::version::ClusterVersion;
use squall_model::wire::client::Request;

use crate::coverage::Fault;
use crate::mutation::Mutation;
use crate::seed::Seed;
use crate::world::World;
use crate::world::controller::CrashPoint;

/// The connection of the operator that raises the version. No simulated user has it.
const OPERATOR: CallerId = CallerId(u64::MAX);
/// Share of worlds that begin with the older release, parts per million.
const BEGIN_OLD_PPM: u32 = 400_000;

impl World {
    /// Lets all controllers begin with the older release, in some worlds.
    pub(super) fn plan_releases(&mut self, seed: &mut Seed) {
        if seed.chance(BEGIN_OLD_PPM) || self.is_planted(Mutation::OlderFollowsOn) {
            self.controllers.iter_mut().for_each(|host| host.base.speaks = ClusterVersion::FIRST);
        }
    }

    /// Gives a controller the other release, or has the version of the cluster raised. Nothing, where all are new.
    pub(super) fn strike_release(&mut self, of: usize, after: Span) {
        let has_old = self.controllers.iter().any(|host| host.base.speaks < ClusterVersion::OWN);
        if self.judge.version() == ClusterVersion::OWN && !has_old {
            return;
        }
        if self.seed.chance(400_000) {
            return self.ask_to_raise();
        }
        let speaks = &mut self.controllers[of].base.speaks;
        *speaks = if *speaks == ClusterVersion::OWN { ClusterVersion::FIRST } else { ClusterVersion::OWN };
        self.strike(Fault::ReleaseChanged, of as u64);
        self.kill_peer(of, after);
    }

    /// Asks the leader to raise the version. It knows the other controllers from what they have told etcd.
    fn ask_to_raise(&mut self) {
        let leader = self.leader();
        if !self.controllers[leader].serves() {
            return;
        }
        let others = self.controllers.iter().enumerate().filter(|(of, host)| *of != leader && host.runs());
        let others = others.map(|(of, host)| (format!("c{of}"), host.base.speaks)).collect();
        let who = Who { owner: Arc::default(), operator: true, by: None, job: None };
        let request = Box::new(Request::RaiseVersion { to: None, others });
        self.strike(Fault::VersionRaiseAsked, leader as u64);
        self.tell_controller(leader, Input::Ask { caller: OPERATOR, who, request });
    }

    /// Returns whether a controller stops at these records, because it is older than the version of the cluster. An
    /// operator then gives it the newer release.
    pub(super) fn is_stopped_by(&mut self, of: usize, records: &mut [Record]) -> bool {
        let raised = records.iter().filter_map(Record::raises).max();
        if raised.is_none_or(|to| to <= self.controllers[of].base.speaks) {
            return false;
        }
        if self.is_planted(Mutation::OlderFollowsOn) {
            for record in records {
                record.events.retain(|event| !matches!(event, Event::VersionRaised { .. }));
            }
            return false;
        }
        self.controllers[of].base.speaks = ClusterVersion::OWN;
        self.crash_controller(of, CrashPoint::Anew(Fault::TooOld));
        true
    }

    /// Returns whether a controller that starts with this state is refused, because it is older than the version of
    /// the cluster. An operator then gives it the newer release.
    pub(crate) fn is_too_old_for(&mut self, of: usize, cluster: ClusterVersion) -> bool {
        if cluster <= self.controllers[of].base.speaks {
            return false;
        }
        self.strike(Fault::TooOld, of as u64);
        self.controllers[of].base.speaks = ClusterVersion::OWN;
        let after = self.seed.span(Span::from_millis(5), Span::from_secs(2));
        self.start_controller(of, after);
        true
    }
}
