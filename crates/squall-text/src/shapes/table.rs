//! Fields of each kind of answer in each version of the data parser, read from tables: v0.0.41 in full, the others as
//! differences. An answer has the fields of its table and no others; those that it was not given are empty.

use std::sync::OnceLock;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use super::{AnswerKind, Version};

const TABLE: &str = include_str!("v0.0.41.txt");

/// Shape of a JSON value in an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Object with these fields, in order.
    Object(Vec<(String, Shape)>),
    /// List of elements that all have this shape.
    List(Box<Shape>),
    /// A number that may be unset or infinite: an object with `set`, `infinite` and `number`.
    Number(Number),
    /// Any other value; contains the empty value, which is used where an answer lacks it.
    Leaf(Value),
}

/// A number in Slurm's form, which is also its value where an answer lacks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// Whether the number is set.
    pub set: bool,
    /// Whether the number is infinite.
    pub infinite: bool,
    /// Whether the number may have a fraction.
    pub real: bool,
}

/// The only field that may be null: a job that has not started has no resources.
pub(crate) const MAY_BE_NULL: &str = "job_resources";

impl Shape {
    /// Returns the shape of a kind of answer.
    pub fn of(version: Version, kind: AnswerKind) -> &'static Self {
        static ALL: OnceLock<[Vec<Shape>; Version::ALL.len()]> = OnceLock::new();
        let all = ALL.get_or_init(|| Version::ALL.map(shapes));
        &all[version as usize][kind as usize]
    }

    /// Returns the shape of the records that an answer of a kind lists. None: it lists none in the version.
    pub fn of_record(version: Version, kind: AnswerKind) -> Option<&'static Self> {
        let Self::Object(fields) = Self::of(version, kind) else { return None };
        match fields.iter().find(|(name, _)| name == kind.list())? {
            (_, Self::List(each)) => Some(each),
            _ => None,
        }
    }

    /// Returns `given` in this shape, to be serialized. None: a value of which all fields are empty.
    pub fn around<'a>(&'a self, given: Option<&'a Value>) -> ShapedValue<'a> {
        ShapedValue { shape: self, given }
    }

    /// Returns `given` in this shape.
    pub fn fill(&self, given: &Value) -> Value {
        serde_json::to_value(self.around(Some(given))).unwrap_or_default()
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

    /// Returns the shape at a path such as `a.b[].c`, which is added where it is missing; `[]` marks a list, and `[][]` a
    /// list of lists.
    fn at(&mut self, path: &str) -> &mut Self {
        let mut here = self;
        for part in path.split('.').filter(|part| !part.is_empty()) {
            let name = part.trim_end_matches("[]");
            here = here.field(name);
            for _ in 0..(part.len() - name.len()) / "[]".len() {
                if matches!(here, Self::Object(fields) if fields.is_empty()) {
                    *here = Self::List(Box::new(Self::Object(Vec::new())));
                }
                let Self::List(each) = here else { panic!("{path}: no list") };
                here = &mut **each;
            }
        }
        here
    }

    /// Removes the field at a path.
    fn remove(&mut self, path: &str) {
        let (above, name) = path.rsplit_once('.').unwrap_or(("", path));
        let Self::Object(fields) = self.at(above) else { panic!("{path}: what stands above it is no object") };
        let before = fields.len();
        fields.retain(|(known, _)| known != name);
        assert!(fields.len() < before, "{path}: no field of v0.0.41");
    }
}

/// A value in a shape. Serialized, it has all fields of the shape, and no others.
#[derive(Clone, Copy, Debug)]
pub struct ShapedValue<'a> {
    shape: &'a Shape,
    given: Option<&'a Value>,
}

impl Serialize for ShapedValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.shape, self.given) {
            (Shape::Object(fields), given @ (None | Some(Value::Object(_)))) => {
                let given = given.and_then(Value::as_object);
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, shape) in fields {
                    map.serialize_entry(name, &shape.around(given.and_then(|given| given.get(name))))?;
                }
                map.end()
            }
            (Shape::List(each), Some(Value::Array(list))) => {
                serializer.collect_seq(list.iter().map(|value| each.around(Some(value))))
            }
            (Shape::List(_), None) => serializer.collect_seq(std::iter::empty::<()>()),
            (Shape::Number(empty), None) => empty.serialize(None, serializer),
            (Shape::Number(empty), Some(Value::Null)) => {
                Number { set: false, infinite: false, ..*empty }.serialize(None, serializer)
            }
            (Shape::Number(empty), Some(number @ Value::Number(_))) => {
                Number { set: true, infinite: false, ..*empty }.serialize(Some(number), serializer)
            }
            (Shape::Leaf(empty), None) => empty.serialize(serializer),
            // Null is kept, as in `job_resources` of a job without resources.
            (_, Some(value)) => value.serialize(serializer),
        }
    }
}

