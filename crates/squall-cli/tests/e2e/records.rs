//! Programs that are not Squall's read the records while the controller runs (`[accounting] readers`).

use std::process::{Command, Stdio};

use crate::harness::{Cluster, text};

/// Prints what a query of the records finds, a line for each row, as `sqlite3` does.
const READER: &str = "import sqlite3, sys\n\
    db = sqlite3.connect('file:' + sys.argv[1] + '?mode=ro', uri=True)\n\
    for row in db.execute(sys.argv[2]): print('|'.join(str(value) for value in row))\n";

/// Returns what a query finds, by another program.
fn read(c: &Cluster, sql: &str) -> String {
    let file = c.state().join("records/records.db");
    let out = Command::new("python3").args(["-c", READER]).arg(file).arg(sql).output().unwrap();
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn other_programs_read_the_records_while_jobs_run() {
    if Command::new("python3").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        return eprintln!("skipped: python3 is not installed");
    }
    let c = Cluster::new("records", "read");
    let own = Command::new("id").arg("-gn").output().unwrap();
    let group = String::from_utf8(own.stdout).unwrap();
    c.write("c.toml", &format!("[accounting]\nreaders = \"{}\"\n[[nodes]]\nname = \"n1\"\n", group.trim_end()));
    c.said(&["up", "--config", "c.toml"]);
    c.ok(&["sbatch", "--wait", "-o", "/dev/null", "-J", "good", "--comment", "it's mine", "--wrap", "true"]);
    c.squall(&["sbatch", "--wait", "-o", "/dev/null", "-J", "bad", "--wrap", "exit 3"]);
    let jobs = "SELECT job_id, name, state, exit_code, comment FROM jobs ORDER BY job_id";
    c.until("both are there", || read(&c, jobs) == "1|good|COMPLETED|0|it's mine\n2|bad|FAILED|3|None\n");
    assert_eq!(read(&c, "SELECT id_job, state, exit_code FROM job_table WHERE id_job = 2"), "2|5|768\n");
    assert_eq!(read(&c, "SELECT step FROM steps WHERE job_id = 1"), "batch\n");
    // The controller's next run goes on with the file.
    c.kill("controller");
    c.said(&["up"]);
    c.ok(&["sbatch", "--wait", "-o", "/dev/null", "-J", "later", "--wrap", "true"]);
    c.until("the third is there", || read(&c, jobs).lines().count() == 3);
    assert!(c.ok(&["sacct", "-n", "-X", "-P", "-o", "JobName"]).contains("later"));
}

/// A group that is not there is named before anything runs.
#[test]
fn a_group_that_is_not_there_is_named() {
    let c = Cluster::new("records", "group");
    c.write("c.toml", "[accounting]\nreaders = \"no-such-group\"\n[[nodes]]\nname = \"n1\"\n");
    let out = c.squall(&["up", "--config", "c.toml"]);
    assert!(
        !out.status.success() && text(&out).contains("this machine has no group `no-such-group`"),
        "{}",
        text(&out)
    );
}
