//! What takes more than one turn: large values on their way in and out, and dumps.

use super::classic::{mode_of, say_unless};
use super::connection::{Busy, Listing, Receiving};
use super::stats::{Detailed, THE_CLASS};
use super::{Connection, Dispatcher, log_request, meta_key};
use crate::io::Ready;
use larder_cache::{KEY_BYTES_MAX, Listed, Store, StoreOutcome, Upload};
use larder_protocol::{Request, Step, StoreVerb, compose, parse, reply};

/// Items listed before a dump lets other connections have their turn.
const LISTED_AT_ONCE: usize = 64;
/// A line of `stats cachedump` beside its key.
const CACHEDUMP_LINE_BYTES: usize = 48;

impl Dispatcher {
    /// A storage line whose value is longer than what is waited for in one piece. Only the line is consumed, and nothing
    /// if the present item has to come from flash first. Returns whether the line is dealt with.
    pub(super) fn begin_receiving(
        &mut self,
        connection: &mut Connection,
        line: &[u8],
        body_bytes: u32,
    ) -> bool {
        let Step::Upload { request, .. } = parse(line, &self.parse_options) else { return true };
        if self.fetches.is_some() {
            let mut buffer = [0; KEY_BYTES_MAX];
            let key = match &request {
                Request::Store(store) => store.key,
                Request::Meta(meta) => meta_key(meta.key, meta.flags.has(b'b'), &mut buffer),
                _ => return true,
            };
            let hash = self.worker.cache().hash(key);
            if self.bring_present(connection, &request, hash).is_none() {
                return false;
            }
        }
        self.receive_body(connection, &request, line, body_bytes);
        true
    }

    fn receive_body(
        &mut self,
        connection: &mut Connection,
        request: &Request<'_>,
        line: &[u8],
        body_bytes: u32,
    ) {
        let body_end = body_bytes as u64 + 2;
        let mut buffer = [0; KEY_BYTES_MAX];
        let Some((key, takes_old, noreply)) = upload_of(request, &mut buffer) else { return };
        let hash = self.worker.cache().hash(key);
        let begun = if self.worker.fits(key.len(), body_bytes as u64) {
            self.worker.begin_upload(hash, body_bytes).ok_or(StoreOutcome::NoRoom)
        } else {
            Err(StoreOutcome::TooLarge)
        };
        match begun {
            Ok(upload) => {
                let receiving = Receiving { upload, line: line.to_vec(), end: Vec::with_capacity(2) };
                connection.busy = Some(Busy::Receiving(Box::new(receiving)));
            }
            Err(outcome) => {
                self.count_store(outcome, false);
                let answer = self.refused(key, hash, takes_old, outcome);
                say_unless(connection, noreply, answer);
                connection.swallow = body_end;
            }
        }
    }

    /// Takes in what has come of a large value; with its last byte, stores it.
    pub(super) fn continue_receiving(&mut self, ready: &mut Ready<'_, Connection>) {
        let Some(Busy::Receiving(mut receiving)) = ready.connection.busy.take() else { return };
        let input = &ready.input[ready.consumed..];
        let missing_bytes = receiving.upload.missing_bytes();
        let value_bytes = missing_bytes.min(input.len());
        if !self.worker.fill_upload(&mut receiving.upload, &input[..value_bytes]) {
            ready.connection.swallow = missing_bytes as u64 + 2;
            return self.give_up_receiving(ready.connection, *receiving);
        }
        let end_bytes = (2 - receiving.end.len()).min(input.len() - value_bytes);
        if receiving.upload.missing_bytes() == 0 {
            receiving.end.extend_from_slice(&input[value_bytes..value_bytes + end_bytes]);
            ready.consumed += end_bytes;
        }
        ready.consumed += value_bytes;
        if receiving.end.len() < 2 {
            ready.connection.busy = Some(Busy::Receiving(receiving));
            return;
        }
        let Receiving { upload, line, end } = *receiving;
        let Step::Upload { request, .. } = parse(&line, &self.parse_options) else { return };
        let answered_before = ready.connection.out.len();
        if end == b"\r\n" {
            self.finish_receiving(ready.connection, &request, upload);
        } else {
            self.worker.abandon_upload(upload);
            let noreply = matches!(request, Request::Store(store) if store.noreply);
            say_unless(ready.connection, noreply, reply::BAD_CHUNK);
        }
        if self.logs {
            log_request(ready.connection, &line, answered_before);
        }
    }

    /// No room for the next chunk: the value is thrown away, and the old one of a plain set with it.
    fn give_up_receiving(&mut self, connection: &mut Connection, receiving: Receiving) {
        let Receiving { upload, line, .. } = receiving;
        let Step::Upload { request, .. } = parse(&line, &self.parse_options) else { return };
        self.worker.abandon_upload(upload);
        let mut buffer = [0; KEY_BYTES_MAX];
        let Some((key, takes_old, noreply)) = upload_of(&request, &mut buffer) else { return };
        if takes_old {
            let hash = self.worker.cache().hash(key);
            self.delete_quietly(key, hash);
        }
        self.worker.counters().store_no_memory.add(1);
        say_unless(connection, noreply, reply::NO_MEMORY_DURING_READ);
    }

