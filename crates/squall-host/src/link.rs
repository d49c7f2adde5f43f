//! Frames on asynchronous streams, with the limits and patience that a daemon needs towards any peer.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use squall_model::codec::{self, HEADER_BYTES};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::timeout;

/// A frame that has begun must be complete within this time.
const FRAME_TIME: Duration = Duration::from_secs(30);
/// A peer that takes nothing for this long is given up.
const WRITE_TIME: Duration = Duration::from_mins(1);
/// Bytes written at once.
const WRITE_BYTES: usize = 64 << 10;
/// Room given to a frame before its bytes come: enough for a piece of a file. To longer ones it is given as bytes come, not
/// as a header promises.
const ROOM_BYTES_MAX: usize = 256 << 10;
/// What reading to the end of a frame wants behind it.
const BEHIND_BYTES: usize = 32;
/// Room of a queue that is kept for what comes next.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Room in the kernel for what is sent over one connection: a few pieces of a file, so that sender and receiver need
/// not wake each other for each.
const ROOM_BYTES: usize = 2 << 20;

/// Gives a connection room for pieces of files; with less it works too.
pub(crate) fn make_room(socket: &impl AsFd) {
    // If not, what there is must do.
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(socket, ROOM_BYTES);
}

/// Reads one frame; None: the peer closed between frames.
pub(crate) async fn read<T: DeserializeOwned>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<T>> {
    let mut head = [0; HEADER_BYTES];
    if stream.read(&mut head[..1]).await? == 0 {
        return Ok(None);
    }
    let rest = async {
        stream.read_exact(&mut head[1..]).await?;
        let (length, crc) = codec::header(head).map_err(malformed)?;
        let mut body = Vec::with_capacity(length.min(ROOM_BYTES_MAX) + BEHIND_BYTES);
        if stream.take(length as u64).read_to_end(&mut body).await? < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        codec::decode(&body, crc).map_err(malformed)
    };
    timeout(FRAME_TIME, rest).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?.map(Some)
}

/// Writes one frame.
pub(crate) async fn write<T: Serialize>(stream: &mut (impl AsyncWrite + Unpin), message: &T) -> io::Result<()> {
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

/// Bytes that may wait for all peers of this process together.
const WAITING_BYTES_MAX: usize = 2 << 30;

/// Bytes that wait for all peers.
static WAITING_BYTES: AtomicUsize = AtomicUsize::new(0);

/// What waits to be written to one peer. Bounded: a peer that doesn't read is cut off.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Notify,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Queue {
    /// Frames, one after the other: all that wait go at once.
    frames: Vec<u8>,
    /// Room for the next ones, while these are being written.
    room: Vec<u8>,
    /// Bytes that wait, and those that are being written.
    bytes: usize,
    closed: bool,
    idle: bool,
}

impl Queue {
    fn clear(&mut self) {
        WAITING_BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = 0;
        self.frames = Vec::new();
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Outgoing {
    /// An empty queue that holds at most so many bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let mut queue = Queue::default();
        queue.idle = true;
        let queue = Mutex::new(queue);
        Self(Arc::new(Shared { queue, changed: Notify::new(), bytes_max }))
    }

    /// Adds a message. Err: it can't be encoded; the connection should be closed.
    pub(crate) fn push<T: Serialize>(&self, message: &T) -> Result<(), codec::CodecError> {
        let mut queue = self.lock();
        if queue.closed {
            return Ok(());
        }
        let before = queue.frames.len();
        codec::encode(message, &mut queue.frames)?;
        let length = queue.frames.len() - before;
        let waiting = WAITING_BYTES.fetch_add(length, Ordering::Relaxed);
        queue.bytes += length;
        if queue.bytes > self.0.bytes_max || waiting + length > WAITING_BYTES_MAX {
            queue.clear();
            queue.closed = true;
        }
        drop(queue);
        if before == 0 {
            self.0.changed.notify_one();
        }
        Ok(())
    }

    /// Lets what is queued go out and then closes.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.0.changed.notify_one();
    }

    /// Whether all that was pushed has been handed to the kernel.
    pub(crate) fn is_drained(&self) -> bool {
        let queue = self.lock();
        queue.frames.is_empty() && queue.idle
    }

    /// Writes what is pushed until the queue is closed or the peer fails.
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
            // What was cleared meanwhile counts no more.
            let length = next.len().min(queue.bytes);
            queue.bytes -= length;
            WAITING_BYTES.fetch_sub(length, Ordering::Relaxed);
            if let Err(e) = sent {
                queue.clear();
                (queue.closed, queue.idle) = (true, true);
                return Err(e);
            }
            if next.capacity() <= KEPT_BYTES_MAX {
                next.clear();
                queue.room = next;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
