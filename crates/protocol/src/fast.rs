//! The most frequent lines: `get`, `gets`, `mg` and `set` in their usual spelling.
//!
//! Each reader here returns exactly what [`any_line`] would return. Lines that are incomplete, unusual or wrong are
//! left to `any_line`. The tests compare the two.

use memchr::memchr;

use crate::classic::any_line;
use crate::keys::find_keys;
use crate::limits::{KEY_BYTES_MAX, LINE_BYTES_MAX};
use crate::line::{get_line_limit, line_text_end, with_block};
use crate::meta::{Meta, MetaVerb, read_flags};
use crate::request::{Request, Store, StoreVerb};
use crate::scan::{short_number, token_end};
use crate::step::{ParseOptions, Step};

/// A line that starts with `get ` or `gets ` and whose keys begin at `from`.
#[inline]
pub(crate) fn get_line<'a>(input: &'a [u8], from: usize, with_cas: bool, options: &ParseOptions) -> Step<'a> {
    match find_keys(input, from) {
        Some(found) if found.newline() <= get_line_limit(options) => found.answer(with_cas, None),
        _ => any_line(input, options),
    }
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
