//! A large argument of a RESP request, which is stored as it arrives: the value of `SET` and of its relatives.
//!
//! The options of a `SET` stand behind its value. So the value is taken in first, and what becomes of it is known when
//! the rest of the request has come. A request that cannot be executed is taken in all the same, and thrown away.

use super::compose::{compose_outcome, say_error};
use super::errors;
use super::item_requests::item_operation;
use super::moment::Moment;
use super::own_request::own_request;
use super::request::{Call, after, words_of};
use super::session::Connection;
use super::tracking::set_changer;
use super::tracking_commands::end_caching;
use super::unfinished::Taking;
use super::worker::Resp;
use crate::dispatch::execute::{Executor, UploadEnd};
use crate::dispatch::item_key::is_plain;
use crate::dispatch::operation::{Change, ItemKey, OldItem, Operation, StoreItem};
use crate::dispatch::outcome::{EditOutcome, Outcome};
use crate::dispatch::progress::Busy;
use crate::dispatch::window::Progressed;
use crate::io::{Buffers, Charge, Ready};
use larder_cache::{Expiry, Mode, Store, StoreOutcome};
use larder_protocol::resp::{
    Args, Fault, Id, Options, Resume, Step, Upload, Version, compose as words, parse,
};
use std::sync::Arc;

/// The most bytes of the arguments behind a value that are copied in one go.
const BEHIND_BYTES_AT_ONCE: usize = 64 << 10;
/// What follows a value.
const END: &[u8] = b"\r\n";

impl Resp {
    /// The beginning of a request of which an argument follows. Only the beginning is consumed.
    pub(super) fn begin_argument(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        upload: &Upload<'_>,
    ) -> Progressed {
        let (body_bytes, before_count) = (upload.body_bytes, upload.args.len());
        let count = before_count + 1 + upload.args_left;
        let mut room = Vec::new();
        let args = match connection.own_keys() {
            None => upload.args,
            Some(own) => own_request(own, upload.args, count, &mut room),
        };
        let call = Call::of(args);
        let key = args.clone().nth(1).unwrap_or_default();
        let hash = executor.hash(key);
        let refused = match self.checked(connection, &call, count) {
            Err(error) => Some(error.unwrap_or(errors::SYNTAX)),
            Ok(_) if !is_plain(key) => Some(errors::KEY_TOO_LONG_HERE),
            Ok(_) if !executor.fits(key.len(), body_bytes.into()) => Some(errors::TOO_LARGE),
            Ok(_) => None,
        };
        let mut charge = Charge::default();
        let has_room = self
            .server
            .buffers()
            .is_none_or(|buffers| charge.try_grow(buffers, 2 * args.bytes().len() as u64));
        if !has_room {
            let error = &errors::NO_MEMORY;
            say_error(&mut connection.output, error);
            connection.output.close_failed();
            connection.ends_unserved = true;
            return Progressed::Request;
        }
        let taken = refused.is_none().then(|| executor.begin_argument(hash, body_bytes)).flatten();
        let mut behind = Vec::new();
        behind.push(b'*');
        larder_protocol::compose::decimal(&mut behind, upload.args_left as u64);
        behind.extend_from_slice(b"\r\n");
        let taking = Taking {
            unwanted: if taken.is_none() { body_bytes as usize } else { 0 },
            error: refused.or(taken.is_none().then_some(errors::NO_MEMORY)),
            upload: taken,
            body_bytes,
            before: args.bytes().to_vec(),
            before_count,
            end_taken: 0,
            behind,
            behind_count: upload.args_left,
            behind_read: Resume::default(),
            is_complete: false,
            charge,
        };
        let Some(session) = &mut connection.session else { return Progressed::Request };
        session.unfinished.taking = Some(Box::new(taking));
        connection.progress.busy = Some(Busy::Taking);
        Progressed::Request
    }

