//! The states of columns and slabs: free, open, sealed, retired, free; mapped, released, mapped again.
#![cfg(not(loom))]

use larder_item::{Expiry, KeyHash, Kind, Location, State};
use larder_memory::{
    Column, ColumnState, FreshPages, Memory, MemoryError, MemoryOptions, NewItem, OpenColumn, PagesWanted,
    Record, SlabId, Value,
};

const SLAB: u64 = 2 << 20;

fn options(slabs: u64) -> MemoryOptions {
    MemoryOptions {
        limit_bytes: slabs * SLAB,
        column_bytes: Some(1 << 20),
        pages: PagesWanted::Small,
        ..MemoryOptions::default()
    }
}

/// A memory with two columns of 1 MiB per slab.
fn memory(slabs: u64) -> Memory {
    Memory::new(options(slabs)).unwrap()
}

fn plain<'a>(key: &'a [u8], value: &'a [u8]) -> NewItem<'a> {
    NewItem {
        key,
        value: [value, b""],
        flags: 0,
        expiry: Expiry::NEVER,
        cas: 0,
        state: State(0),
        kind: Kind::Text,
    }
}

fn state_of(memory: &Memory, open: OpenColumn) -> (larder_memory::ColumnId, ColumnState) {
    let id = open.seal();
    (id, memory.column(id).state())
}

#[test]
fn a_column_goes_round_and_is_born_again() {
    let memory = memory(1);
    let mut reader = memory.register();
    let mut first = memory.take_column(7, 11).unwrap();
    assert_eq!((first.birth(), memory.column(first.id()).state()), (1, ColumnState::Open));
    let at = first.place(&NewItem { cas: 7, ..plain(b"key", b"value") }).unwrap();
    assert_eq!(memory.column_of(at), first.id());
    let column: &Column = memory.column(first.id());
    assert_eq!((column.cas_base(), column.opened_s(), column.live_bytes()), (7, 11, 20));
    column.died(20, Expiry::NEVER);
    let id = first.seal_at(13);
    assert_eq!((column.state(), column.sealed_s(), column.live_bytes()), (ColumnState::Sealed, 13, 0));
    assert_eq!((column.used_bytes(), column.keys_end()), (20, 20));
    column.group.store(3, std::sync::atomic::Ordering::Relaxed);

    let second = memory.take_column(0, 0).unwrap();
    assert!(memory.take_column(0, 0).is_none(), "the limit is two columns");
    memory.retire(id);
    assert_eq!((memory.recycle(), memory.retired_columns()), (0, 1), "a reader is online since before");
    assert!(memory.take_column(0, 0).is_none());
    assert_eq!(reader.pin().item(at).key(), b"key", "and may still be reading");
    reader.quiesce();
    let again = memory.take_column(0, 0).expect("taking recycles by itself");
    assert_eq!((again.id(), again.birth()), (id, 3));
    assert_eq!(column.group.load(std::sync::atomic::Ordering::Relaxed), 0);
    assert_eq!(state_of(&memory, second).1, ColumnState::Sealed);
}

#[test]
fn an_offline_reader_holds_nothing_back() {
    let memory = memory(1);
    let (mut offline, gone) = (memory.register(), memory.register());
    drop(gone);
    let (id, _) = state_of(&memory, memory.take_column(0, 0).unwrap());
    memory.retire(id);
    assert_eq!(memory.recycle(), 0);
    offline.offline();
    assert!(!offline.is_online());
    assert_eq!(memory.recycle(), 1);
    let (id, _) = state_of(&memory, memory.take_column(0, 0).unwrap());
    memory.retire(id);
    offline.online();
    assert_eq!(memory.recycle(), 1, "retired before it came online");
}

#[test]
#[should_panic(expected = "cannot be retired")]
fn a_column_retired_twice_stops_the_process() {
    let memory = memory(1);
    let id = memory.take_column(0, 0).unwrap().seal();
    memory.retire(id);
    memory.retire(id);
}

#[test]
#[should_panic(expected = "offline reader")]
fn an_offline_reader_cannot_pin() {
    let mut reader = memory(1).register();
    reader.offline();
    let _ = reader.pin();
}

#[test]
#[should_panic(expected = "not the last record")]
fn only_the_last_record_can_be_undone() {
    let mut open = memory(1).take_column(0, 0).unwrap();
    let first = open.place(&plain(b"a", b"")).unwrap();
    let _ = open.place(&plain(b"b", b"")).unwrap();
    open.undo(first);
}

