//! memcached's binary protocol, as release 1.6.45 speaks it: requests and their parser. [`reply`] composes replies.
//!
//! Every packet begins with a header of 24 bytes. Numbers are big-endian.
//!
//! ```text
//!   0       1        2            4               5          6                  8            12       16    24
//!   | magic | opcode | key bytes  | extras bytes  | datatype | vbucket / status | body bytes | opaque | CAS | body ..
//!     0x80 in a request             0                        the status in a reply   extras + key + value
//!     0x81 in a reply
//! ```
//!
//! A reply repeats the opcode and the opaque of its request. A *quiet* opcode asks for no reply in the ordinary case: a
//! quiet retrieval hides its miss, every other quiet command hides its success. Errors are always told.
//!
//! The release closes the connection after a request whose shape is not that of its opcode, and so does this parser
//! ([`Refusal::closes`]). Two faults of the release are not repeated here, because they make it read the body of one
//! request as the next request: it takes the key and the extras of an unknown opcode for two requests, and the value
//! of a touch or of a `stat` for one. Here the first is an unknown command, and the second an invalid argument.

pub mod reply;

use crate::admin::StatsKind;
use crate::limits::{KEY_BYTES_MAX, SASL_DATA_BYTES_MAX, SASL_MECHANISM_BYTES_MAX};
use crate::request::StoreVerb;
use crate::step::{Found, ParseOptions};

/// Bytes of the header of a request and of a reply.
pub const HEADER_BYTES: usize = 24;
/// The first byte of every request. No command of the text protocol begins with it.
pub const REQUEST_MAGIC: u8 = 0x80;
/// The first byte of every reply.
pub const REPLY_MAGIC: u8 = 0x81;
/// The longest body, in bytes. The limit is memcached's: the largest item that it can be configured for.
pub const BODY_BYTES_MAX: u32 = 1 << 30;
/// The expiry of an `incr` or `decr` that must not create the counter.
const EXPTIME_DO_NOT_CREATE: u32 = u32::MAX;

/// What [`parse`] found at the front of the buffer.
pub type Step<'a> = Found<Request<'a>, Refusal>;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// What the reply repeats.
    pub echo: Echo,
    /// The opcode is a quiet one.
    pub quiet: bool,
    /// The CAS number that the item must have; 0 = any.
    pub cas: u64,
    /// The key of an item, 1 to 250 bytes. Empty for a command that has none.
    pub key: &'a [u8],
    /// What the client asks for.
    pub command: Command<'a>,
}

/// What a reply repeats of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The opcode as sent: of a quiet command the quiet one.
    pub opcode: u8,
    /// Four bytes of the client's own.
    pub opaque: u32,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `Get`, `GetK`, `GAT`, `GATK`.
    Get {
        /// The reply contains the key, also that of a miss.
        with_key: bool,
        /// The new expiry of a hit, for `GAT` and `GATK`. A unix time, or seconds up to 30 days; 0 = never.
        exptime: Option<u32>,
    },
    /// `Touch`: sets the expiry of an item.
    Touch {
        /// The new expiry, as above.
        exptime: u32,
    },
    /// `Set`, `Add`, `Replace`, `Append`, `Prepend`. With a CAS number the first three are one command: they replace
    /// the item that has this number.
    Store {
        /// Which of them. Never [`StoreVerb::Cas`].
        verb: StoreVerb,
        /// The client's flags. 0 for the commands that add to a value.
        flags: u32,
        /// The expiry. 0 for the commands that add to a value.
        exptime: u32,
        /// Length of the value in bytes.
        bytes: u32,
        /// The value. Empty in a [`Step::Upload`].
        data: &'a [u8],
    },
    /// `Delete`.
    Delete,
    /// `Increment` and `Decrement`.
    Arith {
        /// `true` for `Increment` (wraps at 2^64), `false` for `Decrement` (stops at 0).
        incr: bool,
        /// The number to add or subtract.
        delta: u64,
        /// The value and the expiry of a counter that is created. `None` = an absent counter is a miss.
        initial: Option<(u64, u32)>,
    },
    /// `Flush`.
    Flush {
        /// A delay of at most 30 days in seconds, or a unix time. `None` and 0 mean now.
        exptime: Option<u32>,
    },
    /// `Noop`: answered, and nothing else. Clients send it behind quiet commands.
    Noop,
    /// `Version`.
    Version,
    /// `Quit`: the connection ends after the reply.
    Quit,
    /// `Stat`: one reply for each statistic, and one without a key at the end.
    Stats(StatsKind<'static>),
    /// `SASL list mechanisms`.
    SaslMechanisms,
    /// `SASL authenticate` and `SASL step`.
    Sasl {
        /// `true` for `SASL step`, which continues what `SASL authenticate` began.
        is_step: bool,
        /// The name of the mechanism, up to [`SASL_MECHANISM_BYTES_MAX`] bytes.
        mechanism: &'a [u8],
        /// What the client says to the mechanism, up to [`SASL_DATA_BYTES_MAX`] bytes.
        data: &'a [u8],
    },
}

