//! Asks the kernel which pages the arena is made of.
#![cfg(all(not(loom), not(miri), target_os = "linux"))]

mod common;

use larder_memory::{FreshPages, Memory, MemoryError, MemoryOptions, NumaNodes, PageKind, PagesWanted};

const SLAB: u64 = 2 << 20;

fn memory(pages: PagesWanted, slabs: u64) -> Result<Memory, MemoryError> {
    Memory::new(MemoryOptions { limit_bytes: slabs * SLAB, pages, ..MemoryOptions::default() })
}

/// Sum of the smaps field `name`, in KiB, over the mappings that begin in the arena's slabs.
fn smaps_kib(memory: &Memory, slabs: u64, name: &str) -> u64 {
    let arena = memory.base() as u64..memory.base() as u64 + slabs * SLAB;
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut inside, mut sum) = (false, 0);
    for line in text.lines() {
        let first = line.split_whitespace().next().unwrap_or("");
        if let Some((start, end)) = first.split_once('-').filter(|_| !first.ends_with(':')) {
            let parse = |text| u64::from_str_radix(text, 16).unwrap();
            inside = arena.contains(&parse(start)) && parse(end) > arena.start;
        } else if inside && first == name {
            sum += line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap();
        }
    }
    sum
}

#[test]
fn transparent_huge_pages_really_come() {
    let slabs = 8;
    let memory = match memory(PagesWanted::Transparent, slabs) {
        Ok(memory) => memory,
        Err(error) => return println!("skipped: {error}"),
    };
    assert_eq!(memory.pages(), PageKind::Transparent);
    memory.touch_ahead(usize::MAX, FreshPages::Huge);
    let huge_kib = smaps_kib(&memory, slabs, "AnonHugePages:");
    let all_kib = slabs * SLAB / 1024;
    println!("{huge_kib} KiB of {all_kib} in huge pages: {}", memory.pages_description());
    // If memory is short, the kernel may have no huge page for some slab.
    assert!(huge_kib * 2 >= all_kib, "{huge_kib} KiB of {all_kib}");
}

#[test]
fn small_pages_come_with_what_is_written_and_become_huge_when_the_slab_is_full() {
    let memory = match memory(PagesWanted::Transparent, 4) {
        Ok(memory) => memory,
        Err(error) => return println!("skipped: {error}"),
    };
    let column_kib = u64::from(memory.geometry().column_bytes) / 1024;
    let mut open: Vec<_> = (0..memory.geometry().columns_per_slab).map(|_| take_and_fill(&memory)).collect();
    assert_eq!(smaps_kib(&memory, 4, "Rss:"), 2048, "what was written, and no more");
    assert_eq!(smaps_kib(&memory, 4, "AnonHugePages:"), 0);
    open.push(take_and_fill(&memory));
    memory.touch_ahead(1, FreshPages::InStep);
    assert_eq!(smaps_kib(&memory, 4, "Rss:"), 2048 + 2 * column_kib);
    assert!(memory.collapse_some(), "one slab is full");
    assert!(!memory.collapse_some(), "the other one is not");
    let huge_kib = smaps_kib(&memory, 4, "AnonHugePages:");
    println!("{huge_kib} KiB of 2048 in a huge page; a kernel before 6.1 does that later");
    assert!(huge_kib == 2048 || huge_kib == 0);
    assert!(memory.give_idle_back(), "the column that was touched ahead");
    assert_eq!(smaps_kib(&memory, 4, "Rss:"), 2048 + column_kib);
    assert!(!memory.give_idle_back());
}

/// Fills a column to the last page.
fn take_and_fill(memory: &Memory) -> larder_memory::OpenColumn {
    let mut open = memory.take_column(0, 0).unwrap();
    let new = larder_memory::NewItem {
        key: b"key",
        value: [&[7; 800], b""],
        flags: 0,
        expiry: larder_item::Expiry::NEVER,
        cas: 0,
        state: larder_item::State(0),
        kind: larder_item::Kind::Text,
    };
    while open.place(&new).is_some() {}
    open
}

#[test]
fn explicit_huge_pages_really_come() {
    let slabs = 2;
    let memory = match memory(PagesWanted::Huge, slabs) {
        Ok(memory) => memory,
        Err(error) => {
            assert!(error.to_string().contains("sysctl vm.nr_hugepages=2"), "{error}");
            return println!("skipped: {error}");
        }
    };
    assert_eq!(memory.pages(), PageKind::ExplicitHuge);
    assert_eq!(memory.touch_ahead(usize::MAX, FreshPages::Huge) as u32, memory.geometry().columns_max);
    assert_eq!(smaps_kib(&memory, slabs, "Private_Hugetlb:"), slabs * SLAB / 1024);
    assert!(common::release_free_slab(&memory));
    assert_eq!(smaps_kib(&memory, slabs, "Private_Hugetlb:"), SLAB / 1024);
}

