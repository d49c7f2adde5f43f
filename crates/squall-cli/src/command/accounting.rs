//! `squall accounting copy FROM TO`: copies the records from SQLite to PostgreSQL, or back.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use squall_files::place::Place;
use squall_host::transfer::{self, End};
use squall_model::config::Server;
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{self, Page};

/// `squall accounting`, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall accounting",
    about: "copy the records of accounting from one store to another",
    synopsis: &["copy FROM TO [--state=DIR]"],
    options: page::Options::Own(FLAGS),
    notes: "\
FROM and TO are `sqlite`, the file in the state folder, or an address as in [accounting] store, such as \
postgresql://squall@db.example.org/squall. TO must have no records yet. The controller must not run meanwhile. All is copied in \
one transaction, and the numbers of rows are compared at the end. Then set [accounting] store, and start the cluster: it goes \
on in the new store. FROM stays as it is.
",
};

const FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    flag("state", '\0', Arg::Needed("DIR"), "the cluster's state folder (otherwise your own cluster, or SQUALL_STATE)"),
];

/// Runs `squall accounting`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    super::own(&PAGE, args, |given| {
        let [verb, from, to] = given.operands.as_slice() else {
            return Err(
                "what is to be copied? `squall accounting copy sqlite postgresql://USER@HOST/DATABASE`".to_owned()
            );
        };
        match verb.as_str() {
            "copy" => copy(given, from, to),
            other => Err(format!("`{other}`: `squall accounting copy FROM TO` is all there is")),
        }
    })
}

fn copy(given: &Arguments, from: &str, to: &str) -> Result<String, String> {
    let place = super::found_place(given)?;
    super::owned(&place)?;
    if !Path::new(&place.dir()).is_dir() {
        return Err(format!("{} is no state folder", place.dir().display()));
    }
    let (from, to) = (end(&place, from)?, end(&place, to)?);
    let counts = transfer::transfer(&place, &from, &to)?;
    let rows: Vec<String> =
        counts.iter().filter(|(_, rows)| *rows > 0).map(|(table, rows)| format!("{table} {rows}")).collect();
    let rows = if rows.is_empty() { "nothing, as there are no records".to_owned() } else { rows.join(", ") };
    Ok(format!("copied from {} to {}, and counted there: {rows}\n", from.place(), to.place()))
}

fn end(place: &Place, text: &str) -> Result<End, String> {
    match text {
        "sqlite" => Ok(End::File(place.clone())),
        url => Server::parse(url)
            .map(End::Server)
            .map_err(|problem| format!("neither `sqlite` nor an address of PostgreSQL: {problem}")),
    }
}
