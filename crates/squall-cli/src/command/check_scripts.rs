//! `squall check --scripts`: which options in a folder of job scripts are refused here.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use squall_text::options::collect;
use squall_text::options::submit::SubmitOptions;
use squall_text::options::{Source, Stop, Tool};
use squall_text::script::{Script, words};

/// Most folders within each other.
const DEPTH_MAX: usize = 16;
/// Words that the shell replaces, so that what they stand for is not known here.
const SHELL: [char; 5] = ['$', '`', '*', '?', '\\'];

/// Reads the scripts below a folder, or one script; returns a line for each option that is refused, and how many scripts
/// there are. Err: some are refused.
pub(super) fn check(path: &Path) -> Result<String, String> {
    let mut files = Vec::new();
    collect_files(path, 0, &mut files)?;
    let (mut text, mut count) = (String::new(), 0);
    for file in &files {
        for (line, problem) in problems(file) {
            count += 1;
            let _ = writeln!(text, "{}:{line}: {problem}", file.display());
        }
    }
    let scripts = format!("{} script{}", files.len(), if files.len() == 1 { "" } else { "s" });
    if count == 0 {
        return Ok(format!("{}: good: {scripts}\n", path.display()));
    }
    crate::hall::print(&text);
    Err(format!("{}: {scripts}, {count} option{} refused", path.display(), if count == 1 { "" } else { "s" }))
}

/// Adds the scripts of a folder, in the order of their names. A script begins with `#!`.
fn collect_files(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let wrong = |e: std::io::Error| format!("{}: {e}", path.display());
    let meta = fs::symlink_metadata(path).map_err(wrong)?;
    if meta.is_dir() && depth < DEPTH_MAX {
        let entries = fs::read_dir(path).map_err(wrong)?.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        let mut entries: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
        entries.sort();
        return entries.iter().try_for_each(|entry| collect_files(entry, depth + 1, files));
    }
    let mut mark = [0; 2];
    if meta.is_file() && File::open(path).and_then(|mut file| file.read_exact(&mut mark)).is_ok() && mark == *b"#!" {
        files.push(path.to_owned());
    }
    Ok(())
}

/// Returns what is refused in a script, with the number of its line.
fn problems(path: &Path) -> Vec<(u32, String)> {
    let script = match Script::open(path, Path::new("/")) {
        Ok(script) => script,
        Err(stop) => return vec![(1, reason(&stop))],
    };
    let mut found = Vec::new();
    let directives = script.directives().unwrap_or_else(|stop| {
        found.push((1, reason(&stop)));
        Vec::new()
    });
    for directive in directives {
        let refused = refused(Tool::Sbatch, &directive.words);
        found.extend(
            refused.into_iter().map(|why| (directive.line, format!("#SBATCH {}: {why}", directive.words.join(" ")))),
        );
    }
    let text = String::from_utf8_lossy(&script.body);
    for (number, line) in (1..).zip(text.lines()) {
        let Some((tool, rest)) = called(line) else { continue };
        // A quote that is open here may close in a later line: the shell knows.
        let Ok(words) = words(rest) else { continue };
        let known: Vec<String> = words.into_iter().filter(|word| !word.contains(SHELL)).collect();
        found.extend(refused(tool, &known).into_iter().map(|why| (number, format!("{}: {why}", tool.name()))));
    }
    found.sort_by_key(|(line, _)| *line);
    found
}

/// Returns the command that a line of a script calls first, and what stands behind it.
fn called(line: &str) -> Option<(Tool, &str)> {
    let (name, rest) = line.trim_start().split_once(' ')?;
    let tool = [Tool::Srun, Tool::Salloc, Tool::Sbatch].into_iter().find(|tool| tool.name() == name)?;
    Some((tool, rest))
}

/// Returns why options are refused, each reason once.
fn refused(tool: Tool, words: &[String]) -> Vec<String> {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let line = match collect::line(tool, &words) {
        Ok(line) => line,
        Err(stop) => return vec![reason(&stop)],
    };
    let apply = |option| {
        // Options that contradict others are a matter of the whole script.
        collect::apply_option(&mut SubmitOptions::new(tool), tool, option, &Source::Script(0)).err()
    };
    line.options.iter().filter_map(apply).map(|stop| reason(&stop)).filter(|why| !why.is_empty()).collect()
}

fn reason(stop: &Stop) -> String {
    match stop {
        Stop::Usage(lines) => lines.lines().next().unwrap_or_default().to_owned(),
        Stop::Bad { lines, .. } => lines.join(" "),
        Stop::Show(_) | Stop::Help | Stop::Brief | Stop::Silent(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::check;

    #[test]
    fn each_option_that_is_refused_has_its_line() {
        let dir = std::env::temp_dir().join(format!("squall-check-scripts-{}", std::process::id()));
        fs::create_dir_all(dir.join("more")).unwrap();
        let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
        write("notes.txt", "#SBATCH --no-such-option\n");
        write(
            "good",
            "#!/bin/bash\n#SBATCH -N2 --segment=2\n#SBATCH --time=1:00\nsrun -n2 --cpu-bind=$HOW ./a --no-such-option\n",
        );
        assert_eq!(check(&dir).unwrap(), format!("{}: good: 1 script\n", dir.display()));
        write(
            "more/bad.sh",
            "#!/bin/sh\n#SBATCH --nodes=1\n#SBATCH --no-such-option\n#SBATCH --mem-update=20@60\necho\n  srun --no-allocate ./a\n",
        );
        let problems = super::problems(&dir.join("more/bad.sh"));
        let lines: Vec<u32> = problems.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [3, 4, 6], "{problems:?}");
        assert!(
            problems[0].1.contains("#SBATCH --no-such-option: ") && problems[2].1.starts_with("srun: "),
            "{problems:?}"
        );
        let said = check(&dir).unwrap_err();
        assert!(said.ends_with("2 scripts, 3 options refused"), "{said}");
        fs::remove_dir_all(&dir).unwrap();
    }
}
