//! Commands that walk over the keys of all items, or end all items.

use super::compose::say_error;
use super::errors::{self, Error};
use super::glob::Pattern;
use super::session::{Connection, version_of};
use super::unfinished::{Collecting, WantedKeys};
use super::worker::Resp;
use crate::dispatch::execute::Executor;
use crate::dispatch::operation::Operation;
use crate::dispatch::outcome::{Outcome, Refusal};
use crate::dispatch::own_keys::shown_to;
use crate::dispatch::progress::Busy;
use crate::io::Charge;
use larder_cache::{Tour, Toured};
use larder_protocol::resp::{Args, Id, SLOTS, compose as words, decimal};
use larder_script::{LONGEST, processor_time};
use std::collections::HashSet;
use std::time::Instant;

/// How many keys a `SCAN` asks for that does not say.
const SCAN_COUNT: i64 = 10;
/// This many keys, and the rest of a bucket, are collected for one reply before other connections have their turn.
const KEYS_AT_ONCE: usize = 256;
/// Steps after which a key by chance is looked for in memory: some thousand keys of flash were none of the client's.
const RANDOM_STEPS_MAX: u32 = 16;
/// The types that Redis has.
const TYPES: [&str; 6] = ["string", "list", "set", "zset", "hash", "stream"];

impl Resp {
    /// Executes a command on all keys; `None` = it is none. `args` = what follows the command and its subcommand.
    pub(super) fn answer_about_keys(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        id: Id,
        args: Args<'_>,
    ) -> Option<Result<(), Error>> {
        Some(match id {
            Id::Keys | Id::ClusterCountkeysinslot | Id::ClusterGetkeysinslot => {
                self.collect_keys(executor, connection, id, args)
            }
            Id::Scan => self.scan(executor, connection, args),
            Id::Flushall => flush_option(args).and_then(|()| {
                let namespace = connection.namespace().cloned();
                let prefix = namespace.as_ref().map(|own| own.prefix());
                let within = |prefix| Operation::FlushKeys { prefix, in_all_databases: true };
                self.flush(executor, connection, prefix.map_or(Operation::Flush { due_s: None }, within))
            }),
            Id::Flushdb => flush_option(args).and_then(|()| {
                let own_keys = connection.own_keys().cloned();
                let is_all = own_keys.is_none() && !executor.databases().are_several();
                let prefix = own_keys.as_ref().map_or(&[][..], |own| own.prefix());
                let operation = match is_all {
                    true => Operation::Flush { due_s: None },
                    false => Operation::FlushKeys { prefix, in_all_databases: false },
                };
                self.flush(executor, connection, operation)
            }),
            Id::Flushprefix => {
                let own_prefix = connection.own_keys().map_or(&[][..], |own| own.prefix());
                let prefix = [own_prefix, args.clone().next().unwrap_or_default()].concat();
                self.flush(executor, connection, Operation::FlushPrefix { prefix: &prefix })
            }
            Id::Dbsize => {
                let count = match connection.own_keys() {
                    None if executor.databases().are_several() => executor.count_items_of(b""),
                    None => executor.count_items(),
                    Some(own) => executor.count_items_of(own.prefix()),
                };
                words::integer(connection.output.buffer(), count as i64);
                Ok(())
            }
            Id::Randomkey => {
                let random = self.random();
                // A transaction does not wait for flash.
                let in_transaction =
                    connection.session.as_ref().is_some_and(|session| session.transaction.is_some());
                if !in_transaction && let Some(tour) = executor.tour_for_random_key(random) {
                    return Some(self.begin_collecting(executor, connection, tour, WantedKeys::Any(random)));
                }
                self.show_random_key(executor, connection);
                Ok(())
            }
            _ => return None,
        })
    }

    /// `RANDOMKEY` in memory.
    fn show_random_key(&mut self, executor: &Executor, connection: &mut Connection) {
        let version = version_of(connection);
        let random = self.random();
        let own_keys = connection.own_keys().cloned();
        let (fleet, own_keys) = (self.fleet.as_deref(), own_keys.as_deref());
        let shown = |key: &[u8], cas| {
            shown_to(own_keys, key).is_some() && fleet.is_none_or(|fleet| fleet.shows(key, cas))
        };
        let key = executor.random_key(random, shown);
        let out = connection.output.buffer();
        match key.as_deref().and_then(|key| shown_to(own_keys, key)) {
            Some(key) => words::bulk(out, key),
            None => words::null(out, version),
        }
    }

