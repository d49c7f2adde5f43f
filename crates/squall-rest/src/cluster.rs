//! The cluster as the server sees it: parts of its state, and requests as a user.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use squall_client::{Client, ClientError, unexpected};
use squall_files::place::Place;
use squall_model::config::Config;
use squall_model::policy::Policy;
use squall_model::time::Time;
use squall_model::wire::client::{AccountingQuery, Answer, HostRequest, JobSelection, Request, Sendable};
use squall_model::wire::info::{
    AccountingRow, Diag, ExpectedStart, JobsPage, LicenseInfo, NodeInfo, PartitionInfo, ReservationInfo,
};
use squall_model::wire::join::{Bearer, Passed};
use squall_model::wire::priority_info::Share;

use crate::caller::Identity;
use crate::part::Part;
use crate::rows::Records;

/// Name under which the server connects to the controller.
const NAME: &str = "rest";

/// A cluster, and what the server has read of it.
#[derive(Debug)]
pub(crate) struct Cluster {
    place: Place,
    /// Secret by which the controller knows this server.
    secret: Arc<str>,
    /// Name of the controller's host, as far as it is known without asking.
    pub(crate) host: String,
    /// JSON of jobs and nodes, made when they are read.
    pub(crate) records: Arc<Records>,
    jobs: Part<JobsPage>,
    nodes: Part<Vec<NodeInfo>>,
    partitions: Part<Vec<PartitionInfo>>,
    reservations: Part<Vec<ReservationInfo>>,
    licenses: Part<Vec<LicenseInfo>>,
    shares: Part<Vec<Share>>,
    expected: Part<Vec<ExpectedStart>>,
    policy: Part<Policy>,
    diag: Part<Diag>,
    config: Part<Config>,
    controller: Part<Controller>,
}

/// What the controller tells of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Controller {
    pub(crate) host: String,
    pub(crate) version: String,
    /// Why submissions are refused. None: they are not.
    pub(crate) trouble: Option<String>,
    pub(crate) started: Time,
}

