//! Small requests allocate nothing.

mod dispatch_support;

use dispatch_support::binary_twin::Packet;
use dispatch_support::resp_twin::{encoded, words};
use dispatch_support::{Client, Talk, dispatcher, on_a_connection};
use larder_server::dispatch::Dispatcher;
use larder_server::settings::Settings;

/// All kinds of small requests, in an order in which each finds the item that it needs.
const REQUESTS: [&str; 20] = [
    "set KEY 5 0 32\r\n................................\r\n",
    "get KEY\r\n",
    "gets KEY absent KEY\r\n",
    "mg KEY v t f c k s l h Oopaque\r\n",
    "mg a2V5 b\r\n",
    "ms KEY 32 T100 F3\r\n................................\r\n",
    "add KEY 0 0 1\r\n1\r\n",
    "replace KEY 0 0 20\r\n00000000000000000000\r\n",
    "incr KEY 1\r\n",
    "decr KEY 1\r\n",
    "ma KEY t v\r\n",
    "touch KEY 1000\r\n",
    "gat 1000 KEY\r\n",
    "mg KEY T900 v\r\n",
    "append KEY 0 0 3\r\nabc\r\n",
    "prepend KEY 0 0 3\r\nabc\r\n",
    "cas KEY 0 0 1 1\r\n1\r\n",
    "md KEY I T30\r\n",
    "delete KEY\r\n",
    "mn\r\n",
];
const KEYS: usize = 500;

/// A small request of the binary protocol for a key.
type Small = fn(&[u8]) -> Packet;

/// All kinds of small requests of the binary protocol, in such an order too.
const PACKETS: [Small; 16] = [
    |key| Packet::store(0x01, key, 5, 0, &[b'.'; 32]),
    |key| Packet::new(0x00, key),
    |key| Packet::new(0x0c, key),
    |key| Packet::new(0x1d, key).extras(&1000u32.to_be_bytes()),
    |key| Packet::new(0x1c, key).extras(&1000u32.to_be_bytes()),
    |key| Packet::new(0x0e, key).value(b"abc"),
    |key| Packet::new(0x0f, key).value(b"abc"),
    |key| Packet::store(0x03, key, 0, 0, &[b'0'; 20]),
    |key| Packet::arith(0x05, key, 1, 0, 0),
    |key| Packet::arith(0x06, key, 1, 0, 0),
    |key| Packet::new(0x04, key),
    |key| Packet::store(0x02, key, 0, 0, b"1"),
    |key| Packet::new(0x09, key),
    |key| Packet::store(0x11, key, 5, 0, &[b'.'; 32]),
    |key| Packet::new(0x14, key),
    |_| Packet::new(0x0a, b""),
];

/// All kinds of small requests of RESP, in such an order too: a request, and how the reply to it begins.
const COMMANDS: [(&str, &str); 27] = [
    ("SET KEY ................................", "+OK"),
    ("GET KEY", "$32"),
    ("SET KEY 1 EX 1000", "+OK"),
    ("SET KEY 1 NX", "NULL"),
    ("SET KEY 7 XX KEEPTTL", "+OK"),
    ("EXPIRE KEY 2000 GT", ":1"),
    ("SETEX KEY 1000 7", "+OK"),
    ("PSETEX KEY 1000000 7", "+OK"),
    ("SETNX KEY 1", ":0"),
    ("INCR KEY", ":8"),
    ("DECR KEY", ":7"),
    ("INCRBY KEY 12345678901", ":12345678908"),
    ("EXPIRE KEY 1000", ":1"),
    ("PEXPIRE KEY 1000000", ":1"),
    ("TTL KEY", ":1000"),
    ("PTTL KEY", ":"),
    ("PERSIST KEY", ":1"),
    ("EXISTS KEY", ":1"),
    ("STRLEN KEY", ":11"),
    ("APPEND KEY abc", ":14"),
    ("GETRANGE KEY 0 3", "$4"),
    ("TYPE KEY", "+string"),
    ("MSET KEY 1 other-KEY 2", "+OK"),
    ("MGET KEY other-KEY absent", "*3"),
    ("DEL KEY other-KEY", ":2"),
    ("GET KEY", "NULL"),
    ("PING", "+PONG"),
];
/// Keys of one `MGET`.
const KEYS_OF_MGET: usize = 100;

/// Sends requests in pieces of the size of a receive buffer. Returns how many allocations that made.
fn allocations(talk: &mut Talk, dispatcher: &mut Dispatcher, all: &[u8]) -> u64 {
    let mut play = || {
        for piece in all.chunks(16 << 10) {
            talk.send(dispatcher, piece);
        }
    };
    allocation_counter::measure(&mut play).count_total
}

/// A dispatcher with one worker, and a connection to it.
fn open(client: &Client<'_>) -> (Dispatcher, Talk) {
    let settings = Settings { memory_bytes: 64 << 20, threads: 1, ..Settings::default() };
    let (mut dispatcher, _) = dispatcher(settings, Some(1), Some(client));
    let talk = Talk::open(&mut dispatcher, client.peer);
    (dispatcher, talk)
}

/// A few allocations are allowed: a column is taken, a list of columns grows, a reply is longer than all before.
const ALLOCATIONS_MAX: u64 = KEYS as u64 / 50;

