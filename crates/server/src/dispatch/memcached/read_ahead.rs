//! What a connection that waits for flash has behind: its keys are read from flash ahead.

use super::command::{Next, next_request};
use super::worker::{Memcached, read_command};
use crate::dispatch::connection::{Connection, SessionState};
use crate::dispatch::execute::{Executor, KeyGroup};
use crate::io::Ready;

/// Keys that are read ahead from flash for a connection that waits, at most.
const KEYS_AHEAD: usize = 256;

impl Memcached {
    /// Begins to read from flash the keys of what follows in the input. The keys of retrievals are looked up in groups,
    /// so that their cache misses overlap.
    pub(super) fn read_requests_ahead<S: SessionState>(
        &mut self,
        executor: &mut Executor,
        ready: &mut Ready<'_, Connection<S>>,
    ) {
        let Memcached { key_rooms, parse_options } = self;
        let (connection, input) = (&mut *ready.connection, ready.input);
        let own_keys = connection.own_keys().cloned();
        let (protocol, connection_access) = (connection.protocol(), connection.access());
        let progress = &mut connection.progress;
        if connection_access.is_none() || !executor.may_read_ahead(progress) {
            return;
        }
        let (mut at, mut skip, mut keys_seen) = (ready.consumed, connection.keys_done, 0);
        let mut group = KeyGroup::new();
        while keys_seen < KEYS_AHEAD {
            let next = next_request(protocol, &input[at..], parse_options);
            let Some(Next { request, consumed, upload_bytes: None }) = next else { break };
            if let Some(keys) = request.retrieved_keys() {
                for key in keys.skip(skip).take(KEYS_AHEAD - keys_seen) {
                    keys_seen += 1;
                    if let Some(own) = &own_keys {
                        let own_key = own.item_key(key, &mut key_rooms.own);
                        if !own_key.is_some_and(|key| executor.read_ahead(progress, executor.hash(key), key))
                        {
                            return;
                        }
                        continue;
                    }
                    if group.is_full() && !executor.read_group_ahead(progress, &mut group) {
                        return;
                    }
                    let hash = executor.hash(key);
                    // Memory is asked first.
                    executor.lookup().prefetch_bucket(hash);
                    group.push((hash, key));
                }
            } else {
                keys_seen += 1;
                if !executor.read_group_ahead(progress, &mut group) {
                    return;
                }
                let own_keys = own_keys.as_deref();
                let Some(command) = read_command(&request, executor, key_rooms, own_keys, false) else {
                    return;
                };
                if let Some((key, hash, _)) = command.operation.need()
                    && !executor.read_ahead(progress, hash, key)
                {
                    return;
                }
            }
            skip = 0;
            at += consumed;
        }
        executor.read_group_ahead(progress, &mut group);
    }
}
