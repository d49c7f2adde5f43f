//! `scontrol update`: selects the entity to change.

use std::iter::Peekable;

use crate::command::listing::call::{Call, Fail};
use crate::command::scontrol::{change_partition, means, reservation, update_job, update_node, update_step};

/// An argument of `update`: `Key=Value`, `Key+=Value` or `Key-=Value`.
pub(super) struct Change<'a> {
    /// The text before the equals sign, without its `+` or `-`.
    pub(super) key: &'a str,
    /// The `+` or `-` before the equals sign, if there is one.
    pub(super) sign: Option<char>,
    /// The text after the equals sign.
    pub(super) value: &'a str,
}

/// Parses the arguments of `update` into changes. An argument without a value is an error.
pub(super) fn changes<'a>(call: &mut Call<'_>, words: &'a [String]) -> Result<Vec<Change<'a>>, Fail> {
    let mut changes = Vec::new();
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(word) = words.next() {
        // `Key Value` is accepted, too.
        let value_of_its_own = |words: &mut Peekable<_>| words.next_if(|next: &&str| !next.contains('='));
        // In Slurm, `Nice` without a value means 100.
        let alone = || word.eq_ignore_ascii_case("nice").then_some((word, "100"));
        let pair = word.split_once('=').or_else(|| Some((word, value_of_its_own(&mut words)?))).or_else(alone);
        let Some((key, value)) = pair else { return invalid(call, word) };
        let sign = key.chars().last().filter(|c| matches!(c, '+' | '-'));
        changes.push(Change { key: key.trim_end_matches(['+', '-']), sign, value });
    }
    Ok(changes)
}

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

/// Fails with Slurm's message for invalid input: `Invalid input: …`.
pub(super) fn invalid<T>(call: &mut Call<'_>, word: &str) -> Result<T, Fail> {
    call.say(&format!("Invalid input: {word}\nRequest aborted"));
    Err(Fail(1))
}

/// Fails with the message for an invalid state and the list of valid ones.
pub(super) fn bad_state<T>(call: &mut Call<'_>, change: &Change<'_>, valid: &str) -> Result<T, Fail> {
    let result = invalid(call, &format!("State={}", change.value));
    call.say(valid);
    result
}

/// Fails with the message for a key that can't be changed.
pub(super) fn unsupported<T>(call: &mut Call<'_>, change: &Change<'_>) -> Result<T, Fail> {
    call.say(&format!("Update of this parameter is not supported: {}={}\nRequest aborted", change.key, change.value));
    Err(Fail(1))
}
