//! `scontrol ping`, `show controllers` and `takeover`: the controllers of the cluster.

use std::time::Instant;

use squall_model::wire::client::{Answer, Request};
use squall_model::wire::info::{ControllerInfo, ControllerRole};

use crate::client::{ClientError, unexpected};
use crate::command::listing::call::{Call, Fail};
use crate::command::listing::structured::document;
use crate::command::scontrol::{Manner, ask_done, record};
use squall_text::refusal;
use squall_text::shapes::{Kind, step as shapes};

const TAKEOVER: &str = "slurm_takeover error";

/// A controller as `ping` shows it.
struct Pinged {
    host: String,
    /// Time that its answer took, microseconds; 0: another controller has said that it runs. None: it does not run.
    answered_us: Option<u64>,
}

/// Returns the message about a controller that answers.
pub(super) fn up(host: &str) -> String {
    line(&mode(0, 1), host, true)
}

fn line(mode: &str, host: &str, up: bool) -> String {
    format!("Slurmctld({mode}) at {host} is {}\n", if up { "UP" } else { "DOWN" })
}

/// Returns Slurm's word for the controller with this index, of `all`.
fn mode(index: usize, all: usize) -> String {
    match index {
        0 => "primary".to_owned(),
        1 if all == 2 => "backup".to_owned(),
        index => format!("backup{index}"),
    }
}

/// Runs `scontrol ping`: prints which controllers run.
pub(super) fn ping(call: &mut Call<'_>, manner: Manner, words: &[String]) -> Result<(), Fail> {
    if !words.is_empty() {
        call.say("too many arguments for keyword:ping");
        return Err(Fail(1));
    }
    let asked = Instant::now();
    let took = |asked: Instant| asked.elapsed().as_micros() as u64;
    let several = match call.controller.ask(&Request::Controllers) {
        Ok(Answer::Controllers(all)) => all,
        // A cluster whose controllers can't tell has one, or can't be reached: `Ping` shows which.
        Ok(_) | Err(_) => Vec::new(),
    };
    if !several.is_empty() {
        let answered = |one: &ControllerInfo| match one.role {
            ControllerRole::Down => None,
            ControllerRole::Leader => Some(took(asked)),
            ControllerRole::Standby | ControllerRole::Joining => Some(0),
        };
        let all: Vec<Pinged> =
            several.iter().map(|one| Pinged { host: one.name.clone(), answered_us: answered(one) }).collect();
        let cluster = call.cluster("slurm_ping error")?;
        show(call, manner, &cluster, &all);
        return if all.iter().any(|one| one.answered_us.is_some()) { Ok(()) } else { Err(Fail(1)) };
    }
    let asked = Instant::now();
    match call.controller.ask(&Request::Ping) {
        Ok(Answer::Pong { host, trouble, .. }) => {
            let answered_us = Some(took(asked));
            let cluster = call.cluster("slurm_ping error")?;
            show(call, manner, &cluster, &[Pinged { host, answered_us }]);
            if let Some(trouble) = trouble {
                call.complain(&trouble);
            }
            Ok(())
        }
        Ok(_) => call.failed("slurm_ping error", &unexpected()),
        Err(e) => {
            show(call, manner, "", &[Pinged { host: "localhost".to_owned(), answered_us: None }]);
            let why = match &e {
                ClientError::Refused(refusal) => refusal::detail(refusal),
                e => e.detail().map(str::to_owned),
            };
            if let Some(why) = why {
                call.say(&format!("scontrol: {why}"));
            }
            Err(Fail(1))
        }
    }
}

fn show(call: &mut Call<'_>, manner: Manner, cluster: &str, all: &[Pinged]) {
    let each = all.iter().enumerate().map(|(index, one)| (mode(index, all.len()), one));
    let text = match manner.dialect {
        None => each.map(|(mode, one)| line(&mode, &one.host, one.answered_us.is_some())).collect(),
        Some(dialect) => {
            let pings: Vec<_> = each.map(|(mode, one)| shapes::ping(&one.host, &mode, one.answered_us)).collect();
            document(call, dialect, cluster, &["scontrol", "ping"], Kind::Ping, vec![("pings", pings.into())])
        }
    };
    call.print(&text);
}

/// Runs `scontrol show controllers`: prints what is known of each controller.
pub(super) fn list(call: &mut Call<'_>, manner: Manner, words: &[String]) -> Result<(), Fail> {
    if manner.dialect.is_some() {
        return call.fail("show controllers: there is no JSON or YAML of it; `scontrol ping --json` has some");
    }
    let all = controllers(call, "slurm_load_controllers error")?;
    let unknown = words.iter().find(|word| !all.iter().any(|one| one.name == **word));
    if let Some(name) = unknown {
        return call.fail(&format!("Controller {name} not found"));
    }
    let wanted = all.iter().filter(|one| words.is_empty() || words.contains(&one.name));
    let text: String = wanted.map(|one| record(manner.oneliner, &lines(call, one))).collect();
    call.print(&text);
    Ok(())
}

fn lines(call: &Call<'_>, one: &ControllerInfo) -> [String; 2] {
    let role = match one.role {
        ControllerRole::Down => "DOWN",
        ControllerRole::Leader => "LEADER",
        ControllerRole::Standby => "STANDBY",
        ControllerRole::Joining => "JOINING",
    };
    let since = one.since.map_or_else(|| "Unknown".to_owned(), |since| call.clock(call.now).show(since));
    let number = |number: Option<u64>| number.map_or_else(|| "Unknown".to_owned(), |number| number.to_string());
    [
        format!("ControllerName={} Address={} Role={role} Since={since}", one.name, one.address),
        format!(
            "AppliedRecord={} DurableRecord={} RecordsBehind={} Version={}",
            number(one.applied),
            number(one.durable),
            number(one.behind),
            one.version.as_deref().unwrap_or("Unknown")
        ),
    ]
}

/// Runs `takeover [INDEX|NAME]`: another controller leads from now on. Without an argument it is the one of this
/// machine if that is a standby, otherwise any.
pub(super) fn take_over(call: &mut Call<'_>, words: &[String]) -> Result<(), Fail> {
    if words.len() > 1 {
        call.say("too many arguments for keyword:takeover");
        return Err(Fail(1));
    }
    let all = controllers(call, TAKEOVER)?;
    let to = match words.first() {
        None => {
            let here = call.controller.name_here();
            all.iter().find(|one| Some(&one.name) == here.as_ref() && one.role == ControllerRole::Standby)
        }
        Some(word) => {
            let index = word.parse::<usize>().ok();
            let found = all.iter().enumerate().find(|(at, one)| one.name == *word || Some(*at) == index);
            match found {
                Some((_, one)) => Some(one),
                None => return call.fail(&format!("invalid backup controller index {word}")),
            }
        }
    };
    if let Some(leader) = to.filter(|one| one.role == ControllerRole::Leader) {
        call.say(&format!("scontrol: {} leads already", leader.name));
        return Ok(());
    }
    ask_done(call, &Request::StepDown { to: to.map(|one| one.name.clone()) }, TAKEOVER)
}

/// Returns all controllers. Fails if there is only one.
fn controllers(call: &mut Call<'_>, what: &str) -> Result<Vec<ControllerInfo>, Fail> {
    match call.controller.ask(&Request::Controllers) {
        Ok(Answer::Controllers(all)) if all.is_empty() => {
            call.fail("this cluster has one controller; [[controllers]] in squall.toml names several")
        }
        Ok(Answer::Controllers(all)) => Ok(all),
        Ok(_) => call.failed(what, &unexpected()),
        Err(e) => call.failed(what, &e),
    }
}
