//! Compares the two hitmaps with their definition, bit for bit.

use crate::common::{Naive, Step, bits, cases, references, steps, zones};
use larder_temperature::{Hitmap, LineHitmap, PublishedHitmap, PublishedOptions};
use proptest::prelude::*;

/// Six levels have too many bits for Miri, which looks at each of them.
const LEVELS_MAX: u8 = if cfg!(miri) { 3 } else { 6 };
const KEYS: u32 = if cfg!(miri) { 30 } else { 200 };
/// The most items for which maps grow.
const ITEMS: u64 = if cfg!(miri) { 30 } else { 300 };

fn line_bits_agree(map: &LineHitmap, naive: &Naive) {
    assert!(map.words().as_ptr().cast::<[u8; 64]>().addr().is_multiple_of(64), "lines begin on lines");
    assert_eq!(map.words().len(), 8 * naive.lines.len());
    for (line, levels) in map.words().chunks(8).zip(&naive.lines) {
        assert_eq!(bits(line), levels.concat());
    }
    let cursor = (naive.to_fold > 0).then(|| (naive.lines.len() - naive.to_fold) as u64);
    assert_eq!(map.cursor(), cursor);
}

/// No aging may be in progress.
fn published_bits_agree(map: &PublishedHitmap, naive: &Naive) {
    for (counter, level) in map.counters().iter().zip(&naive.lines[0]) {
        assert_eq!(&bits(counter.words()), level);
    }
    assert_eq!(map.set_counter().map(|set| bits(set.words())), naive.set_counter);
}

/// Does a step on both maps and compares the results. `bytes` is the size of the naive map in memory.
fn step(map: &mut dyn Hitmap, naive: &mut Naive, step: &Step, bytes: impl Fn(&Naive) -> u64) {
    match step {
        Step::Mark(batch) => {
            map.mark(&references(batch));
            naive.mark(batch);
        }
        Step::Zones(keys) => {
            let expected: Vec<u8> = keys.iter().map(|&key| naive.zone(key)).collect();
            assert_eq!(zones(map, keys), expected);
        }
        Step::Age => {
            map.age();
            naive.age();
        }
        Step::AgeSome(some) => assert_eq!(map.age_some(*some), naive.age_some(*some)),
        Step::Grow(items) => {
            let promised = map.bytes_for(*items);
            assert!(promised >= bytes(naive));
            map.grow(*items);
            while bytes(naive) < promised {
                naive.double();
            }
            assert_eq!(bytes(naive), promised);
        }
    }
    assert_eq!(map.bytes_for(0), bytes(naive));
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn the_line_map_is_its_definition(items in 1..ITEMS / 2, steps in steps(KEYS, ITEMS)) {
        let mut map = LineHitmap::for_items(items);
        let mut naive = Naive::line(items.div_ceil(11) as usize);
        for one in &steps {
            step(&mut map, &mut naive, one, |naive| naive.lines.len() as u64 * 64);
            line_bits_agree(&map, &naive);
        }
        let mut moved = LineHitmap::from_words(map.words(), map.cursor());
        line_bits_agree(&moved, &naive);
        let keys: Vec<u32> = (0..KEYS).collect();
        prop_assert_eq!(zones(&mut moved, &keys), zones(&mut map, &keys));
    }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn the_published_map_is_its_definition(
        levels in 1u8..=LEVELS_MAX,
        hash_bits in 1u8..=4,
        set_counter: bool,
        bits_per_item in 2.0..32.0,
        steps in steps(KEYS, ITEMS),
    ) {
        let options = PublishedOptions { levels, hash_bits, bits_per_item, set_counter };
        let mut map = PublishedHitmap::for_items(0, options);
        let mut naive = Naive::published(hash_bits, 512, levels, set_counter);
        for one in &steps {
            step(&mut map, &mut naive, one, Naive::published_bytes);
            if naive.to_reach.is_empty() {
                published_bits_agree(&map, &naive);
            } else {
                step(&mut map, &mut naive, &Step::Zones((0..KEYS).collect()), Naive::published_bytes);
            }
        }
        prop_assert!(!map.age_some(usize::MAX));
        published_bits_agree(&map, &naive);
        let words = map.counters().iter().map(|counter| counter.words().to_vec()).collect();
        let set = map.set_counter().map(|set| set.words().to_vec());
        published_bits_agree(&PublishedHitmap::from_words(options, words, set), &naive);
    }
}

