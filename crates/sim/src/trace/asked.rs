//! Requests that a server or its packets tell of, until it is known what they are: whether a look-up is a part of a
//! change, whether a read has hit, what the miss before a store has cost.

use std::collections::VecDeque;

use super::field::digits;
use super::key::KeyReader;
use crate::mix::KeyMap;
use crate::{Op, Request};

/// The most keys whose last miss is remembered.
const MISSES_MAX: usize = 1_000_000;
/// The length of a number that counts.
const NUMBER_BYTES: u64 = 8;
/// The longest time from a miss to a store that counts as what the miss cost, in microseconds (PAMA, section IV).
const PENALTY_US_MAX: u64 = 5_000_000;

/// A word of a command.
#[derive(Debug, Default)]
pub(crate) struct Word {
    /// The word, or nothing where it is not known or too long to be kept.
    pub(crate) text: Vec<u8>,
    /// Its length in bytes.
    pub(crate) bytes: u64,
}

impl From<Vec<u8>> for Word {
    fn from(text: Vec<u8>) -> Word {
        Word { bytes: text.len() as u64, text }
    }
}

/// A request that has come.
#[derive(Debug)]
pub(crate) struct One {
    /// The time of the request, in microseconds of the unix time.
    pub(crate) time_us: u64,
    /// The request, as far as it is known.
    pub(crate) request: Request,
    /// Whether a look-up has found an item; `None` = it is not known.
    is_hit: Option<bool>,
    /// A look-up has turned out to be a part of a change.
    pub(crate) is_part: bool,
}

/// What a command says of the length of a value, in bytes.
#[derive(Clone, Copy)]
pub(crate) enum Size {
    /// Nothing.
    Unknown,
    /// The length.
    Is(u64),
    /// What it grows by.
    More(u64),
    /// The least that it can be.
    AtLeast(u64),
}

/// Requests that have come, the oldest first. The place of a request is its number, from 0 on.
#[derive(Debug)]
pub(crate) struct Asked {
    keys: KeyReader,
    waiting: VecDeque<One>,
    /// Requests that may wait for what is told of them later.
    waiting_max: usize,
    /// How many requests have left `waiting`.
    taken: u64,
    /// When a key was looked up and not found.
    misses: KeyMap<u64>,
    hits: u64,
    /// Reads of which is known whether they have hit.
    gets: u64,
    /// The lengths of the values of keys, where commands tell how much they add.
    sizes: KeyMap<u32>,
    /// Requests whose keys are not known.
    cut: u64,
}

impl Asked {
    /// No request yet. At most `waiting_max` of them wait for what is told of them later.
    pub(crate) fn new(waiting_max: usize) -> Asked {
        Asked {
            keys: KeyReader::new(),
            waiting: VecDeque::new(),
            waiting_max,
            taken: 0,
            misses: KeyMap::default(),
            hits: 0,
            gets: 0,
            sizes: KeyMap::default(),
            cut: 0,
        }
    }

    /// The number of a key.
    pub(crate) fn number(&self, key: &[u8]) -> u64 {
        self.keys.read(key)
    }

    /// The place of the next request.
    pub(crate) fn next_place(&self) -> u64 {
        self.taken + self.waiting.len() as u64
    }

    /// The request at a place, if it still waits.
    pub(crate) fn at(&mut self, place: u64) -> Option<&mut One> {
        self.waiting.get_mut(usize::try_from(place.checked_sub(self.taken)?).ok()?)
    }

    /// The place of the last request for this key, if it still waits.
    pub(crate) fn last_of(&self, key: u64) -> Option<u64> {
        let at = self.waiting.iter().rposition(|one| one.request.key == key)?;
        Some(self.taken + at as u64)
    }

    /// The share of the reads that found an item, where that is known, and of how many reads it is.
    pub(crate) fn hit_ratio(&self) -> Option<(f64, u64)> {
        (self.gets > 0).then(|| (self.hits as f64 / self.gets as f64, self.gets))
    }

