//! sprio: lists the factors of pending jobs' priorities.

use std::ffi::OsString;
use std::process::ExitCode;

use squall_model::policy::Real;
use squall_model::wire::client::{Answer, JobSelection, Request};
use squall_model::wire::priority_info::{Factors, JobPriority, Priorities};

use crate::command::listing::call::{Call, FROM_STANDBY, Fail, live};
use crate::command::listing::select::{lines, names};
use squall_client::unexpected;
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{Options, Page};

const OPTIONS: &[Flag] = &[
    flag("cluster", 'M', Arg::Needed("cluster_name"), "only the cluster here is known"),
    flag("clusters", 'M', Arg::Needed("names"), ""),
    flag("federation", '\0', Arg::None, "").hint("no federation exists"),
    FROM_STANDBY,
    flag("format", 'o', Arg::Needed("format"), "format specification"),
    flag("helpformat", '\0', Arg::None, "list the fields that --format may have"),
    flag("jobs", 'j', Arg::Needed("jobs"), "comma separated list of jobs to view, default is all"),
    flag("local", '\0', Arg::None, "").hint("only this cluster is known"),
    flag("long", 'l', Arg::None, "long report"),
    flag("noheader", 'h', Arg::None, "no headers on output"),
    flag("norm", 'n', Arg::None, "display normalized values"),
    flag("partition", 'p', Arg::Needed("partition_name"), "comma separated list of partitions to view, default is all"),
    flag("sibling", '\0', Arg::None, "").hint("no federation exists"),
    flag("sort", 'S', Arg::Needed("fields"), "comma separated list of fields to sort on"),
    flag("users", 'u', Arg::Needed("users"), "comma separated list of users to view"),
    flag("verbose", 'v', Arg::None, "verbosity level"),
    flag("weights", 'w', Arg::None, "show the weights for each priority factor"),
];

/// What `sprio` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "sprio",
    about: "show what priorities are made of",
    synopsis: &["[OPTIONS]"],
    options: Options::Own(OPTIONS),
    notes: "",
};

const WHAT: &str = "sprio: error: Couldn't get priority factors from controller";

/// Runs sprio.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("sprio", args, sprio)
}

/// A column of the output: its letter, its title, and its text for a job.
struct Field {
    letter: char,
    title: &'static str,
    get: fn(&JobPriority, &Factors) -> String,
    /// Returns the column's text in the line that shows the weights.
    weight: fn(&Factors) -> String,
}

fn none(_: &Factors) -> String {
    String::new()
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn norm(value: Real) -> String {
    format!("{:.7}", value.0)
}

macro_rules! factor {
    ($upper:literal, $lower:literal, $title:literal, $factor:ident) => {
        [
            Field {
                letter: $upper,
                title: $title,
                get: |job, weights| whole(job.factors.$factor.0 * weights.$factor.0),
                weight: |weights| whole(weights.$factor.0),
            },
            Field {
                letter: $lower,
                title: $title,
                get: |job, _| norm(job.factors.$factor),
                weight: |weights| whole(weights.$factor.0),
            },
        ]
    };
}

static PLAIN: [Field; 9] = [
    Field { letter: 'i', title: "JOBID", get: |job, _| name(job), weight: |_| "Weights".to_owned() },
    Field { letter: 'r', title: "PARTITION", get: |job, _| job.partition.clone(), weight: none },
    Field { letter: 'u', title: "USER", get: |job, _| job.user.clone(), weight: none },
    Field { letter: 'o', title: "ACCOUNT", get: |job, _| job.account.clone(), weight: none },
    Field { letter: 'n', title: "QOSNAME", get: |job, _| job.qos.clone(), weight: none },
    Field { letter: 'Y', title: "PRIORITY", get: |job, _| job.priority.to_string(), weight: none },
    Field {
        letter: 'y',
        title: "PRIORITY",
        get: |job, _| format!("{:.14}", f64::from(job.priority) / f64::from(u32::MAX)),
        weight: none,
    },
    Field { letter: 'S', title: "SITE", get: |_, _| "0".to_owned(), weight: |_| "1".to_owned() },
    Field { letter: 'N', title: "NICE", get: |job, _| job.nice.to_string(), weight: none },
];

static FACTORS: [[Field; 2]; 6] = [
    factor!('A', 'a', "AGE", age),
    factor!('B', 'b', "ASSOC", assoc),
    factor!('F', 'f', "FAIRSHARE", fairshare),
    factor!('J', 'j', "JOBSIZE", size),
    factor!('P', 'p', "PARTITION", partition),
    factor!('Q', 'q', "QOS", qos),
];

static REST: [Field; 3] = [
    Field { letter: 's', title: "SITE", get: |_, _| "0".to_owned(), weight: |_| "1".to_owned() },
    Field { letter: 'c', title: "CLUSTER", get: |_, _| String::new(), weight: none },
    Field { letter: 'T', title: "TRES", get: |job, _| job.tres.clone().unwrap_or_default(), weight: none },
];

fn field(letter: char) -> Option<&'static Field> {
    let letter = if letter == 't' { 'T' } else { letter };
    PLAIN.iter().chain(FACTORS.iter().flatten()).chain(&REST).find(|field| field.letter == letter)
}

