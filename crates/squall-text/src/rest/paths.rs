//! The paths of Slurm's REST interface: the server finds its operations in this table, and the OpenAPI document is made
//! of it.

use crate::shapes::{AnswerKind, Version};

/// HTTP method of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Creates or changes.
    Post,
    /// Removes or ends.
    Delete,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the paths in the table say it")]
pub enum Operation {
    GetShares,
    Reconfigure,
    GetDiag,
    Ping,
    GetLicenses,
    SubmitJob,
    AllocateJob,
    GetJobs,
    KillJobs,
    GetJobStates,
    GetJob,
    UpdateJob,
    KillJob,
    GetNodes,
    UpdateNodes,
    GetNode,
    UpdateNode,
    DeleteNode,
    GetPartitions,
    GetPartition,
    GetReservations,
    GetReservation,
    PostReservations,
    PostReservation,
    DeleteReservation,
    GetPastJobs,
    GetPastJob,
    GetConfig,
    PostConfig,
    GetTres,
    PostTres,
    GetQos,
    GetOneQos,
    PostQos,
    DeleteQos,
    GetAssociations,
    GetAssociation,
    PostAssociations,
    DeleteAssociations,
    DeleteAssociation,
    GetInstances,
    GetInstance,
    GetUsers,
    GetUser,
    PostUsers,
    PostUsersAssociation,
    DeleteUser,
    GetClusters,
    GetCluster,
    PostClusters,
    DeleteCluster,
    GetWckeys,
    GetWckey,
    PostWckeys,
    DeleteWckey,
    GetAccounts,
    GetAccount,
    PostAccounts,
    PostAccountsAssociation,
    DeleteAccount,
    GetPastDiag,
    PingPast,
    GetResources,
    CreateNode,
    RecordJobs,
    RecordJob,
    HostNames,
    HostList,
    RequeueJob,
    RequeueJobs,
    PostPartitions,
    DeletePartition,
    GetConf,
    GetPastConf,
}

/// A path with one method.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The method.
    pub method: Method,
    /// The path, with `{v}` in place of the version and names of further parameters in braces. A slash at its end may
    /// be left out in requests.
    pub path: &'static str,
    /// What a request asks for.
    pub operation: Operation,
    /// Slurm's name of the operation, as `get_jobs`.
    pub name: &'static str,
    /// Kind of the answer.
    pub answer: AnswerKind,
    /// Slurm's name of the body in the OpenAPI document, without the version. Empty: there is none.
    pub body: &'static str,
    /// Names of the parameters of the query.
    pub query: &'static [&'static str],
    /// First version that has the path.
    pub since: Version,
}

impl Path {
    /// Returns Slurm's id of the operation in a version, as `slurm_v0041_get_jobs`.
    pub fn id(&self, version: Version) -> String {
        format!("{}_{}_{}", self.tag(), version.name().replace('.', ""), self.name)
    }

    /// Returns the group of the path: `slurm`, `slurmdb` or `util`.
    pub fn tag(&self) -> &'static str {
        self.path.split('/').nth(1).unwrap_or_default()
    }

    /// Returns whether a request may change something. Slurm has paths that do so by `GET`.
    pub fn changes(&self) -> bool {
        self.method != Get || matches!(self.operation, O::Reconfigure | O::RequeueJob)
    }

    /// Returns the path in a version.
    pub fn at(&self, version: Version) -> String {
        self.path.replace("{v}", version.name())
    }

    /// Returns the names of the parameters in the path, without the version.
    pub fn parameters(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).filter(|name| *name != "v")
    }

    const fn query(mut self, query: &'static [&'static str]) -> Self {
        self.query = query;
        self
    }

    const fn body(mut self, body: &'static str) -> Self {
        self.body = body;
        self
    }

    const fn since(mut self, since: Version) -> Self {
        self.since = since;
        self
    }
}

const fn on(method: Method, path: &'static str, operation: Operation, name: &'static str, answer: AnswerKind) -> Path {
    Path { method, path, operation, name, answer, body: "", query: &[], since: Version::V40 }
}

use AnswerKind as K;
use Method::{Delete, Get, Post};
use Operation as O;

