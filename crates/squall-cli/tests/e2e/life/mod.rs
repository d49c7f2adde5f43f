//! A cluster's life with real processes: up, crashes, bad peers, damage, down.

mod silence;
mod starts;

use std::io::{Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::harness::{Cluster, text};

trait Life {
    fn squall_with(&self, args: &[&str], variable: &str, value: &str) -> Output;
    fn submit(&self) -> String;
    fn queue(&self) -> Vec<String>;
    fn pid_of(&self, daemon: &str) -> String;
    fn signal(&self, daemon: &str, signal: &str);
    fn connect(&self) -> UnixStream;
}

impl Life for Cluster {
    fn squall_with(&self, args: &[&str], variable: &str, value: &str) -> Output {
        self.command(args).env(variable, value).output().unwrap()
    }
    fn submit(&self) -> String {
        self.ok(&["sbatch", "--parsable", "--hold", "-o", "/dev/null", "--wrap", "true"])
    }
    fn queue(&self) -> Vec<String> {
        self.ok(&["squeue", "-h", "-o", "%i"]).split_whitespace().map(str::to_owned).collect()
    }
    /// The process id in a daemon's file, whether it runs or not.
    fn pid_of(&self, daemon: &str) -> String {
        self.read(&format!("state/run/{daemon}.pid")).trim().to_owned()
    }
    fn signal(&self, daemon: &str, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.pid_of(daemon)]).status().unwrap().success());
    }
    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.state().join("run/controller.sock")).unwrap()
    }
}

fn is_zombie(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| s.contains(") Z "))
}

#[test]
fn up_again_resumes_whatever_died_and_down_ends_all() {
    let c = Cluster::new("life", "resume");
    assert!(c.ok(&["up", "--nodes", "2"]).contains("is up: 2 nodes (n[1-2])"));
    assert!(c.ok(&["up"]).contains("runs already"));
    c.fails(&["up", "--nodes", "3"], "this cluster has 2 node(s) (n[1-2])");
    let (controller, node) = (c.pid_of("controller"), c.pid_of("node-n2"));
    let mut ids = vec![c.submit()];
    c.kill("controller");
    c.ok(&["up"]);
    ids.push(c.submit());
    assert_eq!(c.pid_of("node-n2"), node, "a living daemon is left alone");
    c.kill("node-n1");
    c.ok(&["up"]);
    assert_ne!(c.pid_of("controller"), controller);
    assert_eq!(c.queue(), ids);
    let daemons = ["controller", "node-n1", "node-n2"].map(|d| c.pid_of(d));
    assert!(c.ok(&["down"]).contains("is down"));
    for pid in daemons {
        assert!(!Path::new(&format!("/proc/{pid}")).exists() || is_zombie(&pid), "{pid} still lives");
    }
    assert!(c.ok(&["down"]).contains("was not running"));
    c.ok(&["up"]);
    assert_eq!(c.queue(), ids);
}

/// faults.md R9.
#[test]
fn a_message_about_a_hostile_archive_does_not_control_the_terminal() {
    let c = Cluster::new("life", "hostile");
    std::fs::create_dir_all(&c.dir).unwrap();
    let name = "x\u{1b}]0;title\u{7}\u{1b}[31mevil";
    std::fs::write(c.dir.join(name), "").unwrap();
    let file = c.dir.join("hostile.tgz");
    let packed = Command::new("tar").arg("-czf").arg(&file).arg("-C").arg(&c.dir).arg(name).status().unwrap();
    assert!(packed.success());
    let out = c.squall(&["restore", file.to_str().unwrap(), "--state", c.dir.join("new").to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out).contains("evil") && !text(&out).contains('\u{1b}'), "{:?}", text(&out));
}