impl Number {
    fn serialize<S: Serializer>(self, number: Option<&Value>, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("set", &self.set)?;
        map.serialize_entry("infinite", &self.infinite)?;
        match number {
            Some(number) => map.serialize_entry("number", number)?,
            None if self.real => map.serialize_entry("number", &0.0)?,
            None => map.serialize_entry("number", &0)?,
        }
        map.end()
    }
}

/// Returns the shapes of all kinds of answers in a version, in the order of the kinds.
fn shapes(version: Version) -> Vec<Shape> {
    let mut all = parse(TABLE);
    version.differences().for_each(|table| change(&mut all, table));
    let of = |name: &str| all.iter().find(|(known, _)| known == name).map(|(_, shape)| shape.clone());
    let known = |kind: AnswerKind| match kind {
        // All records of accounting are in its answer.
        AnswerKind::Config => {
            let records = AnswerKind::records(version);
            let mut all = records.iter().filter_map(|kind| of(kind.name())).reduce(joined);
            if let Some(Shape::Object(fields)) = &mut all {
                // Only the answer about resources alone has this name in capitals.
                fields.iter_mut().filter(|(name, _)| name == "TRES").for_each(|(name, _)| name.make_ascii_lowercase());
            }
            all
        }
        kind => of(kind.name()),
    };
    AnswerKind::ALL.iter().map(|kind| known(*kind).expect("each kind has a section: a test looks for it")).collect()
}

fn joined(one: Shape, other: Shape) -> Shape {
    let (Shape::Object(mut fields), Shape::Object(more)) = (one, other) else { panic!("answers are objects") };
    let fresh: Vec<_> = more.into_iter().filter(|(name, _)| fields.iter().all(|(known, _)| known != name)).collect();
    fields.extend(fresh);
    Shape::Object(fields)
}

