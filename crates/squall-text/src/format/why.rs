//! Why a job is pending, and what would let it start, in words.

use std::borrow::Cow;
use std::fmt::Write;

use squall_model::duration::{format_elapsed, format_memory_mb};
use squall_model::job::{JobState, NodeTest, PendingReason, Seat, Together};
use squall_model::policy::{Limit, Tres, Whose};
use squall_model::resource::Memory;
use squall_model::time::{Span, Time};
use squall_model::wire::info::{Why, WhyChange, WhyMisfit, WhyPartition, WhySilent, WhySpan, WhyStart, WhyVacant};

use crate::format::clock::Clock;
use crate::format::colour;
use crate::format::words;
use crate::limits;

/// Returns all that is known about why a job is pending, as lines. `coloured`: with colours of a terminal.
pub fn text(told: &Why, clock: &Clock, coloured: bool) -> String {
    let painted = |text: &str, colour: Option<&str>| match colour.filter(|_| coloured) {
        Some(colour) => format!("{colour}{text}{}", colour::END),
        None => text.to_owned(),
    };
    let mut text = String::new();
    if told.state != JobState::Pending {
        let state = words::state(told.state).0;
        let shown = painted(state, colour::of_state(state));
        if let (Some((nodes, _)), Some(silent)) = (&told.runs, &told.silent) {
            let silence = painted(&silence(silent, clock), Some(colour::YELLOW));
            return format!(
                "Job {} is {shown} on {nodes}, but {silence}.\n{}",
                told.job,
                silence_text(told, silent, clock)
            );
        }
        let waits = if told.vacant.is_empty() { "does not wait: it " } else { "" };
        let mut text = format!("Job {} {waits}is {shown}", told.job);
        let Some((nodes, seat)) = &told.runs else { return text + ".\n" };
        let _ = writeln!(text, " on {nodes}.");
        text.extend(told.vacant.iter().map(|one| vacancy_text(one, clock)));
        if let Some(seat) = seat {
            let _ = writeln!(text, "{}", seat_text(seat));
        }
        if let Some(spans) = spans_text(told) {
            let _ = writeln!(text, "{spans}");
        }
        return text;
    }
    let never = never(told);
    let colour = if never { colour::RED } else { colour::YELLOW };
    let _ = writeln!(text, "{}", headed(told, &|reason| painted(reason, Some(colour))));
    for reason in &told.reasons {
        let _ = writeln!(text, "  {:<24} {}", words::pending_reason(reason), meaning(reason));
    }
    if let Some(begin) = told.begin {
        let _ = writeln!(text, "Not before: {}", clock.show(begin));
    }
    if !told.dependency.is_empty() {
        let _ = writeln!(text, "Depends on: {}", told.dependency);
    }
    for (name, wanted, free) in &told.licenses {
        let _ = writeln!(text, "License {name}: {wanted} wanted, {free} free");
    }
    for (name, start, end) in &told.reservations {
        let _ = writeln!(text, "Reservation {name}: {} to {}", clock.show(*start), clock.show(*end));
    }
    for partition in &told.partitions {
        text.push_str(&partition_text(partition));
    }
    if told.ahead_total > 0 {
        let named: Vec<String> = told.ahead.iter().map(ToString::to_string).collect();
        let more = if told.ahead_total as usize > named.len() { ", …" } else { "" };
        let jobs = if told.ahead_total == 1 { "job is" } else { "jobs are" };
        let _ = writeln!(text, "{} {jobs} ahead of it: {}{more}", told.ahead_total, named.join(", "));
    }
    if let Some(WhyStart { time, partition, nodes, prism }) = &told.start {
        let prism = prism.as_ref().map_or(String::new(), |prism| format!(", the prism {prism}"));
        let time = when(*time, clock);
        let _ = writeln!(text, "Expected to start: {time} in {partition} on {nodes}{prism}");
    }
    if !told.changes.is_empty() {
        let _ = writeln!(text, "It would start {} with any of:", if never { "only" } else { "sooner" });
        told.changes.iter().for_each(|(change, time)| {
            let _ = writeln!(text, "  {:<32} {}", change_text(change), when(*time, clock));
        });
    }
    text
}

