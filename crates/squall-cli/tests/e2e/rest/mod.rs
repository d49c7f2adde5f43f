//! Slurm's REST interface, events and metrics, asked as programs ask them; and as attackers do.

mod attacks;
mod browser;
mod generated;
pub(crate) mod http;
mod newer;

use std::io::{BufRead, BufReader, Write};

use http::Cluster;
use serde_json::{Value, json};
use squall_text::rest::{Method, Operation, PATHS, Path};
use squall_text::shapes::Version;
use squall_text::shapes::table::differences;

fn script(name: &str, command: &str, dir: &std::path::Path) -> Value {
    json!({
        "script": format!("#!/bin/sh\n{command}\n"),
        "job": {
            "name": name, "environment": ["PATH=/usr/bin:/bin"], "current_working_directory": dir,
            "standard_output": "/dev/null", "standard_error": "/dev/null", "time_limit": 5,
        },
    })
}

#[test]
fn every_path_of_every_version_answers_in_its_shape() {
    let c = Cluster::start("paths");
    let token = c.token(None);
    let job = c.post(&token, "/slurm/v0.0.41/job/submit", &script("shown", "sleep 60", &c.dir)).json();
    let id = job["job_id"].as_u64().unwrap();
    c.ok(&[
        "scontrol",
        "create",
        "reservation",
        "reservationname=r",
        "starttime=now+1day",
        "duration=60",
        "nodes=n2",
        "users=root",
    ]);
    Cluster::until("the job runs", || c.get(&token, &format!("/slurm/v0.0.40/job/{id}")).body.contains("RUNNING"));
    for version in Version::ALL {
        let reads = |path: &&Path| path.method == Method::Get && path.operation != Operation::RequeueJob;
        for path in PATHS.iter().filter(reads).filter(|path| path.since <= version) {
            let at = path.at(version);
            let at = at
                .replace("{job_id}", &id.to_string())
                .replace("{node_name}", "n1")
                .replace("{partition_name}", "debug");
            let at = at.replace("{reservation_name}", "r").replace("{qos}", "normal").replace("{name}", "root");
            let at = at.replace("{account_name}", "root").replace("{cluster_name}", "squall").replace("{id}", "1");
            let answer = c.get(&token, &at);
            if path.name == "get_wckey" {
                assert_eq!(answer.status, 404, "{at}");
                continue;
            }
            assert_eq!(answer.status, 200, "{at}: {}", answer.body);
            let value = answer.json();
            assert_eq!((&value["errors"], &value["warnings"]), (&json!([]), &json!([])), "{at}");
            assert_eq!(value["meta"]["slurm"]["cluster"], "squall", "{at}");
            assert_eq!(differences(version, path.answer, &value), Vec::<String>::new(), "{at}");
        }
    }
    let document = c.send("GET", "/openapi.json", &[], "");
    assert_eq!(document.status, 200);
    let paths = document.json()["paths"].as_object().unwrap().len();
    assert!(paths > 100, "{paths}");
    assert_eq!(c.send("GET", "/openapi/v3", &[], "").body, document.body);
}

