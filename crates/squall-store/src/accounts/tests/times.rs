//! Tests of queries for a time.

use squall_model::event::Event;
use squall_model::id::JobId;
use squall_model::job::{EndState, ExitCode, Outcome};
use squall_model::set::IndexSet;
use squall_model::time::Time;
use squall_model::wire::client::AccountingQuery;
use squall_model::wire::info::AccountingRow;

use super::Bed;
use super::served::opened;
use crate::accounts::book::blocks;
use crate::accounts::query::Course;

/// What is read of a time is what is found of it among all, and jobs that ended long before are not looked at.
#[test]
fn jobs_of_a_time_are_found_without_reading_the_others() {
    let mut bed = Bed::new();
    for id in (1..=8000).step_by(20) {
        bed.submits(id, Some(IndexSet::range(0, 9)));
        let task = id + 3;
        bed.starts(task, 1);
        bed.ends(task, 1, EndState::Failed, id % 1600 == 1);
        if id % 2000 != 1 {
            let outcome = Outcome { state: EndState::Cancelled { by: 7 }, exit: ExitCode::OK, reason: None };
            bed.happens(Event::TasksEnded { array: JobId(id), tasks: IndexSet::range(0, 9), outcome });
        }
        for job in id + 10..id + 20 {
            bed.submits(job, None);
            bed.starts(job, 1);
            // One runs to this day, and one until long after it began.
            if ![1315, 2715].contains(&job) {
                bed.ends(job, 1, EndState::Completed, false);
            }
        }
        if id == 7001 {
            bed.ends(1315, 1, EndState::Completed, false);
        }
    }
    bed.store(50);
    let all = bed.ask(&AccountingQuery::default());
    let last = bed.records.len() as u64;
    for start in (1..last).step_by(997).chain([last]).map(Time::from_secs) {
        let want: Vec<_> =
            all.iter().filter(|row| row.step.is_none() && row.end.is_none_or(|end| end >= start)).cloned().collect();
        let query = AccountingQuery { start: Some(start), allocations_only: true, ..AccountingQuery::default() };
        assert_eq!(bed.ask(&query), want, "{start:?}");
    }
    let book = opened(bed.dir.path());
    let query = AccountingQuery { start: Some(Time::from_secs(last)), ..AccountingQuery::default() };
    let ids: i64 = Course::new(&book, Box::new(query)).spans().map(|(first, last)| last - first + 1).sum();
    assert!(ids < 3000, "{ids} of 8000");
    // A day long ago is read without all that came since; also from a database of before there were blocks.
    let day = |from: u64| AccountingQuery {
        start: Some(Time::from_secs(from)),
        end: Some(Time::from_secs(from + 600)),
        allocations_only: true,
        ..AccountingQuery::default()
    };
    for earlier in [false, true] {
        if earlier {
            let Ok(db) = book.db.file() else { continue };
            db.execute_batch("DROP TRIGGER block_of_new; DROP TRIGGER block_of_ended; DROP TABLE blocks").unwrap();
            blocks::prepare(db).unwrap();
        }
        for from in (1..last).step_by(1499) {
            let (query, mut rows) = (day(from), Vec::new());
            let (since, until) = (query.start.unwrap(), query.end.unwrap());
            let was = |row: &&AccountingRow| {
                let is_eligible = row.eligible > Time::default() && row.eligible <= until;
                row.step.is_none() && is_eligible && row.end.is_none_or(|end| end >= since)
            };
            let mut course = Course::new(&book, Box::new(query));
            let ids: i64 = course.spans().map(|(first, last)| last - first + 1).sum();
            while !course.go_on(&book, &mut |page, _, _| rows.extend(page)).unwrap() {}
            assert_eq!(rows, all.iter().filter(was).cloned().collect::<Vec<_>>(), "{from}");
            // Arrays and jobs that go on are looked at for each day, by the block.
            assert!(ids < 4000, "{from}: {ids} of 8000");
        }
    }
}
