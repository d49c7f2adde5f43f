//! Containers of images (`--container-image`): runs a task by `enroot` or `apptainer`, with what pyxis' options ask for.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use squall_model::job::container::{Mount, TMPFS, UMOUNT};

use super::super::files::reason;
use super::{BROUGHT, Order, installed};

/// Variables that describe the node and not the job: a container has its own, unless `--container-env` names them.
const OF_THE_NODE: [&str; 8] = ["HOME", "LANG", "LANGUAGE", "LC_ALL", "OLDPWD", "PATH", "PWD", "SHELL"];

/// How an image tool is called: its arguments, and variables that it gets beside those of the task.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(String, OsString)>,
}

impl Call {
    fn add<T: Into<OsString>>(&mut self, args: impl IntoIterator<Item = T>) {
        self.args.extend(args.into_iter().map(Into::into));
    }

    /// Replaces this process by the program; returns the reason why that failed.
    fn run(self, program: &Path) -> String {
        let error = std::os::unix::process::CommandExt::exec(Command::new(program).args(self.args).envs(self.env));
        format!("{}: {}", program.display(), reason(&error))
    }
}

/// Functions that become a container of an image; each returns the reason why that failed.
impl Order {
    pub(super) fn become_image(&self, room: &Path, argv: &[OsString]) -> String {
        if self.runtime == "none" {
            return "this cluster runs no containers (container_runtime = \"none\")".to_owned();
        }
        if let Some(enroot) = installed(&["enroot"]) {
            return self.become_enroot(&enroot, room, argv);
        }
        let Some(apptainer) = installed(&["apptainer", "singularity"]) else {
            let node = &self.node;
            return format!(
                "node {node} has neither enroot nor apptainer: install one there, or use --container=BUNDLE"
            );
        };
        let dir = std::env::current_dir().unwrap_or_default();
        match self.apptainer(&dir, argv, &variable) {
            Ok(call) => call.run(&apptainer),
            Err(problem) => problem,
        }
    }

