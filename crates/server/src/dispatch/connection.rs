//! A connection's state above its socket: what it has still to say, and what it is in the middle of.

use crate::io::{Buffers, ConnectionId, Conversation};
use larder_cache::{Commit, Found, KeyHash, LargeRead, Promotion, Upload};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Output beyond this many bytes is backed up: nothing more is read or answered until it is sent.
pub(super) const OUTPUT_SOFT_BYTES: usize = 64 << 10;
/// The same while half of what connection buffers may hold is in use.
pub(super) const OUTPUT_TIGHT_BYTES: usize = 4 << 10;
/// The same for a datagram's reply, which has nobody to drain it in between.
const DATAGRAM_OUTPUT_BYTES: usize = 1 << 20;
/// Buffers larger than this are not kept for reuse.
const KEPT_BUFFER_BYTES: usize = 32 << 10;
/// Buffers kept for reuse by one worker, half a mebibyte at most; the rest is given back to the allocator.
const KEPT_BUFFERS: usize = 16;

/// What the connections of one worker share: output buffers that wait for their next use, and the news of what is durable.
pub(super) struct Pool {
    kept: RefCell<Vec<Vec<u8>>>,
    /// Replies that were held back until this commit may be sent.
    pub(super) committed: Cell<Commit>,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool { kept: RefCell::default(), committed: Cell::new(Commit(0)) }
    }
}

/// Bytes in the account of connection buffers, until dropped.
#[derive(Default)]
pub(super) struct Charge(Option<Arc<Buffers>>, u64);

impl Charge {
    /// Of bytes that are accounted already.
    pub(super) fn of(buffers: Arc<Buffers>, bytes: u64) -> Charge {
        Charge(Some(buffers), bytes)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(buffers) = &self.0 {
            buffers.give(self.1);
        }
    }
}

impl Pool {
    fn take(&self) -> Vec<u8> {
        self.kept.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(4096))
    }

    fn give(&self, mut buffer: Vec<u8>) {
        let mut kept = self.kept.borrow_mut();
        if buffer.capacity() > 0 && buffer.capacity() <= KEPT_BUFFER_BYTES && kept.len() < KEPT_BUFFERS {
            buffer.clear();
            kept.push(buffer);
        }
    }
}

/// Something that takes longer than one request's turn.
pub(super) enum Busy {
    /// A large value is on its way out; then `tail` follows.
    Sending {
        /// What is left of the value.
        value: LargeRead,
        /// What ends the reply.
        tail: &'static [u8],
    },
    /// A value from flash is on its way out; then `tail` follows.
    Handing {
        /// All of it.
        value: Vec<u8>,
        /// How much of it is in the output.
        sent: usize,
        /// What ends the reply.
        tail: &'static [u8],
        /// The account of the value.
        _charge: Charge,
    },
    /// A value of several parts comes from flash; the request that needs it is executed when it is here.
    Promoting(Box<Promoting>),
    /// A large value is on its way in.
    Receiving(Box<Receiving>),
    /// A dump goes on from this bucket.
    Listing {
        /// The next bucket of the index.
        bucket: u64,
        /// What is said of each item.
        form: Listing,
    },
}

/// The forms of a dump.
#[derive(Clone, Copy)]
pub(super) enum Listing {
    /// `lru_crawler metadump`.
    Metadump,
    /// `lru_crawler mgdump`.
    Mgdump,
    /// `stats cachedump`.
    Cachedump {
        /// Items that may still be listed.
        items_left: usize,
        /// Bytes that may still be listed.
        bytes_left: usize,
    },
}

/// An upload and what to do with it when it is complete.
pub(super) struct Receiving {
    pub(super) upload: Upload,
    /// The line that announced it, read again at the end.
    pub(super) line: Vec<u8>,
    /// The two octets behind the value, as far as they came.
    pub(super) end: Vec<u8>,
}

/// A value of several parts on its way from flash to memory.
pub(super) struct Promoting {
    pub(super) promotion: Promotion,
    pub(super) hash: KeyHash,
    pub(super) key: Box<[u8]>,
    /// What is known of the item, without its value.
    pub(super) found: Found,
    /// The part that is on its way.
    pub(super) token: Option<u32>,
}

/// A key that was asked of flash for the requests at the front of the input.
pub(super) struct Wanted {
    pub(super) token: u32,
    pub(super) hash: KeyHash,
    pub(super) key: Box<[u8]>,
}

/// Replies that wait until something is durable.
struct Held {
    bytes: Vec<u8>,
    until: Commit,
}

/// One client's conversation.
pub struct Connection {
    pub(super) out: Vec<u8>,
    pub(super) id: ConnectionId,
    pool: Rc<Pool>,
    pub(super) closing: bool,
    pub(super) authenticated: bool,
    /// Keys of the `get` line at the front of the input that were answered before the output backed up.
    pub(super) keys_done: usize,
    /// Octets of a refused data block still to be thrown away.
    pub(super) swallow: u64,
    pub(super) busy: Option<Busy>,
    /// Bytes of input that make the next turn worth while.
    pub(super) input_wanted: usize,
    /// Output beyond this many bytes is backed up.
    pub(super) output_most: usize,
    /// UDP: one datagram, one reply.
    pub(super) is_datagram: bool,
    /// Cannot go on before something has come from flash: see `fetches`.
    pub(super) waits: bool,
    /// What is asked of flash, in that order.
    pub(super) wanted: Vec<Wanted>,
    /// How often what came from flash was out of date for the request at the front.
    pub(super) tries: u8,
    /// Replies held back, and until when those in `out` are.
    held: Option<Held>,
    out_until: Option<Commit>,
    /// The last commit that the worker knows this connection to wait for.
    told_until: Option<Commit>,
}