    /// `FLUSHDB`, `FLUSHALL` and `FLUSHPREFIX`, which take the same time whatever there is to flush.
    fn flush(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        operation: Operation<'_>,
    ) -> Result<(), Error> {
        let Connection { output, progress, .. } = connection;
        let mut error = None;
        executor.execute(progress, &operation, |outcome| {
            error = match outcome {
                Outcome::Refused(Refusal::BadPrefix) => Some(errors::BAD_PREFIX),
                Outcome::Refused(Refusal::TooManyPrefixes) => Some(errors::TOO_MANY_PREFIXES),
                Outcome::Refused(_) => Some(errors::FLUSH_DISABLED),
                _ => None,
            };
            b""
        });
        if let Some(error) = error {
            return Err(error);
        }
        words::simple(output.buffer(), "OK");
        Ok(())
    }

    /// `SCAN`. An item that is there throughout is found, wherever it moves: see [`larder_cache::Tour`].
    fn scan(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        mut args: Args<'_>,
    ) -> Result<(), Error> {
        let cursor = cursor(args.next().unwrap_or_default()).ok_or(errors::INVALID_CURSOR)?;
        if !self.server.in_effect().dump_enabled {
            return Err(errors::KEYS_DISABLED);
        }
        let (mut pattern, mut count, mut type_name) = (None, SCAN_COUNT, None);
        while let Some(option) = args.next() {
            let value = args.next();
            match (&option.to_ascii_lowercase()[..], value) {
                (b"match", Some(value)) => {
                    pattern = Some(Pattern::read(value).ok_or(errors::PATTERN_TOO_LONG)?)
                }
                (b"count", Some(value)) => {
                    count = decimal(value).ok_or(errors::NOT_INTEGER)?;
                    if count < 1 {
                        return Err(errors::SYNTAX);
                    }
                }
                (b"type", Some(value)) => {
                    let found = TYPES.into_iter().find(|name| name.as_bytes().eq_ignore_ascii_case(value));
                    let unknown = || errors::about("ERR unknown type name '", value, "'");
                    type_name = Some(found.ok_or_else(unknown)?);
                }
                (b"novalues", _) => return Err(errors::NO_VALUES),
                (b"noscores", _) => return Err(errors::NO_SCORES),
                _ => return Err(errors::SYNTAX),
            }
        }
        let least = usize::try_from(count).unwrap_or(usize::MAX);
        let wanted = WantedKeys::Scanned { pattern, type_name, least };
        self.begin_collecting(executor, connection, executor.tour_at(cursor), wanted)
    }

    /// Begins to collect keys for one reply. In a transaction, all are collected at once.
    fn collect_keys(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        id: Id,
        mut args: Args<'_>,
    ) -> Result<(), Error> {
        let word = args.next().unwrap_or_default();
        let wanted = match id {
            Id::Keys => WantedKeys::Matching(Pattern::read(word).ok_or(errors::PATTERN_TOO_LONG)?),
            _ if self.fleet.is_none() => return Err(errors::CLUSTER_DISABLED),
            Id::ClusterCountkeysinslot => WantedKeys::CountedOfSlot(slot(word)?),
            _ => {
                let slot = slot(word)?;
                let most = decimal(args.next().unwrap_or_default()).ok_or(errors::NOT_INTEGER)?;
                let most = usize::try_from(most).map_err(|_| errors::KEY_COUNT)?;
                WantedKeys::OfSlot { slot, most }
            }
        };
        if !self.server.in_effect().dump_enabled {
            return Err(errors::KEYS_DISABLED);
        }
        self.begin_collecting(executor, connection, executor.tour_at(0), wanted)
    }

    fn begin_collecting(
        &mut self,
        executor: &Executor,
        connection: &mut Connection,
        tour: Tour,
        wanted: WantedKeys,
    ) -> Result<(), Error> {
        let mut charge = Charge::default();
        if let WantedKeys::Matching(pattern) = &wanted
            && let Some(buffers) = self.server.buffers()
            && !charge.try_grow(buffers, pattern.bytes() as u64)
        {
            return Err(errors::NO_MEMORY);
        }
        let collecting = Collecting {
            tour,
            wanted,
            composed: Vec::new(),
            count: 0,
            met: HashSet::new(),
            steps: 0,
            charge,
            error: None,
        };
        let Some(session) = &mut connection.session else { return Ok(()) };
        session.unfinished.collecting = Some(Box::new(collecting));
        connection.progress.busy = Some(Busy::Answering);
        let in_transaction = session.transaction.is_some();
        // A step of `SCAN` is mostly one piece.
        self.continue_collecting(executor, connection);
        let ends = self.scripts.time.map(|time| (processor_time() + time, Instant::now() + LONGEST * time));
        while in_transaction && matches!(connection.progress.busy, Some(Busy::Answering)) {
            if ends.is_some_and(|(processor, at)| processor_time() > processor || Instant::now() > at) {
                connection.progress.busy = None;
                if let Some(session) = &mut connection.session {
                    session.unfinished.collecting = None;
                }
                return Err(errors::LISTING_IN_SCRIPT);
            }
            self.continue_collecting(executor, connection);
        }
        Ok(())
    }

