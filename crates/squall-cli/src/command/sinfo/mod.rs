//! sinfo: lists partitions and nodes.

mod group;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use squall_model::hostlist;
use squall_model::power::PowerPhase;
use squall_model::wire::info::{NodeInfo, PartitionInfo};

use crate::command::listing::call::{COLOUR_NOTE, Call, FROM_STANDBY, Fail, live};
use crate::command::listing::lists::{all_partitions, hint_partitions, nodes_with, shows_hidden};
use crate::command::listing::select::{lines, names};
use crate::command::listing::structured::{dialect, document};
use crate::command::scontrol::reservation;
use crate::command::sinfo::group::{Grouping, group, sort};
use squall_text::columns::groups::{FIELDS, Group};
use squall_text::format::layout::Layout;
use squall_text::format::node::{NodeState, STATES};
use squall_text::hints::Hint;
use squall_text::options::Arg;
use squall_text::options::flag::{Arguments, Flag, flag};
use squall_text::page::{Options, Page};
use squall_text::shapes::{AnswerKind, Dialect, group as shapes};

const WHAT: &str = "slurm_load_partitions error";

const OPTIONS: &[Flag] = &[
    flag("all", 'a', Arg::None, "show all partitions, hidden ones, too"),
    flag("clusters", 'M', Arg::Needed("names"), "clusters to issue commands to"),
    flag("cluster", 'M', Arg::Needed("names"), ""),
    flag("dead", 'd', Arg::None, "show only non-responding nodes"),
    flag("exact", 'e', Arg::None, "group nodes only on exact match of configuration"),
    flag("federation", '\0', Arg::None, "").hint("no federation exists"),
    flag("format", 'o', Arg::Needed("format"), "format specification"),
    flag("Format", 'O', Arg::Needed("format"), "format specification by field names"),
    FROM_STANDBY,
    flag("future", 'F', Arg::None, "report nodes in state FUTURE as well, which did not join yet"),
    flag("helpformat", '\0', Arg::None, "list the fields that a format may have"),
    flag("helpstate", '\0', Arg::None, "list the names of states"),
    flag("hide", '\0', Arg::None, "don't show hidden partitions, which is the default"),
    flag("iterate", 'i', Arg::Needed("seconds"), "specify an iteration period"),
    flag("json", '\0', Arg::Maybe("data_parser"), "produce JSON output"),
    flag("list-reasons", 'R', Arg::None, "list reason nodes are down or drained"),
    flag("local", '\0', Arg::None, "").hint("only this cluster is known"),
    flag("long", 'l', Arg::None, "long output - displays more information"),
    flag("noconvert", '\0', Arg::None, "don't convert units from their original type"),
    flag("Node", 'N', Arg::None, "Node-centric format"),
    flag("nodes", 'n', Arg::Needed("NODES"), "report on specific node(s)"),
    flag("noheader", 'h', Arg::None, "no headers on output"),
    flag("partition", 'p', Arg::Needed("PARTITION"), "report on specific partition"),
    flag("reservation", 'T', Arg::None, "show only reservation information"),
    flag("responding", 'r', Arg::None, "report only responding nodes"),
    flag("sort", 'S', Arg::Needed("fields"), "comma separated list of fields to sort on"),
    flag("states", 't', Arg::Needed("states"), "comma separated list of states of nodes to view"),
    flag("summarize", 's', Arg::None, "report state summary only"),
    flag("verbose", 'v', Arg::None, "say more"),
    flag("yaml", '\0', Arg::Maybe("data_parser"), "produce YAML output"),
];

/// What `sinfo` is, for its help, manual page and completion.
pub(crate) static PAGE: Page = Page {
    name: "sinfo",
    about: "show partitions and nodes",
    synopsis: &["[OPTIONS]"],
    options: Options::Own(OPTIONS),
    notes: COLOUR_NOTE,
};

/// Runs sinfo.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    live("sinfo", args, sinfo)
}

