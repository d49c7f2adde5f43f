//! sshare: shares and usage of accounts. Jobs start in the order in which they came, so that all shares are alike.

use std::ffi::OsString;
use std::process::ExitCode;

use squall_model::config::Config;
use squall_model::wire::client::{Answer, Request};

use crate::client::unexpected;
use crate::command::listing::arguments::{Arguments, Given, Known, Value};
use crate::command::listing::call::{Call, Fail, live};
use crate::command::listing::select::{lines, names};
use crate::format::sheet::{Column, Sheet, Style};

const WHAT: &str = "sshare: error: Couldn't get shares from controller";

const OPTIONS: &[Known] = &[
    ("accounts", 'A', Value::Needed),
    ("all", 'a', Value::None),
    ("cluster", 'M', Value::Needed),
    ("clusters", 'M', Value::Needed),
    ("format", 'o', Value::Needed),
    ("helpformat", 'e', Value::None),
    ("long", 'l', Value::None),
    ("noheader", 'n', Value::None),
    ("noheader", 'h', Value::None),
    ("parsable", 'p', Value::None),
    ("parsable2", 'P', Value::None),
    ("partition", 'm', Value::None),
    ("users", 'u', Value::Needed),
    ("Users", 'U', Value::None),
    ("verbose", 'v', Value::None),
];

const HELP: &str = "\
Usage:  sshare [OPTION]
    -a, --all              list all users
    -A, --accounts=        display specific accounts (comma separated list)
    -e, --helpformat       print a list of fields that can be specified with the '--format' option
    -l, --long             include normalized usage in output
    -m, --partition        print the partition part of the association
    -M, --cluster=         only the cluster here is known
    -n, --noheader         omit header from output
    -o, --format=          comma separated list of fields
    -p, --parsable         '|' delimited output with a trailing '|'
    -P, --parsable2        '|' delimited output without a trailing '|'
    -u, --users=           display specific users (comma separated list)
    -U, --Users            display only user information
    -V, --version          display tool version number
";

/// An account, or a user in it.
struct Share {
    account: String,
    /// Empty: the account itself.
    user: String,
    /// Stands under its account.
    under: bool,
    cluster: String,
}

impl Share {
    fn of_user(&self, text: &str) -> String {
        if self.user.is_empty() { String::new() } else { text.to_owned() }
    }
}

type C = Column<Share>;

static COLUMNS: &[C] = &[
    C::new("Account", -20, |s| format!("{}{}", if s.under { " " } else { "" }, s.account)),
    C::new("Cluster", 10, |s| s.cluster.clone()),
    C::new("EffectvUsage", 13, |_| "0.000000".to_owned()),
    C::new("FairShare", 10, |s| s.of_user("0.000000")),
    C::new("GrpTRESMins", 30, |_| String::new()),
    C::new("GrpTRESRaw", 30, |_| String::new()),
    C::new("ID", 6, |_| "1".to_owned()),
    C::new("LevelFS", 10, |_| "0.000000".to_owned()),
    C::new("NormShares", 11, |_| String::new()),
    C::new("NormUsage", 11, |_| String::new()),
    C::new("Partition", 12, |_| String::new()),
    C::new("RawShares", 10, |s| s.of_user("1")),
    C::new("RawUsage", 11, |_| "0".to_owned()),
    C::new("TRESRunMins", 30, |_| "cpu=0,mem=0,energy=0,node=0,billing=0,fs/disk=0,vmem=0,pages=0".to_owned()),
    C::new("User", 10, |s| s.user.clone()),
];

/// Runs sshare.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("sshare", args, sshare)
}

fn sshare(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(OPTIONS, args, HELP)? else { return Ok(()) };
    if given.has("helpformat") {
        call.print(&lines(COLUMNS.iter().map(|c| c.name)));
        return Ok(());
    }
    let sheet = match Sheet::parse(&format(&given), COLUMNS) {
        Ok(sheet) => sheet,
        Err(bad) => return call.fail(&format!("Invalid field requested: \"{bad}\"")),
    };
    call.check_cluster(given.last("clusters").or(given.last("cluster")), false, WHAT)?;
    let config = match call.controller.ask(&Request::Config) {
        Ok(Answer::Config(config)) => *config,
        Ok(_) => return call.failed(WHAT, &unexpected()),
        Err(e) => return call.failed(WHAT, &e),
    };
    let rows = shares(call, &given, &config)?;
    let style = match given.options.iter().rev().find(|o| o.name.starts_with("parsable")) {
        Some(option) => Style::Parsable { delimiter: "|".to_owned(), ending: option.name == "parsable" },
        None => Style::Table,
    };
    let text = sheet.lines(!given.has("noheader"), &style, &rows);
    call.print(&text);
    Ok(())
}

fn format(given: &Arguments) -> String {
    let chosen: Vec<&str> = given.options.iter().filter(|o| o.name == "format").map(Given::text).collect();
    if !chosen.is_empty() {
        return chosen.join(",");
    }
    let partition = if given.has("partition") { ",Partition" } else { "" };
    if given.has("long") {
        format!(
            "Account,User{partition},RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS,\
             GrpTRESMins,TRESRunMins"
        )
    } else {
        format!("Account,User{partition},RawShares,NormShares,RawUsage,EffectvUsage,FairShare")
    }
}

/// The default account and the users who are asked for in it; without names: who asks.
fn shares(call: &mut Call<'_>, given: &Arguments, config: &Config) -> Result<Vec<Share>, Fail> {
    let wanted = given.last("accounts").map(names).unwrap_or_default();
    if !wanted.is_empty() && !wanted.iter().any(|a| a.eq_ignore_ascii_case(&config.default_account)) {
        return Ok(Vec::new());
    }
    let only_users = given.has("Users");
    let users: Vec<u32> = match given.last("users") {
        Some(list) => call.user_ids(list)?,
        None => vec![call.people.me()],
    };
    let share = |user: String| Share {
        account: config.default_account.clone(),
        under: !user.is_empty() && !only_users,
        user,
        cluster: config.cluster.clone(),
    };
    let account = (!only_users).then(|| share(String::new()));
    Ok(account.into_iter().chain(users.into_iter().map(|uid| share(call.people.user(uid)))).collect())
}

#[cfg(test)]
mod tests {
    use super::sshare;
    use crate::command::listing::fake::{check, transcript};

    #[test]
    fn what_clients_ask() {
        let calls: &[&[&str]] = &[
            &[],
            &["-U", "--format", "Account%12", "--noheader"],
            &["-n", "-P", "-o", "account,fairshare"],
            &["-lP", "-u", "root"],
            &["-A", "elsewhere", "-Pn"],
            &["-o", "bogus"],
            &["-u", "nobody-of-that-name"],
        ];
        check("sshare", &transcript("sshare", sshare, calls));
    }
}
