//! Fuzzes RESP: its parser with any bytes, a dispatcher with the same bytes in any pieces, and then with requests that
//! the input chooses, whose replies are compared with those of a slow twin.

use crate::choices::Choices;
use crate::talk::resp_twin::{Twin, Words, encoded, line, words};
use crate::talk::{Client, Talk, dispatcher};
use larder_protocol::resp::{Args, Options, Resume, Step, inline_args, parse};
use larder_server::settings::Settings;

/// Maximum number of requests that are compared with the twin.
const REQUESTS_MAX: usize = 120;
/// Only requests up to this length are tried with every prefix.
const PREFIX_BYTES_MAX: usize = 300;
const KEYS: [&[u8]; 7] = [b"a", b"b", b"", b"n\r\n\0", &[b'k'; 250], &[b'k'; 251], &[b'k'; 5000]];
/// A connection speaks RESP if its first byte says so.
const OPENING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
/// Requests with one of these words are answered differently every time.
const VARYING: [&[u8]; 8] =
    [b"info", b"time", b"client", b"slowlog", b"randomkey", b"memory", b"larder", b"hello"];
/// Deepest nesting of a reply: `COMMAND DOCS` has 12 levels.
const DEPTH_MAX: usize = 12;

pub(crate) fn run(input: &[u8], client: &Client<'_>) {
    let (head, stream) = input.split_at(input.len().min(4));
    for (whole_bytes_max, is_authenticated) in [(0, true), (40, false), (16 << 10, true)] {
        walk(stream, &Options { whole_bytes_max, request_bytes_max: 20_000, is_authenticated });
    }
    let mut choices = Choices::new(head);
    let longest = choices.of(&[1, 2, 7, 30, 200, 3000, 20_000]);
    let whole = answers(stream, client, &mut |left| left);
    let cut = answers(stream, client, &mut |left| left.min(1 + choices.below(longest)));
    let lower = stream.to_ascii_lowercase();
    let varies = VARYING.iter().any(|word| lower.windows(word.len()).any(|window| window == *word));
    assert!(varies || whole == cut, "{}\n--- cut up:\n{}", whole.escape_ascii(), cut.escape_ascii());
    compare_with_twin(Choices::new(input), client);
}

/// Takes one request after the other off a stream.
fn walk(stream: &[u8], options: &Options) {
    let mut rest = stream;
    loop {
        let step = parse(rest, options, &mut Resume::default());
        check_prefixes(rest, &step, options);
        let consumed = match step {
            Step::NeedMore { at_least } => {
                assert!(at_least > rest.len(), "more is wanted than is there");
                return;
            }
            Step::Fault(_) => return,
            Step::Get { consumed, .. } | Step::Nothing { consumed } => consumed,
            Step::Request { args, consumed } => {
                check_args(args);
                consumed
            }
            Step::Inline { line, consumed } => {
                let mut room = Vec::new();
                if let Ok(args) = inline_args(line, &mut room) {
                    check_args(args);
                }
                consumed
            }
            Step::Upload(upload) => {
                check_args(upload.args);
                assert!(upload.body_bytes as usize > options.whole_bytes_max);
                upload.consumed
            }
        };
        assert!(consumed > 0 && consumed <= rest.len(), "{consumed} of {} bytes", rest.len());
        rest = &rest[consumed..];
    }
}

fn check_args(args: Args<'_>) {
    assert_eq!(args.count(), args.len(), "fewer arguments than announced");
}

/// Every prefix of a request wants more, or is parsed as the whole: from its beginning, and on from the prefix before.
fn check_prefixes(input: &[u8], whole: &Step<'_>, options: &Options) {
    let mut resume = Resume::default();
    for cut in (0..=input.len()).take(PREFIX_BYTES_MAX) {
        let step = parse(&input[..cut], options, &mut resume);
        assert_eq!(step, parse(&input[..cut], options, &mut Resume::default()), "cut at {cut}");
        match step {
            Step::NeedMore { at_least } => assert!(at_least > cut, "cut at {cut}"),
            step => return assert_eq!(&step, whole, "cut at {cut}"),
        }
    }
}

fn settings() -> Settings {
    Settings { memory_bytes: 32 << 20, threads: 1, ..Settings::default() }
}

/// The replies of a fresh dispatcher to `stream`, sent in pieces whose lengths `next` chooses.
fn answers(stream: &[u8], client: &Client<'_>, next: &mut dyn FnMut(usize) -> usize) -> Vec<u8> {
    let (mut dispatcher, cache) = dispatcher(settings(), Some(1), None);
    cache.clock().hold();
    let mut talk = Talk::open(&mut dispatcher, client.peer);
    talk.send(&mut dispatcher, OPENING);
    let mut rest = stream;
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(next(rest.len()));
        talk.send(&mut dispatcher, piece);
        rest = more;
    }
    talk.close(&mut dispatcher);
    let mut replies = &talk.answered[..];
    while !replies.is_empty() {
        replies = behind_reply(replies, DEPTH_MAX)
            .unwrap_or_else(|| panic!("no reply: {}", replies.escape_ascii()));
    }
    talk.answered
}

