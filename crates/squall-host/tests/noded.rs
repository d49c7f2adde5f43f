//! The node daemon on this machine, with a controller played by the test and a shell script as step daemon.
//! One test in a process of its own: the daemon reaps every child that it finds.
#![cfg(test)]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use squall_files::place::Place;
use squall_files::place::TASK_MARK;
use squall_host::noded::{self, NodeArgs};
use squall_host::sys::signals::kill;
use squall_model::codec::{self, HEADER_BYTES};
use squall_model::id::{Attempt, Epoch, Incarnation, JobId, NodeId, Session, StepKey, StepNo};
use squall_model::job::{Blob, ExitCode, JobAttempt, JobSpec, Owner};
use squall_model::report::Report;
use squall_model::set::{CoreSet, NodeSet};
use squall_model::step::{BatchStart, JobFacts};
use squall_model::wire::fabric::{
    Composite, DownFrame, Downward, LaunchFailure, Parcel, Path as Above, Put, UpFrame, Upward, Window,
};
use squall_model::wire::node::{Down, EndReason, Registration};
use squall_model::wire::sealed::Sealed;
use squall_model::wire::{Hello, Role};

/// Starts the task, which waits for the file `go` and ends with the code in it; notes it; writes the result that
/// lies ready as `word` if the task ended under its eyes. Ignores its socket's absence: nobody connects.
const STEP_DAEMON: &str = r#"#!/bin/sh
export PATH=/usr/bin:/bin SLURM_PROCID=0 SQUALL_STEP="$3"
cd "$3" || exit 1
mv untaken pids 2>/dev/null || exit 0
printf '\001' | dd of=result bs=1 seek=4096 conv=notrunc 2>/dev/null
sh -c 'while [ ! -e go ]; do sleep 0.01; done; exit $(cat go)' &
echo "0 $! $(cut -d" " -f22 /proc/$!/stat)" > pids
echo $$ > daemon
wait $!
"#;

struct Bed {
    dir: PathBuf,
    program: PathBuf,
    listener: UnixListener,
    epoch: u64,
}

struct Node {
    thread: JoinHandle<std::process::ExitCode>,
    stream: UnixStream,
    epoch: Epoch,
    seq: u64,
    /// Number of the last thing that was said, on this connection and from the node.
    hops: (u64, u64),
    registration: Option<Registration>,
    seen: Vec<Report>,
}

impl Bed {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("squall-noded-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("run")).unwrap();
        let program = dir.join("squall");
        fs::write(&program, STEP_DAEMON).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let listener = UnixListener::bind(dir.join("run/controller.sock")).unwrap();
        Self { dir, program, listener, epoch: 0 }
    }

