//! The laws and parameters with their defaults, and how they are parsed and written.

use super::penalties::Penalties;
use super::sizes::{KEY_BYTES_MAX, Sizes};
use super::ttls::Ttls;
use super::words::{amount, count, meant, number, seconds};
use crate::SourceError;
use crate::report::grouped;

/// The law by which requests choose their keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Law {
    Zipfian,
    Hotspot,
    Latest,
    Uniform,
    Mix,
    Burst,
    Drift,
}

/// Every law with its name and description.
pub(super) const LAWS: &[(Law, &str, &str)] = &[
    (
        Law::Zipfian,
        "zipfian",
        "The key of rank r is requested in proportion to 1 / r^theta; ranks are spread over the keys (YCSB)",
    ),
    (
        Law::Hotspot,
        "hotspot",
        "A share of the keys gets a share of the requests; keys on either side are equally popular (YCSB)",
    ),
    (
        Law::Latest,
        "latest",
        "Zipfian by recency: the key inserted last is the most popular (YCSB, workload D)",
    ),
    (Law::Uniform, "uniform", "All keys are equally popular"),
    (Law::Mix, "mix", "Zipfian mixed with keys that are written once and never read (Catalyst, section 4.3)"),
    (
        Law::Burst,
        "burst",
        "A base law, interrupted once by a burst of sets of cold keys (PAMA, section IV.C)",
    ),
    (
        Law::Drift,
        "drift",
        "Zipfian over a day: the rate rises and falls, and the hot keys change (after Atikoglu et al.)",
    ),
];

/// A parameter: its name, the laws that have it (empty = all), and its meaning.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) laws: &'static [Law],
    pub(super) what: &'static str,
}

const ZIPF: &[Law] = &[Law::Zipfian, Law::Latest, Law::Mix, Law::Burst, Law::Drift];
const HOT: &[Law] = &[Law::Hotspot, Law::Burst];

const fn parameter(name: &'static str, laws: &'static [Law], what: &'static str) -> Parameter {
    Parameter { name, laws, what }
}

/// Every parameter, in the order of a description.
pub(super) const PARAMETERS: &[Parameter] = &[
    parameter("keys", &[], "number of keys at the start"),
    parameter("requests", &[], "number of requests, without those of a burst"),
    parameter("theta", ZIPF, "skew, above 0 to 5; 1 is the classic law"),
    parameter("hot-keys", HOT, "share of the keys that are hot"),
    parameter("hot-requests", HOT, "share of the requests that go to hot keys"),
    parameter("inserts", &[Law::Latest], "share of the requests that set a new key"),
    parameter("one-time", &[Law::Mix], "share of the requests that set a key that is never requested again"),
    parameter("base", &[Law::Burst], "the law around the burst: zipfian, hotspot or uniform"),
    parameter("at", &[Law::Burst], "number of requests before the burst"),
    parameter(
        "burst-bytes",
        &[Law::Burst],
        "total bytes of keys and values in the burst; about 10 % of a cache",
    ),
    parameter(
        "burst-sizes",
        &[Law::Burst],
        "bytes of an item of the burst, FROM:TO, where TO is at least twice FROM",
    ),
    parameter("day", &[Law::Drift], "length of a day: 90s, 30m, 12h, 1d"),
    parameter("swing", &[Law::Drift], "highest rate of a day divided by the lowest"),
    parameter(
        "audiences",
        &[Law::Drift],
        "number of groups of keys that are hot one after another; 1 = no change",
    ),
    parameter("reads", &[], "share of gets among the requests whose command is free; the rest are sets"),
    parameter("deletes", &[], "share of deletes among the same requests"),
    parameter("rate", &[], "requests per second of trace time"),
    parameter("sizes", &[], "sizes of keys and values"),
    parameter("key-bytes", &[], "one key size in bytes that replaces the law's, or 'law'"),
    parameter("ttls", &[], "times to live of the keys"),
    parameter("penalties", &[], "cost of a miss"),
    parameter("seed", &[], "seed of the random numbers: another seed gives another stream"),
];

