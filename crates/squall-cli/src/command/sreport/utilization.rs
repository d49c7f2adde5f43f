//! Report on utilization: for each hour, how much of the nodes was allocated, down, idle, or reserved for pending jobs.

use squall_model::billing::Billing;
use squall_model::hostlist;
use squall_model::reservation::Flag;
use squall_model::time::Time;
use squall_model::wire::history::HistoryRow;
use squall_model::wire::info::AccountingRow;

use super::{ReportQuery, WHAT, held, ran, rows};
use crate::command::listing::call::{Call, Fail};
use crate::command::listing::past::{self, Outage, RegisteredNode, ReservationVersion};
use crate::command::listing::select::names;
use squall_text::format::sheet::Column;

/// Utilization of one resource as a line of the report.
struct UtilizationLine {
    cluster: String,
    tres: &'static str,
    count: u64,
    allocated: String,
    down: String,
    planned_down: String,
    idle: String,
    planned: String,
    over: String,
    reported: String,
    energy: String,
}

type C = Column<UtilizationLine>;

static COLUMNS: &[C] = &[
    C::new("Cluster", 9, |l| l.cluster.clone()),
    C::titled("TresName", "TRES Name", 14, |l| l.tres.to_owned()),
    C::titled("TresCount", "TRES Count", 10, |l| l.count.to_string()),
    C::titled("Count", "TRES Count", 10, |l| l.count.to_string()),
    C::titled("CpuCount", "TRES Count", 10, |l| l.count.to_string()),
    C::new("Allocated", 8, |l| l.allocated.clone()),
    C::new("Down", 8, |l| l.down.clone()),
    C::titled("PLNDDown", "PLND Down", 8, |l| l.planned_down.clone()),
    C::titled("PlannedDown", "PLND Down", 8, |l| l.planned_down.clone()),
    C::new("Idle", 8, |l| l.idle.clone()),
    C::new("Planned", 8, |l| l.planned.clone()),
    C::titled("Reserved", "Planned", 8, |l| l.planned.clone()),
    C::titled("Overcommitted", "Over Comm", 8, |l| l.over.clone()),
    C::new("Reported", 8, |l| l.reported.clone()),
    C::new("Energy", 8, |l| l.energy.clone()),
    // Fields of other reports, which Slurm takes here and leaves empty.
    C::titled("Accounts", "Account", 15, |_| String::new()),
    C::new("Login", 9, |_| String::new()),
    C::titled("Proper", "Proper Name", 15, |_| String::new()),
    C::new("Used", 10, |_| String::new()),
    C::new("WCKey", 15, |_| String::new()),
    C::new("QOS", 12, |_| String::new()),
    C::titled("QOSID", "QOS ID", 8, |_| String::new()),
];

/// Resource-seconds of one hour or of the whole period, by use.
#[derive(Clone, Copy, Default)]
struct Hour {
    there: u64,
    allocated: u64,
    down: u64,
    planned_down: u64,
    planned: u64,
    over: u64,
    idle: u64,
}

impl Hour {
    /// Makes the kinds of use add up to the whole. Resource-seconds counted twice keep only the first of these uses:
    /// down, allocated, planned down, planned, idle.
    fn balance(&mut self) {
        self.down = self.down.min(self.there);
        self.allocated = self.allocated.min(self.there - self.down);
        self.planned_down = self.planned_down.min(self.there - self.down - self.allocated);
        let free = self.there - self.down - self.allocated - self.planned_down;
        self.over = self.planned.saturating_sub(free);
        self.planned = self.planned.min(free);
        self.idle = free - self.planned;
    }

    /// Raises each field to that of `other`, if higher. The maxima determine the widths of the columns.
    fn add_most(&mut self, other: &Self) {
        self.there = self.there.max(other.there);
        self.allocated = self.allocated.max(other.allocated);
        self.down = self.down.max(other.down);
        self.planned_down = self.planned_down.max(other.planned_down);
        self.planned = self.planned.max(other.planned);
        self.over = self.over.max(other.over);
        self.idle = self.idle.max(other.idle);
    }

    fn add(&mut self, other: &Self) {
        self.there += other.there;
        self.allocated += other.allocated;
        self.down += other.down;
        self.planned_down += other.planned_down;
        self.planned += other.planned;
        self.over += other.over;
        self.idle += other.idle;
    }
}

/// Use of a resource in each hour of a report's period.
struct Hours {
    from: Time,
    until: Time,
    each: Vec<Hour>,
}

const HOUR_S: u64 = 3600;

impl Hours {
    fn new(from: Time, until: Time) -> Self {
        let count = until.secs().saturating_sub(from.secs()).div_ceil(HOUR_S) as usize;
        Self { from, until, each: vec![Hour::default(); count] }
    }

    /// Adds the use of `count` units of a resource from `start` to `end` to the field `field` of each hour concerned.
    fn spread(&mut self, (start, end): (Time, Time), count: u64, field: fn(&mut Hour) -> &mut u64) {
        let (mut at, end) = (start.max(self.from).secs(), end.min(self.until).secs());
        while at < end {
            let hour = (at - self.from.secs()) / HOUR_S;
            let next = end.min(self.from.secs() + (hour + 1) * HOUR_S);
            *field(&mut self.each[hour as usize]) += (next - at) * count;
            at = next;
        }
    }
}

/// Returns the amount of a resource that a node has (memory in MiB).
fn of_node(node: &RegisteredNode, tres: &str) -> u64 {
    match tres {
        "cpu" | "billing" => u64::from(node.cpus),
        "mem" => node.memory_mb,
        "node" => 1,
        "gres/gpu" => u64::from(node.gpus),
        _ => 0,
    }
}

