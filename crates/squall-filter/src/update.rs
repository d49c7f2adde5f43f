//! Changes of a job (`scontrol update`) as the fields that a filter sees, and back.

use squall_model::job::JobSpec;
use squall_model::limits::UNLIMITED_S;
use squall_model::resource::Memory;
use squall_model::wire::client::JobUpdate;

/// Returns a specification that has only what a change asks for.
pub(crate) fn spec_of(change: &JobUpdate) -> JobSpec {
    let change = change.clone();
    let mut spec = JobSpec {
        name: change.name.unwrap_or_default(),
        partition: change.partition,
        account: change.account,
        qos: change.qos,
        reservation: change.reservation.flatten(),
        wckey: change.wckey,
        comment: change.comment,
        time_limit_s: change.time_limit_s.map(|limit| limit.unwrap_or(UNLIMITED_S)),
        time_min_s: change.time_min_s,
        begin: change.begin,
        deadline: change.deadline,
        dependency: change.dependency.flatten(),
        priority: change.priority,
        nice: change.nice.unwrap_or(0),
        requeue: change.requeue,
        work_dir: change.work_dir.unwrap_or_default(),
        stdin: change.stdin,
        stdout: change.stdout,
        stderr: change.stderr,
        mail_type: change.mail_type,
        mail_user: change.mail_user,
        ..JobSpec::default()
    };
    let need = &mut spec.need;
    if let Some((min, max)) = change.nodes {
        (need.nodes_min, need.nodes_max) = (Some(min), max);
    }
    (need.ntasks, need.ntasks_per_node) = (change.ntasks, change.ntasks_per_node);
    (need.cpus_per_task, need.cpus_min) = (change.cpus_per_task, change.cpus_min);
    need.memory = change.memory.unwrap_or_default();
    need.tmp_disk_mb = change.tmp_disk_mb.unwrap_or(0);
    (need.nodelist, need.exclude) = (change.nodelist.flatten(), change.exclude.flatten());
    (need.constraint, need.gres) = (change.constraint.flatten(), change.gres.flatten());
    need.licenses = change.licenses.flatten();
    need.contiguous = change.contiguous.unwrap_or(false);
    if let Some((shared, whole)) = change.oversubscribe {
        (need.oversubscribe, need.exclusive) = (shared, whole);
    }
    let options = &mut spec.options;
    options.notes.admin_comment = change.admin_comment.flatten();
    options.notes.extra = change.extra.flatten();
    options.prefer = change.prefer.flatten();
    options.network.switches = change.switches.flatten();
    (options.delay_boot_s, options.reboot) = (change.delay_boot_s, change.reboot);
    spec
}

/// Takes a changed field of a specification into a change.
#[rustfmt::skip]
pub(crate) fn take(field: &str, spec: &JobSpec, change: &mut JobUpdate) {
    let spec = spec.clone();
    let (need, text) = (spec.need.clone(), |text: Option<String>| Some(text.unwrap_or_default()));
    match field {
        "account" => change.account = text(spec.account),
        "admin_comment" => change.admin_comment = Some(spec.options.notes.admin_comment.clone()),
        "begin_time" => change.begin = spec.begin,
        "comment" => change.comment = text(spec.comment),
        "contiguous" => change.contiguous = Some(need.contiguous),
        "cpus_per_task" => change.cpus_per_task = need.cpus_per_task,
        "delay_boot" => change.delay_boot_s = spec.options.delay_boot_s,
        "dependency" => change.dependency = Some(spec.dependency),
        "end_time" => change.deadline = spec.deadline,
        "exc_nodes" => change.exclude = Some(need.exclude),
        "extra" => change.extra = Some(spec.options.notes.extra.clone()),
        "features" => change.constraint = Some(need.constraint),
        "gres" | "tres_per_node" => change.gres = Some(need.gres),
        "licenses" => change.licenses = Some(need.licenses),
        "mail_type" => change.mail_type = text(spec.mail_type),
        "mail_user" => change.mail_user = text(spec.mail_user),
        "min_nodes" | "max_nodes" => change.nodes = need.nodes_min.map(|min| (min, need.nodes_max)),
        "min_mem_per_cpu" | "min_mem_per_node" | "pn_min_memory" => {
            change.memory = Some(need.memory).filter(|memory| *memory != Memory::Unset);
        }
        "name" => change.name = Some(spec.name),
        "nice" => change.nice = Some(spec.nice),
        "ntasks_per_node" => change.ntasks_per_node = need.ntasks_per_node,
        "num_tasks" => change.ntasks = need.ntasks,
        "partition" => change.partition = spec.partition,
        "pn_min_cpus" => change.cpus_min = need.cpus_min,
        "pn_min_tmp_disk" => change.tmp_disk_mb = Some(need.tmp_disk_mb),
        "prefer" => change.prefer = Some(spec.options.prefer.clone()),
        "priority" => change.priority = spec.priority,
        "qos" => change.qos = text(spec.qos),
        "reboot" => change.reboot = spec.options.reboot,
        "req_nodes" => change.nodelist = Some(need.nodelist),
        "req_switch" => change.switches = Some(spec.options.network.switches.clone()),
        "requeue" => change.requeue = spec.requeue,
        "reservation" => change.reservation = Some(spec.reservation),
        "oversubscribe" | "shared" => change.oversubscribe = Some((need.oversubscribe, need.exclusive)),
        "std_err" => change.stderr = spec.stderr,
        "std_in" => change.stdin = spec.stdin,
        "std_out" => change.stdout = spec.stdout,
        "time_limit" => change.time_limit_s = spec.limit_s(),
        "time_min" => change.time_min_s = Some(spec.time_min_s.unwrap_or(0)),
        "wckey" => change.wckey = text(spec.wckey),
        "work_dir" => change.work_dir = Some(spec.work_dir),
        // Other fields of a job can't be changed after its submission: `Desc::set` says so.
        _ => {}
    }
}

/// Fields that a change can't have.
pub(crate) fn is_fixed(field: &str) -> bool {
    const FIXED: [&str; 21] = [
        "array_inx",
        "batch_features",
        "cores_per_socket",
        "cpus_per_tres",
        "environment",
        "mem_per_tres",
        "ntasks_per_core",
        "ntasks_per_gpu",
        "ntasks_per_socket",
        "ntasks_per_tres",
        "script",
        "segment_size",
        "sockets_per_node",
        "threads_per_core",
        "tres_freq",
        "tres_per_job",
        "tres_per_socket",
        "tres_per_task",
        "wait4switch",
        "container",
        "network",
    ];
    FIXED.contains(&field)
}
