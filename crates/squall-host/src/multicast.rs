//! Distribution of files by UDP multicast: the controller's sender and the nodes' receivers.
//!
//! Lost datagrams are repaired by the engine (`control/effects/cast.rs`): this module only paces sending. Datagrams
//! are encrypted with a key that nodes receive over the tree, so that listeners on the network can't read them. The
//! file's digest proves that its content is right.

pub(crate) mod datagram;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use squall_engine::control::Cast;
use squall_model::config::Config;
use squall_model::set::NodeSet;
use squall_model::wire::fabric::{Chunk, ContentId, StreamKey};

use datagram::{Assembler, BYTES_MAX, Sealed};

/// Size of a receiver's socket buffer, bytes; more than a window of pieces.
const EAR_BYTES: usize = 8 << 20;
/// Shortest pause that the sender makes; shorter ones are added to a later one.
const PAUSE_LEAST: Duration = Duration::from_micros(300);
/// Time to live of datagrams: the most routers between sender and nodes.
const HOPS_MAX: u32 = 8;
/// Files that a node receives by multicast at once, at most.
const STREAMS_MAX: usize = 64;

/// Multicast group and port, and the address of the interface used for it (unspecified: chosen by the kernel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    address: SocketAddrV4,
    interface: Ipv4Addr,
}

impl Group {
    /// Reads the group from the configuration; None: multicast is off. `towards`: an address of the controller, given
    /// on other machines, by which the interface is found.
    pub(crate) fn of(config: &Config, towards: Option<&str>) -> Result<Option<Self>, String> {
        let text = config.multicast.0.trim();
        if text.is_empty() {
            return Ok(None);
        }
        let wrong = || {
            format!(
                "multicast = \"{text}\": an IPv4 multicast address with a port is needed, as in \"239.255.77.1:6819\""
            )
        };
        let address: SocketAddrV4 = text.parse().map_err(|_| wrong())?;
        if !address.ip().is_multicast() || address.port() == 0 {
            return Err(wrong());
        }
        let own = match config.multicast_interface.0.trim() {
            "" => config.slurmctld_host.0.parse().unwrap_or(Ipv4Addr::UNSPECIFIED),
            text => text.parse().map_err(|_| {
                format!("multicast_interface = \"{text}\": an IPv4 address of the controller's machine is needed")
            })?,
        };
        let interface = towards.map_or(own, |controller| local_address(controller).unwrap_or(Ipv4Addr::UNSPECIFIED));
        Ok(Some(Self { address, interface }))
    }
}

/// Returns the IPv4 address that this machine uses to reach `other`. None: `other` can't be reached, or only by IPv6.
fn local_address(other: &str) -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(other).ok()?;
    match socket.local_addr().ok()? {
        SocketAddr::V4(address) => Some(*address.ip()),
        SocketAddr::V6(_) => None,
    }
}

/// Most pieces that may wait to be sent: more than the blocks in transit of some dozen files.
const CASTS_MAX: usize = 4096;

/// The controller's multicast sender.
#[derive(Debug)]
pub(crate) struct MulticastSender {
    queue: SyncSender<Cast>,
    /// Secret from which the keys of streams are derived.
    pub(crate) secret: [u8; 32],
}

impl MulticastSender {
    /// Opens a socket and starts the sending thread; `left` is called with the number of each stream after its
    /// last piece was sent.
    pub(crate) fn open(group: Group, left: impl Fn(u64) + Send + 'static) -> io::Result<Self> {
        let socket = UdpSocket::bind((group.interface, 0))?;
        if !group.interface.is_unspecified() {
            sockopt::set_ip_multicast_if(&socket, &group.interface)?;
        }
        sockopt::set_ip_multicast_loop(&socket, true)?;
        sockopt::set_ip_multicast_ttl(&socket, HOPS_MAX)?;
        socket.connect(group.address)?;
        let mut secret = [0; 32];
        io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut secret)?;
        let (queue, casts) = sync_channel(CASTS_MAX);
        thread::Builder::new().name("multicast".into()).spawn(move || speak(&socket, &casts, left))?;
        Ok(Self { queue, secret })
    }

    /// Queues a piece for sending.
    pub(crate) fn say(&self, cast: Cast) {
        // The controller never waits for the thread: a piece for which the queue has no room is lost, like a datagram
        // lost on its way. If the thread has ended, nodes receive nothing, which the engine notices.
        drop(self.queue.try_send(cast));
    }
}

fn speak(socket: &UdpSocket, casts: &Receiver<Cast>, left: impl Fn(u64)) {
    let mut number = 0;
    let mut due = Instant::now();
    while let Ok(cast) = casts.recv() {
        let sealed = Sealed::new(&cast);
        for datagram in sealed.datagrams(&mut number) {
            let now = Instant::now();
            due = due.max(now);
            let ahead = due - now;
            if ahead > PAUSE_LEAST {
                thread::sleep(ahead);
            }
            // A datagram that can't be sent is lost, like one lost on its way.
            let _ = socket.send(&datagram);
            due += Duration::from_nanos(datagram.len() as u64 * 1_000_000_000 / cast.rate.max(1));
        }
        if cast.last {
            left(cast.stream);
        }
    }
}

/// A node's multicast receiver. None inside: multicast is off, and nothing is received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ears(Option<Arc<Mutex<Streams>>>);

#[derive(Debug, Default)]
struct Streams(BTreeMap<u64, (ContentId, Assembler)>);

