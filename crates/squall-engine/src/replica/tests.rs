//! Controllers on a modelled etcd, under chance: messages late or lost, pauses, crashes, cuts.
//!
//! What must hold: every record number has one content, whoever applied it; what was appended stays; at no time does the
//! word of two controllers count.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use squall_model::time::{Span, Time};
use squall_model::version::ClusterVersion;

use super::etcd::{Ask, Problem, Reply};
use super::follow::Follow;
use super::model::Model;
use super::{Act, Input, Lane, Replica, Settings, Why};
use crate::machine::Machine;

/// Time after which a host takes a question for unanswered.
const TIMEOUT: Span = Span::from_millis(500);

/// A small generator of random numbers (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

enum Event {
    /// A question arrives at etcd.
    Arrives {
        of: usize,
        life: u64,
        lane: Lane,
        serial: u64,
        ask: Ask,
    },
    /// An answer, or the end of the wait for it.
    Answered {
        of: usize,
        life: u64,
        lane: Lane,
        serial: u64,
        reply: Result<Reply, Problem>,
    },
    Tick {
        of: usize,
        life: u64,
    },
    Start {
        of: usize,
    },
}

struct Host {
    replica: Replica,
    life: u64,
    serials: BTreeMap<Lane, u64>,
    /// What its journal holds: survives crashes.
    journal: Vec<Vec<u8>>,
    log: Option<u64>,
    leads: bool,
    appending: Option<(u64, Vec<u8>)>,
    paused_until: Time,
    cut_until: Time,
    runs: bool,
    /// When its next tick is due.
    tick_at: Time,
}

struct World {
    chance: Chance,
    etcd: Model,
    hosts: Vec<Host>,
    agenda: BTreeMap<(Time, u64), Event>,
    count: u64,
    serial: u64,
    /// What was acknowledged, by record number.
    acknowledged: BTreeMap<u64, Vec<u8>>,
    down_until: Time,
    take_overs: u64,
    calm_at: Time,
    /// What each has said of etcd's troubles.
    said: Vec<(usize, Option<String>)>,
}

fn settings(of: usize, life: u64, host: Option<&Host>) -> Settings {
    Settings {
        prefix: "/squall/test".into(),
        name: format!("head{of}"),
        address: format!("10.0.0.{of}:6817"),
        speaks: ClusterVersion::OWN,
        release: "0.2.0".into(),
        run: (of as u64) << 32 | life,
        started: Time(1),
        journal: of as u64 + 1,
        log: host.and_then(|host| host.log),
        new_log: 77 + of as u64,
        last: host.map_or(0, |host| host.journal.len() as u64),
        rank: of as u32,
        controllers: 3,
        accept_loss: false,
        lease_s: 2,
        quota: 1 << 30,
    }
}

impl World {
    fn new(seed: u64, calm_at: Time) -> Self {
        let hosts = (0..3).map(|of| Host {
            replica: Replica::new(settings(of, 0, None), Time(1)),
            life: 0,
            serials: BTreeMap::new(),
            journal: Vec::new(),
            log: None,
            leads: false,
            appending: None,
            paused_until: Time(0),
            cut_until: Time(0),
            runs: false,
            tick_at: Time(0),
        });
        let mut world = Self {
            chance: Chance(seed),
            etcd: Model::default(),
            hosts: hosts.collect(),
            agenda: BTreeMap::new(),
            count: 0,
            serial: 0,
            acknowledged: BTreeMap::new(),
            down_until: Time(0),
            take_overs: 0,
            calm_at,
            said: Vec::new(),
        };
        for of in 0..3 {
            let at = Time(1 + world.chance.below(1_000_000));
            world.add(at, Event::Start { of });
        }
        world
    }

    fn add(&mut self, at: Time, event: Event) {
        self.count += 1;
        self.agenda.insert((at, self.count), event);
    }

    fn delay(&mut self) -> Span {
        if self.chance.one_in(60) { Span(self.chance.below(1_500_000)) } else { Span(100 + self.chance.below(4_000)) }
    }

    fn run(&mut self, end: Time) {
        while let Some(next) = self.agenda.first_entry().filter(|next| next.key().0 <= end) {
            let ((now, _), event) = next.remove_entry();
            self.etcd.expire(now);
            self.handle(now, event);
            self.trouble(now);
            self.check(now);
        }
    }

