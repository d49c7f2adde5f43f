//! `squall events`: follows what happens in the cluster.

use std::ffi::OsString;
use std::process::ExitCode;

use squall_client::FeedSelection;
use squall_model::wire::client::{JobSelection, Refusal};
use squall_model::wire::feed::{FeedEvent, FeedKind};

use crate::command::listing::call::{Call, Fail, live};
use crate::command::listing::lists::known_users;
use crate::command::listing::select::parts;
use squall_client::ClientError;
use squall_text::format::clock::Clock;
use squall_text::format::event::sentence;
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{Options, Page};
use squall_text::shapes::event;

const OPTIONS: &[Flag] = &[
    flag("count", 'c', Arg::Needed("number"), "end after this many events"),
    flag("from", '\0', Arg::Needed("position"), "begin after the event with this position, as --json has it"),
    flag("job", 'j', Arg::Needed("job(s)"), "only events of these jobs"),
    flag("json", '\0', Arg::None, "one JSON object a line"),
    flag("kind", 'k', Arg::Needed("kind(s)"), "only events of these kinds; `--kind=help` lists them"),
    flag("node", 'w', Arg::Needed("hostlist"), "only events of these nodes and of jobs on them"),
    flag("user", 'u', Arg::Needed("user_name(s)"), "only events of these users' jobs"),
];

/// What `squall events` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall events",
    about: "follow what happens to jobs and nodes",
    synopsis: &["[OPTIONS]"],
    options: Options::Own(OPTIONS),
    notes: "\
Prints a line for each event from now on, until it is interrupted: jobs are submitted, start and end,
nodes go down and come back. If the controller restarts, it resumes by itself. It says on standard
error if events were missed, because it was away too long or did not read fast enough.
Events are on disk before they are shown.
",
};

/// Runs `squall events`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("squall events", args, events)
}

fn events(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    if let Some(operand) = given.operands.first() {
        return call.fail(&format!("unexpected argument `{operand}`; see `squall events --help`"));
    }
    if given.last("kind") == Some("help") {
        let kinds: Vec<&str> = FeedKind::ALL.iter().map(|kind| kind.name()).collect();
        call.print(&(kinds.join("\n") + "\n"));
        return Ok(());
    }
    let wanted = wanted(call, &given)?;
    let mut left = match given.last("count").map(str::parse::<u64>) {
        None => u64::MAX,
        Some(Ok(count)) if count > 0 => count,
        Some(_) => return call.fail("--count needs a number from 1"),
    };
    let clock = call.clock(call.now);
    if let Err(error) = call.controller.follow(wanted) {
        return call.failed("squall events", &error);
    }
    loop {
        let page = match call.controller.next_events() {
            Ok(page) => page,
            Err(ClientError::Refused(Refusal::InvalidNode(name))) => {
                return call.fail(&format!("Invalid node name {name}"));
            }
            Err(error) => return call.failed("squall events", &error),
        };
        if page.missed {
            call.say("squall events: some events were missed here");
        }
        let mut text = String::new();
        for event in page.events.iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
            if given.has("json") {
                text.extend([&event::event(event).to_string(), "\n"]);
            } else {
                text.push_str(&line(call, &clock, event));
            }
            left -= 1;
        }
        call.print(&text);
        if call.closed || left == 0 {
            return Ok(());
        }
    }
}

fn wanted(call: &mut Call<'_>, given: &Arguments) -> Result<FeedSelection, Fail> {
    let mut wanted = FeedSelection::default();
    if let Some(from) = given.last("from") {
        match from.parse() {
            Ok(from) => wanted.from = Some(from),
            Err(problem) => return call.fail(&format!("--from: {problem}")),
        }
    }
    for kind in given.last("kind").map(parts).into_iter().flatten() {
        match kind.parse() {
            Ok(kind) => wanted.kinds.push(kind),
            Err(problem) => return call.fail(&format!("--kind: {problem}; `--kind=help` lists them")),
        }
    }
    let mut jobs = JobSelection { nodes: given.last("node").map(str::to_owned), ..JobSelection::default() };
    if let Some(named) = given.last("job") {
        jobs.ids = call.targets(named)?.into_iter().map(|target| target.job).collect();
    }
    if let Some(users) = given.last("user") {
        jobs.users = known_users(call, users);
    }
    wanted.jobs = jobs;
    Ok(wanted)
}

fn line(call: &Call<'_>, clock: &Clock, event: &FeedEvent) -> String {
    let by = event.by.map(|uid| call.people.user(uid));
    format!("{} {}\n", clock.show(event.time), sentence(event, by.as_deref()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use squall_model::time::Time;
    use squall_model::wire::feed::{FeedEvent, FeedKind, FeedPage, Position};

    use crate::command::listing::fake::{NOW, fake, run, run_with};

    const NAME: &str = "squall events";

    fn page(events: &[FeedKind], missed: bool) -> FeedPage {
        let event = |(at, &kind): (usize, &FeedKind)| {
            Arc::new(FeedEvent {
                at: Position { record: 7, index: at as u32 + 1 },
                time: Time::from_secs(NOW),
                kind,
                job: None,
                step: None,
                nodes: "n1".into(),
                name: String::new(),
                reason: None,
                by: Some(0),
            })
        };
        let next = Position { record: 8, index: 0 };
        FeedPage { events: events.iter().enumerate().map(event).collect(), next, missed }
    }

    #[test]
    fn each_event_is_a_line_and_what_was_missed_is_said() {
        let mut fake = fake();
        fake.feed = vec![page(&[], false), page(&[FeedKind::NodeUp], true), page(&[FeedKind::NodeDown; 3], false)];
        let seen = run_with(&mut fake, NAME, super::events, &["--count", "2", "--node", "n1"], &[]);
        let line = |what| format!("2026-11-21T08:00:00 node n1 {what} (by root)\n");
        assert_eq!((seen.out, seen.code), (line("up") + &line("down"), 0));
        assert_eq!(seen.err, "squall events: some events were missed here\n");
        assert_eq!(fake.follows[0].jobs.nodes.as_deref(), Some("n1"));
        fake.feed = vec![page(&[FeedKind::NodeUp], false)];
        let seen = run_with(&mut fake, NAME, super::events, &["--json", "-c1", "-k", "node-up"], &[]);
        assert!(
            seen.out.starts_with("{\"position\":\"7.1\"") && seen.out.contains("\"kind\":\"node-up\""),
            "{}",
            seen.out
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for (args, problem) in [
            (["--from", "now"], "--from: now: no position of an event, which looks like 118.2"),
            (["--kind", "node-up,x"], "--kind: x: there is no such event; `--kind=help` lists them"),
            (["--count", "0"], "--count needs a number from 1"),
            (["--json", "17"], "unexpected argument `17`; see `squall events --help`"),
        ] {
            let seen = run(NAME, super::events, &args);
            assert_eq!((seen.err, seen.code), (format!("{NAME}: error: {problem}\n"), 1));
        }
    }
}
