//! Bodies that change, requeue or cancel jobs, create or change nodes, and create or change reservations. Every field is
//! taken, named in a warning, or refused.

use jiff::Zoned;
use serde_json::Value;
use squall_model::config::NodeConfig;
use squall_model::hostlist;
use squall_model::wire::client::{JobRef, JobSelection, JobUpdate, Request, StateFilter};
use squall_model::wire::node::SignalTarget;
use squall_model::wire::reservation::ReservationChange;

use super::body::{self, Parsed, integer, list, text, warn};
use crate::format::words::state_filter;
use crate::options::values::jobs;
use crate::options::values::signal::signal_number;
use crate::shapes::{Problem, Warning};
use crate::verbs;
use crate::verbs::key::{Bad, Key};
use crate::verbs::node::NodeOrder;

/// What a body of `job/{job_id}` changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobOrder {
    /// New values of the job.
    pub update: JobUpdate,
    /// Whether to hold the job (true) or to release it (false). None: neither.
    pub hold: Option<bool>,
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

/// How jobs are requeued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequeueOrder {
    /// Whether they are held after that.
    pub hold: bool,
    /// Whether the held jobs' state is SPECIAL_EXIT.
    pub special: bool,
    /// Whether jobs that have ended stay as they are.
    pub incomplete: bool,
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

    /// Replaces a field by another form of it. None: the field is left out.
    fn replace(&mut self, name: &str, change: impl FnOnce(&Value) -> Option<Value>) {
        if let Some(fields) = self.given.as_object_mut()
            && let Some(changed) = fields.get(name).map(change)
        {
            fields.remove(name);
            fields.extend(changed.map(|value| (name.to_owned(), value)));
        }
    }

    /// Sets the fields of a verb's keys.
    fn enter<U>(&mut self, keys: &[Key<U>], update: &mut U) -> Result<(), Problem> {
        let now = Zoned::now();
        for key in keys.iter().filter(|key| !key.field.is_empty()) {
            self.known.push(key.field);
            let Some(value) = self.given.get(key.field).filter(|value| !value.is_null()) else { continue };
            key.enter(update, value, &now).map_err(|(bad, value)| match bad {
                Bad::NotDone(why) => Problem::not_done(key.field, why),
                bad => Problem::malformed(key.field, bad.text(&value)),
            })?;
        }
        Ok(())
    }

    /// Refuses fields that were not read, with the reason.
    fn rest(mut self, why: &str) -> Result<Vec<Warning>, Problem> {
        let fields = self.given.as_object();
        let mut others = fields.into_iter().flatten().filter(|(name, _)| !self.known.contains(&name.as_str()));
        match others.find(|(_, value)| !is_empty(value)) {
            Some((name, _)) => Err(Problem::not_done(name.as_str(), why)),
            None => Ok(std::mem::take(&mut self.warnings)),
        }
    }
}

/// Returns whether a value says nothing: false, 0, or an empty text, list or object.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Null => true,
    }
}

/// Returns the changes of the body of `job/{job_id}`.
pub fn job(given: &Value) -> Result<Parsed<JobOrder>, Problem> {
    let mut from = Reading::new("job_desc_msg", given)?;
    let events = list(&from.given, "mail_type");
    from.replace("mail_type", |_| events.map(|events| super::job::mail_events(&events).into()));
    from.replace("tres_per_node", |all| all.as_str().map(|all| super::job::gres(all).into()));
    // Clients send these as they were shown: false and 0 ask for nothing.
    from.replace("reboot", |reboot| Some(reboot.clone()).filter(|reboot| *reboot == Value::Bool(true)));
    from.replace("memory_per_cpu", |mb| Some(mb.clone()).filter(|mb| mb.as_f64() != Some(0.0)));
    nodes(&mut from)?;
    oversubscribe(&mut from)?;
    switches(&mut from)?;
    let mut update = JobUpdate::default();
    from.enter(verbs::job::KEYS, &mut update)?;
    let hold = from.truth("hold");
    // The path names the job.
    from.known.extend(["job_id", "step_id"]);
    let warnings = from.rest("It changes only by a new submission")?;
    Ok(Parsed { value: JobOrder { update, hold }, warnings })
}