fn name(job: &JobPriority) -> String {
    job.task.map_or_else(|| job.id.to_string(), |task| format!("{}_{}", task.array, task.index))
}

/// Runs sprio with the command-line arguments `args`. `call` has the controller, the environment and the output.
pub(crate) fn sprio(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    if given.has("verbose") {
        call.print(&given.in_force(OPTIONS));
    }
    if given.has("helpformat") {
        let all = PLAIN.iter().chain(FACTORS.iter().flatten()).chain(&REST);
        let text = lines(all.map(|field| format!("%{}  {}", field.letter, field.title)));
        call.print(&text);
        return Ok(());
    }
    call.check_cluster(given.last("clusters").or(given.last("cluster")), false, WHAT)?;
    let mut jobs = JobSelection::default();
    if let Some(list) = given.last("jobs").filter(|list| !list.is_empty()) {
        jobs.ids = call.targets(list)?.into_iter().map(|target| target.job).collect();
    }
    if let Some(list) = given.last("users") {
        jobs.users = call.user_ids(list)?;
    }
    let wanted = given.last("partition").map(names).unwrap_or_default();
    let priorities = match call.controller.ask(&Request::Priorities { jobs }) {
        Ok(Answer::Priorities(priorities)) => *priorities,
        Ok(_) => return call.failed(WHAT, &unexpected()),
        Err(e) => return call.failed(WHAT, &e),
    };
    let format = match given.last("format") {
        Some(format) => format.to_owned(),
        None => default_format(&given, &priorities.weights),
    };
    let Priorities { weights, mut jobs, .. } = priorities;
    jobs.retain(|job| wanted.is_empty() || wanted.contains(&job.partition));
    if jobs.is_empty() && given.has("jobs") {
        call.print("Unable to find jobs matching user/id(s) specified\n");
        return Ok(());
    }
    sort(&mut jobs, given.last("sort").unwrap_or("i,-Y"), &weights);
    let pieces = match pieces(&format) {
        Ok(pieces) => pieces,
        Err(letter) => return call.fail(&format!("Invalid job format specification: {letter}")),
    };
    let mut text = String::new();
    if !given.has("noheader") {
        line(&mut text, &pieces, |field| field.title.to_owned());
    }
    if given.has("weights") {
        line(&mut text, &pieces, |field| (field.weight)(&weights));
    } else {
        for job in &jobs {
            line(&mut text, &pieces, |field| (field.get)(job, &weights));
        }
    }
    call.print(&text);
    Ok(())
}

/// Returns the default format, as in Slurm: columns of factors with a weight, or all with `-l`.
fn default_format(given: &Arguments, weights: &Factors) -> String {
    let norm = given.has("norm");
    let factors = [
        ('A', 'a', weights.age),
        ('B', 'b', weights.assoc),
        ('F', 'f', weights.fairshare),
        ('J', 'j', weights.size),
        ('P', 'p', weights.partition),
        ('Q', 'q', weights.qos),
    ];
    let long = given.has("long");
    let (priority, site) = if norm { ('y', 's') } else { ('Y', 'S') };
    let user = match (long, given.has("users")) {
        (true, _) => " %.8u %.8o",
        (false, true) => " %.8u",
        (false, false) => "",
    };
    let mut format = format!("%.15i %9r{user} %.10{priority} %.10{site}");
    for (upper, lower, weight) in factors {
        if long && upper == 'Q' {
            format.push_str(" %.10n");
        }
        if long || weight.0 > 0.0 {
            format.push_str(" %.10");
            format.push(if norm { lower } else { upper });
        }
    }
    if long {
        format.push_str(if norm { " %.20T" } else { " %.11N %.20T" });
    } else if weights.tres.0 > 0.0 {
        format.push_str(" %.20T");
    }
    format
}

/// A part of a format: fixed text, or a column with its width and alignment.
enum Piece {
    Text(String),
    Column(&'static Field, usize, bool),
}

/// Parses a format such as `%.15i %9r`: width, with a point for right alignment; without a width the text is not
/// padded. The error is an unknown letter.
fn pieces(format: &str) -> Result<Vec<Piece>, char> {
    const WIDTH_MAX: usize = 4096;
    let (mut pieces, mut chars) = (Vec::new(), format.chars().peekable());
    let mut text = String::new();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let right = chars.next_if_eq(&'.').is_some();
        let mut width = 0_usize;
        while let Some(digit) = chars.next_if(char::is_ascii_digit) {
            width = (width * 10 + digit.to_digit(10).unwrap_or(0) as usize).min(WIDTH_MAX);
        }
        let letter = chars.next().unwrap_or('%');
        let field = field(letter).ok_or(letter)?;
        pieces.push(Piece::Text(std::mem::take(&mut text)));
        pieces.push(Piece::Column(field, width, right));
    }
    pieces.push(Piece::Text(text));
    Ok(pieces)
}

