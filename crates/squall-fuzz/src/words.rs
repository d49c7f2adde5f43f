//! Texts that users write: host lists, times, options, formats, scripts, JSON.

use std::ffi::OsString;
use std::rc::Rc;

use jiff::Zoned;
use serde_json::Value;
use squall_model::hostlist::{self, HostList};
use squall_model::job::frequency::Frequency;
use squall_model::job::{gpus, network};
use squall_model::step::cpu_bind::CpuBind;
use squall_model::time::Time;
use squall_model::{duration, gres, license, plain};
use squall_sched::Constraint;
use squall_text::columns::{accounting, groups, jobs};
use squall_text::format::clock::Clock;
use squall_text::format::job::{JobRow, rows};
use squall_text::format::layout::Layout;
use squall_text::format::sheet::{Sheet, Style};
use squall_text::format::when::looking_back;
use squall_text::options::submit::SubmitOptions;
use squall_text::options::values::{array, checked, dependency, jobs as job_ids, node_state, number, signal, when};
use squall_text::options::{Source, Tool, collect, counts};
use squall_text::rest::policy::Ledger;
use squall_text::rest::{change, job, partition, paths, record};
use squall_text::script::{Script, translate};
use squall_text::shapes::AnswerKind;
use squall_text::verbs::accounts::Draft;

/// Host lists of at most this many names are made in full.
const NAMES_MAX: usize = 1 << 12;

pub(crate) fn host_list(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(names) = hostlist::expand_within(&text, NAMES_MAX) else { return };
    let short = hostlist::compress_in_order(&names);
    assert_eq!(hostlist::expand(&short).as_ref(), Ok(&names), "{short}");
    let list = HostList::try_from(short).expect("its own text is one");
    assert_eq!((list.len(), list.names()), (names.len(), names.clone()));
    if let Some(first) = names.first() {
        assert!(hostlist::contains(&text, first), "{first}");
    }
    hostlist::compress(names);
}

pub(crate) fn times(bytes: &[u8]) {
    let text = &*String::from_utf8_lossy(bytes);
    let now: Zoned = "2026-11-20T14:30:00+00:00[UTC]".parse().unwrap();
    if let Ok(limit) = duration::parse_limit(text) {
        let shown = duration::format_limit(limit);
        assert_eq!(duration::parse_limit(&shown), Ok(limit.map(duration::whole_minutes)), "{shown}");
    }
    if let Ok(memory) = duration::parse_memory_mb(text) {
        duration::format_memory_mb(memory);
    }
    if let Some(at) = when::when(text, &now) {
        when::model_time(at.timestamp());
    }
    looking_back(text, &now);
    drop((array::array(text), dependency::dependency(text), signal::signal_spec(text), number::node_count(text)));
    drop((number::count("n", text, true), job_ids::job_ref(text), node_state::admin(text), checked::sampling(text)));
    drop((Frequency::parse(text), checked::gpu_frequency(text), checked::memory_binding(text)));
    drop((gres::parse(text), license::parse(text), CpuBind::parse(text), gpus::GpuCount::parse(text)));
    drop((network::geometry(text), network::grid(text), network::stencil(text), network::groups(text)));
    plain::plain(text);
}

pub(crate) fn constraint(bytes: &[u8]) {
    let text = &*String::from_utf8_lossy(bytes);
    if let Some(constraint) = Constraint::parse(text) {
        let features: Vec<String> = constraint.features().map(str::to_owned).collect();
        let _ = (constraint.holds(&features), constraint.holds(&[]), constraint.is_of_each());
    }
}

thread_local! {
    static ROWS: Vec<JobRow> = {
        let clock = Rc::new(Clock::here(Time::from_secs(1_800_000_000)));
        rows(crate::machines::page(), &clock, &"c".into(), None).collect()
    };
}