/// Brings numbers of nodes into the form of `nodes`.
fn nodes(from: &mut Reading) -> Result<(), Problem> {
    let (least, most): (Option<u32>, Option<u32>) = (from.integer("minimum_nodes")?, from.integer("maximum_nodes")?);
    let range = match (least.filter(|count| *count > 0), most.filter(|count| *count > 0)) {
        (None, None) => None,
        (least, None) => least.map(|least| least.to_string()),
        (least, Some(most)) => Some(format!("{}-{most}", least.unwrap_or(1))),
    };
    from.replace("nodes", |nodes| Some(nodes.clone()).filter(|nodes| nodes.as_str() != Some("")));
    if let (Some(range), None) = (range, from.given.get("nodes")) {
        from.given["nodes"] = range.into();
    }
    Ok(())
}

/// Brings the flags about sharing into the form of `oversubscribe`.
fn oversubscribe(from: &mut Reading) -> Result<(), Problem> {
    for name in ["shared", "exclusive"] {
        for word in from.list(name).unwrap_or_default() {
            from.given["oversubscribe"] = match (name, word.to_ascii_lowercase().as_str()) {
                ("shared", "oversubscribe") => true.into(),
                ("shared", "none") | ("exclusive", "true") => false.into(),
                ("exclusive", "false") => continue,
                _ => return Err(Problem::not_done(name, "It changes only by a new submission")),
            };
        }
    }
    Ok(())
}

/// Brings a number of switches, and how long to wait for them, into the form `COUNT@TIME`.
fn switches(from: &mut Reading) -> Result<(), Problem> {
    let wait: Option<u32> = from.integer("wait_for_switch")?;
    let count: Option<u32> = from.integer("required_switches")?;
    let wait = wait.filter(|seconds| *seconds > 0).map(|s| format!("@{}:{:02}", s / 60, s % 60)).unwrap_or_default();
    let text = count.map(|count| if count == 0 { String::new() } else { format!("{count}{wait}") });
    from.replace("required_switches", |_| text.map(Value::from));
    Ok(())
}

/// Returns the changes of the body of `node/{node_name}`, or of `nodes` with the names of nodes.
pub fn node(given: &Value) -> Result<Parsed<NodeOrder>, Problem> {
    let mut from = Reading::new("update_node_msg", given)?;
    from.replace("reason", |reason| Some(reason.clone()).filter(|reason| reason.as_str() != Some("")));
    let mut order = NodeOrder::default();
    from.enter(verbs::node::KEYS, &mut order)?;
    // The caller is the one who gives the reason.
    if from.text("reason_uid").is_some_and(|uid| !uid.is_empty()) {
        warn(&mut from.warnings, "reason_uid", "The reason is that of the user of the token");
    }
    let warnings = from.rest("The node's daemon or the configuration decides it")?;
    if order == (NodeOrder { nodes: order.nodes.clone(), ..NodeOrder::default() }) {
        return Err(Problem::malformed("", "No changes specified"));
    }
    Ok(Parsed { value: order, warnings })
}

/// Returns the values in the body of `reservation`.
pub fn reservation(given: &Value) -> Result<Parsed<ReservationChange>, Problem> {
    let mut from = Reading::new("reservation_desc_msg", given)?;
    for key in verbs::reservation::KEYS {
        // An empty value changes nothing.
        from.replace(key.field, |value| Some(value.clone()).filter(|value| !is_empty(value)));
    }
    from.replace("tres", |all| Some(tres_text(all)));
    let mut change = ReservationChange::default();
    from.enter(verbs::reservation::KEYS, &mut change)?;
    from.known.push("purge_completed");
    let purge_s = from.given.get("purge_completed").and_then(|after| after.get("time")).and_then(Value::as_u64);
    change.purge_s = purge_s.or(change.purge_s);
    for (_, _, field, why) in verbs::reservation::NOT_DONE.iter().filter(|(_, _, field, _)| !field.is_empty()) {
        if from.given.get(field).is_some_and(|value| !is_empty(value)) {
            return Err(Problem::not_done(*field, *why));
        }
    }
    let warnings = from.rest("Reservations don't have this")?;
    Ok(Parsed { value: change, warnings })
}

