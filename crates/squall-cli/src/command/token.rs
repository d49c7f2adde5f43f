//! `squall token`: prints tokens with which machines join the cluster as nodes, login hosts or controllers, lists
//! machines, and revokes keys.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use squall_files::place::Place;
use squall_host::controld::{await_shared, read_config};
use squall_host::life;
use squall_host::trust::shared::SharedSecret;
use squall_host::trust::{Login, MachineEntry, Part, Trust};
use squall_model::config::Config;
use squall_model::duration::parse_limit;
use squall_model::hostlist;
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{self, Page};

/// `squall token`, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "squall token",
    about: "let another machine join the cluster as a node, a login host or a controller",
    synopsis: &["NODES [--minutes=N]", "--nodes=NODES --reusable [--valid=TIME]", "--login HOSTS [--allow-root] [--minutes=N]", "--controller NAME [--minutes=N]", "--revoke [--login] NAMES", "--revoke --nodes=NODES", "--list"],
    options: page::Options::Own(FLAGS),
    notes: "\
Prints, for each of these names, the command by which another machine joins the cluster: as a node, as a login host on which \
users' commands work, or as one of several controllers that the configuration names. Each token is good for one machine, once, and for an hour. With --reusable all these nodes share one token, which each may use \
whenever it comes without its key: for nodes that keep nothing on disk. Run it on the controller's machine, as \
the cluster's owner.
",
};

const FLAGS: &[Flag] = &[
    flag("help", 'h', Arg::None, "show this help"),
    flag(
        "login",
        '\0',
        Arg::None,
        "login hosts instead of nodes. Where the machine is a node or login host already, it needs no token: its users' commands are believed from now on, outside of jobs, too",
    ),
    flag(
        "allow-root",
        '\0',
        Arg::None,
        "believe commands of root and of system users (below min_uid) from this host. Root there is then root of the whole cluster",
    ),
    flag(
        "controller",
        '\0',
        Arg::None,
        "a further controller, which [[controllers]] names. The machine gets the keys of the cluster, and with them may do all",
    ),
    flag(
        "nodes",
        '\0',
        Arg::Needed("NODES"),
        "the nodes of a token that they share: with --reusable, or with --revoke",
    ),
    flag(
        "reusable",
        '\0',
        Arg::None,
        "one token for all of --nodes. A node takes its own name with it, in place of an earlier one of that name that is not connected. Who reads the token can do the same: only root of the nodes may",
    ),
    flag(
        "valid",
        '\0',
        Arg::Needed("TIME"),
        "how long a reusable token is good, as days-hours:minutes:seconds (otherwise until it is revoked)",
    ),
    flag("minutes", '\0', Arg::Needed("N"), "the tokens are good for N minutes (otherwise 60)"),
    flag(
        "revoke",
        '\0',
        Arg::None,
        "end what these machines may say: their connections are closed, and they can come back with a new token only. With --login, nodes stay nodes",
    ),
    flag("list", '\0', Arg::None, "list machines with keys, and tokens that are not used yet"),
    flag("state", '\0', Arg::Needed("DIR"), "the cluster's state folder (otherwise your own cluster, or SQUALL_STATE)"),
];

/// Runs `squall token`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    super::own(&PAGE, args, |given| token(&parse(given)?))
}

struct Options {
    place: Place,
    act: Act,
}

/// What to do with which machines.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Act {
    List,
    Invite { names: String, part: Part, minutes: u64 },
    Share { names: String, valid_s: Option<u64> },
    RevokeShared { names: String },
    Revoke { names: String, login_only: bool },
}

fn parse(given: &Arguments) -> Result<Options, String> {
    let names = super::one_operand(&PAGE, given)?;
    let minutes = given.parsed("minutes")?;
    let what = (given.has("login"), given.has("allow-root"), given.has("controller"));
    if given.has("nodes") || given.has("reusable") || given.has("valid") {
        let alone = names.is_none() && minutes.is_none() && what == (false, false, false) && !given.has("list");
        let act =
            of_nodes(given.last("nodes"), (given.has("reusable"), given.has("revoke")), given.last("valid"), alone)?;
        return Ok(Options { place: super::found_place(given)?, act });
    }
    let act = act(names, (given.has("revoke"), given.has("list")), what, minutes)?;
    Ok(Options { place: super::found_place(given)?, act })
}

