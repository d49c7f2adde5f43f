//! The keys of several controllers are rotated, as docs/admin/several-controllers.md says, while jobs run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::cluster::{Cluster, output};
use crate::network::Host;

/// Time for which a controller with an old key has the network for itself. Nodes call every second or so.
const IMPOSTOR_TIME: Duration = Duration::from_secs(8);

#[test]
fn keys_of_several_controllers_rotate_while_jobs_run() {
    let Some(mut cluster) = Cluster::start("keys") else { return };
    let go = cluster.marks().join("go");
    let (job, srun) = begin_work(&cluster, &go);
    let first = cluster.leader();
    let old = Keys::of(&cluster, first);
    rotate_as_documented(&mut cluster, first);
    let second = Keys::of(&cluster, first);
    old.differ_from(&second);
    until_known(&cluster, &second);
    // The next leader signs with the new key, and the nodes take it.
    cluster.kill(first);
    cluster.until("another controller leads", |c| c.leader() != first);
    runs_scripts(&cluster);
    cluster.begin(first);
    cluster.await_leader();
    runs_scripts(&cluster);
    hand_over_in_the_middle(&mut cluster, &second);
    let third = Keys::of(&cluster, cluster.leader());
    second.differ_from(&third);
    impostor_leads_nobody(&mut cluster, &old);
    // What has run all the time goes on to its end.
    fs::write(&go, "").unwrap();
    let done = srun.wait_with_output().unwrap();
    assert!(done.status.success() && output(&done).contains("ran"), "{}\n{}", output(&done), cluster.logs());
    assert_eq!(end_of(&cluster, &job), "COMPLETED|0:0");
    lacks_the_new_key(&mut cluster, &third);
    a_login_host_joins_again(&mut cluster);
}

/// The private keys of the controllers, as one of them has them.
struct Keys {
    bytes: Vec<u8>,
    /// A copy of the folder with the keys, as a thief has it.
    copy: PathBuf,
}

impl Keys {
    fn of(cluster: &Cluster, head: Host) -> Self {
        let folder = cluster.state(head).join("keys");
        let bytes = fs::read(folder.join("controller")).unwrap();
        let copy = cluster.marks().join(format!("keys-{:02x}{:02x}", bytes[0], bytes[1]));
        fs::create_dir_all(&copy).unwrap();
        for file in fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).filter(|path| path.is_file()) {
            fs::copy(&file, copy.join(file.file_name().unwrap())).unwrap();
        }
        for folder in fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).filter(|path| path.is_dir()) {
            let to = copy.join(folder.file_name().unwrap());
            fs::create_dir_all(&to).unwrap();
            for file in fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()) {
                fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
            }
        }
        Self { bytes, copy }
    }

    fn differ_from(&self, other: &Self) {
        assert!(self.bytes != other.bytes, "the key is the one before");
    }
}

/// Starts a batch job and a step that run until the file is there.
fn begin_work(cluster: &Cluster, go: &Path) -> (String, Child) {
    let wait = format!("while [ ! -e {} ]; do sleep 0.1; done; echo ran", go.display());
    let job = cluster.ok(Host::Login, &["sbatch", "--parsable", "-D", "/", "-o", "/dev/null", "--wrap", &wait]);
    let mut srun = cluster.command(Host::Login, &["srun", "-J", "step", "-D", "/", "sh", "-c", &wait]);
    let srun = srun.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    cluster.until("both jobs run", |c| {
        let said = output(&c.squall(&["squeue", "-h", "-s", "-o", "%i"]));
        said.lines().filter(|line| matches!(line.rsplit_once('.'), Some((_, "batch" | "0")))).count() == 2
    });
    (job, srun)
}

/// Copies the key to come from one controller to another one, as an operator does.
fn copy_next(cluster: &Cluster, from: Host, to: Host) {
    let next = |host| cluster.state(host).join("keys/controller-next");
    assert_eq!(fs::metadata(next(from)).unwrap().permissions().mode() & 0o777, 0o600);
    fs::copy(next(from), next(to)).unwrap();
}

/// Repeats the command until the controller that leads has heard that the others have the key.
fn rotate_when_known(cluster: &Cluster, on: Host, args: &[&str]) -> String {
    let mut said = String::new();
    cluster.until("the keys are rotated", |c| {
        let done = c.squall_on(on, args);
        said = output(&done);
        assert!(done.status.success() || said.contains("first, as root, copy"), "{said}");
        done.status.success()
    });
    said
}

fn rotate_as_documented(cluster: &mut Cluster, leader: Host) {
    let others: Vec<Host> = Host::heads().into_iter().filter(|head| *head != leader).collect();
    let refused = cluster.squall_on(leader, &["scontrol", "rotate", "keys"]);
    let next = cluster.state(leader).join("keys/controller-next");
    let names = format!("on {}, {};", others[0].name(), others[1].name());
    let said = output(&refused);
    assert!(!refused.status.success() && said.contains(next.to_str().unwrap()) && said.contains(&names), "{said}");
    // Neither a copy that only one has, nor another key, is enough.
    copy_next(cluster, leader, others[0]);
    let mut wrong = fs::read(&next).unwrap();
    wrong.reverse();
    fs::write(cluster.state(others[1]).join("keys/controller-next"), wrong).unwrap();
    let name = format!("on {};", others[1].name());
    cluster.until("one of them is known to have it", |c| {
        let said = output(&c.squall_on(leader, &["scontrol", "rotate", "keys"]));
        assert!(said.contains(&others[1].name()), "{said}");
        said.contains(&name)
    });
    copy_next(cluster, leader, others[1]);
    let said = rotate_when_known(cluster, leader, &["scontrol", "rotate", "keys"]);
    assert!(said.contains("within 7-00:00:00"), "{said}");
    cluster.watch();
}

