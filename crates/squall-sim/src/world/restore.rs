//! The controller's disk is lost, and what was copied from it comes back: a backup, once or again, or an older one after a
//! newer one, or a mere copy (faults.md A8, R1). And one node lies about what it has heard (faults.md A3).
//!
//! All changes after the backup are lost, so most invariants of the judge no longer hold. From the first restoration on
//! the judge checks only the promises for a restored controller: no id is given twice, no script that has run begins
//! again unless its user releases it, nothing that runs is killed.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use squall_engine::control::Controller;
use squall_engine::control::state::State;
use squall_model::event::{Event, NodeAdmin, Record};
use squall_model::id::{JobId, StepKey, StepNo};
use squall_model::job::{ExitCode, JobAttempt};
use squall_model::time::{Span, Time};
use squall_store::memory::MemoryLog;

use crate::coverage::Fault;
use crate::judge::Violation;
use crate::mutation::Mutation;
use crate::run::{Report, Settings, panicked, plan, report, setup_of};
use crate::seed::Seed;
use crate::setup::BEGIN;
use crate::world::World;
use crate::world::client::Wish;
use crate::world::controller::CrashPoint;

/// Time after the start of a restored controller within which every node registers.
const COME: Span = Span::from_secs(120);

/// Number of epochs above its own that a node claims to have heard when it lies.
const LIE: u64 = 900;

/// A copy of the controller's disk.
#[derive(Debug)]
pub(crate) struct Backup {
    log: MemoryLog,
    /// The last job id that was assigned.
    last: JobId,
    made: Time,
}

/// How a copy of the controller's disk is brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestoreMethod {
    /// The files are copied, and the controller is not told.
    Copied,
    /// As after `Copied`, but the controller is started with `--accept-loss`.
    Accepted,
    /// By `squall restore`.
    Restored,
}

/// State of the restoration of a backup.
#[derive(Debug)]
pub(crate) struct Restoration {
    way: RestoreMethod,
    /// Whether the controller was to be told that it lacks something. Then it must not run what has run, and is never
    /// refused.
    told: bool,
    /// When the backup was made.
    made: Time,
    /// Whether the start of the restored controller is durable, so that the next start is like any other.
    begun: bool,
    /// Whether the controller has ended with the error that nodes have newer data.
    refused: bool,
    /// Steps, with their nodes, that ran at the restoration and belong to jobs that the backup does not have: nothing
    /// may kill them.
    spared: BTreeSet<(StepKey, usize)>,
    /// Ids that were assigned before: first id and number.
    given: Vec<(JobId, u32)>,
    /// Jobs with a script that has begun and is not the one that the state has as running: it must not begin again. None:
    /// the state was not read yet.
    spent: Option<BTreeSet<JobId>>,
    /// Jobs that their users released, or requeued, since.
    freed: BTreeSet<JobId>,
    /// Nodes that know of something that the state lacks; those that may.
    knowing: (BTreeSet<usize>, BTreeSet<usize>),
    /// Number of nodes that the state knows as registered.
    registered: usize,
    /// Whether users may make requests.
    is_open: bool,
}

/// Simulates one seed in which the controller's disk is lost and an older backup is restored, several times, with users
/// active before and after.
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
    let part = Span(settings.span.0 / 6);
    world.run_until(BEGIN + part)?;
    world.back_up();
    if world.nodes.len() > 1 && seed.chance(500_000) {
        let node = seed.below(world.nodes.len() as u64) as usize;
        world.lie(node)?;
    }
    world.run_until(BEGIN + Span(2 * part.0))?;
    world.back_up();
    // The controller starts up to three more times before the backup is restored.
    world.controllers[0].restart = Some(Span::from_secs(1));
    for _ in 0..seed.below(4) {
        world.run_until(world.now + Span(part.0 / 3))?;
        world.crash_if_it_serves();
    }
    world.run_until(BEGIN + Span(4 * part.0))?;
    // The disk breaks up to three times. Often the same backup is restored again, or the one before.
    for number in 0..seed.between(1, 3) {
        world.controllers[0].restart = None;
        world.crash_if_it_serves();
        if number > 0 {
            trouble_nodes(world, seed);
        }
        let which = usize::from(seed.chance(700_000));
        match seed.weighted(&[if number == 0 { 4 } else { 1 }, 1, 4]) {
            0 => {
                world.restore(which, RestoreMethod::Copied);
                world.run_until(world.now + COME)?;
                world.check_copied();
                world.judge.check_over()?;
                world.crash_if_it_serves();
                world.restore(which, RestoreMethod::Accepted);
            }
            1 => world.restore(which, RestoreMethod::Accepted),
            _ => world.restore(which, RestoreMethod::Restored),
        }
        world.let_in();
        live(world, part, seed)?;
    }
    // Time for all running jobs to end.
    world.run_until(world.now.max(BEGIN + settings.span) + Span::from_secs(3600))?;
    world.judge.check_over()
}