/// The values of all parameters; those of other laws have their defaults.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    pub(super) law: Law,
    pub(super) keys: u64,
    pub(super) requests: u64,
    pub(super) theta: f64,
    pub(super) hot: Hot,
    pub(super) inserts: f64,
    pub(super) one_time: f64,
    pub(super) burst: Burst,
    pub(super) drift: Drift,
    pub(super) reads: f64,
    pub(super) deletes: f64,
    pub(super) rate: f64,
    pub(super) items: Items,
    pub(super) seed: u64,
}

/// The keys that are hot, and their requests, as shares.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hot {
    pub(super) keys: f64,
    pub(super) requests: f64,
}

/// A burst of cold items, and the law around it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Burst {
    pub(super) base: Law,
    /// The number of requests before it.
    pub(super) at: u64,
    pub(super) bytes: u64,
    pub(super) sizes: (u32, u32),
}

/// What changes in the course of a day.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Drift {
    pub(super) day_s: u64,
    pub(super) swing: f64,
    pub(super) audiences: u64,
}

/// What the items are like.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Items {
    pub(super) sizes: Sizes,
    pub(super) key_bytes: Option<u16>,
    pub(super) ttls: Ttls,
    pub(super) penalties: Penalties,
}

impl Settings {
    /// The defaults of a law.
    pub(super) fn new(law: Law) -> Settings {
        Settings {
            law,
            keys: 1_000_000,
            requests: 10_000_000,
            theta: 0.99,
            hot: Hot { keys: 0.2, requests: 0.8 },
            inserts: 0.05,
            one_time: 0.5,
            burst: Burst { base: Law::Zipfian, at: 350_000, bytes: 64_000_000, sizes: (257, 2_048) },
            drift: Drift { day_s: 86_400, swing: 2.0, audiences: 4 },
            reads: 1.0,
            deletes: 0.0,
            rate: 10_000.0,
            items: Items {
                sizes: Sizes::Fixed(1_000),
                key_bytes: None,
                ttls: Ttls::None,
                penalties: Penalties::None,
            },
            seed: 1,
        }
    }