#[test]
fn a_job_is_submitted_changed_watched_and_ended() {
    let c = Cluster::start("job");
    let token = c.token(None);
    for version in Version::ALL {
        let at = |path: &str| format!("/slurm/{}/{path}", version.name());
        let held = {
            let mut body = script("held", "exit 3", &c.dir);
            body["job"]["hold"] = true.into();
            c.post(&token, &at("job/submit"), &body)
        };
        assert_eq!(held.status, 200, "{held:?}");
        let id = held.json()["job_id"].as_u64().unwrap();
        let job = |id: u64| c.get(&token, &at(&format!("job/{id}"))).json()["jobs"][0].clone();
        assert_eq!((job(id)["name"].as_str(), job(id)["job_state"][0].as_str()), (Some("held"), Some("PENDING")));
        let changed = c.post(
            &token,
            &at(&format!("job/{id}")),
            &json!({"comment": "by REST", "time_limit": {"set": true, "number": 9}}),
        );
        assert_eq!(changed.status, 200, "{changed:?}");
        assert_eq!((job(id)["comment"].as_str(), job(id)["time_limit"]["number"].as_u64()), (Some("by REST"), Some(9)));
        let released = c.send("POST", &format!("/squall/v1/job/{id}/release"), &[("X-SLURM-USER-TOKEN", &token)], "");
        assert_eq!(released.status, 200, "{released:?}");
        Cluster::until("the job has ended", || job(id)["job_state"][0] == "FAILED");
        assert_eq!(job(id)["exit_code"]["return_code"]["number"], 3);
        let long =
            c.post(&token, &at("job/submit"), &script("long", "sleep 100", &c.dir)).json()["job_id"].as_u64().unwrap();
        let both = c.get(&token, &at(&format!("jobs?job_id={id},{long}"))).json();
        assert_eq!(both["jobs"].as_array().unwrap().len(), 2);
        let ended = c.send("DELETE", &at(&format!("job/{long}")), &[("Authorization", &format!("Bearer {token}"))], "");
        assert_eq!(ended.status, 200, "{ended:?}");
        Cluster::until("the job was cancelled", || job(long)["job_state"][0] == "CANCELLED");
        let past = format!("/slurmdb/{}/job/{id}", version.name());
        Cluster::until("accounting has it", || {
            c.get(&token, &past).json()["jobs"][0]["state"]["current"][0] == "FAILED"
        });
        assert_eq!(c.get(&token, &at("job/999999")).status, 404);
    }
    let would = c.post(&token, "/squall/v1/what-if", &script("would", "true", &c.dir));
    assert!(would.status == 200 && would.json()["start"].as_u64().is_some(), "{would:?}");
    let mut large = script("large", "true", &c.dir);
    large["job"]["nodes"] = "2".into();
    large["job"]["hold"] = true.into();
    let id = c.post(&token, "/slurm/v0.0.42/job/submit", &large).json()["job_id"].as_u64().unwrap();
    let why = c.get(&token, &format!("/squall/v1/why/{id}")).json();
    assert!(why["text"].as_str().unwrap().contains("JobHeldUser"), "{why}");
}

#[test]
fn nodes_reservations_and_accounts_are_changed_by_operators() {
    let c = Cluster::start("operate");
    let token = c.token(None);
    let drain = c.post(&token, "/slurm/v0.0.42/node/n1", &json!({"state": ["DRAIN"], "reason": "fan"}));
    assert_eq!(drain.status, 200, "{drain:?}");
    let node = c.get(&token, "/slurm/v0.0.42/node/n1").json()["nodes"][0].clone();
    assert!(node["state"].as_array().unwrap().contains(&json!("DRAIN")) && node["reason"] == "fan", "{node}");
    assert_eq!(c.post(&token, "/slurm/v0.0.42/node/n1", &json!({"state": ["RESUME"]})).status, 200);
    c.ok(&["scontrol", "create", "nodename=x1", "CPUs=1", "RealMemory=100"]);
    let delete =
        |node: &str| c.send("DELETE", &format!("/slurm/v0.0.42/node/{node}"), &[("X-SLURM-USER-TOKEN", &token)], "");
    assert_eq!(c.get(&token, "/slurm/v0.0.42/node/x1").status, 200);
    assert_eq!(delete("x1").status, 200);
    assert_eq!(c.get(&token, "/slurm/v0.0.42/node/x1").status, 404);
    let named = delete("n1");
    assert!(named.status >= 400 && named.body.contains("squall.toml names it"), "{named:?}");
    let accounts = json!({"accounts": [{"name": "bio", "description": "biology", "organization": "uni"}]});
    let made = c.post(&token, "/slurmdb/v0.0.41/accounts", &accounts);
    assert_eq!(made.status, 200, "{made:?}");
    let users = json!({"users": [{"name": "nobody", "default": {"account": "bio"}, "associations": [{"account": "bio", "user": "nobody"}]}]});
    let made = c.post(&token, "/slurmdb/v0.0.41/users", &users);
    assert_eq!(made.status, 200, "{made:?}");
    assert_eq!(c.get(&token, "/slurmdb/v0.0.41/account/bio").json()["accounts"][0]["description"], "biology");
    let gone = c.send("DELETE", "/slurmdb/v0.0.41/account/bio", &[("X-SLURM-USER-TOKEN", &token)], "");
    assert_eq!((gone.status, &gone.json()["removed_accounts"]), (200, &json!(["bio"])), "{gone:?}");
    assert_eq!(c.get(&token, "/slurmdb/v0.0.41/account/bio").status, 404);
}

