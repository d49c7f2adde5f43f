//! The same in network namespaces that the test makes: two hosts with a link between them that can be cut one way.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::machines::site::{self, Site};

/// Longer than the heartbeats after which a hop counts as dead.
const PARTITION: Duration = Duration::from_secs(33);

/// Two namespaces with a link between them; removed at the end.
struct Link {
    names: [String; 2],
}

impl Link {
    /// None: that can't be done here.
    fn new() -> Option<Self> {
        let names = ["a", "b"].map(|side| format!("sq{}{side}", std::process::id()));
        let link = Self { names };
        let [a, b] = &link.names;
        let made = ip(&["netns", "add", a])
            && ip(&["netns", "add", b])
            && ip(&["-n", a, "link", "add", "v0", "type", "veth", "peer", "name", "v0", "netns", b])
            && Command::new("nsenter").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
        if !made {
            return None;
        }
        for (name, address) in [(a, "10.93.0.1/24"), (b, "10.93.0.2/24")] {
            let up = ip(&["-n", name, "link", "set", "lo", "up"])
                && ip(&["-n", name, "addr", "add", address, "dev", "v0"])
                && ip(&["-n", name, "link", "set", "v0", "up"]);
            if !up {
                return None;
            }
        }
        Some(link)
    }

    /// What b sends goes astray; what a sends arrives.
    fn cut(&self) {
        let astray = ["neigh", "replace", "10.93.0.1", "lladdr", "02:00:00:00:00:01", "dev", "v0", "nud", "permanent"];
        assert!(ip(&[&["-n", &self.names[1]], &astray[..]].concat()));
    }

    fn heal(&self) {
        assert!(ip(&["-n", &self.names[1], "neigh", "del", "10.93.0.1", "dev", "v0"]));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&["netns", "del", name]);
        }
    }
}

pub(crate) fn ip(args: &[&str]) -> bool {
    Command::new("ip").args(args).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// What goes between srun and its tasks goes over the link, both ways and all of it.
fn steps(site: &Site) {
    assert_eq!(site.ok(&["srun", "-w", "n2", "sh", "-c", "echo $SLURMD_NODENAME; exit 0"]), "n2");
    let both = site.ok(&["srun", "-N2", "-l", "sh", "-c", "echo $SLURMD_NODENAME"]);
    let mut lines: Vec<&str> = both.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0: n1", "1: n2"]);
    let data: Vec<u8> = (0..5_000_000_u32).map(|n| (n / 3) as u8).collect();
    std::fs::write(site.path("data"), &data).unwrap();
    let (from, to) = (site.path("data"), site.path("echo"));
    site.ok(&["srun", "-w", "n2", "-i", &from, "-o", &to, "cat"]);
    assert!(std::fs::read(&to).unwrap() == data);
    let done = site.command("head", &["srun", "-w", "n2", "sh", "-c", "exit 7"]).output().unwrap();
    assert_eq!(done.status.code(), Some(7), "{done:?}");
}

/// The ranks of an MPI program find each other over the link, where a library is installed. `run` runs a command.
pub(crate) fn mpi(site: &Site, run: impl Fn(&[&str]) -> String) {
    const HELLO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/mpi/hello.c");
    for compiler in ["mpicc.openmpi", "mpicc.mpich"] {
        let program = site.path(compiler);
        let Ok(made) = Command::new(compiler).args([HELLO, "-o", &program]).status() else {
            eprintln!("skipped: {compiler} is not installed");
            continue;
        };
        assert!(made.success());
        let said = run(&["srun", "-N2", "--ntasks-per-node=2", &program]);
        let mut lines: Vec<&str> = said.lines().collect();
        lines.sort_unstable();
        let expected = |rank: u32| format!("{rank} of 4 on n{} shared 2 sum 6 from {}", rank / 2 + 1, (rank + 3) % 4);
        assert_eq!(lines, [0, 1, 2, 3].map(expected), "{compiler}");
    }
}

/// A user whom every system has, in a group of its own.
pub(crate) const NOBODY: (u32, u32) = (65534, 65534);

/// Commands in a job reach the controller through the job's node; elsewhere on that machine nobody is believed.
fn commands_of_a_job(site: &Site) {
    let folder = site.path("of-nobody");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let asked = |ids: (u32, u32), args: &[&str]| site.command_as("n2", ids, args).output().unwrap();
    let denied = asked(NOBODY, &["squeue"]);
    assert!(!denied.status.success(), "{denied:?}");
    let squall = env!("CARGO_BIN_EXE_squall");
    let (out, nested, go) =
        (site.path("of-nobody/job-out"), site.path("of-nobody/nested-out"), site.path("of-nobody/go"));
    let script = format!(
        "echo $SQUALL_STATE; {squall} squeue -h -o %N -j $SLURM_JOB_ID; {squall} srun echo step; \
         {squall} sbatch --parsable -w n1 -o {nested} --wrap 'echo $SLURMD_NODENAME; id -g'; \
         while [ ! -e {go} ]; do sleep 0.05; done"
    );
    let args = ["sbatch", "--parsable", "-w", "n2", "-D", &folder, "-o", &out, "--wrap", &script];
    let submitted = site.command_as("head", NOBODY, &args).output().unwrap();
    assert!(submitted.status.success(), "{submitted:?}");
    let job = String::from_utf8_lossy(&submitted.stdout).trim().to_owned();
    site.until("the job has said all", || std::fs::read_to_string(&out).is_ok_and(|said| said.lines().count() == 4));
    let said = site.read("of-nobody/job-out");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..3], [site.path("n2").as_str(), "n2", "step"], "{said}");
    assert_eq!(site.end_of(lines[3]), "COMPLETED|0:0");
    assert_eq!(site.read("of-nobody/nested-out"), "n1\n65534\n");
    other_jobs_of_the_user(site, asked);
    c2_nobody_else_is_vouched_for(site, asked);
    std::fs::write(&go, "").unwrap();
    assert_eq!(site.end_of(&job), "COMPLETED|0:0", "{said}");
    assert!(!asked(NOBODY, &["squeue"]).status.success());
}

