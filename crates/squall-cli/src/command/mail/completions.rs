//! Tells other programs of ended jobs: by a line in a file, as Slurm's jobcomp/filetxt writes it, or by a document, as its
//! jobcomp/elasticsearch sends it. A job is told at least once: the position is kept afterwards.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use jiff::tz::TimeZone;
use serde_json::{Value, json};
use squall_client::{FeedSelection, Follower};
use squall_files::place::Place;
use squall_model::config::{Config, JobCompletion};
use squall_model::job::ExitCode;
use squall_model::time::Time;
use squall_model::wire::feed::{FeedEvent, FeedJob, FeedKind};
use squall_text::format::accounting::Row;
use squall_text::format::clock::local;
use squall_text::format::harmless;
use squall_text::report::record::Record;

use super::{Memory, PAUSE, account};

/// Pause before a job is told again that could not be.
const AGAIN: Duration = Duration::from_secs(5);
/// How often accounting is asked again for a job that it does not know: its rows may come later than the event.
const LATE: u32 = 12;
/// Longest time for a connection, and for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of an answer that are read: its first line counts.
const ANSWER_BYTES: u64 = 4096;

/// Why a job was not told.
#[derive(Debug)]
enum Untold {
    /// It may be the next time.
    Now(String),
    /// It never will be.
    Ever(String),
}

/// Follows the ends of jobs until the process is ended.
pub(super) fn follow(place: &Place, config: &Config, mut memory: Memory) {
    let begin = |from| {
        let kinds = vec![FeedKind::JobEnded];
        Follower::new(place.clone(), "jobcomp", FeedSelection { from, kinds, ..FeedSelection::default() })
    };
    let mut follower = begin(memory.at);
    loop {
        let page = match follower.next_page() {
            Ok(page) => page,
            Err(e) => {
                tracing::warn!(error = %e, "the controller's events can't be followed");
                std::thread::sleep(PAUSE);
                follower = begin(memory.at);
                continue;
            }
        };
        if page.missed {
            tracing::warn!("ends of jobs were missed here: job_comp_type does not tell of them");
        }
        for event in &page.events {
            tell(place, config, event);
            memory.keep(event.at);
        }
        memory.keep(page.next);
    }
}

/// Tells of the job of an event, however long it takes.
fn tell(place: &Place, config: &Config, event: &FeedEvent) {
    let (Some(job), Some(to)) = (&event.job, config.accounting.completion()) else { return };
    let Some(record) = found(place, job) else {
        return tracing::error!(job = %job.label(), "accounting does not know the job, so its end is not told");
    };
    let mut told = false;
    loop {
        let done = match to {
            JobCompletion::File(path) => append(path, &line(&record.job, &config.cluster)),
            JobCompletion::Http(address) => post(address, &document(&record.job, &config.cluster).to_string()),
        };
        match done {
            Ok(()) => return,
            Err(Untold::Ever(problem)) => return tracing::error!(job = %job.label(), %problem, "the end is not told"),
            Err(Untold::Now(problem)) if !told => {
                told = true;
                tracing::warn!(%problem, "ends of jobs can't be told now");
            }
            Err(Untold::Now(_)) => {}
        }
        std::thread::sleep(AGAIN);
    }
}

/// Returns what accounting has of a job. Waits for a controller that is away, and for a while for rows that are late.
fn found(place: &Place, job: &FeedJob) -> Option<Record> {
    let mut left = LATE;
    loop {
        match account::record(place, job) {
            Ok(Some(record)) => return Some(record),
            Ok(None) => left = left.checked_sub(1)?,
            // The next page of events fails, too, and says so.
            Err(_) => {}
        }
        std::thread::sleep(AGAIN);
    }
}

fn append(path: &str, line: &str) -> Result<(), Untold> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(line.as_bytes())).map_err(|e| Untold::Now(format!("{path}: {e}")))
}

/// Sends a document to an address.
fn post(address: &str, body: &str) -> Result<(), Untold> {
    let status = status(address, body).map_err(|e| Untold::Now(format!("{address}: {e}")))?;
    match status {
        200..=299 => Ok(()),
        // What is wrong with the document stays so; a server that is busy or being started takes it later.
        400..=499 if ![408, 429].contains(&status) => Err(Untold::Ever(format!("{address} answers {status}"))),
        _ => Err(Untold::Now(format!("{address} answers {status}"))),
    }
}

