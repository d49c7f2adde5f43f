//! Stories of several users: who may do what, and a cluster of one's own without root. Need root to become others.

use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Story;
use crate::cluster::{Cluster, Done};

pub(crate) const STORIES: &[Story] = &[
    ("jobs_run_as_their_submitter_with_all_groups", submitter),
    ("d10_root_submits_for_others_and_nobody_else_does", submits_for_others),
    ("nobody_touches_anothers_job", others),
    ("a_cluster_of_ones_own_without_root", own_cluster),
    ("h1_files_that_block_hold_up_nobody_else", blocking_files),
    ("h1_a_supervisor_that_does_not_answer_is_replaced", stuck_supervisor),
    ("l1_no_job_sees_the_memory_map_of_a_daemon", daemon_maps),
];

/// Users that every Debian system has: name, uid, gid.
const DAEMON: (&str, u32, u32) = ("daemon", 1, 1);
const GAMES: (&str, u32, u32) = ("games", 5, 60);

fn submitter(c: &Cluster) {
    if !root() {
        return;
    }
    open_work(c);
    let done = as_user(
        c,
        DAEMON,
        &[4, 29],
        &["sbatch", "--wait", "-o", "id.out", "--wrap", "id -u; id -g; id -G; umask; test -w /root || echo cannot"],
    );
    assert_eq!(done.status, 0, "{done:?}");
    let text = c.read("id.out");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[1]), ("1", "1"), "{text}");
    assert!(!lines[2].split(' ').any(|g| g == "0"), "root's groups leaked: {text}");
    assert_eq!(*lines.last().unwrap(), "cannot", "{text}");
    let done = as_user(c, DAEMON, &[], &["srun", "id", "-un"]);
    assert_eq!(done.out, "daemon\n", "{done:?}");
}

fn submits_for_others(c: &Cluster) {
    if !root() {
        return;
    }
    open_work(c);
    c.ok(&[
        "sbatch",
        "--wait",
        "--uid=games",
        "-o",
        "uid.out",
        "--wrap",
        "id -un; id -gn; test -w /root || echo cannot",
    ]);
    assert_eq!(c.read("uid.out"), "games\ngames\ncannot\n");
    assert_eq!(c.ok(&["srun", "--uid=5", "--gid=daemon", "sh", "-c", "id -un; id -gn"]), "games\ndaemon");
    assert_eq!(c.ok(&["salloc", "-Q", "--uid=games", "srun", "id", "-un"]), "games");
    assert_eq!(c.ok(&["srun", "--gid=daemon", "sh", "-c", "id -u; id -gn"]), "0\ndaemon");
    let done = c.run(&["sbatch", "--uid=nosuch", "--wrap", "true"]);
    assert_eq!((done.status, done.err.lines().next()), (255, Some("sbatch: error: Invalid --uid specification")));
    for option in ["--uid", "--gid"] {
        let done = as_user(c, DAEMON, &[], &["sbatch", &format!("{option}=games"), "--wrap", "true"]);
        assert_eq!(done.err, format!("sbatch: error: {option} only permitted by root user\n"));
        assert_eq!(done.status, 255);
    }
    let done = as_user(c, DAEMON, &[], &["sbatch", "--nice=-10", "--wrap", "true"]);
    assert!(done.err.ends_with("sbatch: error: Batch job submission failed: Invalid --nice value\n"), "{done:?}");
}

fn others(c: &Cluster) {
    if !root() {
        return;
    }
    open_work(c);
    let done = as_user(c, DAEMON, &[], &["sbatch", "--parsable", "--hold", "-o", "/dev/null", "--wrap", "echo secret"]);
    let id = done.out.trim().to_owned();
    assert!(!id.is_empty(), "{done:?}");
    let refused = [
        &["scontrol", "release", id.as_str()][..],
        &["scontrol", "update", &format!("jobid={id}"), "timelimit=5"],
        &["scontrol", "write", "batch_script", &id, "-"],
        &["scontrol", "update", "nodename=n1", "state=drain", "reason=x"],
        &["srun", &format!("--jobid={id}"), "true"],
        &["scontrol", "shutdown"],
    ];
    for args in refused {
        let done = as_user(c, GAMES, &[], args);
        assert_ne!(done.status, 0, "{args:?}: {done:?}");
        assert!(!done.out.contains("secret"), "{args:?}: {done:?}");
    }
    as_user(c, GAMES, &[], &["scancel", &id]);
    as_user(c, GAMES, &[], &["scancel", "-u", "daemon"]);
    assert_eq!(c.ok(&["squeue", "-h", "-o", "%t %r", "-j", &id]), "PD JobHeldUser");
    assert!(as_user(c, DAEMON, &[], &["scontrol", "write", "batch_script", &id, "-"]).out.contains("echo secret"));
    assert_eq!(as_user(c, DAEMON, &[], &["scancel", &id]).status, 0);
    assert!(c.end_of(&id).starts_with("CANCELLED by 1|"), "{}", c.end_of(&id));
}

