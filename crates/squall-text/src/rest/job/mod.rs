//! Bodies of `job/submit` and `job/allocate`: fields of Slurm's job description become options of sbatch, which check and
//! store them. Every field is taken, named in a warning, or refused.

#[cfg(test)]
mod tests;

use serde_json::Value;
use squall_model::job::JobSpec;
use squall_model::limits::STRING_BYTES_MAX;
use squall_model::time::Time;
use squall_model::wire::client::Refusal;

use crate::options::submit::SubmitOptions;
use crate::options::{Effect, Source, Stop, Tool, collect, counts, table};
use crate::rest::body::{self, ENDLESS, Parsed, integer, list, text, warn};
use crate::shapes::problem::path;
use crate::shapes::{Problem, Warning};

/// What a server knows of the user who submits a job.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// Login name.
    pub user: &'a str,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Home directory, in which jobs run that name no directory.
    pub home: &'a str,
    /// Name of the cluster.
    pub cluster: &'a str,
    /// Address of the client.
    pub host: &'a str,
}

/// A job as a body describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Specification of each component; a job that is not heterogeneous has one.
    pub specs: Vec<JobSpec>,
    /// Content of the batch script; empty for an allocation.
    pub script: Vec<u8>,
    /// The job's environment: entries `NAME=VALUE`, each ended by NUL.
    pub env: Vec<u8>,
}

/// Returns the batch job of the body of `job/submit`.
pub fn submit(given: &Value, caller: &Caller<'_>) -> Result<Parsed<Submission>, Problem> {
    let (mut taken, scripts) = described(given, caller, Tool::Sbatch)?;
    let inner = scripts.into_iter().next().flatten();
    let script = match (given.get("script").filter(|script| !script.is_null()), inner) {
        (Some(Value::String(script)), None) => script.clone(),
        (None, Some(script)) => script,
        (Some(Value::String(outer)), Some(inner)) if *outer == inner => inner,
        (Some(_), Some(_)) => return Err(Problem::malformed("script", "It is given twice: outside and inside of job")),
        (Some(_), None) => return Err(Problem::malformed("script", "It is not a text")),
        (None, None) => return Err(missing("script", 2009, "Job script not specified")),
    };
    if !script.starts_with("#!") {
        return Err(Problem::malformed("script", "It has to begin with #! and an interpreter, such as #!/bin/sh"));
    }
    if script.lines().any(|line| line.starts_with("#SBATCH")) {
        warn(&mut taken.warnings, "script", "#SBATCH lines have no effect over HTTP: put them into the fields of job");
    }
    taken.value.script = script.into_bytes();
    Ok(taken)
}

/// Returns the allocation of the body of `job/allocate`. It lasts until its time limit, or until it is cancelled.
pub fn allocate(given: &Value, caller: &Caller<'_>) -> Result<Parsed<Submission>, Problem> {
    let (mut taken, scripts) = described(given, caller, Tool::Salloc)?;
    if scripts.iter().flatten().next().is_some() {
        return Err(Problem::malformed("script", "An allocation has no script: use job/submit"));
    }
    for spec in &mut taken.value.specs {
        spec.options.no_shell = true;
    }
    Ok(taken)
}

fn missing(source: &str, number: u32, error: &str) -> Problem {
    Problem { number, error: error.to_owned(), ..Problem::malformed(source, error) }
}

type Described = (Parsed<Submission>, Vec<Option<String>>);

