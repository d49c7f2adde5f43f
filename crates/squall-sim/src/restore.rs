//! The controller's disk is lost, and an older backup is restored: nodes have newer data than the backup (faults.md
//! A8).
//!
//! All changes after the backup are lost, so most invariants of the judge no longer hold. From the restoration on the
//! judge checks only the promises for a restored controller.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use squall_model::event::{Event, Record};
use squall_model::id::{JobId, StepKey, StepNo};
use squall_model::job::ExitCode;
use squall_model::time::Span;

use crate::controller::CrashPoint;
use crate::coverage::Fault;
use crate::judge::Violation;
use crate::mutation::Mutation;
use crate::run::{Report, Settings, panicked, plan, report, setup_of};
use crate::seed::Seed;
use crate::world::{BEGIN, World};

/// Time after the start of a restored controller within which every node registers.
const COME: Span = Span::from_secs(120);

/// State of the restoration of a backup.
#[derive(Debug, Default)]
pub(crate) struct Restoration {
    /// Whether the controller was restored with `--accept-loss`.
    accepts: bool,
    /// Whether the controller has ended with the error that nodes have newer data.
    refused: bool,
    /// Steps, with their nodes, that ran at the restoration and belong to jobs that the backup does not have: nothing
    /// may kill them.
    spared: BTreeSet<(StepKey, usize)>,
    /// Highest id of a job that ran at the restoration.
    known: JobId,
    /// Whether users may submit again: the controller was restored with `--accept-loss`, and all nodes had time to
    /// register.
    pub(crate) is_open: bool,
}

/// Simulates one seed in which the controller's disk is lost and an older backup is restored, with users active before
/// and after.
pub(crate) fn run(settings: &Settings) -> Report {
    let mut seed = Seed::new(settings.seed ^ 0x00ba_c4ed);
    let mut setup = setup_of(settings, &mut seed);
    setup.config.node_lost_s = 1_000_000_000;
    setup.controllers = 1;
    let mut world = World::new(setup, settings.seed);
    plan(&mut world, settings, &mut seed);
    world.nemesis.profile = None;
    let played = catch_unwind(AssertUnwindSafe(|| play(&mut world, settings, &mut seed)));
    let violation = played.unwrap_or_else(|panic| Err(Box::new(panicked(panic.as_ref())))).err();
    report(world, settings.seed, violation.map(|v| *v))
}

fn play(world: &mut World, settings: &Settings, seed: &mut Seed) -> Result<(), Box<Violation>> {
    let third = Span(settings.span.0 / 3);
    world.run_until(BEGIN + third)?;
    world.back_up();
    // The controller starts up to three more times before the backup is restored.
    world.controllers[0].restart = Some(Span::from_secs(1));
    for _ in 0..seed.below(4) {
        world.run_until(world.now + Span(third.0 / 5))?;
        if world.controllers[0].serves() {
            world.crash_controller(0, CrashPoint::Idle);
        }
    }
    world.run_until(BEGIN + Span(2 * third.0))?;
    world.controllers[0].restart = None;
    if world.controllers[0].serves() {
        world.crash_controller(0, CrashPoint::Idle);
    }
    // If no running job is newer than the backup, there is nothing to test.
    if !world.restore(false) {
        return Ok(());
    }
    world.run_until(world.now + COME)?;
    world.check_refused();
    world.judge.check_over()?;
    world.restore(true);
    world.run_until(world.now + COME)?;
    world.let_in();
    world.run_until(BEGIN + settings.span + COME)?;
    // Time for all running jobs to end.
    world.run_until(world.now + Span::from_secs(3600))?;
    world.judge.check_over()
}

impl World {
    /// Copies the controller's disk, to be restored later.
    pub(crate) fn back_up(&mut self) {
        self.backup =
            Some((self.controllers[0].log.backup(), self.controllers[0].state().map_or(JobId(0), |s| s.last_id)));
    }

