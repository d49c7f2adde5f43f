//! The environment of programs that daemons run as root around jobs.
//!
//! It is made of what the cluster knows and checked. Nothing that a user wrote is in it: no variable, no file name, no
//! comment, no name of a job. A script that uses a value without quotes can therefore not be made to run a user's text.

use std::fmt::Display;

use squall_model::id::NodeId;
use squall_model::job::ExitCode;
use squall_model::step::JobFacts;
use squall_model::wire::hook::Hook;

use crate::environment::Env;

/// Search path of the programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Characters, besides letters and digits, of names and host lists that become values.
const HARMLESS: &str = "_-.,:[]@/";

/// What a program runs for.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// Kind of the program.
    pub hook: Hook,
    /// The job. None: the program runs for the node.
    pub facts: Option<&'a JobFacts>,
    /// Name of the node on which the program runs; empty: it runs on the controller's machine.
    pub node: &'a str,
    /// Name of the cluster.
    pub cluster: &'a str,
    /// Exit code of the job, for epilogs.
    pub exit: Option<ExitCode>,
    /// Highest exit code of the job's steps, for epilogs on the controller's machine.
    pub derived: Option<ExitCode>,
}

/// Returns the whole environment of a program.
pub fn hook_env(about: About<'_>) -> Env {
    let mut env = Vec::new();
    let mut set = |name: &str, value: &dyn Display| {
        let value = value.to_string();
        if value.chars().all(is_plain) && !value.is_empty() {
            env.push((name.to_owned(), value));
        }
    };
    set("PATH", &PATH);
    set("SLURM_CLUSTER_NAME", &about.cluster);
    set("SLURMD_NODENAME", &about.node);
    if let Some(context) = about.hook.context() {
        set("SLURM_SCRIPT_CONTEXT", &context);
    }
    if let Some(facts) = about.facts {
        of_job(&mut set, facts, about.node);
        for (name, value) in of_plugins(facts, |value| value.chars().all(is_plain)) {
            set(&name, &value);
        }
    }
    if let Some(exit) = about.exit {
        set("SLURM_JOB_EXIT_CODE", &wait_status(exit));
        set("SLURM_JOB_EXIT_CODE2", &format_args!("{}:{}", exit.code, exit.signal));
    }
    if let Some(derived) = about.derived {
        set("SLURM_JOB_DERIVED_EC", &wait_status(derived));
    }
    env
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || HARMLESS.contains(c)
}

/// Returns the variables that hooks of SPANK plugins get around a job, besides those of programs: what plugins beside the
/// command have set, and the options of plugins, as they are.
pub fn plugin_env(facts: &JobFacts) -> Env {
    of_plugins(facts, |_| true).collect()
}