/// Reads the descriptions of a job's components: those of the list `jobs`, which Slurm's allocations call `hetjob`, or
/// the only one, `job`. Returns their scripts, too.
fn described(given: &Value, caller: &Caller<'_>, tool: Tool) -> Result<Described, Problem> {
    let Some(fields) = given.as_object() else { return Err(Problem::malformed("", "The body is not an object")) };
    let mut warnings = Vec::new();
    for name in fields.keys().filter(|name| !["script", "job", "jobs", "hetjob"].contains(&name.as_str())) {
        warn(&mut warnings, name, "Unknown field: it has no effect");
    }
    let of = |name: &str| fields.get(name).filter(|value| !is_empty(value));
    let descriptions: Vec<(String, &Value)> = match (of("job"), of("jobs").or(of("hetjob"))) {
        (Some(job), None) => vec![("job".into(), job)],
        (None, Some(Value::Array(all))) if !all.is_empty() => {
            all.iter().enumerate().map(|(at, job)| (format!("jobs[{at}]"), job)).collect()
        }
        (Some(_), Some(_)) => return Err(Problem::malformed("jobs", "Give either job or jobs")),
        _ => return Err(missing("job", 9002, "Jobs description entry not found, empty or not dictionary or list")),
    };
    if descriptions.len() > COMPONENTS_MAX {
        return Err(Problem::malformed("jobs", format!("At most {COMPONENTS_MAX} components are allowed")));
    }
    let (mut specs, mut scripts, mut env) = (Vec::new(), Vec::new(), None);
    for (place, given) in &descriptions {
        let mut order = Order::new(tool, caller, place);
        order.take(given)?;
        env = env.or(order.env.take());
        scripts.push(order.script.take());
        let spec = order.complete()?;
        warnings.append(&mut order.warnings);
        specs.push(spec);
    }
    if env.is_none() {
        specs[0].get_user_env = true;
        let place = path(&descriptions[0].0, "environment");
        warn(&mut warnings, &place, "None is given: the job gets the environment of the user's login shell");
    }
    let value = Submission { specs, script: Vec::new(), env: env.unwrap_or_default() };
    Ok((Parsed { value, warnings }, scripts))
}

/// Most components of a heterogeneous job over HTTP.
const COMPONENTS_MAX: usize = 128;

