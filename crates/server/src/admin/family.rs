//! The numbers that the admin endpoint shows: families of samples, as OpenMetrics has them.

use crate::latency::Histogram;

/// Where the numbers come from. Called from the admin thread, once for each request over HTTP.
pub trait Source: Send + Sync {
    /// Every number there is. Families keep their order; names are unique.
    fn families(&self) -> Vec<Family>;
    /// The zones of the flash, in their order; none where there is no flash.
    fn zones(&self) -> Vec<ZoneCell> {
        Vec::new()
    }
    /// Whether the server does its work; the reason, in one line, if not.
    fn healthy(&self) -> Result<(), String>;
}

/// One zone of the flash, for the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneCell {
    /// What it is used for, in a word.
    pub used: &'static str,
    /// Bytes of records written to it.
    pub written_bytes: u64,
    /// Of them, those that may still be wanted, about.
    pub live_bytes: u64,
    /// How often it was erased.
    pub resets: u64,
}

/// Numbers of one name.
#[derive(Clone, Debug)]
pub struct Family {
    /// The name, without the program's prefix, the unit and `_total`, which the endings of OpenMetrics add:
    /// `evictions` is exported as `larder_evictions_total`.
    pub name: &'static str,
    /// One sentence.
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
    /// Only grows: [`Value::Count`] or [`Value::Amount`].
    Counter,
    /// Goes up and down: [`Value::Count`] or [`Value::Amount`].
    Gauge,
    /// [`Value::Times`]; the unit is `seconds`.
    Histogram,
}

/// One number and the labels that tell it from its siblings.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Names and values; names are lower case with underscores.
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

/// Names of the families that the page shows at its head. A source that exports them under these names is seen there;
/// every other family stands in the table below.
pub mod names {
    /// Counter, label `result` = `hit` or `miss`: keys looked up.
    pub const LOOKUPS: &str = "lookups";
    /// Histogram, label `command` = [`crate::latency::Class::name`]: time of a request within the server.
    pub const REQUESTS: &str = "request_duration";
    /// Gauge in bytes, label `purpose`: where the memory went.
    pub const MEMORY: &str = "memory";
    /// Gauge in bytes: the promise of `-m`.
    pub const MEMORY_LIMIT: &str = "memory_limit";
    /// Gauge: items held.
    pub const ITEMS: &str = "items";
    /// Gauge: clients connected.
    pub const CONNECTIONS: &str = "connections";
    /// Counter: items that had to go.
    pub const EVICTIONS: &str = "evictions";
    /// Gauge in seconds: time since the start.
    pub const UPTIME: &str = "uptime";
}