/// Returns which nodes of a job do not answer, and since when: `n3 does not answer since 2026-11-28T21:00:00`.
pub fn silence(silent: &WhySilent, clock: &Clock) -> String {
    let does = if is_many(&silent.nodes) { "do" } else { "does" };
    format!("{} {does} not answer since {}", silent.nodes, clock.show(silent.since))
}

/// Returns which place of a running job waits for a node, since when, and for what, as lines.
pub fn vacancy_text(vacant: &WhyVacant, clock: &Clock) -> String {
    let WhyVacant { lost, place, since, cpus, memory_mb, gres, partition } = vacant;
    let mut needs = format!("{cpus} CPU{}", if *cpus == 1 { "" } else { "s" });
    if *memory_mb > 0 {
        let _ = write!(needs, ", {} of memory", format_memory_mb(*memory_mb));
    }
    if !gres.is_empty() {
        let _ = write!(needs, ", {gres}");
    }
    format!(
        "The place of {lost} (node {place} of the job) is vacant since {}. It waits for a node of {partition} with {needs} \
         free, before all pending jobs.\n",
        clock.show(*since)
    )
}

/// Returns whether a host list names several nodes.
fn is_many(nodes: &str) -> bool {
    nodes.contains([',', '['])
}

/// Returns by what rule a job waits for nodes that do not answer, and what can be done, as lines.
pub fn silence_text(told: &Why, silent: &WhySilent, clock: &Clock) -> String {
    let WhySilent { nodes, given_up, again, fenced, .. } = silent;
    let end = if *again { "runs again" } else { "ends" };
    let (answer, restart, are, they) =
        if is_many(nodes) { ("answer", "restart", "are", "they") } else { ("answers", "restarts", "is", "it") };
    let rule = match given_up {
        None => format!(
            "It waits until {nodes} {answer}, {restart} or {are} set DOWN (node_lost_action = wait): its processes there may \
             still run."
        ),
        Some(time) if fenced.is_some() => format!(
            "It has a node fence: its processes there end by themselves. It is given up at {}, unless {nodes} {answer} before: \
             then it {end}.",
            clock.show(*time)
        ),
        Some(time) => format!(
            "It is given up at {}, unless {nodes} {answer} or {restart} before (node_lost_action = requeue): then it {end}.",
            clock.show(*time)
        ),
    };
    let mut text = format!("{rule}\nIf its processes there are surely dead, an operator can say so, and it {end}:\n");
    let _ = writeln!(text, "  scontrol update NodeName={nodes} State=DOWN Reason=dead");
    if told.state == JobState::Running {
        let (verb, what) = if *again { ("scontrol requeue", "requeue") } else { ("scancel", "end") };
        let _ = writeln!(
            text,
            "To {what} it now (its other nodes are free at once, {nodes} when {they} {answer} or {are} DOWN):"
        );
        let _ = writeln!(text, "  {verb} {}", told.job);
    }
    text
}

/// Returns whether a pending job can't start as it is, even if all nodes are idle and up.
pub fn never(told: &Why) -> bool {
    told.reasons.first() == Some(&PendingReason::DependencyNeverSatisfied)
        || !told.partitions.is_empty() && told.partitions.iter().all(|one| !one.room && !one.ideal)
}

/// Returns a sentence about a pending job: that it waits, or can never start, and the main reason.
pub fn headline(told: &Why) -> String {
    headed(told, &str::to_owned)
}

/// Returns the first line, with the reason as `painted` returns it.
fn headed(told: &Why, painted: &dyn Fn(&str) -> String) -> String {
    let first = painted(told.reasons.first().map_or("nothing: it starts soon", words::pending_reason));
    if never(told) {
        format!("Job {} can never start as it is: {first}.", told.job)
    } else {
        format!("Job {} waits. Main reason: {first}.", told.job)
    }
}

