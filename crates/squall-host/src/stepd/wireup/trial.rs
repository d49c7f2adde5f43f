//! Measures the links between step daemons, as Slurm's PMIx plug-in does: round trips of a message
//! (`SLURM_PMIX_WANT_PP`), and durations of a fence (`SLURM_PMIX_WANT_COLL_PERF`), by size. They run while the tasks
//! do.

use std::collections::VecDeque;
use std::time::Instant;

use squall_model::encoding::ByteBuf;
use squall_model::wire::peer::{PeerMessage, What};

use super::mesh::{is_yes, said};
use super::{Waiter, Wireup, Word};
use crate::stepd::environment::Environment;

/// Largest message size that can be asked for, as a power of two.
const POWER_MAX: u32 = 24;

/// Number of repetitions before a measurement that are not counted: connections are made meanwhile.
const WARM_UP: u32 = 200;

/// Measurements still to be made.
#[derive(Debug, Default)]
pub(super) struct Trials {
    legs: VecDeque<Leg>,
    /// Number of repetitions left in the current series.
    left: u32,
    /// Start of the current series; None: it has not begun.
    since: Option<Instant>,
    turns: u64,
}

/// A series of repetitions of one kind of measurement with one message size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leg {
    kind: Kind,
    bytes: usize,
    turns: u32,
    counts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    PingPong,
    Fence,
}

impl Trials {
    /// Returns the measurements that the environment of the tasks asks for.
    pub(super) fn of(env: &Environment) -> Self {
        let mut legs = VecDeque::new();
        for (kind, wanted, name) in
            [(Kind::PingPong, "SLURM_PMIX_WANT_PP", "PP"), (Kind::Fence, "SLURM_PMIX_WANT_COLL_PERF", "COLL_PERF")]
        {
            if !said(env, wanted).is_some_and(|value| is_yes(&value)) {
                continue;
            }
            let number = |what: &str, otherwise: u32| {
                said(env, &format!("SLURM_PMIX_{name}_{what}"))
                    .and_then(|value| value.parse().ok())
                    .unwrap_or(otherwise)
            };
            let (low, high) = (number("LOW_PWR2", 0).min(POWER_MAX), number("UP_PWR2", 22).min(POWER_MAX));
            let (small, large) = (number("ITER_SMALL", 100), number("ITER_LARGE", 20));
            let border = number("LARGE_PWR2", 12);
            legs.push_back(Leg { kind, bytes: 1, turns: WARM_UP, counts: false });
            legs.extend((low..=high).flat_map(|power| {
                let leg =
                    Leg { kind, bytes: 1 << power, turns: if power < border { small } else { large }, counts: true };
                [Leg { turns: 2, counts: false, ..leg }, leg]
            }));
        }
        legs.retain(|leg| leg.turns > 0);
        Self { legs, ..Self::default() }
    }
}

impl Wireup {
    /// Does the next repetition of a measurement, or reports the result after the last.
    pub(super) fn go_on_trying(&mut self) {
        let Some(&leg) = self.trials.legs.front() else { return };
        if self.trials.since.is_none() {
            (self.trials.left, self.trials.since) = (leg.turns, Some(Instant::now()));
        } else if self.trials.left == 0 {
            self.report(leg);
            self.trials.legs.pop_front();
            self.trials.since = None;
            return self.go_on_trying();
        }
        self.trials.left -= 1;
        self.trials.turns += 1;
        let (number, data) = (self.trials.turns, vec![7; leg.bytes]);
        match leg.kind {
            Kind::Fence => {
                let everybody = self.exchange.everybody();
                self.join(Waiter::Trial, What::Trial, everybody, data);
            }
            Kind::PingPong if self.launch.node_index == 0 => {
                if let Some(mesh) = &mut self.mesh {
                    mesh.send(1, PeerMessage::Ping { number, data: ByteBuf::from(data) });
                }
            }
            // The second step daemon echoes. The others have no part in it: they join when the first begins the fences.
            Kind::PingPong => {
                self.trials.legs.retain(|leg| leg.kind == Kind::Fence);
                self.trials.since = None;
                self.go_on_trying();
            }
        }
    }

    fn report(&mut self, leg: Leg) {
        let took = self.trials.since.map(|since| since.elapsed()).unwrap_or_default();
        let each_us = took.as_secs_f64() * 1e6 / f64::from(leg.turns);
        let (what, each_us) = match leg.kind {
            Kind::PingPong => ("pingpong", each_us / 2.0),
            Kind::Fence => ("fence", each_us),
        };
        let last = self.trials.legs.len() == 1;
        if leg.counts && self.launch.node_index == 0 {
            self.words
                .push(Word::Report(format!("{what} {} bytes {} times {each_us:.2} us each", leg.bytes, leg.turns)));
        }
        if last && self.launch.node_index == 0 {
            self.words.push(Word::Report("all was measured".to_owned()));
        }
    }

    /// Handles a message of a measurement.
    pub(super) fn echo(&mut self, place: u32, message: PeerMessage) {
        match (message, &mut self.mesh) {
            (PeerMessage::Ping { number, data }, Some(mesh)) => mesh.send(place, PeerMessage::Pong { number, data }),
            (PeerMessage::Pong { number, .. }, _) if number == self.trials.turns => self.go_on_trying(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Trials};
    use crate::stepd::environment::Environment;

    #[test]
    fn sizes_and_turns_are_as_the_variables_say() {
        let env =
            b"SLURM_PMIX_WANT_PP=1\0SLURM_PMIX_PP_LOW_PWR2=2\0SLURM_PMIX_PP_UP_PWR2=4\0SLURM_PMIX_PP_LARGE_PWR2=4\0\
                    SLURM_PMIX_PP_ITER_SMALL=9\0SLURM_PMIX_PP_ITER_LARGE=3\0SLURM_PMIX_WANT_COLL_PERF=no\0";
        let trials = Trials::of(&Environment::parse(env));
        let counted = trials.legs.iter().filter(|leg| leg.counts).map(|leg| (leg.kind, leg.bytes, leg.turns));
        assert_eq!(
            counted.collect::<Vec<_>>(),
            [(Kind::PingPong, 4, 9), (Kind::PingPong, 8, 9), (Kind::PingPong, 16, 3)]
        );
        assert!(Trials::of(&Environment::parse(b"A=b\0")).legs.is_empty());
    }
}
