//! Files of the controller that are damaged while it is dead: what they told is told all the same, or it is said what is lost.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::cluster::Cluster;

const PAGE_BYTES: u64 = 4096;

/// faults.md A9
#[test]
fn a9_sacct_answers_rightly_after_its_database_was_damaged() {
    let cluster = Cluster::new("accounts");
    cluster.up();
    let client = cluster.submitter();
    for number in 0..120 {
        client.submit(&format!("job-{number}"), 0);
    }
    cluster.wait_until_idle();
    let told = rows(&cluster);
    assert_eq!(told.lines().count(), 120, "{told}");
    let path = cluster.state().join("accounts.db");
    // All of it is in the file when the controller ends in order, and the journal has all of it, too.
    assert!(cluster.squall(&["down"]).status.success());
    let pages = fs::metadata(&path).unwrap().len() / PAGE_BYTES;
    for (number, page) in [0, 1, 2, pages / 2, pages - 1].into_iter().enumerate() {
        damage(&path, page, number % 2 == 0);
        cluster.up();
        assert_eq!(rows(&cluster), told, "page {page}\n{}", cluster.logs());
        assert!(cluster.state().join("accounts.db.damaged").exists());
        assert!(cluster.logs().contains("accounts.db is damaged"), "{}", cluster.logs());
        fs::remove_file(cluster.state().join("accounts.db.damaged")).unwrap();
        assert!(cluster.squall(&["down"]).status.success());
    }
}

fn rows(cluster: &Cluster) -> String {
    let said = cluster.squall(&["sacct", "-naXP", "-o", "JobID,JobName,State,ExitCode,Submit,Start,End,NodeList"]);
    let (text, errors) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success() && errors.is_empty(), "{errors}");
    text.into_owned()
}

/// Zeroes a page, or flips a bit of it.
fn damage(path: &Path, page: u64, zero: bool) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut bytes = vec![0; PAGE_BYTES as usize];
    if !zero {
        file.read_exact_at(&mut bytes, page * PAGE_BYTES).unwrap();
        bytes[PAGE_BYTES as usize / 2] ^= 8;
    }
    file.write_all_at(&bytes, page * PAGE_BYTES).unwrap();
}
