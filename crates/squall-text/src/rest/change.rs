//! Bodies that change or cancel jobs, change nodes, and create or change reservations. Every field is taken, named in a
//! warning, or refused.

use serde_json::Value;
use squall_model::event::{NodeAdmin, NodeChange};
use squall_model::job::network;
use squall_model::power::PowerWish;
use squall_model::reservation::Flag;
use squall_model::resource::Memory;
use squall_model::time::Time;
use squall_model::wire::client::{JobRef, JobSelection, JobUpdate};
use squall_model::wire::node::SignalTarget;
use squall_model::wire::reservation::{ListChange, ReservationChange};

use super::body::{self, ENDLESS, Taken, integer, list, text, warn};
use crate::format::words::state_filter;
use crate::options::values::dependency::dependency;
use crate::options::values::number::node_count;
use crate::options::values::signal::signal_number;
use crate::options::values::{jobs, node_state};
use crate::shapes::{Problem, Warning};

/// What a body of `job/{job_id}` changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobOrder {
    /// New values of the job.
    pub update: JobUpdate,
    /// Whether to hold the job (true) or to release it (false). None: neither.
    pub hold: Option<bool>,
}

/// What a body about nodes changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeOrder {
    /// Names of the nodes, as a host list. None: the body names none.
    pub nodes: Option<String>,
    /// New state of the nodes. None: unchanged.
    pub admin: Option<NodeAdmin>,
    /// What their power is to be. None: unchanged.
    pub power: Option<PowerWish>,
    /// The reason for the new state.
    pub reason: Option<String>,
    /// Other changes. None: there are none.
    pub change: Option<Box<NodeChange>>,
}

/// Which jobs a body cancels or signals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KillOrder {
    /// The jobs. Conditions on users are in `users`.
    pub jobs: JobSelection,
    /// Names or ids of users, one of which must own a job. Empty: any.
    pub users: Vec<String>,
    /// Signal and the processes that get it. None: the jobs are ended.
    pub signal: Option<(i32, SignalTarget)>,
}

/// A body while it is read.
struct Reading {
    given: Value,
    warnings: Vec<Warning>,
    /// Names of the fields that were read.
    known: Vec<&'static str>,
}

impl Reading {
    fn new(name: &str, given: &Value) -> Result<Self, Problem> {
        if !given.is_object() {
            return Err(Problem::malformed("", "The body is not an object"));
        }
        let mut warnings = Vec::new();
        let given = body::read(body::shape(name), given, "", &mut warnings)?;
        Ok(Self { given, warnings, known: Vec::new() })
    }

    fn text(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        text(&self.given, name).map(str::to_owned)
    }

    /// Returns the text of a field; `Some(None)`: it is empty, which removes the value.
    #[expect(clippy::option_option, reason = "as in JobUpdate: unchanged, removed, or a value")]
    fn optional(&mut self, name: &'static str) -> Option<Option<String>> {
        self.text(name).map(|text| Some(text).filter(|text| !text.is_empty()))
    }

    fn list(&mut self, name: &'static str) -> Option<Vec<String>> {
        self.known.push(name);
        list(&self.given, name)
    }

    fn truth(&mut self, name: &'static str) -> Option<bool> {
        self.known.push(name);
        self.given.get(name).and_then(Value::as_bool)
    }

    fn integer<T: TryFrom<i64>>(&mut self, name: &'static str) -> Result<Option<T>, Problem> {
        self.known.push(name);
        integer(&self.given, name, "")
    }

    fn time(&mut self, name: &'static str) -> Result<Option<Time>, Problem> {
        self.known.push(name);
        body::time(&self.given, name, "")
    }

    /// Returns a time limit given in minutes, in seconds; `Some(None)`: there is no limit.
    #[expect(clippy::option_option, reason = "as in JobUpdate: unchanged, unlimited, or a limit")]
    fn limit(&mut self, name: &'static str) -> Result<Option<Option<u64>>, Problem> {
        if text(&self.given, name) == Some(ENDLESS) {
            self.known.push(name);
            return Ok(Some(None));
        }
        let minutes: Option<u32> = self.integer(name)?;
        Ok(minutes.map(|minutes| Some(u64::from(minutes) * 60)))
    }