/// Returns accounting's history of the nodes, and the present nodes.
pub(super) fn nodes(call: &mut Call<'_>) -> Result<(Vec<HistoryRow>, Vec<RegisteredNode>), Fail> {
    let history = match call.controller.history() {
        Ok(history) => history,
        Err(e) => return call.failed(WHAT, &e),
    };
    let nodes = past::seen(call, WHAT, &history)?;
    Ok((history, nodes))
}

/// Returns the resource-seconds that nodes offered within a period.
pub(super) fn reported(nodes: &[RegisteredNode], tres: &str, (from, until): (Time, Time)) -> u64 {
    let since = |node: &RegisteredNode| until.secs().saturating_sub(node.since.max(from).secs());
    nodes.iter().map(|node| since(node) * of_node(node, tres)).sum()
}

/// Prints the report on utilization.
pub(super) fn utilization(call: &mut Call<'_>, asked: &mut ReportQuery) -> Result<(), Fail> {
    if asked.tres_text.as_deref().is_some_and(|text| names(text).iter().any(|name| name.eq_ignore_ascii_case("node"))) {
        call.say(
            "sreport: fatal: TRES node usage is no longer reported in the Cluster Utilization report.  \
             Please use TRES CPU instead.",
        );
        return Err(Fail(1));
    }
    let rows = rows(call, asked)?;
    let (history, nodes) = nodes(call)?;
    let (outages, reserved) = (past::outages(&history), past::reservations(&history));
    let usual = if asked.tres_text.is_some() {
        "Cluster,TresName,Allocated,Down,PLNDDown,Idle,Planned,Reported"
    } else {
        "Cluster,Allocated,Down,PLNDDown,Idle,Planned,Reported"
    };
    let mut sheet = asked.sheet(call, usual, COLUMNS)?;
    let (mut lines, mut most) = (Vec::new(), Hour::default());
    for tres in asked.tres.clone().into_iter().filter(|tres| *tres != "node") {
        let span = (asked.from, asked.until(call.now));
        let sum = total(tres, span, &nodes, (&outages, &reserved), &rows);
        let count: u64 = nodes.iter().map(|node| of_node(node, tres)).sum();
        let unit = asked.unit;
        let show = |amount| unit.show(amount, sum.there);
        lines.push(UtilizationLine {
            cluster: asked.cluster.to_string(),
            tres,
            count,
            allocated: show(sum.allocated),
            down: show(sum.down),
            planned_down: show(sum.planned_down),
            idle: show(sum.idle),
            planned: show(sum.planned),
            over: show(sum.over),
            reported: unit.show(sum.there, count * asked.to.secs().saturating_sub(asked.from.secs())),
            energy: show(0),
        });
        most.add_most(&sum);
    }
    for (name, amount) in [
        ("Allocated", most.allocated),
        ("Down", most.down),
        ("PLNDDown", most.planned_down),
        ("PlannedDown", most.planned_down),
        ("Reserved", most.planned),
        ("Idle", most.idle),
        ("Planned", most.planned),
        ("Overcommitted", most.over),
        ("Reported", most.there),
    ] {
        sheet.widen(name, asked.unit.width(amount));
    }
    asked.head(call, "Cluster Utilization", false, &[asked.usage_in()]);
    let text = sheet.lines(asked.header, &asked.style, &lines);
    call.print(&text);
    Ok(())
}

/// Returns the sum over all hours. Double counts are removed hour by hour, as in Slurm.
fn total(
    tres: &str,
    (from, until): (Time, Time),
    nodes: &[RegisteredNode],
    (outages, reserved): (&[Outage], &[ReservationVersion]),
    rows: &[AccountingRow],
) -> Hour {
    let mut hours = Hours::new(from, until);
    for node in nodes {
        hours.spread((node.since, until), of_node(node, tres), |hour| &mut hour.there);
    }
    let find = |name: &str| nodes.iter().find(|node| node.node == name);
    for outage in outages {
        if let Some(node) = find(&outage.node) {
            let span = (outage.start.max(node.since), outage.end.unwrap_or(until));
            hours.spread(span, of_node(node, tres), |hour| &mut hour.down);
        }
    }
    for ReservationVersion { reservation, nodes, .. } in reserved {
        // Slurm counts reservations in CPUs only.
        if tres == "cpu" && reservation.flags.contains(&Flag::Maint) {
            let names = hostlist::expand(nodes).unwrap_or_default();
            let count = names.iter().filter_map(|name| find(name)).map(|node| of_node(node, tres)).sum();
            hours.spread((reservation.start, reservation.end), count, |hour| &mut hour.planned_down);
        }
    }
    for row in rows {
        let count = held(row, tres);
        if let Some(span) = ran(row, until) {
            hours.spread(span, count, |hour| &mut hour.allocated);
        }
        // The job was pending and eligible to start.
        if row.eligible.0 > 0 {
            let cpus = u64::from(row.req_cpus);
            let wanted = match tres {
                "cpu" => cpus,
                "billing" => row.req_billing.map_or(cpus, Billing::whole),
                _ => count,
            };
            let until = row.start.or(row.end).unwrap_or(until);
            hours.spread((row.eligible, until), wanted, |hour| &mut hour.planned);
        }
    }
    let mut sum = Hour::default();
    for mut hour in hours.each {
        hour.balance();
        sum.add(&hour);
    }
    sum
}
