//! Planted bugs: each breaks one promise at a machine's boundary; the simulator must notice every one.

macro_rules! mutations {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// A planted bug. Machines know nothing of it: the world perturbs what goes in and comes out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mutation {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Mutation {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];
            /// Its name on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

mutations! {
    /// The disk says that it flushed, and did not.
    FlushSkipped = "flush-skipped",
    /// Answers and sends leave after the append, before the flush.
    ReleaseBeforeFlush = "release-before-flush",
    /// Answers leave before anything is appended.
    AnswerBeforeJournal = "answer-before-journal",
    /// Reports are acknowledged to nodes before they are durable.
    AckBeforeFlush = "ack-before-flush",
    /// A torn tail is not cut at recovery; later records stand behind it.
    TornTailKept = "torn-tail-kept",
    /// Replay leaves out one record.
    RecordSkipped = "record-skipped",
    /// Replay applies one record twice.
    RecordReplayedTwice = "record-replayed-twice",
    /// A snapshot claims to hold one record more than it does.
    SnapshotAhead = "snapshot-ahead",
    /// After a restart ids are given out from the beginning again.
    IdsReset = "ids-reset",
    /// Scripts are not made durable with their jobs.
    BlobsForgotten = "blobs-forgotten",
    /// A retried submission counts as a new one.
    RetryKeyIgnored = "retry-key-ignored",
    /// A launch is carried out twice.
    LaunchDoubled = "launch-doubled",
    /// Now and then a node does not hear that a step has ended.
    CompletionLost = "completion-lost",
    /// Now and then a report is acknowledged but lost.
    ReportLost = "report-lost",
    /// Reports arrive with another exit code.
    ExitCodeChanged = "exit-code-changed",
    /// A frame of an earlier session is taken for one of this session.
    StaleFrameTaken = "stale-frame-taken",
    /// A restarted node daemon does not look into its spool.
    SpoolForgotten = "spool-forgotten",
    /// A restarted node daemon does not see that its spool has forgotten something.
    ForgettingUnseen = "forgetting-unseen",
    /// A restarted node daemon registers, and only then sweeps what earlier lives left.
    SweptAfterwards = "swept-afterwards",
    /// A restarted node daemon takes running steps for never started.
    StartedTakenForUnstarted = "started-taken-for-unstarted",
    /// A node comes back from a power loss with its old incarnation.
    IncarnationKept = "incarnation-kept",
    /// Orders to end a job never reach the node.
    EndJobLost = "end-job-lost",
    /// A node says that nothing is left of a job without looking.
    SweepWithoutKill = "sweep-without-kill",
    /// A node reports orphaned tasks as ended while they run.
    OrphansForgotten = "orphans-forgotten",
    /// A report names another job of that node.
    ReportOfAnother = "report-of-another",
    /// Dependencies are not looked at.
    DependencyIgnored = "dependency-ignored",
    /// The limit of running tasks of an array is not looked at.
    ArrayLimitIgnored = "array-limit-ignored",
    /// Held jobs start.
    HoldIgnored = "hold-ignored",
    /// Cancellations are acknowledged and forgotten.
    CancelForgotten = "cancel-forgotten",
    /// Jobs of nodes that are silent for seconds are started elsewhere without proof that they are dead.
    RequeueWithoutProof = "requeue-without-proof",
    /// Steps run on cores that are not theirs.
    WrongCores = "wrong-cores",
    /// Time limits are not looked at.
    TimeLimitIgnored = "time-limit-ignored",
    /// A restarted controller speaks with the epoch of an earlier one.
    EpochStuck = "epoch-stuck",
    /// Later submissions overtake equal earlier ones.
    OrderReversed = "order-reversed",
    /// Now and then a relay passes a put on to all children but one.
    PutNotForwarded = "put-not-forwarded",
    /// Merging reports, a relay now and then drops a node from a set.
    NodeDropped = "node-dropped",
    /// A relay acknowledges what is reported through it before the controller has it.
    CollectorAcknowledges = "collector-acknowledges",
    /// The answer to a registration brings back what the node said in an earlier life.
    StaleRegistration = "stale-registration",
    /// A node carries out what an earlier put brought in place of what this one brings.
    PutOutOfOrder = "put-out-of-order",
    /// When a node registers again, relays do not learn on which way.
    OldRouteKept = "old-route-kept",
    /// A relay answers queries with yes for those below who said no.
    TallyTurned = "tally-turned",
    /// Who was stopped for others does not hear that they are gone.
    WakeForgotten = "wake-forgotten",
    /// Of a heterogeneous job only the first component starts.
    ComponentLeftBehind = "component-left-behind",
    /// The front sends a submission to a cell that has little to do, whatever its key.
    RoutedByLoad = "routed-by-load",
    /// Cells give ids as if each were by itself.
    CellIdsShared = "cell-ids-shared",
    /// The front does not say that a list is without some cell.
    AbsenceUnsaid = "absence-unsaid",
    /// The front takes a cell that it lost for one that heard nothing.
    LostTakenForAway = "lost-taken-for-away",
    /// A job of another cell is said to have ended as soon as somebody asks.
    ForeignEndInvented = "foreign-end-invented",
    /// Answers of other cells are lost, and nobody asks again.
    ForeignEndLost = "foreign-end-lost",
    /// A cell that comes back is not asked what it was asked before.
    ForeignUnasked = "foreign-unasked",
    /// How a forgotten job of another cell ended is not looked up.
    ForeignForgotten = "foreign-forgotten",
    /// The other cells are not asked whether a job is the only one of its name.
    SingleInItsCell = "single-in-its-cell",
    /// A node starts leased jobs at once.
    LeaseBegunEarly = "lease-begun-early",
    /// Leased jobs come to their node in the wrong order.
    LeaseOvertaken = "lease-overtaken",
    /// More jobs are leased than the configuration allows.
    LeasesUnbounded = "leases-unbounded",
    /// A node gives back a leased job, and keeps it.
    LeaseKept = "lease-kept",
    /// The end of a script that was faster than an order to end it counts as the answer to that order.
    EndTakenForTold = "end-taken-for-told",
    /// Nodes that are silent for a minute lose their jobs although the configuration has them wait.
    SilenceTakenForDeath = "silence-taken-for-death",
    /// A node that comes back counts as one that has restarted.
    ReturnTakenForRestart = "return-taken-for-restart",
    /// The controller goes by the wall clock.
    ClockFollowed = "clock-followed",
    /// The controller goes by the wall clock, and stands still when that is set back.
    ClockFrozen = "clock-frozen",
    /// A step daemon forgets output that waits at a cut.
    OutputForgotten = "output-forgotten",
    /// An `srun` takes the end of a link for the final message of its step daemon.
    EndTakenForComplete = "end-taken-for-complete",
    /// An `srun` ends two seconds after the end of its step, although output is still on its way.
    LinkGivenUp = "link-given-up",
    /// A step daemon ends before its `srun` has acknowledged everything.
    LeftUnacknowledged = "left-unacknowledged",
    /// A controller that was restored from a backup goes on without `--accept-loss`, although nodes know more.
    LossAccepted = "loss-accepted",
    /// Nodes do not say which ids they know.
    KnownIdsUnsaid = "known-ids-unsaid",
}

impl Mutation {
    /// Whether it is a bug of cells and their front.
    pub(crate) fn is_of_cells(self) -> bool {
        matches!(
            self,
            Self::RoutedByLoad
                | Self::CellIdsShared
                | Self::AbsenceUnsaid
                | Self::LostTakenForAway
                | Self::ForeignEndInvented
                | Self::ForeignEndLost
                | Self::ForeignUnasked
                | Self::ForeignForgotten
                | Self::SingleInItsCell
        )
    }

    /// Whether it can only show where a backup is restored.
    pub(crate) fn is_of_backups(self) -> bool {
        matches!(self, Self::LossAccepted | Self::KnownIdsUnsaid)
    }

    /// Whether it can only show where jobs are leased.
    pub(crate) fn is_of_leases(self) -> bool {
        matches!(self, Self::LeaseBegunEarly | Self::LeaseOvertaken | Self::LeasesUnbounded | Self::LeaseKept)
    }
}

#[cfg(test)]
mod tests {
    use super::Mutation;

    #[test]
    fn there_are_enough_and_names_differ() {
        let names: std::collections::BTreeSet<_> = Mutation::ALL.iter().map(|m| m.name()).collect();
        assert!(names.len() >= 66 && names.len() == Mutation::ALL.len());
    }
}
