//! Commands on the server as a whole, and those that walk over all keys.

use super::resp::after;
use super::{Dispatcher, Progressed};
use crate::dispatch::connection::Connection;
use crate::dispatch::operation::Operation;
use crate::dispatch::outcome::{Outcome, Refusal};
use crate::dispatch::own_keys::shown_to;
use crate::dispatch::progress::{Busy, Collecting, WantedKeys};
use crate::dispatch::resp::config::Server;
use crate::dispatch::resp::errors::{self, Error};
use crate::dispatch::resp::glob::Pattern;
use crate::dispatch::resp::{self, catalogue, config, info};
use crate::io::Charge;
use larder_protocol::resp::{Args, Command, Id, SLOTS, compose as words, decimal, lookup, slot_of};
use std::time::{SystemTime, UNIX_EPOCH};

/// How many keys a `SCAN` asks for that does not say.
const SCAN_COUNT: i64 = 10;
/// How many slow commands a `SLOWLOG GET` shows that does not say.
const SLOW_SHOWN: i64 = 10;
/// So many keys, and the rest of a bucket, are collected for one reply before other connections have their turn.
const KEYS_AT_ONCE: usize = 256;
/// The types that Redis has.
const TYPES: [&[u8]; 6] = [b"string", b"list", b"set", b"zset", b"hash", b"stream"];

impl Dispatcher {
    /// Executes a request that is not about one item.
    pub(super) fn run_on_server(
        &mut self,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
    ) -> Progressed {
        if let Some(session) = &mut connection.session {
            self.note_client(session, command.id);
        }
        let rest = Dispatcher::words_behind(command, args);
        match command.id {
            Id::Auth => return self.authenticate(connection, args),
            Id::Hello => return self.greet(connection, args),
            Id::Watch => return self.watch(connection, command, args),
            Id::Exec => return self.execute_transaction(connection),
            Id::Multi => self.begin_transaction(connection),
            Id::Discard => self.discard_transaction(connection),
            Id::Unwatch => self.unwatch(connection),
            Id::Quit => {
                resp::say(&mut connection.output, "OK");
                connection.output.close();
            }
            Id::Reset => {
                self.reset_session(connection);
                resp::say(&mut connection.output, "RESET");
            }
            _ if Dispatcher::is_below(args, Id::Client) => self.run_on_client(connection, command, rest),
            _ => {
                let before = connection.output.len();
                if let Err(error) = self.answer_about_server(connection, command, rest) {
                    connection.output.truncate(before);
                    resp::say_error(&mut connection.output, &error);
                }
            }
        }
        Progressed::Request
    }

    /// Whether a request begins with the name of this command.
    fn is_below(args: Args<'_>, id: Id) -> bool {
        args.clone().next().and_then(lookup).is_some_and(|above| above.id == id)
    }

