//! Completion of command lines in shells.

use super::{Options, Page};
use crate::options::Arg;
use crate::options::flag;
use crate::options::getopt::Shape;
use crate::options::table::options_of;

/// What may stand at a place of a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Ids of jobs that wait or run.
    Jobs,
    /// Names of nodes.
    Nodes,
    /// Names of partitions.
    Partitions,
    /// Names of users.
    Users,
    /// Names of accounts.
    Accounts,
    /// Names of QOS.
    Qos,
    /// Names of reservations.
    Reservations,
    /// Names of files, which the shell completes by itself.
    Files,
    /// One of these words.
    Words(&'static [&'static str]),
}

/// Completions of the last word of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Options, with their descriptions.
    Options(Vec<(String, String)>),
    /// A value that begins with `typed`. `before` stands in front of it in the same word, such as `--partition=debug,`.
    Value {
        /// Part of the word in front of the value.
        before: String,
        /// Beginning of the value.
        typed: String,
        /// Kind of the value.
        wanted: ValueKind,
    },
}

/// States of jobs, for `--states`.
const JOB_STATES: &[&str] =
    &["PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT"];

/// Returns what the value of the option `long` of the command `name` is.
fn value_of(name: &str, long: &str) -> ValueKind {
    match long {
        "partition" | "partitions" => ValueKind::Partitions,
        "nodelist" | "nodes" | "exclude" | "node" if name != "sbatch" && name != "srun" && name != "salloc" => {
            ValueKind::Nodes
        }
        "nodelist" | "exclude" => ValueKind::Nodes,
        "job" | "jobs" | "jobid" => ValueKind::Jobs,
        "user" | "users" | "uid" | "mail-user" => ValueKind::Users,
        "account" | "accounts" => ValueKind::Accounts,
        "qos" => ValueKind::Qos,
        "reservation" => ValueKind::Reservations,
        "state" | "states" if name != "sinfo" => ValueKind::Words(JOB_STATES),
        "states" => {
            ValueKind::Words(&["idle", "alloc", "mix", "down", "drain", "drained", "draining", "maint", "resv"])
        }
        "mail-type" => ValueKind::Words(&["NONE", "BEGIN", "END", "FAIL", "NODE_FAIL", "REQUEUE", "ALL"]),
        "open-mode" => ValueKind::Words(&["append", "truncate"]),
        "distribution" => ValueKind::Words(&["block", "cyclic", "arbitrary", "plane="]),
        "mpi" => ValueKind::Words(&["none", "pmix", "pmi2"]),
        _ => ValueKind::Files,
    }
}

/// Verbs of scontrol.
const VERBS: &[&str] = &[
    "show",
    "update",
    "hold",
    "release",
    "requeue",
    "requeuehold",
    "suspend",
    "resume",
    "create",
    "delete",
    "ping",
    "reconfigure",
    "shutdown",
    "top",
    "uhold",
    "notify",
    "listpids",
    "pidinfo",
    "write",
    "wait_job",
    "completing",
    "version",
];

/// Verbs of scontrol with jobs as operands.
const VERBS_OF_JOBS: &[&str] = &[
    "hold",
    "uhold",
    "release",
    "requeue",
    "requeuehold",
    "suspend",
    "resume",
    "top",
    "notify",
    "wait_job",
    "listpids",
];

/// What scontrol shows.
const SHOWN: &[&str] = &[
    "job",
    "node",
    "partition",
    "reservation",
    "config",
    "step",
    "licenses",
    "assoc_mgr",
    "daemons",
    "topology",
    "hostnames",
    "hostlist",
];

/// Returns what an operand of the command is, by the words before it.
fn operand_of(name: &str, before: &[String]) -> ValueKind {
    let words: Vec<&str> = before.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    let of_jobs = match (name, words.as_slice()) {
        ("scancel" | "seff" | "squall why" | "squall forecast" | "squall tail" | "sattach" | "swait", _) => true,
        ("scontrol", ["show", what, ..]) => ["job", "jobs", "step"].contains(what),
        ("scontrol", [verb, ..]) => VERBS_OF_JOBS.contains(verb),
        _ => false,
    };
    if of_jobs {
        return ValueKind::Jobs;
    }
    match (name, words.as_slice()) {
        ("scontrol", []) => ValueKind::Words(VERBS),
        ("scontrol", ["show"]) => ValueKind::Words(SHOWN),
        ("scontrol", ["show", "node" | "nodes", ..]) => ValueKind::Nodes,
        ("scontrol", ["show", "partition" | "partitions", ..]) => ValueKind::Partitions,
        ("scontrol", ["show", "reservation" | "reservations", ..]) => ValueKind::Reservations,
        ("sacctmgr", []) => ValueKind::Words(&["show", "add", "modify", "delete", "dump", "load", "version"]),
        ("sacctmgr", ["show" | "add" | "modify" | "delete"]) => {
            ValueKind::Words(&["account", "user", "qos", "association", "cluster", "tres", "event", "transaction"])
        }
        ("sreport", []) => ValueKind::Words(&["cluster", "job", "user", "reservation"]),
        ("sreport", ["cluster"]) => {
            ValueKind::Words(&["AccountUtilizationByUser", "UserUtilizationByAccount", "Utilization"])
        }
        ("sreport", ["job"]) => ValueKind::Words(&["SizesByAccount", "SizesByWcKey"]),
        ("sreport", ["user"]) => ValueKind::Words(&["TopUsage"]),
        _ => ValueKind::Files,
    }
}

