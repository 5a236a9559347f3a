//! What a trace is like: one pass, a page of facts, tables and pictures.

mod keys;
mod picture;
mod skew;
#[cfg(test)]
mod tests;

use hdrhistogram::Histogram;

use crate::progress::Progress;
use crate::report::Report;
use crate::{CHUNK_REQUESTS, Fields, Op, Request, Source, SourceError};

pub(super) use keys::BySpread;
pub use keys::KEYS_EXACT_MAX;
use keys::KeyTable;
pub use skew::Zipf;

/// The distribution of a number over the requests, to three digits.
struct Distribution {
    histogram: Histogram<u64>,
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

    fn mean(&self) -> f64 {
        self.sum as f64 / self.histogram.len().max(1) as f64
    }
}

/// Walks through a trace and counts.
pub struct Inspector {
    fields: Fields,
    requests: u64,
    by_op: [u64; Op::ALL.len()],
    bytes: u64,
    last_s: u32,
    keys: KeyTable,
    key_bytes: Distribution,
    value_bytes: Distribution,
    item_bytes: Distribution,
    ttl_s: Distribution,
    penalty_us: Distribution,
}

/// What an inspection found about the keys.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyFindings {
    /// Keys; an estimate if `exact` is false.
    pub keys: u64,
    /// Whether every key was counted. Above [`KEYS_EXACT_MAX`] keys a share of them, chosen by hash, stands
    /// for all.
    pub exact: bool,
    /// Keys that were asked for once.
    pub one_hit_keys: u64,
    /// Octets of all keys' items, each as large as when it was last seen with a size.
    pub footprint_bytes: u64,
    /// The share of the requests that goes to the most asked 0.1, 1 and 10 % of the keys.
    pub top_shares: [f64; 3],
    /// The skew, if there are keys enough to tell.
    pub zipf: Option<Zipf>,
}

impl Inspector {
    /// Ready for requests of which these fields are known.
    ///
    /// # Errors
    /// None in practice: the bounds of the histograms are fixed.
    pub fn new(fields: Fields) -> Result<Inspector, SourceError> {
        Self::with_keys_max(fields, KEYS_EXACT_MAX)
    }

    fn with_keys_max(fields: Fields, keys_max: usize) -> Result<Inspector, SourceError> {
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

    /// What was found about the keys.
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

    /// The report. `source`: where the requests came from, for its name and its notices.
    pub fn report(&self, source: &dyn Source) -> Report {
        picture::report(self, source)
    }
}

/// Reads a source to its end and says what it is like. Takes about 25 to 50 octets of memory per key, at
/// most about 110 MB, and half as much again for a moment while the table grows.
///
/// # Errors
/// Those of the source.
pub fn inspect(source: &mut dyn Source, progress: &mut Progress) -> Result<Report, SourceError> {
    let mut inspector = Inspector::new(source.fields())?;
    let mut chunk = Vec::with_capacity(CHUNK_REQUESTS);
    loop {
        chunk.clear();
        if source.fill(&mut chunk, CHUNK_REQUESTS)? == 0 {
            return Ok(inspector.report(source));
        }
        chunk.iter().for_each(|request| inspector.add(request));
        progress.set(source.done_ratio().unwrap_or(0.0), &format!("{} requests", inspector.requests));
    }
}