    /// A life of the daemon, up to its registration and the welcome.
    fn start(&mut self, program: &Path) -> Node {
        let args =
            NodeArgs { place: Place::at(&self.dir).unwrap(), name: "n1".into(), program: program.into(), port: None };
        let thread = std::thread::spawn(move || noded::run(&args));
        let (mut stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let hello: Hello = receive(&mut stream);
        assert_eq!(hello.role, Role::Node("n1".into()));
        send(&mut stream, &Hello::new(Role::Controller));
        self.epoch += 1;
        let (epoch, seen) = (Epoch(self.epoch), Vec::new());
        let mut node = Node { thread, stream, epoch, seq: 0, hops: (0, 0), registration: None, seen };
        node.register();
        node
    }

    fn folder(&self, job: u32) -> PathBuf {
        self.dir.join(format!("node/n1/steps/{job}.1.batch"))
    }

    /// Waits for the step daemon to have started its task, and kills it.
    fn kill_step_daemon(&self, job: u32) {
        let path = self.folder(job).join("daemon");
        wait_for(|| fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n')));
        kill(fs::read_to_string(path).unwrap().trim().parse().unwrap(), 9).unwrap();
    }

    fn let_go(&self, job: u32, code: u8) {
        let folder = self.folder(job);
        fs::write(folder.join("going"), format!("{code}\n")).unwrap();
        fs::rename(folder.join("going"), folder.join("go")).unwrap();
    }
}

impl Node {
    /// The way stands; the node knocks, is asked who it is, says so, and is welcomed.
    fn register(&mut self) {
        let path = Above { above: Vec::new(), window: Window::default(), heartbeat_s: 60, beat: None };
        self.say(Downward::Path(Box::new(path)));
        let knocks = self.composite().knocks;
        assert_eq!(knocks, [(Vec::new(), "n1".to_owned())]);
        self.reply(None, Down::Identify);
        let offered = Session { epoch: self.epoch, number: self.seq };
        let registration = self.composite().registrations.remove(0);
        assert_eq!(registration.session, offered);
        self.registration = Some(registration);
        self.reply(Some(NodeId(0)), Down::Welcome { node: NodeId(0), name: None });
    }

    /// What it said of itself.
    fn said(&self) -> &Registration {
        self.registration.as_ref().unwrap()
    }

    fn say(&mut self, say: Downward) {
        self.hops.0 += 1;
        send(&mut self.stream, &DownFrame { hop: self.hops.0, says: vec![say] });
    }

    fn put(&mut self, messages: Vec<Down>, blobs: Vec<Blob>) -> Put {
        self.seq += 1;
        let parcel = Sealed::new(Parcel { messages, blobs, ..Parcel::default() });
        Put { epoch: self.epoch, seq: self.seq, to: NodeSet::one(NodeId(0)), asks: Vec::new(), parcel, proof: None }
    }

    fn reply(&mut self, node: Option<NodeId>, message: Down) {
        let put = self.put(vec![message], Vec::new());
        self.say(Downward::Reply { route: Vec::new(), node, put });
    }

    fn tell(&mut self, messages: Vec<Down>, blobs: Vec<Blob>) {
        let put = self.put(messages, blobs);
        self.say(Downward::Put(put));
    }

    /// The next composite; taken.
    fn composite(&mut self) -> Composite {
        loop {
            let frame: UpFrame = receive(&mut self.stream);
            assert_eq!(frame.hop, self.hops.1 + 1);
            self.hops.1 += frame.says.len() as u64;
            for say in frame.says {
                if let Upward::Composite { batch, composite } = say {
                    self.say(Downward::Taken { batch });
                    return *composite;
                }
            }
        }
    }

    fn start_job(&mut self, job: u32) {
        let (script, env) = (Blob::new(b"#!/bin/sh\n".to_vec()), Blob::new(b"A=1\0".to_vec()));
        let key = StepKey { job: JobId(job), attempt: Attempt(1), step: StepNo::BATCH };
        let spec = JobSpec { script: Some(script.digest), env: env.digest, ..JobSpec::default() };
        let uid = fs::metadata("/proc/self").map(|m| std::os::unix::fs::MetadataExt::uid(&m)).unwrap();
        let facts = JobFacts {
            key,
            owner: Owner { uid, ..Owner::default() }.into(),
            spec: spec.into(),
            nodes: ["n1"].into_iter().collect(),
            ids: NodeSet::one(NodeId(0)),
            cpus: vec![1].into(),
            memory_mb: vec![0].into(),
            tasks: vec![1].into(),
            ..JobFacts::default()
        };
        let batch =
            BatchStart { node: NodeId(0), cores: CoreSet::first(1), kill_wait_s: 1, leased: false, report: false };
        let start = Down::StartJob { facts: std::sync::Arc::new(facts), batch: Some(batch) };
        self.tell(vec![start], vec![script, env]);
    }

    /// The next reports that were not seen before; acknowledged.
    fn reports(&mut self) -> Vec<Report> {
        loop {
            let reports = reports_of(self.composite());
            let fresh: Vec<Report> = reports.into_iter().filter(|report| !self.seen.contains(report)).collect();
            if !fresh.is_empty() {
                let (mut steps, mut jobs) = (Vec::new(), Vec::new());
                for report in &fresh {
                    match report {
                        Report::StepEnded { key, .. } | Report::LaunchFailed { key, .. } => steps.push(*key),
                        Report::JobGone { job } => jobs.push(*job),
                    }
                }
                self.tell(vec![Down::Known { steps, jobs }], Vec::new());
                self.seen.extend(fresh.iter().cloned());
                return fresh;
            }
        }
    }

    /// Reports until the job is gone.
    fn until_gone(&mut self, job: u32) -> Vec<Report> {
        let gone = Report::JobGone { job: JobAttempt { job: JobId(job), attempt: Attempt(1) } };
        let mut all = Vec::new();
        while !all.contains(&gone) {
            all.extend(self.reports());
        }
        all
    }

    fn shut_down(mut self) {
        self.tell(vec![Down::ShutDown { keep_jobs: true }], Vec::new());
        self.thread.join().unwrap();
    }
}

/// What a composite of one node says, in the order in which it is taken.
fn reports_of(composite: Composite) -> Vec<Report> {
    let ended = composite.ended.into_iter().flat_map(|(key, ends)| ends.into_iter().map(move |(_, end)| (key, end)));
    let ended = ended.map(|(key, end)| Report::StepEnded { key, end });
    let failed = composite
        .failed
        .into_iter()
        .map(|(_, LaunchFailure { key, error, node_fault })| Report::LaunchFailed { key, error, node_fault });
    let gone = composite.gone.into_keys().map(|job| Report::JobGone { job });
    ended.chain(failed).chain(gone).collect()
}

fn send<T: squall_model::encoding::Encoded>(stream: &mut UnixStream, message: &T) {
    let mut bytes = Vec::new();
    codec::encode(message, &mut bytes).unwrap();
    stream.write_all(&bytes).unwrap();
}

fn receive<T: squall_model::encoding::Decoded>(stream: &mut UnixStream) -> T {
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).unwrap();
    let (length, crc) = codec::header(head).unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    codec::decode(&body, crc).unwrap()
}

fn wait_for(what: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !what() {
        assert!(Instant::now() < until, "waited too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn exit_in(reports: &[Report]) -> (ExitCode, bool) {
    let mut ends = reports.iter().rev().filter_map(|report| match report {
        Report::StepEnded { end, .. } => Some((end.exit, end.lost)),
        _ => None,
    });
    ends.next().unwrap_or_else(|| panic!("no end in {reports:?}"))
}

fn code(code: u8) -> ExitCode {
    ExitCode { code, signal: 0 }
}

#[test]
fn tasks_outlive_their_daemons_and_end_with_their_own_exit_code() {
    let mut bed = Bed::new();
    let program = bed.program.clone();

    // A step daemon is killed: its task runs on, and its exit code is right.
    let mut node = bed.start(&program);
    let incarnation: Incarnation = node.said().incarnation;
    node.start_job(1);
    bed.kill_step_daemon(1);
    bed.let_go(1, 7);
    assert_eq!(exit_in(&node.until_gone(1)), (code(7), false));
    wait_for(|| !bed.folder(1).exists());

    // Node daemon and step daemon are replaced and killed: the task is found again.
    node.start_job(2);
    node.start_job(3);
    bed.kill_step_daemon(2);
    wait_for(|| bed.folder(3).join("daemon").exists());
    node.shut_down();
    let mut stray = Command::new("sleep").arg("60").env(TASK_MARK, bed.folder(77)).spawn().unwrap();
    let mut node = bed.start(&program);
    assert_eq!(node.said().incarnation, incarnation);
    let jobs: Vec<u32> = node.said().jobs.iter().map(|job| job.job.0).collect();
    assert_eq!((jobs, node.said().steps.len()), (vec![2, 3], 2));
    assert!(stray.wait().is_err() || !bed.folder(77).exists(), "a process of a forgotten step is killed");
    bed.let_go(2, 0);
    assert_eq!(exit_in(&node.until_gone(2)), (code(0), false));

    // The step daemon that was found again dies too.
    bed.kill_step_daemon(3);
    bed.let_go(3, 9);
    assert_eq!(exit_in(&node.until_gone(3)), (code(9), false));

    // An orphan that does not want to end is ended.
    node.start_job(4);
    bed.kill_step_daemon(4);
    let job = JobAttempt { job: JobId(4), attempt: Attempt(1) };
    node.tell(
        vec![Down::EndJob { job, kill_wait_s: 0, cont: true, why: EndReason::Cancelled, exit: None }],
        Vec::new(),
    );
    assert_eq!(exit_in(&node.until_gone(4)), (ExitCode { code: 0, signal: 9 }, false));
    wait_for(|| fs::read_dir(bed.dir.join("node/n1/steps")).unwrap().next().is_none());
    node.shut_down();

    // A step daemon that dies before it has started anything: another try makes sense, also if it took the folder.
    for (job, text) in [(6, "#!/bin/sh\nexit 1\n"), (7, "#!/bin/sh\ncd \"$3\"; : > pids; kill -9 $$\n")] {
        let stillborn = bed.dir.join("stillborn");
        fs::write(&stillborn, text).unwrap();
        fs::set_permissions(&stillborn, fs::Permissions::from_mode(0o755)).unwrap();
        let mut node = bed.start(&stillborn);
        node.start_job(job);
        let reports = node.until_gone(job);
        assert!(matches!(&reports[0], Report::LaunchFailed { node_fault: true, .. }), "{reports:?}");
        node.shut_down();
    }

    // Without a step daemon there is no start, and nothing is left of the attempt.
    let mut node = bed.start(Path::new("/nonexistent/squall"));
    node.start_job(5);
    let reports = node.until_gone(5);
    assert!(matches!(&reports[0], Report::LaunchFailed { node_fault: true, error, .. } if error.contains("execve")));
    assert!(!bed.folder(5).exists());
    node.shut_down();
    fs::remove_dir_all(&bed.dir).unwrap();
}
