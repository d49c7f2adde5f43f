//! The wall clock is set while jobs wait and run.

use squall_model::job::options::Chosen;
use squall_model::job::{EndState, JobSpec, JobState};
use squall_model::time::Span;

use crate::control::port::Input;
use crate::control::tests::driver::{Driver, batch};

const HOUR_US: i64 = 3_600_000_000;

#[test]
fn a5_what_was_asked_by_the_wall_clock_follows_it_and_nothing_else_does() {
    for by_us in [-HOUR_US, HOUR_US] {
        let mut d = Driver::new(1, 4);
        let runs = d.submit(JobSpec { time_limit_s: Some(60), ..batch() });
        let at = |d: &Driver, seconds| Some(d.now + Span::from_secs(seconds));
        let fixed = d.submit(JobSpec { begin: at(&d, 5400), ..batch() });
        let options = Chosen { begins_after_submission: true, ..Chosen::default() }.into();
        let soon = d.submit(JobSpec { begin: at(&d, 15), options, ..batch() });
        d.pass(5);
        d.step(Input::ClockSet { by_us });
        d.pass(9);
        assert_eq!((d.state_of(runs), d.state_of(soon)), (Some(JobState::Running), Some(JobState::Pending)));
        d.pass(2);
        assert_eq!(d.state_of(soon), Some(JobState::Running), "{by_us}");
        d.pass(43);
        assert_eq!(d.state_of(runs), Some(JobState::Running));
        d.pass(2);
        assert_eq!(d.state_of(runs), Some(JobState::Completing(EndState::Timeout)), "{by_us}");
        d.pass(1730);
        let early = d.state_of(fixed) == Some(JobState::Pending);
        d.pass(30);
        let later = d.state_of(fixed) == Some(JobState::Running);
        assert_eq!((early, later), (true, by_us > 0), "{by_us}");
        d.pass(7200);
        assert_eq!(d.state_of(fixed), Some(JobState::Running));
    }
}