    /// Returns how apptainer is called. `dir`: the task's working directory; `variable`: a variable of the task.
    pub(super) fn apptainer(
        &self,
        dir: &Path,
        argv: &[OsString],
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Call, String> {
        let container = &self.container;
        let (Some(image), None) = (&container.image, &container.name) else {
            let problem = "apptainer keeps no containers under names: leave out --container-name, or install enroot";
            return Err(problem.to_owned());
        };
        if container.save.is_some() {
            let problem =
                "apptainer keeps nothing that a container writes: leave out --container-save, or install enroot";
            return Err(problem.to_owned());
        }
        let mut call = Call::default();
        call.add([if container.entrypoint == Some(true) { "run" } else { "exec" }]);
        if container.mount_home == Some(false) {
            call.add(["--no-mount", "home,cwd"]);
        }
        if let (Some(true), Some(home)) = (container.mount_home, variable("HOME")) {
            call.add(["--bind".into(), home]);
        }
        if container.remap_root == Some(true) {
            call.add(["--fakeroot"]);
        }
        if container.writable == Some(true) {
            call.add([if Path::new(image).is_dir() { "--writable" } else { "--writable-tmpfs" }]);
        }
        for mount in self.mounts(dir) {
            if [TMPFS, UMOUNT].contains(&mount.source.as_str()) || !mount.flags.is_empty() {
                return Err(format!(
                    "--container-mounts: apptainer mounts only files and folders, with ro or rw, and not {} at {}",
                    mount.source, mount.target
                ));
            }
            let rights = if mount.read_only { "ro" } else { "rw" };
            call.add(["--bind".into(), format!("{}:{}:{rights}", mount.source, mount.target)]);
        }
        if let Some(dir) = &container.work_dir {
            call.add(["--pwd", dir.as_str()]);
        }
        call.add([image_of_apptainer(image)]);
        call.add(self.command(argv));
        // What these name counts more than the image's own.
        for name in &container.env {
            let kept = |of: &str| Some((format!("{of}_{name}"), variable(name)?));
            call.env.extend(["APPTAINERENV", "SINGULARITYENV"].into_iter().filter_map(kept));
        }
        Ok(call)
    }

    /// Becomes a container of enroot: of this name, or else made of the image for this task.
    pub(super) fn become_enroot(&self, enroot: &Path, room: &Path, argv: &[OsString]) -> String {
        let dir = std::env::current_dir().unwrap_or_default();
        let name = self.enroot_name(room);
        let call = self.enroot(room, &dir, &name, argv);
        if let Err(problem) = self.make_enroot(enroot, room, &name, &call.env) {
            return problem;
        }
        let env = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        if let Err(e) = self.write_conf(room, env) {
            return format!("{}: {}", room.display(), reason(&e));
        }
        // Of the tasks of a node the first is saved: each has a container of its own, or all have the same.
        let first = variable("SLURM_LOCALID").is_none_or(|place| place == "0");
        match self.container.save.as_ref().filter(|_| first) {
            None => call.run(enroot),
            Some(file) => saving(enroot, &dir.join(file), &name, call).run(Path::new("/bin/sh")),
        }
    }

    fn enroot_name(&self, room: &Path) -> String {
        self.container.name.clone().unwrap_or_else(|| {
            let folder = room.iter().rev().take(3).map(|part| part.to_string_lossy()).collect::<Vec<_>>();
            format!("squall-{}", folder.join("-"))
        })
    }

    /// Makes the container of this name, unless there is one that may be used again.
    fn make_enroot(&self, enroot: &Path, room: &Path, name: &str, env: &[(String, OsString)]) -> Result<(), String> {
        let command = || {
            let mut command = Command::new(enroot);
            command.envs(env.iter().cloned()).stdin(Stdio::null());
            command
        };
        if self.container.name.is_none() {
            fs::create_dir(containers(room)).map_err(|e| format!("{}: {}", room.display(), reason(&e)))?;
        }
        let run = |args: &[&OsStr]| match command().args(args).stdout(Stdio::null()).status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("enroot {}: {status}", args[0].to_string_lossy())),
            Err(e) => Err(format!("{}: {}", enroot.display(), reason(&e))),
        };
        let known = self.container.name.is_some() && {
            let list = command().arg("list").output();
            list.is_ok_and(|list| String::from_utf8_lossy(&list.stdout).lines().any(|line| line == name))
        };
        if known && self.container.create {
            let node = &self.node;
            return Err(format!("node {node} has a container {name} already: leave out :create, or remove it"));
        }
        let Some(image) = self.container.image.as_ref().filter(|_| !known) else {
            let problem = || format!("node {} has no container {name}: give --container-image too", self.node);
            return known.then_some(()).ok_or_else(problem);
        };
        let mut file = PathBuf::from(image);
        if !file.exists() {
            file = room.join("image.sqsh");
            let source = if image.contains("://") { image.clone() } else { format!("docker://{image}") };
            run(&["import".as_ref(), "-o".as_ref(), file.as_ref(), source.as_ref()])?;
        }
        run(&["create".as_ref(), "-n".as_ref(), name.as_ref(), file.as_ref()])
    }

    /// Returns how enroot starts the container. `dir`: the task's working directory.
    pub(super) fn enroot(&self, room: &Path, dir: &Path, name: &str, argv: &[OsString]) -> Call {
        let container = &self.container;
        let mut call = Call::default();
        let mut switch = |name: &str, on: Option<bool>| {
            call.env.extend(on.map(|on| (name.to_owned(), if on { "y" } else { "n" }.into())));
        };
        switch("ENROOT_MOUNT_HOME", container.mount_home);
        switch("ENROOT_REMAP_ROOT", container.remap_root);
        switch("ENROOT_ROOTFS_WRITABLE", container.writable.or(container.name.is_some().then_some(true)));
        if container.name.is_none() {
            // A container without a name is removed with the step's folder.
            call.env.push(("ENROOT_DATA_PATH".to_owned(), containers(room).into()));
        }
        call.add(["start".into(), "--conf".into(), conf(room).into_os_string()]);
        for mount in self.mounts(dir) {
            let rights = if mount.read_only { "ro" } else { "rw" };
            let (kind, how) = match mount.source.as_str() {
                TMPFS => ("tmpfs", &["x-create=dir", rights][..]),
                UMOUNT => ("none", &["x-detach"][..]),
                _ => ("none", &["x-create=auto", "rbind", rights][..]),
            };
            let flags = how.iter().copied().chain(mount.flags.iter().map(String::as_str)).collect::<Vec<_>>().join(",");
            call.add(["--mount".into(), format!("{}:{}:{kind}:{flags}", mount.source, mount.target)]);
        }
        call.add([name]);
        if let Some(dir) = &container.work_dir {
            // enroot has no option for it.
            call.add(["/bin/sh", "-c", "cd \"$0\" && exec \"$@\"", dir.as_str()]);
        }
        call.add(self.command(argv));
        call
    }

    /// Writes enroot's configuration of the container: its environment, and whether its entrypoint runs. Variables of the
    /// image count more than the task's, unless `--container-env` names them.
    pub(super) fn write_conf(&self, room: &Path, env: impl Iterator<Item = (String, OsString)>) -> std::io::Result<()> {
        let (mut kept, mut others) = (Vec::new(), Vec::new());
        for (name, value) in env {
            let named = self.container.env.contains(&name);
            let value = value.into_encoded_bytes();
            // enroot has no form for a value of several lines.
            if value.contains(&b'\n') || (OF_THE_NODE.contains(&name.as_str()) && !named) {
                continue;
            }
            let list = if named { &mut kept } else { &mut others };
            list.extend([name.as_bytes(), b"=", &value, b"\n"].concat());
        }
        let files = (room.join("kept.env"), room.join("others.env"));
        fs::write(&files.0, kept)?;
        fs::write(&files.1, others)?;
        let mut text = format!(
            "environ() {{\n\
             \u{20}   awk -F= 'FILENAME == ARGV[1] {{ known[$1]; next }} !($1 in known)' \\\n\
             \u{20}       \"${{ENROOT_ROOTFS}}/etc/environment\" {others}\n\
             \u{20}   cat {kept}\n\
             }}\n",
            others = quoted(&files.1),
            kept = quoted(&files.0),
        );
        if self.container.entrypoint != Some(true) {
            // The image's /etc/rc, which runs the entrypoint, reads /etc/rc.local first.
            text.push_str("hooks() {\n    echo 'exec \"$@\"' > \"${ENROOT_ROOTFS}/etc/rc.local\"\n}\n");
        }
        fs::write(conf(room), text)
    }

    /// Returns the folders and files of the node that a container of an image sees. A relative source is in `dir`.
    fn mounts(&self, dir: &Path) -> Vec<Mount> {
        let brought = self.brought.iter().map(|path| Mount {
            source: String::from_utf8_lossy(path).into_owned(),
            target: BROUGHT.to_owned(),
            read_only: true,
            flags: Vec::new(),
        });
        let absolute = |mount: &Mount| match mount.source.as_str() {
            TMPFS | UMOUNT => mount.clone(),
            source => Mount { source: dir.join(source).to_string_lossy().into_owned(), ..mount.clone() },
        };
        self.container.mounts.iter().map(absolute).chain(brought).collect()
    }

    /// Returns the command as the container of an image sees it.
    fn command(&self, argv: &[OsString]) -> Vec<OsString> {
        let mut argv = argv.to_vec();
        if let (Some(_), Some(name)) = (&self.brought, argv.first_mut()) {
            *name = BROUGHT.into();
        }
        argv
    }
}

