//! What happens to the site, and how it is made good again.

use std::time::Duration;

use crate::cluster::Cluster;
use crate::moments::Moments;
use crate::network::Host;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    LeaderKilled,
    /// Killed, and started again before another controller leads.
    LeaderRestarted,
    /// Also the next leader, as soon as it has acknowledged something.
    TwoLeadersKilled,
    /// For less than the lease.
    LeaderStopped,
    /// For longer than the lease.
    LeaderStoppedLong,
    /// The leader and the member of etcd on the same site are cut off from all others.
    LeaderCutOff,
    /// What the leader sends goes astray.
    LeaderUnheard,
    /// What is sent to the leader goes astray.
    LeaderDeaf,
    LeaderCutFromEtcd,
    /// The leader is cut off from the node and from the login host.
    LeaderCutFromUsers,
    EtcdMemberKilled,
    EtcdLeaderKilled,
    /// `scontrol takeover`.
    Asked,
    AllControllersKilled,
    /// Two members of etcd are killed.
    QuorumLost,
}

/// When the cluster can take submissions again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// As soon as another controller leads.
    Fault,
    /// Not before the fault is over.
    Repair,
}

impl Fault {
    pub(crate) const ALL: [Self; 15] = [
        Self::LeaderKilled,
        Self::LeaderRestarted,
        Self::TwoLeadersKilled,
        Self::LeaderStopped,
        Self::LeaderStoppedLong,
        Self::LeaderCutOff,
        Self::LeaderUnheard,
        Self::LeaderDeaf,
        Self::LeaderCutFromEtcd,
        Self::LeaderCutFromUsers,
        Self::EtcdMemberKilled,
        Self::EtcdLeaderKilled,
        Self::Asked,
        Self::AllControllersKilled,
        Self::QuorumLost,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LeaderKilled => "kill -9 of the leader",
            Self::LeaderRestarted => "leader killed, started again",
            Self::TwoLeadersKilled => "kill -9 of two leaders",
            Self::LeaderStopped => "leader stopped, short",
            Self::LeaderStoppedLong => "leader stopped, long",
            Self::LeaderCutOff => "leader's host cut off",
            Self::LeaderUnheard => "leader is not heard",
            Self::LeaderDeaf => "leader hears nothing",
            Self::LeaderCutFromEtcd => "leader cut from etcd",
            Self::LeaderCutFromUsers => "leader cut from users",
            Self::EtcdMemberKilled => "etcd: a member killed",
            Self::EtcdLeaderKilled => "etcd: leader killed",
            Self::Asked => "scontrol takeover",
            Self::AllControllersKilled => "all controllers killed",
            Self::QuorumLost => "etcd: quorum lost",
        }
    }

    /// From when on the time until the next acknowledgement counts.
    pub(crate) fn counts_from(self) -> From {
        match self {
            Self::LeaderStopped | Self::LeaderCutFromUsers | Self::AllControllersKilled | Self::QuorumLost => {
                From::Repair
            }
            _ => From::Fault,
        }
    }

    /// How long it lasts.
    pub(crate) fn lasts(self, moments: &mut Moments) -> Duration {
        let (least_ms, more_ms) = match self {
            Self::LeaderStopped => (100, 1100),
            Self::LeaderRestarted | Self::TwoLeadersKilled | Self::Asked | Self::AllControllersKilled => (0, 500),
            Self::LeaderCutFromUsers | Self::QuorumLost => (500, 3500),
            _ => (3000, 3000),
        };
        Duration::from_millis(least_ms) + moments.below_us(more_ms * 1000)
    }

    /// Does it. `leader`: the controller that leads.
    pub(crate) fn begin(self, cluster: &mut Cluster, leader: Host, member: Host) {
        cluster.note(&format!("{} ({})", self.name(), leader.name()));
        let all = cluster.network.hosts.clone();
        let others =
            |these: &[Host]| -> Vec<Host> { all.iter().copied().filter(|host| !these.contains(host)).collect() };
        match self {
            Self::LeaderKilled | Self::LeaderRestarted | Self::TwoLeadersKilled => cluster.kill(leader),
            Self::LeaderStopped | Self::LeaderStoppedLong => cluster.signal(leader, "STOP"),
            Self::LeaderCutOff => {
                let these = [leader, beside(leader)];
                cluster.network.part(&these, &others(&these));
            }
            Self::LeaderUnheard => cluster.network.cut(&[leader], &others(&[leader])),
            Self::LeaderDeaf => cluster.network.cut(&others(&[leader]), &[leader]),
            Self::LeaderCutFromEtcd => cluster.network.part(&[leader], &Host::members()),
            Self::LeaderCutFromUsers => cluster.network.part(&[leader], &[Host::Node(0), Host::Login]),
            Self::EtcdMemberKilled | Self::EtcdLeaderKilled => cluster.kill(member),
            Self::Asked => {
                let done = cluster.squall(&["scontrol", "takeover"]);
                assert!(done.status.success(), "{done:?}\n{}", cluster.logs());
            }
            Self::AllControllersKilled => Host::heads().into_iter().for_each(|head| cluster.kill(head)),
            Self::QuorumLost => {
                cluster.kill(member);
                cluster.kill(next(member));
            }
        }
    }

    /// Makes it good.
    pub(crate) fn repair(self, cluster: &mut Cluster, leader: Host, member: Host) {
        match self {
            Self::LeaderKilled | Self::LeaderRestarted | Self::TwoLeadersKilled => cluster.begin(leader),
            Self::LeaderStopped | Self::LeaderStoppedLong => cluster.signal(leader, "CONT"),
            Self::LeaderCutOff
            | Self::LeaderUnheard
            | Self::LeaderDeaf
            | Self::LeaderCutFromEtcd
            | Self::LeaderCutFromUsers => cluster.network.heal(),
            Self::EtcdMemberKilled | Self::EtcdLeaderKilled => cluster.begin(member),
            Self::Asked => {}
            Self::AllControllersKilled => Host::heads().into_iter().for_each(|head| cluster.begin(head)),
            Self::QuorumLost => {
                cluster.begin(member);
                cluster.begin(next(member));
            }
        }
        cluster.note("repaired");
    }

    /// The member of etcd to which it happens.
    pub(crate) fn member(self, cluster: &Cluster, moments: &mut Moments) -> Host {
        match self {
            Self::EtcdLeaderKilled => cluster.etcd_leader(),
            Self::EtcdMemberKilled => next(cluster.etcd_leader()),
            _ => Host::members()[moments.below_us(3).as_micros() as usize],
        }
    }
}

/// The member of etcd on the same site as a controller.
fn beside(head: Host) -> Host {
    match head {
        Host::Head(number) => Host::Etcd(number),
        other => other,
    }
}

fn next(member: Host) -> Host {
    let members = Host::members();
    let at = members.iter().position(|other| *other == member).unwrap();
    members[(at + 1) % members.len()]
}