/// A request that the parser refuses. Its reply is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the reply repeats.
    pub echo: Echo,
    /// The status of the reply.
    pub status: Status,
    /// The connection is closed after the reply: what follows cannot be read.
    pub closes: bool,
}

impl Refusal {
    /// The refusal of an opcode that the server does not serve.
    pub fn unknown_command(echo: Echo) -> Refusal {
        Refusal { echo, status: Status::UnknownCommand, closes: false }
    }
}

/// The status of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// Success.
    Ok = 0x00,
    /// There is no such item.
    NotFound = 0x01,
    /// The item is there, or it has another CAS number.
    Exists = 0x02,
    /// The value is too large.
    TooLarge = 0x03,
    /// The request has not the shape of its opcode.
    Invalid = 0x04,
    /// There is no value that could be added to.
    NotStored = 0x05,
    /// The value is no number.
    NonNumeric = 0x06,
    /// The client has not logged in, or may not do this.
    AuthError = 0x20,
    /// The login goes on with `SASL step`.
    AuthContinue = 0x21,
    /// The server does not know the opcode.
    UnknownCommand = 0x81,
    /// There is no memory.
    NoMemory = 0x82,
}

/// A header, with the numbers that decide how much of the input is the request.
struct Header {
    echo: Echo,
    key_bytes: usize,
    extras_bytes: usize,
    body_bytes: usize,
    cas: u64,
}

impl Header {
    #[inline]
    fn read(bytes: &[u8; HEADER_BYTES]) -> Header {
        let [_, opcode, k0, k1, extras, _, _, _, b0, b1, b2, b3, o0, o1, o2, o3, cas @ ..] = *bytes;
        Header {
            echo: Echo { opcode, opaque: u32::from_be_bytes([o0, o1, o2, o3]) },
            key_bytes: u16::from_be_bytes([k0, k1]).into(),
            extras_bytes: extras.into(),
            body_bytes: u32::from_be_bytes([b0, b1, b2, b3]) as usize,
            cas: u64::from_be_bytes(cas),
        }
    }

    /// Bytes of the packet without its value.
    #[inline]
    fn head_bytes(&self) -> usize {
        HEADER_BYTES + self.extras_bytes + self.key_bytes
    }

    /// Refuses the packet. Its value, if it has one, is thrown away when it comes.
    fn refuse<'a>(&self, status: Status) -> Step<'a> {
        let refusal = Refusal { echo: self.echo, status, closes: false };
        let packet_bytes = HEADER_BYTES + self.body_bytes;
        let swallow = (packet_bytes - self.head_bytes()) as u64;
        Step::Reject { error: refusal, consumed: self.head_bytes(), swallow }
    }

    fn refuse_and_close<'a>(&self, status: Status) -> Step<'a> {
        let refusal = Refusal { echo: self.echo, status, closes: true };
        Step::Reject { error: refusal, consumed: self.head_bytes(), swallow: 0 }
    }
}

/// What an opcode asks for, before the body is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Get { with_key: bool },
    GetAndTouch { with_key: bool },
    Touch,
    Store(StoreVerb),
    Delete,
    Arith { incr: bool },
    Flush,
    Noop,
    Version,
    Quit,
    Stats,
    SaslMechanisms,
    Sasl { is_step: bool },
}

/// Whether an opcode belongs to a login.
#[inline]
pub fn is_login(opcode: u8) -> bool {
    matches!(opcode, 0x20..=0x22)
}

