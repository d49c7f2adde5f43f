//! A rooted relay: a node that changes what it passes on to the nodes below it.
//!
//! The controller of such a run signs (`squall_engine::fabric::proof`), with a stand-in for Ed25519. So nothing that the
//! relay does may have an effect but that the nodes below it look for another parent.

use std::sync::Arc;

use squall_engine::fabric::proof::{Pinned, Signers, prove};
use squall_model::id::{Attempt, JobId};
use squall_model::job::{JobAttempt, Owner};
use squall_model::rotation::ControllerKeys;
use squall_model::time::{Span, Time};
use squall_model::wire::client::Request;
use squall_model::wire::fabric::{DownFrame, Parcel, Put};
use squall_model::wire::node::{Down, EndReason};
use squall_model::wire::sealed::Sealed;

use crate::coverage::Fault;
use crate::mutation::Mutation;
use crate::seed::Seed;
use crate::signers::{Secret, rotations_of};
use crate::world::controller::put_of;
use crate::world::{Happening, World};

/// Of this many nodes, one is rooted.
const ONE_OF: usize = 5;

impl World {
    /// Returns the keys that a node daemon checks messages with.
    pub(crate) fn pinned(&self, node: usize) -> Pinned {
        let checks = self.setup.signed && !self.is_planted(Mutation::ProofIgnored);
        Pinned(checks.then(|| Arc::clone(&self.nodes[node].keys) as Arc<dyn Signers>))
    }

    /// Adds an operator who rotates the controllers' keys. The randomness is its own.
    pub(crate) fn add_rotations(&mut self, seed: u64, until: Time) {
        let mut seed = Seed::new(seed ^ 0x726f_7461);
        let mut at = self.now;
        while at < until {
            at = at + Span(seed.between(30_000_000, 300_000_000));
            self.agenda.at(at, Happening::KeysRotate);
        }
    }

    /// Returns the request by which the keys are rotated once more.
    pub(crate) fn rotation(&self) -> Request {
        let known = self.controllers[self.leader()].state().and_then(|state| state.keys.as_deref().map(rotations_of));
        let (mut key, until) = ([0; 32], Time(0));
        key[..8].copy_from_slice(&(known.unwrap_or_default() + 1).to_le_bytes());
        Request::RotateKeys { grace_s: 0, keys: Some(Box::new(ControllerKeys { key, signer: key, until })) }
    }

    /// A node keeps keys of which a message has told it.
    pub(crate) fn learn(&mut self, node: usize, keys: &ControllerKeys) {
        self.nodes[node].keys.keep(rotations_of(keys));
    }

    /// A node that has connected to a controller learns its keys.
    pub(crate) fn greeted(&mut self, node: usize, of: usize) {
        if !self.is_planted(Mutation::KeyUntold) {
            self.nodes[node].keys.keep(self.controllers[of].rotations);
        }
    }

    /// Signs what the controller sends.
    pub(crate) fn sign(&self, of: usize, frame: &mut DownFrame) {
        if self.setup.signed {
            prove(&Secret(self.controllers[of].rotations), frame.says.iter_mut().filter_map(put_of));
        }
    }

    /// Changes a frame that a rooted node passes on.
    pub(crate) fn tamper(&mut self, node: usize, frame: &mut DownFrame) {
        if !self.setup.signed || !self.nemesis.is_active() || node % ONE_OF != 1 {
            return;
        }
        let count = frame.says.len() as u64;
        if count == 0 || !self.seed.chance(100_000) {
            return;
        }
        let at = self.seed.below(count) as usize;
        let kind = self.seed.below(5);
        let Some(put) = frame.says.get_mut(at).and_then(put_of) else { return };
        let before = self.nodes[node].seen.replace(put.clone());
        match kind {
            0 => change(put, as_root),
            1 => change(put, |parcel| parcel.messages.push(end_of_all())),
            2 => {
                // An earlier message in place of this one, under this one's number.
                let Some(before) = before else { return };
                (put.parcel, put.proof) = (before.parcel, before.proof);
            }
            3 => put.proof = None,
            _ => put.seq += 1000,
        }
        self.strike(Fault::RelayRooted, node as u64);
    }
}

/// Changes the content of a put, and leaves its proof.
fn change(put: &mut Put, deed: impl FnOnce(&mut Parcel)) {
    if let Ok(mut parcel) = put.parcel.open() {
        deed(Arc::make_mut(&mut parcel));
        put.parcel = Sealed::Open(parcel);
        put.parcel.encode();
    }
}

/// Has the job of another user run as root.
fn as_root(parcel: &mut Parcel) {
    for message in &mut parcel.messages {
        let facts = match message {
            Down::StartJob { facts, .. } => facts,
            Down::StartStep(start) => &mut start.facts,
            _ => continue,
        };
        Arc::make_mut(facts).owner = Arc::new(Owner::default());
    }
}

fn end_of_all() -> Down {
    let job = JobAttempt { job: JobId(1), attempt: Attempt(1) };
    Down::EndJob { job, kill_wait_s: 0, cont: false, why: EndReason::Cancelled, exit: None }
}
