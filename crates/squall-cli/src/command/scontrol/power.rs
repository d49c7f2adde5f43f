//! `scontrol power`.

use squall_model::power::PowerWish;
use squall_model::wire::client::Request;

use crate::command::listing::call::{Call, Fail};
use crate::command::scontrol::ask_done;
use crate::command::scontrol::reboot::listed;
use squall_text::options::values::node_state;

/// Runs `power up|down [asap|force] ALL|NODES [reason=TEXT]`. The two words may be one: `down_asap`.
pub(super) fn run(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let Some((first, rest)) = words.split_first() else {
        call.say("missing argument for keyword:power: use up, down, down_asap or down_force");
        return Err(Fail(1));
    };
    let how = |word: &&String| ["asap", "force"].contains(&word.to_ascii_lowercase().as_str());
    let (word, nodes) = match rest.split_first().filter(|(second, _)| how(second)) {
        Some((second, rest)) => (format!("power_{first}_{second}"), rest),
        None => (format!("power_{first}"), rest),
    };
    let Some(wish) = node_state::power(&word) else {
        return call.fail(&format!("Invalid power state: {first}: use up, down, down_asap or down_force"));
    };
    let (reasons, nodes): (Vec<&String>, Vec<&String>) =
        nodes.iter().partition(|word| word.to_ascii_lowercase().starts_with("reason="));
    let reason = reasons.last().and_then(|word| word.split_once('=')).map(|(_, reason)| reason.to_owned());
    if reason.is_some() && wish == PowerWish::Up {
        return call.fail("A reason is given only when nodes are powered down");
    }
    let nodes: Vec<String> = nodes.into_iter().cloned().collect();
    let nodes = listed(call, &nodes, "Missing node list. Specify ALL|<NodeList>")?;
    let problem = format!("scontrol_power_nodes error for {nodes}");
    ask_done(call, &Request::Power { nodes: nodes.clone(), wish }, &problem)?;
    if reason.is_none() {
        return Ok(());
    }
    ask_done(call, &Request::UpdateNodes { nodes, admin: None, reason, change: None }, &problem)
}
