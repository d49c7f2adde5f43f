//! The PMIx server of a step on this node: libpmix, once a task has come through the gate.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::event::PollFlags;
use squall_engine::wireup::exchange::ExchangeInput;
use squall_files::place::SocketPath;
use squall_model::encoding::ByteBuf;
use squall_model::step::{Program, StepLaunch};
use squall_model::wire::peer::{Fault, Notice, PeerMessage, What};

use super::mesh::Kinship;
use super::{Port, Waiter, Wireup, Word};
use crate::poller::Interest;
use crate::sys::clock::now;
use crate::sys::pmix::{Asked, Event, Job, Known, Server, Upcall, Verdict};

/// Folder of a file system in memory.
const SHARED_MEMORY: &str = "/dev/shm";
/// File name of the socket on which libpmix listens.
const DOOR: &str = "pmix";

/// The PMIx server of a step on this node; libpmix is loaded when needed.
#[derive(Debug)]
pub(super) struct PmixServer {
    nspace: String,
    folder: PathBuf,
    server: Option<Server>,
    failed: Option<String>,
    /// Whether the user was told that it failed.
    told: bool,
}

impl PmixServer {
    /// Opens the server's listening socket, and makes the folder that tasks share; does not load libpmix.
    pub(super) fn open(launch: &StepLaunch, kinship: &Kinship) -> io::Result<Self> {
        let key = launch.key;
        let folder = shared_folder(kinship, launch);
        if let Err(e) = DirBuilder::new().mode(0o700).create(&folder) {
            let ours = fs::symlink_metadata(&folder)
                .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw());
            if !ours {
                return Err(io::Error::new(e.kind(), format!("{}: {e}", folder.display())));
            }
        }
        Ok(Self {
            // libpmix trusts clients that have the namespace's name, so it contains a secret of the step.
            nspace: format!(
                "squall.{}.{}.{}.{}",
                key.job,
                key.attempt,
                key.step,
                &kinship.secret("PMIx").to_hex()[..16]
            ),
            folder,
            server: None,
            failed: None,
            told: false,
        })
    }

    pub(super) fn nspace(&self) -> &str {
        &self.nspace
    }

    /// Returns the folder that the tasks of this node share.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Loads and starts libpmix, if that was not tried before.
    pub(super) fn prepare(&mut self, launch: &StepLaunch) {
        if self.server.is_some() || self.failed.is_some() {
            return;
        }
        match self.start(launch) {
            Ok(server) => self.server = Some(server),
            Err(e) => self.failed = Some(e),
        }
    }

    fn start(&self, launch: &StepLaunch) -> Result<Server, String> {
        let layout = &launch.layout;
        let facts = &launch.facts;
        let universe: u64 = facts.cpus.runs().map(|(cpus, count)| u64::from(*cpus) * u64::from(count)).sum();
        let door = self.door().and_then(|door| UnixListener::bind(door.as_path()));
        let door = door.map_err(|e| format!("{}: {e}", self.folder.display()))?;
        // The library's `accept` must not wait for a caller that has left.
        door.set_nonblocking(true).map_err(|e| e.to_string())?;
        let job = Job {
            nspace: self.nspace.clone(),
            id: format!("{}.{}", launch.key.job, launch.key.step),
            nodes: layout.nodes.names(),
            ranks: (0..layout.tasks.len()).map(|place| layout.ranks_on(place)).collect(),
            here: launch.node_index,
            universe: u32::try_from(universe).unwrap_or(u32::MAX),
            folder: self.folder.to_string_lossy().into_owned(),
            uid: facts.owner.uid,
            gid: facts.owner.gid,
        };
        Server::start(&job, &door)
    }

    /// Returns the path of the socket on which libpmix listens: in the folder, which only the step's user may enter.
    fn door(&self) -> io::Result<SocketPath> {
        SocketPath::new(&self.folder.join(DOOR))
    }

    /// Connects to libpmix for a task, and starts it before if need be. None: it can't be reached.
    fn reach(&mut self, launch: &StepLaunch) -> Option<UnixStream> {
        self.prepare(launch);
        self.server.as_ref()?;
        let task = UnixStream::connect(self.door().ok()?.as_path()).ok()?;
        task.set_nonblocking(true).ok()?;
        Some(task)
    }

    pub(super) fn interests(&self) -> impl Iterator<Item = Interest<'_, Port>> {
        let bell = self.server.iter().map(Server::bell);
        bell.map(|bell| Interest::new(Port::Bell, bell, Some(PollFlags::IN)))
    }

    /// Whether libpmix is loaded, or loading it was tried.
    pub(super) fn is_loaded(&self) -> bool {
        self.server.is_some() || self.failed.is_some()
    }

    /// Removes the folder that the tasks share, at the end of the step.
    pub(super) fn close(&mut self) {
        if fs::remove_dir(&self.folder).is_err() {
            drop(fs::remove_dir_all(&self.folder));
        }
    }
}

