//! The PMI protocol as one node's tasks speak it over `PMI_FD`: version 1 (lines, what MPICH speaks) and version 2.
//!
//! Keys that tasks put stay here until all ranks of the step are in the barrier; what it brings back is what all have put.

mod one;
mod two;

use std::collections::{BTreeMap, BTreeSet};

use squall_model::runs::Runs;
use squall_model::step::{Distribution, Layout};

/// The key that says which ranks share a node.
const MAPPING: &str = "PMI_process_mapping";

/// Longest key and value, bytes, as told to who asks.
const KEY_MAX: usize = 64;
const VALUE_MAX: usize = 1024;

/// Most bytes of a message that is not complete.
const UNREAD_MAX: usize = 1 << 20;

/// One node's end of the protocol.
#[derive(Clone, Debug)]
pub struct Pmi {
    size: u32,
    /// `JOB.STEP`: the name of the key space.
    name: String,
    clients: BTreeMap<u32, Client>,
    /// What all have put before the last barrier, and what the step daemon knows.
    keys: BTreeMap<String, String>,
    /// What was put here since: lines `KEY=VALUE`.
    fresh: String,
    /// Ranks here that are in the barrier.
    waiting: BTreeSet<u32>,
    /// What tasks of this node tell each other (PMI-2), and who waits for it.
    node_keys: BTreeMap<String, String>,
    node_waits: Vec<(u32, String, Option<String>)>,
}

/// A task's end.
#[derive(Clone, Debug, Default)]
struct Client {
    unread: Vec<u8>,
    version: Version,
    /// The thread of the request that waits in a barrier, or for the board (PMI-2).
    thread: Option<String>,
    /// What it wants of the board, while it waits for that.
    naming: Option<Naming>,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Version {
    #[default]
    One,
    Two,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    Silent,
    Speaks,
    Finalized,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PmiAct {
    /// Tell a task.
    Send {
        /// Which.
        rank: u32,
        /// What.
        bytes: Vec<u8>,
    },
    /// All ranks here are in the barrier; what they bring. Answered by [`Pmi::gathered`].
    Barrier(Vec<u8>),
    /// The task speaks the protocol.
    Joined(u32),
    /// The task has said that it is done.
    Finalized(u32),
    /// The task wants the step ended.
    Abort {
        /// Which.
        rank: u32,
        /// With this exit code.
        code: i32,
        /// Its words.
        text: String,
    },
    /// The task wants something of the board. Answered by [`Pmi::named`].
    Name {
        /// Which.
        rank: u32,
        /// What.
        naming: Naming,
    },
    /// The task wants further processes, and was refused.
    Spawn(u32),
    /// The task says what nobody understands: it is not heard any more.
    Broken {
        /// Which.
        rank: u32,
        /// What it said.
        text: String,
    },
}

/// A service under whose name others find a port (`MPI_Publish_name`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Naming {
    /// It is there, at this port.
    Publish {
        /// Its name.
        service: String,
        /// Where it is.
        port: String,
    },
    /// It is no longer there.
    Unpublish(String),
    /// Where is it?
    Lookup(String),
}

type Acts = Vec<PmiAct>;

impl Pmi {
    /// For the tasks `ranks` of a step with this layout.
    pub fn new(name: String, layout: &Layout, ranks: &[u32]) -> Self {
        let size = layout.ntasks();
        let keys =
            BTreeMap::from([(MAPPING.to_owned(), mapping(layout)), ("universeSize".to_owned(), size.to_string())]);
        Self {
            size,
            name,
            clients: ranks.iter().map(|&rank| (rank, Client::default())).collect(),
            keys,
            fresh: String::new(),
            waiting: BTreeSet::new(),
            node_keys: BTreeMap::new(),
            node_waits: Vec::new(),
        }
    }

    /// A task has said something.
    pub fn hear(&mut self, rank: u32, bytes: &[u8], out: &mut Acts) {
        let Some(client) = self.clients.get_mut(&rank) else { return };
        client.unread.extend_from_slice(bytes);
        while let Some(client) = self.clients.get_mut(&rank) {
            let message = match client.version {
                Version::One => one::take(&mut client.unread),
                Version::Two => two::take(&mut client.unread),
            };
            let version = client.version;
            let done = match message {
                Ok(Some(text)) => match version {
                    Version::One => self.one(rank, &text, out),
                    Version::Two => self.two(rank, &text, out),
                },
                Ok(None) if client.unread.len() <= UNREAD_MAX => return,
                Ok(None) => Err("a message without end".to_owned()),
                Err(text) => Err(text),
            };
            if let Err(text) = done {
                self.clients.remove(&rank);
                return out.push(PmiAct::Broken { rank, text });
            }
        }
    }

