//! Containers: runs a task by the node's runtime, `crun` or `runc` for OCI bundles, `enroot` or `apptainer` for images.
//!
//! A task's process is first this program (`squall step --container ROOM ...`), as the user and after the prologs. It
//! writes the container's `config.json` from the bundle's and executes the runtime, which passes on signals and the exit
//! status. Everything that is written is in the folder `own` of the step's, and is removed with the step.
//!
//! A container keeps the node's network and shared memory, and inherits the socket for PMI, so that ranks of MPI find
//! each other. It stays in the step's cgroup.

use std::ffi::{CString, OsString};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use minicbor::{Decode, Encode};
use rustix::fs::{Gid, Uid};
use serde_json::{Value, json};
use squall_files::safe_path;
use squall_model::encoding::{from_slice, to_vec};
use squall_model::job::container::{Container, Mount, TMPFS, UMOUNT};
use squall_model::step::StepLaunch;

use super::environment::DEFAULT_PATH;
use super::files::reason;
use crate::sys::identity::Identity;

mod images;

/// Folder of the step's folder in which its user may write.
const ROOM: &str = "own";

/// File of a task's part of that folder with its [`Order`].
const ORDER: &str = "order";

/// Where a container sees the file that a task executes, if the step brought it: a batch script, or a program of
/// `--bcast`. `/dev` is a file system in memory, so that a shared root file system needs no place for it.
const BROUGHT: &str = "/dev/.squall-program";

/// Exit code of a task with a container that can't be started.
const FAILED: u8 = 125;

/// All that a task needs to become a container.
#[derive(Debug, Encode, Decode)]
struct Order {
    /// The container that was asked for.
    #[n(0)]
    container: Container,
    /// The site's program that runs OCI containers; empty: the first of the usual ones.
    #[n(1)]
    runtime: String,
    /// The node's name.
    #[n(2)]
    node: String,
    /// Path of the file that the step brought and the task executes, as bytes. None: the container has the program.
    #[n(3)]
    #[cbor(with = "minicbor::bytes")]
    brought: Option<Vec<u8>>,
}

/// Returns the path of the folder in a step's folder in which its user may write.
pub(super) fn room(folder: &Path) -> PathBuf {
    folder.join(ROOM)
}

/// Makes that folder.
pub(super) fn make_room(folder: &Path, identity: &Identity) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder.join(ROOM))?;
    if rustix::process::geteuid().is_root() {
        let room = safe_path::open_folder(rustix::fs::CWD, &folder.join(ROOM))?;
        rustix::fs::fchown(&room, Some(Uid::from_raw(identity.uid)), Some(Gid::from_raw(identity.gid)))?;
    }
    Ok(())
}

/// The way in which the tasks of a step become containers.
#[derive(Debug)]
pub(super) struct Containers<'a> {
    launch: &'a StepLaunch,
    container: &'a Container,
    room: PathBuf,
}

impl<'a> Containers<'a> {
    /// Returns the way for a step. None: its tasks run without a container.
    pub(super) fn of(launch: &'a StepLaunch, folder: &Path) -> Option<Self> {
        Some(Self { launch, container: launch.container()?, room: folder.join(ROOM) })
    }

    /// Returns the command that runs `argv` in a container, and the file to execute. `brought`: the file that the step
    /// brought for this command.
    pub(super) fn around(
        &self,
        rank: u32,
        argv: Vec<CString>,
        brought: Option<&Path>,
    ) -> io::Result<(Vec<CString>, CString)> {
        let squall = std::env::current_exe()?.into_os_string().into_vec();
        // After an upgrade, the new file has the same path.
        let squall = CString::new(squall.strip_suffix(b" (deleted)").unwrap_or(&squall))?;
        let room = self.room.join(rank.to_string());
        DirBuilder::new().mode(0o700).create(&room)?;
        let order = Order {
            container: self.container.clone(),
            runtime: self.launch.container_runtime.clone(),
            node: self.launch.node.clone(),
            brought: brought.map(|path| path.as_os_str().as_bytes().to_vec()),
        };
        fs::write(room.join(ORDER), to_vec(&order))?;
        let mut all = vec![c"squall".to_owned(), c"step".to_owned(), c"--container".to_owned()];
        all.push(CString::new(room.into_os_string().into_vec())?);
        all.extend(argv);
        Ok((all, squall))
    }
}

