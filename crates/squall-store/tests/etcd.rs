//! Controllers' logs on a real etcd: one leads, others follow, and take over.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use squall_engine::commit::Append;
use squall_engine::replica::{Settings, Why};
use squall_model::event::{Event, Record};
use squall_model::id::NodeId;
use squall_model::job::Blob;
use squall_model::replica::TrustFile;
use squall_model::time::Time;
use squall_store::entry::Entry;
use squall_store::etcd::{self, Appends, EtcdLog, News, ReplicaHandle, Servers};
use squall_store::file::{FileLog, Options};
use squall_store::{Log, LogError};
use tokio::sync::mpsc;

/// A server of etcd in a folder of its own; it ends with this value.
struct Etcd {
    child: Child,
    dir: PathBuf,
    client: String,
}

impl Etcd {
    /// Starts one. None: it is not installed.
    fn start(name: &str, more: &[&str]) -> Option<Self> {
        let dir = std::env::temp_dir().join(format!("squall-etcd-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let (client, peer) = (free(), format!("http://{}", free()));
        let url = format!("http://{client}");
        let spawned = Command::new("etcd")
            .args(["--data-dir", dir.join("data").to_str().unwrap(), "--name", "only"])
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("only={peer}")])
            .args(more)
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = spawned else {
            eprintln!("skipped: etcd is not installed");
            std::fs::remove_dir_all(&dir).unwrap();
            return None;
        };
        Some(Self { child, dir, client })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}

/// A controller: its journal, and its replica.
struct Head {
    dir: PathBuf,
    copy: Option<FileLog>,
    replica: ReplicaHandle,
    news: mpsc::Receiver<News>,
    appends: Option<Appends>,
    trusted: Vec<(String, TrustFile)>,
    shared: u64,
    end: Option<Why>,
    leads: bool,
}

impl Head {
    fn start(etcd: &Etcd, rank: u32, life: u64) -> Self {
        let dir = etcd.dir.join(format!("head{rank}"));
        std::fs::create_dir_all(&dir).unwrap();
        let copy = FileLog::open(&dir, Options::default()).unwrap().log;
        let settings = Settings {
            prefix: "/squall/test".into(),
            name: format!("head{rank}"),
            address: format!("10.0.0.{rank}:6817"),
            release: "0.2.0".into(),
            speaks: squall_model::version::ClusterVersion::OWN,
            run: u64::from(rank) << 32 | life,
            started: Time(1),
            journal: copy.cluster() as u64,
            log: etcd::copy_of(&dir).unwrap(),
            new_log: 4711,
            last: copy.next_seq() - 1,
            rank,
            controllers: 3,
            accept_loss: false,
            lease_s: 2,
            quota: 1 << 30,
        };
        let servers = Servers { members: vec!["127.0.0.1:1".into(), etcd.client.clone()], ..Servers::default() };
        let (replica, news, appends) = etcd::start(&servers, settings).unwrap();
        let (copy, appends) = (Some(copy), Some(appends));
        Self { dir, copy, replica, news, appends, trusted: Vec::new(), shared: 0, end: None, leads: false }
    }

    /// Takes the news until `done` or the end.
    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !done(self) {
            assert!(begin.elapsed() < Duration::from_secs(20), "it takes too long; end: {:?}", self.end);
            let Ok(news) = self.news.try_recv() else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            match news {
                News::Adopt(log) => etcd::set_copy_of(&self.dir, log).unwrap(),
                News::Apply(last, bytes) => {
                    let entry = Entry::decode(&bytes).unwrap();
                    assert_eq!(entry.records.last().unwrap().seq, last);
                    self.copy.as_mut().unwrap().append(&entry.into_append()).unwrap();
                }
                News::Lead(_) => self.leads = true,
                News::Trust(files) => self.trusted.extend(files),
                News::Shared(given) => self.shared = given,
                News::Ended(why) => self.end = Some(why),
                News::Behind(first) => panic!("behind {first}"),
                News::Leader(_) | News::Trouble(_) => {}
            }
        }
    }

