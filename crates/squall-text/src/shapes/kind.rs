//! Kinds of structured answers.

use super::Version;

/// Kind of a structured answer, which determines its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// Jobs as the controller knows them (`squeue`, `scontrol show job`).
    Jobs,
    /// Nodes (`scontrol show node`).
    Nodes,
    /// Partitions (`scontrol show partition`).
    Partitions,
    /// Reservations (`scontrol show reservation`).
    Reservations,
    /// Licenses (`scontrol show licenses`).
    Licenses,
    /// Fair shares (`sshare`).
    Shares,
    /// Counters of the controller (`sdiag`).
    Diag,
    /// Whether the controller answers (`scontrol ping`).
    Ping,
    /// Running steps (`scontrol show step`).
    Steps,
    /// Groups of similar nodes (`sinfo`).
    Groups,
    /// Jobs and steps in accounting (`sacct`).
    Accounting,
    /// Accounts (`sacctmgr show account`).
    Accounts,
    /// Users (`sacctmgr show user`).
    Users,
    /// Associations (`sacctmgr show association`).
    Associations,
    /// Levels of service (`sacctmgr show qos`).
    Qos,
    /// Clusters (`sacctmgr show cluster`).
    Clusters,
    /// Trackable resources (`sacctmgr show tres`).
    Tres,
    /// Workload keys (`sacctmgr show wckey`).
    Wckeys,
    /// Machines in a cloud on which nodes ran.
    Instances,
    /// All records of accounting in one answer.
    Config,
    /// Counters of accounting.
    DbDiag,
    /// Whether accounting answers.
    DbPing,
    /// A request was carried out.
    Done,
    /// A job was submitted.
    Submitted,
    /// An allocation was requested.
    Allocated,
    /// Jobs were changed.
    Changed,
    /// A job was cancelled or signalled.
    Killed,
    /// Several jobs were cancelled or signalled.
    KilledMany,
    /// Reservations were created or changed.
    Reserved,
    /// Levels of service were removed.
    RemovedQos,
    /// Associations were removed.
    RemovedAssociations,
    /// Accounts were removed.
    RemovedAccounts,
    /// Clusters were removed.
    RemovedClusters,
    /// Workload keys were removed.
    RemovedWckeys,
    /// Users were added.
    AddedUsers,
    /// Accounts were added.
    AddedAccounts,
    /// Cores, memory and devices of a job on each of its nodes.
    Resources,
    /// Records of jobs in accounting were changed.
    Recorded,
    /// Names of a host list.
    HostNames,
    /// A host list of names.
    HostList,
    /// A job was requeued.
    Requeued,
    /// Several jobs were requeued.
    RequeuedMany,
    /// Settings of the cluster by Slurm's names (`scontrol show config`).
    SlurmConf,
    /// Settings of accounting by Slurm's names.
    DbConf,
}

impl AnswerKind {
    /// All kinds of answers.
    pub const ALL: [Self; 44] = [
        Self::Jobs,
        Self::Nodes,
        Self::Partitions,
        Self::Reservations,
        Self::Licenses,
        Self::Shares,
        Self::Diag,
        Self::Ping,
        Self::Steps,
        Self::Groups,
        Self::Accounting,
        Self::Accounts,
        Self::Users,
        Self::Associations,
        Self::Qos,
        Self::Clusters,
        Self::Tres,
        Self::Wckeys,
        Self::Instances,
        Self::Config,
        Self::DbDiag,
        Self::DbPing,
        Self::Done,
        Self::Submitted,
        Self::Allocated,
        Self::Changed,
        Self::Killed,
        Self::KilledMany,
        Self::Reserved,
        Self::RemovedQos,
        Self::RemovedAssociations,
        Self::RemovedAccounts,
        Self::RemovedClusters,
        Self::RemovedWckeys,
        Self::AddedUsers,
        Self::AddedAccounts,
        Self::Resources,
        Self::Recorded,
        Self::HostNames,
        Self::HostList,
        Self::Requeued,
        Self::RequeuedMany,
        Self::SlurmConf,
        Self::DbConf,
    ];

    /// Records of accounting, which are all in [`AnswerKind::Config`].
    pub const RECORDS: [Self; 8] = [
        Self::Clusters,
        Self::Tres,
        Self::Accounts,
        Self::Users,
        Self::Qos,
        Self::Wckeys,
        Self::Associations,
        Self::Instances,
    ];

