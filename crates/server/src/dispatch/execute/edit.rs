//! Changes that depend on the present item: what clients of Redis ask for.

use super::Executor;
use super::parts::{has_head, show_copy};
use crate::dispatch::decimal::Decimal;
use crate::dispatch::operation::{
    Change, Condition, CopyItem, ExpireIf, ItemKey, NewExpiry, Rewrite, Rewritten,
};
use crate::dispatch::outcome::{EditOutcome, Outcome, Tail};
use crate::dispatch::prefixes::PrefixEvent;
use crate::dispatch::progress::Progress;
use larder_cache::{Copied, CopyTo, Edit, Edited, Expiry, Hit, Kind, Made, Upload, Value, Worker};
use larder_collection::Collection;
use larder_protocol::resp::decimal as integer;
use xxhash_rust::xxh3::xxh3_64;

/// The longest text of a whole number.
const INTEGER_BYTES_MAX: usize = 20;
/// The longest text of a decimal number. The limit is Redis's (`MAX_LONG_DOUBLE_CHARS`).
const DECIMAL_BYTES_MAX: usize = 5 * 1024;

/// Longest value that a client may make by parts. The limit is Redis's.
const VALUE_BYTES_MAX: usize = 512 << 20;

/// An item that is made of none.
const NEW: Made = Made { flags: 0, expiry: Expiry::NEVER, kind: Kind::Text };

/// What an edit found out beside what becomes of the item.
#[derive(Default)]
struct Seen {
    /// The value before the change, if it is to be shown.
    old: Option<Vec<u8>>,
    /// There was an item.
    existed: bool,
    /// The change was done.
    is_done: bool,
    number: i64,
    refused: Option<Refused>,
}

enum Refused {
    WrongKind,
    NotInteger,
    Overflow,
    NotDecimal,
    Infinite,
}

/// The present item, as a change sees it.
struct Present<'a> {
    worker: &'a Worker,
    hit: &'a Hit<'a>,
    head: usize,
}

impl Present<'_> {
    fn length(&self) -> usize {
        self.hit.value_bytes() as usize - self.head
    }

    fn read(&self, out: &mut Vec<u8>) {
        self.worker.copy_part(self.hit, self.head, self.length(), out);
    }

    /// Calls `f` with the value.
    fn with_value<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        match self.hit.value() {
            Value::Whole(value) => f(value.get(self.head..).unwrap_or_default()),
            Value::Compressed(stored) => {
                f(self.worker.expand(self.hit.at, stored).get(self.head..).unwrap_or_default())
            }
            Value::Chunked { .. } => {
                let mut value = Vec::with_capacity(self.length());
                self.read(&mut value);
                f(&value)
            }
        }
    }
}

