//! Report on goodput: which part of the time of jobs was not lost with failed nodes, and by what cause the rest was lost.

use std::collections::BTreeMap;

use squall_model::cost::Cost;
use squall_model::duration::format_elapsed;
use squall_model::time::Span;
use squall_model::wire::client::AccountingQuery;

use super::{ReportQuery, WHAT, meets};
use crate::command::listing::call::{Call, Fail};
use squall_text::format::accounting::Row;
use squall_text::format::sheet::Column;

/// Jobs of a user and an account in a partition; without any of these, of the whole cluster.
#[derive(Default)]
struct GoodputLine {
    cluster: String,
    account: String,
    user: String,
    partition: String,
    jobs: usize,
    failures: usize,
    cost: Cost,
}

type C = Column<GoodputLine>;

fn time(span: Span) -> String {
    format_elapsed(span.secs())
}

static COLUMNS: &[C] = &[
    C::new("Account", 15, |l| l.account.clone()),
    C::new("Cluster", 9, |l| l.cluster.clone()),
    C::new("Detect", 11, |l| time(l.cost.lost.detect)),
    C::new("ETTR", 6, |l| format!("{:.3}", l.cost.ettr())),
    C::new("Failures", 8, |l| l.failures.to_string()),
    C::new("Jobs", 7, |l| l.jobs.to_string()),
    C::new("Launch", 11, |l| time(l.cost.lost.launch)),
    C::new("Login", 9, |l| l.user.clone()),
    C::new("Lost", 11, |l| time(l.cost.lost.sum())),
    C::new("Partition", 10, |l| l.partition.clone()),
    C::new("Replace", 11, |l| time(l.cost.lost.replace)),
    C::new("Run", 11, |l| time(l.cost.total)),
    C::new("Work", 11, |l| time(l.cost.lost.work)),
];

/// Prints the report: a line for the cluster, then one for each account, user and partition. It has all runs of each
/// job that ran within the period.
pub(super) fn goodput(call: &mut Call<'_>, asked: &mut ReportQuery) -> Result<(), Fail> {
    let query = AccountingQuery {
        start: Some(asked.from),
        end: Some(asked.to),
        allocations_only: true,
        ..AccountingQuery::default()
    };
    let mut rows = call.accounting(WHAT, query)?;
    rows.retain(|row| row.start.is_some() && meets(asked, row) && asked.admits("accounts", &row.account));
    let usual = "Cluster,Account,Login,Partition,Jobs,Failures,Run,Lost,Detect,Replace,Launch,Work,ETTR";
    let sheet = asked.sheet(call, usual, COLUMNS)?;
    let clock = call.clock(call.now);
    let mut lines: BTreeMap<[String; 3], GoodputLine> = BTreeMap::new();
    for data in rows {
        let row = Row::new(data, &clock, &asked.cluster);
        let own = [row.data.account.clone(), row.data.owner.user.clone(), row.data.partition.clone()];
        for key in [[const { String::new() }; 3], own] {
            let line = lines.entry(key).or_default();
            line.jobs += 1;
            line.failures += row.data.losses.as_ref().map_or(0, |losses| losses.losses.len());
            line.cost.add(&row.cost());
        }
    }
    let cluster = asked.cluster.to_string();
    let lines: Vec<GoodputLine> = lines
        .into_iter()
        .map(|([account, user, partition], line)| GoodputLine {
            cluster: cluster.clone(),
            account,
            user,
            partition,
            ..line
        })
        .collect();
    asked.head(call, "Goodput", false, &["Run time of jobs, and what of it was lost with failed nodes".to_owned()]);
    let text = sheet.lines(asked.header, &asked.style, &lines);
    call.print(&text);
    Ok(())
}