const CHANGED: &[&str] = &["update_time", "flags"];
const WITH: &[&str] = &["with_deleted", "with_assocs", "with_coords", "with_wckeys"];
const ACCOUNT_WITH: &[&str] = &["with_assocs", "with_coords", "with_deleted"];
const QOS: &[&str] = &["description", "id", "format", "name", "preempt_mode", "with_deleted"];
const WCKEYS: &[&str] = &[
    "cluster",
    "format",
    "id",
    "name",
    "only_defaults",
    "usage_end",
    "usage_start",
    "user",
    "with_usage",
    "with_deleted",
];
const INSTANCES: &[&str] =
    &["cluster", "extra", "format", "instance_id", "instance_type", "node_list", "time_end", "time_start"];
const CLUSTERS: &[&str] = &[
    "classification",
    "cluster",
    "federation",
    "flags",
    "format",
    "rpc_version",
    "usage_end",
    "usage_start",
    "with_deleted",
    "with_usage",
];
const ASSOCIATIONS: &[&str] = &[
    "account",
    "cluster",
    "default_qos",
    "format",
    "id",
    "only_defaults",
    "parent_account",
    "partition",
    "qos",
    "usage_end",
    "usage_start",
    "user",
    "with_usage",
    "with_deleted",
    "with_raw_qos",
    "with_sub_accts",
    "without_parent_info",
    "without_parent_limits",
];
const PAST_JOBS: &[&str] = &[
    "account",
    "association",
    "cluster",
    "constraints",
    "scheduler_unset",
    "scheduled_on_submit",
    "scheduled_by_main",
    "scheduled_by_backfill",
    "job_started",
    "exit_code",
    "show_duplicates",
    "skip_steps",
    "disable_truncate_usage_time",
    "whole_hetjob",
    "disable_whole_hetjob",
    "disable_wait_for_result",
    "usage_time_as_submit_time",
    "show_batch_script",
    "show_job_environment",
    "cpus_max",
    "cpus_min",
    "nodes_max",
    "nodes_min",
    "timelimit_max",
    "timelimit_min",
    "submit_time",
    "format",
    "groups",
    "job_name",
    "partition",
    "qos",
    "reason",
    "reservation",
    "reservation_id",
    "state",
    "step",
    "end_time",
    "start_time",
    "node",
    "users",
    "wckey",
    "job_altered",
];

