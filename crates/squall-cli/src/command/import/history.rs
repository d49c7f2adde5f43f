//! Reads the output of Slurm's `sacct -P`: jobs that have ended.

use std::collections::BTreeMap;

use squall_host::past::PastJob;
use squall_model::billing::Billing;
use squall_model::duration::parse_limit;
use squall_model::id::JobId;
use squall_model::job::{ArrayTask, EndState, ExitCode, JobSpec, Outcome, Owner};
use squall_model::time::Time;

/// Columns that are read.
const COLUMNS: [&str; 21] = [
    "JobID",
    "JobIDRaw",
    "JobName",
    "User",
    "UID",
    "Account",
    "Partition",
    "QOS",
    "State",
    "ExitCode",
    "Submit",
    "Start",
    "End",
    "Elapsed",
    "NNodes",
    "NCPUS",
    "AllocCPUS",
    "AllocTRES",
    "NodeList",
    "Timelimit",
    "Comment",
];

/// Columns without which a row can't be read.
const NEEDED: [&str; 5] = ["JobID", "User", "State", "Submit", "End"];

/// What the functions of this module ask of the machine.
pub(super) struct World<'a> {
    /// Returns the user of a name, with uid and group.
    pub(super) owner: &'a dyn Fn(&str) -> Option<Owner>,
    /// Reads a local time such as `2026-01-31T12:00:00`.
    pub(super) time: &'a dyn Fn(&str) -> Option<Time>,
}

/// The jobs of a file, and what was not read.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) jobs: Vec<PastJob>,
    /// What was left out, in whole sentences.
    pub(super) notes: Vec<String>,
}

/// Reads the output of `sacct -P`. Err: it has no usable header line; the text names the line.
pub(super) fn read(text: &str, world: &World<'_>) -> Result<History, String> {
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let (number, header) = lines.next().ok_or("line 1: it is empty; `sacct -P` writes a header line")?;
    // An archive of sacctmgr has commas.
    let commas = header.contains(',') && !header.contains('|');
    let header: Vec<String> = cells(header.trim_end_matches('|'), commas);
    let header: Vec<&str> = header.iter().map(|name| name.trim()).collect();
    let at = |name: &str| header.iter().position(|column| column.eq_ignore_ascii_case(name));
    if let Some(lacks) = NEEDED.iter().find(|name| at(name).is_none()) {
        return Err(format!(
            "line {number}: the header has no column {lacks}: use `sacct -P -o {}`",
            COLUMNS.join(",")
        ));
    }
    let columns: BTreeMap<&'static str, usize> = COLUMNS.iter().filter_map(|name| Some((*name, at(name)?))).collect();
    let (mut history, mut left) = (History::default(), BTreeMap::<&'static str, (usize, usize)>::new());
    for (number, line) in lines {
        let values: Vec<String> = cells(line, commas);
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let row = Row { columns: &columns, values: &values };
        // With `-p` in place of `-P` each line ends with a bar.
        let fits = [header.len(), header.len() + 1].contains(&values.len());
        let job = if fits { job(&row, world) } else { Err("have another number of columns than the header") };
        match job {
            Ok(job) => history.jobs.push(job),
            Err(why) => left.entry(why).or_insert((0, number)).0 += 1,
        }
    }
    let strange: Vec<&str> =
        header.iter().copied().filter(|name| !COLUMNS.iter().any(|known| known.eq_ignore_ascii_case(name))).collect();
    if !strange.is_empty() {
        history.notes.push(format!("columns that are not read: {}", strange.join(", ")));
    }
    let rows = |(why, (count, first)): (&str, (usize, usize))| format!("{count} rows, first in line {first}, {why}");
    history.notes.extend(left.into_iter().map(rows));
    Ok(history)
}

/// Splits a line at its bars, or at its commas outside of quotes.
fn cells(line: &str, commas: bool) -> Vec<String> {
    if !commas {
        return line.split('|').map(str::to_owned).collect();
    }
    let (mut all, mut one, mut quoted) = (Vec::new(), String::new(), false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            // Two quotes stand for one.
            '"' if quoted && letters.next_if_eq(&'"').is_some() => one.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => all.push(std::mem::take(&mut one)),
            letter => one.push(letter),
        }
    }
    all.push(one);
    all
}

/// A line, by the names of its columns.
struct Row<'a> {
    columns: &'a BTreeMap<&'static str, usize>,
    values: &'a [&'a str],
}

impl<'a> Row<'a> {
    /// Returns the value of a column; empty if there is no such column.
    fn value(&self, name: &str) -> &'a str {
        self.columns.get(name).and_then(|at| self.values.get(*at)).map_or("", |value| value.trim())
    }
}

