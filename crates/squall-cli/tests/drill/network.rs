//! Hosts in network namespaces, one switch between them, and links that are cut in silence.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A host of the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Host {
    /// Has a controller.
    Head(usize),
    /// Has a member of etcd. It stands beside the head of the same number.
    Etcd(usize),
    /// Has a node daemon.
    Node(usize),
    /// Users submit there.
    Login,
}

/// Controllers, and members of etcd.
pub(crate) const HEADS: usize = 3;

impl Host {
    /// Returns all hosts of a site with so many nodes.
    fn all(nodes: usize) -> Vec<Self> {
        let heads = (0..HEADS).flat_map(|number| [Self::Head(number), Self::Etcd(number)]);
        heads.chain((0..nodes).map(Self::Node)).chain([Self::Login]).collect()
    }

    pub(crate) fn heads() -> Vec<Self> {
        (0..HEADS).map(Self::Head).collect()
    }

    pub(crate) fn members() -> Vec<Self> {
        (0..HEADS).map(Self::Etcd).collect()
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Head(number) => format!("head{}", number + 1),
            Self::Etcd(number) => format!("etcd{}", number + 1),
            Self::Node(number) => format!("n{}", number + 1),
            Self::Login => "login".to_owned(),
        }
    }

    pub(crate) fn address(self) -> String {
        match self {
            Self::Head(number) => format!("10.96.0.{}", number + 1),
            Self::Etcd(number) => format!("10.96.0.{}", number + 11),
            Self::Node(number) => format!("10.96.0.{}", number + 21),
            Self::Login => "10.96.0.31".to_owned(),
        }
    }
}

/// The namespaces, one for each host and one for the switch. They end with this value.
#[derive(Debug)]
pub(crate) struct Network {
    /// Begins the name of each.
    prefix: String,
    pub(crate) hosts: Vec<Host>,
}

impl Network {
    /// Makes the hosts, of which so many are nodes. None: no namespace can be made here.
    pub(crate) fn new(nodes: usize) -> Option<Self> {
        // Tests of one process run side by side.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let network = Self { prefix: format!("sqd{}-{number}-", std::process::id()), hosts: Host::all(nodes) };
        let switch = format!("{}switch", network.prefix);
        if !ip(&["netns", "add", &switch]) {
            return None;
        }
        let made = ip(&["-n", &switch, "link", "add", "switch", "type", "bridge"])
            && ip(&["-n", &switch, "link", "set", "switch", "up"])
            && network.hosts.iter().all(|host| network.plug(*host, &switch));
        assert!(made, "a namespace was made, and no network in it");
        Some(network)
    }

    fn plug(&self, host: Host, switch: &str) -> bool {
        let (name, port, address) = (self.namespace(host), host.name(), format!("{}/24", host.address()));
        ip(&["netns", "add", &name])
            && ip(&["-n", switch, "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &name])
            && ip(&["-n", switch, "link", "set", &port, "master", "switch", "up"])
            && ip(&["-n", &name, "link", "set", "lo", "up"])
            && ip(&["-n", &name, "address", "add", &address, "dev", "eth0"])
            && ip(&["-n", &name, "link", "set", "eth0", "up"])
    }

    fn namespace(&self, host: Host) -> String {
        format!("{}{}", self.prefix, host.name())
    }

    /// The words with which a command runs on a host.
    pub(crate) fn on(&self, host: Host) -> [String; 2] {
        ["nsenter".to_owned(), format!("--net=/run/netns/{}", self.namespace(host))]
    }

    /// From now on what these hosts send to those goes astray: the senders hear nothing of it.
    pub(crate) fn cut(&self, from: &[Host], to: &[Host]) {
        for sender in from {
            let others = to.iter().filter(|host| *host != sender);
            let astray = |host: &Host| {
                format!("neigh replace {} lladdr 02:00:00:00:00:01 dev eth0 nud permanent\n", host.address())
            };
            self.batch(*sender, &others.map(astray).collect::<String>());
        }
    }

    /// Cuts both ways.
    pub(crate) fn part(&self, these: &[Host], those: &[Host]) {
        self.cut(these, those);
        self.cut(those, these);
    }

    /// All links work again.
    pub(crate) fn heal(&self) {
        for host in &self.hosts {
            self.batch(*host, "neigh flush dev eth0 nud permanent\n");
        }
    }

    fn batch(&self, host: Host, lines: &str) {
        let mut command = Command::new("ip");
        command.args(["-n", &self.namespace(host), "-batch", "-"]).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{lines}");
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in &self.hosts {
            ip(&["netns", "del", &self.namespace(*host)]);
        }
        ip(&["netns", "del", &format!("{}switch", self.prefix)]);
    }
}

fn ip(args: &[&str]) -> bool {
    Command::new("ip").args(args).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
