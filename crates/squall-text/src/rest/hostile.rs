//! Hostile bodies: any JSON gives an answer, never a panic.

use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};
use serde_json::{Map, Value};

use super::body::bodies;
use super::job::{Caller, allocate, submit};
use super::policy::Ledger;
use super::{change, partition, paths, record};
use crate::shapes::table::Shape;
use crate::shapes::{AnswerKind, Version};
use crate::verbs::accounts::Draft;

const ANN: Caller<'_> = Caller { user: "ann", uid: 1, gid: 1, home: "/", cluster: "c", host: "h" };

const TEXTS: &[&str] =
    &["", "0", "-1", "1-", "INFINITE", "a[1-9999999999]", "[", "gres/gpu:", "@", "99999999999999999999", "%", "é"];

/// Returns values of any type, with numbers and texts at which readers may fail.
fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(TEXTS).prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ]
}

fn json() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 24, 4, |inner| {
        let keys = prop::sample::select(&["set", "infinite", "number", "name", "type", "count", "job", "script"][..]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keys, inner), 0..4)
                .prop_map(|all| Value::Object(all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())),
        ]
    })
}

/// Returns values that fit a shape mostly.
fn like(shape: &Shape) -> prop::strategy::BoxedStrategy<Value> {
    match shape {
        Shape::Object(fields) => {
            // About three fields, so that few readers stop at the first one.
            let share = (3.0 / fields.len().max(1) as f64).min(0.7);
            let each: Vec<_> = fields
                .iter()
                .map(|(name, shape)| (Just(name.clone()), prop::option::weighted(share, like(shape))))
                .collect();
            each.prop_map(|all| {
                Value::Object(all.into_iter().filter_map(|(k, v)| Some((k, v?))).collect::<Map<_, _>>())
            })
            .boxed()
        }
        Shape::List(each) => prop::collection::vec(like(each), 0..3).prop_map(Value::from).boxed(),
        Shape::Number(_) | Shape::Leaf(_) => json().boxed(),
    }
}

fn bodies_like(name: &'static str) -> impl Strategy<Value = Value> {
    let shape = &bodies().iter().find(|(known, _)| known == name).unwrap().1;
    prop_oneof![1 => json(), 9 => like(shape)]
}

proptest! {
    #[test]
    fn job_descriptions(job in bodies_like("job_desc_msg"), script in json()) {
        let body = serde_json::json!({"job": job, "script": "#!/bin/sh"});
        let _ = submit(&body, &ANN);
        let _ = allocate(&body, &ANN);
        let _ = submit(&serde_json::json!({"jobs": [job, job], "script": script}), &ANN);
        let _ = submit(&script, &ANN);
        let _ = change::job(&job);
    }

    #[test]
    fn changes(node in bodies_like("update_node_msg"), reservation in bodies_like("reservation_desc_msg"), kill in bodies_like("kill_jobs_msg")) {
        let _ = change::node(&node);
        let _ = change::reservation(&reservation);
        let _ = change::kill(&kill);
    }

    #[test]
    fn partitions(body in bodies_like("openapi_partitions_mod_req")) {
        for order in partition::partitions(&body, 9).map(|read| read.value).unwrap_or_default() {
            let _ = order.request(None);
        }
    }

    #[test]
    fn newer_bodies(one in bodies_like("job_modify"), many in bodies_like("openapi_job_modify_req"), node in bodies_like("openapi_create_node_req"), jobs in bodies_like("openapi_jobs_requeue_query"), hosts in bodies_like("openapi_hostlist_req_resp")) {
        let _ = record::values(&one);
        let _ = record::jobs(&many);
        let _ = change::new_nodes(&node);
        let _ = change::requeue(&jobs);
        let _ = change::hosts(&hosts, true);
        let _ = change::hosts(&hosts, false);
    }

    #[test]
    fn records(kind in prop::sample::select(&AnswerKind::RECORDS[..]).prop_flat_map(|kind| like(Shape::of_record(Version::V44, kind).unwrap()).prop_map(move |one| (kind, one)))) {
        let (kind, one) = kind;
        let mut draft = Draft::default();
        let _ = Ledger::new(&mut draft, "c").enter(kind, &serde_json::json!({kind.list(): [one, {"name": "a"}]}));
    }

    #[test]
    fn conditions(users in bodies_like("openapi_users_add_cond_resp"), accounts in bodies_like("openapi_accounts_add_cond_resp")) {
        let mut draft = Draft::default();
        let _ = Ledger::new(&mut draft, "c").add_users(&users);
        let _ = Ledger::new(&mut draft, "c").add_accounts(&accounts);
    }

    #[test]
    fn requested_paths(path in ".{0,60}", tail in "[a-z0-9/{}_.]{0,40}") {
        let _ = paths::find(paths::Method::Get, &path);
        let _ = paths::find(paths::Method::Post, &format!("/slurm/v0.0.41/{tail}"));
    }
}
