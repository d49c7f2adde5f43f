//! All limits of the system, as named constants.

/// Default of `min_uid`: lowest uid for which the controller accepts a credential from a node on another machine.
pub(crate) const VOUCHED_UID_MIN: u32 = 1000;
/// Most bytes of a frame on any connection. A longer frame ends the connection.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Most ranges of job ids for which accounting records that rows may be missing. Further ranges are joined to others.
pub const LOST_RANGES_MAX: usize = 64;
/// Largest batch script, bytes (Slurm's `max_script_size` default is 4 MiB).
pub const SCRIPT_BYTES_MAX: usize = 4 << 20;
/// Time limit in seconds that stands for "unlimited" (`--time=UNLIMITED`). A job without a time limit gets the
/// partition's default instead.
pub const UNLIMITED_S: u64 = u64::MAX;
/// Largest environment of a job, bytes.
pub const ENV_BYTES_MAX: usize = 4 << 20;
/// Highest value that `max_array_size` may have.
pub const ARRAY_INDEX_MAX: u32 = 4_000_001;
/// Default of `max_array_size`: largest array index plus one (Slurm's `MaxArraySize`).
pub(crate) const ARRAY_SIZE: u32 = 1001;
/// Default of `max_processes_per_job`: most processes and threads of a job on a node.
pub(crate) const JOB_PROCESSES: u32 = 65_536;
/// Default of `max_jobs_per_user`: most jobs of one user in the queue.
pub(crate) const USER_JOBS: u32 = 100_000;
/// Default of `max_content_per_user_mb`: most MiB of scripts and environments of one user's jobs.
pub(crate) const USER_CONTENT_MB: u32 = 1024;
/// Default of `max_job_id`: the highest job id that is given (Slurm's `MaxJobId`).
pub(crate) const JOB_ID_MAX: u32 = 67_043_328;
/// Bytes of the script and environment of each job that are not counted against its user's limit.
pub const CONTENT_BYTES_FREE: u64 = 64 << 10;
/// Most separate ranges of indices of one array (`0-9` is one), so that they fit into a frame and into a journal
/// record.
pub const ARRAY_RANGES_MAX: usize = 1 << 20;
/// Largest number of nodes that a host list may expand to.
pub(crate) const HOSTLIST_MAX: usize = 1 << 20;
/// Least limit on the number of names in a user's host list. The limit is twice the number of nodes if that is more.
pub(crate) const LISTED_NAMES_MIN: usize = 4096;
/// Limit on the length of a user's host list, given in bytes for each name that the list may have.
pub(crate) const LISTED_NAME_BYTES: usize = 64;
/// Most cells behind one front (their gateway). Cell numbers are below this, as cluster ids in Slurm's federations.
pub const CELLS_MAX: u32 = 1 << 6;
/// Number of job ids of each cell. The ids of cell N begin at N times this number.
pub const CELL_IDS: u32 = 1 << 26;
/// Most questions between cells in one message. Each question may have a name of [`STRING_BYTES_MAX`].
pub const QUESTIONS_MAX: usize = 128;
/// Most features of a node that an operator may set.
pub const NODE_FEATURES_MAX: usize = 1024;
/// Most nodes of a cluster. Node ids are below this.
pub const NODES_MAX: usize = 1 << 20;
/// Most memory, and most scratch space, of a node, MiB: an exbibyte. Sums over all nodes stay numbers.
pub const SPACE_MB_MAX: u64 = 1 << 40;
/// Longest host name of a node, bytes.
pub const HOSTNAME_BYTES_MAX: usize = 255;
/// Minutes beyond the time limit that stand for no limit, as in Slurm (`OverTimeLimit=UNLIMITED`).
pub const OVER_TIME_UNLIMITED: u64 = 65_535;
/// Most tasks of one step on one node.
pub const TASKS_PER_NODE_MAX: u32 = 4096;
/// Most reservations that may exist at one time.
pub const RESERVATIONS_MAX: usize = 10_000;
/// Most devices of one generic resource on a node.
pub const GRES_PER_NODE_MAX: usize = 1024;
/// Most components of one heterogeneous job, as in Slurm.
pub const HET_COMPONENTS_MAX: usize = 128;
/// Most tasks of one step.
pub const TASKS_MAX: u32 = 1 << 20;
/// Longest string option (names, paths, comments), bytes.
pub const STRING_BYTES_MAX: usize = 64 << 10;
/// Most terms in the dependency of one job (`afterok:1,afterany:2` has two).
pub const DEPENDENCY_TERMS_MAX: usize = 10_000;
/// Most jobs in one frame of an answer. A longer list is sent in several frames, so that other clients are served
/// between them.
pub const ANSWER_JOBS_MAX: usize = 1024;
/// Most events that the controller keeps for followers; a follower that is further behind has missed some.
pub const FEED_EVENTS_MAX: usize = 32 << 10;
/// Most bytes of the events that the controller keeps for followers, as estimated.
pub const FEED_BYTES_MAX: usize = 24 << 20;
/// Most events in one frame to a follower.
pub const FEED_PAGE_MAX: usize = 1024;
/// Most bytes of the events in one frame to a follower, as estimated, unless a single event is longer.
pub const FEED_PAGE_BYTES_MAX: usize = FRAME_BYTES_MAX / 16;
/// Most followers of events. Many readers should share one, as those of the REST server do.
pub const FOLLOWERS_MAX: usize = 4096;
/// Most bytes of a list of array tasks in an event; the rest is cut off.
pub const FEED_TASKS_BYTES_MAX: usize = 64;
/// Most bytes of messages in one frame to a node, unless a single message is longer. Further messages follow in the
/// next frame.
pub const DOWN_BYTES_MAX: usize = FRAME_BYTES_MAX / 4;
/// Most bytes of a step's command and environment. They must fit into one frame together with the data of the job.
pub const STEP_BYTES_MAX: usize = FRAME_BYTES_MAX / 2;
/// Most reports in one message of merged reports that are acknowledged although the nodes do not have what they are about.
pub const REPORTS_PER_FRAME_MAX: usize = 1024;
/// Default of the time for which an ended job stays in the controller's memory, seconds (Slurm's `MinJobAge`).
pub(crate) const MIN_JOB_AGE_S: u64 = 300;
/// Default of the time between the signals TERM and KILL, seconds (Slurm's `KillWait`).
pub const KILL_WAIT_S: u64 = 30;
/// Time for which an allocation continues without its `salloc` or `srun` after a controller restart, or after the end
/// of a connection that came through another daemon (of another machine, or a front of cells), seconds.
pub const OWNER_GRACE_S: u64 = 60;
/// Longest time between two beats, the controller's queries to all nodes, seconds; a third of `node_timeout_s` if that is
/// less (`Config::beat`). Connections between nodes have a heartbeat twice as often. A node that hears nothing on one for
/// three of these has found another way to the controller before that has missed two answers of it.
pub const HEARTBEAT_S: u64 = 10;
/// Least `node_timeout_s` for each level of the distribution tree, seconds.
pub(crate) const NODE_TIMEOUT_PER_LEVEL_S: u64 = 3;
/// A `node_timeout_s` that a cluster of any size may have, seconds.
pub const NODE_TIMEOUT_ANY_S: u64 = 30;
/// Least term of a node fence, seconds: with one controller, which may be started again meanwhile, and with several, of which
/// another one takes over sooner.
pub(crate) const NODE_FENCE_MIN_S: (u64, u64) = (30, 10);
/// Time by which the controller waits longer than a node fence before it counts a share of a job as ended, seconds.
pub const NODE_FENCE_MARGIN_S: u64 = 2;
/// Default of `unkillable_step_timeout_s`: seconds after the signal KILL after which a node that still has processes of
/// the job is drained.
pub const UNKILLABLE_STEP_S: u64 = 60;

