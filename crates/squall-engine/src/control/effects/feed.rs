//! Notes events for followers, with all that is needed to show them. Host lists are made when an event is sent.

use squall_model::event::{Event, NodeAdmin};
use squall_model::hostlist;
use squall_model::id::{JobId, NodeId, StepNo};
use squall_model::job::mail::{ArrayProgress, MailWish};
use squall_model::job::{ArrayTask, ExitCode, JobSpec, JobState, Outcome, Owner};
use squall_model::limits::FEED_TASKS_BYTES_MAX;
use squall_model::set::{IndexSet, NodeSet};
use squall_model::time::{Span, Time};
use squall_model::wire::client::Answer;
use squall_model::wire::feed::{FeedEvent, FeedJob, FeedKind, Position};

use crate::control::controller::Controller;
use crate::control::effects::nodes::NOT_RESPONDING;
use crate::control::effects::work;
use crate::control::index::feed::Feed;
use crate::control::port::Out;
use crate::control::state::array::Array;
use crate::control::state::job::{Hold, Phase};
use crate::control::state::{Found, State};

/// Adds an event to the feed, if someone follows.
pub(crate) fn after(c: &mut Controller, now: Time, event: &Event) {
    if c.feed.is_on() {
        note(c, now, event);
    }
}

/// Sends followers their position that were not sent any event for long.
pub(crate) fn settle(c: &mut Controller, now: Time, out: &mut Out) {
    if c.feed.due().is_some() {
        let pages = c.feed.positions(now);
        out.answers.extend(pages.into_iter().map(|(caller, page)| (caller, Answer::Followed(Box::new(page)))));
    }
}

#[inline(never)]
fn note(c: &mut Controller, now: Time, event: &Event) {
    if !c.feed.keeps(now) {
        return;
    }
    if let Event::NodeDown { node, reason } = event
        && reason == NOT_RESPONDING
    {
        for id in work::jobs_on(c, *node) {
            if let Some(draft) = of_silence(&c.state, id, *node) {
                push(&c.state, &mut c.feed, now, draft);
            }
        }
    }
    // because most events are no news for those who follow jobs and nodes
    let Some(draft) = draft(&c.state, now, event) else { return };
    push(&c.state, &mut c.feed, now, draft);
}

fn push(state: &State, feed: &mut Feed, now: Time, draft: Draft<'_>) {
    let Draft { kind, job, step, nodes, name, reason, by } = draft;
    let mail = job.as_ref().and_then(|job| wish(state, job)).map(Box::new);
    let job = job.map(|job| {
        let [user, name, partition, account, qos] = feed.shared(job.texts);
        let Subject { id, task, tasks, uid, state, exit, .. } = job;
        FeedJob { id, task, tasks, uid, user, name, partition, account, qos, state, exit, mail }
    });
    let at = Position::default();
    feed.push(FeedEvent { at, time: now, kind, job, step, nodes: String::new(), name, reason, by }, nodes);
}

/// The job of an event that is being noted.
struct Subject<'a> {
    id: JobId,
    task: Option<ArrayTask>,
    tasks: Option<String>,
    uid: u32,
    /// User, name, partition, account and QOS.
    texts: [&'a str; 5],
    state: JobState,
    exit: Option<ExitCode>,
}

/// An event that is being noted.
struct Draft<'a> {
    kind: FeedKind,
    job: Option<Subject<'a>>,
    step: Option<StepNo>,
    nodes: NodeSet,
    name: String,
    reason: Option<String>,
    by: Option<u32>,
}

impl<'a> Draft<'a> {
    fn of(kind: FeedKind) -> Self {
        Self { kind, job: None, step: None, nodes: NodeSet::new(), name: String::new(), reason: None, by: None }
    }
    fn of_job(kind: FeedKind, job: Subject<'a>) -> Self {
        Self { job: Some(job), ..Self::of(kind) }
    }
    fn on(self, nodes: NodeSet) -> Self {
        Self { nodes, ..self }
    }
    fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }
    fn because(self, reason: Option<&str>) -> Self {
        Self { reason: reason.map(str::to_owned), ..self }
    }
    fn ended(mut self, outcome: &Outcome) -> Self {
        if let Some(job) = &mut self.job {
            job.exit = Some(outcome.exit);
        }
        self.because(outcome.reason.as_deref())
    }
}

