//! Test coverage: each fault with each phase that a job was in when the fault struck. Zero means not tested.

/// A fault that the simulator injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The controller is killed after it decided a batch and before it appended it.
    CrashBeforeAppend,
    /// The controller is killed between append and flush.
    CrashBeforeFlush,
    /// The controller is killed between flush and the first send.
    CrashBeforeRelease,
    /// The controller is killed after it sent some of a batch's messages.
    CrashMidRelease,
    /// The controller is killed while no batch is in progress.
    CrashIdle,
    /// The controller is killed in recovery.
    CrashInRecovery,
    /// Recovery found a record of which only a part was written.
    TornTail,
    /// Recovery found records that were not flushed.
    UnflushedSurvived,
    /// Flushes of the controller's disk take seconds.
    SlowFlush,
    /// The controller's disk is full.
    DiskFull,
    /// A node daemon is killed.
    NodeDaemonKilled,
    /// A step daemon is killed; its tasks continue.
    StepDaemonKilled,
    /// Step daemon, node daemon and the zygote process (zygote) are killed together.
    BothDaemonsKilled,
    /// A node loses power.
    PowerLost,
    /// A node reboots with an old image of its disk.
    OldImage,
    /// A node's spool is replaced by an older copy while its daemon is down.
    SpoolRolledBack,
    /// A node's spool loses a directory while its daemon is down.
    FolderLost,
    /// A node's spool is full.
    SpoolFull,
    /// A node that passes on messages changes them.
    RelayRooted,
    /// A node is ten times slower.
    NodeSlow,
    /// A link is cut in both directions.
    Cut,
    /// Frames to the controller are lost, the other direction works.
    CutUp,
    /// Frames to the node are lost, the other direction works.
    CutDown,
    /// A connection in the tree is reset.
    Reset,
    /// All nodes lose their links and reconnect together.
    Storm,
    /// Frames between nodes and controller are lost, duplicated and reordered.
    FoulWeather,
    /// A client loses its connection.
    ClientLost,
    /// A process of the submit filter is killed.
    FilterKilled,
    /// A srun or salloc is killed.
    ClientKilled,
    /// The cluster is shut down and restarted.
    ShutDown,
    /// Every frame in the network is delayed by 1 to 20 seconds.
    Tar,
    /// A node daemon is killed between two of its actions.
    NodeDaemonKilledInAct,
    /// A step daemon is killed between two of its actions.
    StepDaemonKilledInAct,
    /// The daemon of a node that has other nodes below it in the tree is killed.
    InteriorKilled,
    /// A node that has other nodes below it in the tree is twenty times slower.
    InteriorSlow,
    /// Frames from a node to its parent in the tree are lost, the other direction works.
    CutToParent,
    /// Frames from a node's parent in the tree are lost, the other direction works.
    CutFromParent,
    /// A node and all nodes below it in the tree reach only each other.
    SubtreeCut,
    /// The wall clock of the controller's machine is changed.
    ClockSet,
    /// The controller's disk is lost, and an older backup is restored.
    BackupRestored,
    /// A node claims to have heard of a newer controller.
    NodeLies,
    /// A leading controller does nothing for seconds, and then goes on with what it had.
    LeaderPaused,
    /// A node daemon does nothing for a while, and then goes on with what it had.
    NodeDaemonStopped,
    /// The only controller does nothing for a while, and then goes on with what it had.
    ControllerStopped,
    /// A controller that follows is killed.
    StandbyKilled,
    /// All controllers are killed at the same time.
    AllControllersKilled,
    /// A controller loses its disk.
    JournalLost,
    /// The leader is asked to resign.
    ResignAsked,
    /// A controller and etcd do not reach each other.
    CutFromEtcd,
    /// What a controller asks etcd is lost, the other direction works.
    CutToEtcd,
    /// What etcd answers a controller is lost, the other direction works.
    CutOfEtcd,
    /// A controller reaches etcd, but neither nodes nor users.
    ControllerCut,
    /// A controller reaches nothing.
    ControllerIsolated,
    /// etcd has no quorum.
    EtcdDown,
    /// etcd elects another leader among its members, which extends all leases.
    EtcdElects,
    /// etcd is slow.
    EtcdSlow,
    /// Many answers of etcd are lost.
    EtcdDoubtful,
    /// The database of etcd has reached its quota.
    EtcdFull,
    /// etcd has done what it was asked, but the answer is lost or late.
    AnswerOfEtcdLost,
    /// etcd does what it was asked after the controller has given up.
    EtcdLate,
    /// A batch does not fit into etcd.
    AppendRefused,
    /// A batch is too large for one value in etcd, and is written in pieces.
    BatchInPieces,
    /// A controller takes over.
    TakenOver,
    /// A leader finds that another controller leads.
    Deposed,
    /// A leader cannot renew its lease in time.
    LeaseExpired,
    /// A leader has resigned.
    SteppedDown,
    /// A controller needs a copy of another one's journal.
    CopyFetched,
    /// A controller gets another release.
    ReleaseChanged,
    /// The leader is asked to raise the version of the cluster.
    VersionRaiseAsked,
    /// A controller stops because it is older than the version of the cluster.
    TooOld,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 70] = [
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
        Self::RelayRooted,
        Self::NodeSlow,
        Self::Cut,
        Self::CutUp,
        Self::CutDown,
        Self::Reset,
        Self::Storm,
        Self::FoulWeather,
        Self::ClientLost,
        Self::FilterKilled,
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
        Self::NodeLies,
        Self::LeaderPaused,
        Self::NodeDaemonStopped,
        Self::ControllerStopped,
        Self::StandbyKilled,
        Self::AllControllersKilled,
        Self::JournalLost,
        Self::ResignAsked,
        Self::CutFromEtcd,
        Self::CutToEtcd,
        Self::CutOfEtcd,
        Self::ControllerCut,
        Self::ControllerIsolated,
        Self::EtcdDown,
        Self::EtcdElects,
        Self::EtcdSlow,
        Self::EtcdDoubtful,
        Self::EtcdFull,
        Self::AnswerOfEtcdLost,
        Self::EtcdLate,
        Self::AppendRefused,
        Self::BatchInPieces,
        Self::TakenOver,
        Self::Deposed,
        Self::LeaseExpired,
        Self::SteppedDown,
        Self::CopyFetched,
        Self::ReleaseChanged,
        Self::VersionRaiseAsked,
        Self::TooOld,
    ];
    /// Returns the fault's name in traces and tables.
    #[expect(clippy::too_many_lines, reason = "a table")]
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
            Self::RelayRooted => "relay-rooted",
            Self::NodeSlow => "node-slow",
            Self::Cut => "cut",
            Self::CutUp => "cut-up",
            Self::CutDown => "cut-down",
            Self::Reset => "reset",
            Self::Storm => "storm",
            Self::FoulWeather => "foul-weather",
            Self::ClientLost => "client-lost",
            Self::FilterKilled => "filter-killed",
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
            Self::NodeLies => "node-lies",
            Self::LeaderPaused => "leader-paused",
            Self::NodeDaemonStopped => "node-daemon-stopped",
            Self::ControllerStopped => "controller-stopped",
            Self::StandbyKilled => "standby-killed",
            Self::AllControllersKilled => "all-controllers-killed",
            Self::JournalLost => "journal-lost",
            Self::ResignAsked => "resign-asked",
            Self::CutFromEtcd => "cut-from-etcd",
            Self::CutToEtcd => "cut-to-etcd",
            Self::CutOfEtcd => "cut-of-etcd",
            Self::ControllerCut => "controller-cut",
            Self::ControllerIsolated => "controller-isolated",
            Self::EtcdDown => "etcd-down",
            Self::EtcdElects => "etcd-elects",
            Self::EtcdSlow => "etcd-slow",
            Self::EtcdDoubtful => "etcd-doubtful",
            Self::EtcdFull => "etcd-full",
            Self::AnswerOfEtcdLost => "answer-of-etcd-lost",
            Self::EtcdLate => "etcd-late",
            Self::AppendRefused => "append-refused",
            Self::BatchInPieces => "batch-in-pieces",
            Self::TakenOver => "taken-over",
            Self::Deposed => "deposed",
            Self::LeaseExpired => "lease-expired",
            Self::SteppedDown => "stepped-down",
            Self::CopyFetched => "copy-fetched",
            Self::ReleaseChanged => "release-changed",
            Self::VersionRaiseAsked => "version-raise-asked",
            Self::TooOld => "too-old",
        }
    }
}

