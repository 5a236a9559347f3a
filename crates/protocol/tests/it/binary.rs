//! The parser of the binary protocol beside a slow twin, and what holds for every input.

use larder_protocol::binary::{
    BODY_BYTES_MAX, Command, Echo, HEADER_BYTES, REQUEST_MAGIC, Refusal, Request, Status, Step, parse, reply,
};
use larder_protocol::limits::{KEY_BYTES_MAX, SASL_DATA_BYTES_MAX, SASL_MECHANISM_BYTES_MAX};
use larder_protocol::{ParseOptions, StatsKind, StoreVerb};
use proptest::prelude::*;

const OPTIONS: ParseOptions = ParseOptions { whole_bytes_max: 40, line_bytes_max: 3000 };

/// The opcodes of the release, as its description lists them: quiet ones beside their loud ones.
const OPCODES: &[(&str, u8, Option<u8>)] = &[
    ("Get", 0x00, Some(0x09)),
    ("Set", 0x01, Some(0x11)),
    ("Add", 0x02, Some(0x12)),
    ("Replace", 0x03, Some(0x13)),
    ("Delete", 0x04, Some(0x14)),
    ("Increment", 0x05, Some(0x15)),
    ("Decrement", 0x06, Some(0x16)),
    ("Quit", 0x07, Some(0x17)),
    ("Flush", 0x08, Some(0x18)),
    ("Noop", 0x0a, None),
    ("Version", 0x0b, None),
    ("GetK", 0x0c, Some(0x0d)),
    ("Append", 0x0e, Some(0x19)),
    ("Prepend", 0x0f, Some(0x1a)),
    ("Stat", 0x10, None),
    ("Touch", 0x1c, None),
    ("GAT", 0x1d, Some(0x1e)),
    ("GATK", 0x23, Some(0x24)),
    ("SASL list", 0x20, None),
    ("SASL auth", 0x21, None),
    ("SASL step", 0x22, None),
];

/// The slow twin: it takes bytes one field after the other, looks names up in a list, and says what it finds in words
/// that the test makes of the parser's result too.
struct Twin<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Twin<'a> {
    fn take(&mut self, count: usize) -> u64 {
        let bytes = &self.input[self.at..self.at + count];
        self.at += count;
        bytes.iter().fold(0, |sum, byte| sum * 256 + u64::from(*byte))
    }

    /// What is at the front of the input: the words, the bytes consumed, and the bytes to take behind those.
    fn read(input: &'a [u8]) -> (String, usize, u64) {
        if !input.is_empty() && input[0] != REQUEST_MAGIC {
            return ("close".into(), 0, 0);
        }
        if input.len() < HEADER_BYTES {
            return (format!("more {HEADER_BYTES}"), 0, 0);
        }
        let mut twin = Twin { input, at: 1 };
        let opcode = twin.take(1) as u8;
        let key_bytes = twin.take(2);
        let extras_bytes = twin.take(1);
        let (_datatype, _vbucket) = (twin.take(1), twin.take(2));
        let body_bytes = twin.take(4);
        let opaque = twin.take(4);
        let cas = twin.take(8);
        let head_bytes = HEADER_BYTES + (key_bytes + extras_bytes) as usize;
        if input.len() < head_bytes {
            return (format!("more {head_bytes}"), 0, 0);
        }
        let refused = |status: Status, closes: bool| {
            let value_bytes = if closes { 0 } else { body_bytes - key_bytes - extras_bytes };
            (format!("refuse {opcode:#x} {opaque} {status:?} {closes}"), head_bytes, value_bytes)
        };
        if key_bytes + extras_bytes > body_bytes {
            return refused(Status::UnknownCommand, true);
        }
        if body_bytes > u64::from(BODY_BYTES_MAX) || key_bytes > KEY_BYTES_MAX as u64 {
            return refused(Status::Invalid, true);
        }
        let Some((name, loud, _)) =
            OPCODES.iter().find(|(_, loud, quiet)| *loud == opcode || *quiet == Some(opcode))
        else {
            return refused(Status::UnknownCommand, false);
        };
        let quiet = *loud != opcode;
        let value_bytes = body_bytes - key_bytes - extras_bytes;
        // Key, extras and value: what must be there.
        let (needs_key, allows_key, extras, allows_value) = match *name {
            "Get" | "GetK" | "Delete" => (true, true, &[0][..], false),
            "GAT" | "GATK" | "Touch" => (true, true, &[4][..], false),
            "Set" | "Add" | "Replace" => (true, true, &[8][..], true),
            "Append" | "Prepend" => (true, true, &[0][..], true),
            "Increment" | "Decrement" => (true, true, &[20][..], false),
            "Flush" => (false, false, &[0, 4][..], false),
            "Stat" => (false, true, &[0][..], false),
            "SASL auth" | "SASL step" => (true, true, &[0][..], true),
            _ => (false, false, &[0][..], false),
        };
        let has_key = key_bytes > 0;
        if (needs_key && !has_key)
            || (!allows_key && has_key)
            || !extras.contains(&extras_bytes)
            || (!allows_value && value_bytes > 0)
        {
            return refused(Status::Invalid, true);
        }
        if name.starts_with("SASL ") && key_bytes > SASL_MECHANISM_BYTES_MAX as u64 {
            return refused(Status::Invalid, false);
        }
        if name.starts_with("SASL ") && value_bytes > SASL_DATA_BYTES_MAX as u64 {
            return refused(Status::NoMemory, false);
        }
        let stores = matches!(*name, "Set" | "Add" | "Replace" | "Append" | "Prepend");
        let follows = if stores && value_bytes > OPTIONS.whole_bytes_max as u64 { value_bytes } else { 0 };
        let consumed = HEADER_BYTES + (body_bytes - follows) as usize;
        if input.len() < consumed {
            return (format!("more {consumed}"), 0, 0);
        }
        let mut words = format!("{name} quiet={quiet} {opcode:#x} {opaque} cas={cas}");
        let mut extra = Vec::new();
        match *name {
            "Set" | "Add" | "Replace" => extra.extend([twin.take(4), twin.take(4)]),
            "Increment" | "Decrement" => extra.extend([twin.take(8), twin.take(8), twin.take(4)]),
            "GAT" | "GATK" | "Touch" => extra.push(twin.take(4)),
            "Flush" if extras_bytes == 4 => extra.push(twin.take(4)),
            _ => {}
        }
        let key = &input[twin.at..twin.at + key_bytes as usize];
        let value = &input[twin.at + key.len()..consumed];
        if *name == "Stat" && stats_name(key).is_none() {
            return refused(Status::NotFound, false);
        }
        words += &format!(" {extra:?} {key:?} {value_bytes} {value:?}");
        (words, consumed, follows)
    }
}