    /// Refuses fields that were not read, with the reason.
    fn rest(mut self, why: &str) -> Result<Vec<Warning>, Problem> {
        let fields = self.given.as_object();
        let mut others = fields.into_iter().flatten().filter(|(name, _)| !self.known.contains(&name.as_str()));
        let says_something = |value: &Value| match value {
            Value::Bool(truth) => *truth,
            Value::Number(number) => number.as_f64() != Some(0.0),
            Value::String(text) => !text.is_empty(),
            Value::Array(list) => !list.is_empty(),
            Value::Object(map) => !map.is_empty(),
            Value::Null => false,
        };
        match others.find(|(_, value)| says_something(value)) {
            Some((name, _)) => Err(Problem::not_done(name.as_str(), why)),
            None => Ok(std::mem::take(&mut self.warnings)),
        }
    }
}

/// Returns the changes of the body of `job/{job_id}`.
pub fn job(given: &Value) -> Result<Taken<JobOrder>, Problem> {
    let mut from = Reading::new("job_desc_msg", given)?;
    let mut update = JobUpdate {
        name: from.text("name"),
        partition: from.text("partition"),
        account: from.text("account"),
        qos: from.text("qos"),
        comment: from.text("comment"),
        wckey: from.text("wckey"),
        mail_user: from.text("mail_user"),
        mail_type: from.list("mail_type").map(|events| super::job::mail_events(&events)),
        stdin: from.text("standard_input"),
        stdout: from.text("standard_output"),
        stderr: from.text("standard_error"),
        work_dir: from.text("current_working_directory"),
        admin_comment: from.optional("admin_comment"),
        extra: from.optional("extra"),
        prefer: from.optional("prefer"),
        constraint: from.optional("constraints"),
        licenses: from.optional("licenses"),
        reservation: from.optional("reservation"),
        gres: from.optional("tres_per_node").map(|all| all.map(|all| super::job::gres(&all))),
        exclude: from.list("excluded_nodes").map(|nodes| Some(nodes.join(",")).filter(|nodes| !nodes.is_empty())),
        nodelist: from.list("required_nodes").map(|nodes| Some(nodes.join(",")).filter(|nodes| !nodes.is_empty())),
        requeue: from.truth("requeue"),
        contiguous: from.truth("contiguous"),
        reboot: from.truth("reboot").filter(|reboot| *reboot),
        delay_boot_s: from.integer("delay_boot")?,
        priority: from.integer("priority")?,
        nice: from.integer("nice")?,
        begin: from.time("begin_time")?,
        deadline: from.time("deadline")?,
        end: from.time("end_time")?,
        time_limit_s: from.limit("time_limit")?,
        time_min_s: from.limit("time_minimum")?.map(|limit| limit.unwrap_or(0)),
        ntasks: from.integer("tasks")?,
        cpus_per_task: from.integer("cpus_per_task")?,
        ntasks_per_node: from.integer("tasks_per_node")?,
        cpus_min: from.integer("minimum_cpus_per_node")?,
        tmp_disk_mb: from.integer("temporary_disk_per_node")?,
        ..JobUpdate::default()
    };
    let of_cpu = from.integer("memory_per_cpu")?.filter(|mb| *mb > 0).map(Memory::PerCpuMb);
    update.memory = from.integer("memory_per_node")?.map(Memory::PerNodeMb).or(of_cpu);
    update.nodes = nodes(&mut from)?;
    update.oversubscribe = oversubscribe(&mut from)?;
    if let Some(terms) = from.text("dependency") {
        let read = dependency(&terms).map_err(|problem| Problem::malformed("dependency", problem))?;
        update.dependency = Some(read);
    }
    update.switches = switches(&mut from)?;
    let hold = from.truth("hold");
    // The path names the job.
    from.known.push("job_id");
    let warnings = from.rest("It changes only by a new submission")?;
    Ok(Taken { value: JobOrder { update, hold }, warnings })
}

fn nodes(from: &mut Reading) -> Result<Option<(u32, Option<u32>)>, Problem> {
    let (least, most) = (from.integer("minimum_nodes")?, from.integer("maximum_nodes")?);
    let positive = |count: &u32| *count > 0;
    match from.text("nodes").filter(|nodes| !nodes.is_empty()) {
        Some(range) => node_count(&range).map(Some).map_err(|problem| Problem::malformed("nodes", problem)),
        None => match (least.filter(positive), most.filter(positive)) {
            (None, None) => Ok(None),
            (least, most) => Ok(Some((least.unwrap_or(1), most))),
        },
    }
}

