//! `State::apply`, the only writer of state. It never fails: an event that does not fit the state changes nothing.

mod checkpoint;
mod cluster;
mod end;
mod faults;
mod foreign;
mod forget;
mod hold;
mod lease;
mod members;
mod places;
mod policy;
mod power;
mod queue;
mod reserve;
mod run;
mod submit;

use squall_model::event::{Event, Record};
use squall_model::time::Time;

use crate::control::state::State;
pub(crate) use crate::control::state::apply::members::names_it;

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
            Event::StepNodesEnded { job, attempt, step, nodes, end, cut } => {
                self.step_nodes_ended((*job, *attempt, *step), nodes, end, *cut);
            }
            // Such a change of a record is kept in the accounting only.
            Event::Recorded { .. } | Event::NodeLost { .. } => {}
            Event::IdsLost { last } => self.ids_lost(*last),
            Event::NodesPower { nodes, phase, owed } => self.nodes_power(time, nodes, *phase, *owed),
            Event::PowerWished { nodes, wish, .. } => self.power_wished(nodes, *wish),
            Event::PowerProgramEnded { nodes, phase } => self.power_program_ended(nodes, *phase),
            Event::JobAwake { id, attempt } => self.job_awake(time, *id, *attempt),
            Event::NodesReboot { nodes, reboot } => self.nodes_reboot(nodes, reboot.as_deref()),
            Event::NodesChanged { nodes, change } => self.nodes_changed(time, nodes, change),
            Event::NodesRemoved { nodes, .. } => self.nodes_removed(time, nodes),
            Event::NodesCreated { node, .. } => self.nodes_created(time, node),
            Event::Restored { last } => self.restored(time, *last),
            Event::KeysRotated { keys, .. } => self.keys = Some(keys.clone()),
            Event::VersionRaised { to, .. } => self.cluster_version = self.cluster_version.max(*to),
            Event::StepLimited { job, step, time_limit_s } => self.step_limited(*job, *step, *time_limit_s),
            Event::StepAbandoned { job, step, outcome } => self.step_abandoned(time, *job, *step, outcome),
            Event::JobEnding { id, outcome, requeue } => self.job_ending(time, *id, outcome, *requeue),
            Event::JobConfigured { id, attempt } => self.job_configured(*id, *attempt),
            Event::EpilogEnded { id, attempt } => self.epilog_ended(*id, *attempt),
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
            Event::JobShrunk { id, attempt, alloc, vacant } => self.job_shrunk(time, (*id, *attempt), alloc, *vacant),
            Event::NodeReplaced { id, attempt, lost, node, alloc, gres } => {
                self.node_replaced(time, (*id, *attempt), (*lost, *node), alloc, gres);
            }
            Event::JobBilled { id, attempt, billing } => self.job_billed(time, *id, *attempt, *billing),
            Event::Checkpoint(change) => self.checkpoint_changed(time, change),
            Event::NodeFault(found) => self.node_fault(time, *found),
            Event::ForeignResolved { replies } => self.foreign_resolved(replies),
            Event::Ganged { shifts } => shifts.iter().for_each(|shift| self.shifted(time, shift)),
        }
    }
}
