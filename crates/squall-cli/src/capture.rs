//! What a job inherits from the submitting process: environment, resource limits, umask, working directory, host,
//! command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::Mode;
use rustix::process::{Resource, getpriority_process, getrlimit, umask};
use squall_engine::environment::{is_handed_on, is_output};
use squall_files::place::STATE_VARIABLE;
use squall_files::place::TASK_MARK;
use squall_model::config::{self, RLIMITS};
use squall_model::id::JobId;
use squall_model::limits::ENV_BYTES_MAX;

use squall_text::options::{Stop, Tool, table};

/// Environment variables (name, value), as bytes.
pub(crate) type Vars = Vec<(OsString, OsString)>;

/// Environment of a job, as `--export` selects it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobEnvironment {
    /// Entries `NAME=VALUE`, each ended by a NUL byte.
    pub(crate) env: Vec<u8>,
    /// Whether a login shell on the node must add the user's login environment: if `--export` is given with neither
    /// `ALL` nor `NIL`.
    pub(crate) incomplete: bool,
}

/// Selects the variables that `--export` names; without `list` (the option's value), all variables.
pub(crate) fn export(tool: Tool, vars: &Vars, list: Option<&str>) -> Result<JobEnvironment, Stop> {
    let words = list.map(words).unwrap_or_default();
    let is = |text: &str| words.len() == 1 && words[0].eq_ignore_ascii_case(text);
    let all = list.is_none() || words.iter().any(|w| w.eq_ignore_ascii_case("ALL"));
    let (none, nil) = (is("NONE"), is("NIL"));
    let mut chosen: Vars = Vec::new();
    // Slurm's variables are always exported (except with NIL), and so is the variable that names the cluster.
    let ours = |name: &OsStr| {
        let plain = name.as_bytes();
        plain.starts_with(b"SLURM_") || plain.starts_with(b"_SLURM_SPANK_OPTION_") || name == STATE_VARIABLE
    };
    for (name, value) in vars.iter().filter(|(name, _)| all || (ours(name) && !nil)) {
        set(&mut chosen, name, value);
    }
    for word in words.iter().filter(|w| !(none || nil || w.is_empty() || w.eq_ignore_ascii_case("ALL"))) {
        match word.split_once('=') {
            Some((name, value)) => set(&mut chosen, OsStr::new(name), OsStr::new(unquoted(value))),
            None => {
                if let Some((name, value)) = vars.iter().find(|(name, _)| name.as_os_str() == word.as_str()) {
                    set(&mut chosen, name, value);
                }
            }
        }
    }
    if tool == Tool::Sbatch {
        let inside = vars.iter().any(|(name, _)| name == "SLURM_JOB_ID");
        chosen.retain(|(name, _)| name.to_str().is_none_or(|name| !leaks(name, inside)));
    }
    let mut env = Vec::new();
    for (name, value) in &chosen {
        entry(&mut env, name, value);
    }
    limited(env).map(|env| JobEnvironment { env, incomplete: !all && !nil })
}

/// Reads the file of `--export-file`: entries ended by NUL bytes, or by line ends in a file written by hand.
pub(crate) fn export_file(path: &str) -> Result<Vec<u8>, Stop> {
    let bytes = std::fs::read(path).map_err(|e| Stop::bad(format!("--export-file={path}: {e}")))?;
    let end = if bytes.contains(&0) { 0 } else { b'\n' };
    let mut env = Vec::new();
    for part in bytes.split(|b| *b == end).filter(|part| part.contains(&b'=')) {
        env.extend_from_slice(part);
        env.push(0);
    }
    limited(env)
}

fn limited(env: Vec<u8>) -> Result<Vec<u8>, Stop> {
    if env.len() > ENV_BYTES_MAX {
        return Err(Stop::bad(format!(
            "the environment has {} bytes; at most {ENV_BYTES_MAX} are allowed: name what is needed with --export",
            env.len()
        )));
    }
    Ok(env)
}

/// Returns whether a variable that was set for an outer job or its task must be hidden from an inner job. `inside`:
/// this process runs within a job, so its variables are those of that job's tasks.
fn leaks(name: &str, inside: bool) -> bool {
    const ALWAYS: [&str; 6] = ["SLURM_HET_", "SLURM_RLIMIT_", "SLURMD_", "SRUN_DEBUG", "SLURM_STEPMGR", TASK_MARK];
    const KEPT: [&str; 5] =
        ["SLURM_CONF", "SLURM_TIME_FORMAT", "SLURM_EXIT_ERROR", "SLURM_EXIT_IMMEDIATE", "SLURM_BITSTR_LEN"];
    if ALWAYS.iter().any(|stem| name.starts_with(stem)) {
        return true;
    }
    if inside && (name.starts_with("PMI_") || name.starts_with("PMIX_")) {
        return true;
    }
    if !name.starts_with("SLURM_") || KEPT.contains(&name) {
        return false;
    }
    if !inside {
        // What the user may have set for the srun commands of the job.
        return is_output(name) && !is_handed_on(name);
    }
    let input = table::options_of(Tool::Srun).any(|option| option.env.contains(&name));
    is_output(name) || !input
}

