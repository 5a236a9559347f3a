//! Redis' approximated LRU: a few items are sampled, and a pool remembers the best victims among all that
//! were.

use super::frame::Scheme;
use super::interface::Access;
use super::random::{Random, Urn};
use super::slots::Slots;

/// `maxmemory-samples`, its default.
const SAMPLES: usize = 5;
/// `EVPOOL_SIZE`.
const POOL: usize = 16;

/// What Redis has done since 3.0 (`evictionPoolPopulate` and `performEvictions` in evict.c): each eviction
/// samples 5 items, puts those into a pool of 16 that have been idle for longer than the least idle there,
/// and evicts the most idle of the pool. The pool keeps keys and what they idled when they were sampled; it
/// is not looked at again when such a key is used or deleted.
///
/// Two things are exacter than in Redis: time is counted in requests instead of seconds, and each item is as
/// likely to be drawn as any other (Redis takes neighbours in its hash table).
pub(super) struct RedisLru {
    random: Random,
    urn: Urn,
    /// (idle, key), by rising idle.
    pool: Vec<(u64, u32)>,
    now: u64,
}

impl RedisLru {
    /// An empty pool; `seed` decides the samples.
    pub(super) fn new(seed: u64) -> RedisLru {
        RedisLru { random: Random::new(seed), urn: Urn::default(), pool: Vec::with_capacity(POOL), now: 0 }
    }

    fn sample(&mut self, slots: &mut Slots<u64>) {
        for _ in 0..SAMPLES {
            let slot = self.urn.draw(&mut self.random);
            let idle = self.now - *slots.data(slot);
            let is_full = self.pool.len() == POOL;
            if is_full && idle <= self.pool[0].0 {
                continue;
            }
            let place = self.pool.partition_point(|&(pooled, _)| pooled < idle);
            let entry = (idle, slots.id(slot));
            if is_full {
                self.pool.copy_within(1..place, 0);
                self.pool[place - 1] = entry;
            } else {
                self.pool.insert(place, entry);
            }
        }
    }
}

impl Scheme for RedisLru {
    /// When it was last used.
    type Data = u64;

    fn hit(&mut self, slots: &mut Slots<u64>, slot: u32, _: &Access) {
        self.now += 1;
        *slots.data(slot) = self.now;
    }

    fn miss(&mut self, slots: &mut Slots<u64>, _: Option<u32>, access: &Access) {
        self.now += 1;
        self.make_room(slots, access.size);
        let slot = slots.add(access.id, access.size, self.now);
        self.urn.put(slot);
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
        self.urn.take(slot);
        slots.free(slot);
    }

    /// `robj.lru`: 24 bits. The pool is 16 entries in all.
    fn metadata_bits(&self) -> f64 {
        24.0
    }
}
