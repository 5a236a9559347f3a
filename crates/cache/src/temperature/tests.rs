//! The policies, without a cache around them.

use super::hitmap::{HitmapMaker, LazyHitmap, Published};
use super::keep_limit::keep_within;
use super::*;
use crate::ranking::{Candidate, ColumnStatus};
use larder_allocation::{ColumnBounds, Subclass};
use larder_item::KeyHash;
use larder_memory::ColumnId;
use larder_temperature::{Answers, Arm, Cooling, Digest, Hitmap, LineHitmap, Reference};
use proptest::prelude::*;
use std::collections::VecDeque;

/// Every column may go, and all bytes in it are live.
fn all_ready(column: ColumnId, _: u64) -> Candidate {
    Candidate::Ready(ColumnStatus { column, live_bytes: 100, column_bytes: 100 })
}

/// Everything may stay.
const BOUNDS: ColumnBounds = ColumnBounds { column_bytes: 1 << 20, keep_bytes_max: u64::MAX };

fn item(hash: u64, warmth: u8) -> Judged {
    Judged {
        hash: KeyHash(hash.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        warmth,
        bytes: 10,
        subclass: Subclass::UNKNOWN,
    }
}

fn verdicts(of: &mut dyn Temperature, queue: Queue, items: &[Judged]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    of.judge(queue, items, BOUNDS, &mut verdicts);
    verdicts
}

/// A cache without items.
struct Empty;

impl Residents for Empty {
    fn sample(&mut self, _: usize, _: &mut Vec<Resident>) {}
}

const KEEP: Verdict = Verdict::Keep { warmth: 0 };

#[test]
fn probation_asks_for_one_read_and_the_main_columns_for_one_a_sweep() {
    let mut sweep = Sweep::by_entry();
    sweep.fit(1000);
    let items = [item(1, 0), item(2, 1), item(3, 3)];
    assert_eq!(verdicts(&mut sweep, Queue::Probation, &items), [Verdict::Evict, KEEP, KEEP]);
    assert_eq!(
        verdicts(&mut sweep, Queue::Main, &items),
        [Verdict::Evict, KEEP, Verdict::Keep { warmth: 2 }]
    );
    let stats = sweep.stats();
    assert_eq!((stats.promoted, stats.evicted_probation, stats.evicted_main), (2, 1, 1));
}

#[test]
fn columns_that_were_judged_before_the_number_of_items_was_known_do_no_harm() {
    let mut sweep = Sweep::by_entry();
    let items = [item(1, 0), item(2, 0)];
    (0..3).for_each(|_| drop(verdicts(&mut sweep, Queue::Main, &items)));
    sweep.fit(1000);
    for _ in 0..3 {
        assert_eq!(verdicts(&mut sweep, Queue::Main, &items), [Verdict::Evict; 2]);
    }
}

#[test]
fn in_a_cache_that_has_become_smaller_the_main_columns_do_not_all_give() {
    for items in [600, 1200] {
        let mut sweep = Sweep::by_entry();
        sweep.fit(1000);
        let stores = |from: u64| (from..from + 2000).map(|n| Reference::store(Digest::of(item(n, 0).hash)));
        sweep.refer(&stores(0).collect::<Vec<_>>(), &mut Empty);
        (0..90).for_each(|nth| sweep.sealed(ColumnId(nth), nth.into(), Queue::Probation));
        (90..95).for_each(|nth| sweep.sealed(ColumnId(nth), nth.into(), Queue::Main));
        // No reference comes between.
        sweep.fit(items);
        (0..40).for_each(|nth| assert_eq!(sweep.victim(&mut all_ready), Some(ColumnId(nth)), "{items}"));
    }
}

#[test]
fn an_arm_says_how_many_of_the_newest_columns_do_not_count_reads() {
    let of_share = Arm::of_share(0.2);
    for (arm, expected) in [(of_share, 0), (Arm { correlated: 0.5, ..of_share }, 4)] {
        let mut sweep = Sweep::of(&[arm]);
        (0..40).for_each(|nth| sweep.sealed(ColumnId(nth), nth.into(), Queue::Probation));
        assert_eq!(sweep.correlated_columns(), expected);
    }
}

#[test]
fn what_an_arm_lets_in_for_nothing_is_no_hit_of_the_ghost() {
    let mut sweep = Sweep::of(&[Arm { fills: true, ..Arm::of_share(0.1) }]);
    sweep.fit(1000);
    sweep.sealed(ColumnId(1), 1, Queue::Probation);
    let items: Vec<_> = (0..100).map(|nth| item(nth, 0)).collect();
    let kept = verdicts(&mut sweep, Queue::Probation, &items);
    assert!((30..70).contains(&kept.iter().filter(|verdict| **verdict == KEEP).count()));
    assert_eq!(sweep.stats().ghost_hits, 0);
}

#[test]
fn an_item_that_was_evicted_lately_is_kept_when_it_comes_back() {
    let mut sweep = Sweep::by_entry();
    sweep.fit(1000);
    for queue in [Queue::Probation, Queue::Main] {
        assert_eq!(verdicts(&mut sweep, queue, &[item(7, 0)]), [Verdict::Evict]);
        assert_eq!(verdicts(&mut sweep, Queue::Probation, &[item(7, 0)]), [KEEP], "{queue:?}");
        // The ghost has forgotten the key: one eviction counts once.
        assert_eq!(verdicts(&mut sweep, Queue::Probation, &[item(7, 0)]), [Verdict::Evict]);
        assert_eq!(verdicts(&mut sweep, Queue::Probation, &[item(7, 0)]), [KEEP]);
    }
    assert_eq!(sweep.stats().ghost_hits, 4);
}

#[test]
fn an_item_that_was_to_go_and_was_spared_is_not_known_as_evicted() {
    let mut sweep = Sweep::by_entry();
    sweep.fit(1000);
    for queue in [Queue::Probation, Queue::Main] {
        assert_eq!(verdicts(&mut sweep, queue, &[item(7, 0)]), [Verdict::Evict]);
        sweep.spare(queue, &item(7, 0));
    }
    assert_eq!(verdicts(&mut sweep, Queue::Probation, &[item(7, 0)]), [Verdict::Evict]);
    let stats = sweep.stats();
    assert_eq!((stats.ghost_hits, stats.evicted_probation, stats.evicted_main), (0, 1, 0));
}

#[test]
fn what_is_kept_about_an_item_is_small() {
    let shadows_bytes = Sweep::by_entry().bytes_for(0);
    for items in [1_000_000, 10_000_000] {
        for (name, bytes_max, entry_bits) in [("entry", 2.5, 2.0), ("hitmap", 8.0, 0.0)] {
            let mut policy = TemperatureKind::named(name).expect("a kind").build();
            policy.fit(items);
            for of in [items, items * 3 / 2, items * 2] {
                policy.fit(of);
                let bytes = (policy.bytes_for(of) - shadows_bytes) as f64 / of as f64 + entry_bits / 8.0;
                assert!(bytes <= bytes_max, "{name}: {bytes} for each of {of} items");
            }
        }
    }
}

#[test]
fn the_probation_gives_when_it_has_more_than_its_share() {
    let mut sweep = Sweep::by_entry();
    for n in 0..40 {
        let queue = if n < 10 { Queue::Probation } else { Queue::Main };
        sweep.sealed(ColumnId(n), u64::from(n), queue);
    }
    // Ten of forty columns are more than a tenth, and so are four of 34; three of 33 are not.
    let order: Vec<u32> =
        (0..9).filter_map(|_| sweep.victim(&mut all_ready)).map(|column| column.0).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 10, 11]);
}

