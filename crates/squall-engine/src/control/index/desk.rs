//! Steps that wait for cores, and what is known of running ones beside the state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use squall_model::codec;
use squall_model::gres;
use squall_model::id::{ClientKey, JobId, StepKey};
use squall_model::job::Need;
use squall_model::limits::STEP_BYTES_MAX;
use squall_model::step::{StepSpec, TaskProgram};
use squall_model::time::Time;
use squall_model::wire::client::Refusal;
use squall_model::wire::node::EndReason;

use crate::control::port::CallerId;

/// Soft state of steps.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    /// Requests that came with that for the job, until it runs.
    pub(crate) first: BTreeMap<JobId, Waiting>,
    /// Requests that wait for cores, by job, first come first.
    pub(crate) waiting: BTreeMap<JobId, VecDeque<Waiting>>,
    /// Steps whose end somebody waits for, or that need attention.
    pub(crate) live: BTreeMap<StepKey, Live>,
    /// For which jobs' steps a connection has asked. An entry may be out of date.
    pub(crate) served: BTreeSet<(CallerId, JobId)>,
    /// When to look at which step. An entry may be out of date.
    pub(crate) timers: BTreeSet<(Time, StepKey)>,
}

/// An `srun` that waits for cores.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Its connection.
    pub(crate) caller: CallerId,
    /// Its key.
    pub(crate) key: ClientKey,
    /// What it asks for.
    pub(crate) spec: Arc<StepSpec>,
    /// What it wants to run.
    pub(crate) program: Arc<TaskProgram>,
}

impl Waiting {
    /// Refused if it is too long.
    pub(crate) fn new(caller: CallerId, key: ClientKey, spec: StepSpec, program: TaskProgram) -> Result<Self, Refusal> {
        if codec::size(&spec) + codec::size(&program) > STEP_BYTES_MAX {
            return Err(Refusal::TooLarge("command with its environment".to_owned(), STEP_BYTES_MAX as u64));
        }
        Ok(Self { caller, key, spec: Arc::new(spec), program: Arc::new(program) })
    }

    /// Generic resources that it asks for; None: it shares the job's.
    pub(crate) fn gres(&self) -> Result<Option<gres::Ask>, Refusal> {
        const OPTIONS: [&str; 4] = ["gres", "gpus", "gpus-per-node", "gpus-per-task"];
        let others = &self.program.others;
        if !others.iter().any(|(option, _)| OPTIONS.contains(&option.as_str())) {
            return Ok(None);
        }
        let gres = others.iter().find(|(option, _)| option == "gres").map(|(_, value)| value.clone());
        let asked = gres::Ask::of(&Need { gres, ..Need::default() }, others);
        let invalid = |option: &str| Refusal::InvalidValue {
            option: option.to_owned(),
            value: String::new(),
            problem: "use [NAME:][TYPE:]COUNT".to_owned(),
        };
        asked.map(Some).map_err(invalid)
    }
}

/// A step that runs.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// What it runs; None after a restart, until its `srun` is back.
    pub(crate) program: Option<Arc<TaskProgram>>,
    /// Its `srun`.
    pub(crate) caller: Option<CallerId>,
    /// Without a caller: ended if none comes until then.
    pub(crate) patience: Option<Time>,
    /// Others who watch it.
    pub(crate) watchers: Vec<CallerId>,
    /// Its end was ordered, and how nodes that didn't hear it are told.
    pub(crate) ending: Option<(u64, EndReason)>,
}
