//! Hints: lines about mistakes that commands accept in silence, as Slurm's do.

use std::ffi::OsString;
use std::fmt;

use squall_model::config::similar;
use squall_model::duration::format_memory_mb;
use squall_model::id::JobId;

use crate::options::{Arg, Tool, table};
use crate::script::{MARK, Script, is_command};

/// Variable that prints hints (1) or leaves them out (0). If it is not set, a terminal gets them.
pub const VARIABLE: &str = "SQUALL_HINTS";

/// A mistake that a command accepts in silence. Its text is the line that the user gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// An option with a dash of a word processor.
    Dash(String),
    /// A line of a script, by number, that looks like one with options: its first word.
    NearMark(u32, String),
    /// A line with options, by number, and the line of the first command, which is before it.
    LateMark(u32, u32),
    /// An option of sbatch behind the script's name.
    BehindScript(String, String),
    /// A time limit of minutes and seconds, and how many hours were probably meant.
    Minutes(String, u32),
    /// A dependency on a job that is not known.
    Dependency(JobId),
    /// A job that is to be cancelled, and is neither pending nor running.
    NotThere(String),
    /// Conditions for jobs to be cancelled that no job meets.
    NoneMatches,
    /// A partition that does not exist, and those that do.
    Partition(String, Vec<String>),
    /// A node that does not exist.
    Node(String),
    /// More than any node has: the CPUs and the memory (MiB) of the largest.
    Largest(u32, u64),
    /// A working directory that is not on this machine.
    Folder(String),
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dash(word) => {
                write!(f, "`{word}` begins with a dash of a word processor: write `{}`", with_hyphens(word))
            }
            Self::NearMark(line, word) => {
                write!(f, "line {line}: `{word}` begins a comment: lines with options begin with `{MARK}`")
            }
            Self::LateMark(line, command) => {
                write!(f, "line {line}: {MARK} is ignored here, after the first command in line {command}: move it up")
            }
            Self::BehindScript(option, script) => {
                write!(f, "`{option}` goes to the script: write options of sbatch before `{script}`")
            }
            Self::Minutes(given, hours) => {
                write!(f, "--time={given} means {hours} minutes: for {hours} hours write --time={hours}:00:00")
            }
            Self::Dependency(job) => {
                write!(f, "--dependency: you can see no job {job}; the new job does not wait for one that never was")
            }
            Self::NotThere(job) => write!(f, "no job {job} is pending or running"),
            Self::NoneMatches => write!(f, "no pending or running job matches"),
            Self::Partition(name, known) => {
                write!(f, "there is no partition `{name}`; there are: {}", known.join(", "))
            }
            Self::Node(name) => write!(f, "there is no node `{name}`"),
            Self::Largest(cpus, memory) => write!(
                f,
                "no node has as much: at most {cpus} CPUs and {} of memory; `sinfo -N -l` lists them",
                format_memory_mb(*memory)
            ),
            Self::Folder(name) => write!(
                f,
                "--chdir: there is no folder {name} here; on a node without it the job runs in /tmp, with its output"
            ),
        }
    }
}

/// Returns whether hints are printed. `variable`: the value of [`VARIABLE`]; `terminal`: whether standard error is one.
pub fn are_wanted(variable: Option<&str>, terminal: bool) -> bool {
    match variable {
        Some("0") => false,
        Some("1") => true,
        _ => terminal,
    }
}

/// Finds options with a dash of a word processor in the arguments of a command.
pub fn of_arguments(args: &[OsString]) -> Vec<Hint> {
    args.iter().map(|word| word.to_string_lossy()).filter(|word| has_odd_dash(word)).map(dash).collect()
}

/// Finds mistakes in a script's lines with options.
pub fn of_script(script: &Script) -> Vec<Hint> {
    let (mut hints, mut late, mut first, mut document) = (Vec::new(), None, None, None::<String>);
    for (number, line) in script.lines() {
        if document.is_some() {
            // A here-document may be another script.
            document = document.filter(|end| line.trim_start() != end);
        } else if let Some(rest) = line.strip_prefix(MARK) {
            match first {
                None => hints.extend(rest.split_whitespace().filter(|word| has_odd_dash(word)).map(dash)),
                Some(command) => late = late.or(Some(Hint::LateMark(number, command))),
            }
        } else if is_command(&line) {
            first.get_or_insert(number);
            document = end_of_document(&line);
        } else if first.is_none() {
            hints.extend(near_mark(&line).map(|word| Hint::NearMark(number, word)));
        }
    }
    hints.extend(late);
    hints
}