    /// Answers a request about the server. `args` = what follows the command and its subcommand.
    fn answer_about_server(
        &mut self,
        connection: &mut Connection,
        command: &'static Command,
        mut args: Args<'_>,
    ) -> Result<(), Error> {
        let version = Dispatcher::version_of_session(connection);
        let first = args.clone().next();
        let word = first.unwrap_or_default();
        match command.id {
            Id::Keys | Id::ClusterCountkeysinslot | Id::ClusterGetkeysinslot => {
                return self.collect_keys(connection, command.id, args);
            }
            Id::Scan => return self.scan(connection, args),
            Id::Flushdb | Id::Flushall => {
                flush_option(args)?;
                return self.flush(connection, Operation::Flush { due_s: None });
            }
            Id::Flushprefix => {
                let own_prefix = connection.own_keys().map_or(&[][..], |own| own.prefix());
                let prefix = [own_prefix, word].concat();
                return self.flush(connection, Operation::FlushPrefix { prefix: &prefix });
            }
            Id::Shutdown => return self.shut_down(connection, args),
            _ if command.group == "cluster" => return self.answer_about_fleet(connection, command.id, word),
            _ => {}
        }
        let own_keys = connection.own_keys().cloned();
        let out = connection.output.buffer();
        match command.id {
            Id::Ping if args.len() > 1 => return Err(errors::wrong_arity(command)),
            Id::Ping if first.is_none() => words::simple(out, "PONG"),
            Id::Ping | Id::Echo => words::bulk(out, word),
            Id::Select => match resp::database(word)? {
                0 => words::simple(out, "OK"),
                _ => return Err(errors::DB_INDEX),
            },
            Id::Swapdb => {
                let wrong = |which| errors::made(format!("ERR invalid {which} DB index"));
                args.next();
                let second = args.next().unwrap_or_default();
                let first = resp::database(word).map_err(|_| wrong("first"))?;
                match (first, resp::database(second).map_err(|_| wrong("second"))?) {
                    (0, 0) => words::simple(out, "OK"),
                    _ => return Err(errors::DB_INDEX),
                }
            }
            Id::Move => match resp::database(after(args, 1).next().unwrap_or_default())? {
                0 => return Err(errors::SAME_OBJECTS),
                _ => return Err(errors::DB_INDEX),
            },
            Id::Time => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                words::array_head(out, 2);
                words::bulk(out, since.as_secs().to_string().as_bytes());
                words::bulk(out, since.subsec_micros().to_string().as_bytes());
            }
            Id::Dbsize => {
                let count = match &own_keys {
                    None => self.executor.count_items(),
                    Some(own) => self.executor.count_items_of(own.prefix()),
                };
                words::integer(out, count as i64);
            }
            Id::Randomkey => {
                let random = self.resp.random();
                let fleet = self.resp.fleet.as_deref();
                let own_keys = own_keys.as_deref();
                let shown = |key: &[u8], cas| {
                    shown_to(own_keys, key).is_some() && fleet.is_none_or(|fleet| fleet.shows(key, cas))
                };
                let key = self.executor.random_key(random, shown);
                match key.as_deref().and_then(|key| shown_to(own_keys, key)) {
                    Some(key) => words::bulk(out, key),
                    None => words::null(out, version),
                }
            }
            Id::Info => {
                let text = info::text(&self.server(), || self.executor.describe_items(), args);
                words::verbatim(out, version, text.as_bytes());
            }
            Id::ConfigGet => {
                let found = config::get(&self.server(), args);
                words::map_head(out, version, found.len());
                for (name, value) in found {
                    words::bulk(out, name.as_bytes());
                    words::bulk(out, value.as_bytes());
                }
            }
            Id::ConfigSet => {
                config::set(&self.server(), args).map_err(errors::made)?;
                words::simple(out, "OK");
            }
            Id::ConfigResetstat => {
                self.executor.execute(&mut connection.progress, &Operation::ResetStats, |_| b"");
                self.resp.state.reset();
                words::simple(connection.output.buffer(), "OK");
            }
            Id::ConfigRewrite => return Err(errors::NO_REWRITE),
            Id::Role => {
                words::array_head(out, 3);
                words::bulk(out, b"master");
                words::integer(out, 0);
                words::array_head(out, 0);
            }
            Id::Lastsave => words::integer(out, self.executor.clock().process_started_unix_s()),
            Id::Wait => {
                args.next();
                decimal(word).ok_or(errors::NOT_INTEGER)?;
                match decimal(args.next().unwrap_or_default()) {
                    None => return Err(errors::TIMEOUT),
                    Some(..0) => return Err(errors::NEGATIVE_TIMEOUT),
                    Some(_) => words::integer(out, 0),
                }
            }
            Id::AclWhoami => {
                let user = connection.session.as_ref().map(|session| session.client.told().user.clone());
                words::bulk(out, &user.unwrap_or_default());
            }
            Id::Lolwut => {
                let text = format!("{SHELF}Larder ver. {}\n", env!("CARGO_PKG_VERSION"));
                words::verbatim(out, version, text.as_bytes());
            }
            Id::Command
            | Id::CommandCount
            | Id::CommandDocs
            | Id::CommandGetkeys
            | Id::CommandGetkeysandflags
            | Id::CommandInfo
            | Id::CommandList => return catalogue::compose(out, version, command.id, args),
            Id::MemoryPurge => words::simple(out, "OK"),
            Id::FunctionFlush | Id::ScriptFlush => {
                flush_option(args)?;
                words::simple(out, "OK");
            }
            Id::FunctionList => words::array_head(out, 0),
            Id::ScriptExists => {
                words::array_head(out, args.len());
                args.for_each(|_| words::integer(out, 0));
            }
            Id::ScriptLoad => return Err(errors::no_scripts()),
            Id::MemoryDoctor => words::verbatim(out, version, MEMORY_ADVICE.as_bytes()),
            Id::MemoryMallocStats => words::verbatim(out, version, NO_ALLOCATOR.as_bytes()),
            Id::MemoryStats => {
                let items = self.executor.describe_items();
                info::compose_memory_stats(&self.server(), items.items, out, version);
            }
            Id::LatencyLatest | Id::LatencyHistory => words::array_head(out, 0),
            Id::LatencyHistogram => words::map_head(out, version, 0),
            Id::LatencyReset => words::integer(out, 0),
            Id::LatencyDoctor => words::verbatim(out, version, LATENCY_ADVICE.as_bytes()),
            Id::LatencyGraph => {
                return Err(errors::about("ERR No samples available for event '", word, "'"));
            }
            Id::SlowlogGet if args.len() > 1 => return Err(errors::wrong_subcommand("SLOWLOG", "GET")),
            Id::SlowlogGet => self.show_slow(connection, first)?,
            Id::SlowlogLen => words::integer(out, self.resp.state.slow_count() as i64),
            Id::SlowlogReset => {
                self.resp.state.forget_slow();
                words::simple(out, "OK");
            }
            _ => resp::help::compose(out, command),
        }
        Ok(())
    }

    fn server(&self) -> Server<'_> {
        Server { state: &self.state, resp: &self.resp.state, cache: self.executor.cache() }
    }

    /// `FLUSHDB`, `FLUSHALL` and `FLUSHPREFIX`, which take the same time whatever there is to flush.
    fn flush(&mut self, connection: &mut Connection, operation: Operation<'_>) -> Result<(), Error> {
        let own_keys = connection.own_keys().cloned();
        let operation = match &own_keys {
            None => operation,
            Some(own) => operation.within(own.prefix()).ok_or(errors::SYNTAX)?,
        };
        let Connection { output, progress, .. } = connection;
        let mut error = None;
        self.executor.execute(progress, &operation, |outcome| {
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

    /// `SHUTDOWN`. Nobody is answered: the connection is closed.
    fn shut_down(&mut self, connection: &mut Connection, args: Args<'_>) -> Result<(), Error> {
        let (mut saves, mut saves_not, mut aborts) = (false, false, false);
        let count = args.len();
        for word in args {
            match &word.to_ascii_lowercase()[..] {
                b"save" => saves = true,
                b"nosave" => saves_not = true,
                b"now" | b"force" | b"safe" => {}
                b"abort" => aborts = true,
                _ => return Err(errors::SYNTAX),
            }
        }
        match (saves && saves_not || aborts && count > 1, aborts) {
            (true, _) => return Err(errors::SYNTAX),
            (false, true) => return Err(errors::NO_SHUTDOWN),
            (false, false) => {}
        }
        let mut is_refused = false;
        let operation = Operation::Shutdown { graceful: Some(true) };
        self.executor.execute(&mut connection.progress, &operation, |outcome| {
            is_refused = matches!(outcome, Outcome::Refused(_));
            b""
        });
        if is_refused {
            return Err(errors::SHUTDOWN_DISABLED);
        }
        connection.output.close();
        Ok(())
    }

    /// `SLOWLOG GET`.
    fn show_slow(&self, connection: &mut Connection, count: Option<&[u8]>) -> Result<(), Error> {
        let most = match count.map_or(Some(SLOW_SHOWN), decimal) {
            Some(-1) => usize::MAX,
            Some(count @ 0..) => count as usize,
            _ => return Err(errors::SLOW_COUNT),
        };
        let out = connection.output.buffer();
        let commands = self.resp.state.slow_commands(most);
        words::array_head(out, commands.len());
        for command in commands {
            words::array_head(out, 6);
            words::integer(out, command.id as i64);
            words::integer(out, command.unix_s as i64);
            words::integer(out, command.us as i64);
            words::array_head(out, command.args.len());
            command.args.iter().for_each(|argument| words::bulk(out, argument));
            words::bulk(out, command.address.as_bytes());
            words::bulk(out, &command.name);
        }
        Ok(())
    }

    // ---- keys ----

    /// `SCAN`. The cursor is a bucket of the index. An item that is there throughout is found, also if its bucket is
    /// split meanwhile.
    fn scan(&mut self, connection: &mut Connection, mut args: Args<'_>) -> Result<(), Error> {
        let cursor = cursor(args.next().unwrap_or_default()).ok_or(errors::INVALID_CURSOR)?;
        if !self.state.in_effect().dump_enabled {
            return Err(errors::KEYS_DISABLED);
        }
        let (mut pattern, mut count, mut is_empty_type) = (None, SCAN_COUNT, false);
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
                    let found = TYPES.iter().find(|name| name.eq_ignore_ascii_case(value));
                    let unknown = || errors::about("ERR unknown type name '", value, "'");
                    is_empty_type = *found.ok_or_else(unknown)? != b"string";
                }
                (b"novalues", _) => return Err(errors::NO_VALUES),
                (b"noscores", _) => return Err(errors::NO_SCORES),
                _ => return Err(errors::SYNTAX),
            }
        }
        let (mut found, mut keys) = (0, Vec::new());
        let least = usize::try_from(count).unwrap_or(usize::MAX);
        let fleet = self.resp.fleet.as_deref();
        let own_keys = connection.own_keys().map(|own| &**own);
        let next = self.executor.find_keys(cursor, least, &mut |key, cas| {
            let Some(key) = shown_to(own_keys, key) else { return };
            let is_shown = !is_empty_type && fleet.is_none_or(|fleet| fleet.shows(key, cas));
            if is_shown && pattern.as_ref().is_none_or(|pattern| pattern.matches(key)) {
                words::bulk(&mut keys, key);
                found += 1;
            }
        });
        let out = connection.output.buffer();
        words::array_head(out, 2);
        words::bulk(out, next.unwrap_or(0).to_string().as_bytes());
        words::array_head(out, found);
        out.extend_from_slice(&keys);
        Ok(())
    }

    /// Begins to collect keys for one reply. In a transaction, all are collected at once.
    fn collect_keys(&mut self, connection: &mut Connection, id: Id, mut args: Args<'_>) -> Result<(), Error> {
        let word = args.next().unwrap_or_default();
        let wanted = match id {
            Id::Keys => WantedKeys::Matching(Pattern::read(word).ok_or(errors::PATTERN_TOO_LONG)?),
            _ if self.resp.fleet.is_none() => return Err(errors::CLUSTER_DISABLED),
            Id::ClusterCountkeysinslot => WantedKeys::CountedOfSlot(slot(word)?),
            _ => {
                let slot = slot(word)?;
                let most = decimal(args.next().unwrap_or_default()).ok_or(errors::NOT_INTEGER)?;
                let most = usize::try_from(most).map_err(|_| errors::KEY_COUNT)?;
                WantedKeys::OfSlot { slot, most }
            }
        };
        if !self.state.in_effect().dump_enabled {
            return Err(errors::KEYS_DISABLED);
        }
        let mut charge = Charge::default();
        if let WantedKeys::Matching(pattern) = &wanted
            && let Some(buffers) = self.state.buffers()
            && !charge.try_grow(buffers, pattern.bytes() as u64)
        {
            return Err(errors::NO_MEMORY);
        }
        let collecting =
            Collecting { bucket: 0, wanted, composed: Vec::new(), count: 0, charge, error: None };
        connection.progress.busy = Some(Busy::Collecting(Box::new(collecting)));
        let in_transaction = connection.session.as_ref().is_some_and(|session| session.transaction.is_some());
        while in_transaction && matches!(connection.progress.busy, Some(Busy::Collecting(_))) {
            self.continue_collecting(connection);
        }
        Ok(())
    }

    /// Collects keys of the next buckets, and answers after the last one.
    pub(super) fn continue_collecting(&mut self, connection: &mut Connection) {
        let own_keys = connection.own_keys().cloned();
        let Connection { output, progress, .. } = connection;
        let mut collecting = match progress.busy.take() {
            Some(Busy::Collecting(collecting)) => collecting,
            busy => {
                progress.busy = busy;
                return;
            }
        };
        let Collecting { bucket, wanted, composed, count, charge, error } = &mut *collecting;
        let before = composed.capacity();
        let fleet = self.resp.fleet.as_deref();
        let next = self.executor.find_keys(*bucket, KEYS_AT_ONCE, &mut |key, cas| {
            let Some(key) = shown_to(own_keys.as_deref(), key) else { return };
            if wanted.includes(key, *count) && fleet.is_none_or(|fleet| fleet.shows(key, cas)) {
                *count += 1;
                if !matches!(wanted, WantedKeys::CountedOfSlot(_)) {
                    words::bulk(composed, key);
                }
            }
        });
        // The keys are copied once more when they are answered.
        let grown = 2 * (composed.capacity() - before) as u64;
        if let Some(buffers) = self.state.buffers()
            && grown > 0
            && !charge.try_grow(buffers, grown)
        {
            *error = Some(errors::TOO_MANY_KEYS);
        }
        match (error, next) {
            (Some(error), _) => resp::say_error(output, error),
            (None, Some(next)) if !wanted.has_enough(*count) => {
                *bucket = next;
                progress.busy = Some(Busy::Collecting(collecting));
            }
            (None, _) if matches!(wanted, WantedKeys::CountedOfSlot(_)) => {
                words::integer(output.buffer(), *count as i64);
            }
            (None, _) => {
                words::array_head(output.buffer(), *count);
                output.buffer().extend_from_slice(composed);
            }
        }
    }

    // ---- the fleet ----

    /// `CLUSTER` and what belongs to it.
    fn answer_about_fleet(&self, connection: &mut Connection, id: Id, word: &[u8]) -> Result<(), Error> {
        let version = Dispatcher::version_of_session(connection);
        let out = connection.output.buffer();
        let fleet = match (&self.resp.fleet, id) {
            (_, Id::Readonly | Id::Readwrite) => {
                words::simple(out, "OK");
                return Ok(());
            }
            (None, _) => return Err(errors::CLUSTER_DISABLED),
            (Some(fleet), _) => fleet,
        };
        match id {
            Id::Asking => words::simple(out, "OK"),
            Id::ClusterSlots => fleet.compose_slots(out, version),
            Id::ClusterShards => fleet.compose_shards(out, version),
            Id::ClusterNodes => words::verbatim(out, version, fleet.nodes_text().as_bytes()),
            Id::ClusterInfo => words::verbatim(out, version, fleet.info_text().as_bytes()),
            Id::ClusterMyid | Id::ClusterMyshardid => words::bulk(out, fleet.own_id().as_bytes()),
            Id::ClusterKeyslot => words::integer(out, slot_of(word).into()),
            Id::ClusterLinks => words::array_head(out, 0),
            Id::ClusterReplicas => match fleet.has_node(word) {
                true => words::array_head(out, 0),
                false => return Err(errors::about("ERR Unknown node ", word, "")),
            },
            _ => {
                let above = lookup(b"cluster").ok_or(errors::SYNTAX)?;
                resp::help::compose(out, above);
            }
        }
        Ok(())
    }
}

