//! Network topology in the queue: links that running jobs use alone, placement wishes of pending jobs, and refusals of
//! wishes that can't be fulfilled.

use std::collections::BTreeSet;

use squall_model::hostlist;
use squall_model::id::NodeId;
use squall_model::job::JobSpec;
use squall_model::job::network::Class;
use squall_model::time::{Span, Time};
use squall_model::wire::client::Refusal;
use squall_sched::Closed;
use squall_sched::layout::{Grid, shapes};
use squall_sched::topology::groups::Groups;
use squall_sched::topology::segments::{self, Segments};
use squall_sched::topology::{TopologyKind, Torus, Wish, block_sizes};

use crate::control::index::pending::Pending;
use crate::control::index::queue::Queue;
use crate::control::state::State;
use crate::invariant::invariant;

impl Queue {
    /// Prepares a pass: collects on a torus the nodes of running jobs with network links that no other job may use, and
    /// the users of occupied nodes.
    pub(crate) fn look_around(&mut self, state: &State, now: Time) {
        self.now = now;
        self.look_at_users(state);
        self.look_at_power(state);
        self.closed.clear();
        if !matches!(state.index.topology.kind, TopologyKind::Torus(_)) {
            return;
        }
        let jobs: BTreeSet<_> = state.nodes.iter().flat_map(|node| node.jobs.iter().copied()).collect();
        for id in jobs {
            let Some((job, run)) = state.jobs.get(&id).and_then(|job| Some((job, job.run()?))) else {
                invariant!("a job on a node has resources");
                continue;
            };
            let nodes = run.alloc.nodes();
            let wish = Wish::of_job(&job.spec.options).unwrap_or_default();
            if wish.is_sensitive(nodes.len() as u32) {
                let until = self.end_of.get(&id).copied().unwrap_or(Time(u64::MAX));
                self.closed.push(Closed { nodes, from: Time(0), until });
            }
        }
    }

    /// Orders the nodes: those that are powered up come first.
    fn look_at_power(&mut self, state: &State) {
        let asleep = &state.index.asleep;
        if asleep.is_empty() || self.order.is_some() {
            return;
        }
        let by_number = (0..state.nodes.len() as u32).map(NodeId).take_while(|_| state.index.by_weight.is_empty());
        let all: Vec<NodeId> = state.index.by_weight.iter().copied().chain(by_number).collect();
        let (down, up): (Vec<NodeId>, Vec<NodeId>) = all.into_iter().partition(|id| asleep.contains(*id));
        self.order = Some([up, down].concat());
    }

    /// Returns the network placement that a pending job wishes now: few switches, a prism, a grid. A wish for few
    /// switches ends when the job has waited long enough.
    pub(crate) fn wish(&self, state: &State, pending: &Pending<'_>) -> Wish {
        if state.index.topology.is_flat() {
            return Wish::default();
        }
        let mut wish = Wish::of_job(&pending.spec.options).unwrap_or_default();
        wish.patience = Self::patience(state, pending);
        if wish.patience.is_some_and(|until| until <= self.now) {
            (wish.switches, wish.patience) = (None, None);
        }
        wish
    }

    /// Returns until when a job waits for a placement on few switches. None: the job does not wait, or the network has
    /// no switches.
    pub(crate) fn patience(state: &State, pending: &Pending<'_>) -> Option<Time> {
        Some(pending.submit + Span::from_secs(patience_s(state, pending.spec)?))
    }
}

/// Returns how long a job waits for a placement on few switches, seconds from its submission: the time that the job
/// gives, at most `max_switch_wait`. None: the job does not wait, or the network has no switches.
pub(crate) fn patience_s(state: &State, spec: &JobSpec) -> Option<u64> {
    let said = spec.options.network.switches.as_ref()?.value.wait_s;
    let most = u64::from(state.config.scheduler_parameters.max_switch_wait_s);
    matches!(state.index.topology.kind, TopologyKind::Tree { .. }).then(|| said.map_or(most, |said| said.min(most)))
}

