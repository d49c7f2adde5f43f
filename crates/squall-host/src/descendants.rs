//! Finds the descendants of a process in /proc.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use crate::sys::signals::kill;

/// Returns all descendants of a process, parents before children.
pub(crate) fn descendants(root: u32) -> Vec<u32> {
    let by_parent = if children(std::process::id()).is_err() { Some(scan()) } else { None };
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        let below = match &by_parent {
            Some(map) => map.get(&pid).cloned().unwrap_or_default(),
            None => children(pid).unwrap_or_default(),
        };
        found.extend(&below);
        next.extend(below);
    }
    found
}

/// Sends a signal to each of these processes; errors, as for ended ones, are ignored.
pub(crate) fn signal_all(pids: &[u32], signal: i32) {
    for &pid in pids {
        let _ = kill(pid, signal);
    }
}

/// Returns the children of all threads of a process as the kernel lists them. Err: it was built without these lists.
fn children(pid: u32) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(thread?.path().join("children"))?;
        found.extend(text.split_ascii_whitespace().filter_map(|p| p.parse::<u32>().ok()));
    }
    Ok(found)
}

/// Returns the children of each process, by reading all of /proc.
fn scan() -> BTreeMap<u32, Vec<u32>> {
    let mut map: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        if let Some(parent) = stat_field(pid, 4) {
            map.entry(parent as u32).or_default().push(pid);
        }
    }
    map
}

/// Returns field `number` (4 and above) of /proc/PID/stat: e.g. 4 is the parent, 22 the start time. None: there is no
/// such process.
pub(crate) fn stat_field(pid: u32, number: usize) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in field 2 may contain anything, so fields are counted from its last parenthesis: field 3 follows it.
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(number - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{descendants, scan, signal_all, stat_field};

    #[test]
    fn a_grandchild_is_found_both_ways() {
        // Not `cat`: a shell connects background processes to /dev/null, where it would end at once.
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let own = std::process::id();
        assert_eq!(stat_field(child.id(), 4), Some(u64::from(own)));
        let found = loop {
            let found = descendants(child.id());
            if !found.is_empty() {
                break found;
            }
            std::thread::yield_now();
        };
        assert_eq!(scan().get(&child.id()), Some(&found));
        assert!(descendants(own).contains(&child.id()));
        signal_all(&found, 9);
        child.wait().unwrap();
    }
}
