//! What a replay is asked to do.

use std::path::PathBuf;
use std::time::Duration;

use super::server::Server;

/// The language a server speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// memcached's text protocol, the classic commands.
    Memcached,
    /// RESP2, as Redis speaks it.
    Resp,
}

impl Protocol {
    /// Its name, as the command line spells it.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Memcached => "memcached",
            Protocol::Resp => "resp",
        }
    }
}

/// When a request is sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// Closed loop: as soon as a connection has room.
    Closed,
    /// Open loop: this many requests per second, evenly, whatever the server does.
    Rate(f64),
    /// Open loop: at the trace's own times, this many times as fast.
    Speed(f64),
}

/// What is sent before anything counts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Warmup {
    /// This many requests.
    Requests(u64),
    /// As many as go out in this time.
    Time(Duration),
}

/// How closely values are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verify {
    /// Not at all.
    Off,
    /// Of values longer than 64 bytes, the header: whose value, how long, which version.
    Fast,
    /// Every byte.
    Full,
}

/// What is sent for a `cas` of the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CasAs {
    /// `gets`, then `cas` with the unique number that came.
    GetsCas,
    /// A `set`.
    Set,
}

/// Who asks, where a server wants to know.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Credentials {
    /// The user; empty = RESP's `AUTH password`.
    pub user: String,
    /// The password.
    pub password: String,
}

/// A miss is fetched from a simulated back end and stored.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ReadThrough {
    /// What the penalties of the misses are multiplied by before they are waited for; 0 = no waiting.
    pub penalty_scale: f64,
    /// How many fetches the back end serves at a time; 0 = any number.
    pub backend_concurrency: usize,
}

/// Everything a replay can be told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the server listens.
    pub server: Server,
    /// Its language; `None` = found out by a `version` line.
    pub protocol: Option<Protocol>,
    /// Sent on each connection first: RESP's `AUTH`, memcached's ASCII authentication.
    pub credentials: Option<Credentials>,
    /// RESP's `SELECT`.
    pub database: Option<u32>,
    /// Connections, of all threads together; at least 1.
    pub connections: usize,
    /// Threads; at least 1, at most `connections`.
    pub threads: usize,
    /// Requests in flight per connection; at least 1.
    pub depth: usize,
    /// When requests are sent.
    pub pace: Pace,
    /// Whether misses are fetched and stored.
    pub read_through: Option<ReadThrough>,
    /// Whether requests of one key may go over different connections. Stale values cannot be told then.
    pub spread: bool,
    /// How closely values are looked at.
    pub verify: Verify,
    /// How many keys are remembered, in all, to tell stale values; 43 to 86 bytes each.
    pub verify_keys: usize,
    /// What is sent for a `cas`.
    pub cas_as: CasAs,
    /// Whether the trace's times to live are sent.
    pub ttls: bool,
    /// What every key begins with.
    pub key_prefix: String,
    /// Bytes of a value where the source does not know sizes.
    pub value_bytes: u32,
    /// Values of the source that are longer are cut to this.
    pub value_bytes_max: u32,
    /// Store every key once before anything else.
    pub load: bool,
    /// What is sent before anything counts.
    pub warmup: Option<Warmup>,
    /// When to stop, counted from the end of the warm-up.
    pub time_limit: Option<Duration>,
    /// How many times the source is played; 0 = until the time is over.
    pub repeat: u32,
    /// How long a reply may take.
    pub timeout: Duration,
    /// How long all connections, or one for which requests wait, may be down before the server is given up.
    pub give_up: Duration,
    /// Where the HDR interval log goes.
    pub hdr: Option<PathBuf>,
    /// Whether progress is not shown.
    pub quiet: bool,
}

impl Options {
    /// The defaults: one connection, one request at a time, closed loop, every value verified.
    pub fn new(server: Server) -> Options {
        Options {
            server,
            protocol: None,
            credentials: None,
            database: None,
            connections: 1,
            threads: 1,
            depth: 1,
            pace: Pace::Closed,
            read_through: None,
            spread: false,
            verify: Verify::Full,
            verify_keys: 4_000_000,
            cas_as: CasAs::GetsCas,
            ttls: false,
            key_prefix: String::new(),
            value_bytes: 100,
            value_bytes_max: u32::MAX,
            load: false,
            warmup: None,
            time_limit: None,
            repeat: 1,
            timeout: Duration::from_secs(5),
            give_up: Duration::from_secs(10),
            hdr: None,
            quiet: true,
        }
    }

    /// Says in one line what cannot be obeyed.
    pub(super) fn check(&self) -> Result<(), String> {
        let positive = |rate: f64| rate.is_finite() && rate > 0.0;
        if self.connections == 0 || self.threads == 0 || self.depth == 0 {
            return Err("connections, threads and depth are at least 1".to_owned());
        }
        if self.threads > self.connections {
            return Err(format!(
                "{} threads for {} connections: each thread needs one",
                self.threads, self.connections
            ));
        }
        match self.pace {
            Pace::Rate(rate) if !positive(rate) => return Err(format!("a rate of {rate} is none")),
            Pace::Speed(speed) if !positive(speed) => return Err(format!("a speed of {speed} is none")),
            _ => {}
        }
        if self.repeat == 0 && self.time_limit.is_none() {
            return Err("repeating for ever needs an end: --seconds".to_owned());
        }
        if let Some(through) = self.read_through
            && !(through.penalty_scale.is_finite() && through.penalty_scale >= 0.0)
        {
            return Err(format!("penalties cannot be scaled by {}", through.penalty_scale));
        }
        let plain = |byte: u8| byte > b' ' && byte != 0x7f;
        if self.key_prefix.len() > 200 || !self.key_prefix.bytes().all(plain) {
            return Err(
                "a key prefix has at most 200 octets, without spaces and control characters".to_owned()
            );
        }
        Ok(())
    }
}
