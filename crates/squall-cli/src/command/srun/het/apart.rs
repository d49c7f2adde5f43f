//! A step of several components in a plain job: each component runs on nodes of the job that no other one has, as in
//! Slurm.

use std::ffi::OsString;

use squall_model::hostlist::{compress, expand};
use squall_model::set::IndexSet;
use squall_model::step::{Distribution, JobFacts, StepSpec};

use super::{Part, SRUN, numbers_of, variables};
use crate::capture::Vars;
use squall_text::options::{Stop, collect};

/// Options that say which nodes a component has. The nodes that were found for it replace them.
const PLACE: [&str; 5] = ["nodelist", "nodefile", "exclude", "relative", "nodes"];

/// Variables that say how many nodes the job has. They are not the size of a component if several programs are given.
const OF_JOB: [&str; 2] = ["SLURM_JOB_NUM_NODES", "SLURM_NNODES"];

/// Returns whether the parts are components of one step, though the job has no components.
pub(super) fn is_in_plain_job(parts: &[Part], facts: &JobFacts) -> bool {
    let count = |(at, part): (u32, &Part)| numbers_of(part, at).len();
    facts.components.is_empty() && (0..).zip(parts).map(count).sum::<usize>() > 1
}

/// Gives each component nodes of its own, in the order of their numbers. Returns a part for each component.
pub(super) fn divide(parts: &[Part], facts: &JobFacts, vars: &Vars) -> Result<Vec<Part>, Stop> {
    let mut components: Vec<(u32, &Part)> = Vec::new();
    for (at, part) in (0..).zip(parts) {
        components.extend(numbers_of(part, at).iter().map(|number| (number, part)));
    }
    components.sort_by_key(|(number, _)| *number);
    if let Some(twice) = components.windows(2).find(|two| two[0].0 == two[1].0) {
        return Err(super::duplicate(twice[0].0));
    }
    let kept = |name: &str| parts.len() == 1 || !OF_JOB.contains(&name);
    let vars = variables(facts, vars).into_iter().filter(|(name, _)| name.to_str().is_none_or(kept));
    let vars: Vars = vars.collect();
    let mut room = Room { facts, used: IndexSet::new(), excluded: IndexSet::new() };
    components.into_iter().map(|(_, part)| room.give(part, &vars)).collect()
}

/// The nodes of a job, as positions in its list.
struct Room<'a> {
    facts: &'a JobFacts,
    /// Nodes that components have.
    used: IndexSet,
    /// Nodes that the last `--exclude` names. As in Slurm it also applies to the components after it.
    excluded: IndexSet,
}

impl Room<'_> {
    /// Returns a component's part with the nodes that it gets.
    fn give(&mut self, part: &Part, vars: &Vars) -> Result<Part, Stop> {
        let spec = part.spec(vars)?;
        let named = self.named(spec.nodelist.as_deref(), "nodelist")?;
        if spec.exclude.is_some() {
            self.excluded = self.named(spec.exclude.as_deref(), "exclude")?;
        }
        let first = spec.relative.unwrap_or(0);
        let all = self.facts.nodes.len() as u32;
        let free: Vec<u32> = (first..all)
            .filter(|at| ![&self.used, &self.excluded, &named].iter().any(|set| set.contains(*at)))
            .collect();
        let arbitrary = matches!(spec.distribution, Distribution::Arbitrary(_));
        let nodes = if arbitrary { named.len() } else { self.size(&spec, vars, &named, &free) };
        if named.iter().any(|at| self.used.contains(at)) || nodes > named.len() + free.len() {
            return Err(self.refused(&spec, nodes));
        }
        let chosen: IndexSet = named.iter().chain(free).take(nodes).collect();
        self.used.union_with(&chosen);
        if arbitrary {
            return Ok(part.clone());
        }
        let names = self.facts.nodes.names();
        let list = compress(chosen.iter().filter_map(|at| names.get(at as usize)));
        let own: [OsString; 2] = [format!("--nodes={nodes}").into(), format!("--nodelist={list}").into()];
        let mut part = part.clone();
        part.options.retain(|(option, _)| !PLACE.contains(&option.long));
        part.options.extend(collect::line(SRUN, &own)?.options);
        Ok(part)
    }

    /// Returns on how many nodes a component runs: as many as it asks for, otherwise as few as have the CPUs for its
    /// tasks.
    fn size(&self, spec: &StepSpec, vars: &Vars, named: &IndexSet, free: &[u32]) -> usize {
        let of_job = || super::super::request::number(vars, OF_JOB[0]);
        if let Some(nodes) = spec.nodes_min.or_else(of_job) {
            return spec.ntasks.map_or(nodes, |tasks| tasks.min(nodes)).max(named.len() as u32) as usize;
        }
        let mut left = spec.ntasks.unwrap_or(1);
        let mut nodes = 0;
        for at in named.iter().chain(free.iter().copied()) {
            if left == 0 && nodes >= named.len() {
                break;
            }
            let cpus = self.facts.cpus.get(at as usize).copied().unwrap_or(1) / spec.cpus_per_task.unwrap_or(1).max(1);
            let fit = if spec.overcommit { u32::MAX } else { cpus.max(1) };
            left = left.saturating_sub(fit.min(spec.ntasks_per_node.unwrap_or(u32::MAX).max(1)));
            nodes += 1;
        }
        nodes.max(1)
    }

    /// Returns the job's nodes that a list names, as positions.
    fn named(&self, list: Option<&str>, option: &str) -> Result<IndexSet, Stop> {
        let names = expand(list.unwrap_or_default()).map_err(|e| Stop::bad(format!("--{option}: {e}")))?;
        let all = self.facts.nodes.names();
        Ok((0..).zip(&all).filter(|(_, name)| names.contains(name)).map(|(at, _)| at).collect())
    }

    /// Returns Slurm's words about a component that gets no nodes.
    fn refused(&self, spec: &StepSpec, nodes: usize) -> Stop {
        let (all, used) = (self.facts.nodes.len(), self.used.len());
        if all.saturating_sub(used) >= nodes {
            let names = self.facts.nodes.names();
            let others = compress(self.used.iter().filter_map(|at| names.get(at as usize)));
            let list = spec.nodelist.as_deref().unwrap_or_default();
            let overlaps = format!("Requested nodelist {list} overlaps with excluded {others}.");
            return Stop::Bad { lines: vec![overlaps, "Job not submitted.".to_owned()], exit: 1 };
        }
        Stop::bad(format!(
            "Allocation failure of {nodes} nodes: job size of {all}, already allocated {used} nodes to previous \
             components."
        ))
    }
}
