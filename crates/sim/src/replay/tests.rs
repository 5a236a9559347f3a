//! Tests of whole runs against a small server that misbehaves in a different way in each test.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::connection::{ConnectionState, Queued};
use super::feed::{Order, Phase};
use super::*;
use crate::{Fields, Op, Request};

/// What the server does with its reply, or instead of it.
enum Act {
    Send(Vec<u8>),
    Late(Duration, Vec<u8>),
    Close,
    Nothing,
}

/// A request to the server: the words of the line, and the value after it.
struct Ask {
    words: Vec<String>,
    /// The number of earlier requests, without `version`.
    nth: usize,
}

impl Ask {
    fn is(&self, verb: &str) -> bool {
        self.words[0] == verb
    }
}

type Items = HashMap<String, (Vec<u8>, u64)>;
type Twist = dyn Fn(&Ask, Vec<u8>) -> Act + Send + Sync;

/// A server that behaves like memcached, except for what `twist` changes.
fn serve(twist: impl Fn(&Ask, Vec<u8>) -> Act + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let items = Arc::new(Mutex::new(Items::new()));
    let (twist, asked): (Arc<Twist>, _) = (Arc::new(twist), Arc::new(AtomicUsize::new(0)));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (items, twist, asked) = (items.clone(), twist.clone(), asked.clone());
            std::thread::spawn(move || talk(stream, &items, twist.as_ref(), &asked));
        }
    });
    Server::Tcp { name: address.to_string(), address }
}

/// Serves one connection until it is closed.
fn talk(stream: TcpStream, items: &Mutex<Items>, twist: &Twist, asked: &AtomicUsize) -> Option<()> {
    let mut write = stream.try_clone().ok()?;
    let mut read = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if read.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        if words[0] == "version" {
            write.write_all(b"VERSION 1.2.3\r\n").ok()?;
            continue;
        }
        let length_at = if words[0] == "ms" { 2 } else { 4 };
        let value = match words.get(length_at).and_then(|bytes| bytes.parse::<usize>().ok()) {
            Some(bytes) => {
                let mut value = vec![0; bytes + 2];
                read.read_exact(&mut value).ok()?;
                value.truncate(bytes);
                value
            }
            None => Vec::new(),
        };
        let reply = answer(&mut items.lock().expect("no panic"), &words, value);
        let ask = Ask { words, nth: asked.fetch_add(1, Ordering::SeqCst) };
        match twist(&ask, reply) {
            Act::Send(reply) => write.write_all(&reply).ok()?,
            Act::Late(time, reply) => {
                std::thread::sleep(time);
                write.write_all(&reply).ok()?;
            }
            Act::Close => return None,
            Act::Nothing => {}
        }
    }
}

fn answer(items: &mut Items, words: &[String], value: Vec<u8>) -> Vec<u8> {
    let key = words[1].clone();
    let unique = items.values().map(|(_, unique)| *unique).max().unwrap_or(0) + 1;
    let there = items.contains_key(&key);
    let stored = |items: &mut Items, value| {
        items.insert(key.clone(), (value, unique));
        "STORED".to_owned()
    };
    let line = match (words[0].as_str(), items.get(&key).cloned()) {
        ("get" | "gets", None) => "END".to_owned(),
        ("get" | "gets", Some((value, unique))) => {
            let number = if words[0] == "gets" { format!(" {unique}") } else { String::new() };
            let mut reply = format!("VALUE {key} 0 {}{number}\r\n", value.len()).into_bytes();
            reply.extend_from_slice(&value);
            reply.extend_from_slice(b"\r\nEND\r\n");
            return reply;
        }
        ("set", _) => stored(items, value),
        // Every store of the tests states a cost of a millisecond.
        ("ms", _) if words[4] == "G1000" => {
            stored(items, value);
            "HD".to_owned()
        }
        ("add", _) if !there => stored(items, value),
        ("replace", _) if there => stored(items, value),
        ("append", Some((old, _))) => stored(items, [old, value].concat()),
        ("prepend", Some((old, _))) => stored(items, [value, old].concat()),
        ("add" | "replace" | "append" | "prepend", _) => "NOT_STORED".to_owned(),
        ("cas", None) => "NOT_FOUND".to_owned(),
        ("cas", Some((_, unique))) if unique.to_string() == words[5] => stored(items, value),
        ("cas", _) => "EXISTS".to_owned(),
        ("delete", _) => if items.remove(&key).is_some() { "DELETED" } else { "NOT_FOUND" }.to_owned(),
        ("incr" | "decr", None) => "NOT_FOUND".to_owned(),
        ("incr" | "decr", Some((value, _))) => match String::from_utf8_lossy(&value).parse::<u64>() {
            Ok(number) => {
                let number = if words[0] == "incr" { number + 1 } else { number.saturating_sub(1) };
                stored(items, number.to_string().into_bytes());
                number.to_string()
            }
            Err(_) => "CLIENT_ERROR cannot increment or decrement non-numeric value".to_owned(),
        },
        _ => "ERROR".to_owned(),
    };
    format!("{line}\r\n").into_bytes()
}