/// FIFOs that nobody opens and a leased interpreter: other jobs on the node run, and cancelling works.
fn blocking_files(c: &Cluster) {
    if !root() {
        return;
    }
    open_work(c);
    let null = "/dev/null";
    // Each its own: the reader of one would release the writer of another.
    let [out, err, input] = ["fifo.o", "fifo.e", "fifo.i"].map(|name| c.path(&format!("work/{name}")));
    assert!(become_user(GAMES, &[]).args(["mkfifo", &out, &err, &input]).status().unwrap().success());
    let files = [["-o", &out, "-e", null], ["-o", null, "-e", &err], ["-o", null, "-i", &input]];
    let stuck = files.map(|files| {
        let args = [&["sbatch", "--parsable", "-w", "n1"], &files[..], &["--wrap", "true"]].concat();
        as_user(c, GAMES, &[], &args).out.trim().to_owned()
    });
    nobody_else_is_held_up(c, &stuck);

    let interpreter = c.path("work/interpreter");
    let mut holder = become_user(GAMES, &[])
        .args(["perl", "-e", LEASE, &interpreter])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
    c.write("leased.sh", &format!("#!{interpreter}\ntrue\n"));
    let leased = ["", ""].map(|_| {
        let args = ["sbatch", "--parsable", "-w", "n1", "-o", null, "leased.sh"];
        as_user(c, GAMES, &[], &args).out.trim().to_owned()
    });
    nobody_else_is_held_up(c, &leased);
    drop(holder.stdin.take());
    holder.wait().unwrap();
}

/// Takes a lease on a copy of the shell, and keeps it until its standard input ends.
const LEASE: &str = "use Fcntl; $SIG{IO} = 'IGNORE'; $| = 1; system('cp', '/bin/sh', $ARGV[0]); \
    sysopen(F, $ARGV[0], O_RDWR) && fcntl(F, 1024, F_WRLCK) or die $!; print 'leased'; getc";

fn nobody_else_is_held_up(c: &Cluster, stuck: &[String]) {
    for job in stuck {
        c.until_state(job, "RUNNING");
    }
    let done = as_user(c, DAEMON, &[], &["sbatch", "--wait", "-w", "n1", "-o", "beside.out", "--wrap", "echo beside"]);
    assert_eq!((done.status, c.read("beside.out").as_str()), (0, "beside\n"), "{done:?}");
    for job in stuck {
        assert_eq!(as_user(c, GAMES, &[], &["scancel", job]).status, 0);
        assert!(c.end_of(job).starts_with("CANCELLED by 5|"), "{}", c.end_of(job));
    }
    c.until("n1 is idle", || c.ok(&["sinfo", "-h", "-n", "n1", "-p", "debug", "-o", "%t"]) == "idle");
}

/// The batch supervisor of n1 is stopped: its scripts go on, others start, and cancelling works.
fn stuck_supervisor(c: &Cluster) {
    let running = c.sbatch(&[
        "-w",
        "n1",
        "-o",
        "/dev/null",
        "--wrap",
        "while [ ! -e supervisor.go ]; do sleep 0.05; done; exit 3",
    ]);
    let endless = c.sbatch(&["-w", "n1", "-o", "/dev/null", "--wrap", "sleep 1000"]);
    for job in [&running, &endless] {
        c.until_state(job, "RUNNING");
    }
    let steps = c.path("state/node/n1/steps");
    let supervisor =
        || c.processes().into_iter().find(|(_, line)| line.trim_end().ends_with(&steps)).map(|(pid, _)| pid);
    let Some(pid) = supervisor() else {
        println!("  (skipped: steps have daemons of their own here)");
        return c.ok(&["scancel", &running, &endless]).clear();
    };
    assert!(Command::new("kill").args(["-STOP", &pid.to_string()]).status().unwrap().success());
    let next = c.sbatch(&["-w", "n1", "-o", "supervisor.out", "--wrap", "echo next"]);
    c.ok(&["scancel", &endless]);
    assert_eq!(c.end_of(&next), "COMPLETED|0:0");
    assert_eq!(c.read("supervisor.out"), "next\n");
    assert!(c.end_of(&endless).starts_with("CANCELLED"), "{}", c.end_of(&endless));
    c.write("supervisor.go", "");
    assert_eq!(c.end_of(&running), "FAILED|3:0");
}

