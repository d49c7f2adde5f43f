//! A connection to the controller: blocking calls, no runtime, and connecting is all that happens at start.
//!
//! A caller that expects a long wait polls the socket (`stream`) or sets the timeout (`wait_up_to`).

use std::fmt;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    sendmsg, socket_with,
};
use squall_files::place::{Place, SocketPath};
use squall_model::codec::{self, CodecError, HEADER_BYTES};
use squall_model::config::Config;
use squall_model::encoding;
use squall_model::wire::client::{Answer, JobSelection, Refusal, Request, Sendable};
use squall_model::wire::info::JobsPage;
use squall_model::wire::join::{BEARER, Bearer, SOCKET};
use squall_model::wire::{Hello, Incompatible, Proof, Role, Standby};

use squall_text::refusal;

/// How long a controller may read nothing or send nothing before a call fails (Slurm's MessageTimeout).
pub const SILENCE: Duration = Duration::from_secs(10);

/// A connection to the controller.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    /// Encoded greeting that is not sent yet: it goes with the first request.
    greeting: Vec<u8>,
    /// Name of the cluster; None: the controller has not sent its greeting yet.
    cluster: Option<String>,
    /// The standby that answers; None: the controller that leads does.
    standby: Option<Standby>,
    /// Cells of which data was missing from answers since the last `take_absent`.
    absent: Vec<u32>,
}

/// Cause if the controller closes the connection instead of greeting.
const NO_GREETING: &str = "the controller closed the connection without a greeting: it has just ended, it can't be \
     reached from this host, or it is of an older release that these commands can't talk to (upgrade it, or use its own \
     commands)";

/// Reason why a request has no answer.
#[derive(Debug)]
pub enum ClientError {
    /// No cluster was found, or its controller does not listen. Holds the cause.
    Connect(String),
    /// The connection ended before the answer came. Holds the cause.
    Lost(String),
    /// The controller accepts connections but does not answer.
    Silent,
    /// The controller speaks another protocol version.
    Version(Incompatible),
    /// The controller refused the request.
    Refused(Refusal),
    /// The file that was to be sent can't be read.
    Unreadable(io::Error),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(_) => f.write_str("Unable to contact slurm controller (connect failure)"),
            Self::Lost(_) => f.write_str("Unable to contact slurm controller (connection lost)"),
            Self::Silent => f.write_str("Socket timed out on send/recv operation"),
            Self::Version(theirs) => {
                write!(f, "Incompatible versions of client and server code (the controller: {theirs})")
            }
            Self::Unreadable(e) => write!(f, "Can't read it: {e}"),
            Self::Refused(refusal) => f.write_str(&refusal::text(refusal)),
        }
    }
}

impl ClientError {
    /// Returns the underlying cause, for a second line to the user; None: there is none to add.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::Connect(detail) | Self::Lost(detail) => Some(detail),
            Self::Silent => {
                Some("the controller is there but does not answer: it may be stopped, or its disk may hang")
            }
            _ => None,
        }
    }
    /// Returns the lines for a failed request, each to be printed after `NAME: error: `. The last one is `WHAT: TEXT`.
    pub fn lines(&self, what: &str) -> Vec<String> {
        match self {
            Self::Refused(refusal) => refusal::lines(what, refusal),
            other => other.detail().map(str::to_owned).into_iter().chain([format!("{what}: {other}")]).collect(),
        }
    }
    /// Returns whether a retry may help, because the controller may be restarting.
    pub fn is_transient(&self) -> bool {
        let away = |refusal: &Refusal| matches!(refusal, Refusal::CellAway(_) | Refusal::NoLeader(_));
        matches!(self, Self::Connect(_) | Self::Lost(_) | Self::Silent)
            || matches!(self, Self::Refused(refusal) if away(refusal))
    }
}

impl From<io::Error> for ClientError {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
            _ => Self::Lost(e.to_string()),
        }
    }
}

impl From<CodecError> for ClientError {
    fn from(e: CodecError) -> Self {
        Self::Lost(e.to_string())
    }
}

impl Client {
    /// Connects to the cluster that `Place::find` returns. `command` is the name of this command.
    pub fn connect(command: &str) -> Result<Self, ClientError> {
        let place = find_place()?;
        Self::connect_to(&place, command)
    }

