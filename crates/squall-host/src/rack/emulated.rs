//! One emulated node: the node's state machine, with timers in place of tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_engine::fabric::proof::Pinned;
use squall_engine::machine::Machine as _;
use squall_engine::node::{Boot, CheckpointAct, Counted, FoundStep, Neighbours, NodeAct, NodeInput, NodeMachine};
use squall_model::config::NodeConfig;
use squall_model::id::{Incarnation, Session, StepKey};
use squall_model::job::{ExitCode, JobAttempt};
use squall_model::report::StepEnd;
use squall_model::resource::Hardware;
use squall_model::series::Used;
use squall_model::step::{JobFacts, Program, StepLaunch};
use squall_model::time::{Span, Time};
use squall_model::wire::stepd::ToStepd;

/// Number of CPUs of an emulated node for which the configuration gives none.
const CPUS: u32 = 16;
/// Memory of an emulated node for which the configuration gives none, MiB.
const MEMORY_MB: u64 = 64 << 10;

/// Word in a job's comment that sets how long its emulated script runs, e.g. `timer_ms=500`.
const TIMER: &str = "timer_ms=";

const SIGTERM: u8 = 15;
const SIGKILL: u8 = 9;

/// One emulated node of a rack.
pub(super) struct EmulatedNode {
    pub(super) name: String,
    pub(super) machine: Option<Box<NodeMachine>>,
    /// When the node's state machine is to be stepped next, as far as the rack has recorded it. None: nothing is
    /// recorded.
    pub(super) due: Option<Time>,
    boot: Box<Boot>,
    /// Jobs that a real node would have in its spool.
    jobs: BTreeMap<JobAttempt, Arc<JobFacts>>,
    steps: BTreeMap<StepKey, Task>,
    files: Counted,
}

struct Task {
    launch: Box<StepLaunch>,
    started: Time,
    ends: Time,
    /// The signal that ended the task early; 0: none.
    signal: u8,
    ended: bool,
}

impl EmulatedNode {
    pub(super) fn new(name: &str, above: Vec<String>, kind: Option<&NodeConfig>, pinned: Pinned) -> Self {
        let mut boot = Boot {
            name: name.to_owned(),
            incarnation: Incarnation(u128::from(std::process::id()) << 64 | u128::from(fingerprint(name))),
            life: 1,
            session: Session::default(),
            above,
            hardware: hardware(kind),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pinned,
            ..Boot::default()
        };
        boot.hardware.boot_time_s = 1;
        Self {
            name: name.to_owned(),
            machine: Some(Box::new(NodeMachine::new(boot.clone()))),
            due: None,
            boot: Box::new(boot),
            jobs: BTreeMap::new(),
            steps: BTreeMap::new(),
            files: Counted::default(),
        }
    }

