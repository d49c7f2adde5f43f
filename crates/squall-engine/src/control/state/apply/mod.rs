//! `State::apply`, the only writer of state. It never fails: an event that does not fit the state changes nothing.

mod cluster;
mod end;
mod foreign;
mod forget;
mod hold;
mod lease;
mod policy;
mod queue;
mod reserve;
mod run;
mod submit;

use squall_model::event::{Event, Record};
use squall_model::time::Time;

use crate::control::state::State;
pub(crate) use crate::control::state::apply::cluster::is_all;

impl State {
    /// Applies all events of a journal record.
    pub fn apply_record(&mut self, record: &Record) {
        for event in &record.events {
            self.apply(record.time, event);
        }
    }

    /// Applies one event that was decided at `time`.
    pub fn apply(&mut self, time: Time, event: &Event) {
        match event {
            Event::ControllerStarted { epoch, version } => self.controller_started(*epoch, version),
            Event::Configured { config } => self.configured(time, config),
            Event::NodeRegistered { node, name, incarnation, hardware } => {
                self.node_registered(time, *node, name, *incarnation, hardware);
            }
            Event::NodeDown { node, reason } => self.node_down(time, *node, reason),
            Event::NodeUp { node } => self.node_up(*node),
            Event::NodesSet { nodes, admin, reason, by } => {
                self.nodes_set(time, nodes, *admin, reason.as_deref(), *by);
            }
            Event::PartitionChanged { name, config } => self.partition_changed(time, name, config.as_deref()),
            Event::PartitionSet { name, state } => self.partition_set(name, *state),
            Event::JobSubmitted { id, key, owner, spec } => self.job_submitted(time, *id, *key, owner, spec),
            Event::JobStarted { id, attempt, partition, alloc } => {
                self.job_started(time, *id, *attempt, partition, alloc);
            }
            Event::StepStarted { job, step, key, spec, alloc, layout } => {
                self.step_started(time, (*job, *step), *key, spec, alloc, layout);
            }
            Event::StepNodesEnded { job, attempt, step, nodes, end } => {
                self.step_nodes_ended((*job, *attempt, *step), nodes, end);
            }
            // Such a change of a record is kept in the accounting only.
            Event::Recorded { .. } => {}
            Event::IdsLost { last } => self.ids_lost(*last),
            Event::NodesChanged { nodes, change } => self.nodes_changed(nodes, change),
            Event::Restored { last } => self.restored(time, *last),
            Event::StepLimited { job, step, time_limit_s } => self.step_limited(*job, *step, *time_limit_s),
            Event::StepAbandoned { job, step, outcome } => self.step_abandoned(time, *job, *step, outcome),
            Event::JobEnding { id, outcome, requeue } => self.job_ending(time, *id, outcome, *requeue),
            Event::NodesReleased { id, attempt, nodes } => self.nodes_released(*id, *attempt, nodes),
            Event::TasksEnded { array, tasks, outcome } => self.tasks_ended(time, *array, tasks, outcome),
            Event::JobHeld { id, admin, whole } => self.job_held(*id, *admin, *whole),
            Event::JobReleased { id, whole } => self.job_released(time, *id, *whole),
            Event::JobUpdated { id, change, whole } => self.job_updated(time, *id, change, *whole),
            Event::JobRequeued { id, requeue } => self.job_requeued(*id, *requeue),
            Event::JobSuspended { id, suspended } => self.job_suspended(time, *id, *suspended),
            Event::ReservationSet { reservation } => self.reservation_set(reservation),
            Event::ReservationGone { name } => self.reservation_gone(name),
            Event::GresGranted { job, step, grants } => self.gres_granted(*job, *step, grants),
            Event::Forgotten { ended_before } => self.forget(*ended_before),
            Event::PolicyChanged { changes, .. } => self.policy_changed(time, changes),
            Event::JobPreempted { id, attempt, until } => self.job_preempted(*id, *attempt, *until),
            Event::JobLeased { id, attempt, behind } => self.job_leased(time, *id, *attempt, *behind),
            Event::LeaseReturned { id, attempt } => self.lease_returned(*id, *attempt),
            Event::HetFormed { leader, size } => self.het_formed(*leader, *size),
            Event::JobShrunk { id, attempt, alloc } => self.job_shrunk(time, *id, *attempt, alloc),
            Event::ForeignResolved { replies } => self.foreign_resolved(replies),
            Event::Ganged { shifts } => shifts.iter().for_each(|shift| self.shifted(time, shift)),
        }
    }
}
