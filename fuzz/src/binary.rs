//! Fuzzes the binary protocol: its parser with any bytes, a dispatcher with the same bytes in any pieces, and then with
//! requests that the input chooses, whose replies are compared with those of a slow twin.

use crate::choices::Choices;
use crate::parsing::{check_prefixes, walk};
use crate::talk::binary_twin::{DO_NOT_CREATE, EXPIRED, Packet, Twin};
use crate::talk::{Client, Talk, dispatcher};
use larder_protocol::ParseOptions;
use larder_protocol::binary::{REQUEST_MAGIC, parse};
use larder_server::settings::{Protocol, Settings};

/// Maximum number of requests that are compared with the twin.
const REQUESTS_MAX: usize = 120;
/// Values that grow longer than this are left alone: items may be too large.
const VALUE_BYTES_MAX: usize = 1_000_000;
const KEYS: [&[u8]; 4] = [b"a", b"b", b"counter", &[b'k'; 250]];
/// Opcodes that the twin knows, and some that nobody knows.
const OPCODES: [u8; 31] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x0d, 0x0e, 0x0f, 0x11, 0x12, 0x13,
    0x14, 0x15, 0x16, 0x18, 0x19, 0x1a, 0x1c, 0x1d, 0x1e, 0x23, 0x24, 0x1b, 0x30, 0x60,
];

pub(crate) fn run(input: &[u8], client: &Client<'_>) {
    let (head, stream) = input.split_at(input.len().min(4));
    for whole_bytes_max in [0, 40, 16 << 10] {
        let options = ParseOptions { whole_bytes_max, ..ParseOptions::default() };
        walk(stream, whole_bytes_max, 0, |rest| {
            let step = parse(rest, &options);
            check_prefixes(rest, &step, |cut| parse(cut, &options));
            step
        });
    }
    let mut choices = Choices::new(head);
    let longest = choices.of(&[1, 2, 7, 30, 200, 3000, 20_000]);
    let whole = answers(stream, client, &mut |left| left);
    let cut = answers(stream, client, &mut |left| left.min(1 + choices.below(longest)));
    assert_eq!(names(&whole), names(&cut), "the replies depend on the pieces");
    compare_with_twin(Choices::new(input), client);
}

fn settings() -> Settings {
    Settings { memory_bytes: 32 << 20, threads: 1, protocol: Protocol::Binary, ..Settings::default() }
}

/// The replies of a fresh dispatcher to `stream`, sent in pieces whose lengths `next` chooses.
fn answers(stream: &[u8], client: &Client<'_>, next: &mut dyn FnMut(usize) -> usize) -> Vec<Packet> {
    let (mut dispatcher, cache) = dispatcher(settings(), Some(1), None);
    cache.clock().hold();
    let mut talk = Talk::open(&mut dispatcher, client.peer);
    let mut rest = stream;
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(next(rest.len()));
        talk.send(&mut dispatcher, piece);
        rest = more;
    }
    talk.close(&mut dispatcher);
    let (replies, rest) = Packet::replies(&talk.answered);
    assert!(rest.is_empty(), "no reply: {}", rest.escape_ascii());
    replies
}

/// The replies without the values of statistics, which vary.
fn names(replies: &[Packet]) -> Vec<Packet> {
    let plain = |reply: &Packet| match reply.opcode {
        0x10 => Packet { value: Vec::new(), ..reply.clone() },
        _ => reply.clone(),
    };
    replies.iter().map(plain).collect()
}