/// A policy of one arm.
fn sweep_of(arm: Arm) -> Sweep {
    let mut sweep = Sweep::of(&[arm]);
    sweep.fit(1000);
    sweep
}

#[test]
fn an_arm_that_takes_columns_in_order_takes_the_oldest_of_either_queue() {
    let mut sweep = sweep_of(Arm { in_order: true, ..Arm::of_share(1.0) });
    for (column, birth, queue) in [
        (1, 3, Queue::Probation),
        (2, 4, Queue::Main),
        (3, 5, Queue::Probation),
        (4, 6, Queue::Probation),
        (5, 1, Queue::Main),
    ] {
        sweep.sealed(ColumnId(column), birth, queue);
    }
    let order: Vec<u32> = (0..5).filter_map(|_| sweep.victim(&mut all_ready)).map(|id| id.0).collect();
    assert_eq!(order, [1, 2, 5, 3, 4]);
}

#[test]
fn the_main_columns_give_if_they_have_more_than_the_best_shadow_keeps() {
    let mut sweep = sweep_of(Arm::of_share(0.1));
    for n in 0..40 {
        let queue = if n < 10 { Queue::Probation } else { Queue::Main };
        sweep.sealed(ColumnId(n), u64::from(n), queue);
    }
    // Keys that come once: the shadow has nothing to keep, and is all probation. One in ten columns may be more.
    let once: Vec<Reference> = (0..3000).map(|n| Reference::store(Digest::of(item(n, 0).hash))).collect();
    sweep.refer(&once, &mut Empty);
    let gone: Vec<u32> = (0..30).filter_map(|_| sweep.victim(&mut all_ready)).map(|id| id.0).collect();
    // 10 of 11 columns are more than 0.9, and 9 of 10 are not.
    let expected: Vec<u32> = (10..39).chain([0]).collect();
    assert_eq!(gone, expected);
}

