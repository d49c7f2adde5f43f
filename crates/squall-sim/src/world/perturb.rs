//! Planted bugs that alter inputs and outputs of the state machines.

use std::sync::Arc;

use std::collections::BTreeMap;

use squall_engine::control::{Input, LinkId, Out};
use squall_engine::fabric::NetInput;
use squall_engine::node::{NodeAct, NodeInput};
use squall_model::config::NodeLostAction;
use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{Attempt, Epoch, JobId, NodeId};
use squall_model::job::{ExitCode, JobAttempt, JobSpec};
use squall_model::set::{CoreSet, NodeSet};
use squall_model::time::Time;
use squall_model::wire::client::{Answer, JobName, JobRef, Request};
use squall_model::wire::fabric::{Composite, DownFrame, Downward, Newer, Parcel, UpFrame, Upward};
use squall_model::wire::node::{Down, Registration};
use squall_model::wire::sealed::Sealed;

use crate::mutation::Mutation;
use crate::order::Order;
use crate::world::World;
use crate::world::controller::for_each_parcel;

impl World {
    /// Alters an input of the controller as the planted bug requires. None: the input is dropped.
    pub(crate) fn perturb_input(&mut self, input: Input) -> Option<Input> {
        let Some(mutation) = self.setup.mutation else { return Some(input) };
        match input {
            Input::Start { mut config, version, host } => {
                if mutation == Mutation::RequeueWithoutProof {
                    config.node_timeout_s = 11;
                    config.node_lost_s = 12;
                    config.node_lost_action = NodeLostAction::Requeue;
                }
                if mutation == Mutation::SilenceTakenForDeath {
                    (config.node_timeout_s, config.node_lost_s) = (60, 60);
                    config.node_lost_action = NodeLostAction::Requeue;
                }
                if mutation == Mutation::CompletionUnawaited {
                    config.complete_wait_s = 0;
                }
                if mutation == Mutation::LateNodeAwaited {
                    config.health.resume_timeout_s = 1_000_000;
                }
                if mutation == Mutation::LeasesUnbounded {
                    config.partitions.iter_mut().for_each(|partition| partition.lease_jobs += 3);
                }
                Some(Input::Start { config, version, host })
            }
            Input::Ask { caller, who, mut request } => {
                match request.as_mut() {
                    Request::Submit { spec, .. } => perturb_spec(mutation, Arc::make_mut(spec)),
                    Request::UpdateNodes { change, .. } if mutation == Mutation::ResumptionForgotten => *change = None,
                    Request::SubmitHet { specs, .. } => specs.iter_mut().for_each(|spec| perturb_spec(mutation, spec)),
                    _ => {}
                }
                if mutation == Mutation::CancelForgotten
                    && let Request::Cancel { jobs, .. } = request.as_ref()
                {
                    let ids = jobs.ids.iter().map(|job| match job {
                        JobRef::Job(id) | JobRef::Tasks(id, _) | JobRef::Component(id, _) => {
                            JobName { id: *id, task: None }
                        }
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

    /// Alters a frame on its way towards the controller as the planted bug requires.
    pub(crate) fn perturb_up(&mut self, hop: u64, frame: &mut UpFrame) {
        if self.setup.mutation.is_none() {
            return;
        }
        let to_controller = self.tree.parent(hop).is_some_and(|port| self.network.controller_at(port).is_some());
        for say in &mut frame.says {
            match say {
                Upward::Composite { composite, .. } => {
                    if to_controller {
                        self.perturb_composite(composite);
                    } else if self.is_planted(Mutation::CollectorAcknowledges) {
                        self.acknowledge_early(composite);
                    }
                    if composite.gone.values().any(|nodes| nodes.len() > 1) && self.mutates(Mutation::NodeDropped, 4) {
                        for nodes in composite.gone.values_mut().filter(|nodes| nodes.len() > 1) {
                            *nodes = nodes.iter().skip(1).collect();
                        }
                    }
                }
                Upward::Tally { tally, .. } => {
                    if self.is_planted(Mutation::TallyTurned) {
                        tally.yes.union_with(&std::mem::take(&mut tally.no));
                    }
                }
                Upward::Chunk(_) | Upward::Letter(_) => {}
            }
        }
    }

    /// Makes nodes below a relay delete the records of jobs that they reported through it, before the controller has
    /// the reports.
    fn acknowledge_early(&mut self, composite: &Composite) {
        for (&job, nodes) in &composite.gone {
            for host in nodes.iter().filter_map(|node| self.judge.host(node)).collect::<Vec<_>>() {
                self.node_act(host, NodeAct::ForgetJob { job }, &[]);
            }
        }
    }

    /// Replaces a node's registration by the first one that this node sent.
    fn bring_back(&mut self, said: &mut Registration) {
        let first = self.controllers[0].registered.entry(said.name.clone()).or_insert_with(|| said.clone());
        *said = Registration { session: said.session, ..first.clone() };
    }

    /// Alters merged reports of nodes before the controller receives them, as the planted bug requires.
    fn perturb_composite(&mut self, composite: &mut Composite) {
        if self.mutates(Mutation::ReportLost, 10) {
            composite.ended.pop_first();
            composite.gone.pop_first();
        }
        if self.is_planted(Mutation::ExitCodeChanged) {
            for (_, end) in composite.ended.values_mut().flatten() {
                end.exit = ExitCode { code: u8::from(end.exit.is_ok()), signal: 0 };
            }
        }
        if self.is_planted(Mutation::EndTakenForTold) {
            composite.ended.values_mut().flatten().for_each(|(_, end)| end.note_told());
        }
        if self.is_planted(Mutation::KnownIdsUnsaid) {
            composite.registrations.iter_mut().for_each(|said| said.last_job = JobId(0));
            composite.newer.iter_mut().for_each(|newer| newer.last_job = JobId(0));
        }
        if self.is_planted(Mutation::WordOfOthers) {
            let all = composite
                .newer
                .iter()
                .flat_map(|newer| self.nodes.iter().map(|node| Newer { name: node.name.clone(), ..newer.clone() }));
            composite.newer = all.collect();
        }
        if self.is_planted(Mutation::ForgottenTakenForUnstarted) {
            for said in &mut composite.registrations {
                let state = self.controllers[0].state();
                let node = state.and_then(|state| state.node(state.node_id(&said.name)?));
                let jobs = node.into_iter().flat_map(|node| &node.jobs);
                let attempts = jobs.filter_map(|id| {
                    let attempt = state?.jobs.get(id)?.attempt;
                    Some(JobAttempt { job: *id, attempt })
                });
                said.unstarted = attempts.filter(|job| !said.jobs.contains(job)).collect();
            }
        }
        if self.is_planted(Mutation::ReturnTakenForRestart) {
            composite.registrations.iter_mut().for_each(|said| said.incarnation.0 ^= u128::from(said.session.number));
        }
        if self.is_planted(Mutation::LeaseKept)
            && let Some(node) = composite.gone.values().find_map(NodeSet::first)
            && let Some((job, attempt)) = self.judge.host(node).and_then(|host| self.judge.some_lease(host))
        {
            let job = JobAttempt { job, attempt: Attempt(attempt) };
            composite.gone.insert(job, NodeSet::one(node));
        }
        if self.is_planted(Mutation::StaleRegistration) {
            composite.registrations.iter_mut().for_each(|said| self.bring_back(said));
        }
        if self.is_planted(Mutation::ReportOfAnother)
            && let Some((_, nodes)) = composite.gone.pop_first()
        {
            let other = nodes.iter().find_map(|node| {
                let host = self.judge.host(node)?;
                let (key, _) = self.nodes[host].steps.iter().find(|(_, step)| step.has_live_tasks())?;
                Some((JobAttempt { job: key.job, attempt: key.attempt }, node))
            });
            if let Some((job, node)) = other {
                composite.gone.insert(job, NodeSet::one(node));
            }
        }
    }

    /// Alters the output of the controller as the planted bug requires.
    pub(crate) fn perturb_out(&mut self, out: &mut Out) {
        if self.is_planted(Mutation::ComponentLeftBehind) {
            let judge = &self.judge;
            out.events.retain(|event| !matches!(event, Event::JobStarted { id, .. } if judge.is_component(*id)));
        }
        if self.is_planted(Mutation::WakingUnjournaled) {
            out.events.retain(|event| !matches!(event, Event::JobAwake { .. }));
        }
        if self.is_planted(Mutation::DrainUnjournaled) {
            let drains = |event: &Event| matches!(event, Event::NodesSet { admin, .. } if *admin != NodeAdmin::Resume);
            out.events.retain(|event| !drains(event));
        }
        if self.is_planted(Mutation::RestorationUnjournaled) {
            out.events.retain(|event| !matches!(event, Event::Restored { .. }));
        }
        if self.is_planted(Mutation::FaultUnjournaled) {
            out.events.retain(|event| !matches!(event, Event::NodeFault(_)));
        }
        if self.is_planted(Mutation::SpareUnkept) {
            for event in &mut out.events {
                if let Event::ReservationSet { reservation } = event {
                    reservation.nodes.insert(NodeId(0));
                }
            }
        }
        if self.is_planted(Mutation::PlaceFilledTwice) {
            let places = out.events.iter().filter(|event| matches!(event, Event::NodeReplaced { .. }));
            out.events.extend(places.cloned().collect::<Vec<_>>());
        }
        if self.is_planted(Mutation::LossUnjournaled) {
            out.events.retain(|event| !matches!(event, Event::NodeLost { .. }));
        }
        if self.is_planted(Mutation::LossDoubled) {
            let is_loss = |event: &&Event| matches!(event, Event::NodeLost { .. });
            out.events.extend(out.events.iter().find(is_loss).cloned());
        }
        if self.is_planted(Mutation::RebootUnjournaled) {
            out.events.retain(|event| !matches!(event, Event::NodesReboot { .. }));
        }
        if self.is_planted(Mutation::SwitchedBeforeJournal) {
            for program in std::mem::take(&mut out.power) {
                self.run_power(0, program);
            }
        }
        if (self.is_planted(Mutation::AnswerBeforeJournal) || self.is_planted(Mutation::AckBeforeEtcd))
            && !out.events.is_empty()
        {
            self.release_answers(std::mem::take(&mut out.answers));
        }
        if !self.is_planted(Mutation::AckBeforeFlush) || out.events.is_empty() {
            return;
        }
        let acknowledges = |frame: &mut DownFrame| {
            let mut found = false;
            for_each_parcel(frame, |parcel| found |= parcel.messages.iter().any(|m| matches!(m, Down::Known { .. })));
            found
        };
        let sends = std::mem::take(&mut out.sends).into_iter();
        for (LinkId(link), mut frame) in sends {
            if acknowledges(&mut frame) {
                self.judge.said(&frame);
                self.send_down(link, &frame);
            } else {
                out.sends.push((LinkId(link), frame));
            }
        }
    }

    /// Alters a frame that the controller sends to nodes, as the planted bug requires.
    pub(crate) fn perturb_down(&mut self, frame: &mut DownFrame) {
        match self.setup.mutation {
            Some(Mutation::EpochStuck) => frame.says.iter_mut().for_each(|say| match say {
                Downward::Put(put) | Downward::Reply { put, .. } => put.epoch = Epoch(1),
                Downward::Query(query) => query.epoch = Epoch(1),
                Downward::Path(_) | Downward::Taken { .. } | Downward::Chunk(_) | Downward::Letter(_) => {}
            }),
            Some(Mutation::BeatUntold) => {
                for say in &mut frame.says {
                    if let Downward::Path(path) = say {
                        (path.heartbeat_s, path.beat) = (10, None);
                    }
                }
            }
            Some(Mutation::EndJobLost) => {
                for_each_parcel(frame, |parcel| parcel.messages.retain(|m| !matches!(m, Down::EndJob { .. })));
            }
            Some(Mutation::PlaceKept) => for_each_parcel(frame, |parcel| {
                let judge = &self.judge;
                let leaves = |m: &Down| matches!(m, Down::EndJob { job, .. } if !judge.is_ending(job.job));
                parcel.messages.retain(|m| !leaves(m));
            }),
            Some(Mutation::WakeForgotten) => for_each_parcel(frame, |parcel| {
                for message in &mut parcel.messages {
                    if let Down::Turns(turns) = message {
                        turns.retain(|(_, turn)| turn.mask == 0);
                    }
                }
            }),
            Some(Mutation::WrongCores) => {
                for_each_parcel(frame, |parcel| parcel.messages.iter_mut().for_each(shift_cores));
            }
            Some(Mutation::LeaseBegunEarly) => for_each_parcel(frame, |parcel| {
                for message in &mut parcel.messages {
                    if let Down::StartJob { batch: Some(batch), .. } = message {
                        batch.leased = false;
                    }
                }
            }),
            Some(Mutation::LeaseOvertaken) => reverse_leases(frame),
            Some(Mutation::StaleFrameTaken | Mutation::DeposedHeard) => {
                for_each_parcel(frame, |parcel| self.mix_in_stale(parcel));
            }
            _ => {}
        }
    }

    /// Alters a frame that a node relays to one below it, as the planted bug requires.
    pub(crate) fn perturb_relayed(&mut self, frame: &mut DownFrame) {
        if self.setup.mutation.is_none() {
            return;
        }
        for say in &mut frame.says {
            match say {
                Downward::Put(put) if put.to.len() > 1 && self.mutates(Mutation::PutNotForwarded, 4) => {
                    *say = Downward::Taken { batch: 0 };
                }
                Downward::Reply { route, node, .. } if !route.is_empty() && self.is_planted(Mutation::OldRouteKept) => {
                    let host = node.and_then(|node| self.judge.host(node));
                    let again = host.is_some_and(|host| !self.welcomed.insert((host, self.nodes[host].life)));
                    *node = node.filter(|_| !again);
                }
                _ => {}
            }
        }
    }

    /// Alters an input of a node as the planted bug requires. None: the input is dropped.
    pub(crate) fn perturb_node_input(&mut self, node: usize, mut input: NodeInput) -> Option<NodeInput> {
        if matches!(input, NodeInput::Ended { .. }) && self.mutates(Mutation::CompletionLost, 10) {
            return None;
        }
        if let NodeInput::Net(NetInput::FromParent(frame)) = &mut input
            && self.is_planted(Mutation::PutOutOfOrder)
        {
            for say in &mut frame.says {
                if let Downward::Put(put) = say
                    && put.to.len() == 1
                    && put.to.first().and_then(|to| self.judge.host(to)) == Some(node)
                    && self.seed.chance(250_000)
                {
                    let before = self.nodes[node].stale.replace(put.parcel.clone());
                    put.parcel = before.unwrap_or_else(|| put.parcel.clone());
                }
            }
        }
        Some(input)
    }

    /// Returns whether a message of that time is of another controller than the present one, if a planted bug needs that.
    fn is_stale(&self, since: Time) -> bool {
        !self.is_planted(Mutation::DeposedHeard) || since < self.judge.led_since()
    }

    fn mix_in_stale(&mut self, parcel: &mut Parcel) {
        let launches = parcel.messages.iter().any(|m| matches!(m, Down::StartJob { batch: Some(_), .. }));
        match &self.controllers[0].stale {
            None if launches => self.controllers[0].stale = Some((self.now, parcel.clone())),
            Some((since, stale)) if self.now.since(*since).secs() > 300 && launches && self.is_stale(*since) => {
                parcel.messages.extend(stale.messages.iter().cloned());
                parcel.blobs.extend(stale.blobs.iter().cloned());
                self.controllers[0].stale = None;
            }
            _ => {}
        }
    }
}

fn perturb_spec(mutation: Mutation, spec: &mut JobSpec) {
    match mutation {
        Mutation::DependencyIgnored => spec.dependency = None,
        Mutation::HoldIgnored => spec.hold = false,
        Mutation::RebootIgnored => spec.options.reboot = None,
        Mutation::DelayIgnored => spec.options.delay_boot_s = None,
        Mutation::BlocksShared => spec.options.exclusive_topo = None,
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

/// Reverses the order of the jobs in a frame that leases several to a node.
fn reverse_leases(frame: &mut DownFrame) {
    let leases = |parcel: &Parcel| {
        let lease = |m: &Down| matches!(m, Down::StartJob { batch: Some(batch), .. } if batch.leased);
        parcel.messages.iter().any(lease)
    };
    let mut by_node: BTreeMap<NodeSet, Vec<&mut Sealed<Parcel>>> = BTreeMap::new();
    for say in &mut frame.says {
        if let Downward::Put(put) = say
            && put.parcel.open().is_ok_and(|parcel| leases(&parcel))
        {
            by_node.entry(put.to.clone()).or_default().push(&mut put.parcel);
        }
    }
    for parcels in by_node.values_mut() {
        let last_first: Vec<_> = parcels.iter().rev().map(|parcel| (**parcel).clone()).collect();
        parcels.iter_mut().zip(last_first).for_each(|(parcel, other)| **parcel = other);
    }
}

/// Changes the launch of a step: its first core is replaced by one that belongs to another job or does not exist.
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
