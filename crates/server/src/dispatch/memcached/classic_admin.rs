//! The classic commands on the whole server: `stats`, `flush_all`, `lru_crawler`, ...
//!
//! There are no slab classes and no LRU lists here. What would tune them in memcached is accepted and has no effect.

use super::client_time::ClientTime;
use super::form::{Form, Words};
use crate::dispatch::operation::{ClockChange, ListingForm, Operation, StatsTopic, THE_CLASS, WorthChange};
use larder_cache::{Objective, WorthMode};
use larder_protocol::{DebugTime, Lru, LruCrawler, Request, Slabs, StatsKind, Worth, reply};

/// A dump is answered alone, because it goes on for as long as it takes.
const METADUMP_PIPELINED: &str = "ERROR cannot pipeline other commands before metadump\r\n";
const MGDUMP_PIPELINED: &str = "ERROR cannot pipeline other commands before mgdump\r\n";
/// The highest number of a slab class in memcached.
const CLASSES_SHOWN_MAX: i32 = 63;
/// The most bytes of a `stats cachedump`. The limit is memcached's.
const CACHEDUMP_BYTES_MAX: usize = 2 << 20;

const OK: Words = Words { done: reply::OK, disabled: reply::ERROR, not_first: reply::ERROR };

/// Reads an administrative request as an operation.
pub(super) fn command<'a>(
    request: &Request<'a>,
    time: ClientTime,
    is_behind_others: bool,
) -> (Operation<'a>, Form) {
    let admin = |operation, words| (operation, Form::Admin { noreply: false, words });
    let fixed = |text| (Operation::Nothing, Form::Fixed(text));
    match request {
        Request::MetaNoop => fixed(reply::META_NOOP),
        Request::Version => admin(Operation::Version, OK),
        Request::Quit => admin(Operation::Quit, OK),
        Request::FlushAll { exptime, noreply } => {
            let due_s = exptime.filter(|&delay| delay > 0).map(|delay| time.expiry(delay).seconds());
            let words = Words { disabled: reply::FLUSH_NOT_ALLOWED, ..OK };
            (Operation::Flush { due_s }, Form::Admin { noreply: *noreply, words })
        }
        Request::FlushPrefix { prefix, noreply } => {
            let words = Words { disabled: reply::FLUSH_PREFIX_NOT_ALLOWED, ..OK };
            (Operation::FlushPrefix { prefix }, Form::Admin { noreply: *noreply, words })
        }
        Request::Verbosity { level, noreply } => {
            (Operation::SetVerbosity(*level), Form::Admin { noreply: *noreply, words: OK })
        }
        Request::Shutdown { graceful } => {
            let words = Words { disabled: reply::SHUTDOWN_NOT_ENABLED, ..OK };
            admin(Operation::Shutdown { graceful: *graceful }, words)
        }
        Request::CacheMemlimit { megabytes, noreply } => {
            let operation = Operation::SetMemoryLimit { megabytes: *megabytes };
            (operation, Form::Admin { noreply: *noreply, words: OK })
        }
        Request::DebugTime(debug) => {
            let change = match debug {
                DebugTime::Move(seconds) => ClockChange::Move(i64::from(*seconds)),
                DebugTime::Pause => ClockChange::Pause,
                DebugTime::Resume => ClockChange::Resume,
            };
            admin(Operation::SetClock(change), OK)
        }
        Request::Stats(kind) => stats(*kind),
        Request::LruCrawler(LruCrawler::Metadump(_)) => {
            let form = ListingForm::Everything;
            let words = Words { disabled: reply::METADUMP_NOT_ALLOWED, not_first: METADUMP_PIPELINED, ..OK };
            admin(Operation::List { form, is_behind_others }, words)
        }
        Request::LruCrawler(LruCrawler::Mgdump(_)) => {
            let form = ListingForm::Keys;
            let words = Words { disabled: reply::MGDUMP_NOT_ALLOWED, not_first: MGDUMP_PIPELINED, ..OK };
            admin(Operation::List { form, is_behind_others }, words)
        }
        Request::Watch(kinds) => {
            let words = Words { disabled: reply::WATCH_NOT_ALLOWED, not_first: reply::WATCH_PIPELINED, ..OK };
            admin(Operation::Watch { kinds: *kinds, is_behind_others }, words)
        }
        // The keeper drops expired items: there is no crawler to start or to tune. Flash has settings of its own.
        Request::LruCrawler(_) | Request::Extstore(_) => fixed(reply::OK),
        Request::Slabs(slabs) => fixed(slabs_text(*slabs)),
        Request::Lru(lru) => fixed(lru_text(*lru)),
        Request::Worth(worth) => match worth_change(*worth) {
            Some(change) => admin(Operation::SetWorth(change), OK),
            None => fixed(reply::WORTH_USAGE),
        },
        Request::Fleet => admin(Operation::NameFleet, OK),
        Request::RefreshCerts => admin(Operation::RefreshCertificates, OK),
        _ => fixed(reply::ERROR),
    }
}

