//! Mistakes of users: what each place says of them. No place may mislead. The rows are those of a trial by newcomers, and
//! more.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::rest::http::Cluster;

/// A job that ends badly: name; arguments, of which the last is the command; what squeue has as state and reason; the
/// first sentence of report and page; the end of the mail's subject; a word of the advice, or nothing.
type Ending = (&'static str, &'static [&'static str], &'static str, &'static str, &'static str, &'static str);

const ENDINGS: &[Ending] = &[
    ("code", &["exit 3"], "FAILED|NonZeroExitCode", "It ended with exit code 3.", "FAILED, ExitCode 3", ""),
    (
        "missing",
        &["nosuchprogram"],
        "FAILED|NonZeroExitCode",
        "It ended with exit code 127: the shell did not find a program.",
        "FAILED, ExitCode 127",
        "",
    ),
    (
        "denied",
        &["/etc/passwd"],
        "FAILED|NonZeroExitCode",
        "It ended with exit code 126: the shell could not run a program that it found.",
        "FAILED, ExitCode 126",
        "",
    ),
    ("syntax", &["if true"], "FAILED|NonZeroExitCode", "It ended with exit code 2.", "FAILED, ExitCode 2", ""),
    (
        "segfault",
        &["kill -SEGV $$"],
        "FAILED|RaisedSignal:11(Segmentation_fault)",
        "It was killed by signal 11 (Segmentation fault).",
        "FAILED, Signal 11",
        "",
    ),
    (
        "abort",
        &["kill -ABRT $$"],
        "FAILED|RaisedSignal:6(Aborted)",
        "It was killed by signal 6 (Aborted).",
        "FAILED, Signal 6",
        "",
    ),
    (
        "in-it",
        &["sh -c 'kill -SEGV $$'; exit $?"],
        "FAILED|NonZeroExitCode",
        "It ended with exit code 139: a program in it was killed by signal 11 (Segmentation fault).",
        "FAILED, ExitCode 139",
        "",
    ),
    (
        "step",
        &["SQUALL srun -n1 sh -c 'kill -SEGV $$'"],
        "FAILED|NonZeroExitCode",
        "It ended with exit code 139: a program in it was killed by signal 11 (Segmentation fault).",
        "FAILED, ExitCode 139",
        "",
    ),
    (
        "rank",
        &["SQUALL srun -n1 false"],
        "FAILED|NonZeroExitCode",
        "It ended with exit code 1.",
        "FAILED, ExitCode 1",
        "",
    ),
    (
        "memory",
        &["--mem=40M", "x=$(head -c 120000000 /dev/zero | tr '\\0' x); sleep 60; echo ${#x}"],
        "OUT_OF_MEMORY|",
        "It used more memory than its limit, 40.00 MB; the highest measured was ",
        "OUT_OF_MEMORY",
        "more memory, such as --mem=",
    ),
    (
        "step-memory",
        &["--mem=40M", "SQUALL srun -n1 sh -c 'x=$(head -c 120000000 /dev/zero | tr \"\\0\" x); sleep 60; echo ${#x}'"],
        "FAILED|NonZeroExitCode",
        "It ended with exit code 1. Step 0 used more memory than its limit.",
        "FAILED, ExitCode 1",
        "more memory, such as --mem=",
    ),
    (
        "out-dir",
        &["-o", "/tmp", "true"],
        "FAILED|Could not open stdout file /tmp: Is a directory",
        "It could not be started: Could not open stdout file /tmp: Is a directory.",
        "FAILED",
        "files that you may write",
    ),
    (
        "out-file",
        &["-o", "/etc/passwd/x.out", "true"],
        "FAILED|Could not open stdout file /etc/passwd/x.out: Not a directory",
        "It could not be started: Could not open stdout file /etc/passwd/x.out: Not a directory.",
        "FAILED",
        "files that you may write",
    ),
    (
        "no-input",
        &["-i", "/no/such/input", "cat"],
        "FAILED|Could not open stdin file /no/such/input: No such file or directory",
        "It could not be started: Could not open stdin file /no/such/input: No such file or directory.",
        "FAILED",
        "files that you may write",
    ),
    (
        "full",
        &["-o", "/dev/full", "echo hello"],
        "FAILED|NonZeroExitCode",
        "It ended with exit code 1.",
        "FAILED, ExitCode 1",
        "",
    ),
    (
        "late",
        &["-t", "1", "sleep 100"],
        "TIMEOUT|TimeLimit",
        "It reached its time limit, 00:01:00, and was ended.",
        "TIMEOUT",
        "a longer limit, such as --time=",
    ),
];

/// A job that waits: name, arguments, what squeue has as reason, and the first sentence of `squall why`, report and page.
/// JOB is a job that has failed.
const WAITS: &[(&str, &[&str], &str, &str)] = &[
    ("held", &["-H"], "JobHeldUser", "waits. Main reason: JobHeldUser."),
    ("later", &["--begin=now+1day"], "BeginTime", "waits. Main reason: BeginTime."),
    ("large", &["-N", "9"], "PartitionConfig", "can never start as it is: PartitionConfig."),
    (
        "never",
        &["-d", "afterok:JOB"],
        "DependencyNeverSatisfied",
        "can never start as it is: DependencyNeverSatisfied.",
    ),
    ("licences", &["-L", "tool:2", "-d", "after:HELD"], "Dependency", "waits. Main reason: Dependency."),
];

/// What commands say on standard error, and their exit codes. `SQUALL_HINTS` is 1.
const SAID: &[(&[&str], i32, &[&str])] = &[
    (&["sbatch", "--nodse=2", "ok.sh"], 255, &["did you mean '--nodes'?"]),
    (&["sbatch", "-t", "abc", "ok.sh"], 255, &["--time=abc: it is not minutes, minutes:seconds"]),
    (&["sbatch", "--begin=tomorow", "ok.sh"], 255, &["tomorrow, midnight, noon"]),
    (&["sbatch", "--mail-type=ENDD", "ok.sh"], 255, &["use one or several of ALL"]),
    (&["sbatch", "-a", "5-x", "ok.sh"], 1, &["`x` is not an index; use a list such as 0-9"]),
    (&["sbatch", "-d", "afterokk:1", "ok.sh"], 1, &["`afterokk:1` is none of after"]),
    (&["sbatch", "--gres=gpuu:1", "ok.sh"], 1, &["no node of the partition has gpuu"]),
    (&["sbatch", "-L", "none", "ok.sh"], 1, &["there are no licenses called none"]),
    (&["sbatch", "-w", "n9", "ok.sh"], 1, &["no node is called n9; sinfo -N lists them"]),
    (&["sbatch", "-C", "none", "ok.sh"], 1, &["--constraint=none: no node has such a feature"]),
    (&["sbatch", "--reservation=none", "ok.sh"], 1, &["there is no reservation called none"]),
    (&["sbatch", "-n", "0", "ok.sh"], 1, &["use a whole number from 1 on"]),
    (&["sbatch", "-a", "0-99999999", "ok.sh"], 1, &["index 99999999 is above the highest"]),
    (&["sbatch", "-N", "-1", "ok.sh"], 255, &["--nodes=-1: use 2 or 2-4"]),
    (&["sbatch", "-N", "3-2", "ok.sh"], 255, &["--nodes=3-2: use 2 or 2-4"]),
    (&["sbatch", "--mem=lots", "ok.sh"], 255, &["it is not a number followed by K, M, G or T"]),
    (&["sbatch", "--signal=FOO", "ok.sh"], 255, &["such as B:USR1@120"]),
    (&["sbatch", "crlf.sh"], 1, &["DOS line breaks"]),
    (&["sbatch", "empty.sh"], 1, &["Batch script is empty!"]),
    (&["sbatch", "plain.txt"], 1, &["line must start with #!"]),
    (&["sbatch", "."], 1, &["Is a directory"]),
    (&["sbatch", "nothing.sh"], 1, &["Unable to open file nothing.sh"]),
    (&["sbatch", "--wrap", "true", "ok.sh"], 1, &["Script arguments not permitted with --wrap"]),
    (&["sbatch", "--mem=900G", "ok.sh"], 1, &["Memory specification can not be satisfied", "at most 2 CPUs and"]),
    (&["sbatch", "-c", "99", "ok.sh"], 1, &["CPU count per node can not be satisfied", "at most 2 CPUs and"]),
    (&["sbatch", "-N1", "-n8", "ok.sh"], 1, &["too few nodes of the partition have what is asked for"]),
    (&["sbatch", "-p", "gpuu", "ok.sh"], 1, &["invalid partition specified: gpuu", "there are: debug"]),
    (&["sbatch", "-d", "afterok:99999", "-H", "ok.sh"], 0, &["hint: --dependency: you can see no job 99999"]),
    (&["scancel", "99999"], 0, &["hint: no job 99999 is pending or running"]),
    (&["scancel", "-n", "nobody-has-it"], 0, &["hint: no pending or running job matches"]),
    (&["sinfo", "-p", "gpuu"], 0, &["hint: there is no partition `gpuu`; there are: debug"]),
    (&["sinfo", "-n", "n9"], 0, &["hint: there is no node `n9`"]),
    (&["squeue", "-p", "gpuu"], 0, &["hint: there is no partition `gpuu`"]),
    (&["sbatch", "-H", "ok.sh", "-N", "2"], 0, &["`-N` goes to the script: write options of sbatch before `ok.sh`"]),
    (&["sbatch", "-H", "typo.sh"], 0, &["line 2: `#SBTACH` begins a comment", "line 5: #SBATCH is ignored here"]),
    (&["sbatch", "–-nodes=2", "ok.sh"], 1, &["begins with a dash of a word processor: write `--nodes=2`"]),
    (&["sbatch", "-H", "-t", "12:00", "ok.sh"], 0, &["means 12 minutes: for 12 hours write --time=12:00:00"]),
    (&["sbatch", "-H", "-t", "24:00", "ok.sh"], 0, &["means 24 minutes: for 24 hours write --time=24:00:00"]),
    (&["sbatch", "-H", "-t", "48:00", "ok.sh"], 0, &["means 48 minutes"]),
    (&["sbatch", "-H", "-t", "72:00", "ok.sh"], 0, &["means 72 minutes"]),
    (&["sbatch", "-H", "-D", "/no/such/dir", "--wrap", "true"], 0, &["there is no folder /no/such/dir here"]),
    (&["wy"], 2, &["there is no command `wy`; did you mean `why`? `squall help` lists them"]),
    (&["squeue", "-t", "RUNING"], 1, &["Invalid job state specified: RUNING", "PENDING,RUNNING"]),
    (&["squeue", "-j", "99999"], 1, &["Invalid job id specified"]),
    (&["scontrol", "show", "job", "99999"], 1, &["Invalid job id specified"]),
    (&["report", "99999"], 1, &["there is no job 99999 that you may see; `sacct` lists yours"]),
    (&["tail", "99999"], 1, &["there is no job 99999 that you may see"]),
];

/// Runs a command with hints. Returns standard output, standard error, exit code.
fn run(c: &Cluster, args: &[&str]) -> (String, String, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
    command.args(args).env_clear().env("PATH", "/usr/bin:/bin").env("SQUALL_HINTS", "1");
    let out = command.env("SQUALL_STATE", c.dir.join("state")).current_dir(&c.dir).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&out.stdout), text(&out.stderr), out.status.code().unwrap_or(-1))
}

