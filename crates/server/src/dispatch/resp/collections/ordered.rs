//! Sorted sets.

use super::hashes::{count_of_pairs, within};
use super::ranges::{Range, score};
use super::{Asked, Random, Searched, finish, say_by_chance};
use crate::dispatch::operation::Rewritten;
use crate::dispatch::resp::errors::{self, Error};
use crate::dispatch::window::Progressed;
use larder_cache::Kind;
use larder_collection::{Collection, Editor, Entry};
use larder_protocol::resp::{Id, Version, compose as out, decimal};

pub(super) const SORTED: &[Kind] = &[Kind::SortedSet];

impl Asked<'_> {
    pub(super) fn run_on_sorted_set(&mut self, words: &[&[u8]]) -> Result<Progressed, Error> {
        let (version, id) = (self.version, self.command.id);
        match (id, words) {
            (Id::Zadd | Id::Zincrby, _) => self.add_scored(words),
            (Id::Zrem, _) => self.remove_members(Kind::SortedSet, words),
            (Id::Zcard, _) => self.say_length(SORTED),
            (Id::Zscore, [member, ..]) => self.read(SORTED, |present, reply| {
                say_score(present.and_then(|present| present.get(member)), version, reply);
                Ok(())
            }),
            (Id::Zmscore, _) => self.read(SORTED, |present, reply| {
                out::array_head(reply, words.len());
                let present = present.map(|present| Searched::new(present, words.len()));
                for member in words {
                    say_score(present.as_ref().and_then(|present| present.get(member)), version, reply);
                }
                Ok(())
            }),
            (Id::Zcount | Id::Zlexcount, [low, high, ..]) => {
                let range = match id {
                    Id::Zcount => Range::of_scores(low, high)?,
                    _ => Range::of_members(low, high)?,
                };
                self.read(SORTED, |present, reply| {
                    out::integer(reply, present.map_or(0, |present| range.places(present).len()) as i64);
                    Ok(())
                })
            }
            (Id::Zrank | Id::Zrevrank, [member, options @ ..]) => self.say_rank(member, options),
            (Id::Zremrangebyrank | Id::Zremrangebyscore | Id::Zremrangebylex, [low, high, ..]) => {
                let range = match id {
                    Id::Zremrangebyrank => Range::of_ranks(low, high)?,
                    Id::Zremrangebyscore => Range::of_scores(low, high)?,
                    _ => Range::of_members(low, high)?,
                };
                self.remove_range(&range)
            }
            (Id::Zpopmin | Id::Zpopmax, _) => self.pop_scored(words),
            (Id::Zrandmember, _) => self.say_scored_by_chance(words),
            (Id::Zscan, _) => self.scan(SORTED, words, b"noscores", |reply, entry| {
                out::double(reply, Version::Resp2, entry.score);
            }),
            _ => {
                let range = Range::read(id, words)?;
                self.read(SORTED, |present, reply| {
                    let found = present.map_or(Vec::new(), |present| range.members(present));
                    say_scored(&found, range.with_scores, version, reply);
                    Ok(())
                })
            }
        }
    }

    /// `ZADD` and `ZINCRBY`.
    fn add_scored(&mut self, words: &[&[u8]]) -> Result<Progressed, Error> {
        let (adding, pairs) = match self.command.id {
            Id::Zincrby => (Adding { adds_up: true, ..Adding::default() }, words),
            _ => Adding::read(words)?,
        };
        let scores: Vec<f64> = pairs
            .chunks_exact(2)
            .map(|pair| score(pair[0]).ok_or(errors::NOT_FLOAT))
            .collect::<Result<_, Error>>()?;
        let version = self.version;
        self.change(Kind::SortedSet, &|present, next, reply| {
            let mut editor = Editor::new(Kind::SortedSet, present, scores.len());
            let (mut added, mut changed, mut last) = (0, 0, None);
            for (pair, score) in pairs.chunks_exact(2).zip(&scores) {
                let old = editor.get(pair[1]).map(|entry| entry.score);
                let Some(score) = adding.score_after(old, *score)? else { continue };
                last = Some(Entry::scored(pair[1], score));
                if old != Some(score) {
                    editor.put(Entry::scored(pair[1], score));
                    added += i64::from(old.is_none());
                    changed += i64::from(old.is_some());
                }
            }
            match adding.adds_up {
                true => say_score(last, version, reply),
                false => out::integer(reply, if adding.counts_changes { added + changed } else { added }),
            }
            if added + changed == 0 { Ok(Rewritten::Same) } else { finish(editor, next) }
        })
    }

    /// `ZRANK` and `ZREVRANK`.
    fn say_rank(&mut self, member: &[u8], options: &[&[u8]]) -> Result<Progressed, Error> {
        let (version, is_reverse) = (self.version, self.command.id == Id::Zrevrank);
        let with_score = match options {
            [] => false,
            [word] if word.eq_ignore_ascii_case(b"withscore") => true,
            [_] => return Err(errors::SYNTAX),
            _ => return Err(errors::wrong_arity(self.command)),
        };
        self.read(SORTED, |present, reply| {
            let found = present.and_then(|present| Some((present, present.find(member)?)));
            let Some((present, place)) = found else {
                match with_score {
                    true => out::null_array(reply, version),
                    false => out::null(reply, version),
                }
                return Ok(());
            };
            let rank = if is_reverse { present.len() - 1 - place } else { place };
            if with_score {
                out::array_head(reply, 2);
            }
            out::integer(reply, rank as i64);
            if with_score {
                out::double(reply, version, present.score(place));
            }
            Ok(())
        })
    }

    fn remove_range(&mut self, range: &Range<'_>) -> Result<Progressed, Error> {
        self.change(Kind::SortedSet, &|present, next, reply| {
            let gone = present.map_or(Vec::new(), |present| range.members(present));
            out::integer(reply, gone.len() as i64);
            if gone.is_empty() {
                return Ok(Rewritten::Same);
            }
            let mut editor = Editor::new(Kind::SortedSet, present, gone.len());
            gone.iter().for_each(|entry| _ = editor.remove(entry.field));
            finish(editor, next)
        })
    }

    /// `ZPOPMIN` and `ZPOPMAX`.
    fn pop_scored(&mut self, words: &[&[u8]]) -> Result<Progressed, Error> {
        let (version, is_highest) = (self.version, self.command.id == Id::Zpopmax);
        let count = match words {
            [] => None,
            [count] => match decimal(count) {
                Some(count @ 0..) => Some(count as usize),
                _ => return Err(errors::NOT_POSITIVE),
            },
            _ => return Err(errors::SYNTAX),
        };
        self.change(Kind::SortedSet, &|present, next, reply| {
            let popped = present.map_or(Vec::new(), |present| ends(present, count.unwrap_or(1), is_highest));
            match (count, &popped[..]) {
                (None, [one]) => {
                    out::array_head(reply, 2);
                    out::bulk(reply, one.field);
                    out::double(reply, version, one.score);
                }
                _ => say_scored(&popped, true, version, reply),
            }
            if popped.is_empty() {
                return Ok(Rewritten::Same);
            }
            let mut editor = Editor::new(Kind::SortedSet, present, popped.len());
            popped.iter().for_each(|entry| _ = editor.remove(entry.field));
            finish(editor, next)
        })
    }

    /// `ZRANDMEMBER`.
    fn say_scored_by_chance(&mut self, words: &[&[u8]]) -> Result<Progressed, Error> {
        let (version, random, reply_bytes_max) = (self.version, self.random.clone(), self.reply_bytes_max);
        let Some(count) = words.first() else { return self.say_one_by_chance(random) };
        let (count, with_scores) = count_of_pairs(count, words, b"withscores")?;
        self.read(SORTED, |present, reply| {
            let mut found = Vec::new();
            let mut bytes = 0;
            if let Some(present) = present {
                say_by_chance(present, count, &random, |entry| {
                    bytes += entry.field.len() + size_of::<Entry<'_>>();
                    found.push(entry);
                    if count < 0 { within(bytes, reply_bytes_max) } else { Ok(()) }
                })?;
            }
            say_scored(&found, with_scores, version, reply);
            Ok(())
        })
    }

    fn say_one_by_chance(&mut self, random: Random) -> Result<Progressed, Error> {
        let version = self.version;
        self.read(SORTED, |present, reply| {
            match present.and_then(|present| present.at(random.below(present.len()))) {
                Some(entry) => out::bulk(reply, entry.field),
                None => out::null(reply, version),
            }
            Ok(())
        })
    }
}

