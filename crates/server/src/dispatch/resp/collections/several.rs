//! Commands on several collections. Each is executed alone.

use super::ordered::{SORTED, ends, say_scored};
use super::ranges::{Range, score};
use super::sets::SET;
use super::{Changed, Parts, Searched, finish, seen, whole};
use crate::dispatch::execute::Executor;
use crate::dispatch::item_key::KeyRoom;
use crate::dispatch::operation::{Look, Operation, Part, Rewritten};
use crate::dispatch::output::Output;
use crate::dispatch::progress::Progress;
use crate::dispatch::resp::compose::say_error;
use crate::dispatch::resp::errors::{self, Error};
use crate::dispatch::resp::moment::Moment;
use crate::dispatch::resp::request::{after, words_of};
use crate::dispatch::resp::session::Connection;
use crate::dispatch::resp::worker::Resp;
use crate::dispatch::window::Progressed;
use crate::io::{Buffers, Charge};
use indexmap::IndexMap;
use larder_cache::{Alone, Kind};
use larder_collection::{Collection, Editor, Entry};
use larder_protocol::resp::{Args, Command, Id, Version, compose as out, decimal, flags};
use std::collections::HashSet;
use std::sync::Arc;

const ANY_SET: &[Kind] = &[Kind::SortedSet, Kind::Set];

/// A copy of a collection.
struct Source {
    kind: Kind,
    value: Vec<u8>,
}

/// What is made of several collections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Combined {
    Union,
    Intersection,
    Difference,
}

/// How the scores of a member come together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Least,
    Greatest,
}

/// What a request on several sorted sets asks for behind its keys.
struct Options {
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    /// An intersection ends at this number of members.
    limit: usize,
}

/// A request on several collections.
struct Several<'t> {
    executor: &'t mut Executor,
    progress: &'t mut Progress,
    output: &'t mut Output,
    room: &'t mut KeyRoom,
    command: &'static Command,
    version: Version,
    unix_ms: u64,
    leaves_no_trace: bool,
    /// Bytes that stand before the keys of the client and are not shown.
    prefix_bytes: usize,
    /// What the copies take, in the account of connection buffers.
    charge: Charge,
    buffers: Option<&'t Arc<Buffers>>,
    /// No other worker executes requests.
    alone: Option<Alone<'static>>,
    /// An item has to be waited for.
    waits: bool,
}

impl Resp {
    pub(super) fn run_on_several(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
    ) -> Progressed {
        if !self.bring_keys(executor, connection, command.keys.of(args)) {
            return Progressed::Waits;
        }
        let Ok(alone) = self.be_alone(executor, connection) else { return Progressed::Waits };
        // While the worker waited, others may have pushed an item out of memory.
        if !self.bring_keys(executor, connection, command.keys.of(args)) {
            return Progressed::Waits;
        }
        let Resp { rooms: [room, _], server, .. } = self;
        let prefix_bytes = connection.own_keys().map_or(0, |own| own.prefix().len());
        let Connection { output, progress, session: Some(session), .. } = connection else {
            return Progressed::Request;
        };
        let moment = Moment::new(executor.now_ms(), executor.clock());
        let before = output.len();
        let mut several = Several {
            executor,
            progress,
            output,
            room,
            command,
            version: session.version,
            unix_ms: moment.unix_ms().max(0) as u64,
            leaves_no_trace: session.leaves_no_trace,
            prefix_bytes,
            charge: Charge::default(),
            buffers: server.buffers(),
            alone,
            waits: false,
        };
        let (done, waits) = (several.run(&words_of(after(args, 1))), several.waits);
        drop(several);
        done.unwrap_or_else(|error| {
            output.truncate(before);
            match waits {
                true => Progressed::Waits,
                false => {
                    say_error(output, &error);
                    Progressed::Request
                }
            }
        })
    }
}

