//! What nodes and clients are told of a step.

use squall_model::id::{JobId, NodeId, StepKey, StepNo};
use squall_model::set::CoreSet;
use squall_model::step::{Program, StepLaunch, StepSpec, TaskProgram};
use squall_model::wire::client::Answer;

use crate::control::facts::facts;
use crate::control::layout::{Room, reserve};
use crate::control::state::State;
use crate::control::state::job::{Phase, Run, Step};

/// The allocation of a running job with what its steps leave free; None: it does not run.
fn rooms(state: &State, job: JobId) -> Option<Vec<Room>> {
    let Phase::Running(run) = &state.jobs.get(&job)?.phase else { return None };
    let mut rooms: Vec<Room> = Vec::new();
    for id in run.alloc.nodes().iter() {
        let (Some(node), Some(group)) = (state.node(id), run.alloc.on(id)) else { continue };
        rooms.push(Room {
            node: id,
            name: node.name.clone(),
            cores: group.cores.clone(),
            free: group.cores.clone(),
            memory_mb: group.memory_mb,
            free_mb: group.memory_mb,
        });
    }
    for step in holding(run) {
        for group in &step.alloc.groups {
            for id in group.nodes.iter().filter(|id| step.left.contains(*id)) {
                let Ok(at) = rooms.binary_search_by_key(&id, |room| room.node) else { continue };
                rooms[at].free.subtract(&group.cores);
                rooms[at].free_mb = rooms[at].free_mb.saturating_sub(group.memory_mb);
            }
        }
    }
    Some(rooms)
}

/// What steps that wait may choose from.
pub(crate) struct Offer {
    /// The allocation with what its steps leave free.
    all: Vec<Room>,
    /// The same without what the first of those who wait will need, if somebody waits.
    rest: Option<Vec<Room>>,
}

impl Offer {
    /// `first`: what the first of those who wait asks for. None: the job does not run.
    pub(crate) fn new(state: &State, job: JobId, first: Option<&StepSpec>) -> Option<Self> {
        let all = rooms(state, job)?;
        let rest = first.map(|spec| {
            let mut rest = all.clone();
            reserve(&mut rest, spec);
            rest
        });
        Some(Self { all, rest })
    }

    /// For whom a request is, decides what it may have: what holds cores may itself wait for a step that was asked
    /// for from within, so that one is not held up by those who wait for these cores.
    pub(crate) fn to(&self, program: &TaskProgram) -> &[Room] {
        match &self.rest {
            Some(rest) if program.within.is_none() => rest,
            _ => &self.all,
        }
    }
}

/// Steps that hold cores: all that have not ended, but for the batch script, which shares with everything.
fn holding(run: &Run) -> impl Iterator<Item = &Step> {
    run.steps.iter().filter(|(no, step)| **no != StepNo::BATCH && step.ended.is_none()).map(|(_, step)| step)
}

/// The launches of a step for all nodes whose share has not ended.
pub(crate) fn all(state: &State, key: StepKey, program: &TaskProgram) -> Vec<(NodeId, Box<StepLaunch>)> {
    let Some(step) = step_of(state, key) else { return Vec::new() };
    step.left.iter().filter_map(|node| Some((node, one(state, key, program, node)?))).collect()
}

/// The launch of a step for one node.
pub(crate) fn one(state: &State, key: StepKey, program: &TaskProgram, node: NodeId) -> Option<Box<StepLaunch>> {
    let step = step_of(state, key)?;
    let run = state.jobs.get(&key.job)?.run()?;
    let mut facts = facts(state, key.job)?;
    facts.key = key;
    let name = &state.node(node)?.name;
    let (held, job_holds) = (step.alloc.on(node)?, run.alloc.on(node)?);
    Some(Box::new(StepLaunch {
        key,
        node_index: step.layout.nodes.iter().position(|known| known == name)? as u32,
        job_node_index: facts.nodes.iter().position(|known| known == name)? as u32,
        layout: step.layout.clone(),
        cores: usable(&held.cores, &job_holds.cores).clone(),
        memory_mb: if held.memory_mb > 0 { held.memory_mb } else { job_holds.memory_mb },
        program: Program::Tasks(Box::new(program.clone())),
        kill_wait_s: state.config.kill_wait_s,
        facts,
    }))
}

/// What `srun` is told when its step has a place.
pub(crate) fn created(state: &State, key: StepKey) -> Option<Answer> {
    let step = step_of(state, key)?;
    let run = state.jobs.get(&key.job)?.last_run()?;
    let mut facts = facts(state, key.job)?;
    facts.key = key;
    let cpus = step.layout.nodes.iter().filter_map(|name| {
        let node = state.node_id(name)?;
        Some(usable(&step.alloc.on(node)?.cores, &run.alloc.on(node)?.cores).len() as u32)
    });
    Some(Answer::StepCreated {
        step: key.step,
        layout: Box::new(step.layout.clone()),
        cpus: cpus.collect(),
        facts: Box::new(facts),
    })
}

/// Cores that a step may use: its own, or with `--overlap` all of the job's.
fn usable<'a>(own: &'a CoreSet, of_job: &'a CoreSet) -> &'a CoreSet {
    if own.is_empty() { of_job } else { own }
}

fn step_of(state: &State, key: StepKey) -> Option<&Step> {
    let job = state.jobs.get(&key.job).filter(|job| job.attempt == key.attempt)?;
    job.last_run()?.steps.get(&key.step)
}
