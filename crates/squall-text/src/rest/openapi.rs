//! The OpenAPI document, made of the table of paths and of the tables of fields. Operations, parameters, answers and
//! records are named as in Slurm's own document, of which clients are generated.

use serde_json::{Map, Value, json};

use super::body::bodies;
use super::paths::{Method, PATHS, Path};
use crate::format::words;
use crate::shapes::table::{MAY_BE_NULL, Number, Shape, leaf};
use crate::shapes::{AnswerKind, Version};

/// Returns the document of these versions (OpenAPI 3.1.0).
pub fn document(versions: &[Version]) -> Value {
    let (mut paths, mut all) = (Map::new(), Map::new());
    for version in versions {
        for path in PATHS.iter().filter(|path| path.since <= *version) {
            let method = match path.method {
                Method::Get => "get",
                Method::Post => "post",
                Method::Delete => "delete",
            };
            let methods = paths.entry(path.at(*version)).or_insert_with(|| json!({}));
            methods[method] = operation(path, *version);
        }
        all.extend(schemas(*version));
    }
    let key = |name: &str, doc: &str| json!({"type": "apiKey", "in": "header", "name": name, "description": doc});
    let tag = |name: &str, doc: &str| json!({"name": name, "description": doc});
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Slurm REST API",
            "description": "Jobs, nodes and accounting of a cluster, as Slurm's REST API gives and takes them",
            "version": format!("Slurm-{}", words::slurm_version()),
        },
        "paths": paths,
        "components": {
            "schemas": all,
            "securitySchemes": {
                "user": key("X-SLURM-USER-NAME", "User name"),
                "token": key("X-SLURM-USER-TOKEN", "User access token"),
                "bearerAuth": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            },
        },
        "security": [{"user": [], "token": []}, {"token": []}, {"bearerAuth": []}],
        "tags": [
            tag("slurm", "jobs, nodes and partitions"), tag("slurmdb", "accounting"), tag("util", "lists of hosts"),
        ],
    })
}

fn operation(path: &Path, version: Version) -> Value {
    let parameter = |name: &str, place: &str, required: bool| json!({"name": name, "in": place, "required": required, "schema": {"type": "string"}});
    let content = |name: &str| json!({"application/json": {"schema": named(version, name)}});
    let answer = json!({"description": "", "content": content(path.answer.component(version))});
    let within = path.parameters().map(|name| parameter(name, "path", true));
    let asked = path.query.iter().map(|name| parameter(name, "query", false));
    let parameters: Vec<Value> = within.chain(asked).collect();
    let mut operation = json!({"tags": [path.tag()], "operationId": path.id(version)});
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if !path.body.is_empty() {
        operation["requestBody"] = json!({"content": content(path.body), "required": true});
    }
    operation["responses"] = json!({"200": answer, "default": answer});
    operation
}

/// Returns a reference to a schema of a version.
fn named(version: Version, name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{}_{name}", version.name())})
}

/// Returns the schema of a list.
fn list(each: Value) -> Value {
    [("type", Value::from("array")), ("items", each)].into_iter().collect()
}

/// Returns the schema of an object with these properties.
fn object(properties: Value) -> Value {
    [("type", Value::from("object")), ("properties", properties)].into_iter().collect()
}

/// Bodies that are also parts of others.
const PARTS: [&str; 2] = ["job_desc_msg", "reservation_desc_msg"];

/// Returns the schemas of a version, by name.
fn schemas(version: Version) -> Map<String, Value> {
    let mut all = Map::new();
    let mut add = |name: &str, schema: Value| _ = all.entry(format!("{}_{name}", version.name())).or_insert(schema);
    for (name, shape) in common(version) {
        add(name, schema(version, &shape, false));
    }
    let given = |kind: &AnswerKind| PATHS.iter().any(|path| path.answer == *kind && path.since <= version);
    let taken = |name: &str| PATHS.iter().any(|path| path.body == name && path.since <= version);
    for kind in AnswerKind::ALL.into_iter().filter(given) {
        if let Some(record) = Shape::of_record(version, kind).filter(|_| !kind.record_component().is_empty()) {
            add(kind.record_component(), schema(version, record, false));
        }
        add(kind.component(version), answer(version, kind));
    }
    for (name, shape) in bodies().iter().filter(|(name, _)| taken(name) || PARTS.contains(&name.as_str())) {
        add(name, schema(version, shape, false));
    }
    let (one, each) = (|name| named(version, name), |name| list(named(version, name)));
    let submitted = json!({"job": one("job_desc_msg"), "script": {"type": "string"}, "jobs": each("job_desc_msg")});
    add("job_submit_req", object(submitted));
    add("job_alloc_req", object(json!({"job": one("job_desc_msg"), "hetjob": each("job_desc_msg")})));
    add("reservation_mod_req", object(json!({"reservations": each("reservation_desc_msg")})));
    all
}

