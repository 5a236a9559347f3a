//! Commands on several keys.
//!
//! A command that does the same with each of its keys does one after the other. If a key has to be waited for, the keys
//! before it are done, and the command goes on from there: `keys_done` says how many keys, `sum` what they came to.
//! After [`KEYS_AT_ONCE`] keys it gives way to other connections, too, unless it is part of a transaction. So these may
//! see some of the keys changed and others not yet. `MSETNX`, `RENAME`, `COPY` and `MOVE` are
//! executed alone.

use super::compose::{Form, compose_outcome, say, say_error};
use super::errors::{self, Error};
use super::item_requests::{each_operation, item_operation};
use super::moment::Moment;
use super::own_request::item_keys;
use super::request::{after, words_of};
use super::session::Connection;
use super::tracking_commands::note_read;
use super::worker::Resp;
use crate::dispatch::execute::Executor;
use crate::dispatch::fleet::Fleet;
use crate::dispatch::operation::Need;
use crate::dispatch::outcome::{EditOutcome, Looked, Outcome};
use crate::dispatch::progress::Busy;
use crate::dispatch::window::Progressed;
use larder_cache::{Copied, StoreOutcome};
use larder_protocol::resp::{Args, Command, Id, Version, compose as words, flags, slot_of};
use std::borrow::Cow;

/// Keys of one request that are executed in one turn, at most: some tens of microseconds.
const KEYS_AT_ONCE: usize = 256;

impl Resp {
    /// Does the same with each key of a request, and answers with the sum, or with a value for each.
    #[inline(never)]
    pub(super) fn run_on_each_key(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
    ) -> Progressed {
        let has_values = command.id == Id::Mset;
        if has_values && args.len().is_multiple_of(2) {
            say_error(&mut connection.output, &errors::wrong_arity(command));
            return Progressed::Request;
        }
        let reply_bytes_max = self.request_bytes_max();
        let Resp { rooms: [room, _], turn, shared, .. } = self;
        let Connection { output, progress, session, keys_done, .. } = connection;
        let Some(session) = session else { return Progressed::Request };
        let remembers = turn.tracks && command.has(flags::READONLY) && session.remembers_reads();
        if *keys_done == 0 {
            session.many_keys.sum = 0;
        }
        let reply_from = output.len();
        let moment = Moment::new(executor.now_ms(), executor.clock());
        let (version, shows_values) = (session.version, command.id == Id::Mget);
        let in_transaction = session.transaction.is_some();
        if shows_values && *keys_done == 0 {
            // The head of the reply counts as a key.
            words::array_head(output.buffer(), args.len() - 1);
            *keys_done = 1;
        }
        let done = if shows_values { *keys_done - 1 } else { *keys_done };
        let words_done = 1 + if has_values { 2 * done } else { done };
        let mut rest = match session.many_keys.place.take() {
            Some((keys, at)) if keys == *keys_done && done > 0 => {
                Args::new(&args.bytes()[at..], args.len() - words_done)
            }
            _ => after(args, words_done),
        };
        let (keys_max, mut failure) = (*keys_done + KEYS_AT_ONCE, None::<Error>);
        while let Some(key) = rest.next() {
            let value = if has_values { rest.next().unwrap_or_default() } else { &[] };
            let item = room.item_key(key, |key| executor.hash(key));
            if remembers {
                note_read(&shared.told.tracking, executor, session, &item, key);
            }
            let operation = each_operation(command.id, item, value, moment);
            let mut counts = false;
            let is_answered = executor.execute(progress, &operation, |outcome| {
                counts = counts_as_one(&outcome);
                failure = failure_of(&outcome);
                match outcome {
                    Outcome::Looked(Looked::NoMemory | Looked::WrongKind) if shows_values => {
                        words::null(output.buffer(), version);
                        b""
                    }
                    outcome if shows_values => compose_outcome(Form::Value, output, version, outcome),
                    _ => b"",
                }
            });
            if !is_answered {
                return Progressed::Waits;
            }
            if failure.is_some() {
                break;
            }
            session.many_keys.sum += i64::from(counts);
            *keys_done += 1;
            // A transaction does not wait for the client in its middle.
            if in_transaction && shows_values && output.len() > reply_bytes_max {
                output.truncate(reply_from);
                failure = Some(errors::REPLIES_TOO_LARGE);
                break;
            }
            // The client has to take what there is before it gets more.
            let has_to_wait = output.is_full() || progress.busy.is_some();
            if (has_to_wait || *keys_done >= keys_max) && rest.len() > 0 && !in_transaction {
                session.many_keys.place = Some((*keys_done, args.bytes().len() - rest.bytes().len()));
                if !has_to_wait {
                    progress.busy = Some(Busy::Pausing);
                }
                return Progressed::Key;
            }
        }
        match (failure, command.id) {
            (Some(error), _) => say_error(output, &error),
            (None, Id::Mget) => {}
            (None, Id::Mset) => say(output, "OK"),
            (None, _) => words::integer(output.buffer(), session.many_keys.sum),
        }
        Progressed::Request
    }