    /// Takes in what has come of a large argument, and executes the request when all of it is here.
    pub(super) fn continue_argument(&mut self, executor: &mut Executor, ready: &mut Ready<'_, Connection>) {
        let taking = ready.connection.session.as_mut().and_then(|session| session.unfinished.taking.take());
        let Some(mut taking) = taking else { return };
        ready.connection.progress.busy = None;
        let (input, behind_bytes_max) = (ready.input, self.request_bytes_max());
        let mut take = |count: usize| {
            ready.consumed += count;
            &input[ready.consumed..]
        };
        let mut rest = take(0);
        while !rest.is_empty() && taking.wants_body() {
            rest = take(taking.take_body(executor, rest));
        }
        if !taking.wants_body() && !taking.is_complete {
            let came = match taking.take_end(rest) {
                Behind::Complete(taken) => {
                    taking.take_behind(take(taken), behind_bytes_max, self.server.buffers())
                }
                other => other,
            };
            match came {
                Behind::Complete(taken) => {
                    take(taken);
                    taking.is_complete = true;
                }
                Behind::Missing(taken) => _ = take(taken),
                Behind::Fault(fault) => {
                    taking.abandon(executor);
                    let error = errors::protocol_error(fault, behind_bytes_max);
                    say_error(&mut ready.connection.output, &error);
                    ready.connection.output.close_failed();
                    ready.connection.ends_unserved = true;
                    return;
                }
            }
        }
        if !taking.is_complete {
            keep(ready.connection, taking);
            return;
        }
        self.finish_argument(executor, ready.connection, taking);
        set_changer(0);
    }

    /// All of the request is here.
    fn finish_argument(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        mut taking: Box<Taking>,
    ) {
        let before = connection.output.len();
        if let Some(session) = &mut connection.session {
            session.begin_reply();
        }
        let request = taking.request();
        let args = Args::new(&request, taking.before_count + 1 + taking.behind_count);
        let call = Call::of(args);
        let error = match (taking.error.take(), self.checked(connection, &call, args.len())) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(error.unwrap_or(errors::SYNTAX)),
            (None, Ok(command)) => Ok(command),
        };
        let command = match (error, taking.upload.is_some()) {
            (Ok(command), true) => command,
            (Ok(_), false) => return self.refuse_argument(executor, connection, *taking, &errors::NO_MEMORY),
            (Err(error), _) => return self.refuse_argument(executor, connection, *taking, &error),
        };
        let has_forgotten = self.forget_left_over(executor, connection, command, args);
        if self.turn.tracks {
            self.note_request(executor, connection, command, args);
            end_caching(connection);
        }
        let Resp { decimal, .. } = self;
        let key = args.clone().nth(1).unwrap_or_default();
        let item = ItemKey { key, hash: executor.hash(key), head: &[] };
        let moment = Moment::new(executor.now_ms(), executor.clock());
        let words = words_of(after(args, 1));
        let read = item_operation(command, &words, [item, item], moment, decimal);
        let (operation, form) = match read {
            Ok(read) => read,
            Err(error) => return self.refuse_argument(executor, connection, *taking, &error),
        };
        let operation = with_value_of(operation, command.id, item, taking.body_bytes);
        let Connection { output, progress, session, .. } = connection;
        let version = session.as_ref().map_or(Version::Resp2, |session| session.version);
        if !has_forgotten || executor.bring_present(progress, &operation).is_none() {
            keep(connection, taking);
            return;
        }
        let Some(upload) = taking.upload.take() else { return };
        match &operation {
            Operation::Store(store) => {
                let outcome =
                    executor.finish_upload(connection.progress.fd, upload, store, UploadEnd::Complete);
                let outcome = match outcome {
                    // What memcached calls not stored: it is a collection, or the value would be too long.
                    Outcome::Stored(StoreOutcome::NotStored) if command.id == Id::Append => {
                        match executor.is_collection(&item) {
                            true => Outcome::Edited(EditOutcome::WrongKind),
                            false => Outcome::Stored(StoreOutcome::TooLarge),
                        }
                    }
                    outcome => outcome,
                };
                compose_outcome(form, output, version, outcome);
            }
            Operation::Edit(key, change) => {
                executor.edit(progress, key, change, Some(upload), |outcome| {
                    compose_outcome(form, output, version, outcome)
                });
            }
            _ => {}
        }
        self.settle_call(executor, connection, command, args, before, None);
        self.settle_reply(executor, connection, before, true);
    }

    /// The request is answered with an error, and what was taken in is let go.
    fn refuse_argument(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        taking: Taking,
        error: &errors::Error,
    ) {
        taking.abandon(executor);
        let before = connection.output.len();
        self.counts().error(error);
        say_error(&mut connection.output, error);
        self.settle_reply(executor, connection, before, true);
    }
}

/// What has come of the request stays until more comes, or until its item has come from flash.
fn keep(connection: &mut Connection, taking: Box<Taking>) {
    if let Some(session) = &mut connection.session {
        session.unfinished.taking = Some(taking);
        connection.progress.busy.get_or_insert(Busy::Taking);
    }
}

