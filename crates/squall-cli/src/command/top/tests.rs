//! Tests of the screens of a top, and of what its keys do.

use jiff::tz::TimeZone;
use squall_model::event::NodeAdmin;
use squall_model::id::JobId;
use squall_model::job::PendingReason;
use squall_model::set::IndexSet;
use squall_model::time::Time;
use squall_model::wire::client::{JobName, JobRef, JobSelection, Request, Tail};
use squall_model::wire::info::Why;

use super::app::{App, Effect, Input, View};
use super::keys::KeyCode;
use super::screen::Screen;
use super::shell::Pace;
use super::{Data, draw, top};
use crate::command::listing::fake::{NOW, check, fake, run_with};
use squall_text::format::clock::{Clock, Style};
use squall_text::report::lately::Lately;

/// Returns a top of the fake cluster, on a screen of this height.
fn app(view: View, height: usize) -> App {
    let clock = Clock { zone: TimeZone::UTC, style: Style::Standard, now: Time::from_secs(NOW) };
    let mut app = App::new(view, 1000, clock);
    app.step(Input::Size(height));
    app.step(Input::Read(Box::new(data())));
    app
}

fn data() -> Data {
    let mut fake = fake();
    fake.page.jobs.retain(|job| job.id.0 < 31);
    fake.nodes[0].gres = "gpu:a100:4".into();
    fake.nodes[0].gres_used = "gpu:a100:3(IDX:0-2)".into();
    Data {
        cluster: "squall".into(),
        controller: Some(("head".into(), "0.1.0".into())),
        trouble: None,
        now: Time::from_secs(NOW),
        jobs: fake.page,
        nodes: fake.nodes,
        operator: true,
    }
}

/// Draws a top and returns the screen.
fn drawn(app: &App, width: usize, height: usize) -> String {
    let screen = draw::screen(app, width, height);
    (0..height).map(|y| ["\"", &screen.line(y), "\"\n"].concat()).collect()
}

fn press(app: &mut App, keys: &str) -> Option<Effect> {
    keys.chars().fold(None, |_, key| {
        let key = match key {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            key => KeyCode::Char(key),
        };
        app.step(Input::Key(key))
    })
}

fn deed(effect: Option<Effect>) -> Request {
    let Some(Effect::Do(deed)) = effect else { panic!("{effect:?}") };
    *deed.request
}

#[test]
fn the_views_on_screens_of_all_sizes() {
    for (width, height) in [(80, 24), (160, 50), (40, 12)] {
        let mut text = String::new();
        for (keys, what) in
            [("1", "queue"), ("2", "nodes"), ("3", "mine"), ("\n", "details"), ("2\n", "node"), ("?", "help")]
        {
            let mut app = app(View::Queue, height);
            press(&mut app, keys);
            text.extend([what, "\n", &drawn(&app, width, height), "\n"]);
        }
        check(&format!("top-{width}x{height}"), &text);
    }
}

#[test]
fn no_screen_is_too_small() {
    for keys in ["1", "2", "3", "\n", "?", "/x", "c"] {
        for (width, height) in (1..30).flat_map(|width| (1..9).map(move |height| (width, height))) {
            let mut app = app(View::Queue, height);
            press(&mut app, keys);
            drawn(&app, width, height);
            draw::text(&app, width, height);
        }
    }
}

#[test]
fn keys_act_after_a_question() {
    let mut app = app(View::Queue, 24);
    assert_eq!(press(&mut app, "c"), None);
    assert!(drawn(&app, 80, 24).contains("cancel job 10 (a-long-name of ann)? y/n"));
    assert_eq!(press(&mut app, "n"), None);
    let jobs = |job| JobSelection { ids: vec![job], ..JobSelection::default() };
    let asked = deed(press(&mut app, "cy"));
    let job = JobRef::Job(JobId(10));
    assert_eq!(asked, Request::Cancel { jobs: jobs(job), signal: None, step: None, verbose: true });
    // The pending tasks of an array, and not those that run.
    let held = |app: &mut App, keys: &str| {
        let asked = deed(press(app, keys));
        let Request::Hold { jobs: held, user: false } = asked else { panic!("{asked:?}") };
        held
    };
    assert_eq!(held(&mut app, "gjhy").ids, [JobRef::Job(JobId(20))]);
    let held = held(&mut app, "aGhy");
    assert_eq!(held.ids, [JobRef::Tasks(JobId(20), IndexSet::range(2, 9))]);
    let asked = deed(press(&mut app, "2dbad fan\n"));
    let drain = |admin, reason: Option<&str>| Request::UpdateNodes {
        nodes: "n1".into(),
        admin: Some(admin),
        reason: reason.map(str::to_owned),
        change: None,
    };
    assert_eq!(asked, drain(NodeAdmin::Drain, Some("bad fan")));
    assert_eq!(deed(press(&mut app, "uy")), drain(NodeAdmin::Resume, None));
    app.step(Input::Read(Box::new(Data { operator: false, ..data() })));
    press(&mut app, "d");
    assert!(drawn(&app, 80, 24).contains("only operators may"));
    assert_eq!(press(&mut app, "q"), Some(Effect::Quit));
}

