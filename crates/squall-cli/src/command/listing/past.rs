//! What accounting keeps beside jobs, put together: when nodes were there, down or drained, and what was reserved.

use std::collections::BTreeMap;

use squall_model::event::NodeAdmin;
use squall_model::hostlist;
use squall_model::reservation::Reservation;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::history::{Happening, HistoryRow};
use squall_model::wire::info::NodeInfo;

use crate::client::unexpected;
use crate::command::listing::call::{Call, Fail};

/// Asks for the nodes of the cluster and adds what the history tells of them.
pub(crate) fn seen(call: &mut Call<'_>, what: &str, history: &[HistoryRow]) -> Result<Vec<Seen>, Fail> {
    match call.controller.ask(&Request::Nodes) {
        Ok(Answer::Nodes(nodes)) => Ok(self::nodes(history, &nodes)),
        Ok(_) => call.failed(what, &unexpected()),
        Err(e) => call.failed(what, &e),
    }
}

/// A node from when it was first seen.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Its name.
    pub(crate) node: String,
    /// When it registered first; 0: before accounting kept that.
    pub(crate) since: Time,
    /// What it has now.
    pub(crate) cpus: u32,
    /// Memory in MiB.
    pub(crate) memory_mb: u64,
    /// GPUs.
    pub(crate) gpus: u32,
}

/// A time in which a node took no jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    /// The node.
    pub(crate) node: String,
    /// When it began.
    pub(crate) start: Time,
    /// When it ended; None: it has not.
    pub(crate) end: Option<Time>,
    /// Slurm's name for the node's state.
    pub(crate) state: &'static str,
    /// The reason that the operator or Squall gave.
    pub(crate) reason: String,
    /// User id of the operator who set the state; None: Squall set it.
    pub(crate) by: Option<u32>,
}

/// A reservation as it was until it was changed, over or deleted.
#[derive(Clone, Debug)]
pub(crate) struct Reserved {
    /// All of it, with the end that it really had.
    pub(crate) reservation: Reservation,
    /// Names of its nodes, compressed.
    pub(crate) nodes: String,
    /// Its number, from 1 on.
    pub(crate) id: u32,
}

/// Nodes that are there now, with the time since when.
fn nodes(history: &[HistoryRow], now: &[NodeInfo]) -> Vec<Seen> {
    let mut since: BTreeMap<&str, Time> = BTreeMap::new();
    for row in history {
        if let Happening::Registered { node, .. } = &row.what {
            since.entry(node).or_insert(row.time);
        }
    }
    let known = now.iter().filter(|node| node.known);
    let seen = known.map(|node| Seen {
        since: since.get(node.name.as_str()).copied().unwrap_or_default(),
        cpus: node.hardware.cpus,
        memory_mb: node.hardware.memory_mb,
        gpus: gpus(&node.gres),
        node: node.name.clone(),
    });
    seen.collect()
}

fn gpus(gres: &str) -> u32 {
    let counts = squall_model::gres::parse(gres).unwrap_or_default().into_iter();
    counts.filter(|count| count.name == "gpu").map(|count| count.count).sum()
}

/// How a node stands.
#[derive(Clone, Default)]
struct Standing {
    silent: Option<String>,
    admin: NodeAdmin,
    reason: Option<(String, u32)>,
}

impl Standing {
    /// The state in which it takes no jobs, and why; None: it takes jobs.
    fn outage(&self) -> Option<(&'static str, String, Option<u32>)> {
        let (reason, by) = match &self.reason {
            Some((reason, by)) => (reason.clone(), Some(*by)),
            None => (self.silent.clone().unwrap_or_default(), None),
        };
        let state = match (&self.silent, self.admin) {
            (Some(_), NodeAdmin::Drain) => "DOWN*+DRAIN",
            (Some(_), _) => "DOWN*",
            (None, NodeAdmin::Down) => "DOWN",
            (None, NodeAdmin::Drain) => "DRAIN",
            (None, NodeAdmin::Fail) => "FAIL",
            (None, NodeAdmin::Resume) => return None,
        };
        Some((state, reason, by))
    }
}

/// What an event changes of a node.
type Change<'a> = &'a dyn Fn(&mut Standing);

/// All outages, by their beginning.
pub(crate) fn outages(history: &[HistoryRow]) -> Vec<Outage> {
    let mut standing: BTreeMap<String, Standing> = BTreeMap::new();
    let mut open: BTreeMap<String, usize> = BTreeMap::new();
    let mut all: Vec<Outage> = Vec::new();
    for row in history {
        let (nodes, change): (Vec<String>, Change<'_>) = match &row.what {
            Happening::Silent { node, reason } => {
                (vec![node.clone()], &|now: &mut Standing| now.silent = Some(reason.clone()))
            }
            Happening::Heard { node } | Happening::Registered { node, .. } => {
                (vec![node.clone()], &|now: &mut Standing| now.silent = None)
            }
            Happening::Set { nodes, admin, reason, by } => {
                (hostlist::expand(nodes).unwrap_or_default(), &|now: &mut Standing| {
                    now.admin = *admin;
                    let given = reason.clone().map(|reason| (reason, *by));
                    now.reason = if *admin == NodeAdmin::Resume { None } else { given.or(now.reason.take()) };
                })
            }
            _ => continue,
        };
        for node in nodes {
            let now = standing.entry(node.clone()).or_default();
            let before = now.outage();
            change(now);
            let after = now.outage();
            if before == after {
                continue;
            }
            if let Some(at) = open.remove(&node) {
                all[at].end = Some(row.time);
            }
            if let Some((state, reason, by)) = after {
                open.insert(node.clone(), all.len());
                all.push(Outage { node, start: row.time, end: None, state, reason, by });
            }
        }
    }
    all
}

/// All reservations that began, each time that they did, and as they were before and after each change.
pub(crate) fn reservations(history: &[HistoryRow]) -> Vec<Reserved> {
    let mut open: BTreeMap<&str, Reserved> = BTreeMap::new();
    let mut ids: BTreeMap<&str, u32> = BTreeMap::new();
    let mut all = Vec::new();
    let end = |mut was: Reserved, at: Time, all: &mut Vec<Reserved>| {
        was.reservation.end = was.reservation.end.min(at);
        if was.reservation.start < was.reservation.end {
            all.push(was);
        }
    };
    for row in history {
        match &row.what {
            Happening::Reserved { reservation, nodes } => {
                let next = ids.len() as u32 + 1;
                let id = *ids.entry(&reservation.name).or_insert(next);
                let mut reserved = Reserved { reservation: Reservation::clone(reservation), nodes: nodes.clone(), id };
                if let Some(was) = open.remove(reservation.name.as_str()) {
                    let goes_on = was.reservation.start <= row.time && reservation.start == was.reservation.start;
                    end(was, row.time, &mut all);
                    if goes_on {
                        reserved.reservation.start = row.time;
                    }
                }
                open.insert(&reservation.name, reserved);
            }
            Happening::Unreserved { name } => {
                if let Some(was) = open.remove(name.as_str()) {
                    end(was, row.time, &mut all);
                }
                // Another one of that name is another one.
                ids.remove(name.as_str());
            }
            _ => {}
        }
    }
    all.extend(open.into_values());
    all.sort_by_key(|reserved| reserved.reservation.start);
    all
}
