//! One of several controllers: it follows the log in etcd, with a state that is always ready, until it leads.

use std::cmp::Reverse;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use squall_engine::control::Controller;
use squall_engine::replica::{self, Why};
use squall_files::place::Place;
use squall_model::config::Config;
use squall_model::event::Record;
use squall_model::time::Time;
use squall_model::version::{ClusterVersion, TooOld};
use squall_model::wire::Leader;
use squall_model::wire::client::Refusal;
use squall_model::wire::info::{ControllerInfo, ControllerRole};
use squall_model::wire::join::PublicKey;
use squall_store::accounts::Accounts;
use squall_store::entry::Entry;
use squall_store::etcd::{self, Appends, EtcdLog, News, ReplicaHandle};
use squall_store::file::FileLog;
use squall_store::{Log, LogError};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinSet, spawn_local};
use tracing::{error, info};

use super::clock::Clock;
use super::connection::{Acceptor, Inbox};
use super::etcd::{prefix, servers};
use super::key_replication::{Asker, KeyReplication};
use super::signing_keys::SigningKeys;
use super::standby::Readers;
use super::{Begun, ControllerError, Signals, StateFolder};
use crate::sys::clock;

/// Interval at which the copy is flushed, changes of keys are looked for, and clients are told how old the state is.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Pause while the disk has no room for the copy.
const ROOM_POLL: Duration = Duration::from_secs(1);
/// Time in which a leader that ends is released from its lease, so that another one need not wait for that.
const RELEASE_TIME: Duration = Duration::from_secs(1);

/// One of several controllers, before it leads.
pub(super) struct Standby {
    config: Config,
    /// Name of this controller.
    name: String,
    machine: Controller,
    copy: FileLog,
    accounts: Accounts,
    /// Accounting has the records up to this one already.
    accounted: u64,
    /// Time of the last record.
    last: Time,
    sharing: KeyReplication,
    asker: Asker,
    ring: SigningKeys,
    clock: Clock,
    journal: PathBuf,
    /// The number that the log gets if this controller founds it, and whether it did.
    founds: (u64, bool),
    replica: ReplicaHandle,
    news: mpsc::Receiver<News>,
    appends: Appends,
    /// Whether the copy has records that are not flushed.
    dirty: bool,
}

/// The leadership of one of several controllers.
#[derive(Debug)]
pub(super) struct Leadership {
    replica: ReplicaHandle,
    over: oneshot::Receiver<Why>,
    /// Name of this controller.
    name: String,
    /// Names of all controllers, in the order of the configuration.
    order: Vec<String>,
    term: u64,
    /// Whether the log began with this leadership.
    founded: bool,
    asker: Asker,
}

impl Standby {
    /// Begins to follow, with what the state folder has. Accounting has the records up to `accounted`.
    pub(super) fn begin(
        place: &Place,
        config: &Config,
        settings: replica::Settings,
        own: StateFolder,
        (accounted, asker, ring): (u64, Asker, SigningKeys),
    ) -> Result<Self, ControllerError> {
        let StateFolder { machine, log: copy, accounts, last } = own;
        let (name, founds) = (settings.name.clone(), (settings.new_log, false));
        let wrong = |problem| ControllerError::Config { path: place.config(), problem };
        let servers = servers(config).map_err(wrong)?;
        let (replica, news, appends) = etcd::start(&servers, settings).map_err(wrong)?;
        Ok(Self {
            config: config.clone(),
            name,
            machine,
            copy,
            accounts,
            accounted,
            last,
            sharing: KeyReplication::begin(place, replica.clone()),
            asker,
            ring,
            clock: Clock::start(place, last),
            journal: place.journal(),
            founds,
            replica,
            news,
            appends,
            dirty: false,
        })
    }

