//! Requests on one item, or on two, read as operations.

use super::compose::Form;
use super::errors::{self, Error};
use super::moment::Moment;
use crate::dispatch::decimal::Decimal;
use crate::dispatch::operation::{
    BitRange, Change, Condition, CopyItem, ExpireIf, ItemKey, Look, NewExpiry, OldItem, Operation, Part,
    StoreItem,
};
use arrayvec::ArrayVec;
use larder_cache::{Expiry, Mode, Store};
use larder_protocol::resp::{Command, Id, decimal};

/// The highest bit that can be named, plus one: Redis's limit of strings of 512 MiB.
const BITS_MAX: i64 = 1 << 32;
/// One byte more than the longest word of an option has.
const OPTION_BYTES_MAX: usize = 8;

/// The head of a word in lower case: all of it, if it is the word of an option.
fn lower(word: &[u8]) -> ArrayVec<u8, OPTION_BYTES_MAX> {
    word.iter().take(OPTION_BYTES_MAX).map(u8::to_ascii_lowercase).collect()
}

/// Which words name a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Seconds,
    Milliseconds,
    UnixSeconds,
    UnixMilliseconds,
}

impl Unit {
    fn of(word: &[u8]) -> Option<Unit> {
        match lower(word)[..] {
            [b'e', b'x'] => Some(Unit::Seconds),
            [b'p', b'x'] => Some(Unit::Milliseconds),
            [b'e', b'x', b'a', b't'] => Some(Unit::UnixSeconds),
            [b'p', b'x', b'a', b't'] => Some(Unit::UnixMilliseconds),
            _ => None,
        }
    }

    fn is_relative(self) -> bool {
        matches!(self, Unit::Seconds | Unit::Milliseconds)
    }

    fn is_seconds(self) -> bool {
        matches!(self, Unit::Seconds | Unit::UnixSeconds)
    }
}

/// The expiry that a positive number of this unit names.
fn positive_expiry(command: &Command, unit: Unit, number: &[u8], moment: Moment) -> Result<Expiry, Error> {
    let number = decimal(number).ok_or(errors::NOT_INTEGER)?;
    let invalid = || errors::invalid_expiry(command);
    if number <= 0 {
        return Err(invalid());
    }
    let ms = if unit.is_seconds() { number.checked_mul(1000).ok_or_else(invalid)? } else { number };
    let at_ms = if unit.is_relative() { ms.checked_add(moment.unix_ms()).ok_or_else(invalid)? } else { ms };
    Ok(moment.at_unix_ms(at_ms))
}

/// The options behind key and value of a `SET`, or behind the key of a `GETEX`.
struct Options<'a> {
    condition: Condition<'a>,
    shows_old: bool,
    keeps_ttl: bool,
    persists: bool,
    time: Option<(Unit, &'a [u8])>,
}

impl<'a> Options<'a> {
    fn read(words: &[&'a [u8]], is_set: bool) -> Result<Options<'a>, Error> {
        let mut words = words.iter().copied();
        let mut options = Options {
            condition: Condition::Always,
            shows_old: false,
            keeps_ttl: false,
            persists: false,
            time: None,
        };
        while let Some(word) = words.next() {
            let has_time_rule = options.keeps_ttl || options.persists;
            if let Some(unit) = Unit::of(word) {
                let is_same = options.time.is_none_or(|(before, _)| before == unit);
                let number = words.next().filter(|_| is_same && !has_time_rule).ok_or(errors::SYNTAX)?;
                options.time = Some((unit, number));
                continue;
            }
            match (&lower(word)[..], is_set) {
                (b"get", true) => options.shows_old = true,
                (b"keepttl", true) if options.time.is_none() => options.keeps_ttl = true,
                (b"persist", false) if options.time.is_none() => options.persists = true,
                (b"nx", true) if matches!(options.condition, Condition::Always | Condition::IfAbsent) => {
                    options.condition = Condition::IfAbsent;
                }
                (b"xx", true) if matches!(options.condition, Condition::Always | Condition::IfPresent) => {
                    options.condition = Condition::IfPresent;
                }
                (name, true) if matches!(options.condition, Condition::Always) => {
                    options.condition = compared(name, &mut words)?;
                }
                _ => return Err(errors::SYNTAX),
            }
        }
        Ok(options)
    }
}

/// A condition that compares the present value, named by its word in lower case.
fn compared<'a>(name: &[u8], words: &mut impl Iterator<Item = &'a [u8]>) -> Result<Condition<'a>, Error> {
    let wanted = words.next().ok_or(errors::SYNTAX)?;
    Ok(match name {
        b"ifeq" => Condition::IfEqual(wanted),
        b"ifne" => Condition::IfNotEqual(wanted),
        b"ifdeq" => Condition::IfDigest(digest(wanted)?),
        b"ifdne" => Condition::IfNotDigest(digest(wanted)?),
        _ => return Err(errors::SYNTAX),
    })
}

