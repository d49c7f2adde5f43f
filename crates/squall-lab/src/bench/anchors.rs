//! Known results on published workload traces, which a correct simulator must reproduce.
//!
//! The figures come from an independent simulator in one file. It follows the same rules as Squall's for omitted jobs
//! and for ties. Its FCFS was compared with AccaSim 1.1.3 and pyss on KTH-SP2 (every job starts at the same time), and
//! with AccaSim and the published mean of HPCOpt on HPC2N.

use std::path::Path;

/// A workload trace with known results.
pub(super) struct Anchor {
    /// Beginning of the name of the trace's file.
    pub(super) name: &'static str,
    pub(super) processors: u32,
    pub(super) jobs: u64,
    /// Sum of all jobs' waits with FCFS, seconds.
    pub(super) fcfs_sum_s: f64,
    /// Mean wait with EASY, seconds.
    pub(super) easy_mean_s: f64,
    /// Mean wait with EASY that tries the shortest jobs first for backfilling, seconds.
    pub(super) shortest_mean_s: f64,
    /// Results of other programs with FCFS, with EASY, and with conservative backfill; empty: none is known.
    pub(super) others: [&'static str; 3],
}

const fn anchor(
    (name, processors, jobs): (&'static str, u32, u64),
    fcfs_sum_s: f64,
    easy_mean_s: f64,
    shortest_mean_s: f64,
) -> Anchor {
    Anchor { name, processors, jobs, fcfs_sum_s, easy_mean_s, shortest_mean_s, others: [""; 3] }
}

/// All traces with known results. They are from the Parallel Workloads Archive, except Theta's, DOST-ASTI's and that of
/// Lublin's model.
const ANCHORS: [Anchor; 9] = [
    Anchor {
        others: ["AccaSim and pyss the same", "pyss 6804.721", "pyss 7295.102"],
        ..anchor(("KTH-SP2-1996-2.1-cln", 100, 28_467), 11_098_174_771.0, 6_804.974, 5_936.594)
    },
    anchor(("NASA-iPSC-1993-3.1-cln", 128, 18_066), 145_997.0, 4.067, 4.067),
    anchor(("SDSC-BLUE-2000-4.2-cln", 1152, 232_536), 88_149_847_624.0, 7_751.054, 5_902.566),
    Anchor {
        others: ["AccaSim the same; HPCOpt's mean 16189", "HPCOpt 10252 (Python), 11193 (Rust)", ""],
        ..anchor(("HPC2N-2002-2.1-cln", 240, 202_876), 3_284_308_749.0, 10_799.761, 10_227.304)
    },
    anchor(("CEA-Curie-2011-2.1-cln", 93_312, 295_540), 4_319_304_530.0, 1_308.182, 1_012.278),
    anchor(("METACENTRUM-2009-2", 806, 99_944), 149_958_841.0, 1_493.874, 1_493.785),
    anchor(("lublin_256", 256, 10_000), 23_884_437_601.0, 97_155.995, 73_394.375),
    anchor(("Theta-2018-3000", 4360, 3_000), 108_200_561.0, 4_392.232, 4_046.018),
    anchor(("DOST-ASTI_COARE-Saliksik-2020-cln", 1728, 19_760), 21_704_883.0, 283.159, 242.973),
];

/// Returns the known results of a trace by its file's name. None: the trace has no known results.
pub(super) fn of(trace: &Path) -> Option<&'static Anchor> {
    let name = trace.file_name()?.to_str()?;
    let end = |anchor: &Anchor| name.strip_prefix(anchor.name).map(|end| matches!(end, ".swf" | ".swf.gz"));
    ANCHORS.iter().find(|anchor| end(anchor) == Some(true))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::of;

    #[test]
    fn a_trace_is_known_by_its_whole_name() {
        assert_eq!(of(Path::new("x/KTH-SP2-1996-2.1-cln.swf.gz")).map(|known| known.jobs), Some(28_467));
        assert!(of(Path::new("KTH-SP2-1996-2.1-cln-part.swf.gz")).is_none() && of(Path::new("/")).is_none());
    }
}
