//! `--json` and `--yaml` of listing commands.

#[cfg(test)]
mod tests;

use serde_json::Value;
use squall_text::format::words;
use squall_text::shapes::{self, AnswerKind, Dialect, Meta, Notation, Notes, Version};

use crate::command::listing::call::{Call, FROM_STANDBY, Fail, of_standby};
use squall_text::options::flag::Arguments;

/// Returns the format chosen by `--json` or `--yaml`, with the version of the data parser. None: neither is given.
pub(crate) fn dialect(call: &mut Call<'_>, given: &Arguments) -> Result<Option<Dialect>, Fail> {
    let name = if given.has("json") { "json" } else { "yaml" };
    if !given.has(name) {
        return Ok(None);
    }
    let notation = if name == "json" { Notation::Json } else { Notation::Yaml };
    let version = match given.last(name) {
        None | Some("") => Version::usual(words::release()),
        Some("list") => {
            call.say("Possible data_parser plugins:");
            let all = Version::ALL.map(|version| version.parser() + "\n");
            call.print(&all.concat());
            return Err(Fail(0));
        }
        Some(wanted) => {
            let known = wanted.split('+').next().unwrap_or_default();
            let Some(version) = Version::parse(known.strip_prefix("data_parser/").unwrap_or(known)) else {
                call.complain(&format!("load_plugins: unable to find plugin: data_parser/{known}"));
                let (all, usual) = (Version::names(), Version::usual(words::release()).name());
                return call.fail(&format!("--{name}={wanted}: there are {all}, of which {usual} is the default"));
            };
            version
        }
    };
    Ok(Some(Dialect { notation, version }))
}

/// Returns the text of a command's answer.
pub(crate) fn document(
    call: &Call<'_>,
    dialect: Dialect,
    cluster: &str,
    command: &[&str],
    kind: AnswerKind,
    body: Vec<(&str, Value)>,
) -> String {
    let me = call.people.me();
    let (user, group) = (call.people.user(me), call.people.group(me));
    let meta = Meta { version: dialect.version, cluster, command, source: "", user, group, now: call.now };
    let of_standby = call
        .controller
        .standby()
        .map(|standby| shapes::Warning { description: of_standby(standby), source: FROM_STANDBY.long.to_owned() });
    let notes = Notes { warnings: of_standby.into_iter().collect(), ..Notes::default() };
    shapes::document(dialect.notation, &meta, kind, body, &notes)
}
