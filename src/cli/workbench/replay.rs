//! `larder replay`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use larder_sim::replay::{self, CasAs, Options, Pace, Protocol, ReadThrough, Server, Verify, Warmup};

use super::failure::Failure;
use super::interrupt::Interrupt;
use super::output::OutputArgs;
use super::source::{SourceArgs, credentials};
use super::values::count;

/// Flags of `larder replay`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    items: ItemArgs,
    /// Write the latencies of each second to this file, as an HDR interval log
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

const AFTER_HELP: &str = "Exit status: 0 nothing was wrong; 1 values were wrong or the server misbehaved; 2 the server \
could not be reached, or was given up; 64 the command line cannot be obeyed; 129, 130 or 143 a signal has ended the \
replay, and the report says after how many requests.";

/// The server to drive.
#[derive(Args)]
#[command(next_help_heading = "Server")]
struct TargetArgs {
    /// Address of the server: host:port, [v6]:port, or the path of a UNIX socket
    #[arg(long, short, value_name = "ADDRESS", default_value = "127.0.0.1:11211")]
    server: String,
    /// Protocol of the server; auto asks the server for its version
    #[arg(long, value_name = "PROTOCOL", default_value = "auto")]
    protocol: ProtocolArg,
    /// User name for RESP's AUTH or memcached's ASCII authentication
    #[arg(long, value_name = "USER", requires = "password_file")]
    user: Option<String>,
    /// File whose first line is the password
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Database number for RESP's SELECT
    #[arg(long, value_name = "NUMBER")]
    database: Option<u32>,
    /// Maximum time for a reply in seconds; a connection that exceeds it is closed
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    timeout: Duration,
    /// Give up when all connections, or one with requests to send, have been down for this many seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    give_up: Duration,
}

/// The load.
#[derive(Args)]
#[command(next_help_heading = "Load")]
struct LoadArgs {
    /// Number of connections, over all threads
    #[arg(long, short, value_name = "N", default_value = "8", value_parser = at_least_one)]
    connections: usize,
    /// Number of threads
    #[arg(long, short, value_name = "N", default_value = "1", value_parser = at_least_one)]
    threads: usize,
    /// Requests in flight per connection
    #[arg(long, short, value_name = "N", default_value = "1", value_parser = at_least_one)]
    depth: usize,
    /// Send this many requests per second, evenly spaced (open loop); latency counts from the time a request was due
    #[arg(long, value_name = "REQUESTS", conflicts_with = "speed", value_parser = rate)]
    rate: Option<f64>,
    /// Send requests at the times of the trace, this many times as fast (open loop)
    #[arg(long, value_name = "TIMES")]
    speed: Option<f64>,
    /// Sleep for 0.2 ms where the client would spin, to leave the cores to others: requests, fetches and latencies are
    /// up to 0.3 ms late
    #[arg(long)]
    no_spin: bool,
    /// Store every key once before the replay; this takes an additional pass over the source
    #[arg(long)]
    load: bool,
    /// Warm-up that is not counted: a number of requests, such as 100k, or seconds, such as 10s
    #[arg(long, value_name = "REQUESTS|SECONDS", value_parser = warmup)]
    warmup: Option<Warmup>,
    /// Stop this many seconds after the warm-up
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Number of passes over the source; 0 repeats it until --seconds have passed
    #[arg(long, value_name = "TIMES", default_value = "1")]
    repeat: u32,
    /// Send the requests of a key over any connection; stale values cannot be detected then
    #[arg(long)]
    spread: bool,
    /// Fetch what a get missed from a simulated back end, and store it
    #[arg(long)]
    read_through: bool,
    /// Factor for the penalty of a miss, which is then waited for: 1 is real time, 0 counts the penalty without
    /// waiting
    #[arg(long, value_name = "TIMES", default_value = "0", requires = "read_through")]
    penalty_scale: f64,
    /// Maximum number of concurrent fetches from the back end; 0 is no limit
    #[arg(long, value_name = "N", default_value = "0", requires = "read_through")]
    backend_concurrency: usize,
    /// Gets per point of the curves of hit ratio and service time, such as 100k; 0 draws none
    #[arg(long, value_name = "GETS", default_value = "0", requires = "read_through", value_parser = count)]
    window: u64,
}

