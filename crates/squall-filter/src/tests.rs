//! Filters of the kinds that sites have, on jobs as users submit them; and scripts with faults.

use std::fs;

use serde_json::json;
use squall_model::config::{PartitionConfig, Submit};
use squall_model::id::JobId;
use squall_model::job::{JobSpec, Owner};
use squall_model::wire::client::JobUpdate;
use squall_model::wire::filter::{About, FilterScript, Modification, script_of};

use crate::{Filter, rehearse};

/// A folder of scripts, removed at the end.
struct Scripts(std::path::PathBuf);

impl Scripts {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("squall-filter-{}-{name}", std::process::id()));
        fs::create_dir_all(dir.join("rules")).expect("a folder can be made");
        Self(dir)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("a file can be written");
    }

    fn script(&self, allow_programs: bool) -> FilterScript {
        let submit = Submit { lua: "job_submit.lua".into(), allow_programs, ..Submit::default() };
        let partition = |name: &str, max_time_s, default| PartitionConfig {
            name: name.into(),
            max_time_s,
            default,
            ..PartitionConfig::default()
        };
        let root = PartitionConfig { root_only: true, ..partition("admin", None, false) };
        let partitions = vec![partition("short", Some(14_400), true), partition("long", None, false), root];
        script_of(&submit, &self.0.display().to_string(), partitions).expect("a script is named")
    }

    fn load(&self) -> Result<Filter, String> {
        Filter::load(self.script(false), |_| Ok(()))
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("it can be removed");
    }
}

fn ann() -> Owner {
    Owner { uid: 1000, gid: 100, groups: vec![100], user: "ann".into(), group: "users".into() }
}

/// Returns a script whose submit function has this body.
fn submitting(body: &str) -> String {
    format!(
        "function slurm_job_submit(job_desc, part_list, submit_uid)\n{body}\nreturn slurm.SUCCESS\nend\n\
         function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end\n"
    )
}