#[test]
fn a_backup_of_a_running_cluster_is_restored_and_nothing_happens_twice() {
    let c = Cluster::new("life", "restored");
    let (state, file) = (c.state(), c.dir.join("backup"));
    let (state, file) = (state.to_str().unwrap(), file.to_str().unwrap());
    std::fs::create_dir_all(c.state()).unwrap();
    std::fs::write(c.state().join("squall.toml"), "[[nodes]]\nname = \"n1\"\ncpus = 2\nforce = true\n").unwrap();
    c.ok(&["up"]);
    let marks = c.dir.join("marks");
    let job = |gate: &str| {
        let (marks, gate) = (marks.display(), c.dir.join(gate).display().to_string());
        let script = format!(
            "echo $SLURM_JOB_ID begins >>{marks}; while [ ! -e {gate} ]; do sleep 0.02; done; echo $SLURM_JOB_ID ends >>{marks}"
        );
        c.ok(&["sbatch", "--parsable", "-n1", "-o", "/dev/null", "--wrap", &script]).trim().to_owned()
    };
    let count = |what: &str| std::fs::read_to_string(&marks).unwrap_or_default().lines().filter(|l| *l == what).count();
    let (stays, ends, waits) = (job("late"), job("early"), job("early"));
    until("that", || count(&format!("{stays} begins")) == 1 && count(&format!("{ends} begins")) == 1);
    let before: Vec<String> = (0..5).map(|_| c.submit()).collect();
    let during = std::thread::scope(|scope| {
        let submitted = scope.spawn(|| (0..20).map(|_| c.submit()).collect::<Vec<_>>());
        for _ in 0..3 {
            assert!(c.ok(&["backup", file]).contains("read again and checked"));
        }
        submitted.join().unwrap()
    });
    // All of this comes after the backup: two jobs run to their ends, another one begins.
    std::fs::write(c.dir.join("early"), "").unwrap();
    until("that", || count(&format!("{ends} ends")) == 1 && count(&format!("{waits} ends")) == 1);
    let unknown = job("late");
    until("that", || count(&format!("{unknown} begins")) == 1);
    until("that", || !c.queue().contains(&waits) && !c.queue().contains(&ends));
    c.kill("controller");
    c.kill("node-n1");
    c.fails(&["restore", file, "--state", state], "is there already");
    for name in ["journal", "accounts.db", "accounts.db-wal", "keys", "squall.toml", "cluster", "clock"] {
        let path = c.state().join(name);
        drop(std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path)));
    }
    c.fails(&["restore", file, "--state", state, "--moved"], "without --moved");
    let told = c.ok(&["restore", file, "--state", state]);
    assert!(told.contains("1 pending job(s) will be held"), "{told}");
    c.fails(&["restore", file, "--state", state], "is there already");
    c.ok(&["up"]);
    let highest = during.iter().chain([&unknown]).map(|id| id.parse::<u32>().unwrap()).max().unwrap();
    let next = c.submit();
    assert!(next.parse::<u32>().unwrap() > highest, "{next} after {highest}");
    let queue = c.queue();
    assert!(before.iter().chain([&stays, &ends, &waits]).all(|id| queue.contains(id)), "{queue:?}");
    assert_eq!(c.ok(&["squeue", "-h", "-t", "R", "-o", "%i"]).trim(), stays);
    std::fs::write(c.dir.join("late"), "").unwrap();
    until("that", || count(&format!("{stays} ends")) == 1 && count(&format!("{unknown} ends")) == 1);
    until("that", || !c.queue().contains(&stays));
    assert!(c.ok(&["sinfo", "-h", "-R", "-o", "%E"]).contains(&format!("does not know: {unknown}")));
    c.ok(&["scontrol", "update", "nodename=n1", "state=resume"]);
    // The next job runs, so those before it could have.
    let last = job("late");
    until("that", || count(&format!("{last} ends")) == 1);
    for id in [&stays, &ends, &waits, &unknown] {
        assert_eq!((count(&format!("{id} begins")), count(&format!("{id} ends"))), (1, 1), "{id}");
    }
    // The next start is like any other: what is held stays held, and no ids are passed over again.
    c.kill("controller");
    c.ok(&["up"]);
    assert_eq!(c.submit().parse::<u32>().unwrap(), last.parse::<u32>().unwrap() + 1);
    c.ok(&["scontrol", "release", &waits]);
    until("that", || count(&format!("{waits} ends")) == 2);
    // A stopped cluster can be copied, too.
    c.ok(&["down"]);
    c.ok(&["backup", file]);
    let moved = c.dir.join("moved");
    assert!(!c.ok(&["restore", file, "--moved", "--state", moved.to_str().unwrap()]).contains("lost"));
}