    fn handle(&mut self, now: Time, event: Event) {
        match event {
            Event::Start { of } => {
                let host = &mut self.hosts[of];
                host.life += 1;
                let settings = settings(of, host.life, Some(host));
                host.replica = Replica::new(settings, now);
                (host.leads, host.appending, host.runs, host.tick_at) = (false, None, true, Time(0));
                host.serials.clear();
                self.step(now, of, Input::Tick);
            }
            Event::Tick { of, life } if self.lives(of, life) => {
                let host = &mut self.hosts[of];
                if now < host.paused_until {
                    host.tick_at = host.paused_until;
                    let at = host.paused_until;
                    return self.add(at, Event::Tick { of, life });
                }
                host.tick_at = Time(0);
                self.step(now, of, Input::Tick);
            }
            Event::Arrives { of, life, lane, serial, ask } => {
                if now < self.down_until || now < self.hosts[of].cut_until {
                    return;
                }
                let reply = self.etcd.ask(now, &ask);
                if !self.chance.one_in(50) {
                    let at = now + self.delay();
                    self.add(at, Event::Answered { of, life, lane, serial, reply });
                }
            }
            Event::Answered { of, life, lane, serial, reply } if self.lives(of, life) => {
                let host = &self.hosts[of];
                if host.serials.get(&lane) != Some(&serial) {
                    return;
                }
                if now < host.paused_until {
                    let at = host.paused_until;
                    return self.add(at, Event::Answered { of, life, lane, serial, reply });
                }
                self.hosts[of].serials.remove(&lane);
                self.step(now, of, Input::Reply { lane, reply });
            }
            Event::Tick { .. } | Event::Answered { .. } => {}
        }
    }

    fn lives(&self, of: usize, life: u64) -> bool {
        self.hosts[of].life == life && self.hosts[of].runs
    }

    fn step(&mut self, now: Time, of: usize, input: Input) {
        let mut out = Vec::new();
        self.hosts[of].replica.step(now, input, &mut out);
        for act in out {
            self.act(now, of, act);
        }
        let host = &mut self.hosts[of];
        if host.leads && host.runs && host.appending.is_none() && now < self.calm_at {
            let (first, count) = (host.journal.len() as u64 + 1, 1 + self.chance.below(3));
            let batch = format!("{of} {} {first}", host.life).into_bytes();
            let bytes = if self.chance.one_in(40) { batch.repeat(200_000) } else { batch };
            self.hosts[of].appending = Some((count, bytes.clone()));
            let input = Input::Append { first, last: first + count - 1, bytes: Arc::new(bytes) };
            return self.step(now, of, input);
        }
        let life = host.life;
        if let Some(due) = self.hosts[of].replica.deadline() {
            let due = due.max(now + Span(1));
            if !(now..due + Span(1)).contains(&self.hosts[of].tick_at) {
                self.hosts[of].tick_at = due;
                self.add(due, Event::Tick { of, life });
            }
        }
    }

    fn act(&mut self, now: Time, of: usize, act: Act) {
        let life = self.hosts[of].life;
        match act {
            Act::Ask { lane, ask } => {
                self.serial += 1;
                let serial = self.serial;
                assert!(self.hosts[of].serials.insert(lane, serial).is_none(), "one question at a time");
                let at = now + self.delay();
                self.add(at, Event::Arrives { of, life, lane, serial, ask });
                let reply = Err(Problem::Unavailable("no answer in time".into()));
                self.add(now + TIMEOUT, Event::Answered { of, life, lane, serial, reply });
            }
            Act::Adopt { log } => self.hosts[of].log = Some(log),
            Act::Apply { first, last, bytes } => {
                let host = &mut self.hosts[of];
                assert_eq!(first, host.journal.len() as u64 + 1, "entries follow each other");
                (first..=last).for_each(|_| host.journal.push(bytes.clone()));
                let seq = last;
                if self.chance.one_in(3) {
                    self.hosts[of].replica.step(now, Input::Durable { seq }, &mut Vec::new());
                }
            }
            Act::Lead { .. } => {
                self.hosts[of].leads = true;
                self.take_overs += 1;
            }
            Act::Appended(done) => {
                done.unwrap();
                let host = &mut self.hosts[of];
                let (count, bytes) = host.appending.take().unwrap();
                for _ in 0..count {
                    host.journal.push(bytes.clone());
                    let before = self.acknowledged.insert(host.journal.len() as u64, bytes.clone());
                    assert!(before.is_none(), "a record is acknowledged once");
                }
                let seq = host.journal.len() as u64;
                host.replica.step(now, Input::Durable { seq }, &mut Vec::new());
            }
            Act::Ended(why) => {
                if why == Why::Stopped {
                    self.hosts[of].runs = false;
                    return;
                }
                let fits = matches!(why, Why::Deposed { .. } | Why::Expired | Why::Resigned { .. });
                assert!(fits, "head{of}: {why}");
                (self.hosts[of].runs, self.hosts[of].leads) = (false, false);
                let at = now + Span(self.chance.below(50_000));
                self.add(at, Event::Start { of });
            }
            Act::Behind { first } => {
                let holds = |host: &&Host| host.journal.len() as u64 + 1 >= first;
                let Some(other) = self.hosts.iter().find(holds) else { panic!("record {first} is lost") };
                let (journal, log) = (other.journal.clone(), other.log);
                let host = &mut self.hosts[of];
                (host.journal, host.log, host.runs) = (journal, log, false);
                self.add(now + Span(1000), Event::Start { of });
            }
            Act::Trouble(why) => self.said.push((of, why)),
            Act::Leader(_) | Act::Members(_) | Act::Trust(_) | Act::Shared { .. } | Act::Full(_) => {}
        }
    }

