//! Times of nodes and reservations, derived from accounting's history: when nodes registered, were down or drained, and
//! when reservations existed.

use std::collections::BTreeMap;

use squall_model::event::NodeAdmin;
use squall_model::hostlist;
use squall_model::reservation::Reservation;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::history::{Happening, HistoryRow};
use squall_model::wire::info::NodeInfo;

use crate::command::listing::call::{Call, Fail};
use squall_client::unexpected;

/// Asks the controller for its nodes and adds the time of first registration from the history.
pub(crate) fn seen(call: &mut Call<'_>, what: &str, history: &[HistoryRow]) -> Result<Vec<RegisteredNode>, Fail> {
    match call.controller.ask(&Request::Nodes) {
        Ok(Answer::Nodes(nodes)) => Ok(self::nodes(history, &nodes)),
        Ok(_) => call.failed(what, &unexpected()),
        Err(e) => call.failed(what, &e),
    }
}

/// A node of the cluster, with the time of its first registration.
#[derive(Clone, Debug)]
pub(crate) struct RegisteredNode {
    /// Name of the node.
    pub(crate) node: String,
    /// Time of the node's first registration; 0: it registered before accounting recorded such events.
    pub(crate) since: Time,
    /// Number of CPUs of the node at present.
    pub(crate) cpus: u32,
    /// Memory of the node at present, MiB.
    pub(crate) memory_mb: u64,
    /// Number of GPUs of the node at present.
    pub(crate) gpus: u32,
}

/// A period in which a node took no jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    /// Name of the node.
    pub(crate) node: String,
    /// Time at which the outage began.
    pub(crate) start: Time,
    /// End of the outage; None: it goes on.
    pub(crate) end: Option<Time>,
    /// Slurm's name for the node's state in this period, such as `DOWN*`.
    pub(crate) state: &'static str,
    /// Reason for the outage, as given by the operator or Squall.
    pub(crate) reason: String,
    /// User id of the operator who set the state; None: Squall set it.
    pub(crate) by: Option<u32>,
}

/// One version of a reservation: from its start or last change until it was changed, ended or deleted.
#[derive(Clone, Debug)]
pub(crate) struct ReservationVersion {
    /// The reservation in this version, with its actual end.
    pub(crate) reservation: Reservation,
    /// Names of the reserved nodes as a host list, such as `n[1-4]`.
    pub(crate) nodes: String,
    /// Number of the reservation, from 1 on. A later reservation of the same name has another number.
    pub(crate) id: u32,
}

/// Returns the nodes that are registered now, with the time of their first registration.
fn nodes(history: &[HistoryRow], now: &[NodeInfo]) -> Vec<RegisteredNode> {
    let mut since: BTreeMap<&str, Time> = BTreeMap::new();
    for row in history {
        if let Happening::Registered { node, .. } = &row.what {
            since.entry(node).or_insert(row.time);
        }
    }
    let known = now.iter().filter(|node| node.known);
    let seen = known.map(|node| RegisteredNode {
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

/// State of a node at one point of accounting's history.
#[derive(Clone, Default)]
struct Availability {
    /// Whether the node was removed from the cluster, and has not registered again. It has no outages then.
    removed: bool,
    silent: Option<String>,
    admin: NodeAdmin,
    reason: Option<(String, u32)>,
}

impl Availability {
    /// Returns the state in which the node takes no jobs, the reason, and the user who set it; None: it takes jobs.
    fn outage(&self) -> Option<(&'static str, String, Option<u32>)> {
        if self.removed {
            return None;
        }
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

/// Function that applies the effect of an event to a node's state.
type Change<'a> = &'a dyn Fn(&mut Availability);

/// Returns all outages, ordered by their start.
pub(crate) fn outages(history: &[HistoryRow]) -> Vec<Outage> {
    let mut standing: BTreeMap<String, Availability> = BTreeMap::new();
    let mut open: BTreeMap<String, usize> = BTreeMap::new();
    let mut all: Vec<Outage> = Vec::new();
    for row in history {
        let (nodes, change): (Vec<String>, Change<'_>) = match &row.what {
            Happening::Silent { node, reason } => {
                (vec![node.clone()], &|now: &mut Availability| now.silent = Some(reason.clone()))
            }
            Happening::Heard { node } => (vec![node.clone()], &|now: &mut Availability| now.silent = None),
            Happening::Registered { node, .. } => {
                (vec![node.clone()], &|now: &mut Availability| (now.removed, now.silent) = (false, None))
            }
            // Nothing that was set is left if a node of the same name comes later.
            Happening::Removed { nodes, .. } => {
                (hostlist::expand(nodes).unwrap_or_default(), &|now: &mut Availability| {
                    *now = Availability { removed: true, ..Availability::default() };
                })
            }
            Happening::Set { nodes, admin, reason, by } => {
                (hostlist::expand(nodes).unwrap_or_default(), &|now: &mut Availability| {
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

/// Returns every version of every reservation that began, ordered by start; each change of a reservation ends a
/// version.
pub(crate) fn reservations(history: &[HistoryRow]) -> Vec<ReservationVersion> {
    let mut open: BTreeMap<&str, ReservationVersion> = BTreeMap::new();
    let mut ids: BTreeMap<&str, u32> = BTreeMap::new();
    let mut all = Vec::new();
    let end = |mut was: ReservationVersion, at: Time, all: &mut Vec<ReservationVersion>| {
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
                let mut reserved =
                    ReservationVersion { reservation: Reservation::clone(reservation), nodes: nodes.clone(), id };
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
                // A later reservation of the same name gets a new number.
                ids.remove(name.as_str());
            }
            _ => {}
        }
    }
    all.extend(open.into_values());
    all.sort_by_key(|reserved| reserved.reservation.start);
    all
}