/// Returns a list of resources as scontrol takes it: `node=2,license/fluent=1`.
fn tres_text(all: &Value) -> Value {
    let one = |one: &Value| {
        let part = |name: &str| text(one, name).filter(|text| !text.is_empty());
        let name = part("name").map_or_else(String::new, |name| format!("/{name}"));
        let count = one.get("count").map_or_else(String::new, Value::to_string);
        format!("{}{name}={count}", part("type").unwrap_or_default())
    };
    match all {
        Value::Array(all) => all.iter().map(one).collect::<Vec<_>>().join(",").into(),
        other => other.clone(),
    }
}

/// Returns the jobs of the body of `DELETE jobs`.
pub fn kill(given: &Value) -> Result<Parsed<KillOrder>, Problem> {
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
    Ok(Parsed { value: order, warnings })
}

/// Returns the jobs of the body of `jobs/requeue`, as it names them, and how to requeue them.
pub fn requeue(given: &Value) -> Result<Parsed<(Vec<String>, RequeueOrder)>, Problem> {
    let mut from = Reading::new("openapi_jobs_requeue_query", given)?;
    let flags = from.list("flags").unwrap_or_default();
    let jobs = from.list("jobs").unwrap_or_default();
    if jobs.is_empty() {
        return Err(Problem { number: 2017, ..Problem::malformed("jobs", "No job is named") });
    }
    if jobs.len() > REQUEUED_MAX {
        return Err(Problem::malformed("jobs", format!("At most {REQUEUED_MAX} jobs are taken at once")));
    }
    let order = RequeueOrder::of(&flags)?;
    let warnings = from.rest("Jobs are named one by one")?;
    Ok(Parsed { value: (jobs, order), warnings })
}

/// Most jobs that one request requeues. An array counts as one.
const REQUEUED_MAX: usize = 1000;

impl RequeueOrder {
    /// Reads Slurm's words.
    pub fn of(flags: &[String]) -> Result<Self, Problem> {
        let mut order = Self::default();
        for flag in flags {
            match flag.to_ascii_lowercase().as_str() {
                "incomplete" => order.incomplete = true,
                "hold" => order.hold = true,
                "specialexit" => order.special = true,
                _ => return Err(Problem::malformed("flags", format!("{flag}: use Incomplete, Hold or SpecialExit"))),
            }
        }
        if order.special && !order.hold {
            return Err(Problem::malformed("flags", "SpecialExit is for held jobs: give Hold, too"));
        }
        Ok(order)
    }

    /// Returns the request that requeues a job.
    pub fn request(self, job: JobRef) -> Request {
        let mut jobs = JobSelection { ids: vec![job], ..JobSelection::default() };
        if self.incomplete {
            jobs.states = vec![StateFilter::Configuring, StateFilter::Running, StateFilter::Suspended];
        }
        Request::Requeue { jobs, hold: self.hold, from: None, special: self.special.then_some(true) }
    }
}

/// Half of the names that a host list in a body may have.
const HOSTS_USUAL: usize = 1 << 15;

/// Returns the nodes that the body of `new/node` describes, in the words of `scontrol create`.
pub fn new_nodes(given: &Value) -> Result<Parsed<NodeConfig>, Problem> {
    const FIELD: &str = "node_conf";
    let mut from = Reading::new("openapi_create_node_req", given)?;
    let text = from.text(FIELD).unwrap_or_default();
    let (mut node, now) = (NodeConfig::default(), Zoned::now());
    for word in text.split_whitespace() {
        let (name, value) =
            word.split_once('=').ok_or_else(|| Problem::malformed(FIELD, format!("{word} is no KEY=VALUE")))?;
        let Some(key) = Key::find(verbs::member::KEYS, name) else {
            return Err(Problem::not_done(FIELD, format!("{name}: a node is created without it")));
        };
        let wrong = |bad: Bad| Problem::malformed(FIELD, format!("{name}={value}: {}", bad.text(value)));
        key.read(&mut node, None, value, &now).map_err(wrong)?;
    }
    match hostlist::expand_within(&node.name, HOSTS_USUAL) {
        Ok(names) if !names.is_empty() => {}
        Ok(_) => return Err(Problem::malformed(FIELD, "NodeName=NODES is missing")),
        Err(e) => return Err(Problem::malformed(FIELD, format!("NodeName={}: {e}", node.name))),
    }
    let warnings = from.rest("A node is described by node_conf")?;
    Ok(Parsed { value: node, warnings })
}