    /// How many requests are left out because their keys are not known.
    pub(crate) fn cut(&self) -> u64 {
        self.cut
    }

    /// The next request, with its time in microseconds, once it is known what it is. `is_over` = nothing is told of it
    /// any more.
    pub(crate) fn pop(&mut self, is_over: bool) -> Option<(u64, Request)> {
        let waiting_max = if is_over { 0 } else { self.waiting_max };
        while self.waiting.len() > waiting_max {
            let mut one = self.waiting.pop_front()?;
            self.taken += 1;
            if !one.is_part {
                self.note_outcome(&mut one);
                return Some((one.time_us, one.request));
            }
        }
        None
    }

    /// Counts hits, and finds out what the miss before a store has cost.
    fn note_outcome(&mut self, one: &mut One) {
        let One { time_us, request, is_hit, .. } = one;
        if request.op == Op::Get {
            let Some(is_hit) = *is_hit else { return };
            self.gets += 1;
            self.hits += u64::from(is_hit);
            if !is_hit && self.misses.len() < MISSES_MAX {
                self.misses.insert(request.key, *time_us);
            }
            return;
        }
        let gap_us = self.misses.remove(&request.key).map(|missed_us| time_us.saturating_sub(missed_us));
        if request.op != Op::Delete {
            request.penalty_us = gap_us.filter(|gap_us| *gap_us <= PENALTY_US_MAX).unwrap_or(0) as u32;
        }
    }

    /// Takes a request.
    pub(crate) fn add(&mut self, time_us: u64, request: Request, is_hit: Option<bool>) {
        self.waiting.push_back(One { time_us, request, is_hit, is_part: false });
    }

    /// Takes what the server has answered to the read at a place: whether it has found an item, and the length of its
    /// value in bytes if that is told.
    pub(crate) fn answer(&mut self, place: u64, is_hit: bool, value_bytes: Option<u64>) {
        let Some(one) = self.at(place) else { return };
        one.is_hit = Some(is_hit);
        if let Some(count) = value_bytes {
            one.request.value_bytes = length(count);
            let key = one.request.key;
            self.sizes.insert(key, length(count));
        }
    }