impl WantedKeys {
    /// Whether a key is one of these, if `count` were found before it.
    fn includes(&self, key: &[u8], count: usize) -> bool {
        match self {
            WantedKeys::Matching(pattern) => pattern.matches(key),
            WantedKeys::OfSlot { slot, most } => count < *most && slot_of(key) == *slot,
            WantedKeys::CountedOfSlot(slot) => slot_of(key) == *slot,
        }
    }

    fn has_enough(&self, count: usize) -> bool {
        matches!(self, WantedKeys::OfSlot { most, .. } if count >= *most)
    }
}

/// A number as C's `strtoull` reads it, but not a negative one.
fn cursor(text: &[u8]) -> Option<u64> {
    let text =
        std::str::from_utf8(text).ok()?.trim_start_matches(|letter: char| letter.is_ascii_whitespace());
    text.parse().ok()
}

/// `[ASYNC|SYNC]`, which makes no difference.
fn flush_option(mut words: Args<'_>) -> Result<(), Error> {
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

const SHELF: &str = "\
 ____  ____  ____  ____\n\
|    ||    ||    ||    |\n\
| () || [] || () || /\\ |\n\
|____||____||____||____|\n";
const MEMORY_ADVICE: &str = "The columns of items take what -m allows and no more. See INFO memory, and stats items \
                             over memcached's protocol.\n";
const NO_ALLOCATOR: &str = "Items lie in columns that were reserved at the start, and not in the memory of an \
                            allocator.\n";
const LATENCY_ADVICE: &str = "No events are recorded. The admin page (--admin) has histograms of how long requests \
                              take.\n";
