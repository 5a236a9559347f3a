//! The door: one request off the front of a buffer.

use memchr::memchr;

use crate::classic;
use crate::fast;
use crate::limits::{
    GET_LINE_BYTES_MAX, LEADING_SPACES_MAX, LINE_BYTES_MAX, LINE_BYTES_MIN, WHOLE_LINE_BYTES_MAX,
};
use crate::reply;
use crate::request::Request;

/// What the caller can afford to have buffered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseOptions {
    /// Longest value, in bytes, that is waited for and handed over whole; a longer one becomes a
    /// [`Step::Upload`]. Default 64 KiB.
    pub whole_bytes_max: usize,
    /// Longest `get` or `gets` line, in bytes without its newline. memcached sets no bound; a server that
    /// promises to stay inside its memory needs one. A longer line closes the connection, unless it came with its end
    /// and within [`WHOLE_LINE_BYTES_MAX`]. Values under [`LINE_BYTES_MAX`] count as that. Default
    /// [`GET_LINE_BYTES_MAX`], 1 MiB.
    pub line_bytes_max: usize,
}

impl Default for ParseOptions {
    fn default() -> Self {
        ParseOptions { whole_bytes_max: 64 << 10, line_bytes_max: GET_LINE_BYTES_MAX }
    }
}

/// What [`parse`] found at the front of the buffer.
///
/// Every variant but `NeedMore` and `Close` has `consumed > 0`: the bytes to drop before parsing again.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<'a> {
    /// Not a whole request yet.
    NeedMore {
        /// Trying again makes sense once the buffer holds this many bytes in total. When the line end is still
        /// unknown that is one more than there are.
        at_least: usize,
    },
    /// Close the connection without a word: an over-long line, or HTTP.
    Close,
    /// A request, with its data block if it has one.
    Request {
        /// The request.
        request: Request<'a>,
        /// Its length in the buffer, data block and line ends included.
        consumed: usize,
    },
    /// A storage request (`Store` or `Meta` with verb `Set`) whose value is longer than
    /// [`ParseOptions::whole_bytes_max`]. Only its line is consumed and its `data` is empty.
    Upload {
        /// The request.
        request: Request<'a>,
        /// Length of the line, its end included.
        consumed: usize,
        /// The value's length: the caller takes so many octets after the line, and two more that must be
        /// `\r\n`.
        body_bytes: u32,
    },
    /// Nothing to execute, only something to answer.
    Reject {
        /// The whole reply with its line end; empty when `noreply` suppresses it.
        error: &'static str,
        /// The bytes to drop.
        consumed: usize,
        /// How many octets after those to read and discard: the data block of a refused storage line.
        swallow: u64,
    },
}

/// Takes the request at the front of `input`, a buffer of pipelined requests that may end anywhere.
///
/// The answer for a prefix of a buffer is either [`Step::NeedMore`] or the answer for the whole buffer.
/// Nothing is read past the request that is returned.
#[inline]
pub fn parse<'a>(input: &'a [u8], options: &ParseOptions) -> Step<'a> {
    match *input {
        [b'g', b'e', b't', b' ', ..] => fast::get_line(input, b"get ".len(), false, options),
        [b'm', b'g', b' ', ..] => fast::mg_line(input, options),
        [b's', b'e', b't', b' ', ..] => fast::set_line(input, options),
        [b'g', b'e', b't', b's', b' ', ..] => fast::get_line(input, b"gets ".len(), true, options),
        _ => any_line(input, options),
    }
}

/// One line and where it stands.
pub(crate) struct Line<'a> {
    /// The buffer, for the data block behind the line.
    pub(crate) input: &'a [u8],
    /// The line without its end.
    pub(crate) text: &'a [u8],
    /// Its length with its end.
    pub(crate) consumed: usize,
    /// The caller's options.
    pub(crate) options: ParseOptions,
}

impl<'a> Line<'a> {
    /// A reply instead of a request.
    pub(crate) fn reject(&self, error: &'static str, noreply: bool, swallow: u64) -> Step<'a> {
        Step::Reject { error: if noreply { "" } else { error }, consumed: self.consumed, swallow }
    }

    /// A request that ends with its line, or the reply to a bad one.
    pub(crate) fn answer(&self, result: Result<Request<'a>, &'static str>, noreply: bool) -> Step<'a> {
        match result {
            Ok(request) => Step::Request { request, consumed: self.consumed },
            Err(error) => self.reject(error, noreply, 0),
        }
    }
}

/// Any line at all, by the exact and unhurried way.
#[inline(never)]
pub(crate) fn any_line<'a>(input: &'a [u8], options: &ParseOptions) -> Step<'a> {
    let limit = line_limit(input, options);
    let window = &input[..input.len().min(limit.max(WHOLE_LINE_BYTES_MAX).saturating_add(1))];
    let Some(newline) = memchr(b'\n', window) else {
        return if input.len() > limit { Step::Close } else { Step::NeedMore { at_least: input.len() + 1 } };
    };
    let consumed = newline + 1;
    if consumed < LINE_BYTES_MIN {
        return Step::Reject { error: reply::BAD_FORMAT, consumed, swallow: 0 };
    }
    let text = &input[..line_text_end(input, newline)];
    classic::dispatch(input, text, consumed, options)
}

/// Where the text of a line ends whose newline is at `newline`: one carriage return before it is dropped.
#[inline]
pub(crate) fn line_text_end(input: &[u8], newline: usize) -> usize {
    if newline > 0 && input[newline - 1] == b'\r' { newline - 1 } else { newline }
}

/// How many bytes of the line at the front of `input` may come without its end.
fn line_limit(input: &[u8], options: &ParseOptions) -> usize {
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

/// The same for a line known to start with `get ` or `gets `.
#[inline]
pub(crate) fn get_line_limit(options: &ParseOptions) -> usize {
    options.line_bytes_max.max(LINE_BYTES_MAX)
}
