//! Tests of the copy for other programs: it has the rows that `sacct` shows, follows them, and is made again when it must.

use rusqlite::{Connection, OpenFlags};
use squall_model::job::EndState;
use squall_model::set::IndexSet;

use super::Bed;
use crate::accounts::book::Book;
use crate::accounts::readers::Readers;

/// Copies until nothing is left to be copied.
fn follow(readers: &mut Readers, book: &Book) {
    while readers.follow(book) {}
}

struct Copied {
    bed: Bed,
    book: Book,
    readers: Readers,
}

impl Copied {
    fn new() -> Self {
        let mut bed = Bed::new();
        bed.submits(1, None);
        bed.starts(1, 1);
        bed.ends(1, 1, EndState::Completed, false);
        bed.submits(2, None);
        bed.submits(10, Some(IndexSet::range(0, 4)));
        bed.starts(12, 1);
        let book = Book::open(&bed.dir.path().join("accounts.db")).unwrap();
        let readers = Readers::new(bed.dir.path().join("records/records.db"), rustix::process::getegid().as_raw());
        Self { bed, book, readers }
    }

    /// Stores all events so far, and copies.
    fn store(&mut self) {
        Readers::prepare(&self.book, true).unwrap();
        self.book.store(self.bed.records.iter()).unwrap();
        follow(&mut self.readers, &self.book);
    }

    /// Returns what another program reads: job, attempt and state of each row.
    fn rows(&self, sql: &str) -> Vec<String> {
        let path = self.bed.dir.path().join("records/records.db");
        let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let mut rows = db.prepare(sql).unwrap();
        rows.query_map([], |r| r.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    fn jobs(&self) -> Vec<String> {
        self.rows("SELECT job_id || '.' || attempt || ' ' || state FROM jobs ORDER BY job_id, submit, attempt")
    }
}

#[test]
fn it_has_the_rows_of_accounting_and_follows_them() {
    let mut copied = Copied::new();
    copied.store();
    assert_eq!(copied.jobs(), ["1.1 COMPLETED", "2.0 PENDING", "12.1 RUNNING"]);
    assert_eq!(
        copied.rows("SELECT job_id || ' ' || step || ' ' || state || ' ' || max_rss_bytes FROM steps WHERE job_id = 1"),
        ["1 batch FAILED 9216"]
    );
    copied.bed.starts(2, 1);
    copied.bed.ends(2, 1, EndState::Requeued, true);
    copied.bed.starts(2, 2);
    copied.store();
    assert_eq!(copied.jobs(), ["1.1 COMPLETED", "2.1 REQUEUED", "2.2 RUNNING", "12.1 RUNNING"]);
    let slurms = copied.rows("SELECT id_job || ' ' || state || ' ' || job_name FROM job_table WHERE time_end > 0");
    assert_eq!(slurms, ["1 3 job1", "2 1028 job2"]);
    // An id that is used again has both jobs.
    copied.bed.submits(1, None);
    copied.store();
    assert_eq!(copied.jobs()[..2], ["1.1 COMPLETED", "1.0 PENDING"]);
}

#[test]
fn it_goes_on_after_a_restart_and_is_made_again_if_changes_were_not_noted() {
    let mut copied = Copied::new();
    copied.store();
    let path = copied.bed.dir.path().join("records/records.db");
    let made = |_: &Copied| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&path).unwrap());
    let before = made(&copied);
    let again = |copied: Copied| {
        let bed = copied.bed;
        drop((copied.book, copied.readers));
        let book = Book::open(&bed.dir.path().join("accounts.db")).unwrap();
        let readers = Readers::new(bed.dir.path().join("records/records.db"), rustix::process::getegid().as_raw());
        Copied { bed, book, readers }
    };
    copied = again(copied);
    copied.bed.starts(2, 1);
    copied.store();
    assert_eq!((made(&copied), copied.jobs()[1].as_str()), (before, "2.1 RUNNING"));
    // A run without readers notes nothing.
    copied = again(copied);
    Readers::prepare(&copied.book, false).unwrap();
    copied.bed.ends(2, 1, EndState::Failed, false);
    copied.book.store(copied.bed.records.iter()).unwrap();
    copied = again(copied);
    copied.store();
    assert_eq!(copied.jobs()[1], "2.1 FAILED");
}

#[test]
fn what_another_program_wrote_is_found_and_replaced() {
    let mut copied = Copied::new();
    copied.store();
    let path = copied.bed.dir.path().join("records/records.db");
    let foreign = Connection::open(&path).unwrap();
    foreign.execute("UPDATE jobs SET state = 'PAID'", []).unwrap();
    drop(foreign);
    copied.readers.look_soon();
    follow(&mut copied.readers, &copied.book);
    assert_eq!(copied.jobs(), ["1.1 COMPLETED", "2.0 PENDING", "12.1 RUNNING"]);
    // A file that is none is replaced as well.
    drop(std::mem::replace(&mut copied.readers, Readers::new(path.clone(), rustix::process::getegid().as_raw())));
    std::fs::write(&path, "this is no database, but long enough to be taken for the head of one by a careless reader")
        .unwrap();
    follow(&mut copied.readers, &copied.book);
    follow(&mut copied.readers, &copied.book);
    assert_eq!(copied.jobs().len(), 3);
}
