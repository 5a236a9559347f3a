//! The admin endpoint over a real socket, with a source of invented numbers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use larder_server::admin::{self, AdminHandle, Family, GroupRow, Kind, Source, Value, names};
use larder_server::latency::{Class, WorkerLatency, total};

struct MadeUp {
    ill: AtomicBool,
}

impl Source for MadeUp {
    fn families(&self) -> Vec<Family> {
        let worker = WorkerLatency::new();
        worker.record(Class::Get, 900, 3);
        worker.record(Class::Get, 5_000_000_000, 1);
        let times = |class: Class| (class.name(), Value::Times(total([&*worker], class)));
        vec![
            Family::single(names::EVICTIONS, "Items that had to go", Kind::Counter, "", Value::Count(17)),
            Family::single(names::UPTIME, "Time since the start", Kind::Gauge, "seconds", Value::Amount(1.5)),
            Family::labelled(
                names::MEMORY,
                "Where the memory went",
                Kind::Gauge,
                "bytes",
                "purpose",
                [("items", Value::Count(10)), ("a \"quoted\" one", Value::Count(20))],
            ),
            Family::labelled(
                names::REQUESTS,
                "Time of a request",
                Kind::Histogram,
                "seconds",
                "command",
                [Class::Get, Class::Set].map(times),
            ),
        ]
    }

    fn groups(&self) -> Vec<GroupRow> {
        vec![GroupRow {
            size: "256",
            penalty: "100ms",
            items: 12,
            bytes: 2_400,
            columns: 0.5,
            outgoing: 7.0,
            incoming: 8.0,
            columns_received: 1.5,
            columns_given: 0.0,
            last_move: Some("received"),
            why: Some("it had more to gain".to_owned()),
        }]
    }

    fn healthy(&self) -> Result<(), String> {
        if self.ill.load(Relaxed) { Err("the keeper stands still".to_owned()) } else { Ok(()) }
    }
}

fn started() -> (AdminHandle, Arc<MadeUp>) {
    let source = Arc::new(MadeUp { ill: AtomicBool::new(false) });
    let handle = admin::start(SocketAddr::from(([127, 0, 0, 1], 0)), &[], source.clone()).unwrap();
    (handle, source)
}

/// The status line with the headers, and the body.
fn fetch(at: SocketAddr, path: &str) -> (String, String) {
    fetch_with(at, path, "")
}

/// The same with a line of the request's head, which ends in CR LF.
fn fetch_with(at: SocketAddr, path: &str, line: &str) -> (String, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {at}\r\n{line}Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Samples that stand in both forms of the metrics.
const SAMPLES: &[&str] = &[
    "larder_evictions_total 17",
    "larder_uptime_seconds 1.5",
    "larder_memory_bytes{purpose=\"items\"} 10",
    "larder_memory_bytes{purpose=\"a \\\"quoted\\\" one\"} 20",
    "# TYPE larder_request_duration_seconds histogram",
    "larder_request_duration_seconds_count{command=\"get\"} 4",
    "larder_request_duration_seconds_sum{command=\"get\"} 5.0000027",
    "larder_request_duration_seconds_bucket{le=\"5.12e-7\",command=\"get\"} 0",
    "larder_request_duration_seconds_bucket{le=\"0.000001024\",command=\"get\"} 3",
    "larder_request_duration_seconds_bucket{le=\"4.294967296\",command=\"get\"} 3",
    "larder_request_duration_seconds_bucket{le=\"8.589934592\",command=\"get\"} 4",
    "larder_request_duration_seconds_bucket{le=\"+Inf\",command=\"get\"} 4",
    "larder_request_duration_seconds_count{command=\"set\"} 0",
];

#[track_caller]
fn has_lines(body: &str, lines: &[&str]) {
    for line in lines {
        assert!(body.lines().any(|found| found == *line), "{line} is not in\n{body}");
    }
}

#[test]
fn metrics_are_text_of_prometheus() {
    let (admin, _) = started();
    let (head, body) = fetch(admin.local_addr, "/metrics");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    has_lines(&body, SAMPLES);
    has_lines(
        &body,
        &[
            "# HELP larder_evictions_total Items that had to go",
            "# TYPE larder_evictions_total counter",
            "# HELP larder_uptime_seconds Time since the start",
            "# TYPE larder_uptime_seconds gauge",
        ],
    );
    let others = ["# HELP ", "# TYPE ", "larder_"];
    for line in body.lines() {
        assert!(others.iter().any(|start| line.starts_with(start)), "{line}");
    }
    assert!(body.ends_with('\n'));
}

#[test]
fn metrics_are_openmetrics_text_where_that_is_asked_for() {
    let (admin, _) = started();
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5\r\n";
    let (head, body) = fetch_with(admin.local_addr, "/metrics", accept);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(
        head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{head}"
    );
    has_lines(&body, SAMPLES);
    has_lines(
        &body,
        &[
            "# HELP larder_evictions Items that had to go",
            "# TYPE larder_evictions counter",
            "# UNIT larder_uptime_seconds seconds",
        ],
    );
    assert!(body.ends_with("# EOF\n"));
}

#[test]
fn health_tells_the_reason() {
    let (admin, source) = started();
    let (head, body) = fetch(admin.local_addr, "/healthz");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(body, "ok\n");
    source.ill.store(true, Relaxed);
    let (head, body) = fetch(admin.local_addr, "/healthz");
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert_eq!(body, "the keeper stands still\n");
    // A server that is not ready need not be started again.
    let (head, body) = fetch(admin.local_addr, "/livez");
    assert!(head.starts_with("HTTP/1.1 200 ") && body == "ok\n", "{head}");
}

#[test]
fn the_json_has_the_same_numbers() {
    let (admin, _) = started();
    let (_, body) = fetch(admin.local_addr, "/api/status.json");
    let status: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status["healthy"], true);
    assert!(status["time_ms"].as_u64().unwrap() > 0);
    let family = |name: &str| {
        status["families"].as_array().unwrap().iter().find(|family| family["name"] == name).unwrap().clone()
    };
    assert_eq!(family(names::EVICTIONS)["samples"][0]["value"], 17);
    assert_eq!(family(names::MEMORY)["samples"][0]["labels"]["purpose"], "items");
    let get = &family(names::REQUESTS)["samples"][0];
    assert_eq!((&get["count"], &get["buckets"].as_array().unwrap().len()), (&4.into(), &2));
    let median = get["quantiles"]["0.5"].as_f64().unwrap();
    assert!((900e-9..960e-9).contains(&median), "{median}");
    assert!(family(names::REQUESTS)["samples"][1]["quantiles"]["0.5"].is_null());
}

