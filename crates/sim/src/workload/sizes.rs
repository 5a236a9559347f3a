//! How large keys and values are, as a function of 64 random bits of the key.
//!
//! After Atikoglu, Xu, Frachtenberg, Jiang and Paleczny, "Workload Analysis of a Large-Scale Key-Value Store",
//! SIGMETRICS 2012, which describes five pools of memcached at Facebook. What is published and what is not:
//!
//! * `etc`: key sizes follow the published generalized extreme value law (mu 30.7984, sigma 8.20449, k 0.078688); value
//!   sizes follow the published table of probabilities for 0 to 14 bytes (44 % of the keys) and the published
//!   generalized Pareto law (theta 0, sigma 214.476, k 0.348238) above, counted from 15 bytes on, where the table ends
//!   (as the load generator mutilate reads them, whose figures these are). Our reading: the key sizes are rounded and
//!   kept within 1 to 250, the values within 1 MB.
//! * `usr`: keys of 16 and 21 bytes and values of 2 ("two key size values (16B and 21B) and almost only one value size
//!   (2B)", Ou et al., PAMA, section IV). Our approximations: half of the keys each; no other value size.
//! * `app`: "the majority of the items are around 300 bytes, following a generalized extreme value distribution"
//!   (Wang and Chen, Catalyst, section 4.2). Our approximations: value sizes with mu 270, sigma 40, k 0.1; the key
//!   sizes of `etc`.
//! * `sys`: "the same distribution but comprises more larger items; most are around 600 bytes" (ibid.). Our
//!   approximations: value sizes with mu 560, sigma 80, k 0.1; the key sizes of `etc`.
//! * `var`: no law is published that we know. Our approximations throughout: keys of 31 bytes, values log-normal with
//!   a median of 100 bytes and sigma 0.8.

use std::fmt;

use super::alias::Alias;
use super::quantile::{QuantileTable, extreme, lognormal, pareto};
use super::rng::{below, mix64};

/// The largest value, in bytes, that a law with a long tail yields: memcached's usual limit less room for the header.
const VALUE_BYTES_MAX: f64 = 1_000_000.0;
/// The largest key of the protocol.
pub(super) const KEY_BYTES_MAX: u16 = 250;
/// Key size where no law gives one.
const KEY_BYTES_DEFAULT: u16 = 24;
/// Probabilities of ETC's value sizes 0 to 14.
pub(super) const ETC_SMALL: [f64; 15] = [
    0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606, 0.00023, 0.00837, 0.00837,
    0.08989, 0.00092, 0.00326, 0.01980,
];

/// The parameter `sizes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sizes {
    None,
    Fixed(u32),
    Uniform(u32, u32),
    App,
    Etc,
    Sys,
    Usr,
    Var,
}

impl Sizes {
    pub(super) const VALUES: &[&str] =
        &["none", "fixed:N", "uniform:FROM:TO", "app", "etc", "sys", "usr", "var"];

    /// Reads the parameter's value; `None` = not one of the values that exist.
    pub(super) fn parse(text: &str) -> Option<Sizes> {
        let octets = |text: &str| {
            super::words::count(text).filter(|n| *n <= 1 << 30).and_then(|n| u32::try_from(n).ok())
        };
        let mut words = text.split(':');
        let sizes = match (words.next()?, words.next(), words.next()) {
            ("none", None, None) => Sizes::None,
            ("fixed", Some(n), None) => Sizes::Fixed(octets(n)?),
            ("uniform", Some(from), Some(to)) => {
                let (from, to) = (octets(from)?, octets(to)?);
                (from <= to).then_some(Sizes::Uniform(from, to))?
            }
            ("app", None, None) => Sizes::App,
            ("etc", None, None) => Sizes::Etc,
            ("sys", None, None) => Sizes::Sys,
            ("usr", None, None) => Sizes::Usr,
            ("var", None, None) => Sizes::Var,
            _ => return None,
        };
        words.next().is_none().then_some(sizes)
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::None => f.write_str("none"),
            Sizes::Fixed(n) => write!(f, "fixed:{n}"),
            Sizes::Uniform(from, to) => write!(f, "uniform:{from}:{to}"),
            Sizes::App => f.write_str("app"),
            Sizes::Etc => f.write_str("etc"),
            Sizes::Sys => f.write_str("sys"),
            Sizes::Usr => f.write_str("usr"),
            Sizes::Var => f.write_str("var"),
        }
    }
}

