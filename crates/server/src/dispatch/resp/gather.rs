//! Requests of RESP are read ahead.
//!
//! `GET` and the keys of `MGET` take the way of memcached's retrievals, key by key. Every other request is a [`Call`].

use super::request::{Call, KeyRead, Work, after};
use super::session::Connection;
use super::worker::Resp;
use crate::dispatch::cursor::Cursor;
use crate::dispatch::execute::Executor;
use crate::dispatch::interpreter::Interpreter;
use crate::dispatch::window::{Place, Window, push, push_hashed};
use crate::io::Ready;
use larder_cache::{KEY_BYTES_MAX, KeyHash};
use larder_protocol::resp::{Args, Id, Keys, Resume, Step, flags, parse};
use std::ops::ControlFlow;

impl Resp {
    /// Fills the window with the requests of one connection. As `gather_text` of memcached.
    #[inline]
    pub(super) fn gather_requests<'a, W: From<Work<'a>>>(
        &mut self,
        executor: &mut Executor,
        ready: &mut Ready<'a, Connection>,
        cursor: &mut Cursor<'a>,
        window: &mut Window<'a, W>,
    ) -> bool {
        if ready.connection.session.is_none() {
            self.begin_session(ready.connection);
        }
        let input: &'a [u8] = ready.input;
        loop {
            if gather_keys(executor, cursor, window) {
                return true;
            }
            if window.len() >= cursor.window_stop {
                return cursor.stop(executor, ready, window);
            }
            if let ControlFlow::Break(has_to_execute) = self.come_to_request(executor, ready, cursor) {
                return has_to_execute;
            }
            let nothing_ahead = cursor.at == ready.consumed;
            let connection = &mut *ready.connection;
            let options = self.options(connection);
            let Some(session) = &mut connection.session else { return false };
            if session.client.is_killed() {
                connection.output.close();
                return false;
            }
            let mut unknown = Resume::default();
            let resume = if nothing_ahead { &mut session.resume } else { &mut unknown };
            let rest = &input[cursor.at..];
            let (call, consumed) = match parse(rest, &options, resume) {
                Step::NeedMore { at_least } => {
                    connection.input_wanted = at_least;
                    return false;
                }
                Step::Get { key, consumed } => {
                    let is_plain = session.is_plain;
                    let is_fast = is_plain && connection.access().is_some() && self.is_fast(key);
                    if is_fast {
                        cursor.at += consumed;
                        let read = KeyRead { of_several: false, is_last: true };
                        push(window, executor, cursor.place(), key, Work::Key(read));
                        continue;
                    }
                    if !is_plain && let Some(hash) = self.own_hash(executor, connection, key) {
                        cursor.at += consumed;
                        push_hashed(window, executor, cursor.place(), (key, hash), Work::OwnKey);
                        continue;
                    }
                    // The two arguments begin behind the line that counts them.
                    (Call::of(Args::new(&rest[b"*2\r\n".len()..consumed], 2)), consumed)
                }
                Step::Request { args, consumed } => (Call::of(args), consumed),
                unusual => match push_unusual(executor, ready, cursor, window, unusual) {
                    true => return true,
                    false => continue,
                },
            };
            let is_mget = call.command.is_some_and(|command| command.id == Id::Mget);
            if is_mget && self.is_fast_mget(ready.connection, call.args) {
                begin_mget(executor, ready, cursor, window, call.args, consumed);
                continue;
            }
            cursor.at += consumed;
            let key = call.plain_key();
            if call.command.is_some_and(|command| command.keys == Keys::COUNTED) {
                self.scripts.in_window += u32::from(will_run(ready.connection, &call));
            }
            match ready.connection.own_keys() {
                None => push(window, executor, cursor.place(), key, Work::Call(call)),
                Some(own) => {
                    // The request has the key that the user sent, and the item another.
                    let mut room = [0; KEY_BYTES_MAX];
                    let item_key = own.item_key(key, &mut room).filter(|_| !key.is_empty());
                    let (key, hash) =
                        item_key.map_or((&[][..], executor.hash(&[])), |own| (key, executor.hash(own)));
                    push_hashed(window, executor, cursor.place(), (key, hash), Work::Call(call));
                }
            }
            // What follows may depend on it.
            if call.command.is_none_or(|command| command.has(flags::SESSION) || command.id == Id::Swapdb) {
                return true;
            }
        }
    }

