//! The entry of the parser: it takes one RESP request off the front of a buffer.
//!
//! A request is an array of bulk strings, `*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n`, or a line of words, `GET key\r\n`. Which
//! bytes are checked, and in which order, is Valkey's.

use super::args::{Args, decimal, short_length};
use super::limits::{
    BULK_BYTES_MAX, HEADER_BYTES_MAX, INLINE_BYTES_MAX, UNAUTHENTICATED_ARGS_MAX,
    UNAUTHENTICATED_BULK_BYTES_MAX,
};
use super::lookup::streamed_argument;
use memchr::memchr;

/// How much of a request the caller can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Longest argument, in bytes, that is waited for in one piece where the command can take it in parts. A longer
    /// one becomes a [`Step::Upload`].
    pub whole_bytes_max: usize,
    /// Longest request, in bytes, that the parser waits for. A longer one is a [`Fault::TooLarge`].
    pub request_bytes_max: usize,
    /// The client has logged in, or does not have to. One that has not may only send little.
    pub is_authenticated: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { whole_bytes_max: 64 << 10, request_bytes_max: 1 << 20, is_authenticated: true }
    }
}

/// How far an incomplete request was read, so that the same bytes are not read again when more of it has come. It
/// belongs to the request at the front of the buffer. `Resume::default()` belongs to any request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// How many bytes of the request are read.
    at: usize,
    /// How many arguments lie in these bytes.
    seen: usize,
    /// How many arguments the request has; 0 = the line that says so is not read.
    count: usize,
    /// Where the first argument begins.
    start: usize,
    /// For a request without its first line end: how many bytes have none.
    without_end: usize,
}

impl Resume {
    /// The request of `consumed` bytes with these arguments is read to its end. It is executed in parts, and is not
    /// read again for each of them.
    pub fn whole(args: Args<'_>, consumed: usize) -> Resume {
        let start = consumed.saturating_sub(args.bytes().len());
        Resume { at: consumed, seen: args.len(), count: args.len(), start, without_end: consumed }
    }
}

/// What [`parse`] found at the front of the buffer.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<'a> {
    /// The request is not complete yet.
    NeedMore {
        /// Parsing again is useful when the buffer holds this many bytes in total.
        at_least: usize,
    },
    /// `GET key`, the most frequent request.
    Get {
        /// The key, of any length.
        key: &'a [u8],
        /// Length of the request in the buffer.
        consumed: usize,
    },
    /// Any other request.
    Request {
        /// Its arguments; there is at least one.
        args: Args<'a>,
        /// Length of the request in the buffer.
        consumed: usize,
    },
    /// A line of words; see [`super::inline_args`].
    Inline {
        /// The line without its end, neither empty nor blank.
        line: &'a [u8],
        /// Length of the request in the buffer.
        consumed: usize,
    },
    /// Nothing to answer: an empty line or an empty array.
    Nothing {
        /// The number of bytes to drop.
        consumed: usize,
    },
    /// A request of which one argument is longer than [`Options::whole_bytes_max`]. Its beginning is consumed, up to
    /// the first byte of that argument.
    Upload(Upload<'a>),
    /// The request breaks the rules of the wire. The connection is closed after the error.
    Fault(Fault),
}

/// A request of which one argument follows in parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Upload<'a> {
    /// The arguments before the long one.
    pub args: Args<'a>,
    /// Length of the long argument.
    pub body_bytes: u32,
    /// How many arguments follow the long one.
    pub args_left: usize,
    /// The number of bytes to drop. The long argument follows, then a line end, then the other arguments.
    pub consumed: usize,
}

/// How a request breaks the rules of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A line of words has no end within 64 KiB.
    TooBigInline,
    /// A quote of a line of words is not closed.
    UnbalancedQuotes,
    /// The line of `*` has no end within 64 KiB.
    TooBigCount,
    /// The number of arguments is no number, or too large.
    InvalidCount,
    /// A client that has not logged in sends more than ten arguments.
    UnauthenticatedCount,
    /// The line of `$` has no end within 64 KiB.
    TooBigLength,
    /// Something else than a line end is where one has to be.
    InvalidLineEnd,
    /// An argument begins with this byte instead of `$`.
    ExpectedBulk(u8),
    /// The length of an argument is no number, negative, or more than 512 MiB.
    InvalidLength,
    /// A client that has not logged in sends a long argument.
    UnauthenticatedLength,
    /// The request is longer than [`Options::request_bytes_max`].
    TooLarge,
}

