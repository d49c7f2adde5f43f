//! A server has what a file has: all tests of rows run with both.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use squall_engine::commit::Append;
use squall_files::place::Place;
use squall_model::config::Server;
use squall_model::event::{Event, Record};
use squall_model::id::{Attempt, JobId, NodeId, StepNo};
use squall_model::job::{EndState, ExitCode, JobSpec, Outcome, Usage};
use squall_model::report::StepEnd;
use squall_model::set::{IndexSet, NodeSet};
use squall_model::time::{Span, Time};
use squall_model::wire::client::{AccountingQuery, Answer};
use squall_model::wire::info::AccountingRow;

use super::locked::Told;
use super::postgres::Postgres;
use super::{Bed, Book};
use crate::Log;
use crate::accounts::query::Course;
use crate::accounts::{Accounts, Store, tables};
use crate::file::{FileLog, Options};

/// Variable with the folder of a server's socket: the tests of rows use that instead of files.
pub(super) const STORE: &str = "SQUALL_TEST_STORE";

/// Opens the accounting database that belongs to a folder: a file in it, or a database of the server that [`STORE`] names.
pub(super) fn opened(dir: &Path) -> Book {
    let Ok(socket) = std::env::var(STORE) else { return Book::open(&dir.join("accounts.db")).unwrap() };
    let name = dir.file_name().unwrap().to_str().unwrap().replace('-', "_");
    let server = |name: &str| Server::parse(&format!("postgresql://squall@/{name}?host={socket}")).unwrap();
    let session = tables::connect(&server(&name), Some(1)).or_else(|why| {
        assert!(why.contains("has no database"), "{why}");
        let all = tables::connect(&server("postgres"), None).unwrap();
        tables::Tables::Server(Box::new(all)).run(&format!("CREATE DATABASE {name}")).unwrap();
        tables::connect(&server(&name), Some(1))
    });
    Book::served(session.unwrap()).unwrap()
}

#[test]
fn all_tests_of_rows_hold_on_a_server() {
    if std::env::var_os(STORE).is_some() {
        return;
    }
    let Some(postgres) = Postgres::start() else { return };
    let program = std::env::current_exe().unwrap();
    let own = ["damage", "locked", "readers", "served"].map(|name| format!("accounts::tests::{name}::"));
    let out = Command::new(program)
        .args(["accounts::tests::", "--test-threads=2"])
        .args(own.iter().flat_map(|name| ["--skip", name]))
        .env(STORE, postgres.socket())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.contains("test result: ok. "), "{said}");
    assert!(!said.contains("running 0 tests") && !said.contains("running 1 test"), "{said}");
}

impl Bed {
    /// Ends a job well: its script, itself, and its nodes.
    fn succeeds(&mut self, id: u32) {
        let (job, attempt, ended) = (JobId(id), Attempt(1), Time::from_secs(self.records.len() as u64));
        let end = StepEnd {
            exit: ExitCode::OK,
            oom: false,
            lost: false,
            usage: Usage { user: Span(5), max_rss_kb: 9, ..Usage::default() },
            started: ended,
            ended,
            note: None,
            series: None,
        };
        let nodes = NodeSet::one(NodeId(0));
        self.happens(Event::StepNodesEnded { job, attempt, step: StepNo::BATCH, nodes, end, cut: None });
        let outcome = Outcome { state: EndState::Completed, exit: ExitCode::OK, reason: None };
        self.happens(Event::JobEnding { id: job, outcome, requeue: None });
        let nodes: NodeSet = [NodeId(0), NodeId(1)].into_iter().collect();
        self.happens(Event::NodesReleased { id: job, attempt, nodes });
    }
}

/// A journal with what has happened, and the way to a database.
struct Kept {
    bed: Bed,
    place: Place,
    log: FileLog,
    server: Server,
    /// Number of the last record that the journal has.
    written: usize,
}

impl Kept {
    fn new(postgres: &Postgres, database: &str) -> Self {
        let bed = Bed::new();
        let place = Place::at(bed.dir.path()).unwrap();
        std::fs::create_dir(place.journal()).unwrap();
        let log = FileLog::open(&place.journal(), Options::default()).unwrap().log;
        Self { bed, place, log, server: Server::parse(&postgres.url(database)).unwrap(), written: 0 }
    }

    fn runs(&mut self, ids: std::ops::Range<u32>) {
        for id in ids {
            self.bed.submits(id, None);
            self.bed.starts(id, 1);
            self.bed.ends(id, 1, EndState::Completed, false);
        }
    }

    /// Writes what has happened since the last call, and returns it.
    fn write(&mut self) -> Arc<Vec<Record>> {
        let records: Arc<Vec<Record>> = Arc::new(self.bed.records[self.written..].to_vec());
        self.log.append(&Append { records: records.to_vec().into(), blobs: Vec::new() }).unwrap();
        self.log.flush().unwrap();
        self.written = self.bed.records.len();
        records
    }

