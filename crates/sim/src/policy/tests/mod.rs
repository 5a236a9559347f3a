//! Compares every policy with a slow twin, written directly from the paper, on random streams.

mod parts;
mod twins;
mod twins_ghosts;
mod twins_lirs;
mod twins_ranked;

use proptest::prelude::*;

use super::frame::Framed;
use super::lhd::Lhd;
use super::lhd_classes::Classes;
use super::{Access, NAMES, Policy, build};
use twins_ranked::LhdTwin;

/// A slow cache that is easy to verify.
trait Twin {
    fn access(&mut self, access: &Access) -> bool;
    fn remove(&mut self, id: u32);
    /// Key numbers and sizes of the stored items.
    fn resident(&self) -> Vec<(u32, u32)>;
}

fn twin(name: &str, capacity: u64, seed: u64) -> Box<dyn Twin> {
    match name {
        "lru" => twins::lru(capacity),
        "fifo" => twins::fifo(capacity),
        "clock" => twins::clock(capacity),
        "sieve" => twins::sieve(capacity),
        "segmented-lru" => twins::segmented(capacity),
        "slru" => twins::slru(capacity),
        "2q" => twins_ghosts::two_q(capacity),
        "arc" => twins_ghosts::arc(capacity),
        "lirs" => twins_lirs::lirs(capacity),
        "s3-fifo" => twins_ghosts::s3_fifo(capacity),
        "clock2q+" => twins_ghosts::clock2q_plus(capacity),
        "w-tinylfu" => twins_ghosts::tiny_lfu(capacity),
        "redis-lru" => twins_ranked::redis(capacity, seed),
        "hyperbolic" => twins_ranked::hyperbolic(capacity, seed),
        "lfu" => twins_ranked::lfu(capacity),
        "gdsf" => twins_ranked::gdsf(capacity),
        "belady" => twins_ranked::belady(capacity),
        "lhd" => Box::new(LhdTwin::new(capacity, seed, Classes::new(20_000, 10), 1 << 20)),
        _ => panic!("{name} has no twin"),
    }
}

/// An access, or a removal.
#[derive(Clone, Debug)]
enum Step {
    Access(Access),
    Remove(u32),
}

/// Streams over `keys` keys of which low numbers are more popular. Sizes are at most `size_max` and constant per key
/// except in one access in eight. One step in ten is a removal.
fn steps(keys: u32, size_max: u32) -> impl Strategy<Value = Vec<Step>> {
    let one = (0..10u32, 0..keys, 0..keys, 0..8u32, 0..=size_max, 0..20u32);
    prop::collection::vec(one, 1..500).prop_map(move |random| {
        let mut time_s = 0;
        let mut steps: Vec<Step> = Vec::new();
        for (what, id, other, resized, size, pause) in random {
            let id = id.min(other);
            time_s += pause.saturating_sub(15);
            if what == 0 && size_max > 1 {
                steps.push(Step::Remove(id));
                continue;
            }
            let own_size = (id * 7 + 3) % size_max + 1;
            let size = if resized == 0 && size_max > 1 { size } else { own_size };
            steps.push(Step::Access(Access { id, size, time_s, penalty_us: 0, next: u64::MAX }));
        }
        let mut seen = vec![u64::MAX; keys as usize];
        for (ordinal, step) in steps.iter_mut().enumerate().rev() {
            if let Step::Access(access) = step {
                access.next = std::mem::replace(&mut seen[access.id as usize], ordinal as u64);
            }
        }
        steps
    })
}

