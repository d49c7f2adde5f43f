//! Events for many: one follower of the controller's feed, and a stream of server-sent events for each listener
//! (WHATWG HTML, section "Server-sent events").

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use squall_client::{ClientError, FeedSelection, Follower};
use squall_files::place::Place;
use squall_model::hostlist;
use squall_model::wire::feed::{FeedEvent, FeedKind, Position};
use squall_text::shapes::event::event as json;
use tokio::sync::{Semaphore, watch};

use crate::answer::Failure;
use crate::caller::{Caller, Identity};
use crate::routes::ServerHandle;
use crate::seats::Origin;

/// Most events that are kept for listeners.
const EVENTS_MAX: usize = 64 << 10;
/// Most bytes sent to a listener at once, and to all of them together, but some to each: so many listeners take the time
/// of this process and not that of the controller beside it.
const BATCH_BYTES: usize = 128 << 10;
const BATCHES_BYTES: usize = 8 << 20;
const BATCH_BYTES_LEAST: usize = 4 << 10;
/// Least time between two batches for a listener, and between two looks at events that it may not want.
const BATCH_TIME: Duration = Duration::from_millis(100);
/// Time without events after which a comment is sent, by which proxies and clients see that the connection is alive.
const QUIET_TIME: Duration = Duration::from_secs(15);
/// Pause before the controller is called again when it can't be reached.
const PAUSE: Duration = Duration::from_secs(1);
/// Time without listeners after which the controller is not followed any more.
const UNHEARD_TIME: Duration = Duration::from_mins(1);
/// How often it is checked that a listener's token still holds: what is remembered of it is as old at most.
const CHECK_TIME: Duration = Duration::from_secs(5);
/// Time within which the controller must have been reached for the first listener.
const BEGIN_TIME: Duration = Duration::from_secs(10);
/// Most listeners at once, and most of one user.
const LISTENERS_MAX: usize = 4096;
const LISTENERS_OF_USER: usize = 512;
/// Most names, ids and kinds each that a listener may want.
const WANTED_MAX: usize = 1024;
/// Most events that are looked at for a listener in one go.
const LOOKS: usize = 4096;

/// The events of late, and how listeners learn of new ones.
#[derive(Debug)]
pub(crate) struct Events {
    place: Place,
    kept: Arc<Mutex<RecentEvents>>,
    /// Number of the next event: listeners wait for it to change.
    next: watch::Sender<u64>,
    listeners: Arc<Semaphore>,
    /// What each listener of a user holds a copy of.
    of_users: Mutex<HashMap<u32, Arc<()>>>,
}

#[derive(Debug, Default)]
struct RecentEvents {
    /// Whether the thread runs that follows the controller.
    follows: bool,
    /// Number of the first event in `events`.
    first: u64,
    events: VecDeque<StreamItem>,
    /// Position after the last event. None: none has come yet.
    at: Option<Position>,
}

/// What is sent to listeners.
#[derive(Debug)]
enum StreamItem {
    /// An event, and its frame once the first listener was sent it.
    Event(Arc<FeedEvent>, OnceLock<Bytes>),
    /// Events before this position were missed.
    Missed(Bytes),
}

impl RecentEvents {
    fn push(&mut self, sent: StreamItem) {
        self.events.push_back(sent);
        if self.events.len() > EVENTS_MAX {
            self.events.pop_front();
            self.first += 1;
        }
    }

    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Returns the number of the first event after a position. None: events after it are not kept any more.
    fn after(&self, at: Position) -> Option<u64> {
        let is_before = |sent: &StreamItem| matches!(sent, StreamItem::Event(event, _) if event.at <= at);
        let before = self.events.iter().rposition(is_before);
        match before {
            Some(before) => Some(self.first + before as u64 + 1),
            None if self.first == 0 && self.at.is_none_or(|end| at <= end) => Some(0),
            None => None,
        }
    }
}

impl Events {
    pub(crate) fn new(place: Place) -> Self {
        let listeners = Arc::new(Semaphore::new(LISTENERS_MAX));
        Self { place, kept: Arc::default(), next: watch::Sender::new(0), listeners, of_users: Mutex::default() }
    }

    /// Counts a listener of a user. None: the user has as many as allowed.
    fn one_of(&self, uid: u32) -> Option<Arc<()>> {
        let mut users = self.of_users.lock().unwrap_or_else(PoisonError::into_inner);
        users.retain(|_, held| Arc::strong_count(held) > 1);
        let held = users.entry(uid).or_default();
        (Arc::strong_count(held) <= LISTENERS_OF_USER).then(|| Arc::clone(held))
    }

