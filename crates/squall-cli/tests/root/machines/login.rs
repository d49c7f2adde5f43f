//! A login host in a network namespace of its own: commands of its users work there as on the controller's machine.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use crate::machines::namespaces::{NOBODY, ip, mpi};
use crate::machines::site::Site;

/// Two users whom every system has.
const ADA: (u32, u32) = NOBODY;
const BOB: (u32, u32) = (1, 1);
const ROOT: (u32, u32) = (0, 0);

/// Namespaces with a link between each two; removed at the end.
struct Mesh {
    names: Vec<String>,
}

impl Mesh {
    /// Makes namespaces with the addresses 10.94.0.1, 10.94.0.2 and so on. None: that can't be done here.
    fn new(count: usize) -> Option<Self> {
        let names = (0..count).map(|at| format!("sq{}m{at}", std::process::id())).collect();
        let mesh = Self { names };
        let made =
            mesh.names.iter().all(|name| ip(&["netns", "add", name]) && ip(&["-n", name, "link", "set", "lo", "up"]));
        let pairs = || (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
        (made && pairs().all(|(a, b)| mesh.link(a, b))).then_some(mesh)
    }

    fn link(&self, a: usize, b: usize) -> bool {
        let device = |to: usize| format!("to{to}");
        let address = |of: usize| format!("10.94.0.{}", of + 1);
        let up = |here: usize, there: usize| {
            let (name, device) = (&self.names[here], device(there));
            ip(&["-n", name, "addr", "add", &address(here), "peer", &address(there), "dev", &device])
                && ip(&["-n", name, "link", "set", &device, "up"])
        };
        let (near, far, behind) = (device(b), device(a), &self.names[b]);
        ip(&["-n", &self.names[a], "link", "add", &near, "type", "veth", "peer", "name", &far, "netns", behind])
            && up(a, b)
            && up(b, a)
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&["netns", "del", name]);
        }
    }
}

/// Runs a command of a user on the login host.
fn run(site: &Site, user: (u32, u32), args: &[&str]) -> Output {
    site.command_as("login", user, args).output().unwrap()
}

/// One that must succeed; what it said.
fn ok(site: &Site, user: (u32, u32), args: &[&str]) -> String {
    let done = run(site, user, args);
    assert!(done.status.success(), "{args:?}: {done:?}\n{}", site.log("login"));
    String::from_utf8_lossy(&done.stdout).trim_end().to_owned()
}

/// One that must not; what it said.
fn fails(site: &Site, user: (u32, u32), args: &[&str]) -> String {
    let done = run(site, user, args);
    assert!(!done.status.success(), "{args:?}: {done:?}");
    String::from_utf8_lossy(&done.stderr).into_owned()
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn users_commands_work_on_a_login_host_as_on_the_head() {
    let Some(mesh) = Mesh::new(3) else {
        eprintln!("skipped: network namespaces can't be made here (root and `ip netns` are needed)");
        return;
    };
    let names = ["head", "n2", "login"].map(str::to_owned);
    let namespaces: HashMap<_, _> = names.into_iter().zip(mesh.names.clone()).collect();
    let mut site = Site::start_at("login", "min_uid = 1\n", "n2", "10.94.0.1:6817", namespaces);
    std::fs::create_dir(site.path("work")).unwrap();
    std::fs::set_permissions(site.path("work"), PermissionsExt::from_mode(0o777)).unwrap();
    site.join("n2");
    join(&mut site);
    site.until_up(&["n1", "n2"]);
    demo(&site);
    jobs(&site);
    steps(&site);
    allocations(&site);
    attached(&site);
    mpi(&site, |args| ok(&site, ADA, args));
    operators(&site);
    a_node_may_be_a_login_host(&site);
    the_controller_restarts(&site);
    revoked(&mut site);
    site.stop();
}

/// Makes the machine `login` a login host, and waits until commands work there.
fn join(site: &mut Site) {
    let line = site.ok(&["token", "--login", "login"]);
    let args: Vec<&str> = line.split_whitespace().skip(1).collect();
    assert_eq!(args[0], "login", "{line}");
    site.spawn("login", &args);
    site.until("commands work on the login host", || run(site, ADA, &["squeue"]).status.success());
}

/// Batch jobs: submitted, listed, explained, cancelled by their owner, accounted.
fn jobs(site: &Site) {
    let out = site.path("work/out");
    let wrap = "echo $SLURMD_NODENAME $(id -u) $(id -g)";
    let job = ok(site, ADA, &["sbatch", "--parsable", "-w", "n2", "-o", &out, "--wrap", wrap]);
    assert_eq!(site.end_of(&job), "COMPLETED|0:0");
    assert_eq!(site.read("work/out"), format!("n2 {} {}\n", ADA.0, ADA.1));
    let log = site.read("head/log/controller.log");
    assert!(log.lines().any(|line| line.contains("a login host vouches for its user") && line.contains("host=login")));
    assert_eq!(ok(site, ADA, &["sacct", "-n", "-X", "-P", "-o", "State", "-j", &job]), "COMPLETED");
    let held = ok(site, ADA, &["sbatch", "--parsable", "--hold", "-o", "/dev/null", "--wrap", "true"]);
    assert_eq!(ok(site, ADA, &["squeue", "-h", "-o", "%i %u"]), format!("{held} nobody"));
    assert!(ok(site, BOB, &["sinfo", "-h", "-N", "-o", "%N"]).contains("n2"));
    assert!(ok(site, ADA, &["why", &held]).to_lowercase().contains("held"));
    assert!(ok(site, ADA, &["scontrol", "show", "job", &held]).contains("UserId=nobody"));
    assert!(ok(site, ADA, &["scontrol", "ping"]).ends_with("is UP"));
    let denied = fails(site, BOB, &["scancel", &held]);
    assert!(denied.contains("Access/permission denied"), "{denied}");
    ok(site, ADA, &["scancel", &held]);
    assert!(site.end_of(&held).starts_with("CANCELLED"));
}

/// Steps: output, input, exit codes, a terminal.
fn steps(site: &Site) {
    let both = ok(site, ADA, &["srun", "-N2", "-l", "sh", "-c", "echo $SLURMD_NODENAME"]);
    assert_eq!(sorted(&both), ["0: n1", "1: n2"]);
    let data: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 3) as u8).collect();
    std::fs::write(site.path("data"), &data).unwrap();
    let mut srun = site.command_as("login", ADA, &["srun", "-w", "n2", "cat"]);
    let done = srun.stdin(std::fs::File::open(site.path("data")).unwrap()).output().unwrap();
    assert!(done.status.success() && done.stdout == data, "{:?}", done.status);
    assert_eq!(run(site, ADA, &["srun", "-w", "n2", "sh", "-c", "exit 7"]).status.code(), Some(7));
    let terminal =
        ["srun", "--pty", "-w", "n2", "sh", "-c", "test -t 1 && echo a terminal on $SLURMD_NODENAME; exit 3"];
    let done = run(site, ADA, &terminal);
    assert_eq!(done.status.code(), Some(3), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stdout).contains("a terminal on n2"), "{done:?}");
}