#[test]
fn groups_come_as_json_with_the_reason_of_the_last_decision() {
    let (admin, _) = started();
    let (_, body) = fetch(admin.local_addr, "/api/groups.json");
    let groups: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&groups[0]["size"], &groups[0]["items"]), (&"256".into(), &12.into()));
    assert_eq!(
        (&groups[0]["columns_received"], &groups[0]["why"]),
        (&1.5.into(), &"it had more to gain".into())
    );
}

#[test]
fn the_page_is_four_files_that_find_each_other() {
    let (admin, _) = started();
    let (head, html) = fetch(admin.local_addr, "/");
    assert!(head.contains("content-type: text/html"), "{head}");
    for (path, kind) in
        [("page.css", "text/css"), ("draw.js", "text/javascript"), ("page.js", "text/javascript")]
    {
        assert!(html.contains(&format!("\"{path}\"")));
        let (head, body) = fetch(admin.local_addr, &format!("/{path}"));
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains(kind), "{head}");
        assert!(!body.is_empty());
    }
    let (head, _) = fetch(admin.local_addr, "/nothing");
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
}

#[test]
fn the_page_asks_for_the_names_a_source_exports() {
    let script = include_str!("../../src/admin/page/page.js");
    for name in [
        names::LOOKUPS,
        names::REQUESTS,
        names::MEMORY,
        names::MEMORY_LIMIT,
        names::ITEMS,
        names::CONNECTIONS,
        names::EVICTIONS,
        names::UPTIME,
        names::WORTH_OPTIONS,
        names::GROUP_ITEMS,
    ] {
        assert!(script.contains(&format!("\"{name}\"")), "{name}");
    }
}

#[test]
fn a_taken_address_is_an_error_and_a_stopped_one_is_free() {
    let (admin, source) = started();
    let at = admin.local_addr;
    let error = admin::start(at, &[], source.clone()).unwrap_err().to_string();
    assert!(error.contains(&at.to_string()) && error.contains("--admin"), "{error}");
    // A client that never speaks does not hold the end up.
    let _silent = TcpStream::connect(at).unwrap();
    admin.stop();
    assert!(TcpStream::connect(at).is_err());
}

#[test]
fn heads_without_end_are_refused_and_those_that_never_come_give_way() {
    let (admin, _) = started();
    let at = admin.local_addr;
    let mut long = TcpStream::connect(at).unwrap();
    // What is beyond the limit may meet a connection that is closed already: then there is an error. A head that is
    // only waited for in vain ends without one.
    let written = write!(long, "GET /healthz HTTP/1.1\r\nHost: {at}\r\nX: {}", "x".repeat(100_000));
    let mut answer = Vec::new();
    let ended = long.read_to_end(&mut answer);
    let is_cut_off = answer.is_empty() && (written.is_err() || ended.is_err());
    assert!(is_cut_off || answer.starts_with(b"HTTP/1.1 431 "), "{}", answer.escape_ascii());

    // More than one address may have at a time. The oldest one gives way, and nobody waits for the youngest.
    let half: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(at).unwrap();
            write!(stream, "GET /healthz HTTP/1.1\r\n").unwrap();
            stream
        })
        .collect();
    let (head, body) = fetch(at, "/healthz");
    assert!(head.starts_with("HTTP/1.1 200 ") && body == "ok\n", "{head}");
    half[99].set_nonblocking(true).unwrap();
    let youngest = (&half[99]).read(&mut [0; 64]).map_err(|error| error.kind());
    assert_eq!(youngest, Err(std::io::ErrorKind::WouldBlock), "it is closed");
}

/// Sends a request on a connection that stays open. `false` = the connection is closed.
fn asked_again(stream: &mut TcpStream, at: SocketAddr) -> bool {
    let (mut answer, mut part) = (Vec::new(), [0; 1024]);
    if write!(stream, "GET /healthz HTTP/1.1\r\nHost: {at}\r\n\r\n").is_err() {
        return false;
    }
    while !answer.ends_with(b"\r\n\r\nok\n") {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return false,
            Ok(length) => answer.extend_from_slice(&part[..length]),
        }
    }
    true
}

#[test]
fn clients_that_keep_connections_open_keep_nobody_out() {
    let (admin, _) = started();
    let at = admin.local_addr;
    let open = || TcpStream::connect(at).unwrap();
    // A quarter of the places is the share of one address.
    let mut held: Vec<TcpStream> = (0..16).map(|_| open()).collect();
    for stream in &mut held {
        assert!(asked_again(stream, at));
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    // The first is used again, so the second is the one without a request for longest.
    assert!(asked_again(&mut held[0], at));
    let mut new = open();
    assert!(asked_again(&mut new, at));
    assert!(!asked_again(&mut held[1], at));
    assert!(asked_again(&mut held[0], at) && asked_again(&mut held[2], at) && asked_again(&mut new, at));
}