/// Makes a method that returns a part of the cluster's state, which the controller sends in one answer.
macro_rules! part {
    ($(#[$doc:meta])* $name:ident: $type:ty, $request:expr, $answer:pat => $value:expr) => {
        $(#[$doc])*
        pub(crate) async fn $name(&self, since: Option<Instant>) -> Result<Arc<$type>, ClientError> {
            let place = self.place.clone();
            let read = move || match Client::connect_to(&place, NAME)?.ask(&$request)? {
                $answer => Ok(Arc::new($value)),
                _ => Err(unexpected()),
            };
            self.$name.get(since, read).await
        }
    };
}

impl Cluster {
    pub(crate) fn new(place: Place, host: String, secret: Arc<str>) -> Self {
        Self {
            place,
            secret,
            host,
            records: Arc::default(),
            jobs: Part::default(),
            nodes: Part::default(),
            partitions: Part::default(),
            reservations: Part::default(),
            licenses: Part::default(),
            shares: Part::default(),
            expected: Part::default(),
            policy: Part::default(),
            diag: Part::default(),
            config: Part::default(),
            controller: Part::default(),
        }
    }

    /// Returns all jobs that the controller has in memory, with their steps.
    pub(crate) async fn jobs(&self, since: Option<Instant>) -> Result<Arc<JobsPage>, ClientError> {
        let (place, records) = (self.place.clone(), Arc::clone(&self.records));
        let read = move || {
            let mut client = Client::connect_to(&place, NAME)?;
            let cluster = client.cluster()?.to_owned();
            let jobs = Arc::new(client.jobs(JobSelection::default(), true, true)?);
            records.renew_jobs(&jobs, &cluster);
            Ok(jobs)
        };
        self.jobs.get(since, read).await
    }

    /// Returns all nodes.
    pub(crate) async fn nodes(&self, since: Option<Instant>) -> Result<Arc<Vec<NodeInfo>>, ClientError> {
        let (place, records) = (self.place.clone(), Arc::clone(&self.records));
        let read = move || {
            let mut client = Client::connect_to(&place, NAME)?;
            let cluster = client.cluster()?.to_owned();
            let Answer::Nodes(nodes) = client.ask(&Request::Nodes)? else { return Err(unexpected()) };
            let nodes = Arc::new(nodes);
            records.renew_nodes(&nodes, &cluster);
            Ok(nodes)
        };
        self.nodes.get(since, read).await
    }

    part!(
        /// Returns all partitions.
        partitions: Vec<PartitionInfo>, Request::Partitions, Answer::Partitions(partitions) => partitions
    );
    part!(
        /// Returns all reservations.
        reservations: Vec<ReservationInfo>, Request::Reservations, Answer::Reservations(all) => all
    );
    part!(
        /// Returns all licenses.
        licenses: Vec<LicenseInfo>, Request::Licenses, Answer::Licenses(licenses) => licenses
    );
    part!(
        /// Returns the fair shares of accounts and users.
        shares: Vec<Share>, Request::Shares, Answer::Shares(shares) => shares
    );
    part!(
        /// Returns the expected starts of the first pending jobs.
        expected: Vec<ExpectedStart>, Request::Expected, Answer::Expected(starts) => starts
    );
    part!(
        /// Returns accounts, users, associations and QOS.
        policy: Policy, Request::Policy, Answer::Policy(policy) => *policy
    );
    part!(
        /// Returns the controller's counters.
        diag: Diag, Request::Diag { reset: false }, Answer::Diag(diag) => *diag
    );
    part!(
        /// Returns the configuration that the controller uses.
        config: Config, Request::Config, Answer::Config(config) => *config
    );
    part!(
        /// Returns what the controller tells of itself.
        controller: Controller, Request::Ping, Answer::Pong { host, version, trouble, started, .. } =>
            Controller { host, version, trouble, started }
    );

    /// Returns the jobs in the controller's memory that a user may see: those that all may see, unless jobs are private.
    pub(crate) async fn jobs_seen_by(
        &self,
        who: &Identity,
        since: Option<Instant>,
    ) -> Result<Arc<JobsPage>, ClientError> {
        if !self.config(None).await?.private_data.jobs {
            return self.jobs(since).await;
        }
        self.with(who, |client| client.jobs(JobSelection::default(), true, true)).await.map(Arc::new)
    }

    /// Sends a request as a user, and returns its first answer.
    pub(crate) async fn ask(
        &self,
        who: &Identity,
        request: impl Sendable + Send + 'static,
    ) -> Result<Answer, ClientError> {
        self.with(who, move |client| client.ask(&request)).await
    }

    /// Returns the rows of jobs and steps in accounting that a user may see.
    pub(crate) async fn accounting(
        &self,
        who: &Identity,
        query: AccountingQuery,
    ) -> Result<Vec<AccountingRow>, ClientError> {
        self.accounting_up_to(who, query, usize::MAX, Some).await.map(|(rows, _)| rows)
    }

    /// Returns what `keep` keeps of rows in accounting, in the order of jobs, and whether there are more than `most` of
    /// them. At most 16 times as many rows are read.
    pub(crate) async fn accounting_up_to<T: Send + 'static>(
        &self,
        who: &Identity,
        query: AccountingQuery,
        most: usize,
        mut keep: impl FnMut(AccountingRow) -> Option<T> + Send + 'static,
    ) -> Result<(Vec<T>, bool), ClientError> {
        self.with(who, move |client| {
            client.send(&HostRequest::Accounting(Box::new(query)))?;
            let (mut all, mut read) = (Vec::new(), 0_usize);
            loop {
                let Answer::Accounting { rows, more, .. } = client.receive()? else { return Err(unexpected()) };
                read += rows.len();
                for kept in rows.into_iter().filter_map(&mut keep) {
                    if all.len() >= most {
                        return Ok((all, true));
                    }
                    all.push(kept);
                }
                if !more || read > most.saturating_mul(16) {
                    return Ok((all, more));
                }
            }
        })
        .await
    }

    /// Runs `deed` on a new connection of a user to the controller.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        who: &Identity,
        deed: impl FnOnce(&mut Client) -> Result<T, ClientError> + Send + 'static,
    ) -> Result<T, ClientError> {
        let (place, who, secret) = (self.place.clone(), who.clone(), Arc::clone(&self.secret));
        let asking = tokio::task::spawn_blocking(move || {
            let mut client = match &who {
                Identity::Bearer(bearer) => {
                    let passed = bearer.passed.clone().map(|passed| Passed { secret: secret.to_string(), ..passed });
                    Client::connect_with(&place, NAME, &Bearer { passed, ..bearer.clone() })?
                }
                Identity::Socket(socket) => Client::connect_for(&place, (NAME, &secret), socket.as_fd())?,
            };
            deed(&mut client)
        });
        asking.await.map_err(|e| ClientError::Lost(e.to_string()))?
    }
}