/// The statistics that a key asks for.
fn stats_name(key: &[u8]) -> Option<&'static str> {
    const WHOLE: &[&str] = &[
        "",
        "items",
        "slabs",
        "sizes",
        "conns",
        "temperature",
        "worth",
        "namespaces",
        "compression",
        "extstore",
        "flash",
        "penalties",
    ];
    const BEGUN: &[&str] = &["reset", "settings", "detail dump", "detail on", "detail off"];
    let whole = WHOLE.iter().find(|name| name.as_bytes() == key);
    whole.or_else(|| BEGUN.iter().find(|name| key.starts_with(name.as_bytes()))).copied()
}

/// The parser's result in the twin's words.
fn shown(input: &[u8], step: &Step<'_>) -> (String, usize, u64) {
    match step {
        Step::NeedMore { at_least } => (format!("more {at_least}"), 0, 0),
        Step::Close => ("close".into(), 0, 0),
        Step::Refuse(_) => unreachable!("no packet is refused with the connection"),
        Step::Reject {
            error: Refusal { echo: Echo { opcode, opaque }, status, closes },
            consumed,
            swallow,
        } => (format!("refuse {opcode:#x} {opaque} {status:?} {closes}"), *consumed, *swallow),
        Step::Request { request, consumed } => (request_words(input, request), *consumed, 0),
        Step::Upload { request, consumed, body_bytes } => {
            (request_words(input, request), *consumed, u64::from(*body_bytes))
        }
    }
}