/// A node speaks for a user within the jobs that it has: whoever controls it gets at no other job, and at no token.
fn other_jobs_of_the_user(site: &Site, asked: impl Fn((u32, u32), &[&str]) -> std::process::Output + Copy) {
    let submit = ["sbatch", "--parsable", "--hold", "-w", "n1", "-D", "/", "-o", "/dev/null", "--wrap", "true"];
    let submitted = site.command_as("head", NOBODY, &submit).output().unwrap();
    assert!(submitted.status.success(), "{submitted:?}");
    let other = String::from_utf8_lossy(&submitted.stdout).trim().to_owned();
    for args in [&["scancel", &other][..], &["scontrol", "release", &other], &["scontrol", "token"]] {
        let refused = asked(NOBODY, args);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && (said.contains("n2") || said.contains("denied")), "{args:?}: {refused:?}");
    }
    a6_jobs_that_a_node_submits_reach_no_more_on_the_controllers_machine(site, asked, &other);
    assert_eq!(site.ok(&["squeue", "-h", "-o", "%T", "-j", &other]), "PENDING");
    site.ok(&["scancel", &other]);
}

/// attack-trial.md A6: root of n2 submits to the controller's machine, where the kernel tells the controller who asks.
fn a6_jobs_that_a_node_submits_reach_no_more_on_the_controllers_machine(
    site: &Site,
    asked: impl Fn((u32, u32), &[&str]) -> std::process::Output,
    other: &str,
) {
    let (squall, out) = (env!("CARGO_BIN_EXE_squall"), site.path("of-nobody/a6-out"));
    let script = format!(
        "grep -c /squall/.*/job_ /proc/self/cgroup; for it in 'scancel {other}' 'scontrol release {other}' 'scontrol token' \
         'scontrol write batch_script {other} -'; do {squall} $it && echo done: $it; done; \
         {squall} squeue -h -o 'own %i' -j $SLURM_JOB_ID"
    );
    let submitted = asked(NOBODY, &["sbatch", "--parsable", "-w", "n1", "-D", "/", "-o", &out, "--wrap", &script]);
    assert!(submitted.status.success(), "{submitted:?}");
    let job = String::from_utf8_lossy(&submitted.stdout).trim().to_owned();
    site.end_of(&job);
    let said = site.read("of-nobody/a6-out");
    if said.starts_with("0\n") {
        eprintln!("skipped: jobs have no cgroups here, which tell in which job a command runs");
        return;
    }
    assert!(!said.contains("done: ") && said.contains("from a job on n2 only jobs of that node"), "{said}");
    assert!(said.contains("n2 is a node: ask for tokens on a login host"), "{said}");
    assert!(said.ends_with(&format!("own {job}\n")), "{said}");
}

