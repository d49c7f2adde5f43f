//! Every mode, way and algorithm: a fence is a fence, the data are right, and the counters show what went how.

use std::collections::BTreeSet;

use super::Site;

/// Ways between step daemons, by the variables that choose them, and the counter that shows it.
const WAYS: [(&str, &str, &str); 5] = [
    ("SLURM_PMIX_DIRECT_CONN", "true", "unix"),
    ("SLURM_PMIX_DIRECT_CONN", "tcp", "tcp"),
    ("SLURM_PMIX_DIRECT_CONN", "false", "by_nodes"),
    ("SLURM_PMIX_DIRECT_CONN", "srun", "relayed"),
    ("SLURM_PMIX_DIRECT_CONN_UCX", "true", "ucx"),
];

/// Algorithms, bytes that each rank brings, and whether the data go by the ring.
const FENCES: [(&str, &str, bool); 4] =
    [("tree", "5000", false), ("ring", "20", true), ("mixed", "20", false), ("mixed", "60000", true)];

impl Site {
    /// One rank comes 200 ms late: no other leaves before it.
    pub(super) fn fences_hold(&self) {
        if !self.compile_pmix("fence") {
            return;
        }
        for (variable, value, counter) in WAYS {
            for (shape, bytes, ring) in FENCES {
                let env = [(variable, value), ("SLURM_PMIX_FENCE", shape), ("SQUALL_WIREUP_STATS", "1")];
                let (status, out, err) =
                    self.srun(&["-wn[1-5]", "-N5", "--ntasks-per-node=2", "./fence", "7", bytes], &env);
                let case = format!("{counter} {shape} {bytes}: {out}\n{err}");
                assert_eq!(status, 0, "{case}");
                late_holds_all(&out, 10, &case);
                // UCX carries what goes up the tree.
                if counter != "ucx" || (shape == "tree" && !err.contains("no UCX")) {
                    assert!(counted(&err, counter) > 0, "{case}");
                }
                if counter == "unix" {
                    // Instant-on: where others are follows from the launch, and they are met before anything is said.
                    assert!(counted(&err, "early") > 0 && counted(&err, "addresses") == 0, "{case}");
                }
                assert_eq!(counted(&err, "by_ring") > 0, ring, "{case}");
                assert_eq!(counted(&err, "asked"), 0, "full modex asks nobody: {case}");
            }
        }
        // Direct modex: a fence without data, then questions.
        let env = [("SQUALL_WIREUP_STATS", "1")];
        let (status, out, err) = self.srun(&["-wn[1-3]", "-N3", "-n3", "./fence", "1", "0"], &env);
        assert_eq!(status, 0, "{out}\n{err}");
        late_holds_all(&out, 3, &err);
        assert_eq!((counted(&err, "gathered_data"), counted(&err, "asked")), (0, 6), "{err}");
        let env = [("SQUALL_WIREUP_STATS", "1"), ("SLURM_PMIX_DIRECT_CONN_EARLY", "no")];
        let (status, out, err) = self.srun(&["-wn[1-3]", "-N3", "-n3", "./fence", "1", "9"], &env);
        assert_eq!((status, counted(&err, "early"), counted(&err, "late")), (0, 0, 2), "{out}\n{err}");
    }

    /// What a task tells others is heard on its own node and elsewhere.
    pub(super) fn tells_all(&self) {
        if !self.compile_pmix("event") {
            return;
        }
        let (status, out, err) =
            self.srun(&["-wn[1-2]", "-N2", "--ntasks-per-node=2", "./event"], &[("SQUALL_WIREUP_STATS", "1")]);
        let heard: BTreeSet<&str> = out.lines().collect();
        assert_eq!((status, heard), (0, ["0 heard 3042", "1 heard 3042", "2 heard 3042"].into()), "{out}\n{err}");
        assert_eq!(counted(&err, "events"), 1, "{err}");
    }
}

/// The sum of a counter over all nodes.
fn counted(err: &str, name: &str) -> u64 {
    let name = format!("{name}: ");
    err.match_indices(&name)
        .filter(|(at, _)| !err[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        .filter_map(|(at, _)| err[at + name.len()..].split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok())
        .sum()
}

fn late_holds_all(out: &str, ranks: usize, case: &str) {
    let times: Vec<(u64, u64, &str)> = out
        .lines()
        .filter_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            [_, "came", came, "left", left, "sum", sum] => Some((came.parse().ok()?, left.parse().ok()?, sum)),
            _ => None,
        })
        .collect();
    assert_eq!(times.len(), ranks, "{case}");
    let last = times.iter().map(|(came, ..)| *came).max().unwrap();
    let first = times.iter().map(|(_, left, _)| *left).min().unwrap();
    assert!(first >= last, "somebody left {} us before the last had come: {case}", last - first);
    let sums: BTreeSet<&str> = times.iter().map(|(.., sum)| *sum).collect();
    assert_eq!(sums.len(), 1, "all have got the same: {case}");
}
