//! sshare: lists shares and usage of accounts and of their users.

use std::ffi::OsString;
use std::process::ExitCode;

use squall_model::wire::client::{Answer, Request};
use squall_model::wire::priority_info::Share;

use crate::command::listing::call::{Call, FROM_STANDBY, Fail, live};
use crate::command::listing::select::{lines, names};
use crate::command::listing::structured::{dialect, document};
use squall_client::unexpected;
use squall_text::format::sheet::{Column, Sheet};
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, GivenFlag, flag};
use squall_text::page::{Options, Page};
use squall_text::shapes::{AnswerKind, shares};

const WHAT: &str = "sshare: error: Couldn't get shares from controller";

const OPTIONS: &[Flag] = &[
    flag("accounts", 'A', Arg::Needed("value"), "display specific accounts (comma separated list)"),
    flag("all", 'a', Arg::None, "list all users"),
    flag("cluster", 'M', Arg::Needed("names"), "only the cluster here is known"),
    flag("clusters", 'M', Arg::Needed("names"), ""),
    flag("format", 'o', Arg::Needed("value"), "comma separated list of fields"),
    FROM_STANDBY,
    flag("helpformat", 'e', Arg::None, "print a list of fields that can be specified with the '--format' option"),
    flag("json", '\0', Arg::Maybe("data_parser"), "produce JSON output"),
    flag("long", 'l', Arg::None, "include normalized usage in output"),
    flag("noheader", 'n', Arg::None, "omit header from output"),
    flag("noheader", 'h', Arg::None, "omit header from output"),
    flag("parsable", 'p', Arg::None, "'|' delimited output with a trailing '|'"),
    flag("parsable2", 'P', Arg::None, "'|' delimited output without a trailing '|'"),
    flag("partition", 'm', Arg::None, "print the partition part of the association"),
    flag("users", 'u', Arg::Needed("value"), "display specific users (comma separated list)"),
    flag("Users", 'U', Arg::None, "display only user information"),
    flag("verbose", 'v', Arg::None, "").hint("there is no further detail"),
    flag("yaml", '\0', Arg::Maybe("data_parser"), "produce YAML output"),
];

/// What `sshare` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "sshare",
    about: "show shares of accounts",
    synopsis: &["[OPTIONS]"],
    options: Options::Own(OPTIONS),
    notes: "",
};

/// A line of the output: an account, or a user in an account.
struct ShareLine {
    share: Share,
    cluster: String,
    /// Whether only users are listed: then names are not indented.
    flat: bool,
}

impl ShareLine {
    fn account(&self) -> String {
        let depth = if self.flat { 0 } else { self.share.depth as usize };
        format!("{}{}", " ".repeat(depth), self.share.account)
    }

    /// Returns the text, or nothing on the line of the root account: shares are relative to a parent, which root does
    /// not have.
    fn below_root(&self, text: String) -> String {
        if self.share.depth == 0 { String::new() } else { text }
    }

    fn raw_shares(&self) -> String {
        self.below_root(self.share.shares.map_or_else(|| "parent".to_owned(), |shares| shares.to_string()))
    }

    fn level(&self) -> String {
        let level = self.share.level.0;
        self.below_root(if level.is_infinite() { "inf".to_owned() } else { fraction(level) })
    }

    fn run_minutes(&self) -> String {
        let [cpu, memory_mb, node] = self.share.run_minutes;
        let billing = self.share.billing_minutes.unwrap_or(cpu);
        format!("cpu={cpu},mem={memory_mb},energy=0,node={node},billing={billing},fs/disk=0,vmem=0,pages=0")
    }

    /// Returns the minutes used of each resource: CPUs, and billing units if they are others.
    fn raw_minutes(&self) -> String {
        let (cpu, used) = (self.share.cpu_usage, self.share.raw_usage.0 / 60.0);
        cpu.map_or_else(|| format!("cpu={used:.0}"), |cpu| format!("cpu={:.0},billing={used:.0}", cpu.0 / 60.0))
    }

    fn group_minutes(&self) -> String {
        let limits = self.share.group_minutes.iter().map(|(tres, minutes)| format!("{}={minutes}", tres.name()));
        limits.collect::<Vec<_>>().join(",")
    }

    fn fairshare(&self) -> String {
        if self.share.user.is_empty() { String::new() } else { fraction(self.share.fairshare.0) }
    }
}

fn fraction(value: f64) -> String {
    format!("{value:.6}")
}