/// Lets a restored controller run, and die now and then.
fn live(world: &mut World, span: Span, seed: &mut Seed) -> Result<(), Box<Violation>> {
    world.controllers[0].restart = Some(Span::from_secs(1));
    let until = world.now + Span(seed.between(0, 2 * span.0));
    while seed.chance(500_000) {
        world.run_until(world.now + Span(seed.between(0, span.0 / 2)))?;
        world.crash_if_it_serves();
    }
    world.run_until(until.max(world.now))?;
    world.judge.check_over()
}

/// Some nodes lose what they know before the next restoration.
fn trouble_nodes(world: &mut World, seed: &mut Seed) {
    for node in 0..world.nodes.len() {
        let after = Span::from_millis(seed.spread(10, 10_000));
        match seed.below(6) {
            0 if world.nodes[node].powered => {
                world.cut_power(node, None);
                world.restore_power(node, after);
            }
            1 => {
                world.nodes[node].restart = Some(after);
                world.kill_node_daemon(node);
            }
            _ => {}
        }
    }
}

impl World {
    fn crash_if_it_serves(&mut self) {
        if self.controllers[0].serves() {
            self.crash_controller(0, CrashPoint::Idle);
        }
    }

    /// Copies the controller's disk, to be restored later.
    pub(crate) fn back_up(&mut self) {
        let last = self.controllers[0].state().map_or(JobId(0), |state| state.last_id);
        let log = self.controllers[0].log.backup();
        self.backups.push(Backup { log, last, made: self.now });
    }

    /// Brings the backup of this index back, and starts the controller. After a copy that was refused, acceptance needs no
    /// other copy.
    fn restore(&mut self, which: usize, way: RestoreMethod) {
        let Some(Backup { log, last, made }) = self.backups.get(which) else { return };
        let (log, last, made) = (log.backup(), *last, *made);
        self.strike(Fault::BackupRestored, way as u64);
        self.judge.sleep();
        // A step of a job in the backup may end by its time limit or its user. A step that was already ending is
        // killed by its node.
        let unknown = |key: &StepKey| key.job > last && key.step == StepNo::BATCH && !self.judge.is_ending(key.job);
        let spared = self.judge.live_steps().iter().filter(|(key, _)| unknown(key)).copied().collect();
        let goes_on = way == RestoreMethod::Accepted
            && self.restoration.as_ref().is_some_and(|one| one.way == RestoreMethod::Copied);
        if !goes_on {
            self.controllers[0].change_log(log);
        }
        let (told, planted) = (way != RestoreMethod::Copied, |mutation| self.is_planted(mutation));
        let way = match way {
            RestoreMethod::Copied if planted(Mutation::LossAccepted) => RestoreMethod::Accepted,
            RestoreMethod::Restored if planted(Mutation::MarkLost) => RestoreMethod::Copied,
            way => way,
        };
        self.restoration = Some(Restoration {
            way,
            told,
            made,
            begun: false,
            refused: false,
            spared,
            given: self.judge.submitted.iter().map(|(first, (count, _))| (*first, *count)).collect(),
            spent: None,
            freed: BTreeSet::new(),
            knowing: Default::default(),
            registered: 0,
            is_open: false,
        });
        self.start_controller(0, Span::from_millis(100));
    }