    /// Does harm now and then.
    fn trouble(&mut self, now: Time) {
        if now >= self.calm_at || !self.chance.one_in(400) {
            return;
        }
        let of = self.chance.below(3) as usize;
        let while_ = Span(self.chance.below(6_000_000));
        match self.chance.below(6) {
            0 if self.hosts[of].runs => {
                (self.hosts[of].runs, self.hosts[of].leads) = (false, false);
                self.add(now + while_, Event::Start { of });
            }
            1 => self.hosts[of].paused_until = now + while_,
            2 => self.hosts[of].cut_until = now + while_,
            3 => self.down_until = now + Span(while_.0 / 2),
            4 => self.etcd.extend_leases(now),
            5 if self.hosts[of].leads && self.hosts[of].appending.is_none() => {
                let to = self.chance.one_in(2).then(|| format!("head{}", self.chance.below(3)));
                self.step(now, of, Input::Resign { to });
            }
            _ => {}
        }
    }

    fn check(&self, now: Time) {
        let heard = |host: &&Host| host.runs && host.replica.leads_until().is_some_and(|until| now < until);
        assert!(self.hosts.iter().filter(heard).count() <= 1, "the word of two controllers counts");
    }

    fn end(&self) {
        let longest = self.hosts.iter().map(|host| &host.journal).max_by_key(|journal| journal.len()).unwrap();
        for host in &self.hosts {
            assert_eq!(host.journal.as_slice(), &longest[..host.journal.len()], "one content for each number");
        }
        for (seq, bytes) in &self.acknowledged {
            assert_eq!(longest.get(*seq as usize - 1), Some(bytes), "what was acknowledged stays");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn under_chance_one_word_counts_and_nothing_acknowledged_is_lost(seed in any::<u64>()) {
        let mut world = World::new(seed, Time::from_secs(60));
        world.run(Time::from_secs(75));
        world.end();
        prop_assert!(world.take_overs > 1 && world.acknowledged.len() > 100);
        // A controller that resigned just now leads again within seconds.
        let leads = (75..=80).any(|second| {
            world.run(Time::from_secs(second));
            world.hosts.iter().filter(|host| host.leads).count() == 1
        });
        prop_assert!(leads, "after the troubles somebody leads");
        let ends: Vec<usize> = world.hosts.iter().map(|host| host.journal.len()).collect();
        prop_assert!(ends.iter().all(|end| *end == ends[0]), "all follow: {:?}", ends);
    }
}

#[test]
fn a_shutdown_ends_the_standbys_and_a_controller_that_is_started_right_after_it_leads() {
    let mut world = World::new(7, Time::from_secs(1));
    world.run(Time::from_secs(10));
    let leader = world.hosts.iter().position(|host| host.leads).unwrap();
    world.step(Time::from_secs(10), leader, Input::Stop);
    // The world starts a controller again that has resigned, after some milliseconds.
    world.run(Time::from_secs(15));
    let (leads, runs): (Vec<bool>, Vec<bool>) = world.hosts.iter().map(|host| (host.leads, host.runs)).unzip();
    let only: Vec<bool> = (0..3).map(|of| of == leader).collect();
    assert_eq!((leads, runs), (only.clone(), only));
}

/// faults.md R9.
#[test]
fn each_controller_says_once_that_etcd_has_no_room_and_takes_it_back() {
    let mut world = World::new(3, Time(0));
    world.run(Time::from_secs(5));
    world.said.clear();
    world.etcd.quota = Some(0);
    world.run(Time::from_secs(10));
    let said = std::mem::take(&mut world.said);
    let whom: std::collections::BTreeSet<usize> = said.iter().map(|(of, _)| *of).collect();
    assert_eq!((whom.len(), said.len()), (3, 3), "{said:?}");
    let named =
        |why: &Option<String>| why.as_ref().is_some_and(|why| why.contains("room") && why.contains("alarm disarm"));
    assert!(said.iter().all(|(_, why)| named(why)), "{said:?}");
    world.etcd.quota = None;
    world.run(Time::from_secs(13));
    assert!(world.said.len() == 3 && world.said.iter().all(|(_, why)| why.is_none()), "{:?}", world.said);
    assert!(world.hosts.iter().filter(|host| host.leads).count() == 1);
}

#[test]
fn a_silence_of_etcd_does_not_count_as_time_that_a_twin_leads() {
    let mut follow = Follow::new(Time(0));
    let second = |second| Time::from_secs(second);
    assert_eq!(follow.twin_is_there(second(1)), Span(0));
    assert_eq!(follow.twin_is_there(second(3)), Span::from_secs(2));
    // No lease ends while etcd is down.
    assert_eq!(follow.twin_is_there(second(20)), Span(0));
    assert_eq!(follow.twin_is_there(second(22)), Span::from_secs(2));
}
