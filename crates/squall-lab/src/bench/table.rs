//! Figures of several benchmarks in one table, each with its target and the results of others; and formatting of
//! tables.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{BenchOptions, Finding, round};

/// A figure in the table of results, with its target.
pub(super) struct FigureRow {
    what: String,
    /// The measured value; None: the benchmark did not return it.
    measured: Option<f64>,
    unit: &'static str,
    bar: Bar,
    /// Results of other systems, with their names.
    others: String,
}

/// Target that a figure must reach.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "research"), expect(dead_code, reason = "benchmarks of the laboratory use the rest"))]
pub(super) enum Bar {
    Most(f64),
    Least(f64),
    Exactly(f64),
    /// Value that the figure must have, and the allowed deviation in percent.
    Within(f64, f64),
    /// No target: the figure is there for comparison.
    Any,
}

impl FigureRow {
    pub(super) fn new(
        what: impl Into<String>,
        measured: Option<f64>,
        unit: &'static str,
        bar: Bar,
        others: impl Into<String>,
    ) -> Self {
        Self { what: what.into(), measured, unit, bar, others: others.into() }
    }

    /// Returns whether the target is met; None: there is no target.
    fn holds(&self) -> Option<bool> {
        let holds = |test: &dyn Fn(f64) -> bool| Some(self.measured.is_some_and(test));
        match self.bar {
            Bar::Most(bar) => holds(&|x| x <= bar),
            Bar::Least(bar) => holds(&|x| x >= bar),
            Bar::Exactly(bar) => holds(&|x| (x - bar).abs() < 0.5),
            Bar::Within(bar, percent) => holds(&|x| (x - bar).abs() <= bar.abs() * percent / 100.0),
            Bar::Any => None,
        }
    }

    fn show(&self) -> Value {
        let wanted = match self.bar {
            Bar::Most(bar) => format!("at most {bar}"),
            Bar::Least(bar) => format!("at least {bar}"),
            Bar::Exactly(bar) => format!("exactly {bar}"),
            Bar::Within(bar, percent) => format!("{bar} +- {percent} %"),
            Bar::Any => String::new(),
        };
        json!({
            "what": self.what,
            "measured": self.measured.map(round),
            "unit": self.unit,
            "wanted": wanted,
            "holds": self.holds().map_or("", |holds| if holds { "yes" } else { "NO" }),
            "others": self.others,
        })
    }
}

/// Returns the table; its figure is the number of targets met.
pub(super) fn of(bench: &'static str, lines: &[FigureRow]) -> Finding {
    let bars: Vec<bool> = lines.iter().filter_map(FigureRow::holds).collect();
    let held = bars.iter().filter(|holds| **holds).count();
    let limit = Some((bars.len() as f64, "figures"));
    let fields = vec![("figures", lines.iter().map(FigureRow::show).collect())];
    Finding { bench, figure: held as f64, unit: "figures hold", limit, fields }
}

/// Output of one benchmark, as JSON.
pub(super) struct BenchOutput(pub(super) Value);

impl BenchOutput {
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.as_f64()
    }

    /// Returns the rows of the table `table` in the output; empty if there is none.
    pub(super) fn rows(&self, table: &str) -> &[Value] {
        self.0.get(table).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the cell `cell` of the first row of `table` in which all cells of `is` have the given values. None:
    /// there is no such row or cell.
    pub(super) fn cell(&self, table: &str, is: &[(&str, Value)], cell: &str) -> Option<f64> {
        let row = self.rows(table).iter().find(|row| is.iter().all(|(name, value)| row.get(*name) == Some(value)))?;
        row.get(cell)?.as_f64()
    }
}

/// Returns this program's command `bench`, to which arguments are added.
pub(super) fn bench() -> Result<Command, String> {
    let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    command.arg("bench");
    Ok(command)
}

/// Runs a benchmark as a process of its own; prints its result at once unless `--json` is given.
pub(super) fn part(options: &BenchOptions, mut command: Command) -> Result<BenchOutput, String> {
    let output = command.arg("--json").stderr(Stdio::inherit()).output().map_err(|e| e.to_string())?;
    let found: Value = serde_json::from_slice(&output.stdout).map_err(|_| {
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        format!("`squall {}` failed", words.join(" "))
    })?;
    if !options.json {
        crate::print(&super::text(&found));
    }
    Ok(BenchOutput(found))
}