/// Returns the folder of the mails of a test.
fn folder(test: &str) -> PathBuf {
    std::env::temp_dir().join(format!("squall-mails-{}-{test}", std::process::id()))
}

/// Starts a cluster whose mail is kept in files, and writes the scripts of the tables.
fn cluster(test: &str) -> Cluster {
    let mails = folder(test);
    std::fs::create_dir_all(&mails).unwrap();
    std::fs::set_permissions(&mails, PermissionsExt::from_mode(0o777)).unwrap();
    let program = mails.join("mailer");
    let folder = mails.display();
    let script = format!("#!/bin/sh\n{{ echo \"$2\"; cat; }} > {folder}/$$.new\nmv {folder}/$$.new {folder}/$$.mail\n");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let c = Cluster::start_with(test, &format!("licenses = \"tool:2\"\nmail_prog = \"{}\"\n", program.display()));
    let typo = "#!/bin/sh\n#SBTACH -n2\n#SBATCH -J a\ntrue\n#SBATCH -n2\n";
    let files = [
        ("ok.sh", "#!/bin/sh\n"),
        ("crlf.sh", "#!/bin/sh\r\ntrue\r\n"),
        ("empty.sh", ""),
        ("plain.txt", "echo\n"),
        ("typo.sh", typo),
    ];
    for (name, text) in files {
        std::fs::write(c.dir.join(name), text).unwrap();
    }
    std::fs::write(c.dir.join("interpreter.sh"), "#!/usr/bin/pyhton3\nprint(1)\n").unwrap();
    c
}

