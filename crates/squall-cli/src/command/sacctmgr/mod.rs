//! sacctmgr: clusters, accounts, users and their limits in accounting. This file lists them; `change` changes them.

mod archive;
mod change;
mod dump;
mod job;
mod past;
mod rows;
mod stats;

pub(crate) use squall_text::columns::entities::with_root_if_shown;
pub(crate) use squall_text::columns::records::TRES;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;

use squall_model::policy::Policy;
use squall_model::wire::client::{Answer, Request};

use crate::command::listing::call::{Call, Fail, live};
use crate::command::listing::select::names;
use crate::command::listing::structured::{dialect, document};
use squall_client::unexpected;
use squall_text::columns::records::{self, starts};
use squall_text::format::words;
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{Options, Page};
use squall_text::shapes::policy as shapes;
use squall_text::verbs::setting::QUOTES;

const OPTIONS: &[Flag] = &[
    flag("associations", 's', Arg::None, "show users and accounts with their associations"),
    flag("immediate", 'i', Arg::None, "commit changes without asking"),
    flag("json", '\0', Arg::Maybe("data_parser"), "produce JSON output"),
    flag("noheader", 'n', Arg::None, "no header will be added to the beginning of output"),
    flag("oneliner", 'o', Arg::None, "one line for each record"),
    flag("parsable", 'p', Arg::None, "output will be '|' delimited with a '|' at the end"),
    flag("parsable2", 'P', Arg::None, "output will be '|' delimited without a '|' at the end"),
    flag("quiet", 'Q', Arg::None, "with --immediate: say nothing of what was changed"),
    flag("readonly", 'r', Arg::None, "no modification can be made"),
    flag("verbose", 'v', Arg::None, "").hint("there is no further detail"),
    flag("yaml", '\0', Arg::Maybe("data_parser"), "produce YAML output"),
    flag("help", 'h', Arg::None, "show this help"),
];

/// What `sacctmgr` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "sacctmgr",
    about: "show and change accounts, users and QOS",
    synopsis: &["[OPTIONS] [<COMMAND>]"],
    options: Options::Own(OPTIONS),
    notes: "\
Valid <COMMAND> values are:
   add or create <ENTITY> <SPECS>   add an account, user or QOS
   delete or remove <ENTITY> where <SPECS>
   dump <CLUSTER> [file=<FILE>]     write all accounts as text
   list or show <ENTITY> [<SPECS>]  display info of identified entity
   load [file=]<FILE>               add what dump wrote
   modify <ENTITY> where <SPECS> set <SPECS>
   modify job where jobid=<N>,... set comment=|derivedexitcode=|admincomment=|extra=|wckey=
   ping                             say whether accounting answers: the controller keeps it
   version                          display tool version number

<ENTITY> may be \"account\", \"association\", \"cluster\", \"event\", \"federation\", \"instance\", \"problem\", \"qos\",
     \"reservation\", \"resource\", \"runawayjobs\", \"stats\", \"transaction\", \"tres\", \"user\", \"wckey\".
<SPECS> of list are names, [where] name=, account=, cluster=, user=, format=FIELD[%WIDTH],..., withassoc.
<SPECS> of accounts and users are names, account=, cluster=, partition=, parent=, description=, organization=,
     defaultaccount=, adminlevel=, fairshare=, qos=, defaultqos=, priority=, grptres=, grptresmins=,
     grptresrunmins=, grpjobs=, grpsubmit=, grpwall=, maxjobs=, maxsubmit=, maxtres=, maxtresmins=,
     maxtrespernode=, maxwall=, rawusage=0; -1 clears a limit. TRES are cpu, mem, node and gres/gpu.
<SPECS> of QOS are names, priority=, preempt=, preemptmode=, gracetime=, preemptexempttime=, usagefactor=, flags=,
     grptres=, grptresmins=, grptresrunmins=, grpjobs=, grpsubmit=, grpwall=, maxtres=, maxtresmins=,
     maxtrespernode=, maxwall=, maxtrespu=, maxjobspu=, maxsubmitpu=, maxtrespa=, maxjobspa=, maxsubmitpa=,
     mintres=.
