//! `sacctmgr show stats` and `show configuration`. Accounting is part of the controller: its requests are counted, and
//! its settings shown.

use std::fmt::Write;

use squall_model::config::Config;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, Request};

use crate::command::listing::call::{Call, Fail};
use squall_client::unexpected;
use squall_text::format::words;

const WHAT: &str = "sacctmgr: error: slurmdb_get_stats";

/// Prints the number of requests, by message type and by user.
pub(super) fn stats(call: &mut Call<'_>) -> Result<(), Fail> {
    let diag = match call.controller.ask(&Request::Diag { reset: false }) {
        Ok(Answer::Diag(diag)) => *diag,
        Ok(_) => return call.failed(WHAT, &unexpected()),
        Err(e) => return call.failed(WHAT, &e),
    };
    let clock = call.clock(call.now);
    let shown = |time: Time| format!("{} ({})", clock.local(time).strftime("%a %b %d %H:%M:%S %Y"), time.secs());
    let line = "*".repeat(67);
    let mut text = format!(
        "{line}\nsacctmgr show stats output at {}\nData since                    {}\n\
         All statistics are in microseconds\n{line}\n\nRemote Procedure Call statistics by message type\n",
        shown(diag.now),
        shown(diag.since)
    );
    let mut messages = diag.messages;
    messages.sort_by_key(|message| std::cmp::Reverse(message.2));
    for (name, count, total) in messages {
        let _ = writeln!(text, "\t{name:<24} count:{count:<6} ave_time:{:<6} total_time:{total}", total / count.max(1));
    }
    text += "\nRemote Procedure Call statistics by user\n";
    for (uid, count, total) in diag.users {
        let _ = writeln!(
            text,
            "\t{:<20}({uid:10}) count:{count:<6} ave_time:{:<6} total_time:{total}",
            call.people.user(uid),
            total / count.max(1)
        );
    }
    call.print(&text);
    Ok(())
}

/// Prints the settings of accounting and the path of its configuration.
pub(super) fn configuration(call: &mut Call<'_>) -> Result<(), Fail> {
    let config: Config = match call.controller.ask(&Request::Config) {
        Ok(Answer::Config(config)) => *config,
        Ok(_) => return call.failed(WHAT, &unexpected()),
        Err(e) => return call.failed(WHAT, &e),
    };
    let home = call.controller.home();
    let (file, uid) = home.map_or_else(|| (String::new(), 0), |(path, uid)| (path.display().to_string(), uid));
    let owner = format!("{}({uid})", call.people.user(uid));
    let version = words::slurm_version();
    let enforce = String::from(config.accounting_storage_enforce);
    let private = String::from(config.private_data);
    let mut text = format!("Configuration data as of {}\n", call.clock(call.now).show(call.now));
    for (key, value) in [
        ("AccountingStorageBackupHost", "(null)"),
        ("AccountingStorageEnforce", if enforce.is_empty() { "none" } else { &enforce }),
        ("AccountingStorageHost", "localhost"),
        ("AccountingStorageParameters", "(null)"),
        ("AccountingStoragePass", "(null)"),
        ("AccountingStoragePort", "0"),
        ("AccountingStorageType", "accounting_storage/slurmdbd"),
        ("AccountingStorageUser", "N/A"),
        ("AuthType", "auth/peercred"),
        ("MessageTimeout", "10 sec"),
        ("PluginDir", "(null)"),
        ("PrivateData", if private.is_empty() { "none" } else { &private }),
        ("SlurmUserId", &owner),
        ("SLURM_CONF", &file),
        ("SLURM_VERSION", &version),
        ("TCPTimeout", "2 sec"),
        ("TrackWCKey", "No"),
    ] {
        let _ = writeln!(text, "{key:<22} = {value}");
    }
    call.print(&text);
    Ok(())
}