    /// Collects the next keys, and answers after the last one.
    pub(super) fn continue_collecting(&mut self, executor: &Executor, connection: &mut Connection) {
        let own_keys = connection.own_keys().cloned();
        let Connection { output, progress, session: Some(session), .. } = connection else { return };
        progress.busy = None;
        let Some(mut collecting) = session.unfinished.collecting.take() else { return };
        let Collecting { tour, wanted, composed, count, met, steps, charge, error } = &mut *collecting;
        let before = (composed.capacity(), met.capacity());
        let fleet = self.fleet.as_deref();
        let at_once = if let WantedKeys::Scanned { least, .. } = wanted { *least } else { KEYS_AT_ONCE };
        let is_named_once = executor.has_flash() && !matches!(wanted, WantedKeys::Scanned { .. });
        let is_alone = session.transaction.is_some();
        let toured = executor.find_keys(tour, at_once, is_alone, &mut |key, met_item| {
            let Some(key) = shown_to(own_keys.as_deref(), key) else { return false };
            if wanted.includes(key, met_item.kind, *count)
                && fleet.is_none_or(|fleet| fleet.shows(key, met_item.cas))
                && (!is_named_once || met.insert(met_item.hash))
            {
                *count += 1;
                match wanted {
                    WantedKeys::CountedOfSlot(_) => {}
                    // Each of those that are shown together is as likely as another.
                    WantedKeys::Any(random) if random.rotate_left(*count as u32) % *count as u64 != 0 => {}
                    WantedKeys::Any(_) => {
                        composed.clear();
                        words::bulk(composed, key);
                    }
                    _ => words::bulk(composed, key),
                }
            }
            true
        });
        *steps += u32::from(toured != Toured::Waits);
        // The keys are copied once more when they are answered.
        let grown = 2 * (composed.capacity() - before.0) + 16 * (met.capacity() - before.1);
        let grown = grown as u64;
        let goes_on = match wanted {
            WantedKeys::Scanned { .. } => toured == Toured::Waits,
            WantedKeys::Any(_) if *steps >= RANDOM_STEPS_MAX => false,
            _ => toured != Toured::End && !wanted.has_enough(*count),
        };
        if let Some(buffers) = self.server.buffers()
            && grown > 0
            && !charge.try_grow(buffers, grown)
        {
            *error = Some(errors::TOO_MANY_KEYS);
        }
        if matches!(wanted, WantedKeys::Any(_)) && *count == 0 && error.is_none() && !goes_on {
            return self.show_random_key(executor, connection);
        }
        match (error, &wanted) {
            (Some(error), _) => say_error(output, error),
            _ if goes_on => {
                session.unfinished.collecting = Some(collecting);
                progress.busy = Some(Busy::Answering);
            }
            (None, WantedKeys::CountedOfSlot(_)) => words::integer(output.buffer(), *count as i64),
            (None, WantedKeys::Any(_)) => output.buffer().extend_from_slice(composed),
            (None, wanted) => {
                if matches!(wanted, WantedKeys::Scanned { .. }) {
                    words::array_head(output.buffer(), 2);
                    words::bulk(output.buffer(), executor.cursor_of(tour).to_string().as_bytes());
                }
                words::array_head(output.buffer(), *count);
                output.buffer().extend_from_slice(composed);
            }
        }
    }
}

/// A number as C's `strtoull` reads it, but not a negative one.
pub(super) fn cursor(text: &[u8]) -> Option<u64> {
    let text =
        std::str::from_utf8(text).ok()?.trim_start_matches(|letter: char| letter.is_ascii_whitespace());
    text.parse().ok()
}

/// `[ASYNC|SYNC]`, which makes no difference.
pub(super) fn flush_option(mut words: Args<'_>) -> Result<(), Error> {
    match (words.next().map(<[u8]>::to_ascii_lowercase).as_deref(), words.len()) {
        (None | Some(b"async" | b"sync"), 0) => Ok(()),
        _ => Err(errors::SYNTAX),
    }
}

/// The number of a slot.
fn slot(text: &[u8]) -> Result<u16, Error> {
    let number = decimal(text).and_then(|number| u16::try_from(number).ok());
    number.filter(|number| *number < SLOTS).ok_or(errors::INVALID_SLOT)
}