/// `/proc/self` of whoever opens a job's files is no file of the job.
fn daemon_maps(c: &Cluster) {
    let job = c.sbatch(&["-i", "/proc/self/maps", "-o", "maps.out", "--wrap", "cat"]);
    assert_eq!(c.end_of(&job), "FAILED|0:53");
    assert!(!c.read("maps.out").contains("r-xp"));
}

fn own_cluster(c: &Cluster) {
    if !root() {
        return;
    }
    // No HOME and no XDG variables: a bare environment, as some clients make it. `--state` makes it nobody's default.
    let folder = std::path::PathBuf::from(c.path("own"));
    std::fs::create_dir_all(folder.join("bin")).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_squall"), folder.join("bin/squall")).unwrap();
    for path in [&folder, &folder.join("bin")] {
        std::os::unix::fs::chown(path, Some(GAMES.1), Some(GAMES.2)).unwrap();
    }
    let run = |args: &[&str]| bare(&folder, GAMES, &[], args);
    assert_eq!(run(&["squall", "links", &folder.join("bin").display().to_string()]).status, 0);
    let start = Instant::now();
    let done = run(&["squall", "up", "--state", &folder.join("state").display().to_string()]);
    assert_eq!(done.status, 0, "{done:?}");
    let done = run(&["sbatch", "--parsable", "-o", "own.out", "--wrap", "id -un"]);
    assert_eq!(done.status, 0, "{done:?}");
    let out = folder.join("own.out");
    c.until("the first job's output is there", || std::fs::read_to_string(&out).is_ok_and(|t| t == "games\n"));
    let took = start.elapsed();
    assert!(took.as_secs_f64() < 3.0 * slack(), "first output after {took:?}");
    let done = run(&["squall", "down", "--state", &folder.join("state").display().to_string()]);
    assert_eq!(done.status, 0, "{done:?}");
}

/// Debug builds on a busy machine are given more time; the figure itself is a bench's.
fn slack() -> f64 {
    3.0
}

fn root() -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    if !root {
        println!("  (skipped: only root can become other users)");
    }
    root
}

/// Lets others work in the cluster's work folder.
fn open_work(c: &Cluster) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(c.path("work"), mode).unwrap();
}

fn as_user(c: &Cluster, user: (&str, u32, u32), groups: &[u32], args: &[&str]) -> Done {
    // The test's binary may lie where others can't reach it: they get a copy.
    let copy = std::path::PathBuf::from(c.path("others"));
    if !copy.exists() {
        std::fs::create_dir_all(&copy).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_squall"), copy.join("squall")).unwrap();
        for name in ["sbatch", "srun", "scancel", "scontrol"] {
            std::os::unix::fs::symlink("squall", copy.join(name)).unwrap();
        }
    }
    let state = c.path("state");
    let program = copy.join(args[0]).display().to_string();
    become_user(user, groups)
        .arg(program)
        .args(&args[1..])
        .env("SQUALL_STATE", state)
        .current_dir(c.path("work"))
        .output()
        .map(|output| Done::of(&output))
        .unwrap()
}

fn bare(folder: &std::path::Path, user: (&str, u32, u32), groups: &[u32], args: &[&str]) -> Done {
    become_user(user, groups)
        .arg(folder.join("bin").join(args[0]))
        .args(&args[1..])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("SQUALL_STATE", folder.join("state"))
        .current_dir(folder)
        .output()
        .map(|output| Done::of(&output))
        .unwrap()
}

fn become_user(user: (&str, u32, u32), groups: &[u32]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user.1.to_string(), "--regid", &user.2.to_string()]);
    let list: Vec<String> = groups.iter().map(u32::to_string).collect();
    if list.is_empty() {
        command.arg("--clear-groups");
    } else {
        command.args(["--groups", &list.join(",")]);
    }
    command.stdin(Stdio::null());
    command
}
