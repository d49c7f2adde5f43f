//! The processes that run the site's submit filter: as many as have work.
//!
//! `T` is what waits for a verdict: a request of a client.

mod ask;
mod process;

use std::sync::Arc;

use squall_engine::filter::{Batch, Queue};
use squall_model::config::PartitionConfig;
use squall_model::wire::filter::{FilterScript, ToFilter, Verdict};
use tokio::sync::mpsc::Sender;
use tokio::task::spawn_local;
use tracing::{error, info};

use process::Process;

/// What the filter reports to the controller's loop.
#[derive(Debug)]
pub(super) enum FilterEvent<T> {
    /// A script was loaded, or not. Some: it is what a request for a new configuration waits for.
    Loaded { result: Result<Box<Loaded>, String>, waits: Option<T> },
    /// The parts of a request were filtered, or the filter failed: the text is for its user.
    Decided { request: T, result: Result<Vec<Verdict>, String> },
    /// A process has filtered the requests of a user that it was given. None: it has ended.
    Done { uid: u32, process: Option<Box<Process>> },
}

/// A script that is loaded, with the process that loaded it.
#[derive(Debug)]
pub(super) struct Loaded {
    script: FilterScript,
    process: Process,
}

impl Loaded {
    /// Returns whether it is what a configuration names.
    fn is_of(&self, script: &FilterScript) -> bool {
        let own = &self.script;
        (&own.folder, &own.name, &own.user, own.allow_programs)
            == (&script.folder, &script.name, &script.user, script.allow_programs)
    }
}

/// The filter processes, and the requests that wait for them.
pub(super) struct Filters<T> {
    state: State,
    partitions: Arc<Vec<PartitionConfig>>,
    idle: Vec<Process>,
    queue: Queue<T>,
    events: Events<T>,
}

/// Sends events to the controller's loop.
type Events<T> = Arc<dyn Fn(FilterEvent<T>) -> Sending + Send + Sync>;
/// The sending of an event.
pub(super) type Sending = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// What is filtered at present.
enum State {
    /// Nothing.
    Off,
    /// The script is being loaded for the first time: requests wait.
    Loading,
    /// By this script. Another one may be being loaded.
    On(Arc<FilterScript>),
    /// The script could not be loaded, for this reason: requests are refused.
    Broken(String),
}

