//! The node daemon killed in the moments of launches, its spool damaged or rolled back while it is dead: no attempt runs
//! twice, nothing that runs is killed for want of a file, and a job that never began runs all the same.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use squall_model::job::Digest;

use crate::audit::{self, read_all};
use crate::cluster::{Cluster, Victim};
use crate::faults::events;
use crate::moments::Moments;

/// How often the node daemon is killed at launches unless SQUALL_CRASH_LAUNCHES says otherwise.
const LAUNCHES: u32 = 24;

/// How often a job is cancelled at its launch unless SQUALL_CRASH_CANCELS says otherwise.
const CANCELS: u32 = 30;

/// Longest delay between sbatch and the kill, microseconds.
const AFTER_US: u32 = 4000;

/// Number of nodes that get an older copy of their spool at the same time.
const NODES: usize = 6;

/// How long a job may take to get where a test wants it.
const PATIENCE: Duration = Duration::from_mins(1);

/// faults.md A0
#[test]
fn a0_node_daemon_killed_at_launches() {
    let cluster = Cluster::new("launches");
    let mut moments = Moments::seeded();
    cluster.up();
    let client = cluster.submitter();
    let launches = std::env::var("SQUALL_CRASH_LAUNCHES").ok().and_then(|n| n.parse().ok()).unwrap_or(LAUNCHES);
    let record: Vec<_> = (0..launches)
        .map(|number| {
            let submission = client.submit(&format!("launch-{number}"), 0);
            std::thread::sleep(moments.below_us(AFTER_US));
            cluster.kill(Victim::Node);
            cluster.up();
            submission
        })
        .collect();
    cluster.wait_until_idle();
    audit::check(&cluster, &record, "launches");
}

/// faults.md A0: the state that such a kill leaves, made by hand: a cgroup of the job, no folder of its step.
#[test]
fn a0_a_cgroup_without_a_folder_does_not_end_its_job() {
    let cluster = Cluster::new("group");
    cluster.up();
    let client = cluster.submitter();
    let Some(groups) = groups_of(&cluster.state(), "c1") else {
        eprintln!("skipped: no v2 cgroups");
        return;
    };
    let mut record: Vec<_> = (0..20).map(|number| client.submit(&format!("first-{number}"), 0)).collect();
    cluster.wait_until_idle();
    for number in 0..3 {
        cluster.kill(Victim::Node);
        let submission = client.submit(&format!("group-{number}"), 0);
        let id = submission.id.expect("the controller lives");
        // A group within keeps the sweep from its end, as slow processes do, until it is removed.
        let within = groups.join(format!("job_{id}.1/x/y"));
        fs::create_dir_all(&within).unwrap();
        record.push(submission);
        let remover = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(700));
            fs::remove_dir(within).unwrap();
        });
        cluster.up();
        remover.join().unwrap();
        cluster.wait_until_idle();
    }
    audit::check(&cluster, &record, "groups without folders");
}