/// Requests from memory.
struct List(Vec<Request>, usize);

impl Source for List {
    fn fill(&mut self, into: &mut Vec<Request>, most: usize) -> Result<usize, SourceError> {
        let next = &self.0[self.1..self.0.len().min(self.1 + most)];
        into.extend_from_slice(next);
        self.1 += next.len();
        Ok(next.len())
    }

    fn fields(&self) -> Fields {
        Fields { times: true, sizes: true, ops: true, ttls: true, penalties: true }
    }

    fn describe(&self) -> String {
        "a list".to_owned()
    }

    fn done_ratio(&self) -> Option<f64> {
        Some(self.1 as f64 / self.0.len().max(1) as f64)
    }
}

fn request(op: Op, key: u64) -> Request {
    Request { op, key, key_bytes: 12, value_bytes: 40, penalty_us: 1000, ..Request::default() }
}

/// Stores and reads each key `rounds` times.
fn sets_and_gets(keys: u64, rounds: usize) -> Vec<Request> {
    let round = || (0..keys).flat_map(|key| [request(Op::Set, key), request(Op::Get, key)]);
    (0..rounds).flat_map(|_| round()).collect()
}

fn options(server: Server) -> Options {
    Options { connections: 3, depth: 4, timeout: Duration::from_secs(60), ..Options::new(server) }
}

fn play(options: Options, requests: &[Request]) -> Outcome {
    let open = || Ok(Box::new(List(requests.to_vec(), 0)) as Box<dyn Source>);
    match run(options, &open, Arc::default()) {
        Ok(outcome) => outcome,
        Err(failure) => panic!("{failure:?}"),
    }
}

fn good(_: &Ask, reply: Vec<u8>) -> Act {
    Act::Send(reply)
}

/// The example of one kind of fault.
fn example<'a>(outcome: &'a Outcome, kind: &str) -> &'a str {
    let found = outcome.faults.examples.iter().find(|(known, _)| *known == kind);
    found.map_or_else(|| panic!("no {kind} in {:?}", outcome.faults), |(_, text)| text.as_str())
}

#[test]
fn a_good_server_has_nothing_wrong_and_every_request_counts() {
    for threads in [1, 3] {
        let outcome = play(Options { threads, ..options(serve(good)) }, &sets_and_gets(50, 3));
        assert_eq!(outcome.complaint(), None);
        assert_eq!(outcome.counts.requests(), 300);
        assert_eq!((outcome.counts.of(Kind::Get).done, outcome.counts.verified), (150, 150));
        assert_eq!(outcome.counts.hit_ratio(), Some(1.0));
        let line = "set 0........... 0 0 40\r\n".len() + 42;
        assert!(outcome.counts.bytes_out > 150 * line as u64 - 150 * 4, "{}", outcome.counts.bytes_out);
    }
}

#[test]
fn every_operation_is_played_and_understood() {
    let ops = [
        (Op::Get, false),
        (Op::Replace, false),
        (Op::Append, false),
        (Op::Cas, false),
        (Op::Incr, false),
        (Op::Delete, false),
        (Op::Add, true),
        (Op::Add, false),
        (Op::Append, true),
        (Op::Prepend, true),
        (Op::Get, true),
        (Op::Replace, true),
        (Op::Cas, true),
        (Op::Get, true),
        (Op::Incr, false),
        (Op::Set, true),
        (Op::Incr, true),
        (Op::Incr, true),
        (Op::Decr, true),
        (Op::Get, true),
        (Op::Delete, true),
        (Op::Get, false),
    ];
    // A cas takes two exchanges, and a later request of its key may come between them; therefore one request is in
    // flight at a time. Counting with an absent item uses a key of its own, because the value of a counted key is
    // stored as a number from then on.
    let key = |at: usize| if at == 4 { 8 } else { 7 };
    let requests: Vec<Request> = ops.iter().enumerate().map(|(at, (op, _))| request(*op, key(at))).collect();
    let outcome = play(Options { depth: 1, connections: 1, ..options(serve(good)) }, &requests);
    assert_eq!(outcome.complaint(), None);
    assert_eq!(outcome.counts.requests(), ops.len() as u64);
    for kind in Kind::REPORTED {
        let of_kind = ops.iter().filter(|(op, _)| format!("{op:?}").to_lowercase() == kind.name());
        let done = of_kind.clone().filter(|(_, done)| *done).count() as u64;
        let answers = outcome.counts.of(kind);
        assert_eq!((answers.all(), answers.done), (of_kind.count() as u64, done), "{}", kind.name());
    }
    assert_eq!(outcome.counts.not_numbers, 1);
}

