//! State that outlives the node daemon of a test: its spool and its step daemons.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use squall_model::config::{HealthConfig, Hooks};
use squall_model::id::{Incarnation, Session, StepKey};
use squall_model::job::{ExitCode, JobAttempt};
use squall_model::report::StepEnd;
use squall_model::resource::Hardware;
use squall_model::step::{JobFacts, StepLaunch};
use squall_model::wire::hook::Hook;
use squall_model::wire::stepd::ToStepd;

use crate::fabric::proof::Pinned;
use crate::node::{Boot, Counted, FoundStep, Neighbours, NodeAct, NodeInput, NodeMachine, attempt_of};

/// State of a step in the spool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Spooled {
    Unstarted,
    Alive,
    Orphaned,
    Ended(StepEnd),
    Failed,
}

/// Stand-in for a node's host in tests: holds the spool and carries out acts.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) life: u64,
    pub(crate) session: Session,
    pub(crate) spool: BTreeMap<StepKey, (Box<StepLaunch>, Spooled)>,
    pub(crate) marks: BTreeMap<JobAttempt, Arc<JobFacts>>,
    /// Number of starts of each step's tasks, over all runs of the daemon.
    pub(crate) started: BTreeMap<StepKey, u32>,
    pub(crate) fail_spawns: bool,
    pub(crate) slow_sweep: bool,
    /// Attempts that have processes or a cgroup on the node, and that the spool does not list.
    pub(crate) leftovers: BTreeSet<JobAttempt>,
    /// Steps with an unreadable launch in their folder.
    pub(crate) unreadable: BTreeSet<StepKey>,
    pub(crate) files: Counted,
    /// The controllers' keys that the node knows.
    pub(crate) pinned: Pinned,
    /// Programs around jobs, and how the node is checked.
    pub(crate) programs: (Hooks, HealthConfig),
    /// Programs that were started.
    pub(crate) hooks: Vec<(Hook, Option<JobAttempt>)>,
    /// Kinds of programs that end at once, and their error. Others run until they are ended by [`Disk::end_hook`].
    pub(crate) hook_ends: BTreeMap<Hook, Option<String>>,
    /// Programs of which the end was noted.
    pub(crate) passed: BTreeSet<(JobAttempt, Hook)>,
}

/// Returns a step's end with that exit code.
pub(crate) fn end(code: u8) -> StepEnd {
    StepEnd { exit: ExitCode { code, signal: 0 }, ..StepEnd::default() }
}

impl Disk {
    /// Starts the next run of the daemon; returns its machine and its `Found…` inputs.
    pub(crate) fn boot(&mut self, name: &str, above: Vec<String>, hardware: Hardware) -> (NodeMachine, Vec<NodeInput>) {
        self.life += 1;
        let (life, session) = (self.life, self.session);
        let (name, version, incarnation) = (name.into(), String::new(), Incarnation(7));
        let machine = NodeMachine::new(Boot {
            name,
            incarnation,
            life,
            session,
            above,
            hardware,
            version,
            pinned: self.pinned.clone(),
            hooks: self.programs.0.clone(),
            health: self.programs.1.clone(),
            fenced: BTreeSet::new(),
        });
        let jobs = self.marks.values().map(|facts| NodeInput::FoundJob { facts: facts.clone() });
        let steps = self.spool.values().map(|(launch, state)| {
            let state = match state {
                Spooled::Unstarted => FoundStep::Unstarted,
                Spooled::Alive => FoundStep::Alive,
                Spooled::Orphaned => FoundStep::Orphaned,
                Spooled::Ended(end) => FoundStep::Ended(end.clone()),
                Spooled::Failed => FoundStep::Failed { error: "no".into(), node_fault: true },
            };
            let key = launch.key;
            if self.unreadable.contains(&key) {
                return NodeInput::FoundUnreadable { job: attempt_of(key), step: Some((key.step, state)) };
            }
            NodeInput::FoundStep { launch: launch.clone(), state }
        });
        let leftovers = self.leftovers.iter().map(|job| NodeInput::FoundLeftover { job: *job });
        let files = self.files.restart(0, &mut Neighbours::default());
        let passed = self.passed.iter().map(|&(job, hook)| NodeInput::FoundHook { job, hook });
        (machine, jobs.chain(steps).chain(passed).chain(leftovers).chain(files).collect())
    }

    /// Carries out an act; returns the inputs that follow for the machine.
    pub(crate) fn act(&mut self, act: &NodeAct) -> Vec<NodeInput> {
        match act {
            NodeAct::SaveSession(session) => self.session = *session,
            NodeAct::OpenJob { facts, batch: false, .. } => {
                self.marks.insert(attempt_of(facts.key), facts.clone());
            }
            NodeAct::Spawn(launch) if self.fail_spawns => {
                self.spool.remove(&launch.key);
                return vec![NodeInput::Failed { key: launch.key, error: "full".into(), node_fault: true }];
            }
            NodeAct::Spawn(launch) => {
                self.spool.insert(launch.key, (launch.clone(), Spooled::Alive));
                *self.started.entry(launch.key).or_default() += 1;
            }
            NodeAct::Tell { key, message: ToStepd::End { kill_wait_s: 0, .. } } | NodeAct::KillStep { key } => {
                return self.finish(*key, end(9)).into_iter().collect();
            }
            NodeAct::Sweep { job } => {
                let left: Vec<StepKey> = self.spool.keys().copied().filter(|k| attempt_of(*k) == *job).collect();
                let ends = left.into_iter().filter_map(|key| self.finish(key, end(9))).collect::<Vec<_>>();
                let swept = (!self.slow_sweep).then_some(NodeInput::Swept { job: *job });
                return ends.into_iter().chain(swept).collect();
            }
            NodeAct::Forget { key } => {
                self.spool.remove(key);
            }
            NodeAct::ForgetJob { job } => {
                self.marks.remove(job);
                self.passed.retain(|(of, _)| of != job);
                self.spool.retain(|key, _| attempt_of(*key) != *job);
            }
            NodeAct::Content(act) => {
                return self.files.act(0, act.clone(), &mut Neighbours::default()).into_iter().collect();
            }
            NodeAct::Hook(run) => {
                let (hook, job) = (run.hook, run.job());
                self.hooks.push((hook, job));
                if let Some(error) = self.hook_ends.get(&hook) {
                    return vec![self.end_hook(hook, job, error.clone())];
                }
            }
            NodeAct::KillHook { hook, job } => {
                return vec![self.end_hook(*hook, *job, Some("killed".into()))];
            }
            NodeAct::OpenJob { .. }
            | NodeAct::Checkpoint(_)
            | NodeAct::Tell { .. }
            | NodeAct::Gang(_)
            | NodeAct::Fence(_)
            | NodeAct::Keys(_)
            | NodeAct::Say(_) => {}
        }
        Vec::new()
    }

    /// Ends a program, and notes that as the host does.
    pub(crate) fn end_hook(&mut self, hook: Hook, job: Option<JobAttempt>, error: Option<String>) -> NodeInput {
        if let Some(job) = job.filter(|_| hook == Hook::Epilog || error.is_none()) {
            self.passed.insert((job, hook));
        }
        NodeInput::HookEnded { hook, job, error }
    }

    /// Ends the tasks of a step; None: they are not running.
    pub(crate) fn finish(&mut self, key: StepKey, end: StepEnd) -> Option<NodeInput> {
        let (_, state) = self.spool.get_mut(&key)?;
        if !matches!(state, Spooled::Alive | Spooled::Orphaned) {
            return None;
        }
        *state = Spooled::Ended(end.clone());
        Some(NodeInput::Ended { key, end })
    }
}