fn line(out: &mut String, pieces: &[Piece], get: impl Fn(&Field) -> String) {
    for piece in pieces {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Column(field, width, right) => {
                let most = if *width == 0 { usize::MAX } else { *width };
                let text: String = get(field).chars().take(most).collect();
                let blanks = " ".repeat(width.saturating_sub(text.chars().count()));
                let (before, after) = if *right { (blanks.as_str(), "") } else { ("", blanks.as_str()) };
                out.push_str(before);
                out.push_str(&text);
                out.push_str(after);
            }
        }
    }
    out.push('\n');
}

/// Sorts by a list of letters such as `i,-Y`: the first is the most significant, `-` means descending.
fn sort(jobs: &mut [JobPriority], letters: &str, weights: &Factors) {
    for word in letters.split(',').rev() {
        let (falls, letter) = match word.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, word.trim_start_matches('+')),
        };
        let Some(field) = letter.chars().next().and_then(field) else { continue };
        jobs.sort_by(|a, b| {
            let (x, y) = ((field.get)(a, weights), (field.get)(b, weights));
            let order = match (field.letter, x.parse::<f64>(), y.parse::<f64>()) {
                ('i', ..) => a.id.cmp(&b.id),
                (_, Ok(x), Ok(y)) => x.total_cmp(&y),
                _ => x.cmp(&y),
            };
            if falls { order.reverse() } else { order }
        });
    }
}

#[cfg(test)]
mod tests {
    use squall_model::id::JobId;
    use squall_model::policy::Real;
    use squall_model::wire::client::Answer;
    use squall_model::wire::priority_info::{Factors, JobPriority, Priorities};

    use super::sprio;
    use crate::command::listing::fake::{CommandResult, fake, run_with};

    fn seen(args: &[&str]) -> CommandResult {
        let weights = Factors { age: Real(1000.0), fairshare: Real(5000.0), ..Factors::default() };
        seen_with(weights, args)
    }

    fn seen_with(weights: Factors, args: &[&str]) -> CommandResult {
        let mut fake = fake();
        let job = |id: u32, user: &str, age: f64, priority: u32| JobPriority {
            tres: None,
            id: JobId(id),
            task: None,
            user: user.into(),
            uid: 1000,
            account: "phys".into(),
            qos: "normal".into(),
            partition: "debug".into(),
            priority,
            fixed: false,
            nice: 0,
            factors: Factors { age: Real(age), fairshare: Real(0.5), ..Factors::default() },
        };
        let jobs = vec![job(12, "bob", 0.25, 2750), job(11, "ann", 0.5, 3000)];
        fake.answers.push(Answer::Priorities(Box::new(Priorities { weights, jobs, tres: None })));
        run_with(&mut fake, "sprio", sprio, args, &[])
    }

    #[test]
    fn columns_are_those_that_have_weight() {
        let seen = seen(&[]);
        assert_eq!(
            seen.out,
            "          JOBID PARTITION   PRIORITY       SITE        AGE  FAIRSHARE\n\
             \u{20}            11 debug           3000          0        500       2500\n\
             \u{20}            12 debug           2750          0        250       2500\n"
        );
    }

    #[test]
    fn weights_norms_formats_and_order() {
        let weights = seen(&["-w"]);
        assert!(
            weights.out.ends_with("        Weights                               1       1000       5000\n"),
            "{}",
            weights.out
        );
        let chosen = seen(&["-h", "-o", "%.4i|%5u|%.3A", "-S", "-Y"]);
        assert_eq!(chosen.out, "  11|ann  |500\n  12|bob  |250\n");
        let plain = seen(&["-o", "%i|%u|%Y|%r|%F", "-j", "12"]);
        assert_eq!(
            plain.out,
            "JOBID|USER|PRIORITY|PARTITION|FAIRSHARE\n11|ann|3000|debug|2500\n12|bob|2750|debug|2500\n"
        );
        let norms = seen(&["-n", "-h"]).out;
        assert!(norms.contains("0.5000000  0.5000000"), "{norms}");
        assert!(seen(&["-u", "root"]).out.contains("USER   PRIORITY"));
        assert!(seen(&["-l"]).out.starts_with(
            "          JOBID PARTITION     USER  ACCOUNT   PRIORITY       SITE        AGE      ASSOC  FAIRSHARE    JOBSIZE  \
             PARTITION    QOSNAME        QOS        NICE                 TRES\n"
        ));
        assert_eq!(seen(&["-j", "7", "-p", "other"]).out, "Unable to find jobs matching user/id(s) specified\n");
        assert_eq!(seen(&["-o", "%Z"]).code, 1);
        assert_eq!(seen(&["-h", "-p", "other"]).out, "");
    }

    #[test]
    fn d9_long_with_one_order_shows_factors_without_weight() {
        let seen = |args: &[&str]| seen_with(Factors::default(), args);
        let long = seen(&["-l", "-h", "-j", "12"]);
        let line = "             11 debug          ann     phys       3000          0          0          0          0          0";
        assert_eq!(long.code, 0, "{}", long.err);
        assert!(long.out.starts_with(line), "{}", long.out);
        assert_eq!(seen(&["-h"]).out.lines().next(), Some("             11 debug           3000          0"));
    }
}