fn same(
    name: &str,
    capacity: u64,
    policy: &mut dyn Policy,
    twin: &mut dyn Twin,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    for (ordinal, step) in steps.iter().enumerate() {
        let here = format!("{name}, capacity {capacity}, step {ordinal}: {step:?}");
        match step {
            Step::Access(access) => {
                let was_there = policy.contains(access.id);
                let hit = policy.access(access);
                prop_assert_eq!(hit, was_there, "contains and access agree; {}", &here);
                prop_assert_eq!(hit, twin.access(access), "hit; {}", &here);
            }
            Step::Remove(id) => {
                policy.remove(*id);
                twin.remove(*id);
                prop_assert!(!policy.contains(*id), "{}", &here);
            }
        }
        prop_assert!(policy.used() <= capacity, "within the capacity; {}", &here);
        let resident = twin.resident();
        let sum: u64 = resident.iter().map(|&(_, size)| u64::from(size)).sum();
        prop_assert_eq!(policy.used(), sum, "used; {}", &here);
        prop_assert_eq!(policy.items(), resident.len() as u64, "items; {}", &here);
        prop_assert!(resident.iter().all(|&(id, _)| policy.contains(id)), "contents; {}", &here);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn unit_sizes_give_the_hits_of_the_twins(capacity in 0u64..40, seed: u64, steps in steps(60, 1)) {
        for name in NAMES {
            let mut policy = build(name, capacity, seed).expect("known");
            same(name, capacity, &mut *policy, &mut *twin(name, capacity, seed), &steps)?;
        }
    }

    #[test]
    fn sizes_that_differ_and_change_and_removals_give_the_hits_of_the_twins(
        capacity in 0u64..300, seed: u64, steps in steps(50, 30),
    ) {
        for name in NAMES {
            let mut policy = build(name, capacity, seed).expect("known");
            same(name, capacity, &mut *policy, &mut *twin(name, capacity, seed), &steps)?;
        }
    }

    #[test]
    fn lhd_that_learns_often_gives_the_hits_of_its_twin(
        capacity in 20u64..200, seed: u64, steps in steps(60, 10),
    ) {
        let classes = || Classes::new(64, 1);
        let mut policy = Framed::new(capacity, 0, Lhd::with(capacity, seed, classes(), 8));
        same("lhd", capacity, &mut policy, &mut LhdTwin::new(capacity, seed, classes(), 8), &steps)?;
    }

    #[test]
    fn no_policy_that_takes_in_everything_misses_less_than_belady(
        capacity in 1u64..40, steps in steps(60, 1),
    ) {
        let misses = |name: &str| {
            let mut policy = build(name, capacity, 7).expect("known");
            let accesses = steps.iter().filter_map(|step| match step {
                Step::Access(access) => Some(access),
                Step::Remove(_) => None,
            });
            accesses.filter(|access| !policy.access(access)).count()
        };
        let least = misses("belady");
        for name in NAMES.iter().filter(|&&name| name != "w-tinylfu") {
            prop_assert!(misses(name) >= least, "{}", name);
        }
    }
}

#[test]
fn an_item_larger_than_the_capacity_is_never_kept_and_leaves_when_it_has_grown() {
    for name in NAMES {
        let mut policy = build(name, 1000, 1).expect("known");
        let access = |size| Access { id: 3, size, time_s: 0, penalty_us: 0, next: 9 };
        assert!(!policy.access(&access(1001)), "{name}");
        assert!(!policy.contains(3), "{name}");
        assert!(!policy.access(&access(10)), "{name}");
        assert!(policy.contains(3), "{name}");
        assert!(policy.access(&access(1001)), "{name}: it was there");
        assert!(!policy.contains(3), "{name}");
        assert_eq!((policy.used(), policy.items()), (0, 0), "{name}");
    }
}

#[test]
fn an_unknown_name_is_refused_with_those_that_exist() {
    let error = build("mru", 10, 1).err().expect("unknown");
    assert!(error.contains("'mru'") && error.contains("s3-fifo"), "{error}");
}

#[test]
fn only_belady_asks_for_the_next_use() {
    for name in NAMES {
        assert_eq!(build(name, 10, 1).expect("known").needs_next(), *name == "belady", "{name}");
    }
}

#[test]
fn the_same_seed_gives_the_same_hits_and_another_seed_gives_others() {
    for name in ["redis-lru", "lhd", "hyperbolic"] {
        let hits = |seed| {
            let mut policy = build(name, 100, seed).expect("known");
            let mut random = crate::mix::SplitMix::new(1);
            let ids = (0..20_000).map(|_| random.below(400).min(random.below(400)));
            let accesses = ids.map(|id| Access { id, size: 1, time_s: 0, penalty_us: 0, next: 0 });
            accesses.map(|access| policy.access(&access)).collect::<Vec<bool>>()
        };
        assert_eq!(hits(5), hits(5), "{name}");
        assert_ne!(hits(5), hits(6), "{name}");
    }
}