#[test]
fn values_with_wrong_octets_are_found_and_shown() {
    let server = serve(|ask, mut reply| {
        if ask.is("get") && ask.nth == 41 {
            let middle = reply.len() - 12;
            reply[middle] ^= 4;
        }
        Act::Send(reply)
    });
    let outcome = play(Options { connections: 1, ..options(server) }, &sets_and_gets(30, 1));
    assert_eq!(outcome.faults.wrong, [(Wrong::Octets, 1)].into());
    let text = example(&outcome, "wrong bytes");
    assert!(text.starts_with("get k") && text.contains("40 bytes, different from byte 35 on"), "{text}");
    assert_eq!(outcome.counts.verified, 29);
    assert_eq!(outcome.complaint().as_deref(), Some("1 x wrong bytes"));
}

#[test]
fn a_value_of_another_key_or_another_length_is_found() {
    let other = Mutex::new(Vec::new());
    let server = serve(move |ask, reply| {
        if !ask.is("get") {
            return Act::Send(reply);
        }
        let data_at = reply.len() - 47;
        let mut other = other.lock().expect("no panic");
        let mut mixed = reply.clone();
        if ask.nth == 21 {
            mixed[data_at..].copy_from_slice(&other[..]);
        }
        *other = reply[data_at..].to_vec();
        if ask.nth == 31 {
            let line = format!("VALUE {} 0 39\r\n", ask.words[1]);
            mixed = [line.as_bytes(), &reply[data_at..data_at + 39], b"\r\nEND\r\n"].concat();
        }
        Act::Send(mixed)
    });
    let outcome = play(Options { connections: 1, ..options(server) }, &sets_and_gets(30, 1));
    assert_eq!(outcome.faults.wrong, [(Wrong::OtherKey, 1), (Wrong::Length, 1)].into());
}

#[test]
fn a_stale_value_is_found_and_so_is_one_that_was_deleted() {
    let first = Mutex::new(HashMap::new());
    let server = serve(move |ask, reply| {
        let mut first = first.lock().expect("no panic");
        let key = ask.words[1].clone();
        if ask.is("get") {
            // The first value stays, regardless of later writes.
            return Act::Send(first.entry(key).or_insert(reply).clone());
        }
        Act::Send(reply)
    });
    let requests: Vec<Request> =
        [Op::Set, Op::Get, Op::Get, Op::Set, Op::Get, Op::Delete, Op::Get].map(|op| request(op, 5)).to_vec();
    let outcome = play(options(server), &requests);
    assert_eq!(outcome.faults.wrong, [(Wrong::Stale, 2)].into());
    assert!(example(&outcome, "stale value").contains("had been acknowledged"));
}

#[test]
fn spread_freely_no_value_is_called_stale() {
    let requests: Vec<Request> =
        (0..2000).map(|at| request([Op::Set, Op::Get, Op::Delete][at % 3], 5)).collect();
    let outcome = play(Options { spread: true, threads: 3, ..options(serve(good)) }, &requests);
    assert_eq!(outcome.complaint(), None);
    assert_eq!(outcome.counts.requests(), 2000);
}

#[test]
fn a_counter_that_miscounts_is_found() {
    let server = serve(|ask, reply| match (ask.is("incr"), ask.nth) {
        (true, 3) => Act::Send(b"9\r\n".to_vec()),
        _ => Act::Send(reply),
    });
    let ops = [Op::Incr, Op::Set, Op::Incr, Op::Incr, Op::Get];
    let outcome = play(options(server), &ops.map(|op| request(op, 5)));
    // The count is wrong; the value from which it was counted correctly is not reported as a wrong number.
    assert_eq!(outcome.faults.wrong, [(Wrong::Number, 2)].into());
    assert!(example(&outcome, "wrong number").contains("9 came, 2 was expected"));
}

