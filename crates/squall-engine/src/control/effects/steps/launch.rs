//! Messages to nodes and clients about a step.

use std::sync::Arc;

use squall_model::gres::{self, Grant, NodeGres};
use squall_model::id::{JobId, NodeId, StepKey, StepNo};
use squall_model::limits::TASKS_PER_NODE_MAX;
use squall_model::places::Replacement;
use squall_model::resource::{Alloc, AllocGroup};
use squall_model::set::CoreSet;
use squall_model::step::{Program, StepDefaults, StepStart, TaskProgram};
use squall_model::wire::client::Answer;
use squall_sched::Grain;

use crate::control::index::desk::Waiting;
use crate::control::index::facts::facts;
use crate::control::index::layout::{Room, Wanted, reserve};
use crate::control::state::State;
use crate::control::state::job::{Phase, Run, Step};
use crate::invariant::invariant;

/// Returns the nodes of a running job, each with the cores, memory and devices that no step holds. None: the job does
/// not run.
fn rooms(state: &State, job: JobId) -> Option<Vec<Room>> {
    let Phase::Running(run) = &state.jobs.get(&job)?.phase else { return None };
    let select = state.config.select_type_parameters;
    let mut rooms: Vec<Room> = Vec::new();
    for id in run.working_nodes() {
        let (Some(node), Some(group)) = (state.node(id), run.alloc.on(id)) else {
            invariant!("a node of an allocation is counted, and has a part of it");
            continue;
        };
        rooms.push(Room {
            node: id,
            name: node.name.clone(),
            replaces: replaced_by(state, run, id),
            cores: group.cores.clone(),
            free: group.cores.clone(),
            memory_mb: group.memory_mb,
            free_mb: group.memory_mb,
            packs: select.pack_nodes,
            grain: Grain::of_steps(select.unit, &node.hardware, &group.cores),
            threads: node.hardware.threads_per_core.max(1),
            gres: devices(state, job, id),
            gres_free: NodeGres::default(),
        });
    }
    free_devices(run, &mut rooms);
    for step in holding(run) {
        for group in &step.alloc.groups {
            for id in group.nodes.iter().filter(|id| step.left.contains(*id)) {
                // because a step may still end on nodes that its job has given back
                let Some(at) = Room::find(&rooms, id) else { continue };
                rooms[at].free.subtract(&group.cores);
                rooms[at].free_mb = rooms[at].free_mb.saturating_sub(group.memory_mb);
            }
        }
    }
    Some(rooms)
}

/// Returns the names of failed nodes of a job that stand for a node: that of its place, and those of nodes that it replaced
/// there. A node that came back and failed again stands for the one that replaced it last.
fn replaced_by(state: &State, run: &Run, node: NodeId) -> Vec<String> {
    let Some(places) = &run.places else { return Vec::new() };
    let is_last = |one: &&Replacement| {
        let last = places.replaced.iter().rev().find(|other| other.place == one.place);
        one.node == node && last.is_some_and(|last| last.node == node)
    };
    places.replaced.iter().filter(is_last).filter_map(|one| Some(state.node(one.place)?.name.clone())).collect()
}

/// Returns a node's devices as the job's steps see them: devices that are not the job's count as held.
fn devices(state: &State, job: JobId, node: NodeId) -> NodeGres {
    let run = state.jobs.get(&job).and_then(|job| job.run());
    let Some(run) = run.filter(|run| !run.gres.is_empty()) else { return NodeGres::default() };
    let mut has = state.index.gres.get(&node).map(NodeGres::vacant).unwrap_or_default();
    // Of a GPU that is shared, the job has its parts only.
    has.parts.clear();
    let own = gres::on_node(&run.gres, node);
    for kind in has.kinds.clone() {
        let mut others: CoreSet = kind.indices.collect();
        others.subtract(own.get(&kind.name).unwrap_or(&CoreSet::new()));
        has.held.entry(kind.name).or_default().union_with(&others);
    }
    has
}

/// Marks the devices that steps hold as held on each node.
fn free_devices(run: &Run, rooms: &mut [Room]) {
    for room in rooms {
        room.gres_free = room.gres.clone();
        let live = run.steps.values().filter(|step| step.left.contains(room.node));
        let held: Vec<_> =
            live.filter_map(|step| step.gres.as_ref()).flat_map(|gres| gres::on_node(gres, room.node)).collect();
        for (name, indices) in held {
            room.gres_free.held.entry(name).or_default().union_with(&indices);
        }
    }
}

