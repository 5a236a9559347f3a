//! Clients that may not do everything: users who may only read, and users who have a namespace.
//!
//! The requests of a user with a namespace are gathered as they are sent. The prefix of the namespace is put before
//! their keys when they are executed, and is no part of what is answered.

use super::binary::{GetForm as PacketForm, compose_refusal};
use super::client_time::ClientTime;
use super::command::{AnyRequest, Command, KeyReply, PacketReply, plain_key};
use super::form::Compose;
use super::worker::{Memcached, Work, execute_command, read_command};
use crate::dispatch::connection::{Connection, SessionState};
use crate::dispatch::cursor::Cursor;
use crate::dispatch::execute::Executor;
use crate::dispatch::interpreter::Interpreter;
use crate::dispatch::operation::Get;
use crate::dispatch::outcome::Outcome;
use crate::dispatch::own_keys::OwnKeys;
use crate::dispatch::progress::Busy;
use crate::dispatch::users::Access;
use crate::dispatch::window::{Hints, Place, Progressed, Window, push, push_hashed};
use crate::io::Ready;
use crate::latency::Class;
use larder_cache::Expiry;
use larder_protocol::{Get as GetRequest, Request, Step, binary, parse, reply};
use std::ops::ControlFlow;

/// Keys of one retrieval that are executed in one turn, at most. Each turn reads over the keys that are done, so that a
/// long line in many short turns would cost time by the square of its length.
const KEYS_AT_ONCE: usize = 4096;

impl Memcached {
    // ---- gathering ----

