//! Published launch times of other launchers, with the curves that were fitted to them. The fits are quoted from
//! memory; each passes through its published point.

/// A launcher with published times.
#[derive(Debug)]
pub(super) struct Launcher {
    pub(super) name: &'static str,
    /// Published measurement: what was launched, number of nodes, seconds.
    pub(super) point: (&'static str, f64, f64),
    /// Fitted curve: seconds as a function of the number of nodes.
    pub(super) fit: fn(f64) -> f64,
}

pub(super) const LAUNCHERS: [Launcher; 6] = [
    Launcher { name: "rsh", point: ("nothing", 95.0, 90.0), fit: |n| 0.934 * n + 1.266 },
    Launcher { name: "RMS", point: ("12 MB", 64.0, 5.9), fit: |n| 0.077 * n + 1.092 },
    Launcher { name: "GLUnix", point: ("nothing", 95.0, 1.3), fit: |n| 0.012 * n + 0.228 },
    Launcher { name: "Cplant", point: ("12 MB", 1010.0, 20.0), fit: |n| 1.379 * n.log2() + 6.177 },
    Launcher { name: "BProc", point: ("12 MB", 100.0, 2.7), fit: |n| (0.413 * n.log2() - 0.084).max(0.01) },
    // 135 ms at 16,384 nodes come from the STORM talk's own model; in between, the time grows with the stages of the
    // network.
    Launcher { name: "STORM", point: ("12 MB", 64.0, 0.11), fit: |n| 0.11 + 0.025 / 8.0 * (n.log2() - 6.0) },
];

/// Seconds of `srun true` with Slurm 22.05 on real node daemons of a similar machine: nodes, seconds.
pub(super) const SLURM: [(u32, f64); 2] = [(64, 1.156), (256, 4.381)];

#[cfg(test)]
mod tests {
    use super::LAUNCHERS;

    #[test]
    fn fits_go_through_the_published_points() {
        for launcher in &LAUNCHERS {
            let (_, nodes, seconds) = launcher.point;
            let fitted = (launcher.fit)(nodes);
            assert!((fitted / seconds - 1.0).abs() < 0.06, "{}: {fitted} at {nodes}, not {seconds}", launcher.name);
        }
        assert!(((LAUNCHERS[5].fit)(16_384.0) - 0.135).abs() < 1e-9);
        assert!(((LAUNCHERS[0].fit)(4096.0) - 3827.0).abs() < 1.0);
    }
}
