//! Report on job sizes: usage by jobs of each size, by account or workload key.

use std::collections::BTreeMap;

use squall_model::policy::{Policy, ROOT};
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::info::AccountingRow;

use super::{ReportQuery, held, percent, ran_s, rows};
use crate::command::listing::call::{Call, Fail};
use squall_text::format::sheet::Column;

/// Property by which jobs are grouped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Account,
    Wckey,
    /// Jobs are grouped by account and workload key together, as `account:wckey`.
    Both,
}

/// Jobs of one account or workload key as a line of the report, with a column for each range of sizes.
struct Group {
    cluster: String,
    name: String,
    sizes: Vec<String>,
}

type C = Column<Group>;

static COLUMNS: &[C] = &[
    C::new("Account", 9, |g| g.name.clone()),
    C::titled("Acct", "Account", 9, |g| g.name.clone()),
    C::new("Cluster", 9, |g| g.cluster.clone()),
    C::new("Wckey", 9, |g| g.name.clone()),
    C::titled("Duration", "Duration", 12, |_| String::new()),
    C::titled("JobCount", "Job Count", 9, |_| String::new()),
    C::titled("NodeCount", "Node Count", 9, |_| String::new()),
    C::titled("TresCount", "TRES Count", 10, |_| String::new()),
    C::titled("CpuCount", "TRES Count", 10, |_| String::new()),
    C::titled("Count", "TRES Count", 10, |_| String::new()),
    C::new("User", 9, |_| String::new()),
];

/// Number of jobs in one range of sizes, and their usage in resource-seconds.
#[derive(Clone, Copy, Default)]
struct Sum {
    jobs: u64,
    amount: u64,
}

/// Prints the report on job sizes.
pub(super) fn sizes(call: &mut Call<'_>, asked: &mut ReportQuery, by: By) -> Result<(), Fail> {
    if asked.tres.len() > 1 {
        call.say(" Job report only supports a single --tres type.\n Generate a separate report for each TRES type.");
        return Err(Fail(1));
    }
    let usual = match by {
        By::Account => "Cluster,Account",
        By::Wckey => "Cluster,Wckey",
        By::Both => "Cluster,Account%-20",
    };
    let sheet = asked.sheet(call, usual, COLUMNS)?;
    let rows: Vec<AccountingRow> = rows(call, asked)?.into_iter().filter(|row| row.start.is_some()).collect();
    let policy = match call.controller.ask(&Request::Policy) {
        Ok(Answer::Policy(policy)) => *policy,
        // The front of a cluster divided into cells has no policy: each cell has its own.
        _ => Policy::default(),
    };
    let (bounds, titles) = match bounds(asked, &rows) {
        Ok(bounds) => bounds,
        Err(bad) => {
            return call.fail(&format!(
                "grouping={bad}: numbers of CPUs are needed, from the least to the most, or individual"
            ));
        }
    };
    let span = (asked.from, asked.until(call.now));
    let mut groups: BTreeMap<String, Vec<Sum>> = BTreeMap::new();
    for row in &rows {
        let individual = asked.list("grouping").iter().any(|word| is_individual(word));
        let size = u64::from(row.num_cpus);
        let at = bounds.iter().filter(|bound| if individual { **bound < size } else { **bound <= size }).count();
        for name in names_of(asked, by, row, &policy) {
            let sums = groups.entry(name).or_insert_with(|| vec![Sum::default(); titles.len()]);
            if let Some(sum) = sums.get_mut(at) {
                sum.jobs += 1;
                sum.amount += held(row, asked.tres[0]) * ran_s(row, span);
            }
        }
    }
    let counts = asked.has("printjobcount");
    let of = |sum: &Sum| if counts { sum.jobs } else { sum.amount };
    let total: u64 = groups.values().flatten().map(of).sum();
    let lines = groups.into_iter().map(|(name, sums)| {
        let own: u64 = sums.iter().map(of).sum();
        let show = |sum: &Sum| if counts { sum.jobs.to_string() } else { asked.unit.show(sum.amount, own) };
        let sizes = sums.iter().map(show).chain([percent(own, total)]).collect();
        Group { cluster: asked.cluster.to_string(), name, sizes }
    });
    let lines: Vec<Group> = lines.collect();
    let width = if asked.unit.seconds > 0 && asked.unit.percent { 20 } else { 13 };
    let further = titles.into_iter().map(|title| (title, width)).chain([("% of cluster".to_owned(), 12)]);
    let sheet = sheet.followed_by(further.collect());
    let tres = asked.tres_text.iter().map(|text| format!("TRES type is {text}"));
    let units = if counts {
        "Units are in number of jobs ran".to_owned()
    } else {
        format!("Time reported in {}", asked.unit.name)
    };
    let title = if by == By::Wckey { "Job Sizes by Wckey" } else { "Job Sizes" };
    asked.head(call, title, true, &tres.chain([units]).collect::<Vec<_>>());
    let text = sheet.all_lines(asked.header, &asked.style, &lines, |group| &group.sizes);
    call.print(&text);
    Ok(())
}

