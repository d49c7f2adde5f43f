//! `squall man`: writes the manual pages.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use squall_model::config::SECTIONS;
use squall_text::options::Arg;
use squall_text::options::flag::{Flag, flag};
use squall_text::page::{Options, Page};

use crate::command;

const VERSION: &str = env!("CARGO_PKG_VERSION");

const OWN: &[Flag] = &[flag("help", 'h', Arg::None, "show this help")];

/// `squall man`, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall man",
    about: "write the manual pages",
    synopsis: &["DIR"],
    options: Options::Own(OWN),
    notes: "Writes DIR/man1 and DIR/man5. `export MANPATH=DIR:` lets man find them.\n",
};

/// Runs `squall man`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    command::own(&PAGE, args, |given| {
        let [dir] = given.operands.as_slice() else { return Err("in which folder? `squall man DIR`".into()) };
        let pages =
            super::COMMANDS.iter().map(|command| (format!("{}.1", command.page.man_name()), command.page.man(VERSION)));
        let own = [("squall.1".to_owned(), overview()), ("squall.toml.5".to_owned(), configuration())];
        let mut written = 0;
        for (name, text) in pages.chain(own) {
            let folder = Path::new(dir).join(if name.ends_with(".5") { "man5" } else { "man1" });
            let path = folder.join(name);
            let cannot = |e: std::io::Error| format!("cannot write {}: {e}", path.display());
            std::fs::create_dir_all(&folder).map_err(cannot)?;
            std::fs::write(&path, text).map_err(cannot)?;
            written += 1;
        }
        Ok(format!("{written} pages in {dir}/man1 and {dir}/man5\n"))
    })
}

/// Returns squall(1): all commands.
fn overview() -> String {
    let mut text = format!(
        ".TH SQUALL 1 \"\" \"Squall {VERSION}\" \"Squall\"\n.SH NAME\nsquall \\- resource manager for clusters\n.SH SYNOPSIS\n\
         .B squall\n.I COMMAND\n[\\fIARGUMENTS\\fR]\n.SH DESCRIPTION\n\
         Squall queues batch jobs and parallel programs of many users, decides when and where each runs, and starts it.\n\
         Slurm's commands are links to this program (\\fBsquall links\\fR \\fIDIR\\fR).\n"
    );
    for (title, slurm) in [("THE CLUSTER", false), ("SLURM'S COMMANDS", true)] {
        let _ = writeln!(text, ".SH {title}");
        for command in super::COMMANDS.iter().filter(|command| command.slurm == slurm) {
            let about = command.page.about.replace('-', "\\-");
            let _ = write!(text, ".TP\n.BR {} (1)\n{about}\n", command.page.man_name().replace('-', "\\-"));
        }
    }
    text.push_str(
        ".SH ENVIRONMENT\n.TP\n.B SQUALL_STATE\nState folder of the cluster that commands talk to.\n\
         .SH FILES\n.TP\n.I /etc/squall/squall.toml\nConfiguration, see\n.BR squall.toml (5).\n\
         .TP\n.I /var/lib/squall\nState of the machine's cluster: journal, accounting, logs.\n",
    );
    text
}

/// Returns squall.toml(5): all keys of the configuration.
fn configuration() -> String {
    let mut text = format!(
        ".TH SQUALL.TOML 5 \"\" \"Squall {VERSION}\" \"Squall\"\n.SH NAME\nsquall.toml \\- configuration of a Squall cluster\n\
         .SH DESCRIPTION\nThe file is TOML. Keys have Slurm's names or those below. \\fBsquall check\\fR checks a file.\n"
    );
    for section in SECTIONS {
        let table = match (section.table, section.repeated) {
            ("", _) => String::new(),
            (table, true) => format!(" [[{table}]]"),
            (table, false) => format!(" [{table}]"),
        };
        let _ = write!(text, ".SH {}{table}\n{}\n", escaped(&section.title.to_uppercase()), escaped(section.about));
        for key in section.keys {
            let slurm = if key.slurm.is_empty() { String::new() } else { format!(", or {}", key.slurm.join(", ")) };
            let unset = if key.unset.is_empty() { String::new() } else { format!(" Default: {}.", key.unset) };
            let _ = write!(
                text,
                ".TP\n\\fB{}\\fR{slurm} ({})\n{}{unset}\nExample: {} = {}\n",
                key.name,
                key.form(),
                escaped(key.what),
                key.name,
                escaped(key.example)
            );
        }
    }
    text.push_str(".SH SEE ALSO\n.BR squall (1)\n");
    text
}

/// Escapes what roff would interpret within a line.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('`', "");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}
