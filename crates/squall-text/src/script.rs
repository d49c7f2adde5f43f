//! Batch scripts: reads and checks them, and finds the options in their comments.

pub mod translate;

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use squall_model::limits::SCRIPT_BYTES_MAX;

use crate::options::Stop;

/// Prefix of script lines with options.
pub(crate) const MARK: &str = "#SBATCH";

/// Obsolete prefix of script lines with options.
const OLD_MARK: &str = "#SLURM";

/// A batch script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Path of the file, as the user named it; None: standard input or `--wrap`.
    pub path: Option<PathBuf>,
    /// Content of the script, as it is submitted.
    pub body: Vec<u8>,
}

/// The options in one `#SBATCH` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// Number of the line in the script, from 1.
    pub line: u32,
    /// Words of the line, without quotes.
    pub words: Vec<String>,
    /// Component of a heterogeneous job to which the options belong, from 0. `#SBATCH hetjob` starts the next
    /// component.
    pub component: usize,
}

impl Script {
    /// Reads a script from a file; a bare name is looked for in `dir`, then in PATH.
    pub fn open(name: &Path, dir: &Path) -> Result<Self, Stop> {
        let path = find(name, dir);
        let Ok(file) = File::open(&path) else {
            return Err(Stop::bad(format!("Unable to open file {}", name.display())));
        };
        let body = read(file, &path.display().to_string())?;
        Self { path: Some(path), body }.checked()
    }

    /// Reads a script from standard input.
    pub fn stdin() -> Result<Self, Stop> {
        Self { path: None, body: read(std::io::stdin().lock(), "standard input")? }.checked()
    }

    /// Makes a script of a shell command, as Slurm does for `--wrap`.
    pub fn wrap(command: &str) -> Result<Self, Stop> {
        let body = format!("#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n").into_bytes();
        Self { path: None, body }.checked()
    }

    /// Returns the script's name for messages.
    pub fn name(&self) -> String {
        self.path.as_ref().map_or_else(|| "script".to_owned(), |p| p.display().to_string())
    }

    /// Checks that the content is a script; errors are Slurm's.
    fn checked(self) -> Result<Self, Stop> {
        let body = &self.body;
        let lines: &[&str] = if body.is_empty() {
            &["Batch script is empty!"]
        } else if body.iter().all(u8::is_ascii_whitespace) {
            &["Batch script contains only whitespace!"]
        } else if !body.starts_with(b"#!") {
            &[
                "This does not look like a batch script.  The first",
                "line must start with #! followed by the path to an interpreter.",
                "For instance: #!/bin/sh",
            ]
        } else if body.contains(&0) {
            &["The Slurm controller does not allow scripts that", "contain a NULL character '\\0'."]
        } else if body.windows(2).any(|two| two == b"\r\n") {
            &["Batch script contains DOS line breaks (\\r\\n)", "instead of expected UNIX line breaks (\\n)."]
        } else if body.len() > SCRIPT_BYTES_MAX {
            return Err(too_large(&self.name()));
        } else {
            return Ok(self);
        };
        Err(Stop::Bad { lines: lines.iter().map(|line| (*line).to_owned()).collect(), exit: 1 })
    }

    /// Returns whether the script has lines with the obsolete prefix `#SLURM`.
    pub fn has_old_marks(&self) -> bool {
        self.lines().take_while(|(_, line)| !is_command(line)).any(|(_, line)| line.starts_with(OLD_MARK))
    }

    /// Returns the script's lines, each with its number, from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (u32, Cow<'_, str>)> {
        let numbered = |(at, line)| (at as u32 + 1, String::from_utf8_lossy(line));
        self.body.split(|b| *b == b'\n').enumerate().map(numbered)
    }

    /// Splits the rest of line `number`, after its prefix, into words. An invalid line is a fatal error.
    fn words_of(&self, number: u32, rest: &str) -> Result<Vec<String>, Stop> {
        words(rest).map_err(|what| Stop::bad(format!("fatal: {}: line {number}: {what}", self.name())))
    }

    /// Returns the words of all lines that begin with `mark`. Reading stops after `commands` lines that are not
    /// comments. None: no line begins so.
    fn words_after(&self, mark: &str, commands: usize) -> Result<Option<Vec<String>>, Stop> {
        let (mut found, mut seen) = (None, 0);
        for (number, line) in self.lines() {
            if let Some(rest) = line.strip_prefix(mark) {
                found.get_or_insert_with(Vec::new).extend(self.words_of(number, rest)?);
            } else if !line.starts_with('#') {
                seen += 1;
            }
            if seen > commands {
                break;
            }
        }
        Ok(found)
    }

    /// Returns the `#SBATCH` lines before the first command.
    pub fn directives(&self) -> Result<Vec<Directive>, Stop> {
        let (mut found, mut component) = (Vec::new(), 0);
        for (number, line) in self.lines() {
            if let Some(rest) = line.strip_prefix(MARK).or_else(|| line.strip_prefix(OLD_MARK)) {
                let words = self.words_of(number, rest)?;
                if words.first().is_some_and(|w| w.eq_ignore_ascii_case("hetjob") || w.eq_ignore_ascii_case("packjob"))
                {
                    component += 1;
                    found.push(Directive { line: number, words: words[1..].to_vec(), component });
                } else if !words.is_empty() {
                    found.push(Directive { line: number, words, component });
                }
            } else if is_command(&line) {
                break;
            }
        }
        Ok(found)
    }
}

/// Returns whether a line has more than white space or a comment.
pub(crate) fn is_command(line: &str) -> bool {
    !matches!(line.trim_start().chars().next(), None | Some('#'))
}

