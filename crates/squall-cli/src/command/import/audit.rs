//! A table of every key, flag and resource that Slurm has for the configuration, partitions, reservations, associations and
//! QOS: each is taken, has nothing to change here, or is refused with a reason. The answers come from the tables by which
//! the commands work; the names are in `audit.txt`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use squall_model::policy::{Association, Qos};
use squall_model::reservation::Flag;
use squall_text::verbs::key::Key;
use squall_text::verbs::setting::{Setting, Wrong};
use squall_text::verbs::{partition, reservation};

use super::keys::{self, Rule};
use super::{nodes, partitions};

/// What becomes of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// It is taken.
    Taken,
    /// There is nothing that it could change, for this reason.
    Moot(String),
    /// It is refused, with this reason.
    Refused(String),
}

use Answer::{Moot, Refused, Taken};

/// Most keys of slurm.conf that may be refused.
const REFUSED_MAX: usize = 52;

/// Returns what becomes of a name of a kind. None: Squall does not know it.
fn answer(kind: &str, name: &str) -> Option<Answer> {
    match kind {
        "slurm.conf" => keys::find(name).map(|(_, rule)| of_rule(rule)),
        "NodeName" => keys::named(nodes::KEYS, "nodes", name).map(|(_, rule)| of_rule(rule)),
        "PartitionName" => keys::named(partitions::KEYS, "partitions", name).map(|(_, rule)| of_rule(rule)),
        "update partition" => known(Key::find(partition::KEYS, name).is_some(), partition::not_done(name)),
        "reservation" => known(Key::find(reservation::KEYS, name).is_some(), reservation::not_done(name)),
        "reservation flag" => Flag::parse(name).map(|_| Taken),
        "association" => setting(|word| word.change_association(&mut Association::default()), &cleared(name)),
        "QOS" => setting(|word| word.change_qos(&mut Qos::default()), &cleared(name)),
        "QOS flag" => setting(|word| word.change_qos(&mut Qos::default()), &format!("flags={name}")),
        "TRES" => setting(|word| word.change_qos(&mut Qos::default()), &format!("GrpTRES={name}=1")),
        _ => None,
    }
}

/// Returns the setting that clears a value, which each key takes.
fn cleared(name: &str) -> String {
    if name.contains("TRES") { format!("{name}=cpu=-1") } else { format!("{name}=-1") }
}

fn of_rule(rule: Rule) -> Answer {
    match rule {
        Rule::Same(..) | Rule::Taken(..) | Rule::By(_) | Rule::Elsewhere => Taken,
        Rule::Moot(why) => Moot(why.to_owned()),
        Rule::Missing(_, why) => Refused(why.to_owned()),
    }
}

fn known(taken: bool, refused: Option<&'static str>) -> Option<Answer> {
    if taken { Some(Taken) } else { refused.map(|why| Refused(why.to_owned())) }
}

fn setting(apply: impl FnOnce(&Setting) -> Result<(), Wrong>, text: &str) -> Option<Answer> {
    match apply(&Setting::of(text)) {
        Ok(()) => Some(Taken),
        Err(Wrong::NotDone(why)) => {
            let why = why.rsplit_once(" is not taken: ").map_or(why.as_str(), |(_, why)| why);
            let why = why.rsplit_once(" can't be limited here (").map_or(why, |(_, why)| why);
            let why = why.split("): cpu, mem").next().unwrap_or(why);
            Some(Refused(why.trim().to_owned()))
        }
        Err(Wrong::Key | Wrong::Value(_)) => None,
    }
}

/// Returns the names by kind, in the order of the file.
fn names() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in include_str!("audit.txt").lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|head| head.strip_suffix(']')) {
            Some(kind) => all.push((kind, Vec::new())),
            None => all.last_mut().expect("a kind stands first").1.extend(line.split_whitespace()),
        }
    }
    all
}

/// The title of the list in docs/slurm.md.
const TITLE: &str = "## Keys that are refused";

/// Returns the list for the documentation.
fn section(refused: &[(&str, Vec<(&str, String)>)], counts: &str) -> String {
    let mut text = format!(
        "{TITLE}\n\n`squall import` names them as missing, `scontrol` and `sacctmgr` refuse them, each with its reason. All \
         other keys of Slurm 26.05 are taken, or there is nothing that they could change here.\n\n{counts}\n| key | of | \
         what happens instead, or why |\n|---|---|---|\n"
    );
    for (kind, keys) in refused {
        // Keys with the same reason share a line.
        let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (key, why) in keys {
            by_reason.entry(why).or_default().push(format!("`{key}`"));
        }
        let mut lines: Vec<(Vec<String>, &str)> = by_reason.into_iter().map(|(why, keys)| (keys, why)).collect();
        lines.sort();
        for (keys, why) in lines {
            let _ = writeln!(text, "| {} | {kind} | {} |", keys.join(", "), why.replace('|', "\\|"));
        }
    }
    text
}

#[test]
fn every_key_and_flag_of_slurm_has_an_answer() {
    let mut counts = String::from("| of | taken | nothing to change | refused | all |\n|---|---|---|---|---|\n");
    let (mut unknown, mut lists) = (Vec::new(), Vec::new());
    for (kind, names) in names() {
        let (mut taken, mut moot, mut refused) = (0, 0, Vec::new());
        for name in &names {
            match answer(kind, name) {
                Some(Taken) => taken += 1,
                Some(Moot(why)) if !why.is_empty() => moot += 1,
                Some(Refused(why)) if !why.is_empty() => refused.push((*name, why)),
                _ => unknown.push(format!("{kind} {name}")),
            }
        }
        let answered = taken + moot + refused.len();
        eprintln!("{kind}: {answered} of {} ({taken} taken, {moot} moot, {} refused)", names.len(), refused.len());
        let _ = writeln!(counts, "| {kind} | {taken} | {moot} | {} | {} |", refused.len(), names.len());
        assert!(kind != "slurm.conf" || refused.len() <= REFUSED_MAX, "{} keys are refused", refused.len());
        lists.push((kind, refused));
    }
    assert!(unknown.is_empty(), "no answer: {unknown:?}");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/slurm.md");
    let before = std::fs::read_to_string(&page).expect("the page is there");
    let begin = before.find(&format!("{TITLE}\n")).expect("slurm.md has the list");
    let end = before[begin + 1..].find("\n## ").map_or(before.len(), |at| begin + 1 + at);
    let after = format!("{}{}{}", &before[..begin], section(&lists, &counts), &before[end..]);
    if std::env::var_os("SQUALL_WRITE_DOCS").is_some() {
        std::fs::write(&page, &after).expect("the page can be written");
    } else {
        assert!(before == after, "run this test with SQUALL_WRITE_DOCS=1 to write docs/slurm.md");
    }
}

#[test]
fn names_stand_once_and_are_those_of_the_tables() {
    for (kind, names) in names() {
        let mut sorted: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), names.len(), "{kind}");
    }
    let of = |kind: &str| names().into_iter().find(|(known, _)| *known == kind).expect("the kind is there").1;
    assert_eq!(of("slurm.conf").len(), 243);
    for flag in Flag::NAMES.iter().map(|(name, _)| *name).filter(|name| *name != "STATIC") {
        assert!(of("reservation flag").contains(&flag), "{flag}");
    }
    for flag in Qos::FLAGS.iter().copied().chain(Qos::NOT_DONE.iter().map(|(flag, _)| *flag)) {
        assert!(of("QOS flag").contains(&flag), "{flag}");
    }
}