#[test]
fn garbage_closes_the_connection_and_is_shown() {
    let server = serve(|ask, reply| match ask.nth {
        10 => Act::Send(b"HTTP/1.1 400\x00 Bad Request\r\n".to_vec()),
        _ => Act::Send(reply),
    });
    let outcome = play(options(server), &sets_and_gets(30, 1));
    assert_eq!(outcome.faults.mishaps, [(Mishap::Garbage, 1)].into());
    assert!(example(&outcome, "garbage came").contains("came 'HTTP/1.1 400\\x00 Bad Request\\r\\n"));
    assert!(outcome.faults.lost >= 1);
    assert_eq!(outcome.counts.requests() + outcome.faults.lost, 60);
}

#[test]
fn a_reply_that_the_request_cannot_have_closes_the_connection() {
    let server = serve(|ask, reply| match ask.nth {
        10 if ask.is("get") => Act::Send(b"DELETED\r\n".to_vec()),
        10 => Act::Send(b"END\r\n".to_vec()),
        20 => Act::Send([&reply[..], b"STORED\r\n"].concat()),
        _ => Act::Send(reply),
    });
    let outcome = play(Options { depth: 1, connections: 1, ..options(server) }, &sets_and_gets(30, 1));
    // The superfluous reply is taken for that of the next request, or arrives without a request.
    assert!(outcome.faults.mishaps[&Mishap::Impossible] >= 1, "{:?}", outcome.faults);
    assert!(example(&outcome, "an impossible reply came").contains("cannot be answered with"));
}

#[test]
fn a_closed_connection_is_made_again_and_what_was_in_flight_is_lost() {
    let server = serve(|ask, reply| if ask.nth % 50 == 20 { Act::Close } else { Act::Send(reply) });
    let outcome = play(Options { connections: 2, ..options(server) }, &sets_and_gets(100, 1));
    assert!(outcome.faults.mishaps.keys().all(|m| matches!(m, Mishap::Closed | Mishap::Reset)));
    assert!(outcome.faults.lost >= 3, "{:?}", outcome.faults);
    assert_eq!(outcome.counts.requests() + outcome.faults.lost, 200);
    assert!(outcome.faults.wrong.is_empty() && !outcome.given_up);
}

#[test]
fn a_silent_server_runs_into_the_timeout() {
    let server = serve(|ask, reply| if ask.nth == 7 { Act::Nothing } else { Act::Send(reply) });
    let timeout = Duration::from_millis(400);
    let outcome =
        play(Options { connections: 1, depth: 1, timeout, ..options(server) }, &sets_and_gets(10, 1));
    assert_eq!(outcome.faults.mishaps, [(Mishap::Timeout, 1)].into());
    assert_eq!((outcome.counts.requests(), outcome.faults.lost), (19, 1));
    assert!(
        example(&outcome, "no reply in time")
            .starts_with("connection 0, 1 requests in flight: no whole reply to")
    );
}

#[test]
fn error_replies_are_counted_by_text_and_do_not_stop_the_run() {
    let server = serve(|ask, reply| match ask.nth % 10 {
        3 => Act::Send(b"SERVER_ERROR out of memory storing object\r\n".to_vec()),
        6 => Act::Send(format!("SERVER_ERROR busy {}\r\n", ask.nth).into_bytes()),
        _ => Act::Send(reply),
    });
    let outcome = play(options(server), &sets_and_gets(50, 1));
    let expected = [("SERVER_ERROR busy #", 10), ("SERVER_ERROR out of memory storing object", 10)];
    assert_eq!(outcome.faults.errors, expected.map(|(text, count)| (text.to_owned(), count)).into());
    assert_eq!(outcome.counts.requests(), 100);
    assert!(outcome.faults.mishaps.is_empty());
}

#[test]
fn a_server_that_goes_away_for_good_is_given_up() {
    let server = serve(|_, _| Act::Close);
    let began = Instant::now();
    let give_up = Duration::from_millis(400);
    let outcome = play(Options { give_up, ..options(server) }, &sets_and_gets(2000, 10));
    assert!(outcome.given_up && began.elapsed() >= give_up);
    assert!(outcome.complaint().expect("it was given up").starts_with("the server was away for too long"));
}