/// A digest of 16 hexadecimal digits.
fn digest(text: &[u8]) -> Result<u64, Error> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() == 16);
    let digest = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
    digest
        .and_then(|text| u64::from_str_radix(text, 16).ok())
        .ok_or_else(|| errors::made("ERR must be exactly 16 hexadecimal characters"))
}

/// A store of a value under a plain key that depends on nothing but whether there is an item.
fn store<'a>(key: ItemKey<'a>, value: &'a [u8], mode: Mode, expiry: Expiry) -> Operation<'a> {
    Operation::Store(StoreItem {
        store: Store { mode, expiry, ..Store::set(key.key, key.hash, value) },
        value_bytes: value.len() as u32,
        old_if_refused: OldItem::Stays,
        counts_prefix: true,
    })
}

/// Stores a value, by the shortest way that the condition allows.
fn replace<'a>(
    key: ItemKey<'a>,
    value: &'a [u8],
    condition: Condition<'a>,
    expiry: NewExpiry,
    shows_old: bool,
    moment: Moment,
) -> Operation<'a> {
    let mode = match condition {
        Condition::Always => Some(Mode::Set),
        Condition::IfAbsent => Some(Mode::Add),
        Condition::IfPresent => Some(Mode::Replace),
        _ => None,
    };
    match (mode, expiry) {
        (Some(mode), NewExpiry::At(expiry))
            if !shows_old
                && key.head.is_empty()
                && expiry.milliseconds().is_none_or(|at_ms| at_ms > moment.now_ms()) =>
        {
            store(key, value, mode, expiry)
        }
        _ => Operation::Edit(key, Change::Replace { value, condition, expiry, shows_old }),
    }
}

/// A request on one item, or on two.
struct ItemRequest<'c, 'a> {
    command: &'c Command,
    /// The arguments behind the command.
    words: &'c [&'a [u8]],
    key: ItemKey<'a>,
    /// The item of the second key.
    other: ItemKey<'a>,
    moment: Moment,
}

