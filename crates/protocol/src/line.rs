//! One line of the protocol: its end, its longest length, and the data block behind it.

use crate::limits::{LEADING_SPACES_MAX, LINE_BYTES_MAX, WHOLE_LINE_BYTES_MAX};
use crate::reply;
use crate::request::Request;
use crate::step::{ParseOptions, Step};

/// A complete line in the buffer.
pub(crate) struct Line<'a> {
    /// The buffer, which also contains the data block behind the line.
    pub(crate) input: &'a [u8],
    /// The line without its end.
    pub(crate) text: &'a [u8],
    /// Length of the line with its end, in bytes.
    pub(crate) consumed: usize,
    /// The caller's options.
    pub(crate) options: ParseOptions,
}

impl<'a> Line<'a> {
    /// The step for a line that is refused with `error`.
    pub(crate) fn reject(&self, error: &'static str, noreply: bool, swallow: u64) -> Step<'a> {
        Step::Reject { error: if noreply { "" } else { error }, consumed: self.consumed, swallow }
    }

    /// The step for a request without a data block, or for the reply that refuses it.
    pub(crate) fn answer(&self, result: Result<Request<'a>, &'static str>, noreply: bool) -> Step<'a> {
        match result {
            Ok(request) => Step::Request { request, consumed: self.consumed },
            Err(error) => self.reject(error, noreply, 0),
        }
    }
}

/// Where the text of a line ends whose newline is at `newline`. A carriage return before the newline is not part of
/// the text.
#[inline]
pub(crate) fn line_text_end(input: &[u8], newline: usize) -> usize {
    if newline > 0 && input[newline - 1] == b'\r' { newline - 1 } else { newline }
}

/// How many bytes of the line at the front of `input` may arrive without its end.
pub(crate) fn line_limit(input: &[u8], options: &ParseOptions) -> usize {
    if input.len() <= LINE_BYTES_MAX {
        return LINE_BYTES_MAX;
    }
    let spaces = input.iter().take(LEADING_SPACES_MAX).take_while(|&&byte| byte == b' ').count();
    let word = &input[spaces..];
    if word.starts_with(b"get ") || word.starts_with(b"gets ") {
        get_line_limit(options)
    } else if input.starts_with(b"gat ") || input.starts_with(b"gats ") {
        WHOLE_LINE_BYTES_MAX
    } else {
        LINE_BYTES_MAX
    }
}

/// The same for a line that is known to start with `get ` or `gets `.
#[inline]
pub(crate) fn get_line_limit(options: &ParseOptions) -> usize {
    options.line_bytes_max.max(LINE_BYTES_MAX)
}

/// The step for a storage request whose line was read: the request with its data block, an upload, or a wait for
/// more bytes.
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
