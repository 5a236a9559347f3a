//! The laws: how a request chooses its key.

use super::rng::{Permutation, Rng, SplitMix, below, mix64, threshold};
use super::settings::Settings;
use super::zipf::Zipf;

/// A chosen key, and whether the law itself requires that it is stored.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    pub(super) key: u64,
    /// Whether the key is new, so that the request is a set.
    pub(super) new: bool,
}

/// Chooses keys.
pub(super) trait Keys: Send {
    /// The next key.
    fn choose(&mut self, rng: &mut Rng) -> Choice;

    /// Tells the law the time from time to time, always at the same requests.
    fn time_is(&mut self, _time_s: f64) {}
}

fn known(key: u64) -> Choice {
    Choice { key, new: false }
}

/// The permutation that spreads ranks over the keys.
fn spread(settings: &Settings) -> Permutation {
    Permutation::new(settings.keys, mix64(settings.seed ^ 0x7370_7265_6164_0000))
}

/// Zipf's law over spread keys.
pub(super) struct Zipfian {
    zipf: Zipf,
    spread: Permutation,
}

impl Zipfian {
    pub(super) fn new(settings: &Settings) -> Zipfian {
        Zipfian { zipf: Zipf::new(settings.keys, settings.theta), spread: spread(settings) }
    }
}

impl Keys for Zipfian {
    #[inline]
    fn choose(&mut self, rng: &mut Rng) -> Choice {
        known(self.spread.apply(self.zipf.sample(rng)))
    }
}

/// Equal popularity of all keys.
pub(super) struct Uniform {
    keys: u64,
}

impl Uniform {
    pub(super) fn new(settings: &Settings) -> Uniform {
        Uniform { keys: settings.keys }
    }
}

impl Keys for Uniform {
    #[inline]
    fn choose(&mut self, rng: &mut Rng) -> Choice {
        known(rng.below(self.keys))
    }
}

/// A few keys get most of the requests (YCSB's HotspotIntegerGenerator, with spread keys).
pub(super) struct Hotspot {
    hot: u64,
    cold: u64,
    hot_below: u64,
    spread: Permutation,
}

impl Hotspot {
    pub(super) fn new(settings: &Settings) -> Hotspot {
        let hot = (libm::round(settings.keys as f64 * settings.hot.keys) as u64).min(settings.keys);
        let cold = settings.keys - hot;
        let hot_share = match (hot, cold) {
            (0, _) => 0.0,
            (_, 0) => 1.0,
            _ => settings.hot.requests,
        };
        Hotspot { hot, cold, hot_below: threshold(hot_share), spread: spread(settings) }
    }
}

impl Keys for Hotspot {
    #[inline]
    fn choose(&mut self, rng: &mut Rng) -> Choice {
        let hot = rng.next() < self.hot_below || self.cold == 0;
        let (from, width) = if hot { (0, self.hot) } else { (self.hot, self.cold) };
        known(self.spread.apply(from + below(rng.next(), width)))
    }
}

/// Zipf's law by recency (YCSB's SkewedLatestGenerator): the key inserted last is the most popular.
pub(super) struct Latest {
    theta: f64,
    /// Has at least as many ranks as there are keys, and at most twice as many. Ranks beyond the keys are sampled
    /// again.
    zipf: Zipf,
    ranks: u64,
    keys: u64,
    insert_below: u64,
}

impl Latest {
    pub(super) fn new(settings: &Settings) -> Latest {
        Latest {
            theta: settings.theta,
            zipf: Zipf::new(settings.keys, settings.theta),
            ranks: settings.keys,
            keys: settings.keys,
            insert_below: threshold(settings.inserts),
        }
    }

    #[cold]
    fn widen(&mut self) {
        self.ranks *= 2;
        self.zipf = Zipf::new(self.ranks, self.theta);
    }
}