    fn finish_receiving(&mut self, connection: &mut Connection, request: &Request<'_>, upload: Upload) {
        match request {
            Request::Store(store) => {
                let hash = self.worker.cache().hash(store.key);
                let (mode, compare) = mode_of(store.verb, self.compared_cas(store.cas));
                let outcome = self.worker.complete_upload(
                    upload,
                    &Store {
                        key: store.key,
                        hash,
                        mode,
                        flags: store.flags,
                        expiry: self.expiry(store.exptime),
                        value: &[],
                        compare,
                        explicit_cas: None,
                        invalidate: false,
                        vivify: None,
                        binary_key: false,
                    },
                );
                self.count_store(outcome, store.verb == StoreVerb::Cas);
                let answer = self.refused(store.key, hash, store.verb == StoreVerb::Set, outcome);
                self.note_detail(store.key, Detailed::Set);
                say_unless(connection, store.noreply, answer);
            }
            Request::Meta(meta) => {
                let mut buffer = [0; KEY_BYTES_MAX];
                let key = meta_key(meta.key, meta.flags.has(b'b'), &mut buffer);
                let hash = self.worker.cache().hash(key);
                let outcome = self.worker.complete_upload(upload, &self.meta_store(meta, key, hash));
                self.answer_meta_set(connection, meta, key, hash, outcome);
            }
            _ => {}
        }
    }

    /// Sends the next piece of a large value.
    pub(super) fn continue_sending(&mut self, ready: &mut Ready<'_, Connection>) {
        let connection = &mut *ready.connection;
        if connection.out.len() >= connection.output_most {
            return;
        }
        let room = connection.output_most - connection.out.len();
        let (mut value, tail) = match connection.busy.take() {
            Some(Busy::Sending { value, tail }) => (value, tail),
            Some(Busy::Handing { value, sent, tail, _charge }) => {
                let until = value.len().min(sent + room);
                connection.output().extend_from_slice(&value[sent..until]);
                if until < value.len() {
                    connection.busy = Some(Busy::Handing { value, sent: until, tail, _charge });
                } else {
                    connection.output().extend_from_slice(tail);
                }
                return;
            }
            busy => {
                connection.busy = busy;
                return;
            }
        };
        if self.worker.continue_large_read(&mut value, room, connection.output()) {
            connection.busy = Some(Busy::Sending { value, tail });
            return;
        }
        self.worker.end_large_read(value);
        connection.output().extend_from_slice(tail);
    }

    /// Lists the next items of a dump.
    pub(super) fn continue_listing(&mut self, connection: &mut Connection) {
        if connection.out.len() >= connection.output_most {
            return;
        }
        let Some(Busy::Listing { bucket, mut form }) = connection.busy.take() else { return };
        let mut listed = Vec::new();
        let next = self.worker.list(bucket, LISTED_AT_ONCE, &mut listed);
        let out = connection.output();
        for item in &listed {
            match &mut form {
                Listing::Mgdump => compose::mgdump_line(out, &item.key, item.binary_key),
                Listing::Metadump => compose::metadump_line(out, &report(item)),
                Listing::Cachedump { items_left, bytes_left } => {
                    if *items_left == 0
                        || *bytes_left < item.key.len() + CACHEDUMP_LINE_BYTES
                        || item.binary_key
                    {
                        continue;
                    }
                    let before = out.len();
                    out.extend_from_slice(b"ITEM ");
                    out.extend_from_slice(&item.key);
                    let expires = item.expires_unix_s.max(0);
                    out.extend_from_slice(format!(" [{} b; {expires} s]\r\n", item.value_bytes).as_bytes());
                    *items_left -= 1;
                    *bytes_left -= out.len() - before;
                }
            }
        }
        let full = matches!(form, Listing::Cachedump { items_left: 0, .. });
        match next.filter(|_| !full) {
            Some(bucket) => connection.busy = Some(Busy::Listing { bucket, form }),
            None if matches!(form, Listing::Mgdump) => connection.say(reply::META_MISS),
            None => connection.say(reply::END),
        }
    }
}

fn report(item: &Listed) -> compose::ItemReport<'_> {
    compose::ItemReport {
        key: &item.key,
        expiry: item.expires_unix_s,
        last_access: item.accessed_unix_s,
        cas: item.cas,
        fetched: item.fetched,
        class: THE_CLASS,
        bytes: item.bytes,
        flags: item.flags,
    }
}

/// The key of a store, whether it takes the old value with it when it fails, and whether nobody waits for its reply.
fn upload_of<'a>(
    request: &Request<'a>,
    buffer: &'a mut [u8; KEY_BYTES_MAX],
) -> Option<(&'a [u8], bool, bool)> {
    match request {
        Request::Store(store) => Some((store.key, store.verb == StoreVerb::Set, store.noreply)),
        Request::Meta(meta) => {
            let key = meta_key(meta.key, meta.flags.has(b'b'), buffer);
            // Whatever its mode, as memcached.
            Some((key, true, false))
        }
        _ => None,
    }
}