/// What follows the reply at the front. `None` = there is none.
fn behind_reply(bytes: &[u8], depth: usize) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let (head, mut rest) = (&bytes[1..end], &bytes[end + 2..]);
    let count = || std::str::from_utf8(head).ok()?.parse::<i64>().ok();
    match bytes[0] {
        b'+' | b'-' | b',' | b'#' => Some(rest),
        b'_' => head.is_empty().then_some(rest),
        b':' => count().map(|_| rest),
        b'$' | b'=' => match usize::try_from(count()?) {
            Err(_) => (head == b"-1").then_some(rest),
            Ok(length) => rest.get(length..)?.strip_prefix(b"\r\n"),
        },
        b'*' | b'~' | b'%' if depth > 0 => {
            let each = if bytes[0] == b'%' { 2 } else { 1 };
            for _ in 0..count()? * each {
                rest = behind_reply(rest, depth - 1)?;
            }
            Some(rest)
        }
        _ => None,
    }
}

/// Sends requests that the input chooses, and compares each reply with the twin's.
fn compare_with_twin(mut choices: Choices<'_>, client: &Client<'_>) {
    let (mut dispatcher, cache) = dispatcher(settings(), Some(1), None);
    cache.clock().hold();
    let mut talk = Talk::open(&mut dispatcher, client.peer);
    let mut twin = Twin::default();
    talk.send(&mut dispatcher, OPENING);
    if choices.once_in(2) {
        twin.is_resp3 = true;
        talk.send(&mut dispatcher, b"*2\r\n$5\r\nhello\r\n$1\r\n3\r\n");
    }
    talk.answered.clear();
    for _ in 0..REQUESTS_MAX {
        if choices.is_empty() {
            break;
        }
        // Several requests at once are looked up together.
        let requests: Vec<Words> = (0..choices.of(&[1, 1, 5, 40])).map(|_| request(&mut choices)).collect();
        let is_line = choices.once_in(8) && requests.iter().all(|request| line(request).len() < 60_000);
        let bytes: Vec<u8> = requests.iter().flat_map(if is_line { line } else { encoded }).collect();
        let longest = choices.of(&[usize::MAX, usize::MAX, 1, 30, 5000]).max(bytes.len() / 50);
        bytes.chunks(longest).for_each(|piece| talk.send(&mut dispatcher, piece));
        let said = std::mem::take(&mut talk.answered);
        let mut said = &said[..];
        for request in requests {
            let expected = twin.execute(&request);
            said = said.strip_prefix(&expected[..]).unwrap_or_else(|| {
                panic!("{} instead of {}\nto {request:?}", said.escape_ascii(), expected.escape_ascii())
            });
        }
        assert!(said.is_empty(), "more: {}", said.escape_ascii());
    }
    talk.close(&mut dispatcher);
}

fn request(choices: &mut Choices<'_>) -> Words {
    let [first, second] = [(); 2].map(|()| choices.of(&KEYS).to_vec());
    let value = match choices.below(4) {
        0 => choices.below(300).to_string().into_bytes(),
        1 => i64::MAX.to_string().into_bytes(),
        2 => vec![choices.byte(); choices.below(40)],
        _ => vec![choices.byte(); choices.of(&[100, 900, 1100, 20_000, 40_000])],
    };
    let number = (choices.below(100) as i64 - 40).to_string().into_bytes();
    let positive = (1 + choices.below(100_000)).to_string().into_bytes();
    let named = |name: &str, rest: &[Vec<u8>]| [&words(name)[..], rest].concat();
    match choices.below(16) {
        0..3 => named("GET", &[first]),
        3 => named("MGET", &[first, second]),
        4 | 5 => named("SET", &[first, value]),
        6 => {
            let options = choices.of(&["NX", "XX", "GET", "KEEPTTL", "NX GET", "PX 5000", "EX 9 XX"]);
            [named("SET", &[first, value]), words(options)].concat()
        }
        7 => named(choices.of(&["SETNX", "GETSET", "APPEND"]), &[first, value]),
        8 => named(choices.of(&["MSET", "MSETNX"]), &[first, value.clone(), second, value]),
        9 => named(choices.of(&["GETDEL", "STRLEN", "TYPE", "PERSIST", "PTTL", "INCR"]), &[first]),
        10 => named(choices.of(&["DEL", "EXISTS"]), &[first, second]),
        11 => named("GETRANGE", &[first, number.clone(), number]),
        12 => named("SETRANGE", &[first, positive, value]),
        13 => named(choices.of(&["INCRBY", "DECRBY", "PEXPIRE"]), &[first, number]),
        14 => named(choices.of(&["RENAME", "RENAMENX", "COPY"]), &[first, second]),
        _ => named("SETEX", &[first, positive, value]),
    }
}
