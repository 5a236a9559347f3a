//! Captures made packet by packet.

use std::net::{IpAddr, SocketAddr};

use etherparse::{
    IpHeaders, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder, TcpHeader, VlanId, ip_number,
};

use super::*;
use crate::Op;
use crate::trace::asked::Asked;

/// What the packets begin with.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Link {
    Ethernet,
    Vlan,
    Sll,
    Sll2,
    Loopback,
    Raw,
}

impl Link {
    const ALL: [Link; 6] = [Link::Ethernet, Link::Vlan, Link::Sll, Link::Sll2, Link::Loopback, Link::Raw];

    fn number(self) -> u32 {
        match self {
            Link::Ethernet | Link::Vlan => 1,
            Link::Sll => 113,
            Link::Sll2 => 276,
            Link::Loopback => 0,
            Link::Raw => 101,
        }
    }
}

/// A segment before it is a packet.
#[derive(Clone, Debug)]
struct Sent {
    is_asked: bool,
    sequence: u32,
    acknowledges: u32,
    flags: &'static str,
    octets: Vec<u8>,
}

/// A connection whose segments are written down as they are sent.
struct Dialogue {
    asked: u32,
    answered: u32,
    sent: Vec<Sent>,
}

impl Dialogue {
    /// A connection from its handshake on. The numbers of the bytes pass 2^32 soon.
    fn new() -> Dialogue {
        let mut made = Dialogue { asked: u32::MAX - 300, answered: u32::MAX - 500, sent: Vec::new() };
        made.send(true, "S", b"");
        made.asked += 1;
        made.send(false, "SA", b"");
        made.answered += 1;
        made.send(true, "A", b"");
        made
    }

    fn send(&mut self, is_asked: bool, flags: &'static str, octets: &[u8]) {
        let (sequence, acknowledges) =
            if is_asked { (self.asked, self.answered) } else { (self.answered, self.asked) };
        self.sent.push(Sent { is_asked, sequence, acknowledges, flags, octets: octets.to_vec() });
        let of = if is_asked { &mut self.asked } else { &mut self.answered };
        *of = of.wrapping_add(octets.len() as u32);
    }

    /// What is asked and answered, in segments of at most `most` bytes.
    fn say(mut self, exchanges: &[(&[u8], &[u8])], most: usize) -> Dialogue {
        for (asked, answered) in exchanges {
            asked.chunks(most).for_each(|octets| self.send(true, "A", octets));
            answered.chunks(most).for_each(|octets| self.send(false, "A", octets));
        }
        self
    }

    fn end(mut self) -> Vec<Sent> {
        self.send(true, "FA", b"");
        self.send(false, "FA", b"");
        self.sent
    }
}

/// The bytes of a packet.
fn packet(sent: &Sent, link: Link, is_v6: bool) -> Vec<u8> {
    let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let (from, to) = if sent.is_asked { (client, server) } else { (server, client) };
    let (from_port, to_port) = if sent.is_asked { (40_000, 11_211) } else { (11_211, 40_000) };
    let mut tcp = TcpHeader::new(from_port, to_port, sent.sequence, 1000);
    tcp.syn = sent.flags.contains('S');
    tcp.fin = sent.flags.contains('F');
    tcp.ack = sent.flags.contains('A');
    tcp.acknowledgment_number = if tcp.ack { sent.acknowledges } else { 0 };
    let bytes = (tcp.header_len() + sent.octets.len()) as u16;
    let ip = if is_v6 {
        let of = |address: [u8; 4]| {
            let mut octets = [0xfd; 16];
            octets[12..].copy_from_slice(&address);
            octets
        };
        let head = Ipv6Header {
            traffic_class: 0,
            flow_label: Ipv6FlowLabel::ZERO,
            payload_length: bytes,
            next_header: ip_number::TCP,
            hop_limit: 64,
            source: of(from),
            destination: of(to),
        };
        IpHeaders::Ipv6(head, Default::default())
    } else {
        let head = Ipv4Header::new(bytes, 64, ip_number::TCP, from, to).expect("it is short enough");
        IpHeaders::Ipv4(head, Default::default())
    };
    let mut octets = Vec::new();
    let type_of_ip = if is_v6 { [0x86, 0xdd] } else { [0x08, 0x00] };
    let written = match link {
        Link::Ethernet => {
            PacketBuilder::ethernet2([2; 6], [4; 6]).ip(ip).tcp_header(tcp).write(&mut octets, &sent.octets)
        }
        Link::Vlan => PacketBuilder::ethernet2([2; 6], [4; 6])
            .single_vlan(VlanId::try_new(7).expect("a number of 12 bits"))
            .ip(ip)
            .tcp_header(tcp)
            .write(&mut octets, &sent.octets),
        _ => {
            let mut head = match link {
                Link::Sll => vec![0; 14],
                Link::Loopback => vec![2, 0, 0, 0],
                _ => Vec::new(),
            };
            if matches!(link, Link::Sll | Link::Sll2) {
                head.extend(type_of_ip);
            }
            head.resize(if link == Link::Sll2 { 20 } else { head.len() }, 0);
            octets = head;
            PacketBuilder::ip(ip).tcp_header(tcp).write(&mut octets, &sent.octets)
        }
    };
    written.expect("a buffer takes everything");
    // Short packets of Ethernet are filled up.
    octets.resize(octets.len().max(if link == Link::Ethernet { 60 } else { 0 }), 0);
    octets
}

