//! squeue: lists pending and running jobs.

mod follow;
pub(crate) mod progress;
mod sort;
mod steps;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use squall_model::duration::parse_limit;
use squall_model::job::ArrayTask;
use squall_model::wire::client::{JobSelection, Refusal, StateFilter};
use squall_model::wire::info::JobClass;

use crate::command::listing::call::{COLOUR_NOTE, Call, FROM_STANDBY, Fail, live};
use crate::command::listing::lists::{Frame, all_partitions, expect, hint_partitions, known_users, shows_hidden};
use crate::command::listing::select::{Target, id_of, lines, names};
use crate::command::listing::structured::{dialect, document};
use crate::command::squeue::steps::StepRow;
use squall_client::ClientError;
use squall_text::columns::jobs::FIELDS;
use squall_text::format::Field;
use squall_text::format::job::JobRow;
use squall_text::format::layout::Layout;
use squall_text::format::words;
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{Options, Page};
use squall_text::shapes::{AnswerKind, Dialect, job};

const WHAT: &str = "slurm_load_jobs error";
/// Letters of `-o` that are allowed with `--only-job-state`.
const OF_STATE: [char; 6] = ['i', 'A', 'F', 'K', 't', 'T'];

const OPTIONS: &[Flag] = &[
    flag("accounts", 'A', Arg::Needed("accounts"), "comma separated list of accounts to view, default is all accounts"),
    flag("all", 'a', Arg::None, "show jobs of hidden partitions, too"),
    flag("array", 'r', Arg::None, "display one job array element per line"),
    flag("array-unique", '\0', Arg::None, "display one unique pending job array element per line"),
    flag("clusters", 'M', Arg::Needed("cluster_name"), "cluster to issue commands to"),
    flag("cluster", 'M', Arg::Needed("names"), ""),
    flag("expand-patterns", '\0', Arg::None, "").hint("paths of output files are always shown with their values"),
    flag("federation", '\0', Arg::None, "").hint("no federation exists"),
    flag("follow", '\0', Arg::None, "print the queue, then the line of each job whenever it changes"),
    flag("format", 'o', Arg::Needed("format"), "format specification"),
    flag("Format", 'O', Arg::Needed("format"), "format specification by field names"),
    FROM_STANDBY,
    flag("helpformat", '\0', Arg::None, "list the fields that --format may have"),
    flag("helpFormat", '\0', Arg::None, "list the fields that --Format may have"),
    flag("helpstate", '\0', Arg::None, "list the names of states"),
    flag("hide", '\0', Arg::None, "don't show jobs of hidden partitions, which is the default"),
    flag("iterate", 'i', Arg::Needed("seconds"), "specify an interation period"),
    flag("jobs", 'j', Arg::Maybe("job(s)"), "comma separated list of jobs IDs to view, default is all"),
    flag("json", '\0', Arg::Maybe("data_parser"), "produce JSON output"),
    flag("licenses", 'L', Arg::Needed("value"), "comma separated list of licenses to view"),
    flag("local", '\0', Arg::None, "").hint("only this cluster is known"),
    flag("long", 'l', Arg::None, "long report"),
    flag("me", '\0', Arg::None, "equivalent to --user=<my username>"),
    flag("name", 'n', Arg::Needed("job_name(s)"), "comma separated list of job names to view"),
    flag("noconvert", '\0', Arg::None, "don't convert units from their original type"),
    flag("nodelist", 'w', Arg::Needed("hostlist"), "list of nodes to view"),
    flag("nodes", 'w', Arg::Needed("value"), ""),
    flag("node", 'w', Arg::Needed("value"), ""),
    flag("noheader", 'h', Arg::None, "no headers on output"),
    flag("notme", '\0', Arg::None, "equivalent to --user=<all but me>"),
    flag("only-job-state", '\0', Arg::None, "id and state of jobs alone, with --json or --yaml"),
    flag("partitions", 'p', Arg::Needed("partitions"), "comma separated list of partitions to view"),
    flag("priority", 'P', Arg::None, "with --array-unique or --array: one line for each partition of a job"),
    flag("progress", '\0', Arg::None, "one line for each job or whole array, with a bar that shows how far it is"),
    flag("qos", 'q', Arg::Needed("qos(s)"), "comma separated list of qos's to view"),
    flag("reservation", 'R', Arg::Needed("name"), "reservation to view"),
    flag("running-over", '\0', Arg::Needed("time"), "only jobs that have run for longer than this"),
    flag("running-under", '\0', Arg::Needed("time"), "only jobs that have run for less than this"),
    flag("sib", '\0', Arg::None, "").hint("no federation exists"),
    flag("sibling", '\0', Arg::None, "").hint("no federation exists"),
    flag("sort", 'S', Arg::Needed("fields"), "comma separated list of fields to sort on"),
    flag("start", '\0', Arg::None, "print expected start times of pending jobs"),
    flag(
        "states",
        't',
        Arg::Needed("states"),
        "comma separated list of states to view, default is pending and running; '--states=all' reports all states",
    ),
    flag("steps", 's', Arg::Maybe("steps"), "display steps"),
    flag("user", 'u', Arg::Needed("user_name(s)"), "comma separated list of users to view"),
    flag("users", 'u', Arg::Needed("user_name(s)"), ""),
    flag("verbose", 'v', Arg::None, "say more"),
    flag("yaml", '\0', Arg::Maybe("data_parser"), "produce YAML output"),
];

