//! Asks each member of etcd whether it would write, as administrators want to know. Nothing is written.

use std::time::Duration;

use squall_engine::replica::etcd::{Ask, Compare, Op, Problem, Txn};
use tokio::task::JoinSet;

use super::caller::Caller;
use super::driver::Servers;

/// Time that a member has to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How a member answers a program that asks it to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It would write.
    Writes,
    /// It has no room, for this reason.
    NoRoom(String),
    /// It refuses, or does not answer, for this reason.
    Not(String),
}

/// Asks each member whether it would write below `prefix`. `anybody`: as a program that shows neither certificate nor
/// password.
pub async fn probe(servers: &Servers, prefix: &str, anybody: bool) -> Result<Vec<(String, Probe)>, String> {
    let servers = if anybody { Servers { identity: None, user: None, ..servers.clone() } } else { servers.clone() };
    let mut asked = JoinSet::new();
    for (at, member) in servers.members.iter().enumerate() {
        let mut caller = Caller::new(vec![servers.endpoint(member)?], servers.user.clone(), PATIENCE);
        let (member, key) = (member.clone(), format!("{prefix}/probe"));
        // No revision is negative, so nothing is done. The right to do it is looked at all the same.
        let compare = vec![Compare { key: key.clone(), modified: -1 }];
        let then = vec![Op::Put { key, value: Vec::new(), lease: None }];
        asked.spawn(async move {
            let answer = match caller.ask(Ask::Txn(Txn { compare, then, otherwise: Vec::new() })).await {
                Ok(_) => Probe::Writes,
                Err(Problem::NoSpace(why)) => Probe::NoRoom(why),
                Err(Problem::Unavailable(why) | Problem::Refused(why)) => Probe::Not(why),
            };
            (at, (member, answer))
        });
    }
    let mut all = asked.join_all().await;
    all.sort_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, answer)| answer).collect())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::{Child, Command, Stdio};

    use super::{Probe, Servers, probe};
    use crate::file::tests::Folder;

    /// A process that ends with this value.
    struct Etcd(Child);

    impl Drop for Etcd {
        fn drop(&mut self) {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }

    /// faults.md A8.
    #[test]
    fn a8_an_etcd_to_which_anybody_may_write_is_found() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(probed());
    }

    async fn probed() {
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (dir, client, peer) = (Folder::new(), free(), free());
        let (client_url, peer_url) = (format!("http://{client}"), format!("http://{peer}"));
        let args = [
            ["--data-dir", dir.path().to_str().unwrap()],
            ["--listen-client-urls", &client_url],
            ["--advertise-client-urls", &client_url],
            ["--listen-peer-urls", &peer_url],
            ["--initial-advertise-peer-urls", &peer_url],
            ["--initial-cluster", &format!("default={peer_url}")],
        ];
        let mut command = Command::new("etcd");
        command.args(args.concat()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = command.spawn() else { return eprintln!("skipped: etcd is not installed") };
        let _etcd = Etcd(child);
        let servers = Servers { members: vec![client.to_string()], ..Servers::default() };
        let ask = async |servers: &Servers, anybody| probe(servers, "/squall/x", anybody).await.unwrap().remove(0).1;
        let begin = std::time::Instant::now();
        while ask(&servers, true).await != Probe::Writes {
            assert!(begin.elapsed().as_secs() < 60, "etcd does not start");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        let ctl = |words: &[&str]| {
            let mut command = Command::new("etcdctl");
            command.env("ETCDCTL_API", "3").args(["--endpoints", &client_url]).args(words).output().unwrap()
        };
        let Ok(true) = Command::new("etcdctl").arg("version").output().map(|done| done.status.success()) else {
            return eprintln!("not to its end: etcdctl is not installed");
        };
        let keys = ctl(&["get", "--prefix", "/", "--keys-only"]);
        assert!(keys.status.success() && keys.stdout.is_empty(), "something was written: {keys:?}");
        for words in [&["user", "add", "root:secret"][..], &["user", "grant-role", "root", "root"], &["auth", "enable"]]
        {
            let done = ctl(words);
            assert!(done.status.success(), "{words:?}: {done:?}");
        }
        let closed = ask(&servers, true).await;
        assert!(matches!(&closed, Probe::Not(why) if why.contains("user name is empty")), "{closed:?}");
        let user = Some(("root".to_owned(), "secret".to_owned()));
        let owner = Servers { user, ..servers };
        assert_eq!(ask(&owner, false).await, Probe::Writes);
        assert!(ask(&owner, true).await != Probe::Writes, "the password is not shown");
    }
}