    /// Follows until this controller leads. None: it was told to end.
    pub(super) async fn follow(
        mut self,
        acceptor: &Arc<Acceptor>,
        inbox: &mut Inbox,
        signals: &mut Signals,
    ) -> Result<Option<Begun>, ControllerError> {
        spawn_local(publish_controllers(Arc::clone(acceptor), self.config.clone(), self.replica.clone()));
        // Ends when this controller leads.
        let mut following = JoinSet::new();
        following.spawn_local(acceptor.clone().keep_token_key());
        let mut readers = Readers::default();
        let mut leader = None;
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let arrival = tokio::select! {
                biased;
                () = signals.heard() => return Ok(None),
                news = self.news.recv() => {
                    match news {
                        Some(News::Lead(term)) => return self.lead(term).map(Some),
                        Some(News::Leader(new)) => {
                            leader = new.map(|(leader, term)| {
                                info!(leader = leader.name, term, "following");
                                Leader { address: leader.address, term }
                            });
                            acceptor.follow(leader.as_ref(), self.as_of());
                        }
                        Some(News::Ended(why @ Why::Stopped)) => {
                            info!("{why}");
                            return Ok(None);
                        }
                        Some(News::Trouble(why)) => {
                            say_trouble(why.as_deref());
                            acceptor.explain(why);
                        }
                        // A batch may wait long for room on the disk.
                        Some(news) => tokio::select! {
                            heard = self.hear(news) => heard?,
                            () = signals.heard() => return Ok(None),
                        },
                        None => return Err(ControllerError::io("run", self.journal)(std::io::Error::other(
                            "the thread that follows etcd has ended",
                        ))),
                    }
                    continue;
                }
                Some(arrival) = inbox.users.recv() => arrival,
                Some(arrival) = inbox.nodes.recv() => arrival,
                _ = look.tick() => {
                    self.look()?;
                    acceptor.follow(leader.as_ref(), self.as_of());
                    continue;
                }
                () = readers.due(), if readers.has_lists() => {
                    let now = self.now();
                    readers.page(&mut self.machine, now);
                    // Connections run on this thread too.
                    tokio::task::yield_now().await;
                    continue;
                }
            };
            let now = self.now();
            readers.ingest(arrival, &mut self.machine, now);
        }
    }

    /// The clock of the state, and by how much the wall clock is ahead of it.
    fn now(&self) -> (Time, i64) {
        (self.clock.now().max(self.last), self.clock.ahead_us())
    }

    fn as_of(&self) -> Option<Instant> {
        self.replica.age().and_then(|age| Instant::now().checked_sub(age))
    }

    async fn hear(&mut self, news: News) -> Result<(), ControllerError> {
        match news {
            News::Adopt(log) => self.adopt(log)?,
            News::Apply(last, bytes) => self.apply(last, &bytes).await?,
            News::Trust(files) => self.sharing.keep(files),
            News::Shared(given) => self.sharing.shared(given),
            News::Behind(first) => return Err(ControllerError::Behind { first }),
            News::Ended(why) => return Err(ControllerError::Unfit(why)),
            News::Lead(_) | News::Leader(_) | News::Trouble(_) => {}
        }
        Ok(())
    }

    fn adopt(&mut self, log: u64) -> Result<(), ControllerError> {
        let failed = |e| ControllerError::io("note the log of", self.journal.clone())(std::io::Error::other(e));
        self.founds.1 |= log == self.founds.0;
        etcd::set_copy_of(&self.journal, log).map_err(failed)
    }

    /// Applies a batch of the leader, and writes it to the journal.
    async fn apply(&mut self, last: u64, bytes: &[u8]) -> Result<(), ControllerError> {
        let entry = Entry::decode(bytes).map_err(|problem| ControllerError::Batch { last, problem })?;
        // Nothing of a record is taken that this release may not understand.
        entry.records.iter().filter_map(Record::raises).try_for_each(check_version)?;
        let batch = entry.into_append();
        let mut said = false;
        while let Err(e) = etcd::append_to_copy(&mut self.copy, &batch) {
            let LogError::NoRoom(_) = e else { return Err(e.into()) };
            if !std::mem::replace(&mut said, true) {
                error!(error = %e, "no room for the journal: this standby falls behind until there is some");
            }
            tokio::time::sleep(ROOM_POLL).await;
        }
        for record in batch.records.iter() {
            self.machine.follow(record);
            self.last = self.last.max(record.time);
        }
        if batch.records.first().is_some_and(|record| record.seq > self.accounted) {
            self.accounts.feed(batch.records);
        }
        self.dirty = true;
        Ok(())
    }

    fn look(&mut self) -> Result<(), ControllerError> {
        if std::mem::take(&mut self.dirty) {
            self.copy.flush()?;
            self.replica.durable(self.copy.next_seq() - 1);
        }
        self.sharing.look();
        self.replica.holds(self.ring.next());
        // Before that, the keys may be those of an earlier rotation.
        if self.as_of().is_some()
            && let Some(named) = &self.machine.state().keys
        {
            self.ring.renew(named).map_err(ControllerError::io("use the rotated keys in", self.journal.clone()))?;
        }
        Ok(())
    }

    /// Begins to lead.
    fn lead(mut self, term: u64) -> Result<Begun, ControllerError> {
        self.look()?;
        let name = self.name;
        info!(term, records = self.copy.next_seq() - 1, "this controller leads");
        let (tell, over) = oneshot::channel();
        let replica = self.replica.clone();
        spawn_local(attend(self.news, self.sharing, self.asker.clone(), tell));
        let log = Box::new(EtcdLog::new(self.copy, self.replica, self.appends));
        let order = self.config.controllers.0.iter().map(|one| one.name().to_owned()).collect();
        let leadership = Leadership { replica, over, name, order, term, founded: self.founds.1, asker: self.asker };
        let machine = Controller::new(self.machine.into_state());
        Ok(Begun { machine, log, accounts: self.accounts, last: self.last, leadership: Some(leadership) })
    }
}

