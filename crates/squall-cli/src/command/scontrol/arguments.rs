//! The arguments `Key=Value` of scontrol, and its messages about them.

use std::iter::Peekable;

use squall_text::verbs::key::means;

use crate::command::listing::call::{Call, Fail};

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
        let alone = || match word {
            nice if nice.eq_ignore_ascii_case("nice") => Some((word, "100")),
            // Of a reservation that comes again.
            skip if means(skip, "Skip", 2) => Some((word, "yes")),
            _ => None,
        };
        let pair = word.split_once('=').or_else(|| Some((word, value_of_its_own(&mut words)?))).or_else(alone);
        let Some((key, value)) = pair else { return invalid(call, word) };
        let sign = key.chars().last().filter(|c| matches!(c, '+' | '-'));
        changes.push(Change { key: key.trim_end_matches(['+', '-']), sign, value });
    }
    Ok(changes)
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
