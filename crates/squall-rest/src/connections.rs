//! Connections: accepted within limits, with timeouts, so that no client can keep others out.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use squall_files::callers::Callers;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::{Instant, Sleep, timeout};

use crate::caller::Peer;
use crate::secure::Certificate;

/// Most connections at once.
const CONNECTIONS_MAX: usize = 8192;
/// Most connections at once of one address or one user of this machine.
const CONNECTIONS_OF_PEER_MAX: usize = 2048;
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

/// What connections are counted by: an address (None: the Unix socket), and the user on this machine (0: not of this
/// machine), so that no user of this machine can keep the others out.
type Origin = (Option<IpAddr>, u32);

/// Counts connections by where they come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seats(Arc<Mutex<HashMap<Origin, usize>>>);

/// A counted connection; dropping it ends the count.
struct Seat {
    seats: Seats,
    origin: Origin,
}

impl Seats {
    /// Counts a connection. None: there are as many as allowed.
    fn take(&self, origin: Origin) -> Option<Seat> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total: usize = all.values().sum();
        let own = all.entry(origin).or_default();
        if total >= CONNECTIONS_MAX || *own >= CONNECTIONS_OF_PEER_MAX {
            return None;
        }
        *own += 1;
        Some(Seat { seats: self.clone(), origin })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut all = self.seats.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = all.get_mut(&self.origin) {
            *own -= 1;
            if *own == 0 {
                all.remove(&self.origin);
            }
        }
    }
}

/// Accepts TCP connections, without end.
pub(crate) async fn accept_tcp(listener: TcpListener, certificate: Option<Certificate>, seats: Seats, router: Router) {
    let callers = Callers::open();
    loop {
        let Some((stream, peer)) = accepted(listener.accept().await).await else { continue };
        let address = peer.ip().to_canonical();
        let local = stream.local_addr().ok();
        let Some(seat) = seats.take(origin(&callers, local, peer)) else { continue };
        // Without this option an answer may wait for the client's acknowledgement of the one before.
        drop(stream.set_nodelay(true));
        let (router, acceptor) = (router.clone(), certificate.as_ref().map(Certificate::acceptor));
        tokio::spawn(async move {
            let peer = Peer::Address(address);
            match acceptor {
                None => serve(stream, peer, router).await,
                Some(acceptor) => {
                    if let Ok(Ok(stream)) = timeout(HEAD_TIME, acceptor.accept(stream)).await {
                        serve(stream, peer, router).await;
                    }
                }
            }
            drop(seat);
        });
    }
}

/// Accepts connections of this machine, without end.
pub(crate) async fn accept_unix(listener: UnixListener, seats: Seats, router: Router) {
    loop {
        let Some((stream, _)) = accepted(listener.accept().await).await else { continue };
        let Ok(user) = stream.peer_cred() else { continue };
        let Some(seat) = seats.take((None, user.uid())) else { continue };
        let Ok(socket) = stream.as_fd().try_clone_to_owned() else { continue };
        let router = router.clone();
        tokio::spawn(async move {
            serve(stream, Peer::Socket(Arc::new(socket)), router).await;
            drop(seat);
        });
    }
}

/// Returns what a connection over TCP is counted by.
fn origin(callers: &Callers, local: Option<SocketAddr>, peer: SocketAddr) -> Origin {
    let ends = local.and_then(|local| Some((v4(local)?, v4(peer)?)));
    // Only connections within this machine have both ends here; most of them are on one address.
    let within = ends.filter(|(local, peer)| peer.ip().is_loopback() || local.ip() == peer.ip());
    let uid = within.and_then(|(local, peer)| callers.uid(local, peer).ok().flatten());
    (Some(peer.ip().to_canonical()), uid.unwrap_or_default())
}

fn v4(address: SocketAddr) -> Option<SocketAddrV4> {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => Some(SocketAddrV4::new(ip, address.port())),
        IpAddr::V6(_) => None,
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

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: Peer, router: Router) {
    let service = tower_service(router, peer);
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

/// Returns the router as a service that adds to each request where it comes from.
fn tower_service(
    router: Router,
    peer: Peer,
) -> impl hyper::service::Service<
    Request<hyper::body::Incoming>,
    Response = axum::response::Response,
    Error = std::convert::Infallible,
    Future: Send,
> {
    let routes = TowerToHyperService::new(router);
    hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer.clone());
        hyper::service::Service::call(&routes, request)
    })
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
    use std::net::IpAddr;

    use squall_files::callers::Callers;

    use super::{CONNECTIONS_MAX, CONNECTIONS_OF_PEER_MAX, Seats, origin};

    #[test]
    fn connections_within_this_machine_count_for_their_user() {
        let own = Some(rustix::process::geteuid().as_raw());
        for address in ["127.0.0.1:0", "[::ffff:127.0.0.1]:0"] {
            let listener = std::net::TcpListener::bind(address).unwrap();
            let to = ("127.0.0.1", listener.local_addr().unwrap().port());
            let _caller = std::net::TcpStream::connect(to).unwrap();
            let (here, peer) = listener.accept().unwrap();
            let (of, uid) = origin(&Callers::open(), here.local_addr().ok(), peer);
            assert_eq!((of, Some(uid)), (Some([127, 0, 0, 1].into()), own), "{address}");
        }
        let far = "10.1.2.3:4".parse().unwrap();
        assert_eq!(origin(&Callers::open(), "10.1.2.4:5".parse().ok(), far), (Some(far.ip()), 0));
    }

    #[test]
    fn one_address_leaves_seats_for_others() {
        let seats = Seats::default();
        let from = |last: u8| Some(IpAddr::from([10, 0, 0, last]));
        let all: Vec<_> = (0..CONNECTIONS_MAX).map_while(|_| seats.take((from(1), 0))).collect();
        assert_eq!(all.len(), CONNECTIONS_OF_PEER_MAX);
        let other = seats.take((from(2), 0));
        assert!(other.is_some() && seats.take((None, 1000)).is_some() && seats.take((from(1), 0)).is_none());
        drop(all);
        assert!(seats.take((from(1), 0)).is_some());
    }
}