/// A pcap file. A packet comes a millisecond after the one before.
fn pcap(sent: &[Sent], link: Link, is_v6: bool, snap_bytes: usize) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, snap_bytes as u32, link.number()] {
        file.extend(word.to_le_bytes());
    }
    for (one, at) in sent.iter().zip(0u32..) {
        let octets = packet(one, link, is_v6);
        let captured = octets.len().min(snap_bytes);
        for word in [1000 + at / 1000, at % 1000 * 1000, captured as u32, octets.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(&octets[..captured]);
    }
    file
}

/// What is asked and answered.
type Exchange = (Vec<u8>, Vec<u8>);

/// A request: key, operation, bytes of the value, time to live.
type Short = (u64, Op, u32, u32);

/// What was found in a file.
struct Found {
    requests: Vec<Short>,
    penalties: Vec<u32>,
    hits: Option<(u64, u64)>,
    notice: String,
    error: Option<String>,
}

fn read(file: &[u8]) -> Found {
    let path = tempfile::NamedTempFile::new().expect("there is room for a file");
    std::fs::write(path.path(), file).expect("it can be written");
    let mut packets = Packets::open(path.path(), &PORTS, None).unwrap_or_else(|error| panic!("{error}"));
    let (mut requests, mut error) = (Vec::new(), None);
    while packets.take(&mut requests).unwrap_or_else(|why| {
        error = Some(why.0);
        false
    }) {}
    packets.end(&mut requests);
    Found {
        penalties: requests.iter().map(|one| one.penalty_us).collect(),
        requests: requests.iter().map(|one| (one.key, one.op, one.value_bytes, one.ttl_s)).collect(),
        hits: packets.hit_ratio().map(|(ratio, reads)| ((ratio * reads as f64).round() as u64, reads)),
        notice: packets.notice().unwrap_or_default(),
        error,
    }
}

fn read_whole(sent: &[Sent]) -> Found {
    read(&pcap(sent, Link::Ethernet, false, 1 << 18))
}