    /// Returns the latest events since somebody listened for the first time, the last one first.
    pub(crate) fn latest(&self, most: usize) -> Vec<Arc<FeedEvent>> {
        self.follow(None);
        let kept = lock(&self.kept);
        let event = |sent: &StreamItem| match sent {
            StreamItem::Event(event, _) => Some(Arc::clone(event)),
            StreamItem::Missed(_) => None,
        };
        kept.events.iter().rev().filter_map(event).take(most).collect()
    }

    /// Starts following the controller, unless that is done already. `from`: position of the first listener.
    fn follow(&self, from: Option<Position>) {
        let mut kept = lock(&self.kept);
        if std::mem::replace(&mut kept.follows, true) {
            return;
        }
        drop(kept);
        let (place, kept, next) = (self.place.clone(), Arc::clone(&self.kept), self.next.clone());
        let listeners = Arc::clone(&self.listeners);
        std::thread::spawn(move || follow(&place, from, &kept, (&next, &listeners)));
    }
}

/// Follows the controller until there were no listeners for a while.
fn follow(
    place: &Place,
    from: Option<Position>,
    kept: &Mutex<RecentEvents>,
    (next, listeners): (&watch::Sender<u64>, &Semaphore),
) {
    let mut heard = Instant::now();
    let wanted = |from| FeedSelection { from, ..FeedSelection::default() };
    let mut follower = Follower::new(place.clone(), "rest", wanted(from));
    loop {
        let page = match follower.next_page() {
            Ok(page) => page,
            Err(e) => {
                tracing::warn!(error = %e, "the controller's events can't be followed");
                std::thread::sleep(PAUSE);
                follower = Follower::new(place.clone(), "rest", wanted(follower.position()));
                continue;
            }
        };
        let mut kept = lock(kept);
        if page.missed {
            kept.push(StreamItem::Missed(missed(page.next)));
        }
        for event in page.events {
            kept.push(StreamItem::Event(event, OnceLock::new()));
        }
        kept.at = Some(page.next);
        let end = kept.end();
        if listeners.available_permits() < LISTENERS_MAX {
            heard = Instant::now();
        } else if heard.elapsed() > UNHEARD_TIME {
            // A listener that comes from now on starts another thread.
            *kept = RecentEvents { first: end, ..RecentEvents::default() };
            return;
        }
        drop(kept);
        next.send_replace(end);
    }
}

fn lock(kept: &Mutex<RecentEvents>) -> std::sync::MutexGuard<'_, RecentEvents> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an event as a frame of the stream. JSON has no line break outside of texts, and in texts it is escaped.
fn frame(event: &FeedEvent) -> Bytes {
    format!("id: {}\nevent: {}\ndata: {}\n\n", event.at, event.kind.name(), json(event)).into()
}

/// Returns the frame that tells a listener that events before `next` were missed.
fn missed(next: Position) -> Bytes {
    format!("id: {next}\nevent: missed\ndata: {{\"missed\":true,\"position\":\"{next}\"}}\n\n").into()
}

/// Which events a listener wants: the parameters of the request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EventsQuery {
    /// Position after which to begin. Empty: now.
    from: String,
    /// Names of users, one of which must own the job.
    user: String,
    /// Ids of jobs or arrays, one of which the event must be about.
    job: String,
    /// Nodes as a host list, one of which the event must be about.
    node: String,
    /// Kinds of events.
    kind: String,
}

#[derive(Clone, Debug, Default)]
struct Filter {
    users: BTreeSet<String>,
    jobs: BTreeSet<u32>,
    nodes: BTreeSet<String>,
    kinds: Vec<FeedKind>,
}

impl Filter {
    fn of(asked: &EventsQuery) -> Result<Self, Failure> {
        let wrong = |text: String| Failure::new(StatusCode::BAD_REQUEST, text);
        let words = |text: &str| text.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>();
        for (name, text) in [("user", &asked.user), ("job", &asked.job), ("kind", &asked.kind)] {
            if text.split(',').count() > WANTED_MAX {
                return Err(wrong(format!("{name}: at most {WANTED_MAX} may be named")));
            }
        }
        let id = |word: String| {
            word.split('_')
                .next()
                .and_then(|id| id.parse().ok())
                .ok_or_else(|| wrong(format!("job: `{word}` is no job id")))
        };
        let jobs = words(&asked.job).into_iter().map(id).collect::<Result<_, _>>()?;
        let nodes = hostlist::expand_within(&asked.node, WANTED_MAX);
        let nodes = nodes.map_err(|e| wrong(format!("node: `{}`: {e}", asked.node)))?.into_iter().collect();
        let kinds = words(&asked.kind).iter().map(|kind| kind.parse()).collect::<Result<_, String>>().map_err(wrong)?;
        Ok(Self { users: words(&asked.user).into_iter().collect(), jobs, nodes, kinds })
    }