/// Checks a division into segments. The error says why no job can have it here.
fn admit_segments(state: &State, spec: &JobSpec, segments: Segments) -> Result<(), String> {
    let topology = &state.index.topology;
    match &topology.kind {
        // As with Slurm it means nothing without blocks.
        TopologyKind::Flat | TopologyKind::Tree { .. } => return Ok(()),
        TopologyKind::Ring(_) | TopologyKind::Torus(_) => {
            return Err("only blocks are divided into segments, and this network has none: leave it out".to_owned());
        }
        TopologyKind::Block { blocks, sizes } => {
            let blocks = &block_sizes(blocks);
            segments::check(blocks, sizes, segments, spec.need.nodes_min)?;
            if let Some(list) = &spec.need.nodelist {
                // That each of these nodes exists was checked before.
                let names = hostlist::expand(list).unwrap_or_default();
                let nodes: Vec<NodeId> = names.iter().filter_map(|name| state.node_id(name)).collect();
                if spec.need.nodes_min.is_some_and(|wanted| wanted as usize != nodes.len() && wanted > segments.nodes) {
                    return Err("name as many nodes by --nodelist as the job has".to_owned());
                }
                segments::check_named(&|node| topology.place(node), (blocks, sizes), segments, &nodes)?;
            }
        }
    }
    let other = match &spec.need {
        need if need.contiguous => "--contiguous",
        _ if spec.options.network.class.as_ref().is_some_and(|given| given.value == Class::Anywhere) => "--network",
        _ => return Ok(()),
    };
    Err(format!("{other} says itself which nodes the job gets: leave one of them out"))
}

/// Checks the job's groups of ranks. The error says why no job can have them here.
fn admit_groups(state: &State, spec: &JobSpec, groups: &Groups) -> Result<(), String> {
    let need = &spec.need;
    let ranks = groups.tasks();
    let nodes = need.nodes_min.filter(|nodes| need.nodes_max.is_none_or(|most| most == *nodes));
    let each = need.ntasks_per_node.unwrap_or(1);
    let tasks = need.ntasks.or_else(|| Some(nodes?.saturating_mul(each)));
    if tasks != Some(ranks) {
        let has = tasks.map_or_else(String::new, |tasks| format!(", and the job has {tasks}"));
        return Err(format!("these are {ranks} ranks{has}: --ntasks must be {ranks}"));
    }
    if let Some(nodes) = nodes.filter(|nodes| groups.each_on(*nodes as usize).is_none()) {
        return Err(format!("{ranks} ranks don't lie evenly on {nodes} nodes"));
    }
    if spec.options.network.grid.is_some() {
        return Err("--grid says itself where ranks go: leave one of them out".to_owned());
    }
    match state.index.topology.kind {
        TopologyKind::Flat | TopologyKind::Tree { .. } | TopologyKind::Block { .. } => Ok(()),
        TopologyKind::Ring(_) => Err("a ring has no blocks in which groups could stand: leave it out".to_owned()),
        TopologyKind::Torus(_) => {
            Err("on a torus --grid says which ranks exchange messages: use it instead".to_owned())
        }
    }
}

