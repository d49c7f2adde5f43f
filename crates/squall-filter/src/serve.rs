//! A filter process: loads what it is told to, and answers jobs until its input ends.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Signal, getpgrp, getpid, kill_current_process_group};
use rustix::stdio::{dup2_stdin, dup2_stdout, stdin, stdout};
use squall_model::codec;
use squall_model::wire::filter::{FilterScript, FromFilter, Modification, Submission, ToFilter, Verdict};

use crate::folder::Folder;
use crate::program::Program;
use crate::script::Script;

/// Time in which a process that has nothing to do ends by itself when its input has ended.
const GRACE: Duration = Duration::from_millis(50);

/// A filter that is loaded.
pub struct Filter(Kind);

enum Kind {
    Script(Box<Script>),
    Program(Program),
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Filter")
    }
}

impl Filter {
    /// Loads a filter. `confine` is called once the folder of the script is open, before anything of it runs. The error
    /// names file and line.
    pub fn load(
        mut script: FilterScript,
        confine: impl FnOnce(&FilterScript) -> Result<(), String>,
    ) -> Result<Self, String> {
        if script.program {
            confine(&script)?;
            return Ok(Self(Kind::Program(Program::new(script))));
        }
        let files = std::mem::take(&mut script.files);
        let folder = Folder::open(&script.folder, files).map_err(|e| format!("{}: {e}", script.folder))?;
        confine(&script)?;
        Ok(Self(Kind::Script(Box::new(Script::load(script, folder)?))))
    }

    /// Filters a submission.
    pub fn submit(&mut self, submission: Submission) -> Verdict {
        match &mut self.0 {
            Kind::Script(script) => script.submit(submission),
            Kind::Program(program) => program.submit(submission),
        }
    }

    /// Filters a change of a job.
    pub fn modify(&mut self, modification: Modification) -> Verdict {
        match &mut self.0 {
            Kind::Script(script) => script.modify(modification),
            Kind::Program(program) => program.modify(modification),
        }
    }

    /// Returns the files of which the filter consists.
    pub(crate) fn files(&self) -> Vec<(String, squall_model::encoding::ByteBuf)> {
        match &self.0 {
            Kind::Script(script) => script.files().loaded(),
            Kind::Program(_) => Vec::new(),
        }
    }
}

/// Serves the controller's daemon over standard input and output until they are closed. `confine` makes this process an
/// ordinary one.
pub fn serve(confine: impl FnOnce(&FilterScript) -> Result<(), String>) -> io::Result<()> {
    let (mut channel, mut confine) = (Channel::take()?, Some(confine));
    let mut filter = None;
    let busy = Arc::new(AtomicBool::new(false));
    watch(&channel, Arc::clone(&busy))?;
    loop {
        busy.store(false, Ordering::Relaxed);
        let Some(asked) = channel.receive()? else { return Ok(()) };
        busy.store(true, Ordering::Relaxed);
        let answer = match asked {
            ToFilter::Load(script) => {
                let Some(confine) = confine.take() else { return Err(io::Error::other("it is loaded already")) };
                match Filter::load(*script, confine) {
                    Err(problem) => {
                        channel.send(&FromFilter::Fault(problem))?;
                        return Ok(());
                    }
                    Ok(loaded) => FromFilter::Loaded(filter.insert(loaded).files()),
                }
            }
            ToFilter::Partitions(all) => {
                if let Some(Filter(kind)) = &mut filter {
                    match kind {
                        Kind::Script(script) => script.set_partitions(&all).map_err(io::Error::other)?,
                        Kind::Program(program) => program.set_partitions(all),
                    }
                }
                continue;
            }
            ToFilter::Submit(submission) => FromFilter::Verdict(Box::new(loaded(&mut filter)?.submit(*submission))),
            ToFilter::Modify(change) => FromFilter::Verdict(Box::new(loaded(&mut filter)?.modify(*change))),
        };
        channel.send(&answer)?;
        if matches!(&answer, FromFilter::Verdict(verdict) if verdict.ends) {
            return Ok(());
        }
    }
}

/// Ends this process, and what it has started, when the controller's daemon gives it up while it filters a job. The daemon
/// may lack the right to end a process of another user.
fn watch(channel: &Channel, busy: Arc<AtomicBool>) -> io::Result<()> {
    let input = channel.input.try_clone()?;
    std::thread::Builder::new().name("watch".to_owned()).spawn(move || {
        loop {
            let mut looked = [PollFd::new(&input, PollFlags::empty())];
            // An interrupted wait goes on.
            if poll(&mut looked, None).is_err() || !looked[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
                continue;
            }
            if busy.load(Ordering::Relaxed) {
                // Only its own group: the daemon has made one for it. It ends anyway.
                if getpgrp() == getpid() {
                    let _ = kill_current_process_group(Signal::KILL);
                }
                std::process::exit(1);
            }
            std::thread::sleep(GRACE);
        }
    })?;
    Ok(())
}

fn loaded(filter: &mut Option<Filter>) -> io::Result<&mut Filter> {
    filter.as_mut().ok_or_else(|| io::Error::other("nothing is loaded"))
}

/// The stream to the controller's daemon, apart from standard input and output, which scripts may use.
struct Channel {
    input: File,
    output: File,
    received: Vec<u8>,
}

impl Channel {
    /// Takes over standard input and output. They lead nowhere afterwards.
    fn take() -> io::Result<Self> {
        let nowhere = File::options().read(true).write(true).open("/dev/null")?;
        let kept = |e: Errno| io::Error::from(e);
        let (input, output) =
            (fcntl_dupfd_cloexec(stdin(), 3).map_err(kept)?, fcntl_dupfd_cloexec(stdout(), 3).map_err(kept)?);
        dup2_stdin(&nowhere)?;
        dup2_stdout(&nowhere)?;
        Ok(Self { input: input.into(), output: output.into(), received: Vec::new() })
    }

    /// Receives the next message. None: the daemon has gone.
    fn receive(&mut self) -> io::Result<Option<ToFilter>> {
        loop {
            if let Some((message, bytes)) = codec::take(&self.received).map_err(io::Error::other)? {
                self.received.drain(..bytes);
                return Ok(Some(message));
            }
            let before = self.received.len();
            self.received.resize(before + (64 << 10), 0);
            let read = self.input.read(&mut self.received[before..])?;
            self.received.truncate(before + read);
            if read == 0 {
                return Ok(None);
            }
        }
    }

    fn send(&mut self, message: &FromFilter) -> io::Result<()> {
        let mut bytes = Vec::new();
        codec::encode(message, &mut bytes).map_err(io::Error::other)?;
        self.output.write_all(&bytes)
    }
}