/// Carries out `squall step --container ROOM ARG...`: becomes the container. Returns the exit status if that fails.
pub fn run_contained(args: &[OsString]) -> u8 {
    let [room, argv @ ..] = args else {
        eprintln!("slurmstepd: error: squall step --container is called by step daemons only");
        return 2;
    };
    let room = Path::new(room);
    let order = fs::read(room.join(ORDER))
        .map_err(|e| reason(&e))
        .and_then(|bytes| from_slice::<Order>(&bytes).map_err(|e| format!("the order of the task can't be read: {e}")));
    let problem = match order {
        Ok(order) if order.container.bundle.is_some() => order.become_bundle(room, argv),
        Ok(order) => order.become_image(room, argv),
        Err(problem) => problem,
    };
    eprintln!("slurmstepd: error: container: {problem}");
    FAILED
}

/// Returns the path of a program: of the first of these names that a folder of the system has. A path is taken as it is.
fn installed(names: &[&str]) -> Option<PathBuf> {
    let found = |name: &&str| {
        let folders = if name.contains('/') { "" } else { DEFAULT_PATH };
        let mut paths = folders.split(':').map(|folder| Path::new(folder).join(name));
        paths.find(|path| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok())
    };
    names.iter().find_map(found)
}

/// Replaces this process by a program; returns the reason why that failed.
fn become_program(program: &Path, args: &[OsString]) -> String {
    let error = Command::new(program).args(args).exec();
    format!("{}: {}", program.display(), reason(&error))
}

/// Functions that become a container; each returns the reason why that failed.
impl Order {
    fn become_bundle(&self, room: &Path, argv: &[OsString]) -> String {
        if self.runtime == "none" {
            return "this cluster runs no containers (container_runtime = \"none\")".to_owned();
        }
        let usual = ["crun", "runc"];
        let names = if self.runtime.is_empty() { &usual[..] } else { &[self.runtime.as_str()][..] };
        let Some(runtime) = installed(names) else {
            let names = names.join(" or ");
            return format!("node {} has no {names}: install it there, or set container_runtime", self.node);
        };
        if let Err(problem) = self.write_config(room, argv) {
            return problem;
        }
        let state = room.join("state");
        let mut args: Vec<OsString> = vec!["--root".into(), state.into()];
        if runtime.file_name().is_some_and(|name| name == "crun") {
            // The container stays in the step's cgroup.
            args.extend(["--cgroup-manager", "disabled"].map(OsString::from));
        }
        args.extend(["run".into(), "--bundle".into(), room.into()]);
        if std::env::var_os("PMI_FD").is_some() {
            args.push("--preserve-fds=1".into());
        }
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let (job, step, rank) = (variable("SLURM_JOB_ID"), variable("SLURM_STEP_ID"), variable("SLURM_PROCID"));
        let step = if step.is_empty() { "batch" } else { &step };
        args.push(format!("squall-{job}.{step}.{rank}-{}", self.node).into());
        become_program(&runtime, &args)
    }

