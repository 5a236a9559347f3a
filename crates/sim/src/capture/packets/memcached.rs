//! memcached's text protocol, classic and meta: what is asked, and what is answered.

use std::collections::VecDeque;

use larder_protocol::limits::KEY_BYTES_MAX;
use larder_protocol::{Meta, MetaVerb, ParseOptions, Request, Step, StoreVerb, decode_key, parse};

use super::reader::Reader;
use super::waiting::{Lost, MetaWaiting, Waiting};
use crate::Op;
use crate::trace::asked::{Asked, Size};
use crate::trace::field::digits;

/// No value is waited for.
const OPTIONS: ParseOptions = ParseOptions { whole_bytes_max: 0, line_bytes_max: 1 << 20 };
/// The longest line of an answer.
const LINE_BYTES_MAX: usize = 4096;
/// A longer time to live is a point in time (protocol.txt: 30 days).
const TTL_S_MAX: i32 = 60 * 60 * 24 * 30;
/// The number that counts has this many bytes at least.
const NUMBER_BYTES: u64 = 1;
/// What the requests begin with.
const WORDS: [&[u8]; 24] = [
    b"get",
    b"gets",
    b"gat",
    b"gats",
    b"set",
    b"add",
    b"replace",
    b"append",
    b"prepend",
    b"cas",
    b"delete",
    b"incr",
    b"decr",
    b"touch",
    b"mg",
    b"ms",
    b"md",
    b"ma",
    b"mn",
    b"me",
    b"stats",
    b"version",
    b"flush_all",
    b"verbosity",
];

/// Whether a segment begins with a request.
pub(super) fn begins(octets: &[u8]) -> bool {
    let end = octets.iter().position(|&octet| matches!(octet, b' ' | b'\r' | b'\n'));
    end.is_some_and(|end| WORDS.contains(&&octets[..end]))
}

/// Reads the requests that are there whole.
pub(super) fn ask(
    reader: &mut Reader,
    time_us: u64,
    waiting: &mut VecDeque<Waiting>,
    asked: &mut Asked,
) -> Result<(), Lost> {
    let mut at = 0;
    loop {
        let (bytes, more) = match parse(&reader.buffer[at..], &OPTIONS) {
            Step::NeedMore { .. } => break,
            Step::Close | Step::Refuse(_) => return Err(Lost),
            Step::Request { request, consumed } => {
                add(&request, time_us, waiting, asked);
                (consumed, 0)
            }
            Step::Upload { request, consumed, body_bytes } => {
                add(&request, time_us, waiting, asked);
                (consumed, u64::from(body_bytes) + b"\r\n".len() as u64)
            }
            // No command, so that no request may begin here.
            Step::Reject { error, .. } if error.starts_with("ERROR") => return Err(Lost),
            Step::Reject { error, consumed, swallow } => {
                waiting.extend((!error.is_empty()).then_some(Waiting::Line));
                (consumed, swallow)
            }
        };
        at = reader.pass(at + bytes, more);
    }
    reader.forget(at);
    Ok(())
}

/// Takes a request.
fn add(request: &Request<'_>, time_us: u64, waiting: &mut VecDeque<Waiting>, asked: &mut Asked) {
    let mut one = |op, key: &[u8], size, ttl| {
        let place = asked.next_place();
        asked.add_one(time_us, op, (b"0", key), size, ttl_s(ttl, time_us));
        place
    };
    let line = |noreply: bool| (!noreply).then_some(Waiting::Line);
    let waits = match request {
        Request::Get(get) => {
            let places: Vec<u64> = get.keys.clone().map(|key| one(Op::Get, key, Size::Unknown, 0)).collect();
            let next = places.first().copied().unwrap_or(0);
            Some(Waiting::Values { next, end: next + places.len() as u64 })
        }
        Request::Store(store) => {
            let bytes = u64::from(store.bytes);
            let (op, size) = match store.verb {
                StoreVerb::Set => (Op::Set, Size::Is(bytes)),
                StoreVerb::Add => (Op::Add, Size::Is(bytes)),
                StoreVerb::Replace => (Op::Replace, Size::Is(bytes)),
                StoreVerb::Cas => (Op::Cas, Size::Is(bytes)),
                StoreVerb::Append => (Op::Append, Size::More(bytes)),
                StoreVerb::Prepend => (Op::Prepend, Size::More(bytes)),
            };
            one(op, store.key, size, store.exptime);
            line(store.noreply)
        }
        Request::Touch { key, noreply, .. } => {
            one(Op::Get, key, Size::Unknown, 0);
            line(*noreply)
        }
        Request::Delete { key, noreply } => {
            one(Op::Delete, key, Size::Unknown, 0);
            line(*noreply)
        }
        Request::Arith { key, incr, noreply, .. } => {
            one(if *incr { Op::Incr } else { Op::Decr }, key, Size::AtLeast(NUMBER_BYTES), 0);
            line(*noreply)
        }
        Request::Meta(meta) => {
            let mut plain = [0; KEY_BYTES_MAX];
            let decoded = if meta.flags.has(b'b') { decode_key(meta.key, &mut plain) } else { None };
            let (op, size, ttl) = what(meta);
            let place = op.map(|op| one(op, decoded.unwrap_or(meta.key), size, ttl));
            Some(Waiting::Meta(MetaWaiting::of(meta, place)))
        }
        Request::MetaNoop => Some(Waiting::Noop),
        Request::Quit => None,
        Request::Version => Some(Waiting::Line),
        Request::FlushAll { noreply, .. } | Request::Verbosity { noreply, .. } => line(*noreply),
        // The answer may have any form.
        _ => Some(Waiting::Anything),
    };
    waiting.extend(waits);
}