/// Returns the path of a script: `name` itself if it has a slash, otherwise a file of this name in `dir` or in PATH.
fn find(name: &Path, dir: &Path) -> PathBuf {
    let here = dir.join(name);
    if name.components().count() > 1 || here.exists() {
        return here;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|p| p.is_file()).unwrap_or(here)
}

fn read(from: impl Read, name: &str) -> Result<Vec<u8>, Stop> {
    let mut body = Vec::new();
    match from.take(SCRIPT_BYTES_MAX as u64 + 1).read_to_end(&mut body) {
        Ok(_) if body.len() > SCRIPT_BYTES_MAX => Err(too_large(name)),
        Ok(_) => Ok(body),
        Err(e) => Err(Stop::bad(format!("Unable to read {name}: {e}"))),
    }
}

fn too_large(name: &str) -> Stop {
    Stop::Bad {
        lines: vec![
            format!(
                "{name}: batch scripts may have at most {SCRIPT_BYTES_MAX} bytes; call the program from a short script"
            ),
            "Batch job submission failed: Pathname of a file, directory or other parameter too long".into(),
        ],
        exit: 1,
    }
}

/// Splits a line into words: quotes group, a backslash takes the next character literally, `#` begins a comment.
pub fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    // Start of the text that errors show: the end of the word before.
    let mut shown = 0;
    let mut chars = line.char_indices();
    while let Some((at, c)) = chars.next() {
        match (c, quote) {
            ('\\', _) => word.get_or_insert_default().extend(chars.next().map(|(_, c)| c)),
            (c, Some(q)) if c == q => quote = None,
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('#', None) => break,
            (':', None) if word.is_none() => return Err(format!("Unexpected `:` in [{}]", &line[shown..])),
            (c, None) if c.is_whitespace() => {
                if let Some(word) = word.take() {
                    words.push(word);
                    shown = at;
                }
            }
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    if let Some(q) = quote {
        return Err(format!("Unmatched `{q}` in [{}]", &line[shown..]));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::{Script, words};

    fn script(text: &str) -> Script {
        Script { path: Some("job.sh".into()), body: text.as_bytes().to_vec() }
    }

    fn refused(text: &str) -> String {
        match script(text).checked() {
            Err(stop) => stop.complaint(crate::options::Tool::Sbatch),
            Ok(_) => "accepted".into(),
        }
    }

    #[test]
    fn what_is_no_script() {
        insta::assert_snapshot!(
            ["", " \n\t\n", "echo hi\n", "#!/bin/sh\necho \0\n", "#!/bin/sh\r\necho\r\n", "#!/bin/sh\n"].map(refused).join("--\n"),
            @r"
        sbatch: error: Batch script is empty!
        --
        sbatch: error: Batch script contains only whitespace!
        --
        sbatch: error: This does not look like a batch script.  The first
        sbatch: error: line must start with #! followed by the path to an interpreter.
        sbatch: error: For instance: #!/bin/sh
        --
        sbatch: error: The Slurm controller does not allow scripts that
        sbatch: error: contain a NULL character '\0'.
        --
        sbatch: error: Batch script contains DOS line breaks (\r\n)
        sbatch: error: instead of expected UNIX line breaks (\n).
        --
        accepted
        "
        );
    }

    #[test]
    fn directives_as_they_are_written() {
        let text = "#!/bin/bash -e\n\
            #SBATCH --job-name=\"two words\"   # trailing comment\n\
            ##SBATCH --time=1\n\
            # SBATCH --time=2\n\
            \n\
            #SBATCH --comment \"a # b\"\n\
            #SBATCH\t-n 4 -N2\n\
            #SBATCH --output=a\\ b.%j 'x y'\n\
            #SBATCH\n\
            \x20 # indented comment\n\
            module load x\n\
            #SBATCH --time=3\n";
        let found: Vec<String> = script(text)
            .directives()
            .expect("they are well written")
            .iter()
            .map(|d| format!("{}: {}", d.line, d.words.join("|")))
            .collect();
        assert_eq!(found, ["2: --job-name=two words", "6: --comment|a # b", "7: -n|4|-N2", "8: --output=a b.%j|x y"]);
    }

    #[test]
    fn problems_name_their_line() {
        let complaint = |text: &str| match script(text).directives() {
            Err(stop) => stop.complaint(crate::options::Tool::Sbatch),
            Ok(_) => "fine".into(),
        };
        assert_eq!(
            complaint("#!/bin/sh\n#SBATCH --comment \"x\n"),
            "sbatch: fatal: job.sh: line 2: Unmatched `\"` in [ \"x]\n"
        );
    }

    #[test]
    fn components_of_heterogeneous_jobs() {
        let text = "#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n2\n#SBATCH packjob\n";
        let found = script(text).directives().expect("they are well written");
        let found: Vec<_> = found.iter().map(|d| (d.component, d.words.join(" "))).collect();
        assert_eq!(found, [(0, "-n1".into()), (1, String::new()), (1, "-n2".into()), (2, String::new())]);
    }

    #[test]
    fn a_wrapped_command() {
        let body = Script::wrap("hostname").map(|s| String::from_utf8(s.body).unwrap_or_default());
        assert_eq!(body.as_deref(), Ok("#!/bin/sh\n# This script was created by sbatch --wrap.\n\nhostname\n"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in any::<String>(), bytes in any::<Vec<u8>>()) {
            let _ = words(&text);
            let _ = Script { path: None, body: bytes }.checked().and_then(|s| s.directives());
            let _ = script(&format!("#!/bin/sh\n#SBATCH {text}")).directives();
        }
    }
}