    /// Writes the container's `config.json`, derived from the bundle's.
    fn write_config(&self, room: &Path, argv: &[OsString]) -> Result<(), String> {
        let bundle = PathBuf::from(self.container.bundle.as_deref().unwrap_or_default());
        let path = bundle.join("config.json");
        let text =
            fs::read(&path).map_err(|e| format!("{}: {}: name the folder of a bundle", path.display(), reason(&e)))?;
        let config: Value = serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        let task = Task {
            argv: argv.iter().map(|arg| arg.to_string_lossy().into_owned()).collect(),
            env: std::env::vars_os()
                .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()))
                .collect(),
            dir: std::env::current_dir().unwrap_or_default(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            home: std::env::var("HOME").ok().filter(|home| home.starts_with('/')),
        };
        if self.container.mount_home == Some(true) && task.home.is_none() {
            return Err("--container-mount-home: the task has no HOME: set it, or use --container-mounts".to_owned());
        }
        let derived = self.derive(config, &bundle, &task).ok_or_else(|| {
            format!("{}: it lacks `process` or `root`, which a bundle has: make one by `crun spec`", path.display())
        })?;
        let text = serde_json::to_vec(&derived).map_err(|e| e.to_string())?;
        fs::write(room.join("config.json"), text).map_err(|e| format!("{}: {}", room.display(), reason(&e)))
    }

    /// Derives the configuration of a task's container from the bundle's. None: the bundle's has no such form.
    fn derive(&self, mut config: Value, bundle: &Path, task: &Task) -> Option<Value> {
        let root = bundle.join(config.get("root")?.get("path")?.as_str()?);
        config["root"]["path"] = json!(root.to_string_lossy());
        if let Some(writable) = self.container.writable {
            config["root"]["readonly"] = json!(!writable);
        }
        if self.container.remap_root == Some(true) {
            remap_user(&mut config, task);
        }
        let namespaces = Self::settle_namespaces(&mut config, task);
        if namespaces.iter().any(|kind| kind == "uts") {
            config["hostname"] = json!(self.node);
        }
        let mut mounts: Vec<Value> = config.get("mounts").and_then(Value::as_array).cloned().unwrap_or_default();
        // The ranks of a node meet in its shared memory.
        mounts.retain(|mount| mount["destination"] != "/dev/shm");
        // Only the owner of a network namespace may mount its sysfs.
        for mount in mounts.iter_mut().filter(|mount| mount["type"] == "sysfs") {
            *mount = bind("/sys", "/sys", true);
        }
        // A user has no other groups in the container.
        for mount in mounts.iter_mut().filter(|mount| mount["type"] == "devpts" && task.uid != 0) {
            if let Some(options) = mount.get_mut("options").and_then(Value::as_array_mut) {
                options.retain(|option| !option.as_str().is_some_and(|option| option.starts_with("gid=")));
            }
        }
        mounts.push(bind("/dev/shm", "/dev/shm", false));
        if let (Some(shown), Some(home)) = (self.container.mount_home, &task.home) {
            mounts.retain(|mount| mount["destination"] != home.as_str());
            mounts.extend(shown.then(|| bind(home, home, false)));
        }
        for mount in &self.container.mounts {
            if mount.source == UMOUNT {
                mounts.retain(|known| known["destination"] != mount.target.as_str());
            } else {
                mounts.push(mount_of_bundle(mount, &task.dir));
            }
        }
        let mut argv = task.argv.clone();
        if let Some(brought) = &self.brought {
            mounts.push(bind(&String::from_utf8_lossy(brought), BROUGHT, true));
            if let Some(name) = argv.first_mut() {
                BROUGHT.clone_into(name);
            }
        }
        let dir = self.work_dir(&root, &mounts, &task.dir);
        config["mounts"] = Value::Array(mounts);
        let process = config.get_mut("process")?.as_object_mut()?;
        let user = process.get("user").and_then(|user| user["uid"].as_u64()).unwrap_or(0);
        process.insert("terminal".into(), json!(false));
        process.remove("consoleSize");
        // The job's limits hold.
        process.remove("rlimits");
        process.insert("args".into(), json!(argv));
        let own = process.get("env").and_then(Value::as_array).cloned().unwrap_or_default();
        process.insert(
            "env".into(),
            Value::Array(merged(&own, &task.env, &self.container.env, user == u64::from(task.uid))),
        );
        if let Some(dir) = dir {
            process.insert("cwd".into(), json!(dir.to_string_lossy()));
        }
        Some(config)
    }

    /// Leaves out what would keep a task of MPI from the others, or needs more than the user's rights; returns the
    /// kinds of namespaces that the container gets.
    fn settle_namespaces(config: &mut Value, task: &Task) -> Vec<String> {
        let user = config["process"]["user"].clone();
        let Some(linux) = config.get_mut("linux").and_then(Value::as_object_mut) else { return Vec::new() };
        linux.remove("resources");
        linux.remove("cgroupsPath");
        let kind = |namespace: &Value| namespace["type"].as_str().unwrap_or_default().to_owned();
        let mut namespaces = linux.get("namespaces").and_then(Value::as_array).cloned().unwrap_or_default();
        namespaces.retain(|namespace| namespace["type"] != "network");
        if task.uid != 0 && !namespaces.iter().any(|namespace| namespace["type"] == "user") {
            namespaces.push(json!({"type": "user"}));
        }
        let kinds: Vec<String> = namespaces.iter().map(kind).collect();
        if kinds.iter().any(|kind| kind == "user") {
            let inside = |which: &str| user[which].as_u64().unwrap_or(0);
            for (key, inside, outside) in
                [("uidMappings", inside("uid"), task.uid), ("gidMappings", inside("gid"), task.gid)]
            {
                if !linux.contains_key(key) {
                    linux.insert(key.into(), json!([{"containerID": inside, "hostID": outside, "size": 1}]));
                }
            }
        }
        linux.insert("namespaces".into(), Value::Array(namespaces));
        kinds
    }

    /// Returns the task's working directory in the container. None: the bundle's, as the container lacks the job's.
    fn work_dir(&self, root: &Path, mounts: &[Value], dir: &Path) -> Option<PathBuf> {
        if let Some(given) = &self.container.work_dir {
            return Some(given.into());
        }
        let mounted = |mount: &Value| {
            let target = mount["destination"].as_str().unwrap_or_default();
            mount["type"] == "bind" && target != "/" && dir.starts_with(target)
        };
        let inside = dir.strip_prefix("/").ok().map(|inside| root.join(inside));
        (mounts.iter().any(mounted) || inside.is_some_and(|inside| inside.is_dir())).then(|| dir.to_owned())
    }
}