#[test]
fn an_explicit_huge_page_that_is_given_back_is_anybodys_and_asked_for_again() {
    let new = || memory(PagesWanted::Huge, 1);
    let Ok(memory) = new() else { return println!("skipped: no explicit huge page is free") };
    drop(take_and_fill(&memory));
    let all: Vec<_> = std::iter::from_fn(|| memory.take_column(0, 0).map(|open| open.seal())).collect();
    for column in (0..1 + all.len() as u32).map(larder_memory::ColumnId) {
        memory.retire(column);
    }
    memory.recycle();
    assert!(memory.give_idle_back() || common::release_free_slab(&memory));
    assert_eq!(smaps_kib(&memory, 1, "Private_Hugetlb:"), 0);
    // Where there is only one page, another process has it by now: the slab has small ones.
    let _other = new();
    drop(take_and_fill(&memory));
    let huge_kib = smaps_kib(&memory, 1, "Private_Hugetlb:");
    assert!(huge_kib == 0 || huge_kib == SLAB / 1024);
}

#[test]
fn small_pages_stay_small() {
    let memory = memory(PagesWanted::Small, 4).unwrap();
    memory.touch_ahead(usize::MAX, FreshPages::Huge);
    assert_eq!(memory.pages(), PageKind::Small);
    assert_eq!(smaps_kib(&memory, 4, "AnonHugePages:"), 0);
    assert_eq!(smaps_kib(&memory, 4, "Rss:"), 4 * SLAB / 1024);
}

#[test]
fn a_released_slab_is_no_longer_resident() {
    for pages in [PagesWanted::Auto, PagesWanted::Small, PagesWanted::Coloured] {
        let memory = memory(pages, 4).unwrap();
        assert_eq!(smaps_kib(&memory, 4, "Rss:"), 0, "nothing is touched at the start");
        memory.touch_ahead(usize::MAX, FreshPages::Huge);
        if memory.pages() == PageKind::ExplicitHuge {
            println!("skipped for {pages:?}: explicit huge pages do not count as resident");
            continue;
        }
        assert_eq!(smaps_kib(&memory, 4, "Rss:"), 4 * SLAB / 1024, "{pages:?}");
        assert!(common::release_free_slab(&memory) && common::release_free_slab(&memory));
        assert_eq!(smaps_kib(&memory, 4, "Rss:"), 2 * SLAB / 1024, "{pages:?}");
        memory.touch_ahead(usize::MAX, FreshPages::Huge);
        assert_eq!(smaps_kib(&memory, 4, "Rss:"), 4 * SLAB / 1024, "{pages:?}, mapped again");
    }
}

#[test]
fn a_released_slab_is_written_again() {
    for pages in [PagesWanted::Auto, PagesWanted::Small, PagesWanted::Coloured] {
        let memory = memory(pages, 1).unwrap();
        for _ in 0..3 {
            let reader = memory.register();
            let mut open = memory.take_column(0, 0).unwrap();
            let new = larder_memory::NewItem {
                key: b"key",
                value: [&[7; 2000], b""],
                flags: 0,
                expiry: larder_item::Expiry::NEVER,
                cas: 0,
                state: larder_item::State(0),
                kind: larder_item::Kind::Text,
            };
            let at = open.place(&new).unwrap();
            assert_eq!(reader.pin().item(at).value(), larder_memory::Value::Whole(&[7; 2000]));
            memory.retire(open.seal());
            drop(reader);
            memory.recycle();
            assert!(common::release_free_slab(&memory), "{pages:?}");
        }
    }
}

#[test]
fn slabs_are_bound_to_their_nodes() {
    // The kernel has no node of the second number.
    let nodes = NumaNodes::with_cpus([(0, vec![0]), (1023, vec![1])]);
    let options = MemoryOptions { limit_bytes: 4 * SLAB, nodes, ..MemoryOptions::default() };
    let memory = Memory::new(options).unwrap();
    memory.touch_ahead(usize::MAX, FreshPages::Huge);
    let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
    let policy = |slab: u64| {
        let address = format!("{:x} ", memory.base() as u64 + slab * SLAB);
        maps.lines().find_map(|line| line.strip_prefix(&address)?.split(' ').next().map(str::to_owned))
    };
    if memory.unbound_slabs() > 2 || policy(0).is_none() {
        return println!("skipped: this kernel binds nothing, or does not say so");
    }
    let (bound, unbound) = (Some("prefer:0".to_owned()), Some("default".to_owned()));
    assert_eq!([0, 1, 2, 3].map(policy), [bound.clone(), unbound.clone(), bound, unbound]);
}
