//! A tour: a walk over the items of both levels, for listings.
//!
//! A tour goes over memory first, bucket by bucket, and then over flash, segment by segment. An item that leaves memory
//! meanwhile is met on flash, and one that moves there is met in a later segment ([`larder_flash::Place`]). An item
//! that came to memory since the tour began is shown when its copy on flash is met. Where that copy does not stay (with
//! `--flash-promote strict`, in mode `journal`), the tour goes over memory once more at the end, and shows what was
//! used since it began. So an item that is there from the beginning to the end is shown at least once. It may be shown
//! twice if it moves, and it may be left out if it moves twice: from flash to memory and back.

use super::Worker;
use super::read::Hit;
use crate::demoter::Demoter;
use crate::flash_level::expiry_of_listed;
use crate::item_store::Life;
use larder_flash::{Listed as OnFlash, Listing, Place};
use larder_memory::Compressed;
use std::time::Duration;

/// How far a tour has come.
pub struct Tour {
    at: At,
    /// The clock's second when it began.
    since_s: u32,
    /// Items of flash that were asked for.
    reading: Option<Listing>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    /// In memory, at this cursor of a walk.
    Memory(u64),
    /// On flash.
    Flash(Place),
    /// In memory once more.
    MemoryAgain(u64),
    End,
}

/// An item that a tour shows.
pub enum Seen<'a> {
    /// It is in memory.
    InMemory(&'a Worker, &'a Hit<'a>),
    /// It is on flash, and perhaps in memory by now.
    OnFlash(&'a OnFlash),
}

/// What came of a step of a tour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Toured {
    /// It goes on.
    More,
    /// It waits for flash.
    Waits,
    /// It is at its end.
    End,
}

/// The cursor of a tour of both levels has these bits, so that it is a whole number also where numbers are floating
/// points: 2 for the level, 10 for the time, the rest for the place.
const TIME_BITS: u32 = 10;
const LEVEL_SHIFT: u32 = Place::BITS + TIME_BITS;
/// Seconds of the clock that one step of the time in a cursor is.
const TIME_STEP_S: u32 = 8;

impl Tour {
    /// Whether a step waits for flash.
    pub fn is_waiting(&self) -> bool {
        self.reading.is_some()
    }
}

impl Worker {
    fn demoter(&self) -> Option<&Demoter> {
        self.cache.demoter.as_ref()
    }

    /// Begins a tour.
    pub fn begin_tour(&self) -> Tour {
        Tour { at: At::Memory(0), since_s: self.cache.store.clock.now_s(), reading: None }
    }

    /// Begins in the middle of flash, at a place chosen by a random number. `None` = there is no flash.
    pub fn tour_from_anywhere(&self, random: u64) -> Option<Tour> {
        let flash = self.demoter()?.flash();
        Some(Tour { at: At::Flash(flash.random_place(random)), ..self.begin_tour() })
    }

    /// Goes on with the tour that has this cursor; 0 begins one.
    pub fn tour_at(&self, cursor: u64) -> Tour {
        let Some(demoter) = self.demoter().filter(|_| cursor != 0) else {
            return Tour { at: At::Memory(cursor), ..self.begin_tour() };
        };
        let place = cursor & ((1 << Place::BITS) - 1);
        let now = self.cache.store.clock.now_s() / TIME_STEP_S;
        let behind = now.wrapping_sub((cursor >> Place::BITS) as u32) & ((1 << TIME_BITS) - 1);
        let at = match cursor >> LEVEL_SHIFT {
            0 => At::Memory(place),
            1 => At::Flash(demoter.flash().place_of(place)),
            _ => At::MemoryAgain(place),
        };
        Tour { at, since_s: now.saturating_sub(behind) * TIME_STEP_S, reading: None }
    }

    /// The cursor of a tour; 0 = it is at its end.
    pub fn cursor_of(&self, tour: &Tour) -> u64 {
        let (level, place) = match tour.at {
            At::End => return 0,
            At::Memory(bucket) if self.demoter().is_none() => return bucket,
            At::Memory(bucket) => (0, bucket),
            At::Flash(place) => (1, place.to_bits()),
            At::MemoryAgain(bucket) => (2, bucket),
        };
        let time = u64::from(tour.since_s / TIME_STEP_S) & ((1 << TIME_BITS) - 1);
        level << LEVEL_SHIFT | time << Place::BITS | place
    }

