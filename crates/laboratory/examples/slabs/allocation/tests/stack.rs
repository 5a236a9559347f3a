//! Compares the stack with vectors: residents and ghosts in order, and zones by counting.

use proptest::prelude::*;

use super::super::nodes::{NONE, Node, Nodes};
use super::super::stack::{Stack, StackPosition};

/// The stack as two vectors, with the top first.
#[derive(Default)]
struct Slow {
    residents: Vec<u64>,
    ghosts: Vec<u64>,
}

impl Slow {
    fn zones(&self, segments: usize, slots: usize) -> Vec<Vec<u64>> {
        let mut zones = vec![Vec::new(); 2 * segments + 1];
        for (from_bottom, &key) in self.residents.iter().rev().enumerate() {
            let zone = segments - (from_bottom / slots).min(segments);
            zones[zone].insert(0, key);
        }
        for (from_top, &key) in self.ghosts.iter().enumerate() {
            zones[segments + 1 + from_top / slots].push(key);
        }
        zones
    }
}

fn put(nodes: &mut Nodes, key: u64) -> u32 {
    nodes.put(Node {
        key,
        used_at: 0,
        prev: NONE,
        next: NONE,
        size_bytes: 0,
        penalty_us: 0,
        expires_s: 0,
        group: 0,
        zone: 0,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn zones_and_order_are_those_of_counting(
        segments in 0_usize..4,
        slots in 1_usize..5,
        steps in prop::collection::vec((0_u8..8, 0_usize..64), 1..300),
    ) {
        let (mut nodes, mut stack) = (Nodes::default(), Stack::new(segments, slots, segments % 2 == 1));
        let mut slow = Slow::default();
        let mut places = std::collections::HashMap::new();
        let mut next_key = 0_u64;
        for (what, which) in steps {
            match what {
                0..=2 => {
                    let at = put(&mut nodes, next_key);
                    stack.put_on_top(&mut nodes, at);
                    places.insert(next_key, at);
                    slow.residents.insert(0, next_key);
                    next_key += 1;
                }
                3..=4 if !slow.residents.is_empty() => {
                    let key = slow.residents.remove(which % slow.residents.len());
                    stack.use_item(&mut nodes, places[&key]);
                    slow.residents.insert(0, key);
                }
                5 if !slow.residents.is_empty() => {
                    let forgotten = stack.evict(&mut nodes);
                    slow.ghosts.insert(0, slow.residents.pop().unwrap());
                    let most = segments * slots;
                    let gone = (slow.ghosts.len() > most).then(|| slow.ghosts.pop().unwrap());
                    prop_assert_eq!(forgotten.map(|at| nodes.get(at).key), gone);
                    forgotten.into_iter().for_each(|at| nodes.free(at));
                }
                6 if !slow.residents.is_empty() => {
                    let key = slow.residents.remove(which % slow.residents.len());
                    stack.remove(&mut nodes, places[&key]);
                    nodes.free(places[&key]);
                }
                7 if !slow.ghosts.is_empty() => {
                    let key = slow.ghosts.remove(which % slow.ghosts.len());
                    stack.remove(&mut nodes, places[&key]);
                    nodes.free(places[&key]);
                }
                _ => {}
            }
            let zones: Vec<_> = (0..=2 * segments).map(|zone| stack.keys(&nodes, zone)).collect();
            prop_assert_eq!(zones, slow.zones(segments, slots));
            let all: Vec<u64> = slow.residents.iter().chain(&slow.ghosts).copied().collect();
            prop_assert_eq!(stack.all_keys(&nodes), all);
            prop_assert_eq!(stack.items(), slow.residents.len());
            prop_assert_eq!(stack.ghosts(), slow.ghosts.len());
            prop_assert_eq!(nodes.len(), slow.residents.len() + slow.ghosts.len());
            let last = stack.last_resident().map(|at| nodes.get(at).key);
            prop_assert_eq!(last, slow.residents.last().copied());
        }
    }
}

#[test]
fn places_count_from_the_end_of_the_residents() {
    let stack = Stack::new(3, 1, false);
    let places: Vec<StackPosition> = (0..=6).map(|zone| stack.position(zone)).collect();
    let expected = [
        StackPosition::Elsewhere,
        StackPosition::Segment(2),
        StackPosition::Segment(1),
        StackPosition::Segment(0),
        StackPosition::Ghost(0),
        StackPosition::Ghost(1),
        StackPosition::Ghost(2),
    ];
    assert_eq!(places, expected);
}

#[test]
fn an_item_without_a_slot_becomes_the_topmost_ghost() {
    let (mut nodes, mut stack) = (Nodes::default(), Stack::new(2, 1, false));
    for key in 0..2 {
        let at = put(&mut nodes, key);
        assert_eq!(stack.put_ghost(&mut nodes, at), None);
    }
    let at = put(&mut nodes, 2);
    let forgotten = stack.put_ghost(&mut nodes, at).unwrap();
    assert_eq!(nodes.get(forgotten).key, 0);
    assert_eq!(stack.all_keys(&nodes), [2, 1]);
    assert_eq!((stack.items(), stack.ghosts()), (0, 2));
}