/// Describes where a job's nodes lie in the network, and why they were chosen.
pub fn seat_text(seat: &Seat) -> String {
    match seat {
        Seat::Asked(prism) => format!("These are the prism {prism}, as it asked for."),
        Seat::Listed(prism) => format!("These are the prism {prism}, a shape of the topology file's list."),
        Seat::Prism(prism) => {
            format!("These are the prism {prism}: of those that were free the one that suited best.")
        }
        Seat::Order(order) => {
            format!("No prism of so many nodes was free when it started: they were put together in the order {order}.")
        }
        Seat::Groups(kind, names) if names.len() == 1 => format!("These are all at {kind} {}.", names[0]),
        Seat::Groups(kind, names) => {
            format!("No {kind} had so many free when it started: they are at {}.", names.join(", "))
        }
    }
}

/// Describes how far the groups of a running job reach. None: it has none.
pub fn spans_text(told: &Why) -> Option<String> {
    let kind = match &told.runs {
        Some((_, Some(Seat::Groups(kind, _)))) => kind,
        _ => "node",
    };
    let one = |span: &WhySpan| {
        let WhySpan { name, most, mean_hundredths } = span;
        let blocks = if *most == 1 { kind.to_owned() } else { plural(kind) };
        if most * 100 == *mean_hundredths {
            return format!("{name} in {most} {blocks}");
        }
        format!("{name} in {}.{:02} (at most {most}) {}", mean_hundredths / 100, mean_hundredths % 100, plural(kind))
    };
    let all: Vec<String> = told.spans.iter().map(one).collect();
    (!all.is_empty()).then(|| format!("Its groups: {}.", all.join(", ")))
}

fn plural(kind: &str) -> String {
    format!("{kind}{}", if kind.ends_with("ch") { "es" } else { "s" })
}

/// Wait for nodes beyond which a start is not predicted: a job without a time limit is planned with a year.
const FAR: Span = Span::from_secs(180 * 86_400);

/// Formats the expected start of a job; `now` if it is not in the future.
pub fn when(time: Time, clock: &Clock) -> String {
    match time.since(clock.now) {
        Span(0) => "now".to_owned(),
        wait if wait > FAR => "after a job without a time limit".to_owned(),
        _ => clock.show(time),
    }
}

/// Returns what a job lacks in a partition, as lines.
pub fn partition_text(partition: &WhyPartition) -> String {
    let size = match (partition.nodes_min, partition.nodes) {
        // Its limits are broken, or its name of a node is gone: nodes were not looked at.
        (0, _) => String::new(),
        (needed, nodes) if needed > nodes => format!("the job needs {needed} nodes, there are {nodes}; "),
        (needed, nodes) => format!("needs {needed} of {nodes} nodes; "),
    };
    let mut text = format!(
        "Partition {}: {size}{}\n",
        partition.name,
        match (partition.room, partition.empty, partition.ideal) {
            (true, ..) => "there is room for it now",
            (false, true, _) => "it will fit when running jobs end",
            (false, false, true) => "it fits when nodes that are down or reserved are back",
            (false, false, false) if partition.nodes_min == 0 => "it does not take the job as it is",
            (false, false, false) => "it would not fit even if all nodes were idle and up",
        }
    );
    for (test, nodes, count) in &partition.tests {
        let _ = writeln!(text, "  {count:>6} {:<44} {nodes}", test_text(*test));
    }
    if let Some(misfit) = &partition.misfit {
        let _ = writeln!(text, "  {}", misfit_text(misfit));
    }
    text
}