/// Reads the job of a row. Err: why it is left out.
fn job(row: &Row<'_>, world: &World<'_>) -> Result<PastJob, &'static str> {
    let value = |name: &str| row.value(name);
    let shown = value("JobID");
    if shown.contains('.') {
        return Err("are of steps: jobs are read only");
    }
    let state = state(value("State")).ok_or("are of jobs that have not ended")?;
    let (id, task) = id(shown, value("JobIDRaw"))?;
    let time = |name: &str| (world.time)(value(name));
    let submit = time("Submit").ok_or("have no time of submission")?;
    let start = time("Start");
    let elapsed = parse_limit(value("Elapsed")).ok().flatten().filter(|_| !value("Elapsed").is_empty());
    let after = |start: Time| elapsed.map(|seconds| Time(start.0 + seconds * 1_000_000));
    let end = time("End").or_else(|| start.and_then(after)).or(start).unwrap_or(submit);
    let owner = owner(value("User"), value("UID"), world)?;
    let number = |names: [&str; 2]| names.iter().find_map(|name| value(name).parse().ok()).unwrap_or(0);
    let some = |name: &str| Some(value(name).to_owned()).filter(|text| !text.is_empty());
    let name = some("JobName").unwrap_or_default();
    let spec =
        JobSpec { name, account: some("Account"), qos: some("QOS"), comment: some("Comment"), ..JobSpec::default() };
    let exit = ExitCode::parse(value("ExitCode")).unwrap_or(ExitCode::OK);
    let nodes = value("NodeList");
    Ok(PastJob {
        id,
        task,
        owner,
        spec,
        partition: value("Partition").to_owned(),
        outcome: Outcome { state, exit, reason: None },
        submit,
        start,
        end,
        limit_s: parse_limit(value("Timelimit")).ok().flatten().filter(|_| !value("Timelimit").is_empty()),
        nodes: if nodes.starts_with("None") { String::new() } else { nodes.to_owned() },
        num_nodes: number(["NNodes", "NNodes"]),
        num_cpus: number(["AllocCPUS", "NCPUS"]),
        billing: billing(value("AllocTRES")),
    })
}

/// Reads what a job was billed from its resources, as `billing=8,cpu=4,mem=2G`. None: it is not among them.
fn billing(tres: &str) -> Option<Billing> {
    let units = tres.split(',').find_map(|one| one.strip_prefix("billing="))?;
    // A bill is a whole number of units in Slurm.
    units.parse::<u64>().ok().and_then(|units| units.checked_mul(1_000_000)).map(Billing)
}

/// Reads a job's id and place in an array from `JobID` (`12`, `12_3`, `12+1`) and `JobIDRaw` (`15`).
fn id(shown: &str, raw: &str) -> Result<(JobId, Option<ArrayTask>), &'static str> {
    let number = |text: &str| text.parse().ok().map(JobId);
    let apart = shown.split_once('_').or_else(|| shown.split_once('+'));
    let Some((first, index)) = apart else {
        return Ok((number(shown).ok_or("have no number as JobID")?, None));
    };
    let id = number(raw).ok_or("are of arrays or heterogeneous jobs: add the column JobIDRaw")?;
    let task = match (shown.contains('_'), number(first), index.parse()) {
        (true, Some(array), Ok(index)) => Some(ArrayTask { array, index }),
        _ => None,
    };
    Ok((id, task))
}