/// Returns whether the job may share cores, and whether it gets whole nodes.
fn oversubscribe(from: &mut Reading) -> Result<Option<(bool, bool)>, Problem> {
    let flag = from.truth("oversubscribe").map(|yes| (yes, !yes));
    let mut found = flag;
    for name in ["shared", "exclusive"] {
        for word in from.list(name).unwrap_or_default() {
            found = match (name, word.to_ascii_lowercase().as_str()) {
                ("shared", "oversubscribe") => Some((true, false)),
                ("shared", "none") | ("exclusive", "true") => Some((false, true)),
                ("exclusive", "false") => found,
                _ => return Err(Problem::not_done(name, "It changes only by a new submission")),
            };
        }
    }
    Ok(found)
}

type Switches = Option<Option<squall_model::job::options::AsGiven<network::Switches>>>;

fn switches(from: &mut Reading) -> Result<Switches, Problem> {
    let wait: Option<u32> = from.integer("wait_for_switch")?;
    let count: Option<u32> = from.integer("required_switches")?;
    let wait = wait.filter(|seconds| *seconds > 0).map(|s| format!("@{}:{:02}", s / 60, s % 60)).unwrap_or_default();
    Ok(match count {
        None => None,
        Some(0) => Some(None),
        Some(count) => Some(network::switches(&format!("{count}{wait}"))),
    })
}

/// Returns the changes of the body of `node/{node_name}`, or of `nodes` with the names of nodes.
pub fn node(given: &Value) -> Result<Taken<NodeOrder>, Problem> {
    let mut from = Reading::new("update_node_msg", given)?;
    let nodes = from.list("name").map(|names| names.join(",")).filter(|names| !names.is_empty());
    let (mut admin, mut power) = (None, None);
    for word in from.list("state").unwrap_or_default() {
        if let Some(wish) = node_state::power(&word) {
            power = Some(wish);
            continue;
        }
        admin = match node_state::admin(&word) {
            Some(Some(state)) => Some(state),
            Some(None) => return Err(Problem::not_done("state", format!("{word}: nodes are not given this state"))),
            None => return Err(Problem::malformed("state", format!("{word}: use DRAIN, FAIL, DOWN or RESUME"))),
        };
    }
    let change = NodeChange {
        weight: from.integer("weight")?,
        features: from.list("features"),
        active_features: from.list("features_act"),
        gres: from.text("gres"),
        comment: from.text("comment"),
        extra: from.text("extra"),
        ..NodeChange::default()
    };
    let reason = from.text("reason").filter(|reason| !reason.is_empty());
    // The caller is the one who gives the reason.
    if from.text("reason_uid").is_some_and(|uid| !uid.is_empty()) {
        warn(&mut from.warnings, "reason_uid", "The reason is that of the user of the token");
    }
    let warnings = from.rest("The node's daemon or the configuration decides it")?;
    let change = (change != NodeChange::default()).then(|| Box::new(change));
    if admin.is_none() && power.is_none() && reason.is_none() && change.is_none() {
        return Err(Problem::malformed("", "No changes specified"));
    }
    Ok(Taken { value: NodeOrder { nodes, admin, power, reason, change }, warnings })
}

/// Returns the values in the body of `reservation`.
pub fn reservation(given: &Value) -> Result<Taken<ReservationChange>, Problem> {
    let mut from = Reading::new("reservation_desc_msg", given)?;
    let set = |entries: Vec<String>| Some(entries).filter(|entries| !entries.is_empty()).map(ListChange::Set);
    let change = ReservationChange {
        name: from.text("name").filter(|name| !name.is_empty()),
        start: from.time("start_time")?,
        end: from.time("end_time")?,
        duration_s: from.limit("duration")?.map(|limit| limit.unwrap_or(YEAR_S)),
        nodes: from.list("node_list").map(|nodes| nodes.join(",")).filter(|nodes| !nodes.is_empty()),
        node_count: from.integer("node_count")?.filter(|count| *count > 0),
        partition: from.text("partition").filter(|name| !name.is_empty()),
        features: from.text("features").filter(|features| !features.is_empty()),
        users: from.list("users").and_then(set),
        accounts: from.list("accounts").and_then(set),
        flags: flags(&from.list("flags").unwrap_or_default())?,
    };
    let warnings = from.rest("Reservations have nodes, times, users, accounts and flags only")?;
    Ok(Taken { value: change, warnings })
}

