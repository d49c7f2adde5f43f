//! Licenses over time: used ones become free when the time limits of their jobs end.

use squall_model::time::{Span, Time};

use super::SOON;
use crate::request::Request;
use crate::scratch::Scratch;
use crate::view::{Candidate, KeptLicenses, View};

/// Returns whether enough licenses of each kind are free for a job that would start `now` in the partition `at` and run
/// for `span`.
pub(crate) fn licensed(
    view: &impl View,
    scratch: &Scratch,
    (job, at): (&Candidate<'_>, usize),
    request: &Request,
    (now, span): (Time, Span),
) -> bool {
    if request.licenses.is_empty() {
        return true;
    }
    let enough = request.licenses.iter().all(|(name, count)| free(view, scratch, name) >= *count);
    // Without reservations, licenses only become more until the job ends.
    let kept = view.kept_licenses(job, at);
    enough && (kept.is_empty() || !Lacks::with(view, scratch, request, &kept, now + SOON).meet(now, span))
}

/// Returns how many licenses of this name are free now.
fn free(view: &impl View, scratch: &Scratch, name: &str) -> u32 {
    let taken = scratch.licenses.get(name).copied().unwrap_or_default();
    view.licenses(name).saturating_sub(taken)
}

/// Time intervals (from, until) during which a job's licenses are not free.
#[derive(Debug, Default)]
pub(super) struct Lacks(Vec<(Time, Time)>);

impl Lacks {
    /// Calculates when the job's licenses are not free, from running jobs, planned starts and reservations. Jobs that
    /// should have ended already end at `soon`.
    pub(super) fn of(
        view: &impl View,
        scratch: &Scratch,
        (job, at): (&Candidate<'_>, usize),
        request: &Request,
        soon: Time,
    ) -> Self {
        let kept = if request.licenses.is_empty() { Vec::new() } else { view.kept_licenses(job, at) };
        Self::with(view, scratch, request, &kept, soon)
    }

    fn with(view: &impl View, scratch: &Scratch, request: &Request, kept: &[KeptLicenses], soon: Time) -> Self {
        let mut lacks: Vec<(Time, Time)> = Vec::new();
        let returns = if request.licenses.is_empty() { Vec::new() } else { view.returns() };
        for (name, count) in &request.licenses {
            let back = returns.iter().filter_map(|(time, all)| Some(((*time).max(soon), i64::from(*all.get(name)?))));
            let planned = scratch.license_turns.iter().filter(|(_, of, _)| of == name);
            let reserved = kept.iter().filter_map(|one| Some((one, i64::from(*one.counts.get(name)?))));
            let reserved = reserved.flat_map(|(one, count)| [(one.from, -count), (one.until, count)]);
            let planned = planned.map(|(time, _, more)| (*time, *more));
            let mut turns: Vec<_> = back.chain(planned).chain(reserved).collect();
            turns.sort_unstable();
            let (mut since, mut free) = (Time(0), i64::from(free(view, scratch, name)));
            for (time, more) in turns.into_iter().chain([(Time(u64::MAX), 0)]) {
                if free < i64::from(*count) && since < time {
                    match lacks.last_mut().filter(|last| last.1 == since) {
                        Some(last) => last.1 = time,
                        None => lacks.push((since, time)),
                    }
                }
                (since, free) = (time, free + more);
            }
        }
        Self(lacks)
    }
    /// Returns whether licenses are missing at any time between `start` and `span` after it.
    pub(super) fn meet(&self, start: Time, span: Span) -> bool {
        self.0.iter().any(|(from, until)| *from < start + span && *until > start)
    }
}
