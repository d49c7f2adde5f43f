//! What was reached: each fault with each state that a job was in when it struck. Zero means: not tested.

/// A fault that the simulator injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The controller dies after it decided, before it appended.
    CrashBeforeAppend,
    /// The controller dies between append and flush.
    CrashBeforeFlush,
    /// The controller dies between flush and the first send.
    CrashBeforeRelease,
    /// The controller dies after some of its sends.
    CrashMidRelease,
    /// The controller dies while nothing is under way.
    CrashIdle,
    /// The controller dies in recovery.
    CrashInRecovery,
    /// Recovery found a torn record.
    TornTail,
    /// Recovery found records that were not flushed.
    UnflushedSurvived,
    /// A flush takes seconds.
    SlowFlush,
    /// The controller's disk is full.
    DiskFull,
    /// A node daemon is killed.
    NodeDaemonKilled,
    /// A step daemon is killed; its tasks live on.
    StepDaemonKilled,
    /// Step daemon and node daemon are killed together, and the nursery with them.
    BothDaemonsKilled,
    /// A node loses power.
    PowerLost,
    /// A node comes back with an old image of its disk.
    OldImage,
    /// A copy of a node's spool is brought back while its daemon is down.
    SpoolRolledBack,
    /// A node's spool loses a folder while its daemon is down.
    FolderLost,
    /// A node's spool is full.
    SpoolFull,
    /// A node is ten times slower.
    NodeSlow,
    /// A link is cut both ways.
    Cut,
    /// Frames to the controller are lost, the other way works.
    CutUp,
    /// Frames to the node are lost, the other way works.
    CutDown,
    /// A connection is reset.
    Reset,
    /// All nodes lose their links and come back together.
    Storm,
    /// Frames are lost, doubled and reordered.
    FoulWeather,
    /// A client loses its connection.
    ClientLost,
    /// A srun or salloc is killed.
    ClientKilled,
    /// The cluster is shut down and started again.
    ShutDown,
    /// Every frame takes many seconds.
    Tar,
    /// A node daemon is killed between two things that it does.
    NodeDaemonKilledInAct,
    /// A step daemon is killed between two things that it does.
    StepDaemonKilledInAct,
    /// The daemon of a node that has others below it is killed.
    InteriorKilled,
    /// A node that has others below it is twenty times slower.
    InteriorSlow,
    /// From a node to its parent in the tree nothing arrives, the other way works.
    CutToParent,
    /// From its parent in the tree nothing arrives at a node, the other way works.
    CutFromParent,
    /// A node and all below it reach each other, and nobody else.
    SubtreeCut,
    /// The wall clock of the controller's machine is set.
    ClockSet,
    /// The controller's disk is lost, and an older backup restored.
    BackupRestored,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 38] = [
        Self::CrashBeforeAppend,
        Self::CrashBeforeFlush,
        Self::CrashBeforeRelease,
        Self::CrashMidRelease,
        Self::CrashIdle,
        Self::CrashInRecovery,
        Self::TornTail,
        Self::UnflushedSurvived,
        Self::SlowFlush,
        Self::DiskFull,
        Self::NodeDaemonKilled,
        Self::StepDaemonKilled,
        Self::BothDaemonsKilled,
        Self::PowerLost,
        Self::OldImage,
        Self::SpoolRolledBack,
        Self::FolderLost,
        Self::SpoolFull,
        Self::NodeSlow,
        Self::Cut,
        Self::CutUp,
        Self::CutDown,
        Self::Reset,
        Self::Storm,
        Self::FoulWeather,
        Self::ClientLost,
        Self::ClientKilled,
        Self::ShutDown,
        Self::Tar,
        Self::NodeDaemonKilledInAct,
        Self::StepDaemonKilledInAct,
        Self::InteriorKilled,
        Self::InteriorSlow,
        Self::CutToParent,
        Self::CutFromParent,
        Self::SubtreeCut,
        Self::ClockSet,
        Self::BackupRestored,
    ];
    /// Its name in traces and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::CrashBeforeAppend => "crash-before-append",
            Self::CrashBeforeFlush => "crash-before-flush",
            Self::CrashBeforeRelease => "crash-before-release",
            Self::CrashMidRelease => "crash-mid-release",
            Self::CrashIdle => "crash-idle",
            Self::CrashInRecovery => "crash-in-recovery",
            Self::TornTail => "torn-tail",
            Self::UnflushedSurvived => "unflushed-survived",
            Self::SlowFlush => "slow-flush",
            Self::DiskFull => "disk-full",
            Self::NodeDaemonKilled => "node-daemon-killed",
            Self::StepDaemonKilled => "step-daemon-killed",
            Self::BothDaemonsKilled => "both-daemons-killed",
            Self::PowerLost => "power-lost",
            Self::OldImage => "old-image",
            Self::SpoolRolledBack => "spool-rolled-back",
            Self::FolderLost => "folder-lost",
            Self::SpoolFull => "spool-full",
            Self::NodeSlow => "node-slow",
            Self::Cut => "cut",
            Self::CutUp => "cut-up",
            Self::CutDown => "cut-down",
            Self::Reset => "reset",
            Self::Storm => "storm",
            Self::FoulWeather => "foul-weather",
            Self::ClientLost => "client-lost",
            Self::ClientKilled => "client-killed",
            Self::ShutDown => "shut-down",
            Self::Tar => "tar",
            Self::NodeDaemonKilledInAct => "node-daemon-killed-in-act",
            Self::StepDaemonKilledInAct => "step-daemon-killed-in-act",
            Self::InteriorKilled => "interior-killed",
            Self::InteriorSlow => "interior-slow",
            Self::CutToParent => "cut-to-parent",
            Self::CutFromParent => "cut-from-parent",
            Self::SubtreeCut => "subtree-cut",
            Self::ClockSet => "clock-set",
            Self::BackupRestored => "backup-restored",
        }
    }
}