/// Requests of memcached with all that a client may send, and the answers.
fn classic() -> (Vec<Exchange>, Vec<Short>) {
    let long = vec![b'v'; 20_000];
    let both = |asked: &[u8], answered: &[u8]| (asked.to_vec(), answered.to_vec());
    let exchanges = vec![
        both(b"get 1\r\n", b"END\r\n"),
        both(b"set 1 0 100 5\r\nget 9\r\n", b"STORED\r\n"),
        both(b"get 1 2 3\r\n", b"VALUE 1 0 5\r\nEND\r\n\r\nVALUE 3 5 1 77\r\nx\r\nEND\r\n"),
        (
            [b"set 4 0 0 20000\r\n", long.as_slice(), b"\r\nget 4\r\nappend 4 0 0 2 noreply\r\nab\r\n"]
                .concat(),
            [b"STORED\r\nVALUE 4 0 20000\r\n", long.as_slice(), b"\r\nEND\r\n"].concat(),
        ),
        both(b"delete 1 noreply\r\nincr 5 1\r\nversion\r\n", b"12\r\nVERSION 1.6\r\n"),
        both(b"gat 100 3\r\ntouch 3 5\r\n", b"VALUE 3 0 1\r\ny\r\nEND\r\nTOUCHED\r\n"),
    ];
    // `get 9` is the value of the key 1 with its end: 5 bytes and the line end.
    let requests = vec![
        (1, Op::Get, 0, 0),
        (1, Op::Set, 5, 100),
        (1, Op::Get, 5, 0),
        (2, Op::Get, 0, 0),
        (3, Op::Get, 1, 0),
        (4, Op::Set, 20_000, 0),
        (4, Op::Get, 20_000, 0),
        (4, Op::Append, 20_002, 0),
        (1, Op::Delete, 0, 0),
        (5, Op::Incr, 1, 0),
        (3, Op::Get, 1, 0),
        (3, Op::Get, 0, 0),
    ];
    (exchanges, requests)
}

fn said(exchanges: &[Exchange], most: usize) -> Dialogue {
    let exchanges: Vec<(&[u8], &[u8])> =
        exchanges.iter().map(|(asked, answered)| (asked.as_slice(), answered.as_slice())).collect();
    Dialogue::new().say(&exchanges, most)
}

/// Numbers that look like chance.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

#[test]
fn requests_of_memcached_are_read_on_every_link() {
    let (exchanges, expected) = classic();
    for link in Link::ALL {
        for is_v6 in [false, true] {
            for most in [1400, 7, 1] {
                let sent = said(&exchanges, most).end();
                let found = read(&pcap(&sent, link, is_v6, 1 << 18));
                assert_eq!(found.requests, expected, "{link:?} {is_v6} {most}: {}", found.notice);
                // A touch is no read of the statistics.
                assert_eq!(
                    (found.hits, found.notice.as_str()),
                    (Some((4, 6)), ""),
                    "{link:?} {is_v6} {most}"
                );
            }
        }
    }
    let penalties = read_whole(&said(&exchanges, 1400).end()).penalties;
    assert_eq!(penalties[1], 2000, "a store two packets after the miss");
}

#[test]
fn segments_come_twice_and_out_of_order() {
    let (exchanges, expected) = classic();
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let mut sent = said(&exchanges, 1 + dice.below(900)).sent;
        for _ in 0..sent.len() / 4 {
            let at = dice.below(sent.len());
            match dice.below(3) {
                // Two segments of one direction change places.
                0 => {
                    let next = (at + 1..sent.len()).find(|&next| sent[next].is_asked == sent[at].is_asked);
                    if let Some(next) = next.filter(|next| *next == at + 1 && at > 3) {
                        sent.swap(at, next);
                    }
                }
                // A segment comes again, now or later.
                1 => {
                    let later = (at + 1 + dice.below(8)).min(sent.len());
                    sent.insert(later, sent[at].clone());
                }
                // The end of one and the begin of the next come again in one.
                _ => {
                    if let Some(next) = sent.get(at + 1)
                        && next.is_asked == sent[at].is_asked
                        && next.sequence == sent[at].sequence.wrapping_add(sent[at].octets.len() as u32)
                    {
                        let mut both = sent[at].clone();
                        both.octets.extend(&next.octets[..next.octets.len() / 2]);
                        sent.insert(at + 1, both);
                    }
                }
            }
        }
        let found = read_whole(&sent);
        assert_eq!(found.requests, expected, "seed {seed}: {}", found.notice);
        assert_eq!((found.hits, found.notice.as_str()), (Some((4, 6)), ""), "seed {seed}");
    }
}

/// `count` reads, each with its answer: those of even keys hit.
fn reads(count: u64) -> Vec<Exchange> {
    let one = |key: u64| {
        let value = if key.is_multiple_of(2) { format!("VALUE {key} 0 3\r\nabc\r\n") } else { String::new() };
        (format!("get {key}\r\n").into_bytes(), format!("{value}END\r\n").into_bytes())
    };
    (0..count).map(one).collect()
}

