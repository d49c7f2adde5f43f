//! The OpenAPI document, made of the table of paths and of the tables of fields. Operations, parameters, answers and
//! records are named as in Slurm's own document, of which clients are generated.

use utoipa::openapi::path::{OperationBuilder, ParameterBuilder, ParameterIn, PathItemBuilder};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ArrayBuilder, KnownFormat, ObjectBuilder, SchemaFormat, SchemaType, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, HttpMethod, InfoBuilder, OpenApi, OpenApiBuilder, PathsBuilder, Ref, RefOr,
    Required, ResponseBuilder, Schema,
};

use serde_json::Value;

use super::body::bodies;
use super::paths::{Method, PATHS, Path};
use crate::format::words;
use crate::shapes::table::{MAY_BE_NULL, Number, Shape, leaf};
use crate::shapes::{Kind, Version};

type Part = RefOr<Schema>;

/// Returns the document of these versions.
pub fn document(versions: &[Version]) -> OpenApi {
    let mut paths = PathsBuilder::new();
    let mut components = ComponentsBuilder::new();
    for version in versions {
        for path in PATHS.iter().filter(|path| path.since <= *version) {
            let method = match path.method {
                Method::Get => HttpMethod::Get,
                Method::Post => HttpMethod::Post,
                Method::Delete => HttpMethod::Delete,
            };
            paths = paths
                .path(path.at(*version), PathItemBuilder::new().operation(method, operation(path, *version)).build());
        }
        components = components.schemas_from_iter(schemas(*version));
    }
    let key = |name: &str, doc: &str| SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::with_description(name, doc)));
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("JWT").build();
    let components = components
        .security_scheme("user", key("X-SLURM-USER-NAME", "User name"))
        .security_scheme("token", key("X-SLURM-USER-TOKEN", "User access token"))
        .security_scheme("bearerAuth", SecurityScheme::Http(bearer));
    let none: [&str; 0] = [];
    let requirements = [
        SecurityRequirement::new("user", none).add("token", none),
        SecurityRequirement::new("token", none),
        SecurityRequirement::new("bearerAuth", none),
    ];
    let tags = [("slurm", "jobs, nodes and partitions"), ("slurmdb", "accounting")];
    OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Slurm REST API")
                .version(format!("Slurm-{}", words::slurm_version()))
                .description(Some("Jobs, nodes and accounting of a cluster, as Slurm's REST API gives and takes them")),
        )
        .paths(paths)
        .components(Some(components.build()))
        .security(Some(requirements))
        .tags(Some(tags.map(|(name, doc)| TagBuilder::new().name(name).description(Some(doc)).build())))
        .build()
}

fn operation(path: &Path, version: Version) -> OperationBuilder {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let parameter = |name: &str, place: ParameterIn, required: Required| {
        ParameterBuilder::new().name(name).parameter_in(place).required(required).schema(Some(text()))
    };
    let answer = || {
        let content = ContentBuilder::new().schema(Some(named(version, path.answer.component(version))));
        ResponseBuilder::new().description("").content("application/json", content.build())
    };
    let mut operation = OperationBuilder::new().tag(path.tag()).operation_id(Some(path.id(version)));
    for name in path.parameters() {
        operation = operation.parameter(parameter(name, ParameterIn::Path, Required::True));
    }
    for name in path.query {
        operation = operation.parameter(parameter(name, ParameterIn::Query, Required::False));
    }
    if !path.body.is_empty() {
        let content = ContentBuilder::new().schema(Some(named(version, path.body)));
        let body = RequestBodyBuilder::new().content("application/json", content.build());
        operation = operation.request_body(Some(body.required(Some(Required::True)).build()));
    }
    operation.response("200", answer()).response("default", answer())
}

/// Returns a reference to a schema of a version.
fn named(version: Version, name: &str) -> Ref {
    Ref::from_schema_name(format!("{}_{name}", version.name()))
}