/// Runs sinfo with the command-line arguments `args`. `call` has the controller, the environment and the output.
pub(crate) fn sinfo(call: &mut Call<'_>, args: &[String]) -> Result<(), Fail> {
    let Some(given) = call.arguments(&PAGE, args)? else { return Ok(()) };
    if given.has("verbose") {
        call.print(&given.in_force(OPTIONS));
    }
    if given.has("helpformat") {
        let names: Vec<&str> = FIELDS.iter().map(|f| f.names[0]).collect();
        call.print(&format!("{}\n", names.join("\n")));
        return Ok(());
    }
    if given.has("helpstate") {
        call.print(&lines(STATES.iter()));
        return Ok(());
    }
    if let Some(extra) = given.operands.first() {
        return call.fail(&format!("Unrecognized option: {extra}"));
    }
    if given.has("all") && given.has("partition") {
        return call.fail("Conflicting options, -a and -p, specified. Please choose one or the other.");
    }
    let header = !given.has("noheader");
    let dialect = dialect(call, &given)?;
    call.check_cluster(given.last("clusters").or(given.last("cluster")), header && dialect.is_none(), WHAT)?;
    if given.has("reservation") {
        return reservation::list(call, header);
    }
    let every = match given.last("iterate").map(str::parse::<u64>) {
        None => None,
        Some(Ok(seconds)) if seconds > 0 => Some(seconds),
        Some(_) => return call.fail(&format!("--iterate={}", given.last("iterate").unwrap_or_default())),
    };
    loop {
        let result = show(call, &given, dialect, header, every.is_some());
        let Some(seconds) = every else { return result };
        call.print("\n");
        std::thread::sleep(Duration::from_secs(seconds));
    }
}

fn show(
    call: &mut Call<'_>,
    given: &Arguments,
    dialect: Option<Dialect>,
    header: bool,
    dated: bool,
) -> Result<(), Fail> {
    let partitions = match all_partitions(call) {
        Ok(partitions) => partitions,
        Err(e) => return call.failed(WHAT, &e),
    };
    let nodes = match nodes_with(call, given.has("future")) {
        Ok(nodes) => nodes,
        Err(e) => return call.failed("slurm_load_nodes error", &e),
    };
    let named = call.variable("SINFO_PARTITION");
    if named.is_some() && call.variable("SINFO_ALL").is_some() {
        let both = "Conflicting options, SINFO_ALL and SINFO_PARTITION, specified. Please choose one or the other.";
        return call.fail(both);
    }
    let wanted = given.last("partition").map(str::to_owned).or(named);
    let wanted = wanted.as_deref().map(names).unwrap_or_default();
    hint_partitions(call, &wanted, &partitions);
    let all = shows_hidden(call, given, "SINFO_ALL");
    let shown = |p: &PartitionInfo| {
        if wanted.is_empty() { all || !p.config.hidden } else { wanted.contains(&p.config.name) }
    };
    let partitions: Vec<Rc<PartitionInfo>> = partitions.into_iter().filter(shown).map(Rc::new).collect();
    let filter = Filter::new(call, given)?;
    for name in filter.names.iter().flatten().filter(|name| nodes.iter().all(|node| node.name != **name)) {
        call.hint(&Hint::Node(name.clone()));
    }
    let nodes: Vec<Rc<NodeInfo>> = nodes.into_iter().filter(|n| filter.takes(n)).map(Rc::new).collect();
    let now = nodes.iter().map(|n| n.heard).max().unwrap_or(call.now).max(call.now);
    let layout = layout(call, given)?;
    let people = call.people;
    let grouping = Grouping {
        each_node: given.has("Node"),
        exact: given.has("exact") || given.has("Node"),
        empty: header && (!filter.reasons || given.has("summarize")),
        clock: call.clock(now),
        cluster: call.cluster(WHAT)?,
    };
    let mut groups = group(&layout, &grouping, &partitions, &nodes, &|uid| people.user(uid));
    let order = given.last("sort").map(str::to_owned).or_else(|| call.variable("SINFO_SORT"));
    let order = order.unwrap_or_else(|| if given.has("Node") { "N" } else { "#P,-t" }.to_owned());
    if let Err(bad) = sort(&mut groups, &order, &partitions) {
        return call.fail(&format!("Invalid sort specification: {bad}"));
    }
    if let Some(dialect) = dialect {
        let each: Vec<serde_json::Value> = groups.iter().map(shapes::group).collect();
        let text =
            document(call, dialect, &grouping.cluster, &["sinfo"], AnswerKind::Groups, vec![("sinfo", each.into())]);
        call.print(&text);
        return Ok(());
    }
    if header && (dated || given.has("long")) {
        let text = format!("{}\n", grouping.clock.long_now());
        call.print(&text);
    }
    let text = layout.lines(header, &groups);
    call.print(&text);
    Ok(())
}