fn set(chosen: &mut Vars, name: &OsStr, value: &OsStr) {
    match chosen.iter_mut().find(|(known, _)| known == name) {
        Some((_, old)) => value.clone_into(old),
        None => chosen.push((name.to_owned(), value.to_owned())),
    }
}

fn entry(env: &mut Vec<u8>, name: &OsStr, value: &OsStr) {
    env.extend_from_slice(name.as_bytes());
    env.push(b'=');
    env.extend_from_slice(value.as_bytes());
    env.push(0);
}

/// Splits a list at commas that are not within quotes.
fn words(list: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in list.chars() {
        match (c, quote) {
            (',', None) => words.push(String::new()),
            (c, None) => {
                quote = Some(c).filter(|c| matches!(c, '\'' | '"'));
                words.last_mut().into_iter().for_each(|w| w.push(c));
            }
            (c, Some(q)) => {
                if c == q {
                    quote = None;
                }
                words.last_mut().into_iter().for_each(|w| w.push(c));
            }
        }
    }
    words.into_iter().map(|w| w.trim().to_owned()).collect()
}

fn unquoted(value: &str) -> &str {
    for quote in ['\'', '"'] {
        if let Some(inner) = value.strip_prefix(quote).and_then(|v| v.strip_suffix(quote)) {
            return inner;
        }
    }
    value
}

/// The resources of [`RLIMITS`], in its order.
const RESOURCES: [Resource; 10] = [
    Resource::Cpu,
    Resource::Fsize,
    Resource::Data,
    Resource::Stack,
    Resource::Core,
    Resource::Rss,
    Resource::Nproc,
    Resource::Nofile,
    Resource::Memlock,
    Resource::As,
];

/// Returns the soft limits that `--propagate` names, as (number in messages, value); all limits if the option isn't
/// given.
pub(crate) fn rlimits(list: Option<&str>) -> Result<Vec<(u32, u64)>, Stop> {
    let list = list.unwrap_or("ALL");
    let Some(numbers) = config::rlimits(list) else {
        return Err(Stop::Bad {
            lines: vec![
                format!("--propagate={list} is not valid."),
                format!("--propagate={list}: use ALL, NONE or names among {}", RLIMITS.map(|(name, _)| name).join(",")),
            ],
            exit: 1,
        });
    };
    let chosen = RLIMITS.iter().zip(RESOURCES).filter(|((_, number), _)| numbers.contains(number));
    Ok(chosen.map(|((_, number), resource)| (*number, getrlimit(resource).current.unwrap_or(u64::MAX))).collect())
}

/// Lists what a job inherits from this process (limits, nice value, umask), one line each, for `-vv`.
pub(crate) fn propagated(rlimits: &[(u32, u64)], umask: u32) -> Vec<String> {
    let name = |number| RLIMITS.iter().find(|(_, known)| *known == number).map_or("?", |(name, _)| name);
    let mut lines: Vec<String> =
        rlimits.iter().map(|(number, value)| format!("RLIMIT_{}={value}", name(*number))).collect();
    let nice = getpriority_process(None).unwrap_or_default();
    lines.extend([format!("SLURM_PRIO_PROCESS={nice}"), format!("UMASK={umask:04o}")]);
    lines
}

/// Returns the umask. Not for programs with several threads: the umask is changed for a moment to read it.
pub(crate) fn file_mask() -> u32 {
    let mask = umask(Mode::from_raw_mode(0o022));
    umask(mask);
    mask.as_raw_mode()
}

/// Returns the working directory.
pub(crate) fn folder() -> Result<PathBuf, Stop> {
    std::env::current_dir().map_err(|e| Stop::bad(format!("getcwd failed: {e}; change to a folder that exists")))
}

/// Returns this host's short name: the part before the first dot.
pub(crate) fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// Returns the job in which this command runs. None: it runs outside of jobs.
pub(crate) fn job() -> Option<JobId> {
    std::env::var("SLURM_JOB_ID").ok()?.parse().ok().map(JobId)
}

/// Returns the id of the session that this process belongs to.
pub(crate) fn session() -> Option<u32> {
    // rustix takes session 0 for impossible, which it is not where the session's leader is in an outer PID namespace.
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    after_name.split_ascii_whitespace().nth(3)?.parse().ok().filter(|id| *id > 0)
}