#[test]
fn the_selected_row_stays_selected() {
    let mut app = app(View::Queue, 8);
    press(&mut app, "aG");
    let last = app.selected_job().unwrap().array_id();
    let mut less = data();
    less.jobs.jobs.retain(|job| job.id.0 != 10);
    app.step(Input::Read(Box::new(less)));
    assert_eq!(app.selected_job().unwrap().array_id(), last);
    assert!(drawn(&app, 80, 8).contains(&format!(">{last}")));
}

#[test]
fn a_filter_shows_what_matches() {
    let mut app = app(View::Queue, 24);
    press(&mut app, "/WIDE");
    assert_eq!(app.order.len(), 1);
    assert!(drawn(&app, 80, 24).contains("filter: WIDE (1)"));
    press(&mut app, "\n");
    press(&mut app, "\u{1b}");
    assert_eq!((app.order.len(), app.filter.as_str()), (3, ""));
    press(&mut app, "2/drained\n");
    assert_eq!(app.selected_node().unwrap().name, "n4");
}

#[test]
fn an_array_is_one_line_until_it_is_unfolded() {
    let mut app = app(View::Queue, 24);
    let folded = app.order.len();
    let array = app.order.iter().position(|at| app.line(*at).is_some_and(|line| line.whole.is_some()));
    assert!(array.is_some(), "{}", drawn(&app, 120, 24));
    press(&mut app, &["g", &"j".repeat(array.unwrap_or(0)), "\n"].concat());
    let mut text = drawn(&app, 120, 24);
    press(&mut app, "q");
    text += &drawn(&app, 120, 24);
    press(&mut app, "a");
    assert!(app.order.len() > folded);
    text += &drawn(&app, 120, 24);
    check("top-array", &text);
}

#[test]
fn what_jobs_use_is_asked_for_seldom_and_only_where_it_is_shown() {
    let mut app = app(View::Mine, 24);
    press(&mut app, "a");
    assert!(app.measure_due(40).is_empty(), "there is no room for it");
    let due = app.measure_due(120);
    assert!(!due.is_empty());
    assert!(app.measure_due(120).is_empty());
    let (busy, idle) = (due[0], due[due.len() - 1]);
    app.step(Input::Used(busy, Some(Lately { cpus: 2.9, memory_kb: 3 << 20, idle_s: 0 })));
    app.step(Input::Used(idle, Some(Lately { cpus: 0.0, memory_kb: 3 << 19, idle_s: 1500 })));
    let mut text = drawn(&app, 120, 24);
    press(&mut app, "\n");
    text += &drawn(&app, 120, 24);
    check("top-use", &text);
    press(&mut app, "q");
    app.step(Input::Tick(Time::from_secs(NOW + 61)));
    assert_eq!(app.measure_due(120), due);
    // What has ended is forgotten.
    let none = Data { jobs: <_>::default(), ..data() };
    app.step(Input::Read(Box::new(none)));
    app.step(Input::Read(Box::new(data())));
    assert_eq!(app.measure_due(120), due);
}