    /// Tells a controller that is about to start from a restored state what its host knows of that.
    pub(crate) fn note_restored(&mut self, machine: &mut Controller) {
        if self.restoration.as_ref().is_some_and(|restoration| restoration.spent.is_none()) {
            self.look_at_restored(machine.state());
        }
        let Some(restoration) = self.restoration.as_ref().filter(|one| !one.begun && one.way != RestoreMethod::Copied)
        else {
            return;
        };
        machine.restore(self.now.since(restoration.made));
        if restoration.way == RestoreMethod::Accepted {
            machine.accept_loss();
        }
    }

    /// Finds out what nodes know and a restored state does not.
    fn look_at_restored(&mut self, state: &State) {
        let is_same = |key: &StepKey| state.jobs.get(&key.job).is_some_and(|job| job.attempt == key.attempt);
        let live = self.judge.live_steps().iter().map(|(key, _)| key);
        let kept: BTreeSet<JobId> =
            live.filter(|key| key.step == StepNo::BATCH && is_same(key)).map(|key| key.job).collect();
        let spent = self.judge.begun_scripts().filter(|job| !kept.contains(job)).collect();
        let mut knowing = (BTreeSet::new(), BTreeSet::new());
        for (at, node) in self.nodes.iter().enumerate() {
            let job = node.last_job();
            if node.has_daemon() && (node.heard().epoch.0 > state.epoch.0 + 1 || job > state.last_id) {
                knowing.0.insert(at);
            }
            let later = |one: &JobAttempt| state.jobs.get(&one.job).is_some_and(|job| one.attempt > job.attempt);
            let leases = self.setup.config.partitions.iter().any(|partition| partition.lease_jobs > 0);
            if leases
                || node.heard().epoch > state.epoch
                || job > state.last_id
                || node.attempts().any(|one| later(&one))
            {
                knowing.1.insert(at);
            }
        }
        let registered = state.nodes.iter().filter(|node| node.incarnation.is_some()).count();
        if let Some(restoration) = &mut self.restoration {
            (restoration.spent, restoration.knowing, restoration.registered) = (Some(spent), knowing, registered);
        }
    }

    /// Lets users make requests after a restoration.
    fn let_in(&mut self) {
        if let Some(restoration) = &mut self.restoration {
            restoration.is_open = true;
        }
    }

    /// Returns whether users must wait, because the controller runs on a copy that it should refuse.
    pub(crate) fn is_shut(&self) -> bool {
        self.restoration.as_ref().is_some_and(|restoration| !restoration.is_open)
    }

    /// Executes a scenario's statement about backups. None: makes a backup. Some: brings back the one of this number,
    /// from 1 on, or the last one, after which every node registers. A mere copy must be refused if most nodes know
    /// more; after another way users may submit again.
    pub(crate) fn tell_backup(&mut self, restore: Option<(RestoreMethod, Option<usize>)>) -> Result<(), String> {
        let Some((way, number)) = restore else {
            self.back_up();
            return Ok(());
        };
        let which = number.unwrap_or(self.backups.len()).wrapping_sub(1);
        if which >= self.backups.len() {
            return Err("there is no such backup".into());
        }
        self.controllers[0].restart = None;
        self.crash_if_it_serves();
        self.restore(which, way);
        self.run_until(self.now + COME).map_err(|v| v.to_string())?;
        if way == RestoreMethod::Copied {
            self.check_copied();
        } else {
            self.let_in();
        }
        self.judge.check_over().map_err(|v| v.to_string())
    }

    /// Has a node say, from the next start of its daemon on, that it has heard of a much newer controller: nothing happens
    /// but to that node. Then somebody removes what it has heard, and with it all that it has.
    pub(crate) fn lie(&mut self, node: usize) -> Result<(), Box<Violation>> {
        self.strike(Fault::NodeLies, node as u64);
        self.disturb(COME);
        self.nodes[node].restart = None;
        self.kill_node_daemon(node);
        self.nodes[node].hear(LIE);
        self.start_node(node, Span::from_millis(1));
        let asked = self.judge.last_admin(node);
        self.run_until(self.now + COME)?;
        self.check_lie(node, asked);
        self.judge.check_over()?;
        self.disturb(COME);
        self.cut_power(node, None);
        self.restore_power(node, Span::from_secs(1));
        let nodes = self.nodes[node].name.clone();
        self.wish(Wish::Admin { nodes, admin: NodeAdmin::Resume, after: None });
        self.run_until(self.now + COME)
    }