/// Describes an event that was just applied. None: users see nothing of it.
fn draft<'a>(state: &'a State, now: Time, event: &'a Event) -> Option<Draft<'a>> {
    Some(match event {
        Event::ControllerStarted { version, .. } => Draft::of(FeedKind::ControllerStarted).named(version),
        Event::Configured { .. } => Draft::of(FeedKind::Configured),
        Event::PolicyChanged { by, .. } => Draft { by: Some(*by), ..Draft::of(FeedKind::AccountsChanged) },
        Event::PartitionChanged { name, config: None } => Draft::of(FeedKind::PartitionDeleted).named(name),
        Event::PartitionSet { name, .. } | Event::PartitionChanged { name, .. } => {
            Draft::of(FeedKind::PartitionChanged).named(name)
        }
        Event::ReservationSet { reservation } => {
            Draft::of(FeedKind::ReservationChanged).named(&reservation.name).on(reservation.nodes.clone())
        }
        Event::ReservationGone { name } => Draft::of(FeedKind::ReservationEnded).named(name),
        Event::NodeRegistered { .. }
        | Event::NodeUp { .. }
        | Event::NodeDown { .. }
        | Event::NodesSet { .. }
        | Event::NodesChanged { .. }
        | Event::NodesPower { .. }
        | Event::PowerWished { .. }
        | Event::NodesRemoved { .. }
        | Event::NodesReboot { .. } => of_nodes(event)?,
        Event::NodesCreated { node, by } => {
            let names = hostlist::expand(&node.name).unwrap_or_default();
            let nodes = names.iter().filter_map(|name| state.node_id(name)).collect();
            Draft { by: Some(*by), ..Draft::of(FeedKind::NodeChanged) }.on(nodes)
        }
        Event::StepStarted { job, step, alloc, .. } if *step != StepNo::BATCH => {
            Draft { step: Some(*step), ..Draft::of_job(FeedKind::StepStarted, job_of(state, *job)?) }.on(alloc.nodes())
        }
        Event::StepNodesEnded { job, step, .. } | Event::StepAbandoned { job, step, .. } if *step != StepNo::BATCH => {
            step_ended(state, *job, *step)?
        }
        Event::JobSubmitted { .. }
        | Event::JobStarted { .. }
        | Event::JobEnding { .. }
        | Event::NodesReleased { .. }
        | Event::EpilogEnded { .. }
        | Event::TasksEnded { .. }
        | Event::JobHeld { .. }
        | Event::JobReleased { .. }
        | Event::JobUpdated { .. }
        | Event::JobRequeued { .. }
        | Event::JobSuspended { .. }
        | Event::JobPreempted { .. }
        | Event::JobShrunk { .. }
        | Event::NodeLost { .. }
        | Event::NodeReplaced { .. } => of_job(state, now, event)?,
        // Not seen by users, or seen by other events.
        Event::StepStarted { .. }
        | Event::StepNodesEnded { .. }
        | Event::StepAbandoned { .. }
        | Event::StepLimited { .. }
        | Event::Forgotten { .. }
        | Event::GresGranted { .. }
        | Event::JobBilled { .. }
        | Event::Ganged { .. }
        | Event::HetFormed { .. }
        | Event::JobLeased { .. }
        | Event::LeaseReturned { .. }
        | Event::ForeignResolved { .. }
        | Event::IdsLost { .. }
        | Event::Restored { .. }
        | Event::NodeFault(_)
        | Event::Checkpoint(_)
        | Event::JobConfigured { .. }
        | Event::JobAwake { .. }
        | Event::PowerProgramEnded { .. }
        | Event::VersionRaised { .. }
        | Event::KeysRotated { .. }
        | Event::Recorded { .. } => return None,
    })
}

fn of_nodes(event: &Event) -> Option<Draft<'_>> {
    Some(match event {
        Event::NodeRegistered { node, .. } => Draft::of(FeedKind::NodeRegistered).on(NodeSet::one(*node)),
        Event::NodeUp { node } => Draft::of(FeedKind::NodeUp).on(NodeSet::one(*node)),
        Event::NodeDown { node, reason } => Draft::of(FeedKind::NodeDown).on(NodeSet::one(*node)).because(Some(reason)),
        Event::NodesSet { nodes, admin, reason, by } => {
            let kind = match admin {
                NodeAdmin::Resume => FeedKind::NodeResumed,
                NodeAdmin::Drain | NodeAdmin::Fail => FeedKind::NodeDrained,
                NodeAdmin::Down => FeedKind::NodeDown,
            };
            Draft { by: Some(*by), ..Draft::of(kind) }.on(nodes.clone()).because(reason.as_deref())
        }
        Event::NodesChanged { nodes, .. }
        | Event::NodesPower { nodes, .. }
        | Event::PowerWished { nodes, .. }
        | Event::NodesReboot { nodes, .. } => Draft::of(FeedKind::NodeChanged).on(nodes.clone()),
        Event::NodesRemoved { nodes, by } => {
            Draft { by: Some(*by), ..Draft::of(FeedKind::NodeChanged) }.on(nodes.clone())
        }
        _ => return None,
    })
}

