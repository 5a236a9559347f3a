//! One pass over the requests of a trace that collects its statistics.

use hdrhistogram::Histogram;

use super::keys::{KEYS_EXACT_MAX, KeyTable};
use super::skew::{self, Zipf};
use crate::{Fields, Op, Request, SourceError};

/// The distribution of a number over the requests, to three significant digits.
pub(super) struct Distribution {
    pub(super) histogram: Histogram<u64>,
    sum: u64,
}

impl Distribution {
    fn new() -> Result<Distribution, SourceError> {
        let histogram = Histogram::new_with_bounds(1, 1 << 34, 3)
            .map_err(|error| SourceError::new(format!("histogram: {error}")))?;
        Ok(Distribution { histogram, sum: 0 })
    }

    #[inline]
    fn add(&mut self, value: u64) {
        self.histogram.saturating_record(value);
        self.sum += value;
    }

    pub(super) fn mean(&self) -> f64 {
        self.sum as f64 / self.histogram.len().max(1) as f64
    }
}

/// Collects the statistics of a trace.
pub struct Inspector {
    pub(super) fields: Fields,
    pub(super) requests: u64,
    pub(super) by_op: [u64; Op::ALL.len()],
    pub(super) bytes: u64,
    pub(super) last_s: u32,
    pub(super) keys: KeyTable,
    pub(super) key_bytes: Distribution,
    pub(super) value_bytes: Distribution,
    pub(super) item_bytes: Distribution,
    pub(super) ttl_s: Distribution,
    pub(super) penalty_us: Distribution,
}

/// The findings about the keys.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyFindings {
    /// The number of keys; an estimate if `exact` is false.
    pub keys: u64,
    /// Whether every key was counted. Above [`KEYS_EXACT_MAX`] keys, a share of the keys, selected by hash, stands
    /// for all.
    pub exact: bool,
    /// Keys with exactly one request.
    pub one_hit_keys: u64,
    /// Bytes of the items of all keys, each with its last known size.
    pub footprint_bytes: u64,
    /// The share of the requests that go to the most popular 0.1 %, 1 % and 10 % of the keys.
    pub top_shares: [f64; 3],
    /// The skew, if there are enough keys.
    pub zipf: Option<Zipf>,
}

impl Inspector {
    /// An inspector for requests of which these fields are known.
    ///
    /// # Errors
    /// None in practice: the bounds of the histograms are fixed.
    pub fn new(fields: Fields) -> Result<Inspector, SourceError> {
        Self::with_keys_max(fields, KEYS_EXACT_MAX)
    }

    pub(super) fn with_keys_max(fields: Fields, keys_max: usize) -> Result<Inspector, SourceError> {
        Ok(Inspector {
            fields,
            requests: 0,
            by_op: [0; Op::ALL.len()],
            bytes: 0,
            last_s: 0,
            keys: KeyTable::new(keys_max),
            key_bytes: Distribution::new()?,
            value_bytes: Distribution::new()?,
            item_bytes: Distribution::new()?,
            ttl_s: Distribution::new()?,
            penalty_us: Distribution::new()?,
        })
    }

    /// Counts a request.
    #[inline]
    pub fn add(&mut self, request: &Request) {
        let at = if self.fields.times { u64::from(request.time_s) } else { self.requests };
        self.requests += 1;
        self.by_op[request.op as usize] += 1;
        self.last_s = request.time_s;
        self.keys.add(request.key, request.item_bytes(), at);
        if self.fields.sizes {
            self.bytes += request.item_bytes();
            self.key_bytes.add(u64::from(request.key_bytes));
            self.value_bytes.add(u64::from(request.value_bytes));
            self.item_bytes.add(request.item_bytes());
        }
        if self.fields.ttls && request.ttl_s > 0 {
            self.ttl_s.add(u64::from(request.ttl_s));
        }
        if self.fields.penalties && request.penalty_us > 0 {
            self.penalty_us.add(u64::from(request.penalty_us));
        }
    }

    /// The findings about the keys.
    pub fn keys(&self) -> KeyFindings {
        let counts = self.keys.counts_falling();
        let scale = self.keys.scale();
        let scaled = |count: u64| (count as f64 * scale) as u64;
        KeyFindings {
            keys: scaled(counts.len() as u64),
            exact: self.keys.is_exact(),
            one_hit_keys: scaled(counts.iter().rev().take_while(|&&count| count == 1).count() as u64),
            footprint_bytes: scaled(self.keys.footprint_bytes()),
            top_shares: [0.001, 0.01, 0.1].map(|share| skew::top_share(&counts, share)),
            zipf: Zipf::fit(&counts),
        }
    }
}
