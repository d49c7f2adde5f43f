//! Launches of programs of 4, 8 and 12 MB that must be sent first: to real nodes and, beyond what a machine can hold,
//! to emulated ones. Send: until all nodes have the program. Execute: until all nodes have started it and it has ended.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use squall_model::job::Need;
use squall_model::wire::client::{Answer, Request};

use super::super::cluster::{Cluster, counts, list, submission};
use super::super::load::Load;
use super::super::put::{Copies, SIZES, Source, keep, put};
use super::super::{median, round};
use super::srun;
use crate::client::Client;

/// Number of launches of each size; the median duration counts.
const LAUNCHES: usize = 3;

/// Results for one program size on one number of nodes, in milliseconds.
pub(super) struct SizeResult {
    pub(super) real: bool,
    pub(super) load: Load,
    pub(super) nodes: u32,
    pub(super) size: u64,
    pub(super) private_ms: f64,
    pub(super) shared_ms: f64,
    pub(super) execute_ms: f64,
}

/// Measures all program sizes on one cluster.
pub(super) fn measure(
    cluster: &Cluster,
    (real, all): (bool, u32),
    load: Load,
    only: Option<u64>,
) -> Result<Vec<SizeResult>, String> {
    let mut client = cluster.client()?;
    Cluster::wait_for(&mut client, all)?;
    let sizes = only.map_or(SIZES.to_vec(), |size| vec![size]);
    let kept = keep(cluster, &mut client, &sizes)?;
    let mut fresh = Source::new(cluster, "program");
    let _burden = load.start().map_err(|e| e.to_string())?;
    let (mut rows, mut jobs) = (Vec::new(), 0);
    for nodes in counts(all, 2) {
        for (&size, kept) in sizes.iter().zip(&kept) {
            let mut send = |client: &mut Client, copies| {
                let times = (0..LAUNCHES).map(|_| put(client, fresh.renew(size)?, &list(nodes), copies));
                times.collect::<Result<Vec<f64>, String>>().map(|mut times| median(&mut times))
            };
            let private_ms = send(&mut client, Copies::Private)?;
            let shared_ms = send(&mut client, Copies::Shared)?;
            let times = (0..LAUNCHES).map(|_| {
                jobs += 1;
                if real { run(cluster, nodes, kept) } else { emulate(&mut client, nodes, jobs) }
            });
            let execute_ms = times.collect::<Result<Vec<f64>, String>>().map(|mut times| median(&mut times))?;
            rows.push(SizeResult { real, load, nodes, size, private_ms, shared_ms, execute_ms });
        }
    }
    Ok(rows)
}

/// Runs `srun` with a program that all nodes have cached; returns milliseconds.
fn run(cluster: &Cluster, nodes: u32, program: &Source) -> Result<f64, String> {
    let list = list(nodes);
    srun(cluster, nodes, &["-w".as_ref(), list.as_ref(), "--bcast".as_ref(), program.path.as_ref()])
}

/// Runs a job on emulated nodes that ends as soon as it has started; returns milliseconds. `number` must differ in each
/// call.
fn emulate(client: &mut Client, nodes: u32, number: u64) -> Result<f64, String> {
    let mut request = submission(number, false);
    if let Request::Submit { spec, .. } = &mut request {
        let spec = Arc::make_mut(spec);
        spec.comment = Some("timer_ms=0".into());
        let count = Some(nodes);
        spec.need = Need { nodes_min: count, nodes_max: count, ntasks: count, exclusive: true, ..Need::default() };
    }
    let start = Instant::now();
    let Answer::Submitted { job, .. } = client.ask(&request).map_err(|e| e.to_string())? else {
        return Err(crate::client::unexpected().to_string());
    };
    match client.ask(&Request::AwaitJob { job }).map_err(|e| e.to_string())? {
        Answer::JobDone { .. } => Ok(start.elapsed().as_secs_f64() * 1e3),
        _ => Err(crate::client::unexpected().to_string()),
    }
}

impl SizeResult {
    pub(super) fn total_ms(&self, copies: Copies) -> f64 {
        self.execute_ms + if copies == Copies::Private { self.private_ms } else { self.shared_ms }
    }

    pub(super) fn show(&self) -> Value {
        json!({
            "kind": if self.real { "real" } else { "emulated" }, "load": self.load.name(), "nodes": self.nodes,
            "bytes": self.size, "send_private_ms": round(self.private_ms), "send_shared_ms": round(self.shared_ms),
            "execute_ms": round(self.execute_ms), "total_private_ms": round(self.total_ms(Copies::Private)),
            "total_shared_ms": round(self.total_ms(Copies::Shared)),
        })
    }
}
