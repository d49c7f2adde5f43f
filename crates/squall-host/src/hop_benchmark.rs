//! Measures the cost of a hop: two threads act as two daemons, each with its own runtime, over the streams that daemons
//! use; and the cost of a signed start.

use std::io;
use std::time::{Duration, Instant};

use squall_engine::fabric::proof::{self, Pinned};
use squall_files::place::Place;
use squall_model::encoding::ByteBuf;
use squall_model::id::{Epoch, NodeId, StepKey};
use squall_model::set::NodeSet;
use squall_model::step::JobFacts;
use squall_model::wire::fabric::{Parcel, Put};
use squall_model::wire::node::Down;
use squall_model::wire::sealed::Sealed;
use tokio::net::{TcpListener, UnixStream};

use crate::hop::{self, Reader, Writer};
use crate::link;
use crate::noise::KeyPair;
use crate::signing::{Known, Signer};
use crate::strangers::Strangers;

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
                        let strangers = Strangers::new(1);
                        for _ in 0..MEETINGS {
                            let (stream, address) = listener.accept().await?;
                            let (stranger, _) = strangers.enter(address.ip());
                            let (mut reader, mut writer, _) = hop::answer(stream, &far, &stranger).await?;
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

/// Measured cost of the controller's signature.
#[derive(Clone, Copy, Debug)]
pub struct SigningCost {
    /// Time to encode and sign the starts of a flush, microseconds for each: the median.
    pub sign_us: f64,
    /// Time in which a node checks a start that comes alone, with its own signature, microseconds: the median and the
    /// 99th percentile.
    pub check_us: (f64, f64),
}

/// Signs `rounds` flushes of `starts` starts, each for another node, and checks one of each flush.
pub fn signed(starts: u32, rounds: usize) -> io::Result<SigningCost> {
    let dir = std::env::temp_dir().join(format!("squall-trial-{}", std::process::id()));
    let signer = Signer::of(&KeyPair::generate()?);
    let known = Known::of(&Place::at(&dir)?, None)?;
    known.learn(Some(signer.key()));
    let pinned = Pinned(Some(std::sync::Arc::new(known)));
    let start = |node: u32, seq: u64| {
        let to: NodeSet = [NodeId(node)].into_iter().collect();
        let facts =
            JobFacts { key: StepKey::default(), ids: to.clone(), cluster: "trial".into(), ..JobFacts::default() };
        let messages = vec![Down::StartJob { facts: facts.into(), batch: None }];
        let parcel = Parcel::of(messages, Some(to.clone()));
        Put { epoch: Epoch(1), seq, to, asks: Vec::new(), parcel: Sealed::Open(parcel.into()), proof: None }
    };
    let (mut signing, mut checking) = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
    for round in 0..rounds as u64 {
        let numbers = (0..starts).map(|node| (node, round * u64::from(starts) + u64::from(node)));
        let mut puts: Vec<Put> = numbers.map(|(node, seq)| start(node, seq)).collect();
        let begin = Instant::now();
        proof::prove(&signer, &mut puts);
        signing.push(begin.elapsed() / starts.max(1));
        let begin = Instant::now();
        let checked = puts.first().map(|put| proof::check(&pinned, put, Some(NodeId(0)), "n0"));
        checking.push(begin.elapsed());
        if !matches!(checked, Some(Ok(_))) {
            return Err(io::Error::other("a signed start is not taken"));
        }
    }
    std::fs::remove_dir_all(dir)?;
    let check_us = (quantile(&mut checking, 50), quantile(&mut checking, 99));
    Ok(SigningCost { sign_us: quantile(&mut signing, 50), check_us })
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