#[test]
fn a_pin_outlives_the_guard_and_holds_the_column() {
    let memory = memory(1);
    let mut reader = memory.register();
    let mut open = memory.take_column(0, 0).unwrap();
    let at = open.place(&plain(b"key", b"value")).unwrap();
    let pin = reader.pin().keep(at);
    let id = open.seal();
    assert_eq!(memory.records(&reader.pin(), id).count(), 0, "a pinned column is not walked");
    memory.retire(id);
    reader.quiesce();
    assert_eq!(memory.recycle(), 0);
    assert_eq!(pin.column(), id);
    drop(pin);
    assert_eq!(memory.recycle(), 1);
}

#[test]
fn a_pinned_column_is_counted_once_however_often_it_is_pinned() {
    const THREADS: usize = 3;
    let memory = memory(1);
    let mut columns = [memory.take_column(0, 0).unwrap(), memory.take_column(0, 0).unwrap()];
    let places = columns.each_mut().map(|open| open.place(&plain(b"key", b"value")).unwrap());
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let (memory, places) = (&memory, &places);
            scope.spawn(move || {
                let reader = memory.register();
                let mut held = Vec::new();
                for round in 0..if cfg!(miri) { 20 } else { 2000 } {
                    held.push(reader.pin().keep(places[(round + number) % 2]));
                    // Another thread may have pinned or unpinned a column and not counted that yet.
                    assert!(memory.pinned_columns() <= 2 + THREADS);
                    if round % 3 == 0 {
                        held.clear();
                    }
                }
            });
        }
    });
    assert_eq!(memory.pinned_columns(), 0);
    let pins = [places[0], places[0], places[1]].map(|at| memory.register().pin().keep(at));
    assert_eq!(memory.pinned_columns(), 2);
    // A retired column that is pinned does not return by itself.
    let ids = columns.map(OpenColumn::seal);
    ids.into_iter().for_each(|id| memory.retire(id));
    assert_eq!(memory.returning_columns(), 2);
    assert_eq!((memory.recycle(), memory.retired_columns(), memory.returning_columns()), (0, 2, 0));
    drop(pins);
    assert_eq!((memory.recycle(), memory.retired_columns(), memory.pinned_columns()), (2, 0, 0));
}

#[test]
fn a_chain_of_chunks_is_read_back_and_walked() {
    let memory = memory(1);
    let reader = memory.register();
    let mut open = memory.take_column(0, 0).unwrap();
    let owner = KeyHash(99);
    let mut second = open.place_chunk(owner, 5, None, 4).unwrap();
    let mut first = open.place_chunk(owner, 5, Some(second.location()), 4).unwrap();
    first.write(0, b"abc");
    let id = open.seal();
    assert!(memory.column(id).is_pinned());
    first.write(3, b"d"); // even after the seal
    second.write(0, b"efgh");
    let (head, pin) = (first.location(), second.into_pin());
    drop(first);
    assert!(memory.column(id).is_pinned());
    drop(pin);

    let guard = reader.pin();
    let chunk = guard.chunk(head);
    assert_eq!((chunk.bytes, chunk.chain, chunk.owner), (&b"abcd"[..], 5, owner));
    let last = guard.chunk(chunk.next.unwrap());
    assert_eq!((last.bytes, last.next), (&b"efgh"[..], None));
    let walked: u32 = memory
        .records(&guard, id)
        .map(|(_, record)| match record {
            Record::Chunk(chunk) => chunk.held_bytes(),
            Record::Item(_) => panic!("there are only chunks"),
        })
        .sum();
    assert_eq!(walked, memory.column(id).live_bytes());
}

#[test]
#[should_panic(expected = "overrun")]
fn a_chunk_cannot_be_overrun() {
    let mut open = memory(1).take_column(0, 0).unwrap();
    open.place_chunk(KeyHash(0), 0, None, 4).unwrap().write(2, b"abc");
}

#[test]
fn a_column_fills_from_both_ends_until_they_meet() {
    let options = MemoryOptions { column_bytes: Some(32 << 10), inline_value_bytes_max: 512, ..options(1) };
    let memory = Memory::new(options).unwrap();
    let geometry = memory.geometry();
    assert_eq!((geometry.whole_value_bytes_max, geometry.chunk_bytes_max), (8192, 4096));
    let reader = memory.register();
    let mut open = memory.take_column(0, 0).unwrap();
    let mut places = Vec::new();
    let value = |n: usize| vec![n as u8; 700 + n];
    while let Some(at) =
        open.place(&plain(format!("key {:3}", places.len()).as_bytes(), &value(places.len())))
    {
        places.push(at);
    }
    assert!(open.free_bytes() < 800 && places.len() > 40);
    for (n, at) in places.into_iter().enumerate() {
        let item = reader.pin().item(at);
        assert_eq!(item.value(), Value::Whole(&value(n)));
        assert_eq!((item.bytes() as usize, item.location()), (24 + (700 + n).next_multiple_of(4), at));
    }
}

