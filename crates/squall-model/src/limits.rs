//! Every limit of the system, named, in one place.

/// Lowest uid for which a node of another machine may vouch, unless the configuration says otherwise.
pub(crate) const VOUCHED_UID_MIN: u32 = 1000;
/// Largest frame on any link, bytes; a longer one ends its connection.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Ranges of jobs of which accounting notes that rows may be missing; more are joined.
pub const LOST_RANGES_MAX: usize = 64;
/// Largest batch script, bytes (Slurm's `max_script_size` default is 4 MiB).
pub const SCRIPT_BYTES_MAX: usize = 4 << 20;
/// The time limit, seconds, of a job that asked for none (`--time=UNLIMITED`); an absent limit is the partition's default.
pub const UNLIMITED_S: u64 = u64::MAX;
/// Largest environment of a job, bytes.
pub const ENV_BYTES_MAX: usize = 4 << 20;
/// Largest array index plus one that may be configured.
pub const ARRAY_INDEX_MAX: u32 = 4_000_001;
/// Largest array index plus one where nothing else is configured (Slurm's `MaxArraySize`).
pub(crate) const ARRAY_SIZE: u32 = 1001;
/// Jobs of one user in the queue where nothing else is configured.
pub(crate) const USER_JOBS: u32 = 100_000;
/// MiB of scripts and environments of one user where nothing else is configured.
pub(crate) const USER_CONTENT_MB: u32 = 1024;
/// The last job id where nothing else is configured (Slurm's `MaxJobId`).
pub(crate) const JOB_ID_MAX: u32 = 67_043_328;
/// Bytes of script and environment that a job may bring without their being counted for its user.
pub const CONTENT_BYTES_FREE: u64 = 64 << 10;
/// Most separate ranges of indices of one array (`0-9` is one): what a frame and a record can carry.
pub const ARRAY_RANGES_MAX: usize = 1 << 20;
/// Largest number of nodes that a host list may expand to.
pub(crate) const HOSTLIST_MAX: usize = 1 << 20;
/// Names that a user's list may have where there are fewer than half as many nodes; else twice as many as nodes.
pub(crate) const LISTED_NAMES_MIN: usize = 4096;
/// Bytes of a user's list for each name that it may have.
pub(crate) const LISTED_NAME_BYTES: usize = 64;
/// Most cells behind one front: numbers are below this, as those of clusters in Slurm's federations.
pub const CELLS_MAX: u32 = 1 << 6;
/// Job ids of a cell: those of cell N begin at N times this.
pub const CELL_IDS: u32 = 1 << 26;
/// Questions between cells in one message: each may hold a name of [`STRING_BYTES_MAX`].
pub const QUESTIONS_MAX: usize = 128;
/// Features of a node that an operator may set.
pub const NODE_FEATURES_MAX: usize = 1024;
/// Most nodes of a cluster: ids are below this.
pub const NODES_MAX: usize = 1 << 20;
/// Longest name of a node, bytes.
pub const HOSTNAME_BYTES_MAX: usize = 255;
/// Most tasks of one step on one node.
pub const TASKS_PER_NODE_MAX: u32 = 4096;
/// Most reservations at one time.
pub const RESERVATIONS_MAX: usize = 10_000;
/// Most devices of one name on a node.
pub const GRES_PER_NODE_MAX: usize = 1024;
/// Most components of one heterogeneous job, as in Slurm.
pub const HET_COMPONENTS_MAX: usize = 128;
/// Most tasks of one step.
pub const TASKS_MAX: u32 = 1 << 20;
/// Longest string option (names, paths, comments), bytes.
pub const STRING_BYTES_MAX: usize = 64 << 10;
/// Most dependency terms of one job.
pub const DEPENDENCY_TERMS_MAX: usize = 10_000;
/// Jobs that one answer frame carries; a longer list comes in several frames, and others are served between them.
pub const ANSWER_JOBS_MAX: usize = 1024;
/// Most bytes of messages that one frame to a node carries, but for a single message that is longer; more come in several.
pub const DOWN_BYTES_MAX: usize = FRAME_BYTES_MAX / 4;
/// Most bytes of what a step is to run, with its environment: with the facts of its job it must fit into a frame.
pub const STEP_BYTES_MAX: usize = FRAME_BYTES_MAX / 2;
/// Reports that one frame from a node carries.
pub const REPORTS_PER_FRAME_MAX: usize = 1024;
/// Seconds that an ended job stays in the controller's memory (Slurm's `MinJobAge`).
pub(crate) const MIN_JOB_AGE_S: u64 = 300;
/// Seconds between TERM and KILL (Slurm's `KillWait`).
pub const KILL_WAIT_S: u64 = 30;
/// Seconds that an allocation lives on without a connected `salloc` or `srun` after a controller restart.
pub const OWNER_GRACE_S: u64 = 60;
/// Seconds between heartbeats of a node.
pub const HEARTBEAT_S: u64 = 10;
/// Seconds of silence after which a node counts as not responding (Slurm's `SlurmdTimeout` is 300).
pub(crate) const NODE_TIMEOUT_S: u64 = 60;
/// Seconds after which the jobs of a silent node are given up and requeued elsewhere. Slow is not dead.
pub(crate) const NODE_LOST_S: u64 = 300;
/// Seconds that a step lives on after its `srun` has vanished.
pub const STEP_OWNER_GRACE_S: u64 = 10;
/// Children of a node in the tree of daemons (Slurm's `TreeWidth` default).
pub const TREE_WIDTH: u32 = 16;
/// Bytes of one piece of a file on its way to nodes. See `fabric::cost`: for tens of megabytes on links of gigabytes per
/// second the best length is near this, and pieces of it stay in the cache of a CPU from hop to hop.
pub const CHUNK_BYTES: u32 = 128 << 10;
/// Bytes of the names of nodes that every piece of a file carries; a longer list: the file goes down the tree.
pub const CASCADE_BYTES_MAX: usize = 4 << 10;
/// Bytes of a file that may be under way to nodes: what a relay holds for a child that is slow.
pub const CHUNK_WINDOW_BYTES: u64 = 4 << 20;
/// Bytes of a block of a file that is sent by multicast: what nodes say of it they say of blocks.
pub const CAST_BLOCK_BYTES: u64 = 64 << 10;
/// Blocks that may be under way: as many as there are bits in a variable's value that is not negative.
pub const CAST_BLOCKS: u64 = 63;
/// Files whose digests the controller remembers for those who bring them again.
pub const RECALLED_MAX: usize = 4096;
/// Bytes of files that a node keeps.
pub const CONTENT_BYTES_MAX: u64 = 4 << 30;
/// Most changes of accounts in one request.
pub const POLICY_CHANGES_MAX: usize = 100_000;
/// Files and folders of a node's spool that are kept aside under one name because they can't be read.
pub const DAMAGED_MAX: u32 = 100;
/// Bytes of one value in a line of a daemon's log; what is longer is cut.
pub const LOG_VALUE_BYTES_MAX: usize = 4096;
