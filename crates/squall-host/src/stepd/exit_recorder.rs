//! Records exits for step daemons that die. The zygote is their parent, so the tasks of a killed step daemon become its
//! children, and their exits are recorded in the step's folder although no step daemon is left to do it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use squall_model::id::StepKey;
use squall_model::job::ExitCode;

use crate::descendants::{descendants, signal_all, stat_field};
use crate::processes::{Stat, may_belong};
use crate::spool::{Spool, file, note_exit, parse_key};
use crate::sys::pmix;
use crate::sys::wait::{Peeked, Reaped, Waited, peek, reap_pid};

/// The step daemons that a zygote has made, and the steps with a daemon that has died.
#[derive(Debug, Default)]
pub(super) struct ExitRecorder {
    /// Folders of running step daemons by pid; that of a batch supervisor is the folder of all steps.
    daemons: BTreeMap<u32, PathBuf>,
    /// Folders of steps with a daemon that died and may have left tasks, each with the user id of the tasks. None: it is
    /// not known.
    left: BTreeMap<PathBuf, Option<u32>>,
    /// Whether a step daemon has needed libpmix.
    pub(super) pmix_wanted: bool,
}

impl ExitRecorder {
    /// Adds a new step daemon.
    pub(super) fn add(&mut self, pid: u32, folder: PathBuf) {
        self.daemons.insert(pid, folder);
    }

    /// Returns whether dead step daemons may have left processes.
    pub(super) fn watches(&self) -> bool {
        !self.left.is_empty()
    }

    /// Kills the processes of dead step daemons when all such steps of their user have ended. A task can detach from its parent,
    /// clear its environment and kill its own daemon; without a v2 cgroup nothing else finds such a task. Call this
    /// until [`Self::watches`] is false.
    pub(super) fn kill_left(&mut self) {
        let present = self.left.iter().filter(|(folder, _)| folder.exists());
        let present: BTreeSet<Option<u32>> = present.map(|(_, user)| *user).collect();
        let stays = |pid: u32| present.iter().any(|user| user.is_none_or(|user| may_belong(pid, user)));
        let me = std::process::id();
        let mine = |pid: &u32| stat_field(*pid, 4) == Some(u64::from(me)) && !self.daemons.contains_key(pid);
        // Children that are not reaped, so the kernel has not reused their ids.
        let strays: Vec<u32> = descendants(me).into_iter().filter(mine).filter(|pid| !stays(*pid)).collect();
        // A daemon that died and is not reaped yet has left its tasks here too, and its steps have not ended.
        let ended = |pid: &u32| Stat::of(*pid).is_none_or(|stat| stat.state == b'Z');
        if self.daemons.keys().any(ended) {
            return;
        }
        signal_all(&strays, libc::SIGKILL);
        // Their own children become children of this process: the next call kills them.
        if strays.is_empty() {
            self.left.retain(|folder, _| folder.exists());
        }
    }

    /// Reaps all children that have ended. Returns whether any child is left.
    pub(super) fn reap(&mut self) -> bool {
        loop {
            match peek() {
                Peeked::Ended(child) => {
                    self.ended(&child);
                    if !matches!(reap_pid(child.pid), Ok(Waited::Reaped(_))) {
                        return true;
                    }
                }
                Peeked::Running => return true,
                Peeked::None => return false,
            }
        }
    }

    /// Handles the exit of a child that is about to be reaped.
    fn ended(&mut self, child: &Reaped) {
        if let Some(folder) = self.daemons.remove(&child.pid) {
            if child.exit == (ExitCode { code: pmix::WANTED, signal: 0 }) {
                self.pmix_wanted = true;
            } else if child.exit != ExitCode::default() {
                // The folder of a batch supervisor contains those of steps.
                let steps = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
                let steps: Vec<PathBuf> = steps.filter(|_| key_of(&folder).is_none()).collect();
                let steps = if key_of(&folder).is_none() { steps } else { vec![folder] };
                self.left.extend(steps.into_iter().map(|folder| (folder.clone(), user_of(&folder))));
            }
        } else if let Some((result, place)) = self.task(child.pid) {
            // This record is the only trace of the exit. If it can't be written, the step ends with an unknown exit.
            let _ = note_exit(&result, place, child.exit, &child.usage);
        }
    }

