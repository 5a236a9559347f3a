//! Commands on the server as a whole.

use super::compose::{say, say_error};
use super::errors::{self, Error};
use super::keys_commands::flush_option;
use super::request::{is_below, words_behind};
use super::session::{Connection, version_of};
use super::worker::Resp;
use super::{catalogue, config, help, info};
use crate::dispatch::execute::Executor;
use crate::dispatch::operation::Operation;
use crate::dispatch::outcome::Outcome;
use crate::dispatch::window::Progressed;
use larder_protocol::resp::{Args, Command, Id, Version, compose as words, decimal, lookup, slot_of};
use std::time::{SystemTime, UNIX_EPOCH};

/// How many slow commands a `SLOWLOG GET` shows that does not say.
const SLOW_SHOWN: i64 = 10;

impl Resp {
    /// Executes a request that is not about one item.
    #[inline(never)]
    pub(super) fn run_on_server(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
    ) -> Progressed {
        if let Some(session) = &mut connection.session {
            self.note_client(session, command.id);
        }
        let rest = words_behind(command, args);
        match command.id {
            Id::Auth => return self.authenticate(executor, connection, args),
            Id::Hello => return self.greet(executor, connection, args),
            Id::Watch => return self.watch(executor, connection, command, args),
            Id::Multi => self.begin_transaction(connection),
            Id::Discard => self.discard_transaction(connection),
            Id::Unwatch => self.unwatch(connection),
            Id::Quit => {
                say(&mut connection.output, "OK");
                connection.output.close();
            }
            Id::Reset => {
                self.reset_session(executor, connection);
                say(&mut connection.output, "RESET");
            }
            Id::ClientTracking => self.track(executor, connection, rest),
            _ if is_below(args, Id::Client) => self.run_on_client(connection, command, rest),
            _ if command.category == "pubsub" || is_below(args, Id::Pubsub) => {
                self.run_on_channels(connection, command, rest);
            }
            Id::Ping if connection.session.as_ref().is_some_and(|session| session.is_confined()) => {
                let out = connection.output.buffer();
                words::array_head(out, 2);
                words::bulk(out, b"pong");
                words::bulk(out, rest.clone().next().unwrap_or_default());
            }
            _ => {
                let before = connection.output.len();
                if let Err(error) = self.answer_about_server(executor, connection, command, rest) {
                    connection.output.truncate(before);
                    say_error(&mut connection.output, &error);
                }
            }
        }
        Progressed::Request
    }

    /// Answers a request about the server. `args` = what follows the command and its subcommand.
    fn answer_about_server(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
    ) -> Result<(), Error> {
        if let Some(answered) = self.answer_about_keys(executor, connection, command.id, args) {
            return answered;
        }
        let version = version_of(connection);
        let first = args.clone().next();
        let word = first.unwrap_or_default();
        match command.id {
            Id::ScriptExists | Id::ScriptFlush | Id::ScriptLoad | Id::ScriptShow => {
                return self.answer_about_scripts(connection.output.buffer(), command.id, args);
            }
            Id::Shutdown => return self.shut_down(executor, connection, args),
            Id::Select => return self.select(connection, word),
            Id::SlowlogGet if args.len() > 1 => return Err(errors::wrong_subcommand("SLOWLOG", "GET")),
            Id::SlowlogGet => return self.show_slow(connection, first),
            Id::ConfigResetstat => {
                executor.execute(&mut connection.progress, &Operation::ResetStats, |_| b"");
                self.shared.reset();
                words::simple(connection.output.buffer(), "OK");
                return Ok(());
            }
            _ if command.group == "cluster" => return self.answer_about_fleet(connection, command.id, word),
            _ => {}
        }
        let user = connection.session.as_ref().filter(|_| command.id == Id::AclWhoami);
        let user = user.map(|session| session.client.told().user.clone());
        let out = connection.output.buffer();
        match command.id {
            Id::AclWhoami => words::bulk(out, &user.unwrap_or_default()),
            Id::Info => {
                let text = info::text(&self.server(executor), || executor.describe_items(), args);
                words::verbatim(out, version, text.as_bytes());
            }
            Id::ConfigGet => {
                let found = config::get(&self.server(executor), args);
                words::map_head(out, version, found.len());
                for (name, value) in found {
                    words::bulk(out, name.as_bytes());
                    words::bulk(out, value.as_bytes());
                }
            }
            Id::ConfigSet => {
                config::set(&self.server(executor), args).map_err(errors::made)?;
                words::simple(out, "OK");
            }
            Id::ConfigRewrite => return Err(errors::NO_REWRITE),
            Id::Lastsave => words::integer(out, executor.clock().process_started_unix_s()),
            Id::Command
            | Id::CommandCount
            | Id::CommandDocs
            | Id::CommandGetkeys
            | Id::CommandGetkeysandflags
            | Id::CommandInfo
            | Id::CommandList => return catalogue::compose(out, version, command.id, args),
            Id::MemoryStats => {
                let items = executor.describe_items().iter().map(|count| count.items).sum();
                info::compose_memory_stats(&self.server(executor), items, out, version);
            }
            Id::SlowlogLen => words::integer(out, self.shared.slow_count() as i64),
            Id::SlowlogReset => {
                self.shared.forget_slow();
                words::simple(out, "OK");
            }
            _ => return answer_alone(out, version, command, args),
        }
        Ok(())
    }

