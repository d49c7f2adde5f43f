//! The cells' nodes: imitations, which only run jobs for a while and report success or failure. They never fail, and
//! repeat unacknowledged reports on every new connection.

use std::collections::BTreeMap;

use squall_engine::control::{Input, LinkId};
use squall_engine::fabric::child::Child;
use squall_model::id::{Incarnation, JobId, Session, StepKey, StepNo};
use squall_model::job::{ExitCode, JobAttempt};
use squall_model::report::{Report, StepEnd};
use squall_model::resource::Hardware;
use squall_model::time::{Span, Time};
use squall_model::version::ClusterVersion;
use squall_model::wire::fabric::{DownFrame, Health, UpFrame};
use squall_model::wire::node::{Down, Registration};

use super::{Happening, World};

/// Pause before a node reconnects to its cell's controller.
const AGAIN: Span = Span::from_millis(500);

/// An imitated node of a cell.
#[derive(Debug)]
pub(super) struct Node {
    name: String,
    /// Number of the node's connection to its cell.
    link: u64,
    /// Incarnation of the cell's controller to which the connection leads.
    life: u64,
    child: Child,
    welcomed: bool,
    /// The node's jobs: start time, and exit code once ended.
    jobs: BTreeMap<JobAttempt, (Time, Option<ExitCode>)>,
}

/// Identity of a node: (cell number, index within the cell).
pub(super) type NodeKey = (u32, u32);

/// Returns the exit code of a job's script; the scripts of one in four jobs fail.
pub(super) fn exit_of(job: JobId) -> ExitCode {
    ExitCode { code: u8::from(job.0 % 4 == 3), signal: 0 }
}

impl Node {
    pub(super) fn new(name: String) -> Self {
        Self { name, link: 0, life: 0, child: Child::default(), welcomed: false, jobs: BTreeMap::new() }
    }

    fn registration(&self) -> Registration {
        let jobs: Vec<JobAttempt> = self.jobs.keys().copied().collect();
        Registration {
            unstarted: Vec::new(),
            name: self.name.clone(),
            session: self.child.offered,
            incarnation: Incarnation(1),
            hardware: Hardware { cpus: 4, memory_mb: 4000, ..Hardware::default() },
            steps: jobs.iter().copied().map(script_of).collect(),
            jobs,
            last_job: JobId(0),
            health: Health::default(),
            version: "sim".into(),
            heard: Session::default(),
            speaks: ClusterVersion::OWN,
        }
    }

    /// Returns the node's reports of a job that has ended.
    fn reports(&self, job: JobAttempt, now: Time) -> Vec<Report> {
        let Some((started, Some(exit))) = self.jobs.get(&job) else { return vec![Report::JobGone { job }] };
        let end = StepEnd { exit: *exit, started: *started, ended: now, ..StepEnd::default() };
        vec![Report::StepEnded { key: script_of(job), end }, Report::JobGone { job }]
    }
}

fn script_of(job: JobAttempt) -> StepKey {
    StepKey { job: job.job, attempt: job.attempt, step: StepNo::BATCH }
}

impl World {
    /// Opens a connection from a node to its cell's controller.
    pub(super) fn node_calls(&mut self, key: NodeKey) {
        let (life, lives) = self.cells.get(&key.0).map_or((0, false), |cell| (cell.life, cell.pipeline.is_some()));
        let Some(node) = self.nodes.get_mut(&key).filter(|node| node.life != life || !node.welcomed) else { return };
        if !lives {
            return;
        }
        self.numbers += 1;
        (node.link, node.life, node.welcomed) = (self.numbers, life, false);
        node.child = Child::new(node.child.node);
        let (link, frame) = (node.link, node.child.knock(&node.name));
        self.under_way(link, true, Happening::NodeOpens { cell: key.0, life, link });
        self.node_says(key, frame);
    }

    fn node_says(&mut self, key: NodeKey, frame: UpFrame) {
        let Some(node) = self.nodes.get(&key) else { return };
        let (cell, life, link) = (key.0, node.life, node.link);
        self.under_way(link, true, Happening::FromNode { cell, life, link, frame: Box::new(frame) });
    }

    pub(super) fn cell_hears_node(&mut self, cell: u32, life: u64, link: u64, frame: Option<Box<UpFrame>>) {
        let link = LinkId(link);
        let input = match frame {
            Some(frame) => Input::Frame { link, frame },
            None => Input::Opened { link, name: None },
        };
        self.tell_cell(cell, life, input);
    }

    /// Handles a cell's closing of a node's connection; the node reconnects later.
    pub(super) fn node_dropped(&mut self, cell: u32, link: LinkId) {
        let dropped = self.nodes.iter_mut().find(|(key, node)| key.0 == cell && node.link == link.0);
        if let Some((key, node)) = dropped {
            (node.welcomed, node.link) = (false, 0);
            let key = *key;
            self.after(AGAIN, Happening::NodeCalls { key });
        }
    }

    pub(super) fn send_to_node(&mut self, cell: u32, link: LinkId, frame: DownFrame) {
        let Some((key, _)) = self.nodes.iter().find(|(key, node)| key.0 == cell && node.link == link.0) else { return };
        let key = *key;
        self.under_way(link.0, false, Happening::ToNode { key, link: link.0, frame: Box::new(frame) });
    }

    pub(super) fn node_hears(&mut self, key: NodeKey, link: u64, frame: DownFrame) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(&key).filter(|node| node.link == link) else { return };
        let (offered, mut says) = (node.child.offered, Vec::new());
        let messages = node.child.hear(frame);
        if node.child.offered != offered {
            says.push(node.child.register(node.registration()));
        }
        says.extend(node.child.answer());
        let mut begun = Vec::new();
        for message in messages {
            match message {
                Down::Welcome { .. } => {
                    node.welcomed = true;
                    let ended = node.jobs.iter().filter(|(_, (_, exit))| exit.is_some());
                    let reports: Vec<Report> = ended.flat_map(|(job, _)| node.reports(*job, now)).collect();
                    if !reports.is_empty() {
                        says.push(node.child.report(&reports));
                    }
                }
                Down::StartJob { facts, batch: Some(_) } => {
                    let job = JobAttempt { job: facts.key.job, attempt: facts.key.attempt };
                    if node.jobs.insert(job, (now, None)).is_none() {
                        begun.push(job);
                    }
                }
                Down::EndJob { job, .. } => {
                    if let Some((_, exit @ None)) = node.jobs.get_mut(&job) {
                        *exit = Some(ExitCode { code: 0, signal: 15 });
                    }
                    let reports = node.reports(job, now);
                    says.push(node.child.report(&reports));
                }
                Down::Known { jobs, .. } => node.jobs.retain(|job, (_, exit)| exit.is_none() || !jobs.contains(job)),
                _ => {}
            }
        }
        for frame in says {
            self.node_says(key, frame);
        }
        for job in begun {
            let lasts = self.seed.span(Span::from_millis(50), Span::from_secs(6));
            self.after(lasts, Happening::ScriptEnds { key, job });
        }
    }

    pub(super) fn script_ends(&mut self, key: NodeKey, job: JobAttempt) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(&key) else { return };
        let Some((_, exit @ None)) = node.jobs.get_mut(&job) else { return };
        *exit = Some(exit_of(job.job));
        if node.welcomed {
            let reports = node.reports(job, now);
            let frame = node.child.report(&reports);
            self.node_says(key, frame);
        }
    }
}