    /// Fills the window with the requests of one connection that speaks the text protocol and whose user has a
    /// namespace. As [`Memcached::gather_text`], but the keys of a retrieval are not looked up one by one.
    pub(super) fn gather_text_of_own_keys<'a, S: SessionState, W: From<Work<'a>>>(
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
            let rest = &input[cursor.at..];
            let (key, what, consumed, ends_window) = match parse(rest, &self.parse_options) {
                Step::NeedMore { at_least } => {
                    ready.connection.input_wanted = at_least;
                    return false;
                }
                Step::Request { request, consumed } => {
                    let key = match &request {
                        Request::Get(get) => get.keys.clone().next().unwrap_or_default(),
                        request => plain_key(request),
                    };
                    (key, Work::Request(request), consumed, false)
                }
                Step::Upload { consumed, .. } => (&[][..], Work::Upload(&rest[..consumed]), consumed, true),
                Step::Reject { error, consumed, swallow } => {
                    (&[][..], Work::Reject { error, swallow }, consumed, true)
                }
                Step::Close => (&[][..], Work::Close(""), rest.len(), true),
                Step::Refuse(error) => (&[][..], Work::Close(error), rest.len(), true),
            };
            cursor.at += consumed;
            self.push_own(executor, ready.connection, window, cursor.place(), key, what);
            if ends_window {
                return true;
            }
        }
    }

    /// Puts a request of a client with a namespace into the window. An empty key is none.
    pub(super) fn push_own<'a, S: SessionState, W: From<Work<'a>>>(
        &mut self,
        executor: &Executor,
        connection: &Connection<S>,
        window: &mut Window<'a, W>,
        place: Place,
        key: &'a [u8],
        work: Work<'a>,
    ) {
        let own_keys = connection.own_keys().filter(|_| !key.is_empty());
        match own_keys.and_then(|own| own.item_key(key, &mut self.key_rooms.own)) {
            Some(item_key) => push_hashed(window, executor, place, (key, executor.hash(item_key)), work),
            None => push(window, executor, place, &[], work),
        }
    }

    // ---- executing ----

    /// Executes a request of memcached's protocols for a client that may not do everything, unless it has to wait for
    /// flash first.
    #[cold]
    #[inline(never)]
    pub(super) fn execute_restricted<S: SessionState>(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection<S>,
        request: &AnyRequest<'_>,
        hints: &mut Hints,
    ) -> Progressed {
        let own_keys = connection.own_keys().cloned();
        let own_keys = own_keys.as_deref();
        match (request, own_keys) {
            (AnyRequest::Text(Request::Get(get)), Some(own)) => {
                return self.get_own(executor, connection, own, get, hints);
            }
            (AnyRequest::Packet(packet), Some(own)) => {
                if let binary::Command::Get { with_key, exptime } = packet.command {
                    let form = PacketForm::new(packet, with_key);
                    let time = ClientTime::now(executor.clock());
                    let touch = exptime.map(|exptime| time.expiry(exptime));
                    return self.get_own_packet(executor, connection, own, (packet.key, form, touch), hints);
                }
            }
            _ => {}
        }
        let key_rooms = &mut self.key_rooms;
        let is_behind_others = connection.output.len() > 0;
        let Some(mut command) = read_command(request, executor, key_rooms, own_keys, is_behind_others) else {
            request.refuse_key(&mut connection.output);
            return Progressed::Request;
        };
        if !may_execute(connection, own_keys, &mut command) {
            return Progressed::Request;
        }
        execute_command(executor, connection, &command, hints)
    }

    /// A retrieval of the text protocol. What is left of it when the output is full, or after [`KEYS_AT_ONCE`] keys,
    /// comes later.
    fn get_own<S: SessionState>(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection<S>,
        own: &OwnKeys,
        get: &GetRequest<'_>,
        hints: &mut Hints,
    ) -> Progressed {
        let key_rooms = &mut self.key_rooms;
        if connection.keys_done == 0
            && get.keys.clone().any(|key| own.item_key(key, &mut key_rooms.own).is_none())
        {
            connection.output.say(reply::KEY_TOO_LONG);
            return Progressed::Request;
        }
        if get.exptime.is_some() && connection.access() == Some(Access::ReadOnly) {
            connection.output.say(reply::READ_ONLY);
            return Progressed::Request;
        }
        let touch = get.exptime.map(|exptime| ClientTime::now(executor.clock()).expiry(exptime));
        hints.are_outdated |= touch.is_some();
        let keys_max = connection.keys_done + KEYS_AT_ONCE;
        let mut keys = get.keys.clone();
        keys.by_ref().take(connection.keys_done).for_each(drop);
        while let Some(key) = keys.next() {
            let Some(item_key) = own.item_key(key, &mut key_rooms.own) else { break };
            let hash = executor.hash(item_key);
            let wanted = Get { key: item_key, hash, with_cas: get.with_cas, touch };
            let Connection { output, progress, keys_done, .. } = &mut *connection;
            let is_last = keys.len() == 0;
            if !executor.get(progress, &wanted, None, KeyReply { output, key, is_last }) {
                return Progressed::Waits;
            }
            *keys_done += 1;
            if !is_last && *keys_done >= keys_max && progress.busy.is_none() {
                progress.busy = Some(Busy::Pausing);
            }
            if !is_last && (connection.is_backed_up() || connection.output.is_closing()) {
                return Progressed::Key;
            }
        }
        executor.count_time(if touch.is_some() { Class::Touch } else { Class::Get });
        Progressed::Request
    }

    /// A retrieval of the binary protocol: its key, how it is answered, and the expiry that the item gets.
    fn get_own_packet<S>(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection<S>,
        own: &OwnKeys,
        (key, form, touch): (&[u8], PacketForm, Option<Expiry>),
        hints: &mut Hints,
    ) -> Progressed {
        let key_rooms = &mut self.key_rooms;
        let Some(item_key) = own.item_key(key, &mut key_rooms.own) else {
            compose_refusal(&mut connection.output, form.invalid());
            return Progressed::Request;
        };
        hints.are_outdated |= touch.is_some();
        let get = Get { key: item_key, hash: executor.hash(item_key), with_cas: true, touch };
        let Connection { output, progress, .. } = connection;
        if !executor.get(progress, &get, None, PacketReply { form, output, key }) {
            return Progressed::Waits;
        }
        executor.count_time(if touch.is_some() { Class::Touch } else { Class::Get });
        Progressed::Request
    }
}

/// Whether a client that may not do everything may do what it asks for. If not, it is told so.
#[cold]
pub(super) fn may_execute<'a, S: SessionState, F: Compose>(
    connection: &mut Connection<S>,
    own_keys: Option<&'a OwnKeys>,
    command: &mut Command<'a, F>,
) -> bool {
    let refused = command.restrict(connection.access(), own_keys).err();
    if let Some(refusal) = refused {
        command.reply.compose(&mut connection.output, Outcome::Refused(refusal));
    }
    refused.is_none()
}