    fn fits(&self, event: &FeedEvent) -> bool {
        let job = event.job.as_ref();
        let user = || job.is_some_and(|job| self.users.contains(&*job.user));
        let ids = || {
            job.is_some_and(|job| {
                self.jobs.contains(&job.id.0) || job.task.is_some_and(|task| self.jobs.contains(&task.array.0))
            })
        };
        let nodes = || {
            hostlist::expand(&event.nodes)
                .is_ok_and(|names| names.iter().any(|name| self.nodes.contains(name.as_str())))
        };
        (self.kinds.is_empty() || self.kinds.contains(&event.kind))
            && (self.users.is_empty() || user())
            && (self.jobs.is_empty() || ids())
            && (self.nodes.is_empty() || nodes())
    }
}

/// `GET /squall/v1/events`: server-sent events, without end.
pub(crate) async fn events(
    State(server): State<ServerHandle>,
    caller: Caller,
    headers: HeaderMap,
    Query(asked): Query<EventsQuery>,
) -> Result<Response, Failure> {
    let filter = Filter::of(&asked)?;
    // A browser that reconnects sends the last position that it has seen.
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).unwrap_or(&asked.from);
    let from: Option<Position> = match last {
        "" => None,
        text => Some(text.parse().map_err(|e| Failure::new(StatusCode::BAD_REQUEST, format!("from: {e}")))?),
    };
    let full = || Failure::new(StatusCode::SERVICE_UNAVAILABLE, "too many listeners; try again later");
    let own = server.events.one_of(caller.uid).ok_or_else(full)?;
    let seat = Arc::clone(&server.events.listeners).try_acquire_owned().map_err(|_| full())?;
    server.events.follow(from);
    let (kept, mut next) = (Arc::clone(&server.events.kept), server.events.next.subscribe());
    // "From now on" begins when the controller is followed.
    let begun = async {
        loop {
            let is_followed = lock(&kept).at.is_some();
            if is_followed || next.changed().await.is_err() {
                return;
            }
        }
    };
    let away = |_| Failure::new(StatusCode::SERVICE_UNAVAILABLE, "the controller's events can't be followed now");
    tokio::time::timeout(BEGIN_TIME, begun).await.map_err(away)?;
    let mut greeting = b": squall\n\n".to_vec();
    let cursor = {
        let kept = lock(&kept);
        match from {
            None => kept.end(),
            Some(at) => kept.after(at).unwrap_or_else(|| {
                greeting.extend_from_slice(&missed(at));
                kept.first
            }),
        }
    };
    let (checked, who) = (Instant::now(), (caller.identity, Origin::User(caller.uid)));
    let listener = Listener { server, who, checked, kept, next, cursor, filter, _seats: (seat, own) };
    let stream = Stream { greeting: Some(greeting.into()), waiting: Some(Box::pin(listener.batch())) };
    let mut response = Body::from_stream(stream).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies such as nginx would otherwise hold events back until they have some kilobytes.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

struct Listener {
    server: ServerHandle,
    /// The listener's proof, and the user as whom it was confirmed.
    who: (Identity, Origin),
    /// When it was last checked that the listener's token holds.
    checked: Instant,
    kept: Arc<Mutex<RecentEvents>>,
    next: watch::Receiver<u64>,
    /// Number of the next event to send.
    cursor: u64,
    filter: Filter,
    _seats: (tokio::sync::OwnedSemaphorePermit, Arc<()>),
}

