//! SPANK plugins, with a plugin of the test that is compiled here: hooks, functions, options, and plugins that fail.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::{Cluster, text};

/// Starts a cluster of one node with this `plugstack.conf`. None: this machine has no C compiler.
fn cluster(name: &str, plugstack: &str) -> Option<Cluster> {
    cluster_with(name, plugstack, "")
}

/// The same, with further keys.
fn cluster_with(name: &str, plugstack: &str, further: &str) -> Option<Cluster> {
    let c = Cluster::new("spank", name);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Werror", "-shared", "-fPIC", "-o", &c.path("probe.so"), "-I"]);
    let Ok(out) = cc.arg(here.join("../squall-c")).arg(here.join("tests/e2e/spank.c")).output() else {
        eprintln!("skipped: this machine has no C compiler");
        return None;
    };
    assert!(out.status.success(), "{}", text(&out));
    fs::copy(c.path("probe.so"), c.path("other.so")).unwrap();
    c.list(plugstack);
    c.up(&format!("{further}\n[[nodes]]\nname = \"n1\"\ncpus = 4\nforce = true\n{SLURM}"), &[]);
    Some(c)
}

const SLURM: &str = "[slurm]\nplugstack = \"DIR/plugstack.conf\"\nplugin_timeout_s = 2\n";

trait Plugstack {
    fn list(&self, text: &str);
}

impl Plugstack for Cluster {
    /// Writes the list of plugins.
    fn list(&self, text: &str) {
        self.write("plugstack.conf", &self.filled(text));
    }
}

/// Returns the hooks that were called in a context, in order.
fn hooks(c: &Cluster, context: u32) -> Vec<String> {
    let notes = c.read("notes");
    let own = notes.lines().filter(|line| line.contains(&format!(" context={context} ")));
    own.map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn hooks_are_called_in_order_and_functions_answer() {
    let Some(c) = cluster("order", "required DIR/probe.so notes=DIR/notes\n") else { return };
    let help = c.ok(&["srun", "--help"]);
    assert!(help.contains("Options of plugins:") && help.contains("--greet=name"), "{help}");
    assert!(help.contains("whom to greet") && help.contains("--probe-flag"), "{help}");
    c.write("notes", "");
    let script =
        "echo $SLURM_PROCID $PROBE_STEP $PROBE_TASK [$PROBE_GONE] $PROBE_COMMAND; env | grep -c _SLURM_SPANK; exit 3";
    let mut srun = c.command(&["srun", "-n2", "--greet=you", "--probe-flag", "sh", "-c", script]);
    let out = srun.env("PROBE_GONE", "1").output().unwrap();
    assert_eq!(out.status.code(), Some(3), "{}", text(&out));
    let mut lines: Vec<String> = String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["0", "0", "0 step 0 [] from the command", "1 step 1 [] from the command"], "{}", text(&out));
    assert!(text(&out).contains("slurmstepd: hello from task_init"), "{}", text(&out));
    assert_eq!(hooks(&c, 1), ["init", "init_post_opt", "local_user_init", "exit"]);
    let remote = hooks(&c, 2);
    assert_eq!(remote[..3], ["init", "init_post_opt", "user_init"]);
    assert_eq!(remote.last().map(String::as_str), Some("exit"));
    for hook in ["task_init_privileged", "task_post_fork", "task_init", "task_exit"] {
        assert_eq!(remote.iter().filter(|known| *known == hook).count(), 2, "{hook}: {remote:?}");
    }
    let notes = c.read("notes");
    for line in ["option 7 you remote=0", "option 8 - remote=0", "option 7 you remote=1", "option 8 - remote=1"] {
        assert!(notes.lines().any(|known| known == line), "{line}\n{notes}");
    }
    let functions = "functions exists=1 none=1 small=1 bad=1 getopt=0:you supported=10 error=1";
    assert!(notes.contains(functions), "{notes}");
    let items = "items step=0 nodes=1 tasks=2 here=2 rank=1 maps=1 argv=3:sh version=24.05.8 self=1 env=1 groups=1 cpus=1 \
                 cores=1 status=1";
    assert!(notes.contains(items), "{notes}");
    assert!(notes.lines().any(|line| line.starts_with("task_exit ") && line.ends_with("status=768")), "{notes}");
    assert!(!notes.contains(" other\n") && !notes.contains("no job") && !notes.contains("environment"), "{notes}");
    let mut by_variable = c.command(&["srun", "true"]);
    assert!(by_variable.env("SLURM_SPANK__SLURM_SPANK_OPTION_probe_greet", "her").status().unwrap().success());
    assert!(c.read("notes").lines().any(|line| line == "option 7 her remote=1"), "{}", c.read("notes"));
    let refused = c.squall(&["srun", "--greet=nobody", "true"]);
    assert!(!refused.status.success() && text(&refused).contains("--greet"), "{}", text(&refused));
    let out = c.command(&["srun", "sh", "-c", "echo $PROBE_PREPENDED"]).env("PROBE_BEFORE", "yes").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "1\n", "{}", text(&out));
    let out = c.squall(&["srun", "no-such-program"]);
    assert!(text(&out).contains("no-such-program: No such file or directory"), "{}", text(&out));
    assert_eq!(out.status.code(), Some(2), "{}", text(&out));
}

