//! The node's persistent state in the spool: its incarnation, the number of its daemon's starts, its newest session.
//!
//! Each is in a file of its own, of constant length, that ends with its checksum. `incarnation` also holds the boot and
//! the first process under which the daemon ran ([`Ground`]): after a reboot, or the restart of a container, no earlier
//! process is left, and a new incarnation begins. A new one also begins when the [`Witness`] has more than the spool:
//! then it is not certain which steps were started here, and the controller must not start any of them again under the
//! old incarnation.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use squall_model::id::{Epoch, Incarnation, Session};
use squall_model::job::Digest;

use super::witness::{Witness, WitnessContent};
use super::{Spool, names_in, parse_key, read_text, write_in_place};
use crate::processes::Stat;

/// Name of the file with the incarnation's random number, the boot and the first process.
pub(super) const INCARNATION: &str = "incarnation";
/// Name of the file with the numbers of starts of the daemon and of steps.
pub(super) const LIFE: &str = "life";
/// Name of the file with the newest session.
pub(super) const SESSION: &str = "session";

/// Boot and container in which a daemon runs: if they differ from the recorded ones, all earlier processes are dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ground {
    /// The kernel's boot id.
    pub boot: String,
    /// The pid namespace, and the start time of its first process, as one word.
    pub init: String,
}

impl Ground {
    /// Returns boot and container of this process.
    pub fn here() -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        let space = std::fs::metadata("/proc/self/ns/pid").map_or(0, |space| space.ino());
        let start = Stat::of(1).map_or(0, |first| first.start);
        Ok(Self { boot, init: format!("{space:020}-{start:020}") })
    }
}

/// State of the spool at the start of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// The incarnation of the node.
    pub incarnation: Incarnation,
    /// Number of this start of the daemon in the incarnation, from 1.
    pub life: u64,
    /// The newest session of earlier starts.
    pub session: Session,
    /// Whether the incarnation is new: the spool is new or has lost something, or all earlier processes are dead.
    pub fresh: bool,
    /// Log messages: what was damaged or lost, and what is done about it.
    pub notes: Vec<String>,
}

/// State that changes while the daemon runs.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) number: u128,
    pub(super) life: u64,
    /// Number of steps that were started in this incarnation.
    pub(super) starts: u64,
    pub(super) session: Session,
    pub(super) witness: Option<Witness>,
}

impl Spool {
    /// Begins a new start of the daemon: counts it, and decides whether the incarnation continues. `random`: number for
    /// a new incarnation. `witness`: path of the witness file, existing or to be made; None: there is no suitable file
    /// system. Records of an earlier incarnation are removed: its processes are dead, or are swept before the node
    /// registers.
    pub fn begin(&self, ground: &Ground, random: u128, witness: Option<&Path>) -> io::Result<Remembered> {
        let mut notes = Vec::new();
        let seen = witness.and_then(Witness::read);
        let known = self.known_number(ground, seen.as_ref(), &mut notes);
        let seen = seen.filter(|seen| known == Some(seen.number));
        let of_witness = seen.as_ref().map(|seen| (seen.life, seen.starts));
        let lives = self.recall(LIFE, parse_life, &mut notes).unwrap_or(of_witness.unwrap_or_default());
        let session = self.recall(SESSION, parse_session, &mut notes);
        // The witness's is newer where the spool was rolled back: a controller that was rolled back with it is found out.
        let session = session.max(seen.as_ref().map(|seen| seen.session)).unwrap_or_default();
        let loss = seen.as_ref().and_then(|seen| self.loss(seen, lives));
        let number = known.filter(|_| loss.is_none());
        notes.extend(loss.map(|loss| format!("{loss}: what was started here is not known any more, so this node begins anew; whatever still runs of its jobs is killed, and the controller gives them up")));
        let fresh = number.is_none();
        if fresh {
            self.wipe()?;
        }
        let (life, starts) = if fresh { (1, 0) } else { (lives.0 + 1, lives.1) };
        let number = number.unwrap_or(random);
        self.write_life(life, starts)?;
        write_in_place(self.root.as_fd(), SESSION, &session_text(session))?;
        let text = checked(&format!("{number:032x} {} {}", ground.boot, ground.init));
        write_in_place(self.root.as_fd(), INCARNATION, &text)?;
        let mut memory = Memory { number, life, starts, session, witness: None };
        let steps = names_in(self.steps.as_fd())?.iter().filter_map(|name| parse_key(name)).collect::<Vec<_>>();
        match witness.map(|path| Witness::create(path, &memory, &steps)) {
            Some(Ok(witness)) => memory.witness = Some(witness),
            Some(Err(e)) => notes.push(format!("no witness of the spool in memory: {e}")),
            None => notes.push("no witness of the spool: there is no file system in memory for it".to_owned()),
        }
        self.memory.replace(memory);
        Ok(Remembered { incarnation: incarnation(number, &ground.boot), life, session, fresh, notes })
    }

