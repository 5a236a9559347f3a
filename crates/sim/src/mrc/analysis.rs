//! Computes a curve in one pass over the requests: exact, or by SHARDS (Waldspurger, Park, Garthwaite and Ahmad, FAST
//! 2015).

use std::collections::{BTreeSet, BinaryHeap};

use super::curve::{Curve, Point, Unit};
use crate::mix::hash_of;
use crate::{CHUNK_REQUESTS, Op, Request, Source, SourceError};
use larder_curve::{Histogram, Stack};

/// Distances in objects below 2^20 are counted exactly, larger ones to within a factor of 1 + 2^-19.
const OBJECTS_BITS: u32 = 20;
/// Distances in bytes below 2^14 are counted exactly, larger ones to within a factor of 1 + 2^-13.
const BYTES_BITS: u32 = 14;

/// A sample of fewer keys is reported as unreliable.
const SAMPLE_KEYS_MIN: usize = 100;

/// The share of the keys that an analysis examines.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Method {
    /// Every request.
    Exact,
    /// SHARDS at a fixed rate: the keys whose hash lies in this share of all hashes (0 < rate <= 1).
    Rate(f64),
    /// SHARDS of fixed size: at most this many keys at a time. The rate falls as more keys appear.
    Size(usize),
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Method::Exact => f.write_str("exact"),
            Method::Rate(rate) => write!(f, "SHARDS, rate {rate}"),
            Method::Size(keys) => write!(f, "SHARDS, at most {keys} keys"),
        }
    }
}

/// The effect of the trace's commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OpRule {
    /// Reads are counted, and a miss stores the item. Storage commands and counters move the item to the front
    /// without being counted. `set` and `add` store an absent item; the other commands do not. `append` and `prepend`
    /// add their bytes; counters keep the size. A delete removes the item.
    #[default]
    Obey,
    /// Every request is a read.
    Ignore,
}

/// The settings of an analysis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// The unit of cache sizes.
    pub unit: Unit,
    /// The share of the keys to examine.
    pub method: Method,
    /// The effect of commands.
    pub ops: OpRule,
    /// Bytes per item in addition to key and value; for [`Unit::Bytes`].
    pub item_overhead_bytes: u64,
    /// SHARDS: whether the smallest distance is corrected so that the sampled counts add up to the number of requests
    /// (SHARDS_adj, section 3.3 of the paper).
    pub adjusted: bool,
    /// Selects the sample that SHARDS takes.
    pub seed: u64,
}

impl Settings {
    /// Settings for `method` with the correction, commands obeyed, and no overhead.
    pub fn new(unit: Unit, method: Method) -> Settings {
        Settings { unit, method, ops: OpRule::Obey, item_overhead_bytes: 0, adjusted: true, seed: 0 }
    }
}

/// A curve under construction.
pub struct Analysis {
    settings: Settings,
    seed_mixed: u64,
    stack: Stack,
    histogram: Histogram,
    /// A key is examined if its hash is below this; `None` = all keys.
    threshold: Option<u64>,
    /// The hashes of the tracked keys, the largest on top; only for [`Method::Size`].
    by_hash: BinaryHeap<(u64, u64)>,
    /// The number of requests for which one counted request stands.
    scale: f64,
    requests: u64,
    counted: f64,
    cold: f64,
    keys_seen: u64,
    keys_seen_bytes: u64,
    /// The first [`SAMPLE_KEYS_MIN`] distinct keys examined.
    sample: BTreeSet<u64>,
    offered: bool,
    penalties: Penalties,
}

/// The penalties that were seen.
#[derive(Default)]
struct Penalties {
    count: u64,
    sum_us: u64,
}

impl Analysis {
    /// Starts an analysis.
    ///
    /// # Errors
    /// A rate that is not above 0 and at most 1, or a size of 0.
    pub fn new(settings: Settings) -> Result<Analysis, String> {
        let threshold = match settings.method {
            Method::Exact => None,
            Method::Rate(rate) if rate > 0.0 && rate <= 1.0 => {
                Some((rate * 2_f64.powi(64)) as u64).filter(|_| rate < 1.0)
            }
            Method::Rate(rate) => {
                return Err(format!("the sampling rate must be above 0 and at most 1, not {rate}"));
            }
            Method::Size(0) => return Err("SHARDS needs at least one key".to_owned()),
            Method::Size(_) => None,
        };
        let bits = if settings.unit == Unit::Objects { OBJECTS_BITS } else { BYTES_BITS };
        let mut analysis = Analysis {
            settings,
            seed_mixed: hash_of(settings.seed ^ 0x5348_4152_4453),
            stack: Stack::new(),
            histogram: Histogram::new(bits),
            threshold: None,
            by_hash: BinaryHeap::new(),
            scale: 1.0,
            requests: 0,
            counted: 0.0,
            cold: 0.0,
            keys_seen: 0,
            keys_seen_bytes: 0,
            sample: BTreeSet::new(),
            offered: false,
            penalties: Penalties::default(),
        };
        if let Some(threshold) = threshold {
            analysis.lower_to(threshold);
        }
        Ok(analysis)
    }

