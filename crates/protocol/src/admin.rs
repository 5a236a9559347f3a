//! The administrative commands: settings, statistics, the crawler, watchers.

use crate::limits::CLASSES_MAX;
use crate::reply;
use crate::scan::{Words, abbreviates, number_f64, number_i32, number_u32};

/// `debugtime <seconds>|p|r`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugTime {
    /// Move the clock by this many seconds, forward or backward.
    Move(i32),
    /// `p`: stop the clock.
    Pause,
    /// `r`: let the clock run again.
    Resume,
}

/// The statistics that `stats` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsKind<'a> {
    /// `stats`
    General,
    /// `stats reset`
    Reset,
    /// `stats settings`
    Settings,
    /// `stats items`
    Items,
    /// `stats slabs`
    Slabs,
    /// `stats sizes`
    Sizes,
    /// `stats conns`
    Conns,
    /// `stats temperature`, which memcached does not have.
    Temperature,
    /// `stats worth`, which memcached does not have.
    Worth,
    /// `namespaces`, which memcached does not have: what the tenants have, and what was counted of them.
    Namespaces,
    /// `stats compression`, which memcached does not have.
    Compression,
    /// `stats detail on`
    DetailOn,
    /// `stats detail off`
    DetailOff,
    /// `stats detail dump`
    DetailDump,
    /// `stats cachedump <class> <limit>`
    Cachedump {
        /// Slab class, below [`CLASSES_MAX`].
        class: u32,
        /// Most items to list. 0 means no limit.
        limit: u32,
    },
    /// `stats extstore`
    Extstore,
    /// `stats flash`, which memcached does not have.
    Flash,
    /// `stats penalties`, which memcached does not have.
    Penalties,
    /// `stats hotkeys`, which memcached does not have.
    HotKeys,
    /// `stats hotkeys reset`
    HotKeysReset,
    /// `stats largekeys`, which memcached does not have.
    LargeKeys,
    /// `stats largekeys reset`
    LargeKeysReset,
    /// `stats mrc`, which memcached does not have.
    Mrc,
    /// `stats mrc <namespace>`
    MrcOf(&'a [u8]),
    /// `stats latency`, which memcached does not have.
    Latency,
    /// Any other word. memcached answers `ERROR` to words it does not know.
    Other(&'a [u8]),
}

/// `slabs ...`
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slabs {
    /// `slabs reassign <source> <destination>`. A source of -1 means any class.
    Reassign {
        /// The class that gives a page.
        source: i32,
        /// The class that receives a page.
        destination: i32,
    },
    /// `slabs automove 0|1|2`
    Automove(u8),
    /// `slabs automove ratio <f>`
    AutomoveRatio(f64),
    /// `slabs automove freeratio <f>`
    AutomoveFreeratio(f64),
    /// `slabs automove window <n>`, 3 to 1800.
    AutomoveWindow(u32),
}

/// `lru ...`
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lru {
    /// `lru tune <hot%> <warm%> <hot factor> <warm factor>`. The values are checked: the percentages add up to at
    /// most 80, and the factors are above 0.
    Tune {
        /// Share of the hot segment in memory, in percent.
        hot_percent: u32,
        /// Share of the warm segment in memory, in percent.
        warm_percent: u32,
        /// Highest age of the hot segment relative to the cold one.
        hot_factor: f64,
        /// Highest age of the warm segment relative to the cold one.
        warm_factor: f64,
    },
    /// `lru mode flat`
    ModeFlat,
    /// `lru mode segmented`
    ModeSegmented,
    /// `lru temp_ttl <seconds>`. `None` stands for `-1`, which switches it off.
    TempTtl(Option<u32>),
}

/// `worth ...`, which memcached does not have. The command's execution knows which names there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth<'a> {
    /// `worth mode <name>`
    Mode(&'a [u8]),
    /// `worth objective <name>`
    Objective(&'a [u8]),
}

/// `lru_crawler ...`
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LruCrawler<'a> {
    /// `lru_crawler enable`
    Enable,
    /// `lru_crawler disable`
    Disable,
    /// `lru_crawler sleep <microseconds>`, at most a million.
    Sleep(u32),
    /// `lru_crawler tocrawl <items>`
    Tocrawl(u32),
    /// `lru_crawler crawl <ids|all>`
    Crawl(CrawlTarget<'a>),
    /// `lru_crawler metadump <ids|all|hash>`
    Metadump(CrawlTarget<'a>),
    /// `lru_crawler mgdump <ids|all|hash>`
    Mgdump(CrawlTarget<'a>),
}

/// Which items a crawl covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrawlTarget<'a> {
    /// `all`
    All,
    /// `hash`: all items, in the order of the hash table. Not allowed for `crawl`.
    Hash,
    /// A comma-separated list of class numbers.
    Classes(Classes<'a>),
}

/// Class numbers of a crawl, each from 1 to [`CLASSES_MAX`] - 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes<'a> {
    list: &'a [u8],
}

impl Iterator for Classes<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let comma = self.list.iter().position(|&byte| byte == b',');
        let (number, rest) = match comma {
            Some(at) => (&self.list[..at], &self.list[at + 1..]),
            None => (self.list, &[][..]),
        };
        self.list = rest;
        number_u32(number).filter(|class| (1..CLASSES_MAX).contains(class))
    }
}

/// `extstore <setting> <value>`
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extstore {
    /// `item_size`: the smallest item that is written to flash, in bytes.
    ItemSize(u32),
    /// `item_age`: how long an item must have been idle, in seconds.
    ItemAge(u32),
    /// `low_ttl`: items that expire sooner than this go to pages of their own, in seconds.
    LowTtl(u32),
    /// `recache_rate`: one in this many flash hits returns to memory.
    RecacheRate(u32),
    /// `compact_under`: compact if fewer pages than this are free.
    CompactUnder(u32),
    /// `drop_under`: drop pages if fewer than this are free.
    DropUnder(u32),
    /// `max_sleep`: the longest pause of the writer, in microseconds.
    MaxSleep(u32),
    /// `max_frag`: the share of a page's bytes that must be dead before the page is compacted.
    MaxFrag(f64),
    /// `drop_unread`: compaction drops items that were never read.
    DropUnread(bool),
    /// `free_memchunks`: accepted so that old scripts work.
    FreeMemchunks(u32),
}

/// A set of event streams that a client watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WatchKinds(u16);

impl WatchKinds {
    /// Gets, hits and misses.
    pub const FETCHERS: WatchKinds = WatchKinds(1);
    /// Stores of every kind.
    pub const MUTATIONS: WatchKinds = WatchKinds(1 << 1);
    /// Evictions.
    pub const EVICTIONS: WatchKinds = WatchKinds(1 << 2);
    /// Connections opened and closed.
    pub const CONNEVENTS: WatchKinds = WatchKinds(1 << 3);
    /// Deletions.
    pub const DELETIONS: WatchKinds = WatchKinds(1 << 4);
    /// Events of the server itself.
    pub const SYSEVENTS: WatchKinds = WatchKinds(1 << 5);
    /// Command lines as received.
    pub const RAWCMDS: WatchKinds = WatchKinds(1 << 6);
    /// Requests of the proxy.
    pub const PROXYREQS: WatchKinds = WatchKinds(1 << 7);
    /// Events of the proxy.
    pub const PROXYEVENTS: WatchKinds = WatchKinds(1 << 8);
    /// Log lines of the proxy's user.
    pub const PROXYUSER: WatchKinds = WatchKinds(1 << 9);

    /// The names, in the order in which memcached compares them with what was sent.
    const NAMES: [(&'static [u8], WatchKinds); 10] = [
        (b"rawcmds", WatchKinds::RAWCMDS),
        (b"evictions", WatchKinds::EVICTIONS),
        (b"fetchers", WatchKinds::FETCHERS),
        (b"mutations", WatchKinds::MUTATIONS),
        (b"sysevents", WatchKinds::SYSEVENTS),
        (b"connevents", WatchKinds::CONNEVENTS),
        (b"proxyreqs", WatchKinds::PROXYREQS),
        (b"proxyevents", WatchKinds::PROXYEVENTS),
        (b"proxyuser", WatchKinds::PROXYUSER),
        (b"deletions", WatchKinds::DELETIONS),
    ];

    /// The set as a number.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The set of a number from [`WatchKinds::bits`].
    pub const fn of_bits(bits: u16) -> WatchKinds {
        WatchKinds(bits)
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether every stream of `other` is in this set.
    pub const fn contains(self, other: WatchKinds) -> bool {
        self.0 & other.0 == other.0
    }

    /// The union of both sets.
    pub const fn union(self, other: WatchKinds) -> WatchKinds {
        WatchKinds(self.0 | other.0)
    }
}

/// The arguments of a command, or the reply that refuses them.
type Arguments<T> = Result<T, &'static str>;

/// `stats ...`; `words` are the words after the command.
///
/// `reset`, `detail` (and its argument), `settings`, `cachedump`, `conns` and `extstore` may be abbreviated,
/// because memcached compares only as many bytes as were sent. An ambiguous abbreviation means the first of them in
/// this order.
pub(crate) fn stats<'a>(mut words: Words<'a>) -> Arguments<StatsKind<'a>> {
    let Some(word) = words.next() else { return Ok(StatsKind::General) };
    let starts = |full: &[u8]| abbreviates(word, full);
    let kind = match word {
        b"items" => StatsKind::Items,
        b"slabs" => StatsKind::Slabs,
        b"sizes" => StatsKind::Sizes,
        _ if starts(b"reset") => StatsKind::Reset,
        _ if starts(b"detail") => detail(words.next().unwrap_or_default())?,
        _ if starts(b"settings") => StatsKind::Settings,
        _ if starts(b"cachedump") => cachedump(words)?,
        _ if starts(b"conns") => StatsKind::Conns,
        _ if starts(b"extstore") => StatsKind::Extstore,
        b"temperature" => StatsKind::Temperature,
        b"worth" => StatsKind::Worth,
        b"namespaces" => StatsKind::Namespaces,
        b"compression" => StatsKind::Compression,
        b"flash" => StatsKind::Flash,
        b"penalties" => StatsKind::Penalties,
        b"hotkeys" => shown_or_reset(words, StatsKind::HotKeys, StatsKind::HotKeysReset)?,
        b"largekeys" => shown_or_reset(words, StatsKind::LargeKeys, StatsKind::LargeKeysReset)?,
        b"mrc" => words.next().map_or(StatsKind::Mrc, StatsKind::MrcOf),
        b"latency" => StatsKind::Latency,
        other => StatsKind::Other(other),
    };
    Ok(kind)
}

fn shown_or_reset<'a>(
    mut words: Words<'_>,
    shown: StatsKind<'a>,
    reset: StatsKind<'a>,
) -> Arguments<StatsKind<'a>> {
    match words.next() {
        None => Ok(shown),
        Some(b"reset") => Ok(reset),
        Some(_) => Err(reply::ERROR),
    }
}