    /// Parses `law:name=value,name=value`.
    pub(super) fn parse(text: &str) -> Result<Settings, SourceError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let law = law_by_name(name).ok_or_else(|| unknown_law(name))?;
        let mut settings = Settings::new(law);
        let mut given: Vec<&str> = Vec::new();
        for word in rest.split(',').filter(|_| !rest.is_empty()) {
            let Some((name, value)) = word.split_once('=') else {
                return Err(SourceError::new(format!("workload '{text}': '{word}' is not PARAMETER=VALUE")));
            };
            if !has(law, name) {
                return Err(unknown_parameter(law, name));
            }
            if given.contains(&name) {
                return Err(SourceError::new(format!("workload '{text}': {name} is given twice")));
            }
            given.push(name);
            settings.set(name, value).map_err(|expected| {
                SourceError::new(format!("workload {}: {name} is {expected}, not '{value}'", law.name()))
            })?;
        }
        settings.check().map_err(|why| SourceError::new(format!("workload {}: {why}", law.name())))?;
        Ok(settings)
    }

    /// Sets one parameter. The error describes valid values.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "keys" => self.keys = whole(value, 1, 1 << 40)?,
            "requests" => self.requests = whole(value, 0, 1 << 48)?,
            "theta" => {
                self.theta = number(value)
                    .filter(|theta| *theta > 0.0 && *theta <= 5.0)
                    .ok_or("a number above 0 to 5 (for 0 take the law uniform)")?;
            }
            "hot-keys" => self.hot.keys = share(value)?,
            "hot-requests" => self.hot.requests = share(value)?,
            "inserts" => self.inserts = share(value)?,
            "one-time" => self.one_time = share(value)?,
            "base" => {
                self.burst.base = law_by_name(value)
                    .filter(|law| matches!(law, Law::Zipfian | Law::Hotspot | Law::Uniform))
                    .ok_or_else(|| one_of(value, &["zipfian", "hotspot", "uniform"]))?;
            }
            "at" => self.burst.at = whole(value, 0, 1 << 48)?,
            "burst-bytes" => self.burst.bytes = whole(value, 1, 1 << 44)?,
            "burst-sizes" => self.burst.sizes = range(value).ok_or("FROM:TO in bytes, both from 1 to 1g")?,
            "day" => {
                self.drift.day_s =
                    seconds(value).filter(|s| *s > 0).ok_or("a duration such as 90s, 30m, 12h, 1d")?;
            }
            "swing" => {
                self.drift.swing = number(value)
                    .filter(|swing| (1.0..=1000.0).contains(swing))
                    .ok_or("a ratio from 1 to 1000")?;
            }
            "audiences" => self.drift.audiences = whole(value, 1, 1024)?,
            "reads" => self.reads = share(value)?,
            "deletes" => self.deletes = share(value)?,
            "rate" => {
                self.rate = amount(value)
                    .filter(|rate| (1e-6..=1e12).contains(rate))
                    .ok_or("requests per second from 0.000001 to 1000g")?;
            }
            "sizes" => self.items.sizes = Sizes::parse(value).ok_or_else(|| one_of(value, Sizes::VALUES))?,
            "key-bytes" if value == "law" => self.items.key_bytes = None,
            "key-bytes" => self.items.key_bytes = Some(whole(value, 1, u64::from(KEY_BYTES_MAX))? as u16),
            "ttls" => self.items.ttls = Ttls::parse(value).ok_or_else(|| one_of(value, Ttls::VALUES))?,
            "penalties" => {
                self.items.penalties =
                    Penalties::parse(value).ok_or_else(|| one_of(value, Penalties::VALUES))?;
            }
            _ => self.seed = value.parse().map_err(|_| "a whole number below 2^64".to_owned())?,
        }
        Ok(())
    }

    /// Checks conditions that involve several parameters.
    fn check(&self) -> Result<(), String> {
        if self.reads + self.deletes > 1.0 {
            return Err(format!("reads={} and deletes={} are more than 1", self.reads, self.deletes));
        }
        let hours = self.requests as f64 / self.rate / 3600.0;
        let swing = if self.law == Law::Drift { self.drift.swing } else { 1.0 };
        if self.requests as f64 / self.rate >= f64::from(u32::MAX) / swing {
            return Err(format!(
                "requests={} at rate={} last {hours:.0} hours, longer than a trace's 32 bits of \
                seconds",
                self.requests, self.rate
            ));
        }
        if self.law == Law::Burst {
            let (from, to) = self.burst.sizes;
            if u64::from(to) < 2 * u64::from(from) {
                return Err(format!(
                    "burst-sizes={from}:{to} is too narrow for a given sum; TO is at least 2 x FROM"
                ));
            }
            if self.burst.bytes < u64::from(from) {
                return Err(format!("burst-bytes={} is less than one item of {from}", self.burst.bytes));
            }
            if self.burst.bytes / u64::from(from) > 100_000_000 {
                return Err(format!("burst-bytes={} in items of {from} are too many keys", self.burst.bytes));
            }
            if self.burst.at > self.requests {
                return Err(format!(
                    "at={} lies behind the last of requests={}",
                    self.burst.at, self.requests
                ));
            }
        }
        if self.law == Law::Drift && self.drift.audiences > self.keys {
            return Err(format!("audiences={} are more than keys={}", self.drift.audiences, self.keys));
        }
        Ok(())
    }

    /// The value of a parameter, in the form that [`Settings::parse`] reads.
    pub(super) fn show(&self, name: &str) -> String {
        match name {
            "keys" => self.keys.to_string(),
            "requests" => self.requests.to_string(),
            "theta" => self.theta.to_string(),
            "hot-keys" => self.hot.keys.to_string(),
            "hot-requests" => self.hot.requests.to_string(),
            "inserts" => self.inserts.to_string(),
            "one-time" => self.one_time.to_string(),
            "base" => self.burst.base.name().to_owned(),
            "at" => self.burst.at.to_string(),
            "burst-bytes" => self.burst.bytes.to_string(),
            "burst-sizes" => format!("{}:{}", self.burst.sizes.0, self.burst.sizes.1),
            "day" => format!("{}s", self.drift.day_s),
            "swing" => self.drift.swing.to_string(),
            "audiences" => self.drift.audiences.to_string(),
            "reads" => self.reads.to_string(),
            "deletes" => self.deletes.to_string(),
            "rate" => self.rate.to_string(),
            "sizes" => self.items.sizes.to_string(),
            "key-bytes" => self.items.key_bytes.map_or("law".to_owned(), |n| n.to_string()),
            "ttls" => self.items.ttls.to_string(),
            "penalties" => self.items.penalties.to_string(),
            _ => self.seed.to_string(),
        }
    }

    /// The law with its number of keys and the parameters that differ from their defaults, but for the number of
    /// requests.
    pub(super) fn brief(&self) -> String {
        let defaults = Settings::new(self.law);
        let chosen = parameters_of(self.law)
            .map(|parameter| parameter.name)
            .filter(|name| !matches!(*name, "keys" | "requests") && self.show(name) != defaults.show(name));
        let chosen: Vec<String> = chosen.map(|name| format!("{name}={}", self.show(name))).collect();
        let chosen = if chosen.is_empty() { String::new() } else { format!(" ({})", chosen.join(", ")) };
        format!("a {} workload of {} keys{chosen}", self.law.name(), grouped(self.keys))
    }

    /// The law with all of its parameters.
    pub(super) fn describe(&self) -> String {
        let words: Vec<String> = parameters_of(self.law)
            .map(|parameter| format!("{}={}", parameter.name, self.show(parameter.name)))
            .collect();
        format!("{}:{}", self.law.name(), words.join(","))
    }
}