fn of_job<'a>(state: &'a State, now: Time, event: &Event) -> Option<Draft<'a>> {
    Some(match event {
        Event::JobSubmitted { id, .. } => Draft::of_job(FeedKind::JobSubmitted, job_or_array(state, *id)?),
        Event::JobStarted { id, alloc, .. } => {
            Draft::of_job(FeedKind::JobStarted, job_of(state, *id)?).on(alloc.nodes())
        }
        Event::JobEnding { id, .. } => match &state.jobs.get(id)?.phase {
            Phase::Completing(..) => ended(state, FeedKind::JobEnding, *id)?,
            Phase::Ended(end) if end.time == now => ended(state, FeedKind::JobEnded, *id)?,
            _ => return None,
        },
        Event::NodesReleased { id, .. } | Event::EpilogEnded { id, .. } => match &state.jobs.get(id)?.phase {
            Phase::Ended(_) => ended(state, FeedKind::JobEnded, *id)?,
            Phase::Pending => ended(state, FeedKind::JobRequeued, *id)?,
            _ => return None,
        },
        Event::TasksEnded { array, tasks, outcome } => {
            let of = state.arrays.get(array)?;
            let job = array_job(state, *array, of, tasks, JobState::Ended(outcome.state));
            Draft::of_job(FeedKind::JobEnded, job).ended(outcome)
        }
        Event::JobRequeued { id, .. } => ended(state, FeedKind::JobRequeued, *id)?,
        Event::JobHeld { id, whole, .. } => whole_or_not(state, FeedKind::JobHeld, *id, *whole)?,
        Event::JobReleased { id, whole } => whole_or_not(state, FeedKind::JobReleased, *id, *whole)?,
        Event::JobUpdated { change, .. } if change.independent.is_some() => return None,
        Event::JobUpdated { id, whole, .. } => whole_or_not(state, FeedKind::JobChanged, *id, *whole)?,
        Event::JobSuspended { id, suspended } => {
            let kind = if *suspended { FeedKind::JobSuspended } else { FeedKind::JobResumed };
            running(state, kind, *id)?
        }
        Event::JobPreempted { id, .. } => running(state, FeedKind::JobPreempted, *id)?,
        Event::NodeLost { id, node, heard, kept, .. } => {
            let draft = Draft::of_job(FeedKind::JobNodeLost, job_of(state, *id)?).on(NodeSet::one(*node));
            Draft { reason: Some(lost_by_now(now, *heard, *kept)), ..draft }
        }
        Event::JobShrunk { id, .. } | Event::NodeReplaced { id, .. } => running(state, FeedKind::JobChanged, *id)?,
        _ => return None,
    })
}

/// Returns what a job has lost with a node until now, such as `541 s of work, 12 s to detect`.
fn lost_by_now(now: Time, heard: Time, kept: Time) -> String {
    format!("{} s of work, {} s to detect", heard.since(kept).secs(), now.since(heard.max(kept)).secs())
}

/// Describes that a node of a running job has stopped responding.
fn of_silence(state: &State, id: JobId, node: NodeId) -> Option<Draft<'_>> {
    state.jobs.get(&id).filter(|job| job.is_running())?;
    let draft = Draft::of_job(FeedKind::JobNodeSilent, job_of(state, id)?);
    Some(draft.on(NodeSet::one(node)).because(Some(NOT_RESPONDING)))
}

/// Describes the end of an attempt, with its nodes and outcome.
fn ended(state: &State, kind: FeedKind, id: JobId) -> Option<Draft<'_>> {
    let job = state.jobs.get(&id)?;
    let outcome = job.outcome().or(job.last.as_ref().filter(|_| job.is_pending()))?;
    Some(running(state, kind, id)?.ended(outcome))
}

/// Describes a job with the nodes of its last attempt.
fn running(state: &State, kind: FeedKind, id: JobId) -> Option<Draft<'_>> {
    let nodes = state.jobs.get(&id)?.last_run().map(|run| run.alloc.nodes());
    Some(Draft::of_job(kind, job_of(state, id)?).on(nodes.unwrap_or_default()))
}

