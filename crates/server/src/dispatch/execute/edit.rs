//! Changes that depend on the present item: what clients of Redis ask for.

use super::Executor;
use super::look::show_copy;
use crate::dispatch::decimal::Decimal;
use crate::dispatch::operation::{Change, Condition, CopyItem, ExpireIf, ItemKey, NewExpiry};
use crate::dispatch::outcome::{EditOutcome, Outcome, Tail};
use crate::dispatch::prefixes::PrefixEvent;
use crate::dispatch::progress::Progress;
use larder_cache::{Copied, CopyTo, Edit, Edited, Expiry, Hit, Made, Upload, Value, Worker};
use larder_protocol::resp::decimal as integer;
use xxhash_rust::xxh3::xxh3_64;

/// The longest text of a whole number.
const INTEGER_BYTES_MAX: usize = 20;
/// The longest text of a decimal number. The limit is Redis's (`MAX_LONG_DOUBLE_CHARS`).
const DECIMAL_BYTES_MAX: usize = 5 * 1024;

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
            Value::Chunked { .. } => {
                let mut value = Vec::with_capacity(self.length());
                self.read(&mut value);
                f(&value)
            }
        }
    }

    /// The item with another value.
    fn with_new_value(&self) -> Made {
        Made {
            flags: self.hit.item.flags(),
            expiry: self.hit.expiry(),
            in_parts: self.hit.item.is_changed_in_parts(),
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
        let large = self.worker.peek(key.hash, key.key).map_or(0, |hit| hit.value_bytes() as usize);
        let made = match change {
            Change::Overwrite { bytes: [], .. } => 0,
            Change::Overwrite { offset, bytes } => (*offset as usize).saturating_add(bytes.len()).max(large),
            Change::SetBit { offset, .. } => ((offset / 8) as usize + 1).max(large),
            Change::Append(_) | Change::Expire { .. } | Change::Persist => 0,
            Change::Remove(condition) if !condition.compares() => 0,
            Change::Replace { shows_old: false, condition, .. } if !condition.compares() => 0,
            _ => large,
        };
        if !self.worker.fits(key.key.len(), made as u64) && made > large {
            compose(Outcome::Edited(EditOutcome::TooLarge));
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
            let present = present.filter(|present| starts_with(present, key.head));
            seen.existed = present.is_some();
            decide(change, key, present.as_ref(), now_ms, buffer, &mut seen)
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

    /// Counts an edit as memcached counts what comes nearest to it.
    fn count_edit(&self, key: &ItemKey<'_>, change: &Change<'_>, seen: &Seen, edited: Edited) {
        let counters = self.worker.counters();
        match change {
            Change::Replace { .. } | Change::Append(_) | Change::Overwrite { .. } | Change::SetBit { .. } => {
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
        let Some(hit) = self.worker.peek(from.hash, from.key).filter(|hit| self.has_head(hit, &from)) else {
            return Copied::NotFound;
        };
        let large = if from.head.is_empty() && to.head.is_empty() { 0 } else { hit.value_bytes() as usize };
        let Some(_charge) = self.charge(large) else { return Copied::NoRoom };
        let to = CopyTo { key: to.key, hash: to.hash, skip: from.head.len(), head: to.head, replaces };
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
    /// Whether the outcome shows the value that was there before.
    pub(in crate::dispatch) fn shows_old(&self) -> bool {
        match self {
            Change::Replace { shows_old, .. } => *shows_old,
            Change::ShowAndExpire(_) | Change::ShowAndRemove => true,
            _ => false,
        }
    }
}

fn starts_with(present: &Present<'_>, head: &[u8]) -> bool {
    if head.is_empty() {
        return true;
    }
    let mut own = Vec::with_capacity(head.len());
    present.worker.copy_part(present.hit, 0, head.len(), &mut own);
    own == head
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

/// What becomes of the present item.
fn decide(
    change: &Change<'_>,
    key: &ItemKey<'_>,
    present: Option<&Present<'_>>,
    now_ms: i64,
    buffer: &mut Vec<u8>,
    seen: &mut Seen,
) -> Edit {
    if let (true, Some(present)) = (change.shows_old(), present) {
        let mut old = Vec::with_capacity(present.length());
        present.read(&mut old);
        seen.old = Some(old);
    }
    let new =
        || present.map_or(Made { flags: 0, expiry: Expiry::NEVER, in_parts: false }, Present::with_new_value);
    // Every item that is made of the present one begins with the head of its key.
    buffer.extend_from_slice(key.head);
    match change {
        Change::Replace { condition, expiry, .. } => {
            if !holds(condition, present) {
                return Edit::Keep;
            }
            seen.is_done = true;
            match expiry {
                NewExpiry::At(expiry) if is_past(*expiry, now_ms) => Edit::Remove,
                NewExpiry::At(expiry) => Edit::PutGiven(Made { flags: 0, expiry: *expiry, in_parts: false }),
                NewExpiry::Kept => Edit::PutGiven(Made { expiry: new().expiry, flags: 0, in_parts: false }),
            }
        }
        Change::Append(_) => {
            seen.is_done = true;
            Edit::Append
        }
        Change::Overwrite { offset, bytes } => {
            let length = present.map_or(0, Present::length);
            if bytes.is_empty() {
                seen.number = length as i64;
                return Edit::Keep;
            }
            if let Some(present) = present {
                present.read(buffer);
            }
            let (from, needed) = (key.head.len() + *offset as usize, *offset as usize + bytes.len());
            buffer.resize(key.head.len() + length.max(needed), 0);
            buffer[from..from + bytes.len()].copy_from_slice(bytes);
            seen.number = length.max(needed) as i64;
            Edit::PutMade(Made { in_parts: true, ..new() })
        }
        Change::SetBit { offset, on } => {
            let length = present.map_or(0, Present::length);
            if let Some(present) = present {
                present.read(buffer);
            }
            let at = (offset / 8) as usize;
            buffer.resize(key.head.len() + length.max(at + 1), 0);
            let (byte, mask) = (&mut buffer[key.head.len() + at], 0x80 >> (offset % 8));
            seen.number = i64::from(*byte & mask != 0);
            *byte = if *on { *byte | mask } else { *byte & !mask };
            Edit::PutMade(Made { in_parts: true, ..new() })
        }
        Change::Add(delta) => {
            let old = match present {
                None => Some(0),
                Some(present) if present.length() > INTEGER_BYTES_MAX => None,
                Some(present) => present.with_value(integer),
            };
            let Some(old) = old else {
                seen.refused = Some(Refused::NotInteger);
                return Edit::Keep;
            };
            let Some(sum) = old.checked_add(*delta) else {
                seen.refused = Some(Refused::Overflow);
                return Edit::Keep;
            };
            seen.number = sum;
            larder_protocol::compose::signed(buffer, sum);
            Edit::PutMade(Made { in_parts: false, ..new() })
        }
        Change::AddDecimal(delta) => {
            let old = match present {
                None => Some(Decimal::zero()),
                Some(present) if present.length() > DECIMAL_BYTES_MAX => None,
                Some(present) => present.with_value(Decimal::read),
            };
            let Some(old) = old else {
                seen.refused = Some(Refused::NotDecimal);
                return Edit::Keep;
            };
            let Some(sum) = old.plus(delta) else {
                seen.refused = Some(Refused::Infinite);
                return Edit::Keep;
            };
            let mut text = Vec::new();
            sum.write(&mut text);
            buffer.extend_from_slice(&text);
            seen.old = Some(text);
            Edit::PutMade(Made { in_parts: false, ..new() })
        }
        Change::Expire { expiry, condition } => {
            let Some(present) = present else { return Edit::Keep };
            if !may_expire(*condition, present.hit.expiry(), *expiry) {
                return Edit::Keep;
            }
            seen.is_done = true;
            if is_past(*expiry, now_ms) { Edit::Remove } else { Edit::Expire(*expiry) }
        }
        Change::Persist => {
            seen.is_done = present.is_some_and(|present| present.hit.expiry() != Expiry::NEVER);
            if seen.is_done { Edit::Expire(Expiry::NEVER) } else { Edit::Keep }
        }
        Change::ShowAndExpire(expiry) => match (present, expiry) {
            (Some(_), Some(expiry)) if is_past(*expiry, now_ms) => Edit::Remove,
            (Some(_), Some(expiry)) => Edit::Expire(*expiry),
            _ => Edit::Keep,
        },
        Change::ShowAndRemove => {
            if present.is_some() {
                Edit::Remove
            } else {
                Edit::Keep
            }
        }
        // Flash may have an item that could not be brought to memory.
        Change::Remove(Condition::Always) if present.is_none() && key.head.is_empty() => Edit::Remove,
        Change::Remove(condition) => {
            seen.is_done = present.is_some() && holds(condition, present);
            if seen.is_done { Edit::Remove } else { Edit::Keep }
        }
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