/// What to do with a token that nodes share. `alone`: there are no other options.
fn of_nodes(
    names: Option<&str>,
    (reusable, revoke): (bool, bool),
    valid: Option<&str>,
    alone: bool,
) -> Result<Act, String> {
    let usage = "a token for many nodes: `squall token --nodes NODES --reusable [--valid TIME]`; its end: `squall token \
                 --revoke --nodes NODES`";
    let names = names.filter(|_| alone && reusable != revoke).ok_or(usage)?.to_owned();
    match valid {
        None if revoke => Ok(Act::RevokeShared { names }),
        Some(_) if revoke => Err("--revoke has no --valid: it takes effect at once".to_owned()),
        None => Ok(Act::Share { names, valid_s: None }),
        Some(time) => match parse_limit(time) {
            Ok(valid_s) => Ok(Act::Share { names, valid_s }),
            Err(e) => Err(format!("--valid={time}: {e}")),
        },
    }
}

fn act(
    names: Option<String>,
    (revoke, list): (bool, bool),
    (login, allow_root, controller): (bool, bool, bool),
    minutes: Option<u64>,
) -> Result<Act, String> {
    if list {
        let alone = names.is_none() && !revoke && !login && !allow_root && !controller && minutes.is_none();
        return if alone { Ok(Act::List) } else { Err("--list goes with --state only".to_owned()) };
    }
    let names = names.ok_or("for which machine? `squall token NODE`, `squall token --login HOST`")?;
    if controller && (revoke || login) {
        return Err("--controller goes with --minutes only: `squall token --controller NAME`".to_owned());
    }
    if allow_root && (revoke || !login) {
        return Err("--allow-root is for login hosts: `squall token --login HOST --allow-root`".to_owned());
    }
    if revoke {
        return match minutes {
            None => Ok(Act::Revoke { names, login_only: login }),
            Some(_) => Err("--revoke has no --minutes: it takes effect at once".to_owned()),
        };
    }
    let part = match () {
        () if controller => Part::Controller,
        () if login => Part::Login(Login { allow_root }),
        () => Part::Node,
    };
    Ok(Act::Invite { names, part, minutes: minutes.unwrap_or(60) })
}

fn token(options: &Options) -> Result<String, String> {
    let (place, trust) = (&options.place, Trust::of(&options.place));
    super::owned_by_caller(place)?;
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|e| e.to_string())?.as_secs();
    let revokes = matches!(options.act, Act::Revoke { .. } | Act::RevokeShared { .. });
    if let (false, Ok(Some(joined))) = (revokes, trust.joined()) {
        let what = if joined.login { "login host" } else { "node" };
        return Err(format!(
            "this machine is {what} {}: run it where the controller is ({})",
            joined.name,
            joined.addresses()
        ));
    }
    let said = act_on(options, &trust, now_s)?;
    let several = read_config(place).is_ok_and(|config| config.has_standbys());
    if options.act != Act::List && several && !matches!(trust.joined(), Ok(Some(_))) {
        // What is said here has to hold at whichever controller leads next.
        await_shared(place).map_err(|why| if revokes { format!("{said}{why}") } else { why })?;
    }
    Ok(said)
}

fn act_on(options: &Options, trust: &Trust, now_s: u64) -> Result<String, String> {
    let place = &options.place;
    let expand = |names: &str| hostlist::expand(names).map_err(|e| format!("{names}: {e}"));
    match &options.act {
        Act::List => {
            let all = trust.list(now_s).and_then(|all| Ok((all, trust.shared(now_s)?)));
            all.map(|(all, shared)| listed(&all, &shared, now_s)).map_err(|e| e.to_string())
        }
        Act::Share { names, valid_s } => {
            expand(names)?;
            let config = read_config(place).map_err(|e| e.to_string())?;
            let controller = controller(place, &config)?;
            let token = trust.share(names, now_s, *valid_s).map_err(|e| format!("{names}: {e}"))?;
            Ok(format!("squall node --controller {controller} --token {token}\n"))
        }
        Act::RevokeShared { names } => {
            let revoked = trust.revoke_shared(&expand(names)?).map_err(|e| format!("{names}: {e}"))?;
            let line = |names: &String| format!("the token that {names} shared is revoked\n");
            Ok(if revoked.is_empty() {
                format!("{names} share no token\n")
            } else {
                revoked.iter().map(line).collect()
            })
        }
        Act::Revoke { names, login_only } => {
            let names = expand(names)?;
            let mut said: String =
                names.iter().map(|name| revoke(trust, name, *login_only)).collect::<Result<_, _>>()?;
            let holds = |one: &&SharedSecret| names.iter().any(|name| hostlist::contains(&one.names, name));
            for one in trust.shared(now_s).unwrap_or_default().iter().filter(holds).filter(|_| !*login_only) {
                let _ = writeln!(
                    said,
                    "with the token that {0} share they can come back: `squall token --revoke --nodes {0}` ends it",
                    one.names
                );
            }
            Ok(said)
        }
        Act::Invite { names, part, minutes } => {
            let config = read_config(place).map_err(|e| e.to_string())?;
            let controller = controller(place, &config)?;
            if *part == Part::Controller {
                check_named(place, &config, &expand(names)?)?;
            }
            let valid_s = minutes.saturating_mul(60);
            expand(names)?.iter().map(|name| invite(trust, (name, *part), &controller, (now_s, valid_s))).collect()
        }
    }
}

