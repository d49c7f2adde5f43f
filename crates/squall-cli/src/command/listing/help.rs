//! Texts of `--help` and `--usage` for listing and control commands: completed with the options that the text leaves
//! out, wrapped at 80 columns.

use crate::command::listing::arguments::{Known, SHARED, Value};

/// Width in columns at which help texts are wrapped.
const COLUMNS: usize = 80;

/// Returns the options that have a long name: those in `known` and those that all commands have.
fn options(known: &[Known]) -> impl Iterator<Item = &Known> {
    known.iter().chain(SHARED).filter(|(long, ..)| !long.is_empty())
}

/// Returns the text of `--help`: "Usage:", the text wrapped, then options that it does not name.
pub(crate) fn help(text: &str, known: &[Known]) -> String {
    let mut lines: Vec<String> = text.lines().flat_map(wrapped).collect();
    // The missing options go in front of the first empty line.
    let end = lines.iter().position(String::is_empty).unwrap_or(lines.len());
    let named = |long: &str| {
        let name = format!("--{long}");
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
        text.match_indices(&name).any(|(at, _)| ends(&text[at + name.len()..]))
    };
    let missing = options(known).filter(|(long, ..)| !named(long)).map(|(long, short, value)| {
        let letter = if *short == '\0' { "    ".to_owned() } else { format!("-{short}, ") };
        format!("  {letter}--{long}{}", argument(*value))
    });
    let missing: Vec<String> = missing.collect();
    lines.splice(end..end, missing);
    if let Some(first) = lines.first_mut().filter(|first| !first.starts_with("Usage:")) {
        first.insert_str(0, "Usage: ");
    }
    lines.join("\n") + "\n"
}

/// Returns the text of `--usage`: the first line of `text`, then the options in brackets.
pub(crate) fn usage(text: &str, known: &[Known]) -> String {
    let first = text.lines().next().unwrap_or_default().trim_start_matches("Usage:").trim();
    let mut usage = String::new();
    let mut line = format!("Usage: {first}");
    for (long, _, value) in options(known) {
        let word = format!("[--{long}{}]", argument(*value));
        if line.len() + 1 + word.len() > COLUMNS {
            usage += &line;
            usage.push('\n');
            line = " ".repeat(7);
        }
        line = line + " " + &word;
    }
    usage + &line + "\n"
}

fn argument(value: Value) -> &'static str {
    match value {
        Value::None => "",
        Value::Needed => "=value",
        Value::Maybe => "[=value]",
    }
}

/// Wraps a line; the description after the option continues below its own beginning.
fn wrapped(line: &str) -> Vec<String> {
    if line.len() <= COLUMNS {
        return vec![line.to_owned()];
    }
    let lead = line.len() - line.trim_start().len();
    let gap = line[lead..].find("  ").map(|at| lead + at);
    let indent = gap.map_or(lead, |at| at + line[at..].len() - line[at..].trim_start().len());
    let (mut lines, mut last) = (Vec::new(), line[..indent].to_owned());
    for word in line[indent..].split(' ') {
        if !last.trim().is_empty() && last.len() + 1 + word.len() > COLUMNS && last.len() > indent {
            lines.push(std::mem::replace(&mut last, " ".repeat(indent)));
        }
        if last.len() > indent {
            last.push(' ');
        }
        last.push_str(word);
    }
    lines.push(last);
    lines
}

#[cfg(test)]
mod tests {
    use super::{help, usage};
    use crate::command::listing::arguments::{Known, Value};

    const KNOWN: &[Known] = &[("all", 'a', Value::None), ("sort", '\0', Value::Needed), ("job", 'j', Value::Maybe)];

    /// Fault D13: `--help` begins with "Usage:", names every option and fits the terminal.
    #[test]
    fn d13_help_begins_with_usage_names_every_option_and_fits() {
        let text = "x [OPTIONS]\n  -a, --all    a long text that goes on and on, until it does not fit on the line at all\n\nMore.\n";
        let expected = "Usage: x [OPTIONS]\n  \
            -a, --all    a long text that goes on and on, until it does not fit on the\n               \
            line at all\n      --sort=value\n  -j, --job[=value]\n      --help\n      --usage\n  -V, --version\n\nMore.\n";
        assert_eq!(help(text, KNOWN), expected);
        let expected =
            "Usage: x [OPTIONS] [--all] [--sort=value] [--job[=value]] [--help] [--usage]\n        [--version]\n";
        assert_eq!(usage(text, KNOWN), expected);
    }
}
