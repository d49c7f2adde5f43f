//! Exits of tasks: the messages that srun prints about them, and srun's exit status.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use squall_model::hostlist::compress;
use squall_model::job::ExitCode;
use squall_model::set::IndexSet;
use squall_model::step::Layout;

use squall_text::options::values::signal::signal_text;

/// Time within which exits of tasks are collected, to be reported in one message.
const GATHER: Duration = Duration::from_millis(50);

const KILL: u8 = 9;
const TERM: u8 = 15;

/// Collects the exits of a step's tasks, for messages and for srun's exit status.
#[derive(Debug, Default)]
pub(crate) struct Exits {
    waiting: Vec<(ExitCause, IndexSet)>,
    since: Option<Instant>,
    worst: ExitCode,
    oom: bool,
    oom_told: bool,
    any: bool,
    /// Number printed for rank 0. In a step of several components ranks are counted across all of them.
    first: u32,
    /// Whether some task was ended by the signal KILL or TERM.
    pub(crate) killed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExitCause {
    Memory,
    Code(u8),
    Signal(u8),
}

impl Exits {
    /// Creates an empty collection of exits; rank 0 is printed as `first`.
    pub(crate) fn new(first: u32) -> Self {
        Self { first, ..Self::default() }
    }

    /// Records the exit of a task; `oom`: it ran out of memory.
    pub(crate) fn add(&mut self, now: Instant, rank: u32, exit: ExitCode, oom: bool) {
        self.any = true;
        self.oom |= oom;
        self.killed |= !oom && [KILL, TERM].contains(&exit.signal);
        // A signal counts as worse than any exit code; of two signals or codes, the higher is worse.
        if (exit.signal, exit.code) > (self.worst.signal, self.worst.code) {
            self.worst = exit;
        }
        let how = match exit {
            _ if oom => ExitCause::Memory,
            ExitCode { signal: 0, code: 0 } => return,
            ExitCode { signal: 0, code } => ExitCause::Code(code),
            ExitCode { signal, .. } => ExitCause::Signal(signal),
        };
        self.since.get_or_insert(now);
        match self.waiting.iter_mut().find(|(known, _)| *known == how) {
            Some((_, ranks)) => {
                ranks.insert(rank);
            }
            None => self.waiting.push((how, [rank].into_iter().collect())),
        }
    }

    /// Returns when [`Exits::messages`] must be called next. None: no message is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.since.map(|since| since + GATHER)
    }

    /// Returns the messages that are due (with `end` all of them), without the prefix `srun: error: `.
    pub(crate) fn messages(&mut self, now: Instant, end: bool, layout: &Layout) -> Vec<String> {
        if self.deadline().is_none_or(|due| due > now && !end) {
            return Vec::new();
        }
        self.since = None;
        let mut messages = Vec::new();
        for (how, ranks) in std::mem::take(&mut self.waiting) {
            let what = match how {
                ExitCause::Memory if std::mem::replace(&mut self.oom_told, true) => continue,
                ExitCause::Memory => "Out Of Memory".to_owned(),
                ExitCause::Code(code) => format!("Exited with exit code {code}"),
                ExitCause::Signal(signal) => signal_text(i32::from(signal)),
            };
            let word = if ranks.len() == 1 { "task" } else { "tasks" };
            let shown: IndexSet = ranks.iter().map(|rank| rank.saturating_add(self.first)).collect();
            messages.push(format!("{}: {word} {shown}: {what}", hosts(&ranks, layout)));
        }
        messages
    }

    /// Returns whether any task has exited.
    pub(crate) fn any(&self) -> bool {
        self.any
    }

    /// Returns the worst exit of a task, which is reported to accounting: that a task ran out of memory is the worst.
    pub(crate) fn worst(&self) -> ExitCode {
        if self.oom { ExitCode::OUT_OF_MEMORY } else { self.worst }
    }

    /// Returns srun's exit status, derived from its tasks' exits.
    pub(crate) fn status(&self) -> u8 {
        if self.oom { 1 } else { self.worst.shell_status() as u8 }
    }
}

/// Returns the names of the nodes of these ranks: `n[1-4]`.
fn hosts(ranks: &IndexSet, layout: &Layout) -> String {
    let nodes: BTreeSet<usize> = ranks.iter().filter_map(|rank| layout.node_of(rank)).collect();
    let all = layout.nodes.names();
    let names = compress(nodes.into_iter().filter_map(|node| all.get(node)));
    if names.is_empty() { "Unknown".to_owned() } else { names }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use squall_model::job::ExitCode;
    use squall_model::step::{Distribution, Layout};

    use super::Exits;

    fn told(ends: &[(u32, u8, u8, bool)]) -> (Vec<String>, u8) {
        let layout = Layout {
            nodes: (1..=4).map(|n| format!("n{n}")).collect(),
            tasks: vec![1, 1, 1, 2].into(),
            distribution: Distribution::Block,
            cpus_per_task: 1,
            ports: None,
        };
        let now = Instant::now();
        let mut exits = Exits::default();
        for (rank, code, signal, oom) in ends {
            exits.add(now, *rank, ExitCode { code: *code, signal: *signal }, *oom);
        }
        assert!(exits.messages(now, false, &layout).is_empty());
        (exits.messages(now + Duration::from_millis(60), false, &layout), exits.status())
    }

    #[test]
    fn messages_are_slurms() {
        assert_eq!(told(&[(0, 5, 0, false)]), (vec!["n1: task 0: Exited with exit code 5".into()], 5));
        assert_eq!(told(&[(3, 0, 9, false)]), (vec!["n4: task 3: Killed".into()], 137));
        assert_eq!(
            told(&[(0, 1, 0, false), (1, 1, 0, false), (2, 1, 0, false), (3, 1, 0, false)]),
            (vec!["n[1-4]: tasks 0-3: Exited with exit code 1".into()], 1)
        );
        assert_eq!(told(&[(0, 0, 0, false)]), (vec![], 0));
        assert_eq!(
            told(&[(0, 3, 0, false), (3, 0, 15, false), (4, 0, 15, false), (1, 200, 0, false)]),
            (
                vec![
                    "n1: task 0: Exited with exit code 3".into(),
                    "n4: tasks 3-4: Terminated".into(),
                    "n2: task 1: Exited with exit code 200".into()
                ],
                143
            )
        );
        assert_eq!(told(&[(2, 0, 9, true)]), (vec!["n3: task 2: Out Of Memory".into()], 1));
    }
}
