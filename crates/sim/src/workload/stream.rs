//! Turns a law into a source: adds a time, a command and the attributes to each key.

use super::attributes::Attributes;
use super::laws::{Choice, Keys};
use super::rng::Rng;
use super::settings::{Law, Settings};
use crate::{Fields, Op, Request, Source, SourceError};
use crate::{workload::penalties::Penalties, workload::sizes::Sizes, workload::ttls::Ttls};

/// The rate, and the time that a law knows, change after this many requests.
const BLOCK: u64 = 1024;

/// The time of the requests.
struct Clock {
    /// Time at the start of the block.
    begin_s: f64,
    /// Time between two requests of the block.
    step_s: f64,
    mean_step_s: f64,
    /// In the course of a day the rate swings between 1 - this and 1 + this times the mean; 0 = a constant rate.
    amplitude: f64,
    day_s: f64,
}

impl Clock {
    fn new(settings: &Settings) -> Clock {
        let amplitude = match settings.law {
            Law::Drift => (settings.drift.swing - 1.0) / (settings.drift.swing + 1.0),
            _ => 0.0,
        };
        let mean_step_s = 1.0 / settings.rate;
        Clock {
            begin_s: 0.0,
            step_s: mean_step_s,
            mean_step_s,
            amplitude,
            day_s: settings.drift.day_s as f64,
        }
    }

    /// Starts a block of requests at this ordinal.
    fn block(&mut self, position: u64) {
        if self.amplitude == 0.0 {
            self.begin_s = position as f64 * self.mean_step_s;
            return;
        }
        if position > 0 {
            self.begin_s += BLOCK as f64 * self.step_s;
        }
        let angle = self.begin_s / self.day_s * 2.0 * std::f64::consts::PI;
        self.step_s = self.mean_step_s / (1.0 + self.amplitude * libm::sin(angle));
    }

    #[inline]
    fn at(&self, within: u64) -> f64 {
        self.begin_s + within as f64 * self.step_s
    }
}

/// A stream of requests by one law.
pub(super) struct Stream<K> {
    keys: K,
    settings: Settings,
    attributes: Attributes,
    clock: Clock,
    rng: Rng,
    /// Random bits below this make the request a get.
    get_below: u64,
    /// Random bits from there and below this make it a delete; all others make it a set.
    delete_below: u64,
    /// Requests so far.
    position: u64,
}

impl<K: Keys> Stream<K> {
    pub(super) fn new(keys: K, settings: &Settings) -> Stream<K> {
        Stream {
            keys,
            settings: settings.clone(),
            attributes: Attributes::new(settings),
            clock: Clock::new(settings),
            rng: Rng::new(settings.seed),
            get_below: part_of_32_bits(settings.reads),
            delete_below: part_of_32_bits((settings.reads + settings.deletes).min(1.0)),
            position: 0,
        }
    }

    #[inline]
    fn request(&mut self, within: u64) -> Request {
        let Choice { key, new } = self.keys.choose(&mut self.rng);
        let lot = self.rng.next() >> 32;
        let drawn = usize::from(lot >= self.get_below) + usize::from(lot >= self.delete_below);
        let op = if new { Op::Set } else { [Op::Get, Op::Delete, Op::Set][drawn] };
        self.attributes.request(key, self.clock.at(within) as u32, op)
    }
}

/// The numbers below 2^32 that make up this share.
fn part_of_32_bits(share: f64) -> u64 {
    libm::round(share * 4_294_967_296.0) as u64
}

impl<K: Keys> Source for Stream<K> {
    fn fill(&mut self, into: &mut Vec<Request>, most: usize) -> Result<usize, SourceError> {
        let wanted = (most as u64).min(self.settings.requests - self.position);
        let end = self.position + wanted;
        while self.position < end {
            let within = self.position % BLOCK;
            if within == 0 {
                self.clock.block(self.position);
                self.keys.time_is(self.clock.begin_s);
            }
            let count = (BLOCK - within).min(end - self.position);
            into.extend((within..within + count).map(|within| self.request(within)));
            self.position += count;
        }
        Ok(wanted as usize)
    }

