//! A connection's state below the protocol: bytes that wait for the service, and bytes that wait for the socket.

use std::sync::Arc;

use super::counters::{Buffers, ConnectionInfo};
use super::service::Conversation;

/// Receiving pauses while a connection has this much input that is not served, unless one request asks for more.
const HELD_BYTES_MAX: usize = 64 * 1024;
/// Up to here a left-over has the memory it needs and no more.
const EXACT_BYTES_MAX: usize = 32 * 1024;

/// What a driver must offer so that a worker can be written once.
pub(super) trait Driver: Sized {
    /// Received bytes that still lie in the driver's memory. Whoever holds it owns them.
    type Filled;
    /// What the driver knows of one connection.
    type State: Default;

    fn bytes<'a>(&'a self, filled: &'a Self::Filled) -> &'a [u8];
    fn give_back(&mut self, filled: Self::Filled);
    /// A connection is new.
    fn open<C: Conversation>(&mut self, slot: usize, link: &mut Link<C, Self>);
    /// Something changed in a connection that stays: start or stop reading, wait for room in the socket.
    fn steer<C: Conversation>(&mut self, slot: usize, link: &mut Link<C, Self>);
    /// Ends all work on the connection. While it [is busy](Driver::is_busy) the kernel still holds some; the driver
    /// calls [`super::worker::Worker::release_if_closed`] when it does not.
    fn close<C: Conversation>(&mut self, slot: usize, link: &mut Link<C, Self>);
    /// Whether the kernel still works on a connection that was closed.
    fn is_busy(state: &Self::State) -> bool;
    /// Accept connections, or stop to.
    fn listen(&mut self, on: bool);
    /// Stop accepting for good.
    fn stop_listening(&mut self);
    /// From now on ticks are wanted often: the server is on its way down.
    fn hurry(&mut self);
}

/// One connection.
#[derive(Debug)]
pub(super) struct Link<C, D: Driver> {
    pub(super) conversation: C,
    pub(super) info: Arc<ConnectionInfo>,
    /// Tells the connection from others that had its slot.
    pub(super) generation: u32,
    /// New input, not yet served. Only while `left_over` is empty.
    pub(super) direct: Option<D::Filled>,
    pub(super) left_over: LeftOver,
    /// The buffer being sent, and how much of it is.
    pub(super) sending: Vec<u8>,
    pub(super) sent: usize,
    /// Bytes accounted for `sending` while it waits.
    charged: u64,
    /// The socket takes no more for now.
    pub(super) blocked: bool,
    /// The client sends no more.
    pub(super) ended: bool,
    /// The socket is of no further use.
    pub(super) broken: bool,
    /// The service stopped because output was backed up: complete requests may lie in `left_over`.
    pub(super) stalled: bool,
    /// `left_over` has something the service may do more with than the last time.
    pub(super) unseen: bool,
    /// No more input is served; closes once the output is sent.
    pub(super) doomed: bool,
    /// Waits in the worker's queue.
    pub(super) queued: bool,
    /// Closed; only the kernel still holds on to it.
    pub(super) closing: bool,
    /// What is said before closing, after all other output.
    pub(super) last_words: Option<&'static str>,
    pub(super) state: D::State,
}

impl<C: Conversation, D: Driver> Link<C, D> {
    pub(super) fn new(conversation: C, info: Arc<ConnectionInfo>, generation: u32) -> Link<C, D> {
        Link {
            conversation,
            info,
            generation,
            direct: None,
            left_over: LeftOver::default(),
            sending: Vec::new(),
            sent: 0,
            charged: 0,
            blocked: false,
            ended: false,
            broken: false,
            stalled: false,
            unseen: false,
            doomed: false,
            queued: false,
            closing: false,
            last_words: None,
            state: D::State::default(),
        }
    }

    /// Whether nothing was asked that is not answered.
    pub(super) fn is_idle(&self) -> bool {
        !self.blocked
            && !self.queued
            && !self.stalled
            && self.direct.is_none()
            && self.left_over.bytes().is_empty()
            && !self.conversation.has_output()
            && !self.conversation.is_waiting()
    }

    /// Whether there is so much unserved input that more would only cost memory.
    pub(super) fn holds_enough(&self) -> bool {
        let held = self.left_over.bytes().len();
        held >= HELD_BYTES_MAX && held >= self.conversation.input_wanted()
    }

    /// Whether the driver should receive for this connection.
    pub(super) fn wants_receive(&self) -> bool {
        let open = !self.ended && !self.broken && !self.doomed && !self.closing;
        open && !self.stalled && self.conversation.wants_input() && !self.holds_enough()
    }

    /// The next buffer to send.
    pub(super) fn next_output(&mut self) -> Option<Vec<u8>> {
        if let Some(buffer) = self.conversation.take_output() {
            return Some(buffer);
        }
        if self.conversation.has_output() {
            return None;
        }
        self.last_words.take().map(|words| words.as_bytes().to_vec())
    }

