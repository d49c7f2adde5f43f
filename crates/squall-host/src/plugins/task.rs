//! Makes a task: a copy of the process with the plugins, which calls the hooks of tasks and then executes the program.
//!
//! Between both stands a process that watches the copy until the program may be executed, and makes another copy if an
//! optional plugin has crashed. When it ends, the task becomes a child of the step daemon. The task waits twice: before
//! it becomes the user, for `task_post_fork`, and before the program, until the step daemon knows it.

use std::ffi::{CString, OsStr};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::conf::Line;
use super::host::texts;
use super::stack::{Stack, crash};
use super::voice::{Voice, speak_to, tell};
use super::words::TaskOrder;
use crate::stepd::{again_while_busy, find_in_path, why_not};
use crate::sys::identity::{Identity, become_user};
use crate::sys::offspring::{Born, bear, leave};
use crate::sys::signals::kill;
use crate::sys::spank::{Hook, Task, die_with_parent, session, set, value};
use crate::sys::spawn::{Session, Spawn};
use crate::sys::wait::{Waited, reap_pid};

/// Bytes of a message of a task: a letter and a number.
const MESSAGE: usize = 5;
/// The copy was made, and has this process id.
const MADE: u8 = b'm';
/// The hooks as root have run.
const PRIVILEGED: u8 = b'p';
/// All hooks have run.
const READY: u8 = b'r';
/// The task failed; a text of this length follows.
const FAILED: u8 = b'f';

/// What has become of a task that is being made.
#[derive(Debug)]
pub(super) enum Stage {
    /// Nothing that matters.
    Same,
    /// The hooks as root have run in the process with this id.
    Privileged {
        /// Number of the task on this node.
        local: u32,
        /// Process id.
        pid: u32,
    },
    /// The program may be executed in the process with this id, a child of the step daemon.
    Ready {
        /// Process id.
        pid: u32,
    },
    /// The task can't be started.
    Failed(String),
}

/// A task that is being made.
#[derive(Debug)]
pub(super) struct Making {
    local: u32,
    /// The process that watches the copy. None: it has ended, as the task is ready.
    watcher: Option<u32>,
    pid: u32,
    from: PipeReader,
    to: PipeWriter,
}

impl Making {
    /// Begins to make a task. `files`: standard input, output, error, and a further one.
    pub(super) fn begin(
        order: TaskOrder,
        files: Vec<OwnedFd>,
        (stack, lines): (&Stack, &[Line]),
        identity: Identity,
    ) -> io::Result<Self> {
        let (from, tell) = io::pipe()?;
        let (listen, to) = io::pipe()?;
        let local = order.local;
        match bear(None)? {
            (Born::Original, pid) => Ok(Self { local, watcher: Some(pid), pid: 0, from, to }),
            (Born::Copy, _) => {
                die_with_parent(true);
                drop((from, to));
                Maker { order, files, stack, lines, identity, tell, listen }.watch()
            }
        }
    }

    /// Returns what is readable when the task has something to say. None: it has said all.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.watcher.map(|_| self.from.as_fd())
    }

    /// Hears what the task says.
    pub(super) fn hear(&mut self) -> Stage {
        let mut message = [0; MESSAGE];
        if self.from.read_exact(&mut message).is_err() {
            self.reap();
            return Stage::Failed("spank: the process that makes the task has ended".to_owned());
        }
        let number = u32::from_le_bytes([message[1], message[2], message[3], message[4]]);
        match message[0] {
            MADE => {
                self.pid = number;
                Stage::Same
            }
            PRIVILEGED => Stage::Privileged { local: self.local, pid: self.pid },
            READY => {
                // Its child is the step daemon's from now on.
                self.reap();
                Stage::Ready { pid: self.pid }
            }
            _ => {
                let mut text = vec![0; (number as usize).min(1 << 12)];
                let read = self.from.read_exact(&mut text);
                self.reap();
                let text = String::from_utf8_lossy(&text).into_owned();
                Stage::Failed(if read.is_ok() { text } else { "spank: a task failed".to_owned() })
            }
        }
    }

    fn reap(&mut self) {
        // It may have been reaped already.
        drop(self.watcher.take().map(reap_pid));
    }

    /// Lets the task become the user.
    pub(super) fn go_on(&mut self) {
        // A task that has ended is noticed when it is heard.
        drop(self.to.write_all(b"g"));
    }

    /// Lets the task execute its program.
    pub(super) fn go(mut self) {
        self.go_on();
    }

    /// Ends the task before its program.
    pub(super) fn kill(&self) {
        for pid in self.watcher.into_iter().chain([self.pid]) {
            // It may have ended by itself.
            drop(kill(pid, libc::SIGKILL));
        }
    }
}

/// What the watching process and the task have.
struct Maker<'a> {
    order: TaskOrder,
    files: Vec<OwnedFd>,
    stack: &'a Stack,
    lines: &'a [Line],
    identity: Identity,
    tell: PipeWriter,
    listen: PipeReader,
}

