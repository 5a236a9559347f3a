//! The admin endpoint: metrics, health and a live page, over HTTP on a port of its own.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | every number, as OpenMetrics text |
//! | `/healthz` | 200 `ok`, or 503 and the reason |
//! | `/api/status.json` | every number, as JSON; histograms with all their filled buckets |
//! | `/api/zones.json` | the zones of the flash: `[["log", bytes written, bytes live, times erased], ...]` |
//! | `/` | a page that reads the JSON once a second |
//!
//! Goal: nothing here can slow a request: one thread, asked seldom, reading counters that workers write anyway. Its clients
//! cannot take memory either: few connections at a time, and little of each.
//! Non-goals: changing anything; secrecy (it listens on this machine only unless told otherwise).

mod listen;
mod metrics;
pub mod process;
mod status;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::latency::Histogram;

/// Where the numbers come from. Called from the admin thread, once for each request over HTTP.
pub trait Source: Send + Sync {
    /// Every number there is. Families keep their order; names are unique.
    fn families(&self) -> Vec<Family>;
    /// The zones of the flash, in their order; none where there is no flash.
    fn zones(&self) -> Vec<ZoneCell> {
        Vec::new()
    }
    /// Whether the server does its work; the reason, in one line, if not.
    fn healthy(&self) -> Result<(), String>;
}

/// One zone of the flash, for the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneCell {
    /// What it is used for, in a word.
    pub used: &'static str,
    /// Bytes of records written to it.
    pub written_bytes: u64,
    /// Of them, those that may still be wanted, about.
    pub live_bytes: u64,
    /// How often it was erased.
    pub resets: u64,
}

/// Numbers of one name.
#[derive(Clone, Debug)]
pub struct Family {
    /// The name, without the program's prefix, the unit and `_total`, which the endings of OpenMetrics add:
    /// `evictions` is exported as `larder_evictions_total`.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// The unit: `bytes`, `seconds`, or empty for a plain count.
    pub unit: &'static str,
    /// How the numbers behave.
    pub kind: Kind,
    /// One number for each set of labels.
    pub samples: Vec<Sample>,
}

/// How the numbers of a family behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows: [`Value::Count`] or [`Value::Amount`].
    Counter,
    /// Goes up and down: [`Value::Count`] or [`Value::Amount`].
    Gauge,
    /// [`Value::Times`]; the unit is `seconds`.
    Histogram,
}

/// One number and the labels that tell it from its siblings.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Names and values; names are lower case with underscores.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: Value,
}

/// A number.
#[derive(Clone, Debug)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// A number with a fraction.
    Amount(f64),
    /// A histogram of durations.
    Times(Histogram),
}

impl Family {
    /// A family of one number without labels.
    pub fn single(
        name: &'static str,
        help: &'static str,
        kind: Kind,
        unit: &'static str,
        value: Value,
    ) -> Family {
        Family { name, help, unit, kind, samples: vec![Sample { labels: Vec::new(), value }] }
    }

    /// A family whose numbers differ in one label.
    pub fn labelled(
        name: &'static str,
        help: &'static str,
        kind: Kind,
        unit: &'static str,
        label: &'static str,
        values: impl IntoIterator<Item = (impl Into<String>, Value)>,
    ) -> Family {
        let sample = |(text, value): (_, Value)| Sample { labels: vec![(label, text)], value };
        let values = values.into_iter().map(|(text, value)| (text.into(), value));
        Family { name, help, unit, kind, samples: values.map(sample).collect() }
    }
}

/// Names of the families that the page shows at its head. A source that exports them under these names is seen there;
/// every other family stands in the table below.
pub mod names {
    /// Counter, label `result` = `hit` or `miss`: keys looked up.
    pub const LOOKUPS: &str = "lookups";
    /// Histogram, label `command` = [`crate::latency::Class::name`]: time of a request within the server.
    pub const REQUESTS: &str = "request_duration";
    /// Gauge in bytes, label `purpose`: where the memory went.
    pub const MEMORY: &str = "memory";
    /// Gauge in bytes: the promise of `-m`.
    pub const MEMORY_LIMIT: &str = "memory_limit";
    /// Gauge: items held.
    pub const ITEMS: &str = "items";
    /// Gauge: clients connected.
    pub const CONNECTIONS: &str = "connections";
    /// Counter: items that had to go.
    pub const EVICTIONS: &str = "evictions";
    /// Gauge in seconds: time since the start.
    pub const UPTIME: &str = "uptime";
}

/// The running endpoint. Dropping it stops it.
#[derive(Debug)]
pub struct AdminHandle {
    /// Where it listens, the port resolved.
    pub local_addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl AdminHandle {
    /// Stops listening and waits for the thread to end. Answers under way are cut.
    pub fn stop(self) {}
}

impl Drop for AdminHandle {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic of that thread was already reported on stderr, and it owes us nothing.
            let _ = thread.join();
        }
    }
}

/// Why the endpoint could not start; one line.
#[derive(Debug)]
pub struct AdminError {
    at: SocketAddr,
    error: std::io::Error,
}

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot open the admin page at {}: {}; choose another address with --admin, or off",
            self.at, self.error
        )
    }
}

impl std::error::Error for AdminError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Binds `addr` (port 0: any free one) and serves `source` from a thread named `admin`.
pub fn start(addr: SocketAddr, source: Arc<dyn Source>) -> Result<AdminHandle, AdminError> {
    let failed = |error| AdminError { at: addr, error };
    let listener = std::net::TcpListener::bind(addr).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let local_addr = listener.local_addr().map_err(failed)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(failed)?;
    let listener = {
        let _inside = runtime.enter();
        TcpListener::from_std(listener).map_err(failed)?
    };
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("admin".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = listen::serve(listener, routes(source)) => {}
                    // The sender is dropped, never used: the error is the message.
                    _ = stopped => {}
                }
            });
        })
        .map_err(failed)?;
    Ok(AdminHandle { local_addr, stop: Some(stop), thread: Some(thread) })
}

fn routes(source: Arc<dyn Source>) -> Router {
    let page =
        |kind: &'static str, text: &'static str| get(move || async move { answer(kind, text.to_owned()) });
    Router::new()
        .route("/", page("text/html; charset=utf-8", include_str!("page/index.html")))
        .route("/page.css", page("text/css; charset=utf-8", include_str!("page/page.css")))
        .route("/page.js", page("text/javascript; charset=utf-8", include_str!("page/page.js")))
        .route("/metrics", get(metrics_text))
        .route("/healthz", get(health))
        .route("/api/status.json", get(status_json))
        .route("/api/zones.json", get(zones_json))
        .fallback(|| async {
            (StatusCode::NOT_FOUND, "there is /, /metrics, /healthz, /api/status.json and /api/zones.json\n")
        })
        .with_state(source)
}

async fn metrics_text(State(source): State<Arc<dyn Source>>) -> Response {
    match metrics::text(source.families()) {
        Ok(text) => answer(metrics::CONTENT_TYPE, text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn health(State(source): State<Arc<dyn Source>>) -> Response {
    match source.healthy() {
        Ok(()) => answer("text/plain; charset=utf-8", "ok\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

async fn status_json(State(source): State<Arc<dyn Source>>) -> Response {
    answer("application/json", status::json(&source.families(), source.healthy()))
}

async fn zones_json(State(source): State<Arc<dyn Source>>) -> Response {
    answer("application/json", status::zones_json(&source.zones()))
}

/// 200 with headers that keep old numbers out of caches and foreign code out of the page.
fn answer(kind: &'static str, body: String) -> Response {
    let headers: [(HeaderName, &'static str); 4] = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, body).into_response()
}