#[test]
fn a_server_that_is_not_there_is_told_at_once() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let server = Server::Tcp { name: free.to_string(), address: free };
    let open = || Ok(Box::new(List(sets_and_gets(1, 1), 0)) as Box<dyn Source>);
    let failure = run(options(server), &open, Arc::default()).err();
    let Some(Failure::Unreachable(text)) = failure else { panic!("the server is not there") };
    assert!(text.starts_with(&free.to_string()) && text.contains("start a server there"), "{text}");
}

/// A server that stalls once for 200 ms at a rate of 1000 requests/s: 200 requests were due during the stall, and
/// they were late by half of it on average. A client that measured from the time of sending would see one slow
/// request.
#[test]
fn a_stall_is_charged_to_every_request_that_was_due_meanwhile() {
    let stall = Duration::from_millis(200);
    let server = move || {
        serve(move |ask, reply| if ask.nth == 300 { Act::Late(stall, reply) } else { Act::Send(reply) })
    };
    let requests = sets_and_gets(300, 1);
    let one = |pace| Options { connections: 1, depth: 1, pace, ..options(server()) };
    let open = play(one(Pace::Rate(1000.0)), &requests);
    assert_eq!(open.counts.requests(), 600);
    assert!(open.counts.late >= 150, "late: {}", open.counts.late);
    assert!(open.counts.lag_ns_max > 150_000_000, "lag: {}", open.counts.lag_ns_max);
    let slow = |outcome: &Outcome| outcome.seconds.iter().map(|second| second.p99_us).fold(0.0, f64::max);
    assert!(slow(&open) > 100_000.0, "p99: {}", slow(&open));
    // A closed loop has no request that is due, and none is late.
    assert_eq!(play(one(Pace::Closed), &requests).counts.late, 0);
}

#[test]
fn the_speed_of_the_trace_is_kept() {
    let times = [0, 0, 0, 0, 1, 1, 2];
    let requests: Vec<Request> =
        times.iter().map(|&time_s| Request { time_s, ..request(Op::Get, 1) }).collect();
    let began = Instant::now();
    let outcome = play(Options { pace: Pace::Speed(10.0), ..options(serve(good)) }, &requests);
    assert_eq!(outcome.counts.requests(), 7);
    assert!(began.elapsed().as_millis() >= 200, "{:?}", began.elapsed());
}

#[test]
fn misses_are_fetched_and_stored_and_their_penalties_count() {
    let requests: Vec<Request> = (0..400).map(|at| request(Op::Get, at % 100)).collect();
    let through = ReadThrough { penalty_scale: 0.0, backend_concurrency: 0 };
    let one = Options { connections: 1, depth: 1, read_through: Some(through), ..options(serve(good)) };
    let outcome = play(one, &requests);
    assert_eq!(outcome.complaint(), None);
    assert_eq!((outcome.counts.of(Kind::Get).not_done, outcome.counts.of(Kind::Fill).done), (100, 100));
    assert_eq!((outcome.counts.requests(), outcome.counts.fetches), (400, 100));
    assert_eq!(outcome.counts.penalties_us, 100_000);
    assert_eq!(outcome.counts.fetches_by_penalty, [100, 0, 0, 0, 0]);
}

#[test]
fn windows_hold_every_get_and_a_miss_costs_its_penalty() {
    let requests: Vec<Request> = (0..400).map(|at| request(Op::Get, at % 100)).collect();
    let through = ReadThrough { penalty_scale: 0.0, backend_concurrency: 0 };
    let one = Options {
        connections: 1,
        read_through: Some(through),
        state_costs: true,
        window_gets: 150,
        ..options(serve(good))
    };
    let outcome = play(one, &requests);
    assert_eq!(outcome.complaint(), None);
    assert_eq!(outcome.counts.of(Kind::Fill).done, 100);
    let windows = &outcome.windows;
    assert_eq!(
        windows.iter().map(|window| (window.gets, window.hits)).collect::<Vec<_>>(),
        [(150, 50), (150, 150), (100, 100)]
    );
    assert_eq!(windows[0].service_ms(), Some((50.0 * 0.1 + 100.0) / 150.0));
    assert_eq!(windows[0].waited_ms(), Some(50.0 * 0.1 / 150.0));
    assert_eq!(windows[1].service_ms(), Some(0.1));
}

