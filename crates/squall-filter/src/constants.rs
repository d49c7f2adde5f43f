//! Slurm's numbers that filters use: values that stand for none, and errors.

/// A number of 32 bits that is not set (`slurm.NO_VAL`).
pub(crate) const NO_VAL: i64 = 0xffff_fffe;
/// A number of 16 bits that is not set (`slurm.NO_VAL16`).
pub(crate) const NO_VAL16: i64 = 0xfffe;
/// A number of 8 bits that is not set (`slurm.NO_VAL8`).
const NO_VAL8: i64 = 0xfe;
/// A number of 64 bits that is not set (`slurm.NO_VAL64`).
pub(crate) const NO_VAL64: f64 = 18_446_744_073_709_551_614.0;
/// No limit (`slurm.INFINITE`).
pub(crate) const INFINITE: i64 = 0xffff_ffff;
/// Marks memory for each CPU (`slurm.MEM_PER_CPU`).
pub(crate) const MEM_PER_CPU: f64 = 9_223_372_036_854_775_808.0;
/// Is added to nice values (`slurm.NICE_OFFSET`).
pub(crate) const NICE_OFFSET: i64 = 0x8000_0000;

/// Constants of the table `slurm` that are whole numbers.
pub(crate) const NUMBERS: &[(&str, i64)] = &[
    ("ALLOC_SID_ADMIN_HOLD", 0),
    ("ALLOC_SID_USER_HOLD", 1),
    ("INFINITE", INFINITE),
    ("NO_VAL", NO_VAL),
    ("NO_VAL8", NO_VAL8),
    ("NO_VAL16", NO_VAL16),
    ("NICE_OFFSET", NICE_OFFSET),
    ("SUCCESS", 0),
    ("ERROR", -1),
    ("FAILURE", -1),
    ("JOB_SHARED_NONE", 0),
    ("JOB_SHARED_OK", 1),
    ("JOB_SHARED_USER", 2),
    ("JOB_SHARED_MCS", 3),
    ("MAIL_JOB_BEGIN", 0x1),
    ("MAIL_JOB_END", 0x2),
    ("MAIL_JOB_FAIL", 0x4),
    ("MAIL_JOB_REQUEUE", 0x8),
    ("MAIL_JOB_TIME100", 0x10),
    ("MAIL_JOB_TIME90", 0x20),
    ("MAIL_JOB_TIME80", 0x40),
    ("MAIL_JOB_TIME50", 0x80),
    ("MAIL_JOB_STAGE_OUT", 0x100),
    ("MAIL_ARRAY_TASKS", 0x200),
    ("MAIL_INVALID_DEPEND", 0x400),
    ("ESLURM_INVALID_PARTITION_NAME", 2000),
    ("ESLURM_DEFAULT_PARTITION_NOT_SET", 2001),
    ("ESLURM_ACCESS_DENIED", 2002),
    ("ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP", 2003),
    ("ESLURM_REQUESTED_NODES_NOT_IN_PARTITION", 2004),
    ("ESLURM_TOO_MANY_REQUESTED_CPUS", 2005),
    ("ESLURM_INVALID_NODE_COUNT", 2006),
    ("ESLURM_PATHNAME_TOO_LONG", 2012),
    ("ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", 2014),
    ("ESLURM_NODES_BUSY", 2016),
    ("ESLURM_INVALID_JOB_ID", 2017),
    ("ESLURM_INVALID_NODE_NAME", 2018),
    ("ESLURM_TRANSITION_STATE_NO_UPDATE", 2020),
    ("ESLURM_ALREADY_DONE", 2021),
    ("ESLURM_BAD_TASK_COUNT", 2025),
    ("ESLURM_INVALID_FEATURE", 2029),
    ("ESLURM_DISABLED", 2037),
    ("ESLURM_DEPENDENCY", 2038),
    ("ESLURM_JOB_HELD", 2042),
    ("ESLURM_INVALID_TASK_MEMORY", 2044),
    ("ESLURM_INVALID_ACCOUNT", 2045),
    ("ESLURM_INVALID_LICENSES", 2048),
    ("ESLURM_ACCOUNTING_POLICY", 2050),
    ("ESLURM_INVALID_TIME_LIMIT", 2051),
    ("ESLURM_RESERVATION_ACCESS", 2052),
    ("ESLURM_RESERVATION_INVALID", 2053),
    ("ESLURM_INVALID_TIME_VALUE", 2054),
    ("ESLURM_INVALID_QOS", 2066),
    ("ESLURM_NODE_NOT_AVAIL", 2068),
    ("ESLURM_INVALID_CPU_COUNT", 2069),
    ("ESLURM_PARTITION_NOT_AVAIL", 2070),
    ("ESLURM_INVALID_GRES", 2072),
    ("ESLURM_INVALID_ARRAY", 2081),
    ("ESLURM_QOS_THRES", 2074),
    ("ESLURM_PARTITION_DOWN", 2101),
    ("ESLURM_INVALID_WCKEY", 2057),
    ("ESLURM_INVALID_NICE", 2123),
    ("ESLURM_INVALID_TIME_MIN_LIMIT", 2124),
    ("ESLURM_INVALID_PREFER", 2133),
    ("ESLURM_MISSING_TIME_LIMIT", 8000),
];
