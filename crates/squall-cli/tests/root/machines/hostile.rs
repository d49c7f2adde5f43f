//! Who has no business here: wrong tokens, wrong keys, other names, replayed and senseless bytes.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::machines::site::Site;

#[test]
fn strangers_learn_nothing_and_change_nothing() {
    let mut site = Site::start("hostile", "", "hidden[2-4]");
    tokens(&site);
    let heard = replay(&mut site);
    // It gets the answer to the handshake, which only the true caller can read, and no more.
    assert!(heard <= 2 + 48, "{heard} bytes");
    nonsense(&site);
    names_and_keys(&mut site);
    let job = site.ok(&["sbatch", "--parsable", "-w", "hidden2", "-o", "/dev/null", "--wrap", "true"]);
    assert_eq!(site.end_of(&job), "COMPLETED|0:0");
    site.stop();
}

fn run(site: &Site, machine: &str, args: &[String]) -> String {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = site.command(machine, &args).output().unwrap();
    assert!(!done.status.success(), "{args:?}");
    String::from_utf8_lossy(&done.stderr).into_owned()
}

/// A token is for one node, and of this cluster.
fn tokens(site: &Site) {
    let args = site.invitation("hidden3");
    let token = args.last().unwrap().clone();
    let mut wrong = args.clone();
    *wrong.last_mut().unwrap() = format!("{}{}", &token[..64], "0".repeat(32));
    assert!(run(site, "w1", &wrong).contains("the token does not hold for node hidden3"));
    let mut other = args.clone();
    "hidden4".clone_into(&mut other[4]);
    assert!(run(site, "w2", &other).contains("the token does not hold for node hidden4"), "{other:?}");
    // Another controller's key: this one does not answer.
    let mut elsewhere = args;
    *elsewhere.last_mut().unwrap() = format!("{}{}", "2".repeat(64), &token[64..]);
    assert!(run(site, "w3", &elsewhere).contains("cannot join as node hidden3"));
    let mode = |path: &str| fs::metadata(site.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("head/keys"), mode("head/keys/controller")), (0o700, 0o600));
}

/// A machine joins by way of somebody who listens; all that it said is said again.
fn replay(site: &mut Site) -> usize {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = proxy.local_addr().unwrap();
    let said: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let (controller, kept) = (site.controller.clone(), Arc::clone(&said));
    std::thread::spawn(move || {
        for caller in proxy.incoming().flatten() {
            let Ok(called) = TcpStream::connect(&controller) else { return };
            let kept = Arc::clone(&kept);
            let at = {
                let mut kept = kept.lock().unwrap();
                kept.push(Vec::new());
                kept.len() - 1
            };
            let (mut from, mut to) = (caller.try_clone().unwrap(), called.try_clone().unwrap());
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(length @ 1..) = from.read(&mut bytes) {
                    kept.lock().unwrap()[at].extend(&bytes[..length]);
                    if to.write_all(&bytes[..length]).is_err() {
                        break;
                    }
                }
                drop(to.shutdown(std::net::Shutdown::Both));
            });
            let (mut from, mut to) = (called, caller);
            std::thread::spawn(move || {
                drop(std::io::copy(&mut from, &mut to));
                drop(to.shutdown(std::net::Shutdown::Both));
            });
        }
    });
    let mut args = site.invitation("hidden2");
    args[2] = address.to_string();
    site.spawn("hidden2", &args.iter().map(String::as_str).collect::<Vec<_>>());
    site.until_up(&["hidden2"]);
    cve_2020_27746_the_token_is_not_in_arguments(args.last().unwrap());
    let conversations = said.lock().unwrap().clone();
    assert!(conversations.len() >= 2, "it joined, and is in the tree");
    let mut heard = 0;
    for bytes in conversations {
        // A name so long that no cipher says it by chance.
        assert!(!bytes.windows(7).any(|word| word == b"hidden2"), "its name can be read");
        let mut stream = TcpStream::connect(&site.controller).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        // A reset is as good an end.
        drop(stream.read_to_end(&mut answer));
        heard = heard.max(answer.len());
    }
    heard
}

/// faults.md L2: a token stands in no process's arguments, which everybody may read.
fn cve_2020_27746_the_token_is_not_in_arguments(token: &str) {
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        assert!(!line.contains(token), "{line}");
    }
}

/// Bytes that are no handshake, and connections that say nothing.
fn nonsense(site: &Site) {
    let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(&site.controller).unwrap()).collect();
    for length in [1_usize, 2, 3, 50, 98, 1000, 100_000] {
        for fill in [0_u8, 0xff, 0x41] {
            let mut stream = TcpStream::connect(&site.controller).unwrap();
            drop(stream.write_all(&vec![fill; length]));
        }
    }
    let mut stream = TcpStream::connect(&site.controller).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    drop(stream.write_all(&[[0, 96].as_slice(), &[7; 96]].concat()));
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    assert!(answer.is_empty(), "{answer:?}");
    site.ok(&["sinfo"]);
    drop(silent);
}

/// A machine's key is its name's and no other's.
fn names_and_keys(site: &mut Site) {
    site.kill("hidden2");
    let copy = |to: &str| {
        let target = site.path(to);
        assert!(
            std::process::Command::new("cp").args(["-r", &site.path("hidden2"), &target]).status().unwrap().success()
        );
        Path::new(&target).join("keys")
    };
    // Under another's name.
    let keys = copy("hidden3-thief");
    let joined = fs::read_to_string(keys.join("joined")).unwrap();
    fs::write(keys.join("joined"), joined.replacen("hidden2", "hidden3", 1)).unwrap();
    let said = site.join_again("hidden3-thief");
    assert!(said.contains("does not know this machine as node hidden3"), "{said}");
    // With a key of its own.
    let keys = copy("hidden2-fake");
    fs::remove_file(keys.join("own")).unwrap();
    let said = site.join_again("hidden2-fake");
    assert!(said.contains("does not know this machine as node hidden2"), "{said}");
    // Called by a key that is not the controller's: nobody answers, and what it was told before does not help.
    let keys = copy("hidden2-lured");
    let key = joined.split_whitespace().nth(2).unwrap();
    fs::write(keys.join("joined"), joined.replace(key, &"2".repeat(64))).unwrap();
    let mut child =
        site.command("hidden2-lured", &["node", "hidden2"]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut log = child.stderr.take().unwrap();
    let (mut said, mut bytes) = (String::new(), [0; 512]);
    while !said.contains("no way to the controller yet") {
        let length = log.read(&mut bytes).unwrap();
        assert!(length > 0, "{said}");
        said.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    site.resume("hidden2");
    site.until_up(&["hidden2"]);
}