/// Refuses tokens for controllers that the configuration does not name.
fn check_named(place: &Place, config: &Config, names: &[String]) -> Result<(), String> {
    match names.iter().find(|name| config.controllers.0.iter().all(|one| one.name() != name.as_str())) {
        None => Ok(()),
        Some(name) => Err(format!(
            "{name} is none of the [[controllers]] in {}: add it there, and its address",
            place.config().display()
        )),
    }
}

/// Returns names and ports by which other machines reach the controllers: this one first, then the others.
fn controller(place: &Place, config: &Config) -> Result<String, String> {
    if config.slurmctld_port.0 == 0 {
        return Err(format!(
            "the cluster is on this machine only: set SlurmctldPort in {} (and SlurmctldHost, the name by which others \
             reach this machine), then restart it with `squall down --keep-jobs` and `squall up`",
            place.config().display()
        ));
    }
    let own = format!("{}:{}", life::reached_as(config), config.slurmctld_port.0);
    let others = config.controller_addresses().filter(|address| *address != own).map(str::to_owned);
    Ok(std::iter::once(own.clone()).chain(others).collect::<Vec<_>>().join(","))
}

/// Makes a token, and returns the command that uses it. A machine that has joined already becomes a login host without
/// one.
fn invite(
    trust: &Trust,
    (name, part): (&str, Part),
    controller: &str,
    (now_s, valid_s): (u64, u64),
) -> Result<String, String> {
    let failed = |e: std::io::Error| format!("{name}: {e}");
    if let Part::Login(login) = part
        && trust.grant(name, login).map_err(failed)?
    {
        let whose = if login.allow_root { "all its users, root included," } else { "its users" };
        return Ok(format!("{name} has joined already: commands of {whose} are believed from now on\n"));
    }
    let option = if part == Part::Controller { "join" } else { "controller" };
    match trust.invite(name, part, now_s, valid_s) {
        Ok(token) => Ok(format!("squall {} --{option} {controller} --name {name} --token {token}\n", part.command())),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(format!("{name} is a machine already; `squall token --revoke {name}` lets another one take its place"))
        }
        Err(e) => Err(failed(e)),
    }
}

fn revoke(trust: &Trust, name: &str, login_only: bool) -> Result<String, String> {
    let failed = |e: std::io::Error| format!("{name}: {e}");
    let (done, what, nothing) = if login_only {
        (trust.revoke_login(name), "is no login host any more", "was no login host")
    } else {
        (trust.revoke(name), "has no key any more", "had no key")
    };
    Ok(format!("{name} {}\n", if done.map_err(failed)? { what } else { nothing }))
}

/// Formats the list of machines: one line each, with name, part and address; and of tokens that nodes share.
fn listed(all: &[MachineEntry], shared: &[SharedSecret], now_s: u64) -> String {
    let names = all.iter().map(|one| &one.name).chain(shared.iter().map(|one| &one.names));
    let width = names.map(String::len).max().unwrap_or(0).max(4);
    let mut text = String::new();
    for MachineEntry { name, part, address, invited_until_s } in all {
        let part = match part {
            Part::Node => "node",
            Part::Login(Login { allow_root: false }) => "login host",
            Part::Login(Login { allow_root: true }) => "login host, root allowed",
            Part::Controller => "controller",
        };
        let further = match invited_until_s {
            Some(until_s) => format!("; token for {} more min", until_s.saturating_sub(now_s).div_ceil(60)),
            None if address.is_empty() => String::new(),
            None => format!(" at {address}"),
        };
        let _ = writeln!(text, "{name:width$}  {part}{further}");
    }
    for SharedSecret { names, until_s } in shared {
        let until = match until_s {
            Some(until_s) => format!("for {} more min", until_s.saturating_sub(now_s).div_ceil(60)),
            None => "until it is revoked".to_owned(),
        };
        let _ = writeln!(text, "{names:width$}  nodes; reusable token {until}");
    }
    text
}

