//! The PMI protocol as the tasks of one node speak it over `PMI_FD`: version 1 (lines, used by MPICH) and version 2.
//!
//! Keys that tasks put stay on this node until all ranks of the step are in the barrier. The barrier then returns the
//! keys of all.

mod one;
mod two;

use std::collections::{BTreeMap, BTreeSet};

use squall_model::runs::Runs;
use squall_model::step::{Distribution, Layout};

/// Key of the value that tells which ranks share a node.
const MAPPING: &str = "PMI_process_mapping";

/// Most bytes of a key and of a value, as reported to tasks.
const KEY_MAX: usize = 64;
const VALUE_MAX: usize = 1024;

/// Most bytes kept of an incomplete message.
const UNREAD_MAX: usize = 1 << 20;

/// PMI state of one node: the keys, and the dialogue with each of its tasks.
#[derive(Clone, Debug)]
pub struct Pmi {
    size: u32,
    /// Name of the key space: `JOB.STEP`.
    name: String,
    clients: BTreeMap<u32, Client>,
    /// Keys that all ranks put before the last barrier, and those set by the step daemon.
    keys: BTreeMap<String, String>,
    /// Keys put on this node since the last barrier, as lines `KEY=VALUE`.
    fresh: String,
    /// Local ranks that are in the barrier.
    waiting: BTreeSet<u32>,
    /// Keys that tasks of this node share with each other (PMI-2). `node_waits` holds the requests that wait for one:
    /// rank, key, thread.
    node_keys: BTreeMap<String, String>,
    node_waits: Vec<(u32, String, Option<String>)>,
}

/// State of the dialogue with one task.
#[derive(Clone, Debug, Default)]
struct Client {
    unread: Vec<u8>,
    version: Version,
    /// Thread of the request that waits in a barrier or for the board of published names (PMI-2). None: no request
    /// waits, or it named no thread.
    thread: Option<String>,
    /// Request to the board of published names that is not answered yet.
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

/// Action for the step daemon, which owns the connections to the tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PmiAct {
    /// Send bytes to a task.
    Send {
        /// Rank of the task.
        rank: u32,
        /// Bytes to send.
        bytes: Vec<u8>,
    },
    /// All local ranks are in the barrier; holds the data they bring. Answered by [`Pmi::gathered`].
    Barrier(Vec<u8>),
    /// The task of this rank has sent its greeting, so it uses PMI.
    Joined(u32),
    /// The task of this rank has reported that it is done.
    Finalized(u32),
    /// The task asks to end the step.
    Abort {
        /// Rank of the task.
        rank: u32,
        /// Exit code for the step.
        code: i32,
        /// Message of the task.
        text: String,
    },
    /// The task has a request to the board of published names. Answered by [`Pmi::named`].
    Name {
        /// Rank of the task.
        rank: u32,
        /// Request about a service name: publish, withdraw or look up.
        naming: Naming,
    },
    /// The task of this rank asked for further processes, which was refused.
    Spawn(u32),
    /// The task sent something that is not understood. Nothing more is read from it.
    Broken {
        /// Rank of the task.
        rank: u32,
        /// Error for the log: the message of the task, or the reason why it is refused.
        text: String,
    },
}

/// Request about a service name under which other programs find a port (`MPI_Publish_name`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Naming {
    /// Publish a service.
    Publish {
        /// Name of the service.
        service: String,
        /// Port of the service, as text.
        port: String,
    },
    /// Withdraw the service with this name.
    Unpublish(String),
    /// Look up the port of the service with this name.
    Lookup(String),
}

type Acts = Vec<PmiAct>;

impl Pmi {
    /// Makes the state for the tasks `ranks` of a step with this layout.
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

    /// Handles bytes received from a task.
    pub fn hear(&mut self, rank: u32, bytes: &[u8], out: &mut Acts) {
        // because nothing more is read from a task that sent something not understood
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
                // because the rest of the message has yet to come
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

    /// Ends the barrier, with the keys that all ranks put or with an error, and answers the tasks in it.
    pub fn gathered(&mut self, result: Result<&[u8], ()>, out: &mut Acts) {
        if let Ok(bytes) = result {
            let text = String::from_utf8_lossy(bytes);
            for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
                self.keys.insert(key.to_owned(), value.to_owned());
            }
        }
        for rank in std::mem::take(&mut self.waiting) {
            // because a task in the barrier may have sent something not understood since
            let Some(client) = self.clients.get_mut(&rank) else { continue };
            let bytes = match client.version {
                Version::One => one::barrier_out(result.is_ok()),
                Version::Two => two::fence_response(result.is_ok(), client.thread.take().as_deref()),
            };
            out.push(PmiAct::Send { rank, bytes });
        }
    }

    /// Passes the answer of the board of published names to a task; it holds the port if the request was a lookup.
    pub fn named(&mut self, rank: u32, result: Result<Option<&str>, ()>, out: &mut Acts) {
        // because the task may have sent something not understood since, or two requests at once
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

    /// Returns whether a task has greeted and not reported that it is done.
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
            // Another program of the same task may begin, with a greeting of version 1.
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

/// Returns which ranks share a node, in PMI's form: `(vector,(FIRST_NODE,NODES,RANKS_EACH),…)`.
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
