//! Texts of `--help`, `--usage` and `--version`, generated from the option table.

use std::fmt::Write;

use crate::format::words::slurm_version;
use crate::options::table::{GROUPS, options_of};
use crate::options::{Arg, Effect, Opt, Tool};

/// Column at which descriptions of options begin, as in Slurm.
const INDENT: usize = 30;

/// Width of the help texts, in characters.
const COLUMNS: usize = 80;

/// Returns the text of `--version`.
pub(crate) fn version() -> String {
    format!("slurm {}\n", slurm_version())
}

fn synopsis(tool: Tool) -> &'static str {
    match tool {
        Tool::Sbatch => "sbatch [OPTIONS...] [SCRIPT [ARGUMENTS...]]",
        Tool::Srun => "srun [OPTIONS...] PROGRAM [ARGUMENTS...]",
        Tool::Salloc => "salloc [OPTIONS...] [COMMAND [ARGUMENTS...]]",
    }
}

/// Returns the text of `--help`.
pub(crate) fn help(tool: Tool) -> String {
    let mut text = format!("Usage: {}\n", synopsis(tool));
    for group in &GROUPS {
        let mut shown = group.options.iter().filter(|o| o.tools.has(tool) && !o.doc.is_empty()).peekable();
        if shown.peek().is_some() {
            let _ = write!(text, "\n{}:\n", group.title);
        }
        for option in shown {
            entry(&mut text, option, tool);
        }
    }
    if tool == Tool::Sbatch {
        text.push_str(
            "\nOptions are also read from #SBATCH lines at the top of the script and from the\n\
             variables in brackets; the command line overrides variables, and variables\n\
             override the script.\n",
        );
    }
    text
}

fn entry(text: &mut String, option: &Opt, tool: Tool) {
    let short = option.short.map_or_else(|| "    ".to_owned(), |letter| format!("-{letter}, "));
    let value = match option.arg {
        Arg::None => String::new(),
        Arg::Needed(value) => format!("={value}"),
        Arg::Maybe(value) => format!("[={value}]"),
    };
    let head = format!("  {short}--{}{value}", option.long);
    let variables: Vec<&str> = option.env.iter().copied().filter(|name| tool.reads(name)).collect();
    let from = if variables.is_empty() { String::new() } else { format!(" [{}]", variables.join(", ")) };
    let moot = if matches!(option.effect, Effect::Hint(_)) { " (without effect)" } else { "" };
    let doc = format!("{}{moot}{from}", option.doc);
    let mut line = if head.len() < INDENT {
        format!("{head:INDENT$}")
    } else {
        let _ = writeln!(text, "{head}");
        " ".repeat(INDENT)
    };
    let mut empty = true;
    for word in doc.split(' ') {
        if !empty && line.len() + 1 + word.len() > COLUMNS {
            let _ = writeln!(text, "{line}");
            line = " ".repeat(INDENT);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    let _ = writeln!(text, "{line}");
}

/// Returns the text of `--usage`.
pub(crate) fn usage(tool: Tool) -> String {
    let mut lines = vec![format!("Usage: {}", tool.name())];
    for option in options_of(tool).filter(|o| !o.doc.is_empty()) {
        let word = match option.arg {
            Arg::None => format!("[--{}]", option.long),
            Arg::Needed(value) => format!("[--{}={value}]", option.long),
            Arg::Maybe(value) => format!("[--{}[={value}]]", option.long),
        };
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < COLUMNS => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(format!("            {word}")),
        }
    }
    let operands = synopsis(tool).split_once("[OPTIONS...] ").map_or("", |(_, rest)| rest);
    lines.push(format!("            {operands}\n"));
    lines.join("\n")
}