/// What becomes of a field of the job description.
enum Take {
    /// Its text is the value of this option.
    Option(&'static str),
    /// If it is true, this option is given without a value.
    Flag(&'static str),
    /// This function reads it.
    Own(fn(&mut Order<'_>, &Field<'_>) -> Result<(), Problem>),
    /// It is read together with another field, and has no effect without that.
    With(&'static str),
    /// It has no effect, for this reason.
    Without(&'static str),
    /// It would change the result, and is refused for this reason.
    Refused(&'static str),
}

use Take::{Flag, Own, Refused, With, Without};

const BINDING: &str = "It is for steps: use srun with the option in the script";
const CONTROLLER: &str = "The controller decides it, not a request";

/// Fields of Slurm's job description and what becomes of them.
const FIELDS: &[(&str, Take)] = &[
    ("account", Take::Option("account")),
    ("account_gather_frequency", Take::Option("acctg-freq")),
    ("admin_comment", Refused("It is set by operators, after the submission: POST it to job/{job_id}")),
    ("allocation_node_list", Without(CONTROLLER)),
    ("allocation_node_port", Without("Programs learn of the start by asking for the job, or by its events")),
    (
        "argv",
        Own(|order, field| {
            // Slurm puts the path of the script in place of the first one.
            order.asked.spec.args = field.texts().into_iter().skip(1).collect();
            Ok(())
        }),
    ),
    ("array", Take::Option("array")),
    ("batch_features", Take::Option("batch")),
    (
        "begin_time",
        Own(|order, field| {
            order.asked.spec.begin = order.time(field)?;
            Ok(())
        }),
    ),
    ("burst_buffer", Take::Option("bb")),
    ("cluster_constraint", Take::Option("cluster-constraint")),
    ("clusters", Own(clusters)),
    ("comment", Take::Option("comment")),
    ("constraints", Take::Option("constraint")),
    ("container", Take::Option("container")),
    ("container_id", Take::Option("container-id")),
    ("container_type", Refused("There is one runtime for containers: leave it out")),
    ("contiguous", Flag("contiguous")),
    ("core_specification", Own(positive)),
    ("cores_per_socket", Own(positive)),
    ("cpu_binding", Without(BINDING)),
    ("cpu_binding_flags", Without(BINDING)),
    ("cpu_frequency", Take::Option("cpu-freq")),
    ("cpus_per_task", Own(positive)),
    ("cpus_per_tres", Own(of_gpus)),
    ("crontab", Refused("There is no scrontab: use cron, or a job that submits its successor with begin_time")),
    ("current_working_directory", Own(work_dir)),
    (
        "deadline",
        Own(|order, field| {
            order.asked.spec.deadline = order.time(field)?;
            Ok(())
        }),
    ),
    (
        "delay_boot",
        Own(|order, field| {
            order.asked.spec.options.delay_boot_s = field.value.as_u64().filter(|seconds| *seconds > 0);
            Ok(())
        }),
    ),
    ("dependency", Take::Option("dependency")),
    ("distribution", Own(distribution)),
    ("distribution_plane_size", With("distribution")),
    ("end_time", Refused("Use time_limit or deadline")),
    ("environment", Own(environment)),
    (
        "excluded_nodes",
        Own(|order, field| {
            order.asked.spec.need.exclude = order.hosts(field)?;
            Ok(())
        }),
    ),
    ("exclusive", Own(shared)),
    ("extra", Take::Option("extra")),
    ("flags", Own(flags)),
    ("group_id", Own(own_id)),
    ("hetjob_group", Without("The order in the list jobs decides it")),
    ("hold", Flag("hold")),
    ("immediate", Refused("A job over HTTP waits in the queue: leave it out, and ask for the job's state")),
    ("job_id", Refused("The controller chooses the ids of jobs")),
    (
        "kill_on_node_fail",
        Own(|order, field| {
            order.asked.spec.no_kill = *field.value == Value::Bool(false);
            Ok(())
        }),
    ),
    ("kill_warning_delay", With("kill_warning_signal")),
    ("kill_warning_flags", With("kill_warning_signal")),
    ("kill_warning_signal", Own(signal)),
    ("licenses", Take::Option("licenses")),
    ("mail_type", Own(mail)),
    ("mail_user", Take::Option("mail-user")),
    ("maximum_cpus", Refused("A job gets the CPUs of its tasks: use tasks and cpus_per_task")),
    ("maximum_nodes", Own(nodes)),
    ("mcs_label", Take::Option("mcs-label")),
    ("memory_binding", Without(BINDING)),
    ("memory_binding_type", Without(BINDING)),
    ("memory_per_cpu", Own(positive)),
    ("memory_per_node", Take::Option("mem")),
    ("memory_per_tres", Own(of_gpus)),
    ("memory_update_delay", With("memory_update_margin")),
    ("memory_update_margin", Refused("A job keeps the memory that it asked for: leave it out")),
    ("minimum_boards_per_node", Own(at_most_one)),
    ("minimum_cpus", Own(cpus)),
    ("minimum_cpus_per_node", Own(positive)),
    ("minimum_nodes", Own(nodes)),
    ("minimum_sockets_per_board", Own(at_most_one)),
    ("name", Take::Option("job-name")),
    ("network", Take::Option("network")),
    ("nice", Take::Option("nice")),
    ("nodes", Take::Option("nodes")),
    ("ntasks_per_tres", Own(positive)),
    ("oom_kill_step", Take::Option("oom-kill-step")),
    ("open_mode", Take::Option("open-mode")),
    ("overcommit", Flag("overcommit")),
    ("oversubscribe", Flag("oversubscribe")),
    ("partition", Take::Option("partition")),
    ("power_flags", Take::Option("power")),
    ("prefer", Take::Option("prefer")),
    ("priority", Take::Option("priority")),
    ("profile", Own(profile)),
    ("qos", Take::Option("qos")),
    ("reboot", Flag("reboot")),
    (
        "requeue",
        Own(|order, field| {
            order.asked.spec.requeue = field.value.as_bool();
            Ok(())
        }),
    ),
    (
        "required_nodes",
        Own(|order, field| {
            order.asked.spec.need.nodelist = order.hosts(field)?;
            Ok(())
        }),
    ),
    ("required_switches", Own(switches)),
    ("reservation", Take::Option("reservation")),
    ("reserve_ports", Refused("No ports are reserved: MPI programs are served by PMIx and need none")),
    ("resv_mpi_ports", Refused("No ports are reserved: MPI programs are served by PMIx and need none")),
    ("rlimits", Own(rlimits)),
    (
        "script",
        Own(|order, field| {
            order.script = field.value.as_str().map(str::to_owned);
            Ok(())
        }),
    ),
    ("segment_size", Own(positive)),
    ("selinux_context", Take::Option("context")),
    ("shared", Own(shared)),
    ("site_factor", Refused("There is no site factor: use nice or priority")),
    ("sockets_per_node", Own(positive)),
    ("spank_environment", Own(plugin_environment)),
    ("standard_error", Take::Option("error")),
    ("standard_input", Take::Option("input")),
    ("standard_output", Take::Option("output")),
    ("step_id", Own(step_id)),
    ("tasks", Own(positive)),
    ("tasks_per_board", Refused("Tasks are not counted by boards: use tasks_per_node or tasks_per_socket")),
    ("tasks_per_core", Own(positive)),
    ("tasks_per_node", Own(positive)),
    ("tasks_per_socket", Own(positive)),
    ("temporary_disk_per_node", Take::Option("tmp")),
    ("thread_specification", Own(positive)),
    ("threads_per_core", Own(positive)),
    ("time_limit", Take::Option("time")),
    ("time_minimum", Take::Option("time-min")),
    ("tres_bind", Take::Option("tres-bind")),
    (
        "tres_freq",
        Own(|order, field| {
            let how = field.value.as_str().unwrap_or_default();
            let how = how.trim_start_matches("gres/").trim_start_matches("gpu:");
            order.option(field, "gpu-freq", Some(how))
        }),
    ),
    ("tres_per_job", Own(of_gpus)),
    (
        "tres_per_node",
        Own(|order, field| {
            let all = gres(field.value.as_str().unwrap_or_default());
            order.option(field, "gres", Some(&all))
        }),
    ),
    ("tres_per_socket", Own(of_gpus)),
    (
        "tres_per_task",
        Own(|order, field| {
            let all = field.value.as_str().unwrap_or_default().replace("gres:", "gres/");
            order.option(field, "tres-per-task", Some(&all))
        }),
    ),
    ("user_id", Own(own_id)),
    ("wait_all_nodes", Without("A job starts when all of its nodes are ready")),
    ("wait_for_switch", With("required_switches")),
    ("wckey", Take::Option("wckey")),
    ("x11", Refused("X11 is not forwarded: use ssh -X to the node of the job")),
    ("x11_magic_cookie", With("x11")),
    ("x11_target_host", With("x11")),
    ("x11_target_port", With("x11")),
];

/// Refuses the id of a step or job. Clients send one without values, too.
fn step_id(order: &mut Order<'_>, field: &Field<'_>) -> Result<(), Problem> {
    let parts = field.value.as_object();
    let is_named = |part: &Value| part.as_str().is_some_and(|text| !text.is_empty()) || part.as_u64() > Some(0);
    if parts.is_some_and(|parts| parts.values().any(is_named)) {
        return Err(Problem::not_done(order.at(field), "The controller chooses the ids of jobs"));
    }
    Ok(())
}

/// Options of fields that contain a count, of which 0 and Slurm's number of 16 bits for nothing mean: not given.
const COUNTS: &[(&str, &str)] = &[
    ("core_specification", "core-spec"),
    ("cores_per_socket", "cores-per-socket"),
    ("cpus_per_task", "cpus-per-task"),
    ("memory_per_cpu", "mem-per-cpu"),
    ("minimum_cpus_per_node", "mincpus"),
    ("ntasks_per_tres", "ntasks-per-gpu"),
    ("segment_size", "segment"),
    ("sockets_per_node", "sockets-per-node"),
    ("tasks", "ntasks"),
    ("tasks_per_core", "ntasks-per-core"),
    ("tasks_per_node", "ntasks-per-node"),
    ("tasks_per_socket", "ntasks-per-socket"),
    ("thread_specification", "thread-spec"),
    ("threads_per_core", "threads-per-core"),
];

/// Options of fields about GPUs, such as `gres/gpu:2`.
const OF_GPUS: &[(&str, &str)] = &[
    ("cpus_per_tres", "cpus-per-gpu"),
    ("memory_per_tres", "mem-per-gpu"),
    ("tres_per_job", "gpus"),
    ("tres_per_socket", "gpus-per-socket"),
];

/// A field of a job description.
struct Field<'a> {
    name: &'a str,
    /// Its value, which is not empty.
    value: &'a Value,
    /// The whole description.
    all: &'a Value,
}

impl Field<'_> {
    fn texts(&self) -> Vec<String> {
        list(self.all, self.name).unwrap_or_default()
    }
    /// Returns the value as the text of an option.
    fn word(&self) -> String {
        match self.value {
            Value::String(text) if text == ENDLESS => "UNLIMITED".to_owned(),
            Value::String(text) => text.clone(),
            Value::Array(_) => self.texts().join(","),
            Value::Bool(truth) => u8::from(*truth).to_string(),
            other => other.to_string(),
        }
    }
    /// Returns whether the value says: nothing of it.
    fn is_none(&self) -> bool {
        *self.value == Value::Bool(false) || self.value.as_f64() == Some(0.0) || self.value.as_u64() == Some(UNSET_16)
    }
}

/// Slurm's number of 16 bits for a value that is not set.
const UNSET_16: u64 = u16::MAX as u64 - 1;

/// A job description while it is read.
struct Order<'a> {
    asked: SubmitOptions,
    tool: Tool,
    caller: &'a Caller<'a>,
    /// Path of the description in the body.
    place: &'a str,
    script: Option<String>,
    env: Option<Vec<u8>>,
    warnings: Vec<Warning>,
}

impl<'a> Order<'a> {
    fn new(tool: Tool, caller: &'a Caller<'a>, place: &'a str) -> Self {
        Self { asked: SubmitOptions::new(tool), tool, caller, place, script: None, env: None, warnings: Vec::new() }
    }

    fn at(&self, field: &Field<'_>) -> String {
        path(self.place, field.name)
    }

    fn take(&mut self, given: &Value) -> Result<(), Problem> {
        let all = body::read(body::shape("job_desc_msg"), given, self.place, &mut self.warnings)?;
        let of = |name: &str| all.get(name).filter(|value| !is_empty(value));
        for (name, take) in FIELDS {
            let Some(value) = of(name) else { continue };
            let field = Field { name, value, all: &all };
            match take {
                Take::Option(long) => self.option(&field, long, Some(&field.word()))?,
                Flag(long) if *value == Value::Bool(true) => self.option(&field, long, None)?,
                Own(read) => read(self, &field)?,
                With(other) if of(other).is_none() => {
                    warn(&mut self.warnings, &path(self.place, name), format!("It has no effect without {other}"));
                }
                Flag(_) | With(_) => {}
                Without(why) => warn(&mut self.warnings, &path(self.place, name), *why),
                Refused(_) if field.is_none() => {}
                Refused(why) => return Err(Problem::not_done(path(self.place, name), *why)),
            }
        }
        Ok(())
    }

    /// Gives an option to the job, as if it stood on the command line of sbatch or salloc.
    fn option(&mut self, field: &Field<'_>, long: &str, value: Option<&str>) -> Result<(), Problem> {
        let source = self.at(field);
        let Some(option) = table::options_of(self.tool).find(|option| option.long == long) else {
            warn(&mut self.warnings, &source, "It has no effect on an allocation");
            return Ok(());
        };
        let found = (option, value.map(str::to_owned));
        if let Err(stop) = collect::apply_option(&mut self.asked, self.tool, &found, &Source::Line) {
            if let Effect::Refused(why) = option.effect {
                return Err(Problem::not_done(source, why));
            }
            let (option, value) = (long.to_owned(), value.unwrap_or_default().to_owned());
            let refusal = Refusal::InvalidValue { option, value, problem: String::new() };
            return Err(Problem { description: words(stop), ..Problem::of(&refusal, &source) });
        }
        if let Effect::Hint(why) = option.effect {
            warn(&mut self.warnings, &source, why);
        }
        Ok(())
    }

    fn time(&self, field: &Field<'_>) -> Result<Option<Time>, Problem> {
        body::time(field.all, field.name, self.place)
    }

    /// Returns a host list. It is never the name of a file, as it may be on a command line.
    fn hosts(&self, field: &Field<'_>) -> Result<Option<String>, Problem> {
        let hosts = field.texts().join(",");
        if hosts.len() > STRING_BYTES_MAX {
            return Err(Problem::malformed(self.at(field), format!("At most {STRING_BYTES_MAX} bytes are allowed")));
        }
        Ok(Some(hosts))
    }

    /// Returns the specification of the job, with what its fields leave open.
    fn complete(&mut self) -> Result<JobSpec, Problem> {
        let mut asked = std::mem::take(&mut self.asked);
        collect::settle_hint(&mut asked);
        let settled = collect::verify(&asked).and_then(|()| counts::complete(&mut asked));
        settled.map_err(|stop| Problem::malformed(self.place, words(stop)))?;
        for line in &asked.warnings {
            warn(&mut self.warnings, self.place, line.clone());
        }
        let mut spec = asked.spec;
        if spec.name.is_empty() {
            let nameless = if self.tool == Tool::Sbatch { "sbatch" } else { "interactive" };
            nameless.clone_into(&mut spec.name);
        }
        if spec.work_dir.is_empty() {
            self.caller.home.clone_into(&mut spec.work_dir);
        }
        spec.umask = UMASK;
        self.caller.host.clone_into(&mut spec.submit_host);
        Ok(spec)
    }
}

/// File mode creation mask of jobs over HTTP, for which no shell sets one.
const UMASK: u32 = 0o022;

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// Returns the text of why an option is refused, on one line.
fn words(stop: Stop) -> String {
    match stop {
        Stop::Bad { lines, .. } => lines.join("; "),
        Stop::Usage(text) | Stop::Show(text) => text,
        Stop::Help | Stop::Brief | Stop::Silent(_) => String::new(),
    }
}

fn listed<'a>(all: &[(&str, &'a str)], field: &Field<'_>) -> &'a str {
    all.iter().find(|(name, _)| *name == field.name).map_or("", |(_, long)| long)
}

