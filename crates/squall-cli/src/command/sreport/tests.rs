//! Tests of sreport: reports on a few jobs, nodes and reservations.

use squall_model::event::NodeAdmin;
use squall_model::reservation::{Flag, Reservation};
use squall_model::time::Time;
use squall_model::wire::history::{Happening, HistoryRow};

use super::sreport;
use crate::command::listing::fake::{NOW, check, fake, run_with, transcript};

#[test]
fn reports() {
    let since = "start=2026-11-20";
    let calls: &[&[&str]] = &[
        &["cluster", "AccountUtilizationByUser", since, "end=now"],
        &["-t", "seconds", "-P", "cluster", "user", since, "end=now"],
        &["-t", "seconds", "-P", "cluster", "AccountUtilizationByQOS", since, "end=now"],
        &["-nP", "-t", "seconds", "-T", "cpu,billing", "cluster", "AQ", since, "end=now"],
        &["-nP", "-t", "Hour", "user", "top", since, "end=now", "topcount=1"],
        &["user", "top", "start=2001-01-01", "end=2001-01-02"],
        &["cluster", "bogus"],
        &["user", "top", "start=bogus"],
    ];
    check("sreport", &transcript("sreport", sreport, calls));
}

fn at(seconds: i64) -> Time {
    Time::from_secs(NOW.saturating_add_signed(seconds))
}

/// Returns the history of four nodes with four CPUs each, registered two hours ago. One was drained for ten minutes,
/// one was reserved for maintenance for five.
fn history() -> Vec<HistoryRow> {
    let mut all: Vec<HistoryRow> = (1..=4)
        .map(|n| Happening::Registered { node: format!("n{n}"), cpus: 4, memory_mb: 16_000 })
        .map(|what| HistoryRow { time: at(-7200), what })
        .collect();
    let set = |admin, reason: Option<&str>| Happening::Set {
        nodes: "n4".into(),
        admin,
        reason: reason.map(str::to_owned),
        by: 0,
    };
    let reservation = Reservation {
        name: "maint".into(),
        start: at(-600),
        end: at(-300),
        users: vec!["root".into()],
        flags: [Flag::Maint].into(),
        ..Reservation::default()
    };
    for (time, what) in [
        (-3600, set(NodeAdmin::Drain, Some("disk"))),
        (-3000, set(NodeAdmin::Resume, None)),
        (-900, Happening::Reserved { reservation: Box::new(reservation), nodes: "n3".into() }),
        (-300, Happening::Unreserved { name: "maint".into() }),
    ] {
        all.push(HistoryRow { time: at(time), what });
    }
    all
}

/// Checks fault D9: these reports were refused. Their format is that of Slurm 22.05.8.
#[test]
fn d9_utilization_sizes_and_reservations() {
    let mut fake = fake();
    fake.history = history();
    let mut seen = |args: &[&str]| run_with(&mut fake, "sreport", sreport, args, &[]);
    let since = "start=2026-11-21T06:00";
    let head = "Cluster|Allocated|Down|PLND Down|Idle|Planned|Reported\n";
    let all = seen(&["-P", "-t", "sec", "cluster", "utilization", since, "end=now"]).out;
    let line = all.split_once(head).unwrap_or_else(|| panic!("{all}")).1;
    let numbers: Vec<u64> = line.trim().split('|').skip(1).map(|number| number.parse().unwrap()).collect();
    assert_eq!(numbers[..3], [480, 4 * 600, 4 * 300], "allocated, down, kept for maintenance: {line}");
    assert_eq!(numbers[5], 16 * 7200, "all that there was: {line}");
    assert_eq!(numbers[..5].iter().sum::<u64>(), numbers[5], "every second was one of them");
    let memory = seen(&["-nP", "-T", "cpu,mem", "cluster", "utilization", since, "end=now", "format=tresname,count"]);
    assert_eq!((memory.code, memory.out.lines().count()), (0, 2), "{}", memory.out);
    assert_eq!(seen(&["-T", "node", "cluster", "utilization"]).code, 1);
    let sizes =
        |more: &[&'static str]| [&["-nP", "-t", "sec", "job", "sizesbyaccount", since, "end=now"], more].concat();
    assert_eq!(seen(&sizes(&[])).out, "squall|root|480|0|0|0|0|100.00%\n");
    assert_eq!(seen(&sizes(&["grouping=2,4", "PrintJobCount"])).out, "squall|root|0|4|0|100.00%\n");
    assert_eq!(seen(&sizes(&["grouping=individual"])).out, "squall|root|480|100.00%\n");
    assert_eq!(seen(&sizes(&["grouping=4,2"])).code, 1);
    assert_eq!(seen(&["-nP", "job", "sizesbywckey", since, "end=now"]).out, "");
    assert_eq!(
        seen(&["-nP", "reservation", "utilization", since, "end=now"]).out,
        "squall|maint|2026-11-21T07:50:00|2026-11-21T07:55:00|cpu|0|20\n"
    );
    let wrong = seen(&["-nP", "job", "sizes", since, "end=now", "bogus=1", "format=nosuch,account"]);
    assert_eq!((wrong.code, wrong.out.as_str()), (1, "root|8|0|0|0|0|100.00%\n"), "what can be reported is");
    assert_eq!(wrong.err, " Unknown condition: bogus=1\nUse keyword set to modify value\n Unknown field 'nosuch'\n");
    assert_eq!(seen(&["job", "bogus"]).err.lines().next(), Some("Not valid report bogus"));
    assert_eq!(seen(&["bogus"]).err, "invalid keyword: bogus\n");
}

#[test]
fn fields_of_other_reports_are_taken_and_empty() {
    let mut fake = fake();
    fake.history = history();
    let mut seen = |args: &[&str]| run_with(&mut fake, "sreport", sreport, args, &[]);
    let since = "start=2026-11-21T06:00";
    let example = "format=Accounts,Cluster,TresCount,Login,Proper,Used";
    let report = seen(&["-P", "-t", "sec", "cluster", "AccountUtilizationByUser", since, "end=now", example]);
    assert_eq!((report.code, report.err.as_str()), (0, ""), "an example of sreport(1)");
    assert!(
        report.out.contains("\nAccount|Cluster|TRES Count|Login|Proper Name|Used\nroot|squall||"),
        "{}",
        report.out
    );
    let report = seen(&["-P", "cluster", "utilization", since, "end=now", "format=Cluster,Login,Accounts"]);
    assert!(report.out.contains("\nCluster|Login|Account\nsquall||\n"), "{}", report.out);
}