fn stats(kind: StatsKind<'_>) -> (Operation<'_>, Form) {
    let words = match kind {
        StatsKind::Reset | StatsKind::HotKeysReset | StatsKind::LargeKeysReset => {
            Words { done: reply::RESET, ..OK }
        }
        StatsKind::HotKeys | StatsKind::LargeKeys => Words { disabled: reply::STATS_KEYS_NOT_ALLOWED, ..OK },
        StatsKind::DetailDump | StatsKind::DetailOn | StatsKind::DetailOff => {
            Words { disabled: reply::STATS_DETAIL_NOT_ALLOWED, ..OK }
        }
        StatsKind::Cachedump { .. } => Words { done: "", disabled: reply::CACHEDUMP_NOT_ALLOWED, ..OK },
        StatsKind::Other(_) => return (Operation::Nothing, Form::Fixed(reply::ERROR)),
        _ => OK,
    };
    (stats_operation(kind), Form::Admin { noreply: false, words })
}

/// What statistics a client asks for, or what it does to them, in any of memcached's protocols.
pub(super) fn stats_operation(kind: StatsKind<'_>) -> Operation<'_> {
    Operation::Stats(match kind {
        StatsKind::General => StatsTopic::General,
        StatsKind::Settings => StatsTopic::Settings,
        StatsKind::Items => StatsTopic::Items,
        StatsKind::Slabs => StatsTopic::Slabs,
        StatsKind::Sizes => StatsTopic::Sizes,
        StatsKind::Conns => StatsTopic::Connections,
        StatsKind::Temperature => StatsTopic::Temperature,
        StatsKind::Worth => StatsTopic::Worth,
        StatsKind::Namespaces => StatsTopic::Namespaces,
        StatsKind::Compression => StatsTopic::Compression,
        StatsKind::Flash | StatsKind::Extstore => StatsTopic::Flash,
        StatsKind::Penalties => StatsTopic::Penalties,
        StatsKind::HotKeys => StatsTopic::HotKeys,
        StatsKind::LargeKeys => StatsTopic::LargeKeys,
        StatsKind::HotKeysReset => return Operation::ResetHotKeys,
        StatsKind::LargeKeysReset => return Operation::ResetLargeKeys,
        StatsKind::Mrc => StatsTopic::Mrc,
        StatsKind::MrcOf(name) => return Operation::SizingOf(name),
        StatsKind::Latency => StatsTopic::Latency,
        StatsKind::DetailDump => return Operation::PrefixCounts,
        StatsKind::Reset => return Operation::ResetStats,
        StatsKind::DetailOn => return Operation::CountPrefixes(true),
        StatsKind::DetailOff => return Operation::CountPrefixes(false),
        StatsKind::Cachedump { class, limit } => {
            let items_left = match limit {
                _ if class != THE_CLASS => 0,
                0 => usize::MAX,
                limit => limit as usize,
            };
            let form = ListingForm::Sizes { items_left, bytes_left: CACHEDUMP_BYTES_MAX };
            return Operation::List { form, is_behind_others: false };
        }
        StatsKind::Other(_) => return Operation::Nothing,
    })
}

fn slabs_text(slabs: Slabs) -> &'static str {
    let Slabs::Reassign { source, destination } = slabs else { return reply::OK };
    let is_known = |class: i32| (1..=CLASSES_SHOWN_MAX).contains(&class);
    if source == destination {
        reply::SLABS_SAME
    } else if !is_known(destination) || !(is_known(source) || source == 0) {
        // Class 0 has the pages of no class. Any class that has pages to spare (-1) is none, as no class has.
        reply::SLABS_BAD_CLASS
    } else {
        reply::SLABS_NO_SPARE
    }
}

/// `None`: there is no mode or objective with this name.
fn worth_change(worth: Worth<'_>) -> Option<WorthChange> {
    let text = |name| std::str::from_utf8(name).ok();
    match worth {
        Worth::Mode(name) => WorthMode::of_name(text(name)?).map(WorthChange::Mode),
        Worth::Objective(name) => Objective::of_name(text(name)?).map(WorthChange::Objective),
    }
}

fn lru_text(lru: Lru) -> &'static str {
    let Lru::Tune { hot_percent, warm_percent, hot_factor, warm_factor } = lru else { return reply::OK };
    if hot_percent + warm_percent > 80 {
        reply::LRU_BAD_PERCENTS
    } else if hot_factor <= 0.0 || warm_factor <= 0.0 {
        reply::LRU_BAD_FACTORS
    } else {
        reply::OK
    }
}