#[cfg(test)]
mod tests {
    use squall_host::trust::shared::SharedSecret;
    use squall_host::trust::{Login, MachineEntry, Part};

    use super::{Act, act, listed, of_nodes};

    #[test]
    fn options_that_do_not_go_together_are_refused() {
        let n = || Some("n".to_owned());
        let login = |allow_root| Part::Login(Login { allow_root });
        let invite = |part, minutes| Ok(Act::Invite { names: "n".into(), part, minutes });
        assert_eq!(act(n(), (false, false), (false, false, false), None), invite(Part::Node, 60));
        assert_eq!(act(n(), (false, false), (true, false, false), Some(5)), invite(login(false), 5));
        assert_eq!(act(n(), (false, false), (true, true, false), None), invite(login(true), 60));
        assert_eq!(act(n(), (false, false), (false, false, true), None), invite(Part::Controller, 60));
        let revoke = |login_only| Ok(Act::Revoke { names: "n".into(), login_only });
        assert_eq!(act(n(), (true, false), (false, false, false), None), revoke(false));
        assert_eq!(act(n(), (true, false), (true, false, false), None), revoke(true));
        assert_eq!(act(None, (false, true), (false, false, false), None), Ok(Act::List));
        for wrong in [
            act(None, (false, false), (true, false, false), None),
            act(n(), (false, false), (false, true, false), None),
            act(n(), (true, false), (true, true, false), None),
            act(n(), (true, false), (false, false, false), Some(5)),
            act(n(), (false, true), (false, false, false), None),
            act(None, (true, true), (false, false, false), None),
            act(n(), (true, false), (false, false, true), None),
            act(n(), (false, false), (true, false, true), None),
        ] {
            assert!(wrong.is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_token_that_nodes_share_has_names_and_perhaps_an_end() {
        let names = || "n[1-3]".to_owned();
        let share = |valid_s| Ok(Act::Share { names: names(), valid_s });
        assert_eq!(of_nodes(Some("n[1-3]"), (true, false), None, true), share(None));
        assert_eq!(of_nodes(Some("n[1-3]"), (true, false), Some("1-0"), true), share(Some(86_400)));
        assert_eq!(of_nodes(Some("n[1-3]"), (false, true), None, true), Ok(Act::RevokeShared { names: names() }));
        for wrong in [
            of_nodes(None, (true, false), None, true),
            of_nodes(Some("n1"), (true, false), None, false),
            of_nodes(Some("n1"), (false, false), None, true),
            of_nodes(Some("n1"), (true, true), None, true),
            of_nodes(Some("n1"), (false, true), Some("10"), true),
            of_nodes(Some("n1"), (true, false), Some("soon"), true),
        ] {
            assert!(wrong.is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_list_says_what_each_machine_is() {
        let one = |name: &str, part, address: &str, invited_until_s| {
            let (name, address) = (name.to_owned(), address.to_owned());
            MachineEntry { name, part, address, invited_until_s }
        };
        let all = [
            one("login1", Part::Login(Login::default()), "", None),
            one("mgmt", Part::Login(Login { allow_root: true }), "", Some(1000)),
            one("n2", Part::Node, "10.0.0.2:6818", None),
            one("ha2", Part::Controller, "", Some(1000)),
        ];
        let expected = "login1  login host\n\
                        mgmt    login host, root allowed; token for 2 more min\n\
                        n2      node at 10.0.0.2:6818\n\
                        ha2     controller; token for 2 more min\n";
        let shared = [("n[1-3]", None), ("m[1-2]", Some(1000))]
            .map(|(names, until_s)| SharedSecret { names: names.to_owned(), until_s });
        let more = "n[1-3]  nodes; reusable token until it is revoked\nm[1-2]  nodes; reusable token for 2 more min\n";
        assert_eq!(listed(&all, &shared, 900), format!("{expected}{more}"));
        assert_eq!(listed(&[], &[], 900), "");
    }
}
