//! The shape of a healthy tree: an ordered list is split into at most `width` parts of nearly equal length; the first
//! of each part is the parent of the rest of it, split again in the same way (as Slurm's `route/default` does). So
//! every subtree is a run of neighbours, and sets of nodes stay short.

/// The nodes above `at` in a tree of `count`, nearest first; none: its parent is the root.
pub fn above(at: usize, count: usize, width: usize) -> Vec<usize> {
    let width = width.max(2);
    let mut path = Vec::new();
    let (mut first, mut len) = (0, count);
    while at < first + len {
        // `first .. first + len` are the children of the last node on the path, and all below them.
        let parts = width.min(len);
        let (short, longer) = (len / parts, len % parts);
        let within = at - first;
        let in_longer = (short + 1) * longer;
        let (start, length) = if within < in_longer {
            (within / (short + 1) * (short + 1), short + 1)
        } else {
            (in_longer + (within - in_longer) / short * short, short)
        };
        let head = first + start;
        if head == at {
            break;
        }
        path.push(head);
        (first, len) = (head + 1, length - 1);
    }
    path.reverse();
    path
}

/// The nodes whose parent is `at` (None: the root).
pub fn children(at: Option<usize>, count: usize, width: usize) -> Vec<usize> {
    (0..count).filter(|&node| above(node, count, width).first().copied() == at).collect()
}

#[cfg(test)]
mod tests {
    use super::{above, children};

    #[test]
    fn a_small_tree() {
        // 7 nodes, width 2: [0 1 2 3] [4 5 6]; 0 heads [1 2] [3], 4 heads [5] [6].
        assert_eq!(children(None, 7, 2), [0, 4]);
        assert_eq!(children(Some(0), 7, 2), [1, 3]);
        assert_eq!(children(Some(1), 7, 2), [2]);
        assert_eq!(children(Some(4), 7, 2), [5, 6]);
        assert_eq!(above(2, 7, 2), [1, 0]);
    }

    #[test]
    fn every_node_has_one_parent_and_no_one_has_too_many_children() {
        for (count, width) in [(1, 16), (16, 16), (17, 16), (300, 7), (1000, 16)] {
            let mut seen = vec![0; count];
            for parent in std::iter::once(None).chain((0..count).map(Some)) {
                let below = children(parent, count, width);
                assert!(below.len() <= width, "{count} {width}");
                for child in below {
                    seen[child] += 1;
                    assert!(parent.is_none_or(|parent| parent < child));
                }
            }
            assert!(seen.iter().all(|&times| times == 1), "{count} {width}");
        }
    }

    #[test]
    fn depth_grows_as_the_logarithm() {
        let depth = |count| (0..count).map(|node| above(node, count, 16).len()).max().unwrap_or_default();
        assert_eq!(depth(16), 0);
        assert_eq!(depth(272), 1);
        assert!(depth(10_080) <= 3);
    }
}
