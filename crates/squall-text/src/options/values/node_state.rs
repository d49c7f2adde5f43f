//! States that operators give to nodes.

use squall_model::event::NodeAdmin;
use squall_model::power::PowerWish;

/// Returns the state that a word such as `drain` asks for. Some(None): Slurm has this state, but nodes can't be given it
/// here, or it is one of power ([`power`]). None: there is no such state.
pub fn admin(word: &str) -> Option<Option<NodeAdmin>> {
    Some(match word.to_lowercase().as_str() {
        "resume" | "undrain" | "idle" => Some(NodeAdmin::Resume),
        "drain" | "draining" | "drained" => Some(NodeAdmin::Drain),
        "fail" | "failing" => Some(NodeAdmin::Fail),
        "down" => Some(NodeAdmin::Down),
        "noresp" | "future" | "cancel_reboot" | "power_down" | "power_down_asap" | "power_down_force" | "power_up"
        | "allocated" | "mixed" | "unknown" | "error" => None,
        _ => return None,
    })
}

/// Returns what a word such as `power_down` asks of a node's power. None: it is no such word.
pub fn power(word: &str) -> Option<PowerWish> {
    Some(match word.to_lowercase().as_str() {
        "power_up" => PowerWish::Up,
        "power_down" => PowerWish::Down,
        "power_down_asap" => PowerWish::DownAsap,
        "power_down_force" => PowerWish::DownForce,
        _ => return None,
    })
}
