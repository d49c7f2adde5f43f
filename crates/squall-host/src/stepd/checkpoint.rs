//! Processes that make checkpoints of jobs and restore them, with CRIU.
//!
//! CRIU runs as the job's user. Of root's rights it has only what it can't do without: choosing process ids
//! (CAP_CHECKPOINT_RESTORE) and a smaller set of capabilities for what it restores (CAP_SETPCAP). So the files that a
//! job had open are opened again with its user's rights, whatever has become of their paths meanwhile.
//!
//! A checkpoint is the folder `DIR/JOB/NUMBER`: `images`, which CRIU writes and which belongs to the user, and
//! `manifest`, which is written last. `DIR/JOB` is root's, and nobody else enters it; CRIU is started within `images`.
//! The folder gets its name when all of it is durable, so one with such a name is complete.
//!
//! The processes of a restored job have process ids of their own (pid_namespaces(7)), so that they get those that they had,
//! whoever has these outside.
//!
//! Of a job of several nodes each makes a part: `DIR/JOB/NUMBER` is that of the first one, and `DIR/JOB/NUMBER-PLACE` that of
//! another. The job stays frozen until the controller has compared the parts (`super::links`). Restored parts wait for each
//! other within CRIU, before their connections are alive (`super::restorer`).
//!
//! While CRIU is at work on a job, the job's mark is set (`dump_mark`). A CRIU that was killed may have left the job's
//! processes half-changed: they must not go on, and the node daemon reports the job as damaged.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use minicbor::{Decode, Encode};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CapabilitySet, CapabilitySets, LinkNameSpaceType, move_into_link_name_space};
use squall_engine::node::attempt_of;
use squall_files::safe_path::{self, Who};
use squall_model::codec;
use squall_model::encoding::{self, ByteBuf};
use squall_model::job::JobAttempt;
use squall_model::step::StepLaunch;

use crate::cgroup::FREEZE as FREEZE_SWITCH;
use crate::descendants::{descendants, signal_all};
use crate::dump_mark::Mark;
use crate::processes::{Stat, inner_pid, is_pending};
use crate::removal::remove;
use crate::spool::{TaskPid, file, tasks_in};
use crate::sys::host::is_ours;
use crate::sys::identity::{Identity, become_user};
use crate::sys::pidfd::set_child_subreaper;
use crate::sys::signals;

use super::keeper::KEEP;
use super::links::links_of;
use super::ports::ports_of;
use super::saved_files::{SavedFile, rooms_of, save};
use super::surroundings::connections;

/// The oldest CRIU that can dump sockets on present kernels.
const CRIU: (u32, u32) = (4, 2);
/// Time in which a frozen group comes to rest.
const FREEZE: Duration = Duration::from_secs(10);
/// Longest time for which a script is waited for that is being started.
const STARTING: Duration = Duration::from_secs(1);
/// Pause between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(1);
/// Time in which what is under way between frozen nodes mostly arrives and is acknowledged: that of a delayed
/// acknowledgement.
const ARRIVAL: Duration = Duration::from_millis(45);
/// How often a job is dumped of which a process is just connected to the controller, and the pause between.
const TRIES: u32 = 5;
const AGAIN: Duration = Duration::from_millis(100);
/// Longest time that commands of the job have to close their connections before a dump, and what they need after they have
/// got the signal.
const PARTING: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(5));
/// Most bytes that are read of what CRIU writes.
const TEXT_BYTES_MAX: u64 = 64 << 10;
/// Options of CRIU for dumping and for restoring.
pub(super) const OPTIONS: [&str; 10] = [
    "--no-default-config",
    "-D",
    ".",
    "-v1",
    "--shell-job",
    "--manage-cgroups=ignore",
    "--network-lock",
    "skip",
    "--file-locks",
    "--unprivileged",
];

