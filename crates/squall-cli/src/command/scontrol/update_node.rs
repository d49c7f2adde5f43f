//! `scontrol update nodename=`.

use squall_model::event::NodeAdmin;
use squall_model::hostlist;
use squall_text::verbs::key::{Bad, Key};
use squall_text::verbs::node::{KEYS, NodeOrder};

use crate::command::listing::call::{Call, Fail};
use crate::command::scontrol::arguments::{Change, bad_state, unsupported};
use crate::command::scontrol::ask_done;

const WHAT: &str = "slurm_update error";

/// Slurm's message about the states that a node can be given.
const STATES: &str = "Valid states are: NoResp DRAIN FAIL FUTURE RESUME POWER_DOWN POWER_UP UNDRAIN\n\
    Not all states are valid given a node's prior state";

/// Runs `update nodename=`: changes the state or the description of nodes.
pub(super) fn update(call: &mut Call<'_>, changes: &[Change<'_>]) -> Result<(), Fail> {
    let mut order = NodeOrder::default();
    let now = call.clock(call.now).local(call.now);
    for word in changes {
        let Some(key) = Key::find(KEYS, word.key).filter(|_| word.sign.is_none()) else {
            return unsupported(call, word);
        };
        match key.read(&mut order, None, word.value, &now) {
            Ok(()) => {}
            Err(Bad::NotDone(_)) => {
                call.say(&format!("{WHAT}: Invalid node state specified"));
                return Err(Fail(1));
            }
            Err(Bad::Because(_)) => return bad_state(call, word, STATES),
            Err(_) => return call.fail(&format!("Invalid value {}={} for {}", word.key, word.value, key.name())),
        }
    }
    if let Err(e) = hostlist::expand(&order.nodes) {
        return call.fail(&format!("Invalid node name {}: {e}", order.nodes));
    }
    if matches!(order.admin, Some(NodeAdmin::Drain | NodeAdmin::Down | NodeAdmin::Fail)) && order.reason.is_none() {
        call.say("You must specify a reason when DOWNING or DRAINING a node. Request denied");
        return Err(Fail(1));
    }
    let requests = order.requests();
    if requests.is_empty() {
        call.say("No changes specified");
        return Err(Fail(1));
    }
    requests.iter().try_for_each(|request| ask_done(call, request, WHAT))
}