/// Waits until all controllers, the node and the login host have these keys.
fn until_known(cluster: &Cluster, keys: &Keys) {
    cluster.until("all controllers have the new key", |c| {
        Host::heads().into_iter().all(|head| {
            let folder = c.state(head).join("keys");
            fs::read(folder.join("controller")).unwrap() == keys.bytes && !folder.join("controller-next").exists()
        })
    });
    let pinned = |host| {
        let text = fs::read_to_string(cluster.state(host).join("keys/joined")).unwrap();
        text.split_whitespace().nth(2).unwrap().to_owned()
    };
    cluster.until("the node and the login host have the same key", |c| {
        drop(c.squall(&["squeue"]));
        pinned(Host::Node(0)) == pinned(Host::Login)
    });
}

/// New work runs, with a script that is encrypted for the node.
fn runs_scripts(cluster: &Cluster) {
    let job = cluster.ok(Host::Login, &["sbatch", "--parsable", "-D", "/", "-o", "/dev/null", "--wrap", "true"]);
    assert_eq!(end_of(cluster, &job), "COMPLETED|0:0");
}

fn end_of(cluster: &Cluster, job: &str) -> String {
    let mut said = String::new();
    cluster.until("the job has ended", |c| {
        let done = c.squall(&["sacct", "-n", "-X", "-P", "-o", "State,ExitCode", "-j", job]);
        String::from_utf8_lossy(&done.stdout).trim().clone_into(&mut said);
        done.status.success() && !said.is_empty() && !said.starts_with("RUNNING") && !said.starts_with("PENDING")
    });
    said
}

/// Another controller leads between the two commands, and the second one is given on a standby.
fn hand_over_in_the_middle(cluster: &mut Cluster, before: &Keys) {
    let leader = cluster.leader();
    let others: Vec<Host> = Host::heads().into_iter().filter(|head| *head != leader).collect();
    let refused = cluster.squall_on(leader, &["scontrol", "rotate", "keys", "grace=1-0"]);
    assert!(!refused.status.success(), "{}", output(&refused));
    for head in &others {
        copy_next(cluster, leader, *head);
    }
    cluster.hand_over(others[0]);
    rotate_when_known(cluster, leader, &["scontrol", "rotate", "keys", "grace=1-0"]);
    cluster.await_leader();
    let after = Keys::of(cluster, others[0]);
    before.differ_from(&after);
    until_known(cluster, &after);
    runs_scripts(cluster);
}

/// No machine follows an impostor with an earlier key at the address of a controller.
fn impostor_leads_nobody(cluster: &mut Cluster, old: &Keys) {
    for head in Host::heads() {
        cluster.kill(head);
    }
    let mut impostor = cluster.impostor(&old.copy);
    // They know of no leader that was later.
    let before = [Host::Login, Host::Node(0)].map(|host| (host, cluster.log(host).len()));
    for (host, _) in before {
        cluster.kill(host);
        cluster.begin(host);
    }
    std::thread::sleep(IMPOSTOR_TIME);
    let asked = cluster.within(Duration::from_secs(5), Host::Login, &["squeue"]);
    assert!(!asked.status.success(), "an old key is believed");
    for (host, length) in before {
        let said = cluster.log(host).split_off(length);
        let called = format!("{}:6817: ", Host::Head(0).address());
        assert!(said.contains(&called) && !said.contains("attached"), "an old key is believed: {said}");
    }
    impostor.kill().unwrap();
    impostor.wait().unwrap();
    for head in Host::heads() {
        cluster.begin(head);
    }
    cluster.await_leader();
    runs_scripts(cluster);
}

/// A controller without the new key follows no other one, and says which file it needs.
fn lacks_the_new_key(cluster: &mut Cluster, before: &Keys) {
    let leader = cluster.leader();
    let others: Vec<Host> = Host::heads().into_iter().filter(|head| *head != leader).collect();
    let rotate = ["scontrol", "rotate", "keys", "grace=0"];
    // With a connection that is just open it would be told of the next keys.
    cluster.kill(Host::Login);
    assert!(!cluster.squall_on(leader, &rotate).status.success());
    for head in &others {
        copy_next(cluster, leader, *head);
    }
    let said = rotate_when_known(cluster, leader, &rotate);
    assert!(said.contains("login hosts"), "{said}");
    // As after a copy of its state folder from before was put back.
    let lacking = others[1];
    let folder = cluster.state(lacking).join("keys");
    cluster.until("it has the new key", |_| !folder.join("controller-next").exists());
    cluster.kill(lacking);
    fs::write(folder.join("controller"), &before.bytes).unwrap();
    cluster.begin(lacking);
    let wanted = folder.join("controller-next").display().to_string();
    cluster.until("it says what it lacks", |c| {
        c.log(lacking).lines().any(|line| line.contains("keys were rotated") && line.contains(&wanted))
    });
    cluster.kill(lacking);
    fs::copy(cluster.state(leader).join("keys/controller"), folder.join("controller-next")).unwrap();
    cluster.begin(lacking);
}

/// A login host that is away misses a rotation that leaves no time.
fn a_login_host_joins_again(cluster: &mut Cluster) {
    cluster.begin(Host::Login);
    assert!(
        !cluster.within(Duration::from_secs(5), Host::Login, &["squeue"]).status.success(),
        "an old key is answered"
    );
    cluster.kill(Host::Login);
    let head = Host::Head(0);
    cluster.ok(head, &["token", "--revoke", "login"]);
    fs::remove_dir_all(cluster.state(Host::Login)).unwrap();
    cluster.invite_login(head);
    cluster.await_leader();
    runs_scripts(cluster);
}
