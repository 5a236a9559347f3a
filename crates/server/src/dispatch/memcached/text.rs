//! The text protocol in a worker's turn: requests are gathered key by key, and executed.

use super::client_time::ClientTime;
use super::command::{AnyRequest, KeyReply, command, decoded_key, plain_key};
use super::login::{Login, log_in};
use super::worker::{Memcached, Work, execute_command};
use crate::dispatch::connection::{Connection, SessionState};
use crate::dispatch::cursor::Cursor;
use crate::dispatch::execute::Executor;
use crate::dispatch::interpreter::Interpreter;
use crate::dispatch::operation::Get;
use crate::dispatch::progress::{KeyRead, RestOfLine};
use crate::dispatch::window::{Hints, Progressed, Window, WindowOp, push, push_without_key};
use crate::io::Ready;
use crate::latency::Class;
use larder_cache::{KeyHash, LookupStage, TagMatch};
use larder_protocol::{Keys, Request, Step, parse, reply};
use std::ops::ControlFlow;

/// Keys of one retrieval that are executed in one turn, at most: some hundred microseconds. Then other connections have
/// their turn.
const KEYS_AT_ONCE: usize = 512;

impl Memcached {
    /// Fills the window with the requests of one connection. The bucket of every key is asked for here.
    #[inline(always)]
    pub(super) fn gather_text<'a, S: SessionState, W: From<Work<'a>>>(
        &mut self,
        executor: &mut Executor,
        ready: &mut Ready<'a, Connection<S>>,
        cursor: &mut Cursor<'a>,
        window: &mut Window<'a, W>,
    ) -> bool {
        let input: &'a [u8] = ready.input;
        loop {
            if let Some((keys, read, end)) = &mut cursor.keys {
                if gather_keys(executor, keys, *read, *end, cursor.connection as u32, window) {
                    return true;
                }
                cursor.at = *end;
                cursor.keys = None;
            }
            if window.len() >= cursor.window_stop {
                return cursor.stop(executor, ready, window);
            }
            if let ControlFlow::Break(has_to_execute) = self.come_to_request(executor, ready, cursor) {
                return has_to_execute;
            }
            if ready.connection.rest_of_line.is_some() {
                cursor.go_on(ready);
                continue;
            }
            let (what, consumed) = match parse(&input[cursor.at..], &self.parse_options) {
                Step::NeedMore { at_least } => {
                    ready.connection.input_wanted = at_least;
                    return false;
                }
                // Who may only read may not renew the expiry of what it reads.
                Step::Request { request: Request::Get(get), consumed }
                    if get.exptime.is_some() && !ready.connection.may_do_all() =>
                {
                    (Work::Reject { error: reply::READ_ONLY, swallow: 0 }, consumed)
                }
                Step::Request { request: Request::Get(get), consumed } => {
                    let mut keys = get.keys;
                    if cursor.at == ready.consumed && ready.connection.keys_done > 0 {
                        keys.by_ref().take(ready.connection.keys_done).for_each(drop);
                    }
                    let read = KeyRead { with_cas: get.with_cas, exptime: get.exptime, left: 0 };
                    cursor.keys = Some((keys, read, cursor.at + consumed));
                    continue;
                }
                Step::Request { request, consumed } => {
                    cursor.at += consumed;
                    let key = plain_key(&request);
                    push(window, executor, cursor.place(), key, Work::Request(request));
                    continue;
                }
                Step::Upload { consumed, .. } => {
                    let line = &input[cursor.at..cursor.at + consumed];
                    (Work::Upload(line), consumed)
                }
                Step::Reject { error, consumed, swallow } => (Work::Reject { error, swallow }, consumed),
                Step::Close => (Work::Close(""), input.len() - cursor.at),
                Step::Refuse(error) => (Work::Close(error), input.len() - cursor.at),
            };
            cursor.at += consumed;
            push_without_key(window, cursor.place(), what);
            // What follows a data block still to come, or a refusal, is known only once that is dealt with.
            return true;
        }
    }

    /// Executes one key of a retrieval.
    #[inline]
    pub(super) fn execute_key<S: SessionState, W>(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection<S>,
        op: &WindowOp<'_, W>,
        read: KeyRead,
        hint: Option<TagMatch>,
    ) -> Progressed {
        let touch = read.exptime.map(|exptime| ClientTime::now(executor.clock()).expiry(exptime));
        let get = Get { key: op.key, hash: op.hash, with_cas: read.with_cas, touch };
        let Connection { output, progress, .. } = connection;
        let reply = KeyReply { output, key: op.key, is_last: read.left == 0 };
        let is_answered = executor.get(progress, &get, hint, reply);
        if !is_answered {
            return Progressed::Waits;
        }
        connection.keys_done += 1;
        if read.left > 0 {
            connection.pause_if_due(KEYS_AT_ONCE);
            return Progressed::Key;
        }
        executor.count_time(if touch.is_some() { Class::Touch } else { Class::Get });
        Progressed::Request
    }

    /// Executes a request, unless it has to wait for flash first.
    #[inline]
    pub(super) fn execute_request<S: SessionState>(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection<S>,
        request: &Request<'_>,
        hash: KeyHash,
        hints: &mut Hints,
    ) -> Progressed {
        if !connection.may_do_all() {
            let request = AnyRequest::Text(request.clone());
            return self.execute_restricted(executor, connection, &request, hints);
        }
        let (key, hash) = match decoded_key(request, &mut self.key_rooms.decoded) {
            Some(key) => (key, executor.hash(key)),
            None => (plain_key(request), hash),
        };
        let time = ClientTime::now(executor.clock());
        let command = command(request, key, hash, time, connection.output.len() > 0);
        execute_command(executor, connection, &command, hints)
    }

    /// The login of a text connection, which sends its name and password as the value of a `set`.
    pub(super) fn log_in<S: SessionState>(
        &mut self,
        executor: &mut Executor,
        ready: &mut Ready<'_, Connection<S>>,
    ) {
        let Connection { output, progress, .. } = &mut *ready.connection;
        let input = &ready.input[ready.consumed..];
        let admit = |user: Option<(&[u8], &[u8])>| executor.log_in(progress, user);
        let Login { consumed, input_wanted, rights } = log_in(input, output, admit);
        ready.consumed += consumed;
        ready.connection.input_wanted = input_wanted;
        ready.connection.set_rights(rights, executor.databases());
    }
}

/// Puts keys of a retrieval into the window. Returns whether the window is full before the line's end.
fn gather_keys<'a, W: From<Work<'a>>>(
    executor: &Executor,
    keys: &mut Keys<'a>,
    read: KeyRead,
    end: usize,
    connection: u32,
    window: &mut Window<'a, W>,
) -> bool {
    let lookup = executor.lookup();
    while keys.len() > 0 {
        if window.is_full() {
            return true;
        }
        let Some(key) = keys.next() else { break };
        let hash = executor.hash(key);
        let at = LookupStage::Prefetched(lookup.prefetch_bucket(hash));
        let what = Work::Key(KeyRead { left: keys.len(), ..read }).into();
        window.push(WindowOp { connection, end, hash, key, at, what });
    }
    false
}

/// What is left of the line whose key was just answered, and other keys of which follow.
#[cold]
pub(super) fn rest_of_line<S, W>(
    ready: &Ready<'_, Connection<S>>,
    op: &WindowOp<'_, W>,
    read: KeyRead,
) -> Option<Box<RestOfLine>> {
    let key_end = op.key.as_ptr_range().end.addr() - ready.input.as_ptr().addr();
    Some(Box::new(RestOfLine { read, at: key_end - ready.consumed, end: op.end - ready.consumed }))
}