    /// `MSETNX`: stores all values if none of the keys has one, alone.
    #[inline(never)]
    pub(super) fn set_all_or_none(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
    ) -> Progressed {
        if args.len().is_multiple_of(2) {
            say_error(&mut connection.output, &errors::wrong_arity(command));
            return Progressed::Request;
        }
        if !self.bring_keys(executor, connection, command.keys.of(args)) {
            return Progressed::Waits;
        }
        let Ok(_alone) = self.be_alone(executor, connection) else { return Progressed::Waits };
        // While the worker waited, others may have pushed an item out of memory.
        if !self.bring_keys(executor, connection, command.keys.of(args)) {
            return Progressed::Waits;
        }
        let Resp { rooms: [room, _], .. } = self;
        let Connection { output, progress, .. } = connection;
        let moment = Moment::new(executor.now_ms(), executor.clock());
        let mut is_any_there = false;
        for key in command.keys.of(args) {
            let item = room.item_key(key, |key| executor.hash(key));
            is_any_there |= executor.version_of(&item).is_some();
        }
        let mut failure = None;
        let mut rest = after(args, 1);
        while !is_any_there
            && failure.is_none()
            && let (Some(key), Some(value)) = (rest.next(), rest.next())
        {
            let item = room.item_key(key, |key| executor.hash(key));
            let operation = each_operation(command.id, item, value, moment);
            executor.execute(progress, &operation, |outcome| {
                failure = failure_of(&outcome);
                b""
            });
        }
        match failure {
            Some(error) => say_error(output, &error),
            None => words::integer(output.buffer(), i64::from(!is_any_there)),
        }
        Progressed::Request
    }

    /// `RENAME`, `RENAMENX`, `COPY` and `MOVE`, alone: nobody sees the item under both keys or under none.
    #[inline(never)]
    pub(super) fn copy_item(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
    ) -> Progressed {
        let destination = match self.destination(command, args) {
            Ok(Some(here)) if command.id == Id::Move && here == connection.database() => {
                Err(errors::SAME_OBJECTS)
            }
            destination => destination,
        };
        let mut keys = command.keys.of(args);
        let Some(from) = keys.next() else { return Progressed::Request };
        let to = keys.next().unwrap_or(from);
        let there = destination.and_then(|destination| {
            destination.map(|database| self.key_in(connection, to, database)).transpose()
        });
        let there = match there {
            Ok(there) => there,
            Err(error) => {
                say_error(&mut connection.output, &error);
                return Progressed::Request;
            }
        };
        let to = there.as_deref().unwrap_or(to);
        if !self.bring_keys(executor, connection, [from, to].into_iter()) {
            return Progressed::Waits;
        }
        let Ok(_alone) = self.be_alone(executor, connection) else { return Progressed::Waits };
        // While the worker waited, others may have pushed an item out of memory.
        if !self.bring_keys(executor, connection, [from, to].into_iter()) {
            return Progressed::Waits;
        }
        let Resp { rooms, decimal, .. } = self;
        let Connection { output, progress, session, .. } = connection;
        let version = session.as_ref().map_or(Version::Resp2, |session| session.version);
        let moment = Moment::new(executor.now_ms(), executor.clock());
        let [room, other_room] = rooms;
        let items = [
            room.item_key(from, |key| executor.hash(key)),
            other_room.item_key(to, |key| executor.hash(key)),
        ];
        let (operation, form) =
            match item_operation(command, &words_of(after(args, 1)), items, moment, decimal) {
                Ok(operation) => operation,
                Err(error) => {
                    say_error(output, &error);
                    return Progressed::Request;
                }
            };
        if command.id != Id::Copy && items[0].key == items[1].key {
            // The item stays where it is, if it is there.
            let copied = match (executor.version_of(&items[0]), command.id) {
                (None, _) => Copied::NotFound,
                (Some(_), Id::Rename) => Copied::Done,
                (Some(_), _) => Copied::Exists,
            };
            compose_outcome(form, output, version, Outcome::Copied(copied));
            return Progressed::Request;
        }
        match executor
            .execute(progress, &operation, |outcome| compose_outcome(form, output, version, outcome))
        {
            true => Progressed::Request,
            false => Progressed::Waits,
        }
    }

