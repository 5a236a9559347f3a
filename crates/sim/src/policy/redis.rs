//! Redis' approximated LRU: samples a few items per eviction and keeps the best candidates in a pool.

use super::frame::Scheme;
use super::interface::Access;
use super::sample_set::SampleSet;
use super::slots::Slots;
use crate::mix::SplitMix;

/// Items sampled per eviction: the default of `maxmemory-samples`.
const SAMPLES: usize = 5;
/// Size of the pool: `EVPOOL_SIZE`.
const POOL: usize = 16;

/// The algorithm of Redis since release 3.0 (`evictionPoolPopulate` and `performEvictions` in evict.c). Each eviction
/// samples 5 items. Sampled items that have been idle for longer than the least idle candidate enter a pool of 16.
/// The most idle candidate is evicted. The pool stores a key and its idle time at the moment of sampling; later uses
/// or deletes of the key do not change the pool.
///
/// Two points are more exact than in Redis: time is counted in requests instead of seconds, and every item is equally
/// likely to be sampled (Redis samples neighbours in its hash table).
pub(super) struct RedisLru {
    rng: SplitMix,
    residents: SampleSet,
    /// (idle time in requests, key), by rising idle time.
    pool: Vec<(u64, u32)>,
    now: u64,
}

impl RedisLru {
    /// An empty cache; `seed` starts the random numbers.
    pub(super) fn new(seed: u64) -> RedisLru {
        RedisLru {
            rng: SplitMix::new(seed),
            residents: SampleSet::default(),
            pool: Vec::with_capacity(POOL),
            now: 0,
        }
    }

    fn sample(&mut self, slots: &mut Slots<u64>) {
        for _ in 0..SAMPLES {
            let slot = self.residents.sample(&mut self.rng);
            let idle = self.now - *slots.data(slot);
            let is_full = self.pool.len() == POOL;
            if is_full && idle <= self.pool[0].0 {
                continue;
            }
            let position = self.pool.partition_point(|&(pooled, _)| pooled < idle);
            let entry = (idle, slots.id(slot));
            if is_full {
                self.pool.copy_within(1..position, 0);
                self.pool[position - 1] = entry;
            } else {
                self.pool.insert(position, entry);
            }
        }
    }
}

impl Scheme for RedisLru {
    /// Ordinal of the last use.
    type Data = u64;

    fn hit(&mut self, slots: &mut Slots<u64>, slot: u32, _: &Access) {
        self.now += 1;
        *slots.data(slot) = self.now;
    }

    fn miss(&mut self, slots: &mut Slots<u64>, _: Option<u32>, access: &Access) {
        self.now += 1;
        self.make_room(slots, access.size);
        let slot = slots.add(access.id, access.size, self.now);
        self.residents.insert(slot);
    }

    fn evict(&mut self, slots: &mut Slots<u64>) {
        self.sample(slots);
        while let Some((_, id)) = self.pool.pop() {
            if let Some(slot) = slots.find(id) {
                self.forget(slots, slot);
                return;
            }
        }
    }

    fn forget(&mut self, slots: &mut Slots<u64>, slot: u32) {
        self.residents.remove(slot);
        slots.free(slot);
    }

    /// `robj.lru` has 24 bits. The pool has 16 entries in total, which is negligible per item.
    fn metadata_bits(&self) -> f64 {
        24.0
    }
}
