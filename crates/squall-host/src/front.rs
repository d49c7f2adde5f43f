//! The front: a gateway that serves clients in a controller's place and forwards to several cells. It has no durable
//! state.
//!
//! Each client's connection has a [`Desk`] and its own connections to the cells that it needs, over which the front
//! vouches for the client's identity. A cell ties a client's state to that connection: it ends when the client
//! disconnects.

mod cell_connections;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use squall_engine::front::{Cells, Desk, Input, Out};
use squall_engine::machine::Machine;
use squall_files::place::{Place, SocketPath};
use squall_model::config::Config;
use squall_model::encoding;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, AnyRequest};
use squall_model::wire::join::{VOUCHED, Vouched};
use squall_model::wire::{Hello, Proof, Role};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::LocalOptions;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet, spawn_local};
use tokio::time::timeout;
use tracing::{error, info};

use crate::auth::{Users, is_operator};
use crate::cgroup::member;
use crate::controld::{self, ControllerError};
use crate::gone;
use crate::hop::{self, Reader, Writer};
use crate::link::{self, Outgoing};
use crate::logging;
use crate::privileges;
use crate::service;
use crate::sys::clock;

/// Number of clients at once, at most.
const CLIENTS_MAX: usize = 4096;
/// Most clients of one user at once, so that no user can lock the others out.
const CLIENTS_OF_USER_MAX: usize = CLIENTS_MAX / 8;
/// Time within which a client must send its greeting.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// Time within which a cell must send its greeting.
const MEETING_TIME: Duration = Duration::from_secs(2);
/// Most requests of a client, and answers of its cells, that may be queued for its session; further ones are left
/// unread in their sockets.
const ARRIVALS_MAX: usize = 64;
/// Most bytes that may be queued for a client, and for each cell on the client's behalf.
const OUTGOING_BYTES_MAX: usize = 512 << 20;

/// Settings and counters shared by all clients of the front.
struct Front {
    cluster: String,
    cells: Arc<Cells>,
    /// Path of the controller's socket in each cell, by cell number.
    sockets: BTreeMap<u32, PathBuf>,
    users: Users,
}

/// Returns the cells of `place` with their configurations. The folder `cells` of `place` has a state folder for each
/// cell, named by its number.
pub fn cells(place: &Place) -> Result<Vec<(Place, Config)>, ControllerError> {
    let folder = place.cells_folder();
    let found = place.cells().map_err(ControllerError::io("read", folder.clone()))?;
    let found = found.into_iter().map(|(number, cell)| {
        let config = controld::read_config(&cell)?;
        if config.cell == Some(number) {
            return Ok((cell, config));
        }
        let problem = format!("`cell = {number}` is missing, which goes with the folder's name");
        Err(ControllerError::Config { path: cell.config(), problem })
    });
    found.collect()
}

/// Runs the front of the cells in the state folder `place` until it is told to end. Blocks.
pub fn run(place: &Place) -> Result<(), ControllerError> {
    privileges::confine(place, false);
    gone::end_with(place, "the front", || {});
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(ControllerError::io("start threads for", place.dir().to_owned()))?;
    let result = runtime.block_on(serve(place));
    if let Err(error) = &result {
        format!("front ends: {error}").lines().for_each(|line| error!("{line}"));
    }
    result
}

async fn serve(place: &Place) -> Result<(), ControllerError> {
    let files = crate::sys::limits::raise_open_files();
    let found = cells(place)?;
    let configs: Vec<Config> = found.iter().map(|(_, config)| config.clone()).collect();
    configs.iter().take(1).for_each(|config| logging::configure(config.slurmctld_debug));
    let logging = spawn_local(logging::reopen_at_hangups());
    let cells =
        Cells::new(&configs).map_err(|problem| ControllerError::Config { path: place.cells_folder(), problem })?;
    let sockets =
        configs.iter().zip(&found).filter_map(|(config, (cell, _))| Some((config.cell?, cell.controller_socket())));
    let front = Front {
        cluster: configs[0].cluster.clone(),
        cells: Arc::new(cells),
        sockets: sockets.collect(),
        users: Users::within(CLIENTS_OF_USER_MAX, files),
    };
    let mut terminate =
        signal(SignalKind::terminate()).map_err(ControllerError::io("wait for signals in", place.run()))?;
    let mut interrupt =
        signal(SignalKind::interrupt()).map_err(ControllerError::io("wait for signals in", place.run()))?;
    let listener = controld::listen(place)?;
    info!(cells = front.sockets.len(), cluster = front.cluster, "front is ready");
    let front = Rc::new(front);
    let accepting = spawn_local(accept(listener, Rc::clone(&front)));
    let carrying = spawn_local(cell_connections::carry(front));
    service::ready();
    let beating = spawn_local(service::beat());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    service::stopping();
    beating.abort();
    accepting.abort();
    carrying.abort();
    logging.abort();
    // Removes the socket, so that no client tries it; if it is missing already, that is as good.
    drop(std::fs::remove_file(place.controller_socket()));
    Ok(())
}

