//! Report on reservations: how much of each was used by jobs.

use squall_model::duration::format_elapsed;
use squall_model::hostlist;

use super::utilization::nodes;
use super::{ReportQuery, held, ran, rows};
use crate::command::listing::call::{Call, Fail};
use crate::command::listing::past::{self, ReservationVersion};
use squall_text::format::clock::Clock;
use squall_text::format::sheet::Column;

/// A reservation as a line of the report, with its use by jobs.
struct ReservationLine {
    cluster: String,
    reserved: ReservationVersion,
    start: String,
    end: String,
    seconds: u64,
    tres: &'static str,
    count: u64,
    allocated: String,
    idle: String,
}

type C = Column<ReservationLine>;

static COLUMNS: &[C] = &[
    C::new("Allocated", 20, |l| l.allocated.clone()),
    C::new("Associations", 15, |l| {
        let own = &l.reserved.reservation;
        own.accounts.iter().chain(&own.users).cloned().collect::<Vec<_>>().join(",")
    }),
    C::new("Cluster", 9, |l| l.cluster.clone()),
    C::new("End", 19, |l| l.end.clone()),
    C::new("Flags", 20, |l| {
        let flags = l.reserved.reservation.flags.iter();
        flags.map(|flag| flag.name()).collect::<Vec<_>>().join(",")
    }),
    C::new("Idle", 20, |l| l.idle.clone()),
    C::new("Name", 9, |l| l.reserved.reservation.name.clone()),
    C::new("Nodes", 15, |l| l.reserved.nodes.clone()),
    C::titled("ReservationId", "Id", 8, |l| l.reserved.id.to_string()),
    C::new("Start", 19, |l| l.start.clone()),
    C::new("TotalTime", 9, |l| format_elapsed(l.seconds)),
    C::titled("TresCount", "TRES count", 10, |l| l.count.to_string()),
    C::titled("CpuCount", "TRES count", 10, |l| l.count.to_string()),
    C::titled("Count", "TRES count", 10, |l| l.count.to_string()),
    C::titled("TresName", "TRES Name", 14, |l| l.tres.to_owned()),
    C::titled("TresTime", "TRES Time", 9, |l| format_elapsed(l.seconds * l.count)),
    C::titled("CpuTime", "TRES Time", 9, |l| format_elapsed(l.seconds * l.count)),
];

/// Prints the report on reservations.
pub(super) fn reserved(call: &mut Call<'_>, asked: &mut ReportQuery) -> Result<(), Fail> {
    let rows = rows(call, asked)?;
    let (history, nodes) = nodes(call)?;
    // Slurm's reservations are whole nodes, counted by their CPUs.
    let tres = Some("cpu").filter(|cpu| asked.tres.contains(cpu));
    let sheet = asked.sheet(call, "Cluster,Name,Start,End,TresName,Allocated,Idle", COLUMNS)?;
    let clock = call.clock(call.now);
    let mut lines = Vec::new();
    for reserved in past::reservations(&history).into_iter().filter(|_| tres.is_some()) {
        let own = &reserved.reservation;
        let meant = own.start < asked.to
            && own.end > asked.from
            && asked.admits("names", &own.name)
            && asked.admits("ids", &reserved.id.to_string());
        if !meant {
            continue;
        }
        let names = hostlist::expand(&reserved.nodes).unwrap_or_default();
        let count = nodes.iter().filter(|node| names.contains(&node.node)).map(|node| u64::from(node.cpus)).sum();
        let seconds = own.end.secs().saturating_sub(own.start.secs());
        let of_it = rows.iter().filter(|row| row.spec.reservations().any(|name| name == own.name));
        let used: u64 = of_it
            .filter_map(|row| ran(row, own.end.min(call.now)).map(|(start, end)| (row, start.max(own.start), end)))
            .map(|(row, start, end)| held(row, "cpu") * end.secs().saturating_sub(start.secs()))
            .sum();
        let total = seconds * count;
        lines.push(line(asked, &clock, reserved, (count, seconds), (used, total)));
    }
    let units = if asked.unit.seconds == 0 { "" } else { "TRES " };
    asked.head(call, "Reservation Utilization", false, &[format!("Usage reported in {units}{}", asked.unit.name)]);
    let text = sheet.lines(asked.header, &asked.style, &lines);
    call.print(&text);
    Ok(())
}

fn line(
    asked: &ReportQuery,
    clock: &Clock,
    reserved: ReservationVersion,
    (count, seconds): (u64, u64),
    (used, total): (u64, u64),
) -> ReservationLine {
    ReservationLine {
        cluster: asked.cluster.to_string(),
        start: clock.show(reserved.reservation.start),
        end: clock.show(reserved.reservation.end),
        reserved,
        seconds,
        tres: "cpu",
        count,
        allocated: asked.unit.show(used, total),
        idle: asked.unit.show(total.saturating_sub(used), total),
    }
}
