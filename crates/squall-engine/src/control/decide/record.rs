//! `sacctmgr modify job`: changes the accounting record of a job, which may have ended.

use squall_model::event::Event;
use squall_model::id::JobId;
use squall_model::limits::STRING_BYTES_MAX;
use squall_model::wire::client::{Answer, Refusal};
use squall_model::wire::history::RECORDED;

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::rights::{Deed, can, reaches};
use crate::control::port::Out;

/// Number of fields that the job's owner may change: the first ones of [`RECORDED`]. Only operators change the others.
const OWNERS: usize = 2;

/// Logs the change for accounting. The owner of a job that was removed is unknown here, so only operators may change
/// its record.
pub(crate) fn record(
    c: &mut Controller,
    ask: &Ask<'_>,
    job: JobId,
    values: Vec<(String, String)>,
    out: &mut Out,
) -> Reply {
    let of_owner = c.state.jobs.get(&job).is_some_and(|job| can(ask.who, Deed::Job(&job.owner)))
        && reaches(&c.state, ask.who, job).is_ok();
    for (name, value) in &values {
        let Some(at) = RECORDED.iter().position(|known| known == name) else {
            return Err(Refusal::NotSupported(format!("{name} of a job in accounting")));
        };
        let may = can(ask.who, Deed::Operate) || (of_owner && at < OWNERS);
        if !may {
            return Err(Refusal::AccessDenied);
        }
        if value.len() > STRING_BYTES_MAX {
            return Err(Refusal::TooLarge(name.clone(), STRING_BYTES_MAX as u64));
        }
    }
    if values.len() > RECORDED.len() {
        return Err(Refusal::TooLarge("list of changes".into(), RECORDED.len() as u64));
    }
    if c.disk_full {
        return Err(Refusal::DiskFull);
    }
    c.commit(ask.now, Event::Recorded { job, values, by: ask.who.owner.uid }, out);
    Ok(Some(Answer::Done))
}