/// Formats rows as columns under the names of their cells, numbers right-aligned. Rows with different cells are
/// formatted one by one.
pub(super) fn columns(rows: &[Value]) -> String {
    let names = |row: &Value| row.as_object().map(|row| row.keys().cloned().collect::<Vec<_>>());
    let mut text = String::new();
    let alike = rows.first().and_then(names).filter(|head| rows.iter().all(|row| names(row).as_ref() == Some(head)));
    let Some(head) = alike else {
        for row in rows {
            let _ = writeln!(text, "    {}", one_after_another(row));
        }
        return text;
    };
    let cells: Vec<Vec<String>> =
        rows.iter().map(|row| head.iter().map(|name| plain(&row[name.as_str()])).collect()).collect();
    let numbers =
        |at: usize| rows.iter().all(|row| row[head[at].as_str()].is_number() || row[head[at].as_str()].is_null());
    let width = |at: usize| {
        let widths = cells.iter().map(|row| row[at].chars().count());
        widths.max().unwrap_or_default().max(head[at].chars().count())
    };
    let columns: Vec<(usize, bool)> = (0..head.len()).map(|at| (width(at), numbers(at))).collect();
    for row in std::iter::once(&head).chain(&cells) {
        let mut line = String::from("   ");
        for (cell, (width, right)) in row.iter().zip(&columns) {
            let _ = if *right { write!(line, " {cell:>width$}") } else { write!(line, " {cell:<width$}") };
            line.push(' ');
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Formats a single row: its first cell with a fixed width, the others with their names.
fn one_after_another(row: &Value) -> String {
    let Value::Object(map) = row else { return plain(row) };
    let mut cells = map.iter();
    let mut line = format!("{:<36}", cells.next().map(|(_, value)| plain(value)).unwrap_or_default());
    for (name, value) in cells {
        let _ = write!(line, " {name} {:<10}", plain(value));
    }
    line.trim_end().to_owned()
}

/// Formats a cell: texts without quotes, whole numbers without a fraction, null as an empty text.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Number(number) => number.as_f64().map_or_else(|| number.to_string(), |number| number.to_string()),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Bar, BenchOutput, FigureRow, columns, of};

    fn line(measured: Option<f64>, bar: Bar) -> FigureRow {
        FigureRow::new("x", measured, "ms", bar, "")
    }

    #[test]
    fn a_figure_that_was_not_found_does_not_hold() {
        let holds = |measured, bar| line(measured, bar).show()["holds"].clone();
        assert_eq!(holds(None, Bar::Most(1.0)), "NO");
        assert_eq!(holds(None, Bar::Within(1.0, 10.0)), "NO");
        assert_eq!(holds(Some(1.0), Bar::Most(1.0)), "yes");
        assert_eq!(holds(Some(0.9), Bar::Least(1.0)), "NO");
        assert_eq!(holds(Some(229_999.0), Bar::Exactly(230_000.0)), "NO");
        assert_eq!(holds(Some(1.149), Bar::Within(1.0, 15.0)), "yes");
        assert_eq!(holds(Some(0.849), Bar::Within(1.0, 15.0)), "NO");
    }

    #[test]
    fn what_has_no_bar_is_not_counted() {
        let lines = [line(Some(1.0), Bar::Any), line(Some(1.0), Bar::Most(2.0)), line(None, Bar::Least(2.0))];
        let finding = of("x", &lines);
        assert_eq!((finding.figure, finding.limit), (1.0, Some((2.0, "figures"))));
        assert_eq!(lines[0].show()["holds"], "");
    }

    #[test]
    fn a_cell_is_found_by_its_row() {
        let found = BenchOutput(json!({ "rows": [{ "a": 1, "b": 2.0 }, { "a": 2, "b": 3.0 }], "n": 7 }));
        assert_eq!(found.cell("rows", &[("a", json!(2))], "b"), Some(3.0));
        assert_eq!(found.cell("rows", &[("a", json!(3))], "b"), None);
        assert_eq!(found.number("n"), Some(7.0));
    }

    #[test]
    fn rows_stand_below_each_other() {
        let rows = [json!({ "what": "one", "ms": 11_098_174_771.0 }), json!({ "what": "another", "ms": null })];
        let expected = "    what              ms\n    one      11098174771\n    another\n";
        assert_eq!(columns(&rows), expected);
        let mixed = [json!({ "a": 1 }), json!({ "a": 1, "b": "x" })];
        assert_eq!(columns(&mixed).lines().count(), 2);
    }
}
