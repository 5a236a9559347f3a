//! Hashes.

use super::{Asked, Searched, count_by_chance, finish, say_by_chance, whole};
use crate::dispatch::decimal::Decimal;
use crate::dispatch::operation::Rewritten;
use crate::dispatch::resp::errors::{self, Error};
use crate::dispatch::window::Progressed;
use larder_cache::Kind;
use larder_collection::{Collection, Editor, Entry};
use larder_protocol::compose::signed;
use larder_protocol::resp::{Id, Version, compose as out, decimal};

pub(super) const HASH: &[Kind] = &[Kind::Hash];

impl Asked<'_> {
    pub(super) fn run_on_hash(&mut self, words: &[&[u8]]) -> Result<Progressed, Error> {
        let (version, id, reply_bytes_max) = (self.version, self.command.id, self.reply_bytes_max);
        match (id, words) {
            (Id::Hset | Id::Hmset, _) => self.set_fields(words),
            (Id::Hsetnx, [field, value, ..]) => self.change(Kind::Hash, &|present, next, reply| {
                let is_there = present.is_some_and(|present| present.has(field));
                out::integer(reply, i64::from(!is_there));
                if is_there {
                    return Ok(Rewritten::Same);
                }
                let mut editor = Editor::new(Kind::Hash, present, 1);
                editor.put(Entry::pair(field, value));
                finish(editor, next)
            }),
            (Id::Hdel, _) => self.remove_members(Kind::Hash, words),
            (Id::Hincrby, [field, delta, ..]) => self.add_to_field(field, delta),
            (Id::Hincrbyfloat, [field, delta, ..]) => self.add_decimal_to_field(field, delta),
            (Id::Hget | Id::Hstrlen | Id::Hexists, [field, ..]) => self.read(HASH, |present, reply| {
                let value = present.and_then(|present| present.get(field)).map(|entry| entry.value);
                match (id, value) {
                    (Id::Hexists, value) => out::integer(reply, i64::from(value.is_some())),
                    (Id::Hstrlen, value) => out::integer(reply, value.map_or(0, <[u8]>::len) as i64),
                    (_, Some(value)) => out::bulk(reply, value),
                    (_, None) => out::null(reply, version),
                }
                Ok(())
            }),
            (Id::Hmget, _) => {
                self.read(HASH, |present, reply| say_values(present, words, version, reply, reply_bytes_max))
            }
            (Id::Hgetall | Id::Hkeys | Id::Hvals, _) => self.read(HASH, |present, reply| {
                let count = present.map_or(0, |present| present.len());
                match id {
                    Id::Hgetall => out::map_head(reply, version, count),
                    _ => out::array_head(reply, count),
                }
                for entry in present.iter().flat_map(Collection::iter) {
                    if id != Id::Hvals {
                        out::bulk(reply, entry.field);
                    }
                    if id != Id::Hkeys {
                        out::bulk(reply, entry.value);
                    }
                }
                Ok(())
            }),
            (Id::Hlen, _) => self.say_length(HASH),
            (Id::Hrandfield, _) => self.say_fields_by_chance(words),
            (Id::Hscan, _) => {
                self.scan(HASH, words, b"novalues", |reply, entry| out::bulk(reply, entry.value))
            }
            _ => self.run_on_field_times(words),
        }
    }

    /// `HSET` and `HMSET`.
    fn set_fields(&mut self, words: &[&[u8]]) -> Result<Progressed, Error> {
        let command = self.command;
        if !words.len().is_multiple_of(2) {
            return Err(errors::wrong_arity(command));
        }
        self.change(Kind::Hash, &|present, next, reply| {
            let mut editor = Editor::new(Kind::Hash, present, words.len() / 2);
            let (mut added, pairs) = (0, words.chunks_exact(2));
            for pair in pairs {
                added += i64::from(editor.put(Entry::pair(pair[0], pair[1])).is_none());
            }
            match command.id {
                Id::Hmset => out::simple(reply, "OK"),
                _ => out::integer(reply, added),
            }
            finish(editor, next)
        })
    }

    /// `HDEL`, `SREM` and `ZREM`.
    pub(super) fn remove_members(&mut self, kind: Kind, words: &[&[u8]]) -> Result<Progressed, Error> {
        self.change(kind, &|present, next, reply| {
            let mut editor = Editor::new(kind, present, words.len());
            let removed = words.iter().filter(|word| editor.remove(word).is_some()).count();
            out::integer(reply, removed as i64);
            if removed == 0 { Ok(Rewritten::Same) } else { finish(editor, next) }
        })
    }

    /// `HLEN`, `SCARD` and `ZCARD`.
    pub(super) fn say_length(&mut self, kinds: &'static [Kind]) -> Result<Progressed, Error> {
        self.read(kinds, |present, reply| {
            out::integer(reply, present.map_or(0, |present| present.len()) as i64);
            Ok(())
        })
    }

    /// `HINCRBY`.
    fn add_to_field(&mut self, field: &[u8], delta: &[u8]) -> Result<Progressed, Error> {
        let delta = whole(delta)?;
        self.change(Kind::Hash, &|present, next, reply| {
            let old = present.and_then(|present| present.get(field));
            let number = match old {
                None => 0,
                Some(old) => decimal(old.value).ok_or(errors::FIELD_NOT_INTEGER)?,
            };
            let sum = number.checked_add(delta).ok_or(errors::OVERFLOW)?;
            let mut text = Vec::with_capacity(20);
            signed(&mut text, sum);
            out::integer(reply, sum);
            let mut editor = Editor::new(Kind::Hash, present, 1);
            let until_ms = old.map_or(0, |old| old.until_ms);
            editor.put(Entry { until_ms, ..Entry::pair(field, &text) });
            finish(editor, next)
        })
    }

    /// `HINCRBYFLOAT`.
    fn add_decimal_to_field(&mut self, field: &[u8], delta: &[u8]) -> Result<Progressed, Error> {
        let delta = Decimal::read(delta).ok_or(errors::NOT_FLOAT)?;
        if delta == Decimal::Infinite {
            return Err(errors::DELTA_NOT_FINITE);
        }
        self.change(Kind::Hash, &|present, next, reply| {
            let old = present.and_then(|present| present.get(field));
            let number = match old {
                None => Decimal::zero(),
                Some(old) => Decimal::read(old.value).ok_or(errors::FIELD_NOT_FLOAT)?,
            };
            let sum = number.plus(&delta).ok_or(errors::INFINITE)?;
            let mut text = Vec::new();
            sum.write(&mut text);
            out::bulk(reply, &text);
            let mut editor = Editor::new(Kind::Hash, present, 1);
            let until_ms = old.map_or(0, |old| old.until_ms);
            editor.put(Entry { until_ms, ..Entry::pair(field, &text) });
            finish(editor, next)
        })
    }

    /// `HRANDFIELD`.
    fn say_fields_by_chance(&mut self, words: &[&[u8]]) -> Result<Progressed, Error> {
        let (version, random, reply_bytes_max) = (self.version, self.random.clone(), self.reply_bytes_max);
        let Some(count) = words.first() else {
            return self.read(HASH, |present, reply| {
                match present {
                    None => out::null(reply, version),
                    Some(present) => {
                        let place = random.below(present.len());
                        present.nth(place).iter().for_each(|entry| out::bulk(reply, entry.field));
                    }
                }
                Ok(())
            });
        };
        let (count, has_values) = count_of_pairs(count, words, b"withvalues")?;
        self.read(HASH, |present, reply| {
            let Some(present) = present else {
                out::array_head(reply, 0);
                return Ok(());
            };
            let (is_nested, from) = (has_values && version == Version::Resp3, reply.len());
            let many =
                if count < 0 { count.unsigned_abs() as usize } else { present.len().min(count as usize) };
            out::array_head(reply, if has_values && !is_nested { many.saturating_mul(2) } else { many });
            say_by_chance(present, count, &random, |entry| {
                if is_nested {
                    out::array_head(reply, 2);
                }
                out::bulk(reply, entry.field);
                if has_values {
                    out::bulk(reply, entry.value);
                }
                if count < 0 { within(reply.len() - from, reply_bytes_max) } else { Ok(()) }
            })
        })
    }
}