const GET_HEAD: u64 = u64::from_le_bytes(*b"*2\r\n$3\r\n");
const GET_NAME: u64 = u64::from_le_bytes([b'g', b'e', b't', b'\r', b'\n', 0, 0, 0]);
/// The three letters in lower case, the line end, and nothing of what follows.
const GET_LOWER: u64 = u64::from_le_bytes([0x20, 0x20, 0x20, 0, 0, 0, 0, 0]);
const GET_MASK: u64 = u64::from_le_bytes([0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0]);
/// Bytes before the length of the key of a `GET`.
const GET_BYTES: usize = b"*2\r\n$3\r\nGET\r\n".len();

/// Takes the request at the front of `input`, a buffer of pipelined requests that may end anywhere.
///
/// The result for a prefix of a buffer is either [`Step::NeedMore`] or the result for the whole buffer. `resume` is
/// what the last call for the same request left there, or [`Resume::whole`], or the default; after any result but
/// `NeedMore` it is the default again.
#[inline]
pub fn parse<'a>(input: &'a [u8], options: &Options, resume: &mut Resume) -> Step<'a> {
    if let Some(words) = input.first_chunk::<16>() {
        let [head, name] =
            [&words[..8], &words[8..]].map(|eight| u64::from_le_bytes(eight.try_into().unwrap_or_default()));
        if head == GET_HEAD
            && (name | GET_LOWER) & GET_MASK == GET_NAME
            && let Some((length, at)) = short_length(input, GET_BYTES)
            && length <= UNAUTHENTICATED_BULK_BYTES_MAX
            && at + length + 2 <= input.len().min(options.request_bytes_max)
            && input[at + length..at + length + 2] == *b"\r\n"
        {
            *resume = Resume::default();
            return Step::Get { key: &input[at..at + length], consumed: at + length + 2 };
        }
    }
    let step = any_request(input, options, resume);
    if !matches!(step, Step::NeedMore { .. }) {
        *resume = Resume::default();
    }
    step
}

/// Any request, the slow way.
fn any_request<'a>(input: &'a [u8], options: &Options, resume: &mut Resume) -> Step<'a> {
    match input.first() {
        None => Step::NeedMore { at_least: 1 },
        Some(b'*') => array(input, options, resume),
        Some(_) => inline(input, resume),
    }
}

/// A line of words.
fn inline<'a>(input: &'a [u8], resume: &mut Resume) -> Step<'a> {
    let Some(newline) = memchr(b'\n', &input[resume.without_end..]) else {
        if input.len() > INLINE_BYTES_MAX {
            return Step::Fault(Fault::TooBigInline);
        }
        resume.without_end = input.len();
        return Step::NeedMore { at_least: input.len() + 1 };
    };
    let newline = resume.without_end + newline;
    if newline > INLINE_BYTES_MAX {
        return Step::Fault(Fault::TooBigInline);
    }
    let (line, consumed) = (&input[..newline], newline + 1);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match line.iter().all(|byte| is_space(*byte)) {
        true => Step::Nothing { consumed },
        false => Step::Inline { line, consumed },
    }
}