    fn fields(&self) -> Fields {
        Fields {
            times: true,
            sizes: self.settings.items.sizes != Sizes::None,
            ops: true,
            ttls: self.settings.items.ttls != Ttls::None,
            penalties: self.settings.items.penalties != Penalties::None,
        }
    }

    fn describe(&self) -> String {
        self.settings.describe()
    }

    fn name(&self) -> String {
        self.settings.brief()
    }

    fn done_ratio(&self) -> Option<f64> {
        Some(self.position as f64 / self.settings.requests.max(1) as f64)
    }

    fn requests_hint(&self) -> Option<u64> {
        Some(self.settings.requests)
    }
}

/// A stream with a burst: at one request, cold keys are set.
pub(super) struct Burst<K> {
    base: Stream<K>,
    cold: ColdItems,
    /// The number of cold keys.
    cold_keys: u64,
}

/// The sizes of the cold items, which add up to a given number of bytes.
#[derive(Clone)]
struct ColdItems {
    next_key: u64,
    bytes_left: u64,
    from: u32,
    to: u32,
}

impl ColdItems {
    /// The next item's key and size. The last two items are adapted to the sum; every item stays within the range.
    fn next(&mut self, attributes: &Attributes) -> Option<(u64, u32)> {
        if self.bytes_left == 0 {
            return None;
        }
        let key = self.next_key;
        let width = u64::from(self.to - self.from) + 1;
        let drawn = u64::from(self.from) + super::rng::below(attributes.spare_bits(key), width);
        let bytes = match self.bytes_left {
            left if left <= u64::from(self.to) => left,
            left if left < drawn + u64::from(self.from) => left - u64::from(self.from),
            _ => drawn,
        };
        self.next_key += 1;
        self.bytes_left -= bytes;
        Some((key, bytes as u32))
    }
}

impl<K: Keys> Burst<K> {
    pub(super) fn new(keys: K, settings: &Settings) -> Burst<K> {
        let base = Stream::new(keys, settings);
        let (from, to) = settings.burst.sizes;
        let cold = ColdItems { next_key: settings.keys, bytes_left: settings.burst.bytes, from, to };
        let mut counted = cold.clone();
        while counted.next(&base.attributes).is_some() {}
        Burst { base, cold_keys: counted.next_key - cold.next_key, cold }
    }

    fn fill_cold(&mut self, into: &mut Vec<Request>, most: usize) -> usize {
        let attributes = &self.base.attributes;
        let time_s = (self.base.position as f64 * self.base.clock.mean_step_s) as u32;
        let before = into.len();
        while into.len() - before < most {
            let Some((key, bytes)) = self.cold.next(attributes) else { break };
            into.push(attributes.request_of_size(key, time_s, Op::Set, bytes));
        }
        into.len() - before
    }

    /// Requests so far.
    fn position(&self) -> u64 {
        self.base.position + self.cold.next_key - self.base.settings.keys
    }
}

impl<K: Keys> Source for Burst<K> {
    fn fill(&mut self, into: &mut Vec<Request>, most: usize) -> Result<usize, SourceError> {
        let until = self.base.settings.burst.at.saturating_sub(self.base.position);
        let mut got = self.base.fill(into, (most as u64).min(until) as usize)?;
        if self.base.position >= self.base.settings.burst.at {
            got += self.fill_cold(into, most - got);
            if self.cold.bytes_left == 0 {
                got += self.base.fill(into, most - got)?;
            }
        }
        Ok(got)
    }

    fn fields(&self) -> Fields {
        self.base.fields()
    }

    fn describe(&self) -> String {
        self.base.describe()
    }

    fn name(&self) -> String {
        self.base.name()
    }

    fn done_ratio(&self) -> Option<f64> {
        Some(self.position() as f64 / (self.base.settings.requests + self.cold_keys).max(1) as f64)
    }

    fn requests_hint(&self) -> Option<u64> {
        Some(self.base.settings.requests + self.cold_keys)
    }
}
