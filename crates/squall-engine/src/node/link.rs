//! The node's session with the controller: registration, and which messages are accepted.
//!
//! When there is a path to the controller, the node sends a registration request (knock). The controller offers a
//! session (`Identify`), the node registers under it, and the controller accepts (`Welcome`). So a registration from
//! an earlier run of the daemon, or over a path that has broken, is never accepted.

use squall_model::id::{Epoch, JobId, NodeId, Session, StepKey, StepNo};
use squall_model::job::JobAttempt;
use squall_model::time::{Span, Time};
use squall_model::version::ClusterVersion;
use squall_model::wire::fabric::{Composite, Newer, Put, Variable};
use squall_model::wire::node::{Down, Registration};
use squall_model::wire::stepd::ToStepd;

use crate::fabric::proof::{self, Checked, Unproven};
use crate::fabric::{Delivery, Dial};
use crate::node::{CheckpointAct, ContentAct, NodeAct, NodeMachine, NodeOut};

/// Timeout of a registration request or a registration, first and largest value; it doubles each time. A new offer
/// ends the one before, so on a slow path with a fixed timeout each answer could belong to the request before.
const ANSWER_WAIT: (Span, Span) = (Span::from_secs(10), Span::from_secs(80));

/// Beats that may stay out, on a path that is intact, before the node requests registration again.
const SILENT_BEATS: u64 = 4;

/// Time that jobs get to end when the node daemon shuts down.
const LEAVE_WAIT: Span = Span::from_secs(10);

/// Interval between two checks of the node's health.
const HEALTH: Span = Span::from_secs(30);

/// How long reports of ended batch jobs may wait for further ones, on a node with leased (prefetched) jobs.
const REPORTS_WAIT: Span = Span::from_millis(4);

/// State of the node's session with the controller.
#[derive(Debug)]
pub(super) struct Link {
    /// Newest session that a controller has offered to this node.
    newest: Session,
    stage: Stage,
    /// Time of the last message from the controller, or of the last request sent to it.
    heard: Time,
    answer_wait: Span,
    next_health: Time,
    /// Time since which reports wait for further ones; None: none wait.
    reports_since: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is no path to the controller.
    Away,
    /// There is a path. The node registers once the processes and cgroups left by earlier runs are removed.
    Sweeping,
    /// The node has requested a session.
    Knocked,
    /// The node has sent its registration.
    Registered,
    /// A session is in force. Holds the number of the last put (command of the controller) accepted in it.
    Welcome(u64),
}

impl Link {
    /// Makes the state of a node without a path to the controller. Offers of sessions up to `session` are refused.
    pub(super) fn after(session: Session) -> Self {
        Self {
            newest: session,
            stage: Stage::Away,
            heard: Time::default(),
            answer_wait: ANSWER_WAIT.0,
            next_health: Time::default(),
            reports_since: None,
        }
    }

    /// Returns the epoch of the newest controller that has offered this node a session.
    pub(super) fn epoch(&self) -> Epoch {
        self.newest.epoch
    }

    /// Returns whether a session is in force.
    pub(super) fn is_welcome(&self) -> bool {
        matches!(self.stage, Stage::Welcome(_))
    }

    /// Returns the session in force and the number of the last put (command of the controller) accepted in it; None: no
    /// session is in force.
    pub(super) fn session(&self) -> Option<(Session, u64)> {
        if let Stage::Welcome(last) = self.stage { Some((self.newest, last)) } else { None }
    }

    /// Returns the number of the last put (command of the controller) accepted in this session; 0: no session.
    pub(super) fn last_put(&self) -> u64 {
        if let Stage::Welcome(last) = self.stage { last } else { 0 }
    }

    /// Returns when the current wait for the controller times out; None: the node is not waiting. `beat`: time between two
    /// queries of the controller.
    fn patience(&self, beat: Span) -> Option<Time> {
        match self.stage {
            Stage::Away | Stage::Sweeping => None,
            Stage::Knocked | Stage::Registered => Some(self.heard + self.answer_wait),
            Stage::Welcome(_) => Some(self.heard + Span(beat.0 * SILENT_BEATS)),
        }
    }
}

