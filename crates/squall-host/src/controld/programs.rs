//! Runs programs on the controller's machine: those around jobs, one after the other for each job, and those that power
//! nodes up and down.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use squall_engine::control::{BootingJob, PowerProgram, Program};
use squall_engine::hook::{About, hook_env};
use squall_model::job::ExitCode;
use squall_model::power::PowerPhase;
use squall_model::wire::hook::Hook;
use tokio::process::Command;
use tokio::sync::mpsc::Sender;
use tokio::task::spawn_local;
use tracing::{error, info, warn};

use super::connection::Arrival;
use crate::hook::{Label, Output, failure, programs};
use crate::sys::signals;

/// Starts programs, and reports their ends to the controller's loop.
#[derive(Debug)]
pub(super) struct Programs {
    arrivals: Sender<Arrival>,
}

impl Programs {
    /// Reports ends to this queue.
    pub(super) fn reporting_to(arrivals: Sender<Arrival>) -> Self {
        Self { arrivals }
    }

    /// Runs the programs for jobs, and those for the power of nodes.
    pub(super) fn start_all(&self, programs: Vec<Program>, power: Vec<PowerProgram>, cluster: &str) {
        for program in programs {
            self.start(program);
        }
        for program in power {
            self.start_power(program, cluster.to_owned());
        }
    }

    /// Runs the programs for a job.
    fn start(&self, program: Program) {
        let arrivals = self.arrivals.clone();
        spawn_local(async move {
            let (job, hook) = (program.job, program.hook);
            let error = run_all(&program).await.err();
            if let Some(error) = &error {
                error!(job = job.job.0, error, "{} failed", hook.name());
            }
            // Sending fails only if the controller has ended.
            drop(arrivals.send(Arrival::ProgramEnded { job, hook, error }).await);
        });
    }

    /// Runs a program for the power of nodes. Whether it succeeded or not, the nodes show what has become of them.
    fn start_power(&self, program: PowerProgram, cluster: String) {
        let arrivals = self.arrivals.clone();
        spawn_local(async move {
            let hook = match program.phase {
                PowerPhase::GoingDown => Hook::Suspend,
                PowerPhase::GoingUp => Hook::Resume,
                PowerPhase::Off | PowerPhase::On => Hook::ResumeFail,
            };
            info!(nodes = program.argument, "{} runs", hook.name());
            if let Err(error) = run_power(&program, hook, &cluster).await {
                error!(nodes = program.argument, error, "{} failed", hook.name());
            }
            let PowerProgram { phase, nodes, .. } = program;
            // Sending fails only if the controller has ended.
            drop(arrivals.send(Arrival::PowerProgramEnded { phase, nodes }).await);
        });
    }
}

async fn run_all(program: &Program) -> Result<(), String> {
    let Program { hook, facts, exit, derived, .. } = program;
    let about =
        About { hook: *hook, facts: Some(facts), node: "", cluster: &facts.cluster, exit: *exit, derived: *derived };
    let env = hook_env(about);
    let label = Label { hook: *hook, job: program.job.job.0 };
    let paths = programs(program.paths.iter().map(String::as_str)).map_err(|e| e.to_string())?;
    for path in paths {
        run_one((&path, None), &env, &label, program.limit_s).await?;
    }
    Ok(())
}

/// Runs a program for the power of nodes. It gets the nodes as a host list.
async fn run_power(program: &PowerProgram, hook: Hook, cluster: &str) -> Result<(), String> {
    let mut env = hook_env(About { hook, facts: None, node: "", cluster, exit: None, derived: None });
    // The file is gone when the program has ended.
    let told = match hook {
        Hook::Resume => Some(resume_file(program).map_err(|e| format!("a file for SLURM_RESUME_FILE: {e}"))?),
        _ => None,
    };
    env.extend(told.as_ref().map(|(_, path)| ("SLURM_RESUME_FILE".to_owned(), path.clone())));
    let label = Label { hook, job: 0 };
    for path in programs([program.path.as_str()]).map_err(|e| e.to_string())? {
        run_one((&path, Some(program.argument.as_str())), &env, &label, Some(program.limit_s)).await?;
    }
    Ok(())
}