/// faults.md A3: one node's word ended the controller, as often as the node liked.
#[test]
fn a3_a_node_that_lies_about_epochs_stops_nobody_else() {
    let c = Cluster::new("life", "lies");
    c.ok(&["up", "--nodes", "3"]);
    let controller = c.pid_of("controller");
    let lies = |node: &str| {
        c.kill(&format!("node-{node}"));
        let session = c.state().join("node").join(node).join("session");
        std::fs::write(session, format!("{:020} {:020}\n", 900, 1)).unwrap();
        let mut daemon = Command::new(env!("CARGO_BIN_EXE_squall"));
        daemon.args(["node", node]).env_clear().env("PATH", "/usr/bin:/bin").env("SQUALL_STATE", c.state());
        daemon.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap()
    };
    let drained = |node: &str| {
        let known = format!("{node} Knows of a newer state (epoch 900");
        c.ok(&["sinfo", "-h", "-R", "-o", "%n %E"]).contains(&known)
    };
    let mut liars = vec![lies("n2")];
    until("n2 is drained", || drained("n2"));
    c.ok(&["sbatch", "--wait", "-o", "/dev/null", "-N2", "-w", "n[1,3]", "--wrap", "true"]);
    assert_eq!(c.pid_of("controller"), controller);
    // Two of three are most of them: this state is old.
    liars.push(lies("n3"));
    let path = format!("/proc/{controller}");
    until("the controller ends", || !Path::new(&path).exists() || is_zombie(&controller));
    let log = std::fs::read_to_string(c.state().join("log/controller.log")).unwrap();
    assert!(log.contains("older than what nodes have seen, as most of them say"), "{log}");
    // With a word of its operator it goes on, in an epoch above all of theirs.
    c.ok(&["up", "--accept-loss"]);
    assert_eq!(c.ok(&["sinfo", "-h", "-R", "-o", "%n %E"]), "");
    c.ok(&["down"]);
    for liar in &mut liars {
        drop(liar.wait());
    }
}

/// faults.md R1: the second restoration of a backup ran ended jobs again, and gave ids twice.
#[test]
fn r1_a_backup_that_is_restored_again_runs_nothing_again() {
    let c = Cluster::new("life", "again");
    let (state, file) = (c.state(), c.dir.join("backup"));
    let (state, file) = (state.to_str().unwrap(), file.to_str().unwrap());
    std::fs::create_dir_all(c.state()).unwrap();
    std::fs::write(c.state().join("squall.toml"), "[[nodes]]\nname = \"n1\"\ncpus = 4\nforce = true\n").unwrap();
    c.ok(&["up"]);
    let (marks, gate) = (c.dir.join("marks"), c.dir.join("gate"));
    let count = |what: &str| std::fs::read_to_string(&marks).unwrap_or_default().lines().filter(|l| *l == what).count();
    let script =
        format!("echo $SLURM_JOB_ID >>{}; while [ ! -e {} ]; do sleep 0.02; done", marks.display(), gate.display());
    let job = |more: &str| {
        c.ok(&["sbatch", "--parsable", "-n1", "-o", "/dev/null", more, "--wrap", &script]).trim().to_owned()
    };
    let (once, back) = (job("--no-requeue"), job("--requeue"));
    until("both run", || count(&once) == 1 && count(&back) == 1);
    c.ok(&["backup", file]);
    std::fs::write(&gate, "").unwrap();
    until("both end", || c.queue().is_empty());
    let mut ids = vec![c.submit()];
    for folders in [true, true, false] {
        c.ok(&["down"]);
        for name in ["journal", "accounts.db", "accounts.db-wal", "keys", "squall.toml", "cluster", "clock", "node"] {
            let path = c.state().join(name);
            if name != "node" || !folders {
                drop(std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path)));
            }
        }
        c.ok(&["restore", file, "--state", state]);
        c.ok(&["up"]);
        let next = c.submit();
        assert!(!ids.contains(&next), "{next} was given before: {ids:?}");
        ids.push(next);
        until("the job waits", || c.ok(&["squeue", "-h", "-j", &back, "-o", "%T"]).trim() == "PENDING");
        assert_eq!(c.ok(&["sacct", "-n", "-X", "-P", "-o", "State", "-j", &once]), "NODE_FAIL");
        let last = job("--requeue");
        until("a job that follows has run", || count(&last) == 1);
        ids.push(last);
        assert_eq!((count(&once), count(&back)), (1, 1), "they run again");
    }
}