impl NodeMachine {
    /// Handles what has come through the tree for this node, such as messages and changes of the path.
    pub(super) fn deliver(&mut self, now: Time, delivery: Delivery, out: &mut NodeOut) {
        match delivery {
            Delivery::Path => self.knock(now),
            Delivery::NoPath => self.link.stage = Stage::Away,
            Delivery::Asked(variable) => {
                if self.link.is_welcome() {
                    self.link.heard = now;
                }
                if let Variable::Used(key, _) = variable {
                    self.measure(key, out);
                }
            }
            Delivery::Beat { key, heard } => self.beaten(now, key, &heard, out),
            Delivery::Put { node, put } => self.put(now, node, &put, out),
            Delivery::Chunk(chunk) => self.contents.chunk(chunk, &mut out.acts),
            Delivery::Letter(letter) => {
                let message = ToStepd::Letter { from: letter.sender, message: letter.message };
                out.acts.push(NodeAct::Tell { key: letter.step, message });
            }
        }
    }

    fn knock(&mut self, now: Time) {
        if !self.leftovers.is_empty() {
            self.link.stage = Stage::Sweeping;
            return;
        }
        self.link.stage = Stage::Knocked;
        self.link.heard = now;
        let knocks = vec![(Vec::new(), self.boot.name.clone())];
        self.relay.report(now, Composite { knocks, reports: 1, ..Composite::default() });
    }

    /// Records that an attempt's remaining processes and cgroup are removed. After the last such sweep the node
    /// requests registration.
    pub(super) fn leftover_swept(&mut self, now: Time, job: JobAttempt) {
        if self.leftovers.remove(&job) && self.leftovers.is_empty() && self.link.stage == Stage::Sweeping {
            self.knock(now);
        }
    }

    fn put(&mut self, now: Time, node: Option<NodeId>, put: &Put, out: &mut NodeOut) {
        let Checked { parcel, evidence } = match proof::check(&self.boot.pinned, put, self.id, &self.boot.name) {
            Ok(checked) => checked,
            Err(problem) => return self.distrust(now, problem, out),
        };
        match (self.link.stage, parcel.messages.first()) {
            (_, Some(Down::Identify)) => return self.identify(now, Session { epoch: put.epoch, number: put.seq }),
            (Stage::Registered, Some(Down::Welcome { .. } | Down::Refused { .. })) => {
                if put.epoch != self.link.newest.epoch || put.seq <= self.link.newest.number {
                    return;
                }
            }
            (Stage::Welcome(last), _) if node.is_none() && put.epoch == self.link.newest.epoch && put.seq > last => {}
            // because a message of an earlier session may come late
            _ => return,
        }
        self.link.stage = Stage::Welcome(put.seq);
        self.link.answer_wait = ANSWER_WAIT.0;
        self.link.heard = now;
        out.blobs.extend(parcel.blobs.iter().cloned());
        for (index, message) in parcel.messages.iter().enumerate() {
            let starts = matches!(message, Down::StartJob { batch: Some(_), .. } | Down::StartStep(_));
            self.warrant = evidence.as_ref().filter(|_| starts).and_then(|evidence| evidence.warrant(index));
            self.message(now, message.clone(), out);
            if out.exit {
                return;
            }
        }
        self.warrant = None;
    }

