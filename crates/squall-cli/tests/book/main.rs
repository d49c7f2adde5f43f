//! The book's test: runs the commands of README.md and of the pages below docs/, and compares what they print.
//!
//! A page runs from top to bottom on machines that are made for it (`machines.sh`) and gone after it. Blocks fenced as
//! `console` have prompts: `$ ` (user alice), `# ` (root), `HOST$ `, `HOST# `, `bob$ `, `bob@HOST$ `. A line after a
//! command is output: it must be a line of the real output, in that order. Runs of digits and of blanks count as one,
//! `...` stands for any text, and lines of tasks (`0: n1`, or those of `srun`) may come in any order. `[exit N]` is the
//! exit status, otherwise 0. Commands that only look (`squeue`, `cat`) are repeated for a while until they print what is
//! shown. A block with `title=PATH` (or `title=HOST:PATH`) is written to that file.
//!
//! `cargo test --test book -- quickstart` runs the pages with that in their name; `SQUALL_BOOK_BINARY` is another
//! binary; with `SQUALL_BOOK_CPUS=8` the machines seem to have eight CPUs.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test says what failed by failing")]

mod machines;
mod page;

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use machines::Machines;
use page::Item;

/// Pages that run at the same time.
const WORKERS: usize = 2;

/// How long a command that only looks is repeated.
const PATIENCE: Duration = Duration::from_secs(20);

/// Programs that this machine may lack. A page ends at the first command that needs a missing one.
const OPTIONAL: [&str; 8] = ["cc", "curl", "etcd", "mpicc", "mpicc.mpich", "mpicc.openmpi", "openssl", "python3"];

/// The machine of a page that names none.
const HOST: &str = "head";

