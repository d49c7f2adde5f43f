//! The controller's disk is lost, and an older backup of it is restored: nodes know more than that (faults.md A8).
//!
//! What came after the backup is lost, so most of what the judge holds does not hold any more: from the restoration on it
//! is asleep, and only what is promised of a restored controller is judged.

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

/// So long after it was started, every node has come to a restored controller.
const COME: Span = Span::from_secs(120);

/// What is known of a restoration.
#[derive(Debug, Default)]
pub(crate) struct Restoration {
    /// `--accept-loss`.
    accepts: bool,
    /// The controller has ended with the word that nodes have seen more.
    refused: bool,
    /// Steps that ran when it was restored: nothing may end them.
    spared: BTreeSet<(StepKey, usize)>,
    /// The highest id that a node knows.
    known: JobId,
    /// It was restored with `--accept-loss` and has had time to hear of all nodes: users are let in.
    pub(crate) is_open: bool,
}

/// Simulates one seed: users, a backup, more users, the loss of the disk, the backup restored.
pub(crate) fn run(settings: &Settings) -> Report {
    let mut seed = Seed::new(settings.seed ^ 0x00ba_c4ed);
    let mut setup = setup_of(settings, &mut seed);
    setup.config.node_lost_s = 1_000_000_000;
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
    // None, one or some lives later.
    world.controller.restart = Some(Span::from_secs(1));
    for _ in 0..seed.below(4) {
        world.run_until(world.now + Span(third.0 / 5))?;
        if world.controller.serves() {
            world.crash_controller(CrashPoint::Idle);
        }
    }
    world.run_until(BEGIN + Span(2 * third.0))?;
    world.controller.restart = None;
    if world.controller.serves() {
        world.crash_controller(CrashPoint::Idle);
    }
    // Nodes know nothing that the backup lacks: it is as good as the disk.
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
    // Whatever was running has come to its end.
    world.run_until(world.now + Span::from_secs(3600))?;
    world.judge.check_over()
}

impl World {
    /// Somebody copies the controller's disk.
    pub(crate) fn back_up(&mut self) {
        self.backup = Some((self.controller.disk.backup(), self.controller.state().map_or(JobId(0), |s| s.last_id)));
    }

    /// The backup is brought back, and the controller started. False: no node that is there knows more.
    pub(crate) fn restore(&mut self, accepts: bool) -> bool {
        let Some((disk, last)) = self.backup.clone() else { return false };
        // A job that the backup knows has a limit and a user, either of which may end it. A job whose end was decided
        // before is killed by its node.
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
            self.controller.change_disk(disk);
        }
        let accepts = accepts || self.is_planted(Mutation::LossAccepted);
        self.restoration = Some(Restoration { accepts, spared, known, ..before.unwrap_or_default() });
        self.start_controller(Span::from_millis(100));
        true
    }

    /// Users come again.
    fn let_in(&mut self) {
        if let Some(restoration) = &mut self.restoration {
            restoration.is_open = true;
        }
    }

    /// Whether users are kept away: until a restored controller has heard of all nodes.
    pub(crate) fn is_shut(&self) -> bool {
        self.restoration.as_ref().is_some_and(|restoration| !restoration.is_open)
    }

    /// Whether what came after a backup may be lost.
    pub(crate) fn accepts_loss(&self) -> bool {
        self.restoration.as_ref().is_some_and(|restoration| restoration.accepts)
    }

    /// As stories do it: the backup is restored, and every node comes; those who do not accept the loss are refused, and
    /// to the others users come again.
    pub(crate) fn tell_backup(&mut self, restore: Option<bool>) -> Result<(), String> {
        let Some(accepts) = restore else {
            self.back_up();
            return Ok(());
        };
        self.controller.restart = None;
        if self.controller.serves() {
            self.crash_controller(CrashPoint::Idle);
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

    /// A node contradicts the controller, which ends. False: nobody has restored anything.
    pub(crate) fn refuses_backup(&mut self) -> bool {
        let Some(restoration) = &mut self.restoration else { return false };
        restoration.refused = true;
        self.controller.restart = None;
        self.crash_controller(CrashPoint::ShutDown);
        true
    }

    fn check_refused(&mut self) {
        if self.restoration.as_ref().is_some_and(|restoration| !restoration.refused) {
            let text = "it goes on".to_owned();
            self.judge.violate_awake("a controller that is older than what nodes know says so and ends", text);
        }
    }

    /// What a restored controller has decided.
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

    /// The tasks of a step have ended.
    pub(crate) fn restored_loses(&mut self, node: usize, key: StepKey, exit: ExitCode) {
        let Some(restoration) = &self.restoration else { return };
        if exit.signal != 0 && restoration.spared.contains(&(key, node)) {
            let text = format!("step {key} on {} by signal {}", self.nodes[node].name, exit.signal);
            self.judge.violate_awake("nothing that ran when a backup was restored is killed", text);
        }
    }
}
