//! What a node remembers of itself: its incarnation, its lives, its newest session.
//!
//! Each stands in a file of its own, of constant length, that ends with its checksum. `incarnation` also holds the boot and
//! the first process under which the daemon ran ([`Ground`]): after a reboot, and after the restart of a container, nothing
//! that ran before lives, and another incarnation begins. So it does when the [`Witness`] knows more than the spool:
//! what was started here can't be told from what was not, and the controller must not start any of it again as it was.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use squall_model::id::{Epoch, Incarnation, Session};
use squall_model::job::Digest;

use super::witness::{Seen, Witness};
use super::{Spool, names_in, parse_key, read_text, write_in_place};
use crate::processes::Stat;

/// The random number, the boot and the first process that make the incarnation.
pub(super) const INCARNATION: &str = "incarnation";
/// How often the daemon was started, and how many steps were.
pub(super) const LIFE: &str = "life";
/// The newest session.
pub(super) const SESSION: &str = "session";

/// Under what a daemon runs: with another of it, all processes of before are dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ground {
    /// The kernel's boot id.
    pub boot: String,
    /// The pid namespace, and when its first process was started. One word.
    pub init: String,
}

impl Ground {
    /// Of this process.
    pub fn here() -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        let space = std::fs::metadata("/proc/self/ns/pid").map_or(0, |space| space.ino());
        let start = Stat::of(1).map_or(0, |first| first.start);
        Ok(Self { boot, init: format!("{space:020}-{start:020}") })
    }
}

/// What the spool says of the life that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Which incarnation.
    pub incarnation: Incarnation,
    /// Which life of the daemon, from 1.
    pub life: u64,
    /// The newest session of earlier lives.
    pub session: Session,
    /// Whether this incarnation begins here: the spool is new or has forgotten something, or nothing of before can live.
    pub fresh: bool,
    /// For the log: what was damaged or lost, and what is done about it.
    pub notes: Vec<String>,
}

/// What changes while the daemon lives.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) number: u128,
    pub(super) life: u64,
    /// Steps that were started in this incarnation.
    pub(super) starts: u64,
    pub(super) session: Session,
    pub(super) witness: Option<Witness>,
}

impl Spool {
    /// Begins a life of the daemon. `random`: for a new incarnation. `witness`: where it is or is to be; None: there is no
    /// place for it. What an earlier incarnation left is removed; nothing of it lives, or it is swept before the node
    /// registers.
    pub fn begin(&self, ground: &Ground, random: u128, witness: Option<&Path>) -> io::Result<Remembered> {
        let mut notes = Vec::new();
        let seen = witness.and_then(Witness::read);
        let known = self.known_number(ground, seen.as_ref(), &mut notes);
        let seen = seen.filter(|seen| known == Some(seen.number));
        let of_witness = seen.as_ref().map(|seen| (seen.life, seen.starts));
        let lives = self.recall(LIFE, parse_life, &mut notes).unwrap_or(of_witness.unwrap_or_default());
        let session = self.recall(SESSION, parse_session, &mut notes);
        let session = session.or(seen.as_ref().map(|seen| seen.session)).unwrap_or_default();
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

    /// The number of the incarnation that goes on. None: none does.
    fn known_number(&self, ground: &Ground, seen: Option<&Seen>, notes: &mut Vec<String>) -> Option<u128> {
        let text = match read_text(self.root.as_fd(), INCARNATION) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
            Err(_) => String::new(),
        };
        let hex = |number: &str| u128::from_str_radix(number, 16).ok().filter(|_| number.len() == 32);
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        // Of versions that wrote no checksum: number and boot.
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

    /// A file's content. None: it is not there, or damaged, which is said.
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

    /// What the witness knows and the spool does not.
    fn loss(&self, seen: &Seen, (life, starts): (u64, u64)) -> Option<String> {
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

    /// Remembers the newest session. Needs no room on the disk.
    pub(crate) fn save_session(&self, session: Session) -> io::Result<()> {
        let memory = &mut *self.memory.borrow_mut();
        memory.session = session;
        write_in_place(self.root.as_fd(), SESSION, &session_text(session))?;
        memory.witness.as_ref().map_or(Ok(()), |witness| witness.note(memory))
    }

    /// The daemon ends: where no step is left the witness has nothing to tell.
    pub(crate) fn close(&self) {
        if let Some(witness) = &self.memory.borrow().witness {
            witness.close();
        }
    }
}

/// Text of the spool, with its checksum.
pub(super) fn checked(words: &str) -> String {
    format!("{words} {:08x}\n", crc32c::crc32c(words.as_bytes()))
}

/// The reverse. None: it is damaged.
pub(super) fn unchecked(text: &str) -> Option<&str> {
    let (words, crc) = text.trim_end().rsplit_once(' ')?;
    (crc.len() == 8 && u32::from_str_radix(crc, 16).ok()? == crc32c::crc32c(words.as_bytes())).then_some(words)
}

/// Lives and starts; of versions that wrote no checksum only lives.
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