impl Listener {
    /// Waits for events that the listener wants, and returns them as frames. None: its token does not hold any more.
    async fn batch(mut self) -> Option<(Bytes, Self)> {
        let begin = tokio::time::Instant::now();
        loop {
            if self.checked.elapsed() >= CHECK_TIME && !self.still_holds().await {
                return None;
            }
            let looked = tokio::time::Instant::now();
            let frames = self.take();
            if !frames.is_empty() {
                tokio::time::sleep_until(begin + BATCH_TIME).await;
                return Some((frames.into(), self));
            }
            let quiet = QUIET_TIME.saturating_sub(begin.elapsed());
            let wait = quiet.min(CHECK_TIME.saturating_sub(self.checked.elapsed()));
            match tokio::time::timeout(wait, self.next.changed()).await {
                Ok(Ok(())) => tokio::time::sleep_until(looked + BATCH_TIME).await,
                // The sender lives as long as the server.
                Ok(Err(_)) => std::future::pending().await,
                Err(_) if begin.elapsed() >= QUIET_TIME => return Some((Bytes::from_static(b": alive\n\n"), self)),
                Err(_) => {}
            }
        }
    }

    /// Checks whether the controller still accepts the listener's token. A connection over the Unix socket is its user's
    /// for as long as it stands.
    async fn still_holds(&mut self) -> bool {
        self.checked = Instant::now();
        let (identity, origin) = &self.who;
        if matches!(identity, Identity::Socket(_)) {
            return true;
        }
        let known = self.server.callers.confirm(&self.server.cluster, identity, Some(*origin)).await;
        !matches!(known, Err(error @ ClientError::Refused(_)) if !error.is_transient())
    }

    fn take(&mut self) -> Vec<u8> {
        let listeners = LISTENERS_MAX - self.server.events.listeners.available_permits();
        let most = (BATCHES_BYTES / listeners.max(1)).clamp(BATCH_BYTES_LEAST, BATCH_BYTES);
        let kept = lock(&self.kept);
        self.next.mark_unchanged();
        let mut frames = Vec::new();
        // Whoever is too slow goes on with what is new: the oldest events would be gone before they are sent.
        if let Some(at) = kept.at.filter(|_| self.cursor < kept.first) {
            frames.extend_from_slice(&missed(at));
            self.cursor = kept.end();
        }
        let new = kept.events.range(self.cursor.saturating_sub(kept.first) as usize..);
        for sent in new.take(LOOKS) {
            self.cursor += 1;
            match sent {
                StreamItem::Missed(frame) => frames.extend_from_slice(frame),
                StreamItem::Event(event, made) if self.filter.fits(event) => {
                    frames.extend_from_slice(made.get_or_init(|| frame(event)));
                }
                StreamItem::Event(..) => {}
            }
            if frames.len() >= most {
                break;
            }
        }
        if self.cursor < kept.end() {
            self.next.mark_changed();
        }
        frames
    }
}

type Batch = Pin<Box<dyn Future<Output = Option<(Bytes, Listener)>> + Send>>;

/// The body of an answer: batches of frames, one after the other.
struct Stream {
    greeting: Option<Bytes>,
    /// None: the stream has ended.
    waiting: Option<Batch>,
}

impl futures_core::Stream for Stream {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(greeting) = self.greeting.take() {
            return Poll::Ready(Some(Ok(greeting)));
        }
        let Some(waiting) = &mut self.waiting else { return Poll::Ready(None) };
        match waiting.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => {
                self.waiting = None;
                Poll::Ready(None)
            }
            Poll::Ready(Some((bytes, listener))) => {
                self.waiting = Some(Box::pin(listener.batch()));
                Poll::Ready(Some(Ok(bytes)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use squall_files::place::Place;

    use super::{Events, EventsQuery, Filter, LISTENERS_OF_USER, WANTED_MAX};

    #[test]
    fn one_user_leaves_places_for_listeners_of_others() {
        let events = Events::new(Place::at(&std::env::temp_dir()).unwrap());
        let held: Vec<_> = (0..=LISTENERS_OF_USER).map_while(|_| events.one_of(1)).collect();
        assert_eq!(held.len(), LISTENERS_OF_USER);
        assert!(events.one_of(2).is_some());
        drop(held);
        assert!(events.one_of(1).is_some());
    }

    #[test]
    fn a_listener_can_not_want_millions() {
        let refused = |asked: EventsQuery| Filter::of(&asked).is_err();
        assert!(refused(EventsQuery { node: "n[0-1048575]".to_owned(), ..EventsQuery::default() }));
        assert!(refused(EventsQuery { user: "a,".repeat(WANTED_MAX + 1), ..EventsQuery::default() }));
        assert!(refused(EventsQuery { job: "1,".repeat(WANTED_MAX + 1), ..EventsQuery::default() }));
        assert!(!refused(EventsQuery {
            node: "n[1-3]".to_owned(),
            user: "ann,bob".to_owned(),
            ..EventsQuery::default()
        }));
    }
}