impl Keys for Latest {
    #[inline]
    fn choose(&mut self, rng: &mut Rng) -> Choice {
        if rng.next() < self.insert_below {
            let key = self.keys;
            self.keys += 1;
            if self.keys > self.ranks {
                self.widen();
            }
            return Choice { key, new: true };
        }
        loop {
            let rank = self.zipf.sample(rng);
            if rank < self.keys {
                return known(self.keys - 1 - rank);
            }
        }
    }
}

/// Zipf's law, mixed with keys that are written once.
pub(super) struct Mix {
    zipfian: Zipfian,
    one_time_below: u64,
    next: u64,
}

impl Mix {
    pub(super) fn new(settings: &Settings) -> Mix {
        Mix {
            zipfian: Zipfian::new(settings),
            one_time_below: threshold(settings.one_time),
            next: settings.keys,
        }
    }
}

impl Keys for Mix {
    #[inline]
    fn choose(&mut self, rng: &mut Rng) -> Choice {
        if rng.next() < self.one_time_below {
            self.next += 1;
            return Choice { key: self.next - 1, new: true };
        }
        self.zipfian.choose(rng)
    }
}

/// Zipf's law whose popular keys change in the course of a day.
///
/// The ranks are cut into as many bands as there are audiences. The keys at the same position of each band form a
/// group. Once per day and audience, each group at its own time, the keys of a group move up by one band, and the
/// first moves to the last band. So at any moment every rank has exactly one key; a key is hot for one part of the
/// day and is hot again a day later. Ranks that do not fill a band (fewer than the audiences) keep their keys.
pub(super) struct Drift {
    zipfian: Zipfian,
    audiences: u64,
    band: u64,
    /// 2^64 / `band`, rounded up, where ranks and band are below 2^32: the quotient is exact then.
    reciprocal: Option<u64>,
    salt: u64,
    turn_s: f64,
    /// The number of moves that every group has made.
    turns: u64,
    /// Progress of the next move: the groups below this value have made it.
    part: u64,
}

impl Drift {
    pub(super) fn new(settings: &Settings) -> Drift {
        let band = settings.keys / settings.drift.audiences;
        Drift {
            zipfian: Zipfian::new(settings),
            audiences: settings.drift.audiences,
            band,
            reciprocal: (settings.keys < 1 << 32 && band > 1).then(|| u64::MAX / band + 1),
            salt: SplitMix::new(settings.seed ^ 0x6472_6966_7400_0000).next(),
            turn_s: settings.drift.day_s as f64 / settings.drift.audiences as f64,
            turns: 0,
            part: 0,
        }
    }

    /// `rank / self.band`, by multiplication where that is exact.
    #[inline]
    fn band_of(&self, rank: u64) -> u64 {
        match self.reciprocal {
            Some(reciprocal) => ((rank as u128 * reciprocal as u128) >> 64) as u64,
            None => rank / self.band,
        }
    }

    /// The key, before spreading, that has this rank now.
    #[inline]
    pub(super) fn holder(&self, rank: u64) -> u64 {
        let band = self.band_of(rank);
        if band >= self.audiences || self.audiences == 1 {
            return rank;
        }
        let group = rank - band * self.band;
        // Multiples of the golden ratio are evenly distributed and unordered, so the moves of the groups are spread
        // over the time.
        let own_time = (group ^ self.salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let holder = band + self.turns + u64::from(own_time < self.part);
        let over = std::hint::select_unpredictable(holder >= self.audiences, self.audiences, 0);
        (holder - over) * self.band + group
    }
}

impl Keys for Drift {
    #[inline]
    fn choose(&mut self, rng: &mut Rng) -> Choice {
        let rank = self.zipfian.zipf.sample(rng);
        known(self.zipfian.spread.apply(self.holder(rank)))
    }

    fn time_is(&mut self, time_s: f64) {
        let turns = time_s / self.turn_s;
        let whole = libm::floor(turns);
        self.turns = whole as u64 % self.audiences;
        self.part = threshold(turns - whole);
    }
}