#[test]
fn an_arm_says_how_many_reads_end_probation_and_how_warm_an_item_stays() {
    let arm = Arm { reads: 2, keeps_reads: true, cooling: Cooling::Slow, ..Arm::of_share(0.1) };
    let mut sweep = sweep_of(arm);
    let items = [item(1, 1), item(2, 2), item(3, 3)];
    let stay = [Verdict::Evict, Verdict::Keep { warmth: 1 }, Verdict::Keep { warmth: 2 }];
    assert_eq!(verdicts(&mut sweep, Queue::Probation, &items), stay);
    // The ghost knows the first one by now.
    assert_eq!(verdicts(&mut sweep, Queue::Probation, &items[..1]), [KEEP]);
    assert_eq!(sweep.stats().ghost_hits, 1);
    let hot: Vec<Judged> = (0..1000).map(|n| item(n, 3)).collect();
    let still_hot = |verdict: &&Verdict| **verdict == Verdict::Keep { warmth: 3 };
    let spared = verdicts(&mut sweep, Queue::Main, &hot).iter().filter(still_hot).count();
    assert!((400..600).contains(&spared), "{spared}");
}

#[test]
fn a_sparse_column_goes_first_and_one_that_is_gone_is_forgotten() {
    for kind in TemperatureKind::ALL {
        let mut policy = kind.build();
        for n in 0..12 {
            policy.sealed(ColumnId(n), u64::from(n) + 1, Queue::Probation);
        }
        let mut status_of = |column: ColumnId, birth| match column.0 {
            0 => Candidate::Gone,
            1 => Candidate::Later,
            5 => Candidate::Ready(ColumnStatus { column, live_bytes: 10, column_bytes: 100 }),
            _ => all_ready(column, birth),
        };
        let order: Vec<u32> = (0..3).filter_map(|_| policy.victim(&mut status_of)).map(|c| c.0).collect();
        assert_eq!(order, [5, 2, 3], "{}", kind.name());
        assert_eq!(policy.columns(), 12 - 4, "{}", kind.name());
        assert!(policy.victim(&mut |_, _| Candidate::Later).is_none(), "{}", kind.name());
    }
}

#[test]
fn a_hitmap_keeps_what_was_read_until_it_has_aged() {
    let arms = [0.1, 0.4, 0.8].map(Arm::of_share);
    let mut sweep = Sweep::by_record(Box::new(LazyHitmap::new(HitmapMaker::line())), &arms);
    // Before the number of items is known, there is no hitmap.
    assert_eq!(sweep.wanted_below(), 0);
    sweep.fit(1000);
    assert_eq!(sweep.wanted_below(), 1 << 31);
    let read: Vec<Judged> = (0..600).map(|n| item(n, 0)).collect();
    let marks: Vec<Reference> = read.iter().map(|item| Reference::read(Digest::of(item.hash))).collect();
    sweep.refer(&marks, &mut Empty);
    let stored: Vec<_> = (1000..1600).map(|n| Reference::store(Digest::of(item(n, 0).hash))).collect();
    sweep.refer(&stored, &mut Empty);
    assert_eq!(sweep.stats().references, 1200);
    assert!(verdicts(&mut sweep, Queue::Probation, &read).iter().all(|verdict| *verdict == KEEP));
    let cold: Vec<Judged> = (1000..1600).map(|n| item(n, 3)).collect();
    let stay = verdicts(&mut sweep, Queue::Probation, &cold).iter().filter(|v| **v == KEEP).count();
    assert!(stay < 200, "{stay} of 600 that were only stored");
    // A sweep over the main columns ages the hitmap once. Afterwards its items are cold.
    assert!(verdicts(&mut sweep, Queue::Main, &read).iter().all(|verdict| *verdict == KEEP));
    assert_eq!(sweep.stats().agings, 1);
    sweep.refer(&[], &mut Empty);
    let left = verdicts(&mut sweep, Queue::Main, &read).iter().filter(|v| **v == KEEP).count();
    assert!(left < 100, "{left} of 600 after an aging");
}