#[test]
fn a_fetch_does_not_hold_up_the_requests_behind_it() {
    let mut requests = vec![Request { penalty_us: 300_000, ..request(Op::Get, 1) }; 2];
    requests.extend(sets_and_gets(100, 1).iter().map(|r| Request { key: r.key + 100, ..*r }));
    let through = ReadThrough { penalty_scale: 1.0, backend_concurrency: 1 };
    let (fetched, filled) = (Mutex::new(String::new()), Arc::new(AtomicUsize::new(0)));
    let fill = Arc::clone(&filled);
    let server = serve(move |ask, reply| {
        let mut key = fetched.lock().expect("no panic");
        if ask.nth == 0 {
            key.clone_from(&ask.words[1]);
        } else if ask.is("set") && *key == ask.words[1] {
            fill.store(ask.nth, Ordering::SeqCst);
        }
        Act::Send(reply)
    });
    let one = Options { connections: 1, depth: 2, read_through: Some(through), ..options(server) };
    let began = Instant::now();
    let outcome = play(one, &requests);
    assert!(began.elapsed() > Duration::from_millis(300));
    assert_eq!(outcome.complaint(), None);
    // Both gets missed; the second joined the fetch of the first.
    assert_eq!(
        (outcome.counts.fetches, outcome.counts.joined, outcome.counts.of(Kind::Fill).done),
        (1, 1, 1)
    );
    assert!(filled.load(Ordering::SeqCst) > 10, "the others are answered meanwhile");
}

#[test]
fn loading_and_warming_up_do_not_count() {
    let requests: Vec<Request> = (0..1000).map(|at| request(Op::Get, at % 40)).collect();
    let warm =
        Options { load: true, warmup: Some(Warmup::Requests(300)), threads: 2, ..options(serve(good)) };
    let outcome = play(warm, &requests);
    assert_eq!(outcome.complaint(), None);
    assert_eq!((outcome.counts.requests(), outcome.counts.hit_ratio()), (700, Some(1.0)));
    assert!(outcome.report.facts.contains(&("loaded first".to_owned(), "40 keys".to_owned())));
}

#[test]
fn time_and_repeats_end_a_run() {
    let requests = sets_and_gets(10, 1);
    let outcome = play(Options { repeat: 7, ..options(serve(good)) }, &requests);
    assert_eq!(outcome.counts.requests(), 140);
    let began = Instant::now();
    let limit = Some(Duration::from_millis(1200));
    let outcome = play(Options { repeat: 0, time_limit: limit, ..options(serve(good)) }, &requests);
    assert!(began.elapsed().as_millis() >= 1200, "{:?}", began.elapsed());
    assert_eq!(outcome.complaint(), None);
    assert!(outcome.seconds.len() >= 2);
}

#[test]
fn the_hdr_log_holds_every_latency() {
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log.hdr");
    let outcome = play(Options { hdr: Some(path.clone()), ..options(serve(good)) }, &sets_and_gets(50, 2));
    let log = std::fs::read(&path).expect("the log");
    let mut latencies = 0;
    let mut tags = Vec::new();
    for entry in IntervalLogIterator::new(&log) {
        if let LogEntry::Interval(interval) = entry.expect("well-formed") {
            let packed = base64_octets(interval.encoded_histogram());
            let histogram: Histogram<u64> =
                Deserializer::new().deserialize(&mut packed.as_slice()).expect("a histogram");
            latencies += histogram.len();
            tags.push(interval.tag().expect("a tag").as_str().to_owned());
        }
    }
    tags.sort();
    assert_eq!((latencies, tags.as_slice()), (200, ["get".to_owned(), "set".to_owned()].as_slice()));
    assert_eq!(outcome.complaint(), None);
}

/// The bytes of a text in base 64 (RFC 4648, section 4).
fn base64_octets(text: &str) -> Vec<u8> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits: Vec<u32> = text.chars().filter_map(|c| DIGITS.find(c).map(|at| at as u32)).collect();
    let group = |four: &[u32]| {
        let bits = four.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - four.len()));
        bits.to_be_bytes()[1..four.len()].to_vec()
    };
    digits.chunks(4).flat_map(group).collect()
}

#[test]
fn options_that_cannot_be_obeyed_are_told() {
    let server = Server::Unix("/nowhere/at/all".into());
    let open = || Ok(Box::new(List(Vec::new(), 0)) as Box<dyn Source>);
    let refused = |options: Options| match run(options, &open, Arc::default()) {
        Err(Failure::Failed(text) | Failure::Unreachable(text)) => text,
        Ok(_) => panic!("it ran"),
    };
    let base = Options::new(server);
    assert!(refused(Options { threads: 2, ..base.clone() }).contains("2 threads for 1 connections"));
    assert!(refused(Options { repeat: 0, ..base.clone() }).contains("--seconds"));
    assert!(refused(Options { key_prefix: "a b".to_owned(), ..base.clone() }).contains("key prefix"));
    assert!(refused(Options { pace: Pace::Rate(0.0), ..base.clone() }).contains("rate"));
    assert!(refused(base).starts_with("/nowhere/at/all: "));
}

