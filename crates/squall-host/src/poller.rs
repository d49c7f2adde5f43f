//! Waits for many descriptors at once. The kernel keeps the list (epoll), so that the cost depends on the events and
//! not on the number of descriptors; it is updated only with the changes since the last wait.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Most events that one wait returns; further ones are returned by the next.
const EVENTS: usize = 64;

/// A descriptor with the events to wait for.
#[derive(Clone, Copy, Debug)]
pub struct Interest<'a, K> {
    /// Key that is returned when an event occurs.
    pub key: K,
    fd: BorrowedFd<'a>,
    flags: Option<PollFlags>,
    birth: u64,
}

impl<'a, K> Interest<'a, K> {
    /// Makes an interest in the descriptor `fd`. `flags` as of poll(2); None: no events for now, not even the other
    /// end's closing.
    pub fn new(key: K, fd: BorrowedFd<'a>, flags: Option<PollFlags>) -> Self {
        Self { key, fd, flags, birth: 0 }
    }

    /// Sets a number that distinguishes the descriptor from an earlier one with the same key and file number.
    #[must_use]
    pub fn born(self, birth: u64) -> Self {
        Self { birth, ..self }
    }

    /// Returns this interest with another key.
    pub fn with<L>(self, key: L) -> Interest<'a, L> {
        Interest { key, fd: self.fd, flags: self.flags, birth: self.birth }
    }

    fn entry(&self) -> Entry<K>
    where
        K: Copy,
    {
        Entry { key: self.key, fd: self.fd.as_raw_fd(), flags: self.flags, birth: self.birth }
    }
}

/// An entry of the kernel's list. The number of a closed descriptor is soon used again, so two entries are the same
/// descriptor only if all fields are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry<K> {
    key: K,
    fd: RawFd,
    flags: Option<PollFlags>,
    birth: u64,
}

/// Waits for descriptors in a list that changes little between two waits. Descriptors that stay open must stay in the
/// list, if need be without flags; closed ones must be left out of the next wait.
#[derive(Debug)]
pub struct Poller<K> {
    /// Descriptor of the kernel's list; None: it is not made yet, or the list can't be trusted any more.
    epoll: Option<OwnedFd>,
    entries: Vec<Entry<K>>,
    /// Descriptors that epoll rejects, such as files: they are always ready.
    ready: BTreeSet<RawFd>,
}

impl<K> Default for Poller<K> {
    fn default() -> Self {
        Self { epoll: None, entries: Vec::new(), ready: BTreeSet::new() }
    }
}

impl<K: Copy + PartialEq> Poller<K> {
    /// Waits for at most `timeout` (None: without limit) until an event occurs; returns the keys of the ready
    /// descriptors.
    pub fn wait(&mut self, interests: &[Interest<'_, K>], timeout: Option<&Timespec>) -> Vec<K> {
        if self.update(interests).is_err() {
            self.forget();
            return poll_all(interests, timeout);
        }
        let is_ready = |interest: &Interest<'_, K>| {
            !self.ready.is_empty() && interest.flags.is_some() && self.ready.contains(&interest.fd.as_raw_fd())
        };
        let mut hits: Vec<K> = interests.iter().filter(|i| is_ready(i)).map(|i| i.key).collect();
        let timeout = if hits.is_empty() { timeout } else { Some(&Timespec { tv_sec: 0, tv_nsec: 0 }) };
        let mut events = Vec::with_capacity(EVENTS);
        let waited = self.epoll.as_ref().map(|epoll| epoll::wait(epoll, spare_capacity(&mut events), timeout));
        if !matches!(waited, Some(Ok(_))) {
            return hits;
        }
        for event in &events {
            let number = event.data.u64();
            let known = hits.len();
            let wanted = interests.iter().filter(|i| i.fd.as_raw_fd() as u64 == number && i.flags.is_some());
            hits.extend(wanted.map(|i| i.key));
            if hits.len() == known {
                // E.g. closed here, while a child that has not executed its program yet still has it open.
                self.forget();
            }
        }
        hits
    }