/// Returns what a step of a job asks for. `gres`: its generic resources. Where tasks have cores of their own
/// (`CR_ONE_TASK_PER_CORE`), those of a step do, too, unless step or job say how many share a core.
pub(super) fn wanted<'a>(state: &State, job: JobId, request: &'a Waiting, gres: Option<&'a gres::Ask>) -> Wanted<'a> {
    let mut inside = request.program.options.inside();
    if state.config.select_type_parameters.one_task_per_core && inside.tasks_per_core == 0 {
        let of_job = state.jobs.get(&job).map_or(0, |job| job.spec.options.inside().tasks_per_core);
        inside.tasks_per_core = of_job.max(1);
    }
    let most_tasks = state.config.max_tasks_per_node.min(TASKS_PER_NODE_MAX);
    Wanted { spec: &request.spec, inside, gres, most_tasks }
}

/// Nodes and resources that a waiting step may get.
pub(crate) struct Offer {
    /// The job's nodes, each with the cores, memory and devices that no running step holds.
    all: Vec<Room>,
    /// The job's nodes without what running steps hold and without what the first waiting step will need; None: no step
    /// waits.
    rest: Option<Vec<Room>>,
}

impl Offer {
    /// Makes the offer for the steps of a job; `first` is the request of the first waiting step. None: the job does not
    /// run.
    pub(crate) fn new(state: &State, job: JobId, first: Option<Wanted<'_>>) -> Option<Self> {
        let all = rooms(state, job)?;
        let rest = first.map(|wanted| {
            let mut rest = all.clone();
            reserve(&mut rest, wanted);
            rest
        });
        Some(Self { all, rest })
    }

    /// Returns the resources that a step request may use. A step requested from within another step may also use what
    /// the first waiting step needs. The enclosing step holds cores and may be waiting for it, so it must not wait for
    /// those cores itself.
    pub(crate) fn to(&self, program: &TaskProgram) -> &[Room] {
        match &self.rest {
            Some(rest) if program.within.is_none() => rest,
            _ => &self.all,
        }
    }
}

/// Returns the steps of a job that hold cores: all that have not ended, except the batch script, which shares its cores
/// with all of them.
fn holding(run: &Run) -> impl Iterator<Item = &Step> {
    run.steps.iter().filter(|(no, step)| **no != StepNo::BATCH && step.ended.is_none()).map(|(_, step)| &**step)
}

/// Returns the start message for a step; all of its nodes get the same one.
pub(crate) fn start(state: &State, key: StepKey, program: &TaskProgram) -> Option<Box<StepStart>> {
    let step = step_of(state, key)?;
    let run = state.jobs.get(&key.job)?.run()?;
    let mut facts = facts(state, key.job)?;
    facts.key = key;
    Some(Box::new(StepStart {
        key,
        facts: Arc::new(facts),
        layout: step.layout.clone(),
        shares: shares(step, run),
        program: Program::Tasks(Box::new(program.clone())),
        kill_wait_s: state.config.kill_wait_s,
        gres: step_gres(state, key),
    }))
}

/// Returns the devices that a step may use: its own, or all of the job's.
fn step_gres(state: &State, key: StepKey) -> Vec<Grant> {
    let Some(run) = state.jobs.get(&key.job).and_then(|job| job.run()) else { return Vec::new() };
    run.steps.get(&key.step).and_then(|step| step.gres.as_ref()).unwrap_or(&run.gres).clone()
}

/// Returns what a step may use on its nodes: its own cores and memory, or all of the job's if it holds none
/// (`--overlap`).
fn shares(step: &Step, run: &Run) -> Alloc {
    let mut shares = Alloc::default();
    for (own, of_job) in step.alloc.groups.iter().flat_map(|own| run.alloc.groups.iter().map(move |job| (own, job))) {
        let nodes = own.nodes.intersection(&of_job.nodes);
        if !nodes.is_empty() {
            let cores = if own.cores.is_empty() { &of_job.cores } else { &own.cores };
            let memory_mb = if own.memory_mb > 0 { own.memory_mb } else { of_job.memory_mb };
            shares.add(AllocGroup { nodes, cores: cores.clone(), memory_mb });
        }
    }
    shares
}

/// Returns the answer that `srun` gets when its step has a layout.
pub(crate) fn created(state: &State, key: StepKey) -> Option<Answer> {
    let step = step_of(state, key)?;
    let mut facts = facts(state, key.job)?;
    facts.key = key;
    let (layout, kill_wait_s) = (Box::new(step.layout.clone()), state.config.kill_wait_s);
    let (kill_on_bad_exit, wait_s) = (state.config.kill_on_bad_exit, state.config.wait_time_s);
    let usual = (kill_on_bad_exit || wait_s > 0).then_some(StepDefaults { kill_on_bad_exit, wait_s });
    Some(Answer::StepCreated { step: key.step, layout, facts: Box::new(facts), kill_wait_s, usual })
}

fn step_of(state: &State, key: StepKey) -> Option<&Step> {
    let job = state.jobs.get(&key.job).filter(|job| job.attempt == key.attempt)?;
    job.last_run()?.steps.get(&key.step).map(|step| &**step)
}