#[test]
fn a_copy_takes_over_expiry_and_state() {
    let memory = memory(1);
    let reader = memory.register();
    let mut open = memory.take_column(0, 0).unwrap();
    let new =
        NewItem { expiry: Expiry::at_s(50), state: State::at(9, State::STALE), ..plain(b"key", b"value") };
    let (from, to) = (open.place(&new).unwrap(), open.place(&new).unwrap());
    let guard = reader.pin();
    let (from, to) = (guard.item(from), guard.item(to));
    assert!(from.set_expiry(Expiry::at_s(70)));
    from.touch_last_access(68);
    assert_eq!(from.state().idle_s(68), 59, "an access less than a minute old is not rewritten");
    from.touch_last_access(69);
    from.mark_fetched();
    assert!(from.set_state_bits(State::TOKEN_SENT).has(State::FETCHED));
    assert!(from.clear_state_bits(State::STALE).has(State::STALE));
    to.copy_state_from(&from);
    assert_eq!(
        (to.expiry(), to.state()),
        (Expiry::at_s(70), State::at(69, State::FETCHED | State::TOKEN_SENT))
    );
}

#[test]
fn a_location_that_breaks_the_rule_stays_inside_the_arena() {
    let memory = memory(1);
    let reader = memory.register();
    let mut open = memory.take_column(0, 0).unwrap();
    // A value that looks like the header of a record with the longest key and value.
    let at = open.place(&plain(b"key", &[0xff; 512])).unwrap();
    let id = open.seal();
    assert_eq!(memory.column(id).state(), ColumnState::Sealed);
    let guard = reader.pin();
    let inside = guard.item(Location::from_offset(at.offset() + 16));
    assert!(inside.key().len() <= 255 && inside.value_bytes() <= 0x7fff);
    for beyond in [1 << 20, SLAB, (1 << 40) - 4] {
        let offset = beyond - 4;
        let read = || guard.item(Location::from_offset(offset)).key().len();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).is_err(), "{offset}");
        guard.prefetch(Location::from_offset(offset));
    }
}

#[test]
fn the_limit_is_kept_raised_and_lowered() {
    let memory = Memory::new(MemoryOptions { reserve_bytes: Some(3 * SLAB), ..options(2) }).unwrap();
    assert_eq!((memory.free_columns(), memory.available_columns(), memory.mapped_bytes()), (0, 4, 0));
    let fill = |count: usize| (0..count).map(|_| memory.take_column(0, 0).unwrap()).collect::<Vec<_>>();
    let mut open = fill(4);
    assert!(memory.take_column(0, 0).is_none());
    memory.set_limit(100 * SLAB);
    assert_eq!(memory.limit_bytes(), 3 * SLAB, "no further than the reservation");
    open.extend(fill(2));
    assert!(memory.take_column(0, 0).is_none());
    assert_eq!((memory.mapped_bytes(), memory.columns_mapped(), memory.over_limit_slabs()), (3 * SLAB, 6, 0));

    memory.set_limit(SLAB);
    assert_eq!(memory.over_limit_slabs(), 2);
    assert!(!crate::common::release_free_slab(&memory), "nothing is free");
    for column in open.drain(2..) {
        memory.retire(column.seal());
    }
    assert_eq!(memory.recycle(), 4);
    assert!(crate::common::release_free_slab(&memory) && crate::common::release_free_slab(&memory));
    assert!(!crate::common::release_free_slab(&memory));
    assert_eq!((memory.over_limit_slabs(), memory.mapped_bytes(), memory.free_columns()), (0, SLAB, 0));
    assert!(memory.take_column(0, 0).is_none());

    memory.set_limit(2 * SLAB);
    let again = fill(2);
    assert!(again.iter().all(|open| memory.column(open.id()).birth() > 6));
    let states = memory.slab_columns(SlabId(0)).map(|(_, state)| state).collect::<Vec<_>>();
    assert_eq!(states, [ColumnState::Open; 2]);
}

