//! `scontrol show`: selects the entity, and prints those without a file of their own.

use std::collections::BTreeMap;

use squall_model::duration::format_limit;
use squall_model::hostlist;
use squall_model::wire::client::JobSelection;
use squall_model::wire::info::StepInfo;

use crate::command::listing::call::{Call, Fail};
use crate::command::listing::lists::all_nodes;
use crate::command::listing::lists::job_rows;
use crate::command::listing::select::{id_of, lines};
use crate::command::listing::structured::document;
use crate::command::scontrol::{
    Manner, assoc_mgr, config, controllers, count, job, license, node, partition, record, reservation, topology,
};
use squall_text::format::job::{JobRow, tres};
use squall_text::format::words;
use squall_text::shapes::{AnswerKind, step as shapes};
use squall_text::verbs::key::means;

/// Runs `show ENTITY [ID …]` or `show ENTITY=ID`.
pub(super) fn show(call: &mut Call<'_>, manner: Manner, given: &[String]) -> Result<(), Fail> {
    let Some((entity, ids)) = given.split_first() else {
        if !manner.quiet {
            call.say("too few arguments for keyword:show");
        }
        return Err(Fail(1));
    };
    let (entity, attached) = entity.split_once('=').map_or((entity.as_str(), None), |(e, id)| (e, Some(id.to_owned())));
    let ids: Vec<String> = attached.into_iter().chain(ids.iter().cloned()).collect();
    let is = |name, least| means(entity, name, least);
    if is("aliases", 1) {
        aliases(call, &ids)
    } else if is("assoc_mgr", 2) || is("cache", 2) {
        assoc_mgr::show(call, manner, &given[1..])
    } else if is("config", 1) {
        config::show(call, manner)
    } else if is("controllers", 5) {
        controllers::list(call, manner, &ids)
    } else if is("daemons", 1) {
        call.print("slurmctld slurmd\n");
        Ok(())
    } else if is("hostnames", 5) {
        hostnames(call, &ids)
    } else if is("hostlist", 5) {
        host_list(call, &ids, false)
    } else if is("hostlistsorted", 9) {
        host_list(call, &ids, true)
    } else if is("jobs", 1) || is("jobid", 1) {
        job::show(call, manner, &ids)
    } else if is("licenses", 2) {
        license::show(call, manner, &ids)
    } else if is("nodes", 1) {
        node::show(call, manner, &ids)
    } else if is("partitions", 2) || is("partitionname", 2) {
        partition::show(call, manner, &ids)
    } else if is("reservations", 1) || is("reservationname", 1) {
        reservation::show(call, manner, &ids)
    } else if is("steps", 2) {
        steps(call, manner, &ids)
    } else if is("topology", 1) {
        topology::show(call, &ids)
    } else if is("burstbuffer", 2) || is("bbstat", 2) || is("dwstat", 2) {
        // Prints nothing, as Slurm does where there are none.
        Ok(())
    } else if is("federations", 1) {
        Ok(())
    } else {
        call.say(&format!("invalid entity:{entity} for keyword:show "));
        let instead = if is("slurmd", 2) {
            "scontrol show node NAME has what is known of a node daemon"
        } else {
            return Err(Fail(1));
        };
        call.say(&format!("scontrol: {instead}"));
        Err(Fail(1))
    }
}

/// Runs `show hostnames`: prints one name on each line. Without a list, those of the job in which it runs.
fn hostnames(call: &mut Call<'_>, ids: &[String]) -> Result<(), Fail> {
    let variable = || call.variable("SLURM_JOB_NODELIST").or_else(|| call.variable("SLURM_NODELIST"));
    let list = if ids.is_empty() { variable() } else { Some(ids.join(",")) };
    let Some(list) = list else {
        // As in Slurm, this prints an error but is no failure.
        call.complain("host list is empty");
        return Ok(());
    };
    match hostlist::expand(&list) {
        Ok(names) => {
            call.print(&lines(&names));
            Ok(())
        }
        Err(e) => call.fail(&format!("Invalid hostlist: {list}: {e}")),
    }
}

/// Runs `show hostlist`: compresses names into a list. A path names a file with names.
fn host_list(call: &mut Call<'_>, ids: &[String], sorted: bool) -> Result<(), Fail> {
    let list = match ids {
        [] => {
            call.say("invalid encode argument");
            return Err(Fail(1));
        }
        [path] if path.starts_with('/') => match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) => {
                call.say(&format!("Can not open {path}: {e}"));
                return Err(Fail(1));
            }
        },
        names => names.join(","),
    };
    match hostlist::expand(&list) {
        Ok(names) => {
            let text = hostlist::compress_in_order(if sorted { in_their_order(&names) } else { names });
            call.print(&format!("{text}\n"));
            Ok(())
        }
        Err(e) => call.fail(&format!("Invalid hostlist: {}: {e}", list.trim())),
    }
}