impl Law {
    /// The name of the law.
    pub(super) fn name(self) -> &'static str {
        LAWS.iter().find(|(law, ..)| *law == self).map_or("", |(_, name, _)| name)
    }
}

fn law_by_name(name: &str) -> Option<Law> {
    LAWS.iter().find(|(_, other, _)| *other == name).map(|(law, ..)| *law)
}

/// The parameters of a law.
pub(super) fn parameters_of(law: Law) -> impl Iterator<Item = &'static Parameter> {
    PARAMETERS.iter().filter(move |parameter| parameter.laws.is_empty() || parameter.laws.contains(&law))
}

fn has(law: Law, name: &str) -> bool {
    parameters_of(law).any(|parameter| parameter.name == name)
}

fn unknown_law(name: &str) -> SourceError {
    let names = || LAWS.iter().map(|(_, name, _)| *name);
    let all = names().collect::<Vec<_>>().join(", ");
    SourceError::new(format!("there is no workload '{name}'; {}workloads are {all}", meant(name, names())))
}

fn unknown_parameter(law: Law, name: &str) -> SourceError {
    let names = || parameters_of(law).map(|parameter| parameter.name);
    let all = names().collect::<Vec<_>>().join(", ");
    let law = law.name();
    let meant = meant(name, names());
    SourceError::new(format!("workload {law} has no parameter '{name}'; {meant}its parameters are {all}"))
}

fn one_of(value: &str, all: &[&str]) -> String {
    let word = |text: &'_ str| text.split([':', '[']).next().unwrap_or("").to_owned();
    let words: Vec<String> = all.iter().map(|text| word(text)).collect();
    let given = word(value);
    let meant = match words.contains(&given) {
        true => String::new(),
        false => meant(&given, words.iter().map(String::as_str)),
    };
    let meant = if meant.is_empty() { meant } else { format!(" ({})", meant.trim_end()) };
    format!("one of {}{meant}", all.join(", "))
}

fn whole(value: &str, from: u64, to: u64) -> Result<u64, String> {
    let fits = |n: &u64| (from..=to).contains(n);
    count(value).filter(fits).ok_or_else(|| format!("a count from {from} to {to}, such as 250, 10k, 5m"))
}

fn share(value: &str) -> Result<f64, String> {
    number(value).filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| "a share from 0 to 1".to_owned())
}

fn range(value: &str) -> Option<(u32, u32)> {
    let octets = |text| count(text).filter(|n| (1..=1_000_000_000).contains(n)).map(|n| n as u32);
    let (from, to) = value.split_once(':')?;
    Some((octets(from)?, octets(to)?))
}