/// What `squeue` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squeue",
    about: "show what waits and runs",
    synopsis: &["[OPTIONS]"],
    options: Options::Own(OPTIONS),
    notes: COLOUR_NOTE,
};

/// Keys of a job in the JSON output of `--only-job-state`.
const KEYS_OF_STATE: [&str; 7] =
    ["array_job_id", "array_task_id", "array_task_string", "het_job_id", "het_job_offset", "job_id", "job_state"];

/// Runs squeue.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("squeue", args, squeue)
}

/// The jobs to list, and options for the list.
struct Plan {
    selection: JobSelection,
    /// Whether jobs that have ended are listed, too.
    ended: bool,
    /// Steps selected by `-s JOB.STEP`.
    targets: Vec<Target>,
    /// `--start`: only pending jobs are listed, ordered by expected start.
    start: bool,
    /// `--array`: each pending task of an array has its own line.
    each_task: bool,
    header: bool,
    reservation: Option<String>,
    licenses: Vec<String>,
    not_user: Option<u32>,
    /// `--running-over` and `--running-under`: bounds of the time that jobs have run, in seconds.
    ran: [Option<u64>; 2],
    /// `--priority`: pending jobs are listed once for each of their partitions, ordered by the partitions' tiers.
    by_partition: bool,
    /// `--only-job-state`: only ids and states are printed.
    state_only: bool,
    /// Whether the jobs are those that have changed, which may be gone meanwhile.
    changes: bool,
}