async fn accept(listener: UnixListener, front: Rc<Front>) {
    let seats = Arc::new(Semaphore::new(CLIENTS_MAX));
    loop {
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let front = Rc::clone(&front);
                spawn_local(async move {
                    // An error ends this client's connection only; the client sees that and tries again.
                    drop(receive(stream, &front).await);
                    drop(seat);
                });
            }
            Err(e) => {
                error!(error = %e, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Greets a client, takes its identity from the kernel, and serves it.
async fn receive(stream: UnixStream, front: &Rc<Front>) -> io::Result<()> {
    link::make_room(&stream);
    let peer = stream.peer_cred()?;
    if !rustix::process::geteuid().is_root() && !is_operator(peer.uid()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let Some(_entered) = front.users.enter(peer.uid()) else { return Ok(()) };
    let (mut reader, mut writer) = hop::local(stream)?;
    let greeting = timeout(GREETING_TIME, link::read_greeting(&mut reader)).await;
    let Some(hello) = greeting.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? else { return Ok(()) };
    let ours = Hello { cluster: front.cluster.clone(), ..Hello::new(Role::Controller) };
    link::write(&mut writer, &ours).await?;
    let understood = hello.agreed().is_ok() && (hello.cluster.is_empty() || hello.cluster == front.cluster);
    if !understood || hello.proof != Proof::Peer || !matches!(hello.role, Role::Client(_)) {
        return Ok(());
    }
    let (node, job) = (String::new(), member::job_of(peer.pid())?);
    let vouched = Vouched { node, uid: peer.uid(), gid: peer.gid(), owner: false, over_http: false, job };
    let bytes = encoding::to_vec(&vouched);
    let hello = Hello { proof: Proof::Scheme(VOUCHED.to_owned(), bytes), ..hello };
    Session::new(Rc::clone(front), hello).run(reader, writer).await
}

/// An event of a connection to a cell.
enum Arrival {
    Answered(Box<Answer>),
    /// The connection has ended. False: it was never established, so the cell has received nothing over it.
    Ended(bool),
}

/// The session's connection to one cell.
struct CellConnection {
    /// Unique number of this connection; arrivals with the number of an earlier connection are ignored.
    number: u64,
    out: Outgoing,
    task: AbortHandle,
}

/// One client's session at the front.
struct Session {
    front: Rc<Front>,
    /// Greeting for the cells, with the client's identity.
    hello: Hello,
    desk: Desk,
    links: BTreeMap<u32, CellConnection>,
    made: u64,
    now: Time,
    client: Outgoing,
    /// Sender of events from the tasks that serve connections to cells: (cell, number of the connection, event).
    tell: mpsc::Sender<(u32, u64, Arrival)>,
    arrivals: mpsc::Receiver<(u32, u64, Arrival)>,
    /// Tasks of this session; dropping the set ends them.
    tasks: JoinSet<()>,
}

impl Session {
    fn new(front: Rc<Front>, hello: Hello) -> Self {
        let (tell, arrivals) = mpsc::channel(ARRIVALS_MAX);
        let desk = Desk::new(Arc::clone(&front.cells));
        let (links, client) = (BTreeMap::new(), Outgoing::new(OUTGOING_BYTES_MAX));
        Self { front, hello, desk, links, made: 0, now: clock::steady(), client, tell, arrivals, tasks: JoinSet::new() }
    }

    /// Serves the client until it disconnects, or until it has to reconnect and send its requests again.
    async fn run(mut self, reader: Reader, mut writer: Writer) -> io::Result<()> {
        let (requests, mut inbox) = mpsc::channel(ARRIVALS_MAX);
        self.tasks.spawn_local(listen_to(reader, requests));
        let client = self.client.clone();
        let mut writing = std::pin::pin!(client.pump(&mut writer));
        loop {
            let input = tokio::select! {
                done = &mut writing => return done,
                request = inbox.recv(), if !self.desk.is_full() => match request {
                    Some(request) => Input::Asked(request),
                    None => return Ok(()),
                },
                Some(arrival) = self.arrivals.recv() => match self.input(arrival) {
                    Some(input) => input,
                    None => continue,
                },
                () = until(self.desk.deadline()) => Input::Tick,
            };
            if !self.step(input) {
                return Ok(());
            }
        }
    }

    fn input(&mut self, (cell, number, arrival): (u32, u64, Arrival)) -> Option<Input> {
        self.links.get(&cell).filter(|link| link.number == number)?;
        Some(match arrival {
            Arrival::Answered(answer) => Input::Answered { cell, answer },
            Arrival::Ended(heard) => {
                self.links.remove(&cell);
                if heard { Input::Lost { cell } } else { Input::Away { cell } }
            }
        })
    }

    /// Passes an input to the session's state machine and carries out the results. False: the client's connection is to
    /// end.
    fn step(&mut self, input: Input) -> bool {
        let mut out = Out::default();
        self.now = self.now.max(clock::steady());
        self.desk.step(self.now, input, &mut out);
        for (cell, request) in out.sends {
            self.send(cell, &request);
        }
        for cell in out.drops {
            if let Some(link) = self.links.remove(&cell) {
                link.task.abort();
            }
        }
        let fine = out.answers.iter().all(|answer| self.client.push(answer).is_ok());
        fine && !out.hangup
    }

    /// Sends a request to a cell, over the existing connection or a new one.
    fn send(&mut self, cell: u32, request: &AnyRequest) {
        let Some(socket) = self.front.sockets.get(&cell) else { return };
        if !self.links.contains_key(&cell) {
            self.made += 1;
            let (number, out) = (self.made, Outgoing::new(OUTGOING_BYTES_MAX));
            while self.tasks.try_join_next().is_some() {}
            let talk = talk(socket.clone(), self.hello.clone(), out.clone(), (cell, number), self.tell.clone());
            let task = self.tasks.spawn_local(talk);
            self.links.insert(cell, CellConnection { number, out, task });
        }
        if let Some(link) = self.links.get(&cell)
            && let Err(e) = link.out.push(request)
        {
            error!(cell, error = %e, "a request for a cell can't be sent: its connection is closed");
            link.out.close();
        }
    }
}

/// Queues the client's requests until it disconnects.
async fn listen_to(mut reader: Reader, requests: mpsc::Sender<AnyRequest>) {
    while let Ok(Some(request)) = link::read::<AnyRequest>(&mut reader).await {
        if requests.send(request).await.is_err() {
            return;
        }
    }
}

/// Serves one connection to a cell, from connecting to its end.
async fn talk(
    socket: PathBuf,
    hello: Hello,
    out: Outgoing,
    (cell, number): (u32, u64),
    tell: mpsc::Sender<(u32, u64, Arrival)>,
) {
    let met = timeout(MEETING_TIME, meet(&socket, &hello)).await;
    let heard = match met {
        Ok(Ok((mut reader, mut writer))) => {
            let reading = async {
                while let Ok(Some(answer)) = link::read::<Answer>(&mut reader).await {
                    if tell.send((cell, number, Arrival::Answered(Box::new(answer)))).await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! {
                () = reading => {}
                // Writing has ended; the report below makes the session drop the connection.
                _ = out.pump(&mut writer) => {}
            }
            true
        }
        Ok(Err(_)) | Err(_) => false,
    };
    // Sending fails only if the session has ended.
    drop(tell.send((cell, number, Arrival::Ended(heard))).await);
}

async fn meet(socket: &std::path::Path, hello: &Hello) -> io::Result<(Reader, Writer)> {
    let short = SocketPath::new(socket)?;
    let stream = UnixStream::connect(short.as_path()).await?;
    link::make_room(&stream);
    let (mut reader, mut writer) = hop::local(stream)?;
    link::write(&mut writer, hello).await?;
    match link::read::<Hello>(&mut reader).await? {
        Some(theirs) if theirs.agreed().is_ok() => Ok((reader, writer)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Waits until a moment; None: forever.
async fn until(moment: Option<Time>) {
    match moment {
        Some(moment) => tokio::time::sleep(Duration::from_micros(moment.since(clock::steady()).0)).await,
        None => std::future::pending().await,
    }
}