/// Sorts names as host lists are sorted, keeping duplicates.
fn in_their_order(names: &[String]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let sorted = hostlist::expand(&hostlist::compress(names.iter().map(String::as_str))).unwrap_or_default();
    let often = |name: String| std::iter::repeat_n(name.clone(), counts.get(name.as_str()).copied().unwrap_or(1));
    sorted.into_iter().flat_map(often).collect()
}

/// Runs `show aliases [HOST]`: prints the nodes of a machine, by default of this one.
fn aliases(call: &mut Call<'_>, ids: &[String]) -> Result<(), Fail> {
    let nodes = match all_nodes(call) {
        Ok(nodes) => nodes,
        Err(e) => return call.failed("slurm_load_nodes error", &e),
    };
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let hosts = if ids.is_empty() { vec![name, "localhost".into(), "127.0.0.1".into()] } else { ids.to_vec() };
    let here = nodes.iter().filter(|node| hosts.contains(&node.hardware.address) || hosts.contains(&node.name));
    let names: Vec<&str> = here.map(|node| node.name.as_str()).collect();
    if !names.is_empty() {
        call.print(&format!("{}\n", names.join(" ")));
    }
    Ok(())
}

/// Runs `show step [JOB[.STEP]]`.
fn steps(call: &mut Call<'_>, manner: Manner, ids: &[String]) -> Result<(), Fail> {
    let targets = call.targets(&ids.join(","))?;
    let selection = JobSelection { ids: targets.iter().map(|t| t.job.clone()).collect(), ..JobSelection::default() };
    let page = match call.controller.jobs(selection, false, true) {
        Ok(page) => page,
        Err(e) => return call.failed("slurm_get_job_steps error", &e),
    };
    if let [only] = targets.as_slice()
        && page.unknown.contains(&id_of(&only.job))
    {
        call.say("slurm_get_job_steps error: Invalid job id specified");
        return Err(Fail(1));
    }
    let rows = job_rows(call, page)?;
    let wanted =
        |step: &StepInfo| step.end.is_none() && targets.iter().all(|t| t.step.is_none_or(|wanted| wanted == step.step));
    let found: Vec<(&JobRow, &StepInfo)> = rows
        .iter()
        .flat_map(|row| row.info.run().steps.iter().filter(|s| wanted(s)).map(move |step| (row, step)))
        .collect();
    count(call, manner, found.len());
    let text = if let Some(dialect) = manner.dialect {
        let cluster = call.cluster("slurm_get_job_steps error")?;
        let all: Vec<_> = found.iter().map(|(row, step)| shapes::step(row, step, &cluster, call.now)).collect();
        document(
            call,
            dialect,
            &cluster,
            &["scontrol", "show", "steps"],
            AnswerKind::Steps,
            vec![("steps", all.into())],
        )
    } else if found.is_empty() {
        "No job steps in the system\n".to_owned()
    } else {
        found.iter().map(|(row, step)| step_record(manner, row, step)).collect()
    };
    call.print(&text);
    Ok(())
}

fn step_record(manner: Manner, row: &JobRow, step: &StepInfo) -> String {
    let asked = step.tres_per_node.iter().map(|asked| format!("TresPerNode={asked}"));
    let state = step.end.as_ref().map_or("RUNNING", |(_, how)| words::end(how.state).0);
    let start = row.clock.show(step.start);
    let lines = [
        format!(
            "StepId={}.{} UserId={} StartTime={start} TimeLimit={}",
            row.array_id(),
            step.step,
            row.owner.uid,
            format_limit(step.time_limit_s)
        ),
        format!("State={state} Partition={} NodeList={}", row.class.partition, step.nodes),
        format!(
            "Nodes={} CPUs={} Tasks={} Name={} Network=(null)",
            step.num_nodes, step.num_cpus, step.num_tasks, step.name
        ),
        format!("TRES={}", tres(step.num_cpus, &row.memory(step.memory_mb), step.num_nodes, None)),
        format!("ResvPorts={}", step.ports.as_ref().map_or_else(|| "(null)".to_owned(), ToString::to_string)),
        format!("CPUFreqReq={} Dist=Block", step.cpu_freq.as_deref().unwrap_or("Default")),
        format!("SrunHost:Pid={}:0", row.spec.submit_host),
    ];
    record(manner.oneliner, &lines.into_iter().chain(asked).collect::<Vec<_>>())
}