/// Returns the path of the folder that the tasks of a node share. Its name can't be guessed, so no other process can
/// make it first.
///
/// The comma in the name keeps libpmix from removing files that tasks register for clean-up: it takes the path for a
/// list. Open MPI removes its segments itself at its end, and warns of each that libpmix has removed before (its issue
/// 9905). The rest is removed with the folder.
pub(super) fn shared_folder(kinship: &Kinship, launch: &StepLaunch) -> PathBuf {
    let room = if Path::new(SHARED_MEMORY).is_dir() { SHARED_MEMORY } else { "/tmp" };
    Path::new(room).join(format!("squall-{},{}", kinship.name(), launch.node))
}

/// Whether a path can be that of a folder which tasks of a step share.
pub(in crate::stepd) fn is_shared_folder(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let here = path.parent().is_some_and(|room| room == Path::new(SHARED_MEMORY) || room == Path::new("/tmp"));
    here && name.starts_with("squall-") && name.contains(',')
}

/// Converts a fault to libpmix's status.
pub(super) fn verdict(fault: Fault) -> Verdict {
    match fault {
        Fault::Timeout => Verdict::Timeout,
        Fault::Gone => Verdict::Gone,
        Fault::TooLarge => Verdict::TooLarge,
        Fault::NotFound => Verdict::NotFound,
        Fault::Taken => Verdict::Taken,
    }
}

/// Returns the text of a fault for the user.
pub(super) fn reason(fault: Fault) -> &'static str {
    match fault {
        Fault::Timeout => "not all tasks have come in time (SLURM_PMIX_TIMEOUT seconds)",
        Fault::Gone => "a node that takes part is gone",
        Fault::TooLarge => "the tasks bring more data than is allowed",
        Fault::NotFound => "there is no such task",
        Fault::Taken => "there is such a thing already",
    }
}

/// Passes the result of a fence, a request for a rank's data, a connect or a group operation to the waiting caller.
pub(super) fn tell_joined(waiter: Waiter, result: Result<(Vec<u8>, u64), Fault>) {
    let result = result.map_err(verdict);
    match waiter {
        Waiter::Pmi | Waiter::Board(_) | Waiter::Lookup(_) | Waiter::Name(_) | Waiter::Trial => {}
        Waiter::Fence(reply) | Waiter::Ask(reply) => reply.answer(result.map(|(data, _)| data)),
        Waiter::Connect(reply) => reply.answer(result.err().unwrap_or(Verdict::Well)),
        Waiter::Group(reply, numbered) => {
            reply.answer(result.map(|(data, number)| (numbered.then_some(number), data)));
        }
    }
}

impl Wireup {
    /// Handles what tasks send to libpmix, and what it sends to them.
    pub(super) fn pass(&mut self) {
        let (pmix, launch) = (&mut self.pmix, &self.launch);
        let mut missed = false;
        self.gate.handle(&mut || {
            let library = pmix.reach(launch);
            missed |= library.is_none();
            library
        });
        let why = self.pmix.failed.as_ref().filter(|_| missed && !self.pmix.told);
        if let Some(why) = why {
            self.words.push(Word::Notice(format!("no PMIx for MPI programs on {}: {why}", self.launch.node)));
            self.pmix.told = true;
        }
    }

    /// Handles the pending requests of libpmix.
    pub(super) fn serve_pmix(&mut self) {
        let upcalls = self.pmix.server.as_ref().map(Server::take).unwrap_or_default();
        for upcall in upcalls {
            self.serve_upcall(upcall);
        }
    }

    fn serve_upcall(&mut self, upcall: Upcall) {
        match upcall {
            Upcall::Connected(rank) => self.greeted(rank),
            Upcall::Finalized(rank) => self.finalized(rank),
            Upcall::Abort { rank, code, text, reply } => {
                self.abort_by(rank, code, &text);
                reply.answer(Verdict::Well);
            }
            Upcall::Fence { asked, data, reply } => {
                let ranks = self.ranks(asked);
                self.join(Waiter::Fence(reply), What::Fence, ranks, data);
            }
            Upcall::Ask { rank, reply } => {
                let ticket = self.wait(Waiter::Ask(reply));
                self.feed(ExchangeInput::Ask { ticket, rank });
            }
            Upcall::Published { ticket, data } => {
                if let Some((place, ticket)) = self.served.remove(&ticket) {
                    self.feed(ExchangeInput::Served { place, ticket, result: data.ok_or(Fault::NotFound) });
                }
            }
            Upcall::Connect { on, asked, reply } => {
                let ranks = self.ranks(asked);
                let what = if on { What::Connect } else { What::Disconnect };
                self.join(Waiter::Connect(reply), what, ranks, Vec::new());
            }
            Upcall::Publish { rank, values, reply } => {
                let notice = |(key, value)| Notice { owner: rank, key, value: ByteBuf::from(value) };
                let notices = values.into_iter().map(notice).collect();
                self.consult(Waiter::Board(reply), |ticket| PeerMessage::Post { ticket, notices });
            }
            Upcall::Unpublish { rank, keys, reply } => {
                self.consult(Waiter::Board(reply), |ticket| PeerMessage::Withdraw { ticket, owner: rank, keys });
            }
            Upcall::Lookup { keys, wait, reply } => {
                self.consult(Waiter::Lookup(reply), |ticket| PeerMessage::Find { ticket, keys, wait });
            }
            Upcall::Group { on, name, asked, data, numbered, reply } => {
                let ranks = self.ranks(asked);
                let what = if on { What::Group(name) } else { What::Ungroup(name) };
                self.join(Waiter::Group(reply, numbered), what, ranks, data);
            }
            Upcall::Event(event) => self.spread(&event),
            Upcall::Query { keys, reply } => {
                let known: Vec<(String, Known)> =
                    keys.iter().filter_map(|key| Some((key.clone(), self.known(key)?))).collect();
                let all = known.len() == keys.len();
                reply.answer(known, all);
            }
            Upcall::Log { rank, texts, reply } => {
                let said = texts.iter().any(|text| !text.is_empty());
                let texts = texts.into_iter().zip([false, true]).filter(|(text, _)| !text.is_empty());
                self.words.extend(texts.map(|(text, stderr)| Word::Log { rank, stderr, text }));
                reply.answer(if said { Verdict::Well } else { Verdict::Refused });
            }
            Upcall::End { rank, kill, reply } => {
                let code = 128 + if kill { libc::SIGKILL } else { libc::SIGTERM };
                self.abort(code as u8, format!("task {rank} had the step ended (PMIx_Job_control)"));
                reply.close(Verdict::Well);
            }
            Upcall::Spawn(rank) => self.refuse_spawn(rank),
        }
    }