#[test]
fn batch_scripts_and_salloc_have_the_plugins_too() {
    let Some(c) = cluster("batch", "required DIR/probe.so notes=DIR/notes\n") else { return };
    let script = "#!/bin/sh\n#SBATCH --greet=script\necho $PROBE_STEP $PROBE_COMMAND\nSQUALL srun true\n";
    c.script("job", script.trim_start_matches("#!/bin/sh\n"));
    c.ok(&["sbatch", "--wait", "-o", &c.path("out"), &c.path("job")]);
    assert!(c.read("out").lines().any(|line| line == "step from the command"), "{}", c.read("out"));
    let notes = c.read("notes");
    assert!(notes.contains("option 7 script remote=0") && notes.contains("option 7 script remote=1"), "{notes}");
    assert!(notes.contains("items step=4294967291 "), "{notes}");
    assert_eq!(notes.matches("option 7 script remote=1").count(), 2, "the step has the script's option: {notes}");
    assert_eq!(hooks(&c, 3), ["init", "init_post_opt", "exit"]);
    c.write("notes", "");
    let said = c.ok(&["salloc", "-Q", "--greet=all", "sh", "-c", "echo $PROBE_COMMAND"]);
    assert_eq!(said, "from the command");
    assert!(c.read("notes").contains("option 7 all remote=0"), "{}", c.read("notes"));
    let out = c.squall(&["salloc", "-n1", ":", "--greet=part", "true"]);
    let refused = "--greet: an option of a plugin is for the whole job: give it to the first component";
    assert!(!out.status.success() && text(&out).contains(refused), "{}", text(&out));
    // A command of its own has no plugins.
    c.write("notes", "");
    c.ok(&["squeue"]);
    assert!(
        !c.read("notes").contains(" context=1 ") && !c.read("notes").contains(" context=3 "),
        "{}",
        c.read("notes")
    );
}

#[test]
fn a_required_plugin_that_fails_refuses_in_words_and_an_optional_one_warns() {
    let Some(c) = cluster("fails", "") else { return };
    let run = |kind: &str, deed: &str| {
        c.list(&format!("required DIR/other.so notes=DIR/notes\n{kind} DIR/probe.so notes=DIR/notes {deed}\n"));
        let out = c.squall(&["srun", "echo", "ran"]);
        (out.status.success(), text(&out))
    };
    for hook in
        ["init", "init_post_opt", "local_user_init", "user_init", "task_init_privileged", "task_init", "task_post_fork"]
    {
        let (good, said) = run("required", &format!("fail={hook}"));
        assert!(!good && !said.contains("ran\n"), "{hook}: {said}");
        assert!(
            said.contains(&format!("spank: required plugin probe: {hook} failed with status -3")),
            "{hook}: {said}"
        );
        let (good, said) = run("optional", &format!("fail={hook}"));
        assert!(good && said.contains("ran"), "{hook}: {said}");
        assert!(
            said.contains(&format!("spank: optional plugin probe: {hook} failed with status -3")),
            "{hook}: {said}"
        );
    }
    for hook in ["task_exit", "exit"] {
        let (good, said) = run("required", &format!("fail={hook}"));
        assert!(good && said.contains(&format!("{hook} failed with status -3")), "{hook}: {said}");
    }
    c.list("required DIR/none.so\n");
    let out = c.squall(&["srun", "true"]);
    assert!(!out.status.success() && text(&out).contains("plugstack.conf:1: "), "{}", text(&out));
    c.list("optional DIR/none.so\n");
    assert!(c.squall(&["srun", "true"]).status.success());
    // Whatever happened, the node is well.
    c.until("the node is idle again", || c.ok(&["sinfo", "-h", "-o", "%t"]) == "idle");
}