#[test]
fn a_batch_longer_than_what_is_fetched_ahead_is_one_batch() {
    let (count, items) = if cfg!(miri) { (24u32, 20) } else { (5000, 300) };
    let batch: Vec<(u32, bool)> = (0..count).map(|n| (n * n % 1000, n % 3 == 0)).collect();
    let mut line = LineHitmap::for_items(items);
    let mut line_naive = Naive::line(line.words().len() / 8);
    let mut published = PublishedHitmap::for_items(items, PublishedOptions::default());
    let first_bits = published.counters()[0].bits() as usize;
    let mut published_naive = Naive::published(3, first_bits, 4, true);
    for _ in 0..if cfg!(miri) { 1 } else { 3 } {
        line.mark(&references(&batch));
        line_naive.mark(&batch);
        published.mark(&references(&batch));
        published_naive.mark(&batch);
    }
    line_bits_agree(&line, &line_naive);
    published_bits_agree(&published, &published_naive);
}

/// The words of all counters, and those of the set counter.
fn words(map: &PublishedHitmap) -> Vec<Vec<u64>> {
    map.counters().iter().chain(map.set_counter()).map(|counter| counter.words().to_vec()).collect()
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn an_aging_in_pieces_gives_the_bits_of_one_at_once(
        levels in 1u8..=LEVELS_MAX,
        hash_bits in 1u8..=4,
        set_counter: bool,
        pieces in prop::collection::vec(0usize..30_000, 1..20),
    ) {
        let options = PublishedOptions { levels, hash_bits, set_counter, ..PublishedOptions::default() };
        let mut at_once = PublishedHitmap::for_items(10 * ITEMS, options);
        for batch in 1..=u32::from(levels) {
            let keys = (0..10 * KEYS / batch).map(|key| (key, key % 3 == batch % 3));
            at_once.mark(&references(&keys.collect::<Vec<_>>()));
        }
        let mut in_pieces = at_once.clone();
        at_once.age();
        prop_assert!(!at_once.age_some(usize::MAX));
        in_pieces.age();
        let mut pieces = pieces.iter().chain([&4096]).cycle();
        while in_pieces.age_some(*pieces.next().expect("it never ends")) {}
        prop_assert_eq!(words(&in_pieces), words(&at_once));
        prop_assert!(!at_once.age_some(0) && !in_pieces.age_some(0), "both are over");
    }
}

#[test]
fn the_order_of_a_batch_does_not_matter() {
    let mut batch: Vec<(u32, bool)> = (0..100).map(|n| (n * 7 % 60, n % 2 == 0)).collect();
    let (mut one, mut other) = (LineHitmap::for_items(20), LineHitmap::for_items(20));
    for _ in 0..3 {
        one.mark(&references(&batch));
        batch.reverse();
        other.mark(&references(&batch));
    }
    assert_eq!(one.words(), other.words());
}

#[test]
fn sizes_are_as_the_papers_and_the_layouts_say() {
    let line = LineHitmap::for_items(0);
    assert_eq!(line.bytes_for(0), 64);
    assert_eq!(line.bytes_for(11), 64);
    assert_eq!(line.bytes_for(12), 128);
    assert_eq!(line.bytes_for(11 << 20), 64 << 20);
    assert_eq!(line.bytes_for(u64::MAX), 64 << 28);
    // Catalyst, section 4.3: 256 MB in level 1 for 100 GB of items of about 300 bytes, and about 4 GB in all.
    let published = PublishedHitmap::for_items(0, PublishedOptions::default());
    assert_eq!(published.bytes_for(10 * (1 << 30) / 32), 4 << 30);
    assert_eq!(published.bytes_for(0), 64 * 16);
    assert_eq!(published.bytes_for(u64::MAX), (1 << 28) * 16);
    assert_eq!((line.levels(), published.levels()), (3, 4));
    assert_eq!((line.processor(), published.processor()), ("the CPU".to_string(), "the CPU".to_string()));
}