fn positive(order: &mut Order<'_>, field: &Field<'_>) -> Result<(), Problem> {
    if field.is_none() || field.word().ends_with(":0") {
        return Ok(());
    }
    order.option(field, listed(COUNTS, field), Some(&field.word()))
}

/// Reads an amount for GPUs: `gres/gpu:2`, `gres:gpu:a100:2` or `gres/gpu=2`.
fn of_gpus(order: &mut Order<'_>, field: &Field<'_>) -> Result<(), Problem> {
    let text = field.word().replace("gres:", "gres/").replace('=', ":");
    let Some(amount) = text.strip_prefix("gres/gpu:") else {
        return Err(Problem::not_done(order.at(field), format!("{text}: it is for GPUs only, such as gres/gpu:2")));
    };
    order.option(field, listed(OF_GPUS, field), Some(amount))
}

fn at_most_one(order: &mut Order<'_>, field: &Field<'_>) -> Result<(), Problem> {
    if field.is_none() || field.value.as_u64() == Some(1) {
        return Ok(());
    }
    Err(Problem::not_done(order.at(field), "Nodes are taken to have one board: use sockets_per_node"))
}

/// Reads the number of CPUs of the whole job. Without tasks, each CPU is a task.
fn cpus(order: &mut Order<'_>, field: &Field<'_>) -> Result<(), Problem> {
    let of = |name: &str| integer::<u32>(field.all, name, order.place).map(|count| count.filter(|count| *count > 0));
    let (Some(cpus), tasks, each) = (of(field.name)?, of("tasks")?, of("cpus_per_task")?) else { return Ok(()) };
    match (tasks, each) {
        (None, None) if of("tasks_per_node")?.is_none() => order.option(field, "ntasks", Some(&cpus.to_string())),
        (tasks, each) if tasks.unwrap_or(1).saturating_mul(each.unwrap_or(1)) >= cpus => Ok(()),
        _ => Err(Problem::not_done(
            order.at(field),
            "A job gets the CPUs of its tasks: use tasks and cpus_per_task, or minimum_cpus_per_node",
        )),
    }
}

