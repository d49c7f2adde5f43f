//! Commands of scontrol about daemons and nodes. Arguments are checked as in Slurm; then the command runs, or is
//! refused where Squall has no such feature.

use std::fmt::Write as _;

use squall_model::hostlist;

use crate::command::listing::call::{Call, Fail};
use crate::command::listing::lists::all_nodes;
use crate::command::scontrol::{power, reboot};
use squall_text::shapes::node::PORT;
use squall_text::verbs::key::means;

/// Slurm's log levels in ascending order. Users may name a level by its index, from 0.
const LEVELS: &[&str] =
    &["quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5"];

/// Runs a command of this file; None: `word` is another command.
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
        reboot::reboot(call, words)
    } else if is("cancel_reboot", 3) {
        reboot::cancel(call, words)
    } else if is("power", 3) {
        power::run(call, words)
    } else if is("cluster", 2) {
        call.check_cluster(words.first().map(String::as_str), false, "slurm_load_jobs error")
    } else {
        let name = ["abort", "gethost"].into_iter().find(|name| is(name, 3))?;
        absent(call, name)
    })
}

/// Refuses a command because Squall has no such feature.
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

/// Runs `getaddrs NODES`: prints the addresses of node daemons. Unknown nodes are left out.
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

/// Returns whether a word is a log level, by name or number.
fn is_level(word: &str) -> bool {
    word.parse::<usize>().map_or_else(|_| LEVELS.contains(&word.to_lowercase().as_str()), |at| at < LEVELS.len())
}

/// Runs `setdebug LEVEL [nodes=LIST]`: checks the arguments, then refuses.
fn level(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    few(call, words, "too few arguments for keyword:setdebug")?;
    if !is_level(&words[0]) {
        return say(call, &format!("invalid debug level: {}", words[0]));
    }
    absent(call, "setdebug")
}

/// Runs `schedloglevel LEVEL`: checks the arguments, then refuses.
fn scheduler_level(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    few(call, words, "too few arguments for keyword:schedloglevel")?;
    if !["0", "1", "enable", "disable"].contains(&words[0].to_lowercase().as_str()) {
        return say(call, &format!("invalid schedlog level: {}", words[0]));
    }
    // Slurm's answer where SlurmSchedLogFile is not set.
    say(call, "slurm_set_schedlog_level error: Requested operation is presently disabled")
}

/// Runs `fsdampeningfactor N`: checks the argument, then refuses.
fn dampening(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    few(call, words, "too few arguments for keyword:fsdampeningfactor")?;
    if words[0].parse::<u16>().is_err() {
        return say(call, &format!("invalid dampening factor: {}", words[0]));
    }
    absent(call, "fsdampeningfactor")
}

/// Runs `errnumstr N`: prints the system's text for an error number. Slurm's own numbers don't occur in Squall.
fn error_text(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let [word] = words else { return say(call, "one arguments required for keyword:errnumstr") };
    let Ok(number) = word.parse::<i32>() else { return say(call, "numeric arguments required for keyword:errnumstr") };
    let text = std::io::Error::from_raw_os_error(number).to_string();
    let text = text.strip_suffix(&format!(" (os error {number})")).unwrap_or(&text);
    call.print(&format!("{text}\n"));
    Ok(())
}
