//! Measures the cost of a hop: two threads act as two daemons, each with its own runtime, over the streams that daemons
//! use.

use std::io;
use std::time::{Duration, Instant};

use squall_model::encoding::ByteBuf;
use tokio::net::{TcpListener, UnixStream};

use crate::hop::{self, Reader, Writer};
use crate::link;
use crate::noise::KeyPair;

/// Kind of stream between two daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// A Unix socket, as between daemons of one machine.
    Local,
    /// TCP with Noise encryption over the loopback interface, as between machines.
    Sealed,
}

/// Measured cost of a hop.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Round trip of a short frame, microseconds: the median, and the 99th percentile.
    pub round_trip_us: (f64, f64),
    /// Throughput of long frames sent one after the other.
    pub bytes_per_s: f64,
    /// Time to connect and authenticate, microseconds, the median; it is done once for a connection.
    pub meeting_us: f64,
}

/// Content of a short frame, bytes.
const SHORT_BYTES: usize = 64;
/// Number of connections that are made and timed.
const MEETINGS: usize = 50;

/// Frame of a measurement: whether it has to be answered, and its content.
type Frame = (bool, ByteBuf);

/// Measures a hop with `rounds` short frames, and `bytes` bytes in frames of `frame_bytes`.
pub fn hop(stream: Stream, rounds: usize, frame_bytes: usize, bytes: usize) -> io::Result<Cost> {
    let (near, far) = (KeyPair::generate()?, KeyPair::generate()?);
    let theirs = far.public;
    let path = std::env::temp_dir().join(format!("squall-trial-{}.sock", std::process::id()));
    let (ready, address) = std::sync::mpsc::sync_channel(1);
    let other = std::thread::spawn({
        let path = path.clone();
        move || {
            runtime()?.block_on(async {
                match stream {
                    Stream::Local => {
                        let listener = tokio::net::UnixListener::bind(&path)?;
                        drop(ready.send(String::new()));
                        for _ in 0..MEETINGS {
                            let (mut reader, mut writer) = hop::local(listener.accept().await?.0)?;
                            answer(&mut reader, &mut writer).await?;
                        }
                    }
                    Stream::Sealed => {
                        let listener = TcpListener::bind("127.0.0.1:0").await?;
                        drop(ready.send(listener.local_addr()?.to_string()));
                        for _ in 0..MEETINGS {
                            let (mut reader, mut writer, _) = hop::answer(listener.accept().await?.0, &far).await?;
                            answer(&mut reader, &mut writer).await?;
                        }
                    }
                }
                io::Result::Ok(())
            })
        }
    });
    let address = address.recv().map_err(io::Error::other)?;
    let cost = runtime()?.block_on(async {
        let mut meetings = Vec::with_capacity(MEETINGS);
        let mut last = None;
        for _ in 0..MEETINGS {
            drop(last.take());
            let start = Instant::now();
            let mut ends = match stream {
                Stream::Local => hop::local(UnixStream::connect(&path).await?)?,
                Stream::Sealed => hop::call(&address, &near, &theirs).await?,
            };
            exchange(&mut ends, SHORT_BYTES).await?;
            meetings.push(start.elapsed());
            last = Some(ends);
        }
        let mut ends = last.ok_or(io::ErrorKind::NotConnected)?;
        let mut trips = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let start = Instant::now();
            exchange(&mut ends, SHORT_BYTES).await?;
            trips.push(start.elapsed());
        }
        let (start, long) = (Instant::now(), (false, ByteBuf::from(vec![0x5a; frame_bytes])));
        for _ in 0..bytes / frame_bytes.max(1) {
            link::write(&mut ends.1, &long).await?;
        }
        exchange(&mut ends, SHORT_BYTES).await?;
        let bytes_per_s = bytes as f64 / start.elapsed().as_secs_f64();
        let round_trip_us = (quantile(&mut trips, 50), quantile(&mut trips, 99));
        io::Result::Ok(Cost { round_trip_us, bytes_per_s, meeting_us: quantile(&mut meetings, 50) })
    });
    let other = other.join().map_err(|_| io::Error::other("the other side panicked"))?;
    if stream == Stream::Local {
        std::fs::remove_file(path)?;
    }
    other.and(cost)
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

async fn answer(reader: &mut Reader, writer: &mut Writer) -> io::Result<()> {
    while let Some((asks, bytes)) = link::read::<Frame>(reader).await? {
        if asks {
            link::write(writer, &(false, bytes)).await?;
        }
    }
    Ok(())
}

async fn exchange((reader, writer): &mut (Reader, Writer), length: usize) -> io::Result<()> {
    link::write(writer, &(true, ByteBuf::from(vec![1; length]))).await?;
    link::read::<Frame>(reader).await?.map(drop).ok_or(io::ErrorKind::UnexpectedEof.into())
}

fn quantile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) * percent / 100).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::{Stream, hop};

    #[test]
    fn both_streams_can_be_measured() {
        for stream in [Stream::Local, Stream::Sealed] {
            let cost = hop(stream, 10, 10_000, 1_000_000).unwrap();
            assert!(cost.round_trip_us.0 > 0.0 && cost.bytes_per_s > 0.0 && cost.meeting_us > 0.0);
        }
    }
}
