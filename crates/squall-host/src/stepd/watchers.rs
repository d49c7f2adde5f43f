//! Commands besides `srun` that receive a step's output (`sattach`): first its latest part, then all that follows.

use std::collections::{BTreeSet, VecDeque};

use squall_model::step::{FromStep, ToStep};

use super::frames::{Filled, Frames};

/// Most frames of earlier output that are kept for new watchers.
const KEPT_FRAMES: usize = 128;
/// Most bytes of earlier output that are kept for new watchers.
const KEPT_BYTES: usize = 64 << 10;

/// Most bytes that may be queued for a watcher; a slower one is disconnected.
const BACKLOG_BYTES_MAX: usize = 4 << 20;

/// Most watchers at a time.
const WATCHERS_MAX: usize = 16;

/// The commands that watch a step on this node (`sattach`).
#[derive(Debug, Default)]
pub(super) struct Watchers {
    links: Vec<Frames>,
    /// Indexes of watchers that have disconnected, until `sweep`.
    gone: BTreeSet<usize>,
    /// The latest output of the tasks.
    kept: VecDeque<FromStep>,
    kept_bytes: usize,
    /// Frames that report the ends of tasks, for later watchers.
    ends: Vec<FromStep>,
}

impl Watchers {
    /// Adds a watcher, unless there are too many; `started`: the tasks that were started.
    pub(super) fn add(&mut self, mut link: Frames, started: Vec<(u32, u32)>) {
        if self.links.len() >= WATCHERS_MAX {
            return;
        }
        link.queue(&FromStep::Started(started));
        self.kept.iter().chain(&self.ends).for_each(|frame| link.queue(frame));
        link.flush();
        self.links.push(link);
    }

    /// Passes a frame for `srun` on to the watchers, if it is of a kind that they receive.
    pub(super) fn tell(&mut self, frame: &FromStep) {
        match frame {
            // The end of a stream is not repeated to later watchers.
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
            // Sending to a disconnected one has no effect.
            link.send(frame);
            if link.backlog() > BACKLOG_BYTES_MAX {
                self.gone.insert(at);
            }
        }
    }

    /// Removes disconnected watchers. The indexes of other watchers are different afterwards.
    pub(super) fn sweep(&mut self) {
        for at in std::mem::take(&mut self.gone).into_iter().rev() {
            self.links.remove(at);
        }
    }

    /// Returns the watchers' links, for polling.
    pub(super) fn links(&self) -> &[Frames] {
        &self.links
    }

    /// Receives input for tasks from a watcher: (rank or None for all, bytes).
    pub(super) fn hear(&mut self, at: usize) -> Vec<(Option<u32>, Vec<u8>)> {
        let Some(link) = self.links.get_mut(at) else { return Vec::new() };
        link.flush();
        let mut gone = link.fill() == Filled::Closed;
        let mut said = Vec::new();
        loop {
            match link.take::<ToStep>() {
                // The end of a watcher's input is not the end of the tasks' input.
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

    /// Whether all queued frames were sent.
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

    /// Returns the frames that a new watcher receives at once.
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