/// Returns the shapes that have a name of their own in the document, each with its name.
fn common(version: Version) -> Vec<(&'static str, Shape)> {
    let number = |real: bool| Shape::Number(Number { set: false, infinite: false, real });
    let done = Shape::of(version, AnswerKind::Done);
    let part = |name: &str| match done {
        Shape::Object(fields) => fields.iter().find(|(known, _)| known == name).map(|(_, shape)| shape.clone()),
        _ => None,
    };
    let each = |name: &str| match part(name) {
        Some(Shape::List(each)) => Some(*each),
        _ => None,
    };
    let mut all = vec![
        ("uint64_no_val_struct", number(false)),
        ("float64_no_val_struct", number(true)),
        ("process_exit_code_verbose", leaf("exit")),
    ];
    if let Shape::List(tres) = leaf("tres") {
        all.push(("tres", *tres));
    }
    let parts =
        [("openapi_meta", part("meta")), ("openapi_error", each("errors")), ("openapi_warning", each("warnings"))];
    all.extend(parts.into_iter().filter_map(|(name, shape)| Some((name, shape?))));
    all
}

/// Returns the schema of an answer, which refers to those of its records.
fn answer(version: Version, kind: AnswerKind) -> Value {
    let Shape::Object(fields) = Shape::of(version, kind) else { return object(json!({})) };
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for (name, shape) in fields {
        let schema = match shape {
            Shape::List(_) if name == kind.list() && !kind.record_component().is_empty() => {
                list(named(version, kind.record_component()))
            }
            shape => schema(version, shape, true),
        };
        properties.insert(name.clone(), schema);
        let always = !["meta", "errors", "warnings"].contains(&name.as_str());
        if always && !matches!(kind, AnswerKind::Submitted | AnswerKind::Allocated | AnswerKind::Changed) {
            required.push(name.as_str());
        }
    }
    let mut answer = object(properties.into());
    if !required.is_empty() {
        answer["required"] = required.into();
    }
    answer
}

/// Returns the schema of a shape: a reference if it has a name and `refer`, or one in which those within are references.
fn schema(version: Version, shape: &Shape, refer: bool) -> Value {
    if refer {
        let same = |known: &Shape| match (known, shape) {
            (Shape::Number(known), Shape::Number(given)) => known.real == given.real,
            (known, given) => known == given,
        };
        if let Some((name, _)) = common(version).into_iter().find(|(_, known)| same(known)) {
            return named(version, name);
        }
    }
    let typed = |kind: &str| json!({"type": kind});
    match shape {
        Shape::Object(fields) => object(properties(version, fields)),
        Shape::List(each) => list(schema(version, each, true)),
        Shape::Number(number) => {
            let (set, infinite) = (typed("boolean"), typed("boolean"));
            object(json!({"set": set, "infinite": infinite, "number": amount(number.real)}))
        }
        Shape::Leaf(Value::Number(number)) => amount(number.is_f64()),
        Shape::Leaf(Value::Bool(_)) => typed("boolean"),
        Shape::Leaf(Value::Array(_)) => list(typed("string")),
        Shape::Leaf(Value::Object(_)) => typed("object"),
        Shape::Leaf(_) => typed("string"),
    }
}

/// Returns the schemas of an object's fields.
fn properties(version: Version, fields: &[(String, Shape)]) -> Value {
    let property = |(name, shape): &(String, Shape)| {
        let schema = match shape {
            Shape::Object(inner) if name == MAY_BE_NULL => {
                json!({"type": ["object", "null"], "properties": properties(version, inner)})
            }
            shape => schema(version, shape, true),
        };
        (name.clone(), schema)
    };
    fields.iter().map(property).collect::<Map<_, _>>().into()
}

fn amount(real: bool) -> Value {
    if real { json!({"type": "number", "format": "double"}) } else { json!({"type": "integer", "format": "int64"}) }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::document;
    use crate::shapes::Version;

    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str));
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn what_the_document_refers_to_is_in_it() {
        let document = document(&Version::ALL);
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 1000);
        for reference in found {
            assert!(document.pointer(&reference[1..]).is_some(), "{reference}");
        }
        let get = &document["paths"]["/slurm/v0.0.41/jobs/"]["get"];
        assert_eq!(get["operationId"], "slurm_v0041_get_jobs");
        let answer = &get["responses"]["200"]["content"]["application/json"]["schema"]["$ref"];
        assert_eq!(answer, "#/components/schemas/v0.0.41_openapi_job_info_resp");
        let schemas = &document["components"]["schemas"];
        let required = &schemas["v0.0.41_openapi_job_info_resp"]["required"];
        assert_eq!(*required, serde_json::json!(["jobs", "last_backfill", "last_update"]));
        assert!(schemas["v0.0.42_job_info"]["properties"]["required_switches"].is_object());
        assert!(schemas["v0.0.41_job_info"]["properties"]["required_switches"].is_null());
        let held = &schemas["v0.0.41_job_info"]["properties"]["job_resources"];
        assert_eq!(held["type"], serde_json::json!(["object", "null"]), "generated clients read pending jobs");
        assert!(document["paths"]["/slurm/v0.0.42/job/{job_id}"].as_object().unwrap().len() == 3);
        let of = |version: &str| {
            let path = &document["paths"][format!("/slurm/{version}/partitions/")];
            (path["post"].is_object(), schemas[format!("{version}_openapi_conf_resp")].is_object())
        };
        assert_eq!((of("v0.0.44"), of("v0.0.45")), ((false, false), (true, true)));
        let list = &schemas["v0.0.45_openapi_jobs_requeue_resp"]["properties"]["status"]["items"];
        assert_eq!((&list["type"], &list["items"]["type"]), (&Value::from("array"), &Value::from("object")));
    }
}