/// All paths.
#[rustfmt::skip]
pub static PATHS: &[Path] = &[
    on(Get, "/slurm/{v}/shares", O::GetShares, "get_shares", K::Shares).query(&["accounts", "users"]),
    on(Get, "/slurm/{v}/reconfigure/", O::Reconfigure, "get_reconfigure", K::Done),
    on(Get, "/slurm/{v}/diag/", O::GetDiag, "get_diag", K::Diag),
    on(Get, "/slurm/{v}/ping/", O::Ping, "get_ping", K::Ping),
    on(Get, "/slurm/{v}/licenses/", O::GetLicenses, "get_licenses", K::Licenses),
    on(Post, "/slurm/{v}/job/submit", O::SubmitJob, "post_job_submit", K::Submitted).body("job_submit_req"),
    on(Post, "/slurm/{v}/job/allocate", O::AllocateJob, "post_job_allocate", K::Allocated).body("job_alloc_req").since(Version::V41),
    on(Get, "/slurm/{v}/jobs/", O::GetJobs, "get_jobs", K::Jobs).query(CHANGED),
    on(Delete, "/slurm/{v}/jobs/", O::KillJobs, "delete_jobs", K::KilledMany).body("kill_jobs_msg"),
    on(Get, "/slurm/{v}/jobs/state/", O::GetJobStates, "get_jobs_state", K::Jobs).query(&["job_id"]),
    on(Get, "/slurm/{v}/job/{job_id}", O::GetJob, "get_job", K::Jobs).query(CHANGED),
    on(Post, "/slurm/{v}/job/{job_id}", O::UpdateJob, "post_job", K::Changed).body("job_desc_msg"),
    on(Delete, "/slurm/{v}/job/{job_id}", O::KillJob, "delete_job", K::Killed).query(&["signal", "flags"]),
    on(Get, "/slurm/{v}/nodes/", O::GetNodes, "get_nodes", K::Nodes).query(CHANGED),
    on(Post, "/slurm/{v}/nodes/", O::UpdateNodes, "post_nodes", K::Done).body("update_node_msg"),
    on(Get, "/slurm/{v}/node/{node_name}", O::GetNode, "get_node", K::Nodes).query(CHANGED),
    on(Post, "/slurm/{v}/node/{node_name}", O::UpdateNode, "post_node", K::Done).body("update_node_msg"),
    on(Delete, "/slurm/{v}/node/{node_name}", O::DeleteNode, "delete_node", K::Done),
    on(Get, "/slurm/{v}/partitions/", O::GetPartitions, "get_partitions", K::Partitions).query(CHANGED),
    on(Get, "/slurm/{v}/partition/{partition_name}", O::GetPartition, "get_partition", K::Partitions).query(CHANGED),
    on(Get, "/slurm/{v}/reservations/", O::GetReservations, "get_reservations", K::Reservations).query(&["update_time"]),
    on(Post, "/slurm/{v}/reservations/", O::PostReservations, "post_reservations", K::Reserved).body("reservation_mod_req").since(Version::V43),
    on(Get, "/slurm/{v}/reservation/{reservation_name}", O::GetReservation, "get_reservation", K::Reservations).query(&["update_time"]),
    on(Delete, "/slurm/{v}/reservation/{reservation_name}", O::DeleteReservation, "delete_reservation", K::Done).since(Version::V43),
    on(Post, "/slurm/{v}/reservation", O::PostReservation, "post_reservation", K::Reserved).body("reservation_desc_msg").since(Version::V43),
    on(Get, "/slurmdb/{v}/jobs/", O::GetPastJobs, "get_jobs", K::Accounting).query(PAST_JOBS),
    on(Get, "/slurmdb/{v}/job/{job_id}", O::GetPastJob, "get_job", K::Accounting),
    on(Get, "/slurmdb/{v}/config", O::GetConfig, "get_config", K::Config),
    on(Post, "/slurmdb/{v}/config", O::PostConfig, "post_config", K::Done).body("openapi_slurmdbd_config_resp"),
    on(Get, "/slurmdb/{v}/tres/", O::GetTres, "get_tres", K::Tres),
    on(Post, "/slurmdb/{v}/tres/", O::PostTres, "post_tres", K::Done).body("openapi_tres_resp"),
    on(Get, "/slurmdb/{v}/qos/", O::GetQos, "get_qos", K::Qos).query(QOS),
    on(Post, "/slurmdb/{v}/qos/", O::PostQos, "post_qos", K::Done).query(QOS).body("openapi_slurmdbd_qos_resp"),
    on(Get, "/slurmdb/{v}/qos/{qos}", O::GetOneQos, "get_single_qos", K::Qos).query(&["with_deleted"]),
    on(Delete, "/slurmdb/{v}/qos/{qos}", O::DeleteQos, "delete_single_qos", K::RemovedQos),
    on(Get, "/slurmdb/{v}/associations/", O::GetAssociations, "get_associations", K::Associations).query(ASSOCIATIONS),
    on(Post, "/slurmdb/{v}/associations/", O::PostAssociations, "post_associations", K::Done).body("openapi_assocs_resp"),
    on(Delete, "/slurmdb/{v}/associations/", O::DeleteAssociations, "delete_associations", K::RemovedAssociations).query(ASSOCIATIONS),
    on(Get, "/slurmdb/{v}/association/", O::GetAssociation, "get_association", K::Associations).query(ASSOCIATIONS),
    on(Delete, "/slurmdb/{v}/association/", O::DeleteAssociation, "delete_association", K::RemovedAssociations).query(ASSOCIATIONS),
    on(Get, "/slurmdb/{v}/instances/", O::GetInstances, "get_instances", K::Instances).query(INSTANCES),
    on(Get, "/slurmdb/{v}/instance/", O::GetInstance, "get_instance", K::Instances).query(INSTANCES),
    on(Get, "/slurmdb/{v}/users/", O::GetUsers, "get_users", K::Users).query(&["admin_level", "default_account", "default_wckey", "with_assocs", "with_coords", "with_deleted", "with_wckeys", "without_defaults"]),
    on(Post, "/slurmdb/{v}/users/", O::PostUsers, "post_users", K::Done).body("openapi_users_resp"),
    on(Post, "/slurmdb/{v}/users_association/", O::PostUsersAssociation, "post_users_association", K::AddedUsers).query(CHANGED).body("openapi_users_add_cond_resp"),
    on(Get, "/slurmdb/{v}/user/{name}", O::GetUser, "get_user", K::Users).query(WITH),
    on(Delete, "/slurmdb/{v}/user/{name}", O::DeleteUser, "delete_user", K::Done),
    on(Get, "/slurmdb/{v}/clusters/", O::GetClusters, "get_clusters", K::Clusters).query(&["update_time"]),
    on(Post, "/slurmdb/{v}/clusters/", O::PostClusters, "post_clusters", K::Done).query(&["update_time"]).body("openapi_clusters_resp"),
    on(Get, "/slurmdb/{v}/cluster/{cluster_name}", O::GetCluster, "get_cluster", K::Clusters).query(CLUSTERS),
    on(Delete, "/slurmdb/{v}/cluster/{cluster_name}", O::DeleteCluster, "delete_cluster", K::RemovedClusters).query(CLUSTERS),
    on(Get, "/slurmdb/{v}/wckeys/", O::GetWckeys, "get_wckeys", K::Wckeys).query(WCKEYS),
    on(Post, "/slurmdb/{v}/wckeys/", O::PostWckeys, "post_wckeys", K::Done).query(WCKEYS).body("openapi_wckey_resp"),
    on(Get, "/slurmdb/{v}/wckey/{id}", O::GetWckey, "get_wckey", K::Wckeys),
    on(Delete, "/slurmdb/{v}/wckey/{id}", O::DeleteWckey, "delete_wckey", K::RemovedWckeys),
    on(Get, "/slurmdb/{v}/accounts/", O::GetAccounts, "get_accounts", K::Accounts).query(&["description", "with_assocs", "with_coords", "with_deleted", "DELETED", "WithAssociations", "WithCoordinators", "NoUsersAreCoords", "UsersAreCoords"]),
    on(Post, "/slurmdb/{v}/accounts/", O::PostAccounts, "post_accounts", K::Done).body("openapi_accounts_resp"),
    on(Post, "/slurmdb/{v}/accounts_association/", O::PostAccountsAssociation, "post_accounts_association", K::AddedAccounts).body("openapi_accounts_add_cond_resp"),
    on(Get, "/slurmdb/{v}/account/{account_name}", O::GetAccount, "get_account", K::Accounts).query(ACCOUNT_WITH),
    on(Delete, "/slurmdb/{v}/account/{account_name}", O::DeleteAccount, "delete_account", K::RemovedAccounts),
    on(Get, "/slurmdb/{v}/diag/", O::GetPastDiag, "get_diag", K::DbDiag),
    on(Get, "/slurmdb/{v}/ping/", O::PingPast, "get_ping", K::DbPing).since(Version::V42),
    on(Get, "/slurm/{v}/resources/{job_id}", O::GetResources, "get_resources", K::Resources).since(Version::V44),
    on(Post, "/slurm/{v}/new/node/", O::CreateNode, "post_new_node", K::Done).body("openapi_create_node_req").since(Version::V44),
    on(Post, "/slurmdb/{v}/jobs/", O::RecordJobs, "post_jobs", K::Recorded).body("openapi_job_modify_req").since(Version::V44),
    on(Post, "/slurmdb/{v}/job/{job_id}", O::RecordJob, "post_job", K::Recorded).body("job_modify").since(Version::V44),
    on(Post, "/util/{v}/hostnames", O::HostNames, "post_hostnames", K::HostNames).body("openapi_hostlist_req_resp").since(Version::V44),
    on(Post, "/util/{v}/hostlist", O::HostList, "post_hostlist", K::HostList).body("openapi_hostnames_req_resp").since(Version::V44),
    on(Get, "/slurm/{v}/job/{job_id}/requeue", O::RequeueJob, "get_job_requeue", K::Requeued).query(&["Incomplete", "Hold", "SpecialExit"]).since(Version::V45),
    on(Post, "/slurm/{v}/jobs/requeue", O::RequeueJobs, "post_jobs_requeue", K::RequeuedMany).body("openapi_jobs_requeue_query").since(Version::V45),
    on(Post, "/slurm/{v}/partitions/", O::PostPartitions, "post_partitions", K::Done).body("openapi_partitions_mod_req").since(Version::V45),
    on(Delete, "/slurm/{v}/partition/{partition_name}", O::DeletePartition, "delete_partition", K::Done).since(Version::V45),
    on(Get, "/slurm/{v}/conf", O::GetConf, "get_conf", K::SlurmConf).query(&["update_time"]).since(Version::V45),
    on(Get, "/slurmdb/{v}/conf", O::GetPastConf, "get_conf", K::DbConf).since(Version::V45),
];

