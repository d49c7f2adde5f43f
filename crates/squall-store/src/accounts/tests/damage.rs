//! Tests of damaged databases: no row is shown wrongly, and no lost row goes unreported. faults.md A9.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use rusqlite::{Connection, OpenFlags};
use squall_files::place::Place;
use squall_model::id::JobId;
use squall_model::job::EndState;
use squall_model::wire::client::AccountingQuery;
use squall_model::wire::info::AccountingRow;

use super::Bed;
use super::locked::Told;
use crate::accounts::book::Book;
use crate::accounts::pages::{self, PAGE_BYTES};
use crate::accounts::query::Course;
use crate::accounts::{Accounts, Fed, Keeper, Signs, Store, is_damage, open};
use crate::file::tests::append;
use crate::file::{FileLog, Options};

/// A state directory with a closed database, and a journal.
pub(super) struct Kept {
    pub(super) bed: Bed,
    pub(super) place: Place,
    pub(super) cluster: u128,
    good: Vec<u8>,
    rows: Vec<AccountingRow>,
}

impl Kept {
    pub(super) fn new() -> Self {
        let mut bed = Bed::new();
        for id in 1..=400 {
            bed.submits(id, None);
            bed.starts(id, 1);
            bed.ends(id, 1, EndState::Completed, id % 50 == 0);
        }
        bed.submits(401, Some((0..40).collect()));
        bed.starts(401, 1);
        let place = Place::at(bed.dir.path()).unwrap();
        std::fs::create_dir(place.journal()).unwrap();
        let mut journal = FileLog::open(&place.journal(), Options::default()).unwrap().log;
        append(&mut journal, bed.records.clone(), Vec::new());
        let cluster = journal.cluster();
        drop(journal);
        let mut book = Book::open(&place.accounts()).unwrap();
        book.begin(cluster).unwrap();
        for records in bed.records.chunks(100) {
            book.store(records.iter()).unwrap();
        }
        book.checkpoint().unwrap();
        drop(book);
        let good = std::fs::read(place.accounts()).unwrap();
        let rows = ask(&place.accounts()).0;
        Self { bed, place, cluster, good, rows }
    }

    /// Replaces the database by damaged bytes, opens it with or without the journal, and returns the answer to a query.
    fn after(&self, damaged: &[u8], with_journal: bool) -> (Vec<AccountingRow>, Vec<(JobId, JobId)>) {
        let path = self.place.accounts();
        let aside = self.place.dir().join("journal-aside");
        if !with_journal {
            std::fs::rename(self.place.journal(), &aside).unwrap();
        }
        std::fs::write(&path, damaged).unwrap();
        let book = open(&self.place, self.cluster, self.bed.records.len() as u64).unwrap();
        assert_eq!((book.cluster(), book.position()), (self.cluster, self.bed.records.len() as u64));
        drop(book);
        if !with_journal {
            std::fs::rename(&aside, self.place.journal()).unwrap();
        }
        assert_eq!(pages::damaged(File::open(&path).unwrap()).unwrap(), Vec::<u32>::new());
        ask(&path)
    }
}

fn ask(path: &Path) -> (Vec<AccountingRow>, Vec<(JobId, JobId)>) {
    let book = Book::open(path).unwrap();
    let (mut rows, mut lost) = (Vec::new(), Vec::new());
    let mut course = Course::new(&book, Box::new(AccountingQuery { duplicates: true, ..AccountingQuery::default() }));
    let mut send = |page, _, missing| {
        rows.extend::<Vec<_>>(page);
        lost.extend::<Vec<_>>(missing);
    };
    while !course.go_on(&book, &mut send).unwrap() {}
    (rows, lost)
}

/// Issue 31: records that do not fit into the queue are read from the journal, and later ones are stored normally.
#[test]
fn records_that_found_no_room_are_read_from_the_journal() {
    let Kept { bed, place, cluster, rows, .. } = Kept::new();
    std::fs::remove_file(place.accounts()).unwrap();
    let journal = FileLog::open(&place.journal(), Options::default()).unwrap().log;
    let (records, fed) = sync_channel(2);
    let signs = Arc::<Signs>::default();
    let accounts = Accounts { records, signs: Arc::clone(&signs), orders: None, thread: None };
    let fed = Fed { records: fed, signs };
    let mut keeper = Keeper::new(&place, cluster, 0, fed, journal.accounted());
    // Two batches fit into the queue; the others do not, except the last.
    let mut batches: Vec<_> = bed.records.chunks(100).map(|records| Arc::new(records.to_vec())).collect();
    let last = batches.pop().unwrap();
    for records in batches {
        accounts.feed(records);
    }
    let taken: Vec<_> = keeper.fed.records.try_iter().collect();
    accounts.feed(last);
    for records in taken {
        keeper.wait_with(records);
    }
    keeper.store();
    assert_eq!(keeper.book.as_ref().map(Book::position), Some(bed.records.len() as u64));
    drop(keeper);
    assert_eq!(ask(&place.accounts()), (rows, Vec::new()));
}

