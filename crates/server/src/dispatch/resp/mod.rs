//! RESP2 and RESP3, the protocols of Redis and Valkey.
//!
//! In a worker's turn:
//!
//! * `worker` is one worker's side, `session` and `unfinished` what a connection keeps between requests, `shared` what
//!   all workers share, `clients` who is connected;
//! * `gather` reads requests ahead, `read_ahead` looks at what follows a request that waits for flash, `request` is a
//!   request and what is known of its command;
//! * `check` says whether a request may be executed, `answer` executes it;
//! * `many_keys` has the commands on several keys, `transaction` transactions, `connection_commands`, `server_commands`
//!   and `keys_commands` commands on the connection, on the server, and on all keys, `databases` chooses databases,
//!   `upload` takes in large arguments;
//! * `script` executes scripts, `script_worker` has the interpreter of a worker, `scripts` keeps them for all workers.
//!
//! What connections tell each other:
//!
//! * `mailbox` has what a connection is told, `hearing` what it wants to hear of;
//! * `tracking` knows who has read which keys, `tracking_commands` begins and ends that;
//! * `channels` knows who has subscribed to what, `channel_commands` subscribes and publishes.
//!
//! Of one request:
//!
//! * `item_requests` reads requests on items as operations, `compose` words their outcomes;
//! * `catalogue` answers `COMMAND`, `info` `INFO`, `config` `CONFIG`, `client_list` `CLIENT LIST`, `help` `... HELP`;
//! * `errors` has the errors, `glob` the patterns of keys, `own_request` puts a prefix before the keys of a request.

mod accepted;
mod answer;
mod catalogue;
mod channel_commands;
mod channels;
mod check;
mod client_list;
mod clients;
mod collections;
mod compose;
mod config;
mod connection_commands;
mod databases;
mod errors;
mod gather;
mod glob;
mod hearing;
mod help;
mod info;
mod item_requests;
mod keys_commands;
mod mailbox;
mod many_keys;
mod moment;
mod own_request;
mod read_ahead;
mod request;
mod script;
mod script_worker;
mod scripts;
mod server_commands;
mod session;
mod shared;
mod tracking;
mod tracking_commands;
mod transaction;
mod unfinished;
mod upload;
mod worker;

pub(super) use request::Work;
pub use session::Connection;
pub(super) use session::Session;
pub use shared::Shared;
pub(super) use worker::Resp;

use super::cursor::Cursor;
use super::execute::Executor;
use super::interpreter::Interpreter;
use super::operation::{Get, ItemKey};
use super::progress::Busy;
use super::window::{Hints, Progressed, Window, WindowOp};
use crate::io::Ready;
use crate::latency::Class;
use compose::ValueReply;
use larder_cache::{KEY_BYTES_MAX, KeyHash, TagMatch};
use larder_protocol::resp::{Id, Resume, compose as words, inline_args};
use request::{Call, KeyRead};
use tracking_commands::{end_caching, note_read};

/// Keys of one `MGET` that are executed in one turn, at most. A request that was interrupted is read again from its
/// beginning.
const KEYS_AT_ONCE: usize = 8192;

impl Interpreter<Session> for Resp {
    type Work<'a> = Work<'a>;

    #[inline]
    fn gather<'a, W: From<Work<'a>>>(
        &mut self,
        executor: &mut Executor,
        ready: &mut Ready<'a, Connection>,
        cursor: &mut Cursor<'a>,
        window: &mut Window<'a, W>,
    ) -> bool {
        self.gather_requests(executor, ready, cursor, window)
    }

    #[inline(always)]
    fn execute<W>(
        &mut self,
        executor: &mut Executor,
        ready: &mut Ready<'_, Connection>,
        op: &WindowOp<'_, W>,
        work: &Work<'_>,
        hints: &mut Hints,
    ) -> Progressed {
        match work {
            Work::Key(read) => {
                let hint = hints.of(op, executor);
                self.execute_key(executor, ready.connection, (op.key, op.hash), *read, hint)
            }
            Work::OwnKey => {
                let hint = hints.of(op, executor);
                self.execute_own_key(executor, ready.connection, (op.key, op.hash), hint)
            }
            _ => {
                let progressed = self.execute_other(executor, ready.connection, work, op.hash, hints);
                if progressed == Progressed::Key
                    && let (Work::Call(call), Some(session)) = (work, &mut ready.connection.session)
                {
                    // The request goes on later, and need not be read again then.
                    session.resume = Resume::whole(call.args, op.end - ready.consumed);
                }
                progressed
            }
        }
    }

