//! What one request of a trace or a workload is.

/// The penalty of a miss, in microseconds, that is taken where none is known: the mean of PAMA, section IV (100 ms).
pub const PENALTY_UNKNOWN_US: u32 = 100_000;

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, PartialOrd, Ord)]
pub enum Op {
    /// `get`, `gets`: read; a miss is filled by the client.
    #[default]
    Get,
    /// `set`: store whatever is there.
    Set,
    /// `add`: store if absent.
    Add,
    /// `replace`: store if present.
    Replace,
    /// `cas`: store if unchanged.
    Cas,
    /// `append`: grow at the end.
    Append,
    /// `prepend`: grow at the front.
    Prepend,
    /// `delete`: remove.
    Delete,
    /// `incr`: count up.
    Incr,
    /// `decr`: count down.
    Decr,
}

impl Op {
    /// As memcached names it, and traces.
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

    /// All of them, in the order in which they are shown.
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

/// One request. Fields that the source does not know are zero (see [`Fields`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// Whose key: the number itself where a trace has numbers, else a 64-bit hash of the key's text.
    pub key: u64,
    /// Seconds since the trace began.
    pub time_s: u32,
    /// Octets of the value.
    pub value_bytes: u32,
    /// Time to live in seconds; 0 = for ever.
    pub ttl_s: u32,
    /// What a miss costs in microseconds; 0 = not known.
    pub penalty_us: u32,
    /// Who asked.
    pub client: u32,
    /// Octets of the key.
    pub key_bytes: u16,
    /// What is asked.
    pub op: Op,
}

const _: () = assert!(size_of::<Request>() == 32);

impl Request {
    /// Octets of key and value together.
    #[inline]
    pub fn item_bytes(&self) -> u64 {
        self.key_bytes as u64 + self.value_bytes as u64
    }

    /// The penalty of a miss in microseconds, [`PENALTY_UNKNOWN_US`] where the source does not know it.
    #[inline]
    pub fn penalty_or_default_us(&self) -> u32 {
        if self.penalty_us == 0 { PENALTY_UNKNOWN_US } else { self.penalty_us }
    }
}

/// Which fields of its requests a source knows.
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