    /// Returns the result file for the task that is this process, and the task's index in it. None: the process is no
    /// task. A daemon with threads loses its tasks to the zygote a moment before it counts as dead, so folders of
    /// running daemons are searched too.
    fn task(&self, pid: u32) -> Option<(File, usize)> {
        let stat = Stat::of(pid)?;
        self.left.keys().chain(self.daemons.values()).find_map(|folder| {
            // The folder of a batch supervisor contains those of steps.
            let steps = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
            let mut steps = steps.filter(|_| key_of(folder).is_none()).chain([folder.clone()]);
            steps.find_map(|step| noted_in(&step, pid, &stat))
        })
    }
}

/// Returns the user id of a step's tasks; None: it is not known.
fn user_of(folder: &Path) -> Option<u32> {
    let spool = Spool::open(folder.parent()?.parent()?).ok()?;
    spool.launch(key_of(folder)?).map(|launch| launch.facts.owner.uid)
}

fn key_of(folder: &Path) -> Option<StepKey> {
    parse_key(folder.file_name()?.to_str()?)
}

/// Returns a step's result file and the index of the task that has recorded itself as this process. None: there is no
/// such task.
fn noted_in(folder: &Path, pid: u32, stat: &Stat) -> Option<(File, usize)> {
    let (key, root) = (key_of(folder)?, folder.parent()?.parent()?);
    let spool = folder.exists().then(|| Spool::open(root).ok())??;
    let task = spool.tasks(key).into_iter().find(|task| task.pid == pid && task.is(stat))?;
    let place = spool.ranks(key).iter().position(|rank| *rank == task.rank)?;
    Some((spool.open_file(key, file::RESULT).ok()?, place))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use squall_model::id::{Attempt, JobId, StepKey, StepNo};
    use squall_model::job::{ExitCode, Usage};
    use squall_model::step::{JobFacts, Program, StepLaunch};

    use super::{ExitRecorder, Reaped};
    use crate::processes::Stat;
    use crate::spool::{Spool, file};

    #[test]
    fn a_task_that_ends_a_moment_before_its_daemon_is_dead_is_noted_in_its_own_step() {
        let root = std::env::temp_dir().join(format!("squall-recorder-left-{}", std::process::id()));
        let spool = Spool::open(&root).unwrap();
        let mut child = Command::new("true").spawn().unwrap();
        let (pid, stat) = (child.id(), Stat::of(child.id()).unwrap());
        let keys = [(1, pid, stat.start + 1), (2, pid, stat.start), (3, 1, stat.start)].map(|(job, pid, start)| {
            let key = StepKey { job: JobId(job), attempt: Attempt(1), step: StepNo::BATCH };
            let facts = JobFacts { key, ..JobFacts::default() }.into();
            let launch = StepLaunch { key, facts, program: Program::Batch, ..StepLaunch::default() };
            spool.add_step(&launch, None, ("", None)).unwrap();
            assert!(!spool.was_taken(key));
            std::fs::write(spool.step(key).join(file::PIDS), format!("0 {pid} {start}\n\n")).unwrap();
            key
        });
        let exit = ExitCode { code: 6, signal: 0 };
        let end = |pid| Reaped { pid, exit, usage: Usage::default() };
        let mut recorder = ExitRecorder::default();
        recorder.ended(&end(pid));
        assert!(keys.iter().all(|key| spool.exits(*key).is_empty()), "no daemon of ours has started it");
        // A batch supervisor that is about to die.
        recorder.add(u32::MAX, spool.steps_dir());
        recorder.ended(&end(pid));
        assert_eq!(keys.map(|key| spool.exits(key)), [vec![], vec![(0, exit, Usage::default())], vec![]]);
        child.wait().unwrap();
        std::fs::remove_dir_all(&root).unwrap();
    }
}