#[test]
fn a_plugin_that_crashes_or_hangs_is_refused_or_left_out() {
    let Some(c) = cluster("crash", "") else { return };
    for (deed, word) in [("crash", "crashed with signal 6"), ("hang", "took too long")] {
        for hook in ["user_init", "task_init_privileged", "task_init"] {
            for (kind, good) in [("required", false), ("optional", true)] {
                c.list(&format!("{kind} DIR/probe.so notes=DIR/notes {deed}={hook}\n"));
                let out = c.squall(&["srun", "echo", "ran"]);
                let said = text(&out);
                assert_eq!(out.status.success(), good, "{deed} {kind} {hook}: {said}");
                let expected = format!("spank: {kind} plugin probe.so {word}");
                assert!(said.contains(&expected) && said.contains(hook), "{expected} {hook}: {said}");
                assert_eq!(said.contains("ran\n"), good, "{deed} {kind} {hook}: {said}");
            }
        }
    }
    c.until("the node is idle again", || c.ok(&["sinfo", "-h", "-o", "%t"]) == "idle");
}

#[test]
fn a_step_is_cancelled_while_a_plugin_prepares_it() {
    let Some(c) = cluster("cancel", "required DIR/probe.so notes=DIR/notes\n") else { return };
    c.list("required DIR/probe.so notes=DIR/notes hang=user_init\n");
    let config = c.read("state/squall.toml").replace("plugin_timeout_s = 2", "plugin_timeout_s = 600");
    c.write("state/squall.toml", &config);
    c.kill("node-n1");
    c.ok(&["up"]);
    let job = c.ok(&["sbatch", "--parsable", "-o", "/dev/null", "--wrap", "true"]);
    c.until("the plugin hangs", || c.read("notes").contains("user_init context=2"));
    c.ok(&["scancel", job.trim()]);
    c.until("the job is gone", || c.ok(&["squeue", "-h", "-o", "%i"]).is_empty());
    c.until("the node is idle again", || c.ok(&["sinfo", "-h", "-o", "%t"]) == "idle");
}

#[test]
fn the_list_of_plugins_is_checked() {
    let Some(c) = cluster("check", "include more/*.conf\n") else { return };
    c.write("squall.toml", "[slurm]\nplugstack = \"plugstack.conf\"\n");
    c.ok(&["check", &c.path("squall.toml")]);
    fs::create_dir(c.path("more")).unwrap();
    c.write("more/a.conf", &c.filled("optional DIR/probe.so\noptional DIR/gone.so\n"));
    let said = c.said(&["check", &c.path("squall.toml")]);
    assert!(said.contains("more/a.conf:2: ") && said.contains("gone.so") && !said.contains("a.conf:1"), "{said}");
    c.write("more/a.conf", "often DIR/probe.so\n");
    c.fails(&["check", &c.path("squall.toml")], "more/a.conf:1: `often`: use required, optional or include");
}

/// Returns what a hook has noted last.
fn noted(c: &Cluster, hook: &str) -> String {
    let notes = c.read("notes");
    notes.lines().rfind(|line| line.starts_with(&format!("{hook} "))).unwrap_or_default().to_owned()
}

