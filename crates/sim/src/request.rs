//! One request of a trace or a workload.

/// The assumed cost of a miss in microseconds where the source does not know the cost: 100 ms, the mean in PAMA,
/// section IV.
pub const PENALTY_UNKNOWN_US: u32 = 100_000;

/// The command of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, PartialOrd, Ord)]
pub enum Op {
    /// `get`, `gets`: read; a miss is filled by the client.
    #[default]
    Get,
    /// `set`: store unconditionally.
    Set,
    /// `add`: store if the key is absent.
    Add,
    /// `replace`: store if the key is present.
    Replace,
    /// `cas`: store if the item has not changed since it was read.
    Cas,
    /// `append`: add bytes at the end of the value.
    Append,
    /// `prepend`: add bytes at the start of the value.
    Prepend,
    /// `delete`: remove the item.
    Delete,
    /// `incr`: increase a number.
    Incr,
    /// `decr`: decrease a number.
    Decr,
}

impl Op {
    /// The name in memcached's protocol and in traces.
    pub fn name(self) -> &'static str {
        match self {
            Op::Get => "get",
            Op::Set => "set",
            Op::Add => "add",
            Op::Replace => "replace",
            Op::Cas => "cas",
            Op::Append => "append",
            Op::Prepend => "prepend",
            Op::Delete => "delete",
            Op::Incr => "incr",
            Op::Decr => "decr",
        }
    }

    /// All commands, in the order of a report.
    pub const ALL: [Op; 10] = [
        Op::Get,
        Op::Set,
        Op::Add,
        Op::Replace,
        Op::Cas,
        Op::Append,
        Op::Prepend,
        Op::Delete,
        Op::Incr,
        Op::Decr,
    ];
}

/// One request. A field that the source does not know is 0 (see [`Fields`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// The key. A trace with numeric keys gives the number itself; otherwise the value is a 64-bit hash of the key's
    /// text.
    pub key: u64,
    /// Time of the request in seconds since the start of the trace.
    pub time_s: u32,
    /// Length of the value in bytes.
    pub value_bytes: u32,
    /// Time to live in seconds; 0 = the item never expires.
    pub ttl_s: u32,
    /// Cost of a miss in microseconds; 0 = unknown.
    pub penalty_us: u32,
    /// Number of the client that sent the request.
    pub client: u32,
    /// Length of the key in bytes.
    pub key_bytes: u16,
    /// The command.
    pub op: Op,
}

const _: () = assert!(size_of::<Request>() == 32);

impl Request {
    /// Length of key and value together, in bytes.
    #[inline]
    pub fn item_bytes(&self) -> u64 {
        self.key_bytes as u64 + self.value_bytes as u64
    }

    /// Cost of a miss in microseconds, or [`PENALTY_UNKNOWN_US`] where the source does not know it.
    #[inline]
    pub fn penalty_or_default_us(&self) -> u32 {
        if self.penalty_us == 0 { PENALTY_UNKNOWN_US } else { self.penalty_us }
    }
}

/// The fields of [`Request`] that a source knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fields {
    /// `time_s`.
    pub times: bool,
    /// `key_bytes` and `value_bytes`.
    pub sizes: bool,
    /// `op`.
    pub ops: bool,
    /// `ttl_s`.
    pub ttls: bool,
    /// `penalty_us`.
    pub penalties: bool,
}
