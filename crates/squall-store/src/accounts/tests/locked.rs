//! Tests that no other process opens the database while accounting has it. faults.md R4.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use rusqlite::Connection;
use squall_model::wire::client::{AccountingQuery, Answer};

use super::damage::Kept;
use crate::accounts::book::Book;
use crate::accounts::{Accounts, Reply, Store};
use crate::file::{FileLog, Options};

/// Variable with the path of the database for the other process.
const DATABASE: &str = "SQUALL_TEST_DATABASE";

/// Reads the database as `sqlite3` would. The test below runs this in a process of its own, as locks of SQLite tell no
/// two connections of one process apart.
#[test]
#[ignore = "run by `no_other_process_opens_the_database`"]
#[expect(clippy::print_stdout, reason = "the answer of this process")]
fn another_process() {
    let db = Connection::open(std::env::var_os(DATABASE).unwrap()).unwrap();
    db.busy_timeout(Duration::ZERO).unwrap();
    println!("answer: {:?}", db.query_row("SELECT count(*) FROM jobs", [], |r| r.get::<_, i64>(0)));
}

fn asked_by_another_process(path: &Path) -> String {
    let test = ["--exact", "accounts::tests::locked::another_process", "--ignored", "--nocapture"];
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).args(test).env(DATABASE, path).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    output.lines().find(|line| line.contains("answer: ")).unwrap_or(&output).to_owned()
}

/// Sends on what accounting answers.
pub(super) struct Told(pub(super) SyncSender<Answer>);

impl Reply for Told {
    fn has_room(&self) -> bool {
        true
    }
    fn is_closed(&self) -> bool {
        false
    }
    fn push(&self, answer: Answer) {
        self.0.send(answer).unwrap();
    }
}

#[test]
fn no_other_process_opens_the_database() {
    let kept = Kept::new();
    let path = kept.place.accounts();
    let is_locked = |when: &str| {
        let answer = asked_by_another_process(&path);
        assert!(answer.contains("database is locked"), "{when}: {answer}");
    };
    assert!(asked_by_another_process(&path).contains("answer: Ok"), "nobody has it");
    std::fs::remove_file(&path).unwrap();
    for run in ["first start", "restart"] {
        let journal = FileLog::open(&kept.place.journal(), Options::default()).unwrap().log;
        let last = kept.bed.records.len() as u64;
        let accounts =
            Accounts::start(&kept.place, kept.cluster, last, journal.accounted(), Store::File { readers: None })
                .unwrap();
        let (to, answers) = sync_channel(64);
        accounts.ask(Some(Box::new(AccountingQuery::default())), 0, Box::new(Told(to)));
        answers.recv().unwrap();
        is_locked(run);
        let copy = kept.place.dir().join("copy.db");
        assert_eq!(accounts.copying().unwrap().copy(&copy), Ok(last));
        is_locked(&format!("{run}, after a copy"));
        assert!(std::fs::read(&path).unwrap() == std::fs::read(&copy).unwrap());
        drop(accounts);
        assert!(asked_by_another_process(&path).contains("answer: Ok"), "{run}: nobody has it any more");
    }
    // A damaged one is replaced, one without checksums copied.
    let mut damaged = std::fs::read(&path).unwrap();
    damaged[5000] ^= 1;
    std::fs::write(&path, damaged).unwrap();
    let last = kept.bed.records.len() as u64;
    let book = crate::accounts::open(&kept.place, kept.cluster, last).unwrap();
    is_locked("after damage");
    drop(book);
    std::fs::remove_file(&path).unwrap();
    let mut old = Book::on(Connection::open(&path).unwrap(), &path).unwrap();
    old.begin(kept.cluster).unwrap();
    drop(old);
    let book = crate::accounts::open(&kept.place, kept.cluster, last).unwrap();
    is_locked("with new checksums");
    drop(book);
}