type C = Column<ShareLine>;

static COLUMNS: &[C] = &[
    C::new("Account", -20, ShareLine::account),
    C::new("Cluster", 10, |l| l.cluster.clone()),
    C::new("EffectvUsage", 13, |l| fraction(l.share.effective_usage.0)),
    C::new("FairShare", 10, ShareLine::fairshare),
    C::new("GrpTRESMins", 30, ShareLine::group_minutes),
    C::new("GrpTRESRaw", 30, ShareLine::raw_minutes),
    C::new("ID", 6, |l| l.share.id.to_string()),
    C::new("LevelFS", 10, ShareLine::level),
    C::new("NormShares", 11, |l| fraction(if l.share.depth == 0 { 0.0 } else { l.share.norm_shares.0 })),
    C::new("NormUsage", 11, |l| l.below_root(fraction(l.share.norm_usage.0))),
    C::new("Partition", 12, |l| l.share.partition.clone()),
    C::new("RawShares", 10, ShareLine::raw_shares),
    C::new("RawUsage", 11, |l| format!("{:.0}", l.share.raw_usage.0)),
    C::new("TRESRunMins", 30, ShareLine::run_minutes),
    C::new("User", 10, |l| l.share.user.clone()),
];

/// Runs sshare.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("sshare", args, sshare)
}

/// Runs sshare with the command-line arguments `args`. `call` has the controller, the environment and the output.
pub(crate) fn sshare(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    if given.has("helpformat") {
        call.print(&lines(COLUMNS.iter().map(|c| c.name)));
        return Ok(());
    }
    let sheet = match Sheet::parse(&format(&given), COLUMNS) {
        Ok(sheet) => sheet,
        Err(bad) => return call.fail(&format!("Invalid field requested: \"{bad}\"")),
    };
    call.check_cluster(given.last("clusters").or(given.last("cluster")), false, WHAT)?;
    let cluster = call.cluster(WHAT)?;
    let all = match call.controller.ask(&Request::Shares) {
        Ok(Answer::Shares(shares)) => shares,
        Ok(_) => return call.failed(WHAT, &unexpected()),
        Err(e) => return call.failed(WHAT, &e),
    };
    let chosen = chosen(call, &given, &all)?;
    if let Some(dialect) = dialect(call, &given)? {
        let list = shares::shares(&all, &chosen, &cluster);
        let text = document(call, dialect, &cluster, &["sshare"], AnswerKind::Shares, vec![("shares", list)]);
        call.print(&text);
        return Ok(());
    }
    let flat = given.has("Users");
    let line = |share| ShareLine { share, cluster: cluster.to_string(), flat };
    let rows: Vec<ShareLine> = chosen.into_iter().map(line).collect();
    let text = sheet.lines(!given.has("noheader"), &given.style(), &rows);
    call.print(&text);
    Ok(())
}

fn format(given: &Arguments) -> String {
    let chosen: Vec<&str> = given.options.iter().filter(|o| o.name == "format").map(GivenFlag::text).collect();
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

/// Returns the lines to print: all accounts, and of their users the named ones; with `-a` all users, otherwise the
/// caller.
fn chosen(call: &mut Call<'_>, given: &Arguments, all: &[Share]) -> Result<Vec<Share>, Fail> {
    let accounts = given.last("accounts").map(names).unwrap_or_default();
    let users: Option<Vec<String>> = match given.last("users") {
        Some(list) => Some(call.user_ids(list)?.into_iter().map(|uid| call.people.user(uid)).collect()),
        None if given.has("all") || !accounts.is_empty() => None,
        None => Some(vec![call.people.user(call.people.me())]),
    };
    let here = |share: &Share| {
        let account = accounts.is_empty() || accounts.iter().any(|a| a.eq_ignore_ascii_case(&share.account));
        let user = match &users {
            _ if share.user.is_empty() => !given.has("Users"),
            Some(users) => users.contains(&share.user),
            None => true,
        };
        account && user
    };
    Ok(all.iter().filter(|share| here(share)).cloned().collect())
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
            &["-A", "phys", "-Pn", "-o", "account,user,grptresmins"],
            &["-A", "elsewhere", "-Pn"],
            &["-o", "bogus"],
            &["-u", "nobody-of-that-name"],
            &["--json", "-u", "root"],
        ];
        check("sshare", &transcript("sshare", sshare, calls));
    }
}
