//! Fields of hashes that live for a time.

use super::hashes::{HASH, say_values, within};
use super::{Asked, Parts, finish, whole};
use crate::dispatch::operation::Rewritten;
use crate::dispatch::resp::errors::{self, Error};
use crate::dispatch::resp::item_requests::expire_condition;
use crate::dispatch::window::Progressed;
use larder_cache::Kind;
use larder_collection::{Editor, Entry};
use larder_protocol::resp::{Command, Id, compose as out};

/// Replies of a field: there is none, it has no time, its condition does not hold, it is gone.
const NO_FIELD: i64 = -2;
const NO_TIME: i64 = -1;
const NOT_SET: i64 = 0;
const SET: i64 = 1;
const GONE: i64 = 2;

/// What becomes of the times of fields whose values are read or set.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Times {
    /// `HSETEX` takes them away, `HGETEX` leaves them.
    #[default]
    AsUsual,
    Kept,
    Gone,
    Until(i64),
}

/// The options of `HGETEX` and `HSETEX`.
#[derive(Clone, Copy, Default)]
struct Options<'a> {
    times: Times,
    /// The time, whether it is counted from now on, and whether in seconds.
    time: Option<(&'a [u8], bool, bool)>,
    /// Only if there is no such hash, or if there is one.
    only_new_hash: bool,
    only_present_hash: bool,
    /// Only if there is none of the fields, or if all are there.
    only_new: bool,
    only_present: bool,
}

