//! The protocols of memcached: its text protocol with the meta commands, and its binary protocol.
//!
//! ```text
//!   bytes --parse--> Request --command--> Operation  (+ form of the reply)
//!                                             | execute
//!   bytes <------compose------- form <--- Outcome
//! ```
//!
//! In a worker's turn: `text` and `packets` gather requests and execute them, `upload` takes in large values,
//! `read_ahead` looks at what follows a request that waits for flash, `limited_users` executes requests of users who
//! may not do everything.
//!
//! Of one request: `command` reads it as an operation, and says what words the outcome.
//!
//! * `classic`, `classic_admin` and `form` are the classic commands, `meta` the meta commands;
//! * `binary` is the binary protocol;
//! * `client_time` reads the times that clients send;
//! * `access` refuses what a client of the binary protocol may not do;
//! * `login` is the login of text connections, `sasl` that of binary ones.

mod access;
mod binary;
mod classic;
mod classic_admin;
mod client_time;
mod command;
mod form;
mod limited_users;
mod login;
mod meta;
mod packets;
mod read_ahead;
mod sasl;
mod text;
mod upload;

use super::connection::{Connection, SessionState};
use super::cursor::Cursor;
use super::execute::Executor;
use super::interpreter::Interpreter;
use super::own_keys::OwnKeys;
use super::progress::{Busy, KeyRead};
use super::protocol::Protocol;
use super::request_log::Logged;
use super::window::{Hints, Progressed, Window, WindowOp};
use crate::io::Ready;
use access::allowed_packet;
use binary::{GetForm as PacketForm, compose_refusal};
use classic::compose_listing;
use client_time::ClientTime;
use command::{
    AnyForm, AnyRequest, Command, Compose, KeyReply, KeyRooms, Next, PacketReply, command, decoded_key,
    next_request, packet_command, plain_key,
};
use larder_cache::Expiry;
use larder_protocol::{ParseOptions, Request, binary as wire};
use login::{Login, log_in};

/// One worker's side of memcached's protocols.
pub(super) struct Memcached {
    parse_options: ParseOptions,
    key_rooms: Box<KeyRooms>,
}

