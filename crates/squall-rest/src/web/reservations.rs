//! Reservations over time, and licenses.

use axum::extract::State;
use axum::response::Response;
use squall_model::time::{Span, Time};
use squall_model::wire::info::{LicenseInfo, ReservationInfo};

use crate::routes::ServerHandle;
use crate::web::chart::{self, Caption, PlanBar};
use crate::web::frame::{Problem, View, made};
use crate::web::html::{Html, card};
use crate::web::people::Viewer;
use crate::web::row;

/// `GET /reservations`.
pub(crate) async fn show(State(server): State<ServerHandle>, viewer: Viewer) -> Result<Response, Problem> {
    let (reservations, licenses) = (server.cluster.reservations(None).await?, server.cluster.licenses(None).await?);
    let view = View::of(&server, &viewer).await?;
    made(move || page(&view, &reservations, &licenses)).await
}

/// Returns the page.
pub(crate) fn page(view: &View, reservations: &[ReservationInfo], licenses: &[LicenseInfo]) -> Html {
    let mut body = Html::new();
    body.raw("<h1>Reservations</h1>");
    card(&mut body, "list", "Reservations");
    if reservations.is_empty() {
        body.raw("<p class=\"dim\">There are none.</p></section>");
    } else {
        list(&mut body, view, reservations);
        body.raw("</section>");
        plan(&mut body, view, reservations);
    }
    if !licenses.is_empty() {
        card(&mut body, "licenses", "Licenses");
        body.raw("<div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th scope=\"col\">License</th><th scope=\"col\">Use</th><th scope=\"col\" class=\"n\">Held</th><th scope=\"col\" class=\"n\">Reserved</th><th scope=\"col\" class=\"n\">Free</th><th scope=\"col\" class=\"n\">Total</th></tr></thead><tbody>");
        for license in licenses {
            body.put("<tr><th scope=\"row\">{}</th><td>", &[&license.name]);
            let parts = [("used", u64::from(license.used)), ("reserved", u64::from(license.reserved))];
            let about = format!("{} of {} held", license.used, license.total);
            chart::meter(&mut body, &about, u64::from(license.total), &parts);
            body.put("</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>", &[
                &license.used,
                &license.reserved,
                &license.free(),
                &license.total,
            ]);
        }
        body.raw("</tbody></table></div></section>");
    }
    view.page("/reservations", "Reservations", &body)
}

fn list(body: &mut Html, view: &View, all: &[ReservationInfo]) {
    body.raw("<table class=\"rows cards\"><thead><tr><th scope=\"col\">Name</th><th scope=\"col\">State</th><th scope=\"col\">From</th><th scope=\"col\">Until</th><th scope=\"col\">Nodes</th><th scope=\"col\">For</th><th scope=\"col\">Flags</th></tr></thead><tbody>");
    for ReservationInfo { reservation, nodes, cpus, .. } in all {
        let state = if reservation.active(view.clock.now) { "ACTIVE" } else { "INACTIVE" };
        body.put("<tr><th scope=\"row\" data-name=\"Name\"><bdi>{}</bdi></th><td data-name=\"State\">{}</td><td data-name=\"From\">", &[&reservation.name, &state]);
        view.time(body, Some(reservation.start), "");
        body.raw("</td><td data-name=\"Until\">");
        view.time(body, Some(reservation.end), "");
        body.raw("</td><td data-name=\"Nodes\">");
        row::nodes(body, nodes);
        let lists = [&reservation.users, &reservation.accounts, &reservation.qos, &reservation.allowed_partitions];
        let lists = lists.into_iter().flatten().map(String::as_str);
        let who: Vec<&str> = reservation.group_names().chain(lists).collect();
        let flags: Vec<&str> = reservation.flags.iter().map(|flag| flag.name()).collect();
        body.put(" <span class=\"dim\">{} CPUs</span></td><td data-name=\"For\"><bdi>{}</bdi></td><td data-name=\"Flags\">{}</td></tr>", &[
            cpus,
            &who.join(", "),
            &flags.join(", "),
        ]);
    }
    body.raw("</tbody></table>");
}

fn plan(body: &mut Html, view: &View, reservations: &[ReservationInfo]) {
    let now = view.clock.now;
    let planned = |info: &ReservationInfo| {
        let one = &info.reservation;
        let class = if one.active(now) { "running" } else { "expected" };
        let note =
            format!("{}: {} to {} on {}", one.name, view.clock.show(one.start), view.clock.show(one.end), info.nodes);
        PlanBar { name: one.name.clone(), class, from: one.start, until: Some(one.end), note }
    };
    let all: Vec<PlanBar> = reservations.iter().take(24).map(planned).collect();
    let from =
        all.iter().map(|one| one.from).min().unwrap_or(now).min(now).max(Time(now.0.saturating_sub(86_400_000_000)));
    let until = all
        .iter()
        .filter_map(|one| one.until)
        .max()
        .unwrap_or(now)
        .clamp(now + Span::from_secs(3600), now + Span::from_secs(14 * 86_400));
    card(body, "plan", "Over time");
    let caption = Caption { id: "g", title: "Reservations over time", about: format!("{} reservations.", all.len()) };
    chart::plan(body, &caption, &view.clock, (from, until), &all);
    body.raw("</section>");
}