/// Finds the first option of sbatch behind the script's name. `operands`: the script and its arguments.
pub fn behind_script(operands: &[OsString]) -> Option<Hint> {
    let (script, rest) = operands.split_first()?;
    let mut words = rest.iter().map(|word| word.to_string_lossy()).take_while(|word| word != "--");
    let option = words.find(|word| {
        let (name, long) = word.strip_prefix("--").map_or((word.strip_prefix('-'), false), |long| (Some(long), true));
        let name = name.and_then(|name| name.split('=').next()).unwrap_or_default();
        table::options_of(Tool::Sbatch).filter(|option| matches!(option.arg, Arg::Needed(_))).any(|option| {
            let short = option.short.filter(|short| SHORT.contains(*short));
            let rest = short.and_then(|short| name.strip_prefix(short));
            if long { option.long == name } else { rest.is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit())) }
        })
    })?;
    Some(Hint::BehindScript(option.into_owned(), script.to_string_lossy().into_owned()))
}

/// Short options of sbatch that a script's argument probably is. Scripts often have a `-o` of their own.
const SHORT: &str = "NntcpAGw";

/// Returns the hint for a value of `--time` that has minutes and seconds, and was probably meant as hours and minutes.
pub fn of_time(given: &str) -> Option<Hint> {
    let hours = given.strip_suffix(":00")?.parse().ok()?;
    [12, 24, 36, 48, 72, 96, 168].contains(&hours).then(|| Hint::Minutes(given.to_owned(), hours))
}

/// Returns whether a word is an option with a dash that is no hyphen: `–n`, `—nodes=2`, `-–nodes`.
fn has_odd_dash(word: &str) -> bool {
    let name = word.trim_start_matches(is_dash);
    let dashes = &word[..word.len() - name.len()];
    dashes.chars().count() <= 2 && !dashes.is_ascii() && name.starts_with(|c: char| c.is_ascii_alphabetic())
}

fn is_dash(c: char) -> bool {
    matches!(c, '-' | '\u{2010}'..='\u{2015}' | '\u{2212}')
}

fn dash(word: impl AsRef<str>) -> Hint {
    Hint::Dash(word.as_ref().to_owned())
}

/// Returns an option with hyphens for its dashes. A word processor makes one dash of one hyphen or two.
fn with_hyphens(word: &str) -> String {
    let name = word.trim_start_matches(is_dash);
    let key = name.split('=').next().unwrap_or_default();
    let long = key.len() > 1 && key.chars().all(|c| c.is_ascii_alphabetic() || c == '-');
    format!("{}{name}", if long { "--" } else { "-" })
}

/// Returns the first word of a comment that was probably to be a line with options: `#SBTACH`, `# SBATCH`.
fn near_mark(line: &str) -> Option<String> {
    let comment = line.trim_start();
    let (word, options) = comment.strip_prefix('#')?.trim_start().split_once(char::is_whitespace)?;
    // `##SBATCH` is how people take an option out.
    let is_mark = word == "sbatch" || (word == word.to_uppercase() && !word.starts_with('#'));
    let meant = is_mark && similar(word, &["SBATCH"]).is_some();
    let found = meant && options.trim_start().starts_with(is_dash);
    found.then(|| comment[..comment.len() - options.len()].trim_end().to_owned())
}

