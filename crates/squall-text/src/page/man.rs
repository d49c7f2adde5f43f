//! Manual pages, in roff's man macros (man-pages(7)).

use std::fmt::Write;

use super::{Options, Page, Row};

impl Page {
    /// Returns the manual page of section 1. `version` is Squall's version.
    pub fn man(&self, version: &str) -> String {
        let file = self.man_name();
        let mut text = format!(".TH {} 1 \"\" \"Squall {version}\" \"Squall\"\n", escaped(&file.to_uppercase()));
        let _ = write!(text, ".SH NAME\n{} \\- {}\n.SH SYNOPSIS\n", escaped(&file), escaped(self.about));
        for (at, form) in self.synopsis.iter().enumerate() {
            let gap = if at == 0 { "" } else { ".br\n" };
            let _ = writeln!(text, "{gap}\\fB{}\\fR {}", escaped(self.name), escaped(form));
        }
        text.push_str(".SH OPTIONS\n");
        let groups = self.groups();
        for (title, rows) in &groups {
            if !title.is_empty() {
                let _ = writeln!(text, ".SS {title}");
            }
            for row in rows {
                option(&mut text, row);
            }
        }
        variables(&mut text, &groups);
        if !self.notes.is_empty() {
            text.push_str(".SH NOTES\n");
            paragraphs(&mut text, self.notes);
        }
        let exit = match self.options {
            Options::Job(_) => {
                "0 for success, 1 for a request that fails, 255 for a wrong command line, and the tasks' own \
                                status where the command waits for tasks."
            }
            Options::Own(_) => "0 for success, 1 or 255 for an error, which is written to standard error.",
        };
        let _ = write!(text, ".SH EXIT STATUS\n{exit}\n.SH SEE ALSO\n.BR squall (1),\n.BR squall.toml (5)\n");
        text
    }

    /// Returns the name of the manual page without its section: `squall-up`.
    pub fn man_name(&self) -> String {
        self.name.replace(' ', "-")
    }
}

fn variables(text: &mut String, groups: &[(&str, Vec<Row>)]) {
    let rows = groups.iter().flat_map(|(_, rows)| rows).filter(|row| !row.variables.is_empty());
    for (at, row) in rows.enumerate() {
        if at == 0 {
            text.push_str(".SH ENVIRONMENT\nThese variables set options; the command line overrides them.\n");
        }
        for variable in &row.variables {
            let _ = write!(text, ".TP\n.B {variable}\nSame as \\fB\\-\\-{}\\fR.\n", escaped(row.long[0]));
        }
    }
}

fn option(text: &mut String, row: &Row) {
    let letter = row.letter.map(|letter| format!("\\fB\\-{letter}\\fR"));
    let long = row.long.iter().map(|name| format!("\\fB\\-\\-{}\\fR", escaped(name)));
    let names: Vec<String> = letter.into_iter().chain(long).collect();
    let _ = write!(text, ".TP\n{}{}\n{}\n", names.join(", "), escaped(&row.value()), begun(&escaped(&row.doc)));
}

/// Appends notes: a line that begins with a blank keeps its shape; other lines are filled.
fn paragraphs(text: &mut String, notes: &str) {
    let mut literal = false;
    for line in notes.lines() {
        if line.is_empty() {
            text.push_str(if literal { "\n" } else { ".PP\n" });
            continue;
        }
        if line.starts_with(' ') != literal {
            literal = !literal;
            text.push_str(if literal { ".PP\n.nf\n" } else { ".fi\n.PP\n" });
        }
        let _ = writeln!(text, "{}", begun(&escaped(line)));
    }
    if literal {
        text.push_str(".fi\n");
    }
}

/// Escapes what roff would interpret within a line.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// Protects a line that begins like a request.
fn begun(line: &str) -> String {
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() }
}

#[cfg(test)]
mod tests {
    use crate::options::Tool;
    use crate::page::{Options, Page};

    #[test]
    fn a_page_has_names_options_variables_and_notes() {
        let page = Page {
            name: "sbatch",
            about: "queue a batch script",
            synopsis: &["[OPTIONS...] [SCRIPT]"],
            options: Options::Job(Tool::Sbatch),
            notes: "Text.\n  .kept\n",
        };
        let text = page.man("1.0");
        for part in [
            ".TH SBATCH 1",
            "sbatch \\- queue a batch script",
            "\\fB\\-N\\fR, \\fB\\-\\-nodes\\fR=",
            ".B SBATCH_PARTITION\nSame as \\fB\\-\\-partition\\fR.",
            "Text.\n.PP\n.nf\n  .kept\n.fi\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
