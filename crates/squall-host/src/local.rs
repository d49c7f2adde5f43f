//! Unix streams for daemons, with fewer wake-ups than tokio's. A tokio stream is woken whenever the peer has read
//! something, as there is room to write again: with short messages, that is twice as often as anything arrives. These
//! streams are woken by arriving bytes, and by room only while a write is waiting for it.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, Shutdown, recv, recvmsg, send, shutdown,
};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use crate::sys::watch::watch;

/// The receiving half of a Unix stream.
#[derive(Debug)]
pub(crate) struct Reader(Arc<AsyncFd<OwnedFd>>);

/// The sending half of a Unix stream. Dropping it shuts the stream down for writing, so that the peer sees its end.
#[derive(Debug)]
pub(crate) struct Writer {
    stream: Arc<AsyncFd<OwnedFd>>,
    /// The stream, registered with the runtime to wait for room to write. None: no write has had to wait so far.
    room: Option<AsyncFd<OwnedFd>>,
}

/// Splits a connection into its halves.
pub(crate) fn split(stream: tokio::net::UnixStream) -> io::Result<(Reader, Writer)> {
    let stream = Arc::new(watch(stream.into_std()?.into(), Interest::READABLE)?);
    Ok((Reader(Arc::clone(&stream)), Writer { stream, room: None }))
}

/// Writes without waiting what fits into the kernel's buffer; may be used while the [`Writer`] has nothing to write.
#[derive(Debug)]
pub(crate) struct Direct(Arc<AsyncFd<OwnedFd>>);

impl Writer {
    /// Returns a handle for writing without waiting.
    pub(crate) fn direct(&self) -> Direct {
        Direct(Arc::clone(&self.stream))
    }
}

impl Direct {
    /// Writes as much as fits now; returns the number of bytes written.
    pub(crate) fn write(&self, bytes: &[u8]) -> usize {
        // An error shows again when the rest is written by the [`Writer`].
        send(self.0.get_ref(), bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).unwrap_or(0)
    }
}

impl Reader {
    /// Receives one byte that comes with a file descriptor, and returns the descriptor. Err of kind `InvalidData`: none
    /// came with it.
    pub(crate) async fn descriptor(&self) -> io::Result<OwnedFd> {
        loop {
            let mut ready = self.0.readable().await?;
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0];
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            match recvmsg(self.0.get_ref(), &mut [IoSliceMut::new(&mut byte)], &mut control, flags) {
                Ok(_) => {
                    let descriptors = control.drain().filter_map(|message| match message {
                        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                        _ => None,
                    });
                    return descriptors.flatten().next().ok_or_else(|| io::ErrorKind::InvalidData.into());
                }
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl AsyncRead for Reader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let wanted = into.remaining();
            match recv(self.0.get_ref(), into.initialize_unfilled(), RecvFlags::DONTWAIT) {
                Ok((length, _)) => {
                    if 0 < length && length < wanted {
                        // The buffer was drained: the next wake-up comes with new bytes.
                        ready.clear_ready();
                    }
                    into.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
    }
}

impl AsyncWrite for Writer {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { stream, room } = &mut *self;
        loop {
            match send(stream.get_ref(), bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(length) => {
                    *room = None;
                    return Poll::Ready(Ok(length));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if room.is_none() {
                        *room = Some(watch(stream.get_ref().try_clone()?, Interest::WRITABLE)?);
                    }
                    if let Some(room) = room {
                        ready!(room.poll_write_ready(cx))?.clear_ready();
                    }
                }
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(shutdown(self.stream.get_ref(), Shutdown::Write).map_err(io::Error::from))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Fails only if the peer has closed the stream already.
        let _ = shutdown(self.stream.get_ref(), Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::split;

    /// Sends more than any socket buffer holds, in both directions at once, with both kinds of stream.
    #[tokio::test]
    async fn what_finds_no_room_goes_later_and_the_end_is_heard() {
        const BYTES: usize = 8 << 20;
        let (here, there) = UnixStream::pair().unwrap();
        let ((mut reader, mut writer), (mut far_reader, mut far_writer)) = (split(here).unwrap(), there.into_split());
        let sent: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
        let (mut heard, mut far_heard) = (Vec::new(), Vec::new());
        let write = async {
            writer.write_all(&sent).await.unwrap();
            drop(writer);
        };
        let far_write = async {
            far_writer.write_all(&sent).await.unwrap();
            drop(far_writer);
        };
        let ((), (), read, far_read) =
            tokio::join!(write, far_write, reader.read_to_end(&mut heard), far_reader.read_to_end(&mut far_heard));
        assert_eq!((read.unwrap(), far_read.unwrap()), (BYTES, BYTES));
        assert!(heard == sent && far_heard == sent);
    }
}
