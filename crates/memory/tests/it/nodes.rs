//! Columns of NUMA nodes. The machine need not have the nodes: what the kernel does not bind lies anywhere.
#![cfg(not(loom))]

use larder_memory::{
    ColumnState, FreshPages, Memory, MemoryOptions, NodeId, NumaNodes, OpenColumn, PagesWanted, SlabId,
};

const SLAB: u64 = 2 << 20;

/// A memory of `nodes` nodes with two columns of 1 MiB per slab.
fn memory(nodes: usize, slabs: u64) -> Memory {
    Memory::new(MemoryOptions {
        limit_bytes: slabs * SLAB,
        reserve_bytes: Some(2 * slabs * SLAB),
        column_bytes: Some(1 << 20),
        pages: PagesWanted::Small,
        nodes: NumaNodes::with_cpus((0..nodes).map(|number| (number, vec![number]))),
        ..MemoryOptions::default()
    })
    .unwrap()
}

fn take(memory: &Memory, node: u32) -> Option<(OpenColumn, u32)> {
    let open = memory.take_column_on(NodeId(node), 0, 0)?;
    let of = memory.node_of(open.id()).0;
    Some((open, of))
}

fn retire(memory: &Memory, open: OpenColumn) {
    memory.retire(open.seal());
}

#[test]
fn columns_of_the_node_go_first_and_then_those_of_the_other() {
    let memory = memory(2, 4);
    let mut open: Vec<_> = (0..8).map(|_| take(&memory, 1).expect("the limit is eight columns")).collect();
    let of: Vec<u32> = open.iter().map(|(_, of)| *of).collect();
    assert_eq!(of, [1, 1, 1, 1, 0, 0, 0, 0]);
    assert!(take(&memory, 1).is_none() && take(&memory, 0).is_none());
    let (of_one, of_zero) = (open.remove(1).0, open.remove(5).0);
    retire(&memory, of_one);
    retire(&memory, of_zero);
    assert_eq!(take(&memory, 0).unwrap().1, 0);
    assert_eq!(take(&memory, 0).unwrap().1, 1, "there is no other");
}

#[test]
fn a_column_of_the_node_that_comes_back_goes_before_a_free_one_of_the_other() {
    let memory = memory(2, 2);
    let (own, _) = take(&memory, 0).unwrap();
    let _second = take(&memory, 0).unwrap();
    let (other, _) = take(&memory, 1).unwrap();
    retire(&memory, other);
    assert_eq!(memory.recycle(), 1);
    retire(&memory, own);
    assert_eq!((memory.free_columns(), memory.retired_columns()), (2, 1));
    assert_eq!(take(&memory, 0).unwrap().1, 0);
    assert_eq!(take(&memory, 0).unwrap().1, 1);
}

#[test]
fn a_raised_limit_and_slabs_that_were_given_back_serve_every_node() {
    let memory = memory(3, 3);
    let mut open: Vec<_> = (0..6).map(|_| take(&memory, 2).unwrap()).collect();
    memory.set_limit(5 * SLAB);
    open.extend((0..4).map(|_| take(&memory, 2).unwrap()));
    assert!(take(&memory, 2).is_none());
    assert_eq!(memory.mapped_bytes(), 5 * SLAB);
    assert_eq!(
        open.iter().filter(|(_, of)| *of == 2).count(),
        4,
        "the second slab of the node is behind the limit"
    );
    open.into_iter().for_each(|(open, _)| retire(&memory, open));
    memory.recycle();
    memory.set_limit(SLAB);
    (0..4).for_each(|_| assert!(crate::common::release_free_slab(&memory)));
    let states = (0..memory.columns_mapped() / 2).flat_map(|slab| memory.slab_columns(SlabId(slab)));
    assert_eq!(states.filter(|(_, state)| *state == ColumnState::Free).count(), 2);
    memory.set_limit(3 * SLAB);
    let again: Vec<_> = (0..6).map(|_| take(&memory, 0).unwrap()).collect();
    assert!(take(&memory, 0).is_none());
    assert!(again.iter().any(|(_, of)| *of == 0));
}

#[test]
fn memory_is_touched_ahead_of_the_writers_of_each_node() {
    let memory = memory(2, 4);
    assert_eq!(memory.touch_ahead(2, FreshPages::InStep), 2);
    let taken: Vec<_> = [0, 1].map(|node| take(&memory, node).unwrap().1).into();
    assert_eq!((taken, memory.ready_columns()), (vec![0, 1], 0), "one of each was ready");
    assert_eq!(memory.touch_ahead(usize::MAX, FreshPages::InStep), 6, "all that the limit allows");
    while memory.give_idle_back() {}
    assert_eq!(memory.ready_columns(), 0);
}

#[cfg(not(miri))]
#[test]
fn a_kernel_that_does_not_bind_is_counted_and_does_no_harm() {
    // No kernel has more nodes than 1024.
    let nodes = NumaNodes::with_cpus([(2000, vec![0]), (2001, vec![1])]);
    let options =
        MemoryOptions { limit_bytes: 2 * SLAB, pages: PagesWanted::Small, nodes, ..MemoryOptions::default() };
    let memory = Memory::new(options).unwrap();
    assert_eq!([0, 1].map(|node| take(&memory, node).unwrap().1), [0, 1]);
    assert_eq!(memory.unbound_slabs(), 2);
    assert_eq!(self::memory(1, 2).unbound_slabs(), 0);
}

#[cfg(not(miri))]
#[test]
fn coloured_pages_count_as_one_node() {
    let nodes = NumaNodes::with_cpus([(0, vec![0]), (1, vec![1])]);
    let options = MemoryOptions { pages: PagesWanted::Coloured, nodes, ..MemoryOptions::default() };
    assert_eq!(Memory::new(options).unwrap().nodes(), &NumaNodes::default());
}
