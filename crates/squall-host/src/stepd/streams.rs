//! Standard streams of tasks between their pipes and `srun`: nothing is lost, order is kept, and who reads
//! slowly is waited for.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::PollFlags;
use serde_bytes::ByteBuf;
use squall_model::step::FromStep;

/// Most bytes of output in one frame.
const CHUNK_BYTES: usize = 64 << 10;

/// Most bytes of input that wait for tasks; above it no more is read from `srun`.
pub(super) const INPUT_BYTES_MAX: usize = 8 << 20;

/// End of input as a terminal takes it (Ctrl-D).
const END_OF_INPUT: u8 = 4;

/// A task's output that goes to `srun`.
#[derive(Debug)]
struct Output {
    rank: u32,
    stderr: bool,
    pipe: File,
    /// Nothing more will come; left in place until `sweep`, so that places stay valid.
    over: bool,
}

/// A task's input that comes from `srun`.
#[derive(Debug)]
struct Input {
    rank: u32,
    pipe: File,
    terminal: bool,
    waiting: VecDeque<u8>,
    /// No more will come.
    ended: bool,
    /// Closed; left in place until `sweep`.
    over: bool,
}

/// The streams of this node's tasks that go through `srun`.
#[derive(Debug, Default)]
pub(super) struct Streams {
    outputs: Vec<Output>,
    inputs: Vec<Input>,
    /// Rank of the task with the terminal, and the terminal.
    terminal: Option<(u32, File)>,
}

/// Which stream a poll is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// An output, by its place.
    Output(usize),
    /// An input, by its place.
    Input(usize),
}

impl Streams {
    /// Reads a task's output from this end of a pipe.
    pub(super) fn add_output(&mut self, rank: u32, stderr: bool, pipe: File) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        self.outputs.push(Output { rank, stderr, pipe, over: false });
        Ok(())
    }

    /// Writes a task's input to this end of a pipe.
    pub(super) fn add_input(&mut self, rank: u32, pipe: File) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        self.inputs.push(Input { rank, pipe, terminal: false, waiting: VecDeque::new(), ended: false, over: false });
        Ok(())
    }

    /// Serves a task's terminal from its master side.
    pub(super) fn add_terminal(&mut self, rank: u32, master: File) -> io::Result<()> {
        self.add_output(rank, false, master.try_clone()?)?;
        self.add_input(rank, master.try_clone()?)?;
        if let Some(input) = self.inputs.last_mut() {
            input.terminal = true;
        }
        self.terminal = Some((rank, master));
        Ok(())
    }

    /// A terminal's new size: rows, columns. Its foreground processes get SIGWINCH from the kernel.
    pub(super) fn resize(&self, rows: u16, columns: u16) {
        if let Some((_, terminal)) = &self.terminal {
            let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
            let _ = rustix::termios::tcsetwinsize(terminal, size);
        }
    }

    /// What to poll for: outputs only where there is room for them.
    pub(super) fn interests(&self, room: bool) -> impl Iterator<Item = (Which, BorrowedFd<'_>, PollFlags)> {
        let outputs = self.outputs.iter().enumerate().filter(move |(_, o)| room && !o.over);
        let inputs = self.inputs.iter().enumerate().filter(|(_, i)| !i.over && !i.waiting.is_empty());
        outputs
            .map(|(at, o)| (Which::Output(at), o.pipe.as_fd(), PollFlags::IN))
            .chain(inputs.map(|(at, i)| (Which::Input(at), i.pipe.as_fd(), PollFlags::OUT)))
    }

    /// Reads from an output that has something; the frame for `srun`, if any; without bytes at its end.
    pub(super) fn read(&mut self, at: usize) -> Option<FromStep> {
        let output = self.outputs.get_mut(at).filter(|o| !o.over)?;
        let mut bytes = vec![0; CHUNK_BYTES];
        match output.pipe.read(&mut bytes) {
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            // A terminal whose tasks are gone answers EIO.
            result => {
                bytes.truncate(result.unwrap_or(0));
                output.over = bytes.is_empty();
                Some(FromStep::Output { rank: output.rank, stderr: output.stderr, bytes: ByteBuf::from(bytes) })
            }
        }
    }

    /// Closes what is over. Places are different afterwards.
    pub(super) fn sweep(&mut self) {
        self.outputs.retain(|o| !o.over);
        self.inputs.retain(|i| !i.over);
    }

    /// Places of the outputs of a task, or of all.
    pub(super) fn outputs_of(&self, rank: Option<u32>) -> Vec<usize> {
        let places = self.outputs.iter().enumerate();
        places.filter(|(_, o)| !o.over && rank.is_none_or(|r| r == o.rank)).map(|(at, _)| at).collect()
    }

    /// Input from `srun` for a task, or for all; no bytes: the end.
    pub(super) fn input(&mut self, rank: Option<u32>, bytes: &[u8]) {
        for input in self.inputs.iter_mut().filter(|i| rank.is_none_or(|r| r == i.rank) && !i.ended && !i.over) {
            if bytes.is_empty() {
                input.ended = true;
                if input.terminal {
                    input.waiting.push_back(END_OF_INPUT);
                }
            } else {
                input.waiting.extend(bytes);
            }
        }
        for at in 0..self.inputs.len() {
            self.write(at);
        }
    }

    /// Writes to an input what it takes, and closes it at its end.
    pub(super) fn write(&mut self, at: usize) {
        let Some(input) = self.inputs.get_mut(at).filter(|i| !i.over) else { return };
        while !input.waiting.is_empty() {
            match input.pipe.write(input.waiting.as_slices().0) {
                Ok(n) => {
                    input.waiting.drain(..n);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    // Nobody reads it any more.
                    input.over = true;
                    input.waiting.clear();
                    return;
                }
            }
        }
        input.over |= input.ended && !input.terminal;
    }

    /// Bytes of input that wait for the slowest task.
    pub(super) fn input_backlog(&self) -> usize {
        self.inputs.iter().map(|i| i.waiting.len()).max().unwrap_or(0)
    }

    /// A task has ended: its input is of no use.
    pub(super) fn task_ended(&mut self, rank: u32) {
        for input in self.inputs.iter_mut().filter(|i| i.rank == rank) {
            input.over = true;
            input.waiting.clear();
        }
    }
}

/// A new terminal of that size (rows, columns): the master's and the task's side.
pub(super) fn open_terminal((rows, columns): (u16, u16)) -> io::Result<(File, File)> {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let task = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    if rows > 0 && columns > 0 {
        let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&task, size)?;
    }
    Ok((File::from(master), File::from(task)))
}

/// A pipe: the end to read and the end to write.
pub(super) fn pipe() -> io::Result<(File, File)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok((File::from(read), File::from(write)))
}