enum Keys {
    Fixed(u16),
    OneOf(u16, u16),
    Table(QuantileTable),
}

enum Values {
    Fixed(u32),
    Uniform { from: u32, width: u64 },
    Table(QuantileTable),
    SmallOrTable(Alias, QuantileTable),
}

/// Draws sizes.
pub(super) struct SizeLaw {
    keys: Keys,
    values: Values,
}

impl SizeLaw {
    /// `key_bytes`: a fixed size in place of the law's.
    pub(super) fn new(sizes: Sizes, key_bytes: Option<u16>) -> SizeLaw {
        let table = |quantile: &dyn Fn(_, f64) -> f64| QuantileTable::new(quantile, 1.0, VALUE_BYTES_MAX);
        let values = match sizes {
            Sizes::None => Values::Fixed(0),
            Sizes::Fixed(n) => Values::Fixed(n),
            Sizes::Uniform(from, to) => Values::Uniform { from, width: u64::from(to - from) + 1 },
            Sizes::App => Values::Table(table(&extreme(270.0, 40.0, 0.1))),
            Sizes::Sys => Values::Table(table(&extreme(560.0, 80.0, 0.1))),
            Sizes::Usr => Values::Fixed(2),
            Sizes::Var => Values::Table(table(&lognormal(100.0, 0.8))),
            Sizes::Etc => {
                let small: f64 = ETC_SMALL.iter().sum();
                let weights: Vec<f64> = ETC_SMALL.iter().copied().chain([1.0 - small]).collect();
                Values::SmallOrTable(Alias::new(&weights), table(&pareto(15.0, 214.476, 0.348_238)))
            }
        };
        let keys = match (key_bytes, sizes) {
            (_, Sizes::None) => Keys::Fixed(0),
            (Some(n), _) => Keys::Fixed(n),
            (None, Sizes::Usr) => Keys::OneOf(16, 21),
            (None, Sizes::Var) => Keys::Fixed(31),
            (None, Sizes::Etc | Sizes::App | Sizes::Sys) => {
                let rounded = |tail, p| extreme(30.7984, 8.20449, 0.078_688)(tail, p) + 0.5;
                Keys::Table(QuantileTable::new(rounded, 1.0, f64::from(KEY_BYTES_MAX)))
            }
            (None, Sizes::Fixed(_) | Sizes::Uniform(..)) => Keys::Fixed(KEY_BYTES_DEFAULT),
        };
        SizeLaw { keys, values }
    }

    /// Bytes of key and value of the key with these random bits.
    #[inline]
    pub(super) fn pick(&self, bits: u64) -> (u16, u32) {
        let other = mix64(bits ^ 0xa076_1d64_78bd_642f);
        let key_bytes = match &self.keys {
            Keys::Fixed(n) => *n,
            Keys::OneOf(a, b) => [*a, *b][(other >> 63) as usize],
            Keys::Table(table) => table.pick(other) as u16,
        };
        let value_bytes = match &self.values {
            Values::Fixed(n) => *n,
            Values::Uniform { from, width } => from + below(bits, *width) as u32,
            Values::Table(table) => table.pick(bits) as u32,
            // Both are drawn: which one counts cannot be foretold, and a wrong guess costs more than a draw.
            Values::SmallOrTable(small, table) => {
                let (small, large) = (small.pick(mix64(other)) as u32, table.pick(bits) as u32);
                std::hint::select_unpredictable(small < ETC_SMALL.len() as u32, small, large)
            }
        };
        (key_bytes, value_bytes)
    }
}