/// Reads a request on items as an operation, and how it is answered. `words` = its arguments behind the command, the
/// first of which are keys, `keys` = the items of the first two of these. `room` = a place for a decimal number.
pub(in crate::dispatch) fn item_operation<'a>(
    command: &Command,
    words: &[&'a [u8]],
    [key, other]: [ItemKey<'a>; 2],
    moment: Moment,
    room: &'a mut Option<Decimal>,
) -> Result<(Operation<'a>, Form), Error> {
    let request = ItemRequest { command, words, key, other, moment };
    match command.id {
        Id::Set
        | Id::Setnx
        | Id::Setex
        | Id::Psetex
        | Id::Getset
        | Id::Getdel
        | Id::Getex
        | Id::Append
        | Id::Setrange
        | Id::Setbit => request.store(),
        Id::Incr | Id::Decr | Id::Incrby | Id::Decrby | Id::Incrbyfloat => request.add(room),
        Id::Delifeq | Id::Delex => request.remove(),
        Id::Expire | Id::Pexpire | Id::Expireat | Id::Pexpireat | Id::Persist => request.expire(),
        Id::Rename | Id::Renamenx | Id::Copy | Id::Move => request.copy(),
        Id::Get
        | Id::Strlen
        | Id::Getrange
        | Id::Substr
        | Id::Digest
        | Id::Getbit
        | Id::Bitcount
        | Id::Bitpos => request.look_at_value(),
        _ => request.look_at_item(),
    }
}

impl<'a> ItemRequest<'_, 'a> {
    /// The argument behind the command at this place.
    fn word(&self, at: usize) -> &'a [u8] {
        self.words.get(at).copied().unwrap_or_default()
    }

    /// The arguments behind the first `count` ones.
    fn behind(&self, count: usize) -> &[&'a [u8]] {
        self.words.get(count..).unwrap_or_default()
    }

    fn look(&self, part: Part) -> Operation<'a> {
        Operation::Look(Look { key: self.key, part, leaves_no_trace: false })
    }

    fn edit(&self, change: Change<'a>) -> Operation<'a> {
        Operation::Edit(self.key, change)
    }

    /// Reads the value, or a part of it.
    fn look_at_value(&self) -> Result<(Operation<'a>, Form), Error> {
        Ok(match self.command.id {
            Id::Get => (self.look(Part::Value), Form::Value),
            Id::Strlen => (self.look(Part::Length), Form::Number),
            Id::Getrange | Id::Substr => {
                let (start, end) = (whole_number(self.word(1))?, whole_number(self.word(2))?);
                (self.look(Part::Range(start, end)), Form::PartOfValue)
            }
            Id::Digest => (self.look(Part::Digest), Form::Digest),
            Id::Getbit => (self.look(Part::Bit(bit_offset(self.word(1))?)), Form::Number),
            Id::Bitcount => {
                let range = bit_range(self.behind(1))?;
                (self.look(Part::CountBits(range)), Form::Number)
            }
            Id::Bitpos => {
                let on = match decimal(self.word(1)).ok_or(errors::NOT_INTEGER)? {
                    0 => false,
                    1 => true,
                    _ => return Err(errors::BIT_ARGUMENT),
                };
                let range = bit_range(self.behind(2))?;
                (self.look(Part::FindBit(on, range)), Form::BitPosition { on })
            }
            _ => return Err(errors::SYNTAX),
        })
    }

    /// Stores a value, or changes the one that is there.
    fn store(&self) -> Result<(Operation<'a>, Form), Error> {
        let ItemRequest { key, moment, .. } = *self;
        let never = NewExpiry::At(Expiry::NEVER);
        Ok(match self.command.id {
            Id::Set => {
                let value = self.word(1);
                let options = Options::read(self.behind(2), true)?;
                let expiry = match options.time {
                    Some((unit, number)) => {
                        NewExpiry::At(positive_expiry(self.command, unit, number, moment)?)
                    }
                    None if options.keeps_ttl => NewExpiry::Kept,
                    None => never,
                };
                let form = if options.shows_old { Form::Old } else { Form::OkOrNull };
                (replace(key, value, options.condition, expiry, options.shows_old, moment), form)
            }
            Id::Setnx => {
                (replace(key, self.word(1), Condition::IfAbsent, never, false, moment), Form::OneOrZero)
            }
            Id::Setex | Id::Psetex => {
                let unit = if self.command.id == Id::Setex { Unit::Seconds } else { Unit::Milliseconds };
                let expiry = positive_expiry(self.command, unit, self.word(1), moment)?;
                let expiry = NewExpiry::At(expiry);
                (replace(key, self.word(2), Condition::Always, expiry, false, moment), Form::OkOrNull)
            }
            Id::Getset => (replace(key, self.word(1), Condition::Always, never, true, moment), Form::Old),
            Id::Getdel => (self.edit(Change::ShowAndRemove), Form::Old),
            Id::Getex => {
                let options = Options::read(self.behind(1), false)?;
                let expiry = match options.time {
                    Some((unit, number)) => Some(positive_expiry(self.command, unit, number, moment)?),
                    None => options.persists.then_some(Expiry::NEVER),
                };
                match expiry {
                    None => (self.look(Part::Value), Form::Value),
                    Some(_) => (self.edit(Change::ShowAndExpire(expiry)), Form::Old),
                }
            }
            Id::Append => (self.edit(Change::Append(self.word(1))), Form::Number),
            Id::Setrange => {
                let (offset, bytes) = (whole_number(self.word(1))?, self.word(2));
                if offset < 0 {
                    return Err(errors::OFFSET);
                }
                (self.edit(Change::Overwrite { offset: offset as u64, bytes }), Form::Number)
            }
            Id::Setbit => {
                let offset = bit_offset(self.word(1))?;
                let on = match decimal(self.word(2)) {
                    Some(0) => false,
                    Some(1) => true,
                    _ => return Err(errors::BIT),
                };
                (self.edit(Change::SetBit { offset, on }), Form::Number)
            }
            _ => return Err(errors::SYNTAX),
        })
    }

    /// Adds to a number. `room` = a place for a decimal number.
    fn add(&self, room: &'a mut Option<Decimal>) -> Result<(Operation<'a>, Form), Error> {
        Ok(match self.command.id {
            Id::Incr => (self.edit(Change::Add(1)), Form::Number),
            Id::Decr => (self.edit(Change::Add(-1)), Form::Number),
            Id::Incrby => (self.edit(Change::Add(whole_number(self.word(1))?)), Form::Number),
            Id::Decrby => {
                let delta = whole_number(self.word(1))?.checked_neg().ok_or(errors::DECREMENT_OVERFLOW)?;
                (self.edit(Change::Add(delta)), Form::Number)
            }
            Id::Incrbyfloat => {
                *room = Decimal::read(self.word(1));
                (self.edit(Change::AddDecimal(room.as_ref())), Form::Number)
            }
            _ => return Err(errors::SYNTAX),
        })
    }

    /// Removes the item, if its value is the right one.
    fn remove(&self) -> Result<(Operation<'a>, Form), Error> {
        Ok(match self.command.id {
            Id::Delifeq => (self.edit(Change::Remove(Condition::IfEqual(self.word(1)))), Form::OneOrZero),
            Id::Delex => {
                let mut words = self.behind(1).iter().copied();
                let condition = match words.next() {
                    None => Condition::Always,
                    Some(name) => compared(&lower(name), &mut words)?,
                };
                if words.len() > 0 {
                    return Err(errors::SYNTAX);
                }
                (self.edit(Change::Remove(condition)), Form::OneOrZero)
            }
            _ => return Err(errors::SYNTAX),
        })
    }

    /// Changes when the item expires.
    fn expire(&self) -> Result<(Operation<'a>, Form), Error> {
        let ItemRequest { moment, .. } = *self;
        Ok(match self.command.id {
            Id::Expire | Id::Pexpire | Id::Expireat | Id::Pexpireat => {
                let number = self.word(1);
                let condition = expire_condition(self.behind(2))?;
                let expiry = any_expiry(self.command, number, moment)?;
                (self.edit(Change::Expire { expiry, condition }), Form::OneOrZero)
            }
            Id::Persist => (self.edit(Change::Persist), Form::OneOrZero),
            _ => return Err(errors::SYNTAX),
        })
    }

    /// Reads what is known of the item beside its value.
    fn look_at_item(&self) -> Result<(Operation<'a>, Form), Error> {
        let ItemRequest { moment, .. } = *self;
        Ok(match self.command.id {
            Id::Ttl => (self.look(Part::Description), Form::Ttl { in_seconds: true, moment }),
            Id::Pttl => (self.look(Part::Description), Form::Ttl { in_seconds: false, moment }),
            Id::Expiretime => (self.look(Part::Description), Form::ExpireTime { in_seconds: true, moment }),
            Id::Pexpiretime => (self.look(Part::Description), Form::ExpireTime { in_seconds: false, moment }),
            Id::Type => (self.look(Part::Presence), Form::Type),
            Id::LarderItem => (self.look(Part::Description), Form::Item { moment }),
            Id::ObjectEncoding => (self.look(Part::Encoding), Form::Encoding),
            Id::ObjectFreq => (self.look(Part::Description), Form::Warmth),
            Id::ObjectIdletime => (self.look(Part::Description), Form::IdleTime),
            Id::ObjectRefcount => (self.look(Part::Presence), Form::OneOrNull),
            Id::MemoryUsage => {
                let mut words = self.behind(1).iter().copied();
                while let Some(word) = words.next() {
                    let samples = words.next().filter(|_| word.eq_ignore_ascii_case(b"samples"));
                    if whole_number(samples.ok_or(errors::SYNTAX)?)? < 0 {
                        return Err(errors::SYNTAX);
                    }
                }
                (self.look(Part::Description), Form::Usage)
            }
            _ => return Err(errors::SYNTAX),
        })
    }

    /// Copies the item, or moves it, to another key.
    fn copy(&self) -> Result<(Operation<'a>, Form), Error> {
        let ItemRequest { key, other, .. } = *self;
        Ok(match self.command.id {
            Id::Rename => (
                Operation::Copy(CopyItem { from: key, to: other, replaces: true, moves: true }),
                Form::Renamed,
            ),
            Id::Renamenx => (
                Operation::Copy(CopyItem { from: key, to: other, replaces: false, moves: true }),
                Form::RenamedOrNot,
            ),
            Id::Move => (
                Operation::Copy(CopyItem { from: key, to: other, replaces: false, moves: true }),
                Form::OneOrZero,
            ),
            Id::Copy => {
                let mut replaces = false;
                let mut words = self.behind(2).iter().copied();
                while let Some(word) = words.next() {
                    match lower(word)[..] {
                        [b'r', b'e', b'p', b'l', b'a', b'c', b'e'] => replaces = true,
                        // The other key is one of that database.
                        [b'd', b'b'] => _ = words.next(),
                        _ => return Err(errors::SYNTAX),
                    }
                }
                if key.key == other.key {
                    return Err(errors::SAME_OBJECTS);
                }
                (Operation::Copy(CopyItem { from: key, to: other, replaces, moves: false }), Form::OneOrZero)
            }
            _ => return Err(errors::SYNTAX),
        })
    }
}