/// Keys and values.
#[derive(Args)]
#[command(next_help_heading = "Keys and values")]
struct ItemArgs {
    /// Text at the start of every key
    #[arg(long, value_name = "TEXT", default_value = "")]
    key_prefix: String,
    /// Size of a value in bytes where the source does not know sizes
    #[arg(long, value_name = "OCTETS", default_value = "100")]
    value_bytes: u32,
    /// Maximum size of a value in bytes; longer values of the source are cut
    #[arg(long, value_name = "OCTETS", default_value = "1073741824")]
    value_bytes_max: u32,
    /// Send the times to live of the source
    #[arg(long)]
    ttls: bool,
    /// State the cost of a miss with every set: the source's penalty, as a meta flag that Larder understands
    #[arg(long)]
    state_costs: bool,
    /// What to send for a cas of the source
    #[arg(long, value_name = "AS", default_value = "gets")]
    cas: CasArg,
    /// How to check values that were read: full (every byte), fast (the header of long values) or off
    #[arg(long, value_name = "HOW", default_value = "full")]
    verify: VerifyArg,
    /// Number of keys to remember for detecting stale values, up to 86 bytes each
    #[arg(long, value_name = "KEYS", default_value = "4m", value_parser = count)]
    verify_keys: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum ProtocolArg {
    Auto,
    Memcached,
    Resp,
}

#[derive(Clone, Copy, ValueEnum)]
enum CasArg {
    /// gets, then cas
    Gets,
    /// A set
    Set,
}

#[derive(Clone, Copy, ValueEnum)]
enum VerifyArg {
    Full,
    Fast,
    Off,
}

/// Runs the command.
pub(super) fn run(args: ReplayArgs) -> Result<(), Failure> {
    let options = options(&args)?;
    let open = || args.source.open();
    let interrupt = Interrupt::wait()?;
    let mut outcome =
        replay::run(options, &open, interrupt.stop.clone()).map_err(|failure| match failure {
            replay::Failure::Unreachable(text) => Failure::Unreachable(text),
            replay::Failure::Failed(text) => Failure::Failed(text),
        })?;
    let requests = outcome.counts.requests();
    let ended = interrupt.mark(&mut outcome.report, (requests, "requests"), None)?;
    args.output.deliver(&outcome.report)?;
    match (ended, outcome.complaint()) {
        (Some(Failure::Interrupted(status, ended)), Some(complaint)) => {
            Err(Failure::Interrupted(status, format!("{ended}; {complaint}")))
        }
        (Some(ended), _) => Err(ended),
        (None, Some(complaint)) if outcome.given_up => Err(Failure::Unreachable(complaint)),
        (None, Some(complaint)) => Err(Failure::Failed(complaint)),
        (None, None) => Ok(()),
    }
}

fn options(args: &ReplayArgs) -> Result<Options, Failure> {
    let ReplayArgs { target, load, items, .. } = args;
    Ok(Options {
        server: Server::parse(&target.server).map_err(Failure::Unreachable)?,
        protocol: match target.protocol {
            ProtocolArg::Auto => None,
            ProtocolArg::Memcached => Some(Protocol::Memcached),
            ProtocolArg::Resp => Some(Protocol::Resp),
        },
        credentials: credentials(target.user.as_deref(), target.password_file.as_deref())?,
        database: target.database,
        connections: load.connections,
        threads: load.threads.min(load.connections),
        depth: load.depth,
        pace: match (load.rate, load.speed) {
            (Some(rate), _) => Pace::Rate(rate),
            (None, Some(speed)) => Pace::Speed(speed),
            (None, None) => Pace::Closed,
        },
        read_through: load.read_through.then_some(ReadThrough {
            penalty_scale: load.penalty_scale,
            backend_concurrency: load.backend_concurrency,
        }),
        spin: !load.no_spin,
        state_costs: items.state_costs,
        window_gets: load.window,
        spread: load.spread,
        verify: match items.verify {
            VerifyArg::Full => Verify::Full,
            VerifyArg::Fast => Verify::Fast,
            VerifyArg::Off => Verify::Off,
        },
        verify_keys: items.verify_keys.min(1 << 40) as usize,
        cas_as: match items.cas {
            CasArg::Gets => CasAs::GetsCas,
            CasArg::Set => CasAs::Set,
        },
        ttls: items.ttls,
        key_prefix: items.key_prefix.clone(),
        value_bytes: items.value_bytes,
        value_bytes_max: items.value_bytes_max,
        load: load.load,
        warmup: load.warmup,
        time_limit: load.seconds,
        repeat: load.repeat,
        timeout: target.timeout,
        give_up: target.give_up,
        hdr: args.hdr.clone(),
        quiet: args.output.quiet,
    })
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match count(text)? {
        0 => Err("expected a number of at least 1".to_owned()),
        number => usize::try_from(number).map_err(|error| error.to_string()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    text.parse::<f64>().or_else(|_| count(text).map(|requests| requests as f64))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a number of seconds: give one such as 10 or 0.5");
    let number: f64 = text.strip_suffix('s').unwrap_or(text).parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number).ok().filter(|time| time.as_secs() < 1 << 30).ok_or_else(wrong)
}

fn warmup(text: &str) -> Result<Warmup, String> {
    match text.strip_suffix('s') {
        Some(_) => seconds(text).map(Warmup::Time),
        None => count(text).map(Warmup::Requests),
    }
}