impl Leadership {
    /// Returns whether the log began with this leadership, as there was none, or none that could be followed.
    pub(super) fn founded(&self) -> bool {
        self.founded
    }

    /// Number of the term.
    pub(super) fn term(&self) -> u64 {
        self.term
    }

    /// Whether the word of this controller counts.
    pub(super) fn counts(&self) -> bool {
        self.replica.counts()
    }

    /// Waits until the leadership is over.
    pub(super) async fn over(&mut self) -> Why {
        // Without a word, the thread that keeps the lease has ended.
        (&mut self.over).await.unwrap_or(Why::Expired)
    }

    /// Returns the standby that is to take over: `to`, or the one that is least behind; of several, the first in
    /// `[[controllers]]`. Err: there is none.
    pub(super) fn successor(&self, to: Option<&str>) -> Result<String, String> {
        let others = self.replica.members().into_iter().filter(|(name, _)| *name != self.name);
        match to {
            Some(to) if to == self.name => Err(format!("{to} leads already")),
            Some(to) => {
                let found = others.map(|(name, _)| name).find(|name| name == to);
                found.ok_or_else(|| format!("{to} does not follow: it can't take over"))
            }
            None => {
                let rank = |name: &String| self.order.iter().position(|one| one == name);
                let nearest = others.max_by_key(|(name, member)| (member.applied, Reverse(rank(name))));
                let nearest = nearest.map(|(name, _)| name);
                nearest.ok_or_else(|| format!("no other controller follows {}: none can take over", self.name))
            }
        }
    }

    /// Returns what tells whether changes of `keys/` are shared.
    pub(super) fn asker(&self) -> Asker {
        self.asker.clone()
    }

    /// Returns the newest version of a cluster that each other controller can work with, by name.
    pub(super) fn others(&self) -> Vec<(String, ClusterVersion)> {
        let others = self.replica.members().into_iter().filter(|(name, _)| *name != self.name);
        others.map(|(name, member)| (name, member.speaks)).collect()
    }

    /// Returns the other controllers by name, each with the public half of the key to come, if it has that.
    pub(super) fn nexts(&self) -> Vec<(String, Option<PublicKey>)> {
        let members = self.replica.members();
        let of = |name: &String| members.iter().find(|(of, _)| of == name).and_then(|(_, member)| member.next);
        self.order.iter().filter(|name| **name != self.name).map(|name| (name.clone(), of(name))).collect()
    }

    /// Ends the leadership, after everything was appended; `to` goes first. Returns how it has ended.
    pub(super) async fn resign(mut self, to: Option<String>) -> Why {
        self.replica.resign(to);
        self.released().await
    }

    /// Ends the leadership, and has all controllers end: the cluster was shut down.
    pub(super) async fn stop(mut self) {
        self.replica.stop();
        self.released().await;
    }

    async fn released(&mut self) -> Why {
        // If etcd does not answer, the lease ends by itself.
        tokio::time::timeout(RELEASE_TIME, self.over()).await.unwrap_or(Why::Expired)
    }
}

/// Returns the standby that takes over when an operator asks for that: `to`, or any.
pub(super) fn successor(leadership: Option<&Leadership>, to: Option<&str>) -> Result<String, Refusal> {
    match leadership {
        Some(leadership) => leadership.successor(to).map_err(Refusal::NotSupported),
        None => Err(Refusal::NotSupported("the cluster has one controller: none can take over".to_owned())),
    }
}

