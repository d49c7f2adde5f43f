//! Waiting for many descriptors at once. The kernel keeps the list (epoll), so that a turn costs what has come and not what
//! is watched; it is told only of what has changed since the last turn.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Most events that are taken at once; the others are for the next turn.
const EVENTS: usize = 64;

/// A descriptor, and what is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interest<'a, K> {
    /// For whom.
    pub(super) key: K,
    fd: BorrowedFd<'a>,
    /// None: nothing for now, not even the other end's closing.
    flags: Option<PollFlags>,
    birth: u64,
}

impl<'a, K> Interest<'a, K> {
    /// In a descriptor that is there as long as the daemon, or at least is never followed by another one for the same key.
    pub(super) fn new(key: K, fd: BorrowedFd<'a>, flags: Option<PollFlags>) -> Self {
        Self { key, fd, flags, birth: 0 }
    }

    /// Tells the descriptor from an earlier one of the same number.
    pub(super) fn born(self, birth: u64) -> Self {
        Self { birth, ..self }
    }

    /// The same for somebody else.
    pub(super) fn with<L>(self, key: L) -> Interest<'a, L> {
        Interest { key, fd: self.fd, flags: self.flags, birth: self.birth }
    }

    fn watched(&self) -> Watched {
        Watched { fd: self.fd.as_raw_fd(), flags: self.flags, birth: self.birth }
    }
}

/// What the kernel knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Watched {
    fd: RawFd,
    flags: Option<PollFlags>,
    birth: u64,
}

impl Watched {
    fn is_same(&self, other: &Self) -> bool {
        (self.fd, self.birth) == (other.fd, other.birth)
    }
}

/// Waits.
#[derive(Debug, Default)]
pub(super) struct Poller {
    /// None: not yet, or the kernel's list can't be trusted any more.
    epoll: Option<OwnedFd>,
    watched: Vec<Watched>,
}

