//! Paths that v0.0.44 and v0.0.45 brought.

use serde_json::{Value, json};

use super::http::{Answer, Cluster};
use super::script;

/// Submits a job, and returns its id as text.
fn submit(c: &Cluster, token: &str, body: &Value) -> String {
    let answer = c.post(token, "/slurm/v0.0.45/job/submit", body);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["job_id"].to_string()
}

fn state(c: &Cluster, token: &str, id: &str) -> String {
    c.get(token, &format!("/slurm/v0.0.45/job/{id}")).json()["jobs"][0]["job_state"][0].as_str().unwrap().to_owned()
}

fn delete(c: &Cluster, token: &str, path: &str) -> Answer {
    c.send("DELETE", path, &[("X-SLURM-USER-TOKEN", token)], "")
}

#[test]
fn a_jobs_resources_are_shown_and_it_is_requeued() {
    let c = Cluster::start("requeue");
    let token = c.token(None);
    let id = submit(&c, &token, &script("long", "sleep 100", &c.dir));
    Cluster::until("the job runs", || state(&c, &token, &id) == "RUNNING");
    let held = c.get(&token, &format!("/slurm/v0.0.44/resources/{id}")).json();
    let node = &held["nodes"][0];
    assert_eq!((&node["node"], &node["core_bitmap"]), (&json!("n1"), &json!("0")), "{held}");
    assert!(node["sockets_per_node"].as_u64() > Some(0), "{held}");
    let at = |query: &str| format!("/slurm/v0.0.45/job/{id}/requeue{query}");
    assert_eq!(c.get(&token, &at("?SpecialExit=true")).status, 400, "only held jobs are special");
    // A browser's cookie comes with what another site's page asks for, and a look at the head means no harm.
    assert_eq!(c.send("GET", &at(""), &[("Cookie", &format!("squall_token={token}"))], "").status, 403);
    assert_eq!(
        c.send("GET", "/slurm/v0.0.45/reconfigure", &[("Cookie", &format!("squall_token={token}"))], "").status,
        403
    );
    assert_eq!(c.send("HEAD", &at(""), &[("X-SLURM-USER-TOKEN", &token)], "").status, 405);
    assert_eq!(state(&c, &token, &id), "RUNNING");
    let requeued = c.post(&token, "/slurm/v0.0.45/jobs/requeue", &json!({"jobs": [id, "999999"], "flags": ["Hold"]}));
    assert_eq!(requeued.status, 200, "{requeued:?}");
    let status = requeued.json()["status"].clone();
    assert_eq!((&status[0][0]["step_id"], &status[0][0]["error_code"]), (&json!(id), &json!(0)), "{status}");
    assert_eq!((&status[1][0]["step_id"], &status[1][0]["error_code"]), (&json!("999999"), &json!(2017)), "{status}");
    Cluster::until("the job is held", || state(&c, &token, &id) == "PENDING");
    assert_eq!(c.get(&token, &format!("/slurm/v0.0.45/resources/{id}")).status, 409, "it does not run");
    assert_eq!(c.get(&token, "/slurm/v0.0.45/job/999999/requeue").status, 404);
    assert_eq!(c.get(&token, &format!("/slurm/v0.0.44/job/{id}/requeue")).status, 404, "the version lacks it");
    assert_eq!(delete(&c, &token, &format!("/slurm/v0.0.45/job/{id}")).status, 200);
}

#[test]
fn records_of_jobs_are_changed_after_their_end() {
    let c = Cluster::start("record");
    let token = c.token(None);
    let id = submit(&c, &token, &script("short", "true", &c.dir));
    let past = format!("/slurmdb/v0.0.45/job/{id}");
    let shown = || c.get(&token, &past).json()["jobs"][0].clone();
    Cluster::until("accounting has it", || shown()["state"]["current"][0] == "COMPLETED");
    let change = json!({"comment": {"job": "good", "administrator": "seen"}, "derived_exit_code": {"return_code": 3}});
    let changed = c.post(&token, &past, &change);
    assert_eq!(changed.status, 200, "{changed:?}");
    assert!(changed.json()["results"][0].as_str().unwrap().starts_with(&format!("{id} submitted at ")), "{changed:?}");
    Cluster::until("accounting has the comment", || shown()["comment"]["job"] == "good");
    let job = shown();
    assert_eq!(
        (&job["comment"]["administrator"], &job["derived_exit_code"]["return_code"]["number"]),
        (&json!("seen"), &json!(3))
    );
    let many = json!({"job_id_list": [id], "job_rec": {"extra": "x"}});
    assert_eq!(c.post(&token, "/slurmdb/v0.0.44/jobs", &many).status, 200);
    Cluster::until("accounting has the extra", || shown()["extra"] == "x");
    let held = json!({"tres": {"allocated": [{"type": "cpu", "count": 9}]}});
    assert_eq!(c.post(&token, &past, &held).status, 501);
    assert_eq!(c.post(&token, "/slurmdb/v0.0.45/job/999999", &change).status, 404);
    if rustix::process::geteuid().is_root() {
        assert_eq!(c.post(&c.token(Some("nobody")), &past, &change).status, 403, "another's job");
    }
}

