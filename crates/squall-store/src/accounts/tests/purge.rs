//! Rows of old jobs are removed as the site says, and no others.

use std::sync::Arc;

use squall_model::config::Config;
use squall_model::event::{Event, Record};
use squall_model::id::{JobId, NodeId};
use squall_model::job::{EndState, ExitCode, JobSpec, Outcome};
use squall_model::set::IndexSet;
use squall_model::time::Time;
use squall_model::wire::client::AccountingQuery;

use super::{Bed, opened, states};

/// Lets something else happen at a time.
fn later(bed: &mut Bed, seconds: u64) {
    let seq = bed.records.len() as u64 + 1;
    bed.records.push(Record { seq, time: Time::from_secs(seconds), events: vec![Event::NodeUp { node: NodeId(0) }] });
}

fn keeping(keys: &str) -> Bed {
    let mut bed = Bed::new();
    let mut config = Config::from_toml(&format!("[accounting]\n{keys}\n")).unwrap();
    config.complete();
    bed.happens(Event::Configured { config: Arc::new(config) });
    bed
}

fn rows(bed: &Bed, table: &str) -> i64 {
    let count = String::leak(format!("SELECT count(*) FROM {table}"));
    opened(bed.dir.path()).db.one(count, &[], |r| r.get(0)).unwrap().unwrap()
}

#[test]
fn jobs_and_steps_are_kept_as_long_as_the_site_says() {
    for batch in [1, 1000] {
        let mut bed = keeping("purge_job_after = \"2hours\"\npurge_step_after = \"1hours\"");
        bed.submits(1, None);
        bed.starts(1, 1);
        bed.ends(1, 1, EndState::Failed, false);
        bed.submits(2, None);
        bed.starts(2, 1);
        bed.submits(10, Some(IndexSet::range(0, 2)));
        let outcome = Outcome { state: EndState::Cancelled { by: 7 }, exit: ExitCode::OK, reason: None };
        bed.happens(Event::TasksEnded { array: JobId(10), tasks: IndexSet::range(0, 2), outcome });
        bed.store(batch);
        let all = AccountingQuery::default();
        let (before, steps) = (bed.ask(&all).len(), rows(&bed, "steps"));
        later(&mut bed, 5400);
        bed.store(batch);
        assert_eq!(rows(&bed, "steps"), steps - 1, "the ended job's step is an hour old, the running one's is kept");
        assert_eq!(bed.ask(&all).len(), before - 1);
        later(&mut bed, 10_800);
        bed.store(batch);
        assert_eq!(states(&bed.ask(&all)).iter().map(|(id, ..)| *id).collect::<Vec<_>>(), [2], "one runs");
        assert_eq!((rows(&bed, "arrays"), rows(&bed, "array_ends"), rows(&bed, "specs")), (0, 0, 1));
        // What was removed can be there again.
        bed.submits_spec(20, JobSpec { name: "job1".into(), ..JobSpec::default() });
        bed.store(batch);
        assert_eq!((bed.ask(&all).len(), rows(&bed, "specs")), (3, 2));
    }
}

#[test]
fn without_the_keys_nothing_is_removed() {
    let mut bed = keeping("readers = \"lab\"");
    bed.submits(1, None);
    bed.starts(1, 1);
    bed.ends(1, 1, EndState::Failed, false);
    later(&mut bed, 1_000_000_000);
    bed.store(1000);
    assert_eq!((rows(&bed, "jobs"), rows(&bed, "steps")), (1, 1));
}