impl Poller {
    /// Waits until one of these has come true, no longer than `timeout`; those that have.
    pub(super) fn wait<K: Copy>(&mut self, interests: &[Interest<'_, K>], timeout: &Timespec) -> Vec<K> {
        let Ok(epoll) = self.update(interests) else {
            self.forget();
            return poll_all(interests, timeout);
        };
        let mut events = Vec::with_capacity(EVENTS);
        if epoll::wait(epoll, spare_capacity(&mut events), Some(timeout)).is_err() {
            return Vec::new();
        }
        let mut hits = Vec::with_capacity(events.len());
        for event in &events {
            let number = event.data.u64();
            let mut known = interests.iter().filter(|i| i.fd.as_raw_fd() as u64 == number).peekable();
            if known.peek().is_none() {
                // Closed here, but a child that has not come to its program yet has it open.
                self.forget();
            }
            hits.extend(known.map(|interest| interest.key));
        }
        hits
    }

    fn forget(&mut self) {
        self.epoll = None;
        self.watched.clear();
    }

    /// Tells the kernel what is different from the last time.
    fn update<K>(&mut self, interests: &[Interest<'_, K>]) -> Result<&OwnedFd, Errno> {
        let epoll = match self.epoll.take() {
            Some(epoll) => epoll,
            None => epoll::create(CreateFlags::CLOEXEC)?,
        };
        let same = interests.len() == self.watched.len()
            && interests.iter().zip(&self.watched).all(|(interest, known)| interest.watched() == *known);
        if !same {
            // Most stand where they stood, or a few places before.
            let mut hint = 0;
            for interest in interests {
                let new = interest.watched();
                let after = self.watched[hint..].iter().position(|old| old.is_same(&new)).map(|at| hint + at);
                let at = after.or_else(|| self.watched.iter().position(|old| old.is_same(&new)));
                hint = at.map_or(hint, |at| at + 1);
                let old = at.and_then(|at| self.watched[at].flags);
                tell(&epoll, interest.fd, old, new.flags)?;
            }
            self.watched.clear();
            self.watched.extend(interests.iter().map(Interest::watched));
        }
        Ok(self.epoll.insert(epoll))
    }
}

/// What has been closed meanwhile the kernel has forgotten by itself.
fn tell(epoll: &OwnedFd, fd: BorrowedFd<'_>, old: Option<PollFlags>, new: Option<PollFlags>) -> Result<(), Errno> {
    let data = EventData::new_u64(fd.as_raw_fd() as u64);
    // The bits are the same: poll(2), epoll_ctl(2).
    let flags = |flags: PollFlags| EventFlags::from_bits_truncate(u32::from(flags.bits()));
    match (old, new) {
        (None, Some(new)) => epoll::add(epoll, fd, data, flags(new)),
        (Some(_), None) => epoll::delete(epoll, fd),
        (Some(old), Some(new)) if old != new => epoll::modify(epoll, fd, data, flags(new)),
        _ => Ok(()),
    }
}

/// The same without the kernel's list.
fn poll_all<K: Copy>(interests: &[Interest<'_, K>], timeout: &Timespec) -> Vec<K> {
    let wanted: Vec<(K, BorrowedFd<'_>, PollFlags)> =
        interests.iter().filter_map(|i| Some((i.key, i.fd, i.flags?))).collect();
    let mut fds: Vec<PollFd<'_>> = wanted.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
    match poll(&mut fds, Some(timeout)) {
        Ok(0) | Err(_) => Vec::new(),
        Ok(_) => {
            let hit = wanted.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
            hit.map(|((key, ..), _)| *key).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    use rustix::event::{PollFlags, Timespec};

    use super::{Interest, Poller, poll_all};
    use crate::stepd::streams::pipe;

    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    fn reading(key: usize, pipe: &File) -> Interest<'_, usize> {
        Interest::new(key, pipe.as_fd(), Some(PollFlags::IN))
    }

    /// As the kernel's list says it, and as it is without.
    fn wait(poller: &mut Poller, interests: &[Interest<'_, usize>]) -> Vec<usize> {
        let mut hits = poller.wait(interests, &NOW);
        hits.sort_unstable();
        assert_eq!(hits, poll_all(interests, &NOW));
        hits
    }

    #[test]
    fn what_has_come_is_told_whatever_changed_between() {
        let (mut poller, pipes) = (Poller::default(), [(); 3].map(|()| pipe().unwrap()));
        let all = || pipes.iter().enumerate().map(|(key, (read, _))| reading(key, read));
        assert_eq!(wait(&mut poller, &all().collect::<Vec<_>>()), []);
        (&pipes[1].1).write_all(b"x").unwrap();
        assert_eq!(wait(&mut poller, &all().collect::<Vec<_>>()), [1]);
        // As long as it was not read, and with other places and keys.
        let other: Vec<_> = all().rev().map(|interest| Interest { key: interest.key + 10, ..interest }).collect();
        assert_eq!(wait(&mut poller, &other), [11]);
        assert_eq!(wait(&mut poller, &all().skip(1).map(|i| i.with(5)).collect::<Vec<_>>()), [5]);
        let none: Vec<_> = all().map(|interest| Interest { flags: None, ..interest }).collect();
        assert_eq!(wait(&mut poller, &none), []);
        assert_eq!(wait(&mut poller, &all().collect::<Vec<_>>()), [1]);
        let mut byte = [0];
        (&pipes[1].0).read_exact(&mut byte).unwrap();
        assert_eq!(wait(&mut poller, &all().collect::<Vec<_>>()), []);
    }

    #[test]
    fn the_other_ends_closing_is_told_unless_nothing_is_wanted() {
        let (mut poller, (read, write)) = (Poller::default(), pipe().unwrap());
        let closing = [Interest::new(1, read.as_fd(), Some(PollFlags::empty()))];
        assert_eq!(wait(&mut poller, &closing), []);
        drop(write);
        // A process that another test starts may have the other end for a moment more.
        while wait(&mut poller, &closing).is_empty() {}
        assert_eq!(wait(&mut poller, &[Interest::new(1, read.as_fd(), None)]), []);
        assert_eq!(wait(&mut poller, &[reading(1, &read)]), [1]);
    }

    #[test]
    fn one_that_takes_anothers_number_is_another_one() {
        let mut poller = Poller::default();
        for birth in 1..20 {
            let (read, mut write) = pipe().unwrap();
            assert_eq!(wait(&mut poller, &[reading(7, &read).born(birth)]), []);
            write.write_all(b"x").unwrap();
            assert_eq!(wait(&mut poller, &[reading(7, &read).born(birth)]), [7]);
        }
    }

    #[test]
    fn a_file_that_epoll_does_not_take_is_always_ready() {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let (mut poller, (read, _write)) = (Poller::default(), pipe().unwrap());
        assert_eq!(wait(&mut poller, &[reading(1, &read), reading(2, &file)]), [2]);
        assert_eq!(wait(&mut poller, &[reading(1, &read)]), []);
    }
}
