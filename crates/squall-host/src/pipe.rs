//! The stream between a step daemon and its `srun`: a Unix socket on one machine; TCP with Noise between machines,
//! with the cookie of the launch as secret. Reading and writing do not block.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::noise::{self, HANDSHAKE_BYTES_MAX, Handshake, LENGTH_BYTES, Opener, Sealer};

/// Bytes read at once: with the beginning of a record before them they hold less than [`ROOM_BYTES`] of plain bytes.
const READ_BYTES: usize = 16 << 10;
/// Buffer size with which one read returns all decrypted bytes.
pub const ROOM_BYTES: usize = 64 << 10;
/// Buffer size for reading on one machine, enough for most messages.
const LOCAL_ROOM_BYTES: usize = 4 << 10;
/// Most encrypted bytes that may be queued for sending.
const UNSENT_BYTES_MAX: usize = 1 << 20;
/// Plain bytes that are encrypted at once.
const WRITE_BYTES: usize = 256 << 10;

/// Interval between TCP keepalive probes to a silent machine.
const PROBE: Duration = Duration::from_secs(10);
/// Number of unanswered probes after which a connection counts as broken.
const PROBES: u32 = 12;

/// Turns on keepalive: the TCP connection breaks when the other machine has been silent for two minutes, even if nothing
/// is sent.
pub(crate) fn keep_alive(stream: &impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_keepidle(stream, PROBE)?;
    sockopt::set_tcp_keepintvl(stream, PROBE)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    Ok(sockopt::set_socket_keepalive(stream, true)?)
}

/// One end of the stream between a step daemon and its `srun`.
#[derive(Debug)]
pub struct Pipe(Transport);

#[derive(Debug)]
enum Transport {
    Local(UnixStream),
    Sealed(Box<SealedStream>),
}

#[derive(Debug)]
struct SealedStream {
    stream: TcpStream,
    stage: Stage,
    /// Buffer for reading from the stream.
    room: Box<[u8]>,
    /// Received bytes, still encrypted.
    heard: Vec<u8>,
    /// Decrypted bytes; those before `taken` were handed over.
    plain: Vec<u8>,
    taken: usize,
    /// Plain bytes written before the handshake was complete.
    early: Vec<u8>,
    /// Encrypted records; bytes before `sent` were sent.
    unsent: Vec<u8>,
    sent: usize,
}

#[derive(Debug)]
enum Stage {
    Meeting(Handshake),
    /// This end has sent its handshake, and waits for the answer.
    Calling(Handshake),
    Open(Sealer, Opener),
    Broken,
}

