//! Connections: accepted within limits, with timeouts, so that no client can keep others out.

use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, header};
use http_body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use squall_files::callers::Callers;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, Sleep, timeout};

use crate::caller::{Peer, Visit};
use crate::seats::{Origin, Seat, Seats};
use crate::secure::Certificate;

/// Time within which a client must send the head of its next request, and do the TLS handshake.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// Time after which a connection ends if the client takes nothing of an answer.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// Time in which the rest of a request is read that was answered before it had come, and most bytes of it.
const LINGER_TIME: Duration = Duration::from_secs(5);
const LINGER_BYTES_MAX: usize = 16 << 20;
/// Bytes of that read at once.
const LINGER_PIECE_BYTES: usize = 16 << 10;
/// Most header fields of a request.
const HEADERS_MAX: usize = 100;
/// Most bytes of a request's head, and of what is buffered of a connection.
const BUFFER_BYTES: usize = 64 << 10;
/// Type of an answer that goes on without end. Its listeners are counted by themselves.
const STREAM: &[u8] = b"text/event-stream";

/// Accepts TCP connections, without end.
pub(crate) async fn accept_tcp(listener: TcpListener, certificate: Option<Certificate>, seats: Seats, router: Router) {
    let callers = Callers::open();
    loop {
        let Some((stream, peer)) = accepted(listener.accept().await).await else { continue };
        let (seat, ended) = seats.take(Origin::of(&callers, stream.local_addr().ok(), peer));
        // Without this option an answer may wait for the client's acknowledgement of the one before.
        drop(stream.set_nodelay(true));
        let (router, acceptor) = (router.clone(), certificate.as_ref().map(Certificate::acceptor));
        let visitor = (Peer::Address(peer.ip().to_canonical()), seat);
        tokio::spawn(until(ended, async move {
            match acceptor {
                None => serve(stream, visitor, router).await,
                Some(acceptor) => {
                    if let Ok(Ok(stream)) = timeout(HEAD_TIME, acceptor.accept(stream)).await {
                        serve(stream, visitor, router).await;
                    }
                }
            }
        }));
    }
}

/// Accepts connections of this machine, without end.
pub(crate) async fn accept_unix(listener: UnixListener, seats: Seats, router: Router) {
    loop {
        let Some((stream, _)) = accepted(listener.accept().await).await else { continue };
        let Ok(user) = stream.peer_cred() else { continue };
        let (seat, ended) = seats.take(Origin::User(user.uid()));
        let Ok(socket) = stream.as_fd().try_clone_to_owned() else { continue };
        tokio::spawn(until(ended, serve(stream, (Peer::Socket(Arc::new(socket)), seat), router.clone())));
    }
}

/// Serves a connection until others need its seat.
async fn until(ended: oneshot::Receiver<()>, serving: impl Future<Output = ()>) {
    tokio::select! {
        () = serving => {}
        _ = ended => {}
    }
}

async fn accepted<T>(result: io::Result<T>) -> Option<T> {
    match result {
        Ok(connection) => Some(connection),
        Err(e) => {
            tracing::error!(error = %e, "cannot accept a connection");
            tokio::time::sleep(Duration::from_millis(50)).await;
            None
        }
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    visitor: (Peer, Arc<Seat>),
    router: Router,
) {
    let service = tower_service(router, visitor);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_headers(HEADERS_MAX).max_buf_size(BUFFER_BYTES);
    // An error ends this connection only.
    let served = builder.serve_connection(TokioIo::new(Patient::new(stream)), service).without_shutdown().await;
    if let Ok(parts) = served {
        linger(parts.io.into_inner()).await;
    }
}

/// Closes a connection so that its last answer arrives. If bytes of the request were left unread, such as a body that is
/// refused for its size, the kernel would reset the connection, and the client would lose an answer that it has.
async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let read_on = async {
        stream.shutdown().await?;
        let (mut piece, mut left) = (vec![0; LINGER_PIECE_BYTES], LINGER_BYTES_MAX);
        loop {
            let length = stream.read(&mut piece).await?;
            if length == 0 || length > left {
                return io::Result::Ok(());
            }
            left -= length;
        }
    };
    drop(timeout(LINGER_TIME, read_on).await);
}

/// Returns the router as a service that adds to each request where it comes from, and to each answer the turn of the user
/// whom it is for.
fn tower_service(
    router: Router,
    (peer, seat): (Peer, Arc<Seat>),
) -> impl hyper::service::Service<
    Request<hyper::body::Incoming>,
    Response = axum::response::Response,
    Error = Infallible,
    Future: Send,
> {
    let routes = TowerToHyperService::new(router);
    hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        let visit = Visit::new(peer.clone(), Some(Arc::clone(&seat)));
        request.extensions_mut().insert(visit.clone());
        let answer = hyper::service::Service::call(&routes, request);
        async move {
            let answer = answer.await?;
            let is_stream = answer.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes() == STREAM);
            Ok(match visit.turn().filter(|_| !is_stream) {
                Some(turn) => answer.map(|body| Body::new(PendingAnswer { body, piece: Bytes::new(), _turn: turn })),
                None => answer,
            })
        }
    })
}

/// An answer that takes its user's turn until it is sent: answers that a user asks for and does not take are few. It is
/// passed on in small pieces, so that no more than some of these are in the connection when the turn ends.
struct PendingAnswer {
    body: Body,
    /// Rest of a piece of `body`.
    piece: Bytes,
    _turn: Arc<OwnedSemaphorePermit>,
}

impl http_body::Body for PendingAnswer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.piece.is_empty() {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) => self.piece = piece,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => return other,
            }
        }
        let length = self.piece.len().min(BUFFER_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.piece.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.piece.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, mut hint) = (self.piece.len() as u64, self.body.size_hint());
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

/// A stream of which writing fails if the peer takes nothing for `WRITE_TIME`.
struct Patient<S> {
    stream: S,
    deadline: Pin<Box<Sleep>>,
    /// Whether a write waits for the peer.
    waits: bool,
}

impl<S> Patient<S> {
    fn new(stream: S) -> Self {
        Self { stream, deadline: Box::pin(tokio::time::sleep(WRITE_TIME)), waits: false }
    }

    /// Passes the result of a write on, or fails if the peer has not taken anything for too long.
    fn checked<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.waits = false;
            return result;
        }
        if !self.waits {
            self.waits = true;
            self.deadline.as_mut().reset(Instant::now() + WRITE_TIME);
        }
        match self.deadline.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.checked(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.checked(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.checked(cx, shut)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.checked(cx, written)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::{Body, Bytes};
    use http_body_util::BodyExt;
    use tokio::sync::Semaphore;

    use super::{BUFFER_BYTES, PendingAnswer};

    // Regression test of attack B3: answers that are not read filled the memory.
    #[tokio::test]
    async fn b3_an_answer_takes_its_users_turn_until_it_is_sent() {
        let turns = Arc::new(Semaphore::new(1));
        let turn = Arc::new(Arc::clone(&turns).acquire_owned().await.unwrap());
        let text = "x".repeat(3 * BUFFER_BYTES + 1);
        let mut body = Body::new(PendingAnswer { body: Body::from(text.clone()), piece: Bytes::new(), _turn: turn });
        let mut sent = Vec::new();
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() <= BUFFER_BYTES && turns.available_permits() == 0);
            sent.extend_from_slice(&piece);
            assert_eq!(http_body::Body::size_hint(&body).exact(), Some((text.len() - sent.len()) as u64));
        }
        assert_eq!(sent, text.as_bytes());
        drop(body);
        assert_eq!(turns.available_permits(), 1);
    }
}
