//! `--json` and `--yaml` of listing commands.

#[cfg(test)]
mod tests;

use serde_json::Value;
use squall_text::shapes::{self, Dialect, Kind, Meta, PARSER};

use crate::command::listing::call::{Call, Fail};
use squall_text::options::flag::Arguments;

/// Returns the format chosen by `--json` or `--yaml`. None: neither is given. Refuses other versions of the data
/// parser.
pub(crate) fn dialect(call: &mut Call<'_>, given: &Arguments) -> Result<Option<Dialect>, Fail> {
    let name = if given.has("json") { "json" } else { "yaml" };
    if !given.has(name) {
        return Ok(None);
    }
    match given.last(name) {
        None | Some("") => {}
        Some("list") => {
            call.say("Possible data_parser plugins:");
            call.print(&format!("{PARSER}\n"));
            return Err(Fail(0));
        }
        Some(wanted) => {
            let known = wanted.split('+').next().unwrap_or_default();
            if known.strip_prefix("data_parser/").unwrap_or(known) != "v0.0.41" {
                call.complain(&format!("load_plugins: unable to find plugin: data_parser/{known}"));
                return call.fail(&format!("--{name}={wanted}: there is {PARSER} alone (--{name}=list)"));
            }
        }
    }
    Ok(Some(if name == "json" { Dialect::Json } else { Dialect::Yaml }))
}

/// Returns the text of a command's answer.
pub(crate) fn document(
    call: &Call<'_>,
    dialect: Dialect,
    cluster: &str,
    command: &[&str],
    kind: Kind,
    body: Vec<(&str, Value)>,
) -> String {
    let me = call.people.me();
    let meta = Meta { cluster, command, user: call.people.user(me), group: call.people.group(me), now: call.now };
    shapes::document(dialect, &meta, kind, body)
}