    /// Connects to the given cluster. `command` is the name of this command. On one of several heads whose own
    /// controller does not run, the head's login daemon passes the requests on to another one.
    pub fn connect_to(place: &Place, command: &str) -> Result<Self, ClientError> {
        Self::connect_own(place, command).or_else(|e| match e {
            ClientError::Connect(why) if is_head(place) => Self::connect_by(
                &place.head_socket(),
                &Hello::new(Role::Client(command.into())),
            )
            .map_err(|_| {
                let both = "the controller of this head does not run, and neither does its login daemon, through which \
                         commands reach the other controllers: `squall up` starts both";
                ClientError::Connect(format!("{why}; {both}"))
            }),
            e => Err(e),
        })
    }

    /// Connects to the given cluster by the controller of this host, or the login daemon of a host without one, and by
    /// nothing else. `command` is the name of this command.
    pub fn connect_own(place: &Place, command: &str) -> Result<Self, ClientError> {
        Self::connect_as(place, command, Proof::Peer)
    }

    /// Connects to the controller of this host itself, which may be a standby. It answers requests that only read.
    pub fn connect_here(command: &str) -> Result<Self, ClientError> {
        Self::connect_here_to(&find_place()?, command)
    }

    /// Connects to the controller of this host in the given cluster, as [`Client::connect_here`].
    pub fn connect_here_to(place: &Place, command: &str) -> Result<Self, ClientError> {
        Self::connect_by(&place.controller_socket(), &Hello::new(Role::Reader(command.into())))
    }

    /// Connects to the given cluster as the bearer of a token. `command` is the name of this program.
    pub fn connect_with(place: &Place, command: &str, bearer: &Bearer) -> Result<Self, ClientError> {
        Self::connect_as(place, command, Proof::Scheme(BEARER.to_owned(), encoding::to_vec(bearer)))
    }

    /// Connects to the given cluster as the user at the other end of `socket`, which this process has accepted as the
    /// cluster's HTTP server. `secret`: by which it shows that it is that; `command`: the name of this program.
    pub fn connect_for(
        place: &Place,
        (command, secret): (&str, &str),
        socket: BorrowedFd<'_>,
    ) -> Result<Self, ClientError> {
        let mut client = Self::connect_as(place, command, Proof::Scheme(SOCKET.to_owned(), secret.into()))?;
        client.greet()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let sockets = [socket];
        control.push(SendAncillaryMessage::ScmRights(&sockets));
        sendmsg(&client.stream, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL).map_err(io::Error::from)?;
        Ok(client)
    }

    /// Connects to the controller of this host only: its login daemon knows no user but that of the kernel.
    fn connect_as(place: &Place, command: &str, proof: Proof) -> Result<Self, ClientError> {
        let hello = Hello { proof, ..Hello::new(Role::Client(command.into())) };
        Self::connect_by(&place.controller_socket(), &hello)
    }

    /// Connects to the socket of this path.
    fn connect_by(path: &Path, hello: &Hello) -> Result<Self, ClientError> {
        let failed = |e: io::Error| ClientError::Connect(format!("{}: {e}", path.display()));
        let short = SocketPath::new(path).map_err(failed)?;
        let stream = connect(short.as_path()).map_err(failed)?;
        let mut greeting = Vec::new();
        codec::encode(hello, &mut greeting)?;
        Ok(Self { stream, greeting, cluster: None, standby: None, absent: Vec::new() })
    }

    /// Exchanges greetings now, if that is not done yet; otherwise the first request does it.
    pub fn greet(&mut self) -> Result<(), ClientError> {
        self.write_bytes(Vec::new())
    }

    /// Sets how long to wait for a silent controller; None: without limit.
    pub fn wait_up_to(&self, patience: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(patience)
    }

    /// Enlarges the socket's send buffer, so that chunks of a file need not wait for each other. A failure only costs
    /// speed.
    pub fn make_room(&self, bytes: usize) {
        let _ = set_socket_send_buffer_size(&self.stream, bytes);
    }

    /// Returns the cluster's name as the controller gives it.
    pub fn cluster(&mut self) -> Result<&str, ClientError> {
        self.greet()?;
        Ok(self.cluster.as_deref().unwrap_or_default())
    }

    /// Returns what the standby that answers has told of itself. None: the controller that leads answers, or none has
    /// greeted yet.
    pub fn standby(&self) -> Option<&Standby> {
        self.standby.as_ref()
    }

    /// Sends a request. [`Client::receive`] returns its answers.
    pub fn send(&mut self, request: &impl Sendable) -> Result<(), ClientError> {
        let mut bytes = Vec::new();
        codec::encode(request, &mut bytes)?;
        self.write_bytes(bytes)
    }

    /// Sends all requests together; returns their number.
    pub(crate) fn send_all(&self, requests: impl Iterator<Item = Request>) -> Result<usize, ClientError> {
        let (mut bytes, mut count) = (Vec::new(), 0);
        for request in requests {
            codec::encode(&request, &mut bytes)?;
            count += 1;
        }
        write(&self.stream, &bytes)?;
        Ok(count)
    }

