//! The link to the controller: sessions, registration, heartbeats, and which frames are believed.

use squall_model::id::Session;
use squall_model::limits::HEARTBEAT_S;
use squall_model::time::{Span, Time};
use squall_model::wire::node::{Down, DownFrame, Registration, UpFrame};

use crate::node::{NodeAct, NodeMachine, NodeOut};
use crate::session::{Receiver, Verdict};

/// How long a registration may stay without an answer.
const WELCOME_WAIT: Span = Span::from_secs(10);

/// How many heartbeats without any frame from the controller until the node registers anew: whatever was lost on
/// the way is made up for by the registration.
const SILENT_HEARTBEATS: u64 = 6;

/// How long work is given to end at a shutdown.
const LEAVE_WAIT: Span = Span::from_secs(10);

/// The link as this side sees it.
#[derive(Debug)]
pub(super) struct Link {
    receiver: Receiver,
    /// Since when it stands, or when the last frame came. None: there is no link.
    heard: Option<Time>,
    heartbeat: Span,
    next_heartbeat: Time,
}

impl Link {
    /// No link yet; sessions up to `session` belong to the past.
    pub(super) fn after(session: Session) -> Self {
        let receiver = Receiver::after(session);
        Self { receiver, heard: None, heartbeat: Span::from_secs(HEARTBEAT_S), next_heartbeat: Time::default() }
    }

    /// The link is gone.
    pub(super) fn lose(&mut self) {
        self.heard = None;
        self.receiver.reset();
    }

    /// When the silence has lasted too long.
    fn patience(&self) -> Option<Time> {
        let span = match self.receiver.session() {
            None => WELCOME_WAIT,
            Some(_) => Span(self.heartbeat.0.saturating_mul(SILENT_HEARTBEATS)),
        };
        self.heard.map(|heard| heard + span)
    }
}

impl NodeMachine {
    /// A connection stands: the node registers.
    pub(super) fn linked(&mut self, now: Time, out: &mut NodeOut) {
        self.link.lose();
        self.link.heard = Some(now);
        let steps = self.jobs.iter().flat_map(|(attempt, job)| job.known_steps(*attempt));
        out.sends.push(UpFrame::Register(Box::new(Registration {
            name: self.boot.name.clone(),
            incarnation: self.boot.incarnation,
            hardware: self.boot.hardware.clone(),
            jobs: self.jobs.iter().filter(|(_, job)| !job.is_gone()).map(|(attempt, _)| *attempt).collect(),
            steps: steps.collect(),
            version: self.boot.version.clone(),
        })));
    }

    /// A frame came.
    pub(super) fn frame(&mut self, now: Time, frame: DownFrame, out: &mut NodeOut) {
        if self.link.heard.is_none() {
            return;
        }
        match self.link.receiver.judge(&frame) {
            Verdict::Stale => return,
            Verdict::Gap => return self.drop_link(out),
            Verdict::Take => self.link.heard = Some(now),
        }
        for message in frame.messages {
            self.message(now, frame.session, message, out);
            if out.exit || out.drop_link {
                return;
            }
        }
    }

    fn message(&mut self, now: Time, session: Session, message: Down, out: &mut NodeOut) {
        match message {
            Down::Welcome { node, heartbeat_s } => {
                self.id = Some(node);
                out.acts.push(NodeAct::SaveSession(session));
                self.link.heartbeat = Span::from_secs(heartbeat_s.max(1));
                self.link.next_heartbeat = now + self.link.heartbeat;
                self.outbox.rewind();
            }
            Down::StartJob { facts, batch } => {
                let batch = batch.zip(self.id).and_then(|(batch, here)| batch.launch_on(&facts, here));
                self.start_job(facts, batch.map(Box::new), out);
            }
            Down::StartStep(start) => {
                if let Some(launch) = self.id.and_then(|here| start.launch_on(here)) {
                    self.start_step(Box::new(launch), out);
                }
            }
            Down::Signal { job, target, signal } => self.signal(job, target, signal, out),
            Down::EndStep { key, kill_wait_s, why } => self.end_step(now, key, kill_wait_s, why, out),
            Down::EndJob { job, kill_wait_s, cont, why } => self.end_job(now, job, kill_wait_s, cont, why, out),
            Down::Ack { up_to } => self.acknowledged(up_to, out),
            Down::Refused { reason } => {
                out.acts.push(NodeAct::Say(format!("the controller does not accept this node: {reason}")));
                out.exit = true;
            }
            Down::ShutDown { keep_jobs: true } => out.exit = true,
            Down::ShutDown { keep_jobs: false } => {
                self.leaving.get_or_insert(now + LEAVE_WAIT);
                self.end_all(now, out);
            }
        }
    }

    /// Sends what waits to be reported. A node that is shutting down keeps its reports for the next life.
    pub(super) fn send_reports(&mut self, now: Time, out: &mut NodeOut) {
        if out.drop_link || self.leaving.is_some() {
            return;
        }
        if let Some(session) = self.link.receiver.session() {
            out.sends.extend(self.outbox.frame(now, session));
        }
    }

    /// Heartbeats, and what is done about a silent controller.
    pub(super) fn link_tick(&mut self, now: Time, out: &mut NodeOut) {
        if self.link.patience().is_some_and(|until| until <= now) {
            return self.drop_link(out);
        }
        if let Some(session) = self.link.receiver.session().filter(|_| self.link.next_heartbeat <= now) {
            let health = self.health;
            out.sends.push(UpFrame::Heartbeat { session, load_centi: health.load_centi, free_mb: health.free_mb });
            self.link.next_heartbeat = now + self.link.heartbeat;
        }
    }

    pub(super) fn link_deadline(&self) -> Option<Time> {
        let welcomed = self.link.receiver.session().is_some();
        let resend = self.outbox.deadline().filter(|_| self.leaving.is_none());
        let timers = [Some(self.link.next_heartbeat), resend];
        let timers = timers.into_iter().flatten().filter(|_| welcomed);
        timers.chain(self.link.patience()).min()
    }

    fn drop_link(&mut self, out: &mut NodeOut) {
        self.link.lose();
        out.drop_link = true;
    }
}
