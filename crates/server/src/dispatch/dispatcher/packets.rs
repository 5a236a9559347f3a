//! The dispatcher's part for the binary protocol: packets are gathered and executed beside the requests of text.

use super::super::connection::Connection;
use super::super::execute::Admission;
use super::super::operation::Get;
use super::super::memcached::{self, AnyRequest, ClientTime, PacketForm, PacketReply, SaslRequest, sasl};
use super::{Cursor, Dispatcher, Hints, Progressed, Window, WindowOp, Work, execute_command};
use crate::io::Ready;
use crate::latency::Class;
use larder_cache::{Expiry, TagMatch};
use larder_protocol::binary::{self, Command, Refusal, Step};
use std::ops::ControlFlow;

impl Dispatcher {
    /// Fills the window with the packets of one connection. As [`Dispatcher::gather_text`].
    #[inline]
    pub(super) fn gather_packets<'a>(
        &mut self,
        ready: &mut Ready<'a, Connection>,
        cursor: &mut Cursor<'a>,
        window: &mut Window<'a>,
    ) -> bool {
        let input: &'a [u8] = ready.input;
        loop {
            if window.len() >= cursor.window_stop {
                return self.stop_gathering(ready, cursor, window);
            }
            if let ControlFlow::Break(has_to_execute) = self.come_to_request(ready, cursor) {
                return has_to_execute;
            }
            let mut step = binary::parse(&input[cursor.at..], &self.parse_options);
            if !ready.connection.may_do_all() {
                step = memcached::allowed_packet(step, ready.connection.access());
                if ready.connection.own_keys().is_some()
                    && let Step::Request { request, consumed } = &step
                    && !binary::is_login(request.echo.opcode)
                {
                    cursor.at += consumed;
                    let (place, what) =
                        ((cursor.connection as u32, cursor.at), Work::Packet(request.clone()));
                    self.push_own(ready.connection, window, place, request.key, what);
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
                        let time = ClientTime::now(self.executor.clock());
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
            self.push(window, cursor.connection as u32, cursor.at, key, what);
            if ends_window {
                return true;
            }
        }
    }

    /// Executes a packet, unless it has to wait for flash first.
    #[inline(never)]
    pub(super) fn execute_packet(
        &mut self,
        connection: &mut Connection,
        op: &WindowOp<'_>,
        hints: &mut Hints,
    ) -> Progressed {
        match &op.what {
            Work::PacketGet { touch, form } => {
                let hint = op.at.tag_match().filter(|_| hints.are_valid(self.executor.epoch()));
                hints.are_outdated |= touch.is_some();
                self.execute_packet_get(connection, op, *touch, *form, hint)
            }
            Work::Packet(request) if binary::is_login(request.echo.opcode) => {
                self.log_in_by_sasl(connection, request)
            }
            Work::Packet(request) if !connection.may_do_all() => {
                self.execute_restricted(connection, &AnyRequest::Packet(request.clone()), hints)
            }
            Work::Packet(request) => {
                let time = ClientTime::now(self.executor.clock());
                let command = memcached::packet_command(request, op.hash, time);
                execute_command(&mut self.executor, &mut self.executed, connection, &command, hints)
            }
            Work::Refuse { refusal, swallow } => {
                memcached::compose_refusal(&mut connection.output, *refusal);
                connection.swallow = *swallow;
                Progressed::Request
            }
            _ => Progressed::Request,
        }
    }

    /// Executes a retrieval.
    fn execute_packet_get(
        &mut self,
        connection: &mut Connection,
        op: &WindowOp<'_>,
        touch: Option<Expiry>,
        form: PacketForm,
        hint: Option<TagMatch>,
    ) -> Progressed {
        let get = Get { key: op.key, hash: op.hash, with_cas: true, touch };
        let Connection { output, progress, .. } = connection;
        if !self.executor.get(progress, &get, hint, PacketReply { form, output, key: op.key }) {
            return Progressed::Waits;
        }
        let class = if touch.is_some() { Class::Touch } else { Class::Get };
        self.executed[class as usize] += 1;
        Progressed::Request
    }

    /// A request of a login over the binary protocol. A client that tries to log in is nobody until it has succeeded.
    fn log_in_by_sasl(&mut self, connection: &mut Connection, request: &binary::Request<'_>) -> Progressed {
        let Connection { output, progress, .. } = connection;
        let Some(asked) = sasl::read(&request.command, connection.has_begun_sasl) else {
            return Progressed::Request;
        };
        if !self.state.has_users() {
            memcached::compose_refusal(output, Refusal::unknown_command(request.echo));
            return Progressed::Request;
        }
        let mut rights = None;
        match asked {
            SaslRequest::List => sasl::compose_mechanisms(output, request.echo),
            SaslRequest::Begin => sasl::compose_continue(output, request.echo),
            SaslRequest::LogIn(user) => match self.executor.log_in(progress, user) {
                Admission::Later => return Progressed::Waits,
                Admission::Refused => sasl::compose(output, request.echo, false),
                Admission::Admitted(granted) => {
                    rights = Some(granted);
                    sasl::compose(output, request.echo, true);
                }
            },
        }
        connection.has_begun_sasl = matches!(asked, SaslRequest::Begin);
        connection.set_rights(rights);
        Progressed::Request
    }
}
