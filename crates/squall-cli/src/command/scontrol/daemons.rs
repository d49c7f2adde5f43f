//! Commands of scontrol about daemons and nodes: what they are given is checked as Slurm checks it, then it is done, or
//! refused where Squall has nothing of the kind.

use std::fmt::Write as _;

use squall_model::hostlist;

use crate::command::listing::call::{Call, Fail};
use crate::command::scontrol::means;
use crate::command::sinfo::all_nodes;
use crate::shapes::node::PORT;

/// Levels of Slurm's logs, in their order: their numbers will do as well.
const LEVELS: &[&str] =
    &["quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5"];

/// Runs a command if it is one of these.
pub(super) fn run(call: &mut Call<'_>, word: &str, words: &[String]) -> Option<Result<(), Fail>> {
    let is = |name, least| means(word, name, least);
    Some(if is("getaddrs", 4) {
        addresses(call, words)
    } else if is("setdebug", 8) && word.len() == "setdebug".len() {
        level(call, words)
    } else if is("setdebugflags", 9) {
        few(call, words, "too few arguments for keyword:setdebugflags").and_then(|()| absent(call, "setdebugflags"))
    } else if is("schedloglevel", 3) {
        scheduler_level(call, words)
    } else if is("fsdampeningfactor", 3) {
        dampening(call, words)
    } else if is("errnumstr", 2) {
        error_text(call, words)
    } else if is("reboot", 3) {
        reboot(call, words)
    } else if is("cancel_reboot", 3) {
        cancel_reboot(call, words)
    } else if is("cluster", 2) {
        call.check_cluster(words.first().map(String::as_str), false, "slurm_load_jobs error")
    } else {
        let name = ["abort", "gethost", "power", "takeover", "token"].into_iter().find(|name| is(name, 3))?;
        absent(call, name)
    })
}

/// What Slurm has and Squall has not.
fn absent<T>(call: &mut Call<'_>, name: &str) -> Result<T, Fail> {
    call.fail(&format!("{name}: Requested operation not supported on this system"))
}

fn say<T>(call: &mut Call<'_>, text: &str) -> Result<T, Fail> {
    call.say(text);
    Err(Fail(1))
}

fn few(call: &mut Call<'_>, words: &[String], text: &str) -> Result<(), Fail> {
    if words.is_empty() { say(call, text) } else { Ok(()) }
}

/// `getaddrs NODES`: where their daemons are; of nodes that do not exist nothing is said.
fn addresses(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let [list] = words else { return say(call, "one argument required for keyword:getaddrs") };
    let names = match hostlist::expand(list) {
        Ok(names) => names,
        Err(e) => return call.fail(&format!("Invalid node name {list}: {e}")),
    };
    let nodes = match all_nodes(call) {
        Ok(nodes) => nodes,
        Err(e) => return call.failed("slurm_load_nodes error", &e),
    };
    let mut text = String::new();
    for node in names.iter().filter_map(|name| nodes.iter().find(|node| node.name == *name)) {
        let _ = writeln!(text, "{}: {}:{PORT}", node.name, node.hardware.address);
    }
    call.print(&text);
    Ok(())
}

/// Whether a word is a level of logs.
fn is_level(word: &str) -> bool {
    word.parse::<usize>().map_or_else(|_| LEVELS.contains(&word.to_lowercase().as_str()), |at| at < LEVELS.len())
}

/// `setdebug LEVEL [nodes=LIST]`.
fn level(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    few(call, words, "too few arguments for keyword:setdebug")?;
    if !is_level(&words[0]) {
        return say(call, &format!("invalid debug level: {}", words[0]));
    }
    absent(call, "setdebug")
}

/// `schedloglevel LEVEL`.
fn scheduler_level(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    few(call, words, "too few arguments for keyword:schedloglevel")?;
    if !["0", "1", "enable", "disable"].contains(&words[0].to_lowercase().as_str()) {
        return say(call, &format!("invalid schedlog level: {}", words[0]));
    }
    // As Slurm answers without SlurmSchedLogFile.
    say(call, "slurm_set_schedlog_level error: Requested operation is presently disabled")
}

/// `fsdampeningfactor N`.
fn dampening(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    few(call, words, "too few arguments for keyword:fsdampeningfactor")?;
    if words[0].parse::<u16>().is_err() {
        return say(call, &format!("invalid dampening factor: {}", words[0]));
    }
    absent(call, "fsdampeningfactor")
}

/// `errnumstr N`: numbers of the system; Slurm's own do not occur here.
fn error_text(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let [word] = words else { return say(call, "one arguments required for keyword:errnumstr") };
    let Ok(number) = word.parse::<i32>() else { return say(call, "numeric arguments required for keyword:errnumstr") };
    let text = std::io::Error::from_raw_os_error(number).to_string();
    let text = text.strip_suffix(&format!(" (os error {number})")).unwrap_or(&text);
    call.print(&format!("{text}\n"));
    Ok(())
}

/// `reboot [ASAP] [nextstate=] [reason=] NODES`: no program for it is configured.
fn reboot(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let is_option = |word: &&String| word.eq_ignore_ascii_case("asap") || word.contains('=');
    if words.iter().all(|word| is_option(&word)) {
        return say(call, "Missing node list. Specify ALL|<NodeList>");
    }
    call.complain("RebootProgram isn't defined");
    say(call, "scontrol_reboot_nodes error: Unspecified error")
}

/// `cancel_reboot NODES`: none is about to reboot.
fn cancel_reboot(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let [list] = words else { return say(call, "missing argument for keyword:cancel_reboot") };
    let names = hostlist::expand(list).unwrap_or_default();
    let nodes = match all_nodes(call) {
        Ok(nodes) => nodes,
        Err(e) => return call.failed("slurm_update error", &e),
    };
    let known = !names.is_empty() && names.iter().all(|name| nodes.iter().any(|node| node.name == *name));
    let problem = if known { "Invalid node state specified" } else { "Invalid node name specified" };
    say(call, &format!("slurm_update error: {problem}"))
}
