//! The lines a cache hears all day: `get`, `gets`, `mg` and `set` in their usual spelling.
//!
//! Each reader here either returns what [`any_line`] would have returned, or hands over to it: on anything
//! incomplete, unusual or wrong. The tests hold the two against each other.

use memchr::memchr;

use crate::limits::{KEY_BYTES_MAX, LINE_BYTES_MAX};
use crate::meta::{Meta, MetaVerb, read_flags};
use crate::parse::{ParseOptions, Step, any_line, get_line_limit, line_text_end};
use crate::reply;
use crate::request::{Get, Keys, Request, Store, StoreVerb};
use crate::scan::{short_number, token_end};

/// `get ` or `gets `, whose keys begin at `from`.
#[inline]
pub(crate) fn get_line<'a>(input: &'a [u8], from: usize, with_cas: bool, options: &ParseOptions) -> Step<'a> {
    match find_keys(input, from) {
        Some(found) if found.newline <= get_line_limit(options) => found.answer(with_cas, None),
        _ => any_line(input, options),
    }
}

/// The keys of a line.
#[derive(Clone, Copy)]
pub(crate) struct FoundKeys<'a> {
    first: &'a [u8],
    /// The line behind the first key.
    rest: &'a [u8],
    count: usize,
    /// Length of the longest.
    longest: usize,
    newline: usize,
}

impl<'a> FoundKeys<'a> {
    /// The retrieval, or the refusal of a line without keys or with one too long.
    #[inline]
    pub(crate) fn answer(&self, with_cas: bool, exptime: Option<i32>) -> Step<'a> {
        let consumed = self.newline + 1;
        if self.count == 0 || self.longest > KEY_BYTES_MAX {
            return Step::Reject { error: reply::BAD_FORMAT, consumed, swallow: 0 };
        }
        let keys = Keys::new(self.first, self.rest, self.count);
        Step::Request { request: Request::Get(Get { keys, with_cas, exptime }), consumed }
    }
}

/// The keys from `from` to the newline, in one pass. `None` when there is no newline yet.
#[inline]
pub(crate) fn find_keys(input: &[u8], from: usize) -> Option<FoundKeys<'_>> {
    let newline = token_end(input, from);
    if *input.get(newline)? != b'\n' {
        return several_keys(input, from);
    }
    let first = &input[from..line_text_end(input, newline).max(from)];
    let count = usize::from(!first.is_empty());
    Some(FoundKeys { first, rest: &[], count, longest: first.len(), newline })
}

fn several_keys(input: &[u8], from: usize) -> Option<FoundKeys<'_>> {
    let mut first: Option<(usize, usize)> = None;
    let (mut count, mut longest) = (0, 0);
    let mut at = from;
    let newline = loop {
        while input.get(at) == Some(&b' ') {
            at += 1;
        }
        let end = token_end(input, at);
        let is_last = *input.get(end)? == b'\n';
        let key_end = if is_last { line_text_end(input, end).max(at) } else { end };
        if key_end > at {
            first.get_or_insert((at, key_end));
            count += 1;
            longest = longest.max(key_end - at);
        }
        if is_last {
            break end;
        }
        at = end;
    };
    let (start, end) = first.unwrap_or((from, from));
    let text_end = line_text_end(input, newline).max(end);
    Some(FoundKeys { first: &input[start..end], rest: &input[end..text_end], count, longest, newline })
}

/// `mg <key> <flag>*`.
#[inline]
pub(crate) fn mg_line<'a>(input: &'a [u8], options: &ParseOptions) -> Step<'a> {
    let start = b"mg ".len();
    let key_end = token_end(input, start);
    let newline = match input.get(key_end) {
        Some(b'\n') => Some(key_end),
        Some(_) => {
            let window = &input[key_end..input.len().min(key_end + LINE_BYTES_MAX)];
            memchr(b'\n', window).map(|at| key_end + at)
        }
        None => None,
    };
    let Some(newline) = newline.filter(|&at| at <= LINE_BYTES_MAX) else { return any_line(input, options) };
    let text_end = line_text_end(input, newline);
    let key_end = key_end.min(text_end);
    if key_end <= start || key_end - start > KEY_BYTES_MAX {
        return any_line(input, options);
    }
    let key = &input[start..key_end];
    let consumed = newline + 1;
    match read_flags(MetaVerb::Get, key, &input[key_end..text_end], 2) {
        Ok(flags) => {
            let meta = Meta { verb: MetaVerb::Get, key, flags, bytes: 0, data: &[] };
            Step::Request { request: Request::Meta(meta), consumed }
        }
        Err(error) => Step::Reject { error, consumed, swallow: 0 },
    }
}

/// `set <key> <flags> <exptime> <bytes>` with single spaces, short positive numbers and `\r\n`.
#[inline]
pub(crate) fn set_line<'a>(input: &'a [u8], options: &ParseOptions) -> Step<'a> {
    match usual_set(input) {
        Some((store, line_end)) => with_block(input, line_end, store.bytes, store.noreply, options, |data| {
            Request::Store(Store { data, ..store })
        }),
        None => any_line(input, options),
    }
}

#[inline]
fn usual_set(input: &[u8]) -> Option<(Store<'_>, usize)> {
    let start = b"set ".len();
    let key_end = token_end(input, start);
    if key_end == start || key_end - start > KEY_BYTES_MAX || *input.get(key_end)? != b' ' {
        return None;
    }
    let (flags, at) = short_number(input, key_end + 1)?;
    if *input.get(at)? != b' ' {
        return None;
    }
    let (exptime, at) = short_number(input, at + 1)?;
    if *input.get(at)? != b' ' {
        return None;
    }
    let (bytes, at) = short_number(input, at + 1)?;
    if input.get(at..at + 2)? != b"\r\n" {
        return None;
    }
    let store = Store {
        verb: StoreVerb::Set,
        key: &input[start..key_end],
        flags,
        exptime: exptime as i32,
        cas: 0,
        noreply: false,
        bytes,
        data: &[],
    };
    Some((store, at + 2))
}

/// The end of every storage request: its data block, if it is short enough to wait for.
#[inline]
pub(crate) fn with_block<'a>(
    input: &'a [u8],
    line_end: usize,
    bytes: u32,
    noreply: bool,
    options: &ParseOptions,
    request: impl FnOnce(&'a [u8]) -> Request<'a>,
) -> Step<'a> {
    let length = bytes as usize;
    if length > options.whole_bytes_max {
        return Step::Upload { request: request(&[]), consumed: line_end, body_bytes: bytes };
    }
    let data_end = line_end + length;
    let consumed = data_end + 2;
    match input.get(data_end..consumed) {
        None => Step::NeedMore { at_least: consumed },
        Some(b"\r\n") => Step::Request { request: request(&input[line_end..data_end]), consumed },
        Some(_) => Step::Reject { error: if noreply { "" } else { reply::BAD_CHUNK }, consumed, swallow: 0 },
    }
}