#[test]
fn a_job_that_ends_while_both_its_daemons_are_dead_ends_with_its_exit_code() {
    let c = Cluster::new("life", "recorder");
    c.ok(&["up"]);
    let (pid, go) = (c.dir.join("pid"), c.dir.join("go"));
    let script = format!("echo $$ > {}; while [ ! -e {} ]; do sleep 0.02; done; exit 7", pid.display(), go.display());
    let job = c.ok(&["sbatch", "--parsable", "-o", "/dev/null", "--wrap", &script]).trim().to_owned();
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let is_gone = |pid: &str| !Path::new(&format!("/proc/{pid}")).exists() || is_zombie(pid);
    while !read(&pid.display().to_string()).ends_with('\n') {
        std::thread::yield_now();
    }
    let task = read(&pid.display().to_string()).trim().to_owned();
    let stat = read(&format!("/proc/{task}/stat"));
    let step_daemon = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().to_owned();
    let line = read(&format!("/proc/{step_daemon}/cmdline")).replace('\0', " ");
    // The one that all batch scripts of the node share, or one of its own.
    assert!(line.starts_with("squall step --batch-supervisor") || line.starts_with("squall step --spool "), "{line}");
    let node = std::fs::read_dir(c.state().join("node")).unwrap().next().unwrap().unwrap().file_name();
    c.kill(&format!("node-{}", node.to_str().unwrap()));
    assert!(Command::new("kill").args(["-9", &step_daemon]).status().unwrap().success());
    while !is_gone(&step_daemon) {
        std::thread::yield_now();
    }
    std::fs::write(go, "").unwrap();
    while Path::new(&format!("/proc/{task}")).exists() {
        std::thread::yield_now();
    }
    c.ok(&["up"]);
    while !c.queue().is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(c.ok(&["sacct", "-n", "-X", "-P", "-o", "State,ExitCode", "-j", &job]), "FAILED|7:0");
}

#[test]
fn one_controller_on_one_state_and_clear_words_on_damage() {
    let c = Cluster::new("life", "damage");
    c.ok(&["up"]);
    c.fails(&["controller"], "another controller is running on this state directory");
    let ids = [c.submit(), c.submit(), c.submit()];
    c.kill("controller");
    let segment = c.state().join("journal/00000001.seg");
    let good = std::fs::read(&segment).unwrap();
    let used = good.iter().rposition(|b| *b != 0).unwrap();
    let mut bad = good.clone();
    bad[used / 2] ^= 0x10;
    std::fs::write(&segment, &bad).unwrap();
    c.fails(&["controller"], "00000001.seg is damaged at offset");
    c.fails(&["up"], "--accept-loss");
    // The rest of a write that was never finished is cut, and said.
    let mut torn = good;
    torn[used + 16..used + 40].fill(7);
    std::fs::write(&segment, &torn).unwrap();
    c.ok(&["up"]);
    assert_eq!(c.queue(), ids);
    let log = std::fs::read_to_string(c.state().join("log/controller.log")).unwrap();
    assert!(log.contains("of an unfinished write at offset"), "{log}");
}

#[test]
fn malformed_frames_end_their_connection_and_nothing_else() {
    let c = Cluster::new("life", "frames");
    c.ok(&["up"]);
    let pid = c.pid_of("controller");
    let frames: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 64],
        &[4, 0, 0, 0, 1, 2, 3, 4, 9, 9, 9, 9],
        &[0, 0, 0, 0, 0, 0, 0, 0],
        &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0],
    ];
    for bytes in frames {
        let mut stream = c.connect();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        assert!(answer.is_empty(), "to {bytes:?}: {answer:?}");
    }
    let silent: Vec<UnixStream> = (0..50).map(|_| c.connect()).collect();
    c.submit();
    drop(silent);
    assert_eq!(c.pid_of("controller"), pid);
}