/// A hitmap on another processor. Asked ahead, it answers each batch when the next one comes, and drops one of three
/// references; otherwise it is waited for.
struct Apart {
    map: LineHitmap,
    is_asked_ahead: bool,
    under_way: VecDeque<(Vec<Reference>, Vec<Digest>)>,
    late: u64,
}

impl Hitmap for Apart {
    fn mark(&mut self, references: &[Reference]) {
        assert!(!self.is_asked_ahead);
        self.map.mark(references);
    }

    fn zones(&mut self, digests: &[Digest], zones: &mut Vec<u8>) {
        assert!(!self.is_asked_ahead);
        self.map.zones(digests, zones);
    }

    fn submit(&mut self, references: &[Reference], digests: &[Digest], answers: &mut Answers) {
        assert!(self.is_asked_ahead);
        self.under_way.push_back((references.to_vec(), digests.to_vec()));
        if self.under_way.len() > 1
            && let Some((references, digests)) = self.under_way.pop_front()
        {
            if references.len() == 3 {
                self.late += 1;
                return answers.push_back(Vec::new());
            }
            self.map.submit(&references, &digests, answers);
        }
    }

    fn is_apart(&self) -> bool {
        true
    }

    fn late(&self) -> u64 {
        self.late
    }

    fn age(&mut self) {
        self.map.age();
    }

    fn age_some(&mut self, bytes: usize) -> bool {
        self.map.age_some(bytes)
    }

    fn grow(&mut self, items: u64) {
        self.map.grow(items);
    }

    fn bytes_for(&self, items: u64) -> u64 {
        self.map.bytes_for(items)
    }

    fn levels(&self) -> u8 {
        self.map.levels()
    }

    fn processor(&self) -> String {
        "a processor apart".to_owned()
    }
}

fn apart(batch_references: usize, is_asked_ahead: bool) -> HitmapMaker {
    let make = move |items| Apart {
        map: LineHitmap::for_items(items),
        is_asked_ahead,
        under_way: VecDeque::new(),
        late: 0,
    };
    HitmapMaker {
        make: Box::new(move |items| Box::new(make(items))),
        bytes_for: Box::new(|_| 0),
        batch_references,
        asks_ahead: is_asked_ahead,
    }
}

/// A cache whose columns have the items from their number times 100 on.
struct Hundreds;

impl Residents for Hundreds {
    fn sample(&mut self, count: usize, found: &mut Vec<Resident>) {
        let resident =
            |n: u64| Resident { hash: item(n * 100, 0).hash, column: ColumnId(n as u32), birth: n };
        found.extend((0..count as u64).map(|n| resident(n % 10)));
    }

    fn of_column(&mut self, column: ColumnId, birth: u64, found: &mut Vec<KeyHash>) {
        assert_eq!(u64::from(column.0), birth);
        found.extend((0..100).map(|n| item(birth * 100 + n, 0).hash));
    }
}

