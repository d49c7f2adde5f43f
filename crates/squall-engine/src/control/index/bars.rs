//! What reservations keep from a job: nodes and licenses.

use squall_model::checkpoint::Checkpoint;
use squall_model::job::{JobSpec, Owner, PendingReason};
use squall_model::license;
use squall_model::reservation::{Asker, Flag, Reservation};
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_sched::{Bars, Item, KeptLicenses};

use crate::control::index::pending::pending;
use crate::control::index::queue::Queue;
use crate::control::state::State;
use crate::control::state::gates::{account_of, qos_name};

/// What a job in a partition may use of reservations.
#[derive(Debug)]
pub(crate) struct Claims<'a> {
    /// Names of the reservations for which the job asks, with commas between them. None: it asks for none.
    own: Option<&'a str>,
    /// Reservations for which the job asks and that are there, if they admit its partition.
    known: Vec<&'a Reservation>,
    /// Magnetic reservations that the job may use although it names none.
    drawn: Vec<&'a Reservation>,
    /// The nodes that alone have the job's checkpoint, which no partition keeps from it as spare ones: other nodes become
    /// spare then. Empty: there are none, or no partition has spare nodes.
    home: NodeSet,
}

impl<'a> Claims<'a> {
    /// Returns what a job may use in a partition. `own` lists the reservations that the job names.
    pub(crate) fn of(state: &'a State, item: Item, own: Option<&'a str>, partition: &str) -> Self {
        let all = || state.reservations.values();
        let named = |one: &Reservation| own.is_some_and(|own| own.split(',').any(|name| name == one.name));
        let who = || {
            let waits = pending(state, item).map(|pending| (&**pending.owner, &**pending.spec));
            waits.or_else(|| state.jobs.get(&item.id).map(|job| (&*job.owner, &*job.spec)))
        };
        let takes = |one: &Reservation| {
            one.allowed_partitions.is_empty()
                || who().is_none_or(|(owner, _)| owner.uid == 0 || one.takes_partition(partition))
        };
        let known = all().filter(|one| named(one) && takes(one)).collect();
        let draws = own.is_none() && all().any(|one| one.is(Flag::Magnetic));
        let drawn = match who().filter(|_| draws) {
            Some((owner, spec)) => {
                all().filter(|one| one.is(Flag::Magnetic) && admits(state, (owner, spec), one, &[partition])).collect()
            }
            None => Vec::new(),
        };
        let keeps_spares = all().any(|one| one.spares_of().is_some());
        let home = if keeps_spares { pending(state, item).and_then(|job| job.home) } else { None };
        let home = home.map(Checkpoint::holders).unwrap_or_default();
        Self { own, known, drawn, home }
    }

    /// Returns whether the job, which would end at `end` (None: never), may use a reservation from `time` on.
    fn has(&self, one: &Reservation, time: Time, end: Option<Time>) -> bool {
        let same = |other: &&Reservation| other.name == one.name;
        let whole = || one.active(time) && end.is_some_and(|end| end <= one.end);
        self.known.iter().any(same) || (self.drawn.iter().any(same) && (one.is(Flag::Flex) || whole()))
    }
}

/// Returns whether a reservation admits a job that would run in one of these partitions. Root may use any but a floating
/// one.
pub(crate) fn admits(state: &State, (owner, spec): (&Owner, &JobSpec), one: &Reservation, partitions: &[&str]) -> bool {
    let account = account_of(state, spec);
    let above = state.policy.above(account).map(|(name, _)| name);
    let accounts: Vec<&str> = std::iter::once(account).chain(above.filter(|name| *name != account)).collect();
    let who = Asker { owner, accounts: &accounts, qos: Some(qos_name(state, spec)), partitions };
    one.admits(who) || (owner.uid == 0 && one.floats.is_none())
}

/// Returns which nodes of a partition are closed to a job that would start at `time`, because of reservations. Outside
/// the reservations that it names all nodes are closed. If none of these is active, the result is the reason why the job
/// must wait. `limit_s` is the job's time limit, seconds; None: unlimited.
pub(crate) fn bars(state: &State, time: Time, claims: &Claims<'_>, limit_s: Option<u64>, nodes: &NodeSet) -> Bars {
    let Claims { own, known, .. } = claims;
    let on: Vec<&Reservation> = known.iter().filter(|own| own.is(Flag::Flex) || own.active(time)).copied().collect();
    let mut barred = NodeSet::new();
    let mut end = limit_s.map(|seconds| time + Span::from_secs(seconds));
    if own.is_some() && on.is_empty() {
        let gone = |name: &str| !state.reservations.contains_key(name);
        let deleted = own.is_some_and(|own| own.split(',').all(gone));
        return Bars::Waits(if deleted { PendingReason::ReservationDeleted } else { PendingReason::Reservation });
    }
    if own.is_some() && !on.iter().any(|own| own.is(Flag::Flex)) {
        if !on.iter().any(|own| own.is(Flag::AnyNodes)) {
            barred.clone_from(nodes);
            for own in &on {
                barred.subtract(&own.nodes);
            }
        }
        let last = on.iter().map(|own| own.end).max();
        end = end.into_iter().chain(last).min();
    }
    for other in state.reservations.values().filter(|other| !claims.has(other, time, end)) {
        // A reservation with the flag overlap or maint was made to share its nodes with other reservations.
        let shared = on.iter().any(|own| own.is(Flag::Overlap) || own.is(Flag::Maint));
        if !shared && other.meets(time, end) {
            let mut kept = other.nodes.clone();
            if other.spares_of().is_some() {
                kept.subtract(&claims.home);
            }
            barred.union_with(&kept);
        }
    }
    if barred.is_empty() { Bars::Open } else { Bars::Barred(barred) }
}

/// Returns the licenses that reservations keep from a job that would start at `now`, over time.
pub(crate) fn kept_licenses(state: &State, queue: &Queue, now: Time, claims: &Claims<'_>) -> Vec<KeptLicenses> {
    let others = state.reservations.values().filter(|one| {
        let own = claims.known.iter().chain(&claims.drawn).any(|own| own.name == one.name);
        one.licenses.is_some() && !own
    });
    let kept = others.filter_map(|one| {
        let (from, until) = one.times(now);
        let mut counts = license::parse(one.licenses.as_deref()?)?;
        if one.active(now) {
            let runs = queue.ends.iter().filter_map(|(_, id)| state.jobs.get(id));
            for job in runs.filter(|job| job.spec.reservations().any(|name| name == one.name)) {
                for (name, held) in job.spec.need.licenses.as_deref().and_then(license::parse).unwrap_or_default() {
                    counts.entry(name).and_modify(|count| *count = count.saturating_sub(held));
                }
            }
        }
        Some(KeptLicenses { from, until, counts })
    });
    kept.collect()
}