/// One worker with one connection that is up, without a server; the other end of its socket is returned.
fn alone(options: Options) -> (Worker, mio::net::UnixStream) {
    let (batches, orders) = mpsc::sync_channel(1);
    let (empties, emptied) = mpsc::channel();
    let (messages, collected) = mpsc::channel();
    // No reader and no collector exist.
    drop((batches, emptied, collected));
    let poll = Poll::new().expect("a poll");
    let mut worker = Worker::new(0, Arc::new(Shared::of_test(options)), poll, orders, empties, messages);
    let (own, peer) = mio::net::UnixStream::pair().expect("a pair of sockets");
    worker.connections[0].stream = Some(server::Stream::Unix(own));
    worker.connections[0].state = ConnectionState::Up { since_ns: 1 };
    (worker, peer)
}

fn nowhere() -> Options {
    Options::new(Server::Unix("/nowhere/at/all".into()))
}

/// Sends a request as a worker does that has it in its queue.
fn ask(worker: &mut Worker, request: Request) {
    let order = Order { request, due_ns: 0 };
    worker.connections[0].queue.push_back(Queued { order, phase: Phase::Measure });
    worker.send(0);
}

#[test]
fn an_end_that_came_with_the_last_reply_is_seen() {
    let (mut worker, mut peer) = alone(nowhere());
    ask(&mut worker, request(Op::Set, 1));
    peer.write_all(b"STORED\r\n").expect("an open socket");
    peer.shutdown(std::net::Shutdown::Write).expect("an open socket");
    worker.serve(0, true);
    assert_eq!(worker.check.faults.mishaps, [(Mishap::Closed, 1)].into());
    assert_eq!((worker.check.faults.lost, worker.connections[0].stream.is_none()), (0, true));
}

#[test]
fn only_a_reply_to_a_request_shows_that_a_connection_works() {
    let (mut worker, mut peer) = alone(nowhere());
    worker.serve(0, false);
    assert!(!worker.connections[0].healthy);
    let login = Credentials { user: String::new(), password: "secret".to_owned() };
    let (mut worker_of_login, mut peer_of_login) = alone(Options { credentials: Some(login), ..nowhere() });
    worker_of_login.log_in(0, 1);
    peer_of_login.write_all(b"STORED\r\n").expect("an open socket");
    worker_of_login.serve(0, false);
    assert!(worker_of_login.connections[0].pending.is_empty() && !worker_of_login.connections[0].healthy);
    ask(&mut worker, request(Op::Get, 1));
    peer.write_all(b"END\r\n").expect("an open socket");
    worker.serve(0, false);
    assert!(worker.connections[0].healthy);
}

#[test]
fn a_write_with_an_impossible_reply_is_lost_and_may_take_effect_at_any_time() {
    let (mut worker, mut peer) = alone(nowhere());
    let identity = Keys::identity(1, worker.shared.wire.keys.length(1, 12));
    worker.check.ledger.entry(identity).stored(1, false);
    ask(&mut worker, request(Op::Set, 1));
    peer.write_all(b"DELETED\r\n").expect("an open socket");
    worker.serve(0, false);
    assert_eq!(worker.check.faults.mishaps, [(Mishap::Impossible, 1)].into());
    assert_eq!(worker.check.faults.lost, 1);
    assert_eq!(worker.check.ledger.get(identity).map(|entry| entry.version_min()), Some(0));
}

#[test]
fn what_was_due_and_never_sent_is_counted_when_time_ends_the_run() {
    let stall = Duration::from_secs(2);
    let server =
        serve(move |ask, reply| if ask.nth == 100 { Act::Late(stall, reply) } else { Act::Send(reply) });
    let limit = Some(Duration::from_millis(1000));
    let one =
        Options { connections: 1, depth: 1, pace: Pace::Rate(1000.0), time_limit: limit, ..options(server) };
    let outcome = play(one, &sets_and_gets(2000, 1));
    // A hundred requests were answered, one was in flight, and the others of this second waited.
    let due = outcome.counts.requests() + outcome.counts.unsent;
    assert!(due >= 1000, "{due} due");
    assert!(outcome.counts.unsent >= 850, "{} never sent", outcome.counts.unsent);
    assert!(outcome.counts.lag_ns_max > 850_000_000, "lag: {}", outcome.counts.lag_ns_max);
}

