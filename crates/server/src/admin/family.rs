//! The numbers that the admin endpoint shows: families of samples, as OpenMetrics has them.

use crate::latency::Histogram;

/// Where the numbers come from. The admin thread calls it once for each HTTP request.
pub trait Source: Send + Sync {
    /// Where clients reach the server, each as it is written in its log.
    fn serves(&self) -> Vec<String> {
        Vec::new()
    }
    /// All families of numbers, in the order in which they are shown. Their names are unique.
    fn families(&self) -> Vec<Family>;
    /// The zones of the flash, in their order. Empty where there is no flash.
    fn zones(&self) -> Vec<ZoneCell> {
        Vec::new()
    }
    /// The groups of items that there are, in their order.
    fn groups(&self) -> Vec<GroupRow> {
        Vec::new()
    }
    /// The keys that are asked for most, and the largest items that were seen. `None` where keys are not shown.
    fn keys(&self) -> Option<KeyRows> {
        None
    }
    /// What other sizes of memory would miss.
    fn curve(&self) -> CurveShown {
        CurveShown::default()
    }
    /// The main numbers now, for the history.
    fn moment(&self) -> Moment {
        Moment::default()
    }
    /// Whether clients may be sent to the server: it has everything that it kept, and does not stop.
    ///
    /// # Errors
    /// One line that says why they may not.
    fn healthy(&self) -> Result<(), String>;
    /// Whether the process works, ready or not. One that does not is to be started again.
    ///
    /// # Errors
    /// One line that says what is stuck.
    fn alive(&self) -> Result<(), String> {
        Ok(())
    }
}

/// What other sizes of memory would miss, for the picture on the page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CurveShown {
    /// Whether so few reads were sampled that the curve is one of chance.
    pub is_young: bool,
    /// The memory limit in bytes.
    pub limit_bytes: u64,
    /// Bytes of items that memory can hold under this limit.
    pub capacity_bytes: u64,
    /// Beyond this many bytes of items nothing is known.
    pub span_bytes: u64,
    /// Whether costs of misses are known for any item.
    pub knows_penalties: bool,
    /// Bytes of items, miss ratio, and microseconds that misses cost for each read.
    pub points: Vec<(u64, f64, f64)>,
    /// The names of the namespaces that have curves, and these curves: limit and capacity are what their items take.
    pub namespaces: Vec<(String, CurveShown)>,
}

/// The main numbers at one moment.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// Times of all requests since the start.
    pub requests: Histogram,
    /// Keys looked up and found, since the start.
    pub hits: u64,
    /// Keys looked up and not found, since the start.
    pub misses: u64,
    /// Items evicted since the start.
    pub evictions: u64,
    /// Items in memory.
    pub items: u64,
    /// Bytes of items, index and connections.
    pub memory_bytes: u64,
    /// Client connections.
    pub connections: u64,
    /// Bytes received from clients since the start or `stats reset`.
    pub received_bytes: u64,
    /// Bytes sent to clients since the start or `stats reset`.
    pub sent_bytes: u64,
    /// Records on flash.
    pub flash_items: u64,
}

/// One zone of the flash, for the picture on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneCell {
    /// What the zone is used for, in one word.
    pub used: &'static str,
    /// Bytes of records written to the zone.
    pub written_bytes: u64,
    /// Estimated bytes of records in the zone that may still be asked for.
    pub live_bytes: u64,
    /// How often the zone was erased.
    pub resets: u64,
}

/// One group of items: items of one size class whose misses cost about the same.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupRow {
    /// The upper end of the size class in bytes, for example `256` or `4k`; `large` where there is none.
    pub size: &'static str,
    /// The upper end of what a miss costs, for example `100ms`.
    pub penalty: &'static str,
    /// Items, as estimated.
    pub items: u64,
    /// Bytes of the items, as estimated.
    pub bytes: u64,
    /// The same in columns.
    pub columns: f64,
    /// What would be lost without one of the columns, in the unit of values.
    pub outgoing: f64,
    /// What one more column would save, in the unit of values.
    pub incoming: f64,
    /// Columns that the group received from others since the start.
    pub columns_received: f64,
    /// Columns that the group gave to others since the start.
    pub columns_given: f64,
    /// What was decided last about its room, in one word.
    pub last_move: Option<&'static str>,
    /// Why it was decided, as a sentence.
    pub why: Option<String>,
}

