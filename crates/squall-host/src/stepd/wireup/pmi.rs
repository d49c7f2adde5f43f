//! Sockets over which tasks use PMI.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::PollFlags;
use squall_engine::wireup::exchange::Exchange;
use squall_engine::wireup::pmi::{Naming, Pmi, PmiAct};
use squall_model::encoding::ByteBuf;
use squall_model::step::StepLaunch;
use squall_model::wire::peer::{Notice, PeerMessage, What};

use super::{Port, Waiter, Wireup, Word};
use crate::poller::Interest;

/// The step daemon's ends of the sockets over which tasks use PMI.
#[derive(Debug)]
pub(super) struct PmiTasks {
    pmi: Pmi,
    ends: Vec<End>,
}

#[derive(Debug)]
struct End {
    rank: u32,
    stream: UnixStream,
    unsent: Vec<u8>,
    over: bool,
}

impl PmiTasks {
    pub(super) fn new(launch: &StepLaunch) -> Self {
        let name = format!("{}.{}", launch.key.job, launch.key.step);
        Self { pmi: Pmi::new(name, &launch.layout, &launch.ranks()), ends: Vec::new() }
    }

    /// Makes a task's socket; returns the task's end.
    pub(super) fn add(&mut self, rank: u32) -> io::Result<OwnedFd> {
        let (stream, task) = UnixStream::pair()?;
        stream.set_nonblocking(true)?;
        self.ends.push(End { rank, stream, unsent: Vec::new(), over: false });
        Ok(task.into())
    }

    pub(super) fn interests(&self) -> impl Iterator<Item = Interest<'_, Port>> {
        self.ends.iter().enumerate().map(|(at, end)| {
            let out = if end.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            Interest::new(Port::Pmi(at), end.stream.as_fd(), Some(PollFlags::IN | out))
        })
    }

    /// Handles a readable or writable socket of a task.
    pub(super) fn handle(&mut self, at: usize) -> Vec<PmiAct> {
        let mut acts = Vec::new();
        let Some(end) = self.ends.get_mut(at) else { return acts };
        end.flush();
        let mut bytes = [0; 4096];
        match end.stream.read(&mut bytes) {
            Ok(0) => end.over = true,
            Ok(n) => self.pmi.hear(end.rank, &bytes[..n], &mut acts),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => end.over = true,
        }
        acts
    }

    /// Ends PMI's barrier, with the collected data or a failure.
    pub(super) fn gathered(&mut self, result: Result<&[u8], ()>) -> Vec<PmiAct> {
        let mut acts = Vec::new();
        self.pmi.gathered(result, &mut acts);
        acts
    }

    /// Passes on the answer to a task's naming request: the value, None for a name that is not published, or a failure.
    pub(super) fn named(&mut self, rank: u32, result: Result<Option<&str>, ()>) -> Vec<PmiAct> {
        let mut acts = Vec::new();
        self.pmi.named(rank, result, &mut acts);
        acts
    }

    fn send(&mut self, rank: u32, bytes: &[u8]) {
        if let Some(end) = self.ends.iter_mut().find(|end| end.rank == rank && !end.over) {
            end.unsent.extend_from_slice(bytes);
            end.flush();
        }
    }

    fn shut(&mut self, rank: u32) {
        self.ends.iter_mut().filter(|end| end.rank == rank).for_each(|end| end.over = true);
    }

    /// Removes sockets that have ended. The indexes of other sockets are different afterwards.
    pub(super) fn sweep(&mut self) {
        self.ends.retain(|end| !end.over);
    }
}

impl End {
    fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.unsent.clear(),
            }
        }
    }
}

impl Wireup {
    pub(super) fn do_pmi(&mut self, acts: Vec<PmiAct>) {
        for act in acts {
            match act {
                PmiAct::Send { rank, bytes } => self.pmi.send(rank, &bytes),
                PmiAct::Barrier(data) => {
                    let everybody = Exchange::everybody(&self.exchange);
                    self.join(Waiter::Pmi, What::Barrier, everybody, data);
                }
                PmiAct::Joined(rank) => self.greeted(rank),
                PmiAct::Finalized(rank) => self.finalized(rank),
                PmiAct::Abort { rank, code, text } => self.abort_by(rank, code, &text),
                PmiAct::Name { rank, naming } => self.name(rank, naming),
                PmiAct::Spawn(rank) => self.refuse_spawn(rank),
                PmiAct::Broken { rank, text } => {
                    self.words.push(Word::Notice(format!("task {rank} says over PMI what nobody understands: {text}")));
                    self.pmi.shut(rank);
                }
            }
        }
    }

    /// Carries out a task's naming request. PMI's names are kept with PMIx's published data, under a prefix.
    fn name(&mut self, rank: u32, naming: Naming) {
        let key = |service: String| format!("PMI {service}");
        self.consult(Waiter::Name(rank), |ticket| match naming {
            Naming::Publish { service, port } => {
                let notice = Notice { owner: rank, key: key(service), value: ByteBuf::from(port) };
                PeerMessage::Post { ticket, notices: vec![notice] }
            }
            Naming::Unpublish(service) => PeerMessage::Withdraw { ticket, owner: rank, keys: vec![key(service)] },
            Naming::Lookup(service) => PeerMessage::Find { ticket, keys: vec![key(service)], wait: false },
        });
    }

    /// Passes on the answer to a naming request of a task that uses PMI.
    pub(super) fn named(&mut self, rank: u32, result: Result<&[Notice], ()>) {
        let port = result.map(|found| found.first().and_then(|notice| std::str::from_utf8(&notice.value).ok()));
        let acts = self.pmi.named(rank, port);
        self.do_pmi(acts);
    }

    /// Ends the step as a task has asked for (MPI_Abort).
    pub(super) fn abort_by(&mut self, rank: u32, code: i32, text: &str) {
        // Text that Open MPI sends if there is none.
        let text = if ["", "N/A"].contains(&text) { String::new() } else { format!(": {}", text.trim_end()) };
        let shown = u8::try_from(code & 0xff).ok().filter(|&code| code != 0).unwrap_or(1);
        self.abort(shown, format!("task {rank} called MPI_Abort with code {code}{text}"));
    }
}
