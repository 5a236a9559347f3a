//! What the parser is told, and what it answers.

use crate::limits::GET_LINE_BYTES_MAX;
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

/// What [`crate::parse()`] found at the front of the buffer.
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