/// faults.md C2: neither another group of a user who has a job on the node, nor root, who has one there, too.
fn c2_nobody_else_is_vouched_for(site: &Site, asked: impl Fn((u32, u32), &[&str]) -> std::process::Output) {
    let submit = ["sbatch", "-w", "n1", "-o", "/dev/null", "--wrap", "id"];
    assert!(asked(NOBODY, &["squeue"]).status.success());
    for gid in [0, 42] {
        let forged = asked((NOBODY.0, gid), &submit);
        assert!(!forged.status.success(), "group {gid}: {forged:?}");
    }
    let of_root = site.ok(&["sbatch", "--parsable", "-w", "n2", "-o", "/dev/null", "--wrap", "sleep 60"]);
    site.until("root's job runs", || site.ok(&["squeue", "-h", "-o", "%T", "-j", &of_root]) == "RUNNING");
    let forged = asked((0, 0), &submit);
    assert!(!forged.status.success(), "{forged:?}");
    site.ok(&["scancel", &of_root]);
    site.end_of(&of_root);
    let log = std::fs::read_to_string(site.path("head/log/controller.log")).unwrap();
    assert!(log.lines().any(|line| line.contains("a node vouches for its user") && line.contains(" node=n2")), "{log}");
}

/// faults.md A6: what tasks wrote and how they ended while the link was cut comes to srun when it has healed.
fn a6_output_waits_for_the_link(srun: Child) {
    let done = srun.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && err.is_empty(), "{:?}: {err}", done.status);
    let lines: Vec<&str> = out.lines().collect();
    let (last, counted) = lines.split_last().unwrap();
    assert!(*last == "end" && counted.len() > 10, "{out}");
    assert!(counted.iter().enumerate().all(|(at, line)| *line == at.to_string()), "{out}");
}

#[test]
fn two_hosts_and_a_link_that_fails_one_way_and_heals() {
    let Some(link) = Link::new() else {
        eprintln!("skipped: network namespaces can't be made here (root and `ip netns` are needed)");
        return;
    };
    let [a, b] = link.names.clone();
    let namespaces = HashMap::from([("head".to_owned(), a), ("n2".to_owned(), b)]);
    let mut site = Site::start_at("hosts", &site::multicast(), "n2", "10.93.0.1:6817", namespaces);
    site.join("n2");
    site.until_up(&["n1", "n2"]);
    steps(&site);
    commands_of_a_job(&site);
    mpi(&site, |args| site.ok(args));
    site.bring_by_multicast(2);
    let (go, ran) = (site.path("go"), site.path("ran"));
    let script = format!("echo $SLURMD_NODENAME >> {ran}; while [ ! -e {go} ]; do sleep 0.05; done");
    let job = site.ok(&["sbatch", "--parsable", "-w", "n2", "-o", "/dev/null", "--wrap", &script]);
    site.until("the job runs", || std::path::Path::new(&ran).exists());
    let stop = site.path("stop");
    let begun = site.path("begun");
    let talk = format!("touch {begun}; i=0; while [ ! -e {stop} ]; do echo $i; i=$((i+1)); sleep 0.1; done; echo end");
    let mut srun = site.command("head", &["srun", "-w", "n2", "sh", "-c", &talk]);
    let srun = srun.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A listed step may not have its connection to srun yet; one with a task that runs has.
    site.until("srun's task runs", || std::path::Path::new(&begun).exists());
    link.cut();
    // It ends while nobody can hear of it.
    std::fs::write(&go, "").unwrap();
    std::thread::sleep(PARTITION);
    assert_eq!(site.ok(&["squeue", "-h", "-o", "%T", "-j", &job]), "RUNNING");
    std::fs::write(&stop, "").unwrap();
    link.heal();
    assert_eq!(site.end_of(&job), "COMPLETED|0:0");
    assert_eq!(site.read("ran"), "n2\n", "it ran once");
    a6_output_waits_for_the_link(srun);
    site.until_up(&["n2"]);
    site.stop();
}