    /// Whether other nodes are attached to this one.
    pub(super) fn is_collector(&self) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.below() > 0)
    }

    /// Restarts the emulated node daemon: makes a new state machine, and reports to it what a real node's spool would
    /// contain.
    pub(super) fn revive(&mut self, me: u32, neighbours: &mut Neighbours, mut tell: impl FnMut(NodeInput)) {
        self.boot.life += 1;
        self.files.restart(me, neighbours).into_iter().for_each(&mut tell);
        self.machine = Some(Box::new(NodeMachine::new((*self.boot).clone())));
        for facts in self.jobs.values() {
            tell(NodeInput::FoundJob { facts: facts.clone() });
        }
        for task in self.steps.values() {
            let state = if task.ended { FoundStep::Ended(task.end()) } else { FoundStep::Alive };
            tell(NodeInput::FoundStep { launch: task.launch.clone(), state });
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        let machine = self.machine.as_ref()?;
        let tasks = self.steps.values().filter(|task| !task.ended).map(|task| task.ends);
        machine.deadline().into_iter().chain(tasks).min()
    }

    /// Ends the emulated tasks that have run for their set time.
    pub(super) fn ends(&mut self, now: Time, mut tell: impl FnMut(NodeInput)) {
        for (&key, task) in self.steps.iter_mut().filter(|(_, task)| !task.ended && task.ends <= now) {
            task.ended = true;
            tell(NodeInput::Ended { key, end: task.end() });
        }
    }

    pub(super) fn act(
        &mut self,
        (now, me): (Time, u32),
        act: NodeAct,
        neighbours: &mut Neighbours,
        mut tell: impl FnMut(NodeInput),
    ) {
        match act {
            NodeAct::Content(act) => self.files.act(me, act, neighbours).into_iter().for_each(tell),
            NodeAct::SaveSession(session) => self.boot.session = session,
            NodeAct::OpenJob { facts, batch: false, .. } => {
                self.jobs.insert(JobAttempt { job: facts.key.job, attempt: facts.key.attempt }, facts);
            }
            // The rack keeps them for all its nodes.
            NodeAct::Keys(_)
            // Emulated nodes have no programs around jobs.
            | NodeAct::Hook(_)
            | NodeAct::KillHook { .. }
            | NodeAct::OpenJob { .. }
            | NodeAct::Gang(_)
            // Nor processes to be guarded: their machines end them.
            | NodeAct::Fence(_)
            | NodeAct::Checkpoint(CheckpointAct::Stop { .. } | CheckpointAct::Thaw { .. } | CheckpointAct::Go { .. } | CheckpointAct::Forget { .. })
            | NodeAct::Say(_) => {}
            NodeAct::Spawn(launch) => {
                let ends = now + lasts(&launch);
                self.steps.insert(launch.key, Task { launch, started: now, ends, signal: 0, ended: false });
            }
            NodeAct::Tell { key, message } => match message {
                ToStepd::End { .. } => {
                    tell(NodeInput::Ending { key });
                    self.kill(now, key, SIGTERM, tell);
                }
                ToStepd::Signal { signal, .. } if signal == i32::from(SIGTERM) || signal == i32::from(SIGKILL) => {
                    self.kill(now, key, signal as u8, tell);
                }
                ToStepd::Usage => tell(NodeInput::Used { key, used: Used::default() }),
                ToStepd::Signal { .. } | ToStepd::Letter { .. } | ToStepd::Watch(_) | ToStepd::Notice(_) => {}
            },
            NodeAct::Checkpoint(CheckpointAct::Make(order)) => {
                let result = Err("emulated nodes have no processes".to_owned());
                tell(NodeInput::Checkpointed { job: order.job, number: order.number, result });
            }
            NodeAct::KillStep { key } => self.kill(now, key, SIGKILL, tell),
            NodeAct::Sweep { job } => {
                let live = self.steps.iter().filter(|(key, task)| of(**key) == job && !task.ended);
                for key in live.map(|(key, _)| *key).collect::<Vec<_>>() {
                    self.kill(now, key, SIGKILL, &mut tell);
                }
                tell(NodeInput::Swept { job });
            }
            NodeAct::Forget { key } => {
                self.steps.remove(&key);
            }
            NodeAct::ForgetJob { job } => {
                self.jobs.remove(&job);
                self.steps.retain(|key, _| of(*key) != job);
            }
        }
    }

    fn kill(&mut self, now: Time, key: StepKey, signal: u8, mut tell: impl FnMut(NodeInput)) {
        if let Some(task) = self.steps.get_mut(&key).filter(|task| !task.ended) {
            (task.ended, task.signal, task.ends) = (true, signal, now);
            tell(NodeInput::Ended { key, end: task.end() });
        }
    }
}

impl Task {
    fn end(&self) -> StepEnd {
        let code = match &self.launch.program {
            Program::Timer { code, .. } if self.signal == 0 => *code,
            _ => 0,
        };
        let exit = ExitCode { code, signal: self.signal };
        StepEnd { exit, started: self.started, ended: self.ends, ..StepEnd::default() }
    }
}

fn of(key: StepKey) -> JobAttempt {
    JobAttempt { job: key.job, attempt: key.attempt }
}

/// Returns how long the tasks of a launch run.
fn lasts(launch: &StepLaunch) -> Span {
    match &launch.program {
        Program::Timer { run_ms, .. } => Span::from_millis(*run_ms),
        Program::Batch | Program::Tasks(_) => {
            let comment = launch.facts.spec.comment.as_deref().unwrap_or_default();
            let timer = comment.split([' ', ',']).find_map(|word| word.strip_prefix(TIMER)?.parse().ok());
            Span::from_millis(timer.unwrap_or_default())
        }
    }
}

fn hardware(entry: Option<&NodeConfig>) -> Hardware {
    let of = |value: fn(&NodeConfig) -> Option<u32>| entry.and_then(value);
    let sockets = of(|entry| entry.sockets).unwrap_or(1).max(1);
    let threads_per_core = of(|entry| entry.threads_per_core).unwrap_or(1).max(1);
    let by_cores = of(|entry| entry.cores_per_socket).map(|cores| cores * sockets * threads_per_core);
    let cpus = of(|entry| entry.cpus).or(by_cores).unwrap_or(CPUS);
    let each = (cpus / sockets / threads_per_core).max(1);
    Hardware {
        cpus,
        sockets,
        cores_per_socket: of(|entry| entry.cores_per_socket).unwrap_or(each),
        threads_per_core,
        memory_mb: entry.and_then(|entry| entry.memory_mb).unwrap_or(MEMORY_MB),
        tmp_disk_mb: entry.and_then(|entry| entry.tmp_disk_mb).unwrap_or(0),
        arch: std::env::consts::ARCH.to_owned(),
        os: "emulated".to_owned(),
        address: "localhost".to_owned(),
        features: entry.map(|entry| entry.features.clone()).unwrap_or_default(),
        ..Hardware::default()
    }
}

/// Returns a hash of the name (FNV-1a), for distinct incarnation numbers.
fn fingerprint(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