fn nodes(order: &mut Order<'_>, field: &Field<'_>) -> Result<(), Problem> {
    let of = |name: &str| integer::<u32>(field.all, name, order.place).map(|count| count.filter(|count| *count > 0));
    let (least, most) = (of("minimum_nodes")?, of("maximum_nodes")?);
    let range = match (least, most) {
        // The text in `nodes` is more exact.
        _ if text(field.all, "nodes").is_some_and(|nodes| !nodes.is_empty()) => return Ok(()),
        (None, None) => return Ok(()),
        (Some(least), None) => least.to_string(),
        (least, Some(most)) => format!("{}-{most}", least.unwrap_or(1)),
    };
    order.option(field, "nodes", Some(&range))
}

fn clusters(order: &mut Order<'_>, field: &Field<'_>) -> Result<(), Problem> {
    if field.word().split(',').any(|name| name == order.caller.cluster || name == "all") {
        return Ok(());
    }
    Err(Problem::not_done(order.at(field), format!("There is one cluster here: {}", order.caller.cluster)))
}

fn work_dir(order: &mut Order<'_>, field: &Field<'_>) -> Result<(), Problem> {
    let dir = field.word();
    if !dir.starts_with('/') {
        return Err(Problem::malformed(order.at(field), format!("{dir}: an absolute path is needed")));
    }
    order.option(field, "chdir", Some(&dir))
}