    /// The hash of a key with what stands before it, if nothing else has to be known of its retrieval, but whether it
    /// is tracked.
    #[inline(never)]
    fn own_hash(&self, executor: &Executor, connection: &Connection, key: &[u8]) -> Option<KeyHash> {
        let is_plain = connection.session.as_ref().is_some_and(|session| session.is_plain_but_for_keys());
        if !is_plain || connection.access().is_none() || !self.is_fast(key) {
            return None;
        }
        let mut room = [0; KEY_BYTES_MAX];
        match connection.own_keys() {
            Some(own) => Some(executor.hash(own.item_key(key, &mut room)?)),
            None => Some(executor.hash(key)),
        }
    }

    /// Whether the keys of an `MGET` may be looked up one by one.
    fn is_fast_mget(&self, connection: &Connection, mut args: Args<'_>) -> bool {
        args.next();
        args.len() > 0
            && connection.session.as_ref().is_some_and(|session| session.is_plain)
            && connection.access().is_some()
            && self.fleet.as_ref().is_none_or(|fleet| fleet.has_one_slot(args))
            && args.all(|key| self.is_fast(key))
    }
}

/// Puts the keys that are left of an `MGET` into the window. Returns whether the window is full before its end.
#[inline]
fn gather_keys<'a, W: From<Work<'a>>>(
    executor: &Executor,
    cursor: &mut Cursor<'a>,
    window: &mut Window<'a, W>,
) -> bool {
    let Some((mut args, end)) = cursor.args.take() else { return false };
    while args.len() > 0 {
        if window.is_full() {
            cursor.args = Some((args, end));
            return true;
        }
        let Some(key) = args.next() else { break };
        let read = KeyRead { of_several: true, is_last: args.len() == 0 };
        push(window, executor, Place { end, ..cursor.place() }, key, Work::Key(read));
    }
    cursor.at = end;
    false
}

/// Whether a script will be executed, as far as is known: it is not refused, and not queued.
#[inline(never)]
fn will_run(connection: &Connection, call: &Call<'_>) -> bool {
    let is_queued = connection.session.as_ref().is_some_and(|session| session.transaction.is_some());
    connection.access().is_some()
        && !is_queued
        && call.command.is_some_and(|command| command.takes(call.args.len()))
}

/// An `MGET` whose keys follow one by one.
fn begin_mget<'a, W: From<Work<'a>>>(
    executor: &Executor,
    ready: &mut Ready<'a, Connection>,
    cursor: &mut Cursor<'a>,
    window: &mut Window<'a, W>,
    args: Args<'a>,
    consumed: usize,
) {
    let end = cursor.at + consumed;
    let mut keys = after(args, 1);
    // The head of the array counts as the first key.
    let done = if cursor.at == ready.consumed { ready.connection.keys_done } else { 0 };
    if let Some(session) = &mut ready.connection.session {
        session.many_keys.place = None;
    }
    if done == 0 {
        push(window, executor, Place { end, ..cursor.place() }, &[], Work::ArrayHead(keys.len()));
    }
    keys.by_ref().take(done.saturating_sub(1)).for_each(drop);
    cursor.args = Some((keys, end));
}

/// What is no array of arguments that are all here. Returns whether the window has to be executed before more is read.
#[cold]
fn push_unusual<'a, W: From<Work<'a>>>(
    executor: &Executor,
    ready: &mut Ready<'a, Connection>,
    cursor: &mut Cursor<'a>,
    window: &mut Window<'a, W>,
    step: Step<'a>,
) -> bool {
    let nothing_ahead = cursor.at == ready.consumed;
    let (work, consumed) = match step {
        Step::Inline { line, consumed } => (Work::Line(line), consumed),
        Step::Nothing { consumed } => {
            // It belongs to what comes before it, if that is not executed yet.
            cursor.at += consumed;
            match nothing_ahead {
                true => {
                    ready.consumed = cursor.at;
                    ready.connection.completed();
                }
                false => push(window, executor, cursor.place(), &[], Work::Nothing),
            }
            return false;
        }
        Step::Upload(upload) => (Work::Argument(upload), upload.consumed),
        Step::Fault(fault) => (Work::Fault(fault), ready.input.len() - cursor.at),
        Step::NeedMore { .. } | Step::Get { .. } | Step::Request { .. } => return false,
    };
    cursor.at += consumed;
    push(window, executor, cursor.place(), &[], work);
    true
}