/// Runs squeue with the command-line arguments `args`. `call` has the controller, the environment and the output.
pub(crate) fn squeue(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(mut given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    if given.has("verbose") {
        call.print(&given.in_force(OPTIONS));
    }
    take_operand(&mut given);
    if given.has("helpformat") || given.has("helpFormat") {
        let text = help_format(given.has("helpFormat"));
        call.print(&text);
        return Ok(());
    }
    if given.has("helpstate") {
        call.print(&lines(words::STATES.iter().map(|(long, _, _)| long)));
        return Ok(());
    }
    if let Some(extra) = given.operands.first() {
        return call.fail(&format!("Unrecognized option: {extra}\nTry \"squeue --help\" for more information"));
    }
    let plan = plan(call, &given)?;
    let dialect = dialect(call, &given)?;
    call.check_cluster(given.last("clusters").or(given.last("cluster")), plan.header && dialect.is_none(), WHAT)?;
    let every = match given.last("iterate").map(str::parse::<u64>) {
        None => None,
        Some(Ok(seconds)) if seconds > 0 => Some(seconds),
        Some(_) => return call.fail(&format!("--iterate={}", given.last("iterate").unwrap_or_default())),
    };
    if given.has("progress")
        && let Some(other) = progress::EXCLUDED.iter().find(|other| given.has(other))
    {
        return call.fail(&format!("--progress is incompatible with --{other}"));
    }
    if given.has("follow") {
        return follow::follow(call, &given, plan);
    }
    loop {
        let result = list(call, &given, &plan, dialect, every.is_some());
        let Some(seconds) = every else { return result };
        call.print("\n");
        std::thread::sleep(Duration::from_secs(seconds));
    }
}

/// Takes the value of `-j 12` or `-s 12.0` from the operands: the value may be a separate word, which getopt takes for
/// an operand.
fn take_operand(given: &mut Arguments) {
    for option in given.options.iter_mut().filter(|o| matches!(o.name, "jobs" | "steps")) {
        if option.value.is_none() && !given.operands.is_empty() {
            option.value = Some(given.operands.remove(0));
        }
    }
}

fn help_format(letters: bool) -> String {
    let known = FIELDS.iter().filter(|f| !letters || f.letter != '\0');
    lines(known.map(|f| if letters { format!("%{:<3}{}", f.letter, f.names[0]) } else { f.names[0].to_owned() }))
}

fn plan(call: &mut Call<'_>, given: &Arguments) -> Result<Plan, Fail> {
    let mut plan = Plan {
        selection: JobSelection::default(),
        ended: false,
        targets: Vec::new(),
        start: given.has("start"),
        each_task: given.has("array") || given.has("array-unique") || call.variable("SQUEUE_ARRAY").is_some(),
        header: !given.has("noheader"),
        reservation: given.last("reservation").map(str::to_owned),
        licenses: given.last("licenses").map(names).unwrap_or_default(),
        not_user: given.has("notme").then(|| call.people.me()),
        ran: [run_time(call, given, "running-over")?, run_time(call, given, "running-under")?],
        by_partition: given.has("priority") || call.variable("SQUEUE_PRIORITY").is_some(),
        state_only: given.has("only-job-state"),
        changes: false,
    };
    // Tasks that have ended count.
    plan.ended = given.has("progress");
    let from = |option: &str, variable: &str, call: &Call<'_>| {
        given.last(option).map(str::to_owned).or_else(|| call.variable(variable))
    };
    if let Some(jobs) = given.last("jobs").filter(|j| !j.is_empty()) {
        plan.selection.ids = call.targets(jobs)?.into_iter().map(|t| t.job).collect();
    }
    if let Some(steps) = given.last("steps").filter(|s| !s.is_empty()) {
        plan.targets = call.targets(steps)?;
        plan.selection.ids.extend(plan.targets.iter().map(|t| t.job.clone()));
    }
    if let Some(users) = given.last("user").or(given.last("users")).map(str::to_owned).or(call.variable("SQUEUE_USERS"))
    {
        plan.selection.users = known_users(call, &users);
    }
    // Of `--me` and `--user` the last one counts.
    let whose = given.options.iter().rev().find(|o| matches!(o.name, "me" | "user" | "users"));
    if whose.is_some_and(|option| option.name == "me") {
        plan.selection.users = vec![call.people.me()];
    }
    let list = |text: Option<String>| text.as_deref().map(names).unwrap_or_default();
    plan.selection.partitions = list(from("partitions", "SQUEUE_PARTITION", call));
    plan.selection.names = list(from("name", "SQUEUE_NAMES", call));
    plan.selection.accounts = list(from("accounts", "SQUEUE_ACCOUNT", call));
    plan.selection.qos = list(from("qos", "SQUEUE_QOS", call));
    let named = !plan.selection.partitions.is_empty() || !plan.selection.ids.is_empty();
    plan.selection.no_hidden = !named && !shows_hidden(call, given, "SQUEUE_ALL");
    let nodes = given.last("nodelist").or(given.last("nodes")).or(given.last("node"));
    plan.selection.nodes = nodes.map(str::to_owned).or_else(|| call.variable("SQUEUE_NODES"));
    if let Some(states) = from("states", "SQUEUE_STATES", call) {
        match call.states(&states)? {
            None => plan.ended = true,
            Some(states) => {
                plan.ended = true;
                plan.selection.states = states;
            }
        }
    }
    if plan.start {
        let none = !plan.selection.states.is_empty() && !plan.selection.states.contains(&StateFilter::Pending);
        plan.selection.states = vec![if none { StateFilter::Never } else { StateFilter::Pending }];
    }
    Ok(plan)
}