/// faults.md A4
#[test]
fn a4_a_spool_that_was_rolled_back_runs_nothing_twice() {
    let count = NODES.min(events());
    let nodes = format!("[[nodes]]\nname = \"c[1-{count}]\"\ncpus = 16\nforce = true\n");
    let cluster = Cluster::configured("rollback", 0, &nodes);
    cluster.up();
    let copy = cluster.state().with_extension("copy");
    fs::create_dir_all(&copy).unwrap();
    let (mut rolled_back, mut all) = (0, 0);
    for round in 0.. {
        let tags = |name: &str| (1..=count).map(|node| format!("{name}-{round}-{node}")).collect::<Vec<_>>();
        let submit_all = |name: &str, work: &str, options: &[&str]| {
            for (at, tag) in tags(name).iter().enumerate() {
                submit(&cluster, tag, work, &[options, &["-w", &format!("c{}", at + 1)]].concat());
            }
        };
        submit_all("old", "sleep 4", &[]);
        wait_for("the first jobs", || tags("old").iter().all(|tag| started(&cluster, tag) == 1));
        (1..=count).for_each(|node| copy_all(&cluster.state().join(format!("node/c{node}")), &copy));
        submit_all("runs", "sleep 3", &[]);
        submit_all("once", "sleep 3", &["--no-requeue"]);
        // It ends while nobody is there to tell: only the spool knew.
        submit_all("ends", "sleep 0.2", &["--no-requeue"]);
        let late = ["runs", "once", "ends"].map(tags).concat();
        wait_for("all jobs", || late.iter().all(|tag| started(&cluster, tag) == 1));
        (1..=count).for_each(|node| cluster.kill(Victim::NodeAt(node)));
        std::thread::sleep(Duration::from_millis(400));
        for node in (1..=count).map(|node| format!("c{node}")) {
            let spool = cluster.state().join("node").join(&node);
            fs::remove_dir_all(&spool).unwrap();
            fs::rename(copy.join(&node), &spool).unwrap();
        }
        cluster.up();
        cluster.wait_until_idle();
        (rolled_back, all) = (rolled_back + count, all + 4 * count);
        if rolled_back >= events() {
            break;
        }
    }
    let mut wrong = twice(&cluster);
    for (tag, text) in read_all(&cluster.marks()) {
        let once = tag.starts_with("once") || tag.starts_with("ends");
        if once && text.matches("start").count() != 1 || !once && !text.ends_with("end\n") {
            wrong.push(format!("{tag}: {text:?}"));
        }
    }
    eprintln!("{rolled_back} spools rolled back: {all} acknowledged; {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), cluster.logs());
    fs::remove_dir_all(&copy).unwrap();
}

/// faults.md A1: one flipped byte in each file of a running step, in one life after the other.
#[test]
fn a1_a_damaged_file_ends_no_running_job() {
    damaged_files("damaged", "");
}

/// faults.md A1: the same where each step has a daemon of its own.
#[test]
fn a1_a_damaged_file_ends_no_running_job_of_its_own_daemon() {
    damaged_files("damaged-own", "own_step_daemons = true\n");
}

fn damaged_files(name: &str, config: &str) {
    let cluster = Cluster::with_config(name, config);
    cluster.up();
    for (file, at) in [("launch", 20), ("launch", 300), ("result", 4096), ("result", 2), ("pids", 3), ("cgroups", 8)] {
        let tag = format!("{file}-{at}");
        let go = cluster.state().with_extension(&tag);
        let id =
            submit(&cluster, &tag, &format!("while [ ! -e {} ]; do sleep 0.05; done", go.display()), &["--no-requeue"]);
        wait_for("the job", || started(&cluster, &tag) == 1);
        cluster.kill(Victim::Node);
        flip(&cluster.state().join(format!("node/c1/steps/{id}.1.batch/{file}")), at);
        cluster.up();
        std::thread::sleep(Duration::from_millis(300));
        fs::write(&go, "").unwrap();
        cluster.wait_until_idle();
        let said = cluster.squall(&["sacct", "-nXP", "-j", &id.to_string(), "-o", "State,ExitCode"]);
        let (said, marks) = (String::from_utf8_lossy(&said.stdout).into_owned(), marks_of(&cluster, &tag));
        assert_eq!((said.trim(), marks.as_str()), ("COMPLETED|0:0", "start 0\nend\n"), "{tag}\n{}", cluster.logs());
        if file == "launch" {
            let kept = cluster.state().join(format!("node/c1/damaged/{id}.1.batch/launch"));
            assert!(kept.exists(), "{} is not kept", kept.display());
            assert!(cluster.logs().contains(&format!("the launch of step {id}.1.batch")), "{}", cluster.logs());
        }
    }
}

/// faults.md A1: a job whose launch can't be read can be cancelled all the same.
#[test]
fn a1_a_job_that_cant_be_read_can_be_cancelled() {
    for (name, config) in [("unread", ""), ("unread-own", "own_step_daemons = true\n")] {
        let cluster = Cluster::with_config(name, config);
        cluster.up();
        let id = submit(&cluster, "endless", "sleep 1000", &[]);
        wait_for("the job", || started(&cluster, "endless") == 1);
        cluster.kill(Victim::Node);
        flip(&cluster.state().join(format!("node/c1/steps/{id}.1.batch/launch")), 20);
        cluster.up();
        assert!(cluster.squall(&["scancel", &id.to_string()]).status.success());
        cluster.wait_until_idle();
        assert_eq!(marks_of(&cluster, "endless"), "start 0\n", "{}", cluster.logs());
    }
}

/// faults.md A12
#[test]
fn a12_a_wrong_digit_does_not_stop_a_node() {
    let cluster = Cluster::new("digits");
    cluster.up();
    for file in ["session", "life", "incarnation"] {
        submit(&cluster, file, "sleep 2", &["--no-requeue"]);
        wait_for("the job", || started(&cluster, file) == 1);
        cluster.kill(Victim::Node);
        let path = cluster.state().join("node/c1").join(file);
        // A digit that stays one.
        flip(&path, 1);
        cluster.up();
        assert!(cluster.logs().contains(&format!("'{file}' is damaged")), "{}", cluster.logs());
        assert!(cluster.state().join("node/c1/damaged").join(file).exists());
        cluster.wait_until_idle();
        assert_eq!(marks_of(&cluster, file), "start 0\nend\n", "{}", cluster.logs());
    }
}

/// faults.md A11: a script that was frozen at its birth, as jobs out of turn are, does not begin when it is cancelled and
/// then thawed.
#[test]
fn a11_a_script_that_has_not_begun_when_it_is_cancelled_never_does() {
    for (name, config) in [("frozen", ""), ("frozen-own", "own_step_daemons = true\n")] {
        let cluster = Cluster::with_config(name, config);
        cluster.up();
        let id = submit(&cluster, "before", "true", &[]) + 1;
        cluster.wait_until_idle();
        let Some(groups) = groups_of(&cluster.state(), "c1") else {
            eprintln!("skipped: no v2 cgroups");
            return;
        };
        let group = groups.join(format!("job_{id}.1"));
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("cgroup.freeze"), "1").unwrap();
        assert_eq!(submit(&cluster, "frozen", "sleep 3", &[]), id);
        let born = || fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|text| !text.is_empty());
        wait_for("a process", born);
        assert!(cluster.squall(&["scancel", &id.to_string()]).status.success());
        std::thread::sleep(Duration::from_millis(100));
        // It may be gone.
        drop(fs::write(group.join("cgroup.freeze"), "0"));
        cluster.wait_until_idle();
        assert_eq!(marks_of(&cluster, "frozen"), "", "{}", cluster.logs());
        let said = cluster.squall(&["sacct", "-nXP", "-j", &id.to_string(), "-o", "State"]);
        assert!(said.stdout.starts_with(b"CANCELLED"), "{}", String::from_utf8_lossy(&said.stdout));
    }
}

