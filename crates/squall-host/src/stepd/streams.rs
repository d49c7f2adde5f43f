//! Passes the standard streams of tasks between their pipes and `srun`. Nothing is lost, order is kept, and slow
//! readers delay the writers.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;

use rustix::event::PollFlags;
use squall_model::encoding::ByteBuf;
use squall_model::step::FromStep;

use crate::poller::Interest;

/// Most bytes of output in one frame.
const CHUNK_BYTES: usize = 64 << 10;

/// Reads of one task's output for a file before others get their turn: more than a pipe holds.
const LABELLED_AT_ONCE: u32 = 32;

/// Most bytes of input that may be queued for a task; above it nothing is read from `srun`.
pub(super) const INPUT_BYTES_MAX: usize = 8 << 20;

/// Character that ends the input of a terminal (Ctrl-D).
const END_OF_INPUT: u8 = 4;

/// A task's output that is passed to `srun`, or written with labels into a file.
#[derive(Debug)]
struct Output {
    rank: u32,
    stderr: bool,
    pipe: File,
    labelled: Option<Labelled>,
    /// Whether the output's end was read. `sweep` removes such outputs, so that indexes stay valid until then.
    over: bool,
}

/// An output file in which each line begins with the rank of the task that wrote it.
#[derive(Debug)]
struct Labelled {
    file: File,
    label: String,
    /// The beginning of a line; the task has not written the line's end yet.
    held: Vec<u8>,
}

impl Labelled {
    /// Writes what a task wrote to the file, complete lines only; without bytes (the task has ended) the rest too.
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.held.extend_from_slice(bytes);
        let whole = match self.held.iter().rposition(|b| *b == b'\n') {
            _ if bytes.is_empty() || self.held.len() > CHUNK_BYTES => self.held.len(),
            Some(at) => at + 1,
            None => 0,
        };
        let rest = self.held.split_off(whole);
        let lines = std::mem::replace(&mut self.held, rest);
        let mut text = Vec::with_capacity(lines.len() + 16);
        for line in lines.split_inclusive(|b| *b == b'\n') {
            text.extend_from_slice(self.label.as_bytes());
            text.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                text.push(b'\n');
            }
        }
        // Written with one call, as other tasks may write to the same file.
        self.file.write_all(&text)
    }
}

/// A task's input that comes from `srun`.
#[derive(Debug)]
struct Input {
    rank: u32,
    pipe: File,
    terminal: bool,
    waiting: VecDeque<u8>,
    /// Whether the end of input was received.
    ended: bool,
    /// Whether the task's end of the input is closed. `sweep` removes such inputs.
    over: bool,
}

/// The streams of this node's tasks that are connected to `srun`.
#[derive(Debug, Default)]
pub(super) struct Streams {
    outputs: Vec<Output>,
    inputs: Vec<Input>,
    /// The master side of the terminal (`--pty`), with the rank of its task. None: there is no terminal.
    terminal: Option<(u32, File)>,
}

/// The stream to which a poll event belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// A task's output; its index in `outputs`.
    Output(usize),
    /// A task's input; its index in `inputs`.
    Input(usize),
}

