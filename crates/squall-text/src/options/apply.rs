//! Options of sbatch for programs that submit jobs without the command.

use std::ffi::OsString;

use squall_model::job::JobSpec;

use crate::options::submit::SubmitOptions;
use crate::options::{Stop, Tool, collect, counts};

/// Options on which the command itself acts, or that need its process.
const OF_THE_COMMAND: [&str; 16] = [
    "clusters",
    "export",
    "export-file",
    "gid",
    "help",
    "ignore-pbs",
    "parsable",
    "propagate",
    "quiet",
    "test-only",
    "uid",
    "usage",
    "verbose",
    "version",
    "wait",
    "wrap",
];

/// Returns the job `spec` with options of sbatch, such as `--array=1-10` or `-G2`. The error is the message of sbatch.
pub fn apply(spec: JobSpec, options: &[String]) -> Result<JobSpec, String> {
    let words: Vec<OsString> = options.iter().map(OsString::from).collect();
    let told = |stop: Stop| stop.complaint(Tool::Sbatch).trim_end().to_owned();
    let line = collect::line(Tool::Sbatch, &words).map_err(told)?;
    if let Some(operand) = line.operands.first() {
        return Err(format!("`{}` is no option of sbatch", operand.to_string_lossy()));
    }
    if let Some((option, _)) = line.options.iter().find(|(option, _)| OF_THE_COMMAND.contains(&option.long)) {
        return Err(format!("--{} is for the command sbatch, not for a program", option.long));
    }
    let mut asked = SubmitOptions { spec, ..SubmitOptions::new(Tool::Sbatch) };
    collect::apply_line(&mut asked, Tool::Sbatch, &line).map_err(told)?;
    collect::settle_hint(&mut asked);
    collect::verify(&asked).map_err(told)?;
    counts::complete(&mut asked).map_err(told)?;
    Ok(asked.spec)
}

#[cfg(test)]
mod tests {
    use squall_model::job::JobSpec;

    use super::{OF_THE_COMMAND, apply};
    use crate::options::Tool;
    use crate::options::table::options_of;

    fn applied(options: &[&str]) -> Result<JobSpec, String> {
        let spec = JobSpec { name: "job".into(), ..JobSpec::default() };
        apply(spec, &options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_go_into_the_job_and_what_is_wrong_is_said() {
        let spec = applied(&["--array=1-10%2", "--gpus=2", "--qos", "high", "-C", "amd"]).unwrap();
        assert_eq!((spec.qos.as_deref(), spec.need.constraint.as_deref()), (Some("high"), Some("amd")));
        assert!(spec.array.is_some() && spec.options.gpus.total.is_some() && spec.name == "job");
        let wrong = |options: &[&str]| applied(options).unwrap_err();
        assert!(wrong(&["--array=x"]).contains("Invalid job array specification"), "{}", wrong(&["--array=x"]));
        assert_eq!(wrong(&["file"]), "`file` is no option of sbatch");
        assert_eq!(wrong(&["--wait"]), "--wait is for the command sbatch, not for a program");
        assert!(wrong(&["--nosuch"]).contains("unrecognized option '--nosuch'"));
    }

    #[test]
    fn refused_names_are_options() {
        for name in OF_THE_COMMAND {
            assert!(options_of(Tool::Sbatch).any(|option| option.long == name), "{name}");
        }
    }
}
