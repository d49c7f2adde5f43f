//! Translates Slurm's configuration files into Squall's: texts in, texts and a report out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use squall_model::hostlist;

use super::beside;
use super::globals::Globals;
use super::lines::ConfigLine;
use super::nodes::{self, Nodes};
use super::parse::{Entry, Origin, Pair, Read, entries};
use super::partitions::Partitions;
use super::report::{Fate, Report};
use super::value::quoted;

/// The files of a site that runs Slurm.
pub(super) struct Site<'a> {
    /// Name of slurm.conf in the report.
    pub(super) name: &'a str,
    /// Text of slurm.conf.
    pub(super) text: &'a str,
    /// Reads a file that an `Include` names.
    pub(super) read: Read<'a>,
    /// Text of gres.conf.
    pub(super) devices: Option<&'a str>,
    /// Text of cgroup.conf.
    pub(super) confinement: Option<&'a str>,
    /// Text of job_container.conf.
    pub(super) folders: Option<&'a str>,
    /// Path of job_submit.lua, if it is there.
    pub(super) submit: Option<&'a str>,
    /// Name of the topology file, if there is one.
    pub(super) topology: Option<&'a str>,
    /// Names of Slurm's other files that the site has.
    pub(super) others: &'a [&'static str],
    /// Names and addresses of this machine. Nodes of other names run on other machines.
    pub(super) here: &'a [String],
}

/// Squall's files, and what became of Slurm's.
#[derive(Debug, Default)]
pub(super) struct Translation {
    /// Text of squall.toml. A key, or the head of a table, ends with the line of slurm.conf that it comes from.
    pub(super) toml: String,
    /// Text of gres.conf.
    pub(super) devices: Option<String>,
    /// Whether the topology file is taken as it is.
    pub(super) has_topology: bool,
    pub(super) report: Report,
}

/// Translates the files of a site. Err: an included file can't be read; the text names the line.
pub(super) fn translate(site: &Site<'_>) -> Result<Translation, String> {
    let lines = entries(site.name, site.text, site.read)?;
    let mut report = Report::default();
    let (mut globals, mut nodes, mut partitions) = (Globals::default(), Nodes::default(), Partitions::default());
    let order: BTreeMap<Origin, usize> = lines.iter().enumerate().map(|(at, line)| (line.origin.clone(), at)).collect();
    for Entry { origin, pairs } in &lines {
        let pairs = match pairs {
            Ok(pairs) => pairs,
            Err(problem) => {
                report.add(origin, "", Fate::Wrong, problem.clone());
                continue;
            }
        };
        match kind(pairs) {
            "nodename" => nodes.line(&ConfigLine::new(origin, pairs), &pairs[0].value, site.here, &mut report),
            "downnodes" => nodes::down(&ConfigLine::new(origin, pairs), &pairs[0].value, &mut report),
            "frontendname" => {
                let text = "there are no front-end nodes: each node has a node daemon";
                ConfigLine::new(origin, pairs).say(&mut report, "", Fate::Missing, text);
            }
            "nodeset" | "partitionname" => {}
            _ => pairs.iter().for_each(|pair| globals.read(origin, pair, &mut report)),
        }
    }
    let of_kind = |wanted: &'static str| {
        let of = move |entry: &Entry| entry.pairs.as_ref().is_ok_and(|pairs| kind(pairs) == wanted);
        lines
            .iter()
            .filter(move |entry| of(entry))
            .filter_map(|entry| Some((&entry.origin, entry.pairs.as_ref().ok()?)))
    };
    for (origin, pairs) in of_kind("nodeset") {
        nodes.set(&ConfigLine::new(origin, pairs), &pairs[0].value, &mut report);
    }
    for (origin, pairs) in of_kind("partitionname") {
        let line = ConfigLine::new(origin, pairs);
        partitions.line(&line, &pairs[0].value, &nodes, globals.cluster(), &mut report);
    }
    partitions.mark_default();
    let force = globals.forces();
    let has_topology = topology(site, &globals, &mut report);
    let mut folders = Report::default();
    if let Some(text) = site.folders {
        beside::folders(text, site.read, &mut globals, &mut folders)?;
    }
    globals.filter(site.submit, &mut report);
    globals.finish(&nodes, &mut report);
    nodes.check_devices(&globals.gres_types(), &mut report);
    report.rows.sort_by_key(|row| order.get(&row.origin).copied().unwrap_or(usize::MAX));
    let mut made = Translation { has_topology, ..Translation::default() };
    if let Some(text) = site.devices {
        made.devices = beside::devices(text, &globals.gres_types(), site.read, &mut report)?;
    }
    if let Some(text) = site.confinement {
        beside::confinement(text, site.read, &mut globals, &mut report)?;
    }
    report.rows.append(&mut folders.rows);
    for (name, instead) in beside::OTHERS.iter().filter(|(name, _)| site.others.contains(name)) {
        report.add(&Origin { file: (*name).into(), line: 1 }, "", Fate::Missing, *instead);
    }
    made.toml = toml(site.name, &globals, &nodes, &partitions, force);
    made.report = report;
    Ok(made)
}