impl Streams {
    /// Reads a task's output from the given end of a pipe.
    pub(super) fn add_output(&mut self, rank: u32, stderr: bool, pipe: File) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        self.outputs.push(Output { rank, stderr, pipe, labelled: None, over: false });
        Ok(())
    }

    /// Reads a task's output from a pipe, and writes it to `file` with `label` before each line.
    pub(super) fn add_labelled(&mut self, rank: u32, pipe: File, file: File, label: String) -> io::Result<()> {
        self.add_output(rank, false, pipe)?;
        if let Some(output) = self.outputs.last_mut() {
            output.labelled = Some(Labelled { file, label, held: Vec::new() });
        }
        Ok(())
    }

    /// Writes a task's input to the given end of a pipe.
    pub(super) fn add_input(&mut self, rank: u32, pipe: File) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        self.inputs.push(Input { rank, pipe, terminal: false, waiting: VecDeque::new(), ended: false, over: false });
        Ok(())
    }

    /// Connects a task's terminal, given its master side.
    pub(super) fn add_terminal(&mut self, rank: u32, master: File) -> io::Result<()> {
        self.add_output(rank, false, master.try_clone()?)?;
        self.add_input(rank, master.try_clone()?)?;
        if let Some(input) = self.inputs.last_mut() {
            input.terminal = true;
        }
        self.terminal = Some((rank, master));
        Ok(())
    }

    /// Sets the size of the terminal. Its foreground processes get SIGWINCH from the kernel.
    pub(super) fn resize(&self, rows: u16, columns: u16) {
        if let Some((_, terminal)) = &self.terminal {
            let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
            let _ = rustix::termios::tcsetwinsize(terminal, size);
        }
    }

    /// Returns what to poll for; outputs only if there is `room` for their bytes.
    pub(super) fn interests(&self, room: bool) -> impl Iterator<Item = Interest<'_, Which>> {
        let outputs = self.outputs.iter().enumerate().filter(|(_, o)| !o.over);
        let inputs = self.inputs.iter().enumerate().filter(|(_, i)| !i.over);
        let outputs =
            outputs.map(move |(at, o)| Interest::new(Which::Output(at), o.pipe.as_fd(), room.then_some(PollFlags::IN)));
        outputs.chain(inputs.map(|(at, i)| {
            let waits = !i.waiting.is_empty();
            Interest::new(Which::Input(at), i.pipe.as_fd(), waits.then_some(PollFlags::OUT))
        }))
    }

    /// Reads from a readable output; returns the frame for `srun`, if any. A frame without bytes marks the end.
    pub(super) fn read(&mut self, at: usize) -> Option<FromStep> {
        let output = self.outputs.get_mut(at).filter(|o| !o.over)?;
        let mut bytes = vec![0; CHUNK_BYTES];
        if let Some(labelled) = &mut output.labelled {
            for _ in 0..LABELLED_AT_ONCE {
                let count = match output.pipe.read(&mut bytes) {
                    Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return None,
                    result => result.unwrap_or(0),
                };
                // If the disk is full the output is lost, as if the task wrote to it itself.
                output.over = labelled.take(&bytes[..count]).is_err() || count == 0;
                if output.over {
                    break;
                }
            }
            return None;
        }
        match output.pipe.read(&mut bytes) {
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            // A terminal returns EIO after its tasks have ended.
            result => {
                bytes.truncate(result.unwrap_or(0));
                output.over = bytes.is_empty();
                Some(FromStep::Output { rank: output.rank, stderr: output.stderr, bytes: ByteBuf::from(bytes) })
            }
        }
    }

    /// Closes and removes streams that have ended. The indexes of other streams are different afterwards.
    pub(super) fn sweep(&mut self) {
        self.outputs.retain(|o| !o.over);
        self.inputs.retain(|i| !i.over);
    }

    /// Returns the indexes of the outputs of the task with this rank; None: of all tasks.
    pub(super) fn outputs_of(&self, rank: Option<u32>) -> Vec<usize> {
        let places = self.outputs.iter().enumerate();
        places.filter(|(_, o)| !o.over && rank.is_none_or(|r| r == o.rank)).map(|(at, _)| at).collect()
    }

    /// Queues input from `srun` for the task with this rank; None: for all tasks. No bytes mark the end of the input.
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

    /// Writes queued input without waiting, and closes the pipe at its end.
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
                    // The task has closed it.
                    input.over = true;
                    input.waiting.clear();
                    return;
                }
            }
        }
        input.over |= input.ended && !input.terminal;
    }

    /// Returns how many bytes of input are queued for the task that has the most.
    pub(super) fn input_backlog(&self) -> usize {
        self.inputs.iter().map(|i| i.waiting.len()).max().unwrap_or(0)
    }

    /// Drops the input of a task that has ended.
    pub(super) fn task_ended(&mut self, rank: u32) {
        for input in self.inputs.iter_mut().filter(|i| i.rank == rank) {
            input.over = true;
            input.waiting.clear();
        }
    }
}

/// Opens a new pseudo-terminal of the given size; returns the master's and the task's side.
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

/// Makes a pipe; returns the end to read from and the end to write to.
pub(super) fn pipe() -> io::Result<(File, File)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok((File::from(read), File::from(write)))
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io::Write;

    use super::{Streams, pipe};

    #[test]
    fn lines_in_a_file_are_labelled_whole() {
        let path = std::env::temp_dir().join(format!("squall-labelled-{}", std::process::id()));
        let open = || OpenOptions::new().create(true).append(true).open(&path).unwrap();
        let mut streams = Streams::default();
        let mut task = |rank: u32| -> File {
            let (read, write) = pipe().unwrap();
            streams.add_labelled(rank, read, open(), format!("{rank:>2}: ")).unwrap();
            write
        };
        let (mut one, mut two) = (task(1), task(12));
        one.write_all(b"a\nb").unwrap();
        two.write_all(b"x\n").unwrap();
        assert!(streams.read(0).is_none() && streams.read(1).is_none(), "nothing of it is for srun");
        one.write_all(b"c\nend").unwrap();
        drop((one, two));
        // A child of another test may hold the other ends open for a moment.
        while !streams.outputs_of(None).is_empty() {
            assert!(streams.read(1).is_none() && streams.read(0).is_none());
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), " 1: a\n12: x\n 1: bc\n 1: end\n");
        std::fs::remove_file(path).unwrap();
    }
}