#[test]
fn the_end_of_an_output_follows_until_it_is_scrolled_back() {
    let mut app = app(View::Queue, 12);
    let Some(Effect::Output(title, job, _)) = press(&mut app, "o") else { panic!("{}", drawn(&app, 80, 12)) };
    let tail = |lines: u32| {
        let all: Vec<String> = (1..=lines).map(|n| format!("line {n}\u{1b}[2J\n")).collect();
        let text = all.concat();
        Tail { path: "out".into(), size: text.len() as u64, bytes: text.into_bytes().into(), problem: None }
    };
    let show = |app: &mut App, lines| app.step(Input::Output(title.clone(), job, Box::new(tail(lines))));
    show(&mut app, 30);
    assert!(drawn(&app, 80, 12).contains("line 30") && !drawn(&app, 80, 12).contains('\u{1b}'));
    assert_eq!(app.step(Input::Tick(Time::from_secs(NOW + 1))), None);
    let again = app.step(Input::Tick(Time::from_secs(NOW + 3)));
    assert!(matches!(again, Some(Effect::Output(..))), "{again:?}");
    show(&mut app, 31);
    assert!(drawn(&app, 80, 12).contains("line 31"));
    press(&mut app, "kk");
    show(&mut app, 32);
    assert!(!drawn(&app, 80, 12).contains("line 32"));
    press(&mut app, "q");
    show(&mut app, 33);
    assert!(app.sheet.is_none(), "an answer that comes late opens nothing");
}

#[test]
fn why_is_asked_and_shown() {
    let mut app = app(View::Queue, 24);
    let Some(Effect::Why(title, request)) = press(&mut app, "Gw") else { panic!() };
    let Request::Why { job } = *request else { panic!("{request:?}") };
    let told = Why {
        job: JobName { id: job, task: None },
        reasons: vec![PendingReason::Dependency],
        dependency: "afterok:10(unfulfilled)".into(),
        ..Why::default()
    };
    app.step(Input::Why(title, Box::new(told)));
    check("top-why", &drawn(&app, 80, 24));
    assert_eq!(press(&mut app, "q"), None);
    assert!(app.sheet.is_none());
}

#[test]
fn a_controller_that_is_away_comes_back() {
    let mut app = app(View::Queue, 24);
    app.step(Input::Away("nobody listens".into()));
    let screen = drawn(&app, 80, 24);
    assert!(screen.contains("does not answer, trying again: nobody listens") && screen.contains("a-long-name"));
    app.step(Input::Read(Box::new(data())));
    let screen = drawn(&app, 80, 24);
    assert!(screen.contains("the controller is back") && screen.contains("controller head"), "{screen}");
}

#[test]
fn a_long_queue_is_drawn_by_the_page() {
    let mut many = data();
    let one = many.jobs.jobs[3].clone();
    many.jobs.jobs.extend((100..100_100).map(|id| {
        let mut job = one.clone();
        job.id = JobId(id);
        job
    }));
    let mut app = app(View::Queue, 24);
    app.step(Input::Read(Box::new(many)));
    for page in 1..=100 {
        press(&mut app, " j");
        assert_eq!(app.at, page * 19);
        let mut asked = Vec::new();
        draw::list(&app, &mut Screen::new(80, 24), 4..23, draw::JOBS, |at| {
            asked.push(at);
            app.line(at)
        });
        assert_eq!(asked, app.order[app.first..][..18]);
    }
}

#[test]
fn lists_are_read_seldom() {
    let begun = std::time::Instant::now();
    let after = |seconds| begun + std::time::Duration::from_millis(seconds);
    let mut pace = Pace::new();
    assert!(pace.wait(begun).is_zero());
    pace.begin();
    pace.end(begun, std::time::Duration::from_millis(10));
    assert_eq!(pace.wait(after(1000)).as_secs(), 29);
    pace.change();
    assert_eq!(pace.wait(after(400)).as_millis(), 600);
    // A list that takes 200 ms is read every 5 seconds.
    pace.end(begun, std::time::Duration::from_millis(200));
    assert_eq!(pace.wait(begun).as_millis(), 4800);
}

#[test]
fn one_screen_as_text() {
    let mut text = String::new();
    for (args, env) in [
        (&["--once"][..], &[][..]),
        (&["--once", "--nodes"], &[("COLUMNS", "120")]),
        (&["--once", "--me"], &[("LINES", "8"), ("COLUMNS", "x")]),
        (&[], &[]),
        (&["--me", "--nodes"], &[]),
        (&["17"], &[]),
    ] {
        let seen = run_with(&mut fake(), "squall top", top, args, env);
        let line = format!("$ squall top {} {env:?}\n{}{}exit {}\n\n", args.join(" "), seen.out, seen.err, seen.code);
        text.push_str(&line);
    }
    check("top-once", &text);
}
