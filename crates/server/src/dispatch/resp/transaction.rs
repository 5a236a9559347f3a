//! Transactions: `MULTI`, `EXEC`, `DISCARD`, `WATCH`, `UNWATCH`.
//!
//! `EXEC` is executed alone (see `crates/memory/src/gate.rs`): the watched keys are looked at and the commands are
//! executed without anything in between. A command that fails is answered with its error, and the others
//! are executed all the same, as in Redis.

use super::compose::{say, say_error};
use super::errors;
use super::request::{Call, after};
use super::session::{Connection, Queued, Transaction};
use super::worker::Resp;
use crate::dispatch::execute::Executor;
use crate::dispatch::own_keys::OwnKeys;
use crate::dispatch::window::{Hints, Progressed};
use larder_protocol::resp::{Args, Command, Id, Keys, command_of, compose as words, flags};
use std::sync::Arc;
use std::time::Instant;

/// A transaction that needs items from flash is begun anew until all are in memory, but not for ever: others may push
/// them out again.
const TRIES_MAX: u8 = 3;
/// A reply of this number of bytes is given even where the replies of a transaction are too many.
const SHORT_REPLY_BYTES: usize = 256;

impl Resp {
    /// Queues a command of a transaction. It was checked.
    pub(super) fn queue(&mut self, connection: &mut Connection, call: &Call<'_>) -> Progressed {
        let chosen = self.keys_after(connection, call);
        let has_script = call.command.is_some_and(|command| command.keys == Keys::COUNTED);
        let own = connection.own_keys().filter(|_| has_script).cloned();
        let Connection { session: Some(session), output, .. } = connection else {
            return Progressed::Request;
        };
        let Some(transaction) = &mut session.transaction else { return Progressed::Request };
        let more = call.args.bytes();
        let bytes = transaction.bytes.len() + more.len();
        if bytes > self.request_bytes_max() || !transaction.take_room(self.server.buffers(), more.len()) {
            transaction.is_broken = true;
            say_error(output, &errors::TRANSACTION_TOO_LARGE);
            return Progressed::Request;
        }
        if let Some(own_keys) = chosen {
            transaction.own_keys = Some(own_keys);
        }
        let from = transaction.bytes.len();
        transaction.bytes.extend_from_slice(more);
        let own_keys = has_script.then(|| transaction.own_keys.clone().unwrap_or(own)).flatten();
        transaction.commands.push(Queued { from, until: bytes, count: call.args.len(), own_keys });
        say(output, "QUEUED");
        session.settle();
        Progressed::Request
    }

    /// The keys of a client after a `SELECT` or `SWAPDB` that will succeed. `None` = the request is neither.
    fn keys_after(&self, connection: &mut Connection, call: &Call<'_>) -> Option<Option<Arc<OwnKeys>>> {
        let (id, args) = (call.command?.id, after(call.args, 1));
        let (mut chosen, mut exchanged) = (None, None);
        match id {
            Id::Select => chosen = Some(self.database(args.clone().next()?).ok()?),
            Id::Swapdb => exchanged = Some(self.databases_to_exchange(connection, args).ok()?),
            _ => return None,
        }
        let (namespace, before) = (connection.namespace().cloned(), connection.database());
        let transaction = connection.session.as_mut()?.transaction.as_mut()?;
        transaction.database = chosen.or(transaction.database);
        let order =
            transaction.order.get_or_insert_with(|| Box::new(self.server.databases().order().clone()));
        exchanged.inspect(|(one, other)| order.exchange(*one, *other));
        Some(order.keys_of(namespace.as_ref(), transaction.database.unwrap_or(before)))
    }

    /// `MULTI`.
    pub(super) fn begin_transaction(&mut self, connection: &mut Connection) {
        let Some(session) = &mut connection.session else { return };
        session.transaction = Some(Box::default());
        session.settle();
        say(&mut connection.output, "OK");
    }

    /// `DISCARD`.
    pub(super) fn discard_transaction(&mut self, connection: &mut Connection) {
        let Some(session) = &mut connection.session else { return };
        if session.transaction.is_none() {
            say_error(&mut connection.output, &errors::DISCARD_WITHOUT_MULTI);
            return;
        }
        session.end_transaction();
        say(&mut connection.output, "OK");
    }

    /// `WATCH`.
    pub(super) fn watch(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        command: &Command,
        args: Args<'_>,
    ) -> Progressed {
        if !self.bring_keys(executor, connection, command.keys.of(args)) {
            return Progressed::Waits;
        }
        let watched_bytes_max = self.request_bytes_max() as u64;
        let Resp { server, rooms: [room, _], .. } = self;
        let Connection { session: Some(session), output, .. } = connection else {
            return Progressed::Request;
        };
        let buffers = server.buffers();
        for key in command.keys.of(args) {
            if session.is_watching(key) {
                continue;
            }
            let item = room.item_key(key, |key| executor.hash(key));
            if session.watched_bytes() > watched_bytes_max
                || !session.watch(key, || executor.watch_key(&item), buffers)
            {
                say_error(output, &errors::TOO_MANY_WATCHED);
                return Progressed::Request;
            }
        }
        session.settle();
        say(output, "OK");
        Progressed::Request
    }

