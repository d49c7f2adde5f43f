//! `scontrol update`: selects the entity to change.

use crate::command::listing::call::{Call, Fail};
use crate::command::scontrol::arguments::changes;
use crate::command::scontrol::{change_partition, reservation, update_job, update_node, update_step};
use squall_text::verbs::key::means;

/// Runs `update KEY=VALUE …`. The first key that names an entity selects what is changed.
pub(super) fn update(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    if let [entity, id, rest @ ..] = words
        && !entity.contains('=')
        && !id.contains('=')
        && !entity.is_empty()
    {
        // `update job 12 …`: entity and id as separate words.
        let joined: Vec<String> = std::iter::once(format!("{entity}={id}")).chain(rest.iter().cloned()).collect();
        return update(call, &joined);
    }
    if words.is_empty() {
        call.say("too few arguments for update keyword");
        return Err(Fail(1));
    }
    let changes = changes(call, words)?;
    for change in &changes {
        let is = |name, least| means(change.key, name, least);
        if is("NodeName", 3) {
            return update_node::update(call, &changes);
        } else if is("PartitionName", 3) {
            return change_partition::update(call, &changes);
        } else if reservation::is_entity(change.key) {
            return reservation::update(call, &changes);
        } else if is("JobId", 3) || is("JobName", 4) {
            return update_job::update(call, &changes);
        } else if is("StepId", 4) {
            return update_step::update(call, &changes);
        }
    }
    call.say("No valid entity in update command\nInput line must include \"NodeName\", \"PartitionName\", \"Reservation\" or \"JobId\"");
    Err(Fail(1))
}