/// Returns what plugins have set for prologs, if its value is wanted. The prefix keeps it from changing anything else.
fn of_plugins(facts: &JobFacts, wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = (String, String)> {
    let set = facts.spec.options.get().map_or(&[][..], |chosen| &chosen.plugin_env).iter();
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let fits = move |(name, value): &&(String, String)| is_name(name) && !value.contains('\0') && wanted(value);
    set.filter(fits).map(|(name, value)| (format!("SPANK_{name}"), value.clone()))
}

/// Returns an exit code as wait(2) gives it, which is Slurm's form.
fn wait_status(exit: ExitCode) -> u32 {
    u32::from(exit.code) << 8 | u32::from(exit.signal)
}

fn of_job(set: &mut impl FnMut(&str, &dyn Display), facts: &JobFacts, node: &str) {
    let owner = &facts.owner;
    set("SLURM_JOB_ID", &facts.key.job);
    set("SLURM_JOBID", &facts.key.job);
    set("SLURM_JOB_UID", &owner.uid);
    set("SLURM_UID", &owner.uid);
    set("SLURM_JOB_USER", &owner.user);
    set("SLURM_JOB_GID", &owner.gid);
    set("SLURM_JOB_GROUP", &owner.group);
    set("SLURM_JOB_PARTITION", &facts.partition);
    set("SLURM_JOB_ACCOUNT", &facts.account);
    set("SLURM_JOB_QOS", &facts.qos);
    set("SLURM_JOB_NODELIST", &facts.nodes.as_str());
    set("SLURM_JOB_NUM_NODES", &facts.nodes.len());
    set("SLURM_NNODES", &facts.nodes.len());
    set("SLURM_JOB_RESTART_COUNT", &facts.restarts);
    set("SLURM_JOB_START_TIME", &facts.start.secs());
    if let Some(end) = facts.end {
        set("SLURM_JOB_END_TIME", &end.secs());
    }
    if let (Some(task), Some(array)) = (facts.array, &facts.spec.array) {
        set("SLURM_ARRAY_JOB_ID", &task.array);
        set("SLURM_ARRAY_TASK_ID", &task.index);
        set("SLURM_ARRAY_TASK_COUNT", &array.indices.len());
        set("SLURM_ARRAY_TASK_MIN", &array.indices.first().unwrap_or(0));
        set("SLURM_ARRAY_TASK_MAX", &array.indices.last().unwrap_or(0));
    }
    // because the controller's own programs run on no node of the job
    let Some(place) = facts.nodes.names().iter().position(|name| name == node) else { return };
    if let Some(cpus) = facts.cpus.get(place) {
        set("SLURM_CPUS_ON_NODE", cpus);
    }
    if let Some(gpus) = facts.in_order().nth(place).map(|id| gpus_on(facts, id)).filter(|gpus| !gpus.is_empty()) {
        for name in ["SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"] {
            set(name, &gpus);
        }
    }
}

/// Returns the indices of the job's GPUs on a node, separated by commas.
fn gpus_on(facts: &JobFacts, node: NodeId) -> String {
    let grants = facts.gres.iter().filter(|grant| grant.name == "gpu" && grant.nodes.contains(node));
    let gpus: Vec<String> = grants.flat_map(|grant| grant.indices.iter()).map(|gpu| gpu.to_string()).collect();
    gpus.join(",")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use squall_model::id::{JobId, NodeId, StepKey};
    use squall_model::job::options::Chosen;
    use squall_model::job::{ExitCode, JobSpec, Owner};
    use squall_model::set::NodeSet;
    use squall_model::step::JobFacts;
    use squall_model::wire::hook::Hook;

    use super::{About, hook_env};

    fn facts() -> JobFacts {
        JobFacts {
            key: StepKey { job: JobId(7), ..StepKey::default() },
            owner: Arc::new(Owner { uid: 1000, gid: 100, user: "ann".into(), ..Owner::default() }),
            partition: "main".into(),
            nodes: ["n1", "n2"].into_iter().map(str::to_owned).collect(),
            ids: [NodeId(0), NodeId(1)].into_iter().collect::<NodeSet>(),
            cpus: vec![4, 2].into(),
            ..JobFacts::default()
        }
    }

    fn env_of(facts: &JobFacts) -> Vec<(String, String)> {
        let exit = Some(ExitCode { code: 2, signal: 9 });
        hook_env(About { hook: Hook::Epilog, facts: Some(facts), node: "n2", cluster: "lab", exit, derived: None })
    }

    #[test]
    fn slurms_variables_are_set() {
        let env = env_of(&facts());
        let value = |name: &str| env.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str());
        let expected = [
            ("SLURM_JOB_ID", "7"),
            ("SLURM_JOB_UID", "1000"),
            ("SLURM_JOB_USER", "ann"),
            ("SLURM_JOB_PARTITION", "main"),
            ("SLURM_JOB_NODELIST", "n[1-2]"),
            ("SLURM_SCRIPT_CONTEXT", "epilog_slurmd"),
            ("SLURM_CLUSTER_NAME", "lab"),
            ("SLURMD_NODENAME", "n2"),
            ("SLURM_CPUS_ON_NODE", "2"),
            ("SLURM_JOB_EXIT_CODE", "521"),
            ("SLURM_JOB_EXIT_CODE2", "2:9"),
        ];
        for (name, expected) in expected {
            assert_eq!(value(name), Some(expected), "{name}");
        }
    }

    // CVE-2021-31215, CVE-2016-10030, CVE-2020-12693 and their kind: what a user writes never reaches a root program.
    #[test]
    fn nothing_that_a_user_wrote_is_in_it() {
        let evil = "x; $(touch /tmp/owned) `id`";
        let mut facts = facts();
        let mut options = Chosen::default();
        options.shown.submit_dir = Some(evil.into());
        options.shown.export = Some("LD_PRELOAD=/tmp/evil.so".into());
        let mut spec =
            JobSpec { name: evil.into(), work_dir: evil.into(), options: options.into(), ..JobSpec::default() };
        spec.submit_host = evil.into();
        spec.wckey = Some(evil.into());
        let sets = [("LD_PRELOAD", "/tmp/evil.so"), ("A", evil), ("B=C", "x"), ("D", "4G,/scratch")];
        let sets = sets.map(|(name, value)| (name.to_owned(), value.to_owned()));
        spec.options.plugin_env = sets.to_vec();
        facts.spec = Arc::new(spec);
        facts.account = evil.into();
        facts.qos = "a b".into();
        let env = env_of(&facts);
        for (name, value) in &env {
            assert!(!value.contains(['$', '`', ';', ' ', '\n']), "{name}={value}");
            assert!(name == "PATH" || name.starts_with("SLURM") || name.starts_with("SPANK_"), "{name}");
        }
        assert!(!env.iter().any(|(name, _)| name == "SLURM_JOB_ACCOUNT" || name == "SLURM_JOB_NAME"));
        let of_plugins = |env: Vec<(String, String)>| -> Vec<String> {
            env.into_iter().map(|(name, _)| name).filter(|name| name.starts_with("SPANK_")).collect()
        };
        assert_eq!(of_plugins(env), ["SPANK_LD_PRELOAD", "SPANK_D"]);
        // Plugins read options of users, whatever is in them.
        assert_eq!(of_plugins(super::plugin_env(&facts)), ["SPANK_LD_PRELOAD", "SPANK_A", "SPANK_D"]);
    }
}
