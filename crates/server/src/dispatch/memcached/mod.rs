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
//! `worker` is one worker's side.
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
mod worker;

pub(super) use worker::{Memcached, Work};

use super::connection::{Connection, SessionState};
use super::cursor::Cursor;
use super::execute::Executor;
use super::interpreter::Interpreter;
use super::progress::Busy;
use super::protocol::Protocol;
use super::window::{Hints, Progressed, Window, WindowOp};
use crate::io::Ready;
use binary::compose_refusal;
use classic::compose_listing;

impl Memcached {
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
                connection.output.close_failed();
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
