//! Commands on hashes, sets and sorted sets. Each is the value of one item: see the crate `larder-collection`.
//!
//! A command on one collection looks at the item, or makes its next value, as other commands on one item do. A command
//! on several is executed alone, as `MSETNX` is.

mod field_times;
mod hashes;
mod ordered;
mod ranges;
mod sets;
mod several;

use super::compose::say_error;
use super::errors::{self, Error};
use super::glob::Pattern;
use super::keys_commands::cursor as cursor_of;
use super::moment::Moment;
use super::request::{after, words_of};
use super::session::Connection;
use super::worker::Resp;
use crate::dispatch::execute::Executor;
use crate::dispatch::item_key::is_plain;
use crate::dispatch::operation::{Change, ItemKey, Look, Operation, Part, Rewrite, Rewriting, Rewritten};
use crate::dispatch::outcome::{EditOutcome, Looked, Outcome};
use crate::dispatch::output::Output;
use crate::dispatch::progress::Progress;
use crate::dispatch::window::{Hints, Progressed};
use indexmap::IndexSet;
use larder_cache::{KeyHash, Kind};
use larder_collection::{Collection, Editor, Entry};
use larder_protocol::resp::{Args, Command, Keys, Version, compose as out, decimal, flags};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

/// With this number of searches, among this number of members, a map of them is made first.
const SEARCHES_MIN: usize = 256;

/// Arguments of a request, and those behind them.
type Parts<'w, 'a> = (&'w [&'a [u8]], &'w [&'a [u8]]);

/// Makes the next value of a collection, in the first buffer, and the reply, in the second.
type Making<'a> = dyn Fn(Option<Collection<'_>>, &mut Vec<u8>, &mut Vec<u8>) -> Result<Rewritten, Error> + 'a;

/// What is known of a request on one collection.
struct Asked<'t> {
    executor: &'t mut Executor,
    progress: &'t mut Progress,
    output: &'t mut Output,
    item: ItemKey<'t>,
    command: &'static Command,
    version: Version,
    moment: Moment,
    leaves_no_trace: bool,
    /// The longest reply, in bytes.
    reply_bytes_max: usize,
    random: Random,
}

impl Resp {
    /// Executes a command on collections.
    pub(super) fn run_on_collections(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
        hash: KeyHash,
        hints: &mut Hints,
    ) -> Progressed {
        hints.are_outdated |= command.has(flags::WRITE);
        if command.keys != Keys::ONE {
            return self.run_on_several(executor, connection, command, args);
        }
        let (random, reply_bytes_max) = (Random::new(self.random()), self.request_bytes_max());
        let Resp { rooms: [room, _], .. } = self;
        let words = words_of(after(args, 1));
        let (key, words) = words.split_first().map_or((&[][..], &words[..]), |(key, words)| (*key, words));
        let item = match is_plain(key) {
            true => ItemKey { key, hash, head: &[] },
            false => room.item_key(key, |key| executor.hash(key)),
        };
        let moment = Moment::new(executor.now_ms(), executor.clock());
        let Connection { output, progress, session: Some(session), .. } = connection else {
            return Progressed::Request;
        };
        let (version, leaves_no_trace) = (session.version, session.leaves_no_trace);
        let asked = Asked {
            executor,
            progress,
            output,
            item,
            command,
            version,
            moment,
            leaves_no_trace,
            reply_bytes_max,
            random,
        };
        asked.run(words)
    }
}

impl Asked<'_> {
    fn run(mut self, words: &[&[u8]]) -> Progressed {
        let before = self.output.len();
        let done = match self.command.category {
            "hash" => self.run_on_hash(words),
            "set" => self.run_on_set(words),
            _ => self.run_on_sorted_set(words),
        };
        done.unwrap_or_else(|error| {
            self.output.truncate(before);
            say_error(self.output, &error);
            Progressed::Request
        })
    }

    fn unix_ms(&self) -> u64 {
        self.moment.unix_ms().max(0) as u64
    }

    /// Reads the collection. `None` = it is not there.
    fn read(
        &mut self,
        kinds: &'static [Kind],
        compose: impl FnOnce(Option<Collection<'_>>, &mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<Progressed, Error> {
        let part = Part::Collection(kinds, self.unix_ms());
        let look = Look { key: self.item, part, leaves_no_trace: self.leaves_no_trace };
        let (output, mut done) = (&mut *self.output, Ok(()));
        let is_answered = self.executor.execute(self.progress, &Operation::Look(look), |outcome| {
            done = seen(outcome).and_then(|present| compose(present, output.buffer()));
            b""
        });
        done.map(|()| if is_answered { Progressed::Request } else { Progressed::Waits })
    }

    /// Makes the next value of the collection.
    fn change(&mut self, kind: Kind, make: &Making<'_>) -> Result<Progressed, Error> {
        let change = Changed { kind, replaces: false, unix_ms: self.unix_ms() };
        let reply = self.output.buffer();
        let is_answered = change.carry_out(self.executor, self.progress, self.item, make, reply)?;
        Ok(if is_answered { Progressed::Request } else { Progressed::Waits })
    }
}