    /// Forgets the items of a request's keys that are left over from before their slots came back to this server.
    /// Returns `false` if one has to be waited for.
    pub(super) fn forget_left_over(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
    ) -> bool {
        match &self.fleet {
            Some(fleet) if fleet.has_left_over() => {
                self.forget_items(executor, &fleet.clone(), connection, command, args)
            }
            _ => true,
        }
    }

    #[cold]
    fn forget_items(
        &mut self,
        executor: &mut Executor,
        fleet: &Fleet,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
    ) -> bool {
        let queued = connection.session.as_ref().and_then(|session| session.transaction.as_ref());
        let own = connection.own_keys();
        let keys: Vec<Vec<u8>> = match (command.id, queued) {
            (Id::Exec, Some(transaction)) => transaction.keys().map(Cow::into_owned).collect(),
            _ => item_keys(own, command, args).map(Cow::into_owned).collect(),
        };
        let Resp { rooms: [room, _], .. } = self;
        let mut are_here = true;
        for key in &keys {
            let cas = fleet.left_over(slot_of(key));
            if cas == 0 {
                continue;
            }
            let item = room.item_key(key, |key| executor.hash(key));
            are_here &= executor.bring_key(&mut connection.progress, item.hash, item.key, Need::Memory);
            if connection.progress.busy.is_some() {
                return false;
            }
            if executor.version_of(&item).is_some_and(|(own, _)| own <= cas) {
                executor.delete_quietly(item.key, item.hash);
            }
        }
        are_here
    }

    /// Brings the items of keys to memory, as far as only flash has them. Returns `false` if one has to be waited for.
    pub(super) fn bring_keys<'a>(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        keys: impl Iterator<Item = &'a [u8]>,
    ) -> bool {
        let Resp { rooms: [room, _], .. } = self;
        if !executor.has_flash() {
            return true;
        }
        let mut are_here = true;
        for key in keys {
            let item = room.item_key(key, |key| executor.hash(key));
            are_here &= executor.bring_key(&mut connection.progress, item.hash, item.key, Need::Memory);
            // A value that comes in parts comes alone.
            if connection.progress.busy.is_some() {
                return false;
            }
        }
        are_here
    }
}

/// Why one key of several could not be changed.
fn failure_of(outcome: &Outcome<'_>) -> Option<Error> {
    match outcome {
        Outcome::Stored(StoreOutcome::TooLarge) | Outcome::Edited(EditOutcome::TooLarge) => {
            Some(errors::TOO_LARGE)
        }
        Outcome::Stored(StoreOutcome::NoRoom) | Outcome::Edited(EditOutcome::NoMemory) => {
            Some(errors::NO_MEMORY)
        }
        _ => None,
    }
}

/// Whether an outcome says that something was done or is there.
fn counts_as_one(outcome: &Outcome<'_>) -> bool {
    matches!(
        outcome,
        Outcome::Stored(StoreOutcome::Stored { .. })
            | Outcome::Edited(EditOutcome::Done)
            | Outcome::Looked(Looked::Present(_) | Looked::WrongKind | Looked::Number(_) | Looked::Value(_))
    )
}
