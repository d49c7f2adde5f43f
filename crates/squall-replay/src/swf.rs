//! Workload traces in the Standard Workload Format of the Parallel Workloads Archive: 18 numbers a line, comments
//! after `;`.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use crate::node_spec::{self, NodeSpec};

/// A job of a workload trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceJob {
    /// Number of the job in the trace.
    pub id: i64,
    /// Time at which the job was submitted, seconds since the trace's start.
    pub submit: u64,
    /// Time that the job ran, seconds.
    pub run: u64,
    /// Time limit, seconds: the requested time, but at least the run time.
    pub estimate: u64,
    /// Number of processors: as requested, or as allocated where the request is unknown.
    pub processors: u32,
    /// The request for nodes, in extended traces.
    pub spec: Option<NodeSpec>,
}

/// A workload trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The jobs, by submit time, then by number.
    pub jobs: Vec<TraceJob>,
    /// Processors of the machine: as given to the parser; otherwise from the header's `MaxProcs` or `MaxNodes`;
    /// otherwise as many as the largest job needs.
    pub processors: Option<u32>,
    /// Distinct lists of required node properties; each job's request has an index of one of them.
    pub properties: Vec<Vec<String>>,
    /// Number of records omitted because the submit time is unknown (-1).
    pub without_submit: u64,
    /// Number of the first line with an unknown submit time.
    pub unknown_submit: Option<usize>,
    /// Number of records omitted because they have no processors.
    pub without_processors: u64,
    /// Number of records omitted because the job never ran.
    pub without_run: u64,
    /// Number of records omitted because the job is larger than the machine.
    pub too_large: u64,
}

/// A line that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Number of the line in the trace, from 1.
    pub line: usize,
    /// Description of the error in the line.
    pub problem: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

/// Names of the standard columns, in order.
const COLUMNS: [&str; 18] = [
    "job number",
    "submit time",
    "wait time",
    "run time",
    "number of allocated processors",
    "average CPU time used",
    "used memory",
    "requested number of processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
];

/// Names of the additional columns of extended traces.
const MORE: [&str; 3] = ["nodes", "queue", "node spec"];

/// Positions of the columns that are used, from 0.
const USED: [usize; 6] = [0, 1, 3, 4, 7, 8];

impl Trace {
    /// Parses a trace. Omitted are jobs that need more than `processors` (default: the header's number), never ran,
    /// have no processors or have an unknown submit time. Other errors are refused, such as a repeated job number or
    /// numbers below -1; -1 means unknown.
    pub fn read(text: &str, processors: Option<u32>) -> Result<Self, BadLine> {
        Self::read_as(text, processors, false)
    }

    /// Parses an extended trace (`.swf-ext`), which has three more columns: the node of each processor, a queue, and
    /// the job's node request. Only the node request is used; it must be for as many processors as the other columns
    /// say.
    pub fn read_extended(text: &str, processors: Option<u32>) -> Result<Self, BadLine> {
        Self::read_as(text, processors, true)
    }