/// What is needed of a checkpoint beside CRIU's images.
#[derive(Debug, Encode, Decode)]
pub(super) struct Manifest {
    /// Path of the script in the step's folder, under which processes have it open.
    #[n(0)]
    pub(super) script: ByteBuf,
    /// Files that processes had open for writing, with their sizes.
    #[n(1)]
    pub(super) files: Vec<(ByteBuf, u64)>,
    /// How far the script was read: shells go on reading there.
    #[n(2)]
    pub(super) read: u64,
    /// Files that processes shared as memory, and their steps' folders.
    #[n(3)]
    #[cbor(default)]
    pub(super) shared: Vec<SavedFile>,
    /// Whether processes were connected with each other by TCP.
    #[n(4)]
    #[cbor(default)]
    pub(super) connected: bool,
    /// TCP ports of the processes.
    #[n(5)]
    #[cbor(default)]
    pub(super) ports: Vec<u16>,
    /// Process id of the script or keeper, as the job sees it. None: made by an earlier release.
    #[n(6)]
    pub(super) pid: Option<u32>,
}

impl Manifest {
    /// Reads the manifest of a complete checkpoint.
    pub(super) fn of(checkpoint: &Path) -> io::Result<Self> {
        let bytes = fs::read(checkpoint.join("manifest"))
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", checkpoint.display())))?;
        encoding::from_slice(&bytes).map_err(io::Error::other)
    }
}

/// Option of CRIU for processes that are connected with each other by TCP.
pub(super) const CONNECTED: &str = "--tcp-established";
/// Folder within a checkpoint of the files that processes shared as memory.
pub(super) const SHARED: &str = "shared";

/// Returns the folder of a job's checkpoints.
pub(crate) fn folder(dir: &Path, job: u32) -> PathBuf {
    dir.join(job.to_string())
}

/// Returns the end of the names of what belongs to this node's part of a job.
fn part_of(launch: &StepLaunch) -> String {
    if launch.has_keeper() { format!("-{}", launch.job_node_index) } else { String::new() }
}

/// Returns the folder of the checkpoint from which a script or keeper is to be restored. None: it begins.
pub(super) fn restored_from(dir: &Path, launch: &StepLaunch) -> Option<PathBuf> {
    let number = launch.facts.restore?.number;
    Some(folder(dir, launch.key.job.0).join(format!("{number}{}", part_of(launch))))
}

