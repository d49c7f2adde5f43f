//! Slurm's names for pending reasons that are limits.

use squall_model::policy::{Limit, Scope, Tres, Whose};

/// Returns Slurm's name of the pending reason for a limit.
pub fn limit_reason(whose: Whose, limit: Limit) -> &'static str {
    match (whose, limit.tres()) {
        (Whose::Association, Some(tres)) => return association_reason(limit.scope(), tres),
        (Whose::Qos, Some(tres)) => return qos_reason(limit.scope(), tres),
        (_, None) => {}
    }
    match (whose, limit) {
        (Whose::Association, Limit::GrpJobs) => "AssocGrpJobsLimit",
        (Whose::Association, Limit::GrpSubmit) => "AssocGrpSubmitJobsLimit",
        (Whose::Association, Limit::GrpWall) => "AssocGrpWallLimit",
        (Whose::Association, Limit::MaxJobs | Limit::UserJobs) => "AssocMaxJobsLimit",
        (Whose::Association, Limit::MaxSubmit | Limit::UserSubmit) => "AssocMaxSubmitJobLimit",
        (Whose::Association, _) => "AssocMaxWallDurationPerJobLimit",
        (Whose::Qos, Limit::GrpJobs) => "QOSGrpJobsLimit",
        (Whose::Qos, Limit::GrpSubmit) => "QOSGrpSubmitJobsLimit",
        (Whose::Qos, Limit::GrpWall) => "QOSGrpWallLimit",
        (Whose::Qos, Limit::MaxJobs | Limit::UserJobs) => "QOSMaxJobsPerUserLimit",
        (Whose::Qos, Limit::MaxSubmit | Limit::UserSubmit) => "QOSMaxSubmitJobPerUserLimit",
        (Whose::Qos, Limit::AccountJobs) => "MaxJobsPerAccount",
        (Whose::Qos, Limit::AccountSubmit) => "MaxSubmitJobsPerAccount",
        (Whose::Qos, _) => "QOSMaxWallDurationPerJobLimit",
    }
}

fn association_reason(scope: Scope, tres: Tres) -> &'static str {
    let names = match scope {
        Scope::GrpUsed => {
            ["AssocGrpCPUMinutesLimit", "AssocGrpMemMinutes", "AssocGrpNodeMinutes", "AssocGrpGRESMinutes"]
        }
        Scope::GrpDue => {
            ["AssocGrpCPURunMinutesLimit", "AssocGrpMemRunMinutes", "AssocGrpNodeRunMinutes", "AssocGrpGRESRunMinutes"]
        }
        Scope::JobDue => [
            "AssocMaxCpuMinutesPerJobLimit",
            "AssocMaxMemMinutesPerJob",
            "AssocMaxNodeMinutesPerJob",
            "AssocMaxGRESMinutesPerJob",
        ],
        Scope::Node => ["AssocMaxCpuPerNode", "AssocMaxMemPerNode", "AssocMaxNodePerNode", "AssocMaxGRESPerNode"],
        Scope::Grp => ["AssocGrpCpuLimit", "AssocGrpMemLimit", "AssocGrpNodeLimit", "AssocGrpGRES"],
        Scope::Job | Scope::User | Scope::Account | Scope::Least => {
            ["AssocMaxCpuPerJobLimit", "AssocMaxMemPerJob", "AssocMaxNodePerJobLimit", "AssocMaxGRESPerJob"]
        }
    };
    of_tres(tres, names)
}

fn qos_reason(scope: Scope, tres: Tres) -> &'static str {
    let names = match scope {
        Scope::GrpUsed => ["QOSGrpCPUMinutesLimit", "QOSGrpMemoryMinutes", "QOSGrpNodeMinutes", "QOSGrpGRESMinutes"],
        Scope::GrpDue => {
            ["QOSGrpCPURunMinutesLimit", "QOSGrpMemoryRunMinutes", "QOSGrpNodeRunMinutes", "QOSGrpGRESRunMinutes"]
        }
        Scope::JobDue => [
            "QOSMaxCpuMinutesPerJobLimit",
            "QOSMaxMemoryMinutesPerJob",
            "QOSMaxNodeMinutesPerJob",
            "QOSMaxGRESMinutesPerJob",
        ],
        Scope::Node => ["QOSMaxCpuPerNode", "QOSMaxMemoryPerNode", "QOSMaxNodePerNode", "QOSMaxGRESPerNode"],
        Scope::Grp => ["QOSGrpCpuLimit", "QOSGrpMemLimit", "QOSGrpNodeLimit", "QOSGrpGRES"],
        Scope::Job => ["QOSMaxCpuPerJobLimit", "QOSMaxMemoryPerJob", "QOSMaxNodePerJobLimit", "QOSMaxGRESPerJob"],
        Scope::User => ["QOSMaxCpuPerUserLimit", "QOSMaxMemoryPerUser", "QOSMaxNodePerUserLimit", "QOSMaxGRESPerUser"],
        Scope::Account => ["MaxCpuPerAccount", "MaxMemoryPerAccount", "MaxNodePerAccount", "MaxGRESPerAccount"],
        Scope::Least => ["QOSMinCpuNotSatisfied", "QOSMinMemory", "QOSMinNode", "QOSMinGRES"],
    };
    of_tres(tres, names)
}

fn of_tres(tres: Tres, [cpu, mem, node, gpu]: [&'static str; 4]) -> &'static str {
    match tres {
        Tres::Cpu => cpu,
        Tres::Mem => mem,
        Tres::Node => node,
        Tres::Gpu => gpu,
    }
}