/// Returns the schemas of a version, by name.
fn schemas(version: Version) -> Vec<(String, Part)> {
    let mut all: Vec<(String, Part)> = Vec::new();
    let mut add = |name: &str, schema: Part| {
        let name = format!("{}_{name}", version.name());
        if all.iter().all(|(known, _)| *known != name) {
            all.push((name, schema));
        }
    };
    for (name, shape) in common(version) {
        add(name, schema(version, &shape, false));
    }
    for kind in Kind::ALL.into_iter().filter(|kind| !kind.component(version).is_empty()) {
        if let Some(record) = Shape::of_record(version, kind).filter(|_| !kind.record_component().is_empty()) {
            add(kind.record_component(), schema(version, record, false));
        }
        add(kind.component(version), answer(version, kind));
    }
    for (name, shape) in bodies().iter().filter(|(name, _)| !name.is_empty()) {
        add(name, schema(version, shape, false));
    }
    let each = |name: &str| ArrayBuilder::new().items(named(version, name));
    let text = ObjectBuilder::new().schema_type(Type::String);
    let job = || ObjectBuilder::new().property("job", named(version, "job_desc_msg"));
    let submit = job().property("script", text).property("jobs", each("job_desc_msg"));
    add("job_submit_req", submit.into());
    add("job_alloc_req", job().property("hetjob", each("job_desc_msg")).into());
    add("reservation_mod_req", ObjectBuilder::new().property("reservations", each("reservation_desc_msg")).into());
    all
}

/// Returns the shapes that have a name of their own in the document, each with its name.
fn common(version: Version) -> Vec<(&'static str, Shape)> {
    let number = |real: bool| Shape::Number(Number { set: false, infinite: false, real });
    let done = Shape::of(version, Kind::Done);
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
fn answer(version: Version, kind: Kind) -> Part {
    let Shape::Object(fields) = Shape::of(version, kind) else { return ObjectBuilder::new().into() };
    let mut object = ObjectBuilder::new();
    for (name, shape) in fields {
        let schema: Part = match shape {
            Shape::List(_) if name == kind.list() && !kind.record_component().is_empty() => {
                ArrayBuilder::new().items(named(version, kind.record_component())).into()
            }
            shape => schema(version, shape, true),
        };
        object = object.property(name, schema);
        let always = !["meta", "errors", "warnings"].contains(&name.as_str());
        if always && !matches!(kind, Kind::Submitted | Kind::Allocated | Kind::Changed) {
            object = object.required(name);
        }
    }
    object.into()
}

/// Returns the schema of a shape: a reference if it has a name and `refer`, or one in which those within are references.
fn schema(version: Version, shape: &Shape, refer: bool) -> Part {
    if refer {
        let same = |known: &Shape| match (known, shape) {
            (Shape::Number(known), Shape::Number(given)) => known.real == given.real,
            (known, given) => known == given,
        };
        if let Some((name, _)) = common(version).into_iter().find(|(_, known)| same(known)) {
            return named(version, name).into();
        }
    }
    let typed = |kind: Type| ObjectBuilder::new().schema_type(kind);
    match shape {
        Shape::Object(fields) => properties(version, fields).into(),
        Shape::List(each) => ArrayBuilder::new().items(schema(version, each, true)).into(),
        Shape::Number(number) => ObjectBuilder::new()
            .property("set", typed(Type::Boolean))
            .property("infinite", typed(Type::Boolean))
            .property("number", amount(number.real))
            .into(),
        Shape::Leaf(Value::Number(number)) => amount(number.is_f64()).into(),
        Shape::Leaf(Value::Bool(_)) => typed(Type::Boolean).into(),
        Shape::Leaf(Value::Array(_)) => ArrayBuilder::new().items(typed(Type::String)).into(),
        Shape::Leaf(Value::Object(_)) => ObjectBuilder::new().into(),
        Shape::Leaf(_) => typed(Type::String).into(),
    }
}

/// Returns the schema of an object with these fields.
fn properties(version: Version, fields: &[(String, Shape)]) -> ObjectBuilder {
    fields.iter().fold(ObjectBuilder::new(), |object, (name, shape)| match shape {
        Shape::Object(inner) if name == MAY_BE_NULL => {
            let or_null = SchemaType::from_iter([Type::Object, Type::Null]);
            object.property(name, properties(version, inner).schema_type(or_null))
        }
        shape => object.property(name, schema(version, shape, true)),
    })
}

fn amount(real: bool) -> ObjectBuilder {
    let (kind, format) = if real { (Type::Number, KnownFormat::Double) } else { (Type::Integer, KnownFormat::Int64) };
    ObjectBuilder::new().schema_type(kind).format(Some(SchemaFormat::KnownFormat(format)))
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
        let document = serde_json::to_value(document(&Version::ALL)).unwrap();
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
    }
}