impl Asked<'_> {
    pub(super) fn run_on_field_times(&mut self, words: &[&[u8]]) -> Result<Progressed, Error> {
        match self.command.id {
            Id::Hexpire | Id::Hpexpire | Id::Hexpireat | Id::Hpexpireat => self.set_times(words),
            Id::Hpersist => {
                let fields = fields(words, 1, errors::FIELDS_DIFFER)?;
                self.each_field(fields, |old| match old.until_ms {
                    0 => (NO_TIME, Some(old)),
                    _ => (SET, Some(Entry { until_ms: 0, ..old })),
                })
            }
            Id::Hgetdel => self.get_and_remove(words),
            Id::Hgetex => self.get_and_set_times(words),
            Id::Hsetex => self.set_with_time(words),
            _ => self.say_times(words),
        }
    }

    /// `HTTL` and its like.
    fn say_times(&mut self, words: &[&[u8]]) -> Result<Progressed, Error> {
        let (id, now_ms) = (self.command.id, self.moment.unix_ms());
        let fields = fields(words, 1, errors::SYNTAX)?;
        self.read(HASH, |present, reply| {
            out::array_head(reply, fields.len());
            for field in fields {
                let until_ms = present.and_then(|present| present.get(field)).map(|entry| entry.until_ms);
                let until_ms = until_ms.map(|until_ms| until_ms as i64);
                out::integer(
                    reply,
                    match (until_ms, id) {
                        (None, _) => NO_FIELD,
                        (Some(0), _) => NO_TIME,
                        (Some(until_ms), Id::Httl) => seconds(until_ms - now_ms),
                        (Some(until_ms), Id::Hpttl) => until_ms - now_ms,
                        (Some(until_ms), Id::Hexpiretime) => seconds(until_ms),
                        (Some(until_ms), _) => until_ms,
                    },
                );
            }
            Ok(())
        })
    }

    /// `HEXPIRE` and its like.
    fn set_times(&mut self, words: &[&[u8]]) -> Result<Progressed, Error> {
        let now_ms = self.moment.unix_ms();
        let (is_relative, is_seconds) = match self.command.id {
            Id::Hexpire => (true, true),
            Id::Hpexpire => (true, false),
            Id::Hexpireat => (false, true),
            _ => (false, false),
        };
        let (options, behind) = before_fields(words).ok_or(errors::FIELDS_DIFFER)?;
        let condition = expire_condition(options.get(1..).unwrap_or_default())?;
        let fields = fields(behind, 1, errors::FIELDS_DIFFER)?;
        let until_ms = time(self.command, options.first(), is_relative.then_some(now_ms), is_seconds)?;
        self.each_field(fields, |old| {
            let before = old.until_ms as i64;
            let holds = !(condition.has_none && before != 0
                || condition.has_one && before == 0
                || condition.is_later && (before == 0 || until_ms <= before)
                || condition.is_earlier && before != 0 && until_ms >= before);
            match (holds, until_ms <= now_ms) {
                (false, _) => (NOT_SET, Some(old)),
                (true, true) => (GONE, None),
                (true, false) => (SET, Some(Entry { until_ms: until_ms as u64, ..old })),
            }
        })
    }

    /// Does the same with each field that is there, and says what came of each.
    fn each_field(
        &mut self,
        fields: &[&[u8]],
        what: impl for<'e> Fn(Entry<'e>) -> (i64, Option<Entry<'e>>),
    ) -> Result<Progressed, Error> {
        self.change(Kind::Hash, &|present, next, reply| {
            out::array_head(reply, fields.len());
            let mut editor = Editor::new(Kind::Hash, present, fields.len());
            let mut is_changed = false;
            for field in fields {
                let Some(old) = editor.get(field) else {
                    out::integer(reply, NO_FIELD);
                    continue;
                };
                let (said, new) = what(old);
                out::integer(reply, said);
                is_changed |= new != Some(old);
                match new {
                    Some(new) => _ = editor.put(new),
                    None => _ = editor.remove(field),
                }
            }
            if is_changed { finish(editor, next) } else { Ok(Rewritten::Same) }
        })
    }

    /// `HGETDEL`.
    fn get_and_remove(&mut self, words: &[&[u8]]) -> Result<Progressed, Error> {
        let (fields, version) = (fields(words, 1, errors::FIELDS_DIFFER)?, self.version);
        self.change(Kind::Hash, &|present, next, reply| {
            let mut editor = Editor::new(Kind::Hash, present, fields.len());
            let mut is_changed = false;
            out::array_head(reply, fields.len());
            for field in fields {
                match editor.remove(field) {
                    Some(gone) => {
                        is_changed = true;
                        out::bulk(reply, gone.value);
                    }
                    None => out::null(reply, version),
                }
            }
            if is_changed { finish(editor, next) } else { Ok(Rewritten::Same) }
        })
    }

    /// `HGETEX`.
    fn get_and_set_times(&mut self, words: &[&[u8]]) -> Result<Progressed, Error> {
        let (options, behind) = before_fields(words).ok_or(errors::SYNTAX)?;
        let options = self.options(options)?;
        let (version, reply_bytes_max) = (self.version, self.reply_bytes_max);
        let fields = fields(behind, 1, errors::FIELDS_DIFFER)?;
        let times = match self.times(&options) {
            Ok(times) => times,
            // Redis looks at the hash before it looks at a time.
            Err(error) => return self.read(HASH, |_, _| Err(error)),
        };
        if times == Times::AsUsual {
            return self
                .read(HASH, |present, reply| say_values(present, fields, version, reply, reply_bytes_max));
        }
        let now_ms = self.moment.unix_ms();
        self.change(Kind::Hash, &|present, next, reply| {
            let (mut editor, from) = (Editor::new(Kind::Hash, present, fields.len()), reply.len());
            let mut is_changed = false;
            out::array_head(reply, fields.len());
            for field in fields {
                within(reply.len() - from, reply_bytes_max)?;
                let Some(old) = editor.get(field) else {
                    out::null(reply, version);
                    continue;
                };
                out::bulk(reply, old.value);
                let new = timed(old, times, now_ms);
                is_changed |= new != Some(old);
                match new {
                    Some(new) => _ = editor.put(new),
                    None => _ = editor.remove(field),
                }
            }
            if is_changed { finish(editor, next) } else { Ok(Rewritten::Same) }
        })
    }

    /// `HSETEX`.
    fn set_with_time(&mut self, words: &[&[u8]]) -> Result<Progressed, Error> {
        let (options, behind) = before_fields(words).ok_or(errors::SYNTAX)?;
        let options = self.options(options)?;
        let (pairs, now_ms) = (fields(behind, 2, errors::FIELDS_DIFFER)?, self.moment.unix_ms());
        let times = match self.times(&options) {
            Ok(times) => times,
            Err(error) => {
                return self.read(HASH, |present, reply| match options.refuses(present.is_some()) {
                    true => {
                        out::integer(reply, 0);
                        Ok(())
                    }
                    false => Err(error),
                });
            }
        };
        self.change(Kind::Hash, &|present, next, reply| {
            let has = |pair: &[&[u8]]| present.is_some_and(|present| present.has(pair[0]));
            let is_refused = options.only_new && pairs.chunks_exact(2).any(has)
                || options.only_present && !pairs.chunks_exact(2).all(has)
                || options.refuses(present.is_some());
            out::integer(reply, i64::from(!is_refused));
            if is_refused {
                return Ok(Rewritten::Same);
            }
            let mut editor = Editor::new(Kind::Hash, present, pairs.len() / 2);
            for pair in pairs.chunks_exact(2) {
                let old = editor.get(pair[0]).map_or(0, |old| old.until_ms);
                let until_ms = if times == Times::Kept { old } else { 0 };
                match timed(Entry { until_ms, ..Entry::pair(pair[0], pair[1]) }, times, now_ms) {
                    Some(new) => _ = editor.put(new),
                    None => _ = editor.remove(pair[0]),
                }
            }
            if present.is_none() && editor.is_empty() { Ok(Rewritten::Same) } else { finish(editor, next) }
        })
    }

    /// The options of `HGETEX` and `HSETEX`.
    fn options<'a>(&self, words: &[&'a [u8]]) -> Result<Options<'a>, Error> {
        let is_set = self.command.id == Id::Hsetex;
        let (mut options, mut rest) = (Options::default(), words);
        while let [word, behind @ ..] = rest {
            let has_none = options.times == Times::AsUsual && options.time.is_none();
            let unit = match &word.to_ascii_lowercase()[..] {
                b"ex" if has_none => Some((true, true)),
                b"px" if has_none => Some((true, false)),
                b"exat" if has_none => Some((false, true)),
                b"pxat" if has_none => Some((false, false)),
                name => {
                    match name {
                        b"persist" if has_none && !is_set => options.times = Times::Gone,
                        b"keepttl" if has_none && is_set => options.times = Times::Kept,
                        b"nx" if is_set && !options.only_present_hash => options.only_new_hash = true,
                        b"xx" if is_set && !options.only_new_hash => options.only_present_hash = true,
                        b"fnx" if is_set && !options.only_present => options.only_new = true,
                        b"fxx" if is_set && !options.only_new => options.only_present = true,
                        _ => return Err(errors::SYNTAX),
                    }
                    None
                }
            };
            rest = behind;
            if let Some((is_relative, is_seconds)) = unit {
                let (number, behind) = rest.split_first().ok_or(errors::SYNTAX)?;
                (options.time, rest) = (Some((*number, is_relative, is_seconds)), behind);
            }
        }
        Ok(options)
    }

    /// What becomes of times by these options.
    fn times(&self, options: &Options<'_>) -> Result<Times, Error> {
        let Some((number, is_relative, is_seconds)) = options.time else { return Ok(options.times) };
        let now_ms = is_relative.then_some(self.moment.unix_ms());
        time(self.command, Some(&number), now_ms, is_seconds).map(Times::Until)
    }
}

