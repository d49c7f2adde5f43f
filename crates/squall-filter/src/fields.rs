//! The table of a job's fields, by their names in Slurm's Lua plugin: a row for each, with how it is read and set.

use squall_model::job::network::{Switches, switches};
use squall_model::job::options::AsGiven;
use squall_model::job::{JobKind, Need};
use squall_model::resource::Memory;
use squall_model::time::Time;
use squall_text::options::values::array::array;
use squall_text::options::values::dependency::dependency;

use crate::constants::{NICE_OFFSET, NO_VAL, NO_VAL16};
use crate::desc::{Desc, Value};
use crate::values::{self, Set, flag, minutes, number, positive, some_text, text, to_flag, to_text, to_u16, to_u32};

/// A field of a job.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) get: fn(&Desc) -> Value,
    /// None: it can't be set, or setting it has no effect here.
    pub(crate) set: Option<fn(&mut Desc, &Value) -> Set>,
}

/// Returns the field of this name.
pub(crate) fn find(name: &str) -> Option<&'static Field> {
    FIELDS.binary_search_by(|field| field.name.cmp(name)).ok().map(|at| &FIELDS[at])
}

const fn row(name: &'static str, get: fn(&Desc) -> Value, set: fn(&mut Desc, &Value) -> Set) -> Field {
    Field { name, get, set: Some(set) }
}

const fn read(name: &'static str, get: fn(&Desc) -> Value) -> Field {
    Field { name, get, set: None }
}

/// Defines a row of an optional text.
macro_rules! word {
    ($name:literal, $($path:ident).+) => {
        row($name, |d| some_text(d.$($path).+.as_ref()), |d, v| { d.$($path).+ = to_text(v)?; Ok(()) })
    };
}

/// Defines a row of a number of 32 bits that may lack.
macro_rules! wide {
    ($name:literal, $($path:ident).+) => {
        row($name, |d| number(d.$($path).+, NO_VAL), |d, v| { d.$($path).+ = to_u32(v)?; Ok(()) })
    };
}

/// Defines a row of a number of 16 bits that may lack.
macro_rules! narrow {
    ($name:literal, $($path:ident).+) => {
        row($name, |d| number(d.$($path).+, NO_VAL16), |d, v| { d.$($path).+ = to_u16(v)?; Ok(()) })
    };
}

/// Defines a row of a number of which 0 means none.
macro_rules! inside {
    ($name:literal, $field:ident) => {
        row(
            $name,
            |d| positive(d.spec.options.inside.$field),
            |d, v| {
                d.spec.options.inside.$field = to_u16(v)?.unwrap_or(0);
                Ok(())
            },
        )
    };
}

