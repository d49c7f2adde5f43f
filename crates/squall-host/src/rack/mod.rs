//! The rack: many emulated nodes in one process. Each has its own name and state machine, and uses the real protocol in
//! the real tree. Only its tasks are timers, and frames between nodes of one rack are passed in memory.
//!
//! All nodes share one thread and one epoll, so that a node costs little more than its state machine.
//!
//! SIGUSR1 ends a random node that has children, as `kill -9` of its daemon would; it restarts half a second later.

mod conn;
mod emulated;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use squall_engine::fabric::proof::Pinned;
use squall_engine::fabric::shape::Tree;
use squall_engine::machine::Machine as _;
use squall_engine::node::{Health, Neighbours, NodeInput, NodeOut};
use squall_files::place::Place;
use squall_model::config::{Config, NodeConfig};
use squall_model::hostlist;
use squall_model::time::{Span, Time};
use tracing::{error, info};

use crate::gone;
use crate::life;
use crate::logging;
use crate::signing::Known;
use crate::sys::signals::SignalFd;
use crate::sys::{clock, limits};
use conn::Conns;
use emulated::EmulatedNode;

/// Most epoll events that are taken at once.
const EVENTS_MAX: usize = 1024;

/// Number of inputs that are processed with one reading of the clock.
const CLOCK_INPUTS: usize = 64;

/// Epoll token of the descriptor of signals.
const SIGNAL: u64 = u64::MAX;

/// Arguments with which a rack is started.
#[derive(Clone, Debug)]
pub struct RackArgs {
    /// The cluster's state folder.
    pub place: Place,
    /// The cluster's configuration.
    pub config: Config,
    /// Names of the nodes to emulate.
    pub names: Vec<String>,
}

/// Runs emulated nodes until it is told to end. Blocks.
pub fn run(args: &RackArgs) -> ExitCode {
    match Rack::open(args).and_then(|mut rack| rack.serve(&args.place)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            error!(error = %e, "rack ends");
            ExitCode::FAILURE
        }
    }
}

struct Rack {
    epoll: OwnedFd,
    nodes: Vec<EmulatedNode>,
    conns: Conns,
    /// Nodes to which nodes outside the rack may connect, by index.
    outside: HashSet<u32>,
    /// Files that the nodes have; all nodes of the rack count as sharing a disk.
    neighbours: Neighbours,
    /// Deadlines of nodes, the earliest first; outdated entries are skipped.
    due: BinaryHeap<Reverse<(Time, u32)>>,
    inbox: Vec<(u32, NodeInput)>,
    began: (Time, Instant),
    /// Killed nodes with the time of their restart; the earliest first.
    away: VecDeque<(Instant, u32)>,
    /// Number of nodes that were told to end.
    left: usize,
    /// State of the random generator that selects nodes to kill.
    seed: u64,
}

/// Time from a node's killing to its restart.
const AWAY: Duration = Duration::from_millis(500);

impl Rack {
    fn open(args: &RackArgs) -> io::Result<Self> {
        logging::configure(args.config.slurmd_debug);
        limits::raise_open_files();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let all = life::node_names(&args.config).map_err(io::Error::other)?;
        let tree = Tree::new(&args.config, &all);
        let kinds: Vec<(HashSet<String>, &NodeConfig)> = args
            .config
            .nodes
            .iter()
            .map(|entry| (hostlist::expand(&entry.name).unwrap_or_default().into_iter().collect(), entry))
            .collect();
        let known = Arc::new(Known::of(&args.place, None)?);
        let mut conns = Conns::new(args.place.clone(), args.names.clone(), Arc::clone(&known));
        let outside = entrances(args, &tree, &all);
        let mut nodes = Vec::with_capacity(args.names.len());
        for (index, name) in args.names.iter().enumerate() {
            conns.open(&epoll, index as u32, name, outside.contains(&(index as u32)))?;
            let kind = kinds.iter().find(|(names, _)| names.contains(name)).map(|(_, entry)| *entry);
            nodes.push(EmulatedNode::new(name, tree.above(name), kind, Pinned(Some(known.clone()))));
        }
        let due = (0..nodes.len()).map(|node| Reverse((Time(0), node as u32))).collect();
        let began = (clock::now(), Instant::now());
        info!(nodes = nodes.len(), "rack starts");
        Ok(Self {
            epoll,
            nodes,
            conns,
            outside,
            neighbours: Neighbours::default(),
            due,
            inbox: Vec::new(),
            began,
            away: VecDeque::new(),
            left: 0,
            seed: 0x9e37_79b9_7f4a_7c15,
        })
    }

    fn now(&self) -> Time {
        self.began.0 + Span(self.began.1.elapsed().as_micros() as u64)
    }

    fn serve(&mut self, place: &Place) -> io::Result<()> {
        let hangup = logging::is_file().then_some(libc::SIGHUP);
        let wanted: Vec<i32> = [libc::SIGTERM, libc::SIGINT, libc::SIGUSR1].into_iter().chain(hangup).collect();
        let signals = SignalFd::new(&wanted)?;
        // After that: a thread which does not block these signals would be ended by them, and the rack with it.
        gone::end_with(place, "the rack", || {});
        epoll::add(&self.epoll, signals.fd(), epoll::EventData::new_u64(SIGNAL), epoll::EventFlags::IN)?;
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while self.left < self.nodes.len() {
            self.revive()?;
            self.call_due();
            let wait = self.patience();
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            for event in &events {
                let token = event.data.u64();
                if token == SIGNAL {
                    match signals.take() {
                        Some(libc::SIGUSR1) => self.kill_collector(),
                        Some(libc::SIGHUP) => logging::reopen(),
                        Some(_) => return Ok(()),
                        None => {}
                    }
                    continue;
                }
                self.conns.ready(&self.epoll, token, event.flags, &mut self.inbox);
                self.step_all();
            }
        }
        info!("all its nodes have left");
        Ok(())
    }