#[test]
fn who_asks_a_stopped_controller_gives_up_and_who_waits_for_a_job_waits() {
    let c = Cluster::new("life", "stopped");
    c.ok(&["up"]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| c.squall(&["sbatch", "--wait", "-o", "/dev/null", "--wrap", "sleep 12; exit 3"]));
        while c.ok(&["squeue", "-h", "-o", "%T"]).trim() != "RUNNING" {
            std::thread::yield_now();
        }
        c.signal("controller", "-STOP");
        let ping = scope.spawn(|| c.squall(&["scontrol", "ping"]));
        let asked = c.squall(&["squeue"]);
        let pinged = ping.join().unwrap();
        c.signal("controller", "-CONT");
        assert!(text(&asked).contains("Socket timed out on send/recv operation"), "{}", text(&asked));
        assert_eq!(asked.status.code(), Some(1));
        assert!(text(&pinged).contains("is DOWN"), "{}", text(&pinged));
        assert_eq!(waiting.join().unwrap().status.code(), Some(3));
    });
}

#[test]
fn a_rack_runs_jobs_on_nodes_that_are_none() {
    let c = Cluster::new("life", "rack");
    assert!(c.ok(&["up", "--rack", "300"]).contains("is up: 300 nodes (n[1-300])"));
    let job = ["sbatch", "--wait", "--parsable", "-N", "300", "--comment", "timer_ms=20", "--wrap", "true"];
    let id = c.ok(&job).trim().to_owned();
    let ended = c.ok(&["sacct", "-nPX", "-j", &id, "-o", "State,ExitCode,NNodes,NodeList"]);
    assert_eq!(ended.trim(), "COMPLETED|0:0|300|n[1-300]");
    assert_eq!(c.ok(&["sinfo", "-h", "-o", "%D %T"]).trim(), "300 idle");
    // It ends by itself, without anybody waiting and then sending a signal.
    c.ok(&["down"]);
    let log = c.state().join("log/rack-0.log");
    let log = std::fs::read_to_string(&log).unwrap_or_else(|e| panic!("{}: {e}", log.display()));
    assert!(log.trim_end().ends_with("all its nodes have left"), "{log}");
}

/// Issue 31: levels, fields, SIGHUP, and names that users made.
#[test]
fn logs_have_levels_and_fields_and_are_opened_again_at_sighup() {
    let c = Cluster::new("life", "logs");
    std::fs::create_dir_all(&c.dir).unwrap();
    let config = c.dir.join("squall.toml");
    std::fs::write(&config, "SlurmctldDebug = \"debug\"\n[[nodes]]\nname = \"a1\"\n").unwrap();
    c.ok(&["up", "--config", config.to_str().unwrap()]);
    let shown = c.ok(&["scontrol", "show", "config"]);
    assert!(
        shown.contains("SlurmctldDebug          = debug") && shown.contains("SlurmdDebug             = info"),
        "{shown}"
    );
    let name = "x\n2026-11-25T21:00:00.000 ERROR forged";
    let submit = ["sbatch", "--wait", "--parsable", "-J", name, "-o", "/dev/null", "--wrap", "exit 3"];
    let id = text(&c.squall(&submit)).trim().to_owned();
    let read = |log: &str| std::fs::read_to_string(c.state().join("log").join(log)).unwrap_or_default();
    let log = read("controller.log");
    let has = |level: &str, parts: &[&str]| {
        log.lines().any(|line| line[23..].starts_with(level) && parts.iter().all(|part| line.contains(part)))
    };
    assert!(has(" INFO  node registered", &[" node=a1 "]), "{log}");
    assert!(has(" DEBUG job submitted", &[&format!(" job={id} "), " user=", " name=\"x\\n2026"]), "{log}");
    assert!(has(" DEBUG job started", &[&format!(" job={id} "), " node=a1"]), "{log}");
    assert!(has(" DEBUG job ended", &[&format!(" job={id} "), " state=failed", " exit=3:0"]), "{log}");
    assert!(!has(" ERROR forged", &[]), "{log}");
    for (daemon, file) in [("controller", "controller.log"), ("node-a1", "node-a1.log")] {
        let path = c.state().join("log").join(file);
        std::fs::rename(&path, path.with_extension("old")).unwrap();
        c.signal(daemon, "-HUP");
        let end = Instant::now() + Duration::from_secs(30);
        while !read(file).contains("INFO  log opened again") {
            assert!(Instant::now() < end, "{file}: {}", read(file));
            std::thread::yield_now();
        }
    }
    c.ok(&["scontrol", "update", "nodename=a1", "state=drain", "reason=bad fan"]);
    let log = read("controller.log");
    assert!(log.contains(" INFO  node drained node=a1 reason=\"bad fan\" uid="), "{log}");
    what_changes_the_configuration_is_logged(&c, &read);
    c.ok(&["down"]);
    let said = c.squall_with(&["controller"], "SQUALL_LOG", "loud");
    assert!(text(&said).contains("SQUALL_LOG: `loud` is no log level"), "{}", text(&said));
}