/// What a meta request does: the command, the length of the value, the time to live.
fn what(meta: &Meta<'_>) -> (Option<Op>, Size, i32) {
    let bytes = u64::from(meta.bytes);
    match (meta.verb, meta.flags.mode) {
        (MetaVerb::Get, _) => (Some(Op::Get), Size::Unknown, 0),
        (MetaVerb::Set, b'E') => (Some(Op::Add), Size::Is(bytes), meta.flags.ttl),
        (MetaVerb::Set, b'A') => (Some(Op::Append), Size::More(bytes), 0),
        (MetaVerb::Set, b'P') => (Some(Op::Prepend), Size::More(bytes), 0),
        (MetaVerb::Set, b'R') => (Some(Op::Replace), Size::Is(bytes), meta.flags.ttl),
        (MetaVerb::Set, _) if meta.flags.has(b'C') => (Some(Op::Cas), Size::Is(bytes), meta.flags.ttl),
        (MetaVerb::Set, _) => (Some(Op::Set), Size::Is(bytes), meta.flags.ttl),
        (MetaVerb::Delete, _) => (Some(Op::Delete), Size::Unknown, 0),
        (MetaVerb::Arith, b'D') => (Some(Op::Decr), Size::AtLeast(NUMBER_BYTES), 0),
        (MetaVerb::Arith, _) => (Some(Op::Incr), Size::AtLeast(NUMBER_BYTES), 0),
        (MetaVerb::Debug | MetaVerb::Flush, _) => (None, Size::Unknown, 0),
    }
}

/// The time to live in seconds of what a request says.
fn ttl_s(exptime: i32, time_us: u64) -> u32 {
    match exptime {
        0 => 0,
        // It has expired already; 0 would mean never.
        ..0 => 1,
        1..=TTL_S_MAX => exptime.unsigned_abs(),
        _ => u64::from(exptime.unsigned_abs()).saturating_sub(time_us / 1_000_000).max(1) as u32,
    }
}

/// Reads the answers that are there whole.
pub(super) fn answer(
    reader: &mut Reader,
    waiting: &mut VecDeque<Waiting>,
    asked: &mut Asked,
) -> Result<(), Lost> {
    let mut at = 0;
    while let Some((line, behind)) = reader.line(at) {
        let value_bytes = answer_line(line, waiting, asked)?;
        at = reader.pass(behind, value_bytes.map_or(0, |bytes| bytes + b"\r\n".len() as u64));
    }
    reader.forget(at);
    if reader.buffer.len() > LINE_BYTES_MAX { Err(Lost) } else { Ok(()) }
}

/// Takes a line of an answer. Returns the length of the value that follows it, if one does.
fn answer_line(line: &[u8], waiting: &mut VecDeque<Waiting>, asked: &mut Asked) -> Result<Option<u64>, Lost> {
    let words: Vec<&[u8]> = line.split(|&octet| octet == b' ').filter(|word| !word.is_empty()).collect();
    let code = words.first().copied().unwrap_or_default();
    match code {
        b"VALUE" => {
            let Some(Waiting::Values { next, end }) = waiting.front_mut() else { return Err(Lost) };
            let [_, key, _, bytes, ..] = words.as_slice() else { return Err(Lost) };
            let (key, bytes) = (asked.number(key), digits(bytes).ok_or(Lost)?);
            let found = (*next..*end).find(|&place| asked.at(place).is_none_or(|one| one.request.key == key));
            let found = found.ok_or(Lost)?;
            (*next..found).for_each(|place| asked.answer(place, false, None));
            asked.answer(found, true, Some(bytes));
            *next = found + 1;
            Ok(Some(bytes))
        }
        b"END" => match waiting.pop_front() {
            Some(Waiting::Values { next, end }) => {
                (next..end).for_each(|place| asked.answer(place, false, None));
                Ok(None)
            }
            _ => Err(Lost),
        },
        b"VA" | b"HD" | b"EN" | b"NF" | b"NS" | b"EX" | b"ME" | b"MN" => {
            let bytes = if code == b"VA" { Some(value_bytes(&words)?) } else { None };
            answer_meta(code, &words, bytes, waiting, asked)?;
            Ok(bytes)
        }
        _ => match waiting.pop_front() {
            Some(Waiting::Line) => Ok(None),
            Some(Waiting::Values { .. } | Waiting::Meta(_)) if code.ends_with(b"ERROR") => Ok(None),
            _ => Err(Lost),
        },
    }
}

fn value_bytes(words: &[&[u8]]) -> Result<u64, Lost> {
    words.get(1).and_then(|word| digits(word)).ok_or(Lost)
}

/// Takes the answer to a meta request. The quiet ones before it have got the usual answer, which is left out.
fn answer_meta(
    code: &[u8],
    words: &[&[u8]],
    value_bytes: Option<u64>,
    waiting: &mut VecDeque<Waiting>,
    asked: &mut Asked,
) -> Result<(), Lost> {
    loop {
        match waiting.pop_front() {
            Some(Waiting::Noop) if code == b"MN" => return Ok(()),
            Some(Waiting::Meta(one)) if code != b"MN" && one.fits(code, words) => {
                if let Some(place) = one.read {
                    asked.answer(place, code != b"EN", value_bytes);
                }
                return Ok(());
            }
            Some(Waiting::Meta(one)) if one.is_quiet => {
                if let Some(place) = one.read {
                    asked.answer(place, false, None);
                }
            }
            _ => return Err(Lost),
        }
    }
}