/// Describes why a job does not fit although enough nodes are free: they do not lie together as the job requires.
fn misfit_text(misfit: &WhyMisfit) -> String {
    let enough = if misfit.free { "Enough nodes have room" } else { "There are nodes enough" };
    let shapes = misfit.shapes.join(", ");
    let what = match misfit.together {
        Together::Contiguous => "they do not follow each other".to_owned(),
        Together::Switches => "at more leaf switches than it wants".to_owned(),
        Together::Geometry => format!("no prism of {shapes} is free among them"),
        Together::Grid => format!("no prism on which its grid lies well is free among them, such as {shapes}"),
        Together::Prism => format!("no prism with links of its own is free among them, such as {shapes}"),
        Together::Ring => "no run of them on one ring is long enough".to_owned(),
        Together::Segments => "too few whole parts of them stand in blocks as it asks".to_owned(),
        Together::Block => "in more blocks than it fits in".to_owned(),
    };
    let options = misfit.options.iter().map(|(option, value)| match value.as_str() {
        "" => format!("--{option}"),
        value => format!("--{option}={value}"),
    });
    let options = options.collect::<Vec<_>>().join(" ");
    let by = match (options.as_str(), misfit.together) {
        ("", Together::Block) => " (with --network=tolerant it would not wait for a block)".to_owned(),
        ("", Together::Prism) => " (a job of that size wants one unless --network=local or tolerant)".to_owned(),
        ("", _) => String::new(),
        (options, _) => format!(" ({options})"),
    };
    format!("{enough}, but {what}{by}")
}

/// Returns a short explanation of a pending reason, and what may be done.
pub fn meaning(reason: &PendingReason) -> Cow<'static, str> {
    let words = match reason {
        PendingReason::None => "it starts soon",
        PendingReason::Resources => "what it needs is in use or not available",
        PendingReason::Priority => "jobs with a higher priority come first",
        PendingReason::Dependency => "another job must come first",
        PendingReason::DependencyNeverSatisfied => "its dependency can no longer be met: cancel it, or change it",
        PendingReason::BeginTime => "its begin time lies ahead",
        PendingReason::JobHeldUser => "it is held: scontrol release",
        PendingReason::RequeuedHeld | PendingReason::SpecialExit => "it was requeued and held: scontrol release",
        PendingReason::JobHeldAdmin => "an operator holds it",
        PendingReason::JobArrayTaskLimit => "the limit of its array's running tasks (%N) is reached",
        PendingReason::PartitionNodeLimit => "more nodes than the partition allows or has",
        PendingReason::PartitionConfig => "more CPUs than the partition has: ask for fewer tasks or CPUs",
        PendingReason::PartitionTimeLimit => "longer than the partition allows: scontrol update TimeLimit=",
        PendingReason::PartitionDown | PendingReason::PartitionInactive => "its partition starts no jobs now",
        PendingReason::ReqNodeNotAvail => "the nodes that would do are down, drained or reserved",
        PendingReason::NodesNotAvail(nodes) => {
            return Cow::Owned(format!("nodes that would do are down, drained or reserved: {nodes}"));
        }
        PendingReason::BadConstraints => "no nodes have what it asks for",
        PendingReason::Licenses => "other jobs hold its licenses",
        PendingReason::Reservation => "its reservation has not begun",
        PendingReason::ReservationDeleted => "its reservation is gone: scontrol update or scancel",
        PendingReason::LaunchFailed(_) => "it could not be started there, and is tried again",
        PendingReason::JobHoldMaxRequeue => "it was requeued too often: scontrol release",
        PendingReason::Cleaning => "its last run is not gone from all nodes yet",
        PendingReason::NodeNotResponding => "a node of it does not answer",
        PendingReason::Checkpointed => "it waits on disk, at its last checkpoint, for the node that has it",
        PendingReason::UsageThreshold => "its user has used more of its share than its QOS allows",
        PendingReason::NodeToBeReplaced => "a node of it has failed, and no other one is free that fits",
        PendingReason::Limit(whose, limit) => return Cow::Owned(limit_text(*whose, *limit)),
    };
    Cow::Borrowed(words)
}

/// Describes the limit that a job has reached, and tells which command shows it.
fn limit_text(whose: Whose, limit: Limit) -> String {
    let (more, fewer, noun) = match limit.tres() {
        Some(Tres::Cpu) => ("more", "fewer", "CPUs"),
        Some(Tres::Mem) => ("more", "less", "memory"),
        Some(Tres::Node) => ("more", "fewer", "nodes"),
        Some(Tres::Gpu) => ("more", "fewer", "GPUs"),
        Some(Tres::Billing) => ("more", "fewer", "billing units"),
        None => ("", "", ""),
    };
    let what = limits::why(limit).replace("{noun}", noun).replace("{more}", more).replace("{fewer}", fewer);
    match whose {
        Whose::Association => format!("{what}, by its association: sacctmgr show assoc"),
        Whose::Qos => format!("{what}, by its QOS: sacctmgr show qos"),
    }
}

