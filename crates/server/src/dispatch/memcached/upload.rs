//! Large values, which are stored as they arrive.

use super::command::{Next, next_request};
use super::form::Compose;
use super::limited_users::may_execute;
use super::worker::{Memcached, read_command};
use crate::dispatch::connection::{Connection, SessionState};
use crate::dispatch::execute::{Executor, Received, UploadEnd, UploadStart};
use crate::dispatch::operation::Operation;
use crate::dispatch::outcome::Outcome;
use crate::dispatch::request_log::log_request;
use crate::dispatch::window::Progressed;
use crate::io::Ready;

impl Memcached {
    /// A storage line whose value is longer than what is waited for in one piece. Only the line is consumed, and
    /// nothing if the present item has to come from flash first.
    pub(super) fn begin_upload<S: SessionState>(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection<S>,
        line: &[u8],
    ) -> Progressed {
        let Memcached { key_rooms, parse_options } = self;
        let next = next_request(connection.protocol(), line, parse_options);
        let Some(Next { request, upload_bytes: Some(value_bytes), .. }) = next else {
            return Progressed::Request;
        };
        let end = connection.protocol().upload_end();
        let rest_bytes = u64::from(value_bytes) + end.len() as u64;
        let own_keys = connection.own_keys().cloned();
        let own_keys = own_keys.as_deref();
        let Some(mut command) = read_command(&request, executor, key_rooms, own_keys, false) else {
            request.refuse_key(&mut connection.output);
            connection.swallow = rest_bytes;
            return Progressed::Request;
        };
        if !connection.may_do_all() && !may_execute(connection, own_keys, &mut command) {
            connection.swallow = rest_bytes;
            return Progressed::Request;
        }
        let Operation::Store(item) = &command.operation else { return Progressed::Request };
        match executor.begin_upload(&mut connection.progress, &command.operation, item, line) {
            UploadStart::Waits => return Progressed::Waits,
            UploadStart::Receiving => {}
            UploadStart::Refused(outcome) => {
                command.reply.compose(&mut connection.output, Outcome::Stored(outcome));
                connection.swallow = rest_bytes;
            }
        }
        Progressed::Request
    }

    /// Takes in what has come of a large value. With its last byte, the value is stored.
    pub(super) fn continue_upload<S: SessionState>(
        &mut self,
        executor: &mut Executor,
        ready: &mut Ready<'_, Connection<S>>,
    ) {
        let Memcached { key_rooms, parse_options } = self;
        let input = &ready.input[ready.consumed..];
        let protocol = ready.connection.protocol();
        let (receiving, taken, how) =
            match executor.receive(&mut ready.connection.progress, input, protocol.upload_end()) {
                Received::Part(taken) => {
                    ready.consumed += taken;
                    return;
                }
                Received::Ended(receiving, taken, how) => (receiving, taken, how),
            };
        ready.consumed += taken;
        if let UploadEnd::NoMemory { missing_bytes } = how {
            ready.connection.swallow = (missing_bytes + protocol.upload_end().len()) as u64;
        }
        let line = receiving.request.clone();
        let Some(Next { request, .. }) = next_request(protocol, &line, parse_options) else {
            return;
        };
        let own_keys = ready.connection.own_keys().cloned();
        let own_keys = own_keys.as_deref();
        let Some(command) = read_command(&request, executor, key_rooms, own_keys, false) else { return };
        let Operation::Store(item) = &command.operation else { return };
        let progress = &mut ready.connection.progress;
        let receiving = match how {
            UploadEnd::Complete => executor.bring_present_of_upload(progress, receiving, &command.operation),
            UploadEnd::BadEnd | UploadEnd::NoMemory { .. } => Some(receiving),
        };
        let Some(receiving) = receiving else { return };
        let upload = receiving.upload;
        let answered_before = ready.connection.output.len();
        let outcome = executor.finish_upload(ready.connection.progress.fd, upload, item, how);
        command.reply.compose(&mut ready.connection.output, outcome);
        if tracing::enabled!(target: "larder::requests", tracing::Level::DEBUG) {
            log_request(ready.connection, &line, answered_before);
        }
    }
}
