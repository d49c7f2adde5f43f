//! The byte stream between two daemons: a Unix socket on one machine, TCP with Noise encryption between machines. Users
//! of the stream need not distinguish them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use squall_model::wire::join::PublicKey;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixStream, tcp};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::local;
use crate::noise::{self, HANDSHAKE_BYTES_MAX, Handshake, KeyPair, LENGTH_BYTES, Opener, RECORD_BYTES_MAX, Sealer};
use crate::pipe::keep_alive;
use crate::strangers::Stranger;

/// Time limit of a connection attempt, handshake included.
const MEETING_TIME: Duration = Duration::from_secs(5);
/// Most plain bytes that are encrypted at once, before any of them is sent.
const SEAL_BYTES: usize = 64 << 10;

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) enum Reader {
    /// Receives from this machine; the kernel identifies the peer.
    Local(BufReader<local::Reader>),
    /// Receives encrypted records from another machine; the peer's key identifies the peer.
    Sealed(Box<SealedReader>),
}

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) enum Writer {
    /// Sends to a process of this machine.
    Local(local::Writer),
    /// Sends to another machine, encrypted.
    Sealed(Box<SealedWriter>),
}

/// Decrypts records received by TCP.
#[derive(Debug)]
pub(crate) struct SealedReader {
    stream: tcp::OwnedReadHalf,
    opener: Opener,
    /// Received bytes: those from `begin` to `end` are not decrypted yet.
    sealed: Box<[u8]>,
    begin: usize,
    end: usize,
    /// Decrypted bytes: those from `taken` on are not handed over yet.
    plain: Vec<u8>,
    taken: usize,
}

/// Encrypts records and sends them by TCP.
#[derive(Debug)]
pub(crate) struct SealedWriter {
    stream: tcp::OwnedWriteHalf,
    sealer: Sealer,
    /// Encrypted records: the bytes before `sent` have been sent.
    sealed: Vec<u8>,
    sent: usize,
}