#[test]
fn after_a_loss_the_next_request_is_found_and_its_answer_with_it() {
    for seed in 0..50 {
        let mut sent = said(&reads(100), 1400).sent;
        let mut dice = Dice(seed);
        // Not the last ones: nobody tells of their loss.
        let lost = 3 + dice.below(190);
        let one = sent.remove(lost);
        let found = read_whole(&sent);
        assert!(found.notice.contains("bytes that were not captured: "), "seed {seed}: {}", found.notice);
        let keys: Vec<u64> = found.requests.iter().map(|request| request.0).collect();
        let (hits, known) = found.hits.unwrap();
        if one.is_asked {
            let key = (lost as u64 - 3) / 2;
            assert_eq!(keys, (0..100).filter(|of| *of != key).collect::<Vec<_>>(), "seed {seed}");
            assert!(found.notice.contains("looked for: 1"), "seed {seed}: {}", found.notice);
            assert_eq!((hits, known), (50 - u64::from(key.is_multiple_of(2)), 99), "seed {seed}");
        } else {
            assert_eq!(keys, (0..100).collect::<Vec<_>>(), "seed {seed}");
            assert!(
                (97..100).contains(&known) && hits.abs_diff(known / 2) <= 1,
                "seed {seed}: {hits} {known}"
            );
        }
        for (key, _, bytes, _) in found.requests {
            assert!(bytes == 0 || (bytes == 3 && key.is_multiple_of(2)), "seed {seed}: {key} {bytes}");
        }
    }
}

#[test]
fn a_loss_within_a_value_loses_nothing() {
    let (exchanges, expected) = classic();
    let mut sent = said(&exchanges, 1400).sent;
    let of_values = |one: &Sent| one.octets.iter().all(|&octet| octet == b'v') && one.octets.len() == 1400;
    let mut places: Vec<usize> = (0..sent.len()).filter(|&at| of_values(&sent[at])).collect();
    assert!(places.len() > 20, "values of both directions");
    places.retain(|at| at % 3 == 0);
    places.iter().rev().for_each(|&at| drop(sent.remove(at)));
    let found = read_whole(&sent);
    assert_eq!((found.requests, found.hits), (expected, Some((4, 6))));
    let lost = format!("bytes that were not captured: {}", 1400 * places.len());
    assert!(found.notice.ends_with(&lost), "{}", found.notice);
}

#[test]
fn values_that_the_capture_cuts_off_have_their_length() {
    let long = vec![b'v'; 20_000];
    let set = [b"set 4 0 0 20000\r\n", long.as_slice(), b"\r\n"].concat();
    let value = [b"VALUE 4 0 20000\r\n", long.as_slice(), b"\r\nEND\r\n"].concat();
    let exchanges: [(&[u8], &[u8]); 4] = [
        (b"get 4\r\n", b"END\r\n"),
        (&set, b"STORED\r\n"),
        (b"get 4\r\n", &value),
        (b"get 5\r\n", b"END\r\n"),
    ];
    // Ethernet, IP and TCP take 54 bytes. The end of the value is cut off with its last segment, so that the answer to
    // the last request is not known before the next one.
    let sent = Dialogue::new().say(&exchanges, 1400).end();
    let found = read(&pcap(&sent, Link::Ethernet, false, 54 + 20));
    let expected = [(4, Op::Get, 0, 0), (4, Op::Set, 20_000, 0), (4, Op::Get, 20_000, 0), (5, Op::Get, 0, 0)];
    assert_eq!((found.requests.as_slice(), found.hits), (expected.as_slice(), Some((1, 3))));
    assert_eq!(found.notice, "");
    // Redis's words are cut off in one packet with their command.
    let value = vec![b'x'; 1000];
    let set = [b"*3\r\n$3\r\nSET\r\n$1\r\n7\r\n$1000\r\n", value.as_slice(), b"\r\n"].concat();
    let sixty = "1234567890".repeat(6);
    let short = format!("*3\r\n$3\r\nSET\r\n$1\r\n8\r\n$60\r\n{sixty}\r\n").into_bytes();
    let bulk = [b"$1000\r\n", value.as_slice(), b"\r\n"].concat();
    let get = b"*2\r\n$3\r\nGET\r\n$1\r\n7\r\n";
    let sent = Dialogue::new().say(&[(&set, b"+OK\r\n"), (&short, b"+OK\r\n"), (get, &bulk)], 1400).end();
    let found = read(&pcap(&sent, Link::Ethernet, false, 54 + 50));
    let expected = [(7, Op::Set, 1000, 0), (8, Op::Set, 60, 0), (7, Op::Get, 1000, 0)];
    assert_eq!(
        (found.requests.as_slice(), found.hits),
        (expected.as_slice(), Some((1, 1))),
        "{}",
        found.notice
    );
    // Words behind the value are lost, and the command counts without them.
    let set = [b"*5\r\n$3\r\nSET\r\n$1\r\n7\r\n$1000\r\n", value.as_slice(), b"\r\n$2\r\nEX\r\n$1\r\n9\r\n"]
        .concat();
    let sent = Dialogue::new().say(&[(&set, b"+OK\r\n"), (get, &bulk)], 1400).end();
    let found = read(&pcap(&sent, Link::Ethernet, false, 54 + 50));
    let expected = [(7, Op::Set, 1000, 0), (7, Op::Get, 1000, 0)];
    assert_eq!((found.requests.as_slice(), found.hits), (expected.as_slice(), Some((1, 1))));
    assert!(found.notice.contains("looked for: 1"), "{}", found.notice);
    // A key that is cut off makes no request.
    let long = format!("*2\r\n$3\r\nGET\r\n$60\r\n{sixty}\r\n").into_bytes();
    let sent = Dialogue::new().say(&[(&long, b"$-1\r\n"), (get, b"$-1\r\n")], 1400).end();
    let found = read(&pcap(&sent, Link::Ethernet, false, 54 + 50));
    assert_eq!((found.requests, found.hits), (vec![(7, Op::Get, 0, 0)], Some((0, 1))));
    assert!(found.notice.contains("their key was not captured whole: 1"), "{}", found.notice);
}