/// All fields, in the order of their names.
#[rustfmt::skip]
pub(crate) const FIELDS: &[Field] = &[
    word!("account", spec.account),
    word!("admin_comment", spec.options.notes.admin_comment),
    read("alloc_node", |d| text(&d.spec.submit_host)),
    read("argc", |d| Value::Int(arguments(d).len() as i64)),
    read("argv", |d| Value::List(arguments(d))),
    row("array_inx", |d| d.spec.array.as_ref().map_or(Value::Nil, |array| text(&array.text)), set_array),
    read("assoc_qos", |d| some_text(d.about.allowed_qos.as_ref())),
    word!("batch_features", spec.options.shown.batch),
    row("begin_time", |d| Value::Int(d.spec.begin.map_or(0, |time| time.secs() as i64)),
        |d, v| { d.spec.begin = time(v)?; Ok(()) }),
    read("bitflags", bit_flags),
    word!("comment", spec.comment),
    read("container", |d| d.spec.options.container().map_or(Value::Nil, |container| some_text(container.bundle.as_ref()))),
    row("contiguous", |d| flag(Some(d.spec.need.contiguous).filter(|on| *on)),
        |d, v| { d.spec.need.contiguous = to_flag(v)? == Some(true); Ok(()) }),
    inside!("cores_per_socket", cores),
    narrow!("cpus_per_task", spec.need.cpus_per_task),
    row("cpus_per_tres", |d| per_gpu(d.spec.options.gpus.cpus.map(u64::from)), set_cpus_per_gpu),
    read("default_account", |d| some_text(d.about.account.as_ref())),
    read("default_qos", |d| some_text(d.about.qos.as_ref())),
    row("delay_boot", |d| number(d.spec.options.delay_boot_s.map(|s| s as i64), NO_VAL),
        |d, v| { d.spec.options.delay_boot_s = to_u32(v)?.map(u64::from); Ok(()) }),
    row("dependency", |d| values::dependency(d.spec.dependency.as_ref()),
        |d, v| { d.spec.dependency = dependency(&to_text(v)?.unwrap_or_default())?; Ok(()) }),
    row("end_time", |d| Value::Int(d.spec.deadline.map_or(0, |time| time.secs() as i64)),
        |d, v| { d.spec.deadline = time(v)?; Ok(()) }),
    word!("exc_nodes", spec.need.exclude),
    word!("extra", spec.options.notes.extra),
    word!("features", spec.need.constraint),
    row("gres", tres_per_node, set_tres_per_node),
    read("group_id", |d| Value::Int(d.about.owner.gid.into())),
    read("het_job_offset", |d| number(d.component, NO_VAL)),
    read("immediate", |d| Value::Int(d.immediate.into())),
    read("job_id", |d| number(d.job.map(|(id, _)| id), NO_VAL)),
    read("job_state", |d| d.job.map_or(Value::Nil, |(_, state)| Value::Int(state.into()))),
    word!("licenses", spec.need.licenses),
    row("mail_type", |d| values::mail(d.spec.mail_type.as_ref()),
        |d, v| { d.spec.mail_type = values::to_mail(v)?; Ok(()) }),
    word!("mail_user", spec.mail_user),
    read("max_cpus", |_| Value::Int(NO_VAL)),
    row("max_nodes", |d| number(d.spec.need.nodes_max.or(d.spec.need.nodes_min), NO_VAL),
        |d, v| { d.spec.need.nodes_max = to_u32(v)?; Ok(()) }),
    row("mem_per_tres", |d| per_gpu(d.spec.options.gpus.memory_mb.as_ref().map(|given| given.value)), set_memory_per_gpu),
    read("min_cpus", |d| Value::Int(cpus(&d.spec.need))),
    row("min_mem_per_cpu", |d| memory(d, true), |d, v| { d.spec.need.memory = values::to_mb(v)?.map_or(Memory::Unset, Memory::PerCpuMb); Ok(()) }),
    row("min_mem_per_node", |d| memory(d, false), |d, v| { d.spec.need.memory = values::to_mb(v)?.map_or(Memory::Unset, Memory::PerNodeMb); Ok(()) }),
    row("min_nodes", |d| number(d.spec.need.nodes_min, NO_VAL), set_min_nodes),
    row("name", |d| text(&d.spec.name), |d, v| { d.spec.name = to_text(v)?.unwrap_or_default(); Ok(()) }),
    read("network", |d| d.spec.options.network.class.as_ref().map_or(Value::Nil, |given| text(&given.text))),
    row("nice", |d| Value::Int(if d.spec.nice == 0 { NO_VAL } else { i64::from(d.spec.nice) + NICE_OFFSET }), set_nice),
    inside!("ntasks_per_core", tasks_per_core),
    narrow!("ntasks_per_gpu", spec.options.gpus.tasks),
    narrow!("ntasks_per_node", spec.need.ntasks_per_node),
    inside!("ntasks_per_socket", tasks_per_socket),
    narrow!("ntasks_per_tres", spec.options.gpus.tasks),
    wide!("num_tasks", spec.need.ntasks),
    row("oversubscribe", sharing, set_sharing),
    read("pack_job_offset", |d| number(d.component, NO_VAL)),
    word!("partition", spec.partition),
    narrow!("pn_min_cpus", spec.need.cpus_min),
    row("pn_min_memory", |d| values::memory(d.spec.need.memory), |d, v| { d.spec.need.memory = values::to_memory(v)?; Ok(()) }),
    row("pn_min_tmp_disk", |d| number(Some(d.spec.need.tmp_disk_mb as i64).filter(|mb| *mb > 0), NO_VAL),
        |d, v| { d.spec.need.tmp_disk_mb = values::to_mb(v)?.unwrap_or(0); Ok(()) }),
    word!("prefer", spec.options.prefer),
    wide!("priority", spec.priority),
    word!("qos", spec.qos),
    row("reboot", |d| flag(d.spec.options.reboot), |d, v| { d.spec.options.reboot = to_flag(v)?; Ok(()) }),
    word!("req_nodes", spec.need.nodelist),
    row("req_switch", |d| number(switch_count(d).map(|given| given.count), NO_VAL), set_switches),
    row("requeue", |d| flag(d.spec.requeue), |d, v| { d.spec.requeue = to_flag(v)?; Ok(()) }),
    word!("reservation", spec.reservation),
    row("script", |d| if d.script.is_empty() { Value::Nil } else { Value::Text(d.script.to_vec()) }, set_script),
    narrow!("segment_size", spec.options.segment),
    row("shared", sharing, set_sharing),
    inside!("sockets_per_node", sockets),
    word!("std_err", spec.stderr),
    word!("std_in", spec.stdin),
    word!("std_out", spec.stdout),
    inside!("threads_per_core", threads),
    row("time_limit", |d| minutes(d.spec.time_limit_s), |d, v| { d.spec.time_limit_s = values::to_seconds(v)?; Ok(()) }),
    row("time_min", |d| minutes(d.spec.time_min_s), |d, v| { d.spec.time_min_s = values::to_seconds(v)?; Ok(()) }),
    read("tres_bind", |d| d.spec.options.gpus.bind.as_ref().map_or(Value::Nil, |given| text(&format!("gres/gpu:{}", given.text)))),
    row("tres_freq", |d| some_text(d.spec.options.shown.gpu_freq.as_ref()),
        |d, v| { d.spec.options.shown.gpu_freq = to_text(v)?; Ok(()) }),
    row("tres_per_job", |d| values::tres(None, d.spec.options.gpus.total.as_ref()),
        |d, v| { d.spec.options.gpus.total = values::to_gpus(v)?; Ok(()) }),
    row("tres_per_node", tres_per_node, set_tres_per_node),
    row("tres_per_socket", |d| values::tres(None, d.spec.options.gpus.per_socket.as_ref()),
        |d, v| { d.spec.options.gpus.per_socket = values::to_gpus(v)?; Ok(()) }),
    row("tres_per_task", |d| values::tres(None, d.spec.options.gpus.per_task.as_ref()),
        |d, v| { d.spec.options.gpus.per_task = values::to_gpus(v)?; Ok(()) }),
    read("user_id", |d| Value::Int(d.about.owner.uid.into())),
    read("user_name", |d| text(&d.about.owner.user)),
    read("wait4switch", |d| number(switch_count(d).and_then(|given| given.wait_s).map(|s| s as i64), NO_VAL)),
    word!("wckey", spec.wckey),
    row("work_dir", |d| text(&d.spec.work_dir), set_work_dir),
];

