//! Changes that depend on the present item as a whole: look, decide, and do it again if another thread came in between.

use super::Worker;
use super::chain::{Piece, RecordFields, Upload};
use super::read::Hit;
use super::write::Expected;
use crate::commands::{StoreOutcome, Touched};
use larder_item::{Expiry, KeyHash, Kind};
use larder_memory::Value;

/// Room for a value that is kept for the next one, at most, bytes.
const MADE_BYTES_KEPT: usize = 1 << 20;

/// What becomes of the present item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Edit {
    /// It stays as it is.
    Keep,
    /// It goes.
    Remove,
    /// It gets this expiry.
    Expire(Expiry),
    /// It is replaced by an item with the value that was given to [`Worker::edit`].
    PutGiven(Made),
    /// It is replaced by an item with the value that was made in the buffer.
    PutMade(Made),
    /// It is replaced by an item with the same value, made in the buffer. Nobody who watches the key is told.
    PutSame(Made),
    /// The last part of the value that was given is added to its own. An absent item is created with all parts.
    Append,
}

/// An item that an edit makes, beside its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// Client flags.
    pub flags: u32,
    /// Expiry.
    pub expiry: Expiry,
    /// What the value is to clients of Redis.
    pub kind: Kind,
}

/// What came of an edit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Edited {
    /// What was decided is done.
    Done {
        /// The value's length now, if the item has another value than before.
        value_bytes: u32,
    },
    /// The item would be larger than the limit. It is as it was.
    TooLarge,
    /// There is no memory, and none could be made. The item is as it was.
    NoRoom,
}

/// How an item is copied to another key.
#[derive(Clone, Copy, Debug)]
pub struct CopyTo<'a> {
    /// The other key.
    pub key: &'a [u8],
    /// Its hash.
    pub hash: KeyHash,
    /// Bytes at the front of the value that are not copied.
    pub skip: usize,
    /// The copy's value begins with these bytes.
    pub head: &'a [u8],
    /// An item that the other key has is replaced.
    pub replaces: bool,
    /// The item itself goes as soon as it was copied: where there is no room, the copy may take its place.
    pub moves: bool,
}

/// What came of copying an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copied {
    /// The other key has it.
    Done,
    /// There is nothing to copy.
    NotFound,
    /// The other key has an item, which stays.
    Exists,
    /// The copy would be larger than the limit.
    TooLarge,
    /// There is no memory, and none could be made.
    NoRoom,
}

/// Looks at the present item, and says what becomes of it. It may make a value in the buffer.
pub(super) type Decide<'d> = dyn FnMut(&Worker, Option<&Hit<'_>>, &mut Vec<u8>) -> Edit + 'd;