    fn patience(&self) -> Timespec {
        let next = self.due.peek().map(|Reverse((due, _))| due.since(self.now()));
        let mut wait = next.map_or(Duration::from_mins(1), |span| Duration::from_micros(span.0));
        if let Some((back, _)) = self.away.front() {
            wait = wait.min(back.saturating_duration_since(Instant::now()));
        }
        Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) }
    }

    /// Ends the tasks of nodes with a deadline that has come, and steps their state machines.
    fn call_due(&mut self) {
        let now = self.now();
        while let Some(&Reverse((due, node))) = self.due.peek().filter(|Reverse((due, _))| *due <= now) {
            self.due.pop();
            let emulated = &mut self.nodes[node as usize];
            if emulated.due != Some(due) && due != Time(0) {
                continue;
            }
            emulated.due = None;
            if emulated.deadline().is_none_or(|wanted| now < wanted) {
                self.note_due(node);
                continue;
            }
            emulated.ends(now, |input| self.inbox.push((node, input)));
            self.inbox.push((node, NodeInput::Tick { health: Health::default() }));
            self.step_all();
        }
    }

    /// Steps the state machines until no input waits.
    fn step_all(&mut self) {
        let (mut at, mut now) = (0, self.now());
        while at < self.inbox.len() {
            let (node, input) =
                std::mem::replace(&mut self.inbox[at], (0, NodeInput::Tick { health: Health::default() }));
            at += 1;
            if at % CLOCK_INPUTS == 0 {
                now = self.now();
            }
            let Some(machine) = &mut self.nodes[node as usize].machine else { continue };
            let mut out = NodeOut::default();
            machine.step(now, input, &mut out);
            let emulated = &mut self.nodes[node as usize];
            for act in std::mem::take(&mut out.acts) {
                if let squall_engine::node::NodeAct::Keys(keys) = &act {
                    self.conns.learn(keys);
                }
                emulated.act((now, node), act, &mut self.neighbours, |input| self.inbox.push((node, input)));
            }
            self.conns.carry_out(&self.epoll, node, &emulated.name, out.net, &mut self.inbox);
            if out.exit {
                emulated.machine = None;
                self.left += 1;
                self.conns.die(node, &mut self.inbox);
            }
            // A node's inputs often follow each other, so its deadline is updated after the last of them.
            if self.inbox.get(at).is_none_or(|(next, _)| *next != node) {
                self.note_due(node);
            }
        }
        self.inbox.clear();
    }

    /// Records a node's deadline, if it is earlier than the recorded one. A node reached too early is not stepped.
    fn note_due(&mut self, node: u32) {
        let emulated = &mut self.nodes[node as usize];
        let Some(wanted) = emulated.deadline().map(|due| due.max(Time(1))) else { return };
        if emulated.due.is_none_or(|noted| wanted < noted) {
            self.due.push(Reverse((wanted, node)));
            emulated.due = Some(wanted);
        }
    }

    /// Ends the daemon of a random node that has children.
    fn kill_collector(&mut self) {
        let nodes = &self.nodes;
        let collectors: Vec<u32> = (0..nodes.len() as u32).filter(|&n| nodes[n as usize].is_collector()).collect();
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let Some(place) = ((self.seed >> 33) as usize).checked_rem(collectors.len()) else { return };
        let node = collectors[place];
        info!(node = self.nodes[node as usize].name, "node is killed");
        self.nodes[node as usize].machine = None;
        self.conns.die(node, &mut self.inbox);
        self.step_all();
        self.away.push_back((Instant::now() + AWAY, node));
    }

    /// Restarts the nodes that were killed half a second ago or earlier.
    fn revive(&mut self) -> io::Result<()> {
        while let Some((_, node)) = self.away.pop_front_if(|(back, _)| *back <= Instant::now()) {
            let name = self.nodes[node as usize].name.clone();
            self.conns.open(&self.epoll, node, &name, self.outside.contains(&node))?;
            self.nodes[node as usize].revive(node, &mut self.neighbours, |input| self.inbox.push((node, input)));
            self.inbox.push((node, NodeInput::Tick { health: Health::default() }));
            self.step_all();
        }
        Ok(())
    }
}

/// Returns the nodes of the rack that are above nodes outside the rack in the tree.
fn entrances(args: &RackArgs, tree: &Tree<'_>, all: &[String]) -> HashSet<u32> {
    let own: HashMap<&str, u32> = args.names.iter().enumerate().map(|(at, name)| (name.as_str(), at as u32)).collect();
    let elsewhere = all.iter().filter(|name| !own.contains_key(name.as_str()));
    let above = elsewhere.flat_map(|name| tree.above(name));
    above.filter_map(|name| own.get(name.as_str()).copied()).collect()
}
