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
/// Longest value that a client may make by parts. The limit is Redis's.
pub(in crate::dispatch) const VALUE_BYTES_MAX: i64 = 512 << 20;
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

/// Reads a request on items as an operation, and how it is answered. `words` = its arguments behind the command, the
/// first of which are keys, `keys` = the items of the first two of these. `room` = a place for a decimal number.
pub(in crate::dispatch) fn item_operation<'a>(
    command: &Command,
    words: &[&'a [u8]],
    keys: [ItemKey<'a>; 2],
    moment: Moment,
    room: &'a mut Option<Decimal>,
) -> Result<(Operation<'a>, Form), Error> {
    let [key, other] = keys;
    let word = |at: usize| words.get(at).copied().unwrap_or_default();
    let behind = |count: usize| words.get(count..).unwrap_or_default();
    let look = |part| Operation::Look(Look { key, part, leaves_no_trace: false });
    let edit = |change| Operation::Edit(key, change);
    let never = NewExpiry::At(Expiry::NEVER);
    Ok(match command.id {
        Id::Get => (look(Part::Value), Form::Value),
        Id::Strlen => (look(Part::Length), Form::Number),
        Id::Getrange | Id::Substr => {
            let (start, end) = (whole_number(word(1))?, whole_number(word(2))?);
            (look(Part::Range(start, end)), Form::PartOfValue)
        }
        Id::Digest => (look(Part::Digest), Form::Digest),
        Id::Getbit => (look(Part::Bit(bit_offset(word(1))?)), Form::Number),
        Id::Bitcount => {
            let range = bit_range(behind(1))?;
            (look(Part::CountBits(range)), Form::Number)
        }
        Id::Bitpos => {
            let on = match decimal(word(1)).ok_or(errors::NOT_INTEGER)? {
                0 => false,
                1 => true,
                _ => return Err(errors::BIT_ARGUMENT),
            };
            let range = bit_range(behind(2))?;
            (look(Part::FindBit(on, range)), Form::BitPosition { on })
        }

        Id::Set => {
            let value = word(1);
            let options = Options::read(behind(2), true)?;
            let expiry = match options.time {
                Some((unit, number)) => NewExpiry::At(positive_expiry(command, unit, number, moment)?),
                None if options.keeps_ttl => NewExpiry::Kept,
                None => never,
            };
            let form = if options.shows_old { Form::Old } else { Form::OkOrNull };
            (replace(key, value, options.condition, expiry, options.shows_old, moment), form)
        }
        Id::Setnx => (replace(key, word(1), Condition::IfAbsent, never, false, moment), Form::OneOrZero),
        Id::Setex | Id::Psetex => {
            let unit = if command.id == Id::Setex { Unit::Seconds } else { Unit::Milliseconds };
            let expiry = positive_expiry(command, unit, word(1), moment)?;
            let expiry = NewExpiry::At(expiry);
            (replace(key, word(2), Condition::Always, expiry, false, moment), Form::OkOrNull)
        }
        Id::Getset => (replace(key, word(1), Condition::Always, never, true, moment), Form::Old),
        Id::Getdel => (edit(Change::ShowAndRemove), Form::Old),
        Id::Getex => {
            let options = Options::read(behind(1), false)?;
            let expiry = match options.time {
                Some((unit, number)) => Some(positive_expiry(command, unit, number, moment)?),
                None => options.persists.then_some(Expiry::NEVER),
            };
            match expiry {
                None => (look(Part::Value), Form::Value),
                Some(_) => (edit(Change::ShowAndExpire(expiry)), Form::Old),
            }
        }
        Id::Append => (edit(Change::Append(word(1))), Form::Number),
        Id::Setrange => {
            let (offset, bytes) = (whole_number(word(1))?, word(2));
            if offset < 0 {
                return Err(errors::OFFSET);
            }
            if !bytes.is_empty() && offset.saturating_add(bytes.len() as i64) > VALUE_BYTES_MAX {
                return Err(errors::TOO_LARGE);
            }
            (edit(Change::Overwrite { offset: offset as u64, bytes }), Form::Number)
        }
        Id::Setbit => {
            let offset = bit_offset(word(1))?;
            let on = match decimal(word(2)) {
                Some(0) => false,
                Some(1) => true,
                _ => return Err(errors::BIT),
            };
            (edit(Change::SetBit { offset, on }), Form::Number)
        }
        Id::Incr => (edit(Change::Add(1)), Form::Number),
        Id::Decr => (edit(Change::Add(-1)), Form::Number),
        Id::Incrby => (edit(Change::Add(whole_number(word(1))?)), Form::Number),
        Id::Decrby => {
            let delta = whole_number(word(1))?.checked_neg().ok_or(errors::DECREMENT_OVERFLOW)?;
            (edit(Change::Add(delta)), Form::Number)
        }
        Id::Incrbyfloat => {
            let delta = room.insert(Decimal::read(word(1)).ok_or(errors::NOT_FLOAT)?);
            (edit(Change::AddDecimal(delta)), Form::Number)
        }
        Id::Delifeq => (edit(Change::Remove(Condition::IfEqual(word(1)))), Form::OneOrZero),
        Id::Delex => {
            let mut words = behind(1).iter().copied();
            let condition = match words.next() {
                None => Condition::Always,
                Some(name) => compared(&lower(name), &mut words)?,
            };
            if words.len() > 0 {
                return Err(errors::SYNTAX);
            }
            (edit(Change::Remove(condition)), Form::OneOrZero)
        }

        Id::Expire | Id::Pexpire | Id::Expireat | Id::Pexpireat => {
            let number = word(1);
            let condition = expire_condition(behind(2))?;
            let expiry = any_expiry(command, number, moment)?;
            (edit(Change::Expire { expiry, condition }), Form::OneOrZero)
        }
        Id::Persist => (edit(Change::Persist), Form::OneOrZero),
        Id::Ttl => (look(Part::Description), Form::Ttl { in_seconds: true, moment }),
        Id::Pttl => (look(Part::Description), Form::Ttl { in_seconds: false, moment }),
        Id::Expiretime => (look(Part::Description), Form::ExpireTime { in_seconds: true, moment }),
        Id::Pexpiretime => (look(Part::Description), Form::ExpireTime { in_seconds: false, moment }),
        Id::Type => (look(Part::Presence), Form::Type),
        Id::LarderItem => (look(Part::Description), Form::Item { moment }),
        Id::ObjectEncoding => (look(Part::Description), Form::Encoding),
        Id::ObjectFreq => (look(Part::Description), Form::Warmth),
        Id::ObjectIdletime => (look(Part::Description), Form::IdleTime),
        Id::ObjectRefcount => (look(Part::Presence), Form::OneOrNull),
        Id::MemoryUsage => {
            let mut words = behind(1).iter().copied();
            while let Some(word) = words.next() {
                let samples = words.next().filter(|_| word.eq_ignore_ascii_case(b"samples"));
                if whole_number(samples.ok_or(errors::SYNTAX)?)? < 0 {
                    return Err(errors::SYNTAX);
                }
            }
            (look(Part::Description), Form::Usage)
        }

        Id::Rename => {
            (Operation::Copy(CopyItem { from: key, to: other, replaces: true, moves: true }), Form::Renamed)
        }
        Id::Renamenx => (
            Operation::Copy(CopyItem { from: key, to: other, replaces: false, moves: true }),
            Form::RenamedOrNot,
        ),
        Id::Copy => {
            let mut replaces = false;
            let mut words = behind(2).iter().copied();
            while let Some(word) = words.next() {
                match lower(word)[..] {
                    [b'r', b'e', b'p', b'l', b'a', b'c', b'e'] => replaces = true,
                    [b'd', b'b'] => match database(words.next().ok_or(errors::SYNTAX)?)? {
                        0 => {}
                        _ => return Err(errors::DB_INDEX),
                    },
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
fn expire_condition(words: &[&[u8]]) -> Result<ExpireIf, Error> {
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