    /// Checks that a node which lies is drained and left out, and that nothing else has changed. `asked`: the last request
    /// about the node before it lied, as an operator may resume it afterwards.
    fn check_lie(&mut self, node: usize, asked: Option<usize>) {
        let name = self.nodes[node].name.clone();
        let drained = self.controllers[0].state().and_then(|state| is_left_out(state, &name));
        let resumed = drained == Some(false) && self.judge.last_admin(node) != asked;
        if drained != Some(true) && !resumed || self.controllers[0].is_connected(&name) {
            self.judge.violate_awake("a node that knows of a newer controller is drained and left out", name);
        }
    }

    /// Ends a restored controller because nodes have newer data. Returns false if no backup was restored.
    pub(crate) fn refuses_backup(&mut self) -> bool {
        let Some(restoration) = &mut self.restoration else { return false };
        restoration.refused = true;
        let (told, most) = (restoration.told, 2 * restoration.knowing.1.len() > restoration.registered);
        self.controllers[0].restart = None;
        self.crash_controller(0, CrashPoint::ShutDown);
        if told || !most {
            let text = format!("told: {told}, most know more: {most}");
            self.judge.violate_awake("only a mere copy is refused, and only if most nodes know more", text);
        }
        true
    }

    /// Checks what has become of a mere copy: it was refused if most nodes know more, and otherwise they are left out.
    fn check_copied(&mut self) {
        let Some(restoration) = self.restoration.as_ref().filter(|one| !one.refused) else { return };
        if 2 * restoration.knowing.0.len() > restoration.registered {
            let text = "it goes on".to_owned();
            return self.judge.violate_awake("a controller that is older than most nodes know says so and ends", text);
        }
        for node in restoration.knowing.0.clone() {
            self.check_lie(node, self.judge.last_admin(node));
        }
    }

    /// Checks the last records of a restored controller, which survived a crash although they were not flushed.
    pub(crate) fn restored_finds(&mut self, records: &[Record], surviving: u64) {
        // Otherwise they are those of the backup.
        if self.restoration.as_ref().is_some_and(|restoration| restoration.spent.is_some()) {
            let first = records.len().saturating_sub(surviving as usize);
            records[first..].iter().for_each(|record| self.restored_decides(record));
        }
    }

    /// Checks a record of a restored controller: a new job's id must be one that was never assigned.
    pub(crate) fn restored_decides(&mut self, record: &Record) {
        let Some(restoration) = self.restoration.as_mut() else { return };
        for event in &record.events {
            match event {
                Event::ControllerStarted { .. } => restoration.begun = true,
                Event::JobReleased { id, whole } => {
                    let count = self.judge.submitted.get(id).filter(|_| *whole).map_or(1, |(count, _)| *count);
                    restoration.freed.extend((0..count).map(|at| JobId(id.0 + at)));
                }
                Event::JobRequeued { id, .. } => _ = restoration.freed.insert(*id),
                Event::JobSubmitted { id, .. } if restoration.told => {
                    let count = self.judge.submitted.get(id).map_or(1, |(count, _)| *count);
                    let taken = |(first, size): &&(JobId, u32)| id.0 < first.0 + size && first.0 < id.0 + count;
                    if let Some((first, size)) = restoration.given.iter().find(taken) {
                        let text = format!("job {id} ({count}), as job {first} ({size})");
                        self.judge.violate_awake("no id is given twice", text);
                    }
                }
                _ => {}
            }
        }
    }

    /// Checks that a script which begins after a restoration has not run before.
    pub(crate) fn restored_begins(&mut self, key: StepKey) {
        let Some(restoration) = self.restoration.as_ref().filter(|_| key.step == StepNo::BATCH) else { return };
        let spent = restoration.spent.as_ref().is_some_and(|spent| spent.contains(&key.job));
        if restoration.told && spent && !restoration.freed.contains(&key.job) {
            let text = format!("step {key}");
            self.judge.violate_awake("no script that has run runs again after a restoration", text);
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

/// Whether a node is drained, as it knows of a newer state or an operator wanted it. None: there is no such node.
fn is_left_out(state: &State, name: &str) -> Option<bool> {
    let node = state.node(state.node_id(name)?)?;
    Some(node.admin != NodeAdmin::Resume)
}