#[test]
fn a_slab_is_emptied_on_purpose_and_given_back() {
    let memory = memory(3);
    let mut reader = memory.register();
    let mut open: Vec<_> = (0..6).map(|_| memory.take_column(0, 0).unwrap()).collect();
    let value = [1; 100];
    for (n, column) in open.iter_mut().enumerate() {
        let items = if n / 2 == 1 { 1 } else { 5 };
        (0..items).for_each(|_| assert!(column.place(&plain(b"key", &value)).is_some()));
    }
    let ids: Vec<_> = open.into_iter().map(OpenColumn::seal).collect();
    let slab = memory.begin_release_slab().unwrap();
    assert_eq!(slab, SlabId(1), "it has the fewest live bytes");
    let inside: Vec<_> = memory.slab_columns(slab).collect();
    assert_eq!(inside, [(ids[2], ColumnState::Sealed), (ids[3], ColumnState::Sealed)]);
    memory.retire(ids[2]);
    reader.quiesce();
    assert!(!memory.finish_release(slab), "one column is still there");
    assert_eq!(memory.free_columns(), 0, "the free one is not handed out");
    assert!(memory.take_column(0, 0).is_none());
    memory.retire(ids[3]);
    assert!(!memory.finish_release(slab), "a reader may still be reading");
    reader.quiesce();
    assert!(memory.finish_release(slab));
    assert!(memory.slab_columns(slab).all(|(_, state)| state == ColumnState::Absent));
    assert_eq!(memory.mapped_bytes(), 2 * SLAB);

    let slab = memory.begin_release_slab().unwrap();
    memory.cancel_release(slab);
    assert_eq!(memory.available_columns(), 2);
    let open = memory.take_column(0, 0).expect("the slab may be mapped again");
    assert_eq!((open.id(), open.birth()), (ids[2], 7));
}

#[test]
fn a_slab_with_an_open_column_lets_the_others_go_first() {
    let memory = memory(3);
    let mut open: Vec<_> = (0..6).map(|_| memory.take_column(0, 0).unwrap()).collect();
    let stays = open.remove(0);
    let sealed: Vec<_> = open.into_iter().map(OpenColumn::seal).collect();
    memory.retire(sealed[0]);
    assert_eq!(memory.recycle(), 1);
    let chosen = || {
        let slab = memory.begin_release_slab().unwrap();
        memory.put_off_release(slab);
        slab
    };
    assert_eq!([chosen(), chosen()], [SlabId(0), SlabId(1)], "half of the first one is free");
    stays.seal();
    assert_eq!(chosen(), SlabId(0), "nothing holds it up any more");
}

#[test]
fn columns_are_mapped_ahead_up_to_the_limit() {
    let memory = memory(2);
    assert_eq!(memory.touch_ahead(1, FreshPages::InStep), 1, "small pages come column by column");
    assert_eq!(memory.mapped_bytes(), SLAB);
    assert_eq!(memory.touch_ahead(100, FreshPages::Huge), 4);
    assert_eq!(memory.overhead_bytes(), 4 * 128);
}

#[test]
fn memory_that_nobody_uses_is_given_back_column_by_column() {
    let memory = memory(2);
    let touched = || (memory.ready_columns(), memory.free_columns(), memory.fresh_columns_taken());
    assert_eq!(memory.touch_ahead(3, FreshPages::InStep), 3);
    assert_eq!(touched(), (3, 4, 0));
    let mut open = memory.take_column(0, 0).unwrap();
    let at = open.place(&plain(b"key", &[7; 1000])).unwrap();
    assert_eq!(touched(), (2, 3, 1), "a column is taken that is there already");
    assert!(memory.give_idle_back(), "the second slab as a whole, or one of its columns");
    while memory.give_idle_back() {}
    assert_eq!((memory.ready_columns(), memory.fresh_columns_taken()), (0, 1));
    let reader = memory.register();
    assert_eq!(reader.pin().item(at).value(), Value::Whole(&[7; 1000]));
    assert_eq!(memory.available_columns(), 3);
    let taken: Vec<_> = (0..3).map(|_| memory.take_column(0, 0).unwrap()).collect();
    assert_eq!((taken.len(), memory.fresh_columns_taken()), (3, 4), "they took memory again");
}

#[test]
fn impossible_wishes_are_refused_in_one_line() {
    let refused = |options: MemoryOptions| Memory::new(options).expect_err("impossible");
    let wrong_columns = MemoryOptions { column_bytes: Some(100_000), ..options(1) };
    assert!(matches!(refused(wrong_columns), MemoryError::ColumnBytes { bytes: 100_000 }));
    let too_small = refused(MemoryOptions { limit_bytes: 1000, ..options(1) });
    assert!(matches!(too_small, MemoryError::Limit { bytes: 1000 }));
    assert!(!too_small.to_string().contains('\n'));
    let too_large = MemoryOptions { reserve_bytes: Some(1 << 60), ..options(1) };
    assert!(matches!(refused(too_large), MemoryError::Limit { .. }));
}
