//! The job that a process of this machine belongs to, by its cgroup. A process can't leave the cgroup of its job by itself.

use std::fs;
use std::io;

use squall_model::id::JobId;

/// Returns the job in whose cgroup a process is, of whichever node of this machine. None: it is in none, or the process is
/// not visible here. Err: it has ended.
pub(crate) fn job_of(pid: Option<i32>) -> io::Result<Option<JobId>> {
    let Some(pid) = pid.filter(|pid| *pid > 0) else { return Ok(None) };
    Ok(job_in(&fs::read_to_string(format!("/proc/{pid}/cgroup"))?))
}

/// Returns the job in the text of `/proc/PID/cgroup`.
fn job_in(text: &str) -> Option<JobId> {
    text.lines().find_map(|line| {
        let mut names = line.splitn(3, ':').nth(2)?.split('/');
        names.find(|name| *name == "squall")?;
        // The cluster, the node, the attempt.
        names.nth(2)?.strip_prefix("job_")?.split_once('.')?.0.parse().ok().map(JobId)
    })
}

#[cfg(test)]
mod tests {
    use squall_model::id::JobId;

    use super::{job_in, job_of};

    #[test]
    fn a_process_belongs_to_the_job_in_whose_cgroup_it_is() {
        let found = |text: &str| job_in(text).map(|JobId(id)| id);
        assert_eq!(found("0::/squall/0123456789abcdef/n1/job_17.2/step_0\n"), Some(17));
        assert_eq!(found("5:cpu:/\n4:memory:/docker/x/squall/0123/h/job_4.1\n0::/\n"), Some(4));
        for none in ["", "0::/\n", "0::/squall/0123/n1\n", "0::/user.slice/job_7.1\n", "0::/squall/0123/n1/job_x.1\n"] {
            assert_eq!(found(none), None, "{none}");
        }
        assert_eq!(job_of(None).unwrap(), None);
        assert_eq!(job_of(Some(std::process::id().cast_signed())).unwrap(), None, "tests run in no job");
        assert!(job_of(Some(i32::MAX)).is_err(), "whoever has ended is taken for nobody");
    }
}
