//! The processes that run the site's submit filter: as many as have work, one job of a user at a time, in order.
//!
//! `T` is what waits for a verdict: a request of a client.

mod ask;
mod process;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use squall_model::config::PartitionConfig;
use squall_model::wire::filter::{FilterScript, ToFilter, Verdict};
use tokio::sync::mpsc::Sender;
use tokio::task::spawn_local;
use tracing::{error, info};

use process::Process;

/// Most filter processes at once.
const PROCESSES_MAX: usize = 8;
/// Most requests of a user that a process is given at once.
const BATCH: usize = 32;

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

/// A request that waits for the filter.
struct Job<T> {
    parts: Vec<ToFilter>,
    request: T,
}

/// The filter processes, and the requests that wait for them.
pub(super) struct Filters<T> {
    state: State,
    partitions: Arc<Vec<PartitionConfig>>,
    idle: Vec<Process>,
    /// Number of processes that filter requests.
    running: usize,
    waiting: HashMap<u32, VecDeque<Job<T>>>,
    /// Users with waiting requests of whom none is being filtered, the next one first.
    turns: VecDeque<u32>,
    busy: HashSet<u32>,
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
            running: 0,
            waiting: HashMap::new(),
            turns: VecDeque::new(),
            busy: HashSet::new(),
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
        self.turns.clear();
        self.waiting.drain().flat_map(|(_, jobs)| jobs).map(|job| job.request).collect()
    }

    /// Filters nothing from now on. Returns the requests that waited.
    fn stop(&mut self) -> Vec<T> {
        self.state = State::Off;
        self.idle.clear();
        self.turns.clear();
        self.waiting.drain().flat_map(|(_, jobs)| jobs).map(|job| job.request).collect()
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
        let own = self.waiting.entry(uid).or_default();
        if own.is_empty() && !self.busy.contains(&uid) {
            self.turns.push_back(uid);
        }
        own.push_back(Job { parts, request });
        self.dispatch();
    }

    /// Takes back a process after a user's requests. None: it has ended.
    fn done(&mut self, uid: u32, process: Option<Process>) {
        self.running -= 1;
        self.busy.remove(&uid);
        if self.waiting.contains_key(&uid) {
            self.turns.push_back(uid);
        }
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
        while self.running < PROCESSES_MAX
            && let Some(uid) = self.turns.pop_front()
        {
            let Some(own) = self.waiting.get_mut(&uid) else { continue };
            let jobs: VecDeque<Job<T>> = own.drain(..own.len().min(BATCH)).collect();
            if own.is_empty() {
                self.waiting.remove(&uid);
            }
            self.running += 1;
            self.busy.insert(uid);
            let process = self.idle.pop();
            let (script, partitions, events) =
                (Arc::clone(script), Arc::clone(&self.partitions), Arc::clone(&self.events));
            spawn_local(async move {
                let process = filter(process, &script, &partitions, jobs, &events).await;
                events(FilterEvent::Done { uid, process: process.map(Box::new) }).await;
            });
        }
    }
}

/// Filters requests one after the other, and reports each. A process that dies is started again, and refuses the request
/// with which it dies twice. Returns the process; None: it has ended.
async fn filter<T>(
    mut process: Option<Process>,
    script: &Arc<FilterScript>,
    partitions: &Arc<Vec<PartitionConfig>>,
    mut jobs: VecDeque<Job<T>>,
    events: &Events<T>,
) -> Option<Process> {
    let mut deaths = 0;
    while !jobs.is_empty() {
        let mut own = match process.take() {
            Some(own) => own,
            None => match Process::start(script).await {
                Ok((own, _)) => own.of(script),
                Err(problem) => {
                    for Job { request, .. } in jobs {
                        events(FilterEvent::Decided { request, result: Err(problem.clone()) }).await;
                    }
                    return None;
                }
            },
        };
        let (count, before) = (jobs.iter().map(|job| job.parts.len()).sum(), jobs.len());
        let sent = own.encode(partitions, jobs.iter().flat_map(|job| &job.parts));
        let (mut verdicts, mut ends) = (Vec::new(), false);
        let take = async |verdict: Verdict| {
            ends = verdict.ends;
            verdicts.push(verdict);
            if jobs.front().is_some_and(|job| job.parts.len() == verdicts.len())
                && let Some(Job { request, .. }) = jobs.pop_front()
            {
                events(FilterEvent::Decided { request, result: Ok(std::mem::take(&mut verdicts)) }).await;
            }
            !ends
        };
        let done = match sent {
            Ok(bytes) => own.converse(&bytes, count, take).await,
            Err(problem) => Err(problem),
        };
        deaths = if jobs.len() < before { 0 } else { deaths + 1 };
        match done {
            Ok(()) => process = Some(own).filter(|_| !ends),
            Err(problem) if problem.is_late || deaths > 1 => {
                if let Some(Job { request, .. }) = jobs.pop_front() {
                    let result = Err(format!("{}: {}", script.name, problem.text));
                    events(FilterEvent::Decided { request, result }).await;
                }
                deaths = 0;
            }
            Err(problem) => error!(problem = problem.text, "the submit filter's process is started again"),
        }
    }
    process
}
