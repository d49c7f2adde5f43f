//! `scontrol update nodename=`.

use squall_model::event::{NodeAdmin, NodeChange};
use squall_model::hostlist;
use squall_model::wire::client::Request;

use crate::command::listing::call::{Call, Fail};
use crate::command::scontrol::arguments::{Change, bad_state, unsupported};
use crate::command::scontrol::{ask_done, means};
use squall_text::options::values::node_state;

const WHAT: &str = "slurm_update error";

/// Slurm's message about the states that a node can be given.
const STATES: &str = "Valid states are: NoResp DRAIN FAIL FUTURE RESUME POWER_DOWN POWER_UP UNDRAIN\n\
    Not all states are valid given a node's prior state";

/// Runs `update nodename=`: changes the state or the description of nodes.
pub(super) fn update(call: &mut Call<'_>, changes: &[Change<'_>]) -> Result<(), Fail> {
    let (mut nodes, mut admin, mut reason, mut wish) = (String::new(), None, None, None);
    let mut change = NodeChange::default();
    for word in changes {
        let is = |name, least| means(word.key, name, least);
        if word.sign.is_some() {
            return unsupported(call, word);
        } else if is("NodeName", 3) {
            word.value.clone_into(&mut nodes);
        } else if is("State", 1) {
            wish = node_state::power(word.value);
            admin = if wish.is_none() { Some(state(call, word)?) } else { None };
        } else if is("Reason", 1) {
            reason = Some(unquoted(word));
        } else if !describe(call, word, &mut change)? {
            return unsupported(call, word);
        }
    }
    if let Err(e) = hostlist::expand(&nodes) {
        return call.fail(&format!("Invalid node name {nodes}: {e}"));
    }
    if matches!(admin, Some(NodeAdmin::Drain | NodeAdmin::Down | NodeAdmin::Fail)) && reason.is_none() {
        call.say("You must specify a reason when DOWNING or DRAINING a node. Request denied");
        return Err(Fail(1));
    }
    let change = (change != NodeChange::default()).then(|| Box::new(change));
    let others = admin.is_some() || reason.is_some() || change.is_some();
    if let Some(wish) = wish {
        ask_done(call, &Request::Power { nodes: nodes.clone(), wish }, WHAT)?;
        if !others {
            return Ok(());
        }
    }
    if !others {
        call.say("No changes specified");
        return Err(Fail(1));
    }
    ask_done(call, &Request::UpdateNodes { nodes, admin, reason, change }, WHAT)
}

fn unquoted(word: &Change<'_>) -> String {
    word.value.trim_matches(['"', '\'']).to_owned()
}

fn state(call: &mut Call<'_>, word: &Change<'_>) -> Result<NodeAdmin, Fail> {
    match node_state::admin(word.value) {
        Some(Some(admin)) => Ok(admin),
        Some(None) => {
            call.say(&format!("{WHAT}: Invalid node state specified"));
            Err(Fail(1))
        }
        None => bad_state(call, word, STATES),
    }
}

/// Sets a key of a node's description (features, comment, weight). Returns false for any other key.
fn describe(call: &mut Call<'_>, word: &Change<'_>, change: &mut NodeChange) -> Result<bool, Fail> {
    let is = |name, least| means(word.key, name, least);
    let features = || Some(word.value.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect());
    if is("ActiveFeatures", 3) {
        change.active_features = features();
    } else if is("AvailableFeatures", 3) {
        change.features = features();
    } else if is("Features", 1) {
        (change.features, change.active_features) = (features(), features());
    } else if is("Comment", 1) {
        change.comment = Some(unquoted(word));
    } else if is("Extra", 1) {
        change.extra = Some(unquoted(word));
    } else if is("Gres", 1) {
        change.gres = Some(word.value.to_owned());
    } else if is("InstanceId", 9) {
        change.instance_id = Some(unquoted(word));
    } else if is("InstanceType", 9) {
        change.instance_type = Some(unquoted(word));
    } else if is("Weight", 1) {
        let Ok(weight) = word.value.parse() else {
            return call.fail(&format!("Invalid value {}={} for Weight", word.key, word.value));
        };
        change.weight = Some(weight);
    } else {
        return Ok(false);
    }
    Ok(true)
}