/// Returns the user of a job. One whom this machine does not know keeps the name.
fn owner(name: &str, uid: &str, world: &World<'_>) -> Result<Owner, &'static str> {
    /// User id and group id of nobody.
    const NOBODY: u32 = 65_534;
    if name.is_empty() {
        return Err("have no user");
    }
    let known = (world.owner)(name);
    Ok(known.unwrap_or_else(|| {
        let uid = uid.parse().unwrap_or(NOBODY);
        Owner { uid, gid: NOBODY, user: name.to_owned(), group: NOBODY.to_string(), ..Owner::default() }
    }))
}

/// Reads how a job ended, as `CANCELLED by 1000`. None: it has not.
fn state(text: &str) -> Option<EndState> {
    let mut words = text.split_whitespace();
    let state = match words.next()?.trim_end_matches('+') {
        "COMPLETED" => EndState::Completed,
        "FAILED" | "LAUNCH_FAILED" | "RECONFIG_FAIL" => EndState::Failed,
        "CANCELLED" | "REVOKED" => EndState::Cancelled { by: words.nth(1).and_then(|by| by.parse().ok()).unwrap_or(0) },
        "TIMEOUT" => EndState::Timeout,
        "NODE_FAIL" => EndState::NodeFail,
        "OUT_OF_MEMORY" => EndState::OutOfMemory,
        "PREEMPTED" => EndState::Preempted,
        "DEADLINE" => EndState::Deadline,
        "BOOT_FAIL" => EndState::BootFail,
        _ => return None,
    };
    Some(state)
}

#[cfg(test)]
mod tests {
    use super::{Billing, History, World, read};
    use squall_model::job::{EndState, Owner};
    use squall_model::time::Time;

    fn history(text: &str) -> Result<History, String> {
        let owner = |name: &str| (name == "ann").then(|| Owner { uid: 7, user: name.to_owned(), ..Owner::default() });
        let time = |text: &str| text.strip_prefix('t').and_then(|n| n.parse().ok()).map(Time::from_secs);
        read(text, &World { owner: &owner, time: &time })
    }

    #[test]
    fn jobs_are_read_by_the_names_of_columns() {
        let text = "JobID|JobIDRaw|JobName|User|UID|Account|Partition|State|ExitCode|Submit|Start|End|Elapsed|NNodes|\
                    AllocCPUS|NodeList|QOS|Timelimit|AllocTRES|Cluster\n\
                    12|12|a b|ann|7|phys|long|COMPLETED|0:0|t100|t110|t200|00:01:30|2|8|n[1-2]|normal|01:00:00|billing=40,cpu=8|c\n\
                    12.batch|12.batch|batch||||||0:0|t110|t110|t200||1|4|n1|||x|c\n\
                    13_4|17|arr|bob|1009|bio|long|CANCELLED by 7|0:15|t1|None|t9|00:00:00|1|0|None assigned|high|UNLIMITED|x|c\n\
                    20|20|run|ann|7|phys|long|RUNNING|0:0|t1|t2|Unknown|00:00:09|1|1|n1|normal|1:00|x|c\n\
                    odd|1\n";
        let found = history(text).unwrap();
        let [one, task] = &found.jobs[..] else { panic!("{found:?}") };
        assert_eq!((one.id.0, one.num_cpus, one.limit_s, one.nodes.as_str()), (12, 8, Some(3600), "n[1-2]"));
        assert_eq!((one.spec.name.as_str(), one.owner.uid), ("a b", 7));
        assert_eq!((one.billing, task.billing), (Some(Billing(40_000_000)), None));
        assert_eq!((one.start, one.end), (Some(Time::from_secs(110)), Time::from_secs(200)));
        assert_eq!((task.id.0, task.task.map(|t| (t.array.0, t.index))), (17, Some((13, 4))));
        assert_eq!((task.start, task.nodes.as_str(), task.owner.uid), (None, "", 1009));
        assert_eq!((task.outcome.state, task.outcome.exit.signal), (EndState::Cancelled { by: 7 }, 15));
        let expected = [
            "columns that are not read: Cluster",
            "1 rows, first in line 5, are of jobs that have not ended",
            "1 rows, first in line 3, are of steps: jobs are read only",
            "1 rows, first in line 6, have another number of columns than the header",
        ];
        assert_eq!(found.notes, expected);
    }

    #[test]
    fn a_file_without_a_usable_header_is_refused() {
        assert!(history("").unwrap_err().starts_with("line 1: it is empty"));
        assert!(
            history("\nJobID|State\n1|COMPLETED\n").unwrap_err().starts_with("line 2: the header has no column User")
        );
    }

    #[test]
    fn an_archive_of_sacctmgr_is_read() {
        let text = "JobID,JobName,User,State,Submit,Start,End,AllocTRES,NodeList\n\
                    5,\"a, \"\"b\"\"\",ann,FAILED,t1,t10,t20,\"billing=3,cpu=2\",\"n[1,3]\"\n";
        let found = history(text).unwrap();
        let [job] = &found.jobs[..] else { panic!("{found:?}") };
        assert_eq!((job.spec.name.as_str(), job.nodes.as_str()), ("a, \"b\"", "n[1,3]"));
        assert_eq!((job.end, job.billing), (Time::from_secs(20), Some(Billing(3_000_000))));
    }

    #[test]
    fn an_end_that_is_missing_follows_from_the_start() {
        let found =
            history("JobID|User|State|Submit|Start|End|Elapsed\n5|ann|FAILED|t1|t10|Unknown|00:01:00\n").unwrap();
        assert_eq!(found.jobs[0].end, Time::from_secs(70));
    }
}
