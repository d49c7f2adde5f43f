//! Measures what stopping and waking processes costs on this machine, by each mechanism that works: for `squall bench
//! gang`.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Means, Root};
use crate::cgroup::FREEZE;
use crate::cgroup::detect::Mounts;
use crate::sys::realtime::prefer_me;

/// Number of switches that are measured.
const SWITCHES: usize = 100;
/// Pause between two switches.
const PAUSE: Duration = Duration::from_millis(4);

/// Real-time priority of the measuring thread, as of a switcher.
const PRIORITY: i32 = 20;

/// Processes that compute until they are killed; in a v2 group of their own, if one can be made.
struct Crowd {
    children: Vec<Child>,
    group: Option<PathBuf>,
}

impl Crowd {
    fn new(processes: usize, group: Option<PathBuf>) -> io::Result<Self> {
        let mut crowd = Self { children: Vec::new(), group };
        for _ in 0..processes {
            let mut command = Command::new("/bin/sh");
            let leader = crowd.children.first().map_or(0, |first| first.id().cast_signed());
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null()).process_group(leader);
            let child = command.spawn()?;
            if let Some(group) = &crowd.group {
                fs::write(group.join("cgroup.procs"), child.id().to_string())?;
            }
            crowd.children.push(child);
        }
        Ok(crowd)
    }

    fn means(&self) -> Means {
        let roots: Vec<Root> = self.children.iter().map(|child| Root { pid: child.id(), whole: true }).collect();
        Means::choose(self.group.as_deref(), &roots)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.means().let_go();
        for child in &mut self.children {
            // The process can't have ended by itself.
            let _ = child.kill().and_then(|()| child.wait());
        }
        if let Some(group) = &self.group {
            let _ = fs::remove_dir(group);
        }
    }
}

/// Measures how long stopping and waking take: alternately stops one crowd of `processes` processes and wakes another.
/// For each mechanism that works here, returns its name with the median and the longest time of the calls.
pub fn trial(processes: usize) -> io::Result<Vec<(&'static str, [Duration; 2])>> {
    // In a thread of its own, as its priority is raised.
    let thread = std::thread::spawn(move || {
        let mut found = Vec::new();
        let root = Mounts::read()?.candidates(None).into_iter().find(|root| can_freeze(root));
        if let Some(root) = root {
            let group = |name: &str| -> io::Result<PathBuf> {
                let dir = root.join(format!("squall-trial-{}-{name}", std::process::id()));
                fs::create_dir(&dir).map(|()| dir)
            };
            let crowds = [Crowd::new(processes, Some(group("a")?))?, Crowd::new(processes, Some(group("b")?))?];
            found.push(("cgroup.freeze", switch(&crowds)?));
        }
        let crowds = [Crowd::new(processes, None)?, Crowd::new(processes, None)?];
        found.push(("signals", switch(&crowds)?));
        Ok(found)
    });
    thread.join().map_err(|_| io::Error::other("the trial has failed"))?
}

fn can_freeze(root: &Path) -> bool {
    let dir = root.join(format!("squall-trial-{}", std::process::id()));
    let can = fs::create_dir(&dir).is_ok() && File::options().write(true).open(dir.join(FREEZE)).is_ok();
    let _ = fs::remove_dir(&dir);
    can
}

fn switch(crowds: &[Crowd; 2]) -> io::Result<[Duration; 2]> {
    let mut means = [crowds[0].means(), crowds[1].means()];
    means[1].stop()?;
    // Without priority the running crowd competes with this thread, and the figures show that.
    let _ = prefer_me(PRIORITY);
    let mut times = Vec::with_capacity(SWITCHES);
    for at in 0..SWITCHES {
        std::thread::sleep(PAUSE);
        let begun = Instant::now();
        means[at % 2].stop()?;
        means[1 - at % 2].wake()?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok([times[SWITCHES / 2], times[SWITCHES - 1]])
}