fn lines(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn section(line: &str) -> Option<&str> {
    line.strip_prefix('[').and_then(|line| line.strip_suffix(']'))
}

/// Reads a table of fields: the shapes of its sections.
pub(crate) fn parse(table: &str) -> Vec<(String, Shape)> {
    let mut all: Vec<(String, Shape)> = Vec::new();
    for line in lines(table) {
        if let Some(name) = section(line) {
            // The first section contains the fields of all kinds, so each section begins as a copy of it.
            let common = all.first().map_or_else(|| Shape::Object(Vec::new()), |(_, shape)| shape.clone());
            all.push((name.to_owned(), common));
        } else if let (Some((_, shape)), Some((path, kind))) = (all.last_mut(), line.split_once(' ')) {
            *shape.at(path) = leaf(kind);
        }
    }
    all
}

/// Applies a table of differences to the shapes of another version.
fn change(all: &mut [(String, Shape)], table: &str) {
    let mut here = None;
    for line in lines(table) {
        if let Some(name) = section(line) {
            here = all.iter().position(|(known, _)| known == name);
            assert!(here.is_some(), "{name}: no section of v0.0.41");
        } else if let (Some(here), Some((path, kind))) = (here, line.split_once(' ')) {
            let shape = &mut all[here].1;
            match path {
                "-" => shape.remove(kind),
                path => *shape.at(path) = leaf(kind),
            }
        }
    }
}

/// Returns the shape of a type in the tables.
pub(crate) fn leaf(kind: &str) -> Shape {
    let object = |fields: &[(&str, &str)]| {
        Shape::Object(fields.iter().map(|(name, kind)| ((*name).to_owned(), leaf(kind))).collect())
    };
    let (name, value) = kind.split_once(' ').unwrap_or((kind, ""));
    if let "uint" | "ureal" = name {
        return Shape::Number(Number { set: value == "0", infinite: value == "inf", real: name == "ureal" });
    }
    let resource = [("type", "string"), ("name", "string"), ("id", "int"), ("count", "int")];
    match kind {
        "string" => Shape::Leaf(json!("")),
        "int" => Shape::Leaf(json!(0)),
        "real" => Shape::Leaf(json!(0.0)),
        "bool" => Shape::Leaf(json!(false)),
        "strings" => Shape::Leaf(json!([])),
        "object" => Shape::Leaf(json!({})),
        "span" => object(&[("seconds", "int"), ("microseconds", "int")]),
        "tres" => Shape::List(Box::new(object(&resource))),
        "peaks" => {
            let place = [("task", "int"), ("node", "string")];
            Shape::List(Box::new(object(&[&resource[..], &place[..]].concat())))
        }
        "exit" => {
            let mut exit = object(&[("status", "strings"), ("return_code", "uint 0")]);
            *exit.at("status") = Shape::Leaf(json!(["SUCCESS"]));
            *exit.at("signal.id") = leaf("uint");
            *exit.at("signal.name") = leaf("string");
            exit
        }
        other => panic!("{other}: no type of the table"),
    }
}

/// Returns the differences between an answer and the table: fields that are missing, unknown, or of another type.
pub fn differences(version: Version, kind: AnswerKind, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    differ(Shape::of(version, kind), value, kind.name(), &mut found);
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
        (Shape::Object(_), Value::Null) if path.ends_with(&format!(".{MAY_BE_NULL}")) => {}
        (Shape::Number(_), Value::Object(given)) => {
            let known = given.len() == 3 && given.get("set").is_some_and(Value::is_boolean);
            if !known || !given.contains_key("infinite") || !given.get("number").is_some_and(Value::is_number) {
                found.push(format!("{path} is {value}, no number"));
            }
        }
        (Shape::Leaf(empty), value) => {
            let alike = match (empty, value) {
                (Value::Array(_), Value::Array(list)) => {
                    list.iter().all(Value::is_string) || path.ends_with(".allocated_nodes")
                }
                (Value::Number(empty), Value::Number(given)) => empty.is_f64() == given.is_f64(),
                (empty, value) => std::mem::discriminant(empty) == std::mem::discriminant(value),
            };
            if !alike {
                found.push(format!("{path} is {value}, not like {empty}"));
            }
        }
        _ => found.push(format!("{path} is {value}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{AnswerKind, Version};
    use super::{Shape, change, differences, parse};

    #[test]
    fn what_is_missing_is_added_empty_and_what_is_unknown_is_left_out() {
        let all = parse("[]\nmeta.a string\n[one]\nx[].n uint 0\nx[].t.u int\nx[].l tres\nlast uint\n");
        let (name, shape) = &all[1];
        assert_eq!(name, "one");
        let unset = json!({"set": false, "infinite": false, "number": 0});
        assert_eq!(shape.fill(&json!({})), json!({"meta": {"a": ""}, "x": [], "last": unset}));
        let given = json!({"own": 1, "last": null, "x": [{"l": [{"id": 2}]}, {"t": {"u": 3}, "n": 4}]});
        let filled = shape.fill(&given);
        let set = |number: u32| json!({"set": true, "infinite": false, "number": number});
        assert_eq!(
            filled["x"],
            json!([
                {"n": set(0), "t": {"u": 0}, "l": [{"type": "", "name": "", "id": 2, "count": 0}]},
                {"n": set(4), "t": {"u": 3}, "l": []},
            ])
        );
        assert_eq!((filled.get("own"), &filled["last"]), (None, &unset));
    }

    #[test]
    fn another_version_is_given_by_its_differences() {
        let mut all = parse("[]\n[one]\nx[].a int\nx[].b int\n[two]\nc int\n");
        change(&mut all, "[one]\n- x[].a\nx[].b string\nx[].d bool\n");
        assert_eq!(all[1].1.fill(&json!({"x": [{"a": 1}]})), json!({"x": [{"b": "", "d": false}]}));
        assert_eq!(all[2].1.fill(&json!({})), json!({"c": 0}));
        change(&mut all, "[two]\nl[][].n int\n");
        assert_eq!(all[2].1.fill(&json!({"l": [[{}], []]})), json!({"c": 0, "l": [[{"n": 0}], []]}));
    }

    // Clients that openapi-generator makes refuse a field that Slurm does not have.
    #[test]
    fn statistics_have_fields_of_our_own_in_old_versions_only() {
        for version in Version::ALL {
            let statistics = &Shape::of(version, AnswerKind::Diag).fill(&json!({}))["statistics"];
            let own = ["fabric", "latencies", "node_daemons", "journal"].map(|field| statistics.get(field).is_some());
            assert_eq!(own, [version < Version::V42; 4], "{version:?}");
        }
    }

    #[test]
    fn every_kind_of_answer_has_its_section_in_every_version() {
        for (version, kind) in Version::ALL.into_iter().flat_map(|version| AnswerKind::ALL.map(|kind| (version, kind)))
        {
            let empty = Shape::of(version, kind).fill(&json!({}));
            assert_eq!(differences(version, kind, &empty), Vec::<String>::new(), "{version:?} {kind:?}");
            assert!(empty["meta"]["slurm"].is_object() && empty["errors"].is_array(), "{version:?} {kind:?}");
        }
    }
}