fn detail(word: &[u8]) -> Arguments<StatsKind<'static>> {
    match word {
        b"" => Err(reply::STATS_DETAIL_USAGE),
        _ if abbreviates(word, b"on") => Ok(StatsKind::DetailOn),
        _ if abbreviates(word, b"off") => Ok(StatsKind::DetailOff),
        _ if abbreviates(word, b"dump") => Ok(StatsKind::DetailDump),
        _ => Err(reply::STATS_DETAIL_USAGE),
    }
}

fn cachedump(mut words: Words<'_>) -> Arguments<StatsKind<'static>> {
    let (Some(class), Some(limit)) = (words.next(), words.next()) else { return Err(reply::BAD_LINE) };
    match (number_u32(class), number_u32(limit)) {
        (Some(class), Some(_)) if class >= CLASSES_MAX => Err(reply::ILLEGAL_SLAB),
        (Some(class), Some(limit)) => Ok(StatsKind::Cachedump { class, limit }),
        _ => Err(reply::BAD_FORMAT),
    }
}

/// `slabs ...`
pub(crate) fn slabs(mut words: Words<'_>) -> Arguments<Slabs> {
    let (Some(what), Some(first)) = (words.next(), words.next()) else { return Err(reply::ERROR) };
    let second = words.next();
    match second {
        Some(destination) if abbreviates(what, b"reassign") && words.next().is_none() => {
            Ok(Slabs::Reassign {
                source: number_i32(first).ok_or(reply::BAD_FORMAT)?,
                destination: number_i32(destination).ok_or(reply::BAD_FORMAT)?,
            })
        }
        _ if abbreviates(what, b"automove") => automove(first, second),
        _ => Err(reply::ERROR),
    }
}

/// `slabs automove <level>`, or the name of a setting and its value.
fn automove(name: &[u8], value: Option<&[u8]>) -> Arguments<Slabs> {
    let fraction = || value.and_then(number_f64).ok_or(reply::ERROR);
    let slabs = match name {
        _ if abbreviates(name, b"ratio") => Slabs::AutomoveRatio(fraction()?),
        _ if abbreviates(name, b"freeratio") => Slabs::AutomoveFreeratio(fraction()?),
        _ if abbreviates(name, b"window") => match value.and_then(number_u32).ok_or(reply::BAD_FORMAT)? {
            window @ 3..=1800 => Slabs::AutomoveWindow(window),
            _ => return Err(reply::BAD_WINDOW),
        },
        level => match number_u32(level).ok_or(reply::BAD_FORMAT)? {
            level @ 0..=2 => Slabs::Automove(level as u8),
            _ => return Err(reply::ERROR),
        },
    };
    Ok(slabs)
}

/// `lru ...`
pub(crate) fn lru(mut words: Words<'_>) -> Arguments<Lru> {
    let (Some(what), Some(value)) = (words.next(), words.next()) else { return Err(reply::ERROR) };
    let lru = match what {
        _ if abbreviates(what, b"tune") => {
            let percents = number_u32(value).zip(words.next().and_then(number_u32));
            let factors = words.next().and_then(number_f64).zip(words.next().and_then(number_f64));
            let ((hot_percent, warm_percent), (hot_factor, warm_factor)) =
                percents.zip(factors).ok_or(reply::ERROR)?;
            if u64::from(hot_percent) + u64::from(warm_percent) > 80 {
                return Err(reply::LRU_BAD_PERCENTS);
            }
            if hot_factor <= 0.0 || warm_factor <= 0.0 {
                return Err(reply::LRU_BAD_FACTORS);
            }
            Lru::Tune { hot_percent, warm_percent, hot_factor, warm_factor }
        }
        _ if abbreviates(what, b"mode") => match value {
            _ if abbreviates(value, b"flat") => Lru::ModeFlat,
            _ if abbreviates(value, b"segmented") => Lru::ModeSegmented,
            _ => return Err(reply::ERROR),
        },
        _ if abbreviates(what, b"temp_ttl") => {
            Lru::TempTtl(u32::try_from(number_i32(value).ok_or(reply::ERROR)?).ok())
        }
        _ => return Err(reply::ERROR),
    };
    Ok(lru)
}

/// `worth ...`
pub(crate) fn worth<'a>(mut words: Words<'a>) -> Arguments<Worth<'a>> {
    match (words.next(), words.next(), words.next()) {
        (Some(b"mode"), Some(name), None) => Ok(Worth::Mode(name)),
        (Some(b"objective"), Some(name), None) => Ok(Worth::Objective(name)),
        _ => Err(reply::WORTH_USAGE),
    }
}

