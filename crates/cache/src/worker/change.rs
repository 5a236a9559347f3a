//! The writes that clients ask for: store, delete, arithmetic, touch.

use super::Worker;
use super::chain::{Piece, RecordFields};
use super::penalty::priced;
use super::read::Hit;
use super::write::{Expected, Published};
use crate::commands::{Arith, ArithOutcome, Delete, DeleteOutcome, Mode, Store, StoreOutcome, Touched};
use crate::penalties::Price;
use larder_item::{Expiry, KeyHash, Kind, Location, State};
use larder_memory::Value;

/// Bytes that memcached counts for an item beside key and value: its header, its suffix and the terminators.
const COUNTED_BYTES: u64 = 48 + 8 + 1 + 2;

impl Worker {
    /// Whether an item of this key and value may be stored at all (`-I`, counted as memcached counts).
    pub fn fits(&self, key_bytes: usize, value_bytes: u64) -> bool {
        key_bytes as u64 + value_bytes + COUNTED_BYTES <= self.cache.item_bytes_max()
    }

    /// Stores a value.
    #[inline]
    pub fn store(&mut self, store: &Store<'_>) -> StoreOutcome {
        if self.may_have_price(store) { self.store_with_price(store) } else { self.store_at(store, None) }
    }

    #[inline(never)]
    fn store_with_price(&mut self, store: &Store<'_>) -> StoreOutcome {
        let price = self.price_of(store, self.batch_began_us());
        self.store_at(store, price.as_ref())
    }

    /// Stores a value in the place of one that the client is still to fetch: a miss of the key is not over.
    pub fn store_placeholder(&mut self, store: &Store<'_>) -> StoreOutcome {
        self.store_at(store, None)
    }