/// Returns the status of the answer to a document that is sent.
fn status(address: &str, body: &str) -> io::Result<u16> {
    let rest = address.strip_prefix("http://").unwrap_or(address);
    let (host, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let at = if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    let target = at.to_socket_addrs()?.next().ok_or_else(|| io::Error::other("it has no address"))?;
    let mut stream = TcpStream::connect_timeout(&target, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes())?;
    let mut answer = Vec::new();
    // A server that closes early may have answered before.
    match stream.take(ANSWER_BYTES).read_to_end(&mut answer) {
        Err(error) if answer.is_empty() => return Err(error),
        _ => {}
    }
    let text = String::from_utf8_lossy(&answer);
    let status = text.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|code| code.parse().ok());
    status.ok_or_else(|| io::Error::other("it does not speak HTTP"))
}

fn shown(time: Option<Time>, zone: &TimeZone) -> String {
    time.map_or_else(|| "Unknown".to_owned(), |time| local(time, zone).strftime("%Y-%m-%dT%H:%M:%S").to_string())
}

/// Returns the time limit in minutes, or `UNLIMITED`.
fn limit(row: &Row) -> String {
    row.data.time_limit_s.map_or_else(|| "UNLIMITED".to_owned(), |seconds| (seconds / 60).to_string())
}

fn code(exit: ExitCode) -> String {
    format!("{}:{}", exit.code, exit.signal)
}

/// Returns the line of a job as jobcomp/filetxt writes it.
fn line(row: &Row, cluster: &str) -> String {
    let (data, zone) = (&row.data, TimeZone::system());
    let (owner, spec) = (&data.owner, &data.spec);
    let time = |time| shown(time, &zone);
    let text = |text: &str| harmless(text).replace(' ', "_");
    let some = |text: Option<&str>| text.map(|text| harmless(text).into_owned()).unwrap_or_default();
    let task = data.task.map(|task| format!(" ArrayJobId={} ArrayTaskId={}", task.array, task.index));
    let het = data.het.map(|het| format!(" HetJobId={} HetJobOffset={}", het.leader, data.id.0 - het.leader.0));
    format!(
        "JobId={} UserId={}({}) GroupId={}({}) Name={} JobState={} Partition={} TimeLimit={} StartTime={} EndTime={} \
         NodeList={} NodeCnt={} ProcCnt={} WorkDir={} ReservationName={} Tres={} Account={} QOS={} WcKey={} Cluster={} \
         SubmitTime={} EligibleTime={}{}{} DerivedExitCode={} ExitCode={} \n",
        data.id,
        text(&owner.user),
        owner.uid,
        text(&owner.group),
        owner.gid,
        text(&data.name),
        data.state.name(),
        data.partition,
        limit(row),
        time(data.start),
        time(data.end),
        if data.nodes.is_empty() { "(null)" } else { &data.nodes },
        data.num_nodes,
        data.num_cpus,
        text(&spec.work_dir),
        some(spec.reservation.as_deref()),
        row.alloc_tres(),
        data.account,
        data.qos,
        some(spec.wckey.as_deref()),
        cluster,
        time(Some(data.submit)),
        time(Some(data.eligible)),
        task.unwrap_or_default(),
        het.unwrap_or_default(),
        code(data.derived_exit),
        code(data.exit),
    )
}