/// Ten kinds of filters: what it is for, the body of `slurm_job_submit`, a job, and what becomes of it.
const KINDS: &[(&str, &str, &str, &str)] = &[
    (
        "a default partition by the time limit",
        "if job_desc.partition == nil then
           job_desc.partition = (job_desc.time_limit ~= slurm.NO_VAL and job_desc.time_limit > 240) and 'long' or 'short'
         end",
        r#"{"time_limit": 600}"#,
        "changed: partition: unset -> \"long\"\naccepted\n",
    ),
    (
        "no job without an account",
        "if job_desc.account == nil and job_desc.default_account == nil then
           slurm.log_user('%s: name an account with -A', job_desc.user_name)
           return slurm.ESLURM_INVALID_ACCOUNT
         end",
        "{}",
        "user: ann: name an account with -A\nrefused (error 2045)\n",
    ),
    (
        "a QOS by the partition",
        "local qos = ({ long = 'steady' })[job_desc.partition]
         if qos and job_desc.qos == nil then job_desc.qos = qos; slurm.log_info('qos %s', qos) end",
        r#"{"partition": "long"}"#,
        "log (info): qos steady\nchanged: qos: unset -> \"steady\"\naccepted\n",
    ),
    (
        "at most eight hours for interactive jobs",
        "if job_desc.script == '' or job_desc.name == 'interactive' then
           if job_desc.time_limit == slurm.NO_VAL or job_desc.time_limit > 480 then job_desc.time_limit = 480 end
         end",
        r#"{"name": "interactive", "time_limit": 1440}"#,
        "changed: time_limit: 1440 -> 480\naccepted\n",
    ),
    (
        "a feature by the type of GPU",
        "local kind = (job_desc.tres_per_node or job_desc.gres or ''):match('gpu:(%a[%w_]*)')
         if kind then job_desc.features = job_desc.features and job_desc.features .. '&' .. kind or kind end",
        r#"{"tres_per_node": "gres/gpu:a100:2", "features": "ib"}"#,
        "changed: features: \"ib\" -> \"ib&a100\"\naccepted\n",
    ),
    (
        "no `--mem=0`",
        "if job_desc.min_mem_per_node == 0 or job_desc.min_mem_per_cpu == 0 then
           slurm.user_msg('ask for the memory that you need')
           slurm.user_msg('or for --exclusive')
           return slurm.ERROR
         end",
        r#"{"min_mem_per_node": 0}"#,
        "user: ask for the memory that you need\nuser: or for --exclusive\nrefused (error 1)\n",
    ),
    (
        "partitions with a new name",
        "local new = { batch = 'short', week = 'long' }
         if job_desc.partition then
           local names = {}
           for name in string.gmatch(job_desc.partition, '[^,]+') do names[#names + 1] = new[name] or name end
           job_desc.partition = table.concat(names, ',')
         end",
        r#"{"partition": "batch,week,admin"}"#,
        "changed: partition: \"batch,week,admin\" -> \"short,long,admin\"\naccepted\n",
    ),
    (
        "comments for the accounting of others",
        "job_desc.admin_comment = string.format('%s:%d', job_desc.user_name, submit_uid)
         job_desc.comment = (job_desc.comment or '') .. ' from ' .. tostring(job_desc.alloc_node)
         job_desc.environment.SITE = 'x'",
        r#"{"comment": "mine", "alloc_node": "login1"}"#,
        "changed: admin_comment: unset -> \"ann:1000\"\nchanged: comment: \"mine\" -> \"mine from login1\"\nchanged: environment\naccepted\n",
    ),
    (
        "memory for each CPU within the nodes' share",
        "local share = 4000
         if job_desc.pn_min_memory == slurm.NO_VAL64 then
           job_desc.min_mem_per_cpu = share
         elseif job_desc.min_mem_per_cpu and job_desc.min_mem_per_cpu > share then
           local cpus = job_desc.cpus_per_task
           if cpus == slurm.NO_VAL16 then cpus = 1 end
           job_desc.cpus_per_task = math.ceil(cpus * job_desc.min_mem_per_cpu / share)
           job_desc.min_mem_per_cpu = share
         end",
        r#"{"min_mem_per_cpu": 10000}"#,
        "changed: cpus_per_task: unset -> 3\nchanged: min_mem_per_cpu: 10000 -> 4000\naccepted\n",
    ),
    (
        "licences of a program that the script calls",
        "if job_desc.script and job_desc.script:find('\\nfluent') then
           if part_list.admin then return slurm.ERROR end
           if job_desc.num_tasks == slurm.NO_VAL or job_desc.num_tasks > 16 then return slurm.ESLURM_INVALID_LICENSES end
           job_desc.licenses = 'fluent:' .. job_desc.num_tasks
         end",
        r##"{"script": "#!/bin/sh\nfluent 3d\n", "num_tasks": 8}"##,
        "changed: licenses: unset -> \"fluent:8\"\naccepted\n",
    ),
    (
        "time limits within those of the partition, nodes whole",
        "local part = part_list[job_desc.partition or 'short']
         if part.flag_default == 1 and job_desc.time_limit > part.max_time then job_desc.time_limit = part.max_time end
         if job_desc.min_nodes ~= slurm.NO_VAL and job_desc.min_nodes > 1 then job_desc.shared = 0 end",
        r#"{"time_limit": 9999, "min_nodes": 2}"#,
        "changed: time_limit: 9999 -> 240\nchanged: shared: unset -> 0\naccepted\n",
    ),
];

#[test]
fn filters_of_the_kinds_that_sites_have() {
    let scripts = Scripts::new("kinds");
    for (kind, body, job, expected) in KINDS {
        scripts.write("job_submit.lua", &submitting(body));
        let mut filter = scripts.load().unwrap_or_else(|problem| panic!("{kind}: {problem}"));
        let made = rehearse(&mut filter, job, ann());
        assert_eq!(made.map(|(report, _)| report).as_deref(), Ok(*expected), "{kind}");
    }
}

#[test]
fn faults_name_file_and_line() {
    let scripts = Scripts::new("faults");
    scripts.write("rules/broken.lua", "\nlocal x = = 1\n");
    scripts.write("rules/late.lua", "return { check = function(job)\n\n return job.partition.name end }\n");
    let load = |script: &str| {
        scripts.write("job_submit.lua", script);
        scripts.load().map(|_| ())
    };
    let says = |done: Result<(), String>, text: &str| {
        let problem = done.expect_err(text);
        assert!(problem.contains(text), "{problem}");
    };
    says(load("function slurm_job_submit(\n"), "job_submit.lua:2: <name> or '...' expected near <eof>");
    says(load("x = nil\nx.y = 1\n"), "job_submit.lua:2: attempt to index a nil value (global 'x')");
    says(load("function slurm_job_submit() end"), "job_submit.lua: it defines no function slurm_job_modify");
    says(load("require('rules.broken')"), "rules/broken.lua:2: unexpected symbol near '='");
    says(load("dofile('/etc/passwd')"), "job_submit.lua:1: /etc/passwd: ");
    says(load("dofile('../../etc/passwd')"), "job_submit.lua:1: ../../etc/passwd: ");
    says(load("require('posix')"), "job_submit.lua:1: module 'posix': ");
    says(load("\nio.popen('id')"), "job_submit.lua:2: io.popen needs `allow_programs = true`");
    says(load("os.execute('id')"), "os.execute needs `allow_programs = true`");
    says(load("while true do end"), "job_submit.lua:1: more than 1 s of CPU time");
    says(load("load(string.dump(function() end))()"), "attempt to call a nil value");
    scripts.write("job_submit.lua", &submitting("do return require('rules.late').check(job_desc) end"));
    let mut filter = scripts.load().expect("it can be loaded");
    let (report, accepted) = rehearse(&mut filter, "{}", ann()).expect("it is JSON");
    assert!(!accepted && report.contains("rules/late.lua:3: attempt to index a nil value"), "{report}");
}

#[test]
fn a_script_that_uses_too_much_is_stopped() {
    let scripts = Scripts::new("limits");
    for (body, says) in [
        ("while true do end", "job_submit.lua:2: more than 1 s of CPU time"),
        ("local text = 'x'\nwhile true do text = text .. text end", "job_submit.lua:3: more than 64 MiB of memory"),
        ("local all = {}\nfor i = 1, 1e9 do all[i] = { i } end", "job_submit.lua:3: more than 64 MiB of memory"),
        ("do return string.rep('x', 1 << 40) end", "job_submit.lua"),
        ("while true do pcall(function() while true do end end) end", "more than 1 s of CPU time"),
        ("coroutine.wrap(function() while true do end end)()", "more than 1 s of CPU time"),
        ("local function f() return f() + 1 end do return f() end", "job_submit.lua:2: "),
    ] {
        scripts.write("job_submit.lua", &submitting(body));
        let mut filter = scripts.load().expect("it can be loaded");
        let (report, accepted) = rehearse(&mut filter, "{}", ann()).expect("it is JSON");
        assert!(!accepted && report.contains(says), "{body}: {report}");
    }
}

#[test]
fn fields_that_do_not_exist_are_logged_and_values_checked() {
    let scripts = Scripts::new("fields");
    let body = "job_desc.nothing = 1
        job_desc.user_id = 0
        job_desc.cpus_per_task = 2.5
        job_desc.time_limit = '90'
        job_desc.tres_per_job = 'gres/gpu:v100:3'
        job_desc.gres = 'shard:many:of'
        job_desc.req_switch = 2
        job_desc.nice = slurm.NICE_OFFSET + 100
        job_desc.mail_type = slurm.MAIL_JOB_END | slurm.MAIL_JOB_FAIL
        job_desc.dependency = 'afterok:7:8'
        job_desc.work_dir = 'relative'
        job_desc.array_inx = '1-4%2'
        job_desc.script = job_desc.script .. 'echo more\\n'";
    scripts.write("job_submit.lua", &submitting(body));
    let mut filter = scripts.load().expect("it can be loaded");
    let (report, accepted) = rehearse(&mut filter, r#"{"job": {"name": "x"}}"#, ann()).expect("it is JSON");
    let lines = [
        "log (error): unrecognized field: nothing",
        "log (error): user_id can't be set: it has no effect here",
        "log (error): cpus_per_task: a whole number is needed",
        "log (error): gres: `shard:many:of` is no list of generic resources",
        "log (error): work_dir: an absolute path is needed",
        "changed: time_limit: unset -> 90",
        "changed: tres_per_job: unset -> \"gres/gpu:v100:3\"",
        "changed: req_switch: unset -> 2",
        "changed: mail_type: 0 -> 6",
        "changed: dependency: unset -> \"afterok:7,afterok:8\"",
        "changed: array_inx: unset -> \"1-4%2\"",
        "changed: script",
    ];
    for line in lines {
        assert!(report.contains(line), "{line}: {report}");
    }
    assert!(accepted);
}

#[test]
fn changes_of_jobs_are_seen_with_the_job_and_changed() {
    let scripts = Scripts::new("modify");
    scripts.write(
        "job_submit.lua",
        "function slurm_job_submit() return 0 end
         function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
           if job_desc.time_limit ~= slurm.NO_VAL and job_desc.time_limit > job_rec.time_limit and modify_uid ~= 0 then
             slurm.log_user('job %d: not longer than %d', job_rec.job_id, job_rec.time_limit)
             return slurm.ESLURM_INVALID_TIME_LIMIT
           end
           if job_rec.job_state == 0 and job_desc.partition == 'batch' then
             job_desc.partition = 'short'
             job_desc.features = ''
           end
           job_desc.script = '#!/bin/sh'
           return slurm.SUCCESS
         end",
    );
    let mut filter = scripts.load().expect("it can be loaded");
    let mut modify = |change: JobUpdate| {
        let spec = JobSpec { time_limit_s: Some(3600), ..JobSpec::default() };
        let about = About { owner: ann(), ..About::default() };
        filter.modify(Modification { job: JobId(7), spec, change, about, modify_uid: 1000, state: 0 })
    };
    let refused = modify(JobUpdate { time_limit_s: Some(Some(7200)), ..JobUpdate::default() });
    assert_eq!((refused.error, refused.message.as_str()), (2051, "job 7: not longer than 60"));
    let change = JobUpdate { partition: Some("batch".into()), comment: Some("x".into()), ..JobUpdate::default() };
    let changed = modify(change.clone());
    let expected = JobUpdate { partition: Some("short".into()), constraint: Some(None), ..change };
    assert_eq!((changed.error, changed.change.as_deref()), (0, Some(&expected)));
    assert_eq!(changed.changed, ["partition", "features"]);
    assert!(changed.log[0].1.contains("script of a job can't be changed after its submission"));
    let plain = modify(JobUpdate { time_limit_s: Some(Some(60)), ..JobUpdate::default() });
    assert_eq!((plain.error, plain.change), (0, None));
}

#[test]
fn a_script_loads_the_same_files_again_whatever_became_of_them() {
    let scripts = Scripts::new("again");
    scripts.write("rules/names.lua", "return { short = 'quick' }");
    scripts.write("rules/list.txt", "one\ntwo\n");
    scripts.write(
        "job_submit.lua",
        "local names = require('rules.names')
         function slurm_job_submit(job_desc)
           job_desc.qos = names.short
           for line in io.lines('rules/list.txt') do slurm.log_debug('%s', line) end
           return 0
         end
         function slurm_job_modify() return 0 end",
    );
    let script = scripts.script(false);
    let filter = Filter::load(script.clone(), |_| Ok(())).expect("it can be loaded");
    let files = filter.files();
    assert_eq!(files.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["job_submit.lua", "rules/names.lua"]);
    scripts.write("job_submit.lua", "broken(");
    scripts.write("rules/names.lua", "broken(");
    let mut again = Filter::load(FilterScript { files, ..script }, |_| Ok(())).expect("it has the files");
    let (report, _) = rehearse(&mut again, "{}", ann()).expect("it is JSON");
    assert_eq!(report, "log (debug): one\nlog (debug): two\nchanged: qos: unset -> \"quick\"\naccepted\n");
}

#[test]
fn a_program_gets_and_returns_json() {
    use std::os::unix::fs::PermissionsExt;
    let scripts = Scripts::new("program");
    let load = |text: &str| {
        scripts.write("filter", &format!("#!/bin/sh\n{text}\n"));
        let path = scripts.0.join("filter");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let submit = Submit { program: path.display().to_string(), ..Submit::default() };
        let script = script_of(&submit, "/", vec![PartitionConfig::default()]).expect("a program is named");
        Filter::load(script, |_| Ok(())).expect("nothing is loaded")
    };
    let made = |text: &str| rehearse(&mut load(text), r#"{"partition": "x"}"#, ann()).expect("it is JSON").0;
    let answer =
        json!({"job": {"qos": "q", "time_limit": 5, "partition": null}, "environment": {"A": "b"}, "message": "hello"});
    let quoted = format!("cat > {}/read; echo '{answer}'; echo a line >&2", scripts.0.display());
    let expected = "log (info): a line\nuser: hello\nchanged: qos: unset -> \"q\"\nchanged: time_limit: unset -> 5\n\
                    changed: partition: \"x\" -> unset\nchanged: environment\naccepted\n";
    assert_eq!(made(&quoted), expected);
    let read: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(scripts.0.join("read")).expect("it was written")).expect("it is JSON");
    assert_eq!(
        (&read["operation"], &read["uid"], &read["job"]["partition"]),
        (&json!("submit"), &json!(1000), &json!("x"))
    );
    assert_eq!(read["partitions"]["debug"]["name"], "debug");
    assert_eq!(made("cat"), "accepted\n", "what it read is no change of a job");
    assert_eq!(made("echo '{\"error\": 2066, \"message\": \"no\"}'"), "user: no\nrefused (error 2066)\n");
    assert_eq!(made("echo '{\"error\": \"not here\"}'"), "user: not here\nrefused (error 1)\n");
    assert_eq!(made("echo not today >&2; exit 1"), "user: not today\nrefused (error 1)\n");
    assert_eq!(made("exit 0"), "accepted\n");
    assert!(made("echo '{'").contains("its output is no JSON"));
}

#[test]
fn the_examples_of_packages_work() {
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/submit-filter");
    let scripts = Scripts::new("examples");
    let made = |name: &str, job: &str| {
        scripts.write("job_submit.lua", &fs::read_to_string(examples.join(name)).expect("it is there"));
        rehearse(&mut scripts.load().expect("it can be loaded"), job, ann()).expect("it is JSON").0
    };
    let text = made("defaults.lua", "{}");
    assert!(text.contains("partition: unset -> \"short\"") && text.contains("qos: unset -> \"fast\""), "{text}");
    assert!(text.contains("time_limit: unset -> 60") && text.contains("min_mem_per_cpu: unset -> 2000"), "{text}");
    assert!(made("refusals.lua", "{}").contains("user: Name the project that pays"));
    assert!(made("refusals.lua", r#"{"account": "a"}"#).contains("refused (error 8000)"));
    assert!(made("refusals.lua", r#"{"account": "a", "time_limit": 1, "min_mem_per_node": 0}"#).contains("2044"));
    let text = made("gpus.lua", r#"{"partition": "gpu_old", "tres_per_node": "gres/gpu:a100:2", "cpus_per_task": 17}"#);
    assert!(
        text.contains("user: partition gpu_old is called gpu now") && text.contains("refused (error 2069)"),
        "{text}"
    );
    let text = made("gpus.lua", r#"{"tres_per_node": "gres/gpu:a100:2", "cpus_per_task": 16}"#);
    assert_eq!(text, "changed: features: unset -> \"sxm\"\naccepted\n");
}