impl Executor {
    /// Changes an item. `upload` = the value of a [`Change::Replace`], if it arrived in parts; the value in the change
    /// is ignored then.
    pub(in crate::dispatch) fn edit(
        &mut self,
        progress: &mut Progress,
        key: &ItemKey<'_>,
        change: &Change<'_>,
        upload: Option<Upload>,
        compose: impl FnOnce(Outcome<'_>) -> Tail,
    ) {
        let given = match change {
            Change::Replace { value, .. } | Change::Append(value) => value,
            _ => &[][..],
        };
        // A copy of a large value takes memory beside the columns while it is made.
        let (mut made, mut large, mut is_collection) = self.bytes_made(key, change);
        let asks_for_hash = matches!(change, Change::Rewrite(rewrite) if rewrite.kind == Kind::Hash);
        if is_collection && !asks_for_hash && self.end_if_over(key) {
            (made, large, is_collection) = self.bytes_made(key, change);
        }
        let fits = made <= VALUE_BYTES_MAX && self.worker.fits(key.key.len(), made as u64);
        if !fits && made > large {
            let outcome = if is_collection { EditOutcome::WrongKind } else { EditOutcome::TooLarge };
            compose(Outcome::Edited(outcome));
            return;
        }
        let Some(charge) = self.charge(made) else {
            upload.into_iter().for_each(|upload| self.worker.abandon_upload(upload));
            compose(Outcome::Edited(EditOutcome::NoMemory));
            return;
        };
        let (mut seen, now_ms) = (Seen::default(), self.now_ms());
        let mut decide = |worker: &Worker, hit: Option<&Hit<'_>>, buffer: &mut Vec<u8>| {
            seen = Seen::default();
            let present = hit.map(|hit| Present { worker, hit, head: key.head.len() });
            let present = present.filter(|present| has_head(worker, present.hit, key.head));
            seen.existed = present.is_some();
            Decision { key, present: present.as_ref(), now_ms, buffer, seen: &mut seen }.take(change)
        };
        let is_uploaded = upload.is_some();
        let edited = match upload {
            None => self.worker.edit(key.hash, key.key, [key.head, given], &mut decide),
            Some(upload) => self.worker.edit_with_upload(upload, key.hash, key.key, &mut decide),
        };
        self.count_edit(key, change, &seen, edited);
        if is_uploaded {
            // Other edits are told by whoever carries them out.
            self.observe_edit(progress.fd, key, change, seen.is_done);
        }
        let outcome = match edited {
            Edited::TooLarge => EditOutcome::TooLarge,
            Edited::NoRoom => EditOutcome::NoMemory,
            Edited::Done { value_bytes } => {
                if matches!(seen.refused, Some(Refused::WrongKind)) {
                    compose(Outcome::Edited(EditOutcome::WrongKind));
                    return;
                }
                if change.shows_old() {
                    let Some(old) = seen.old else {
                        compose(Outcome::Edited(EditOutcome::Old(None)));
                        return;
                    };
                    return show_copy(progress, old, charge, |value| {
                        compose(Outcome::Edited(EditOutcome::Old(Some(value))))
                    });
                }
                match (change, seen.refused) {
                    (_, Some(Refused::NotInteger)) => EditOutcome::NotInteger,
                    (_, Some(Refused::Overflow)) => EditOutcome::Overflow,
                    (_, Some(Refused::NotDecimal)) => EditOutcome::NotDecimal,
                    (_, Some(Refused::Infinite)) => EditOutcome::Infinite,
                    (Change::Append(_), None) => {
                        EditOutcome::Number(i64::from(value_bytes) - key.head.len() as i64)
                    }
                    (Change::Overwrite { .. } | Change::Add(_), None) => EditOutcome::Number(seen.number),
                    (Change::SetBit { .. }, None) => EditOutcome::Bit(seen.number != 0),
                    (Change::AddDecimal(_), None) => {
                        let text = seen.old.unwrap_or_default();
                        compose(Outcome::Edited(EditOutcome::Decimal(&text)));
                        return;
                    }
                    _ if seen.is_done => EditOutcome::Done,
                    _ => EditOutcome::NotDone,
                }
            }
        };
        compose(Outcome::Edited(outcome));
    }

    /// Bytes of the copy of the value that a change makes, at least, and bytes of the present value,
    /// and whether that is a collection.
    fn bytes_made(&self, key: &ItemKey<'_>, change: &Change<'_>) -> (usize, usize, bool) {
        let hit = self.worker.peek(key.hash, key.key);
        let large = hit.as_ref().map_or(0, |hit| hit.value_bytes() as usize);
        let is_collection = hit.is_some_and(|hit| hit.item.kind().is_collection());
        let made = match change {
            Change::Overwrite { bytes: [], .. } => 0,
            Change::Overwrite { offset, bytes } => (*offset as usize).saturating_add(bytes.len()).max(large),
            Change::SetBit { offset, .. } => ((offset / 8) as usize + 1).max(large),
            Change::Append(_) | Change::Expire { .. } | Change::Persist => 0,
            Change::Remove(condition) if !condition.compares() => 0,
            Change::Replace { shows_old: false, condition, .. } if !condition.compares() => 0,
            _ => large,
        };
        (made, large, is_collection)
    }