/// The value that an edit may choose.
#[derive(Clone, Copy)]
pub(super) enum Given<'g> {
    /// Two parts.
    Parts([&'g [u8]; 2]),
    /// A complete upload.
    Upload(&'g Upload),
}

impl Worker {
    /// Edits the item of `key`: `decide` looks at it, `None` if there is none, and says what becomes of it. It may make
    /// a new value in the buffer, which is empty. It is asked again if another thread changes the item meanwhile.
    /// `given` = a value in two parts that it may choose.
    pub fn edit(&mut self, hash: KeyHash, key: &[u8], given: [&[u8]; 2], decide: &mut Decide<'_>) -> Edited {
        self.edit_given(hash, key, Given::Parts(given), decide)
    }

    pub(super) fn edit_given(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        given: Given<'_>,
        decide: &mut Decide<'_>,
    ) -> Edited {
        let (given, upload) = match given {
            Given::Parts(parts) => (parts, None),
            Given::Upload(upload) => ([&[][..]; 2], Some(upload)),
        };
        let mut buffer = std::mem::take(&mut self.spare.made);
        let edited = loop {
            buffer.clear();
            let hit = self.peek(hash, key);
            let at = hit.as_ref().map(|hit| hit.at);
            // Before the decision: an expiry that another thread changes meanwhile may be one that it depends on.
            let seen_expiry = hit.as_ref().map(Hit::expiry);
            let expected = at.map_or(Expected::Absent, |at| self.expect_unchanged(at));
            let edit = decide(self, hit.as_ref(), &mut buffer);
            let (made, value) = match (edit, at) {
                (Edit::Keep, _) | (Edit::Expire(_), None) => break Edited::Done { value_bytes: 0 },
                (Edit::Remove, Some(at)) if self.remove_at(hash, at) => {
                    break Edited::Done { value_bytes: 0 };
                }
                (Edit::Remove, None) if self.make_absent(hash, key) => break Edited::Done { value_bytes: 0 },
                (Edit::Remove, _) => continue,
                (Edit::Expire(expiry), Some(at)) => match self.touch_at(hash, key, at, seen_expiry, expiry) {
                    Some(Touched::NoRoom) => break Edited::NoRoom,
                    Some(_) => break Edited::Done { value_bytes: 0 },
                    None => continue,
                },
                (Edit::Append, Some(at)) => {
                    let (old, of) = self.old_record(at);
                    let total = old.length() as u64 + given[1].len() as u64;
                    let outcome = if self.fits(key.len(), total) {
                        let of = RecordFields { kind: Kind::Parts, ..self.renewed(of) };
                        self.put(key, hash, [old.piece(), Piece::Bytes(given[1])], &of, expected, None)
                    } else {
                        StoreOutcome::TooLarge
                    };
                    self.recycle_old_value(old);
                    match ended(outcome) {
                        Some(edited) => break edited,
                        None => continue,
                    }
                }
                (Edit::Append, None) => (Made { flags: 0, expiry: Expiry::NEVER, kind: Kind::Text }, given),
                (Edit::PutGiven(made), _) => (made, given),
                (Edit::PutMade(made) | Edit::PutSame(made), _) => (made, [&buffer[..], &[]]),
            };
            if !self.fits(key.len(), (value[0].len() + value[1].len()) as u64) {
                break Edited::TooLarge;
            }
            let present = at.map_or(0, |at| self.reader.pin().item(at).state().bits());
            let of = RecordFields {
                flags: made.flags,
                expiry: made.expiry,
                cas: self.next_cas(),
                state: self.state_after(present),
                kind: made.kind,
            };
            self.changes_nothing = matches!(edit, Edit::PutSame(_));
            let outcome = match upload {
                None => self.put(key, hash, value.map(Piece::Bytes), &of, expected, None),
                Some(upload) => {
                    let chain = (upload.total_bytes(), upload.first());
                    self.put_chain(key, hash, chain, &of, expected, None)
                }
            };
            self.changes_nothing = false;
            if let Some(edited) = ended(outcome) {
                break edited;
            }
        };
        if buffer.capacity() <= MADE_BYTES_KEPT {
            self.spare.made = buffer;
        }
        edited
    }

    /// The fields of an item that replaces another, with a CAS number of its own.
    fn renewed(&self, old: RecordFields) -> RecordFields {
        RecordFields { cas: self.next_cas(), state: self.state_after(old.state.bits()), ..old }
    }

    /// Copies the item of `key`, with its flags and expiry.
    pub fn copy(&mut self, hash: KeyHash, key: &[u8], to: &CopyTo<'_>) -> Copied {
        loop {
            let Some(at) = self.peek(hash, key).map(|hit| hit.at) else { return Copied::NotFound };
            let expected = match (to.replaces, self.peek(to.hash, to.key)) {
                (true, _) => Expected::Anything,
                (false, Some(_)) => return Copied::Exists,
                (false, None) => Expected::Absent,
            };
            let mut whole = Vec::new();
            let is_plain = to.skip == 0 && to.head.is_empty();
            if !is_plain {
                let Some(hit) = self.peek(hash, key) else { continue };
                self.copy_value(&hit, &mut whole);
            }
            let (old, of) = self.old_record(at);
            let value = match is_plain {
                true => [old.piece(), Piece::NOTHING],
                false => [Piece::Bytes(to.head), Piece::Bytes(whole.get(to.skip..).unwrap_or_default())],
            };
            if !self.fits(to.key.len(), (value[0].length() + value[1].length()) as u64) {
                self.recycle_old_value(old);
                return Copied::TooLarge;
            }
            let of = self.renewed(of);
            let mut outcome = self.put(to.key, to.hash, value, &of, expected, None);
            if outcome == StoreOutcome::NoRoom && to.moves {
                outcome = self.put_instead((hash, key), (to.hash, to.key), value, &of, expected, None);
            }
            self.recycle_old_value(old);
            match outcome {
                StoreOutcome::Stored { .. } => return Copied::Done,
                StoreOutcome::NoRoom => return Copied::NoRoom,
                // Somebody stored under the other key: look again.
                _ => {}
            }
        }
    }

    /// The warmth of the item: how often it was used lately, 0 to 3. `None`: the policy does not keep it in the index.
    pub fn warmth(&self, hash: KeyHash, hit: &Hit<'_>) -> Option<u8> {
        self.cache
            .temperature_kind()
            .marks_entries()
            .then(|| self.cache.store.index.warmth_at(hash, hit.at))?
    }

    /// Appends `bytes` of the value, from `from` on, to `out`, as far as the value has them.
    pub fn copy_part(&self, hit: &Hit<'_>, from: usize, bytes: usize, out: &mut Vec<u8>) {
        match hit.value() {
            Value::Whole(value) => {
                let rest = value.get(from..).unwrap_or_default();
                out.extend_from_slice(&rest[..bytes.min(rest.len())]);
            }
            Value::Compressed(stored) => {
                let value = self.expanded(stored);
                let rest = value.get(from..).unwrap_or_default();
                out.extend_from_slice(&rest[..bytes.min(rest.len())]);
            }
            Value::Chunked { first, .. } => {
                let guard = self.reader.pin();
                let (mut skip, mut left, mut next) = (from, bytes, Some(first));
                while let Some(at) = next.filter(|_| left > 0) {
                    let chunk = guard.chunk(at);
                    let rest = chunk.bytes.get(skip..).unwrap_or_default();
                    let taken = &rest[..left.min(rest.len())];
                    out.extend_from_slice(taken);
                    left -= taken.len();
                    skip = skip.saturating_sub(chunk.bytes.len());
                    next = chunk.next;
                }
            }
        }
    }
}

/// What a store means for an edit. `None`: another thread changed the item, and the edit begins anew.
fn ended(outcome: StoreOutcome) -> Option<Edited> {
    match outcome {
        StoreOutcome::Stored { value_bytes, .. } => Some(Edited::Done { value_bytes }),
        StoreOutcome::TooLarge => Some(Edited::TooLarge),
        StoreOutcome::NoRoom => Some(Edited::NoRoom),
        StoreOutcome::NotStored | StoreOutcome::Exists | StoreOutcome::NotFound => None,
    }
}