    /// Returns the number of the incarnation that continues. None: a new one has to begin.
    fn known_number(&self, ground: &Ground, seen: Option<&WitnessContent>, notes: &mut Vec<String>) -> Option<u128> {
        let text = match read_text(self.root.as_fd(), INCARNATION) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
            Err(_) => String::new(),
        };
        let hex = |number: &str| u128::from_str_radix(number, 16).ok().filter(|_| number.len() == 32);
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        // Earlier versions wrote no checksum, only number and boot.
        let known = match (unchecked(&text).is_some(), words.as_slice()) {
            (true, [number, boot, init, _]) => {
                Some(hex(number).filter(|_| *boot == ground.boot && *init == ground.init))
            }
            (false, [number, boot]) if boot.len() == 36 => {
                hex(number).map(|n| Some(n).filter(|_| *boot == ground.boot))
            }
            _ => None,
        };
        if let Some(known) = known {
            return known;
        }
        notes.push(self.damage(INCARNATION));
        seen.map(|seen| seen.number)
    }

    /// Reads and parses a file of the spool. None: it is missing, or damaged (then a message is added to `notes`).
    fn recall<T>(&self, name: &str, parse: fn(&str) -> Option<T>, notes: &mut Vec<String>) -> Option<T> {
        match read_text(self.root.as_fd(), name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            text => {
                let found = text.ok().and_then(|text| parse(&text));
                if found.is_none() {
                    notes.push(self.damage(name));
                }
                found
            }
        }
    }

    fn damage(&self, name: &str) -> String {
        let kept =
            self.set_aside(self.root.as_fd(), name).map_or_else(|e| e.to_string(), |path| path.display().to_string());
        format!("the spool's file '{name}' is damaged; it is kept as {kept}, and another one is made")
    }

    /// Returns a message if the witness has something that the spool has lost.
    fn loss(&self, seen: &WitnessContent, (life, starts): (u64, u64)) -> Option<String> {
        let root = self.path.display();
        if life < seen.life || starts < seen.starts {
            return Some(format!(
                "the spool {root} is older than what was written there last (rolled back, or lost by its disk)"
            ));
        }
        let lost = seen.steps.iter().find(|key| !self.step(**key).exists())?;
        Some(format!("the spool {root} has lost its folder of step {lost}"))
    }

    pub(super) fn write_life(&self, life: u64, starts: u64) -> io::Result<()> {
        write_in_place(self.root.as_fd(), LIFE, &checked(&format!("{life:020} {starts:020}")))
    }

    /// Records the newest session. Works on a full disk.
    pub(crate) fn save_session(&self, session: Session) -> io::Result<()> {
        let memory = &mut *self.memory.borrow_mut();
        memory.session = session;
        write_in_place(self.root.as_fd(), SESSION, &session_text(session))?;
        memory.witness.as_ref().map_or(Ok(()), |witness| witness.note(memory))
    }

    /// Removes the witness at the daemon's end, if there are no steps left.
    pub(crate) fn close(&self) {
        if let Some(witness) = &self.memory.borrow().witness {
            witness.close();
        }
    }
}

/// Returns the text with its checksum appended.
pub(super) fn checked(words: &str) -> String {
    format!("{words} {:08x}\n", crc32c::crc32c(words.as_bytes()))
}

/// Removes and checks the checksum that `checked` appends. None: the text is damaged.
pub(super) fn unchecked(text: &str) -> Option<&str> {
    let (words, crc) = text.trim_end().rsplit_once(' ')?;
    (crc.len() == 8 && u32::from_str_radix(crc, 16).ok()? == crc32c::crc32c(words.as_bytes())).then_some(words)
}

/// Parses the numbers of starts of the daemon and of steps; earlier versions wrote only the first, without checksum.
/// None: the text is damaged.
fn parse_life(text: &str) -> Option<(u64, u64)> {
    match unchecked(text) {
        Some(words) => {
            words.split_once(' ').and_then(|(life, starts)| Some((life.parse().ok()?, starts.parse().ok()?)))
        }
        None => text.strip_suffix('\n').filter(|text| text.len() == 20)?.parse().ok().map(|life| (life, 0)),
    }
}

fn session_text(session: Session) -> String {
    checked(&format!("{:020} {:020}", session.epoch.0, session.number))
}

fn parse_session(text: &str) -> Option<Session> {
    let old = || text.strip_suffix('\n').filter(|text| text.len() == 41);
    let (epoch, number) = unchecked(text).or_else(old)?.split_once(' ')?;
    Some(Session { epoch: Epoch(epoch.parse().ok()?), number: number.parse().ok()? })
}

fn incarnation(number: u128, boot: &str) -> Incarnation {
    let digest = Digest::of(format!("{number:032x} {boot}").as_bytes());
    let mut low = [0; 16];
    low.copy_from_slice(&digest.0[..16]);
    Incarnation(u128::from_le_bytes(low))
}
