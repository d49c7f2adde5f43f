//! Planted bugs in what machines are told and in what they want done.

use squall_engine::control::{Input, LinkId, Out};
use squall_model::id::{Attempt, Epoch, JobId};
use squall_model::job::{ExitCode, JobAttempt, JobSpec};
use squall_model::report::Report;
use squall_model::set::CoreSet;
use squall_model::wire::client::{Answer, JobName, JobRef, Request};
use squall_model::wire::node::{Down, DownFrame, UpFrame};

use crate::mutation::Mutation;
use crate::order::Order;
use crate::world::World;

impl World {
    /// In what the controller's machine is told. None: it is not told at all.
    pub(crate) fn perturb_input(&mut self, input: Input) -> Option<Input> {
        let Some(mutation) = self.setup.mutation else { return Some(input) };
        match input {
            Input::Start { mut config, version, host } => {
                if mutation == Mutation::RequeueWithoutProof {
                    config.node_timeout_s = 11;
                    config.node_lost_s = 12;
                }
                Some(Input::Start { config, version, host })
            }
            Input::Ask { caller, who, mut request } => {
                if let Request::Submit { spec, .. } = request.as_mut() {
                    perturb_spec(mutation, spec);
                }
                if mutation == Mutation::CancelForgotten
                    && let Request::Cancel { jobs, .. } = request.as_ref()
                {
                    let ids = jobs.ids.iter().map(|job| match job {
                        JobRef::Job(id) | JobRef::Tasks(id, _) => JobName { id: *id, task: None },
                    });
                    let answer = Answer::Affected { jobs: ids.collect(), refused: Vec::new() };
                    self.release_answers(vec![(caller, answer)]);
                    return None;
                }
                Some(Input::Ask { caller, who, request })
            }
            input => Some(input),
        }
    }

    /// In a frame on its way from node to controller.
    pub(crate) fn perturb_up(&mut self, node: usize, frame: &mut UpFrame) {
        let UpFrame::Reports { reports, .. } = frame else { return };
        if self.mutates(Mutation::ReportLost, 10)
            && let Some(report) = reports.first_mut()
        {
            *report = Report::JobGone { job: JobAttempt { job: JobId(u32::MAX), attempt: Attempt(1) } };
        }
        if self.is_planted(Mutation::ExitCodeChanged) {
            for report in reports.iter_mut() {
                if let Report::StepEnded { end, .. } = report {
                    end.exit = ExitCode { code: u8::from(end.exit.is_ok()), signal: 0 };
                }
            }
        }
        if self.is_planted(Mutation::ReportOfAnother) {
            let running = self.nodes[node].steps.iter().find(|(_, step)| step.has_live_tasks());
            if let (Some((key, _)), Some(report)) = (running, reports.first_mut()) {
                *report = Report::JobGone { job: JobAttempt { job: key.job, attempt: key.attempt } };
            }
        }
    }

    /// In what the controller's machine wants done.
    pub(crate) fn perturb_out(&mut self, out: &mut Out) {
        if !self.is_planted(Mutation::AckBeforeFlush) || out.events.is_empty() {
            return;
        }
        let (early, late) = std::mem::take(&mut out.sends)
            .into_iter()
            .partition(|(_, frame)| frame.messages.iter().all(|m| matches!(m, Down::Ack { .. })));
        out.sends = late;
        let early: Vec<(LinkId, DownFrame)> = early;
        for (LinkId(link), frame) in early {
            self.send_down(link, frame);
        }
    }

    /// In a frame on its way from controller to node.
    pub(crate) fn perturb_down(&mut self, frame: &mut DownFrame) {
        match self.setup.mutation {
            Some(Mutation::EpochStuck) => frame.session.epoch = Epoch(1),
            Some(Mutation::EndJobLost) => frame.messages.retain(|m| !matches!(m, Down::EndJob { .. })),
            Some(Mutation::WrongCores) => frame.messages.iter_mut().for_each(shift_cores),
            Some(Mutation::StaleFrameTaken) => self.mix_in_stale(frame),
            _ => {}
        }
    }

    fn mix_in_stale(&mut self, frame: &mut DownFrame) {
        let launches = frame.messages.iter().any(|m| matches!(m, Down::StartJob { batch: Some(_), .. }));
        match &self.controller.stale {
            None if launches => self.controller.stale = Some((self.now, frame.clone())),
            Some((since, stale)) if self.now.since(*since).secs() > 300 && launches => {
                frame.messages.extend(stale.messages.iter().cloned());
                frame.blobs.extend(stale.blobs.iter().cloned());
                self.controller.stale = None;
            }
            _ => {}
        }
    }
}

fn perturb_spec(mutation: Mutation, spec: &mut JobSpec) {
    match mutation {
        Mutation::DependencyIgnored => spec.dependency = None,
        Mutation::HoldIgnored => spec.hold = false,
        Mutation::TimeLimitIgnored => spec.time_limit_s = None,
        Mutation::OrderReversed => spec.nice = 1_000_000 - Order::tag_of(spec).unwrap_or(0) as i32,
        Mutation::ArrayLimitIgnored => {
            if let Some(array) = &mut spec.array {
                array.limit = None;
            }
        }
        _ => {}
    }
}

/// The first core that the step may use is somebody else's, or not there.
fn shift_cores(message: &mut Down) {
    let all: Vec<&mut CoreSet> = match message {
        Down::StartJob { batch: Some(batch), .. } => vec![&mut batch.cores],
        Down::StartStep(start) => start.shares.groups.iter_mut().map(|group| &mut group.cores).collect(),
        _ => return,
    };
    for cores in all {
        let first = cores.iter().next().unwrap_or(0);
        *cores = cores.iter().map(|core| if core == first && core > 0 { core - 1 } else { core }).collect();
    }
}