/// Sends requests that the input chooses, and compares each reply with the twin's.
fn compare_with_twin(mut choices: Choices<'_>, client: &Client<'_>) {
    let (mut dispatcher, cache) = dispatcher(settings(), Some(1), None);
    cache.clock().hold();
    let mut talk = Talk::open(&mut dispatcher, client.peer);
    let mut twin = Twin::new(cache.whole_value_bytes_max());
    for _ in 0..REQUESTS_MAX {
        if choices.is_empty() {
            break;
        }
        let request = request(&mut choices, &twin);
        if twin.value_bytes(&request.key) + request.value.len() > VALUE_BYTES_MAX {
            continue;
        }
        let longest = choices.of(&[usize::MAX, usize::MAX, 1, 30, 5000]).max(request.value.len() / 8);
        for piece in request.bytes().chunks(longest) {
            talk.send(&mut dispatcher, piece);
        }
        let said = std::mem::take(&mut talk.answered);
        let (replies, rest) = Packet::replies(&said);
        match (twin.execute(&request), &replies[..], rest) {
            (None, [], []) => {}
            (Some(expected), [reply], []) => twin
                .check(&expected, reply, &request)
                .unwrap_or_else(|wrong| panic!("{wrong}\nto {request:?}")),
            (expected, replies, rest) => {
                panic!("expected {expected:?}, got {replies:?} and {}\nto {request:?}", rest.escape_ascii())
            }
        }
    }
    talk.close(&mut dispatcher);
}

fn request(choices: &mut Choices<'_>, twin: &Twin) -> Packet {
    let (opcode, key) = (choices.of(&OPCODES), choices.of(&KEYS));
    let exptime = choices.of(&[0, 0, 0, 1000, 1, EXPIRED, DO_NOT_CREATE]);
    let value = match choices.below(4) {
        // A client of C may store the NUL at the end of a string.
        0 => format!("{}{}", choices.below(300), choices.of(&["", "", " ", "\0"])).into_bytes(),
        1 => u64::MAX.to_string().into_bytes(),
        2 => vec![choices.byte(); choices.below(40)],
        _ => vec![choices.byte(); choices.of(&[100, 1100, 20_000, 40_000])],
    };
    let number = u64::from(choices.byte()) << choices.of(&[0, 0, 30, 56]);
    let packet = match opcode {
        1..=3 | 0x11..=0x13 => Packet::store(opcode, key, number as u32, exptime, &value),
        5 | 6 | 0x15 | 0x16 => Packet::arith(opcode, key, number, choices.byte().into(), exptime),
        0x0e | 0x0f | 0x19 | 0x1a => Packet::new(opcode, key).value(&value),
        0x1c..=0x1e | 0x23 | 0x24 => Packet::new(opcode, key).extras(&exptime.to_be_bytes()),
        0x08 | 0x0a | 0x18 => Packet::new(opcode, b""),
        _ => Packet::new(opcode, key),
    };
    let known = twin.cas_of(key).unwrap_or(0);
    let packet = Packet { opaque: number as u32, ..packet };
    packet.cas(choices.of(&[0, 0, 0, known, known, known + 1_000_000]))
}

/// Packets of every opcode, well-formed and not.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let whole: Vec<u8> = OPCODES
        .iter()
        .flat_map(|&opcode| {
            let packet = match opcode {
                1..=3 | 0x11..=0x13 => Packet::store(opcode, b"key", 1, 0, b"value"),
                5 | 6 | 0x15 | 0x16 => Packet::arith(opcode, b"counter", 1, 5, 0),
                0x0e | 0x0f | 0x19 | 0x1a => Packet::new(opcode, b"key").value(b"more"),
                0x1c..=0x1e | 0x23 | 0x24 => Packet::new(opcode, b"key").extras(&[0, 0, 0, 9]),
                0x08 | 0x0a | 0x18 => Packet::new(opcode, b""),
                _ => Packet::new(opcode, b"key"),
            };
            packet.bytes()
        })
        .collect();
    let mut seeds = vec![whole];
    for (opcode, key) in
        [(0x10, &b""[..]), (0x10, b"settings"), (0x10, b"detail dump"), (0x0b, b""), (0x07, b"")]
    {
        seeds.push(Packet::new(opcode, key).bytes());
    }
    seeds.push(Packet::store(0x01, b"large", 0, 0, &[b'v'; 30_000]).bytes());
    seeds.push([REQUEST_MAGIC; 64].to_vec());
    seeds.push(Packet::new(0x21, b"PLAIN").value(b"\0user\0password").bytes());
    seeds.into_iter().map(|seed| [&[3, 1, 0, 2], &seed[..]].concat()).collect()
}
