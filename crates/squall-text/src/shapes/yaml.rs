//! Formats JSON values as YAML in block style, indented by two spaces for each level.

use serde_json::Value;

/// Returns a value as a YAML document.
pub(super) fn yaml(value: &Value) -> String {
    let mut out = String::from("---\n");
    yaml_value(value, 0, false, &mut out);
    out.push_str("...\n");
    out
}

/// Appends a value in block style; `inline`: its first line continues a line that begins with `- `.
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

/// Quotes a text as in JSON, which is valid YAML, too.
fn yaml_text(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::yaml;

    #[test]
    fn yaml_is_nested_by_blanks() {
        let text = yaml(&json!({"a": [{"b": 1, "c": []}, "x"], "d": {}}));
        assert_eq!(text, "---\n\"a\":\n  - \"b\": 1\n    \"c\": []\n  - \"x\"\n\"d\": {}\n...\n");
    }
}