    /// `SHUTDOWN`. Nobody is answered: the connection is closed.
    fn shut_down(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        args: Args<'_>,
    ) -> Result<(), Error> {
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
        executor.execute(&mut connection.progress, &operation, |outcome| {
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
        let commands = self.shared.slow_commands(most);
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

    // ---- the fleet ----

    /// `CLUSTER` and what belongs to it.
    fn answer_about_fleet(&self, connection: &mut Connection, id: Id, word: &[u8]) -> Result<(), Error> {
        let version = version_of(connection);
        let out = connection.output.buffer();
        let fleet = match (&self.fleet, id) {
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
                help::compose(out, above);
            }
        }
        Ok(())
    }
}

/// Answers a request whose reply depends on the request alone, or on what this server does not have: replicas,
/// functions.
fn answer_alone(
    out: &mut Vec<u8>,
    version: Version,
    command: &'static Command,
    mut args: Args<'_>,
) -> Result<(), Error> {
    let first = args.clone().next();
    let word = first.unwrap_or_default();
    match command.id {
        Id::Ping if args.len() > 1 => return Err(errors::wrong_arity(command)),
        Id::Ping if first.is_none() => words::simple(out, "PONG"),
        Id::Ping | Id::Echo => words::bulk(out, word),
        Id::Time => {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            words::array_head(out, 2);
            words::bulk(out, since.as_secs().to_string().as_bytes());
            words::bulk(out, since.subsec_micros().to_string().as_bytes());
        }
        Id::Role => {
            words::array_head(out, 3);
            words::bulk(out, b"master");
            words::integer(out, 0);
            words::array_head(out, 0);
        }
        Id::Wait => {
            args.next();
            decimal(word).ok_or(errors::NOT_INTEGER)?;
            match decimal(args.next().unwrap_or_default()) {
                None => return Err(errors::TIMEOUT),
                Some(..0) => return Err(errors::NEGATIVE_TIMEOUT),
                Some(_) => words::integer(out, 0),
            }
        }
        Id::Lolwut => {
            let text = format!("{SHELF}Larder ver. {}\n", env!("CARGO_PKG_VERSION"));
            words::verbatim(out, version, text.as_bytes());
        }
        Id::MemoryPurge => words::simple(out, "OK"),
        Id::FunctionFlush => {
            flush_option(args)?;
            words::simple(out, "OK");
        }
        Id::ScriptKill => return Err(errors::NO_SCRIPT_RUNS),
        Id::ScriptDebug if word.eq_ignore_ascii_case(b"no") => words::simple(out, "OK"),
        Id::ScriptDebug => return Err(errors::NO_DEBUGGING),
        Id::MemoryDoctor => words::verbatim(out, version, MEMORY_ADVICE.as_bytes()),
        Id::MemoryMallocStats => words::verbatim(out, version, NO_ALLOCATOR.as_bytes()),
        Id::FunctionList | Id::LatencyLatest | Id::LatencyHistory => words::array_head(out, 0),
        Id::LatencyHistogram => words::map_head(out, version, 0),
        Id::LatencyReset => words::integer(out, 0),
        Id::LatencyDoctor => words::verbatim(out, version, LATENCY_ADVICE.as_bytes()),
        Id::LatencyGraph => return Err(errors::about("ERR No samples available for event '", word, "'")),
        _ => help::compose(out, command),
    }
    Ok(())
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