    /// Counts an edit as memcached counts what comes nearest to it.
    fn count_edit(&self, key: &ItemKey<'_>, change: &Change<'_>, seen: &Seen, edited: Edited) {
        let counters = self.worker.counters();
        match change {
            Change::Rewrite(_) if edited == (Edited::Done { value_bytes: 0 }) => {
                counters.cmd_set.add(u64::from(seen.is_done));
            }
            Change::Replace { .. }
            | Change::Append(_)
            | Change::Overwrite { .. }
            | Change::SetBit { .. }
            | Change::Rewrite(_) => {
                match edited {
                    Edited::TooLarge => counters.store_too_large.add(1),
                    Edited::NoRoom => counters.store_no_memory.add(1),
                    Edited::Done { value_bytes } => {
                        counters.cmd_set.add(1);
                        self.note_if_large(key.hash, key.key, value_bytes);
                    }
                }
                self.state.prefixes().note(key.key, PrefixEvent::Set);
            }
            Change::Add(delta) => match (seen.refused.is_none(), *delta >= 0) {
                (true, true) => counters.incr_hits.add(1),
                (true, false) => counters.decr_hits.add(1),
                _ => {}
            },
            Change::AddDecimal(_) => counters.incr_hits.add(u64::from(seen.refused.is_none())),
            Change::Expire { .. } | Change::Persist => {
                counters.cmd_touch.add(1);
                if seen.existed { &counters.touch_hits } else { &counters.touch_misses }.add(1);
            }
            Change::Remove(_) => {
                if seen.is_done { &counters.delete_hits } else { &counters.delete_misses }.add(1);
                self.state.prefixes().note(key.key, PrefixEvent::Delete);
            }
            Change::ShowAndExpire(_) | Change::ShowAndRemove => {}
        }
        if change.shows_old() {
            counters.cmd_get.add(1);
            if seen.existed { &counters.get_hits } else { &counters.get_misses }.add(1);
        }
    }

    /// Copies an item to another key.
    pub(super) fn copy(&mut self, copy: &CopyItem<'_>) -> Copied {
        let CopyItem { from, to, replaces, moves } = *copy;
        self.end_if_over(&from);
        self.end_if_over(&to);
        let Some(hit) =
            self.worker.peek(from.hash, from.key).filter(|hit| has_head(&self.worker, hit, from.head))
        else {
            return Copied::NotFound;
        };
        let large = if from.head.is_empty() && to.head.is_empty() { 0 } else { hit.value_bytes() as usize };
        let Some(_charge) = self.charge(large) else { return Copied::NoRoom };
        let to = CopyTo { key: to.key, hash: to.hash, skip: from.head.len(), head: to.head, replaces, moves };
        let copied = self.worker.copy(from.hash, from.key, &to);
        if copied == Copied::Done {
            self.worker.counters().cmd_set.add(1);
            if moves {
                self.delete_quietly(from.key, from.hash);
            }
        }
        copied
    }
}

impl Condition<'_> {
    /// Whether the present value has to be read for it.
    fn compares(&self) -> bool {
        !matches!(self, Condition::Always | Condition::IfAbsent | Condition::IfPresent)
    }
}

impl Change<'_> {
    /// Whether the present item has to be a string.
    fn is_of_strings(&self) -> bool {
        match self {
            Change::Replace { shows_old, condition, .. } => *shows_old || condition.compares(),
            Change::Remove(condition) => condition.compares(),
            Change::Expire { .. } | Change::Persist | Change::Rewrite(_) => false,
            _ => true,
        }
    }

    /// Whether the outcome shows the value that was there before.
    pub(in crate::dispatch) fn shows_old(&self) -> bool {
        match self {
            Change::Replace { shows_old, .. } => *shows_old,
            Change::ShowAndExpire(_) | Change::ShowAndRemove => true,
            _ => false,
        }
    }
}

/// Whether a time of the server's clock is past.
fn is_past(expiry: Expiry, now_ms: i64) -> bool {
    expiry.milliseconds().is_some_and(|at_ms| at_ms <= now_ms)
}

/// Whether a condition holds for the present item.
fn holds(condition: &Condition<'_>, present: Option<&Present<'_>>) -> bool {
    let equals = |wanted: &[u8]| present.is_some_and(|present| present.with_value(|value| value == wanted));
    let has_digest =
        |wanted: u64| present.is_some_and(|present| present.with_value(|value| xxh3_64(value) == wanted));
    match condition {
        Condition::Always => true,
        Condition::IfAbsent => present.is_none(),
        Condition::IfPresent => present.is_some(),
        Condition::IfEqual(wanted) => equals(wanted),
        Condition::IfNotEqual(wanted) => !equals(wanted),
        Condition::IfDigest(wanted) => has_digest(*wanted),
        Condition::IfNotDigest(wanted) => !has_digest(*wanted),
    }
}

/// What a change looks at, and what it makes.
struct Decision<'d> {
    key: &'d ItemKey<'d>,
    present: Option<&'d Present<'d>>,
    now_ms: i64,
    /// The new value.
    buffer: &'d mut Vec<u8>,
    seen: &'d mut Seen,
}