#[test]
fn a_small_request_allocates_nothing() {
    on_a_connection(|client| {
        let (mut dispatcher, mut talk) = open(client);
        let mut allocating = Vec::new();
        // In the first round buffers and the index grow to the size that they need.
        for is_measured in [false, true] {
            for request in REQUESTS {
                let all: String =
                    (0..KEYS).map(|key| request.replace("KEY", &format!("key-{key}"))).collect();
                let made = allocations(&mut talk, &mut dispatcher, all.as_bytes());
                let answers = talk.answered.split(|&byte| byte == b'\n').count();
                assert!(answers > KEYS, "{answers} lines answer {request:?}");
                assert!(!talk.answered.windows(5).any(|word| word == b"ERROR"), "{request:?}");
                talk.answered.clear();
                if is_measured && made > ALLOCATIONS_MAX {
                    allocating.push((made, request));
                }
            }
        }
        assert!(allocating.is_empty(), "{allocating:#?} of {KEYS} each");
    });
}

#[test]
fn a_small_request_of_the_binary_protocol_allocates_nothing() {
    on_a_connection(|client| {
        let (mut dispatcher, mut talk) = open(client);
        let mut allocating = Vec::new();
        for is_measured in [false, true] {
            for packet in PACKETS {
                let all: Vec<u8> =
                    (0..KEYS).flat_map(|key| packet(format!("key-{key}").as_bytes()).bytes()).collect();
                let made = allocations(&mut talk, &mut dispatcher, &all);
                let opcode = packet(b"").opcode;
                let said = std::mem::take(&mut talk.answered);
                let (replies, rest) = Packet::replies(&said);
                let expected = if matches!(opcode, 0x11 | 0x14) { 0 } else { KEYS };
                assert_eq!((replies.len(), rest.len()), (expected, 0), "{opcode:#x}");
                assert!(replies.iter().all(|reply| reply.status == 0), "{opcode:#x}");
                if is_measured && made > ALLOCATIONS_MAX {
                    allocating.push((made, opcode));
                }
            }
        }
        assert!(allocating.is_empty(), "{allocating:#x?} of {KEYS} each");
    });
}

#[test]
fn a_small_request_of_resp_allocates_nothing() {
    for version in [2, 3] {
        on_a_connection(move |client| {
            let (mut dispatcher, mut talk) = open(client);
            talk.send(&mut dispatcher, &encoded(&words(&format!("HELLO {version}"))));
            assert!(talk.answered.starts_with(if version == 3 { b"%" } else { b"*" }));
            // A thread that has to wait in the middle of a MSET or DEL makes the request a slow one.
            talk.send(&mut dispatcher, &encoded(&words("CONFIG SET slowlog-log-slower-than -1")));
            assert!(talk.answered.ends_with(b"+OK\r\n"));
            let null = if version == 3 { "_\r\n" } else { "$-1\r\n" };
            let mut allocating = Vec::new();
            for is_measured in [false, true] {
                for (command, begins) in COMMANDS {
                    let all: Vec<u8> = (0..KEYS)
                        .flat_map(|key| encoded(&words(&command.replace("KEY", &format!("key-{key}")))))
                        .collect();
                    talk.answered.clear();
                    let made = allocations(&mut talk, &mut dispatcher, &all);
                    let said = String::from_utf8_lossy(&talk.answered);
                    let begins = begins.replace("NULL", null.trim_end());
                    let replies = said.lines().filter(|line| line.starts_with(&begins)).count();
                    assert!(
                        replies >= KEYS && !said.contains("ERR"),
                        "{replies} replies to {command}: {said:.80}"
                    );
                    if is_measured && made > ALLOCATIONS_MAX {
                        allocating.push((made, command));
                    }
                }
            }
            assert!(allocating.is_empty(), "RESP{version}: {allocating:#?} of {KEYS} each");
        });
    }
}

/// Requests behind a large value are left where they are.
#[test]
fn what_follows_a_large_value_is_not_copied() {
    on_a_connection(move |client| {
        let (mut dispatcher, mut talk) = open(client);
        let value = "v".repeat(40 << 10);
        for options in ["", " EX 100"] {
            let mut all = encoded(&words(&format!("SET key {value}{options}")));
            all.extend(encoded(&words("SET other .")).repeat(1500));
            let mut bytes = Vec::new();
            for _ in 0..3 {
                talk.answered.clear();
                bytes.push(allocation_counter::measure(|| talk.send(&mut dispatcher, &all)).bytes_total);
                assert_eq!(talk.answered, b"+OK\r\n".repeat(1501));
            }
            assert!(bytes[2] < 8 << 10, "{bytes:?} bytes are allocated");
        }
    });
}

#[test]
fn a_large_mget_allocates_nothing() {
    for version in [2, 3] {
        on_a_connection(move |client| {
            let (mut dispatcher, mut talk) = open(client);
            talk.send(&mut dispatcher, &encoded(&words(&format!("HELLO {version}"))));
            // Every other key has an item.
            for key in (0..KEYS_OF_MGET).step_by(2) {
                talk.send(&mut dispatcher, &encoded(&words(&format!("SET key-{key} {:032}", key))));
            }
            let keys: Vec<String> = (0..KEYS_OF_MGET).map(|key| format!("key-{key}")).collect();
            let all = encoded(&words(&format!("MGET {}", keys.join(" ")))).repeat(KEYS);
            allocations(&mut talk, &mut dispatcher, &all);
            talk.answered.clear();
            let made = allocations(&mut talk, &mut dispatcher, &all);
            let said = String::from_utf8_lossy(&talk.answered);
            let values = said.lines().filter(|line| *line == "$32").count();
            assert_eq!(values, KEYS * KEYS_OF_MGET / 2);
            assert!(made <= ALLOCATIONS_MAX, "RESP{version}: {made} allocations");
        });
    }
}