",
};

/// Runs sacctmgr.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("sacctmgr", args, sacctmgr)
}

/// Runs sacctmgr with the command-line arguments `args`. `call` has the controller, the environment and the output.
pub(crate) fn sacctmgr(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    let Some((word, specs)) = given.operands.split_first().filter(|_| !given.has("")) else {
        call.print(&PAGE.help());
        return Ok(());
    };
    let is = |name: &str, least: usize| word.len() >= least && starts(name, word);
    let changes = CHANGES.iter().any(|(name, least)| is(name, *least));
    if changes && given.has("quiet") && given.has("immediate") {
        call.hush();
    }
    if is("list", 1) || is("show", 3) {
        show(call, &given, specs)
    } else if is("version", 4) {
        call.print(&format!("slurm {}\n", words::slurm_version()));
        Ok(())
    } else if is("ping", 4) {
        ping(call)
    } else if is("help", 2) {
        call.print(&PAGE.help());
        Ok(())
    } else if given.has("readonly") && changes {
        call.say("Can't run this command in readonly mode.");
        Err(Fail(1))
    } else if is("add", 2) || is("create", 2) {
        change::add(call, &given, specs)
    } else if is("modify", 1) || is("update", 1) {
        change::modify(call, &given, specs)
    } else if is("delete", 2) || is("remove", 3) {
        change::delete(call, &given, specs)
    } else if is("dump", 2) {
        dump::dump(call, specs)
    } else if is("load", 2) {
        dump::load(call, &given, specs)
    } else if is("archive", 2) {
        archive::archive(call, specs)
    } else if is("clear", 2) || is("reconfigure", 2) {
        call.fail(&format!("{word}: Requested operation not supported on this system: nothing needs it here"))
    } else {
        call.say(&format!("invalid keyword: {word}"));
        Err(Fail(1))
    }
}

/// Commands of sacctmgr that change something, each with the minimum length of an abbreviation.
const CHANGES: [(&str, usize); 9] = [
    ("add", 2),
    ("archive", 2),
    ("clear", 2),
    ("create", 2),
    ("delete", 2),
    ("load", 2),
    ("modify", 1),
    ("remove", 3),
    ("update", 1),
];

