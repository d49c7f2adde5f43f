//! `sacctmgr modify job`: changes a job's record in accounting, also after its end.

use std::fmt::Write;

use squall_model::wire::client::{AccountingQuery, Answer, Request};
use squall_model::wire::info::AccountingRow;

use super::change::{agreed, refuse};
use crate::command::listing::call::{Call, Fail};
use squall_client::unexpected;
use squall_text::options::flag::Arguments;
use squall_text::verbs::setting::Setting;

/// Slurm's keys, each with the minimum length of an abbreviation and the name of the field in
/// accounting.
const KEYS: &[(&str, usize, &str)] = &[
    ("admincomment", 2, "admin-comment"),
    ("comment", 2, "comment"),
    ("derivedexitcode", 9, "derived-exit-code"),
    ("derivedes", 9, "derived-exit-code"),
    ("extra", 1, "extra"),
    ("newwckey", 1, "wckey"),
    ("systemcomment", 1, "system-comment"),
    ("wckey", 1, "wckey"),
];

/// Runs `sacctmgr modify job`.
pub(super) fn modify(
    call: &mut Call<'_>,
    given: &Arguments,
    conditions: &[Setting],
    settings: &[Setting],
) -> Result<(), Fail> {
    let mut wanted = Vec::new();
    for condition in conditions {
        if condition.is("jobids", 1) {
            wanted.push(condition.value.clone());
        } else if condition.is("clusters", 1) {
            call.check_cluster(Some(&condition.value), false, "sacctmgr: error: Problem with the query")?;
        } else {
            return refuse(
                call,
                &format!(" Unknown condition: {}\n Use keyword 'set' to modify value", condition.text),
            );
        }
    }
    let mut values = Vec::new();
    for setting in settings {
        let Some((_, _, name)) = KEYS.iter().find(|(key, least, _)| setting.is(key, *least)) else {
            return refuse(
                call,
                &format!(
                    " Unknown option: {}\n Use keyword 'where' to modify condition\n You didn't give me anything to set",
                    setting.text
                ),
            );
        };
        let code = || setting.value.split(':').all(|part| part.parse::<u8>().is_ok());
        if *name == "derived-exit-code" && !code() {
            return refuse(call, &format!(" Bad value for {}: {}: 0 to 255 is meant", setting.key, setting.value));
        }
        values.push(((*name).to_owned(), setting.value.clone()));
    }
    if values.is_empty() {
        return refuse(call, " You didn't give me anything to set");
    }
    if wanted.is_empty() {
        return refuse(call, " You didn't say which jobs: sacctmgr modify job where jobid=N,... set KEY=VALUE");
    }
    let ids = call.targets(&wanted.join(","))?.into_iter().map(|target| target.job).collect();
    let query = AccountingQuery { ids, allocations_only: true, ..AccountingQuery::default() };
    let rows = call.accounting("sacctmgr: error: Problem with the query", query)?;
    // Pending tasks of an array have no record of their own yet.
    let rows: Vec<_> = rows.into_iter().filter(|row| row.pending_tasks.is_none()).collect();
    if rows.is_empty() {
        call.say(
            "sacctmgr: accounting_storage/slurmdbd: acct_storage_p_modify_job: Request didn't affect anything or your \
             user doesn't have privilege to perform this action",
        );
        return refuse(call, " Nothing modified");
    }
    show(call, &rows);
    if !given.has("immediate") && !agreed(call) {
        call.print(" Changes Discarded\n");
        return Ok(());
    }
    for row in rows {
        match call.controller.ask(&Request::Record(row.id, values.clone())) {
            Ok(Answer::Done) => {}
            Ok(_) => return call.failed(" Error with request", &unexpected()),
            Err(e) => return call.failed(" Error with request", &e),
        }
    }
    Ok(())
}

/// Prints the jobs that will be changed.
fn show(call: &mut Call<'_>, rows: &[AccountingRow]) {
    let clock = call.clock(call.now);
    let mut text = " Modified jobs...\n".to_owned();
    for row in rows {
        let _ = writeln!(text, "  {} submitted at {}", row.id, clock.show(row.submit));
    }
    call.print(&text);
}