    /// Goes on without the parent that has passed on a message which is not the controller's: asks the controller itself
    /// for a new session. What the parent has withheld or changed is then sent again. If there is no parent between, the
    /// controller has rotated its keys, and this node lacks the present one: the controller's next greeting has it.
    fn distrust(&mut self, now: Time, unproven: Unproven, out: &mut NodeOut) {
        let problem = unproven.text();
        let text = match self.relay.parent() {
            Some(Dial::Node(parent)) => format!(
                "a message of the controller that came through node {parent} {problem}: it is refused. Node {parent}, or \
                 one between it and the controller, was taken over or is of a release that does not pass signatures on; \
                 asking the controller directly"
            ),
            _ => format!("a message of the controller {problem}: it is refused"),
        };
        out.acts.push(NodeAct::Say(text));
        if self.relay.detour() {
            self.link.stage = Stage::Away;
        } else if unproven == Unproven::Forged {
            self.relay.reconnect_for_key(now);
            self.link.stage = Stage::Away;
        }
    }

    /// Answers an offer of a session with a registration.
    fn identify(&mut self, now: Time, session: Session) {
        if matches!(self.link.stage, Stage::Away | Stage::Sweeping) {
            return;
        }
        if session < self.link.newest {
            return self.contradict(now);
        }
        if session == self.link.newest {
            return;
        }
        self.fence.registers(now);
        let heard = std::mem::replace(&mut self.link.newest, session);
        self.link.stage = Stage::Registered;
        self.link.heard = now;
        let steps = self.jobs.iter().flat_map(|(attempt, job)| job.known_steps(*attempt));
        let jobs = self.jobs.iter().filter(|(_, job)| !job.is_gone()).map(|(attempt, _)| *attempt);
        let registration = Registration {
            name: self.boot.name.clone(),
            session,
            incarnation: self.boot.incarnation,
            hardware: self.boot.hardware.clone(),
            jobs: jobs.chain(self.leased()).collect(),
            steps: steps.collect(),
            unstarted: self.unstarted.iter().copied().collect(),
            last_job: self.last_job(),
            health: self.health(),
            version: self.boot.version.clone(),
            speaks: ClusterVersion::OWN,
            heard,
        };
        let composite = Composite { registrations: vec![registration], reports: 1, ..Composite::default() };
        self.relay.report(now, composite);
    }

    fn last_job(&self) -> JobId {
        self.jobs.keys().next_back().map_or(self.last_job, |attempt| attempt.job.max(self.last_job))
    }

    /// Answers an offer that is older than the newest one. The offer was delayed, or comes from a controller that
    /// lacks decisions of a later one. The controller can tell which, by the newest session and the last job.
    fn contradict(&mut self, now: Time) {
        let (name, session) = (self.boot.name.clone(), self.link.newest);
        let newer = vec![Newer { name, session, last_job: self.last_job() }];
        self.relay.report(now, Composite { newer, reports: 1, ..Composite::default() });
    }