impl<T: Send + 'static> Filters<T> {
    /// Reports to the controller's loop by the events that `into` makes.
    pub(super) fn reporting_to<E: Send + 'static>(arrivals: Sender<E>, into: fn(Box<FilterEvent<T>>) -> E) -> Self {
        let events = move |event| -> Sending {
            let arrivals = arrivals.clone();
            // Sending fails only if the controller has ended.
            Box::pin(async move { drop(arrivals.send(into(Box::new(event))).await) })
        };
        Self {
            state: State::Off,
            partitions: Arc::default(),
            idle: Vec::new(),
            queue: Queue::default(),
            events: Arc::new(events),
        }
    }

    /// Returns whether submissions are filtered.
    pub(super) fn is_on(&self) -> bool {
        !matches!(self.state, State::Off)
    }

    /// Loads a script. Requests wait for it if there is none before; `waits` is told whether it could be loaded.
    fn load(&mut self, script: FilterScript, waits: Option<T>) {
        if waits.is_none() {
            self.state = State::Loading;
        }
        let events = Arc::clone(&self.events);
        spawn_local(async move {
            let result = Process::start(&script).await.map(|(process, files)| {
                let script = FilterScript { files, ..script };
                Box::new(Loaded { script, process })
            });
            events(FilterEvent::Loaded { result, waits }).await;
        });
    }

    /// Filters by this script from now on.
    fn adopt(&mut self, loaded: Loaded) {
        let Loaded { script, process } = loaded;
        info!(script = script.name, user = script.user, "the submit filter is loaded");
        self.partitions = Arc::new(script.partitions.clone());
        let script = Arc::new(script);
        self.idle = vec![process.of(&script)];
        self.state = State::On(script);
        self.dispatch();
    }

    /// Refuses submissions from now on, as the script could not be loaded. Returns the requests that waited for it.
    fn fail(&mut self, problem: String) -> Vec<T> {
        error!(problem, "the submit filter can't be loaded: submissions are refused until `scontrol reconfigure`");
        self.state = State::Broken(problem);
        self.queue.withdraw()
    }

    /// Filters nothing from now on. Returns the requests that waited.
    fn stop(&mut self) -> Vec<T> {
        self.state = State::Off;
        self.idle.clear();
        self.queue.withdraw()
    }

    /// Returns why nothing can be filtered. None: it can.
    fn trouble(&self) -> Option<&str> {
        match &self.state {
            State::Broken(problem) => Some(problem),
            State::Off | State::Loading | State::On(_) => None,
        }
    }

    /// Takes in the partitions as they are now, which scripts see.
    fn note_partitions<'a>(&mut self, now: impl Iterator<Item = &'a PartitionConfig> + Clone) {
        if !self.partitions.iter().eq(now.clone()) {
            self.partitions = Arc::new(now.cloned().collect());
        }
    }

    /// Filters the parts of a user's request, after those that the user sent before.
    fn submit(&mut self, uid: u32, parts: Vec<ToFilter>, request: T) {
        self.queue.add(uid, parts, request);
        self.dispatch();
    }

    /// Takes back a process after a user's requests. None: it has ended.
    fn done(&mut self, uid: u32, process: Option<Process>) {
        self.queue.done(uid);
        if let (State::On(script), Some(process)) = (&self.state, process)
            && process.runs(script)
        {
            self.idle.push(process);
        }
        self.dispatch();
    }

    /// Has processes filter what waits, as many as there may be.
    fn dispatch(&mut self) {
        let State::On(script) = &self.state else { return };
        while let Some(batch) = self.queue.take() {
            let uid = batch.uid;
            let process = self.idle.pop();
            let (script, partitions, events) =
                (Arc::clone(script), Arc::clone(&self.partitions), Arc::clone(&self.events));
            spawn_local(async move {
                let process = filter(process, &script, &partitions, batch, &events).await;
                events(FilterEvent::Done { uid, process: process.map(Box::new) }).await;
            });
        }
    }
}

/// Filters requests one after the other, and reports each. A process that dies is started again. Returns the process;
/// None: it has ended.
async fn filter<T>(
    mut process: Option<Process>,
    script: &Arc<FilterScript>,
    partitions: &Arc<Vec<PartitionConfig>>,
    mut batch: Batch<T>,
    events: &Events<T>,
) -> Option<Process> {
    while !batch.is_empty() {
        let mut own = match process.take() {
            Some(own) => own,
            None => match Process::start(script).await {
                Ok((own, _)) => own.of(script),
                Err(problem) => {
                    for request in batch.withdraw() {
                        events(FilterEvent::Decided { request, result: Err(problem.clone()) }).await;
                    }
                    return None;
                }
            },
        };
        let (count, sent) = (batch.messages().count(), own.encode(partitions, batch.messages()));
        let mut ends = false;
        let take = async |verdict: Verdict| {
            ends = verdict.ends;
            if let Some((request, verdicts)) = batch.take(verdict) {
                events(FilterEvent::Decided { request, result: Ok(verdicts) }).await;
            }
            !ends
        };
        let done = match sent {
            Ok(bytes) => own.converse(&bytes, count, take).await,
            Err(problem) => Err(problem),
        };
        match done {
            Ok(()) => process = Some(own).filter(|_| !ends),
            Err(problem) => {
                if let Some(request) = batch.fail(problem.is_late) {
                    let result = Err(format!("{}: {}", script.name, problem.text));
                    events(FilterEvent::Decided { request, result }).await;
                } else {
                    error!(problem = problem.text, "the submit filter's process is started again");
                }
            }
        }
    }
    process
}
