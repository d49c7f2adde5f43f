//! The site: three heads with a controller and a member of etcd each, nodes, and a login host.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::load::Submitter;
use crate::network::{HEADS, Host, Network};
use crate::traces;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_mins(2);
/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Line of a controller's log as it begins to lead.
const LEADS: &str = "this controller leads term=";

/// The site. Ended and removed when dropped.
pub(crate) struct Cluster {
    folder: PathBuf,
    binary: PathBuf,
    pub(crate) network: Network,
    /// Each host's daemon; none is in it while it is meant to be dead.
    daemons: BTreeMap<Host, Child>,
    /// The login daemon of a head.
    stand_in: Option<Child>,
    /// What was done to the site: for a failure's message.
    done: Vec<String>,
}

impl Cluster {
    /// Starts everything, with one node. None: that can't be done here; why is printed.
    pub(crate) fn start(name: &str) -> Option<Self> {
        Self::with_nodes(name, 1, "")
    }

    /// Starts everything, with so many nodes and with more lines of the configuration.
    pub(crate) fn with_nodes(name: &str, nodes: usize, config: &str) -> Option<Self> {
        if !Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success()) {
            eprintln!("skipped: etcd is not installed");
            return None;
        }
        let Some(network) = Network::new(nodes) else {
            eprintln!("skipped: network namespaces can't be made here (root and `ip netns` are needed)");
            return None;
        };
        let folder = std::env::temp_dir().join(format!("squall-drill-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(folder.join("marks")).unwrap();
        let binary =
            std::env::var_os("SQUALL_CRASH_BINARY").map_or_else(|| env!("CARGO_BIN_EXE_squall").into(), PathBuf::from);
        let mut cluster = Self { folder, binary, network, daemons: BTreeMap::new(), stand_in: None, done: Vec::new() };
        for member in Host::members() {
            cluster.begin(member);
        }
        cluster.found(nodes, config);
        Some(cluster)
    }

    /// Starts the first head, and lets the others join.
    fn found(&mut self, nodes: usize, config: &str) {
        let first = Host::Head(0);
        fs::create_dir_all(self.state(first)).unwrap();
        fs::write(self.state(first).join("squall.toml"), configuration(nodes, config)).unwrap();
        self.begin(first);
        self.until("the first controller leads", |c| c.squall_on(first, &["sinfo"]).status.success());
        for head in &Host::heads()[1..] {
            let mut args = self.invitation(&["--controller", &head.name()]);
            args.push("--join-only".to_owned());
            self.ok(*head, &args.iter().map(String::as_str).collect::<Vec<_>>());
            self.begin(*head);
        }
        for node in 0..nodes {
            self.invite(first, Host::Node(node), &[]);
        }
        self.invite_login(first);
        self.until("commands work on the login host", |c| c.squall(&["sinfo"]).status.success());
        let idle = |c: &Self| output(&c.squall(&["sinfo", "-hN", "-o", "%n %t"])).matches(" idle\n").count();
        self.until("the nodes are up", |c| idle(c) == nodes);
        self.await_leader();
    }

    /// Lets the login host join.
    pub(crate) fn invite_login(&mut self, by: Host) {
        self.invite(by, Host::Login, &["--login", "--allow-root"]);
    }

    fn invite(&mut self, by: Host, host: Host, options: &[&str]) {
        let args = self.invitation_from(by, &[options, &[&*host.name()]].concat());
        let child = self.spawn(host, &args.iter().map(String::as_str).collect::<Vec<_>>());
        self.daemons.insert(host, child);
    }

    /// The arguments that `squall token` prints.
    fn invitation(&self, args: &[&str]) -> Vec<String> {
        self.invitation_from(Host::Head(0), args)
    }

    /// The arguments that `squall token` prints on this host.
    pub(crate) fn invitation_from(&self, host: Host, args: &[&str]) -> Vec<String> {
        let line = self.ok(host, &[&["token"], args].concat());
        line.split_whitespace().skip(1).map(str::to_owned).collect()
    }

    /// Lets a machine join as what its invitation says, with a state folder of its own on the login host; gives up after
    /// that time.
    pub(crate) fn join(&self, name: &str, words: &[String], patience: Duration) -> Output {
        let program = self.program(Host::Login);
        let mut command = Command::new("timeout");
        command.arg(patience.as_secs().to_string()).args(program).args(words).arg("--join-only");
        command.env("SQUALL_STATE", self.folder.join(name)).stdin(Stdio::null()).output().unwrap()
    }

    pub(crate) fn state(&self, host: Host) -> PathBuf {
        self.folder.join(host.name())
    }

    /// Where jobs leave their marks.
    pub(crate) fn marks(&self) -> PathBuf {
        self.folder.join("marks")
    }

    pub(crate) fn log(&self, host: Host) -> String {
        let bytes = fs::read(self.folder.join(format!("{}.log", host.name()))).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The words with which a command of squall runs on a host.
    fn program(&self, host: Host) -> Vec<OsString> {
        let mut program: Vec<OsString> = self.network.on(host).into_iter().map(OsString::from).collect();
        program.push(self.binary.clone().into());
        program
    }

    pub(crate) fn command(&self, host: Host, args: &[&str]) -> Command {
        let program = self.program(host);
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]).args(args).env("SQUALL_STATE", self.state(host));
        command.current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    /// Runs a command as a user of the login host does.
    pub(crate) fn squall(&self, args: &[&str]) -> Output {
        self.squall_on(Host::Login, args)
    }

    pub(crate) fn squall_on(&self, host: Host, args: &[&str]) -> Output {
        self.command(host, args).output().unwrap()
    }

    /// A command that is ended after that time.
    pub(crate) fn within(&self, time: Duration, host: Host, args: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        command.arg(time.as_secs().to_string()).args(self.program(host)).args(args);
        command.env("SQUALL_STATE", self.state(host)).current_dir(&self.folder).stdin(Stdio::null()).output().unwrap()
    }

    /// A command that must succeed; what it said.
    pub(crate) fn ok(&self, host: Host, args: &[&str]) -> String {
        let done = self.squall_on(host, args);
        assert!(done.status.success(), "{args:?} on {}: {}\n{}", host.name(), output(&done), self.logs());
        String::from_utf8_lossy(&done.stdout).trim_end().to_owned()
    }

    /// What a client on the login host needs to submit.
    pub(crate) fn submitter(&self) -> Submitter {
        self.submitter_on(Host::Login)
    }

    pub(crate) fn submitter_on(&self, host: Host) -> Submitter {
        let mut submitter = Submitter::new(self.program(host), self.state(host), self.marks());
        submitter.pause = Duration::from_millis(100);
        submitter
    }

    /// The words with which `srun` runs on the login host, and that host's state folder.
    pub(crate) fn srun(&self) -> (Vec<OsString>, PathBuf) {
        (self.program(Host::Login), self.state(Host::Login))
    }

    fn spawn(&self, host: Host, args: &[&str]) -> Child {
        let path = self.folder.join(format!("{}.log", host.name()));
        let log = fs::File::options().create(true).append(true).open(path).unwrap();
        let mut command = match host {
            Host::Etcd(_) => {
                let words = self.network.on(host);
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]).args(args).stdin(Stdio::null());
                command
            }
            _ => self.command(host, args),
        };
        command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    }

    /// Starts the daemon of a host, the first time or again.
    pub(crate) fn begin(&mut self, host: Host) {
        let name = host.name();
        let child = match host {
            Host::Head(_) => self.spawn(host, &["controller", "--name", &name]),
            Host::Node(_) => self.spawn(host, &["node", &name]),
            Host::Login => self.spawn(host, &["login", &name]),
            Host::Etcd(_) => {
                let (client, peer) =
                    (format!("http://{}:2379", host.address()), format!("http://{}:2380", host.address()));
                let all = Host::members().into_iter().map(|m| format!("{}=http://{}:2380", m.name(), m.address()));
                let (all, data) = (all.collect::<Vec<_>>().join(","), self.folder.join(&name).display().to_string());
                let args: [&[&str]; 4] = [
                    &["etcd", "--name", &name, "--data-dir", &data, "--initial-cluster", &all],
                    &["--listen-client-urls", &client, "--advertise-client-urls", &client],
                    &["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer],
                    // Otherwise a member that comes back makes the others elect again.
                    &["--pre-vote", "--log-level", "warn", "--logger", "zap"],
                ];
                self.spawn(host, &args.concat())
            }
        };
        self.note(&format!("{name} begins as {}", child.id()));
        self.daemons.insert(host, child);
    }

    /// Starts the login daemon of a head, which serves commands there while its controller is away.
    pub(crate) fn serve_commands(&mut self, head: Host) {
        let child = self.spawn(head, &["login"]);
        self.stand_in = Some(child);
        self.until("the head's login daemon listens", |c| c.state(head).join("run/head.sock").exists());
    }

    /// Ends it.
    pub(crate) fn serve_no_commands(&mut self, head: Host) {
        if let Some(mut child) = self.stand_in.take() {
            child.kill().unwrap();
            child.wait().unwrap();
            self.note(&format!("the login daemon of {} is killed", head.name()));
        }
    }

    /// Starts a controller of another cluster with these keys, at the address of the first head, whose own must be dead.
    pub(crate) fn impostor(&mut self, keys: &Path) -> Child {
        let (host, state) = (Host::Head(0), self.folder.join("impostor"));
        drop(fs::remove_dir_all(&state));
        fs::create_dir_all(&state).unwrap();
        assert!(Command::new("cp").arg("-r").arg(keys).arg(state.join("keys")).status().unwrap().success());
        let address = host.address();
        let text = format!(
            "cluster = \"drill\"\nslurmctld_host = \"{address}\"\nslurmctld_port = 6817\n[[nodes]]\nname = \"n1\"\nremote = true\ncpus = 16\nforce = true\n"
        );
        fs::write(state.join("squall.toml"), text).unwrap();
        let log = fs::File::options().create(true).append(true).open(self.folder.join("impostor.log")).unwrap();
        let mut command = self.command(host, &["controller"]);
        command.env("SQUALL_STATE", &state).stdout(log.try_clone().unwrap()).stderr(log);
        self.note("an impostor begins");
        let child = command.spawn().unwrap();
        self.until("the impostor listens", |_| state.join("run/controller.sock").exists());
        child
    }

    /// kill -9, if it runs.
    pub(crate) fn kill(&mut self, host: Host) {
        if let Some(mut child) = self.daemons.remove(&host) {
            child.kill().unwrap();
            child.wait().unwrap();
            self.note(&format!("{} is killed", host.name()));
        }
    }

    /// Sends a signal to the daemon of a host.
    pub(crate) fn signal(&mut self, host: Host, signal: &str) {
        let pid = self.daemons[&host].id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        self.note(&format!("{} gets {signal}", host.name()));
    }

    /// Keeps a line for the message of a failure.
    pub(crate) fn note(&mut self, what: &str) {
        let clock = Command::new("date").arg("+%T.%3N").output().unwrap();
        self.done.push(format!("{} {what}\n", output(&clock).trim()));
    }

    /// The head that leads, as the login host knows it.
    pub(crate) fn leader(&self) -> Host {
        let mut leader = None;
        self.until("a controller leads", |c| {
            leader = c.roles().into_iter().find_map(|(host, role)| (role == "LEADER").then_some(host));
            leader.is_some()
        });
        leader.unwrap()
    }

    /// Role of each controller.
    fn roles(&self) -> BTreeMap<Host, String> {
        let said = output(&self.squall(&["scontrol", "-o", "show", "controllers"]));
        let role = |line: &str| {
            let of = |key: &str| line.split_whitespace().find_map(|word| word.strip_prefix(key).map(str::to_owned));
            let name = of("ControllerName=")?;
            Some((Host::heads().into_iter().find(|host| host.name() == name)?, of("Role=")?))
        };
        said.lines().filter_map(role).collect()
    }

    /// Waits until one controller leads and the others follow.
    pub(crate) fn await_leader(&self) {
        self.until("one controller leads and the others follow", |c| {
            let roles = c.roles();
            let count = |role: &str| roles.values().filter(|known| *known == role).count();
            count("LEADER") == 1 && count("STANDBY") == HEADS - 1
        });
    }

    /// Asks for another leader, and waits until it leads and the others follow.
    pub(crate) fn hand_over(&self, head: Host) {
        if self.leader() != head {
            self.ok(Host::Login, &["scontrol", "takeover", &head.name()]);
        }
        self.until("the controller that was asked leads", |c| c.leader() == head);
        self.await_leader();
    }

    /// How often a controller began to lead.
    pub(crate) fn reigns(&self) -> usize {
        Host::heads().into_iter().map(|head| self.log(head).matches(LEADS).count()).sum()
    }

    /// The member of etcd that leads the others.
    pub(crate) fn etcd_leader(&self) -> Host {
        let leads = |member: &Host| {
            let ask = format!(
                "exec 3<>/dev/tcp/{}/2379; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3",
                member.address()
            );
            let words = self.network.on(*member);
            let said = Command::new(&words[0]).args([&*words[1], "bash", "-c", &ask]).output().unwrap();
            String::from_utf8_lossy(&said.stdout).contains("\netcd_server_is_leader 1")
        };
        let mut leader = None;
        self.until("etcd has a leader", |_| {
            leader = Host::members().into_iter().find(leads);
            leader.is_some()
        });
        leader.unwrap()
    }

    /// No daemon may have ended by itself.
    pub(crate) fn watch(&mut self) {
        let ended: Vec<String> = self
            .daemons
            .iter_mut()
            .filter_map(|(host, child)| Some(format!("{} has ended: {}", host.name(), child.try_wait().unwrap()?)))
            .collect();
        assert!(ended.is_empty(), "{ended:?}\n{}", self.logs());
    }

    /// Waits for the end of all jobs, as long as there are fewer of them from time to time.
    pub(crate) fn wait_until_idle(&self) {
        let (mut end, mut fewest) = (Instant::now() + PATIENCE, usize::MAX);
        loop {
            let said = self.squall(&["squeue", "-h", "-o", "%i %T %r"]);
            let (queue, answered) = (output(&said), said.status.success());
            let jobs = queue.lines().count();
            if answered && jobs == 0 {
                return;
            }
            if answered && jobs < fewest {
                (end, fewest) = (Instant::now() + PATIENCE, jobs);
            }
            assert!(Instant::now() < end, "jobs are still in the queue:\n{queue}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < end, "in vain: {what}\n{}", self.logs());
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Processes of the site: their command lines.
    pub(crate) fn processes(&self) -> Vec<(u32, String)> {
        traces::processes(&self.folder)
    }

    /// What was done last, and the last lines of the daemons' logs.
    pub(crate) fn logs(&self) -> String {
        let last = |text: &str, most: usize| {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(most)..].join("\n")
        };
        let log = |host: Host| format!("--- {}\n{}\n", host.name(), last(&self.log(host), 25));
        format!(
            "{}\n{}",
            last(&self.done.concat(), 30),
            self.network.hosts.iter().map(|host| log(*host)).collect::<String>()
        )
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.daemons.values_mut().chain(&mut self.stand_in) {
            drop(child.kill());
            drop(child.wait());
        }
        // What the node has started.
        for (pid, _) in self.processes() {
            drop(Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status());
        }
        if std::env::var_os("SQUALL_CRASH_KEEP").is_some() {
            eprintln!("kept: {}", self.folder.display());
            return;
        }
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// Three controllers, and nodes with more slots than a load fills.
fn configuration(nodes: usize, more: &str) -> String {
    let controller =
        |head: Host| format!("[[controllers]]\nname = \"{}\"\naddress = \"{}:6817\"\n", head.name(), head.address());
    let members: Vec<String> =
        Host::members().into_iter().map(|member| format!("\"{}:2379\"", member.address())).collect();
    let controllers: String = Host::heads().into_iter().map(controller).collect();
    format!(
        "cluster = \"drill\"\nkill_wait_s = 2\n{more}\n{controllers}[log]\netcd = [{}]\n\
         [[nodes]]\nname = \"n[1-{nodes}]\"\nremote = true\ncpus = 16\nforce = true\n",
        members.join(", ")
    )
}

/// What a command said.
pub(crate) fn output(done: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr))
}
