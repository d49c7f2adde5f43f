//! Rights: which user may make which request. [`Request::row`] says what each needs; a verb is only reached through
//! [`authorize`], as [`Authorized`] is made here only.

use std::collections::BTreeSet;

use squall_model::id::{JobId, NodeId};
use squall_model::job::{JobSpec, Owner};
use squall_model::wire::client::{HostProblem, Refusal, Request, Right};

use crate::control::port::Who;
use crate::control::state::node::Node;
use crate::control::state::{Found, State};

/// How many jobs, each submitted from within the one before, are followed back to the first.
const NESTED_MAX: usize = 16;

/// What a user wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed<'a> {
    /// Change, signal or end a job, or read its script: allowed to its owner and operators.
    Job(&'a Owner),
    /// Run steps in an allocation or attach to it: allowed to its owner only, as steps run as the owner.
    Enter(&'a Owner),
    /// Change nodes, partitions, configuration or counters; shut down; raise priorities; release what an operator held:
    /// allowed to operators.
    Operate,
}

/// Returns whether the user `who` may do `deed`.
pub(crate) fn can(who: &Who, deed: Deed<'_>) -> bool {
    match deed {
        Deed::Job(owner) => who.operator || who.owner.uid == owner.uid,
        Deed::Enter(owner) => who.owner.uid == owner.uid,
        Deed::Operate => who.operator,
    }
}

/// A request that its caller may make.
#[derive(Debug)]
pub(crate) struct Authorized<T>(T);

impl<T> Authorized<T> {
    /// Returns the request.
    pub(crate) fn into_inner(self) -> T {
        self.0
    }
}

/// Checks that the user may make a request of the state machine.
pub(crate) fn authorize(state: &State, who: &Who, request: Request) -> Result<Authorized<Request>, Refusal> {
    check(state, who, request.row().right).map(|()| Authorized(request))
}

/// Checks that a user has the right that a request needs.
pub(crate) fn check(state: &State, who: &Who, right: Right<'_>) -> Result<(), Refusal> {
    match right {
        Right::Nothing | Right::Each | Right::Verb => Ok(()),
        Right::Top if state.config.scheduler_parameters.enable_user_top => Ok(()),
        Right::Job(id) => may(state, who, id, Deed::Job),
        Right::Enter(jobs) => jobs.iter().try_for_each(|id| may(state, who, *id, Deed::Enter)),
        Right::User(user) if user.is_none_or(|user| user == who.owner.user) => Ok(()),
        Right::Top | Right::User(_) | Right::Operate if can(who, Deed::Operate) => Ok(()),
        Right::Top | Right::User(_) | Right::Operate => Err(Refusal::AccessDenied),
    }
}

/// Checks that a user may do something to a job, an array or an array task. One that does not exist is the verb's to
/// refuse.
pub(crate) fn may<'a>(
    state: &'a State,
    who: &Who,
    id: JobId,
    deed: impl Fn(&'a Owner) -> Deed<'a>,
) -> Result<(), Refusal> {
    match owner_of(state, id) {
        Some(owner) if !can(who, deed(owner)) => Err(Refusal::AccessDenied),
        Some(_) => reaches(state, who, id),
        None => Ok(()),
    }
}

/// Returns the node that vouches for a user: for this request, or for the job in which the user's command runs, when that was
/// submitted. None: no node does, or the site trusts its nodes.
pub(crate) fn vouching(state: &State, who: &Who) -> Option<NodeId> {
    let trusts = state.config.nodes_vouch_for_users.0;
    who.by.or_else(|| vouched_job(state, who).map(|(node, _)| node)).filter(|_| !trusts)
}

/// Returns the job in which a user's command runs, if a node vouched for the user when it was submitted; and that node.
fn vouched_job(state: &State, who: &Who) -> Option<(NodeId, JobId)> {
    let job = who.job.filter(|id| owner_of(state, *id).is_some_and(|owner| owner.uid == who.owner.uid))?;
    Some((spec_of(state, job)?.vouched_by?, whole(state, job)))
}

/// Checks that the node that vouches for a user has the job, or the one in which it was submitted.
pub(crate) fn reaches(state: &State, who: &Who, id: JobId) -> Result<(), Refusal> {
    Reach::of(state, who).check(state, id)
}

/// The jobs that a user reaches by the way on which a request came. A node vouches for users within the jobs that it has:
/// an attacker in control of a node can misuse those jobs and no others.
pub(crate) struct Reach<'a> {
    /// Name of the node, and the jobs of the user that it has or that the command runs in, each as the whole of which it is a
    /// part. None: the user reaches all jobs.
    node: Option<(&'a str, BTreeSet<JobId>)>,
}

impl<'a> Reach<'a> {
    pub(crate) fn of(state: &'a State, who: &Who) -> Self {
        let node = vouching(state, who).and_then(|id| state.node(id));
        let own = |id: &JobId| owner_of(state, *id).is_some_and(|owner| owner.uid == who.owner.uid);
        let has = |node: &'a Node| node.jobs.iter().copied().filter(own).map(|id| whole(state, id)).collect();
        // What runs in a job for which a node vouched reaches no more by way of another node.
        let here = |node| vouched_job(state, who).map_or_else(|| has(node), |(_, job)| BTreeSet::from([job]));
        Self { node: node.map(|node| (node.name.as_str(), here(node))) }
    }

    /// Checks that the user reaches a job, an array or an array task.
    pub(crate) fn check(&self, state: &State, id: JobId) -> Result<(), Refusal> {
        let Some((name, here)) = &self.node else { return Ok(()) };
        let mut next = Some(id);
        for _ in 0..NESTED_MAX {
            let Some(id) = next else { break };
            if here.contains(&whole(state, id)) {
                return Ok(());
            }
            next = spec_of(state, id).and_then(|spec| spec.within);
        }
        Err(Refusal::NotFrom((*name).to_owned(), HostProblem::OtherJob))
    }
}

/// Returns the job within which a submission was made, as far as that is believed: a job of the same user, and one that
/// the node has if a node vouches for the user.
pub(crate) fn within(state: &State, who: &Who, claimed: Option<JobId>) -> Option<JobId> {
    let own = |id: &JobId| owner_of(state, *id).is_some_and(|owner| owner.uid == who.owner.uid);
    let claimed = claimed.filter(|id| own(id) && reaches(state, who, *id).is_ok());
    let inside = || vouched_job(state, who).map(|(_, job)| job);
    let some = || who.by.and_then(|id| state.node(id)).and_then(|node| node.jobs.iter().copied().find(own));
    claimed.or_else(inside).or_else(some)
}

/// Returns the mark of a submission that is not known to be the user's own: the node that vouches for the user, now or at the
/// submission of the job in which the command runs. Unlike [`vouching`] it does not depend on what the site says at present.
pub(crate) fn mark(state: &State, who: &Who) -> Option<NodeId> {
    vouched_job(state, who).map(|(node, _)| node).or(who.by)
}

/// Returns the array or heterogeneous job of which a job is a part; otherwise the job itself.
fn whole(state: &State, id: JobId) -> JobId {
    let array = state.array_of(id).map(|(array, _)| array);
    array.or(state.het_of(id).map(|het| het.leader)).unwrap_or(id)
}

/// Returns the specification of a job, an array or an array task. None: there is none.
pub(crate) fn spec_of(state: &State, id: JobId) -> Option<&JobSpec> {
    match state.find(id) {
        Some(Found::Job(job)) => Some(&job.spec),
        Some(Found::Untouched(array, _)) => Some(&array.spec),
        None => state.arrays.get(&id).map(|array| &*array.spec),
    }
}

/// Returns the owner of a job, an array or an array task. None: there is none.
fn owner_of(state: &State, id: JobId) -> Option<&Owner> {
    if let Some(array) = state.arrays.get(&id) {
        return Some(&array.owner);
    }
    match state.find(id)? {
        Found::Untouched(array, _) => Some(&array.owner),
        Found::Job(job) => Some(&job.owner),
    }
}
