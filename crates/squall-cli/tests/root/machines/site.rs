//! Machines under test: each a state folder with daemons of its own, perhaps in a network namespace of its own.

use std::collections::HashMap;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::traces;

/// Longest wait for anything that a test waits for.
const PATIENCE: Duration = Duration::from_secs(90);

/// Bytes of a file that is brought: several windows.
const FILE_BYTES: u64 = 9_000_000;

/// Configuration of a multicast group of its own.
pub(crate) fn multicast() -> String {
    let id = std::process::id();
    format!("multicast = \"239.255.{}.{}:{}\"\n", id / 251 % 251, id % 251, 20_000 + id % 40_000)
}

/// A controller's machine and others that have joined.
pub(crate) struct Site {
    folder: PathBuf,
    /// Where the controller listens.
    pub(crate) controller: String,
    /// Node daemons of other machines.
    nodes: HashMap<String, Child>,
    /// The network namespace of a machine; `head` is the controller's.
    pub(crate) namespaces: HashMap<String, String>,
}

impl Site {
    /// kill -9 of the controller; the next one goes on from its journal.
    pub(crate) fn controller_dies(&self) {
        let text = self.read("head/run/controller.pid");
        let pid = text.split_whitespace().next().unwrap();
        assert!(Command::new("kill").args(["-9", pid]).status().unwrap().success());
        self.until("the controller is dead", || !fs::exists(format!("/proc/{pid}")).unwrap());
        self.ok(&["up"]);
    }

    /// Starts a controller with node n1 beside it, which expects these nodes on other machines.
    pub(crate) fn start(test: &str, config: &str, remote: &str) -> Self {
        // Free now; taken by somebody else in between, the test fails and says so.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self::start_at(test, config, remote, &format!("127.0.0.1:{port}"), HashMap::new())
    }