fn request_words(input: &[u8], request: &Request<'_>) -> String {
    let Request { echo: Echo { opcode, opaque }, quiet, cas, key, command } = request;
    let initial_words = |initial: Option<(u64, u32)>| match initial {
        // What is sent as the initial value of a counter that is not created does not matter.
        None => (u64::from_be_bytes(*input[32..].first_chunk().expect("extras")), u64::from(u32::MAX)),
        Some((value, exptime)) => (value, exptime.into()),
    };
    let mut shown_key = *key;
    let (name, extra, value_bytes, value): (_, Vec<u64>, usize, &[u8]) = match *command {
        Command::Get { with_key: false, exptime: None } => ("Get", vec![], 0, &[]),
        Command::Get { with_key: true, exptime: None } => ("GetK", vec![], 0, &[]),
        Command::Get { with_key: false, exptime: Some(exptime) } => ("GAT", vec![exptime.into()], 0, &[]),
        Command::Get { with_key: true, exptime: Some(exptime) } => ("GATK", vec![exptime.into()], 0, &[]),
        Command::Touch { exptime } => ("Touch", vec![exptime.into()], 0, &[]),
        Command::Store { verb, flags, exptime, bytes, data } => match verb {
            StoreVerb::Set => ("Set", vec![flags.into(), exptime.into()], bytes as usize, data),
            StoreVerb::Add => ("Add", vec![flags.into(), exptime.into()], bytes as usize, data),
            StoreVerb::Replace => ("Replace", vec![flags.into(), exptime.into()], bytes as usize, data),
            StoreVerb::Append => ("Append", vec![], bytes as usize, data),
            StoreVerb::Prepend => ("Prepend", vec![], bytes as usize, data),
            StoreVerb::Cas => panic!("the binary protocol has no such command"),
        },
        Command::Delete => ("Delete", vec![], 0, &[]),
        Command::Arith { incr, delta, initial } => {
            let (value, exptime) = initial_words(initial);
            (if incr { "Increment" } else { "Decrement" }, vec![delta, value, exptime], 0, &[])
        }
        Command::Flush { exptime } => ("Flush", exptime.map(u64::from).into_iter().collect(), 0, &[]),
        Command::Noop => ("Noop", vec![], 0, &[]),
        Command::Version => ("Version", vec![], 0, &[]),
        Command::Quit => ("Quit", vec![], 0, &[]),
        Command::Stats(kind) => {
            assert!(key.is_empty());
            let length = u16::from_be_bytes([input[2], input[3]]) as usize;
            shown_key = &input[HEADER_BYTES..HEADER_BYTES + length];
            let name = match kind {
                StatsKind::General => "",
                StatsKind::Items => "items",
                StatsKind::Slabs => "slabs",
                StatsKind::Sizes => "sizes",
                StatsKind::Conns => "conns",
                StatsKind::Temperature => "temperature",
                StatsKind::Worth => "worth",
                StatsKind::Namespaces => "namespaces",
                StatsKind::Compression => "compression",
                StatsKind::Extstore => "extstore",
                StatsKind::Flash => "flash",
                StatsKind::Penalties => "penalties",
                StatsKind::Mrc => "mrc",
                StatsKind::Latency => "latency",
                StatsKind::Reset => "reset",
                StatsKind::Settings => "settings",
                StatsKind::DetailDump => "detail dump",
                StatsKind::DetailOn => "detail on",
                StatsKind::DetailOff => "detail off",
                other => panic!("{other:?} cannot be asked for"),
            };
            assert_eq!(stats_name(shown_key), Some(name));
            ("Stat", vec![], 0, &[])
        }
        Command::SaslMechanisms => ("SASL list", vec![], 0, &[]),
        Command::Sasl { is_step, mechanism, data } => {
            assert!(key.is_empty());
            shown_key = mechanism;
            (if is_step { "SASL step" } else { "SASL auth" }, vec![], data.len(), data)
        }
    };
    format!(
        "{name} quiet={quiet} {opcode:#x} {opaque} cas={cas} {extra:?} {shown_key:?} {value_bytes} {value:?}"
    )
}

/// A packet with the given fields. The body is as long as the header says, up to 300 bytes.
fn packet(fields: (u8, u16, u8, u32, u32, u64), body: &[u8]) -> Vec<u8> {
    let (opcode, key, extras, value, opaque, cas) = fields;
    let body_bytes = (u32::from(key) + u32::from(extras)).wrapping_add(value);
    let mut packet = vec![REQUEST_MAGIC, opcode];
    packet.extend_from_slice(&key.to_be_bytes());
    packet.extend_from_slice(&[extras, 0, 0, 0]);
    packet.extend_from_slice(&body_bytes.to_be_bytes());
    packet.extend_from_slice(&opaque.to_be_bytes());
    packet.extend_from_slice(&cas.to_be_bytes());
    packet.extend_from_slice(&body[..body.len().min(body_bytes as usize)]);
    packet
}

fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    let opcode = prop_oneof![4 => 0u8..0x26, 1 => any::<u8>()];
    let key = prop_oneof![4 => 0u16..9, 2 => 240u16..260, 1 => 30u16..35, 1 => any::<u16>()];
    let extras = prop_oneof![8 => prop::sample::select(vec![0u8, 4, 8, 20]), 1 => any::<u8>()];
    let value = prop_oneof![
        4 => Just(0u32), 4 => 0u32..60, 1 => prop::sample::select(vec![
            16 << 10, (16 << 10) + 1, BODY_BYTES_MAX, BODY_BYTES_MAX + 1, u32::MAX, u32::MAX - 8,
        ]),
    ];
    let body = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..400),
        prop::sample::select(vec!["items", "reset", "settings2", "detail on", "detail x", "detail dump"])
            .prop_map(|name| name.as_bytes().to_vec()),
    ];
    ((opcode, key, extras, value, any::<u32>(), any::<u64>()), body)
        .prop_map(|(fields, body)| packet(fields, &body))
}