    fn read_ahead(&mut self, executor: &mut Executor, ready: &mut Ready<'_, Connection>) {
        self.read_requests_ahead(executor, ready);
    }

    fn go_on(&mut self, executor: &mut Executor, ready: &mut Ready<'_, Connection>) {
        match &ready.connection.progress.busy {
            // What the argument waited for has come from flash.
            Some(Busy::Taking) | None => self.continue_argument(executor, ready),
            Some(Busy::Answering) => self.continue_collecting(executor, ready.connection),
            Some(_) => {}
        }
    }
}

impl Resp {
    /// Executes one key of a `GET` or `MGET`.
    #[inline(always)]
    fn execute_key(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        (key, hash): (&[u8], KeyHash),
        read: KeyRead,
        hint: Option<TagMatch>,
    ) -> Progressed {
        let get = Get { key, hash, with_cas: false, touch: None };
        let Connection { output, progress, session, .. } = connection;
        let Some(session) = session else { return Progressed::Request };
        let reply = ValueReply { output, version: session.version, of_several: read.of_several };
        if !executor.get(progress, &get, hint, reply) {
            return Progressed::Waits;
        }
        connection.keys_done += 1;
        if !read.is_last {
            connection.pause_if_due(KEYS_AT_ONCE);
            return Progressed::Key;
        }
        let command = if read.of_several { Id::Mget } else { Id::Get };
        session.count(command);
        self.count(command, 1);
        executor.count_time(Class::Get);
        Progressed::Request
    }

    /// Executes a `GET` before whose key something stands, or whose key is tracked. `hash` = that of the key of the
    /// item.
    #[inline(never)]
    fn execute_own_key(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        (key, hash): (&[u8], KeyHash),
        hint: Option<TagMatch>,
    ) -> Progressed {
        let mut room = [0; KEY_BYTES_MAX];
        let item_key = connection.own_keys().and_then(|own| own.item_key(key, &mut room));
        let key = item_key.unwrap_or(key);
        if self.turn.tracks
            && let Some(session) = &connection.session
            && session.remembers_reads()
        {
            note_read(&self.shared.told.tracking, executor, session, &ItemKey { key, hash, head: &[] }, key);
        }
        let read = KeyRead { of_several: false, is_last: true };
        let progressed = self.execute_key(executor, connection, (key, hash), read, hint);
        if self.turn.tracks && progressed == Progressed::Request {
            end_caching(connection);
        }
        progressed
    }

    /// Executes what is no key of a retrieval.
    #[inline(never)]
    fn execute_other(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        work: &Work<'_>,
        hash: KeyHash,
        hints: &mut Hints,
    ) -> Progressed {
        match work {
            Work::Call(call) => self.execute_call(executor, connection, call, hash, hints),
            Work::ArrayHead(count) => {
                words::array_head(connection.output.buffer(), *count);
                connection.keys_done += 1;
                Progressed::Key
            }
            Work::Line(line) => {
                let mut room = std::mem::take(&mut self.line);
                let progressed = match inline_args(line, &mut room) {
                    Ok(args) if args.len() == 0 => Progressed::Request,
                    Ok(args) => {
                        let call = Call::of(args);
                        let hash = executor.hash(call.plain_key());
                        self.execute_call(executor, connection, &call, hash, hints)
                    }
                    Err(fault) => self.refuse(connection, fault),
                };
                self.line = room;
                progressed
            }
            Work::Argument(upload) => {
                hints.are_outdated = true;
                self.begin_argument(executor, connection, upload)
            }
            Work::Fault(fault) => self.refuse(connection, *fault),
            Work::Key(_) | Work::OwnKey | Work::Nothing => Progressed::Request,
        }
    }

    /// A connection is gone.
    pub(super) fn forget(&mut self, executor: &Executor, mut session: Session) {
        self.shared.clients.remove(&session.client);
        self.hear_no_more(executor, &mut session);
        // Somebody may be about to tell it something.
        session.client.mailbox().close(&self.shared.told.post);
        if let Some(upload) = session.unfinished.taking.and_then(|taking| taking.upload) {
            executor.abandon_argument(upload);
        }
    }
}