#[test]
fn meta_commands_answer_by_their_tokens() {
    let exchanges: [(&[u8], &[u8]); 5] = [
        (b"mg 1 v s\r\n", b"EN\r\n"),
        (b"ms 1 5 T60\r\nhello\r\nmg 1 v\r\n", b"HD\r\nVA 5\r\nhello\r\n"),
        // Of quiet reads only the hits are answered, until `mn`.
        (
            b"mg 2 v q O1\r\nmg 3 v q k\r\nmg MQ== b v q k O3\r\nms 4 2 q\r\nab\r\nmn\r\n",
            b"VA 2 k3\r\nzz\r\nVA 5 kMQ== O3\r\nhello\r\nMN\r\n",
        ),
        (b"md 1 q\r\nmd 9\r\nma 5 MD\r\n", b"NF\r\nHD\r\n"),
        (b"mg 1\r\nms 6 1 ME G7\r\nx\r\n", b"EN\r\nNS\r\n"),
    ];
    for most in [1400, 3] {
        let found = read_whole(&Dialogue::new().say(&exchanges, most).end());
        let expected = [
            (1, Op::Get, 0, 0),
            (1, Op::Set, 5, 60),
            (1, Op::Get, 5, 0),
            (2, Op::Get, 0, 0),
            (3, Op::Get, 2, 0),
            (1, Op::Get, 5, 0),
            (4, Op::Set, 2, 0),
            (1, Op::Delete, 0, 0),
            (9, Op::Delete, 0, 0),
            (5, Op::Decr, 1, 0),
            (1, Op::Get, 0, 0),
            (6, Op::Add, 1, 0),
        ];
        assert_eq!(found.requests, expected, "{}", found.notice);
        assert_eq!((found.hits, found.notice.as_str()), (Some((3, 6)), ""));
    }
}

