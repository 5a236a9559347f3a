//! A connection's state above its socket: what it has still to say, and what it is in the middle of.

use crate::io::Conversation;
use larder_cache::{LargeRead, Upload};
use std::cell::RefCell;
use std::rc::Rc;

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

/// Output buffers that wait for their next use, shared by the connections of one worker.
#[derive(Default)]
pub(super) struct Pool(RefCell<Vec<Vec<u8>>>);

impl Pool {
    fn take(&self) -> Vec<u8> {
        self.0.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(4096))
    }

    fn give(&self, mut buffer: Vec<u8>) {
        let mut kept = self.0.borrow_mut();
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

/// One client's conversation.
pub struct Connection {
    pub(super) out: Vec<u8>,
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
}

impl Connection {
    pub(super) fn new(pool: &Rc<Pool>, authenticated: bool, is_datagram: bool) -> Connection {
        Connection {
            out: Vec::new(),
            pool: pool.clone(),
            closing: false,
            authenticated,
            keys_done: 0,
            swallow: 0,
            busy: None,
            input_wanted: 0,
            output_most: if is_datagram { DATAGRAM_OUTPUT_BYTES } else { OUTPUT_SOFT_BYTES },
            is_datagram,
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
        self.out.len() >= self.output_most
            || matches!(self.busy, Some(Busy::Sending { .. } | Busy::Listing { .. }))
    }
}

impl Conversation for Connection {
    fn take_output(&mut self) -> Option<Vec<u8>> {
        (!self.out.is_empty()).then(|| std::mem::take(&mut self.out))
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        self.pool.give(buffer);
    }

    fn has_output(&self) -> bool {
        !self.out.is_empty()
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
