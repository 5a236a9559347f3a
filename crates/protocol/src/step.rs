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

/// What [`crate::parse()`] found at the front of the buffer.
///
/// Every variant except `NeedMore`, `Close` and `Refuse` has `consumed > 0`: the number of bytes to drop before parsing
/// again.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<'a> {
    /// The request is not complete yet.
    NeedMore {
        /// Parsing again is useful when the buffer holds this many bytes in total. While the line end is unknown,
        /// the number is one more than the buffer holds now.
        at_least: usize,
    },
    /// Close the connection without a reply: the line is too long, or it is HTTP.
    Close,
    /// Say this error, with its line end, and close the connection: a retrieval is longer than
    /// [`ParseOptions::line_bytes_max`].
    Refuse(&'static str),
    /// A request, with its data block if it has one.
    Request {
        /// The request.
        request: Request<'a>,
        /// Length of the request in the buffer, data block and line ends included.
        consumed: usize,
    },
    /// A storage request (`Store` or `Meta` with verb `Set`) whose value is longer than
    /// [`ParseOptions::whole_bytes_max`]. Only its line is consumed and its `data` is empty.
    Upload {
        /// The request.
        request: Request<'a>,
        /// Length of the line, with its end.
        consumed: usize,
        /// Length of the value. The caller takes this many bytes after the line, and two more that must be `\r\n`.
        body_bytes: u32,
    },
    /// Nothing to execute: the parser refuses the line.
    Reject {
        /// The whole reply with its line end. Empty if `noreply` suppresses it.
        error: &'static str,
        /// The number of bytes to drop.
        consumed: usize,
        /// How many bytes after those to read and discard: the data block of a refused storage line.
        swallow: u64,
    },
}