/// Returns the script or command, and its arguments.
fn arguments(d: &Desc) -> Vec<String> {
    let command = Some(d.spec.command.clone()).filter(|command| !command.is_empty());
    command.into_iter().chain(d.spec.args.iter().cloned()).collect()
}

fn set_array(d: &mut Desc, value: &Value) -> Set {
    d.spec.array = to_text(value)?.map(|text| array(&text)).transpose()?;
    Ok(())
}

fn time(value: &Value) -> Result<Option<Time>, String> {
    let seconds = to_u32(value)?.filter(|seconds| *seconds > 0);
    Ok(seconds.map(|seconds| Time::from_secs(seconds.into())))
}

/// Returns those of Slurm's flags that a job's options have.
fn bit_flags(d: &Desc) -> Value {
    let kills = d.spec.kill_on_invalid_dep;
    let bits =
        [(kills == Some(true), 1), (kills == Some(false), 2), (d.spec.options.enforce_binding == Some(true), 16)];
    Value::Int(bits.into_iter().filter(|(on, _)| *on).map(|(_, bit)| bit).sum())
}

fn per_gpu(number: Option<u64>) -> Value {
    number.map_or(Value::Nil, |number| text(&format!("gres/gpu:{number}")))
}

fn set_cpus_per_gpu(d: &mut Desc, value: &Value) -> Set {
    let cpus = values::to_per_gpu(value)?.map(u32::try_from).transpose();
    d.spec.options.gpus.cpus = cpus.map_err(|_| "too many".to_owned())?;
    Ok(())
}