impl Pipe {
    /// Makes an end of the stream from a Unix socket.
    pub fn local(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self(Transport::Local(stream)))
    }

    /// Makes the end of an `srun` from an accepted connection. It works only if the peer, whichever it is, has the same
    /// cookie.
    pub fn called(stream: TcpStream, cookie: [u8; 16]) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self::sealed(stream, Stage::Meeting(Handshake::answer_with(cookie)?)))
    }

    /// Connects a step daemon to its `srun`; waits until the peer has proven that it has the cookie.
    pub fn call(address: &str, cookie: [u8; 16], patience: Duration) -> io::Result<Self> {
        let until = Instant::now() + patience;
        let mut failed = io::Error::from(ErrorKind::AddrNotAvailable);
        for address in address.to_socket_addrs()? {
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            match TcpStream::connect_timeout(&address, left).and_then(|stream| Self::meet(stream, cookie, left)) {
                Err(e) => failed = e,
                met => return met,
            }
        }
        Err(failed)
    }

    /// Like `call`, but does not wait for the peer to prove that it has the cookie: bytes written before are queued.
    pub fn dial(address: &str, cookie: [u8; 16], patience: Duration) -> io::Result<Self> {
        let mut failed = io::Error::from(ErrorKind::AddrNotAvailable);
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, patience) {
                Err(e) => failed = e,
                Ok(mut stream) => {
                    stream.set_nodelay(true)?;
                    let mut handshake = Handshake::call_with(cookie)?;
                    stream.write_all(&handshake.write()?)?;
                    stream.set_nonblocking(true)?;
                    return Ok(Self::sealed(stream, Stage::Calling(handshake)));
                }
            }
        }
        Err(failed)
    }

    /// Returns the address of this end, if the peer may be on another machine (TCP).
    pub fn own_address(&self) -> Option<IpAddr> {
        match &self.0 {
            Transport::Local(_) => None,
            Transport::Sealed(sealed) => sealed.stream.local_addr().ok().map(|address| address.ip()),
        }
    }

    /// Whether the stream is TCP. Then the kernel discards unsent bytes some time after this end is closed.
    pub fn is_remote(&self) -> bool {
        matches!(self.0, Transport::Sealed(_))
    }

    /// Turns on keepalive: the link breaks when the other machine has been silent for two minutes, even if nothing is
    /// sent.
    pub fn watch_peer(&self) -> io::Result<()> {
        let Transport::Sealed(sealed) = &self.0 else { return Ok(()) };
        keep_alive(&sealed.stream)
    }

    /// Shuts the stream down for reading and writing.
    pub fn hang_up(&self) {
        // Fails only if the link is broken already.
        drop(match &self.0 {
            Transport::Local(stream) => stream.shutdown(Shutdown::Both),
            Transport::Sealed(sealed) => sealed.stream.shutdown(Shutdown::Both),
        });
    }

    fn meet(mut stream: TcpStream, cookie: [u8; 16], patience: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        let mut handshake = Handshake::call_with(cookie)?;
        stream.write_all(&handshake.write()?)?;
        let mut head = [0; LENGTH_BYTES];
        stream.read_exact(&mut head)?;
        let length = noise::record_bytes(&head, HANDSHAKE_BYTES_MAX)?.ok_or(ErrorKind::InvalidData)?;
        let mut record = vec![0; length];
        stream.read_exact(&mut record)?;
        handshake.read(&record)?;
        let (sealer, opener) = handshake.finish()?;
        stream.set_read_timeout(None)?;
        stream.set_nonblocking(true)?;
        Ok(Self::sealed(stream, Stage::Open(sealer, opener)))
    }

    fn sealed(stream: TcpStream, stage: Stage) -> Self {
        let (heard, plain, early, unsent) = Default::default();
        let room = vec![0; READ_BYTES].into_boxed_slice();
        Self(Transport::Sealed(Box::new(SealedStream {
            stream,
            stage,
            room,
            heard,
            plain,
            taken: 0,
            early,
            unsent,
            sent: 0,
        })))
    }

    /// Returns how large a buffer for reading must be at least, bytes.
    pub(crate) fn room(&self) -> usize {
        match &self.0 {
            // What is left unread is still in the socket.
            Transport::Local(_) => LOCAL_ROOM_BYTES,
            Transport::Sealed(_) => ROOM_BYTES,
        }
    }

    /// Returns the number of written bytes that are not sent yet; `flush` sends them when the stream is writable.
    pub fn backlog(&self) -> usize {
        match &self.0 {
            Transport::Local(_) => 0,
            Transport::Sealed(sealed) => sealed.unsent.len() - sealed.sent,
        }
    }
}