    /// Returns the records of accounting that [`AnswerKind::Config`] has in a version.
    pub fn records(version: Version) -> &'static [Self] {
        let all: &'static [Self] = &Self::RECORDS;
        // From v0.0.45 on, instances are not among them.
        if version < Version::V45 { all } else { &all[..all.len() - 1] }
    }

    /// Returns the facts about this kind: the name of its section in the table of fields (`v0.0.41.txt`), the name of
    /// the list of records, and Slurm's names of the answer and of a record in the OpenAPI document. Empty: none.
    fn facts(self) -> [&'static str; 4] {
        match self {
            Self::Jobs => ["jobs", "jobs", "openapi_job_info_resp", "job_info"],
            Self::Nodes => ["nodes", "nodes", "openapi_nodes_resp", "node"],
            Self::Partitions => ["partitions", "partitions", "openapi_partition_resp", "partition_info"],
            Self::Reservations => ["reservations", "reservations", "openapi_reservation_resp", "reservation_info"],
            Self::Licenses => ["licenses", "licenses", "openapi_licenses_resp", "license"],
            Self::Shares => ["shares", "", "openapi_shares_resp", ""],
            Self::Diag => ["diag", "", "openapi_diag_resp", ""],
            Self::Ping => ["ping", "pings", "openapi_ping_array_resp", "controller_ping"],
            Self::Steps => ["steps", "steps", "", ""],
            Self::Groups => ["sinfo", "sinfo", "", ""],
            Self::Accounting => ["slurmdb_jobs", "jobs", "openapi_slurmdbd_jobs_resp", "job"],
            Self::Accounts => ["accounts", "accounts", "openapi_accounts_resp", "account"],
            Self::Users => ["users", "users", "openapi_users_resp", "user"],
            Self::Associations => ["associations", "associations", "openapi_assocs_resp", "assoc"],
            Self::Qos => ["qos", "qos", "openapi_slurmdbd_qos_resp", "qos"],
            Self::Clusters => ["clusters", "clusters", "openapi_clusters_resp", "cluster_rec"],
            Self::Tres => ["tres", "TRES", "openapi_tres_resp", "tres"],
            Self::Wckeys => ["wckeys", "wckeys", "openapi_wckey_resp", "wckey"],
            Self::Instances => ["instances", "instances", "openapi_instances_resp", "instance"],
            Self::Config => ["config", "", "openapi_slurmdbd_config_resp", ""],
            Self::DbDiag => ["slurmdb_diag", "", "openapi_slurmdbd_stats_resp", ""],
            Self::DbPing => ["slurmdb_ping", "pings", "openapi_slurmdbd_ping_resp", "slurmdbd_ping"],
            Self::Done => ["done", "", "openapi_resp", ""],
            Self::Submitted => ["submitted", "", "openapi_job_submit_response", ""],
            Self::Allocated => ["allocated", "", "openapi_job_alloc_resp", ""],
            Self::Changed => ["changed", "results", "openapi_job_post_response", "job_array_response_msg_entry"],
            Self::Killed => ["killed", "status", "openapi_kill_job_resp", "kill_jobs_resp_job"],
            Self::KilledMany => ["killed_many", "status", "openapi_kill_jobs_resp", "kill_jobs_resp_job"],
            Self::Reserved => ["reserved", "reservations", "openapi_reservation_mod_resp", "reservation_desc_msg"],
            Self::RemovedQos => ["removed_qos", "", "openapi_slurmdbd_qos_removed_resp", ""],
            Self::RemovedAssociations => ["removed_associations", "", "openapi_assocs_removed_resp", ""],
            Self::RemovedAccounts => ["removed_accounts", "", "openapi_accounts_removed_resp", ""],
            Self::RemovedClusters => ["removed_clusters", "", "openapi_clusters_removed_resp", ""],
            Self::RemovedWckeys => ["removed_wckeys", "", "openapi_wckey_removed_resp", ""],
            Self::AddedUsers => ["added_users", "", "openapi_users_add_cond_resp_str", ""],
            Self::AddedAccounts => ["added_accounts", "", "openapi_accounts_add_cond_resp_str", ""],
            Self::Resources => ["resources", "nodes", "openapi_resource_layout_resp", "node_resource_layout"],
            Self::Recorded => ["recorded", "", "openapi_job_modify_resp", ""],
            Self::HostNames => ["hostnames", "", "openapi_hostnames_req_resp", ""],
            Self::HostList => ["hostlist", "", "openapi_hostlist_req_resp", ""],
            Self::Requeued => ["requeued", "status", "openapi_job_requeue_resp", "job_array_response_msg_entry"],
            Self::RequeuedMany => ["requeued_many", "", "openapi_jobs_requeue_resp", ""],
            Self::SlurmConf => ["slurm_conf", "", "openapi_conf_resp", ""],
            Self::DbConf => ["slurmdbd_conf", "", "openapi_slurmdbd_conf_resp", ""],
        }
    }

    /// Returns the name of the section about this kind in the table of fields (`v0.0.41.txt`).
    pub fn name(self) -> &'static str {
        self.facts()[0]
    }

    /// Returns the name of the list of records in an answer, such as `jobs`. Empty: it lists none.
    pub fn list(self) -> &'static str {
        self.facts()[1]
    }

    /// Returns Slurm's name of the answer in the OpenAPI document of a version, without its
    /// prefix. Empty: no path gives it.
    pub fn component(self, version: Version) -> &'static str {
        // Before v0.0.42, nothing but errors was said of a job that is cancelled.
        let kind = if self == Self::Killed && version < Version::V42 { Self::Done } else { self };
        kind.facts()[2]
    }

    /// Returns Slurm's name of a record of the answer in the OpenAPI document, without the version. Empty: none.
    pub fn record_component(self) -> &'static str {
        self.facts()[3]
    }

    /// Returns whether answers say when they were last changed.
    pub fn is_dated(self) -> bool {
        matches!(self, Self::Jobs | Self::Nodes | Self::Partitions | Self::Reservations | Self::Licenses | Self::Steps)
    }
}