    /// Processes one request.
    pub fn request(&mut self, request: &Request) {
        let read = request.op == Op::Get || self.settings.ops == OpRule::Ignore;
        self.requests += u64::from(read);
        self.offered = true;
        if read && request.penalty_us > 0 {
            self.penalties.count += 1;
            self.penalties.sum_us += u64::from(request.penalty_us);
        }
        if self.settings.method == Method::Exact {
            self.looked_at(request, read);
            return;
        }
        let hash = hash_of(request.key ^ self.seed_mixed);
        if self.threshold.is_some_and(|threshold| hash >= threshold) {
            return;
        }
        if self.looked_at(request, read)
            && let Method::Size(most) = self.settings.method
        {
            self.by_hash.push((hash, request.key));
            self.shrink_to(most);
        }
    }

    /// A warning if the sample has too few keys for a reliable curve.
    ///
    /// # Errors
    /// There were requests, but none to a key of the sample, so that there is no curve.
    pub fn check_sample(&self) -> Result<Option<String>, String> {
        let keys = match self.settings.method {
            Method::Exact => return Ok(None),
            Method::Rate(_) => self.sample.len(),
            Method::Size(most) => self.sample.len().min(most),
        };
        match keys {
            0 if self.offered => Err("SHARDS looked at no key: take a larger rate".to_owned()),
            1..SAMPLE_KEYS_MIN if self.scale > 1.0 => Ok(Some(format!(
                "{} looked at {keys} keys only; below {SAMPLE_KEYS_MIN} the curve is one of chance",
                self.settings.method
            ))),
            _ => Ok(None),
        }
    }

    /// The number of tracked keys.
    pub fn keys(&self) -> usize {
        self.stack.items()
    }

    /// The share of the keys that is examined now.
    pub fn rate(&self) -> f64 {
        1.0 / self.scale
    }

    /// Adds the request's key to the sample. Returns whether the key is new.
    fn looked_at(&mut self, request: &Request, read: bool) -> bool {
        if read {
            let before = self.stack.weight(request.key).is_none();
            self.read(request);
            return before;
        }
        let there = self.stack.weight(request.key);
        match (request.op, there) {
            (Op::Delete, _) => {
                self.stack.remove(request.key);
                return false;
            }
            (Op::Set | Op::Add, _) | (Op::Replace | Op::Cas, Some(_)) => {
                self.stack.touch(request.key, self.weight(request));
            }
            (Op::Append | Op::Prepend, Some(weight)) if self.settings.unit == Unit::Bytes => {
                self.stack.touch(request.key, weight + u64::from(request.value_bytes));
            }
            (_, Some(weight)) => {
                self.stack.touch(request.key, weight);
            }
            (_, None) => return false,
        }
        if there.is_none() {
            self.first_seen(request);
        }
        there.is_none()
    }

    fn read(&mut self, request: &Request) {
        self.counted += self.scale;
        match self.stack.touch(request.key, self.weight(request)) {
            Some(depth) => {
                let above = (depth.above as f64 * self.scale).round() as u64;
                let distance = if self.scale == 1.0 { depth.above } else { above } + depth.weight;
                self.histogram.add(distance, self.scale);
            }
            None => {
                self.cold += self.scale;
                self.first_seen(request);
            }
        }
    }

    fn first_seen(&mut self, request: &Request) {
        self.keys_seen += 1;
        if self.sample.len() < SAMPLE_KEYS_MIN {
            self.sample.insert(request.key);
        }
        self.keys_seen_bytes += request.item_bytes() + self.settings.item_overhead_bytes;
    }

    fn weight(&self, request: &Request) -> u64 {
        match self.settings.unit {
            Unit::Objects => 1,
            Unit::Bytes => request.item_bytes() + self.settings.item_overhead_bytes,
        }
    }