    fn read_as(text: &str, processors: Option<u32>, extended: bool) -> Result<Self, BadLine> {
        let mut trace = Self::default();
        let mut most = 0;
        let mut lines = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            let bad = |problem| BadLine { line: at + 1, problem };
            let line = line.trim();
            if let Some(comment) = line.strip_prefix(';') {
                trace.head(comment).map_err(bad)?;
            } else if !line.is_empty() {
                let (mut job, known) = record(line).map_err(bad)?;
                if let Some(before) = lines.insert(job.id, at + 1).filter(|_| job.id >= 0) {
                    return Err(bad(format!("column 1, job number: {} stands in line {before} already", job.id)));
                }
                if !known {
                    trace.unknown_submit.get_or_insert(at + 1);
                }
                if job.processors == 0 {
                    trace.without_processors += 1;
                } else if !known {
                    trace.without_submit += 1;
                } else if job.run == 0 {
                    trace.without_run += 1;
                } else {
                    if extended {
                        job.spec = Some(trace.spec(line, job.processors).map_err(bad)?);
                    }
                    most = most.max(job.processors);
                    trace.jobs.push(job);
                }
            }
        }
        let machine = processors.or(trace.processors);
        if let Some(machine) = machine {
            let before = trace.jobs.len();
            trace.jobs.retain(|job| job.processors <= machine);
            trace.too_large = (before - trace.jobs.len()) as u64;
        }
        trace.processors = Some(machine.unwrap_or(most));
        trace.jobs.sort_by_key(|job| (job.submit, job.id));
        Ok(trace)
    }

    /// Parses the node request of a record; it must be for `processors` processors.
    fn spec(&mut self, line: &str, processors: u32) -> Result<NodeSpec, String> {
        let column = COLUMNS.len() + MORE.len();
        let name = MORE[MORE.len() - 1];
        let word = line.split_ascii_whitespace().nth(column - 1).ok_or_else(|| {
            let there = line.split_ascii_whitespace().count();
            format!(
                "{there} columns where an extended trace has {column}: no {}",
                MORE[there - COLUMNS.len()..].join(", no ")
            )
        })?;
        let bad = |problem: String| format!("column {column}, {name} `{word}`: {problem}");
        let read = node_spec::read(word).map_err(bad)?;
        if read.processors != u64::from(processors) {
            return Err(bad(format!("{} processors, but the job has {processors}", read.processors)));
        }
        let known = self.properties.iter().position(|list| *list == read.properties);
        let properties = known.unwrap_or(self.properties.len());
        if known.is_none() {
            self.properties.push(read.properties);
        }
        Ok(NodeSpec { properties, ..read.spec })
    }

    /// Returns the trace as text in the standard format: a header with the note `about` and the machine's size, then a
    /// line for each job. Unknown numbers are -1.
    pub fn text(&self, about: &str) -> String {
        let mut text = format!("; Version: 2.2\n; Note: {about}\n");
        if let Some(processors) = self.processors {
            let _ = writeln!(text, "; MaxProcs: {processors}");
        }
        for TraceJob { id, submit, run, estimate, processors, .. } in &self.jobs {
            let unknown = "-1 -1 -1 -1 -1 -1 -1 -1 -1";
            let _ = writeln!(text, "{id} {submit} -1 {run} {processors} -1 -1 {processors} {estimate} {unknown}");
        }
        text
    }

    /// Parses a line of the header such as `MaxProcs: 100`.
    fn head(&mut self, comment: &str) -> Result<(), String> {
        let Some((name, value)) = comment.split_once(':') else { return Ok(()) };
        let name = name.trim();
        if !matches!(name, "MaxProcs" | "MaxNodes") {
            return Ok(());
        }
        let number = value.split_whitespace().next().unwrap_or_default();
        let number: i64 = number.parse().map_err(|_| format!("{name}: `{number}` is not a number"))?;
        if let Some(number) = u32::try_from(number).ok().filter(|number| *number > 0)
            && (name == "MaxProcs" || self.processors.is_none())
        {
            self.processors = Some(number);
        }
        Ok(())
    }
}

/// Parses a record of 18 numbers; further columns are ignored. Returns the job, and whether its submit time is known.
fn record(line: &str) -> Result<(TraceJob, bool), String> {
    let mut numbers = [-1; COLUMNS.len()];
    let mut words = line.split_ascii_whitespace();
    for (at, name) in COLUMNS.iter().enumerate() {
        let word = words.next().ok_or_else(|| format!("{at} columns where there should be {}", COLUMNS.len()))?;
        numbers[at] = number(word).ok_or_else(|| format!("column {}, {name}: `{word}` is not a number", at + 1))?;
    }
    let [id, submit, wait, mut run, allocated, _, _, asked, time, ..] = numbers;
    if run < -1 && run.checked_neg() == submit.checked_add(wait.max(0)) {
        // A run time from the start to an end at 0 means that the end is unknown, as in two records of MetaCentrum's
        // trace of 2013.
        run = -1;
        numbers[3] = run;
    }
    let known = submit != -1;
    let submit = if known { submit } else { 0 };
    let submit =
        u64::try_from(submit).map_err(|_| format!("column 2, submit time: {submit} is before the trace's start"))?;
    if let Some(at) = USED.into_iter().find(|at| numbers[*at] < -1) {
        return Err(format!("column {}, {}: {} is below -1, which says unknown", at + 1, COLUMNS[at], numbers[at]));
    }
    let run = run.max(0) as u64;
    let processors = if asked > 0 { asked } else { allocated.max(0) };
    let processors = u32::try_from(processors).map_err(|_| format!("{processors} processors are too many"))?;
    let estimate = run.max(time.max(0) as u64);
    Ok((TraceJob { id, submit, run, estimate, processors, spec: None }, known))
}

