//! `scontrol update`: of what.

use std::iter::Peekable;

use crate::command::listing::call::{Call, Fail};
use crate::command::scontrol::{change_partition, means, reservation, update_job, update_node, update_step};

/// A word of an update: `Key=Value`, `Key+=Value`.
pub(super) struct Change<'a> {
    /// The key.
    pub(super) key: &'a str,
    /// `+` or `-` before the equals sign.
    pub(super) sign: Option<char>,
    /// The value.
    pub(super) value: &'a str,
}

/// The words of a change. One that is none is an error.
pub(super) fn changes<'a>(call: &mut Call<'_>, words: &'a [String]) -> Result<Vec<Change<'a>>, Fail> {
    let mut changes = Vec::new();
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(word) = words.next() {
        // `Key Value` will do as well.
        let value_of_its_own = |words: &mut Peekable<_>| words.next_if(|next: &&str| !next.contains('='));
        // `Nice` alone is Slurm's 100.
        let alone = || word.eq_ignore_ascii_case("nice").then_some((word, "100"));
        let pair = word.split_once('=').or_else(|| Some((word, value_of_its_own(&mut words)?))).or_else(alone);
        let Some((key, value)) = pair else { return invalid(call, word) };
        let sign = key.chars().last().filter(|c| matches!(c, '+' | '-'));
        changes.push(Change { key: key.trim_end_matches(['+', '-']), sign, value });
    }
    Ok(changes)
}

/// `update KEY=VALUE …`: the first key that names something says what is changed.
pub(super) fn update(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    if let [entity, id, rest @ ..] = words
        && !entity.contains('=')
        && !id.contains('=')
        && !entity.is_empty()
    {
        // `update job 12 …`: an entity and its id as words of their own.
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

/// `Invalid input: …`, as Slurm says it.
pub(super) fn invalid<T>(call: &mut Call<'_>, word: &str) -> Result<T, Fail> {
    call.say(&format!("Invalid input: {word}\nRequest aborted"));
    Err(Fail(1))
}

/// A state that is none, and those that are.
pub(super) fn bad_state<T>(call: &mut Call<'_>, change: &Change<'_>, valid: &str) -> Result<T, Fail> {
    let result = invalid(call, &format!("State={}", change.value));
    call.say(valid);
    result
}

/// A key that exists but can't be changed.
pub(super) fn unsupported<T>(call: &mut Call<'_>, change: &Change<'_>) -> Result<T, Fail> {
    call.say(&format!("Update of this parameter is not supported: {}={}\nRequest aborted", change.key, change.value));
    Err(Fail(1))
}
