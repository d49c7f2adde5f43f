//! Environment variables for tasks, so that MPI programs can be started without options.

use std::fs;
use std::path::Path;

use squall_engine::environment::Env;
use squall_model::step::{StepLaunch, TaskProgram};

use super::linked::Linked;
use crate::stepd::environment::Environment;
use crate::sys::host::{cpus, is_name_of_host};
use crate::sys::hwloc;

/// Variables of an outer step that are invalid in this one.
const STALE: [&str; 11] = [
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "PMIX_SERVER_URI2",
    "PMIX_SERVER_URI21",
    "PMIX_SERVER_URI3",
    "PMIX_SERVER_URI4",
    "PMIX_SERVER_URI41",
    "PMI_FD",
    "PMI_PORT",
    "PMI_ID",
    "PMI_RANK",
];

/// Environment variables in which the versions of the PMIx library look for the server's address.
const ADDRESSES: [&str; 5] =
    ["PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI2", "PMIX_SERVER_URI21"];

/// Number of the descriptor over which a task uses PMI.
pub(super) const PMI_FD: i32 = 3;

/// Devices that Open MPI's psm transports need; without them these transports only measure clocks, for 200 ms.
const PSM_DEVICES: [&str; 4] = ["/dev/hfi1", "/dev/hfi1_0", "/dev/ipath", "/dev/ipath0"];

/// Devices by which hwloc's plug-ins find graphics processors.
const GRAPHICS: [&str; 3] = ["/dev/dri", "/dev/nvidiactl", "/dev/kfd"];

/// Plug-ins of hwloc that every MPI program loads with all their libraries, and that find nothing without graphics
/// processors; the last one reads XML of other programs than hwloc.
const IDLE_PLUGINS: &str = "hwloc_gl,hwloc_opencl,hwloc_cuda,hwloc_nvml,hwloc_rsmi,hwloc_levelzero,hwloc_xml_libxml";

/// Whether the user wants no wire-up: `--mpi=none`.
pub(super) fn is_refused(program: &TaskProgram) -> bool {
    program.options.step.mpi.as_deref() == Some("none")
}

/// Removes the variables that an outer step has left.
pub(in crate::stepd) fn clear(env: &mut Environment) {
    for name in STALE {
        env.remove(name);
    }
}

/// Returns the variables that all tasks on this node share. `address`: where the PMIx server listens.
pub(super) fn shared(launch: &StepLaunch, nspace: &str, address: &str, folder: &Path) -> Env {
    let mut env: Env = vec![
        ("PMIX_NAMESPACE".into(), nspace.into()),
        ("PMIX_SECURITY_MODE".into(), "native".into()),
        ("PMIX_BFROP_BUFFER_TYPE".into(), "PMIX_BFROP_BUFFER_NON_DESC".into()),
        ("PMIX_GDS_MODULE".into(), "hash".into()),
        ("PMIX_SERVER_TMPDIR".into(), folder.to_string_lossy().into_owned()),
        ("PMIX_SYSTEM_TMPDIR".into(), folder.to_string_lossy().into_owned()),
        ("PMIX_HOSTNAME".into(), launch.node.clone()),
        ("PMI_FD".into(), PMI_FD.to_string()),
        ("PMI_SIZE".into(), launch.layout.ntasks().to_string()),
    ];
    let uri = format!("{nspace}.stepd.{};tcp4://{address}", launch.node_index);
    env.extend(ADDRESSES.map(|name| (name.to_owned(), uri.clone())));
    env
}

/// Returns the variables of one task.
pub(super) fn own(rank: u32) -> Env {
    vec![("PMIX_RANK".into(), rank.to_string()), ("PMI_RANK".into(), rank.to_string())]
}

/// Whether tasks have to share CPUs, with each other or with those of other nodes on this machine.
pub(super) fn is_crowded(launch: &StepLaunch) -> bool {
    let shared = !is_name_of_host(&launch.node) && launch.layout.ntasks() as usize > cpus();
    shared || launch.ranks().len() > launch.cores.len()
}

/// Sets variables that improve Open MPI's behaviour, unless the user has set them. `far`: other nodes of the step may
/// be on other machines.
pub(super) fn advise(env: &mut Environment, launch: &StepLaunch, folder: &Path, (linked, far): (Linked, bool)) {
    if !PSM_DEVICES.iter().any(|device| Path::new(device).exists()) {
        env.set_default("OMPI_MCA_mtl", "^psm,psm2,ofi");
    }
    if linked.shmem {
        // Only UCX carries OpenSHMEM, and without InfiniBand it has to be told that any transport will do.
        for (name, value) in
            [("pml", "ucx"), ("osc", "ucx"), ("opal_common_ucx_tls", "any"), ("opal_common_ucx_devices", "any")]
        {
            env.set_default(&format!("OMPI_MCA_{name}"), value);
        }
    }
    if is_crowded(launch) {
        env.set_default("OMPI_MCA_mpi_yield_when_idle", "1");
        env.set_default("MPIR_CVAR_POLLS_BEFORE_YIELD", "1");
    }
    if linked != Linked::default() && !GRAPHICS.iter().any(|device| Path::new(device).exists()) {
        env.set_default("HWLOC_PLUGINS_BLACKLIST", IDLE_PLUGINS);
        if linked.mpich && env.get("HWLOC_XMLFILE").is_none() {
            describe_machine(env, folder);
        }
    }
    if linked.mpich || linked.shmem {
        // Keeps UCX from starting a thread that offers its state to debuggers as files.
        env.set_default("UCX_VFS_ENABLE", "n");
    }
    // A folder that is removed with the step, and differs between nodes that share a machine.
    env.set_default("OMPI_MCA_btl_vader_backing_directory", &folder.to_string_lossy());
    if !is_name_of_host(&launch.node) && !far && env.get("OMPI_MCA_btl_tcp_if_exclude").is_none() {
        env.set_default("OMPI_MCA_btl_tcp_if_include", "lo");
        if linked.mpich || linked.shmem {
            env.set_default("UCX_NET_DEVICES", "lo");
        }
    }
}

/// Writes a description of the machine for MPICH, which would otherwise detect the hardware in each rank.
fn describe_machine(env: &mut Environment, folder: &Path) {
    let path = folder.join("machine.xml");
    let Some(machine) = hwloc::machine() else { return };
    if fs::write(&path, machine.trim_end_matches('\0')).is_ok() {
        env.set_default("HWLOC_XMLFILE", &path.to_string_lossy());
        env.set_default("HWLOC_THISSYSTEM", "1");
    }
}