fn segments(path: &str) -> Vec<&str> {
    path.split('/').filter(|segment| !segment.is_empty()).collect()
}

/// Returns the path of a request, its version, and the values of the parameters in the path. None: there is no such
/// path in the version, or not with the method. The segments are not decoded. Empty ones do not count, as in Slurm: some
/// clients join an address and a path by a slash too many.
pub fn find(method: Method, path: &str) -> Option<(&'static Path, Version, Vec<&str>)> {
    let given = segments(path);
    let version = Version::parse(given.get(1)?)?;
    let values = |known: &'static str| {
        let known = segments(known);
        let fits = |(known, given): (&&str, &&str)| known == given || known.starts_with('{');
        let values = || known.iter().zip(&given).skip(2).filter(|(known, _)| known.starts_with('{'));
        (known.len() == given.len() && known.iter().zip(&given).all(fits))
            .then(|| values().map(|(_, given)| *given).collect())
    };
    let mut all = PATHS.iter().filter(|known| known.method == method && known.since <= version);
    // Paths without parameters come first: `job/submit` is not a job.
    let exact = all.clone().find(|known| known.parameters().next().is_none() && values(known.path).is_some());
    let known = exact.or_else(|| all.find(|known| values(known.path).is_some()))?;
    Some((known, version, values(known.path)?))
}

