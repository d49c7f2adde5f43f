//! Options of Slurm that would change what runs and that Squall does not support: each is refused by name.

use crate::options::Arg::{Maybe, Needed, None as Flag};
use crate::options::submit::SubmitOptions;
use crate::options::{Arg, Effect, GivenOption, NO, Opt, Stop, Tools, opt};

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
        "container-id",
        NO,
        Needed("ID"),
        Tools::ALL,
        &["SBATCH_CONTAINER_ID", "SALLOC_CONTAINER_ID", "SRUN_CONTAINER_ID"],
        "containers are named by job, step and rank: leave it out",
    ),
    refused(
        "container-type",
        NO,
        Needed("TYPE"),
        Tools::ALL,
        &[],
        "which runtime starts containers is the cluster's configuration (container_runtime): leave it out",
    ),
    refused(
        "context",
        NO,
        Needed("NAME"),
        Tools::ALL,
        &[],
        "tasks keep the security context of the node daemon; use runcon in the script",
    ),
    refused("debugger-test", NO, Flag, Tools::SRUN, &[], "it is for tests of Slurm itself: leave it out"),
    refused(
        "external-launcher",
        NO,
        Maybe("ARGS"),
        Tools::SRUN,
        &[],
        "a step has tasks of its own: let the launcher call srun --overlap",
    ),
    refused(
        "ignore-signals",
        NO,
        Needed("SIGNALS"),
        Tools::SRUN,
        &[],
        "srun passes on what it gets: leave it out, and use the shell's `trap` around srun",
    ),
    refused("mcs-label", NO, Needed("LABEL"), Tools::ALL, &[], "there is no multi-category security: leave it out"),
    refused(
        "mem-update",
        NO,
        Needed("<margin>@<delay>"),
        Tools::ALL,
        &[],
        "a running job keeps its memory: ask for the most that it needs, by --mem",
    ),
    refused("no-allocate", 'Z', Flag, Tools::SRUN, &[], "tasks run in allocations only; leave the option out"),
    refused(
        "power",
        NO,
        Needed("FLAGS"),
        Tools::ALL,
        &["SBATCH_POWER", "SALLOC_POWER", "SLURM_POWER"],
        "the power that nodes draw is not limited: leave it out",
    ),
    refused(
        "resources",
        NO,
        Needed("LIST"),
        Tools::ALL,
        &[],
        "resources are asked for one by one: use --nodes, --ntasks, --cpus-per-task, --mem, --gres and --licenses",
    ),
    refused(
        "resv-ports",
        NO,
        Maybe("COUNT"),
        Tools::SBATCH.and(Tools::SALLOC),
        &[],
        "ports are reserved for steps: give it to srun",
    ),
    refused(
        "treewidth",
        NO,
        Needed("WIDTH"),
        Tools::SRUN,
        &[],
        "messages take the cluster's tree (tree_width of its configuration): leave it out",
    ),
];

const ACCEL_BIND: &str = "which GPUs are near which CPUs is not known to tasks: use --gpu-bind=map_gpu:LIST";
const BURST_BUFFER: &str = "there are no burst buffers: stage files in the script";

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

fn refuse(_: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    match given.option.effect {
        Effect::Refused(why) if given.set => Err(given.not_done(why)),
        _ => Ok(()),
    }
}

/// Refuses `--bbf`. A file that can't be read is reported first, as in Slurm.
fn burst_buffer_file(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    if std::fs::File::open(given.text()).is_err() {
        let remedy = given.remedy("the file can't be read");
        return Err(Stop::Bad { lines: vec!["Invalid --bbf specification".into(), remedy], exit: 1 });
    }
    refuse(asked, given)
}