/// Whether a reply of this number of bytes is not too long.
pub(super) fn within(reply_bytes: usize, reply_bytes_max: usize) -> Result<(), Error> {
    if reply_bytes > reply_bytes_max { Err(errors::REPLY_TOO_LARGE) } else { Ok(()) }
}

/// How many members `HRANDFIELD` or `ZRANDMEMBER` is asked for, and whether with what belongs to them: whether the
/// option stands behind the count.
pub(super) fn count_of_pairs(count: &[u8], words: &[&[u8]], option: &[u8]) -> Result<(i64, bool), Error> {
    let count = count_by_chance(count)?;
    let are_pairs = match words {
        [_] => false,
        [_, word] if word.eq_ignore_ascii_case(option) => true,
        _ => return Err(errors::SYNTAX),
    };
    let is_too_large = are_pairs && count.unsigned_abs() > i64::MAX as u64 / 2;
    if is_too_large { Err(errors::OUT_OF_RANGE) } else { Ok((count, are_pairs)) }
}

/// The values of fields, or nulls. The reply may take `reply_bytes_max` bytes.
pub(super) fn say_values(
    present: Option<Collection<'_>>,
    fields: &[&[u8]],
    version: Version,
    reply: &mut Vec<u8>,
    reply_bytes_max: usize,
) -> Result<(), Error> {
    let from = reply.len();
    out::array_head(reply, fields.len());
    let present = present.map(|present| Searched::new(present, fields.len()));
    for field in fields {
        match present.as_ref().and_then(|present| present.get(field)) {
            Some(entry) => out::bulk(reply, entry.value),
            None => out::null(reply, version),
        }
        // A field may be named many times.
        within(reply.len() - from, reply_bytes_max)?;
    }
    Ok(())
}