/// Writes for which jobs nodes are powered up into a file in memory. Returns it with the path under which other processes
/// find it.
fn resume_file(program: &PowerProgram) -> std::io::Result<(File, String)> {
    let mut file = File::from(memfd_create("resume", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(&resume_data(program))?)?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    Ok((file, path))
}

/// Returns for which jobs nodes are powered up, with Slurm's names of fields.
fn resume_data(program: &PowerProgram) -> serde_json::Value {
    let job = |job: &BootingJob| {
        let (exclusive, shares) = match () {
            () if job.own_blocks => ("TOPO", "NO"),
            () if job.exclusive => ("NODE", "NO"),
            () if job.own_nodes => ("USER", "USER"),
            () if job.oversubscribe => ("NO", "YES"),
            () => ("NO", "OK"),
        };
        serde_json::json!({
            "exclusive": exclusive,
            "extra": job.extra,
            "features": job.features,
            "job_id": job.id.0,
            "nodes_alloc": job.nodes,
            "nodes_resume": job.resumed,
            "oversubscribe": shares,
            "partition": job.partition,
            "reservation": job.reservation,
        })
    };
    let jobs: Vec<_> = program.jobs.iter().map(job).collect();
    serde_json::json!({ "all_nodes_resume": program.argument, "jobs": jobs })
}

/// Runs a program to its end. The error says why it failed.
async fn run_one(
    (path, argument): (&PathBuf, Option<&str>),
    env: &[(String, String)],
    label: &Label,
    limit_s: Option<u64>,
) -> Result<(), String> {
    let wrong = |e: std::io::Error| format!("{}: {e}", path.display());
    let (output, writer) = Output::open(label).map_err(wrong)?;
    let mut command = Command::new(path);
    command.args(argument);
    command.env_clear().envs(env.iter().map(|(name, value)| (name, value))).current_dir(Path::new("/"));
    command.stdin(File::open("/dev/null").map_err(wrong)?).process_group(0);
    command.stdout(writer.try_clone().map_err(wrong)?).stderr(writer);
    let mut child = command.spawn().map_err(wrong)?;
    drop(command);
    let pid = child.id().unwrap_or_default();
    let limit = limit_s.map_or(Duration::MAX, Duration::from_secs);
    let Ok(status) = tokio::time::timeout(limit, child.wait()).await else {
        warn!(job = label.job, "{} runs beyond its time limit: killing it", label.hook.name());
        drop(signals::kill_group(pid, libc::SIGKILL));
        drop(child.wait().await);
        return Err(format!("{} ran beyond its time limit", path.display()));
    };
    let status = status.map_err(wrong)?;
    drop(output.finish());
    let exit = ExitCode { code: status.code().unwrap_or_default() as u8, signal: signal_of(status) };
    failure(path, exit).map_or(Ok(()), Err)
}

/// Returns the signal that ended a process; 0: it ended by itself.
fn signal_of(status: std::process::ExitStatus) -> u8 {
    status.signal().unwrap_or_default() as u8
}

#[cfg(test)]
mod tests {
    use squall_engine::control::{BootingJob, PowerProgram};
    use squall_model::id::JobId;
    use squall_model::power::PowerPhase;
    use squall_model::set::NodeSet;

    use super::resume_file;

    #[test]
    fn the_file_about_jobs_has_slurms_fields() {
        let job = BootingJob {
            id: JobId(7),
            partition: "cloud".into(),
            nodes: "n1,c[1-2]".into(),
            resumed: "c[1-2]".into(),
            features: Some("gpu".into()),
            reservation: None,
            extra: None,
            exclusive: true,
            own_nodes: false,
            own_blocks: false,
            oversubscribe: false,
        };
        let program = PowerProgram {
            phase: PowerPhase::GoingUp,
            nodes: NodeSet::new(),
            argument: "c[1-3]".into(),
            path: "/resume".into(),
            limit_s: 60,
            jobs: vec![job],
        };
        let (file, path) = resume_file(&program).expect("memory suffices");
        let text = std::fs::read_to_string(&path).expect("another process reads it by its path");
        let expected = r#"{"all_nodes_resume":"c[1-3]","jobs":[{"exclusive":"NODE","extra":null,"features":"gpu","job_id":7,"nodes_alloc":"n1,c[1-2]","nodes_resume":"c[1-2]","oversubscribe":"NO","partition":"cloud","reservation":null}]}"#;
        assert_eq!(text, expected);
        drop(file);
        assert!(std::fs::read_to_string(path).is_err(), "it is gone");
    }
}