/// Takes the news of a controller that leads, and the changes of its keys.
async fn attend(mut news: mpsc::Receiver<News>, mut sharing: KeyReplication, asker: Asker, over: oneshot::Sender<Why>) {
    let Some(mut asks) = asker.inbox() else { return };
    loop {
        let heard = tokio::select! {
            heard = news.recv() => heard,
            () = tokio::time::sleep(LOOK_EVERY) => {
                sharing.look();
                continue;
            }
            Some(ask) = asks.recv() => {
                sharing.ask(ask);
                continue;
            }
        };
        match heard {
            Some(News::Trust(files)) => sharing.keep(files),
            Some(News::Shared(given)) => sharing.shared(given),
            Some(News::Trouble(why)) => say_trouble(why.as_deref()),
            Some(News::Ended(why)) => {
                // If nobody waits, the controller has ended already.
                drop(over.send(why));
                return;
            }
            Some(_) => {}
            None => return,
        }
    }
}

/// Sends the list of controllers to the connection tasks every 250 ms.
async fn publish_controllers(acceptor: Arc<Acceptor>, config: Config, replica: ReplicaHandle) {
    loop {
        let (members, leader) = (replica.members(), replica.leader());
        let head = members.iter().map(|(_, member)| member.applied).max().unwrap_or_default();
        let of = |one: &squall_model::config::ControllerConfig| {
            let name = one.name().to_owned();
            let known = members.iter().find(|(other, _)| *other == name).map(|(_, member)| member);
            let leads = leader.as_ref().filter(|leader| leader.name == name);
            ControllerInfo {
                address: one.address.clone(),
                role: match known {
                    _ if leads.is_some() => ControllerRole::Leader,
                    Some(_) => ControllerRole::Standby,
                    None => ControllerRole::default(),
                },
                // A leader that steps down starts again, so a standby is one since its start.
                since: leads.and_then(|leader| leader.since).or(known.map(|member| member.since)),
                applied: known.map(|member| member.applied),
                durable: known.map(|member| member.durable),
                behind: known.map(|member| head.saturating_sub(member.applied)),
                version: known.map(|member| member.release.clone()),
                speaks: known.map(|member| member.speaks),
                name,
            }
        };
        acceptor.tell(config.controllers.0.iter().map(of).collect());
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Refuses to go on in a cluster of a version that this release can't work with.
pub(super) fn check_version(cluster: ClusterVersion) -> Result<(), ControllerError> {
    if cluster > ClusterVersion::OWN { Err(ControllerError::TooOld(TooOld { cluster })) } else { Ok(()) }
}

fn say_trouble(why: Option<&str>) {
    if let Some(why) = why {
        error!(error = why, "etcd takes nothing: nothing is accepted until it does");
    } else {
        info!("etcd answers and takes what it is given");
    }
}

/// Returns how this controller takes part in the log.
pub(super) fn settings(
    place: &Place,
    config: &Config,
    name: &str,
    copy: &FileLog,
    (version, accept_loss): (&str, bool),
) -> Result<replica::Settings, ControllerError> {
    let failed = |problem: String| ControllerError::io("read", place.journal())(std::io::Error::other(problem));
    let random = || {
        let mut bytes = [0; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|e| ControllerError::io("make a number for", place.journal())(e.into()))?;
        Ok::<u64, ControllerError>(u64::from_le_bytes(bytes) | 1)
    };
    let all = &config.controllers.0;
    let rank = all.iter().position(|one| one.name() == name).unwrap_or_default();
    let log = &config.log.0;
    Ok(replica::Settings {
        prefix: prefix(config),
        name: name.to_owned(),
        address: all.get(rank).map(|own| own.address.clone()).unwrap_or_default(),
        release: version.to_owned(),
        speaks: ClusterVersion::OWN,
        run: random()?,
        started: clock::now(),
        journal: copy.cluster() as u64,
        log: etcd::copy_of(&place.journal()).map_err(failed)?,
        new_log: random()?,
        last: copy.next_seq() - 1,
        rank: rank as u32,
        controllers: all.len(),
        accept_loss,
        lease_s: log.lease_s,
        quota: log.quota_mb << 20,
    })
}
