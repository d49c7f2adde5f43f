//! What all pages have: head, navigation, the person who looks; and pages about problems.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use squall_client::ClientError;
use squall_model::time::Time;
use squall_text::format::clock::{Clock, Style};

use crate::answer::Failure;
use crate::routes::Server;
use crate::slurm::now;
use crate::web::assets;
use crate::web::faults::{self, Fault};
use crate::web::html::Html;
use crate::web::people::Viewer;

/// The pages in the navigation.
const TABS: [(&str, &str); 9] = [
    ("/", "Overview"),
    ("/jobs", "Jobs"),
    ("/past", "Past jobs"),
    ("/nodes", "Nodes"),
    ("/partitions", "Partitions"),
    ("/reservations", "Reservations"),
    ("/accounts", "Accounts"),
    ("/events", "Events"),
    ("/health", "Health"),
];

/// Who looks at a page, and when.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) user: String,
    pub(crate) uid: u32,
    pub(crate) operator: bool,
    /// What forms must carry.
    pub(crate) proof: String,
    /// Whether the person can log out.
    pub(crate) by_cookie: bool,
    pub(crate) cluster: String,
    /// What is said after a deed; empty: there was none.
    pub(crate) done: &'static str,
    pub(crate) clock: Clock,
    /// What is wrong with the cluster.
    pub(crate) faults: Vec<Fault>,
}

impl View {
    pub(crate) async fn of(server: &Server, viewer: &Viewer) -> Result<Self, Problem> {
        let config = server.cluster.config(None).await?;
        let Viewer { caller, proof } = viewer;
        let (controller, diag) = (server.cluster.controller(None).await?, server.cluster.diag(None).await?);
        let faults = faults::found(&controller, &diag, &server.cluster.nodes(None).await?);
        Ok(Self {
            user: caller.user.clone(),
            uid: caller.uid,
            operator: caller.operator,
            proof: proof.clone(),
            by_cookie: caller.by_cookie,
            cluster: config.cluster.clone(),
            done: "",
            clock: Clock { style: Style::Relative, ..Clock::here(now()) },
            faults,
        })
    }

    /// Returns whether the person may act on a job of this user.
    pub(crate) fn may(&self, owner: u32) -> bool {
        self.operator || self.uid == owner
    }

    /// Appends a time: short, with the whole as title. `none`: there is no time.
    pub(crate) fn time(&self, html: &mut Html, time: Option<Time>, none: &'static str) {
        let Some(time) = time.filter(|time| time.0 > 0) else {
            html.put("<span class=\"dim\">{}</span>", &[&none]);
            return;
        };
        let whole = self.clock.local(time).strftime("%Y-%m-%dT%H:%M:%S").to_string();
        let shown = whole_words(&self.clock.show(time));
        html.put("<time datetime=\"{}\" title=\"{}\">{}</time>", &[&whole, &whole, &shown]);
    }

    /// Appends the mark of the cluster's health.
    fn mark(&self, html: &mut Html) {
        match self.faults.len() {
            0 => html.raw(" <span class=\"mark good\" title=\"No trouble is known\">✓</span>"),
            count => {
                let first = &self.faults[0];
                let node = if first.node.is_empty() { String::new() } else { format!("Node {} ", first.node) };
                let more = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
                let what = format!("{node}{}{more}", first.text);
                html.put(" <span class=\"mark bad\" title=\"{}\">✕ {}</span>", &[&what, &count])
            }
        };
    }

    /// Appends the beginning of a form, with the proof that it is of a page of ours.
    pub(crate) fn form(&self, html: &mut Html, action: &str) {
        let proof = &self.proof;
        html.put(
            "<form method=\"post\" action=\"{}\"><input type=\"hidden\" name=\"proof\" value=\"{}\">",
            &[&action, proof],
        );
    }

    /// Returns a whole page, which follows what happens.
    pub(crate) fn page(&self, path: &str, title: &str, body: &Html) -> Html {
        self.whole((path, title), body, true)
    }

    /// Returns a whole page about what is over.
    pub(crate) fn still(&self, path: &str, title: &str, body: &Html) -> Html {
        self.whole((path, title), body, false)
    }

