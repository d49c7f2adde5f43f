//! What a dead step daemon has left: the recorded ends of tasks, and tasks that may still run.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use squall_model::id::StepKey;
use squall_model::job::{ExitCode, Usage};

use crate::cgroup::members;
use crate::processes::{self, Stat};
use crate::spool::{Spool, TaskPid};

/// Most checks for tasks that have not written their record in the spool. A task that lost its parent at the moment
/// of its start is about to record itself, and continues independently of its parent.
const LOOKS: u32 = 100;
/// Pause between two checks for tasks that have not written their record.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// Records of the tasks of a step on this node.
#[derive(Debug)]
pub(crate) struct Traces {
    /// Ranks of the tasks, in the order of the launch.
    pub(crate) ranks: Vec<u32>,
    /// Tasks with a recorded end, by rank.
    pub(crate) ended: BTreeMap<u32, (ExitCode, Usage)>,
    /// Tasks that were started and have no recorded end, by rank.
    pub(crate) started: BTreeMap<u32, TaskPid>,
}

impl Traces {
    /// Reads the records of a step after its daemon's death. `group`: the cgroup in which all its processes were
    /// created, if there is one; when it is empty, no task is waited for.
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

    /// Corrects damaged records: where a record names no running process, but a running task of that rank is found,
    /// that is the task.
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

    /// Whether no task was started: a task that can't record itself does not run.
    pub(crate) fn is_blank(&self) -> bool {
        self.ended.is_empty() && self.started.is_empty()
    }

    /// Returns the ranks without any record.
    pub(crate) fn missing(&self) -> Vec<u32> {
        let known = |rank: &u32| self.ended.contains_key(rank) || self.started.contains_key(rank);
        self.ranks.iter().copied().filter(|rank| !known(rank)).collect()
    }
}

/// Returns the tasks with a recorded end, by rank.
pub(crate) fn ended(spool: &Spool, key: StepKey, ranks: &[u32]) -> BTreeMap<u32, (ExitCode, Usage)> {
    let exits = spool.exits(key).into_iter();
    exits.filter_map(|(place, exit, usage)| Some((*ranks.get(place)?, (exit, usage)))).collect()
}

/// Returns running tasks that are not recorded: of the processes with the step's mark, the oldest for each rank in
/// their environment.
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