impl SealedStream {
    /// Processes the first complete record. False: there is none.
    fn advance(&mut self) -> io::Result<bool> {
        let answers = matches!(self.stage, Stage::Meeting(_));
        match &mut self.stage {
            Stage::Meeting(handshake) | Stage::Calling(handshake) => {
                let Some(length) = noise::record_bytes(&self.heard, HANDSHAKE_BYTES_MAX)? else { return Ok(false) };
                let Some(record) = self.heard.get(LENGTH_BYTES..LENGTH_BYTES + length) else { return Ok(false) };
                handshake.read(record)?;
                self.heard.drain(..LENGTH_BYTES + length);
                if answers {
                    self.unsent.extend(handshake.write()?);
                }
                let (Stage::Meeting(handshake) | Stage::Calling(handshake)) =
                    std::mem::replace(&mut self.stage, Stage::Broken)
                else {
                    return Err(ErrorKind::InvalidData.into());
                };
                let (mut sealer, opener) = handshake.finish()?;
                sealer.seal(&std::mem::take(&mut self.early), &mut self.unsent)?;
                self.stage = Stage::Open(sealer, opener);
                self.send()?;
                Ok(true)
            }
            Stage::Open(_, opener) => {
                self.plain.clear();
                self.taken = 0;
                let Some(length) = opener.open(&self.heard, &mut self.plain)? else { return Ok(false) };
                self.heard.drain(..length);
                Ok(true)
            }
            Stage::Broken => Err(ErrorKind::InvalidData.into()),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut given = 0;
        loop {
            let more = (self.plain.len() - self.taken).min(into.len() - given);
            into[given..given + more].copy_from_slice(&self.plain[self.taken..self.taken + more]);
            (given, self.taken) = (given + more, self.taken + more);
            if given == into.len() || (self.taken == self.plain.len() && !self.advance()?) {
                if given > 0 {
                    return Ok(given);
                }
                match self.stream.read(&mut self.room)? {
                    0 if !self.heard.is_empty() => return Err(ErrorKind::UnexpectedEof.into()),
                    0 => return Ok(0),
                    length => self.heard.extend_from_slice(&self.room[..length]),
                }
            }
        }
    }

    fn write(&mut self, plain: &[u8]) -> io::Result<usize> {
        self.send()?;
        let plain = &plain[..plain.len().min(WRITE_BYTES)];
        if self.unsent.len() - self.sent + self.early.len() > UNSENT_BYTES_MAX {
            return Err(ErrorKind::WouldBlock.into());
        }
        match &mut self.stage {
            Stage::Meeting(_) | Stage::Calling(_) => self.early.extend_from_slice(plain),
            Stage::Open(sealer, _) => sealer.seal(plain, &mut self.unsent)?,
            Stage::Broken => return Err(ErrorKind::BrokenPipe.into()),
        }
        self.send()?;
        Ok(plain.len())
    }

    fn send(&mut self) -> io::Result<()> {
        while self.sent < self.unsent.len() {
            match self.stream.write(&self.unsent[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => self.sent += length,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => {
                    // What the peer sent before its end can still be read.
                    self.sent = self.unsent.len();
                    return Err(e);
                }
            }
        }
        self.unsent.clear();
        self.sent = 0;
        Ok(())
    }
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Transport::Local(stream) => stream.read(into),
            Transport::Sealed(sealed) => sealed.read(into),
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Transport::Local(stream) => stream.write(bytes),
            Transport::Sealed(sealed) => sealed.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Transport::Local(stream) => stream.flush(),
            Transport::Sealed(sealed) => sealed.send(),
        }
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Transport::Local(stream) => stream.as_fd(),
            Transport::Sealed(sealed) => sealed.stream.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::{Pipe, ROOM_BYTES};

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Reads until `length` bytes have arrived, or the end.
    fn hear(pipe: &mut Pipe, length: usize) -> std::io::Result<Vec<u8>> {
        let (mut heard, mut room, until) = (Vec::new(), vec![0; ROOM_BYTES], Instant::now() + PATIENCE);
        while heard.len() < length && Instant::now() < until {
            match pipe.read(&mut room) {
                Ok(0) => return Ok(heard),
                Ok(length) => heard.extend(&room[..length]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(e) => return Err(e),
            }
        }
        Ok(heard)
    }

    #[test]
    fn both_sides_hear_each_other_even_what_was_said_too_early() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let said: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7) as u8).collect();
        let expected = said.clone();
        let caller = std::thread::spawn(move || {
            let mut pipe = Pipe::call(&address, [3; 16], PATIENCE).unwrap();
            assert_eq!(hear(&mut pipe, 5).unwrap(), b"early");
            let mut at = 0;
            while at < said.len() || pipe.backlog() > 0 {
                match pipe.write(&said[at..]) {
                    Ok(length) => at += length,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                    Err(e) => panic!("{e}"),
                }
                pipe.flush().unwrap();
            }
        });
        let mut pipe = Pipe::called(listener.accept().unwrap().0, [3; 16]).unwrap();
        assert_eq!(pipe.write(b"early").unwrap(), 5);
        assert!(hear(&mut pipe, expected.len()).unwrap() == expected);
        caller.join().unwrap();
        assert_eq!(hear(&mut pipe, 1).unwrap(), b"");
    }

    #[test]
    fn who_does_not_know_the_cookie_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let caller = std::thread::spawn(move || Pipe::call(&address.to_string(), [4; 16], PATIENCE).is_err());
        let mut pipe = Pipe::called(listener.accept().unwrap().0, [3; 16]).unwrap();
        assert!(hear(&mut pipe, 1).is_err());
        drop(pipe);
        assert!(caller.join().unwrap());
        let mut stranger = TcpStream::connect(address).unwrap();
        let mut pipe = Pipe::called(listener.accept().unwrap().0, [3; 16]).unwrap();
        stranger.write_all(&[0xff; 500]).unwrap();
        assert!(hear(&mut pipe, 1).is_err());
    }
}