/// A change of a collection, without what it does.
#[derive(Clone, Copy)]
struct Changed {
    kind: Kind,
    /// Whatever is there makes room for it.
    replaces: bool,
    unix_ms: u64,
}

impl Changed {
    /// Carries a change out, and appends to the reply. Returns `false` if its item has to be waited for.
    fn carry_out(
        self,
        executor: &mut Executor,
        progress: &mut Progress,
        item: ItemKey<'_>,
        make: &Making<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let from = reply.len();
        let made = RefCell::new((reply, None));
        let rewriting = |present: Option<Collection<'_>>, value: &mut Vec<u8>| {
            let (reply, error) = &mut *made.borrow_mut();
            reply.truncate(from);
            let rewritten = make(present, value, reply);
            *error = rewritten.as_ref().err().cloned();
            rewritten.unwrap_or(Rewritten::Same)
        };
        let rewriting: &Rewriting<'_> = &rewriting;
        let Changed { kind, replaces, unix_ms } = self;
        let rewrite = Rewrite { kind, replaces, unix_ms, make: rewriting };
        let mut error = None;
        let operation = Operation::Edit(item, Change::Rewrite(&rewrite));
        let is_answered = executor.execute(progress, &operation, |outcome| {
            error = match outcome {
                Outcome::Edited(EditOutcome::Done | EditOutcome::NotDone) => made.borrow_mut().1.take(),
                Outcome::Edited(EditOutcome::TooLarge) => Some(errors::COLLECTION_TOO_LARGE),
                Outcome::Edited(EditOutcome::WrongKind) => Some(errors::WRONG_KIND),
                _ => Some(errors::NO_MEMORY),
            };
            b""
        });
        error.map_or(Ok(is_answered), Err)
    }
}

/// The collection that was looked for.
fn seen(outcome: Outcome<'_>) -> Result<Option<Collection<'_>>, Error> {
    match outcome {
        Outcome::Looked(Looked::Collection(present)) => Ok(Some(present).filter(|one| !one.is_empty())),
        Outcome::Looked(Looked::Absent) => Ok(None),
        Outcome::Looked(Looked::WrongKind) => Err(errors::WRONG_KIND),
        _ => Err(errors::NO_MEMORY),
    }
}

/// A collection in which many fields are looked for.
struct Searched<'c> {
    collection: Collection<'c>,
    places: Option<HashMap<&'c [u8], usize>>,
}

impl<'c> Searched<'c> {
    /// `count` = how many fields are looked for.
    fn new(collection: Collection<'c>, count: usize) -> Searched<'c> {
        let is_worth_it = count >= SEARCHES_MIN && collection.len() >= SEARCHES_MIN;
        Searched { collection, places: is_worth_it.then(|| collection.places()) }
    }

    fn get(&self, field: &[u8]) -> Option<Entry<'c>> {
        match &self.places {
            None => self.collection.get(field),
            Some(places) => self.collection.at(*places.get(field)?),
        }
    }
}

/// Writes what an editor has made.
fn finish(editor: Editor<'_>, value: &mut Vec<u8>) -> Result<Rewritten, Error> {
    if editor.is_empty() {
        return Ok(Rewritten::Gone);
    }
    if !editor.fits() {
        return Err(errors::COLLECTION_TOO_LARGE);
    }
    editor.write(value);
    Ok(Rewritten::Next)
}

/// Numbers by chance. A change that is made anew begins with the same ones.
#[derive(Clone)]
struct Random(Cell<u64>);

impl Random {
    fn new(seed: u64) -> Random {
        Random(Cell::new(seed | 1))
    }

    /// A number below `limit`, which is not 0.
    fn below(&self, limit: usize) -> usize {
        let mut word = self.0.get();
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        self.0.set(word);
        let mixed = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(mixed) * limit as u128) >> 64) as usize
    }

    /// `count` different places of `length`, in any order.
    fn places(&self, count: usize, length: usize) -> Vec<usize> {
        let count = count.min(length);
        if count <= length / 4 {
            let mut places = IndexSet::with_capacity(count);
            while places.len() < count {
                places.insert(self.below(length));
            }
            return places.into_iter().collect();
        }
        let mut places: Vec<usize> = (0..length).collect();
        for at in 0..count {
            places.swap(at, at + self.below(length - at));
        }
        places.truncate(count);
        places
    }
}

/// Says the members at these places, for which `count` is what the client asked for: with a negative number, members
/// may come several times.
fn say_by_chance<'c>(
    present: Collection<'c>,
    count: i64,
    random: &Random,
    say: impl FnMut(Entry<'c>) -> Result<(), Error>,
) -> Result<(), Error> {
    let length = present.len();
    if count >= 0 && count as usize >= length {
        return present.iter().try_for_each(say);
    }
    // Where fields have times, places count those that are past.
    let living: Vec<Entry<'_>> = if present.is_timed() { present.iter().collect() } else { Vec::new() };
    let entry = |place: usize| living.get(place).copied().or_else(|| present.at(place));
    match count {
        ..0 => (0..count.unsigned_abs()).filter_map(|_| entry(random.below(length))).try_for_each(say),
        _ => random.places(count as usize, length).into_iter().filter_map(entry).try_for_each(say),
    }
}