/// An array of bulk strings.
fn array<'a>(input: &'a [u8], options: &Options, resume: &mut Resume) -> Step<'a> {
    if resume.count == 0 {
        let (count, at) = match header(input, 0, resume, Fault::TooBigCount) {
            Header::Found(_, _, false) => return Step::Fault(Fault::InvalidLineEnd),
            Header::Found(text, at, true) => (decimal(text), at),
            Header::Missing => return Step::NeedMore { at_least: input.len() + 1 },
            Header::Fault(fault) => return Step::Fault(fault),
        };
        let Some(count) = count.filter(|count| *count <= i64::from(i32::MAX)) else {
            return Step::Fault(Fault::InvalidCount);
        };
        if count > UNAUTHENTICATED_ARGS_MAX && !options.is_authenticated {
            return Step::Fault(Fault::UnauthenticatedCount);
        }
        if count <= 0 {
            return Step::Nothing { consumed: at };
        }
        *resume = Resume { at, start: at, seen: 0, count: count as usize, without_end: at };
    }
    while resume.seen < resume.count {
        match argument(input, options, resume) {
            Ok(end) if end > options.request_bytes_max => return Step::Fault(Fault::TooLarge),
            Ok(end) => {
                resume.at = end;
                resume.without_end = end;
                resume.seen += 1;
            }
            Err(step) => return step,
        }
    }
    let args = Args::new(&input[resume.start..resume.at], resume.count);
    Step::Request { args, consumed: resume.at }
}

/// Reads the argument at `resume.at`. Returns where it ends, or why it was not read.
fn argument<'a>(input: &'a [u8], options: &Options, resume: &mut Resume) -> Result<usize, Step<'a>> {
    let (length, begin) = match short_length(input, resume.at) {
        Some(found) => found,
        None => {
            let (text, at, has_end) = match header(input, resume.at, resume, Fault::TooBigLength) {
                Header::Found(text, at, has_end) => (text, at, has_end),
                Header::Missing => return Err(Step::NeedMore { at_least: input.len() + 1 }),
                Header::Fault(fault) => return Err(Step::Fault(fault)),
            };
            let first = input[resume.at];
            if first != b'$' {
                return Err(Step::Fault(Fault::ExpectedBulk(first)));
            }
            if !has_end {
                return Err(Step::Fault(Fault::InvalidLineEnd));
            }
            let length = decimal(text).filter(|length| (0..=BULK_BYTES_MAX).contains(length));
            (length.ok_or(Step::Fault(Fault::InvalidLength))? as usize, at)
        }
    };
    if length > UNAUTHENTICATED_BULK_BYTES_MAX && !options.is_authenticated {
        return Err(Step::Fault(Fault::UnauthenticatedLength));
    }
    let end = begin + length + 2;
    if length > options.whole_bytes_max && resume.seen > 0 {
        let args = Args::new(&input[resume.start..resume.at], resume.seen);
        if streamed_argument(args) == Some(resume.seen) {
            return Err(Step::Upload(Upload {
                args,
                body_bytes: length as u32,
                args_left: resume.count - resume.seen - 1,
                consumed: begin,
            }));
        }
    }
    if end > options.request_bytes_max {
        return Err(Step::Fault(Fault::TooLarge));
    }
    match input.get(end - 2..end) {
        Some(b"\r\n") => Ok(end),
        Some(_) => Err(Step::Fault(Fault::InvalidLineEnd)),
        None => Err(Step::NeedMore { at_least: end }),
    }
}

enum Header<'a> {
    /// The text between the first byte and the `\r`, where the next line begins, and whether there is a `\n` before
    /// that.
    Found(&'a [u8], usize, bool),
    /// The line has no end yet.
    Missing,
    Fault(Fault),
}

/// The line at `from`, whose first byte says what it is. It ends with `\r` and one more byte, which has to be `\n`.
fn header<'a>(input: &'a [u8], from: usize, resume: &mut Resume, too_big: Fault) -> Header<'a> {
    let searched = resume.without_end.max(from);
    match memchr(b'\r', input.get(searched..).unwrap_or_default()) {
        Some(found) if searched + found + 1 < input.len() => {
            let end = searched + found;
            if end - from > HEADER_BYTES_MAX {
                return Header::Fault(too_big);
            }
            Header::Found(input.get(from + 1..end).unwrap_or_default(), end + 2, input[end + 1] == b'\n')
        }
        Some(_) => Header::Missing,
        None if input.len() - from > HEADER_BYTES_MAX => Header::Fault(too_big),
        None => {
            resume.without_end = input.len();
            Header::Missing
        }
    }
}

/// The bytes that separate words, which are those of C's `isspace`.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}
