//! The known state of each key: the last stored version, which a later read must not precede.
//!
//! A fixed number of keys is remembered. When the table is full, everything is forgotten and recording restarts. A
//! stale value of a forgotten key cannot be detected, but no value is ever reported wrongly.

/// The key is counted with: its value is a number.
const COUNTER: u8 = 1;
/// The number of the counter is known.
const NUMBER_KNOWN: u8 = 2;
/// The value is a row of values.
const ROW: u8 = 4;
/// The value cannot be verified: pieces without a header were appended.
const OPAQUE: u8 = 8;
/// A write was lost with its connection and may take effect at any time.
const TAINTED: u8 = 16;
/// The last write was a delete: there is no value.
const DELETED: u8 = 32;
/// The value has no header: it is short, or nothing is known of it.
const PLAIN: u8 = 64;

/// Initial number of slots.
const SLOTS_MIN: usize = 1024;

/// The known state of one key.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Entry {
    identity: u64,
    /// The last acknowledged write or delete.
    version: u64,
    number: i64,
    flags: u8,
}

impl Entry {
    /// Whether the key is counted with.
    pub(super) fn is_counter(&self) -> bool {
        self.flags & COUNTER != 0
    }

    /// Whether no write of the key was acknowledged. The value may come from an earlier run, or from before
    /// everything was forgotten.
    pub(super) fn is_unwritten(&self) -> bool {
        self.version == 0
    }

    /// Whether the value may be a number. `counters_seen`: some key was counted with.
    pub(super) fn may_be_counter(&self, counters_seen: bool) -> bool {
        self.is_counter() || (self.is_unwritten() && counters_seen)
    }

    /// Whether the value may have pieces without a header. `growth_seen`: some value was appended to.
    pub(super) fn may_be_opaque(&self, growth_seen: bool) -> bool {
        self.flags & OPAQUE != 0 || ((self.flags & TAINTED != 0 || self.is_unwritten()) && growth_seen)
    }

    /// Whether the value may be a row of values.
    pub(super) fn may_be_row(&self) -> bool {
        self.flags & (ROW | TAINTED) != 0 || self.is_unwritten()
    }

    /// Whether any value is older than the last delete.
    pub(super) fn is_deleted(&self) -> bool {
        self.flags & (DELETED | TAINTED) == DELETED
    }

    /// The minimum version of a value; 0 = any.
    pub(super) fn version_min(&self) -> u64 {
        if self.flags & TAINTED == 0 { self.version } else { 0 }
    }

    /// The number of the counter, where it is known.
    pub(super) fn number(&self) -> Option<i128> {
        (self.flags & (NUMBER_KNOWN | TAINTED) == NUMBER_KNOWN).then_some(i128::from(self.number))
    }

    /// A write of `version` was acknowledged. `plain`: the value has no header.
    pub(super) fn stored(&mut self, version: u64, plain: bool) {
        self.version = version;
        self.flags &= COUNTER | TAINTED;
        self.flags |= if plain { PLAIN } else { 0 };
    }

    /// The key was deleted, or was absent when it was to be deleted.
    pub(super) fn deleted(&mut self, version: u64) {
        self.stored(version, false);
        self.flags |= DELETED;
    }

    /// The counter has this number. Numbers above 2^63 are not remembered.
    pub(super) fn counted(&mut self, number: i128, version: u64) {
        self.stored(version, true);
        self.flags |= COUNTER;
        if let Ok(number) = i64::try_from(number) {
            self.number = number;
            self.flags |= NUMBER_KNOWN;
        }
    }

    /// A piece was appended or prepended. `plain`: the piece has no header.
    pub(super) fn grown(&mut self, version: u64, plain: bool) {
        let plain = plain || self.flags & PLAIN != 0 || self.version == 0;
        self.version = version;
        self.flags = self.flags & !(NUMBER_KNOWN | DELETED) | ROW | if plain { OPAQUE } else { 0 };
    }

    /// A write was sent and never answered.
    pub(super) fn lost(&mut self) {
        self.flags |= TAINTED;
    }

    /// The key is counted with from now on.
    pub(super) fn mark_counter(&mut self) {
        self.flags |= COUNTER;
    }
}

const _: () = assert!(size_of::<Entry>() == 32);

/// The known states of one worker's keys.
pub(super) struct Ledger {
    slots: Vec<Entry>,
    used: usize,
    keys_max: usize,
    /// How often everything was forgotten.
    pub(super) forgotten: u64,
}