/// Returns all mails that have come: subject and text.
fn mails(test: &str) -> Vec<String> {
    let all = std::fs::read_dir(folder(test)).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|end| end == "mail"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect()
}

/// Returns the text of a page without its elements.
fn page(c: &Cluster, token: &str, job: &str) -> String {
    let html = c.get(token, &format!("/job/{job}")).body;
    let mut text = String::new();
    for piece in html.split('<') {
        text.push_str(piece.split_once('>').map_or(piece, |(_, rest)| rest));
    }
    text.replace("&#39;", "'").replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

fn submit(c: &Cluster, name: &str, args: &[&str]) -> String {
    let words = ["sbatch", "--parsable", "--mail-type=ALL", "-J", name];
    let all: Vec<String> =
        words.iter().chain(args).map(|word| word.replace("SQUALL", env!("CARGO_BIN_EXE_squall"))).collect();
    c.ok(&all.iter().map(String::as_str).collect::<Vec<_>>()).trim().to_owned()
}

#[test]
fn of_a_job_that_ends_badly_squeue_report_page_and_mail_say_the_same() {
    let c = cluster("ends-badly");
    let token = c.token(None);
    let mut jobs = Vec::new();
    for (name, args, ..) in ENDINGS {
        let (command, options) = args.split_last().unwrap();
        let limit: &[&str] = if options.contains(&"-t") { &[] } else { &["-t", "5"] };
        jobs.push(submit(&c, name, &[limit, options, &["--wrap", command]].concat()));
    }
    let interpreter = submit(&c, "interpreter", &["-t", "5", "interpreter.sh"]);
    let bad = "execve(): bad interpreter(/usr/bin/pyhton3): No such file or directory";
    let told = format!("It could not be started: {bad}.");
    let squeue = format!("FAILED|{bad}");
    let own = ("interpreter", &[][..], &*squeue, &*told, "FAILED, ExitCode 2", "");
    // The one that reaches its time limit, a minute, is the last one.
    for (job, row) in [(&interpreter, &own)].into_iter().chain(jobs.iter().zip(ENDINGS.iter().map(|row| row as _))) {
        let (name, _, squeue, cause, subject, advice): &Ending2<'_> = row;
        let mut seen = String::new();
        Cluster::until(&format!("{name}: {squeue}"), || {
            seen = c.ok(&["squeue", "-h", "-t", "all", "-j", job, "-o", "%T|%r"]);
            seen.starts_with(squeue)
        });
        let (report, _, _) = run(&c, &["report", job]);
        assert!(report.lines().nth(1).is_some_and(|line| line.trim().starts_with(cause)), "{name}: {report}");
        assert!(advice.is_empty() != report.contains("Next time:") && report.contains(advice), "{name}: {report}");
        let page = page(&c, &token, job);
        assert!(page.contains(cause) && page.contains(advice), "{name}: {page}");
        assert!(!page.contains("--time=00:00:00") && advice.is_empty() != page.contains("Next time"), "{name}: {page}");
        let mine = |mail: &&String| {
            mail.contains(&format!("Job_id={job} "))
                && mail
                    .lines()
                    .next()
                    .is_some_and(|line| line.ends_with(subject) || line.contains(&format!("{subject}, ")))
        };
        let mut found = String::new();
        Cluster::until(&format!("{name}: a mail ends with {subject}; all: {:?}", mails("ends-badly")), || {
            found = mails("ends-badly").iter().find(mine).cloned().unwrap_or_default();
            !found.is_empty()
        });
        assert!(found.contains(cause) && found.contains(advice), "{name}: {found}");
    }
    let missing = mails("ends-badly").into_iter().find(|mail| mail.contains("did not find a program")).unwrap();
    assert!(missing.contains("The end of its output") && missing.contains("nosuchprogram"), "{missing}");
    drop(std::fs::remove_dir_all(folder("ends-badly")));
}

/// A row whose texts live as long as a test.
type Ending2<'a> = (&'a str, &'a [&'a str], &'a str, &'a str, &'a str, &'a str);