    /// Restores the backup and starts the controller. Returns false if there is no backup, or no running job is newer
    /// than it.
    pub(crate) fn restore(&mut self, accepts: bool) -> bool {
        let Some((log, last)) = self.backup.as_ref().map(|(log, last)| (log.backup(), *last)) else { return false };
        // A step of a job in the backup may end by its time limit or its user. A step that was already ending is
        // killed by its node.
        let unknown = |key: &StepKey| key.job > last && key.step == StepNo::BATCH && !self.judge.is_ending(key.job);
        let live = self.judge.live_steps();
        let known = live.iter().map(|(key, _)| key.job).max().unwrap_or_default();
        let spared: BTreeSet<_> = live.iter().filter(|(key, _)| unknown(key)).copied().collect();
        let before = self.restoration.take();
        if before.is_none() && known <= last {
            return false;
        }
        self.strike(Fault::BackupRestored, u64::from(accepts));
        self.judge.sleep();
        if before.is_none() {
            self.controllers[0].change_log(log);
        }
        let accepts = accepts || self.is_planted(Mutation::LossAccepted);
        self.restoration = Some(Restoration { accepts, spared, known, ..before.unwrap_or_default() });
        self.start_controller(0, Span::from_millis(100));
        true
    }

    /// Lets users submit again after a restoration.
    fn let_in(&mut self) {
        if let Some(restoration) = &mut self.restoration {
            restoration.is_open = true;
        }
    }

    /// Returns whether users must wait, because not all nodes had time to register with a restored controller.
    pub(crate) fn is_shut(&self) -> bool {
        self.restoration.as_ref().is_some_and(|restoration| !restoration.is_open)
    }

    /// Returns whether the controller was restored with `--accept-loss`, so that changes after the backup may be lost.
    pub(crate) fn accepts_loss(&self) -> bool {
        self.restoration.as_ref().is_some_and(|restoration| restoration.accepts)
    }

    /// Executes a scenario's statement about backups. `restore` None: makes a backup. Some: restores it, after which
    /// every node registers. Without `--accept-loss` (false) the controller must refuse to go on; with it (true) users
    /// may submit again.
    pub(crate) fn tell_backup(&mut self, restore: Option<bool>) -> Result<(), String> {
        let Some(accepts) = restore else {
            self.back_up();
            return Ok(());
        };
        self.controllers[0].restart = None;
        if self.controllers[0].serves() {
            self.crash_controller(0, CrashPoint::Idle);
        }
        if !self.restore(accepts) {
            return Err("nothing was copied, or no node knows more than the copy".into());
        }
        self.run_until(self.now + COME).map_err(|v| v.to_string())?;
        if accepts {
            self.let_in();
        } else {
            self.check_refused();
        }
        self.judge.check_over().map_err(|v| v.to_string())
    }

    /// Ends a restored controller because a node has newer data. Returns false if no backup was restored.
    pub(crate) fn refuses_backup(&mut self) -> bool {
        let Some(restoration) = &mut self.restoration else { return false };
        restoration.refused = true;
        self.controllers[0].restart = None;
        self.crash_controller(0, CrashPoint::ShutDown);
        true
    }

    fn check_refused(&mut self) {
        if self.restoration.as_ref().is_some_and(|restoration| !restoration.refused) {
            let text = "it goes on".to_owned();
            self.judge.violate_awake("a controller that is older than what nodes know says so and ends", text);
        }
    }

    /// Checks a record of a restored controller: a new job's id must be above all ids that nodes have seen.
    pub(crate) fn restored_decides(&mut self, record: &Record) {
        let Some(restoration) = &self.restoration else { return };
        let ids = record.events.iter().filter_map(|event| match event {
            Event::JobSubmitted { id, .. } => Some(*id),
            _ => None,
        });
        if let Some(id) = ids.min().filter(|id| *id <= restoration.known) {
            let text = format!("job {id}, nodes know up to {}", restoration.known);
            self.judge.violate_awake("no id is given that a node knows", text);
        }
    }

    /// Checks the end of a step's tasks after a restoration: no step that ran then may be killed.
    pub(crate) fn restored_loses(&mut self, node: usize, key: StepKey, exit: ExitCode) {
        let Some(restoration) = &self.restoration else { return };
        if exit.signal != 0 && restoration.spared.contains(&(key, node)) {
            let text = format!("step {key} on {} by signal {}", self.nodes[node].name, exit.signal);
            self.judge.violate_awake("nothing that ran when a backup was restored is killed", text);
        }
    }
}
