//! `scontrol ping`, `show controllers` and `takeover`: the controllers of the cluster.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, HostRequest, Request};
use squall_model::wire::info::{ControllerInfo, ControllerRole};

use crate::command::listing::call::{Call, Fail};
use crate::command::listing::structured::document;
use crate::command::scontrol::{Manner, host_done, record};
use squall_client::{ClientError, unexpected};
use squall_text::refusal;
use squall_text::shapes::{AnswerKind, step as shapes};

const TAKEOVER: &str = "slurm_takeover error";
/// Time within which a controller that can't be asked must take a connection.
const KNOCK_TIME: Duration = Duration::from_secs(1);

/// A controller as `ping` shows it.
struct PingResult {
    host: String,
    /// Time that its answer took, microseconds; 0: another controller has said that it runs. None: it does not run.
    answered_us: Option<u64>,
}

/// Returns the lines about all controllers: `several`, or the only one, which has answered.
pub(super) fn status(several: &[ControllerInfo], host: &str) -> String {
    let each = several
        .iter()
        .enumerate()
        .map(|(index, one)| line(&shapes::mode(index, several.len()), &one.name, one.role != ControllerRole::Down));
    if several.is_empty() { line(&shapes::mode(0, 1), host, true) } else { each.collect() }
}

/// Returns the controllers, if there are several. None can be told of a cluster that can't be reached.
pub(super) fn several(call: &mut Call<'_>) -> Vec<ControllerInfo> {
    match call.controller.ask_host(&HostRequest::Controllers) {
        Ok(Answer::Controllers(all)) => all,
        Ok(_) | Err(_) => Vec::new(),
    }
}

fn line(mode: &str, host: &str, up: bool) -> String {
    format!("Slurmctld({mode}) at {host} is {}\n", if up { "UP" } else { "DOWN" })
}

/// Runs `scontrol ping`: prints which controllers run.
pub(super) fn ping(call: &mut Call<'_>, manner: Manner, words: &[String]) -> Result<(), Fail> {
    if !words.is_empty() {
        call.say("too many arguments for keyword:ping");
        return Err(Fail(1));
    }
    let asked = Instant::now();
    let took = |asked: Instant| asked.elapsed().as_micros() as u64;
    // If there are none, there is one controller, or it can't be reached: `Ping` shows which.
    let several = several(call);
    if !several.is_empty() {
        let answered_us = took(asked);
        let pinged = |one: &ControllerInfo| PingResult {
            host: one.name.clone(),
            answered_us: shapes::answered(one, answered_us),
        };
        let all: Vec<PingResult> = several.iter().map(pinged).collect();
        let cluster = call.cluster("slurm_ping error")?;
        show(call, manner, &cluster, &all);
        trouble(call, manner, several.iter().any(|one| one.role == ControllerRole::Leader));
        return if all.iter().any(|one| one.answered_us.is_some()) { Ok(()) } else { Err(Fail(1)) };
    }
    let asked = Instant::now();
    match call.controller.ask(&Request::Ping) {
        Ok(Answer::Pong { host, trouble, cluster_version, speaks, records, .. }) => {
            let answered_us = Some(took(asked));
            let cluster = call.cluster("slurm_ping error")?;
            show(call, manner, &cluster, &[PingResult { host, answered_us }]);
            hint(call, manner, cluster_version, speaks);
            for word in trouble.iter().chain(&records) {
                call.complain(word);
            }
            Ok(())
        }
        Ok(_) => call.failed("slurm_ping error", &unexpected()),
        Err(e) => {
            let mut all: Vec<PingResult> = call.controller.configured().iter().map(knock).collect();
            if all.is_empty() {
                all.push(PingResult { host: "localhost".to_owned(), answered_us: None });
            }
            show(call, manner, "", &all);
            let why = match &e {
                ClientError::Refused(refusal) => refusal::detail(refusal),
                e => e.detail().map(str::to_owned),
            };
            if let Some(why) = why {
                call.say(&format!("scontrol: {why}"));
            }
            if all.iter().any(|one| one.answered_us.is_some()) { Ok(()) } else { Err(Fail(1)) }
        }
    }
}

/// Says what keeps several controllers from their work, and that the version of the cluster can be raised. `led`: whether
/// one of them leads.
fn trouble(call: &mut Call<'_>, manner: Manner, led: bool) {
    if !led {
        return call.complain("no controller leads at the moment: `squall doctor` on a head says why");
    }
    match call.controller.ask(&Request::Ping) {
        Ok(Answer::Pong { trouble, cluster_version, speaks, records, .. }) => {
            hint(call, manner, cluster_version, speaks);
            for word in trouble.iter().chain(&records) {
                call.complain(word);
            }
        }
        Err(ClientError::Refused(refusal)) => refusal::detail(&refusal).iter().for_each(|why| call.complain(why)),
        Ok(_) | Err(_) => {}
    }
}