#[test]
fn of_a_job_that_waits_squeue_why_report_and_page_have_one_verdict() {
    let c = Cluster::start_with("waits", "licenses = \"tool:2\"\n");
    let token = c.token(None);
    let failed = submit(&c, "failed", &["--wrap", "exit 1"]);
    let held = submit(&c, "first", &["-H", "--wrap", "true"]);
    Cluster::until("the first one fails", || {
        c.ok(&["squeue", "-h", "-t", "all", "-j", &failed, "-o", "%T"]).contains("FAILED")
    });
    for (name, args, reason, verdict) in WAITS {
        let args: Vec<String> = args.iter().map(|arg| arg.replace("JOB", &failed).replace("HELD", &held)).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).chain(["--wrap", "true"]).collect();
        let job = submit(&c, name, &args);
        let told = format!("Job {job} {verdict}");
        let mut seen = String::new();
        Cluster::until(&format!("{name}: {reason}"), || {
            seen = c.ok(&["squeue", "-h", "-j", &job, "-o", "%r"]);
            seen.trim() == *reason
        });
        let (why, report) = (run(&c, &["why", &job]).0, run(&c, &["report", &job]).0);
        let mut shown = String::new();
        // The server's list of jobs is a few seconds old at times.
        Cluster::until(&format!("{name}: the page says {told}"), || {
            shown = page(&c, &token, &job);
            shown.contains(&told)
        });
        let page = shown;
        assert!(
            why.starts_with(&told) && report.contains(&told) && page.contains(&told),
            "{name}: {why}\n{report}\n{page}"
        );
        assert!(page.contains("Expected start") != verdict.contains("never"), "{name}: {page}");
    }
    // What is cancelled for its dependency was not cancelled by a person.
    let dependency = format!("afterok:{failed}");
    let killed = submit(&c, "killed", &["-d", &dependency, "--kill-on-invalid-dep=yes", "--wrap", "true"]);
    Cluster::until("it is cancelled", || {
        c.ok(&["squeue", "-h", "-t", "all", "-j", &killed, "-o", "%T"]).contains("CANCELLED")
    });
    let report = run(&c, &["report", &killed]).0;
    assert!(report.contains("cancelled before it started: its dependency could no longer be met"), "{report}");
}

#[test]
fn what_commands_say_of_mistakes() {
    let c = cluster("said");
    for (args, exit, words) in SAID {
        let (out, err, code) = run(&c, args);
        assert!(code == *exit, "{args:?}: {code}: {out}{err}");
        assert!(words.iter().all(|word| err.contains(word)), "{args:?}: {err}");
    }
    drop(std::fs::remove_dir_all(folder("said")));
}