impl Connection {
    pub(super) fn new(
        pool: &Rc<Pool>,
        id: ConnectionId,
        authenticated: bool,
        is_datagram: bool,
    ) -> Connection {
        Connection {
            out: Vec::new(),
            id,
            pool: pool.clone(),
            closing: false,
            authenticated,
            keys_done: 0,
            swallow: 0,
            busy: None,
            input_wanted: 0,
            output_most: if is_datagram { DATAGRAM_OUTPUT_BYTES } else { OUTPUT_SOFT_BYTES },
            is_datagram,
            waits: false,
            wanted: Vec::new(),
            tries: 0,
            held: None,
            out_until: None,
            told_until: None,
        }
    }

    /// The output, ready to be written to.
    #[inline]
    pub(super) fn output(&mut self) -> &mut Vec<u8> {
        if self.out.capacity() == 0 {
            self.out = self.pool.take();
        }
        &mut self.out
    }

    /// Appends a fixed reply.
    #[inline]
    pub(super) fn say(&mut self, reply: &str) {
        self.output().extend_from_slice(reply.as_bytes());
    }

    /// Whether nothing more may be answered before the output is sent.
    #[inline]
    pub(super) fn is_backed_up(&self) -> bool {
        self.waits
            || self.out.len() >= self.output_most
            || matches!(self.busy, Some(Busy::Sending { .. } | Busy::Handing { .. } | Busy::Listing { .. }))
    }

    /// Which of the keys asked of flash this is.
    pub(super) fn fetched(&self, hash: KeyHash, key: &[u8]) -> Option<usize> {
        self.wanted.iter().position(|wanted| wanted.hash == hash && *wanted.key == *key)
    }

    /// What is in the output now is sent only when this is durable. What comes behind it has to wait for it, but what is
    /// held already does not: however fast a client writes, replies go out with every commit.
    pub(super) fn hold(&mut self, until: Commit) {
        self.out_until = self.out_until.max(Some(until));
    }

    /// A commit that the replies in the output wait for, and that the worker was not told of yet. Asked before the output is
    /// taken, so whatever is held later was told of.
    pub(super) fn newly_held_until(&mut self) -> Option<Commit> {
        let until = self.out_until.filter(|until| self.told_until.is_none_or(|told| *until > told));
        self.told_until = until.or(self.told_until);
        until
    }
}

impl Conversation for Connection {
    fn take_output(&mut self) -> Option<Vec<u8>> {
        let committed = self.pool.committed.get();
        if let Some(held) = self.held.take_if(|held| held.until <= committed) {
            return Some(held.bytes);
        }
        if self.out.is_empty() || self.held.is_some() {
            return None;
        }
        match self.out_until.take() {
            Some(until) if until > committed => {
                self.held = Some(Held { bytes: std::mem::take(&mut self.out), until });
                None
            }
            _ => Some(std::mem::take(&mut self.out)),
        }
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        self.pool.give(buffer);
    }

    fn has_output(&self) -> bool {
        !self.out.is_empty() || self.held.is_some()
    }

    fn is_waiting(&self) -> bool {
        self.waits
    }

    fn wants_close(&self) -> bool {
        self.closing && self.busy.is_none()
    }

    fn wants_input(&self) -> bool {
        !self.closing && !self.is_backed_up()
    }

    fn input_wanted(&self) -> usize {
        self.input_wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(pool: &Rc<Pool>) -> Connection {
        Connection::new(pool, ConnectionId::for_tests(1), true, false)
    }

    fn say(connection: &mut Connection, text: &str, until: Option<u64>) {
        connection.say(text);
        if let Some(until) = until {
            connection.hold(Commit(until));
        }
    }

    #[test]
    fn replies_wait_for_their_own_commit_and_no_later_one() {
        let pool = Rc::default();
        let mut connection = connection(&pool);
        say(&mut connection, "free ", None);
        assert_eq!(connection.take_output().as_deref(), Some(&b"free "[..]));

        say(&mut connection, "one ", Some(1));
        assert_eq!(connection.newly_held_until(), Some(Commit(1)));
        assert_eq!(connection.take_output(), None);
        assert!(connection.has_output(), "it is not done");
        // What comes behind what is held waits for its own commit, and the worker is told of that one too.
        say(&mut connection, "two ", Some(2));
        assert_eq!(connection.newly_held_until(), Some(Commit(2)));
        assert_eq!(connection.newly_held_until(), None, "told once");
        assert_eq!(connection.take_output(), None);

        pool.committed.set(Commit(1));
        assert_eq!(connection.take_output().as_deref(), Some(&b"one "[..]));
        assert_eq!(connection.take_output(), None);
        say(&mut connection, "behind ", None);
        assert_eq!(connection.take_output(), None, "not before what came before it");
        pool.committed.set(Commit(2));
        assert_eq!(connection.take_output().as_deref(), Some(&b"two "[..]));
        assert_eq!(connection.take_output().as_deref(), Some(&b"behind "[..]));
        assert!(!connection.has_output());
    }

    #[test]
    fn a_charge_gives_back_what_it_holds() {
        let buffers = Arc::new(Buffers::new(100));
        buffers.take(30);
        let charge = Charge::of(buffers.clone(), 30);
        assert_eq!(buffers.used_bytes(), 30);
        drop(charge);
        assert_eq!(buffers.used_bytes(), 0);
    }
}
