//! Sets.

use super::hashes::within;
use super::{Asked, Searched, count_by_chance, finish, say_by_chance};
use crate::dispatch::operation::Rewritten;
use crate::dispatch::resp::errors::{self, Error};
use crate::dispatch::window::Progressed;
use larder_cache::Kind;
use larder_collection::{Collection, Editor, Entry};
use larder_protocol::resp::{Id, compose as out, decimal};

pub(super) const SET: &[Kind] = &[Kind::Set];

impl Asked<'_> {
    pub(super) fn run_on_set(&mut self, words: &[&[u8]]) -> Result<Progressed, Error> {
        let version = self.version;
        match (self.command.id, words) {
            (Id::Sadd, _) => self.add_members(words),
            (Id::Srem, _) => self.remove_members(Kind::Set, words),
            (Id::Scard, _) => self.say_length(SET),
            (Id::Sismember, [member, ..]) => self.read(SET, |present, reply| {
                out::integer(reply, i64::from(present.is_some_and(|present| present.has(member))));
                Ok(())
            }),
            (Id::Smismember, _) => self.read(SET, |present, reply| {
                out::array_head(reply, words.len());
                let present = present.map(|present| Searched::new(present, words.len()));
                for member in words {
                    let found = present.as_ref().and_then(|present| present.get(member));
                    out::integer(reply, i64::from(found.is_some()));
                }
                Ok(())
            }),
            (Id::Smembers, _) => self.read(SET, |present, reply| {
                out::set_head(reply, version, present.map_or(0, |present| present.len()));
                let members = present.iter().flat_map(Collection::iter);
                members.for_each(|entry| out::bulk(reply, entry.field));
                Ok(())
            }),
            (Id::Srandmember, _) => self.say_members_by_chance(words),
            (Id::Spop, _) => self.pop_members(words),
            _ => self.scan(SET, words, b"", |_, _| {}),
        }
    }

    /// `SADD`.
    fn add_members(&mut self, words: &[&[u8]]) -> Result<Progressed, Error> {
        self.change(Kind::Set, &|present, next, reply| {
            let mut editor = Editor::new(Kind::Set, present, words.len());
            let added = words.iter().filter(|member| editor.put(Entry::member(member)).is_none()).count();
            out::integer(reply, added as i64);
            if added == 0 { Ok(Rewritten::Same) } else { finish(editor, next) }
        })
    }

    /// `SRANDMEMBER`.
    fn say_members_by_chance(&mut self, words: &[&[u8]]) -> Result<Progressed, Error> {
        let (version, random, reply_bytes_max) = (self.version, self.random.clone(), self.reply_bytes_max);
        let count = match words {
            [] => None,
            [count] => Some(count_by_chance(count)?),
            _ => return Err(errors::SYNTAX),
        };
        self.read(SET, |present, reply| {
            let (Some(present), from) = (present, reply.len()) else {
                match count {
                    None => out::null(reply, version),
                    Some(_) => out::array_head(reply, 0),
                }
                return Ok(());
            };
            let Some(count) = count else {
                let place = random.below(present.len());
                present.nth(place).iter().for_each(|entry| out::bulk(reply, entry.field));
                return Ok(());
            };
            let many =
                if count < 0 { count.unsigned_abs() as usize } else { present.len().min(count as usize) };
            out::array_head(reply, many);
            say_by_chance(present, count, &random, |entry| {
                out::bulk(reply, entry.field);
                if count < 0 { within(reply.len() - from, reply_bytes_max) } else { Ok(()) }
            })
        })
    }

    /// `SPOP`.
    fn pop_members(&mut self, words: &[&[u8]]) -> Result<Progressed, Error> {
        let (version, seed) = (self.version, self.random.clone());
        let count = match words {
            [] => None,
            [count] => match decimal(count) {
                Some(count @ 0..) => Some(count as usize),
                _ => return Err(errors::NOT_POSITIVE),
            },
            _ => return Err(errors::SYNTAX),
        };
        self.change(Kind::Set, &|present, next, reply| {
            let Some(present) = present.filter(|_| count != Some(0)) else {
                match count {
                    None => out::null(reply, version),
                    Some(_) => out::set_head(reply, version, 0),
                }
                return Ok(Rewritten::Same);
            };
            let places = seed.clone().places(count.unwrap_or(1), present.len());
            if count.is_some() {
                out::set_head(reply, version, places.len());
            }
            let mut editor = Editor::new(Kind::Set, Some(present), places.len());
            for entry in places.into_iter().filter_map(|place| present.at(place)) {
                out::bulk(reply, entry.field);
                editor.remove(entry.field);
            }
            finish(editor, next)
        })
    }
}