/// Returns the document of a job as jobcomp/elasticsearch sends it. Times are UTC.
fn document(row: &Row, cluster: &str) -> Value {
    let (data, zone) = (&row.data, TimeZone::UTC);
    let (owner, spec) = (&data.owner, &data.spec);
    let time = |time| shown(time, &zone);
    let mut document = json!({
        "jobid": data.id.0,
        "username": owner.user,
        "user_id": owner.uid,
        "groupname": owner.group,
        "group_id": owner.gid,
        "@submit": time(Some(data.submit)),
        "@eligible": time(Some(data.eligible)),
        "elapsed": row.elapsed(),
        "queue_wait": row.planned(),
        "partition": data.partition,
        "alloc_node": spec.submit_host,
        "nodes": data.nodes,
        "total_cpus": data.num_cpus,
        "total_nodes": data.num_nodes,
        "derived_ec": code(data.derived_exit),
        "exit_code": code(data.exit),
        "state": data.state.name(),
        "cpu_hours": row.cpu_time() as f64 / 3600.0,
        "work_dir": spec.work_dir,
        "cluster": cluster,
        "qos": data.qos,
        "ntasks": data.num_tasks,
        "job_name": data.name,
        "tres_req": row.req_tres(),
        "tres_alloc": row.alloc_tres(),
        "account": data.account,
    });
    let minutes = data.time_limit_s.map(|seconds| Value::from(seconds / 60));
    let others = [
        ("@start", data.start.map(|start| time(Some(start)).into())),
        ("@end", data.end.map(|end| time(Some(end)).into())),
        ("array_job_id", data.task.map(|task| task.array.0.into())),
        ("array_task_id", data.task.map(|task| task.index.into())),
        ("het_job_id", data.het.map(|het| het.leader.0.into())),
        ("het_job_offset", data.het.map(|het| (data.id.0 - het.leader.0).into())),
        ("time_limit", minutes),
        ("reservation_name", spec.reservation.clone().map(Value::from)),
        ("wc_key", spec.wckey.clone().map(Value::from)),
        ("comment", spec.comment.clone().map(Value::from)),
    ];
    for (key, value) in others {
        if let Some(value) = value {
            document[key] = value;
        }
    }
    document
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::rc::Rc;
    use std::sync::Arc;

    use squall_model::id::JobId;
    use squall_model::job::{EndState, JobSpec, JobState, Owner};
    use squall_model::wire::info::AccountingRow;
    use squall_text::format::clock::Clock;

    use super::{ExitCode, Read, Row, Time, Untold, Write, append, document, line, post};

    fn row() -> Row {
        let owner = Owner { uid: 7, gid: 8, user: "ann".into(), group: "lab".into(), ..Owner::default() };
        let spec = JobSpec { name: "my job\nx".into(), work_dir: "/home/ann".into(), ..JobSpec::default() };
        let at = Time::from_secs;
        let mut data = AccountingRow::submitted(JobId(12), at(1_000_000), Arc::new(owner), Arc::new(spec));
        (data.start, data.end) = (Some(at(1_000_060)), Some(at(1_003_660)));
        (data.eligible, data.time_limit_s) = (at(1_000_000), Some(7200));
        (data.state, data.exit) = (JobState::Ended(EndState::Failed), ExitCode { code: 3, signal: 0 });
        (data.nodes, data.num_nodes, data.num_cpus) = ("n[1-2]".into(), 2, 8);
        (data.partition, data.account, data.qos) = ("long".into(), "phys".into(), "normal".into());
        Row::new(data, &Rc::new(Clock::here(at(2_000_000))), &"c".into())
    }

    #[test]
    fn a_job_is_a_line_whatever_its_name_is() {
        let line = line(&row(), "lab");
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        assert!(line.starts_with("JobId=12 UserId=ann(7) GroupId=lab(8) Name=my_job"), "{line}");
        for part in [
            " JobState=FAILED Partition=long TimeLimit=120 ",
            " NodeList=n[1-2] NodeCnt=2 ProcCnt=8 WorkDir=/home/ann ",
            " Account=phys QOS=normal WcKey= Cluster=lab ",
            " ExitCode=3:0 \n",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }

    #[test]
    fn a_job_is_a_document_with_times_in_utc() {
        let document = document(&row(), "lab");
        assert_eq!(document["@start"], "1970-01-12T13:47:40");
        assert_eq!((&document["elapsed"], &document["cpu_hours"]), (&3600.into(), &8.0.into()));
        assert_eq!(
            (&document["state"], &document["exit_code"], &document["time_limit"]),
            (&"FAILED".into(), &"3:0".into(), &120.into())
        );
        assert!(document.get("array_job_id").is_none());
    }

    #[test]
    fn lines_are_appended_and_documents_are_posted() {
        let path = std::env::temp_dir().join(format!("squall-jobcomp-{}", std::process::id()));
        let file = path.to_str().unwrap();
        append(file, "one\n").unwrap();
        append(file, "two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(append("/nowhere/file", "x"), Err(Untold::Now(_))));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/slurm/_doc", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let mut heard = Vec::new();
            for answer in ["HTTP/1.1 201 Created\r\n\r\n", "HTTP/1.1 503 Busy\r\n\r\n", "HTTP/1.1 400 Bad\r\n\r\n", "x"]
            {
                let (mut stream, _) = listener.accept().unwrap();
                let mut bytes = [0; 1024];
                let mut text = String::new();
                while !text.ends_with("{\"a\":1}") {
                    let count = stream.read(&mut bytes).unwrap();
                    text.push_str(&String::from_utf8_lossy(&bytes[..count]));
                }
                heard.push(text);
                stream.write_all(answer.as_bytes()).unwrap();
            }
            heard
        });
        let send = || post(&address, "{\"a\":1}");
        assert!(send().is_ok());
        assert!(matches!(send(), Err(Untold::Now(_))));
        assert!(matches!(send(), Err(Untold::Ever(_))));
        assert!(matches!(send(), Err(Untold::Now(_))));
        let heard = server.join().unwrap();
        assert!(heard[0].starts_with("POST /slurm/_doc HTTP/1.1\r\nHost: 127.0.0.1:"), "{}", heard[0]);
        assert!(heard[0].contains("\r\nContent-Length: 7\r\n"), "{}", heard[0]);
        assert!(matches!(post(&address, "{}"), Err(Untold::Now(_))), "nobody listens any more");
    }
}
