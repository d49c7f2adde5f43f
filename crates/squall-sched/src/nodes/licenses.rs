//! Licenses over time: used ones become free when the time limits of their jobs end.

use squall_model::time::{Span, Time};

use crate::request::Request;
use crate::scratch::Scratch;
use crate::view::View;

/// Returns whether enough licenses of each kind are free for a job.
pub(crate) fn licensed(view: &impl View, scratch: &Scratch, request: &Request) -> bool {
    request.licenses.iter().all(|(name, count)| free(view, scratch, name) >= *count)
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
    pub(super) fn of(view: &impl View, scratch: &Scratch, request: &Request, soon: Time) -> Self {
        let mut lacks: Vec<(Time, Time)> = Vec::new();
        let returns = if request.licenses.is_empty() { Vec::new() } else { view.returns() };
        for (name, count) in &request.licenses {
            let back = returns.iter().filter_map(|(time, all)| Some(((*time).max(soon), i64::from(*all.get(name)?))));
            let planned = scratch.license_turns.iter().filter(|(_, of, _)| of == name);
            let mut turns: Vec<_> = back.chain(planned.map(|(time, _, more)| (*time, *more))).collect();
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