/// faults.md A11: after `scancel` has answered no script begins, whenever after the submission it was called.
#[test]
fn a11_no_script_begins_after_scancel_has_answered() {
    for (name, config) in [("cancelled", ""), ("cancelled-own", "own_step_daemons = true\n")] {
        let cluster = Cluster::with_config(name, config);
        let mut moments = Moments::seeded();
        cluster.up();
        let cancels = std::env::var("SQUALL_CRASH_CANCELS").ok().and_then(|n| n.parse().ok()).unwrap_or(CANCELS);
        let begun: Vec<bool> = (0..cancels)
            .map(|number| {
                let tag = format!("cancel-{number}");
                let id = submit(&cluster, &tag, "sleep 60", &[]).to_string();
                std::thread::sleep(moments.below_us(AFTER_US));
                assert!(cluster.squall(&["scancel", &id]).status.success());
                started(&cluster, &tag) > 0
            })
            .collect();
        cluster.wait_until_idle();
        for (number, begun) in begun.into_iter().enumerate() {
            let tag = format!("cancel-{number}");
            assert_eq!(started(&cluster, &tag) > 0, begun, "{tag} began after its scancel\n{}", cluster.logs());
        }
    }
}

/// Submits a job that marks its start, with the number of its restarts, and its end.
fn submit(cluster: &Cluster, tag: &str, work: &str, options: &[&str]) -> u32 {
    let mark = cluster.marks().join(tag);
    let mark = mark.display();
    let script = format!("echo start ${{SLURM_RESTART_COUNT:-0}} >> {mark}; {work}; echo end >> {mark}");
    let mut words = vec!["sbatch", "--parsable", "--output=/dev/null", "--job-name", tag, "--wrap", &script];
    words.splice(1..1, options.iter().copied());
    let output = cluster.squall(&words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

fn marks_of(cluster: &Cluster, tag: &str) -> String {
    fs::read_to_string(cluster.marks().join(tag)).unwrap_or_default()
}

fn started(cluster: &Cluster, tag: &str) -> usize {
    marks_of(cluster, tag).matches("start").count()
}

/// Jobs that began one of their attempts twice.
fn twice(cluster: &Cluster) -> Vec<String> {
    let mut found = Vec::new();
    for (tag, text) in read_all(&cluster.marks()) {
        let mut starts: Vec<&str> = text.lines().filter(|line| line.starts_with("start")).collect();
        let all = starts.len();
        starts.sort_unstable();
        starts.dedup();
        if starts.len() < all {
            found.push(format!("{tag} began an attempt twice: {text:?}"));
        }
    }
    found
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}: waited too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn copy_all(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    // In place, as a disk does it: whoever has it open sees it.
    fs::File::options().write(true).open(path).unwrap().write_all_at(&bytes[at..=at], at as u64).unwrap();
}

/// The folder of a node's v2 cgroups.
fn groups_of(state: &Path, node: &str) -> Option<PathBuf> {
    let cluster = Digest::of(state.as_os_str().as_encoded_bytes()).to_string();
    let below = Path::new("squall").join(&cluster[..16]).join(node);
    let found =
        Command::new("find").args(["/sys/fs/cgroup", "-path"]).arg(format!("*/{}", below.display())).output().ok()?;
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    text.lines().map(PathBuf::from).find(|path| path.join("cgroup.procs").exists() && path.join("cgroup.kill").exists())
}
