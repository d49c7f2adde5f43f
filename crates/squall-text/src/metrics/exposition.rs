//! The text format of Prometheus, version 0.0.4: `# HELP` and `# TYPE`, then a line for each series.

use std::fmt::Write;
use std::ops::RangeInclusive;

use squall_model::wire::counts::Histogram;

/// A metric of a kind of thing, such as a node.
pub(super) struct Metric<T: ?Sized> {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&T) -> f64,
}

/// Makes a metric with a value that rises and falls.
pub(super) const fn gauge<T: ?Sized>(name: &'static str, help: &'static str, value: fn(&T) -> f64) -> Metric<T> {
    Metric { name, kind: "gauge", help, value }
}

/// Makes a metric with a value that only rises, until it begins at 0 again.
pub(super) const fn counter<T: ?Sized>(name: &'static str, help: &'static str, value: fn(&T) -> f64) -> Metric<T> {
    Metric { name, kind: "counter", help, value }
}

/// A text that is being written.
#[derive(Default)]
pub(super) struct Text {
    /// The text so far.
    pub(super) out: String,
}

impl Text {
    /// Writes metrics of a thing of which there is only one, so that the series have no labels.
    pub(super) fn one<T: ?Sized>(&mut self, table: &[Metric<T>], thing: &T) {
        self.each("", table, &[(String::new(), thing)]);
    }

    /// Writes metrics of several things, each of which is given with its labels. `prefix` begins each name.
    pub(super) fn each<T: ?Sized>(&mut self, prefix: &str, table: &[Metric<T>], things: &[(String, &T)]) {
        for metric in table.iter().filter(|_| !things.is_empty()) {
            self.head(prefix, metric.name, (metric.kind, metric.help));
            for (labels, thing) in things {
                let _ = write!(self.out, "{prefix}{}{labels} ", metric.name);
                self.number((metric.value)(thing));
            }
        }
    }

    /// Writes the distribution of durations in seconds. `bounds` are the buckets with a series of their own, as powers
    /// of two in microseconds; they must never change from one scrape to the next.
    pub(super) fn histogram(&mut self, name: &str, help: &str, of: &Histogram, bounds: RangeInclusive<usize>) {
        self.head("", name, ("histogram", help));
        for bound in bounds {
            let seconds = (1_u64 << bound) as f64 / 1e6;
            let within: u64 = of.counts.iter().take(bound + 1).sum();
            let _ = writeln!(self.out, "{name}_bucket{{le=\"{seconds}\"}} {within}");
        }
        let (count, sum) = (of.count(), of.total_us as f64 / 1e6);
        let _ = writeln!(self.out, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}");
    }

    fn number(&mut self, value: f64) {
        let _ = if value.is_infinite() {
            writeln!(self.out, "{}Inf", if value > 0.0 { '+' } else { '-' })
        } else {
            writeln!(self.out, "{value}")
        };
    }

    fn head(&mut self, prefix: &str, name: &str, (kind, help): (&str, &str)) {
        let _ = writeln!(self.out, "# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {kind}");
    }
}

/// Formats labels as `{node="n1",status="idle"}`. Quotes, backslashes and line ends in values are escaped.
pub(super) fn labels(pairs: &[(&str, &str)]) -> String {
    let mut text = String::from("{");
    for (name, value) in pairs {
        let comma = if text.len() > 1 { "," } else { "" };
        let _ = write!(text, "{comma}{name}=\"");
        for c in value.chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                c => text.push(c),
            }
        }
        text.push('"');
    }
    text.push('}');
    text
}
