//! The node daemon's connection to the controller: kept up, read, written.

use std::io;
use std::time::Duration;

use squall_model::codec::PROTOCOL_VERSION;
use squall_model::wire::node::DownFrame;
use squall_model::wire::{Hello, Proof, Role};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::Event;
use crate::link::{read, write};
use crate::logging::say;
use crate::place::{Place, SocketPath};

/// First and longest pause between two tries to reach the controller.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// How long the controller may take for its greeting.
const HELLO_WAIT: Duration = Duration::from_secs(10);

/// A connection; it is closed when this is dropped.
pub(super) struct Link {
    /// Counts connections.
    pub(super) number: u64,
    writer: UnboundedSender<Vec<u8>>,
    /// Dropped with the link: ends its reader.
    _alive: oneshot::Sender<()>,
}

impl Link {
    /// Sends a frame, after those sent before.
    pub(super) fn send(&self, frame: Vec<u8>) {
        // If the writer has ended, the reader tells of it.
        let _ = self.writer.send(frame);
    }
}

/// Connects to the controller, for ever.
pub(super) async fn keep(place: Place, name: String, events: UnboundedSender<Event>) {
    let mut pause = PAUSE.0;
    let mut complaint = String::new();
    for number in 1.. {
        match connect(&place, &name).await {
            Ok((reader, writer)) => {
                complaint.clear();
                pause = PAUSE.0;
                let (frames, queue) = unbounded_channel();
                let (alive, dropped) = oneshot::channel();
                let link = Link { number, writer: frames, _alive: alive };
                if events.send(Event::Linked(link)).is_err() {
                    return;
                }
                let end = converse(number, reader, writer, queue, dropped, &events).await;
                if let Err(e) = end {
                    say(&format!("the connection to the controller ended: {e}"));
                }
                if events.send(Event::Lost(number)).is_err() {
                    return;
                }
            }
            Err(e) => {
                let text = e.to_string();
                if complaint != text {
                    say(&format!("the controller can't be reached: {text}; trying on"));
                    complaint = text;
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

async fn connect(place: &Place, name: &str) -> io::Result<(BufReader<OwnedReadHalf>, OwnedWriteHalf)> {
    let path = SocketPath::new(&place.controller_socket())?;
    let stream = UnixStream::connect(path.as_path()).await?;
    let uid = stream.peer_cred()?.uid();
    if uid != 0 && uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!("user {uid} listens on the controller's socket")));
    }
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::with_capacity(64 << 10, reader);
    let hello = Hello {
        protocol: PROTOCOL_VERSION,
        cluster: String::new(),
        role: Role::Node(name.to_owned()),
        proof: Proof::Peer,
    };
    write(&mut writer, &hello).await?;
    let answer = tokio::time::timeout(HELLO_WAIT, read::<Hello>(&mut reader)).await;
    let answer = answer.map_err(|_| io::Error::other("it does not answer"))??;
    match answer {
        Some(Hello { protocol: PROTOCOL_VERSION, role: Role::Controller, .. }) => Ok((reader, writer)),
        Some(Hello { protocol, .. }) if protocol != PROTOCOL_VERSION => {
            Err(io::Error::other(format!("it speaks protocol {protocol}, this node {PROTOCOL_VERSION}")))
        }
        Some(_) => Err(io::Error::other("it is not a controller")),
        None => Err(io::Error::other("it hung up")),
    }
}

/// Reads and writes until either side ends it.
async fn converse(
    number: u64,
    mut reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    queue: UnboundedReceiver<Vec<u8>>,
    dropped: oneshot::Receiver<()>,
    events: &UnboundedSender<Event>,
) -> io::Result<()> {
    let listen = async {
        while let Some(frame) = read::<DownFrame>(&mut reader).await? {
            if events.send(Event::Frame(number, Box::new(frame))).is_err() {
                break;
            }
        }
        Ok(())
    };
    // The writer ends when the link is dropped and all is written.
    let speak = write_all(writer, queue);
    tokio::pin!(listen, speak);
    tokio::select! {
        end = &mut listen => end,
        end = &mut speak => end,
        _ = dropped => speak.await,
    }
}

async fn write_all(mut writer: OwnedWriteHalf, mut queue: UnboundedReceiver<Vec<u8>>) -> io::Result<()> {
    while let Some(mut bytes) = queue.recv().await {
        while let Ok(more) = queue.try_recv() {
            bytes.extend(more);
        }
        writer.write_all(&bytes).await?;
    }
    Ok(())
}