impl Options<'_> {
    /// Whether nothing is done because the hash is there, or is not.
    fn refuses(&self, is_there: bool) -> bool {
        if is_there { self.only_new_hash } else { self.only_present_hash }
    }
}

/// Milliseconds in seconds, rounded up.
fn seconds(ms: i64) -> i64 {
    ms / 1000 + i64::from(ms % 1000 > 0)
}

/// A field after its time was set. `None` = that is past.
fn timed(entry: Entry<'_>, times: Times, now_ms: i64) -> Option<Entry<'_>> {
    match times {
        Times::AsUsual | Times::Kept => Some(entry),
        Times::Gone => Some(Entry { until_ms: 0, ..entry }),
        Times::Until(until_ms) if until_ms <= now_ms => None,
        Times::Until(until_ms) => Some(Entry { until_ms: until_ms as u64, ..entry }),
    }
}

/// Until when, in milliseconds since 1970. `now_ms` = the time is counted from now on.
fn time(
    command: &Command,
    word: Option<&&[u8]>,
    now_ms: Option<i64>,
    is_seconds: bool,
) -> Result<i64, Error> {
    let invalid = || errors::invalid_expiry(command);
    let number = whole(word.copied().unwrap_or_default())?;
    if number < 0 {
        return Err(invalid());
    }
    let ms = if is_seconds { number.checked_mul(1000).ok_or_else(invalid)? } else { number };
    ms.checked_add(now_ms.unwrap_or(0)).ok_or_else(invalid)
}

/// What stands before `FIELDS`, and the rest.
fn before_fields<'w, 'a>(words: &'w [&'a [u8]]) -> Option<Parts<'w, 'a>> {
    words.iter().position(|word| word.eq_ignore_ascii_case(b"fields")).map(|from| words.split_at(from))
}

/// What stands behind `FIELDS` and their number: `each` words for each field. `differ` = the error if they are not so
/// many.
fn fields<'w, 'a>(words: &'w [&'a [u8]], each: usize, differ: Error) -> Result<&'w [&'a [u8]], Error> {
    let [name, number, fields @ ..] = words else { return Err(errors::SYNTAX) };
    if !name.eq_ignore_ascii_case(b"fields") {
        return Err(errors::SYNTAX);
    }
    let number = usize::try_from(whole(number)?).ok().filter(|number| *number > 0);
    let is_right = number.is_some_and(|number| number.checked_mul(each) == Some(fields.len()));
    if is_right { Ok(fields) } else { Err(differ) }
}