/// What a command on several keys does with one of them. `value` = what follows the key in a request that has values.
pub(in crate::dispatch) fn each_operation<'a>(
    id: Id,
    key: ItemKey<'a>,
    value: &'a [u8],
    moment: Moment,
) -> Operation<'a> {
    let look = |part| Operation::Look(Look { key, part, leaves_no_trace: false });
    match id {
        Id::Mset | Id::Msetnx => {
            replace(key, value, Condition::Always, NewExpiry::At(Expiry::NEVER), false, moment)
        }
        Id::Del | Id::Unlink => Operation::Edit(key, Change::Remove(Condition::Always)),
        Id::Touch => look(Part::Length),
        Id::Mget => look(Part::Value),
        _ => look(Part::Presence),
    }
}

fn whole_number(text: &[u8]) -> Result<i64, Error> {
    decimal(text).ok_or(errors::NOT_INTEGER)
}

/// The number of a database.
pub(in crate::dispatch) fn database(text: &[u8]) -> Result<i32, Error> {
    i32::try_from(whole_number(text)?).map_err(|_| errors::NOT_32_BITS)
}

fn bit_offset(text: &[u8]) -> Result<u64, Error> {
    let offset = decimal(text).filter(|offset| (0..BITS_MAX).contains(offset));
    offset.map(|offset| offset as u64).ok_or(errors::BIT_OFFSET)
}