    /// The next step of a tour: shows live items until `show` returns `false`, or `buckets_max` buckets were looked at,
    /// or `least` items of flash. It waits so long for flash.
    pub fn tour(
        &self,
        tour: &mut Tour,
        (buckets_max, least): (usize, usize),
        wait: Duration,
        show: &mut dyn FnMut(&Seen<'_>) -> bool,
    ) -> Toured {
        tour.at = match tour.at {
            At::Memory(bucket) => {
                let mut show = |worker: &Worker, hit: &Hit<'_>| show(&Seen::InMemory(worker, hit));
                match (self.walk(bucket, buckets_max, &mut show).next, self.demoter()) {
                    (Some(next), _) => At::Memory(next),
                    (None, Some(demoter)) if demoter.flash().is_on() => {
                        At::Flash(demoter.flash().first_place())
                    }
                    (None, _) => At::End,
                }
            }
            At::Flash(place) => {
                let Some(demoter) = self.demoter() else { return Toured::End };
                let reading = tour.reading.take().unwrap_or_else(|| demoter.flash().begin_list(place, least));
                let Some((items, next)) = reading.take(wait) else {
                    tour.reading = Some(reading);
                    return Toured::Waits;
                };
                items.iter().for_each(|item| self.show_met(item, tour.since_s, show));
                match next {
                    Some(next) => At::Flash(next),
                    None if demoter.is_lazy() && !demoter.has_journal() => At::End,
                    None => At::MemoryAgain(0),
                }
            }
            At::MemoryAgain(bucket) => {
                let (now_s, since_s) = (self.cache.store.clock.now_s(), tour.since_s);
                let walk = self.walk(bucket, buckets_max, &mut |worker, hit| {
                    now_s.saturating_sub(hit.item.state().idle_s(now_s)) < since_s
                        || show(&Seen::InMemory(worker, hit))
                });
                walk.next.map_or(At::End, At::MemoryAgain)
            }
            At::End => At::End,
        };
        if tour.at == At::End { Toured::End } else { Toured::More }
    }

    /// Shows an item that a tour meets on flash. If memory has one of the key, it is that one, and it is shown if it
    /// may have come there after the tour.
    fn show_met(&self, item: &OnFlash, since_s: u32, show: &mut dyn FnMut(&Seen<'_>) -> bool) {
        if item.state.extension().is_compressed {
            let value_bytes = Compressed::read(&item.front).plain_bytes.into();
            let state = item.state.compressed(false);
            return self.show_met(&OnFlash { value_bytes, state, ..item.clone() }, since_s, show);
        }
        let store = &self.cache.store;
        let guard = self.reader.pin();
        let Some(entry) = store.index.get(item.hash, &item.key, &store.key_reader(&guard)) else {
            if !store.clock.has_passed(expiry_of_listed(&store.clock, item)) {
                show(&Seen::OnFlash(item));
            }
            return;
        };
        let (now_s, at) = (store.clock.now_s(), entry.location);
        let hit = Hit { at, item: guard.item(at) };
        let used_s = now_s.saturating_sub(hit.item.state().idle_s(now_s));
        if used_s >= since_s && self.life(at, &hit.item) == Life::Live {
            show(&Seen::InMemory(self, &hit));
        }
    }

    /// About how many items are on flash and not in memory: see [`larder_flash::Flash::live_items`]. How many of them
    /// memory has as well is estimated from the items of `buckets_max` buckets.
    pub fn items_on_flash_alone(&self, buckets_max: usize) -> u64 {
        let Some(flash) = self.demoter().map(Demoter::flash) else { return 0 };
        let live = flash.live_items();
        if live == 0 {
            return 0;
        }
        let (mut seen, mut both) = (0u64, 0u64);
        let walk = self.walk(0, buckets_max, &mut |worker, hit| {
            seen += 1;
            both += u64::from(flash.may_hold(worker.cache.hash(hit.item.key())));
            true
        });
        if walk.next.is_some() {
            both = (u128::from(both) * u128::from(self.cache.items()) / u128::from(seen.max(1))) as u64;
        }
        live.saturating_sub(both)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cache, CacheOptions};

    #[test]
    fn without_flash_a_cursor_is_a_bucket() {
        let options = CacheOptions { limit_bytes: 16 << 20, workers: 1, ..CacheOptions::default() };
        let worker = Cache::new(options).unwrap().worker();
        for bucket in [0, 1, 70_000, 1 << 33] {
            assert_eq!(worker.cursor_of(&worker.tour_at(bucket)), bucket);
        }
        assert_eq!(worker.cursor_of(&Tour { at: At::End, ..worker.begin_tour() }), 0);
    }
}
