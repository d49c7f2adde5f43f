//! Reads and writes frames on asynchronous streams, with size and time limits for untrusted peers.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use squall_model::codec::{self, HEADER_BYTES};
use squall_model::encoding::{Decoded, Encoded};
use squall_model::limits::FRAME_BYTES_MAX;
use squall_model::wire::Hello;
use squall_model::wire::client::{Answer, AnyRequest, Refusal};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::auth::{Account, Claim};
use crate::sys::heap;

/// Time within which a frame must be complete once it has begun.
const FRAME_TIME: Duration = Duration::from_secs(30);
/// Time limit for writing one piece of `WRITE_BYTES`; a peer that exceeds it is disconnected.
const WRITE_TIME: Duration = Duration::from_mins(1);
/// Bytes of one piece that is written within `WRITE_TIME`.
const WRITE_BYTES: usize = 64 << 10;
/// Time within which a client that is refused must send its request.
const DENIED_TIME: Duration = Duration::from_secs(10);
/// Longest greeting, bytes. A greeting consists of a name, a cluster and a proof.
const GREETING_BYTES_MAX: usize = 16 << 10;
/// Memory reserved for a frame before its bytes arrive: enough for a piece of a file. For longer frames it grows as
/// bytes arrive, whatever length the header gives.
const ROOM_BYTES_MAX: usize = 256 << 10;
/// Spare bytes behind a frame that tokio's `read_to_end` needs to see the end without growing the buffer.
const BEHIND_BYTES: usize = 32;
/// Greatest capacity of a written queue's buffer that is kept for reuse, bytes.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Size of the kernel's send buffer of a connection, bytes: a few pieces of a file, so that sender and receiver need
/// not wake each other for each piece.
const ROOM_BYTES: usize = 2 << 20;

/// Enlarges the send buffer of a connection for pieces of files. A smaller one works too, so errors are ignored.
pub(crate) fn make_room(socket: &impl AsFd) {
    // On an error the default size is used.
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(socket, ROOM_BYTES);
}

/// Reads one frame; None: the peer closed the stream between frames.
pub(crate) async fn read<T: Decoded>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<T>> {
    let read = read_frame(stream, FRAME_BYTES_MAX, async |_| ()).await?;
    Ok(read.map(|(message, ())| message))
}

/// Reads the greeting of a peer that is not authenticated yet; its length is limited to `GREETING_BYTES_MAX`. None: the
/// peer closed the stream.
pub(crate) async fn read_greeting(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Hello>> {
    let read = read_frame(stream, GREETING_BYTES_MAX, async |_| ()).await?;
    Ok(read.map(|(message, ())| message))
}

/// Reads the first request of a client that may not act, and refuses it.
pub(crate) async fn deny(
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    refusal: Refusal,
) -> io::Result<()> {
    let first = timeout(DENIED_TIME, read::<AnyRequest>(reader)).await;
    if first.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??.is_some() {
        write(writer, &Answer::Refused(refusal)).await?;
    }
    Ok(())
}

/// Reads one frame of a user, once the user's allowance of unprocessed bytes has room for it.
pub(crate) async fn read_of<T: Decoded>(
    stream: &mut (impl AsyncRead + Unpin),
    account: &Account,
) -> io::Result<Option<(T, Claim)>> {
    read_frame(stream, FRAME_BYTES_MAX, async |length| account.claim(length).await).await
}

/// Reads one frame, and returns its length, too. None: the peer closed the stream.
pub(crate) async fn read_sized<T: Decoded>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<(T, usize)>> {
    read_frame(stream, FRAME_BYTES_MAX, async |length| length).await
}

async fn read_frame<T: Decoded, P>(
    stream: &mut (impl AsyncRead + Unpin),
    most: usize,
    place: impl AsyncFnOnce(usize) -> P,
) -> io::Result<Option<(T, P)>> {
    let mut head = [0; HEADER_BYTES];
    if stream.read(&mut head[..1]).await? == 0 {
        return Ok(None);
    }
    let rest = async {
        stream.read_exact(&mut head[1..]).await?;
        let (length, crc) = codec::header(head).map_err(malformed)?;
        if length > most {
            return Err(malformed(codec::CodecError::TooLong(length)));
        }
        let place = place(length).await;
        let mut body = Vec::with_capacity(length.min(ROOM_BYTES_MAX) + BEHIND_BYTES);
        if stream.take(length as u64).read_to_end(&mut body).await? < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let message = codec::decode(&body, crc).map_err(malformed)?;
        gone(body.capacity());
        Ok((message, place))
    };
    timeout(FRAME_TIME, rest).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?.map(Some)
}

/// Writes a message as one frame.
pub(crate) async fn write<T: Encoded>(stream: &mut (impl AsyncWrite + Unpin), message: &T) -> io::Result<()> {
    let mut bytes = Vec::new();
    codec::encode(message, &mut bytes).map_err(malformed)?;
    send(stream, &bytes).await
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    for piece in bytes.chunks(WRITE_BYTES) {
        timeout(WRITE_TIME, stream.write_all(piece)).await.map_err(late)??;
    }
    timeout(WRITE_TIME, stream.flush()).await.map_err(late)?
}

fn malformed(e: codec::CodecError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, e)
}

/// Most bytes that may be queued for all users of this process together.
const WAITING_BYTES_MAX: usize = 2 << 30;

