//! A read of an item that was read lately writes nothing: the arena is read-only while its items are read.
#![cfg(not(any(loom, miri)))]

use larder_item::{Expiry, Kind, State};
use larder_memory::{Memory, MemoryOptions, NewItem, PagesWanted, Value};
use rustix::mm::{MprotectFlags, mprotect};

#[test]
fn a_read_of_an_item_that_was_read_lately_writes_nothing() {
    let options =
        MemoryOptions { limit_bytes: 2 << 20, pages: PagesWanted::Small, ..MemoryOptions::default() };
    let memory = Memory::new(options).unwrap();
    let (reader, now_s) = (memory.register(), 100);
    let mut open = memory.take_column(0, now_s).unwrap();
    let value = [7; 3000];
    let at: Vec<_> = [10, 500, 3000]
        .iter()
        .map(|bytes| {
            let item = NewItem {
                key: b"key",
                value: [&value[..*bytes], &[]],
                flags: 5,
                expiry: Expiry::at_s(1000),
                cas: 9,
                state: State::at(now_s, State::FETCHED),
                kind: Kind::Text,
            };
            open.place(&item).unwrap()
        })
        .collect();
    let protect = |access| {
        // SAFETY: the slab is mapped and nobody writes it while it is read-only, or the test ends with a signal, which
        // is what it is for.
        unsafe { mprotect(memory.base().cast_mut().cast(), 2 << 20, access) }.expect("the range is mapped");
    };
    protect(MprotectFlags::READ);
    for at in &at {
        let guard = reader.pin();
        let item = guard.item(*at);
        guard.prefetch(*at);
        guard.prefetch_value(*at);
        assert!(item.key_matches(b"key") && !item.expiry().is_past(now_s));
        assert!(matches!(item.value(), Value::Whole(found) if found == &value[..found.len()]));
        assert_eq!((item.flags(), item.cas()), (5, 9));
        item.mark_fetched();
        item.touch_last_access(now_s + 59);
    }
    protect(MprotectFlags::READ | MprotectFlags::WRITE);
}
