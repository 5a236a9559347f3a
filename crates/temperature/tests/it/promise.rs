//! No false negatives, as the trait defines them: across batches, agings in pieces, and growth.

use crate::common::{Step, cases, references, steps, zones};
use larder_temperature::{Hitmap, LineHitmap, PublishedHitmap, PublishedOptions};
use proptest::prelude::*;
use std::collections::HashSet;

const KEYS: u32 = if cfg!(miri) { 15 } else { 300 };
/// The most items for which maps grow.
const ITEMS: u64 = if cfg!(miri) { 300 } else { 2000 };
/// Items of a map that has space for a few keys.
const ROOM: u64 = if cfg!(miri) { 80 } else { 10_000 };

/// The lowest zone that a key may be in. While an aging is in progress, a caller cannot know whether it has reached
/// the key.
#[derive(Clone, Copy, Default, Debug)]
struct Promise {
    if_aged: u8,
    if_not: u8,
}

struct Promises {
    of: Vec<Promise>,
    levels: u8,
    aging: bool,
}

impl Promises {
    fn new(levels: u8) -> Promises {
        Promises { of: vec![Promise::default(); KEYS as usize], levels, aging: false }
    }

    fn mark(&mut self, batch: &[(u32, bool)]) {
        let keys: HashSet<u32> = batch.iter().map(|(key, _)| *key).collect();
        for key in keys {
            let promise = &mut self.of[key as usize];
            promise.if_not = (promise.if_not + 1).min(self.levels);
            // The key was aged before this mark, or between the mark and now.
            let before = (promise.if_aged + 1).min(self.levels);
            promise.if_aged = before.min(promise.if_not.saturating_sub(1));
        }
    }

    fn age(&mut self) {
        if !std::mem::replace(&mut self.aging, true) {
            self.of.iter_mut().for_each(|promise| promise.if_aged = promise.if_not.saturating_sub(1));
        }
    }

    /// The last line was folded: every key that was not aged before is aged now.
    fn aged(&mut self) {
        if std::mem::take(&mut self.aging) {
            for promise in &mut self.of {
                let now = promise.if_aged.min(promise.if_not.saturating_sub(1));
                *promise = Promise { if_aged: now, if_not: now };
            }
        }
    }

    fn kept_by(&self, map: &mut dyn Hitmap) {
        let keys: Vec<u32> = (0..KEYS).collect();
        for ((key, zone), promise) in keys.iter().zip(zones(map, &keys)).zip(&self.of) {
            let least = if self.aging { promise.if_aged.min(promise.if_not) } else { promise.if_not };
            assert!(
                zone >= least && zone <= self.levels,
                "key {key} in zone {zone}, at least {least} was promised"
            );
        }
    }
}

fn keeps_its_promise(map: &mut dyn Hitmap, steps: &[Step]) {
    let mut promises = Promises::new(map.levels());
    for step in steps {
        match step {
            Step::Mark(batch) => {
                map.mark(&references(batch));
                promises.mark(batch);
            }
            Step::Zones(_) => {}
            Step::Age => {
                map.age();
                promises.age();
                if !map.age_some(0) {
                    promises.aged();
                }
            }
            Step::AgeSome(bytes) => {
                if !map.age_some(*bytes) {
                    promises.aged();
                }
            }
            Step::Grow(items) => map.grow(*items),
        }
        promises.kept_by(map);
    }
}

/// More than the trait promises: an aging takes one zone from each key when it begins, and nothing later.
fn keeps_every_mark(map: &mut dyn Hitmap, steps: &[Step]) {
    let keys: Vec<u32> = (0..KEYS).collect();
    let mut least = vec![0u8; keys.len()];
    for step in steps {
        match step {
            Step::Mark(batch) => {
                map.mark(&references(batch));
                for key in batch.iter().map(|(key, _)| *key).collect::<HashSet<_>>() {
                    least[key as usize] = (least[key as usize] + 1).min(map.levels());
                }
            }
            Step::Zones(_) => {}
            Step::Age => {
                if !map.age_some(0) {
                    least.iter_mut().for_each(|zone| *zone = zone.saturating_sub(1));
                }
                map.age();
            }
            Step::AgeSome(bytes) => drop(map.age_some(*bytes)),
            Step::Grow(items) => map.grow(*items),
        }
        for ((key, zone), least) in keys.iter().zip(zones(map, &keys)).zip(&least) {
            assert!(zone >= *least, "key {key} in zone {zone}, at least {least} was promised");
        }
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn the_line_map_has_no_false_negatives(steps in steps(KEYS, ITEMS)) {
        // At first one line for all keys, later one for a few keys.
        keeps_its_promise(&mut LineHitmap::for_items(64), &steps);
    }

    #[test]
    fn the_published_map_has_no_false_negatives(
        steps in steps(KEYS, ITEMS), levels in 1u8..=6, hash_bits in 1u8..=4, set_counter: bool, first in 0..ITEMS,
    ) {
        let options = PublishedOptions { levels, hash_bits, set_counter, ..PublishedOptions::default() };
        keeps_every_mark(&mut PublishedHitmap::for_items(first, options), &steps);
    }
}

#[test]
fn what_was_stored_survives_one_aging_more() {
    for set_counter in [true, false] {
        let options = PublishedOptions { set_counter, ..PublishedOptions::default() };
        let mut map = PublishedHitmap::for_items(ROOM, options);
        map.mark(&references(&[(1, true), (2, false)]));
        assert_eq!(zones(&mut map, &[1, 2]), [1, 1]);
        map.age();
        assert_eq!(zones(&mut map, &[1, 2]), [u8::from(set_counter), 0]);
        assert!(map.age_some(0) && !map.age_some(usize::MAX));
        assert_eq!(zones(&mut map, &[1, 2]), [u8::from(set_counter), 0]);
        map.age();
        assert_eq!(zones(&mut map, &[1, 2]), [0, 0]);
    }
}

#[test]
fn what_is_stored_during_an_aging_survives_the_next_one() {
    // The map has eight stripes at least. A stored key folds the three that its bits are in.
    let mut map = PublishedHitmap::for_items(8 * ROOM, PublishedOptions::default());
    map.mark(&references(&[(1, true), (2, false)]));
    map.age();
    map.mark(&references(&[(3, true), (4, false)]));
    map.age();
    assert_eq!(zones(&mut map, &[1, 2, 3, 4]), [1, 0, 1, 1], "the same aging is still in progress");
    while map.age_some(4096) {}
    assert_eq!(zones(&mut map, &[1, 2, 3, 4]), [1, 0, 1, 1]);
    map.age();
    assert_eq!(zones(&mut map, &[1, 2, 3, 4]), [0, 0, 1, 0]);
}

#[test]
fn a_key_climbs_to_the_top_and_ages_down_again() {
    let published = PublishedHitmap::for_items(ROOM, PublishedOptions::default());
    let maps: [Box<dyn Hitmap>; 2] = [Box::new(LineHitmap::for_items(ROOM)), Box::new(published)];
    for mut map in maps {
        let levels = map.levels();
        for zone in (1..=levels).chain([levels]) {
            // Twice in a batch counts once.
            map.mark(&references(&[(5, false), (5, true)]));
            assert_eq!(zones(&mut *map, &[5, 6]), [zone, 0]);
        }
        for zone in (0..levels).rev().chain([0]) {
            map.age();
            while map.age_some(6400) {}
            assert_eq!(zones(&mut *map, &[5, 6]), [zone, 0]);
        }
    }
}
