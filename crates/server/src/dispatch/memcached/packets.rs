//! The binary protocol in a worker's turn: packets are gathered beside the requests of text, and executed.

use super::access::allowed_packet;
use super::binary::{GetForm as PacketForm, compose_refusal};
use super::client_time::ClientTime;
use super::command::{AnyRequest, PacketReply, packet_command};
use super::sasl::{self, SaslRequest};
use super::worker::{Memcached, Work, execute_command};
use crate::dispatch::connection::{Connection, SessionState};
use crate::dispatch::cursor::Cursor;
use crate::dispatch::execute::{Admission, Executor};
use crate::dispatch::interpreter::Interpreter;
use crate::dispatch::operation::Get;
use crate::dispatch::window::{Hints, Progressed, Window, WindowOp, push};
use crate::io::Ready;
use crate::latency::Class;
use larder_cache::{Expiry, KeyHash, TagMatch};
use larder_protocol::binary::{self, Command, Refusal, Step};
use std::ops::ControlFlow;

impl Memcached {
    /// Fills the window with the packets of one connection. As [`Memcached::gather_text`].
    #[inline]
    pub(super) fn gather_packets<'a, S: SessionState, W: From<Work<'a>>>(
        &mut self,
        executor: &mut Executor,
        ready: &mut Ready<'a, Connection<S>>,
        cursor: &mut Cursor<'a>,
        window: &mut Window<'a, W>,
    ) -> bool {
        let input: &'a [u8] = ready.input;
        loop {
            if window.len() >= cursor.window_stop {
                return cursor.stop(executor, ready, window);
            }
            if let ControlFlow::Break(has_to_execute) = self.come_to_request(executor, ready, cursor) {
                return has_to_execute;
            }
            let mut step = binary::parse(&input[cursor.at..], &self.parse_options);
            if !ready.connection.may_do_all() {
                step = allowed_packet(step, ready.connection.access());
                if ready.connection.own_keys().is_some()
                    && let Step::Request { request, consumed } = &step
                    && !binary::is_login(request.echo.opcode)
                {
                    cursor.at += consumed;
                    let work = Work::Packet(request.clone());
                    self.push_own(executor, ready.connection, window, cursor.place(), request.key, work);
                    continue;
                }
            }
            let (key, what, consumed, ends_window) = match step {
                Step::NeedMore { at_least } => {
                    ready.connection.input_wanted = at_least;
                    return false;
                }
                Step::Request { request, consumed } => match request.command {
                    Command::Get { with_key, exptime } => {
                        let time = ClientTime::now(executor.clock());
                        let touch = exptime.map(|exptime| time.expiry(exptime));
                        let form = PacketForm::new(&request, with_key);
                        (request.key, Work::PacketGet { touch, form }, consumed, false)
                    }
                    // What the client may do next is known only once it has logged in.
                    Command::SaslMechanisms | Command::Sasl { .. } => {
                        (request.key, Work::Packet(request), consumed, true)
                    }
                    _ => (request.key, Work::Packet(request), consumed, false),
                },
                Step::Upload { consumed, .. } => {
                    let head = &input[cursor.at..cursor.at + consumed];
                    (&[][..], Work::Upload(head), consumed, true)
                }
                Step::Reject { error, consumed, swallow } => {
                    (&[][..], Work::Refuse { refusal: error, swallow }, consumed, true)
                }
                Step::Close | Step::Refuse(_) => (&[][..], Work::Close(""), input.len() - cursor.at, true),
            };
            cursor.at += consumed;
            push(window, executor, cursor.place(), key, what);
            if ends_window {
                return true;
            }
        }
    }

    /// Executes a packet that is no retrieval, unless it has to wait for flash first.
    pub(super) fn execute_packet<S: SessionState>(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection<S>,
        request: &binary::Request<'_>,
        hash: KeyHash,
        hints: &mut Hints,
    ) -> Progressed {
        if binary::is_login(request.echo.opcode) {
            return log_in_by_sasl(executor, connection, request);
        }
        if !connection.may_do_all() {
            let request = AnyRequest::Packet(request.clone());
            return self.execute_restricted(executor, connection, &request, hints);
        }
        let command = packet_command(request, hash, ClientTime::now(executor.clock()));
        execute_command(executor, connection, &command, hints)
    }

    /// Executes a retrieval.
    pub(super) fn execute_packet_get<S, W>(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection<S>,
        op: &WindowOp<'_, W>,
        touch: Option<Expiry>,
        form: PacketForm,
        hint: Option<TagMatch>,
    ) -> Progressed {
        let get = Get { key: op.key, hash: op.hash, with_cas: true, touch };
        let Connection { output, progress, .. } = connection;
        if !executor.get(progress, &get, hint, PacketReply { form, output, key: op.key }) {
            return Progressed::Waits;
        }
        executor.count_time(if touch.is_some() { Class::Touch } else { Class::Get });
        Progressed::Request
    }
}

/// A request of a login over the binary protocol. A client that tries to log in is nobody until it has succeeded.
fn log_in_by_sasl<S: SessionState>(
    executor: &mut Executor,
    connection: &mut Connection<S>,
    request: &binary::Request<'_>,
) -> Progressed {
    let Connection { output, progress, .. } = connection;
    let Some(asked) = sasl::read(&request.command, connection.has_begun_sasl) else {
        return Progressed::Request;
    };
    if !executor.state().has_users() {
        compose_refusal(output, Refusal::unknown_command(request.echo));
        return Progressed::Request;
    }
    let mut rights = None;
    match asked {
        SaslRequest::List => sasl::compose_mechanisms(output, request.echo),
        SaslRequest::Begin => sasl::compose_continue(output, request.echo),
        SaslRequest::LogIn(user) => match executor.log_in(progress, user) {
            Admission::Later => return Progressed::Waits,
            Admission::Refused => sasl::compose(output, request.echo, false),
            Admission::Admitted(granted) => {
                rights = Some(granted);
                sasl::compose(output, request.echo, true);
            }
        },
    }
    connection.has_begun_sasl = matches!(asked, SaslRequest::Begin);
    connection.set_rights(rights, executor.databases());
    Progressed::Request
}