/// Returns the last line of the here-document that a line of a shell script begins. None: it begins none.
fn end_of_document(line: &str) -> Option<String> {
    let (_, word) = line.split_once("<<").filter(|(_, word)| !word.starts_with('<'))?;
    let word = word.trim_start_matches('-').trim_start().split([' ', ';', '|', '>', ')']).next()?;
    let word: String = word.chars().filter(|c| !matches!(c, '\'' | '"' | '\\')).collect();
    Some(word).filter(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '_'))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{Hint, are_wanted, behind_script, of_arguments, of_script, of_time};
    use crate::script::Script;

    fn lines(hints: impl IntoIterator<Item = Hint>) -> String {
        hints.into_iter().map(|hint| hint.to_string()).collect::<Vec<_>>().join("\n")
    }

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(Into::into).collect()
    }

    #[test]
    fn mistakes_of_command_lines() {
        let said = |text| lines(of_arguments(&words(text)).into_iter().chain(behind_script(&words(text))));
        for (mistake, line) in [
            ("–-nodes=2", "`–-nodes=2` begins with a dash of a word processor: write `--nodes=2`"),
            ("—nodes=2", "`—nodes=2` begins with a dash of a word processor: write `--nodes=2`"),
            ("–N2", "`–N2` begins with a dash of a word processor: write `-N2`"),
            ("−n 2", "`−n` begins with a dash of a word processor: write `-n`"),
            ("ok.sh -N 2", "`-N` goes to the script: write options of sbatch before `ok.sh`"),
            ("ok.sh in --mem=4G", "`--mem=4G` goes to the script: write options of sbatch before `ok.sh`"),
            ("ok.sh -n4", "`-n4` goes to the script: write options of sbatch before `ok.sh`"),
            // No mistakes:
            ("ok.sh -o out --epochs 3 -v", ""),
            ("ok.sh -- -N 2", ""),
            ("--comment=a–b -- –", ""),
        ] {
            assert_eq!(said(mistake), line, "{mistake}");
        }
    }

    #[test]
    fn times_that_are_minutes() {
        for hours in ["12", "24", "48", "72"] {
            let line = format!("--time={hours}:00 means {hours} minutes: for {hours} hours write --time={hours}:00:00");
            assert_eq!(lines(of_time(&format!("{hours}:00"))), line);
        }
        for fine in ["24", "10:00", "24:00:00", "24:30", "1-12:00", "x:00", ""] {
            assert_eq!(of_time(fine), None, "{fine}");
        }
    }

    #[test]
    fn mistakes_in_scripts() {
        let said =
            |body: &str| lines(of_script(&Script { path: None, body: format!("#!/bin/bash\n{body}").into_bytes() }));
        let comment = |word| format!("line 2: `{word}` begins a comment: lines with options begin with `#SBATCH`");
        for word in ["#SBTACH", "#SBACTH", "#BATCH", "# SBATCH", "#sbatch"] {
            assert_eq!(said(&format!("{word} -n 2\n")), comment(word));
        }
        assert_eq!(said("  #SBATCH -n2\n"), comment("#SBATCH"));
        let late = "line 4: #SBATCH is ignored here, after the first command in line 3: move it up";
        assert_eq!(said("#SBATCH -n 2\nmodule load x\n#SBATCH -t 5\n#SBATCH -c 2\n"), late);
        let dash = "`–nodes=2` begins with a dash of a word processor: write `--nodes=2`";
        assert_eq!(said("#SBATCH –nodes=2\n"), dash);
        for fine in [
            "#SBATCH -n 2\n##SBATCH -n 3\n# SBATCH lines follow\n# search -x\n#PBS -l nodes=2\n#BSUB -n 2\necho\n#SBTACH -n\n",
            "cat > job.sh <<'EOF'\n#!/bin/sh\n#SBATCH -n 2\nEOF\nsbatch job.sh\n",
            "cat <<-E >x\n#SBATCH -n 2\n\tE\n",
        ] {
            assert_eq!(said(fine), "", "{fine}");
        }
    }

    #[test]
    fn other_lines() {
        let known = vec!["batch".to_owned(), "gpu".to_owned()];
        let line = "there is no partition `gpuu`; there are: batch, gpu";
        assert_eq!(Hint::Partition("gpuu".into(), known).to_string(), line);
        for (variable, terminal, wanted) in
            [(None, true, true), (None, false, false), (Some("0"), true, false), (Some("1"), false, true)]
        {
            assert_eq!(are_wanted(variable, terminal), wanted);
        }
    }
}