/// Formats before release 0.2.0 are not read, and neither are later ones. They are no damage: the file stays as it is, and
/// the answer says why.
#[test]
fn a_database_of_another_format_is_refused_and_left_as_it_is() {
    let kept = Kept::new();
    let path = kept.place.accounts();
    let journal = FileLog::open(&kept.place.journal(), Options::default()).unwrap().log;
    for (format, by) in [(1, "before release 0.2.0"), (3, "a newer version")] {
        let db = pages::open(&path, OpenFlags::default()).unwrap();
        db.pragma_update(None, "user_version", format).unwrap();
        drop(db);
        let old = std::fs::read(&path).unwrap();
        let last = kept.bed.records.len() as u64;
        let accounts =
            Accounts::start(&kept.place, kept.cluster, last, journal.accounted(), Store::File { readers: None })
                .unwrap();
        let (to, answers) = sync_channel(64);
        accounts.ask(Some(Box::new(AccountingQuery::default())), 0, Box::new(Told(to)));
        let answer = format!("{:?}", answers.recv().unwrap());
        assert!(answer.contains(&path.display().to_string()), "{answer}");
        assert!(answer.contains(&format!("format {format},")) && answer.contains(by), "{answer}");
        drop(accounts);
        assert!(std::fs::read(&path).unwrap() == old);
        assert!(!crate::accounts::aside(&path).exists());
    }
}

fn is_lost(lost: &[(JobId, JobId)], row: &AccountingRow) -> bool {
    lost.iter().any(|(first, last)| (first..=last).contains(&&row.id))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    /// Flips bits and zeroes pages anywhere. With the journal all rows are restored. Without it the shown rows are
    /// right, and the missing ones are reported.
    #[test]
    fn a9_no_damaged_row_is_shown_and_none_is_lost_without_a_word(places in proptest::collection::vec(any::<(u64, bool)>(), 12)) {
        let kept = Kept::new();
        let size = kept.good.len() as u64;
        for (n, (place, zero)) in places.into_iter().enumerate() {
            let mut damaged = kept.good.clone();
            // The first three pages are always damaged, others by chance.
            let at = if n < 3 { n * PAGE_BYTES + place as usize % PAGE_BYTES } else { (place % size) as usize };
            if zero {
                damaged[at / PAGE_BYTES * PAGE_BYTES..][..PAGE_BYTES].fill(0);
            } else {
                damaged[at] ^= 1 << (place % 8);
            }
            let (rows, lost) = kept.after(&damaged, true);
            prop_assert!(rows == kept.rows && lost.is_empty(), "byte {at}, zero {zero}: {} rows, {lost:?}", rows.len());
            let (rows, lost) = kept.after(&damaged, false);
            for row in kept.rows.iter().filter(|row| !is_lost(&lost, row)) {
                prop_assert!(rows.contains(row), "byte {at}, zero {zero}: {row:?} is missing, lost {lost:?}");
            }
            for row in rows {
                let same = |known: &&AccountingRow| (known.id, known.attempt, known.step, known.state) == (row.id, row.attempt, row.step, row.state);
                let known = kept.rows.iter().find(same);
                prop_assert!(known.is_some(), "byte {at}, zero {zero}: {row:?}");
                // The usage of a job is that of its steps.
                let known = known.map(|known| AccountingRow { usage: row.usage, ..known.clone() });
                prop_assert_eq!(known, Some(row));
            }
        }
    }
}

#[test]
fn a9_a_page_that_is_damaged_while_the_controller_runs_is_not_read() {
    let kept = Kept::new();
    let path = kept.place.accounts();
    let book = Book::open(&path).unwrap();
    let mut damaged = kept.good.clone();
    damaged[3 * PAGE_BYTES..].chunks_mut(PAGE_BYTES).for_each(|page| page[1000] ^= 4);
    std::fs::write(&path, damaged).unwrap();
    let mut course = Course::new(&book, Box::default());
    let mut rows = 0;
    let error = loop {
        match course.go_on(&book, &mut |page, _, _| rows += page.len()) {
            Ok(done) => assert!(!done),
            Err(error) => break error,
        }
    };
    assert!(is_damage(&error) && course.may_continue() && !course.may_continue(), "{error}");
}

#[test]
fn a9_a_database_without_checksums_is_read_and_gets_them() {
    let kept = Kept::new();
    let path = kept.place.accounts();
    std::fs::remove_file(&path).unwrap();
    let mut old = Book::on(Connection::open(&path).unwrap(), &path).unwrap();
    old.begin(kept.cluster).unwrap();
    old.store(kept.bed.records.iter()).unwrap();
    drop(old);
    assert_eq!(pages::has_sums(File::open(&path).unwrap()), Some(false));
    assert!(ask(&path).0 == kept.rows, "read as it is");
    drop(open(&kept.place, kept.cluster, kept.bed.records.len() as u64).unwrap());
    assert_eq!(
        (pages::has_sums(File::open(&path).unwrap()), pages::damaged(File::open(&path).unwrap()).unwrap()),
        (Some(true), vec![])
    );
    assert!(ask(&path) == (kept.rows, vec![]), "and as it is now");
    let files = std::fs::read_dir(kept.bed.dir.path()).unwrap().map(|f| PathBuf::from(f.unwrap().file_name()));
    let left: Vec<_> = files.filter(|f| f.to_string_lossy().contains("accounts")).collect();
    assert_eq!(left, [PathBuf::from("accounts.db")]);
}

#[test]
fn a9_a_row_that_makes_no_sense_is_left_out() {
    let kept = Kept::new();
    let book = Book::open(&kept.place.accounts()).unwrap();
    book.db.run("UPDATE jobs SET state = 77 WHERE id = 5; UPDATE steps SET usage = x'ff' WHERE job = 6").unwrap();
    drop(book);
    let rows = ask(&kept.place.accounts()).0;
    assert_eq!(kept.rows.len() - rows.len(), 3, "job 5 with its script, and the script of job 6");
}
