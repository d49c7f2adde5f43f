//! What tasks are told by their environment, so that MPI programs find each other without being told by the user.

use std::fs;
use std::path::Path;

use squall_engine::environment::Env;
use squall_model::step::{StepLaunch, TaskProgram};

use super::linked::Linked;
use crate::stepd::environment::Environment;
use crate::sys::host::{cpus, is_name_of_host};
use crate::sys::hwloc;

/// Variables of an outer step that mean nothing in this one.
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

/// The server's address under the names by which the versions of the library look for it.
const ADDRESSES: [&str; 5] =
    ["PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI2", "PMIX_SERVER_URI21"];

/// The descriptor over which a task speaks PMI.
pub(super) const PMI_FD: i32 = 3;

/// Devices for which Open MPI's psm transports are; without one they do nothing but measure clocks, for 200 ms.
const PSM_DEVICES: [&str; 4] = ["/dev/hfi1", "/dev/hfi1_0", "/dev/ipath", "/dev/ipath0"];

/// Devices for which hwloc's plug-ins look for graphics processors.
const GRAPHICS: [&str; 3] = ["/dev/dri", "/dev/nvidiactl", "/dev/kfd"];

/// Plug-ins that every MPI program loads with all their libraries, and that find nothing without such devices; and one for
/// XML of other makers than hwloc.
const IDLE_PLUGINS: &str = "hwloc_gl,hwloc_opencl,hwloc_cuda,hwloc_nvml,hwloc_rsmi,hwloc_levelzero,hwloc_xml_libxml";

/// Whether the user wants none of this: `--mpi=none`.
pub(super) fn is_refused(program: &TaskProgram) -> bool {
    program.options.step.mpi.as_deref() == Some("none")
}

/// Takes away what an outer step has left.
pub(in crate::stepd) fn clear(env: &mut Environment) {
    for name in STALE {
        env.remove(name);
    }
}

/// What all tasks here share. `address`: where the PMIx server listens.
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

/// What one task gets.
pub(super) fn own(rank: u32) -> Env {
    vec![("PMIX_RANK".into(), rank.to_string()), ("PMI_RANK".into(), rank.to_string())]
}

/// Whether tasks have to share CPUs: with each other, or with those of other nodes on this machine.
pub(super) fn is_crowded(launch: &StepLaunch) -> bool {
    let shared = !is_name_of_host(&launch.node) && launch.layout.ntasks() as usize > cpus();
    shared || launch.ranks().len() > launch.cores.len()
}

/// What Open MPI does better when it is told, where the user has not told it anything himself. `far`: other nodes of the
/// step may be on other machines.
pub(super) fn advise(env: &mut Environment, launch: &StepLaunch, folder: &Path, (linked, far): (Linked, bool)) {
    if !PSM_DEVICES.iter().any(|device| Path::new(device).exists()) {
        env.set_default("OMPI_MCA_mtl", "^psm,psm2,ofi");
    }
    if linked.shmem {
        // Nothing else carries OpenSHMEM, and without its hardware it has to be told that any will do.
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
        // UCX need not offer a debugger files that show how it is, for which it starts a thread.
        env.set_default("UCX_VFS_ENABLE", "n");
    }
    // What tasks share lies where it is removed with the step, and where nodes that share a machine don't meet.
    env.set_default("OMPI_MCA_btl_vader_backing_directory", &folder.to_string_lossy());
    if !is_name_of_host(&launch.node) && !far && env.get("OMPI_MCA_btl_tcp_if_exclude").is_none() {
        env.set_default("OMPI_MCA_btl_tcp_if_include", "lo");
        if linked.mpich || linked.shmem {
            env.set_default("UCX_NET_DEVICES", "lo");
        }
    }
}

/// MPICH looks at the machine itself, at each rank, unless a file says what there is.
fn describe_machine(env: &mut Environment, folder: &Path) {
    let path = folder.join("machine.xml");
    let Some(machine) = hwloc::machine() else { return };
    if fs::write(&path, machine.trim_end_matches('\0')).is_ok() {
        env.set_default("HWLOC_XMLFILE", &path.to_string_lossy());
        env.set_default("HWLOC_THISSYSTEM", "1");
    }
}
