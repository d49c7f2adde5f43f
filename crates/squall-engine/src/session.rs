//! Order on the link between controller and node: every frame belongs to a session and follows the one before.

use squall_model::id::Session;
use squall_model::job::Digest;
use squall_model::wire::node::{Down, DownFrame};

/// The sending side of a session: numbers the frames.
#[derive(Clone, Debug)]
pub struct Sender {
    session: Session,
    seq: u64,
}

impl Sender {
    /// A new session.
    pub fn new(session: Session) -> Self {
        Self { session, seq: 0 }
    }
    /// The session.
    pub fn session(&self) -> Session {
        self.session
    }
    /// The next frame. Blobs are added by the host.
    pub fn frame(&mut self, messages: Vec<Down>) -> DownFrame {
        self.seq += 1;
        DownFrame { session: self.session, seq: self.seq, messages, blobs: Vec::new() }
    }
}

/// The receiving side: takes each frame once, in order.
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    session: Session,
    seq: u64,
    welcomed: bool,
}

/// What to do with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the next one.
    Take,
    /// It is of an older session, or was seen before: drop it.
    Stale,
    /// Frames between the last one and this one are missing: the link is broken; register anew.
    Gap,
}

impl Receiver {
    /// A receiver that refuses `session` and all before it: those of an earlier life.
    pub fn after(session: Session) -> Self {
        Self { session, seq: 0, welcomed: false }
    }
    /// Forgets the session at a lost link; a later session must be newer than any seen before.
    pub fn reset(&mut self) {
        self.seq = 0;
        self.welcomed = false;
    }
    /// The session in force.
    pub fn session(&self) -> Option<Session> {
        self.welcomed.then_some(self.session)
    }
    /// Judges a frame and, if it is to be taken, moves on.
    pub fn judge(&mut self, frame: &DownFrame) -> Verdict {
        if !self.welcomed {
            if frame.session <= self.session {
                return Verdict::Stale;
            }
            if frame.seq != 1 {
                return Verdict::Gap;
            }
            *self = Self { session: frame.session, seq: 1, welcomed: true };
            return Verdict::Take;
        }
        if frame.session < self.session || (frame.session == self.session && frame.seq <= self.seq) {
            Verdict::Stale
        } else if frame.session == self.session && frame.seq == self.seq + 1 {
            self.seq += 1;
            Verdict::Take
        } else {
            Verdict::Gap
        }
    }
}

/// The scripts and environments that a message refers to by digest, for the host to attach.
pub fn digests_of(message: &Down) -> Vec<Digest> {
    match message {
        Down::StartJob { facts, batch: Some(_) } => facts.spec.script.into_iter().chain([facts.spec.env]).collect(),
        _ => Vec::new(),
    }
}
