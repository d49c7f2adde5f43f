//! Logins of users on this node: the PAM module asks whether a user has a job here, and the process that asks becomes a
//! part of the newest one.
//!
//! The question is a line, `adopt UID newest` or `adopt UID only`, and so is the answer: `adopted JOB`, `none`,
//! `several` or `failed REASON`. Only root, or the user that runs this daemon, may ask. The kernel says which process it
//! is.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use squall_engine::node::attempt_of;
use squall_files::place::SocketPath;
use squall_model::gres;
use squall_model::id::StepKey;
use squall_model::job::JobAttempt;
use squall_model::set::CoreSet;
use squall_model::step::JobFacts;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{info, warn};

use super::hooks::EXTERN;
use super::{Daemon, Event};
use crate::auth::is_operator;

/// Time in which the module has to ask.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest question that is read, bytes.
const QUESTION_MAX: u64 = 64;

/// A question of the PAM module.
#[derive(Debug)]
pub(super) struct Visit {
    /// The user who logs in.
    uid: u32,
    /// The process that is to become a part of the job.
    pid: u32,
    /// Whether the newest of several jobs is chosen.
    newest: bool,
    answer: oneshot::Sender<String>,
}

/// Listens for questions for as long as the daemon runs.
pub(super) fn open(path: &Path, events: Sender<Event>) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(SocketPath::new(path)?.as_path())?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    tokio::task::spawn_local(async move {
        loop {
            match listener.accept().await {
                // One after the other: a module asks at once, or is late.
                Ok((stream, _)) => drop(serve(stream, &events).await),
                Err(e) => {
                    warn!(error = %e, "no question about a login can be accepted");
                    tokio::time::sleep(PATIENCE).await;
                }
            }
        }
    });
    Ok(())
}

async fn serve(stream: UnixStream, events: &Sender<Event>) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok()).ok_or(io::ErrorKind::PermissionDenied)?;
    if !is_operator(peer.uid()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    let mut reader = BufReader::new(reader.take(QUESTION_MAX));
    timeout(PATIENCE, reader.read_line(&mut line)).await??;
    let Some((uid, newest)) = question(&line) else { return writer.write_all(b"failed not understood\n").await };
    let (answer, answered) = oneshot::channel();
    let gone = |()| io::Error::from(io::ErrorKind::BrokenPipe);
    events.send(Event::Visit(Visit { uid, pid, newest, answer })).await.map_err(|_| gone(()))?;
    let answer = answered.await.map_err(|_| gone(()))?;
    timeout(PATIENCE, writer.write_all(format!("{answer}\n").as_bytes())).await?
}

/// Reads a question: the user, and whether the newest of several jobs is chosen.
fn question(line: &str) -> Option<(u32, bool)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["adopt", uid, "newest"] => Some((uid.parse().ok()?, true)),
        ["adopt", uid, "only"] => Some((uid.parse().ok()?, false)),
        _ => None,
    }
}

/// What a job of a user has on this node, as far as the spool shows.
#[derive(Debug, Default)]
struct Holding {
    memory_mb: u64,
    /// The kernel's numbers of the CPUs of the job's steps. Empty: it has had no step, or steps are not bound.
    cpus: CoreSet,
    gres: BTreeMap<String, CoreSet>,
    ganged: bool,
}

impl Daemon {
    /// Makes a login a part of a job of its user, and answers.
    pub(super) fn visited(&mut self, visit: Visit) {
        let mut jobs = self.jobs_of(visit.uid);
        let answer = match jobs.pop_last() {
            None => "none".to_owned(),
            Some(_) if !jobs.is_empty() && !visit.newest => "several".to_owned(),
            Some((job, holding)) => match self.take_in(visit.pid, job, holding) {
                Ok(()) => {
                    info!(uid = visit.uid, pid = visit.pid, job = %job.job, "a login is a part of the job now");
                    format!("adopted {}", job.job)
                }
                Err(e) => {
                    warn!(uid = visit.uid, job = %job.job, error = %e, "a login can't be made a part of the job");
                    format!("failed {e}")
                }
            },
        };
        // The module may be gone.
        drop(visit.answer.send(answer));
    }

    /// Returns what each open job of a user has here, the newest last.
    fn jobs_of(&self, uid: u32) -> BTreeMap<JobAttempt, Holding> {
        let mut jobs: BTreeMap<JobAttempt, Holding> = BTreeMap::new();
        let open = |facts: &JobFacts| facts.owner.uid == uid && self.machine.has_open(attempt_of(facts.key));
        for facts in self.spool.jobs().0.iter().filter(|facts| open(facts)) {
            let place = (0..facts.nodes.len()).find(|place| facts.nodes.get(*place).as_ref() == Some(&self.name));
            let Some((place, id)) = place.and_then(|place| Some((place, facts.in_order().nth(place)?))) else {
                continue;
            };
            let holding = jobs.entry(attempt_of(facts.key)).or_default();
            holding.memory_mb = facts.memory_mb.get(place).copied().unwrap_or(0);
            holding.gres = gres::on_node(&facts.gres, id);
            holding.ganged = facts.ganged;
        }
        for launch in self.spool.steps().0.iter().filter(|launch| open(&launch.facts)) {
            let holding = jobs.entry(attempt_of(launch.key)).or_default();
            let of_job = launch.facts.memory_mb.get(launch.job_node_index as usize);
            holding.memory_mb = of_job.copied().unwrap_or(holding.memory_mb);
            holding.ganged = launch.facts.ganged;
            for (name, indices) in &launch.gres {
                holding.gres.entry(name.clone()).or_default().union_with(indices);
            }
            if self.binds {
                holding.cpus.union_with(&launch.cores);
            }
        }
        jobs
    }

    /// Moves a process into the groups of a job.
    fn take_in(&self, pid: u32, job: JobAttempt, holding: Holding) -> io::Result<()> {
        let key = StepKey { job: job.job, attempt: job.attempt, step: EXTERN };
        let mut limits = self.limits(holding.memory_mb, std::iter::empty(), holding.ganged, &holding.gres);
        limits.cpus = holding.cpus;
        let groups = self.cgroups.open_step(key, &limits)?;
        if groups.folders().next().is_none() {
            return Err(io::Error::other("this node has no cgroups"));
        }
        groups.folders().try_for_each(|dir| fs::write(dir.join("cgroup.procs"), pid.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::question;

    #[test]
    fn questions_are_read() {
        assert_eq!(question("adopt 1000 newest\n"), Some((1000, true)));
        assert_eq!(question("adopt 1000 only"), Some((1000, false)));
        for wrong in ["", "adopt", "adopt x newest", "adopt 1 2 newest", "expel 1 only"] {
            assert_eq!(question(wrong), None, "{wrong}");
        }
    }
}
