//! What a cluster under test leaves on the machine: processes, and the ends of its daemons' logs.

use std::fs;
use std::path::Path;

/// Processes but our own that name a folder in their command line or environment: pid and command line.
pub(crate) fn processes(folder: &Path) -> Vec<(u32, String)> {
    let name = folder.display().to_string();
    let mentions = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(&name);
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if pid != std::process::id() && (mentions(&line) || mentions(&environment)) {
            found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    found
}

/// The last lines of the logs in a cluster's state folder.
pub(crate) fn log_ends(state: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(state.join("log")).into_iter().flatten().flatten() {
        let log = fs::read_to_string(entry.path()).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(12).collect();
        text.extend(["--- ", &entry.path().to_string_lossy(), "\n"]);
        text.extend(tail.iter().rev().flat_map(|line| [line, "\n"]));
    }
    text
}
