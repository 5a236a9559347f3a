//! The operations, keys and values of the sequences.

use larder_cache::{Exclusive, Mode};
use larder_flash::Recover;
use proptest::prelude::*;
use proptest::sample::select;

/// How many keys the sequences use.
pub(crate) const KEYS: u8 = 12;
/// What a client may do with one key, in numbers that the map gives a meaning.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Store {
        key: u8,
        mode: Mode,
        bytes: usize,
        ttl: Ttl,
        cas: Cas,
        vivify: bool,
    },
    Upload {
        key: u8,
        mode: Mode,
        bytes: usize,
        pieces: usize,
        ttl: Ttl,
        cas: Cas,
    },
    BeginUpload {
        key: u8,
        bytes: usize,
    },
    GoOnUploading {
        share: u8,
    },
    AbandonUpload,
    Delete {
        key: u8,
        cas: Cas,
        invalidate: bool,
        drop_value: bool,
        ttl: Option<Ttl>,
    },
    Number {
        key: u8,
        value: u64,
        /// What follows the digits.
        end: &'static str,
    },
    Arith {
        key: u8,
        increment: bool,
        delta: u64,
        initial: Option<u64>,
        cas: Cas,
    },
    Touch {
        key: u8,
        ttl: Ttl,
    },
    Get {
        key: u8,
    },
    GetInStages {
        key: u8,
    },
    Claim {
        key: u8,
    },
    BeginRead {
        key: u8,
    },
    GoOnReading {
        most: usize,
    },
    List,
    Flush {
        after_s: Option<u32>,
    },
    FlushPrefix {
        key: u8,
        less: usize,
    },
    Wait {
        seconds: u32,
    },
    Change,
    Sleep,
    Fill,
    Restart,
    /// The device of flash takes nothing from now on, or takes what has waited.
    Stall,
}

/// Which evicted items are admitted to flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choosy {
    All,
    Read,
    /// A few, by a budget of bytes a day.
    Budget,
}

/// The flash behind memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    pub(crate) exclusive: Exclusive,
    pub(crate) recover: Recover,
    pub(crate) choosy: Choosy,
    pub(crate) zones: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Ttl {
    Never,
    AtOnce,
    Seconds(u32),
}

/// What a write says about CAS numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cas {
    Any,
    Right,
    Wrong,
    LowerMarksStale,
    Chosen(u64),
}

pub(crate) fn ttl() -> impl Strategy<Value = Ttl> {
    prop_oneof![4 => Just(Ttl::Never), 1 => Just(Ttl::AtOnce), 3 => (1u32..30).prop_map(Ttl::Seconds)]
}

pub(crate) fn cas() -> impl Strategy<Value = Cas> {
    prop_oneof![
        6 => Just(Cas::Any),
        2 => Just(Cas::Right),
        1 => Just(Cas::Wrong),
        1 => Just(Cas::LowerMarksStale),
        1 => prop_oneof![1u64..1000, Just(u64::MAX), Just(1 << 40), any::<u64>()].prop_map(Cas::Chosen),
    ]
}

pub(crate) fn mode() -> impl Strategy<Value = Mode> {
    select(vec![
        Mode::Set,
        Mode::Set,
        Mode::Set,
        Mode::Set,
        Mode::Add,
        Mode::Replace,
        Mode::Append,
        Mode::Prepend,
    ])
}

