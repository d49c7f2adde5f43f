//! `scontrol create partition`, `update partition` and `delete partition`.

use squall_model::config::PartitionConfig;
use squall_model::wire::client::Request;
use squall_text::verbs::key::{Bad, Key, means};
use squall_text::verbs::partition::{KEYS, asks_for_nothing, not_done};

use crate::command::listing::call::{Call, Fail};
use crate::command::listing::lists::all_partitions;
use crate::command::scontrol::arguments::{Change, bad_state, changes, invalid, unsupported};
use crate::command::scontrol::ask_done;

const STATES: &str = "Acceptable State values are \"UP\", \"DOWN\", \"DRAIN\" and \"INACTIVE\"";

/// Returns whether the arguments are about a partition: `partition …` or `… PartitionName=NAME …`.
pub(super) fn is_meant(words: &[String]) -> bool {
    words.iter().any(|word| match word.split_once('=') {
        Some((key, _)) => means(key, "PartitionName", 3) && words.iter().all(|w| !means(w, "reservation", 3)),
        None => means(word, "PartitionName", 3) && words.first() == Some(word),
    })
}

/// Runs `create PartitionName=NAME Nodes=LIST KEY=VALUE …`.
pub(super) fn create(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let words = joined(words);
    let words = changes(call, &words)?;
    let nodes = PartitionConfig::NO_NODES.to_owned();
    let fresh = PartitionConfig { name: String::new(), nodes, ..PartitionConfig::default() };
    let config = changed(call, fresh, &words)?;
    let request = Request::ChangePartition { name: config.name.clone(), was: None, now: Some(Box::new(config)) };
    ask_done(call, &request, "Error creating the partition")
}

/// Runs `update PartitionName=NAME KEY=VALUE …`.
pub(super) fn update(call: &mut Call<'_>, words: &[Change<'_>]) -> Result<(), Fail> {
    const WHAT: &str = "slurm_update error";
    let name = name(words);
    if words.len() < 2 {
        call.say("No changes specified");
        return Err(Fail(1));
    }
    let was = present(call, name, WHAT)?;
    let now = changed(call, was.clone(), words)?;
    let is_state = |word: &Change<'_>| means(word.key, "State", 2) || means(word.key, "PartitionName", 3);
    let request = if words.iter().all(is_state) {
        // A new state is the only change that a cluster divided into cells accepts.
        Request::UpdatePartition { name: name.to_owned(), state: now.state }
    } else {
        Request::ChangePartition { name: name.to_owned(), was: Some(Box::new(was)), now: Some(Box::new(now)) }
    };
    ask_done(call, &request, WHAT)
}

/// Runs `delete PartitionName=NAME`.
pub(super) fn delete(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let given = joined(words);
    let what = format!("delete_partition {}", given.join(" "));
    let words = changes(call, &given)?;
    let name = name(&words);
    let was = present(call, name, &what)?;
    ask_done(call, &Request::ChangePartition { name: name.to_owned(), was: Some(Box::new(was)), now: None }, &what)
}

/// Rewrites `partition NAME …` and `partition PartitionName=NAME …` as `PartitionName=NAME …`.
fn joined(words: &[String]) -> Vec<String> {
    match words {
        [entity, name, rest @ ..] if !entity.contains('=') && !name.contains('=') => {
            std::iter::once(format!("{entity}={name}")).chain(rest.iter().cloned()).collect()
        }
        [entity, rest @ ..] if !entity.contains('=') => rest.to_vec(),
        _ => words.to_vec(),
    }
}

fn name<'a>(words: &[Change<'a>]) -> &'a str {
    words.iter().find(|word| means(word.key, "PartitionName", 3)).map_or("", |word| word.value)
}

/// Asks the controller for the present configuration of the partition `name`.
fn present(call: &mut Call<'_>, name: &str, what: &str) -> Result<PartitionConfig, Fail> {
    let all = match all_partitions(call) {
        Ok(all) => all,
        Err(e) => return call.failed(what, &e),
    };
    if let Some(partition) = all.into_iter().find(|p| p.config.name == name) {
        return Ok(partition.config);
    }
    call.say(&format!("{what}: Invalid partition name specified"));
    Err(Fail(1))
}

/// Returns the partition's configuration with all changes of the command line applied.
fn changed(call: &mut Call<'_>, mut config: PartitionConfig, words: &[Change<'_>]) -> Result<PartitionConfig, Fail> {
    let now = call.clock(call.now).local(call.now);
    for word in words {
        match Key::find(KEYS, word.key) {
            Some(key) => match key.read(&mut config, word.sign, word.value, &now) {
                Ok(()) => {}
                Err(_) if key.name() == "State" => return bad_state(call, word, STATES),
                Err(Bad::Because(why)) => return invalid(call, &format!("{}={}: {why}", word.key, word.value)),
                Err(_) => return invalid(call, &format!("{}={}", word.key, word.value)),
            },
            None if asks_for_nothing(word.key, word.value) => {}
            None => match not_done(word.key) {
                Some(why) => {
                    call.say(why);
                    return unsupported(call, word);
                }
                None => return unsupported(call, word),
            },
        }
    }
    Ok(config)
}
