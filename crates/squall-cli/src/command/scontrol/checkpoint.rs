//! `scontrol checkpoint` and `scontrol suspend --to-disk`.

use squall_client::ClientError;
use squall_model::checkpoint::CheckpointVerb;
use squall_model::wire::client::{Refusal, Request};

use crate::command::listing::call::{Call, Fail};
use crate::command::listing::select::{id_of, target};
use crate::command::scontrol::done;
use squall_text::verbs::key::means;

/// Runs `checkpoint able|create|vacate|restart JOB`.
pub(super) fn checkpoint(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    let [word, id] = words else {
        call.say("checkpoint needs what to do and a job: scontrol checkpoint create 12");
        return Err(Fail(1));
    };
    let verbs = [
        ("able", CheckpointVerb::Able),
        ("create", CheckpointVerb::Create),
        ("vacate", CheckpointVerb::Vacate),
        ("restart", CheckpointVerb::Restart),
    ];
    let Some((_, verb)) = verbs.into_iter().find(|(name, _)| means(word, name, 1)) else {
        return call.fail(&format!("invalid checkpoint operation: {word}; there are able, create, vacate and restart"));
    };
    each(call, id, verb)?;
    if verb == CheckpointVerb::Able {
        call.print("Yes\n");
    }
    Ok(())
}

/// Runs `suspend --to-disk JOB...`: jobs leave their nodes and are held.
pub(super) fn to_disk(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    if words.is_empty() {
        call.say("too few arguments for keyword:suspend");
        return Err(Fail(1));
    }
    let mut result = Ok(());
    for id in words.iter().flat_map(|word| word.split(',')) {
        result = each(call, id, CheckpointVerb::Hold).and(result);
    }
    result
}

fn each(call: &mut Call<'_>, id: &str, verb: CheckpointVerb) -> Result<(), Fail> {
    let Some(job) = target(id).filter(|target| target.step.is_none()).map(|target| id_of(&target.job)) else {
        call.say("scontrol_checkpoint error: Invalid job id specified");
        return Err(Fail(1));
    };
    let what = format!("checkpoint of job {id} failed");
    match call.controller.ask(&Request::Checkpoint(job, verb)) {
        Err(ClientError::Refused(Refusal::WrongState(why))) if verb == CheckpointVerb::Able => {
            call.print(&format!("No: {why}\n"));
            Err(Fail(1))
        }
        // Slurm's text would not say why.
        Err(ClientError::Refused(Refusal::WrongState(why))) if !why.is_empty() => call.fail(&format!("{what}: {why}")),
        answer => done(call, answer, &what),
    }
}