#[cfg(test)]
mod tests {
    use super::{Method, Operation, PATHS, find};
    use crate::shapes::Version;

    fn found(method: Method, path: &str) -> Option<(Operation, Version, Vec<&str>)> {
        find(method, path).map(|(known, version, values)| (known.operation, version, values))
    }

    #[test]
    fn paths_are_found() {
        let jobs = Some((Operation::GetJobs, Version::V41, Vec::new()));
        assert_eq!(found(Method::Get, "/slurm/v0.0.41/jobs/"), jobs);
        assert_eq!(found(Method::Get, "/slurm/v0.0.41/jobs"), jobs);
        assert_eq!(found(Method::Get, "//slurm//v0.0.41/jobs"), jobs);
        assert_eq!(found(Method::Get, "/slurm/v0.0.42/job/7"), Some((Operation::GetJob, Version::V42, vec!["7"])));
        assert_eq!(
            found(Method::Post, "/slurm/v0.0.42/job/submit"),
            Some((Operation::SubmitJob, Version::V42, vec![]))
        );
        assert_eq!(
            found(Method::Post, "/slurm/v0.0.42/job/7_1"),
            Some((Operation::UpdateJob, Version::V42, vec!["7_1"]))
        );
        for missing in [
            "/slurm/v0.0.39/jobs",
            "/slurm/v0.0.41/nosuch",
            "/slurm",
            "",
            "/slurmdb/v0.0.41/ping",
            "/slurm/v0.0.41/job//",
            "/slurm/v0.0.43/resources/7",
            "/slurm/v0.0.44/job/7/requeue",
        ] {
            assert_eq!(found(Method::Get, missing), None, "{missing}");
        }
    }

    #[test]
    fn what_changes_something_is_known() {
        let changes = |method, path| find(method, path).map(|(known, ..)| known.changes());
        assert_eq!(changes(Method::Get, "/slurm/v0.0.45/job/7"), Some(false));
        for path in ["/slurm/v0.0.45/job/7/requeue", "/slurm/v0.0.45/reconfigure"] {
            assert_eq!(changes(Method::Get, path), Some(true), "{path}");
        }
        assert_eq!(changes(Method::Delete, "/slurm/v0.0.45/partition/p"), Some(true));
    }

    #[test]
    fn each_operation_has_one_path_and_ids_differ() {
        for (at, one) in PATHS.iter().enumerate() {
            for other in &PATHS[..at] {
                assert_ne!(one.operation, other.operation);
                assert_ne!(one.id(Version::V41), other.id(Version::V41));
            }
        }
    }
}
