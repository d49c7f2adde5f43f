//! The node in a gang: the controller's time, and the time slots of its jobs.
//!
//! Clocks of machines differ. A strobe, the controller's periodic time signal, bears the time at which it left, and it
//! can only be late. So the smallest lateness of the last few strobes, by this node's clock, is how far that clock is
//! ahead, plus the travel time of the quickest strobe. A delayed or lost strobe changes nothing. A jump of a clock is
//! followed after a few strobes.

use std::collections::VecDeque;

use squall_model::gang::{Coscheduling, Strobe, Turn, Turns};
use squall_model::job::JobAttempt;
use squall_model::time::{Span, Time};

use crate::node::{NodeAct, NodeMachine, NodeOut, Timer};

/// Number of latest strobes (time signals of the controller) that are compared.
const STROBES: usize = 4;

/// Differences of clocks below this are noise, microseconds.
const NOISE_US: u64 = 50;

/// How long a job runs outside its time slot to receive a signal that kills.
const LIFT: Span = Span::from_millis(500);

/// Action for this node's switcher, which stops and resumes processes at the boundaries of time slots on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GangAct {
    /// Use this clock offset, slot length and policy from now on.
    Align(Alignment),
    /// Run the job only in its time slot.
    Turn {
        /// The job that runs in the slot.
        job: JobAttempt,
        /// Time slot of the job.
        turn: Turn,
    },
    /// Run the job in every slot, because it is to end.
    Lift {
        /// The job that is to end.
        job: JobAttempt,
    },
    /// Forget the job: it is gone.
    Drop {
        /// The job that is gone.
        job: JobAttempt,
    },
}

/// Clock offset, slot length and policy, from which a node computes the time slots of jobs that share cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// How far the node's clock is ahead of the controller's, microseconds.
    pub ahead_us: i64,
    /// Length of a time slot.
    pub slice: Span,
    /// Treatment of jobs outside their time slot.
    pub policy: Coscheduling,
}

/// The node's estimate of the controller's time.
#[derive(Debug, Default)]
pub(super) struct Beat {
    /// Lead of this node's clock over the controller's by each of the last strobes (time signals), microseconds, oldest
    /// first.
    seen: VecDeque<i64>,
    alignment: Option<Alignment>,
    /// Lateness of switches between time slots, as the switcher last reported it, microseconds.
    pub(super) behind_us: u64,
    /// Size of the clock correction that the last strobe (time signal) led to, microseconds; 0: none.
    corrected_us: u64,
}

impl Beat {
    /// Returns how far this node's time slots deviate from the controller's, microseconds: the lateness of the switcher
    /// or the last clock correction, whichever is greater.
    pub(super) fn skew_us(&self) -> i64 {
        i64::try_from(self.behind_us.max(self.corrected_us)).unwrap_or(i64::MAX)
    }

    /// Evaluates a strobe (time signal of the controller). Returns the new alignment if it has changed.
    fn take(&mut self, now: Time, strobe: &Strobe) -> Option<Alignment> {
        if self.seen.len() == STROBES {
            self.seen.pop_front();
        }
        self.seen.push_back(now.0.wrapping_sub(strobe.at.0).cast_signed());
        let ahead_us = self.seen.iter().copied().min().unwrap_or_default();
        let old = self.alignment;
        let off = old.map_or(0, |old| old.ahead_us.abs_diff(ahead_us));
        let ahead_us = old.filter(|_| off < NOISE_US).map_or(ahead_us, |old| old.ahead_us);
        self.corrected_us = if off < NOISE_US { 0 } else { off };
        let new = Alignment { ahead_us, slice: strobe.slice, policy: strobe.policy };
        (old != Some(new)).then(|| *self.alignment.insert(new))
    }
}

impl NodeMachine {
    pub(super) fn strobe(&mut self, now: Time, strobe: &Strobe, out: &mut NodeOut) {
        out.acts.extend(self.beat.take(now, strobe).map(|alignment| NodeAct::Gang(GangAct::Align(alignment))));
    }

    pub(super) fn turns(&mut self, turns: Turns, out: &mut NodeOut) {
        for (attempt, turn) in turns {
            // because the job may have ended here in the meantime
            let Some(job) = self.jobs.get_mut(&attempt).filter(|job| job.is_open()) else { continue };
            job.turn = Some(turn);
            out.acts.push(NodeAct::Gang(GangAct::Turn { job: attempt, turn }));
        }
    }

    /// Lets a job run in every slot, because the job or a step of it is to end.
    pub(super) fn lift(&mut self, job: JobAttempt, out: &mut NodeOut) {
        if self.jobs.get(&job).is_some_and(|known| known.turn.is_some()) {
            out.acts.push(NodeAct::Gang(GangAct::Lift { job }));
        }
    }

    /// Lets a job run in every time slot for half a second (`LIFT`), so that it receives a signal.
    pub(super) fn lift_briefly(&mut self, now: Time, job: JobAttempt, out: &mut NodeOut) {
        self.lift(job, out);
        self.timers.insert((now + LIFT, Timer::Lifted(job)));
    }

    /// Restricts a job that runs in every time slot to its own slot again, unless it or a step of it is still ending.
    pub(super) fn lower(&mut self, job: JobAttempt, out: &mut NodeOut) {
        let turn = self.jobs.get(&job).filter(|known| known.is_open() && !known.has_ending_steps());
        out.acts.extend(turn.and_then(|known| known.turn).map(|turn| NodeAct::Gang(GangAct::Turn { job, turn })));
    }
}

#[cfg(test)]
mod tests {
    use squall_model::gang::{Coscheduling, Strobe};
    use squall_model::time::{Span, Time};

    use super::{Beat, STROBES};

    fn strobe(at: u64) -> Strobe {
        Strobe { at: Time(at), slice: Span::from_millis(10), policy: Coscheduling::Gang }
    }

    #[test]
    fn late_strobes_change_nothing() {
        let mut beat = Beat::default();
        // The node's clock is 5 s ahead; the strobe takes 100 us.
        let first = beat.take(Time(6_000_100), &strobe(1_000_000)).expect("the first says all");
        assert_eq!(first.ahead_us, 5_000_100);
        assert_eq!(beat.take(Time(7_900_000), &strobe(2_000_000)), None);
        assert_eq!(beat.take(Time(8_000_090), &strobe(3_000_000)), None, "a little sooner is noise");
        assert_eq!(beat.skew_us(), 0);
        let better = beat.take(Time(9_000_010), &strobe(4_000_000)).expect("much sooner is news");
        assert_eq!((better.ahead_us, beat.skew_us()), (5_000_010, 90));
    }

    #[test]
    fn a_clock_that_jumps_is_followed() {
        let mut beat = Beat::default();
        beat.take(Time(1_000_100), &strobe(1_000_000));
        // The controller restarts on a clock that is an hour behind: all strobes seem late, until no older one is
        // left.
        let hour = 3_600_000_000;
        let all = (0..STROBES as u64).map(|n| beat.take(Time(hour + n * 1_000_000 + 100), &strobe(n * 1_000_000)));
        let last = all.last().flatten().expect("it is followed");
        assert_eq!(last.ahead_us, hour as i64 + 100);
        // If the new clock is ahead, the first strobe is followed at once.
        let ahead = beat.take(Time(hour), &strobe(2 * hour)).expect("it is followed");
        assert_eq!(ahead.ahead_us, -(hour as i64));
    }
}