    /// The barrier has come to its end: with what all have put, or with an error.
    pub fn gathered(&mut self, result: Result<&[u8], ()>, out: &mut Acts) {
        if let Ok(bytes) = result {
            let text = String::from_utf8_lossy(bytes);
            for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
                self.keys.insert(key.to_owned(), value.to_owned());
            }
        }
        for rank in std::mem::take(&mut self.waiting) {
            let Some(client) = self.clients.get_mut(&rank) else { continue };
            let bytes = match client.version {
                Version::One => one::barrier_out(result.is_ok()),
                Version::Two => two::fence_response(result.is_ok(), client.thread.take().as_deref()),
            };
            out.push(PmiAct::Send { rank, bytes });
        }
    }

    /// The board has answered a task: with the port, where that was asked.
    pub fn named(&mut self, rank: u32, result: Result<Option<&str>, ()>, out: &mut Acts) {
        let Some(client) = self.clients.get_mut(&rank) else { return };
        let Some(naming) = client.naming.take() else { return };
        let result = match (&naming, result) {
            (Naming::Lookup(_), Ok(None)) => Err(()),
            (_, result) => result,
        };
        let bytes = match client.version {
            Version::One => one::named(&naming, result),
            Version::Two => two::named(&naming, result, client.thread.take().as_deref()),
        };
        out.push(PmiAct::Send { rank, bytes });
    }

    fn name(&mut self, rank: u32, naming: Naming, thread: Option<&str>, out: &mut Acts) {
        if let Some(client) = self.clients.get_mut(&rank) {
            client.thread = thread.map(ToOwned::to_owned);
            client.naming = Some(naming.clone());
            out.push(PmiAct::Name { rank, naming });
        }
    }

    /// Whether a task has greeted and not said that it is done.
    pub fn is_within(&self, rank: u32) -> bool {
        self.clients.get(&rank).is_some_and(|client| client.standing == Standing::Speaks)
    }

    fn greeted(&mut self, rank: u32, out: &mut Acts) {
        if let Some(client) = self.clients.get_mut(&rank) {
            client.standing = Standing::Speaks;
            out.push(PmiAct::Joined(rank));
        }
    }

    fn finalized(&mut self, rank: u32, out: &mut Acts) {
        if let Some(client) = self.clients.get_mut(&rank) {
            client.standing = Standing::Finalized;
            // Another program of the same task may start anew, with the first version's greeting.
            client.version = Version::One;
            out.push(PmiAct::Finalized(rank));
        }
    }

    fn put(&mut self, key: &str, value: &str) {
        self.fresh.push_str(key);
        self.fresh.push('=');
        self.fresh.push_str(value);
        self.fresh.push('\n');
    }

    fn barrier(&mut self, rank: u32, out: &mut Acts) {
        self.waiting.insert(rank);
        if self.waiting.len() == self.clients.len() {
            out.push(PmiAct::Barrier(std::mem::take(&mut self.fresh).into_bytes()));
        }
    }
}

/// Which ranks share a node, as PMI says it: `(vector,(FIRST_NODE,NODES,RANKS_EACH),…)`.
fn mapping(layout: &Layout) -> String {
    let mut blocks: Vec<(usize, u32, u32)> = Vec::new();
    let mut add = |node: usize, ranks: u32| match blocks.last_mut() {
        Some((first, nodes, each)) if *each == ranks && *first + *nodes as usize == node => *nodes += 1,
        _ if ranks > 0 => blocks.push((node, 1, ranks)),
        _ => {}
    };
    match &layout.distribution {
        Distribution::Block => counts(&layout.tasks).enumerate().for_each(|(node, tasks)| add(node, tasks)),
        Distribution::Cyclic | Distribution::Plane(_) | Distribution::Arbitrary(_) => {
            let mut run: Option<(usize, u32)> = None;
            for node in (0..layout.ntasks()).filter_map(|rank| layout.node_of(rank)) {
                match &mut run {
                    Some((at, ranks)) if *at == node => *ranks += 1,
                    _ => {
                        if let Some((at, ranks)) = run.replace((node, 1)) {
                            add(at, ranks);
                        }
                    }
                }
            }
            if let Some((at, ranks)) = run {
                add(at, ranks);
            }
        }
    }
    let blocks: Vec<String> = blocks.iter().map(|(first, nodes, each)| format!("({first},{nodes},{each})")).collect();
    format!("(vector,{})", blocks.join(","))
}

fn counts(tasks: &Runs<u32>) -> impl Iterator<Item = u32> + '_ {
    tasks.runs().flat_map(|(tasks, count)| std::iter::repeat_n(*tasks, count as usize))
}
