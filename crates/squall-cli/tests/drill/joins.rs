//! What a controller has said about machines and invitations holds at the next one, however soon that leads.

use std::time::{Duration, Instant};

use crate::cluster::{Cluster, output};
use crate::network::Host;

/// Longest wait for another leader.
const PATIENCE: Duration = Duration::from_mins(1);

#[test]
fn who_was_told_that_it_has_joined_is_known_to_the_next_leader() {
    let Some(mut cluster) = Cluster::start("joins") else { return };
    for number in 1..=2 {
        let name = format!("x{number}");
        let first = cluster.leader();
        let words = cluster.invitation_from(first, &["--login", &name]);
        let next = take_over(&mut cluster, first);
        let list = listed(&cluster, next);
        assert!(list.contains(&format!("{name} login host; token")), "the invitation is lost:\n{list}");
        let joined = cluster.join(&name, &words, PATIENCE);
        cluster.kill(next);
        assert!(joined.status.success(), "{}\n{}", output(&joined), cluster.logs());
        let third = another(&cluster, next);
        let list = listed(&cluster, third);
        assert!(list.contains(&format!("{name} login host\n")), "{name} is unknown at the next leader:\n{list}");
        cluster.begin(next);
        cluster.await_leader();
        let revoked = cluster.squall_on(third, &["token", "--revoke", &name]);
        assert!(revoked.status.success(), "{}", output(&revoked));
        take_over(&mut cluster, third);
        assert!(!listed(&cluster, cluster.leader()).contains(&name), "what was revoked has come back");
        cluster.await_leader();
    }
    // While etcd takes nothing, nothing is promised; the same invitation holds afterwards.
    let leader = cluster.leader();
    let words = cluster.invitation_from(leader, &["--login", "x9"]);
    for member in Host::members() {
        cluster.signal(member, "STOP");
    }
    let joined = cluster.join("x9", &words, Duration::from_secs(8));
    let revoked = cluster.squall_on(leader, &["token", "--revoke", "x1"]);
    for member in Host::members() {
        cluster.signal(member, "CONT");
    }
    assert!(!joined.status.success(), "{}", output(&joined));
    assert!(!revoked.status.success() && output(&revoked).contains("etcd"), "{}", output(&revoked));
    cluster.await_leader();
    let joined = cluster.join("x9", &words, PATIENCE);
    assert!(joined.status.success(), "{}", output(&joined));
}

/// What `squall token --list` says there, a space between words.
fn listed(cluster: &Cluster, on: Host) -> String {
    let said = output(&cluster.squall_on(on, &["token", "--list"]));
    said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
}

/// Kills the leader, and starts it again when another one leads, which is returned.
fn take_over(cluster: &mut Cluster, leader: Host) -> Host {
    cluster.kill(leader);
    let next = another(cluster, leader);
    cluster.begin(leader);
    next
}

fn another(cluster: &Cluster, than: Host) -> Host {
    let end = Instant::now() + PATIENCE;
    loop {
        let leader = cluster.leader();
        if leader != than {
            return leader;
        }
        assert!(Instant::now() < end, "no other controller leads\n{}", cluster.logs());
    }
}