/// The keys that are asked for most, and the largest items that were seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyRows {
    /// The hottest keys, the hottest first.
    pub hot: Vec<HotRow>,
    /// The keys of the largest items and the lengths of their values in bytes, the largest first.
    pub large: Vec<(String, u64)>,
}

/// A key that is asked for often.
#[derive(Clone, Debug, PartialEq)]
pub struct HotRow {
    /// The key; what is neither a letter nor a digit nor one of `-._~` stands as in addresses.
    pub key: String,
    /// Its share of all requests, from 0 to 1.
    pub share: f64,
    /// By how much the share may be too high or too low.
    pub error: f64,
    /// Requests in a second.
    pub per_second: f64,
}

/// All numbers of one name.
#[derive(Clone, Debug)]
pub struct Family {
    /// The name, without the program's prefix, the unit and `_total`, which the endings of OpenMetrics add:
    /// `evictions` is exported as `larder_evictions_total`.
    pub name: &'static str,
    /// One sentence that is complete in itself: what is counted, in which unit, since when.
    pub help: &'static str,
    /// The unit: `bytes`, `seconds`, or empty for a plain count.
    pub unit: &'static str,
    /// How the numbers behave.
    pub kind: Kind,
    /// One number for each set of labels.
    pub samples: Vec<Sample>,
}

/// How the numbers of a family behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The number only grows: [`Value::Count`] or [`Value::Amount`].
    Counter,
    /// The number goes up and down: [`Value::Count`] or [`Value::Amount`].
    Gauge,
    /// A histogram of durations: [`Value::Times`]. The unit is `seconds`.
    Histogram,
}

/// One number and the labels that tell it from its siblings.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Names and values. Names are lower case with underscores.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: Value,
}

/// A number.
#[derive(Clone, Debug)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// A number with a fraction.
    Amount(f64),
    /// A histogram of durations.
    Times(Histogram),
}

impl Family {
    /// A family of one number without labels.
    pub fn single(
        name: &'static str,
        help: &'static str,
        kind: Kind,
        unit: &'static str,
        value: Value,
    ) -> Family {
        Family { name, help, unit, kind, samples: vec![Sample { labels: Vec::new(), value }] }
    }

    /// A family whose numbers differ in one label.
    pub fn labelled(
        name: &'static str,
        help: &'static str,
        kind: Kind,
        unit: &'static str,
        label: &'static str,
        values: impl IntoIterator<Item = (impl Into<String>, Value)>,
    ) -> Family {
        let sample = |(text, value): (_, Value)| Sample { labels: vec![(label, text)], value };
        let values = values.into_iter().map(|(text, value)| (text.into(), value));
        Family { name, help, unit, kind, samples: values.map(sample).collect() }
    }
}

/// Names of the families that the page shows at its head, and of those that its other parts read. The page shows every
/// family that it does not read in a table below.
pub mod names {
    /// Counter of the keys looked up, with the label `result` = `hit` or `miss`.
    pub const LOOKUPS: &str = "lookups";
    /// Histogram of the times that requests spend in the server, with the label `command` =
    /// [`crate::latency::Class::name`].
    pub const REQUESTS: &str = "request_duration";
    /// Gauge of the memory in use, in bytes, with the label `purpose`.
    pub const MEMORY: &str = "memory";
    /// Gauge of the memory that may be used, in bytes (`-m`).
    pub const MEMORY_LIMIT: &str = "memory_limit";
    /// Gauge of the items in memory.
    pub const ITEMS: &str = "items";
    /// Gauge of the client connections.
    pub const CONNECTIONS: &str = "connections";
    /// Counter of the live items that were evicted.
    pub const EVICTIONS: &str = "evictions";
    /// Gauge of the time since the start, in seconds.
    pub const UPTIME: &str = "uptime";
    /// Gauge that is always 1, with the labels `mode`, `mode_now`, `objective` and `value_unit`: what the worth of an
    /// item is made of.
    pub const WORTH_OPTIONS: &str = "worth_options";
    /// Gauge of the items of each group. The names of all families of groups begin with `group_`.
    pub const GROUP_ITEMS: &str = "group_items";
}