    fn log(&mut self) -> EtcdLog {
        self.until(|head| head.leads);
        EtcdLog::new(self.copy.take().unwrap(), self.replica.clone(), self.appends.take().unwrap())
    }

    fn end(&self) -> u64 {
        self.copy.as_ref().unwrap().next_seq() - 1
    }
}

fn batch(seq: u64, blob: usize) -> Append {
    let record = |seq| Record { seq, time: Time(seq), events: vec![Event::NodeUp { node: NodeId(seq as u32) }] };
    let blobs = if blob > 0 { vec![Blob::new(vec![seq as u8; blob])] } else { Vec::new() };
    Append { records: Arc::new(vec![record(seq), record(seq + 1)]), blobs }
}

fn append(log: &mut EtcdLog, blob: usize) {
    let batch = batch(log.next_seq(), blob);
    log.append(&batch).unwrap();
    log.flush().unwrap();
}

#[test]
fn standbys_follow_and_take_over() {
    let Some(etcd) = Etcd::start("follow", &[]) else { return };
    let mut first = Head::start(&etcd, 0, 1);
    let mut log = first.log();
    let (mut second, mut third) = (Head::start(&etcd, 1, 1), Head::start(&etcd, 2, 1));
    for _ in 0..50 {
        append(&mut log, 0);
    }
    // Larger than a request of etcd may be.
    append(&mut log, 5 << 20);
    let file = TrustFile { content: Some(b"key".to_vec()) };
    second.until(|head| head.end() == 102);
    second.replica.trust(vec![("nodes/n1".into(), file.clone())]);
    second.until(|head| head.shared == 1);
    third.until(|head| head.end() == 102 && head.trusted.contains(&("nodes/n1".into(), file.clone())));
    first.until(|head| !head.trusted.is_empty());
    assert!(first.replica.counts() && !second.replica.counts());
    // A leader that resigns names who goes first, although another one precedes it.
    let begin = Instant::now();
    first.replica.resign(Some("head2".into()));
    let mut log3 = third.log();
    let took = begin.elapsed();
    assert!(took < Duration::from_millis(500), "asked to take over, it took {took:?}");
    first.until(|head| matches!(head.end, Some(Why::Resigned { .. })));
    assert!(matches!(log.append(&batch(103, 0)), Err(LogError::Fenced)));
    append(&mut log3, 0);
    // It comes back as a standby, from its own copy.
    drop(log);
    let mut first = Head::start(&etcd, 0, 2);
    first.until(|head| head.end() == 104);
    // A leader that is no more: its lease ends.
    drop((log3, third));
    let mut log = first.log();
    append(&mut log, 0);
    second.until(|head| head.end() == 106);
    let records = |dir: &Path| {
        let mut seqs = Vec::new();
        FileLog::open(dir, Options::default()).unwrap().log.read_from(1, &mut |record| seqs.push(record.seq)).unwrap();
        seqs
    };
    assert!(first.replica.members().iter().any(|(name, member)| name == "head1" && member.applied > 0));
    drop((log, first, second));
    assert_eq!(records(&etcd.dir.join("head1")), (1..=106).collect::<Vec<_>>());
}

#[test]
fn a_full_etcd_takes_nothing_and_loses_nothing() {
    let Some(etcd) = Etcd::start("full", &["--quota-backend-bytes", "16777216"]) else { return };
    let mut head = Head::start(&etcd, 0, 1);
    let mut log = head.log();
    let refused = loop {
        let batch = batch(log.next_seq(), 3 << 20);
        if let Err(e) = log.append(&batch) {
            break e;
        }
    };
    assert!(
        matches!(&refused, LogError::NoRoom(why) if why.to_string().starts_with("etcd has no room for the log")),
        "{refused}"
    );
    let next = log.next_seq();
    // Nothing has happened: the same batch may be tried again, and fails again.
    assert!(matches!(log.append(&batch(next, 3 << 20)), Err(LogError::NoRoom(_))));
    assert_eq!(log.next_seq(), next);
    assert!(head.replica.counts() && head.end.is_none());
}
