//! Scripts that update Slurm's variables in the shell of a running job after it has released nodes.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;

use squall_engine::environment::counts_text;
use squall_model::hostlist;
use squall_model::job::JobState;
use squall_model::runs::Runs;
use squall_model::wire::client::JobSelection;
use squall_model::wire::info::JobInfo;

use crate::command::listing::call::{Call, Fail};

/// Writes `slurm_job_ID_resize.sh` and `.csh` into the working directory for each running job, if this command runs
/// within a job.
pub(super) fn scripts(call: &mut Call<'_>, jobs: JobSelection) -> Result<(), Fail> {
    if call.variable("SLURM_JOBID").is_none() {
        return Ok(());
    }
    let page = match call.controller.jobs(jobs, false, false) {
        Ok(page) => page,
        Err(e) => return call.failed("slurm_allocation_lookup", &e),
    };
    for info in page.jobs.iter().filter(|info| info.state == JobState::Running) {
        let [sh, csh] = ["sh", "csh"].map(|shell| format!("slurm_job_{}_resize.{shell}", info.id));
        for (name, text) in [(&csh, text(call, info, true)), (&sh, text(call, info, false))] {
            // The old file is removed, not overwritten: it could be a link placed there by another user.
            drop(std::fs::remove_file(name));
            let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o700).open(name);
            if let Err(e) = file.and_then(|mut file| file.write_all(text.as_bytes())) {
                call.say(&format!("Could not create file {name}: {e}"));
                return Err(Fail(1));
            }
        }
        call.print(&format!(
            "To reset Slurm environment variables, execute\n  For bash or sh shells:  . ./{sh}\n  For csh shells:         \
             source ./{csh}\n"
        ));
    }
    Ok(())
}

/// Returns the text of a script, in csh's syntax if `csh`: a line for each of Slurm's variables that is set at present.
fn text(call: &Call<'_>, info: &JobInfo, csh: bool) -> String {
    let count = info.num_nodes.to_string();
    let cpus = cpus_per_node(info);
    let mut text = String::new();
    for (name, value, quoted) in [
        ("SLURM_NODELIST", &info.run().nodes, true),
        ("SLURM_JOB_NODELIST", &info.run().nodes, true),
        ("SLURM_NNODES", &count, false),
        ("SLURM_JOB_NUM_NODES", &count, false),
        ("SLURM_JOB_CPUS_PER_NODE", &cpus, true),
    ] {
        if call.variable(name).is_some() {
            let value = if quoted { format!("\"{value}\"") } else { value.clone() };
            let _ = if csh { writeln!(text, "setenv {name} {value}") } else { writeln!(text, "export {name}={value}") };
        }
    }
    if call.variable("SLURM_TASKS_PER_NODE").is_some() {
        for name in ["SLURM_NPROCS", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE"] {
            let _ = writeln!(text, "{} {name}", if csh { "unsetenv" } else { "unset" });
        }
    }
    text
}

/// Formats the CPUs per node in the order of the nodes: `4(x2),2`.
fn cpus_per_node(info: &JobInfo) -> String {
    let mut cpus = Runs::new();
    for node in hostlist::expand(&info.run().nodes).unwrap_or_default() {
        let group = info.run().per_node.iter().find(|(nodes, ..)| hostlist::contains(nodes, &node));
        cpus.push(group.map_or(0, |(_, cores, _)| count(cores)));
    }
    counts_text(&cpus)
}

/// Counts the cores in a list such as `0-3,6`.
fn count(cores: &str) -> u32 {
    let number = |text: &str| text.parse::<u32>().unwrap_or(0);
    let ranges = cores.split(',').filter(|range| !range.is_empty());
    ranges
        .map(|range| {
            range.split_once('-').map_or(1, |(first, last)| number(last) - number(first).min(number(last)) + 1)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::{count, cpus_per_node};
    use crate::command::listing::fake::fake;

    #[test]
    fn cpus_stand_in_the_order_of_the_nodes() {
        assert_eq!((count("0-3,6"), count("5"), count("")), (5, 1, 0));
        let mut info = fake().page.jobs.swap_remove(0);
        let run = info.run.get_or_insert_default();
        run.nodes = "n[1-3]".into();
        run.per_node = vec![("n3".into(), "0-3,8".into(), 0), ("n[1-2]".into(), "0-1".into(), 0)];
        assert_eq!(cpus_per_node(&info), "2(x2),5");
    }
}
