//! The rack: many emulated nodes in one process. Each has its own name and its own machine, and speaks the real protocol
//! through the real tree; only its tasks are timers, and frames between nodes of one rack are handed over in process.
//!
//! One thread, one epoll: a node costs its machine, nothing else.

mod conn;
mod emulated;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use squall_engine::fabric::shape;
use squall_engine::machine::Machine as _;
use squall_engine::node::{NodeInput, NodeOut};
use squall_model::config::{Config, NodeConfig};
use squall_model::hostlist;
use squall_model::time::{Span, Time};

use crate::life;
use crate::logging::say;
use crate::place::Place;
use crate::sys::signals::SignalFd;
use crate::sys::{clock, limits};
use conn::Conns;
use emulated::Emulated;

/// Readiness notices taken at once.
const EVENTS_MAX: usize = 1024;

/// What a rack is started with.
#[derive(Clone, Debug)]
pub struct RackArgs {
    /// The cluster, whose configuration names the nodes.
    pub place: Place,
    /// The configuration.
    pub config: Config,
    /// The nodes that are emulated.
    pub names: Vec<String>,
    /// A random node that has children is killed so often, and comes back half a second later.
    pub kill_every: Option<Duration>,
    /// How many are killed in all.
    pub kills: u32,
}

/// Runs emulated nodes until it is told to end. Blocks.
pub fn run(args: &RackArgs) -> ExitCode {
    match Rack::open(args).and_then(|mut rack| rack.serve()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            say(&format!("rack: {e}"));
            ExitCode::FAILURE
        }
    }
}

struct Rack {
    epoll: OwnedFd,
    nodes: Vec<Emulated>,
    conns: Conns,
    /// Nodes to which some elsewhere may connect.
    outside: HashSet<u32>,
    /// When nodes want to be called, earliest first; what is no longer so is skipped.
    due: BinaryHeap<Reverse<(Time, u32)>>,
    inbox: Vec<(u32, NodeInput)>,
    began: (Time, Instant),
    killing: Option<Killing>,
}

/// Collectors that die for the sake of a bench.
struct Killing {
    every: Duration,
    left: u32,
    next: Instant,
    seed: u64,
    back: Vec<(Instant, u32)>,
}

/// How long a killed node stays away.
const AWAY: Duration = Duration::from_millis(500);

impl Rack {
    fn open(args: &RackArgs) -> io::Result<Self> {
        limits::raise_open_files();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let all = life::node_names(&args.config).map_err(io::Error::other)?;
        let places: HashMap<&str, usize> = all.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
        let kinds: Vec<(HashSet<String>, &NodeConfig)> = args
            .config
            .nodes
            .iter()
            .map(|entry| (hostlist::expand(&entry.name).unwrap_or_default().into_iter().collect(), entry))
            .collect();
        let mut conns = Conns::new(args.place.clone(), args.names.clone());
        let outside = entrances(args, &all);
        let mut nodes = Vec::with_capacity(args.names.len());
        for (index, name) in args.names.iter().enumerate() {
            let width = args.config.tree_width as usize;
            // Nodes that the configuration does not name have no place in its tree: they make one of their own.
            let above = match places.get(name.as_str()) {
                Some(&at) => shape::above(at, all.len(), width),
                None => Vec::new(),
            };
            let above = above.into_iter().map(|at| all[at].clone()).collect();
            conns.open(&epoll, index as u32, name, outside.contains(&(index as u32)))?;
            let kind = kinds.iter().find(|(names, _)| names.contains(name)).map(|(_, entry)| *entry);
            nodes.push(Emulated::new(name, above, kind));
        }
        let killing = args.kill_every.map(|every| Killing {
            every,
            left: args.kills,
            next: Instant::now() + every,
            seed: 0x9e37_79b9_7f4a_7c15,
            back: Vec::new(),
        });
        let due = (0..nodes.len()).map(|node| Reverse((Time(0), node as u32))).collect();
        let began = (clock::now(), Instant::now());
        say(&format!("rack of {} nodes", nodes.len()));
        Ok(Self { epoll, nodes, conns, outside, due, inbox: Vec::new(), began, killing })
    }

    fn now(&self) -> Time {
        self.began.0 + Span(self.began.1.elapsed().as_micros() as u64)
    }