#[test]
fn hooks_run_around_each_job_and_beside_the_node_daemon() {
    let programs = "[hooks]\nprolog = \"DIR/prolog\"\nepilog = \"DIR/epilog\"";
    let Some(c) = cluster_with("around", "required DIR/probe.so notes=DIR/notes\n", programs) else { return };
    for name in ["prolog", "epilog"] {
        c.script(name, &format!("env | grep ^SPANK_ | sort | tr '\\n' ' ' > {}\n", c.path(&format!("{name}.env"))));
    }
    c.until("the hook has run", || noted(&c, "slurmd_init").contains("context=4 remote=0 "));
    assert!(noted(&c, "slurmd_init").ends_with("item=1 major=24 node=n1"), "{}", c.read("notes"));
    assert_eq!(hooks(&c, 4), ["init", "slurmd_init"]);
    c.ok(&["srun", "--greet=two words", "true"]);
    c.until("the epilog has run", || c.read("epilog.env").contains("SPANK_A"));
    let own = format!("owner={}:{}", rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    for (hook, code) in [("job_prolog", "-"), ("job_epilog", "0")] {
        let seen = noted(&c, hook);
        let expected = format!(
            "job=1 {own} step=1 env=1 control=1 SPANK_A=control SPANK_B=- SPANK_C=two words getopt=0:two words code={code}"
        );
        assert!(seen.contains("context=5 remote=0 ") && seen.ends_with(&expected), "{expected}\n{seen}");
    }
    assert!(!c.read("notes").contains("control environment"), "{}", c.read("notes"));
    // What a shell could take apart does not reach scripts.
    assert_eq!((c.read("prolog.env").trim(), c.read("epilog.env").trim()), ("SPANK_A=control", "SPANK_A=control"));
    // Steps in an allocation have no prologs of their own, and batch scripts have theirs.
    c.write("notes", "");
    c.ok(&["sbatch", "--wait", "-o", "/dev/null", "--greet=b", "--wrap", &c.filled("SQUALL srun true")]);
    c.until("the epilog has run", || noted(&c, "job_epilog").contains("getopt=0:b"));
    assert_eq!(c.read("notes").matches("job_prolog ").count(), 1, "{}", c.read("notes"));
    c.kill("node-n1");
    c.until("the node daemon has ended", || noted(&c, "slurmd_exit").ends_with("same process"));
}

#[test]
fn plugins_that_fail_around_jobs_are_reported_and_end_no_daemon() {
    let Some(c) =
        cluster_with("around-fails", "optional DIR/other.so notes=DIR/notes\n", "[hooks]\nepilog = \"DIR/epilog\"")
    else {
        return;
    };
    c.script("epilog", &format!("echo ran >> {}\n", c.path("ran")));
    let log = || c.read("state/log/node-n1.log");
    for (deed, word) in
        [("fail", "failed with status -3"), ("crash", "crashed with signal 6"), ("hang", "took too long")]
    {
        // An optional one is a warning, and what stands behind it runs.
        c.write("notes", "");
        c.list(&format!(
            "optional DIR/probe.so notes=DIR/notes {deed}=job_prolog\noptional DIR/other.so notes=DIR/notes\n"
        ));
        c.ok(&["srun", "true"]);
        let said = format!("optional plugin probe{} {word}", if deed == "fail" { ": job_prolog" } else { ".so" });
        assert!(log().contains(&said), "{said}\n{}", log());
        c.until("both epilogs have run", || c.read("notes").matches("job_epilog ").count() == 2);
        assert_eq!(c.read("notes").matches("job_prolog ").count(), 2, "{}", c.read("notes"));
        // A required one ends the job, and has the node drained.
        c.list(&format!("required DIR/probe.so notes=DIR/notes {deed}=job_prolog\n"));
        let job = c.ok(&["sbatch", "--parsable", "--no-requeue", "-o", "/dev/null", "--wrap", "true"]);
        c.until("the node is drained", || c.ok(&["sinfo", "-h", "-o", "%t"]).starts_with("drain"));
        let said = format!("ERROR Prolog failed job={} error=\"spank: required plugin probe", job.trim());
        assert!(log().lines().any(|line| line.contains(&said) && line.contains(word)), "{}", log());
        c.ok(&["scancel", job.trim()]);
        c.until("the job is gone", || c.ok(&["squeue", "-h", "-o", "%i"]).is_empty());
        c.list("");
        c.ok(&["scontrol", "update", "nodename=n1", "state=resume"]);
        // The site's epilog runs, whatever plugins do.
        let before = c.read("ran").lines().count();
        c.list(&format!("required DIR/probe.so notes=DIR/notes {deed}=job_epilog\n"));
        c.ok(&["srun", "true"]);
        c.until("the node is drained", || c.ok(&["sinfo", "-h", "-o", "%t"]).starts_with("drain"));
        assert!(c.read("ran").lines().count() > before);
        c.list("");
        c.ok(&["scontrol", "update", "nodename=n1", "state=resume"]);
        c.until("the node is idle", || c.ok(&["sinfo", "-h", "-o", "%t"]) == "idle");
    }
    for (deed, word) in
        [("fail", "failed with status -3"), ("crash", "crashed with signal 6"), ("hang", "took too long")]
    {
        for hook in ["slurmd_init", "slurmd_exit"] {
            for kind in ["required", "optional"] {
                c.list(&format!("{kind} DIR/probe.so notes=DIR/notes {deed}={hook}\n"));
                let before = log().len();
                c.kill("node-n1");
                c.ok(&["up"]);
                c.until("the node is back", || c.ok(&["sinfo", "-h", "-o", "%t"]) == "idle");
                if hook == "slurmd_init" {
                    let said =
                        format!("{kind} plugin probe{} {word}", if deed == "fail" { ": slurmd_init" } else { ".so" });
                    c.until("the plugin's fault is in the log", || log()[before..].contains(&said));
                }
            }
        }
    }
    c.list("");
    c.ok(&["srun", "true"]);
}