    fn forget(&mut self) {
        *self = Self::default();
    }

    /// Updates the kernel's list with the changes since the last wait.
    fn update(&mut self, interests: &[Interest<'_, K>]) -> Result<(), Errno> {
        let epoll = match self.epoll.take() {
            Some(epoll) => epoll,
            None => epoll::create(CreateFlags::CLOEXEC)?,
        };
        // From an inserted or removed entry on, positions are shifted.
        let (old, new) = (self.entries.len(), interests.len());
        let mut other = false;
        for (at, interest) in interests.iter().enumerate() {
            let entry = interest.entry();
            if !other && self.entries.get(at) == Some(&entry) {
                continue;
            }
            other |= old != new;
            let before = self.entries.get((at + old).saturating_sub(new)).or_else(|| self.entries.get(at));
            let known = before.is_some_and(|before| before.fd == entry.fd && before.flags.is_some());
            if tell(&epoll, interest, known)? {
                self.ready.remove(&entry.fd);
            } else {
                self.ready.insert(entry.fd);
            }
        }
        self.entries.clear();
        self.entries.extend(interests.iter().map(Interest::entry));
        self.epoll = Some(epoll);
        Ok(())
    }
}

/// Updates one entry of the kernel's list. False: epoll rejects this kind of descriptor. `known`: the descriptor is
/// probably in the list.
fn tell<K>(epoll: &OwnedFd, interest: &Interest<'_, K>, known: bool) -> Result<bool, Errno> {
    let fd = interest.fd;
    let data = EventData::new_u64(fd.as_raw_fd() as u64);
    let Some(flags) = interest.flags else {
        if known {
            // Fails if it was a file, which is not in the list.
            let _ = epoll::delete(epoll, fd);
        }
        return Ok(true);
    };
    // poll(2) and epoll_ctl(2) use the same bits.
    let flags = EventFlags::from_bits_truncate(u32::from(flags.bits()));
    let told = if known { epoll::modify(epoll, fd, data, flags) } else { epoll::add(epoll, fd, data, flags) };
    let told = match told {
        Err(Errno::NOENT) => epoll::add(epoll, fd, data, flags),
        Err(Errno::EXIST) => epoll::modify(epoll, fd, data, flags),
        told => told,
    };
    match told {
        Err(Errno::PERM) => Ok(false),
        told => told.map(|()| true),
    }
}

/// Waits like `Poller::wait`, but with poll(2) instead of the kernel's list.
fn poll_all<K: Copy>(interests: &[Interest<'_, K>], timeout: Option<&Timespec>) -> Vec<K> {
    let wanted: Vec<(K, BorrowedFd<'_>, PollFlags)> =
        interests.iter().filter_map(|i| Some((i.key, i.fd, i.flags?))).collect();
    let mut fds: Vec<PollFd<'_>> = wanted.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
    match poll(&mut fds, timeout) {
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
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::{Interest, Poller, poll_all};

    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    fn pipe() -> std::io::Result<(File, File)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok((File::from(read), File::from(write)))
    }

    fn reading(key: usize, pipe: &File) -> Interest<'_, usize> {
        Interest::new(key, pipe.as_fd(), Some(PollFlags::IN))
    }

    /// Waits with and without the kernel's list, and checks that both return the same.
    fn wait(poller: &mut Poller<usize>, interests: &[Interest<'_, usize>]) -> Vec<usize> {
        let mut hits = poller.wait(interests, Some(&NOW));
        hits.sort_unstable();
        assert_eq!(hits, poll_all(interests, Some(&NOW)));
        hits
    }

    #[test]
    fn what_has_come_is_told_whatever_changed_between() {
        let (mut poller, pipes) = (Poller::default(), [(); 3].map(|()| pipe().unwrap()));
        let all = || pipes.iter().enumerate().map(|(key, (read, _))| reading(key, read));
        assert_eq!(wait(&mut poller, &all().collect::<Vec<_>>()), Vec::<usize>::new());
        (&pipes[1].1).write_all(b"x").unwrap();
        assert_eq!(wait(&mut poller, &all().collect::<Vec<_>>()), [1]);
        // Still ready until it was read, also at other positions and with other keys.
        let other: Vec<_> = all().rev().map(|interest| Interest { key: interest.key + 10, ..interest }).collect();
        assert_eq!(wait(&mut poller, &other), [11]);
        assert_eq!(wait(&mut poller, &all().map(|i| i.with(i.key + 4)).collect::<Vec<_>>()), [5]);
        let none: Vec<_> = all().map(|interest| Interest { flags: None, ..interest }).collect();
        assert_eq!(wait(&mut poller, &none), Vec::<usize>::new());
        assert_eq!(wait(&mut poller, &all().collect::<Vec<_>>()), [1]);
        let mut byte = [0];
        (&pipes[1].0).read_exact(&mut byte).unwrap();
        assert_eq!(wait(&mut poller, &all().collect::<Vec<_>>()), Vec::<usize>::new());
    }

    #[test]
    fn the_other_ends_closing_is_told_unless_nothing_is_wanted() {
        let (mut poller, (read, write)) = (Poller::default(), pipe().unwrap());
        let closing = [Interest::new(1, read.as_fd(), Some(PollFlags::empty()))];
        assert_eq!(wait(&mut poller, &closing), Vec::<usize>::new());
        drop(write);
        // A child of another test may hold the other end open for a moment.
        while wait(&mut poller, &closing).is_empty() {}
        assert_eq!(wait(&mut poller, &[Interest::new(1, read.as_fd(), None)]), Vec::<usize>::new());
        assert_eq!(wait(&mut poller, &[reading(1, &read)]), [1]);
    }

    #[test]
    fn one_that_takes_anothers_number_is_another_one() {
        let mut poller = Poller::default();
        for birth in 1..20 {
            let (read, mut write) = pipe().unwrap();
            assert_eq!(wait(&mut poller, &[reading(7, &read).born(birth)]), Vec::<usize>::new());
            write.write_all(b"x").unwrap();
            assert_eq!(wait(&mut poller, &[reading(7, &read).born(birth)]), [7]);
        }
    }

    #[test]
    fn one_for_another_key_is_another_one() {
        let mut poller = Poller::default();
        for key in 1..20 {
            let (read, mut write) = pipe().unwrap();
            assert_eq!(wait(&mut poller, &[reading(key, &read)]), Vec::<usize>::new());
            write.write_all(b"x").unwrap();
            assert_eq!(wait(&mut poller, &[reading(key, &read)]), [key]);
        }
    }

    #[test]
    fn one_that_takes_the_number_of_one_before_it_is_not_missed() {
        let (mut poller, (first, _first)) = (Poller::default(), pipe().unwrap());
        for _ in 1..20 {
            let (gone, _gone) = pipe().unwrap();
            assert_eq!(wait(&mut poller, &[reading(1, &gone), reading(2, &first)]), Vec::<usize>::new());
            drop(gone);
            let (read, mut write) = pipe().unwrap();
            write.write_all(b"x").unwrap();
            assert_eq!(wait(&mut poller, &[reading(2, &first), reading(3, &read)]), [3]);
        }
    }

    #[test]
    fn a_file_that_epoll_does_not_take_is_always_ready() {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let (mut poller, (read, _write)) = (Poller::default(), pipe().unwrap());
        for _ in 0..2 {
            assert_eq!(wait(&mut poller, &[reading(1, &read), reading(2, &file)]), [2]);
        }
        assert_eq!(wait(&mut poller, &[reading(1, &read), Interest::new(2, file.as_fd(), None)]), Vec::<usize>::new());
        assert_eq!(wait(&mut poller, &[reading(1, &read)]), Vec::<usize>::new());
    }
}