fn is_individual(word: &str) -> bool {
    word.bytes().next().is_some_and(|letter| letter.eq_ignore_ascii_case(&b'i'))
}

/// Returns the bounds between ranges of job sizes, and the title of each range. With `grouping=individual` each size
/// that occurs is a range.
fn bounds(asked: &ReportQuery, rows: &[AccountingRow]) -> Result<(Vec<u64>, Vec<String>), String> {
    let cpus = asked.tres_text.as_deref().is_none_or(|text| text.eq_ignore_ascii_case("cpu"));
    let what = if cpus { "CPUs" } else { "TRES" };
    let mut list = asked.list("grouping");
    if list.iter().any(|word| is_individual(word)) {
        let mut bounds: Vec<u64> = rows.iter().map(|row| u64::from(row.num_cpus)).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let titles = bounds.iter().map(|size| format!("{size} {what}")).collect();
        return Ok((bounds, titles));
    }
    if list.is_empty() {
        list = ["50", "250", "500", "1000"].map(str::to_owned).to_vec();
    }
    let parse = |word: &String| word.split('%').next().unwrap_or_default().parse::<u64>().map_err(|_| word.clone());
    let bounds = list.iter().map(parse).collect::<Result<Vec<u64>, String>>()?;
    if !bounds.is_sorted_by(|one, next| one < next) || bounds[0] == 0 {
        return Err(list.join(","));
    }
    let starts = [0].into_iter().chain(bounds.iter().copied());
    let mut titles: Vec<String> =
        starts.zip(&bounds).map(|(start, end)| format!("{start}-{} {what}", end - 1)).collect();
    titles.push(format!(">= {} {what}", bounds[bounds.len() - 1]));
    Ok((bounds, titles))
}

/// Returns the names of the groups in which a job counts. For accounts these are, with `flatview`, its own account;
/// with named accounts, those that are or contain its own; otherwise the root account.
fn names_of(asked: &ReportQuery, by: By, row: &AccountingRow, policy: &Policy) -> Vec<String> {
    let wanted = asked.list("accounts");
    let above = |name: &String| row.account == *name || policy.above(&row.account).any(|(above, _)| above == name);
    let accounts: Vec<String> = match () {
        () if asked.has("flatview") => {
            Vec::from_iter(Some(row.account.clone()).filter(|name| asked.admits("accounts", name)))
        }
        () if wanted.is_empty() => vec![ROOT.to_owned()],
        () => wanted.into_iter().filter(above).collect(),
    };
    match (by, &row.spec.wckey) {
        (By::Account, _) => accounts,
        (By::Wckey, key) => key.iter().cloned().collect(),
        (By::Both, Some(key)) => accounts.into_iter().map(|account| format!("{account}:{key}")).collect(),
        (By::Both, None) => Vec::new(),
    }
}
