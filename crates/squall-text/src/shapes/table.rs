//! Fields of each kind of answer, read from the table of data_parser/v0.0.41. Fields that an answer lacks are added
//! with empty values.

use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use super::Kind;

const TABLE: &str = include_str!("v0.0.41.txt");

/// Shape of a JSON value in an answer.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Object with these fields, in order.
    Object(Vec<(String, Shape)>),
    /// List of elements that all have this shape.
    List(Box<Shape>),
    /// Any other value; contains the empty value, which is used where an answer lacks it.
    Leaf(Value),
}

impl Shape {
    /// Returns the shape of a kind of answer.
    pub fn of(kind: Kind) -> &'static Self {
        static ALL: OnceLock<Vec<(String, Shape)>> = OnceLock::new();
        let all = ALL.get_or_init(|| parse(TABLE));
        let known = all.iter().find(|(name, _)| name == kind.name());
        known.map(|(_, shape)| shape).expect("each kind has a section: a test looks for it")
    }

    /// Returns `given` with all fields of this shape: missing ones are added with empty values. Further fields of
    /// `given` come last.
    pub fn fill(&self, given: Option<Value>) -> Value {
        match (self, given) {
            (Self::Object(fields), Some(Value::Object(mut given))) => {
                let mut all = Map::with_capacity(fields.len());
                for (name, shape) in fields {
                    let value = shape.fill(given.swap_remove(name));
                    all.insert(name.clone(), value);
                }
                all.extend(given);
                Value::Object(all)
            }
            (Self::List(each), Some(Value::Array(list))) => {
                list.into_iter().map(|value| each.fill(Some(value))).collect()
            }
            // Null is kept, as in `job_resources` of a job without resources.
            (_, Some(value)) => value,
            (Self::Object(_), None) => self.fill(Some(json!({}))),
            (Self::List(_), None) => json!([]),
            (Self::Leaf(empty), None) => empty.clone(),
        }
    }

    /// Returns the shape of the field `name`, which is added if the object lacks it.
    fn field(&mut self, name: &str) -> &mut Self {
        let Self::Object(fields) = self else { panic!("{name}: what stands above it is no object") };
        let at = fields.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            fields.push((name.to_owned(), Self::Object(Vec::new())));
            fields.len() - 1
        });
        &mut fields[at].1
    }

    /// Adds the shape `leaf` at a path such as `a.b[].c`; `[]` marks a list.
    fn add(&mut self, path: &str, leaf: Self) {
        let mut here = self;
        for part in path.split('.') {
            here = here.field(part.trim_end_matches("[]"));
            if part.ends_with("[]") {
                if matches!(here, Self::Object(fields) if fields.is_empty()) {
                    *here = Self::List(Box::new(Self::Object(Vec::new())));
                }
                let Self::List(each) = here else { panic!("{path}: no list") };
                here = &mut **each;
            }
        }
        *here = leaf;
    }
}

fn parse(table: &str) -> Vec<(String, Shape)> {
    let mut all: Vec<(String, Shape)> = Vec::new();
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            // The first section contains the fields of all kinds, so each section begins as a copy of it.
            let common = all.first().map_or_else(|| Shape::Object(Vec::new()), |(_, shape)| shape.clone());
            all.push((name.to_owned(), common));
        } else if let (Some((_, shape)), Some((path, kind))) = (all.last_mut(), line.split_once(' ')) {
            shape.add(path, leaf(kind));
        }
    }
    all
}