impl Reader {
    /// Receives one byte that comes with a file descriptor, and returns the descriptor. Only a peer on this machine can
    /// send one, and only before anything else that is not read yet.
    pub(crate) async fn descriptor(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Local(reader) if reader.buffer().is_empty() => reader.get_ref().descriptor().await,
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Returns both halves of a connection on this machine.
pub(crate) fn local(stream: UnixStream) -> io::Result<(Reader, Writer)> {
    let (reader, writer) = local::split(stream)?;
    Ok((Reader::Local(BufReader::new(reader)), Writer::Local(writer)))
}

/// Calls that may wait to be accepted, unless `net.core.somaxconn` is lower: all nodes of a cluster call at once when its
/// controller is back, and strangers call, too.
const WAITING_MAX: i32 = 4096;

/// Opens a TCP port, on one address or (None) on all; port 0: any that is free.
pub(crate) async fn listen(address: Option<IpAddr>, port: u16) -> io::Result<TcpListener> {
    let all = [IpAddr::from(Ipv6Addr::UNSPECIFIED), IpAddr::from(Ipv4Addr::UNSPECIFIED)];
    let addresses: Vec<SocketAddr> = match address {
        Some(address) => vec![(address, port).into()],
        // Where there is no IPv6, the IPv4 address is used.
        None => all.map(|address| (address, port).into()).to_vec(),
    };
    let failed = |e: io::Error| io::Error::new(e.kind(), format!("cannot listen on port {port}: {e}"));
    let listener = TcpListener::bind(&addresses[..]).await.map_err(failed)?;
    // Tokio's queue has 128 places. Calls beyond them are repeated by the kernel of the caller, a second later.
    rustix::net::listen(&listener, WAITING_MAX).map_err(|e| failed(e.into()))?;
    Ok(listener)
}

/// Connects to the daemon at `address` that has the key `theirs`.
pub(crate) async fn call(address: &str, own: &KeyPair, theirs: &PublicKey) -> io::Result<(Reader, Writer)> {
    let meet = async {
        match try_call(address, own, theirs, true).await {
            // A daemon of a release before this one hangs up at a mark.
            Err(e) if matches!(e.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
                try_call(address, own, theirs, false).await
            }
            met => met,
        }
    };
    timeout(MEETING_TIME, meet).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

async fn try_call(address: &str, own: &KeyPair, theirs: &PublicKey, marked: bool) -> io::Result<(Reader, Writer)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut handshake = Handshake::call(own, theirs)?;
    let mut first = handshake.write()?;
    if marked {
        noise::add_mark(&mut first, theirs);
    }
    stream.write_all(&first).await?;
    handshake.read(&record(&mut stream).await?)?;
    split(stream, handshake)
}

/// Does the handshake with a daemon that has connected; returns its key too. Calculates with keys on another thread,
/// and only if the caller knows this daemon's key, or few callers do not.
pub(crate) async fn answer(
    stream: TcpStream,
    own: &KeyPair,
    stranger: &Stranger,
) -> io::Result<(Reader, Writer, PublicKey)> {
    let (reader, writer, theirs, _) = answer_as_any(stream, std::slice::from_ref(own), stranger, false).await?;
    Ok((reader, writer, theirs))
}

/// Does the handshake with a daemon that has connected, as the owner of any of these keys; returns its key too, and the
/// one by which it has called this daemon. `all_mark`: every daemon of the cluster is of a release that marks its first
/// message. What has no mark is refused before any calculation with keys, but for a few.
pub(crate) async fn answer_as_any(
    mut stream: TcpStream,
    own: &[KeyPair],
    stranger: &Stranger,
    all_mark: bool,
) -> io::Result<(Reader, Writer, PublicKey, PublicKey)> {
    let meet = async {
        let first = first_record(&mut stream).await?;
        let marked = own.iter().find_map(|pair| Some((pair, noise::without_mark(&first, &pair.public)?.to_vec())));
        let (own, message) = match (marked, own.first()) {
            (Some((pair, message)), _) => (pair.clone(), message),
            (None, Some(pair)) if stranger.may_be_unmarked(all_mark) => (pair.clone(), first),
            _ => return Err(io::ErrorKind::PermissionDenied.into()),
        };
        stream.set_nodelay(true)?;
        let called = own.public;
        let calculate = move || -> io::Result<(Handshake, Vec<u8>)> {
            let mut handshake = Handshake::answer(&own)?;
            handshake.read(&message)?;
            let second = handshake.write()?;
            Ok((handshake, second))
        };
        let turn = stranger.turn().await?;
        let (handshake, second) = spawn_blocking(calculate).await.map_err(io::Error::other)??;
        drop(turn);
        let theirs = handshake.theirs().ok_or(io::ErrorKind::InvalidData)?;
        stream.write_all(&second).await?;
        let (reader, writer) = split(stream, handshake)?;
        Ok((reader, writer, theirs, called))
    };
    timeout(MEETING_TIME, meet).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Reads the first record of a handshake. Nothing follows it before it is answered, so that one system call is enough.
async fn first_record(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (mut bytes, mut filled) = ([0; LENGTH_BYTES + HANDSHAKE_BYTES_MAX], 0);
    loop {
        let read = stream.read(&mut bytes[filled..]).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        filled += read;
        let Some(length) = noise::record_bytes(&bytes[..filled], HANDSHAKE_BYTES_MAX)? else { continue };
        match filled.cmp(&(LENGTH_BYTES + length)) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => return Ok(bytes[LENGTH_BYTES..filled].to_vec()),
            std::cmp::Ordering::Greater => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Reads one record of a handshake; these are short.
async fn record(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = [0; LENGTH_BYTES];
    stream.read_exact(&mut head).await?;
    let length = noise::record_bytes(&head, HANDSHAKE_BYTES_MAX)?.ok_or(io::ErrorKind::InvalidData)?;
    let mut record = vec![0; length];
    stream.read_exact(&mut record).await?;
    Ok(record)
}

fn split(stream: TcpStream, handshake: Handshake) -> io::Result<(Reader, Writer)> {
    // A command that waits for hours sends nothing, and must notice when the other machine has lost its power.
    keep_alive(&stream)?;
    let (sealer, opener) = handshake.finish()?;
    let (read, write) = stream.into_split();
    let sealed = vec![0; 2 * (LENGTH_BYTES + RECORD_BYTES_MAX)].into_boxed_slice();
    let reader = SealedReader { stream: read, opener, sealed, begin: 0, end: 0, plain: Vec::new(), taken: 0 };
    let writer = SealedWriter { stream: write, sealer, sealed: Vec::new(), sent: 0 };
    Ok((Reader::Sealed(Box::new(reader)), Writer::Sealed(Box::new(writer))))
}

impl AsyncRead for SealedReader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.taken < this.plain.len() {
                let most = into.remaining().min(this.plain.len() - this.taken);
                into.put_slice(&this.plain[this.taken..this.taken + most]);
                this.taken += most;
                return Poll::Ready(Ok(()));
            }
            this.plain.clear();
            this.taken = 0;
            if let Some(length) = this.opener.open(&this.sealed[this.begin..this.end], &mut this.plain)? {
                this.begin += length;
                continue;
            }
            // After this, the rest of a record always fits behind its beginning.
            this.sealed.copy_within(this.begin..this.end, 0);
            this.end -= this.begin;
            this.begin = 0;
            let mut room = ReadBuf::new(&mut this.sealed[this.end..]);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut room))?;
            match room.filled().len() {
                0 if this.end > 0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                0 => return Poll::Ready(Ok(())),
                more => this.end += more,
            }
        }
    }
}

impl SealedWriter {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.sealed.len() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.sealed[self.sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.sent += sent,
            }
        }
        self.sealed.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SealedWriter {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, plain: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.poll_send(cx))?;
        let taken = plain.len().min(SEAL_BYTES);
        this.sealer.seal(&plain[..taken], &mut this.sealed)?;
        // Bytes that can't be sent now are sent by the next write, or the flush.
        match this.poll_send(cx) {
            Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(taken)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl AsyncRead for Reader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Local(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Sealed(stream) => Pin::new(&mut **stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Writer {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Local(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Sealed(stream) => Pin::new(&mut **stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Local(stream) => Pin::new(stream).poll_flush(cx),
            Self::Sealed(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Local(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Sealed(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::listen;

    /// attack-trial.md M5, live: a burst of strangers filled the kernel's queue, and calls of nodes waited for a second.
    #[test]
    fn a_burst_of_calls_finds_room() {
        const CALLS: usize = 600;
        let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        if most.trim().parse::<usize>().unwrap() < CALLS {
            eprintln!("skipped: net.core.somaxconn is lower");
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let listener = runtime.block_on(listen(Some([127, 0, 0, 1].into()), 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let call = |_| TcpStream::connect_timeout(&address, Duration::from_millis(900)).ok();
        assert_eq!((0..CALLS).filter_map(call).collect::<Vec<_>>().len(), CALLS);
    }
}
