//! `bench torus`: the synthetic Blue Waters workload on a live controller with emulated nodes on a torus, and in the
//! simulator. The same seed must give the same placements.

use std::sync::Arc;
use std::time::Instant;

use crate::blue::{Act, Course, course, torus};
use serde_json::json;
use squall_model::config::PartitionState;
use squall_model::id::{ClientKey, JobId};
use squall_model::wire::client::{Answer, JobRef, JobSelection, Request};

use super::cluster::Cluster;
use super::{BenchOptions, Finding, round};
use crate::client::Client;

/// Default number of routers along each axis of the torus.
const EXTENT: u32 = 8;
/// Default number of jobs.
const JOBS: u64 = 200;
/// Name of the partition in a cluster that has none in its configuration.
const PARTITION: &str = "debug";

/// Returns how many jobs had exactly the same nodes in the live cluster as in the simulator.
pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let extents = [options.nodes.unwrap_or(EXTENT); 3];
    if !(2..=32).contains(&extents[0]) {
        return Err("--nodes: extents of 2 to 32 routers are possible".into());
    }
    let (jobs, seed) = (options.jobs.unwrap_or(JOBS), options.seeds.unwrap_or(1));
    let config = torus(&extents);
    let begin = Instant::now();
    let played = course(&config, &extents, seed, jobs as usize);
    let simulated_s = begin.elapsed().as_secs_f64();
    let nodes: u32 = extents.iter().product();
    let text =
        format!("[topology]\nname = \"{}\"\ntext = \"\"\"\n{}\"\"\"\n", config.topology.name, config.topology.text);
    let cluster = Cluster::rack(nodes, &text)?;
    let mut client = cluster.client()?;
    Cluster::wait_for(&mut client, nodes)?;
    let begin = Instant::now();
    let placed = live(&mut client, &played)?;
    let live_s = begin.elapsed().as_secs_f64();
    let same = placed.iter().zip(&played.placed).filter(|(live, simulated)| live == simulated).count();
    let other = placed.iter().zip(&played.placed).position(|(live, simulated)| live != simulated);
    let fields = vec![
        ("nodes", json!(nodes)),
        ("seed", json!(seed)),
        ("ends", json!(played.acts.len() - played.jobs.len())),
        ("passed_others", json!(played.passed)),
        ("utilisation", json!(round(played.utilisation))),
        ("live_s", json!(round(live_s))),
        ("simulated_s", json!(round(simulated_s))),
        (
            "first_other",
            json!(other.map(|at| format!("job {}: {} live, {} simulated", at + 1, placed[at], played.placed[at]))),
        ),
    ];
    let limit = Some((jobs as f64, "jobs, placed by the simulator"));
    Ok(Finding { bench: "torus", figure: same as f64, unit: "jobs placed alike", limit, fields })
}

/// Repeats the simulator's actions on a live cluster. Returns each job's nodes as a host list.
fn live(client: &mut Client, course: &Course) -> Result<Vec<String>, String> {
    let mut ids = Vec::new();
    for act in &course.acts {
        match *act {
            Act::Submit(job) => {
                let request = Request::Submit {
                    spec: Arc::new(course.jobs[job].clone()),
                    script: squall_model::encoding::ByteBuf::from(&b"#!/bin/true\n"[..]),
                    env: squall_model::encoding::ByteBuf::new(),
                    key: ClientKey(job as u128 + 1),
                };
                match ask(client, &request)? {
                    Answer::Submitted { job, .. } => ids.push(job),
                    Answer::Refused(refusal) => return Err(format!("job {}: {refusal:?}", job + 1)),
                    _ => return Err(crate::client::unexpected().to_string()),
                }
            }
            Act::End(job) => end(client, ids[job])?,
        }
    }
    let page = client.jobs(JobSelection::default(), true, false).map_err(|e| e.to_string())?;
    let nodes =
        |id: &JobId| page.jobs.iter().find(|job| job.id == *id).map(|job| job.run().nodes.clone()).unwrap_or_default();
    Ok(ids.iter().map(nodes).collect())
}

/// Ends a job. The partition is down until all of the job's nodes have reported, so that nothing starts earlier: in the
/// simulator all nodes report at once.
fn end(client: &mut Client, id: JobId) -> Result<(), String> {
    set(client, PartitionState::Down)?;
    let jobs = JobSelection { ids: vec![JobRef::Job(id)], ..JobSelection::default() };
    ask(client, &Request::Cancel { jobs, signal: None, step: None, verbose: false })?;
    match ask(client, &Request::AwaitJob { job: id })? {
        Answer::JobDone { .. } => set(client, PartitionState::Up),
        _ => Err(format!("job {id} does not end")),
    }
}

fn set(client: &mut Client, state: PartitionState) -> Result<(), String> {
    match ask(client, &Request::UpdatePartition { name: PARTITION.into(), state })? {
        Answer::Done => Ok(()),
        _ => Err(crate::client::unexpected().to_string()),
    }
}

fn ask(client: &mut Client, request: &Request) -> Result<Answer, String> {
    client.ask(request).map_err(|e| e.to_string())
}