/// What is to be done with an entry of the window.
pub(super) enum Work<'a> {
    /// One key of a retrieval.
    Key(KeyRead),
    /// A request that is executed in one go.
    Request(Request<'a>),
    /// The line of a storage request whose value follows in pieces, or the packet up to the value.
    Upload(&'a [u8]),
    /// A request refused by the parser.
    Reject { error: &'static str, swallow: u64 },
    /// The connection is closed with this reply, or without a word.
    Close(&'static str),
    /// A retrieval over the binary protocol.
    PacketGet { touch: Option<Expiry>, form: PacketForm },
    /// Another request over the binary protocol.
    Packet(wire::Request<'a>),
    /// A packet refused by the parser.
    Refuse { refusal: wire::Refusal, swallow: u64 },
}

impl Work<'_> {
    /// Whether it is a plain read of a key.
    #[inline(always)]
    pub(super) fn is_read(&self) -> bool {
        matches!(self, Work::Key(_) | Work::PacketGet { .. })
    }

    /// Whether it is a request that most often replaces or removes an item.
    #[inline(always)]
    pub(super) fn is_request(&self) -> bool {
        matches!(self, Work::Request(_))
    }

    /// How it is logged.
    pub(super) fn logged(&self) -> Logged {
        if matches!(self, Work::Key(_)) { Logged::Key } else { Logged::Input }
    }
}

impl Memcached {
    /// One worker's side, over the executor of that worker.
    pub(super) fn new(executor: &Executor) -> Memcached {
        let whole_bytes_max = executor.whole_value_bytes_max();
        let parse_options = ParseOptions { whole_bytes_max, ..ParseOptions::default() };
        Memcached { parse_options, key_rooms: Box::default() }
    }

    /// Fills the window with the requests of one connection that does not speak the text protocol with all keys.
    #[inline(never)]
    fn gather_other<'a, S: SessionState, W: From<Work<'a>>>(
        &mut self,
        executor: &mut Executor,
        ready: &mut Ready<'a, Connection<S>>,
        cursor: &mut Cursor<'a>,
        window: &mut Window<'a, W>,
    ) -> bool {
        match ready.connection.protocol() {
            Protocol::TextOfOwnKeys => self.gather_text_of_own_keys(executor, ready, cursor, window),
            _ => self.gather_packets(executor, ready, cursor, window),
        }
    }

    /// Executes what is no key and no request of the text protocol.
    #[inline(never)]
    fn execute_other<S: SessionState, W>(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection<S>,
        op: &WindowOp<'_, W>,
        work: &Work<'_>,
        hints: &mut Hints,
    ) -> Progressed {
        match work {
            Work::Upload(line) => {
                hints.are_outdated = true;
                return self.begin_upload(executor, connection, line);
            }
            Work::Reject { error, swallow } => {
                connection.output.say(error);
                connection.swallow = *swallow;
            }
            Work::Close(error) => {
                connection.output.say(error);
                connection.output.close();
                connection.ends_unserved = true;
            }
            Work::Refuse { refusal, swallow } => {
                compose_refusal(&mut connection.output, *refusal);
                connection.swallow = *swallow;
            }
            Work::PacketGet { touch, form } => {
                let hint = hints.of(op, executor);
                hints.are_outdated |= touch.is_some();
                return self.execute_packet_get(executor, connection, op, *touch, *form, hint);
            }
            Work::Packet(request) => {
                return self.execute_packet(executor, connection, request, op.hash, hints);
            }
            Work::Key(_) | Work::Request(_) => {}
        }
        Progressed::Request
    }
}

impl<S: SessionState> Interpreter<S> for Memcached {
    type Work<'a> = Work<'a>;

    #[inline(always)]
    fn gather<'a, W: From<Work<'a>>>(
        &mut self,
        executor: &mut Executor,
        ready: &mut Ready<'a, Connection<S>>,
        cursor: &mut Cursor<'a>,
        window: &mut Window<'a, W>,
    ) -> bool {
        match ready.connection.protocol() {
            Protocol::Text | Protocol::Undecided => self.gather_text(executor, ready, cursor, window),
            _ => self.gather_other(executor, ready, cursor, window),
        }
    }

    #[inline(always)]
    fn execute<W>(
        &mut self,
        executor: &mut Executor,
        ready: &mut Ready<'_, Connection<S>>,
        op: &WindowOp<'_, W>,
        work: &Work<'_>,
        hints: &mut Hints,
    ) -> Progressed {
        match work {
            Work::Key(read) => {
                let hint = hints.of(op, executor);
                hints.are_outdated |= read.exptime.is_some();
                let progressed = self.execute_key(executor, ready.connection, op, *read, hint);
                if progressed == Progressed::Key && ready.connection.is_backed_up() {
                    ready.connection.rest_of_line = text::rest_of_line(ready, op, *read);
                }
                progressed
            }
            Work::Request(request) => {
                self.execute_request(executor, ready.connection, request, op.hash, hints)
            }
            _ => self.execute_other(executor, ready.connection, op, work, hints),
        }
    }

    fn read_ahead(&mut self, executor: &mut Executor, ready: &mut Ready<'_, Connection<S>>) {
        self.read_requests_ahead(executor, ready);
    }

    fn go_on(&mut self, executor: &mut Executor, ready: &mut Ready<'_, Connection<S>>) {
        let own_keys = ready.connection.own_keys().cloned();
        let is_locked = ready.connection.is_locked();
        let Connection { output, progress, .. } = &mut *ready.connection;
        match &progress.busy {
            Some(Busy::Receiving(_)) => self.continue_upload(executor, ready),
            Some(Busy::Listing { .. }) => {
                let own_keys = own_keys.as_deref();
                executor.continue_listing(progress, |page| compose_listing(output, page, own_keys));
            }
            None => match progress.received.take() {
                Some(receiving) => {
                    progress.busy = Some(Busy::Receiving(receiving));
                    self.continue_upload(executor, ready);
                }
                None if is_locked => self.log_in(executor, ready),
                None => {}
            },
            Some(_) => {}
        }
    }
}

/// Reads a request that did not come through the window as an operation. `None` = its key is too long for an item.
#[cold]
fn read_command<'a>(
    request: &'a AnyRequest<'a>,
    executor: &Executor,
    rooms: &'a mut KeyRooms,
    own_keys: Option<&OwnKeys>,
    is_behind_others: bool,
) -> Option<Command<'a, AnyForm<'a>>> {
    let time = ClientTime::now(executor.clock());
    request.command(rooms, own_keys, |key| executor.hash(key), time, is_behind_others)
}

/// Executes a command, unless it has to wait for flash first.
#[inline(always)]
fn execute_command<S, F: Compose>(
    executor: &mut Executor,
    connection: &mut Connection<S>,
    command: &Command<'_, F>,
    hints: &mut Hints,
) -> Progressed {
    let Connection { output, progress, .. } = connection;
    hints.are_outdated |= command.operation.may_change_items();
    let is_answered =
        executor.execute(progress, &command.operation, |outcome| command.reply.compose(output, outcome));
    if !is_answered {
        return Progressed::Waits;
    }
    if command.reply.is_meta() {
        executor.count_meta();
    }
    executor.count_time(command.class);
    Progressed::Request
}