/// Conditions of the command line that select nodes.
struct Filter {
    names: Option<Vec<String>>,
    states: Vec<Vec<String>>,
    dead: bool,
    responding: bool,
    reasons: bool,
}

impl Filter {
    fn new(call: &mut Call<'_>, given: &Arguments) -> Result<Self, Fail> {
        let names = match given.last("nodes").filter(|n| !n.eq_ignore_ascii_case("all")) {
            None => None,
            Some(list) => match hostlist::expand(list) {
                Ok(names) => Some(names),
                Err(e) => return call.fail(&format!("Invalid node name {list}: {e}")),
            },
        };
        let mut states = Vec::new();
        if let Some(list) = given.last("states") {
            let probe = NodeState {
                silent: false,
                drain: false,
                fail: false,
                completing: false,
                reserved: false,
                maint: false,
                reboot: false,
                rebooting: false,
                power: PowerPhase::On,
                wish: None,
                cloud: false,
                base: squall_text::format::node::Base::Idle,
            };
            for item in list.split(',').map(str::trim).filter(|i| !i.is_empty()) {
                let all: Vec<String> = item.split('&').map(str::to_owned).collect();
                if let Some(bad) = all.iter().find(|word| probe.is(word).is_none()) {
                    call.complain(&format!("Bad state string: \"{bad}\""));
                    return call.fail(
                        "Valid states are: alloc,allocated,comp,completing,down,drain,drained,draining,idle,mix,mixed,no_respond,unk,unknown",
                    );
                }
                states.push(all);
            }
        }
        Ok(Self {
            names,
            states,
            dead: given.has("dead"),
            responding: given.has("responding"),
            reasons: given.has("list-reasons"),
        })
    }

    fn takes(&self, node: &NodeInfo) -> bool {
        let state = NodeState::of(node);
        self.names.as_ref().is_none_or(|names| names.contains(&node.name))
            && (self.states.is_empty()
                || self.states.iter().any(|all| all.iter().all(|word| state.is(word) == Some(true))))
            && (!self.dead || state.silent)
            && (!self.responding || !state.silent)
            && (!self.reasons || node.reason.is_some())
    }
}

/// Returns the format in effect, from the first of these that is given: `-o` or `-O`; `-N`, `-s`, `-R` or `-l`; the
/// environment variable; the default.
fn layout(call: &mut Call<'_>, given: &Arguments) -> Result<Layout<Group>, Fail> {
    let chosen = given.options.iter().rev().find(|o| o.name == "format" || o.name == "Format");
    let long = given.has("long");
    let mut layout = match chosen {
        Some(option) if option.name == "Format" && option.text() == "all" => Layout::short("%all", FIELDS),
        Some(option) if option.name == "Format" => Layout::long(option.text(), FIELDS),
        Some(option) => Layout::short(option.text(), FIELDS),
        None => {
            let special = if given.has("summarize") {
                Some("%#P %.5a %.10l %.16F %N")
            } else if given.has("Node") {
                Some(if long { "%#N %.6D %#P %.11T %.4c %.8z %.6m %.8d %.6w %.8f %20E" } else { "%#N %.6D %#P %6t" })
            } else if given.has("list-reasons") {
                Some(if long { "%20E %12U %19H %6t %N" } else { "%20E %9u %19H %N" })
            } else {
                None
            };
            match (special, call.variable("SINFO_FORMAT")) {
                (Some(special), _) => Layout::short(special, FIELDS),
                (None, Some(text)) => Layout::short(&text, FIELDS),
                (None, None) if long => {
                    Layout::short("%#P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %.11i %N", FIELDS)
                }
                (None, None) => Layout::short("%#P %.5a %.10l %.6D %.6t %N", FIELDS),
            }
        }
    };
    call.unknown_fields("node format", &layout.unknown);
    if layout.fields().next().is_none() && !layout.unknown.is_empty() {
        return Err(Fail(1));
    }
    layout.coloured = call.coloured()?;
    Ok(layout)
}