/// Default of `launch_failures`: launches in a row that a node fails by its own fault before it is drained.
pub const LAUNCH_FAILURES: u32 = 10;

/// Most faults in the record of a node; the oldest is dropped.
pub const FAULTS_KEPT_MAX: usize = 16;
/// Most jobs that the record of a fault names.
pub const JOBS_PER_FAULT_MAX: usize = 64;
/// Time within which faults of one kind count as one, seconds.
pub const FAULTS_APART_S: u64 = 60;
/// Time for which wide jobs prefer nodes without the fault, seconds: 7 days.
pub const FAULT_RECENT_S: u64 = 7 * 86_400;
/// Time between two runs of `after_fault` on a node that fails it, seconds, unless `interval_s` is another.
pub const AFTER_FAULT_S: u64 = 60;

/// Default of `node_timeout_s`: seconds of silence after which a node is not responding (Slurm's `SlurmdTimeout` is
/// 300).
pub(crate) const NODE_TIMEOUT_S: u64 = 60;
/// Default of `node_lost_s`: seconds of silence after which a node is lost. Its jobs are then handled by
/// `node_lost_action`.
pub(crate) const NODE_LOST_S: u64 = 300;
/// Time for which a step continues after the connection to its `srun` is lost, seconds.
pub const STEP_OWNER_GRACE_S: u64 = 10;
/// A step that goes on from a checkpoint has its number again if that is lower than this.
pub const STEPS_RESUMED_MAX: u32 = 1 << 24;
/// Default of the most children that a node has in the distribution tree (Slurm's `TreeWidth`).
pub const TREE_WIDTH: u32 = 16;
/// Bytes of one piece of a file that is sent to nodes. See `fabric::cost`: for files of tens of megabytes on links of
/// gigabytes per second the best length is near this, and a piece stays in the CPU's cache while it is passed on.
pub const CHUNK_BYTES: u32 = 128 << 10;
/// Longest route, as a list of node names in bytes, that is put into each piece of a file. A file with a longer one takes
/// the tree of all nodes.
pub const CASCADE_BYTES_MAX: usize = 4 << 10;
/// Most bytes of a file in transit to nodes, which a relay buffers for a slow child.
pub const CHUNK_WINDOW_BYTES: u64 = 4 << 20;
/// Length of a block of a file that is sent by multicast, bytes. Nodes report missing data by block.
pub const CAST_BLOCK_BYTES: u64 = 64 << 10;
/// Most multicast blocks in transit at a time: one for each bit of a variable of nodes (64-bit integer) without its
/// sign.
pub const CAST_BLOCKS: u64 = 63;
/// Most files of which the controller stores the digests, so that sending a file again needs no second upload.
pub const RECALLED_MAX: usize = 4096;
/// Most bytes of files that a node keeps in its cache.
pub const CONTENT_BYTES_MAX: u64 = 4 << 30;
/// Most changes of accounts in one request.
pub const POLICY_CHANGES_MAX: usize = 100_000;
/// Most signals that the controller keeps for a node which does not answer; the oldest is dropped.
pub const SIGNALS_KEPT_MAX: usize = 256;
/// Most checkpoints of a job that count: the last one, and the one before, for a restore that fails.
pub const CHECKPOINTS_KEPT: usize = 2;
/// Longest time that a checkpoint may take on its node, seconds; then it is given up and the job goes on.
pub const CHECKPOINT_S: u64 = 300;
/// Time for which a job that is to leave its node stays frozen without a word of the controller, seconds.
pub const CHECKPOINT_FROZEN_S: u64 = 30;
/// Time that a preempted job has to leave its node by a checkpoint, seconds; then it is requeued or cancelled. Its node
/// needs less, even if a first order was given up.
pub const CHECKPOINT_PREEMPT_S: u64 = CHECKPOINT_S + 2 * CHECKPOINT_FROZEN_S;
/// Shortest time that a point of a step's usage over time stands for, seconds: the interval of the measurements.
pub const SERIES_POINT_S: u32 = 10;
/// Most points of a running step's usage over time.
pub const SERIES_MAX: usize = 256;
/// Most points of the usage over time that is kept with a step which has ended: 4 KiB.
pub const SERIES_KEPT: usize = 64;
/// Least length of a point of what a step has used lately, seconds.
pub const LATELY_POINT_S: u32 = 320;
/// Points of what a step has used lately.
pub const LATELY_POINTS: usize = 5;
/// Time for which accounting keeps the usage over time of steps, days.
pub const SERIES_DAYS: u64 = 30;
/// Time from the start of a job with `--checkpoint` to the trial whether it can be checkpointed, seconds.
pub const CHECKPOINT_TRIAL_S: u64 = 60;
/// Time before a time limit at which a job with `--checkpoint` leaves its node, seconds.
pub const CHECKPOINT_BEFORE_LIMIT_S: u64 = 60;
/// Most seconds between two checkpoints of a job: a year.
pub const CHECKPOINT_EVERY_MAX_S: u64 = 366 * 24 * 3600;
/// After so many dumps in a row that were killed, the controller checkpoints a job only when a user asks for it.
pub const CHECKPOINT_DAMAGES_MAX: u32 = 3;
/// Most bytes of a node's text about a checkpoint.
pub const CHECKPOINT_TEXT_BYTES: usize = 400;
/// Most unreadable files or folders of one name that a node's spool keeps aside, as `NAME`, `NAME-1`, `NAME-2` …
pub const DAMAGED_MAX: u32 = 100;
/// Most weights of resources that a partition bills.
pub const BILLING_WEIGHTS_MAX: usize = 256;
/// Most lost nodes of a job that accounting tells, from the first one on.
pub const LOSSES_MAX: usize = 1024;
/// Most bytes of one value in a daemon's log line; the rest is cut off.
pub const LOG_VALUE_BYTES_MAX: usize = 4096;
