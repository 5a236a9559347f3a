//! Storing a large value that has arrived in parts.

use super::Worker;
use super::chain::{RecordFields, Upload};
use super::edit::{Edit, Edited};
use super::penalty::priced;
use super::read::Hit;
use super::write::{Expected, Published};
use crate::commands::{Mode, Store, StoreOutcome};
use larder_item::{KeyHash, Location};

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
            if let (true, Expected::Unchanged { at, .. }) = (store.joins(), expected) {
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
            let of = RecordFields { flags: store.flags, expiry, cas, state, changed_in_parts: false };
            let record = of.chunked(store.key, upload.total_bytes(), upload.first());
            let Some(new) = self.place_chunked(&record) else {
                self.chain_died(upload.first());
                return StoreOutcome::NoRoom;
            };
            match self.publish(store.hash, store.key, expected, new, price.as_ref()) {
                Published::Done => return StoreOutcome::Stored { cas, value_bytes: upload.total_bytes() },
                Published::Changed => {}
                Published::Full => {
                    self.chain_died(upload.first());
                    return StoreOutcome::NoRoom;
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
        decide: &mut dyn FnMut(&Worker, Option<&Hit<'_>>) -> Edit,
    ) -> Edited {
        loop {
            let hit = self.peek(hash, key);
            let edit = decide(self, hit.as_ref());
            let at = hit.map(|hit| hit.at);
            let made = match (edit, at) {
                (Edit::PutGiven(made), _) => made,
                (Edit::Remove, Some(at)) if !self.remove_at(hash, at) => continue,
                (Edit::Remove, None) if !self.make_absent(hash, key) => continue,
                _ => {
                    self.abandon_upload(upload);
                    return Edited::Done { value_bytes: 0 };
                }
            };
            let expected = at.map_or(Expected::Absent, |at| self.expect_unchanged(at));
            let present = at.map_or(0, |at| self.reader.pin().item(at).state().bits());
            let of = RecordFields {
                flags: made.flags,
                expiry: made.expiry,
                cas: self.next_cas(),
                state: self.state_after(present),
                changed_in_parts: made.in_parts,
            };
            let Some(new) = self.place_chunked(&of.chunked(key, upload.total_bytes(), upload.first())) else {
                self.chain_died(upload.first());
                return Edited::NoRoom;
            };
            match self.publish(hash, key, expected, new, None) {
                Published::Done => return Edited::Done { value_bytes: upload.total_bytes() },
                Published::Changed => {}
                Published::Full => {
                    self.chain_died(upload.first());
                    return Edited::NoRoom;
                }
            }
        }
    }

    /// Appends a complete upload to the item at `at`, or prepends it: the old value is copied to chunks of the same
    /// chain. `Exists`: the item has changed meanwhile, and the upload is as it was.
    fn join_upload(&mut self, upload: &mut Upload, store: &Store<'_>, at: Location) -> StoreOutcome {
        let expected = self.expect_unchanged(at);
        let (old, of) = self.old_record(at);
        let total = old.length() as u64 + u64::from(upload.total_bytes());
        if !self.fits(store.key.len(), total) {
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
        let record = of.chunked(store.key, total as u32, first);
        let outcome = match self.place_chunked(&record) {
            None => StoreOutcome::NoRoom,
            Some(new) => match self.publish(store.hash, store.key, expected, new, price.as_ref()) {
                Published::Done => return StoreOutcome::Stored { cas: of.cas, value_bytes: total as u32 },
                Published::Changed => StoreOutcome::Exists,
                Published::Full => StoreOutcome::NoRoom,
            },
        };
        upload.link(None);
        if let Some(mut copy) = copy {
            copy.link(None);
            self.abandon_upload(copy);
        }
        outcome
    }
}