    /// The requests of a command of Redis. `false` = it is none for a key whose item this model has.
    pub(crate) fn add_command(&mut self, time_us: u64, database: &[u8], words: &[Word]) -> bool {
        let [name, args @ ..] = words else { return false };
        let name = name.text.to_ascii_lowercase();
        let len = |word: &Word| Size::Is(word.bytes);
        let sum = |words: &[Word]| words.iter().map(|word| word.bytes).sum();
        let mut add = |op, key: &Word, size, ttl_s| match key.text.len() as u64 == key.bytes {
            true => self.add_one(time_us, op, (database, &key.text), size, ttl_s),
            false => self.cut += 1,
        };
        match (name.as_slice(), args) {
            (b"mget" | b"exists" | b"touch" | b"sinter" | b"sunion" | b"sdiff", [_, ..]) => {
                args.iter().for_each(|key| add(Op::Get, key, Size::Unknown, 0));
            }
            (b"del" | b"unlink", [_, ..]) => {
                args.iter().for_each(|key| add(Op::Delete, key, Size::Unknown, 0));
            }
            (b"mset" | b"msetnx", [_, ..]) => {
                args.chunks_exact(2).for_each(|pair| add(Op::Set, &pair[0], len(&pair[1]), 0));
            }
            (b"set" | b"getset", [key, value, options @ ..]) => {
                let is_add = options.iter().any(|word| word.text.eq_ignore_ascii_case(b"nx"));
                add(if is_add { Op::Add } else { Op::Set }, key, len(value), ttl_s(options));
            }
            (b"setnx", [key, value]) => add(Op::Add, key, len(value), 0),
            (b"setex" | b"psetex", [key, time, value]) => {
                let unit: &[u8] = if name == b"psetex" { b"px" } else { b"ex" };
                add(Op::Set, key, len(value), seconds(unit, &time.text).unwrap_or(0));
            }
            (b"getdel", [key]) => {
                add(Op::Get, key, Size::Unknown, 0);
                add(Op::Delete, key, Size::Unknown, 0);
            }
            (b"append" | b"sadd" | b"zadd", [key, rest @ ..]) => {
                add(Op::Append, key, Size::More(sum(rest)), 0);
            }
            (b"hset" | b"hmset" | b"hsetnx" | b"setrange" | b"setbit", [key, rest @ ..]) => {
                add(Op::Append, key, Size::AtLeast(sum(rest)), 0);
            }
            (b"incr" | b"incrby" | b"incrbyfloat" | b"hincrby" | b"zincrby", [key, ..]) => {
                add(Op::Incr, key, Size::AtLeast(NUMBER_BYTES), 0);
            }
            (b"decr" | b"decrby", [key, ..]) => add(Op::Decr, key, Size::AtLeast(NUMBER_BYTES), 0),
            (
                b"get" | b"getex" | b"strlen" | b"getrange" | b"substr" | b"getbit" | b"bitcount" | b"ttl"
                | b"pttl" | b"type" | b"hget" | b"hmget" | b"hgetall" | b"hkeys" | b"hvals" | b"hlen"
                | b"hexists" | b"hstrlen" | b"smembers" | b"sismember" | b"smismember" | b"scard"
                | b"srandmember" | b"zscore" | b"zmscore" | b"zcard" | b"zcount" | b"zrank" | b"zrevrank"
                | b"zrange" | b"zrangebyscore" | b"zrevrange" | b"zrevrangebyscore",
                [key, ..],
            ) => add(Op::Get, key, Size::Unknown, 0),
            _ => return false,
        }
        true
    }

    /// Takes a request for a key of a database, from which the size of its value follows.
    pub(crate) fn add_one(
        &mut self,
        time_us: u64,
        op: Op,
        (database, key): (&[u8], &[u8]),
        size: Size,
        ttl_s: u32,
    ) {
        // Keys of one name in two databases are two keys.
        let number = match database {
            b"0" => self.keys.read(key),
            _ => self.keys.read(&[database, b":", key].concat()),
        };
        let value_bytes = match size {
            Size::Unknown => 0,
            Size::Is(count) => *self.sizes.entry(number).insert_entry(length(count)).get(),
            Size::More(count) => {
                let of_key = self.sizes.entry(number).or_default();
                *of_key = of_key.saturating_add(length(count));
                *of_key
            }
            Size::AtLeast(count) => {
                let of_key = self.sizes.entry(number).or_default();
                *of_key = length(count).max(*of_key);
                *of_key
            }
        };
        if op == Op::Delete {
            self.sizes.remove(&number);
        }
        let key_bytes = key.len().min(usize::from(u16::MAX)) as u16;
        self.add(
            time_us,
            Request { key: number, key_bytes, value_bytes, ttl_s, op, ..Request::default() },
            None,
        );
    }
}

/// The length of a value of which something is known: 0 would mean that nothing is.
fn length(bytes: u64) -> u32 {
    bytes.clamp(1, u32::MAX.into()) as u32
}

/// The seconds of `EX` or `PX` among the words of a `SET`.
fn ttl_s(options: &[Word]) -> u32 {
    options.windows(2).find_map(|pair| seconds(&pair[0].text, &pair[1].text)).unwrap_or(0)
}

/// A time in the unit of `EX` or `PX`, in seconds.
fn seconds(unit: &[u8], text: &[u8]) -> Option<u32> {
    let number = digits(text)?;
    let seconds = match unit.to_ascii_lowercase().as_slice() {
        b"ex" => number,
        b"px" => number.div_ceil(1000),
        _ => return None,
    };
    Some(seconds.min(u32::MAX.into()) as u32)
}