#[test]
fn commands_of_redis_are_read_with_their_answers() {
    let words = |words: &[&str]| {
        let each = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*{}\r\n{}", words.len(), each.collect::<String>()).into_bytes()
    };
    let long = "l".repeat(9000);
    let pairs: [(Vec<u8>, &str); 9] = [
        (words(&["HELLO", "3"]), "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n"),
        (words(&["GET", "1"]), "_\r\n"),
        (words(&["SET", "1", &long, "EX", "9"]), "+OK\r\n"),
        (
            [words(&["get", "1"]), words(&["MGET", "1", "2", "3"])].concat(),
            &format!("${}\r\n{long}\r\n*3\r\n${}\r\n{long}\r\n$-1\r\n$2\r\nab\r\n", 9000, 9000),
        ),
        // A push between, and arrays in an array.
        (
            words(&["HGETALL", "5"]),
            ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\n1\r\n*2\r\n*1\r\n$1\r\na\r\n*0\r\n",
        ),
        (
            [words(&["MULTI"]), words(&["GET", "3"]), words(&["EXEC"])].concat(),
            "+OK\r\n+QUEUED\r\n*1\r\n$-1\r\n",
        ),
        ([words(&["SELECT", "2"]), words(&["SELECT", "0"])].concat(), "+OK\r\n+OK\r\n"),
        (words(&["GETDEL", "3"]), "$2\r\nab\r\n"),
        (words(&["GET", "3"]), "-ERR no\r\n"),
    ];
    for most in [1400, 1] {
        let exchanges: Vec<Exchange> =
            pairs.iter().map(|(asked, answered)| (asked.clone(), answered.as_bytes().to_vec())).collect();
        let found = read_whole(&said(&exchanges, most).end());
        let expected = [
            (1, Op::Get, 0, 0),
            (1, Op::Set, 9000, 9),
            (1, Op::Get, 9000, 0),
            (1, Op::Get, 9000, 0),
            (2, Op::Get, 0, 0),
            (3, Op::Get, 2, 0),
            (5, Op::Get, 0, 0),
            (3, Op::Get, 0, 0),
            (3, Op::Get, 2, 0),
            (3, Op::Delete, 0, 0),
            (3, Op::Get, 0, 0),
        ];
        assert_eq!(found.requests, expected, "{}", found.notice);
        assert_eq!(found.hits, Some((4, 6)), "{}", found.notice);
        assert!(found.notice.ends_with("other commands: 5"), "{}", found.notice);
    }
}

#[test]
fn a_capture_that_begins_within_connections_finds_their_requests() {
    let sent = said(&reads(100), 1400).sent;
    for from in 3..20 {
        let found = read_whole(&sent[from..]);
        let first = (from as u64 - 2) / 2;
        let keys: Vec<u64> = found.requests.iter().map(|request| request.0).collect();
        assert_eq!(keys, (first..100).collect::<Vec<_>>());
        assert_eq!(found.hits.map(|(_, reads)| reads), Some(100 - first), "from {from}: {}", found.notice);
    }
}

#[test]
fn what_is_no_request_is_told() {
    let tls =
        Dialogue::new().say(&[(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x16\x03\x03")], 1400);
    let found = read_whole(&tls.end());
    assert!(found.requests.is_empty() && found.hits.is_none());
    assert!(found.notice.contains("or of Redis's: 1"), "{}", found.notice);
    let mut file = pcap(&said(&reads(3), 1400).sent, Link::Ethernet, false, 1 << 18);
    file[20] = 147;
    let found = read(&file);
    assert!(found.notice.contains("because packets of link type 147 are not known: "), "{}", found.notice);
}

#[test]
fn a_damaged_file_gives_what_came_before() {
    let sent = said(&reads(100), 1400).end();
    let file = pcap(&sent, Link::Ethernet, false, 1 << 18);
    let found = read(&file[..file.len() - 5]);
    assert_eq!((found.requests.len(), found.error), (100, None));
    assert!(found.notice.contains("breaks off in its packet 205"), "{}", found.notice);
    // The length of a packet.
    let mut damaged = file.clone();
    let at = pcap(&sent[..201], Link::Ethernet, false, 1 << 18).len() + 8;
    damaged[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let found = read(&damaged);
    assert_eq!(found.requests.len(), 99);
    assert!(found.error.is_some_and(|why| why.contains("is damaged after 201 packets: a packet of 4294967")));
    let path = tempfile::NamedTempFile::new().unwrap();
    for text in ["", "time,key\n1,2\n"] {
        std::fs::write(path.path(), text).unwrap();
        let error = Packets::open(path.path(), &PORTS, None).err().unwrap();
        assert!(error.0.ends_with(": is no capture of packets (pcap or pcapng)"), "{error}");
    }
}

/// A pcapng file of one interface whose times are in nanoseconds.
fn pcapng(sent: &[Sent]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let padded = body.len().next_multiple_of(4);
        let length = (padded as u32 + 12).to_be_bytes();
        let filled = vec![0; padded - body.len()];
        [&kind.to_be_bytes(), &length, body, &filled, &length].concat()
    };
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let mut file = block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 0x0001_0000, u32::MAX, u32::MAX]));
    // Ethernet; `if_tsresol` = 9.
    file.extend(block(1, &words(&[0x0001_0000, 0, 0x0009_0001, 0x0900_0000, 0])));
    // A block of statistics, which nobody needs.
    file.extend(block(5, &words(&[0, 0, 0])));
    for (one, at) in sent.iter().zip(0u64..) {
        let octets = packet(one, Link::Ethernet, false);
        let ns = 1_700_000_000_000_000_000 + at * 1_000_000;
        let length = octets.len() as u32;
        let head = words(&[0, (ns >> 32) as u32, ns as u32, length, length]);
        file.extend(block(6, &[head, octets].concat()));
    }
    file
}