    #[inline(never)]
    fn store_at(&mut self, store: &Store<'_>, price: Option<&Price>) -> StoreOutcome {
        if !self.fits(store.key.len(), store.value.len() as u64) {
            return StoreOutcome::TooLarge;
        }
        if store.mode == Mode::Set && store.compare.is_none() {
            return self.store_over(store, Expected::Anything, None, price);
        }
        loop {
            let outcome = self.store_once(store, price);
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    }

    /// One attempt: look, decide, place, publish. `None`: another thread changed the item in between.
    fn store_once(&mut self, store: &Store<'_>, price: Option<&Price>) -> Option<StoreOutcome> {
        let outcome = match self.admit(store) {
            Err(refused) => return Some(refused),
            Ok((Expected::Unchanged(seen), _)) if store.joins() => self.extend(store, seen.at, price),
            Ok((expected, stale_of)) => self.store_over(store, expected, stale_of, price),
        };
        // `Exists` means here that the publish lost a race: look again.
        (outcome != StoreOutcome::Exists).then_some(outcome)
    }

    /// Whether the store may go through now, and what it then expects to find. The second value is the present item, if
    /// the new one is to be marked as stale.
    pub(super) fn admit(&self, store: &Store<'_>) -> Result<(Expected, Option<Location>), StoreOutcome> {
        let Some(hit) = self.peek(store.hash, store.key) else {
            return match store.mode {
                Mode::Set | Mode::Replace if store.compare.is_some() => Err(StoreOutcome::NotFound),
                Mode::Replace => Err(StoreOutcome::NotStored),
                Mode::Append | Mode::Prepend if store.vivify.is_none() => Err(StoreOutcome::NotStored),
                _ => Ok((Expected::Absent, None)),
            };
        };
        if store.mode == Mode::Add {
            // memcached counts a refused add as a use of the item.
            self.get(store.hash, store.key);
            self.counters().uses_beside_gets.add(1);
            return Err(StoreOutcome::NotStored);
        }
        let cas = hit.cas();
        match store.compare {
            // No item is known by the number 0.
            Some(0) => return Err(StoreOutcome::Exists),
            Some(compare) if compare == cas => {}
            Some(compare)
                if store.invalidate && compare < cas && matches!(store.mode, Mode::Set | Mode::Replace) =>
            {
                return Ok((self.expect_unchanged(hit.at), Some(hit.at)));
            }
            Some(_) => return Err(StoreOutcome::Exists),
            // A plain set does not depend on the present item.
            None if store.mode == Mode::Set => return Ok((Expected::Anything, None)),
            None => {}
        }
        Ok((self.expect_unchanged(hit.at), None))
    }

    /// State and expiry of a new item. A stale one keeps the expiry and the token of the item at `stale_of`.
    pub(super) fn new_state(&self, store: &Store<'_>, stale_of: Option<Location>) -> (State, Expiry) {
        let mut bits = if store.binary_key { State::BINARY_KEY } else { 0 };
        let mut expiry = store.vivify.filter(|_| store.joins()).unwrap_or(store.expiry);
        if let Some(at) = stale_of {
            let old = self.reader.pin().item(at);
            bits |= State::STALE | old.state().bits() & State::TOKEN_SENT;
            expiry = old.expiry();
        }
        (State::at(self.cache.store.clock.now_s(), bits), expiry)
    }

    /// Places the value and publishes it. `Exists`: the present item is not as expected.
    fn store_over(
        &mut self,
        store: &Store<'_>,
        expected: Expected,
        stale_of: Option<Location>,
        price: Option<&Price>,
    ) -> StoreOutcome {
        let (state, expiry) = self.new_state(store, stale_of);
        let cas = store.explicit_cas.unwrap_or_else(|| self.next_cas());
        let of = RecordFields { flags: store.flags, expiry, cas, state, kind: Kind::Text };
        let value = [Piece::Bytes(store.value), Piece::NOTHING];
        self.put(store.key, store.hash, value, &of, expected, price)
    }

    /// Places key and value, in one piece or in chunks, and publishes them. `Exists`: the present item is not as
    /// expected.
    #[inline]
    pub(super) fn put(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        value: [Piece<'_>; 2],
        of: &RecordFields,
        expected: Expected,
        price: Option<&Price>,
    ) -> StoreOutcome {
        let total = value[0].length() + value[1].length();
        // The state may come from an older version of the item. Only that version is on flash unchanged.
        let state = priced(State(of.state.0 & !State::CLEAN), price);
        let of = &RecordFields { state, ..*of };
        let (new, upload) = match value {
            [Piece::Bytes(first), Piece::Bytes(second)]
                if total <= self.cache.store.memory.chunk_bytes_max() as usize =>
            {
                (self.place(&of.item(key, [first, second])), None)
            }
            _ => self.place_long(hash, value, key, of).unzip(),
        };
        let Some(new) = new else { return self.put_without_room((hash, key), &value, of, expected, price) };
        let published = self.publish(hash, key, expected, new, price);
        if published == Published::Done {
            return StoreOutcome::Stored { cas: of.cas, value_bytes: total as u32 };
        }
        if let Some(upload) = upload {
            self.abandon_upload(upload);
        }
        if published == Published::Full { StoreOutcome::NoRoom } else { StoreOutcome::Exists }
    }

    /// As [`Worker::put`], for an item that there was no room for.
    #[cold]
    #[inline(never)]
    fn put_without_room(
        &mut self,
        (hash, key): (KeyHash, &[u8]),
        value: &[Piece<'_>; 2],
        of: &RecordFields,
        expected: Expected,
        price: Option<&Price>,
    ) -> StoreOutcome {
        match self.put_instead((hash, key), (hash, key), *value, of, expected, price) {
            StoreOutcome::NoRoom => self.put_before_chunks(hash, key, *value, of, expected),
            outcome => outcome,
        }
    }

    /// As [`Worker::put`], for an item that there was no room for, and for which the item of another key goes.
    pub(super) fn put_instead(
        &mut self,
        gone: (KeyHash, &[u8]),
        (hash, key): (KeyHash, &[u8]),
        value: [Piece<'_>; 2],
        of: &RecordFields,
        expected: Expected,
        price: Option<&Price>,
    ) -> StoreOutcome {
        let Some(new) = self.place_instead(gone, key, value, of) else { return StoreOutcome::NoRoom };
        match self.publish(hash, key, expected, new, price) {
            Published::Done => StoreOutcome::Stored {
                cas: of.cas,
                value_bytes: (value[0].length() + value[1].length()) as u32,
            },
            Published::Full => StoreOutcome::NoRoom,
            Published::Changed => StoreOutcome::Exists,
        }
    }

    /// Append or prepend to the item at `at`.
    fn extend(&mut self, store: &Store<'_>, at: Location, price: Option<&Price>) -> StoreOutcome {
        // The old value is copied first: making room may reclaim its column.
        let expected = self.expect_unchanged(at);
        let (old, of) = self.old_record(at);
        // If each part may be stored but both together are too large, memcached answers "not stored".
        let is_collection = of.kind.is_collection();
        if is_collection || !self.fits(store.key.len(), old.length() as u64 + store.value.len() as u64) {
            return StoreOutcome::NotStored;
        }
        let mut parts = [old.piece(), Piece::Bytes(store.value)];
        if store.mode == Mode::Prepend {
            parts.reverse();
        }
        let of = self.extended(of, store);
        let outcome = self.put(store.key, store.hash, parts, &of, expected, price);
        self.recycle_old_value(old);
        outcome
    }

    /// The record of an item that something is appended or prepended to.
    pub(super) fn extended(&self, old: RecordFields, store: &Store<'_>) -> RecordFields {
        RecordFields {
            cas: store.explicit_cas.unwrap_or_else(|| self.next_cas()),
            state: self.state_after(old.state.bits()),
            kind: if store.marks_parts { Kind::Parts } else { old.kind },
            ..old
        }
    }

    /// The state of an item that takes the place of one with these state bits, and inherits what belongs to the key.
    pub(super) fn state_after(&self, bits: u32) -> State {
        State::at(self.cache.store.clock.now_s(), bits & (State::BINARY_KEY | State::PENALTY))
    }

    /// Deletes the item, or leaves a stale or empty one behind.
    pub fn delete(&mut self, delete: &Delete<'_>) -> DeleteOutcome {
        loop {
            let Some(hit) = self.peek(delete.hash, delete.key) else {
                if delete.compare.is_some() || self.make_absent(delete.hash, delete.key) {
                    return DeleteOutcome::NotFound;
                }
                continue;
            };
            let (at, cas) = (hit.at, hit.cas());
            if delete.compare.is_some_and(|compare| compare != cas) {
                return DeleteOutcome::Exists;
            }
            if !delete.invalidate && !delete.drop_value {
                if self.remove_at(delete.hash, at) {
                    return DeleteOutcome::Deleted;
                }
                continue;
            }
            let expected = self.expect_unchanged(at);
            let (state, old_expiry) = (hit.item.state(), hit.expiry());
            // An item without its value is a new one, which nobody has read and whose token nobody has.
            let state = match delete.drop_value {
                true => self.state_after(state.bits()),
                false => state.with_bits(state.bits() & !State::TOKEN_SENT),
            };
            let stale = if delete.invalidate { State::STALE } else { 0 };
            let state = state.with_bits(state.bits() | stale);
            let cas = match (delete.explicit_cas, delete.invalidate) {
                (Some(cas), _) => cas,
                (None, true) => self.next_cas(),
                (None, false) => cas,
            };
            let outcome = if delete.drop_value {
                let (flags, expiry) = (delete.flags, delete.expiry.unwrap_or(Expiry::NEVER));
                let of = RecordFields { flags, expiry, cas, state, kind: Kind::Text };
                self.put(delete.key, delete.hash, [Piece::NOTHING; 2], &of, expected, None)
            } else {
                let expiry = delete.expiry.unwrap_or(old_expiry);
                let (value, old) = self.old_record(at);
                let of = RecordFields { expiry, cas, state, ..old };
                let piece = [value.piece(), Piece::NOTHING];
                let outcome = self.put(delete.key, delete.hash, piece, &of, expected, None);
                self.recycle_old_value(value);
                outcome
            };
            match outcome {
                StoreOutcome::Stored { .. } => return DeleteOutcome::Deleted,
                StoreOutcome::NoRoom => return DeleteOutcome::NoRoom,
                _ => {}
            }
        }
    }

    /// Increments or decrements.
    pub fn arith(&mut self, arith: &Arith<'_>) -> ArithOutcome {
        loop {
            let Some(hit) = self.peek(arith.hash, arith.key) else {
                let Some((expiry, value)) = arith.initial else { return ArithOutcome::NotFound };
                match self.create_number(arith, expiry, value) {
                    StoreOutcome::Stored { cas, .. } => {
                        return ArithOutcome::Done { value, cas, expiry, created: true };
                    }
                    StoreOutcome::NotStored => continue,
                    _ => return ArithOutcome::NoRoom,
                }
            };
            // An empty value is no number, whatever its CAS number.
            if hit.value_bytes() > 0 && arith.compare.is_some_and(|compare| compare != hit.cas()) {
                return ArithOutcome::Exists;
            }
            let Some((old, old_bytes)) = self.number(&hit) else { return ArithOutcome::NonNumeric };
            let value =
                if arith.increment { old.wrapping_add(arith.delta) } else { old.saturating_sub(arith.delta) };
            let expected = self.expect_unchanged(hit.at);
            let old_expiry = hit.expiry();
            let expiry = arith.expiry.unwrap_or(old_expiry);
            let (flags, mut state) = (hit.item.flags(), hit.item.state());
            let mut digits = [b' '; DIGITS_MAX];
            let length = decimal(value, &mut digits).max(old_bytes);
            if length > old_bytes {
                // memcached has no room for the number in the present item, and stores a new one.
                state = self.state_after(state.bits());
            }
            // A short number in a long value is padded with blanks, so that the value stays as long as it was.
            let (number, blanks) = (&digits[..length.min(DIGITS_MAX)], length.saturating_sub(DIGITS_MAX));
            let cas = arith.explicit_cas.unwrap_or_else(|| self.next_cas());
            let of = RecordFields { flags, expiry, cas, state, kind: Kind::Text };
            let blanks = vec![b' '; blanks];
            let digits = [number, &blanks].map(Piece::Bytes);
            match self.put(arith.key, arith.hash, digits, &of, expected, None) {
                StoreOutcome::Stored { cas, .. } => {
                    return ArithOutcome::Done { value, cas, expiry: old_expiry, created: false };
                }
                StoreOutcome::NoRoom => return ArithOutcome::NoRoom,
                _ => {}
            }
        }
    }

    fn create_number(&mut self, arith: &Arith<'_>, expiry: Expiry, value: u64) -> StoreOutcome {
        let mut digits = [0; DIGITS_MAX];
        let length = decimal(value, &mut digits);
        self.store(&Store {
            key: arith.key,
            hash: arith.hash,
            mode: Mode::Add,
            flags: 0,
            expiry,
            value: &digits[..length],
            compare: None,
            explicit_cas: arith.explicit_cas,
            invalidate: false,
            vivify: None,
            binary_key: arith.binary_key,
            penalty: None,
            marks_parts: false,
        })
    }

    /// Sets the expiry of the item of `key`, which counts as a read of it.
    pub fn touch(&mut self, hash: KeyHash, key: &[u8], expiry: Expiry) -> Touched {
        self.change_expiry(hash, key, expiry, true)
    }

    /// Sets the expiry of the item of `key`, which was read just now: that was the use of it.
    pub fn set_expiry(&mut self, hash: KeyHash, key: &[u8], expiry: Expiry) -> Touched {
        self.change_expiry(hash, key, expiry, false)
    }

    fn change_expiry(&mut self, hash: KeyHash, key: &[u8], expiry: Expiry, is_use: bool) -> Touched {
        let mut is_noted = false;
        loop {
            let hit = if is_use && !is_noted { self.get(hash, key) } else { self.peek(hash, key) };
            let Some(hit) = hit else { return Touched::NotFound };
            if is_use {
                self.note_fetch(&hit);
            }
            let at = hit.at;
            if !is_noted {
                self.counters().uses_beside_gets.add(1);
                is_noted = true;
            }
            if let Some(touched) = self.touch_at(hash, key, at, None, expiry) {
                return touched;
            }
        }
    }

    /// Sets the expiry of the item of `key` that is at `at`, and that has the expiry `seen` if one was looked at.
    /// `None`: another thread changed the item.
    pub(super) fn touch_at(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        at: Location,
        seen: Option<Expiry>,
        expiry: Expiry,
    ) -> Option<Touched> {
        let store = &self.cache.store;
        let expiry = store.namespaces.cap(key, expiry, store.clock.now_s());
        self.wait_to_replace();
        {
            // Under the writer bit, so that the pass cannot move the item with its old expiry in between.
            let guard = self.reader.pin();
            let keys = self.cache.store.key_reader(&guard);
            let bucket = self.cache.store.index.lock(hash);
            match bucket.find(key, &keys) {
                Some(found) if found.entry.location == at => {
                    let item = guard.item(at);
                    if seen.is_some_and(|seen| item.expiry() != seen) {
                        return None;
                    }
                    if item.expiry() == expiry {
                        self.note_change(hash, key, expiry);
                        return Some(Touched::Done);
                    }
                    if self.cache.store.set_expiry(&guard, at, expiry) {
                        self.note_change(hash, key, expiry);
                        self.changed_in_place(hash, &item);
                        return Some(Touched::Done);
                    }
                }
                _ => return None,
            }
        }
        // The record has no words for such an expiry: it is written anew with them.
        let mut expected = self.expect_unchanged(at);
        if let (Expected::Unchanged(expected), Some(seen)) = (&mut expected, seen) {
            expected.expiry = seen;
        }
        let (value, old) = self.old_record(at);
        let of = RecordFields { expiry, ..old };
        let outcome = self.put(key, hash, [value.piece(), Piece::NOTHING], &of, expected, None);
        self.recycle_old_value(value);
        match outcome {
            StoreOutcome::Stored { .. } => Some(Touched::Done),
            StoreOutcome::NoRoom => self.expire_without_room(hash, key, seen, expiry),
            _ => None,
        }
    }

    /// Sets an expiry for which there is no room: an item whose time is past goes, and one that has a word for seconds
    /// expires at the next whole second. `None`: another thread changed the item.
    #[cold]
    fn expire_without_room(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        seen: Option<Expiry>,
        expiry: Expiry,
    ) -> Option<Touched> {
        let hit = self.peek(hash, key)?;
        if seen.is_some_and(|seen| hit.expiry() != seen) {
            return None;
        }
        if self.cache.store.clock.has_passed(expiry) {
            return self.remove_at(hash, hit.at).then_some(Touched::Done);
        }
        let store = &self.cache.store;
        let guard = self.reader.pin();
        let bucket = store.index.lock(hash);
        bucket.find_at(hit.at)?;
        match store.set_expiry(&guard, hit.at, Expiry::at_s(expiry.seconds())) {
            true => {
                self.note_change(hash, key, Expiry::at_s(expiry.seconds()));
                self.changed_in_place(hash, &hit.item);
                Some(Touched::Done)
            }
            false => Some(Touched::NoRoom),
        }
    }
}

/// Room for the digits of any number.
const DIGITS_MAX: usize = 24;

impl Worker {
    /// The number at the front of a value, and the value's length.
    fn number(&self, hit: &Hit<'_>) -> Option<(u64, usize)> {
        match hit.value() {
            Value::Whole(value) => number(value),
            Value::Compressed(stored) => number(&self.expanded(stored)),
            Value::Chunked { .. } => None,
        }
    }
}

/// The decimal number at the front of a value, and the value's length. As with `strtoull` in memcached, blanks and a
/// plus may stand before the number, and anything behind a blank that follows it. `None`: the value is not a number, or
/// the number is larger than 64 bits.
fn number(bytes: &[u8]) -> Option<(u64, usize)> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = bytes.iter().position(|byte| !is_blank(byte))?;
    let text = bytes[start..].strip_prefix(b"+").unwrap_or(&bytes[start..]);
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    // A client of C may store the NUL at the end of a string.
    if digits == 0 || text.get(digits).is_some_and(|byte| !is_blank(byte) && *byte != 0) {
        return None;
    }
    let mut value = 0u64;
    for &digit in &text[..digits] {
        value = value.checked_mul(10)?.checked_add((digit - b'0') as u64)?;
    }
    Some((value, bytes.len()))
}

/// Writes `value` in decimal to the front of `buffer`. Returns the number of digits.
fn decimal(value: u64, buffer: &mut [u8; DIGITS_MAX]) -> usize {
    let digits = value.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut rest = value;
    for at in (0..digits).rev() {
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn decimal_writes_every_length() {
        for value in [0, 9, 10, 99, 100, 12345, u64::MAX, u64::MAX - 1, 10_000_000_000_000_000_000] {
            let mut buffer = [b' '; super::DIGITS_MAX];
            let length = decimal(value, &mut buffer);
            assert_eq!(std::str::from_utf8(&buffer[..length]).unwrap(), value.to_string());
        }
    }
}
