//! What a connection that waits for flash has behind: its keys are read from flash ahead.

use super::request::Call;
use super::session::Connection;
use super::worker::Resp;
use crate::dispatch::execute::{Executor, KeyGroup};
use crate::dispatch::item_key::is_plain;
use crate::io::Ready;
use larder_protocol::resp::{Args, Id, Resume, Step, parse};

/// Keys that are read ahead from flash for a connection that waits, at most.
const KEYS_AHEAD: usize = 256;

impl Resp {
    /// Begins to read from flash the keys of what follows in the input of a connection that waits.
    pub(super) fn read_requests_ahead(&mut self, executor: &mut Executor, ready: &mut Ready<'_, Connection>) {
        let options = self.options(ready.connection);
        let [room, _] = &mut self.rooms;
        let (connection, input) = (&mut *ready.connection, ready.input);
        let is_admitted = connection.access().is_some();
        let own_keys = connection.own_keys().cloned();
        let progress = &mut connection.progress;
        if !is_admitted || !executor.may_read_ahead(progress) {
            return;
        }
        // The head of an array may be among what is done: one key is then read again.
        let (mut at, mut skip, mut keys_seen) = (ready.consumed, connection.keys_done.saturating_sub(1), 0);
        let mut group = KeyGroup::new();
        while keys_seen < KEYS_AHEAD {
            let (call, consumed) = match parse(&input[at..], &options, &mut Resume::default()) {
                Step::Get { consumed, .. } => {
                    (Call::of(Args::new(&input[at + b"*2\r\n".len()..at + consumed], 2)), consumed)
                }
                Step::Request { args, consumed } => (Call::of(args), consumed),
                Step::Nothing { consumed } => {
                    at += consumed;
                    continue;
                }
                _ => break,
            };
            let wanted = call.command.filter(|command| depends_on_items(command.id, call.args.len()));
            for key in wanted.into_iter().flat_map(|command| command.keys.of(call.args)).skip(skip) {
                keys_seen += 1;
                let own_key = own_keys.as_ref().map(|own| [own.prefix(), key].concat());
                if let Some(own_key) = own_key {
                    let item = room.item_key(&own_key, |key| executor.hash(key));
                    if !executor.read_ahead(progress, item.hash, item.key) {
                        return;
                    }
                } else if is_plain(key) {
                    if group.is_full() && !executor.read_group_ahead(progress, &mut group) {
                        return;
                    }
                    let hash = executor.hash(key);
                    executor.lookup().prefetch_bucket(hash);
                    group.push((hash, key));
                } else {
                    let item = room.item_key(key, |key| executor.hash(key));
                    if !executor.read_ahead(progress, item.hash, item.key) {
                        return;
                    }
                }
            }
            keys_seen += 1;
            skip = 0;
            at += consumed;
        }
        executor.read_group_ahead(progress, &mut group);
    }
}

/// Whether a command needs the items that its keys have. A plain `SET` does not.
fn depends_on_items(id: Id, args: usize) -> bool {
    match id {
        Id::Set => args > 3,
        Id::Setex | Id::Psetex | Id::Mset => false,
        _ => true,
    }
}