/// Returns the first key of a line in lower case, which determines its kind.
fn kind(pairs: &[Pair]) -> &'static str {
    const KINDS: [&str; 5] = ["nodename", "downnodes", "frontendname", "nodeset", "partitionname"];
    let first = pairs.first().map_or("", |pair| pair.key.as_str());
    KINDS.into_iter().find(|kind| kind.eq_ignore_ascii_case(first)).unwrap_or_default()
}

/// Returns whether the topology file is taken, and reports it.
fn topology(site: &Site<'_>, globals: &Globals, report: &mut Report) -> bool {
    let Some(name) = site.topology else { return false };
    // Slurm reads topology.yaml in any case, and topology.conf for the plugins that need it.
    let taken = name.rsplit('.').next() == Some("yaml") || globals.has_topology();
    let (fate, text) = if taken {
        (Fate::Taken, "it is")
    } else {
        (Fate::Moot, "TopologyPlugin is not set, so Slurm does not read it either")
    };
    report.add(&Origin { file: name.into(), line: 1 }, "", fate, text);
    taken
}

/// Writes squall.toml.
fn toml(name: &str, globals: &Globals, nodes: &Nodes, partitions: &Partitions, force: bool) -> String {
    let mut text = format!("# Made from {name}. Comments name the lines that keys and tables come from.\n\n");
    for (at, made) in globals.made.iter().enumerate() {
        if !globals.made[at + 1..].iter().any(|later| later.key == made.key) {
            let _ = writeln!(text, "{} = {} # {}", made.key, made.value, made.origin);
        }
    }
    text.push_str(&controllers(globals));
    for group in &nodes.groups {
        let origin = &group.origin;
        let name = quoted(&hostlist::compress(&group.names));
        let _ = write!(text, "\n[[nodes]] # {origin}\nNodeName = {name}\n");
        for (key, value) in &group.fields {
            let _ = writeln!(text, "{key} = {value}");
        }
        for (key, _) in [("force", force), ("remote", group.remote)].iter().filter(|(_, yes)| *yes) {
            let _ = writeln!(text, "{key} = true");
        }
    }
    for partition in &partitions.all {
        let _ = writeln!(text, "\n[[partitions]] # {}", partition.origin);
        for (key, value) in &partition.fields {
            let _ = writeln!(text, "{key} = {value}");
        }
    }
    text
}

/// Returns the tables of several controllers, as comments: they need etcd, of which slurm.conf says nothing.
fn controllers(globals: &Globals) -> String {
    let tables = globals.controllers.iter().map(|(name, address, origin)| {
        format!("# [[controllers]] # {origin}\n# name = {}\n# address = {}\n", quoted(name), quoted(address))
    });
    let tables: String = tables.collect();
    if tables.is_empty() {
        return tables;
    }
    format!(
        "\n# Several controllers share a log in etcd. To have them, name its servers, take the first `#` of these lines off,\n\
         # and leave SlurmctldHost and SlurmctldPort out.\n{tables}# [log]\n# etcd = [\"HOST:2379\"]\n"
    )
}

/// Returns an error about `squall.toml` with the line of slurm.conf in place of its own: `line 7: ...` of the text
/// becomes `slurm.conf:12: ...`.
pub(in crate::command) fn at_origin(toml: &str, problem: &str) -> String {
    let number = problem.split_once("line ").and_then(|(_, rest)| {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        Some((rest[..digits].parse::<usize>().ok()?, rest[digits..].trim_start_matches([':', ',', ' '])))
    });
    let origin = number.and_then(|(number, rest)| {
        let before: Vec<&str> = toml.lines().take(number).collect();
        let (_, origin) = before.iter().rev().find_map(|line| line.rsplit_once(" # "))?;
        Some(format!("{origin}: {rest}"))
    });
    origin.unwrap_or_else(|| problem.to_owned())
}

#[cfg(test)]
mod tests {
    use super::at_origin;

    #[test]
    fn errors_name_the_line_of_slurm_conf() {
        let toml = "# Made\n\nKillWait = 30 # slurm.conf:7\n\n[[nodes]] # nodes.conf:2\nNodeName = \"a\"\nCPUs = 4\n";
        assert_eq!(at_origin(toml, "line 3: no number"), "slurm.conf:7: no number");
        assert_eq!(at_origin(toml, "TOML parse error at line 7, column 3"), "nodes.conf:2: column 3");
        assert_eq!(at_origin(toml, "licenses = \"x\": use NAME:COUNT"), "licenses = \"x\": use NAME:COUNT");
    }
}
