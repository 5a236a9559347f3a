//! The options of the parser, and its result.

use crate::limits::GET_LINE_BYTES_MAX;
use crate::request::Request;

/// How much the caller can keep in its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseOptions {
    /// Longest value, in bytes, for which the parser waits and which it returns whole. A longer value becomes a
    /// [`Step::Upload`]. Default 64 KiB.
    pub whole_bytes_max: usize,
    /// Longest `get` or `gets` line, in bytes without its newline. memcached has no such limit; a server that
    /// promises to stay within its memory needs one. A longer line is refused, unless it arrived with
    /// its end and is not longer than [`crate::limits::WHOLE_LINE_BYTES_MAX`]. Values below
    /// [`crate::limits::LINE_BYTES_MAX`] count as that. Default [`GET_LINE_BYTES_MAX`], 1 MiB.
    pub line_bytes_max: usize,
}

impl Default for ParseOptions {
    fn default() -> Self {
        ParseOptions { whole_bytes_max: 64 << 10, line_bytes_max: GET_LINE_BYTES_MAX }
    }
}

/// What [`crate::parse()`] found at the front of the buffer: a request of the text protocol, or the reply to a line
/// that it refuses.
pub type Step<'a> = Found<Request<'a>, &'static str>;

/// What a parser found at the front of the buffer. `R` = the requests of its protocol, `E` = its errors.
///
/// Every variant except `NeedMore`, `Close` and `Refuse` has `consumed > 0`: the number of bytes to drop before parsing
/// again.
#[derive(Clone, Debug, PartialEq)]
pub enum Found<R, E> {
    /// The request is not complete yet.
    NeedMore {
        /// Parsing again is useful when the buffer holds this many bytes in total. While the line end is unknown,
        /// the number is one more than the buffer holds now.
        at_least: usize,
    },
    /// Close the connection without a reply: the line is too long, or it is HTTP, or no packet begins so.
    Close,
    /// Say this error and close the connection. In the text protocol a retrieval is longer than
    /// [`ParseOptions::line_bytes_max`], and the error is the whole reply with its line end.
    Refuse(E),
    /// A request, with its value if it has one.
    Request {
        /// The request.
        request: R,
        /// Length of the request in the buffer, value and line ends included.
        consumed: usize,
    },
    /// A storage request whose value is longer than [`ParseOptions::whole_bytes_max`]. Only what precedes the value is
    /// consumed, and its `data` is empty.
    Upload {
        /// The request.
        request: R,
        /// Length of the line with its end, or of a packet up to its value.
        consumed: usize,
        /// Length of the value. The caller takes this many bytes next, and behind a line two more that must be `\r\n`.
        body_bytes: u32,
    },
    /// Nothing to execute: the parser refuses what it read.
    Reject {
        /// The error to reply. In the text protocol it is the whole reply with its line end, and empty if `noreply`
        /// suppresses it.
        error: E,
        /// The number of bytes to drop.
        consumed: usize,
        /// How many bytes after those to read and discard: the value of a refused storage request.
        swallow: u64,
    },
}
