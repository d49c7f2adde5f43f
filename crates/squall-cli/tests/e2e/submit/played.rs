//! A played controller and played step daemons: what the submitting commands say to them, and what they make of
//! the answers, without anything else of Squall.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use squall_model::codec::{self, HEADER_BYTES};
use squall_model::id::{Attempt, JobId, NodeId, StepKey, StepNo};
use squall_model::job::{JobSpec, Owner};
use squall_model::step::{ClientAddress, Distribution, FromStep, JobFacts, Layout, TaskProgram, ToStep};
use squall_model::time::Time;
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::{Hello, Role};

/// What the played controller does upon a request.
pub(crate) enum Deed {
    /// Answers.
    Say(Box<Answer>),
    /// Does something first.
    Do(Box<dyn FnOnce() + Send>),
    /// Ends the connection.
    Leave,
}

/// An answer.
pub(crate) fn say(answer: Answer) -> Deed {
    Deed::Say(Box::new(answer))
}

/// A cluster with a played controller.
pub(crate) struct Cluster {
    dir: PathBuf,
    /// Every request, in order.
    pub(crate) heard: Arc<Mutex<Vec<Request>>>,
}

impl Cluster {
    /// A controller that answers the n-th request (from 0) by `play`.
    pub(crate) fn play(play: impl Fn(usize, &Request) -> Vec<Deed> + Send + Sync + 'static) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("squall-submit-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(dir.join("run")).unwrap();
        let listener = UnixListener::bind(dir.join("run/controller.sock")).unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (play, record) = (Arc::new(play), Arc::clone(&heard));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (play, record) = (Arc::clone(&play), Arc::clone(&record));
                std::thread::spawn(move || serve(stream, &*play, &record));
            }
        });
        Self { dir, heard }
    }

    /// A folder that is removed with the cluster.
    pub(crate) fn dir(&self) -> &PathBuf {
        &self.dir
    }

    /// A command in this cluster, with hardly any environment.
    pub(crate) fn command(&self, name: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
        command.arg(name).env_clear().env("SQUALL_STATE", &self.dir).env("PATH", "/usr/bin:/bin");
        command.current_dir(&self.dir);
        command
    }

    /// Runs a command to its end: status, standard output, standard error.
    pub(crate) fn run(&self, name: &str, args: &[&str]) -> (i32, String, String) {
        texts(&self.command(name).args(args).stdin(std::process::Stdio::null()).output().unwrap())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

/// Status, standard output, standard error.
pub(crate) fn texts(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn serve(mut stream: UnixStream, play: &dyn Fn(usize, &Request) -> Vec<Deed>, record: &Mutex<Vec<Request>>) {
    let Some(Hello { .. }) = get::<Hello>(&mut stream) else { return };
    put(&mut stream, &hello(Role::Controller));
    while let Some(request) = get::<Request>(&mut stream) {
        let at = {
            let mut heard = record.lock().unwrap();
            heard.push(request.clone());
            heard.len() - 1
        };
        for deed in play(at, &request) {
            match deed {
                Deed::Say(answer) => put(&mut stream, &*answer),
                Deed::Do(work) => work(),
                Deed::Leave => return,
            }
        }
    }
}

fn hello(role: Role) -> Hello {
    Hello { cluster: "played".into(), ..Hello::new(role) }
}

fn get<T: squall_model::encoding::Decoded>(stream: &mut UnixStream) -> Option<T> {
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).ok()?;
    let (length, crc) = codec::header(head).ok()?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    codec::decode(&body, crc).ok()
}

fn put<T: squall_model::encoding::Encoded>(stream: &mut UnixStream, message: &T) {
    let mut bytes = Vec::new();
    codec::encode(message, &mut bytes).unwrap();
    // Who has gone does not listen.
    drop(stream.write_all(&bytes));
}

/// A played step daemon, connected to its srun.
pub(crate) struct Stepd(UnixStream);

impl Stepd {
    /// Calls the srun of a program, for that node.
    pub(crate) fn call(program: &TaskProgram, node_index: u32) -> Self {
        let ClientAddress::Abstract(name) = &program.client else { panic!("srun listens nowhere") };
        let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        put(&mut stream, &hello(Role::Step));
        put(&mut stream, &FromStep::Hello { cookie: program.cookie, node_index });
        assert!(get::<Hello>(&mut stream).is_some());
        assert_eq!(get::<ToStep>(&mut stream), Some(ToStep::Hello { cookie: program.cookie }));
        Self(stream)
    }

    /// The same link, for another thread.
    pub(crate) fn another(&self) -> Self {
        Self(self.0.try_clone().unwrap())
    }

    /// Tells srun.
    pub(crate) fn tell(&mut self, frames: &[FromStep]) {
        for frame in frames {
            put(&mut self.0, frame);
        }
    }

    /// What srun says next; None: it has gone.
    pub(crate) fn hear(&mut self) -> Option<ToStep> {
        get(&mut self.0)
    }
}

/// Facts of a played job on nodes n1, n2, ….
pub(crate) fn facts(job: u32, nodes: u32, spec: &JobSpec) -> JobFacts {
    JobFacts {
        key: StepKey { job: JobId(job), attempt: Attempt(1), step: StepNo::BATCH },
        owner: Owner { uid: 0, gid: 0, groups: vec![], user: "ann".into(), group: "ann".into() }.into(),
        spec: spec.clone().into(),
        partition: "debug".into(),
        account: "root".into(),
        qos: "normal".into(),
        cluster: "played".into(),
        nodes: (1..=nodes).map(|n| format!("n{n}")).collect(),
        ids: (0..nodes).map(NodeId).collect(),
        cpus: vec![1; nodes as usize].into(),
        memory_mb: vec![0; nodes as usize].into(),
        tasks: vec![1; nodes as usize].into(),
        start: Time::from_secs(1_000),
        ..JobFacts::default()
    }
}

/// One task on each node.
pub(crate) fn layout(nodes: u32) -> Layout {
    Layout {
        nodes: (1..=nodes).map(|n| format!("n{n}")).collect(),
        tasks: vec![1; nodes as usize].into(),
        distribution: Distribution::Block,
        cpus_per_task: 1,
        ports: None,
    }
}