/// Length of a reservation without end, in seconds, as in Slurm.
const YEAR_S: u64 = 365 * 86_400;

/// Returns the change of a reservation's flags: names are added, names with `NO_` are removed.
fn flags(given: &[String]) -> Result<Option<ListChange>, Problem> {
    let (mut more, mut less) = (Vec::new(), Vec::new());
    for word in given {
        let unset = word.strip_prefix("NO_").and_then(Flag::parse);
        match (Flag::parse(word), unset) {
            (Some(flag), _) => more.push(flag.name().to_owned()),
            (None, Some(flag)) => less.push(flag.name().to_owned()),
            (None, None) => {
                let known = Flag::NAMES.map(|(name, _)| name).join(", ");
                return Err(Problem::not_done("flags", format!("{word} is not known here; these are: {known}")));
            }
        }
    }
    match (more.is_empty(), less.is_empty()) {
        (true, true) => Ok(None),
        (false, true) => Ok(Some(ListChange::Add(more))),
        (true, false) => Ok(Some(ListChange::Remove(less))),
        (false, false) => Err(Problem::not_done("flags", "Set flags in one request and unset others in another")),
    }
}

/// Returns the jobs of the body of `DELETE jobs`.
pub fn kill(given: &Value) -> Result<Taken<KillOrder>, Problem> {
    let mut from = Reading::new("kill_jobs_msg", given)?;
    let one = |text: Option<String>| text.filter(|text| !text.is_empty()).into_iter().collect::<Vec<_>>();
    let mut selection = JobSelection {
        partitions: one(from.text("partition")),
        names: one(from.text("job_name")),
        accounts: one(from.text("account")),
        qos: one(from.text("qos")),
        nodes: from.list("nodes").map(|nodes| nodes.join(",")).filter(|nodes| !nodes.is_empty()),
        ..JobSelection::default()
    };
    for name in from.list("jobs").unwrap_or_default() {
        selection.ids.push(job_id(&name)?);
    }
    for word in from.list("job_state").unwrap_or_default() {
        let unknown = || Problem::malformed("job_state", format!("{word}: there is no such state"));
        selection.states.push(state_filter(&word).ok_or_else(unknown)?);
    }
    let users: Vec<String> = one(from.text("user_name")).into_iter().chain(one(from.text("user_id"))).collect();
    let flags = from.list("flags").unwrap_or_default();
    let signal = from.text("signal").map(|name| signal(&name, &flags)).transpose()?.flatten();
    let order = KillOrder { jobs: selection, users, signal };
    if order == (KillOrder { signal: order.signal, ..KillOrder::default() }) {
        return Err(Problem::malformed("jobs", "No condition on jobs is given: all jobs would end"));
    }
    let warnings = from.rest("Jobs are not selected by it")?;
    Ok(Taken { value: order, warnings })
}

/// Returns the job of the path `job/{job_id}`: `123`, `123_4` or `123+1`.
pub fn job_id(text: &str) -> Result<JobRef, Problem> {
    let unknown = || Problem { number: 2017, ..Problem::malformed("job_id", format!("{text} is no job id")) };
    jobs::job_ref(text).ok_or_else(unknown)
}

/// Returns the signal of `DELETE job/{job_id}` and the processes that get it. None: KILL and no flags about processes,
/// which end the job.
pub fn signal(name: &str, flags: &[String]) -> Result<Option<(i32, SignalTarget)>, Problem> {
    if name.is_empty() {
        return Ok(None);
    }
    let Some(number) = signal_number(name) else {
        return Err(Problem::malformed("signal", format!("{name}: there is no such signal")));
    };
    let has = |flag: &str| flags.iter().any(|given| given == flag);
    let target = match (has("FULL_JOB"), has("BATCH_JOB")) {
        (true, _) => SignalTarget::Full,
        (false, true) => SignalTarget::Batch,
        (false, false) if number == KILL => return Ok(None),
        (false, false) => SignalTarget::Steps,
    };
    Ok(Some((number, target)))
}

/// Number of the signal KILL, which by itself ends a job.
const KILL: i32 = 9;

#[cfg(test)]
mod tests {
    use serde_json::json;
    use squall_model::event::NodeAdmin;
    use squall_model::id::JobId;
    use squall_model::power::PowerWish;
    use squall_model::resource::Memory;
    use squall_model::time::Time;
    use squall_model::wire::client::{JobRef, StateFilter};
    use squall_model::wire::node::SignalTarget;
    use squall_model::wire::reservation::ListChange;

