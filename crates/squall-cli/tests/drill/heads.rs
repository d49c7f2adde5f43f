//! Commands and tokens depend on no single head. faults.md R3 and R11.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cluster::{Cluster, output};
use crate::network::{HEADS, Host};

/// Key of users' tokens in a state folder.
const TOKEN_KEY: &str = "keys/jwt_hs256.key";

#[test]
fn commands_and_tokens_depend_on_no_single_head() {
    let Some(mut cluster) = Cluster::start("onehead") else { return };
    let first = cluster.leader();
    let key = one_key(&cluster);
    cluster.serve_commands(first);
    let go = cluster.marks().join("go");
    let wait = format!("touch $0; while [ ! -e {} ]; do sleep 0.1; done; echo ran", go.display());
    let begun = ["srun", "salloc"].map(|name| cluster.marks().join(name));
    let started = |args: &[&str]| {
        let mut command = cluster.command(first, args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let [mark, other] = [0, 1].map(|n| begun[n].to_str().unwrap().to_owned());
    let work = [
        started(&["srun", "-D", "/", "sh", "-c", &wait, &mark]),
        started(&["salloc", "-D", "/", "sh", "-c", &wait, &other]),
    ];
    cluster.until("they have begun", |_| begun.iter().all(|mark| mark.exists()));
    cluster.kill(first);
    cluster.until("commands work on the head without its controller", |c| {
        c.squall_on(first, &["squeue"]).status.success()
    });
    let pinged = cluster.ok(first, &["scontrol", "ping"]);
    cluster.until("the dead controller is known to be dead", |c| {
        let lines = c.ok(first, &["scontrol", "ping"]);
        let up = lines.lines().filter(|line| line.ends_with("is UP")).count();
        lines.contains(&format!("{} is DOWN", first.name())) && up == HEADS - 1
    });
    assert_eq!(pinged.lines().count(), HEADS, "{pinged}");
    acts_as_its_user(&cluster, first);
    // What the first has made is good at the next, and so is what that makes.
    assert!(one_key(&cluster) == key, "another key after a take-over");
    fs::write(&go, "").unwrap();
    for child in work {
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success() && output(&done).contains("ran"), "{}\n{}", output(&done), cluster.logs());
    }
    cluster.serve_no_commands(first);
    let alone = cluster.squall_on(first, &["squeue"]);
    assert!(output(&alone).contains("neither does its login daemon"), "{}", output(&alone));
    let pinged = cluster.squall_on(first, &["scontrol", "ping"]);
    assert!(pinged.status.success() && output(&pinged).matches("is UP").count() == HEADS - 1, "{}", output(&pinged));
    cluster.begin(first);
    cluster.await_leader();
    cluster.until("it has the key again", |c| fs::read(c.state(first).join(TOKEN_KEY)).unwrap() == key);
    says_that_etcd_is_open(&cluster);
    fetches_what_is_damaged(&mut cluster);
}

/// The etcd of the drill has neither certificates nor passwords.
fn says_that_etcd_is_open(cluster: &Cluster) {
    let open = "lets anybody who reaches it write, and whoever does is the controller";
    let said = output(&cluster.squall_on(Host::Head(0), &["doctor"]));
    assert!(said.lines().any(|line| line.starts_with("warn etcd") && line.contains(open)), "{said}");
    assert!(Host::heads().into_iter().all(|head| cluster.log(head).contains(open)), "{}", cluster.logs());
}

/// A standby with a damaged journal needs nobody's word: it fetches a copy.
fn fetches_what_is_damaged(cluster: &mut Cluster) {
    let leader = cluster.leader();
    let standby = Host::heads().into_iter().find(|head| *head != leader).unwrap();
    cluster.kill(standby);
    let journal = cluster.state(standby).join("journal");
    let segments = fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().path());
    let segment = segments.filter(|path| path.extension().is_some_and(|e| e == "seg")).min().unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    bytes[100] ^= 1;
    fs::write(&segment, bytes).unwrap();
    cluster.begin(standby);
    cluster.until("it fetches a copy", |c| {
        let log = c.log(standby);
        let fetched = log.split_once("is damaged at offset").is_some_and(|(_, later)| later.contains("were fetched"));
        fetched && log.rsplit_once("were fetched").is_some_and(|(_, later)| later.contains("following leader="))
    });
    cluster.await_leader();
}

/// A command of an ordinary user on that head is that user's.
fn acts_as_its_user(cluster: &Cluster, head: Host) {
    let submit = ["sbatch", "--parsable", "-D", "/", "-o", "/dev/null", "--wrap", "true"];
    let command = cluster.command(head, &submit);
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let mut given = words.map(std::ffi::OsStr::to_owned).collect::<Vec<_>>();
    // Before the program itself, behind what enters the namespace.
    let at = given.len() - submit.len() - 1;
    given.splice(at..at, ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"].map(Into::into));
    let mut as_nobody = Command::new(&given[0]);
    as_nobody.args(&given[1..]).env("SQUALL_STATE", cluster.state(head)).current_dir("/").stdin(Stdio::null());
    let done = as_nobody.output().unwrap();
    assert!(done.status.success(), "{}\n{}", output(&done), cluster.logs());
    let shown = cluster.ok(head, &["scontrol", "show", "job", String::from_utf8_lossy(&done.stdout).trim()]);
    assert!(shown.contains("UserId=nobody(65534)"), "{shown}");
}

/// The key of tokens, when all heads that have a controller have the same one. It is nowhere in etcd.
fn one_key(cluster: &Cluster) -> Vec<u8> {
    cluster.ok(Host::Login, &["scontrol", "token"]);
    let mut keys = Vec::new();
    cluster.until("all heads have one key of tokens", |c| {
        keys =
            Host::heads().into_iter().map(|head| fs::read(c.state(head).join(TOKEN_KEY)).unwrap_or_default()).collect();
        keys.iter().all(|key| *key == keys[0] && !key.is_empty())
    });
    let key = keys.remove(0);
    for member in Host::members() {
        assert!(!is_in(&cluster.state(member), &key), "the key is in etcd");
    }
    key
}

/// Whether a file of the folder, at any depth, has the longest part of these bytes that stands in one line.
fn is_in(folder: &Path, bytes: &[u8]) -> bool {
    let part = bytes.split(|byte| *byte == b'\n').max_by_key(|part| part.len()).unwrap();
    let pattern = part.iter().map(|byte| format!("\\x{byte:02x}")).collect::<Vec<_>>().concat();
    let found = Command::new("grep").args(["-rqaP", &pattern]).arg(folder).env("LC_ALL", "C").status().unwrap();
    assert!(found.code().is_some_and(|code| code < 2), "grep failed: {found}");
    found.success()
}
