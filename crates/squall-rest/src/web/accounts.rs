//! Accounts and users: the tree, shares, usage and limits; QOS.

use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use squall_model::policy::{AssocKey, Association, Policy, Whose};
use squall_model::wire::priority_info::Share;
use squall_text::columns::records::Row;
use squall_text::limits;

use crate::routes::ServerHandle;
use crate::web::chart;
use crate::web::frame::{Problem, View, made};
use crate::web::html::{Html, card, link, pager};
use crate::web::people::Viewer;

/// Rows of a page.
const ROWS: usize = 100;
/// What of the accounts is asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AccountsQuery {
    pub(crate) find: String,
    pub(crate) page: usize,
}

/// `GET /accounts`.
pub(crate) async fn show(
    State(server): State<ServerHandle>,
    viewer: Viewer,
    Query(asked): Query<AccountsQuery>,
) -> Result<Response, Problem> {
    let (shares, policy) = (server.cluster.shares(None).await?, server.cluster.policy(None).await?);
    let view = View::of(&server, &viewer).await?;
    made(move || page(&view, &shares, &policy, &asked)).await
}

/// Returns the limits that are set of a record, as text.
fn set_limits(whose: Whose, row: &Row) -> String {
    let all = limits::ROWS.iter().filter(|limit| !limit.place(whose).path.is_empty());
    let set = all.filter_map(|limit| limit.columns.first()).map(|column| (column.name, (column.get)(row)));
    let set = set.filter(|(_, value)| !value.is_empty()).map(|(name, value)| format!("{name}={value}"));
    set.collect::<Vec<_>>().join(" ")
}

/// Returns the page.
pub(crate) fn page(view: &View, shares: &[Share], policy: &Policy, asked: &AccountsQuery) -> Html {
    let mut body = Html::new();
    body.raw("<h1>Accounts</h1>");
    card(&mut body, "list", "Shares, usage and limits");
    body.put("<form class=\"filter\" action=\"/accounts\" role=\"search\"><label>Account or user <input name=\"find\" value=\"{}\" autocomplete=\"off\"></label><button>Filter</button> <a href=\"{}\">Mine</a> <a href=\"/accounts\">All</a></form>", &[
        &asked.find,
        &link("/accounts", &[("find", &view.user)]),
    ]);
    let fits = |share: &&Share| {
        asked.find.is_empty() || share.user.contains(&asked.find) || share.account.contains(&asked.find)
    };
    let chosen: Vec<&Share> = shares.iter().filter(fits).collect();
    let first = asked.page.saturating_mul(ROWS).min(chosen.len());
    let end = (first + ROWS).min(chosen.len());
    if chosen.is_empty() {
        body.raw("<p class=\"dim\">There are none.</p>");
    } else {
        body.raw("<div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th scope=\"col\">Account</th><th scope=\"col\">User</th><th scope=\"col\" class=\"n\">Shares</th><th scope=\"col\">Share of its parent's, and use</th><th scope=\"col\" class=\"n\">CPU hours</th><th scope=\"col\" class=\"n\">FairShare</th><th scope=\"col\">Limits</th></tr></thead><tbody>");
        chosen[first..end].iter().for_each(|share| line(&mut body, share, policy));
        body.raw("</tbody></table></div>");
    }
    pager(&mut body, chosen.len(), ROWS, asked.page, &|page| {
        link("/accounts", &[("find", &asked.find), ("page", &page.to_string())])
    });
    body.raw("<p class=\"note\">Earlier use counts less. FairShare 1: the first to be scheduled.</p></section>");
    qos(&mut body, policy);
    view.page("/accounts", "Accounts", &body)
}

fn line(body: &mut Html, share: &Share, policy: &Policy) {
    let depth = ["d0", "d1", "d2", "d3", "d4"][share.depth.min(4) as usize];
    let key = AssocKey { partition: share.partition.clone(), ..AssocKey::user(&share.account, &share.user) };
    let own = policy.associations.get(&key).cloned().unwrap_or_else(Association::default);
    let set = set_limits(Whose::Association, &Row { own, ..Row::default() });
    body.put(
        "<tr><th scope=\"row\" class=\"{}\"><a href=\"{}\"><bdi>{}</bdi></a></th><td>",
        &[&depth, &link("/jobs", &[("account", &share.account)]), &share.account],
    );
    if share.user.is_empty() {
        body.raw("<span class=\"dim\">all</span>");
    } else {
        body.put("<a href=\"{}\"><bdi>{}</bdi></a>", &[&link("/jobs", &[("user", &share.user)]), &share.user]);
    }
    let shares = share.shares.map_or_else(|| "parent".to_owned(), |shares| shares.to_string());
    body.put("</td><td class=\"n\">{}</td><td>", &[&shares]);
    let mille = |part: f64| (part * 1000.0).round().clamp(0.0, 1000.0) as u64;
    let (has, uses) = (share.norm_shares.0, share.effective_usage.0);
    chart::meter(body, &format!("share {:.0} %", has * 100.0), 1000, &[("all", mille(has))]);
    chart::meter(body, &format!("use {:.0} %", uses * 100.0), 1000, &[("used", mille(uses))]);
    body.put("<span class=\"dim\">{} % · uses {} %</span></td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"limits\">{}</td></tr>", &[
        &format!("{:.0}", has * 100.0),
        &format!("{:.0}", uses * 100.0),
        &chart::short(share.raw_usage.0 / 3600.0),
        &if share.user.is_empty() { String::new() } else { format!("{:.3}", share.fairshare.0) },
        &set,
    ]);
}

fn qos(body: &mut Html, policy: &Policy) {
    if policy.qos.is_empty() {
        return;
    }
    card(body, "qos", "QOS");
    body.raw("<div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th scope=\"col\">Name</th><th scope=\"col\" class=\"n\">Priority</th><th scope=\"col\">Preempts</th><th scope=\"col\">Description</th><th scope=\"col\">Limits</th></tr></thead><tbody>");
    for (name, qos) in policy.qos.iter().take(ROWS) {
        let own = Association { limits: qos.limits.clone(), ..Association::default() };
        let set = set_limits(Whose::Qos, &Row { own, level: qos.clone(), ..Row::default() });
        body.put("<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td>{}</td><td>{}</td><td class=\"limits\">{}</td></tr>", &[
            name,
            &qos.priority,
            &qos.preempt.join(", "),
            &qos.description,
            &set,
        ]);
    }
    body.raw("</tbody></table></div></section>");
}