    /// The socket is full: what is left of `sending` waits, and is accounted. A client that does not read, while
    /// the buffers' limit is reached, is cut off.
    pub(super) fn block(&mut self, buffers: &Buffers) {
        if self.blocked {
            return;
        }
        let rest = self.sending.len() - self.sent;
        if self.sending.capacity() > 2 * rest {
            let rest = self.sending[self.sent..].to_vec();
            self.conversation.recycle(std::mem::replace(&mut self.sending, rest));
            self.sent = 0;
        }
        self.blocked = true;
        self.charged = self.sending.capacity() as u64;
        self.info.writing.store(true, std::sync::atomic::Ordering::Relaxed);
        if !buffers.try_take(self.charged) {
            buffers.take(self.charged);
            self.broken = true;
        }
    }

    pub(super) fn unblock(&mut self, buffers: &Buffers) {
        if self.blocked {
            self.blocked = false;
            buffers.give(std::mem::take(&mut self.charged));
            self.info.writing.store(false, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

/// Input that the service has not consumed, kept by the connection. No memory while empty; the memory it has is
/// accounted.
#[derive(Debug, Default)]
pub(super) struct LeftOver {
    bytes: Vec<u8>,
    from: usize,
}

impl LeftOver {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    /// Adds `more`. Towards `wanted` bytes in all the memory doubles; a short left-over without such a goal has what it
    /// needs, a long one half as much again. `false` = the buffers' limit is reached, and nothing was added.
    #[must_use]
    pub(super) fn append(&mut self, more: &[u8], wanted: usize, buffers: &Buffers) -> bool {
        let needed = self.bytes().len() + more.len();
        let capacity = self.bytes.capacity();
        if self.bytes.len() + more.len() <= capacity {
            self.bytes.extend_from_slice(more);
            return true;
        }
        if self.from > 0 && needed <= capacity {
            self.bytes.drain(..self.from);
            self.from = 0;
            self.bytes.extend_from_slice(more);
            return true;
        }
        let target = match needed {
            _ if needed < wanted => needed.max(wanted.min(capacity * 2)),
            ..=EXACT_BYTES_MAX => needed,
            _ => needed + needed / 2,
        };
        // The old memory goes in a moment, so only the difference is asked for.
        if !buffers.try_take((target - capacity) as u64) {
            return false;
        }
        let mut grown = Vec::with_capacity(target);
        if grown.capacity() > target {
            buffers.take((grown.capacity() - target) as u64);
        }
        grown.extend_from_slice(self.bytes());
        grown.extend_from_slice(more);
        (self.bytes, self.from) = (grown, 0);
        true
    }

    /// Drops the first `used` bytes; the memory goes when nothing is left.
    pub(super) fn consume(&mut self, used: usize, buffers: &Buffers) {
        self.from += used;
        debug_assert!(self.from <= self.bytes.len());
        if self.from >= self.bytes.len() {
            self.clear(buffers);
        }
    }

    pub(super) fn clear(&mut self, buffers: &Buffers) {
        buffers.give(self.bytes.capacity() as u64);
        self.bytes = Vec::new();
        self.from = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_left_over_is_accounted_and_bounded() {
        let buffers = Buffers::new(4096);
        let mut left = LeftOver::default();
        assert!(left.append(b"get a", 0, &buffers));
        assert_eq!((left.bytes(), buffers.used_bytes()), (&b"get a"[..], 5));
        assert!(left.append(&[b'x'; 95], 100, &buffers));
        assert_eq!(buffers.used_bytes(), 100);
        left.consume(90, &buffers);
        assert!(left.append(&[b'y'; 90], 100, &buffers), "room at the front is found again");
        assert_eq!((left.bytes().len(), buffers.used_bytes()), (100, 100));
        assert!(!left.append(&[0; 4096], 5000, &buffers));
        assert_eq!((left.bytes().len(), buffers.used_bytes()), (100, 100));
        left.consume(100, &buffers);
        assert_eq!((left.bytes.capacity(), buffers.used_bytes()), (0, 0));
        assert!(left.append(&[0; 2000], 3900, &buffers));
        assert!(left.append(&[1; 1900], 3900, &buffers), "the memory it leaves is not in the way");
        assert_eq!((left.bytes().len(), buffers.used_bytes()), (3900, 3900));
    }

    #[test]
    fn a_left_over_grows_by_doubling_up_to_what_is_wanted() {
        let buffers = Buffers::new(u64::MAX);
        let mut left = LeftOver::default();
        let mut growths = 0;
        for _ in 0..1000 {
            let before = buffers.used_bytes();
            assert!(left.append(&[7; 1000], 1_000_000, &buffers));
            growths += usize::from(buffers.used_bytes() != before);
        }
        assert!(growths <= 11, "{growths}");
        assert_eq!(buffers.used_bytes(), 1_000_000);
    }
}