fn leaf(kind: &str) -> Shape {
    let uint = |set: bool, infinite: bool| json!({"set": set, "infinite": infinite, "number": 0});
    let list = |shape: &[(&str, &str)]| {
        Shape::List(Box::new(Shape::Object(
            shape.iter().map(|(name, kind)| ((*name).to_owned(), leaf(kind))).collect(),
        )))
    };
    Shape::Leaf(match kind {
        "string" => json!(""),
        "int" => json!(0),
        "real" => json!(0.0),
        "bool" => json!(false),
        "strings" => json!([]),
        "object" => json!({}),
        "uint" => uint(false, false),
        "uint 0" => uint(true, false),
        "uint inf" => uint(false, true),
        "ureal" => json!({"set": false, "infinite": false, "number": 0.0}),
        "ureal 0" => json!({"set": true, "infinite": false, "number": 0.0}),
        "ureal inf" => json!({"set": false, "infinite": true, "number": 0.0}),
        "exit" => super::exit(squall_model::job::ExitCode::OK),
        "span" => json!({"seconds": 0, "microseconds": 0}),
        "tres" => return list(&[("type", "string"), ("name", "string"), ("id", "int"), ("count", "int")]),
        "peaks" => {
            return list(&[
                ("type", "string"),
                ("name", "string"),
                ("id", "int"),
                ("count", "int"),
                ("task", "int"),
                ("node", "string"),
            ]);
        }
        other => panic!("{other}: no type of the table"),
    })
}

/// Returns the differences between an answer and the table: fields that are missing, unknown, or of another type.
pub fn differences(kind: Kind, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    differ(Shape::of(kind), value, kind.name(), &mut found);
    found
}

fn differ(shape: &Shape, value: &Value, path: &str, found: &mut Vec<String>) {
    match (shape, value) {
        (Shape::Object(fields), Value::Object(given)) => {
            for (name, shape) in fields {
                let path = format!("{path}.{name}");
                match given.get(name) {
                    Some(value) => differ(shape, value, &path, found),
                    None => found.push(format!("{path} is missing")),
                }
            }
            let more = given.keys().filter(|key| fields.iter().all(|(name, _)| name != *key));
            found.extend(more.map(|key| format!("{path}.{key} is no field of it")));
        }
        (Shape::List(each), Value::Array(list)) => {
            for value in list {
                differ(each, value, &format!("{path}[]"), found);
            }
        }
        (Shape::Object(_), Value::Null) if path.ends_with(".job_resources") => {}
        (Shape::Leaf(empty), value) => leaf_differs(empty, value, path, found),
        _ => found.push(format!("{path} is {value}")),
    }
}

fn leaf_differs(empty: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let alike = match (empty, value) {
        (Value::Object(empty), Value::Object(given)) => {
            for (name, empty) in empty {
                let path = format!("{path}.{name}");
                match given.get(name) {
                    Some(value) => leaf_differs(empty, value, &path, found),
                    None => found.push(format!("{path} is missing")),
                }
            }
            given.len() == empty.len() || empty.is_empty()
        }
        (Value::Array(_), Value::Array(list)) => list.iter().all(Value::is_string),
        (Value::Number(empty), Value::Number(given)) => empty.is_f64() == given.is_f64(),
        (empty, value) => std::mem::discriminant(empty) == std::mem::discriminant(value),
    };
    if !alike {
        found.push(format!("{path} is {value}, not like {empty}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Kind;
    use super::{Shape, differences, parse};

    #[test]
    fn what_is_missing_is_added_empty() {
        let all = parse("[]\nmeta.a string\n[one]\nx[].n uint 0\nx[].t.u int\nx[].l tres\nlast uint\n");
        let (name, shape) = &all[1];
        assert_eq!(name, "one");
        let unset = json!({"set": false, "infinite": false, "number": 0});
        assert_eq!(shape.fill(Some(json!({}))), json!({"meta": {"a": ""}, "x": [], "last": unset}));
        let filled = shape.fill(Some(json!({"own": 1, "x": [{"l": [{"id": 2}]}, {"t": {"u": 3}}]})));
        let zero = json!({"set": true, "infinite": false, "number": 0});
        assert_eq!(
            filled["x"],
            json!([
                {"n": zero, "t": {"u": 0}, "l": [{"type": "", "name": "", "id": 2, "count": 0}]},
                {"n": zero, "t": {"u": 3}, "l": []},
            ])
        );
        assert_eq!(filled["own"], 1);
    }

    #[test]
    fn every_kind_of_answer_has_its_section() {
        for kind in Kind::ALL {
            assert_eq!(differences(kind, &Shape::of(kind).fill(Some(json!({})))), Vec::<String>::new());
        }
    }
}