/// What a job was doing when a fault struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Waits in the queue.
    Pending,
    /// Has its resources, but no process was ever seen.
    Starting,
    /// Its processes run.
    Running,
    /// Its processes have ended, the controller does not know yet.
    Unreported,
    /// Its end is decided, its nodes are not released.
    Ending,
    /// Has ended.
    Ended,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Starting, Self::Running, Self::Unreported, Self::Ending, Self::Ended];
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Unreported => "unreported",
            Self::Ending => "ending",
            Self::Ended => "ended",
        }
    }
}

/// How often each fault struck while a job was in each phase, and how often in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    struck: [u64; Fault::ALL.len()],
    reached: [[u64; Phase::ALL.len()]; Fault::ALL.len()],
}

impl Default for Coverage {
    fn default() -> Self {
        Self { struck: [0; Fault::ALL.len()], reached: [[0; Phase::ALL.len()]; Fault::ALL.len()] }
    }
}

impl Coverage {
    /// The fault struck while so many jobs were in each phase.
    pub(crate) fn strike(&mut self, fault: Fault, jobs: [u64; Phase::ALL.len()]) {
        self.struck[fault as usize] += 1;
        for (reached, jobs) in self.reached[fault as usize].iter_mut().zip(jobs) {
            *reached += u64::from(jobs > 0);
        }
    }
    /// Adds what another run reached.
    pub fn absorb(&mut self, other: &Self) {
        for (mine, theirs) in self.struck.iter_mut().zip(other.struck) {
            *mine += theirs;
        }
        for (mine, theirs) in self.reached.iter_mut().flatten().zip(other.reached.iter().flatten()) {
            *mine += theirs;
        }
    }
    /// How often the fault struck.
    pub fn struck(&self, fault: Fault) -> u64 {
        self.struck[fault as usize]
    }
    /// How often the fault struck while a job was in that phase.
    pub fn reached(&self, fault: Fault, phase: Phase) -> u64 {
        self.reached[fault as usize][phase as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::{Coverage, Fault, Phase};

    #[test]
    fn lists_are_in_the_order_of_their_numbers() {
        assert!(Fault::ALL.iter().enumerate().all(|(at, &fault)| fault as usize == at));
        assert!(Phase::ALL.iter().enumerate().all(|(at, &phase)| phase as usize == at));
    }

    #[test]
    fn strikes_add_up() {
        let mut one = Coverage::default();
        one.strike(Fault::Cut, [1, 0, 5, 0, 0, 0]);
        let mut all = Coverage::default();
        all.absorb(&one);
        all.absorb(&one);
        assert_eq!((all.struck(Fault::Cut), all.reached(Fault::Cut, Phase::Running)), (2, 2));
        assert_eq!(all.reached(Fault::Cut, Phase::Ended), 0);
    }
}