/// How many members a client asks for by chance.
fn count_by_chance(word: &[u8]) -> Result<i64, Error> {
    let count = decimal(word).ok_or(errors::NOT_INTEGER)?;
    if count == i64::MIN { Err(errors::OUT_OF_64_BITS) } else { Ok(count) }
}

/// A whole number.
fn whole(word: &[u8]) -> Result<i64, Error> {
    decimal(word).ok_or(errors::NOT_INTEGER)
}

/// What a scan asks for.
struct Scan {
    pattern: Option<Pattern>,
    /// How many members one reply is to have, about.
    count: usize,
    /// Neither values nor scores.
    is_bare: bool,
}

impl Default for Scan {
    fn default() -> Scan {
        Scan { pattern: None, count: 10, is_bare: false }
    }
}

/// The most members of a collection that is shown in one reply, as Redis shows those of its compact encodings.
const SHOWN_AT_ONCE: usize = 512;
/// A scan takes about this number of replies at most, because each goes over the whole collection.
const REPLIES_MAX: usize = 64;

/// The place of a member in a scan, below 2^48: it follows from the member alone, so what comes, goes or changes
/// between two replies moves no other member.
fn place(member: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(member);
    hasher.finish() >> 16
}

/// The members from the place `cursor` on that one reply has, and the cursor of the next; 0 = there is no more.
fn page<'a>(present: &Collection<'a>, cursor: u64, count: usize) -> (Vec<Entry<'a>>, u64) {
    let all: Vec<Entry<'a>> = present.iter().collect();
    if all.len() <= SHOWN_AT_ONCE {
        return (all, 0);
    }
    let most = count.max(all.len() / REPLIES_MAX);
    let placed = all.into_iter().map(|entry| (place(entry.field), entry));
    let mut found: Vec<_> = placed.filter(|(place, _)| *place >= cursor).collect();
    let mut next = 0;
    if found.len() > most {
        let (_, (last, _), after) = found.select_nth_unstable_by_key(most - 1, |(place, _)| *place);
        let last = *last;
        // Members of one place come together.
        next = if after.iter().any(|(place, _)| *place > last) { last + 1 } else { 0 };
        found.retain(|(place, _)| *place <= last);
    }
    (found.into_iter().map(|(_, entry)| entry).collect(), next)
}

impl Scan {
    /// Reads what stands behind the cursor. `bare` = the option that leaves values or scores away.
    fn read(options: &[&[u8]], bare: &[u8]) -> Result<Scan, Error> {
        let (mut scan, mut options) = (Scan::default(), options.iter());
        while let Some(option) = options.next() {
            match &option.to_ascii_lowercase()[..] {
                b"match" => {
                    let pattern = Pattern::read(options.next().ok_or(errors::SYNTAX)?);
                    scan.pattern = Some(pattern.ok_or(errors::PATTERN_TOO_LONG)?);
                }
                b"count" => {
                    let count = whole(options.next().ok_or(errors::SYNTAX)?)?;
                    scan.count =
                        usize::try_from(count).ok().filter(|count| *count > 0).ok_or(errors::SYNTAX)?;
                }
                option if !bare.is_empty() && option == bare => scan.is_bare = true,
                b"novalues" => return Err(errors::NO_VALUES),
                b"noscores" => return Err(errors::NO_SCORES),
                _ => return Err(errors::SYNTAX),
            }
        }
        Ok(scan)
    }
}

impl Asked<'_> {
    /// `HSCAN` and its like. `more` says what belongs to a member.
    fn scan(
        &mut self,
        kinds: &'static [Kind],
        words: &[&[u8]],
        bare: &[u8],
        more: impl Fn(&mut Vec<u8>, Entry<'_>),
    ) -> Result<Progressed, Error> {
        let (cursor, options) = words.split_first().ok_or(errors::SYNTAX)?;
        let cursor = cursor_of(cursor).ok_or(errors::INVALID_CURSOR)?;
        self.read(kinds, |present, reply| {
            // Redis looks at the options where there is something to scan.
            let scan = match present {
                None => Scan::default(),
                Some(_) => Scan::read(options, bare)?,
            };
            let wanted = |entry: &Entry<'_>| scan.pattern.as_ref().is_none_or(|one| one.matches(entry.field));
            let (mut found, next) =
                present.map_or_else(Default::default, |one| page(&one, cursor, scan.count));
            found.retain(wanted);
            let is_bare = scan.is_bare || bare.is_empty();
            out::array_head(reply, 2);
            out::bulk(reply, next.to_string().as_bytes());
            out::array_head(reply, if is_bare { found.len() } else { 2 * found.len() });
            for entry in found {
                out::bulk(reply, entry.field);
                if !is_bare {
                    more(reply, entry);
                }
            }
            Ok(())
        })
    }
}