/// Output formats: `-o`, `-O`, `--format`. The first byte chooses.
pub(crate) fn formats(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let text = &*String::from_utf8_lossy(bytes);
    // Widths up to 65,536 are allowed, so that many columns are only slow.
    if text.len() > 256 {
        return;
    }
    let said = ROWS.with(|rows| match kind % 5 {
        0 => Layout::short(text, jobs::FIELDS).lines(true, rows),
        1 => Layout::long(text, jobs::FIELDS).lines(true, rows),
        2 => Layout::short(text, groups::FIELDS).lines(true, &[]),
        3 => Layout::long(text, groups::FIELDS).lines(true, &[]),
        _ => match Sheet::parse(text, accounting::FIELDS) {
            Ok(sheet) => sheet.lines(true, &Style::Table, &[]),
            Err(_) => String::new(),
        },
    });
    let control = |c: char| c.is_control() && c != '\n';
    assert!(!said.contains(control) || text.contains(control), "{said:?}");
}

fn asked(tool: Tool, words: &[OsString]) {
    let Ok(lines) = collect::lines(tool, words) else { return };
    for line in &lines {
        let mut asked = SubmitOptions::new(tool);
        if collect::apply_line(&mut asked, tool, line).is_ok() {
            collect::settle_hint(&mut asked);
            drop((collect::verify(&asked), counts::complete(&mut asked)));
        }
    }
}

/// Command lines, a line for each word; the first byte chooses the command.
pub(crate) fn options(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let tool = [Tool::Sbatch, Tool::Srun, Tool::Salloc][usize::from(*kind) % 3];
    let text = String::from_utf8_lossy(bytes);
    asked(tool, &text.split('\n').map(OsString::from).collect::<Vec<_>>());
}

/// Batch scripts, with options of Slurm, LSF and PBS.
pub(crate) fn script(bytes: &[u8]) {
    let script = Script { path: None, body: bytes.to_vec() };
    script.has_old_marks();
    for directive in script.directives().unwrap_or_default() {
        let words: Vec<OsString> = directive.words.iter().map(OsString::from).collect();
        let Ok(line) = collect::line(Tool::Sbatch, &words) else { continue };
        let mut asked = SubmitOptions::new(Tool::Sbatch);
        for found in &line.options {
            drop(collect::apply_option(&mut asked, Tool::Sbatch, found, &Source::Script(directive.line)));
        }
        drop((collect::verify(&asked), counts::complete(&mut asked)));
    }
    drop(translate::apply(&mut SubmitOptions::new(Tool::Sbatch), &script));
}

/// JSON bodies of all operations.
pub(crate) fn rest_body(bytes: &[u8]) {
    let Ok(given) = serde_json::from_slice::<Value>(bytes) else { return };
    let caller = job::Caller { user: "ann", uid: 1000, gid: 1000, home: "/", cluster: "c", host: "h" };
    drop((job::submit(&given, &caller), job::allocate(&given, &caller)));
    drop((change::job(&given), change::node(&given), change::reservation(&given), change::kill(&given)));
    drop((change::requeue(&given), change::new_nodes(&given), record::values(&given), record::jobs(&given)));
    drop((change::hosts(&given, true), change::hosts(&given, false)));
    for order in partition::partitions(&given, 9).map(|read| read.value).unwrap_or_default() {
        drop(order.request(None));
    }
    let mut draft = Draft::default();
    for kind in AnswerKind::RECORDS {
        drop(Ledger::new(&mut draft, "c").enter(kind, &given));
    }
    drop(Ledger::new(&mut draft, "c").add_users(&given));
    drop(Ledger::new(&mut draft, "c").add_accounts(&given));
    draft.finish();
}

/// Paths and queries of requests.
pub(crate) fn rest_path(bytes: &[u8]) {
    let text = &*String::from_utf8_lossy(bytes);
    for method in [paths::Method::Get, paths::Method::Post, paths::Method::Delete] {
        paths::find(method, text);
    }
    drop((change::job_id(text), change::signal(text, &[])));
}