/// Returns this program as a command with these words.
fn own(words: &[&OsStr]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("squall").arg("step").args(words).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// Reads the launch of a step from the step's folder.
pub(super) fn launch_of(step: &Path) -> io::Result<StepLaunch> {
    let bytes = fs::read(step.join(file::LAUNCH))?;
    let launch = codec::take::<StepLaunch>(&bytes).map_err(io::Error::other)?;
    launch.map(|(launch, _)| launch).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

pub(super) fn identity_of(launch: &StepLaunch) -> Identity {
    let owner = &launch.facts.owner;
    Identity { uid: owner.uid, gid: owner.gid, groups: owner.groups.clone() }
}

/// Carries out `squall step --criu STEP ROOT PROGRAM ARG...`: becomes the step's user, with the rights that CRIU needs, and
/// executes the program. ROOT: the process of which it gets host name and mounts; 0: none. Returns only if that fails.
pub fn run_criu(args: &[OsString]) -> u8 {
    let [step, root, program, rest @ ..] = args else { return 2 };
    let failed = launch_of(Path::new(step)).and_then(|launch| {
        if root != "0" {
            be_beside(&root.to_string_lossy())?;
        }
        become_user_for_criu(&identity_of(&launch), rest.iter().any(|word| word == CONNECTED))?;
        // The helper that has started it may be killed, and then nobody would wait for its end.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        Err::<(), _>(Command::new(program).args(rest).exec())
    });
    if let Err(e) = failed {
        eprintln!("{}: {e}", program.display());
    }
    1
}

/// Gets the host name and the mounts of a process. Nodes of one machine have host names of their own, and each run of a node
/// daemon and each restored job has mounts of its own: CRIU can't dump what has others.
fn be_beside(root: &str) -> io::Result<()> {
    let kinds = [("uts", LinkNameSpaceType::HostNameAndNISDomainName), ("mnt", LinkNameSpaceType::Mount)];
    let spaces = kinds.map(|(name, kind)| (format!("/proc/self/ns/{name}"), format!("/proc/{root}/ns/{name}"), kind));
    // All are opened first: with the mounts, the process ids in /proc may change.
    let mut meant = Vec::new();
    for (own, others, kind) in spaces {
        if fs::read_link(own)? != fs::read_link(&others)? {
            let space = File::open(others)?;
            // Here and not only before: if the job was killed, another process may have its process id by now.
            if !is_ours(&space)? {
                return Err(io::Error::other("its mounts or its host name are of a user's making"));
            }
            meant.push((space, kind));
        }
    }
    // Other mounts come with another working directory.
    let here = File::open(".")?;
    for (space, kind) in meant {
        move_into_link_name_space(space.as_fd(), Some(kind))?;
    }
    Ok(rustix::process::fchdir(here)?)
}

/// Becomes the user, and keeps the rights that CRIU needs over the execution of a program. `connected`: also for TCP
/// connections.
pub(super) fn become_user_for_criu(identity: &Identity, connected: bool) -> io::Result<()> {
    let mut rights = CapabilitySet::CHECKPOINT_RESTORE | CapabilitySet::SETPCAP;
    // Where tracing is restricted to children (Yama), CRIU needs the right to trace others of its user.
    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if !matches!(yama.trim(), "" | "0") {
        rights |= CapabilitySet::SYS_PTRACE;
    }
    if connected {
        rights |= CapabilitySet::NET_ADMIN;
    }
    rustix::thread::set_keep_capabilities(true)?;
    become_user(identity).map_err(io::Error::other)?;
    if identity.uid != 0 {
        rustix::thread::set_capabilities(
            None,
            CapabilitySets { effective: rights, permitted: rights, inheritable: rights },
        )?;
        for right in rights.iter() {
            rustix::thread::configure_capability_in_ambient_set(right, true)?;
        }
    }
    Ok(())
}

/// A checkpoint to be made: arguments of `squall step --checkpoint`.
struct Job {
    criu: OsString,
    /// Folder of the job's checkpoints.
    folder: PathBuf,
    /// The step's folder.
    step: PathBuf,
    /// The job's v2 cgroup.
    group: PathBuf,
    number: u64,
    /// Whether the job is only tested.
    able: bool,
    /// Whether the job stays frozen.
    leaves: bool,
    /// Whether the job has further nodes.
    several: bool,
    /// End of the names of what belongs to this node's part.
    part: String,
    identity: Identity,
    /// The job's mark, which is set while CRIU is at work.
    mark: Mark,
    /// The node daemon that has started this process. After its end no process awaits the checkpoint.
    parent: Option<rustix::process::Pid>,
}

/// Carries out `squall step --checkpoint CRIU DIR STEP GROUP NUMBER able|create|vacate|settle KEPT`: makes a checkpoint,
/// and prints `made BYTES MICROSECONDS PID`, and of a job of several nodes also the links between these; or tests the job, and
/// prints `able`; or prints why that can't be done. If
/// the job may be damaged, its mark stays set. `settle`: waits for the process that an earlier run of the node daemon has
/// started for the job, and thaws the job.
///
/// It outlives its node daemon, as CRIU must not be killed.
pub fn run_checkpoint(args: &[OsString]) -> u8 {
    let done = checkpoint(args);
    let text = done.as_ref().unwrap_or_else(|problem| problem);
    // The node daemon, which reads this, may have ended.
    drop(writeln!(io::stderr(), "{text}"));
    u8::from(done.is_err())
}

/// Waits until no other process makes a checkpoint of a job, and thaws the job, unless one has been made since.
fn settle(steps: &Path, job: JobAttempt, group: &Path) -> Result<String, String> {
    let Some(mark) = Mark::await_of(steps, job).map_err(|e| e.to_string())? else { return Ok("able".to_owned()) };
    if mark.is_set() {
        return Err(KILLED.to_owned());
    }
    set_frozen(group, false).map_err(|e| e.to_string())?;
    mark.finish();
    Ok("able".to_owned())
}

/// What is said of a dump of which no process saw the end.
pub(crate) const KILLED: &str = "CRIU was killed while it dumped the job";

fn checkpoint(args: &[OsString]) -> Result<String, String> {
    let [criu, dir, step, group, number, verb, kept] = args else { return Err("wrong arguments".into()) };
    let text = |e: io::Error| e.to_string();
    let (dir, step) = (Path::new(dir), PathBuf::from(step));
    let launch = launch_of(&step).map_err(text)?;
    let (attempt, steps) = (attempt_of(launch.key), step.parent().ok_or("wrong folder")?.to_owned());
    if verb == "settle" {
        return settle(&steps, attempt, Path::new(group));
    }
    let parent = rustix::process::getppid();
    set_child_subreaper().map_err(text)?;
    let mark = Mark::lock(&steps, attempt).map_err(text)?;
    if mark.is_set() {
        return Err(KILLED.to_owned());
    }
    let number = number.to_str().and_then(|number| number.parse().ok()).ok_or("wrong number")?;
    let (part, several) = (part_of(&launch), launch.facts.nodes.len() > 1);
    let kept = kept.to_str().unwrap_or_default().split(',').filter(|number| !number.is_empty());
    let kept: Vec<String> = kept.map(|number| format!("{number}{part}")).collect();
    let able = verb == "able";
    let job = Job {
        criu: criu.clone(),
        folder: folder(dir, launch.key.job.0),
        step,
        group: group.into(),
        number,
        able,
        leaves: verb == "vacate" || (several && !able),
        several,
        part,
        identity: identity_of(&launch),
        mark,
        parent,
    };
    let done = job.carry_out(dir, &kept);
    job.mark.finish();
    done
}

impl Job {
    fn carry_out(&self, dir: &Path, kept: &[String]) -> Result<String, String> {
        self.prepare(dir, kept).map_err(|e| format!("{}: {e}", dir.display()))?;
        if self.able || kept.is_empty() {
            self.try_criu()?;
        }
        let draft = self.folder.join(format!("draft{}", self.part));
        let made = self.make(&draft);
        if made.is_err() || self.able {
            drop(remove(&draft));
        }
        made
    }

    /// Makes the folder of the job's checkpoints, and removes those that don't count.
    fn prepare(&self, dir: &Path, kept: &[String]) -> io::Result<()> {
        let make = |path: &Path| match DirBuilder::new().mode(0o700).create(path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => Ok(()),
        };
        if !dir.is_dir() {
            make(dir)?;
        }
        if let Some(exposed) = safe_path::exposure(dir).filter(|exposed| !matches!(exposed.to, Who::Group(_))) {
            return Err(io::Error::other(format!("{exposed}: checkpoint_dir must be root's")));
        }
        make(&self.folder)?;
        let own = fs::symlink_metadata(&self.folder)?;
        if !own.is_dir() || own.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other("the job's folder is not root's"));
        }
        // Other nodes may keep their parts in the same folder.
        let part = |name: &str| name.find('-').map_or_else(String::new, |at| name[at..].to_owned());
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if part(&name) == self.part && !kept.contains(&name) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Runs CRIU in a folder as the job's user, and kills the processes that it leaves when it is killed.
    /// `root`: as for [`run_criu`].
    fn criu(&self, folder: &Path, root: u32, args: &[&OsStr]) -> io::Result<Output> {
        let root = root.to_string();
        let words = [OsStr::new("--criu"), self.step.as_os_str(), OsStr::new(&root), &self.criu];
        // Files and no pipes: what a killed CRIU leaves would keep a pipe open.
        let mut texts = [text_file()?, text_file()?];
        let mut command = own(&words);
        command.args(args).current_dir(folder).stdin(Stdio::null());
        let status = command.stdout(texts[0].try_clone()?).stderr(texts[1].try_clone()?).status()?;
        signal_all(&descendants(std::process::id()), libc::SIGKILL);
        let [stdout, stderr] = texts.each_mut().map(|text| read_text(text).into_bytes());
        Ok(Output { status, stdout, stderr })
    }

    /// Finds out whether CRIU is there, is new enough, and can dump a process with a socket, which `criu check` does not
    /// tell.
    fn try_criu(&self) -> Result<(), String> {
        let needs = format!("checkpoints need CRIU {}.{} or later", CRIU.0, CRIU.1);
        let name = self.criu.display();
        let said = self.criu(Path::new("/"), 0, &["--version".as_ref()]).map_err(|e| format!("{needs}: {e}"))?;
        let said = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
        let version = said.split_ascii_whitespace().find_map(|word| {
            let (major, minor) = word.split_once('.')?;
            Some((major.parse::<u32>().ok()?, minor.split('.').next()?.parse::<u32>().ok()?))
        });
        match version {
            None => return Err(format!("{needs}, and {name} is not to be had here: {}", first_line(&said))),
            Some(version) if version < CRIU => {
                return Err(format!("{needs}, and {name} is version {}.{}", version.0, version.1));
            }
            Some(_) => {}
        }
        let images = self.folder.join(format!("trial{}", self.part));
        let tried = self.dump_sleeper(&images);
        drop(remove(&images));
        match tried {
            Ok(None) => Ok(()),
            Ok(Some(problem)) => Err(format!("{name} can't checkpoint a process with a socket here: {problem}")),
            Err(e) => Err(format!("{name} could not be tried: {e}")),
        }
    }

    /// Has CRIU dump a process that sleeps and has a listening socket. Some: why it can't.
    fn dump_sleeper(&self, images: &Path) -> io::Result<Option<String>> {
        self.make_images(images)?;
        let socket = OwnedFd::from(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
        let words = ["0", "sleep", "60"].map(OsStr::new);
        let words = [&[OsStr::new("--criu"), self.step.as_os_str()], &words[..]].concat();
        let mut sleeper = own(&words).stdin(socket).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let comm = format!("/proc/{}/comm", sleeper.id());
        let until = Instant::now() + FREEZE;
        while fs::read_to_string(&comm).is_ok_and(|name| name != "sleep\n") && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        let pid = sleeper.id().to_string();
        let args = ["dump", "-t", &pid].into_iter().chain(OPTIONS).chain(["--leave-running"]);
        let done = self.criu(images, 0, &args.map(OsStr::new).collect::<Vec<_>>());
        sleeper.kill()?;
        sleeper.wait()?;
        Ok(problem(&done?))
    }

    fn make_images(&self, images: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(images)?;
        chown(images, Some(self.identity.uid), Some(self.identity.gid))
    }

    /// Makes the checkpoint in the folder `draft`, and gives it its name when it is complete.
    fn make(&self, draft: &Path) -> Result<String, String> {
        let text = |e: io::Error| e.to_string();
        self.await_script()?;
        DirBuilder::new().mode(0o700).create(draft).map_err(text)?;
        let images = draft.join("images");
        self.make_images(&images).map_err(text)?;
        let mut tries = TRIES;
        let (began, frozen) = loop {
            // It stands still already if its part did not fit together with those of other nodes.
            let stands = fs::read_to_string(self.group.join(FREEZE_SWITCH)).is_ok_and(|switch| switch.trim() == "1");
            let apart = !stands && part(&members_of(&self.group));
            let began = Instant::now();
            let frozen = self.freeze(true).map_err(text);
            if self.several {
                std::thread::sleep(ARRIVAL);
            }
            let frozen = frozen.and_then(|()| self.dump(&images));
            tries -= 1;
            let again = apart && tries > 0 && frozen.as_ref().is_err_and(|problem| is_connected(problem));
            if !again || self.mark.is_set() {
                break (began, frozen);
            }
            self.freeze(false).map_err(text)?;
            remove(&images).and_then(|()| self.make_images(&images)).map_err(text)?;
            std::thread::sleep(AGAIN);
        };
        if self.mark.is_set() {
            // Also after CRIU has thawed it.
            drop(set_frozen(&self.group, true));
        } else if !self.leaves || frozen.is_err() || self.is_alone() {
            self.freeze(false).map_err(text)?;
        }
        let stood = began.elapsed();
        let (root, manifest) = frozen?;
        if self.able {
            return Ok("able".to_owned());
        }
        let links = self.several.then(|| links_of(&images)).transpose().map_err(|e| format!("images of CRIU: {e}"))?;
        let kept = self.keep(draft, &manifest).map_err(|e| format!("{}: {e}", draft.display()));
        if self.leaves && (kept.is_err() || self.is_alone()) {
            self.freeze(false).map_err(text)?;
        }
        let links = links.map(|links| format!(" {links}")).unwrap_or_default();
        let stood = if self.several { began.elapsed() } else { stood };
        Ok(format!("made {} {} {root}{links}", kept?, stood.as_micros()))
    }

    /// Waits until the script runs: before, its process is Squall's or CRIU's, and a dump would be one of that.
    fn await_script(&self) -> Result<(), String> {
        let noted = || File::open(self.step.join(file::PIDS)).map(tasks_in).unwrap_or_default();
        let own = fs::read_link("/proc/self/exe").ok();
        // A script may execute srun, which is this program too; the keeper is one of ours that stays.
        let becomes = |pid: u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = words.split(|byte| *byte == 0).skip(1);
            words.next() == Some(b"step") && words.next() != Some(KEEP.as_bytes())
        };
        let runs = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok() != own || !becomes(pid);
        let runs = |task: &TaskPid| Stat::of(task.pid).is_some_and(|stat| task.is(&stat)) && runs(task.pid);
        let until = Instant::now() + STARTING;
        while !noted().first().is_some_and(runs) {
            if Instant::now() > until {
                return Err("the job's script is being started or restored, or has ended: try again later".into());
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Returns whether the node daemon has ended.
    fn is_alone(&self) -> bool {
        rustix::process::getppid() != self.parent
    }

    /// Freezes the job and waits until it stands still, or thaws it.
    fn freeze(&self, frozen: bool) -> io::Result<()> {
        set_frozen(&self.group, frozen)?;
        let until = Instant::now() + FREEZE;
        let still = || Ok::<_, io::Error>(fs::read_to_string(self.group.join("cgroup.events"))?.contains("frozen 1"));
        while frozen && !still()? {
            if Instant::now() > until {
                return Err(io::Error::other("the job's processes can't be frozen"));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Dumps the frozen job; returns the script's process id, as the job sees it.
    fn dump(&self, images: &Path) -> Result<(u32, Manifest), String> {
        let text = |e: io::Error| e.to_string();
        let members = members_of(&self.group);
        let root = root_of(&members)?;
        // CRIU is found and started among its mounts. With a user namespace of its own, its user could make these.
        let space = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user")).map_err(text);
        if space("self")? != space(&root.to_string())? {
            return Err(format!("process {root} has a user namespace of its own"));
        }
        let inner = inner_pid(root).unwrap_or(root);
        number_children_as(root).map_err(text)?;
        let script = self.step.join(file::SCRIPT);
        let connected = connections(&members, self.several)?;
        let (files, read) = open_files(&members, &script);
        let script = script.into_os_string().into_vec().into();
        let ports = ports_of(&members);
        let (shared, pid) = (Vec::new(), Some(inner));
        let mut manifest = Manifest { script, files, read, shared, connected, ports, pid };
        let (pid, switch) = (inner.to_string(), self.group.join(FREEZE_SWITCH));
        let args = ["dump", "-t", &pid].into_iter().chain(OPTIONS).chain(["--ghost-limit", "256M", "--leave-running"]);
        let args = args.chain(connected.then_some(CONNECTED)).map(OsStr::new);
        let args = args.chain([OsStr::new("--freeze-cgroup"), self.group.as_os_str()]);
        // CRIU thaws and freezes the group itself.
        chown(&switch, Some(self.identity.uid), None).map_err(text)?;
        self.mark.set().map_err(text)?;
        let done = self.criu(images, root, &args.collect::<Vec<_>>());
        chown(&switch, Some(0), None).map_err(text)?;
        if let Some(harm) = done.as_ref().ok().and_then(|done| harm(done, &members)) {
            return Err(harm);
        }
        self.mark.clear().map_err(text)?;
        let done = done.map_err(text)?;
        match problem(&done) {
            None => {
                let folder = images.with_file_name(SHARED);
                let saved = save(&members, &rooms_of(&self.step), self.identity.uid, &folder);
                manifest.shared = saved.map_err(|e| format!("{}: {e}", folder.display()))?;
                Ok((inner, manifest))
            }
            Some(problem) => {
                let hint = if problem.contains("SysVIPC") { " (with MPICH: export UCX_TLS=^sysv)" } else { "" };
                Err(format!("CRIU can't dump {}: {problem}{hint}", culprit(&done, &members)))
            }
        }
    }

    /// Makes a checkpoint durable, and gives it its name. Returns its size, bytes.
    fn keep(&self, draft: &Path, manifest: &Manifest) -> io::Result<u64> {
        let mut bytes = 0;
        let shared = fs::read_dir(draft.join(SHARED)).into_iter().flatten();
        for entry in fs::read_dir(draft.join("images"))?.chain(shared) {
            let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW).open(entry?.path())?;
            bytes += file.metadata()?.len();
            file.sync_all()?;
        }
        if bytes == 0 {
            return Err(io::Error::other("CRIU has written nothing"));
        }
        let mut file = File::options().write(true).create_new(true).open(draft.join("manifest"))?;
        file.write_all(&encoding::to_vec(manifest))?;
        file.sync_all()?;
        let shared = (!manifest.shared.is_empty()).then(|| draft.join(SHARED));
        for folder in [draft.join("images"), draft.to_owned()].into_iter().chain(shared) {
            File::open(folder)?.sync_all()?;
        }
        fs::rename(draft, self.folder.join(format!("{}{}", self.number, self.part)))?;
        File::open(&self.folder)?.sync_all()?;
        Ok(bytes)
    }
}

/// Makes a file in memory for what a process writes.
pub(super) fn text_file() -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create("text", rustix::fs::MemfdFlags::CLOEXEC)?))
}

/// Returns what a process has written to such a file. What can't be read is not there.
pub(super) fn read_text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let read = file.rewind().and_then(|()| file.take(TEXT_BYTES_MAX).read_to_end(&mut bytes));
    read.map(|_| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// Freezes or thaws a cgroup.
pub(crate) fn set_frozen(group: &Path, frozen: bool) -> io::Result<()> {
    fs::write(group.join(FREEZE_SWITCH), if frozen { "1" } else { "0" })
}

/// Returns the processes of a job: those in its cgroup and in the groups of its steps.
fn members_of(group: &Path) -> Vec<u32> {
    let steps = fs::read_dir(group).into_iter().flatten().flatten().map(|entry| entry.path());
    let groups = steps.filter(|path| path.is_dir()).chain([group.to_owned()]);
    let texts = groups.map(|group| fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default());
    let pids = texts.flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>());
    // Process 1 of a restored job is Squall's.
    pids.filter(|pid| inner_pid(*pid) != Some(1)).collect()
}

/// Has the next children of this process get their ids where a process of the job has its own.
fn number_children_as(root: u32) -> io::Result<()> {
    let (own, others) = ("/proc/self/ns/pid_for_children", format!("/proc/{root}/ns/pid"));
    if fs::read_link(own)? != fs::read_link(&others)? {
        move_into_link_name_space(File::open(others)?.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
    }
    Ok(())
}

/// Has each `srun` of a job, and the step daemons that they have started, close the connections that lead out of the job.
/// Returns whether there are any.
fn part(members: &[u32]) -> bool {
    let name = |pid: &str| {
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?.into_os_string().into_vec();
        let program = program.strip_suffix(b" (deleted)").map(<[u8]>::to_vec).unwrap_or(program);
        program.rsplit(|byte| *byte == b'/').next().map(<[u8]>::to_vec)
    };
    let own = name("self");
    let ours: Vec<u32> = members.iter().copied().filter(|pid| name(&pid.to_string()) == own).collect();
    for pid in &ours {
        // It may have ended.
        drop(signals::kill(*pid, libc::SIGURG));
    }
    let until = Instant::now() + PARTING.0;
    while ours.iter().any(|pid| is_pending(*pid, libc::SIGURG)) && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
    if !ours.is_empty() {
        std::thread::sleep(PARTING.1);
    }
    !ours.is_empty()
}

/// Returns whether a dump failed because of a connection that leads out of the job.
fn is_connected(problem: &str) -> bool {
    problem.contains("External socket is used") || problem.contains(" is connected to ")
}

/// Returns the process of a job from which all others descend.
fn root_of(members: &[u32]) -> Result<u32, String> {
    let alive = |pid: &&u32| Stat::of(**pid).is_some_and(|stat| !stat.is_dead());
    let left = |pid: &&u32| Stat::of(**pid).is_some_and(|stat| !members.contains(&stat.parent));
    let tops: Vec<u32> = members.iter().filter(alive).filter(left).copied().collect();
    match tops[..] {
        [] => Err("no process of the job runs".to_owned()),
        [root] => Ok(root),
        [_, stray, ..] => {
            let name = fs::read_to_string(format!("/proc/{stray}/comm")).unwrap_or_default();
            Err(format!(
                "process {stray} ({}) runs on in the background, left by the one that started it: let the script wait for it",
                name.trim_end()
            ))
        }
    }
}

/// Returns the files that processes have open for writing, with their sizes; and how far the script was read.
fn open_files(members: &[u32], script: &Path) -> (Vec<(ByteBuf, u64)>, u64) {
    let (mut found, mut read) = (Vec::new(), 0);
    for pid in members {
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        for fd in fds {
            // A process may end meanwhile only if it was killed; then the dump fails.
            let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", fd.file_name().display()));
            let info = info.unwrap_or_default();
            let field = |name| info.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()));
            let flags = field("flags:").and_then(|flags| i32::from_str_radix(flags, 8).ok()).unwrap_or(0);
            let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
            let Ok(path) = fs::read_link(fd.path()) else { continue };
            if path == script {
                read = field("pos:").and_then(|at| at.parse().ok()).unwrap_or(0);
            }
            let file = fs::metadata(fd.path()).ok().filter(|file| writes && file.is_file() && file.nlink() > 0);
            let entry = file.map(|file| (ByteBuf::from(path.into_os_string().into_vec()), file.len()));
            found.extend(entry.filter(|entry| !found.contains(entry)));
        }
    }
    (found, read)
}

/// Returns how CRIU may have damaged processes. None: it has not.
fn harm(done: &Output, members: &[u32]) -> Option<String> {
    // A shell that has started it says so by its own exit code.
    let by_shell = done.status.code().filter(|code| (129..=192).contains(code)).map(|code| code - 128);
    if let Some(signal) = done.status.signal().or(by_shell) {
        return Some(format!("CRIU was killed by signal {signal} while it dumped the job"));
    }
    if done.status.success() {
        return None;
    }
    let infected =
        |pid: &&u32| fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains(PARASITE));
    let left = members.iter().find(infected)?;
    let problem = problem(done).unwrap_or_else(|| "it says nothing".to_owned());
    Some(format!("CRIU left its own code in process {left}: {problem}"))
}

/// Name of the memory with CRIU's code in a process that it dumps.
const PARASITE: &str = "/memfd:CRIUMFD";

/// Returns what CRIU says is wrong. None: it succeeded.
fn problem(done: &Output) -> Option<String> {
    if done.status.success() {
        return None;
    }
    let said = [&done.stderr[..], &done.stdout[..]].concat();
    Some(told(&String::from_utf8_lossy(&said)))
}

/// Returns the process that CRIU could not dump, as a text. It says so after the cause, with the process id that the job sees.
fn culprit(done: &Output, members: &[u32]) -> String {
    let said = String::from_utf8_lossy(&done.stderr);
    let pid = said.lines().filter(|line| line.contains("Error (")).find_map(|line| {
        let number = line.split_once("(pid: ")?.1.split(')').next()?;
        number.parse::<u32>().ok()
    });
    let Some(pid) = pid else { return "the job".to_owned() };
    let pid = members.iter().copied().find(|member| inner_pid(*member) == Some(pid)).unwrap_or(pid);
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("process {pid} ({})", name.trim_end())
}

/// Returns the first error in CRIU's output, without the place in its source. That CRIU can't raise its own limit of files
/// is none.
pub(crate) fn told(output: &str) -> String {
    let error = output.lines().find(|line| line.contains("Error (") && !line.contains("RLIMIT_NOFILE for self"));
    let text = error.and_then(|line| Some(line.split_once("Error (")?.1.split_once("): ")?.1));
    text.unwrap_or_else(|| first_line(output)).trim().to_owned()
}

fn first_line(text: &str) -> &str {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing")
}

/// Returns the arguments with which this program restores a job.
pub(super) fn restore_command(criu: &str, dir: &Path, step: &Path) -> Vec<CString> {
    let words = ["squall", "step", "--restore", criu].map(OsStr::new).into_iter();
    let words = words.chain([dir.as_os_str(), step.as_os_str()]);
    // A path with a NUL byte can't exist.
    words.map(|word| CString::new(word.as_bytes()).unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::{root_of, told};

    #[test]
    fn the_first_error_is_told_without_its_place_in_the_source() {
        let said =
            "Warn  (criu/kerndat.c:1): x\nError (criu/sk-unix.c:862): unix: External socket is used.\nError (b): c";
        assert_eq!(told(said), "unix: External socket is used.");
        let limited = format!("Error (c): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted\n{said}");
        assert_eq!(told(&limited), "unix: External socket is used.");
        assert_eq!(
            told("(00.05) 14361: Error (criu/files-reg.c:2): Can't open file a on restore: b"),
            "Can't open file a on restore: b"
        );
        assert_eq!(told("\n"), "it says nothing");
    }

    #[test]
    fn the_root_is_the_one_without_a_parent_among_them() {
        let own = std::process::id();
        assert_eq!(root_of(&[own]), Ok(own));
        assert!(root_of(&[]).is_err());
    }
}
