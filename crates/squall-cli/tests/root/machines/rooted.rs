//! A relay that is not to be trusted: attack-trial.md C1, where one stood in the place of node n1.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use squall_model::codec;
use squall_model::encoding::Encoded;
use squall_model::wire::Hello;
use squall_model::wire::fabric::{DownFrame, Downward, Put};
use squall_model::wire::node::Down;
use squall_model::wire::sealed::Sealed;

/// User id of the job's owner, if root runs this test.
const NOBODY: u32 = 65534;

struct Cluster {
    dir: String,
}

impl Cluster {
    fn squall(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
        command.env("SQUALL_STATE", &self.dir);
        command
    }

    fn ok(&self, args: &[&str]) -> String {
        let done = self.squall().args(args).output().unwrap();
        assert!(done.status.success(), "{args:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    fn log(&self, node: &str) -> String {
        fs::read_to_string(format!("{}/log/node-{node}.log", self.dir)).unwrap_or_default()
    }

    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_mins(1);
        while !holds() {
            assert!(Instant::now() < end, "{what}: {}", self.ok(&["sinfo", "-N"]));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.squall().arg("down").output());
        drop(fs::remove_dir_all(&self.dir));
    }
}

#[test]
fn c1_a_rooted_relay_changes_nothing_and_is_named() {
    let root = rustix::process::geteuid().is_root();
    let dir = std::env::temp_dir().join(format!("squall-rooted-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let config = dir.join("squall.toml.in");
    fs::write(&config, "tree_width = 2\n[[nodes]]\nname = \"n[1-6]\"\ncpus = 1\nmemory_mb = 500\n").unwrap();
    let cluster = Cluster { dir: dir.join("state").to_str().unwrap().to_owned() };
    cluster.ok(&["up", "--state", &cluster.dir, "--config", config.to_str().unwrap()]);
    let below = |node: &&str| cluster.log(node).contains("attached to n1");
    cluster.until("a node is below n1", || ["n2", "n3", "n4", "n5", "n6"].iter().any(below));
    let victim = ["n2", "n3", "n4", "n5", "n6"].into_iter().find(|node| below(node)).unwrap();
    // The relay is in the hands of an attacker, and the victim connects to it.
    let door = format!("{}/run/node-n1.sock", cluster.dir);
    let real = format!("{}/run/real.sock", cluster.dir);
    fs::rename(&door, &real).unwrap();
    let listener = UnixListener::bind(&door).unwrap();
    std::thread::spawn(move || attack(&listener, &real));
    kill(&cluster.dir, victim);
    let before = cluster.log(victim).lines().count();
    cluster.ok(&["up", "--state", &cluster.dir]);
    let said = || cluster.log(victim).lines().skip(before).collect::<Vec<_>>().join("\n");
    cluster.until("the victim is below the attacker", || said().contains("attached to n1"));
    let out = dir.join("out");
    fs::write(&out, "").unwrap();
    fs::set_permissions(&out, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut submit = cluster.squall();
    submit.args(["sbatch", "--wait", "-J", "mine", "-D", "/", "-w", victim, "-o", out.to_str().unwrap()]);
    submit.args(["--wrap", "echo $(id -u) $SLURM_JOB_NAME"]);
    if root {
        submit.uid(NOBODY).gid(NOBODY);
    }
    let done = submit.output().unwrap();
    assert!(done.status.success(), "{done:?}: {}", said());
    let own = if root { NOBODY } else { rustix::process::getuid().as_raw() };
    assert_eq!(fs::read_to_string(&out).unwrap(), format!("{own} mine\n"));
    let named = "a message of the controller that came through node n1 is not signed by it: it is refused";
    assert!(said().contains(named), "{}", said());
    drop(cluster);
    drop(fs::remove_dir_all(dir));
}

/// Kills the daemon of a node, and nothing else.
fn kill(dir: &str, node: &str) {
    let text = fs::read_to_string(Path::new(dir).join(format!("run/node-{node}.pid"))).unwrap();
    let pid = text.split_whitespace().next().unwrap().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    while Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Stands between a relay and the nodes below it.
fn attack(listener: &UnixListener, real: &str) {
    for child in listener.incoming().flatten() {
        let Ok(parent) = UnixStream::connect(real) else { continue };
        let (mut up, mut to) = (child.try_clone().unwrap(), parent.try_clone().unwrap());
        std::thread::spawn(move || {
            drop(io::copy(&mut up, &mut to));
            drop(to.shutdown(std::net::Shutdown::Both));
        });
        std::thread::spawn(move || {
            drop(pass_down(parent, &child));
            drop(child.shutdown(std::net::Shutdown::Both));
        });
    }
}

fn pass_down(mut parent: UnixStream, child: &UnixStream) -> io::Result<()> {
    let hello: Hello = receive(&mut parent)?;
    send(child, &hello)?;
    loop {
        let mut frame: DownFrame = receive(&mut parent)?;
        for say in &mut frame.says {
            if let Downward::Put(put) | Downward::Reply { put, .. } = say {
                forge(put);
            }
        }
        send(child, &frame)?;
    }
}

/// Makes each job one of root's, under another name.
fn forge(put: &mut Put) {
    let mut parcel = put.parcel.open().unwrap();
    if !parcel.messages.iter().any(|message| matches!(message, Down::StartJob { .. })) {
        return;
    }
    for message in &mut Arc::make_mut(&mut parcel).messages {
        if let Down::StartJob { facts, .. } = message {
            let facts = Arc::make_mut(facts);
            let owner = Arc::make_mut(&mut facts.owner);
            (owner.uid, owner.gid) = (0, 0);
            "forged".clone_into(&mut Arc::make_mut(&mut facts.spec).name);
        }
    }
    put.parcel = Sealed::Open(parcel);
    put.parcel.encode();
}

fn receive<T: squall_model::encoding::Decoded>(from: &mut UnixStream) -> io::Result<T> {
    let mut head = [0; codec::HEADER_BYTES];
    from.read_exact(&mut head)?;
    let (length, crc) = codec::header(head).map_err(io::Error::other)?;
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    codec::decode(&body, crc).map_err(io::Error::other)
}

fn send(mut to: &UnixStream, message: &impl Encoded) -> io::Result<()> {
    let mut bytes = Vec::new();
    codec::encode(message, &mut bytes).map_err(io::Error::other)?;
    to.write_all(&bytes)
}
