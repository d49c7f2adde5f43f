//! What a nursery does for its copies when they die: it is their parent, so that the tasks of a step daemon that was killed
//! become its children, and how they end is noted in the step's folder although no daemon is left that could learn it.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use squall_model::job::ExitCode;

use crate::processes::Stat;
use crate::spool::{Spool, TaskPid, file, note_exit, parse_key};
use crate::sys::pmix;
use crate::sys::wait::{Peeked, Reaped, Waited, peek, reap_pid};
use crate::traces::Traces;

/// A nursery's children.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    /// Folders of step daemons that live; a foster's is that of all steps.
    daemons: BTreeMap<u32, PathBuf>,
    /// Tasks whose daemon died: the result file, and their place in it.
    tasks: BTreeMap<u32, (Rc<File>, usize)>,
    /// A step daemon had a use for libpmix.
    pub(super) pmix_wanted: bool,
}

impl Keeper {
    /// A step daemon was born.
    pub(super) fn add(&mut self, pid: u32, folder: PathBuf) {
        self.daemons.insert(pid, folder);
    }

    /// Reaps all children that have ended. Whether any is left.
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

    /// A child waits to be reaped. A step daemon always comes before the tasks that it leaves: its children become ours
    /// in the same moment in which it dies, and line up behind it.
    fn ended(&mut self, child: &Reaped) {
        if let Some(folder) = self.daemons.remove(&child.pid) {
            if child.exit == (ExitCode { code: pmix::WANTED, signal: 0 }) {
                self.pmix_wanted = true;
            } else if child.exit != ExitCode::default() {
                self.inherit(&folder);
            }
        } else if let Some((result, place)) = self.tasks.remove(&child.pid) {
            // Nobody hears of it but by this note; if it can't be written the task's end is lost, and the step counts so.
            let _ = note_exit(&result, place, child.exit, &child.usage);
        }
    }

    /// Takes charge of what the daemon of that folder left.
    fn inherit(&mut self, folder: &Path) {
        if folder.file_name().and_then(|name| parse_key(name.to_str()?)).is_some() {
            self.inherit_step(folder);
            return;
        }
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            self.inherit_step(&entry.path());
        }
    }

    /// Takes charge of those tasks of a step that are this process's children now.
    fn inherit_step(&mut self, folder: &Path) -> Option<()> {
        let key = parse_key(folder.file_name()?.to_str()?)?;
        let root = folder.parent()?.parent()?;
        let spool = folder.exists().then(|| Spool::open(root).ok())??;
        if !spool.has_begun(key) {
            return None;
        }
        let result = Rc::new(spool.open_file(key, file::RESULT).ok()?);
        let traces = Traces::of(&spool, key, None)?;
        let own = |task: &&TaskPid| Stat::of(task.pid).is_some_and(|stat| stat.parent == std::process::id());
        for task in traces.started.values().filter(own) {
            if let Some(place) = traces.ranks.iter().position(|rank| *rank == task.rank) {
                self.tasks.insert(task.pid, (result.clone(), place));
            }
        }
        Some(())
    }
}