/// Conditions and format that a listing's arguments name.
#[derive(Debug, Default)]
struct ListQuery {
    names: Vec<String>,
    accounts: Vec<String>,
    users: Vec<String>,
    clusters: Vec<String>,
    format: Vec<String>,
    associations: bool,
    all_time: bool,
    /// Further conditions of the listing, as (key, value): those for which this struct has no field.
    conditions: Vec<(&'static str, String)>,
}

/// Says whether accounting answers.
fn ping(call: &mut Call<'_>) -> Result<(), Fail> {
    match call.controller.ask(&Request::Ping) {
        Ok(Answer::Pong { host, .. }) => call.print(&format!("slurmdbd(primary) at {host} is UP\n")),
        Ok(_) => return call.failed("slurmdbd(primary) is DOWN", &unexpected()),
        Err(e) => return call.failed("slurmdbd(primary) is DOWN", &e),
    }
    Ok(())
}

fn show(call: &mut Call<'_>, given: &Arguments, words: &[String]) -> Result<(), Fail> {
    if words.first().is_some_and(|word| word.len() >= 2 && starts("configuration", word)) {
        return stats::configuration(call);
    }
    if words.first().is_some_and(|word| word.len() >= 2 && starts("stats", word)) {
        return stats::stats(call);
    }
    let Some(entity) = words.first().and_then(|word| records::find(word)) else {
        call.say(
            "No valid entity in list command\n\
             Input line must include \"Account\", \"Association\", \"Cluster\", \"Configuration\",\n\
             \"Event\", \"Federation\", \"Instance\", \"Problem\", \"QOS\", \"Resource\", \"Reservation\",\n\
             \"RunAwayJobs\", \"Stats\", \"Transaction\", \"TRES\", \"User\", or \"WCKey\"",
        );
        return Err(Fail(1));
    };
    let mut wanted = wanted(call, &words[1..])?;
    wanted.associations |= given.has("associations");
    let format = if wanted.format.is_empty() { entity.format(wanted.associations) } else { wanted.format.join(",") };
    let sheet = match entity.sheet(&format) {
        Ok(sheet) => sheet,
        Err(bad) => {
            call.say(&format!("Unknown field '{bad}'"));
            return Err(Fail(1));
        }
    };
    let what = "sacctmgr: error: Problem with the query";
    let config = match call.controller.ask(&Request::Config) {
        Ok(Answer::Config(config)) => *config,
        Ok(_) => return call.failed(what, &unexpected()),
        Err(e) => return call.failed(what, &e),
    };
    let policy = policy(call)?;
    let rows = rows::rows(call, entity, &wanted, &config, &policy)?;
    if let Some(dialect) = dialect(call, given)? {
        let Some((kind, key, records)) = shapes::records(entity.name, &rows, wanted.associations, &policy) else {
            return call.fail(&format!("--json and --yaml know no {}: list it without", entity.name));
        };
        let command = ["sacctmgr", "show", entity.name];
        let text = document(call, dialect, &config.cluster, &command, kind, vec![(key, records)]);
        call.print(&text);
        return Ok(());
    }
    if entity.name == "runawayjobs" {
        call.print(&format!("Runaway Jobs: No runaway jobs found on cluster {}\n", config.cluster));
        return Ok(());
    }
    let text = sheet.lines(!given.has("noheader"), &given.style(), &rows);
    call.print(&text);
    Ok(())
}

/// Parses a listing's arguments: `[where] [name=]a,b account=x format=user,account withassoc`.
fn wanted(call: &mut Call<'_>, words: &[String]) -> Result<ListQuery, Fail> {
    let mut wanted = ListQuery::default();
    for word in words {
        let Some((key, value)) = word.split_once('=').map(|(key, value)| (key, value.trim_matches(QUOTES))) else {
            let word = word.trim_matches(QUOTES);
            if starts("withassoc", word) && word.len() >= 5 {
                wanted.associations = true;
            } else if starts("all_time", word) && word.len() >= 5 {
                wanted.all_time = true;
            } else if !is_flag(word) {
                wanted.names.extend(names(word));
            }
            continue;
        };
        let is = |name: &str, least: usize| key.len() >= least && starts(name, key);
        if is("format", 1) {
            wanted.format.extend(names(value));
        } else if is("names", 1) {
            wanted.names.extend(names(value));
        } else if is("users", 1) {
            wanted.users.extend(names(value));
        } else if is("accounts", 3) || is("accts", 4) {
            wanted.accounts.extend(names(value));
        } else if is("clusters", 1) {
            wanted.clusters.extend(names(value));
        } else if let Some(known) = CONDITIONS.iter().find(|name| is(name, 2)) {
            wanted.conditions.push((known, value.to_owned()));
        } else {
            call.say(&format!(" Unknown condition: {word}"));
            return Err(Fail(1));
        }
    }
    Ok(wanted)
}

/// Keys of the further conditions of a listing. A listing with an unknown key is refused.
const CONDITIONS: &[&str] = &[
    "actions",
    "actors",
    "adminlevel",
    "defaultaccount",
    "defaultqos",
    "defaultwckey",
    "descriptions",
    "end",
    "event",
    "flags",
    "ids",
    "nodes",
    "organizations",
    "parents",
    "partitions",
    "preemptmode",
    "qoslevel",
    "reasons",
    "states",
    "start",
    "type",
    "wckeys",
];

fn is_flag(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    word == "where" || word == "tree" || word.starts_with("with") || word.starts_with("wo") || word.starts_with("only")
}

/// Reads the accounting policy: all accounts, users, associations and QOS.
fn policy(call: &mut Call<'_>) -> Result<Policy, Fail> {
    let what = "sacctmgr: error: Problem with the query";
    match call.controller.ask(&Request::Policy) {
        Ok(Answer::Policy(policy)) => Ok(*policy),
        Ok(_) => call.failed(what, &unexpected()),
        Err(e) => call.failed(what, &e),
    }
}