#[test]
fn pcapng_is_read_and_compressed_files_are() {
    let (exchanges, expected) = classic();
    let file = pcapng(&said(&exchanges, 1400).end());
    let found = read(&file);
    assert_eq!((found.requests, found.penalties[1]), (expected.clone(), 2000), "{}", found.notice);
    let found = read(&zstd::encode_all(file.as_slice(), 1).unwrap());
    assert_eq!((found.requests, found.notice.as_str()), (expected, ""));
}

#[test]
fn no_bytes_make_the_readers_panic() {
    let mut dice = Dice(7);
    let alphabet = b"get set VALUE END\r\n$*_0123456789 VA mg ms k\x00\xff";
    for at in 0..2000 {
        let mut noise = |begin: &[u8]| {
            let more = (0..dice.below(120)).map(|_| alphabet[dice.below(alphabet.len())]).collect();
            [begin.to_vec(), more].concat()
        };
        let begins = [b"get 1\r\n".as_slice(), b"*2\r\n$3\r\nGET\r\n$1\r\n1\r\n", b"mg 1 q\r\n"];
        let asked = noise(begins[at % 3]);
        let answered = noise(b"");
        let sent = Dialogue::new().say(&[(&asked, &answered), (&answered, &asked)], 50).sent;
        let mut connections = Connections {
            of_peers: HashMap::new(),
            heard: Heard { asked: Asked::new(0), counts: Counts::default(), lost_bytes: 0, silent: 0 },
            turned_away: 0,
            looked_us: 0,
        };
        for one in &sent {
            let octets = packet(one, Link::Raw, true);
            let cut = octets.len() - dice.below(3).min(octets.len() / 2);
            let packet = Packet { time_us: 0, link: pcap_parser::Linktype::RAW, octets: &octets[..cut] };
            if let Ok(Some(segment)) = segment::read(&packet) {
                connections.take(&segment, &PORTS);
            }
        }
        connections.end();
    }
}

#[test]
fn connections_are_bounded_in_what_waits() {
    // The second segment never comes, and what follows is kept no longer than there is room.
    let mut sent = said(&reads(5000), 1400).sent;
    sent.retain(|one| one.is_asked);
    sent.remove(4);
    let mut connections = Connections {
        of_peers: HashMap::new(),
        heard: Heard { asked: Asked::new(0), counts: Counts::default(), lost_bytes: 0, silent: 0 },
        turned_away: 0,
        looked_us: 0,
    };
    for one in &sent {
        let octets = packet(one, Link::Raw, false);
        let packet = Packet { time_us: 0, link: pcap_parser::Linktype::RAW, octets: &octets };
        if let Ok(Some(segment)) = segment::read(&packet) {
            assert_eq!(segment.from.ip(), IpAddr::from([10, 0, 0, 1]));
            connections.take(&segment, &PORTS);
        }
        assert!(connections.of_peers.values().all(|of| of.client.early_count() <= 256));
    }
    assert!(connections.heard.asked.next_place() > 4000);
    let peers: Vec<(SocketAddr, SocketAddr)> = connections.of_peers.keys().copied().collect();
    assert_eq!(peers.len(), 1);
}