/// Refuses network placements that no job on this network can have, and names the nearest possible one. `tasks_each`:
/// most tasks of the job that fit on a node; 0: not known yet.
pub(crate) fn admit(state: &State, spec: &JobSpec, tasks_each: impl Fn() -> u32) -> Result<(), Refusal> {
    let topology = &state.index.topology;
    let Some(options) = spec.options.get() else { return Ok(()) };
    let asked = &options.network;
    let wish = Wish::of_job(options).map_err(|fault| {
        let needed = match fault.option {
            "geometry" => "extents like 4x4x8 are needed",
            "groups" => "names and numbers of ranks like tp:8,pp:4,dp:16 are needed, each name once",
            "grid" => "1 to 4 extents like 32x32x32 are needed, and :periodic if the last are neighbours of the first",
            _ => "what neighbours exchange along each dimension of the grid is needed, like 4,4,1",
        };
        invalid(fault.option, &fault.value, needed.to_owned())
    })?;
    let text_of_grid = asked.grid.as_ref().map_or("", |given| &given.text);
    let grid = wish.grid.map(|ranks| ranks.grid());
    if let Some(grid) = &grid
        && spec.need.ntasks.map(|tasks| tasks as usize) != Some(grid.tasks())
    {
        let problem = format!("it has {} processes, so --ntasks must be {0}", grid.tasks());
        return Err(invalid("grid", text_of_grid, problem));
    }
    if let Some(segments) = wish.segments {
        admit_segments(state, spec, segments)
            .map_err(|problem| invalid("segment", &segments.nodes.to_string(), problem))?;
    } else if options.segments.is_some() {
        return Err(invalid(
            "segment",
            "",
            "--spread-segments and --consolidate-segments need it: give the number of nodes of a segment".to_owned(),
        ));
    }
    if let (Some(groups), Some(given)) = (&wish.groups, &asked.groups) {
        admit_groups(state, spec, groups).map_err(|problem| invalid("groups", &given.text, problem))?;
    }
    let TopologyKind::Torus(tori) = &topology.kind else { return Ok(()) };
    if let Some(size) = wish.geometry
        && !tori.iter().any(|torus| torus.takes(&size))
    {
        let nearest = tori.iter().filter_map(|torus| Some(torus.frame.text(&torus.nearest(&size)?)));
        let nearest = nearest.collect::<Vec<_>>().join(" or ");
        let problem =
            format!("no prism of that shape keeps its traffic to itself here; the nearest that does: {nearest}");
        let text = asked.geometry.as_ref().map_or("", |given| &given.text);
        return Err(invalid("geometry", text, problem));
    }
    let tasks_each = if grid.is_some() { tasks_each() } else { 0 };
    match grid {
        Some(grid) if tasks_each > 0 => {
            lies(tori, spec, (&grid, tasks_each)).map_err(|problem| invalid("grid", text_of_grid, problem))
        }
        _ => Ok(()),
    }
}

fn invalid(option: &str, value: &str, problem: String) -> Refusal {
    Refusal::InvalidValue { option: option.to_owned(), value: value.to_owned(), problem }
}

/// Checks that the job's process grid fits a prism (box of routers) of the torus. Returns a text about the problem if
/// it does not.
fn lies(tori: &[Torus], spec: &JobSpec, (grid, tasks_each): (&Grid, u32)) -> Result<(), String> {
    let (least, most) = (spec.need.nodes_min, spec.need.nodes_max);
    let given = least.filter(|nodes| most.is_none_or(|most| most == *nodes));
    let found = |nodes: Option<u32>| {
        let sizes = tori.iter().flat_map(|torus| {
            shapes(&torus.frame, grid, tasks_each, nodes, 1).into_iter().map(move |size| (torus, size))
        });
        sizes
            .map(|(torus, size)| (size.iter().product::<u32>() * torus.frame.per_router(), torus.frame.text(&size)))
            .collect::<Vec<_>>()
    };
    let fits = |(nodes, _): &(u32, String)| most.is_none_or(|most| *nodes <= most.max(least.unwrap_or(1)));
    if found(given).iter().any(fits) {
        return Ok(());
    }
    let places: u64 = tori.iter().map(|torus| torus.frame.cells() as u64 * u64::from(torus.frame.per_router())).sum();
    let tasks = grid.tasks();
    let mut problem =
        format!("{tasks} processes, at most {tasks_each} on a node, lie on no prism of the {places} nodes");
    if let Some(nodes) = given {
        problem = format!("{tasks} processes, at most {tasks_each} on a node, lie on no prism of {nodes} nodes");
    }
    if let Some((nodes, shape)) = found(None).into_iter().next() {
        problem = format!("{problem}; they would on {nodes}, in a prism of {shape}");
    }
    Err(problem)
}