fn set_memory_per_gpu(d: &mut Desc, value: &Value) -> Set {
    let given = values::to_per_gpu(value)?;
    d.spec.options.gpus.memory_mb = given.map(|mb| AsGiven { text: mb.to_string(), value: mb });
    Ok(())
}

/// Returns the CPUs that a job needs at least, as Slurm's commands state them.
fn cpus(need: &Need) -> i64 {
    let tasks = need.ntasks.or(need.nodes_min).unwrap_or(1).max(1);
    i64::from(tasks) * i64::from(need.task_cpus())
}

fn memory(d: &Desc, of_cpu: bool) -> Value {
    match d.spec.need.memory {
        Memory::PerCpuMb(mb) if of_cpu => Value::Int(mb as i64),
        Memory::PerNodeMb(mb) if !of_cpu => Value::Int(mb as i64),
        _ => Value::Nil,
    }
}

/// Sets the fewest nodes. The most nodes, if given, are at least as many.
fn set_min_nodes(d: &mut Desc, value: &Value) -> Set {
    let need = &mut d.spec.need;
    need.nodes_min = to_u32(value)?;
    need.nodes_max = need.nodes_max.max(need.nodes_max.and(need.nodes_min));
    Ok(())
}

fn set_nice(d: &mut Desc, value: &Value) -> Set {
    let nice = values::to_number(value)?.map_or(0, |nice| nice - NICE_OFFSET);
    d.spec.nice = i32::try_from(nice).map_err(|_| "NICE_OFFSET must be added".to_owned())?;
    Ok(())
}

fn sharing(d: &Desc) -> Value {
    values::sharing(&d.spec.need, d.spec.keeps_others_off(), d.spec.keeps_blocks())
}

fn set_sharing(d: &mut Desc, value: &Value) -> Set {
    let word = to_u16(value)?;
    if word.is_some_and(|word| word > 4 || word == 3) {
        let words = "0 (whole nodes), 1 (shared CPUs), 2 (nodes of one user) or 4 (blocks of one job)";
        return Err(format!("{words} is needed"));
    }
    let (user, blocks) = (word == Some(2), word == Some(4));
    (d.spec.need.exclusive, d.spec.need.oversubscribe) = (word == Some(0) || blocks, word == Some(1));
    if d.spec.options.get().is_some() || user || blocks {
        d.spec.options.exclusive_user = user;
        d.spec.options.exclusive_topo = blocks.then_some(true);
    }
    Ok(())
}

fn tres_per_node(d: &Desc) -> Value {
    values::tres(d.spec.need.gres.as_deref(), d.spec.options.gpus.per_node.as_ref())
}

fn set_tres_per_node(d: &mut Desc, value: &Value) -> Set {
    d.spec.need.gres = values::to_gres(value)?;
    if d.spec.options.get().is_some() {
        d.spec.options.gpus.per_node = None;
    }
    Ok(())
}

fn switch_count(d: &Desc) -> Option<Switches> {
    Some(d.spec.options.get()?.network.switches.as_ref()?.value)
}

fn set_switches(d: &mut Desc, value: &Value) -> Set {
    let count = to_u32(value)?.filter(|count| *count > 0);
    d.spec.options.network.switches = count.and_then(|count| switches(&count.to_string()));
    Ok(())
}

/// Sets the script of a batch job.
fn set_script(d: &mut Desc, value: &Value) -> Set {
    let Value::Text(script) = value else { return Err("a text is needed".to_owned()) };
    if d.spec.kind != JobKind::Batch || !script.starts_with(b"#!") {
        return Err("only a batch job has a script, which begins with `#!`".to_owned());
    }
    d.script = script.clone().into();
    Ok(())
}

fn set_work_dir(d: &mut Desc, value: &Value) -> Set {
    let folder = to_text(value)?.filter(|folder| folder.starts_with('/'));
    d.spec.work_dir = folder.ok_or("an absolute path is needed")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::FIELDS;

    #[test]
    fn fields_are_in_the_order_of_their_names() {
        assert!(FIELDS.windows(2).all(|pair| pair[0].name < pair[1].name));
    }
}