/// Bytes queued for all users of this process together.
static WAITING_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes of large buffers that were freed since memory was last returned to the system.
static GONE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Counts a freed buffer of `bytes` bytes, if it was large.
fn gone(bytes: usize) {
    if bytes > ROOM_BYTES_MAX {
        GONE_BYTES.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Whether enough memory was freed to return it to the system.
pub(crate) fn has_to_give() -> bool {
    const WORTH_IT: usize = 32 << 20;
    GONE_BYTES.load(Ordering::Relaxed) >= WORTH_IT
}

/// Returns memory to the system, if large buffers have freed much of it since the last time.
pub(crate) fn give_back() {
    if has_to_give() {
        GONE_BYTES.store(0, Ordering::Relaxed);
        heap::give_back();
    }
}

/// Queue of frames to be written to one peer. It is bounded: a peer that does not read is disconnected.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Notify,
    /// Notified when queued frames were written, so that there is room for others.
    taken: Notify,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Queue {
    /// The user whose allowance the queue counts against; None: the peer is a daemon, with a limit of its own.
    of: Option<Account>,
    /// Queued frames, one after the other; all are written together.
    frames: Vec<u8>,
    /// Empty buffer of the last write, reused for the next frames.
    room: Vec<u8>,
    /// Number of bytes queued or being written.
    bytes: usize,
    closed: bool,
    idle: bool,
}

impl Queue {
    fn clear(&mut self) {
        self.uncount(self.bytes);
        gone(self.frames.capacity());
        self.frames = Vec::new();
    }

    /// Counts `bytes` more in this queue. False: the queue, its user or this process then has more queued bytes than
    /// allowed.
    fn owe(&mut self, bytes: usize, bytes_max: usize) -> bool {
        self.bytes += bytes;
        let Some(user) = &self.of else { return self.bytes <= bytes_max };
        let waiting = WAITING_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
        user.owe(bytes) && waiting <= WAITING_BYTES_MAX
    }

    /// Counts `bytes` less in this queue, and for its user.
    fn uncount(&mut self, bytes: usize) {
        self.bytes -= bytes;
        if let Some(user) = &self.of {
            WAITING_BYTES.fetch_sub(bytes, Ordering::Relaxed);
            user.uncount(bytes);
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Outgoing {
    /// Makes an empty queue of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self::with(bytes_max, None)
    }

    /// Makes an empty queue that counts against a user's allowance of queued bytes.
    pub(crate) fn of(user: &Account) -> Self {
        Self::with(usize::MAX, Some(user.clone()))
    }

    fn with(bytes_max: usize, of: Option<Account>) -> Self {
        let mut queue = Queue::default();
        (queue.idle, queue.of) = (true, of);
        let queue = Mutex::new(queue);
        Self(Arc::new(Shared { queue, changed: Notify::new(), taken: Notify::new(), bytes_max }))
    }

    /// Whether so few bytes are queued that the next page of a long answer may be added.
    pub(crate) fn has_room(&self) -> bool {
        self.lock().bytes < ROOM_BYTES
    }

    /// Whether the queue is closed: nothing more can be added.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Waits until few bytes are queued, or the queue is closed.
    pub(crate) async fn room(&self) {
        loop {
            let taken = self.0.taken.notified();
            if self.has_room() || self.is_closed() {
                return;
            }
            taken.await;
        }
    }

    /// Queues a message. Err: it can't be encoded; the connection should be closed.
    pub(crate) fn push<T: Encoded>(&self, message: &T) -> Result<(), codec::CodecError> {
        let mut queue = self.lock();
        if queue.closed {
            return Ok(());
        }
        let before = queue.frames.len();
        codec::encode(message, &mut queue.frames)?;
        self.added(queue, before);
        Ok(())
    }

    /// Queues a message, and closes the connection if it can't be encoded.
    pub(crate) fn push_or_close<T: Encoded>(&self, message: &T) {
        if self.push(message).is_err() {
            self.close();
        }
    }

    /// Queues bytes of an encoded message, or its unsent remainder.
    pub(crate) fn push_bytes(&self, bytes: &[u8]) {
        let mut queue = self.lock();
        if !queue.closed {
            let before = queue.frames.len();
            queue.frames.extend_from_slice(bytes);
            self.added(queue, before);
        }
    }

    /// Counts the bytes queued behind the first `before`. If more is queued than allowed, the peer is disconnected.
    fn added(&self, mut queue: MutexGuard<'_, Queue>, before: usize) {
        let length = queue.frames.len() - before;
        if !queue.owe(length, self.0.bytes_max) {
            queue.clear();
            queue.closed = true;
        }
        drop(queue);
        if before == 0 {
            self.0.changed.notify_one();
        }
    }

    /// Closes the queue: what is queued is still written, but nothing can be added.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.0.changed.notify_one();
    }

    /// Whether all queued bytes have been passed to the kernel.
    pub(crate) fn is_drained(&self) -> bool {
        let queue = self.lock();
        queue.frames.is_empty() && queue.idle
    }

    /// Writes what is queued until the queue is closed or the peer fails.
    pub(crate) async fn pump(&self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        loop {
            let next = {
                let mut queue = self.lock();
                queue.idle = queue.frames.is_empty();
                if queue.idle && queue.closed {
                    return Ok(());
                }
                (!queue.idle).then(|| {
                    let room = std::mem::take(&mut queue.room);
                    std::mem::replace(&mut queue.frames, room)
                })
            };
            let Some(mut next) = next else {
                self.0.changed.notified().await;
                continue;
            };
            let sent = send(stream, &next).await;
            let mut queue = self.lock();
            // If the queue was cleared in between, its bytes are not counted any more.
            let length = next.len().min(queue.bytes);
            queue.uncount(length);
            self.0.taken.notify_one();
            if let Err(e) = sent {
                queue.clear();
                (queue.closed, queue.idle) = (true, true);
                return Err(e);
            }
            if next.capacity() <= KEPT_BYTES_MAX {
                next.clear();
                queue.room = next;
            } else {
                gone(next.capacity());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