    use super::{job, kill, node, reservation, signal};

    #[test]
    fn jobs_are_changed() {
        let given = json!({
            "time_limit": 90, "priority": {"number": 5, "set": true}, "reservation": "", "nodes": "2-4", "hold": true,
            "memory_per_cpu": 512, "shared": ["oversubscribe"], "dependency": "", "job_id": 7, "reboot": false,
        });
        let order = job(&given).unwrap().value;
        let update = order.update;
        assert_eq!((update.time_limit_s, update.priority, order.hold), (Some(Some(5400)), Some(5), Some(true)));
        assert_eq!((update.reservation, update.nodes), (Some(None), Some((2, Some(4)))));
        assert_eq!((update.memory, update.oversubscribe), (Some(Memory::PerCpuMb(512)), Some((true, false))));
        assert_eq!(update.dependency, Some(None));
        assert_eq!(job(&json!({"time_limit": "UNLIMITED"})).unwrap().value.update.time_limit_s, Some(None));
        let refused = job(&json!({"array": "1-3"})).unwrap_err();
        assert_eq!((refused.source.as_str(), refused.status), ("array", 501));
        assert_eq!(job(&json!({"nosuch": 1})).unwrap().warnings.len(), 1);
    }

    #[test]
    fn nodes_are_changed() {
        let order =
            node(&json!({"state": ["DRAIN"], "reason": "fan", "weight": "3", "features": "a,b"})).unwrap().value;
        assert_eq!((order.admin, order.reason.as_deref()), (Some(NodeAdmin::Drain), Some("fan")));
        let change = order.change.unwrap();
        assert_eq!((change.weight, change.features), (Some(3), Some(vec!["a".to_owned(), "b".to_owned()])));
        let order = node(&json!({"state": ["POWER_DOWN_ASAP"]})).unwrap().value;
        assert_eq!((order.power, order.admin), (Some(PowerWish::DownAsap), None));
        assert_eq!(node(&json!({"state": "FUTURE"})).unwrap_err().status, 501);
        assert_eq!(node(&json!({"state": "NOSUCH"})).unwrap_err().status, 400);
        assert_eq!(node(&json!({"cpu_bind": 3, "comment": "x"})).unwrap_err().source, "cpu_bind");
        assert_eq!(node(&json!({})).unwrap_err().description, "No changes specified");
    }

    #[test]
    fn reservations_are_read() {
        let given = json!({
            "name": "r", "start_time": 1_800_000_000, "duration": 60, "node_list": ["n1", "n2"], "users": ["ann"],
            "flags": ["MAINT"],
        });
        let change = reservation(&given).unwrap().value;
        assert_eq!((change.start, change.duration_s), (Some(Time::from_secs(1_800_000_000)), Some(3600)));
        assert_eq!(
            (change.nodes.as_deref(), change.flags),
            (Some("n1,n2"), Some(ListChange::Add(vec!["MAINT".into()])))
        );
        let removed = reservation(&json!({"name": "r", "flags": "NO_MAINT"})).unwrap().value.flags;
        assert_eq!(removed, Some(ListChange::Remove(vec!["MAINT".into()])));
        assert_eq!(reservation(&json!({"name": "r", "licenses": ["a"]})).unwrap_err().source, "licenses");
    }

    #[test]
    fn jobs_are_chosen_to_be_ended() {
        let order = kill(&json!({"jobs": ["7", "8_1"], "signal": "USR1", "flags": ["BATCH_JOB"]})).unwrap().value;
        assert_eq!(order.jobs.ids[0], JobRef::Job(JobId(7)));
        assert_eq!((order.jobs.ids.len(), order.signal), (2, Some((10, SignalTarget::Batch))));
        let pending = kill(&json!({"user_name": "ann", "job_state": ["PENDING"]})).unwrap().value;
        assert_eq!((pending.users, pending.jobs.states), (vec!["ann".to_owned()], vec![StateFilter::Pending]));
        assert_eq!(kill(&json!({"signal": "KILL"})).unwrap_err().source, "jobs");
        assert_eq!(kill(&json!({"jobs": ["x"]})).unwrap_err().number, 2017);
        assert_eq!(signal("KILL", &[]), Ok(None));
        assert_eq!(signal("9", &["FULL_JOB".to_owned()]), Ok(Some((9, SignalTarget::Full))));
    }
}