/// salloc's command runs on the login host, and srun in it on the nodes.
fn allocations(site: &Site) {
    let squall = env!("CARGO_BIN_EXE_squall");
    let script = format!("echo here; {squall} srun -l sh -c 'echo $SLURMD_NODENAME'; exit 9");
    let done = run(site, ADA, &["salloc", "-N2", "sh", "-c", &script]);
    assert_eq!(done.status.code(), Some(9), "{done:?}");
    assert_eq!(sorted(&String::from_utf8_lossy(&done.stdout)), ["0: n1", "1: n2", "here"]);
}

/// sattach and sbcast reach a running job.
fn attached(site: &Site) {
    let go = site.path("work/go");
    let tick = format!("while [ ! -e {go} ]; do echo tick; sleep 0.05; done");
    let script = format!("{} srun sh -c '{tick}'", env!("CARGO_BIN_EXE_squall"));
    let job = ok(site, ADA, &["sbatch", "--parsable", "-w", "n2", "-o", "/dev/null", "--wrap", &script]);
    let step = format!("{job}.0");
    site.until("the step runs", || ok(site, ADA, &["squeue", "-s", "-h", "-o", "%i"]).lines().any(|line| line == step));
    let mut sattach = site.command_as("login", ADA, &["sattach", &step]);
    let mut sattach = sattach.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(sattach.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "tick\n");
    let (from, to) = (site.path("data"), site.path("work/brought"));
    ok(site, ADA, &["sbcast", "-j", &job, &from, &to]);
    assert!(std::fs::read(&from).unwrap() == std::fs::read(&to).unwrap());
    let denied = fails(site, BOB, &["sattach", &step]);
    assert!(denied.contains("Access/permission denied"), "{denied}");
    std::fs::write(&go, "").unwrap();
    sattach.wait().unwrap();
    assert_eq!(site.end_of(&job), "COMPLETED|0:0");
}

/// Root of the login host has no rights in the cluster, unless the site allows it.
fn operators(site: &Site) {
    let drain = ["scontrol", "update", "nodename=n2", "state=drain", "reason=test"];
    let state = || site.ok(&["sinfo", "-h", "-n", "n2", "-o", "%T"]);
    for user in [ADA, ROOT] {
        let denied = fails(site, user, &drain);
        assert!(denied.contains("ermission denied"), "{denied}");
    }
    let denied = fails(site, ROOT, &["squeue"]);
    assert!(denied.contains("root of login is not trusted"), "{denied}");
    assert_eq!(state(), "idle");
    let said = site.ok(&["token", "--login", "--allow-root", "login"]);
    assert!(said.contains("login has joined already"), "{said}");
    assert!(site.ok(&["token", "--list"]).contains("login  login host, root allowed"));
    ok(site, ROOT, &drain);
    assert_eq!(state(), "drained");
    ok(site, ROOT, &["scontrol", "update", "nodename=n2", "state=resume"]);
    ok(site, ROOT, &["sacctmgr", "-i", "add", "account", "physics"]);
    let job = ok(site, ROOT, &["sbatch", "--parsable", "-w", "n2", "-o", &site.path("work/root"), "--wrap", "id -u"]);
    assert_eq!((site.end_of(&job), site.read("work/root")), ("COMPLETED|0:0".to_owned(), "0\n".to_owned()));
    site.ok(&["token", "--login", "login"]);
    fails(site, ROOT, &["squeue"]);
    ok(site, ADA, &["squeue"]);
}