#[test]
fn partitions_and_nodes_are_created_changed_and_deleted() {
    let c = Cluster::start("partitions");
    let token = c.token(None);
    let at = "/slurm/v0.0.45/partitions/";
    let one = "/slurm/v0.0.45/partition/long";
    let post = |partition: Value| c.post(&token, at, &json!({"partitions": [partition]}));
    let made =
        post(json!({"name": "long", "nodes": {"configured": "n[1-2]"}, "maximums": {"time": 2880}, "flags": ["LLN"]}));
    assert_eq!((made.status, &made.json()["warnings"]), (200, &json!([])), "{made:?}");
    let shown = || c.get(&token, one).json()["partitions"][0].clone();
    assert_eq!((&shown()["maximums"]["time"]["number"], &shown()["flags"]), (&json!(2880), &json!(["LLN"])));
    assert_eq!(post(json!({"name": "long", "priority": {"tier": 7}, "flags": ["LLN_CLEAR"]})).status, 200);
    let changed = shown();
    assert_eq!((&changed["priority"]["tier"], &changed["flags"]), (&json!(7), &json!([])), "{changed}");
    assert_eq!(changed["maximums"]["time"]["number"], 2880, "what is left out stays");
    let both = json!({"partitions": [{"name": "long", "priority": {"tier": 8}}, {"name": "next", "partition": {"exclusive": "SOME"}}]});
    let refused = c.post(&token, at, &both);
    assert_eq!(
        (refused.status, &refused.json()["errors"][0]["source"]),
        (400, &json!("partitions[1].partition.exclusive"))
    );
    assert_eq!(shown()["priority"]["tier"], 7, "all or none");
    // What is shown is taken.
    assert_eq!(post(changed.clone()).status, 200);
    assert_eq!(shown(), changed);
    if rustix::process::geteuid().is_root() {
        let user = c.token(Some("nobody"));
        assert_eq!(c.post(&user, at, &json!({"partitions": [{"name": "long", "priority": {"tier": 9}}]})).status, 403);
        assert_eq!(delete(&c, &user, one).status, 403);
    }
    assert_eq!(delete(&c, &token, one).status, 200);
    assert_eq!((delete(&c, &token, one).status, c.get(&token, one).status), (404, 404));
    assert_eq!(c.post(&token, "/slurm/v0.0.44/partitions/", &json!({})).status, 405, "the version lacks it");
    let node = c.post(&token, "/slurm/v0.0.44/new/node", &json!({"node_conf": "NodeName=x1 CPUs=1 RealMemory=100"}));
    assert_eq!(node.status, 200, "{node:?}");
    assert_eq!(c.get(&token, "/slurm/v0.0.44/node/x1").status, 200);
    assert_eq!(c.post(&token, "/slurm/v0.0.44/new/node", &json!({"node_conf": "NodeName=x2 Port=7"})).status, 501);
    assert_eq!(delete(&c, &token, "/slurm/v0.0.44/node/x1").status, 200);
}

#[test]
fn settings_and_lists_of_hosts_are_told() {
    let c = Cluster::start("conf");
    let token = c.token(None);
    let conf = c.get(&token, "/slurm/v0.0.45/conf").json();
    assert_eq!((&conf["slurm_conf"]["KillWait"], &conf["slurm_conf"]["ClusterName"]), (&json!(1), &json!("squall")));
    assert!(conf["slurm_conf"]["controllers"][0]["machine"].as_str().is_some_and(|host| !host.is_empty()), "{conf}");
    assert!(conf["slurm_conf_meta"]["NEXT_JOB_ID"]["number"].as_u64() > Some(0), "{conf}");
    let names = c.post(&token, "/util/v0.0.44/hostnames", &json!({"hostlist": "n[1-3],m"}));
    assert_eq!((names.status, &names.json()["hostnames"]), (200, &json!(["n1", "n2", "n3", "m"])), "{names:?}");
    let list = c.post(&token, "/util/v0.0.45/hostlist", &json!({"hostnames": ["n1", "n2", "n3"]}));
    assert_eq!((list.status, &list.json()["hostlist"]), (200, &json!("n[1-3]")), "{list:?}");
    assert_eq!(c.post(&token, "/util/v0.0.44/hostnames", &json!({"hostlist": "n[1-9999999]"})).status, 400);
    assert_eq!(c.post("nosuch", "/util/v0.0.44/hostnames", &json!({"hostlist": "n1"})).status, 401);
}