    /// The same in network namespaces.
    pub(crate) fn start_at(
        test: &str,
        config: &str,
        remote: &str,
        controller: &str,
        namespaces: HashMap<String, String>,
    ) -> Self {
        let folder = std::env::temp_dir().join(format!("squall-machines-{}-{test}", std::process::id()));
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder).unwrap();
        let site = Self { folder, controller: controller.to_owned(), nodes: HashMap::new(), namespaces };
        let text = format!(
            "{config}kill_wait_s = 2\n[[nodes]]\nname = \"n1\"\ncpus = 4\nforce = true\n[[nodes]]\nname = \"{remote}\"\n\
             remote = true\ncpus = 4\nforce = true\n"
        );
        fs::write(site.path("squall.toml"), text).unwrap();
        site.ok(&["up", "--config", &site.path("squall.toml"), "--listen", controller]);
        site
    }

    /// Brings a program to so many machines; most of it leaves the controller once only.
    pub(crate) fn bring_by_multicast(&self, nodes: u64) {
        let (program, folder) = (self.path("program"), self.path("brought/"));
        fs::create_dir(&folder).unwrap();
        let text = format!("#!/bin/sh\necho ran\nexit\n{}", "#".repeat(FILE_BYTES as usize));
        fs::write(&program, &text).unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let said = self.ok(&["srun", &format!("-N{nodes}"), &format!("--bcast={folder}"), &program]);
        assert_eq!(said.lines().filter(|line| *line == "ran").count() as u64, nodes, "{said}");
        for file in fs::read_dir(&folder).unwrap() {
            assert!(fs::read(file.unwrap().path()).unwrap() == text.as_bytes());
        }
        let said = self.ok(&["sdiag"]);
        let bytes = said.lines().find_map(|line| line.trim().strip_prefix("Multicast bytes: ")?.parse::<u64>().ok());
        // What is lost is sent again; where nobody hears only a window is sent in vain.
        assert!(bytes.is_some_and(|bytes| bytes >= FILE_BYTES), "{said}");
    }

    /// A path in the test's folder.
    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap()
    }

    /// A command of squall on a machine.
    pub(crate) fn command(&self, machine: &str, args: &[&str]) -> Command {
        let squall = env!("CARGO_BIN_EXE_squall");
        let mut command = match self.namespaces.get(machine) {
            Some(namespace) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/run/netns/{namespace}")).arg(squall);
                command
            }
            None => Command::new(squall),
        };
        command.args(args).env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("SQUALL_STATE", self.folder.join(machine)).current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    /// The same as a user and group without other groups, which only root can do.
    pub(crate) fn command_as(&self, machine: &str, (uid, gid): (u32, u32), args: &[&str]) -> Command {
        let plain = self.command(machine, args);
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &uid.to_string(), "--regid", &gid.to_string(), "--clear-groups"]);
        if let Some(namespace) = self.namespaces.get(machine) {
            // First the network, which only root may enter.
            command = Command::new("nsenter");
            command.arg(format!("--net=/run/netns/{namespace}")).arg("setpriv");
            command.args(["--reuid", &uid.to_string(), "--regid", &gid.to_string(), "--clear-groups"]);
        }
        command.arg(env!("CARGO_BIN_EXE_squall")).args(args).env_clear().stdin(Stdio::null());
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(&self.folder);
        command
    }

    /// A command on the controller's machine that must succeed; what it said.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let done = self.command("head", args).output().unwrap();
        assert!(done.status.success(), "{args:?}: {}\n{}", text(&done), self.logs());
        String::from_utf8_lossy(&done.stdout).trim_end().to_owned()
    }

    /// One that must not.
    pub(crate) fn fails(&self, args: &[&str]) -> String {
        let done = self.command("head", args).output().unwrap();
        assert!(!done.status.success(), "{args:?}: {}", text(&done));
        text(&done)
    }

    /// The arguments that `squall token` prints for a node.
    pub(crate) fn invitation(&self, node: &str) -> Vec<String> {
        let line = self.ok(&["token", node]);
        line.split_whitespace().skip(1).map(str::to_owned).collect()
    }

    /// Starts a machine that joins.
    pub(crate) fn join(&mut self, node: &str) {
        let args = self.invitation(node);
        self.spawn(node, &args.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Starts the daemon of a machine that has joined.
    pub(crate) fn resume(&mut self, node: &str) {
        self.spawn(node, &["node", node]);
    }

    pub(crate) fn spawn(&mut self, node: &str, args: &[&str]) {
        let log = fs::File::options().create(true).append(true).open(self.folder.join(format!("{node}.log"))).unwrap();
        let child = self.command(node, args).stderr(log).spawn().unwrap();
        self.nodes.insert(node.to_owned(), child);
    }

    /// What a daemon says that can't go on.
    pub(crate) fn join_again(&self, machine: &str) -> String {
        let node = machine.split('-').next().unwrap_or(machine);
        text(&self.command(machine, &["node", node]).output().unwrap())
    }

    /// What a command on a machine says, whether it succeeds or not.
    pub(crate) fn said_by(&self, machine: &str, args: &[String]) -> String {
        text(&self.command(machine, &args.iter().map(String::as_str).collect::<Vec<_>>()).output().unwrap())
    }

    /// Ends all processes of a machine, as the loss of its power does.
    pub(crate) fn end_processes_of(&self, machine: &str) {
        self.until(&format!("{machine} is dead"), || {
            let left = traces::processes(&self.folder.join(machine));
            for (pid, _) in &left {
                drop(Command::new("kill").args(["-9", &pid.to_string()]).status());
            }
            left.is_empty()
        });
    }

    pub(crate) fn kill(&mut self, node: &str) {
        let mut child = self.nodes.remove(node).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Waits until a machine's daemon has ended by itself.
    pub(crate) fn until_ended(&mut self, node: &str) {
        let mut child = self.nodes.remove(node).unwrap();
        self.until(&format!("{node} has ended"), || child.try_wait().unwrap().is_some());
    }

    pub(crate) fn log(&self, node: &str) -> String {
        fs::read_to_string(self.folder.join(format!("{node}.log"))).unwrap_or_default()
    }

    /// Waits until these nodes can be worked with.
    pub(crate) fn until_up(&self, names: &[&str]) {
        for name in names {
            self.until(&format!("{name} is up"), || {
                let said = self.ok(&["scontrol", "show", "node", name]);
                said.contains("Version=") && said.contains("State=IDLE ")
            });
        }
    }

    /// Waits for the end of a job; its state and exit code.
    pub(crate) fn end_of(&self, job: &str) -> String {
        self.until(&format!("job {job} has ended"), || {
            let said = self.ok(&["sacct", "-n", "-X", "-P", "-o", "State,End", "-j", job]);
            // A job that goes back to the queue has an end as well, of its last attempt.
            !said.is_empty() && said.lines().all(|l| !l.ends_with("Unknown") && !l.starts_with("REQUEUED"))
        });
        self.ok(&["sacct", "-n", "-X", "-P", "-o", "State,ExitCode", "-j", job])
    }

    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < end, "in vain: {what}\n{}\n{}", self.ok(&["squeue"]), self.logs());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends everything; nothing may be left.
    pub(crate) fn stop(&mut self) {
        self.ok(&["down"]);
        for mut child in std::mem::take(&mut self.nodes).into_values() {
            drop(Command::new("kill").arg(child.id().to_string()).status());
            child.wait().unwrap();
        }
        let left = traces::processes(&self.folder);
        assert!(left.is_empty(), "left over: {left:#?}");
        fs::remove_dir_all(&self.folder).unwrap();
    }

    fn logs(&self) -> String {
        let of_nodes = self.nodes.keys().map(|node| format!("--- {node}\n{}", self.log(node)));
        of_nodes.fold(traces::log_ends(&self.folder.join("head")), |all, log| all + &log)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for child in self.nodes.values_mut() {
            drop(child.kill());
            drop(child.wait());
        }
        if self.folder.exists() {
            drop(self.command("head", &["down"]).output());
        }
    }
}

fn text(done: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr))
}
