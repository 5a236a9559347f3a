//! Tests of the Bloom filters: no false negatives, few false positives, the removal filter, and rebuilding.

use proptest::prelude::*;

use super::super::filters::{Bloom, GroupFilters, Probe};
use larder_curve::mix::hash_of;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_filter_knows_all_its_members_and_few_others(elements in 1_usize..2000, seed in any::<u64>()) {
        let mut filter = Bloom::new(elements);
        let member = |at: u64| hash_of(seed.wrapping_add(at));
        (0..elements as u64).for_each(|at| filter.insert(Probe::of(member(at))));
        prop_assert!((0..elements as u64).all(|at| filter.contains(Probe::of(member(at)))));
        let wrong = (0..10_000).filter(|at| filter.contains(Probe::of(member(1 << 40 | at)))).count();
        prop_assert!(wrong < 250, "{wrong} of 10000 strangers are known");
    }
}

#[test]
fn an_item_is_in_the_lowest_segment_that_knows_it() {
    let mut filters = GroupFilters::new(2, 8);
    filters.enter(1, 77);
    assert_eq!(filters.judge(1..=2, 77), Some(1));
    filters.enter(2, 77);
    assert_eq!(filters.judge(1..=2, 77), Some(2));
    assert_eq!(filters.judge(3..=4, 77), None);
}

#[test]
fn a_removed_item_is_in_no_segment_until_it_enters_one_again() {
    let mut filters = GroupFilters::new(1, 8);
    filters.enter(1, 5);
    filters.enter(1, 6);
    filters.remove(5);
    filters.remove(6);
    assert_eq!((filters.judge(1..=1, 5), filters.judge(1..=1, 6)), (None, None));
    filters.enter(1, 5);
    // The removal filter was cleared, so the other key counts as a member as well, as in the paper.
    assert_eq!((filters.judge(1..=1, 5), filters.judge(1..=1, 6)), (Some(1), Some(1)));
}

#[test]
fn a_filter_that_took_one_and_a_half_segments_of_items_is_rebuilt_from_one() {
    let mut filters = GroupFilters::new(1, 4);
    (0..5).for_each(|key| filters.enter(1, key));
    assert!(filters.take_due().is_empty());
    filters.enter(1, 5);
    assert_eq!(filters.take_due(), [1]);
    filters.rebuild(1, 2..6);
    assert!((2..6).all(|key| filters.judge(1..=1, key) == Some(1)));
    assert!((0..2).any(|key| filters.judge(1..=1, key).is_none()));
    assert!(filters.take_due().is_empty());
}

#[test]
fn new_filters_know_of_no_removals() {
    let mut filters = GroupFilters::new(1, 4);
    filters.enter(1, 7);
    filters.remove(7);
    assert_eq!(filters.judge(1..=1, 7), None);
    filters.forget_removals();
    assert_eq!(filters.judge(1..=1, 7), Some(1));
}