/// Parses a number. Its fraction is cut off; columns with averages may have one.
fn number(word: &str) -> Option<i64> {
    let whole = match word.split_once('.') {
        Some((whole, fraction)) if fraction.bytes().all(|digit| digit.is_ascii_digit()) => whole,
        Some(_) => return None,
        None => word,
    };
    whole.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Trace, TraceJob};

    const TRACE: &str = "; Version: 2.2\n; MaxNodes: 4\n; MaxProcs: 8\n;\n\
        2 10 -1 60 4 59.5 -1 -1 30 -1 1 1 1 -1 1 -1 -1 -1\n\
        1 10 5 60 4 -1 -1 6 90 -1 1 1 1 -1 1 -1 -1 -1\n\n\
        3 0 5 0 4 -1 -1 6 90 -1 5 1 1 -1 1 -1 -1 -1\n\
        4 11 5 7 -1 -1 -1 0 90 -1 5 1 1 -1 1 -1 -1 -1\n\
        5 12 5 7 9 -1 -1 9 90 -1 1 1 1 -1 1 -1 -1 -1 {1,2} extra\n";

    #[test]
    fn what_stands_in_a_trace_is_what_is_replayed() {
        let trace = Trace::read(TRACE, None).unwrap();
        let one = TraceJob { id: 1, submit: 10, run: 60, estimate: 90, processors: 6, spec: None };
        assert_eq!(trace.jobs, [one, TraceJob { id: 2, estimate: 60, processors: 4, ..one }]);
        assert_eq!((trace.without_processors, trace.without_run, trace.too_large), (1, 1, 1));
        assert_eq!(trace.processors, Some(8));
        assert_eq!(Trace::read(TRACE, Some(5)).unwrap().jobs.len(), 1);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let trace = Trace::read(TRACE, None).unwrap();
        let text = trace.text("made up");
        let again = Trace::read(&text, None).unwrap();
        assert_eq!((again.jobs, again.processors), (trace.jobs, Some(8)));
        assert!(text.starts_with("; Version: 2.2\n; Note: made up\n"), "{text}");
    }

    #[test]
    fn a_bad_line_is_named() {
        let read = |line: &str| Trace::read(&format!("{TRACE}{line}\n"), None).unwrap_err().to_string();
        assert_eq!(read("6 1 2 3"), "line 11: 4 columns where there should be 18");
        let wrong = "6 1 2 many 1 1 1 1 1 1 1 1 1 1 1 1 1 1";
        assert_eq!(read(wrong), "line 11: column 4, run time: `many` is not a number");
        let early = "6 -5 2 3 1 1 1 1 1 1 1 1 1 1 1 1 1 1";
        assert_eq!(read(early), "line 11: column 2, submit time: -5 is before the trace's start");
        assert_eq!(read("; MaxProcs: few"), "line 11: MaxProcs: `few` is not a number");
    }

    #[test]
    fn what_is_less_than_unknown_is_refused() {
        let read = |line: &str| Trace::read(&format!("{TRACE}{line}\n"), None).map_err(|bad| bad.to_string());
        let cases = [
            ("-2 20 0 60 4 -1 -1 4 90", "column 1, job number: -2"),
            ("6 20 0 -100 4 -1 -1 4 90", "column 4, run time: -100"),
            ("6 20 0 60 -3 -1 -1 4 90", "column 5, number of allocated processors: -3"),
            ("6 20 0 60 4 -1 -1 -3 90", "column 8, requested number of processors: -3"),
            ("6 20 0 60 4 -1 -1 4 -100", "column 9, requested time: -100"),
        ];
        let rest = "-1 1 1 1 -1 1 -1 -1 -1";
        for (record, said) in cases {
            let refused = read(&format!("{record} {rest}")).unwrap_err();
            assert_eq!(refused, format!("line 11: {said} is below -1, which says unknown"));
        }
        let unknown = read(&format!("-1 20 -1 -1 -1 -1 -1 -1 -1 {rest}\n-1 20 -1 60 4 -2 -2 -1 -1 {rest}")).unwrap();
        assert_eq!((unknown.jobs.len(), unknown.without_processors), (3, 2));
    }

    #[test]
    fn an_extended_trace_says_what_jobs_ask_of_nodes() {
        let line = |id: u32, processors: u32, more: &str| {
            format!("{id} 0 -1 60 {processors} -1 -1 {processors} 90 -1 1 1 1 -1 1 -1 -1 -1 {more}\n")
        };
        let read = |text: String| Trace::read_extended(&text, None).map_err(|bad| bad.to_string());
        let text = [
            line(1, 8, "{1,1} q_1d 2:ppn=4:brno:x86_64#excl"),
            line(2, 1, "{1} q_1d 1:ppn=1:x86_64:brno"),
            line(3, 1, "{1} q_2h 1"),
            // The node request of a job without processors is not read.
            line(4, 0, ""),
        ];
        let trace = read(text.concat()).unwrap();
        assert_eq!(trace.properties, [vec!["brno".to_owned(), "x86_64".into()], Vec::new()]);
        let spec = |at: usize| trace.jobs[at].spec.unwrap();
        assert_eq!((spec(0).nodes, spec(0).per_node, spec(0).exclusive, spec(0).properties), (2, Some(4), true, 0));
        assert_eq!((spec(1).properties, spec(2).properties, trace.without_processors), (0, 1, 1));
        let plain = Trace::read(&text.concat(), None).unwrap();
        assert!(plain.jobs.iter().all(|job| job.spec.is_none()), "the standard format has 18 columns");
        let wrong = |more: &str| read(line(1, 8, "{1} q 8") + &line(2, 4, more)).unwrap_err();
        assert_eq!(wrong("{1} q_1d"), "line 2: 20 columns where an extended trace has 21: no node spec");
        assert_eq!(
            wrong("{1} q 2:ppn=two"),
            "line 2: column 21, node spec `2:ppn=two`: ppn: `two` is not a number of processors"
        );
        assert_eq!(wrong("{1} q 2:ppn=4"), "line 2: column 21, node spec `2:ppn=4`: 8 processors, but the job has 4");
    }

    #[test]
    fn a_job_number_stands_once() {
        let rest = "-1 1 1 1 -1 1 -1 -1 -1";
        // Job 3 never ran and is omitted; its number counts as used all the same.
        let twice = Trace::read(&format!("{TRACE}3 20 0 60 4 -1 -1 4 90 {rest}\n"), None).unwrap_err().to_string();
        assert_eq!(twice, "line 11: column 1, job number: 3 stands in line 8 already");
    }

    // Finding C of faults.md: line 325 of LLNL-Thunder-2007 is a job of which everything is unknown.
    #[test]
    fn c_a_job_of_which_all_is_unknown_is_left_out_and_counted() {
        let unknown = ["-1"; 17].join(" ");
        let trace = Trace::read(&format!("{TRACE}325 {unknown}\n"), None).unwrap();
        assert_eq!((trace.without_submit, trace.without_processors, trace.jobs.len()), (0, 2, 2));
        assert_eq!(trace.unknown_submit, Some(11));
        let rest = "-1 -1 1 1 -1 1 -1 -1 -1";
        let extended =
            Trace::read_extended(&format!("325 {unknown}\n326 -1 -1 60 4 -1 -1 4 90 {rest}\n"), None).unwrap();
        assert_eq!((extended.without_submit, extended.without_processors, extended.jobs.len()), (1, 1, 0));
    }

    #[test]
    fn an_end_that_nobody_saw_is_unknown() {
        let rest = "-1 1 1 1 -1 1 -1 -1 -1";
        let read = |run: i64| Trace::read(&format!("{TRACE}6 1000 1 {run} 4 -1 -1 4 90 {rest}\n"), None);
        assert_eq!(read(-1001).unwrap().without_run, 2);
        assert!(read(-1000).is_err() && read(-1002).is_err());
    }
}