/// Runs a command, passes on signals, writes the container to a file and exits as the command did. Arguments: enroot, the
/// file, the container's name, and the command.
const SAVING: &str = r#"
enroot=$1; file=$2; name=$3; shift 3
early=
for signal in HUP INT QUIT USR1 USR2 TERM ALRM CONT; do
    trap "kill -s $signal \$! 2>/dev/null || early=$signal" $signal
done
"$enroot" "$@" <&0 &
child=$!
[ -z "$early" ] || kill -s $early $child
while :; do
    wait $child; status=$?
    kill -0 $child 2>/dev/null || break
done
"$enroot" export -f -o "$file" "$name" >&2 || { [ $status != 0 ] || status=125; }
exit $status
"#;

/// Returns the call of a shell that starts the container and then writes it to `file`.
pub(super) fn saving(enroot: &Path, file: &Path, name: &str, call: Call) -> Call {
    let mut saving = Call { env: call.env, ..Call::default() };
    saving.add(["-c", SAVING, "container-save"]);
    saving.add([enroot.as_os_str(), file.as_os_str(), name.as_ref()]);
    saving.add(call.args);
    saving
}

/// Returns the folder of enroot's containers without a name.
fn containers(room: &Path) -> PathBuf {
    room.join("containers")
}

/// Returns the file with enroot's configuration of a task's container.
fn conf(room: &Path) -> PathBuf {
    room.join("enroot.conf")
}

/// Returns a path as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Returns an image as apptainer names it: a file or an address with its kind, and anything else of a registry.
pub(super) fn image_of_apptainer(image: &str) -> String {
    if image.contains("://") || Path::new(image).exists() {
        return image.to_owned();
    }
    // enroot writes `REGISTRY#IMAGE`.
    format!("docker://{}", image.replacen('#', "/", 1))
}
