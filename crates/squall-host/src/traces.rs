//! What a step daemon that died has left: how tasks ended, and which may still run.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use squall_model::id::StepKey;
use squall_model::job::{ExitCode, Usage};

use crate::cgroup::members;
use crate::processes::{self, Stat};
use crate::spool::{Spool, TaskPid};

/// How often, and how long apart, it is looked for tasks that have not noted themselves: one whose parent died in the
/// moment of its start is about to do so, and goes on whatever became of its parent.
const LOOKS: u32 = 100;
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// Traces of the tasks of a step on this node.
#[derive(Debug)]
pub(crate) struct Traces {
    /// Ranks of the tasks, by place.
    pub(crate) ranks: Vec<u32>,
    /// Tasks whose end was noted, by rank.
    pub(crate) ended: BTreeMap<u32, (ExitCode, Usage)>,
    /// Tasks that were started and whose end was not noted, by rank.
    pub(crate) started: BTreeMap<u32, TaskPid>,
}

impl Traces {
    /// The traces of a step, to be read after its daemon's death. `group`: the cgroup that all
    /// its processes were born in, if that is so; with nobody in it nobody is waited for.
    pub(crate) fn of(spool: &Spool, key: StepKey, group: Option<&Path>) -> Self {
        let ranks = spool.ranks(key);
        let ended = ended(spool, key, &ranks);
        let noted = spool.tasks(key).into_iter().filter(|task| !ended.contains_key(&task.rank));
        let started = noted.map(|task| (task.rank, task)).collect();
        let mut traces = Self { ranks, ended, started };
        for look in 0..LOOKS {
            if traces.missing().is_empty() {
                break;
            }
            if look > 0 {
                std::thread::sleep(LOOK_PAUSE);
            }
            let may_come = group.is_none_or(|group| !members(group).is_empty());
            let noted = spool.tasks(key).into_iter().filter(|task| !traces.ended.contains_key(&task.rank));
            traces.started.extend(noted.map(|task| (task.rank, task)));
            if !may_come {
                break;
            }
            if look == LOOKS - 1 {
                traces.started.extend(unnoted(&spool.steps_dir(), key, spool.owner(key)));
            }
        }
        traces.correct(spool, key);
        traces
    }

    /// Where a note names no process that lives, and a task of that rank does, the note is damaged: that is the task.
    fn correct(&mut self, spool: &Spool, key: StepKey) {
        let lives = |task: &TaskPid| Stat::of(task.pid).is_some_and(|stat| task.is(&stat));
        if self.started.values().all(lives) {
            return;
        }
        let own = |task: &TaskPid| processes::variable(task.pid, "SLURM_TASK_PID") == Some(task.pid.to_string().into());
        let found = unnoted(&spool.steps_dir(), key, spool.owner(key)).into_iter().filter(|(_, task)| own(task));
        for (rank, task) in found {
            self.started.entry(rank).and_modify(|noted| *noted = task);
        }
    }

    /// Whether no task was started: what can't note itself does not run.
    pub(crate) fn is_blank(&self) -> bool {
        self.ended.is_empty() && self.started.is_empty()
    }

    /// Ranks of which nothing is known.
    pub(crate) fn missing(&self) -> Vec<u32> {
        let known = |rank: &u32| self.ended.contains_key(rank) || self.started.contains_key(rank);
        self.ranks.iter().copied().filter(|rank| !known(rank)).collect()
    }
}

/// Tasks whose end was noted, by rank.
pub(crate) fn ended(spool: &Spool, key: StepKey, ranks: &[u32]) -> BTreeMap<u32, (ExitCode, Usage)> {
    let exits = spool.exits(key).into_iter();
    exits.filter_map(|(place, exit, usage)| Some((*ranks.get(place)?, (exit, usage)))).collect()
}

/// Tasks that the step daemon started and did not come to note: marked processes by the rank in their
/// environment, the oldest of each.
fn unnoted(steps: &Path, key: StepKey, user: u32) -> BTreeMap<u32, TaskPid> {
    let name = key.to_string();
    let mut found: BTreeMap<u32, TaskPid> = BTreeMap::new();
    let marked = processes::marked(steps).into_iter();
    for (pid, _) in marked.filter(|(pid, of)| *of == name && processes::may_belong(*pid, user)) {
        let rank = processes::variable(pid, "SLURM_PROCID").and_then(|value| String::from_utf8(value).ok());
        let Some((rank, stat)) = rank.and_then(|text| text.parse().ok()).zip(Stat::of(pid)) else { continue };
        let task = TaskPid { rank, pid, start: stat.start };
        if found.get(&rank).is_none_or(|older| (task.start, task.pid) < (older.start, older.pid)) {
            found.insert(rank, task);
        }
    }
    found
}