/// Returns the command line, arguments joined by spaces (the shell's quotes are lost), cut at `STRING_BYTES_MAX`.
pub(crate) fn submit_line(tool: Tool, args: &[OsString]) -> String {
    let mut line = tool.name().to_owned();
    for arg in args {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line.truncate(line.floor_char_boundary(squall_model::limits::STRING_BYTES_MAX));
    line
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{JobEnvironment, Vars, export, export_file, leaks, rlimits};
    use squall_text::options::Tool;

    fn vars(pairs: &[(&str, &str)]) -> Vars {
        pairs.iter().map(|(n, v)| (OsString::from(n), OsString::from(v))).collect()
    }

    fn exported(pairs: &[(&str, &str)], list: Option<&str>) -> (String, bool) {
        let JobEnvironment { env, incomplete } = export(Tool::Sbatch, &vars(pairs), list).expect("it is small");
        (String::from_utf8(env).expect("text").trim_end_matches('\0').replace('\0', " "), incomplete)
    }

    const MINE: [(&str, &str); 3] = [("PATH", "/bin"), ("A", "1"), ("SLURM_MPI_TYPE", "pmix")];

    #[test]
    fn the_clusters_name_comes_along_but_not_the_mark_of_a_task() {
        let vars = [("SQUALL_STATE", "/s"), ("SQUALL_STEP", "/s/1.1.0"), ("A", "1")];
        assert_eq!(exported(&vars, None), ("SQUALL_STATE=/s A=1".into(), false));
        assert_eq!(exported(&vars, Some("NONE")), ("SQUALL_STATE=/s".into(), true));
        assert_eq!(exported(&vars, Some("NIL")), (String::new(), false));
    }

    #[test]
    fn an_export_file_is_what_the_job_gets() {
        let file = std::env::temp_dir().join(format!("squall-export-{}", std::process::id()));
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            String::from_utf8(export_file(file.to_str().unwrap()).unwrap()).unwrap()
        };
        assert_eq!(read("A=1\0B=x\ny\0nothing\0"), "A=1\0B=x\ny\0");
        assert_eq!(read("A=1\nB=2\n"), "A=1\0B=2\0");
        std::fs::remove_file(&file).unwrap();
        assert!(export_file(file.to_str().unwrap()).is_err());
    }

    #[test]
    fn export_lists() {
        let case = |list| exported(&MINE, list);
        assert_eq!(case(None), ("PATH=/bin A=1 SLURM_MPI_TYPE=pmix".into(), false));
        assert_eq!(case(Some("ALL")), case(None));
        assert_eq!(case(Some("NONE")), ("SLURM_MPI_TYPE=pmix".into(), true));
        assert_eq!(case(Some("NIL")), (String::new(), false));
        assert_eq!(case(Some("A,B=2")), ("SLURM_MPI_TYPE=pmix A=1 B=2".into(), true));
        assert_eq!(case(Some("ALL,A=7,C='x,y'")), ("PATH=/bin A=7 SLURM_MPI_TYPE=pmix C=x,y".into(), false));
        assert_eq!(case(Some("MISSING")), ("SLURM_MPI_TYPE=pmix".into(), true));
    }

    #[test]
    fn nothing_of_an_outer_job_leaks() {
        let outer = [
            ("SLURM_JOB_ID", "7"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_PROCID", "0"),
            ("SLURM_ARRAY_TASK_ID", "3"),
            ("SLURM_MEM_PER_CPU", "100"),
            ("SLURM_ANYTHING", "x"),
            ("SLURM_KILL_BAD_EXIT", "1"),
            ("SLURM_CONF", "/etc/slurm.conf"),
            ("PMI_RANK", "0"),
            ("HOME", "/root"),
        ];
        let kept = "SLURM_KILL_BAD_EXIT=1 SLURM_CONF=/etc/slurm.conf HOME=/root";
        assert_eq!(exported(&outer, None), (kept.into(), false));
    }

    #[test]
    fn outside_of_a_job_what_users_set_is_kept() {
        for name in ["SLURM_MPI_TYPE", "SLURM_HINT", "SLURM_MINE", "PMI_RANK", "SLURM_TIME_FORMAT"] {
            assert!(!leaks(name, false), "{name}");
        }
        for name in ["SLURM_NTASKS", "SLURM_JOB_NODELIST", "SLURM_STEP_ID", "SLURMD_NODENAME"] {
            assert!(leaks(name, false), "{name}");
        }
    }

    #[test]
    fn limits_by_name() {
        assert_eq!(rlimits(Some("NONE")), Ok(Vec::new()));
        assert_eq!(rlimits(None).map(|l| l.len()), Ok(10));
        assert_eq!(rlimits(Some("stack,RLIMIT_NOFILE")).map(|l| l.iter().map(|(n, _)| *n).collect()), Ok(vec![3, 7]));
        assert!(
            rlimits(Some("STACK,X"))
                .is_err_and(|s| s.complaint(Tool::Sbatch).contains("--propagate=STACK,X is not valid."))
        );
    }
}
