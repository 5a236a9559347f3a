//! Storing a large value that has arrived in parts.

use super::Worker;
use super::chain::{RecordFields, Upload};
use super::edit::{Decide, Edited, Given};
use super::penalty::priced;
use super::write::{Expected, Published, Seen};
use crate::commands::{Mode, Store, StoreOutcome};
use crate::penalties::Price;
use larder_item::{KeyHash, Kind, Location};

impl Worker {
    /// Stores a complete upload as `store` says. The `value` of `store` is ignored.
    pub fn complete_upload(&mut self, mut upload: Upload, store: &Store<'_>) -> StoreOutcome {
        loop {
            let (expected, stale_of) = match self.admit(store) {
                Ok(admitted) => admitted,
                Err(outcome) => {
                    self.abandon_upload(upload);
                    return outcome;
                }
            };
            if let (true, Expected::Unchanged(Seen { at, .. })) = (store.joins(), expected) {
                match self.join_upload(&mut upload, store, at) {
                    StoreOutcome::Exists => continue,
                    outcome @ StoreOutcome::Stored { .. } => return outcome,
                    outcome => {
                        self.abandon_upload(upload);
                        return outcome;
                    }
                }
            }
            let price = self.price_of(store, upload.came_us());
            let (state, expiry) = self.new_state(store, stale_of);
            let cas = store.explicit_cas.unwrap_or_else(|| self.next_cas());
            let state = priced(state, price.as_ref());
            let of = RecordFields { flags: store.flags, expiry, cas, state, kind: Kind::Text };
            let chain = (upload.total_bytes(), upload.first());
            match self.put_chain(store.key, store.hash, chain, &of, expected, price.as_ref()) {
                StoreOutcome::Exists => {}
                outcome @ StoreOutcome::Stored { .. } => return outcome,
                outcome => {
                    self.abandon_upload(upload);
                    return outcome;
                }
            }
        }
    }

    /// Edits the item of `key` as [`Worker::edit`] does, with a complete upload as the value that `decide` may choose.
    /// It may not choose another value, nor an addition.
    pub fn edit_with_upload(
        &mut self,
        upload: Upload,
        hash: KeyHash,
        key: &[u8],
        decide: &mut Decide<'_>,
    ) -> Edited {
        let edited = self.edit_given(hash, key, Given::Upload(&upload), decide);
        // An upload is longer than nothing: it is the value of the item now, or nothing has it.
        if !matches!(edited, Edited::Done { value_bytes } if value_bytes > 0) {
            self.abandon_upload(upload);
        }
        edited
    }

    /// Puts an item whose value is a chain of chunks, where `expected` allows it. `chain` = their length and the first.
    /// `Exists`: another thread changed the item, and the chain is as it was.
    pub(super) fn put_chain(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        chain: (u32, Location),
        of: &RecordFields,
        expected: Expected,
        price: Option<&Price>,
    ) -> StoreOutcome {
        let (value_bytes, first) = chain;
        let Some(new) = self.place_chunked(&of.chunked(key, value_bytes, first)) else {
            return StoreOutcome::NoRoom;
        };
        match self.publish(hash, key, expected, new, price) {
            Published::Done => StoreOutcome::Stored { cas: of.cas, value_bytes },
            Published::Changed => StoreOutcome::Exists,
            Published::Full => StoreOutcome::NoRoom,
        }
    }

    /// Appends a complete upload to the item at `at`, or prepends it: the old value is copied to chunks of the same
    /// chain. `Exists`: the item has changed meanwhile, and the upload is as it was.
    fn join_upload(&mut self, upload: &mut Upload, store: &Store<'_>, at: Location) -> StoreOutcome {
        let expected = self.expect_unchanged(at);
        let (old, of) = self.old_record(at);
        let total = old.length() as u64 + u64::from(upload.total_bytes());
        if !self.fits(store.key.len(), total) || of.kind.is_collection() {
            return StoreOutcome::NotStored;
        }
        let of = self.extended(of, store);
        let mut copy = None;
        if old.length() > 0 {
            let Some(begun) = self.begin_chain(store.hash, old.length() as u32, upload.chain()) else {
                return StoreOutcome::NoRoom;
            };
            let filled = self.fill_piece(copy.insert(begun), old.piece());
            self.recycle_old_value(old);
            if !filled {
                copy.into_iter().for_each(|copy| self.abandon_upload(copy));
                return StoreOutcome::NoRoom;
            }
        }
        let first = match &mut copy {
            None => upload.first(),
            Some(copy) if store.mode == Mode::Append => {
                copy.link(Some(upload.first()));
                copy.first()
            }
            Some(copy) => {
                upload.link(Some(copy.first()));
                upload.first()
            }
        };
        let price = self.price_of(store, upload.came_us());
        let of = RecordFields { state: priced(of.state, price.as_ref()), ..of };
        let chain = (total as u32, first);
        let outcome = self.put_chain(store.key, store.hash, chain, &of, expected, price.as_ref());
        if matches!(outcome, StoreOutcome::Stored { .. }) {
            return outcome;
        }
        upload.link(None);
        if let Some(mut copy) = copy {
            copy.link(None);
            self.abandon_upload(copy);
        }
        outcome
    }
}