    fn start(&self) -> Accounts {
        let (last, store) = (self.log.next_seq() - 1, Store::Server(self.server.clone()));
        Accounts::start(&self.place, self.log.cluster(), last, self.log.accounted(), store).unwrap()
    }
}

fn asked(accounts: &Accounts) -> Receiver<Answer> {
    let (to, answers) = sync_channel(1024);
    let query = AccountingQuery { duplicates: true, ..AccountingQuery::default() };
    accounts.ask(Some(Box::new(query)), 0, Box::new(Told(to)));
    answers
}

/// Returns the rows, or why there are none.
fn rows(accounts: &Accounts) -> Result<Vec<AccountingRow>, String> {
    let (answers, mut all) = (asked(accounts), Vec::new());
    loop {
        match answers.recv_timeout(Duration::from_mins(1)).unwrap() {
            Answer::Accounting { rows, more, .. } => {
                all.extend(rows);
                if !more {
                    return Ok(all);
                }
            }
            other => return Err(format!("{other:?}")),
        }
    }
}

/// Waits until the rows are those that follow from all that has happened.
fn same(kept: &Kept, accounts: &Accounts) {
    let file = Bed { dir: crate::file::tests::Folder::new(), records: kept.bed.records.clone() };
    file.store(1000);
    let expected = file.ask(&AccountingQuery { duplicates: true, ..AccountingQuery::default() });
    let begin = Instant::now();
    loop {
        match rows(accounts) {
            Ok(found) if found == expected => return,
            found => assert!(begin.elapsed() < Duration::from_mins(1), "{found:#?}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn wait_lag(accounts: &Accounts, word: &str) -> String {
    let begin = Instant::now();
    loop {
        match accounts.lag() {
            Some(why) if why.contains(word) => return why,
            lag => assert!(begin.elapsed() < Duration::from_secs(30), "{lag:?}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A server that is away costs late rows only: none is lost or counted twice, whoever is killed, and queries meanwhile are
/// answered with the reason.
#[test]
fn a_server_that_is_away_costs_late_rows_only() {
    let Some(mut postgres) = Postgres::start() else { return };
    postgres.make("away");
    let mut kept = Kept::new(&postgres, "away");
    kept.runs(1..50);
    kept.write();
    let accounts = kept.start();
    same(&kept, &accounts);
    assert_eq!(accounts.lag(), None);
    postgres.kill();
    kept.runs(50..120);
    kept.bed.submits(200, Some(IndexSet::range(0, 9)));
    kept.bed.starts(203, 1);
    accounts.feed(kept.write());
    let why = wait_lag(&accounts, "lag behind: ");
    assert!(why.contains(&postgres.socket().display().to_string()), "{why}");
    let begin = Instant::now();
    let refused = rows(&accounts).unwrap_err();
    assert!(refused.contains("accounting is not available now") && refused.contains("PostgreSQL"), "{refused}");
    assert!(begin.elapsed() < Duration::from_secs(5), "queries are answered at once");
    postgres.start_again();
    same(&kept, &accounts);
    assert_eq!(accounts.lag(), None);
    // Also if the controller was started again while the server was away.
    postgres.kill();
    kept.runs(300..340);
    accounts.feed(kept.write());
    drop(accounts);
    let accounts = kept.start();
    postgres.start_again();
    same(&kept, &accounts);
    let all: Vec<JobId> = rows(&accounts).unwrap().iter().filter(|row| row.step.is_none()).map(|row| row.id).collect();
    assert_eq!(all.iter().filter(|id| id.0 == 320).count(), 1);
}

/// Several controllers of one cluster may write to one database: the records are the same.
#[test]
fn two_controllers_write_each_record_once() {
    let Some(postgres) = Postgres::start() else { return };
    postgres.make("twice");
    let mut kept = Kept::new(&postgres, "twice");
    let (one, two) = (kept.start(), kept.start());
    for round in 0..10 {
        kept.runs(1 + round * 20..21 + round * 20);
        let records = kept.write();
        one.feed(Arc::clone(&records));
        two.feed(records);
        if round % 3 == 0 {
            drop((rows(&one), rows(&two)));
        }
    }
    same(&kept, &one);
    same(&kept, &two);
    assert_eq!(postgres.sql("twice", "SELECT count(*) FROM squall.jobs"), "200\n");
}

/// What is wrong is told with its place and the remedy.
#[test]
fn what_is_wrong_with_a_database_is_named() {
    let Some(postgres) = Postgres::start() else { return };
    let why = |url: &str, cluster| match tables::connect(&Server::parse(url).unwrap(), Some(cluster)) {
        Ok(_) => panic!("{url}"),
        Err(why) => why,
    };
    let place = postgres.socket().display().to_string();
    let missing = why(&postgres.url("nowhere"), 1);
    assert!(missing.contains(&place) && missing.contains("`createdb -O squall nowhere`"), "{missing}");
    postgres.make("own");
    drop(tables::connect(&Server::parse(&postgres.url("own")).unwrap(), Some(1)).unwrap());
    let other = why(&postgres.url("own"), 2);
    assert!(other.contains("records of another cluster") && other.contains("DROP SCHEMA squall"), "{other}");
    postgres.sql("own", "UPDATE squall_rows.version SET number = 99");
    let newer = why(&postgres.url("own"), 1);
    assert!(newer.contains("version 99") && newer.contains("a newer squall"), "{newer}");
    let role = why(&postgres.url("own").replace("squall@", "nobody_here@"), 1);
    assert!(role.contains("role `nobody_here`") && role.contains("createuser"), "{role}");
    postgres.sql("postgres", "CREATE ROLE guest LOGIN");
    let rights = why(&postgres.url("postgres").replace("squall@", "guest@"), 1);
    assert!(rights.contains("the role `guest` may not") && rights.contains("OWNER TO guest"), "{rights}");
    postgres.sql("postgres", "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");
    assert!(why(&postgres.url("latin"), 1).contains("createdb -E UTF8"));
    let nobody = why("postgresql://squall@127.0.0.1:1/squall", 1);
    assert!(nobody.contains("127.0.0.1:1 can't be reached"), "{nobody}");
}

/// A server on another machine is spoken to by TLS, and its certificate counts; a password comes from a file of one's own.
#[test]
fn a_server_by_tls_must_be_who_it_says() {
    let Some(mut postgres) = Postgres::start() else { return };
    let Some((port, certificate)) = postgres.listen() else { return };
    postgres.make("tls");
    postgres.sql("tls", "ALTER ROLE squall PASSWORD 'pa:ss'");
    let passfile = postgres.socket().join("pass");
    let write = |text: &str, mode| {
        std::fs::write(&passfile, text).unwrap();
        std::fs::set_permissions(&passfile, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let root = format!("&sslrootcert={}", certificate.display());
    let connect = |host: &str, root: &str| {
        let file = passfile.display();
        let url = format!("postgresql://squall@{host}:{port}/tls?sslmode=require&passfile={file}{root}");
        tables::connect(&Server::parse(&url).unwrap(), Some(1))
    };
    let why = |host, root| connect(host, root).err().unwrap();
    write(&format!("*:{port}:tls:squall:pa:ss\n"), 0o600);
    let session = connect("localhost", &root).unwrap();
    assert_eq!(postgres.sql("tls", "SELECT count(*) FROM pg_stat_ssl WHERE ssl"), "1\n");
    drop(session);
    assert!(why("127.0.0.1", &root).contains("can't be reached"), "the name is another one");
    assert!(why("localhost", "").contains("can't be reached"), "nobody vouches for it");
    write("*:*:*:*:wrong\n", 0o600);
    let refused = why("localhost", &root);
    assert!(refused.contains("refuses the role `squall`") && !refused.contains("wrong"), "{refused}");
    write("*:*:*:*:pa:ss\n", 0o644);
    assert!(why("localhost", &root).contains("chmod 600"));
}

/// Prints how many short jobs a second each store takes: `--ignored --nocapture --exact accounts::tests::served::rows_a_second`.
#[test]
#[ignore = "a measurement"]
#[expect(clippy::print_stdout, reason = "the figure")]
fn rows_a_second() {
    const JOBS: u32 = 100_000;
    let Some(postgres) = Postgres::start() else { return };
    postgres.make("fast");
    let mut bed = Bed::new();
    for id in 1..=JOBS {
        bed.submits_spec(id, JobSpec { name: "job".into(), ..JobSpec::default() });
        bed.starts(id, 1);
        bed.succeeds(id);
    }
    let server = Server::parse(&postgres.url("fast")).unwrap();
    let session = || tables::connect(&server, Some(1)).unwrap();
    let dir = crate::file::tests::Folder::new();
    for (name, mut book) in [
        ("SQLite", Book::open(&dir.path().join("accounts.db")).unwrap()),
        ("PostgreSQL", Book::served(session()).unwrap()),
    ] {
        let begin = Instant::now();
        bed.records.chunks(20_000).for_each(|records| book.store(records.iter()).unwrap());
        let seconds = begin.elapsed().as_secs_f64();
        println!("{name}: {:.0} jobs/s", f64::from(JOBS) / seconds);
        let begin = Instant::now();
        let (mut course, mut rows) = (Course::new(&book, Box::default()), 0);
        while !course.go_on(&book, &mut |page, _, _| rows += page.len()).unwrap() {}
        println!("{name}: {rows} rows read in {:.2} s", begin.elapsed().as_secs_f64());
    }
}
