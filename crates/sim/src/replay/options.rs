//! The options of a replay.

use std::path::PathBuf;
use std::time::Duration;

use super::server::Server;

/// The protocol of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// memcached's text protocol with the classic commands.
    Memcached,
    /// RESP2, the protocol of Redis.
    Resp,
}

impl Protocol {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Memcached => "memcached",
            Protocol::Resp => "resp",
        }
    }
}

/// The pacing of requests.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// Closed loop: a request is sent as soon as its connection has room.
    Closed,
    /// Open loop: this many requests per second, evenly spaced, regardless of the server.
    Rate(f64),
    /// Open loop: at the times of the trace, this many times as fast.
    Speed(f64),
}

/// The warm-up, which is not counted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Warmup {
    /// This many requests.
    Requests(u64),
    /// As many requests as are sent in this time.
    Time(Duration),
}

/// How closely values are verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verify {
    /// Not at all.
    Off,
    /// For values longer than 64 bytes only the header: key, length and version.
    Fast,
    /// Every byte.
    Full,
}

/// The command sent for a `cas` of the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CasAs {
    /// `gets`, then `cas` with the returned CAS number.
    GetsCas,
    /// A `set`.
    Set,
}

/// The credentials for a server that requires a login.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Credentials {
    /// The user name; empty = RESP's `AUTH password`.
    pub user: String,
    /// The password.
    pub password: String,
}

/// Read-through: a miss is fetched from a simulated back end and stored.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ReadThrough {
    /// Factor for the penalty of a miss, which is then waited for; 0 = no waiting.
    pub penalty_scale: f64,
    /// Maximum number of concurrent fetches; 0 = no limit.
    pub backend_concurrency: usize,
}

/// All options of a replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address of the server.
    pub server: Server,
    /// The protocol; `None` = detected with a `version` line.
    pub protocol: Option<Protocol>,
    /// Credentials sent first on each connection: RESP's `AUTH`, or memcached's ASCII authentication.
    pub credentials: Option<Credentials>,
    /// The database for RESP's `SELECT`.
    pub database: Option<u32>,
    /// Number of connections over all threads; at least 1.
    pub connections: usize,
    /// Number of threads; at least 1, at most `connections`.
    pub threads: usize,
    /// Requests in flight per connection; at least 1.
    pub depth: usize,
    /// The pacing of requests.
    pub pace: Pace,
    /// Whether a thread polls where the next event is too near for the kernel's timers. Otherwise the thread sleeps 0.2
    /// ms: requests, fetches and latencies are up to 0.3 ms late.
    pub spin: bool,
    /// Whether and how misses are fetched and stored.
    pub read_through: Option<ReadThrough>,
    /// Whether a store states the cost of a miss of its key: a `set` is sent as `ms` with the flag of the cost.
    pub state_costs: bool,
    /// Gets per point of the curves of hit ratio and service time of read-through; 0 = no curves.
    pub window_gets: u64,
    /// Whether requests of one key may use different connections. Stale values cannot be detected then.
    pub spread: bool,
    /// How closely values are verified.
    pub verify: Verify,
    /// Number of keys to remember for detecting stale values; 43 to 86 bytes each.
    pub verify_keys: usize,
    /// The command sent for a `cas`.
    pub cas_as: CasAs,
    /// Whether the times to live of the trace are sent.
    pub ttls: bool,
    /// Prefix of every key.
    pub key_prefix: String,
    /// Size of a value in bytes where the source does not know sizes.
    pub value_bytes: u32,
    /// Maximum size of a value; longer values of the source are cut.
    pub value_bytes_max: u32,
    /// Whether every key is stored once before the replay.
    pub load: bool,
    /// The warm-up, which is not counted.
    pub warmup: Option<Warmup>,
    /// The duration of the measured time, counted from the end of the warm-up.
    pub time_limit: Option<Duration>,
    /// Number of passes over the source; 0 = until the time limit.
    pub repeat: u32,
    /// Maximum time for a reply.
    pub timeout: Duration,
    /// Maximum time for which all connections, or one with waiting requests, may be down before the server is given
    /// up.
    pub give_up: Duration,
    /// The file for the HDR interval log.
    pub hdr: Option<PathBuf>,
    /// Whether the progress is hidden.
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
            spin: true,
            read_through: None,
            state_costs: false,
            window_gets: 0,
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
}

/// Checks the options. An error is one line that names the option.
pub(super) fn check(options: &Options) -> Result<(), String> {
    let positive = |rate: f64| rate.is_finite() && rate > 0.0;
    if options.connections == 0 || options.threads == 0 || options.depth == 0 {
        return Err("connections, threads and depth are at least 1".to_owned());
    }
    if options.threads > options.connections {
        return Err(format!(
            "{} threads for {} connections: each thread needs one",
            options.threads, options.connections
        ));
    }
    match options.pace {
        Pace::Rate(rate) if !positive(rate) => return Err(format!("a rate of {rate} is none")),
        Pace::Speed(speed) if !positive(speed) => return Err(format!("a speed of {speed} is none")),
        _ => {}
    }
    if options.repeat == 0 && options.time_limit.is_none() {
        return Err("repeating for ever needs an end: --seconds".to_owned());
    }
    if let Some(through) = options.read_through
        && !(through.penalty_scale.is_finite() && through.penalty_scale >= 0.0)
    {
        return Err(format!("penalties cannot be scaled by {}", through.penalty_scale));
    }
    if options.window_gets > 0 && options.read_through.is_none() {
        return Err("windows of gets are counted with read-through only".to_owned());
    }
    let plain = |byte: u8| byte > b' ' && byte != 0x7f;
    if options.key_prefix.len() > 200 || !options.key_prefix.bytes().all(plain) {
        return Err("a key prefix has at most 200 bytes, without spaces and control characters".to_owned());
    }
    Ok(())
}