/// Returns the text or the names in a body of `hostnames` or `hostlist`, which is all that it has.
pub fn hosts(given: &Value, is_list: bool) -> Result<Parsed<Vec<String>>, Problem> {
    let mut from =
        Reading::new(if is_list { "openapi_hostlist_req_resp" } else { "openapi_hostnames_req_resp" }, given)?;
    let hosts = if is_list {
        let wrong = |e| Problem::malformed("hostlist", format!("{e}"));
        hostlist::expand_within(&from.text("hostlist").unwrap_or_default(), HOSTS_USUAL).map_err(wrong)?
    } else {
        from.list("hostnames").unwrap_or_default()
    };
    if hosts.is_empty() {
        return Err(Problem::malformed(if is_list { "hostlist" } else { "hostnames" }, "It is missing, or empty"));
    }
    let warnings = from.rest("It is of no use here")?;
    Ok(Parsed { value: hosts, warnings })
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
    use squall_model::wire::client::{JobRef, Request, StateFilter};
    use squall_model::wire::node::SignalTarget;
    use squall_model::wire::reservation::ListChange;

    use super::{RequeueOrder, hosts, job, kill, new_nodes, node, requeue, reservation, signal};

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
        let change = order.change;
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
        assert_eq!(reservation(&json!({"name": "r", "burst_buffer": "1"})).unwrap_err().source, "burst_buffer");
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
    #[test]
    fn jobs_are_requeued() {
        let (jobs, order) = requeue(&json!({"jobs": ["7", "8_1"], "flags": ["Hold", "SpecialExit"]})).unwrap().value;
        assert_eq!((jobs.len(), order), (2, RequeueOrder { hold: true, special: true, incomplete: false }));
        assert_eq!(requeue(&json!({"jobs": ["7"], "flags": ["SpecialExit"]})).unwrap_err().status, 400);
        assert_eq!(requeue(&json!({"jobs": ["7"], "flags": ["Later"]})).unwrap_err().source, "flags");
        assert_eq!(requeue(&json!({"flags": ["Hold"]})).unwrap_err().number, 2017);
        assert_eq!(requeue(&json!({"jobs": vec!["7"; 1001]})).unwrap_err().source, "jobs");
        let all = RequeueOrder { incomplete: true, ..RequeueOrder::default() }.request(JobRef::Job(JobId(7)));
        assert!(matches!(all, Request::Requeue { jobs, hold: false, .. } if jobs.states.len() == 3));
    }

    #[test]
    fn nodes_are_created_in_scontrols_words() {
        let node = new_nodes(&json!({"node_conf": "NodeName=x[1-2] CPUs=4 RealMemory=100 Feature=a,b State=CLOUD"}));
        let node = node.unwrap().value;
        assert_eq!((node.name.as_str(), node.cpus, node.features.len()), ("x[1-2]", Some(4), 2));
        for (text, status) in [("CPUs=4", 400), ("NodeName=x State=IDLE", 400), ("NodeName=x Port=7", 501), ("x", 400)]
        {
            assert_eq!(new_nodes(&json!({"node_conf": text})).unwrap_err().status, status, "{text}");
        }
    }

    #[test]
    fn host_lists_are_read() {
        assert_eq!(hosts(&json!({"hostlist": "n[1-2],m"}), true).unwrap().value, ["n1", "n2", "m"]);
        assert_eq!(hosts(&json!({"hostnames": ["n1", "m"]}), false).unwrap().value, ["n1", "m"]);
        assert_eq!(hosts(&json!({"hostlist": "n[1-"}), true).unwrap_err().source, "hostlist");
        assert_eq!(hosts(&json!({}), false).unwrap_err().source, "hostnames");
    }
}
