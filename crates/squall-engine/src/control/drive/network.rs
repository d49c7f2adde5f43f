//! What running jobs keep of the network for themselves, what pending ones wish of it, and where nodes are in it.

use std::collections::BTreeSet;

use squall_model::duration::parse_limit;
use squall_model::set::NodeSet;
use squall_model::step::Addresses;
use squall_model::time::{Span, Time};
use squall_model::wire::client::Refusal;
use squall_sched::topology::{Kind, Topology, Wish};

use super::queue::{Pending, Queue};
use crate::control::state::State;

/// How long a job waits for the switches that it asked for unless it says so, seconds.
const SWITCHES_S: u64 = 300;

/// Where the nodes of an allocation are.
pub(crate) fn addresses(state: &State, nodes: &NodeSet) -> Addresses {
    let topology = &state.index.topology;
    let mut found = Addresses::default();
    if topology.is_flat() {
        return found;
    }
    for node in nodes.iter().filter_map(|id| Some((id, state.node(id)?))) {
        let (address, pattern) = topology.address(node.0, &node.1.name);
        let above = address.strip_suffix(&node.1.name).unwrap_or_default().to_owned();
        found.above.push(above);
        found.pattern = pattern;
    }
    found
}

impl Queue {
    /// Before a pass: what running jobs have for themselves, if the network is such that it matters.
    pub(crate) fn look_at_network(&mut self, state: &State, now: Time) {
        self.now = now;
        self.closed.clear();
        if !matches!(state.index.topology.kind, Kind::Torus(_)) {
            return;
        }
        let jobs: BTreeSet<_> = state.nodes.iter().flat_map(|node| node.jobs.iter().copied()).collect();
        for run in jobs.iter().filter_map(|id| state.jobs.get(id)).filter_map(|job| Some((job, job.run()?))) {
            let nodes = run.1.alloc.nodes();
            let wish = Wish::of(&run.0.spec.others).unwrap_or_default();
            if wish.is_sensitive(nodes.len() as u32) {
                self.closed.push(nodes);
            }
        }
    }

    /// What a pending job wishes of the network at this time.
    pub(crate) fn wish(&self, state: &State, pending: &Pending<'_>) -> Wish {
        if state.index.topology.is_flat() {
            return Wish::default();
        }
        let mut wish = Wish::of(&pending.spec.others).unwrap_or_default();
        if wish.switches.is_some() && Self::patience(state, pending).is_some_and(|until| until <= self.now) {
            wish.switches = None;
        }
        wish
    }

    /// Until when a job waits for few switches; None: it does not, or the network has none.
    pub(crate) fn patience(state: &State, pending: &Pending<'_>) -> Option<Time> {
        let (_, text) = pending.spec.others.iter().find(|(name, _)| name == "switches")?;
        let wait_s = match text.split_once('@') {
            Some((_, time)) => parse_limit(time).ok().flatten()?,
            None => SWITCHES_S,
        };
        let submit = match pending.array {
            Some(array) => array.submit,
            None => state.jobs.get(&pending.item.id)?.submit,
        };
        matches!(state.index.topology.kind, Kind::Tree { .. }).then(|| submit + Span::from_secs(wait_s))
    }
}

/// Refuses wishes that no job on this network can have, and says what comes nearest.
pub(crate) fn admit(topology: &Topology, others: &[(String, String)]) -> Result<(), Refusal> {
    let invalid = |option: &str, value: &str, problem: String| Refusal::InvalidValue {
        option: option.to_owned(),
        value: value.to_owned(),
        problem,
    };
    let wish = Wish::of(others).map_err(|fault| {
        let example = if fault.option == "geometry" { "extents like 4x4x8 are needed" } else { "a number is needed" };
        invalid(fault.option, &fault.value, example.to_owned())
    })?;
    let Kind::Torus(tori) = &topology.kind else { return Ok(()) };
    let Some(size) = wish.geometry else { return Ok(()) };
    if tori.iter().any(|torus| torus.takes(&size)) {
        return Ok(());
    }
    let value = others.iter().find(|(name, _)| name == "geometry").map_or("", |(_, value)| value);
    let nearest = tori.iter().filter_map(|torus| Some(torus.frame.text(&torus.nearest(&size)?)));
    let nearest = nearest.collect::<Vec<_>>().join(" or ");
    let problem = format!("no prism of that shape keeps its traffic to itself here; the nearest that does: {nearest}");
    Err(invalid("geometry", value, problem))
}