/// A node is a login host, too, as long as it may be one.
fn a_node_may_be_a_login_host(site: &Site) {
    let asked = || site.command_as("n2", ADA, &["squeue", "-h"]).output().unwrap();
    let denied = String::from_utf8_lossy(&asked().stderr).into_owned();
    assert!(denied.contains("n2 is a node: commands work there in your jobs"), "{denied}");
    site.ok(&["token", "--login", "n2"]);
    let said = asked();
    assert!(said.status.success(), "{said:?}");
    assert!(site.ok(&["token", "--revoke", "--login", "n2"]).contains("no login host any more"));
    assert!(!asked().status.success());
    site.until_up(&["n2"]);
}

/// A program of a user on the login host, in the folder `work`.
fn program(site: &Site, words: &[&str]) -> Command {
    let setpriv = site.command_as("login", ADA, &[]);
    // The same environment and namespace, with another program in the place of squall.
    let squall = env!("CARGO_BIN_EXE_squall");
    let args: Vec<_> = setpriv.get_args().map(ToOwned::to_owned).filter(|arg| arg != squall).collect();
    let mut program = Command::new(setpriv.get_program());
    program.args(args).args(words).current_dir(site.path("work"));
    program.env_clear().envs(setpriv.get_envs().filter_map(|(name, value)| Some((name, value?))));
    program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    program
}

/// All that `make demo` does: batch, srun, array, dependency, MPI, sacct.
fn demo(site: &Site) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/demo");
    let done = program(site, &["bash", script, env!("CARGO_BIN_EXE_squall")]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    assert!(!said.contains("squall up") && !said.contains("squall down"), "{said}");
    for part in ["runs on n[1-2] with 2 tasks\n", "1: task 1 of 2 on n", "square of 7 is 49\nall squares are there\n"] {
        assert!(said.contains(part), "{part}{said}");
    }
    assert_eq!(std::fs::read_dir(site.path("work")).unwrap().count(), 0, "its files are removed");
}

/// Commands wait for a controller that restarts.
fn the_controller_restarts(site: &Site) {
    let stop = site.path("work/stop");
    let squall = env!("CARGO_BIN_EXE_squall");
    let script = format!("n=0; while [ ! -e {stop} ]; do {squall} squeue -h || exit 1; n=$((n+1)); done; echo $n");
    let shell = program(site, &["sh", "-c", &script]).spawn().unwrap();
    site.ok(&["down", "--keep-jobs"]);
    site.ok(&["up"]);
    site.ok(&["squeue"]);
    std::fs::write(&stop, "").unwrap();
    let done = shell.wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let rounds: u32 = String::from_utf8_lossy(&done.stdout).trim().parse().unwrap();
    assert!(rounds > 0);
    site.until_up(&["n1", "n2"]);
    assert_eq!(ok(site, ADA, &["srun", "-w", "n2", "echo", "again"]), "again");
}

/// A host without a key is refused in clear words, also by a daemon that starts later; a new token lets it in again.
fn revoked(site: &mut Site) {
    let refused = |site: &Site| {
        let said = fails(site, ADA, &["squeue"]);
        let clear = "this host's key was revoked: ask the administrator for `squall token --login login`";
        assert!(said.contains(clear), "{said}");
    };
    let mut waiting = site.command_as("login", ADA, &["salloc", "-w", "n2", "--begin=now+1hour", "true"]);
    let mut waiting = waiting.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    site.until("salloc waits", || !site.ok(&["squeue", "-h"]).is_empty());
    assert_eq!(site.ok(&["token", "--revoke", "login"]), "login has no key any more");
    refused(site);
    waiting.wait().unwrap();
    site.kill("login");
    let other =
        String::from_utf8_lossy(&site.command("login", &["node", "login"]).output().unwrap().stderr).into_owned();
    assert!(other.contains("as a login host: use `squall login`"), "{other}");
    site.spawn("login", &["login"]);
    site.until("its daemon has asked", || site.log("login").contains("does not know this machine"));
    site.until("its daemon listens", || site.log("login").matches("login daemon starts").count() == 2);
    refused(site);
    site.kill("login");
    join(site);
    ok(site, ADA, &["srun", "-w", "n2", "true"]);
}
