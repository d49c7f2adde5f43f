//! Planted bugs: each breaks one invariant at a machine's boundary, and the simulator must detect every one.

macro_rules! mutations {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// A planted bug, by which the simulator is tested. The state machines are unchanged: the simulation alters
        /// their inputs and outputs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mutation {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Mutation {
            /// All planted bugs.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];
            /// Returns the bug's name on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

mutations! {
    /// A node reports a checkpoint as complete before it is.
    CountedBeforeSafe = "counted-before-safe",
    /// A node kills a job that is to leave it before the controller says that its checkpoint counts.
    KilledBeforeCounted = "killed-before-counted",
    /// A node lets a job go on of which a dump was killed.
    DamageIgnored = "damage-ignored",
    /// Nodes say that the parts of a checkpoint fit together, whatever is under way between them.
    PartsUncompared = "parts-uncompared",
    /// A restored part of a job goes on without the others.
    GateUnawaited = "gate-unawaited",
    /// A part of a job that goes on on another node is not told which addresses the parts have now.
    MovesUntold = "moves-untold",
    /// A node takes a script of which the restore was killed for one that has ended.
    HalfRestoredEnds = "half-restored-ends",
    /// A job that stepped aside begins from the start when it comes back.
    RestoreForgotten = "restore-forgotten",
    /// The disk reports a flush that it did not do.
    FlushSkipped = "flush-skipped",
    /// Answers and messages are sent after the append, before the flush.
    ReleaseBeforeFlush = "release-before-flush",
    /// Answers are sent before anything is appended.
    AnswerBeforeJournal = "answer-before-journal",
    /// Reports of nodes are acknowledged before they are durable.
    AckBeforeFlush = "ack-before-flush",
    /// Recovery does not cut off a torn tail, so later records follow it.
    TornTailKept = "torn-tail-kept",
    /// Replay omits one record.
    RecordSkipped = "record-skipped",
    /// Replay applies one record twice.
    RecordReplayedTwice = "record-replayed-twice",
    /// A snapshot claims to hold one record more than it does.
    SnapshotAhead = "snapshot-ahead",
    /// After a restart job ids begin at the start again.
    IdsReset = "ids-reset",
    /// Scripts are not made durable with their jobs.
    BlobsForgotten = "blobs-forgotten",
    /// A retried submission is accepted as a new one.
    RetryKeyIgnored = "retry-key-ignored",
    /// A launch is carried out twice.
    LaunchDoubled = "launch-doubled",
    /// Now and then a node daemon does not receive its step daemon's report that the step has ended.
    CompletionLost = "completion-lost",
    /// Now and then a report is acknowledged but lost.
    ReportLost = "report-lost",
    /// Reports arrive with a changed exit code.
    ExitCodeChanged = "exit-code-changed",
    /// A frame of an earlier session is accepted in this session.
    StaleFrameTaken = "stale-frame-taken",
    /// A restarted node daemon does not read its spool.
    SpoolForgotten = "spool-forgotten",
    /// A restarted node daemon does not notice that its spool has lost records.
    ForgettingUnseen = "forgetting-unseen",
    /// A restarted node daemon registers before it sweeps the processes that earlier daemons left.
    SweptAfterwards = "swept-afterwards",
    /// A restarted node daemon treats running steps as never started.
    StartedTakenForUnstarted = "started-taken-for-unstarted",
    /// A node keeps its incarnation number after a power loss.
    IncarnationKept = "incarnation-kept",
    /// Orders to end a job never reach the node.
    EndJobLost = "end-job-lost",
    /// A node reports that nothing is left of a job without sweeping its processes.
    SweepWithoutKill = "sweep-without-kill",
    /// A node reports orphaned tasks as ended while they run.
    OrphansForgotten = "orphans-forgotten",
    /// A report names another job of the same node.
    ReportOfAnother = "report-of-another",
    /// Dependencies between jobs are not checked.
    DependencyIgnored = "dependency-ignored",
    /// The limit of running tasks of an array is not checked.
    ArrayLimitIgnored = "array-limit-ignored",
    /// Held jobs start.
    HoldIgnored = "hold-ignored",
    /// Cancellations are acknowledged and not carried out.
    CancelForgotten = "cancel-forgotten",
    /// Jobs of nodes that are silent for seconds are started elsewhere without proof that their processes are dead.
    RequeueWithoutProof = "requeue-without-proof",
    /// Steps run on cores that were not allocated to them.
    WrongCores = "wrong-cores",
    /// Time limits are not enforced.
    TimeLimitIgnored = "time-limit-ignored",
    /// A restarted controller sends the epoch number of an earlier incarnation.
    EpochStuck = "epoch-stuck",
    /// Later submissions start before equal earlier ones.
    OrderReversed = "order-reversed",
    /// Nodes take messages of the controller without its signature, from a relay that changes them.
    ProofIgnored = "proof-ignored",
    /// A node that calls a controller is not told the keys that were rotated while it was away.
    KeyUntold = "key-untold",
    /// Now and then a relay forwards a put (message to a set of nodes) to all children but one.
    PutNotForwarded = "put-not-forwarded",
    /// A relay that merges reports for its parent now and then drops a node from the set of reporting nodes.
    NodeDropped = "node-dropped",
    /// A relay acknowledges the reports of its children before the controller has them.
    CollectorAcknowledges = "collector-acknowledges",
    /// The controller receives the first registration of a node in place of a later one.
    StaleRegistration = "stale-registration",
    /// A node executes the content of an earlier put (message from the controller) in place of that of the one it
    /// received.
    PutOutOfOrder = "put-out-of-order",
    /// When a node registers again, relays do not update the route to it.
    OldRouteKept = "old-route-kept",
    /// A relay changes negative answers to a query, from nodes below it, into positive ones.
    TallyTurned = "tally-turned",
    /// Jobs that were stopped so that others could run stay stopped when these have ended.
    WakeForgotten = "wake-forgotten",
    /// Only the first component of a heterogeneous job starts.
    ComponentLeftBehind = "component-left-behind",
    /// The front sends a submission to a cell with little load, whatever its key.
    RoutedByLoad = "routed-by-load",
    /// Cells assign job ids from the same range.
    CellIdsShared = "cell-ids-shared",
    /// The front does not report that a list lacks some cell.
    AbsenceUnsaid = "absence-unsaid",
    /// The front assumes that a cell has received nothing whenever the connection to the cell broke.
    LostTakenForAway = "lost-taken-for-away",
    /// A cell gets the answer that a job of another cell has ended, whenever it asks the first time.
    ForeignEndInvented = "foreign-end-invented",
    /// Answers about jobs of other cells are lost, and the queries are not retried.
    ForeignEndLost = "foreign-end-lost",
    /// Queries about jobs of other cells are not repeated to a cell that reconnects.
    ForeignUnasked = "foreign-unasked",
    /// The outcome of a forgotten job of another cell is not looked up.
    ForeignForgotten = "foreign-forgotten",
    /// The other cells are not asked whether a singleton job is the only one of its name.
    SingleInItsCell = "single-in-its-cell",
    /// A controller that starts reads a configuration from before the removal of nodes.
    RemovalForgotten = "removal-forgotten",
    /// It is not journaled that operators drain nodes or set them down.
    DrainUnjournaled = "drain-unjournaled",
    /// The keys of removed nodes stay valid.
    KeyKept = "key-kept",
    /// The key of a removed node is revoked at once, while its jobs run.
    RevokedAtOnce = "revoked-at-once",
    /// A node starts leased jobs before the running job of their slot has ended.
    LeaseBegunEarly = "lease-begun-early",
    /// Leased jobs reach their node in the wrong order.
    LeaseOvertaken = "lease-overtaken",
    /// More jobs are leased than the configuration allows.
    LeasesUnbounded = "leases-unbounded",
    /// A node returns a leased job and still runs it.
    LeaseKept = "lease-kept",
    /// A script that ended by itself, just before an order to end it arrived, is reported as ended by that order.
    EndTakenForTold = "end-taken-for-told",
    /// Nodes that are silent for a minute lose their jobs although they are configured to keep them.
    SilenceTakenForDeath = "silence-taken-for-death",
    /// A node daemon that reconnects is treated as restarted.
    ReturnTakenForRestart = "return-taken-for-restart",
    /// The controller takes the time from the wall clock, which may be set.
    ClockFollowed = "clock-followed",
    /// The controller uses the wall clock, and its time stands still when the clock is set back.
    ClockFrozen = "clock-frozen",
    /// A step daemon drops output that waits for the end of a network cut.
    OutputForgotten = "output-forgotten",
    /// An `srun` treats the end of a link as the final message of its step daemon.
    EndTakenForComplete = "end-taken-for-complete",
    /// An `srun` ends two seconds after the end of its step, although output is still in flight.
    LinkGivenUp = "link-given-up",
    /// A step daemon ends before its `srun` has acknowledged all output.
    LeftUnacknowledged = "left-unacknowledged",
    /// A controller that was restored from a backup continues without `--accept-loss`, although nodes have newer data.
    LossAccepted = "loss-accepted",
    /// Nodes do not report to the controller the highest job id that they have seen.
    KnownIdsUnsaid = "known-ids-unsaid",
    /// A controller takes the word of one node that it knows newer data for the word of all.
    WordOfOthers = "word-of-others",
    /// A backup that is restored is taken for the newest state.
    MarkLost = "mark-lost",
    /// It is not journaled that a backup was restored.
    RestorationUnjournaled = "restoration-unjournaled",
    /// Nodes say of scripts that they do not know that these were never started.
    ForgottenTakenForUnstarted = "forgotten-taken-for-unstarted",
    /// Now and then an event is not sent to its followers.
    EventLost = "event-lost",
    /// A follower that comes back is sent events that it has.
    EventsRepeated = "events-repeated",
    /// A follower is not told that it has missed events.
    LossUnsaid = "loss-unsaid",
    /// The end of a prolog is reported at its start.
    PrologUnawaited = "prolog-unawaited",
    /// The end of an epilog is reported at its start.
    EpilogSkipped = "epilog-skipped",
    /// A restarted node daemon does not know which programs have ended.
    ProgramsForgotten = "programs-forgotten",
    /// Programs that switch nodes on and off run before it is durable that they do.
    SwitchedBeforeJournal = "switched-before-journal",
    /// The program that switches nodes off takes the neighbours of those that it is given.
    NeighbourSwitchedOff = "neighbour-switched-off",
    /// A node that does not come is waited for without end.
    LateNodeAwaited = "late-node-awaited",
    /// It is not journaled that the nodes of a job are up.
    WakingUnjournaled = "waking-unjournaled",
    /// Jobs that want their nodes rebooted start at once.
    RebootIgnored = "reboot-ignored",
    /// It is not journaled that nodes are to reboot.
    RebootUnjournaled = "reboot-unjournaled",
    /// It is not journaled that nodes had faults.
    FaultUnjournaled = "fault-unjournaled",
    /// A check of a node after a fault counts as passed at its start.
    CheckUnawaited = "check-unawaited",
    /// The journal names a node as spare that is not kept free.
    SpareUnkept = "spare-unkept",
    /// It is journaled twice that a node takes a vacant place.
    PlaceFilledTwice = "place-filled-twice",
    /// Nodes are not told that a job which runs has them no more.
    PlaceKept = "place-kept",
    /// It is not journaled that running jobs lost nodes.
    LossUnjournaled = "loss-unjournaled",
    /// It is journaled twice that a running job lost a node.
    LossDoubled = "loss-doubled",
    /// Jobs do not wait for nodes that are up, but have others switched on at once.
    DelayIgnored = "delay-ignored",
    /// Jobs that want their blocks alone start in blocks where others run.
    BlocksShared = "blocks-shared",
    /// Jobs start beside others that are completing, although they are to wait for those.
    CompletionUnawaited = "completion-unawaited",
    /// Nodes that are to be resumed by themselves are not.
    ResumptionForgotten = "resumption-forgotten",
    /// Requests amid which a process of the submit filter ends pass unfiltered.
    FilterSkipped = "filter-skipped",
    /// Requests amid which a process of the submit filter ends are never answered.
    FilterForgets = "filter-forgets",
    /// A submission that was accepted is refused as a filter ends amid its retry.
    AcceptedRefused = "accepted-refused",
    /// A node does not notice that its parent in the tree says nothing.
    SilentParentKept = "silent-parent-kept",
    /// Nodes are not told that the controller asks them more often than every 10 s, so they leave a silent parent too late.
    BeatUntold = "beat-untold",
    /// The controller counts a node fence as passed when the node does not.
    FenceCountedEarly = "fence-counted-early",
    /// The guards of a node's fenced jobs end with its daemon.
    GuardDiesWithDaemon = "guard-dies-with-daemon",
    /// A term of a node fence begins when the acknowledgement comes, and not when that was sent which it acknowledges.
    FenceRenewedByArrival = "fence-renewed-by-arrival",
    /// A controller that starts counts node fences from before it started.
    FenceUnawaited = "fence-unawaited",
    /// A controller that was stopped counts the time against the nodes.
    LatenessUncounted = "lateness-uncounted",
    /// Appends compare nothing with what etcd holds.
    AppendUnfenced = "append-unfenced",
    /// Appends do not compare where the log ends.
    EndUncompared = "end-uncompared",
    /// A leader counts its lease from an answer and not from the question.
    LeaseFromReply = "lease-from-reply",
    /// A leader goes on after its lease.
    LeaseOutlived = "lease-outlived",
    /// A standby campaigns before it has applied everything.
    CampaignBehind = "campaign-behind",
    /// An append without an answer is taken for done.
    DoubtTakenForDone = "doubt-taken-for-done",
    /// An append without an answer is taken for failed, and its batch is decided anew.
    DoubtTakenForFailed = "doubt-taken-for-failed",
    /// Answers are sent before etcd has the batch.
    AckBeforeEtcd = "ack-before-etcd",
    /// A deposed leader sends the messages of its last batch.
    ReleaseAfterEnd = "release-after-end",
    /// Entries are removed from etcd before a standby has them.
    TrimmedEarly = "trimmed-early",
    /// A batch of several pieces is applied without its last one.
    PieceMissing = "piece-missing",
    /// A leader that resigns answers for a batch that it does not append.
    HandedOverEarly = "handed-over-early",
    /// A node takes messages of a deposed controller for those of its successor.
    DeposedHeard = "deposed-heard",
    /// A standby applies an entry twice.
    EntryAppliedTwice = "entry-applied-twice",
    /// A controller with an empty journal founds a log although there is one.
    LogFoundedAnew = "log-founded-anew",
    /// A controller says that records are on its disk before they are.
    DurableUntrue = "durable-untrue",
    /// A controller of an older release skips an event that it can't read, and follows on.
    OlderFollowsOn = "older-follows-on",
}

impl Mutation {
    /// Returns whether the bug is in cells and their front.
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

    /// Returns whether the bug shows only when a backup is restored.
    pub(crate) fn is_of_backups(self) -> bool {
        matches!(
            self,
            Self::LossAccepted
                | Self::KnownIdsUnsaid
                | Self::WordOfOthers
                | Self::MarkLost
                | Self::RestorationUnjournaled
                | Self::ForgottenTakenForUnstarted
        )
    }

    /// Returns whether the bug is about checkpoints of jobs.
    pub(crate) fn is_of_checkpoints(self) -> bool {
        matches!(
            self,
            Self::CountedBeforeSafe
                | Self::KilledBeforeCounted
                | Self::DamageIgnored
                | Self::PartsUncompared
                | Self::GateUnawaited
                | Self::MovesUntold
                | Self::HalfRestoredEnds
                | Self::RestoreForgotten
        )
    }

    /// Returns whether the bug shows only when events are followed.
    pub(crate) fn is_of_events(self) -> bool {
        matches!(self, Self::EventLost | Self::EventsRepeated | Self::LossUnsaid)
    }

    /// Returns whether the bug shows only with programs around jobs.
    pub(crate) fn is_of_programs(self) -> bool {
        matches!(self, Self::PrologUnawaited | Self::EpilogSkipped | Self::ProgramsForgotten)
    }

    /// Returns whether the bug shows only with a submit filter.
    pub(crate) fn is_of_filter(self) -> bool {
        matches!(self, Self::FilterSkipped | Self::FilterForgets | Self::AcceptedRefused)
    }

    /// Returns whether the bug shows only with power saving.
    pub(crate) fn is_of_power(self) -> bool {
        matches!(
            self,
            Self::SwitchedBeforeJournal
                | Self::NeighbourSwitchedOff
                | Self::LateNodeAwaited
                | Self::WakingUnjournaled
                | Self::RebootIgnored
                | Self::RebootUnjournaled
                | Self::DelayIgnored
        )
    }

    /// Returns whether the bug shows only when nodes are removed and created.
    pub(crate) fn is_of_members(self) -> bool {
        matches!(self, Self::RemovalForgotten | Self::KeyKept | Self::RevokedAtOnce)
    }

    /// Returns whether the bug shows only when daemons are stopped.
    pub(crate) fn is_of_stops(self) -> bool {
        matches!(self, Self::SilentParentKept | Self::BeatUntold | Self::LatenessUncounted)
    }

    /// Returns whether the bug shows only with node fences.
    pub(crate) fn is_of_fences(self) -> bool {
        matches!(
            self,
            Self::FenceCountedEarly | Self::GuardDiesWithDaemon | Self::FenceRenewedByArrival | Self::FenceUnawaited
        )
    }

    /// Returns whether the bug shows only with spare nodes and checks after faults.
    pub(crate) fn is_of_places(self) -> bool {
        matches!(self, Self::CheckUnawaited | Self::SpareUnkept)
    }

    /// Returns whether the bug shows only with several controllers.
    pub(crate) fn is_of_peers(self) -> bool {
        self >= Self::AppendUnfenced
    }

    /// Returns whether the bug shows only when jobs are leased.
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
        assert!(names.len() >= 99 && names.len() == Mutation::ALL.len());
    }
}
