//! What programs, users and accidents do wrong: a word on it, and nothing is left behind.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Site;
use crate::traces;

impl Site {
    /// A step of four tasks on two nodes, one of which never comes to the fence, once all tasks are there.
    pub(super) fn waits_in_a_fence(&self) -> std::process::Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
        command
            .args(["srun", "-wn[1-2]", "-N2", "--ntasks-per-node=2", "./ends", "late", "3"])
            .current_dir(&self.folder);
        command.env("SQUALL_STATE", self.folder.join("state")).stdin(Stdio::null());
        let srun = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        self.wait_for("the tasks do not start", || self.processes("./ends").len() == 4);
        srun
    }

    /// Those of the site whose command lines begin so.
    pub(super) fn processes(&self, what: &str) -> Vec<i32> {
        let all = traces::processes(&self.folder).into_iter();
        all.filter(|(_, line)| line.starts_with(what)).map(|(pid, _)| pid as i32).collect()
    }

    pub(super) fn wait_for(&self, what: &str, done: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !done() {
            assert!(Instant::now() < end, "{what}: {:#?}", traces::processes(&self.folder));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A step daemon that dies while tasks wait for each other ends the step, on all nodes.
    pub(super) fn loses_a_step_daemon(&self) {
        let srun = self.waits_in_a_fence();
        let daemons = self.processes(&format!("squall step --spool {}/node/n1/", self.path("state")));
        let [daemon] = daemons[..] else { panic!("one step daemon on n1: {daemons:?}") };
        kill(daemon);
        let out = srun.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&out.stderr);
        let said = err.contains("the step daemon on n1 is gone");
        assert!(out.status.code() == Some(1) && said, "{:?}: {err}", out.status);
        self.wait_for("tasks are left", || self.processes("./ends").is_empty());
    }

    /// A node daemon that dies and comes back in mid-fence is not noticed by the tasks.
    pub(super) fn outlives_a_node_daemon(&self) {
        let mut srun = self.waits_in_a_fence();
        let pid = std::fs::read_to_string(self.folder.join("state/run/node-n1.pid")).unwrap();
        kill(pid.trim().parse().unwrap());
        // Until it is dead it is there, and is not started again.
        let stat = format!("/proc/{}/stat", pid.trim());
        self.wait_for("the node daemon", || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z ")));
        let up =
            self.run(&["up", "--nodes", "8", "--config", &self.path("site.toml"), "--state", &self.path("state")], &[]);
        assert_eq!(up.0, 0, "{}", up.2);
        assert_eq!(self.processes("./ends").len(), 4, "all go on");
        kill(srun.id() as i32);
        srun.wait().unwrap();
        self.wait_for("tasks are left", || self.processes("./ends").is_empty());
        self.greets(2, 2, &[]);
    }

    /// Who is not the step's user is not let in, though he knows all that its tasks know.
    pub(super) fn refuses_other_users(&self) {
        let program = self.folder.join("fence");
        let may = Command::new("setpriv").args(["--reuid=65534", "--clear-groups"]).arg("true").status();
        if !may.is_ok_and(|status| status.success()) || !program.exists() {
            eprintln!("skipped: cannot be another user here");
            return;
        }
        // All may execute it there.
        let copy = std::env::temp_dir().join(format!("squall-mpi-other-{}", std::process::id()));
        std::fs::copy(&program, &copy).unwrap();
        let stranger = format!("setpriv --reuid=65534 --clear-groups {} 0 9; echo refused $?", copy.display());
        let (_, out, err) = self.srun(&["-N1", "-n1", "sh", "-c", &stranger], &[]);
        std::fs::remove_file(&copy).unwrap();
        assert_eq!(out, "refused 1\n", "{err}");
        assert!(err.contains("init: "), "{err}");
    }

    /// Idle connections of other users, and of the step's own, do not delay its tasks.
    pub(super) fn is_not_held_up(&self) {
        let hello = "timeout 8 ./hello; echo ended $?";
        let hold = "for i in $(seq 40); do exec {fd}<>/dev/tcp/${uri/://} || exit 1; done; echo held; read -t 9 <&$fd";
        for who in ["setpriv --reuid=65534 --clear-groups", "env"] {
            let mut words = who.split(' ');
            let may = Command::new(words.next().unwrap()).args(words).arg("true").status();
            if !may.is_ok_and(|status| status.success()) {
                eprintln!("skipped: {who}");
                continue;
            }
            let script = format!(
                "export uri=${{PMIX_SERVER_URI41##*//}}; {who} bash -c '{hold}' > held & until grep -q held held; do \
                 kill -0 $! || break; sleep 0.01; done; {hello}; kill $!"
            );
            let began = Instant::now();
            let (_, out, err) = self.srun(&["-N1", "-n1", "bash", "-c", &script], &[]);
            assert!(out.ends_with("ended 0\n"), "{who}: {out}\n{err}");
            assert!(began.elapsed() < Duration::from_secs(5), "{who}: {:?}", began.elapsed());
        }
    }

    /// Without libpmix MPI programs that want it hear why they can't start, once for each node; all others run.
    pub(super) fn does_without_libpmix(&self) {
        let missing = self.folder.join("missing");
        std::fs::create_dir_all(&missing).unwrap();
        std::fs::write(missing.join("libpmix.so.2"), "").unwrap();
        let state = self.path("bare");
        let env = [("LD_LIBRARY_PATH", missing.to_str().unwrap()), ("SQUALL_STATE", state.as_str())];
        let up = self.run(&["up", "--nodes", "2", "--state", &state], &env);
        assert_eq!(up.0, 0, "{}", up.2);
        let env = [("SQUALL_STATE", state.as_str())];
        let serial = self.srun(&["-N2", "echo", "here"], &env);
        let parallel = self.srun(&["-N2", "-n2", "./hello"], &env);
        let down = self.run(&["down", "--state", &state], &[]);
        assert_eq!(down.0, 0, "{}", down.2);
        assert_eq!((serial.0, serial.1.as_str(), serial.2.as_str()), (0, "here\nhere\n", ""));
        let (status, out, err) = parallel;
        assert_ne!(status, 0, "{out}\n{err}");
        assert_eq!(err.matches("no PMIx for MPI programs on n1").count(), 1, "{out}\n{err}");
    }

    /// `mpirun` in an allocation, and several steps at once.
    pub(super) fn lives_in_an_allocation(&self, launcher: Option<&str>) {
        let steps = "srun -n2 ./hello & srun -n2 ./hello & wait";
        let mut script = format!("PATH={}:$PATH; {steps}", self.path("bin"));
        if let Some(launcher) = launcher {
            script = format!("{script}; {launcher} ./hello");
        }
        let (status, out, err) = self.run(&["salloc", "-N2", "--ntasks-per-node=2", "sh", "-c", &script], &[]);
        assert_eq!(status, 0, "{out}\n{err}");
        assert_eq!(out.lines().filter(|line| line.contains("of 2 on")).count(), 4, "{out}\n{err}");
        let launched = out.lines().filter(|line| line.contains("of 4 on")).count();
        assert_eq!(launched, if launcher.is_some() { 4 } else { 0 }, "{out}\n{err}");
    }
}

fn kill(pid: i32) {
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
}