impl Ledger {
    /// A ledger for up to `keys_max` keys of 43 to 86 bytes each.
    pub(super) fn new(keys_max: usize) -> Ledger {
        Ledger { slots: vec![Entry::default(); SLOTS_MIN], used: 0, keys_max: keys_max.max(1), forgotten: 0 }
    }

    /// The known state of a key.
    #[inline]
    pub(super) fn get(&self, identity: u64) -> Option<&Entry> {
        let found = &self.slots[self.slot(identity.max(1))];
        (found.identity != 0).then_some(found)
    }

    /// The known state of a key, for changes.
    pub(super) fn entry(&mut self, identity: u64) -> &mut Entry {
        let identity = identity.max(1);
        let mut slot = self.slot(identity);
        if self.slots[slot].identity == 0 {
            self.make_room();
            slot = self.slot(identity);
            self.slots[slot].identity = identity;
            self.used += 1;
        }
        &mut self.slots[slot]
    }

    fn make_room(&mut self) {
        if self.used >= self.keys_max {
            self.slots.fill(Entry::default());
            self.used = 0;
            self.forgotten += 1;
        } else if (self.used + 1) * 4 > self.slots.len() * 3 {
            let doubled = vec![Entry::default(); self.slots.len() * 2];
            let old = std::mem::replace(&mut self.slots, doubled);
            for entry in old.into_iter().filter(|entry| entry.identity != 0) {
                let slot = self.slot(entry.identity);
                self.slots[slot] = entry;
            }
        }
    }

    /// The slot of a key, or the slot where it would be stored.
    #[inline]
    fn slot(&self, identity: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = identity as usize & mask;
        loop {
            let found = self.slots[slot].identity;
            if found == identity || found == 0 {
                return slot;
            }
            slot = (slot + 1) & mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_ledger_forgets_everything_and_goes_on() {
        let mut ledger = Ledger::new(10);
        for identity in 1..=11 {
            ledger.entry(identity).stored(identity, false);
        }
        assert_eq!(ledger.forgotten, 1);
        assert!(ledger.get(5).is_none());
        assert_eq!(ledger.get(11).map(Entry::version_min), Some(11));
    }

    #[test]
    fn a_lost_write_leaves_nothing_to_be_told() {
        let mut ledger = Ledger::new(10);
        ledger.entry(1).stored(7, false);
        ledger.entry(1).lost();
        ledger.entry(1).stored(8, false);
        assert_eq!(ledger.get(1).map(Entry::version_min), Some(0));
        ledger.entry(2).counted(5, 1);
        assert_eq!(ledger.get(2).and_then(Entry::number), Some(5));
        ledger.entry(2).lost();
        assert_eq!(ledger.get(2).and_then(Entry::number), None);
    }

    #[test]
    fn of_a_key_without_an_acknowledged_write_nothing_is_known() {
        for touch in [Entry::mark_counter, Entry::lost] {
            let mut entry = Entry::default();
            touch(&mut entry);
            assert!(entry.may_be_row() && entry.may_be_opaque(true) && entry.may_be_counter(true));
            entry.version = 5;
            entry.flags = 0;
            assert!(!entry.may_be_row() && !entry.may_be_opaque(true) && !entry.may_be_counter(true));
        }
    }

    #[test]
    fn what_was_appended_to_can_be_told_if_all_of_it_has_headers() {
        let grown = |first: &dyn Fn(&mut Entry), plain| {
            let mut entry = Entry::default();
            first(&mut entry);
            entry.grown(2, plain);
            assert!(entry.may_be_row() && entry.number().is_none());
            !entry.may_be_opaque(false)
        };
        assert!(grown(&|entry| entry.stored(1, false), false));
        assert!(grown(&|entry| entry.deleted(1), false));
        assert!(!grown(&|entry| entry.stored(1, false), true));
        assert!(!grown(&|entry| entry.stored(1, true), false));
        assert!(!grown(&|entry| entry.counted(5, 1), false));
        assert!(!grown(&|_| (), false));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_remembers_what_a_map_does(writes in proptest::collection::vec((0u64..3000, any::<u64>()), 0..4000)) {
            let mut ledger = Ledger::new(1_000_000);
            let mut model = HashMap::new();
            for (key, version) in writes {
                let identity = crate::mix::mix64(key);
                ledger.entry(identity).stored(version, false);
                model.insert(identity, version);
            }
            for key in 0..3000 {
                let identity = crate::mix::mix64(key);
                let known = (identity != 0).then(|| ledger.get(identity).map(Entry::version_min)).flatten();
                let expected = (identity != 0).then(|| model.get(&identity).copied()).flatten();
                prop_assert_eq!(known, expected);
            }
        }
    }
}
