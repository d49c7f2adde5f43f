//! Options of Slurm that would change what runs and that Squall does not support: each is refused by name.

use crate::options::Arg::{Maybe, Needed, None as Flag};
use crate::options::asked::Asked;
use crate::options::{Arg, Effect, Given, NO, Opt, Stop, Tools, opt};

/// Entries of the refused options, which `--help` does not list.
pub const OPTIONS: &[Opt] = &[
    refused("accel-bind", NO, Needed("FLAGS"), Tools::SRUN, &[], ACCEL_BIND),
    refused(
        "bb",
        NO,
        Needed("SPEC"),
        Tools::ALL,
        &["SBATCH_BURST_BUFFER", "SALLOC_BURST_BUFFER", "SLURM_BURST_BUFFER"],
        BURST_BUFFER,
    ),
    opt("bbf", NO, Needed("<file_name>"), Tools::ALL, &[], "", burst_buffer_file).refused(BURST_BUFFER),
    refused(
        "cluster-constraint",
        NO,
        Needed("LIST"),
        Tools::ALL,
        &["SBATCH_CLUSTER_CONSTRAINT", "SALLOC_CLUSTER_CONSTRAINT", "SLURM_CLUSTER_CONSTRAINT"],
        "there is no federation of clusters: leave it out, and use --constraint for features of nodes",
    ),
    refused(
        "container",
        NO,
        Needed("BUNDLE"),
        Tools::ALL,
        &["SBATCH_CONTAINER", "SALLOC_CONTAINER", "SRUN_CONTAINER"],
        CONTAINER,
    ),
    refused(
        "container-id",
        NO,
        Needed("ID"),
        Tools::ALL,
        &["SBATCH_CONTAINER_ID", "SALLOC_CONTAINER_ID", "SRUN_CONTAINER_ID"],
        CONTAINER,
    ),
    refused(
        "context",
        NO,
        Needed("NAME"),
        Tools::ALL,
        &[],
        "tasks keep the security context of the node daemon; use runcon in the script",
    ),
    refused("mcs-label", NO, Needed("LABEL"), Tools::ALL, &[], "there is no multi-category security: leave it out"),
    refused("no-allocate", 'Z', Flag, Tools::SRUN, &[], "tasks run in allocations only; leave the option out"),
    refused(
        "power",
        NO,
        Needed("FLAGS"),
        Tools::ALL,
        &["SBATCH_POWER", "SALLOC_POWER", "SLURM_POWER"],
        "the power of nodes is not managed: leave it out",
    ),
    refused("reboot", NO, Flag, Tools::ALL, &[], "nodes are not rebooted for a job: leave it out"),
    refused(
        "resv-ports",
        NO,
        Maybe("COUNT"),
        Tools::SRUN,
        &["SLURM_RESV_PORTS"],
        "no ports are reserved: leave it out (MPI programs are served by PMIx and need none)",
    ),
    opt("x11", NO, Maybe("NODES"), Tools::SRUN.and(Tools::SALLOC), &[], "", x11).refused(
        "X11 is not forwarded: use ssh -X to the node of a job, or set DISPLAY to a display that the nodes can reach",
    ),
];

const ACCEL_BIND: &str = "which GPUs are near which CPUs is not known to tasks: use --gpu-bind=map_gpu:LIST";
const BURST_BUFFER: &str = "there are no burst buffers: stage files in the script";
const CONTAINER: &str = "OCI containers are not run: start the container in the script, such as `apptainer exec IMAGE \
                         COMMAND` or `podman run IMAGE COMMAND`";

const fn refused(
    long: &'static str,
    short: char,
    arg: Arg,
    tools: Tools,
    env: &'static [&'static str],
    why: &'static str,
) -> Opt {
    opt(long, short, arg, tools, env, "", refuse).refused(why)
}

fn refuse(_: &mut Asked, given: &Given<'_>) -> Result<(), Stop> {
    let Effect::Refused(why) = given.option.effect else { return Ok(()) };
    Err(given.not_done(why))
}

/// Refuses `--bbf`. A file that can't be read is reported first, as in Slurm.
fn burst_buffer_file(asked: &mut Asked, given: &Given<'_>) -> Result<(), Stop> {
    if std::fs::File::open(given.text()).is_err() {
        let remedy = given.remedy("the file can't be read");
        return Err(Stop::Bad { lines: vec!["Invalid --bbf specification".into(), remedy], exit: 1 });
    }
    refuse(asked, given)
}

/// Refuses `--x11`. Without a display, as is usual in scripts, the message is Slurm's.
fn x11(asked: &mut Asked, given: &Given<'_>) -> Result<(), Stop> {
    if std::env::var_os("DISPLAY").is_none_or(|display| display.is_empty()) {
        let line = "No DISPLAY variable set, cannot setup x11 forwarding.".to_owned();
        return Err(Stop::Bad { lines: vec![line], exit: 255 });
    }
    refuse(asked, given)
}