/// Reads the user or group of the job, which have to be the caller's own.
fn own_id(order: &mut Order<'_>, field: &Field<'_>) -> Result<(), Problem> {
    let Caller { user, uid, gid, .. } = *order.caller;
    let (id, name) = if field.name == "user_id" { (uid, user) } else { (gid, "") };
    let given = field.word();
    if given == id.to_string() || given == name {
        return Ok(());
    }
    Err(Problem {
        description: format!("{given}: a job runs as the user of the token, {user}"),
        ..Problem::of(&Refusal::AccessDenied, &order.at(field))
    })
}

fn environment(order: &mut Order<'_>, field: &Field<'_>) -> Result<(), Problem> {
    let mut env = Vec::new();
    for entry in field.texts() {
        if entry.contains('\0') || entry.starts_with('=') {
            return Err(Problem::malformed(order.at(field), format!("{entry:?}: entries have the form NAME=VALUE")));
        }
        if !entry.contains('=') {
            // Slurm takes it, and tests of its clients have one.
            let place = order.at(field);
            warn(&mut order.warnings, &place, format!("{entry:?}: it has no effect: entries have the form NAME=VALUE"));
            continue;
        }
        env.extend(entry.as_bytes());
        env.push(0);
    }
    order.env = Some(env);
    Ok(())
}

