//! Mail about jobs, to a relay that listens in the test, and by a program.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use super::{Cluster, PATIENCE, text};

/// Recipients and headers of a mail.
type Mail = (Vec<String>, Vec<String>);

/// Most mails that wait to be looked at.
const WAITING_MAX: usize = 64;

/// Starts an SMTP server that takes every mail; returns its address and the mails: recipients and headers.
fn relay() -> (String, Receiver<Mail>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (send, mails) = sync_channel(WAITING_MAX);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut say = |line: &str| stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
            let (mut to, mut headers) = (Vec::new(), Vec::new());
            say("220 sink");
            while let Some(Ok(line)) = lines.next() {
                match line.split(':').next().unwrap() {
                    "RCPT TO" => to.push(line["RCPT TO:<".len()..].trim_end_matches('>').to_owned()),
                    "DATA" => {
                        say("354 go on");
                        headers.extend(lines.by_ref().map(Result::unwrap).take_while(|line| line != "."));
                    }
                    "QUIT" => break,
                    _ => {}
                }
                say(if line.starts_with("EHLO") { "250-sink\r\n250 PIPELINING" } else { "250 fine" });
            }
            drop(send.send((to, headers)));
        }
    });
    (address, mails)
}

/// Waits for the next mail; returns its recipients and subject.
fn next(mails: &Receiver<(Vec<String>, Vec<String>)>) -> (String, String) {
    let (to, headers) = mails.recv_timeout(PATIENCE).expect("a mail comes");
    let subject = headers.iter().find_map(|line| line.strip_prefix("Subject: ")).unwrap_or_default();
    // How long it took is not always the same.
    let mut words: Vec<&str> = subject.split(' ').collect();
    for at in 1..words.len() {
        if words[at - 1] == "time" && words[at].starts_with("00:00:") {
            words[at] = if words[at].ends_with(',') { "T," } else { "T" };
        }
    }
    (to.join(","), words.join(" "))
}

#[test]
fn mail_is_sent_once_for_what_was_asked_and_once_for_an_array() {
    let (address, mails) = relay();
    let cluster = Cluster::start("mail", &format!("mail_relay = \"{address}\"\nMailDomain = \"example.org\""));
    let submit = |args: &[&str]| cluster.users_ok(&[&["sbatch", "--parsable", "-o", "/dev/null"], args].concat());
    let mail = |to: &str, subject: String| (to.to_owned(), subject);
    let one = submit(&["-J", "one", "--mail-type=ALL", "--mail-user=ann,bob@x.org", "--wrap", "exit 3"]);
    let both = "ann@example.org,bob@x.org";
    assert_eq!(next(&mails), mail(both, format!("Slurm Job_id={one} Name=one Began, Queued time T")));
    assert_eq!(next(&mails), mail(both, format!("Slurm Job_id={one} Name=one Failed, Run time T, FAILED, ExitCode 3")));
    // Nothing of a job that wants no mail, and of an array a mail for all of its tasks.
    submit(&["--wrap", "true"]);
    let array =
        submit(&["-J", "many", "--array=0-5", "--mail-type=END", "--wrap", "exit $((SLURM_ARRAY_TASK_ID % 2))"]);
    let user = if rustix::process::getuid().is_root() { "daemon@example.org".to_owned() } else { next_user() };
    let summary = format!("Slurm Array Summary Job_id={array}_* ({array}) Name=many Ended, Mixed, ExitCode [0-1]");
    assert_eq!(next(&mails).1, summary);
    // Jobs that end while the mail sender is down are reported when it is back.
    let pid = fs::read_to_string(cluster.path("state/run/mail.pid")).unwrap();
    assert!(Command::new("kill").args(["-9", pid.trim()]).status().unwrap().success());
    let late = submit(&["-J", "late", "--mail-type=END", "--wrap", "true"]);
    cluster.until("the job has ended", || cluster.ok(&["squeue", "-h", "-j", &late, "-t", "CD"]).contains("late"));
    cluster.ok(&["up"]);
    // A sender that is killed before it has noted the relay's answer sends that mail again.
    let first = next(&mails);
    assert_eq!(
        if first.1 == summary { next(&mails) } else { first },
        mail(&user, format!("Slurm Job_id={late} Name=late Ended, Run time T, COMPLETED, ExitCode 0"))
    );
    // A part of the time limit.
    let long = submit(&["-J", "long", "-t", "1", "--mail-type=TIME_LIMIT_50", "--wrap", "exec sleep 60"]);
    assert_eq!(next(&mails).1, format!("Slurm Job_id={long} Name=long Reached 50% of time limit, Run time T"));
    for bad in ["--mail-user=-f", "--mail-user=|sh"] {
        let out = cluster.users(&["sbatch", bad, "--wrap", "true"]).output().unwrap();
        assert!(!out.status.success() && text(&out).contains("Invalid --mail-user"), "{}", text(&out));
    }
    let out = cluster.users(&["scontrol", "update", &format!("job={long}"), "mailuser=/etc/x"]).output().unwrap();
    assert!(!out.status.success(), "{}", text(&out));
}

fn next_user() -> String {
    let name = Command::new("id").arg("-un").output().unwrap();
    format!("{}@example.org", String::from_utf8_lossy(&name.stdout).trim())
}

#[test]
fn a_program_gets_subject_and_user_as_words_and_no_shell_sees_them() {
    let folder = std::env::temp_dir().join(format!("squall-mailer-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
    let (program, told) = (folder.join("mailer"), folder.join("told"));
    let script = format!("#!/bin/sh\nfor word; do echo \"[$word]\"; done > {0}.new\nmv {0}.new {0}\n", told.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let cluster = Cluster::start("mailer", &format!("MailProg = \"{}\"", program.display()));
    let name = "$(touch x)\nBcc: y;`z`";
    let id = cluster.users_ok(&[
        "sbatch",
        "--parsable",
        "-o",
        "/dev/null",
        "-J",
        name,
        "--mail-type=BEGIN",
        "--mail-user=ann",
        "--wrap",
        "true",
    ]);
    cluster.until("the program was called", || told.exists());
    let words = fs::read_to_string(&told).unwrap();
    let subject = format!("[Slurm Job_id={id} Name=$(touch x)?Bcc: y;`z` Began, Queued time 00:00:0");
    assert!(words.starts_with(&format!("[-s]\n{subject}")) && words.ends_with("]\n[ann]\n"), "{words}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn who_wants_mail_of_a_cluster_without_is_told() {
    let cluster = Cluster::start("no-mail", "");
    let out = cluster.users(&["sbatch", "--mail-type=END", "-o", "/dev/null", "--wrap", "true"]).output().unwrap();
    assert!(out.status.success() && text(&out).contains("no mail is sent"), "{}", text(&out));
}