/// The `count` members with the lowest scores, or with the highest.
pub(super) fn ends(present: Collection<'_>, count: usize, is_highest: bool) -> Vec<Entry<'_>> {
    match is_highest {
        true => present.iter().rev().take(count).collect(),
        false => present.iter().take(count).collect(),
    }
}

/// Says a score, or null.
fn say_score(entry: Option<Entry<'_>>, version: Version, reply: &mut Vec<u8>) {
    match entry {
        Some(entry) => out::double(reply, version, entry.score),
        None => out::null(reply, version),
    }
}

/// Says members, and their scores: one behind the other, or in RESP3 as pairs.
pub(super) fn say_scored(found: &[Entry<'_>], with_scores: bool, version: Version, reply: &mut Vec<u8>) {
    let is_nested = with_scores && version == Version::Resp3;
    let each = if with_scores && !is_nested { 2 } else { 1 };
    out::array_head(reply, each * found.len());
    for entry in found {
        if is_nested {
            out::array_head(reply, 2);
        }
        out::bulk(reply, entry.field);
        if with_scores {
            out::double(reply, version, entry.score);
        }
    }
}

/// The options of `ZADD`.
#[derive(Clone, Copy, Default)]
struct Adding {
    only_new: bool,
    only_present: bool,
    only_greater: bool,
    only_less: bool,
    /// The reply counts the members whose scores changed, too.
    counts_changes: bool,
    /// The score is added to the one that is there.
    adds_up: bool,
}

impl Adding {
    /// Reads the options, and what follows them: scores and members by turns.
    fn read<'w, 'a>(words: &'w [&'a [u8]]) -> Result<(Adding, &'w [&'a [u8]]), Error> {
        let (mut adding, mut rest) = (Adding::default(), words);
        while let [word, behind @ ..] = rest {
            match &word.to_ascii_lowercase()[..] {
                b"nx" => adding.only_new = true,
                b"xx" => adding.only_present = true,
                b"gt" => adding.only_greater = true,
                b"lt" => adding.only_less = true,
                b"ch" => adding.counts_changes = true,
                b"incr" => adding.adds_up = true,
                _ => break,
            }
            rest = behind;
        }
        if rest.is_empty() || !rest.len().is_multiple_of(2) {
            return Err(errors::SYNTAX);
        }
        if adding.only_new && adding.only_present {
            return Err(errors::NEW_AND_PRESENT);
        }
        if u8::from(adding.only_new) + u8::from(adding.only_greater) + u8::from(adding.only_less) > 1 {
            return Err(errors::GREATER_AND_NEW);
        }
        if adding.adds_up && rest.len() > 2 {
            return Err(errors::SEVERAL_INCREMENTS);
        }
        Ok((adding, rest))
    }

    /// The score of a member after it was added. `None` = the options leave it as it is.
    fn score_after(&self, old: Option<f64>, given: f64) -> Result<Option<f64>, Error> {
        let Some(old) = old else { return Ok((!self.only_present).then_some(given)) };
        let new = if self.adds_up { old + given } else { given };
        if self.only_new {
            return Ok(None);
        }
        if new.is_nan() {
            return Err(errors::NO_SCORE);
        }
        let is_refused = self.only_greater && new <= old || self.only_less && new >= old;
        Ok((!is_refused).then_some(new))
    }
}
