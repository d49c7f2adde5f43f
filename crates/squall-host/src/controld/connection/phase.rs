//! What a controller is at the moment among several: it leads, or it follows another one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use squall_files::place::Place;
use squall_model::config::{Config, ControllerConfig};
use squall_model::wire::info::{ControllerInfo, ControllerRole};
use squall_model::wire::{Leader, Standby};

use crate::controld::key_replication::Asker;
use crate::leader::Controllers;
use crate::trust::Trust;

/// All controllers of a cluster, as one of several reaches them.
#[derive(Clone)]
pub(in crate::controld) struct Others {
    /// Name of this controller.
    pub(in crate::controld) name: String,
    /// Address of this controller, `HOST:PORT`.
    pub(in crate::controld) address: String,
    /// The way to the one that leads.
    pub(in crate::controld) controllers: Controllers,
    /// Asks whether changes of keys are shared with them.
    pub(super) asker: Asker,
    /// What is known of each of them.
    roll: Arc<Mutex<Vec<ControllerInfo>>>,
}

impl std::fmt::Debug for Others {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Others").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Others {
    /// Returns the controllers that the configuration names; `name` is this one's. None: it names none, as there is one.
    pub(in crate::controld) fn of(
        place: &Place,
        config: &Config,
        name: &str,
        asker: Asker,
    ) -> std::io::Result<Option<Self>> {
        let Some(own) = config.controller(name) else { return Ok(None) };
        let (name, address) = (own.name(), own.address.clone());
        let keys = Trust::of(place).controller_key()?;
        let (theirs, addresses) = (keys.public, config.controller_addresses().map(str::to_owned).collect());
        let controllers = Controllers::new(name, keys, theirs, addresses);
        // Until more is known: what the configuration says.
        let of = |one: &ControllerConfig| ControllerInfo {
            name: one.name().to_owned(),
            address: one.address.clone(),
            ..ControllerInfo::default()
        };
        let roll = Arc::new(Mutex::new(config.controllers.0.iter().map(of).collect()));
        Ok(Some(Self { name: name.to_owned(), address, controllers, asker, roll }))
    }

    /// Returns what is known of all controllers. A standby knows little: itself, and the leader.
    pub(super) fn roll(&self, phase: &Phase) -> Vec<ControllerInfo> {
        let mut all = self.roll.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Phase::Follows { leader, as_of } = phase {
            for one in &mut all {
                one.role = match () {
                    () if leader.as_ref().is_some_and(|leader| leader.address == one.address) => ControllerRole::Leader,
                    () if one.name == self.name && as_of.is_some() => ControllerRole::Standby,
                    () if one.name == self.name => ControllerRole::Joining,
                    () => ControllerRole::Down,
                };
            }
        }
        all
    }

    /// Takes in what is known of all controllers.
    pub(super) fn tell(&self, controllers: Vec<ControllerInfo>) {
        *self.roll.lock().unwrap_or_else(PoisonError::into_inner) = controllers;
    }
}

/// What a controller is at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It leads, in the term of this number. None: it is the only controller.
    Leads(Option<u64>),
    /// It follows.
    Follows {
        /// The controller that leads. None: none leads, as far as is known.
        leader: Option<Leader>,
        /// When the state was last known to be up to date. None: there is no state yet.
        as_of: Option<Instant>,
    },
}

impl Phase {
    /// Changes to following `leader`. Returns whether that is another one than before.
    pub(super) fn follow(&mut self, leader: Option<&Leader>, as_of: Option<Instant>) -> bool {
        let now = Self::Follows { leader: leader.cloned(), as_of };
        let before = std::mem::replace(self, now);
        !matches!(&before, Self::Follows { leader: before, .. } if before.as_ref() == leader)
    }

    /// Returns what the standby `name` tells of itself.
    pub(super) fn standby(&self, name: &str) -> Standby {
        let (leader, as_of) = match self {
            Self::Leads(_) => (None, None),
            Self::Follows { leader, as_of } => (leader.clone(), *as_of),
        };
        let age_ms = as_of.map(|as_of| u64::try_from(as_of.elapsed().as_millis()).unwrap_or(u64::MAX));
        Standby { leader, name: name.to_owned(), age_ms }
    }
}