fn test_text(test: NodeTest) -> &'static str {
    match test {
        NodeTest::Free => "free for it",
        NodeTest::Unusable => "down or drained",
        NodeTest::Silent => "not answering",
        NodeTest::Unlisted => "not named by --nodelist",
        NodeTest::Excluded => "excluded by --exclude",
        NodeTest::Reserved => "kept by a reservation",
        NodeTest::PoweredDown => "powered down, and --delay-boot is not over",
        NodeTest::Features => "lack a feature of --constraint",
        NodeTest::TmpDisk => "have too little scratch space",
        NodeTest::FewCpus => "have too few CPUs",
        NodeTest::LittleMemory => "have too little memory",
        NodeTest::FewGres => "have too few GPUs or other resources",
        NodeTest::BusyCpus => "CPUs held by jobs",
        NodeTest::BusyMemory => "memory held by jobs",
        NodeTest::BusyGres => "GPUs or other resources held by jobs",
        NodeTest::OtherUsers => {
            "jobs on it, or in its block, that it does not share with (--exclusive=user, --exclusive=topo)"
        }
    }
}

/// Returns a change of a job, as the option that makes it.
pub fn change_text(change: &WhyChange) -> String {
    match change {
        WhyChange::WithoutNodelist => "no --nodelist".to_owned(),
        WhyChange::WithoutExclude => "no --exclude".to_owned(),
        WhyChange::WithoutConstraint => "no --constraint".to_owned(),
        WhyChange::WithoutExclusive => "no --exclusive".to_owned(),
        WhyChange::WithoutSwitches => "no --switches".to_owned(),
        WhyChange::WithoutSegments => "no --segment".to_owned(),
        WhyChange::WithoutGroups => "no --groups".to_owned(),
        WhyChange::WithoutGeometry => "no --geometry".to_owned(),
        WhyChange::WithoutGrid => "no --grid".to_owned(),
        WhyChange::Network => "--network=local or tolerant".to_owned(),
        WhyChange::WithoutContiguous => "no --contiguous".to_owned(),
        WhyChange::WithoutLicenses => "no --licenses".to_owned(),
        WhyChange::WithoutReservation => "no --reservation".to_owned(),
        WhyChange::WithoutGres => "no --gres and --gpus".to_owned(),
        WhyChange::Tasks(tasks) => format!("--ntasks={tasks}"),
        WhyChange::Nodes(nodes) => format!("--nodes={nodes}"),
        WhyChange::CpusPerTask(cpus) => format!("--cpus-per-task={cpus}"),
        WhyChange::Memory(Memory::PerCpuMb(mb)) => format!("--mem-per-cpu={}", format_memory_mb(*mb)),
        WhyChange::Memory(Memory::PerNodeMb(mb)) => format!("--mem={}", format_memory_mb(*mb)),
        WhyChange::Memory(Memory::Unset) => "no --mem".to_owned(),
        WhyChange::TimeLimit(seconds) => format!("--time={}", format_elapsed(*seconds)),
        WhyChange::Partition(name) => format!("--partition={name}"),
    }
}