    fn serve(&mut self) -> io::Result<()> {
        let ending = SignalFd::new(&[libc::SIGTERM, libc::SIGINT])?;
        epoll::add(&self.epoll, ending.fd(), epoll::EventData::new_u64(u64::MAX), epoll::EventFlags::IN)?;
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            self.kill_and_revive()?;
            self.call_due();
            let wait = self.patience();
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            for event in &events {
                let token = event.data.u64();
                if token == u64::MAX {
                    return Ok(());
                }
                self.conns.ready(&self.epoll, token, event.flags, &mut self.inbox);
                self.step_all();
            }
        }
    }

    fn patience(&self) -> Timespec {
        let next = self.due.peek().map(|Reverse((due, _))| due.since(self.now()));
        let mut wait = next.map_or(Duration::from_mins(1), |span| Duration::from_micros(span.0));
        if let Some(killing) = &self.killing {
            let back = killing.back.iter().map(|(at, _)| *at);
            let soonest = back.chain((killing.left > 0).then_some(killing.next)).min();
            wait = soonest.map_or(wait, |at| wait.min(at.saturating_duration_since(Instant::now())));
        }
        Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) }
    }

    /// Calls nodes whose time has come.
    fn call_due(&mut self) {
        let now = self.now();
        while let Some(&Reverse((due, node))) = self.due.peek().filter(|Reverse((due, _))| *due <= now) {
            self.due.pop();
            let emulated = &mut self.nodes[node as usize];
            if emulated.due != Some(due) && due != Time(0) {
                continue;
            }
            emulated.due = None;
            emulated.ends(now, |input| self.inbox.push((node, input)));
            self.inbox.push((node, NodeInput::Tick { health: emulated::HEALTH }));
            self.step_all();
        }
    }

    /// Feeds machines until nothing waits.
    fn step_all(&mut self) {
        let mut at = 0;
        while at < self.inbox.len() {
            let (node, input) =
                std::mem::replace(&mut self.inbox[at], (0, NodeInput::Tick { health: emulated::HEALTH }));
            at += 1;
            let now = self.now();
            let Some(machine) = &mut self.nodes[node as usize].machine else { continue };
            let mut out = NodeOut::default();
            machine.step(now, input, &mut out);
            let emulated = &mut self.nodes[node as usize];
            for act in std::mem::take(&mut out.acts) {
                emulated.act(now, act, |input| self.inbox.push((node, input)));
            }
            self.conns.carry_out(&self.epoll, node, &emulated.name, out.net, &mut self.inbox);
            if out.exit {
                emulated.machine = None;
                self.conns.die(node, &mut self.inbox);
            }
            self.note_due(node);
        }
        self.inbox.clear();
    }

    fn note_due(&mut self, node: u32) {
        let emulated = &mut self.nodes[node as usize];
        let due = emulated.deadline();
        if due != emulated.due
            && let Some(time) = due
        {
            // An earlier call that is no longer wanted is skipped when its time comes.
            self.due.push(Reverse((time.max(Time(1)), node)));
            emulated.due = Some(time.max(Time(1)));
        }
    }

    fn kill_and_revive(&mut self) -> io::Result<()> {
        let Some(killing) = &mut self.killing else { return Ok(()) };
        let now = Instant::now();
        let mut due = Vec::new();
        killing.back.retain(|&(at, node)| {
            if at <= now {
                due.push(node);
            }
            at > now
        });
        let mut victim = None;
        if killing.left > 0 && killing.next <= now {
            killing.next = now + killing.every;
            let nodes = &self.nodes;
            let collectors: Vec<u32> = (0..nodes.len() as u32).filter(|&n| nodes[n as usize].is_collector()).collect();
            killing.seed = killing.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if !collectors.is_empty() {
                let node = collectors[(killing.seed >> 33) as usize % collectors.len()];
                killing.left -= 1;
                killing.back.push((now + AWAY, node));
                victim = Some(node);
            }
        }
        if let Some(node) = victim {
            say(&format!("{} is killed", self.nodes[node as usize].name));
            self.nodes[node as usize].machine = None;
            self.conns.die(node, &mut self.inbox);
            self.step_all();
        }
        for node in due {
            let name = self.nodes[node as usize].name.clone();
            self.conns.open(&self.epoll, node, &name, self.outside.contains(&node))?;
            self.nodes[node as usize].revive(|input| self.inbox.push((node, input)));
            self.inbox.push((node, NodeInput::Tick { health: emulated::HEALTH }));
            self.step_all();
        }
        Ok(())
    }
}

/// The nodes of the rack that stand above nodes elsewhere.
fn entrances(args: &RackArgs, all: &[String]) -> HashSet<u32> {
    let own: HashMap<&str, u32> = args.names.iter().enumerate().map(|(at, name)| (name.as_str(), at as u32)).collect();
    let elsewhere = (0..all.len()).filter(|&at| !own.contains_key(all[at].as_str()));
    let above = elsewhere.flat_map(|at| shape::above(at, all.len(), args.config.tree_width as usize));
    above.filter_map(|at| own.get(all[at].as_str()).copied()).collect()
}
