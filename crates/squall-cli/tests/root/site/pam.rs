//! Logins on nodes, by `pam_squall` and `pamtester`.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::{Cluster, has, text};

/// A PAM service of the test's own, removed at the end.
struct Service(String);

impl Service {
    /// Makes a service that asks the node n1, with these options. After that it runs a program as the login.
    fn new(cluster: &Cluster, name: &str, options: &str) -> Self {
        let service = Self(format!("squall-test-{}-{name}", std::process::id()));
        // Cargo puts the library of a crate that tests depend on beside the tests.
        let module = std::env::current_exe().unwrap().with_file_name("libpam_squall.so");
        let (module, state, login) = (module.display(), cluster.path("state"), cluster.path("login"));
        let lines = [
            format!("account requisite {module} state={state} nodename=n1 {options}"),
            format!("account required pam_exec.so quiet {login}"),
            "account required pam_permit.so".to_owned(),
        ];
        fs::write(service.path(), lines.join("\n") + "\n").unwrap();
        service
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("/etc/pam.d").join(&self.0)
    }

    fn login(&self, user: &str) -> Command {
        let mut command = Command::new("pamtester");
        command.args([&self.0, user, "acct_mgmt"]).stdin(Stdio::null());
        command
    }

    /// Logs a user in; returns whether that is allowed, and what was said.
    fn allows(&self, user: &str) -> (bool, String) {
        let out = self.login(user).output().unwrap();
        (out.status.success(), text(&out))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(fs::remove_file(self.path()));
    }
}

/// Makes the program that a login runs: it says in which groups it is, and stays if `stay` is there.
fn login_program(cluster: &Cluster) {
    let (login, groups, stay) = (cluster.path("login"), cluster.path("groups"), cluster.path("stay"));
    let script = format!("#!/bin/sh\ncat /proc/self/cgroup > {groups}\n[ ! -e {stay} ] || exec sleep 300\n");
    fs::write(&login, script).unwrap();
    fs::set_permissions(&login, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

/// A state folder of a user, with a daemon that says of everybody that they have a job.
fn answers_everybody(cluster: &Cluster) -> String {
    let state = cluster.shared("forged");
    fs::create_dir_all(format!("{state}/run")).unwrap();
    let listener = UnixListener::bind(format!("{state}/run/login-n1.sock")).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            drop(stream.write_all(b"adopted 1\n"));
        }
    });
    state
}

/// Whether a process has ended.
fn has_ended(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_some()
}

#[test]
fn logins_are_refused_without_a_job_and_become_a_part_of_one() {
    if !rustix::process::getuid().is_root() || !has("pamtester") || !fs::exists("/etc/pam.d").unwrap() {
        eprintln!("skipped: only root can make a PAM service, where there is PAM");
        return;
    }
    let cluster = Cluster::start("pam", "");
    login_program(&cluster);
    let usual = Service::new(&cluster, "usual", "");
    let (allowed, said) = usual.allows("daemon");
    assert!(!allowed && said.contains("Access denied by pam_squall: you have no active jobs on this node"), "{said}");
    let (allowed, said) = usual.allows("root");
    assert!(allowed, "{said}");
    assert!(Service::new(&cluster, "listed", "users=bin,daemon").allows("daemon").0);
    assert!(Service::new(&cluster, "ignored", "action_no_jobs=ignore").allows("daemon").0);
    // A job on the other node is none here.
    let submit = |node: &str| {
        cluster.users_ok(&["sbatch", "--parsable", "-w", node, "-n1", "-o", "/dev/null", "--wrap", "sleep 300"])
    };
    let away = submit("n2");
    cluster.until("the job runs", || cluster.ok(&["squeue", "-h", "-t", "R", "-o", "%i"]) == away);
    assert!(!usual.allows("daemon").0);
    let job = submit("n1");
    cluster.until("the job runs", || cluster.ok(&["squeue", "-h", "-t", "R", "-j", &job, "-o", "%i"]) == job);
    cluster.until("the login is let in", || usual.allows("daemon").0);
    let groups = fs::read_to_string(cluster.path("groups")).unwrap();
    let is_in = |job: &str| fs::read_to_string(cluster.path("groups")).unwrap().contains(&format!("/job_{job}.1/"));
    assert!(is_in(&job), "{groups}");
    assert!(!usual.allows("bin").0, "another user");
    // Whoever logs in by a program such as `su` may have set variables.
    let forged = usual.login("bin").env("SQUALL_STATE", answers_everybody(&cluster)).output().unwrap();
    assert!(!forged.status.success(), "{}", text(&forged));
    let second = submit("n1");
    cluster.until("the job runs", || cluster.ok(&["squeue", "-h", "-t", "R", "-j", &second, "-o", "%i"]) == second);
    let strict = Service::new(&cluster, "strict", "action_unknown=deny");
    cluster.until("two jobs are too many", || !strict.allows("daemon").0);
    fs::write(cluster.path("stay"), "").unwrap();
    fs::remove_file(cluster.path("groups")).unwrap();
    let mut login = usual.login("daemon").stdout(Stdio::null()).spawn().unwrap();
    cluster.until("the login is there", || fs::exists(cluster.path("groups")).unwrap() && is_in(&second));
    assert!(!has_ended(&mut login));
    cluster.ok(&["scancel", &second]);
    cluster.until("the login ends with its job", || has_ended(&mut login));
    cluster.ok(&["scancel", &job, &away]);
    cluster.until("the jobs have ended", || cluster.ok(&["squeue", "-h"]).is_empty());
    assert!(!usual.allows("daemon").0);
    // Without its node daemon, a node's logins are as the option says.
    cluster.ok(&["down"]);
    fs::remove_file(cluster.path("stay")).unwrap();
    assert!(usual.allows("daemon").0);
    assert!(!Service::new(&cluster, "closed", "action_generic_failure=deny").allows("daemon").0);
}
