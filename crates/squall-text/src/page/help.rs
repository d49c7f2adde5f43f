//! Texts of `--help` and `--usage`.

use std::fmt::Write;

use super::{Page, Row};

/// Column at which descriptions of options begin, as in Slurm.
const INDENT: usize = 30;

/// Width of the texts, in characters.
const COLUMNS: usize = 80;

impl Page {
    /// Returns the text of `--help`.
    pub fn help(&self) -> String {
        let mut text = String::new();
        for (at, form) in self.synopsis.iter().enumerate() {
            let lead = if at == 0 { "Usage:" } else { "      " };
            wrapped(&mut text, &format!("{lead} {} {form}", self.name), 9 + self.name.len());
        }
        for (title, rows) in self.groups() {
            if !title.is_empty() {
                let _ = write!(text, "\n{title}:\n");
            }
            for row in rows {
                entry(&mut text, &row);
            }
        }
        if !self.notes.is_empty() {
            text.push('\n');
            for line in self.notes.lines() {
                let lead = line.len() - line.trim_start().len();
                let gap = line[lead..].find("  ").map(|at| lead + at);
                let indent = gap.map_or(lead, |at| at + line[at..].len() - line[at..].trim_start().len());
                wrapped(&mut text, line, indent);
            }
        }
        text
    }

    /// Returns the text of `--usage`: all options in brackets.
    pub fn usage(&self) -> String {
        let indent = 8 + self.name.len();
        let mut words = format!("Usage: {}", self.name);
        for row in self.groups().into_iter().flat_map(|(_, rows)| rows) {
            let name = match (row.long.first(), row.letter) {
                (Some(long), _) => format!("--{long}{}", row.value()),
                (None, letter) => letter.map(|letter| format!("-{letter}")).unwrap_or_default(),
            };
            let _ = write!(words, " [{name}]");
        }
        let operands = self.synopsis.first().and_then(|form| form.split_once("[OPTIONS]")).map_or("", |(_, rest)| rest);
        let mut text = String::new();
        wrapped(&mut text, &(words + operands), indent);
        text
    }
}

fn entry(text: &mut String, row: &Row) {
    let letter = match (row.letter, row.long.is_empty()) {
        (Some(letter), false) => format!("-{letter}, "),
        (Some(letter), true) => format!("-{letter}"),
        (None, _) => "    ".to_owned(),
    };
    let long = row.long.iter().map(|name| format!("--{name}")).collect::<Vec<_>>().join(", ");
    let value = if row.long.is_empty() { row.value().replace('=', " ") } else { row.value() };
    let head = format!("  {letter}{long}{value}");
    let from = if row.variables.is_empty() { String::new() } else { format!(" [{}]", row.variables.join(", ")) };
    let doc = format!("{}{from}", row.doc);
    if head.len() < INDENT {
        wrapped(text, &format!("{head:INDENT$}{doc}"), INDENT);
    } else {
        let _ = writeln!(text, "{head}");
        wrapped(text, &format!("{:INDENT$}{doc}", ""), INDENT);
    }
}

/// Appends a line, wrapped at words; further lines are indented by `indent` columns. The first `indent` columns stay as
/// they are.
fn wrapped(text: &mut String, line: &str, indent: usize) {
    let (head, rest) = line.split_at(line.char_indices().nth(indent).map_or(line.len(), |(at, _)| at));
    let mut last = head.to_owned();
    let mut empty = true;
    for word in rest.split(' ') {
        if !empty && last.chars().count() + 1 + word.chars().count() > COLUMNS {
            let _ = writeln!(text, "{}", last.trim_end());
            last = " ".repeat(indent);
            empty = true;
        }
        if !empty {
            last.push(' ');
        }
        last.push_str(word);
        empty = false;
    }
    let _ = writeln!(text, "{}", last.trim_end());
}

#[cfg(test)]
mod tests {
    use crate::options::Arg;
    use crate::options::flag::{Flag, flag};
    use crate::page::{Options, Page};

    const FLAGS: &[Flag] = &[
        flag("all", 'a', Arg::None, "a long text that goes on and on, until it does not fit on the line at all"),
        flag("sort", '\0', Arg::Needed("fields"), "sort by these"),
        flag("job", 'j', Arg::Maybe("job"), "one job"),
        flag("jobs", 'j', Arg::Maybe("job"), ""),
        flag("", 't', Arg::Needed("format"), "a letter only"),
    ];

    const PAGE: Page = Page {
        name: "x",
        about: "",
        synopsis: &["[OPTIONS] FILE", "stop"],
        options: Options::Own(FLAGS),
        notes: "More.\n",
    };

    /// Fault D13: `--help` begins with "Usage:", names every option and fits the terminal. faults.md F16: the options
    /// about the command itself have Slurm's title.
    #[test]
    fn d13_help_begins_with_usage_names_every_option_and_fits() {
        let expected = "\
Usage: x [OPTIONS] FILE
       x stop
  -a, --all                   a long text that goes on and on, until it does not
                              fit on the line at all
      --sort=fields           sort by these
  -j, --job[=job]             one job
  -t format                   a letter only

Help options:
      --help                  show this help
      --usage                 show all options in a few lines
  -V, --version               show the version

More.
";
        assert_eq!(PAGE.help(), expected);
        let expected = "\
Usage: x [--all] [--sort=fields] [--job[=job]] [-t] [--help] [--usage]
         [--version] FILE
";
        assert_eq!(PAGE.usage(), expected);
    }
}