fn list(
    call: &mut Call<'_>,
    given: &Arguments,
    plan: &Plan,
    dialect: Option<Dialect>,
    dated: bool,
) -> Result<(), Fail> {
    let steps = given.has("steps");
    let (mut now, mut unknown, mut rows) = (call.now, Vec::new(), Vec::new());
    let frame = Frame::of(call)?;
    let asked = call.controller.pages(plan.selection.clone(), plan.ended, steps || dialect.is_some(), &mut |page| {
        let Some(mut page) = page else {
            unknown.clear();
            return rows.clear();
        };
        unknown.append(&mut page.unknown);
        now = page.now;
        frame.add_rows(page, &mut rows);
    });
    match asked {
        Ok(()) => {}
        Err(ClientError::Refused(Refusal::InvalidNode(name))) => {
            return call.fail(&format!("Invalid node name {name}"));
        }
        Err(e) => return call.failed(WHAT, &e),
    }
    // As in Slurm, an unknown job is an error only if it is the only one named.
    if let [only] = plan.selection.ids.as_slice()
        && !plan.changes
        && unknown.contains(&id_of(only))
        && rows.is_empty()
    {
        call.say("slurm_load_jobs error: Invalid job id specified");
        return Err(Fail(1));
    }
    if call.hints
        && rows.is_empty()
        && !plan.selection.partitions.is_empty()
        && let Ok(known) = all_partitions(call)
    {
        hint_partitions(call, &plan.selection.partitions, &known);
    }
    if plan.by_partition {
        rows = of_partitions(call, rows)?;
    }
    filter(&mut rows, plan);
    for row in &mut rows {
        row.noconvert = given.has("noconvert");
    }
    if plan.start {
        expect(call, &mut rows);
    }
    if plan.each_task && dialect.is_some() {
        rows = rows.into_iter().flat_map(each_task).collect();
    }
    if let Some(dialect) = dialect {
        let cluster = call.cluster(WHAT)?;
        let mut jobs: Vec<serde_json::Value> = rows.iter().map(job::job).collect();
        if plan.state_only {
            let objects = jobs.iter_mut().filter_map(|job| job.as_object_mut());
            objects.for_each(|job| job.retain(|key, _| KEYS_OF_STATE.contains(&key.as_str())));
        }
        let text = document(call, dialect, &cluster, &["squeue"], AnswerKind::Jobs, vec![("jobs", jobs.into())]);
        call.print(&text);
        return Ok(());
    }
    if plan.header && (dated || given.has("long")) {
        let text = format!("{}\n", call.clock(now).long_now());
        call.print(&text);
    }
    if given.has("progress") {
        let text = progress::table(&rows, plan.header);
        call.print(&text);
        return Ok(());
    }
    if steps { print_steps(call, given, plan, rows) } else { print_jobs(call, given, plan, rows) }
}

/// Splits each pending job into one row for each of its partitions, with the partition's tier.
fn of_partitions(call: &mut Call<'_>, rows: Vec<JobRow>) -> Result<Vec<JobRow>, Fail> {
    let partitions = match all_partitions(call) {
        Ok(partitions) => partitions,
        Err(e) => return call.failed("slurm_load_partitions error", &e),
    };
    let tier = |name: &str| partitions.iter().find(|p| p.config.name == name).map_or(0, |p| p.config.priority_tier);
    let split = |row: JobRow| -> Vec<JobRow> {
        let partitions: Vec<String> = row.class.partition.split(',').map(str::to_owned).collect();
        let of = |partition: String| {
            let tier = tier(&partition);
            JobRow { class: Arc::new(JobClass { partition, ..JobClass::clone(&row.class) }), tier, ..row.clone() }
        };
        partitions.into_iter().map(of).collect()
    };
    Ok(rows.into_iter().flat_map(split).collect())
}

fn filter(rows: &mut Vec<JobRow>, plan: &Plan) {
    rows.retain(|row| {
        let licensed = |wanted: &String| {
            row.spec.need.licenses.as_ref().is_some_and(|l| l.split(',').any(|l| l.split(':').next() == Some(wanted)))
        };
        plan.reservation.as_ref().is_none_or(|r| row.spec.reservation.as_ref() == Some(r))
            && (plan.licenses.is_empty() || plan.licenses.iter().any(licensed))
            && plan.not_user.is_none_or(|me| row.owner.uid != me)
            && ran_for(row, plan.ran)
            && (!plan.by_partition || takes(&plan.selection.partitions, &row.class.partition))
    });
}

/// Reads a time of `--running-over` or `--running-under`, in seconds.
fn run_time(call: &mut Call<'_>, given: &Arguments, option: &str) -> Result<Option<u64>, Fail> {
    let Some(text) = given.last(option) else { return Ok(None) };
    match parse_limit(text) {
        Ok(Some(seconds)) => Ok(Some(seconds)),
        Ok(None) => call.fail(&format!("--{option}={text}: use a time, such as 90 (minutes), 1:30:00 or 2-12")),
        Err(problem) => call.fail(&format!("--{option}={text}: {problem}")),
    }
}

/// Returns whether a job runs, and has run for longer and for less than the bounds. Without bounds every job meets them.
fn ran_for(row: &JobRow, [over, under]: [Option<u64>; 2]) -> bool {
    if over.is_none() && under.is_none() {
        return true;
    }
    let ran = row.time_used();
    row.info.run.is_some() && over.is_none_or(|least| ran > least) && under.is_none_or(|most| ran < most)
}

fn takes(list: &[String], name: &str) -> bool {
    list.is_empty() || list.iter().any(|one| one == name)
}