/// An option's names and value, as completion needs them.
struct OptionNames {
    names: Vec<String>,
    arg: Arg,
    long: &'static str,
    doc: String,
}

fn known<O: Shape>(option: &O, doc: String) -> OptionNames {
    let long = std::iter::once(option.long()).chain(option.aliases().iter().copied()).filter(|name| !name.is_empty());
    let letter = option.short().map(|letter| format!("-{letter}"));
    OptionNames {
        names: long.map(|name| format!("--{name}")).chain(letter).collect(),
        arg: option.arg(),
        long: option.long(),
        doc,
    }
}

impl Page {
    fn known(&self) -> Vec<OptionNames> {
        match self.options {
            Options::Own(own) => flag::all(own).map(|flag| known(flag, flag.told())).collect(),
            Options::Job(tool) => options_of(tool).map(|option| known(option, option.doc.to_owned())).collect(),
        }
    }

    /// Returns the completions of the last of `words`, which are the arguments so far; the last may be empty.
    pub fn complete(&self, words: &[String]) -> Completion {
        let (last, before) = words.split_last().map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
        let options = self.known();
        let needs = |word: &String| options.iter().find(|o| matches!(o.arg, Arg::Needed(_)) && o.names.contains(word));
        if let Some(option) = before.last().and_then(needs) {
            return listed("", last, value_of(self.name, option.long));
        }
        if let Some((name, value)) = last.split_once('=').filter(|_| last.starts_with("--"))
            && let Some(option) = options.iter().find(|o| o.names.iter().any(|known| known == name))
        {
            return listed(&format!("{name}="), value, value_of(self.name, option.long));
        }
        if last.starts_with('-') {
            let fits = |o: &OptionNames| {
                let names =
                    o.names.iter().filter(|name| name.starts_with(last) && (last.len() > 1 || name.starts_with("--")));
                let ending = if matches!(o.arg, Arg::Needed(_)) { "=" } else { "" };
                let word =
                    |name: &String| if name.starts_with("--") { format!("{name}{ending}") } else { name.clone() };
                names.map(|name| (word(name), o.doc.clone())).collect::<Vec<_>>()
            };
            return Completion::Options(options.iter().filter(|o| !o.doc.is_empty()).flat_map(fits).collect());
        }
        listed("", last, operand_of(self.name, before))
    }
}

/// Returns the completion of the last item of a list with commas.
fn listed(before: &str, text: &str, wanted: ValueKind) -> Completion {
    let (done, typed) = match text.rsplit_once(',') {
        Some((done, typed)) if wanted != ValueKind::Files => (format!("{done},"), typed),
        _ => (String::new(), text),
    };
    Completion::Value { before: format!("{before}{done}"), typed: typed.to_owned(), wanted }
}

#[cfg(test)]
mod tests {
    use super::{Completion, ValueKind};
    use crate::options::Tool;
    use crate::page::{Options, Page};

    fn complete(words: &[&str]) -> Completion {
        let page = Page { name: "sbatch", about: "", synopsis: &[], options: Options::Job(Tool::Sbatch), notes: "" };
        page.complete(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_and_values() {
        let Completion::Options(found) = complete(&["-N", "2", "--par"]) else { panic!("no options") };
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["--partition=", "--parsable"]);
        let value = |before: &str, typed: &str, wanted| Completion::Value {
            before: before.into(),
            typed: typed.into(),
            wanted,
        };
        assert_eq!(complete(&["--partition=de"]), value("--partition=", "de", ValueKind::Partitions));
        assert_eq!(complete(&["-p", "a,d"]), value("a,", "d", ValueKind::Partitions));
        assert_eq!(complete(&["-w", ""]), value("", "", ValueKind::Nodes));
        assert_eq!(complete(&["job"]), value("", "job", ValueKind::Files));
    }
}
