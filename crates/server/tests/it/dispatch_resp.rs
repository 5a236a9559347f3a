//! RESP, played to a dispatcher in this process.

use crate::dispatch_support::resp_twin::{Twin, Words, encoded, line, words};
use crate::dispatch_support::{Client, Talk, dispatcher, on_a_connection};
use larder_server::dispatch::Dispatcher;
use larder_server::settings::Settings;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;

fn settings() -> Settings {
    Settings { memory_bytes: 64 << 20, threads: 1, ..Settings::default() }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let keys: [&[u8]; 8] = [b"a", b"b", b"c", b"a", b"", b"n\r\n\0", &[b'l'; 250], &[b'l'; 251]];
    prop_oneof![9 => prop::sample::select(keys.map(<[u8]>::to_vec).to_vec()), 1 => Just(vec![b'm'; 5000])]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..20),
        3 => (-2000i64..2000).prop_map(|number| number.to_string().into_bytes()),
        1 => Just(i64::MAX.to_string().into_bytes()),
        // Around the length from which values lie apart from keys, and far beyond the one from which they arrive in
        // pieces.
        1 => (900usize..1200).prop_map(|length| vec![b'v'; length]),
        1 => (15_000usize..40_000).prop_map(|length| vec![b'w'; length]),
    ]
}

fn number() -> impl Strategy<Value = Vec<u8>> {
    (-40i64..60).prop_map(|number| number.to_string().into_bytes())
}

fn positive() -> impl Strategy<Value = Vec<u8>> {
    (1i64..100_000).prop_map(|number| number.to_string().into_bytes())
}

fn option() -> impl Strategy<Value = Words> {
    prop_oneof![
        4 => Just(Vec::new()),
        2 => prop::sample::select(vec!["NX", "XX", "GET", "KEEPTTL", "NX GET", "XX KEEPTTL"]).prop_map(words),
        2 => positive().prop_map(|ms| vec![b"PX".to_vec(), ms]),
        1 => positive().prop_map(|s| vec![b"EX".to_vec(), s]),
        1 => positive().prop_map(|ms| vec![b"XX".to_vec(), b"PX".to_vec(), ms, b"GET".to_vec()]),
    ]
}

fn of(name: &'static str, rest: impl Strategy<Value = Words>) -> impl Strategy<Value = Words> {
    rest.prop_map(move |rest| [vec![name.as_bytes().to_vec()], rest].concat())
}

fn named(names: &[&'static str], rest: impl Strategy<Value = Words>) -> impl Strategy<Value = Words> {
    (prop::sample::select(names.to_vec()), rest)
        .prop_map(|(name, rest)| [vec![name.as_bytes().to_vec()], rest].concat())
}

/// Requests that the twin knows, on a few keys.
fn request() -> impl Strategy<Value = Words> {
    let keys = |most| prop::collection::vec(key(), 1..most);
    let pairs = prop::collection::vec((key(), value()), 1..5)
        .prop_map(|pairs| pairs.into_iter().flat_map(|(key, value)| [key, value]).collect());
    let two = || (key(), value()).prop_map(|(key, value)| vec![key, value]);
    prop_oneof![
        6 => of("get", key().prop_map(|key| vec![key])),
        3 => of("MGET", keys(40)),
        6 => of("SET", (two(), option()).prop_map(|(two, options)| [two, options].concat())),
        3 => named(&["SETNX", "GETSET", "APPEND"], two()),
        1 => of("SETEX", (key(), positive(), value()).prop_map(|(key, s, value)| vec![key, s, value])),
        2 => named(&["MSET", "MSETNX"], pairs),
        2 => named(&["GETDEL", "STRLEN", "TYPE", "PERSIST", "PTTL", "INCR"], keys(2)),
        2 => named(&["DEL", "UNLINK", "EXISTS"], keys(5)),
        2 => of("GETRANGE", (key(), number(), number()).prop_map(|(key, from, to)| vec![key, from, to])),
        2 => of("SETRANGE", (key(), positive(), value()).prop_map(|(key, at, value)| vec![key, at, value])),
        2 => named(&["INCRBY", "DECRBY", "PEXPIRE"], (key(), number()).prop_map(|(key, by)| vec![key, by])),
        2 => named(&["RENAME", "RENAMENX", "COPY"], (key(), key()).prop_map(|(from, to)| vec![from, to])),
        1 => of("COPY", (key(), key()).prop_map(|(from, to)| vec![from, to, b"REPLACE".to_vec()])),
        1 => of("ping", Just(Vec::new())),
    ]
}

/// How the requests of a case are sent.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// All requests in pieces of this length.
    piece: usize,
    /// One after the other, as lines of words.
    as_lines: bool,
    is_resp3: bool,
}

fn way() -> impl Strategy<Value = Way> {
    let piece = prop::sample::select(vec![usize::MAX, usize::MAX, 1, 7, 1000, 70_000]);
    (piece, prop::bool::weighted(0.2), any::<bool>()).prop_map(|(piece, as_lines, is_resp3)| Way {
        piece,
        as_lines,
        is_resp3,
    })
}

fn shown(request: &Words) -> String {
    let word = |word: &Vec<u8>| word[..word.len().min(40)].escape_ascii().to_string();
    request.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn play(
    requests: &[Words],
    way: Way,
    dispatcher: &mut Dispatcher,
    client: &Client<'_>,
) -> Result<(), String> {
    let mut twin = Twin::default();
    twin.is_resp3 = way.is_resp3;
    let mut talk = Talk::open(dispatcher, client.peer);
    talk.send(dispatcher, b"*1\r\n$8\r\nflushall\r\n");
    if way.is_resp3 {
        talk.send(dispatcher, b"*2\r\n$5\r\nhello\r\n$1\r\n3\r\n");
    }
    talk.answered.clear();
    // A line of words is limited to 64 KiB.
    let is_short = |request: &Words| line(request).len() < 60_000;
    let bytes: Vec<u8> = requests
        .iter()
        .flat_map(|request| if way.as_lines && is_short(request) { line(request) } else { encoded(request) })
        .collect();
    let piece = way.piece.max(bytes.len() / 3000);
    bytes.chunks(piece).for_each(|piece| talk.send(dispatcher, piece));
    let all = std::mem::take(&mut talk.answered);
    talk.close(dispatcher);
    let mut answered = &all[..];
    for request in requests {
        let expected = twin.execute(request);
        answered = answered.strip_prefix(&expected[..]).ok_or_else(|| {
            let found = &answered[..answered.len().min(60)];
            let expected = &expected[..expected.len().min(60)];
            format!("{}\n{}\ninstead of {}", shown(request), found.escape_ascii(), expected.escape_ascii())
        })?;
    }
    if answered.is_empty() { Ok(()) } else { Err(format!("more: {}", answered.escape_ascii())) }
}

#[test]
fn replies_are_those_of_the_slow_twin() {
    on_a_connection(|client| {
        let (dispatcher, cache) = dispatcher(settings(), None, Some(client));
        let dispatcher = RefCell::new(dispatcher);
        cache.clock().hold();
        TestRunner::new(Config { cases: 1000, failure_persistence: None, ..Config::default() })
            .run(&(prop::collection::vec(request(), 1..60), way()), |(requests, way)| {
                play(&requests, way, &mut dispatcher.borrow_mut(), client).map_err(TestCaseError::fail)
            })
            .unwrap_or_else(|wrong| panic!("{wrong}"));
    });
}