/// Returns the JSON of `squall why --json`.
pub fn json(told: &Why) -> serde_json::Value {
    let seat = told.runs.as_ref().and_then(|(_, seat)| seat.as_ref());
    let partition = |one: &WhyPartition| {
        let tests = one.tests.iter().map(
            |(test, nodes, count)| serde_json::json!({"test": format!("{test:?}"), "nodes": nodes, "count": count}),
        );
        serde_json::json!({
            "partition": one.name,
            "nodes": one.nodes,
            "needs": one.nodes_min,
            "room_now": one.room,
            "room_when_empty": one.empty,
            "room_when_all_are_up": one.ideal,
            "tests": tests.collect::<Vec<_>>(),
            "misfit": one.misfit.as_ref().map(|misfit| serde_json::json!({
                "together": format!("{:?}", misfit.together),
                "options": misfit.options,
                "enough_free": misfit.free,
                "shapes": misfit.shapes,
            })),
        })
    };
    let changes = told.changes.iter();
    let changes =
        changes.map(|(change, time)| serde_json::json!({"change": change_text(change), "start_time": time.secs()}));
    let licenses = told.licenses.iter();
    let licenses =
        licenses.map(|(name, wanted, free)| serde_json::json!({"name": name, "wanted": wanted, "free": free}));
    let reservations = told.reservations.iter().map(
        |(name, start, end)| serde_json::json!({"name": name, "start_time": start.secs(), "end_time": end.secs()}),
    );
    serde_json::json!({
        "job": told.job.to_string(),
        "state": words::state(told.state).0,
        "nodes": told.runs.as_ref().map(|(nodes, _)| nodes),
        "seat": seat.map(seat_text),
        "groups": told.spans.iter().map(|span| serde_json::json!({
            "name": span.name,
            "most": span.most,
            "mean": f64::from(span.mean_hundredths) / 100.0,
        })).collect::<Vec<_>>(),
        "reason": told.reasons.first().map(words::pending_reason),
        "reasons": told.reasons.iter().map(words::pending_reason).collect::<Vec<_>>(),
        "not_before": told.begin.map(Time::secs),
        "dependency": told.dependency,
        "licenses": licenses.collect::<Vec<_>>(),
        "reservations": reservations.collect::<Vec<_>>(),
        "partitions": told.partitions.iter().map(partition).collect::<Vec<_>>(),
        "ahead": told.ahead.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "ahead_total": told.ahead_total,
        "start": told.start.as_ref().map(|start| serde_json::json!({
            "time": start.time.secs(),
            "partition": start.partition,
            "nodes": start.nodes,
            "prism": start.prism,
        })),
        "changes": changes.collect::<Vec<_>>(),
        "silent": told.silent.as_ref().map(|silent| serde_json::json!({
            "nodes": silent.nodes,
            "since": silent.since.secs(),
            "given_up": silent.given_up.map(Time::secs),
            "runs_again": silent.again,
        })),
        "vacant": told.vacant.iter().map(|one| serde_json::json!({
            "node": one.lost,
            "place": one.place,
            "since": one.since.secs(),
        })).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use squall_model::id::JobId;
    use squall_model::job::{JobState, NodeTest, PendingReason, Seat, Together};
    use squall_model::policy::{Limit, Whose};
    use squall_model::wire::client::JobName;
    use squall_model::wire::info::{Why, WhyChange, WhyMisfit, WhyPartition, WhySilent, WhySpan, WhyStart, WhyVacant};

    use super::{Time, headline, json, partition_text, text, when};
    use crate::format::clock::{Clock, Style};

    #[test]
    fn who_runs_is_told_where() {
        let clock = Clock { zone: jiff::tz::TimeZone::UTC, style: Style::Standard, now: Time(0) };
        let told = |seat: Option<Seat>| {
            let job = JobName { id: JobId(3), task: None };
            let runs = Some(("n[1-8]".to_owned(), seat));
            text(&Why { job, state: JobState::Running, runs, ..Why::default() }, &clock, false)
        };
        let runs = "Job 3 does not wait: it is RUNNING on n[1-8].\n";
        assert_eq!(told(None), runs);
        let order = "No prism of so many nodes was free when it started: they were put together in the order 2Y.\n";
        assert_eq!(told(Some(Seat::Order("2Y".into()))), format!("{runs}{order}"));
        let leaves = Seat::Groups("switch".into(), vec!["s1".into(), "s2".into()]);
        let text = "No switch had so many free when it started: they are at s1, s2.\n";
        assert_eq!(told(Some(leaves)), format!("{runs}{text}"));
    }

    #[test]
    fn groups_of_a_running_job_are_told_how_far_they_reach() {
        let clock = Clock { zone: jiff::tz::TimeZone::UTC, style: Style::Standard, now: Time(0) };
        let span = |name: &str, most, mean_hundredths| WhySpan { name: name.into(), most, mean_hundredths };
        let told = |kind: &str, spans: Vec<WhySpan>| {
            let seat = Seat::Groups(kind.into(), vec!["a".into(), "b".into()]);
            let (job, runs) = (JobName { id: JobId(3), task: None }, Some(("n[1-8]".to_owned(), Some(seat))));
            let why = Why { job, state: JobState::Running, runs, spans, ..Why::default() };
            text(&why, &clock, false).lines().last().map(str::to_owned)
        };
        let line = "Its groups: tp in 1 block, pp in 1.25 (at most 2) blocks, dp in 2 blocks.";
        assert_eq!(told("block", vec![span("tp", 1, 100), span("pp", 2, 125), span("dp", 2, 200)]), Some(line.into()));
        assert_eq!(told("switch", vec![span("dp", 2, 200)]), Some("Its groups: dp in 2 switches.".into()));
    }

    #[test]
    fn a_running_job_with_a_silent_node_is_told_the_rule_and_the_remedies() {
        let at = |minutes: u64| Time::from_secs(minutes * 60);
        let clock = Clock { zone: jiff::tz::TimeZone::UTC, style: Style::Standard, now: at(10) };
        let told = |nodes: &str, given_up, again, state| {
            let job = JobName { id: JobId(12), task: None };
            let (runs, nodes) = (Some(("n[1-4]".to_owned(), None)), nodes.to_owned());
            let silent = Some(WhySilent { nodes, since: at(2), given_up, again, fenced: None });
            text(&Why { job, state, runs, silent, ..Why::default() }, &clock, false)
        };
        insta::assert_snapshot!("silent_waits", told("n3", None, true, JobState::Running));
        insta::assert_snapshot!("silent_two_never_again", told("n[2-3]", None, false, JobState::Running));
        insta::assert_snapshot!("silent_given_up", told("n3", Some(at(7)), true, JobState::Running));
        let (job, runs) = (JobName { id: JobId(12), task: None }, Some(("n[1-4]".to_owned(), None)));
        let silent =
            WhySilent { nodes: "n3".into(), since: at(2), given_up: Some(at(3)), again: true, fenced: Some(true) };
        let fenced = Why { job, state: JobState::Running, runs, silent: Some(silent), ..Why::default() };
        insta::assert_snapshot!("silent_fenced", text(&fenced, &clock, false));
        let completing = JobState::Completing(squall_model::job::EndState::NodeFail);
        insta::assert_snapshot!("silent_completing", told("n3", None, true, completing));
    }

    #[test]
    fn a_running_job_with_a_vacant_place_is_told_which_since_when_and_for_what_it_waits() {
        let at = |minutes: u64| Time::from_secs(minutes * 60);
        let clock = Clock { zone: jiff::tz::TimeZone::UTC, style: Style::Standard, now: at(10) };
        let (job, runs) = (JobName { id: JobId(12), task: None }, Some(("n[1,3]".to_owned(), None)));
        let one = |lost: &str, cpus, memory_mb, gres: &str| WhyVacant {
            lost: lost.into(),
            place: 1,
            since: at(2),
            cpus,
            memory_mb,
            gres: gres.into(),
            partition: "train".into(),
        };
        let vacant = vec![one("n2", 1, 0, ""), one("n4", 8, 65_536, "gpu:4")];
        let told = Why { job, state: JobState::Running, runs, vacant, ..Why::default() };
        insta::assert_snapshot!("vacant", text(&told, &clock, false));
    }

    #[test]
    fn everything_is_told_the_binding_reason_first() {
        let name = |id| JobName { id: JobId(id), task: None };
        let partition = WhyPartition {
            name: "debug".into(),
            nodes: 4,
            nodes_min: 2,
            room: false,
            empty: true,
            ideal: true,
            tests: vec![(NodeTest::Free, "n4".into(), 1), (NodeTest::BusyGres, "n[1-3]".into(), 3)],
            misfit: Some(WhyMisfit {
                together: Together::Geometry,
                options: vec![("geometry".into(), "2x1x1".into())],
                free: true,
                shapes: vec!["2x1x1".into(), "1x2x1".into()],
            }),
        };
        let told = Why {
            job: name(12),
            state: JobState::Pending,
            reasons: vec![
                PendingReason::Licenses,
                PendingReason::Resources,
                PendingReason::Limit(Whose::Qos, Limit::GrpCpu),
            ],
            licenses: vec![("foo".into(), 2, 1)],
            reservations: vec![("maint".into(), Time(0), Time::from_secs(60))],
            partitions: vec![partition],
            ahead: vec![name(9), name(10)],
            ahead_total: 7,
            start: Some(WhyStart {
                time: Time::from_secs(7200),
                partition: "debug".into(),
                nodes: "n[1-2]".into(),
                prism: Some("2x1x1 at 0x0x0 of t".into()),
            }),
            changes: vec![(WhyChange::Nodes(1), Time(0)), (WhyChange::Partition("long".into()), Time::from_secs(60))],
            ..Why::default()
        };
        let clock = Clock { zone: jiff::tz::TimeZone::UTC, style: Style::Standard, now: Time(0) };
        let seen = text(&told, &clock, false);
        for part in [
            "Job 12 waits. Main reason: Licenses.",
            "QOSGrpCpuLimit           the limit of CPUs of all its users together is reached, by its QOS: sacctmgr show qos",
            "License foo: 2 wanted, 1 free",
            "Reservation maint: 1970-01-01T00:00:00 to 1970-01-01T00:01:00",
            "Partition debug: needs 2 of 4 nodes; it will fit when running jobs end",
            "     3 GPUs or other resources held by jobs         n[1-3]",
            "Enough nodes have room, but no prism of 2x1x1, 1x2x1 is free among them (--geometry=2x1x1)",
            "7 jobs are ahead of it: 9, 10, …",
            "Expected to start: 1970-01-01T02:00:00 in debug on n[1-2], the prism 2x1x1 at 0x0x0 of t\n",
            "sooner with any of:\n  --nodes=1                        now\n  --partition=long                 1970-01-01T00:01:00\n",
        ] {
            assert!(seen.contains(part), "{part:?} in {seen}");
        }
        assert_eq!(json(&told)["reason"], "Licenses");
        let mut never = told.clone();
        never.partitions[0] = WhyPartition { ideal: false, empty: false, ..never.partitions[0].clone() };
        let seen = text(&never, &clock, false);
        assert!(seen.starts_with("Job 12 can never start as it is: Licenses.\n"), "faults.md D12: {seen}");
        assert!(seen.contains("It would start only with any of:"), "{seen}");
        let runs = Why { job: name(3), state: JobState::Running, ..Why::default() };
        assert_eq!(text(&runs, &clock, false), "Job 3 does not wait: it is RUNNING.\n");
    }

    // D12 of the trial by a newcomer.
    #[test]
    fn what_is_impossible_is_told_as_such() {
        let line = |nodes_min| {
            let (room, empty, ideal, tests, misfit) = (false, false, false, Vec::new(), None);
            partition_text(&WhyPartition { name: "p".into(), nodes: 24, nodes_min, room, empty, ideal, tests, misfit })
        };
        assert_eq!(line(2), "Partition p: needs 2 of 24 nodes; it would not fit even if all nodes were idle and up\n");
        assert!(line(30).starts_with("Partition p: the job needs 30 nodes, there are 24; it would not fit even if"));
        assert_eq!(line(0), "Partition p: it does not take the job as it is\n");
        let clock = Clock { zone: jiff::tz::TimeZone::UTC, style: Style::Standard, now: Time(0) };
        assert_eq!(when(Time::from_secs(364 * 86_400), &clock), "after a job without a time limit");
        let job = JobName { id: JobId(12), task: None };
        let told = Why { job, reasons: vec![PendingReason::DependencyNeverSatisfied], ..Why::default() };
        assert_eq!(headline(&told), "Job 12 can never start as it is: DependencyNeverSatisfied.");
    }
}
