//! The keys of a retrieval, found in one pass over its line.

use crate::limits::KEY_BYTES_MAX;
use crate::line::line_text_end;
use crate::reply;
use crate::request::{Get, Keys, Request};
use crate::scan::token_end;
use crate::step::Step;

/// The keys of a line, as found in the buffer.
#[derive(Clone, Copy)]
pub(crate) struct FoundKeys<'a> {
    first: &'a [u8],
    /// The line behind the first key.
    rest: &'a [u8],
    count: usize,
    /// Length of the longest key, in bytes.
    longest: usize,
    newline: usize,
}

impl<'a> FoundKeys<'a> {
    /// Where the line ends.
    #[inline]
    pub(crate) fn newline(&self) -> usize {
        self.newline
    }

    /// The retrieval, or the refusal of a line without keys or with a key that is too long.
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

/// The last `remaining` keys of the line of a retrieval that was parsed before. `rest` is what follows the key before
/// them, with the end of the line.
pub fn resume_keys(rest: &[u8], remaining: usize) -> Keys<'_> {
    Keys::behind(&rest[..line_text_end(rest, rest.len().saturating_sub(1))], remaining)
}

/// Finds the keys from `from` to the newline in one pass. `None` if there is no newline yet.
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