/// A task about to become a container: its arguments, environment, working directory and user.
#[derive(Debug)]
struct Task {
    argv: Vec<String>,
    env: Vec<String>,
    dir: PathBuf,
    uid: u32,
    gid: u32,
    /// The user's home. None: the task has none.
    home: Option<String>,
}

/// Makes a task root inside (`--container-remap-root`), and itself outside.
fn remap_user(config: &mut Value, task: &Task) {
    config["process"]["user"] = json!({"uid": 0, "gid": 0});
    if let Some(linux) = config.get_mut("linux").and_then(Value::as_object_mut).filter(|_| task.uid != 0) {
        linux.remove("uidMappings");
        linux.remove("gidMappings");
    }
}

/// Returns a mount of `--container-mounts`. A relative source is in the task's working directory.
fn mount_of_bundle(mount: &Mount, dir: &Path) -> Value {
    let read_only = mount.read_only.then_some("ro");
    let flags: Vec<&str> = read_only.into_iter().chain(mount.flags.iter().map(String::as_str)).collect();
    if mount.source == TMPFS {
        return json!({"destination": mount.target, "type": "tmpfs", "source": "tmpfs", "options": flags});
    }
    let mut bound = bind(&dir.join(&mount.source).to_string_lossy(), &mount.target, mount.read_only);
    if let Some(options) = bound["options"].as_array_mut() {
        options.extend(mount.flags.iter().map(|flag| json!(flag)));
    }
    bound
}

fn bind(source: &str, target: &str, read_only: bool) -> Value {
    // Without a user's rights to change them, the flags of the node's mounts stay as they are.
    let options = if read_only { &["rbind", "ro"][..] } else { &["rbind"][..] };
    json!({"destination": target, "type": "bind", "source": source, "options": options})
}

/// Returns the environment in the container: the task's, and what only the bundle has. The search path is the bundle's,
/// unless it is in `kept`. `same`: the task has the same user id inside as outside.
fn merged(own: &[Value], task: &[String], kept: &[String], same: bool) -> Vec<Value> {
    let name = |entry: &str| entry.split('=').next().unwrap_or_default().to_owned();
    let own: Vec<&str> = own.iter().filter_map(Value::as_str).collect();
    let has_path = own.iter().any(|entry| entry.starts_with("PATH=")) && kept.iter().all(|name| name != "PATH");
    let mut all: Vec<String> = task.iter().filter(|entry| !(has_path && entry.starts_with("PATH="))).cloned().collect();
    let more: Vec<&str> = own.into_iter().filter(|entry| all.iter().all(|known| name(known) != name(entry))).collect();
    all.extend(more.into_iter().map(str::to_owned));
    if !same {
        // PMIx would compare the user ids of both sides. Only the step's own user reaches its server all the same.
        let had = all.len();
        all.retain(|entry| !entry.starts_with("PMIX_SECURITY_MODE="));
        if all.len() < had {
            all.extend(["PMIX_SECURITY_MODE=none".to_owned(), "PMIX_MCA_psec=none".to_owned()]);
        }
    }
    all.into_iter().map(Value::String).collect()
}

#[cfg(test)]
mod tests;