/// Asks whether anything listens at a controller's address, for a command that reaches no controller itself.
fn knock((name, address): &(String, String)) -> PingResult {
    let asked = Instant::now();
    let listens = |address: SocketAddr| TcpStream::connect_timeout(&address, KNOCK_TIME).is_ok();
    let up = address.to_socket_addrs().is_ok_and(|mut all| all.any(listens));
    PingResult { host: name.clone(), answered_us: up.then(|| asked.elapsed().as_micros() as u64) }
}

/// Says that the version of the cluster can be raised.
fn hint(call: &mut Call<'_>, manner: Manner, is: ClusterVersion, newest: ClusterVersion) {
    if manner.dialect.is_none() && is < newest {
        call.print(&format!(
            "The cluster has version {is}. When all its daemons have this release, `scontrol upgrade` raises it to {newest}\n"
        ));
    }
}

fn show(call: &mut Call<'_>, manner: Manner, cluster: &str, all: &[PingResult]) {
    let each = all.iter().enumerate().map(|(index, one)| (shapes::mode(index, all.len()), one));
    let text = match manner.dialect {
        None => each.map(|(mode, one)| line(&mode, &one.host, one.answered_us.is_some())).collect(),
        Some(dialect) => {
            let pings: Vec<_> = each.map(|(mode, one)| shapes::ping(&one.host, &mode, one.answered_us)).collect();
            document(call, dialect, cluster, &["scontrol", "ping"], AnswerKind::Ping, vec![("pings", pings.into())])
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
            "AppliedRecord={} DurableRecord={} RecordsBehind={} Version={} ClusterVersionMax={}",
            number(one.applied),
            number(one.durable),
            number(one.behind),
            one.version.as_deref().unwrap_or("Unknown"),
            number(one.speaks.map(|speaks| speaks.0.into()))
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
    host_done(call, &HostRequest::StepDown { to: to.map(|one| one.name.clone()) }, TAKEOVER)
}

/// Returns all controllers. Fails if there is only one.
fn controllers(call: &mut Call<'_>, what: &str) -> Result<Vec<ControllerInfo>, Fail> {
    match call.controller.ask_host(&HostRequest::Controllers) {
        Ok(Answer::Controllers(all)) if all.is_empty() => {
            call.fail("this cluster has one controller; [[controllers]] in squall.toml names several")
        }
        Ok(Answer::Controllers(all)) => Ok(all),
        Ok(_) => call.failed(what, &unexpected()),
        Err(e) => call.failed(what, &e),
    }
}

#[cfg(test)]
mod tests {
    use squall_model::time::Time;
    use squall_model::version::ClusterVersion;
    use squall_model::wire::client::HostRequest;
    use squall_model::wire::info::{ControllerInfo, ControllerRole};

    use crate::command::listing::fake::{CommandResult, Fake, NOW, check, fake, run_with};
    use crate::command::scontrol::scontrol;
    use crate::command::squeue::squeue;

    fn controller(number: u64, role: ControllerRole) -> ControllerInfo {
        let known = |value: u64| (role != Down).then_some(value);
        ControllerInfo {
            name: format!("head{number}"),
            address: format!("10.0.0.{number}:6817"),
            role,
            since: known(NOW - 60 * number).map(Time::from_secs),
            applied: known(1200),
            durable: known(1200 - number),
            behind: known(number - 1),
            version: known(0).map(|_| "0.2.0".to_owned()),
            speaks: known(0).map(|_| ClusterVersion(2)),
        }
    }

    fn site(roles: &[ControllerRole]) -> Fake {
        let mut fake = fake();
        fake.controllers = (1..).zip(roles).map(|(number, role)| controller(number, *role)).collect();
        fake
    }

    fn said(roles: &[ControllerRole], args: &[&str]) -> CommandResult {
        run_with(&mut site(roles), "scontrol", scontrol, args, &[])
    }

    use ControllerRole::{Down, Leader, Standby};

    #[test]
    fn each_controller_is_pinged_in_slurms_words() {
        let up = "Slurmctld(primary) at head1 is DOWN\nSlurmctld(backup) at head2 is UP\n";
        assert_eq!((said(&[Down, Leader], &["ping"]).out.as_str(), said(&[Down, Leader], &["ping"]).code), (up, 0));
        let three = said(&[Leader, Standby, Down], &["ping"]).out;
        assert!(three.contains("(backup1) at head2 is UP\nSlurmctld(backup2) at head3 is DOWN\n"), "{three}");
        assert_eq!(said(&[Down, Down], &["ping"]).code, 1);
        let json: serde_json::Value = serde_json::from_str(&said(&[Leader, Down], &["ping", "--json"]).out).unwrap();
        let modes: Vec<_> = (0..2).map(|n| (&json["pings"][n]["mode"], &json["pings"][n]["pinged"])).collect();
        assert_eq!(modes, [(&"primary".into(), &"UP".into()), (&"backup".into(), &"DOWN".into())]);
    }

    /// faults.md R11.
    #[test]
    fn a_ping_that_reaches_no_controller_names_those_of_the_configuration() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap().to_string();
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let ping = |addresses: &[&String]| {
            let mut fake = Fake { down: true, ..fake() };
            fake.configured =
                (1..).zip(addresses).map(|(n, address)| (format!("head{n}"), (*address).clone())).collect();
            run_with(&mut fake, "scontrol", scontrol, &["ping"], &[])
        };
        let one = ping(&[&closed, &open]);
        let lines = "Slurmctld(primary) at head1 is DOWN\nSlurmctld(backup) at head2 is UP\n";
        assert_eq!((one.out.as_str(), one.code), (lines, 0), "{}", one.err);
        assert!(one.err.contains("nobody listens"), "{}", one.err);
        assert_eq!(ping(&[&closed, &closed]).code, 1);
        assert_eq!(ping(&[]).out, "Slurmctld(primary) at localhost is DOWN\n");
    }

    #[test]
    fn controllers_are_shown() {
        let all = said(&[Leader, Standby, Down], &["show", "controllers"]);
        let one = said(&[Leader, Standby, Down], &["-o", "show", "controllers", "head3"]);
        check("scontrol_controllers", &format!("{}{}", all.out, one.out));
        let unknown = said(&[Leader], &["show", "controllers", "head9"]);
        assert_eq!((unknown.code, unknown.err.as_str()), (1, "scontrol: error: Controller head9 not found\n"));
        let single = said(&[], &["show", "controllers"]);
        assert!(single.code == 1 && single.err.contains("this cluster has one controller"), "{}", single.err);
    }

    #[test]
    fn a_takeover_is_asked_for_by_index_or_name_or_here() {
        let asked = |roles: &[ControllerRole], args: &[&str]| {
            let mut fake = site(roles);
            let seen = run_with(&mut fake, "scontrol", scontrol, args, &[]);
            let to = fake.asked_host.into_iter().find_map(|request| match request {
                HostRequest::StepDown { to } => Some(to.unwrap_or_else(|| "any".to_owned())),
                _ => None,
            });
            (seen.code, to.unwrap_or(seen.err))
        };
        let roles = [Leader, Standby, Standby];
        // The test runs on head2.
        assert_eq!(asked(&roles, &["takeover"]), (0, "head2".to_owned()));
        assert_eq!(asked(&[Standby, Leader], &["takeover"]), (0, "any".to_owned()));
        assert_eq!(asked(&roles, &["takeover", "2"]), (0, "head3".to_owned()));
        assert_eq!(asked(&roles, &["takeover", "head3"]), (0, "head3".to_owned()));
        assert_eq!(asked(&roles, &["takeover", "0"]), (0, "scontrol: head1 leads already\n".to_owned()));
        let (code, text) = asked(&roles, &["takeover", "7"]);
        assert_eq!((code, text.as_str()), (1, "scontrol: error: invalid backup controller index 7\n"));
        assert_eq!(asked(&roles, &["takeover", "1", "2"]).0, 1);
    }

    #[test]
    fn answers_of_a_standby_are_marked() {
        for (args, env) in
            [(&["--from-standby", "--json"][..], &[][..]), (&["--json"], &[("SQUALL_FROM_STANDBY", "1")])]
        {
            let seen = run_with(&mut fake(), "squeue", squeue, args, env);
            let json: serde_json::Value = serde_json::from_str(&seen.out).unwrap();
            let expected = "this is of head2, a standby: its state is 1.2 s old; no controller leads";
            assert_eq!(json["warnings"][0]["description"], expected);
        }
        let mut plain = fake();
        run_with(&mut plain, "squeue", squeue, &[], &[("SQUALL_FROM_STANDBY", "0")]);
        assert!(plain.standby.is_none());
    }
}