    /// Drops the keys with the largest hashes until at most `most` are tracked.
    ///
    /// The paper rescales the earlier counts by the quotient of the rates. Here each request is counted with the
    /// weight 1 / rate at its time. The curve is the same, because all counts differ from the paper's by one common
    /// factor.
    fn shrink_to(&mut self, most: usize) {
        while self.stack.items() > most {
            let Some(&(largest, _)) = self.by_hash.peek() else { return };
            while let Some(&(hash, key)) = self.by_hash.peek()
                && hash == largest
            {
                self.by_hash.pop();
                self.stack.forget(key);
            }
            self.lower_to(largest);
        }
        if self.by_hash.len() > 2 * most {
            // The heap still contains deleted keys, and keys that came back appear twice.
            let mut living = std::mem::take(&mut self.by_hash).into_vec();
            living.retain(|(_, key)| self.stack.weight(*key).is_some());
            living.sort_unstable();
            living.dedup();
            self.by_hash = BinaryHeap::from(living);
        }
    }

    fn lower_to(&mut self, threshold: u64) {
        self.threshold = Some(threshold);
        self.scale = 2_f64.powi(64) / threshold.max(1) as f64;
    }

    /// The curve of the requests so far.
    pub fn curve(&self, source: &str) -> Curve {
        let all = self.requests as f64;
        let (denominator, correction) =
            if self.settings.adjusted { (all, all - self.counted) } else { (self.counted, 0.0) };
        let denominator = if denominator > 0.0 { denominator } else { 1.0 };
        let mut points = vec![Point { size: 0, miss_ratio: 1.0 }];
        let mut hits = correction;
        let mut least_ratio = 1.0_f64;
        for (least, largest, count) in self.histogram.buckets() {
            let mut last_size = points.last().map_or(0, |point| point.size);
            if least.saturating_sub(1) > last_size {
                last_size = least - 1;
                points.push(Point { size: last_size, miss_ratio: least_ratio });
            }
            hits += count;
            least_ratio = least_ratio.min(1.0 - hits / denominator).max(0.0);
            let point = Point { size: largest, miss_ratio: least_ratio };
            if largest > last_size {
                points.push(point);
            } else if let Some(last) = points.last_mut() {
                *last = point;
            }
        }
        let keys = self.keys_seen.max(1) as f64;
        Curve {
            unit: self.settings.unit,
            method: self.settings.method.to_string(),
            source: source.to_owned(),
            requests: self.requests,
            cold_misses: self.cold.round() as u64,
            item_bytes_mean: self.keys_seen_bytes as f64 / keys,
            penalty_us_mean: self.penalties.sum_us as f64 / self.penalties.count.max(1) as f64,
            points,
        }
    }
}

/// Reads a source to its end and feeds all analyses. `watch` gets the progress (0 to 1) after each chunk.
///
/// # Errors
/// Those of the source, or sizes in bytes for a source that knows no sizes.
pub fn analyse(
    source: &mut dyn Source,
    analyses: &mut [Analysis],
    mut watch: impl FnMut(f64),
) -> Result<(), SourceError> {
    let needs_sizes = analyses.iter().any(|analysis| analysis.settings.unit == Unit::Bytes);
    if needs_sizes && !source.fields().sizes {
        return Err(SourceError::new(format!(
            "{}: no sizes in it; only a curve over objects can be had",
            source.describe()
        )));
    }
    let mut chunk = Vec::with_capacity(CHUNK_REQUESTS);
    loop {
        chunk.clear();
        if source.fill(&mut chunk, CHUNK_REQUESTS)? == 0 {
            return Ok(());
        }
        for analysis in &mut *analyses {
            chunk.iter().for_each(|request| analysis.request(request));
        }
        watch(source.done_ratio().unwrap_or(0.0));
    }
}

/// The curves of a source in one pass, one for each of the settings.
///
/// # Errors
/// Settings out of range, and those of [`analyse`].
pub fn curves(source: &mut dyn Source, settings: &[Settings]) -> Result<Vec<Curve>, SourceError> {
    let mut analyses: Vec<Analysis> =
        settings.iter().map(|one| Analysis::new(*one).map_err(SourceError::new)).collect::<Result<_, _>>()?;
    analyse(source, &mut analyses, |_| {})?;
    let name = source.describe();
    Ok(analyses.iter().map(|analysis| analysis.curve(&name)).collect())
}
