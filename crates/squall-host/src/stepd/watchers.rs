//! Those who watch a step beside its `srun`: they hear what was said last, and all that comes then.

use std::collections::{BTreeSet, VecDeque};

use squall_model::step::{FromStep, ToStep};

use super::frames::{Filled, Frames};

/// What a watcher hears of what was said before it came: so many frames, of so many bytes.
const KEPT_FRAMES: usize = 128;
const KEPT_BYTES: usize = 64 << 10;

/// Most bytes that wait for a watcher; one that reads more slowly is left behind.
const BACKLOG_BYTES_MAX: usize = 4 << 20;

/// Most watchers at a time.
const WATCHERS_MAX: usize = 16;

/// The watchers of a step on its node.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    links: Vec<Frames>,
    /// Places of those that have gone, until `sweep`.
    gone: BTreeSet<usize>,
    /// What tasks wrote last.
    kept: VecDeque<FromStep>,
    kept_bytes: usize,
    /// How tasks ended.
    ends: Vec<FromStep>,
}

impl Watchers {
    /// One more; `started`: the tasks that were started.
    pub(super) fn add(&mut self, mut link: Frames, started: Vec<(u32, u32)>) {
        if self.links.len() >= WATCHERS_MAX {
            return;
        }
        link.queue(&FromStep::Started(started));
        self.kept.iter().chain(&self.ends).for_each(|frame| link.queue(frame));
        link.flush();
        self.links.push(link);
    }

    /// What `srun` hears, as far as it concerns them.
    pub(super) fn tell(&mut self, frame: &FromStep) {
        match frame {
            // The end of a stream is nothing to be told later.
            FromStep::Output { bytes, .. } if !bytes.is_empty() => {
                self.kept.push_back(frame.clone());
                self.kept_bytes += bytes.len();
                while self.kept.len() > KEPT_FRAMES || (self.kept_bytes > KEPT_BYTES && self.kept.len() > 1) {
                    let Some(FromStep::Output { bytes, .. }) = self.kept.pop_front() else { break };
                    self.kept_bytes -= bytes.len();
                }
            }
            FromStep::Exited { .. } | FromStep::Failed { .. } => self.ends.push(frame.clone()),
            FromStep::Output { .. } | FromStep::Done => {}
            _ => return,
        }
        for (at, link) in self.links.iter_mut().enumerate() {
            // One that has gone takes nothing.
            link.send(frame);
            if link.backlog() > BACKLOG_BYTES_MAX {
                self.gone.insert(at);
            }
        }
    }

    /// Forgets those that have gone. Places are different afterwards.
    pub(super) fn sweep(&mut self) {
        for at in std::mem::take(&mut self.gone).into_iter().rev() {
            self.links.remove(at);
        }
    }

    /// Their links, to be polled.
    pub(super) fn links(&self) -> &[Frames] {
        &self.links
    }

    /// What one says to the tasks: for whom, and what.
    pub(super) fn hear(&mut self, at: usize) -> Vec<(Option<u32>, Vec<u8>)> {
        let Some(link) = self.links.get_mut(at) else { return Vec::new() };
        link.flush();
        let mut gone = link.fill() == Filled::Closed;
        let mut said = Vec::new();
        loop {
            match link.take::<ToStep>() {
                // That it says no more is no end of the tasks' input.
                Ok(Some(ToStep::Input { rank, bytes })) if !bytes.is_empty() => said.push((rank, bytes.into_vec())),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => {
                    gone = true;
                    break;
                }
            }
        }
        if gone {
            self.gone.insert(at);
        }
        said
    }

    /// Whether they have got all that was said.
    pub(super) fn is_flushed(&self) -> bool {
        self.links.iter().enumerate().all(|(at, link)| link.backlog() == 0 || self.gone.contains(&at))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use squall_model::step::FromStep;

    use super::{Frames, KEPT_BYTES, Watchers};

    fn output(byte: u8, length: usize) -> FromStep {
        FromStep::Output { rank: 0, stderr: false, bytes: vec![byte; length].into() }
    }

    /// What a watcher who comes now hears at once.
    fn heard(watchers: &mut Watchers) -> Vec<FromStep> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        watchers.add(Frames::new(ours).unwrap(), vec![(0, 7)]);
        let mut link = Frames::new(theirs).unwrap();
        let mut frames = Vec::new();
        loop {
            link.fill();
            match link.take() {
                Ok(Some(frame)) => frames.push(frame),
                _ => return frames,
            }
        }
    }

    #[test]
    fn who_comes_late_hears_the_last_words_and_all_ends() {
        let mut watchers = Watchers::default();
        assert_eq!(heard(&mut watchers), [FromStep::Started(vec![(0, 7)])]);
        let end = FromStep::Exited { rank: 1, exit: squall_model::job::ExitCode::OK, oom: false };
        for frame in [output(1, KEPT_BYTES / 2), end.clone(), output(2, 9), FromStep::Within(true), output(3, 0)] {
            watchers.tell(&frame);
        }
        let expected = [FromStep::Started(vec![(0, 7)]), output(1, KEPT_BYTES / 2), output(2, 9), end.clone()];
        assert_eq!(heard(&mut watchers), expected);
        watchers.tell(&output(4, KEPT_BYTES / 2));
        assert_eq!(heard(&mut watchers)[1..], [output(2, 9), output(4, KEPT_BYTES / 2), end]);
        (0..1000).for_each(|n| watchers.tell(&output(n as u8, 1)));
        assert_eq!(heard(&mut watchers).len(), 128 + 2);
    }
}