    fn whole(&self, (path, title): (&str, &str), body: &Html, live: bool) -> Html {
        let mut html = head(&format!("{title} · {}", self.cluster), live);
        html.put("<header><a class=\"name\" href=\"/\">{}</a><nav aria-label=\"Pages\"><ul>", &[&self.cluster]);
        for (to, name) in TABS {
            let form = if to == path { "<li><a href=\"{}\" aria-current=\"page\">{}" } else { "<li><a href=\"{}\">{}" };
            html.put(form, &[&to, &name]);
            if to == "/health" {
                self.mark(&mut html);
            }
            html.raw("</a></li>");
        }
        html.put("</ul></nav><div class=\"who\"><span>{}</span>", &[&self.user]);
        if self.operator {
            html.raw("<span class=\"tag\">operator</span>");
        }
        if self.by_cookie {
            self.form(&mut html, "/logout");
            html.raw("<button class=\"quiet\">Log out</button></form>");
        }
        html.raw("</div></header>");
        if !self.done.is_empty() {
            html.put("<p class=\"said good\" role=\"status\">{}</p>", &[&self.done]);
        }
        html.raw(if live {
            "<main id=\"main\" tabindex=\"-1\" data-live>"
        } else {
            "<main id=\"main\" tabindex=\"-1\">"
        });
        html.add(body).raw("</main><footer><span>As of ");
        self.time(&mut html, Some(self.clock.now), "");
        html.raw(
            "</span><span id=\"live\" role=\"status\"></span>\
             <span class=\"keys\">Keys: <kbd>j</kbd> <kbd>k</kbd> next and previous row, <kbd>Enter</kbd> opens it, \
             <kbd>/</kbd> search</span></footer></body></html>\n",
        );
        html
    }
}

/// Returns the beginning of a page. `live`: without scripts it is loaded again now and then.
fn head(title: &str, live: bool) -> Html {
    let mut html = Html::new();
    let [css, js] = assets::paths();
    html.put(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{}</title>\
         <link rel=\"icon\" href=\"data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
         %3Cpath d='M1 4h9M4 8h11M2 12h7' stroke='%232a78d6' stroke-width='2.5' stroke-linecap='round'/%3E%3C/svg%3E\">\
         <link rel=\"stylesheet\" href=\"{}\"><script src=\"{}\" defer></script>",
        &[&title, &css, &js],
    );
    if live {
        html.raw("<noscript><meta http-equiv=\"refresh\" content=\"15\"></noscript>");
    }
    html.raw("</head><body><a class=\"skip\" href=\"#main\">Skip to content</a>");
    html
}

/// Returns a page without navigation.
pub(crate) fn alone(title: &str, body: &Html) -> Html {
    let mut html = head(&format!("{title} · Squall"), false);
    html.raw("<main id=\"main\" class=\"alone\" tabindex=\"-1\">").add(body).raw("</main></body></html>\n");
    html
}

/// Sends a page.
pub(crate) fn page(status: StatusCode, html: &Html) -> Response {
    (status, [(CONTENT_TYPE, "text/html; charset=utf-8")], html.clone().into_string()).into_response()
}

/// Returns a time with whole words for those that Slurm cuts to the width of a column.
pub(crate) fn whole_words(shown: &str) -> String {
    shown.replace("Tomorr ", "tomorrow ").replace("Ystday ", "yesterday ")
}

/// Makes a page in a thread of its own, since it may take a while, and sends it.
pub(crate) async fn made(make: impl FnOnce() -> Html + Send + 'static) -> Result<Response, Problem> {
    let html = tokio::task::spawn_blocking(make).await.map_err(|e| ClientError::Lost(e.to_string()))?;
    Ok((StatusCode::OK, [(CONTENT_TYPE, "text/html; charset=utf-8")], html.into_string()).into_response())
}

/// Why there is no page.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl Problem {
    pub(crate) fn missing(text: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, text: text.into() }
    }
}

impl From<Failure> for Problem {
    fn from(Failure { status, text }: Failure) -> Self {
        Self { status, text }
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        Failure::from(error).into()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = Html::new();
        let reason = self.status.canonical_reason().unwrap_or("Problem");
        body.put("<section class=\"card\"><h1>{}</h1><p role=\"alert\">{}</p>", &[&reason, &self.text]);
        body.raw("<p><a href=\"/\">Overview</a></p></section>");
        page(self.status, &alone(reason, &body))
    }
}