/// Reads the variables of prologs and epilogs, with or without `SPANK_` before their names.
fn plugin_environment(order: &mut Order<'_>, field: &Field<'_>) -> Result<(), Problem> {
    for entry in field.texts() {
        let split = entry.strip_prefix("SPANK_").unwrap_or(&entry).split_once('=');
        let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let Some((name, value)) = split.filter(|(name, value)| is_name(name) && !value.contains('\0')) else {
            return Err(Problem::malformed(order.at(field), format!("{entry:?}: entries have the form NAME=VALUE")));
        };
        order.asked.spec.options.plugin_env.push((name.to_owned(), value.to_owned()));
    }
    Ok(())
}

/// Reads `shared` and `exclusive`, lists of one word.
fn shared(order: &mut Order<'_>, field: &Field<'_>) -> Result<(), Problem> {
    for word in field.texts() {
        match (field.name, word.to_ascii_lowercase().as_str()) {
            ("exclusive", "false") => {}
            ("exclusive", "true") | ("shared", "none") => order.option(field, "exclusive", None)?,
            ("shared", "oversubscribe") => order.option(field, "oversubscribe", None)?,
            (_, how) => order.option(field, "exclusive", Some(how))?,
        }
    }
    Ok(())
}

fn distribution(order: &mut Order<'_>, field: &Field<'_>) -> Result<(), Problem> {
    let how = field.word().to_ascii_lowercase();
    let size: Option<u32> = integer(field.all, "distribution_plane_size", order.place)?;
    let how = match size.filter(|size| *size > 0 && u64::from(*size) != UNSET_16) {
        Some(size) if how == "plane" => format!("plane={size}"),
        _ => how,
    };
    order.option(field, "distribution", Some(&how))
}