impl Maker<'_> {
    fn say(&mut self, what: u8, number: u32) {
        let [a, b, c, d] = number.to_le_bytes();
        // The other side may be gone: then the process is killed.
        drop(self.tell.write_all(&[what, a, b, c, d]));
    }

    fn fail(&mut self, text: &str) {
        let text = &text.as_bytes()[..text.len().min(1 << 12)];
        self.say(FAILED, text.len() as u32);
        drop(self.tell.write_all(text));
    }

    /// Makes copies until one of them is ready, or fails by itself.
    fn watch(mut self) -> ! {
        if self.stack.note_apart().is_err() {
            leave(1);
        }
        loop {
            let Ok((own, mut copys)) = io::pipe() else { leave(1) };
            match bear(None) {
                Ok((Born::Copy, _)) => {
                    drop(own);
                    std::mem::swap(&mut self.tell, &mut copys);
                    self.task(copys)
                }
                Ok((Born::Original, pid)) => {
                    drop(copys);
                    self.say(MADE, pid);
                    if !self.pass_on(own, pid) {
                        leave(0)
                    }
                }
                Err(_) => leave(1),
            }
        }
    }

    /// Passes on what the copy says. Returns whether another copy is to be made, without the plugin that has crashed.
    fn pass_on(&mut self, mut own: PipeReader, pid: u32) -> bool {
        let mut message = [0; MESSAGE];
        loop {
            self.await_word(&own, pid);
            if own.read_exact(&mut message).is_err() {
                break;
            }
            if self.tell.write_all(&message).is_err() || message[0] == READY {
                return false;
            }
            if message[0] == FAILED {
                drop(io::copy(&mut own, &mut self.tell));
                return false;
            }
        }
        let ended = match reap_pid(pid) {
            Ok(Waited::Reaped(reaped)) => reaped.exit.signal,
            _ => 0,
        };
        let Some(at) = self.stack.progress() else {
            self.fail("spank: the task has ended in a hook");
            return false;
        };
        let (required, text) = crash(self.lines, at, ended);
        if required {
            self.fail(&text);
            return false;
        }
        tell(&format!("error: {text}"));
        self.stack.skip(at.0);
        true
    }

    /// Waits until the copy says something, or has ended; ends it if a hook takes too long.
    fn await_word(&self, own: &PipeReader, pid: u32) {
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        while let Ok(0) | Err(_) = poll(&mut [PollFd::new(own, PollFlags::IN)], Some(&second)) {
            if self.stack.is_late() {
                // It may have ended by itself.
                drop(kill(pid, libc::SIGKILL));
            }
        }
    }

    /// Waits until the process with the plugins lets the task go on.
    fn wait(&mut self) {
        if self.listen.read_exact(&mut [0]).is_err() {
            leave(1);
        }
    }

    /// Is the task. `upward`: the pipe of the watching process, which the task does not use.
    fn task(mut self, upward: PipeWriter) -> ! {
        drop(upward);
        die_with_parent(true);
        let root = rustix::process::geteuid().is_root();
        let given = self.files.get(2).map(rustix::stdio::dup2_stderr);
        if !matches!(given, Some(Ok(()))) {
            leave(1);
        }
        speak_to(Voice::Task);
        let (pid, rank, local) = (std::process::id(), self.order.rank, self.order.local);
        {
            let mut session = session();
            session.task = Some(Task { local, rank, pid, status: None });
            session.env = texts(&self.order.env);
            // The name has no `=`, so that this can't fail.
            let _ = set(&mut session.env, b"SLURM_TASK_PID", pid.to_string().as_bytes(), true);
        }
        if let Err(why) = self.stack.run(Hook::TaskInitPrivileged) {
            self.fail(&why);
            leave(1);
        }
        self.say(PRIVILEGED, 0);
        self.wait();
        if root && let Err(e) = become_user(&self.identity) {
            self.fail(&e.to_string());
            leave(1);
        }
        // It was taken back with root's rights.
        die_with_parent(true);
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(self.order.umask & 0o777));
        if let Err(e) = std::env::set_current_dir(OsStr::from_bytes(&self.order.dir)) {
            self.fail(&format!("chdir: {e}"));
            leave(1);
        }
        // A hook may make a process that goes on in the stead of this one, which then waits for it until its end.
        die_with_parent(false);
        if let Err(why) = self.stack.run(Hook::TaskInit) {
            self.fail(&why);
            leave(1);
        }
        self.say(READY, 0);
        self.wait();
        self.execute()
    }

    /// Executes the program.
    fn execute(self) -> ! {
        let (env, before) = {
            let mut session = session();
            (std::mem::take(&mut session.env), std::mem::take(&mut session.before))
        };
        let mut argv = texts(&self.order.argv);
        let known = self.order.program.as_ref().filter(|_| before.is_empty());
        let known = known.and_then(|program| CString::new(program.as_ref()).ok());
        argv.splice(0..0, before);
        let name = argv.first().cloned().unwrap_or_default();
        let here = std::env::current_dir().unwrap_or_default();
        let found = known.map_or_else(|| find(&name, &env, &here), Ok);
        let program = found.unwrap_or_else(|(code, text)| {
            tell(&format!("error: {text}"));
            leave(code)
        });
        let [stdin, stdout, stderr, further @ ..] = &self.files[..] else { leave(1) };
        let cpus: Vec<usize> = self.order.cpus.iter().map(|cpu| *cpu as usize).collect();
        let spawn = Spawn {
            env: &env,
            rlimits: &self.order.rlimits,
            cpus: &cpus,
            session: if self.order.terminal { Session::Terminal } else { Session::Group },
            further: further.first().filter(|_| self.order.further).map(AsFd::as_fd),
            ..Spawn::new(&program, &argv, [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()])
        };
        let Err(error) = again_while_busy(|| Err::<(), _>(spawn.become_it())) else { leave(1) };
        let (code, text) = why_not(&error, &name, &program);
        tell(&format!("error: {text}"));
        leave(code)
    }
}

fn find(name: &CString, env: &[CString], here: &Path) -> Result<CString, (i32, String)> {
    find_in_path(name, value(env, b"PATH").unwrap_or_default(), here)
}
