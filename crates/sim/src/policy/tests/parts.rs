//! Tests of the structures below the policies: lists, heap, sample set, sketch, LHD's densities.

use std::collections::{BTreeSet, HashMap, VecDeque};

use proptest::prelude::*;

use crate::mix::SplitMix;
use crate::policy::heap::Heap;
use crate::policy::lhd_classes::Classes;
use crate::policy::sample_set::SampleSet;
use crate::policy::sketch::Sketch;
use crate::policy::slots::Slots;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn slots_are_lists_of_items(steps in prop::collection::vec((0..6u8, 0..20u32, 0..3u8, 1..9u32), 1..300)) {
        let mut slots: Slots<()> = Slots::new(1000, 3);
        let mut lists = vec![VecDeque::<(u32, u32)>::new(); 3];
        let mut ghosts = BTreeSet::new();
        for (what, id, to, size) in steps {
            let at = (0..3).find_map(|list| {
                lists[list].iter().position(|&(there, _)| there == id).map(|position| (list, position))
            });
            prop_assert_eq!(slots.find(id).is_some(), at.is_some());
            match (what, slots.find(id), at) {
                (_, None, None) => {
                    slots.add_to(to, id, size, ());
                    lists[usize::from(to)].push_front((id, size));
                }
                (0, Some(slot), Some((list, position))) => {
                    slots.free(slot);
                    lists[list].remove(position);
                    ghosts.remove(&id);
                }
                (1, Some(slot), Some((list, position))) => {
                    slots.resize(slot, size);
                    lists[list][position].1 = size;
                }
                (2, Some(slot), _) => {
                    slots.make_ghost(slot);
                    ghosts.insert(id);
                }
                (_, Some(slot), Some((list, position))) => {
                    slots.move_to(to, slot);
                    let moved = lists[list].remove(position).expect("there");
                    lists[usize::from(to)].push_front(moved);
                }
                _ => unreachable!("found in one only"),
            }
            let there = || lists.iter().flatten().filter(|(id, _)| !ghosts.contains(id));
            prop_assert_eq!(slots.items(), there().count() as u64);
            prop_assert_eq!(slots.used(), there().map(|&(_, size)| u64::from(size)).sum::<u64>());
            for (number, list) in lists.iter().enumerate() {
                let mut walked = Vec::new();
                let mut slot = slots.tail(number as u8);
                while let Some(at) = slot {
                    prop_assert_eq!(usize::from(slots.list_of(at)), number);
                    walked.push((slots.id(at), slots.size(at)));
                    slot = slots.newer(at);
                }
                prop_assert_eq!(&walked, &list.iter().rev().copied().collect::<Vec<_>>());
                let sum: u64 = list.iter().map(|&(_, size)| u64::from(size)).sum();
                prop_assert_eq!(slots.list_size(number as u8), sum);
            }
        }
    }

    #[test]
    fn the_heap_yields_the_least_of_an_ordered_set(
        steps in prop::collection::vec((0..4u8, 0..30u32, 0..50u64), 1..300),
    ) {
        let mut heap = Heap::new();
        let mut key_of: HashMap<u32, (u64, u64)> = HashMap::new();
        for (ordinal, (what, slot, key)) in steps.into_iter().enumerate() {
            let key = (key, ordinal as u64);
            match (what, key_of.contains_key(&slot)) {
                (0, true) => {
                    heap.remove(slot);
                    key_of.remove(&slot);
                }
                (_, true) => {
                    heap.update(key, slot);
                    key_of.insert(slot, key);
                }
                (_, false) => {
                    heap.push(key, slot);
                    key_of.insert(slot, key);
                }
            }
            prop_assert_eq!(heap.least(), key_of.iter().map(|(&slot, &key)| (key, slot)).min());
        }
    }

    #[test]
    fn the_sketch_never_counts_too_few(ids in prop::collection::vec(0..40u32, 1..150)) {
        let mut sketch = Sketch::new();
        let mut exact: HashMap<u32, u64> = HashMap::new();
        for id in ids {
            sketch.add(id);
            *exact.entry(id).or_default() += 1;
            for (&id, &count) in &exact {
                prop_assert!(sketch.estimate(id) >= count.min(15));
            }
        }
    }
}