/// State of a job when a fault struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The job is pending in the queue.
    Pending,
    /// Resources are allocated, but no process has started.
    Starting,
    /// The job's processes run.
    Running,
    /// The job's processes have ended, but the controller has no report of it.
    Unreported,
    /// The end is decided, the nodes are not released.
    Ending,
    /// The job has ended.
    Ended,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Starting, Self::Running, Self::Unreported, Self::Ending, Self::Ended];
    /// Returns the phase's name in tables.
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

/// Counts of how often each fault struck, in total and while at least one job was in each phase.
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
    /// Counts a fault; `jobs` is the number of jobs in each phase when it struck.
    pub(crate) fn strike(&mut self, fault: Fault, jobs: [u64; Phase::ALL.len()]) {
        self.struck[fault as usize] += 1;
        for (reached, jobs) in self.reached[fault as usize].iter_mut().zip(jobs) {
            *reached += u64::from(jobs > 0);
        }
    }
    /// Adds the counts of another run.
    pub fn absorb(&mut self, other: &Self) {
        for (mine, theirs) in self.struck.iter_mut().zip(other.struck) {
            *mine += theirs;
        }
        for (mine, theirs) in self.reached.iter_mut().flatten().zip(other.reached.iter().flatten()) {
            *mine += theirs;
        }
    }
    /// Returns how often the fault struck.
    pub fn struck(&self, fault: Fault) -> u64 {
        self.struck[fault as usize]
    }
    /// Returns how often the fault struck while at least one job was in the phase.
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
