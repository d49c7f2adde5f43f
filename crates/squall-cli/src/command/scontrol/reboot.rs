//! `scontrol reboot`, `scontrol cancel_reboot` and `scontrol replace`.

use squall_client::ClientError;
use squall_model::event::NodeAdmin;
use squall_model::hostlist;
use squall_model::wire::client::{Refusal, Request};

use crate::command::listing::call::{Call, Fail};
use crate::command::listing::select::{id_of, target};
use crate::command::scontrol::{ask_done, done};

/// Runs `reboot [ASAP] [nextstate=STATE] [reason=TEXT] ALL|NODES`.
pub(super) fn reboot(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let (mut asap, mut next, mut reason, mut nodes) = (false, None, None, Vec::new());
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key.to_ascii_lowercase().as_str() {
            "asap" if value.is_empty() => asap = true,
            "nextstate" => next = Some(state(call, value)?),
            "reason" => reason = Some(value.trim_matches(['"', '\'']).to_owned()),
            _ if word.contains('=') => return call.fail(&format!("Invalid reboot option: {word}")),
            _ => nodes.push(word.clone()),
        }
    }
    let nodes = listed(call, &nodes, "Missing node list. Specify ALL|<NodeList>")?;
    let problem = format!("scontrol_reboot_nodes error for {nodes}");
    ask_done(call, &Request::Reboot { nodes, asap, next, reason }, &problem)
}

/// Runs `replace JOB NODE`.
pub(super) fn replace(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let [id, node] = words else {
        call.say("replace needs a job and one of its nodes: scontrol replace 12 n3");
        return Err(Fail(1));
    };
    let Some(job) = target(id).filter(|target| target.step.is_none()).map(|target| id_of(&target.job)) else {
        call.say("job replace failure: Invalid job id specified");
        return Err(Fail(1));
    };
    let what = format!("replacing {node} in job {id} failed");
    match call.controller.ask(&Request::Replace(job, node.clone())) {
        // Slurm's text would not say why.
        Err(ClientError::Refused(Refusal::WrongState(why))) if !why.is_empty() => call.fail(&format!("{what}: {why}")),
        answer => done(call, answer, &what),
    }
}

/// Runs `cancel_reboot NODES`.
pub(super) fn cancel(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let nodes = listed(call, words, "missing argument for keyword:cancel_reboot")?;
    let problem = format!("scontrol_cancel_reboot_nodes error for {nodes}");
    ask_done(call, &Request::CancelReboot { nodes }, &problem)
}

/// Returns the host list that the arguments give. `none`: the message if there is none.
pub(super) fn listed(call: &mut Call<'_>, nodes: &[String], none: &str) -> Result<String, Fail> {
    if nodes.is_empty() {
        call.say(none);
        return Err(Fail(1));
    }
    let nodes = nodes.join(",");
    match hostlist::expand(&nodes) {
        Err(e) => call.fail(&format!("Invalid node name {nodes}: {e}")).map(|()| nodes),
        Ok(_) => Ok(nodes),
    }
}

/// Reads the state that nodes get after their reboot.
fn state(call: &mut Call<'_>, word: &str) -> Result<NodeAdmin, Fail> {
    match word.to_ascii_lowercase().as_str() {
        "resume" | "undrain" => Ok(NodeAdmin::Resume),
        "down" => Ok(NodeAdmin::Down),
        "drain" => Ok(NodeAdmin::Drain),
        _ => {
            call.say(&format!("Invalid state: {word}\nValid states: DOWN, DRAIN, RESUME, UNDRAIN"));
            Err(Fail(1))
        }
    }
}
