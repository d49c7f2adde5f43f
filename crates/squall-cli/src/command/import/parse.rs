//! Reads the lines of Slurm's configuration files: comments, continuation lines, quotes, `Include`.

use std::rc::Rc;

/// Deepest nesting of `Include`, as in Slurm.
const INCLUDE_DEPTH_MAX: usize = 16;

/// Where a line stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin {
    /// Name of the file, as the user or an `Include` gives it.
    pub(super) file: Rc<str>,
    /// Number of the line, from 1; of a continued line the first.
    pub(super) line: usize,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// One `KEY=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// The key as it is written. Slurm ignores its case.
    pub(super) key: String,
    /// The value without quotes.
    pub(super) value: String,
}

/// One line, with continuation lines joined to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) origin: Origin,
    /// The settings of the line, or why the line can't be read.
    pub(super) pairs: Result<Vec<Pair>, String>,
}

/// Reads the text of a file by the name that an `Include` gives. The error says why it can't be read.
pub(super) type Read<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Splits a file into entries and reads included files in their place. Err: an included file can't be read.
pub(super) fn entries(file: &str, text: &str, read: Read<'_>) -> Result<Vec<Entry>, String> {
    let mut all = Vec::new();
    collect(file, text, read, 0, &mut all)?;
    Ok(all)
}

fn collect(file: &str, text: &str, read: Read<'_>, depth: usize, all: &mut Vec<Entry>) -> Result<(), String> {
    let file: Rc<str> = file.into();
    for (line, content) in joined(text) {
        let origin = Origin { file: Rc::clone(&file), line };
        let Some(name) = included(&content) else {
            all.push(Entry { origin, pairs: pairs(&content) });
            continue;
        };
        if depth >= INCLUDE_DEPTH_MAX {
            return Err(format!("{origin}: Include {name}: files include each other: remove one Include"));
        }
        let mut settings = all.iter().flat_map(|entry| entry.pairs.iter().flatten());
        let cluster = settings.rfind(|pair| pair.key.eq_ignore_ascii_case("ClusterName"));
        let name = cluster.map_or_else(|| name.to_owned(), |pair| name.replace("%c", &pair.value));
        let text = read(&name).map_err(|problem| format!("{origin}: Include {name}: {problem}"))?;
        collect(&name, &text, read, depth + 1, all)?;
    }
    Ok(())
}

/// Returns the file that an `Include` line names.
fn included(line: &str) -> Option<&str> {
    let (word, name) = line.split_once(char::is_whitespace)?;
    let name = name.trim().trim_matches('"');
    (word.eq_ignore_ascii_case("include") && !name.is_empty() && !name.starts_with('=')).then_some(name)
}

/// Returns the lines that are not empty, with their numbers: comments removed, continuation lines joined, backslashes
/// before other characters removed.
fn joined(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = without_comment(line).trim_end();
        let continues = line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1;
        let content = if continues { &line[..line.len() - 1] } else { line };
        match lines.last_mut().filter(|_| open) {
            Some((_, last)) => last.push_str(content),
            None => lines.push((number, content.to_owned())),
        }
        open = continues;
    }
    let plain = |(number, line): (usize, String)| (number, unescaped(line.trim()));
    lines.into_iter().map(plain).filter(|(_, line)| !line.is_empty()).collect()
}

/// Returns the line up to the first `#` that no backslash precedes.
fn without_comment(line: &str) -> &str {
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        if c == '#' && !escaped {
            return &line[..at];
        }
        escaped = c == '\\' && !escaped;
    }
    line
}

fn unescaped(line: &str) -> String {
    let (mut plain, mut chars) = (String::with_capacity(line.len()), line.chars());
    while let Some(c) = chars.next() {
        plain.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    plain
}

/// Splits a line into `KEY=VALUE`; blanks may stand around the equals sign, and quotes around a value.
fn pairs(line: &str) -> Result<Vec<Pair>, String> {
    let (mut all, mut rest) = (Vec::new(), line.trim_start());
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.').unwrap_or(rest.len());
        let (key, after) = rest.split_at(end);
        let word = rest.split_whitespace().next().unwrap_or_default();
        let after = after.trim_start();
        if key.is_empty() || !after.starts_with('=') {
            let sums = ["+=", "-=", "*=", "/="].iter().any(|sign| after.starts_with(sign)) && !key.is_empty();
            let remedy = if sums { "write the whole value after `=`" } else { "KEY=VALUE is needed" };
            return Err(format!("`{word}`: {remedy}"));
        }
        let (value, after) =
            value(after[1..].trim_start()).ok_or_else(|| format!("`{word}`: a quote is not closed"))?;
        all.push(Pair { key: key.to_owned(), value: value.to_owned() });
        rest = after.trim_start();
    }
    Ok(all)
}

/// Splits a value off the text. None: its quote is not closed.
fn value(text: &str) -> Option<(&str, &str)> {
    match text.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"'),
        None => Some(text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, entries};
    use proptest::prelude::{ProptestConfig, any, proptest};

    fn read(text: &str) -> Vec<Entry> {
        entries("slurm.conf", text, &|name| Err(format!("{name} is not there"))).unwrap()
    }

    fn shown(text: &str) -> Vec<String> {
        let line = |entry: &Entry| match &entry.pairs {
            Ok(pairs) => pairs.iter().map(|p| format!("{}={}", p.key, p.value)).collect::<Vec<_>>().join("|"),
            Err(problem) => problem.clone(),
        };
        read(text).iter().map(|entry| format!("{} {}", entry.origin.line, line(entry))).collect()
    }

    #[test]
    fn comments_continuations_quotes_and_blanks_are_slurms() {
        let text = "# a comment \\\nClusterName = lab # named\n\nNodeName=n[1-2] \\\n  CPUs=4 Reason=\"bad fan\"\n\
                    Prolog=/a\\#b\nTmpFS\nKillWait+=3\nX=\"open\nSlurmUser=\n";
        let expected = [
            "2 ClusterName=lab",
            "4 NodeName=n[1-2]|CPUs=4|Reason=bad fan",
            "6 Prolog=/a#b",
            "7 `TmpFS`: KEY=VALUE is needed",
            "8 `KillWait+=3`: write the whole value after `=`",
            "9 `X=\"open`: a quote is not closed",
            "10 SlurmUser=",
        ];
        assert_eq!(shown(text), expected);
    }

    #[test]
    fn included_files_stand_in_place_of_the_line() {
        let files = |name: &str| match name {
            "nodes-lab.conf" => Ok("NodeName=n1\nInclude parts.conf\n".to_owned()),
            "parts.conf" => Ok("PartitionName=p\n".to_owned()),
            "self.conf" => Ok("include self.conf\n".to_owned()),
            _ => Err("no such file".to_owned()),
        };
        let of = |text: &str| {
            let found = entries("slurm.conf", text, &files)?;
            Ok::<_, String>(found.iter().map(|entry| entry.origin.to_string()).collect::<Vec<_>>())
        };
        let found = of("ClusterName=lab\nInclude nodes-%c.conf\nKillWait=3\n");
        assert_eq!(found.unwrap(), ["slurm.conf:1", "nodes-lab.conf:1", "parts.conf:1", "slurm.conf:3"]);
        assert_eq!(of("\ninclude gone.conf\n"), Err("slurm.conf:2: Include gone.conf: no such file".to_owned()));
        assert!(of("include self.conf\n").unwrap_err().contains("files include each other"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn no_text_makes_the_parser_panic(text in any::<String>(), marked in "[a-zA-Z=#\\\\\"\\[\\],\n 0-9-]{0,80}") {
            read(&text);
            read(&marked);
        }
    }
}