    /// Returns the next answer; a refusal is an error.
    pub fn receive(&mut self) -> Result<Answer, ClientError> {
        loop {
            match read(&mut self.stream)? {
                Answer::Refused(refusal) => return Err(ClientError::Refused(refusal)),
                Answer::Without(cells) => self.absent.extend(cells),
                answer => return Ok(answer),
            }
        }
    }

    /// Returns the cells of which data was missing from answers since the last call, because they did not answer.
    pub fn take_absent(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.absent)
    }

    /// Sends a request and returns its first answer.
    pub fn ask(&mut self, request: &impl Sendable) -> Result<Answer, ClientError> {
        self.send(request)?;
        self.receive()
    }

    /// Returns all pages of a job listing, joined into one.
    pub fn jobs(&mut self, jobs: JobSelection, ended: bool, steps: bool) -> Result<JobsPage, ClientError> {
        let mut all = JobsPage::default();
        self.pages(jobs, ended, steps, |page| all.append(page))?;
        Ok(all)
    }

    /// Calls `take` with each page of a job listing as it comes.
    pub fn pages(
        &mut self,
        jobs: JobSelection,
        ended: bool,
        steps: bool,
        mut take: impl FnMut(JobsPage),
    ) -> Result<(), ClientError> {
        self.send(&Request::Jobs { jobs, ended, steps })?;
        loop {
            let Answer::Jobs(page) = self.receive()? else { return Err(unexpected()) };
            let more = page.more;
            take(*page);
            if !more {
                return Ok(());
            }
        }
    }

    /// Returns the socket, for callers that poll several things at once.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends bytes. With the first ones goes the greeting, and the controller's greeting is awaited.
    fn write_bytes(&mut self, mut bytes: Vec<u8>) -> Result<(), ClientError> {
        if self.cluster.is_some() {
            return write(&self.stream, &bytes);
        }
        let mut greeting = std::mem::take(&mut self.greeting);
        greeting.append(&mut bytes);
        let sent = write(&self.stream, &greeting);
        // A controller of another version sends its greeting and reads no further.
        let hello: Hello = match read(&mut self.stream) {
            Ok(hello) => hello,
            Err(ClientError::Lost(_)) => return Err(ClientError::Lost(NO_GREETING.to_owned())),
            Err(e) => return Err(sent.err().unwrap_or(e)),
        };
        hello.agreed().map_err(ClientError::Version)?;
        self.cluster = Some(hello.cluster);
        if let Role::Standby(standby) = hello.role {
            self.standby = Some(standby);
        }
        sent
    }
}

/// Whether this machine is that of one of several controllers.
fn is_head(place: &Place) -> bool {
    place.head_socket().exists() || !configured(place).is_empty()
}

/// Returns names and addresses of several controllers, as the configuration on this machine has them. Empty: there is one,
/// or the configuration can't be read here.
pub fn configured(place: &Place) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(place.config()).unwrap_or_default();
    let config = Config::from_toml(&text).unwrap_or_default();
    let all = config.controllers.0.iter().filter(|_| config.has_standbys());
    all.map(|one| (one.name().to_owned(), one.address.clone())).collect()
}

/// Returns the cluster that commands talk to.
pub(crate) fn find_place() -> Result<Place, ClientError> {
    Place::find().ok_or_else(|| {
        ClientError::Connect(
            "no cluster is running here: start one with `squall up`, or name one in SQUALL_STATE".into(),
        )
    })
}

/// Writes all bytes. A closed connection is an error, not a SIGPIPE that would kill the program.
fn write(stream: &UnixStream, mut bytes: &[u8]) -> Result<(), ClientError> {
    while !bytes.is_empty() {
        match rustix::net::send(stream, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(Errno::INTR) => {}
            Err(e) => return Err(io::Error::from(e).into()),
        }
    }
    Ok(())
}

/// Reads and decodes the next frame from the controller.
pub(crate) fn read<T: encoding::Decoded>(stream: &mut impl Read) -> Result<T, ClientError> {
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head)?;
    let (length, crc) = codec::header(head)?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(codec::decode(&body, crc)?)
}

/// Connects with a timeout on sending and receiving. The timeout includes the connect, since the controller's queue
/// of callers may be full.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    for direction in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, direction, Some(SILENCE))?;
    }
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Returns the error for an answer that does not fit the request.
pub fn unexpected() -> ClientError {
    ClientError::Lost("the controller gave an answer that does not fit the request".into())
}