/// The kind of an opcode, and whether it is quiet. `None` = there is no such opcode. Verbosity (0x1b) and the range
/// commands (0x30 to 0x3c) are known to the protocol's description, but not to the release.
#[inline]
fn kind(opcode: u8) -> Option<(Kind, bool)> {
    let found = match opcode {
        0x00 => (Kind::Get { with_key: false }, false),
        0x09 => (Kind::Get { with_key: false }, true),
        0x0c => (Kind::Get { with_key: true }, false),
        0x0d => (Kind::Get { with_key: true }, true),
        0x01 => (Kind::Store(StoreVerb::Set), false),
        0x11 => (Kind::Store(StoreVerb::Set), true),
        0x02 => (Kind::Store(StoreVerb::Add), false),
        0x12 => (Kind::Store(StoreVerb::Add), true),
        0x03 => (Kind::Store(StoreVerb::Replace), false),
        0x13 => (Kind::Store(StoreVerb::Replace), true),
        0x0e => (Kind::Store(StoreVerb::Append), false),
        0x19 => (Kind::Store(StoreVerb::Append), true),
        0x0f => (Kind::Store(StoreVerb::Prepend), false),
        0x1a => (Kind::Store(StoreVerb::Prepend), true),
        0x04 => (Kind::Delete, false),
        0x14 => (Kind::Delete, true),
        0x05 => (Kind::Arith { incr: true }, false),
        0x15 => (Kind::Arith { incr: true }, true),
        0x06 => (Kind::Arith { incr: false }, false),
        0x16 => (Kind::Arith { incr: false }, true),
        0x07 => (Kind::Quit, false),
        0x17 => (Kind::Quit, true),
        0x08 => (Kind::Flush, false),
        0x18 => (Kind::Flush, true),
        0x0a => (Kind::Noop, false),
        0x0b => (Kind::Version, false),
        0x10 => (Kind::Stats, false),
        0x1c => (Kind::Touch, false),
        0x1d => (Kind::GetAndTouch { with_key: false }, false),
        0x1e => (Kind::GetAndTouch { with_key: false }, true),
        0x23 => (Kind::GetAndTouch { with_key: true }, false),
        0x24 => (Kind::GetAndTouch { with_key: true }, true),
        0x20 => (Kind::SaslMechanisms, false),
        0x21 => (Kind::Sasl { is_step: false }, false),
        0x22 => (Kind::Sasl { is_step: true }, false),
        _ => return None,
    };
    Some(found)
}

impl Kind {
    /// Whether a request of this kind may have a body of these parts.
    #[inline]
    fn fits(self, key_bytes: usize, extras_bytes: usize, value_bytes: usize) -> bool {
        let (has_key, has_value) = (key_bytes > 0, value_bytes > 0);
        match self {
            Kind::Get { .. } | Kind::Delete => has_key && extras_bytes == 0 && !has_value,
            Kind::GetAndTouch { .. } | Kind::Touch => has_key && extras_bytes == 4 && !has_value,
            Kind::Store(StoreVerb::Append | StoreVerb::Prepend) => has_key && extras_bytes == 0,
            Kind::Store(_) => has_key && extras_bytes == 8,
            Kind::Arith { .. } => has_key && extras_bytes == 20 && !has_value,
            Kind::Flush => !has_key && matches!(extras_bytes, 0 | 4) && !has_value,
            Kind::Noop | Kind::Version | Kind::Quit | Kind::SaslMechanisms => {
                !has_key && extras_bytes == 0 && !has_value
            }
            Kind::Stats => extras_bytes == 0 && !has_value,
            Kind::Sasl { .. } => has_key && extras_bytes == 0,
        }
    }
}

/// Takes the request at the front of `input`, a buffer of pipelined requests that may end anywhere.
///
/// As with [`crate::parse()`], the result for a prefix of a buffer is either [`Step::NeedMore`] or the result for the
/// whole buffer. A request is refused as soon as all of it but its value is here, as by the release: a client that is
/// still sending when the connection is closed may not see the reply.
#[inline]
pub fn parse<'a>(input: &'a [u8], options: &ParseOptions) -> Step<'a> {
    if input.first().is_some_and(|&magic| magic != REQUEST_MAGIC) {
        return Step::Close;
    }
    let Some(bytes) = input.first_chunk::<HEADER_BYTES>() else {
        return Step::NeedMore { at_least: HEADER_BYTES };
    };
    let header = Header::read(bytes);
    let Header { echo, key_bytes, extras_bytes, body_bytes, cas } = header;
    let head_bytes = header.head_bytes();
    if input.len() < head_bytes {
        return Step::NeedMore { at_least: head_bytes };
    }
    let Some(value_bytes) = body_bytes.checked_sub(key_bytes + extras_bytes) else {
        return header.refuse_and_close(Status::UnknownCommand);
    };
    if body_bytes > BODY_BYTES_MAX as usize || key_bytes > KEY_BYTES_MAX {
        return header.refuse_and_close(Status::Invalid);
    }
    let Some((kind, quiet)) = kind(echo.opcode) else { return header.refuse(Status::UnknownCommand) };
    if !kind.fits(key_bytes, extras_bytes, value_bytes) {
        return header.refuse_and_close(Status::Invalid);
    }
    if let Kind::Sasl { .. } = kind {
        if key_bytes > SASL_MECHANISM_BYTES_MAX {
            return header.refuse(Status::Invalid);
        }
        if value_bytes > SASL_DATA_BYTES_MAX {
            return header.refuse(Status::NoMemory);
        }
    }
    let is_upload = matches!(kind, Kind::Store(_)) && value_bytes > options.whole_bytes_max;
    let consumed = if is_upload { head_bytes } else { HEADER_BYTES + body_bytes };
    let Some(packet) = input.get(..consumed) else { return Step::NeedMore { at_least: consumed } };
    let extras = &packet[HEADER_BYTES..HEADER_BYTES + extras_bytes];
    let key = &packet[HEADER_BYTES + extras_bytes..head_bytes];
    let value = &packet[head_bytes..];
    let Some(command) = command(kind, extras, key, value, value_bytes as u32) else {
        return header.refuse(Status::NotFound);
    };
    let is_of_item = !matches!(command, Command::Stats(_) | Command::Sasl { .. });
    let key = if is_of_item { key } else { &[] };
    let request = Request { echo, quiet, cas, key, command };
    match is_upload {
        false => Step::Request { request, consumed },
        true => Step::Upload { request, consumed, body_bytes: value_bytes as u32 },
    }
}

