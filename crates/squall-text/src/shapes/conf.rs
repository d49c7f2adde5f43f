//! JSON of `conf`: the settings that `scontrol show config` shows as texts, each with the type of its field.

use serde_json::{Map, Value, json};
use squall_model::time::Time;

use super::table::Shape;
use super::{AnswerKind, Version, number, or_infinite};
use crate::format::words;

/// Returns `slurm_conf` of a version: the settings, which have Slurm's names, and the controllers' hosts, such as
/// `head(10.0.0.1)`.
pub fn slurm_conf(version: Version, settings: &[(&str, String)], hosts: &[String]) -> Value {
    let mut all = Map::new();
    for (name, shape) in fields(version, AnswerKind::SlurmConf, "slurm_conf") {
        let setting = settings.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        all.extend(setting.and_then(|(_, text)| typed(shape, text)).map(|value| (name.clone(), value)));
    }
    let host = |text: &String| {
        let text = text.as_str();
        let (machine, address) = text.split_once('(').unwrap_or((text, text));
        json!({"machine": machine, "address": address.trim_end_matches(')')})
    };
    all.insert("controllers".into(), hosts.iter().map(host).collect());
    all.into()
}

/// Returns `slurm_conf_meta`.
pub fn slurm_conf_meta(now: Time, started: Time, next_job: u32) -> Value {
    json!({
        "LastUpdate": now.secs(),
        "BOOT_TIME": started.secs(),
        "NEXT_JOB_ID": number(Some(u64::from(next_job))),
        "SLURM_VERSION": words::slurm_version(),
    })
}

/// Returns the fields of an object in an answer. Empty: the version has no such object.
fn fields(version: Version, kind: AnswerKind, name: &str) -> &'static [(String, Shape)] {
    let Shape::Object(all) = Shape::of(version, kind) else { return &[] };
    match all.iter().find(|(known, _)| known == name) {
        Some((_, Shape::Object(fields))) => fields,
        _ => &[],
    }
}

/// Reads the text of a setting as a value of this shape, without its unit. None: it is not set, or has no such value.
fn typed(shape: &Shape, text: &str) -> Option<Value> {
    if text.is_empty() || text.starts_with("(null") {
        return None;
    }
    let digits = text.split_once(|letter: char| !letter.is_ascii_digit()).map_or(text, |(digits, _)| digits);
    match shape {
        Shape::Leaf(Value::String(_)) => Some(text.into()),
        Shape::Leaf(Value::Array(_)) => Some(text.split(',').collect()),
        Shape::Leaf(Value::Bool(_)) => Some(["1", "yes"].contains(&text.to_ascii_lowercase().as_str()).into()),
        Shape::Leaf(Value::Number(_)) => digits.parse::<i64>().ok().map(Value::from),
        Shape::Number(_) if ["UNLIMITED", "INFINITE"].contains(&text) => Some(or_infinite(None)),
        Shape::Number(_) => digits.parse::<u64>().ok().map(Value::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use squall_model::config::Config;

    use super::slurm_conf;
    use crate::columns::settings::settings;
    use crate::shapes::table::{Shape, differences};
    use crate::shapes::{AnswerKind, Version};

    #[test]
    fn settings_have_the_types_of_their_fields() {
        let config = Config { kill_wait_s: 7, cluster: "c".into(), ..Config::default() };
        let hosts = ["head(10.0.0.1)".to_owned(), "next".to_owned()];
        let shown = slurm_conf(Version::NEWEST, &settings(&config).unwrap(), &hosts);
        assert_eq!((&shown["KillWait"], &shown["ClusterName"]), (&json!(7), &json!("c")));
        assert_eq!((&shown["SelectType"], &shown["JobRequeue"]), (&json!("select/cons_tres"), &json!(true)));
        assert_eq!(shown["TaskPlugin"], json!(["task/affinity", "task/cgroup"]));
        let both = json!([{"machine": "head", "address": "10.0.0.1"}, {"machine": "next", "address": "next"}]);
        assert_eq!(shown["controllers"], both);
        assert!(shown.get("JobSubmitPlugins").is_none());
        let kind = AnswerKind::SlurmConf;
        let whole = Shape::of(Version::NEWEST, kind).fill(&json!({"slurm_conf": shown}));
        assert_eq!(differences(Version::NEWEST, kind, &whole), Vec::<String>::new());
    }
}
