//! Flags of a QOS.

use super::Qos;

impl Qos {
    /// Flags with an effect, as sacctmgr spells them.
    pub const FLAGS: [&str; 8] = [
        "DenyOnLimit",
        "EnforceUsageThreshold",
        "NoDecay",
        "NoReserve",
        "PartitionMaxNodes",
        "PartitionMinNodes",
        "PartitionTimeLimit",
        "RequiresReservation",
    ];

    /// Slurm's other flags, each with the reason why it is refused.
    pub const NOT_DONE: [(&str, &str); 3] = [
        ("OverPartQOS", "a job keeps to the limits of its own QOS and to those of its partition's"),
        ("Relative", "limits are numbers and not percentages of the cluster"),
        (
            "UsageFactorSafe",
            "with `safe` a job's whole time limit is compared with a budget, whatever its usage factor is",
        ),
    ];

    /// Returns whether the QOS has a flag.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own.eq_ignore_ascii_case(flag))
    }
}
