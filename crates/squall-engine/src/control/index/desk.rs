//! Steps that wait for cores, and soft state of running steps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use squall_model::codec;
use squall_model::config::Config;
use squall_model::gres;
use squall_model::id::{Attempt, ClientKey, JobId, StepKey};
use squall_model::job::EndState;
use squall_model::job::gpus;
use squall_model::job::options::Chosen;
use squall_model::limits::STEP_BYTES_MAX;
use squall_model::step::{StepSpec, TaskProgram};
use squall_model::time::Time;
use squall_model::wire::client::Refusal;
use squall_model::wire::node::EndReason;

use crate::control::port::CallerId;

/// Soft state of steps.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    /// Step requests that came together with an allocation request, by its job, until the job runs.
    pub(crate) first: BTreeMap<JobId, Waiting>,
    /// Step requests that wait for cores, by job, oldest first.
    pub(crate) waiting: BTreeMap<JobId, VecDeque<Waiting>>,
    /// Running steps with a connected `srun` or a watcher, those for which the end was ordered, and those with an
    /// `srun` that is expected to connect again; by key.
    pub(crate) live: BTreeMap<StepKey, Live>,
    /// Pairs of a connection and a job of which the connection requested or watches a step. An entry may be out of
    /// date.
    pub(crate) served: BTreeSet<(CallerId, JobId)>,
    /// When to check whether a step must be ended. An entry may be out of date.
    pub(crate) timers: BTreeSet<(Time, StepKey)>,
    /// Port at which the search for ports of the next step begins.
    pub(crate) next_port: u32,
}

/// A step request that waits for cores.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Connection of the `srun` that sent the request.
    pub(crate) caller: CallerId,
    /// Key that the client chose for the request, so that a repetition is recognized.
    pub(crate) key: ClientKey,
    /// The resources and layout that the step asks for.
    pub(crate) spec: Arc<StepSpec>,
    /// The program that the step's tasks run.
    pub(crate) program: Arc<TaskProgram>,
    /// Attempt of the job within which the request waits. None: it does not wait yet.
    pub(crate) attempt: Option<Attempt>,
}

impl Waiting {
    /// Makes a step request. Refused if the command with its environment is longer than `STEP_BYTES_MAX`.
    pub(crate) fn new(
        config: &Config,
        caller: CallerId,
        key: ClientKey,
        spec: StepSpec,
        mut program: TaskProgram,
    ) -> Result<Self, Refusal> {
        if program.options.names_limits != Some(true) {
            program.rlimits.retain(|(number, _)| config.propagates(*number));
        }
        if codec::size(&spec) + codec::size(&program) > STEP_BYTES_MAX {
            return Err(Refusal::TooLarge("command with its environment".to_owned(), STEP_BYTES_MAX as u64));
        }
        Ok(Self { caller, key, spec: Arc::new(spec), program: Arc::new(program), attempt: None })
    }

    /// Returns the generic resources that the step asks for; None: it shares those of the job.
    pub(crate) fn gres(&self) -> Result<Option<gres::Ask>, Refusal> {
        let Chosen { gpus, step, .. } = &*self.program.options;
        if step.gres.is_none() && [&gpus.total, &gpus.per_node, &gpus.per_task].into_iter().all(Option::is_none) {
            return Ok(None);
        }
        let invalid = || Refusal::InvalidValue {
            option: "gres".to_owned(),
            value: String::new(),
            problem: "use [NAME:][TYPE:]COUNT".to_owned(),
        };
        if let Some(name) = gpus::mixed(step.gres.as_deref(), gpus) {
            return Err(Refusal::MixedTypes(name));
        }
        gres::Ask::of(step.gres.as_deref(), gpus).map(Some).ok_or_else(invalid)
    }
}

/// Soft state of a running step.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// The program that the step runs; None after a controller restart, until its `srun` has connected again.
    pub(crate) program: Option<Arc<TaskProgram>>,
    /// Connection of the step's `srun`; None: it is not connected.
    pub(crate) caller: Option<CallerId>,
    /// When the step is ended unless an `srun` has connected by then. None: no such time is set.
    pub(crate) patience: Option<Time>,
    /// Connections of other clients that watch the step (`sattach`).
    pub(crate) watchers: Vec<CallerId>,
    /// Set when the step's end was ordered: seconds from SIGTERM to SIGKILL, and the reason. The order is repeated to
    /// nodes that did not receive it.
    pub(crate) ending: Option<(u64, EndReason)>,
    /// How the controller has ended the step: TIMEOUT or CANCELLED. None: it has not.
    pub(crate) cut: Option<EndState>,
}