    /// Returns the value of a PMIx key (e.g. `pmix.qry.ns`) that a program queries. None: it is not known here.
    fn known(&self, key: &str) -> Option<Known> {
        let launch = &self.launch;
        match key {
            "pmix.qry.ns" => Some(Known::Text(self.pmix.nspace().to_owned())),
            // Process sets have no names here, and no attribute of a spawn is supported.
            "pmix.qry.psetnum" => Some(Known::Count(0)),
            "pmix.qry.psets" | "pmix.qry.spawn" => Some(Known::Text(String::new())),
            "pmix.time.remaining" => {
                let left = launch.facts.end?.since(now());
                Some(Known::Seconds(u32::try_from(left.0 / 1_000_000).unwrap_or(u32::MAX)))
            }
            // The process ids of tasks on other nodes are not known.
            "pmix.qry.ptable" if launch.layout.nodes.len() > 1 => None,
            "pmix.qry.ptable" | "pmix.qry.lptable" => {
                let Program::Tasks(program) = &launch.program else { return None };
                let command = program.commands.first().and_then(|(_, words)| words.first());
                let program = command.map(|word| String::from_utf8_lossy(word).into_owned()).unwrap_or_default();
                Some(Known::Tasks { node: launch.node.clone(), program, tasks: self.tasks.clone() })
            }
            _ => None,
        }
    }

    /// Tells the user that a step can't have more tasks than it was started with.
    pub(super) fn refuse_spawn(&mut self, rank: u32) {
        self.words.push(Word::Notice(format!(
            "task {rank} asks for further processes (MPI_Comm_spawn), which a step can't have: start them with srun"
        )));
    }

    /// Sends an event, which a rank on this node has raised, to the other nodes.
    fn spread(&mut self, event: &Event) {
        let here = self.launch.node_index;
        let Some(mesh) = &mut self.mesh else { return };
        self.events += 1;
        for place in (0..self.launch.layout.nodes.len() as u32).filter(|&place| place != here) {
            let Event { code, source, range, details } = event.clone();
            let details = details.into_iter().map(ByteBuf::from).collect();
            mesh.send(place, PeerMessage::Event { code, source, range, details });
        }
    }

    /// Passes an event of a rank on another node to the ranks here.
    pub(super) fn pass_on(&mut self, event: &Event) {
        // Ranks here that have not connected yet will: the event shows that the step uses PMIx.
        self.pmix.prepare(&self.launch);
        if let Some(server) = &self.pmix.server {
            server.notify(event);
        }
    }

    pub(super) fn consult(&mut self, waiter: Waiter, message: impl FnOnce(u64) -> PeerMessage) {
        let ticket = self.wait(waiter);
        self.feed(ExchangeInput::Consult { ticket, message: message(ticket) });
    }

    fn ranks(&self, asked: Asked) -> squall_model::set::IndexSet {
        match asked {
            Asked::All => self.exchange.everybody(),
            Asked::Some(ranks) => ranks,
        }
    }

    /// Answers another node's question for the data that a rank here has published.
    pub(super) fn serve(
        &mut self,
        place: u32,
        ticket: u64,
        rank: u32,
        queue: &mut std::collections::VecDeque<ExchangeInput>,
    ) {
        // No rank here has connected yet, but as the asking rank has, this one will too.
        self.pmix.prepare(&self.launch);
        match &self.pmix.server {
            Some(server) => {
                self.tickets += 1;
                self.served.insert(self.tickets, (place, ticket));
                server.publish_of(rank, self.tickets);
            }
            None => queue.push_back(ExchangeInput::Served { place, ticket, result: Err(Fault::NotFound) }),
        }
    }
}