/// Pages that are wrong on purpose, and what the test must say of them.
const WRONG: [(&str, &str); 5] = [
    ("right.md", ""),
    (
        "wrong-output.md",
        "wrong-output.md:4: `# squall up --nodes 2`: not in the output, at least not there:\n    cluster wrong",
    ),
    ("wrong-status.md", "wrong-status.md:4: `$ test -e nothing-there`: exit status 1, not 0"),
    ("wrong-order.md", "wrong-order.md:4: `$ printf 'one\\ntwo\\n'`: not in the output, at least not there:\n    one"),
    ("wrong-block.md", "wrong-block.md: line 3: it begins without a prompt"),
];

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if std::env::args().any(|a| a == "--list") {
        return ExitCode::SUCCESS;
    }
    if let Some(why) = lack() {
        println!("test book ... skipped: {why}");
        return ExitCode::SUCCESS;
    }
    let scratch = scratch();
    let chosen = |page: &PathBuf| wanted.is_empty() || wanted.iter().any(|w| page.to_string_lossy().contains(w));
    let pages: VecDeque<PathBuf> = pages().into_iter().filter(chosen).collect();
    let (queue, failed, passed) = (Mutex::new(pages), Mutex::new(Vec::new()), Mutex::new(0));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let Some(page) = queue.lock().unwrap().pop_front() else { return };
                    let (name, begin) = (name(&page), Instant::now());
                    let complaint = judged(&page, &scratch);
                    let word = if complaint.is_ok() { "ok" } else { "FAILED" };
                    println!("test {name} ... {word} ({:.1} s)", begin.elapsed().as_secs_f64());
                    match complaint {
                        Ok(()) => *passed.lock().unwrap() += 1,
                        Err(complaint) => failed.lock().unwrap().push(complaint),
                    }
                }
            });
        }
    });
    fs::remove_dir_all(&scratch).unwrap();
    let (failed, passed) = (failed.into_inner().unwrap(), passed.into_inner().unwrap());
    for complaint in &failed {
        println!("\n{complaint}");
    }
    let word = if failed.is_empty() { "ok" } else { "FAILED" };
    println!("\ntest result: {word}. {passed} passed; {} failed; 0 ignored; 0 measured; 0 filtered out", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a page. For one of `WRONG` it is an error if the complaint is another.
fn judged(page: &Path, scratch: &Path) -> Result<(), String> {
    let result = run(page, scratch);
    let file = page.file_name().unwrap().to_string_lossy();
    let Some((_, known)) = WRONG.iter().find(|(wrong, _)| page.starts_with(fixtures()) && *wrong == file) else {
        return result;
    };
    let said = result.err().unwrap_or_default();
    let as_known = if known.is_empty() { said.is_empty() } else { said.contains(known) };
    if as_known { Ok(()) } else { Err(format!("{}: the test should say:\n{known}\nand says:\n{said}", name(page))) }
}

/// Runs what a page has, from top to bottom. The error is a text for people.
fn run(page: &Path, scratch: &Path) -> Result<(), String> {
    let name = name(page);
    let items = page::read(&fs::read_to_string(page).unwrap()).map_err(|e| format!("{name}: {e}"))?;
    let mut hosts: Vec<String> = Vec::new();
    for item in &items {
        let (Item::File { host, .. } | Item::Command(page::Command { host, .. })) = item;
        hosts.extend(host.clone().filter(|host| !hosts.contains(host)));
    }
    if hosts.is_empty() {
        hosts.push(HOST.to_owned());
    }
    let first = hosts.iter().find(|host| *host == HOST).unwrap_or(&hosts[0]).clone();
    let mut machines = Machines::start(scratch, &hosts).map_err(|e| format!("{name}: {e}"))?;
    for item in &items {
        match item {
            Item::File { host, path, text } => {
                let user = if path.starts_with('/') { "root" } else { "alice" };
                let host = host.as_ref().unwrap_or(&first);
                machines.write(host, user, path, text).map_err(|e| format!("{name}: {e}"))?;
            }
            Item::Command(command) if lacks(command) => {
                println!("{name}:{}: skipped from here on, for lack of `{}`", command.line, command.program());
                return Ok(());
            }
            Item::Command(command) => {
                let host = command.host.as_ref().unwrap_or(&first);
                let complaint = carried_out(&mut machines, host, command);
                complaint.map_err(|e| format!("{name}:{}: `{}`: {e}", command.line, command.as_written()))?;
            }
        }
    }
    Ok(())
}

/// Returns whether a command needs an optional program that is not installed.
fn lacks(command: &page::Command) -> bool {
    let program = command.program();
    let is_there = |folder: PathBuf| folder.join(program).exists();
    OPTIONAL.contains(&program) && !std::env::split_paths(machines::PATH).any(is_there)
}

/// Runs a command and compares its output and exit status with the page.
fn carried_out(machines: &mut Machines, host: &str, command: &page::Command) -> Result<(), String> {
    let begin = Instant::now();
    loop {
        let (output, exit) = machines.run(host, &command.user, &command.text)?;
        let Some(complaint) = command.complaint(&output, exit) else { return Ok(()) };
        if !command.only_looks() || begin.elapsed() > PATIENCE {
            return Err(format!("{complaint}\nall of the output:\n{output}"));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Returns why no machines can be made here. None: they can.
fn lack() -> Option<String> {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return Some("only root can make namespaces".to_owned());
    }
    let runs = |command: &[&str]| {
        let out = Command::new(command[0]).args(&command[1..]).output();
        out.is_ok_and(|out| out.status.success())
    };
    let needed: [&[&str]; 4] = [
        &["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup", "--fork", "true"],
        &["nsenter", "--version"],
        &["setpriv", "--version"],
        &["ip", "-V"],
    ];
    let lacking = needed.into_iter().find(|command| !runs(command))?;
    Some(format!("`{}` fails", lacking.join(" ")))
}

/// Makes the folder with what machines get: the binary, and what C programs and Python programs use.
fn scratch() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("squall-book-{}", std::process::id()));
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).unwrap();
    let binary = std::env::var_os("SQUALL_BOOK_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_squall").into());
    fs::copy(binary, folder.join("squall")).unwrap();
    // Cargo puts the library of a crate that tests depend on beside the tests.
    let test = std::env::current_exe().unwrap();
    let pairs = [
        (test.with_file_name("libsquallclient.so"), "usr/local/lib"),
        (root().join("crates/squall-c/squall.h"), "usr/local/include"),
        (root().join("python/squall"), "usr/lib/python3/dist-packages"),
    ];
    for (from, to) in pairs.into_iter().filter(|(from, _)| from.exists()) {
        let to = folder.join("share").join(to);
        fs::create_dir_all(&to).unwrap();
        assert!(Command::new("cp").arg("-r").args([from, to]).status().unwrap().success());
    }
    folder
}

/// The pages that have commands, and those of `WRONG`.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs"), fixtures()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension() == Some("md".as_ref()) {
                pages.push(path);
            }
        }
    }
    pages.retain(|page| fs::read_to_string(page).unwrap().contains("```console"));
    pages.sort();
    pages
}

/// A page's path from the root of the repository.
fn name(page: &Path) -> String {
    page.strip_prefix(root()).unwrap().display().to_string()
}

fn fixtures() -> PathBuf {
    root().join("crates/squall-cli/tests/book/fixtures")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}