#[test]
fn a_hitmap_apart_is_asked_ahead_and_not_waited_for() {
    let arms = [0.1, 0.4, 0.8].map(Arm::of_share);
    let mut sweep = Sweep::by_record(Box::new(LazyHitmap::new(apart(10, true))), &arms);
    let mut published = Published::new(apart(10, true));
    let reads: Vec<Reference> = (10..60).map(|n| Reference::read(Digest::of(item(n, 0).hash))).collect();
    let kept_of = |of: &mut dyn Temperature, column: u64| {
        let items: Vec<Judged> =
            (0..100).map(|n| item(100 * column + n, u8::from(column > 0 && n < 20))).collect();
        let kept = verdicts(of, Queue::Probation, &items);
        (0..100).filter(|nth| kept[*nth] == KEEP).collect::<Vec<_>>()
    };
    let policies: [&mut dyn Temperature; 2] = [&mut sweep, &mut published];
    for of in policies {
        of.fit(1000);
        (0..10).for_each(|n| of.sealed(ColumnId(n), u64::from(n), Queue::Probation));
        // Where it has not answered, the entries say what is warm.
        assert_eq!(kept_of(of, 5), (0..20).collect::<Vec<_>>());
        of.refer(&reads[..5], &mut Hundreds);
        of.refer(&reads[5..50], &mut Hundreds);
        // The device has marked the batch, and the next one asks for the column.
        of.refer(&reads[..10], &mut Hundreds);
        of.refer(&reads[..10], &mut Hundreds);
        of.refer(&reads[..10], &mut Hundreds);
        let kept = kept_of(of, 0);
        assert!((10..60).all(|read| kept.contains(&read)) && kept.len() < 70, "{kept:?}");
        assert_eq!(of.stats().late, 0);
    }
    // Batches that the device drops are answered by nothing, and counted.
    let mut published = Published::new(apart(0, true));
    published.fit(1000);
    (0..10).for_each(|n| published.sealed(ColumnId(n), u64::from(n), Queue::Probation));
    for _ in 0..20 {
        published.refer(&reads[..3], &mut Hundreds);
        published.refer(&reads[..4], &mut Hundreds);
    }
    assert_eq!(published.stats().late, 20);
    assert!(published.victim(&mut all_ready).is_some());
    // One that is waited for drops nothing.
    let record = || Box::new(LazyHitmap::new(apart(0, false)));
    let policies: [&mut dyn Temperature; 2] =
        [&mut Sweep::by_record(record(), &arms), &mut Published::new(apart(0, false))];
    for of in policies {
        of.fit(1000);
        (0..10).for_each(|n| of.sealed(ColumnId(n), u64::from(n), Queue::Probation));
        reads.chunks(3).for_each(|reads| of.refer(reads, &mut Hundreds));
        let kept = kept_of(of, 0);
        assert!((10..60).all(|read| kept.contains(&read)) && kept.len() < 70, "{kept:?}");
        assert_eq!(of.stats().late, 0);
    }
}

/// A cache of columns of one item each, as many as the first number says, which are sampled in turn.
struct Singles(u32, u32);

impl Residents for Singles {
    fn sample(&mut self, count: usize, found: &mut Vec<Resident>) {
        for _ in 0..count {
            self.1 = (self.1 + 1) % self.0;
            let n = u64::from(self.1);
            found.push(Resident { hash: item(n, 0).hash, column: ColumnId(self.1), birth: n });
        }
    }
}

#[test]
fn the_victim_pool_offers_the_coldest_sampled_columns() {
    let mut published = Published::new(HitmapMaker::published(Default::default()));
    published.fit(1000);
    for n in 0..1000 {
        published.sealed(ColumnId(n), u64::from(n), Queue::Probation);
    }
    // Even items are read once, items divisible by four twice, and the first hundred are not sampled.
    for step in [2, 4] {
        let reads: Vec<_> =
            (0..1000).step_by(step).map(|n| Reference::read(Digest::of(item(n, 0).hash))).collect();
        published.refer(&reads, &mut Empty);
    }
    let mut rest = Singles(1000, 99);
    published.sample(900, &mut rest);
    let order: Vec<u32> = (0..300).filter_map(|_| published.victim(&mut all_ready)).map(|c| c.0).collect();
    let odd = order.iter().filter(|n| *n % 2 == 1).count();
    assert!(odd > 290 && order.iter().all(|n| *n >= 100), "{odd} of 300 were cold");
    assert_eq!(published.stats().drained, 0);
}

proptest! {
    #[test]
    fn what_is_kept_keeps_within_and_the_least_warm_leave_first(
        mut levels in prop::collection::vec(0u8..5, 0..60),
        bytes in 1u32..50,
        keep_bytes_max in 0u64..2000,
    ) {
        let items: Vec<Judged> =
            (0..levels.len()).map(|n| Judged { bytes: bytes + n as u32 % 7, ..item(n as u64, 0) }).collect();
        let before = levels.clone();
        keep_within(&mut levels, &items, keep_bytes_max);
        let kept = |levels: &[u8]| -> u64 {
            levels.iter().zip(&items).filter(|(level, _)| **level > 0).map(|(_, item)| u64::from(item.bytes)).sum()
        };
        prop_assert!(kept(&levels) <= keep_bytes_max);
        let left = before.iter().zip(&levels).filter(|(before, after)| *before > *after).map(|(before, _)| *before);
        let warmest_left = left.max().unwrap_or(0);
        prop_assert!(levels.iter().all(|level| *level == 0 || *level >= warmest_left));
        prop_assert!(warmest_left > 0 || kept(&before) <= keep_bytes_max);
    }
}