/// Packets that are often of the shape of their opcode.
fn good_packet() -> impl Strategy<Value = Vec<u8>> {
    let opcode = prop::sample::select(
        OPCODES.iter().flat_map(|(_, loud, quiet)| [Some(*loud), *quiet]).flatten().collect::<Vec<u8>>(),
    );
    let parts = (opcode, "[a-d]{1,8}", prop::collection::vec(any::<u8>(), 0..60), any::<u64>());
    parts.prop_map(|(opcode, key, value, cas)| {
        let extras = match opcode {
            1..=3 | 0x11..=0x13 => 8,
            5 | 6 | 0x15 | 0x16 => 20,
            0x1c..=0x1e | 0x23 | 0x24 => 4,
            _ => 0,
        };
        let has_value = matches!(opcode, 1..=3 | 0x11..=0x13 | 0x0e | 0x0f | 0x19 | 0x1a | 0x21 | 0x22);
        let has_key = !matches!(opcode, 7 | 8 | 0x0a | 0x0b | 0x10 | 0x17 | 0x18 | 0x20);
        let key = if has_key { key.as_bytes() } else { b"" };
        let value = if has_value { &value[..] } else { b"" };
        let body = [&[7; 20][..extras as usize], key, value].concat();
        packet((opcode, key.len() as u16, extras, value.len() as u32, cas as u32, cas % 3), &body)
    })
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let one = prop_oneof![good_packet(), any_packet()];
    prop_oneof![
        4 => prop::collection::vec(one, 1..5).prop_map(|packets| packets.concat()),
        1 => prop::collection::vec(any::<u8>(), 0..60),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn the_parser_says_what_its_slow_twin_says(input in stream()) {
        let mut rest = &input[..];
        loop {
            let step = parse(rest, &OPTIONS);
            prop_assert_eq!(shown(rest, &step), Twin::read(rest));
            let (_, consumed, follows) = Twin::read(rest);
            if consumed == 0 || rest.is_empty() {
                break;
            }
            let gone = consumed.saturating_add(usize::try_from(follows).unwrap_or(usize::MAX)).min(rest.len());
            rest = &rest[gone..];
        }
    }

    #[test]
    fn a_prefix_wants_more_or_answers_the_same(input in stream()) {
        let whole = parse(&input, &OPTIONS);
        for cut in 0..input.len() {
            match parse(&input[..cut], &OPTIONS) {
                Step::NeedMore { at_least } => {
                    prop_assert!(at_least > cut);
                    // Nobody has to keep more than the longest head that a header can announce.
                    prop_assert!(at_least <= HEADER_BYTES + usize::from(u8::MAX) + usize::from(u16::MAX));
                }
                step => prop_assert_eq!(&step, &whole, "cut at {}", cut),
            }
        }
    }
}

#[test]
fn replies_have_the_shape_that_the_release_gives_them() {
    let echo = Echo { opcode: 0x0c, opaque: 0x01020304 };
    let mut out = Vec::new();
    reply::hit(&mut out, echo, 5, b"key", 5, 9);
    assert_eq!(
        out,
        b"\x81\x0c\x00\x03\x04\x00\x00\x00\x00\x00\x00\x0c\x01\x02\x03\x04\0\0\0\0\0\0\0\x09\0\0\0\x05key"
    );
    out.clear();
    reply::error(&mut out, echo, Status::UnknownCommand);
    assert_eq!(out, b"\x81\x0c\0\0\0\0\0\x81\0\0\0\x0f\x01\x02\x03\x04\0\0\0\0\0\0\0\0Unknown command");
    out.clear();
    reply::miss_with_key(&mut out, echo, b"key");
    assert_eq!(out, b"\x81\x0c\0\x03\0\0\0\x01\0\0\0\x03\x01\x02\x03\x04\0\0\0\0\0\0\0\0key");
    out.clear();
    reply::number(&mut out, echo, 258, 1);
    assert_eq!(out, b"\x81\x0c\0\0\0\0\0\0\0\0\0\x08\x01\x02\x03\x04\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\x01\x02");
    out.clear();
    reply::stat(&mut out, echo, b"pid", b"77");
    assert_eq!(out, b"\x81\x0c\0\x03\0\0\0\0\0\0\0\x05\x01\x02\x03\x04\0\0\0\0\0\0\0\0pid77");
}