    /// `UNWATCH`.
    pub(super) fn unwatch(&mut self, connection: &mut Connection) {
        if let Some(session) = &mut connection.session {
            session.forget_watched();
            session.settle();
        }
        say(&mut connection.output, "OK");
    }

    /// `EXEC`.
    #[inline(never)]
    pub(super) fn execute_transaction(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
    ) -> Progressed {
        let Some(session) = &mut connection.session else { return Progressed::Request };
        let Some(transaction) = session.transaction.take() else {
            say_error(&mut connection.output, &errors::EXEC_WITHOUT_MULTI);
            return Progressed::Request;
        };
        if transaction.is_broken {
            session.end_transaction();
            say_error(&mut connection.output, &errors::EXEC_ABORT);
            return Progressed::Request;
        }
        // Everything that the commands need is brought to memory first: a transaction does not wait in its middle.
        if connection.progress.tries < TRIES_MAX
            && !self.bring_transaction(executor, connection, &transaction)
        {
            if let Some(session) = &mut connection.session {
                session.transaction = Some(transaction);
            }
            return Progressed::Waits;
        }
        let alone = self.be_alone(executor, connection);
        let Some(session) = &mut connection.session else { return Progressed::Request };
        let Ok(_alone) = alone else {
            session.transaction = Some(transaction);
            return Progressed::Waits;
        };
        let is_unchanged = session.is_unchanged();
        session.forget_watched();
        let version = session.version;
        if is_unchanged {
            words::array_head(connection.output.buffer(), transaction.commands.len());
            // While the commands are executed the connection has its transaction: it is alone already.
            session.transaction = Some(Box::default());
            connection.progress.in_one_piece = true;
            for queued in &transaction.commands {
                self.execute_queued(executor, connection, transaction.args(queued));
            }
            connection.progress.in_one_piece = false;
        } else {
            words::null_array(connection.output.buffer(), version);
        }
        if let Some(session) = &mut connection.session {
            session.transaction = None;
            session.settle();
        }
        Progressed::Request
    }

    /// Executes one command of a transaction, which was checked when it was queued.
    fn execute_queued(&mut self, executor: &mut Executor, connection: &mut Connection, args: Args<'_>) {
        let Some(command) = command_of(args) else { return };
        // What changes nothing is not executed any more when the replies are too many, nor what shows what it takes
        // away; all other commands give short replies.
        let is_full = connection.output.len() > self.request_bytes_max();
        if is_full && (!command.has(flags::WRITE) || shows_what_goes(command.id, args)) {
            say_error(&mut connection.output, &errors::REPLIES_TOO_LARGE);
            return;
        }
        let key = command.keys.of(args).next().unwrap_or_default();
        let hash = executor.hash(key);
        let mut hints = Hints { epoch: 0, are_outdated: true };
        let (before, started, keys_done) = (connection.output.len(), Instant::now(), connection.keys_done);
        connection.keys_done = 0;
        let progressed = self.run(executor, connection, command, args, hash, &mut hints);
        connection.keys_done = keys_done;
        if progressed == Progressed::Waits {
            // Others have pushed the item out of memory meanwhile. For the transaction it is gone.
            executor.give_up_waiting(&mut connection.progress);
            connection.output.truncate(before);
            say_error(&mut connection.output, &errors::NO_MEMORY);
        }
        if is_full && connection.output.len() - before > SHORT_REPLY_BYTES {
            connection.output.truncate(before);
            say_error(&mut connection.output, &errors::REPLIES_TOO_LARGE);
        }
        self.settle_call(executor, connection, command, args, before, Some(started));
    }

    /// Brings all items of a transaction to memory. Returns `false` if one has to be waited for.
    fn bring_transaction(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        transaction: &Transaction,
    ) -> bool {
        if !executor.has_flash() {
            return true;
        }
        let keys: Vec<_> = transaction.keys().collect();
        self.bring_keys(executor, connection, keys.iter().map(|key| &**key))
    }

    /// `RESET` and the like: what the connection was in the middle of is forgotten.
    pub(super) fn reset_session(&mut self, executor: &Executor, connection: &mut Connection) {
        if let Some(session) = &mut connection.session {
            self.hear_no_more(executor, session);
            session.client.mailbox().clear(&self.shared.told.post);
            session.reset();
        }
        connection.set_rights(self.server.rights_without_login(), self.server.databases());
        self.choose_database(connection, 0);
    }
}

/// Whether a command shows what it takes away, or replaces.
fn shows_what_goes(id: Id, args: Args<'_>) -> bool {
    match id {
        Id::Set => after(args, 3).any(|word| word.eq_ignore_ascii_case(b"get")),
        Id::Getdel | Id::Getset | Id::Getex | Id::Hgetdel | Id::Hgetex => true,
        Id::Spop | Id::Zpopmin | Id::Zpopmax | Id::Zmpop => true,
        _ => false,
    }
}