pub(crate) fn bytes() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => 0usize..64,
        3 => 480usize..560,
        2 => 3000usize..9000,
        1 => 9000usize..40_000,
    ]
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let key = || 0..KEYS;
    let large = || 33_000usize..200_000;
    prop_oneof![
        12 => (key(), mode(), bytes(), ttl(), cas(), prop::bool::weighted(0.2))
            .prop_map(|(key, mode, bytes, ttl, cas, vivify)| Op::Store { key, mode, bytes, ttl, cas, vivify }),
        3 => (key(), mode(), large(), 1usize..6, ttl(), cas())
            .prop_map(|(key, mode, bytes, pieces, ttl, cas)| Op::Upload { key, mode, bytes, pieces, ttl, cas }),
        1 => (key(), large()).prop_map(|(key, bytes)| Op::BeginUpload { key, bytes }),
        2 => (1u8..=255).prop_map(|share| Op::GoOnUploading { share }),
        1 => Just(Op::AbandonUpload),
        4 => (key(), cas(), prop::bool::weighted(0.3), prop::bool::weighted(0.2), prop::option::weighted(0.3, ttl()))
            .prop_map(|(key, cas, invalidate, drop_value, ttl)| Op::Delete { key, cas, invalidate, drop_value, ttl }),
        1 => (key(), prop_oneof![0u64..20, any::<u64>()], select(vec!["", "", " ", "\0"]))
            .prop_map(|(key, value, end)| Op::Number { key, value, end }),
        3 => (key(), any::<bool>(), prop_oneof![0u64..1000, any::<u64>()], prop::option::of(0u64..1000), cas())
            .prop_map(|(key, increment, delta, initial, cas)| Op::Arith { key, increment, delta, initial, cas }),
        3 => (key(), ttl()).prop_map(|(key, ttl)| Op::Touch { key, ttl }),
        8 => key().prop_map(|key| Op::Get { key }),
        4 => key().prop_map(|key| Op::GetInStages { key }),
        1 => key().prop_map(|key| Op::Claim { key }),
        2 => key().prop_map(|key| Op::BeginRead { key }),
        2 => (1usize..100_000).prop_map(|most| Op::GoOnReading { most }),
        1 => Just(Op::List),
        1 => prop::option::of(1u32..20).prop_map(|after_s| Op::Flush { after_s }),
        2 => (key(), 0usize..3).prop_map(|(key, less)| Op::FlushPrefix { key, less }),
        3 => (0u32..12).prop_map(|seconds| Op::Wait { seconds }),
        6 => Just(Op::Change),
        1 => Just(Op::Sleep),
        3 => Just(Op::Fill),
        1 => Just(Op::Restart),
        1 => Just(Op::Stall),
    ]
}

pub(crate) fn key_of(key: u8) -> Vec<u8> {
    // Short keys, and one of each length that fills a header exactly.
    let mut bytes = format!("key-{key}").into_bytes();
    if key % 4 == 3 {
        bytes.resize(30 + key as usize * 18, b'k');
    }
    bytes
}

/// What a key begins with: all of it but the last `less` letters.
pub(crate) fn prefix_of(key: u8, less: usize) -> Vec<u8> {
    let mut prefix = key_of(key);
    prefix.truncate(prefix.len() - less);
    prefix
}

/// A value that belongs to one key and version: no two values agree in more than a few bytes.
pub(crate) fn value_of(key: u8, count: u32, bytes: usize) -> Vec<u8> {
    let mut x = u64::from(count) << 8 | u64::from(key);
    let mut value = Vec::with_capacity(bytes + 8);
    while value.len() < bytes {
        x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ 0x55;
        value.extend_from_slice(&x.to_le_bytes());
    }
    value.truncate(bytes);
    value
}

/// The number in a value, by the rule of memcached: blanks and a plus may stand before it, and anything behind a blank
/// or a NUL that follows it.
pub(crate) fn number_of(value: &[u8]) -> Option<u64> {
    let is_blank = |byte: u8| byte == b' ' || (9..=13).contains(&byte);
    let text: Vec<u8> = value.iter().copied().skip_while(|&byte| is_blank(byte)).collect();
    let text = text.strip_prefix(b"+").unwrap_or(&text);
    let word = text.split(|&byte| is_blank(byte) || byte == 0).next()?;
    // `parse` takes a plus of its own.
    word.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(word).ok()?.parse().ok()).flatten()
}

/// A store, in one piece or (with `pieces`) as an upload.
pub(crate) struct Wanted {
    pub(crate) key: u8,
    pub(crate) mode: Mode,
    pub(crate) value: Vec<u8>,
    pub(crate) ttl: Ttl,
    pub(crate) cas: Cas,
    pub(crate) vivify: Option<Ttl>,
    pub(crate) pieces: usize,
}