#[test]
fn a_count_that_was_refused_says_nothing_about_the_value_before() {
    let (mut worker, mut peer) = alone(nowhere());
    let mut row = Vec::new();
    let identity = Keys::identity(1, worker.shared.wire.keys.length(1, 12));
    for version in [1, 2] {
        worker.shared.wire.values.put(&mut row, identity, version, 40);
    }
    ask(&mut worker, request(Op::Incr, 1));
    peer.write_all(b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n").expect("open");
    worker.serve(0, false);
    ask(&mut worker, request(Op::Get, 1));
    let mut key = Vec::new();
    worker.shared.wire.keys.put(&mut key, 1, worker.shared.wire.keys.length(1, 12));
    let line = format!("VALUE {} 0 80\r\n", String::from_utf8_lossy(&key));
    peer.write_all(&[line.as_bytes(), &row, b"\r\nEND\r\n"].concat()).expect("an open socket");
    worker.serve(0, false);
    assert!(worker.check.faults.is_empty(), "{:?}", worker.check.faults);
    assert_eq!(worker.measured.tally.counts.verified, 1);
}

#[test]
fn a_run_does_not_crawl_behind_one_connection_that_never_works() {
    let dead = Mutex::new(None);
    let server = serve(move |ask, reply| {
        let mut dead = dead.lock().expect("no panic");
        // All requests of a key use one connection, and the connection of this key never gets an answer.
        if dead.get_or_insert_with(|| ask.words[1].clone()) == &ask.words[1] {
            return Act::Close;
        }
        Act::Send(reply)
    });
    let mut requests = vec![request(Op::Set, 1)];
    let other = |key: &u64| {
        let shared = Shared::of_test(Options { connections: 2, ..nowhere() });
        shared.connection_of(*key) != shared.connection_of(1)
    };
    let other = (2..).find(other).expect("one of all keys");
    requests.extend((0..40_000).map(|at| request(Op::Set, if at % 2 == 0 { 1 } else { other })));
    let began = Instant::now();
    let give_up = Duration::from_millis(400);
    let outcome = play(Options { connections: 2, depth: 1, give_up, ..options(server) }, &requests);
    assert!(outcome.given_up && began.elapsed() >= give_up, "{:?}", began.elapsed());
    assert!(outcome.faults.lost >= 200, "{} lost", outcome.faults.lost);
}

/// Gets of keys written by an earlier run; the server returns the same value for each.
fn of_earlier_run(value: &'static str, written: bool, later: Op) -> Outcome {
    let server = serve(move |ask, reply| {
        let known = format!("VALUE {} 0 {}\r\n{value}\r\nEND\r\n", ask.words[1], value.len());
        Act::Send(if ask.is("get") { known.into_bytes() } else { reply })
    });
    let first = if written { Op::Set } else { Op::Delete };
    let mut requests = vec![request(first, 1), request(Op::Get, if written { 1 } else { 2 })];
    requests.push(request(later, 3));
    play(Options { connections: 1, depth: 1, ..options(server) }, &requests)
}

#[test]
fn what_an_earlier_run_may_have_counted_or_appended_cannot_be_told() {
    const FOREIGN: &str = "forty octets of which none is one of ours";
    let messages = |outcome: Outcome| (outcome.faults.wrong.values().sum::<u64>(), outcome.counts.unverified);
    assert_eq!(messages(of_earlier_run("17", false, Op::Incr)), (0, 1));
    assert_eq!(messages(of_earlier_run("17", false, Op::Append)), (0, 1));
    assert_eq!(messages(of_earlier_run(FOREIGN, false, Op::Append)), (0, 1));
    // No counter has this value.
    assert_eq!(messages(of_earlier_run(FOREIGN, false, Op::Incr)), (1, 0));
    // A source that neither counts nor appends leaves no doubt, and neither does a write of this run.
    for value in ["17", FOREIGN] {
        assert_eq!(messages(of_earlier_run(value, false, Op::Set)), (1, 0));
        assert_eq!(messages(of_earlier_run(value, true, Op::Incr)), (1, 0));
        assert_eq!(messages(of_earlier_run(value, true, Op::Append)), (1, 0));
    }
}
