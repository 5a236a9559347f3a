//! The buffer that a connection is sending.

use super::backlog::Backlog;
use super::buffers::Buffers;
use std::mem;

/// A buffer on its way to the socket. It is empty while nothing is sent, and while the driver has it.
#[derive(Debug, Default)]
pub(super) struct Sending {
    buffer: Vec<u8>,
    sent: usize,
    /// While the socket takes no more: the bytes that are accounted for the buffer.
    blocked: Option<u64>,
    /// What was taken from the service while the socket is full, so that the service can go on.
    pub(super) backlog: Backlog,
}

impl Sending {
    /// Whether there is no buffer.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Whether the socket takes no more for now.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// The bytes that are accounted for the buffer.
    pub(super) fn charged_bytes(&self) -> u64 {
        self.blocked.unwrap_or(0)
    }

    pub(super) fn begin(&mut self, buffer: Vec<u8>) {
        (self.buffer, self.sent) = (buffer, 0);
    }

    /// The bytes that are not sent yet.
    pub(super) fn rest(&self) -> &[u8] {
        &self.buffer[self.sent..]
    }

    /// The socket took `bytes` more. Returns the buffer if that was all of it.
    pub(super) fn advance(&mut self, bytes: usize) -> Option<Vec<u8>> {
        self.sent += bytes;
        (self.sent >= self.buffer.len()).then(|| mem::take(&mut self.buffer))
    }

    /// The socket is full: what is left waits, and is accounted. If that is little, it moves to a buffer of its own,
    /// and the old buffer is returned.
    pub(super) fn block(&mut self, buffers: &Buffers) -> Option<Vec<u8>> {
        debug_assert!(!self.is_blocked());
        let is_mostly_sent = self.buffer.capacity() > 2 * self.rest().len();
        let old = is_mostly_sent.then(|| {
            let rest = self.rest().to_vec();
            self.sent = 0;
            mem::replace(&mut self.buffer, rest)
        });
        let charged = self.buffer.capacity() as u64;
        self.blocked = Some(charged);
        // It exists already. Where that is too much, the worker lets a connection go.
        buffers.take(charged);
        old
    }

    /// There may be room in the socket again. Returns whether the buffer was waiting for that.
    pub(super) fn unblock(&mut self, buffers: &Buffers) -> bool {
        let charged = self.blocked.take();
        charged.inspect(|&bytes| buffers.give(bytes)).is_some()
    }

    /// The driver sends the rest of the buffer: the buffer, and how much of it is sent.
    pub(super) fn lend(&mut self) -> (Vec<u8>, usize) {
        (mem::take(&mut self.buffer), self.sent)
    }

    /// The driver gives the buffer back.
    pub(super) fn give_back(&mut self, buffer: Vec<u8>) {
        self.buffer = buffer;
    }
}