impl Ears {
    /// Joins the group and starts the receiving thread; `heard` is called with every complete piece, and returns false
    /// to end it.
    pub(crate) fn open(group: Group, heard: impl Fn(Chunk) -> bool + Send + 'static) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &group.address)?;
        sockopt::set_ip_add_membership(&socket, group.address.ip(), &group.interface)?;
        if sockopt::set_socket_recv_buffer_size_force(&socket, EAR_BYTES).is_err() {
            // Without the right to exceed the limit, the largest permitted size is used.
            sockopt::set_socket_recv_buffer_size(&socket, EAR_BYTES)?;
        }
        let socket = UdpSocket::from(socket);
        let streams = Arc::new(Mutex::new(Streams::default()));
        let theirs = Arc::clone(&streams);
        thread::Builder::new().name("multicast".into()).spawn(move || listen(&socket, &theirs, heard))?;
        Ok(Self(Some(streams)))
    }

    /// Begins to receive the file `content` from a stream, decrypting with `key`. Earlier streams of the same file are
    /// dropped.
    pub(crate) fn hear(&self, content: ContentId, stream: u64, key: &StreamKey) {
        let Some(streams) = &self.0 else { return };
        let Streams(all) = &mut *streams.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, (known, _)| *known != content);
        all.insert(stream, (content, Assembler::new(stream, key)));
        while all.len() > STREAMS_MAX {
            all.pop_first();
        }
    }

    /// Ends receiving the file `content` by multicast.
    pub(crate) fn forget(&self, content: ContentId) {
        if let Some(streams) = &self.0 {
            streams.lock().unwrap_or_else(PoisonError::into_inner).0.retain(|_, (known, _)| *known != content);
        }
    }
}

fn listen(socket: &UdpSocket, streams: &Mutex<Streams>, heard: impl Fn(Chunk) -> bool) {
    let mut datagram = [0; BYTES_MAX];
    loop {
        let length = match socket.recv(&mut datagram) {
            Ok(length) => length,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => {
                tracing::error!(error = %e, "multicast is not heard any more");
                return;
            }
        };
        let Some(stream) = datagram::stream_of(&datagram[..length]) else { continue };
        let mut streams = streams.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((content, assembler)) = streams.0.get_mut(&stream) else { continue };
        let piece = assembler.take(&mut datagram[..length]);
        let chunk = piece.map(|(at, bytes)| Chunk { to: NodeSet::new(), cascade: None, content: *content, at, bytes });
        drop(streams);
        if chunk.is_some_and(|chunk| !heard(chunk)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use squall_engine::control::Cast;
    use squall_model::config::Config;
    use squall_model::job::Digest;
    use squall_model::wire::fabric::{Bytes, ContentId, StreamKey};

    use super::{Ears, Group, MulticastSender};

    #[test]
    fn only_a_group_is_a_group() {
        let of = |text: &str| Group::of(&Config::from_toml(text).unwrap(), None);
        assert_eq!(of(""), Ok(None));
        let group = of("multicast = \"239.255.1.2:7000\"\nSlurmctldHost = \"127.0.0.1\"").unwrap().unwrap();
        assert_eq!((group.address.port(), group.interface), (7000, Ipv4Addr::LOCALHOST));
        for wrong in ["10.1.2.3:7000", "239.255.1.2", "239.255.1.2:0", "head:7000"] {
            assert!(of(&format!("multicast = \"{wrong}\"")).unwrap_err().contains(wrong));
        }
        assert!(of("multicast = \"239.255.1.2:7000\"\nmulticast_interface = \"eth0\"").is_err());
    }

    /// Runs on the loopback interface, where nothing is filtered.
    #[test]
    fn what_is_said_is_heard_by_all_who_have_the_key_and_by_nobody_else() {
        let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("239.255.77.77:{port}").parse().unwrap();
        let group = Group { address, interface: Ipv4Addr::LOCALHOST };
        let content = ContentId { owner: 1, digest: Digest::of(b"x") };
        let (key, other) = (StreamKey([1; 32]), StreamKey([2; 32]));
        let ear = |key: &StreamKey| {
            let (heard, chunks) = sync_channel(4096);
            let ears = Ears::open(group, move |chunk| heard.send(chunk).is_ok()).unwrap();
            ears.hear(content, 5, key);
            chunks
        };
        let (one, two, without) = (ear(&key), ear(&key), ear(&other));
        let (left, streams) = sync_channel(4096);
        let mouth = MulticastSender::open(group, move |stream| left.send(stream).unwrap_or_default()).unwrap();
        let bytes: Vec<u8> = (0..100_000).map(|at| (at / 3) as u8).collect();
        let cast = Cast { stream: 5, key, at: 77, bytes: Bytes(bytes.into()), rate: 50 << 20, last: true };
        // A single datagram may be lost.
        let heard = (0..20).find_map(|_| {
            mouth.say(cast.clone());
            let wait = Duration::from_millis(500);
            Some((one.recv_timeout(wait).ok()?, two.recv_timeout(wait).ok()?))
        });
        let (one, two) = heard.expect("it can be heard on the loopback interface");
        assert_eq!((one.at, &one.bytes, one.content), (77, &cast.bytes, content));
        assert_eq!(one, two);
        assert!(without.try_recv().is_err());
        assert_eq!(streams.recv(), Ok(5));
    }
}