/// Partitions that change, a configuration that is refused, and one that changes the level alone.
fn what_changes_the_configuration_is_logged(c: &Cluster, read: &dyn Fn(&str) -> String) {
    c.ok(&["scontrol", "create", "partitionname=more", "nodes=a1"]);
    c.ok(&["scontrol", "update", "partitionname=more", "state=drain"]);
    c.ok(&["scontrol", "delete", "partitionname=more"]);
    let config = c.state().join("squall.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}[[nodes]]\nname = \"a1\"\n")).unwrap();
    assert!(!c.squall(&["scontrol", "reconfigure"]).status.success());
    std::fs::write(&config, text.replace("\"debug\"", "\"trace\"")).unwrap();
    c.ok(&["scontrol", "reconfigure"]);
    let shown = c.ok(&["scontrol", "show", "config"]);
    assert!(shown.contains("SlurmctldDebug          = trace"), "{shown}");
    let log = read("controller.log");
    for line in [
        " INFO  partition changed partition=more\n",
        " INFO  partition deleted partition=more\n",
        " INFO  configuration read\n",
        " WARN  new configuration refused, the one before stays in force problem=",
    ] {
        assert!(log.contains(line), "{line}{log}");
    }
}

#[test]
fn long_paths_bad_options_and_other_clusters() {
    let mut c = Cluster::new("life", "paths");
    c.fails(&["up", "--rack", "some"], "`some` is not a number from 1 to");
    c.fails(&["up", "--nodes", "0"], "`0` is not a number from 1 to 1024");
    c.fails(&["up", "--config", "/no/such/file"], "cannot read /no/such/file");
    let base = c.dir.clone();
    c.dir = base.join("d".repeat(110));
    std::fs::create_dir_all(&c.dir).unwrap();
    let config = base.join("squall.toml");
    std::fs::write(&config, "cluster = \"deep\"\nnods = 1\n").unwrap();
    c.fails(&["up", "--config", config.to_str().unwrap()], "nods");
    std::fs::write(&config, "cluster = \"deep\"\nkill_wait_s = 2\n").unwrap();
    assert!(c.ok(&["up", "--config", config.to_str().unwrap()]).contains("cluster deep is up: 1 node"));
    c.submit();
    c.ok(&["down"]);
    let own = c.state().join("squall.toml");
    let text = std::fs::read_to_string(&own).unwrap();
    std::fs::write(&own, text.replace("deep", "other")).unwrap();
    c.fails(&["up"], "belongs to cluster `deep`, not to `other`");
    std::fs::write(&own, text).unwrap();
    let links = base.join("bin");
    c.ok(&["links", links.to_str().unwrap()]);
    assert!(links.join("sbatch").symlink_metadata().unwrap().is_symlink());
    drop(c);
    drop(std::fs::remove_dir_all(base));
}