/// Describes a change of a job, or of an array with all of its pending tasks.
fn whole_or_not(state: &State, kind: FeedKind, id: JobId, whole: bool) -> Option<Draft<'_>> {
    let job = if whole { job_or_array(state, id)? } else { job_of(state, id)? };
    let hold = match (whole, state.jobs.get(&id)) {
        (false, Some(job)) => job.queue.hold,
        _ => state.arrays.get(&id).map_or(Hold::No, |array| array.queue.hold),
    };
    let reason = match hold {
        Hold::No => None,
        Hold::Admin => Some("JobHeldAdmin"),
        Hold::User | Hold::Requeue | Hold::Special => Some("JobHeldUser"),
    };
    Some(Draft::of_job(kind, job).because(reason))
}

fn step_ended(state: &State, id: JobId, no: StepNo) -> Option<Draft<'_>> {
    let step = state.jobs.get(&id)?.last_run()?.steps.get(&no)?;
    let (_, outcome) = step.ended.as_ref()?;
    let draft = Draft::of_job(FeedKind::StepEnded, job_of(state, id)?);
    Some(Draft { step: Some(no), ..draft }.on(step.alloc.nodes()).ended(outcome))
}

/// Returns what mail about a job needs. None: its user wants none.
fn wish(state: &State, about: &Subject<'_>) -> Option<MailWish> {
    let job = state.jobs.get(&about.id);
    let array = about.task.map_or(about.id, |task| task.array);
    let array = state.arrays.get(&array);
    let spec = job.map(|job| &job.spec).or_else(|| array.map(|array| &array.spec))?;
    let types = spec.mail_type.clone()?;
    let run = job.and_then(|job| job.last_run());
    let start = run.map(|run| run.start);
    Some(MailWish {
        types,
        user: spec.mail_user.clone().unwrap_or_else(|| about.texts[0].to_owned()),
        submit: job.map(|job| job.submit).or_else(|| array.map(|array| array.submit)).unwrap_or_default(),
        start,
        limit: start
            .zip(job.and_then(|job| job.time_limit_s()).flatten())
            .map(|(start, limit)| start + Span::from_secs(limit)),
        array: array.map(|array| ArrayProgress {
            begun: array.tally.active == 1 && array.tally.ended == 0,
            ended: array.is_ended(),
            some_fine: !array.tally.ok.is_empty(),
            worst: array.tally.worst.as_ref().map(|worst| worst.exit),
        }),
    })
}

fn job_or_array(state: &State, id: JobId) -> Option<Subject<'_>> {
    match state.arrays.get(&id) {
        Some(array) => Some(array_job(state, id, array, &array.tasks.indices, JobState::Pending)),
        None => job_of(state, id),
    }
}

fn job_of(state: &State, id: JobId) -> Option<Subject<'_>> {
    match state.find(id)? {
        Found::Job(job) => {
            let partition = job.last_run().map(|run| run.partition.as_str());
            Some(Subject {
                task: job.task,
                state: job.state(),
                ..common(state, id, (&*job.owner, &*job.spec), partition)
            })
        }
        Found::Untouched(array, task) => {
            Some(Subject { task: Some(task), ..common(state, id, (&*array.owner, &*array.spec), None) })
        }
    }
}

fn array_job<'a>(state: &'a State, id: JobId, array: &'a Array, tasks: &IndexSet, standing: JobState) -> Subject<'a> {
    let mut list = String::new();
    for range in tasks.ranges() {
        let part = IndexSet::range(range.first, range.last).to_string();
        let comma = if list.is_empty() { "" } else { "," };
        if list.len() + part.len() > FEED_TASKS_BYTES_MAX {
            list.extend([comma, "..."]);
            break;
        }
        list.extend([comma, &part]);
    }
    Subject { tasks: Some(list), state: standing, ..common(state, id, (&*array.owner, &*array.spec), None) }
}

fn common<'a>(
    state: &'a State,
    id: JobId,
    (owner, spec): (&'a Owner, &'a JobSpec),
    partition: Option<&'a str>,
) -> Subject<'a> {
    let default = || state.default_partition().map(|partition| partition.config.name.as_str());
    let partition = partition.or(spec.partition.as_deref()).or_else(default).unwrap_or_default();
    let account = spec.account.as_deref().unwrap_or(&state.config.default_account);
    let qos = spec.qos.as_deref().unwrap_or(&state.config.default_qos);
    let texts: [&str; 5] = [&owner.user, &spec.name, partition, account, qos];
    Subject { id, task: None, tasks: None, uid: owner.uid, texts, state: JobState::Pending, exit: None }
}