fn flags(order: &mut Order<'_>, field: &Field<'_>) -> Result<(), Problem> {
    for flag in field.texts() {
        match flag.as_str() {
            "KILL_INVALID_DEPENDENCY" => order.option(field, "kill-on-invalid-dep", Some("yes"))?,
            "NO_KILL_INVALID_DEPENDENCY" => order.option(field, "kill-on-invalid-dep", Some("no"))?,
            "SPREAD_JOB" => order.option(field, "spread-job", None)?,
            "PREFER_MINIMUM_NODE_COUNT" => order.option(field, "use-min-nodes", None)?,
            "GRES_BINDING_ENFORCED" => order.option(field, "gres-flags", Some("enforce-binding"))?,
            "GRES_BINDING_DISABLED" => order.option(field, "gres-flags", Some("disable-binding"))?,
            "GRES_ONE_TASK_PER_SHARING" => order.option(field, "gres-flags", Some("one-task-per-sharing"))?,
            "GRES_MULTIPLE_TASKS_PER_SHARING" => {
                order.option(field, "gres-flags", Some("multiple-tasks-per-sharing"))?;
            }
            _ => {
                let source = order.at(field);
                warn(&mut order.warnings, &source, format!("{flag} has no effect: {CONTROLLER}"));
            }
        }
    }
    Ok(())
}

fn signal(order: &mut Order<'_>, field: &Field<'_>) -> Result<(), Problem> {
    let flags = list(field.all, "kill_warning_flags").unwrap_or_default();
    let delay: Option<u16> = integer(field.all, "kill_warning_delay", order.place)?;
    let has = |flag: &str| flags.iter().any(|given| given == flag);
    let whom = match (has("RESERVATION_JOB"), has("BATCH_JOB")) {
        (true, true) => "RB:",
        (true, false) => "R:",
        (false, true) => "B:",
        (false, false) => "",
    };
    let delay = delay.map(|seconds| format!("@{seconds}")).unwrap_or_default();
    order.option(field, "signal", Some(&format!("{whom}{}{delay}", field.word())))
}

fn mail(order: &mut Order<'_>, field: &Field<'_>) -> Result<(), Problem> {
    order.option(field, "mail-type", Some(&mail_events(&field.texts())))
}

/// Returns events such as `TIME=90%` in the words of `--mail-type`.
pub(super) fn mail_events(events: &[String]) -> String {
    let event = |word: &String| match word.split_once("TIME=") {
        Some((_, "100%")) => "TIME_LIMIT".to_owned(),
        Some((_, percent)) => format!("TIME_LIMIT_{}", percent.trim_end_matches('%')),
        None => word.replace("INVALID_DEPENDENCY", "INVALID_DEPEND"),
    };
    events.iter().map(event).collect::<Vec<_>>().join(",")
}

/// Returns generic resources such as `gres/gpu:2` in the form of `--gres`.
pub(super) fn gres(all: &str) -> String {
    all.replace("gres/", "").replace("gres:", "").replace('=', ":")
}

fn profile(order: &mut Order<'_>, field: &Field<'_>) -> Result<(), Problem> {
    let kinds: Vec<String> = field.texts().into_iter().filter(|kind| kind != "NOT_SET").collect();
    if kinds.is_empty() { Ok(()) } else { order.option(field, "profile", Some(&kinds.join(",").to_lowercase())) }
}

fn switches(order: &mut Order<'_>, field: &Field<'_>) -> Result<(), Problem> {
    if field.is_none() {
        return Ok(());
    }
    let wait: Option<u32> = integer(field.all, "wait_for_switch", order.place)?;
    let wait = wait.filter(|seconds| *seconds > 0);
    let wait = wait.map(|seconds| format!("@{}:{:02}", seconds / 60, seconds % 60)).unwrap_or_default();
    order.option(field, "switches", Some(&format!("{}{wait}", field.word())))
}

/// Names of resource limits in Slurm's job description, each at the position of its number in Linux.
const RLIMITS: [&str; 10] = ["cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile", "memlock", "as"];

fn rlimits(order: &mut Order<'_>, field: &Field<'_>) -> Result<(), Problem> {
    for (number, name) in RLIMITS.iter().enumerate() {
        let most = match field.value.get(*name) {
            None => continue,
            Some(Value::String(_)) => u64::MAX,
            Some(number) => {
                let wrong = || Problem::malformed(path(&order.at(field), name), format!("{number} is no limit"));
                number.as_u64().ok_or_else(wrong)?
            }
        };
        order.asked.spec.rlimits.push((number as u32, most));
        order.asked.spec.options.names_limits = Some(true);
    }
    Ok(())
}