/// `lru_crawler ...`
pub(crate) fn lru_crawler(mut words: Words<'_>) -> Arguments<LruCrawler<'_>> {
    let what = words.next().unwrap_or_default();
    let (value, more) = (words.next(), words.next());
    let crawler = match (value, more) {
        (Some(_), Some(_)) => return Err(reply::ERROR),
        (None, _) => match what {
            b"" => return Err(reply::ERROR),
            _ if abbreviates(what, b"enable") => LruCrawler::Enable,
            _ if abbreviates(what, b"disable") => LruCrawler::Disable,
            _ => return Err(reply::ERROR),
        },
        (Some(value), None) => match what {
            _ if abbreviates(what, b"crawl") => match crawl_target(value)? {
                CrawlTarget::Hash => return Err(reply::CRAWLER_BAD_CLASS),
                target => LruCrawler::Crawl(target),
            },
            _ if abbreviates(what, b"metadump") => LruCrawler::Metadump(crawl_target(value)?),
            _ if abbreviates(what, b"mgdump") => LruCrawler::Mgdump(crawl_target(value)?),
            _ if abbreviates(what, b"tocrawl") => {
                LruCrawler::Tocrawl(number_u32(value).ok_or(reply::BAD_FORMAT)?)
            }
            _ if abbreviates(what, b"sleep") => match number_u32(value).ok_or(reply::BAD_FORMAT)? {
                sleep_us @ 0..=1_000_000 => LruCrawler::Sleep(sleep_us),
                _ => return Err(reply::SLEEP_TOO_LONG),
            },
            _ => return Err(reply::ERROR),
        },
    };
    Ok(crawler)
}

fn crawl_target(word: &[u8]) -> Arguments<CrawlTarget<'_>> {
    match word {
        b"all" => Ok(CrawlTarget::All),
        b"hash" => Ok(CrawlTarget::Hash),
        list => {
            let classes = Classes { list };
            let written = list.iter().filter(|&&byte| byte == b',').count() + 1;
            if classes.clone().count() != written {
                return Err(reply::CRAWLER_BAD_CLASS);
            }
            Ok(CrawlTarget::Classes(classes))
        }
    }
}