impl Decision<'_> {
    /// What becomes of the present item.
    fn take(mut self, change: &Change<'_>) -> Edit {
        let present = self.present;
        if change.is_of_strings() && present.is_some_and(|present| present.hit.item.kind().is_collection()) {
            return self.refuse(Refused::WrongKind);
        }
        if let (true, Some(present)) = (change.shows_old(), present) {
            let mut old = Vec::with_capacity(present.length());
            present.read(&mut old);
            self.seen.old = Some(old);
        }
        // Every item that is made of the present one begins with the head of its key.
        self.buffer.extend_from_slice(self.key.head);
        match change {
            Change::Replace { condition, expiry, .. } => self.replace(condition, expiry),
            Change::Append(_) => {
                self.seen.is_done = true;
                Edit::Append
            }
            Change::Overwrite { bytes: [], .. } => {
                self.seen.number = self.length() as i64;
                Edit::Keep
            }
            Change::Overwrite { offset, bytes } => {
                let needed = *offset as usize + bytes.len();
                let value = self.value_of_length(needed);
                value[*offset as usize..needed].copy_from_slice(bytes);
                self.seen.number = value.len() as i64;
                Edit::PutMade(Made { kind: Kind::Parts, ..self.made() })
            }
            Change::SetBit { offset, on } => {
                let at = (offset / 8) as usize;
                let grows = self.length() <= at;
                let (byte, mask) = (&mut self.value_of_length(at + 1)[at], 0x80 >> (offset % 8));
                let old = *byte & mask != 0;
                *byte = if *on { *byte | mask } else { *byte & !mask };
                self.seen.number = i64::from(old);
                let made = Made { kind: Kind::Parts, ..self.made() };
                match present {
                    Some(present) if old == *on && !grows => match present.hit.item.kind() {
                        Kind::Parts => Edit::Keep,
                        // The value is not shown as a number any more.
                        _ => Edit::PutSame(made),
                    },
                    _ => Edit::PutMade(made),
                }
            }
            Change::Rewrite(rewrite) => self.rewrite(rewrite),
            Change::Add(delta) => self.add(*delta),
            Change::AddDecimal(None) => self.refuse(Refused::NotDecimal),
            Change::AddDecimal(Some(delta)) => self.add_decimal(delta),
            Change::Expire { expiry, condition } => match present {
                Some(present) if may_expire(*condition, present.hit.expiry(), *expiry) => {
                    self.seen.is_done = true;
                    self.expire(*expiry)
                }
                _ => Edit::Keep,
            },
            Change::Persist => {
                self.seen.is_done = present.is_some_and(|present| present.hit.expiry() != Expiry::NEVER);
                if self.seen.is_done { Edit::Expire(Expiry::NEVER) } else { Edit::Keep }
            }
            Change::ShowAndExpire(Some(expiry)) => match present {
                Some(present) if (*expiry, present.hit.expiry()) != (Expiry::NEVER, Expiry::NEVER) => {
                    self.expire(*expiry)
                }
                _ => Edit::Keep,
            },
            Change::ShowAndExpire(None) => Edit::Keep,
            Change::ShowAndRemove if present.is_some() => Edit::Remove,
            Change::ShowAndRemove => Edit::Keep,
            // Flash may have an item that could not be brought to memory.
            Change::Remove(Condition::Always) if present.is_none() && self.key.head.is_empty() => {
                Edit::Remove
            }
            Change::Remove(condition) => {
                self.seen.is_done = present.is_some() && holds(condition, present);
                if self.seen.is_done { Edit::Remove } else { Edit::Keep }
            }
        }
    }

    fn replace(&mut self, condition: &Condition<'_>, expiry: &NewExpiry) -> Edit {
        if !holds(condition, self.present) {
            return Edit::Keep;
        }
        self.seen.is_done = true;
        match expiry {
            NewExpiry::At(expiry) if is_past(*expiry, self.now_ms) => Edit::Remove,
            NewExpiry::At(expiry) => Edit::PutGiven(Made { expiry: *expiry, ..NEW }),
            NewExpiry::Kept => Edit::PutGiven(Made { expiry: self.made().expiry, ..NEW }),
        }
    }

    /// Makes another collection of the one that is there.
    fn rewrite(&mut self, rewrite: &Rewrite<'_>) -> Edit {
        let Rewrite { kind, replaces, unix_ms, make } = *rewrite;
        let kept = self.present.filter(|_| !replaces);
        if kept.is_some_and(|present| present.hit.item.kind() != kind) {
            return self.refuse(Refused::WrongKind);
        }
        // Of a hash whose fields are all past nothing is left, nor of its lifetime.
        let mut is_over = false;
        let rewritten = match kept {
            None => make(None, self.buffer),
            Some(present) => present.with_value(|value| {
                let collection = Collection::read(kind, value, unix_ms);
                is_over = collection.is_none_or(|collection| collection.is_empty());
                make(collection.filter(|_| !is_over), self.buffer)
            }),
        };
        self.seen.is_done = rewritten != Rewritten::Same;
        match rewritten {
            Rewritten::Same if is_over => Edit::Remove,
            Rewritten::Same => Edit::Keep,
            Rewritten::Next => {
                let expiry = kept.filter(|_| !is_over).map_or(Expiry::NEVER, |present| present.hit.expiry());
                Edit::PutMade(Made { flags: Kind::COLLECTION_FLAGS, expiry, kind })
            }
            // Flash may have an item that could not be brought to memory.
            Rewritten::Gone if self.present.is_some() || self.key.head.is_empty() => Edit::Remove,
            Rewritten::Gone => Edit::Keep,
        }
    }

    fn add(&mut self, delta: i64) -> Edit {
        let old = match self.present {
            None => Some(0),
            Some(present) if present.length() > INTEGER_BYTES_MAX => None,
            Some(present) => present.with_value(integer),
        };
        let sum = match old.map(|old| old.checked_add(delta)) {
            None => return self.refuse(Refused::NotInteger),
            Some(None) => return self.refuse(Refused::Overflow),
            Some(Some(sum)) => sum,
        };
        self.seen.number = sum;
        larder_protocol::compose::signed(self.buffer, sum);
        Edit::PutMade(Made { kind: Kind::Text, ..self.made() })
    }

    fn add_decimal(&mut self, delta: &Decimal) -> Edit {
        let old = match self.present {
            None => Some(Decimal::zero()),
            Some(present) if present.length() > DECIMAL_BYTES_MAX => None,
            Some(present) => present.with_value(Decimal::read),
        };
        let sum = match old.map(|old| old.plus(delta)) {
            None => return self.refuse(Refused::NotDecimal),
            Some(None) => return self.refuse(Refused::Infinite),
            Some(Some(sum)) => sum,
        };
        let mut text = Vec::new();
        sum.write(&mut text);
        self.buffer.extend_from_slice(&text);
        self.seen.old = Some(text);
        Edit::PutMade(Made { kind: Kind::Text, ..self.made() })
    }

    fn refuse(&mut self, why: Refused) -> Edit {
        self.seen.refused = Some(why);
        Edit::Keep
    }

    /// The item gets this expiry. A time that is past ends it.
    fn expire(&self, expiry: Expiry) -> Edit {
        if is_past(expiry, self.now_ms) { Edit::Remove } else { Edit::Expire(expiry) }
    }

    fn length(&self) -> usize {
        self.present.map_or(0, Present::length)
    }

    /// The present value in the buffer, with zeros behind it up to this length.
    fn value_of_length(&mut self, least: usize) -> &mut [u8] {
        let (head, length) = (self.key.head.len(), self.length().max(least));
        if let Some(present) = self.present {
            present.read(self.buffer);
        }
        self.buffer.resize(head + length, 0);
        &mut self.buffer[head..]
    }

    /// The present item with another value.
    fn made(&self) -> Made {
        let present = self.present.map(|present| &present.hit);
        present.map_or(NEW, |hit| Made {
            flags: hit.item.flags(),
            expiry: hit.expiry(),
            kind: hit.item.kind(),
        })
    }
}

/// Whether an item of expiry `old` may get the expiry `new`.
fn may_expire(condition: ExpireIf, old: Expiry, new: Expiry) -> bool {
    let has_one = old != Expiry::NEVER;
    !(condition.has_none && has_one
        || condition.has_one && !has_one
        || condition.is_later && (!has_one || new <= old)
        || condition.is_earlier && has_one && new >= old)
}