    fn message(&mut self, now: Time, message: Down, out: &mut NodeOut) {
        match message {
            Down::Identify => {}
            Down::Knock => self.knock(now),
            Down::Welcome { node, .. } => {
                self.id = Some(node);
                out.acts.push(NodeAct::SaveSession(self.link.newest));
                self.counts.sessions += 1;
                self.unstarted.clear();
                self.outbox.rewind();
                self.tell_parts();
                self.registration_proven(now, out);
            }
            Down::StartJob { facts, batch } => {
                let leased = batch.as_ref().is_some_and(|batch| batch.leased);
                let batch = batch.zip(self.id).and_then(|(batch, here)| batch.launch_on(&facts, here));
                match batch.map(Box::new) {
                    Some(launch) if leased => self.lease(now, launch, out),
                    batch => self.start_job(now, facts, batch, out),
                }
            }
            Down::StartStep(start) => {
                if let Some(launch) = self.id.and_then(|here| start.launch_on(here)) {
                    self.start_step(now, Box::new(launch), out);
                }
            }
            Down::Signal { job, target, signal } => self.signal(now, job, (target, signal), out),
            Down::EndStep { key, kill_wait_s, why } => self.end_step(now, key, kill_wait_s, why, out),
            Down::EndJob { job, kill_wait_s, cont, why, exit } => {
                self.note_exit(job, exit);
                self.end_job(now, job, kill_wait_s, cont, why, out);
            }
            Down::Reboot { incarnation } => {
                if incarnation == self.boot.incarnation {
                    self.reboot(now, out);
                }
            }
            Down::Checkpoint(order) => self.checkpoint(now, *order, out),
            Down::ForgetCheckpoints { job } => out.acts.push(NodeAct::Checkpoint(CheckpointAct::Forget { job })),
            Down::Check { fault } => self.check_after_fault(now, fault, out),
            Down::Keys(keys) => out.acts.push(NodeAct::Keys(keys)),
            Down::Known { steps, jobs } => self.known(now, &steps, &jobs, out),
            Down::Watch { key, watcher } => out.acts.push(NodeAct::Tell { key, message: ToStepd::Watch(watcher) }),
            Down::Notify { job, text } => {
                let key = StepKey { job: job.job, attempt: job.attempt, step: StepNo::BATCH };
                out.acts.push(NodeAct::Tell { key, message: ToStepd::Notice(text) });
            }
            Down::Recall { job } => self.recall(now, job, out),
            Down::Write { variable, value } => {
                self.variables.insert(variable, value);
            }
            Down::Expect { content, size, shared } => self.contents.expect(content, size, shared, &mut out.acts),
            Down::Commit { content } => self.contents.commit(content, &mut out.acts),
            Down::Abort { content } => self.contents.abort(content, &mut out.acts),
            Down::Hear { content, stream, key } => {
                out.acts.push(NodeAct::Content(ContentAct::Hear { content, stream, key }));
            }
            Down::Strobe(strobe) => self.strobe(now, &strobe, out),
            Down::Turns(turns) => self.turns(turns, out),
            Down::Place(placement) => out.acts.push(NodeAct::Content(ContentAct::Place(placement))),
            Down::Refused { reason, .. } => {
                out.acts.push(NodeAct::Say(format!("the controller does not accept this node: {reason}")));
                out.refused = true;
                out.exit = true;
            }
            Down::ShutDown { keep_jobs: true } => out.exit = true,
            Down::ShutDown { keep_jobs: false } => {
                self.leaving.get_or_insert(now + LEAVE_WAIT);
                self.end_all(now, out);
            }
        }
    }

    /// Sends pending reports to the controller. A node that is shutting down keeps them for the next run of the daemon.
    pub(super) fn send_reports(&mut self, now: Time) {
        if self.outbox.is_said() {
            return;
        }
        // because the controller may not have welcomed the node yet
        let Some(node) = self.id.filter(|_| self.leaving.is_none() && self.link.is_welcome()) else { return };
        self.link.reports_since.get_or_insert(now);
        if self.reports_due().is_some_and(|due| now < due) {
            return;
        }
        self.link.reports_since = None;
        let composite = self.outbox.take(node);
        self.relay.report(now, composite);
    }

    /// Returns until when reports may wait for further ones; None: they are due. A node with leased jobs does not
    /// idle while it waits, and one message for several ends is cheaper for both sides.
    fn reports_due(&self) -> Option<Time> {
        let busy = !self.leases.is_empty() && self.outbox.is_patient();
        self.link.reports_since.filter(|_| busy).map(|since| since + REPORTS_WAIT)
    }

    /// Requests registration again if the controller has been silent too long.
    pub(super) fn link_tick(&mut self, now: Time) {
        self.link.next_health = now + HEALTH;
        if self.link.patience(self.relay.beat()).is_some_and(|until| until <= now) {
            if self.link.stage == Stage::Knocked {
                self.relay.detour();
            }
            if !self.link.is_welcome() {
                self.link.answer_wait = Span(self.link.answer_wait.0 * 2).min(ANSWER_WAIT.1);
            }
            self.knock(now);
        }
    }

    pub(super) fn link_deadline(&self) -> Option<Time> {
        let health = Some(self.link.next_health).filter(|_| self.link.is_welcome() && self.leaving.is_none());
        [self.link.patience(self.relay.beat()), health, self.reports_due()].into_iter().flatten().min()
    }
}
