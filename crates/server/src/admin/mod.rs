//! The admin endpoint: metrics, health and a live page, over HTTP on a port of its own.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | all numbers, as text of Prometheus, or of OpenMetrics where the request asks for that |
//! | `/healthz` | readiness: 200 `ok`, or 503 and the reason while flash recovers and while the server stops |
//! | `/livez` | liveness: 200 `ok`, or 503 and the reason where a worker is stuck |
//! | `/api/status.json` | all numbers, as JSON; histograms with all their filled buckets |
//! | `/api/zones.json` | the zones of the flash: `[[use, bytes written, bytes live, times erased], ...]` |
//! | `/api/curve.json` | what other sizes of memory would miss |
//! | `/history` | the main numbers of the last hour, one row for every ten seconds, as JSON |
//! | `/api/groups.json` | the groups of items, and what decided about their room |
//! | `/api/keys.json` | the hottest keys and the largest items; `null` where keys are not shown |
//! | `/` | a page that reads the JSON once a second |
//!
//! Goal: nothing here can slow a request. One thread reads, seldom, counters that workers write anyway. Its clients
//! cannot take much memory: it serves few connections at a time, and buffers little of each. Few clients cannot keep
//! the others out: where no connection is free, the one without a request for longest gives way.
//!
//! Non-goals: changing anything; secrecy (the endpoint listens on this machine only unless told otherwise, and answers
//! no request that came by a name which is not this machine's).

mod family;
mod history;
mod hosts;
mod listen;
mod metrics;
pub mod process;
mod status;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use self::hosts::Hosts;
pub use family::{
    CurveShown, Family, GroupRow, HotRow, KeyRows, Kind, Moment, Sample, Source, Value, ZoneCell, names,
};
use history::History;

/// The running endpoint. Dropping it stops it.
#[derive(Debug)]
pub struct AdminHandle {
    /// The address that the endpoint listens on, with its port.
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
            // A panic of that thread was already reported on stderr.
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

/// Why the page cannot be at this address, as far as that can be known without opening its port.
pub(crate) fn problem_of_listening(at: SocketAddr) -> Option<String> {
    let error = std::net::UdpSocket::bind((at.ip(), 0)).err()?;
    Some(AdminError { at, error }.to_string())
}

/// Binds `addr` (port 0 = any free one) and serves `source` from a thread named `admin`. Requests that name a host are
/// answered if it is an address, `localhost`, the name of this machine or one of `host_names`.
pub fn start(
    addr: SocketAddr,
    host_names: &[String],
    source: Arc<dyn Source>,
) -> Result<AdminHandle, AdminError> {
    let hosts = Hosts::new(host_names);
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
                let history = Arc::new(Mutex::new(History::new(source.moment())));
                tokio::select! {
                    () = listen::serve(listener, routes(source.clone(), history.clone(), hosts)) => {}
                    () = history::record(&*source, &history) => {}
                    // The sender is dropped and never sends: the error is the message.
                    _ = stopped => {}
                }
            });
        })
        .map_err(failed)?;
    Ok(AdminHandle { local_addr, stop: Some(stop), thread: Some(thread) })
}

fn routes(source: Arc<dyn Source>, history: Arc<Mutex<History>>, hosts: Hosts) -> Router {
    let page =
        |kind: &'static str, text: &'static str| get(move || async move { answer(kind, text.to_owned()) });
    Router::new()
        .route("/", page("text/html; charset=utf-8", include_str!("page/index.html")))
        .route("/page.css", page("text/css; charset=utf-8", include_str!("page/page.css")))
        .route("/draw.js", page("text/javascript; charset=utf-8", include_str!("page/draw.js")))
        .route("/page.js", page("text/javascript; charset=utf-8", include_str!("page/page.js")))
        .route("/metrics", get(metrics_text))
        .route(
            "/healthz",
            get(|State(source): State<Arc<dyn Source>>| async move { probed(source.healthy()) }),
        )
        .route("/livez", get(|State(source): State<Arc<dyn Source>>| async move { probed(source.alive()) }))
        .route("/api/status.json", get(status_json))
        .route("/api/zones.json", get(zones_json))
        .route("/api/groups.json", get(groups_json))
        .route("/api/keys.json", get(keys_json))
        .route("/api/curve.json", get(curve_json))
        .route("/history", get(move || async move { history_json(&history) }))
        .fallback(|| async {
            (
                StatusCode::NOT_FOUND,
                "there is /, /metrics, /healthz, /livez, /history, /api/status.json, /api/zones.json, \
                 /api/groups.json, /api/keys.json and /api/curve.json\n",
            )
        })
        .with_state(source)
        .layer(middleware::from_fn_with_state(hosts, hosts::check))
}

async fn metrics_text(State(source): State<Arc<dyn Source>>, headers: HeaderMap) -> Response {
    let form = metrics::Form::asked_for(&headers);
    match metrics::text(source.families(), form) {
        Ok(text) => answer(form.content_type(), text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// The answer to a probe: `ok`, or the reason why not.
fn probed(found: Result<(), String>) -> Response {
    match found {
        Ok(()) => answer("text/plain; charset=utf-8", "ok\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

async fn status_json(State(source): State<Arc<dyn Source>>) -> Response {
    answer("application/json", status::json(&source.families(), source.healthy(), &source.serves()))
}

async fn zones_json(State(source): State<Arc<dyn Source>>) -> Response {
    answer("application/json", status::zones_json(&source.zones()))
}

async fn groups_json(State(source): State<Arc<dyn Source>>) -> Response {
    answer("application/json", status::groups_json(&source.groups()))
}

async fn keys_json(State(source): State<Arc<dyn Source>>) -> Response {
    answer("application/json", status::keys_json(source.keys().as_ref()))
}

async fn curve_json(State(source): State<Arc<dyn Source>>) -> Response {
    answer("application/json", status::curve_json(&source.curve()))
}

fn history_json(history: &Mutex<History>) -> Response {
    answer("application/json", history.lock().expect("no panic under this lock").json())
}

/// A reply with status 200, and with headers that keep old numbers out of caches and foreign code out of the page.
fn answer(kind: &'static str, body: String) -> Response {
    let headers: [(HeaderName, &'static str); 4] = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, body).into_response()
}