/// The operation on a value that was taken in already. The request that was read has an empty one.
fn with_value_of<'a>(operation: Operation<'a>, id: Id, key: ItemKey<'a>, value_bytes: u32) -> Operation<'a> {
    match operation {
        Operation::Store(item) => Operation::Store(StoreItem { value_bytes, ..item }),
        // An upload is added to a value without a copy of either.
        Operation::Edit(_, Change::Append(_)) if id == Id::Append => Operation::Store(StoreItem {
            store: Store {
                mode: Mode::Append,
                vivify: Some(Expiry::NEVER),
                marks_parts: true,
                ..Store::set(key.key, key.hash, &[])
            },
            value_bytes,
            old_if_refused: OldItem::Stays,
            counts_prefix: true,
        }),
        other => other,
    }
}

/// What came of the bytes behind an argument.
enum Behind {
    /// All arguments are here, after this number of bytes of the input was taken.
    Complete(usize),
    /// More are missing.
    Missing(usize),
    Fault(Fault),
}

impl Taking {
    /// Whether bytes of the argument itself are missing.
    fn wants_body(&self) -> bool {
        self.unwanted > 0 || self.upload.as_ref().is_some_and(|upload| upload.missing_bytes() > 0)
    }

    /// Takes in what has come of the argument itself: first its bytes, and then those that are thrown away. Returns how
    /// many bytes of the input were taken.
    fn take_body(&mut self, executor: &mut Executor, input: &[u8]) -> usize {
        let Some(upload) = &mut self.upload else {
            let taken = self.unwanted.min(input.len());
            self.unwanted -= taken;
            return taken;
        };
        let missing = upload.missing_bytes();
        let taken = missing.min(input.len());
        if executor.fill_argument(upload, &input[..taken]) {
            return taken;
        }
        if let Some(upload) = self.upload.take() {
            executor.refuse_argument(upload);
        }
        self.unwanted = missing - taken;
        taken
    }

    /// The argument is not wanted any more.
    fn abandon(self, executor: &Executor) {
        if let Some(upload) = self.upload {
            executor.abandon_argument(upload);
        }
    }

    /// Takes in the line end behind the large argument.
    fn take_end(&mut self, input: &[u8]) -> Behind {
        let missing = &END[self.end_taken..];
        let taken = missing.len().min(input.len());
        if input[..taken] != missing[..taken] {
            return Behind::Fault(Fault::InvalidLineEnd);
        }
        self.end_taken += taken;
        if self.end_taken == END.len() { Behind::Complete(taken) } else { Behind::Missing(taken) }
    }

    /// Takes in the arguments behind the large one. What is copied of the input is what the parser asks for, because
    /// other requests may follow.
    fn take_behind(&mut self, input: &[u8], bytes_max: usize, buffers: Option<&Arc<Buffers>>) -> Behind {
        let options = Options { request_bytes_max: bytes_max, ..Options::default() };
        let mut rest = input;
        loop {
            let missing = match parse(&self.behind, &options, &mut self.behind_read) {
                Step::NeedMore { at_least } => at_least - self.behind.len(),
                Step::Request { .. } | Step::Get { .. } | Step::Nothing { .. } => {
                    return Behind::Complete(input.len() - rest.len());
                }
                Step::Fault(fault) => return Behind::Fault(fault),
                Step::Inline { .. } | Step::Upload(_) => return Behind::Fault(Fault::TooLarge),
            };
            let here = &rest[..rest.len().min(BEHIND_BYTES_AT_ONCE)];
            let more = match missing {
                // The parser asks for one byte after the other of a line that says how long an argument is.
                1 => here.iter().position(|byte| *byte == b'\n').map_or(here.len(), |at| at + 1),
                _ => missing.min(here.len()),
            };
            if more == 0 {
                return Behind::Missing(input.len() - rest.len());
            }
            if buffers.is_some_and(|buffers| !self.charge.try_grow(buffers, 2 * more as u64)) {
                return Behind::Fault(Fault::TooLarge);
            }
            self.behind.extend_from_slice(&here[..more]);
            rest = &rest[more..];
        }
    }

    /// The arguments of the request, with an empty one in the place of the large one.
    fn request(&self) -> Vec<u8> {
        let mut request = self.before.clone();
        words::bulk(&mut request, b"");
        let line_end = self.behind.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        request.extend_from_slice(&self.behind[line_end..]);
        request
    }
}