#[test]
fn a_node_that_falls_silent_is_named_and_holds_up_nobody_else() {
    let c = Cluster::new("life", "silent");
    c.ok(&["up", "--nodes", "4"]);
    c.signal("node-n3", "-STOP");
    let states = || c.ok(&["sinfo", "-h", "-N", "-o", "%N=%T"]);
    let start = Instant::now();
    while !states().contains("n3=idle*") {
        // Three heartbeats, each with its time to be answered.
        assert!(start.elapsed().as_secs() < 60, "n3 is silent: {}", states());
        assert_eq!(c.ok(&["srun", "-w", "n4", "echo", "well"]).trim(), "well");
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(c.ok(&["srun", "-N3", "echo", "well"]).trim(), "well\nwell\nwell");
    assert!(c.ok(&["scontrol", "show", "node", "n3"]).contains("State=IDLE+NOT_RESPONDING"));
    c.signal("node-n3", "-CONT");
}

#[test]
fn who_has_closed_stderr_gets_the_exit_code_all_the_same() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = Command::new(env!("CARGO_BIN_EXE_squall")).args(["bench", "nonsense"]).stderr(writer).status();
    assert_eq!(status.unwrap().code(), Some(2));
}

#[test]
fn a_sites_task_prolog_comes_before_the_users_and_its_epilog_after() {
    let c = Cluster::new("life", "scripts");
    std::fs::create_dir_all(&c.dir).unwrap();
    let path = |name: &str| c.dir.join(name).display().to_string();
    let write = |name: &str, text: &str| {
        std::fs::write(c.dir.join(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        let rights = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(c.dir.join(name), rights).unwrap();
    };
    let told = path("told");
    write("site", "echo export WHO=site; echo export SITE=$SLURM_STEP_ID$SLURM_PROCID");
    write("own", "echo export WHO=own after $WHO");
    write("site-after", &format!("echo site $WHO >> {told}"));
    write("own-after", &format!("echo own $WHO >> {told}"));
    let config = format!("TaskProlog = \"{}\"\nTaskEpilog = \"{}\"\n", path("site"), path("site-after"));
    std::fs::write(c.dir.join("c.toml"), config).unwrap();
    c.ok(&["up", "--config", &path("c.toml")]);
    let shown = c.ok(&["scontrol", "show", "config"]);
    assert!(shown.contains(&format!("TaskProlog              = {}\n", path("site"))), "{shown}");
    let (prolog, epilog) = (format!("--task-prolog={}", path("own")), format!("--task-epilog={}", path("own-after")));
    assert_eq!(c.ok(&["srun", &prolog, &epilog, "sh", "-c", "echo $WHO $SITE"]), "own after site 00");
    let read = || std::fs::read_to_string(&told).unwrap_or_default();
    assert_eq!(read(), "own\nsite\n");
    // A batch script is a task, too; its environment is that of its steps.
    let script = format!("echo $WHO; {} srun sh -c 'echo $WHO $SITE'", env!("CARGO_BIN_EXE_squall"));
    c.ok(&["sbatch", "--wait", "-o", &path("out"), "--wrap", &script]);
    assert_eq!(std::fs::read_to_string(path("out")).unwrap(), "site\nsite 00\n");
    assert_eq!(read(), "own\nsite\nsite site\nsite\n");
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}: not within 30 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_kept_cluster_gets_killed_daemons_back_until_down() {
    let c = Cluster::new("life", "kept");
    assert!(c.ok(&["up", "--keep", "--nodes", "1"]).contains("started again, until `squall down`"));
    let job = c.submit();
    for daemon in ["controller", "node-n1"] {
        let pid = c.pid_of(daemon);
        c.kill(daemon);
        until(daemon, || c.pid_of(daemon) != pid);
    }
    until("an answer", || c.squall(&["squeue"]).status.success());
    assert_eq!(c.queue(), [job]);
    let log = std::fs::read_to_string(c.state().join("log/supervisor.log")).unwrap();
    assert!(log.contains("daemon=\"the controller\"") && log.contains("daemon=\"node n1\""), "{log}");
    let supervisor = c.pid_of("supervisor");
    c.ok(&["up", "--keep"]);
    assert_eq!(c.pid_of("supervisor"), supervisor, "one is enough");
    assert!(c.ok(&["down"]).contains("is down"));
    assert!(!Path::new(&format!("/proc/{supervisor}")).exists() || is_zombie(&supervisor));
    assert!(std::fs::read_dir(c.state().join("run")).unwrap().flatten().all(|file| {
        let name = file.file_name().into_string().unwrap();
        Path::new(&name).extension().is_none_or(|extension| extension != "pid")
    }));
}

#[test]
fn daemons_tell_systemd_that_they_are_ready_run_and_end() {
    let c = Cluster::new("life", "notify");
    c.ok(&["up"]);
    c.ok(&["down"]);
    let path = c.dir.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let heard = || {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).trim().to_owned()
    };
    for daemon in ["controller", "node"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_squall"))
            .args([daemon, "--state"])
            .arg(c.state())
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "300000")
            .env_remove("WATCHDOG_PID")
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        assert_eq!([heard(), heard(), heard()], ["READY=1", "WATCHDOG=1", "WATCHDOG=1"], "{daemon}");
        let id = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        while heard() != "STOPPING=1" {}
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn the_doctor_names_what_is_wrong_and_the_remedy() {
    let c = Cluster::new("life", "doctor");
    c.ok(&["up"]);
    let report = c.ok(&["doctor"]);
    for line in ["ok   config ", "ok   daemons   the controller runs as process ", "ok   answers ", "ok   versions "] {
        assert!(report.contains(line), "{line}: {report}");
    }
    std::fs::create_dir_all(c.state().join("keys")).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(c.state().join("keys"), open).unwrap();
    let config = c.state().join("squall.toml");
    let good = std::fs::read(&config).unwrap();
    std::fs::write(&config, "nodees = 1\n").unwrap();
    let sick = c.squall(&["doctor", "--json"]);
    assert_eq!(sick.status.code(), Some(1));
    let found: Vec<serde_json::Value> = serde_json::from_slice(&sick.stdout).unwrap();
    let failed: Vec<&str> =
        found.iter().filter(|f| f["result"] == "FAIL").filter_map(|f| f["check"].as_str()).collect();
    assert_eq!(failed, ["config", "keys"], "{found:#?}");
    assert!(found.iter().all(|f| f["result"] == "ok" || !f["remedy"].as_str().unwrap().is_empty()), "{found:#?}");
    std::fs::write(&config, good).unwrap();
}

/// Regression test of fault P9 in faults.md.
#[test]
fn p9_a_stopped_relay_takes_no_other_node_down() {
    let c = Cluster::new("life", "relay");
    std::fs::create_dir_all(&c.dir).unwrap();
    let config = c.dir.join("squall.toml");
    let nodes = "tree_width = 2\n[[nodes]]\nname = \"n[1-4]\"\ncpus = 1\nmemory_mb = 100\nforce = true\n";
    std::fs::write(&config, nodes).unwrap();
    c.ok(&["up", "--config", config.to_str().unwrap()]);
    let states = || c.ok(&["sinfo", "-hN", "-o", "%N %t"]);
    let others = "n2 idle\nn3 idle\nn4 idle";
    assert_eq!(states(), format!("n1 idle\n{others}"));
    let log = c.state().join("log/node-n2.log");
    assert!(std::fs::read_to_string(log).unwrap().contains("attached to n1"), "n1 is a relay");
    c.signal("node-n1", "-STOP");
    let begin = Instant::now();
    // In this time a node that does not answer misses two heartbeats of ten seconds, wherever between two it falls silent.
    while begin.elapsed() < Duration::from_secs(30) {
        let seen = states();
        assert_eq!(seen.split_inclusive('\n').skip(1).collect::<String>(), others);
        std::thread::sleep(Duration::from_millis(250));
    }
    assert_eq!(states(), format!("n1 idle*\n{others}"), "the stopped one alone");
    assert_eq!(c.ok(&["srun", "-N3", "-w", "n[2-4]", "-l", "true"]), "");
    c.signal("node-n1", "-CONT");
    let patience = Instant::now() + Duration::from_secs(20);
    while states() != format!("n1 idle\n{others}") {
        assert!(Instant::now() < patience, "{}", states());
        std::thread::sleep(Duration::from_millis(100));
    }
}
