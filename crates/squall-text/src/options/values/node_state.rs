//! States that operators give to nodes.

use squall_model::event::NodeAdmin;

/// Returns the state that a word such as `drain` asks for. Some(None): Slurm has this state, but nodes can't be given it
/// here, as in Slurm without power saving. None: there is no such state.
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
