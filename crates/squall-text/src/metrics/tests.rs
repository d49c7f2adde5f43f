//! Tests of the text format. The commands' tests run all metrics through a strict parser.

use squall_model::time::Span;
use squall_model::wire::counts::Histogram;

use super::exposition::{Text, counter, gauge, labels};
use super::jobs::{NAMES_MAX, OTHERS, Tally, most};

#[test]
fn values_of_labels_are_escaped() {
    assert_eq!(labels(&[("user", "a\"b\\c\nd"), ("x", "")]), r#"{user="a\"b\\c\nd",x=""}"#);
}

#[test]
fn each_family_has_its_head_once() {
    let mut text = Text::default();
    let table = [gauge("level", "How high", |n: &f64| *n), counter("seen_total", "How often", |_| 2.0)];
    text.each("x_", &table, &[(labels(&[("of", "a")]), &1.5), (labels(&[("of", "b")]), &f64::INFINITY)]);
    text.each("y_", &table, &[]);
    let expected = "# HELP x_level How high\n# TYPE x_level gauge\nx_level{of=\"a\"} 1.5\nx_level{of=\"b\"} +Inf\n\
                    # HELP x_seen_total How often\n# TYPE x_seen_total counter\nx_seen_total{of=\"a\"} 2\n\
                    x_seen_total{of=\"b\"} 2\n";
    assert_eq!(text.out, expected);
}

#[test]
fn buckets_are_cumulative_and_those_out_of_range_are_in_the_next() {
    let mut text = Text::default();
    let mut took = Histogram::default();
    for us in [1, 3, 4, 1_000_000] {
        took.add(Span(us));
    }
    text.histogram("took_seconds", "How long", &took, 1..=3);
    let expected = "# HELP took_seconds How long\n# TYPE took_seconds histogram\n\
                    took_seconds_bucket{le=\"0.000002\"} 1\ntook_seconds_bucket{le=\"0.000004\"} 3\n\
                    took_seconds_bucket{le=\"0.000008\"} 3\ntook_seconds_bucket{le=\"+Inf\"} 4\n\
                    took_seconds_sum 1.000008\ntook_seconds_count 4\n";
    assert_eq!(text.out, expected);
}

#[test]
fn many_users_make_no_more_series_than_the_limit() {
    let all = (0..NAMES_MAX + 5).map(|n| (format!("u{n}"), Tally::default())).collect();
    let most = most(&all);
    assert_eq!(most.len(), NAMES_MAX + 1);
    assert!(most.contains_key(OTHERS));
}