/// The command of a packet that has the shape of its kind. `None` = there are no such statistics.
#[inline]
fn command<'a>(
    kind: Kind,
    extras: &[u8],
    key: &'a [u8],
    value: &'a [u8],
    value_bytes: u32,
) -> Option<Command<'a>> {
    Some(match kind {
        Kind::Get { with_key } => Command::Get { with_key, exptime: None },
        Kind::GetAndTouch { with_key } => Command::Get { with_key, exptime: Some(number(extras, 0)) },
        Kind::Touch => Command::Touch { exptime: number(extras, 0) },
        Kind::Store(verb) => {
            let (flags, exptime) = match extras.len() {
                0 => (0, 0),
                _ => (number(extras, 0), number(extras, 4)),
            };
            Command::Store { verb, flags, exptime, bytes: value_bytes, data: value }
        }
        Kind::Delete => Command::Delete,
        Kind::Arith { incr } => {
            let exptime = number(extras, 16);
            let initial = (exptime != EXPTIME_DO_NOT_CREATE).then(|| (long_number(extras, 8), exptime));
            Command::Arith { incr, delta: long_number(extras, 0), initial }
        }
        Kind::Flush => Command::Flush { exptime: (!extras.is_empty()).then(|| number(extras, 0)) },
        Kind::Noop => Command::Noop,
        Kind::Version => Command::Version,
        Kind::Quit => Command::Quit,
        Kind::Stats => Command::Stats(statistics(key)?),
        Kind::SaslMechanisms => Command::SaslMechanisms,
        Kind::Sasl { is_step } => Command::Sasl { is_step, mechanism: key, data: value },
    })
}

/// The 32-bit number at `at`. 0 if `extras` ends before it.
#[inline]
fn number(extras: &[u8], at: usize) -> u32 {
    extras.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// The 64-bit number at `at`. 0 if `extras` ends before it.
#[inline]
fn long_number(extras: &[u8], at: usize) -> u64 {
    extras.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The statistics that a `Stat` asks for. Groups that memcached has are named as there: the first bytes of `reset`,
/// `settings` and `detail` count. The other groups are those of the text protocol. `None` = there is no such group.
fn statistics(group: &[u8]) -> Option<StatsKind<'static>> {
    Some(match group {
        b"" => StatsKind::General,
        b"items" => StatsKind::Items,
        b"slabs" => StatsKind::Slabs,
        b"sizes" => StatsKind::Sizes,
        b"conns" => StatsKind::Conns,
        b"temperature" => StatsKind::Temperature,
        b"worth" => StatsKind::Worth,
        b"namespaces" => StatsKind::Namespaces,
        b"compression" => StatsKind::Compression,
        b"extstore" => StatsKind::Extstore,
        b"flash" => StatsKind::Flash,
        b"penalties" => StatsKind::Penalties,
        b"mrc" => StatsKind::Mrc,
        b"latency" => StatsKind::Latency,
        _ if group.starts_with(b"reset") => StatsKind::Reset,
        _ if group.starts_with(b"settings") => StatsKind::Settings,
        _ if group.starts_with(b"detail dump") => StatsKind::DetailDump,
        _ if group.starts_with(b"detail on") => StatsKind::DetailOn,
        _ if group.starts_with(b"detail off") => StatsKind::DetailOff,
        _ => return None,
    })
}
