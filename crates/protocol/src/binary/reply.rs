//! Composing replies of the binary protocol. Every function appends to the buffer of its caller.

use super::{Echo, HEADER_BYTES, REPLY_MAGIC, Status};

impl Status {
    /// The body of an error with this status. The texts are those of memcached 1.6.45.
    pub fn text(self) -> &'static str {
        match self {
            Status::Ok | Status::AuthContinue => "",
            Status::NotFound => "Not found",
            Status::Exists => "Data exists for key.",
            Status::TooLarge => "Too large.",
            Status::Invalid => "Invalid arguments",
            Status::NotStored => "Not stored.",
            Status::NonNumeric => "Non-numeric server-side value for incr or decr",
            Status::AuthError => "Auth failure.",
            Status::UnknownCommand => "Unknown command",
            Status::NoMemory => "Out of memory",
        }
    }
}

/// The lengths of the parts of a body, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    /// Of the extras.
    pub extras: u8,
    /// Of the key.
    pub key: u16,
    /// Of the value.
    pub value: u32,
}

/// Appends the header of a reply whose body follows.
#[inline]
pub fn header(out: &mut Vec<u8>, echo: Echo, status: Status, lengths: Lengths, cas: u64) {
    out.extend_from_slice(&header_bytes(echo, status, lengths, cas));
}

#[inline]
fn header_bytes(echo: Echo, status: Status, lengths: Lengths, cas: u64) -> [u8; HEADER_BYTES] {
    let Lengths { extras, key, value } = lengths;
    let body = u32::from(extras) + u32::from(key) + value;
    let mut bytes = [0; HEADER_BYTES];
    bytes[0] = REPLY_MAGIC;
    bytes[1] = echo.opcode;
    bytes[2..4].copy_from_slice(&key.to_be_bytes());
    bytes[4] = extras;
    bytes[6..8].copy_from_slice(&(status as u16).to_be_bytes());
    bytes[8..12].copy_from_slice(&body.to_be_bytes());
    bytes[12..16].copy_from_slice(&echo.opaque.to_be_bytes());
    bytes[16..].copy_from_slice(&cas.to_be_bytes());
    bytes
}

/// Appends a reply without a body.
#[inline]
pub fn empty(out: &mut Vec<u8>, echo: Echo, cas: u64) {
    header(out, echo, Status::Ok, Lengths::default(), cas);
}

/// Appends a reply whose body is a value alone, such as a version.
pub fn value_alone(out: &mut Vec<u8>, echo: Echo, status: Status, value: &[u8]) {
    header(out, echo, status, Lengths { value: value.len() as u32, ..Lengths::default() }, 0);
    out.extend_from_slice(value);
}

/// Appends an error with the text of its status.
#[cold]
pub fn error(out: &mut Vec<u8>, echo: Echo, status: Status) {
    value_alone(out, echo, status, status.text().as_bytes());
}

/// Appends the start of a hit: the header, the client's flags and the key. The value follows.
#[inline]
pub fn hit(out: &mut Vec<u8>, echo: Echo, flags: u32, key: &[u8], value_bytes: u32, cas: u64) {
    let lengths = Lengths { extras: 4, key: key.len() as u16, value: value_bytes };
    let mut bytes = [0; HEADER_BYTES + 4];
    bytes[..HEADER_BYTES].copy_from_slice(&header_bytes(echo, Status::Ok, lengths, cas));
    bytes[HEADER_BYTES..].copy_from_slice(&flags.to_be_bytes());
    out.extend_from_slice(&bytes);
    out.extend_from_slice(key);
}

/// Appends a miss of a retrieval that wants its key back. The key stands where an error has its text.
pub fn miss_with_key(out: &mut Vec<u8>, echo: Echo, key: &[u8]) {
    header(out, echo, Status::NotFound, Lengths { key: key.len() as u16, ..Lengths::default() }, 0);
    out.extend_from_slice(key);
}

/// Appends the new value of a counter.
#[inline]
pub fn number(out: &mut Vec<u8>, echo: Echo, value: u64, cas: u64) {
    header(out, echo, Status::Ok, Lengths { value: 8, ..Lengths::default() }, cas);
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends one statistic. An empty name and value end the list.
pub fn stat(out: &mut Vec<u8>, echo: Echo, name: &[u8], value: &[u8]) {
    let lengths = Lengths { extras: 0, key: name.len() as u16, value: value.len() as u32 };
    header(out, echo, Status::Ok, lengths, 0);
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}