/// `extstore <setting> <value>`
pub(crate) fn extstore(mut words: Words<'_>) -> Arguments<Extstore> {
    let (Some(name), Some(value)) = (words.next(), words.next()) else { return Err(reply::ERROR) };
    let number = number_u32(value).ok_or(reply::ERROR);
    let setting = match name {
        b"item_size" => Extstore::ItemSize(number?),
        b"item_age" => Extstore::ItemAge(number?),
        b"low_ttl" => Extstore::LowTtl(number?),
        b"recache_rate" => Extstore::RecacheRate(number?),
        b"compact_under" => Extstore::CompactUnder(number?),
        b"drop_under" => Extstore::DropUnder(number?),
        b"max_sleep" => Extstore::MaxSleep(number?),
        b"max_frag" => Extstore::MaxFrag(number_f64(value).ok_or(reply::ERROR)?),
        b"drop_unread" => Extstore::DropUnread(number? != 0),
        b"free_memchunks" => Extstore::FreeMemchunks(number?),
        _ => return Err(reply::ERROR),
    };
    Ok(setting)
}

/// `watch ...`. The names may be abbreviated: `watch p` means `proxyreqs`. A server that is no proxy has nothing to say
/// of one, and refuses to.
pub(crate) fn watch(words: Words<'_>) -> Arguments<WatchKinds> {
    let mut kinds = WatchKinds::default();
    for word in words {
        let named = WatchKinds::NAMES.iter().find(|(name, _)| abbreviates(word, name)).ok_or(reply::ERROR)?;
        if [WatchKinds::PROXYREQS, WatchKinds::PROXYEVENTS, WatchKinds::PROXYUSER].contains(&named.1) {
            return Err(reply::WATCH_NO_PROXY);
        }
        kinds = kinds.union(named.1);
    }
    Ok(if kinds.is_empty() { WatchKinds::FETCHERS } else { kinds })
}

/// `debugtime ...`
pub(crate) fn debugtime(mut words: Words<'_>) -> Arguments<DebugTime> {
    let time = match words.next() {
        Some(b"p") => DebugTime::Pause,
        Some(b"r") => DebugTime::Resume,
        Some(seconds) => DebugTime::Move(number_i32(seconds).ok_or(reply::ERROR)?),
        None => return Err(reply::ERROR),
    };
    Ok(time)
}