#[test]
fn the_kernel_says_who_asks_on_the_unix_socket() {
    let c = Cluster::start("unix");
    let own = squall_files::users::by_uid(rustix::process::geteuid().as_raw()).unwrap().name;
    let caller = c.send_here("GET", "/squall/v1/caller", &[], "").json();
    assert_eq!((caller["user"].as_str(), caller["operator"].as_bool()), (Some(own.as_str()), Some(true)));
    let headers = [("Content-Type", "application/json")];
    let job = c.send_here("POST", "/slurm/v0.0.43/job/submit", &headers, &script("here", "true", &c.dir).to_string());
    assert_eq!(job.status, 200, "{job:?}");
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // Another user is that user, and no token makes it more.
    let run = |path: &str| {
        let code = format!(
            "import socket; s = socket.socket(socket.AF_UNIX); s.connect({:?}); \
             s.sendall(b'GET {path} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\nX-SLURM-USER-NAME: root\\r\\n\\r\\n'); \
             print(b''.join(iter(lambda: s.recv(65536), b'')).decode())",
            c.socket().display().to_string()
        );
        let out = std::process::Command::new("runuser").args(["-u", "nobody", "--", "python3", "-c", &code]).output();
        String::from_utf8_lossy(&out.unwrap().stdout).into_owned()
    };
    let said = run("/squall/v1/caller");
    assert!(said.contains("\"user\":\"nobody\"") && said.contains("\"operator\":false"), "{said}");
}

#[test]
fn events_are_followed_and_resumed() {
    let c = Cluster::start("events");
    let token = c.token(None);
    let mut stream = c.connect();
    let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\nX-SLURM-USER-TOKEN: {token}\r\n\r\n");
    stream.write_all(ask("/squall/v1/events?kind=job-submitted,job-ended").as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert!(lines.by_ref().any(|line| line.starts_with(": squall")));
    let id = c.ok(&["sbatch", "--parsable", "-o", "/dev/null", "--wrap", "true"]).trim().to_owned();
    let (mut kinds, mut last) = (Vec::new(), String::new());
    for line in lines.by_ref() {
        if let Some(at) = line.strip_prefix("id: ") {
            last = at.to_owned();
        } else if let Some(kind) = line.strip_prefix("event: ") {
            kinds.push(kind.to_owned());
        } else if let Some(data) = line.strip_prefix("data: ") {
            let event: Value = serde_json::from_str(data).unwrap();
            assert_eq!(event["job"]["job_id"].as_u64().map(|id| id.to_string()), Some(id.clone()), "{event}");
            if kinds.len() == 2 {
                break;
            }
        }
    }
    assert_eq!(kinds, ["job-submitted", "job-ended"]);
    c.ok(&["sbatch", "--parsable", "-J", "second", "-o", "/dev/null", "--wrap", "true"]);
    Cluster::until("the second job has ended", || c.ok(&["squeue", "-h"]).is_empty());
    let mut stream = c.connect();
    stream.write_all(ask(&format!("/squall/v1/events?from={last}")).as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let first = lines.find(|line| line.starts_with("data: ")).unwrap();
    assert!(first.contains("\"second\""), "{first}");
    let wrong = c.get(&token, "/squall/v1/events?kind=nosuch");
    assert_eq!(wrong.status, 400, "{wrong:?}");
}

#[test]
fn metrics_are_what_prometheus_takes() {
    let c = Cluster::start("metrics");
    let token = c.token(None);
    c.ok(&["sbatch", "-o", "/dev/null", "--wrap", "sleep 60"]);
    let metrics = c.get(&token, "/metrics");
    assert_eq!(metrics.status, 200);
    assert!(metrics.head.to_lowercase().contains("content-type: text/plain; version=0.0.4"), "{}", metrics.head);
    for name in ["slurm_cpus_total 4", "slurm_nodes_", "slurm_queue_running", "squall_"] {
        assert!(metrics.body.contains(name), "{name}: {}", metrics.body);
    }
    assert_eq!(c.get(&token, "/metrics/jobs").status, 200);
    assert_eq!(c.get(&token, "/metrics/nosuch").status, 404);
}