/// Splits the row of an array into one for each pending task, each created when it is needed.
fn each_task(row: JobRow) -> Box<dyn Iterator<Item = JobRow>> {
    let (Some(tasks), Some(array)) = (row.info.pending_tasks.clone(), row.spec.array.clone()) else {
        return Box::new(std::iter::once(row));
    };
    let indices = tasks.ranges().to_vec().into_iter().flat_map(|range| range.first..=range.last);
    Box::new(indices.map(move |index| {
        let mut info = row.info.clone();
        let id = row.info.id;
        info.pending_tasks = None;
        info.task = Some(ArrayTask { array: id, index });
        info.id = if array.indices.contains(index) { array.task_id(id, array.indices.rank(index)) } else { id };
        JobRow { info, ..row.clone() }
    }))
}

fn print_jobs(call: &mut Call<'_>, given: &Arguments, plan: &Plan, mut rows: Vec<JobRow>) -> Result<(), Fail> {
    let default = if plan.start {
        "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
    } else if given.has("long") {
        "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
    } else {
        "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
    };
    let default = if plan.state_only { "%.18i %.2t" } else { default };
    let layout = layout(call, given, FIELDS, default)?;
    if plan.state_only && layout.fields().any(|field| !OF_STATE.contains(&field.letter)) {
        let known: Vec<&str> = FIELDS.iter().filter(|f| OF_STATE.contains(&f.letter)).map(|f| f.names[0]).collect();
        return call.fail(&format!("--only-job-state: only these fields can be shown: {}", known.join(",")));
    }
    let order = given.last("sort").map(str::to_owned).or_else(|| call.variable("SQUEUE_SORT"));
    let order = order.unwrap_or_else(|| if plan.start { "S".to_owned() } else { "P,t,-p".to_owned() });
    let (keys, bad) = sort::keys(&order);
    // Expected starts are asked for only if a column shows them.
    let shown = layout.fields().map(|field| field.letter).chain(keys.iter().map(|key| key.1));
    if !plan.start && shown.into_iter().any(|letter| matches!(letter, 'S' | 'Y')) {
        expect(call, &mut rows);
    }
    if let Some(bad) = bad {
        call.complain(&format!("Invalid sort specification: {bad}"));
    }
    // Tasks of an array differ in their numbers alone. If rows are sorted by number, all tasks must exist first;
    // otherwise each is made when it is printed.
    let spread = plan.each_task && sort::by_number(&keys);
    if spread {
        rows = rows.into_iter().flat_map(each_task).collect();
    }
    sort::sort(&mut rows, &keys);
    if plan.each_task && !spread {
        layout.write(plan.header, &[], rows.into_iter().flat_map(each_task), &mut |text| call.print(text));
    } else {
        layout.write(plan.header, &rows, &rows, &mut |text| call.print(text));
    }
    Ok(())
}

fn print_steps(call: &mut Call<'_>, given: &Arguments, plan: &Plan, rows: Vec<JobRow>) -> Result<(), Fail> {
    let layout = layout(call, given, steps::FIELDS, "%.15i %.8j %.9P %.8u %.9M %N")?;
    let mut all = Vec::new();
    for mut row in rows {
        let steps = row.info.run.as_mut().map(|run| std::mem::take(&mut run.steps)).unwrap_or_default();
        let job = Rc::new(row);
        all.extend(
            steps
                .into_iter()
                .filter(|s| s.end.is_none() || plan.ended)
                .filter(|s| plan.targets.iter().all(|t| t.step.is_none_or(|n| n == s.step)))
                .map(|step| StepRow { step, job: job.clone() }),
        );
    }
    let text = layout.lines(plan.header, &all);
    call.print(&text);
    Ok(())
}

/// Returns the format in effect, from the first of these that is given: the command line's, the environment's, the
/// default.
fn layout<R>(
    call: &mut Call<'_>,
    given: &Arguments,
    fields: &'static [Field<R>],
    default: &str,
) -> Result<Layout<R>, Fail> {
    if given.has("format") && given.has("Format") {
        return call.fail("-O (--Format) is incompatible with -o (--format)");
    }
    let chosen = given.options.iter().rev().find(|o| o.name == "format" || o.name == "Format");
    let mut layout = match chosen {
        Some(option) if option.name == "Format" => Layout::long(option.text(), fields),
        Some(option) => Layout::short(option.text(), fields),
        None if given.has("long") || given.has("start") => Layout::short(default, fields),
        None => match (call.variable("SQUEUE_FORMAT"), call.variable("SQUEUE_FORMAT2")) {
            (Some(short), _) => Layout::short(&short, fields),
            (None, Some(long)) => Layout::long(&long, fields),
            (None, None) => Layout::short(default, fields),
        },
    };
    call.unknown_fields("job format", &layout.unknown);
    if layout.fields().next().is_none() && !layout.unknown.is_empty() {
        return Err(Fail(1));
    }
    layout.coloured = call.coloured()?;
    Ok(layout)
}
