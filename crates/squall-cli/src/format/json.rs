//! `--json` and `--yaml`: the envelope and the small shapes that Slurm's data parser gives.

use serde_json::{Value, json};
use squall_model::job::ExitCode;
use squall_model::time::Time;

use crate::format::words;
use crate::options::values::signal::signal_name;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `--json`.
    Json,
    /// `--yaml`.
    Yaml,
}

/// Puts an answer into the envelope that clients expect, and prints it.
pub(crate) fn document(dialect: Dialect, cluster: &str, command: &[&str], body: Vec<(&str, Value)>) -> String {
    let mut all = serde_json::Map::new();
    for (key, value) in body {
        all.insert(key.to_owned(), value);
    }
    all.insert("meta".into(), meta(cluster, command));
    all.insert("errors".into(), json!([]));
    all.insert("warnings".into(), json!([]));
    let all = Value::Object(all);
    match dialect {
        Dialect::Json => {
            let mut text = serde_json::to_string_pretty(&all).unwrap_or_default();
            text.push('\n');
            text
        }
        Dialect::Yaml => yaml(&all),
    }
}

fn meta(cluster: &str, command: &[&str]) -> Value {
    let (major, minor, micro) = words::SLURM_VERSION;
    json!({
        "plugins": {"data_parser": "data_parser/v0.0.41", "accounting_storage": "accounting_storage/slurmdbd"},
        "command": command,
        "Slurm": {
            "version": {"major": major, "minor": minor, "micro": micro},
            "release": words::slurm_version(),
            "cluster": cluster,
        },
    })
}

/// Objects joined into one.
pub(crate) fn joined(parts: impl IntoIterator<Item = Value>) -> Value {
    let mut all = serde_json::Map::new();
    for part in parts {
        if let Value::Object(part) = part {
            all.extend(part);
        }
    }
    Value::Object(all)
}

/// A number that may be missing.
pub(crate) fn number(value: Option<u64>) -> Value {
    json!({"set": value.is_some(), "infinite": false, "number": value.unwrap_or(0)})
}

/// A number that may be infinite.
pub(crate) fn or_infinite(value: Option<u64>) -> Value {
    json!({"set": value.is_some(), "infinite": value.is_none(), "number": value.unwrap_or(0)})
}

/// A time in seconds since the epoch; 0 where there is none.
pub(crate) fn time(value: Option<Time>) -> Value {
    json!({"set": true, "infinite": false, "number": value.map_or(0, Time::secs)})
}

/// An exit code.
pub(crate) fn exit(code: ExitCode) -> Value {
    let status = if code.signal != 0 {
        "SIGNALED"
    } else if code.code != 0 {
        "ERROR"
    } else {
        "SUCCESS"
    };
    json!({
        "status": [status],
        "return_code": number(Some(u64::from(code.code))),
        "signal": {
            "id": number((code.signal != 0).then_some(u64::from(code.signal))),
            "name": signal_name(i32::from(code.signal)),
        },
    })
}

fn yaml(value: &Value) -> String {
    let mut out = String::from("---\n");
    yaml_value(value, 0, false, &mut out);
    out.push_str("...\n");
    out
}

/// Writes a value as a block; `inline`: its first line follows a `- `.
fn yaml_value(value: &Value, depth: usize, inline: bool, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (at, (key, child)) in map.iter().enumerate() {
                if at > 0 || !inline {
                    out.extend(std::iter::repeat_n(' ', depth));
                }
                out.push_str(&yaml_text(key));
                out.push(':');
                yaml_child(child, depth + 2, out);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (at, child) in list.iter().enumerate() {
                if at > 0 || !inline {
                    out.extend(std::iter::repeat_n(' ', depth));
                }
                out.push_str("- ");
                yaml_value(child, depth + 2, true, out);
            }
        }
        scalar => {
            out.push_str(&yaml_scalar(scalar));
            out.push('\n');
        }
    }
}

fn yaml_child(child: &Value, depth: usize, out: &mut String) {
    let nested =
        matches!(child, Value::Object(m) if !m.is_empty()) || matches!(child, Value::Array(l) if !l.is_empty());
    out.push(if nested { '\n' } else { ' ' });
    yaml_value(child, depth, false, out);
}

fn yaml_scalar(value: &Value) -> String {
    match value {
        Value::String(text) => yaml_text(text),
        other => other.to_string(),
    }
}

/// JSON's quoting is YAML's, too.
fn yaml_text(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Dialect, document, yaml};

    #[test]
    fn yaml_is_nested_by_blanks() {
        let text = yaml(&json!({"a": [{"b": 1, "c": []}, "x"], "d": {}}));
        assert_eq!(text, "---\n\"a\":\n  - \"b\": 1\n    \"c\": []\n  - \"x\"\n\"d\": {}\n...\n");
    }

    #[test]
    fn the_envelope_names_parser_and_version() {
        let text = document(Dialect::Json, "c1", &["sdiag"], vec![("statistics", json!({}))]);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["meta"]["Slurm"]["version"]["major"], 24);
        assert!(value["meta"]["plugins"]["data_parser"].is_string());
        assert_eq!(value["errors"], json!([]));
    }
}