/// `[start [end [BYTE|BIT]]]`.
fn bit_range(words: &[&[u8]]) -> Result<BitRange, Error> {
    let mut range = BitRange { start: 0, end: None, in_bits: false };
    if words.len() > 3 {
        return Err(errors::SYNTAX);
    }
    let [start, end, unit] = [0, 1, 2].map(|at| words.get(at).copied());
    if let Some(start) = start {
        range.start = whole_number(start)?;
    }
    if let Some(unit) = unit {
        range.in_bits = match lower(unit)[..] {
            [b'b', b'i', b't'] => true,
            [b'b', b'y', b't', b'e'] => false,
            _ => return Err(errors::SYNTAX),
        };
    }
    if let Some(end) = end {
        range.end = Some(whole_number(end)?);
    }
    Ok(range)
}

/// `[NX|XX|GT|LT]`.
pub(super) fn expire_condition(words: &[&[u8]]) -> Result<ExpireIf, Error> {
    let mut condition = ExpireIf::default();
    for word in words {
        match lower(word)[..] {
            [b'n', b'x'] => condition.has_none = true,
            [b'x', b'x'] => condition.has_one = true,
            [b'g', b't'] => condition.is_later = true,
            [b'l', b't'] => condition.is_earlier = true,
            _ => return Err(errors::about("ERR Unsupported option ", word, "")),
        }
    }
    if condition.has_none && (condition.has_one || condition.is_later || condition.is_earlier) {
        return Err(errors::made("ERR NX and XX, GT or LT options at the same time are not compatible"));
    }
    if condition.is_later && condition.is_earlier {
        return Err(errors::made("ERR GT and LT options at the same time are not compatible"));
    }
    Ok(condition)
}

/// The expiry of `EXPIRE` and its relatives, which may be past.
fn any_expiry(command: &Command, number: &[u8], moment: Moment) -> Result<Expiry, Error> {
    let invalid = || errors::invalid_expiry(command);
    let number = whole_number(number)?;
    let is_seconds = matches!(command.id, Id::Expire | Id::Expireat);
    let is_relative = matches!(command.id, Id::Expire | Id::Pexpire);
    let ms = if is_seconds { number.checked_mul(1000).ok_or_else(invalid)? } else { number };
    let base_ms = if is_relative { moment.unix_ms() } else { 0 };
    if ms > i64::MAX - base_ms {
        return Err(invalid());
    }
    Ok(moment.at_unix_ms(ms + base_ms))
}
