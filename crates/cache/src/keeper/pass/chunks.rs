//! The chunks of large values that a pass meets. Where items may leave memory, the whole item of a chunk goes, for to
//! move it would copy megabytes. Where nothing may be evicted, what is deleted would not be room again while a chunk of
//! another item stands beside it: there an item is moved with all its chunks, if it is not longer than the columns that
//! are kept ready for moves.

use super::{Met, Settle};
use crate::demoter::{Leaving, Levels, SentParts};
use crate::item_store::{Life, first_chunk};
use crate::keeper::survivors::Zone;
use crate::selector::Emptied;
use larder_index::{BucketGuard, Found};
use larder_item::{KeyHash, Location, State};
use larder_memory::{Chunk, ChunkSpace, Item, NodeId, Value};

impl Settle<'_, '_> {
    /// Decides about a chunk of a large value: if its owner can still be found, the whole item goes, or moves.
    pub(super) fn chunk(&mut self, met: &Met) -> Emptied {
        let Levels { store, demoter, .. } = self.levels;
        // The item may have gone with an earlier chunk.
        if self.guard.item(met.at).state().has(State::DEAD) {
            return Emptied::Yes;
        }
        // Only this pass moves an owner. If a writer replaces it meanwhile, nothing refers to the parts that were sent.
        let parts = if demoter.is_some() && self.may_evict {
            let owner = self.owner_of(met, &store.index.lock(met.hash));
            owner.map_or(SentParts::None, |owner| {
                self.levels.send_parts(self.guard, met.hash, owner.entry.location, self.counters)
            })
        } else {
            SentParts::None
        };
        let bucket = store.index.lock(met.hash);
        let Some(found) = self.owner_of(met, &bucket) else { return Emptied::Yes };
        let owner = found.entry.location;
        let life = store.life(owner, &self.guard.item(owner));
        if !self.may_evict && life == Life::Live {
            drop(bucket);
            return if store.leaving.happens() { Emptied::Refused } else { self.move_chain(met.hash, owner) };
        }
        if life == Life::Live && !store.leaving.may_lose() {
            let leaving =
                Leaving { hash: met.hash, at: owner, warmth: found.entry.warmth, parts, compressed: None };
            if !self.levels.leave_for_flash(self.guard, &leaving, self.counters) {
                return Emptied::Refused;
            }
            self.forget(bucket, &found, life);
            return Emptied::Yes;
        }
        self.remove(bucket, &found, met.hash, parts, life);
        Emptied::Yes
    }

    /// The entry of the item that a chunk belongs to.
    fn owner_of(&self, chunk: &Met, bucket: &BucketGuard<'_>) -> Option<Found> {
        let chain = self.guard.chunk(chunk.at).chain;
        bucket.entries().find(|found| {
            let item = self.guard.item(found.entry.location);
            first_chunk(&item).is_some_and(|first| self.guard.chunk(first).chain == chain)
        })
    }

    /// Moves the item at `owner` with all its chunks.
    fn move_chain(&mut self, hash: KeyHash, owner: Location) -> Emptied {
        let store = self.levels.store;
        let item = self.guard.item(owner);
        let Value::Chunked { total, first } = item.value() else { return Emptied::Refused };
        // Of the first column and of the last one, other values may have the greater part.
        let columns = (u64::from(total) / store.column_bytes()) as usize + 2;
        if columns > store.columns_not_for_new() {
            return Emptied::Refused;
        }
        let has_room = columns <= store.memory.available_columns();
        let Some(copied) = has_room.then(|| self.copy_chain(hash, first, item.cas())).flatten() else {
            return Emptied::NoRoom;
        };
        let mut bucket = store.index.lock(hash);
        let Some(found) = bucket.find_at(owner) else {
            self.give_up(copied);
            return Emptied::Yes;
        };
        let (life, warmth) = (store.life(owner, &item), found.entry.warmth);
        let copy = if life == Life::Live { self.copy(owner, &item, warmth, Some(copied)) } else { None };
        let Some(new) = copy else {
            self.give_up(copied);
            if life == Life::Live {
                return Emptied::NoRoom;
            }
            self.remove(bucket, &found, hash, SentParts::None, life);
            return Emptied::Yes;
        };
        // The expiry may have changed since the copy. Under the writer bit it holds still.
        self.each_chunk(copied, |chunk| chunk.set_expiry(item.expiry()));
        store.commit_chunks(self.guard, new);
        self.replace(&mut bucket, &found, new, warmth);
        drop(bucket);
        let mut thinned = Vec::new();
        self.each_chunk(first, |chunk| {
            chunk.die();
            thinned.push(store.memory.column_of(chunk.location()));
        });
        self.thinned.append(&mut thinned);
        Emptied::Yes
    }

    /// Copies the chain that begins at `first`, of an item with the number `cas`. Returns the first chunk of the copy.
    /// `None`: there is no room, and what was copied is dead.
    fn copy_chain(&mut self, hash: KeyHash, first: Location, cas: u64) -> Option<Location> {
        let (mut copied, mut last): (_, Option<ChunkSpace>) = (None, None);
        let mut next = Some(first);
        while let Some(at) = next {
            let chunk = self.guard.chunk(at);
            let Some(mut space) = self.reserve_chunk(hash, &chunk, cas) else {
                drop(last);
                copied.into_iter().for_each(|copied| self.give_up(copied));
                return None;
            };
            space.write(0, chunk.bytes);
            let at = space.location();
            copied.get_or_insert(at);
            if let Some(mut before) = last.replace(space) {
                before.set_next(Some(at));
            }
            next = chunk.next;
        }
        copied
    }

    /// Reserves room for the copy of a chunk, of an item with the number `cas`.
    fn reserve_chunk(&mut self, hash: KeyHash, chunk: &Chunk<'_>, cas: u64) -> Option<ChunkSpace> {
        let store = self.levels.store;
        loop {
            let open = self.survivors.chunks();
            let length = chunk.bytes.len() as u16;
            if let Some(space) =
                open.as_mut().and_then(|open| open.place_chunk(hash, chunk.chain, None, length))
            {
                return Some(space);
            }
            if let Some(full) = open.take() {
                let sealed = full.seal_at(store.clock.now_s());
                self.selector.sealed(store, sealed);
            }
            let taken = self.survivors.take(store, NodeId::default(), Zone::Packed, cas)?;
            *self.survivors.chunks() = Some(taken);
        }
    }

    /// Counts each chunk of a copy that no entry leads to as dead.
    fn give_up(&self, first: Location) {
        let mut bytes = 0;
        self.each_chunk(first, |chunk| bytes += u64::from(chunk.die()));
        self.counters.bytes_given_up.add(bytes);
    }

    /// Calls `f` with each chunk from `first` on.
    fn each_chunk<T>(&self, first: Location, mut f: impl FnMut(&Item<'_>) -> T) {
        let mut next = Some(first);
        while let Some(at) = next {
            f(&self.guard.item(at));
            next = self.guard.chunk(at).next;
        }
    }
}