#[test]
fn the_sketch_tells_a_few_keys_apart_and_keeps_its_estimates_as_it_grows() {
    let mut sketch = Sketch::new();
    for id in 0..10 {
        for _ in 0..=id {
            sketch.add(id);
        }
    }
    let expected: Vec<u64> = (1..=10).collect();
    let estimates = |sketch: &Sketch| (0..10).map(|id| sketch.estimate(id)).collect::<Vec<u64>>();
    assert_eq!(estimates(&sketch), expected);
    sketch.fit(5_000);
    assert_eq!(estimates(&sketch), expected);
    (1_000..40_000).for_each(|id| sketch.add(id));
    let lifted = estimates(&sketch).iter().zip(&expected).filter(|(now, before)| now > before).count();
    assert!(lifted <= 5, "{lifted} of 10 grew by collisions alone");
}

#[test]
fn the_sketch_halves_after_ten_uses_per_item() {
    let mut sketch = Sketch::new();
    sketch.fit(100);
    for _ in 0..999 {
        sketch.add(1);
    }
    assert_eq!(sketch.estimate(1), 15);
    sketch.add(1);
    assert_eq!(sketch.estimate(1), 7);
}

#[test]
fn the_urn_draws_each_slot_about_as_often() {
    let mut residents = SampleSet::default();
    (0..20).for_each(|slot| residents.insert(slot));
    (0..20).step_by(2).for_each(|slot| residents.remove(slot));
    let mut rng = SplitMix::new(3);
    let mut drawn = HashMap::<u32, u32>::new();
    for _ in 0..10_000 {
        *drawn.entry(residents.sample(&mut rng)).or_default() += 1;
    }
    assert_eq!(drawn.len(), 10);
    assert!(drawn.iter().all(|(&slot, &times)| slot % 2 == 1 && (850..1150).contains(&times)), "{drawn:?}");
}

#[test]
fn a_density_is_the_hits_to_come_over_the_time_to_come() {
    let ages = 40;
    let mut classes = Classes::new(ages, 0);
    let mut rng = SplitMix::new(9);
    let (mut hits, mut events) = (vec![0.0; ages], vec![0.0; ages]);
    for _ in 0..3_000 {
        let age = rng.below(ages as u32) as usize;
        events[age] += 1.0;
        if rng.below(3) == 0 {
            hits[age] += 1.0;
            classes.count_hit(ages as u32, age);
        } else {
            classes.count_eviction(ages as u32, age);
        }
    }
    classes.reconfigure(100, 0);
    for age in 0..ages - 1 {
        let to_come: f64 = hits[age..].iter().sum();
        let time: f64 = (age..ages).map(|end| events[end] * (end - age + 1) as f64).sum();
        let density = f64::from(classes.density(ages as u32, age));
        assert!((density - to_come / time).abs() < 1e-4, "age {age}: {density} {}", to_come / time);
    }
}

#[test]
fn a_longer_step_of_age_makes_all_ages_smaller_and_keeps_what_was_learnt() {
    let mut classes = Classes::new(64, 0);
    for _ in 0..1_000 {
        classes.count_hit(64, 8);
        classes.count_eviction(64, 40);
    }
    assert_eq!(classes.coarse(40), 40);
    // 16 items need 0.64 steps: from here on a step is 32 requests.
    classes.reconfigure(16, 5);
    assert_eq!(classes.coarse(40), 1);
    assert_eq!(classes.coarse(1 << 30), 63);
    // Hits at age 8 are now in step 0, evictions at age 40 in step 1: one hit for the 1 + 2 steps of two items.
    let density = classes.density(64, 0);
    assert!((density - 1.0 / 3.0).abs() < 1e-3, "{density}");
    assert_eq!(classes.density(64, 1), 0.0);
}