impl Several<'_> {
    fn run(&mut self, words: &[&[u8]]) -> Result<Progressed, Error> {
        match (self.command.id, words) {
            (Id::Smove, [from, to, member, ..]) => self.move_member(from, to, member),
            (Id::Sinter | Id::Sunion | Id::Sdiff, keys) => {
                self.combine(SET, keys, &[], |several, found, _| {
                    let reply = several.output.buffer();
                    out::set_head(reply, several.version, found.len());
                    found.iter().for_each(|entry| out::bulk(reply, entry.field));
                    Ok(Progressed::Request)
                })
            }
            (Id::Sinterstore | Id::Sunionstore | Id::Sdiffstore, [to, keys @ ..]) => {
                self.combine(SET, keys, &[], |several, found, _| several.store(to, Kind::Set, found))
            }
            (Id::Sintercard | Id::Zintercard, _) => {
                let (keys, behind) = self.numbered(words)?;
                let is_sorted = self.command.id == Id::Zintercard;
                if !is_sorted {
                    Options::read(behind, keys.len(), self.command.id)?;
                }
                let kinds = if is_sorted { ANY_SET } else { SET };
                self.combine(kinds, keys, behind, |several, found, _| {
                    out::integer(several.output.buffer(), found.len() as i64);
                    Ok(Progressed::Request)
                })
            }
            (Id::Zunion | Id::Zinter | Id::Zdiff, _) => {
                let (keys, behind) = self.numbered(words)?;
                self.combine(ANY_SET, keys, behind, |several, found, options| {
                    let mut found = found.to_vec();
                    found.sort_by(Entry::order);
                    say_scored(&found, options.with_scores, several.version, several.output.buffer());
                    Ok(Progressed::Request)
                })
            }
            (Id::Zunionstore | Id::Zinterstore | Id::Zdiffstore, [to, rest @ ..]) => {
                let (keys, behind) = self.numbered(rest)?;
                self.combine(ANY_SET, keys, behind, |several, found, _| {
                    several.store(to, Kind::SortedSet, found)
                })
            }
            (Id::Zrangestore, [to, from, range @ ..]) => {
                let range = Range::read(Id::Zrangestore, range)?;
                let source = self.source(from, SORTED)?;
                let found = source.as_ref().and_then(|source| source.read(self.unix_ms));
                let found = found.map_or(Vec::new(), |present| range.members(present));
                self.store(to, Kind::SortedSet, &found)
            }
            _ => self.pop_first(words),
        }
    }

    /// The keys whose number stands before them, and what stands behind them.
    fn numbered<'w, 'a>(&self, words: &'w [&'a [u8]]) -> Result<Parts<'w, 'a>, Error> {
        let id = self.command.id;
        let is_plain = matches!(id, Id::Sintercard | Id::Zmpop);
        let number = words.first().and_then(|word| decimal(word));
        let number = match number {
            Some(number @ 1..) => usize::try_from(number).unwrap_or(usize::MAX),
            _ if is_plain => return Err(errors::NUMBER_OF_KEYS),
            None => return Err(errors::NOT_INTEGER),
            Some(_) => return Err(errors::no_input_key(self.command)),
        };
        let rest = words.get(1..).unwrap_or_default();
        rest.split_at_checked(number).ok_or(match id {
            Id::Sintercard => errors::KEYS_ABOVE_ARGS,
            _ => errors::SYNTAX,
        })
    }

    /// A copy of the collection of a key.
    fn source(&mut self, key: &[u8], kinds: &'static [Kind]) -> Result<Option<Source>, Error> {
        let item = self.room.item_key(key, |key| self.executor.hash(key));
        let part = Part::Collection(kinds, self.unix_ms);
        let look = Look { key: item, part, leaves_no_trace: self.leaves_no_trace };
        let mut found = Ok(None);
        let is_answered = self.executor.execute(self.progress, &Operation::Look(look), |outcome| {
            found = seen(outcome).map(|present| present.map(|one| (one.kind(), one.bytes().to_vec())));
            b""
        });
        // Another item that was brought to memory has pushed this one out again.
        self.waits |= !is_answered;
        if self.waits {
            return Err(errors::NO_MEMORY);
        }
        let Some((kind, value)) = found? else { return Ok(None) };
        self.take_room(value.len())?;
        Ok(Some(Source { kind, value }))
    }

    fn take_room(&mut self, bytes: usize) -> Result<(), Error> {
        match self.buffers {
            Some(buffers) if !self.charge.try_grow(buffers, bytes as u64) => Err(errors::NO_MEMORY),
            _ => Ok(()),
        }
    }

    /// Combines the collections of keys, and does something with what comes of it: distinct members, in no order.
    /// `behind` = the options behind the keys.
    fn combine(
        &mut self,
        kinds: &'static [Kind],
        keys: &[&[u8]],
        behind: &[&[u8]],
        done: impl FnOnce(&mut Self, &[Entry<'_>], &Options) -> Result<Progressed, Error>,
    ) -> Result<Progressed, Error> {
        let mut sources = IndexMap::<&[u8], Option<Source>>::new();
        for key in keys {
            if !sources.contains_key(key) {
                sources.insert(key, self.source(key, kinds)?);
            }
        }
        let options = Options::read(behind, keys.len(), self.command.id)?;
        if self.command.has(flags::READONLY) {
            self.alone = None;
        }
        // What is named again counts again where scores are added, and where it is taken from the first one.
        let adds_scores =
            matches!(self.command.id, Id::Zunion | Id::Zunionstore | Id::Zinter | Id::Zinterstore);
        let all_count = adds_scores || sources.len() == keys.len();
        let (mut read, mut named) = (Vec::with_capacity(sources.len()), HashSet::new());
        for (at, key) in keys.iter().enumerate() {
            if all_count || at == 0 || named.insert(key) {
                let source = sources.get(key).and_then(Option::as_ref);
                read.push(source.and_then(|source| source.read(self.unix_ms)));
            }
        }
        let what = match self.command.id {
            Id::Sunion | Id::Sunionstore | Id::Zunion | Id::Zunionstore => Combined::Union,
            Id::Sdiff | Id::Sdiffstore | Id::Zdiff | Id::Zdiffstore => Combined::Difference,
            _ => Combined::Intersection,
        };
        let mut lengths = read.iter().map(|source| source.map_or(0, |source| source.len()));
        let most = match what {
            Combined::Union => {
                let each = sources.values().flatten().filter_map(|source| source.read(self.unix_ms));
                each.map(|source| source.len()).sum()
            }
            Combined::Intersection => lengths.min().unwrap_or(0),
            Combined::Difference => lengths.next().unwrap_or(0),
        };
        self.take_room(most * size_of::<Entry<'_>>())?;
        let found = combined(what, &read, &options);
        done(self, &found, &options)
    }

    /// Stores members under a key, whatever it has, and says how many they are.
    fn store(&mut self, to: &[u8], kind: Kind, found: &[Entry<'_>]) -> Result<Progressed, Error> {
        let is_done = self.change(to, kind, true, &|_, next, reply| {
            out::integer(reply, found.len() as i64);
            finish(Editor::of(kind, found.iter().copied()), next)
        })?;
        Ok(if is_done { Progressed::Request } else { Progressed::Waits })
    }

    /// Changes the collection of a key, and says what the change says.
    fn change(
        &mut self,
        key: &[u8],
        kind: Kind,
        replaces: bool,
        make: &super::Making<'_>,
    ) -> Result<bool, Error> {
        let item = self.room.item_key(key, |key| self.executor.hash(key));
        let changed = Changed { kind, replaces, unix_ms: self.unix_ms };
        changed.carry_out(self.executor, self.progress, item, make, self.output.buffer())
    }

    /// `SMOVE`.
    fn move_member(&mut self, from: &[u8], to: &[u8], member: &[u8]) -> Result<Progressed, Error> {
        let source = self.source(from, SET)?;
        let present = source.as_ref().and_then(|source| source.read(self.unix_ms));
        let is_there = present.is_some_and(|present| present.has(member));
        if present.is_some() {
            self.source(to, SET)?;
        }
        // A request that waits in its middle is executed again: what it has done then is done again.
        let is_done = !is_there
            || from == to
            || self.change(to, Kind::Set, false, &|present, next, _| {
                let mut editor = Editor::new(Kind::Set, present, 1);
                match editor.put(Entry::member(member)) {
                    None => finish(editor, next),
                    Some(_) => Ok(Rewritten::Same),
                }
            })? && self.change(from, Kind::Set, false, &|present, next, _| {
                let mut editor = Editor::new(Kind::Set, present, 1);
                match editor.remove(member) {
                    None => Ok(Rewritten::Same),
                    Some(_) => finish(editor, next),
                }
            })?;
        if !is_done {
            return Ok(Progressed::Waits);
        }
        out::integer(self.output.buffer(), i64::from(is_there));
        Ok(Progressed::Request)
    }

    /// `ZMPOP`.
    fn pop_first(&mut self, words: &[&[u8]]) -> Result<Progressed, Error> {
        let (keys, behind) = self.numbered(words)?;
        let [end, behind @ ..] = behind else { return Err(errors::SYNTAX) };
        let is_highest = match &end.to_ascii_lowercase()[..] {
            b"min" => false,
            b"max" => true,
            _ => return Err(errors::SYNTAX),
        };
        let count = match behind {
            [] => 1,
            [word, count, rest @ ..] if word.eq_ignore_ascii_case(b"count") => match (whole(count), rest) {
                (Ok(count @ 1..), []) => count as usize,
                (Ok(1..), _) => return Err(errors::SYNTAX),
                _ => return Err(errors::COUNT),
            },
            _ => return Err(errors::SYNTAX),
        };
        for key in keys {
            let Some(source) = self.source(key, SORTED)? else { continue };
            let Some(present) = source.read(self.unix_ms) else { continue };
            let popped = ends(present, count, is_highest);
            let is_done = self.change(key, Kind::SortedSet, false, &|_, next, _| {
                let mut editor = Editor::new(Kind::SortedSet, Some(present), popped.len());
                popped.iter().for_each(|entry| _ = editor.remove(entry.field));
                finish(editor, next)
            })?;
            if !is_done {
                return Ok(Progressed::Waits);
            }
            let (version, reply) = (self.version, self.output.buffer());
            out::array_head(reply, 2);
            out::bulk(reply, key.get(self.prefix_bytes..).unwrap_or_default());
            out::array_head(reply, popped.len());
            for entry in popped {
                out::array_head(reply, 2);
                out::bulk(reply, entry.field);
                out::double(reply, version, entry.score);
            }
            return Ok(Progressed::Request);
        }
        out::null_array(self.output.buffer(), self.version);
        Ok(Progressed::Request)
    }
}

impl Source {
    fn read(&self, unix_ms: u64) -> Option<Collection<'_>> {
        Collection::read(self.kind, &self.value, unix_ms)
    }
}

impl Options {
    /// `count` = how many keys there are.
    fn read(words: &[&[u8]], count: usize, id: Id) -> Result<Options, Error> {
        let aggregate = Aggregate::Sum;
        let mut options = Options { weights: Vec::new(), aggregate, with_scores: false, limit: usize::MAX };
        let is_weighted = matches!(id, Id::Zunion | Id::Zinter | Id::Zunionstore | Id::Zinterstore);
        let is_counted = matches!(id, Id::Sintercard | Id::Zintercard);
        let shows = matches!(id, Id::Zdiff | Id::Zinter | Id::Zunion);
        let mut rest = words;
        while let [word, behind @ ..] = rest {
            rest = behind;
            match &word.to_ascii_lowercase()[..] {
                b"weights" if is_weighted && behind.len() >= count => {
                    let (weights, behind) = behind.split_at(count);
                    let weights = weights.iter().map(|weight| score(weight).ok_or(errors::WEIGHT_NOT_FLOAT));
                    options.weights = weights.collect::<Result<_, Error>>()?;
                    rest = behind;
                }
                b"aggregate" if is_weighted && !behind.is_empty() => {
                    options.aggregate = match &behind[0].to_ascii_lowercase()[..] {
                        b"sum" => Aggregate::Sum,
                        b"min" => Aggregate::Least,
                        b"max" => Aggregate::Greatest,
                        _ => return Err(errors::SYNTAX),
                    };
                    rest = &behind[1..];
                }
                b"limit" if is_counted && !behind.is_empty() => {
                    options.limit = match decimal(behind[0]) {
                        Some(0) => usize::MAX,
                        Some(limit @ 1..) => limit as usize,
                        _ => return Err(errors::LIMIT),
                    };
                    rest = &behind[1..];
                }
                b"withscores" if shows => options.with_scores = true,
                _ => return Err(errors::SYNTAX),
            }
        }
        Ok(options)
    }

    /// The score of an entry of source number `at`. Members of plain sets have the score 1.
    fn score(&self, at: usize, kind: Kind, entry: &Entry<'_>) -> f64 {
        let score = if kind == Kind::Set { 1.0 } else { entry.score };
        number(score * self.weights.get(at).copied().unwrap_or(1.0))
    }

    fn together(&self, one: f64, other: f64) -> f64 {
        match self.aggregate {
            Aggregate::Sum => number(one + other),
            Aggregate::Least => one.min(other),
            Aggregate::Greatest => one.max(other),
        }
    }
}

/// 0 for what is no number: `inf` and `-inf` together.
fn number(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// The members of several collections together, each once.
fn combined<'s>(what: Combined, sources: &[Option<Collection<'s>>], options: &Options) -> Vec<Entry<'s>> {
    let first = sources.first().copied().flatten();
    // Scores are added in the order of Redis: that of the shortest collection first.
    let mut order: Vec<(usize, Option<Collection<'s>>)> = (0..).zip(sources.iter().copied()).collect();
    order.sort_by_key(|(_, source)| source.map_or(0, |source| source.len()));
    match what {
        Combined::Union => {
            let mut members = IndexMap::<&[u8], f64>::new();
            for (at, source) in order {
                for entry in source.iter().flat_map(Collection::iter) {
                    let score = options.score(at, kind_of(&source), &entry);
                    let put = members.entry(entry.field);
                    put.and_modify(|own| *own = options.together(*own, score)).or_insert(score);
                }
            }
            members.into_iter().map(|(member, score)| Entry::scored(member, score)).collect()
        }
        Combined::Difference => {
            let others = sources.get(1..).unwrap_or_default().iter().flatten();
            let count = first.map_or(0, |first| first.len());
            let others: Vec<Searched<'_>> = others.map(|other| Searched::new(*other, count)).collect();
            let is_alone = |entry: &Entry<'_>| !others.iter().any(|other| other.get(entry.field).is_some());
            let scored =
                |entry: Entry<'s>| Entry { score: options.score(0, kind_of(&first), &entry), ..entry };
            first.iter().flat_map(Collection::iter).filter(is_alone).map(scored).collect()
        }
        Combined::Intersection => {
            let shortest = order.first().and_then(|(_, source)| *source);
            let count = shortest.map_or(0, |shortest| shortest.len());
            let all: Option<Vec<(usize, Searched<'s>)>> =
                order.into_iter().map(|(at, source)| Some((at, Searched::new(source?, count)))).collect();
            let all = all.unwrap_or_default();
            let shortest = shortest.filter(|_| !all.is_empty());
            let common = |entry: Entry<'s>| {
                let mut score = None::<f64>;
                for (at, source) in &all {
                    let found = source.get(entry.field)?;
                    let own = options.score(*at, source.collection.kind(), &found);
                    score = Some(score.map_or(own, |score| options.together(score, own)));
                }
                Some(Entry::scored(entry.field, score.unwrap_or_default()))
            };
            shortest.iter().flat_map(Collection::iter).filter_map(common).take(options.limit).collect()
        }
    }
}

fn kind_of(source: &Option<Collection<'_>>) -> Kind {
    source.map_or(Kind::SortedSet, |source| source.kind())
}
